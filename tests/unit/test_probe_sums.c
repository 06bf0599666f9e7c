/* folder: runtime */
/* The arithmetic of a probe over plain arrays (probe.h), where no operator of the runtime leads to it:
 * tensors without samples, casts that overflow, and what is all 0. test_probe_parts.c has the rest. */
#include <math.h>

#include "tandem/advanced/probe.h"
#include "tests/support/tandem_test.h"

/* Of steps of 1: errors −½, −¼, 0, ½, variances ¼, 3/16, 0, ¼. */
static const float four[] = {0.5F, 1.25F, 2, -0.5F}, difference[] = {1, 2, 3, 4};

static tandem_probe_tensor tensor_of_four(tandem_probe_part part)
{
    return (tandem_probe_tensor){.part = part,
                                 .n = 4,
                                 .batch = 8,
                                 .share = 3,
                                 .x = four,
                                 .difference = {difference},
                                 .range = 127,
                                 .error_scale = 1};
}

/* What samples have in common is not distinguished from noise: three times Σ e²·D² = ¼ + ¼ + 4, as of a
 * draw. */
static void without_samples_every_error_is_noise(void **state)
{
    const tandem_format nearest = TANDEM_FORMAT_S8_NEAREST, drawn = TANDEM_FORMAT_S8;
    const tandem_probe_tensor tensor = tensor_of_four(TANDEM_PROBE_INPUT);
    tandem_probe_sums sums = {.is_before_jump = 0};
    tandem_error error = {0};
    float room[4];
    (void)state;
    require_ok(tandem_probe_add_noise(&sums, room, &tensor, nearest, &error), &error);
    require_ok(tandem_probe_add_noise(&sums, room, &tensor, drawn, &error), &error);
    assert_true(sums.noise[TANDEM_PROBE_INPUT][nearest][0] == 3 * 4.5);
    assert_true(sums.error_square[TANDEM_PROBE_INPUT][nearest] == 0.5625 / 8);
    assert_true(sums.noise[TANDEM_PROBE_INPUT][drawn][0] == 3 * 5);
    assert_true(sums.noise[TANDEM_PROBE_INPUT][nearest][1] == 0);
}

static void nothing_kept_adds_nothing(void **state)
{
    tandem_probe_sums sums = {.is_before_jump = 1};
    const tandem_probe_tensor none = {.part = TANDEM_PROBE_INPUT};
    (void)state;
    assert_int_equal(tandem_probe_add_noise(&sums, NULL, &none, TANDEM_FORMAT_S8, NULL), TANDEM_OK);
    tandem_probe_add_square(&sums, &none);
    tandem_probe_add_rate(&sums, NULL, 0);
    assert_true(sums.mean_square[TANDEM_PROBE_INPUT] == 0 && sums.rate_square == 0);
    assert_true(sums.error_square[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8] == 0);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    const float x[] = {1, INFINITY, 0, 0};
    tandem_probe_tensor tensor = tensor_of_four(TANDEM_PROBE_INPUT);
    tandem_probe_sums sums = {.is_before_jump = 1};
    tandem_error error = {0};
    float room[4];
    (void)state;
    tensor.x = x;
    tensor.range = 0;
    assert_int_equal(tandem_probe_add_noise(&sums, room, &tensor, TANDEM_FORMAT_S8, &error),
                     TANDEM_LIMIT_EXCEEDED);
    assert_true(sums.noise[TANDEM_PROBE_INPUT][TANDEM_FORMAT_S8][0] == 0);
}

/* The noise of what is lost is 10⁶ times the largest gradient's, of its variance and mean square. */
static void what_overflows_has_lost_its_gradient(void **state)
{
    enum { REPLICATES = 3, CELL = 4 };
    static float sketch[REPLICATES][2][TANDEM_PROBE_SKETCH];
    tandem_estimate estimate;
    tandem_error error = {0};
    double largest = 0;
    (void)state;
    require_ok(tandem_estimate_open(&estimate, 1, 1, REPLICATES, &error), &error);
    for (int r = 0; r < REPLICATES; r++) sketch[r][0][r] = (float)(r + 1), sketch[r][1][5] = -1;
    estimate.is_estimated[CELL] = 1;
    tandem_estimated_error *of = tandem_estimate_errors(&estimate, 0, CELL);
    for (int r = 0; r < REPLICATES; r++) of[r] = (tandem_estimated_error){.total = 2, .shared = 1};
    of[0].total = INFINITY;
    of[2].shared = NAN;
    tandem_probe_set_gradients(&estimate, 0, sketch[0][0]);
    for (int r = 0; r < REPLICATES; r++) {
        assert_true(estimate.gradient[r].variance == 0.5 * ((r + 1) * (r + 1) + 1));
        assert_true(estimate.gradient[r].mean_square == 2.0 / 8); /* those of −1 alone */
        largest = fmax(largest, estimate.gradient[r].variance + 0.25);
    }
    assert_true(of[0].total == 1e6 * largest && of[2].total == of[0].total && of[2].shared == 0);
    assert_true(of[1].total == 2 && of[1].shared == 1);
    tandem_estimate_close(&estimate);
}

static void ratios_are_of_noises_that_are_known(void **state)
{
    double log_ratio[TANDEM_N_PROBE_PART * TANDEM_N_FORMAT];
    tandem_probe_sums sums = {.is_before_jump = 1};
    (void)state;
    sums.noise[TANDEM_PROBE_INPUT][0][0] = INFINITY, sums.noise[TANDEM_PROBE_INPUT][0][1] = 1;
    sums.noise[TANDEM_PROBE_INPUT][1][0] = 1;
    sums.noise[TANDEM_PROBE_INPUT][2][0] = 8, sums.noise[TANDEM_PROBE_INPUT][2][1] = 2;
    sums.noise[TANDEM_PROBE_GRADIENT][2][0] = sums.noise[TANDEM_PROBE_GRADIENT][2][1] = 1;
    assert_int_equal(tandem_probe_log_ratios(log_ratio, &sums), 1);
    assert_true(fabs(tandem_probe_jump_ratio(log_ratio, 1) - 4) < 1e-12);
    sums.is_before_jump = 0;
    assert_int_equal(tandem_probe_log_ratios(log_ratio, &sums), 0);
    assert_true(tandem_probe_jump_ratio(log_ratio, 0) == 1);
}

static void steps_are_parts_of_the_weights(void **state)
{
    double step[2];
    (void)state;
    tandem_probe_steps(step, 36, 9);
    assert_true(step[0] == 0x1p-9 && step[1] == 0x1p-5);
    tandem_probe_steps(step, 0, 9);
    assert_true(step[0] == 0x1p-10 && step[1] == 0x1p-6);
    tandem_probe_steps(step, 36, 0);
    assert_true(step[0] == 0x1p-10 && step[1] == 0x1p-6);
    assert_true(tandem_probe_least_square(40, 4) == (float)1e-3 && tandem_probe_least_square(0, 0) == 0);
}

static void formats_are_the_dtypes_own(void **state)
{
    const tandem_emulation own = tandem_emulation_make(0);
    (void)state;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        for (int amp = 0; amp < 3; amp++) {
            const tandem_dtype dtype = (const tandem_dtype[]){TANDEM_F32, TANDEM_BF16, TANDEM_F16}[amp];
            tandem_format with[TANDEM_N_PROBE_PART], without[TANDEM_N_PROBE_PART];
            tandem_probe_formats(with, (tandem_precision)p, dtype, &own);
            tandem_probe_formats(without, (tandem_precision)p, dtype, NULL);
            assert_memory_equal(with, without, sizeof with);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_samples_every_error_is_noise),
        cmocka_unit_test(nothing_kept_adds_nothing),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(what_overflows_has_lost_its_gradient),
        cmocka_unit_test(ratios_are_of_noises_that_are_known),
        cmocka_unit_test(steps_are_parts_of_the_weights),
        cmocka_unit_test(formats_are_the_dtypes_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
