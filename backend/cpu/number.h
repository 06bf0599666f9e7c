/* number.h: single elements of an array of f32 or bf16, for operators that need no kernel per type.
 * */
#ifndef TANDEM_BACKEND_CPU_NUMBER_H
#define TANDEM_BACKEND_CPU_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tandem/dtype.h"

static inline float cpu_number(const void *array, int64_t i, tandem_dtype dtype)
{
    if (dtype == TANDEM_F32) return ((const float *)array)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to the nearest, ties to even. */
static inline void cpu_set_number(void *array, int64_t i, tandem_dtype dtype, float value)
{
    if (dtype == TANDEM_F32) {
        ((float *)array)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = isnan(value) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    ((uint16_t *)array)[i] = (uint16_t)(rounded >> 16);
}

#endif
