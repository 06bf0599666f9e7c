/* folder: allocator */
/* Laws of allocation over clusters with drawn costs: beside every plan there is (brute force), and beside
 * itself. A failure names its seed. */
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

static const char two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni", one_device[] = "cpu:avx512_bf16";
static const char five_layers[] = "mlp:depth=4,width=64", six_layers[] = "mlp:depth=5,width=64";
static const char attention[] = "vit_tiny:depth=2,width=32,heads=2";
static const double slowdowns[] = {0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
enum { N_SLOWDOWN = sizeof slowdowns / sizeof slowdowns[0], MAX_ADJUSTABLE = 6 };

static tandem_plan *allocate_allocation(const costed_cluster *p, const char *policy, double slowdown,
                                        uint64_t seed, tandem_allocation *allocation)
{
    tandem_plan *plan = NULL;
    tandem_error error = {0};
    const tandem_allocation_problem problem = costed_problem(p, slowdown);
    require_ok_seed(tandem_allocate(&plan, allocation, policy_of(policy), &problem, "drawn", &error), &error,
                    seed);
    return plan;
}

static void open_costed_allocation(costed_cluster *p, const char *model, const char *cluster, int64_t batch,
                                   uint64_t seed)
{
    tandem_error error = {0};
    require_ok_seed(costed_cluster_open(p, model, cluster, batch, seed, NULL, &error), &error, seed);
}

/* --- Every plan of a class ------------------------------------------------------------------------------ */

typedef struct every_plan {
    int c, n, op[MAX_ADJUSTABLE];
    int64_t target_ns;
    int64_t fastest_ns;
    double min_sensitivity;  /* of those within the target that fit the limit */
    uint64_t smallest_bytes; /* of all */
    int with_memory;
    uint64_t limit_bytes;
} every_plan;

static void try_from_allocation(const costed_cluster *p, const tandem_allocation_problem *problem,
                                every_plan *all, int k)
{
    if (k < all->n) {
        const unsigned precisions = tandem_op_row_get(p->graph[all->c]->op[all->op[k]].kind)->precisions &
                                    p->cluster.classes[all->c].device.precisions;
        for (int q = 0; q < TANDEM_N_PRECISION; q++) {
            if (!(precisions & 1u << q)) continue;
            tandem_replayer_set(p->replayer, all->c, all->op[k], (tandem_precision)q);
            try_from_allocation(p, problem, all, k + 1);
        }
        return;
    }
    tandem_replay replay;
    tandem_error error = {0};
    require_ok_seed(
        tandem_replayer_run(p->replayer, &replay, all->with_memory ? TANDEM_REPLAY_MEMORY : 0, &error),
        &error, 0);
    const uint64_t peak_bytes = replay.classes[all->c].peak_bytes;
    if (peak_bytes < all->smallest_bytes) all->smallest_bytes = peak_bytes;
    if (replay.step_ns < all->fastest_ns) all->fastest_ns = replay.step_ns;
    if (replay.step_ns > all->target_ns || (all->limit_bytes && peak_bytes > all->limit_bytes)) return;
    const double sensitivity = (double)tandem_allocation_sensitivity(problem);
    if (sensitivity < all->min_sensitivity) all->min_sensitivity = sensitivity;
}

/* All plans of class c, the other classes as they are now. */
static every_plan try_every_plan_allocation(const costed_cluster *p, int c, int64_t target_ns,
                                            uint64_t limit_bytes)
{
    const tandem_allocation_problem problem = costed_problem(p, 0);
    every_plan all = {.c = c,
                      .target_ns = target_ns,
                      .fastest_ns = INT64_MAX,
                      .min_sensitivity = INFINITY,
                      .smallest_bytes = UINT64_MAX,
                      .with_memory = limit_bytes > 0,
                      .limit_bytes = limit_bytes};
    for (int i = 0; i < p->graph[c]->n_op; i++)
        if (tandem_op_is_adjustable(&p->graph[c]->op[i])) {
            assert_true(all.n < MAX_ADJUSTABLE);
            all.op[all.n++] = i;
        }
    try_from_allocation(p, &problem, &all, 0);
    return all;
}

/* The class that is not held; −1 = all are. */
static int lowered_class(const costed_cluster *p, const tandem_allocation *a)
{
    int lowered = -1;
    for (int c = 0; c < p->cluster.n_class; c++)
        if (!(a->keeps_base & 1u << c)) {
            assert_int_equal(lowered, -1);
            lowered = c;
        }
    return lowered;
}

/* Sum and number of greedy's sensitivity over the least there is, where that is not 0. */
static void compare_with_brute_force(const char *model, const char *cluster, uint64_t seed, double *sum,
                                     int *n)
{
    static const double few[] = {0, 0.02, 0.08, 0.2};
    costed_cluster p;
    open_costed_allocation(&p, model, cluster, 16, seed);
    for (size_t k = 0; k < sizeof few / sizeof few[0]; k++) {
        tandem_allocation a;
        tandem_plan *plan = allocate_allocation(&p, "greedy", few[k], seed, &a);
        const int lowered = lowered_class(&p, &a);
        const every_plan all = try_every_plan_allocation(&p, lowered < 0 ? 0 : lowered, a.target_ns, 0);
        assert_true(lowered < 0 || a.fastest_ns >= all.fastest_ns);
        if ((double)a.fastest_ns > 1.001 * (double)all.fastest_ns)
            fail_msg("seed %llu: a step of %lld ns is called the fastest, there is one of %lld ns",
                     (unsigned long long)seed, (long long)a.fastest_ns, (long long)all.fastest_ns);
        if ((double)a.sensitivity_bound < all.min_sensitivity)
            fail_msg("seed %llu, slowdown %g: sensitivity %g, but the least of all plans is %g",
                     (unsigned long long)seed, few[k], (double)a.sensitivity_bound, all.min_sensitivity);
        if (all.min_sensitivity > 0) {
            *sum += (double)a.sensitivity_bound / all.min_sensitivity;
            ++*n;
        } else if (a.sensitivity_bound > 0 && lowered >= 0) {
            fail_msg("seed %llu, slowdown %g: sensitivity %g where none is needed", (unsigned long long)seed,
                     few[k], (double)a.sensitivity_bound);
        }
        tandem_plan_close(plan);
    }
    costed_cluster_close(&p);
}

static void greedy_is_close_to_the_best_of_all_plans(void **state)
{
    double sum = 0;
    int n = 0;
    for (uint64_t seed = 1; seed <= 24; seed++)
        compare_with_brute_force(six_layers, two_devices, seed, &sum, &n);
    for (uint64_t seed = 1; seed <= 12; seed++)
        compare_with_brute_force(five_layers, one_device, seed, &sum, &n);
    for (uint64_t seed = 1; seed <= 8; seed++) { /* all precisions; fp16 as the AMP dtype */
        compare_with_brute_force("mlp:depth=3,width=64", "l4", seed, &sum, &n);
        compare_with_brute_force(five_layers, "t4", seed, &sum, &n);
    }
    print_message("greedy / least sensitivity: mean %.4f over %d problems\n", sum / n, n);
    assert_true(n > 60);
    assert_true(sum / n < 1.01);
}

/* Where there are too many plans to try them all: the share of the fastest plan's harm that is left, as a
 * geometric mean. It is 0.1104; 0.1129 without exchanges. */
static void little_sensitivity_is_left_in_larger_models(void **state)
{
    static const double few[] = {0.01, 0.02, 0.05, 0.1};
    double sum = 0;
    int n = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        costed_cluster p;
        open_costed_allocation(&p, "vit_tiny:depth=3,width=32,heads=2", one_device, 16, seed);
        for (size_t k = 0; k < sizeof few / sizeof few[0]; k++) {
            tandem_allocation a;
            tandem_plan_close(allocate_allocation(&p, "greedy", few[k], seed, &a));
            if (a.sensitivity_bound > 0)
                sum += log((double)a.sensitivity_bound / (double)a.fastest_sensitivity_bound);
            n += a.sensitivity_bound > 0;
        }
        costed_cluster_close(&p);
    }
    print_message("harm left: %.4f over %d problems\n", exp(sum / n), n);
    assert_true(n > 40);
    assert_true(exp(sum / n) < 0.1115);
}

/* --- The plan is what is said about it ------------------------------------------------------------------ */

static void check_figures(costed_cluster *p, const tandem_plan *plan, const tandem_allocation *a,
                          double slowdown, uint64_t seed)
{
    tandem_replay replay;
    tandem_error error = {0};
    const tandem_allocation_problem problem = costed_problem(p, slowdown);
    for (int c = 0; c < p->cluster.n_class; c++) /* what was turned down is undone, to the last operator */
        for (int i = 0; i < plan->assignment.n_op; i++)
            assert_int_equal(tandem_replayer_get(p->replayer, c, i), plan->assignment.precision[c][i]);
    for (int c = 0; c < p->cluster.n_class; c++) /* away, and back again */
        for (int i = 0; i < plan->assignment.n_op; i++)
            if (tandem_op_row_get(p->graph[c]->op[i].kind)->precisions)
                tandem_replayer_set(p->replayer, c, i, TANDEM_PRECISION_FP32);
    require_ok_seed(tandem_replayer_run(p->replayer, &replay, 0, &error), &error, seed);
    assert_int_equal(replay.step_ns, a->base_ns);
    tandem_replayer_load(p->replayer, &plan->assignment);
    require_ok_seed(tandem_replayer_run(p->replayer, &replay, TANDEM_REPLAY_MEMORY, &error), &error, seed);
    assert_int_equal(replay.step_ns, a->step_ns);
    assert_int_equal(plan->step_ns, a->step_ns);
    assert_true(tandem_allocation_sensitivity(&problem) == a->sensitivity_bound &&
                tandem_sensitivity_units(&problem, plan->sensitivity_bound) == a->sensitivity_bound);
    for (int c = 0; c < p->cluster.n_class; c++) {
        assert_int_equal(replay.classes[c].peak_bytes, a->peak_bytes[c]);
        assert_int_equal(plan->peak_bytes[c], a->peak_bytes[c]);
    }
}

static void check_bounds(const costed_cluster *p, const tandem_plan *plan, const tandem_allocation *a,
                         double slowdown)
{
    assert_true(a->fastest_ns <= a->base_ns);
    assert_true(a->step_ns <= a->target_ns);
    assert_int_equal(a->target_ns, a->fastest_ns + (int64_t)((double)a->fastest_ns * slowdown));
    assert_true(a->sensitivity_bound <= a->fastest_sensitivity_bound);
    assert_true(a->base_sensitivity_bound == 0);
    const int lowered = lowered_class(p, a);
    for (int c = 0; c < p->cluster.n_class; c++) /* who only waits keeps the base */
        for (int i = 0; i < plan->assignment.n_op; i++)
            if (c != lowered) assert_int_equal(plan->assignment.precision[c][i], TANDEM_PRECISION_FP32);
    for (int i = 0; i < plan->assignment.n_op; i++) {
        const unsigned precisions = tandem_op_row_get(p->graph[0]->op[i].kind)->precisions;
        if (lowered < 0 || !precisions) continue;
        assert_true(precisions & p->cluster.classes[lowered].device.precisions &
                    1u << plan->assignment.precision[lowered][i]);
    }
}

static void follow_slowdowns(const char *model, const char *cluster, uint64_t seed)
{
    costed_cluster p;
    int64_t before = INT64_MAX;
    open_costed_allocation(&p, model, cluster, 16, seed);
    for (int k = 0; k < N_SLOWDOWN; k++) {
        tandem_allocation a;
        tandem_plan *plan = allocate_allocation(&p, "greedy", slowdowns[k], seed, &a);
        check_bounds(&p, plan, &a, slowdowns[k]);
        check_figures(&p, plan, &a, slowdowns[k], seed);
        if (a.sensitivity_bound > before)
            fail_msg("seed %llu: sensitivity %lld with a slowdown of %g, %lld with a smaller one",
                     (unsigned long long)seed, (long long)a.sensitivity_bound, slowdowns[k],
                     (long long)before);
        before = a.sensitivity_bound;
        tandem_plan_close(plan);
    }
    costed_cluster_close(&p);
}

static void more_time_is_never_more_sensitivity_and_figures_are_those_of_the_plan(void **state)
{
    for (uint64_t seed = 100; seed < 116; seed++) follow_slowdowns(six_layers, two_devices, seed);
    for (uint64_t seed = 200; seed < 206; seed++) follow_slowdowns(attention, two_devices, seed);
    for (uint64_t seed = 300; seed < 306; seed++) follow_slowdowns(attention, one_device, seed);
}

static void no_uniform_plan_within_the_target_is_better(void **state)
{
    int n_within = 0;
    for (uint64_t seed = 400; seed < 412; seed++) {
        costed_cluster p;
        open_costed_allocation(&p, attention, one_device, 16, seed);
        tandem_allocation a, uniform;
        tandem_plan *plan = allocate_allocation(&p, "greedy", 0.3, seed, &a);
        tandem_plan_close(plan);
        for (int q = 0; q < TANDEM_N_PRECISION; q++) {
            tandem_error error = {0};
            if (!(p.cluster.classes[0].device.precisions >> q & 1)) continue;
            tandem_allocation_problem problem = costed_problem(&p, 0);
            problem.uniform = (tandem_precision)q;
            require_ok_seed(tandem_allocate(&plan, &uniform, policy_of("uniform"), &problem, NULL, &error),
                            &error, seed);
            tandem_plan_close(plan);
            assert_true(uniform.step_ns >= a.fastest_ns);
            if (uniform.step_ns > a.target_ns) continue;
            n_within++;
            assert_true(a.sensitivity_bound <= uniform.sensitivity_bound);
        }
        costed_cluster_close(&p);
    }
    assert_true(n_within > 6);
}

static void the_same_problem_has_the_same_plan(void **state)
{
    costed_cluster p;
    open_costed_allocation(&p, attention, two_devices, 16, 7);
    tandem_allocation a, b;
    tandem_plan *first = allocate_allocation(&p, "greedy", 0.03, 7, &a);
    tandem_plan *other = allocate_allocation(&p, "greedy", 0.4, 7, &b);
    tandem_plan_close(other);
    other = allocate_allocation(&p, "greedy", 0.03, 7, &b);
    for (int c = 0; c < p.cluster.n_class; c++)
        assert_memory_equal(first->assignment.precision[c], other->assignment.precision[c],
                            (size_t)first->assignment.n_op * sizeof *first->assignment.precision[c]);
    assert_int_equal(a.replays, b.replays);
    tandem_plan_close(first);
    tandem_plan_close(other);
    costed_cluster_close(&p);
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* Bytes of one rank in base precision, and in the smallest plan of all. */
static void find_sizes(uint64_t seed, uint64_t *base_bytes, uint64_t *smallest_bytes)
{
    costed_cluster p;
    tandem_replay replay;
    tandem_error error = {0};
    open_costed_allocation(&p, five_layers, one_device, 256, seed);
    require_ok_seed(tandem_replayer_run(p.replayer, &replay, TANDEM_REPLAY_MEMORY, &error), &error, seed);
    *base_bytes = replay.classes[0].peak_bytes;
    *smallest_bytes = try_every_plan_allocation(&p, 0, INT64_MAX, 1).smallest_bytes;
    costed_cluster_close(&p);
}

static void allocate_within(uint64_t seed, uint64_t limit_bytes, uint64_t smallest_bytes)
{
    char cluster[96];
    costed_cluster p;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    tandem_error error = {0};
    (void)snprintf(cluster, sizeof cluster, "%s memory=%lluB", one_device, (unsigned long long)limit_bytes);
    open_costed_allocation(&p, five_layers, cluster, 256, seed);
    const tandem_allocation_problem problem = costed_problem(&p, 0.05);
    const tandem_status status = tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error);
    if (limit_bytes < smallest_bytes) {
        char limit[32];
        assert_int_equal(status, TANDEM_INFEASIBLE);
        assert_null(plan);
        assert_int_equal(a.replays, -5);
        assert_non_null(strstr(error.text, one_device));
        (void)snprintf(limit, sizeof limit, "(%llu B)", (unsigned long long)limit_bytes);
        assert_non_null(strstr(error.text, limit));
    } else {
        if (status != TANDEM_OK)
            fail_msg("seed %llu: %llu B would do, %llu B are allowed: %s", (unsigned long long)seed,
                     (unsigned long long)smallest_bytes, (unsigned long long)limit_bytes, error.text);
        assert_true(a.peak_bytes[0] <= limit_bytes);
        assert_true(a.step_ns <= a.target_ns);
        const every_plan all = try_every_plan_allocation(&p, 0, a.target_ns, limit_bytes);
        assert_true((double)a.sensitivity_bound >= all.min_sensitivity);
        assert_true((double)a.sensitivity_bound <= all.min_sensitivity * 3);
    }
    tandem_plan_close(plan);
    costed_cluster_close(&p);
}

static void plans_fit_their_memory_wherever_one_does(void **state)
{
    for (uint64_t seed = 500; seed < 504; seed++) {
        uint64_t base_bytes, smallest_bytes;
        find_sizes(seed, &base_bytes, &smallest_bytes);
        assert_true(smallest_bytes < base_bytes);
        allocate_within(seed, base_bytes, smallest_bytes);
        allocate_within(seed, base_bytes - 1, smallest_bytes);
        allocate_within(seed, (base_bytes + smallest_bytes) / 2, smallest_bytes);
        allocate_within(seed, smallest_bytes, smallest_bytes);
        allocate_within(seed, smallest_bytes - 1, smallest_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_is_close_to_the_best_of_all_plans),
        cmocka_unit_test(little_sensitivity_is_left_in_larger_models),
        cmocka_unit_test(more_time_is_never_more_sensitivity_and_figures_are_those_of_the_plan),
        cmocka_unit_test(no_uniform_plan_within_the_target_is_better),
        cmocka_unit_test(the_same_problem_has_the_same_plan),
        cmocka_unit_test(plans_fit_their_memory_wherever_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
