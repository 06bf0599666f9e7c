/* ptx_numbers.c: conversions and functions of PTX, from their definitions in the PTX ISA and not from the
 * bits that tandem's kernels use, so that one error is not on both sides of a comparison. */
#include "tests/ptx/ptx_machine.h"

/* --- Narrow floats -------------------------------------------------------------------------------------- */

static const struct {
    int digits, min_exponent; /* stored bits of the fraction; the exponent of the smallest normal number */
    uint32_t largest, nan, sign;
    int saturates;
} formats[] = {[PTX_F16] = {10, -14, 0x7BFF, 0x7FFF, 0x8000, 0},
               [PTX_BF16] = {7, -126, 0x7F7F, 0x7FFF, 0x8000, 0},
               [PTX_E4M3] = {3, -6, 0x7E, 0x7F, 0x80, 1},
               [PTX_E5M2] = {2, -14, 0x7B, 0x7F, 0x80, 1}};

uint32_t ptx_round(ptx_format format, float x)
{
    if (x != x) return formats[format].nan;
    const uint32_t sign = signbit(x) ? formats[format].sign : 0;
    const double size = fabs((double)x);
    uint32_t code = formats[format].largest + 1;
    if (size < 0x1p127 * 2) {
        int exponent = size > 0 ? ilogb(size) : formats[format].min_exponent;
        if (exponent < formats[format].min_exponent) exponent = formats[format].min_exponent;
        const double units = nearbyint(ldexp(size, formats[format].digits - exponent));
        const int binade = exponent - formats[format].min_exponent; /* codes run on from one to the next */
        code = (uint32_t)units + ((uint32_t)binade << formats[format].digits);
    }
    if (code > formats[format].largest) code = formats[format].largest + !formats[format].saturates;
    return sign | code;
}

/* The number of a code with an exponent of `exponent_bits`, bits all ones included. */
static double value_of_code(uint32_t code, int digits, int exponent_bits)
{
    const uint32_t fraction = code & ((1u << digits) - 1),
                   exponent = code >> digits & ((1u << exponent_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double size = exponent ? ldexp(fraction + (double)(1u << digits), (int)exponent - bias - digits)
                                 : ldexp(fraction, 1 - bias - digits);
    return code >> (digits + exponent_bits) & 1 ? -size : size;
}

float ptx_f16_value(uint32_t bits)
{
    if ((bits & 0x7FFF) > 0x7C00) return NAN;
    if ((bits & 0x7FFF) == 0x7C00) return bits & 0x8000 ? -INFINITY : INFINITY;
    return (float)value_of_code(bits & 0xFFFF, 10, 5);
}

uint32_t ptx_f16_of_e4m3(uint32_t code)
{
    return (code & 0x7F) == 0x7F ? 0x7FFF : ptx_round(PTX_F16, (float)value_of_code(code, 3, 4));
}

uint32_t ptx_f16_of_e5m2(uint32_t code)
{
    return (code & 0x7F) > 0x7C ? 0x7FFF : code << 8; /* f16 with 8 bits less */
}

/* --- Arithmetic ----------------------------------------------------------------------------------------- */

float ptx_fma_down(float a, float b, float c)
{
    const double product = (double)a * b, sum = product + c; /* of two floats the product is exact */
    if (!isfinite(sum)) return (float)sum;
    if (sum == 0 && signbit(product) != signbit((double)c)) return -0.0f;
    const double part = sum - product, error = (product - (sum - part)) + (c - part); /* of the sum; exact */
    const float nearest = (float)sum;
    const int is_above = nearest > sum || (nearest == sum && error < 0);
    return is_above ? nextafterf(nearest, -INFINITY) : nearest;
}

/* One of the 2·ulp + 1 floats around a result: always the same of the same one, as on a card. */
static float stray(float x, int ulp)
{
    const uint32_t bits = ptx_raw_bits(x);
    if (ulp == 0 || !isfinite(x) || x == 0) return x;
    const uint64_t mixed = (bits + 1ull) * 0x9E3779B97F4A7C15ull;
    const int steps = (int)((mixed >> 33) % (uint64_t)(2 * ulp + 1)) - ulp;
    const float other = ptx_float(bits + (uint32_t)steps);
    return isfinite(other) && signbit(other) == signbit(x) ? other : x;
}

static float flushed(float x, int flushes) { return flushes && fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

float ptx_exp2(float x, int flushes, int ulp)
{
    x = flushed(x, flushes);
    if (x == 0) return 1;
    return flushed(stray((float)exp2((double)x), ulp), flushes);
}

float ptx_reciprocal(float x, int flushes, int ulp)
{
    return flushed(stray(1 / flushed(x, flushes), ulp), flushes);
}

/* "For |b| in [2^126, 2^128], if a is infinity the result is NaN, else 0" */
float ptx_quotient(float a, float b, int ulp)
{
    const float quotient = a / b;
    if (fabsf(b) > 0x1p126f && isfinite(b)) return isinf(a) ? NAN : copysignf(0, quotient);
    return stray(quotient, ulp);
}

float ptx_min(float a, float b)
{
    if (a != a || b != b) return a != a ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}

float ptx_max(float a, float b)
{
    if (a != a || b != b) return a != a ? b : a;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

/* --- Bits ----------------------------------------------------------------------------------------------- */

uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t selection)
{
    const uint64_t bytes = a | (uint64_t)b << 32;
    uint32_t result = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t which = selection >> (4 * k) & 0xF;
        uint32_t byte = (uint32_t)(bytes >> (8 * (which & 7)) & 0xFF);
        if (which & 8) byte = byte & 0x80 ? 0xFF : 0; /* its sign, eight times */
        result |= byte << (8 * k);
    }
    return result;
}

uint32_t ptx_reverse(uint32_t x)
{
    uint32_t result = 0;
    for (int k = 0; k < 32; k++) result |= (x >> k & 1) << (31 - k);
    return result;
}
