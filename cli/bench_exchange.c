/* bench_exchange.c: an all-reduce by itself, beside what it does at least: every rank reads and writes as
 * many bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/rank_run.h"

enum { REPETITIONS = 20, MOST_REPETITIONS = 1000, WARM_UP = 2 };
static const uint64_t size_bytes[] = {UINT64_C(4) << 10, UINT64_C(1) << 20, UINT64_C(12) << 20,
                                      UINT64_C(32) << 20, UINT64_C(100) << 20};
enum { N_SIZE = sizeof size_bytes / sizeof *size_bytes };
static const int64_t timeout_ns = INT64_C(60000000000);

typedef struct exchange_bench {
    const cli_options *options;
    bench_result *result;
    const tandem_backend_api *backend;
    tandem_worker *worker;
    int rank, n_rank, shares;
    int n;              /* repetitions */
    int64_t *sample_ns; /* [n] of this rank */
    int64_t *all_ns;    /* [n_rank × n] */
} exchange_bench;

/* In huge pages, as gradients are. */
static void *take_large(uint64_t bytes)
{
    enum { HUGE_PAGE_BYTES = 2 << 20 };
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE_BYTES, bytes) != 0) return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

/* Reads and writes all of it: what an all-reduce in shared memory does at least. */
static void pass_over(void *memory, uint64_t bytes)
{
    typedef float lanes __attribute__((vector_size(32)));
    lanes *const x = memory;
    for (uint64_t i = 0; i < bytes / sizeof *x; i++) x[i] += 1;
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* By every rank at once, over its own memory: a repetition lasts as long as the slowest rank's. */
static tandem_status measure_limit(exchange_bench *b, uint64_t bytes, tandem_error *error)
{
    void *memory = take_large(bytes);
    tandem_status status =
        memory ? TANDEM_OK : tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to read and write");
    for (int i = -WARM_UP; i < b->n && status == TANDEM_OK; i++) {
        status = b->backend->worker_barrier(b->worker, error);
        const int64_t begin_ns = tandem_now_ns();
        pass_over(memory, bytes);
        if (i >= 0) b->sample_ns[i] = tandem_now_ns() - begin_ns;
    }
    free(memory);
    if (status == TANDEM_OK)
        status = b->backend->worker_gather(b->worker, b->sample_ns, b->all_ns,
                                           (size_t)b->n * sizeof *b->sample_ns, error);
    for (int i = 0; i < b->n && status == TANDEM_OK; i++)
        for (int r = 0; r < b->n_rank; r++)
            if (b->all_ns[r * b->n + i] > b->sample_ns[i]) b->sample_ns[i] = b->all_ns[r * b->n + i];
    return status;
}

static void add_case(exchange_bench *b, uint64_t bytes, const char *what)
{
    char name[64];
    const int is_small = bytes < 1 << 20;
    (void)snprintf(name, sizeof name, "%g %s%s", (double)bytes / (is_small ? 1 << 10 : 1 << 20),
                   is_small ? "KiB" : "MiB", what);
    bench_add(b->result, name, b->sample_ns, b->n);
    bench_case *one = &b->result->one[b->result->n_case - 1];
    one->bytes_per_s = (double)bytes * 1e9 / (double)one->median_ns;
}

static tandem_status measure_size(exchange_bench *b, uint64_t bytes, tandem_error *error)
{
    static const char *const what[] = {"", ", cores computing"};
    tandem_status status = TANDEM_OK;
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        status = b->backend->measure_all_reduce(b->worker, bytes, loaded, b->sample_ns, b->n, NULL, error);
        if (status == TANDEM_OK) add_case(b, bytes, what[loaded]);
    }
    if (status == TANDEM_OK) status = measure_limit(b, bytes, error);
    if (status == TANDEM_OK) add_case(b, bytes, " read and written");
    return status;
}

static tandem_status measure_all(exchange_bench *b, const cli_subject *subject, const cli_rank *place,
                                 tandem_error *error)
{
    const int member = tandem_cluster_class_of(&subject->cluster, place->rank);
    if (place->n_rank != tandem_cluster_n_rank(&subject->cluster))
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, the cluster has %d ranks",
                                place->n_rank, tandem_cluster_n_rank(&subject->cluster));
    b->n_rank = place->n_rank;
    b->sample_ns = calloc((size_t)b->n, sizeof *b->sample_ns);
    b->all_ns = calloc((size_t)b->n * (size_t)b->n_rank, sizeof *b->all_ns);
    if (!b->sample_ns || !b->all_ns)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %d repetitions", b->n);
    tandem_status status = b->backend->worker_open(
        &b->worker,
        &(tandem_worker_options){.device = subject->cluster.classes[member].device.name,
                                 .rank = place->rank,
                                 .n_rank = place->n_rank,
                                 .store = place->store,
                                 .cpu = place->cpu,
                                 .timeout_ns = timeout_ns,
                                 .over_network = !tandem_cluster_shares_memory(&subject->cluster)},
        error);
    for (int s = 0; s < N_SIZE && status == TANDEM_OK; s++) status = measure_size(b, size_bytes[s], error);
    if (status != TANDEM_OK) return status;
    b->shares = b->backend->worker_shares_memory(b->worker);
    rank_run_note_exchange(b->backend, b->worker, place->rank, b->options);
    return TANDEM_OK;
}

static int run_rank(const cli_options *options, const cli_subject *subject, const cli_rank *place)
{
    bench_result result = {.options = place->rank == 0 ? options : NULL};
    exchange_bench b = {.options = options, .result = &result, .n = REPETITIONS};
    tandem_error error = {0};
    if (options->repetitions > 0)
        b.n = options->repetitions < MOST_REPETITIONS ? (int)options->repetitions : MOST_REPETITIONS;
    b.backend = cli_backend(&error);
    const tandem_status status = b.backend ? measure_all(&b, subject, place, &error) : error.status;
    if (b.worker) b.backend->worker_close(b.worker);
    free(b.all_ns);
    free(b.sample_ns);
    if (status != TANDEM_OK) return cli_fail(&error);
    if (place->rank > 0) return 0;
    (void)snprintf(result.model, sizeof result.model, "all-reduce %s",
                   b.shares ? "in shared memory" : "over a network");
    tandem_cluster_print(result.cluster, sizeof result.cluster, &subject->cluster);
    return bench_print(&result, "exchange", options);
}

int bench_exchange(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    cli_rank place;
    cli_subject subject = {0};
    options.model = "mlp"; /* any: a subject is of one */
    if (!options.device && !options.cluster) options.cluster = "2*strongest";
    const int joined = cli_rank_joined(&place, &error);
    if (joined < 0 || cli_subject_open(&subject, &options, &error) != TANDEM_OK) return cli_fail(&error);
    const int n_rank = tandem_cluster_n_rank(&subject.cluster);
    int code;
    if (n_rank < 2)
        code = cli_refuse(TANDEM_USAGE, "an all-reduce needs two ranks; --cluster \"%s\" is one",
                          options.cluster ? options.cluster : options.device);
    else
        code = joined ? run_rank(&options, &subject, &place) : cli_ranks_start(n_rank, &options);
    cli_subject_close(&subject);
    return code;
}
