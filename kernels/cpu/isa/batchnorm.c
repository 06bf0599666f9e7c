/* batchnorm.c: normalises the columns of a matrix, alone, with a relu, or with a sum and a relu, forward and
 * backward.
 *
 * Rows are processed in chunks that fit the second-level cache. Both directions read the matrix twice:
 * upwards for the sums, then downwards, because the last rows are still in the cache. The rows of a chunk are
 * summed in order, and so are the chunks, on every instruction set: so the bits agree.
 *
 * bf16 numbers are read and written as 32-bit words of two neighbouring channels. Each is one operation away
 * from its f32; widening and narrowing whole vectors would take more time than all the rest. Per-channel
 * values are ordered accordingly, those of the lower halves first. An odd number of channels is processed one
 * by one. */
#include "kernels/cpu/isa/isa.h"

enum { CHUNK_ELEMENTS = 1 << 14 };
enum { LINE = 64, LONG_ROW = 512, AHEAD = 4096 }; /* bytes */
enum { BLOCK = 128 };                             /* places */
enum { UPPER = (int)0xFFFF0000 };

typedef uint32_t __attribute__((may_alias, aligned(2))) bf16_pair;

/* The operators after the norm. In the backward pass of a relu alone, g passes where the recomputed result is
 * above zero; after a sum, where the stored result is. */
enum epilogue { NO_EPILOGUE, RELU, SUM_RELU };

/* `narrow…`, `paired` and `epilogue` are constants at every inlined call: one source gives all kernels. */
#define INLINE static inline __attribute__((always_inline))

/* Numbers of one row: place k of those that lie first, and of the others where they are in pairs. */
typedef struct channel_pair {
    float first, second;
} channel_pair;

/* Of the row that begins at element `at`. */
INLINE channel_pair load_pair(const void *x, size_t at, size_t k, int paired, int narrow)
{
    const float *const wide = (const float *)x + at;
    if (!paired) return (channel_pair){narrow ? float_of_bf16(((const uint16_t *)x)[at + k]) : wide[k], 0.0f};
    if (!narrow) return (channel_pair){wide[2 * k], wide[2 * k + 1]};
    const uint32_t both = ((const bf16_pair *)((const uint16_t *)x + at))[k];
    return (channel_pair){float_of_bits(both << 16), float_of_bits(both & (uint32_t)UPPER)};
}

INLINE void store_pair(void *y, size_t at, size_t k, channel_pair value, int paired, int narrow)
{
    float *const wide = (float *)y + at;
    uint16_t *const half = (uint16_t *)y + at;
    if (paired && narrow)
        ((bf16_pair *)half)[k] =
            bf16_in_upper(value.first) >> 16 | (bf16_in_upper(value.second) & (uint32_t)UPPER);
    else if (narrow)
        half[k] = bf16_of_float(value.first);
    else if (paired)
        wide[2 * k] = value.first, wide[2 * k + 1] = value.second;
    else
        wide[k] = value.first;
}

static size_t n_first(size_t channels, int paired) { return paired ? channels / 2 : channels; }

/* What belongs to channels, from their order to that of the loops, and back. */
static void to_loop_order(float *restrict to, const float *restrict from, size_t channels, int paired)
{
    const size_t n = n_first(channels, paired);
    for (size_t k = 0; k < n; k++) to[k] = from[paired ? 2 * k : k];
    for (size_t k = n; k < channels; k++) to[k] = from[2 * (k - n) + 1];
}

static void from_loop_order(float *restrict to, const float *restrict from, size_t channels, int paired)
{
    const size_t n = n_first(channels, paired);
    for (size_t k = 0; k < n; k++) to[paired ? 2 * k : k] = from[k];
    for (size_t k = n; k < channels; k++) to[2 * (k - n) + 1] = from[k];
}

/* Asks memory for the n elements that lie `ahead` bytes after element i. It would else idle while a chunk
 * is summed a second time; and where rows are long the hardware's own guesses come late (measured: a third
 * less time forward, a sixth backward, and another tenth where what is written is asked for, too); short rows
 * are better left to them. */
INLINE void prefetch_rows(const void *x, size_t i, size_t n, size_t ahead, int narrow)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    const char *const from = (const char *)x + i * size + ahead;
    for (size_t byte = 0; byte < n * size; byte += LINE) __builtin_prefetch(from + byte, 0, 2);
}

/* Places of a row between two requests: memory answers a few lines at a time, and all of a long row's at once
 * would wait. */
static size_t prefetch_width(size_t width) { return width % BLOCK == 0 ? BLOCK : width; }

/* The n places from `begin` on of the row that begins at element `at`. */
INLINE void prefetch_block(const void *x, size_t at, size_t begin, size_t n, int paired, int narrow)
{
    const size_t width = paired ? 2 : 1;
    if (n * width * (narrow ? sizeof(uint16_t) : sizeof(float)) >= LONG_ROW)
        prefetch_rows(x, at + begin * width, n * width, AHEAD, narrow);
}

static size_t chunk_rows(size_t channels)
{
    return channels > 0 && channels < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / channels : 1;
}

/* Elements from a row to the next. */
static size_t norm_row(const tandem_batchnorm *norm) { return norm->row > 0 ? norm->row : norm->channels; }

static size_t smaller_size(size_t a, size_t b) { return a < b ? a : b; }

/* Beginning of the chunk before that which begins at `from`; chunks begin at multiples of `step`. */
static size_t chunk_before(size_t from, size_t step) { return (from - 1) / step * step; }

/* --- Forward -------------------------------------------------------------------------------------------- */

/* sum[j] = Σ x[r][j], of n rows, `row` elements apart. */
INLINE void sum_rows(float *restrict sum, const void *restrict x, size_t at, size_t n, size_t c, size_t row,
                     int paired, int narrow)
{
    const size_t half = n_first(c, paired);
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * row) {
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow),
                               x1 = load_pair(x, at + row, k, paired, narrow);
            const channel_pair x2 = load_pair(x, at + 2 * row, k, paired, narrow),
                               x3 = load_pair(x, at + 3 * row, k, paired, narrow);
            sum[k] = (((sum[k] + x0.first) + x1.first) + x2.first) + x3.first;
            if (paired) sum[half + k] = (((sum[half + k] + x0.second) + x1.second) + x2.second) + x3.second;
        }
    }
    for (; r < n; r++, at += row) {
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow);
            sum[k] += x0.first;
            if (paired) sum[half + k] += x0.second;
        }
    }
}

INLINE float square_f32(float x) { return x * x; }

/* sum[j] = Σ (x[r][j] − mean[j])²; meanwhile the next chunk comes from memory. */
INLINE void sum_centred_squares(float *restrict sum, const float *restrict mean, const void *restrict x,
                                size_t at, size_t n, size_t c, size_t row, int paired, int narrow)
{
    const size_t half = n_first(c, paired);
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * row) {
        if (row == c)
            prefetch_rows(x, at + n * c, 4 * c, 0, narrow);
        else
            for (size_t k = 0; k < 4; k++) prefetch_rows(x, at + (n + k) * row, c, 0, narrow);
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow),
                               x1 = load_pair(x, at + row, k, paired, narrow);
            const channel_pair x2 = load_pair(x, at + 2 * row, k, paired, narrow),
                               x3 = load_pair(x, at + 3 * row, k, paired, narrow);
            const float m = mean[k], m_second = paired ? mean[half + k] : 0;
            sum[k] = (((sum[k] + square_f32(x0.first - m)) + square_f32(x1.first - m)) +
                      square_f32(x2.first - m)) +
                     square_f32(x3.first - m);
            if (paired)
                sum[half + k] =
                    (((sum[half + k] + square_f32(x0.second - m_second)) + square_f32(x1.second - m_second)) +
                     square_f32(x2.second - m_second)) +
                    square_f32(x3.second - m_second);
        }
    }
    for (; r < n; r++, at += row) {
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow);
            sum[k] += square_f32(x0.first - mean[k]);
            if (paired) sum[half + k] += square_f32(x0.second - mean[half + k]);
        }
    }
}

/* Mean and sum of squared distances of two parts together. Source: Chan, Golub, LeVeque, "Algorithms for
 * computing the sample variance", The American Statistician 37 (1983). */
static void merge_variance(float *restrict mean, float *restrict squares, const float *restrict part_mean,
                           const float *restrict part_squares, size_t before, size_t n, size_t c)
{
    const float share = (float)n / (float)(before + n), weight = (float)before * share;
    for (size_t j = 0; j < c; j++) {
        const float distance = part_mean[j] - mean[j];
        mean[j] += distance * share;
        squares[j] += part_squares[j] + distance * distance * weight;
    }
}

/* part: (2, channels) to work in. */
INLINE void batch_statistics(const tandem_batchnorm *norm, float *mean, float *squares, float *part,
                             const void *x, int paired, int narrow)
{
    const size_t c = norm->channels, row = norm_row(norm), step = chunk_rows(row);
    float *const part_mean = part, *const part_squares = part + c;
    for (size_t j = 0; j < c; j++) mean[j] = squares[j] = 0;
    for (size_t from = 0; from < norm->rows; from += step) {
        const size_t n = smaller_size(step, norm->rows - from);
        sum_rows(part_mean, x, from * row, n, c, row, paired, narrow);
        for (size_t j = 0; j < c; j++) part_mean[j] /= (float)n;
        sum_centred_squares(part_squares, part_mean, x, from * row, n, c, row, paired, narrow);
        merge_variance(mean, squares, part_mean, part_squares, from, n, c);
    }
    for (size_t j = 0; j < c; j++) squares[j] /= (float)norm->rows;
}

/* 1/√(variance + ε) */
static void inverse_deviations(float *inverse, const tandem_batchnorm *norm)
{
    for (size_t j = 0; j < norm->channels; j++)
        inverse[j] = 1.0f / __builtin_sqrtf(norm->variance[j] + norm->epsilon);
}

/* scale/√(variance + ε) */
static void norm_factors(float *factor, const tandem_batchnorm *norm)
{
    for (size_t j = 0; j < norm->channels; j++)
        factor[j] = norm->scale[j] / __builtin_sqrtf(norm->variance[j] + norm->epsilon);
}

INLINE float normalise_one(float x, float mean, float factor, float shift)
{
    return (x - mean) * factor + shift;
}

INLINE float apply_epilogue(float value, enum epilogue epilogue)
{
    return epilogue != NO_EPILOGUE && value < 0.0f ? 0.0f : value;
}

INLINE void batchnorm_rows(const tandem_batchnorm *norm, void *restrict y, const void *restrict x,
                           const void *restrict residual, int paired, int narrow, enum epilogue epilogue)
{
    const size_t c = norm->channels, row = norm_row(norm), step = chunk_rows(row), half = n_first(c, paired),
                 block = prefetch_width(half);
    float *restrict const mean = norm->workspace, *restrict const factor = mean + c,
                          *restrict const shift = factor + c,
                          *restrict const part = shift + c; /* (2, channels) */
    batch_statistics(norm, mean, factor, part, x, paired, narrow);
    from_loop_order(norm->mean, mean, c, paired);
    from_loop_order(norm->variance, factor, c, paired);
    norm_factors(part, norm);
    to_loop_order(factor, part, c, paired);
    to_loop_order(shift, norm->shift, c, paired);
    for (size_t end = norm->rows, from; end > 0; end = from) {
        from = chunk_before(end, step);
        for (size_t at = from * row; at < end * row; at += row)
            for (size_t begin = 0; begin < half; begin += block) {
                prefetch_block(x, at, begin, block, paired, narrow);
                prefetch_block(y, at, begin, block, paired, narrow);
                if (epilogue == SUM_RELU) prefetch_block(residual, at, begin, block, paired, narrow);
                ISA_ELEMENTWISE
                for (size_t k = begin; k < begin + block; k++) {
                    const channel_pair value = load_pair(x, at, k, paired, narrow);
                    channel_pair out = {normalise_one(value.first, mean[k], factor[k], shift[k]), 0.0f};
                    if (paired)
                        out.second =
                            normalise_one(value.second, mean[half + k], factor[half + k], shift[half + k]);
                    if (epilogue == SUM_RELU) {
                        const channel_pair other = load_pair(residual, at, k, paired, narrow);
                        out.first += other.first;
                        out.second += other.second;
                    }
                    out = (channel_pair){apply_epilogue(out.first, epilogue),
                                         apply_epilogue(out.second, epilogue)};
                    store_pair(y, at, k, out, paired, narrow);
                }
            }
    }
}

INLINE void batchnorm_rows_bf16(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x,
                                const uint16_t *residual, enum epilogue epilogue)
{
    if (norm->channels % 2)
        batchnorm_rows(norm, y, x, residual, 0, 1, epilogue);
    else
        batchnorm_rows(norm, y, x, residual, 1, 1, epilogue);
}

void ISA(batchnorm_f32)(const tandem_batchnorm *norm, float *y, const float *x)
{
    if (norm->has_relu)
        batchnorm_rows(norm, y, x, NULL, 0, 0, RELU);
    else
        batchnorm_rows(norm, y, x, NULL, 0, 0, NO_EPILOGUE);
}

void ISA(batchnorm_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x)
{
    if (norm->has_relu)
        batchnorm_rows_bf16(norm, y, x, NULL, RELU);
    else
        batchnorm_rows_bf16(norm, y, x, NULL, NO_EPILOGUE);
}

void ISA(batchnorm_add_f32)(const tandem_batchnorm *norm, float *y, const float *x, const float *residual)
{
    batchnorm_rows(norm, y, x, residual, 0, 0, SUM_RELU);
}

void ISA(batchnorm_add_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x,
                             const uint16_t *residual)
{
    batchnorm_rows_bf16(norm, y, x, residual, SUM_RELU);
}

/* --- Backward ------------------------------------------------------------------------------------------- */

/* The inputs of a backward pass, and the residual's gradient. */
typedef struct backward_pass {
    const tandem_batchnorm *norm;
    const void *g, *x, *y; /* y: of a SUM */
    void *residual;        /* of a SUM */
    /* (channels) in the order of the loops; factor: scale/√(variance + ε) */
    const float *mean, *factor, *shift;
    enum epilogue epilogue;
    int paired, narrow, narrow_residual; /* narrow: g, x and y */
} backward_pass;

INLINE float relu_gradient(float g, float result) { return result > 0.0f ? g : 0.0f; }

/* The gradient before the operators that follow the norm. */
INLINE channel_pair epilogue_gradient(const backward_pass *b, size_t at, size_t k, channel_pair x)
{
    const size_t j = n_first(b->norm->channels, b->paired) + k;
    const channel_pair g = load_pair(b->g, at, k, b->paired, b->narrow);
    if (b->epilogue == NO_EPILOGUE) return g;
    if (b->epilogue == SUM_RELU) {
        const channel_pair y = load_pair(b->y, at, k, b->paired, b->narrow);
        return (channel_pair){relu_gradient(g.first, y.first), relu_gradient(g.second, y.second)};
    }
    channel_pair out = {relu_gradient(g.first, normalise_one(x.first, b->mean[k], b->factor[k], b->shift[k])),
                        0.0f};
    if (b->paired)
        out.second = relu_gradient(g.second, normalise_one(x.second, b->mean[j], b->factor[j], b->shift[j]));
    return out;
}

/* The same; also stores the residual's gradient. */
INLINE channel_pair gradient_and_residual(const backward_pass *b, size_t at, size_t k, channel_pair x)
{
    const channel_pair g = epilogue_gradient(b, at, k, x);
    if (b->epilogue == SUM_RELU) store_pair(b->residual, at, k, g, b->paired, b->narrow_residual);
    return g;
}

INLINE void prefetch_gradient(const backward_pass *b, size_t at, size_t begin, size_t n)
{
    prefetch_block(b->x, at, begin, n, b->paired, b->narrow);
    prefetch_block(b->g, at, begin, n, b->paired, b->narrow);
    if (b->epilogue == SUM_RELU) prefetch_block(b->y, at, begin, n, b->paired, b->narrow);
}

/* sum[j] = Σ g, dot[j] = Σ g·(x − mean[j]), over n rows; two at a time where few arrays are gone through at
 * once. */
INLINE void sum_gradients(const backward_pass *b, float *restrict sum, float *restrict dot, size_t at,
                          size_t n)
{
    const size_t c = b->norm->channels, row = norm_row(b->norm), half = n_first(c, b->paired),
                 block = prefetch_width(half);
    const float *restrict const mean = b->mean;
    for (size_t j = 0; j < c; j++) sum[j] = dot[j] = 0;
    const size_t end = at + n * row;
    for (; b->epilogue != SUM_RELU && at + row < end; at += 2 * row)
        for (size_t begin = 0; begin < half; begin += block) {
            prefetch_gradient(b, at, begin, block);
            prefetch_gradient(b, at + row, begin, block);
            ISA_ELEMENTWISE
            for (size_t k = begin; k < begin + block; k++) {
                const channel_pair x0 = load_pair(b->x, at, k, b->paired, b->narrow),
                                   x1 = load_pair(b->x, at + row, k, b->paired, b->narrow);
                const channel_pair g0 = gradient_and_residual(b, at, k, x0),
                                   g1 = gradient_and_residual(b, at + row, k, x1);
                sum[k] = (sum[k] + g0.first) + g1.first;
                dot[k] = (dot[k] + g0.first * (x0.first - mean[k])) + g1.first * (x1.first - mean[k]);
                if (!b->paired) continue;
                sum[half + k] = (sum[half + k] + g0.second) + g1.second;
                dot[half + k] = (dot[half + k] + g0.second * (x0.second - mean[half + k])) +
                                g1.second * (x1.second - mean[half + k]);
            }
        }
    for (; at < end; at += row)
        for (size_t begin = 0; begin < half; begin += block) {
            prefetch_gradient(b, at, begin, block);
            if (b->epilogue == SUM_RELU)
                prefetch_block(b->residual, at, begin, block, b->paired, b->narrow_residual);
            ISA_ELEMENTWISE
            for (size_t k = begin; k < begin + block; k++) {
                const channel_pair x = load_pair(b->x, at, k, b->paired, b->narrow),
                                   g = gradient_and_residual(b, at, k, x);
                sum[k] += g.first;
                dot[k] += g.first * (x.first - mean[k]);
                if (!b->paired) continue;
                sum[half + k] += g.second;
                dot[half + k] += g.second * (x.second - mean[half + k]);
            }
        }
}

/* Of all rows; part: (2, channels) to work in. */
INLINE void total_gradients(const backward_pass *b, float *restrict sum, float *restrict dot,
                            float *restrict part)
{
    const size_t c = b->norm->channels, row = norm_row(b->norm), step = chunk_rows(row);
    for (size_t j = 0; j < c; j++) sum[j] = dot[j] = 0;
    for (size_t from = 0; from < b->norm->rows; from += step) {
        sum_gradients(b, part, part + c, from * row, smaller_size(step, b->norm->rows - from));
        for (size_t j = 0; j < c; j++) {
            sum[j] += part[j];
            dot[j] += part[c + j];
        }
    }
}

/* gx, with sum[j] and dot[j] the means that are taken out of the gradient. */
INLINE void write_gradient(const backward_pass *b, void *restrict gx, int narrow_gx,
                           const float *restrict sum, const float *restrict dot)
{
    const size_t c = b->norm->channels, row = norm_row(b->norm), step = chunk_rows(row),
                 half = n_first(c, b->paired), block = prefetch_width(half);
    const float *restrict const mean = b->mean, *restrict const factor = b->factor;
    for (size_t end = b->norm->rows, from; end > 0; end = from) {
        from = chunk_before(end, step);
        for (size_t at = from * row; at < end * row; at += row)
            for (size_t begin = 0; begin < half; begin += block) {
                prefetch_gradient(b, at, begin, block);
                prefetch_block(gx, at, begin, block, b->paired, narrow_gx);
                ISA_ELEMENTWISE
                for (size_t k = begin; k < begin + block; k++) {
                    const size_t j = half + k;
                    const channel_pair x = load_pair(b->x, at, k, b->paired, b->narrow),
                                       g = epilogue_gradient(b, at, k, x);
                    channel_pair out = {factor[k] * ((g.first - sum[k]) - (x.first - mean[k]) * dot[k]),
                                        0.0f};
                    if (b->paired)
                        out.second = factor[j] * ((g.second - sum[j]) - (x.second - mean[j]) * dot[j]);
                    store_pair(gx, at, k, out, b->paired, narrow_gx);
                }
            }
    }
}

/* b is as its caller made it, without what belongs to channels. What a residual was given as it is, is read
 * again instead of g and y. */
INLINE void norm_backward(backward_pass b, const tandem_batchnorm_gradients *out, int narrow_gx)
{
    const tandem_batchnorm *norm = b.norm;
    const size_t c = norm->channels;
    float *const mean = norm->workspace, *const factor = mean + c, *const shift = factor + c,
                 *const sum = shift + c, *const dot = sum + c,
                 *const part = dot + c; /* part: (2, channels) */
    norm_factors(part, norm);
    to_loop_order(factor, part, c, b.paired);
    to_loop_order(mean, norm->mean, c, b.paired);
    if (b.epilogue == RELU) to_loop_order(shift, norm->shift, c, b.paired);
    b.mean = mean, b.factor = factor, b.shift = shift;
    total_gradients(&b, sum, dot, part);
    from_loop_order(out->shift, sum, c, b.paired);
    from_loop_order(out->scale, dot, c, b.paired);
    inverse_deviations(part, norm);
    for (size_t j = 0; j < c; j++) {
        out->scale[j] *= part[j];
        part[j] = out->scale[j] * part[j] / (float)norm->rows;
        sum[j] /= (float)norm->rows;
    }
    to_loop_order(dot, part, c, b.paired);
    if (b.epilogue == SUM_RELU && b.narrow_residual == b.narrow) {
        b.g = b.residual;
        b.epilogue = NO_EPILOGUE;
    }
    write_gradient(&b, out->x, narrow_gx, sum, dot);
}

INLINE void norm_backward_plain(backward_pass b, const tandem_batchnorm_gradients *out)
{
    b.epilogue = RELU;
    if (b.norm->has_relu) {
        norm_backward(b, out, b.narrow);
        return;
    }
    b.epilogue = NO_EPILOGUE;
    norm_backward(b, out, b.narrow);
}

void ISA(batchnorm_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                 const float *g, const float *x)
{
    norm_backward_plain((backward_pass){.norm = norm, .g = g, .x = x}, out);
}

void ISA(batchnorm_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                  const uint16_t *g, const uint16_t *x)
{
    if (norm->channels % 2)
        norm_backward_plain((backward_pass){.norm = norm, .g = g, .x = x, .narrow = 1}, out);
    else
        norm_backward_plain((backward_pass){.norm = norm, .g = g, .x = x, .narrow = 1, .paired = 1}, out);
}

/* b of a sum, but for the type of the residual's gradient. */
INLINE void norm_backward_add(backward_pass b, const tandem_batchnorm_gradients *out)
{
    b.epilogue = SUM_RELU;
    b.residual = out->residual;
    b.narrow_residual = 1;
    if (out->residual_is_bf16 && out->x_is_bf16) {
        norm_backward(b, out, 1);
        return;
    }
    if (out->residual_is_bf16) {
        norm_backward(b, out, 0);
        return;
    }
    b.narrow_residual = 0;
    if (out->x_is_bf16)
        norm_backward(b, out, 1);
    else
        norm_backward(b, out, 0);
}

void ISA(batchnorm_add_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                     const float *g, const float *x, const float *y)
{
    norm_backward_add((backward_pass){.norm = norm, .g = g, .x = x, .y = y}, out);
}

void ISA(batchnorm_add_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                      const uint16_t *g, const uint16_t *x, const uint16_t *y)
{
    if (norm->channels % 2)
        norm_backward_add((backward_pass){.norm = norm, .g = g, .x = x, .y = y, .narrow = 1}, out);
    else
        norm_backward_add((backward_pass){.norm = norm, .g = g, .x = x, .y = y, .narrow = 1, .paired = 1},
                          out);
}
