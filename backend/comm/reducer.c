/* reducer.c: a thread that all-reduces the buckets of a step in order while the caller computes, or scatters
 * their gradients and gathers their weights. */
#include "backend/comm/comm.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backend/comm/thread.h"
#include "base/clock.h"

static const uint32_t reducer_tag = UINT32_MAX; /* comm.h reserves it */

/* The collectives that a bucket goes through in a step. */
typedef enum reducer_phase { PHASE_REDUCE, PHASE_GATHER, N_PHASE } reducer_phase;

typedef struct phase_state {
    bool is_ready; /* the caller is done with what comes before it */
    int64_t start_ns, end_ns;
} phase_state;

typedef struct reducer_bucket {
    tandem_bucket_view view;
    phase_state phase[N_PHASE];
} reducer_bucket;

struct tandem_reducer {
    tandem_comm *comm;
    pthread_t thread;
    tandem_bucket_wait *wait_bucket; /* NULL: a ready bucket's data is in place */
    void *wait_context;
    bool has_shards; /* all buckets have borders: they are scattered and gathered */

    pthread_mutex_t mutex;    /* guards all below */
    pthread_cond_t work_came; /* wakes the thread: the next collective may start, or the reducer closes */
    pthread_cond_t work_done; /* wakes the callers: a collective has ended or failed */
    bool is_closing;
    bool has_failed;
    tandem_error failure;
    int n_done[N_PHASE]; /* buckets 0 … n_done[p] - 1 of this step have gone through phase p */
    int n_bucket;
    reducer_bucket bucket[];
};

/* The phase of the thread's next collective, the same on all ranks; N_PHASE: none is left in this step. */
static reducer_phase next_phase(const tandem_reducer *reducer)
{
    if (reducer->n_done[PHASE_REDUCE] < reducer->n_bucket) return PHASE_REDUCE;
    return reducer->has_shards && reducer->n_done[PHASE_GATHER] < reducer->n_bucket ? PHASE_GATHER : N_PHASE;
}

/* Waits until the next collective may start, with the mutex held. N_PHASE: no more. */
static reducer_phase wait_for_next_phase(tandem_reducer *reducer)
{
    for (;;) {
        if (reducer->is_closing || reducer->has_failed) return N_PHASE;
        const reducer_phase p = next_phase(reducer);
        if (p != N_PHASE && reducer->bucket[reducer->n_done[p]].phase[p].is_ready) return p;
        pthread_cond_wait(&reducer->work_came, &reducer->mutex);
    }
}

static tandem_status reduce_bucket(tandem_reducer *reducer, const tandem_bucket_view *view,
                                   tandem_error *error)
{
    return view->border ? tandem_comm_scatter_gradients(reducer->comm, view->data, view->n, view->border,
                                                        reducer_tag, error)
                        : tandem_comm_sum_gradients(reducer->comm, view->data, view->n, reducer_tag, error);
}

/* One collective of bucket b, and when it began and ended. */
static tandem_status run_phase(tandem_reducer *reducer, reducer_phase p, int b, phase_state *ran,
                               tandem_error *error)
{
    const tandem_bucket_view *view = &reducer->bucket[b].view;
    tandem_status status = TANDEM_OK;
    if (p == PHASE_REDUCE && reducer->wait_bucket)
        status = reducer->wait_bucket(reducer->wait_context, b, error);
    ran->start_ns = tandem_now_ns();
    if (status == TANDEM_OK)
        status = p == PHASE_REDUCE ? reduce_bucket(reducer, view, error)
                                   : tandem_comm_gather_shards(reducer->comm, view->weight, view->n,
                                                               view->border, reducer_tag, error);
    ran->end_ns = tandem_now_ns();
    return status;
}

static void *reduce_buckets(void *argument)
{
    tandem_reducer *reducer = argument;
    pthread_mutex_lock(&reducer->mutex);
    for (reducer_phase p; (p = wait_for_next_phase(reducer)) != N_PHASE;) {
        const int b = reducer->n_done[p];
        pthread_mutex_unlock(&reducer->mutex);
        tandem_error error = {TANDEM_OK, -1, ""};
        phase_state ran = {.is_ready = true};
        const tandem_status status = run_phase(reducer, p, b, &ran, &error);
        pthread_mutex_lock(&reducer->mutex);
        if (status == TANDEM_OK) {
            reducer->bucket[b].phase[p] = ran;
            reducer->n_done[p]++;
        } else {
            reducer->failure = error;
            reducer->has_failed = true;
        }
        pthread_cond_broadcast(&reducer->work_done);
    }
    pthread_mutex_unlock(&reducer->mutex);
    return NULL;
}

static tandem_status start_reducer_thread(tandem_reducer *reducer, int cpu, tandem_error *error)
{
    if (cpu >= CPU_SETSIZE)
        return tandem_error_set(error, TANDEM_USAGE, "core %d; they are counted up to %d, -1 = any", cpu,
                                CPU_SETSIZE - 1);
    const int failed = tandem_thread_start(&reducer->thread, cpu, reduce_buckets, reducer);
    if (failed && cpu >= 0 && failed != EAGAIN)
        return tandem_error_set(error, TANDEM_USAGE, "core %d is not one that this process may run on", cpu);
    if (failed)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "cannot start a thread for the bucket reducer");
    return TANDEM_OK;
}

static void destroy_reducer(tandem_reducer *reducer)
{
    pthread_cond_destroy(&reducer->work_done);
    pthread_cond_destroy(&reducer->work_came);
    pthread_mutex_destroy(&reducer->mutex);
    free(reducer);
}

static tandem_status check_bucket_views(const tandem_bucket_view *view, int n_bucket, tandem_error *error)
{
    if (n_bucket < 0 || (n_bucket > 0 && !view))
        return tandem_error_set(error, TANDEM_USAGE, "a reducer of %d buckets", n_bucket);
    for (int b = 0; b < n_bucket; b++) {
        if (!view[b].border != !view[0].border)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "a reducer of buckets with borders and without: buckets 0 and %d differ. "
                                    "Give borders of all buckets or of none",
                                    b);
        if (view[b].border && !view[b].weight && view[b].n > 0)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "a reducer: bucket %d has borders, but no weights to gather. Give weights, "
                "or no borders",
                b);
    }
    return TANDEM_OK;
}

tandem_status tandem_reducer_open(tandem_reducer **out, tandem_comm *comm, const tandem_bucket_view *view,
                                  int n_bucket, int cpu, tandem_error *error)
{
    tandem_status status = check_bucket_views(view, n_bucket, error);
    if (status != TANDEM_OK) return status;
    tandem_reducer *reducer = calloc(1, sizeof *reducer + (size_t)n_bucket * sizeof reducer->bucket[0]);
    if (!reducer) return tandem_no_memory(error, "for a reducer of %d buckets", n_bucket);
    reducer->comm = comm;
    reducer->n_bucket = n_bucket;
    reducer->has_shards = n_bucket > 0 && view[0].border;
    for (int b = 0; b < n_bucket; b++) reducer->bucket[b].view = view[b];
    pthread_mutex_init(&reducer->mutex, NULL);
    pthread_cond_init(&reducer->work_came, NULL);
    pthread_cond_init(&reducer->work_done, NULL);
    status = start_reducer_thread(reducer, cpu, error);
    if (status != TANDEM_OK) {
        destroy_reducer(reducer);
        return status;
    }
    *out = reducer;
    return TANDEM_OK;
}

void tandem_reducer_set_wait(tandem_reducer *reducer, tandem_bucket_wait *wait, void *context)
{
    pthread_mutex_lock(&reducer->mutex);
    reducer->wait_bucket = wait;
    reducer->wait_context = context;
    pthread_mutex_unlock(&reducer->mutex);
}

void tandem_reducer_close(tandem_reducer *reducer)
{
    if (!reducer) return;
    pthread_mutex_lock(&reducer->mutex);
    reducer->is_closing = true;
    pthread_cond_signal(&reducer->work_came);
    pthread_mutex_unlock(&reducer->mutex);
    pthread_join(reducer->thread, NULL);
    destroy_reducer(reducer);
}

static void let_phase_start(tandem_reducer *reducer, reducer_phase p, int b)
{
    if (b < 0 || b >= reducer->n_bucket) return; /* waiting for it reports it */
    pthread_mutex_lock(&reducer->mutex);
    reducer->bucket[b].phase[p].is_ready = true;
    if (b == reducer->n_done[p]) pthread_cond_signal(&reducer->work_came);
    pthread_mutex_unlock(&reducer->mutex);
}

void tandem_reducer_ready(tandem_reducer *reducer, int b) { let_phase_start(reducer, PHASE_REDUCE, b); }

void tandem_reducer_updated(tandem_reducer *reducer, int b) { let_phase_start(reducer, PHASE_GATHER, b); }

static tandem_status wait_for_phase(tandem_reducer *reducer, reducer_phase p, int b, int64_t *start_ns,
                                    int64_t *end_ns, tandem_error *error)
{
    if (b < 0 || b >= reducer->n_bucket)
        return tandem_error_set(error, TANDEM_USAGE, "bucket %d of %d", b, reducer->n_bucket);
    pthread_mutex_lock(&reducer->mutex);
    while (b >= reducer->n_done[p] && !reducer->has_failed)
        pthread_cond_wait(&reducer->work_done, &reducer->mutex);
    const bool is_done = b < reducer->n_done[p];
    const tandem_status status = is_done ? TANDEM_OK : reducer->failure.status;
    if (is_done && start_ns) *start_ns = reducer->bucket[b].phase[p].start_ns;
    if (is_done && end_ns) *end_ns = reducer->bucket[b].phase[p].end_ns;
    if (!is_done && error) *error = reducer->failure;
    pthread_mutex_unlock(&reducer->mutex);
    return status;
}

tandem_status tandem_reducer_wait(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                  tandem_error *error)
{
    return wait_for_phase(reducer, PHASE_REDUCE, b, start_ns, end_ns, error);
}

tandem_status tandem_reducer_wait_gathered(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                           tandem_error *error)
{
    if (!reducer->has_shards)
        return tandem_error_set(error, TANDEM_USAGE,
                                "cannot wait for the weights of bucket %d: the reducer's buckets have no "
                                "borders. Give borders, or wait with tandem_reducer_wait",
                                b);
    return wait_for_phase(reducer, PHASE_GATHER, b, start_ns, end_ns, error);
}

void tandem_reducer_next_step(tandem_reducer *reducer)
{
    pthread_mutex_lock(&reducer->mutex);
    assert(reducer->has_failed || next_phase(reducer) == N_PHASE);
    for (int p = 0; p < N_PHASE; p++) {
        reducer->n_done[p] = 0;
        for (int b = 0; b < reducer->n_bucket; b++) reducer->bucket[b].phase[p].is_ready = false;
    }
    pthread_mutex_unlock(&reducer->mutex);
}
