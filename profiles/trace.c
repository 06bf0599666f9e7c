/* trace.c: a step as events that Perfetto shows, written as a stream: a trace is too large to build in memory
 * first. */
#include "tandem/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "profiles/chakra.h"
#include "profiles/chrome.h"

enum { TID_COMPUTE = 0, TID_COMM = 1 };

typedef struct writing {
    tandem_chrome chrome;
    tandem_error *error;
    int64_t n_flow;
    const tandem_trace_lane *lane;      /* the one at hand */
    const tandem_trace_event **of_task; /* [n_task] NULL = it did not run */
    /* Ranks of a class share a step: found for the first of them */
    tandem_memory_row *row;            /* [n_task] */
    const tandem_memory_row *last_row; /* written of this lane; NULL = none yet */
} writing;

static void write_lane_names(tandem_chrome *chrome, const tandem_trace_lane *lane)
{
    char name[160];
    if (lane->n_rank > 1)
        (void)snprintf(name, sizeof name, "rank %d: %.100s (one of %d)", lane->rank, lane->device,
                       lane->n_rank);
    else
        (void)snprintf(name, sizeof name, "rank %d: %.100s", lane->rank, lane->device);
    tandem_chrome_name(chrome, "process_name", lane->rank, TID_COMPUTE, name);
    tandem_chrome_name(chrome, "thread_name", lane->rank, TID_COMPUTE, "compute");
    tandem_chrome_name(chrome, "thread_name", lane->rank, TID_COMM, "communication");
}

/* --- Slices --------------------------------------------------------------------------------------------- */

static void write_wait(writing *w, const tandem_trace_event *event)
{
    tandem_chrome_event(&w->chrome, 'X', "wait", "wait", w->lane->rank, TID_COMM, event->start_ns);
    tandem_chrome_put(&w->chrome, ",\"dur\":");
    tandem_chrome_us(&w->chrome, event->end_ns - event->start_ns);
    tandem_chrome_put(&w->chrome, ",\"args\":{\"op\":-1,\"kind\":\"wait\",\"task\":-1}}");
}

static int tid_of(const tandem_task *task)
{
    return task->stream == TANDEM_STREAM_COMM ? TID_COMM : TID_COMPUTE;
}

static void write_task(writing *w, const tandem_trace_event *event)
{
    tandem_chrome *const chrome = &w->chrome;
    const tandem_graph *const graph = w->lane->step->graph;
    const tandem_task *const task = &w->lane->step->task[event->task];
    const char *const kind = tandem_task_kind_name(task->kind);
    const tandem_op *const op = task->op >= 0 ? &graph->op[task->op] : NULL;
    const int adjustable = op && tandem_op_row_get(op->kind)->op_class == TANDEM_ADJUSTABLE;
    char name[64];
    if (!op) (void)snprintf(name, sizeof name, task->bucket >= 0 ? "%s bucket %d" : "%s", kind, task->bucket);
    tandem_chrome_event(chrome, 'X', op ? op->name : name, kind, w->lane->rank, tid_of(task),
                        event->start_ns);
    tandem_chrome_put(chrome, ",\"dur\":");
    tandem_chrome_us(chrome, event->end_ns - event->start_ns);
    tandem_chrome_put(chrome, ",\"args\":{\"op\":");
    tandem_chrome_whole(chrome, task->op);
    tandem_chrome_put(chrome, ",\"kind\":\"");
    tandem_chrome_put(chrome, kind);
    tandem_chrome_put(chrome, "\",\"precision\":\"");
    tandem_chrome_put(chrome, adjustable ? tandem_precision_get(task->precision)->name
                                         : tandem_dtype_name(task->from));
    tandem_chrome_put(chrome, "\",\"from\":\"");
    tandem_chrome_put(chrome, tandem_dtype_name(task->from));
    tandem_chrome_put(chrome, "\",\"to\":\"");
    tandem_chrome_put(chrome, tandem_dtype_name(task->to));
    tandem_chrome_put(chrome, "\",\"variant\":");
    tandem_chrome_whole(chrome, task->variant);
    tandem_chrome_put(chrome, ",\"task\":");
    tandem_chrome_whole(chrome, event->task);
    tandem_chrome_put(chrome, "}}");
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* What has changed since the last one; of the first of a lane all there is. */
static void write_memory(writing *w, const tandem_trace_event *event)
{
    static const tandem_memory_row none = {{0}};
    const tandem_memory_row *const row = &w->row[event->task], *const last =
                                                                   w->last_row ? w->last_row : &none;
    const char *before = ",\"args\":{\"";
    w->last_row = row;
    if (memcmp(row->bytes, last->bytes, TANDEM_MEMORY_UNUSED * sizeof *row->bytes) == 0) return;
    tandem_chrome_event(&w->chrome, 'C', "memory", "memory", w->lane->rank, TID_COMPUTE, event->start_ns);
    for (int k = 0; k < TANDEM_MEMORY_UNUSED; k++) {
        if (row->bytes[k] == last->bytes[k]) continue;
        tandem_chrome_put(&w->chrome, before);
        tandem_chrome_put(&w->chrome, tandem_memory_category_name((tandem_memory_category)k));
        tandem_chrome_put(&w->chrome, "\":");
        tandem_chrome_whole(&w->chrome, (int64_t)row->bytes[k]);
        before = ",\"";
    }
    tandem_chrome_put(&w->chrome, "}}");
}

/* --- Flows ---------------------------------------------------------------------------------------------- */

/* An arrow from the end of one slice to the beginning of another. Viewers tie its ends to the slices around
 * them. */
static void write_flow(writing *w, int from, int to)
{
    const tandem_trace_event *const a = w->of_task[from], *const b = w->of_task[to];
    const tandem_task *const task = w->lane->step->task;
    if (!a || !b || b->start_ns < a->end_ns) return;
    const int64_t id = w->n_flow++, last_ns = a->end_ns > a->start_ns ? a->end_ns - 1 : a->start_ns;
    tandem_chrome_event(&w->chrome, 's', "bucket", "bucket", w->lane->rank, tid_of(&task[from]), last_ns);
    tandem_chrome_put(&w->chrome, ",\"id\":");
    tandem_chrome_whole(&w->chrome, id);
    tandem_chrome_put(&w->chrome, "}");
    tandem_chrome_event(&w->chrome, 'f', "bucket", "bucket", w->lane->rank, tid_of(&task[to]), b->start_ns);
    tandem_chrome_put(&w->chrome, ",\"bp\":\"e\",\"id\":");
    tandem_chrome_whole(&w->chrome, id);
    tandem_chrome_put(&w->chrome, "}");
}

/* --- Lanes ---------------------------------------------------------------------------------------------- */

static tandem_status check(const tandem_trace_lane *lane, int n_lane, tandem_error *error)
{
    for (int i = 0; i < n_lane; i++)
        for (int e = 0; e < lane[i].n_event; e++)
            if (lane[i].event[e].task < -1 || lane[i].event[e].task >= lane[i].step->n_task)
                return tandem_error_set(error, TANDEM_USAGE,
                                        "event %d of rank %d belongs to task %d; the "
                                        "step has %d",
                                        e, lane[i].rank, lane[i].event[e].task, lane[i].step->n_task);
    return TANDEM_OK;
}

static tandem_status find_memory(writing *w, const tandem_step *step, const uint64_t *workspace)
{
    const size_t n_task = (size_t)step->n_task;
    free(w->of_task);
    free(w->row);
    w->of_task = malloc((n_task + 1) * sizeof *w->of_task);
    w->row = malloc((n_task + 1) * sizeof *w->row);
    if (!w->of_task || !w->row)
        return tandem_error_set(w->error, TANDEM_NO_MEMORY, "no memory to write the trace");
    return tandem_memory_timeline(w->row, step, workspace, w->error);
}

static tandem_status write_lane(writing *w, const tandem_trace_lane *lane)
{
    const tandem_step *const step = lane->step;
    tandem_status status = TANDEM_OK;
    if (!w->lane || w->lane->step != step || w->lane->workspace != lane->workspace)
        status = find_memory(w, step, lane->workspace);
    w->lane = lane;
    w->last_row = NULL;
    if (status != TANDEM_OK) return status;
    memset(w->of_task, 0, (size_t)step->n_task * sizeof *w->of_task);
    for (int e = 0; e < lane->n_event; e++) {
        const tandem_trace_event *const event = &lane->event[e];
        if (event->task < 0) {
            write_wait(w, event);
            continue;
        }
        write_task(w, event);
        w->of_task[event->task] = event;
        if (step->task[event->task].stream == TANDEM_STREAM_COMPUTE) write_memory(w, event);
    }
    for (int b = 0; b < step->n_bucket; b++) {
        write_flow(w, step->bucket[b].ready_task, step->bucket[b].reduce_task);
        write_flow(w, step->bucket[b].reduce_task,
                   step->norm_task >= 0 ? step->norm_task : step->bucket[b].update_task);
    }
    return TANDEM_OK;
}

static tandem_status write_json(const char *path, const char *title, const tandem_trace_lane *lane,
                                int n_lane, tandem_error *error)
{
    tandem_file file = {0};
    writing *const w = calloc(1, sizeof *w);
    if (!w) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to write '%.200s'", path);
    w->error = error;
    tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) goto out;
    tandem_chrome_begin(&w->chrome, file.stream, title ? title : "");
    for (int i = 0; i < n_lane; i++) write_lane_names(&w->chrome, &lane[i]);
    for (int i = 0; i < n_lane && status == TANDEM_OK; i++) status = write_lane(w, &lane[i]);
    tandem_chrome_end(&w->chrome);
    if (status == TANDEM_OK) status = tandem_file_finish(&file, error);
out:
    tandem_file_discard(&file);
    free(w->row);
    free(w->of_task);
    free(w);
    return status;
}

tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_lane *lane,
                                 int n_lane, tandem_error *error)
{
    const tandem_status status = check(lane, n_lane, error);
    if (status != TANDEM_OK) return status;
    return (tandem_chakra_is_path(path) ? tandem_chakra_write : write_json)(path, title, lane, n_lane, error);
}
