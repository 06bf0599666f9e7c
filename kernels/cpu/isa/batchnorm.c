/* batchnorm.c: normalises the columns of a matrix, alone, with a relu, or with a sum and a relu, forward and
 * backward.
 *
 * Rows are processed in chunks that fit the second-level cache. Both directions read the matrix twice:
 * upwards for the sums, then downwards, because the last rows are still in the cache. The rows of a chunk are
 * summed in order, and so are the chunks, on every instruction set: so the bits agree. The stages (isa.h) let
 * several threads share the chunks, with the same bits.
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

size_t ISA(norm_chunks)(size_t rows, size_t channels)
{
    const size_t step = chunk_rows(channels);
    return (rows + step - 1) / step;
}

/* The rows of a chunk. */
typedef struct norm_rows {
    size_t from, n;
} norm_rows;

static norm_rows rows_of_chunk(const tandem_batchnorm *norm, size_t chunk)
{
    const size_t step = chunk_rows(norm->channels), from = chunk * step, left = norm->rows - from;
    return (norm_rows){from, step < left ? step : left};
}

/* bf16 numbers are processed in pairs where the channels make pairs. */
static int is_paired(const tandem_batchnorm *norm, int is_bf16) { return is_bf16 && norm->channels % 2 == 0; }

size_t ISA(batchnorm_workspace)(size_t rows, size_t channels)
{
    (void)rows;
    return 7 * channels * sizeof(float);
}

/* --- Forward -------------------------------------------------------------------------------------------- */

/* sum[j] = Σ x[r][j], of n rows from element `at` on. */
INLINE void sum_rows(float *restrict sum, const void *restrict x, size_t at, size_t n, size_t c, int paired,
                     int narrow)
{
    const size_t half = n_first(c, paired);
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * c) {
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow),
                               x1 = load_pair(x, at + c, k, paired, narrow);
            const channel_pair x2 = load_pair(x, at + 2 * c, k, paired, narrow),
                               x3 = load_pair(x, at + 3 * c, k, paired, narrow);
            sum[k] = (((sum[k] + x0.first) + x1.first) + x2.first) + x3.first;
            if (paired) sum[half + k] = (((sum[half + k] + x0.second) + x1.second) + x2.second) + x3.second;
        }
    }
    for (; r < n; r++, at += c) {
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
                                size_t at, size_t n, size_t c, int paired, int narrow)
{
    const size_t half = n_first(c, paired);
    for (size_t j = 0; j < c; j++) sum[j] = 0;
    size_t r = 0;
    for (; r + 4 <= n; r += 4, at += 4 * c) {
        prefetch_rows(x, at + n * c, 4 * c, 0, narrow);
        ISA_ELEMENTWISE
        for (size_t k = 0; k < half; k++) {
            const channel_pair x0 = load_pair(x, at, k, paired, narrow),
                               x1 = load_pair(x, at + c, k, paired, narrow);
            const channel_pair x2 = load_pair(x, at + 2 * c, k, paired, narrow),
                               x3 = load_pair(x, at + 3 * c, k, paired, narrow);
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
    for (; r < n; r++, at += c) {
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

/* Where the per-channel values of a pass lie in the workspace, in the order of the loops. */
typedef struct norm_values {
    float *mean, *factor, *shift, *sum, *dot, *part; /* part: (2, channels) */
} norm_values;

static norm_values values_of(const tandem_batchnorm *norm)
{
    float *const first = norm->workspace;
    const size_t c = norm->channels;
    return (norm_values){first, first + c, first + 2 * c, first + 3 * c, first + 4 * c, first + 5 * c};
}

INLINE void sum_chunks(const tandem_batchnorm *norm, float *restrict parts, const void *x, size_t begin,
                       size_t end, int paired, int narrow)
{
    const size_t c = norm->channels;
    for (size_t chunk = begin; chunk < end; chunk++) {
        const norm_rows rows = rows_of_chunk(norm, chunk);
        float *const mean = parts + (chunk - begin) * 2 * c, *const squares = mean + c;
        sum_rows(mean, x, rows.from * c, rows.n, c, paired, narrow);
        for (size_t j = 0; j < c; j++) mean[j] /= (float)rows.n;
        sum_centred_squares(squares, mean, x, rows.from * c, rows.n, c, paired, narrow);
    }
}

void ISA(norm_sums)(const tandem_batchnorm *norm, const void *x, int is_bf16, float *parts, size_t begin,
                    size_t end)
{
    if (!is_bf16)
        sum_chunks(norm, parts, x, begin, end, 0, 0);
    else if (is_paired(norm, is_bf16))
        sum_chunks(norm, parts, x, begin, end, 1, 1);
    else
        sum_chunks(norm, parts, x, begin, end, 0, 1);
}

static void begin_merge(const tandem_batchnorm *norm)
{
    const norm_values v = values_of(norm);
    for (size_t j = 0; j < norm->channels; j++) v.mean[j] = v.factor[j] = 0;
}

static void merge_chunk(const tandem_batchnorm *norm, size_t chunk, const float *part)
{
    const norm_values v = values_of(norm);
    const norm_rows rows = rows_of_chunk(norm, chunk);
    merge_variance(v.mean, v.factor, part, part + norm->channels, rows.from, rows.n, norm->channels);
}

/* The batch's mean and variance, and what the rows are multiplied by and added to. */
static void end_merge(const tandem_batchnorm *norm, int is_bf16)
{
    const norm_values v = values_of(norm);
    const size_t c = norm->channels;
    const int paired = is_paired(norm, is_bf16);
    for (size_t j = 0; j < c; j++) v.factor[j] /= (float)norm->rows;
    from_loop_order(norm->mean, v.mean, c, paired);
    from_loop_order(norm->variance, v.factor, c, paired);
    norm_factors(v.part, norm);
    to_loop_order(v.factor, v.part, c, paired);
    to_loop_order(v.shift, norm->shift, c, paired);
}

void ISA(norm_merge)(const tandem_batchnorm *norm, int is_bf16, const float *parts)
{
    const size_t n = ISA(norm_chunks)(norm->rows, norm->channels);
    begin_merge(norm);
    for (size_t chunk = 0; chunk < n; chunk++) merge_chunk(norm, chunk, parts + chunk * 2 * norm->channels);
    end_merge(norm, is_bf16);
}

INLINE void write_rows(const tandem_batchnorm *norm, void *restrict y, const void *restrict x,
                       const void *restrict residual, norm_rows rows, int paired, int narrow,
                       enum epilogue epilogue)
{
    const norm_values v = values_of(norm);
    const float *restrict const mean = v.mean, *restrict const factor = v.factor,
                                *restrict const shift = v.shift;
    const size_t c = norm->channels, half = n_first(c, paired), block = prefetch_width(half);
    for (size_t at = rows.from * c; at < (rows.from + rows.n) * c; at += c)
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
                out =
                    (channel_pair){apply_epilogue(out.first, epilogue), apply_epilogue(out.second, epilogue)};
                store_pair(y, at, k, out, paired, narrow);
            }
        }
}

INLINE void write_chunks(const tandem_batchnorm *norm, void *y, const void *x, const void *residual,
                         size_t begin, size_t end, int paired, int narrow, enum epilogue epilogue)
{
    for (size_t chunk = end; chunk-- > begin;)
        write_rows(norm, y, x, residual, rows_of_chunk(norm, chunk), paired, narrow, epilogue);
}

INLINE void write_typed_chunks(const tandem_batchnorm *norm, void *y, const void *x, const void *residual,
                               size_t begin, size_t end, int paired, int narrow)
{
    if (residual)
        write_chunks(norm, y, x, residual, begin, end, paired, narrow, SUM_RELU);
    else if (norm->has_relu)
        write_chunks(norm, y, x, residual, begin, end, paired, narrow, RELU);
    else
        write_chunks(norm, y, x, residual, begin, end, paired, narrow, NO_EPILOGUE);
}

void ISA(norm_write)(const tandem_batchnorm *norm, void *y, const void *x, const void *residual, int is_bf16,
                     size_t begin, size_t end)
{
    if (!is_bf16)
        write_typed_chunks(norm, y, x, residual, begin, end, 0, 0);
    else if (is_paired(norm, is_bf16))
        write_typed_chunks(norm, y, x, residual, begin, end, 1, 1);
    else
        write_typed_chunks(norm, y, x, residual, begin, end, 0, 1);
}

static void run_forward(const tandem_batchnorm *norm, void *y, const void *x, const void *residual,
                        int is_bf16)
{
    const size_t n = ISA(norm_chunks)(norm->rows, norm->channels);
    float *const part = values_of(norm).part;
    begin_merge(norm);
    for (size_t chunk = 0; chunk < n; chunk++) {
        ISA(norm_sums)(norm, x, is_bf16, part, chunk, chunk + 1);
        merge_chunk(norm, chunk, part);
    }
    end_merge(norm, is_bf16);
    ISA(norm_write)(norm, y, x, residual, is_bf16, 0, n);
}

void ISA(batchnorm_f32)(const tandem_batchnorm *norm, float *y, const float *x)
{
    run_forward(norm, y, x, NULL, 0);
}

void ISA(batchnorm_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x)
{
    run_forward(norm, y, x, NULL, 1);
}

void ISA(batchnorm_add_f32)(const tandem_batchnorm *norm, float *y, const float *x, const float *residual)
{
    run_forward(norm, y, x, residual, 0);
}

void ISA(batchnorm_add_bf16)(const tandem_batchnorm *norm, uint16_t *y, const uint16_t *x,
                             const uint16_t *residual)
{
    run_forward(norm, y, x, residual, 1);
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
    const size_t c = b->norm->channels, half = n_first(c, b->paired), block = prefetch_width(half);
    const float *restrict const mean = b->mean;
    for (size_t j = 0; j < c; j++) sum[j] = dot[j] = 0;
    const size_t end = at + n * c;
    for (; b->epilogue != SUM_RELU && at + c < end; at += 2 * c)
        for (size_t begin = 0; begin < half; begin += block) {
            prefetch_gradient(b, at, begin, block);
            prefetch_gradient(b, at + c, begin, block);
            ISA_ELEMENTWISE
            for (size_t k = begin; k < begin + block; k++) {
                const channel_pair x0 = load_pair(b->x, at, k, b->paired, b->narrow),
                                   x1 = load_pair(b->x, at + c, k, b->paired, b->narrow);
                const channel_pair g0 = gradient_and_residual(b, at, k, x0),
                                   g1 = gradient_and_residual(b, at + c, k, x1);
                sum[k] = (sum[k] + g0.first) + g1.first;
                dot[k] = (dot[k] + g0.first * (x0.first - mean[k])) + g1.first * (x1.first - mean[k]);
                if (!b->paired) continue;
                sum[half + k] = (sum[half + k] + g0.second) + g1.second;
                dot[half + k] = (dot[half + k] + g0.second * (x0.second - mean[half + k])) +
                                g1.second * (x1.second - mean[half + k]);
            }
        }
    for (; at < end; at += c)
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

INLINE void sum_gradient_chunks(const backward_pass *b, float *restrict parts, size_t begin, size_t end)
{
    const size_t c = b->norm->channels;
    for (size_t chunk = begin; chunk < end; chunk++, parts += 2 * c) {
        const norm_rows rows = rows_of_chunk(b->norm, chunk);
        sum_gradients(b, parts, parts + c, rows.from * c, rows.n);
    }
}

/* gx of a chunk, with sum[j] and dot[j] the means that are taken out of the gradient. */
INLINE void write_gradient_rows(const backward_pass *b, void *restrict gx, int narrow_gx, norm_rows rows)
{
    const norm_values v = values_of(b->norm);
    const float *restrict const mean = v.mean, *restrict const factor = v.factor, *restrict const sum = v.sum,
                                *restrict const dot = v.dot;
    const size_t c = b->norm->channels, half = n_first(c, b->paired), block = prefetch_width(half);
    for (size_t at = rows.from * c; at < (rows.from + rows.n) * c; at += c)
        for (size_t begin = 0; begin < half; begin += block) {
            prefetch_gradient(b, at, begin, block);
            prefetch_block(gx, at, begin, block, b->paired, narrow_gx);
            ISA_ELEMENTWISE
            for (size_t k = begin; k < begin + block; k++) {
                const size_t j = half + k;
                const channel_pair x = load_pair(b->x, at, k, b->paired, b->narrow),
                                   g = epilogue_gradient(b, at, k, x);
                channel_pair out = {factor[k] * ((g.first - sum[k]) - (x.first - mean[k]) * dot[k]), 0.0f};
                if (b->paired) out.second = factor[j] * ((g.second - sum[j]) - (x.second - mean[j]) * dot[j]);
                store_pair(gx, at, k, out, b->paired, narrow_gx);
            }
        }
}

INLINE void write_gradient_chunks(const backward_pass *b, void *gx, int narrow_gx, size_t begin, size_t end)
{
    for (size_t chunk = end; chunk-- > begin;)
        write_gradient_rows(b, gx, narrow_gx, rows_of_chunk(b->norm, chunk));
}

/* The pass of a call in one of three forms of numbers; `epilogue` and the types are constants. */
INLINE backward_pass pass_of(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                             const tandem_batchnorm_gradients *out, int paired, int narrow,
                             enum epilogue epilogue, int narrow_residual)
{
    const norm_values v = values_of(norm);
    return (backward_pass){.norm = norm,
                           .g = in->g,
                           .x = in->x,
                           .y = in->y,
                           .residual = out->residual,
                           .mean = v.mean,
                           .factor = v.factor,
                           .shift = v.shift,
                           .epilogue = epilogue,
                           .paired = paired,
                           .narrow = narrow,
                           .narrow_residual = narrow_residual};
}

void ISA(norm_gradient_begin)(const tandem_batchnorm *norm, const tandem_norm_operands *in)
{
    const norm_values v = values_of(norm);
    const int paired = is_paired(norm, in->is_bf16);
    norm_factors(v.part, norm);
    to_loop_order(v.factor, v.part, norm->channels, paired);
    to_loop_order(v.mean, norm->mean, norm->channels, paired);
    if (!in->y && norm->has_relu) to_loop_order(v.shift, norm->shift, norm->channels, paired);
    for (size_t j = 0; j < norm->channels; j++) v.sum[j] = v.dot[j] = 0;
}

INLINE void sum_typed_gradients(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                                const tandem_batchnorm_gradients *out, float *parts, size_t begin, size_t end,
                                int paired, int narrow)
{
    backward_pass b = pass_of(norm, in, out, paired, narrow, NO_EPILOGUE, narrow);
    if (!in->y && !norm->has_relu) {
        sum_gradient_chunks(&b, parts, begin, end);
    } else if (!in->y) {
        b.epilogue = RELU;
        sum_gradient_chunks(&b, parts, begin, end);
    } else if (out->residual_is_bf16) {
        b.epilogue = SUM_RELU;
        b.narrow_residual = 1;
        sum_gradient_chunks(&b, parts, begin, end);
    } else {
        b.epilogue = SUM_RELU;
        b.narrow_residual = 0;
        sum_gradient_chunks(&b, parts, begin, end);
    }
}

void ISA(norm_gradient_sums)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                             const tandem_batchnorm_gradients *out, float *parts, size_t begin, size_t end)
{
    if (!in->is_bf16)
        sum_typed_gradients(norm, in, out, parts, begin, end, 0, 0);
    else if (is_paired(norm, in->is_bf16))
        sum_typed_gradients(norm, in, out, parts, begin, end, 1, 1);
    else
        sum_typed_gradients(norm, in, out, parts, begin, end, 0, 1);
}

static void add_gradient_part(const tandem_batchnorm *norm, const float *part)
{
    const norm_values v = values_of(norm);
    const size_t c = norm->channels;
    for (size_t j = 0; j < c; j++) {
        v.sum[j] += part[j];
        v.dot[j] += part[c + j];
    }
}

/* The gradients of scale and shift, and the means that are taken out of x's. */
static void end_gradient_sums(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                              const tandem_batchnorm_gradients *out)
{
    const norm_values v = values_of(norm);
    const size_t c = norm->channels;
    const int paired = is_paired(norm, in->is_bf16);
    from_loop_order(out->shift, v.sum, c, paired);
    from_loop_order(out->scale, v.dot, c, paired);
    inverse_deviations(v.part, norm);
    for (size_t j = 0; j < c; j++) {
        out->scale[j] *= v.part[j];
        v.part[j] = out->scale[j] * v.part[j] / (float)norm->rows;
        v.sum[j] /= (float)norm->rows;
    }
    to_loop_order(v.dot, v.part, c, paired);
}

void ISA(norm_gradient_merge)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                              const tandem_batchnorm_gradients *out, const float *parts)
{
    const size_t n = ISA(norm_chunks)(norm->rows, norm->channels);
    for (size_t chunk = 0; chunk < n; chunk++) add_gradient_part(norm, parts + chunk * 2 * norm->channels);
    end_gradient_sums(norm, in, out);
}

/* What a residual was given as it is, is read again instead of g and y. */
INLINE void write_typed_gradients(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                                  const tandem_batchnorm_gradients *out, size_t begin, size_t end, int paired,
                                  int narrow, int narrow_gx)
{
    backward_pass b = pass_of(norm, in, out, paired, narrow, NO_EPILOGUE, narrow);
    if (in->y && !out->residual_is_bf16 == !narrow) {
        b.g = out->residual;
        write_gradient_chunks(&b, out->x, narrow_gx, begin, end);
    } else if (in->y) {
        b.epilogue = SUM_RELU;
        write_gradient_chunks(&b, out->x, narrow_gx, begin, end);
    } else if (norm->has_relu) {
        b.epilogue = RELU;
        write_gradient_chunks(&b, out->x, narrow_gx, begin, end);
    } else {
        write_gradient_chunks(&b, out->x, narrow_gx, begin, end);
    }
}

void ISA(norm_gradient_write)(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                              const tandem_batchnorm_gradients *out, size_t begin, size_t end)
{
    const int narrow_gx = in->y ? out->x_is_bf16 : in->is_bf16, paired = is_paired(norm, in->is_bf16);
    if (!in->is_bf16 && !narrow_gx)
        write_typed_gradients(norm, in, out, begin, end, 0, 0, 0);
    else if (!in->is_bf16)
        write_typed_gradients(norm, in, out, begin, end, 0, 0, 1);
    else if (paired && narrow_gx)
        write_typed_gradients(norm, in, out, begin, end, 1, 1, 1);
    else if (paired)
        write_typed_gradients(norm, in, out, begin, end, 1, 1, 0);
    else if (narrow_gx)
        write_typed_gradients(norm, in, out, begin, end, 0, 1, 1);
    else
        write_typed_gradients(norm, in, out, begin, end, 0, 1, 0);
}

static void run_backward(const tandem_batchnorm *norm, const tandem_norm_operands *in,
                         const tandem_batchnorm_gradients *out)
{
    const size_t n = ISA(norm_chunks)(norm->rows, norm->channels);
    float *const part = values_of(norm).part;
    ISA(norm_gradient_begin)(norm, in);
    for (size_t chunk = 0; chunk < n; chunk++) {
        ISA(norm_gradient_sums)(norm, in, out, part, chunk, chunk + 1);
        add_gradient_part(norm, part);
    }
    end_gradient_sums(norm, in, out);
    ISA(norm_gradient_write)(norm, in, out, 0, n);
}

void ISA(batchnorm_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                 const float *g, const float *x)
{
    run_backward(norm, &(tandem_norm_operands){.g = g, .x = x}, out);
}

void ISA(batchnorm_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                  const uint16_t *g, const uint16_t *x)
{
    run_backward(norm, &(tandem_norm_operands){.g = g, .x = x, .is_bf16 = 1}, out);
}

void ISA(batchnorm_add_backward_f32)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                     const float *g, const float *x, const float *y)
{
    run_backward(norm, &(tandem_norm_operands){.g = g, .x = x, .y = y}, out);
}

void ISA(batchnorm_add_backward_bf16)(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                                      const uint16_t *g, const uint16_t *x, const uint16_t *y)
{
    run_backward(norm, &(tandem_norm_operands){.g = g, .x = x, .y = y, .is_bf16 = 1}, out);
}
