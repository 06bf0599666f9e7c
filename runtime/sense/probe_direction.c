#include "runtime/sense/probe_direction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/wide.h"

enum { DENSE_NUMBERS = 8192, MAX_STRIDE = 16, PROBE_PURPOSE = 0x50524F42 };

static int64_t blocks_of(int64_t n) { return (n + PROBE_BLOCK - 1) / PROBE_BLOCK; }

/* s: how many blocks of a parameter with n numbers share one that is drawn. */
static int64_t stride_of(int64_t n)
{
    const int64_t most = n / DENSE_NUMBERS;
    return most < 1 ? 1 : most < MAX_STRIDE ? most : MAX_STRIDE;
}

static int64_t groups_of(int64_t n) { return (blocks_of(n) + stride_of(n) - 1) / stride_of(n); }

tandem_status probe_direction_open(probe_direction *direction, const tandem_step *step, int keeps_weights,
                                   tandem_error *error)
{
    *direction = (probe_direction){.step = step};
    for (int p = 0; p < step->graph->n_parameter; p++)
        direction->n_block += groups_of(step->graph->parameter[p].elements);
    const size_t n = (size_t)direction->n_block + 1, bytes = n * PROBE_BLOCK * sizeof *direction->value;
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
TANDEM_WIDE static void fill_signs(float value[PROBE_BLOCK], uint32_t word, float by)
{
    uint32_t bits[PROBE_BLOCK], magnitude;
    memcpy(&magnitude, &by, sizeof by);
    for (int k = 0; k < PROBE_BLOCK; k++) bits[k] = magnitude | ((word >> k & 1) << 31);
    memcpy(value, bits, sizeof bits);
}

/* Times the root of the metric 1/√v̂. */
TANDEM_WIDE static void scale_by_metric(float value[PROBE_BLOCK], const probe_metric *metric, int64_t at)
{
    const float by = metric->by, least = metric->least;
    float v[PROBE_BLOCK];
    memcpy(v, metric->mean_square + at, sizeof v);
    for (int k = 0; k < PROBE_BLOCK; k++) v[k] = v[k] * by > least ? v[k] * by : least;
    for (int k = 0; k < PROBE_BLOCK; k++) value[k] /= sqrtf(sqrtf(v[k]));
}

/* word: a bit for the sign of each number, and 16 for the block of the group. */
static void draw_block(probe_direction *direction, int64_t block, const probe_metric *metric, int p,
                       int64_t group, uint32_t word)
{
    const int64_t n = direction->step->graph->parameter[p].elements, stride = stride_of(n),
                  first = group * stride, left = blocks_of(n) - first, size = left < stride ? left : stride,
                  begin = (first + (int64_t)(word >> 16) * size / 65536) * PROBE_BLOCK,
                  at = direction->step->parameter_start[p] + begin;
    float *const value = direction->value + block * PROBE_BLOCK;
    direction->at[block] = at;
    fill_signs(value, word, sqrtf((float)size));
    if (metric->mean_square) scale_by_metric(value, metric, at);
    for (int64_t k = n - begin; k < PROBE_BLOCK; k++) value[k] = 0;
}

void probe_direction_draw(probe_direction *direction, const probe_metric *metric, uint64_t seed,
                          uint32_t stream)
{
    const tandem_graph *graph = direction->step->graph;
    tandem_philox_block words = {{0}};
    int64_t block = 0;
    for (int p = 0; p < graph->n_parameter; p++)
        for (int64_t group = 0; group < groups_of(graph->parameter[p].elements); group++, block++) {
            if (group % 4 == 0)
                words = tandem_philox(
                    (const uint32_t[]){(uint32_t)(group / 4), (uint32_t)p, stream, PROBE_PURPOSE}, seed);
            draw_block(direction, block, metric, p, group, words.word[group % 4]);
        }
}

double probe_direction_mean_square(const probe_direction *direction)
{
    const tandem_graph *graph = direction->step->graph;
    double square = 0, n = 0;
    for (int64_t i = 0; i < direction->n_block * PROBE_BLOCK; i++)
        square += (double)direction->value[i] * (double)direction->value[i];
    for (int p = 0; p < graph->n_parameter; p++) n += (double)graph->parameter[p].elements;
    return n > 0 ? square / n : 0;
}

void probe_direction_keep(probe_direction *direction, const float *weight)
{
    for (int64_t b = 0; b < direction->n_block; b++)
        memcpy(direction->kept + b * PROBE_BLOCK, weight + direction->at[b], PROBE_BLOCK * sizeof *weight);
}

/* to = x + by·z of a block, by local arrays: so it runs in vectors whatever overlaps. */
TANDEM_WIDE void probe_direction_move(const probe_direction *direction, float *weight, float to)
{
    for (int64_t b = 0; b < direction->n_block; b++) {
        float w[PROBE_BLOCK], z[PROBE_BLOCK];
        memcpy(w, direction->kept + b * PROBE_BLOCK, sizeof w);
        memcpy(z, direction->value + b * PROBE_BLOCK, sizeof z);
        for (int k = 0; k < PROBE_BLOCK; k++) w[k] += to * z[k];
        memcpy(weight + direction->at[b], w, sizeof w);
    }
}

void probe_direction_restore(const probe_direction *direction, float *weight)
{
    for (int64_t b = 0; b < direction->n_block; b++)
        memcpy(weight + direction->at[b], direction->kept + b * PROBE_BLOCK, PROBE_BLOCK * sizeof *weight);
}

TANDEM_WIDE void probe_direction_project(float *sum, int n_bucket, const probe_direction *direction, float by,
                                         const float *gradient)
{
    const int64_t n_place = n_bucket / PROBE_BLOCK;
    for (int64_t b = 0, place = 0; b < direction->n_block; b++, place = place + 1 < n_place ? place + 1 : 0) {
        float g[PROBE_BLOCK], z[PROBE_BLOCK], to[PROBE_BLOCK];
        memcpy(g, gradient + direction->at[b], sizeof g);
        memcpy(z, direction->value + b * PROBE_BLOCK, sizeof z);
        memcpy(to, sum + place * PROBE_BLOCK, sizeof to);
        for (int k = 0; k < PROBE_BLOCK; k++) to[k] += by * z[k] * g[k];
        memcpy(sum + place * PROBE_BLOCK, to, sizeof to);
    }
}
