/* trace.c: streams a step as Chrome trace events: a trace is too large to build in memory first. */
#include "tandem/advanced/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "profiles/format/chakra.h"
#include "profiles/format/chrome.h"

enum { TID_COMPUTE = 0, TID_COMM = 1 };

typedef struct trace_writer {
    tandem_chrome chrome;
    tandem_error *error;
    int64_t n_flow;
    const tandem_trace_track *track;    /* the current one */
    const tandem_trace_event **of_task; /* [n_task] NULL = it did not run */
    /* ranks of a class share a step; computed for the first of them */
    tandem_memory_row *row;            /* [n_task] */
    const tandem_memory_row *last_row; /* last one written of this track; NULL = none yet */
} trace_writer;

static void write_track_names(tandem_chrome *chrome, const tandem_trace_track *track)
{
    char name[160];
    if (track->n_rank > 1)
        (void)snprintf(name, sizeof name, "rank %d: %.100s (one of %d)", track->rank, track->device,
                       track->n_rank);
    else
        (void)snprintf(name, sizeof name, "rank %d: %.100s", track->rank, track->device);
    tandem_chrome_name(chrome, "process_name", track->rank, TID_COMPUTE, name);
    tandem_chrome_name(chrome, "thread_name", track->rank, TID_COMPUTE, "compute");
    tandem_chrome_name(chrome, "thread_name", track->rank, TID_COMM, "communication");
}

/* --- Slices --------------------------------------------------------------------------------------------- */

static void write_wait_slice(trace_writer *w, const tandem_trace_event *event)
{
    tandem_chrome_event(&w->chrome, 'X', "wait", "wait", w->track->rank, TID_COMM, event->start_ns);
    tandem_chrome_put(&w->chrome, ",\"dur\":");
    tandem_chrome_us(&w->chrome, event->end_ns - event->start_ns);
    tandem_chrome_put(&w->chrome, ",\"args\":{\"op\":-1,\"kind\":\"wait\",\"task\":-1}}");
}

static int tid_of_task(const tandem_task *task)
{
    return task->stream == TANDEM_STREAM_COMM ? TID_COMM : TID_COMPUTE;
}

static void write_task_slice(trace_writer *w, const tandem_trace_event *event)
{
    tandem_chrome *const chrome = &w->chrome;
    const tandem_graph *const graph = w->track->step->graph;
    const tandem_task *const task = &w->track->step->task[event->task];
    const char *const kind = tandem_task_kind_name(task->kind);
    const tandem_op *const op = task->op >= 0 ? &graph->op[task->op] : NULL;
    const int adjustable = op && tandem_op_is_adjustable(op);
    char name[64];
    if (!op) (void)snprintf(name, sizeof name, task->bucket >= 0 ? "%s bucket %d" : "%s", kind, task->bucket);
    tandem_chrome_event(chrome, 'X', op ? op->name : name, kind, w->track->rank, tid_of_task(task),
                        event->start_ns);
    tandem_chrome_put(chrome, ",\"dur\":");
    tandem_chrome_us(chrome, event->end_ns - event->start_ns);
    tandem_chrome_put(chrome, ",\"args\":{\"op\":");
    tandem_chrome_integer(chrome, task->op);
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
    tandem_chrome_integer(chrome, task->variant);
    tandem_chrome_put(chrome, ",\"task\":");
    tandem_chrome_integer(chrome, event->task);
    tandem_chrome_put(chrome, "}}");
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* Writes what changed since the last row; everything for the first row of a track. */
static void write_memory_counter(trace_writer *w, const tandem_trace_event *event)
{
    static const tandem_memory_row none = {{0}};
    const tandem_memory_row *const row = &w->row[event->task], *const last =
                                                                   w->last_row ? w->last_row : &none;
    const char *before = ",\"args\":{\"";
    w->last_row = row;
    if (memcmp(row->bytes, last->bytes, TANDEM_MEMORY_UNUSED * sizeof *row->bytes) == 0) return;
    tandem_chrome_event(&w->chrome, 'C', "memory", "memory", w->track->rank, TID_COMPUTE, event->start_ns);
    for (int k = 0; k < TANDEM_MEMORY_UNUSED; k++) {
        if (row->bytes[k] == last->bytes[k]) continue;
        tandem_chrome_put(&w->chrome, before);
        tandem_chrome_put(&w->chrome, tandem_memory_category_name((tandem_memory_category)k));
        tandem_chrome_put(&w->chrome, "\":");
        tandem_chrome_integer(&w->chrome, (int64_t)row->bytes[k]);
        before = ",\"";
    }
    tandem_chrome_put(&w->chrome, "}}");
}

/* --- Flows ---------------------------------------------------------------------------------------------- */

/* An arrow from the end of one slice to the begin of another. Viewers attach its ends to the slices around
 * them. */
static void write_bucket_flow(trace_writer *w, int from, int to)
{
    const tandem_trace_event *const a = w->of_task[from], *const b = w->of_task[to];
    const tandem_task *const task = w->track->step->task;
    if (!a || !b || b->start_ns < a->end_ns) return;
    const int64_t id = w->n_flow++, last_ns = a->end_ns > a->start_ns ? a->end_ns - 1 : a->start_ns;
    tandem_chrome_event(&w->chrome, 's', "bucket", "bucket", w->track->rank, tid_of_task(&task[from]),
                        last_ns);
    tandem_chrome_put(&w->chrome, ",\"id\":");
    tandem_chrome_integer(&w->chrome, id);
    tandem_chrome_put(&w->chrome, "}");
    tandem_chrome_event(&w->chrome, 'f', "bucket", "bucket", w->track->rank, tid_of_task(&task[to]),
                        b->start_ns);
    tandem_chrome_put(&w->chrome, ",\"bp\":\"e\",\"id\":");
    tandem_chrome_integer(&w->chrome, id);
    tandem_chrome_put(&w->chrome, "}");
}

/* --- Lanes ---------------------------------------------------------------------------------------------- */

static tandem_status check_trace_events(const tandem_trace_track *track, int n_track, tandem_error *error)
{
    for (int i = 0; i < n_track; i++)
        for (int e = 0; e < track[i].n_event; e++)
            if (track[i].event[e].task < -1 || track[i].event[e].task >= track[i].step->n_task)
                return tandem_error_set(error, TANDEM_USAGE,
                                        "event %d of rank %d belongs to task %d; the step has %d", e,
                                        track[i].rank, track[i].event[e].task, track[i].step->n_task);
    return TANDEM_OK;
}

static tandem_status find_track_memory(trace_writer *w, const tandem_step *step, const uint64_t *workspace)
{
    const size_t n_task = (size_t)step->n_task;
    free(w->of_task);
    free(w->row);
    w->of_task = malloc((n_task + 1) * sizeof *w->of_task);
    w->row = malloc((n_task + 1) * sizeof *w->row);
    if (!w->of_task || !w->row) return tandem_no_memory(w->error, "to write the trace");
    return tandem_memory_timeline(w->row, step, workspace, w->error);
}

static tandem_status write_track(trace_writer *w, const tandem_trace_track *track)
{
    const tandem_step *const step = track->step;
    tandem_status status = TANDEM_OK;
    if (!w->track || w->track->step != step || w->track->workspace != track->workspace)
        status = find_track_memory(w, step, track->workspace);
    w->track = track;
    w->last_row = NULL;
    if (status != TANDEM_OK) return status;
    memset(w->of_task, 0, (size_t)step->n_task * sizeof *w->of_task);
    for (int e = 0; e < track->n_event; e++) {
        const tandem_trace_event *const event = &track->event[e];
        if (event->task < 0) {
            write_wait_slice(w, event);
            continue;
        }
        write_task_slice(w, event);
        w->of_task[event->task] = event;
        if (step->task[event->task].stream == TANDEM_STREAM_COMPUTE) write_memory_counter(w, event);
    }
    for (int b = 0; b < step->n_bucket; b++) {
        write_bucket_flow(w, step->bucket[b].ready_task, step->bucket[b].reduce_task);
        write_bucket_flow(w, step->bucket[b].reduce_task,
                          step->norm_task >= 0 ? step->norm_task : step->bucket[b].update_task);
    }
    return TANDEM_OK;
}

static tandem_status write_chrome_trace(const char *path, const char *title, const tandem_trace_track *track,
                                        int n_track, tandem_error *error)
{
    tandem_file file = {0};
    trace_writer *const w = calloc(1, sizeof *w);
    if (!w) return tandem_no_memory(error, "to write '%.200s'", path);
    w->error = error;
    tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) goto out;
    static const tandem_made unknown = {.command = ""};
    const tandem_made *const origin = n_track && track->made ? track->made : &unknown;
    /* title, model and origin always; of what made it, what is known */
    const char *about[] = {"title",   title ? title : "",
                           "model",   n_track ? track->step->graph->model : "",
                           "origin",  n_track && track->is_measured ? "measured" : "simulated",
                           "command", origin->command,
                           "version", origin->version,
                           "host",    origin->host,
                           "seed",    origin->seed,
                           NULL};
    enum { FIRST_MADE = 6, N_ABOUT = sizeof about / sizeof *about - 1 };
    int n_about = FIRST_MADE;
    for (int k = FIRST_MADE; k < N_ABOUT; k += 2) {
        if (!about[k + 1][0]) continue;
        about[n_about++] = about[k];
        about[n_about++] = about[k + 1];
    }
    about[n_about] = NULL;
    tandem_chrome_begin(&w->chrome, file.stream, about);
    for (int i = 0; i < n_track; i++) write_track_names(&w->chrome, &track[i]);
    for (int i = 0; i < n_track && status == TANDEM_OK; i++) status = write_track(w, &track[i]);
    tandem_chrome_end(&w->chrome);
    if (status == TANDEM_OK) status = tandem_file_finish(&file, error);
out:
    tandem_file_discard(&file);
    free(w->row);
    free(w->of_task);
    free(w);
    return status;
}

tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_track *track,
                                 int n_track, tandem_error *error)
{
    const tandem_status status = check_trace_events(track, n_track, error);
    if (status != TANDEM_OK) return status;
    return (tandem_chakra_is_path(path) ? tandem_chakra_write : write_chrome_trace)(path, title, track,
                                                                                    n_track, error);
}
