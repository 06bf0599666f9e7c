/* estimate.h: measures what precisions change of real gradients (advanced/estimate.h). */
#pragma once

#include "runtime/train/training_rank.h"

/* Steps of a training point: a number, or a share of `steps`. "0,10%,50%,90%" → ascending, each once.
 * TANDEM_USAGE: names the wrong one. */
tandem_status estimate_points_parse(int64_t point[TANDEM_MAX_TRAINING_POINT], int *n_point, const char *text,
                                    int64_t steps, tandem_error *error);

struct estimate_request;
/* The points that `at` gives, NULL: 50 % and 90 % of the steps, as the weights as drawn say little of a
 * training; refuses points and replicates that cannot be kept before the batches, not after. TANDEM_USAGE. */
tandem_status estimate_choose_points(struct estimate_request *to, const char *at, int64_t steps,
                                     tandem_error *error);

typedef struct estimate_request {
    int64_t point[TANDEM_MAX_TRAINING_POINT]; /* ascending */
    int n_point, n_replicate;
    int first_replicate; /* other replicates have other batches and draws */
    int by_probe;        /* 1: by estimate_probe.c: no bias, and no plans. 0: two gradients a cell */
    int64_t batch;       /* that is estimated; 0: that of a micro-step of the training */
    int n_rank; /* ≥ 2: gradients are means over that many ranks with `batch` samples each, which round the
                   same weights alike and all else apart. 0: one. Not by a probe. */
    const char *precision; /* NULL: every one, in its own formats. Else this one alone, emulated so: */
    tandem_emulation emulation;
    int is_for_devices; /* 1: only what some device of the workload runs, in its AMP dtype */
    /* Of estimate_of_rank; 1: at the weights of the rank's executor, which are those of point[0]. Else it
     * trains up to each training point. */
    int is_at_hand;
    /* 1: also with the ranges of TANDEM_WIDE_RANGE times the samples, for steps with other batches. With
     * delayed scaling, ranges are not those of a batch: then nothing more is estimated. */
    int has_wide_ranges;
    int64_t batches_from; /* index of the first batch; 0: after the last step of the training */
    /* [n_plan × n_op]: whole plans in the place of operators. Row i of the estimate is plan i, as if it
     * were an operator in `precision`, or else in that of estimate_plan_precision. NULL: none. */
    const tandem_precision *plan;
    int n_plan;
    const tandem_dtype *plan_amp; /* [n_plan] without `precision`, with `emulation`: the AMP dtype of each
                                     plan's device */
    /* [n_point × n_plan × n_replicate] with `plan`: how much higher the loss of a replicate's two batches is
     * within the rounding of the plan, in nats; the caller's. NULL: not wanted. */
    double *loss_rise;
    double
        *fp32_loss; /* [n_point] the loss in fp32, over a point's batches; the caller's. NULL: not wanted */
    double loss_scale; /* of rows with gradients in f16; <= 0: dynamic */
    /* [n_point × n_replicate] the sum over all that is estimated of ½(⟨g₁, d₁⟩ + ⟨g₂, d₂⟩), of a replicate's
     * own batches; the caller's. NULL: not wanted. One rank, not by a probe. */
    double *own_products;
    /* 1: the metric is multiplied with an estimate of the curvature, the mean square of a batch's gradients
     * (Fisher's, up to a factor). Not by a probe. */
    int is_curved;
} estimate_request;

/* estimate_run: trains the workload's model in fp32 on training->data, and estimates every operator in the
 * precisions of the request at each training point, with weights held still. CPU devices only. The caller
 * closes
 * *estimate. Memory: beside the training, 3 · n_replicate + 8 times the weights, and
 * an executor. Cost: sampled.c has it. */
tandem_status estimate_run(tandem_estimate *estimate, const tandem_workload *workload,
                           const tandem_train_request *training, const estimate_request *request,
                           tandem_error *error);

/* estimate_of_rank: the same with the executor of a rank. All ranks of a run call it together; they take
 * operators and precisions in turn, and all get the same estimate, of one training point. Its batches are
 * those of training->workload.seed and of the rank's data. TANDEM_RANK_FAILED: another rank has died. */
tandem_status estimate_of_rank(tandem_estimate *estimate, training_rank *rank,
                               const tandem_workload *workload, const tandem_train_request *training,
                               const estimate_request *request, tandem_error *error);

/* As which precision a whole plan counts: int8_full, where it rounds weights at random, in formats of the
 * emulation; else fp8, which does not; fp32: the plan rounds nothing. plan: [n_op] */
tandem_precision estimate_plan_precision(const tandem_precision *plan, int n_op,
                                         const tandem_emulation *emulation);

/* The gradients of a training point. By a probe: four a replicate. Else two a replicate, for fp32 and for
 * each cell: operators × their precisions × AMP dtypes; where a cell is estimated with wide ranges too, three
 * more a replicate, and two. */
int estimate_count_gradients(const tandem_workload *workload, const estimate_request *request);
/* What `tandem sensitivity` takes: of half of the batch, but of 4 samples or more, as many
 * replicates as take some 15 steps' time, but 4 or more. Training points are still to be given. */
estimate_request estimate_request_probe(const tandem_workload *workload);
/* Pairs of batches at a training point of a plan as a whole, unless others are asked for (runtime.h). */
enum { PLAN_REPLICATES = 16 };
/* What a run estimates of itself after `step` steps: the same, of what its devices run. */
estimate_request estimate_request_in_run(const tandem_workload *workload, int64_t step);
/* The steps between two of these that take about a hundredth of a run: by counts alone, so that every run of
 * the workload has the same. */
int64_t estimate_interval_in_run(const tandem_workload *workload);

/* Copies the gradient of an executor's last step, parameter after parameter, [n_weight]. */
tandem_status estimate_copy_gradient(float *gradient, const tandem_backend_api *backend,
                                     const tandem_executor *executor, const tandem_graph *graph,
                                     tandem_error *error);
/* The metric in which AdamW steps after `point` ≥ 1 steps, 1/√v̂, [n_weight]. room: [n_flat]. TANDEM_USAGE:
 * it is SGD. */
tandem_status estimate_copy_metric(float *metric, float *room, const training_rank *rank, int64_t point,
                                   tandem_error *error);
