/* memory_fit.h: whether a model can fit a device's memory, from the graph and its step program alone,
 * without costs. Private to plugins/slurm. */
#pragma once

#include "tandem/cluster.h"
#include "tandem/graph.h"

/* Work is counted, not timed, so that the answer does not depend on the load of the machine. A unit is one
 * operator under one plan, about 0.2 us. Zero-initialise all but `limit`. */
typedef struct tandem_work_budget {
    uint64_t limit, spent;
} tandem_work_budget;
/* Spends the units and returns 1 where as many are left; else 0. */
static inline int tandem_work_budget_spend(tandem_work_budget *work, uint64_t units)
{
    if (units > work->limit - work->spent) return 0;
    work->spent += units;
    return 1;
}

/* Units per operator; tests/slurm/test_check_work.c counts them and prints the time that they take. */
enum {
    TANDEM_MEMORY_FIT_BUILD = 8,    /* building and signing it twice */
    TANDEM_MEMORY_FIT_LAY_OUT = 10, /* laying out its tasks and values */
    TANDEM_MEMORY_FIT_RESOLVE = 1,  /* resolving it under one plan and visiting its values */
    TANDEM_MEMORY_FIT_ASSIGN = 2    /* assigning its values to memory */
};

/* tandem_memory_fit_open: a model's graph at a batch, as tandem_graph_open makes it.
 * TANDEM_LIMIT_EXCEEDED: it has more than TANDEM_MEMORY_FIT_MAX_OP operators, or more than the budget pays
 * for. */
enum { TANDEM_MEMORY_FIT_MAX_OP = 1000 };
tandem_status tandem_memory_fit_open(tandem_graph **graph, const char *model, int64_t batch,
                                     tandem_work_budget *work, tandem_error *error);

/* tandem_memory_fit_min_bytes: a lower bound of the bytes of a rank under every plan: weights, gradients,
 * optimizer state, and what every plan keeps of each tensor at one moment. A model that needs more than a
 * device has cannot run there. Excludes workspaces, which only costs show. TANDEM_NO_MEMORY.
 * TANDEM_LIMIT_EXCEEDED: the budget is too small; no work is done. Cost: O(operators × precisions). */
tandem_status tandem_memory_fit_min_bytes(uint64_t *bytes, const tandem_graph *graph,
                                          const tandem_device *device, tandem_work_budget *work,
                                          tandem_error *error);
/* Whether the bound is the same on both devices for every model. */
int tandem_memory_fit_is_same(const tandem_device *one, const tandem_device *other);

/* tandem_memory_fit_batch: the largest batch from 1 to `max` that was found to fit limit_bytes with every
 * operator in *precision, within the budget and TANDEM_MEMORY_FIT_TRIALS trials. *batch 0: not even 1
 * fits. TANDEM_LIMIT_EXCEEDED: the budget ended before one was found. Otherwise the errors of
 * tandem_graph_open. */
enum { TANDEM_MEMORY_FIT_TRIALS = 12 };
tandem_status tandem_memory_fit_batch(int64_t *batch, tandem_precision *precision, const char *model,
                                      const tandem_device *device, uint64_t limit_bytes, int64_t max,
                                      tandem_work_budget *work, tandem_error *error);
