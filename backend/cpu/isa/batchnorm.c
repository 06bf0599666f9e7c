/* batchnorm.c: normalising the columns of a matrix, with or without a rectifier behind it, forward and backward.
 *
 * Rows are taken in chunks that stay in the second-level cache. Both directions go over the matrix twice: up for the sums,
 * then down, because what was read last is still in the cache. Sums of a chunk are added in the order of its rows, and
 * chunks in theirs, whatever the instruction set: so the bits agree. */
#include "backend/cpu/isa/isa.h"

enum { CHUNK_ELEMENTS = 1 << 14 };
enum { LINE = 64, LONG_ROW = 512, AHEAD = 2048 }; /* bytes */

/* `narrow` and `rectifies` are constants wherever these are inlined: that makes four kernels of one text. */
#define INLINE static inline __attribute__((always_inline))

INLINE float load(const void *x, size_t i, int narrow)
{
    return narrow ? float_of_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

INLINE void store(void *y, size_t i, float value, int narrow)
{
    if (narrow)
        ((uint16_t *)y)[i] = bf16_of_float(value);
    else
        ((float *)y)[i] = value;
}

/* Asks memory for the n elements that stand `ahead` bytes behind element i. It would else idle while a chunk is summed a second
 * time; and where rows are long the hardware's own guesses come late (measured: a third less time forward, a sixth backward);
 * short rows are better left to them. */
INLINE void fetch(const void *x, size_t i, size_t n, size_t ahead, int narrow)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    const char *const from = (const char *)x + i * size + ahead;
    for (size_t byte = 0; byte < n * size; byte += LINE) __builtin_prefetch(from + byte, 0, 2);
}

INLINE void fetch_row(const void *x, size_t i, size_t n, int narrow)
{
    if (n * (narrow ? sizeof(uint16_t) : sizeof(float)) >= LONG_ROW) fetch(x, i, n, AHEAD, narrow);
}

static size_t chunk_rows(size_t channels)
{
    return channels < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / channels : 1;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Beginning of the chunk before that which begins at `from`; chunks begin at multiples of `step`. */
static size_t chunk_before(size_t from, size_t step) { return (from - 1) / step * step; }

/* --- Forward ------------------------------------------------------------------------------------------------------ */

/* sum[j] = Σ x[r][j], of n rows. */
INLINE void add_rows(float *restrict sum, const void *restrict x, size_t at, size_t n, size_t c, int narrow)
{
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * c)
        for (size_t j = 0; j < c; j++)
            sum[j] = (((sum[j] + load(x, at + j, narrow)) + load(x, at + c + j, narrow)) +
                      load(x, at + 2 * c + j, narrow)) +
                     load(x, at + 3 * c + j, narrow);
    for (; r < n; r++, at += c)
        for (size_t j = 0; j < c; j++) sum[j] += load(x, at + j, narrow);
}

INLINE float squared_distance(const void *x, size_t i, float mean, int narrow)
{
    const float distance = load(x, i, narrow) - mean;
    return distance * distance;
}

/* sum[j] = Σ (x[r][j] − mean[j])²; meanwhile the next chunk comes from memory. */
INLINE void add_squares(float *restrict sum, const float *restrict mean, const void *restrict x, size_t at,
                        size_t n, size_t c, int narrow)
{
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * c) {
        fetch(x, at + n * c, 4 * c, 0, narrow);
        for (size_t j = 0; j < c; j++)
            sum[j] = (((sum[j] + squared_distance(x, at + j, mean[j], narrow)) +
                       squared_distance(x, at + c + j, mean[j], narrow)) +
                      squared_distance(x, at + 2 * c + j, mean[j], narrow)) +
                     squared_distance(x, at + 3 * c + j, mean[j], narrow);
    }
    for (; r < n; r++, at += c)
        for (size_t j = 0; j < c; j++) sum[j] += squared_distance(x, at + j, mean[j], narrow);
}

/* Mean and sum of squared distances of two parts together. Source: Chan, Golub, LeVeque, "Algorithms for computing the
 * sample variance", The American Statistician 37 (1983). */
static void join_part(float *restrict mean, float *restrict squares, const float *restrict part_mean,
                      const float *restrict part_squares, size_t before, size_t n, size_t c)
{
    const float share = (float)n / (float)(before + n), weight = (float)before * share;
    for (size_t j = 0; j < c; j++) {
        const float distance = part_mean[j] - mean[j];
        mean[j] += distance * share;
        squares[j] += part_squares[j] + distance * distance * weight;
    }
}

INLINE void statistics(const tandem_batchnorm *norm, const void *x, int narrow)
{
    const size_t c = norm->channels, step = chunk_rows(c);
    float *const mean = norm->mean, *const squares = norm->variance;
    float *const part_mean = norm->workspace, *const part_squares = part_mean + c;
    for (size_t j = 0; j < c; j++) mean[j] = squares[j] = 0;
    for (size_t from = 0; from < norm->rows; from += step) {
        const size_t n = smaller(step, norm->rows - from);
        add_rows(part_mean, x, from * c, n, c, narrow);
        for (size_t j = 0; j < c; j++) part_mean[j] /= (float)n;
        add_squares(part_squares, part_mean, x, from * c, n, c, narrow);
        join_part(mean, squares, part_mean, part_squares, from, n, c);
    }
    for (size_t j = 0; j < c; j++) squares[j] /= (float)norm->rows;
}

/* factor[j] = scale/√(variance + ε), or without the scale. */
static void find_factors(float *factor, const tandem_batchnorm *norm, const float *scale)
{
    for (size_t j = 0; j < norm->channels; j++)
        factor[j] = (scale ? scale[j] : 1.0f) / __builtin_sqrtf(norm->variance[j] + norm->epsilon);
}

INLINE float normalised(float x, float mean, float factor, float shift)
{
    return (x - mean) * factor + shift;
}

INLINE void forward(const tandem_batchnorm *norm, void *restrict y, const void *restrict x, int narrow, int rectifies)
{
    const size_t c = norm->channels, step = chunk_rows(c);
    const float *const mean = norm->mean, *const shift = norm->shift;
    float *const factor = norm->workspace;
    statistics(norm, x, narrow);
    find_factors(factor, norm, norm->scale);
    for (size_t end = norm->rows, from; end > 0; end = from) {
        from = chunk_before(end, step);
        for (size_t at = from * c; at < end * c; at += c) {
            fetch_row(x, at, c, narrow);
            ISA_ELEMENTWISE
            for (size_t j = 0; j < c; j++) {
                const float value = normalised(load(x, at + j, narrow), mean[j], factor[j], shift[j]);
                store(y, at + j, rectifies && value < 0.0f ? 0.0f : value, narrow);
            }
        }
    }
}

void ISA(batchnorm_f32)(const tandem_batchnorm *norm, float *y, const float *x)
{
    if (norm->rectifies)
        forward(norm, y, x, 0, 1);
    else
        forward(norm, y, x, 0, 0);
}

void ISA(batchnorm_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x)
{
    if (norm->rectifies)
        forward(norm, y, x, 1, 1);
    else
        forward(norm, y, x, 1, 0);
}

/* --- Backward ----------------------------------------------------------------------------------------------------- */

/* The gradient in front of the rectifier; it passes where the forward pass, which computed the same bits, let through. */
INLINE float passed(float g, float x, float mean, float factor, float shift, int rectifies)
{
    return !rectifies || normalised(x, mean, factor, shift) > 0.0f ? g : 0.0f;
}

/* sum[j] = Σ g, dot[j] = Σ g·(x − mean[j]), over n rows. */
INLINE void add_gradients(const tandem_batchnorm *norm, float *restrict sum, float *restrict dot,
                          const float *restrict factor, const void *restrict g, const void *restrict x,
                          size_t at, size_t n, int narrow, int rectifies)
{
    const size_t c = norm->channels;
    const float *restrict const mean = norm->mean, *restrict const shift = norm->shift;
    for (size_t j = 0; j < c; j++) sum[j] = dot[j] = 0;
    size_t r = 0;
    for (; r + 2 <= n; r += 2, at += 2 * c) {
        fetch_row(x, at, c, narrow);
        fetch_row(x, at + c, c, narrow);
        fetch_row(g, at, c, narrow);
        fetch_row(g, at + c, c, narrow);
        for (size_t j = 0; j < c; j++) {
            const float x0 = load(x, at + j, narrow), x1 = load(x, at + c + j, narrow);
            const float g0 = passed(load(g, at + j, narrow), x0, mean[j], factor[j], shift[j], rectifies);
            const float g1 = passed(load(g, at + c + j, narrow), x1, mean[j], factor[j], shift[j], rectifies);
            sum[j] = (sum[j] + g0) + g1;
            dot[j] = (dot[j] + g0 * (x0 - mean[j])) + g1 * (x1 - mean[j]);
        }
    }
    for (; r < n; r++, at += c)
        for (size_t j = 0; j < c; j++) {
            const float x0 = load(x, at + j, narrow);
            const float g0 = passed(load(g, at + j, narrow), x0, mean[j], factor[j], shift[j], rectifies);
            sum[j] += g0;
            dot[j] += g0 * (x0 - mean[j]);
        }
}

INLINE void parameter_gradients(const tandem_batchnorm *norm, float *gscale, float *gshift,
                                const float *factor, const void *g, const void *x, int narrow, int rectifies)
{
    const size_t c = norm->channels, step = chunk_rows(c);
    float *const sum = norm->workspace + c, *const dot = sum + c;
    for (size_t j = 0; j < c; j++) gscale[j] = gshift[j] = 0;
    for (size_t from = 0; from < norm->rows; from += step) {
        add_gradients(norm, sum, dot, factor, g, x, from * c, smaller(step, norm->rows - from), narrow, rectifies);
        for (size_t j = 0; j < c; j++) {
            gshift[j] += sum[j];
            gscale[j] += dot[j];
        }
    }
}

INLINE void backward(const tandem_batchnorm *norm, void *restrict gx, float *restrict gscale, float *restrict gshift,
                     const void *restrict g, const void *restrict x, int narrow, int rectifies)
{
    const size_t c = norm->channels, step = chunk_rows(c);
    const float *const mean = norm->mean, *const shift = norm->shift;
    float *const factor = norm->workspace, *const sum = factor + c, *const dot = sum + c;
    find_factors(factor, norm, norm->scale);
    parameter_gradients(norm, gscale, gshift, factor, g, x, narrow, rectifies);
    find_factors(dot, norm, NULL);
    for (size_t j = 0; j < c; j++) {
        const float inverse = dot[j]; /* of the deviation */
        gscale[j] *= inverse;
        sum[j] = gshift[j] / (float)norm->rows;
        dot[j] = gscale[j] * inverse / (float)norm->rows;
    }
    for (size_t end = norm->rows, from; end > 0; end = from) {
        from = chunk_before(end, step);
        for (size_t at = from * c; at < end * c; at += c) {
            fetch_row(x, at, c, narrow);
            fetch_row(g, at, c, narrow);
            ISA_ELEMENTWISE
            for (size_t j = 0; j < c; j++) {
                const float value = load(x, at + j, narrow);
                const float gradient =
                    passed(load(g, at + j, narrow), value, mean[j], factor[j], shift[j], rectifies);
                store(gx, at + j, factor[j] * ((gradient - sum[j]) - (value - mean[j]) * dot[j]), narrow);
            }
        }
    }
}

void ISA(batchnorm_backward_f32)(const tandem_batchnorm *norm, float *gx, float *gscale, float *gshift,
                                 const float *g, const float *x)
{
    if (norm->rectifies)
        backward(norm, gx, gscale, gshift, g, x, 0, 1);
    else
        backward(norm, gx, gscale, gshift, g, x, 0, 0);
}

void ISA(batchnorm_backward_bf16)(const tandem_batchnorm *norm, uint16_t *gx, float *gscale, float *gshift,
                                  const uint16_t *g, const uint16_t *x)
{
    if (norm->rectifies)
        backward(norm, gx, gscale, gshift, g, x, 1, 1);
    else
        backward(norm, gx, gscale, gshift, g, x, 1, 0);
}
