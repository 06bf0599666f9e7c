/* isa.h: what the files of this folder share.
 *
 * Every .c file here is compiled once per instruction set, with
 * -DTANDEM_ISA=<sse41|avx|avx2|avx2_vnni|avx512|avx512_vnni> and that set's compiler flags. The code does not
 * ask the machine what it supports. Each function's name ends in the name of its set, so all objects can be
 * linked together: ISA(amax_f32) is tandem_isa_amax_f32_avx2.
 *
 * Three things give the same bits in each table: -ffp-contract=off, the same sequence of IEEE operations per
 * element for every vector width, and sums only in an order that the header fixes. */
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa_kernels.h"

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

#define ISA_KERNEL(result, name, ...) result ISA(name)(__VA_ARGS__);
#include "kernels/cpu/isa/kernels.def"

/* What a thread of several does of some kernels: `columns` of a matrix whose rows lie `row`, or `period`,
 * elements apart. Each column is summed as by the whole kernel, so the bits are the same. Rows begin within
 * 0 … n. */
void ISA(sum_columns_f32)(float *sum, const float *g, size_t rows, size_t columns, size_t row);
void ISA(sum_columns_bf16)(float *sum, const uint16_t *g, size_t rows, size_t columns, size_t row);
void ISA(bias_gelu_backward_columns_f32)(float *gx, float *gbias, const float *g, const float *x,
                                         const float *bias, size_t n, size_t columns, size_t period);
void ISA(bias_gelu_backward_columns_bf16)(uint16_t *gx, float *gbias, const uint16_t *g, const uint16_t *x,
                                          const float *bias, size_t n, size_t columns, size_t period);

/* The stages of batch normalisation, for threads that share the chunks of rows; in their order they are the
 * whole kernel. Any threads may run the chunks begin … end of one stage; norm_merge, norm_gradient_begin and
 * norm_gradient_merge are for one of them, between stages. parts: (norm_chunks, 2, channels); a call writes
 * those of its own chunks, from its first on. */
size_t ISA(norm_chunks)(size_t rows, size_t channels);
void ISA(norm_sums)(const tandem_batchnorm *norm, const void *x, int is_bf16, float *parts, size_t begin,
                    size_t end);
void ISA(norm_merge)(const tandem_batchnorm *norm, int is_bf16, const float *parts);
void ISA(norm_write)(const tandem_batchnorm *norm, void *y, const void *x, const void *residual, int is_bf16,
                     size_t begin, size_t end);
void ISA(norm_gradient_begin)(const tandem_batchnorm *norm, const tandem_norm_operands *in);
void ISA(norm_gradient_sums)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                             const tandem_batchnorm_gradients *out, float *parts, size_t begin, size_t end);
void ISA(norm_gradient_merge)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                              const tandem_batchnorm_gradients *out, const float *parts);
void ISA(norm_gradient_write)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                              const tandem_batchnorm_gradients *out, size_t begin, size_t end);

/* table.c: the rows that this compilation serves; one without a name ends them. */
extern const tandem_isa_kernels ISA(kernels)[];
