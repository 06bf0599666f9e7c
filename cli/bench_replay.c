/* bench_replay.c: how many steps a second the replayer simulates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/prediction.h"

enum { BATCHES = 50 };
static const int64_t batch_ns = 2000000; /* long enough that reading the clock does not count */

typedef struct replays {
    const cli_subject *subject;
    tandem_planner *planner;
    tandem_replayer *replayer; /* the planner's */
    uint64_t count;            /* of replays so far: decides what changes next */
    int *op, n_op;             /* adjustable operators */
} replays;

/* --- Changes ---------------------------------------------------------------------------------- */

/* Number k, counted round, of the precisions that the operator has on class c. */
static tandem_precision allowed(const replays *r, int c, int op, uint64_t k)
{
    const unsigned precisions = tandem_op_row_get(r->subject->graph[0]->op[op].kind)->precisions &
                                r->subject->cluster.member[c].device.precisions;
    uint64_t place = k % (uint64_t)__builtin_popcount(precisions);
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions >> p & 1 && place-- == 0) return (tandem_precision)p;
    return TANDEM_PRECISION_FP32;
}

/* Each pass over the operators gives them the next precision. */
static void change_one(replays *r)
{
    const uint64_t place = r->count % (uint64_t)r->n_op, pass = r->count / (uint64_t)r->n_op + 1;
    for (int c = 0; c < r->subject->cluster.n_class; c++)
        tandem_replayer_set(r->replayer, c, r->op[place], allowed(r, c, r->op[place], pass));
}

static void change_all(replays *r)
{
    for (int c = 0; c < r->subject->cluster.n_class; c++)
        for (int k = 0; k < r->n_op; k++)
            tandem_replayer_set(r->replayer, c, r->op[k], allowed(r, c, r->op[k], r->count + (uint64_t)k));
}

static tandem_status replay_once(replays *r, void (*change)(replays *), unsigned flags, tandem_error *error)
{
    tandem_replay replay;
    change(r);
    r->count++;
    return tandem_replayer_run(r->replayer, &replay, flags, error);
}

/* --- Measuring -------------------------------------------------------------------------------- */

static tandem_status measure(bench_result *result, replays *r, const char *name, void (*change)(replays *),
                             unsigned flags, int64_t batches, tandem_error *error)
{
    int64_t *sample_ns = malloc((size_t)batches * sizeof *sample_ns);
    if (!sample_ns)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %lld batches", (long long)batches);
    tandem_status status = TANDEM_OK;
    for (int64_t b = 0; b < batches && status == TANDEM_OK; b++) {
        const int64_t begin = tandem_now_ns();
        int64_t n = 0, passed = 0;
        for (; passed < batch_ns && status == TANDEM_OK; n += 8, passed = tandem_now_ns() - begin)
            for (int k = 0; k < 8 && status == TANDEM_OK; k++) status = replay_once(r, change, flags, error);
        sample_ns[b] = passed / n;
    }
    if (status == TANDEM_OK) bench_add(result, name, sample_ns, batches);
    free(sample_ns);
    return status;
}

/* Every plan that measuring passes through: whether the costs suffice; also the warm-up. */
static tandem_status rehearse(replays *r, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < TANDEM_N_PRECISION * r->n_op && status == TANDEM_OK; k++)
        status = replay_once(r, change_one, 0, error);
    for (int k = 0; k < 2 * TANDEM_N_PRECISION * r->n_op && status == TANDEM_OK; k++)
        status = replay_once(r, change_all, 0, error);
    return status;
}

static tandem_status measure_all(bench_result *result, replays *r, const cli_options *options, tandem_error *error)
{
    const int64_t batches = options->repetitions > 0 ? options->repetitions : BATCHES;
    tandem_status status = measure(result, r, "replay changed", change_one, 0, batches, error);
    if (status == TANDEM_OK) status = measure(result, r, "replay all", change_all, 0, batches, error);
    if (status == TANDEM_OK)
        status = measure(result, r, "replay memory", change_one, TANDEM_REPLAY_MEMORY, batches, error);
    return status;
}

static tandem_status open_planner(replays *r, const cli_options *options, tandem_error *error)
{
    const tandem_status status = cli_planner_open(&r->planner, options, r->subject, 1, error);
    if (status == TANDEM_OK) r->replayer = tandem_planner_problem(r->planner)->replayer;
    return status;
}

/* The same over a store made for this moment. */
static tandem_status open_stand_in(replays *r, const cli_options *given, tandem_error *error)
{
    char path[BENCH_STORE_PATH];
    cli_options options = *given;
    options.db = path;
    tandem_status status = bench_store_make(path, r->subject, options.bucket_bytes, 0, error);
    if (status != TANDEM_OK) return status;
    status = open_planner(r, &options, error);
    bench_store_remove(path);
    return status;
}

/* --- The benchmark ---------------------------------------------------------------------------- */

/* With costs from the store where it holds all of them, else with one cost for everything. */
static tandem_status open_replayer(bench_result *result, replays *r, const cli_options *options, tandem_error *error)
{
    tandem_error lacks = {0};
    (void)snprintf(result->costs, sizeof result->costs, "%s", options->db);
    tandem_status status = open_planner(r, options, &lacks);
    if (status == TANDEM_OK) status = rehearse(r, &lacks);
    if (status == TANDEM_OK) return TANDEM_OK;
    if (status != TANDEM_MISSING) {
        *error = lacks;
        return status;
    }
    tandem_planner_close(r->planner);
    r->planner = NULL;
    (void)snprintf(result->costs, sizeof result->costs, "uniform 10 us");
    status = open_stand_in(r, options, error);
    return status == TANDEM_OK ? rehearse(r, error) : status;
}

static tandem_status find_operators(replays *r, tandem_error *error)
{
    const tandem_graph *graph = r->subject->graph[0];
    r->op = calloc((size_t)graph->n_op, sizeof *r->op);
    if (!r->op) return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %d operators", graph->n_op);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE) r->op[r->n_op++] = i;
    return TANDEM_OK;
}

int bench_replay(bench_result *result, const cli_options *given)
{
    cli_options options = *given;
    char pair[BENCH_PAIR];
    bench_default_pair(&options, pair);
    tandem_error error = {0};
    cli_subject subject = {0};
    replays r = {.subject = &subject};
    tandem_status status = cli_subject_open(&subject, &options, &error);
    if (status == TANDEM_OK) status = find_operators(&r, &error);
    if (status == TANDEM_OK) status = open_replayer(result, &r, &options, &error);
    if (status == TANDEM_OK) status = measure_all(result, &r, &options, &error);
    if (status == TANDEM_OK) {
        (void)snprintf(result->model, sizeof result->model, "%s", subject.graph[0]->model);
        tandem_cluster_print(result->cluster, sizeof result->cluster, &subject.cluster);
    }
    tandem_planner_close(r.planner);
    free(r.op);
    cli_subject_close(&subject);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
