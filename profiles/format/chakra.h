/* chakra.h: constants of MLCommons Chakra's execution traces (chakra.proto), and the writer; private to
 * profiles/ and trace/.
 *
 * A node's duration is in whole µs; its attributes tandem_duration_ns and tandem_start_ns are exact. */
#pragma once

#include "tandem/advanced/trace.h"

/* Types of nodes. Others occur. */
enum {
    TANDEM_CHAKRA_METADATA = 1,
    TANDEM_CHAKRA_LOAD = 2,
    TANDEM_CHAKRA_STORE = 3,
    TANDEM_CHAKRA_COMPUTE = 4,
    TANDEM_CHAKRA_SEND = 5,
    TANDEM_CHAKRA_RECEIVE = 6,
    TANDEM_CHAKRA_COLLECTIVE = 7
};

/* values of the attribute comm_type */
enum { TANDEM_CHAKRA_ALL_REDUCE = 0, TANDEM_CHAKRA_ALL_GATHER = 2, TANDEM_CHAKRA_REDUCE_SCATTER = 7 };

/* Whether the path ends in .et. */
int tandem_chakra_is_path(const char *path);

/* tandem_chakra_write: the .et part of tandem_trace_write. The events must have been checked. */
tandem_status tandem_chakra_write(const char *path, const char *title, const tandem_trace_track *track,
                                  int n_track, tandem_error *error);
