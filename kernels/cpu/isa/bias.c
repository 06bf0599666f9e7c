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
static void add_columns_f32(float *restrict sum, const float *restrict g, size_t rows, size_t columns,
                            size_t row)
{
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *g0 = g + r * row, *g1 = g0 + row, *g2 = g1 + row, *g3 = g2 + row;
        for (size_t j = 0; j < columns; j++) sum[j] = (((sum[j] + g0[j]) + g1[j]) + g2[j]) + g3[j];
    }
    for (; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) sum[j] += g[r * row + j];
    }
}

static size_t rows_of(size_t n, size_t period) { return period > 0 ? n / period : 0; }

void ISA(add_rows_f32)(float *restrict sum, const float *restrict g, size_t n, size_t period)
{
    add_columns_f32(sum, g, rows_of(n, period), period, period);
}

void ISA(sum_columns_f32)(float *restrict sum, const float *restrict g, size_t rows, size_t columns,
                          size_t row)
{
    for (size_t j = 0; j < columns; j++) sum[j] = 0.0f;
    add_columns_f32(sum, g, rows, columns, row);
}

void ISA(sum_columns_bf16)(float *restrict sum, const uint16_t *restrict g, size_t rows, size_t columns,
                           size_t row)
{
    for (size_t j = 0; j < columns; j++) sum[j] = 0.0f;
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const uint16_t *g0 = g + r * row, *g1 = g0 + row, *g2 = g1 + row, *g3 = g2 + row;
        for (size_t j = 0; j < columns; j++)
            sum[j] = (((sum[j] + float_of_bf16(g0[j])) + float_of_bf16(g1[j])) + float_of_bf16(g2[j])) +
                     float_of_bf16(g3[j]);
    }
    for (; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) sum[j] += float_of_bf16(g[r * row + j]);
    }
}

void ISA(column_sum_f32)(float *restrict sum, const float *restrict g, size_t n, size_t period)
{
    ISA(sum_columns_f32)(sum, g, rows_of(n, period), period, period);
}

void ISA(column_sum_bf16)(float *restrict sum, const uint16_t *restrict g, size_t n, size_t period)
{
    ISA(sum_columns_bf16)(sum, g, rows_of(n, period), period, period);
}
