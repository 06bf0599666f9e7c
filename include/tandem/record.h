/* record.h: training graphs and costs that another framework recorded, so that its jobs can be planned without
 * our executor. The Python package `tandem` records PyTorch with it (docs/pytorch.md).
 *
 * A framework that runs one operator after another is described by the list of its calls. The graph of a
 * recording is that list: every call reads the output of the call before it. Linear layers, convolutions and
 * products of matrices are adjustable operators, as in the models of the zoo; every other call is an operator
 * `call`, or `call_trained` where it completes gradients. No kernel of ours runs these.
 *
 * Its device is "torch:NAME", a name that the recorder chooses for a machine and its settings. Costs are those
 * of whole calls: casts, transposes and sums of gradients that the framework does are part of the call that
 * causes them, so that these tasks of the step program (advanced/step.h) cost nothing on such a device. */
#ifndef TANDEM_RECORD_H
#define TANDEM_RECORD_H

#include "tandem/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One call, in the order of the forward pass. Strings are borrowed while a graph is recorded. */
typedef struct tandem_recorded_call {
    tandem_op_kind kind; /* TANDEM_OP_LINEAR, _CONV2D, _MATMUL; TANDEM_OP_CALL: anything else */
    const char *name;    /* unique; 1 … 47 letters, digits and any of ._-/ */
    /* Of TANDEM_OP_CALL: what was called on which shapes, "relu(8x64x56x56)": 1 … TANDEM_RECORDED_TEXT visible
     * characters. Calls of one text share one cost. */
    const char *text;
    /* linear: (…, k) → (…, n). conv2d: (batch, height, width, channels) of both. matmul: (…, m, k), second
     * (…, k, n), or (…, n, k) with transpose_b; 3 or 4 dimensions. TANDEM_OP_CALL: `shape` alone counts. */
    tandem_shape input, second, shape;
    int kernel, stride, pad; /* conv2d: square windows; pad < kernel */
    int transpose_b;         /* matmul */
    /* TANDEM_OP_CALL: elements of the parameters whose gradients are complete when the call's backward pass is
     * through; 0 = none. linear and conv2d have their weight. */
    int64_t parameter_elements;
} tandem_recorded_call;
enum { TANDEM_RECORDED_TEXT = 120, TANDEM_MAX_RECORDED_CALL = 16000 };

typedef struct tandem_recording {
    const char *model; /* 1 … 127 characters */
    int64_t batch;     /* local */
    int n_call;
    const tandem_recorded_call *call; /* [n_call] */
    int64_t n_prediction; /* labels per sample that count in the loss: 1, or the sequence length */
    int64_t n_class;
    tandem_optimizer_options optimizer;
} tandem_recording;

/* tandem_graph_record: makes the graph of a recording. Before the calls stands the source "recorded.input",
 * after them "recorded.label" and the loss, "recorded.loss". Where the output of a call does not have the
 * shape that the next one reads, a reshape "recorded.orderN" stands between them: an edge without data, which
 * costs nothing. TANDEM_WRONG_GRAPH: names the call. TANDEM_USAGE, TANDEM_NO_MEMORY. *graph unchanged on error.
 * Cost: O(calls). */
tandem_status tandem_graph_record(tandem_graph **graph, const tandem_recording *recording,
                                  tandem_error *error);

/* Measured times of one operator of a recorded graph, ns. */
typedef struct tandem_recorded_cost {
    int op;                     /* tandem_graph_find gives it */
    tandem_precision precision; /* of an adjustable operator; else TANDEM_PRECISION_FP32 */
    int64_t n;                  /* repetitions, ≥ 1 */
    /* [n] each, ≥ 0; forward_ns of the source counts as loading, that of the loss as the loss */
    const int64_t *forward_ns, *backward_ns;
} tandem_recorded_cost;

typedef struct tandem_recorded_costs {
    const char *device;    /* "torch:…" */
    const char *libraries; /* "PyTorch 1.13.1": stands beside each row of the store */
    int n_thread;
    uint64_t bucket_bytes; /* 0 = 25 MiB; ddp_buckets of step_options.h */
    int n_cost;
    const tandem_recorded_cost *cost; /* [n_cost]; operators may come in any order */
    int64_t n_update;
    const int64_t *update_ns; /* [n_update] of the optimizer over all parameters */
} tandem_recorded_costs;

/* tandem_record_costs: files the costs of a recorded graph in the store at `path`, which is created where it is
 * missing: all or none. An operator's backward time counts at its weight gradient, where it has one, because
 * frameworks hand gradients over when both are done. Operators with equal signatures get the mean of their
 * times. The optimizer's time is divided over the buckets by their elements. TANDEM_USAGE: a device that is no
 * "torch:", an operator or a time out of range. Errors of tandem_store_open. Cost: one row per variant of a
 * task. */
tandem_status tandem_record_costs(const char *path, const tandem_graph *graph,
                                  const tandem_recorded_costs *costs, tandem_error *error);

/* tandem_record_all_reduce: files n ≥ 1 times of an all-reduce of `bytes` among the ranks of `cluster`, alone and
 * while every rank computes, which then takes `slowdown` (≥ 1) times as long as alone. Loaded times may be the same
 * as those alone, with a slowdown of 1, where they were not measured. */
tandem_status tandem_record_all_reduce(const char *path, const tandem_cluster *cluster, uint64_t bytes,
                                       const int64_t *alone_ns, const int64_t *loaded_ns, int64_t n,
                                       double slowdown, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
