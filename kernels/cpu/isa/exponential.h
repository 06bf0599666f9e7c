/* exponential.h: e^x by the operations that every instruction set has, in the same order: the same bits in
 * each table.
 *
 * x = n·ln 2 + r with |r| ≤ ½ ln 2, so e^x = 2^n·e^r, and e^r is its Taylor polynomial of degree 6, which is
 * off by less than 2^−22. ln 2 is subtracted in two parts, the first of which has so few digits that its
 * product with n is exact. */
#pragma once

#include "kernels/cpu/isa/isa.h"

/* For x in [−87, 88], within which neither 2^n nor the result leaves the normal numbers; a NaN stays one. */
static inline float exponential(float x)
{
    const float to_integer = 12582912.0f; /* 1.5·2^23: what is added to it has no fraction */
    const float n = (x * 1.44269504f + to_integer) - to_integer;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * float_of_bits((uint32_t)((int32_t)n + 127) << 23);
}
