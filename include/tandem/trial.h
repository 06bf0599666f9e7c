/* trial.h: what a trial says: trainings of the same steps, some in a base precision, some under a plan. For
 * programs that train by themselves; tandem_compare_loss (runtime.h) trains and judges. docs/trials.md
 * explains the terms.
 *
 * A pair is two branches, one of the base and one of the plan, from the same weights over the same samples.
 * Pairs differ in the order of the samples, in what rounding draws and, from fresh weights, in these. */
#ifndef TANDEM_TRIAL_H
#define TANDEM_TRIAL_H

#include <stdint.h>

#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

enum {
    TANDEM_TRIAL_LEAST_PAIRS = 3, /* before a trial answers, unless the plan diverges */
    TANDEM_TRIAL_MOST_PAIRS = 256,
    TANDEM_TRIAL_LEAST_STEPS = 16 /* of a branch */
};

typedef struct tandem_trial_pair {
    const double *base_loss, *plan_loss; /* [n_step] nats per sample, of each step's batch */
    /* nats per sample of samples kept back, after the last step: the base's in its own precision; the plan's
     * weights evaluated in the plan's precisions and in the base's. NaN = not evaluated */
    double base_held_out, plan_held_out, plan_held_out_in_base;
} tandem_trial_pair;

/* A mean over the pairs with its 95 % interval (Student's t over the pairs). All NaN = not known. Infinite
 * ends where one pair has none. */
typedef struct tandem_trial_interval {
    double mean, low, high;
} tandem_trial_interval;

typedef enum tandem_trial_answer {
    TANDEM_TRIAL_UNDECIDED,
    TANDEM_TRIAL_WITHIN, /* the plan needs at most that many samples more */
    TANDEM_TRIAL_BEYOND, /* it needs more */
    TANDEM_N_TRIAL_ANSWER
} tandem_trial_answer;

typedef struct tandem_trial_question {
    int64_t n_step; /* of each branch, ≥ TANDEM_TRIAL_LEAST_STEPS */
    double at_most; /* share of extra samples that is asked for; NaN = nothing is asked */
    /* how often the question is put, at most, as pairs are added: each time at the level 1 − 0.05/n_look, so
     * that all answers together are wrong in 5 of 100 trials or fewer. 0 = once */
    int n_look;
} tandem_trial_question;

typedef struct tandem_trial_result {
    int n_pair, n_diverged; /* n_diverged: pairs whose plan had a loss that is not finite */
    double base_loss;       /* of training: mean over the last quarter of the steps and all pairs */
    /* plan less base, nats: training loss inside the rounding, over the last quarter of the steps; and of the
     * samples kept back. +∞ where a plan diverged */
    tandem_trial_interval training, held_out, held_out_in_base;
    /* samples that the plan needs more to the same training loss, as a share, by the base's own curve. NaN:
     * the base's loss does not fall over its last three quarters. +∞: above all of the curve */
    tandem_trial_interval extra;
    tandem_trial_answer answer;
    /* pairs in all that would decide if means and deviations stay: 0 = it is decided, or nothing is asked; −1
     * = TANDEM_TRIAL_MOST_PAIRS would not */
    int pairs_needed;
} tandem_trial_result;

/* tandem_trial_conclude: what n_pair ≥ 1 pairs say. TANDEM_LIMIT_EXCEEDED: a base's loss is not finite, which
 * names the pair; TANDEM_USAGE: too few steps or pairs; TANDEM_NO_MEMORY. *result unchanged on error. Cost: a
 * pass over the losses for each of 48 places of the base's curve. */
tandem_status tandem_trial_conclude(tandem_trial_result *result, const tandem_trial_pair *pair, int n_pair,
                                 const tandem_trial_question *question, tandem_error *error);

/* "undecided", "within", "beyond". */
const char *tandem_trial_answer_name(tandem_trial_answer answer);

TANDEM_END_DECLARATIONS
#endif
