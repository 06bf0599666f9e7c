/* bf16_numbers.h: whole numbers in bf16, for sums that are exact in any order. */
#pragma once

#include <stdint.h>

/* The bf16 of a whole number that it holds exactly. */
static inline uint16_t half_of(int value)
{
    union {
        float value;
        uint32_t bits;
    } both = {(float)value};
    return (uint16_t)(both.bits >> 16);
}
