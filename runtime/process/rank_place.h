/* rank_place.h: which rank a process is, on which core it runs, and what it reports to the others before it
 * joins. */
#pragma once

#include "runtime/process/process.h"
#include "tandem/runtime.h"

/* The place of this process where the environment makes it a rank: RANK and WORLD_SIZE are set, and
 * TANDEM_STORE if WORLD_SIZE > 1. 1 = yes, *place is filled in; 0 = no; −1 = a wrong value, *error says
 * which. */
int rank_place_from_environment(tandem_rank_place *place, tandem_error *error);
/* The core on which this process is to run its rank: its own, or −1 = any. Says whom it is shared with. */
int rank_core(const tandem_rank_place *place, const tandem_listener *listener);

/* Before a request is read, in a process that is a rank: the others learn when it ends before it has joined,
 * and why (rank_start.c). */
void rank_start_begin(const tandem_rank_place *place);
void rank_start_joined(void);            /* from now on, it is missed by itself */
void rank_start_failed(const char *why); /* reports to the others; nothing once it has joined */

/* Says whom a core is shared with, of which `n_own` ranks of this run have it, too. */
void rank_note_shared_core(const tandem_listener *listener, int rank, const taken_core *core, int n_own);
