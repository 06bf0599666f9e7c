/* arithmetic.h: what the CUDA kernels compute per element. The host compiles the same code, so a test on any
 * machine compares it with the CPU's kernels bit for bit (tests/cuda/test_cuda_kernels.c).
 *
 * Each product and each sum is rounded, as isa_kernels.h says. On the GPU, intrinsics prevent contraction; on
 * the host, -ffp-contract=off does. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/philox.h"

#ifdef __CUDA_ARCH__
#define TANDEM_MUL(a, b) __fmul_rn(a, b)
#define TANDEM_ADD(a, b) __fadd_rn(a, b)
#define TANDEM_SUB(a, b) __fsub_rn(a, b)
#define TANDEM_DIV(a, b) __fdiv_rn(a, b)
#define TANDEM_SQRT(a) __fsqrt_rn(a)
#else
#define TANDEM_MUL(a, b) ((a) * (b))
#define TANDEM_ADD(a, b) ((a) + (b))
#define TANDEM_SUB(a, b) ((a) - (b))
#define TANDEM_DIV(a, b) ((a) / (b))
#define TANDEM_SQRT(a) sqrtf(a)
#endif

TANDEM_HOST_DEVICE uint32_t tandem_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TANDEM_HOST_DEVICE float tandem_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- Types: round to nearest, ties to even -------------------------------------------------------------- */

/* A NaN stays a NaN. */
TANDEM_HOST_DEVICE uint16_t tandem_bf16_of(float x)
{
    const uint32_t bits = tandem_bits_of(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

TANDEM_HOST_DEVICE float tandem_f32_of_bf16(uint16_t x) { return tandem_float_of((uint32_t)x << 16); }

/* Encodes a magnitude in a type with `mantissa` mantissa bits and an exponent biased by `bias`; subnormal
 * steps are 2^(1 − bias − mantissa). bits: of a float below 2^(bias + 1) with sign 0. The code may be one
 * above the type's largest. */
TANDEM_HOST_DEVICE uint32_t tandem_small_float_encode(uint32_t bits, int mantissa, int bias)
{
    const int lost = 23 - mantissa;
    if (bits >= (uint32_t)(128 - bias) << 23)
        return ((bits + ((1u << (lost - 1)) - 1u) + ((bits >> lost) & 1u)) >> lost) -
               ((uint32_t)(127 - bias) << mantissa);
    /* the float whose last bit is one step */
    const float last_step = tandem_float_of((uint32_t)(151 - bias - mantissa) << 23);
    return tandem_bits_of(TANDEM_ADD(tandem_float_of(bits), last_step)) - tandem_bits_of(last_step);
}

/* The exact value of a code. */
TANDEM_HOST_DEVICE float tandem_small_float_decode(uint32_t code, int mantissa, int bias)
{
    return TANDEM_MUL(tandem_float_of(code << (23 - mantissa)),
                      tandem_float_of((uint32_t)(254 - bias) << 23));
}

/* IEEE 754 binary16. Values from 65520 on become infinite; every NaN becomes 0x7FFF, as on a GPU. */
TANDEM_HOST_DEVICE uint16_t tandem_f16_of(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
    return code;
#else
    const uint32_t bits = tandem_bits_of(x), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7F800000u) return 0x7FFFu;
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
    return (uint16_t)(sign | tandem_small_float_encode(magnitude, 10, 15));
#endif
}

TANDEM_HOST_DEVICE float tandem_f32_of_f16(uint16_t x)
{
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
    return value;
#else
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, code = x & 0x7FFFu;
    if (code >= 0x7C00u) return tandem_float_of(sign | 0x7F800000u | (code & 0x3FFu) << 13);
    return tandem_float_of(sign | tandem_bits_of(tandem_small_float_decode(code, 10, 15)));
#endif
}

/* One-byte types saturate: infinities become the largest number too. A NaN is 0x7F. Source: "FP8 Formats for
 * Deep Learning", arXiv:2209.05433, 2022, table 1. */
TANDEM_HOST_DEVICE uint8_t tandem_e4m3_of(float x)
{
    const uint32_t bits = tandem_bits_of(x), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7F800000u) return 0x7Fu;
    /* 448 */
    return (uint8_t)(sign | (magnitude >= 0x43E00000u ? 0x7Eu : tandem_small_float_encode(magnitude, 3, 7)));
}

TANDEM_HOST_DEVICE float tandem_f32_of_e4m3(uint8_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x80u) << 24, code = x & 0x7Fu;
    if (code == 0x7Fu) return tandem_float_of(0x7FC00000u);
    return tandem_float_of(sign | tandem_bits_of(tandem_small_float_decode(code, 3, 7)));
}

TANDEM_HOST_DEVICE uint8_t tandem_e5m2_of(float x)
{
    const uint32_t bits = tandem_bits_of(x), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7F800000u) return 0x7Fu;
    /* 57344 */
    return (uint8_t)(sign | (magnitude >= 0x47600000u ? 0x7Bu : tandem_small_float_encode(magnitude, 2, 15)));
}

TANDEM_HOST_DEVICE float tandem_f32_of_e5m2(uint8_t x) { return tandem_f32_of_f16((uint16_t)(x << 8)); }

/* --- Quantising ----------------------------------------------------------------------------------------- */

/* |x| as an integer that grows with |x|; a NaN is above all numbers. Integer maxima in any order then
 * find the largest of many, and any NaN shows. */
TANDEM_HOST_DEVICE uint32_t tandem_magnitude_bits(float x) { return tandem_bits_of(x) & 0x7FFFFFFFu; }

/* The scale of a range for a type whose largest number is max_value: q represents scale·q, and x is
 * multiplied by inverse. Both are 0 for a range of 0, and for one so small that max_value/amax overflows.
 * Both are NaN for a range that is not finite. */
typedef struct tandem_quant_scale {
    float inverse, scale;
} tandem_quant_scale;

TANDEM_HOST_DEVICE tandem_quant_scale tandem_quant_scale_of(float amax, float max_value)
{
    tandem_quant_scale quant;
    quant.inverse = quant.scale = 0;
    if (!(amax <= 3.402823466e38f)) {
        quant.inverse = quant.scale = tandem_float_of(0x7FC00000u);
        return quant;
    }
    if (!(amax > 0)) return quant;
    const float inverse = TANDEM_DIV(max_value, amax);
    if (!(inverse <= 3.402823466e38f)) return quant;
    quant.inverse = inverse;
    quant.scale = TANDEM_DIV(amax, max_value);
    return quant;
}

/* The range of the next cast from the largest amax of a history: tandem_amax_history_range. */
TANDEM_HOST_DEVICE float tandem_delayed_range(float largest, int margin)
{
    const float range = ldexpf(largest, margin);
    return range <= 3.402823466e38f ? range : 3.402823466e38f;
}

/* u of element i (0 … 7) of a block of 8: (r + ½)/65536, where r is its 16-bit draw. On a GPU one instruction
 * puts r below the exponent of 2^23 and another scales it. That is exact, because r + ½ has 17 bits. */
TANDEM_HOST_DEVICE float tandem_draw_float(tandem_philox_block block, int i)
{
#ifdef __CUDA_ARCH__
    const uint32_t bits = __byte_perm(block.word[i / 2], 0x4B000000u, i % 2 ? 0x7632u : 0x7610u);
    return __fmaf_rn(tandem_float_of(bits), 0x1p-16f, -0x1.FFFFFEp6f); /* − 128 + 2^−17 */
#else
    const uint32_t r = (block.word[i / 2] >> (16 * (i % 2))) & 0xFFFFu;
    /* 1 + r/65536 minus (1 − 2^−17): exact */
    return TANDEM_SUB(tandem_float_of(0x3F800000u | r << 7), 0x1.FFFFp-1f);
#endif
}

/* clamp(floor(x·inverse + u), −127, 127); a NaN becomes −127. */
TANDEM_HOST_DEVICE int8_t tandem_round_s8(float x, float inverse, float u)
{
    const float sum = TANDEM_ADD(TANDEM_MUL(x, inverse), u);
    const float clamped = fminf(fmaxf(sum, -127.0f), 127.0f); /* of a NaN and a number, the number */
#ifdef __CUDA_ARCH__
    return (int8_t)tandem_bits_of(__fadd_rd(clamped, 12582912.0f)); /* 3·2^22: the last bit is a whole one */
#else
    return (int8_t)floorf(clamped);
#endif
}

/* clamp(x·inverse to nearest, ties to even, −127, 127); a NaN becomes −127. */
TANDEM_HOST_DEVICE int8_t tandem_nearest_s8(float x, float inverse)
{
    const float clamped = fminf(fmaxf(TANDEM_MUL(x, inverse), -127.0f), 127.0f);
    return (int8_t)tandem_bits_of(TANDEM_ADD(clamped, 12582912.0f)); /* 3·2^22: the last bit is a whole one */
}

/* --- gelu: ½x(1 + tanh u), u = √(2/π)(x + 0.044715x³), and its slope ------------------------------------ */

/* ½(1 + tanh u) = 1/(1 + exp(−2u)), to about 2^−23. A GPU has an instruction for both functions (CUDA C++
 * Programming Guide, "Intrinsic Functions"); their errors grow with |u|, where the result is close to 0
 * or 1. */
TANDEM_HOST_DEVICE float tandem_gelu_share(float x)
{
    const float u = 0.797884560803f * (x + 0.044715f * x * x * x);
#ifdef __CUDA_ARCH__
    return __fdividef(1.0f, 1.0f + __expf(-2.0f * u));
#else
    return 1.0f / (1.0f + expf(-2.0f * u));
#endif
}

TANDEM_HOST_DEVICE float tandem_gelu(float x) { return x * tandem_gelu_share(x); }

TANDEM_HOST_DEVICE float tandem_gelu_slope(float x)
{
    const float share = tandem_gelu_share(x),
                slope_of_u = 0.797884560803f * (1.0f + 3.0f * 0.044715f * x * x);
    return share + 2.0f * x * share * (1.0f - share) * slope_of_u;
}

/* --- Optimizers, in the order of operations of isa_kernels.h -------------------------------------------- */

TANDEM_HOST_DEVICE void tandem_sgd_one(float *w, float *v, float g, float rate, float momentum, float decay)
{
    const float velocity = TANDEM_ADD(TANDEM_ADD(TANDEM_MUL(momentum, *v), g), TANDEM_MUL(decay, *w));
    *v = velocity;
    *w = TANDEM_SUB(*w, TANDEM_MUL(rate, velocity));
}

typedef struct tandem_adamw {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2; /* 1/(1−beta1^t), 1/(1−beta2^t) */
} tandem_adamw;

TANDEM_HOST_DEVICE void tandem_adamw_one(float *w, float *m, float *v, float g, const tandem_adamw *a)
{
    const float rest1 = TANDEM_SUB(1.0f, a->beta1), rest2 = TANDEM_SUB(1.0f, a->beta2);
    const float m1 = TANDEM_ADD(TANDEM_MUL(a->beta1, *m), TANDEM_MUL(rest1, g));
    const float m2 = TANDEM_ADD(TANDEM_MUL(a->beta2, *v), TANDEM_MUL(TANDEM_MUL(rest2, g), g));
    const float denominator = TANDEM_ADD(TANDEM_SQRT(TANDEM_MUL(m2, a->correction2)), a->epsilon);
    const float step =
        TANDEM_ADD(TANDEM_DIV(TANDEM_MUL(m1, a->correction1), denominator), TANDEM_MUL(a->decay, *w));
    *m = m1;
    *v = m2;
    *w = TANDEM_SUB(*w, TANDEM_MUL(a->rate, step));
}
