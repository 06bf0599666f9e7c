/* membership.h: which ranks take part in a run, which are gone, and which rank failed. Private to
 * backend/comm.
 *
 * The state is files in the run's directory, r being a rank:
 *   rank.<r>.alive     rank r locks it for as long as it lives; the kernel releases a dead process's
 *                      lock. Holds the number of ranks that rank r expects, and on a second line the
 *                      version of its library. The lock belongs to the open file (F_OFD_SETLK): unlike
 *                      a process's lock it survives when another descriptor of the file is closed. A
 *                      child that is forked without exec keeps it, and its dead parent then counts as
 *                      alive.
 *   rank.<r>.stopping  rank r has seen a collective fail. The first such rank also creates `stopping`,
 *                      so that waiting ranks look at one file instead of one per rank.
 *   rank.<r>.left      rank r has closed its communicator without a failure.
 *   rank.<r>.address   where rank r listens (mesh.h), for its own user alone.
 *   failed             the report (base/run_report.h). Ranks leave only after it is written, so that no
 *                      survivor counts as dead. base/run_report.h has rank.<r>.started, too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_membership {
    int directory, lock; /* descriptors; -1 = not open */
    int rank, n_rank;
} tandem_membership;

/* Claims `rank` in the run. *membership is unchanged on error: TANDEM_USAGE: `store` is no directory or
 * another run's, or the rank is taken; TANDEM_IO: it cannot be written or has no locks; TANDEM_RANK_FAILED:
 * another rank has refused. */
tandem_status tandem_membership_open(tandem_membership *membership, const char *store, int rank, int n_rank,
                                     tandem_error *error);

/* Blocks until every rank is there. TANDEM_RANK_FAILED: a rank did not join within timeout_ns (patience.h) or
 * died, or the run failed; TANDEM_USAGE, on every rank: one expects another number of ranks, or has another
 * version. */
tandem_status tandem_membership_join(const tandem_membership *membership, const char *store,
                                     int64_t timeout_ns, tandem_error *error);

/* Whether the run has failed: a rank is stopping, there is a report, or a neighbour of this rank in the ring
 * died. Thread-safe, a few microseconds. */
bool tandem_membership_is_broken(const tandem_membership *membership);

/* Whether a rank has left without a failure, so that waiting for it is useless. */
bool tandem_membership_has_left(const tandem_membership *membership);

/* Reports to the other ranks that this rank has seen the run fail. Call it before breaking its
 * connections. */
void tandem_membership_stop(const tandem_membership *membership);

/* `what` of the joining of the ranks. */
#define TANDEM_JOINING "the joining of the ranks"

/* Finds, within a second, the failed rank after `what` ("an all-reduce") failed with the text `why`: a rank
 * that is dead, has left, or has not stopped (it hangs). All ranks get the same answer. Returns
 * TANDEM_RANK_FAILED, or the error that all ranks have. */
tandem_status tandem_membership_find_failed(const tandem_membership *membership, const char *what,
                                            const char *why, tandem_error *error);

/* Writes the report, unless there is one. */
void tandem_membership_report_failed(const tandem_membership *membership, int rank, const char *text);
/* Reports a TANDEM_USAGE that all ranks have found, for those that have not yet. Returns it. */
tandem_status tandem_membership_refuse_all(const tandem_membership *membership, const tandem_error *error);

/* The text by which other ranks reach this one, whole or not at all, readable for this user alone.
 * TANDEM_IO. */
tandem_status tandem_membership_write_address(const tandem_membership *membership, const char *text,
                                              tandem_error *error);
/* false: rank `rank` has not written it yet. */
bool tandem_membership_read_address(const tandem_membership *membership, int rank, char *text, size_t size);

/* For a rank that cannot take part, as it has no device: leaves its report, which ends the joining of the
 * others. Nothing where there is no such directory. */
void tandem_membership_refuse(const char *store, int rank, int n_rank, const char *text);

/* This rank leaves the run without a failure. */
void tandem_membership_leave(const tandem_membership *membership);

/* Releases the lock. */
void tandem_membership_close(tandem_membership *membership);
