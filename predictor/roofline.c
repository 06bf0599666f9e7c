/* roofline.c: the time of a task on a described device.
 *
 *   time = max(launch, max(compute, memory) + launch / 2)
 *
 *   memory  = bytes / (bytes_per_s · memory_efficiency)
 *   compute = flops / (flops_per_s · achieved)                    of what is no product
 *   compute = waves · tile_m · tile_n · 2 · depth / (flops_per_s · achieved / n_sm)     of a product
 *
 * the roofline of Williams, Waterman and Patterson (Commun. ACM 52, 2009), with achieved rates instead of
 * peaks, which no kernel reaches on inference GPUs. The half of a launch that passes between two kernels is
 * always added; no kernel takes less than a launch.
 *
 * Products: the (m, n) result is cut into tiles, one to a multiprocessor at a time; what does not fill a
 * tile, or the last wave of tiles, costs as if it did (NVIDIA, "Matrix Multiplication Background User's
 * Guide", on tile and wave quantization). Tiles are 128 × 128, 128 × 64, 64 × 128 or 64 × 64, which that
 * guide has among cuBLAS's, whichever is fastest; the smaller ones read more for what they compute, and count
 * 1.1 and 1.25 times (*estimates*). Sides shorter than a tile get one as short as 32 (*estimate*). Where
 * there are fewer tiles than multiprocessors, k is split over the idle ones, down to a depth of 256
 * (*estimate*), so that
 *   depth = max(k / max(1, ⌊n_sm / tiles⌋), min(k, 256)),   waves = ⌈tiles / n_sm⌉
 * which falls in no dimension. A convolution is the product of its windows, `slower` times as long
 * (predictor/task_work.c). */
#include <math.h>

#include "tandem/advanced/predictor.h"

/* Sides are from that guide; the slowdowns of smaller tiles are *estimates*. */
static const struct {
    double m, n, time_factor;
} tile_choices[] = {{128, 128, 1}, {128, 64, 1.1}, {64, 128, 1.1}, {64, 64, 1.25}};
static const double min_tile = 32, min_depth = 256; /* *estimates* */

static double tile_side(double size, double max_side)
{
    const double side = ceil(size / min_tile) * min_tile;
    return side < max_side ? side : max_side;
}

/* FLOPs of each multiprocessor under one choice of tiles, padding included. */
static double unit_flops(const tandem_gpu_spec *spec, const tandem_work *work, double max_m, double max_n)
{
    const double tile_m = tile_side(work->m, max_m), tile_n = tile_side(work->n, max_n);
    const double tiles = work->count * ceil(work->m / tile_m) * ceil(work->n / tile_n);
    const double splits = tiles < spec->n_sm ? floor(spec->n_sm / tiles) : 1;
    const double min = work->k < min_depth ? work->k : min_depth;
    const double depth = work->k / splits > min ? work->k / splits : min;
    return ceil(tiles / spec->n_sm) * tile_m * tile_n * 2 * depth;
}

static double tiled_product_flops(const tandem_gpu_spec *spec, const tandem_work *work)
{
    double min = INFINITY;
    for (size_t i = 0; i < sizeof tile_choices / sizeof *tile_choices; i++) {
        const double flops =
            unit_flops(spec, work, tile_choices[i].m, tile_choices[i].n) * tile_choices[i].time_factor;
        if (flops < min) min = flops;
    }
    return min * spec->n_sm * work->time_factor;
}

double tandem_roofline_ns(const tandem_gpu_spec *spec, const tandem_work *work)
{
    const tandem_dtype type = work->type < TANDEM_N_COMPUTE_DTYPE ? work->type : TANDEM_F32;
    const double rate = spec->flops_per_s[type] * spec->compute_efficiency[type];
    const double memory = work->bytes / (spec->bytes_per_s * spec->memory_efficiency);
    double compute = 0;
    if (work->is_product && !(rate > 0)) return -1;
    if (work->is_product)
        compute = tiled_product_flops(spec, work) / rate;
    else if (spec->flops_per_s[TANDEM_F32] > 0)
        compute = work->flops / (spec->flops_per_s[TANDEM_F32] * spec->compute_efficiency[TANDEM_F32]);
    const double ns = 1e9 * (memory > compute ? memory : compute) + 0.5 * (double)spec->launch_ns;
    return ns > (double)spec->launch_ns ? ns : (double)spec->launch_ns;
}
