/* memory_fit.h: whether a model can fit the memory of a device at all: from the graph and its step program
 * alone, without costs. Private to allocator/slurm. */
#ifndef TANDEM_ALLOCATOR_SLURM_MEMORY_FIT_H
#define TANDEM_ALLOCATOR_SLURM_MEMORY_FIT_H

#include "tandem/cluster.h"
#include "tandem/graph.h"

/* Work, counted rather than timed, so that an answer is the same on a busy machine. A unit is what it takes
 * to look at one operator under one plan, about 0.2 us. Zero-initialise but for `most`. */
typedef struct tandem_work_budget {
    uint64_t limit, spent;
} tandem_work_budget;
/* 1 and they are spent, where so many units are left; else 0. */
static inline int tandem_work_budget_spend(tandem_work_budget *work, uint64_t units)
{
    if (units > work->limit - work->spent) return 0;
    work->spent += units;
    return 1;
}

/* Units an operator; tests/slurm/test_check_work.c counts them again, and prints the time that they take. */
enum {
    TANDEM_MEMORY_FIT_BUILD = 8,    /* to build it, and to sign it twice */
    TANDEM_MEMORY_FIT_LAY_OUT = 10, /* to lay out its tasks and values */
    TANDEM_MEMORY_FIT_RESOLVE = 1,  /* to resolve it under one plan, and to go through its values */
    TANDEM_MEMORY_FIT_ASSIGN = 2    /* to place its values in memory */
};

/* tandem_memory_fit_open: a model's graph at a batch, as tandem_graph_open makes it, of
 * TANDEM_MEMORY_FIT_MAX_OP operators at most and no more than the work that is left pays for: else
 * TANDEM_LIMIT_EXCEEDED. */
enum { TANDEM_MEMORY_FIT_MAX_OP = 1000 };
tandem_status tandem_memory_fit_open(tandem_graph **graph, const char *model, int64_t batch,
                                     tandem_work_budget *work, tandem_error *error);

/* tandem_memory_fit_min_bytes: bytes that a rank takes at least, under every plan: weights, gradients,
 * optimizer state, and what of each tensor is alive at one moment whatever the precisions are. A model that
 * takes more than a device has cannot run there. Kernels' workspace is not counted, since it takes costs to
 * know it. TANDEM_NO_MEMORY; TANDEM_LIMIT_EXCEEDED where too little work is left, and none is done then.
 * Cost: O(operators × precisions). */
tandem_status tandem_memory_fit_min_bytes(uint64_t *bytes, const tandem_graph *graph,
                                          const tandem_device *device, tandem_work_budget *work,
                                          tandem_error *error);
/* Whether the least is the same on both devices, whatever the model. */
int tandem_memory_fit_is_same(const tandem_device *one, const tandem_device *other);

/* tandem_memory_fit_batch: a batch, as large as can be found with the work that is left and
 * TANDEM_MEMORY_FIT_TRIALS looks, at which the model fits limit_bytes with every operator in one precision
 * (*precision). Looks from 1 to `most`. 0 where not even 1 fits; TANDEM_LIMIT_EXCEEDED where the work did not
 * suffice to find one; what tandem_graph_open says. */
enum { TANDEM_MEMORY_FIT_TRIALS = 12 };
tandem_status tandem_memory_fit_batch(int64_t *batch, tandem_precision *precision, const char *model,
                                      const tandem_device *device, uint64_t limit_bytes, int64_t max,
                                      tandem_work_budget *work, tandem_error *error);

#endif
