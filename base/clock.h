/* clock.h: the clock of all durations. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* Nanoseconds since an arbitrary moment; never goes back. */
static inline int64_t tandem_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Time that the calling thread has waited for a core, less the CPU time of the other threads of its process.
 * On a core of its own that is what other processes took. Only differences have a meaning. INT64_MIN:
 * unknown, since this Linux does not count it. Cost: about 10 us. */
static inline int64_t tandem_cpu_wait_ns(void)
{
    long long delayed_ns = 0;
    struct timespec all, own;
    FILE *stream = fopen("/proc/thread-self/schedstat", "re");
    const int is_known = stream && fscanf(stream, "%*d %lld", &delayed_ns) == 1;
    if (stream) (void)fclose(stream);
    if (!is_known) return INT64_MIN;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return delayed_ns - ((int64_t)(all.tv_sec - own.tv_sec) * 1000000000 + all.tv_nsec - own.tv_nsec);
}

#endif
