/* patience.h: how long a rank has waited for others while it ran itself. Private to backend/comm.
 *
 * A scheduler may stop all processes of a run for hours (SIGSTOP). On waking, a rank must not blame the
 * others for that time. A waiting rank therefore looks at the clock at least every TANDEM_PATIENCE_SLICE_NS.
 * A gap that is far longer means that this rank did not run either; no more than two slices of it count. */
#pragma once

#include <stdbool.h>

#include "base/clock.h"

#define TANDEM_PATIENCE_SLICE_NS INT64_C(100000000)

typedef struct tandem_patience {
    int64_t seen_ns;   /* when this rank last looked at the clock */
    int64_t waited_ns; /* counted so far */
} tandem_patience;

static inline tandem_patience tandem_patience_begin(void)
{
    return (tandem_patience){.seen_ns = tandem_now_ns()};
}

/* Looks at the clock, and returns the time since the last look, as far as it counts. */
static inline int64_t tandem_patience_look(tandem_patience *patience)
{
    const int64_t now_ns = tandem_now_ns(), gap_ns = now_ns - patience->seen_ns;
    const int64_t counted_ns = gap_ns < 2 * TANDEM_PATIENCE_SLICE_NS ? gap_ns : 2 * TANDEM_PATIENCE_SLICE_NS;
    patience->seen_ns = now_ns;
    patience->waited_ns += counted_ns;
    return counted_ns;
}

/* Looks at the clock; true: the rank has waited for `limit_ns`. */
static inline bool tandem_patience_ends(tandem_patience *patience, int64_t limit_ns)
{
    (void)tandem_patience_look(patience);
    return patience->waited_ns >= limit_ns;
}
