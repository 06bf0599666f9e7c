/* layernorm_rows.h: a layernorm of rows that a warp keeps in registers, which kernels that write it as floats
 * (norm.cu) and as codes (coded_results.cu) have in common, so that both have the same bits. */
#pragma once

#include "kernels/cuda/warp_rows.h"

template <typename T> static __device__ __forceinline__ float rounded_to(float x)
{
    T one;
    store_one(&one, x);
    return as_float(one);
}

/* own = residual + (own + bias), each rounded to T as if it were stored; written to `to_sum`, too. bias NULL:
 * residual + own. */
template <typename Row, typename T>
static __device__ __forceinline__ void add_to_held_row(float *own, T *to_sum, const T *residual,
                                                       const float *bias, unsigned columns)
{
    enum { N = Row::LANE_COLUMNS };
    float other[N], own_bias[N];
    Row::load(other, residual, columns, 0);
    if (bias) {
        Row::load(own_bias, bias, columns, 0);
#pragma unroll
        for (int k = 0; k < N; k++) own[k] = rounded_to<T>(TANDEM_ADD(own[k], own_bias[k]));
    }
#pragma unroll
    for (int k = 0; k < N; k++) own[k] = rounded_to<T>(TANDEM_ADD(other[k], own[k]));
    Row::store(to_sum, own, columns);
}

/* own = the layernorm of the warp's row r, which is `own`. */
template <typename Row>
static __device__ __forceinline__ void normalise_held_row(float *own, size_t r, const float *scale,
                                                          const float *shift, float *mean_of,
                                                          float *variance_of, unsigned columns, float epsilon)
{
    enum { N = Row::LANE_COLUMNS };
    float sum = 0, square = 0, own_scale[N], own_shift[N];
    Row::load(own_scale, scale, columns, 0);
    Row::load(own_shift, shift, columns, 0);
#pragma unroll
    for (int k = 0; k < N; k++) sum += own[k];
    const float mean = warp_sum(sum) / (float)columns;
#pragma unroll
    for (int k = 0; k < N; k++) {
        own[k] = Row::has(k, columns) ? own[k] - mean : 0;
        square += own[k] * own[k];
    }
    const float variance = warp_sum(square) / (float)columns;
    const float inverse = 1.0f / sqrtf(variance + epsilon);
    if (threadIdx.x % WARP == 0) {
        mean_of[r] = mean;
        variance_of[r] = variance;
    }
#pragma unroll
    for (int k = 0; k < N; k++) own[k] = own[k] * inverse * own_scale[k] + own_shift[k];
}
