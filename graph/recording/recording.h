/* recording.h: models that the Python package captured and saved, in JSON (tandem.recording/1). Slurm's
 * plug-ins do not link it: there a path is no name. */
#pragma once

#include <stddef.h>

#include "tandem/record.h"

/* tandem_recorded_parse: the graph of a recording from memory. Its name is `model`, by which a plan finds
 * the file again; its hash is that of the captured module. TANDEM_USAGE: the recording has another batch.
 * TANDEM_MALFORMED: names the member. TANDEM_WRONG_FORMAT: the text is no recording. TANDEM_WRONG_GRAPH,
 * TANDEM_NO_MEMORY. *graph unchanged on error. Cost: O(n). */
tandem_status tandem_recorded_parse(tandem_graph **graph, const char *bytes, size_t n, const char *model,
                                    int64_t batch, tandem_error *error);
/* The same from the file that `model` names. */
tandem_status tandem_recorded_open_named(tandem_graph **graph, const char *model, int64_t batch,
                                         tandem_error *error);
