/* folder: runtime */
/* The loops of a probe, of all lengths around their lanes, on whole numbers, whose sums are exact. */
#include "runtime/estimate/probe_loops.h"
#include "tandem/advanced/probe.h"
#include "tests/support/tandem_test.h"

enum { MAX_NUMBERS = 50 };

/* Different at every place, of both signs; `of` distinguishes arrays. */
static float number_of(int64_t i, int of) { return (float)((i * 7 + of * 5) % 23 - 11); }

static void fill_numbers(float *x, int64_t n, int of)
{
    for (int64_t i = 0; i < n; i++) x[i] = number_of(i, of);
}

static void sums_take_every_number_once(void **state)
{
    float a[MAX_NUMBERS], b[MAX_NUMBERS], v[MAX_NUMBERS];
    (void)state;
    for (int64_t n = 0; n <= MAX_NUMBERS; n++) {
        double sum = 0, ab = 0, vaa = 0, vbb = 0, vab = 0, all = 0, alone = -1, pair[PROBE_N_PAIR_SUM];
        float amax = 0;
        fill_numbers(a, n, 1);
        fill_numbers(b, n, 2);
        fill_numbers(v, n, 3);
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)a[i], y = (double)b[i], w = (double)v[i];
            sum += x, ab += x * y, vaa += w * x * x, vbb += w * y * y, vab += w * x * y, all += w;
            amax = fmaxf(amax, fabsf(a[i]));
        }
        assert_true(probe_amax(a, n) == amax);
        for (int64_t i = 0; i < n; i++) b[i] = -fabsf(a[i]);
        assert_true(probe_amax(b, n) == amax);
        fill_numbers(b, n, 2);
        assert_true(tandem_probe_sum(a, n) == sum);
        assert_true(probe_product(a, b, n) == ab);
        assert_true(probe_weighted_squares(&alone, v, a, n) == vaa && alone == all);
        probe_pair_sums(pair, v, a, b, n);
        assert_true(pair[PROBE_PAIR_FIRST] == vaa && pair[PROBE_PAIR_SECOND] == vbb);
        assert_true(pair[PROBE_PAIR_CROSS] == vab && pair[PROBE_PAIR_WEIGHT] == all);
        assert_true(tandem_probe_square(a, n) == probe_product(a, a, n));
    }
}

/* Number i of what a loop writes, of x and y; c: what was there. */
typedef float written_number(float x, float y, float c);
static float squared(float x, float y, float c) { return (void)x, (void)y, c * c; }
static float difference(float x, float y, float c) { return (void)c, (x - y) * 3; }
static float added(float x, float y, float c) { return (void)y, c + x; }
static float added_difference(float x, float y, float c) { return c + (x - y); }
static float scaled(float x, float y, float c) { return (void)y, (void)c, x * 3; }
static float subtracted(float x, float y, float c) { return (void)y, c * 3 - x; }

static void run_written(int which, float *to, const float *x, const float *y, int64_t n)
{
    if (which == 0) probe_square_each(to, n);
    if (which == 1) tandem_probe_difference(to, x, y, 3, n);
    if (which == 2) probe_add(to, x, n);
    if (which == 3) probe_add_difference(to, x, y, n);
    if (which == 4) probe_scale(to, x, 3, n);
    if (which == 5) probe_subtract(to, 3, x, n);
}

static void every_number_is_written_and_none_after(void **state)
{
    static written_number *const expected[] = {squared,          difference, added,
                                               added_difference, scaled,     subtracted};
    float x[MAX_NUMBERS], y[MAX_NUMBERS], to[MAX_NUMBERS + 1];
    (void)state;
    fill_numbers(x, MAX_NUMBERS, 1);
    fill_numbers(y, MAX_NUMBERS, 2);
    for (int which = 0; which < (int)N_OF(expected); which++)
        for (int64_t n = 0; n <= MAX_NUMBERS; n++) {
            fill_numbers(to, MAX_NUMBERS + 1, 3);
            run_written(which, to, x, y, n);
            for (int64_t i = 0; i < n; i++)
                if (to[i] != expected[which](x[i], y[i], number_of(i, 3)))
                    fail_msg("loop %d of %lld: number %lld is %g", which, (long long)n, (long long)i,
                             (double)to[i]);
            assert_true(to[n] == number_of(n, 3));
        }
}

static void a_gradient_is_a_product_with_the_weights(void **state)
{
    enum { ROWS = 2, DEPTH = 3, MAX_COLUMNS = 33 };
    float g[ROWS * MAX_COLUMNS], w[DEPTH * MAX_COLUMNS], to[ROWS * DEPTH];
    (void)state;
    for (int64_t columns = 1; columns <= MAX_COLUMNS; columns++) {
        fill_numbers(g, ROWS * columns, 1);
        fill_numbers(w, DEPTH * columns, 2);
        probe_linear_gradient(to, g, w, ROWS, DEPTH, columns);
        for (int64_t i = 0; i < ROWS * DEPTH; i++) {
            float sum = 0;
            for (int64_t j = 0; j < columns; j++)
                sum += g[i / DEPTH * columns + j] * w[i % DEPTH * columns + j];
            assert_true(to[i] == sum);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_take_every_number_once),
        cmocka_unit_test(every_number_is_written_and_none_after),
        cmocka_unit_test(a_gradient_is_a_product_with_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
