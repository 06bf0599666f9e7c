/* softmax.c: the softmax of a row, forward and backward. It reads a row several times, because a row fits the
 * caches. */
#include <string.h>

#include "kernels/cpu/isa/exponential.h"

/* A sum adds every 16th number, twice, and then these partial sums: an order that does not depend on the
 * vector width. */
enum { LANES = 16 };
typedef float float_lanes __attribute__((vector_size(LANES * sizeof(float))));

/* e to this and less counts as 0: it is below what a sum of f32 can see */
static const float min_exponent = -87;

/* Floats in order are integers in order once those below zero are turned over; and back. */
static inline int32_t sortable_bits(int32_t bits) { return bits < 0 ? bits ^ INT32_MAX : bits; }

/* Of n > 0 numbers. */
static float largest_logit(const float *x, size_t n)
{
    int32_t top = INT32_MIN;
    for (size_t j = 0; j < n; j++) {
        const int32_t key = sortable_bits((int32_t)bits_of_float(x[j]));
        top = key > top ? key : top;
    }
    return float_of_bits((uint32_t)sortable_bits(top));
}

static float reduce_lanes(const float_lanes *first, const float_lanes *second)
{
    float part[LANES];
    const float_lanes both = *first + *second;
    memcpy(part, &both, sizeof part);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++) part[k] += part[k + half];
    return part[0];
}

static float sum_floats(const float *x, size_t n)
{
    float_lanes sum[2] = {{0}, {0}};
    size_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        float_lanes both[2];
        memcpy(both, x + j, sizeof both);
        sum[0] += both[0];
        sum[1] += both[1];
    }
    float rest = 0;
    for (; j < n; j++) rest += x[j];
    return reduce_lanes(&sum[0], &sum[1]) + rest;
}

static float dot_floats(const float *a, const float *b, size_t n)
{
    float_lanes sum[2] = {{0}, {0}};
    size_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        float_lanes left[2], right[2];
        memcpy(left, a + j, sizeof left);
        memcpy(right, b + j, sizeof right);
        sum[0] += left[0] * right[0];
        sum[1] += left[1] * right[1];
    }
    float rest = 0;
    for (; j < n; j++) rest += a[j] * b[j];
    return reduce_lanes(&sum[0], &sum[1]) + rest;
}

float ISA(softmax_f32)(float *y, const float *x, size_t n, size_t n_unmasked, float scale, float *top)
{
    const float max_logit = scale * largest_logit(x, n_unmasked);
    ISA_ELEMENTWISE
    for (size_t j = 0; j < n_unmasked; j++) {
        const float distance = scale * x[j] - max_logit;
        const float e = exponential(distance < min_exponent ? min_exponent : distance);
        y[j] = distance < min_exponent ? 0.0f : e;
    }
    const float sum = sum_floats(y, n_unmasked), share = 1.0f / sum;
    ISA_ELEMENTWISE
    for (size_t j = 0; j < n_unmasked; j++) y[j] *= share;
    memset(y + n_unmasked, 0, (n - n_unmasked) * sizeof *y);
    *top = max_logit;
    return sum;
}

void ISA(scale_difference_f32)(float *y, const float *x, size_t n, float subtracted, float weight)
{
    ISA_ELEMENTWISE
    for (size_t j = 0; j < n; j++) y[j] = (x[j] - subtracted) * weight;
}

void ISA(softmax_backward_f32)(float *gx, const float *g, const float *y, size_t n, float scale)
{
    const float dot = dot_floats(g, y, n);
    ISA_ELEMENTWISE
    for (size_t j = 0; j < n; j++) gx[j] = scale * (y[j] * (g[j] - dot));
}
