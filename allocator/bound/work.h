/* work.h: how much a proof may still do; private to allocator/.
 *
 * Work is counted, not timed: the same problem ends at the same bound on every machine and through every door.
 * A step takes some 10 ns. */
#pragma once

#include <stdint.h>

typedef struct tandem_proof_work {
    int64_t left, done; /* steps */
} tandem_proof_work;

enum {
    TANDEM_WORK_LABEL = 10,    /* a label of solve.h is made, compared and sorted */
    TANDEM_WORK_PARTIAL = 20,  /* a partial path of an enumeration */
    TANDEM_WORK_REPLAY = 1000, /* a plan is replayed with its memory */
    TANDEM_WORK_COLUMN = 4000  /* a linear program takes one more column */
};
static const int64_t tandem_default_work = INT64_C(1000000000);

static inline int64_t tandem_proof_work_limit(int64_t work_limit)
{
    return work_limit > 0 ? work_limit : tandem_default_work;
}

static inline void tandem_proof_work_spend(tandem_proof_work *work, int64_t steps)
{
    work->left -= steps;
    work->done += steps;
}

/* A part of the work that is left, to be spent apart; tandem_proof_work_take_back returns the rest. */
static inline tandem_proof_work tandem_proof_work_lend(const tandem_proof_work *work, int64_t steps)
{
    const int64_t part = steps < work->left ? steps : work->left;
    return (tandem_proof_work){.left = part > 0 ? part : 0};
}
static inline void tandem_proof_work_take_back(tandem_proof_work *work, const tandem_proof_work *part)
{
    tandem_proof_work_spend(work, part->done);
}
