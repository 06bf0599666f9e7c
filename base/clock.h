/* clock.h: the clock of all durations. */
#pragma once

#include <stdint.h>
#include <time.h>

/* Nanoseconds since an arbitrary moment; never goes back. */
static inline int64_t tandem_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

