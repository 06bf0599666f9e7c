/* unused_formats.h: formats of --emulate that change nothing. */
#pragma once

#include "tandem/runtime.h"

/* Notes each format of the list `emulate` (NULL and "" are fine) whose dtype no operator of the workload's
 * plan reads or writes. */
void note_unused_formats(const tandem_listener *listener, const tandem_workload *workload,
                         const char *emulate);
