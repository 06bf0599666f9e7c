/* cast.c: changes of precision that draw no random numbers. */
#include "backend/cpu/isa/isa.h"

void ISA(dequantise_f32)(float *restrict x, const int8_t *restrict q, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)q[i] * scale;
}

void ISA(dequantise_bf16)(uint16_t *restrict x, const int8_t *restrict q, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) x[i] = bf16_of_float((float)q[i] * scale);
}

void ISA(bf16_from_f32)(uint16_t *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = bf16_of_float(x[i]);
}

void ISA(f32_from_bf16)(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = float_of_bf16(x[i]);
}
