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

/* Of convolutions: windows, or taps, by channels. Kernels of tensor cores have no thinner one than 64. */
static const tile_size window_tile[] = {{128, 128}, {128, 64}, {128, 32}};
enum { N_WINDOW_TILE = sizeof window_tile / sizeof *window_tile };
/* Of the products between Winograd's transforms. */
static const tile_size winograd_tile[] = {{128, 128}, {128, 64}, {64, 64}};
/* Of the kernel that transforms within itself, "winograd_128x128": 32 tiles of 16 points by 32 channels. */
static const tile_size fused_tile[] = {{512, 32}};

static const tile_size *choose_tiles(int *n, const kernel_gpu *gpu, product_family family)
{
    size_t i = 0;
    switch (family) {
    case PRODUCT_WINDOWS: *n = N_WINDOW_TILE; return window_tile;
    case PRODUCT_WINOGRAD_WGRAD:
    case PRODUCT_POINTS: *n = 1; return window_tile;
    case PRODUCT_WINDOWS_NARROW: *n = N_WINDOW_TILE - 1; return window_tile;
    case PRODUCT_WINOGRAD: *n = (int)(sizeof winograd_tile / sizeof *winograd_tile); return winograd_tile;
    case PRODUCT_WINOGRAD_FUSED: *n = 1; return fused_tile;
    case PRODUCT_SINGLE: *n = (int)(sizeof any_tile / sizeof *any_tile); return any_tile;
    case PRODUCT_BATCHED: break;
    }
    while (gpu->spec->generation < batched_tiles[i].capability) i++;
    *n = batched_tiles[i].n;
    return batched_tiles[i].tile;
}

/* How a family fills a card. */
typedef struct tile_terms {
    double wave_share, prologue, split_depth, tail; /* tail: waves that hide nothing */
} tile_terms;

static tile_terms terms_of(const double *c, product_family family, depth_split split)
{
    if (split == DEPTH_EVENLY) return (tile_terms){0, 0, INFINITY, 0};
    if (family == PRODUCT_SINGLE)
        return (tile_terms){c[TANDEM_CONSTANT_WAVE_SHARE], c[TANDEM_CONSTANT_PROLOGUE],
                            c[TANDEM_CONSTANT_SPLIT_DEPTH], 0};
    if (family == PRODUCT_BATCHED) return (tile_terms){1, c[TANDEM_CONSTANT_BATCHED_PROLOGUE], INFINITY, 0};
    return (tile_terms){1, c[TANDEM_CONSTANT_CONV_PROLOGUE], INFINITY, c[TANDEM_CONSTANT_CONV_TAIL]};
}

/* Depth that a multiprocessor works through for its share of the tiles, in waves of one tile's own. */
static double waves_of(double *splits, const tile_terms *terms, const tiled_product *p, double tiles_per_sm)
{
    *splits = 1;
    if (p->split == DEPTH_EVENLY) return tiles_per_sm;
    if (tiles_per_sm >= 1)
        return terms->wave_share * ceil(tiles_per_sm) + (1 - terms->wave_share) * tiles_per_sm + terms->tail;
    if (p->split == DEPTH_OVER_IDLE)
        *splits = fmax(1, fmin(floor(1 / tiles_per_sm), p->k / terms->split_depth));
    return 1 + terms->tail;
}

double tandem_tiled_flops(tandem_kernel_time *time, const kernel_gpu *gpu, const tiled_product *p)
{
    const double *const c = gpu->constant, n_sm = gpu->spec->n_sm;
    const tile_terms terms = terms_of(c, p->family, p->split);
    double min = INFINITY;
    int n = 0;
    const tile_size *const tile = choose_tiles(&n, gpu, p->family);
    for (int i = 0; i < n; i++) {
        const double tiles = p->count * ceil(p->m / tile[i].m) * ceil(p->n / tile[i].n);
        double splits;
        const double waves = waves_of(&splits, &terms, p, tiles / n_sm);
        const double loss =
            1 + c[TANDEM_CONSTANT_TILE_LOSS] * fmax(0, 32 / tile[i].m + 32 / tile[i].n - 0.75);
        const double flops =
            waves * n_sm * tile[i].m * tile[i].n * 2 * (p->k / splits + terms.prologue) * loss;
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
