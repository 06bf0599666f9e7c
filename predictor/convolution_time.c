/* convolution_time.c: the form's convolutions: the fastest of what a library would choose.
 *
 *   direct    the product of windows, in tiles; gradients of the input by pixels, of the weights k-deep in
 *             windows. Tensor cores take channels in eights.
 *   gemm      a gradient of the input of a strided convolution: the product of output pixels by all taps
 *   winograd  3 × 3 kernels of stride 1 in f32 (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 *             Networks", CVPR 2016): transforms through memory, and 36 products for sixteen results, a
 *             quarter of the multiplications. Winograd in one kernel is not kept apart: no cell of the fit
 *             got better by it.
 *
 * No algorithm but the gradient of weights splits its depth over idle multiprocessors. */
#include <math.h>

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

static double round_up(double x, double unit) { return ceil(x / unit) * unit; }

/* Keeps the faster of two ways. */
static void keep_faster(tandem_kernel_time *best, double *best_ns, const tandem_kernel_time *other, double ns)
{
    if (ns >= *best_ns) return;
    *best_ns = ns;
    *best = *other;
}

/* Compute of `busy` flops and memory, overlapped. */
static double finish_way(tandem_kernel_time *time, const kernel_gpu *gpu, const char *algorithm, double busy,
                         double executed, double bytes)
{
    time->algorithm = algorithm;
    time->executed_flops = executed;
    time->bytes = bytes;
    time->compute_ns = busy / gpu->flops_per_ns;
    time->memory_ns = bytes / (gpu->bytes_per_ns * C(PRODUCT_BANDWIDTH));
    return tandem_overlap_ns(time->compute_ns, time->memory_ns, C(OVERLAP));
}

static double pass_factor(const kernel_gpu *gpu, tandem_pass pass, int is_strided)
{
    const int is_old = gpu->spec->generation < 70;
    if (pass == TANDEM_PASS_DGRAD)
        return C(CONV_DGRAD) * (!is_strided ? 1 : is_old ? C(CONV_STRIDED_OLD) : C(CONV_STRIDED));
    if (pass == TANDEM_PASS_WGRAD) return is_old ? C(CONV_WGRAD_OLD) : C(CONV_WGRAD);
    return 1;
}

static double direct_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const tandem_convolution *const v = &work->convolution;
    const conv_sizes s = sizes_of(work);
    const double stride = v->stride_h * v->stride_w;
    const int is_narrow = work->element_bytes < 4;
    const double in = is_narrow ? round_up(s.in, 8) : s.in, out = is_narrow ? round_up(s.out, 8) : s.out;
    tiled_product p = {1, s.windows, in * s.taps, out, 0, 0};
    if (work->pass == TANDEM_PASS_DGRAD) p = (tiled_product){1, s.pixels, out * s.taps / stride, in, 0, 0};
    if (work->pass == TANDEM_PASS_WGRAD) p = (tiled_product){1, in * s.taps, s.windows, out, 0, 1};
    const double busy = tandem_tiled_flops(time, gpu, &p) * C(CONV_DIRECT) *
                        (is_narrow ? C(CONV_NARROW) : 1) * pass_factor(gpu, work->pass, stride > 1);
    /* a stride may leave pixels out: the work is that of the windows */
    return finish_way(time, gpu, "direct", busy, work->flops, work->bytes);
}

static double gemm_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const tiled_product p = {1, s.windows, s.out, s.in * s.taps, 0, 0};
    const double busy = tandem_tiled_flops(time, gpu, &p) *
                        (gpu->spec->generation < 70 ? C(CONV_STRIDED_OLD) : C(CONV_STRIDED));
    return finish_way(time, gpu, "gemm", busy, work->flops, work->bytes);
}

/* --- Winograd ------------------------------------------------------------------------------------------- */

/* Channels that are read and written in this pass. */
static void pass_channels(double *from, double *to, const conv_sizes *s, tandem_pass pass)
{
    *from = pass == TANDEM_PASS_DGRAD ? s->out : s->in;
    *to = pass == TANDEM_PASS_DGRAD ? s->in : s->out;
}

static double wgrad_factor(const kernel_gpu *gpu, tandem_pass pass)
{
    return pass == TANDEM_PASS_WGRAD && gpu->spec->generation < 70 ? C(WINOGRAD_WGRAD_OLD) : 1;
}

/* 36 products of tiles of 4 × 4 results, and transforms through memory. */
static double transformed_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const conv_sizes s = sizes_of(work);
    const double tiles = work->convolution.images * ceil(s.windows_high / 4) * ceil(s.windows_wide / 4);
    double from, to;
    pass_channels(&from, &to, &s, work->pass);
    tiled_product p = {36, tiles, from, to, 0, 0};
    if (work->pass == TANDEM_PASS_WGRAD) p = (tiled_product){36, from, tiles, to, 0, 1};
    const double busy = tandem_tiled_flops(time, gpu, &p) * C(WINOGRAD) * wgrad_factor(gpu, work->pass);
    const double transforms =
        36 * 2 * s.element_bytes * (C(WINOGRAD_DATA) * tiles * (from + to) + C(WINOGRAD_WEIGHTS) * from * to);
    const double ns = finish_way(time, gpu, "winograd", busy, 36 * 2 * tiles * from * to, work->bytes);
    const double transforms_ns = transforms / gpu->bytes_per_ns;
    time->bytes += transforms;
    time->memory_ns += transforms_ns;
    return ns + transforms_ns;
}

double tandem_convolution_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const tandem_convolution *const v = &work->convolution;
    const tandem_kernel_time begun = *time;
    tandem_kernel_time other = begun;
    double ns = direct_ns(time, gpu, work);
    const int is_strided = v->stride_h * v->stride_w > 1;
    if (work->pass == TANDEM_PASS_DGRAD && is_strided) {
        const double gemm = gemm_ns(&other, gpu, work);
        keep_faster(time, &ns, &other, gemm);
    }
    if (work->type == TANDEM_F32 && v->kernel_h == 3 && v->kernel_w == 3 && !is_strided) {
        other = begun;
        const double transformed = transformed_ns(&other, gpu, work);
        keep_faster(time, &ns, &other, transformed);
    }
    return ns;
}
