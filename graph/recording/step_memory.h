/* step_memory.h: what a step of a captured module allocates, of its file. */
#pragma once

#include "base/json.h"
#include "tandem/record.h"

/* tandem_recorded_memory_read: at a batch, from the member `memory`. NULL or null: *memory becomes NULL. The
 * caller closes *memory. Without growth the blocks are those of the recorded batch.
 * TANDEM_MALFORMED: names the member. TANDEM_NO_MEMORY. *memory unchanged on error. Cost: O(blocks +
 * readers). */
tandem_status tandem_recorded_memory_read(tandem_recorded_memory **memory, int64_t batch,
                                          tandem_json_location *location, const json_t *object);
