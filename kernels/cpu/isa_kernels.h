/* isa_kernels.h: tandem's own CPU kernels, one table of functions per instruction set.
 *
 * Every file in kernels/cpu/isa/ is compiled once for each of sse41, avx, avx2, avx2_vnni, avx512 and
 * avx512_vnni. Each compilation has a row of tandem_isa_kernels; the last has others for avx512_bf16 and
 * avx512_amx. A device `cpu:X` calls only the table of X, so a device limited to an older instruction set
 * really uses only that one. Every table does the same IEEE operations in the same order, without contraction
 * or reassociation, unless a comment says otherwise. So the bits agree between tables and with the CUDA
 * kernels. */
#pragma once

#include "tandem/kernels.h"

/* The random mask of a dropout. */
typedef struct tandem_dropout {
    uint64_t seed, first; /* first: position of x[0] in the random stream */
    uint32_t stream[3], threshold;
    float scale;
} tandem_dropout;

/* Batch normalisation of a matrix (rows, channels): y = scale·(x − mean)/√(variance + epsilon) + shift per
 * column. With has_relu, max(y, 0). With a residual, max(y + residual, 0). */
typedef struct tandem_batchnorm {
    size_t rows, channels;
    int has_relu;
    float epsilon;
    const float *scale, *shift; /* (channels) */
    /* (channels), over all rows: written by the forward pass, read by the backward pass */
    float *mean, *variance;
    float *workspace; /* batchnorm_workspace bytes */
} tandem_batchnorm;

/* What a batchnorm's backward pass reads: (rows, channels), in bf16 or f32. */
typedef struct tandem_norm_operands {
    const void *g, *x, *y; /* y: the result, where a residual was added; else NULL */
    int is_bf16;
} tandem_norm_operands;

/* The results of a batchnorm's backward pass. Without a residual, x has the type of the gradient that is
 * read. */
typedef struct tandem_batchnorm_gradients {
    void *x, *residual;              /* (rows, channels) */
    int x_is_bf16, residual_is_bf16; /* else f32 */
    float *scale, *shift;            /* (channels) */
} tandem_batchnorm_gradients;

/* A convolution with 3x3 windows, stride 1 and padding 1. Images are (n, height, width, channels), weights
 * (3, 3, from, to) in the forward pass, or with `out_first` (to, 3, 3, from). */
typedef struct tandem_winograd {
    int64_t n, height, width;
    int64_t from, to; /* channels of x, and of y (wgrad: of w): multiples of 32 */
    /* dgrad: x is the gradient of the result; w, stored as (3, 3, to, from), or (from, 3, 3, to), is rotated
     * by 180 degrees */
    int is_dgrad;
    int is_wgrad;           /* w is the gradient of the result, y the gradient of the weight */
    int out_first;          /* order of the weight and its gradient */
    int from_bf16, to_bf16; /* x and w, y; else f32. A weight's gradient is f32 */
    /* some of the channels of y (wgrad: of w), multiples of 32, and no others are written; end 0 = all */
    int64_t to_begin, to_end;
    const void *x, *w;
    void *y;
    float *workspace;
} tandem_winograd;

/* The weight gradient of a convolution: y (kernel_h·kernel_w·from, to) in f32, from images (n, height, width,
 * from) and the gradient of the result (n, out_height, out_width, to). */
typedef struct tandem_weight_gradient {
    int64_t n, height, width, out_height, out_width;
    int64_t from, to; /* channels: multiples of 32 */
    int64_t kernel_h, kernel_w, stride, pad;
    int is_bf16; /* x and gradient; else f32 */
    /* some of the channels of the result, and of x in tiles of bf16, multiples of 32: no others of y are
     * written; end 0 = all */
    int64_t to_begin, to_end, from_begin, from_end;
    const void *x, *gradient;
    float *y, *workspace;
} tandem_weight_gradient;

typedef struct tandem_isa_kernels {
    const char *isa;
    /* whether int8 products are oneDNN's: with VNNI these are exact, with AVX-512 as fast as our own, too
     * (bench/README.md) */
    int uses_onednn_int8;
    int multiplies_bf16; /* whether this row may run gemm_bf16, and weight_gradient of bf16 */
    int has_tiles;       /* of AMX: int8 products are this table's, and bf16 is faster than Winograd in f32 */
#define ISA_KERNEL(result, name, ...) result (*name)(__VA_ARGS__);
#include "kernels/cpu/isa/kernels.def"
} tandem_isa_kernels;

/* The table of an instruction set by its name ("sse41", "avx", "avx2", "avx2_vnni", "avx512", "avx512_vnni",
 * "avx512_bf16", "avx512_amx"), or NULL. It does not check whether this machine can run it. */
const tandem_isa_kernels *tandem_isa_kernels_find(const char *isa);
