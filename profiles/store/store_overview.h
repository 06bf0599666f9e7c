/* store_overview.h: what a store holds, for people: a contract between profiles/ and cli/. */
#pragma once

#include <jansson.h>

#include "tandem/advanced/store.h"

/* tandem_store_overview: an object with arrays of objects, which the caller releases:
 *   hosts        cpu, n_cpu, libraries, n_thread, name_hash, costs, from_time_ns, to_time_ns
 *   devices      name, co_runner, costs, repetitions, disturbed, and of the newest steadiness:
 *                compute_spread, memory_spread, delay_share, steal_share, interval_share, time_ns
 *   costs        the longest of each device and co-runner: device, co_runner, operator (its signature),
 *                precision, pass, operand, result, median_ns, low_ns, high_ns, n, n_disturbed
 *   collectives  group, collective, loaded, bytes, median_ns, n
 *   models       name, hash, data (of the statistics), batches, estimated (data set of the newest estimate)
 *   runs         model, plan, cluster, steps, predicted_ns, measured_ns, accuracy, exit_code, time_ns
 * Unknown values are null. Texts may be no UTF-8. Times of day are ns since 1970. Each array is cut at some
 * thousand rows. TANDEM_MALFORMED: a number below 0 where none can be, or no number. TANDEM_NO_MEMORY,
 * TANDEM_IO: *overview unchanged. Cost: O(rows · log rows). */
tandem_status tandem_store_overview(json_t **overview, tandem_store *store, tandem_error *error);
