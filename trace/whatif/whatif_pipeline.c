/* whatif_pipeline.c: the dependencies of a pipeline-parallel step (rules in whatif.h) and the ideal
 * duration of each operator. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "trace/reader/pipeline_trace.h"
#include "trace/whatif/whatif_model.h"

enum { FORWARD, BACKWARD, N_DIRECTION };
enum { N_STREAM = 6, MAX_EDGES = 3 /* per operator */ };
/* Collectives: over data-parallel ranks (two), over first and last stage, over all workers. */
enum { GATHER, SCATTER, EMBEDDING, CLIP, N_COLLECTIVE };

static const tandem_pipeline_op_kind compute_kind[N_DIRECTION] = {TANDEM_PIPELINE_FORWARD,
                                                                  TANDEM_PIPELINE_BACKWARD};
static const tandem_pipeline_op_kind send_kind[N_DIRECTION] = {TANDEM_PIPELINE_FORWARD_SEND,
                                                               TANDEM_PIPELINE_BACKWARD_SEND};
static const tandem_pipeline_op_kind recv_kind[N_DIRECTION] = {TANDEM_PIPELINE_FORWARD_RECV,
                                                               TANDEM_PIPELINE_BACKWARD_RECV};
static const tandem_pipeline_op_kind collective_kind[N_COLLECTIVE] = {
    TANDEM_PIPELINE_PARAMS_GATHER, TANDEM_PIPELINE_GRADS_SCATTER, TANDEM_PIPELINE_EMBEDDING,
    TANDEM_PIPELINE_CLIP};
static const tandem_pipeline_op_kind end_of_step_kind[] = {
    TANDEM_PIPELINE_GC,   TANDEM_PIPELINE_LAYERNORM, TANDEM_PIPELINE_EMBEDDING, TANDEM_PIPELINE_GRADS_SCATTER,
    TANDEM_PIPELINE_CLIP, TANDEM_PIPELINE_OPTIMIZER};
static const char *const track_name[] = {"compute",       "forward send",     "forward receive",
                                         "backward send", "backward receive", "parameters and gradients",
                                         "end of step"};
enum { TRACK_END_OF_STEP = N_STREAM, N_TRACK = N_STREAM + 1 };

/* The stream on which an operator type runs; −1 = none. */
static int stream_of_kind(int kind)
{
    switch (kind) {
    case TANDEM_PIPELINE_FORWARD:
    case TANDEM_PIPELINE_BACKWARD: return 0;
    case TANDEM_PIPELINE_FORWARD_SEND: return 1;
    case TANDEM_PIPELINE_FORWARD_RECV: return 2;
    case TANDEM_PIPELINE_BACKWARD_SEND: return 3;
    case TANDEM_PIPELINE_BACKWARD_RECV: return 4;
    case TANDEM_PIPELINE_PARAMS_GATHER:
    case TANDEM_PIPELINE_GRADS_SCATTER: return 5;
    default: return -1;
    }
}

/* The graph of one step while it is built. Operators count from the first one of the step. */
typedef struct pipeline_dag {
    const tandem_pipeline_trace *pipeline;
    const tandem_pipeline_op *op; /* [n] */
    int n, n_worker;
    tandem_error *error;
    int *worker_first;   /* [n_worker + 1] */
    int *stream, *group; /* [n] */
    int *list;           /* [n] operators of each worker by type, then by start */
    /* [n_worker][TANDEM_N_PIPELINE_OP_KIND + 1] offset of each type */
    int *list_first;
    int *n_sent[N_DIRECTION];      /* [n_worker] messages with a partner */
    int *n_received[N_DIRECTION];  /* [n_worker] */
    int *pair[N_DIRECTION];        /* [n_worker] group of the sender's first message */
    int *collective[N_COLLECTIVE]; /* [n_worker] by unit: how many, later the first group */
    int *group_size;               /* [n_group] */
    int n_group;
    tandem_dag_edge *edge; /* [MAX_EDGES · n] */
    int n_edge;
    tandem_arena arena;
} pipeline_dag;

/* The operators of one worker and type. */
typedef struct op_list {
    const int *op;
    int n;
} op_list;

static op_list ops_of_kind(const pipeline_dag *l, int worker, int kind)
{
    const int *const first = l->list_first + (size_t)worker * (TANDEM_N_PIPELINE_OP_KIND + 1) + kind;
    return (op_list){l->list + first[0], first[1] - first[0]};
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static int64_t worker_index(const tandem_pipeline_trace *pipeline, const tandem_pipeline_op *op)
{
    return ((int64_t)op->dp_rank * pipeline->n_stage + op->stage) * pipeline->n_tp + op->tp_rank;
}

static whatif_label worker_name(const tandem_pipeline_trace *pipeline, int64_t worker)
{
    whatif_label label;
    const int dp_rank = (int)(worker / pipeline->n_tp / pipeline->n_stage),
              stage = (int)(worker / pipeline->n_tp % pipeline->n_stage);
    if (pipeline->n_tp > 1)
        (void)snprintf(label.text, sizeof label.text, "dp %d stage %d tp %d", dp_rank, stage,
                       (int)(worker % pipeline->n_tp));
    else
        (void)snprintf(label.text, sizeof label.text, "dp %d stage %d", dp_rank, stage);
    return label;
}

typedef struct op_naming {
    const tandem_pipeline_trace *pipeline;
    int first; /* first operator of the step */
} op_naming;

static void pipeline_op_name(char *text, size_t size, const void *context, int i)
{
    const op_naming *const n = context;
    const tandem_pipeline_op *const op = &n->pipeline->op[n->first + i];
    (void)snprintf(text, size, "step %lld, %s: %s %d", (long long)n->pipeline->step[op->step],
                   worker_name(n->pipeline, worker_index(n->pipeline, op)).text,
                   tandem_pipeline_op_kind_name(op->kind), op->sequence);
}

/* --- Workers and their lists ---------------------------------------------------------------------------- */

/* Operators of a worker are adjacent. A worker without operators is an error. */
static tandem_status find_step_workers(pipeline_dag *l)
{
    const tandem_pipeline_trace *const pipeline = l->pipeline;
    int at = 0;
    for (int w = 0; w < l->n_worker; w++) {
        if (at == l->n || worker_index(pipeline, &l->op[at]) != w)
            return tandem_error_set(l->error, TANDEM_MALFORMED,
                                    "step %lld: %s has no operators; every worker of the %d x %d x %d "
                                    "(data-parallel, stages, tensor-parallel) must occur in every step",
                                    (long long)pipeline->step[l->op->step], worker_name(pipeline, w).text,
                                    pipeline->n_dp, pipeline->n_stage, pipeline->n_tp);
        if (l->worker_first) l->worker_first[w] = at;
        while (at < l->n && worker_index(pipeline, &l->op[at]) == w) at++;
    }
    if (l->worker_first) l->worker_first[l->n_worker] = at;
    return TANDEM_OK;
}

static void sort_by_kind(pipeline_dag *l, int worker)
{
    int *const first = l->list_first + (size_t)worker * (TANDEM_N_PIPELINE_OP_KIND + 1);
    const int begin = l->worker_first[worker], end = l->worker_first[worker + 1];
    int position[TANDEM_N_PIPELINE_OP_KIND] = {0};
    for (int i = begin; i < end; i++) position[l->op[i].kind]++;
    first[0] = begin;
    for (int kind = 0; kind < TANDEM_N_PIPELINE_OP_KIND; kind++) {
        first[kind + 1] = first[kind] + position[kind];
        position[kind] = first[kind];
    }
    for (int i = begin; i < end; i++) l->list[position[l->op[i].kind]++] = i;
}

static void add_pipeline_edge(pipeline_dag *l, int before, int after)
{
    assert(l->n_edge < MAX_EDGES * l->n);
    l->edge[l->n_edge++] = (tandem_dag_edge){before, after};
}

/* --- Messages between stages ---------------------------------------------------------------------------- */

/* Whether a compute operator sends its result, or receives its input, over the pipeline. The first and the
 * last chunk have no neighbour on one side. */
static int has_pipeline_partner(const pipeline_dag *l, int op, int direction, int is_send)
{
    const int position = l->op[op].chunk * l->pipeline->n_stage + l->op[op].stage;
    const int is_first = position == 0, is_last = position == l->pipeline->n_chunk * l->pipeline->n_stage - 1;
    return !((direction == FORWARD) == is_send ? is_last : is_first);
}

/* Connects the messages of one type with their compute operators. A trace has a message for every compute
 * operator, or only those with a partner. `group` receives the index among messages with a partner; −1 =
 * none. */
static tandem_status attach_messages(pipeline_dag *l, int worker, int direction, int is_send)
{
    const int kind = (is_send ? send_kind : recv_kind)[direction];
    const op_list message = ops_of_kind(l, worker, kind),
                  compute = ops_of_kind(l, worker, compute_kind[direction]);
    int n_partner = 0, m = 0;
    for (int i = 0; i < compute.n; i++)
        n_partner += has_pipeline_partner(l, compute.op[i], direction, is_send);
    if (message.n != compute.n && message.n != n_partner)
        return tandem_error_set(l->error, TANDEM_MALFORMED, "step %lld, %s: %d %s for %d %s; expected %d",
                                (long long)l->pipeline->step[l->op->step],
                                worker_name(l->pipeline, worker).text, message.n,
                                tandem_pipeline_op_kind_name(kind), compute.n,
                                tandem_pipeline_op_kind_name(compute_kind[direction]), n_partner);
    (is_send ? l->n_sent : l->n_received)[direction][worker] = n_partner;
    n_partner = 0;
    for (int i = 0; i < compute.n && m < message.n; i++) {
        const int partner = has_pipeline_partner(l, compute.op[i], direction, is_send);
        if (!partner && message.n != compute.n) continue;
        const int op = message.op[m++];
        l->group[op] = partner ? n_partner++ : -1;
        if (is_send) {
            add_pipeline_edge(l, compute.op[i], op);
        } else {
            add_pipeline_edge(l, op, compute.op[i]);
            if (i > 0) add_pipeline_edge(l, compute.op[i - 1], op);
        }
    }
    return TANDEM_OK;
}

/* The worker to which this one's messages go (step 1) or from which they come (step −1). */
static int adjacent_worker(const tandem_pipeline_trace *pipeline, int worker, int direction, int step)
{
    const int stage = worker / pipeline->n_tp % pipeline->n_stage;
    const int to = (stage + (direction == FORWARD ? step : -step) + pipeline->n_stage) % pipeline->n_stage;
    return worker + (to - stage) * pipeline->n_tp;
}

static int add_groups(pipeline_dag *l, int n, int size)
{
    const int first = l->n_group;
    for (int k = 0; k < n; k++) l->group_size[l->n_group++] = size;
    return first;
}

/* Turns indices of messages into groups of two. */
static void pair_messages(pipeline_dag *l)
{
    for (int d = 0; d < N_DIRECTION; d++)
        for (int w = 0; w < l->n_worker; w++) {
            const int sent = l->n_sent[d][w],
                      received = l->n_received[d][adjacent_worker(l->pipeline, w, d, 1)];
            l->pair[d][w] = add_groups(l, sent > received ? sent : received, 2);
        }
    for (int w = 0; w < l->n_worker; w++)
        for (int d = 0; d < N_DIRECTION; d++) {
            const op_list send = ops_of_kind(l, w, send_kind[d]), recv = ops_of_kind(l, w, recv_kind[d]);
            for (int i = 0; i < send.n; i++)
                if (l->group[send.op[i]] >= 0) l->group[send.op[i]] += l->pair[d][w];
            for (int i = 0; i < recv.n; i++)
                if (l->group[recv.op[i]] >= 0)
                    l->group[recv.op[i]] += l->pair[d][adjacent_worker(l->pipeline, w, d, -1)];
        }
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

/* The unit of a collective kind that a worker belongs to. */
static int collective_unit(const tandem_pipeline_trace *pipeline, int collective, int worker)
{
    const int tp = worker % pipeline->n_tp, stage = worker / pipeline->n_tp % pipeline->n_stage,
              dp = worker / pipeline->n_tp / pipeline->n_stage;
    switch (collective) {
    case GATHER:
    case SCATTER: return stage * pipeline->n_tp + tp;
    case EMBEDDING: return dp * pipeline->n_tp + tp;
    default: return 0;
    }
}

static int collective_size(const pipeline_dag *l, int collective)
{
    switch (collective) {
    case GATHER:
    case SCATTER: return l->pipeline->n_dp;
    case EMBEDDING: return l->pipeline->n_stage > 1 ? 2 : 1;
    default: return l->n_worker;
    }
}

static void group_collectives(pipeline_dag *l)
{
    for (int c = 0; c < N_COLLECTIVE; c++) {
        int *const unit = l->collective[c];
        for (int w = 0; w < l->n_worker; w++) {
            const int n = ops_of_kind(l, w, collective_kind[c]).n, u = collective_unit(l->pipeline, c, w);
            if (n > unit[u]) unit[u] = n;
        }
        for (int u = 0; u < l->n_worker; u++) unit[u] = add_groups(l, unit[u], collective_size(l, c));
        for (int w = 0; w < l->n_worker; w++) {
            const op_list list = ops_of_kind(l, w, collective_kind[c]);
            for (int i = 0; i < list.n; i++)
                l->group[list.op[i]] = unit[collective_unit(l->pipeline, c, w)] + i;
        }
    }
}

/* --- Within a worker ------------------------------------------------------------------------------------ */

/* A gather of parameters precedes the first forward operator of its chunk. */
static void add_parameter_edges(pipeline_dag *l, int worker)
{
    const op_list gather = ops_of_kind(l, worker, TANDEM_PIPELINE_PARAMS_GATHER),
                  forward = ops_of_kind(l, worker, TANDEM_PIPELINE_FORWARD);
    for (int i = 0; i < gather.n; i++) {
        int first = 0;
        while (first < forward.n && l->op[forward.op[first]].chunk != l->op[gather.op[i]].chunk) first++;
        if (first < forward.n) add_pipeline_edge(l, gather.op[i], forward.op[first]);
    }
}

/* Finds the worker's last compute operator, and the last but one before its first backward operator. */
static void find_warm_up_end(const pipeline_dag *l, int worker, int *last, int *warm_up_end)
{
    int before = -1, before_previous = -1, backward = 0;
    *last = *warm_up_end = -1;
    for (int i = l->worker_first[worker]; i < l->worker_first[worker + 1]; i++) {
        if (stream_of_kind(l->op[i].kind) != 0) continue;
        if (l->op[i].kind == TANDEM_PIPELINE_BACKWARD && !backward) {
            backward = 1;
            *warm_up_end = before_previous;
        }
        before_previous = before;
        before = *last = i;
    }
}

static void add_worker_edges(pipeline_dag *l, int worker)
{
    int last, warm_up_end;
    find_warm_up_end(l, worker, &last, &warm_up_end);
    const op_list send = ops_of_kind(l, worker, TANDEM_PIPELINE_BACKWARD_SEND),
                  recv = ops_of_kind(l, worker, TANDEM_PIPELINE_BACKWARD_RECV);
    if (warm_up_end >= 0 && send.n > 0) add_pipeline_edge(l, warm_up_end, send.op[0]);
    if (warm_up_end >= 0 && recv.n > 0) add_pipeline_edge(l, warm_up_end, recv.op[0]);
    add_parameter_edges(l, worker);
    for (size_t k = 0; k < sizeof end_of_step_kind / sizeof *end_of_step_kind; k++) {
        const op_list list = ops_of_kind(l, worker, end_of_step_kind[k]);
        for (int i = 0; i < list.n; i++) {
            if (last >= 0) add_pipeline_edge(l, last, list.op[i]);
            last = list.op[i];
        }
    }
}

/* --- A step --------------------------------------------------------------------------------------------- */

static int allocate_pipeline_dag(pipeline_dag *l)
{
    tandem_arena *const arena = &l->arena;
    const size_t n = (size_t)l->n, n_worker = (size_t)l->n_worker;
    int good = (l->worker_first = tandem_arena_array(arena, n_worker + 1, sizeof(int))) != NULL &&
               (l->stream = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->group = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->list = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->list_first = tandem_arena_array(arena, n_worker * (TANDEM_N_PIPELINE_OP_KIND + 1),
                                                   sizeof(int))) != NULL &&
               (l->group_size = tandem_arena_array(arena, n, sizeof(int))) != NULL &&
               (l->edge = tandem_arena_array(arena, n, MAX_EDGES * sizeof *l->edge)) != NULL;
    for (int d = 0; good && d < N_DIRECTION; d++)
        good = (l->n_sent[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL &&
               (l->n_received[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL &&
               (l->pair[d] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL;
    for (int c = 0; good && c < N_COLLECTIVE; c++)
        good = (l->collective[c] = tandem_arena_array(arena, n_worker, sizeof(int))) != NULL;
    return good;
}

static tandem_status build_pipeline_dag(pipeline_dag *l)
{
    tandem_status status = find_step_workers(l);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < l->n; i++) l->group[i] = -1;
    for (int w = 0; w < l->n_worker && status == TANDEM_OK; w++) {
        for (int i = l->worker_first[w]; i < l->worker_first[w + 1]; i++) {
            const int stream = stream_of_kind(l->op[i].kind);
            l->stream[i] = stream < 0 ? -1 : w * N_STREAM + stream;
        }
        sort_by_kind(l, w);
        for (int d = 0; d < N_DIRECTION && status == TANDEM_OK; d++) {
            status = attach_messages(l, w, d, 1);
            if (status == TANDEM_OK) status = attach_messages(l, w, d, 0);
        }
        if (status == TANDEM_OK) add_worker_edges(l, w);
    }
    if (status != TANDEM_OK) return status;
    pair_messages(l);
    group_collectives(l);
    return TANDEM_OK;
}

/* The duration after the last member of the group is ready. Clocks of workers differ: negative durations
 * become 0. */
static tandem_status find_group_transfers(pipeline_dag *l, int64_t *actual_ns)
{
    int64_t *const latest_ns = tandem_arena_array(&l->arena, (size_t)l->n_group, sizeof *latest_ns);
    if (!latest_ns) return tandem_no_memory(l->error, "for the %d groups of a step", l->n_group);
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

static int64_t recorded_step_ns(const pipeline_dag *l)
{
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    for (int i = 0; i < l->n; i++) {
        const int64_t end_ns = l->op[i].start_ns + l->op[i].duration_ns;
        if (l->op[i].start_ns < first_ns) first_ns = l->op[i].start_ns;
        if (end_ns > last_ns) last_ns = end_ns;
    }
    return last_ns - first_ns;
}

static tandem_status open_pipeline_step(whatif_model *model, const tandem_pipeline_trace *pipeline, int s,
                                        tandem_error *error)
{
    const int first = model->first[s];
    const int64_t n_worker = (int64_t)pipeline->n_dp * pipeline->n_stage * pipeline->n_tp;
    pipeline_dag l = {
        .pipeline = pipeline, .op = pipeline->op + first, .n = model->first[s + 1] - first, .error = error};
    tandem_status status = TANDEM_OK;
    /* with more workers than operators, one has none */
    l.n_worker = n_worker > l.n ? l.n + 1 : (int)n_worker;
    op_naming *const name = tandem_arena_alloc(&model->arena, sizeof *name);
    if (l.n_worker > l.n) {
        status = find_step_workers(&l);
        goto out;
    }
    if (!name || !allocate_pipeline_dag(&l)) {
        status = tandem_no_memory(error, "for a step of %d operators", l.n);
        goto out;
    }
    *name = (op_naming){pipeline, first};
    status = build_pipeline_dag(&l);
    if (status != TANDEM_OK) goto out;
    const tandem_dag graph = {.n_op = l.n,
                              .n_stream = l.n_worker * N_STREAM,
                              .n_group = l.n_group,
                              .n_edge = l.n_edge,
                              .stream = l.stream,
                              .group = l.group,
                              .group_size = l.group_size,
                              .edge = l.edge,
                              .name = pipeline_op_name,
                              .context = name};
    status = tandem_dag_simulator_open(&model->simulator[s], &graph, error);
    if (status == TANDEM_OK) status = find_group_transfers(&l, model->actual_ns + first);
    model->recorded_ns[s] = recorded_step_ns(&l);
out:
    tandem_arena_free(&l.arena);
    return status;
}

/* --- Ideal durations ------------------------------------------------------------------------------------ */

static tandem_status find_kind_ideals(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                      tandem_error *error)
{
    int64_t *const value = malloc((size_t)pipeline->n_op * sizeof *value);
    if (!value) return tandem_no_memory(error, "to analyse %d operators", pipeline->n_op);
    for (int kind = 0; kind < TANDEM_N_PIPELINE_OP_KIND; kind++) {
        int n = 0;
        for (int i = 0; i < pipeline->n_op; i++)
            if (pipeline->op[i].kind == kind) value[n++] = model->actual_ns[i];
        if (n == 0) continue;
        if (tandem_pipeline_op_kind_is_comm(kind)) tandem_sort_int64(value, (size_t)n);
        const int64_t ideal_ns = tandem_pipeline_op_kind_is_comm(kind)
                                     ? tandem_sorted_median(value, (size_t)n)
                                     : whatif_mean(value, n);
        for (int i = 0; i < pipeline->n_op; i++)
            if (pipeline->op[i].kind == kind) model->ideal_ns[i] = ideal_ns;
    }
    free(value);
    return TANDEM_OK;
}

/* --- Labels --------------------------------------------------------------------------------------------- */

/* The operator types of the job, as rows of a report. */
static tandem_status label_pipeline_ops(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                        tandem_error *error)
{
    int row[TANDEM_N_PIPELINE_OP_KIND], n = 0, is_there[TANDEM_N_PIPELINE_OP_KIND] = {0};
    const tandem_status status =
        whatif_model_dimension(model, WHATIF_OPERATOR, TANDEM_N_PIPELINE_OP_KIND, error);
    if (status != TANDEM_OK) return status;
    whatif_dimension *const by = &model->by[WHATIF_OPERATOR];
    for (int i = 0; i < pipeline->n_op; i++) is_there[pipeline->op[i].kind] = 1;
    for (int kind = 0; kind < TANDEM_N_PIPELINE_OP_KIND; kind++) {
        if (!is_there[kind]) continue;
        for (row[kind] = 0;
             row[kind] < n && strcmp(by->name[row[kind]].text, tandem_pipeline_op_report_row(kind)) != 0;)
            row[kind]++;
        if (row[kind] == n)
            (void)snprintf(by->name[n++].text, sizeof by->name->text, "%s",
                           tandem_pipeline_op_report_row(kind));
    }
    for (int i = 0; i < pipeline->n_op; i++) by->of[i] = row[pipeline->op[i].kind];
    by->n = n;
    return TANDEM_OK;
}

/* A job with one stage has no stages to compare, and so on. */
static tandem_status label_workers(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                   tandem_error *error)
{
    const int n[N_WHATIF_DIMENSION] = {[WHATIF_STAGE] = pipeline->n_stage,
                                       [WHATIF_DP_RANK] = pipeline->n_dp,
                                       [WHATIF_WORKER] = model->n_worker};
    static const char *const word[] = {[WHATIF_STAGE] = "stage", [WHATIF_DP_RANK] = "dp"};
    for (int d = WHATIF_STAGE; d < N_WHATIF_DIMENSION; d++) {
        if (n[d] < 2) continue;
        const tandem_status status = whatif_model_dimension(model, d, n[d], error);
        if (status != TANDEM_OK) return status;
        for (int k = 0; k < n[d]; k++) {
            if (d == WHATIF_WORKER)
                model->by[d].name[k] = worker_name(pipeline, k);
            else
                (void)snprintf(model->by[d].name[k].text, sizeof model->by[d].name[k].text, "%s %d", word[d],
                               k);
        }
        for (int i = 0; i < pipeline->n_op; i++)
            model->by[d].of[i] = d == WHATIF_STAGE     ? pipeline->op[i].stage
                                 : d == WHATIF_DP_RANK ? pipeline->op[i].dp_rank
                                                       : (int32_t)worker_index(pipeline, &pipeline->op[i]);
    }
    return TANDEM_OK;
}

static void label_pipeline_timeline(whatif_model *model, const tandem_pipeline_trace *pipeline)
{
    model->track_name = track_name;
    model->n_track = N_TRACK;
    for (int w = 0; w < model->n_worker; w++) model->worker_name[w] = worker_name(pipeline, w);
    for (int i = 0; i < pipeline->n_op; i++) {
        const int stream = stream_of_kind(pipeline->op[i].kind);
        model->op_name[i] = tandem_pipeline_op_kind_name(pipeline->op[i].kind);
        model->worker[i] = (int32_t)worker_index(pipeline, &pipeline->op[i]);
        model->track[i] = stream < 0 ? TRACK_END_OF_STEP : stream;
    }
}

tandem_status whatif_model_of_pipeline(whatif_model *model, const tandem_pipeline_trace *pipeline,
                                       tandem_error *error)
{
    const int64_t n_worker = (int64_t)pipeline->n_dp * pipeline->n_stage * pipeline->n_tp;
    /* Workers without operators are detected below; until then no room is reserved for all. */
    tandem_status status = whatif_model_allocate(model, pipeline->n_op, pipeline->n_step,
                                                 n_worker > pipeline->n_op ? 0 : (int)n_worker, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < pipeline->n_op; i++) {
        model->first[pipeline->op[i].step + 1] = i + 1;
        model->number[pipeline->op[i].step] = pipeline->step[pipeline->op[i].step];
    }
    for (int s = 0; s < pipeline->n_step && status == TANDEM_OK; s++)
        status = open_pipeline_step(model, pipeline, s, error);
    if (status == TANDEM_OK) status = find_kind_ideals(model, pipeline, error);
    if (status == TANDEM_OK) status = label_pipeline_ops(model, pipeline, error);
    if (status == TANDEM_OK) status = label_workers(model, pipeline, error);
    if (status == TANDEM_OK) label_pipeline_timeline(model, pipeline);
    return status;
}
