/* watch.c: polls on a thread of its own. */
#include "backend/comm/watch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "backend/comm/patience.h"
#include "backend/comm/thread.h"

struct tandem_watch {
    tandem_watch_poll *poll;
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards is_closing */
    pthread_cond_t closed; /* on CLOCK_MONOTONIC */
    bool is_closing;
};

static void add_watch_slice(struct timespec *time)
{
    time->tv_nsec += TANDEM_PATIENCE_SLICE_NS;
    if (time->tv_nsec >= 1000000000) {
        time->tv_nsec -= 1000000000;
        time->tv_sec++;
    }
}

static void *poll_until_closed(void *argument)
{
    tandem_watch *watch = argument;
    tandem_patience patience = tandem_patience_begin();
    pthread_mutex_lock(&watch->mutex);
    while (!watch->is_closing) {
        struct timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next);
        add_watch_slice(&next);
        int rc = 0;
        while (!watch->is_closing && rc == 0)
            rc = pthread_cond_timedwait(&watch->closed, &watch->mutex, &next);
        if (watch->is_closing) break;
        pthread_mutex_unlock(&watch->mutex);
        watch->poll(watch->context, tandem_patience_look(&patience));
        pthread_mutex_lock(&watch->mutex);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static void destroy_watch(tandem_watch *watch)
{
    pthread_cond_destroy(&watch->closed);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

tandem_status tandem_watch_open(tandem_watch **out, tandem_watch_poll *poll, void *context,
                                tandem_error *error)
{
    tandem_watch *watch = calloc(1, sizeof *watch);
    if (!watch) return tandem_no_memory(error, "for a communicator");
    watch->poll = poll;
    watch->context = context;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->closed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (tandem_thread_start(&watch->thread, -1, poll_until_closed, watch) != 0) {
        destroy_watch(watch);
        return tandem_error_set(error, TANDEM_NO_MEMORY, "cannot start a thread for a communicator");
    }
    *out = watch;
    return TANDEM_OK;
}

void tandem_watch_close(tandem_watch *watch)
{
    if (!watch) return;
    pthread_mutex_lock(&watch->mutex);
    watch->is_closing = true;
    pthread_cond_signal(&watch->closed);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    destroy_watch(watch);
}
