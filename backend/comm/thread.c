/* thread.c: starts a thread on a core, without signals. */
#include "backend/comm/thread.h"

#include <sched.h>
#include <signal.h>

int tandem_thread_start(pthread_t *thread, int cpu, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    const int failed_attributes = pthread_attr_init(&attributes);
    if (failed_attributes) return failed_attributes;
    if (cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        (void)pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    }
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    const int failed = pthread_create(thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}
