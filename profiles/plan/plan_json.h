/* plan_json.h: parses plan files from memory; private to profiles/ and its tests. */
#pragma once

#include <stddef.h>

#include "tandem/plan.h"

/* tandem_plan_parse: tandem_plan_read from memory; `source` names the text in errors. Outputs unchanged on
 * error. */
tandem_status tandem_plan_parse(tandem_plan **plan, tandem_graph **graph, const char *bytes, size_t n,
                                const char *source, tandem_error *error);
