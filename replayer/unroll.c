/* unroll.c: a step as a graph for the general engine, every rank by itself; and what that makes of it. */
#include "tandem/unrolled_step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/internal.h"

/* --- The graph ------------------------------------------------------------------------------------------ */

/* What the graph's arrays are while they are made. */
typedef struct unroll_layout {
    tandem_unrolled_step *e;
    tandem_replayer *replayer;
    int *stream, *group;
    int *group_size;
    tandem_dag_edge *edge;
    int *position_of; /* [n_task] of the class at hand */
    int n_op;         /* laid out so far */
} unroll_layout;

static int64_t to_ticks(double ns)
{
    return (int64_t)(ns * TANDEM_TICKS_PER_NS);
} /* exact: see allreduce_ns in internal.h */

static void put_operator(unroll_layout *l, int stream, int group, int task, int64_t duration_ticks)
{
    l->stream[l->n_op] = stream;
    l->group[l->n_op] = group;
    l->e->task[l->n_op] = task;
    l->e->duration_ticks[l->n_op++] = duration_ticks;
}

static void add_unrolled_edge(unroll_layout *l, int before, int after)
{
    l->edge[l->e->graph.n_edge++] = (tandem_dag_edge){before, after};
}

static void lay_out_iteration(unroll_layout *l, int c, int rank_of_class, int rank, int iteration)
{
    tandem_unrolled_step *const e = l->e;
    const tandem_sim_class *const class = &l->replayer->classes[c];
    const int n_bucket = e->n_bucket, list_length = e->list_length[c],
              *wait_position = &e->wait_position[c * n_bucket];
    const int first = tandem_unrolled_op(e, c, rank_of_class, iteration, 0), reduce = first + list_length;
    for (int k = 0; k < list_length; k++)
        put_operator(l, 2 * rank, -1, class->task[k],
                     class->task_ns[class->task[k]][TANDEM_RATE_USUAL] * TANDEM_TICKS_PER_NS);
    for (int b = 0; b < n_bucket; b++) {
        const tandem_bucket *const bucket = &class->step->bucket[b];
        put_operator(l, 2 * rank + 1, iteration * n_bucket + b, bucket->reduce_task,
                     to_ticks(l->replayer->allreduce_ns[0][b]));
        add_unrolled_edge(l, first + l->position_of[bucket->ready_task], reduce + b);
        const int waiter = wait_position[b] < list_length ? first + wait_position[b] /* what waits for it */
                           : iteration < e->n_iteration - 1
                               ? tandem_unrolled_op(e, c, rank_of_class, iteration + 1, 0)
                               : -1;
        if (waiter >= 0) add_unrolled_edge(l, reduce + b, waiter);
    }
}

static void lay_out_ranks(unroll_layout *l)
{
    tandem_unrolled_step *const e = l->e;
    for (int c = 0, rank = 0; c < e->n_class; c++) {
        const tandem_sim_class *const class = &l->replayer->classes[c];
        for (int k = 0; k < class->list_length; k++) l->position_of[class->task[k]] = k;
        for (int r = 0; r < l->replayer->cluster.classes[c].n_rank; r++, rank++) {
            put_operator(l, 2 * rank, -1, -1, 0);
            for (int iteration = 0; iteration < e->n_iteration; iteration++)
                lay_out_iteration(l, c, r, rank, iteration);
        }
    }
    for (int g = 0; g < e->graph.n_group; g++) l->group_size[g] = e->n_rank;
}

/* Finds out how much there will be. */
static tandem_status count_operators(tandem_unrolled_step *e, tandem_replayer *replayer, int n_iteration,
                                     tandem_error *error)
{
    int64_t n_op = 0;
    e->n_class = replayer->n_class;
    e->n_bucket = replayer->n_bucket;
    e->n_iteration = n_iteration;
    for (int c = 0; c < e->n_class; c++) {
        tandem_task_list_build(&replayer->classes[c]);
        const int64_t per_rank = 1 + (int64_t)n_iteration * (replayer->classes[c].list_length + e->n_bucket);
        e->list_length[c] = replayer->classes[c].list_length;
        e->first[c] = (int)n_op;
        n_op += per_rank * replayer->cluster.classes[c].n_rank;
        if (n_op > TANDEM_UNROLLED_MAX_OPS)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "%d steps of %d ranks one by one are more than %d operators; look at a cluster of fewer ranks",
                n_iteration, tandem_cluster_n_rank(&replayer->cluster), TANDEM_UNROLLED_MAX_OPS);
    }
    e->n_rank = tandem_cluster_n_rank(&replayer->cluster);
    e->graph.n_op = (int)n_op;
    e->graph.n_stream = 2 * e->n_rank;
    e->graph.n_group = n_iteration * e->n_bucket;
    return TANDEM_OK;
}

static int max_task_count(const tandem_replayer *replayer)
{
    int max = 0;
    for (int c = 0; c < replayer->n_class; c++)
        if (replayer->classes[c].step->n_task > max) max = replayer->classes[c].step->n_task;
    return max;
}

static int allocate_unrolled(unroll_layout *l)
{
    tandem_unrolled_step *const e = l->e;
    const size_t n_op = (size_t)e->graph.n_op, n_bucket = (size_t)e->n_bucket;
    const size_t n_edge = 2 * (size_t)e->n_rank * (size_t)e->graph.n_group,
                 n_task = (size_t)max_task_count(l->replayer);
    assert(n_op > 0 && n_task > 0 && n_bucket > 0 && e->n_class > 0 && n_edge > 0 && e->graph.n_group > 0);
    e->duration_ticks = malloc(n_op * sizeof *e->duration_ticks);
    e->task = malloc(n_op * sizeof *e->task);
    e->wait_position = malloc((size_t)e->n_class * n_bucket * sizeof *e->wait_position);
    e->graph.stream = l->stream = malloc(n_op * sizeof *l->stream);
    e->graph.group = l->group = malloc(n_op * sizeof *l->group);
    e->graph.group_size = l->group_size = malloc((size_t)e->graph.n_group * sizeof *l->group_size);
    e->graph.edge = l->edge = malloc(n_edge * sizeof *l->edge);
    l->position_of = malloc(n_task * sizeof *l->position_of);
    return e->duration_ticks && e->task && e->wait_position && l->stream && l->group && l->group_size &&
           l->edge && l->position_of;
}

tandem_status tandem_replayer_unroll(tandem_unrolled_step **unrolled, tandem_replayer *replayer,
                                     int n_iteration, tandem_error *error)
{
    if (replayer->has_contention)
        return tandem_error_set(error, TANDEM_USAGE,
                                "how long tasks or all-reduces take depends on who else is busy: no graph of "
                                "fixed durations "
                                "says that; the replay by events does");
    unroll_layout l = {.replayer = replayer, .e = calloc(1, sizeof *l.e)};
    tandem_status status = l.e ? count_operators(l.e, replayer, n_iteration, error) : TANDEM_OK;
    if (status != TANDEM_OK) goto out;
    if (!l.e || !allocate_unrolled(&l)) {
        status = tandem_no_memory(error, "for the tasks of every rank");
        goto out;
    }
    for (int c = 0; c < l.e->n_class; c++)
        memcpy(&l.e->wait_position[c * l.e->n_bucket], replayer->classes[c].wait_position,
               (size_t)l.e->n_bucket * sizeof *l.e->wait_position);
    lay_out_ranks(&l);
    *unrolled = l.e;
    l.e = NULL;
out:
    free(l.position_of);
    tandem_unrolled_step_close(l.e);
    return status;
}

void tandem_unrolled_step_close(tandem_unrolled_step *unrolled)
{
    if (!unrolled) return;
    free((void *)unrolled->graph.edge);
    free((void *)unrolled->graph.group_size);
    free((void *)unrolled->graph.group);
    free((void *)unrolled->graph.stream);
    free(unrolled->wait_position);
    free(unrolled->task);
    free(unrolled->duration_ticks);
    free(unrolled);
}

/* --- What the engine makes of it ------------------------------------------------------------------------ */

enum { N_ITERATION = 4, MAX_ROUNDS = 16 };
/* laps that differ by a hundredth of a nanosecond are the same, as in simulate.c */
static const int64_t steady_tolerance_ticks = 10;

typedef struct step_account {
    int64_t step_ticks, exposed_ticks, waiting_ticks;
    int64_t backward_ticks; /* when it ends, since the lap began */
} step_account;

static int64_t iteration_end(const tandem_unrolled_step *e, const int64_t *end_ticks, int iteration)
{
    return iteration < 0
               ? 0
               : end_ticks[tandem_unrolled_op(e, 0, 0, iteration, e->list_length[0] + e->n_bucket - 1)];
}

/* How long a rank is still in a lap when that ends. */
static int64_t carry_over_of(const tandem_unrolled_step *e, const int64_t *end_ticks, int c, int rank,
                             int iteration)
{
    const int64_t carry_over = end_ticks[tandem_unrolled_op(e, c, rank, iteration, e->list_length[c] - 1)] -
                               iteration_end(e, end_ticks, iteration);
    return carry_over > 0 ? carry_over : 0;
}

static step_account account_of_rank(const tandem_unrolled_step *e, const int64_t *end_ticks, int c, int rank,
                                    int iteration)
{
    const int *const wait_position = &e->wait_position[c * e->n_bucket];
    const int64_t begin = iteration_end(e, end_ticks, iteration - 1);
    step_account a = {.step_ticks = iteration_end(e, end_ticks, iteration) - begin};
    int64_t previous_ends = begin;
    for (int b = 0; b < e->n_bucket; b++) {
        const int reduce = tandem_unrolled_op(e, c, rank, iteration, e->list_length[c] + b);
        int64_t arrives = end_ticks[tandem_unrolled_op(e, c, rank, iteration, wait_position[b] - 1)];
        const int64_t ends = end_ticks[reduce], starts = ends - e->duration_ticks[reduce];
        if (previous_ends > arrives) arrives = previous_ends; /* nothing is done between two waits */
        previous_ends = ends;
        if (b == 0) a.backward_ticks = arrives - begin;
        if (starts > arrives) a.waiting_ticks += starts - arrives;
        if (ends > arrives) a.exposed_ticks += ends - (starts > arrives ? starts : arrives);
    }
    return a;
}

/* Whether the last lap is like the one before; else where the next round begins. Who gains as much on the
 * others in each lap will do so until it waits for them: it is put there at once; who loses as much, where
 * they wait for it. */
static int has_reached_steady_state(int64_t *carry_over_ticks, const tandem_unrolled_step *e,
                                    const int64_t *end_ticks)
{
    int is_steady = 1;
    for (int c = 0; c < e->n_class; c++) {
        int64_t carry_over[3];
        for (int k = 0; k < 3; k++) carry_over[k] = carry_over_of(e, end_ticks, c, 0, e->n_iteration - 3 + k);
        const int64_t gain = carry_over[1] - carry_over[2], previous_gain = carry_over[0] - carry_over[1];
        is_steady = is_steady && llabs(gain) <= steady_tolerance_ticks;
        carry_over_ticks[c] = carry_over[2];
        if (llabs(gain) > steady_tolerance_ticks && llabs(gain - previous_gain) <= steady_tolerance_ticks)
            carry_over_ticks[c] = gain > 0 ? 0
                                           : iteration_end(e, end_ticks, e->n_iteration - 1) -
                                                 iteration_end(e, end_ticks, e->n_iteration - 2);
    }
    return is_steady;
}

static void set_carry_over(tandem_unrolled_step *e, const tandem_cluster *cluster,
                           const int64_t *carry_over_ticks)
{
    for (int c = 0; c < e->n_class; c++)
        for (int r = 0; r < cluster->classes[c].n_rank; r++)
            e->duration_ticks[tandem_unrolled_op(e, c, r, 0, -1)] = carry_over_ticks[c];
}

static int64_t to_whole_ns(int64_t ticks)
{
    return tandem_round_noisy_ns((double)ticks / TANDEM_TICKS_PER_NS);
}

/* The last lap, of the first rank of each class; all others must be like it. */
static tandem_status report_unrolled(tandem_replay *replay, const tandem_unrolled_step *e,
                                     const tandem_cluster *cluster, const int64_t *end_ticks,
                                     tandem_error *error)
{
    int64_t latest = -1;
    *replay = (tandem_replay){.n_class = e->n_class};
    for (int c = 0; c < e->n_class; c++) {
        const step_account a = account_of_rank(e, end_ticks, c, 0, e->n_iteration - 1);
        for (int r = 1; r < cluster->classes[c].n_rank; r++) {
            const step_account other = account_of_rank(e, end_ticks, c, r, e->n_iteration - 1);
            if (memcmp(&other, &a, sizeof a) != 0)
                return tandem_error_set(error, TANDEM_BUG, "ranks 0 and %d of class %d do not do the same", r,
                                        c);
        }
        tandem_replay_class *const class = &replay->classes[c];
        replay->step_ns = to_whole_ns(a.step_ticks);
        class->exposed_comm_ns = to_whole_ns(a.exposed_ticks);
        class->wait_ns = to_whole_ns(a.exposed_ticks + a.waiting_ticks) - class->exposed_comm_ns;
        class->busy_ns = replay->step_ns - class->exposed_comm_ns - class->wait_ns;
        if (a.backward_ticks > latest) replay->slowest = c;
        if (a.backward_ticks > latest) latest = a.backward_ticks;
    }
    return TANDEM_OK;
}

static tandem_status run_rounds(tandem_replay *replay, tandem_dag_simulator *simulator,
                                tandem_unrolled_step *e, const tandem_cluster *cluster, int64_t *end_ticks,
                                tandem_error *error)
{
    int64_t carry_over_ticks[TANDEM_MAX_CLASS] = {0}, length_ticks = 0;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        set_carry_over(e, cluster, carry_over_ticks);
        const tandem_status status =
            tandem_dag_simulator_run(simulator, e->duration_ticks, NULL, end_ticks, &length_ticks, error);
        if (status != TANDEM_OK) return status;
        if (has_reached_steady_state(carry_over_ticks, e, end_ticks))
            return report_unrolled(replay, e, cluster, end_ticks, error);
    }
    return tandem_error_set(error, TANDEM_BUG, "after %d steps one is still unlike the one before",
                            N_ITERATION * MAX_ROUNDS);
}

tandem_status tandem_replayer_run_unrolled(tandem_replayer *replayer, tandem_replay *replay, int64_t *n_op,
                                           tandem_error *error)
{
    tandem_unrolled_step *e = NULL;
    tandem_dag_simulator *simulator = NULL;
    int64_t *end_ticks = NULL;
    tandem_replay found;
    tandem_status status = tandem_replayer_unroll(&e, replayer, N_ITERATION, error);
    if (status == TANDEM_OK) status = tandem_dag_simulator_open(&simulator, &e->graph, error);
    if (status != TANDEM_OK) goto out;
    end_ticks = malloc((size_t)e->graph.n_op * sizeof *end_ticks);
    if (!end_ticks) {
        status = tandem_no_memory(error, "for the times of %d operators", e->graph.n_op);
        goto out;
    }
    status = run_rounds(&found, simulator, e, &replayer->cluster, end_ticks, error);
    if (status != TANDEM_OK) goto out;
    *replay = found;
    if (n_op) *n_op = e->graph.n_op;
out:
    free(end_ticks);
    tandem_dag_simulator_close(simulator);
    tandem_unrolled_step_close(e);
    return status;
}
