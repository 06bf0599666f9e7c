/* speed_sample.c: times arithmetic between registers, and a walk through memory. */
#include "base/speed_sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    COMPUTE_ROUNDS = 5600, /* of a half: some 10 us at 3 GHz */
    WALK_BYTES = 16 << 20,
    WINDOW_FLOATS = 32768, /* of a half: 128 KiB */
    LINE_FLOATS = 16
};

typedef float lanes __attribute__((vector_size(16)));

/* As many independent chains as cover the latency of a multiplication and an addition, so that the units,
 * and not the latency, set the time. The values stay between 0 and 2. Each chain has a name: an array of them
 * would lie in memory, and the time vary by a tenth or a half, as the core predicts its loads. */
static float compute_half(float seed)
{
    const lanes factor = {0.5f, 0.5f, 0.5f, 0.5f}, summand = {seed, 0.5f, 0.75f, 1};
    lanes a = summand, b = a + 0.0625f, c = b + 0.0625f, d = c + 0.0625f, e = d + 0.0625f, f = e + 0.0625f,
          g = f + 0.0625f, h = g + 0.0625f;
    for (int i = 0; i < COMPUTE_ROUNDS; i++) {
        a = a * factor + summand;
        b = b * factor + summand;
        c = c * factor + summand;
        d = d * factor + summand;
        e = e * factor + summand;
        f = f * factor + summand;
        g = g * factor + summand;
        h = h * factor + summand;
    }
    a += b + c + d + e + f + g + h;
    return a[0] + a[1] + a[2] + a[3];
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
    float a = 0, b = 0, c = 0, d = 0; /* of numbers that are 0 for all that this is about: 2.4e-38 */
    for (int i = 0; i < WINDOW_FLOATS; i += 4 * LINE_FLOATS) {
        a += window[i];
        b += window[i + LINE_FLOATS];
        c += window[i + 2 * LINE_FLOATS];
        d += window[i + 3 * LINE_FLOATS];
    }
    return a + b + c + d;
}

tandem_status tandem_speed_sample_open(tandem_speed_sample_walk *walk, tandem_error *error)
{
    *walk = (tandem_speed_sample_walk){.n = WALK_BYTES / sizeof(float)};
    walk->memory = malloc(WALK_BYTES);
    if (!walk->memory) return tandem_no_memory(error, "for the walk of a speed sample");
    memset(walk->memory, 1, WALK_BYTES); /* pages of zeros that were never written are all one page */
    return TANDEM_OK;
}

void tandem_speed_sample_close(tandem_speed_sample_walk *walk)
{
    free(walk->memory);
    *walk = (tandem_speed_sample_walk){0};
}

static int64_t shorter_of(int64_t a, int64_t b) { return a < b ? a : b; }

tandem_speed_sample tandem_speed_sample_take(tandem_speed_sample_walk *walk)
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
    return (tandem_speed_sample){.compute_ns = 2 * shorter_of(first_ns, second_ns),
                                 .memory_ns = 2 * shorter_of(at_ns[3] - at_ns[2], at_ns[4] - at_ns[3])};
}

double tandem_speed_sample_bytes_ns(const tandem_speed_sample *sample, double bytes)
{
    return bytes / (2.0 * WINDOW_FLOATS * sizeof(float)) * (double)sample->memory_ns;
}

static double slowdown_of(int64_t now_ns, int64_t steady_ns)
{
    return now_ns > 0 && steady_ns > 0 ? (double)now_ns / (double)steady_ns : 1;
}

double tandem_speed_sample_slowdown(const tandem_speed_sample *now, const tandem_speed_sample *steady,
                                    double memory_share)
{
    const double compute = slowdown_of(now->compute_ns, steady->compute_ns),
                 memory = slowdown_of(now->memory_ns, steady->memory_ns);
    return memory_share >= 0 && memory_share <= 1 ? compute + memory_share * (memory - compute) : 1;
}
