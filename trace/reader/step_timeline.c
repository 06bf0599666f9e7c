/* step_timeline.c: reads the tasks of a step that tandem wrote, for a page. */
#include "trace/reader/step_timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/sort.h"
#include "trace/reader/read_events.h"

enum { MAX_TIMELINE_RANKS = 4096, MAX_TIMELINE_TASKS = 1 << 27, MAX_TEXTS = 1 << 24 };

typedef struct timeline_reader {
    tandem_input *input;
    tandem_error *error;
    tandem_events events;
    tandem_event event;
    tandem_step_timeline *to;
    int rank_capacity, task_capacity, text_capacity;
    uint64_t *text_hash; /* [n_text] */
    int *slot, n_slot;   /* open addressing: index of a text + 1; 0 = free */
} timeline_reader;

static tandem_status timeline_no_memory(const timeline_reader *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->input->source);
}

/* --- Texts, each kept once ------------------------------------------------------------------------------ */

static int *find_text_slot(const timeline_reader *r, uint64_t hash)
{
    const uint64_t mask = (uint64_t)r->n_slot - 1;
    for (uint64_t k = hash & mask;; k = (k + 1) & mask)
        if (!r->slot[k] || r->text_hash[r->slot[k] - 1] == hash) return &r->slot[k];
}

/* At most half of the slots are taken. */
static int make_slots(timeline_reader *r)
{
    if (r->n_slot > 2 * r->to->n_text) return 1;
    const int n = r->n_slot ? 2 * r->n_slot : 256;
    int *const slot = calloc((size_t)n, sizeof *slot);
    if (!slot) return 0;
    free(r->slot);
    r->slot = slot;
    r->n_slot = n;
    for (int k = 0; k < r->to->n_text; k++) *find_text_slot(r, r->text_hash[k]) = k + 1;
    return 1;
}

static tandem_status keep_text(timeline_reader *r, const tandem_event_text *text, int32_t *index)
{
    tandem_step_timeline *const to = r->to;
    int capacity = r->text_capacity;
    if (!make_slots(r)) return timeline_no_memory(r);
    int *const slot = find_text_slot(r, text->hash);
    *index = *slot - 1;
    if (*slot) return TANDEM_OK;
    char **const more = tandem_grow(to->text, &capacity, to->n_text, sizeof *more, MAX_TEXTS);
    if (!more) return timeline_no_memory(r);
    to->text = more;
    if (capacity != r->text_capacity) {
        uint64_t *const hash = realloc(r->text_hash, (size_t)capacity * sizeof *hash);
        if (!hash) return timeline_no_memory(r);
        r->text_hash = hash;
        r->text_capacity = capacity;
    }
    char *const copy = strndup(text->text, text->n);
    if (!copy) return timeline_no_memory(r);
    r->text_hash[to->n_text] = text->hash;
    to->text[to->n_text++] = copy;
    *slot = to->n_text;
    *index = to->n_text - 1;
    return TANDEM_OK;
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status find_timeline_rank(timeline_reader *r, int64_t number, int *index)
{
    tandem_step_timeline *const to = r->to;
    for (*index = to->n_rank - 1; *index >= 0; --*index) /* the last one is asked for most often */
        if (to->rank[*index].number == number) return TANDEM_OK;
    if (to->n_rank == MAX_TIMELINE_RANKS)
        return tandem_events_refuse(&r->events, &r->event, "expected at most 4096 ranks (pid)");
    tandem_timeline_rank *const more =
        tandem_grow(to->rank, &r->rank_capacity, to->n_rank, sizeof *more, MAX_TIMELINE_RANKS);
    if (!more) return timeline_no_memory(r);
    to->rank = more;
    to->rank[to->n_rank] = (tandem_timeline_rank){.number = number};
    (void)snprintf(to->rank[to->n_rank].name, sizeof to->rank->name, "rank %lld", (long long)number);
    *index = to->n_rank++;
    return TANDEM_OK;
}

static tandem_status add_timeline_task(timeline_reader *r)
{
    tandem_step_timeline *const to = r->to;
    const tandem_event *const event = &r->event;
    tandem_timeline_task row = {.start_ns = event->start_ns, .id = (int32_t)event->task};
    int64_t duration_ns = event->duration_ns;
    int rank = 0;
    if (event->pid < 0 || event->task < -1 || event->task >= INT32_MAX)
        return tandem_events_refuse(&r->events, event, "expected a pid and a task, whole numbers from 0 on");
    if (!event->has_start || !event->has_duration ||
        !tandem_input_clamp_duration(&duration_ns, &to->n_negative))
        return tandem_events_refuse(&r->events, event,
                                    "expected ts and dur, the latter " TANDEM_INPUT_DURATIONS);
    tandem_status status = find_timeline_rank(r, event->pid, &rank);
    if (status == TANDEM_OK) status = keep_text(r, &event->name, &row.name);
    if (status == TANDEM_OK) status = keep_text(r, &event->kind, &row.kind);
    if (status == TANDEM_OK) status = keep_text(r, &event->precision, &row.precision);
    if (status != TANDEM_OK) return status;
    row.rank = rank;
    row.end_ns = row.start_ns + duration_ns;
    tandem_timeline_task *const more =
        tandem_grow(to->task, &r->task_capacity, to->n_task, sizeof *more, MAX_TIMELINE_TASKS);
    if (!more) return timeline_no_memory(r);
    to->task = more;
    to->task[to->n_task++] = row;
    return TANDEM_OK;
}

static tandem_status name_timeline_rank(timeline_reader *r)
{
    int rank = 0;
    if (strcmp(r->event.name.text, "process_name") != 0 || r->event.pid < 0 || !r->event.label.n)
        return TANDEM_OK;
    const tandem_status status = find_timeline_rank(r, r->event.pid, &rank);
    if (status == TANDEM_OK)
        tandem_event_copy(r->to->rank[rank].name, sizeof r->to->rank->name, &r->event.label);
    return status;
}

static tandem_status read_timeline_events(timeline_reader *r)
{
    const tandem_event_text none = {0};
    int32_t first = 0;
    int is_there = 1;
    tandem_status status = keep_text(r, &none, &first);
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        if (r->event.phase == 'X' && r->event.task != INT64_MIN) status = add_timeline_task(r);
        if (r->event.phase == 'M') status = name_timeline_rank(r);
    }
    return status;
}

/* --- Order ---------------------------------------------------------------------------------------------- */

static int by_rank_and_start(const void *left, const void *right)
{
    const tandem_timeline_task *const a = left, *const b = right;
    int order = TANDEM_ORDER(a->rank, b->rank);
    if (!order) order = TANDEM_ORDER(a->start_ns, b->start_ns);
    if (!order) order = TANDEM_ORDER(a->end_ns, b->end_ns);
    return order ? order : TANDEM_ORDER(a->id, b->id);
}

static void finish_timeline(timeline_reader *r)
{
    tandem_step_timeline *const to = r->to;
    int64_t begin = INT64_MAX;
    tandem_event_copy(to->title, sizeof to->title, &r->events.header.title);
    tandem_event_copy(to->model, sizeof to->model, &r->events.header.model);
    to->made = r->events.header.made;
    const char *const origin = r->events.header.origin.text;
    to->is_measured = strcmp(origin, "measured") == 0 ? 1 : strcmp(origin, "simulated") == 0 ? 0 : -1;
    qsort(to->task, (size_t)to->n_task, sizeof *to->task, by_rank_and_start);
    for (int k = 0; k < to->n_task; k++) {
        tandem_timeline_rank *const rank = &to->rank[to->task[k].rank];
        if (!rank->n++) rank->first = k;
        if (to->task[k].start_ns < begin) begin = to->task[k].start_ns;
    }
    for (int k = 0; k < to->n_task; k++) {
        to->task[k].start_ns -= begin;
        to->task[k].end_ns -= begin;
        if (to->task[k].end_ns > to->span_ns) to->span_ns = to->task[k].end_ns;
    }
}

/* --- Opening and closing -------------------------------------------------------------------------------- */

static tandem_status read_step_timeline(tandem_step_timeline **timeline, tandem_input *input,
                                        tandem_error *error)
{
    timeline_reader *const r = calloc(1, sizeof *r);
    tandem_step_timeline *const to = calloc(1, sizeof *to);
    tandem_status status = TANDEM_OK;
    if (!r || !to) {
        status = tandem_no_memory(error, "to read '%.200s'", input->source);
    } else {
        r->input = input;
        r->error = error;
        r->to = to;
        tandem_events_open(&r->events, input, error);
        status = read_timeline_events(r);
    }
    if (status == TANDEM_OK && to->n_task == 0)
        status =
            tandem_error_set(error, TANDEM_MALFORMED,
                             "'%.200s' has no task: expected a step that `tandem replay --trace` or `tandem "
                             "train --trace` wrote",
                             input->source);
    if (status == TANDEM_OK) {
        finish_timeline(r);
        *timeline = to;
    } else {
        tandem_step_timeline_close(to);
    }
    if (r) {
        free(r->slot);
        free(r->text_hash);
    }
    free(r);
    return status;
}

tandem_status tandem_step_timeline_read(tandem_step_timeline **timeline, const char *path,
                                        tandem_error *error)
{
    tandem_input input = {0};
    tandem_status status = tandem_input_open(&input, path, error);
    if (status == TANDEM_OK) status = read_step_timeline(timeline, &input, error);
    tandem_input_close(&input);
    return status;
}

tandem_status tandem_step_timeline_parse(tandem_step_timeline **timeline, const void *bytes, size_t n,
                                         const char *source, tandem_error *error)
{
    tandem_input input = {0};
    tandem_status status = tandem_input_open_bytes(&input, bytes, n, source, error);
    if (status == TANDEM_OK) status = read_step_timeline(timeline, &input, error);
    tandem_input_close(&input);
    return status;
}

void tandem_step_timeline_close(tandem_step_timeline *timeline)
{
    if (!timeline) return;
    for (int k = 0; k < timeline->n_text; k++) free(timeline->text[k]);
    free(timeline->text);
    free(timeline->task);
    free(timeline->rank);
    free(timeline);
}
