/* measure_all_reduce.c: times an all-reduce between the ranks of a run, and the slowdown of computation on
 * the same core meanwhile; and its halves, the reduce-scatter and the all-gather of equal shards.
 *
 * On idle cores it goes as in a step. Each rank has written its gradients, and other tasks have followed. All
 * ranks but one have waited for some time: their threads sleep, and have to be woken. The last one hands its
 * bucket to the reducer's thread and waits for it. A loop without all this is too short: its data are in the
 * caches, and every rank is awake to share the sum. */
#include "backend/device/worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backend/device/device_memory.h"
#include "base/sort.h"
#include "base/clock.h"

enum {
    TAG_MEASURE = 2,
    WARM_UP = 2,
    WORK_FLOATS = 16384,
    OTHER_FLOATS = 1 << 23 /* what tasks touch after the gradients: more than a core's own caches hold */
};
static const int64_t late_ns = 5000000; /* the last rank is later than the others */

/* A unit of work in the first-level cache, like the inner loop of a product. */
static void compute_work_unit(float *x)
{
    for (int repeat = 0; repeat < 8; repeat++)
        for (int i = 0; i < WORK_FLOATS; i++) x[i] = x[i] * 0.999f + 0.001f;
}

typedef struct all_reduce_job {
    tandem_worker *worker;
    float *data;
    tandem_task_kind kind;
    float *weight;   /* that are gathered; NULL: an all-reduce */
    size_t *border;  /* of shards; NULL: an all-reduce */
    void *gradients; /* the device's gradients, where it has its own memory: copied from there and back */
    size_t elements;
    int64_t *sample_ns;
    int n;
    atomic_int finished;
    tandem_status status;
    tandem_error error;
} all_reduce_job;

/* Between the device's own memory and x->data, where it has its own. */
static tandem_status copy_gradients(all_reduce_job *x, int is_to_host)
{
    const uint64_t bytes = (uint64_t)x->elements * sizeof(float);
    void *const to = is_to_host ? (void *)x->data : x->gradients, *const from = is_to_host ? x->gradients
                                                                                           : (void *)x->data;
    if (!x->gradients) return TANDEM_OK;
    return x->worker->backend->copy(x->worker->device, to, from, bytes, &x->error);
}

static tandem_status run_all_reduce(all_reduce_job *x)
{
    tandem_status status = copy_gradients(x, 1);
    if (status == TANDEM_OK)
        status = tandem_comm_sum_gradients(x->worker->comm, x->data, x->elements, TAG_MEASURE, &x->error);
    return status == TANDEM_OK ? copy_gradients(x, 0) : status;
}

static tandem_status run_reducer(all_reduce_job *x, tandem_reducer *reducer)
{
    tandem_status status = copy_gradients(x, 1);
    if (status != TANDEM_OK) return status;
    tandem_reducer_ready(reducer, 0);
    status = tandem_reducer_wait(reducer, 0, NULL, NULL, &x->error);
    return status == TANDEM_OK ? copy_gradients(x, 0) : status;
}

static void compute_for(float *work, int64_t ns)
{
    for (const int64_t begin_ns = tandem_now_ns(); tandem_now_ns() - begin_ns < ns;) compute_work_unit(work);
}

static tandem_status run_gather(all_reduce_job *x, tandem_reducer *reducer)
{
    tandem_reducer_updated(reducer, 0);
    return tandem_reducer_wait_gathered(reducer, 0, NULL, NULL, &x->error);
}

/* Times what was asked for; the other half of a step with shards goes without. */
static tandem_status run_timed(all_reduce_job *x, tandem_reducer *reducer, float *work, int is_last,
                               int64_t *ns)
{
    tandem_status status = TANDEM_OK;
    if (x->kind == TANDEM_TASK_GATHER) {
        status = run_reducer(x, reducer);
        if (status == TANDEM_OK) status = tandem_comm_barrier(x->worker->comm, TAG_MEASURE, &x->error);
    }
    if (status != TANDEM_OK) return status;
    if (is_last) compute_for(work, late_ns);
    const int64_t begin_ns = tandem_now_ns();
    status = x->kind == TANDEM_TASK_GATHER ? run_gather(x, reducer) : run_reducer(x, reducer);
    *ns = tandem_now_ns() - begin_ns;
    if (status == TANDEM_OK && x->kind == TANDEM_TASK_SCATTER) status = run_gather(x, reducer);
    return status;
}

static void *repeat_all_reduce(void *context)
{
    all_reduce_job *x = context;
    for (int i = -WARM_UP; i < x->n && x->status == TANDEM_OK; i++) {
        x->status = tandem_comm_barrier(x->worker->comm, TAG_MEASURE, &x->error);
        if (x->status != TANDEM_OK) break;
        const int64_t begin_ns = tandem_now_ns();
        x->status = run_all_reduce(x);
        if (i >= 0) x->sample_ns[i] = tandem_now_ns() - begin_ns;
    }
    atomic_store(&x->finished, 1);
    return NULL;
}

/* What a backward pass leaves: gradients that were just written, and caches full of other data. */
static void leave_as_backward(all_reduce_job *x, float *other)
{
    for (size_t k = 0; k < x->elements; k++) x->data[k] = 1;
    for (size_t k = 0; k < OTHER_FLOATS; k++) other[k] = other[k] * 0.999f + 0.001f;
}

/* As in a step; the ranks are the last one in turns. */
static void repeat_as_in_step(all_reduce_job *x, float *work)
{
    const tandem_bucket_view view = {
        .data = x->data, .n = x->elements, .border = x->border, .weight = x->weight};
    const tandem_worker *worker = x->worker;
    tandem_reducer *reducer = NULL;
    float *other = calloc(OTHER_FLOATS, sizeof *other);
    x->status = other ? tandem_reducer_open(&reducer, worker->comm, &view, 1, worker->cpu, &x->error)
                      : tandem_no_memory(&x->error, "to fill the caches");
    for (int i = -WARM_UP; i < x->n && x->status == TANDEM_OK; i++) {
        leave_as_backward(x, other);
        x->status = tandem_comm_barrier(worker->comm, TAG_MEASURE, &x->error);
        if (x->status != TANDEM_OK) break;
        int64_t ns = 0;
        x->status = run_timed(x, reducer, work, (i + WARM_UP) % worker->n_rank == worker->rank, &ns);
        if (i >= 0) x->sample_ns[i] = ns;
        if (x->status == TANDEM_OK) tandem_reducer_next_step(reducer);
    }
    tandem_reducer_close(reducer);
    free(other);
}

/* The median time of a unit in ns, which interruptions of a few units do not change. */
static double measure_unit_alone(float *work)
{
    enum { UNITS = 401 };
    int64_t unit_ns[UNITS];
    for (int k = 0; k < UNITS; k++) {
        const int64_t begin_ns = tandem_now_ns();
        compute_work_unit(work);
        unit_ns[k] = tandem_now_ns() - begin_ns;
    }
    tandem_sort_int64(unit_ns, UNITS);
    return (double)unit_ns[UNITS / 2];
}

/* A rank with several cores computes on the core that exchanges gradients, too: all others wait for it.
 * *before: to be restored; empty = nothing was changed. */
static void share_comm_core(int cpu, cpu_set_t *before)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof *before, before) != 0) CPU_ZERO(before);
    if (cpu < 0 || CPU_COUNT(before) < 2) {
        CPU_ZERO(before);
        return;
    }
    CPU_SET((size_t)cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

/* Computes on this core until the all-reduces end; the mean time of a unit in ns. */
static double measure_unit_contended(all_reduce_job *x, float *work, double *alone_ns)
{
    cpu_set_t before;
    share_comm_core(x->worker->cpu, &before);
    *alone_ns = measure_unit_alone(work);
    pthread_t thread;
    if (pthread_create(&thread, NULL, repeat_all_reduce, x) != 0) {
        x->status = tandem_error_set(&x->error, TANDEM_NO_MEMORY, "cannot start a thread for the all-reduce");
        return *alone_ns;
    }
    const int64_t begin_ns = tandem_now_ns();
    int64_t units = 0;
    while (!atomic_load(&x->finished)) {
        compute_work_unit(work);
        units++;
    }
    const double contended_ns = units ? (double)(tandem_now_ns() - begin_ns) / (double)units : *alone_ns;
    (void)pthread_join(thread, NULL);
    if (CPU_COUNT(&before) > 0) (void)sched_setaffinity(0, sizeof before, &before);
    return contended_ns;
}

/* The last rank to begin times the all-reduce alone, so each repetition's time is the minimum over the ranks.
 */
static tandem_status min_over_ranks(tandem_worker *worker, int64_t *sample_ns, int n, tandem_error *error)
{
    int64_t *all = malloc(((size_t)n * (size_t)worker->n_rank + 1) * sizeof *all);
    if (!all) return tandem_no_memory(error, "for %d repetitions", n);
    const tandem_status status = tandem_worker_gather(worker, sample_ns, all, (size_t)n * sizeof *all, error);
    if (status == TANDEM_OK)
        for (int i = 0; i < n; i++)
            for (int r = 0; r < worker->n_rank; r++)
                if (all[r * n + i] < sample_ns[i]) sample_ns[i] = all[r * n + i];
    free(all);
    return status;
}

static tandem_status alloc_all_reduce_data(all_reduce_job *x)
{
    const uint64_t bytes = (uint64_t)(x->elements + 1) * sizeof(float);
    void *data = NULL;
    tandem_status status = tandem_worker_alloc_shared(&data, x->worker, bytes, &x->error);
    x->data = data;
    if (status == TANDEM_OK && tandem_worker_has_device_memory(x->worker))
        status = tandem_worker_alloc(&x->gradients, x->worker, TANDEM_DEVICE_MEMORY, bytes, &x->error);
    return status;
}

/* Equal shards, and weights that are gathered. */
static tandem_status alloc_shards(all_reduce_job *x)
{
    const tandem_sharding even = {.stage = 1, .n_rank = x->worker->n_rank};
    void *weight = NULL;
    if (x->kind == TANDEM_TASK_REDUCE) return TANDEM_OK;
    x->border = malloc(((size_t)even.n_rank + 1) * sizeof *x->border);
    if (!x->border) return tandem_no_memory(&x->error, "for %d shards", even.n_rank);
    for (int r = 0; r <= even.n_rank; r++)
        x->border[r] = (size_t)tandem_shard_border(&even, (int64_t)x->elements, r);
    const tandem_status status = tandem_worker_alloc_shared(
        &weight, x->worker, (uint64_t)(x->elements + 1) * sizeof(float), &x->error);
    x->weight = weight;
    return status;
}

tandem_status tandem_measure_collective(tandem_worker *worker, tandem_task_kind kind, uint64_t bytes,
                                        int loaded, int64_t *sample_ns, int n, double *slowdown,
                                        tandem_error *error)
{
    if (!worker->comm)
        return tandem_error_set(error, TANDEM_USAGE, "to time '%s' takes at least two ranks, this is one",
                                tandem_task_kind_name(kind));
    if (loaded && kind != TANDEM_TASK_REDUCE)
        return tandem_error_set(error, TANDEM_USAGE, "'%s' is timed on idle cores; under load only '%s' is",
                                tandem_task_kind_name(kind), tandem_task_kind_name(TANDEM_TASK_REDUCE));
    const size_t elements = (size_t)(bytes / sizeof(float));
    all_reduce_job x = {.worker = worker, .kind = kind, .elements = elements, .sample_ns = sample_ns, .n = n};
    double alone_ns = 1, contended_ns = 1;
    float *work = calloc(WORK_FLOATS, sizeof *work);
    x.status = work ? alloc_all_reduce_data(&x) : tandem_no_memory(&x.error, "for a loop to compute");
    if (x.status == TANDEM_OK) x.status = alloc_shards(&x);
    if (x.status == TANDEM_OK && loaded)
        contended_ns = measure_unit_contended(&x, work, &alone_ns);
    else if (x.status == TANDEM_OK)
        repeat_as_in_step(&x, work);
    if (x.status == TANDEM_OK) x.status = min_over_ranks(worker, sample_ns, n, &x.error);
    if (x.status == TANDEM_OK && slowdown)
        *slowdown = contended_ns > alone_ns ? contended_ns / alone_ns : 1.0;
    if (x.status != TANDEM_OK && error) *error = x.error;
    tandem_worker_free_shared(worker, x.weight);
    free(x.border);
    tandem_worker_free_shared(worker, x.data);
    tandem_worker_free(worker, TANDEM_DEVICE_MEMORY, x.gradients);
    free(work);
    return x.status;
}
