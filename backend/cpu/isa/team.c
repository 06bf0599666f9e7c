/* team.c: the kernels of an instruction set, each divided among the threads of a rank (team.h). Compiled once
 * per instruction set, as the kernels are (kernels/cpu/isa/isa.h).
 *
 * A kernel is divided where its results are independent: into ranges of elements, rows, columns or
 * channels. No sum is divided but a largest magnitude, which is the same in any order. So the bits are
 * those of one thread, for any number of threads. A kernel that needs a workspace gets one for each of its
 * parts. */
#include <math.h>
#include <stdatomic.h>

#include "backend/cpu/team.h"
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/gemm_s8.h"

enum {
    GRAIN = 4096,    /* elements that are worth a thread; whole blocks of random numbers */
    COLUMNS = 32,    /* of a sum: a cache line or more */
    CHANNELS = 32,   /* of convolutions */
    MAX_PART = 1024, /* at once */
    DRAWS = 8        /* of a block */
};

/* What the parts of a call share; each kernel uses what it needs. */
typedef struct team_call {
    void *to;
    const void *a, *b;
    const float *bias;
    float *sum;
    size_t n, period;
    float scale;
    const void *of; /* further arguments, of the kernel's own type */
    atomic_int failed;
} team_call;

static size_t length_of(int64_t begin, int64_t end) { return (size_t)(end - begin); }

/* Rows that are worth a thread. */
static int64_t row_grain(size_t period) { return period < GRAIN ? GRAIN / (int64_t)(period + 1) + 1 : 1; }

/* --- Elements ------------------------------------------------------------------------------------------- */

#define TEAM_OF_ONE(name, to_type, from_type)                                                                \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        ISA(name)((to_type *)c->to + begin, (const from_type *)c->a + begin, length_of(begin, end));         \
    }                                                                                                        \
    static void team_##name(to_type *y, const from_type *x, size_t n)                                        \
    {                                                                                                        \
        team_call call = {.to = y, .a = x};                                                                  \
        cpu_for((int64_t)n, GRAIN, part_of_##name, &call);                                                   \
    }

#define TEAM_OF_TWO(name, type)                                                                              \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        ISA(name)((type *)c->to + begin, (const type *)c->a + begin, (const type *)c->b + begin,             \
                  length_of(begin, end));                                                                    \
    }                                                                                                        \
    static void team_##name(type *y, const type *a, const type *b, size_t n)                                 \
    {                                                                                                        \
        team_call call = {.to = y, .a = a, .b = b};                                                          \
        cpu_for((int64_t)n, GRAIN, part_of_##name, &call);                                                   \
    }

#define TEAM_OF_SCALED(name, to_type, from_type)                                                             \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        ISA(name)                                                                                            \
        ((to_type *)c->to + begin, (const from_type *)c->a + begin, length_of(begin, end), c->scale);        \
    }                                                                                                        \
    static void team_##name(to_type *y, const from_type *x, size_t n, float scale)                           \
    {                                                                                                        \
        team_call call = {.to = y, .a = x, .scale = scale};                                                  \
        cpu_for((int64_t)n, GRAIN, part_of_##name, &call);                                                   \
    }

TEAM_OF_ONE(bf16_from_f32, uint16_t, float)
TEAM_OF_ONE(f32_from_bf16, float, uint16_t)
TEAM_OF_ONE(add_f32_to_bf16, uint16_t, float)
TEAM_OF_ONE(relu_f32, float, float)
TEAM_OF_ONE(relu_bf16, uint16_t, uint16_t)
TEAM_OF_ONE(gelu_f32, float, float)
TEAM_OF_TWO(add_f32, float)
TEAM_OF_TWO(add_bf16, uint16_t)
TEAM_OF_TWO(add_s32, int32_t)
TEAM_OF_TWO(relu_backward_f32, float)
TEAM_OF_TWO(relu_backward_bf16, uint16_t)
TEAM_OF_TWO(gelu_backward_f32, float)
TEAM_OF_SCALED(dequantise_f32, float, int8_t)
TEAM_OF_SCALED(dequantise_bf16, uint16_t, int8_t)
TEAM_OF_SCALED(f32_from_s32, float, int32_t)
TEAM_OF_SCALED(bf16_from_s32, uint16_t, int32_t)

/* --- Elements with random draws ------------------------------------------------------------------------- */

#define TEAM_OF_DROPOUT(name, type)                                                                          \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        tandem_dropout mask = *(const tandem_dropout *)c->of;                                                \
        mask.first += (uint64_t)begin;                                                                       \
        ISA(name)((type *)c->to + begin, (const type *)c->a + begin, length_of(begin, end), &mask);          \
    }                                                                                                        \
    static void team_##name(type *y, const type *x, size_t n, const tandem_dropout *mask)                    \
    {                                                                                                        \
        team_call call = {.to = y, .a = x, .of = mask};                                                      \
        cpu_for((int64_t)n, GRAIN, part_of_##name, &call);                                                   \
    }

/* The draws of the elements from `begin` on. */
static tandem_rounding rounding_from(const void *rounding, int64_t begin)
{
    tandem_rounding draws = *(const tandem_rounding *)rounding;
    draws.block += (uint32_t)(begin / DRAWS);
    return draws;
}

#define TEAM_OF_ROUNDING(name, type)                                                                         \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        const tandem_rounding draws = rounding_from(c->of, begin);                                           \
        ISA(name)                                                                                            \
        ((int8_t *)c->to + begin, (const type *)c->a + begin, length_of(begin, end), c->scale, &draws);      \
    }                                                                                                        \
    static void team_##name(int8_t *q, const type *x, size_t n, float inv_scale,                             \
                            const tandem_rounding *rounding)                                                 \
    {                                                                                                        \
        team_call call = {.to = q, .a = x, .scale = inv_scale, .of = rounding};                              \
        cpu_for((int64_t)n, GRAIN, part_of_##name, &call);                                                   \
    }

TEAM_OF_DROPOUT(dropout_f32, float)
TEAM_OF_DROPOUT(dropout_bf16, uint16_t)
TEAM_OF_ROUNDING(quantise_f32, float)
TEAM_OF_ROUNDING(quantise_bf16, uint16_t)
TEAM_OF_SCALED(quantise_nearest_f32, int8_t, float)
TEAM_OF_SCALED(quantise_nearest_bf16, int8_t, uint16_t)

/* --- The largest magnitude ------------------------------------------------------------------------------ */

/* A fixed division, so that each part has a place for its result. */
typedef struct amax_call {
    team_call call;
    int64_t n, n_part;
    float of_part[MAX_PART];
} amax_call;

static int64_t team_parts(int64_t units)
{
    const int64_t size = cpu_team_size() < MAX_PART ? cpu_team_size() : MAX_PART;
    return units < size ? units : size;
}

static int64_t part_begin(int64_t n, int64_t grain, int64_t part, int64_t n_part)
{
    const int64_t begin = (n + grain - 1) / grain * part / n_part * grain;
    return begin < n ? begin : n;
}

static float largest_of_parts(amax_call *c, size_t n, cpu_part *part)
{
    c->n = (int64_t)n;
    c->n_part = team_parts(c->n / GRAIN + (c->n % GRAIN > 0));
    if (c->n_part == 0) return 0;
    cpu_for(c->n_part, 1, part, c);
    float amax = 0;
    for (int64_t k = 0; k < c->n_part; k++)
        if (!isnan(amax) && !(c->of_part[k] <= amax)) amax = c->of_part[k];
    return amax;
}

/* `at` and `count` are the part's elements. */
#define AMAX_PARTS(name, call_of_part)                                                                       \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        amax_call *c = context;                                                                              \
        for (int64_t k = begin; k < end; k++) {                                                              \
            const int64_t at = part_begin(c->n, GRAIN, k, c->n_part);                                        \
            const size_t count = length_of(at, part_begin(c->n, GRAIN, k + 1, c->n_part));                   \
            c->of_part[k] = call_of_part;                                                                    \
        }                                                                                                    \
    }

#define TEAM_OF_AMAX(name, type)                                                                             \
    AMAX_PARTS(name, ISA(name)((const type *)c->call.a + at, count))                                         \
    static float team_##name(const type *x, size_t n)                                                        \
    {                                                                                                        \
        amax_call call = {.call = {.a = x}};                                                                 \
        return largest_of_parts(&call, n, part_of_##name);                                                   \
    }

#define TEAM_OF_ROUNDING_AMAX(name, type)                                                                    \
    static float range_of_##name(const amax_call *c, int64_t at, size_t count)                               \
    {                                                                                                        \
        const tandem_rounding draws = rounding_from(c->call.of, at);                                         \
        return ISA(name)((int8_t *)c->call.to + at, (const type *)c->call.a + at, count, c->call.scale,      \
                         &draws);                                                                            \
    }                                                                                                        \
    AMAX_PARTS(name, range_of_##name(c, at, count))                                                          \
    static float team_##name(int8_t *q, const type *x, size_t n, float inv_scale,                            \
                             const tandem_rounding *rounding)                                                \
    {                                                                                                        \
        amax_call call = {.call = {.to = q, .a = x, .scale = inv_scale, .of = rounding}};                    \
        return largest_of_parts(&call, n, part_of_##name);                                                   \
    }

#define TEAM_OF_NEAREST_AMAX(name, type)                                                                     \
    AMAX_PARTS(name,                                                                                         \
               ISA(name)((int8_t *)c->call.to + at, (const type *)c->call.a + at, count, c->call.scale))     \
    static float team_##name(int8_t *q, const type *x, size_t n, float inv_scale)                            \
    {                                                                                                        \
        amax_call call = {.call = {.to = q, .a = x, .scale = inv_scale}};                                    \
        return largest_of_parts(&call, n, part_of_##name);                                                   \
    }

TEAM_OF_AMAX(amax_f32, float)
TEAM_OF_AMAX(amax_bf16, uint16_t)
TEAM_OF_ROUNDING_AMAX(quantise_amax_f32, float)
TEAM_OF_ROUNDING_AMAX(quantise_amax_bf16, uint16_t)
TEAM_OF_NEAREST_AMAX(quantise_nearest_amax_f32, float)
TEAM_OF_NEAREST_AMAX(quantise_nearest_amax_bf16, uint16_t)

/* --- Rows, and sums of columns -------------------------------------------------------------------------- */

static int64_t rows_in(size_t n, size_t period) { return period > 0 ? (int64_t)(n / period) : 0; }

#define TEAM_OF_BIAS(name, type)                                                                             \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        const size_t at = (size_t)begin * c->period;                                                         \
        ISA(name)                                                                                            \
        ((type *)c->to + at, (const type *)c->a + at, c->bias, length_of(begin, end) * c->period,            \
         c->period);                                                                                         \
    }                                                                                                        \
    static void team_##name(type *y, const type *x, const float *bias, size_t n, size_t period)              \
    {                                                                                                        \
        team_call call = {.to = y, .a = x, .bias = bias, .period = period};                                  \
        cpu_for(rows_in(n, period), row_grain(period), part_of_##name, &call);                               \
    }

/* Columns that are worth a thread: of few rows, more. */
static int64_t column_grain(int64_t rows)
{
    return rows > 0 && rows < GRAIN / COLUMNS ? GRAIN / rows / COLUMNS * COLUMNS : COLUMNS;
}

#define TEAM_OF_COLUMN_SUM(name, of_columns, type)                                                           \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        ISA(of_columns)                                                                                      \
        (c->sum + begin, (const type *)c->a + begin, c->n, length_of(begin, end), c->period);                \
    }                                                                                                        \
    static void team_##name(float *sum, const type *g, size_t n, size_t period)                              \
    {                                                                                                        \
        const int64_t rows = rows_in(n, period);                                                             \
        team_call call = {.sum = sum, .a = g, .n = (size_t)rows, .period = period};                          \
        cpu_for((int64_t)period, column_grain(rows), part_of_##name, &call);                                 \
    }

#define TEAM_OF_BIAS_GELU_BACKWARD(name, of_columns, type)                                                   \
    static void part_of_##name(void *context, int64_t begin, int64_t end)                                    \
    {                                                                                                        \
        const team_call *c = context;                                                                        \
        ISA(of_columns)                                                                                      \
        ((type *)c->to + begin, c->sum + begin, (const type *)c->a + begin, (const type *)c->b + begin,      \
         c->bias + begin, c->n, length_of(begin, end), c->period);                                           \
    }                                                                                                        \
    static void team_##name(type *gx, float *gbias, const type *g, const type *x, const float *bias,         \
                            size_t n, size_t period)                                                         \
    {                                                                                                        \
        team_call call = {.to = gx, .sum = gbias, .a = g, .b = x, .bias = bias, .n = n, .period = period};   \
        cpu_for((int64_t)period, column_grain(rows_in(n, period)), part_of_##name, &call);                   \
    }

TEAM_OF_BIAS(bias_f32, float)
TEAM_OF_BIAS(bias_bf16, uint16_t)
TEAM_OF_BIAS(bias_gelu_f32, float)
TEAM_OF_BIAS(bias_gelu_bf16, uint16_t)
TEAM_OF_COLUMN_SUM(column_sum_f32, sum_columns_f32, float)
TEAM_OF_COLUMN_SUM(column_sum_bf16, sum_columns_bf16, uint16_t)
TEAM_OF_BIAS_GELU_BACKWARD(bias_gelu_backward_f32, bias_gelu_backward_columns_f32, float)
TEAM_OF_BIAS_GELU_BACKWARD(bias_gelu_backward_bf16, bias_gelu_backward_columns_bf16, uint16_t)

/* --- Batch normalisation: chunks of rows ---------------------------------------------------------------- */

typedef struct norm_call {
    const tandem_batchnorm *norm;
    const tandem_norm_operands *in;        /* of a backward pass */
    const tandem_batchnorm_gradients *out; /* of a backward pass */
    void *y;                               /* of a forward pass */
    const void *x, *residual;              /* of a forward pass */
    int is_bf16;
    float *parts;
} norm_call;

/* After what one thread needs. */
static float *norm_parts(const tandem_batchnorm *norm)
{
    return norm->workspace + ISA(batchnorm_workspace)(norm->rows, norm->channels) / sizeof(float);
}

static size_t team_batchnorm_workspace(size_t rows, size_t channels)
{
    return ISA(batchnorm_workspace)(rows, channels) +
           ISA(norm_chunks)(rows, channels) * 2 * channels * sizeof(float);
}

static void for_chunks(norm_call *call, cpu_part *part)
{
    cpu_for((int64_t)ISA(norm_chunks)(call->norm->rows, call->norm->channels), 1, part, call);
}

static void sum_part(void *context, int64_t begin, int64_t end)
{
    const norm_call *c = context;
    float *const parts = c->parts + (size_t)begin * 2 * c->norm->channels;
    ISA(norm_sums)(c->norm, c->x, c->is_bf16, parts, (size_t)begin, (size_t)end);
}

static void write_part(void *context, int64_t begin, int64_t end)
{
    const norm_call *c = context;
    ISA(norm_write)(c->norm, c->y, c->x, c->residual, c->is_bf16, (size_t)begin, (size_t)end);
}

static void team_norm(const tandem_batchnorm *norm, void *y, const void *x, const void *residual, int is_bf16)
{
    norm_call call = {
        .norm = norm, .y = y, .x = x, .residual = residual, .is_bf16 = is_bf16, .parts = norm_parts(norm)};
    for_chunks(&call, sum_part);
    ISA(norm_merge)(norm, is_bf16, call.parts);
    for_chunks(&call, write_part);
}

static void sum_gradient_part(void *context, int64_t begin, int64_t end)
{
    const norm_call *c = context;
    float *const parts = c->parts + (size_t)begin * 2 * c->norm->channels;
    ISA(norm_gradient_sums)(c->norm, c->in, c->out, parts, (size_t)begin, (size_t)end);
}

static void write_gradient_part(void *context, int64_t begin, int64_t end)
{
    const norm_call *c = context;
    ISA(norm_gradient_write)(c->norm, c->in, c->out, (size_t)begin, (size_t)end);
}

static void team_norm_backward(const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out,
                               const tandem_norm_operands *in)
{
    norm_call call = {.norm = norm, .in = in, .out = out, .parts = norm_parts(norm)};
    ISA(norm_gradient_begin)(norm, in);
    for_chunks(&call, sum_gradient_part);
    ISA(norm_gradient_merge)(norm, in, out, call.parts);
    for_chunks(&call, write_gradient_part);
}

#define TEAM_OF_NORM(type, suffix, bf16)                                                                     \
    static void team_batchnorm_##suffix(const tandem_batchnorm *norm, type *y, const type *x)                \
    {                                                                                                        \
        team_norm(norm, y, x, NULL, bf16);                                                                   \
    }                                                                                                        \
    static void team_batchnorm_add_##suffix(const tandem_batchnorm *norm, type *y, const type *x,            \
                                            const type *residual)                                            \
    {                                                                                                        \
        team_norm(norm, y, x, residual, bf16);                                                               \
    }                                                                                                        \
    static void team_batchnorm_backward_##suffix(                                                            \
        const tandem_batchnorm *norm, const tandem_batchnorm_gradients *out, const type *g, const type *x)   \
    {                                                                                                        \
        team_norm_backward(norm, out, &(tandem_norm_operands){.g = g, .x = x, .is_bf16 = bf16});             \
    }                                                                                                        \
    static void team_batchnorm_add_backward_##suffix(const tandem_batchnorm *norm,                           \
                                                     const tandem_batchnorm_gradients *out, const type *g,   \
                                                     const type *x, const type *y)                           \
    {                                                                                                        \
        team_norm_backward(norm, out, &(tandem_norm_operands){.g = g, .x = x, .y = y, .is_bf16 = bf16});     \
    }

TEAM_OF_NORM(float, f32, 0)
TEAM_OF_NORM(uint16_t, bf16, 1)

/* --- Updates -------------------------------------------------------------------------------------------- */

typedef struct update_call {
    float *w, *m, *v;
    const float *g;
    float rate, beta1, beta2, epsilon, decay, correction1, correction2; /* beta1: or the momentum */
    atomic_int has_nonfinite;
} update_call;

static void note_update(update_call *c, int is_finite)
{
    if (!is_finite) atomic_store_explicit(&c->has_nonfinite, 1, memory_order_relaxed);
}

static void part_of_sgd(void *context, int64_t begin, int64_t end)
{
    update_call *c = context;
    note_update(c, ISA(sgd)(c->w + begin, c->v + begin, c->g + begin, length_of(begin, end), c->rate,
                            c->beta1, c->decay));
}

static void part_of_adamw(void *context, int64_t begin, int64_t end)
{
    update_call *c = context;
    note_update(c, ISA(adamw)(c->w + begin, c->m + begin, c->v + begin, c->g + begin, length_of(begin, end),
                              c->rate, c->beta1, c->beta2, c->epsilon, c->decay, c->correction1,
                              c->correction2));
}

static int team_sgd(float *w, float *v, const float *g, size_t n, float rate, float momentum, float decay)
{
    update_call call = {.w = w, .v = v, .g = g, .rate = rate, .beta1 = momentum, .decay = decay};
    cpu_for((int64_t)n, GRAIN, part_of_sgd, &call);
    return !atomic_load_explicit(&call.has_nonfinite, memory_order_relaxed);
}

static int team_adamw(float *w, float *m, float *v, const float *g, size_t n, float rate, float beta1,
                      float beta2, float epsilon, float decay, float correction1, float correction2)
{
    update_call call = {.w = w,
                        .m = m,
                        .v = v,
                        .g = g,
                        .rate = rate,
                        .beta1 = beta1,
                        .beta2 = beta2,
                        .epsilon = epsilon,
                        .decay = decay,
                        .correction1 = correction1,
                        .correction2 = correction2};
    cpu_for((int64_t)n, GRAIN, part_of_adamw, &call);
    return !atomic_load_explicit(&call.has_nonfinite, memory_order_relaxed);
}

/* --- Products: rows or columns of C, each part with a workspace of its own ------------------------------ */

/* A kernel, and how many rows and columns of C it computes together. */
typedef struct gemm_kernel {
    void (*s8)(const tandem_product_s8 *product);
    void (*bf16)(const tandem_product_bf16 *product); /* one of the two */
    size_t (*workspace)(int64_t m, int64_t n, int64_t k);
    int64_t rows, columns;
    int by_longer; /* each part packs all of the operand that is not divided: the shorter one */
} gemm_kernel;

typedef struct gemm_division {
    int by_columns;
    int64_t grain, n_part;
    size_t of_part; /* bytes of workspace */
} gemm_division;

static gemm_division divide_gemm(const gemm_kernel *kernel, int64_t m, int64_t n, int64_t k)
{
    const int64_t row_units = (m + kernel->rows - 1) / kernel->rows,
                  column_units = (n + kernel->columns - 1) / kernel->columns;
    const int by_columns = kernel->by_longer ? row_units < column_units
                                             : row_units < cpu_team_size() && column_units > row_units;
    const int64_t units = by_columns ? column_units : row_units,
                  grain = by_columns ? kernel->columns : kernel->rows;
    int64_t n_part = team_parts(units);
    if (n_part < 1 || m * n * k < (int64_t)GRAIN * 16) n_part = 1;
    const int64_t most = (units + n_part - 1) / n_part * grain;
    const size_t bytes = by_columns ? kernel->workspace(m, most < n ? most : n, k)
                                    : kernel->workspace(most < m ? most : m, n, k);
    return (gemm_division){by_columns, grain, n_part, (bytes + 63) / 64 * 64};
}

static size_t divided_workspace(const gemm_kernel *kernel, int64_t m, int64_t n, int64_t k)
{
    const gemm_division by = divide_gemm(kernel, m, n, k);
    return (size_t)by.n_part * by.of_part;
}

typedef struct gemm_call {
    const gemm_kernel *kernel;
    const void *product;
    gemm_division by;
} gemm_call;

/* The rows or columns of a part, of m or n. */
typedef struct gemm_range {
    int64_t begin, count;
} gemm_range;

static gemm_range range_of_part(const gemm_division *by, int64_t m, int64_t n, int64_t part)
{
    const int64_t whole = by->by_columns ? n : m, begin = part_begin(whole, by->grain, part, by->n_part);
    return (gemm_range){begin, part_begin(whole, by->grain, part + 1, by->n_part) - begin};
}

static void part_of_gemm_s8(void *context, int64_t first, int64_t end)
{
    const gemm_call *c = context;
    for (int64_t part = first; part < end; part++) {
        tandem_product_s8 p = *(const tandem_product_s8 *)c->product;
        const gemm_range range = range_of_part(&c->by, p.m, p.n, part);
        const int64_t bytes = p.c_type == TANDEM_BF16 ? 2 : 4;
        p.workspace = (char *)p.workspace + (size_t)part * c->by.of_part;
        if (c->by.by_columns) {
            p.n = range.count;
            p.b += range.begin * p.b_column;
            p.c = (char *)p.c + range.begin * bytes;
            if (p.column_scale) p.column_scale += range.begin;
            if (p.bias) p.bias += range.begin;
        } else {
            p.m = range.count;
            p.a += range.begin * p.a_row;
            p.c = (char *)p.c + range.begin * p.c_row * bytes;
            if (p.row_scale) p.row_scale += range.begin;
        }
        c->kernel->s8(&p);
    }
}

static void divide_s8(const gemm_kernel *kernel, const tandem_product_s8 *product)
{
    gemm_call call = {kernel, product, divide_gemm(kernel, product->m, product->n, product->k)};
    cpu_for(call.by.n_part, 1, part_of_gemm_s8, &call);
}

static const gemm_kernel of_s8 = {
    .s8 = ISA(gemm_s8), .workspace = ISA(gemm_s8_workspace), .rows = A_SLOTS, .columns = TILE_COLUMNS};

static void team_gemm_s8(const tandem_product_s8 *product) { divide_s8(&of_s8, product); }

static size_t team_gemm_s8_workspace(int64_t m, int64_t n, int64_t k)
{
    return divided_workspace(&of_s8, m, n, k);
}

#if defined __AVX512VNNI__

static void part_of_gemm_bf16(void *context, int64_t first, int64_t end)
{
    const gemm_call *c = context;
    for (int64_t part = first; part < end; part++) {
        tandem_product_bf16 p = *(const tandem_product_bf16 *)c->product;
        const gemm_range range = range_of_part(&c->by, p.m, p.n, part);
        p.workspace = (char *)p.workspace + (size_t)part * c->by.of_part;
        if (c->by.by_columns) {
            p.n = range.count;
            p.b += range.begin * p.b_column;
            p.c += range.begin;
            if (p.bias) p.bias += range.begin;
        } else {
            p.m = range.count;
            p.a += range.begin * p.a_row;
            p.c += range.begin * p.c_row;
        }
        c->kernel->bf16(&p);
    }
}

static const gemm_kernel tiles_of_s8 = {.s8 = ISA(gemm_s8_amx),
                                        .workspace = ISA(gemm_s8_amx_workspace),
                                        .rows = TILE_COLUMNS,
                                        .columns = TILE_COLUMNS,
                                        .by_longer = 1},
                         tiles_of_bf16 = {.bf16 = ISA(gemm_bf16_amx),
                                          .workspace = ISA(gemm_bf16_amx_workspace),
                                          .rows = TILE_COLUMNS,
                                          .columns = TILE_COLUMNS,
                                          .by_longer = 1};

static void team_gemm_s8_amx(const tandem_product_s8 *product) { divide_s8(&tiles_of_s8, product); }

static size_t team_gemm_s8_amx_workspace(int64_t m, int64_t n, int64_t k)
{
    return divided_workspace(&tiles_of_s8, m, n, k);
}

static void team_gemm_bf16_amx(const tandem_product_bf16 *product)
{
    gemm_call call = {&tiles_of_bf16, product,
                      divide_gemm(&tiles_of_bf16, product->m, product->n, product->k)};
    cpu_for(call.by.n_part, 1, part_of_gemm_bf16, &call);
}

static size_t team_gemm_bf16_amx_workspace(int64_t m, int64_t n, int64_t k)
{
    return divided_workspace(&tiles_of_bf16, m, n, k);
}

#endif

/* --- Convolutions: images, or channels of the result ---------------------------------------------------- */

#if defined __AVX512BW__

/* Each part transforms the weights it multiplies by, and the images that it reads: images are divided where
 * there are more tiles than channels, and enough images. A weight's gradient is a sum over images. */
static int by_images(const tandem_winograd *w)
{
    const int64_t tiles = w->n * ((w->height + 3) / 4) * ((w->width + 3) / 4);
    return !w->is_wgrad && w->n >= cpu_team_size() && tiles > w->to;
}

static int64_t winograd_parts(const tandem_winograd *w)
{
    return by_images(w) ? team_parts(w->n) : team_parts(w->to / CHANNELS);
}

static tandem_winograd winograd_part(const tandem_winograd *whole, int64_t part, int64_t n_part)
{
    tandem_winograd w = *whole;
    if (!by_images(whole)) {
        w.to_begin = part_begin(whole->to, CHANNELS, part, n_part);
        w.to_end = part_begin(whole->to, CHANNELS, part + 1, n_part);
        return w;
    }
    const int64_t begin = part_begin(whole->n, 1, part, n_part), image = whole->height * whole->width;
    w.n = part_begin(whole->n, 1, part + 1, n_part) - begin;
    if (!w.x) return w; /* its size is asked for */
    w.x = (const char *)w.x + begin * image * w.from * (w.from_bf16 ? 2 : 4);
    w.y = (char *)w.y + begin * image * w.to * (w.to_bf16 ? 2 : 4);
    return w;
}

static size_t round_to_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t most_of_winograd(const tandem_winograd *w)
{
    const int64_t n_part = winograd_parts(w);
    size_t most = 0;
    for (int64_t k = 0; k < n_part; k++) {
        const tandem_winograd part = winograd_part(w, k, n_part);
        const size_t bytes = round_to_line(ISA(winograd_workspace)(&part));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void part_of_winograd(void *context, int64_t begin, int64_t end)
{
    const team_call *c = context;
    for (int64_t k = begin; k < end; k++) {
        tandem_winograd part = winograd_part(c->of, k, (int64_t)c->period);
        part.workspace = (float *)(void *)((char *)part.workspace + (size_t)k * c->n);
        ISA(winograd)(&part);
    }
}

static void team_winograd(const tandem_winograd *w)
{
    team_call call = {.of = w, .period = (size_t)winograd_parts(w), .n = most_of_winograd(w)};
    cpu_for((int64_t)call.period, 1, part_of_winograd, &call);
}

static size_t team_winograd_workspace(const tandem_winograd *w)
{
    return (size_t)winograd_parts(w) * most_of_winograd(w);
}

/* A kernel, its workspace, and whether in bf16 it can be divided by the channels of x, too. */
typedef struct wgrad_kernel {
    void (*run)(const tandem_weight_gradient *g);
    size_t (*workspace)(const tandem_weight_gradient *g);
    int divides_x;
} wgrad_kernel;

typedef struct wgrad_team {
    const wgrad_kernel *kernel;
    const tandem_weight_gradient *whole;
    int by_x;
    int64_t n_part;
    size_t of_part; /* bytes of workspace */
} wgrad_team;

/* By the channels of x where each part gets some: x is what costs most to pack. */
static wgrad_team divide_wgrad(const wgrad_kernel *kernel, const tandem_weight_gradient *g)
{
    const int by_x = kernel->divides_x && g->is_bf16 && g->from / CHANNELS >= cpu_team_size();
    return (wgrad_team){kernel, g, by_x, team_parts((by_x ? g->from : g->to) / CHANNELS),
                        round_to_line(kernel->workspace(g))};
}

static void part_of_weight_gradient(void *context, int64_t begin, int64_t end)
{
    const wgrad_team *team = context;
    for (int64_t k = begin; k < end; k++) {
        tandem_weight_gradient part = *team->whole;
        const int64_t whole = team->by_x ? part.from : part.to;
        const int64_t first = part_begin(whole, CHANNELS, k, team->n_part),
                      last = part_begin(whole, CHANNELS, k + 1, team->n_part);
        *(team->by_x ? &part.from_begin : &part.to_begin) = first;
        *(team->by_x ? &part.from_end : &part.to_end) = last;
        part.workspace = (float *)(void *)((char *)part.workspace + (size_t)k * team->of_part);
        team->kernel->run(&part);
    }
}

static void run_wgrad_team(const wgrad_kernel *kernel, const tandem_weight_gradient *g)
{
    wgrad_team team = divide_wgrad(kernel, g);
    cpu_for(team.n_part, 1, part_of_weight_gradient, &team);
}

static size_t wgrad_team_workspace(const wgrad_kernel *kernel, const tandem_weight_gradient *g)
{
    const wgrad_team team = divide_wgrad(kernel, g);
    return (size_t)team.n_part * team.of_part;
}

static const wgrad_kernel of_vectors = {ISA(weight_gradient), ISA(weight_gradient_workspace), 0};

static void team_weight_gradient(const tandem_weight_gradient *g) { run_wgrad_team(&of_vectors, g); }

static size_t team_weight_gradient_workspace(const tandem_weight_gradient *g)
{
    return wgrad_team_workspace(&of_vectors, g);
}

#if defined __AVX512VNNI__

static const wgrad_kernel of_tiles = {ISA(weight_gradient_amx), ISA(weight_gradient_amx_workspace), 1};

static void team_weight_gradient_amx(const tandem_weight_gradient *g) { run_wgrad_team(&of_tiles, g); }

static size_t team_weight_gradient_amx_workspace(const tandem_weight_gradient *g)
{
    return wgrad_team_workspace(&of_tiles, g);
}

#endif

#endif

/* --- The table ------------------------------------------------------------------------------------------ */

/* Of a copy of the table of this instruction set; the other functions stay. Workspaces then have the size for
 * cpu_team_size() threads, which must be the same when the kernel runs. */
void ISA(divide_kernels)(tandem_isa_kernels *table);

void ISA(divide_kernels)(tandem_isa_kernels *table)
{
#define DIVIDED(name) table->name = team_##name;
#include "backend/cpu/isa/divided.def"
#undef DIVIDED
#if defined __AVX512BW__
    table->winograd = team_winograd;
    table->winograd_workspace = team_winograd_workspace;
    table->weight_gradient = team_weight_gradient;
    table->weight_gradient_workspace = team_weight_gradient_workspace;
#endif
#if defined __AVX512VNNI__
    if (!table->has_tiles) return;
    table->gemm_s8 = team_gemm_s8_amx;
    table->gemm_s8_workspace = team_gemm_s8_amx_workspace;
    table->gemm_bf16 = team_gemm_bf16_amx;
    table->gemm_bf16_workspace = team_gemm_bf16_amx_workspace;
    table->weight_gradient = team_weight_gradient_amx;
    table->weight_gradient_workspace = team_weight_gradient_amx_workspace;
#endif
}
