/* bench_trace.c: speed of reading, writing and simulating traces. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/philox.h"
#include "bench/program/bench.h"
#include "tandem/advanced/dag_simulator.h"
#include "tandem/advanced/torch_trace.h"
#include "tandem/advanced/trace.h"

enum { REPETITIONS = 10 };

/* The measured function. */
typedef tandem_status (*bench_callback)(void *context, tandem_error *error);

static tandem_status measure_callback(bench_result *result, const char *name, bench_callback run,
                                      void *context, int64_t n, tandem_error *error)
{
    int64_t *const sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %" PRId64 " samples", n);
    tandem_status status = run(context, error); /* warm-up */
    for (int64_t k = 0; k < n && status == TANDEM_OK; k++) {
        const int64_t begin_ns = tandem_now_ns();
        status = run(context, error);
        sample_ns[k] = tandem_now_ns() - begin_ns;
    }
    if (status == TANDEM_OK) bench_add_case(result, name, sample_ns, n);
    free(sample_ns);
    return status;
}

/* The rate of the last case, in things per second, from things per run. */
static double last_case_rate(const bench_result *result, double things)
{
    return things / ((double)result->one[result->n_case - 1].median_ns / 1e9);
}

/* --- The DAG simulator: 1,000 ranks that compute, send and reduce together ------------------------------ */

enum {
    RANKS = 1000,
    ROUNDS = 24,
    ROUND_OPS = 3,
    REDUCES = 8,
    RANK_OPS = ROUNDS * ROUND_OPS + REDUCES,
    SIMULATOR_OPS = RANKS * RANK_OPS
};

typedef struct simulator_work {
    tandem_dag_simulator *simulator;
    int *stream, *group;
    tandem_dag_edge *edge;
    int64_t *duration_ns;
    int64_t length_ns;
    tandem_dag graph;
} simulator_work;

/* Each rank computes, sends to the next rank and receives from the previous one, ROUNDS times; then come
 * collectives. */
static void add_rank_operators(simulator_work *w, int rank)
{
    int op = rank * RANK_OPS;
    for (int round = 0; round < ROUNDS; round++, op += ROUND_OPS) {
        for (int k = 0; k < ROUND_OPS; k++) w->stream[op + k] = ROUND_OPS * rank + k;
        w->group[op] = -1;
        w->group[op + 1] = round * RANKS + rank;
        w->group[op + 2] = round * RANKS + (rank + RANKS - 1) % RANKS;
        w->edge[w->graph.n_edge++] = (tandem_dag_edge){op, op + 1};
        w->edge[w->graph.n_edge++] = (tandem_dag_edge){op, op + 2};
        if (round > 0) w->edge[w->graph.n_edge++] = (tandem_dag_edge){op - 1, op};
    }
    for (int k = 0; k < REDUCES; k++, op++) {
        w->stream[op] = ROUND_OPS * rank;
        w->group[op] = ROUNDS * RANKS + k;
    }
}

static tandem_status run_simulator(void *context, tandem_error *error)
{
    simulator_work *const w = context;
    return tandem_dag_simulator_run(w->simulator, w->duration_ns, NULL, NULL, &w->length_ns, error);
}

static tandem_status open_simulator(void *context, tandem_error *error)
{
    simulator_work *const w = context;
    tandem_dag_simulator_close(w->simulator);
    w->simulator = NULL;
    return tandem_dag_simulator_open(&w->simulator, &w->graph, error);
}

static tandem_status bench_simulator(bench_result *result, int64_t n, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    simulator_work w = {.stream = malloc(SIMULATOR_OPS * sizeof(int)),
                        .group = malloc(SIMULATOR_OPS * sizeof(int)),
                        .edge = malloc(SIMULATOR_OPS * sizeof(tandem_dag_edge)),
                        .duration_ns = malloc(SIMULATOR_OPS * sizeof(int64_t))};
    if (!w.stream || !w.group || !w.edge || !w.duration_ns) {
        status = tandem_no_memory(error, "for %d operators", SIMULATOR_OPS);
        goto out;
    }
    for (int rank = 0; rank < RANKS; rank++) add_rank_operators(&w, rank);
    for (uint32_t i = 0; i < SIMULATOR_OPS; i++)
        w.duration_ns[i] = tandem_philox((const uint32_t[4]){i, 0, 0, 0}, 1).word[0] >> 12;
    w.graph.n_op = SIMULATOR_OPS;
    w.graph.n_stream = ROUND_OPS * RANKS;
    w.graph.n_group = ROUNDS * RANKS + REDUCES;
    w.graph.stream = w.stream;
    w.graph.group = w.group;
    w.graph.edge = w.edge;
    status = measure_callback(result, "DAG opens", open_simulator, &w, n, error);
    if (status == TANDEM_OK)
        result->one[result->n_case - 1].events_per_s = last_case_rate(result, SIMULATOR_OPS);
    if (status == TANDEM_OK) status = measure_callback(result, "DAG runs", run_simulator, &w, 10 * n, error);
    if (status == TANDEM_OK)
        result->one[result->n_case - 1].events_per_s = last_case_rate(result, SIMULATOR_OPS);
out:
    tandem_dag_simulator_close(w.simulator);
    free(w.duration_ns);
    free(w.edge);
    free(w.group);
    free(w.stream);
    return status;
}

/* --- Reading what the PyTorch profiler writes ----------------------------------------------------------- */

enum { TEXT_BYTES = 64 << 20, MAX_EVENT_BYTES = 2048 };

typedef struct torch_text {
    char *text;
    size_t n;
} torch_text;

/* An operator and its kernel, as the profiler prints them. */
static size_t print_torch_events(char *to, int64_t k)
{
    const long long at = (long long)(1694639310786340 + 11 * k);
    return (size_t)snprintf(
        to, MAX_EVENT_BYTES,
        "%s  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 4242, \"tid\": 4242,\n"
        "    \"ts\": %lld.%03d, \"dur\": 9.217,\n    \"args\": {\n      \"External id\": %lld,\"Record "
        "function id\": 0, "
        "\"Concrete Inputs\": [\"\", \"\", \"\", \"1\", \"1\"], \"Input type\": [\"float\", \"float\", "
        "\"float\", \"Scalar\", \"Scalar\"], "
        "\"Input Strides\": [[1], [768, 1], [1, 768], [], []], \"Input Dims\": [[768], [4096, 768], [768, "
        "%d], [], []], \"Ev Idx\": "
        "%lld\n    }\n  },\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void "
        "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "at::detail::Array<char*, 3> >(int, "
        "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)\", \"pid\": 0, \"tid\": 7,\n    "
        "\"ts\": %lld.250, \"dur\": "
        "4.129,\n    \"args\": {\n      \"External id\": %lld,\n      \"queued\": 0, \"device\": 0, "
        "\"context\": 1,\n      "
        "\"stream\": 7, \"correlation\": %lld,\n      \"registers per thread\": 20,\n      \"shared "
        "memory\": 0,\n      \"blocks "
        "per SM\": 37.925926,\n      \"warps per SM\": 151.703705,\n      \"grid\": [4096, 1, 1],\n      "
        "\"block\": [128, 1, 1],\n      \"est. achieved occupancy %%\": 100\n    }\n  }",
        k ? ",\n" : "", k % 3 ? "aten::addmm" : "aten::_to_copy", at, (int)(k % 1000), (long long)k,
        k % 2 ? 768 : 3072, (long long)k, at, (long long)k, (long long)k);
}

static tandem_status parse_torch_text(void *context, tandem_error *error)
{
    const torch_text *const w = context;
    tandem_torch_summary *torch = NULL;
    const tandem_status status = tandem_torch_parse(&torch, w->text, w->n, "made up", error);
    tandem_torch_close(torch);
    return status;
}

static tandem_status bench_torch_reader(bench_result *result, int64_t n, tandem_error *error)
{
    torch_text w = {.text = malloc(TEXT_BYTES)};
    if (!w.text) return tandem_no_memory(error, "for a text of %d bytes", TEXT_BYTES);
    w.n = (size_t)sprintf(
        w.text, "{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, "
                "\"world_size\": 8},\n  \"traceEvents\": [\n");
    for (int64_t k = 0; w.n < TEXT_BYTES - MAX_EVENT_BYTES - 8; k++)
        w.n += print_torch_events(w.text + w.n, k);
    w.n += (size_t)sprintf(w.text + w.n, "]}\n");
    const tandem_status status = measure_callback(result, "torch JSON", parse_torch_text, &w, n, error);
    if (status == TANDEM_OK)
        result->one[result->n_case - 1].bytes_per_s = last_case_rate(result, (double)w.n);
    free(w.text);
    return status;
}

/* --- Writing a step of many ranks ----------------------------------------------------------------------- */

enum { N_TRACK = 500, TASK_NS = 12345 };

typedef struct trace_work {
    tandem_graph *graph;
    tandem_step *step;
    tandem_trace_event *event; /* [n_task] */
    tandem_trace_track *track; /* [LANES] */
} trace_work;

static tandem_status write_bench_tracks(void *context, tandem_error *error)
{
    const trace_work *const w = context;
    return tandem_trace_write("/dev/null", "made up", w->track, N_TRACK, error);
}

/* Tasks one after another, all-reduces in parallel. */
static void fill_bench_tracks(trace_work *w)
{
    int n = 0;
    int64_t now_ns = 0, wire_ns = 0;
    for (int t = 0; t < w->step->n_task; t++) {
        const int is_reduce = w->step->task[t].stream == TANDEM_STREAM_COMM;
        if (!w->step->task[t].active) continue;
        if (is_reduce && wire_ns < now_ns) wire_ns = now_ns;
        if (w->step->task[t].kind == TANDEM_TASK_UPDATE && now_ns < wire_ns) now_ns = wire_ns;
        int64_t *const clock_ns = is_reduce ? &wire_ns : &now_ns;
        w->event[n++] = (tandem_trace_event){*clock_ns, *clock_ns + TASK_NS, t};
        *clock_ns += TASK_NS;
    }
    for (int k = 0; k < N_TRACK; k++)
        w->track[k] = (tandem_trace_track){
            .device = "cpu:avx512", .rank = k, .n_rank = 1, .step = w->step, .event = w->event, .n_event = n};
}

/* Number of events of one track: one line each, and two more lines. */
static tandem_status count_written_events(const trace_work *w, int *n_event, tandem_error *error)
{
    static const char path[] = "tandem-bench-trace.json";
    char *text = NULL;
    size_t n = 0;
    tandem_status status = tandem_trace_write(path, "made up", w->track, 1, error);
    if (status == TANDEM_OK) status = tandem_file_read(&text, &n, path, SIZE_MAX / 2, error);
    *n_event = -2;
    for (size_t k = 0; k < n; k++) *n_event += text[k] == '\n';
    (void)remove(path);
    free(text);
    return status;
}

static tandem_status bench_trace_writer(bench_result *result, int64_t n, tandem_error *error)
{
    int n_event = 0;
    trace_work w = {.track = calloc(N_TRACK, sizeof *w.track)};
    tandem_status status = tandem_graph_open(&w.graph, "bert_base", 1, error);
    if (status == TANDEM_OK) status = tandem_step_open(&w.step, w.graph, TANDEM_F32, 0, error);
    if (status == TANDEM_OK) w.event = calloc((size_t)w.step->n_task, sizeof *w.event);
    if (status == TANDEM_OK && (!w.track || !w.event))
        status = tandem_no_memory(error, "for a step of %d ranks", N_TRACK);
    if (status != TANDEM_OK) goto out;
    fill_bench_tracks(&w);
    status = count_written_events(&w, &n_event, error);
    if (status == TANDEM_OK)
        status = measure_callback(result, "JSON written", write_bench_tracks, &w, n, error);
    if (status == TANDEM_OK)
        result->one[result->n_case - 1].events_per_s = last_case_rate(result, (double)n_event * N_TRACK);
out:
    free(w.event);
    free(w.track);
    tandem_step_close(w.step);
    tandem_graph_close(w.graph);
    return status;
}

/* --- The command ---------------------------------------------------------------------------------------- */

int bench_trace(bench_result *result, const cli_options *options)
{
    tandem_error error = {0};
    const int64_t n = options->repetitions > 0 ? options->repetitions : REPETITIONS;
    (void)snprintf(result->model, sizeof result->model,
                   "DAG simulator: %d operators; PyTorch trace: %d MiB in memory", SIMULATOR_OPS,
                   TEXT_BYTES >> 20);
    (void)snprintf(result->cluster, sizeof result->cluster, "%d ranks", RANKS);
    tandem_status status = bench_simulator(result, n, &error);
    if (status == TANDEM_OK) status = bench_torch_reader(result, n, &error);
    if (status == TANDEM_OK) status = bench_trace_writer(result, n, &error);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
