/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: allocator */
/* Policies, their figures and their refusals, on an mlp on two devices with drawn costs. */
#include "allocator/policies.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:depth=3,width=64", two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni";
enum { STRONG, WEAK };

static void open_costed_allocator(costed_cluster *p, const char *cluster, int64_t batch,
                                  costed_filter *measured)
{
    tandem_error error = {0};
    require_ok(costed_cluster_open(p, model, cluster, batch, 11, measured, &error), &error);
}

static int64_t step_ns(const costed_cluster *p)
{
    tandem_replay replay;
    tandem_error error = {0};
    require_ok(tandem_replayer_run(p->replayer, &replay, 0, &error), &error);
    return replay.step_ns;
}

static int is_adjustable_allocator(const costed_cluster *p, int op)
{
    return tandem_op_is_adjustable(&p->graph[0]->op[op]);
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static void policies_are_found_by_name(void **state)
{
    const tandem_policy *policy = NULL;
    int n = 0;
    for (; tandem_policy_get(n); n++) {
        assert_true(tandem_policy_get(n)->name[0] && tandem_policy_get(n)->meaning[0]);
        assert_int_equal(tandem_policy_find(&policy, tandem_policy_get(n)->name, NULL), TANDEM_OK);
        assert_ptr_equal(policy, tandem_policy_get(n));
    }
    assert_true(n > 1);
    assert_null(tandem_policy_get(-1));
    assert_null(tandem_policy_get(n + 1));
    const tandem_policy *const before = policy;
    tandem_error error = {0};
    assert_int_equal(tandem_policy_find(&policy, "gredy", &error), TANDEM_UNKNOWN_NAME);
    assert_ptr_equal(policy, before);
    assert_non_null(strstr(error.text, "'greedy'"));
}

/* --- Sensitivity ---------------------------------------------------------------------------------------- */

static void the_sensitivity_is_the_sum_over_classes(void **state)
{
    costed_cluster p;
    open_costed_allocator(&p, "2*cpu:avx512_bf16 batch=24 + cpu:avx2_vnni batch=16", 16, NULL);
    const tandem_allocation_problem problem = costed_problem(&p, 0);
    int op = 0;
    while (!is_adjustable_allocator(&p, op)) op++;
    assert_true(tandem_allocation_sensitivity(&problem) == 0);
    p.sensitivity[STRONG][op * TANDEM_N_PRECISION + TANDEM_PRECISION_BF16] = 3;
    p.sensitivity[WEAK][op * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8] = 5;
    tandem_replayer_set(p.replayer, STRONG, op, TANDEM_PRECISION_BF16);
    assert_true(tandem_allocation_sensitivity(&problem) == 3);
    tandem_replayer_set(p.replayer, WEAK, op, TANDEM_PRECISION_INT8);
    assert_true(tandem_allocation_sensitivity(&problem) == 3 + 5);
    /* units and values: rounded down, and back */
    const tandem_allocation_problem thirds = {.sensitivity_unit = 1.0 / 3};
    assert_true(tandem_sensitivity_units(&thirds, 2.5) == 7 && tandem_sensitivity_value(&thirds, 9) == 3);
    for (int64_t units = 0; units < 1000; units++)
        assert_true(tandem_sensitivity_units(&thirds, tandem_sensitivity_value(&thirds, units)) == units);
    assert_true(isnan(tandem_sensitivity_value(&thirds, -1)) && tandem_sensitivity_units(&thirds, NAN) == -1);
    assert_true(isinf(tandem_sensitivity_value(&thirds, INT64_MAX)) &&
                tandem_sensitivity_units(&thirds, INFINITY) == INT64_MAX);
    costed_cluster_close(&p);
}

/* --- Uniform -------------------------------------------------------------------------------------------- */

static void uniform_lowers_the_slowest_class(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    open_costed_allocator(&p, two_devices, 16, NULL);
    const int64_t base_ns = step_ns(&p);
    tandem_allocation_problem problem = costed_problem(&p, 0);
    problem.without_certificate = 0;
    require_ok(tandem_allocate(&plan, &a, policy_of("uniform"), &problem, "drawn", &error), &error);
    int64_t sensitivity = 0;
    assert_int_equal(a.keeps_base, 1u << STRONG);
    for (int i = 0; i < plan->assignment.n_op; i++) {
        assert_int_equal(plan->assignment.precision[STRONG][i], TANDEM_PRECISION_FP32);
        assert_int_equal(plan->assignment.precision[WEAK][i],
                         is_adjustable_allocator(&p, i) ? TANDEM_PRECISION_INT8 : TANDEM_PRECISION_FP32);
        sensitivity += p.sensitivity[WEAK][i * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8];
    }
    assert_true(a.sensitivity_bound == sensitivity);
    assert_true(a.base_sensitivity_bound == 0 && a.fastest_sensitivity_bound == a.sensitivity_bound);
    assert_int_equal(a.base_ns, base_ns);
    assert_int_equal(a.step_ns, step_ns(&p));
    assert_int_equal(a.target_ns, a.step_ns);
    assert_int_equal(a.fastest_ns, a.step_ns);
    assert_int_equal(a.replays, 3);
    assert_string_equal(plan->name, "uniform int8");
    assert_string_equal(plan->policy, "uniform");
    assert_string_equal(plan->method, "drawn");
    assert_int_equal(plan->cluster.classes[WEAK].batch, 16);
    assert_true(plan->lower_bound > 0 && plan->lower_bound <= plan->sensitivity_bound);
    assert_true(fabs(plan->gap - (1 - plan->lower_bound / plan->sensitivity_bound)) < 1e-12);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

static void uniform_base_lowers_none(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    open_costed_allocator(&p, two_devices, 16, NULL);
    tandem_allocation_problem problem = costed_problem(&p, 0);
    problem.uniform = TANDEM_PRECISION_FP32;
    require_ok(tandem_allocate(&plan, &a, policy_of("uniform"), &problem, NULL, &error), &error);
    assert_int_equal(a.step_ns, a.base_ns);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

static void a_precision_that_the_device_lacks_is_refused(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    tandem_error error = {0};
    open_costed_allocator(&p, two_devices, 16, NULL);
    tandem_allocation_problem problem = costed_problem(&p, 0);
    problem.uniform = TANDEM_PRECISION_BF16;
    assert_int_equal(tandem_allocate(&plan, &a, policy_of("uniform"), &problem, NULL, &error),
                     TANDEM_NO_KERNEL);
    assert_null(plan);
    assert_int_equal(a.replays, -5);
    costed_cluster_close(&p);
}

/* --- Limits --------------------------------------------------------------------------------------------- */

static void a_plan_that_does_not_fit_names_device_bytes_and_limit(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    open_costed_allocator(&p, two_devices, 16, NULL);
    tandem_allocation_problem problem = costed_problem(&p, 0);
    tandem_error none = {0};
    tandem_allocation free_one;
    require_ok(tandem_allocate(&plan, &free_one, policy_of("uniform"), &problem, NULL, &none), &none);
    tandem_plan_close(plan);
    plan = NULL;
    costed_cluster_close(&p);
    open_costed_allocator(&p, "cpu:avx512_bf16 + cpu:avx2_vnni memory=4KiB", 16, NULL);
    problem = costed_problem(&p, 0);
    for (int k = 0; tandem_policy_get(k); k++) {
        tandem_error error = {0};
        assert_int_equal(tandem_allocate(&plan, &a, tandem_policy_get(k), &problem, NULL, &error),
                         TANDEM_INFEASIBLE);
        assert_null(plan);
        assert_int_equal(a.replays, -5);
        assert_non_null(strstr(error.text, "cpu:avx2_vnni"));
        assert_non_null(strstr(error.text, "(4096 B)"));
        const char *takes = strstr(error.text, "takes ");
        assert_non_null(takes);
        const uint64_t bytes = strtoull(strchr(takes, '(') + 1, NULL, 10);
        assert_true(bytes > 4096 && bytes <= free_one.peak_bytes[WEAK]);
        if (tandem_policy_get(k) == policy_of("uniform")) assert_int_equal(bytes, free_one.peak_bytes[WEAK]);
        assert_int_equal(error.status, TANDEM_INFEASIBLE);
    }
    costed_cluster_close(&p);
}

/* A class that waits is lowered only where it does not fit; the step does not suffer by it. */
static void a_class_that_waits_is_lowered_for_its_memory_alone(void **state)
{
    char cluster[96];
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation free_one, tight;
    tandem_error error = {0};
    open_costed_allocator(&p, two_devices, 256, NULL);
    tandem_allocation_problem problem = costed_problem(&p, 0.05);
    require_ok(tandem_allocate(&plan, &free_one, policy_of("greedy"), &problem, NULL, &error), &error);
    assert_int_equal(free_one.keeps_base, 1u << STRONG);
    tandem_plan_close(plan);
    costed_cluster_close(&p);

    const uint64_t limit_bytes = free_one.peak_bytes[STRONG] - 1;
    (void)snprintf(cluster, sizeof cluster, "cpu:avx512_bf16 memory=%lluB + cpu:avx2_vnni",
                   (unsigned long long)limit_bytes);
    open_costed_allocator(&p, cluster, 256, NULL);
    problem = costed_problem(&p, 0.05);
    require_ok(tandem_allocate(&plan, &tight, policy_of("greedy"), &problem, NULL, &error), &error);
    assert_true(tight.peak_bytes[STRONG] <= limit_bytes);
    assert_true(tight.sensitivity_bound > free_one.sensitivity_bound);
    assert_int_equal(tight.keeps_base, 0);
    assert_true(tight.step_ns <= tight.target_ns);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

/* --- What was not measured ------------------------------------------------------------------------------ */

static int is_no_int8_product(const tandem_cost_key *key)
{
    return key->kind != TANDEM_COST_OP || strncmp(key->precision, "int8", 4) != 0;
}

static int is_full_or_no_int8(const tandem_cost_key *key) { return strcmp(key->precision, "int8") != 0; }

static int is_no_linear(const tandem_cost_key *key) { return strncmp(key->signature, "linear", 6) != 0; }

static void what_was_not_measured_is_left_out(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    open_costed_allocator(&p, two_devices, 16, is_no_int8_product); /* of the weak device fp32 is left */
    tandem_allocation_problem problem = costed_problem(&p, 0);
    require_ok(tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error), &error);
    assert_int_equal(a.keeps_base, 1u << STRONG | 1u << WEAK);
    assert_int_equal(a.step_ns, a.base_ns);
    assert_true(a.sensitivity_bound == 0);
    tandem_plan_close(plan);
    plan = NULL;
    assert_int_equal(tandem_allocate(&plan, &a, policy_of("uniform"), &problem, NULL, &error),
                     TANDEM_MISSING);
    assert_null(plan);
    costed_cluster_close(&p);

    open_costed_allocator(&p, two_devices, 16, is_full_or_no_int8);
    problem = costed_problem(&p, 0);
    require_ok(tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error), &error);
    assert_true(a.step_ns < a.base_ns);
    for (int i = 0; i < plan->assignment.n_op; i++)
        assert_int_not_equal(plan->assignment.precision[WEAK][i], TANDEM_PRECISION_INT8);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

static void a_base_plan_without_costs_is_an_error(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    open_costed_allocator(&p, two_devices, 16, is_no_linear);
    const tandem_allocation_problem problem = costed_problem(&p, 0);
    for (int k = 0; tandem_policy_get(k); k++) {
        tandem_error error = {0};
        assert_int_equal(tandem_allocate(&plan, &a, tandem_policy_get(k), &problem, NULL, &error),
                         TANDEM_MISSING);
        assert_null(plan);
        assert_int_equal(a.replays, -5);
        assert_non_null(strstr(error.text, "linear"));
    }
    costed_cluster_close(&p);
}

/* --- Bad input ------------------------------------------------------------------------------------------ */

static void bad_numbers_are_refused(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    open_costed_allocator(&p, two_devices, 16, NULL);
    static const double bad[] = {-0.01, NAN, INFINITY, -INFINITY};
    static const int64_t bad_units[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 53};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        const tandem_allocation_problem problem = costed_problem(&p, bad[k]);
        tandem_error error = {0};
        assert_int_equal(tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error),
                         TANDEM_USAGE);
        const tandem_allocation_problem sound = costed_problem(&p, 0);
        const int64_t kept = p.sensitivity[WEAK][5];
        p.sensitivity[WEAK][5] = bad_units[k];
        assert_int_equal(tandem_allocate(&plan, &a, policy_of("greedy"), &sound, NULL, &error), TANDEM_USAGE);
        p.sensitivity[WEAK][5] = kept;
        assert_null(plan);
        assert_int_equal(a.replays, -5);
    }
    tandem_error error = {0};
    const tandem_allocation_problem patient = costed_problem(&p, 1e300); /* no overflow of the target */
    require_ok(tandem_allocate(&plan, &a, policy_of("greedy"), &patient, NULL, &error), &error);
    assert_true(a.target_ns > a.fastest_ns && a.sensitivity_bound == 0);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

/* --- Another base --------------------------------------------------------------------------------------- */

static void the_base_need_not_be_fp32(void **state)
{
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    open_costed_allocator(&p, "cpu:avx512_bf16", 16, NULL);
    tandem_allocation_problem problem = costed_problem(&p, 0);
    problem.base_precision = TANDEM_PRECISION_BF16;
    require_ok(tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error), &error);
    int64_t sensitivity = 0;
    for (int i = 0; i < plan->assignment.n_op; i++)
        sensitivity += p.sensitivity[0][i * TANDEM_N_PRECISION + TANDEM_PRECISION_BF16];
    assert_true(a.base_sensitivity_bound == sensitivity);
    assert_true(a.fastest_ns <= a.base_ns);
    assert_true(a.step_ns <= a.target_ns);
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

/* --- Without memory ------------------------------------------------------------------------------------- */

static void every_allocation_may_fail_allocator(void **state)
{
    char cluster[96];
    costed_cluster p;
    (void)snprintf(cluster, sizeof cluster, "%s memory=1GiB", two_devices); /* memory is planned, too */
    open_costed_allocator(&p, cluster, 16, NULL);
    const tandem_allocation_problem problem = costed_problem(&p, 0.1);
    for (int which = 0; tandem_policy_get(which); which++) {
        tandem_status status = TANDEM_NO_MEMORY;
        tandem_plan *plan = NULL;
        long k = 0;
        for (; status != TANDEM_OK; k++) {
            tandem_allocation a = {.replays = -5};
            tandem_error error = {0};
            /* each replay plans memory: most are alike */
            tandem_fail_allocation_after(k < 64 ? k : 64 + 37 * (k - 64));
            status = tandem_allocate(&plan, &a, tandem_policy_get(which), &problem, NULL, &error);
            const int failed = tandem_allocation_failed();
            tandem_fail_allocation_after(-1);
            assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
            assert_int_equal(error.status, status);
            assert_true(failed == (plan == NULL) && failed == (a.replays == -5));
        }
        assert_true(k > 4);
        tandem_plan_close(plan);
    }
    costed_cluster_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_found_by_name),
        cmocka_unit_test(the_sensitivity_is_the_sum_over_classes),
        cmocka_unit_test(uniform_lowers_the_slowest_class),
        cmocka_unit_test(uniform_base_lowers_none),
        cmocka_unit_test(a_precision_that_the_device_lacks_is_refused),
        cmocka_unit_test(a_plan_that_does_not_fit_names_device_bytes_and_limit),
        cmocka_unit_test(a_class_that_waits_is_lowered_for_its_memory_alone),
        cmocka_unit_test(what_was_not_measured_is_left_out),
        cmocka_unit_test(a_base_plan_without_costs_is_an_error),
        cmocka_unit_test(bad_numbers_are_refused),
        cmocka_unit_test(the_base_need_not_be_fp32),
        cmocka_unit_test(every_allocation_may_fail_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
