/* record_costs.h: what the calls of a recorded graph (record.h) took in the framework that made them.
 *
 * Its device is "torch:NAME", a name that the recorder chooses for a machine and its settings. Costs are
 * those of whole calls: casts, transposes and sums of gradients that the framework does are part of the
 * call that causes them, so that these tasks of the step program (advanced/step.h) cost nothing on such a
 * device. */
#ifndef TANDEM_RECORD_COSTS_H
#define TANDEM_RECORD_COSTS_H

#include "tandem/cluster.h"
#include "tandem/record.h"

TANDEM_BEGIN_DECLARATIONS

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
    const char *libraries; /* "PyTorch 1.13.1": is stored with each row */
    int n_thread;
    uint64_t bucket_bytes; /* 0 = 25 MiB; ddp_buckets of step_options.h */
    int n_cost;
    const tandem_recorded_cost *cost; /* [n_cost]; operators may come in any order */
    int64_t n_update;
    const int64_t *update_ns; /* [n_update] of the optimizer over all parameters */
} tandem_recorded_costs;

/* tandem_record_costs: files the costs of a recorded graph in the store at `path`, which is created where
 * it is missing: all or none. An operator's backward time counts at its weight gradient, where it has one,
 * because frameworks hand gradients over when both are done. Operators with equal signatures get the mean
 * of their times. The optimizer's time is divided over the buckets by their elements. TANDEM_USAGE: a
 * device that is no "torch:", an operator or a time out of range. Errors of tandem_store_open. Cost: one
 * row per variant of a task. */
tandem_status tandem_record_costs(const char *path, const tandem_graph *graph,
                                  const tandem_recorded_costs *costs, tandem_error *error);

/* tandem_record_all_reduce: files n ≥ 1 times of an all-reduce of `bytes` among the ranks of `cluster`,
 * alone and while every rank computes, which then takes `slowdown` (≥ 1) times as long as alone. Loaded
 * times may be the same as those alone, with a slowdown of 1, where they were not measured. */
tandem_status tandem_record_all_reduce(const char *path, const tandem_cluster *cluster, uint64_t bytes,
                                       const int64_t *alone_ns, const int64_t *loaded_ns, int64_t n,
                                       double slowdown, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
