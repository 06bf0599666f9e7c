/* amax.c: the largest absolute value, as the largest integer among the bit patterns without their sign: these
 * order like the numbers, and every NaN lies above infinity, so that one NaN anywhere is the result. */
#include "kernels/cpu/isa/isa.h"

float ISA(amax_f32)(const float *x, size_t n)
{
    int32_t largest = 0;
#pragma GCC unroll 4 /* alone, the loop takes one or two cycles a vector, by where it comes to lie */
    for (size_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(bits_of_float(x[i]) & 0x7FFFFFFFu);
        largest = bits > largest ? bits : largest;
    }
    return float_of_bits((uint32_t)largest);
}

float ISA(amax_bf16)(const uint16_t *x, size_t n)
{
    int16_t largest = 0;
#pragma GCC unroll 4 /* alone, the loop takes one or two cycles a vector, by where it comes to lie */
    for (size_t i = 0; i < n; i++) {
        const int16_t bits = (int16_t)(x[i] & 0x7FFFu);
        largest = bits > largest ? bits : largest;
    }
    return float_of_bf16((uint16_t)largest);
}
