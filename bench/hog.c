/* hog.c: takes a core, or memory's bandwidth, from all else that runs: the neighbour of bench/unsteady.sh.
 * usage: hog bursts CPU SEED     arithmetic for 0.2 to 5 s, and a pause of 7/3 of it: 30 % of the time
 *        hog memory CPU          copies of 64 MiB, without a pause */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPY_BYTES = 64 << 20 };

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void compute_for(double s)
{
    volatile double x = 1;
    for (const double end = now_s() + s; now_s() < end;)
        for (int i = 0; i < 10000; i++) x = x * 0.999 + 0.001;
}

static void rest_for(double s)
{
    const struct timespec time = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    (void)nanosleep(&time, NULL);
}

static _Noreturn void run_bursts(uint64_t seed)
{
    for (;;) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double busy_s = 0.2 + 4.8 * (double)(seed >> 33) / (double)(UINT64_C(1) << 31);
        compute_for(busy_s);
        rest_for(busy_s * 7 / 3);
    }
}

static void run_copies(void)
{
    char *const from = malloc(COPY_BYTES), *const to = malloc(COPY_BYTES);
    if (!from || !to) return;
    memset(from, 1, COPY_BYTES);
    for (volatile char sink = 0;;) {
        memcpy(to, from, COPY_BYTES);
        sink = to[(unsigned char)sink];
        from[0] = (char)(sink + 1);
    }
}

int main(int argc, char **argv)
{
    cpu_set_t set;
    if (argc < 3 || (strcmp(argv[1], "bursts") != 0 && strcmp(argv[1], "memory") != 0)) {
        (void)fprintf(stderr, "usage: hog bursts CPU SEED | hog memory CPU\n");
        return 2;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)strtoul(argv[2], NULL, 10), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) return 4;
    if (strcmp(argv[1], "bursts") == 0) run_bursts(argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
    run_copies();
    return 5;
}
