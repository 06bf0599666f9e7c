/* plan_json.h: parses plan files from memory; private to profiles/, to what
 * reads plans of a store, and to tests. */
#pragma once

#include <stddef.h>

#include "tandem/plan.h"

/* tandem_plan_parse: tandem_plan_read from memory; `source` names the text in errors. Outputs unchanged on
 * error. */
tandem_status tandem_plan_parse(tandem_plan **plan, tandem_graph **graph, const char *bytes, size_t n,
                                const char *source, tandem_error *error);
/* The same for a graph that is open: the model that the text names is not opened. TANDEM_WRONG_MODEL: it is a
 * plan of another one. */
tandem_status tandem_plan_parse_of(tandem_plan **plan, const tandem_graph *graph, const char *bytes, size_t n,
                                   const char *source, tandem_error *error);
