/* zero.c: the step of zero.h as a program that all classes run alike. Its actions start a collective at some
 * tasks and wait for one at others. Every collective is started before it is waited for, and all classes run
 * side by side: the end of a collective is known where it is needed, and one pass over the program is an
 * iteration. */
#include "tandem/advanced/zero.h"

#include <math.h>

#include "replayer/collective.h"
#include "replayer/internal.h"

enum { MAX_ZERO_ITERATIONS = 256, N_PREFETCHED = 1, N_KEPT = 2 };
static const double zero_tolerance_ns = 0.01;

typedef enum action_kind {
    ACTION_START,
    ACTION_WAIT,
    ACTION_WAIT_PREVIOUS /* for the one of the previous iteration */
} action_kind;

typedef struct action {
    int task; /* the action comes before this task, or the next one in the list */
    action_kind kind;
    int collective;
} action;

typedef struct zero_class_state {
    double now_ns, exposed_ns, waiting_ns, busy_ns, backward_end_ns;
    int position;
} zero_class_state;

typedef struct zero_step {
    tandem_arena arena;
    tandem_replayer *replayer;
    const tandem_step *step; /* of class 0: buckets and task ids are the same in all */
    int stage, n_class, n_bucket, n_rank;
    int64_t *shard;      /* [n_class][n_bucket] elements */
    unsigned char *used; /* [n_bucket] whether some task already waited for its gather */
    /* Collective b < n_bucket scatters bucket b; collective k ≥ n_bucket gathers bucket[k]. */
    int n_collective, n_action;
    int *bucket;                    /* [n_collective] */
    double *scatter_ns, *gather_ns; /* [n_bucket] */
    action *action;
    double *ready_ns, *end_ns, *previous_ready_ns, *previous_end_ns; /* [n_collective] */
    double comm_free_ns; /* when the communication stream is free */
    zero_class_state progress[TANDEM_MAX_CLASS];
} zero_step;

/* --- Shards --------------------------------------------------------------------------------------------- */

/* Of the class's first rank: no other one of the class has a larger one. */
static int64_t shard_elements(const tandem_sharding *sharding, int64_t elements, int rank)
{
    return tandem_shard_border(sharding, elements, rank + 1) - tandem_shard_border(sharding, elements, rank);
}

static int64_t shard_of_class(const zero_step *s, int c, int b) { return s->shard[c * s->n_bucket + b]; }

static void find_shards(zero_step *s, const tandem_sharding *sharding)
{
    for (int c = 0, rank = 0; c < s->n_class; rank += s->replayer->cluster.classes[c].n_rank, c++)
        for (int b = 0; b < s->n_bucket; b++)
            s->shard[c * s->n_bucket + b] = shard_elements(sharding, s->step->bucket[b].elements, rank);
}

/* Bytes of bucket b in full minus the rank's shard of it. */
static uint64_t unsharded_bytes(const zero_step *s, int c, int b)
{
    return (uint64_t)(s->step->bucket[b].elements - shard_of_class(s, c, b)) * sizeof(float);
}

static uint64_t all_shard_bytes(const zero_step *s, int c)
{
    uint64_t elements = 0;
    for (int b = 0; b < s->n_bucket; b++) elements += (uint64_t)shard_of_class(s, c, b);
    return elements * sizeof(float);
}

/* Of two consecutive buckets in full. */
static uint64_t max_gradient_bytes(const zero_step *s, int c)
{
    uint64_t max = 0;
    for (int b = 0; b < s->n_bucket; b++) {
        const uint64_t both = unsharded_bytes(s, c, b) + (b > 0 ? unsharded_bytes(s, c, b - 1) : 0);
        if (both > max) max = both;
    }
    return max;
}

/* Of N_KEPT buckets and the N_PREFETCHED next ones, in the order of their gathers: never the same bucket
 * twice. */
static uint64_t max_weight_bytes(const zero_step *s, int c)
{
    uint64_t max = 0;
    for (int k = s->n_bucket; k < s->n_collective; k++) {
        uint64_t all = 0;
        for (int i = k; i < k + N_KEPT + N_PREFETCHED && i < s->n_collective; i++)
            all += unsharded_bytes(s, c, s->bucket[i]);
        if (all > max) max = all;
    }
    return max;
}

static void shard_memory(const zero_step *s, int c, tandem_memory *memory)
{
    const uint64_t own = all_shard_bytes(s, c), n_state = memory->optimizer / memory->weights;
    memory->optimizer = own * n_state;
    if (s->stage >= 2) memory->gradients = own + max_gradient_bytes(s, c);
    if (s->stage >= 3) memory->weights = own + max_weight_bytes(s, c);
    memory->peak =
        memory->weights + memory->gradients + memory->optimizer + memory->histories + memory->arena;
}

/* --- The program ---------------------------------------------------------------------------------------- */

static void add_action(zero_step *s, int task, action_kind kind, int collective)
{
    s->action[s->n_action++] = (action){task, kind, collective};
}

static int bucket_of_parameter(const tandem_step *step, int parameter)
{
    int b = 0;
    while (step->parameter_start[parameter] >= step->bucket[b].start + step->bucket[b].elements) b++;
    return b;
}

/* Whether a task reads weights of the operator in f32. */
static int is_weight_reader(const tandem_task *task)
{
    return task->active && (task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_FORWARD ||
                            task->kind == TANDEM_TASK_DGRAD);
}

/* Stages 1 and 2: the first use of bucket b in a step waits for the previous step's gather of it. */
static void add_gathered_use(zero_step *s, int t, int b)
{
    if (s->used[b]) return;
    s->used[b] = 1;
    add_action(s, t, ACTION_WAIT_PREVIOUS, s->n_bucket + b);
}

/* Stage 3: a bucket that is not among the N_KEPT last ones is gathered, after the wait for the gather before.
 * */
static void add_fetched_use(zero_step *s, int t, int b)
{
    const int first = s->n_bucket, n = s->n_collective - first;
    for (int k = n > N_KEPT ? n - N_KEPT : 0; k < n; k++)
        if (s->bucket[first + k] == b) return;
    s->bucket[s->n_collective++] = b;
    add_action(s, t, ACTION_WAIT, first + n);
}

static void add_weight_use(zero_step *s, int t)
{
    const tandem_task *task = &s->step->task[t];
    if (!is_weight_reader(task)) return;
    const tandem_op *op = &s->step->graph->op[task->op];
    for (int p = 0; p < tandem_op_row_get(op->kind)->n_parameter; p++) {
        const int b = bucket_of_parameter(s->step, op->parameter[p]);
        if (s->stage == 3)
            add_fetched_use(s, t, b);
        else if (task->kind != TANDEM_TASK_DGRAD)
            add_gathered_use(s, t, b);
    }
}

/* Starts each gather after the wait for the one before, and the first one at the begin of an iteration. */
static void add_prefetches(zero_step *s)
{
    const int n = s->n_action;
    action *moved = s->action + 2 * n + 1; /* after all actions that there will be */
    for (int i = 0; i < n; i++) moved[i] = s->action[i];
    s->n_action = 0;
    add_action(s, 0, ACTION_START, s->n_bucket);
    for (int i = 0; i < n; i++) {
        s->action[s->n_action++] = moved[i];
        const int next = moved[i].collective + N_PREFETCHED;
        if (moved[i].kind == ACTION_WAIT && moved[i].collective >= s->n_bucket && next < s->n_collective)
            add_action(s, moved[i].task, ACTION_START, next);
    }
}

/* In the order in which this file runs the list: forward, backward, then all updates, that of the last bucket
 * at the end. */
static void build_zero_program(zero_step *s)
{
    const int n = s->n_bucket;
    s->n_collective = n;
    for (int t = 0; t < s->step->n_task; t++) {
        const tandem_task *task = &s->step->task[t];
        const int b = task->bucket;
        if (task->kind == TANDEM_TASK_REDUCE) {
            add_action(s, t, ACTION_START, b);
            if (s->stage >= 2 && b + 1 < n && b > 0) add_action(s, t, ACTION_WAIT, b - 1);
        } else if (task->kind == TANDEM_TASK_NORM) {
            for (int k = 0; k < n; k++) add_action(s, t, ACTION_WAIT, k);
        } else if (task->kind == TANDEM_TASK_UPDATE) {
            add_action(s, t, ACTION_WAIT, b);
            if (s->stage < 3) add_action(s, t + 1, ACTION_START, n + b);
        } else {
            add_weight_use(s, t);
        }
    }
    if (s->stage == 3)
        add_prefetches(s);
    else
        for (; s->n_collective < 2 * n; s->n_collective++) s->bucket[s->n_collective] = s->n_collective - n;
}

/* --- An iteration --------------------------------------------------------------------------------------- */

/* The share of the norm's time that all shards of the class are of the buckets. */
static double norm_share(const zero_step *s, int c)
{
    return (double)all_shard_bytes(s, c) / ((double)s->step->n_flat * sizeof(float));
}

/* Updates take the share of their time that the shard is of the bucket. */
static double sharded_task_ns(const zero_step *s, int c, int position)
{
    const tandem_sim_class *class = &s->replayer->classes[c];
    const tandem_task *task = &class->step->task[class->task[position]];
    const double ns = tandem_recorded_task_ns(class, position);
    if (s->n_rank == 1) return ns;
    if (task->kind == TANDEM_TASK_NORM) return floor(ns * norm_share(s, c) + 0.5);
    if (task->kind != TANDEM_TASK_UPDATE) return ns;
    return floor(ns * (double)shard_of_class(s, c, task->bucket) /
                     (double)s->step->bucket[task->bucket].elements +
                 0.5);
}

/* The list begins at position 1 and ends with position 0, the update of the last bucket. */
static int task_at_position(const tandem_sim_class *class, int position)
{
    return class->task[position < class->list_length ? position : 0];
}

static void advance_to_task(zero_step *s, int c, int task)
{
    const tandem_sim_class *class = &s->replayer->classes[c];
    zero_class_state *progress = &s->progress[c];
    for (; progress->position <= class->list_length && task_at_position(class, progress->position) < task;
         progress->position++) {
        const double ns =
            sharded_task_ns(s, c, progress->position < class->list_length ? progress->position : 0);
        progress->now_ns += ns;
        progress->busy_ns += ns;
    }
}

static void wait_for_collective(zero_class_state *progress, double ready_ns, double end_ns)
{
    if (end_ns <= progress->now_ns) return;
    const double start_ns = ready_ns > progress->now_ns ? ready_ns : progress->now_ns;
    progress->waiting_ns += start_ns - progress->now_ns;
    progress->exposed_ns += end_ns - start_ns;
    progress->now_ns = end_ns;
}

static double collective_duration_ns(const zero_step *s, int collective)
{
    return (collective < s->n_bucket ? s->scatter_ns : s->gather_ns)[s->bucket[collective]];
}

static void run_action(zero_step *s, const action *a)
{
    const int k = a->collective;
    double ready_ns = 0;
    for (int c = 0; c < s->n_class; c++) {
        zero_class_state *progress = &s->progress[c];
        advance_to_task(s, c, a->task);
        if (a->task == s->step->bucket[0].update_task && progress->backward_end_ns < 0)
            progress->backward_end_ns = progress->now_ns;
        if (a->kind == ACTION_WAIT) wait_for_collective(progress, s->ready_ns[k], s->end_ns[k]);
        if (a->kind == ACTION_WAIT_PREVIOUS)
            wait_for_collective(progress, s->previous_ready_ns[k], s->previous_end_ns[k]);
        if (progress->now_ns > ready_ns) ready_ns = progress->now_ns;
    }
    if (a->kind != ACTION_START) return;
    s->ready_ns[k] = ready_ns;
    s->comm_free_ns =
        (ready_ns > s->comm_free_ns ? ready_ns : s->comm_free_ns) + collective_duration_ns(s, k);
    s->end_ns[k] = s->comm_free_ns;
}

static void run_zero_iteration(zero_step *s)
{
    for (int c = 0; c < s->n_class; c++) {
        zero_class_state *progress = &s->progress[c];
        progress->exposed_ns = progress->waiting_ns = progress->busy_ns = 0;
        progress->backward_end_ns = -1;
        progress->position = 1;
    }
    for (int i = 0; i < s->n_action; i++) run_action(s, &s->action[i]);
    for (int c = 0; c < s->n_class; c++) advance_to_task(s, c, s->step->n_task);
}

/* Iterates until every class takes the same time for an iteration, which is returned. */
static double run_to_steady_state(zero_step *s)
{
    double previous[TANDEM_MAX_CLASS + 1] = {0}, step_ns = 0;
    for (int iteration = 0; iteration < MAX_ZERO_ITERATIONS; iteration++) {
        int same = iteration > 0;
        for (int k = 0; k < s->n_collective; k++) {
            s->previous_ready_ns[k] = s->ready_ns[k];
            s->previous_end_ns[k] = s->end_ns[k];
        }
        run_zero_iteration(s);
        step_ns = s->progress[0].now_ns - previous[0];
        for (int c = 0; c <= s->n_class; c++) {
            const double at_ns = c < s->n_class ? s->progress[c].now_ns : s->comm_free_ns;
            same &= fabs(at_ns - previous[c] - step_ns) <= zero_tolerance_ns;
            previous[c] = at_ns;
        }
        if (same) break;
    }
    return step_ns;
}

/* --- The result ----------------------------------------------------------------------------------------- */

static void report_zero(tandem_zero *zero, const zero_step *s, double step_ns)
{
    double total_ns[2] = {0, 0};
    zero->replay.step_ns = tandem_round_noisy_ns(step_ns);
    zero->replay.slowest = 0;
    for (int c = 0; c < s->n_class; c++) {
        const zero_class_state *progress = &s->progress[c];
        tandem_replay_split_step(&zero->replay, c, progress->exposed_ns, step_ns - progress->busy_ns);
        if (progress->backward_end_ns > s->progress[zero->replay.slowest].backward_end_ns)
            zero->replay.slowest = c;
        shard_memory(s, c, &zero->memory[c]);
        zero->replay.classes[c].peak_bytes = zero->memory[c].peak;
    }
    for (int k = 0; k < s->n_collective; k++) total_ns[k >= s->n_bucket] += collective_duration_ns(s, k);
    zero->scatter_ns = tandem_round_noisy_ns(total_ns[0]);
    zero->gather_ns = tandem_round_noisy_ns(total_ns[1]);
    zero->n_gather = s->n_collective - s->n_bucket;
}

/* --- Opening -------------------------------------------------------------------------------------------- */

static double known_or(double measured_ns, double other_ns)
{
    return isfinite(measured_ns) ? measured_ns : other_ns;
}

/* As measured, else by the replayer's algorithm over the links, or half of a measured all-reduce. */
static tandem_status find_collective_times(zero_step *s, tandem_error *error)
{
    const tandem_replayer *replayer = s->replayer;
    tandem_topology *topology = NULL;
    tandem_status status = TANDEM_OK;
    if (s->n_rank > 1 && replayer->allreduce_source.n_point == 0)
        status = tandem_topology_open(&topology, &replayer->cluster, replayer->collective, error);
    for (int b = 0; b < s->n_bucket && status == TANDEM_OK; b++) {
        const uint64_t bytes = (uint64_t)s->step->bucket[b].elements * sizeof(float);
        const double half_ns = (replayer->allreduce_end_ns[b] - replayer->allreduce_start_ns[b]) / 2;
        s->scatter_ns[b] =
            topology ? tandem_collective_ns(topology, TANDEM_REDUCE_SCATTER, bytes, NULL) : half_ns;
        s->gather_ns[b] = topology ? tandem_collective_ns(topology, TANDEM_ALL_GATHER, bytes, NULL) : half_ns;
        if (s->n_rank == 1) continue;
        s->scatter_ns[b] = known_or(replayer->scatter_ns[b], s->scatter_ns[b]);
        s->gather_ns[b] = known_or(replayer->gather_ns[b], s->gather_ns[b]);
    }
    tandem_topology_close(topology);
    return status;
}

static int allocate_zero_step(zero_step *s)
{
    tandem_arena *const arena = &s->arena;
    const size_t n_bucket = (size_t)s->n_bucket, n_shard = n_bucket * (size_t)s->n_class,
                 n_task = (size_t)s->step->n_task;
    /* A task waits for each of its parameters at most. add_prefetches needs room for three times the actions.
     * */
    const size_t n_collective = 2 * n_bucket + TANDEM_MAX_PARAMETER * n_task,
                 n_action = 3 * (n_collective + 2 * n_bucket) + 1;
    return (s->shard = tandem_arena_array(arena, n_shard, sizeof *s->shard)) &&
           (s->used = tandem_arena_array(arena, n_bucket, sizeof *s->used)) &&
           (s->bucket = tandem_arena_array(arena, n_collective, sizeof *s->bucket)) &&
           (s->scatter_ns = tandem_arena_array(arena, n_bucket, sizeof *s->scatter_ns)) &&
           (s->gather_ns = tandem_arena_array(arena, n_bucket, sizeof *s->gather_ns)) &&
           (s->action = tandem_arena_array(arena, n_action, sizeof *s->action)) &&
           (s->ready_ns = tandem_arena_array(arena, n_collective, sizeof *s->ready_ns)) &&
           (s->end_ns = tandem_arena_array(arena, n_collective, sizeof *s->end_ns)) &&
           (s->previous_ready_ns = tandem_arena_array(arena, n_collective, sizeof *s->previous_ready_ns)) &&
           (s->previous_end_ns = tandem_arena_array(arena, n_collective, sizeof *s->previous_end_ns));
}

tandem_status tandem_replayer_zero(tandem_zero *zero, tandem_replayer *given, const tandem_sharding *sharding,
                                   tandem_error *error)
{
    tandem_replayer *const replayer = tandem_replayer_program(given);
    const int stage = sharding->stage;
    tandem_sharding shards = *sharding;
    zero_step s = {.replayer = replayer,
                   .step = replayer->classes[0].step,
                   .stage = stage,
                   .n_class = replayer->n_class,
                   .n_bucket = replayer->n_bucket,
                   .n_rank = tandem_cluster_n_rank(&replayer->cluster)};
    if (stage < 1 || stage > TANDEM_MAX_ZERO_STAGE)
        return tandem_error_set(error, TANDEM_USAGE, "ZeRO has stages 1, 2 and 3, got %d", stage);
    tandem_zero result = {0};
    tandem_status status =
        tandem_replayer_run(replayer, &result.replay, TANDEM_REPLAY_MEMORY | TANDEM_REPLAY_EVENTS, error);
    if (status == TANDEM_OK && !allocate_zero_step(&s))
        status = tandem_no_memory(error, "for a step of %d tasks", s.step->n_task);
    if (status == TANDEM_OK) status = find_collective_times(&s, error);
    if (status == TANDEM_OK) {
        shards.n_rank = s.n_rank;
        find_shards(&s, &shards);
        for (int b = 0; b < s.n_bucket; b++) s.bucket[b] = b;
        for (int c = 0; c < s.n_class; c++) result.memory[c] = replayer->classes[c].memory;
        build_zero_program(&s);
        report_zero(&result, &s, run_to_steady_state(&s));
        *zero = result;
    }
    tandem_arena_free(&s.arena);
    return status;
}
