/* elementwise.c: sums of two tensors, and relu, forward and backward. */
#include "kernels/cpu/isa/isa.h"

void ISA(add_f32)(float *y, const float *a, const float *b, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

void ISA(add_bf16)(uint16_t *y, const uint16_t *a, const uint16_t *b, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = bf16_of_float(float_of_bf16(a[i]) + float_of_bf16(b[i]));
}

void ISA(add_f32_to_bf16)(uint16_t *y, const float *x, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = bf16_of_float(float_of_bf16(y[i]) + x[i]);
}

/* "Not below zero stays": a NaN passes, so that it is seen downstream, and so does −0. */
void ISA(relu_f32)(float *y, const float *x, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

/* The bf16 numbers below zero are the patterns 0x8001 (least) to 0xFF80 (−infinity). */
void ISA(relu_bf16)(uint16_t *y, const uint16_t *x, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const int16_t bits = (int16_t)x[i];
        y[i] = (uint16_t)(bits > INT16_MIN && bits <= -0x80 ? 0 : bits);
    }
}

void ISA(relu_backward_f32)(float *gx, const float *gy, const float *y, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const float gradient = gy[i]; /* read in any case: a conditional load would not become a vector */
        gx[i] = y[i] > 0.0f ? gradient : 0.0f;
    }
}

/* Above zero: 0x0001 to 0x7F80 (infinity). */
void ISA(relu_backward_bf16)(uint16_t *gx, const uint16_t *gy, const uint16_t *y, size_t n)
{
    ISA_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const int16_t bits = (int16_t)y[i];
        const uint16_t gradient = gy[i];
        gx[i] = (uint16_t)(bits > 0 && bits <= 0x7F80 ? gradient : 0);
    }
}
