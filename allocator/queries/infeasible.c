/* infeasible.c: by how much no plan fits, and which batch would.
 *
 * It needs no times: the step program alone determines the memory. It starts from the uniform plan with the
 * smallest peak and changes single operators while the peak shrinks. Workspaces of kernels are known only at
 * the class's own batch. A smaller batch is assumed to need as much, so the batch that it names does fit. */
#include "allocator/problem.h"
#include "tandem/record.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SHRINK_ROUNDS = 4 }; /* over all operators */

typedef struct memory_sizing {
    const tandem_allocation_problem *problem;
    int c;
    tandem_step *step;
    tandem_precision *best; /* [n_op] */
    uint64_t best_bytes;
} memory_sizing;

static tandem_status plan_peak_bytes(uint64_t *peak_bytes, tandem_step *step, tandem_error *error)
{
    tandem_memory memory;
    tandem_step_resolve(step);
    const tandem_status status = tandem_memory_plan(&memory, step, NULL, NULL, NULL, error);
    if (status == TANDEM_OK) *peak_bytes = memory.peak;
    return status;
}

static tandem_status try_current_precisions(memory_sizing *s, tandem_error *error)
{
    uint64_t peak_bytes = 0;
    const tandem_status status = plan_peak_bytes(&peak_bytes, s->step, error);
    if (status != TANDEM_OK || peak_bytes >= s->best_bytes) return status;
    s->best_bytes = peak_bytes;
    memcpy(s->best, s->step->precision, (size_t)s->step->graph->n_op * sizeof *s->best);
    return TANDEM_OK;
}

static tandem_status try_uniform_precisions(memory_sizing *s, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_status status =
        tandem_plan_open(&plan, s->problem->graph, tandem_replayer_cluster(s->problem->replayer), "", error);
    for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
        if (tandem_plan_uniform(plan, s->problem->graph, s->c, (tandem_precision)p, NULL) != TANDEM_OK)
            continue;
        tandem_step_load(s->step, plan->assignment.precision[s->c]);
        status = try_current_precisions(s, error);
    }
    tandem_plan_close(plan);
    return status;
}

static tandem_status try_each_op(memory_sizing *s, tandem_error *error)
{
    const tandem_graph *graph = s->step->graph;
    tandem_status status = TANDEM_OK;
    tandem_step_load(s->step, s->best);
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++) {
        if (!tandem_op_is_adjustable(&graph->op[i])) continue;
        const unsigned precisions = tandem_op_precisions(s->problem, s->c, i);
        for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++) {
            if (!(precisions & 1u << p) || p == (int)s->best[i]) continue;
            tandem_step_set(s->step, i, (tandem_precision)p);
            status = try_current_precisions(s, error);
        }
        tandem_step_set(s->step, i, s->best[i]);
    }
    return status;
}

/* Leaves the precisions with the smallest peak in s->best, and that peak without workspaces. */
static tandem_status find_min_memory_plan(memory_sizing *s, tandem_error *error)
{
    tandem_status status = try_uniform_precisions(s, error);
    uint64_t before = 0;
    for (int round = 0; round < MAX_SHRINK_ROUNDS && status == TANDEM_OK && before != s->best_bytes;
         round++) {
        before = s->best_bytes;
        status = try_each_op(s, error);
    }
    return status;
}

/* The class's peak in the replayer, with measured workspaces; 0: a cost is missing. */
static tandem_status replay_min_memory_plan(uint64_t *peak_bytes, const memory_sizing *s, tandem_error *error)
{
    tandem_replay replay;
    tandem_error why = {0};
    *peak_bytes = 0;
    tandem_replayer_load_class(s->problem->replayer, s->c, s->best);
    const tandem_status status =
        tandem_replayer_run(s->problem->replayer, &replay, TANDEM_REPLAY_MEMORY, &why);
    if (status == TANDEM_OK) *peak_bytes = replay.classes[s->c].peak_bytes;
    if (status == TANDEM_OK || status == TANDEM_MISSING) return TANDEM_OK;
    return tandem_error_forward(status, &why, error);
}

/* The class's peak at another batch: the least of these precisions and the uniform ones, which suit small
 * batches. */
static tandem_status find_peak_at_batch(uint64_t *peak_bytes, const memory_sizing *s, int64_t batch,
                                        tandem_error *error)
{
    tandem_graph *graph = NULL;
    memory_sizing there = {.problem = s->problem, .c = s->c, .best_bytes = UINT64_MAX};
    tandem_status status = tandem_graph_open(&graph, s->problem->graph->model, batch, error);
    if (status == TANDEM_OK)
        status = tandem_step_open_with(&there.step, graph, s->step->amp_dtype, s->step->bucket_bytes,
                                       &s->step->options, error);
    if (status == TANDEM_OK && !(there.best = malloc(((size_t)graph->n_op + 1) * sizeof *there.best)))
        status = tandem_no_memory(error, "for %d operators", graph->n_op);
    if (status == TANDEM_OK) {
        tandem_step_load(there.step, s->best);
        status = try_current_precisions(&there, error);
    }
    if (status == TANDEM_OK) status = try_uniform_precisions(&there, error);
    if (status == TANDEM_OK) *peak_bytes = there.best_bytes;
    free(there.best);
    tandem_step_close(there.step);
    tandem_graph_close(graph);
    return status;
}

/* The largest batch that fits, by bisection; 0 = not even 1 does. */
static tandem_status find_max_batch(int64_t *batch, const memory_sizing *s, uint64_t limit_bytes,
                                    uint64_t workspace_bytes, tandem_error *error)
{
    int64_t fits = 0, too_large = s->step->graph->batch;
    while (too_large - fits > 1) {
        const int64_t tried = fits + (too_large - fits) / 2;
        uint64_t peak_bytes = 0;
        const tandem_status status = find_peak_at_batch(&peak_bytes, s, tried, error);
        if (status != TANDEM_OK) return status;
        if (peak_bytes + workspace_bytes <= limit_bytes)
            fits = tried;
        else
            too_large = tried;
    }
    *batch = fits;
    return TANDEM_OK;
}

/* *found = 0 where class c fits. */
static tandem_status find_class_deficit(tandem_memory_deficit *out, int *found,
                                        const tandem_allocation_problem *problem, int c, tandem_error *error)
{
    const tandem_step *own = tandem_replayer_step(problem->replayer, c);
    const uint64_t limit_bytes = tandem_allocation_limit_bytes(problem, c);
    memory_sizing s = {.problem = problem, .c = c, .best_bytes = UINT64_MAX};
    uint64_t replayed_bytes = 0;
    *found = 0;
    if (!limit_bytes) return TANDEM_OK;
    s.best = calloc((size_t)own->graph->n_op + 1, sizeof *s.best);
    tandem_status status = s.best ? tandem_step_open_with(&s.step, own->graph, own->amp_dtype,
                                                          own->bucket_bytes, &own->options, error)
                                  : tandem_no_memory(error, "for %d operators", own->graph->n_op);
    if (status == TANDEM_OK) status = find_min_memory_plan(&s, error);
    if (status == TANDEM_OK) status = replay_min_memory_plan(&replayed_bytes, &s, error);
    const uint64_t peak_bytes = replayed_bytes > s.best_bytes ? replayed_bytes : s.best_bytes;
    if (status == TANDEM_OK && peak_bytes > limit_bytes) {
        *found = 1;
        *out = (tandem_memory_deficit){.c = c, .peak_bytes = peak_bytes, .limit_bytes = limit_bytes};
        if (own->graph->memory && !own->graph->memory->has_growth)
            out->batch = -1;
        else
            status = find_max_batch(&out->batch, &s, limit_bytes, peak_bytes - s.best_bytes, error);
    }
    tandem_step_close(s.step);
    free(s.best);
    return status;
}

tandem_status tandem_memory_deficits_find(tandem_memory_deficit deficit[TANDEM_MAX_CLASS], int *n_deficit,
                                          const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_memory_deficit found[TANDEM_MAX_CLASS];
    int n = 0;
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < tandem_replayer_cluster(problem->replayer)->n_class && status == TANDEM_OK; c++) {
        int is_over_limit = 0;
        status = find_class_deficit(&found[n], &is_over_limit, problem, c, error);
        n += is_over_limit;
    }
    if (status != TANDEM_OK) return status;
    for (int k = 0; k < n; k++) deficit[k] = found[k];
    *n_deficit = n;
    return TANDEM_OK;
}
