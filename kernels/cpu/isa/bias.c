/* bias.c: adds a row to every row of a matrix; its gradient is the sum of the rows. */
#include "kernels/cpu/isa/isa.h"

void ISA(bias_f32)(float *y, const float *x, const float *bias, size_t n, size_t period)
{
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < period; j++) y[row + j] = x[row + j] + bias[j];
    }
}

void ISA(bias_bf16)(uint16_t *y, const uint16_t *x, const float *bias, size_t n, size_t period)
{
    for (size_t row = 0; row < n; row += period) {
        ISA_ELEMENTWISE
        for (size_t j = 0; j < period; j++) y[row + j] = bf16_of_float(float_of_bf16(x[row + j]) + bias[j]);
    }
}

/* Four rows a sweep, so that a sum is loaded and stored once for four additions; their order stays ascending.
 * */
void ISA(add_rows_f32)(float *restrict sum, const float *restrict g, size_t n, size_t period)
{
    size_t at = 0;
    for (; period > 0 && n - at >= 4 * period; at += 4 * period) {
        const float *g0 = g + at, *g1 = g0 + period, *g2 = g1 + period, *g3 = g2 + period;
        for (size_t j = 0; j < period; j++) sum[j] = (((sum[j] + g0[j]) + g1[j]) + g2[j]) + g3[j];
    }
    for (; at < n; at += period) {
        for (size_t j = 0; j < period; j++) sum[j] += g[at + j];
    }
}

void ISA(column_sum_f32)(float *restrict sum, const float *restrict g, size_t n, size_t period)
{
    for (size_t j = 0; j < period; j++) sum[j] = 0.0f;
    ISA(add_rows_f32)(sum, g, n, period);
}

void ISA(column_sum_bf16)(float *restrict sum, const uint16_t *restrict g, size_t n, size_t period)
{
    for (size_t j = 0; j < period; j++) sum[j] = 0.0f;
    size_t at = 0;
    for (; period > 0 && n - at >= 4 * period; at += 4 * period) {
        const uint16_t *g0 = g + at, *g1 = g0 + period, *g2 = g1 + period, *g3 = g2 + period;
        for (size_t j = 0; j < period; j++)
            sum[j] = (((sum[j] + float_of_bf16(g0[j])) + float_of_bf16(g1[j])) + float_of_bf16(g2[j])) +
                     float_of_bf16(g3[j]);
    }
    for (; at < n; at += period) {
        for (size_t j = 0; j < period; j++) sum[j] += float_of_bf16(g[at + j]);
    }
}
