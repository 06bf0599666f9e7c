/* whatif_model.h: a recorded job, ready to be run with other durations; private to replayer/. */
#ifndef TANDEM_REPLAYER_WHATIF_MODEL_H
#define TANDEM_REPLAYER_WHATIF_MODEL_H

#include "base/arena.h"
#include "tandem/dag_simulator.h"
#include "tandem/whatif.h"

/* What operators are told apart by, from the whole to the narrow. */
enum { WHATIF_OPERATOR, WHATIF_STAGE, WHATIF_DP_RANK, WHATIF_WORKER, N_WHATIF_DIMENSION };

typedef struct whatif_label {
    char text[TANDEM_WHATIF_NAME];
} whatif_label;

typedef struct whatif_dimension {
    int n; /* 0: the job has no such thing */
    whatif_label *name;
    int32_t *of; /* [n_op] which one an operator belongs to */
} whatif_dimension;

typedef struct whatif_model {
    tandem_arena arena; /* all arrays */
    int n_step, n_op, n_worker;
    int *first;                       /* [n_step + 1] the operators of a step */
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

void whatif_model_close(whatif_model *model); /* an all-zero one is fine */

/* Room for n_op operators in n_step steps, in every array but those of `by`. TANDEM_NO_MEMORY. */
tandem_status whatif_model_allocate(whatif_model *model, int n_op, int n_step, int n_worker,
                                    tandem_error *error);
/* … and for n names of a dimension; its `of`, too. */
tandem_status whatif_model_dimension(whatif_model *model, int dimension, int n, tandem_error *error);

/* Of n ≥ 1 values, none below 0, rounded; exact: a sum that could be too large for 64 bits is never made. */
int64_t whatif_mean(const int64_t *value, int n);

/* A job by the rules in whatif.h. *model is to be closed on error, too. */
tandem_status whatif_model_of_pipeline(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                       tandem_error *error);

/* The analysis, and the timelines. */
tandem_status whatif_analyse(tandem_whatif **whatif, const whatif_model *model, const char *trace_path,
                             tandem_error *error);
tandem_status whatif_write_timeline(const char *path, const whatif_model *model, tandem_error *error);

#endif
