/* exchange.h: the trainings of `tandem-study exchange` and `tandem-study crossed`: which they are, and what
 * is predicted of them. */
#ifndef TANDEM_RESEARCH_EXCHANGE_H
#define TANDEM_RESEARCH_EXCHANGE_H

#include "research/trainings.h"

enum {
    EXCHANGE_CELLS = 4,  /* plans of a task: two scales of each kind */
    EXCHANGE_CURVE = 3,  /* trainings in fp32: at B, 3/4·B and 1/2·B */
    EXCHANGE_POINTS = 5, /* in the middle of each fifth of a training */
    EXCHANGE_VALUES = 7  /* of a prediction's record */
};

/* What a plan rounds, in all operators: to s8, drawn. */
typedef enum exchange_casts {
    EXCHANGE_ALL,       /* as int8_full: inputs, weights, gradients */
    EXCHANGE_GRADIENTS, /* gradients alone, in which the gradients of weights are linear */
    EXCHANGE_N_CASTS
} exchange_casts;

typedef struct exchange_task {
    const char *model;
    tandem_optimizer optimizer;
    int n_micro;           /* 1: the curve changes the batch; 4: it changes the number of micro-steps */
    double rate;           /* constant; SGD with a momentum of 0.9, AdamW without decay */
    int64_t batch;         /* of a micro-step; a fourth of it is whole where n_micro is 1 */
    int64_t steps, n_test; /* n_test: test samples of an evaluation */
    int n_evaluation;      /* in the last quarter of the training; their mean is the final loss */
    int is_fitted;         /* 1: what is fitted is fitted on this task; 0: judged on it */
    /* Errors are x + scale·(Q(x) − x). Of each kind of plan: the smaller scale; the other is twice that. */
    double error_scale[EXCHANGE_N_CASTS];
} exchange_task;

/* What is fixed before anything runs. */
typedef struct exchange_plan {
    const char *part;          /* of the study */
    const exchange_task *task; /* [n_task] */
    int n_task, n_seed, n_replicate;
    int n_bootstrap;
    uint64_t first_seed;     /* added to that of the command line */
    int is_with_first_order; /* what is judged: 1: ρ and what its first order adds; 0: ρ alone */
} exchange_plan;
extern const exchange_plan exchange_plan_full, exchange_plan_quick;
/* Of `tandem-study crossed`: the models of `exchange`, each with the other optimizer. */
extern const exchange_plan crossed_plan_full, crossed_plan_quick;
/* A hash of what decides the values of its records. */
uint64_t exchange_plan_hash(const exchange_plan *plan);

/* The margins of margins.def, how many seeds there are to be, what is judged, and on which tasks. */
study_margins exchange_margins_of(const exchange_plan *plan);

exchange_casts exchange_cell_casts(int cell);
/* How these casts are rounded to s8, with errors times error_scale, and no others. */
tandem_precision exchange_precision(exchange_casts casts);
tandem_emulation exchange_emulation(exchange_casts casts, double error_scale, uint64_t seed);
double exchange_cell_scale(const exchange_task *task, int cell);

/* --- Trainings and predictions (exchange_train.c) ---------------------------------------------------------
 * */

/* A setting of a task: 0 … EXCHANGE_CURVE − 1 in fp32, with 4, 3, 2 fourths of the batch; then its cells. */
enum { EXCHANGE_SETTINGS = EXCHANGE_CURVE + EXCHANGE_CELLS };
/* B/b − 1 of a setting: the noise that it adds to that of the gradients at batch B. */
double exchange_added_noise(int setting);

/* A task in a setting; `seed` draws weights, order of samples and roundings. */
study_training exchange_training(const exchange_task *task, int setting, uint64_t seed);

/* How a cell is estimated. */
typedef enum exchange_estimated {
    EXCHANGE_SUMMED, /* the sum over operators, each rounded alone */
    EXCHANGE_WHOLE,  /* all operators rounded at once */
    EXCHANGE_CURVED, /* as whole, in the metric times the curvature */
    EXCHANGE_N_ESTIMATED
} exchange_estimated;

/* What is predicted of a cell: means over the training points. */
typedef struct exchange_prediction {
    double noise, noise_half; /* ρ = Var d / Var g; half of a 95 % interval */
    double bias, bias_half;   /* β; NaN: unknown */
    double last_noise;        /* ρ at the last training point */
    /* 2·Cov(g, d)/Var g + 2β: what the first order of d adds to ρ (exchange_train.c); half as above */
    double first_order, first_order_half;
} exchange_prediction;
/* The noise of a prediction that the plan is judged by. */
double exchange_judged_noise(const exchange_plan *plan, const exchange_prediction *prediction);
tandem_status exchange_predict(exchange_prediction *prediction, const study_lab *lab,
                               const exchange_task *task, int cell, exchange_estimated how, int n_replicate,
                               tandem_error *error);

/* first_order.c: 2·Cov(g, d)/Var g + 2β of a plan at a training point, and half of its 95 % interval, by the
 * jackknife. Without 2β where |G|² is lost in the noise of batches.
 *   share  [cells of the estimate] not 0 where a cell is part of the plan
 *   own    [n_replicate] as `own_products` of the estimate's request, of that training point */
double exchange_first_order(double *half, const tandem_estimate *estimate, int a, const double *share,
                            const double *own);

#endif
