/* gelu.c: gelu in its tanh form, alone and of a sum with a bias, forward and backward.
 *
 * ½(1 + tanh u) = 1/(1 + e^−2u) = s, so that gelu(x) = x·s with u = √(2/π)(x + 0.044715x³), and its
 * derivative is s + x·s·(1 − s)·2u′. Source: Hendrycks, Gimpel, "Gaussian Error Linear Units",
 * arXiv:1606.08415. */
#include <string.h>

#include "kernels/cpu/isa/exponential.h"

static const float twice_root = 1.59576912f, cubic = 0.044715f; /* 2√(2/π) */

/* 1/s. Beyond ±80, where s is 1 or as good as 0, e^−2u is held: by its bits, of which a minimum is one
 * instruction. */
static inline float gelu_divisor(float x)
{
    const float minus = x * (-twice_root - twice_root * cubic * (x * x)); /* −2u */
    const int32_t size = (int32_t)(bits_of_float(minus) & 0x7FFFFFFFu), limit = (int32_t)bits_of_float(80.0f);
    const uint32_t sign = bits_of_float(minus) & 0x80000000u;
    return 1.0f + exponential(float_of_bits((uint32_t)(size < limit ? size : limit) | sign));
}

static inline float gelu_value(float x) { return x / gelu_divisor(x); }

static inline float gelu_derivative(float x)
{
    const float s = 1.0f / gelu_divisor(x);
    return s + x * (s * (1.0f - s)) * (twice_root + 3 * twice_root * cubic * (x * x));
}

void ISA(gelu_f32)(float *y, const float *x, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = gelu_value(x[i]);
}

void ISA(gelu_backward_f32)(float *gx, const float *g, const float *x, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) gx[i] = g[i] * gelu_derivative(x[i]);
}

void ISA(bias_gelu_f32)(float *y, const float *x, const float *bias, size_t n, size_t period)
{
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < period; j++) y[row + j] = gelu_value(x[row + j] + bias[j]);
    }
}

void ISA(bias_gelu_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period)
{
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < period; j++)
            y[row + j] = bf16_of_float(gelu_value(float_of_bf16(x[row + j]) + bias[j]));
    }
}

/* The bias's gradient is summed before it is rounded. */
void ISA(bias_gelu_backward_columns_f32)(float *gx, float *restrict gbias, const float *g, const float *x,
                                         const float *bias, size_t n, size_t columns, size_t period)
{
    memset(gbias, 0, columns * sizeof *gbias);
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < columns; j++) {
            const float gradient = g[row + j] * gelu_derivative(x[row + j] + bias[j]);
            gx[row + j] = gradient;
            gbias[j] += gradient;
        }
    }
}

void ISA(bias_gelu_backward_columns_bf16)(uint16_t *gx, float *restrict gbias, const uint16_t *g,
                                          const uint16_t *x, const float *bias, size_t n, size_t columns,
                                          size_t period)
{
    memset(gbias, 0, columns * sizeof *gbias);
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < columns; j++) {
            const float gradient =
                float_of_bf16(g[row + j]) * gelu_derivative(float_of_bf16(x[row + j]) + bias[j]);
            gx[row + j] = bf16_of_float(gradient);
            gbias[j] += gradient;
        }
    }
}

void ISA(bias_gelu_backward_f32)(float *gx, float *restrict gbias, const float *g, const float *x,
                                 const float *bias, size_t n, size_t period)
{
    ISA(bias_gelu_backward_columns_f32)(gx, gbias, g, x, bias, n, period, period);
}

void ISA(bias_gelu_backward_bf16)(uint16_t *gx, float *restrict gbias, const uint16_t *g, const uint16_t *x,
                                  const float *bias, size_t n, size_t period)
{
    ISA(bias_gelu_backward_columns_bf16)(gx, gbias, g, x, bias, n, period, period);
}
