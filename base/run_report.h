/* run_report.h: what a rank leaves in its run's directory before it can talk to the others: that it has
 * started, and why it failed.
 *
 * Both are files in the directory that TANDEM_STORE names:
 *   rank.<r>.started  rank r locks it from its first moment on. The kernel releases the lock of a process
 *                     that has ended, so that the others learn of a rank that ends before it joins.
 *   failed            "<rank> <status> <text>": the error that ends the run. The first rank that notices
 *                     writes it, the others read it. */
#pragma once

#include <stdbool.h>

#include "tandem/status.h"

/* Locks rank.<rank>.started for as long as this process lives. Returns the descriptor, which stays open; -1:
 * the directory cannot be written, or another process holds the lock. */
int tandem_run_start(const char *store, int rank);

/* Whether `rank` has started and its process has ended. `directory`: a descriptor. */
bool tandem_run_has_ended(int directory, int rank);

/* Writes the report unless there is one; `own` is the rank of this process, `failed` the one that failed, -1
 * = unknown. `status`: TANDEM_RANK_FAILED, or the error that all ranks then have. */
void tandem_run_report_write(int directory, int own, tandem_status status, int failed, const char *text);

/* The same in the directory `store`, for an error of this rank before it joined. Nothing without such a
 * directory. */
void tandem_run_report_own(const char *store, int own, const char *text);

/* Sets *error to the report, if there is one. A text of another program's version has no status, and is read
 * as that of a failed rank. */
bool tandem_run_report_read(int directory, int n_rank, tandem_error *error);
