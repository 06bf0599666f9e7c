/* kernels.c: our own kernels, with the bytes that each must move. */
#include <string.h>

#include "bench/cuda/gpu_bench.h"

/* --- Arrays --------------------------------------------------------------------------------------------- */

static uint64_t larger_bytes(uint64_t a, uint64_t b) { return a > b ? a : b; }

enum {
    CHANNELS = 64,
    IMAGE = 16,
    IMAGE_ELEMENTS = CHANNELS * IMAGE * IMAGE
}; /* images are 16 × 16 places of 64 channels */

static void *reserve_array(char **end, uint64_t bytes)
{
    char *const start = *end;
    *end = start + (bytes + 255) / 256 * 256;
    return start;
}

gpu_arrays gpu_kernel_arrays(const gpu_kernel *kernel, const gpu_arrays *arrays)
{
    gpu_arrays own = *arrays;
    if (kernel->columns) own.columns = kernel->columns, own.rows = arrays->n / kernel->columns;
    return own;
}

/* What a kernel that sums over rows needs beside them; 1: at least the arrays of a row or column. */
static uint64_t max_over_kernels(const gpu_arrays *a, int of_row)
{
    uint64_t max = 0;
    for (int k = 0; k < n_gpu_kernel; k++) {
        const gpu_arrays own = gpu_kernel_arrays(&gpu_kernels[k], a);
        max = larger_bytes(max, of_row ? larger_bytes(own.rows, own.columns)
                                       : tandem_cuda_layernorm_workspace(own.rows, own.columns));
    }
    return max;
}

/* Places of all arrays from `start` on; returns the end. */
static char *lay_out_arrays(gpu_arrays *a, char *start)
{
    a->n_of_row = max_over_kernels(a, 1);
    const uint64_t of_row = 4 * a->n_of_row;
    char *end = start;
    a->start = start;
    a->x = reserve_array(&end, 4 * a->n);
    a->y = reserve_array(&end, 4 * a->n);
    a->z = reserve_array(&end, 4 * a->n);
    a->positive = reserve_array(&end, 4 * a->n);
    a->half = reserve_array(&end, 2 * a->n);
    a->half_out = reserve_array(&end, 2 * a->n);
    a->q = reserve_array(&end, a->n);
    a->transposed = reserve_array(&end, a->n);
    a->of_row = reserve_array(&end, of_row);
    a->mean = reserve_array(&end, of_row);
    a->variance = reserve_array(&end, of_row);
    a->label = reserve_array(&end, of_row);
    a->words = reserve_array(&end, 64);
    a->history = reserve_array(&end, sizeof *a->history);
    a->workspace = reserve_array(
        &end, larger_bytes(
                  of_row, larger_bytes(tandem_cuda_column_sum_workspace(a->rows, a->columns),
                                       larger_bytes(max_over_kernels(a, 0),
                                                    tandem_cuda_norm_workspace(a->n / CHANNELS, CHANNELS)))));
    a->tickets = reserve_array(&end, TANDEM_CUDA_TICKETS * sizeof *a->tickets);
    a->bytes = (uint64_t)(end - start);
    return end;
}

tandem_status gpu_arrays_open(gpu_arrays *arrays, gpu_bench *c, size_t n, size_t columns, tandem_error *error)
{
    gpu_arrays a = {.n = n / columns * columns, .rows = n / columns, .columns = columns};
    char sizes[1];
    void *memory = NULL;
    lay_out_arrays(&a, sizes); /* for `bytes` only */
    const tandem_status status = gpu_alloc(&memory, c, a.bytes, error);
    if (status != TANDEM_OK) return status;
    lay_out_arrays(&a, memory);
    *arrays = a;
    return TANDEM_OK;
}

tandem_status gpu_arrays_fill(const gpu_arrays *a, const gpu_bench *c, tandem_error *error)
{
    const size_t of_row = a->n_of_row;
    float *const wide[] = {a->x, a->y, a->z};
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < 3 && status == TANDEM_OK; k++)
        status = gpu_fill(c, wide[k], TANDEM_F32, a->n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->positive, TANDEM_F32, a->n, 1, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->half, TANDEM_BF16, a->n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->half_out, TANDEM_BF16, a->n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->q, TANDEM_S8, a->n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->transposed, TANDEM_S8, a->n, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->of_row, TANDEM_F32, of_row, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->mean, TANDEM_F32, of_row, 0, 0, error);
    if (status == TANDEM_OK) status = gpu_fill(c, a->variance, TANDEM_F32, of_row, 1, 0, error);
    if (status == TANDEM_OK)
        status = gpu_fill(c, a->label, TANDEM_S32, of_row, 0,
                          (int32_t)(a->rows < a->columns ? a->rows : a->columns), error);
    if (status != TANDEM_OK) return status;
    const uint32_t one = 0x3F800000u, none = 0; /* amax is 1 */
    const tandem_amax_history history = {.window = 16, .updates = 1, .before = 1, .amax = {1}};
    int failed = c->device->vendor->copy(a->history, &history, sizeof history, c->device->stream);
    for (int k = 0; k < 16 && !failed; k++)
        failed = tandem_cuda_set_word(&a->words[k], k == 0 ? one : none, c->device->stream);
    if (!failed)
        failed = c->device->vendor->clear(
            a->workspace, a->bytes - (uint64_t)((char *)a->workspace - (char *)a->start), c->device->stream);
    if (!failed) failed = c->device->vendor->stream_sync(c->device->stream);
    return failed ? tandem_error_set(error, TANDEM_NO_DEVICE, "device '%s' failed to fill memory: %s",
                                     c->device->name, c->device->vendor->error_text(failed))
                  : TANDEM_OK;
}

/* --- Launches ------------------------------------------------------------------------------------------- */

static const tandem_rounding rounding = {12345, {1, 2, 3}, 0};
static const tandem_adamw adamw = {1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, 10, 1000};

static tandem_cuda_batchnorm bench_batchnorm_call(const gpu_arrays *a)
{
    return (tandem_cuda_batchnorm){.rows = a->n / CHANNELS,
                                   .columns = CHANNELS,
                                   .scale = a->of_row,
                                   .shift = a->of_row,
                                   .epsilon = 1e-5f,
                                   .has_relu = 1};
}
static tandem_cuda_pool bench_window(const gpu_arrays *a, int images_in, int kernel, int stride, int pad)
{
    const int out = (IMAGE + 2 * pad - kernel) / stride + 1;
    return (tandem_cuda_pool){(int)(a->n / (size_t)images_in / IMAGE_ELEMENTS),
                              IMAGE,
                              IMAGE,
                              CHANNELS,
                              out,
                              out,
                              kernel,
                              kernel,
                              stride,
                              pad};
}
/* (batch, length, heads, width) to (batch, heads, length, width), heads 16 and width 64 or what there is. */
static tandem_cuda_permutation heads_permutation(const gpu_arrays *a)
{
    const size_t width = 64, heads = a->columns / width, length = a->rows;
    return (tandem_cuda_permutation){{1, heads, length, width}, {a->n, width, heads * width, 1}};
}
static tandem_cuda_permutation transpose_permutation(const gpu_arrays *a)
{
    return (tandem_cuda_permutation){{1, 1, a->columns, a->rows}, {a->n, a->n, 1, a->columns}};
}

#define LAUNCH_OF(name, call)                                                                                \
    static int name(const gpu_arrays *a, tandem_cuda_stream s) { return call; }
#define F TANDEM_CUDA_F32
#define H TANDEM_CUDA_BF16

/* Codes in q, or with their transpose in `turned`. */
static int bench_quantise(const gpu_arrays *a, tandem_cuda_code code, const void *x, tandem_cuda_float type,
                          void *transposed_copy, tandem_cuda_stream s)
{
    const tandem_cuda_quantised to = {code, 1, a->rows, a->columns, a->q, transposed_copy, a->of_row};
    return tandem_cuda_quantise(&to, x, type, a->words, &rounding, NULL, s);
}
static int bench_quantise_delayed(const gpu_arrays *a, const void *x, tandem_cuda_float type,
                                  void *transposed_copy, tandem_cuda_stream s)
{
    const tandem_cuda_delayed_cast cast = {
        .to = {TANDEM_CUDA_S8, 1, a->rows, a->columns, a->q, transposed_copy, a->of_row},
        .history = a->history,
        .words = a->words + 4,
        .rounding = &rounding};
    return tandem_cuda_quantise_delayed(&cast, x, type, s);
}

LAUNCH_OF(amax_f32, tandem_cuda_amax(a->words, a->x, F, a->n, s))
LAUNCH_OF(amax_bf16, tandem_cuda_amax(a->words, a->half, H, a->n, s))
LAUNCH_OF(quantise_f32, bench_quantise(a, TANDEM_CUDA_S8, a->x, F, NULL, s))
LAUNCH_OF(quantise_bf16, bench_quantise(a, TANDEM_CUDA_S8, a->half, H, NULL, s))
LAUNCH_OF(delayed_f32, bench_quantise_delayed(a, a->x, F, NULL, s))
LAUNCH_OF(delayed_bf16, bench_quantise_delayed(a, a->half, H, NULL, s))
LAUNCH_OF(both_s8_f32, bench_quantise(a, TANDEM_CUDA_S8, a->x, F, a->transposed, s))
LAUNCH_OF(both_s8_bf16, bench_quantise(a, TANDEM_CUDA_S8, a->half, H, a->transposed, s))
LAUNCH_OF(both_e4m3_f32, bench_quantise(a, TANDEM_CUDA_E4M3, a->x, F, a->transposed, s))
LAUNCH_OF(both_e4m3_bf16, bench_quantise(a, TANDEM_CUDA_E4M3, a->half, H, a->transposed, s))
LAUNCH_OF(both_delayed_bf16, bench_quantise_delayed(a, a->half, H, a->transposed, s))
LAUNCH_OF(rows_s8_f32, tandem_cuda_quantise_rows(a->q, TANDEM_CUDA_S8, a->of_row, a->x, F, a->rows,
                                                 a->columns, &rounding, NULL, s))
LAUNCH_OF(rows_s8_bf16, tandem_cuda_quantise_rows(a->q, TANDEM_CUDA_S8, a->of_row, a->half, H, a->rows,
                                                  a->columns, &rounding, NULL, s))
LAUNCH_OF(rows_e4m3_bf16, tandem_cuda_quantise_rows(a->q, TANDEM_CUDA_E4M3, a->of_row, a->half, H, a->rows,
                                                    a->columns, NULL, NULL, s))
LAUNCH_OF(dequantise_rows, tandem_cuda_dequantise_rows(a->half_out, H, a->q, TANDEM_CUDA_S8, a->rows,
                                                       a->columns, a->of_row, s))
LAUNCH_OF(dequantise_f32, tandem_cuda_dequantise(a->y, F, a->q, TANDEM_CUDA_S8, a->n, a->of_row, s))
LAUNCH_OF(dequantise_bf16, tandem_cuda_dequantise(a->half_out, H, a->q, TANDEM_CUDA_S8, a->n, a->of_row, s))
LAUNCH_OF(narrow, tandem_cuda_convert(a->half_out, H, a->x, F, a->n, s))
LAUNCH_OF(widen, tandem_cuda_convert(a->y, F, a->half, H, a->n, s))
LAUNCH_OF(scale_f32, tandem_cuda_scale_s32(a->y, F, a->x, 1, a->rows, a->columns, a->rows, a->columns,
                                           a->of_row, a->of_row + 1, 0, s))
LAUNCH_OF(scale_bf16, tandem_cuda_scale_s32(a->half_out, H, a->x, 1, a->rows, a->columns, a->rows, a->columns,
                                            a->of_row, a->of_row + 1, 0, s))
LAUNCH_OF(scale_rows_bf16,
          tandem_cuda_scale_rows_s32(a->half_out, H, a->x, a->rows, a->columns, a->mean, a->of_row, 0, s))
LAUNCH_OF(bench_transpose_s8,
          tandem_cuda_pad_bytes(a->transposed, a->q, 1, a->columns, a->rows, a->columns, a->rows, 1, s))
LAUNCH_OF(sgd,
          tandem_cuda_sgd(a->y, a->z, a->x, NULL, a->n / 16 * 16, 1e-3f, 0.9f, 1e-4f, NULL, a->words + 1, s))
LAUNCH_OF(adam, tandem_cuda_adamw(a->y, a->z, a->positive, a->x, NULL, a->n / 16 * 16, &adamw, NULL,
                                  a->words + 1, s))
LAUNCH_OF(add_f32, tandem_cuda_add(a->z, a->x, a->y, F, a->n, s))
LAUNCH_OF(add_bf16, tandem_cuda_add(a->half_out, a->half, a->x, H, a->n, s))
LAUNCH_OF(relu_bf16, tandem_cuda_activate(a->half_out, a->half, TANDEM_CUDA_RELU, H, a->n, s))
LAUNCH_OF(gelu_f32, tandem_cuda_activate(a->y, a->x, TANDEM_CUDA_GELU, F, a->n, s))
LAUNCH_OF(gelu_bf16, tandem_cuda_activate(a->half_out, a->half, TANDEM_CUDA_GELU, H, a->n, s))
LAUNCH_OF(gelu_back_bf16,
          tandem_cuda_activate_backward(a->half_out, a->half, a->x, TANDEM_CUDA_GELU, H, a->n, s))
LAUNCH_OF(bias_bf16, tandem_cuda_bias(a->half_out, a->half, H, a->of_row, a->n, a->columns, a->columns, s))
LAUNCH_OF(column_sum_f32, tandem_cuda_column_sum(a->of_row, a->x, F, a->rows, a->columns, a->columns,
                                                 a->workspace, a->tickets, s))
LAUNCH_OF(column_sum_bf16, tandem_cuda_column_sum(a->of_row, a->half, H, a->rows, a->columns, a->columns,
                                                  a->workspace, a->tickets, s))
LAUNCH_OF(layernorm, tandem_cuda_layernorm(a->y, a->x, F, a->of_row, a->of_row, a->mean, a->variance, a->rows,
                                           a->columns, 1e-5f, s))
LAUNCH_OF(layernorm_back, tandem_cuda_layernorm_backward(a->z, a->q, a->transposed, a->y, a->x, F, a->of_row,
                                                         a->mean, a->variance, a->rows, a->columns, 1e-5f,
                                                         a->workspace, a->tickets, s))
LAUNCH_OF(softmax, tandem_cuda_softmax(a->y, a->x, F, a->rows, a->columns, 0.125f, 0, s))
LAUNCH_OF(softmax_back,
          tandem_cuda_softmax_backward(a->z, a->x, a->positive, F, a->rows, a->columns, 0.125f, s))
LAUNCH_OF(loss_back, tandem_cuda_cross_entropy_backward(a->half_out, a->half, H, a->positive, a->label,
                                                        a->rows, a->columns, a->columns, 1, NULL, 0.1f, s))
LAUNCH_OF(noise, tandem_cuda_noise(a->y, a->n / IMAGE_ELEMENTS, IMAGE_ELEMENTS, 1, 0, 1, a->words + 2, s))
LAUNCH_OF(embedding,
          tandem_cuda_embedding(a->y, a->x, F, a->label, a->rows, a->rows, a->columns, a->words + 2, s))
LAUNCH_OF(embedding_back,
          tandem_cuda_embedding_gradient(a->y, a->label, a->x, F, a->rows, a->rows, a->columns, 0, s))

LAUNCH_OF(layernorm_bf16, tandem_cuda_layernorm(a->half_out, a->half, H, a->of_row, a->of_row, a->mean,
                                                a->variance, a->rows, a->columns, 1e-5f, s))
LAUNCH_OF(layernorm_back_bf16, tandem_cuda_layernorm_backward(a->half_out, a->q, a->transposed, a->half, a->x,
                                                              H, a->of_row, a->mean, a->variance, a->rows,
                                                              a->columns, 1e-5f, a->workspace, a->tickets, s))
LAUNCH_OF(softmax_bf16, tandem_cuda_softmax(a->half_out, a->half, H, a->rows, a->columns, 0.125f, 0, s))
LAUNCH_OF(softmax_back_bf16,
          tandem_cuda_softmax_backward(a->half_out, a->half, a->positive, H, a->rows, a->columns, 0.125f, s))

/* Two numbers of each row, of which there are fewer than elements. */
static int loss(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_cross_entropy_out out = {.loss = a->of_row, .saved = a->y};
    return tandem_cuda_cross_entropy(&out, a->half, H, a->label, a->rows, a->columns, a->columns, 1, 0.1f,
                                     a->words + 2, a->workspace, s);
}
static int bench_dropout_bf16(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_dropout mask = {.seed = 1, .threshold = 65536 / 10, .scale = 1 / 0.9f};
    return tandem_cuda_dropout(a->half_out, a->half, H, a->n, &mask, NULL, s);
}
static int bench_batchnorm(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_batchnorm norm = bench_batchnorm_call(a);
    return tandem_cuda_batchnorm_forward(a->half_out, a->half, H, &norm, a->mean, a->variance, a->workspace,
                                         a->tickets, s);
}
static int bench_batchnorm_backward(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_batchnorm norm = bench_batchnorm_call(a);
    return tandem_cuda_batchnorm_backward(a->half_out, a->y, a->z, a->half, a->x, H, &norm, a->mean,
                                          a->variance, a->workspace, a->tickets, s);
}
static int bench_heads_bf16(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_permutation p = heads_permutation(a);
    return tandem_cuda_transpose(a->half_out, a->half, H, &p, s);
}
static int bench_transpose_bf16(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_permutation p = transpose_permutation(a);
    return tandem_cuda_transpose(a->half_out, a->half, H, &p, s);
}
/* y holds the columns of a quarter of the images */
static int bench_im2col(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_pool window = bench_window(a, 4, 3, 1, 1);
    return tandem_cuda_im2col(a->y, a->q, 1, &window, s);
}
static int bench_col2im(const gpu_arrays *a, tandem_cuda_stream s) /* x, of a sixteenth, in s32 */
{
    const tandem_cuda_pool window = bench_window(a, 16, 3, 1, 1);
    return tandem_cuda_col2im_s32(a->positive, F, a->x, (size_t)9 * CHANNELS, &window, a->of_row,
                                  a->of_row + 1, s);
}
static int bench_maxpool(const gpu_arrays *a, tandem_cuda_stream s)
{
    const tandem_cuda_pool window = bench_window(a, 1, 3, 2, 1);
    return tandem_cuda_maxpool(a->half_out, a->transposed, a->half, H, &window, s);
}

/* Bytes an element of n: what is read and written, the small arrays left out. */
const gpu_kernel gpu_kernels[] = {
    {"amax f32", 4, amax_f32, 0},
    {"amax bf16", 2, amax_bf16, 0},
    {"quantise f32", 5, quantise_f32, 0},
    {"quantise bf16", 3, quantise_bf16, 0},
    {"quantise f32, delayed", 5, delayed_f32, 0},
    {"quantise bf16, delayed", 3, delayed_bf16, 0},
    {"quantise both orders f32 s8", 6, both_s8_f32, 0},
    {"quantise both orders bf16 s8", 4, both_s8_bf16, 0},
    {"quantise both orders f32 e4m3", 6, both_e4m3_f32, 0},
    {"quantise both orders bf16 e4m3", 4, both_e4m3_bf16, 0},
    {"quantise both orders bf16, delayed", 4, both_delayed_bf16, 0},
    {"quantise rows f32 s8", 5, rows_s8_f32, 0},
    {"quantise rows bf16 s8", 3, rows_s8_bf16, 0},
    {"quantise rows bf16 e4m3", 3, rows_e4m3_bf16, 0},
    {"dequantise rows to bf16", 3, dequantise_rows, 0},
    {"dequantise to f32", 5, dequantise_f32, 0},
    {"dequantise to bf16", 3, dequantise_bf16, 0},
    {"f32 to bf16", 6, narrow, 0},
    {"bf16 to f32", 6, widen, 0},
    {"scale s32 to f32", 8, scale_f32, 0},
    {"scale s32 to bf16", 6, scale_bf16, 0},
    {"scale rows of s32 to bf16", 6, scale_rows_bf16, 0},
    {"transpose s8", 2, bench_transpose_s8, 0},
    {"transpose bf16", 4, bench_transpose_bf16, 0},
    {"heads first bf16", 4, bench_heads_bf16, 0},
    {"sgd", 20, sgd, 0},
    {"adamw", 28, adam, 0},
    {"add f32", 12, add_f32, 0},
    {"add bf16", 6, add_bf16, 0},
    {"relu bf16", 4, relu_bf16, 0},
    {"gelu f32", 8, gelu_f32, 0},
    {"gelu bf16", 4, gelu_bf16, 0},
    {"gelu bf16 backward", 6, gelu_back_bf16, 0},
    {"dropout bf16", 4, bench_dropout_bf16, 0},
    {"bias bf16", 4, bias_bf16, 0},
    {"column sum f32", 4, column_sum_f32, 0},
    {"column sum bf16", 2, column_sum_bf16, 0},
    {"layernorm", 8, layernorm, 0},
    {"layernorm backward", 20, layernorm_back, 0},
    {"batchnorm bf16", 6, bench_batchnorm, 0},
    {"batchnorm bf16 backward", 10, bench_batchnorm_backward, 0},
    {"softmax", 8, softmax, 0},
    {"softmax backward", 12, softmax_back, 0},
    {"layernorm bf16, 128 columns", 4, layernorm_bf16, 128},
    {"layernorm bf16, 197 columns", 4, layernorm_bf16, 197},
    {"layernorm bf16, 1024 columns", 4, layernorm_bf16, 1024},
    {"layernorm backward, 128 columns", 6, layernorm_back_bf16, 128},
    {"layernorm backward, 197 columns", 6, layernorm_back_bf16, 197},
    {"layernorm backward, 1024 columns", 6, layernorm_back_bf16, 1024},
    {"softmax bf16, 128 columns", 4, softmax_bf16, 128},
    {"softmax bf16, 197 columns", 4, softmax_bf16, 197},
    {"softmax bf16, 1024 columns", 4, softmax_bf16, 1024},
    {"softmax backward, 128 columns", 6, softmax_back_bf16, 128},
    {"softmax backward, 197 columns", 6, softmax_back_bf16, 197},
    {"softmax backward, 1024 columns", 6, softmax_back_bf16, 1024},
    {"cross entropy bf16", 2, loss, 0},
    {"cross entropy bf16, 50257 columns", 2, loss, 50257},
    {"cross entropy backward", 4, loss_back, 0},
    {"cross entropy backward, 50257", 4, loss_back, 50257},
    {"noise", 4, noise, 0},
    {"embedding", 8, embedding, 0},
    {"embedding gradient", 8, embedding_back, 0},
    {"im2col s8", 10.0 / 4, bench_im2col, 0},
    {"col2im s32", 40.0 / 16, bench_col2im, 0},
    {"maxpool bf16", 2 + 3.0 / 4, bench_maxpool, 0},
};
const int n_gpu_kernel = sizeof gpu_kernels / sizeof *gpu_kernels;

const gpu_kernel *gpu_kernel_find(const char *name)
{
    for (int k = 0; k < n_gpu_kernel; k++)
        if (strcmp(gpu_kernels[k].name, name) == 0) return &gpu_kernels[k];
    return NULL;
}
