/* null.h: what `tandem-study null` trains. */
#ifndef TANDEM_RESEARCH_NULL_H
#define TANDEM_RESEARCH_NULL_H

#include "research/trainings.h"

/* A precision that all operators have which can have it. */
typedef struct null_precision {
    const char *name, *precision; /* NULL: fp32, the first row alone */
    double loss_scale;            /* 0: none, < 0: dynamic */
    tandem_format format;         /* in the place of its dtype's; TANDEM_N_FORMAT: none */
    int is_control;               /* 1: no cell of the bar */
} null_precision;

/* What is fixed before anything runs. */
typedef struct null_plan {
    const study_training *task; /* [n_task] in fp32 */
    int n_task;
    int n_pilot, first_pilot; /* pairs of the pilot, and its first seed: it has none of the pairs' */
    int n_least, n_pair;      /* pairs of a cell: at least, for spreads have heavy tails, and at most */
} null_plan;
extern const null_plan null_plan_full, null_plan_quick;

enum { NULL_PRECISIONS = 6 };
extern const null_precision null_precisions[NULL_PRECISIONS];

/* A hash of what decides the values of its records. */
uint64_t null_plan_hash(const null_plan *plan);

#endif
