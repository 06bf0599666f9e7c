/* folder: predictor */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* What others measured, where an allocation fails: a time is theirs, or the lack of memory is said. */
#include "tandem/advanced/predictor.h"
#include "tandem/advanced/timings.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static tandem_status predict_product(double *ns, tandem_error *error)
{
    tandem_device device;
    tandem_calibration *calibration = NULL;
    tandem_work work;
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_timing timing = {.m = 512, .k = 1024, .n = 768, .kind = "linear", .precision = "fp32"};
    assert_int_equal(tandem_device_find(&device, "t4", NULL), TANDEM_OK);
    assert_int_equal(tandem_timing_work(&work, &timing, NULL), TANDEM_OK);
    tandem_status status = tandem_calibration_open(&calibration, &device, error);
    if (status == TANDEM_OK) status = tandem_calibration_add(calibration, &work, 2e5, 0, error);
    if (status == TANDEM_OK) tandem_calibration_finish(calibration, notes);
    if (status == TANDEM_OK && notes[0]) status = tandem_error_set(error, TANDEM_NO_MEMORY, "%s", notes);
    if (status == TANDEM_OK) status = tandem_calibration_add_others(calibration, error);
    if (status == TANDEM_OK) *ns = tandem_calibrated_ns(NULL, calibration, &work);
    if (status == TANDEM_OK) status = tandem_calibration_check_others(calibration, error);
    tandem_calibration_close(calibration);
    return status;
}

static void a_lack_of_memory_is_said(void **state)
{
    double expected = 0;
    int n_failed = 0;
    tandem_error error = {0};
    require_ok(predict_product(&expected, &error), &error);
    tandem_status status = TANDEM_NO_MEMORY;
    for (long k = 0;; k++) {
        double ns = 0;
        tandem_fail_allocation_after(k);
        status = predict_product(&ns, &error);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (!failed) break;
        n_failed++;
        /* the answers that are kept for later are no part of an answer */
        assert_true(status == TANDEM_NO_MEMORY || ns == expected);
        if (status == TANDEM_NO_MEMORY) assert_non_null(strstr(error.text, "memory"));
    }
    assert_true(n_failed >= 8 && status == TANDEM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_lack_of_memory_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
