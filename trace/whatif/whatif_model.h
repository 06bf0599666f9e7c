/* whatif_model.h: a recorded step or job that can be simulated with other durations; private to trace/. */
#pragma once

#include "base/arena.h"
#include "tandem/advanced/dag_simulator.h"
#include "tandem/advanced/whatif.h"

/* How operators are grouped, from wide to narrow. */
enum { WHATIF_OPERATOR, WHATIF_STAGE, WHATIF_DP_RANK, WHATIF_WORKER, N_WHATIF_DIMENSION };

typedef struct whatif_label {
    char text[TANDEM_WHATIF_NAME];
} whatif_label;

typedef struct whatif_dimension {
    int n; /* 0 = the job has no such dimension */
    whatif_label *name;
    int32_t *of; /* [n_op] group of each operator */
} whatif_dimension;

typedef struct whatif_model {
    tandem_arena arena; /* of all arrays */
    int n_step, n_op, n_worker;
    int *first;                       /* [n_step + 1] first operator of each step */
    tandem_dag_simulator **simulator; /* [n_step] */
    int64_t *number, *recorded_ns;    /* [n_step] */
    int64_t *actual_ns, *ideal_ns;    /* [n_op] */
    whatif_dimension by[N_WHATIF_DIMENSION];
    /* for the timeline */
    const char **op_name;          /* [n_op] */
    int32_t *worker, *track;       /* [n_op] */
    const char *const *track_name; /* [n_track] */
    int n_track;
    whatif_label *worker_name; /* [n_worker] */
} whatif_model;

void whatif_model_close(whatif_model *model); /* all zero is fine */

/* Allocates every array but those of `by`. TANDEM_NO_MEMORY. */
tandem_status whatif_model_allocate(whatif_model *model, int n_op, int n_step, int n_worker,
                                    tandem_error *error);
/* Allocates n names of a dimension and its `of`. */
tandem_status whatif_model_dimension(whatif_model *model, int dimension, int n, tandem_error *error);

/* Mean of n ≥ 1 values ≥ 0, rounded; exact, without a sum that could overflow. */
int64_t whatif_mean(const int64_t *value, int n);

/* Builds the model of a pipeline trace by the rules in whatif.h. *model is to be closed on error, too. */
tandem_status whatif_model_of_pipeline(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                       tandem_error *error);

/* The analysis, and the timelines. */
tandem_status whatif_analyse(tandem_whatif **whatif, const whatif_model *model, const char *trace_path,
                             tandem_error *error);
tandem_status whatif_write_timeline(const char *path, const whatif_model *model, tandem_error *error);
