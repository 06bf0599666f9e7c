/* memory.c: places the values of a step program in one arena, by their lifetimes: first fit in order of
 * birth. Copies of weights lie in the gradients' memory where they can. */
#include <assert.h>
#include <stdlib.h>

#include "step/fusion/merged.h"
#include "step/program/values.h"

/* --- The arena: its free intervals, ascending and never touching ---------------------------------------- */

typedef struct hole {
    uint64_t start, end;
    struct hole *next;
} hole;

typedef struct arena {
    hole rest;     /* the last one, without an end; it is its own next */
    hole *first;   /* the lowest one */
    hole *spare;   /* list of filled ones, for reuse */
    hole *unused;  /* the rest of the array of holes */
    uint64_t size; /* the highest start of `rest` so far */
} arena;

/* The link to the lowest hole that is large enough. */
static hole **find_first_fit(arena *a, uint64_t bytes)
{
    hole **link = &a->first;
    while ((*link)->end - (*link)->start < bytes) link = &(*link)->next;
    return link;
}

static void remove_hole(arena *a, hole **link)
{
    hole *full = *link;
    *link = full->next;
    full->next = a->spare;
    a->spare = full;
}

static void insert_hole(arena *a, hole **link, uint64_t start, uint64_t end)
{
    hole *made = a->spare;
    if (made)
        a->spare = made->next;
    else
        made = a->unused++;
    *made = (hole){start, end, *link};
    *link = made;
}

static uint64_t arena_alloc(arena *a, uint64_t bytes)
{
    hole **link = find_first_fit(a, bytes), *fit = *link;
    const uint64_t offset = fit->start;
    fit->start += bytes;
    if (fit->start == fit->end) remove_hole(a, link);
    if (fit == &a->rest && fit->start > a->size) a->size = fit->start;
    return offset;
}

/* As arena_alloc and arena_free. */
static uint64_t arena_alloc_and_free(arena *a, uint64_t bytes)
{
    const hole *fit = *find_first_fit(a, bytes);
    if (fit == &a->rest && fit->start + bytes > a->size) a->size = fit->start + bytes;
    return fit->start;
}

static void arena_free(arena *a, uint64_t start, uint64_t end)
{
    hole **link = &a->first, *near;
    while ((near = *link)->end < start)
        link = &near->next; /* the first that touches from below, or lies above */
    if (near->end == start) {
        near->end = end;
        if (near->next->start != end) return;
        near->next->start = near->start;
        remove_hole(a, link);
    } else if (near->start == end) {
        near->start = start;
    } else {
        insert_hole(a, link, start, end);
    }
}

/* --- The plan ------------------------------------------------------------------------------------------- */

typedef struct placement {
    const tandem_step *step;
    arena arena;
    int64_t *offset; /* [n_value] of what has been placed */
    uint64_t live;   /* bytes alive */
} placement;

/* A block of values is placed with the first of them. */
static void place_value(placement *p, int v)
{
    const uint64_t bytes = padded_bytes(p->step->value[v].bytes);
    const int64_t home = step_home_of_copy(p->step, v);
    int block[TANDEM_MAX_MERGED_PRODUCTS] = {v};
    if (home >= 0) {
        p->offset[v] = TANDEM_IN_GRADIENTS(home);
        return;
    }
    const int n_block = step_block_of_value(p->step, v, block), n = n_block ? n_block : 1;
    if (n > 1 && step_first_of_block(p->step, block, n) != v) return;
    const uint64_t start = arena_alloc(&p->arena, (uint64_t)n * bytes);
    for (int k = 0; k < n; k++) p->offset[block[k]] = (int64_t)(start + (uint64_t)k * bytes);
    p->live += (uint64_t)n * bytes;
}

static void release_value(placement *p, int v)
{
    const uint64_t bytes = padded_bytes(p->step->value[v].bytes);
    if (p->offset[v] < 0) return; /* in the gradients */
    arena_free(&p->arena, (uint64_t)p->offset[v], (uint64_t)p->offset[v] + bytes);
    p->live -= bytes;
}

static int is_read_earlier(const tandem_task *task, int k)
{
    for (int before = 0; before < k; before++)
        if (task->read[before] == task->read[k]) return 1;
    return 0;
}

/* The value whose memory the result takes over; −1: none. */
static int overwritten_value(const tandem_step *step, const tandem_task *task)
{
    const int overwritten = task->accumulate ? task->read[task->n_read - 1] : -1;
    assert(overwritten < 0 || step->value[overwritten].bytes == step->value[task->write[0]].bytes);
    (void)step;
    return overwritten;
}

/* Returns the offset of the task's workspace; −1: it needs none. */
static int64_t place_task(placement *p, tandem_memory *plan, int t, uint64_t workspace)
{
    const tandem_task *task = &p->step->task[t];
    const tandem_value *value = p->step->value;
    const int overwritten = overwritten_value(p->step, task);
    const int n_write = task->n_write, n_read = overwritten >= 0 ? task->n_read - 1 : task->n_read;
    if (overwritten >= 0) p->offset[task->write[0]] = p->offset[overwritten];
    for (int k = overwritten >= 0; k < n_write; k++)
        if (task->write[k] >= 0) place_value(p, task->write[k]);
    const int64_t at = workspace ? (int64_t)arena_alloc_and_free(&p->arena, workspace) : -1;
    if (p->live + workspace > plan->arena_live) {
        plan->arena_live = p->live + workspace;
        plan->workspace = workspace;
        plan->peak_task = t;
    }
    for (int k = 0; k < n_read; k++) {
        const int v = task->read[k];
        if (v >= 0 && value[v].last == t && !is_read_earlier(task, k)) release_value(p, v);
    }
    for (int k = 0; k < n_write; k++) {
        const int v = task->write[k];
        if (v >= 0 && value[v].last == t) release_value(p, v);
    }
    return at;
}

static uint64_t *total_of_value_category(tandem_memory *plan, const tandem_step *step, int v)
{
    switch (step_value_category(step, v)) {
    case TANDEM_MEMORY_WEIGHT_COPIES: return &plan->weight_copies;
    case TANDEM_MEMORY_WEIGHT_GRADIENTS: return &plan->weight_gradients;
    case TANDEM_MEMORY_ACTIVATION_GRADIENTS: return &plan->activation_gradients;
    default: return &plan->activations;
    }
}

/* Of values that have memory at the peak, in a block, and are written after it. */
static void count_unwritten(tandem_memory *plan, const tandem_step *step)
{
    int block[TANDEM_MAX_MERGED_PRODUCTS];
    for (int t = tandem_step_next_active(step, plan->peak_task + 1);
         t < step->n_task && step->index->n_products > 0; t = tandem_step_next_active(step, t + 1))
        for (int k = 0; k < step->task[t].n_write; k++) {
            const int v = step->task[t].write[k];
            if (step_block_of_value(step, v, block) && step_value_born(step, v) <= plan->peak_task)
                *total_of_value_category(plan, step, v) += padded_bytes(step->value[v].bytes);
        }
}

/* Bytes alive at the peak. A value that is overwritten there counts as the one before. */
static void count_peak_by_category(tandem_memory *plan, const tandem_step *step)
{
    for (int t = tandem_step_next_active(step, 0); t <= plan->peak_task && t < step->n_task;
         t = tandem_step_next_active(step, t + 1))
        for (int k = t == plan->peak_task && step->task[t].accumulate; k < step->task[t].n_write; k++) {
            const int v = step->task[t].write[k];
            if (v >= 0 && step->value[v].last >= plan->peak_task && step_home_of_copy(step, v) < 0)
                *total_of_value_category(plan, step, v) += padded_bytes(step->value[v].bytes);
        }
}

tandem_status tandem_memory_plan(tandem_memory *memory, const tandem_step *step, const uint64_t *workspace,
                                 int64_t *offset, int64_t *workspace_offset, tandem_error *error)
{
    if (step->graph->is_recorded)
        return step_recorded_memory_plan(memory, step, offset, workspace_offset, error);
    const size_t n_value = (size_t)step->n_value;
    placement p = {.step = step, .offset = offset};
    /* and offsets, if not asked for */
    hole *holes = malloc((n_value + 1) * (sizeof *holes + sizeof *p.offset));
    if (!holes) return tandem_no_memory(error, "for the memory plan of %d values", step->n_value);
    if (!offset) p.offset = (int64_t *)(holes + n_value + 1);
    p.arena.rest = (hole){0, UINT64_MAX, &p.arena.rest};
    p.arena.first = &p.arena.rest;
    p.arena.unused = holes;
    for (size_t v = 0; v < n_value && offset; v++) offset[v] = -1;
    for (int t = 0; t < step->n_task && workspace_offset; t++) workspace_offset[t] = -1;

    const uint64_t flat = (uint64_t)step->n_flat * sizeof(float);
    tandem_memory plan = {.weights = flat, .gradients = flat};
    plan.optimizer = (uint64_t)tandem_step_shard_elements(step) * sizeof(float) *
                     (uint64_t)tandem_optimizer_n_state(step->graph->optimizer.kind);
    const uint64_t history_bytes = tandem_step_amax_history_bytes(step);
    const int n_word = (step->n_task + WORD_BITS - 1) / WORD_BITS;
    for (int w = 0; w < n_word; w++)
        for (uint64_t left = step->active[w]; left; left &= left - 1) {
            const int t = w * WORD_BITS + __builtin_ctzll(left);
            const int64_t at = place_task(&p, &plan, t, workspace ? padded_bytes(workspace[t]) : 0);
            if (history_bytes && tandem_step_amax_history(step, t) == t) plan.histories += history_bytes;
            if (workspace_offset) workspace_offset[t] = at;
        }
    count_peak_by_category(&plan, step);
    count_unwritten(&plan, step);
    plan.arena = p.arena.size;
    plan.peak = plan.weights + plan.gradients + plan.optimizer + plan.histories + plan.arena;
    *memory = plan;
    free(holes);
    return TANDEM_OK;
}

tandem_status tandem_memory_of_graph(tandem_memory *memory, const tandem_graph *graph,
                                     const tandem_precision *precision, const tandem_step_options *options,
                                     tandem_error *error)
{
    tandem_step *step = NULL;
    for (int i = 0; i < graph->n_op && precision; i++)
        if (precision[i] != TANDEM_PRECISION_FP32 &&
            !(tandem_op_is_adjustable(&graph->op[i]) &&
              tandem_op_row_get(graph->op[i].kind)->precisions & 1u << precision[i]))
            return tandem_error_set(error, TANDEM_USAGE, "operator %s has no precision %d", graph->op[i].name,
                                    (int)precision[i]);
    tandem_status status = tandem_step_open_with(&step, graph, TANDEM_BF16, 0, options, error);
    if (status != TANDEM_OK) return status;
    if (precision) tandem_step_load(step, precision);
    tandem_step_resolve(step);
    status = tandem_memory_plan(memory, step, NULL, NULL, NULL, error);
    tandem_step_close(step);
    return status;
}
