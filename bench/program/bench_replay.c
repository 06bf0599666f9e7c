/* bench_replay.c: simulated steps per second of the replayer. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/program/bench.h"
#include "bench/program/bench_wide.h"

enum { BATCHES = 50, AT_ONCE = 8 };
static const int64_t batch_ns = 2000000; /* long enough to hide the cost of reading the clock */

typedef struct replay_bench {
    tandem_replayer *replayer;
    const tandem_graph *graph;
    const tandem_cluster *cluster;
    uint64_t count;    /* replays so far; selects the next change */
    int *op, n_op;     /* adjustable operators */
    int *task, n_task; /* compute tasks of the plan with all operators in fp32 */
} replay_bench;

/* --- Changes ---------------------------------------------------------------------------------- */

/* Precision number k, modulo their number, of the operator on class c. */
static tandem_precision nth_allowed_precision(const replay_bench *r, int c, int op, uint64_t k)
{
    const unsigned precisions =
        tandem_op_row_get(r->graph->op[op].kind)->precisions & r->cluster->classes[c].device.precisions;
    uint64_t index = k % (uint64_t)__builtin_popcount(precisions);
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions >> p & 1 && index-- == 0) return (tandem_precision)p;
    return TANDEM_PRECISION_FP32;
}

/* Each round over the operators gives them the next precision. */
static void change_one_operator(replay_bench *r)
{
    const uint64_t index = r->count % (uint64_t)r->n_op, pass = r->count / (uint64_t)r->n_op + 1;
    for (int c = 0; c < r->cluster->n_class; c++)
        tandem_replayer_set(r->replayer, c, r->op[index], nth_allowed_precision(r, c, r->op[index], pass));
}

static void change_all_precisions(replay_bench *r)
{
    for (int c = 0; c < r->cluster->n_class; c++)
        for (int k = 0; k < r->n_op; k++)
            tandem_replayer_set(r->replayer, c, r->op[k],
                                nth_allowed_precision(r, c, r->op[k], r->count + (uint64_t)k));
}

/* Lowers one operator of one class, and raises it again the next time. */
static void flip_operator(replay_bench *r)
{
    const uint64_t turn = r->count / 2;
    const int c = (int)(turn % (uint64_t)r->cluster->n_class);
    const int op = r->op[turn / (uint64_t)r->cluster->n_class % (uint64_t)r->n_op];
    const unsigned narrower =
        (unsigned)__builtin_popcount(tandem_op_row_get(r->graph->op[op].kind)->precisions &
                                     r->cluster->classes[c].device.precisions) -
        1;
    tandem_replayer_set(r->replayer, c, op,
                        r->count % 2 || !narrower ? TANDEM_PRECISION_FP32
                                                  : nth_allowed_precision(r, c, op, 1 + turn % narrower));
}

/* Changes the time of one task of one class. */
static void change_one_cost(replay_bench *r)
{
    const int c = (int)(r->count % (uint64_t)r->cluster->n_class);
    const int t = r->task[r->count * 7919 % (uint64_t)r->n_task];
    tandem_replayer_set_variant_ns(r->replayer, c, t, tandem_replayer_step(r->replayer, c)->task[t].variant,
                                   0, 5000 + (int64_t)(r->count * 104729 % 15000));
}

static tandem_status change_and_replay(replay_bench *r, void (*change)(replay_bench *), unsigned flags,
                                       tandem_error *error)
{
    tandem_replay replay;
    change(r);
    r->count++;
    return tandem_replayer_run(r->replayer, &replay, flags, error);
}

/* --- Measuring -------------------------------------------------------------------------------- */

static tandem_status measure_replays(bench_result *result, replay_bench *r, const char *name,
                                     void (*change)(replay_bench *), unsigned flags, int64_t batches,
                                     tandem_error *error)
{
    int64_t *sample_ns = malloc((size_t)batches * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %lld batches", (long long)batches);
    tandem_status status = TANDEM_OK;
    r->count = 0;
    for (int64_t b = 0; b < batches && status == TANDEM_OK; b++) {
        const int64_t begin = tandem_now_ns();
        int64_t n = 0, passed = 0;
        for (; passed < batch_ns && status == TANDEM_OK; n += AT_ONCE, passed = tandem_now_ns() - begin)
            for (int k = 0; k < AT_ONCE && status == TANDEM_OK; k++)
                status = change_and_replay(r, change, flags, error);
        sample_ns[b] = passed / n;
    }
    if (status == TANDEM_OK) bench_add_case(result, name, sample_ns, batches);
    free(sample_ns);
    return status;
}

static void set_all_fp32(replay_bench *r)
{
    for (int c = 0; c < r->cluster->n_class; c++)
        for (int k = 0; k < r->n_op; k++)
            tandem_replayer_set(r->replayer, c, r->op[k], TANDEM_PRECISION_FP32);
}

typedef struct replay_case {
    const char *name;
    void (*change)(replay_bench *r);
    unsigned flags;
} replay_case;

static tandem_status measure_replay_cases(bench_result *result, replay_bench *r, const char *prefix,
                                          const replay_case *cases, int n_case, int64_t batches,
                                          tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n_case && status == TANDEM_OK; k++) {
        char name[96];
        (void)snprintf(name, sizeof name, "%s%s", prefix, cases[k].name);
        set_all_fp32(r);
        status = measure_replays(result, r, name, cases[k].change, cases[k].flags, batches, error);
    }
    return status;
}

/* Finds the operators and tasks to change. */
static tandem_status find_changeable_tasks(replay_bench *r, tandem_error *error)
{
    const tandem_step *step = tandem_replayer_step(r->replayer, 0);
    r->op = calloc((size_t)r->graph->n_op, sizeof *r->op);
    r->task = calloc((size_t)step->n_task, sizeof *r->task);
    if (!r->op || !r->task) return tandem_no_memory(error, "for %d operators", r->graph->n_op);
    r->n_op = r->n_task = 0;
    for (int i = 0; i < r->graph->n_op; i++)
        if (tandem_op_is_adjustable(&r->graph->op[i])) r->op[r->n_op++] = i;
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active && step->task[t].stream == TANDEM_STREAM_COMPUTE) r->task[r->n_task++] = t;
    if (r->n_op > 0 && r->n_task > 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_WRONG_GRAPH, "model '%s' has no adjustable operator",
                            r->graph->model);
}

static void close_replays(replay_bench *r)
{
    free(r->task);
    free(r->op);
    tandem_replayer_close(r->replayer);
    *r = (replay_bench){.replayer = NULL};
}

/* --- The model that is asked for ---------------------------------------------------------------- */

/* Replays every plan of the measurement: checks that the costs suffice, and warms up. */
static tandem_status warm_up_replays(replay_bench *r, tandem_error *error)
{
    tandem_status status = find_changeable_tasks(r, error);
    for (int k = 0; k < TANDEM_N_PRECISION * r->n_op && status == TANDEM_OK; k++)
        status = change_and_replay(r, change_one_operator, 0, error);
    for (int k = 0; k < 2 * TANDEM_N_PRECISION * r->n_op && status == TANDEM_OK; k++)
        status = change_and_replay(r, change_all_precisions, 0, error);
    return status;
}

static tandem_status open_replays_from_store(replay_bench *r, const char *path,
                                             const tandem_graph *const *graph, uint64_t bucket_bytes,
                                             tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK)
        status = tandem_replayer_open(&r->replayer, r->cluster, graph, store, bucket_bytes, error);
    tandem_store_close(store);
    return status;
}

static tandem_status open_replays_synthetic(replay_bench *r, const tandem_graph *const *graph,
                                            uint64_t bucket_bytes, tandem_error *error)
{
    char path[SCRATCH_STORE];
    tandem_status status = bench_store_make(path, r->cluster, graph, bucket_bytes, 0, error);
    if (status != TANDEM_OK) return status;
    status = open_replays_from_store(r, path, graph, bucket_bytes, error);
    scratch_store_remove(path);
    return status;
}

/* Uses the store if it has all costs, else synthetic costs. */
static tandem_status open_replays(bench_result *result, replay_bench *r, const cli_options *options,
                                  const tandem_workload *workload, tandem_error *error)
{
    const replay_bench closed = {.graph = workload->graph[0], .cluster = &workload->cluster};
    const tandem_graph *const *graph = (const tandem_graph *const *)workload->graph;
    tandem_error missing = {0};
    *r = closed;
    (void)snprintf(result->costs, sizeof result->costs, "%s", options->db);
    tandem_status status = open_replays_from_store(r, options->db, graph, options->bucket_bytes, &missing);
    if (status == TANDEM_OK) status = warm_up_replays(r, &missing);
    if (status == TANDEM_OK) return TANDEM_OK;
    close_replays(r);
    if (status != TANDEM_MISSING) {
        *error = missing;
        return status;
    }
    *r = closed;
    (void)snprintf(result->costs, sizeof result->costs, "%s", BENCH_STORE_COSTS);
    status = open_replays_synthetic(r, graph, options->bucket_bytes, error);
    return status == TANDEM_OK ? warm_up_replays(r, error) : status;
}

static tandem_status measure_model_replays(bench_result *result, const cli_options *options, int64_t batches,
                                           tandem_error *error)
{
    static const replay_case cases[] = {{"replay changed", change_one_operator, 0},
                                        {"replay all", change_all_precisions, 0},
                                        {"replay memory", change_one_operator, TANDEM_REPLAY_MEMORY},
                                        {"replay flipped", flip_operator, 0},
                                        {"replay cost", change_one_cost, TANDEM_REPLAY_MEMORY}};
    tandem_workload workload = {0};
    replay_bench r = {.replayer = NULL};
    tandem_status status = cli_workload_open(&workload, options, error);
    if (status == TANDEM_OK) status = open_replays(result, &r, options, &workload, error);
    if (status == TANDEM_OK)
        status = measure_replay_cases(result, &r, "", cases, sizeof cases / sizeof *cases, batches, error);
    if (status == TANDEM_OK) bench_set_name(result, &workload);
    close_replays(&r);
    tandem_workload_close(&workload);
    return status;
}

/* --- 1,000 operators ---------------------------------------------------------------------------- */

/* On the slow link, classes wait for the network. On the fast one, updates remain after the last bucket, and
 * a replay takes several iterations. */
#define SLOW_LINK 1e8
#define FAST_LINK 1e11

typedef struct wide_cluster {
    const char *name;
    int n_class, n_rank;
    double link_bytes_per_s; /* 0: on one CPU */
    int n_case;
} wide_cluster;

static tandem_status measure_wide_cluster(bench_result *result, const tandem_graph *graph,
                                          const wide_cluster *wide, int64_t batches, tandem_error *error)
{
    static const replay_case cases[] = {{"cost", change_one_cost, TANDEM_REPLAY_MEMORY},
                                        {"flipped", flip_operator, 0}};
    const tandem_graph *graphs[TANDEM_MAX_CLASS];
    tandem_cluster cluster;
    char prefix[96];
    replay_bench r = {.graph = graph, .cluster = &cluster};
    tandem_status status = TANDEM_OK;
    if (wide->link_bytes_per_s > 0)
        bench_wide_cluster(&cluster, wide->n_class, wide->n_rank, wide->link_bytes_per_s);
    else
        status = tandem_cluster_parse(&cluster, "cpu:avx512_bf16 + cpu:sse41", error);
    (void)snprintf(prefix, sizeof prefix, "%d op, %s: ", BENCH_WIDE_OPS, wide->name);
    for (int c = 0; c < wide->n_class; c++) graphs[c] = graph;
    if (status == TANDEM_OK) status = open_replays_synthetic(&r, graphs, BENCH_WIDE_BUCKET_BYTES, error);
    if (status == TANDEM_OK) status = find_changeable_tasks(&r, error);
    if (status == TANDEM_OK)
        status = measure_replay_cases(result, &r, prefix, cases, wide->n_case, batches, error);
    close_replays(&r);
    return status;
}

/* A Monte Carlo step with every rank simulated; warm-up steps count, too. */
static tandem_status measure_monte_carlo(bench_result *result, const tandem_graph *graph, int n_rank,
                                         tandem_error *error)
{
    enum { SAMPLES = 10, SIMULATIONS = 20, WITH_WARM_UP = SIMULATIONS + 4 };
    const tandem_graph *graphs[2] = {graph, graph};
    const tandem_monte_carlo_options options = {.n_simulation = SIMULATIONS, .spread = -1};
    tandem_cluster cluster;
    tandem_monte_carlo noise;
    int64_t sample_ns[SAMPLES];
    char name[96];
    replay_bench r = {.graph = graph, .cluster = &cluster};
    bench_wide_cluster(&cluster, 2, n_rank, SLOW_LINK);
    (void)snprintf(name, sizeof name, "%d op, %d ranks one by one: drawn", BENCH_WIDE_OPS, n_rank);
    tandem_status status = open_replays_synthetic(&r, graphs, BENCH_WIDE_BUCKET_BYTES, error);
    for (int k = 0; k < SAMPLES && status == TANDEM_OK; k++) {
        const int64_t begin = tandem_now_ns();
        status = tandem_replayer_monte_carlo(&noise, r.replayer, &options, error);
        sample_ns[k] = (tandem_now_ns() - begin) / WITH_WARM_UP;
    }
    if (status == TANDEM_OK) bench_add_case(result, name, sample_ns, SAMPLES);
    close_replays(&r);
    return status;
}

static tandem_status measure_wide_graph(bench_result *result, int64_t batches, tandem_error *error)
{
    static const wide_cluster clusters[] = {
        {"2 classes, 2 ranks", 2, 2, SLOW_LINK, 1},   {"2 classes, 12288 ranks", 2, 12288, SLOW_LINK, 1},
        {"2 classes, 32 ranks", 2, 32, SLOW_LINK, 2}, {"2 classes, fast link", 2, 32, FAST_LINK, 2},
        {"32 classes", 32, 32, SLOW_LINK, 2},         {"2 classes, one CPU", 2, 2, 0, 2}};
    tandem_graph *graph = NULL;
    tandem_status status = bench_wide_graph(&graph, error);
    for (size_t k = 0; k < sizeof clusters / sizeof *clusters && status == TANDEM_OK; k++)
        status = measure_wide_cluster(result, graph, &clusters[k], batches, error);
    for (int n_rank = 32; n_rank <= 128 && status == TANDEM_OK; n_rank *= 4)
        status = measure_monte_carlo(result, graph, n_rank, error);
    tandem_graph_close(graph);
    return status;
}

/* --- The benchmark ---------------------------------------------------------------------------- */

int bench_replay(bench_result *result, const cli_options *given)
{
    cli_options options = *given;
    char pair[BENCH_PAIR];
    bench_default_pair(&options, pair);
    tandem_error error = {0};
    const int64_t batches = options.repetitions > 0 ? options.repetitions : BATCHES;
    tandem_status status = measure_model_replays(result, &options, batches, &error);
    if (status == TANDEM_OK) status = measure_wide_graph(result, batches, &error);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
