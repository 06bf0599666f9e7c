/* bench_allreduce.c: time of an all-reduce alone, next to its lower bound: each rank reads and writes as many
 * bytes. */
#include <errno.h>
#include <sys/wait.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "bench/program/bench.h"
#include "runtime/train/run_agreement.h"

enum { REPETITIONS = 20, MAX_REPETITIONS = 1000, WARM_UP = 2 };
static const uint64_t size_bytes[] = {UINT64_C(4) << 10, UINT64_C(1) << 20, UINT64_C(12) << 20,
                                      UINT64_C(32) << 20, UINT64_C(100) << 20};
enum { N_SIZE = sizeof size_bytes / sizeof *size_bytes };
static const int64_t timeout_ns = INT64_C(60000000000);

typedef struct allreduce_bench {
    const cli_options *options;
    bench_result *result;
    const tandem_backend_api *backend;
    tandem_worker *worker;
    int rank, n_rank, shares_memory;
    int n;              /* repetitions */
    int64_t *sample_ns; /* [n] of this rank */
    int64_t *all_ns;    /* [n_rank × n] */
} allreduce_bench;

/* In huge pages, like gradients. */
static void *alloc_huge_pages(uint64_t bytes)
{
    enum { HUGE_PAGE_BYTES = 2 << 20 };
    void *memory = NULL;
    if (posix_memalign(&memory, HUGE_PAGE_BYTES, bytes) != 0) return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

/* Reads and writes every byte: the least work of an all-reduce in shared memory. */
static void read_and_write(void *memory, uint64_t bytes)
{
    typedef float float_vector __attribute__((vector_size(32)));
    float_vector *const x = memory;
    for (uint64_t i = 0; i < bytes / sizeof *x; i++) x[i] += 1;
    __asm__ volatile("" : : "r"(memory) : "memory");
}

/* All ranks at once, each on its own memory. A repetition takes as long as the slowest rank. */
static tandem_status measure_read_write(allreduce_bench *b, uint64_t bytes, tandem_error *error)
{
    void *memory = alloc_huge_pages(bytes);
    tandem_status status = memory ? TANDEM_OK : tandem_no_memory(error, "to read and write");
    for (int i = -WARM_UP; i < b->n && status == TANDEM_OK; i++) {
        status = b->backend->worker_barrier(b->worker, error);
        const int64_t begin_ns = tandem_now_ns();
        read_and_write(memory, bytes);
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

static void add_allreduce_case(allreduce_bench *b, uint64_t bytes, const char *what)
{
    char name[64];
    const int is_small = bytes < 1 << 20;
    (void)snprintf(name, sizeof name, "%g %s%s", (double)bytes / (is_small ? 1 << 10 : 1 << 20),
                   is_small ? "KiB" : "MiB", what);
    bench_add_case(b->result, name, b->sample_ns, b->n);
    bench_case *one = &b->result->one[b->result->n_case - 1];
    one->bytes_per_s = (double)bytes * 1e9 / (double)one->median_ns;
}

static tandem_status measure_allreduce_size(allreduce_bench *b, uint64_t bytes, tandem_error *error)
{
    static const char *const what[] = {"", ", cores computing"};
    tandem_status status = TANDEM_OK;
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        status = b->backend->measure_collective(b->worker, TANDEM_TASK_REDUCE, bytes, loaded, b->sample_ns,
                                                b->n, NULL, error);
        if (status == TANDEM_OK) add_allreduce_case(b, bytes, what[loaded]);
    }
    if (status == TANDEM_OK) status = measure_read_write(b, bytes, error);
    if (status == TANDEM_OK) add_allreduce_case(b, bytes, " read and written");
    return status;
}

static tandem_status measure_allreduces(allreduce_bench *b, const tandem_workload *workload,
                                        const tandem_rank_place *self, tandem_error *error)
{
    const int class_index = tandem_cluster_class_of(&workload->cluster, self->rank);
    if (self->n_rank != tandem_cluster_n_rank(&workload->cluster))
        return tandem_error_set(error, TANDEM_USAGE, "WORLD_SIZE is %d, but the cluster has %d ranks",
                                self->n_rank, tandem_cluster_n_rank(&workload->cluster));
    b->n_rank = self->n_rank;
    b->sample_ns = calloc((size_t)b->n, sizeof *b->sample_ns);
    b->all_ns = calloc((size_t)b->n * (size_t)b->n_rank, sizeof *b->all_ns);
    if (!b->sample_ns || !b->all_ns) return tandem_no_memory(error, "for %d repetitions", b->n);
    const tandem_listener listener = cli_listener(b->options);
    char *agreement = NULL;
    const char *const device = workload->cluster.classes[class_index].device.name;
    rank_cores cores;
    tandem_status status = rank_cores_take(&cores, device, self, &listener, error);
    if (status == TANDEM_OK) status = run_agreement_make_of(&agreement, "", error);
    if (status != TANDEM_OK) return status;
    status = b->backend->worker_open(
        &b->worker,
        &(tandem_worker_options){.device = device,
                                 .rank = self->rank,
                                 .n_rank = self->n_rank,
                                 .store = self->folder,
                                 .cpu = cores.core[0],
                                 .timeout_ns = timeout_ns,
                                 .over_network = !tandem_cluster_shares_memory(&workload->cluster),
                                 .wire = workload->cluster.wire,
                                 .agreement = agreement,
                                 .core = cores.core,
                                 .n_core = cores.n},
        error);
    free(agreement);
    if (status == TANDEM_OK) rank_start_joined();
    for (int s = 0; s < N_SIZE && status == TANDEM_OK; s++)
        status = measure_allreduce_size(b, size_bytes[s], error);
    if (status != TANDEM_OK) return status;
    b->shares_memory = b->backend->worker_shares_memory(b->worker);
    training_rank_note_transport(b->backend, b->worker, self->rank, &listener);
    return TANDEM_OK;
}

static int run_allreduce_rank(const cli_options *options, const tandem_workload *workload,
                              const tandem_rank_place *self)
{
    bench_result result = {.options = self->rank == 0 ? options : NULL};
    allreduce_bench b = {.options = options, .result = &result, .n = REPETITIONS};
    tandem_error error = {0};
    if (options->repetitions > 0)
        b.n = options->repetitions < MAX_REPETITIONS ? (int)options->repetitions : MAX_REPETITIONS;
    b.backend = runtime_backend(&error);
    const tandem_status status = b.backend ? measure_allreduces(&b, workload, self, &error) : error.status;
    if (b.worker) b.backend->worker_close(b.worker);
    free(b.all_ns);
    free(b.sample_ns);
    if (status != TANDEM_OK) return cli_fail(&error);
    if (self->rank > 0) return 0;
    (void)snprintf(result.model, sizeof result.model, "all-reduce %s",
                   b.shares_memory ? "in shared memory" : "over a network");
    tandem_cluster_print(result.cluster, sizeof result.cluster, &workload->cluster);
    return bench_print(&result, "allreduce", options);
}

/* The code of a rank that has failed. Code 6, another rank failed, counts only if there is no other. */
static int wait_for_children(void)
{
    const int peer = tandem_status_exit_code(TANDEM_RANK_FAILED);
    int code = 0, state = 0;
    while (child_wait(&state) > 0) {
        const int its = WIFEXITED(state) ? WEXITSTATUS(state) : peer;
        if (its && (code == 0 || code == peer)) code = its;
    }
    return code;
}

/* Each rank is a child that has opened no device yet. */
static int start_allreduce_ranks(const cli_options *options, const tandem_workload *workload, int n_rank)
{
    char folder[] = ".tandem-run-XXXXXX";
    if (!mkdtemp(folder))
        return cli_fail_with(TANDEM_IO, "cannot create a directory for the ranks: %s", strerror(errno));
    children_begin();
    for (int r = 0; r < n_rank; r++) {
        const tandem_rank_place place = {.rank = r, .n_rank = n_rank, .local = r, .folder = folder};
        if (child_fork() == 0) exit(run_allreduce_rank(options, workload, &place));
    }
    const int code = wait_for_children();
    ranks_remove_folder(folder);
    children_end();
    return code;
}

int bench_allreduce(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    tandem_rank_place self;
    tandem_workload workload = {0};
    options.model = "mlp"; /* any model: a workload needs one */
    if (!options.device && !options.cluster) options.cluster = "2*strongest";
    const int joined = rank_place_from_environment(&self, &error);
    if (joined < 0 || cli_workload_open(&workload, &options, &error) != TANDEM_OK) return cli_fail(&error);
    const int n_rank = tandem_cluster_n_rank(&workload.cluster);
    int code;
    if (n_rank < 2)
        code = cli_fail_with(TANDEM_USAGE, "an all-reduce needs two ranks, but --cluster \"%s\" has one",
                             options.cluster ? options.cluster : options.device);
    else
        code = joined ? run_allreduce_rank(&options, &workload, &self)
                      : start_allreduce_ranks(&options, &workload, n_rank);
    tandem_workload_close(&workload);
    return code;
}
