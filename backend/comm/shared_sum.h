/* shared_sum.h: sums over the ranks of one machine in the memory that they share. Private to backend/comm.
 *
 * Each rank comes and says what is to be summed; the last to come starts. Then whoever is awake takes one
 * piece after the other, reads it in all parts and writes the sum into all parts: over all R ranks, R times
 * its size is read and written, and nothing is copied. Which rank sums a piece decides no bit: the order in
 * which the parts are added is that of the ring (ring.h), so that a sum over the network has the same
 * bits. */
#ifndef TANDEM_BACKEND_COMM_SHARED_SUM_H
#define TANDEM_BACKEND_COMM_SHARED_SUM_H

#include <stdbool.h>

#include "backend/comm/membership.h"
#include "backend/comm/shm_region.h"

/* What this needs of a segment's common bytes. */
size_t tandem_shared_sum_bytes(int n_rank);

typedef struct tandem_shared_sum {
    tandem_shm_region region;
    unsigned sequence; /* sums that this rank has come to */
} tandem_shared_sum;

typedef enum tandem_shared_result {
    TANDEM_SHARED_OK,
    TANDEM_SHARED_BROKEN,  /* a rank that it waits for is dead, has left, or has given up */
    TANDEM_SHARED_TIMEOUT, /* nothing came of it within the timeout */
    TANDEM_SHARED_MISMATCH /* the ranks want to sum different places */
} tandem_shared_result;

/* Whether n floats at `data` are all of this rank's part. */
bool tandem_shared_sum_contains(const tandem_shared_sum *sum, const float *data, size_t n);

/* Sums the n > 0 floats at the same place of each part, into all of them. Blocks, in the kernel. One at a
 * time. */
tandem_shared_result tandem_shared_sum_run(tandem_shared_sum *sum, const float *data, size_t n,
                                           const tandem_membership *membership, int64_t timeout_ns);

#endif
