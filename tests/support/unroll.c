/* unroll.c: a step as a graph for the DAG simulator, every rank by itself; and the times that this graph has.
 * */
#include "tests/support/unroll.h"

#include "replayer/internal.h"
#include "tests/support/tandem_test.h"

/* --- The graph ------------------------------------------------------------------------------------------ */

/* The graph's arrays while they are written. */
typedef struct unroll_layout {
    unrolled_step *unrolled;
    tandem_replayer *replayer;
    int *stream, *group;
    tandem_dag_edge *edge;
    int *position_of; /* [n_task] of the current class */
    int n_op;
} unroll_layout;

static void add_unrolled_op(unroll_layout *l, int stream, int group, int task, int64_t duration_ticks)
{
    l->stream[l->n_op] = stream;
    l->group[l->n_op] = group;
    l->unrolled->task[l->n_op] = task;
    l->unrolled->duration_ticks[l->n_op++] = duration_ticks;
}

static void add_unrolled_edge(unroll_layout *l, int before, int after)
{
    l->edge[l->unrolled->graph.n_edge++] = (tandem_dag_edge){before, after};
}

static void unroll_iteration(unroll_layout *l, int c, int rank_of_class, int rank, int iteration)
{
    unrolled_step *const u = l->unrolled;
    const tandem_sim_class *const class = &l->replayer->classes[c];
    const int length = u->list_length[c], *wait_position = &u->wait_position[c * u->n_bucket];
    const int first = unrolled_op(u, c, rank_of_class, iteration, 0), reduce = first + length;
    for (int k = 0; k < length; k++)
        add_unrolled_op(l, 2 * rank, -1, class->task[k],
                        class->task_ns[class->task[k]][TANDEM_RATE_USUAL] * TICKS_PER_NS);
    for (int b = 0; b < u->n_bucket; b++) {
        const tandem_bucket *const bucket = &class->step->bucket[b];
        add_unrolled_op(
            l, 2 * rank + 1, iteration * u->n_bucket + b, bucket->reduce_task,
            (int64_t)(l->replayer->allreduce_ns[0][b] * TICKS_PER_NS)); /* exact: see internal.h */
        add_unrolled_edge(l, first + l->position_of[bucket->ready_task], reduce + b);
        if (wait_position[b] < length)
            add_unrolled_edge(l, reduce + b, first + wait_position[b]);
        else if (iteration < u->n_iteration - 1)
            add_unrolled_edge(l, reduce + b, unrolled_op(u, c, rank_of_class, iteration + 1, 0));
    }
}

static void unroll_ranks(unroll_layout *l)
{
    unrolled_step *const u = l->unrolled;
    for (int c = 0, rank = 0; c < u->n_class; c++) {
        const tandem_sim_class *const class = &l->replayer->classes[c];
        for (int k = 0; k < class->list_length; k++) l->position_of[class->task[k]] = k;
        for (int r = 0; r < l->replayer->cluster.classes[c].n_rank; r++, rank++) {
            add_unrolled_op(l, 2 * rank, -1, -1, 0);
            for (int k = 0; k < u->n_iteration; k++) unroll_iteration(l, c, r, rank, k);
        }
    }
}

static int count_unrolled(unrolled_step *u, tandem_replayer *replayer)
{
    int max_task = 0;
    for (int c = 0; c < u->n_class; c++) {
        tandem_sim_class *const class = &replayer->classes[c];
        tandem_task_list_build(class);
        u->list_length[c] = class->list_length;
        u->first[c] = u->graph.n_op;
        u->graph.n_op +=
            (1 + u->n_iteration * (class->list_length + u->n_bucket)) * replayer->cluster.classes[c].n_rank;
        if (class->step->n_task > max_task) max_task = class->step->n_task;
    }
    return max_task;
}

static void *allocate_unrolled(int n, size_t size)
{
    void *const array = calloc((size_t)n, size);
    assert_non_null(array);
    return array;
}

void unroll_step(unrolled_step *u, tandem_replayer *replayer, int n_iteration)
{
    assert_false(replayer->has_contention);
    *u = (unrolled_step){.n_class = replayer->n_class,
                         .n_bucket = replayer->n_bucket,
                         .n_iteration = n_iteration,
                         .n_rank = tandem_cluster_n_rank(&replayer->cluster)};
    const int max_task = count_unrolled(u, replayer), n_op = u->graph.n_op,
              n_group = n_iteration * u->n_bucket;
    int *const group_size = allocate_unrolled(n_group, sizeof *group_size);
    unroll_layout l = {.unrolled = u,
                       .replayer = replayer,
                       .stream = allocate_unrolled(n_op, sizeof *l.stream),
                       .group = allocate_unrolled(n_op, sizeof *l.group),
                       .edge = allocate_unrolled(2 * u->n_rank * n_group, sizeof *l.edge),
                       .position_of = allocate_unrolled(max_task, sizeof *l.position_of)};
    u->duration_ticks = allocate_unrolled(n_op, sizeof *u->duration_ticks);
    u->task = allocate_unrolled(n_op, sizeof *u->task);
    u->wait_position = allocate_unrolled(u->n_class * u->n_bucket, sizeof *u->wait_position);
    for (int c = 0; c < u->n_class; c++)
        memcpy(&u->wait_position[c * u->n_bucket], replayer->classes[c].wait_position,
               (size_t)u->n_bucket * sizeof *u->wait_position);
    for (int g = 0; g < n_group; g++) group_size[g] = u->n_rank;
    u->graph = (tandem_dag){.n_op = n_op,
                            .n_stream = 2 * u->n_rank,
                            .n_group = n_group,
                            .stream = l.stream,
                            .group = l.group,
                            .group_size = group_size,
                            .edge = l.edge};
    unroll_ranks(&l);
    free(l.position_of);
}

void unrolled_step_close(unrolled_step *u)
{
    free((void *)u->graph.edge);
    free((void *)u->graph.group_size);
    free((void *)u->graph.group);
    free((void *)u->graph.stream);
    free(u->wait_position);
    free(u->task);
    free(u->duration_ticks);
}

/* --- The times of the graph ----------------------------------------------------------------------------- */

enum { N_ITERATION = 4, MAX_ROUNDS = 16 };
static const int64_t steady_tolerance_ticks = 10; /* a hundredth of a nanosecond, as in simulate.c */

typedef struct unrolled_times {
    int64_t step_ticks, exposed_ticks, waiting_ticks;
    int64_t backward_ticks; /* from the begin of the iteration to the end of the backward pass */
} unrolled_times;

static int64_t iteration_end(const unrolled_step *u, const int64_t *end_ticks, int iteration)
{
    return iteration < 0 ? 0
                         : end_ticks[unrolled_op(u, 0, 0, iteration, u->list_length[0] + u->n_bucket - 1)];
}

/* How long the first rank of a class is still in an iteration when that one ends. */
static int64_t unrolled_backlog(const unrolled_step *u, const int64_t *end_ticks, int c, int iteration)
{
    const int last = unrolled_op(u, c, 0, iteration, u->list_length[c] - 1);
    const int64_t backlog = end_ticks[last] - iteration_end(u, end_ticks, iteration);
    return backlog > 0 ? backlog : 0;
}

/* Of one rank in the last iteration. */
static unrolled_times times_of_rank(const unrolled_step *u, const int64_t *end_ticks, int c, int rank)
{
    const int last = u->n_iteration - 1;
    const int64_t begin = iteration_end(u, end_ticks, last - 1);
    unrolled_times times = {.step_ticks = iteration_end(u, end_ticks, last) - begin};
    int64_t previous_end = begin;
    for (int b = 0; b < u->n_bucket; b++) {
        const int reduce = unrolled_op(u, c, rank, last, u->list_length[c] + b);
        const int before = u->wait_position[c * u->n_bucket + b] - 1; /* the position before the wait */
        int64_t arrival = end_ticks[unrolled_op(u, c, rank, last, before)];
        const int64_t end = end_ticks[reduce], start = end - u->duration_ticks[reduce];
        if (previous_end > arrival) arrival = previous_end; /* no task is between two waits */
        previous_end = end;
        if (b == 0) times.backward_ticks = arrival - begin;
        if (start > arrival) times.waiting_ticks += start - arrival;
        if (end > arrival) times.exposed_ticks += end - (start > arrival ? start : arrival);
    }
    return times;
}

/* Whether the last iteration is like the one before it; else how the next round begins. A class that gains
 * the same time on the others in each iteration will do so until it waits for them: the next round begins
 * there. A class that loses the same time begins where the others wait for it. */
static int is_unrolled_steady(int64_t *backlog_ticks, const unrolled_step *u, const int64_t *end_ticks)
{
    const int last = u->n_iteration - 1;
    int is_steady = 1;
    for (int c = 0; c < u->n_class; c++) {
        int64_t backlog[3];
        for (int k = 0; k < 3; k++) backlog[k] = unrolled_backlog(u, end_ticks, c, last - 2 + k);
        const int64_t gain = backlog[1] - backlog[2], previous_gain = backlog[0] - backlog[1];
        const int changes = llabs(gain) > steady_tolerance_ticks;
        is_steady = is_steady && !changes;
        backlog_ticks[c] = backlog[2];
        if (changes && llabs(gain - previous_gain) <= steady_tolerance_ticks)
            backlog_ticks[c] =
                gain > 0 ? 0 : iteration_end(u, end_ticks, last) - iteration_end(u, end_ticks, last - 1);
    }
    return is_steady;
}

static int64_t ticks_to_ns(int64_t ticks) { return tandem_round_noisy_ns((double)ticks / TICKS_PER_NS); }

/* The last iteration of the first rank of each class; all others must be like it. */
static tandem_replay unrolled_result(const unrolled_step *u, const tandem_cluster *cluster,
                                     const int64_t *end_ticks)
{
    int64_t latest = -1;
    tandem_replay replay = {.n_class = u->n_class};
    for (int c = 0; c < u->n_class; c++) {
        const unrolled_times times = times_of_rank(u, end_ticks, c, 0);
        for (int r = 1; r < cluster->classes[c].n_rank; r++) {
            const unrolled_times other = times_of_rank(u, end_ticks, c, r);
            assert_memory_equal(&other, &times, sizeof times);
        }
        tandem_replay_class *const class = &replay.classes[c];
        replay.step_ns = ticks_to_ns(times.step_ticks);
        class->exposed_comm_ns = ticks_to_ns(times.exposed_ticks);
        class->wait_ns = ticks_to_ns(times.exposed_ticks + times.waiting_ticks) - class->exposed_comm_ns;
        class->busy_ns = replay.step_ns - class->exposed_comm_ns - class->wait_ns;
        if (times.backward_ticks > latest) replay.slowest = c;
        if (times.backward_ticks > latest) latest = times.backward_ticks;
    }
    return replay;
}

tandem_replay unroll_replay(tandem_replayer *replayer)
{
    unrolled_step u;
    tandem_dag_simulator *simulator = NULL;
    int64_t backlog_ticks[TANDEM_MAX_CLASS] = {0}, length_ticks = 0;
    int is_steady = 0;
    unroll_step(&u, replayer, N_ITERATION);
    int64_t *const end_ticks = allocate_unrolled(u.graph.n_op, sizeof *end_ticks);
    assert_int_equal(tandem_dag_simulator_open(&simulator, &u.graph, NULL), TANDEM_OK);
    for (int round = 0; round < MAX_ROUNDS && !is_steady; round++) {
        for (int c = 0; c < u.n_class; c++)
            for (int r = 0; r < replayer->cluster.classes[c].n_rank; r++)
                u.duration_ticks[unrolled_op(&u, c, r, 0, -1)] = backlog_ticks[c];
        assert_int_equal(
            tandem_dag_simulator_run(simulator, u.duration_ticks, NULL, end_ticks, &length_ticks, NULL),
            TANDEM_OK);
        is_steady = is_unrolled_steady(backlog_ticks, &u, end_ticks);
    }
    assert_true(is_steady);
    const tandem_replay replay = unrolled_result(&u, &replayer->cluster, end_ticks);
    free(end_ticks);
    tandem_dag_simulator_close(simulator);
    unrolled_step_close(&u);
    return replay;
}
