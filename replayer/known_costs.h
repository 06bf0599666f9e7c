/* known_costs.h: which forms of tasks a replay could time; for whoever chooses among plans without running
 * them. */
#ifndef TANDEM_REPLAYER_KNOWN_COSTS_H
#define TANDEM_REPLAYER_KNOWN_COSTS_H

#include "tandem/replayer.h"

/* Whether every time of that form is there that a replay of class c would need: alone, beside its neighbour,
 * or both. */
int tandem_replayer_has_cost(const tandem_replayer *replayer, int c, int task, int variant);
/* TANDEM_MISSING: names the cost of a form for which that is not so, and the command that measures it. */
tandem_status tandem_replayer_missing_cost(const tandem_replayer *replayer, int c, int task, int variant,
                                           tandem_error *error);

#endif
