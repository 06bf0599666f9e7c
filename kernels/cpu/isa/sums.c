/* sums.c: int32 sums to which several int8 products contribute. */
#include "kernels/cpu/isa/isa.h"

void ISA(add_s32)(int32_t *y, const int32_t *a, const int32_t *b, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

void ISA(f32_from_s32)(float *restrict x, const int32_t *restrict sum, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)sum[i] * scale;
}

void ISA(bf16_from_s32)(uint16_t *restrict x, const int32_t *restrict sum, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = bf16_of_float((float)sum[i] * scale);
}
