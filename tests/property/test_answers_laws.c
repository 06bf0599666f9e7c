/* folder: allocator */
/* Laws of the other questions over clusters with drawn costs: beside every plan there is, beside every split
 * there is, beside each other. A failure names its seed. */
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

static const char two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni", one_device[] = "cpu:avx512_bf16";
static const char five_layers[] = "mlp:depth=4,width=64", attention[] = "vit_tiny:depth=2,width=32,heads=2";
enum { MAX_ADJUSTABLE = 6, MAX_PLAN = 4096, BATCH = 256 };

static void open_costed_answers(costed_cluster *p, const char *model, const char *cluster, int64_t batch,
                                uint64_t seed)
{
    tandem_error error = {0};
    require_ok_seed(costed_cluster_open(p, model, cluster, batch, seed, NULL, &error), &error, seed);
}

/* --- Every plan of one class ---------------------------------------------------------------------------- */

typedef struct metrics {
    int64_t step_ns;
    int64_t sensitivity;
    uint64_t peak_bytes;
} metrics;

typedef struct every_plan {
    const costed_cluster *p;
    tandem_allocation_problem problem;
    int n, op[MAX_ADJUSTABLE], n_plan;
    metrics plan[MAX_PLAN];
} every_plan;

static void try_from_answers(every_plan *all, int k)
{
    tandem_replay replay;
    tandem_error error = {0};
    if (k == all->n) {
        assert_true(all->n_plan < MAX_PLAN);
        require_ok_seed(tandem_replayer_run(all->p->replayer, &replay, TANDEM_REPLAY_MEMORY, &error), &error,
                        0);
        all->plan[all->n_plan++] = (metrics){replay.step_ns, tandem_allocation_sensitivity(&all->problem),
                                             replay.classes[0].peak_bytes};
        return;
    }
    const unsigned precisions = tandem_op_row_get(all->p->graph[0]->op[all->op[k]].kind)->precisions &
                                all->p->cluster.classes[0].device.precisions;
    for (int q = 0; q < TANDEM_N_PRECISION; q++) {
        if (!(precisions & 1u << q)) continue;
        tandem_replayer_set(all->p->replayer, 0, all->op[k], (tandem_precision)q);
        try_from_answers(all, k + 1);
    }
}

static void try_every_plan_answers(every_plan *all, const costed_cluster *p)
{
    all->p = p;
    all->problem = costed_problem(p, 0);
    all->n = all->n_plan = 0;
    for (int i = 0; i < p->graph[0]->n_op; i++)
        if (tandem_op_is_adjustable(&p->graph[0]->op[i])) {
            assert_true(all->n < MAX_ADJUSTABLE);
            all->op[all->n++] = i;
        }
    try_from_answers(all, 0);
}

static int64_t min_step(const every_plan *all, int64_t budget)
{
    int64_t min_ns = INT64_MAX;
    for (int k = 0; k < all->n_plan; k++)
        if (all->plan[k].sensitivity <= budget && all->plan[k].step_ns < min_ns)
            min_ns = all->plan[k].step_ns;
    return min_ns;
}

static uint64_t min_peak(const every_plan *all, int64_t target_ns, int64_t budget)
{
    uint64_t min_bytes = UINT64_MAX;
    for (int k = 0; k < all->n_plan; k++)
        if (all->plan[k].sensitivity <= budget && all->plan[k].step_ns <= target_ns &&
            all->plan[k].peak_bytes < min_bytes)
            min_bytes = all->plan[k].peak_bytes;
    return min_bytes;
}

/* Budgets between none and all harm. */
static int64_t budget_of(const every_plan *all, int k)
{
    int64_t most = 0;
    for (int i = 0; i < all->n_plan; i++)
        if (all->plan[i].sensitivity > most) most = all->plan[i].sensitivity;
    static const double parts[] = {0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1};
    return (int64_t)((double)most * parts[k]);
}
enum { N_BUDGET = 7 };

static void check_reached(const costed_cluster *p, const tandem_plan *plan, const tandem_allocation *a,
                          uint64_t seed)
{
    tandem_replay replay;
    tandem_allocation found;
    tandem_error error = {0};
    const tandem_allocation_problem problem = costed_problem(p, 0);
    for (int c = 0; c < p->cluster.n_class; c++) /* is left in the replayer */
        for (int i = 0; i < plan->assignment.n_op; i++)
            assert_int_equal(tandem_replayer_get(p->replayer, c, i), plan->assignment.precision[c][i]);
    require_ok_seed(tandem_replayer_run(p->replayer, &replay, TANDEM_REPLAY_MEMORY, &error), &error, seed);
    assert_int_equal(replay.step_ns, a->step_ns);
    assert_int_equal(replay.classes[0].peak_bytes, a->peak_bytes[0]);
    assert_true(tandem_allocation_sensitivity(&problem) == a->sensitivity_bound);
    require_ok_seed(tandem_plan_verify(&found, plan, &problem, &error), &error, seed);
}

/* All sensitivities together are some 50 %, so that neither the fastest plan nor base is always the best. */
static void the_least_training_time(void **state)
{
    static every_plan all;
    int n_between = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        costed_cluster p;
        open_costed_answers(&p, five_layers, one_device, 16, seed);
        try_every_plan_answers(&all, &p);
        const tandem_goal goal = {TANDEM_MINIMIZE_TRAINING_TIME, 0};
        tandem_allocation_problem problem = costed_problem(&p, 0.3); /* is not looked at */
        problem.sensitivity_unit = (double)(10 + 10 * (seed % 9)) / (double)budget_of(&all, N_BUDGET - 1);
        problem.work_limit = INT64_C(6400000000);
        tandem_plan *plan = NULL;
        tandem_allocation a;
        tandem_error error = {0};
        require_ok_seed(
            tandem_allocate_for(&plan, &a, &goal, policy_of("exact"), &problem, "sampled", &error), &error,
            seed);
        double least_ns = INFINITY;
        for (int k = 0; k < all.n_plan; k++)
            least_ns =
                fmin(least_ns, (double)all.plan[k].step_ns *
                                   (1 + tandem_sensitivity_value(&problem, all.plan[k].sensitivity) / 100));
        assert_true(a.training_ns ==
                    (double)a.step_ns * (1 + tandem_sensitivity_value(&problem, a.sensitivity_bound) / 100));
        if (a.training_ns < least_ns * (1 - 1e-12) || a.training_ns > least_ns * (1 + 1.1 / 1024))
            fail_msg("seed %llu: %g ns, the least of all plans is %g ns", (unsigned long long)seed,
                     a.training_ns, least_ns);
        if (a.training_bound_ns > least_ns * (1 + 1e-12) ||
            a.training_bound_ns < a.training_ns * (1 - 1.1 / 1024))
            fail_msg("seed %llu: a bound of %g ns, the least of all plans is %g ns, found %g ns",
                     (unsigned long long)seed, a.training_bound_ns, least_ns, a.training_ns);
        n_between += a.sensitivity_bound > 0 && a.step_ns > min_step(&all, INT64_MAX) * 1001 / 1000;
        tandem_plan_close(plan);
        plan = NULL;
        require_ok_seed(
            tandem_allocate_for(&plan, &a, &goal, policy_of("greedy"), &problem, "sampled", &error), &error,
            seed);
        if (a.training_ns > least_ns * 1.02 || a.training_bound_ns > least_ns * (1 + 1e-12))
            fail_msg("seed %llu: greedy found %g ns, not below %g ns; the least of all plans is %g ns",
                     (unsigned long long)seed, a.training_ns, a.training_bound_ns, least_ns);
        tandem_plan_close(plan);
        plan = NULL;
        assert_int_equal(
            tandem_allocate_for(&plan, &a, &goal, policy_of("exact"), &problem, "fisher", &error),
            TANDEM_USAGE);
        costed_cluster_close(&p);
    }
    print_message("%d of 24 plans are between the fastest and base\n", n_between);
    assert_true(n_between >= 5);
}

static void the_fastest_step_within_a_budget(void **state)
{
    static every_plan all;
    int n_between = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        costed_cluster p;
        open_costed_answers(&p, five_layers, one_device, 16, seed);
        try_every_plan_answers(&all, &p);
        for (int k = 0; k < N_BUDGET; k++) {
            const tandem_goal goal = {TANDEM_MINIMIZE_STEP, budget_of(&all, k)};
            const tandem_allocation_problem problem = costed_problem(&p, 0.3); /* is not looked at */
            tandem_plan *plan = NULL;
            tandem_allocation a;
            tandem_error error = {0};
            require_ok_seed(tandem_allocate_for(&plan, &a, &goal, policy_of("exact"), &problem, NULL, &error),
                            &error, seed);
            const int64_t min_ns = min_step(&all, goal.max_sensitivity);
            check_reached(&p, plan, &a, seed);
            assert_true(a.sensitivity_bound <= goal.max_sensitivity);
            assert_true(a.step_ns >= min_ns);
            if (a.step_ns > min_ns + min_ns / 2048 + 2)
                fail_msg("seed %llu: %lld ns within %lld, but %lld ns can be had", (unsigned long long)seed,
                         (long long)a.step_ns, (long long)goal.max_sensitivity, (long long)min_ns);
            n_between += min_ns > min_step(&all, INT64_MAX) && goal.max_sensitivity > 0;
            tandem_plan_close(plan);
        }
        costed_cluster_close(&p);
    }
    assert_true(n_between > 10);
}

static void the_least_memory_within_both(void **state)
{
    static every_plan all;
    static const double slower[] = {1, 1.05, 1.3};
    int n_less = 0, n = 0;
    for (uint64_t seed = 20; seed < 24; seed++) {
        costed_cluster p;
        open_costed_answers(&p, five_layers, one_device, BATCH, seed);
        try_every_plan_answers(&all, &p);
        const int64_t fastest_ns = min_step(&all, INT64_MAX);
        for (int k = 1; k < N_BUDGET * 3; k++) {
            const tandem_goal goal = {TANDEM_MINIMIZE_MEMORY, k % 2 ? INT64_MAX : budget_of(&all, k / 3)};
            tandem_allocation_problem problem = costed_problem(&p, 0);
            problem.target_ns = (int64_t)((double)fastest_ns * slower[k % 3]);
            tandem_plan *plan = NULL;
            tandem_allocation a;
            tandem_error error = {0};
            const uint64_t min_bytes = min_peak(&all, problem.target_ns, goal.max_sensitivity);
            const tandem_status status =
                tandem_allocate_for(&plan, &a, &goal, policy_of("exact"), &problem, NULL, &error);
            if (min_bytes == UINT64_MAX) {
                assert_int_equal(status, TANDEM_INFEASIBLE);
                continue;
            }
            require_ok_seed(status, &error, seed);
            check_reached(&p, plan, &a, seed);
            assert_true(a.sensitivity_bound <= goal.max_sensitivity && a.step_ns <= problem.target_ns);
            assert_true(a.peak_bytes[0] >= min_bytes);
            if (a.peak_bytes[0] > min_bytes + min_bytes / 2048 + 128)
                fail_msg("seed %llu: %llu B within %lld ns and %lld, but %llu B can be had",
                         (unsigned long long)seed, (unsigned long long)a.peak_bytes[0],
                         (long long)problem.target_ns, (long long)goal.max_sensitivity,
                         (unsigned long long)min_bytes);
            n_less += min_bytes < min_peak(&all, INT64_MAX, 0);
            n++;
            tandem_plan_close(plan);
        }
        costed_cluster_close(&p);
    }
    assert_true(n > 40 && n_less > 20);
}

/* --- Plans that need a loss scale ----------------------------------------------------------------------- */

/* The norm of all gradients takes as long as an operator, so that fp16 saves less than it costs in some
 * plans. */
static void the_fastest_plan_may_do_without_f16(void **state)
{
    static every_plan all;
    static const tandem_replayer_options options = {.norm_as_needed = 1};
    static const char *const policies[] = {"greedy", "exact"};
    int n_without = 0, n_with = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        costed_cluster p;
        tandem_error error = {0};
        require_ok_seed(
            costed_cluster_open_with(&p, "mlp:depth=3,width=64", "v100", 16, &options, seed, NULL, &error),
            &error, seed);
        try_every_plan_answers(&all, &p);
        const int64_t min_ns = min_step(&all, INT64_MAX);
        for (int k = 0; k < 2; k++) {
            const tandem_allocation_problem problem = costed_problem(&p, 0);
            tandem_plan *plan = NULL;
            tandem_allocation a;
            require_ok_seed(tandem_allocate(&plan, &a, policy_of(policies[k]), &problem, NULL, &error),
                            &error, seed);
            if (a.fastest_ns > min_ns + min_ns / 100)
                fail_msg("seed %llu: the fastest plan of %s takes %lld ns, one takes %lld ns",
                         (unsigned long long)seed, policies[k], (long long)a.fastest_ns, (long long)min_ns);
            if (k == 0) *(plan->loss_scale != 0 ? &n_with : &n_without) += 1;
            tandem_plan_close(plan);
        }
        costed_cluster_close(&p);
    }
    print_message("%d of the fastest plans have a loss scale, %d have none\n", n_with, n_without);
    assert_true(n_with >= 3 && n_without >= 3);
}

/* Plans whose norm was not measured are left out: the fastest of the others is found. */
static int is_no_norm(const tandem_cost_key *key) { return !strstr(key->signature, "norm"); }

static void plans_without_f16_are_left_where_the_norm_is_not_measured(void **state)
{
    static const tandem_replayer_options options = {.norm_as_needed = 1};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        costed_cluster p;
        tandem_error error = {0};
        tandem_plan *plan = NULL;
        tandem_allocation a;
        tandem_replay replay;
        require_ok_seed(costed_cluster_open_with(&p, "mlp:depth=3,width=64", "v100", 16, &options, seed,
                                                 is_no_norm, &error),
                        &error, seed);
        const tandem_allocation_problem problem = costed_problem(&p, 0);
        assert_int_equal(tandem_replayer_check_norm(p.replayer, &error), TANDEM_MISSING);
        assert_non_null(strstr(error.text, "norm n="));
        require_ok_seed(tandem_allocate(&plan, &a, policy_of("greedy"), &problem, NULL, &error), &error,
                        seed);
        assert_true(a.step_ns < a.base_ns && plan->loss_scale == 0);
        for (int i = 0; i < p.graph[0]->n_op; i++)
            if (tandem_op_is_adjustable(&p.graph[0]->op[i]))
                tandem_replayer_set(p.replayer, 0, i, TANDEM_PRECISION_FP16);
        assert_int_equal(tandem_replayer_run(p.replayer, &replay, 0, &error), TANDEM_MISSING);
        tandem_plan_close(plan);
        costed_cluster_close(&p);
    }
}

/* --- Plans of all policies ------------------------------------------------------------------------------ */

/* The published procedure's plan, and ours within the same step. */
static void no_plan_is_worse_than_the_published_procedures(void **state)
{
    static const struct {
        const char *model, *cluster;
    } subjects[] = {{five_layers, one_device}, {attention, two_devices}, {attention, one_device}};
    static const double slowdowns[] = {0, 0.01, 0.05, 0.2};
    int n = 0;
    double log_ratio = 0;
    for (uint64_t seed = 40; seed < 52; seed++) {
        costed_cluster p;
        open_costed_answers(&p, subjects[seed % 3].model, subjects[seed % 3].cluster, 16, seed);
        for (size_t k = 0; k < sizeof slowdowns / sizeof slowdowns[0]; k++) {
            tandem_allocation_problem problem = costed_problem(&p, slowdowns[k]);
            tandem_allocation published, exact, greedy;
            tandem_plan *plan = NULL;
            tandem_error error = {0};
            problem.without_certificate = 1;
            require_ok_seed(tandem_allocate(&plan, &published, policy_of("qsync"), &problem, NULL, &error),
                            &error, seed);
            check_reached(&p, plan, &published, seed);
            tandem_plan_close(plan);
            problem.target_ns = published.target_ns;
            problem.work_limit = 2000000; /* need not be proven to be no worse */
            require_ok_seed(tandem_allocate(&plan, &exact, policy_of("exact"), &problem, NULL, &error),
                            &error, seed);
            tandem_plan_close(plan);
            require_ok_seed(tandem_allocate(&plan, &greedy, policy_of("greedy"), &problem, NULL, &error),
                            &error, seed);
            tandem_plan_close(plan);
            if (exact.sensitivity_bound > published.sensitivity_bound)
                fail_msg("seed %llu, slowdown %g: %lld, but the published procedure finds %lld",
                         (unsigned long long)seed, slowdowns[k], (long long)exact.sensitivity_bound,
                         (long long)published.sensitivity_bound);
            if (greedy.sensitivity_bound > published.sensitivity_bound)
                fail_msg("seed %llu, slowdown %g: %lld by greedy, but the published procedure finds %lld",
                         (unsigned long long)seed, slowdowns[k], (long long)greedy.sensitivity_bound,
                         (long long)published.sensitivity_bound);
            if (exact.sensitivity_bound > 0) {
                log_ratio += log((double)published.sensitivity_bound / (double)exact.sensitivity_bound);
                n++;
            }
        }
        costed_cluster_close(&p);
    }
    print_message("published / exact sensitivity: %.3f over %d problems\n", exp(log_ratio / n), n);
    assert_true(n > 30 && log_ratio > 0);
}

/* --- The front ------------------------------------------------------------------------------------------ */

static void check_front(const costed_cluster *p, const char *policy, uint64_t seed)
{
    tandem_pareto_front *front = NULL;
    tandem_error error = {0};
    tandem_allocation fastest;
    tandem_plan *plan = NULL;
    tandem_allocation_problem problem = costed_problem(p, 0);
    problem.work_limit = 20000000;
    require_ok_seed(tandem_allocate(&plan, &fastest, policy_of(policy), &problem, NULL, &error), &error,
                    seed);
    tandem_plan_close(plan);
    require_ok_seed(tandem_pareto_front_open(&front, policy_of(policy), &problem, 12, &error), &error, seed);
    assert_true(front->n_point >= 2 && front->n_point <= 12 + front->n_baseline);
    assert_true(front->point[0].step_ns <= fastest.step_ns); /* a uniform plan may be faster */
    if (strcmp(policy, "qsync") != 0) { /* which may be stuck on its way up; no limit forbids base */
        assert_true(front->point[front->n_point - 1].sensitivity_bound == 0);
        assert_true(front->point[front->n_point - 1].step_ns <= fastest.base_ns);
    }
    for (int k = 0; k < front->n_point; k++) {
        const tandem_pareto_point *a = &front->point[k];
        assert_true(a->step_ns <= a->target_ns);
        assert_true(a->lower_bound <= a->sensitivity_bound);
        for (int other = 0; other < front->n_point; other++) {
            const tandem_pareto_point *b = &front->point[other];
            if (other > k) assert_true(a->step_ns <= b->step_ns);
            assert_true(other == k || b->step_ns > a->step_ns ||
                        b->sensitivity_bound > a->sensitivity_bound || b->peak_bytes > a->peak_bytes);
        }
    }
    assert_int_equal(front->baseline[0].relation, TANDEM_BASELINE_BASE);
    assert_int_equal(front->baseline[0].step_ns, fastest.base_ns);
    tandem_pareto_front_close(front);
}

static void a_front_has_no_point_that_is_no_better(void **state)
{
    for (uint64_t seed = 60; seed < 64; seed++) {
        costed_cluster p;
        open_costed_answers(&p, seed % 2 ? five_layers : attention, seed % 2 ? one_device : two_devices, 16,
                            seed);
        check_front(&p, "exact", seed);
        check_front(&p, "greedy", seed);
        check_front(&p, "qsync", seed);
        costed_cluster_close(&p);
    }
}

/* --- Batches -------------------------------------------------------------------------------------------- */

typedef struct splits {
    costed_cluster p; /* the one that is open */
    tandem_allocation_problem problem;
    uint64_t seed;
    costed_filter *measured;
    const char *cluster; /* with two %lld for batches */
    double percent;      /* of more samples that a unit of sensitivity is; 0: it is no share of samples */
    int n_open, n_opened;
} splits;

static tandem_status open_split(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                                tandem_allocation_problem **problem, tandem_error *error)
{
    splits *s = context;
    char cluster[128];
    assert_int_equal(s->n_open, 0);
    (void)snprintf(cluster, sizeof cluster, s->cluster, (long long)batch[0], (long long)batch[1]);
    const tandem_status status =
        costed_cluster_open(&s->p, "mlp:depth=2,width=32", cluster, 1, s->seed, s->measured, error);
    if (status != TANDEM_OK) return status;
    s->n_open = 1;
    s->n_opened++;
    s->problem = costed_problem(&s->p, 0.02);
    if (s->percent > 0) s->problem.sensitivity_unit = s->percent;
    *problem = &s->problem;
    return TANDEM_OK;
}

static void close_split(void *context, tandem_allocation_problem *problem)
{
    splits *s = context;
    assert_ptr_equal(problem, &s->problem);
    assert_int_equal(s->n_open, 1);
    costed_cluster_close(&s->p);
    s->n_open = 0;
}

/* What a policy finds at a split; INFINITY where times are missing or nothing fits. */
static double value_at(splits *s, int64_t first, int64_t second, const char *policy, int64_t target_ns)
{
    const int64_t batch[TANDEM_MAX_CLASS] = {first, second};
    tandem_allocation_problem *problem;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    require_ok_seed(open_split(s, batch, &problem, &error), &error, s->seed);
    problem->target_ns = target_ns;
    problem->slowdown = 0;
    problem->without_certificate = 1;
    const int is_base = strcmp(policy, "base") == 0;
    problem->uniform = TANDEM_PRECISION_FP32;
    const tandem_status status =
        tandem_allocate(&plan, &a, policy_of(is_base ? "uniform" : policy), problem, NULL, &error);
    close_split(s, problem);
    tandem_plan_close(plan);
    if (status == TANDEM_MISSING || status == TANDEM_INFEASIBLE) return INFINITY;
    require_ok_seed(status, &error, s->seed);
    return target_ns ? (double)a.sensitivity_bound : (double)a.step_ns;
}

/* The least over all splits of n with `first` ranks of the first class, `second` of the other. */
static double min_over_splits(splits *s, int64_t n, int first, int second, const char *policy,
                              int64_t target_ns)
{
    double least = INFINITY;
    for (int64_t b = 1; first * b < n; b++)
        if ((n - first * b) % second == 0)
            least = fmin(least, value_at(s, b, (n - first * b) / second, policy, target_ns));
    return least;
}

static void check_choice(splits *s, int64_t n, int first, int second)
{
    char text[128];
    tandem_cluster cluster;
    tandem_batch_choice choice = {.n_split = 0};
    tandem_error error = {0};
    const tandem_batch_source source = {s, open_split, close_split};
    (void)snprintf(text, sizeof text, s->cluster, 1LL, 1LL);
    require_ok_seed(tandem_cluster_parse(&cluster, text, &error), &error, s->seed);
    require_ok_seed(
        tandem_batch_choose(&choice, &cluster, n, &source, policy_of("greedy"), NULL, 0, 0.02, &error),
        &error, s->seed);
    const tandem_batch_plan *ways[] = {&choice.both, &choice.batch_alone, &choice.precision_alone};
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++)
        assert_int_equal(first * ways[k]->batch[0] + second * ways[k]->batch[1], n);
    assert_true((double)choice.batch_alone.allocation.step_ns ==
                min_over_splits(s, n, first, second, "base", 0));
    const double fastest_ns = min_over_splits(s, n, first, second, "greedy", 0);
    const int64_t target_ns = (int64_t)fastest_ns + (int64_t)(fastest_ns * 0.02);
    assert_int_equal(choice.both.allocation.target_ns, target_ns);
    assert_true(choice.both.allocation.step_ns <= target_ns);
    assert_true((double)choice.both.allocation.sensitivity_bound ==
                min_over_splits(s, n, first, second, "greedy", target_ns));
    assert_int_equal(choice.both.plan->cluster.classes[0].batch, choice.both.batch[0]);
    assert_int_equal(choice.both.plan->cluster.classes[1].batch, choice.both.batch[1]);
    tandem_batch_choice_free(&choice);
}

/* The least step × (1 + sensitivity) at a split, by greedy. */
static double training_at(splits *s, int64_t first, int64_t second)
{
    const int64_t batch[TANDEM_MAX_CLASS] = {first, second};
    const tandem_goal goal = {TANDEM_MINIMIZE_TRAINING_TIME, INT64_MAX};
    tandem_allocation_problem *problem;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    require_ok_seed(open_split(s, batch, &problem, &error), &error, s->seed);
    problem->slowdown = 0;
    problem->without_certificate = 1;
    require_ok_seed(tandem_allocate_for(&plan, &a, &goal, policy_of("greedy"), problem, "sampled", &error),
                    &error, s->seed);
    close_split(s, problem);
    tandem_plan_close(plan);
    return a.training_ns;
}

/* The fastest plan of an even split costs 10 to 60 % more samples. */
static void without_a_limit_the_split_of_the_least_training_time_is_found(void **state)
{
    const int64_t n = 12;
    int n_moved = 0;
    for (uint64_t seed = 80; seed < 88; seed++) {
        splits s = {.seed = seed, .cluster = "cpu:avx512_bf16 batch=%lld + cpu:avx2_vnni batch=%lld"};
        tandem_allocation_problem *problem;
        tandem_cluster cluster;
        tandem_batch_choice choice = {.n_split = 0};
        tandem_error error = {0};
        require_ok_seed(open_split(&s, (int64_t[TANDEM_MAX_CLASS]){6, 6}, &problem, &error), &error, seed);
        tandem_plan *plan = NULL;
        tandem_allocation fastest;
        problem->slowdown = 0;
        problem->without_certificate = 1;
        require_ok_seed(tandem_allocate(&plan, &fastest, policy_of("greedy"), problem, "sampled", &error),
                        &error, seed);
        tandem_plan_close(plan);
        close_split(&s, problem);
        assert_true(fastest.sensitivity_bound > 0);
        s.percent = (double)(10 + 10 * (seed % 6)) / (double)fastest.sensitivity_bound;
        const tandem_batch_source source = {&s, open_split, close_split};
        require_ok_seed(tandem_cluster_parse(&cluster, "cpu:avx512_bf16 + cpu:avx2_vnni", &error), &error,
                        seed);
        require_ok_seed(
            tandem_batch_choose(&choice, &cluster, n, &source, policy_of("greedy"), "sampled", 0, -1, &error),
            &error, seed);
        double least_ns = INFINITY, fastest_ns = INFINITY;
        int64_t least_at = 0, fastest_at = 0;
        for (int64_t b = 1; b < n; b++) {
            const double training_ns = training_at(&s, b, n - b),
                         step_ns = value_at(&s, b, n - b, "greedy", 0);
            if (training_ns < least_ns) least_ns = training_ns, least_at = b;
            if (step_ns < fastest_ns) fastest_ns = step_ns, fastest_at = b;
        }
        assert_true(choice.both.allocation.training_ns == least_ns);
        assert_int_equal(choice.both.batch[0] + choice.both.batch[1], n);
        assert_true(isfinite(choice.precision_alone.allocation.training_ns));
        n_moved += least_at != fastest_at;
        tandem_batch_choice_free(&choice);
    }
    print_message("%d of 8 are another split than the fastest\n", n_moved);
    assert_true(n_moved >= 2);
}

static int is_not_of_three_or_six(const tandem_cost_key *key)
{
    return !strstr(key->signature, "n=3 ") && !strstr(key->signature, "n=6 ");
}

static void the_best_split_of_all_is_found(void **state)
{
    for (uint64_t seed = 80; seed < 82; seed++) {
        splits s = {.seed = seed, .cluster = "cpu:avx512_bf16 batch=%lld + cpu:avx2_vnni batch=%lld"};
        check_choice(&s, 9, 1, 1);
        splits holes = s;
        holes.measured = is_not_of_three_or_six;
        check_choice(&holes, 9, 1, 1);
        splits several = {.seed = seed,
                          .cluster = "2*cpu:avx512_bf16 batch=%lld + 3*cpu:avx2_vnni batch=%lld "
                                     "net=10Gbit/s,5us"};
        check_choice(&several, 22, 2, 3);
    }
}

static int nothing(const tandem_cost_key *key) { return key->kind == TANDEM_COST_CAST; }

static void splits_that_cannot_be_are_said(void **state)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    tandem_batch_choice choice = {.n_split = -5};
    splits s = {.seed = 1,
                .cluster = "2*cpu:avx512_bf16 batch=%lld + 2*cpu:avx2_vnni batch=%lld "
                           "net=10Gbit/s,5us"};
    const tandem_batch_source source = {&s, open_split, close_split};
    require_ok_seed(tandem_cluster_parse(&cluster, "2*cpu:avx512_bf16 + 2*cpu:avx2_vnni", &error), &error, 0);
    static const int64_t odd[] = {1, 2, 3, 31};
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
        assert_int_equal(
            tandem_batch_choose(&choice, &cluster, odd[k], &source, policy_of("greedy"), NULL, 0, 0, &error),
            TANDEM_USAGE);
        assert_non_null(strstr(error.text, odd[k] == 31 ? "; 28 can" : "; 4 can"));
    }
    assert_int_equal(s.n_opened, 0);
    s.measured = nothing;
    assert_int_equal(
        tandem_batch_choose(&choice, &cluster, 8, &source, policy_of("greedy"), NULL, 0, 0, &error),
        TANDEM_MISSING);
    assert_non_null(strstr(error.text, "has not been measured"));
    s.measured = NULL;
    assert_int_equal(
        tandem_batch_choose(&choice, &cluster, 8, &source, policy_of("greedy"), NULL, 1, 0, &error),
        TANDEM_INFEASIBLE);
    assert_non_null(strstr(error.text, "no split of a global batch of 8 has a plan within the limits"));
    assert_int_equal(choice.n_split, -5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_step_within_a_budget),
        cmocka_unit_test(the_least_training_time),
        cmocka_unit_test(the_least_memory_within_both),
        cmocka_unit_test(the_fastest_plan_may_do_without_f16),
        cmocka_unit_test(plans_without_f16_are_left_where_the_norm_is_not_measured),
        cmocka_unit_test(no_plan_is_worse_than_the_published_procedures),
        cmocka_unit_test(a_front_has_no_point_that_is_no_better),
        cmocka_unit_test(the_best_split_of_all_is_found),
        cmocka_unit_test(without_a_limit_the_split_of_the_least_training_time_is_found),
        cmocka_unit_test(splits_that_cannot_be_are_said),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
