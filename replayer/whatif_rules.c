/* whatif_rules.c: what waits for what in a pipeline-parallel step (the rules in whatif.h), and what each
 * operator ideally takes. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/job.h"
#include "replayer/whatif_model.h"

enum { FORWARD, BACKWARD, N_DIRECTION };
enum { N_STREAM = 6, MOST_EDGES = 3 /* of one operator */ };
/* Collectives: over data-parallel ranks, over first and last stage, over all. */
enum { GATHER, SCATTER, EMBEDDING, CLIP, N_COLLECTIVE };

static const tandem_job_kind compute_kind[N_DIRECTION] = {TANDEM_JOB_FORWARD, TANDEM_JOB_BACKWARD};
static const tandem_job_kind send_kind[N_DIRECTION] = {TANDEM_JOB_FORWARD_SEND, TANDEM_JOB_BACKWARD_SEND};
static const tandem_job_kind recv_kind[N_DIRECTION] = {TANDEM_JOB_FORWARD_RECV, TANDEM_JOB_BACKWARD_RECV};
static const tandem_job_kind collective_kind[N_COLLECTIVE] = {
    TANDEM_JOB_PARAMS_GATHER, TANDEM_JOB_GRADS_SCATTER, TANDEM_JOB_EMBEDDING, TANDEM_JOB_CLIP};
static const tandem_job_kind tail_kind[] = {TANDEM_JOB_GC,        TANDEM_JOB_LAYERNORM,
                                            TANDEM_JOB_EMBEDDING, TANDEM_JOB_GRADS_SCATTER,
                                            TANDEM_JOB_CLIP,      TANDEM_JOB_OPTIMIZER};
static const char *const lane_name[] = {"compute",       "forward send",     "forward receive",
                                        "backward send", "backward receive", "parameters and gradients",
                                        "end of step"};
enum { LANE_TAIL = N_STREAM, N_LANE = N_STREAM + 1 };

/* The stream of a worker that an operator type runs on; −1 = none. */
static int stream_of(int kind)
{
    switch (kind) {
    case TANDEM_JOB_FORWARD:
    case TANDEM_JOB_BACKWARD: return 0;
    case TANDEM_JOB_FORWARD_SEND: return 1;
    case TANDEM_JOB_FORWARD_RECV: return 2;
    case TANDEM_JOB_BACKWARD_SEND: return 3;
    case TANDEM_JOB_BACKWARD_RECV: return 4;
    case TANDEM_JOB_PARAMS_GATHER:
    case TANDEM_JOB_GRADS_SCATTER: return 5;
    default: return -1;
    }
}

/* One step while its graph is laid out. Operators count from the first of the step. */
typedef struct layout {
    const tandem_job *job;
    const tandem_job_op *op; /* [n] */
    int n, n_worker;
    tandem_error *error;
    int *worker_first;             /* [n_worker + 1] */
    int *stream, *group;           /* [n] */
    int *list;                     /* [n] of each worker its operators by type, then by start … */
    int *list_first;               /* [n_worker][TANDEM_N_JOB_KIND + 1] … and where each type begins */
    int *n_sent[N_DIRECTION];      /* [n_worker] messages with a partner */
    int *n_received[N_DIRECTION];  /* [n_worker] */
    int *pair[N_DIRECTION];        /* [n_worker] group of the sender's first message */
    int *collective[N_COLLECTIVE]; /* [n_worker] by unit: how many, then the group of the first */
    int *group_size;               /* [n_group] */
    int n_group;
    tandem_engine_edge *edge; /* [MOST_EDGES · n] */
    int n_edge;
    tandem_arena arena;
} layout;

/* A list of operators of one worker and type. */
typedef struct op_list {
    const int *op;
    int n;
} op_list;

static op_list list_of(const layout *l, int worker, int kind)
{
    const int *const first = l->list_first + (size_t)worker * (TANDEM_N_JOB_KIND + 1) + kind;
    return (op_list){l->list + first[0], first[1] - first[0]};
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static int64_t worker_of(const tandem_job *job, const tandem_job_op *op)
{
    return ((int64_t)op->dp_rank * job->n_stage + op->stage) * job->n_tp + op->tp_rank;
}

static whatif_label worker_name(const tandem_job *job, int64_t worker)
{
    whatif_label label;
    const int dp_rank = (int)(worker / job->n_tp / job->n_stage),
              stage = (int)(worker / job->n_tp % job->n_stage);
    if (job->n_tp > 1)
        (void)snprintf(label.text, sizeof label.text, "dp %d stage %d tp %d", dp_rank, stage,
                       (int)(worker % job->n_tp));
    else
        (void)snprintf(label.text, sizeof label.text, "dp %d stage %d", dp_rank, stage);
    return label;
}

typedef struct naming {
    const tandem_job *job;
    int first; /* operator of the job that the step begins with */
} naming;

static void name_op(char *text, size_t size, const void *context, int i)
{
    const naming *const n = context;
    const tandem_job_op *const op = &n->job->op[n->first + i];
    (void)snprintf(text, size, "step %lld, %s: %s %d", (long long)n->job->step[op->step],
                   worker_name(n->job, worker_of(n->job, op)).text, tandem_job_kind_name(op->kind),
                   op->sequence);
}

/* --- Workers and their lists ---------------------------------------------------------------------------- */

/* Each worker's operators stand together. One without any is an error. */
static tandem_status find_workers(layout *l)
{
    const tandem_job *const job = l->job;
    int at = 0;
    for (int w = 0; w < l->n_worker; w++) {
        if (at == l->n || worker_of(job, &l->op[at]) != w)
            return tandem_error_set(l->error, TANDEM_MALFORMED,
                                    "step %lld: %s has no operators; every worker of the %d x %d x %d "
                                    "(data-parallel, stages, "
                                    "tensor-parallel) must be there in every step",
                                    (long long)job->step[l->op->step], worker_name(job, w).text, job->n_dp,
                                    job->n_stage, job->n_tp);
        if (l->worker_first) l->worker_first[w] = at;
        while (at < l->n && worker_of(job, &l->op[at]) == w) at++;
    }
    if (l->worker_first) l->worker_first[l->n_worker] = at;
    return TANDEM_OK;
}

static void sort_by_kind(layout *l, int worker)
{
    int *const first = l->list_first + (size_t)worker * (TANDEM_N_JOB_KIND + 1);
    const int begin = l->worker_first[worker], end = l->worker_first[worker + 1];
    int place[TANDEM_N_JOB_KIND] = {0};
    for (int i = begin; i < end; i++) place[l->op[i].kind]++;
    first[0] = begin;
    for (int kind = 0; kind < TANDEM_N_JOB_KIND; kind++) {
        first[kind + 1] = first[kind] + place[kind];
        place[kind] = first[kind];
    }
    for (int i = begin; i < end; i++) l->list[place[l->op[i].kind]++] = i;
}

static void add_edge(layout *l, int before, int after)
{
    assert(l->n_edge < MOST_EDGES * l->n);
    l->edge[l->n_edge++] = (tandem_engine_edge){before, after};
}

/* --- Messages between stages ---------------------------------------------------------------------------- */

/* Whether a compute operator hands its result on, or gets its input, over the pipeline: the first and the
 * last chunk of the model have nobody on one side. */
static int has_partner(const layout *l, int op, int direction, int is_send)
{
    const int place = l->op[op].chunk * l->job->n_stage + l->op[op].stage;
    const int is_first = place == 0, is_last = place == l->job->n_chunk * l->job->n_stage - 1;
    return !((direction == FORWARD) == is_send ? is_last : is_first);
}

/* Puts the messages of one type beside their compute operators. Where a trace has one for every compute
 * operator, those that have no partner are empty; otherwise only those with a partner are there. Leaves in
 * `group` the number among those with a partner, −1 = none. */
static tandem_status place_messages(layout *l, int worker, int direction, int is_send)
{
    const int kind = (is_send ? send_kind : recv_kind)[direction];
    const op_list message = list_of(l, worker, kind), compute = list_of(l, worker, compute_kind[direction]);
    int n_partner = 0, m = 0;
    for (int i = 0; i < compute.n; i++) n_partner += has_partner(l, compute.op[i], direction, is_send);
    if (message.n != compute.n && message.n != n_partner)
        return tandem_error_set(l->error, TANDEM_MALFORMED, "step %lld, %s: %d %s for %d %s; expected %d",
                                (long long)l->job->step[l->op->step], worker_name(l->job, worker).text,
                                message.n, tandem_job_kind_name(kind), compute.n,
                                tandem_job_kind_name(compute_kind[direction]), n_partner);
    (is_send ? l->n_sent : l->n_received)[direction][worker] = n_partner;
    n_partner = 0;
    for (int i = 0; i < compute.n && m < message.n; i++) {
        const int partner = has_partner(l, compute.op[i], direction, is_send);
        if (!partner && message.n != compute.n) continue;
        const int op = message.op[m++];
        l->group[op] = partner ? n_partner++ : -1;
        if (is_send) {
            add_edge(l, compute.op[i], op);
        } else {
            add_edge(l, op, compute.op[i]);
            if (i > 0) add_edge(l, compute.op[i - 1], op);
        }
    }
    return TANDEM_OK;
}

/* The worker that this one's messages of a direction go to (step 1) or come from (step −1). */
static int neighbour(const tandem_job *job, int worker, int direction, int step)
{
    const int stage = worker / job->n_tp % job->n_stage;
    const int to = (stage + (direction == FORWARD ? step : -step) + job->n_stage) % job->n_stage;
    return worker + (to - stage) * job->n_tp;
}

static int new_groups(layout *l, int n, int size)
{
    const int first = l->n_group;
    for (int k = 0; k < n; k++) l->group_size[l->n_group++] = size;
    return first;
}

/* From a number among the messages of a worker to a group of two. */
static void pair_messages(layout *l)
{
    for (int d = 0; d < N_DIRECTION; d++)
        for (int w = 0; w < l->n_worker; w++) {
            const int sent = l->n_sent[d][w], received = l->n_received[d][neighbour(l->job, w, d, 1)];
            l->pair[d][w] = new_groups(l, sent > received ? sent : received, 2);
        }
    for (int w = 0; w < l->n_worker; w++)
        for (int d = 0; d < N_DIRECTION; d++) {
            const op_list send = list_of(l, w, send_kind[d]), recv = list_of(l, w, recv_kind[d]);
            for (int i = 0; i < send.n; i++)
                if (l->group[send.op[i]] >= 0) l->group[send.op[i]] += l->pair[d][w];
            for (int i = 0; i < recv.n; i++)
                if (l->group[recv.op[i]] >= 0)
                    l->group[recv.op[i]] += l->pair[d][neighbour(l->job, w, d, -1)];
        }
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

/* Which of a kind of collectives a worker takes part in. */
static int unit_of(const tandem_job *job, int collective, int worker)
{
    const int tp = worker % job->n_tp, stage = worker / job->n_tp % job->n_stage,
              dp = worker / job->n_tp / job->n_stage;
    switch (collective) {
    case GATHER:
    case SCATTER: return stage * job->n_tp + tp;
    case EMBEDDING: return dp * job->n_tp + tp;
    default: return 0;
    }
}

static int members_of(const layout *l, int collective)
{
    switch (collective) {
    case GATHER:
    case SCATTER: return l->job->n_dp;
    case EMBEDDING: return l->job->n_stage > 1 ? 2 : 1;
    default: return l->n_worker;
    }
}

static void group_collectives(layout *l)
{
    for (int c = 0; c < N_COLLECTIVE; c++) {
        int *const unit = l->collective[c];
        for (int w = 0; w < l->n_worker; w++) {
            const int n = list_of(l, w, collective_kind[c]).n, u = unit_of(l->job, c, w);
            if (n > unit[u]) unit[u] = n;
        }
        for (int u = 0; u < l->n_worker; u++) unit[u] = new_groups(l, unit[u], members_of(l, c));
        for (int w = 0; w < l->n_worker; w++) {
            const op_list list = list_of(l, w, collective_kind[c]);
            for (int i = 0; i < list.n; i++) l->group[list.op[i]] = unit[unit_of(l->job, c, w)] + i;
        }
    }
}

/* --- Within a worker ------------------------------------------------------------------------------------ */

/* Parameters are gathered before the first forward operator of their chunk. */
static void wait_for_parameters(layout *l, int worker)
{
    const op_list gather = list_of(l, worker, TANDEM_JOB_PARAMS_GATHER),
                  forward = list_of(l, worker, TANDEM_JOB_FORWARD);
    for (int i = 0; i < gather.n; i++) {
        int first = 0;
        while (first < forward.n && l->op[forward.op[first]].chunk != l->op[gather.op[i]].chunk) first++;
        if (first < forward.n) add_edge(l, gather.op[i], forward.op[first]);
    }
}

/* The worker's compute operators in their order: the last one, and the one before the last before the first
 * backward. */
static void find_turn(const layout *l, int worker, int *last, int *turn)
{
    int before = -1, before_that = -1, backward = 0;
    *last = *turn = -1;
    for (int i = l->worker_first[worker]; i < l->worker_first[worker + 1]; i++) {
        if (stream_of(l->op[i].kind) != 0) continue;
        if (l->op[i].kind == TANDEM_JOB_BACKWARD && !backward) {
            backward = 1;
            *turn = before_that;
        }
        before_that = before;
        before = *last = i;
    }
}

static void chain_worker(layout *l, int worker)
{
    int last, turn;
    find_turn(l, worker, &last, &turn);
    const op_list send = list_of(l, worker, TANDEM_JOB_BACKWARD_SEND),
                  recv = list_of(l, worker, TANDEM_JOB_BACKWARD_RECV);
    if (turn >= 0 && send.n > 0) add_edge(l, turn, send.op[0]);
    if (turn >= 0 && recv.n > 0) add_edge(l, turn, recv.op[0]);
    wait_for_parameters(l, worker);
    for (size_t k = 0; k < sizeof tail_kind / sizeof *tail_kind; k++) {
        const op_list list = list_of(l, worker, tail_kind[k]);
        for (int i = 0; i < list.n; i++) {
            if (last >= 0) add_edge(l, last, list.op[i]);
            last = list.op[i];
        }
    }
}

/* --- A step --------------------------------------------------------------------------------------------- */

static int allocate(layout *l)
{
    tandem_arena *const arena = &l->arena;
    const size_t n = (size_t)l->n, n_worker = (size_t)l->n_worker;
    int good = (l->worker_first = tandem_arena_array(arena, n_worker + 1, sizeof(int))) != NULL &&
               (l->stream = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->group = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->list = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->list_first = tandem_arena_array(arena, n_worker * (TANDEM_N_JOB_KIND + 1), sizeof(int))) !=
                   NULL &&
               (l->group_size = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->edge = tandem_arena_array(arena, n, MOST_EDGES * sizeof *l->edge)) != NULL;
    for (int d = 0; good && d < N_DIRECTION; d++)
        good = (l->n_sent[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL &&
               (l->n_received[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL &&
               (l->pair[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL;
    for (int c = 0; good && c < N_COLLECTIVE; c++)
        good = (l->collective[c] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL;
    return good;
}

static tandem_status lay_out(layout *l)
{
    tandem_status status = find_workers(l);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < l->n; i++) l->group[i] = -1;
    for (int w = 0; w < l->n_worker && status == TANDEM_OK; w++) {
        for (int i = l->worker_first[w]; i < l->worker_first[w + 1]; i++) {
            const int stream = stream_of(l->op[i].kind);
            l->stream[i] = stream < 0 ? -1 : w * N_STREAM + stream;
        }
        sort_by_kind(l, w);
        for (int d = 0; d < N_DIRECTION && status == TANDEM_OK; d++) {
            status = place_messages(l, w, d, 1);
            if (status == TANDEM_OK) status = place_messages(l, w, d, 0);
        }
        if (status == TANDEM_OK) chain_worker(l, w);
    }
    if (status != TANDEM_OK) return status;
    pair_messages(l);
    group_collectives(l);
    return TANDEM_OK;
}

/* What an operator takes once the last of its group is there. Clocks of workers differ: what would be less
 * than nothing is 0. */
static tandem_status find_transfers(layout *l, int64_t *actual_ns)
{
    int64_t *const latest_ns = tandem_arena_array(&l->arena, (size_t)l->n_group, sizeof *latest_ns);
    if (!latest_ns)
        return tandem_error_set(l->error, TANDEM_NO_MEMORY, "no memory for the %d groups of a step",
                                l->n_group);
    for (int g = 0; g < l->n_group; g++) latest_ns[g] = INT64_MIN;
    for (int i = 0; i < l->n; i++)
        if (l->group[i] >= 0 && l->op[i].start_ns > latest_ns[l->group[i]])
            latest_ns[l->group[i]] = l->op[i].start_ns;
    for (int i = 0; i < l->n; i++) {
        const int64_t end_ns = l->op[i].start_ns + l->op[i].duration_ns;
        actual_ns[i] = l->group[i] < 0 ? l->op[i].duration_ns : end_ns - latest_ns[l->group[i]];
        if (actual_ns[i] < 0) actual_ns[i] = 0;
    }
    return TANDEM_OK;
}

static int64_t recorded_of(const layout *l)
{
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    for (int i = 0; i < l->n; i++) {
        const int64_t end_ns = l->op[i].start_ns + l->op[i].duration_ns;
        if (l->op[i].start_ns < first_ns) first_ns = l->op[i].start_ns;
        if (end_ns > last_ns) last_ns = end_ns;
    }
    return last_ns - first_ns;
}

static tandem_status open_step(whatif_model *model, const tandem_job *job, int s, tandem_error *error)
{
    const int first = model->first[s];
    const int64_t n_worker = (int64_t)job->n_dp * job->n_stage * job->n_tp;
    layout l = {.job = job, .op = job->op + first, .n = model->first[s + 1] - first, .error = error};
    tandem_status status = TANDEM_OK;
    /* more workers than operators: one is missing, and is found */
    l.n_worker = n_worker > l.n ? l.n + 1 : (int)n_worker;
    naming *const name = tandem_arena_alloc(&model->arena, sizeof *name);
    if (l.n_worker > l.n) {
        status = find_workers(&l);
        goto out;
    }
    if (!name || !allocate(&l)) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for a step of %d operators", l.n);
        goto out;
    }
    *name = (naming){job, first};
    status = lay_out(&l);
    if (status != TANDEM_OK) goto out;
    const tandem_engine_graph graph = {.n_op = l.n,
                                       .n_stream = l.n_worker * N_STREAM,
                                       .n_group = l.n_group,
                                       .n_edge = l.n_edge,
                                       .stream = l.stream,
                                       .group = l.group,
                                       .group_size = l.group_size,
                                       .edge = l.edge,
                                       .name = name_op,
                                       .context = name};
    status = tandem_engine_open(&model->engine[s], &graph, error);
    if (status == TANDEM_OK) status = find_transfers(&l, model->actual_ns + first);
    model->recorded_ns[s] = recorded_of(&l);
out:
    tandem_arena_free(&l.arena);
    return status;
}

/* --- Ideal durations ------------------------------------------------------------------------------------ */

static int by_size(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t median_of(int64_t *value, int n)
{
    qsort(value, (size_t)n, sizeof *value, by_size);
    const int64_t low = value[(n - 1) / 2], high = value[n / 2];
    return low + (high - low) / 2;
}

static tandem_status find_ideals(whatif_model *model, const tandem_job *job, tandem_error *error)
{
    int64_t *const value = malloc((size_t)job->n_op * sizeof *value);
    if (!value)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to analyse %d operators", job->n_op);
    for (int kind = 0; kind < TANDEM_N_JOB_KIND; kind++) {
        int n = 0;
        for (int i = 0; i < job->n_op; i++)
            if (job->op[i].kind == kind) value[n++] = model->actual_ns[i];
        if (n == 0) continue;
        const int64_t ideal_ns = tandem_job_kind_is_comm(kind) ? median_of(value, n) : whatif_mean(value, n);
        for (int i = 0; i < job->n_op; i++)
            if (job->op[i].kind == kind) model->ideal_ns[i] = ideal_ns;
    }
    free(value);
    return TANDEM_OK;
}

/* --- Labels --------------------------------------------------------------------------------------------- */

/* Operator types that the job has, as rows of a report. */
static tandem_status label_operators(whatif_model *model, const tandem_job *job, tandem_error *error)
{
    int row[TANDEM_N_JOB_KIND], n = 0, is_there[TANDEM_N_JOB_KIND] = {0};
    const tandem_status status = whatif_model_dimension(model, WHATIF_OPERATOR, TANDEM_N_JOB_KIND, error);
    if (status != TANDEM_OK) return status;
    whatif_dimension *const by = &model->by[WHATIF_OPERATOR];
    for (int i = 0; i < job->n_op; i++) is_there[job->op[i].kind] = 1;
    for (int kind = 0; kind < TANDEM_N_JOB_KIND; kind++) {
        if (!is_there[kind]) continue;
        for (row[kind] = 0;
             row[kind] < n && strcmp(by->name[row[kind]].text, tandem_job_kind_shown(kind)) != 0;)
            row[kind]++;
        if (row[kind] == n)
            (void)snprintf(by->name[n++].text, sizeof by->name->text, "%s", tandem_job_kind_shown(kind));
    }
    for (int i = 0; i < job->n_op; i++) by->of[i] = row[job->op[i].kind];
    by->n = n;
    return TANDEM_OK;
}

/* A job of one stage has no stages to compare, and so on. */
static tandem_status label_places(whatif_model *model, const tandem_job *job, tandem_error *error)
{
    const int n[N_WHATIF_DIMENSION] = {
        [WHATIF_STAGE] = job->n_stage, [WHATIF_DP_RANK] = job->n_dp, [WHATIF_WORKER] = model->n_worker};
    static const char *const word[] = {[WHATIF_STAGE] = "stage", [WHATIF_DP_RANK] = "dp"};
    for (int d = WHATIF_STAGE; d < N_WHATIF_DIMENSION; d++) {
        if (n[d] < 2) continue;
        const tandem_status status = whatif_model_dimension(model, d, n[d], error);
        if (status != TANDEM_OK) return status;
        for (int k = 0; k < n[d]; k++) {
            if (d == WHATIF_WORKER)
                model->by[d].name[k] = worker_name(job, k);
            else
                (void)snprintf(model->by[d].name[k].text, sizeof model->by[d].name[k].text, "%s %d", word[d],
                               k);
        }
        for (int i = 0; i < job->n_op; i++)
            model->by[d].of[i] = d == WHATIF_STAGE     ? job->op[i].stage
                                 : d == WHATIF_DP_RANK ? job->op[i].dp_rank
                                                       : (int32_t)worker_of(job, &job->op[i]);
    }
    return TANDEM_OK;
}

static void label_timeline(whatif_model *model, const tandem_job *job)
{
    model->lane_name = lane_name;
    model->n_lane = N_LANE;
    for (int w = 0; w < model->n_worker; w++) model->worker_name[w] = worker_name(job, w);
    for (int i = 0; i < job->n_op; i++) {
        const int stream = stream_of(job->op[i].kind);
        model->op_name[i] = tandem_job_kind_name(job->op[i].kind);
        model->worker[i] = (int32_t)worker_of(job, &job->op[i]);
        model->lane[i] = stream < 0 ? LANE_TAIL : stream;
    }
}

tandem_status whatif_model_of_job(whatif_model *model, const tandem_job *job, tandem_error *error)
{
    const int64_t n_worker = (int64_t)job->n_dp * job->n_stage * job->n_tp;
    /* Workers without operators are found below; until then there is no room for them all. */
    tandem_status status =
        whatif_model_room(model, job->n_op, job->n_step, n_worker > job->n_op ? 0 : (int)n_worker, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < job->n_op; i++) {
        model->first[job->op[i].step + 1] = i + 1;
        model->number[job->op[i].step] = job->step[job->op[i].step];
    }
    for (int s = 0; s < job->n_step && status == TANDEM_OK; s++) status = open_step(model, job, s, error);
    if (status == TANDEM_OK) status = find_ideals(model, job, error);
    if (status == TANDEM_OK) status = label_operators(model, job, error);
    if (status == TANDEM_OK) status = label_places(model, job, error);
    if (status == TANDEM_OK) label_timeline(model, job);
    return status;
}
