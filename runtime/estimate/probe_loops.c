#include "runtime/estimate/probe_loops.h"

#include <string.h>

#include "base/wide.h"
#include "tandem/advanced/probe.h"

enum { LANES = 16 };

static double sum_of_probe_lanes(const double lane[LANES])
{
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

TANDEM_WIDE float probe_amax(const float *x, int64_t n)
{
    int32_t lane[LANES] = {0}, bits[LANES];
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        memcpy(bits, x + i, sizeof bits);
        for (int k = 0; k < LANES; k++) {
            bits[k] &= 0x7FFFFFFF;
            lane[k] = bits[k] > lane[k] ? bits[k] : lane[k];
        }
    }
    memset(bits, 0, sizeof bits);
    memcpy(bits, x + whole, (size_t)(n - whole) * sizeof *x);
    int32_t largest = 0;
    for (int k = 0; k < LANES; k++) {
        const int32_t last = bits[k] & 0x7FFFFFFF, most = last > lane[k] ? last : lane[k];
        largest = most > largest ? most : largest;
    }
    float value;
    memcpy(&value, &largest, sizeof value);
    return value;
}

TANDEM_WIDE static double sum_numbers(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k];
    for (int64_t i = whole; i < n; i++) lane[i - whole] += (double)x[i];
    return sum_of_probe_lanes(lane);
}

TANDEM_WIDE double probe_product(const float *restrict a, const float *restrict b, int64_t n)
{
    double lane[LANES] = {0};
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)a[i + k] * (double)b[i + k];
    for (int64_t i = whole; i < n; i++) lane[i - whole] += (double)a[i] * (double)b[i];
    return sum_of_probe_lanes(lane);
}

TANDEM_WIDE double probe_weighted_squares(double *sum, const float *restrict v, const float *restrict d,
                                          int64_t n)
{
    double lane[LANES] = {0}, alone[LANES] = {0};
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) {
            lane[k] += (double)v[i + k] * ((double)d[i + k] * (double)d[i + k]);
            alone[k] += (double)v[i + k];
        }
    for (int64_t i = whole; i < n; i++) {
        lane[i - whole] += (double)v[i] * ((double)d[i] * (double)d[i]);
        alone[i - whole] += (double)v[i];
    }
    *sum = sum_of_probe_lanes(alone);
    return sum_of_probe_lanes(lane);
}

TANDEM_WIDE void probe_pair_sums(double sum[PROBE_N_PAIR_SUM], const float *restrict v,
                                 const float *restrict a, const float *restrict b, int64_t n)
{
    enum { FEW = 8 }; /* lanes of four sums */
    double aa[FEW] = {0}, bb[FEW] = {0}, ab[FEW] = {0}, all[FEW] = {0};
    const int64_t whole = n / FEW * FEW;
    for (int64_t i = 0; i < whole; i += FEW)
        for (int k = 0; k < FEW; k++) {
            const double w = (double)v[i + k], x = (double)a[i + k], y = (double)b[i + k];
            aa[k] += w * (x * x);
            bb[k] += w * (y * y);
            ab[k] += w * (x * y);
            all[k] += w;
        }
    for (int64_t i = whole; i < n; i++) {
        const double w = (double)v[i], x = (double)a[i], y = (double)b[i];
        aa[i - whole] += w * (x * x);
        bb[i - whole] += w * (y * y);
        ab[i - whole] += w * (x * y);
        all[i - whole] += w;
    }
    for (int s = 0; s < PROBE_N_PAIR_SUM; s++) sum[s] = 0;
    for (int k = 0; k < FEW; k++) {
        sum[PROBE_PAIR_FIRST] += aa[k];
        sum[PROBE_PAIR_SECOND] += bb[k];
        sum[PROBE_PAIR_CROSS] += ab[k];
        sum[PROBE_PAIR_WEIGHT] += all[k];
    }
}

TANDEM_WIDE void probe_square_each(float *x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) x[i + k] *= x[i + k];
    for (int64_t i = whole; i < n; i++) x[i] *= x[i];
}

TANDEM_WIDE static void subtract_numbers(float *restrict to, const float *restrict a, const float *restrict b,
                                         float by, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) to[i + k] = (a[i + k] - b[i + k]) * by;
    for (int64_t i = whole; i < n; i++) to[i] = (a[i] - b[i]) * by;
}

TANDEM_WIDE static void take_middle(float *restrict x, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0.5F * (x[i] + y[i]);
}

TANDEM_WIDE void probe_add(float *restrict to, const float *restrict x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) to[i + k] += x[i + k];
    for (int64_t i = whole; i < n; i++) to[i] += x[i];
}

TANDEM_WIDE void probe_add_difference(float *restrict to, const float *restrict a, const float *restrict b,
                                      int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) to[i + k] += a[i + k] - b[i + k];
    for (int64_t i = whole; i < n; i++) to[i] += a[i] - b[i];
}

TANDEM_WIDE void probe_scale(float *restrict to, const float *restrict x, float by, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) to[i + k] = x[i + k] * by;
    for (int64_t i = whole; i < n; i++) to[i] = x[i] * by;
}

TANDEM_WIDE void probe_subtract(float *restrict to, float by, const float *restrict x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++) to[i + k] = to[i + k] * by - x[i + k];
    for (int64_t i = whole; i < n; i++) to[i] = to[i] * by - x[i];
}

/* By halves, so that they run in vectors. */
static inline float sum_of_float_lanes(const float lane[LANES])
{
    float eight[8], four[4];
    for (int k = 0; k < 8; k++) eight[k] = lane[k] + lane[k + 8];
    for (int k = 0; k < 4; k++) four[k] = eight[k] + eight[k + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

TANDEM_WIDE void probe_linear_gradient(float *restrict to, const float *restrict g, const float *restrict w,
                                       int64_t rows, int64_t depth, int64_t columns)
{
    const int64_t whole = columns / LANES * LANES;
    for (int64_t l = 0; l < depth; l++)
        for (int64_t i = 0; i < rows; i++) {
            const float *a = g + i * columns, *b = w + l * columns;
            float lane[LANES] = {0};
            for (int64_t j = 0; j < whole; j += LANES)
                for (int k = 0; k < LANES; k++) lane[k] += a[j + k] * b[j + k];
            for (int64_t j = whole; j < columns; j++) lane[j - whole] += a[j] * b[j];
            to[i * depth + l] = sum_of_float_lanes(lane);
        }
}

/* --- For others, too (tandem/advanced/probe.h), without the resolver of instruction sets --------------- */

double tandem_probe_sum(const float *x, int64_t n) { return sum_numbers(x, n); }

double tandem_probe_square(const float *x, int64_t n) { return probe_product(x, x, n); }

void tandem_probe_difference(float *to, const float *above, const float *below, float by, int64_t n)
{
    subtract_numbers(to, above, below, by, n);
}

void tandem_probe_middle(float *x, const float *y, int64_t n) { take_middle(x, y, n); }
