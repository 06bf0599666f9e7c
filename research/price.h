/* price.h: the trainings of `tandem-study price`. */
#ifndef TANDEM_RESEARCH_PRICE_H
#define TANDEM_RESEARCH_PRICE_H

#include "research/exchange.h"

enum {
    PRICE_LENGTHS = 4, /* of fp32's trainings: 4, 3, 2 and 1 fourths of the samples */
    PRICE_RATES = 5,
    PRICE_CELLS = 4,
    PRICE_SETTINGS = PRICE_LENGTHS + PRICE_CELLS
};

typedef struct price_task {
    const study_training *training;       /* in fp32, at the middle rate */
    double error_scale[EXCHANGE_N_CASTS]; /* of s8, per kind of casts */
} price_task;

/* A rounding of all operators. The first two are compared with each other. */
enum { PRICE_E2M1, PRICE_S4 };
typedef struct price_cell {
    const char *name;
    double times; /* of the task's error scale; 0: errors are not magnified */
    exchange_casts casts;
    tandem_format format; /* in the place of s8 */
} price_cell;
extern const price_cell price_cells[PRICE_CELLS];
extern const double price_rates[PRICE_RATES]; /* of the task's */

/* What is fixed before anything runs. */
typedef struct price_plan {
    const price_task *task; /* [n_task] */
    int n_task, n_seed, n_point, n_replicate, n_bootstrap;
} price_plan;
extern const price_plan price_plan_full, price_plan_quick;

/* How the extra samples are predicted: as `tandem sensitivity --plan` does it, all operators at once, which
 * is judged; as the sum over operators by the default estimate; and that by many samples. */
typedef enum price_estimated {
    PRICE_AS_A_WHOLE,
    PRICE_BY_DEFAULT,
    PRICE_BY_SAMPLES,
    PRICE_N_ESTIMATED
} price_estimated;

/* A hash of what decides the values of its records. */
uint64_t price_plan_hash(const price_plan *plan);

/* Of the samples, in fp32: a plan that needs 1 + this times as many reaches the same loss. */
double price_extra_samples(int length);
tandem_emulation price_emulation(const price_task *task, int cell, uint64_t seed);
/* A setting is a length, 0 … PRICE_LENGTHS − 1, or a cell after these. */
study_training price_training(const price_task *task, int setting, int rate, uint64_t seed);

#endif
