/* cluster_text.h: limits of a cluster that its text, its JSON file and the plan file share; private to
 * profiles/. */
#pragma once

#include <stddef.h>

#include "tandem/cluster.h"

/* Larger values are typing errors. Sums of allowed values fit their types. */
enum { TANDEM_CLUSTER_MAX_RANK = 1000000, TANDEM_CLUSTER_MAX_BATCH = 1000000000 };

/* tandem_cluster_parse_json: parses the content of a cluster file; `source` names it in errors.
 * TANDEM_MALFORMED, TANDEM_UNKNOWN_NAME, TANDEM_NO_MEMORY; *cluster unchanged on error. */
tandem_status tandem_cluster_parse_json(tandem_cluster *cluster, const char *bytes, size_t n,
                                        const char *source, tandem_error *error);
