/* trace.c: Chrome trace-event JSON, written as a stream: a trace is too large to build in memory first. */
#include "tandem/trace.h"
#include "base/file.h"
#include "profiles/json_write.h"

#include <inttypes.h>
#include <string.h>

enum { TID_COMPUTE = 0, TID_COMM = 1 };

/* Microseconds with three decimals, in integers: exact, and with a point in every locale. */
static void write_us(FILE *stream, const char *member, int64_t ns)
{
    const uint64_t magnitude = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    (void)fprintf(stream, ",\"%s\":%s%" PRIu64 ".%03u", member, ns < 0 ? "-" : "", magnitude / 1000,
                  (unsigned)(magnitude % 1000));
}

/* Begins an event, with a comma behind the one before. */
static void begin_event(FILE *stream, int64_t *n_event) { (void)fputs((*n_event)++ ? ",\n" : "\n", stream); }

static void write_metadata(FILE *stream, int64_t *n_event, const char *name, int rank, int tid, const char *value)
{
    begin_event(stream, n_event);
    (void)fprintf(stream, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", name, rank, tid);
    tandem_json_write_text(stream, value);
    (void)fputs("}}", stream);
}

static void write_lane_names(FILE *stream, int64_t *n_event, const tandem_trace_lane *lane)
{
    char name[160];
    if (lane->n_rank > 1)
        (void)snprintf(name, sizeof name, "rank %d: %.100s (one of %d)", lane->rank, lane->device, lane->n_rank);
    else
        (void)snprintf(name, sizeof name, "rank %d: %.100s", lane->rank, lane->device);
    write_metadata(stream, n_event, "process_name", lane->rank, TID_COMPUTE, name);
    write_metadata(stream, n_event, "thread_name", lane->rank, TID_COMPUTE, "compute");
    write_metadata(stream, n_event, "thread_name", lane->rank, TID_COMM, "communication");
}

static void write_wait(FILE *stream, const tandem_trace_lane *lane, const tandem_trace_event *event)
{
    (void)fprintf(stream, "{\"ph\":\"X\",\"name\":\"wait\",\"cat\":\"wait\",\"pid\":%d,\"tid\":%d",
                  lane->rank, TID_COMM);
    write_us(stream, "ts", event->start_ns);
    write_us(stream, "dur", event->end_ns - event->start_ns);
    (void)fputs(",\"args\":{\"op\":-1,\"kind\":\"wait\",\"task\":-1}}", stream);
}

static void write_task(FILE *stream, const tandem_trace_lane *lane, const tandem_trace_event *event)
{
    const tandem_graph *const graph = lane->step->graph;
    const tandem_task *const task = &lane->step->task[event->task];
    const char *const kind = tandem_task_kind_name(task->kind);
    const tandem_op *const op = task->op >= 0 ? &graph->op[task->op] : NULL;
    const int adjustable = op && tandem_op_row_get(op->kind)->op_class == TANDEM_ADJUSTABLE;
    char name[64];
    if (!op) (void)snprintf(name, sizeof name, "%s bucket %d", kind, task->bucket);
    (void)fputs("{\"ph\":\"X\",\"name\":", stream);
    tandem_json_write_text(stream, op ? op->name : name);
    (void)fprintf(stream, ",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d", kind, lane->rank,
                  task->stream == TANDEM_STREAM_COMM ? TID_COMM : TID_COMPUTE);
    write_us(stream, "ts", event->start_ns);
    write_us(stream, "dur", event->end_ns - event->start_ns);
    (void)fprintf(stream,
                  ",\"args\":{\"op\":%d,\"kind\":\"%s\",\"precision\":\"%s\",\"from\":\"%s\",\"to\":\"%s\","
                  "\"variant\":%d,\"task\":%d}}",
                  task->op, kind,
                  adjustable ? tandem_precision_get(task->precision)->name : tandem_dtype_name(task->from),
                  tandem_dtype_name(task->from), tandem_dtype_name(task->to), task->variant, event->task);
}

static tandem_status check(const tandem_trace_lane *lane, int n_lane, tandem_error *error)
{
    for (int i = 0; i < n_lane; i++)
        for (int e = 0; e < lane[i].n_event; e++)
            if (lane[i].event[e].task < -1 || lane[i].event[e].task >= lane[i].step->n_task)
                return tandem_error_set(error, TANDEM_USAGE, "event %d of rank %d belongs to task %d; the step has %d",
                                        e, lane[i].rank, lane[i].event[e].task, lane[i].step->n_task);
    return TANDEM_OK;
}

tandem_status tandem_trace_write(const char *path, const char *title, const tandem_trace_lane *lane,
                                 int n_lane, tandem_error *error)
{
    tandem_file file = {0};
    tandem_status status = check(lane, n_lane, error);
    if (status == TANDEM_OK) status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    FILE *const stream = file.stream;
    int64_t n_event = 0;
    (void)fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":", stream);
    tandem_json_write_text(stream, title ? title : "");
    (void)fputs("},\"traceEvents\":[", stream);
    for (int i = 0; i < n_lane; i++) write_lane_names(stream, &n_event, &lane[i]);
    for (int i = 0; i < n_lane; i++)
        for (int e = 0; e < lane[i].n_event; e++) {
            begin_event(stream, &n_event);
            (lane[i].event[e].task < 0 ? write_wait : write_task)(stream, &lane[i], &lane[i].event[e]);
        }
    (void)fputs("\n]}\n", stream);
    return tandem_file_finish(&file, error);
}
