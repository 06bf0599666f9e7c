/* chakra_order.h: which nodes of Chakra traces wait for which; private to trace/whatif. */
#pragma once

#include "trace/reader/chakra_trace.h"

/* Adds to the dependencies that receives start no earlier than their sends, and puts all into r->all, by
 * `after`. To be called when r->messages is known. TANDEM_NO_MEMORY. */
tandem_status chakra_order_nodes(chakra_trace *r);

/* Drops control dependencies that cannot hold, because they lie on cycles, and counts them; r->all is made
 * again. Cycles of data dependencies stay. O(dependencies + nodes · log nodes); 28 bytes per node, 4 per
 * dependency. TANDEM_NO_MEMORY. */
tandem_status chakra_drop_control_cycles(chakra_trace *r);

/* Makes r->all of data and control dependencies. TANDEM_NO_MEMORY. */
tandem_status chakra_merge_edges(chakra_trace *r);
