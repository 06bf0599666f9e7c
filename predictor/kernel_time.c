/* kernel_time.c: the form: the time of a task on a described device.
 *
 *   time = launch + (compute^p + memory^p)^(1/p)
 *
 * the roofline of Williams, Waterman and Patterson (Commun. ACM 52, 2009) with rates that are reached, a
 * launch, and terms that overlap (p) instead of hiding one another.
 *
 * *Compute* of a product. The library cuts the (m, n) result into tiles, one to a multiprocessor at a time
 * (NVIDIA, "Matrix Multiplication Background User's Guide", on tile and wave quantization):
 *   compute = waves · tile_m · tile_n · 2 · (depth + prologue) · loss · n_sm / rate
 *   waves   = φ · ⌈tiles / n_sm⌉ + (1 − φ) · tiles / n_sm      at least 1: blocks overlap but for the share φ
 *   depth   = k / splits                                      k is split over idle multiprocessors
 *   loss    = 1 + κ · max(0, 32/tile_m + 32/tile_n − 3/4)      small tiles read more for what they compute
 *   rate    = reached / (1 + δ · k² / (k² + h²))              deep rows of operands lie on more pages
 * Of one product, the fastest tile counts. Of batched products it is what the generation's library takes: the
 * kernels' names in NeuSight's tables (docs/costs.md) have 64 × 128 on Pascal, 64 × 64 and 128 × 32 on Volta
 * (here also Turing), 128 × 128 from Ampere on.
 *
 * *Rate.* The smaller of peak · reach, and what the board's watts pay for: watts / (energy · process / 7 nm)
 * (Choi et al., "A Roofline Model of Energy", IPDPS 2013). A training step is sustained.
 *
 * *Memory*: bytes past the level-2 cache over the reached bandwidth. Softmax of rows above 1024 computes
 * between its reads; layernorm reads rows again, from memory where those in flight do not fit into the
 * level-2 cache.
 *
 * Tiles: predictor/tiles.c. Convolutions: predictor/convolution_time.c. Constants:
 * form.def (meaning), constants.def (fitted values). */
#include <math.h>

#include "predictor/form.h"

/* --- Products ------------------------------------------------------------------------------------------- */

/* Operands may lie in part of the level-2 cache; a tenth of the bytes always comes from memory. */
static double bytes_past_cache(const kernel_gpu *gpu, double bytes)
{
    const double cached = gpu->constant[TANDEM_CONSTANT_CACHE_SHARE] * gpu->spec->l2_bytes;
    return fmax(bytes - cached, 0.1 * bytes);
}

/* A tile reads many rows at once, and deep ones lie on pages of their own: before 7.0, as NeuSight's and
 * DeepBench's rows have it, more pages than stay translated. */
static double depth_loss(const kernel_gpu *gpu, double k)
{
    const double *const c = gpu->constant, depth = k / (1e3 * c[TANDEM_CONSTANT_DEPTH_HALF]);
    const int key = gpu->spec->generation < 70 ? TANDEM_CONSTANT_DEPTH_LOSS_OLD : TANDEM_CONSTANT_DEPTH_LOSS;
    return 1 + c[key] * depth * depth / (1 + depth * depth);
}

static double product_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const double *const c = gpu->constant;
    const int is_batched = work->work_class == TANDEM_WORK_MATMUL;
    const tiled_product product = {
        is_batched ? PRODUCT_BATCHED : PRODUCT_SINGLE, work->count, work->m, work->k, work->n,
        is_batched ? DEPTH_WHOLE : DEPTH_OVER_IDLE};
    const double busy =
        tandem_tiled_flops(time, gpu, &product) * (is_batched ? c[TANDEM_CONSTANT_BATCHED_TIME] : 1);
    const double bandwidth =
        c[is_batched ? TANDEM_CONSTANT_BATCHED_BANDWIDTH : TANDEM_CONSTANT_PRODUCT_BANDWIDTH];
    time->algorithm = "product";
    time->executed_flops = work->flops;
    time->bytes = bytes_past_cache(gpu, work->bytes);
    time->compute_ns = busy * depth_loss(gpu, work->k) / gpu->flops_per_ns;
    time->memory_ns = time->bytes / (gpu->bytes_per_ns * bandwidth);
    return tandem_overlap_ns(time->compute_ns, time->memory_ns,
                             c[is_batched ? TANDEM_CONSTANT_BATCHED_OVERLAP : TANDEM_CONSTANT_OVERLAP]);
}

/* --- Streams -------------------------------------------------------------------------------------------- */

/* Rows above 1024 are read three times by one block, which computes between: its flops overlap with memory
 * in part. Rows of one card do not separate the exponent from the flops; with 3/2, P4 and P100 have the
 * same. */
static double softmax_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const double *const c = gpu->constant, elements = work->rows * work->columns, exponent = 1.5;
    const int key =
        gpu->spec->generation < 70 ? TANDEM_CONSTANT_SOFTMAX_FLOPS_OLD : TANDEM_CONSTANT_SOFTMAX_FLOPS;
    time->memory_ns += work->rows * c[TANDEM_CONSTANT_SOFTMAX_ROW] / gpu->spec->n_sm;
    if (work->columns <= 1024) return fmax(time->compute_ns, time->memory_ns);
    time->compute_ns = elements * c[key] / gpu->peak_flops_per_ns;
    return tandem_overlap_ns(time->compute_ns, time->memory_ns, exponent);
}

/* Rows are read twice: again from memory where those in flight, sixteen to a multiprocessor as of blocks of
 * 128 threads, are more than the level-2 cache. */
static double layernorm_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    const double *const c = gpu->constant, row_bytes = work->columns * work->element_bytes;
    const double caches =
        gpu->spec->n_sm * 16 * row_bytes / (gpu->spec->l2_bytes * c[TANDEM_CONSTANT_LAYERNORM_CACHE]);
    const double again = work->rows * row_bytes * caches * caches / (1 + caches * caches);
    time->bytes += again;
    time->memory_ns +=
        again / gpu->bytes_per_ns + work->rows * c[TANDEM_CONSTANT_LAYERNORM_ROW] / gpu->spec->n_sm;
    return fmax(time->compute_ns, time->memory_ns);
}

static double stream_ns(tandem_kernel_time *time, const kernel_gpu *gpu, const tandem_work *work)
{
    time->algorithm = "stream";
    time->executed_flops = work->flops;
    time->bytes = work->bytes;
    time->compute_ns = gpu->flops_per_ns > 0 ? work->flops / gpu->flops_per_ns : 0;
    time->memory_ns = time->bytes / gpu->bytes_per_ns;
    if (work->work_class == TANDEM_WORK_SOFTMAX) return softmax_ns(time, gpu, work);
    if (work->work_class == TANDEM_WORK_LAYERNORM) return layernorm_ns(time, gpu, work);
    return fmax(time->compute_ns, time->memory_ns);
}

/* --- Rates ---------------------------------------------------------------------------------------------- */

static int reach_constant(tandem_dtype type)
{
    if (type == TANDEM_F32) return TANDEM_CONSTANT_REACH_32;
    return type == TANDEM_TF32 || tandem_dtype_bytes(type) == 2 ? TANDEM_CONSTANT_REACH_16
                                                                : TANDEM_CONSTANT_REACH_8;
}

/* pJ in a process of 7 nm. tf32 moves twice the bits of f16; one-byte types half, nvfp4 a quarter. Without
 * tensor cores, f16 multiplies where f32 does, and a dot product of four bytes is one f32 operation. */
static double flop_energy(const tandem_gpu_spec *spec, tandem_dtype type, const double *c)
{
    const double f32 = c[TANDEM_CONSTANT_ENERGY_32], f16 = c[TANDEM_CONSTANT_ENERGY_16];
    const int has_tensor_cores = spec->generation >= 70;
    if (type == TANDEM_F32) return f32;
    if (type == TANDEM_TF32) return 2 * f16;
    if (tandem_dtype_bytes(type) == 2) return has_tensor_cores ? f16 : f32;
    if (type == TANDEM_NVFP4) return f16 / 4;
    return has_tensor_cores && spec->generation >= 75 ? f16 / 2 : f32 / 4;
}

void tandem_reached_rates_shared(tandem_reached_rates *rates, const tandem_gpu_spec *spec,
                                 const tandem_constants *constants)
{
    const double *const c = constants->value;
    *rates = (tandem_reached_rates){.launch_ns = 1e3 * c[TANDEM_CONSTANT_LAUNCH]};
    rates->bytes_per_s =
        spec->bytes_per_s *
        c[spec->memory_kind == TANDEM_HBM ? TANDEM_CONSTANT_BANDWIDTH_HBM : TANDEM_CONSTANT_BANDWIDTH_GDDR];
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
        const double reached = spec->flops_per_s[t] * c[reach_constant((tandem_dtype)t)],
                     paid = 1e12 * spec->watts /
                            (flop_energy(spec, (tandem_dtype)t, c) * spec->process_nm / 7.0);
        rates->is_power_bound[t] = paid < reached;
        rates->flops_per_s[t] = fmin(reached, paid);
    }
}

void tandem_reached_rates_without_power(tandem_reached_rates *rates, const tandem_gpu_spec *spec,
                                        const tandem_constants *constants)
{
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
        const double reached = spec->flops_per_s[t] * constants->value[reach_constant((tandem_dtype)t)];
        if (reached > rates->flops_per_s[t]) rates->is_power_bound[t] = 0;
        rates->flops_per_s[t] = fmax(rates->flops_per_s[t], reached);
    }
}

void tandem_take_dot_products(tandem_gpu_spec *spec, tandem_reached_rates *rates)
{
    spec->flops_per_s[TANDEM_S8] = 4 * spec->flops_per_s[TANDEM_F32];
    rates->flops_per_s[TANDEM_S8] = 4 * rates->flops_per_s[TANDEM_F32];
    rates->is_power_bound[TANDEM_S8] = rates->is_power_bound[TANDEM_F32];
}

int tandem_is_other_kernel(const tandem_gpu_spec *spec, const tandem_work *work, int timed)
{
    return timed & TANDEM_TIMED_BY_DOT_PRODUCTS && work->type == TANDEM_S8 &&
           spec->flops_per_s[TANDEM_S8] > 4.5 * spec->flops_per_s[TANDEM_F32];
}

double tandem_events_ns(const tandem_constants *constants, const tandem_work *work)
{
    return 1e3 * constants->value[work->is_product ? TANDEM_CONSTANT_EVENTS_PRODUCT : TANDEM_CONSTANT_EVENTS];
}

double tandem_timed_ns(const tandem_constants *constants, const tandem_work *work, int timed, double ns)
{
    const double *const c = constants->value;
    const int is_convolution = work->work_class == TANDEM_WORK_CONVOLUTION && work->element_bytes == 4;
    if (ns < 0) return ns;
    if (is_convolution && timed & TANDEM_TIMED_OF_OLD_LIBRARY) ns *= c[TANDEM_CONSTANT_CONV_OLD_LIBRARY];
    if (!(timed & TANDEM_TIMED_BETWEEN_EVENTS)) return ns;
    return ns * (is_convolution ? c[TANDEM_CONSTANT_CONV_BY_RULE] : 1) + tandem_events_ns(constants, work);
}

/* Measured rows do not say which term is off. */
void tandem_kernel_time_scale(tandem_kernel_time *time, double ns)
{
    const double factor = time->ns > 0 ? ns / time->ns : 1;
    time->ns = ns;
    time->launch_ns *= factor;
    time->compute_ns *= factor;
    time->memory_ns *= factor;
    time->by_rows *= factor;
}

/* --- Any task ------------------------------------------------------------------------------------------- */

static double work_at_peak_ns(const tandem_kernel_time *time, const kernel_gpu *gpu,
                              const tandem_gpu_spec *spec)
{
    const double compute = gpu->peak_flops_per_ns > 0 ? time->executed_flops / gpu->peak_flops_per_ns : 0;
    return fmax(compute, 1e9 * time->bytes / spec->bytes_per_s);
}

static tandem_time_bound find_bound(const tandem_kernel_time *time, int is_power_bound)
{
    if (time->launch_ns >= fmax(time->compute_ns, time->memory_ns)) return TANDEM_BOUND_LAUNCH;
    if (time->memory_ns >= time->compute_ns) return TANDEM_BOUND_MEMORY;
    return is_power_bound ? TANDEM_BOUND_POWER : TANDEM_BOUND_COMPUTE;
}

double tandem_kernel_time_of(tandem_kernel_time *out, const tandem_constants *constants,
                             const tandem_gpu_spec *spec, const tandem_reached_rates *rates,
                             const tandem_work *work)
{
    return tandem_kernel_time_by(out, constants, spec, rates, work, WAY_FASTEST);
}

double tandem_kernel_time_by(tandem_kernel_time *out, const tandem_constants *constants,
                             const tandem_gpu_spec *spec, const tandem_reached_rates *rates,
                             const tandem_work *work, convolution_way way)
{
    /* what is no product computes on the f32 units */
    const tandem_dtype type =
        work->is_product && work->type < TANDEM_N_COMPUTE_DTYPE ? work->type : TANDEM_F32;
    const kernel_gpu gpu = {.spec = spec,
                            .constant = constants->value,
                            .flops_per_ns = 1e-9 * rates->flops_per_s[type],
                            .peak_flops_per_ns = 1e-9 * spec->flops_per_s[type],
                            .bytes_per_ns = 1e-9 * rates->bytes_per_s};
    tandem_kernel_time time = {.launch_ns = rates->launch_ns, .by_rows = 1};
    if (work->is_product && !(gpu.flops_per_ns > 0)) return -1;
    const double ns = work->work_class == TANDEM_WORK_CONVOLUTION
                          ? tandem_convolution_ns(&time, &gpu, work, way)
                      : work->is_product ? product_ns(&time, &gpu, work)
                                         : stream_ns(&time, &gpu, work);
    time.bound = find_bound(&time, rates->is_power_bound[type]);
    time.least_ns = work_at_peak_ns(&time, &gpu, spec);
    time.ns = time.launch_ns + fmax(ns, time.least_ns);
    if (out) *out = time;
    return time.ns;
}
