/* resident.c: reads resident memory from /proc, and free memory from the device. */
#include "backend/device/resident.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/device/device_memory.h"

int64_t tandem_proc_bytes(const char *file, const char *format)
{
    char line[128];
    unsigned long long kib = 0;
    int is_there = 0;
    FILE *stream = fopen(file, "re");
    while (stream && !is_there && fgets(line, sizeof line, stream))
        is_there = sscanf(line, format, &kib) == 1;
    if (stream) (void)fclose(stream);
    return is_there ? (int64_t)kib * 1024 : -1;
}

/* Sets VmHWM to the memory that is resident now (proc(5), clear_refs). */
static int reset_peak_resident(void)
{
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    const int is_done = file >= 0 && write(file, "5", 1) == 1;
    if (file >= 0) (void)close(file);
    return is_done;
}

static int64_t free_device_bytes(const tandem_worker *worker)
{
    const uint64_t bytes = worker->backend->free_bytes(worker->device);
    return bytes ? (int64_t)bytes : -1;
}

tandem_resident tandem_resident_begin(const tandem_worker *worker)
{
    if (tandem_worker_has_device_memory(worker))
        return (tandem_resident){.before_bytes = free_device_bytes(worker)};
    return (tandem_resident){.before_bytes = reset_peak_resident()
                                                 ? tandem_proc_bytes("/proc/self/status", "VmRSS: %llu kB")
                                                 : -1};
}

int64_t tandem_resident_peak_bytes(const tandem_resident *since, const tandem_worker *worker)
{
    if (since->before_bytes < 0) return -1;
    const int has_device_memory = tandem_worker_has_device_memory(worker);
    const int64_t now = has_device_memory ? free_device_bytes(worker)
                                          : tandem_proc_bytes("/proc/self/status", "VmHWM: %llu kB");
    const int64_t others =
        worker->comm && !has_device_memory ? (int64_t)tandem_comm_peer_bytes(worker->comm) : 0;
    const int64_t more = has_device_memory ? since->before_bytes - now : now - since->before_bytes - others;
    return now < 0 || more < 0 ? -1 : more;
}
