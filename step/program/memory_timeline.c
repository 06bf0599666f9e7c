/* memory_timeline.c: the bytes of each memory category while each task runs. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "step/fusion/merged.h"
#include "step/program/values.h"

const char *tandem_memory_category_name(tandem_memory_category category)
{
    static const char *const name[TANDEM_N_MEMORY_CATEGORY] = {
        "weights",           "gradients",         "optimizer",
        "amax histories",    "weight copies",     "activations f32",
        "activations bf16",  "activations s8",    "activations f16",
        "activations e4m3",  "activations mxfp8", "activations nvfp4",
        "tokens and labels", "auxiliary results", "activation gradients",
        "weight gradients",  "workspace",         "unused"};
    assert((unsigned)category < TANDEM_N_MEMORY_CATEGORY);
    return name[category];
}

/* Row t: bytes by which it exceeds row t − 1, from the ends of lifetimes; modulo 2^64. */
static void count_lifetime_changes(tandem_memory_row *row, const tandem_step *step)
{
    for (int v = 0; v < step->n_value; v++) {
        const tandem_value *value = &step->value[v];
        if (!value->bytes || step_home_of_copy(step, v) >= 0) continue;
        const tandem_memory_category category = step_value_category(step, v);
        const uint64_t bytes = padded_bytes(value->bytes);
        row[step_value_born(step, v)].bytes[category] += bytes;
        if (value->last + 1 < step->n_task) row[value->last + 1].bytes[category] -= bytes;
    }
    for (int t = tandem_step_next_active(step, 0); t + 1 < step->n_task;
         t = tandem_step_next_active(step, t + 1)) {
        if (!step->task[t].accumulate) continue; /* in place: both values share their memory */
        const uint64_t bytes = padded_bytes(step->value[step->task[t].write[0]].bytes);
        row[t].bytes[TANDEM_MEMORY_ACTIVATION_GRADIENTS] -= bytes;
        row[t + 1].bytes[TANDEM_MEMORY_ACTIVATION_GRADIENTS] += bytes;
    }
}

static void fill_memory_rows(tandem_memory_row *row, const tandem_step *step, const tandem_memory *plan,
                             const uint64_t *workspace)
{
    tandem_memory_row alive = {.bytes = {0}};
    for (int t = 0; t < step->n_task; t++) {
        for (int k = 0; k < TANDEM_N_MEMORY_CATEGORY; k++) alive.bytes[k] += row[t].bytes[k];
        row[t] = (tandem_memory_row){.bytes = {0}};
        if (!step->task[t].active) continue;
        row[t] = alive;
        row[t].bytes[TANDEM_MEMORY_WORKSPACE] = workspace ? padded_bytes(workspace[t]) : 0;
        uint64_t live = 0;
        for (int k = 0; k < TANDEM_N_MEMORY_CATEGORY; k++) live += row[t].bytes[k];
        row[t].bytes[TANDEM_MEMORY_UNUSED] = plan->arena - live;
        row[t].bytes[TANDEM_MEMORY_WEIGHTS] = plan->weights;
        row[t].bytes[TANDEM_MEMORY_GRADIENTS] = plan->gradients;
        row[t].bytes[TANDEM_MEMORY_OPTIMIZER] = plan->optimizer;
        row[t].bytes[TANDEM_MEMORY_HISTORIES] = plan->histories;
    }
}

tandem_status tandem_memory_timeline(tandem_memory_row *row, const tandem_step *step,
                                     const uint64_t *workspace, tandem_error *error)
{
    tandem_memory plan;
    const tandem_status status = tandem_memory_plan(&plan, step, workspace, NULL, NULL, error);
    if (status != TANDEM_OK) return status;
    memset(row, 0, (size_t)step->n_task * sizeof *row);
    count_lifetime_changes(row, step);
    fill_memory_rows(row, step, &plan, workspace);
    return TANDEM_OK;
}
