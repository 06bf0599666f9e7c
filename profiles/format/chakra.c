/* chakra.c: writes a step as MLCommons Chakra execution traces: one node per task, with its dependencies. */
#include "profiles/format/chakra.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "profiles/format/chakra.pb-c.h"

enum { MAX_ATTRIBUTES = 12, TASK_NAME_BYTES = 192 };

typedef struct chakra_writer {
    const tandem_trace_track *track;
    tandem_file file;
    tandem_error *error;
    const tandem_trace_event **event; /* [n_task] of each task; NULL = it did not run */
    int *writer;                      /* [n_value] last task that wrote it; −1 = none yet */
    int *gradient_writer;             /* [n_parameter] last task that wrote its gradient; −1 = none yet */
    uint64_t *data;                   /* ids on which the current node depends for data */
    int n_data;
    int last[2]; /* last task of each stream; −1 = none yet */
    uint8_t *message;
    size_t message_capacity;
} chakra_writer;

/* --- Messages ------------------------------------------------------------------------------------------- */

/* A message after its length. */
static tandem_status write_chakra_message(chakra_writer *w, const ProtobufCMessage *message)
{
    uint8_t prefix[10];
    size_t n_prefix = 0;
    const size_t n = protobuf_c_message_get_packed_size(message);
    if (n > w->message_capacity) {
        uint8_t *const more = realloc(w->message, 2 * n);
        if (!more) return tandem_no_memory(w->error, "to write the trace");
        w->message = more;
        w->message_capacity = 2 * n;
    }
    for (size_t rest = n; n_prefix == 0 || rest > 0; rest >>= 7)
        prefix[n_prefix++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
    (void)fwrite(prefix, 1, n_prefix, w->file.stream);
    (void)fwrite(w->message, 1, protobuf_c_message_pack(message, w->message), w->file.stream);
    return TANDEM_OK;
}

/* Attributes of a message; protobuf-c wants pointers to them. */
typedef struct chakra_attributes {
    Chakra__Attribute one[MAX_ATTRIBUTES];
    Chakra__Attribute *pointer[MAX_ATTRIBUTES];
    size_t n;
} chakra_attributes;

static Chakra__Attribute *add_attribute(chakra_attributes *to, const char *name)
{
    Chakra__Attribute *const attribute = &to->one[to->n];
    to->pointer[to->n++] = attribute;
    *attribute = (Chakra__Attribute)CHAKRA__ATTRIBUTE__INIT;
    attribute->name = (char *)(uintptr_t)name; /* only read */
    return attribute;
}

static void add_integer_attribute(chakra_attributes *to, const char *name, int64_t value)
{
    Chakra__Attribute *const attribute = add_attribute(to, name);
    attribute->value_case = CHAKRA__ATTRIBUTE__VALUE_INT64_VAL;
    attribute->int64_val = value;
}

static void add_text_attribute(chakra_attributes *to, const char *name, const char *value)
{
    Chakra__Attribute *const attribute = add_attribute(to, name);
    attribute->value_case = CHAKRA__ATTRIBUTE__VALUE_STRING_VAL;
    attribute->string_val = (char *)(uintptr_t)value;
}

static void add_false_attribute(chakra_attributes *to, const char *name)
{
    Chakra__Attribute *const attribute = add_attribute(to, name);
    attribute->value_case = CHAKRA__ATTRIBUTE__VALUE_BOOL_VAL;
    attribute->bool_val = 0;
}

static tandem_status write_chakra_metadata(chakra_writer *w, const char *title)
{
    static const char version[] = "0.0.4";
    chakra_attributes list = {.n = 0};
    add_text_attribute(&list, "title", title ? title : "");
    add_text_attribute(&list, "device", w->track->device);
    add_integer_attribute(&list, "rank", w->track->rank);
    add_integer_attribute(&list, "ranks", w->track->n_rank);
    Chakra__Metadata metadata = CHAKRA__METADATA__INIT;
    metadata.version = (ProtobufCBinaryData){sizeof version - 1, (uint8_t *)(uintptr_t)version};
    metadata.n_attribute = list.n;
    metadata.attribute = list.pointer;
    return write_chakra_message(w, &metadata.base);
}

/* --- What a task waits for ------------------------------------------------------------------------------ */

/* Adds a data dependency on another task once. */
static void add_dependency(chakra_writer *w, int on)
{
    if (on < 0) return;
    for (int k = 0; k < w->n_data; k++)
        if (w->data[k] == (uint64_t)on) return;
    w->data[w->n_data++] = (uint64_t)on;
}

/* Adds dependencies on every task that wrote a gradient of the bucket. */
static void add_gradient_dependencies(chakra_writer *w, const tandem_bucket *bucket)
{
    add_dependency(w, w->event[bucket->ready_task] ? bucket->ready_task : -1);
    for (int k = 0; k < bucket->n_parameter; k++)
        add_dependency(
            w, w->gradient_writer[w->track->step->parameter_order[bucket->first_parameter_position + k]]);
}

static void find_data_dependencies(chakra_writer *w, int t)
{
    const tandem_step *const step = w->track->step;
    const tandem_task *const task = &step->task[t];
    w->n_data = 0;
    for (int k = 0; k < task->n_read; k++)
        if (task->read[k] >= 0) add_dependency(w, w->writer[task->read[k]]);
    for (int b = 0; b < step->n_bucket && task->kind == TANDEM_TASK_NORM; b++)
        if (w->event[step->bucket[b].reduce_task])
            add_dependency(w, step->bucket[b].reduce_task);
        else
            add_gradient_dependencies(w, &step->bucket[b]);
    if (task->bucket >= 0) {
        const tandem_bucket *const bucket = &step->bucket[task->bucket];
        if (task->kind == TANDEM_TASK_GATHER)
            add_dependency(w, w->event[bucket->update_task] ? bucket->update_task : -1);
        else if (task->kind == TANDEM_TASK_UPDATE && step->norm_task >= 0)
            add_dependency(w, w->event[step->norm_task] ? step->norm_task : -1);
        else if (task->kind == TANDEM_TASK_UPDATE && w->event[bucket->reduce_task])
            add_dependency(w, bucket->reduce_task);
        else
            add_gradient_dependencies(w, bucket);
    }
}

static void note_task_writes(chakra_writer *w, int t)
{
    const tandem_task *const task = &w->track->step->task[t];
    for (int k = 0; k < task->n_write; k++) {
        if (task->write[k] >= 0) w->writer[task->write[k]] = t;
        if (task->write[k] < -1) w->gradient_writer[TANDEM_PARAMETER(task->write[k])] = t;
    }
}

/* --- Nodes ---------------------------------------------------------------------------------------------- */

static void chakra_task_name(char name[TASK_NAME_BYTES], const tandem_step *step, const tandem_task *task)
{
    const char *const kind = tandem_task_kind_name(task->kind);
    const char *const op = task->op >= 0 ? step->graph->op[task->op].name : NULL;
    if (!op && task->bucket < 0)
        (void)snprintf(name, TASK_NAME_BYTES, "%s", kind);
    else if (!op)
        (void)snprintf(name, TASK_NAME_BYTES, "%s bucket %d", kind, task->bucket);
    else if (task->kind == TANDEM_TASK_FORWARD)
        (void)snprintf(name, TASK_NAME_BYTES, "%.100s", op);
    else if (task->kind == TANDEM_TASK_DGRAD || task->kind == TANDEM_TASK_WGRAD)
        (void)snprintf(name, TASK_NAME_BYTES, "%.100s %s", op, kind);
    else
        (void)snprintf(name, TASK_NAME_BYTES, "%.100s %s %s to %s", op, kind, tandem_dtype_name(task->from),
                       tandem_dtype_name(task->to));
}

static void describe_task(chakra_attributes *list, const tandem_step *step, int t,
                          const tandem_trace_event *event)
{
    const tandem_task *const task = &step->task[t];
    const tandem_op *const op = task->op >= 0 ? &step->graph->op[task->op] : NULL;
    const int adjustable = op && tandem_op_is_adjustable(op);
    add_false_attribute(list, "is_cpu_op");
    add_integer_attribute(list, "tandem_start_ns", event->start_ns);
    add_integer_attribute(list, "tandem_duration_ns", event->end_ns - event->start_ns);
    add_text_attribute(list, "kind", tandem_task_kind_name(task->kind));
    if (op) add_text_attribute(list, "op", op->name);
    add_text_attribute(list, "precision",
                       adjustable ? tandem_precision_get(task->precision)->name
                                  : tandem_dtype_name(task->from));
    add_text_attribute(list, "from", tandem_dtype_name(task->from));
    add_text_attribute(list, "to", tandem_dtype_name(task->to));
    if (!tandem_task_is_collective(task->kind)) return;
    add_integer_attribute(list, "comm_type",
                          task->kind == TANDEM_TASK_SCATTER  ? TANDEM_CHAKRA_REDUCE_SCATTER
                          : task->kind == TANDEM_TASK_GATHER ? TANDEM_CHAKRA_ALL_GATHER
                                                             : TANDEM_CHAKRA_ALL_REDUCE);
    add_integer_attribute(list, "comm_size", step->bucket[task->bucket].elements * (int64_t)sizeof(float));
}

static tandem_status write_chakra_node(chakra_writer *w, int t)
{
    const tandem_trace_event *const event = w->event[t];
    const tandem_task *const task = &w->track->step->task[t];
    int *const last = &w->last[task->stream == TANDEM_STREAM_COMM];
    uint64_t control = (uint64_t)*last;
    const int64_t start_ns = event->start_ns > 0 ? event->start_ns : 0;
    char name[TASK_NAME_BYTES];
    chakra_attributes list = {.n = 0};
    chakra_task_name(name, w->track->step, task);
    describe_task(&list, w->track->step, t, event);
    find_data_dependencies(w, t);
    Chakra__Node node = CHAKRA__NODE__INIT;
    node.id = (uint64_t)t;
    node.name = name;
    node.type = tandem_task_is_collective(task->kind) ? TANDEM_CHAKRA_COLLECTIVE : TANDEM_CHAKRA_COMPUTE;
    node.n_control = *last >= 0;
    node.control = &control;
    node.n_data = (size_t)w->n_data;
    node.data = w->data;
    node.start_us = (uint64_t)start_ns / 1000;
    node.duration_us = ((uint64_t)(event->end_ns - event->start_ns) + 500) / 1000;
    node.n_attribute = list.n;
    node.attribute = list.pointer;
    *last = t;
    note_task_writes(w, t);
    return write_chakra_message(w, &node.base);
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static const char ending[] = ".et";

int tandem_chakra_is_path(const char *path)
{
    const size_t n = strlen(path);
    return n >= sizeof ending && strcmp(path + n - (sizeof ending - 1), ending) == 0;
}

/* By task id, which on each stream is the order of execution. */
static tandem_status write_chakra_nodes(chakra_writer *w, const char *title)
{
    const tandem_step *const step = w->track->step;
    for (int v = 0; v < step->n_value; v++) w->writer[v] = -1;
    for (int p = 0; p < step->graph->n_parameter; p++) w->gradient_writer[p] = -1;
    for (int e = 0; e < w->track->n_event; e++)
        if (w->track->event[e].task >= 0) w->event[w->track->event[e].task] = &w->track->event[e];
    tandem_status status = write_chakra_metadata(w, title);
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++)
        if (w->event[t]) status = write_chakra_node(w, t);
    return status;
}

static tandem_status write_chakra_rank(const char *path, const char *title, const tandem_trace_track *track,
                                       tandem_error *error)
{
    const size_t n_task = (size_t)track->step->n_task, n_value = (size_t)track->step->n_value;
    const size_t n_parameter = (size_t)track->step->graph->n_parameter;
    char *name = NULL;
    chakra_writer w = {.track = track,
                       .error = error,
                       .event = calloc(n_task + 1, sizeof *w.event),
                       .writer = malloc((n_value + 1) * sizeof *w.writer),
                       .gradient_writer = malloc((n_parameter + 1) * sizeof *w.gradient_writer),
                       .data = malloc((n_parameter + TANDEM_TASK_READS + 2) * sizeof *w.data),
                       .last = {-1, -1}};
    tandem_status status = TANDEM_OK;
    if (!w.event || !w.writer || !w.gradient_writer || !w.data ||
        asprintf(&name, "%.*s.%d%s", (int)(strlen(path) - (sizeof ending - 1)), path, track->rank, ending) <
            0) {
        name = NULL;
        status = tandem_no_memory(error, "to write '%.200s'", path);
        goto out;
    }
    status = tandem_file_open(&w.file, name, error);
    if (status != TANDEM_OK) goto out;
    status = write_chakra_nodes(&w, title);
    if (status == TANDEM_OK) status = tandem_file_finish(&w.file, error);
out:
    tandem_file_discard(&w.file);
    free(name);
    free(w.message);
    free(w.data);
    free(w.gradient_writer);
    free(w.writer);
    free(w.event);
    return status;
}

tandem_status tandem_chakra_write(const char *path, const char *title, const tandem_trace_track *track,
                                  int n_track, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n_track && status == TANDEM_OK; k++)
        status = write_chakra_rank(path, title, &track[k], error);
    return status;
}
