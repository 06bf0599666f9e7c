/* wire.h: sums of gradients that travel in bf16, in the ring and in shared memory. Private to backend/comm.
 *
 * A bf16 is the upper half of an f32. Rounding is to nearest, ties to even; what exceeds the largest bf16
 * becomes infinite, and a NaN stays one. A sum is added in f32 and rounded once for each rank that adds to
 * it (docs/step.md has the bound).
 *
 * Spans are packed where they lie, so that a bucket needs no second buffer: of n floats the first n_narrow
 * become bf16 in the lower half of their own memory, and the others, which stay f32, follow at the next
 * multiple of 4 bytes. Packed spans are never longer. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float tandem_narrow_floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t tandem_narrow_words __attribute__((vector_size(16)));
typedef uint16_t tandem_narrow_halves __attribute__((vector_size(8), aligned(2), may_alias));
enum { TANDEM_NARROW_LANES = 4 };

/* The bits of x rounded to bf16, in the upper half of each word. */
static inline tandem_narrow_words tandem_narrow_round(tandem_narrow_words x)
{
    const tandem_narrow_words is_nan = (tandem_narrow_words)((x & 0x7fffffff) > 0x7f800000),
                              rounded = x + 0x7fff + (x >> 16 & 1);
    return ((rounded & ~is_nan) | ((x | 0x400000) & is_nan)) & 0xffff0000;
}

/* One number, rounded to bf16. */
static inline float tandem_narrow_rounded(float x)
{
    tandem_narrow_words bits = {0};
    memcpy(&bits, &x, sizeof x);
    bits = tandem_narrow_round(bits);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline size_t tandem_narrow_rest_at(size_t n_narrow) { return (n_narrow * 2 + 3) / 4 * 4; }
/* Of a packed span of n floats. */
static inline size_t tandem_narrow_bytes(size_t n, size_t n_narrow)
{
    return tandem_narrow_rest_at(n_narrow) + (n - n_narrow) * sizeof(float);
}

/* Packs a span of n floats; more: NULL, or a packed span that is added first. */
void tandem_narrow_pack(float *data, const void *more, size_t n, size_t n_narrow);
/* Unpacks it where it lies. */
void tandem_narrow_unpack(float *data, size_t n, size_t n_narrow);
