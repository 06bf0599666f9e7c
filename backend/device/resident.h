/* resident.h: the memory that a rank really uses, by the system's count, to compare with the plan.
 *
 * Host memory: the pages of this process (VmHWM of Linux): arrays, generated and touched code, and the
 * libraries' own memory; not the other ranks' parts of shared memory. Device memory: how much less is free on
 * the device, for all processes. */
#pragma once

#include "backend/device/worker.h"

typedef struct tandem_resident {
    int64_t before_bytes; /* resident memory; of a device with its own memory: free memory. −1 = not known */
} tandem_resident;

/* Begins to measure. It resets the peak of the whole process, so a later begin ends an earlier measurement.
 * */
tandem_resident tandem_resident_begin(const tandem_worker *worker);
/* The peak since then, less the memory at the begin; of a device with its own memory: its use now. −1 = not
 * known. Cost: some 50 us. */
int64_t tandem_resident_peak_bytes(const tandem_resident *since, const tandem_worker *worker);

/* Bytes from the line of a file in /proc that `format` describes, "MemAvailable: %llu kB"; −1 = no such line.
 * */
int64_t tandem_proc_bytes(const char *file, const char *format);
