/* octet.h: eight consecutive elements of a tensor in a thread's registers, as floats: what a thread works on where memory is
 * the limit. An octet is 16-byte aligned, so that it is one or two loads. */
#ifndef TANDEM_BACKEND_CUDA_OCTET_H
#define TANDEM_BACKEND_CUDA_OCTET_H

#include "backend/cuda/launch.h"

enum { OCTET = 8 };

static __device__ __forceinline__ void load_octet(float x[OCTET], const float *at)
{
    const float4 low = __ldg((const float4 *)at), high = __ldg((const float4 *)at + 1);
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

static __device__ __forceinline__ void load_octet(float x[OCTET], const uint16_t *at)
{
    const uint4 all = __ldg((const uint4 *)at);
    const uint32_t pair[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = tandem_float_of(pair[i] << 16);
        x[2 * i + 1] = tandem_float_of(pair[i] & 0xFFFF0000u);
    }
}

static __device__ __forceinline__ void store_octet(float *at, const float x[OCTET])
{
    ((float4 *)at)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)at)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

static __device__ __forceinline__ void store_octet(uint16_t *at, const float x[OCTET])
{
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = (uint32_t)tandem_bf16_of(x[2 * i]) | (uint32_t)tandem_bf16_of(x[2 * i + 1]) << 16;
    *(uint4 *)at = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

static __device__ __forceinline__ void load_octet(float x[OCTET], const int8_t *at)
{
    const uint2 all = __ldg((const uint2 *)at);
#pragma unroll
    for (int i = 0; i < OCTET; i++) x[i] = (float)(int8_t)((i < 4 ? all.x : all.y) >> (8 * (i % 4)));
}

#endif
