/* mesh.h: connects every rank with every other one over TCP, among others that connect. Private to
 * backend/comm.
 *
 * Gloo takes the first connection that it gets for that of a rank, and bytes of a stranger for a message. So
 * the ranks connect here, and gloo.cc gives Gloo the sockets. Each rank listens, and writes its address and a
 * random secret to `rank.<r>.address` in the run's directory, a file for its own user alone. Each rank
 * connects to the lower ones: it says the other's secret and its own, and gets its own back. Connections that
 * do not are closed and counted. At most 32 of them are open at a time, and the oldest makes room for the
 * next. A connection between ranks that breaks before this is done is made again. */
#pragma once

#include "backend/comm/membership.h"

typedef struct tandem_mesh_options {
    const tandem_membership *membership; /* of ranks that have all joined */
    const char *interface;               /* name of a network interface; NULL = the loopback address */
    int64_t timeout_ns;
} tandem_mesh_options;

/* Sets file[n_rank] to connected sockets, -1 for this rank itself; the caller closes them. *n_stranger: the
 * connections that were none of the run's. Both unchanged on error. TANDEM_RANK_FAILED: a rank was not
 * connected in time, or the run failed meanwhile; the text is a clause that says what was waited for.
 * TANDEM_USAGE, the same on all ranks: an address is of no use on another rank's host. TANDEM_IO: the
 * directory, the interface or a socket of this rank fails; TANDEM_NO_MEMORY. */
tandem_status tandem_mesh_connect(int *file, int64_t *n_stranger, const tandem_mesh_options *options,
                                  tandem_error *error);
