/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* folder: plugins */
/* The plug-ins' parts while memory runs out: NO_MEMORY is said, nothing is lost, slurmctld lives. */
#include "plugins/slurm/run_folder.h"
#include "plugins/slurm/submission.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

static const char conf[] = "gres gpu:old cpu:sse41\n";

static tandem_status check_memory_test(const tandem_submission *submission, tandem_error *error)
{
    tandem_site *site = NULL;
    tandem_status status = tandem_site_parse(&site, conf, strlen(conf), "a site", error);
    if (status == TANDEM_OK)
        status = tandem_submission_check(&(tandem_work_budget){.limit = TANDEM_SUBMISSION_MAX_WORK},
                                         submission, site, error);
    tandem_site_close(site);
    return status;
}

/* Lets allocation 1, 2, 3, … fail until there are no more; `expected` is what comes out then. */
static void survive_memory(const tandem_submission *submission, tandem_status expected, const char *says)
{
    const long before = tandem_allocations_alive();
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        const tandem_status status = check_memory_test(submission, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        /* without memory for the names to choose from, the nearest is left out and the answer is the same */
        if (status != expected && !(failed && status == TANDEM_NO_MEMORY))
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
        if (!failed && says) assert_non_null(strstr(error.text, says));
        assert_int_equal(tandem_allocations_alive(), before);
    }
    (void)printf("# survived %ld failures\n", k - 1);
    assert_true(k > 4);
}

static void a_job_that_fits_survives(void **state)
{
    const tandem_submission submission = {.model = "mlp", .memory = "1GiB", .resources = {"gpu:old:1"}};
    survive_memory(&submission, TANDEM_OK, NULL);
}

static void a_job_that_does_not_fit_survives(void **state)
{
    const tandem_submission submission = {
        .model = "mlp", .batch = "3000", .memory = "10MiB", .resources = {"gpu:old:1"}};
    survive_memory(&submission, TANDEM_INFEASIBLE, " fits, in ");
}

static void an_unknown_resource_survives(void **state)
{
    const tandem_submission submission = {.model = "mlp", .resources = {"gpu:odl:1"}};
    survive_memory(&submission, TANDEM_UNKNOWN_NAME, "Did you mean 'gpu:old'");
}

static void what_srun_has_left_survives(void **state)
{
    static const char text[] = "TANDEM_RANKS=0 1 t4 n0;\n";
    const long before = tandem_allocations_alive();
    tandem_status status = TANDEM_NO_MEMORY;
    long k = 0;
    for (; status != TANDEM_OK; k++) {
        tandem_run_environment left = {0};
        tandem_error error = {0};
        tandem_fail_allocation_after(k);
        status = tandem_run_environment_parse(&left, text, sizeof text - 1, "run", &error);
        tandem_fail_allocation_after(-1);
        if (status != TANDEM_OK) assert_int_equal(status, TANDEM_NO_MEMORY);
        assert_true((status == TANDEM_OK) == (left.text != NULL));
        free(left.text);
        assert_int_equal(tandem_allocations_alive(), before);
    }
    assert_true(k > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_fits_survives),
        cmocka_unit_test(a_job_that_does_not_fit_survives),
        cmocka_unit_test(an_unknown_resource_survives),
        cmocka_unit_test(what_srun_has_left_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
