/* convolution_time.c: the form's convolutions: the fastest of what a library would choose.
 *
 *   direct    the product of windows, in tiles; gradients of the input by pixels. Tensor cores take channels
 *             in eights, before 8.0 in thirty-twos (DeepBench's rows of V100: one channel takes as long as
 *             thirty-two). Gradients of weights are products k-deep in windows, which are split evenly over
 *             the card; in f32, kernels of 1 × 1 have tiles of 128 × 128 alone. On tensor cores the channels
 *             of each tap are tiles of their own, 64 wide.
 *   gemm      a gradient of the input of a strided convolution: the product of output pixels by all taps,
 *             whose windows are then added up in memory. Before 7.0 it is the only one (DeepBench's rows of
 *             P100, GTX 1080 Ti and TITAN Xp: above 1 x 1, its product and its bytes explain them)
 *   winograd  kernels of 3 × 3 and 5 × 5, stride 1, in f32 (Lavin and Gray, "Fast Algorithms for
 *             Convolutional Neural Networks", CVPR 2016): transforms through memory, and products between
 *             them: 36 for the 16 results of a tile of kernels of 3 × 3, 81 for the 25 of one of 5 × 5
 *             (kernels' names have "9x9_5x5")
 *   winograd fused   the same of 3 × 3 in one kernel: 16 products for 4 results, no transform through memory.
 *             Its blocks are large: 32 tiles by 32 channels ("winograd_128x128")
 *
 * The fit holds rows whose kernel is named in the table against that way alone. So what a way takes does not
 * depend on how well a library chooses.
 *
 * Kernels of convolutions fill a card slowly: CONV_TAIL waves hide nothing. Every term grows with every
 * size, so that a larger convolution takes no less (tests/property/test_cost_laws.c). */
#include <math.h>
#include <string.h>

#include "predictor/form.h"

#define C(key) (gpu->constant[TANDEM_CONSTANT_##key])

/* Sizes of one convolution, in numbers of elements. */
typedef struct conv_sizes {
    double windows, pixels, windows_high, windows_wide, taps, in, out, element_bytes;
} conv_sizes;

static conv_sizes sizes_of(const tandem_work *work)
{
    const tandem_convolution *const v = &work->convolution;
    const double high = floor((v->height + 2 * v->pad_h - v->kernel_h) / v->stride_h) + 1,
                 wide = floor((v->width + 2 * v->pad_w - v->kernel_w) / v->stride_w) + 1;
    return (conv_sizes){.windows = v->images * high * wide,
                        .pixels = v->images * v->height * v->width,
                        .windows_high = high,
                        .windows_wide = wide,
                        .taps = v->kernel_h * v->kernel_w,
                        .in = v->channels_in,
                        .out = v->channels_out,
                        .element_bytes = work->element_bytes};
}

/* What multiplies on tensor cores where there are any; tf32, too, which f32's kernels do not know. */
static int is_narrow_type(const tandem_work *work)
{
    return work->element_bytes < 4 || work->type == TANDEM_TF32;
}

/* Channels over which a kernel sums: on tensor cores in eights, before 8.0 in thirty-twos. */
static double pad_channels(const kernel_gpu *gpu, double channels, int is_narrow)
{
    const double unit = !is_narrow ? 1 : gpu->spec->generation < 80 ? 32 : 8;
    return ceil(channels / unit) * unit;
}

/* Keeps the faster of two ways. */
static void keep_faster(tandem_kernel_time *best, double *best_ns, const tandem_kernel_time *other, double ns)
{
    if (ns >= *best_ns) return;
    *best_ns = ns;
    *best = *other;
}

/* Compute of `busy` flops and memory, overlapped; no way takes less than its work at the peaks, or the
 * fastest of them would not be the one that counts. */
static double finish_way(tandem_kernel_time *time, const kernel_gpu *gpu, const char *algorithm, double busy,
                         double executed, double bytes)
{
    time->algorithm = algorithm;
    time->executed_flops = executed;
    time->bytes = bytes;
    time->compute_ns = busy / gpu->flops_per_ns;
    time->memory_ns = bytes / (gpu->bytes_per_ns * C(PRODUCT_BANDWIDTH));
    const double least = fmax(executed / gpu->peak_flops_per_ns, 1e9 * bytes / gpu->spec->bytes_per_s);
    return fmax(least, tandem_overlap_ns(time->compute_ns, time->memory_ns, C(OVERLAP)));
}

/* A gradient of weights writes partial sums of its windows, and adds them up. */
static double add_partial_sums(tandem_kernel_time *time, const kernel_gpu *gpu, const conv_sizes *s)
{
    const double bytes = C(CONV_PARTIAL) * s->taps * s->in * s->out * s->element_bytes,
                 ns = bytes / gpu->bytes_per_ns;
    time->bytes += bytes;
    time->memory_ns += ns;
    return ns;
}

static double wgrad_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const int is_narrow = is_narrow_type(work);
    const product_family family = is_narrow    ? PRODUCT_WINDOWS_NARROW
                                  : s.taps < 2 ? PRODUCT_POINTS
                                               : PRODUCT_WINDOWS;
    const double channels = is_narrow ? ceil(s.in / 64) * 64 : s.in;
    const tiled_product p = {family, 1, channels * s.taps, s.windows, s.out, DEPTH_EVENLY};
    const double busy = tandem_tiled_flops(time, gpu, &p) * (is_narrow    ? C(CONV_NARROW)
                                                             : s.taps < 2 ? C(CONV_WGRAD_POINTS)
                                                                          : C(CONV_WGRAD));
    const double ns = finish_way(time, gpu, "direct", busy, work->flops, work->bytes);
    return ns + add_partial_sums(time, gpu, &s);
}

static double direct_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const tandem_convolution *const v = &work->convolution;
    const conv_sizes s = sizes_of(work);
    const double stride = v->stride_h * v->stride_w;
    const int is_narrow = is_narrow_type(work);
    const product_family family = is_narrow ? PRODUCT_WINDOWS_NARROW : PRODUCT_WINDOWS;
    tiled_product p = {family, 1, s.windows, pad_channels(gpu, s.in, is_narrow) * s.taps, s.out, DEPTH_WHOLE};
    if (work->pass == TANDEM_PASS_DGRAD)
        p = (tiled_product){
            family, 1, s.pixels, pad_channels(gpu, s.out, is_narrow) * s.taps / stride, s.in, DEPTH_WHOLE};
    const double busy = tandem_tiled_flops(time, gpu, &p) * C(CONV_DIRECT) *
                        (is_narrow ? C(CONV_NARROW) : 1) *
                        (work->pass == TANDEM_PASS_DGRAD && stride > 1 ? C(CONV_STRIDED) : 1);
    /* a stride may leave pixels out: the work is that of the windows */
    return finish_way(time, gpu, "direct", busy, work->flops, work->bytes);
}

/* Windows are written by the product and read again to be added up. The result is set to zero first, and then
 * read and written. */
static double gemm_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const product_family family = is_narrow_type(work) ? PRODUCT_WINDOWS_NARROW : PRODUCT_WINDOWS;
    const tiled_product p = {family, 1, s.windows, s.out, s.in * s.taps, DEPTH_WHOLE};
    const double busy = tandem_tiled_flops(time, gpu, &p) * (s.taps < 2 ? C(CONV_STRIDED) : 1);
    const double ns = finish_way(time, gpu, "gemm", busy, work->flops, work->bytes);
    const double added = 2 * (s.windows * s.taps + s.pixels) * s.in * s.element_bytes,
                 added_ns = added / gpu->bytes_per_ns;
    time->bytes += added;
    time->memory_ns += added_ns;
    return ns + added_ns;
}

/* --- Winograd ------------------------------------------------------------------------------------------- */

/* Channels that are read and written in this pass. */
static void pass_channels(double *from, double *to, const conv_sizes *s, tandem_pass pass)
{
    *from = pass == TANDEM_PASS_DGRAD ? s->out : s->in;
    *to = pass == TANDEM_PASS_DGRAD ? s->in : s->out;
}

/* Products of tiles of 4 × 4 results, of 5 × 5 for kernels of 5 × 5, and transforms through memory. */
static double transformed_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const double step = s.taps > 9 ? 5 : 4, side = step + work->convolution.kernel_h - 1,
                 points = side * side;
    const double tiles = work->convolution.images * ceil(s.windows_high / step) * ceil(s.windows_wide / step);
    double from, to;
    pass_channels(&from, &to, &s, work->pass);
    tiled_product p = {PRODUCT_WINOGRAD, points, tiles, from, to, DEPTH_WHOLE};
    const int is_wgrad = work->pass == TANDEM_PASS_WGRAD;
    if (is_wgrad) p = (tiled_product){PRODUCT_WINOGRAD_WGRAD, points, from, tiles, to, DEPTH_EVENLY};
    const double busy = tandem_tiled_flops(time, gpu, &p) * C(WINOGRAD);
    const double transforms = points * 2 * s.element_bytes *
                              ((is_wgrad ? C(WINOGRAD_DATA_WGRAD) : C(WINOGRAD_DATA)) * tiles * (from + to) +
                               C(WINOGRAD_WEIGHTS) * from * to);
    const double ns = finish_way(time, gpu, "winograd", busy, points * 2 * tiles * from * to, work->bytes);
    const double transforms_ns = transforms / gpu->bytes_per_ns;
    time->bytes += transforms;
    time->memory_ns += transforms_ns;
    return ns + transforms_ns;
}

/* Tiles of 2 × 2 results, transformed within the kernel. */
static double fused_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const double points = 16,
                 tiles = work->convolution.images * ceil(s.windows_high / 2) * ceil(s.windows_wide / 2);
    double from, to;
    pass_channels(&from, &to, &s, work->pass);
    const tiled_product p = {PRODUCT_WINOGRAD_FUSED, 1, points * tiles, from, to, DEPTH_WHOLE};
    const double busy = tandem_tiled_flops(time, gpu, &p) * C(WINOGRAD_FUSED);
    return finish_way(time, gpu, "winograd fused", busy, points * 2 * tiles * from * to, work->bytes);
}

/* --- What is chosen ------------------------------------------------------------------------------------- */

static int can_transform(const tandem_work *work)
{
    const tandem_convolution *const v = &work->convolution;
    return work->type == TANDEM_F32 && v->kernel_h == v->kernel_w && (v->kernel_h == 3 || v->kernel_h == 5) &&
           v->stride_h * v->stride_w < 2;
}

static int can_fuse(const tandem_work *work)
{
    return can_transform(work) && work->convolution.kernel_h == 3 && work->pass != TANDEM_PASS_WGRAD;
}

convolution_way tandem_convolution_way(const tandem_work *work, const char *algorithm)
{
    static const struct {
        const char *name;
        convolution_way way;
    } names[] = {{"scudnn", WAY_DIRECT},
                 {"IMPLICIT_GEMM", WAY_DIRECT},
                 {"IMPLICIT_PRECOMP_GEMM", WAY_DIRECT},
                 {"LICIT_PRECOMP_GEMM", WAY_DIRECT}, /* as DeepBench spells it twice */
                 {"winograd", WAY_FUSED},
                 {"WINOGRAD", WAY_FUSED},
                 {"winograd_nonfused", WAY_TRANSFORMED},
                 {"WINOGRAD_NONFUSED", WAY_TRANSFORMED}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, algorithm) != 0) continue;
        const convolution_way way = names[i].way;
        if ((way == WAY_FUSED && !can_fuse(work)) || (way == WAY_TRANSFORMED && !can_transform(work)))
            return WAY_FASTEST;
        return way;
    }
    return WAY_FASTEST;
}

double tandem_convolution_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work,
                             convolution_way way)
{
    const tandem_convolution *const v = &work->convolution;
    const tandem_kernel_time begun = *time;
    if (way == WAY_TRANSFORMED) return transformed_ns(time, gpu, work);
    if (way == WAY_FUSED) return fused_ns(time, gpu, work);
    tandem_kernel_time other = begun;
    double ns = work->pass == TANDEM_PASS_WGRAD ? wgrad_ns(time, gpu, work) : direct_ns(time, gpu, work);
    if (way == WAY_DIRECT) return ns;
    if (work->pass == TANDEM_PASS_DGRAD && v->stride_h * v->stride_w > 1) {
        const double gemm = gemm_ns(&other, gpu, work);
        if (gpu->spec->generation < 70) ns = INFINITY; /* their library has no other */
        keep_faster(time, &ns, &other, gemm);
    }
    if (can_transform(work)) {
        other = begun;
        const double transformed = transformed_ns(&other, gpu, work);
        keep_faster(time, &ns, &other, transformed);
    }
    if (can_fuse(work)) {
        other = begun;
        const double fused = fused_ns(&other, gpu, work);
        keep_faster(time, &ns, &other, fused);
    }
    return ns;
}
