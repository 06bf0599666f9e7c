/* pulse.c: times arithmetic between registers, and a walk through memory. */
#include "base/pulse.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    COMPUTE_ROUNDS = 2600, /* of a half: some 10 us at 3 GHz */
    WALK_BYTES = 16 << 20,
    WINDOW_FLOATS = 32768, /* of a half: 128 KiB */
    LINE_FLOATS = 16
};

typedef float lanes __attribute__((vector_size(16)));

/* As many independent chains as cover the latency of a multiplication and an addition, so that the units, and
 * not the latency, set the time. The values stay between 0 and 2. */
static float compute_half(float seed)
{
    enum { CHAINS = 8 };
    lanes x[CHAINS];
    const lanes factor = {0.5f, 0.5f, 0.5f, 0.5f}, summand = {seed, 0.5f, 0.75f, 1};
    for (int k = 0; k < CHAINS; k++) x[k] = summand + (float)k * 0.0625f;
    for (int i = 0; i < COMPUTE_ROUNDS; i++)
        for (int k = 0; k < CHAINS; k++) x[k] = x[k] * factor + summand;
    for (int k = 1; k < CHAINS; k++) x[0] += x[k];
    return x[0][0] + x[0][1] + x[0][2] + x[0][3];
}

/* A line of each page, untimed: what translating the addresses costs, and a page that the system or a host
 * took away, would count in each walk and seldom in a task. */
static float touch_pages(const float *window)
{
    enum { PAGE_FLOATS = 1024 };
    float sum = 0;
    for (int i = 0; i < 2 * WINDOW_FLOATS; i += PAGE_FLOATS) sum += window[i];
    return sum;
}

static float walk_half(const float *window)
{
    float sum[4] = {0}; /* of numbers that are 0 for all that this is about: 2.4e-38 */
    for (int i = 0; i < WINDOW_FLOATS; i += 4 * LINE_FLOATS)
        for (int k = 0; k < 4; k++) sum[k] += window[i + k * LINE_FLOATS];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

tandem_status tandem_pulse_open(tandem_pulse_walk *walk, tandem_error *error)
{
    *walk = (tandem_pulse_walk){.n = WALK_BYTES / sizeof(float)};
    walk->memory = malloc(WALK_BYTES);
    if (!walk->memory) return tandem_no_memory(error, "for the walk of a pulse");
    memset(walk->memory, 1, WALK_BYTES); /* pages of zeros that were never written are all one page */
    return TANDEM_OK;
}

void tandem_pulse_close(tandem_pulse_walk *walk)
{
    free(walk->memory);
    *walk = (tandem_pulse_walk){0};
}

static int64_t shorter_of(int64_t a, int64_t b) { return a < b ? a : b; }

tandem_pulse tandem_pulse_take(tandem_pulse_walk *walk)
{
    volatile float sink = 1;
    int64_t at_ns[5];
    const int64_t begin_ns = tandem_now_ns();
    for (int half = 0; half < 2; half++) {
        sink = compute_half(sink * 0 + 1);
        at_ns[half] = tandem_now_ns();
    }
    const int64_t first_ns = at_ns[0] - begin_ns, second_ns = at_ns[1] - at_ns[0];
    sink = touch_pages(walk->memory + walk->at);
    at_ns[2] = tandem_now_ns();
    for (int half = 0; half < 2; half++) {
        sink = walk_half(walk->memory + walk->at);
        at_ns[3 + half] = tandem_now_ns();
        walk->at = (walk->at + WINDOW_FLOATS) % walk->n;
    }
    return (tandem_pulse){.compute_ns = 2 * shorter_of(first_ns, second_ns),
                          .memory_ns = 2 * shorter_of(at_ns[3] - at_ns[2], at_ns[4] - at_ns[3])};
}

double tandem_pulse_bytes_ns(const tandem_pulse *pulse, double bytes)
{
    return bytes / (2.0 * WINDOW_FLOATS * sizeof(float)) * (double)pulse->memory_ns;
}

static double slowdown_of(int64_t now_ns, int64_t steady_ns)
{
    return now_ns > 0 && steady_ns > 0 ? (double)now_ns / (double)steady_ns : 1;
}

double tandem_pulse_slowdown(const tandem_pulse *now, const tandem_pulse *steady, double memory_share)
{
    const double compute = slowdown_of(now->compute_ns, steady->compute_ns),
                 memory = slowdown_of(now->memory_ns, steady->memory_ns);
    return memory_share >= 0 && memory_share <= 1 ? compute + memory_share * (memory - compute) : 1;
}
