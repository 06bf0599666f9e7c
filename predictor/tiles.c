/* tiles.c: how a library cuts products into tiles; the formula is in predictor/kernel_time.c. */
#include <math.h>

#include "predictor/form.h"

typedef struct tile_size {
    double m, n;
} tile_size;

/* Of one product: sides of NVIDIA's guide, and thinner ones of narrow results. */
static const tile_size any_tile[] = {{128, 128}, {128, 64}, {64, 128}, {64, 64}, {128, 32},
                                     {32, 128},  {64, 32},  {32, 64},  {32, 32}, {128, 16},
                                     {16, 128},  {128, 8},  {8, 128}};
/* Of batched products, by the first capability that takes them. */
static const struct {
    int capability, n;
    tile_size tile[2];
} batched_tiles[] = {{80, 1, {{128, 128}}}, {70, 2, {{64, 64}, {128, 32}}}, {0, 1, {{64, 128}}}};

static const tile_size *choose_tiles(int *n, const kernel_gpu *gpu, int is_batched)
{
    size_t i = 0;
    *n = (int)(sizeof any_tile / sizeof *any_tile);
    if (!is_batched) return any_tile;
    while (gpu->spec->generation < batched_tiles[i].capability) i++;
    *n = batched_tiles[i].n;
    return batched_tiles[i].tile;
}

double tandem_tiled_flops(tandem_kernel_time *time, const kernel_gpu *gpu, const tiled_product *p)
{
    const double *const c = gpu->constant, n_sm = gpu->spec->n_sm;
    const double share = c[p->is_batched ? TANDEM_CONSTANT_BATCHED_WAVE_SHARE : TANDEM_CONSTANT_WAVE_SHARE],
                 prologue = c[p->is_batched ? TANDEM_CONSTANT_BATCHED_PROLOGUE : TANDEM_CONSTANT_PROLOGUE];
    double min = INFINITY;
    int n = 0;
    const tile_size *const tile = choose_tiles(&n, gpu, p->is_batched);
    for (int i = 0; i < n; i++) {
        const double tiles = p->count * ceil(p->m / tile[i].m) * ceil(p->n / tile[i].n);
        double waves = tiles / n_sm, splits = 1;
        if (waves >= 1)
            waves = share * ceil(waves) + (1 - share) * waves;
        else {
            splits = p->splits_depth ? floor(1 / waves) : 1;
            splits = fmax(1, fmin(splits, p->k / c[TANDEM_CONSTANT_SPLIT_DEPTH]));
            waves = 1;
        }
        const double loss =
            1 + c[TANDEM_CONSTANT_TILE_LOSS] * fmax(0, 32 / tile[i].m + 32 / tile[i].n - 0.75);
        const double flops = waves * n_sm * tile[i].m * tile[i].n * 2 * (p->k / splits + prologue) * loss;
        if (flops >= min) continue;
        min = flops;
        time->tile_m = tile[i].m, time->tile_n = tile[i].n;
        time->waves = waves, time->splits = splits;
    }
    return min;
}

double tandem_overlap_ns(double a, double b, double exponent)
{
    const double large = fmax(a, b), small = fmin(a, b);
    return large > 0 ? large * pow(1 + pow(small / large, exponent), 1 / exponent) : 0;
}
