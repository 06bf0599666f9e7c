/* graph_probe.c: whether a thread can wait for an event in a graph. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "backend/cuda/operator.h"

enum { LAUNCHES = 2, PATIENCE_S = 2 };

/* Shared with the thread that waits, and left to it where it never wakes. */
typedef struct graph_probe {
    const cuda_vendor *vendor;
    int index; /* of the GPU */
    tandem_cuda_event before, within;
    tandem_cuda_graph graph;
    atomic_int is_open; /* the gate in the graph, in front of `within` */
    pthread_mutex_t mutex;
    pthread_cond_t has_changed;
    int n_launched, n_waiting, n_waited; /* under the mutex, with what follows */
    int is_over, was_early, failed;
} graph_probe;

static void hold_stream(void *is_open)
{
    while (!atomic_load((atomic_int *)is_open)) (void)sched_yield();
}

/* Waits for the event once in each launch. */
static void *wait_in_launches(void *context)
{
    graph_probe *p = context;
    const int failed = p->vendor->set_device(p->index);
    (void)pthread_mutex_lock(&p->mutex);
    p->failed = failed;
    while (p->n_waited < LAUNCHES) {
        while (!p->is_over && p->n_launched == p->n_waited)
            (void)pthread_cond_wait(&p->has_changed, &p->mutex);
        if (p->is_over) break;
        p->n_waiting++;
        (void)pthread_cond_broadcast(&p->has_changed);
        (void)pthread_mutex_unlock(&p->mutex);
        const int error = p->vendor->event_sync(p->within);
        const int is_early = !atomic_load(&p->is_open);
        (void)pthread_mutex_lock(&p->mutex);
        if (!p->failed) p->failed = error;
        p->was_early |= is_early;
        p->n_waited++;
        (void)pthread_cond_broadcast(&p->has_changed);
    }
    (void)pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static int open_probe(graph_probe *p, tandem_cuda_stream stream)
{
    const cuda_vendor *vendor = p->vendor;
    int failed = vendor->event_open(&p->before);
    if (!failed) failed = vendor->event_open(&p->within);
    if (!failed) failed = vendor->event_record(p->before, stream);
    if (!failed) failed = vendor->event_record(p->within, stream);
    if (!failed) failed = vendor->stream_sync(stream);
    if (!failed) failed = vendor->capture_begin(stream);
    if (failed) return failed;
    failed = vendor->call_host(stream, hold_stream, &p->is_open);
    if (!failed) failed = vendor->event_record_external(p->within, stream);
    const int ended = vendor->capture_end(&p->graph, stream);
    return failed ? failed : ended;
}

static void close_probe(graph_probe *p)
{
    if (p->graph) p->vendor->graph_destroy(p->graph);
    if (p->within) p->vendor->event_close(p->within);
    if (p->before) p->vendor->event_close(p->before);
    (void)pthread_cond_destroy(&p->has_changed);
    (void)pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* Whether the thread has waked for launch k in time. The gate opens when it had two ms to fall asleep. */
static int launch_and_wake(graph_probe *p, int k, tandem_cuda_stream stream, int *failed)
{
    const struct timespec a_moment = {.tv_nsec = 2000000};
    struct timespec end;
    int has_waked = 0, timed_out = 0;
    atomic_store(&p->is_open, 0);
    *failed = p->vendor->graph_launch(p->graph, stream);
    (void)pthread_mutex_lock(&p->mutex);
    if (!*failed) p->n_launched = k + 1;
    (void)pthread_cond_broadcast(&p->has_changed);
    while (!*failed && p->n_waiting <= k) (void)pthread_cond_wait(&p->has_changed, &p->mutex);
    (void)pthread_mutex_unlock(&p->mutex);
    (void)nanosleep(&a_moment, NULL);
    atomic_store(&p->is_open, 1);
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    (void)pthread_mutex_lock(&p->mutex);
    while (!*failed && p->n_waited <= k && !timed_out)
        timed_out = pthread_cond_timedwait(&p->has_changed, &p->mutex, &end) != 0;
    has_waked = p->n_waited > k;
    if (!*failed && has_waked) *failed = p->failed;
    (void)pthread_mutex_unlock(&p->mutex);
    const int ended = p->vendor->stream_sync(stream); /* the graph reads the gate until then */
    if (!*failed) *failed = ended;
    return has_waked;
}

int cuda_probe_external_events(int *does_wait, const cuda_device *device)
{
    graph_probe *p = calloc(1, sizeof *p);
    pthread_t waiter;
    int has_waked = 1, failed = 0;
    int64_t between_ns = -1;
    *does_wait = 0;
    if (!p) return 0;
    p->vendor = device->vendor, p->index = device->index;
    (void)pthread_mutex_init(&p->mutex, NULL);
    (void)pthread_cond_init(&p->has_changed, NULL);
    failed = open_probe(p, device->stream);
    if (failed || pthread_create(&waiter, NULL, wait_in_launches, p) != 0) {
        close_probe(p);
        return failed;
    }
    for (int k = 0; k < LAUNCHES && has_waked && !failed; k++)
        has_waked = launch_and_wake(p, k, device->stream, &failed);
    if (!failed && !has_waked) { /* nothing ends that wait */
        (void)pthread_detach(waiter);
        return 0;
    }
    (void)pthread_mutex_lock(&p->mutex);
    p->is_over = 1;
    (void)pthread_cond_broadcast(&p->has_changed);
    (void)pthread_mutex_unlock(&p->mutex);
    (void)pthread_join(waiter, NULL);
    if (!failed) failed = device->vendor->elapsed_ns(&between_ns, p->before, p->within);
    *does_wait = !failed && !p->was_early && between_ns >= 0;
    close_probe(p);
    return failed;
}
