/* nvfp4_reference.h: an operand as a recipe with nvfp4 rounds it (docs/recipes.md), element by element, from
 * the publication (arXiv:2509.25149) and not from recipe.def or format.def: numbers are found in lists, a
 * Hadamard transform is a product with its matrix. */
#ifndef TANDEM_TESTS_SUPPORT_NVFP4_REFERENCE_H
#define TANDEM_TESTS_SUPPORT_NVFP4_REFERENCE_H

#include "base/philox.h"
#include "tests/support/tandem_test.h"

typedef struct nvfp4_operand {
    const float *x;
    int64_t batch, rows, columns;
    int sums_rows, is_square, has_hadamard, is_drawn;
    uint64_t seed;
    uint32_t stream[3];
} nvfp4_operand;

static inline int64_t nvfp4_padded(int64_t n) { return (n + 15) / 16 * 16; }
static inline int64_t nvfp4_lines(const nvfp4_operand *of) { return of->sums_rows ? of->columns : of->rows; }
static inline int64_t nvfp4_sum(const nvfp4_operand *of) { return of->sums_rows ? of->rows : of->columns; }
static inline int64_t nvfp4_copied(const nvfp4_operand *of)
{
    return of->batch * nvfp4_lines(of) * nvfp4_padded(nvfp4_sum(of));
}

/* Number i along the sum in line l of matrix b; 0 beyond its end. */
static inline float nvfp4_source(const nvfp4_operand *of, int64_t b, int64_t l, int64_t i)
{
    if (i >= nvfp4_sum(of)) return 0;
    const int64_t row = of->sums_rows ? i : l, column = of->sums_rows ? l : i;
    return of->x[(b * of->rows + row) * of->columns + column];
}

/* The same, transformed by the matrix (−1)^(bits that i and j share) with random signs, over 4. */
static inline float nvfp4_transformed(const nvfp4_operand *of, int64_t b, int64_t l, int64_t i)
{
    if (!of->has_hadamard) return nvfp4_source(of, b, l, i);
    const tandem_philox_block drawn = tandem_philox((const uint32_t[]){0, 0, 0, 9}, of->seed);
    double sum = 0;
    for (int j = 0; j < 16; j++) {
        const int is_negative =
            (__builtin_popcount((unsigned)(i % 16) & (unsigned)j) & 1) ^ (int)(drawn.word[0] >> j & 1);
        const double x = (double)nvfp4_source(of, b, l, i / 16 * 16 + j);
        sum += is_negative ? -x : x;
    }
    return (float)(sum / 4);
}

/* The nearest number of e4m3, ties to the even code, by search in all of them. */
static inline float nvfp4_e4m3(float wanted)
{
    double best = 0;
    for (int code = 0, best_code = 0; code < 127; code++) {
        const int e = code >> 3, m = code & 7;
        const double number = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10),
                     off = fabs(number - (double)wanted), best_off = fabs(best - (double)wanted);
        if (off < best_off || (off == best_off && best_code % 2)) best = number, best_code = code;
    }
    return (float)best;
}

/* A number of e2m1: the nearest, ties to the even code; or drawn, up where the fraction and u reach 1. */
static inline double nvfp4_e2m1(double z, int is_drawn, double u)
{
    static const double list[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double size = fabs(z);
    int low = 7;
    while (list[low] > size) low--;
    if (low == 7) return copysign(6, z);
    const double fraction = (size - list[low]) / (list[low + 1] - list[low]);
    int is_up = fraction > 0.5 || (fraction == 0.5 && low % 2);
    if (is_drawn) is_up = z < 0 ? u < fraction : fraction + u >= 1;
    return copysign(list[low + is_up], z);
}

/* Draw `i` of the operand's stream. */
static inline double nvfp4_draw(const nvfp4_operand *of, int64_t i)
{
    const tandem_philox_block block = tandem_philox(
        (const uint32_t[]){(uint32_t)(i / 8), of->stream[0], of->stream[1], of->stream[2]}, of->seed);
    const uint32_t word = block.word[i % 8 / 2], half = i % 2 ? word >> 16 : word & 0xFFFF;
    return ((double)half + 0.5) / 65536;
}

/* Of a line's 16 numbers, or of a square's 256: the largest magnitude of the block of (b, l, i). */
static inline float nvfp4_block_range(const nvfp4_operand *of, const float *h, int64_t b, int64_t l,
                                      int64_t i)
{
    const int64_t lines = nvfp4_lines(of), padded = nvfp4_padded(nvfp4_sum(of)),
                  first = of->is_square ? l / 16 * 16 : l, end = of->is_square ? first + 16 : l + 1;
    float range = 0;
    for (int64_t k = first; k < end && k < lines; k++)
        for (int64_t j = i / 16 * 16; j < i / 16 * 16 + 16; j++)
            range = fmaxf(range, fabsf(h[(b * lines + k) * padded + j]));
    return range;
}

/* In squares, blocks follow each other as they lie in the matrix; else elements of the copy do. */
static inline int64_t nvfp4_draw_index(const nvfp4_operand *of, int64_t b, int64_t l, int64_t i)
{
    if (!of->is_square) return (b * nvfp4_lines(of) + l) * nvfp4_padded(nvfp4_sum(of)) + i;
    const int64_t row = of->sums_rows ? i : l, column = of->sums_rows ? l : i,
                  down = nvfp4_padded(of->rows) / 16, across = nvfp4_padded(of->columns) / 16;
    return ((b * down + row / 16) * across + column / 16) * 256 + row % 16 * 16 + column % 16;
}

/* out: [nvfp4_copied] */
static inline void nvfp4_round(float *out, const nvfp4_operand *of)
{
    const int64_t n = nvfp4_copied(of), lines = nvfp4_lines(of), padded = nvfp4_padded(nvfp4_sum(of));
    float *const h = malloc((size_t)n * sizeof *h), of_tensor = 0;
    assert_non_null(h);
    for (int64_t e = 0; e < n; e++) {
        h[e] = nvfp4_transformed(of, e / padded / lines, e / padded % lines, e % padded);
        of_tensor = fmaxf(of_tensor, fabsf(h[e]));
    }
    const float encode = 6 * 448.0F / of_tensor, decode = 1 / encode;
    for (int64_t e = 0; e < n; e++) {
        const int64_t b = e / padded / lines, l = e / padded % lines, i = e % padded;
        const float wanted = nvfp4_block_range(of, h, b, l, i) / 6 * encode,
                    scale = nvfp4_e4m3(wanted < 448 ? wanted : 448) * decode;
        const double u = of->is_drawn ? nvfp4_draw(of, nvfp4_draw_index(of, b, l, i)) : 0;
        out[e] = of_tensor > 0 && scale > 0
                     ? (float)nvfp4_e2m1((double)(h[e] * (1 / scale)), of->is_drawn, u) * scale
                     : 0;
    }
    free(h);
}

#endif
