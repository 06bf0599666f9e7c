/* folder: allocator */
/* Plans whose sensitivities cannot be distinguished, on an mlp on two devices with drawn costs. What is
 * estimated of an operator varies over the replicates by a spread that the test chooses. */
#include "tests/support/costed_cluster.h"

enum { N_REPLICATE = 6, N_SEED = 24 };
#define SLOWDOWN 0.2

typedef struct estimated_bench {
    costed_cluster p;
    tandem_estimate estimate;
    tandem_allocation_problem problem;
} estimated_bench;

/* Var g = 4 and |E g|² = 1, so that an error of 5·s is a sensitivity of s, by its part of the batch. */
static void estimate_operator(estimated_bench *b, int op, tandem_precision precision, double share,
                              double spread)
{
    char text[64];
    for (int amp = 0; amp < TANDEM_N_AMP_DTYPE; amp++) {
        static const tandem_dtype dtype[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
        const int cell = tandem_estimate_cell(op, precision, dtype[amp]);
        double sum = 0, drawn[N_REPLICATE];
        for (int r = 0; r < N_REPLICATE; r++) {
            (void)snprintf(text, sizeof text, "%d %d %d", op, (int)precision, r);
            drawn[r] = draw(3, text, 1);
            sum += drawn[r] / N_REPLICATE;
        }
        for (int r = 0; r < N_REPLICATE; r++)
            tandem_estimate_errors(&b->estimate, 0, cell)[r].total =
                5 * share * (1 + spread * (drawn[r] - sum));
        b->estimate.is_estimated[cell] = 1;
    }
    for (int c = 0; c < 2; c++) /* two ranks with half of the samples each */
        b->p.sensitivity[c][op * TANDEM_N_PRECISION + (int)precision] =
            (int64_t)ceil(100 * share / 2 / b->problem.sensitivity_unit);
}

static void open_estimated_bench(estimated_bench *b, uint64_t seed, double spread)
{
    tandem_error error = {0};
    require_ok(costed_cluster_open(&b->p, "mlp:depth=3,width=64", "cpu:avx512_bf16 + cpu:avx2_vnni", 16, seed,
                                   NULL, &error),
               &error);
    b->problem = costed_problem(&b->p, SLOWDOWN);
    b->problem.without_certificate = 0;
    b->problem.sensitivity_unit = 1e-6;
    const tandem_graph *graph = b->p.graph[0];
    require_ok(tandem_estimate_open(&b->estimate, graph->n_op, 1, N_REPLICATE, &error), &error);
    b->estimate.batch = 32;
    for (int r = 0; r < N_REPLICATE; r++)
        b->estimate.gradient[r] = (tandem_estimated_gradient){.variance = 4, .mean_square = 1};
    for (int i = 0; i < graph->n_op; i++)
        for (int q = 0; q < TANDEM_N_PRECISION; q++) {
            const int64_t drawn = b->p.sensitivity[0][i * TANDEM_N_PRECISION + q];
            if (drawn > 0) estimate_operator(b, i, (tandem_precision)q, 50e-12 * (double)drawn, spread);
        }
    b->problem.estimate = &b->estimate;
}

static void close_estimated_bench(estimated_bench *b)
{
    tandem_estimate_close(&b->estimate);
    costed_cluster_close(&b->p);
}

static tandem_plan *allocate_estimated(tandem_allocation *found, const estimated_bench *b,
                                       tandem_objective objective)
{
    tandem_plan *plan = NULL;
    tandem_error error = {0};
    const tandem_goal goal = {objective, INT64_MAX};
    require_ok(tandem_allocate_for(&plan, found, &goal, policy_of("exact"), &b->problem, "sampled", &error),
               &error);
    return plan;
}

static tandem_plan *least_sensitive(tandem_allocation *found, const estimated_bench *b)
{
    tandem_plan *plan = NULL;
    tandem_error error = {0};
    require_ok(tandem_allocate(&plan, found, policy_of("exact"), &b->problem, "sampled", &error), &error);
    return plan;
}

static tandem_sensitivity_difference difference_of(const estimated_bench *b, const tandem_plan *more,
                                                   const tandem_plan *less)
{
    tandem_sensitivity_difference difference = {0};
    tandem_error error = {0};
    require_ok(tandem_plan_sensitivity_compare(&difference, &b->estimate, more, less, b->p.graph[0], &error),
               &error);
    return difference;
}

/* --- What is known exactly is not traded ---------------------------------------------------------------- */

static void exact_differences_are_kept(void **state)
{
    estimated_bench b;
    tandem_allocation found, least;
    int n_slower = 0;
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        open_estimated_bench(&b, seed, 0);
        tandem_plan *plan = allocate_estimated(&found, &b, TANDEM_MINIMIZE_SENSITIVITY),
                    *reference = least_sensitive(&least, &b);
        assert_int_equal(found.indistinguishable_ns, 0);
        assert_true(isnan(found.difference) && found.sensitivity_bound == least.sensitivity_bound);
        assert_int_equal(found.step_ns, least.step_ns);
        n_slower += found.step_ns > found.fastest_ns;
        tandem_plan_close(plan);
        tandem_plan_close(reference);
        close_estimated_bench(&b);
    }
    assert_true(n_slower > N_SEED / 2); /* else there is nothing to trade */
    (void)state;
}

/* --- What cannot be distinguished: the faster one ------------------------------------------------------- */

static void the_faster_of_indistinguishable_plans_is_taken(void **state)
{
    estimated_bench b;
    tandem_allocation found, least, of_fastest;
    tandem_error error = {0};
    int n_taken = 0, n_unknown = 0;
    for (uint64_t seed = 1; seed <= N_SEED; seed++)
        for (int loud = 0; loud < 2; loud++) {
            open_estimated_bench(&b, seed, loud ? 100 : 2);
            tandem_plan *plan = allocate_estimated(&found, &b, TANDEM_MINIMIZE_SENSITIVITY),
                        *reference = least_sensitive(&least, &b);
            assert_true(found.step_ns <= least.step_ns && found.sensitivity_bound >= least.sensitivity_bound);
            tandem_plan *fastest = allocate_estimated(&of_fastest, &b, TANDEM_MINIMIZE_STEP);
            const tandem_sensitivity_difference most = difference_of(&b, fastest, reference);
            /* little is known of them, and nothing is traded for that */
            n_unknown += most.low <= 0 && most.high > 0.01 && !found.indistinguishable_ns;
            tandem_plan_close(fastest);
            if (found.indistinguishable_ns) {
                const tandem_sensitivity_difference d = difference_of(&b, plan, reference);
                n_taken++;
                assert_true(d.low <= 0 && d.high <= 0.01 && found.step_ns < least.step_ns);
                assert_true((double)found.step_ns * (1 + 1e-8 * (double)found.sensitivity_bound) <=
                            (double)least.step_ns * (1 + 1e-8 * (double)least.sensitivity_bound));
                assert_int_equal(found.indistinguishable_ns, least.step_ns);
                assert_true(fabs(found.difference_high - 100 * d.high) < 1e-9);
                assert_int_equal(found.target_ns, least.target_ns);
                assert_true(found.certificate.lower_bound <= found.sensitivity_bound);
                require_ok(tandem_plan_verify(&least, plan, &b.problem, &error), &error);
            }
            tandem_plan_close(plan);
            tandem_plan_close(reference);
            close_estimated_bench(&b);
        }
    print_message("%d taken, %d unknown\n", n_taken, n_unknown);
    assert_true(n_taken > 5 && n_unknown > 5);
    (void)state;
}

/* --- Proofs --------------------------------------------------------------------------------------------- */

static double half_of(const estimated_bench *b, const tandem_plan *plan)
{
    tandem_plan_sensitivity of;
    tandem_error error = {0};
    require_ok(tandem_plan_sensitivity_estimate(&of, &b->estimate, plan, b->p.graph[0], &error), &error);
    return fmax(of.estimate.high - of.estimate.value, of.estimate.value - of.estimate.low);
}

static void proofs_end_where_the_sensitivity_does(void **state)
{
    int n_ended = 0;
    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        estimated_bench b;
        tandem_allocation whole, short_one;
        open_estimated_bench(&b, seed, 2);
        b.problem.estimate = NULL;
        tandem_plan_close(least_sensitive(&whole, &b));
        b.problem.estimate = &b.estimate;
        tandem_plan *plan = least_sensitive(&short_one, &b);
        const int64_t gap = short_one.sensitivity_bound - short_one.certificate.lower_bound;
        const double share = 1e-8 * (double)gap;
        assert_true(short_one.certificate.lower_bound <= whole.sensitivity_bound &&
                    short_one.replays <= whole.replays);
        if (gap > whole.sensitivity_bound - whole.certificate.lower_bound) {
            n_ended++;
            if (share > 0.01 || share > half_of(&b, plan) + 1e-8)
                fail_msg("seed %d: a gap of %g of the samples", (int)seed, share);
        }
        tandem_plan_close(plan);
        close_estimated_bench(&b);
    }
    assert_true(n_ended > 0);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_differences_are_kept),
        cmocka_unit_test(the_faster_of_indistinguishable_plans_is_taken),
        cmocka_unit_test(proofs_end_where_the_sensitivity_does),
    };
    return cmocka_run_group_tests_name("indistinguishable plans", tests, NULL, NULL);
}
