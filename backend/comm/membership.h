/* membership.h: who takes part in a run, who is gone, and what the run failed of. Private to backend/comm.
 *
 * All of it is files in the directory of the run, r being a rank:
 *   rank.<r>.alive     locked by rank r for as long as it lives; the kernel drops the lock of a dead process.
 *                      Holds the number of ranks that rank r was started for. The lock is one of the open
 *                      file (F_OFD_SETLK): unlike a process's lock it survives that somebody closes another
 *                      descriptor of the file. A child forked without exec keeps it, and so keeps its dead
 *                      parent alive here.
 *   rank.<r>.stopping  rank r has seen a collective fail. The first to see it also makes `stopping`, so that
 *                      those who still wait look at one file, not at one of each rank.
 *   rank.<r>.left      rank r has closed its communicator without a failure.
 *   failed             "<rank> <text>": the verdict, whose fault it was; the first that notices writes it,
 *                      the others read it. A survivor leaves only after it is written, so survivors are never
 *                      taken for dead. */
#ifndef TANDEM_BACKEND_COMM_PRESENCE_H
#define TANDEM_BACKEND_COMM_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_membership {
    int directory, lock; /* descriptors; -1 = not open */
    int rank, n_rank;
} tandem_membership;

/* Takes the place of `rank` in the run. *presence is unchanged on error: TANDEM_USAGE where `store` is no
 * directory, another run's, or the rank is taken; TANDEM_IO where it cannot be written or has no locks. */
tandem_status tandem_membership_open(tandem_membership *membership, const char *store, int rank, int n_rank,
                                     tandem_error *error);

/* Blocks until every rank is there. TANDEM_RANK_FAILED: one did not come within timeout_ns, died meanwhile,
 * or the run failed; TANDEM_USAGE: a rank counts another number of ranks. */
tandem_status tandem_membership_join(const tandem_membership *membership, const char *store,
                                     int64_t timeout_ns, tandem_error *error);

/* Whether the run fails: a rank is stopping, there is a verdict, or one of this rank's neighbours in the ring
 * died. Thread-safe, a few microseconds. */
bool tandem_membership_is_broken(const tandem_membership *membership);

/* Whether a rank has left in good order: what still waits for it waits in vain. */
bool tandem_membership_has_left(const tandem_membership *membership);

/* Tells the others that this rank has seen the run fail. To be called before its connections are ended. */
void tandem_membership_stop(const tandem_membership *membership);

/* Finds out, within a second, who is to blame for `what` ("an all-reduce") that failed with the words `why`:
 * a rank that is dead, has left, or has not stopped (it hangs). All ranks get the same answer. Returns
 * TANDEM_RANK_FAILED. */
tandem_status tandem_membership_find_failed(const tandem_membership *membership, const char *what,
                                            const char *why, tandem_error *error);

/* Writes the verdict, unless there is one. */
void tandem_membership_report_failed(const tandem_membership *membership, int rank, const char *text);

/* This rank leaves the run in good order. */
void tandem_membership_leave(const tandem_membership *membership);

/* Gives the lock up. */
void tandem_membership_close(tandem_membership *membership);

#endif
