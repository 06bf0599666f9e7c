/* rank_place.h: which rank a process is, on which core it runs, and what it reports to the others before it
 * joins. */
#pragma once

#include "runtime/process/process.h"
#include "tandem/runtime.h"

/* The place of this process where the environment makes it a rank: RANK and WORLD_SIZE are set, and
 * TANDEM_STORE if WORLD_SIZE > 1. 1 = yes, *place is filled in; 0 = no; −1 = a wrong value, *error says
 * which. */
int rank_place_from_environment(tandem_rank_place *place, tandem_error *error);
/* The cores on which this process is to run its rank, as many as the device has (tandem_device_cores):
 * core[0 … n − 1], for tandem_worker_options; −1 = any. Says whom they are shared with. One list of a
 * process, which the next call replaces. TANDEM_NO_DEVICE: there are fewer cores here, and
 * TANDEM_OVERSUBSCRIBE does not ask for more threads than cores. TANDEM_NO_MEMORY. */
typedef struct rank_cores {
    int n;
    const int *core;
} rank_cores;
tandem_status rank_cores_take(rank_cores *cores, const char *device, const tandem_rank_place *place,
                              const tandem_listener *listener, tandem_error *error);
/* Whether ranks of n_core cores in all may begin here, of which `most` are of one rank. One core per rank
 * is never refused. TANDEM_NO_DEVICE; where TANDEM_OVERSUBSCRIBE is 1, a warning instead. */
tandem_status rank_cores_require(int n_rank, int n_core, int most, const tandem_listener *listener,
                                 tandem_error *error);

/* Before a request is read, in a process that is a rank: the others learn when it ends before it has joined,
 * and why (rank_start.c). */
void rank_start_begin(const tandem_rank_place *place);
void rank_start_joined(void);            /* from now on, it is missed by itself */
void rank_start_failed(const char *why); /* reports to the others; nothing once it has joined */

/* Says whom a core is shared with, of which `n_own` ranks of this run have it, too. */
void rank_note_shared_core(const tandem_listener *listener, int rank, const taken_core *core, int n_own);
/* Says which of a rank's own n cores are threads of one physical core; their `beside` is then −1. */
void rank_note_own_siblings(const tandem_listener *listener, int rank, taken_core *core, int n);
