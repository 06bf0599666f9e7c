/* disturbance.h: how much core time other work took from a thread, by the scheduler's count, and
 * the counters of the machine. */
#ifndef TANDEM_BASE_DISTURBANCE_H
#define TANDEM_BASE_DISTURBANCE_H

#include <stdint.h>

/* The scheduler's counts of the thread that opened it. */
typedef struct tandem_delay_probe {
    int file; /* −1: this system does not count */
} tandem_delay_probe;

/* Opens /proc/thread-self/schedstat. Without it every reading is INT64_MIN. */
void tandem_delay_open(tandem_delay_probe *probe);
void tandem_delay_close(tandem_delay_probe *probe);

/* tandem_delay_read: how long the thread could have run and did not, in ns, less the CPU time of the other
 * threads of its process. On a core of its own that is what other processes took, and what a quota of its
 * control group withheld. Only differences have a meaning; INT64_MIN: unknown. Call it in the thread that
 * opened the probe. Cost: about 1 us. */
int64_t tandem_delay_read(const tandem_delay_probe *probe);

/* tandem_delay_since: the delay between two readings, at least 0; −1 where either is unknown. */
int64_t tandem_delay_since(int64_t before, int64_t now);

/* Counts of the machine and of this process's control groups, since each began to count; −1 = unknown. */
typedef struct tandem_machine_counts {
    int64_t steal_ns;     /* what other virtual machines had of all CPUs, in ticks of 10 ms */
    int64_t busy_ns;      /* what the CPUs worked, in the same ticks */
    int64_t throttled_ns; /* quotas of this process's control group and those above it withheld this */
    int64_t n_switch;     /* times that this process lost a core while it could run */
    int mhz;              /* of the current CPU, by the kernel's governor */
    char governor[24];    /* its name; "" = unknown */
} tandem_machine_counts;

/* tandem_machine_counts_read: reads them below `root`, "" for this machine. What cannot be read is −1 or "".
 * Cost: some 20 us. */
void tandem_machine_counts_read(tandem_machine_counts *counts, const char *root);

/* now − before, or −1 where either is −1; a count that fell is 0. */
int64_t tandem_count_since(int64_t before, int64_t now);

#endif
