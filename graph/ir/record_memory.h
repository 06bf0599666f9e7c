/* record_memory.h: what a framework allocates in a step, as part of a graph. */
#pragma once

#include <stdbool.h>

#include "tandem/record.h"

#define TANDEM_MAX_RECORDED_BYTES ((int64_t)1 << 50)

/* tandem_graph_set_memory: gives the graph a copy of the memory, whose products are operators.
 *   op_of_call  [n_call] the operator of each call
 * TANDEM_WRONG_GRAPH: names what does not fit. TANDEM_NO_MEMORY. Nothing changed on error. */
tandem_status tandem_graph_set_memory(tandem_graph *graph, const tandem_recorded_memory *memory,
                                      const int *op_of_call, int n_call, tandem_error *error);
