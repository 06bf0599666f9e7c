/* comm.h: collectives between the ranks of a run, over Gloo (TCP) or in shared memory, in plain C.
 *
 * A run has a directory that all ranks reach (`store`). Each rank writes two small keys into it, by which the
 * ranks find each other, and locks a file there for as long as it lives. The kernel releases a dead process's
 * lock at once, so that after a failed collective the other ranks can determine which rank is gone.
 *
 * Nothing here throws, aborts or hangs. A dead rank is TANDEM_RANK_FAILED, with error.rank, on every other
 * rank; a silent rank is the same after the timeout and one second. Afterwards every call returns the same
 * error at once. A rank may close its communicator early; a collective that still needs it fails with its
 * rank.
 *
 * Every rank makes the same collectives with the same sizes and, within a tag, in the same order; where they
 * differ, the collective times out (error.rank = -1). A failed collective leaves its data undefined. Ranks
 * connect over the loopback address, or over the network interface that TANDEM_IFACE names. Ranks of one
 * machine sum gradients in shared memory (tandem_comm_alloc_shared), and each may page-lock its part for its
 * device.
 *
 * Thread-safe, with one tag per thread; opening and closing need exclusive access. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/dtype.h"
#include "tandem/status.h"

typedef struct tandem_comm tandem_comm;

/* Locks a rank's part of shared memory for its device, and unlocks it; whole pages. The functions are those
 * of the device's table (device_backend.h). A rank whose `lock` fails shares no memory. */
typedef struct tandem_comm_lock {
    /* NULL: no locking */
    tandem_status (*lock)(void *device, void *memory, uint64_t bytes, tandem_error *error);
    void (*unlock)(void *device, void *memory);
    void *device;
} tandem_comm_lock;

typedef struct tandem_comm_options {
    int rank, n_rank;
    /* existing directory on a file system with locks, fresh for this run; NULL for one rank */
    const char *store;
    int64_t timeout_ns; /* a rank that is silent for longer has failed */
    int cpu;            /* core of Gloo's own thread; -1 = any */
    int over_network;   /* 1: this rank shares no memory, so no rank does */
    tandem_dtype wire;  /* TANDEM_F32 or TANDEM_BF16: what gradients travel in; the same on every rank */
    tandem_comm_lock locking;
    const char *agreement; /* lines that must be the same on every rank; NULL = none */
} tandem_comm_options;

/* Connects all ranks; blocks until all are there or the timeout passes (TANDEM_RANK_FAILED, error.rank = a
 * missing rank). n_rank = 1 opens no socket and no file. *comm is unchanged on error. The directory cannot be
 * used again. TANDEM_USAGE: a wrong rank, core, interface or WORLD_SIZE, a directory that another run or
 * rank uses, or, on every rank, ranks whose `wire` differs; TANDEM_IO: the directory or the network fails;
 * TANDEM_NO_MEMORY. */
tandem_status tandem_comm_open(tandem_comm **comm, const tandem_comm_options *options, tandem_error *error);
/* For a rank that opens none, as its device failed for the reason `why`: reports it to the others, which
 * would wait for it until the timeout. Nothing with one rank. */
void tandem_comm_refuse(const tandem_comm_options *options, const char *why);
/* NULL is fine. No collective may be running and no reducer open. Does not wait for other ranks; some 10 ms
 * per rank. */
void tandem_comm_close(tandem_comm *comm);

/* Sums over all ranks, in place, with the same bits on every rank and in every run. Blocks in the kernel.
 * `tag` separates collectives of different threads; UINT32_MAX is the reducer's. Collectives return
 * TANDEM_OK, TANDEM_RANK_FAILED, TANDEM_NO_MEMORY (then the communicator is dead too) or TANDEM_USAGE
 * (nothing was sent). Cost: in shared memory, 2 reads and writes of the data per rank (shared_sum.h); else a
 * ring (ring.h): with 2 ranks of one core over loopback 0.09 ms for 4 KiB, 4 to 5 ms and as much CPU time for
 * 12 MiB, 13 ms for 32 MiB; two to four times as long while the core also computes. */
tandem_status tandem_comm_sum_f32(tandem_comm *comm, float *data, size_t n, uint32_t tag,
                                  tandem_error *error);
/* The same in the communicator's `wire`. In bf16, all elements but the last are rounded whenever a rank has
 * added its own, in the order of the ring (ring.h); the last one, which may carry a loss, stays f32. Over the
 * network half of the bytes travel; in shared memory the bits are the same, and the cost is that of f32. With
 * one rank nothing is rounded. */
tandem_status tandem_comm_sum_gradients(tandem_comm *comm, float *data, size_t n, uint32_t tag,
                                        tandem_error *error);

/* The halves of tandem_comm_sum_gradients, for ranks that each update a part of the parameters.
 *
 * Shards of n floats: rank r owns floats border[r] … border[r + 1] - 1 of `data`. `border` has n_rank + 1
 * ascending entries, border[0] = 0 and border[n_rank] = n. Each is a multiple of 16, or n; shards may be
 * empty. The caller owns `border`, which is read until the call returns. It is the same on every rank: where
 * it differs, the collective times out over the network, and fails at once in shared memory (error.rank =
 * -1). A rank that needs none of the others' data may get this error at its next collective. In shared memory
 * `data` lies as for a sum (tandem_comm_alloc_shared). n = 0 and n_rank = 1 are fine, and move nothing.
 * TANDEM_USAGE: borders that are not so, or `data` is NULL and n > 0; other errors as above. */

/* Sums over all ranks as tandem_comm_sum_gradients does, in the communicator's `wire`, but each rank gets its
 * own shard alone. Its floats have the bits that tandem_comm_sum_gradients would have left there, with any
 * borders; the last of the n floats stays f32 in its owner's shard. The rest of this rank's `data` is
 * undefined. Cost: in shared memory, `data` is read n_rank times and written once, which the ranks share;
 * else half of an all-reduce, and what of a shard lies outside its owner's chunk (shards.h) travels once
 * more. */
tandem_status tandem_comm_scatter_gradients(tandem_comm *comm, float *data, size_t n, const size_t *border,
                                            uint32_t tag, tandem_error *error);
/* Sets every shard of `data` to the bits that its owner has there, on every rank; always 4 bytes per float.
 * Cost: in shared memory, `data` is read once and written n_rank - 1 times, which the ranks share; else each
 * rank receives once what it does not own, round the ring. */
tandem_status tandem_comm_gather_shards(tandem_comm *comm, float *data, size_t n, const size_t *border,
                                        uint32_t tag, tandem_error *error);

tandem_status tandem_comm_barrier(tandem_comm *comm, uint32_t tag, tandem_error *error);
/* Copies `bytes` of rank root's `data` to all ranks. */
tandem_status tandem_comm_broadcast(tandem_comm *comm, void *data, size_t bytes, int root, uint32_t tag,
                                    tandem_error *error);
/* Sets all[r·bytes …] to `mine` of rank r, on every rank. */
tandem_status tandem_comm_gather(tandem_comm *comm, const void *mine, void *all, size_t bytes, uint32_t tag,
                                 tandem_error *error);

/* Whether the ranks share memory: they run on one machine, sharing worked when the communicator was opened,
 * and no later allocation failed but for lack of memory. The same on every rank. */
int tandem_comm_shares_memory(const tandem_comm *comm);
/* Connections that came while the ranks joined and were none of the run's; they were closed. */
int64_t tandem_comm_n_stranger(const tandem_comm *comm);
/* Why they do not, although over_network is 0: "rank 1: …", the same on every rank; else "". */
const char *tandem_comm_shared_memory_error(const tandem_comm *comm);
/* All ranks, with the same bytes: this rank's part of new shared memory, cleared and locked. A sum of data in
 * it, or a half of one, must be at the same offset on every rank; it copies nothing, and one thread at a time
 * may run it. *memory is NULL where the ranks share no memory, and unchanged on error: a collective's errors,
 * or TANDEM_NO_MEMORY on every rank. The memory has no name and ends with the ranks. */
tandem_status tandem_comm_alloc_shared(tandem_comm *comm, void **memory, uint64_t bytes, uint32_t tag,
                                       tandem_error *error);
/* Bytes of shared memory that belong to other ranks but count in this process's page tables. */
uint64_t tandem_comm_peer_bytes(tandem_comm *comm);
/* Frees this rank's part; no sum may be running there. Returns 0 where `memory` is no shared allocation. */
int tandem_comm_free_shared(tandem_comm *comm, void *memory);

/* --- The bucket reducer: a thread that sums buckets in order while the caller computes ------------------
 *
 * A bucket without borders is all-reduced. One with borders is scattered instead (`data`, as by
 * tandem_comm_scatter_gradients); then the caller updates its shard of `weight`, and the thread gathers the
 * shards (tandem_comm_gather_shards). In each step the thread scatters all buckets in ascending order, then
 * gathers them in ascending order; so no gather begins before the last scatter has ended. */
typedef struct tandem_reducer tandem_reducer;

typedef struct tandem_bucket_view {
    float *data; /* [n] gradients */
    size_t n;
    /* [n_rank + 1] of the bucket's shards; not copied: must outlive the reducer. NULL: it is all-reduced */
    const size_t *border;
    float *weight; /* [n] with `border`: the floats whose shards are gathered after the update; else NULL */
} tandem_bucket_view;

/* One thread, pinned to `cpu` (-1 = none). Buckets are views into the caller's memory, which must outlive the
 * reducer; the array of views is copied. One reducer per communicator, which must outlive it. *reducer is
 * unchanged on error: TANDEM_USAGE (no such core; borders of some buckets alone, or without `weight`; wrong
 * borders fail later, in the collective), TANDEM_NO_MEMORY. */
tandem_status tandem_reducer_open(tandem_reducer **reducer, tandem_comm *comm,
                                  const tandem_bucket_view *bucket, int n_bucket, int cpu,
                                  tandem_error *error);
/* Before the first bucket is ready: a function that the reducer's thread calls before it reduces bucket b.
 * Its failure is the bucket's. */
typedef tandem_status tandem_bucket_wait(void *context, int b, tandem_error *error);
void tandem_reducer_set_wait(tandem_reducer *reducer, tandem_bucket_wait *wait, void *context);
/* NULL is fine. Drops the buckets that have not begun, and finishes a running one, which takes at most the
 * communicator's timeout and one second. */
void tandem_reducer_close(tandem_reducer *reducer);
/* The caller has written bucket b of this step, so its all-reduce, or scatter, may start. Buckets become
 * ready in any order and are reduced in ascending order. Never blocks. */
void tandem_reducer_ready(tandem_reducer *reducer, int b);
/* Blocks until bucket b of this step is reduced; with borders, until this rank has its shard of the sums.
 * Once a bucket has failed, it returns that error for all later ones. start_ns and end_ns (each may be NULL;
 * unchanged on error) are the CLOCK_MONOTONIC times at which its all-reduce, or scatter, began and ended on
 * this rank. Waits for ever if the bucket never becomes ready. */
tandem_status tandem_reducer_wait(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                  tandem_error *error);
/* The caller has updated its shard of bucket b's weights in this step, so they may be gathered. Buckets are
 * updated in any order. Never blocks. Ignored where buckets have no borders. */
void tandem_reducer_updated(tandem_reducer *reducer, int b);
/* Blocks until bucket b's weights of this step are gathered: the caller may read all of them. Errors and
 * times as of tandem_reducer_wait; a failed scatter fails the gathers, too. TANDEM_USAGE: no such bucket, or
 * buckets have no borders. Waits for ever if a bucket never becomes ready, or b or one before it is never
 * updated. */
tandem_status tandem_reducer_wait_gathered(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                           tandem_error *error);
/* Between steps: no bucket is ready or updated any more. Call it only after waiting for every bucket, and
 * with borders for every bucket's weights. */
void tandem_reducer_next_step(tandem_reducer *reducer);
