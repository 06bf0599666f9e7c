/* resident.h: what a rank really has in memory, told by the system and not by the plan, to hold the plan
 * against.
 *
 * In the host's memory: the pages in this process's tables (VmHWM of Linux): of arrays, of code that is made
 * or touched first, of what libraries take for themselves. What other ranks have in shared memory is theirs
 * and not counted. On a device that has memory of its own: what is no longer free there, whoever took it. */
#ifndef TANDEM_BACKEND_RESIDENT_H
#define TANDEM_BACKEND_RESIDENT_H

#include "backend/device/worker.h"

typedef struct tandem_resident {
    int64_t before_bytes; /* resident; of a device with its own memory: free. −1 = it cannot be told */
} tandem_resident;

/* From now on. Of the whole process: whoever begins later makes the system forget what was the most until
 * then. */
tandem_resident tandem_resident_begin(const tandem_worker *worker);
/* The most since then, less what was there then; of a device with its own memory: now. −1 = not known. Some
 * 50 us. */
int64_t tandem_resident_peak_bytes(const tandem_resident *since, const tandem_worker *worker);

#endif
