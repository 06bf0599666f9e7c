/* read_step.c: what a recorded file is, and the steps that tandem itself has written (profiles/trace.c):
 * which task of which rank ran when; from these a model of the step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/read_events.h"
#include "replayer/spans.h"
#include "replayer/whatif_model.h"

enum { COMPUTE, REDUCE, NORM, UPDATE }; /* sorts of tasks */
enum { MOST_RANKS = 4096, MOST_KINDS = 32, STREAMS = 2 };

typedef struct task {
    int64_t start_ns, end_ns;
    int32_t id, rank; /* id in the step program; place of its rank */
    int16_t sort, kind;
    int32_t bucket; /* of a reduce or an update */
} task;

typedef struct lane {
    int64_t pid;
    char name[TANDEM_WHATIF_NAME];
    int first, n_bucket, n_update; /* first: of its tasks */
    int64_t busy_ns;
} lane;

/* Tasks that are read; simulated steps also say when a rank waits. */
typedef struct task_list {
    task *task;
    int n, room;
} task_list;

typedef struct reading {
    tandem_input *input;
    tandem_events events;
    tandem_event event;
    tandem_error *error;
    task_list tasks, waits;
    const task *task; /* tasks.task, sorted */
    int n_task;
    lane *lane;
    int n_lane, lane_room;
    whatif_label kind[MOST_KINDS];
    int n_kind;
    int64_t n_negative; /* durations below 0 */
} reading;

static const char *const lane_name[STREAMS] = {"compute", "communication"};

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status no_memory(const reading *r)
{
    return tandem_error_set(r->error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", r->input->source);
}

static tandem_status find_lane(reading *r, int64_t pid, int *place)
{
    for (int k = 0; k < r->n_lane; k++)
        if (r->lane[k].pid == pid) {
            *place = k;
            return TANDEM_OK;
        }
    if (r->n_lane == MOST_RANKS)
        return tandem_events_refuse(&r->events, &r->event, "expected at most 4096 ranks (pid)");
    if (r->n_lane == r->lane_room) {
        const int room = r->lane_room ? 2 * r->lane_room : 8;
        lane *const more = realloc(r->lane, (size_t)room * sizeof *more);
        if (!more) return no_memory(r);
        r->lane = more;
        r->lane_room = room;
    }
    r->lane[r->n_lane] = (lane){.pid = pid};
    (void)snprintf(r->lane[r->n_lane].name, sizeof r->lane->name, "rank %lld", (long long)pid);
    *place = r->n_lane++;
    return TANDEM_OK;
}

static tandem_status find_kind(reading *r, int *place)
{
    whatif_label kind;
    tandem_event_copy(kind.text, sizeof kind.text, &r->event.kind);
    for (*place = 0; *place < r->n_kind; ++*place)
        if (strcmp(r->kind[*place].text, kind.text) == 0) return TANDEM_OK;
    if (r->n_kind == MOST_KINDS)
        return tandem_events_refuse(&r->events, &r->event, "expected at most 32 kinds of tasks");
    r->kind[r->n_kind++] = kind;
    return TANDEM_OK;
}

static tandem_status add_task(const reading *r, task_list *list, const task *one)
{
    if (list->n == list->room) {
        const int room = list->room ? 2 * list->room : 256;
        task *const more = list->room < 1 << 27 ? realloc(list->task, (size_t)room * sizeof *more) : NULL;
        if (!more) return no_memory(r);
        list->task = more;
        list->room = room;
    }
    list->task[list->n++] = *one;
    return TANDEM_OK;
}

static int sort_of(const char *kind)
{
    if (strcmp(kind, "all-reduce") == 0) return REDUCE;
    if (strcmp(kind, "norm") == 0) return NORM;
    return strcmp(kind, "update") == 0 ? UPDATE : COMPUTE;
}

static tandem_status take_task(reading *r)
{
    const tandem_event *const event = &r->event;
    int rank = 0, kind = 0;
    int64_t duration_ns = event->duration_ns;
    if (event->pid < 0 || event->task < -1 || event->task >= INT32_MAX)
        return tandem_events_refuse(&r->events, event, "expected a pid and a task, whole numbers from 0 on");
    if (!event->has_start || !event->has_duration || !tandem_input_duration(&duration_ns, &r->n_negative))
        return tandem_events_refuse(&r->events, event,
                                    "expected ts and dur, the latter " TANDEM_INPUT_DURATIONS);
    tandem_status status = find_lane(r, event->pid, &rank);
    if (status == TANDEM_OK && event->task >= 0) status = find_kind(r, &kind);
    if (status != TANDEM_OK) return status;
    const task one = {.start_ns = event->start_ns,
                      .end_ns = event->start_ns + duration_ns,
                      .id = (int32_t)event->task,
                      .rank = rank,
                      .sort = (int16_t)sort_of(event->kind.text),
                      .kind = (int16_t)kind};
    return add_task(r, one.id < 0 ? &r->waits : &r->tasks, &one);
}

static tandem_status take_name(reading *r)
{
    int rank = 0;
    if (strcmp(r->event.name.text, "process_name") != 0 || r->event.pid < 0 || !r->event.label.n)
        return TANDEM_OK;
    const tandem_status status = find_lane(r, r->event.pid, &rank);
    if (status == TANDEM_OK) tandem_event_copy(r->lane[rank].name, sizeof r->lane->name, &r->event.label);
    return status;
}

static int by_rank_id(const void *left, const void *right)
{
    const task *const a = left, *const b = right;
    const int order = (a->rank > b->rank) - (a->rank < b->rank);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* Buckets are numbered in the order of their tasks, and so are their updates. */
static tandem_status number_tasks(reading *r)
{
    qsort(r->tasks.task, (size_t)r->tasks.n, sizeof *r->tasks.task, by_rank_id);
    for (int i = 0; i < r->tasks.n; i++) {
        task *const t = &r->tasks.task[i];
        lane *const l = &r->lane[t->rank];
        if (i > 0 && t[-1].rank == t->rank && t[-1].id == t->id)
            return tandem_error_set(r->error, TANDEM_MALFORMED,
                                    "'%.200s': %s runs task %d twice; expected "
                                    "one step",
                                    r->input->source, l->name, t->id);
        if (i == 0 || t[-1].rank != t->rank) l->first = i;
        if (t->sort == REDUCE) t->bucket = l->n_bucket++;
        if (t->sort == UPDATE) t->bucket = l->n_update++;
        if (t->sort != REDUCE) l->busy_ns += t->end_ns - t->start_ns;
    }
    for (int k = 0; k < r->n_lane; k++) {
        const lane *const l = &r->lane[k];
        if (l->n_update != l->n_bucket && l->n_bucket > 0)
            return tandem_error_set(r->error, TANDEM_MALFORMED,
                                    "'%.200s': %s reduces %d buckets and updates %d; expected as many",
                                    r->input->source, l->name, l->n_bucket, l->n_update);
    }
    return TANDEM_OK;
}

static int by_pid(const void *left, const void *right)
{
    const lane *const a = left, *const b = right;
    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* By number; ranks that are named and run nothing are none. Until here `first` holds the place at which a
 * lane was found. */
static tandem_status sort_lanes(reading *r)
{
    int *const place = malloc((size_t)r->n_lane * sizeof *place);
    if (!place) return no_memory(r);
    for (int k = 0; k < r->n_lane; k++) {
        place[k] = -1;
        r->lane[k].first = k;
    }
    for (int i = 0; i < r->tasks.n; i++) place[r->tasks.task[i].rank] = 0;
    qsort(r->lane, (size_t)r->n_lane, sizeof *r->lane, by_pid);
    int n = 0, n_wait = 0;
    for (int k = 0; k < r->n_lane; k++) {
        const lane one = r->lane[k];
        if (place[one.first] < 0) continue;
        place[one.first] = n;
        r->lane[n++] = one;
    }
    r->n_lane = n;
    for (int i = 0; i < r->tasks.n; i++) r->tasks.task[i].rank = place[r->tasks.task[i].rank];
    for (int i = 0; i < r->waits.n; i++) {
        task wait = r->waits.task[i];
        wait.rank = place[wait.rank];
        if (wait.rank >= 0) r->waits.task[n_wait++] = wait;
    }
    r->waits.n = n_wait;
    free(place);
    return TANDEM_OK;
}

static tandem_status read_tasks(reading *r)
{
    tandem_status status = TANDEM_OK;
    int is_there = 1;
    tandem_events_open(&r->events, r->input, r->error);
    while (status == TANDEM_OK) {
        status = tandem_events_next(&r->events, &r->event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        if (r->event.phase == 'M') status = take_name(r);
        if (r->event.phase == 'X' && r->event.kind.n && r->event.task != INT64_MIN) status = take_task(r);
    }
    if (status == TANDEM_OK && r->tasks.n == 0)
        status = tandem_error_set(
            r->error, TANDEM_MALFORMED,
            "'%.200s' holds no tasks; expected a trace of tandem train or tandem replay", r->input->source);
    if (status == TANDEM_OK) status = sort_lanes(r);
    if (status == TANDEM_OK) status = number_tasks(r);
    r->task = r->tasks.task;
    r->n_task = r->tasks.n;
    return status;
}

/* --- The model ------------------------------------------------------------------------------------------ */

static int behind_of(const reading *r, int rank)
{
    int behind = r->lane[rank].first;
    while (behind < r->n_task && r->task[behind].rank == rank) behind++;
    return behind;
}

/* What an all-reduce takes once all are there: the shortest that any rank has seen. */
static void find_transfers(const reading *r, int64_t *transfer_ns, int n_bucket)
{
    for (int b = 0; b < n_bucket; b++) transfer_ns[b] = INT64_MAX;
    for (int i = 0; i < r->n_task; i++) {
        const task *const t = &r->task[i];
        if (t->sort == REDUCE && t->end_ns - t->start_ns < transfer_ns[t->bucket])
            transfer_ns[t->bucket] = t->end_ns - t->start_ns;
    }
}

/* Tasks of the model are those that were read, in their order: by rank, then by id. */
static int find_edges(const reading *r, tandem_engine_edge *edge)
{
    int n = 0;
    for (int rank = 0; rank < r->n_lane; rank++) {
        const int first = r->lane[rank].first, behind = behind_of(r, rank);
        int last = -1, reduce = first; /* compute task before; where to look for the next bucket's reduce */
        int last_reduce = -1;
        for (int i = first; i < behind; i++) {
            if (r->task[i].sort == COMPUTE) last = i;
            if (r->task[i].sort == REDUCE) last_reduce = i;
            if (r->task[i].sort == REDUCE && last >= 0) edge[n++] = (tandem_engine_edge){last, i};
            if (r->task[i].sort == NORM && last_reduce >= 0) edge[n++] = (tandem_engine_edge){last_reduce, i};
            if (r->task[i].sort != UPDATE || !r->lane[rank].n_bucket) continue;
            while (r->task[reduce].sort != REDUCE) reduce++;
            edge[n++] = (tandem_engine_edge){reduce++, i};
        }
    }
    return n;
}

/* Every rank takes what the one takes that computes least. */
static void find_ideals(const reading *r, whatif_model *model)
{
    int fastest = 0;
    for (int k = 1; k < r->n_lane; k++)
        if (r->lane[k].busy_ns < r->lane[fastest].busy_ns) fastest = k;
    const int first = r->lane[fastest].first, behind = behind_of(r, fastest);
    for (int rank = 0; rank < r->n_lane; rank++) {
        const int last = behind_of(r, rank);
        for (int i = r->lane[rank].first, like = first; i < last; i++) {
            while (like < behind && r->task[like].id < r->task[i].id) like++;
            const int has = like < behind && r->task[like].id == r->task[i].id;
            model->ideal_ns[i] = r->task[i].sort == REDUCE ? model->actual_ns[i]
                                 : has                     ? model->actual_ns[like]
                                                           : 0;
        }
    }
}

static tandem_status label_tasks(const reading *r, whatif_model *model)
{
    tandem_status status = whatif_model_dimension(model, WHATIF_OPERATOR, r->n_kind, r->error);
    if (status == TANDEM_OK && r->n_lane > 1)
        status = whatif_model_dimension(model, WHATIF_WORKER, r->n_lane, r->error);
    if (status != TANDEM_OK) return status;
    memcpy(model->by[WHATIF_OPERATOR].name, r->kind, (size_t)r->n_kind * sizeof *r->kind);
    for (int k = 0; k < r->n_lane; k++) {
        (void)snprintf(model->worker_name[k].text, sizeof model->worker_name->text, "%s", r->lane[k].name);
        if (r->n_lane > 1) model->by[WHATIF_WORKER].name[k] = model->worker_name[k];
    }
    model->lane_name = lane_name;
    model->n_lane = STREAMS;
    for (int i = 0; i < r->n_task; i++) {
        const task *const t = &r->task[i];
        model->op_name[i] = model->by[WHATIF_OPERATOR].name[t->kind].text;
        model->worker[i] = t->rank;
        model->lane[i] = t->sort == REDUCE;
        model->by[WHATIF_OPERATOR].of[i] = t->kind;
        if (r->n_lane > 1) model->by[WHATIF_WORKER].of[i] = t->rank;
    }
    return TANDEM_OK;
}

static int64_t extent(const reading *r, int64_t *first_ns)
{
    int64_t last_ns = INT64_MIN;
    *first_ns = INT64_MAX;
    for (int i = 0; i < r->n_task; i++) {
        if (r->task[i].start_ns < *first_ns) *first_ns = r->task[i].start_ns;
        if (r->task[i].end_ns > last_ns) last_ns = r->task[i].end_ns;
    }
    return last_ns - *first_ns;
}

static void name_task(char *text, size_t size, const void *context, int i)
{
    const reading *const r = context;
    (void)snprintf(text, size, "%s: %s, task %d", r->lane[r->task[i].rank].name,
                   r->kind[r->task[i].kind].text, r->task[i].id);
}

static tandem_status open_engine(const reading *r, whatif_model *model, int n_bucket)
{
    tandem_arena arena = {0};
    const size_t n = (size_t)r->n_task;
    int *const stream = tandem_arena_array(&arena, n, sizeof *stream), *const group = tandem_arena_array(
                                                                           &arena, n, sizeof *group);
    int *const size = tandem_arena_array(&arena, (size_t)n_bucket, sizeof *size);
    int64_t *const transfer_ns = tandem_arena_array(&arena, (size_t)n_bucket, sizeof *transfer_ns);
    tandem_engine_edge *const edge = tandem_arena_array(&arena, n, sizeof *edge);
    tandem_status status = TANDEM_OK;
    if (!stream || !group || !size || !transfer_ns || !edge) {
        status = no_memory(r);
        goto out;
    }
    for (int b = 0; b < n_bucket; b++) size[b] = r->n_lane;
    find_transfers(r, transfer_ns, n_bucket);
    for (int i = 0; i < r->n_task; i++) {
        const task *const t = &r->task[i];
        stream[i] = STREAMS * t->rank + (t->sort == REDUCE);
        group[i] = t->sort == REDUCE ? t->bucket : -1;
        model->actual_ns[i] = t->sort == REDUCE ? transfer_ns[t->bucket] : t->end_ns - t->start_ns;
    }
    const tandem_engine_graph graph = {.n_op = r->n_task,
                                       .n_stream = STREAMS * r->n_lane,
                                       .n_group = n_bucket,
                                       .n_edge = find_edges(r, edge),
                                       .stream = stream,
                                       .group = group,
                                       .group_size = size,
                                       .edge = edge,
                                       .name = name_task,
                                       .context = r};
    status = tandem_engine_open(model->engine, &graph, r->error);
out:
    tandem_arena_free(&arena);
    return status;
}

static tandem_status open_model(const reading *r, whatif_model *model)
{
    int64_t first_ns = 0;
    const int n_bucket = r->lane[0].n_bucket;
    for (int k = 1; k < r->n_lane; k++)
        if (r->lane[k].n_bucket != n_bucket)
            return tandem_error_set(
                r->error, TANDEM_MALFORMED, "'%.200s': %s reduces %d buckets, %s %d; expected as many",
                r->input->source, r->lane[0].name, n_bucket, r->lane[k].name, r->lane[k].n_bucket);
    tandem_status status = whatif_model_room(model, r->n_task, 1, r->n_lane, r->error);
    if (status != TANDEM_OK) return status;
    model->first[1] = r->n_task;
    model->recorded_ns[0] = extent(r, &first_ns);
    status = open_engine(r, model, n_bucket);
    if (status != TANDEM_OK) return status;
    find_ideals(r, model);
    return label_tasks(r, model);
}

/* --- Where the step of a rank went ---------------------------------------------------------------------- */

/* Busy, then also on the wire, then also waiting: each union is the one before and more. */
enum { BUSY, WIRE, WAIT, N_UNION };

static tandem_status add_from(tandem_spans unions[N_UNION], int first, int64_t begin_ns, int64_t end_ns,
                              tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = first; k < N_UNION && status == TANDEM_OK; k++)
        status = tandem_spans_add(&unions[k], begin_ns, end_ns, error);
    return status;
}

static tandem_status measure_rank(const reading *r, const whatif_model *model, int rank, int64_t from_ns,
                                  tandem_whatif_rank *of)
{
    tandem_spans unions[N_UNION] = {0};
    const int behind = behind_of(r, rank);
    int64_t covered_ns[N_UNION];
    tandem_status status = TANDEM_OK;
    for (int i = r->lane[rank].first; i < behind && status == TANDEM_OK; i++) {
        const task *const t = &r->task[i];
        /* A measured all-reduce begins when the rank is ready for it; a simulated one when all are. */
        const int64_t wire_ns = t->sort == REDUCE ? t->end_ns - model->actual_ns[i] : t->end_ns;
        if (t->sort == REDUCE) status = add_from(unions, WAIT, t->start_ns, wire_ns, r->error);
        if (status == TANDEM_OK)
            status = add_from(unions, t->sort == REDUCE ? WIRE : BUSY,
                              t->sort == REDUCE ? wire_ns : t->start_ns, t->end_ns, r->error);
    }
    for (int i = 0; i < r->waits.n && status == TANDEM_OK; i++)
        if (r->waits.task[i].rank == rank)
            status = add_from(unions, WAIT, r->waits.task[i].start_ns, r->waits.task[i].end_ns, r->error);
    for (int k = 0; k < N_UNION; k++) {
        tandem_spans_unite(&unions[k]);
        covered_ns[k] = tandem_spans_within(&unions[k], from_ns, from_ns + model->recorded_ns[0]);
        tandem_spans_free(&unions[k]);
    }
    (void)snprintf(of->name, sizeof of->name, "%s", r->lane[rank].name);
    of->busy_ns = covered_ns[BUSY];
    of->exposed_ns = covered_ns[WIRE] - covered_ns[BUSY];
    of->wait_ns = covered_ns[WAIT] - covered_ns[WIRE];
    of->idle_ns = model->recorded_ns[0] - covered_ns[WAIT];
    return status;
}

static tandem_status measure_ranks(const reading *r, const whatif_model *model, tandem_whatif *whatif)
{
    int64_t from_ns = 0;
    tandem_status status = TANDEM_OK;
    (void)extent(r, &from_ns);
    whatif->rank = calloc((size_t)r->n_lane, sizeof *whatif->rank);
    if (!whatif->rank) return no_memory(r);
    for (int rank = 0; rank < r->n_lane && status == TANDEM_OK; rank++) {
        status = measure_rank(r, model, rank, from_ns, &whatif->rank[rank]);
        whatif->n_rank++;
    }
    return status;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

static tandem_status analyse(tandem_whatif **whatif, tandem_input *input, const char *trace_path,
                             tandem_error *error)
{
    whatif_model model = {0};
    tandem_whatif *made = NULL;
    reading *const r = calloc(1, sizeof *r);
    if (!r) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", input->source);
    r->input = input;
    r->error = error;
    tandem_status status = read_tasks(r);
    if (status == TANDEM_OK) status = open_model(r, &model);
    if (status == TANDEM_OK) status = whatif_analyse(&made, &model, trace_path, error);
    if (status == TANDEM_OK) status = measure_ranks(r, &model, made);
    if (status == TANDEM_OK) made->n_negative = r->n_negative;
    if (status == TANDEM_OK)
        *whatif = made;
    else
        tandem_whatif_close(made);
    whatif_model_close(&model);
    free(r->lane);
    free(r->waits.task);
    free(r->tasks.task);
    free(r);
    return status;
}

tandem_status tandem_whatif_trace(tandem_whatif **whatif, const char *path, const char *trace_path,
                                  tandem_error *error)
{
    tandem_input input = {0};
    tandem_status status = tandem_input_open(&input, path, error);
    if (status == TANDEM_OK) status = analyse(whatif, &input, trace_path, error);
    tandem_input_close(&input);
    return status;
}

tandem_status tandem_whatif_parse_trace(tandem_whatif **whatif, const void *bytes, size_t n,
                                        const char *source, tandem_error *error)
{
    tandem_input input = {0};
    tandem_status status = tandem_input_open_bytes(&input, bytes, n, source, error);
    if (status == TANDEM_OK) status = analyse(whatif, &input, NULL, error);
    tandem_input_close(&input);
    return status;
}

/* --- What a file is ------------------------------------------------------------------------------------- */

/* No table begins like that. JSON may have control characters in it. */
static int is_binary(const tandem_input *input)
{
    enum { LOOK_AT = 256 };
    if (input->bytes[input->at] == '{' || input->bytes[input->at] == '[') return 0;
    for (size_t k = input->at; k < input->end && k < input->at + LOOK_AT; k++)
        if (input->bytes[k] < '\t' || (input->bytes[k] > '\r' && input->bytes[k] < ' ')) return 1;
    return 0;
}

static int ends_in(const char *path, const char *ending)
{
    const size_t n = strlen(path), n_ending = strlen(ending);
    return n > n_ending && strcmp(path + n - n_ending, ending) == 0;
}

static tandem_status find_first_slice(tandem_recording *recording, tandem_input *input, tandem_error *error)
{
    int is_there = 1;
    const tandem_status more = tandem_input_more(input, &is_there, error);
    if (more != TANDEM_OK) return more;
    *recording = TANDEM_RECORDING_CHAKRA;
    if (is_binary(input)) return TANDEM_OK;
    tandem_pull pull = {.input = input, .error = error};
    const char first = tandem_pull_peek(&pull);
    is_there = 1;
    if (pull.status != TANDEM_OK) return pull.status;
    *recording = TANDEM_RECORDING_JOB;
    if (first != '{' && first != '[') return TANDEM_OK;
    tandem_events events;
    tandem_event *const event = calloc(1, sizeof *event);
    if (!event) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read '%.200s'", input->source);
    tandem_events_open(&events, input, error);
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK && is_there && event->phase != 'X')
        status = tandem_events_next(&events, event, &is_there);
    *recording = event->phase == 'X' && event->kind.n && event->task != INT64_MIN ? TANDEM_RECORDING_STEP
                                                                                  : TANDEM_RECORDING_TORCH;
    free(event);
    return status;
}

tandem_status tandem_recording_find(tandem_recording *recording, const char *path, tandem_error *error)
{
    tandem_input input = {0};
    tandem_recording found = TANDEM_RECORDING_JOB;
    if (ends_in(path, ".et") || ends_in(path, ".et.gz")) {
        *recording = TANDEM_RECORDING_CHAKRA;
        return TANDEM_OK;
    }
    tandem_status status = tandem_input_open(&input, path, error);
    if (status == TANDEM_OK) status = find_first_slice(&found, &input, error);
    if (status == TANDEM_OK) *recording = found;
    tandem_input_close(&input);
    return status;
}
