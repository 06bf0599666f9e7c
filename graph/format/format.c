/* format.c: the table of format.def, the reference quantiser of its rows, and the variance of their rounding.
 *
 * A number z (x, scaled) between 2^e and 2^(e+1) has steps of 2^(e − mantissa); below the least normal
 * number, and for integers, steps of 2^least. With t = z/step, an exact double, rounding gives a whole
 * number: the nearest one with ties to even; trunc(t); or floor(t + u), u = (r + ½)/65536 uniform in (0, 1).
 * Scales are those of kernels (kernels/cpu/kernels.c): x·(largest/amax), and back by amax/largest, each in
 * f32. Those of blocks are in format.def. */
#include "tandem/advanced/format.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/philox.h"
#include "base/wide.h"

/* --- The table ------------------------------------------------------------------------------------------ */

/* clang-format off */
static const tandem_format_row formats[TANDEM_N_FORMAT] = {
#define ROW(NAME, name, dtype, kind, bits, mantissa, significand, exponent, least, beyond, rounding, scale,  \
            block, sum_bits)                                                                                 \
    {#name, TANDEM_##dtype, TANDEM_FORMAT_KIND_##kind, bits, mantissa, significand, exponent, least,         \
     TANDEM_OVERFLOW_##beyond, TANDEM_ROUNDING_##rounding, TANDEM_FORMAT_SCALE_##scale, block, sum_bits},
#include "tandem/format.def"
#undef ROW
};

/* A row that contradicts itself does not compile. A float with `bits` has bits − 1 − mantissa bits of
 * exponent, biased by half of their range; IEEE's keep the top exponent for infinities. */
#define BIAS(bits, mantissa) ((1 << ((bits) - 2 - (mantissa))) - 1)
#define CHECK_FLOAT(bits, mantissa, significand, exponent, least)                                            \
    ((significand) >= 1 << (mantissa) && (significand) < 2 << (mantissa) &&                                  \
     (least) == 1 - BIAS(bits, mantissa) - (mantissa) &&                                                     \
     (exponent) + (mantissa) >= BIAS(bits, mantissa) && (exponent) + (mantissa) <= BIAS(bits, mantissa) + 1)
#define CHECK_INTEGER(bits, mantissa, significand, exponent, least)                                          \
    ((mantissa) == 0 && (exponent) == 0 && (least) == 0 && (significand) == (1 << ((bits) - 1)) - 1)
#define IS_INFINITE TANDEM_OVERFLOW_INFINITE
#define CHECK_OF_FLOAT CHECK_FLOAT
#define CHECK_OF_INTEGER CHECK_INTEGER
#define ROW(NAME, name, dtype, kind, bits, mantissa, significand, exponent, least, beyond, rounding, scale,  \
            block, sum_bits)                                                                                 \
    _Static_assert(CHECK_OF_##kind(bits, mantissa, significand, exponent, least),                            \
                   "format " #name ": its largest or least number is not one of that many bits");            \
    _Static_assert(TANDEM_OVERFLOW_##beyond != IS_INFINITE || (significand) == (2 << (mantissa)) - 1,      \
                   "format " #name ": one with infinities has all bits of its largest significand");         \
    _Static_assert((TANDEM_FORMAT_SCALE_##scale >= TANDEM_FORMAT_SCALE_BLOCK_E8M0) == ((block) > 0),         \
                   "format " #name ": blocks and their scale belong together");                              \
    _Static_assert(TANDEM_FORMAT_KIND_##kind == TANDEM_FORMAT_KIND_FLOAT ||                                  \
                       TANDEM_FORMAT_SCALE_##scale >= TANDEM_FORMAT_SCALE_TENSOR,                            \
                   "format " #name ": integers need a scale");                                               \
    _Static_assert(TANDEM_FORMAT_SCALE_##scale < TANDEM_FORMAT_SCALE_TENSOR ||                               \
                       TANDEM_OVERFLOW_##beyond == TANDEM_OVERFLOW_SATURATING,                             \
                   "format " #name ": what is scaled to its largest number saturates");                      \
    _Static_assert((sum_bits) > (mantissa), "format " #name ": sums keep at least an operand's bits");
#include "tandem/format.def"
#undef ROW
/* clang-format on */

const tandem_format_row *tandem_format_get(tandem_format format)
{
    assert((unsigned)format < TANDEM_N_FORMAT);
    return &formats[format];
}

tandem_format tandem_format_of_dtype(tandem_dtype dtype)
{
    if (dtype == TANDEM_MXFP8) return TANDEM_FORMAT_MXFP8_E4M3;
    if (dtype == TANDEM_NVFP4) return TANDEM_FORMAT_NVFP4;
    int f = 0;
    while (f < TANDEM_N_FORMAT && formats[f].dtype != dtype) f++;
    return (tandem_format)f;
}

/* "e2m1" names numbers and not their scales: the first row that has them; NULL: none has. */
static const tandem_format_row *first_of_numbers(const char *name)
{
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = &formats[f];
        char numbers[32];
        (void)snprintf(numbers, sizeof numbers, "e%dm%d", row->bits - 1 - row->mantissa, row->mantissa);
        if (row->kind == TANDEM_FORMAT_KIND_FLOAT && strcmp(name, numbers) == 0) return row;
    }
    return NULL;
}

tandem_status tandem_format_find(tandem_format *format, const char *name, tandem_error *error)
{
    tandem_hint hint;
    const int f = tandem_name_find(name, &formats[0].name, TANDEM_N_FORMAT, sizeof formats[0], &hint);
    const tandem_format_row *of_numbers = f < 0 ? first_of_numbers(name) : NULL;
    if (of_numbers) (void)snprintf(hint.text, sizeof hint.text, " '%s' has these numbers.", of_numbers->name);
    if (f < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "there is no number format '%.40s'.%s `tandem list formats` shows them.",
                                name, hint.text);
    *format = (tandem_format)f;
    return TANDEM_OK;
}

double tandem_format_largest(const tandem_format_row *row) { return ldexp(row->significand, row->exponent); }

/* --- One number ----------------------------------------------------------------------------------------- */

static double power_of_two(int exponent) /* −1022 … 1023 */
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* log2 of |x|, rounded down; −1023 for 0. */
static int exponent_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FF) - 1023;
}

/* To a whole number, ties to even; |t| < 2^51. */
static double to_whole(double t)
{
    const double shift = 0x1.8p52;
    return (t + shift) - shift;
}

static double whole_below(double t)
{
    const double near = to_whole(t);
    return near > t ? near - 1 : near;
}

typedef struct rounded_number {
    double value, step;
    int is_clamped;
} rounded_number;

/* Q(z); u is read by stochastic rounding. */
static rounded_number round_number(const tandem_format_row *row, double largest, double z, double u)
{
    const int exponent = exponent_of(z) - row->mantissa;
    const int of_step =
        row->kind == TANDEM_FORMAT_KIND_INTEGER || exponent < row->least ? row->least : exponent;
    rounded_number q = {.step = power_of_two(of_step)};
    const double t = z * power_of_two(-of_step);
    if (row->rounding == TANDEM_ROUNDING_STOCHASTIC)
        q.value = row->kind == TANDEM_FORMAT_KIND_INTEGER
                      ? whole_below((double)((float)z + (float)u)) /* the sum of kernels is one of f32 */
                      : whole_below(t + u);
    else if (row->rounding == TANDEM_ROUNDING_NEAREST)
        q.value = to_whole(t);
    else
        q.value = t < 0 ? -whole_below(-t) : whole_below(t);
    q.value *= q.step;
    if (fabs(q.value) > largest || fabs(z) > largest) {
        const int is_infinite = row->overflow == TANDEM_OVERFLOW_INFINITE && fabs(q.value) > largest;
        q.is_clamped = !is_infinite;
        q.value = copysign(is_infinite ? INFINITY : largest, z);
    }
    return q;
}

/* --- Scales --------------------------------------------------------------------------------------------- */

typedef struct format_scale {
    float inverse, scale; /* x is multiplied by inverse, the rounded number by scale */
} format_scale;

/* Magnitudes of floats are ordered as their bits are. */
TANDEM_WIDE static uint32_t largest_bits(const float *x, int64_t n)
{
    enum { LANES = 16 };
    uint32_t lane[LANES] = {0}, bits[LANES], largest = 0;
    const int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        memcpy(bits, x + i, sizeof bits);
        for (int k = 0; k < LANES; k++) {
            bits[k] &= 0x7FFFFFFFu;
            lane[k] = bits[k] > lane[k] ? bits[k] : lane[k];
        }
    }
    memset(bits, 0, sizeof bits);
    memcpy(bits, x + whole, (size_t)(n - whole) * sizeof *x);
    for (int k = 0; k < LANES; k++) {
        bits[k] &= 0x7FFFFFFFu;
        lane[k] = bits[k] > lane[k] ? bits[k] : lane[k];
        largest = lane[k] > largest ? lane[k] : largest;
    }
    return largest;
}

static float largest_magnitude(const float *x, int64_t n, int *is_finite)
{
    const uint32_t largest = largest_bits(x, n);
    float amax;
    memcpy(&amax, &largest, sizeof amax);
    *is_finite = largest < 0x7F800000u;
    return amax;
}

/* 0 for a range of 0, and for one so small that largest/range overflows, as kernels have it. */
static format_scale scale_of_range(float largest, float range)
{
    if (!(range > 0) || !isfinite(largest / range)) return (format_scale){0, 0};
    return (format_scale){largest / range, range / largest};
}

static format_scale power_of_range(float largest, float range)
{
    const int of_largest = exponent_of((double)largest), exponent = exponent_of((double)range) - of_largest;
    if (!((double)range > power_of_two(of_largest - 126))) return (format_scale){0, 0};
    return (format_scale){(float)power_of_two(-exponent), (float)power_of_two(exponent)};
}

/* Of a block in a tensor; each operation is one of f32. */
static format_scale e4m3_of_range(float largest, float range, float of_tensor)
{
    const tandem_format_row *e4m3 = &formats[TANDEM_FORMAT_E4M3];
    const double most = tandem_format_largest(e4m3);
    const float encode = largest * (float)most / of_tensor;
    if (!(of_tensor > 0) || !isfinite(encode)) return (format_scale){0, 0};
    const float wanted = fminf(range / largest * encode, (float)most), decode = 1 / encode,
                scale = (float)round_number(e4m3, most, (double)wanted, 0).value * decode;
    if (!(scale > 0) || !isfinite(1 / scale)) return (format_scale){0, 0};
    return (format_scale){1 / scale, scale};
}

static format_scale scale_of_run(const tandem_format_row *row, float range, float of_tensor)
{
    const float largest = (float)tandem_format_largest(row);
    switch (row->scale) {
    case TANDEM_FORMAT_SCALE_TENSOR: return scale_of_range(largest, of_tensor);
    case TANDEM_FORMAT_SCALE_BLOCK_E8M0: return power_of_range(largest, range);
    case TANDEM_FORMAT_SCALE_BLOCK_E4M3: return e4m3_of_range(largest, range, of_tensor);
    default: return scale_of_range(largest, range);
    }
}

/* How many consecutive elements share a scale; 0: there is none. */
static int64_t scaled_together(const tandem_format_cast *cast)
{
    switch (formats[cast->format].scale) {
    case TANDEM_FORMAT_SCALE_TENSOR: return cast->rows * cast->columns;
    case TANDEM_FORMAT_SCALE_ROW: return cast->columns;
    case TANDEM_FORMAT_SCALE_BLOCK_E8M0:
    case TANDEM_FORMAT_SCALE_BLOCK_E4M3:
    case TANDEM_FORMAT_SCALE_BLOCK_F32: return cast->block > 0 ? cast->block : formats[cast->format].block;
    default: return 0;
    }
}

/* Calls `each` for every run of elements with one scale. */
typedef void scaled_run(void *context, const tandem_format_cast *cast, format_scale scale, int64_t first,
                        int64_t end);
static tandem_status for_scaled_runs(const tandem_format_cast *cast, float *amax, scaled_run *each,
                                     void *context, tandem_error *error)
{
    const tandem_format_row *row = tandem_format_get(cast->format);
    const int64_t n = cast->rows * cast->columns, together = scaled_together(cast);
    int is_finite = 1;
    const float found = amax || together > 0 ? largest_magnitude(cast->x, n, &is_finite) : 0;
    if (together > 0 && !is_finite)
        return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED,
                                "a number is not finite (a NaN or an infinity), so the tensor has no scale "
                                "for the format %s",
                                row->name);
    if (amax) *amax = found;
    if (together == 0) each(context, cast, (format_scale){1, 1}, 0, n);
    for (int64_t first = 0; together > 0 && first < n; first += together) {
        const int64_t end = first + together < n ? first + together : n;
        const float range = row->scale == TANDEM_FORMAT_SCALE_TENSOR
                                ? found
                                : largest_magnitude(cast->x + first, end - first, &is_finite);
        each(context, cast, scale_of_run(row, range, cast->range > 0 ? cast->range : found), first, end);
    }
    return TANDEM_OK;
}

/* --- Tensors -------------------------------------------------------------------------------------------- */

static double draw_of(const tandem_philox_block *block, int64_t i)
{
    const uint32_t r = block->word[i % 8 / 2] >> (16 * (i % 2)) & 0xFFFFu;
    return ((double)r + 0.5) / 65536;
}

/* Q(z) of a float that rounds to nearest, for most numbers at a tenth of the cost: by adding to the bits, or
 * below the least normal number by adding a number whose last bit is the step. Right where neither z nor Q(z)
 * is beyond the largest number. Magnitudes are compared by their bits, which have the same order: without
 * branches, loops run in vectors. */
typedef struct fast_rounding {
    uint32_t cut, half, normal, largest; /* the last two: bits of numbers */
    float shift;
} fast_rounding;

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static fast_rounding fast_rounding_of(const tandem_format_row *row)
{
    const uint32_t cut = 23u - (uint32_t)row->mantissa;
    return (fast_rounding){.cut = cut,
                           .half = (1u << (cut - 1)) - 1,
                           .normal = bits_of((float)power_of_two(row->least + row->mantissa)),
                           .largest = bits_of((float)tandem_format_largest(row)),
                           .shift = (float)(1.5 * power_of_two(row->least + 23))};
}

/* *largest: the bits of the larger one of |z| and |Q(z)|, where that is more. */
static inline float round_fast(int32_t *largest, const fast_rounding *by, float z)
{
    const uint32_t bits = bits_of(z), magnitude = bits & 0x7FFFFFFFu,
                   of_bits = (bits + by->half + (bits >> by->cut & 1)) >> by->cut << by->cut,
                   of_shift = bits_of((z + by->shift) - by->shift),
                   is_small = 0u - (uint32_t)(magnitude < by->normal),
                   rounded = (of_shift & is_small) | (of_bits & ~is_small);
    const int32_t one = (int32_t)magnitude, other = (int32_t)(rounded & 0x7FFFFFFFu),
                  larger = one > other ? one : other;
    float q;
    *largest = larger > *largest ? larger : *largest;
    memcpy(&q, &rounded, sizeof q);
    return q;
}

/* 0: one of these numbers cannot be rounded so, and q is not to be read. */
enum { ROUNDED_TOGETHER = 64, IN_VECTORS = 16 };
TANDEM_WIDE static int round_together(float *restrict q, const fast_rounding *by, const float *restrict x,
                                      format_scale scale)
{
    const fast_rounding own = *by;
    int32_t largest[IN_VECTORS] = {0}, most = 0;
    for (int i = 0; i < ROUNDED_TOGETHER; i += IN_VECTORS)
        for (int k = 0; k < IN_VECTORS; k++)
            q[i + k] = round_fast(&largest[k], &own, x[i + k] * scale.inverse) * scale.scale;
    for (int k = 0; k < IN_VECTORS; k++) most = largest[k] > most ? largest[k] : most;
    return most <= (int32_t)own.largest;
}

/* From `first` on, as long as numbers can be rounded together; the first that is not. */
static int64_t round_fast_run(float *out, const tandem_format_cast *cast, format_scale scale, int64_t first,
                              int64_t end)
{
    const fast_rounding by = fast_rounding_of(&formats[cast->format]);
    float q[ROUNDED_TOGETHER];
    for (; first + ROUNDED_TOGETHER <= end; first += ROUNDED_TOGETHER) {
        if (!round_together(q, &by, cast->x + first, scale)) return first;
        memcpy(out + first, q, sizeof q);
    }
    for (; first < end; first++) {
        int32_t largest = 0;
        q[0] = round_fast(&largest, &by, cast->x[first] * scale.inverse) * scale.scale;
        if (largest > (int32_t)by.largest) return first;
        out[first] = q[0];
    }
    return end;
}

static void round_run(void *context, const tandem_format_cast *cast, format_scale scale, int64_t first,
                      int64_t end)
{
    float *out = context;
    const tandem_format_row *row = &formats[cast->format];
    const double largest = tandem_format_largest(row);
    const int is_drawn = row->rounding == TANDEM_ROUNDING_STOCHASTIC,
              is_fast = row->kind == TANDEM_FORMAT_KIND_FLOAT && cast->error_scale == 1 &&
                        row->rounding == TANDEM_ROUNDING_NEAREST && row->mantissa < 23;
    int64_t slow_before = first;
    tandem_philox_block block = {{0}};
    for (int64_t i = first; i < end; i++) {
        if (is_fast && i >= slow_before) {
            i = round_fast_run(out, cast, scale, i, end);
            slow_before = i + ROUNDED_TOGETHER;
            if (i == end) return;
        }
        const float x = cast->x[i];
        if (is_drawn && (i == first || i % 8 == 0))
            block = tandem_philox(
                (const uint32_t[]){(uint32_t)(i / 8), cast->stream[0], cast->stream[1], cast->stream[2]},
                cast->seed);
        const double u = is_drawn ? draw_of(&block, i) : 0;
        const float rounded =
            isfinite(x)
                ? (float)round_number(row, largest, (double)(x * scale.inverse), u).value * scale.scale
                : x;
        out[i] = cast->error_scale == 1 || !isfinite(rounded)
                     ? rounded
                     : (float)((double)x + cast->error_scale * ((double)rounded - (double)x));
    }
}

tandem_status tandem_format_round(float *out, float *amax, const tandem_format_cast *cast,
                                  tandem_error *error)
{
    if (cast->error_scale != 0) return for_scaled_runs(cast, amax, round_run, out, error);
    int is_finite = 1;
    if (amax) *amax = largest_magnitude(cast->x, cast->rows * cast->columns, &is_finite);
    if (out != cast->x) memcpy(out, cast->x, (size_t)(cast->rows * cast->columns) * sizeof *out);
    return TANDEM_OK;
}

typedef struct variance_sum {
    float *variance;
    int has_sum;
    double sum;
} variance_sum;

/* s²·f(1 − f) of integers that are drawn, as many together as run in vectors. 0: one of them is beyond the
 * largest, and variance is not to be read. */
TANDEM_WIDE static int integer_variances(float *restrict variance, const float *restrict x,
                                         format_scale scale, float largest)
{
    const float shift = 0x1.8p23F, square = scale.scale * scale.scale;
    float most[IN_VECTORS] = {0}, all = 0;
    for (int i = 0; i < ROUNDED_TOGETHER; i += IN_VECTORS)
        for (int k = 0; k < IN_VECTORS; k++) {
            const float z = x[i + k] * scale.inverse, off = z - ((z + shift) - shift), /* of a whole number */
                size = off < 0 ? -off : off, magnitude = z < 0 ? -z : z;
            most[k] = magnitude > most[k] ? magnitude : most[k];
            variance[i + k] = square * (size * (1 - size));
        }
    for (int k = 0; k < IN_VECTORS; k++) all = most[k] > all ? most[k] : all;
    return all <= largest; /* a tensor with a NaN has no scale */
}

/* From `first` on, as long as numbers can be taken together; the first that is not. */
static int64_t integer_variance_run(variance_sum *of, const tandem_format_cast *cast, format_scale scale,
                                    int64_t first, int64_t end)
{
    const float largest = (float)tandem_format_largest(&formats[cast->format]);
    float variance[ROUNDED_TOGETHER];
    for (; first + ROUNDED_TOGETHER <= end; first += ROUNDED_TOGETHER) {
        if (!integer_variances(variance, cast->x + first, scale, largest)) return first;
        for (int i = 0; i < ROUNDED_TOGETHER && of->has_sum; i++) of->sum += (double)variance[i];
        if (of->variance) memcpy(of->variance + first, variance, sizeof variance);
    }
    return first;
}

static void variance_run(void *context, const tandem_format_cast *cast, format_scale scale, int64_t first,
                         int64_t end)
{
    variance_sum *of = context;
    const tandem_format_row *row = &formats[cast->format];
    const double largest = tandem_format_largest(row), back = (double)scale.scale;
    const int is_drawn_integer =
        row->kind == TANDEM_FORMAT_KIND_INTEGER && row->rounding == TANDEM_ROUNDING_STOCHASTIC;
    int64_t slow_before = first;
    for (int64_t i = first; i < end; i++) {
        if (is_drawn_integer && i >= slow_before) {
            i = integer_variance_run(of, cast, scale, i, end);
            slow_before = i + ROUNDED_TOGETHER;
            if (i == end) return;
        }
        const double x = (double)cast->x[i], z = (double)(cast->x[i] * scale.inverse);
        double variance = 0;
        if (back == 0) { /* all became zeros */
            variance = x * x;
        } else if (is_drawn_integer && fabs(z) < largest) { /* of the step 1 */
            const double fraction = z - whole_below(z);
            variance = back * back * fraction * (1 - fraction);
        } else if (row->rounding == TANDEM_ROUNDING_STOCHASTIC) {
            /* the lower neighbour: a draw of almost 0 */
            const rounded_number q = round_number(row, largest, z, 0);
            const double fraction = (z - q.value) / q.step, step = q.step * back;
            variance = q.is_clamped ? pow(q.value * back - x, 2) : step * step * fraction * (1 - fraction);
        } else {
            const float rounded = (float)round_number(row, largest, z, 0).value * scale.scale;
            variance = ((double)rounded - x) * ((double)rounded - x);
        }
        of->sum += variance;
        if (of->variance) of->variance[i] = (float)variance;
    }
}

tandem_status tandem_format_variance(float *variance, double *sum, const tandem_format_cast *cast,
                                     tandem_error *error)
{
    variance_sum of = {.has_sum = sum != NULL};
    of.variance = variance;
    const tandem_status status = for_scaled_runs(cast, NULL, variance_run, &of, error);
    if (status == TANDEM_OK && sum) *sum = of.sum;
    return status;
}
