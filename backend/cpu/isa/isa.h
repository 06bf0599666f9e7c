/* isa.h: what the files of this folder share.
 *
 * Every .c file here is compiled once for each instruction set, with
 * -DTANDEM_ISA=<sse41|avx|avx2|avx2_vnni|avx512|avx512_vnni> and the compiler flags of that set (no others:
 * nothing here asks the machine what it can do). Each function carries the name of its set, so that the
 * objects link side by side:  ISA(amax_f32)  is  tandem_isa_amax_f32_avx2.
 *
 * "Same bits in each table" rests on three things: -ffp-contract=off, each element computed by the same
 * sequence of IEEE operations whatever the vector width, and sums only where the header fixes their order. */
#ifndef TANDEM_BACKEND_CPU_ISA_ISA_H
#define TANDEM_BACKEND_CPU_ISA_ISA_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/isa_kernels.h"

#ifndef TANDEM_ISA
#error "compile with -DTANDEM_ISA=<sse41|avx|avx2|avx2_vnni|avx512|avx512_vnni>"
#endif

#define ISA_JOIN(base, set) tandem_isa_##base##_##set
#define ISA_EXPAND(base, set) ISA_JOIN(base, set)
#define ISA(base) ISA_EXPAND(base, TANDEM_ISA)

/* The loop below carries nothing from one element to the next; outputs may be the inputs themselves. */
#define ISA_ELEMENTWISE _Pragma("GCC ivdep")

static inline float float_of_bits(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
}

static inline uint32_t bits_of_float(float value)
{
    union {
        float value;
        uint32_t bits;
    } both = {value};
    return both.bits;
}

static inline float float_of_bf16(uint16_t half) { return float_of_bits((uint32_t)half << 16); }

/* To nearest, ties to even. A NaN keeps its sign and upper payload and becomes quiet, so that the cut cannot
 * make it an infinity. The lower half of the word is of no use. */
static inline uint32_t bf16_in_upper(float value)
{
    const uint32_t bits = bits_of_float(value);
    const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    const uint32_t quiet = bits | 0x00400000u;
    return value != value ? quiet : rounded;
}

static inline uint16_t bf16_of_float(float value) { return (uint16_t)(bf16_in_upper(value) >> 16); }

/* amax.c */
float ISA(amax_f32)(const float *x, size_t n);
float ISA(amax_bf16)(const uint16_t *x, size_t n);

/* quantise.c */
void ISA(quantise_f32)(int8_t *q, const float *x, size_t n, float inv_scale, const tandem_rounding *rounding);
void ISA(quantise_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                        const tandem_rounding *rounding);

void ISA(quantise_nearest_f32)(int8_t *q, const float *x, size_t n, float inv_scale);
void ISA(quantise_nearest_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale);

float ISA(quantise_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale,
                             const tandem_rounding *rounding);
float ISA(quantise_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale,
                              const tandem_rounding *rounding);
float ISA(quantise_nearest_amax_f32)(int8_t *q, const float *x, size_t n, float inv_scale);
float ISA(quantise_nearest_amax_bf16)(int8_t *q, const uint16_t *x, size_t n, float inv_scale);

/* transpose.c */
void ISA(transpose_s8)(int8_t *to, int64_t to_row, const int8_t *from, int64_t from_row, int64_t rows,
                       int64_t columns);

/* cast.c */
void ISA(dequantise_f32)(float *x, const int8_t *q, size_t n, float scale);
void ISA(dequantise_bf16)(uint16_t *x, const int8_t *q, size_t n, float scale);
void ISA(bf16_from_f32)(uint16_t *y, const float *x, size_t n);
void ISA(f32_from_bf16)(float *y, const uint16_t *x, size_t n);

/* gemm_s8.c */
void ISA(gemm_s8)(const tandem_product_s8 *product);
size_t ISA(gemm_s8_workspace)(int64_t m, int64_t n, int64_t k);

/* sums.c */
void ISA(add_s32)(int32_t *y, const int32_t *a, const int32_t *b, size_t n);
void ISA(f32_from_s32)(float *x, const int32_t *sum, size_t n, float scale);
void ISA(bf16_from_s32)(uint16_t *x, const int32_t *sum, size_t n, float scale);

/* winograd.c: where there is AVX-512 */
void ISA(winograd)(const tandem_winograd *convolution);
size_t ISA(winograd_workspace)(const tandem_winograd *convolution);

/* weight_gradient.c: where there is AVX-512 */
void ISA(weight_gradient)(const tandem_weight_gradient *convolution);
size_t ISA(weight_gradient_workspace)(const tandem_weight_gradient *convolution);

/* im2col.c */
void ISA(im2col_s8)(int8_t *columns, const int8_t *image, int64_t h, int64_t w, int64_t c, int64_t kernel,
                    int64_t stride, int64_t pad);

/* elementwise.c */
void ISA(add_f32)(float *y, const float *a, const float *b, size_t n);
void ISA(add_bf16)(uint16_t *y, const uint16_t *a, const uint16_t *b, size_t n);
void ISA(add_f32_to_bf16)(uint16_t *y, const float *x, size_t n);
void ISA(relu_f32)(float *y, const float *x, size_t n);
void ISA(relu_bf16)(uint16_t *y, const uint16_t *x, size_t n);
void ISA(relu_backward_f32)(float *gx, const float *gy, const float *y, size_t n);
void ISA(relu_backward_bf16)(uint16_t *gx, const uint16_t *gy, const uint16_t *y, size_t n);

/* dropout.c */
void ISA(dropout_f32)(float *y, const float *x, size_t n, const tandem_dropout *mask);
void ISA(dropout_bf16)(uint16_t *y, const uint16_t *x, size_t n, const tandem_dropout *mask);

/* noise.c */
void ISA(noise_f32)(float *x, size_t n, uint64_t seed, const uint32_t stream[3]);

/* batchnorm.c */
void ISA(batchnorm_f32)(const tandem_batchnorm *norm, float *y, const float *x);
void ISA(batchnorm_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x);
void ISA(batchnorm_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                 const float *g, const float *x);
void ISA(batchnorm_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                  const uint16_t *g, const uint16_t *x);
void ISA(batchnorm_add_f32)(const tandem_batchnorm *norm, float *y, const float *x, const float *residual);
void ISA(batchnorm_add_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x,
                             const uint16_t *residual);
void ISA(batchnorm_add_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                     const float *g, const float *x, const float *y);
void ISA(batchnorm_add_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                      const uint16_t *g, const uint16_t *x, const uint16_t *y);

/* bias.c */
void ISA(bias_f32)(float *y, const float *x, const float *bias, size_t n, size_t period);
void ISA(bias_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period);
void ISA(column_sum_f32)(float *sum, const float *g, size_t n, size_t period);
void ISA(column_sum_bf16)(float *sum, const uint16_t *g, size_t n, size_t period);

/* gelu.c */
void ISA(gelu_f32)(float *y, const float *x, size_t n);
void ISA(gelu_backward_f32)(float *gx, const float *g, const float *x, size_t n);
void ISA(bias_gelu_f32)(float *y, const float *x, const float *bias, size_t n, size_t period);
void ISA(bias_gelu_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period);
void ISA(bias_gelu_backward_f32)(float *gx, float *gbias, const float *g, const float *x, const float *bias,
                                 size_t n, size_t period);
void ISA(bias_gelu_backward_bf16)(uint16_t *gx, float *gbias, const uint16_t *g, const uint16_t *x,
                                  const float *bias, size_t n, size_t period);

/* softmax.c */
float ISA(softmax_f32)(float *y, const float *x, size_t n, size_t n_unmasked, float scale, float *top);
void ISA(scale_difference_f32)(float *y, const float *x, size_t n, float other, float weight);
void ISA(softmax_backward_f32)(float *gx, const float *g, const float *y, size_t n, float scale);

/* optimizer.c */
int ISA(sgd)(float *w, float *v, const float *g, size_t n, float rate, float momentum, float decay);
int ISA(adamw)(float *w, float *m, float *v, const float *g, size_t n, float rate, float beta1, float beta2,
               float epsilon, float decay, float correction1, float correction2);

/* table.c: the rows that this compilation serves; one without a name ends them. */
extern const tandem_isa_kernels ISA(kernels)[];

#endif
