/* plans.h: the trainings of `tandem-study plans`: plans of one step for a pair of cards, a fast one in fp32
 * and a slow one in low precision. */
#ifndef TANDEM_RESEARCH_PLANS_H
#define TANDEM_RESEARCH_PLANS_H

#include "research/trainings.h"

/* The low precision of the slow card. */
typedef struct plans_regime {
    const char *name;
    tandem_precision precision;
    int n_format;
    struct {
        tandem_dtype dtype;
        tandem_format format; /* in the place of the dtype's own */
    } replaced[2];
} plans_regime;

enum {
    PLANS_REGIMES = 5,
    PLANS_COMMON = 2, /* settings of a task that no regime changes: fp32, and batches split by speed */
    PLANS_ARMS = 3,   /* of a regime: uniform low, allocated, random */
    PLANS_SETTINGS = PLANS_COMMON + PLANS_ARMS * PLANS_REGIMES
};
typedef enum plans_setting { PLANS_FP32, PLANS_SPLIT } plans_setting;
typedef enum plans_arm { PLANS_LOW, PLANS_ALLOCATED, PLANS_RANDOM } plans_arm;
extern const plans_regime plans_regimes[PLANS_REGIMES];

/* What is fixed before anything runs. */
typedef struct plans_plan {
    const study_training *task; /* [n_task] in fp32, of one card: a step has as many samples of the other */
    int n_task, n_seed, n_point, n_replicate;
} plans_plan;
extern const plans_plan plans_plan_full, plans_plan_quick;

/* A hash of what decides the values of its records. */
uint64_t plans_plan_hash(const plans_plan *plan);

/* --- The pair of cards (plans_pair.c) ---------------------------------------------------------------- */

/* Times of products by the datasheet's peaks, in ps of a step at the task's batch. */
typedef struct plans_pair {
    tandem_cluster cluster;
    tandem_graph *graph[TANDEM_MAX_CLASS];
    tandem_precision precision; /* of the regime */
    int n_op;
    int64_t *fp32_ps, *low_ps; /* [n_op] on the slow card; 0: the operator has not the precision */
    int64_t fast_ps;           /* of the fast card, in fp32: the step */
    double split;              /* the slow card's rate in fp32 over the fast one's */
} plans_pair;
/* plans_pair_open: the caller closes it, after errors too. */
tandem_status plans_pair_open(plans_pair *pair, const study_training *task, const plans_regime *regime,
                              tandem_error *error);
void plans_pair_close(plans_pair *pair);
/* The slow card's time under a plan [n_op]. */
int64_t plans_pair_ps(const plans_pair *pair, const tandem_precision *plan);
/* All operators that can be are low. */
void plans_uniform(tandem_precision *plan, const plans_pair *pair);
/* The same, but operators in a random order get fp32 back where the step stays that of the fast card. */
tandem_status plans_random(tandem_precision *plan, const plans_pair *pair, uint64_t seed,
                           tandem_error *error);
/* The allocator's in the place of a given one: the least sensitivity within the same step, by an estimate of
 * the slow card's precision, which then counts as complete. */
typedef struct plans_shares {
    double allocated, uniform; /* sensitivities, as shares of the samples */
    double before;             /* of the plan that was given */
} plans_shares;
tandem_status plans_allocate(tandem_precision *plan, plans_shares *shares, const plans_pair *pair,
                             const cli_options *options, tandem_estimate *estimate, tandem_error *error);

#endif
