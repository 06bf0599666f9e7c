/* zero.c: the step of zero.h as a program that all classes go through alike: at certain tasks a collective is
 * asked for, or waited for. Since it is asked for before it is waited for, and all go through the program
 * side by side, its end is known where it is needed; one pass over the program is a lap. */
#include "tandem/zero.h"

#include <math.h>
#include <stdlib.h>

#include "replayer/collective.h"
#include "replayer/stages.h"

enum { MOST_LAPS = 256, ALIGNED = 16 /* elements */, AHEAD = 1, KEPT = 2 };
static const double same_ns = 0.01;

typedef enum what { ASK, WAIT, WAIT_FOR_FORMER /* of the lap before */ } what;

typedef struct action {
    int task; /* before it, or what stands behind it in the list, begins */
    what what;
    int collective;
} action;

typedef struct class_state {
    double at_ns, exposed_ns, waiting_ns, busy_ns, backward_end_ns;
    int place;
} class_state;

typedef struct stepping {
    tandem_replayer *replayer;
    const tandem_step *step; /* of class 0: buckets and task ids are the same in all */
    int stage, n_class, n_bucket, n_rank;
    int64_t *shard; /* [n_bucket] elements */
    /* collective b < n_bucket scatters bucket b, the others gather bucket[k] */
    int n_collective, n_action;
    int *bucket;                    /* [n_collective] */
    double *scatter_ns, *gather_ns; /* [n_bucket] */
    action *action;
    double *ready_ns, *end_ns, *former_ready_ns, *former_end_ns; /* [n_collective] */
    double wire_ns;                                              /* when the communication stream is free */
    class_state class[TANDEM_MAX_CLASS];
} stepping;

/* --- Shards --------------------------------------------------------------------------------------------- */

static int64_t shard_of(int64_t elements, int n_rank)
{
    const int64_t part = (elements + n_rank - 1) / n_rank, whole = (part + ALIGNED - 1) / ALIGNED * ALIGNED;
    return whole < elements ? whole : elements;
}

/* Bytes of bucket b in full beside the rank's own part of it. */
static uint64_t rest_of(const stepping *s, int b)
{
    return (uint64_t)(s->step->bucket[b].elements - s->shard[b]) * sizeof(float);
}

static uint64_t shards(const stepping *s)
{
    uint64_t elements = 0;
    for (int b = 0; b < s->n_bucket; b++) elements += (uint64_t)s->shard[b];
    return elements * sizeof(float);
}

/* Two of them behind one another. */
static uint64_t most_gradients(const stepping *s)
{
    uint64_t most = 0;
    for (int b = 0; b < s->n_bucket; b++) {
        const uint64_t both = rest_of(s, b) + (b > 0 ? rest_of(s, b - 1) : 0);
        if (both > most) most = both;
    }
    return most;
}

/* KEPT of them, and those AHEAD, fetched behind one another: never the same twice. */
static uint64_t most_weights(const stepping *s)
{
    uint64_t most = 0;
    for (int k = s->n_bucket; k < s->n_collective; k++) {
        uint64_t all = 0;
        for (int i = k; i < k + KEPT + AHEAD && i < s->n_collective; i++) all += rest_of(s, s->bucket[i]);
        if (all > most) most = all;
    }
    return most;
}

static void share_out(const stepping *s, tandem_memory *memory)
{
    const uint64_t own = shards(s), n_state = memory->optimizer / memory->weights;
    memory->optimizer = own * n_state;
    if (s->stage >= 2) memory->gradients = own + most_gradients(s);
    if (s->stage >= 3) memory->weights = own + most_weights(s);
    memory->peak =
        memory->weights + memory->gradients + memory->optimizer + memory->histories + memory->arena;
}

/* --- The program ---------------------------------------------------------------------------------------- */

static void add(stepping *s, int task, what kind, int collective)
{
    s->action[s->n_action++] = (action){task, kind, collective};
}

static int bucket_of(const tandem_step *step, int parameter)
{
    int b = 0;
    while (step->parameter_start[parameter] >= step->bucket[b].start + step->bucket[b].elements) b++;
    return b;
}

/* Whether a task reads weights of the operator in f32. */
static int reads_weights(const tandem_task *task)
{
    return task->active && (task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_FORWARD ||
                            task->kind == TANDEM_TASK_DGRAD);
}

/* Task t uses bucket b. Stages 1 and 2: its first use in a step waits for the last step's gather of it. */
static void use_gathered(stepping *s, int t, int b, unsigned char *used)
{
    if (used[b]) return;
    used[b] = 1;
    add(s, t, WAIT_FOR_FORMER, s->n_bucket + b);
}

/* Stage 3: what is not among the KEPT last ones is fetched, behind the wait for its predecessor. */
static void use_fetched(stepping *s, int t, int b)
{
    const int first = s->n_bucket, n = s->n_collective - first;
    for (int k = n > KEPT ? n - KEPT : 0; k < n; k++)
        if (s->bucket[first + k] == b) return;
    s->bucket[s->n_collective++] = b;
    add(s, t, WAIT, first + n);
}

static void use_weights(stepping *s, int t, unsigned char *used)
{
    const tandem_task *task = &s->step->task[t];
    if (!reads_weights(task)) return;
    const tandem_op *op = &s->step->graph->op[task->op];
    for (int p = 0; p < tandem_op_row_get(op->kind)->n_parameter; p++) {
        const int b = bucket_of(s->step, op->parameter[p]);
        if (s->stage == 3)
            use_fetched(s, t, b);
        else if (task->kind != TANDEM_TASK_DGRAD)
            use_gathered(s, t, b, used);
    }
}

/* A fetch is asked for behind the wait for the one before, the first one at the begin of a lap. */
static void ask_ahead(stepping *s)
{
    const int n = s->n_action;
    action *from = s->action + 2 * n + 1; /* behind all that there will be */
    for (int i = 0; i < n; i++) from[i] = s->action[i];
    s->n_action = 0;
    add(s, 0, ASK, s->n_bucket);
    for (int i = 0; i < n; i++) {
        s->action[s->n_action++] = from[i];
        const int next = from[i].collective + AHEAD;
        if (from[i].what == WAIT && from[i].collective >= s->n_bucket && next < s->n_collective)
            add(s, from[i].task, ASK, next);
    }
}

/* The list as it is gone through here: forward, backward, then all updates, the last one at the end. */
static void make_program(stepping *s, unsigned char *used)
{
    const int n = s->n_bucket;
    s->n_collective = n;
    for (int t = 0; t < s->step->n_task; t++) {
        const tandem_task *task = &s->step->task[t];
        const int b = task->bucket;
        if (task->kind == TANDEM_TASK_REDUCE) {
            add(s, t, ASK, b);
            if (s->stage >= 2 && b + 1 < n && b > 0) add(s, t, WAIT, b - 1);
        } else if (task->kind == TANDEM_TASK_UPDATE) {
            add(s, t, WAIT, b);
            if (s->stage < 3) add(s, t + 1, ASK, n + b);
        } else {
            use_weights(s, t, used);
        }
    }
    if (s->stage == 3)
        ask_ahead(s);
    else
        for (; s->n_collective < 2 * n; s->n_collective++) s->bucket[s->n_collective] = s->n_collective - n;
}

/* --- A lap ---------------------------------------------------------------------------------------------- */

/* An update is of the shard alone. */
static double task_ns(const stepping *s, const tandem_replay_member *member, int place)
{
    const tandem_task *task = &member->step->task[member->task[place]];
    const double ns = tandem_recorded_ns(member, place);
    if (task->kind != TANDEM_TASK_UPDATE || s->n_rank == 1) return ns;
    return floor(ns * (double)s->shard[task->bucket] / (double)s->step->bucket[task->bucket].elements + 0.5);
}

/* The places of the list in this order: all but the first, then that one, which is the last update. */
static int task_at(const tandem_replay_member *member, int place)
{
    return member->task[place < member->n_place ? place : 0];
}

static void go_on(stepping *s, int c, int task)
{
    const tandem_replay_member *member = &s->replayer->member[c];
    class_state *class = &s->class[c];
    for (; class->place <= member->n_place && task_at(member, class->place) < task; class->place++) {
        const double ns = task_ns(s, member, class->place < member->n_place ? class->place : 0);
        class->at_ns += ns;
        class->busy_ns += ns;
    }
}

static void wait_for(class_state *class, double ready_ns, double end_ns)
{
    if (end_ns <= class->at_ns) return;
    const double asked_ns = ready_ns > class->at_ns ? ready_ns : class->at_ns;
    class->waiting_ns += asked_ns - class->at_ns;
    class->exposed_ns += end_ns - asked_ns;
    class->at_ns = end_ns;
}

static double duration_of(const stepping *s, int collective)
{
    return (collective < s->n_bucket ? s->scatter_ns : s->gather_ns)[s->bucket[collective]];
}

static void act(stepping *s, const action *a)
{
    const int k = a->collective;
    double ready_ns = 0;
    for (int c = 0; c < s->n_class; c++) {
        class_state *class = &s->class[c];
        go_on(s, c, a->task);
        if (a->task == s->step->bucket[0].update_task && class->backward_end_ns < 0)
            class->backward_end_ns = class->at_ns;
        if (a->what == WAIT) wait_for(class, s->ready_ns[k], s->end_ns[k]);
        if (a->what == WAIT_FOR_FORMER) wait_for(class, s->former_ready_ns[k], s->former_end_ns[k]);
        if (class->at_ns > ready_ns) ready_ns = class->at_ns;
    }
    if (a->what != ASK) return;
    s->ready_ns[k] = ready_ns;
    s->wire_ns = (ready_ns > s->wire_ns ? ready_ns : s->wire_ns) + duration_of(s, k);
    s->end_ns[k] = s->wire_ns;
}

static void run_lap(stepping *s)
{
    for (int c = 0; c < s->n_class; c++) {
        class_state *class = &s->class[c];
        class->exposed_ns = class->waiting_ns = class->busy_ns = 0;
        class->backward_end_ns = -1;
        class->place = 1;
    }
    for (int i = 0; i < s->n_action; i++) act(s, &s->action[i]);
    for (int c = 0; c < s->n_class; c++) go_on(s, c, s->step->n_task);
}

/* Laps until one takes every class as long as the one before, all of them alike. Returns how long. */
static double run_laps(stepping *s)
{
    double former[TANDEM_MAX_CLASS + 1] = {0}, step_ns = 0;
    for (int lap = 0; lap < MOST_LAPS; lap++) {
        int same = lap > 0;
        for (int k = 0; k < s->n_collective; k++) {
            s->former_ready_ns[k] = s->ready_ns[k];
            s->former_end_ns[k] = s->end_ns[k];
        }
        run_lap(s);
        step_ns = s->class[0].at_ns - former[0];
        for (int c = 0; c <= s->n_class; c++) {
            const double at_ns = c < s->n_class ? s->class[c].at_ns : s->wire_ns;
            same &= fabs(at_ns - former[c] - step_ns) <= same_ns;
            former[c] = at_ns;
        }
        if (same) break;
    }
    return step_ns;
}

/* --- The result ----------------------------------------------------------------------------------------- */

static void report(tandem_zero *zero, const stepping *s, double step_ns)
{
    double wire_ns[2] = {0, 0};
    zero->replay.step_ns = tandem_rounded_ns(step_ns);
    zero->replay.slowest = 0;
    for (int c = 0; c < s->n_class; c++) {
        const class_state *class = &s->class[c];
        tandem_replay_class *member = &zero->replay.member[c];
        const int64_t idle_ns = tandem_rounded_ns(step_ns - class->busy_ns);
        member->exposed_comm_ns = tandem_rounded_ns(class->exposed_ns);
        if (member->exposed_comm_ns > idle_ns) member->exposed_comm_ns = idle_ns;
        member->wait_ns = idle_ns - member->exposed_comm_ns;
        member->busy_ns = zero->replay.step_ns - idle_ns;
        if (class->backward_end_ns > s->class[zero->replay.slowest].backward_end_ns) zero->replay.slowest = c;
        share_out(s, &zero->memory[c]);
        member->peak_bytes = zero->memory[c].peak;
    }
    for (int k = 0; k < s->n_collective; k++) wire_ns[k >= s->n_bucket] += duration_of(s, k);
    zero->scatter_ns = tandem_rounded_ns(wire_ns[0]);
    zero->gather_ns = tandem_rounded_ns(wire_ns[1]);
    zero->n_gather = s->n_collective - s->n_bucket;
}

/* --- All of it ------------------------------------------------------------------------------------------ */

/* By the replayer's algorithm over the links; half of what an all-reduce took where those were measured. */
static tandem_status price(stepping *s, tandem_error *error)
{
    const tandem_replayer *replayer = s->replayer;
    tandem_topology *topology = NULL;
    tandem_status status = TANDEM_OK;
    if (s->n_rank > 1 && replayer->exchange.n_point == 0)
        status = tandem_topology_open(&topology, &replayer->cluster, replayer->collective, error);
    for (int b = 0; b < s->n_bucket && status == TANDEM_OK; b++) {
        const uint64_t bytes = (uint64_t)s->step->bucket[b].elements * sizeof(float);
        const double half_ns = (replayer->wire_end_ns[b] - replayer->wire_start_ns[b]) / 2;
        s->scatter_ns[b] =
            topology ? tandem_collective_ns(topology, TANDEM_REDUCE_SCATTER, bytes, NULL) : half_ns;
        s->gather_ns[b] = topology ? tandem_collective_ns(topology, TANDEM_ALL_GATHER, bytes, NULL) : half_ns;
    }
    tandem_topology_close(topology);
    return status;
}

static int allocate(stepping *s)
{
    const size_t n_bucket = (size_t)s->n_bucket, n_task = (size_t)s->step->n_task;
    /* a task waits for each of its parameters at most; and thrice as many actions while some are put in
     * between */
    const size_t n_collective = 2 * n_bucket + TANDEM_MAX_PARAMETER * n_task;
    s->shard = malloc(n_bucket * sizeof *s->shard);
    s->bucket = malloc(n_collective * sizeof *s->bucket);
    s->scatter_ns = malloc(n_bucket * sizeof *s->scatter_ns);
    s->gather_ns = malloc(n_bucket * sizeof *s->gather_ns);
    s->action = malloc((3 * (n_collective + 2 * n_bucket) + 1) * sizeof *s->action);
    s->ready_ns = calloc(n_collective, sizeof *s->ready_ns);
    s->end_ns = calloc(n_collective, sizeof *s->end_ns);
    s->former_ready_ns = calloc(n_collective, sizeof *s->former_ready_ns);
    s->former_end_ns = calloc(n_collective, sizeof *s->former_end_ns);
    return s->shard && s->bucket && s->scatter_ns && s->gather_ns && s->action && s->ready_ns && s->end_ns &&
           s->former_ready_ns && s->former_end_ns;
}

static void release(stepping *s)
{
    free(s->former_end_ns);
    free(s->former_ready_ns);
    free(s->end_ns);
    free(s->ready_ns);
    free(s->action);
    free(s->gather_ns);
    free(s->scatter_ns);
    free(s->bucket);
    free(s->shard);
}

tandem_status tandem_replayer_zero(tandem_zero *zero, tandem_replayer *replayer, int stage,
                                   tandem_error *error)
{
    stepping s = {.replayer = replayer,
                  .step = replayer->member[0].step,
                  .stage = stage,
                  .n_class = replayer->n_class,
                  .n_bucket = replayer->n_bucket,
                  .n_rank = tandem_cluster_n_rank(&replayer->cluster)};
    if (stage < 1 || stage > TANDEM_MOST_ZERO)
        return tandem_error_set(error, TANDEM_USAGE, "ZeRO has stages 1, 2 and 3; got %d", stage);
    if (s.step->norm_task >= 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "no rank has all gradients with ZeRO, whose norm the step would find; leave out --clip and "
            "--loss-scale");
    tandem_zero result = {0};
    unsigned char *used = calloc((size_t)s.n_bucket, 1);
    tandem_status status =
        tandem_replayer_run(replayer, &result.replay, TANDEM_REPLAY_MEMORY | TANDEM_REPLAY_EVENTS, error);
    if (status == TANDEM_OK && (!allocate(&s) || !used))
        status =
            tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for a step of %d tasks", s.step->n_task);
    if (status == TANDEM_OK) status = price(&s, error);
    if (status == TANDEM_OK) {
        for (int b = 0; b < s.n_bucket; b++) {
            s.shard[b] = shard_of(s.step->bucket[b].elements, s.n_rank);
            s.bucket[b] = b;
        }
        for (int c = 0; c < s.n_class; c++) result.memory[c] = replayer->member[c].memory;
        make_program(&s, used);
        report(&result, &s, run_laps(&s));
        *zero = result;
    }
    release(&s);
    free(used);
    return status;
}
