/* folder: graph */
/* Every row of format.def against exact arithmetic: all its numbers, and what lies between them; and the
 * variance of its rounding against the numbers that draws give. */
#include <float.h>

#include "base/hash.h"
#include "tandem/advanced/format.h"
#include "tests/support/tandem_test.h"

enum { MAX_NUMBERS = 1 << 18 };

/* The numbers of a row from 0 on, by counting: 2^mantissa steps to each power of two. */
static int count_numbers(double *number, const tandem_format_row *row, int max)
{
    int n = 0;
    const double largest = tandem_format_largest(row);
    double step = ldexp(1, row->least), at = 0;
    while (at <= largest && n < max) {
        number[n++] = at;
        if (row->kind == TANDEM_FORMAT_KIND_FLOAT && at >= ldexp(step, row->mantissa + 1)) step *= 2;
        at += step;
    }
    return n;
}

/* In units of the largest number, a tensor of which it is the largest magnitude has the scale 1. */
static float round_alone(tandem_format format, double z)
{
    const tandem_format_row *row = tandem_format_get(format);
    const float largest = (float)tandem_format_largest(row);
    float x[32] = {(float)z}, out[32];
    /* every other number is 0, but the last of a block: it fixes the scale */
    if (row->scale >= TANDEM_FORMAT_SCALE_TENSOR) x[15] = x[31] = largest;
    const tandem_format_cast cast = {.format = format, .x = x, .rows = 1, .columns = 32, .error_scale = 1};
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
    return out[0];
}

static float expected_between(const tandem_format_row *row, double low, double high, double z,
                              int low_is_even)
{
    if (z == low || z == high) return (float)z;
    if (row->rounding == TANDEM_ROUNDING_TOWARD_ZERO) return (float)low;
    const double middle = low + (high - low) / 2;
    return (float)(z < middle || (z == middle && low_is_even) ? low : high);
}

static void check_number(tandem_format format, double z, double expected)
{
    for (int sign = 0; sign < 2; sign++) {
        const double of = sign ? -z : z, wanted = sign ? -expected : expected;
        const float got = round_alone(format, of);
        if ((double)got != wanted)
            fail_msg("%s rounds %.17g to %.17g, not to %.17g", tandem_format_get(format)->name, of,
                     (double)got, wanted);
    }
}

/* Between two neighbours: the middle, and the floats around it and around both. */
static void check_gap(tandem_format format, double low, double high, int low_is_even)
{
    const tandem_format_row *row = tandem_format_get(format);
    const float middle = (float)(low + (high - low) / 2);
    const float z[] = {nextafterf((float)low, INFINITY), nextafterf(middle, 0), middle,
                       nextafterf(middle, INFINITY), nextafterf((float)high, 0)};
    for (size_t i = 0; i < N_OF(z); i++)
        if ((double)z[i] > low && (double)z[i] < high)
            check_number(format, (double)z[i],
                         (double)expected_between(row, low, high, (double)z[i], low_is_even));
}

static void every_number_and_what_lies_between(void **state)
{
    double *number = malloc(MAX_NUMBERS * sizeof *number);
    assert_non_null(number);
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = tandem_format_get((tandem_format)f);
        const int n = count_numbers(number, row, MAX_NUMBERS);
        const int stride = row->bits > 16 ? 7 : 1; /* of neighbours; all numbers of the others */
        if (row->bits <= 16) assert_true(number[n - 1] == tandem_format_largest(row));
        for (int i = 0; i < n; i += stride) check_number((tandem_format)f, number[i], number[i]);
        if (row->rounding == TANDEM_ROUNDING_STOCHASTIC) continue;
        for (int i = 0; i + 1 < n; i += stride)
            check_gap((tandem_format)f, number[i], number[i + 1], i % 2 == 0);
    }
    free(number);
}

static void draw_tensor(float *x, int n)
{
    uint64_t at = 88172645463325252u;
    for (int i = 0; i < n; i++) {
        at ^= at << 13, at ^= at >> 7, at ^= at << 17;
        const double u = (double)(at >> 11) * 0x1p-53 - 0.5;
        x[i] = i % 3 == 0 ? 0 : (float)(u * exp2(-(double)(at % 12)));
    }
}

/* Numbers that are rounded together, some of them beyond the largest, also in place. */
static void many_numbers_round_as_one_does(void **state)
{
    enum { N = 300 };
    float x[N], together[N];
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = tandem_format_get((tandem_format)f);
        const int is_scaled = row->scale == TANDEM_FORMAT_SCALE_TENSOR;
        if (row->rounding == TANDEM_ROUNDING_STOCHASTIC ||
            (row->scale != TANDEM_FORMAT_SCALE_NONE && row->scale != TANDEM_FORMAT_SCALE_LOSS && !is_scaled))
            continue;
        draw_tensor(x, N);
        for (int i = 0; i < N; i++) x[i] *= ldexpf(1, i % 40 - 30);
        for (int i = 70; i < N; i += 61)
            x[i] = i % 2 || is_scaled ? -3e5F : i % 4 ? INFINITY : (float)tandem_format_largest(row);
        memcpy(together, x, sizeof x);
        tandem_format_cast cast = {
            .format = (tandem_format)f, .x = together, .rows = 1, .columns = N, .range = 2, .error_scale = 1};
        assert_int_equal(tandem_format_round(together, NULL, &cast, NULL), TANDEM_OK);
        cast.columns = 1;
        for (int i = 0; i < N; i++) {
            float alone = 0;
            cast.x = &x[i];
            assert_int_equal(tandem_format_round(&alone, NULL, &cast, NULL), TANDEM_OK);
            assert_memory_equal(&together[i], &alone, sizeof alone);
        }
    }
}

/* Codes of one byte and of four bits, counted: sign, and a NaN or infinities aside. */
static void rows_have_their_numbers(void **state)
{
    static const struct {
        tandem_format format;
        int n; /* from 0 on */
        double largest;
    } expected[] = {
        {TANDEM_FORMAT_E4M3, 127, 448},       {TANDEM_FORMAT_E5M2, 124, 57344},
        {TANDEM_FORMAT_S8, 128, 127},         {TANDEM_FORMAT_S4, 8, 7},
        {TANDEM_FORMAT_MXFP4, 8, 6},          {TANDEM_FORMAT_NVFP4, 8, 6},
        {TANDEM_FORMAT_MXFP6_E2M3, 32, 7.5},  {TANDEM_FORMAT_MXFP6_E3M2, 32, 28},
        {TANDEM_FORMAT_MXFP8_E4M3, 127, 448}, {TANDEM_FORMAT_MXFP8_E5M2, 124, 57344},
        {TANDEM_FORMAT_F16, 31744, 65504},    {TANDEM_FORMAT_BF16, 32640, 0x1.FEp127},
    };
    double *number = malloc(MAX_NUMBERS * sizeof *number);
    assert_non_null(number);
    for (size_t i = 0; i < N_OF(expected); i++) {
        const tandem_format_row *row = tandem_format_get(expected[i].format);
        assert_int_equal(count_numbers(number, row, MAX_NUMBERS), expected[i].n);
        assert_true(tandem_format_largest(row) == expected[i].largest);
    }
    free(number);
}

static void beyond_the_largest(void **state)
{
    assert_true(isinf(round_alone(TANDEM_FORMAT_F16, 65520)));
    assert_true(round_alone(TANDEM_FORMAT_F16, 65519.9) == 65504);
    assert_true(isinf(round_alone(TANDEM_FORMAT_BF16, (double)FLT_MAX)));
    assert_true(round_alone(TANDEM_FORMAT_TF32_CUT, (double)FLT_MAX) == 0x1.FFCp127F);
    const float x[] = {1000, -1000, 3};
    float out[3];
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = tandem_format_get((tandem_format)f);
        if (row->scale != TANDEM_FORMAT_SCALE_TENSOR) continue;
        const tandem_format_cast cast = {
            .format = (tandem_format)f, .x = x, .rows = 1, .columns = 3, .range = 10, .error_scale = 1};
        tandem_error error = {0};
        double sum = 0;
        require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
        assert_true(out[0] == 10 && out[1] == -10);
        require_ok(tandem_format_variance(NULL, &sum, &cast, &error), &error);
        assert_true(sum >= 2 * 990.0 * 990.0 && sum < 2 * 990.0 * 990.0 + 1);
    }
}

/* --- Scales and errors ---------------------------------------------------------------------------------- */

/* Powers of two: a block's numbers have errors of at most a sixth of its largest one (1.5·2^e of 4·2^e … ).
 * */
static void a_block_has_its_own_scale(void **state)
{
    float x[96], out[96];
    draw_tensor(x, 96);
    for (int i = 32; i < 64; i++) x[i] *= 0x1p-20F;
    const tandem_format_cast cast = {
        .format = TANDEM_FORMAT_MXFP4, .x = x, .rows = 1, .columns = 96, .error_scale = 1};
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
    int n_nonzero = 0;
    for (int b = 0; b < 96; b += 32) {
        double amax = 0x1p-99;
        for (int i = b; i < b + 32; i++) amax = fmax(amax, fabs((double)x[i]));
        const double unit = exp2(floor(log2(amax)) - 2);
        for (int i = b; i < b + 32; i++) {
            const double q = (double)out[i] / unit;
            assert_true(q == rint(2 * q) / 2 && fabs(q) <= 6);
            n_nonzero += out[i] != 0 && b == 32;
        }
    }
    assert_true(n_nonzero > 5);
}

static void error_scale_moves_between_both(void **state)
{
    float x[64], one[64], out[64];
    draw_tensor(x, 64);
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        tandem_format_cast cast = {
            .format = (tandem_format)f, .x = x, .rows = 2, .columns = 32, .error_scale = 1, .seed = 3};
        tandem_error error = {0};
        require_ok(tandem_format_round(one, NULL, &cast, &error), &error);
        assert_true(memcmp(one, x, sizeof x) != 0);
        cast.error_scale = 0;
        require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
        assert_memory_equal(out, x, sizeof x);
        cast.error_scale = -4;
        require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
        for (int i = 0; i < 64; i++) {
            const double expected = (double)x[i] - 4 * ((double)one[i] - (double)x[i]);
            assert_true(fabs((double)out[i] - expected) <= 0x1p-24 * fabs(expected));
        }
    }
}

static void not_finite_and_all_zero(void **state)
{
    float x[32] = {1, NAN}, out[32], zero[32] = {0};
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        tandem_format_cast cast = {
            .format = (tandem_format)f, .x = x, .rows = 1, .columns = 32, .error_scale = 1};
        tandem_error error = {0};
        const int has_scale = tandem_format_get((tandem_format)f)->scale >= TANDEM_FORMAT_SCALE_TENSOR;
        const tandem_status status = tandem_format_round(out, NULL, &cast, &error);
        assert_int_equal(status, has_scale ? TANDEM_LIMIT_EXCEEDED : TANDEM_OK);
        if (!has_scale) assert_true(isnan(out[1]) && out[0] == 1);
        cast.x = zero;
        double sum = 1;
        require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
        assert_memory_equal(out, zero, sizeof zero);
        require_ok(tandem_format_variance(NULL, &sum, &cast, &error), &error);
        assert_true(sum == 0);
    }
}

/* --- Variance ------------------------------------------------------------------------------------------- */

/* Of numbers a third of which are 0 and the rest small beside the largest: s²/6 is far off there. */
static void variance_is_that_of_draws(void **state)
{
    enum { N = 512, DRAWS = 1000 };
    static float x[N], out[N], variance[N];
    draw_tensor(x, N);
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        const tandem_format_row *row = tandem_format_get((tandem_format)f);
        tandem_format_cast cast = {
            .format = (tandem_format)f, .x = x, .rows = 1, .columns = N, .error_scale = 1};
        tandem_error error = {0};
        double expected = 0, mean = 0, in_all = 0;
        require_ok(tandem_format_variance(variance, &expected, &cast, &error), &error);
        const int draws = row->rounding == TANDEM_ROUNDING_STOCHASTIC ? DRAWS : 1;
        for (int d = 0; d < draws; d++) {
            cast.stream[0] = (uint32_t)d;
            require_ok(tandem_format_round(out, NULL, &cast, &error), &error);
            for (int i = 0; i < N; i++) mean += pow((double)out[i] - (double)x[i], 2) / draws;
        }
        for (int i = 0; i < N; i++) in_all += (double)variance[i];
        if (fabs(mean / expected - 1) > (draws > 1 ? 0.02 : 1e-6) || fabs(in_all / expected - 1) > 1e-6)
            fail_msg("%s: the error's mean square is %g by %d draws, %g predicted", row->name, mean, draws,
                     expected);
        if (f != TANDEM_FORMAT_S8) continue;
        const double step = 0.5 / 127; /* the largest magnitude is almost ½ */
        if (!(N * step * step / 6 > 1.5 * mean))
            fail_msg("s²/6 should fail here: %g, %g by draws", N * step * step / 6, mean);
    }
}

/* --- Bits ----------------------------------------------------------------------------------------------- */

/* Floats of all exponents, and some that are 0. Each run of 77 has a size of its own: a block, and none. */
static void draw_bits(float *x, int n, uint64_t at)
{
    for (int i = 0; i < n; i++) {
        at ^= at << 13, at ^= at >> 7, at ^= at << 17;
        const uint32_t bits = (uint32_t)(at >> 32);
        const int of_run = i / 77 * 37 % 250 - 140;
        memcpy(&x[i], &bits, sizeof bits);
        if (i % 1001 > 600 || !isfinite(x[i])) /* magnitudes of at most 1, mostly small ones */
            x[i] = ldexpf((float)((double)(int32_t)bits * 0x1p-31), (int)(at % 12) - 11);
        if (i % 2002 > 1300) x[i] = ldexpf((float)((double)(int32_t)bits * 0x1p-31), of_run);
        if (at % 5 == 0) x[i] = at % 2 ? 0.0F : -0.0F;
    }
}

static uint64_t hash_of_rounding(uint64_t hash, const tandem_format_cast *cast)
{
    static float out[77 * 390];
    const uint64_t bytes = (uint64_t)(cast->rows * cast->columns) * sizeof(float);
    tandem_error error = {0};
    require_ok(tandem_format_round(out, NULL, cast, &error), &error);
    hash = tandem_hash_bytes(hash, out, bytes);
    require_ok(tandem_format_variance(out, NULL, cast, &error), &error);
    return tandem_hash_bytes(hash, out, bytes);
}

/* What was measured with a format is of these bits. */
static void formats_keep_their_bits(void **state)
{
    static const struct {
        const char *name;
        uint64_t hash;
    } kept[] = {
        {"tf32", UINT64_C(0xe59a3b4ee5f1a630)}, {"tf32_cut", UINT64_C(0x25f0c3435a09a3c9)},
        {"f16", UINT64_C(0xd8784934419d8a69)},  {"bf16", UINT64_C(0xdc13c161da68c650)},
        {"e4m3", UINT64_C(0xfa3fe3607d0d563a)}, {"e5m2", UINT64_C(0xdf3e975117895eee)},
        {"s8", UINT64_C(0x17bddc6d9bc29cde)},   {"s8_nearest", UINT64_C(0x19279b9d834d8c89)},
        {"s4", UINT64_C(0xcd2c51780e4be99f)},   {"mxfp4", UINT64_C(0xe32e0ced37bd9bb7)},
        {"ulp", UINT64_C(0xdbdf6dac56afdfa6)},
    };
    static float x[77 * 390];
    draw_bits(x, 77 * 390, 0x9E3779B97F4A7C15u);
    int n_changed = 0;
    for (size_t k = 0; k < N_OF(kept); k++) {
        uint64_t hash = TANDEM_HASH_START;
        tandem_format format = TANDEM_N_FORMAT;
        assert_int_equal(tandem_format_find(&format, kept[k].name, NULL), TANDEM_OK);
        for (int run = 0; run < 4; run++) { /* all, and parts whose largest magnitude is 1 or less */
            const tandem_format_cast cast = {.format = format,
                                             .x = run ? x + 601 : x,
                                             .rows = run ? 5 : 390,
                                             .columns = 77,
                                             .range = run == 2 ? 0.3F : 0,
                                             .error_scale = run == 3 ? -4 : 1,
                                             .seed = 7,
                                             .stream = {1, 2, 3}};
            hash = hash_of_rounding(hash, &cast);
        }
        if (hash != kept[k].hash)
            print_error("%s: the bits have the hash 0x%016llx\n", kept[k].name, (unsigned long long)hash);
        n_changed += hash != kept[k].hash;
    }
    assert_int_equal(n_changed, 0);
}

static void formats_are_found_by_name(void **state)
{
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        tandem_format found = TANDEM_N_FORMAT;
        assert_int_equal(tandem_format_find(&found, tandem_format_get((tandem_format)f)->name, NULL),
                         TANDEM_OK);
        assert_int_equal(found, f);
    }
    tandem_error error = {0};
    tandem_format found = TANDEM_FORMAT_S4;
    assert_int_equal(tandem_format_find(&found, "e4m4", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "e4m3"));
    assert_int_equal(tandem_format_find(&found, "e2m1", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "'mxfp4' has these numbers."));
    assert_int_equal(tandem_format_find(&found, "e2m3", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "'mxfp6_e2m3' has these numbers."));
    assert_int_equal(tandem_format_find(&found, "nvfp5", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "Did you mean 'nvfp4'?"));
    assert_int_equal(found, TANDEM_FORMAT_S4);
    assert_int_equal(tandem_format_of_dtype(TANDEM_F32), TANDEM_N_FORMAT);
    assert_int_equal(tandem_format_of_dtype(TANDEM_S8), TANDEM_FORMAT_S8);
    assert_int_equal(tandem_format_of_dtype(TANDEM_TF32), TANDEM_FORMAT_TF32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_and_what_lies_between),
        cmocka_unit_test(many_numbers_round_as_one_does),
        cmocka_unit_test(rows_have_their_numbers),
        cmocka_unit_test(beyond_the_largest),
        cmocka_unit_test(a_block_has_its_own_scale),
        cmocka_unit_test(error_scale_moves_between_both),
        cmocka_unit_test(not_finite_and_all_zero),
        cmocka_unit_test(variance_is_that_of_draws),
        cmocka_unit_test(formats_keep_their_bits),
        cmocka_unit_test(formats_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
