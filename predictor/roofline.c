/* roofline.c: the time of a task on a device of which only its description is known.
 *
 *   time = max(launch, max(compute, memory) + launch / 2)
 *
 *   memory  = bytes / (bytes_per_s · achieved_bytes)
 *   compute = flops / (flops_per_s · achieved)                    of what is no product
 *   compute = waves · tile · 2 · depth / (flops_per_s · achieved / n_unit)     of a product
 *
 * the roofline of Williams, Waterman and Patterson (Commun. ACM 52, 2009) with achieved rates for its roofs: on inference cards
 * the datasheet's peak is no bound that a kernel comes near. Of a launch, the part that passes between two kernels is added
 * always; no kernel takes less than a launch.
 *
 * Products: the (m, n) result is cut into tiles of at most 128 × 128, one to a multiprocessor at a time; what does not fill a
 * tile, or the last wave of tiles, costs as if it did (NVIDIA, "Matrix Multiplication Background User's Guide", on tile and
 * wave quantization). Sides below 128 get tiles as small as 32. Where there are fewer tiles than multiprocessors, k is
 * split over the idle ones, down to a depth of 256, so that
 *   depth = max(k / max(1, ⌊n_unit / tiles⌋), min(k, 256)),   waves = ⌈tiles / n_unit⌉
 * which falls in no dimension. A convolution is the product of its windows. Its backward passes take longer than their FLOPs
 * say: both together 2.5 to 2.9 times the forward pass, not twice (public measurements); each counts 1.35 times here. */
#include <math.h>

#include "tandem/predictor.h"

static const double tile_most = 128, tile_least = 32, depth_least = 256;

static double tile_side(double size)
{
    const double side = ceil(size / tile_least) * tile_least;
    return side < tile_most ? side : tile_most;
}

/* FLOPs that each multiprocessor is busy with, padding included. */
static double unit_flops(const tandem_device_facts *facts, const tandem_work *work)
{
    const double tile_m = tile_side(work->m), tile_n = tile_side(work->n);
    const double tiles = work->count * ceil(work->m / tile_m) * ceil(work->n / tile_n);
    const double splits = tiles < facts->n_unit ? floor(facts->n_unit / tiles) : 1;
    const double least = work->k < depth_least ? work->k : depth_least;
    const double depth = work->k / splits > least ? work->k / splits : least;
    return ceil(tiles / facts->n_unit) * tile_m * tile_n * 2 * depth;
}

double tandem_roofline_ns(const tandem_device_facts *facts, const tandem_work *work)
{
    const tandem_dtype type = work->type < TANDEM_N_VERSION ? work->type : TANDEM_F32;
    const double rate = facts->flops_per_s[type] * facts->achieved[type];
    const double memory = work->bytes / (facts->bytes_per_s * facts->achieved_bytes);
    double compute = 0;
    if (work->is_product && !(rate > 0)) return -1;
    if (work->is_product)
        compute = unit_flops(facts, work) * facts->n_unit / rate * work->slower;
    else if (facts->flops_per_s[TANDEM_F32] > 0)
        compute = work->flops / (facts->flops_per_s[TANDEM_F32] * facts->achieved[TANDEM_F32]);
    const double ns = 1e9 * (memory > compute ? memory : compute) + 0.5 * (double)facts->launch_ns;
    return ns > (double)facts->launch_ns ? ns : (double)facts->launch_ns;
}
