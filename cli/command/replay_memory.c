/* replay_memory.c: the memory at each task, as a table and as JSON. */
#include "cli/command/replay_memory.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/table.h"

tandem_status replay_timeline_open(replay_timeline *timeline, const tandem_replayer *replayer, int c,
                                   tandem_error *error)
{
    const tandem_step *step = tandem_replayer_step(replayer, c);
    tandem_memory_row *row = calloc((size_t)step->n_task, sizeof *row);
    tandem_status status = TANDEM_OK;
    if (!row) status = tandem_no_memory(error, "for the memory of %d tasks", step->n_task);
    if (status == TANDEM_OK)
        status = tandem_memory_timeline(row, step, tandem_replayer_workspace(replayer, c), error);
    if (status == TANDEM_OK)
        *timeline = (replay_timeline){step, tandem_replayer_memory(replayer, c), row};
    else
        free(row);
    return status;
}

void replay_timeline_close(replay_timeline *timeline)
{
    free(timeline->row);
    *timeline = (replay_timeline){0};
}

char *replay_task_print(char text[REPLAY_TASK_TEXT], const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const char *kind = tandem_task_kind_name(task->kind),
               *again = tandem_step_is_recomputed(step, t) ? " again" : "";
    if (task->op >= 0)
        (void)snprintf(text, REPLAY_TASK_TEXT, "%s of %s%s", kind, step->graph->op[task->op].name, again);
    else if (task->bucket >= 0)
        (void)snprintf(text, REPLAY_TASK_TEXT, "%s of bucket %d", kind, task->bucket);
    else
        (void)snprintf(text, REPLAY_TASK_TEXT, "%s of all gradients", kind);
    return text;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *timeline_row_json(const replay_timeline *timeline, int t)
{
    const tandem_task *task = &timeline->step->task[t];
    json_t *bytes = json_object();
    for (int k = 0; k < TANDEM_N_MEMORY_CATEGORY; k++)
        json_object_set_new(bytes, tandem_memory_category_name((tandem_memory_category)k),
                            json_integer((json_int_t)timeline->row[t].bytes[k]));
    return json_pack("{s:i,s:s,s:s,s:b,s:o}", "task", t, "kind", tandem_task_kind_name(task->kind),
                     "operator", task->op >= 0 ? timeline->step->graph->op[task->op].name : "", "recomputed",
                     tandem_step_is_recomputed(timeline->step, t), "bytes", bytes);
}

json_t *replay_timeline_json(const replay_timeline *timeline)
{
    json_t *rows = json_array();
    for (int t = 0; t < timeline->step->n_task; t++)
        if (timeline->step->task[t].active) json_array_append_new(rows, timeline_row_json(timeline, t));
    return rows;
}

/* --- Text ------------------------------------------------------------------------------------- */

/* Whether any task has bytes of this category. */
static int is_category_used(const replay_timeline *timeline, int category)
{
    for (int t = 0; t < timeline->step->n_task; t++)
        if (timeline->row[t].bytes[category]) return 1;
    return 0;
}

static void add_timeline_row(cli_table *table, const replay_timeline *timeline, int t, const int *used)
{
    char line[1024] = "", name[REPLAY_TASK_TEXT];
    (void)snprintf(line, sizeof line, "%d\t%s", t, replay_task_print(name, timeline->step, t));
    for (int k = TANDEM_MEMORY_WEIGHT_COPIES; k < TANDEM_N_MEMORY_CATEGORY; k++) {
        if (!used[k]) continue;
        (void)tandem_append(line, sizeof line, "\t%s", tandem_quantity_bytes(timeline->row[t].bytes[k]).text);
    }
    cli_table_row(table, "%s%s", line, t == timeline->memory->peak_task ? "\tpeak" : "\t");
}

/* Leaves out the columns that are equal at every task; -v shows them. */
int replay_timeline_print(const replay_timeline *timeline, const char *device)
{
    char line[1024] = "task\twhat";
    int used[TANDEM_N_MEMORY_CATEGORY];
    cli_table table = {0};
    for (int k = 0; k < TANDEM_N_MEMORY_CATEGORY; k++) used[k] = is_category_used(timeline, k);
    for (int k = TANDEM_MEMORY_WEIGHT_COPIES; k < TANDEM_N_MEMORY_CATEGORY; k++) {
        if (!used[k]) continue;
        (void)tandem_append(line, sizeof line, "\t>%s",
                            tandem_memory_category_name((tandem_memory_category)k));
    }
    cli_table_row(&table, "%s\t", line);
    for (int t = 0; t < timeline->step->n_task; t++)
        if (timeline->step->task[t].active) add_timeline_row(&table, timeline, t, used);
    printf("\nmemory of a rank on %s at each task, besides weights, gradients and optimizer state:\n",
           device);
    return cli_table_finish(&table);
}
