#include "runtime/estimate/probe_direction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/wide.h"

enum { DENSE_NUMBERS = 8192, MAX_STRIDE = 16, PROBE_PURPOSE = 0x50524F42 };

static int64_t blocks_of(int64_t n) { return (n + TANDEM_PROBE_BLOCK - 1) / TANDEM_PROBE_BLOCK; }

/* s: how many blocks of a parameter with n numbers share one that is drawn. */
static int64_t stride_of(int64_t n)
{
    const int64_t most = n / DENSE_NUMBERS;
    return most < 1 ? 1 : most < MAX_STRIDE ? most : MAX_STRIDE;
}

int64_t tandem_probe_count_blocks(int64_t n) { return (blocks_of(n) + stride_of(n) - 1) / stride_of(n); }

tandem_status probe_direction_open(probe_direction *direction, const tandem_step *step, int keeps_weights,
                                   tandem_error *error)
{
    *direction = (probe_direction){.step = step};
    for (int p = 0; p < step->graph->n_parameter; p++)
        direction->n_block += tandem_probe_count_blocks(step->graph->parameter[p].elements);
    const size_t n = (size_t)direction->n_block + 1,
                 bytes = n * TANDEM_PROBE_BLOCK * sizeof *direction->value;
    direction->at = malloc(n * sizeof *direction->at);
    direction->value = malloc(bytes);
    direction->kept = keeps_weights ? malloc(bytes) : NULL;
    return direction->at && direction->value && (direction->kept || !keeps_weights)
               ? TANDEM_OK
               : tandem_no_memory(error, "for a random direction");
}

void probe_direction_close(probe_direction *direction)
{
    free(direction->at);
    free(direction->value);
    free(direction->kept);
    *direction = (probe_direction){0};
}

/* ±by, by the bits of a word. */
TANDEM_WIDE static void fill_signs(float value[TANDEM_PROBE_BLOCK], uint32_t word, float by)
{
    uint32_t bits[TANDEM_PROBE_BLOCK], magnitude;
    memcpy(&magnitude, &by, sizeof by);
    for (int k = 0; k < TANDEM_PROBE_BLOCK; k++) bits[k] = magnitude | ((word >> k & 1) << 31);
    memcpy(value, bits, sizeof bits);
}

/* Times the root of the metric 1/√v̂. */
TANDEM_WIDE static void scale_by_metric(float value[TANDEM_PROBE_BLOCK], const float *mean_square, float by,
                                        float least)
{
    float v[TANDEM_PROBE_BLOCK];
    memcpy(v, mean_square, sizeof v);
    for (int k = 0; k < TANDEM_PROBE_BLOCK; k++) v[k] = v[k] * by > least ? v[k] * by : least;
    for (int k = 0; k < TANDEM_PROBE_BLOCK; k++) value[k] /= sqrtf(sqrtf(v[k]));
}

/* word: a bit for the sign of each number, and 16 for the block of the group. Returns where it begins. */
static int64_t draw_block(float value[TANDEM_PROBE_BLOCK], int64_t n, int64_t group, uint32_t word)
{
    const int64_t stride = stride_of(n), first = group * stride, left = blocks_of(n) - first,
                  size = left < stride ? left : stride,
                  begin = (first + (int64_t)(word >> 16) * size / 65536) * TANDEM_PROBE_BLOCK;
    fill_signs(value, word, sqrtf((float)size));
    for (int64_t k = n - begin; k < TANDEM_PROBE_BLOCK; k++) value[k] = 0;
    return begin;
}

void tandem_probe_draw(int64_t *at, float *value, int64_t elements, int parameter, uint64_t seed,
                       uint32_t stream)
{
    tandem_philox_block words = {{0}};
    for (int64_t group = 0; group < tandem_probe_count_blocks(elements); group++) {
        if (group % 4 == 0)
            words = tandem_philox(
                (const uint32_t[]){(uint32_t)(group / 4), (uint32_t)parameter, stream, PROBE_PURPOSE}, seed);
        at[group] = draw_block(value + group * TANDEM_PROBE_BLOCK, elements, group, words.word[group % 4]);
    }
}

uint32_t tandem_probe_stream(int64_t point, int replicate)
{
    return 1 + (uint32_t)replicate + ((uint32_t)point << 8);
}

void tandem_probe_weigh(float *value, int64_t n_block, const int64_t *at, const float *mean_square, float by,
                        float least)
{
    for (int64_t b = 0; b < n_block; b++)
        scale_by_metric(value + b * TANDEM_PROBE_BLOCK, mean_square + (at ? at[b] : b * TANDEM_PROBE_BLOCK),
                        by, least);
}

float tandem_probe_least_square(double sum, int64_t n)
{
    static const double least_share = 1e-4; /* of the mean of v̂ */
    return n > 0 ? (float)(least_share * sum / (double)n) : 0;
}

void tandem_probe_steps(double step[2], double weight_square, double direction_square)
{
    static const double small_step = 0x1p-10, large_step = 0x1p-6;
    const double unit =
        weight_square > 0 && direction_square > 0 ? sqrt(weight_square / direction_square) : 1;
    step[0] = small_step * unit;
    step[1] = large_step * unit;
}

void probe_direction_draw(probe_direction *direction, const probe_metric *metric, uint64_t seed,
                          uint32_t stream)
{
    const tandem_step *step = direction->step;
    int64_t block = 0;
    for (int p = 0; p < step->graph->n_parameter; p++) {
        const int64_t n = step->graph->parameter[p].elements, n_block = tandem_probe_count_blocks(n),
                      start = step->parameter_start[p];
        int64_t *const at = direction->at + block;
        float *const value = direction->value + block * TANDEM_PROBE_BLOCK;
        tandem_probe_draw(at, value, n, p, seed, stream);
        if (metric->mean_square)
            tandem_probe_weigh(value, n_block, at, metric->mean_square + start, metric->by, metric->least);
        for (int64_t b = 0; b < n_block; b++) at[b] += start;
        block += n_block;
    }
}

double probe_direction_square(const probe_direction *direction)
{
    return tandem_probe_square(direction->value, direction->n_block * TANDEM_PROBE_BLOCK);
}

void probe_direction_keep(probe_direction *direction, const float *weight)
{
    for (int64_t b = 0; b < direction->n_block; b++)
        memcpy(direction->kept + b * TANDEM_PROBE_BLOCK, weight + direction->at[b],
               TANDEM_PROBE_BLOCK * sizeof *weight);
}

/* to = x + by·z of a block, by local arrays: so it runs in vectors, also where arrays overlap. */
TANDEM_WIDE void probe_direction_move(const probe_direction *direction, float *weight, float to)
{
    for (int64_t b = 0; b < direction->n_block; b++) {
        float w[TANDEM_PROBE_BLOCK], z[TANDEM_PROBE_BLOCK];
        memcpy(w, direction->kept + b * TANDEM_PROBE_BLOCK, sizeof w);
        memcpy(z, direction->value + b * TANDEM_PROBE_BLOCK, sizeof z);
        for (int k = 0; k < TANDEM_PROBE_BLOCK; k++) w[k] += to * z[k];
        memcpy(weight + direction->at[b], w, sizeof w);
    }
}

void probe_direction_restore(const probe_direction *direction, float *weight)
{
    for (int64_t b = 0; b < direction->n_block; b++)
        memcpy(weight + direction->at[b], direction->kept + b * TANDEM_PROBE_BLOCK,
               TANDEM_PROBE_BLOCK * sizeof *weight);
}

TANDEM_WIDE static void add_to_buckets(float *sum, int n_bucket, const float *value, int64_t n_block,
                                       const int64_t *at, const float *gradient, float by)
{
    const int64_t n_place = n_bucket / TANDEM_PROBE_BLOCK;
    for (int64_t b = 0, place = 0; b < n_block; b++, place = place + 1 < n_place ? place + 1 : 0) {
        float g[TANDEM_PROBE_BLOCK], z[TANDEM_PROBE_BLOCK], to[TANDEM_PROBE_BLOCK];
        memcpy(g, gradient + (at ? at[b] : b * TANDEM_PROBE_BLOCK), sizeof g);
        memcpy(z, value + b * TANDEM_PROBE_BLOCK, sizeof z);
        memcpy(to, sum + place * TANDEM_PROBE_BLOCK, sizeof to);
        for (int k = 0; k < TANDEM_PROBE_BLOCK; k++) to[k] += by * z[k] * g[k];
        memcpy(sum + place * TANDEM_PROBE_BLOCK, to, sizeof to);
    }
}

void tandem_probe_project(float *sum, int n_bucket, const float *value, int64_t n_block, const int64_t *at,
                          const float *gradient, float by)
{
    add_to_buckets(sum, n_bucket, value, n_block, at, gradient, by);
}

void probe_direction_project(float *sum, int n_bucket, const probe_direction *direction, float by,
                             const float *gradient)
{
    tandem_probe_project(sum, n_bucket, direction->value, direction->n_block, direction->at, gradient, by);
}
