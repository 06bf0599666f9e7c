/* isa_kernels.h: the kernels that are tandem's own, one table of functions for each instruction set.
 *
 * Every file in backend/cpu/isa/ is compiled once for each of sse41, avx, avx2, avx2_vnni, avx512,
 * avx512_vnni; each has a row of tandem_isa_kernels, and avx512_bf16 one of its own in the last. A device
 * `cpu:X` calls only the table of X, so that a device held to an older instruction set really is one.
 * Arithmetic is the same IEEE operations in the same order in every table (no contraction, no reassociation
 * that depends on the vector width, unless the line says so), so that the *bits* agree across tables, and
 * later with the CUDA kernels.
 *
 * Rows are contiguous; n counts elements; pointers need no alignment. None of these allocates or fails. */
#ifndef TANDEM_BACKEND_CPU_ISA_KERNELS_H
#define TANDEM_BACKEND_CPU_ISA_KERNELS_H

#include "tandem/kernels.h"

/* Which numbers a dropout drops. */
typedef struct tandem_dropout {
    uint64_t seed, first; /* first: place of x[0] in the stream */
    uint32_t stream[3], threshold;
    float scale;
} tandem_dropout;

/* A batchnorm of a matrix (rows, channels): y = scale·(x − mean)/√(variance + epsilon) + shift by columns,
 * and max(y, 0) of it where it rectifies, which one of a sum with a residual always does: max(y + residual,
 * 0). */
typedef struct tandem_batchnorm {
    size_t rows, channels;
    int has_relu;
    float epsilon;
    const float *scale, *shift; /* (channels) */
    /* (channels), of all rows: written by the forward pass, read by the backward pass */
    float *mean, *variance;
    float *workspace; /* (7, channels) */
} tandem_batchnorm;

/* What the backward pass of a batchnorm writes: x in the type of the gradient that it reads and no residual,
 * where there is none. */
typedef struct tandem_batchnorm_gradients {
    void *x, *residual;              /* (rows, channels) */
    int x_is_bf16, residual_is_bf16; /* else f32 */
    float *scale, *shift;            /* (channels) */
} tandem_batchnorm_gradients;

/* A convolution of 3x3 windows, stride 1, with a frame of one zero: images are (n, height, width, channels),
 * weights (3, 3, from, to) in the forward pass. */
typedef struct tandem_winograd {
    int64_t n, height, width;
    int64_t from, to; /* channels of x, and of y (wgrad: of w): multiples of 32 */
    /* dgrad: x is the gradient of the result; w, stored (3, 3, to, from), is turned by 180 degrees */
    int is_dgrad;
    int is_wgrad;           /* w is the gradient of the result, y that of the weight */
    int from_bf16, to_bf16; /* x and w, y; else f32. A weight's gradient is f32 */
    const void *x, *w;
    void *y;
    float *workspace;
} tandem_winograd;

/* The gradient of a convolution's weight: y (kernel_h·kernel_w·from, to), f32, of images (n, height, width,
 * from) and the gradient of the result (n, out_height, out_width, to). */
typedef struct tandem_weight_gradient {
    int64_t n, height, width, out_height, out_width;
    int64_t from, to; /* channels: multiples of 32 */
    int64_t kernel_h, kernel_w, stride, pad;
    int is_bf16; /* x and gradient; else f32 */
    const void *x, *gradient;
    float *y, *workspace;
} tandem_weight_gradient;

typedef struct tandem_isa_kernels {
    const char *isa;
    int has_int8_dot; /* int8 dot products (VNNI): oneDNN's int8 products are exact there */

    /* largest |x[i]|; 0 for n = 0; NaN anywhere gives NaN, so that it is seen. */
    float (*amax_f32)(const float *x, size_t n);
    float (*amax_bf16)(const uint16_t *x, size_t n);

    /* q[i] = clamp(floor(x[i]·inv_scale + u_i), −127, 127), u_i = (r_i + ½)/65536 with r_i the 16-bit draw of
     * element i: unbiased within 2^−17 of a quantisation step. inv_scale = 127/amax (0 where amax is 0).
     * A NaN becomes −127: the scale carries the NaN. Element 0 is the first of a row (kernels.h); n ≤ 2^35,
     * since the block counter has 32 bits. */
    void (*quantise_f32)(int8_t *q, const float *x, size_t n, float inv_scale,
                         const tandem_rounding *rounding);
    void (*quantise_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                          const tandem_rounding *rounding);
    /* To nearest, ties to even; else the same. */
    void (*quantise_nearest_f32)(int8_t *q, const float *x, size_t n, float inv_scale);
    void (*quantise_nearest_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale);
    /* The same with a range that is not x's own; they return the amax of x, as amax_f32 would, found in the
     * same pass. */
    float (*quantise_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale,
                               const tandem_rounding *rounding);
    float (*quantise_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                                const tandem_rounding *rounding);
    float (*quantise_nearest_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale);
    float (*quantise_nearest_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale);
    /* to (columns, rows) = from (rows, columns), transposed; rows of each lie to_row, from_row apart. */
    void (*transpose_s8)(int8_t *to, int64_t to_row, const int8_t *from, int64_t from_row, int64_t rows,
                         int64_t columns);
    void (*dequantise_f32)(float *x, const int8_t *q, size_t n, float scale);
    void (*dequantise_bf16)(uint16_t *x, const int8_t *q, size_t n, float scale);

    /* bf16 is the upper half of a float; rounded to nearest even, NaN stays NaN. */
    void (*bf16_from_f32)(uint16_t *y, const float *x, size_t n);
    void (*f32_from_bf16)(float *y, const uint16_t *x, size_t n);

    /* int8 product (kernels.h), exact; its workspace: bytes. */
    void (*gemm_s8)(const tandem_product_s8 *product);
    size_t (*gemm_s8_workspace)(int64_t m, int64_t n, int64_t k);

    /* Sums of such products: y = a + b (y may be a or b), and scaled. */
    void (*add_s32)(int32_t *y, const int32_t *a, const int32_t *b, size_t n);
    void (*f32_from_s32)(float *x, const int32_t *sum, size_t n, float scale);
    void (*bf16_from_s32)(uint16_t *x, const int32_t *sum, size_t n, float scale);

    /* By Winograd's algorithm, in f32; NULL where there is no AVX-512. Its workspace: bytes. */
    void (*winograd)(const tandem_winograd *convolution);
    size_t (*winograd_workspace)(const tandem_winograd *convolution);

    /* NULL where there is no AVX-512; is_bf16 on avx512_bf16 only. */
    void (*weight_gradient)(const tandem_weight_gradient *convolution);
    size_t (*weight_gradient_workspace)(const tandem_weight_gradient *convolution);

    /* image (h, w, c) channels last → columns (out_h·out_w, kernel·kernel·c), zero where the window leaves
     * the image. */
    void (*im2col_s8)(int8_t *columns, const int8_t *image, int64_t h, int64_t w, int64_t c, int64_t kernel,
                      int64_t stride, int64_t pad);

    /* y = a + b, elementwise; y may be a or b. */
    void (*add_f32)(float *y, const float *a, const float *b, size_t n);
    void (*add_bf16)(uint16_t *y, const uint16_t *a, const uint16_t *b, size_t n);
    /* y = y + x, added in f32 and rounded once. */
    void (*add_f32_to_bf16)(uint16_t *y, const float *x, size_t n);

    /* y[i] = x[i] + bias[i % period]; n is a multiple of period; bias is float always. y may be x. */
    void (*bias_f32)(float *y, const float *x, const float *bias, size_t n, size_t period);
    void (*bias_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period);
    /* sum[j] = Σ_r g[r·period + j], rows added in ascending order (gradient of a bias). */
    void (*column_sum_f32)(float *sum, const float *g, size_t n, size_t period);
    void (*column_sum_bf16)(float *sum, const uint16_t *g, size_t n, size_t period);

    /* y = x < 0 ? 0 : x: NaN and −0 pass through; the gradient at a NaN is 0 */
    void (*relu_f32)(float *y, const float *x, size_t n);
    void (*relu_bf16)(uint16_t *y, const uint16_t *x, size_t n);
    /* gx = y > 0 ? gy : 0 */
    void (*relu_backward_f32)(float *gx, const float *gy, const float *y, size_t n);
    void (*relu_backward_bf16)(uint16_t *gx, const uint16_t *gy, const uint16_t *y, size_t n);

    /* y[i] = r(first + i) < threshold ? 0 : scale·x[i]; r(e) is the lower (e even) or upper half of word e /
     * 2 % 4 of the Philox block whose counter is {e / 8, stream[0], stream[1], stream[2] | (upper half of e /
     * 8) << 8}. bf16 is multiplied as f32 and rounded. y may be x. */
    void (*dropout_f32)(float *y, const float *x, size_t n, const tandem_dropout *mask);
    void (*dropout_bf16)(uint16_t *y, const uint16_t *x, size_t n, const tandem_dropout *mask);
    /* x[i] = 2·u − 1, u the float in [0, 1) of word i % 4 (tandem_philox_uniform) of the Philox block {i / 4,
     * stream…}. */
    void (*noise_f32)(float *x, size_t n, uint64_t seed, const uint32_t stream[3]);
    /* Forward: y may not be x. Backward: g is the gradient of y, x what the forward pass read. All sums are
     * in f32. */
    void (*batchnorm_f32)(const tandem_batchnorm *norm, float *y, const float *x);
    void (*batchnorm_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x);
    void (*batchnorm_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                   const float *g, const float *x);
    void (*batchnorm_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                    const uint16_t *g, const uint16_t *x);
    /* The same with a residual, of x's shape and type. Backward: g passes where y, the result, is above 0,
     * and that is the residual's gradient; both gradients may be of the other type, each of its own. */
    void (*batchnorm_add_f32)(const tandem_batchnorm *norm, float *y, const float *x, const float *residual);
    void (*batchnorm_add_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x,
                               const uint16_t *residual);
    void (*batchnorm_add_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                       const float *g, const float *x, const float *y);
    void (*batchnorm_add_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                        const uint16_t *g, const uint16_t *x, const uint16_t *y);

    /* gelu in its tanh form; y may be x, gx may be g. */
    void (*gelu_f32)(float *y, const float *x, size_t n);
    void (*gelu_backward_f32)(float *gx, const float *g, const float *x, size_t n);
    /* y[i] = gelu(x[i] + bias[i % period]), and its gradients: of x, and of the bias, rows added in ascending
     * order. n is a multiple of period; bias is float always. y may be x, gx may be g. */
    void (*bias_gelu_f32)(float *y, const float *x, const float *bias, size_t n, size_t period);
    void (*bias_gelu_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period);
    void (*bias_gelu_backward_f32)(float *gx, float *gbias, const float *g, const float *x, const float *bias,
                                   size_t n, size_t period);
    void (*bias_gelu_backward_bf16)(uint16_t *gx, float *gbias, const uint16_t *g, const uint16_t *x,
                                    const float *bias, size_t n, size_t period);

    /* y = softmax(scale·x) of the first `seen` of n numbers, 0 < seen, 0 < scale; the others are 0. Returns Σ
     * e^(scale·x − *top), *top being the largest scale·x. y may be x. Backward: gx = scale·y·(g − Σ g·y); gx
     * may be g. */
    float (*softmax_f32)(float *y, const float *x, size_t n, size_t n_unmasked, float scale, float *top);
    void (*softmax_backward_f32)(float *gx, const float *g, const float *y, size_t n, float scale);
    /* y = (x − other)·weight: the gradient of a loss, but at the label. */
    void (*scale_difference_f32)(float *y, const float *x, size_t n, float other, float weight);

    /* Optimizers return whether all of g is finite; they apply it in either case.
     * SGD with momentum:  v = (momentum·v + g) + decay·w;  w −= rate·v. */
    int (*sgd)(float *w, float *v, const float *g, size_t n, float rate, float momentum, float decay);
    /* AdamW:  m = beta1·m + (1 − beta1)·g,  v = beta2·v + ((1 − beta2)·g)·g;  correction1 = 1/(1−beta1^t),
     *         correction2 = 1/(1−beta2^t);
     * w −= rate·( m·correction1 / (sqrt(v·correction2) + epsilon) + decay·w ).
     * Source: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019. */
    int (*adamw)(float *w, float *m, float *v, const float *g, size_t n, float rate, float beta1, float beta2,
                 float epsilon, float decay, float correction1, float correction2);
} tandem_isa_kernels;

/* The table of an instruction set by its name ("sse41", "avx", "avx2", "avx2_vnni", "avx512", "avx512_vnni",
 * "avx512_bf16"); NULL where there is none. Does not ask whether this machine can run it. */
const tandem_isa_kernels *tandem_isa_kernels_find(const char *isa);

#endif
