/* folder: base */
/* Numbers of two bytes and of one (kernels/cuda/arithmetic.h) against their definition: the nearest of all
 * values that the type has, found by looking at them all; of two that are as near the one with the even code.
 * */
#include "kernels/cuda/arithmetic.h"
#include "tests/support/tandem_test.h"

/* A type by its definition: sign, exponent, mantissa; the value of each code in double. */
typedef struct type {
    int exponent, mantissa;
    /* else the highest exponent is one like others, but for the last code, which is the NaN */
    int has_infinity;
    uint32_t largest; /* code */
    double overflow;  /* from here on a magnitude becomes infinite, or the largest number */
} type;

static const type f16 = {5, 10, 1, 0x7BFF, 65520}, e5m2 = {5, 2, 1, 0x7B, 57344}, e4m3 = {4, 3, 0, 0x7E, 448};

static double value_of_code(const type *t, uint32_t code)
{
    const int bias = (1 << (t->exponent - 1)) - 1;
    const uint32_t m = code & ((1u << t->mantissa) - 1), e = code >> t->mantissa & ((1u << t->exponent) - 1);
    const double sign = code >> (t->mantissa + t->exponent) ? -1 : 1;
    if (t->has_infinity && e == (1u << t->exponent) - 1) return m ? NAN : sign * INFINITY;
    if (!t->has_infinity && (code & 0x7F) == 0x7F) return NAN;
    return sign * (e ? ldexp(1 + ldexp(m, -t->mantissa), (int)e - bias) : ldexp(m, 1 - bias - t->mantissa));
}

/* By bisection over the codes of magnitudes, which grow with what they represent. */
static uint32_t nearest_code(const type *t, float x)
{
    const uint32_t sign = signbit(x) ? 1u << (t->mantissa + t->exponent) : 0;
    const double magnitude = fabs((double)x);
    uint32_t low = 0, high = t->largest;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (value_of_code(t, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = magnitude - value_of_code(t, low), above = value_of_code(t, high) - magnitude;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static int is_number(uint32_t bits) { return (bits & 0x7FFFFFFFu) <= 0x7F800000u; }

static void expect_code(const type *t, uint32_t got, float x, uint32_t beyond)
{
    const uint32_t sign = signbit(x) ? 1u << (t->mantissa + t->exponent) : 0;
    const uint32_t right = fabs((double)x) >= t->overflow ? sign | beyond : nearest_code(t, x);
    if (got != right) fail_msg("%a became %x, not %x", (double)x, got, right);
}

static void check_every_type(float x)
{
    expect_code(&f16, tandem_f16_of(x), x, 0x7C00);
    expect_code(&e4m3, tandem_e4m3_of(x), x, 0x7E);
    expect_code(&e5m2, tandem_e5m2_of(x), x, 0x7B);
}

static void check_neighbours(double value)
{
    const float x = (float)value;
    check_every_type(x), check_every_type(-x);
    check_every_type(nextafterf(x, INFINITY)), check_every_type(nextafterf(x, -INFINITY));
    check_every_type(-nextafterf(x, INFINITY)), check_every_type(-nextafterf(x, 0));
}

/* Each value, the middle between it and the next, and what lies just beside. */
static void check_code_edges(const type *t)
{
    for (uint32_t code = 0; code <= t->largest; code++) {
        const double own = value_of_code(t, code),
                     next = code < t->largest ? value_of_code(t, code + 1) : t->overflow;
        check_neighbours(own);
        check_neighbours((own + next) / 2);
    }
}

static void numbers_become_the_nearest(void **state)
{
    check_code_edges(&f16);
    check_code_edges(&e4m3);
    check_code_edges(&e5m2);
    for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 10007) /* all exponents, both signs */
        if (is_number((uint32_t)bits)) check_every_type(tandem_float_of((uint32_t)bits));
    check_every_type(INFINITY), check_every_type(-INFINITY);
}

static void no_number_stays_none(void **state)
{
    static const uint32_t nans[] = {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        const float x = tandem_float_of(nans[i]);
        assert_int_equal(tandem_f16_of(x), 0x7FFF);
        assert_int_equal(tandem_e4m3_of(x), 0x7F);
        assert_int_equal(tandem_e5m2_of(x), 0x7F);
    }
}

static void assert_same_value(double got, double right)
{
    if (isnan(right) ? !isnan(got) : got != right || signbit(got) != signbit(right))
        fail_msg("%a, not %a", got, right);
}

static void codes_represent_what_is_defined(void **state)
{
    for (uint32_t code = 0; code < 65536; code++)
        assert_same_value((double)tandem_f32_of_f16((uint16_t)code), value_of_code(&f16, code));
    for (uint32_t code = 0; code < 256; code++) {
        assert_same_value((double)tandem_f32_of_e4m3((uint8_t)code), value_of_code(&e4m3, code));
        assert_same_value((double)tandem_f32_of_e5m2((uint8_t)code), value_of_code(&e5m2, code));
    }
    assert_same_value((double)tandem_f32_of_e4m3(0x7E), 448);
    assert_same_value((double)tandem_f32_of_e5m2(0x7B), 57344);
    assert_same_value((double)tandem_f32_of_f16(0x7BFF), 65504);
}

/* A range's inverse may round up: what is largest then stays the type's largest. */
static void the_range_becomes_the_largest(void **state)
{
    for (uint32_t i = 0; i < 100000; i++) {
        const float amax = tandem_float_of(0x20000000u + i * 10007u);
        const tandem_quant_scale of4 = tandem_quant_scale_of(amax, 448),
                                 of5 = tandem_quant_scale_of(amax, 57344);
        assert_int_equal(tandem_e4m3_of(TANDEM_MUL(amax, of4.inverse)), 0x7E);
        assert_int_equal(tandem_e5m2_of(TANDEM_MUL(amax, of5.inverse)), 0x7B);
        assert_true(fabsf(448 * of4.scale - amax) <= amax * 0x1p-22f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_become_the_nearest),
        cmocka_unit_test(no_number_stays_none),
        cmocka_unit_test(codes_represent_what_is_defined),
        cmocka_unit_test(the_range_becomes_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
