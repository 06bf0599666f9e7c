/* effort.h: how much a proof may still do; private to allocator/.
 *
 * Work is counted, not timed: the same problem ends at the same bound on every machine and through every
 * door. A step takes some 10 ns. */
#pragma once

#include <stdint.h>

typedef struct tandem_effort {
    int64_t left, done; /* steps */
} tandem_effort;

enum {
    TANDEM_EFFORT_LABEL = 10,    /* a label of solve.h is made, compared and sorted */
    TANDEM_EFFORT_PARTIAL = 20,  /* a partial path of an enumeration */
    TANDEM_EFFORT_REPLAY = 1000, /* a plan is replayed with its memory */
    TANDEM_EFFORT_COLUMN = 4000  /* a linear program takes one more column */
};
static const int64_t tandem_default_work = INT64_C(1000000000);

static inline int64_t tandem_effort_limit(int64_t work_limit)
{
    return work_limit > 0 ? work_limit : tandem_default_work;
}

static inline void tandem_effort_spend(tandem_effort *work, int64_t steps)
{
    work->left -= steps;
    work->done += steps;
}

/* A part of the work that is left, to be spent apart; tandem_effort_take_back returns the rest. */
static inline tandem_effort tandem_effort_lend(const tandem_effort *work, int64_t steps)
{
    const int64_t part = steps < work->left ? steps : work->left;
    return (tandem_effort){.left = part > 0 ? part : 0};
}
static inline void tandem_effort_take_back(tandem_effort *work, const tandem_effort *part)
{
    tandem_effort_spend(work, part->done);
}
