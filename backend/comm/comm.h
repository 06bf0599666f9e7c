/* comm.h: collectives between the ranks of one run, over Gloo (TCP) or in memory that they share, behind
 * plain C.
 *
 * A run is a directory that all ranks can reach (`store`); each rank writes two small keys into it to find
 * the others, and holds a lock on a file there for as long as it lives, so that when a collective breaks, the
 * survivors can tell *which* rank is gone: the kernel drops a dead process's lock at once.
 *
 * Nothing here throws, aborts or hangs: a dead peer is TANDEM_RANK_FAILED with error.rank on every survivor,
 * a silent one the same after the timeout and a second more. After TANDEM_RANK_FAILED the communicator is
 * dead: every further call returns TANDEM_RANK_FAILED, with the same error, at once; the others stop too. A
 * rank that closes its communicator in good order is no dead peer, but a collective that still counts on it
 * fails with its rank.
 *
 * Every rank makes the same collectives with the same sizes and, within a tag, in the same order; where they
 * differ the timeout ends it (error.rank = -1). What an unsuccessful collective leaves in the data is
 * undefined. Ranks talk over the loopback address, or over the network interface that the environment names
 * in TANDEM_IFACE. Where all of them run on one machine they sum gradients in memory that they share
 * (tandem_comm_alloc_shared), and each can have its own part of that page-locked for its device.
 *
 * Thread-safe, with a tag for each thread that calls at once; only open and close want a thread to
 * themselves. */
#ifndef TANDEM_BACKEND_COMM_COMM_H
#define TANDEM_BACKEND_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_comm tandem_comm;

/* What a rank does with its part of shared memory before it is used, and again to undo it; whole pages. Rows
 * of a device's table (tandem/backend.h). A rank whose `lock` fails shares none. */
typedef struct tandem_comm_lock {
    /* NULL: nothing */
    tandem_status (*lock)(void *device, void *memory, uint64_t bytes, tandem_error *error);
    void (*unlock)(void *device, void *memory);
    void *device;
} tandem_comm_lock;

typedef struct tandem_comm_options {
    int rank, n_rank;
    /* existing directory on a file system with locks, fresh for this run; NULL for one rank */
    const char *store;
    int64_t timeout_ns; /* a peer silent for longer is dead */
    int cpu;            /* core that Gloo's own thread is pinned to; -1 = leave it */
    int over_network;   /* 1: this rank shares no memory, so that none does */
    tandem_comm_lock locking;
} tandem_comm_options;

/* Connects all ranks; blocks until all are there or the timeout passes (TANDEM_RANK_FAILED, error.rank = a
 * missing rank). n_rank = 1 opens no socket and no file. *comm is unchanged on error. Whatever the result,
 * the directory is used up. TANDEM_USAGE: rank, core, interface or WORLD_SIZE are off, the directory is
 * another run's (used before, or the rank is taken); TANDEM_IO: the directory or the network refuse;
 * TANDEM_NO_MEMORY. */
tandem_status tandem_comm_open(tandem_comm **comm, const tandem_comm_options *options, tandem_error *error);
/* NULL is fine. No collective may be under way, and no reducer be open. Waits for nobody; some 10 ms a rank.
 * */
void tandem_comm_close(tandem_comm *comm);

/* In place sum over all ranks, the same bits on every rank, every time. Blocks, in the kernel. `tag`
 * separates collectives that different threads run at once; UINT32_MAX is the reducer's. All collectives
 * return TANDEM_OK, TANDEM_RANK_FAILED, TANDEM_NO_MEMORY (the communicator is dead then too) or TANDEM_USAGE
 * (nothing was sent). Cost: in shared memory, 2 reads and writes of the data a rank (shared_sum.h); else a
 * ring (ring.h): 2 ranks of one core over loopback: 0.09 ms for 4 KiB, 4 to 5 ms and as much CPU time for 12
 * MiB, 13 ms for 32 MiB; two to four times as long where the core computes meanwhile. */
tandem_status tandem_comm_sum_f32(tandem_comm *comm, float *data, size_t n, uint32_t tag,
                                  tandem_error *error);
tandem_status tandem_comm_barrier(tandem_comm *comm, uint32_t tag, tandem_error *error);
/* Copies `bytes` of `data` of rank `root` to all. */
tandem_status tandem_comm_broadcast(tandem_comm *comm, void *data, size_t bytes, int root, uint32_t tag,
                                    tandem_error *error);
/* all[r·bytes …] = mine of rank r, on every rank. */
tandem_status tandem_comm_gather(tandem_comm *comm, const void *mine, void *all, size_t bytes, uint32_t tag,
                                 tandem_error *error);

/* Whether the ranks share memory: all on one machine, tried when the communicator was opened, and given up
 * where a later take failed for another reason than that there is none left. The same on every rank. */
int tandem_comm_shares_memory(const tandem_comm *comm);
/* Why they do not, where nobody chose so: "rank 1: …", the same on every rank; else "". */
const char *tandem_comm_shared_memory_error(const tandem_comm *comm);
/* All ranks together, with the same bytes: memory of this rank, cleared, locked, that the others can reach
 * too. A sum of data in it must name the same place on every rank; it needs no copies and one thread at a
 * time. *memory is NULL where the ranks share none, and unchanged on error: what a collective says, or
 * TANDEM_NO_MEMORY on every rank. The memory is anonymous, and gone with the ranks. */
tandem_status tandem_comm_alloc_shared(tandem_comm *comm, void **memory, uint64_t bytes, uint32_t tag,
                                       tandem_error *error);
/* What the other ranks have in memory that this one can reach, and has in its tables. */
uint64_t tandem_comm_peer_bytes(tandem_comm *comm);
/* Of this rank alone; no sum may be under way there. 0: `memory` is none that was taken. */
int tandem_comm_free_shared(tandem_comm *comm, void *memory);

/* --- The bucket reducer: a thread that all-reduces buckets in order while the caller computes. ---------- */
typedef struct tandem_reducer tandem_reducer;

typedef struct tandem_bucket_view {
    float *data;
    size_t n;
} tandem_bucket_view;

/* One thread, pinned to `cpu` (-1 = not). Buckets are views into memory of the caller, alive as long as the
 * reducer; the array of views itself is copied. One reducer a communicator, which must outlive it. *reducer
 * is unchanged on error: TANDEM_USAGE (no such core), TANDEM_NO_MEMORY. */
tandem_status tandem_reducer_open(tandem_reducer **reducer, tandem_comm *comm,
                                  const tandem_bucket_view *bucket, int n_bucket, int cpu,
                                  tandem_error *error);
/* Before the first bucket is handed over: what the reducer's thread does before it reduces bucket b. Where
 * that fails, its error is that of the bucket. */
typedef tandem_status tandem_bucket_wait(void *context, int b, tandem_error *error);
void tandem_reducer_set_wait(tandem_reducer *reducer, tandem_bucket_wait *wait, void *context);
/* NULL is fine. Drops the buckets not yet begun; one under way is finished first, which takes at most the
 * timeout of the communicator and a second. */
void tandem_reducer_close(tandem_reducer *reducer);
/* The caller has finished writing bucket b of this step: hand it over. Buckets are reduced in ascending
 * order; b may be handed over in any order. Never blocks. */
void tandem_reducer_ready(tandem_reducer *reducer, int b);
/* Blocks until bucket b of this step is reduced; where it or one before it failed, returns the error of that
 * collective, from then on always. start_ns and end_ns (either may be NULL; unchanged on error) are
 * CLOCK_MONOTONIC times at which its all-reduce began and ended on this rank. Waits for ever for a bucket
 * that nobody hands over. */
tandem_status tandem_reducer_wait(tandem_reducer *reducer, int b, int64_t *start_ns, int64_t *end_ns,
                                  tandem_error *error);
/* Between steps: all buckets are unhanded again. Call only when every bucket was waited for. */
void tandem_reducer_next_step(tandem_reducer *reducer);

#endif
