/* kernels.h: quantised kernels for programs with their own tensors. They take plain pointers, sizes and
 * strides, and no graph.
 *
 * libtandem_kernels.so needs only libc and libm. It holds every kernel once per instruction set. A program
 * opens one instruction set by name, or several at once. All of them give the same bits.
 *
 * No call allocates memory, starts a thread or keeps state. A product needs a workspace, which the caller
 * provides. Any number of threads may use one tandem_kernels at a time, each with its own outputs and
 * workspace. A call runs on the calling thread.
 *
 * A matrix is (rows, columns), with element (i, j) at x[i·x_row + j]. x_row counts elements and is at least
 * `columns`; 0 means `columns`. A vector is a matrix with one row. A matrix may be empty. A pointer needs
 * only the alignment of its type. Outputs must not overlap inputs, unless a comment allows it.
 *
 * Errors: a bad argument gives TANDEM_USAGE with the argument's name, and outputs stay unchanged. An int8
 * number q represents scale·q. */
#ifndef TANDEM_KERNELS_H
#define TANDEM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/amax_history.h"
#include "tandem/dtype.h"
#include "tandem/status.h"

TANDEM_BEGIN_DECLARATIONS

/* --- The kernels of an instruction set ------------------------------------------------------------------ */

typedef struct tandem_isa_kernels tandem_kernels; /* constant; nothing to close */

/* tandem_kernels_open: `isa` is "sse41", "avx", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16",
 * "avx512_amx", or "best", the last of them that this machine has. avx512_amx multiplies int8 in AMX's tiles,
 * for which it asks Linux once. TANDEM_UNKNOWN_NAME: there is no such name. TANDEM_NO_DEVICE: this machine
 * lacks the instruction set. */
tandem_status tandem_kernels_open(const tandem_kernels **kernels, const char *isa, tandem_error *error);
const char *tandem_kernels_isa(const tandem_kernels *kernels); /* its name */

/* --- To int8 -------------------------------------------------------------------------------------------- */

/* The random numbers of stochastic rounding: Philox4x32-10 with key = seed and counter {block, stream[0..2]}.
 * Element (i, j) takes half-word j % 8 of block  block + i·⌈columns/8⌉ + j/8: bits 16·(j%2) … of word
 * (j%8)/2. The memory layout of the rows does not matter. A tensor may be rounded in several calls if `block`
 * says where the rows of each call begin. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011. */
typedef struct tandem_rounding {
    uint64_t seed;
    uint32_t stream[3];
    uint32_t block; /* of the first row */
} tandem_rounding;

typedef enum tandem_scale_mode {
    TANDEM_SCALE_TENSOR, /* one scale, from the largest magnitude in x: x is read twice */
    TANDEM_SCALE_ROW,    /* a scale for each row, from its own largest magnitude */
    TANDEM_SCALE_KNOWN   /* one scale, from `range`: x is read once; larger magnitudes become ±127 */
} tandem_scale_mode;

/* scale = range/127, where range is the largest magnitude (or the known one);
 *     stochastic   q = clamp(floor(x/scale + u), −127, 127), u = (draw + ½)/65536: unbiased within 2^−17
 *     nearest      q = clamp(x/scale to nearest, ties to even, −127, 127)
 * x/scale is computed as x·(127/range). If a row (or tensor) is 0, or so small that 127/range is not finite,
 * its scale and its q are 0. */
typedef struct tandem_quantise_call {
    const void *x;     /* (rows, columns) */
    tandem_dtype from; /* TANDEM_F32 or TANDEM_BF16 */
    int64_t rows, columns, x_row;
    int8_t *q; /* (rows, columns) */
    int64_t q_row;
    int8_t *transposed; /* (columns, rows), the same numbers, made in the same pass; NULL = not wanted */
    int64_t transposed_row;
    tandem_scale_mode scale_mode;
    float range;                     /* TANDEM_SCALE_KNOWN: at least 0 and finite */
    const tandem_rounding *rounding; /* NULL = to nearest */
    float *scale;                    /* result: one, or one for each row */
    float *amax; /* result: the largest magnitude in x, NaN if x has one; NULL = not wanted */
} tandem_quantise_call;

/* tandem_kernels_quantise: TANDEM_LIMIT_EXCEEDED: a scale would come from a NaN or an infinity; q is then
 * undefined (with TANDEM_SCALE_TENSOR unchanged). With a known range a NaN becomes −127 and an infinity ±127;
 * *amax shows it. With rounding, rows·⌈columns/8⌉ + block ≤ 2^32. */
tandem_status tandem_kernels_quantise(const tandem_kernels *kernels, const tandem_quantise_call *call,
                                      tandem_error *error);

/* tandem_kernels_amax: the largest magnitude; 0 if x is empty; NaN if x has one. */
tandem_status tandem_kernels_amax(const tandem_kernels *kernels, float *amax, const void *x,
                                  tandem_dtype from, int64_t rows, int64_t columns, int64_t x_row,
                                  tandem_error *error);

/* tandem_kernels_column_sums: sums[j] = Σ_i x[i][j] in f32, rows added in ascending order: a bias's gradient.
 * x is (rows, columns), f32, without gaps; `sums` has `columns` elements, which are 0 if there are no rows.
 * Reads x once. */
tandem_status tandem_kernels_column_sums(const tandem_kernels *kernels, float *sums, const float *x,
                                         int64_t rows, int64_t columns, tandem_error *error);

/* --- From int8, and between floats ---------------------------------------------------------------------- */

/* x[i][j] = scale·q[i][j], as f32 or bf16 (to nearest, ties to even). There is one scale, or one per row with
 * TANDEM_SCALE_ROW. */
typedef struct tandem_dequantise_call {
    const int8_t *q;
    int64_t rows, columns, q_row;
    void *x;
    tandem_dtype to; /* TANDEM_F32 or TANDEM_BF16 */
    int64_t x_row;
    tandem_scale_mode scale_mode;
    const float *scale;
} tandem_dequantise_call;
tandem_status tandem_kernels_dequantise(const tandem_kernels *kernels, const tandem_dequantise_call *call,
                                        tandem_error *error);

/* f32 to bf16 (to nearest, ties to even; a NaN stays a NaN), or bf16 to f32. */
typedef struct tandem_cast_call {
    const void *x;
    tandem_dtype from;
    int64_t rows, columns, x_row;
    void *y;
    tandem_dtype to;
    int64_t y_row;
} tandem_cast_call;
tandem_status tandem_kernels_cast(const tandem_kernels *kernels, const tandem_cast_call *call,
                                  tandem_error *error);

/* --- The int8 product ----------------------------------------------------------------------------------- */

/* C = A·B. The sums are exact in int32 for any int8 operands, since k ≤ TANDEM_PRODUCT_MAX_K (128²·2^16 <
 * 2^31; within ±127, k ≤ 2^17). Then
 *     c[i][j] = sum·(scale·row_scale[i])·column_scale[j] + bias[j]
 * in f32 and in this order, without the terms that are NULL. C is f32 or bf16 (to nearest); s32 is the sum
 * itself. With `accumulate` the result is added to C in f32.
 * Operands may have any strides, so the three products of a linear layer y (m, n) = x (m, k)·Wᵀ, W (n, k),
 * need no copy:
 *     forward  y  = x·Wᵀ   a = x, a_row k, a_column 1;   b = W, b_row 1, b_column k
 *     dgrad    gx = g·W    a = g, a_row n, a_column 1;   b = W, b_row k, b_column 1
 *     wgrad    gW = gᵀ·x   a = g, a_row 1, a_column n;   b = x, b_row k, b_column 1 */
enum { TANDEM_PRODUCT_MAX_K = 1 << 17 };
typedef struct tandem_product_s8 {
    int64_t m, n, k;
    const int8_t *a; /* (m, k), element (i, l) at a[i·a_row + l·a_column] */
    int64_t a_row, a_column;
    const int8_t *b; /* (k, n), element (l, j) at b[l·b_row + j·b_column] */
    int64_t b_row, b_column;
    void *c; /* (m, n), row-major, rows c_row ≥ n elements apart */
    int64_t c_row;
    tandem_dtype c_type;       /* TANDEM_F32, TANDEM_BF16 or TANDEM_S32 */
    float scale;               /* scale of a times scale of b */
    const float *row_scale;    /* m of them, or NULL */
    const float *column_scale; /* n of them, or NULL */
    const float *bias;         /* n of them, or NULL */
    void *workspace;           /* 64-byte aligned */
    int accumulate;            /* 1: C += A·B; f32 and bf16 */
} tandem_product_s8;

/* Bytes of the workspace. It grows with k up to a few MiB, not with m·n. 0: an argument is not allowed. */
size_t tandem_kernels_product_workspace(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k);
/* Strides are at least 0. One stride of a and one of b should be 1; otherwise packing is slow. */
tandem_status tandem_kernels_product(const tandem_kernels *kernels, const tandem_product_s8 *product,
                                     size_t workspace_bytes, tandem_error *error);
/* tandem_kernels_products: `batch` products of the same sizes. `first` is one of packed operands: the next A
 * is m·k elements after the first, the next B k·n, and the next C m·c_row. They share the workspace. */
tandem_status tandem_kernels_products(const tandem_kernels *kernels, const tandem_product_s8 *first,
                                      int64_t batch, size_t workspace_bytes, tandem_error *error);

/* --- The bf16 product ----------------------------------------------------------------------------------- */

/* C = A·B + bias in f32, of bf16 operands in any strides, as above. Sums are in f32, in an order that depends
 * on the sizes alone; denormals count as zero. Needs dot products of bf16. */
typedef struct tandem_product_bf16 {
    int64_t m, n, k;
    const uint16_t *a; /* (m, k), element (i, l) at a[i·a_row + l·a_column] */
    int64_t a_row, a_column;
    const uint16_t *b; /* (k, n), element (l, j) at b[l·b_row + j·b_column] */
    int64_t b_row, b_column;
    float *c; /* (m, n), row-major, rows c_row ≥ n elements apart */
    int64_t c_row;
    const float *bias; /* n of them, or NULL */
    void *workspace;   /* 64-byte aligned */
    int accumulate;    /* 1: C += A·B + bias */
} tandem_product_bf16;

/* Bytes of the workspace, below 2 MiB. 0: the instruction set has no dot products of bf16, an argument is not
 * allowed, or there is nothing to multiply. */
size_t tandem_kernels_product_bf16_workspace(const tandem_kernels *kernels, int64_t m, int64_t n, int64_t k);
/* One stride of a and one of b should be 1; otherwise packing is slow. TANDEM_NO_KERNEL: an instruction set
 * before avx512_bf16. */
tandem_status tandem_kernels_product_bf16(const tandem_kernels *kernels, const tandem_product_bf16 *product,
                                          size_t workspace_bytes, tandem_error *error);

/* --- Windows of images ---------------------------------------------------------------------------------- */

/* Copies every window of int8 images to a row, so that a product of the rows is a convolution: row
 * (image·out_height + i)·out_width + j of `columns`, (rows, kernel·kernel·channels), holds the pixels
 * (i·stride − pad + a, j·stride − pad + b) in the order of a, b and channels, and 0 for those outside the
 * image. Out_height is (height + 2·pad − kernel) / stride + 1, rounded down; out_width likewise. */
typedef struct tandem_windows_call {
    const int8_t *x; /* (images, height, width, channels), without gaps */
    int64_t images, height, width, channels;
    /* 1 ≤ kernel ≤ height + 2·pad, width + 2·pad; 1 ≤ stride; 0 ≤ pad < kernel */
    int64_t kernel, stride, pad;
    int8_t *columns;
} tandem_windows_call;
tandem_status tandem_kernels_windows(const tandem_kernels *kernels, const tandem_windows_call *call,
                                     tandem_error *error);

/* --- Passes of a layer ---------------------------------------------------------------------------------- */

/* A call runs a forward or a backward pass of a layer whose operands are f32. It rounds them to int8 at
 * random, each with one scale (TANDEM_SCALE_TENSOR, one row for the draws), or to bf16, to nearest; it
 * multiplies, adds the bias or sums its gradient. The results are those of the functions above, called one
 * after the other. */

typedef struct tandem_layer_operand {
    const float *x; /* `elements` numbers to be rounded, in the order of q; NULL: q and scale are given */
    union {         /* result, or given */
        int8_t *q;
        uint16_t *half; /* in bf16, which has no scale */
    };
    int64_t elements;
    int64_t row, column, step[2]; /* where an element is in q; not read for convolutions */
    uint32_t stream;              /* stream[2] of its random numbers */
    float scale;                  /* result, or given */
} tandem_layer_operand;

/* C = A·B + bias for each of batch[0]·batch[1] products. Element (i, j) of an operand of product (s, t) is
 * q[s·step[0] + t·step[1] + i·row + j·column]. Results are f32 without gaps, in the order s, t, i, j. Those
 * that are NULL are not computed. A backward pass takes the copies that its forward pass made. Any k is fine:
 * in int8, sums of more than TANDEM_PRODUCT_MAX_K products are cut, and their parts added in f32. */
typedef struct tandem_linear_pass {
    tandem_dtype to; /* TANDEM_S8, or TANDEM_BF16 where there are dot products of bf16 */
    int64_t m, n, k, batch[2];
    tandem_layer_operand a, b, g; /* (m, k), (k, n), and the gradient of C: (m, n) */
    float *c;                     /* (m, n) */
    const float *bias;            /* n of them, or NULL */
    float *ga, *gb;               /* g·Bᵀ, (m, k), and Aᵀ·g, (k, n) */
    float *g_bias;                /* the sums of g's rows: g.x is then given, in the order s, t, i, j */
    uint64_t seed;
    uint32_t stream[2]; /* of all random numbers */
    int gb_transposed;  /* 1: gb is (n, k) */
    void *workspace;    /* 64-byte aligned */
    size_t workspace_bytes;
} tandem_linear_pass;

/* Bytes of the workspace: some MiB at most. 0: a size or type is not allowed. */
size_t tandem_kernels_linear_workspace(const tandem_kernels *kernels, tandem_dtype to, int64_t m, int64_t n,
                                       int64_t k);
/* Scales are written to `pass`. Errors are those of the functions above; after one, results are undefined. */
tandem_status tandem_kernels_linear(const tandem_kernels *kernels, tandem_linear_pass *pass,
                                    tandem_error *error);

/* Y = X * W + bias: a convolution with square windows. All tensors are without gaps. Kernel, stride, pad, and
 * the size of y as in tandem_windows_call; a window fits. A gradient of x whose windows overlap is summed in
 * int32, exactly: kernel²·out ≤ TANDEM_PRODUCT_MAX_K then. */
typedef struct tandem_conv2d_s8 {
    int64_t images, height, width, channels, out; /* out: channels of y */
    int64_t kernel, stride, pad;
    tandem_layer_operand x, w,
        g;             /* (images, height, width, channels), (out, kernel, kernel, channels), as y */
    float *y;          /* (images, out_height, out_width, out) */
    const float *bias; /* `out` of them, or NULL */
    float *gx, *gw;    /* gradients, as x and w */
    float *g_bias;     /* the sums of g.x over all but the last dimension */
    uint64_t seed;
    uint32_t stream[2];
    void *workspace; /* 64-byte aligned */
    size_t workspace_bytes;
} tandem_conv2d_s8;

/* Of all passes of such a convolution; tensors need not be given. The windows of some images lie there, up to
 * some MiB, or those of one image where they are more. 0: a size is not allowed. */
size_t tandem_kernels_conv2d_s8_workspace(const tandem_kernels *kernels, const tandem_conv2d_s8 *shape);
tandem_status tandem_kernels_conv2d_s8(const tandem_kernels *kernels, tandem_conv2d_s8 *pass,
                                       tandem_error *error);

/* --- Convolutions of 3x3 in floats ---------------------------------------------------------------------- */

/* Y = X * W with 3x3 windows, stride 1 and a border of 1, or its gradients, by Winograd's algorithm F(4x4,
 * 3x3) in f32: a quarter of the multiplications. Needs AVX-512. Rounding errors are a few times those of a
 * plain f32 sum. Source: Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. All
 * tensors are without gaps. */
typedef struct tandem_conv3x3 {
    int64_t images, height, width; /* at least 1, 4 and 4 */
    int64_t channels, out;         /* of x, and of y: multiples of 32 */
    tandem_dtype from;             /* of x, w and g: TANDEM_F32 or TANDEM_BF16 */
    const void *x, *w, *g;         /* (images, height, width, channels), (out, 3, 3, channels), and the
                                      gradient of y; those that no result needs may be NULL */
    float *y;                      /* (images, height, width, out); results that are NULL are not computed */
    float *gx, *gw;                /* gradients, as x and w */
    void *workspace;               /* 64-byte aligned */
} tandem_conv3x3;

/* Bytes of the workspace, of all passes of such a convolution; tensors need not be given. It grows with the
 * weight, and with images where the weight is large beside them: 36/9 floats for each number. 0: the
 * instruction set has no such kernel, or a size is not allowed. */
size_t tandem_kernels_conv3x3_workspace(const tandem_kernels *kernels, const tandem_conv3x3 *shape);
/* TANDEM_NO_KERNEL: an instruction set before AVX-512. */
tandem_status tandem_kernels_conv3x3(const tandem_kernels *kernels, const tandem_conv3x3 *pass,
                                     size_t workspace_bytes, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
