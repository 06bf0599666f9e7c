/* chakra.h: words of MLCommons Chakra's execution traces (chakra.proto), and their writer; private to
 * profiles/ and replayer/.
 *
 * What a node's duration is in whole µs, its attribute tandem_duration_ns says exactly; likewise
 * tandem_start_ns. */
#ifndef TANDEM_PROFILES_CHAKRA_H
#define TANDEM_PROFILES_CHAKRA_H

#include "tandem/trace.h"

/* Types of nodes; others occur. */
enum {
    TANDEM_CHAKRA_METADATA = 1,
    TANDEM_CHAKRA_LOAD = 2,
    TANDEM_CHAKRA_STORE = 3,
    TANDEM_CHAKRA_COMPUTE = 4,
    TANDEM_CHAKRA_SEND = 5,
    TANDEM_CHAKRA_RECEIVE = 6,
    TANDEM_CHAKRA_COLLECTIVE = 7
};

enum { TANDEM_CHAKRA_ALL_REDUCE = 0 }; /* of the attribute comm_type */

/* Whether a file is to be one by its name: it ends in .et. */
int tandem_chakra_is_path(const char *path);

/* tandem_chakra_write: what tandem_trace_write says of .et. The events have been checked. */
tandem_status tandem_chakra_write(const char *path, const char *title, const tandem_trace_track *track,
                                  int n_track, tandem_error *error);

#endif
