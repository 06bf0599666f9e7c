/* reducer.c: a thread that all-reduces the buckets of a step in order while the caller computes. */
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

typedef struct reducer_bucket {
    tandem_bucket_view view;
    bool is_ready;
    int64_t start_ns, end_ns;
} reducer_bucket;

struct tandem_reducer {
    tandem_comm *comm;
    pthread_t thread;
    tandem_bucket_wait *wait_bucket; /* NULL: a ready bucket's data is in place */
    void *wait_context;

    pthread_mutex_t mutex;    /* guards all below */
    pthread_cond_t work_came; /* wakes the thread: the next bucket is ready, or the reducer closes */
    pthread_cond_t work_done; /* wakes the callers: a bucket is reduced, or the collective failed */
    bool is_closing;
    bool has_failed;
    tandem_error failure;
    int n_reduced; /* buckets 0 … n_reduced - 1 of this step are reduced */
    int n_bucket;
    reducer_bucket bucket[];
};

/* Waits for the next ready bucket, with the mutex held. NULL: no more. */
static reducer_bucket *next_ready_bucket(tandem_reducer *reducer)
{
    for (;;) {
        if (reducer->is_closing || reducer->has_failed) return NULL;
        if (reducer->n_reduced < reducer->n_bucket && reducer->bucket[reducer->n_reduced].is_ready)
            return &reducer->bucket[reducer->n_reduced];
        pthread_cond_wait(&reducer->work_came, &reducer->mutex);
    }
}

static void *reduce_buckets(void *argument)
{
    tandem_reducer *reducer = argument;
    pthread_mutex_lock(&reducer->mutex);
    for (reducer_bucket *b; (b = next_ready_bucket(reducer)) != NULL;) {
        const tandem_bucket_view view = b->view;
        pthread_mutex_unlock(&reducer->mutex);
        tandem_error error = {TANDEM_OK, -1, ""};
        tandem_status status = TANDEM_OK;
        if (reducer->wait_bucket)
            status = reducer->wait_bucket(reducer->wait_context, (int)(b - reducer->bucket), &error);
        const int64_t start_ns = tandem_now_ns();
        if (status == TANDEM_OK)
            status = tandem_comm_sum_gradients(reducer->comm, view.data, view.n, reducer_tag, &error);
        const int64_t end_ns = tandem_now_ns();
        pthread_mutex_lock(&reducer->mutex);
        if (status == TANDEM_OK) {
            b->start_ns = start_ns;
            b->end_ns = end_ns;
            reducer->n_reduced++;
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

tandem_status tandem_reducer_open(tandem_reducer **out, tandem_comm *comm, const tandem_bucket_view *view,
                                  int n_bucket, int cpu, tandem_error *error)
{
    if (n_bucket < 0 || (n_bucket > 0 && !view))
        return tandem_error_set(error, TANDEM_USAGE, "a reducer of %d buckets", n_bucket);
    tandem_reducer *reducer = calloc(1, sizeof *reducer + (size_t)n_bucket * sizeof reducer->bucket[0]);
    if (!reducer) return tandem_no_memory(error, "for a reducer of %d buckets", n_bucket);
    reducer->comm = comm;
    reducer->n_bucket = n_bucket;
    for (int b = 0; b < n_bucket; b++) reducer->bucket[b].view = view[b];
    pthread_mutex_init(&reducer->mutex, NULL);
    pthread_cond_init(&reducer->work_came, NULL);
    pthread_cond_init(&reducer->work_done, NULL);
    const tandem_status status = start_reducer_thread(reducer, cpu, error);
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

void tandem_reducer_ready(tandem_reducer *reducer, int b)
{
    if (b < 0 || b >= reducer->n_bucket) return; /* tandem_reducer_wait reports it */
    pthread_mutex_lock(&reducer->mutex);
    reducer->bucket[b].is_ready = true;
    if (b == reducer->n_reduced) pthread_cond_signal(&reducer->work_came);
    pthread_mutex_unlock(&reducer->mutex);
}

tandem_status tandem_reducer_wait(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                  tandem_error *error)
{
    if (b < 0 || b >= reducer->n_bucket)
        return tandem_error_set(error, TANDEM_USAGE, "bucket %d of %d", b, reducer->n_bucket);
    pthread_mutex_lock(&reducer->mutex);
    while (b >= reducer->n_reduced && !reducer->has_failed)
        pthread_cond_wait(&reducer->work_done, &reducer->mutex);
    const bool is_reduced = b < reducer->n_reduced;
    const tandem_status status = is_reduced ? TANDEM_OK : reducer->failure.status;
    if (is_reduced && start_ns) *start_ns = reducer->bucket[b].start_ns;
    if (is_reduced && end_ns) *end_ns = reducer->bucket[b].end_ns;
    if (!is_reduced && error) *error = reducer->failure;
    pthread_mutex_unlock(&reducer->mutex);
    return status;
}

void tandem_reducer_next_step(tandem_reducer *reducer)
{
    pthread_mutex_lock(&reducer->mutex);
    assert(reducer->has_failed || reducer->n_reduced == reducer->n_bucket);
    reducer->n_reduced = 0;
    for (int b = 0; b < reducer->n_bucket; b++) reducer->bucket[b].is_ready = false;
    pthread_mutex_unlock(&reducer->mutex);
}
