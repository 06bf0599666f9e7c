/* expand.c: a step as a graph for the general engine, every rank by itself; and what that makes of it. */
#include "tandem/expansion.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "replayer/stages.h"

/* --- The graph ------------------------------------------------------------------------------------------ */

/* What the graph's arrays are while they are made. */
typedef struct layout {
    tandem_expansion *e;
    tandem_replayer *replayer;
    int *stream, *group;
    int *group_size;
    tandem_engine_edge *edge;
    int *place_of; /* [n_task] of the class at hand */
    int n_op;      /* laid out so far */
} layout;

static int64_t ticks_of(double ns)
{
    return (int64_t)(ns * TANDEM_TICKS_A_NS);
} /* exact: see wire_ns in stages.h */

static void put(layout *l, int stream, int group, int task, int64_t duration_ticks)
{
    l->stream[l->n_op] = stream;
    l->group[l->n_op] = group;
    l->e->task[l->n_op] = task;
    l->e->duration_ticks[l->n_op++] = duration_ticks;
}

static void join(layout *l, int before, int after)
{
    l->edge[l->e->graph.n_edge++] = (tandem_engine_edge){before, after};
}

static void lay_out_lap(layout *l, int c, int rank_of_class, int rank, int lap)
{
    tandem_expansion *const e = l->e;
    const tandem_replay_member *const member = &l->replayer->member[c];
    const int n_bucket = e->n_bucket, n_place = e->n_place[c], *wait_place = &e->wait_place[c * n_bucket];
    const int first = tandem_expansion_op(e, c, rank_of_class, lap, 0), reduce = first + n_place;
    for (int k = 0; k < n_place; k++)
        put(l, 2 * rank, -1, member->task[k],
            member->price_ns[member->task[k]][TANDEM_USUAL] * TANDEM_TICKS_A_NS);
    for (int b = 0; b < n_bucket; b++) {
        const tandem_bucket *const bucket = &member->step->bucket[b];
        put(l, 2 * rank + 1, lap * n_bucket + b, bucket->reduce_task, ticks_of(l->replayer->wire_ns[0][b]));
        join(l, first + l->place_of[bucket->ready_task], reduce + b);
        const int behind = wait_place[b] < n_place ? first + wait_place[b] /* what waits for it */
                           : lap < e->n_lap - 1    ? tandem_expansion_op(e, c, rank_of_class, lap + 1, 0)
                                                   : -1;
        if (behind >= 0) join(l, reduce + b, behind);
    }
}

static void lay_out(layout *l)
{
    tandem_expansion *const e = l->e;
    for (int c = 0, rank = 0; c < e->n_class; c++) {
        const tandem_replay_member *const member = &l->replayer->member[c];
        for (int k = 0; k < member->n_place; k++) l->place_of[member->task[k]] = k;
        for (int r = 0; r < l->replayer->cluster.member[c].n_rank; r++, rank++) {
            put(l, 2 * rank, -1, -1, 0);
            for (int lap = 0; lap < e->n_lap; lap++) lay_out_lap(l, c, r, rank, lap);
        }
    }
    for (int g = 0; g < e->graph.n_group; g++) l->group_size[g] = e->n_rank;
}

/* Finds out how much there will be. */
static tandem_status measure(tandem_expansion *e, tandem_replayer *replayer, int n_lap, tandem_error *error)
{
    int64_t n_op = 0;
    e->n_class = replayer->n_class;
    e->n_bucket = replayer->n_bucket;
    e->n_lap = n_lap;
    for (int c = 0; c < e->n_class; c++) {
        tandem_replay_list(&replayer->member[c]);
        const int64_t a_rank = 1 + (int64_t)n_lap * (replayer->member[c].n_place + e->n_bucket);
        e->n_place[c] = replayer->member[c].n_place;
        e->first[c] = (int)n_op;
        n_op += a_rank * replayer->cluster.member[c].n_rank;
        if (n_op > TANDEM_EXPANSION_MOST_OPS)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "%d steps of %d ranks one by one are more than %d operators; look at a cluster of fewer ranks",
                n_lap, tandem_cluster_n_rank(&replayer->cluster), TANDEM_EXPANSION_MOST_OPS);
    }
    e->n_rank = tandem_cluster_n_rank(&replayer->cluster);
    e->graph.n_op = (int)n_op;
    e->graph.n_stream = 2 * e->n_rank;
    e->graph.n_group = n_lap * e->n_bucket;
    return TANDEM_OK;
}

static int most_tasks(const tandem_replayer *replayer)
{
    int most = 0;
    for (int c = 0; c < replayer->n_class; c++)
        if (replayer->member[c].step->n_task > most) most = replayer->member[c].step->n_task;
    return most;
}

static int allocate(layout *l)
{
    tandem_expansion *const e = l->e;
    const size_t n_op = (size_t)e->graph.n_op, n_bucket = (size_t)e->n_bucket;
    const size_t n_edge = 2 * (size_t)e->n_rank * (size_t)e->graph.n_group,
                 n_task = (size_t)most_tasks(l->replayer);
    assert(n_op > 0 && n_task > 0 && n_bucket > 0 && e->n_class > 0 && n_edge > 0 && e->graph.n_group > 0);
    e->duration_ticks = malloc(n_op * sizeof *e->duration_ticks);
    e->task = malloc(n_op * sizeof *e->task);
    e->wait_place = malloc((size_t)e->n_class * n_bucket * sizeof *e->wait_place);
    e->graph.stream = l->stream = malloc(n_op * sizeof *l->stream);
    e->graph.group = l->group = malloc(n_op * sizeof *l->group);
    e->graph.group_size = l->group_size = malloc((size_t)e->graph.n_group * sizeof *l->group_size);
    e->graph.edge = l->edge = malloc(n_edge * sizeof *l->edge);
    l->place_of = malloc(n_task * sizeof *l->place_of);
    return e->duration_ticks && e->task && e->wait_place && l->stream && l->group && l->group_size &&
           l->edge && l->place_of;
}

tandem_status tandem_replayer_expand(tandem_expansion **expansion, tandem_replayer *replayer, int n_lap,
                                     tandem_error *error)
{
    if (replayer->interferes)
        return tandem_error_set(error, TANDEM_USAGE,
                                "how long tasks or all-reduces take depends on who else is busy: no graph of "
                                "fixed durations "
                                "says that; the replay by events does");
    layout l = {.replayer = replayer, .e = calloc(1, sizeof *l.e)};
    tandem_status status = l.e ? measure(l.e, replayer, n_lap, error) : TANDEM_OK;
    if (status != TANDEM_OK) goto out;
    if (!l.e || !allocate(&l)) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the tasks of every rank");
        goto out;
    }
    for (int c = 0; c < l.e->n_class; c++)
        memcpy(&l.e->wait_place[c * l.e->n_bucket], replayer->member[c].wait_place,
               (size_t)l.e->n_bucket * sizeof *l.e->wait_place);
    lay_out(&l);
    *expansion = l.e;
    l.e = NULL;
out:
    free(l.place_of);
    tandem_expansion_close(l.e);
    return status;
}

void tandem_expansion_close(tandem_expansion *expansion)
{
    if (!expansion) return;
    free((void *)expansion->graph.edge);
    free((void *)expansion->graph.group_size);
    free((void *)expansion->graph.group);
    free((void *)expansion->graph.stream);
    free(expansion->wait_place);
    free(expansion->task);
    free(expansion->duration_ticks);
    free(expansion);
}

/* --- What the engine makes of it ------------------------------------------------------------------------ */

enum { LAPS = 4, MOST_ROUNDS = 16 };
/* laps that differ by a hundredth of a nanosecond are the same, as in simulate.c */
static const int64_t same_ticks = 10;

typedef struct account {
    int64_t step_ticks, exposed_ticks, waiting_ticks;
    int64_t backward_ticks; /* when it ends, since the lap began */
} account;

static int64_t lap_end(const tandem_expansion *e, const int64_t *end_ticks, int lap)
{
    return lap < 0 ? 0 : end_ticks[tandem_expansion_op(e, 0, 0, lap, e->n_place[0] + e->n_bucket - 1)];
}

/* How long a rank is still in a lap when that ends. */
static int64_t rest_of(const tandem_expansion *e, const int64_t *end_ticks, int c, int rank, int lap)
{
    const int64_t rest =
        end_ticks[tandem_expansion_op(e, c, rank, lap, e->n_place[c] - 1)] - lap_end(e, end_ticks, lap);
    return rest > 0 ? rest : 0;
}

static account account_of(const tandem_expansion *e, const int64_t *end_ticks, int c, int rank, int lap)
{
    const int *const wait_place = &e->wait_place[c * e->n_bucket];
    const int64_t begin = lap_end(e, end_ticks, lap - 1);
    account a = {.step_ticks = lap_end(e, end_ticks, lap) - begin};
    int64_t former_ends = begin;
    for (int b = 0; b < e->n_bucket; b++) {
        const int reduce = tandem_expansion_op(e, c, rank, lap, e->n_place[c] + b);
        int64_t comes = end_ticks[tandem_expansion_op(e, c, rank, lap, wait_place[b] - 1)];
        const int64_t ends = end_ticks[reduce], starts = ends - e->duration_ticks[reduce];
        if (former_ends > comes) comes = former_ends; /* nothing is done between two waits */
        former_ends = ends;
        if (b == 0) a.backward_ticks = comes - begin;
        if (starts > comes) a.waiting_ticks += starts - comes;
        if (ends > comes) a.exposed_ticks += ends - (starts > comes ? starts : comes);
    }
    return a;
}

/* Whether the last lap is like the one before; else where the next round begins. Who gains as much on the
 * others in each lap will do so until it waits for them: it is put there at once; who loses as much, where
 * they wait for it. */
static int has_settled(int64_t *rest_ticks, const tandem_expansion *e, const int64_t *end_ticks)
{
    int settled = 1;
    for (int c = 0; c < e->n_class; c++) {
        int64_t rest[3];
        for (int k = 0; k < 3; k++) rest[k] = rest_of(e, end_ticks, c, 0, e->n_lap - 3 + k);
        const int64_t gain = rest[1] - rest[2], former = rest[0] - rest[1];
        settled = settled && llabs(gain) <= same_ticks;
        rest_ticks[c] = rest[2];
        if (llabs(gain) > same_ticks && llabs(gain - former) <= same_ticks)
            rest_ticks[c] =
                gain > 0 ? 0 : lap_end(e, end_ticks, e->n_lap - 1) - lap_end(e, end_ticks, e->n_lap - 2);
    }
    return settled;
}

static void begin_with(tandem_expansion *e, const tandem_cluster *cluster, const int64_t *rest_ticks)
{
    for (int c = 0; c < e->n_class; c++)
        for (int r = 0; r < cluster->member[c].n_rank; r++)
            e->duration_ticks[tandem_expansion_op(e, c, r, 0, -1)] = rest_ticks[c];
}

static int64_t whole_ns(int64_t ticks) { return tandem_rounded_ns((double)ticks / TANDEM_TICKS_A_NS); }

/* The last lap, of the first rank of each class; all others must be like it. */
static tandem_status report(tandem_replay *replay, const tandem_expansion *e, const tandem_cluster *cluster,
                            const int64_t *end_ticks, tandem_error *error)
{
    int64_t latest = -1;
    *replay = (tandem_replay){.n_class = e->n_class};
    for (int c = 0; c < e->n_class; c++) {
        const account a = account_of(e, end_ticks, c, 0, e->n_lap - 1);
        for (int r = 1; r < cluster->member[c].n_rank; r++) {
            const account other = account_of(e, end_ticks, c, r, e->n_lap - 1);
            if (memcmp(&other, &a, sizeof a) != 0)
                return tandem_error_set(error, TANDEM_BUG, "ranks 0 and %d of class %d do not do the same", r,
                                        c);
        }
        tandem_replay_class *const member = &replay->member[c];
        replay->step_ns = whole_ns(a.step_ticks);
        member->exposed_comm_ns = whole_ns(a.exposed_ticks);
        member->wait_ns = whole_ns(a.exposed_ticks + a.waiting_ticks) - member->exposed_comm_ns;
        member->busy_ns = replay->step_ns - member->exposed_comm_ns - member->wait_ns;
        if (a.backward_ticks > latest) replay->slowest = c;
        if (a.backward_ticks > latest) latest = a.backward_ticks;
    }
    return TANDEM_OK;
}

static tandem_status run_rounds(tandem_replay *replay, tandem_engine *engine, tandem_expansion *e,
                                const tandem_cluster *cluster, int64_t *end_ticks, tandem_error *error)
{
    int64_t rest_ticks[TANDEM_MAX_CLASS] = {0}, length_ticks = 0;
    for (int round = 0; round < MOST_ROUNDS; round++) {
        begin_with(e, cluster, rest_ticks);
        const tandem_status status =
            tandem_engine_run(engine, e->duration_ticks, NULL, end_ticks, &length_ticks, error);
        if (status != TANDEM_OK) return status;
        if (has_settled(rest_ticks, e, end_ticks)) return report(replay, e, cluster, end_ticks, error);
    }
    return tandem_error_set(error, TANDEM_BUG, "after %d steps one is still unlike the one before",
                            LAPS * MOST_ROUNDS);
}

tandem_status tandem_replayer_run_expanded(tandem_replayer *replayer, tandem_replay *replay, int64_t *n_op,
                                           tandem_error *error)
{
    tandem_expansion *e = NULL;
    tandem_engine *engine = NULL;
    int64_t *end_ticks = NULL;
    tandem_replay found;
    tandem_status status = tandem_replayer_expand(&e, replayer, LAPS, error);
    if (status == TANDEM_OK) status = tandem_engine_open(&engine, &e->graph, error);
    if (status != TANDEM_OK) goto out;
    end_ticks = malloc((size_t)e->graph.n_op * sizeof *end_ticks);
    if (!end_ticks) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the times of %d operators",
                                  e->graph.n_op);
        goto out;
    }
    status = run_rounds(&found, engine, e, &replayer->cluster, end_ticks, error);
    if (status != TANDEM_OK) goto out;
    *replay = found;
    if (n_op) *n_op = e->graph.n_op;
out:
    free(end_ticks);
    tandem_engine_close(engine);
    tandem_expansion_close(e);
    return status;
}
