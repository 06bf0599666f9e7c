/* probe_run.h: what the parts of a probe share: private to estimate_probe.c and probe_*.c. A step is
 * observed (probe_tasks.c), its numbers are kept (probe_kept.c) and rounded (probe_noise.c) to the formats
 * of the cells (probe_formats.c), and noise becomes the cells' errors (probe_errors.c). */
#pragma once

#include "runtime/estimate/estimate_probe.h"
#include "tandem/advanced/probe.h"

enum { PROBE_ABOVE, PROBE_BELOW };
/* Of a whole batch of the training, and of up to TANDEM_WIDE_RANGE of them. */
enum { PROBE_OWN_RANGE, PROBE_WIDE_RANGE, N_PROBE_RANGE };

/* Of a tensor of samples: those that are kept. */
typedef struct probe_kept_tensor {
    float *x; /* [n] */
    int64_t n, n_sample, capacity;
    int is_own;    /* else in the spare memory */
    int is_costly; /* the probe computes its gradient itself: no more samples than needed */
    float amax_of[TANDEM_WIDE_RANGE * PROBE_RANGE_BATCHES]; /* of the whole tensor, in the last batches */
    float amax[N_PROBE_RANGE];                              /* of these, as far as a range reaches */
} probe_kept_tensor;

enum probe_kept_kind { KEPT_X, KEPT_X2, KEPT_Y, KEPT_G, KEPT_DX, KEPT_DX2, N_KEPT };

typedef struct probe_operator {
    int op, is_adjustable, is_before_jump; /* a slope after it jumps */
    int gradient_task;                     /* the first that reads the gradient of its output */
    unsigned formats[TANDEM_N_PROBE_PART]; /* that some cell asks for: bit f */
    probe_kept_tensor kept[N_KEPT];
    /* every `stride`-th number of the weight */
    int64_t n_weight, stride, n_kept_weight;
    float *w, *w_above, *difference[2], amax;
    /* What no range decides is in those of PROBE_OWN_RANGE, and in all once a replicate is through. */
    tandem_probe_sums sums[N_PROBE_RANGE];
} probe_operator;

typedef struct probe_run {
    const probe_point *point;
    tandem_step *plan; /* a step program for the dtypes of one cell at a time */
    int n_op;
    probe_operator *operator;            /* [n_op] adjustable ones, and those that may depend on them */
    float *weight;                       /* of the executor, [n_flat] */
    double jump_ratio;                   /* q, of the replicate */
    double *log_ratio;                   /* room for the median */
    probe_direction direction, sketched; /* z, and what gradients are summed by */
    float *room, *difference, *read;     /* of the largest kept tensor */
    char *spare;                         /* memory of the training that its executor does not use meanwhile */
    uint64_t n_spare;
    int64_t room_size;
    double step[2]; /* of the two batches */
    int batch, place, n_batch_seen;
    tandem_status status;
    tandem_error error;
} probe_run;

/* --- What is kept (probe_kept.c) ----------------------------------------------------------------------- */

/* run->room, ->difference and ->read, of n numbers each. run->room_size stays 0 where there is no memory. */
void probe_open_rooms(probe_run *run, int64_t n);
void probe_close_rooms(probe_run *run);
/* How many samples of a tensor of n numbers are kept. */
int64_t probe_count_kept(const probe_kept_tensor *of, int64_t batch, int64_t n);
/* Room for those; NULL: no tensor of samples, or no memory (run->status). */
float *probe_keep_samples(probe_run *run, probe_kept_tensor *kept, int64_t n);
/* Keeps those of x [n]; with has_range, sees the range of all of x. */
void probe_keep_values(probe_run *run, probe_kept_tensor *kept, const float *x, int64_t n, int has_range);
/* The batches that a range is of, after so many have been seen. */
int probe_batches_of_range(const probe_run *run, int range, int n_seen);

/* --- Noise (probe_noise.c, with the arithmetic of probe_sums.c) ----------------------------------------- */

/* The sums of both ranges are those of this operator: 0, or as far as they are. */
void probe_clear_sums(const probe_run *run, probe_operator *of);
void probe_describe_sums(const probe_run *run, probe_operator *of);
/* The noise of a tensor x of samples, whose D is above − below over the step. range: known; 0: its own. */
void probe_add_noise(probe_run *run, probe_operator *of, int part, const probe_kept_tensor *x,
                     const float *above, const float *below, float range);
/* The same of the weight, when both batches are through. */
void probe_add_weight_noise(probe_run *run, probe_operator *of);

/* --- What tasks show (probe_tasks.c) ------------------------------------------------------------------- */

/* An observer of the executor: task t has run. context: the probe_run. */
void probe_see_task(void *context, const tandem_executor *executor, int t);
/* After a step: the gradients of the kept weights. */
void probe_see_weight_gradients(probe_run *run);

/* --- Formats (probe_formats.c) ------------------------------------------------------------------------- */

/* What a cell rounds each part to; TANDEM_N_FORMAT: not at all. */
typedef struct probe_cell_formats {
    tandem_format of[TANDEM_N_PROBE_PART];
} probe_cell_formats;
probe_cell_formats probe_formats_of_cell(const probe_run *run, int cell);
/* run->plan: the cell's operator in its precision, all others in fp32. */
void probe_set_plan_of_cell(const probe_run *run, int cell);
/* What a part of a dependent operator rounds to under that plan. */
tandem_format probe_format_of_dependent(const probe_run *run, const probe_operator *of, int part);
/* run->operator: the adjustable ones, and those on which a cell puts a format. */
void probe_open_operators(probe_run *run);
/* is_before [n_op]: zeros; whether an operator has a slope after it that jumps. */
void probe_find_jumps(probe_run *run, unsigned char *is_before);

/* --- Errors (probe_errors.c) --------------------------------------------------------------------------- */

/* The errors of all estimated cells in replicate r, whose batches are through. */
void probe_set_replicate(probe_run *run, int r);
