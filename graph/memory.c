/* memory.c: places every value of a step program in one arena by lifetime. */
#include <stdlib.h>
#include <string.h>

#include "graph/step_index.h"

enum { ALIGNMENT = 64 };

/* Free intervals below `end`, ascending and never touching. */
typedef struct holes {
    struct hole {
        uint64_t start, end;
    } * hole;
    int n;
    uint64_t end; /* beyond it everything is free */
    uint64_t highest;
} holes;

static uint64_t padded(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t take(holes *free_list, uint64_t bytes)
{
    for (int h = 0; h < free_list->n; h++) {
        struct hole *hole = &free_list->hole[h];
        if (hole->end - hole->start < bytes) continue;
        const uint64_t offset = hole->start;
        hole->start += bytes;
        if (hole->start == hole->end) {
            free_list->n--;
            memmove(hole, hole + 1, (size_t)(free_list->n - h) * sizeof *hole);
        }
        return offset;
    }
    const uint64_t offset = free_list->end;
    free_list->end += bytes;
    if (free_list->end > free_list->highest) free_list->highest = free_list->end;
    return offset;
}

static void give(holes *free_list, uint64_t start, uint64_t bytes)
{
    const uint64_t end = start + bytes;
    int h = 0;
    while (h < free_list->n && free_list->hole[h].start < start) h++;
    const int joins_left = h > 0 && free_list->hole[h - 1].end == start;
    const int joins_right = h < free_list->n && free_list->hole[h].start == end;
    if (joins_left && joins_right) {
        free_list->hole[h - 1].end = free_list->hole[h].end;
        free_list->n--;
        memmove(&free_list->hole[h], &free_list->hole[h + 1], (size_t)(free_list->n - h) * sizeof *free_list->hole);
    } else if (joins_left) {
        free_list->hole[h - 1].end = end;
    } else if (joins_right) {
        free_list->hole[h].start = start;
    } else {
        memmove(&free_list->hole[h + 1], &free_list->hole[h], (size_t)(free_list->n - h) * sizeof *free_list->hole);
        free_list->hole[h] = (struct hole){start, end};
        free_list->n++;
    }
    if (free_list->n > 0 && free_list->hole[free_list->n - 1].end == free_list->end)
        free_list->end = free_list->hole[--free_list->n].start;
}

/* Bytes alive, by kind, and the most that were alive at once. */
typedef struct census {
    uint64_t kind[4], total; /* activations, activation gradients, weight copies, workspace */
} census;
enum { ACTIVATIONS, ACTIVATION_GRADIENTS, WEIGHT_COPIES, WORKSPACE };

static int kind_of_value(const tandem_step *step, int v)
{
    if (v >= step->graph->n_op * VALUES_AN_OP) return WEIGHT_COPIES;
    const int role = v % VALUES_AN_OP;
    const int is_gradient = (role >= VALUE_GRADIENT && role < VALUE_AUX) || role >= VALUE_CONTRIBUTION;
    return is_gradient ? ACTIVATION_GRADIENTS : ACTIVATIONS;
}

static void count(census *alive, int kind, int64_t bytes)
{
    alive->kind[kind] += (uint64_t)bytes;
    alive->total += (uint64_t)bytes;
}

typedef struct placement {
    const tandem_step *step;
    holes free_list;
    int64_t *offset; /* [n_value] */
    census alive;
} placement;

static void free_if_dead(placement *place, int v, int t)
{
    if (v < 0 || place->step->value[v].last != t || place->offset[v] < 0) return;
    const uint64_t bytes = padded(place->step->value[v].bytes);
    give(&place->free_list, (uint64_t)place->offset[v], bytes);
    count(&place->alive, kind_of_value(place->step, v), -(int64_t)bytes);
    place->offset[v] = -2 - place->offset[v]; /* remembered, but dead */
}

static void note_peak(tandem_memory *memory, const census *alive, int t)
{
    if (alive->total <= memory->arena_live) return;
    memory->arena_live = alive->total;
    memory->peak_task = t;
    memory->activations = alive->kind[ACTIVATIONS];
    memory->activation_gradients = alive->kind[ACTIVATION_GRADIENTS];
    memory->weight_copies = alive->kind[WEIGHT_COPIES];
    memory->workspace = alive->kind[WORKSPACE];
}

static void place_task(placement *place, tandem_memory *memory, int t, uint64_t workspace, int64_t *workspace_offset)
{
    const tandem_task *task = &place->step->task[t];
    for (int k = 0; k < task->n_write; k++) {
        const int v = task->write[k];
        if (v < 0 || !place->step->value[v].bytes) continue;
        const uint64_t bytes = padded(place->step->value[v].bytes);
        place->offset[v] = (int64_t)take(&place->free_list, bytes);
        count(&place->alive, kind_of_value(place->step, v), (int64_t)bytes);
    }
    uint64_t at = 0;
    workspace = padded(workspace);
    if (workspace) {
        at = take(&place->free_list, workspace);
        count(&place->alive, WORKSPACE, (int64_t)workspace);
    }
    if (workspace_offset) workspace_offset[t] = workspace ? (int64_t)at : -1;
    note_peak(memory, &place->alive, t);
    if (workspace) {
        give(&place->free_list, at, workspace);
        count(&place->alive, WORKSPACE, -(int64_t)workspace);
    }
    for (int k = 0; k < task->n_read; k++) free_if_dead(place, task->read[k], t);
    for (int k = 0; k < task->n_write; k++) free_if_dead(place, task->write[k], t);
}

tandem_status tandem_memory_plan(tandem_memory *memory, const tandem_step *step, const uint64_t *workspace,
                                 int64_t *offset, int64_t *workspace_offset, tandem_error *error)
{
    const size_t n_value = (size_t)step->n_value;
    placement place = {.step = step};
    place.free_list.hole = malloc((n_value + 2) * sizeof *place.free_list.hole);
    place.offset = malloc((n_value + 1) * sizeof *place.offset);
    if (!place.free_list.hole || !place.offset) {
        free(place.offset);
        free(place.free_list.hole);
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the memory plan of %d values", step->n_value);
    }
    for (size_t v = 0; v < n_value; v++) place.offset[v] = -1;

    const uint64_t flat = (uint64_t)step->n_flat * sizeof(float);
    tandem_memory plan = {.weights = flat, .gradients = flat};
    plan.optimizer = flat * (uint64_t)tandem_optimizer_n_state(step->graph->optimizer.kind);
    for (int t = 0; t < step->n_task; t++) {
        if (step->task[t].active)
            place_task(&place, &plan, t, workspace ? workspace[t] : 0, workspace_offset);
        else if (workspace_offset)
            workspace_offset[t] = -1;
    }
    plan.arena = place.free_list.highest;
    plan.peak = plan.weights + plan.gradients + plan.optimizer + plan.arena;
    *memory = plan;
    if (offset)
        for (size_t v = 0; v < n_value; v++)
            offset[v] = place.offset[v] <= -2 ? -2 - place.offset[v] : place.offset[v];
    free(place.offset);
    free(place.free_list.hole);
    return TANDEM_OK;
}
