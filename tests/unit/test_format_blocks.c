/* folder: graph */
/* Formats against numbers that are found by search in a list of all of them, which is decoded from their bits
 * as the formats' documents have it, and not from format.def. A million drawn numbers a row: all exponents,
 * ties, zeros, huge and tiny blocks beside each other. */
#include "base/philox.h"
#include "tandem/advanced/format.h"
#include "tests/support/tandem_test.h"

/* --- Lists of numbers ----------------------------------------------------------------------------------- */

enum { MAX_LISTED = 128, MAX_ELEMENTS = 8192 };

typedef struct number_list {
    double number[MAX_LISTED]; /* of code i, without its sign; from 0 on */
    int n;
} number_list;

/* Codes of sign, exponent and mantissa; the last n_special are infinities and NaN. */
static number_list decode_all(int exponent_bits, int mantissa_bits, int bias, int n_special)
{
    number_list list = {.n = (1 << (exponent_bits + mantissa_bits)) - n_special};
    for (int code = 0; code < list.n; code++) {
        const int e = code >> mantissa_bits, m = code & ((1 << mantissa_bits) - 1);
        const double fraction = (double)m / (1 << mantissa_bits);
        list.number[code] = e == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, e - bias);
    }
    return list;
}

static number_list whole_numbers(int largest)
{
    number_list list = {.n = largest + 1};
    for (int i = 0; i <= largest; i++) list.number[i] = i;
    return list;
}

enum list_of { E2M1, E2M3, E3M2, E4M3, E5M2, S8, S4, N_LISTS };
static number_list lists[N_LISTS];
static void make_lists(void)
{
    lists[E2M1] = decode_all(2, 1, 1, 0);
    lists[E2M3] = decode_all(2, 3, 1, 0);
    lists[E3M2] = decode_all(3, 2, 3, 0);
    lists[E4M3] = decode_all(4, 3, 7, 1); /* S.1111.111 is NaN */
    lists[E5M2] = decode_all(5, 2, 15, 4);
    lists[S8] = whole_numbers(127);
    lists[S4] = whole_numbers(7);
}

static double largest_of(const number_list *list) { return list->number[list->n - 1]; }

/* The last number that is at most `magnitude`. */
static int last_up_to(const number_list *list, double magnitude)
{
    int low = 0, high = list->n; /* number[low] <= magnitude < number[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (list->number[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Of two as near, the one with the even code. All sums here are exact in double. */
static double nearest_in(const number_list *list, double z)
{
    const int i = last_up_to(list, fabs(z));
    int code = i;
    if (i + 1 < list->n) {
        const double middle = (list->number[i] + list->number[i + 1]) / 2;
        if (fabs(z) > middle || (fabs(z) == middle && i % 2)) code = i + 1;
    }
    return code == 0 ? 0 : copysign(list->number[code], z);
}

/* Between two neighbours, numbers with signs; shares of the way from each. */
typedef struct number_gap {
    double low, high, from_low, from_high;
} number_gap;

static number_gap gap_of(const number_list *list, double z)
{
    if (fabs(z) >= largest_of(list))
        return (number_gap){copysign(largest_of(list), z), copysign(largest_of(list), z), 0, 0};
    const int i = last_up_to(list, fabs(z));
    number_gap gap = {list->number[i], list->number[i + 1], 0, 0};
    if (z < 0) gap = (number_gap){-gap.high, -gap.low, 0, 0};
    gap.from_low = (z - gap.low) / (gap.high - gap.low);
    gap.from_high = (gap.high - z) / (gap.high - gap.low);
    return gap;
}

/* --- Scales --------------------------------------------------------------------------------------------- */

/* To f32 once: a quotient or a product of two floats is rounded right by way of double. */
static double f32(double x) { return (double)(float)x; }

typedef struct block_scale {
    double inverse, scale;
} block_scale;
static const block_scale of_zeros = {0, 0};

static block_scale scale_f32(const number_list *list, double range)
{
    const double inverse = range > 0 ? f32(largest_of(list) / range) : INFINITY;
    return isinf(inverse) ? of_zeros : (block_scale){inverse, f32(range / largest_of(list))};
}

static block_scale scale_e8m0(const number_list *list, double range)
{
    const int e = ilogb(largest_of(list));
    if (range <= ldexp(1, e - 126)) return of_zeros;
    return (block_scale){ldexp(1, e - ilogb(range)), ldexp(1, ilogb(range) - e)};
}

/* The names of arXiv:2509.25149: s_enc, s_dec, s_dec_b and s_enc_b. */
static block_scale scale_e4m3(const number_list *list, double range, double of_tensor)
{
    const double s_enc = of_tensor > 0 ? f32(largest_of(list) * 448 / of_tensor) : INFINITY;
    if (isinf(s_enc)) return of_zeros;
    const double s_dec = f32(1 / s_enc), s_dec_b = f32(f32(range / largest_of(list)) * s_enc),
                 s = f32(nearest_in(&lists[E4M3], s_dec_b) * s_dec), s_enc_b = s > 0 ? f32(1 / s) : INFINITY;
    return isinf(s_enc_b) ? of_zeros : (block_scale){s_enc_b, s};
}

/* --- Rows ----------------------------------------------------------------------------------------------- */

typedef struct reference_row {
    const char *name;
    enum list_of numbers;
    char scale; /* t: of the tensor; f, 8, 4: f32, e8m0 or e4m3, of a block */
    int block, is_drawn;
    tandem_dtype replaces;
} reference_row;

static const reference_row rows[] = {
    {"e4m3", E4M3, 't', 0, 0, TANDEM_E4M3},
    {"e5m2", E5M2, 't', 0, 0, TANDEM_E5M2},
    {"s8", S8, 't', 0, 1, TANDEM_S8},
    {"s8_nearest", S8, 't', 0, 0, TANDEM_S8},
    {"s4", S4, 't', 0, 1, TANDEM_S8},
    {"mxfp4", E2M1, '8', 32, 0, TANDEM_S8},
    {"nvfp4", E2M1, '4', 16, 0, TANDEM_S8},
    {"nvfp4_sr", E2M1, '4', 16, 1, TANDEM_S8},
    {"mxfp6_e2m3", E2M3, '8', 32, 0, TANDEM_S8},
    {"mxfp6_e3m2", E3M2, '8', 32, 0, TANDEM_S8},
    {"mxfp8_e4m3", E4M3, '8', 32, 0, TANDEM_E4M3},
    {"mxfp8_e5m2", E5M2, '8', 32, 0, TANDEM_E5M2},
    {"e4m3_128", E4M3, 'f', 128, 0, TANDEM_E4M3},
    {"e5m2_128", E5M2, 'f', 128, 0, TANDEM_E5M2},
};

static double range_of(const float *x, int n)
{
    double range = 0;
    for (int i = 0; i < n; i++) range = fmax(range, fabs((double)x[i]));
    return range;
}

static block_scale scale_of(const reference_row *row, double range, double of_tensor)
{
    const number_list *list = &lists[row->numbers];
    switch (row->scale) {
    case 't': return scale_f32(list, of_tensor);
    case 'f': return scale_f32(list, range);
    case '8': return scale_e8m0(list, range);
    default: return scale_e4m3(list, range, of_tensor);
    }
}

static double draw_of(const tandem_format_cast *cast, int i)
{
    const tandem_philox_block block = tandem_philox(
        (const uint32_t[]){(uint32_t)i / 8, cast->stream[0], cast->stream[1], cast->stream[2]}, cast->seed);
    return ((double)(block.word[i % 8 / 2] >> 16 * (i % 2) & 0xFFFF) + 0.5) / 65536;
}

/* Integers add their draw in f32, as kernels do. */
static int goes_up(const reference_row *row, number_gap gap, double z, double u)
{
    return row->numbers == S8 || row->numbers == S4 ? floor(f32(z + u)) > gap.low : gap.from_low + u >= 1;
}

typedef struct reference_number {
    float rounded;
    double variance, step; /* scaled back */
} reference_number;

static reference_number round_reference(const reference_row *row, const tandem_format_cast *cast,
                                        block_scale by, int i)
{
    const number_list *list = &lists[row->numbers];
    const double x = (double)cast->x[i], z = (double)((float)(x * by.inverse));
    double q = row->is_drawn ? 0 : nearest_in(list, z), variance = 0;
    const number_gap gap = gap_of(list, z);
    if (row->is_drawn) {
        q = gap.high > gap.low && goes_up(row, gap, z, draw_of(cast, i)) ? gap.high : gap.low;
        variance = pow((gap.high - gap.low) * by.scale, 2) * gap.from_low * gap.from_high;
    }
    const float rounded = (float)(q * by.scale);
    if (!row->is_drawn) variance = pow((double)rounded - x, 2);
    if (row->is_drawn && (gap.high == gap.low || by.scale == 0)) variance = pow(q * by.scale - x, 2);
    return (reference_number){q == 0 ? 0 : rounded, variance, fmax(gap.high - gap.low, 1) * by.scale};
}

/* --- Draws ---------------------------------------------------------------------------------------------- */

static uint64_t drawn_state;
static uint64_t draw(void)
{
    drawn_state ^= drawn_state << 13, drawn_state ^= drawn_state >> 7, drawn_state ^= drawn_state << 17;
    return drawn_state * UINT64_C(0x2545F4914F6CDD1D) >> 16;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return isfinite(x) ? x : 1;
}

static float draw_like_data(int exponent)
{
    const double u = (double)(int64_t)(draw() % 2000001) * 1e-6 - 1;
    return (float)ldexp(u, exponent - (int)(draw() % 8));
}

/* Multiples of 1/32 times a power of two: all numbers of few bits, and the middles between them. */
static float draw_tie(int exponent) { return ldexpf((float)(int)(draw() % 513) - 256, exponent - 5); }

enum kind { ANY_BITS, LIKE_DATA, OF_MANY_SIZES, SUBNORMAL, TIES, N_KINDS };
static void draw_tensor(float *x, int n, enum kind kind)
{
    const int of_tensor = (int)(draw() % 200) - 120, period = 1 + (int)(draw() % 60);
    int size = of_tensor;
    for (int i = 0; i < n; i++) {
        if (i % period == 0 && kind == OF_MANY_SIZES)
            size = draw() % 2 ? of_tensor - (int)(draw() % 40) : (int)(draw() % 276) - 149;
        switch (kind) {
        case ANY_BITS: x[i] = float_of((uint32_t)draw()); break;
        case SUBNORMAL: x[i] = float_of((uint32_t)draw() & 0x807FFFFFu); break;
        case TIES: x[i] = draw_tie(of_tensor); break;
        default: x[i] = draw_like_data(size);
        }
        if (draw() % 9 == 0) x[i] = draw() % 2 ? 0.0F : -0.0F;
    }
    const int first = (int)(draw() % (uint64_t)n), length = (int)(draw() % 300);
    for (int i = first; i < n && i < first + length; i++) x[i] = 0; /* whole blocks, often */
}

static tandem_format_cast draw_cast(float *x, enum kind kind)
{
    tandem_format_cast cast = {.x = x,
                               .rows = 1 + (int64_t)(draw() % 64),
                               .columns = 1 + (int64_t)(draw() % 128),
                               .error_scale = 1,
                               .seed = draw(),
                               .stream = {(uint32_t)draw(), 1, 2}};
    const int n = (int)(cast.rows * cast.columns);
    draw_tensor(x, n, kind);
    if (draw() % 4 == 0) cast.range = (float)(range_of(x, n) * ldexp(1, (int)(draw() % 6) - 3));
    if (!isfinite(cast.range)) cast.range = 0;
    return cast;
}

/* --- Tests ---------------------------------------------------------------------------------------------- */

/* Squares that f32 has not are not compared, nor what rounding `x`, scaled back, to f32 adds. */
static int has_variance(float variance, const reference_number *expected, double x)
{
    if (expected->variance > 0x1p126 || fabs(expected->step) > 0x1p60) return 1;
    return fabs((double)variance - expected->variance) <=
           1e-6 * expected->variance + 1e-12 * expected->step * expected->step + 0x1p-46 * x * x + 0x1p-148;
}

static void check_tensor(const reference_row *row, const tandem_format_cast *cast)
{
    static float out[MAX_ELEMENTS], variance[MAX_ELEMENTS];
    const int n = (int)(cast->rows * cast->columns), block = row->block ? row->block : n;
    const double of_tensor = cast->range > 0 ? (double)cast->range : range_of(cast->x, n);
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, cast, &error), &error);
    require_ok(tandem_format_variance(variance, NULL, cast, &error), &error);
    for (int first = 0; first < n; first += block) {
        const int end = first + block < n ? first + block : n;
        const block_scale by = scale_of(row, range_of(cast->x + first, end - first), of_tensor);
        for (int i = first; i < end; i++) {
            const reference_number expected = round_reference(row, cast, by, i);
            if (memcmp(&out[i], &expected.rounded, sizeof out[i]) != 0)
                fail_msg("%s: %a in a block from %d to %d, of scale %a, is rounded to %a, not to %a",
                         row->name, (double)cast->x[i], first, end, by.scale, (double)out[i],
                         (double)expected.rounded);
            if (!has_variance(variance[i], &expected, (double)cast->x[i]))
                fail_msg("%s: the variance of %a, of scale %a, is %a, not %a", row->name, (double)cast->x[i],
                         by.scale, (double)variance[i], expected.variance);
        }
    }
}

static void a_million_numbers_are_found_by_search(void **state)
{
    static float x[MAX_ELEMENTS];
    for (size_t r = 0; r < N_OF(rows); r++) {
        drawn_state = UINT64_C(0x9E3779B97F4A7C15) + r;
        tandem_format format = TANDEM_N_FORMAT;
        assert_int_equal(tandem_format_find(&format, rows[r].name, NULL), TANDEM_OK);
        assert_int_equal(tandem_format_get(format)->dtype, rows[r].replaces);
        int64_t n = 0;
        for (int run = 0; n < 1000000; run++) {
            tandem_format_cast cast = draw_cast(x, (enum kind)(run % N_KINDS));
            cast.format = format;
            check_tensor(&rows[r], &cast);
            n += cast.rows * cast.columns;
        }
    }
}

/* Every row that has a scale has its reference here. */
static void no_row_is_left_out(void **state)
{
    int n = 0;
    for (int f = 0; f < TANDEM_N_FORMAT; f++)
        n += tandem_format_get((tandem_format)f)->scale >= TANDEM_FORMAT_SCALE_TENSOR;
    assert_int_equal(n, N_OF(rows));
}

static void a_number_that_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[300], out[300];
    for (size_t r = 0; r < N_OF(rows); r++)
        for (int at = 0; at < 300; at += 23) {
            tandem_format_cast cast = {
                .x = x, .rows = 3, .columns = 100, .range = at % 2 ? 1.0F : 0.0F, .error_scale = 1};
            tandem_error error = {0};
            double sum = 3;
            require_ok(tandem_format_find(&cast.format, rows[r].name, &error), &error);
            for (int i = 0; i < 300; i++) x[i] = 1, out[i] = 7;
            x[at] = bad[at % 3];
            assert_int_equal(tandem_format_round(out, NULL, &cast, &error), TANDEM_LIMIT_EXCEEDED);
            assert_non_null(strstr(error.text, rows[r].name));
            assert_int_equal(tandem_format_variance(NULL, &sum, &cast, &error), TANDEM_LIMIT_EXCEEDED);
            for (int i = 0; i < 300; i++) assert_true(out[i] == 7);
            assert_true(sum == 3);
        }
}

/* A block of 2^-19 of the tensor is lost; one beyond a range that was known saturates at that range. */
static void nvfp4_has_the_range_of_its_scale(void **state)
{
    float x[48] = {0}, out[48];
    x[0] = 6, x[16] = 6.0F / 458752, x[17] = x[16] / 2, x[32] = 6.1F / 458752;
    tandem_format_cast cast = {
        .format = TANDEM_FORMAT_NVFP4, .x = x, .rows = 1, .columns = 48, .error_scale = 1};
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
    assert_true(out[0] == 6 && out[16] == 0 && out[17] == 0);
    assert_true(fabs((double)out[32] - 3 * 0x1p-9 / 448) < 1e-11); /* s is the least of e4m3 */
    cast.range = 0x1.8p-3F;
    require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
    assert_true(fabs((double)out[0] - 0.1875) < 1e-7);
}

/* Numbers that are not clamped: those below nine tenths of their block's largest. */
static void draws_have_no_bias(void **state)
{
    enum { N = 96, DRAWS = 20000 };
    float x[N], out[N], variance[N];
    double mean[N] = {0};
    drawn_state = 7;
    draw_tensor(x, N, LIKE_DATA);
    tandem_format_cast cast = {
        .format = TANDEM_FORMAT_NVFP4_SR, .x = x, .rows = 3, .columns = 32, .error_scale = 1};
    tandem_error error = {0};
    for (int d = 0; d < DRAWS; d++) {
        cast.stream[0] = (uint32_t)d;
        require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
        for (int i = 0; i < N; i++) mean[i] += (double)out[i] / DRAWS;
    }
    require_ok(tandem_format_variance(variance, NULL, &cast, &error), &error);
    for (int i = 0; i < N; i++) {
        if (fabs((double)x[i]) > 0.9 * range_of(x + i / 16 * 16, 16)) continue;
        const double off = fabs(mean[i] - (double)x[i]), deviation = sqrt((double)variance[i] / DRAWS);
        if (off > 4.5 * deviation + 1e-6 * fabs((double)x[i]))
            fail_msg("%g has the mean %g, off by %g, %g expected", (double)x[i], mean[i], off, deviation);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_numbers_are_found_by_search),
        cmocka_unit_test(no_row_is_left_out),
        cmocka_unit_test(a_number_that_is_not_finite_is_refused),
        cmocka_unit_test(nvfp4_has_the_range_of_its_scale),
        cmocka_unit_test(draws_have_no_bias),
    };
    make_lists();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
