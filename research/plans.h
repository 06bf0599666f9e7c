/* plans.h: the trainings of `tandem-study plans`: plans of one step for a card that is fast in few bits. */
#ifndef TANDEM_RESEARCH_PLANS_H
#define TANDEM_RESEARCH_PLANS_H

#include "research/trainings.h"

/* A precision of few bits beside a wider one. */
typedef struct plans_regime {
    const char *name, *cluster; /* at whose peaks products are timed; its last class has the few bits */
    tandem_precision high, low;
    tandem_format format; /* in the place of s8; TANDEM_N_FORMAT: low's own */
    /* least share of what `low` everywhere saves of the step that a plan keeps; beside another class, the
     * step is that one's */
    double kept;
} plans_regime;

/* How a plan is chosen. All but the first use the step that `kept` leaves. */
typedef enum plans_arm {
    PLANS_LOW,        /* low wherever an operator has it */
    PLANS_ALLOCATED,  /* as a user gets it: estimated by default, then allocated */
    PLANS_BY_SAMPLES, /* the same, estimated by samples */
    PLANS_QSYNC,      /* the least sum of QSync's indicator, by the same solver */
    PLANS_LAST,       /* the last operators are high */
    PLANS_ENDS,       /* the first and the last are, in turns */
    PLANS_RANDOM,     /* operators in a random order are, another one for each seed */
    PLANS_WORST,      /* those that need the fewest samples for their time are */
    PLANS_ARMS
} plans_arm;
extern const char *const plans_arm_names[PLANS_ARMS];

enum {
    PLANS_REGIMES = 3,
    PLANS_COMMON = 1, /* settings of a task that no regime changes: all in fp32 */
    PLANS_SETTINGS = PLANS_COMMON + PLANS_ARMS * PLANS_REGIMES
};
extern const plans_regime plans_regimes[PLANS_REGIMES];

/* What is fixed before anything runs. */
typedef struct plans_plan {
    const study_training *task; /* [n_task] in fp32 */
    int n_task, n_seed, n_point, n_replicate;
} plans_plan;
extern const plans_plan plans_plan_full, plans_plan_quick;

/* A hash of what decides the values of its records. */
uint64_t plans_plan_hash(const plans_plan *plan);

/* --- The cards (plans_card.c) ------------------------------------------------------------------------- */

/* Times of products by the datasheet's peaks, in ps of a step. */
typedef struct plans_card {
    plans_regime regime;
    tandem_cluster cluster;
    tandem_graph *graph[TANDEM_MAX_CLASS];
    int c;                     /* the class that has the few bits; all below are of it */
    int n_op, n_choice;        /* n_choice: operators that have the low precision */
    int64_t *high_ps, *low_ps; /* [n_op]; low_ps 0: the operator has not the precision */
    int64_t target_ps;         /* the longest step */
} plans_card;
/* plans_card_open: the caller closes it, after errors too. */
tandem_status plans_card_open(plans_card *card, const study_training *task, const plans_regime *regime,
                              tandem_error *error);
void plans_card_close(plans_card *card);
int64_t plans_card_ps(const plans_card *card, const tandem_precision *plan);
/* What the operators that are low in a plan need more, by their scores [n_op]. */
double plans_card_score(const plans_card *card, const tandem_precision *plan, const double *score);
/* How many plans are within the step, in powers of 10: a lower bound, since times are rounded up. */
double plans_card_log_count(const plans_card *card);

/* All operators that have it are low. */
void plans_uniform(tandem_precision *plan, const plans_card *card);
/* The same, but operators get the high precision in an arm's order where the step allows it: PLANS_LAST,
 * PLANS_ENDS; PLANS_RANDOM by a seed; PLANS_WORST by a score [n_op] of low operators. TANDEM_NO_MEMORY. */
tandem_status plans_draw(tandem_precision *plan, const plans_card *card, plans_arm arm, uint64_t seed,
                         const double *score, tandem_error *error);

/* The allocator's plan within the step, by an estimate of the low precision, which then counts as complete.
 *   score  [n_op] extra samples of each operator where it is low, as shares, which add up */
tandem_status plans_allocate(tandem_precision *plan, double *score, const plans_card *card,
                             const cli_options *options, tandem_estimate *estimate, tandem_error *error);
/* The plan within the step with the least sum of an indicator [n_op] of low operators, by the same solver. */
tandem_status plans_allocate_by(tandem_precision *plan, const plans_card *card, const cli_options *options,
                                const double *indicator, tandem_error *error);

#endif
