/* drift.h: the trainings of `tandem-study drift`: plans of one step for a pair of cards, kept from step 0 or
 * made again while outliers grow. */
#ifndef TANDEM_RESEARCH_DRIFT_H
#define TANDEM_RESEARCH_DRIFT_H

#include "research/plans.h"

typedef enum drift_arm {
    DRIFT_FP32,
    DRIFT_KEPT,      /* step 0's plan */
    DRIFT_REPLANNED, /* estimated and allocated again */
    DRIFT_RANDOM,    /* at the same occasions another random plan of the step */
    DRIFT_N_ARM
} drift_arm;
enum { DRIFT_AS_IS, DRIFT_OUTLIERS, DRIFT_N_CELL }; /* of a task: whether outliers are grown */

typedef struct drift_task {
    study_training training; /* in fp32, of one card: a step has as many samples of the other */
    int n_doubling;          /* how often the scale of outliers doubles */
} drift_task;

/* What is fixed before anything runs. */
typedef struct drift_plan {
    const drift_task *task; /* [n_task] */
    int n_task, n_seed;
    tandem_precision precision; /* the low one of the slow card */
    const char *formats;        /* that represent its dtypes */
    int n_place;                /* in which outliers grow: */
    double first, apart;        /* at this share of the training first, and so far from each other */
    double every;               /* share of the training after which it estimates again at the latest */
    int n_replicate;            /* of an estimate, by a probe */
    int64_t estimated_batch;
} drift_plan;
extern const drift_plan drift_plan_full, drift_plan_quick;

/* A hash of what decides the values of its records. */
uint64_t drift_plan_hash(const drift_plan *plan);

/* --- Places of outliers (drift_outliers.c) --------------------------------------------------------------
 * */

enum { DRIFT_MAX_PARAMETERS = 6, DRIFT_MAX_PLACES = 128 };

/* Channels between an operator and those that read it. With a channel of `scaled` times c, and its part of
 * `divided` over c, a model computes the same: a power of two changes no bit in fp32. */
typedef struct drift_place {
    int scaled[DRIFT_MAX_PARAMETERS], n_scaled;   /* parameters whose columns are the channels */
    int divided[DRIFT_MAX_PARAMETERS], n_divided; /* whose rows are, in turn */
    int64_t n_channel;
} drift_place;
/* All of a graph, in order; how many. After a linear, a convolution or a norm, a bias and a relu may follow;
 * then only linears and convolutions read the channels. Left out: what scales, or what reads, more than
 * DRIFT_MAX_PARAMETERS parameters. */
int drift_places_find(drift_place place[DRIFT_MAX_PLACES], const tandem_graph *graph);
/* Scales channel j in the flat weights of a step program. */
void drift_place_scale(float *weight, const tandem_step *step, const drift_place *place, int64_t j, float by);

/* --- One training (drift_training.c) --------------------------------------------------------------------
 * */

typedef struct drift_training {
    const drift_plan *plan;
    const drift_task *task;
    int cell;
    drift_arm arm;
    uint64_t seed;
} drift_training;

/* Its result, in this order in a record. Sensitivities are shares of the samples, at the last estimate. */
typedef struct drift_trained {
    double loss, accuracy;          /* of the test samples: mean in nats, share */
    double n_estimated, n_by_range; /* occasions; of them, for the range of a gradient had doubled */
    double n_changed;               /* precisions, of all occasions */
    double kept, chosen;            /* the sensitivity of step 0's plan, and of the plan that was made */
} drift_trained;
enum { DRIFT_VALUES = sizeof(drift_trained) / sizeof(double) };

/* Trains. what: the drift_training. value: the first n of its result. TANDEM_LIMIT_EXCEEDED: it diverged.
 * TANDEM_USAGE: the model has too few places. Cost: that of the steps, and of an estimate at each
 * occasion. */
tandem_status drift_measure(double *value, int n, const study_lab *lab, const void *what,
                            tandem_error *error);

#endif
