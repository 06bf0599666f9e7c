/* whatif_step_trace.c: the model of a step that tandem itself recorded or simulated (format/trace.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/reader/read_events.h"
#include "base/grow.h"
#include "trace/interval_set.h"
#include "trace/whatif/whatif_model.h"

enum { COMPUTE, REDUCE, NORM, UPDATE }; /* roles of tasks */
enum { MAX_RANKS = 4096, MAX_KINDS = 32, MAX_TASKS = 1 << 27, N_TRACK = 2 };

typedef struct traced_task {
    int64_t start_ns, end_ns;
    int32_t id, rank; /* id in the step program; index of its rank */
    int16_t role, kind;
    int32_t bucket; /* of an all-reduce or an update */
} traced_task;

typedef struct rank_track {
    int64_t pid;
    char name[TANDEM_WHATIF_NAME];
    int first, n_bucket, n_update; /* of its tasks */
    int64_t busy_ns;
} rank_track;

/* Simulated steps also record waiting. */
typedef struct traced_task_list {
    traced_task *task;
    int n, capacity;
} traced_task_list;

typedef struct step_trace_reader {
    tandem_input *input;
    tandem_events events;
    tandem_event event;
    tandem_error *error;
    traced_task_list tasks, waits;
    const traced_task *task; /* tasks.task, sorted */
    int n_task;
    rank_track *track;
    int n_track, track_capacity;
    whatif_label kind[MAX_KINDS];
    int n_kind;
    int64_t n_negative; /* durations below 0 */
} step_trace_reader;

static const char *const track_name[N_TRACK] = {"compute", "communication"};

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status step_trace_no_memory(const step_trace_reader *r)
{
    return tandem_no_memory(r->error, "to read '%.200s'", r->input->source);
}

static tandem_status find_or_add_track(step_trace_reader *r, int64_t pid, int *index)
{
    for (int k = 0; k < r->n_track; k++)
        if (r->track[k].pid == pid) {
            *index = k;
            return TANDEM_OK;
        }
    if (r->n_track == MAX_RANKS)
        return tandem_events_refuse(&r->events, &r->event, "expected at most 4096 ranks (pid)");
    rank_track *const more = tandem_grow(r->track, &r->track_capacity, r->n_track, sizeof *more, MAX_RANKS);
    if (!more) return step_trace_no_memory(r);
    r->track = more;
    r->track[r->n_track] = (rank_track){.pid = pid};
    (void)snprintf(r->track[r->n_track].name, sizeof r->track->name, "rank %lld", (long long)pid);
    *index = r->n_track++;
    return TANDEM_OK;
}

static tandem_status find_or_add_task_kind(step_trace_reader *r, int *index)
{
    whatif_label kind;
    tandem_event_copy(kind.text, sizeof kind.text, &r->event.kind);
    for (*index = 0; *index < r->n_kind; ++*index)
        if (strcmp(r->kind[*index].text, kind.text) == 0) return TANDEM_OK;
    if (r->n_kind == MAX_KINDS)
        return tandem_events_refuse(&r->events, &r->event, "expected at most 32 kinds of tasks");
    r->kind[r->n_kind++] = kind;
    return TANDEM_OK;
}

static tandem_status append_traced_task(const step_trace_reader *r, traced_task_list *list,
                                        const traced_task *traced)
{
    traced_task *const more = tandem_grow(list->task, &list->capacity, list->n, sizeof *more, MAX_TASKS);
    if (!more) return step_trace_no_memory(r);
    list->task = more;
    list->task[list->n++] = *traced;
    return TANDEM_OK;
}

static int task_role(const char *kind)
{
    if (strcmp(kind, "all-reduce") == 0) return REDUCE;
    if (strcmp(kind, "norm") == 0) return NORM;
    return strcmp(kind, "update") == 0 ? UPDATE : COMPUTE;
}

static tandem_status add_event_task(step_trace_reader *r)
{
    const tandem_event *const event = &r->event;
    int rank = 0, kind = 0;
    int64_t duration_ns = event->duration_ns;
    if (event->pid < 0 || event->task < -1 || event->task >= INT32_MAX)
        return tandem_events_refuse(&r->events, event, "expected a pid and a task, whole numbers from 0 on");
    if (!event->has_start || !event->has_duration ||
        !tandem_input_clamp_duration(&duration_ns, &r->n_negative))
        return tandem_events_refuse(&r->events, event,
                                    "expected ts and dur, the latter " TANDEM_INPUT_DURATIONS);
    tandem_status status = find_or_add_track(r, event->pid, &rank);
    if (status == TANDEM_OK && event->task >= 0) status = find_or_add_task_kind(r, &kind);
    if (status != TANDEM_OK) return status;
    const traced_task traced = {.start_ns = event->start_ns,
                                .end_ns = event->start_ns + duration_ns,
                                .id = (int32_t)event->task,
                                .rank = rank,
                                .role = (int16_t)task_role(event->kind.text),
                                .kind = (int16_t)kind};
    return append_traced_task(r, traced.id < 0 ? &r->waits : &r->tasks, &traced);
}

static tandem_status add_track_name(step_trace_reader *r)
{
    int rank = 0;
    if (strcmp(r->event.name.text, "process_name") != 0 || r->event.pid < 0 || !r->event.label.n)
        return TANDEM_OK;
    const tandem_status status = find_or_add_track(r, r->event.pid, &rank);
    if (status == TANDEM_OK) tandem_event_copy(r->track[rank].name, sizeof r->track->name, &r->event.label);
    return status;
}

static int by_track_task(const void *left, const void *right)
{
    const traced_task *const a = left, *const b = right;
    const int order = (a->rank > b->rank) - (a->rank < b->rank);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* Buckets are numbered in the order of their tasks, and so are their updates. */
static tandem_status number_buckets(step_trace_reader *r)
{
    qsort(r->tasks.task, (size_t)r->tasks.n, sizeof *r->tasks.task, by_track_task);
    for (int i = 0; i < r->tasks.n; i++) {
        traced_task *const t = &r->tasks.task[i];
        rank_track *const l = &r->track[t->rank];
        if (i > 0 && t[-1].rank == t->rank && t[-1].id == t->id)
            return tandem_error_set(r->error, TANDEM_MALFORMED,
                                    "'%.200s': %s runs task %d twice; expected one step", r->input->source,
                                    l->name, t->id);
        if (i == 0 || t[-1].rank != t->rank) l->first = i;
        if (t->role == REDUCE) t->bucket = l->n_bucket++;
        if (t->role == UPDATE) t->bucket = l->n_update++;
        if (t->role != REDUCE) l->busy_ns += t->end_ns - t->start_ns;
    }
    for (int k = 0; k < r->n_track; k++) {
        const rank_track *const l = &r->track[k];
        if (l->n_update != l->n_bucket && l->n_bucket > 0)
            return tandem_error_set(r->error, TANDEM_MALFORMED,
                                    "'%.200s': %s reduces %d buckets and updates %d; expected as many",
                                    r->input->source, l->name, l->n_bucket, l->n_update);
    }
    return TANDEM_OK;
}

static int by_track_pid(const void *left, const void *right)
{
    const rank_track *const a = left, *const b = right;
    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* By pid; ranks without tasks are dropped. Until then `first` is the index at which a rank was found. */
static tandem_status sort_tracks(step_trace_reader *r)
{
    int *const index = malloc((size_t)r->n_track * sizeof *index);
    if (!index) return step_trace_no_memory(r);
    for (int k = 0; k < r->n_track; k++) {
        index[k] = -1;
        r->track[k].first = k;
    }
    for (int i = 0; i < r->tasks.n; i++) index[r->tasks.task[i].rank] = 0;
    qsort(r->track, (size_t)r->n_track, sizeof *r->track, by_track_pid);
    int n = 0, n_wait = 0;
    for (int k = 0; k < r->n_track; k++) {
        const rank_track track = r->track[k];
        if (index[track.first] < 0) continue;
        index[track.first] = n;
        r->track[n++] = track;
    }
    r->n_track = n;
    for (int i = 0; i < r->tasks.n; i++) r->tasks.task[i].rank = index[r->tasks.task[i].rank];
    for (int i = 0; i < r->waits.n; i++) {
        traced_task one_wait = r->waits.task[i];
        one_wait.rank = index[one_wait.rank];
        if (one_wait.rank >= 0) r->waits.task[n_wait++] = one_wait;
    }
    r->waits.n = n_wait;
    free(index);
    return TANDEM_OK;
}

static tandem_status read_step_trace(step_trace_reader *r)
{
    tandem_status status = TANDEM_OK;
    int is_there = 1;
    tandem_events_open(&r->events, r->input, r->error);
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        if (r->event.phase == 'M') status = add_track_name(r);
        if (r->event.phase == 'X' && r->event.kind.n && r->event.task != INT64_MIN)
            status = add_event_task(r);
    }
    if (status == TANDEM_OK && r->tasks.n == 0)
        status = tandem_error_set(
            r->error, TANDEM_MALFORMED,
            "'%.200s' holds no tasks; expected a trace of tandem train or tandem replay", r->input->source);
    if (status == TANDEM_OK) status = sort_tracks(r);
    if (status == TANDEM_OK) status = number_buckets(r);
    r->task = r->tasks.task;
    r->n_task = r->tasks.n;
    return status;
}

/* --- The model ------------------------------------------------------------------------------------------ */

static int end_of_rank(const step_trace_reader *r, int rank)
{
    int end = r->track[rank].first;
    while (end < r->n_task && r->task[end].rank == rank) end++;
    return end;
}

/* An all-reduce takes the shortest time that any rank recorded. */
static void find_bucket_transfers(const step_trace_reader *r, int64_t *transfer_ns, int n_bucket)
{
    for (int b = 0; b < n_bucket; b++) transfer_ns[b] = INT64_MAX;
    for (int i = 0; i < r->n_task; i++) {
        const traced_task *const t = &r->task[i];
        if (t->role == REDUCE && t->end_ns - t->start_ns < transfer_ns[t->bucket])
            transfer_ns[t->bucket] = t->end_ns - t->start_ns;
    }
}

/* Tasks of the model are in the order of the input: by rank, then by id. */
static int find_task_edges(const step_trace_reader *r, tandem_dag_edge *edge)
{
    int n = 0;
    for (int rank = 0; rank < r->n_track; rank++) {
        const int first = r->track[rank].first, end = end_of_rank(r, rank);
        int last = -1, reduce = first; /* previous compute task; where to search the next all-reduce */
        int last_reduce = -1;
        for (int i = first; i < end; i++) {
            if (r->task[i].role == COMPUTE) last = i;
            if (r->task[i].role == REDUCE) last_reduce = i;
            if (r->task[i].role == REDUCE && last >= 0) edge[n++] = (tandem_dag_edge){last, i};
            if (r->task[i].role == NORM && last_reduce >= 0) edge[n++] = (tandem_dag_edge){last_reduce, i};
            if (r->task[i].role != UPDATE || !r->track[rank].n_bucket) continue;
            while (r->task[reduce].role != REDUCE) reduce++;
            edge[n++] = (tandem_dag_edge){reduce++, i};
        }
    }
    return n;
}

/* The ideal duration of a task is the one on the least busy rank. */
static void find_task_ideals(const step_trace_reader *r, whatif_model *model)
{
    int fastest = 0;
    for (int k = 1; k < r->n_track; k++)
        if (r->track[k].busy_ns < r->track[fastest].busy_ns) fastest = k;
    const int first = r->track[fastest].first, end = end_of_rank(r, fastest);
    for (int rank = 0; rank < r->n_track; rank++) {
        const int last = end_of_rank(r, rank);
        for (int i = r->track[rank].first, like = first; i < last; i++) {
            while (like < end && r->task[like].id < r->task[i].id) like++;
            const int has = like < end && r->task[like].id == r->task[i].id;
            model->ideal_ns[i] = r->task[i].role == REDUCE ? model->actual_ns[i]
                                 : has                     ? model->actual_ns[like]
                                                           : 0;
        }
    }
}

static tandem_status label_step_tasks(const step_trace_reader *r, whatif_model *model)
{
    tandem_status status = whatif_model_dimension(model, WHATIF_OPERATOR, r->n_kind, r->error);
    if (status == TANDEM_OK && r->n_track > 1)
        status = whatif_model_dimension(model, WHATIF_WORKER, r->n_track, r->error);
    if (status != TANDEM_OK) return status;
    memcpy(model->by[WHATIF_OPERATOR].name, r->kind, (size_t)r->n_kind * sizeof *r->kind);
    for (int k = 0; k < r->n_track; k++) {
        (void)snprintf(model->worker_name[k].text, sizeof model->worker_name->text, "%s", r->track[k].name);
        if (r->n_track > 1) model->by[WHATIF_WORKER].name[k] = model->worker_name[k];
    }
    model->track_name = track_name;
    model->n_track = N_TRACK;
    for (int i = 0; i < r->n_task; i++) {
        const traced_task *const t = &r->task[i];
        model->op_name[i] = model->by[WHATIF_OPERATOR].name[t->kind].text;
        model->worker[i] = t->rank;
        model->track[i] = t->role == REDUCE;
        model->by[WHATIF_OPERATOR].of[i] = t->kind;
        if (r->n_track > 1) model->by[WHATIF_WORKER].of[i] = t->rank;
    }
    return TANDEM_OK;
}

static int64_t step_trace_extent(const step_trace_reader *r, int64_t *first_ns)
{
    int64_t last_ns = INT64_MIN;
    *first_ns = INT64_MAX;
    for (int i = 0; i < r->n_task; i++) {
        if (r->task[i].start_ns < *first_ns) *first_ns = r->task[i].start_ns;
        if (r->task[i].end_ns > last_ns) last_ns = r->task[i].end_ns;
    }
    return last_ns - *first_ns;
}

static void step_trace_task_name(char *text, size_t size, const void *context, int i)
{
    const step_trace_reader *const r = context;
    (void)snprintf(text, size, "%s: %s, task %d", r->track[r->task[i].rank].name,
                   r->kind[r->task[i].kind].text, r->task[i].id);
}

static tandem_status open_step_simulator(const step_trace_reader *r, whatif_model *model, int n_bucket)
{
    tandem_arena arena = {0};
    const size_t n = (size_t)r->n_task;
    int *const stream = tandem_arena_array(&arena, n, sizeof *stream), *const group = tandem_arena_array(
                                                                           &arena, n, sizeof *group);
    int *const size = tandem_arena_array(&arena, (size_t)n_bucket, sizeof *size);
    int64_t *const transfer_ns = tandem_arena_array(&arena, (size_t)n_bucket, sizeof *transfer_ns);
    tandem_dag_edge *const edge = tandem_arena_array(&arena, n, sizeof *edge);
    tandem_status status = TANDEM_OK;
    if (!stream || !group || !size || !transfer_ns || !edge) {
        status = step_trace_no_memory(r);
        goto out;
    }
    for (int b = 0; b < n_bucket; b++) size[b] = r->n_track;
    find_bucket_transfers(r, transfer_ns, n_bucket);
    for (int i = 0; i < r->n_task; i++) {
        const traced_task *const t = &r->task[i];
        stream[i] = N_TRACK * t->rank + (t->role == REDUCE);
        group[i] = t->role == REDUCE ? t->bucket : -1;
        model->actual_ns[i] = t->role == REDUCE ? transfer_ns[t->bucket] : t->end_ns - t->start_ns;
    }
    const tandem_dag graph = {.n_op = r->n_task,
                              .n_stream = N_TRACK * r->n_track,
                              .n_group = n_bucket,
                              .n_edge = find_task_edges(r, edge),
                              .stream = stream,
                              .group = group,
                              .group_size = size,
                              .edge = edge,
                              .name = step_trace_task_name,
                              .context = r};
    status = tandem_dag_simulator_open(model->simulator, &graph, r->error);
out:
    tandem_arena_free(&arena);
    return status;
}

static tandem_status open_step_model(const step_trace_reader *r, whatif_model *model)
{
    int64_t first_ns = 0;
    const int n_bucket = r->track[0].n_bucket;
    for (int k = 1; k < r->n_track; k++)
        if (r->track[k].n_bucket != n_bucket)
            return tandem_error_set(
                r->error, TANDEM_MALFORMED, "'%.200s': %s reduces %d buckets, %s %d; expected as many",
                r->input->source, r->track[0].name, n_bucket, r->track[k].name, r->track[k].n_bucket);
    tandem_status status = whatif_model_allocate(model, r->n_task, 1, r->n_track, r->error);
    if (status != TANDEM_OK) return status;
    model->first[1] = r->n_task;
    model->recorded_ns[0] = step_trace_extent(r, &first_ns);
    status = open_step_simulator(r, model, n_bucket);
    if (status != TANDEM_OK) return status;
    find_task_ideals(r, model);
    return label_step_tasks(r, model);
}

/* --- Where the step of a rank went ---------------------------------------------------------------------- */

/* Each union includes the one before: busy; also on the wire; also waiting. */
enum { BUSY, WIRE, WAIT, N_UNION };

static tandem_status add_to_unions(tandem_interval_set unions[N_UNION], int first, int64_t begin_ns,
                                   int64_t end_ns, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = first; k < N_UNION && status == TANDEM_OK; k++)
        status = tandem_interval_set_add(&unions[k], begin_ns, end_ns, error);
    return status;
}

static tandem_status measure_track(const step_trace_reader *r, const whatif_model *model, int rank,
                                   int64_t from_ns, tandem_whatif_rank *summary)
{
    tandem_interval_set unions[N_UNION] = {0};
    const int end = end_of_rank(r, rank);
    int64_t covered_ns[N_UNION];
    tandem_status status = TANDEM_OK;
    for (int i = r->track[rank].first; i < end && status == TANDEM_OK; i++) {
        const traced_task *const t = &r->task[i];
        /* A measured all-reduce begins when its rank is ready; a simulated one when all are. */
        const int64_t wire_ns = t->role == REDUCE ? t->end_ns - model->actual_ns[i] : t->end_ns;
        if (t->role == REDUCE) status = add_to_unions(unions, WAIT, t->start_ns, wire_ns, r->error);
        if (status == TANDEM_OK)
            status = add_to_unions(unions, t->role == REDUCE ? WIRE : BUSY,
                                   t->role == REDUCE ? wire_ns : t->start_ns, t->end_ns, r->error);
    }
    for (int i = 0; i < r->waits.n && status == TANDEM_OK; i++)
        if (r->waits.task[i].rank == rank)
            status =
                add_to_unions(unions, WAIT, r->waits.task[i].start_ns, r->waits.task[i].end_ns, r->error);
    for (int k = 0; k < N_UNION; k++) {
        tandem_interval_set_merge(&unions[k]);
        covered_ns[k] = tandem_interval_set_covered_ns(&unions[k], from_ns, from_ns + model->recorded_ns[0]);
        tandem_interval_set_free(&unions[k]);
    }
    (void)snprintf(summary->name, sizeof summary->name, "%s", r->track[rank].name);
    summary->busy_ns = covered_ns[BUSY];
    summary->exposed_ns = covered_ns[WIRE] - covered_ns[BUSY];
    summary->wait_ns = covered_ns[WAIT] - covered_ns[WIRE];
    summary->idle_ns = model->recorded_ns[0] - covered_ns[WAIT];
    return status;
}

static tandem_status measure_tracks(const step_trace_reader *r, const whatif_model *model,
                                    tandem_whatif *whatif)
{
    int64_t from_ns = 0;
    tandem_status status = TANDEM_OK;
    (void)step_trace_extent(r, &from_ns);
    whatif->rank = calloc((size_t)r->n_track + 1, sizeof *whatif->rank);
    if (!whatif->rank) return step_trace_no_memory(r);
    for (int rank = 0; rank < r->n_track && status == TANDEM_OK; rank++) {
        status = measure_track(r, model, rank, from_ns, &whatif->rank[rank]);
        whatif->n_rank++;
    }
    return status;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

/* `bytes` NULL: the source is a path. */
static tandem_status analyse_step_trace(tandem_whatif **whatif, const char *source, const void *bytes,
                                        size_t n, const char *trace_path, tandem_error *error)
{
    whatif_model model = {0};
    tandem_whatif *opened = NULL;
    tandem_input input = {0};
    step_trace_reader *const r = calloc(1, sizeof *r);
    if (!r) return tandem_no_memory(error, "to read '%.200s'", source);
    r->input = &input;
    r->error = error;
    tandem_status status = bytes ? tandem_input_open_bytes(&input, bytes, n, source, error)
                                 : tandem_input_open(&input, source, error);
    if (status == TANDEM_OK) status = read_step_trace(r);
    if (status == TANDEM_OK) status = open_step_model(r, &model);
    if (status == TANDEM_OK) status = whatif_analyse(&opened, &model, trace_path, error);
    if (status == TANDEM_OK) status = measure_tracks(r, &model, opened);
    if (status == TANDEM_OK) opened->n_negative = r->n_negative;
    if (status == TANDEM_OK)
        *whatif = opened;
    else
        tandem_whatif_close(opened);
    whatif_model_close(&model);
    tandem_input_close(&input);
    free(r->track);
    free(r->waits.task);
    free(r->tasks.task);
    free(r);
    return status;
}

tandem_status tandem_whatif_trace(tandem_whatif **whatif, const char *path, const char *trace_path,
                                  tandem_error *error)
{
    return analyse_step_trace(whatif, path, NULL, 0, trace_path, error);
}

tandem_status tandem_whatif_parse_trace(tandem_whatif **whatif, const void *bytes, size_t n,
                                        const char *source, tandem_error *error)
{
    return analyse_step_trace(whatif, source, bytes ? bytes : "", n, NULL, error);
}
