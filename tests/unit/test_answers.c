/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: allocator */
/* What is said about a plan beside the plan itself, on an mlp on two devices with drawn costs. */
#include "tests/support/fail_allocation.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:depth=3,width=64", two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni";
enum { STRONG, WEAK };
#define SLOWDOWN 0.02

/* A cluster, a problem and a plan for it. */
typedef struct bench {
    costed_cluster p;
    tandem_allocation_problem problem;
    tandem_plan *plan;
    tandem_allocation a;
} bench;

static void open_bench_of(bench *b, const char *cluster, double slowdown, costed_filter *measured)
{
    tandem_error error = {0};
    require_ok(costed_cluster_open(&b->p, model, cluster, 16, 11, measured, &error), &error);
    b->problem = costed_problem(&b->p, slowdown);
    b->problem.without_certificate = 0;
    b->plan = NULL;
    require_ok(tandem_allocate(&b->plan, &b->a, policy_of("greedy"), &b->problem, "drawn", &error), &error);
}

static void open_bench_answers(bench *b) { open_bench_of(b, two_devices, SLOWDOWN, NULL); }

static void close_bench_answers(bench *b)
{
    tandem_plan_close(b->plan);
    costed_cluster_close(&b->p);
}

static int is_adjustable_answers(const bench *b, int op)
{
    return tandem_op_is_adjustable(&b->p.graph[0]->op[op]);
}

static int64_t step_of(const bench *b, uint64_t *peak_bytes)
{
    tandem_replay replay;
    tandem_error error = {0};
    require_ok(tandem_replayer_run(b->p.replayer, &replay, TANDEM_REPLAY_MEMORY, &error), &error);
    for (int c = 0; c < replay.n_class && peak_bytes; c++) peak_bytes[c] = replay.classes[c].peak_bytes;
    return replay.step_ns;
}

static void assert_has_plan(const bench *b)
{
    for (int c = 0; c < b->plan->cluster.n_class; c++)
        for (int i = 0; i < b->plan->assignment.n_op; i++)
            assert_int_equal(tandem_replayer_get(b->p.replayer, c, i), b->plan->assignment.precision[c][i]);
}

/* --- Verification --------------------------------------------------------------------------------------- */

static void a_plan_is_what_it_says(void **state)
{
    bench b;
    tandem_allocation found;
    tandem_error error = {0};
    open_bench_answers(&b);
    assert_int_equal(b.plan->target_ns, b.a.target_ns);
    assert_int_equal(b.plan->fastest_ns, b.a.fastest_ns);
    assert_int_equal(b.plan->keeps_base, b.a.keeps_base);
    assert_true(b.plan->slowdown == SLOWDOWN);
    assert_string_equal(b.plan->proof, b.a.certificate.proof);
    require_ok(tandem_plan_verify(&found, b.plan, &b.problem, &error), &error);
    assert_int_equal(found.step_ns, b.a.step_ns);
    assert_true(found.sensitivity_bound == b.a.sensitivity_bound);
    assert_int_equal(found.peak_bytes[WEAK], b.a.peak_bytes[WEAK]);
    assert_int_equal(found.keeps_base, b.a.keeps_base);
    assert_true((double)found.certificate.lower_bound >= (double)b.a.certificate.lower_bound * (1 - 2e-3));

    b.plan->step_ns = 0; /* what is not said is not wrong */
    b.plan->sensitivity_bound = b.plan->lower_bound = b.plan->gap = b.plan->slowdown = NAN;
    b.plan->peak_bytes[STRONG] = b.plan->peak_bytes[WEAK] = 0;
    require_ok(tandem_plan_verify(&found, b.plan, &b.problem, &error), &error);
    assert_true(found.certificate.lower_bound == -1);
    close_bench_answers(&b);
}

static void expect_answers(const bench *b, tandem_status status, const char *says)
{
    tandem_allocation found = {.replays = -5};
    tandem_error error = {0};
    const tandem_status got = tandem_plan_verify(&found, b->plan, &b->problem, &error);
    if (got != status || error.status != status || !strstr(error.text, says))
        fail_msg("expected %s, '%s'; got %s: %s", tandem_status_name(status), says, tandem_status_name(got),
                 error.text);
    assert_int_equal(found.replays, -5);
}

static void every_edited_figure_is_named(void **state)
{
    bench b;
    open_bench_answers(&b);
    const tandem_plan kept = *b.plan;
    b.plan->step_ns++;
    expect_answers(&b, TANDEM_MALFORMED, "step_ns is ");
    *b.plan = kept;
    b.plan->peak_bytes[WEAK] -= 64;
    expect_answers(&b, TANDEM_MALFORMED, "peak_bytes of cpu:avx2_vnni is ");
    *b.plan = kept;
    b.plan->sensitivity_bound *= 0.999;
    b.plan->gap = NAN;
    expect_answers(&b, TANDEM_MALFORMED, "sensitivity_bound is ");
    *b.plan = kept;
    b.plan->slowdown = 0.1;
    expect_answers(&b, TANDEM_MALFORMED, "target_ns is ");
    *b.plan = kept;
    b.plan->target_ns++;
    expect_answers(&b, TANDEM_MALFORMED, "target_ns is ");
    *b.plan = kept;
    b.plan->gap += 0.01;
    expect_answers(&b, TANDEM_MALFORMED, "gap is ");
    *b.plan = kept;
    b.plan->lower_bound = b.plan->sensitivity_bound * 1.5;
    expect_answers(&b, TANDEM_MALFORMED, "lower_bound is ");
    *b.plan = kept;
    b.plan->keeps_base ^= 1u << WEAK; /* is lowered */
    expect_answers(&b, TANDEM_MALFORMED, "class 2 (cpu:avx2_vnni) is held in the plan");
    *b.plan = kept;
    assert_true(kept.assignment.precision[STRONG][0] == TANDEM_PRECISION_FP32 &&
                (kept.keeps_base >> STRONG & 1));
    close_bench_answers(&b);
}

static void a_changed_precision_does_not_go_unnoticed(void **state)
{
    bench b;
    open_bench_answers(&b);
    int n = 0;
    for (int i = 0; i < b.plan->assignment.n_op; i++) {
        if (!is_adjustable_answers(&b, i)) continue;
        const tandem_precision kept = b.plan->assignment.precision[WEAK][i];
        b.plan->assignment.precision[WEAK][i] =
            kept == TANDEM_PRECISION_INT8 ? TANDEM_PRECISION_FP32 : TANDEM_PRECISION_INT8;
        expect_answers(&b, TANDEM_MALFORMED, " is ");
        b.plan->assignment.precision[WEAK][i] = TANDEM_PRECISION_BF16; /* the device has none */
        expect_answers(&b, TANDEM_MALFORMED, "cannot be bf16 on cpu:avx2_vnni");
        b.plan->assignment.precision[WEAK][i] = kept;
        n++;
    }
    assert_true(n > 2);
    b.plan->hash++;
    expect_answers(&b, TANDEM_WRONG_MODEL, "was made for");
    b.plan->hash--;
    b.plan->cluster.n_class = 1;
    expect_answers(&b, TANDEM_WRONG_MODEL, "1 classes, the cluster has 2");
    b.plan->cluster.n_class = 2;
    close_bench_answers(&b);
}

/* A bound that no proof here reaches. */
static void a_bound_is_proven_again(void **state)
{
    bench b;
    tandem_error error = {0};
    open_bench_answers(&b);
    assert_true(isfinite(b.plan->lower_bound) && b.plan->sensitivity_bound > 0);
    /* a plan with more harm than needed may not claim to be the best */
    int op = 0;
    while (!is_adjustable_answers(&b, op) ||
           b.plan->assignment.precision[WEAK][op] != TANDEM_PRECISION_FP32) {
        op++;
        assert_true(op < b.plan->assignment.n_op);
    }
    b.plan->assignment.precision[WEAK][op] = TANDEM_PRECISION_INT8_FULL;
    tandem_replayer_load(b.p.replayer, &b.plan->assignment);
    b.plan->step_ns = step_of(&b, b.plan->peak_bytes);
    b.plan->sensitivity_bound =
        tandem_sensitivity_value(&b.problem, tandem_allocation_sensitivity(&b.problem));
    b.plan->gap = 0;
    b.plan->lower_bound = b.plan->sensitivity_bound;
    if (b.plan->step_ns > b.plan->target_ns) {
        b.plan->slowdown = NAN;
        b.plan->target_ns = b.plan->step_ns;
    }
    tandem_allocation found;
    assert_int_equal(tandem_plan_verify(&found, b.plan, &b.problem, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "lower_bound is "));
    assert_non_null(strstr(error.text, "as proven here"));
    close_bench_answers(&b);
}

static void a_broken_limit_is_no_edited_figure(void **state)
{
    bench b;
    open_bench_answers(&b);
    b.plan->slowdown = b.plan->lower_bound = b.plan->gap = NAN;
    b.plan->target_ns = b.plan->step_ns;
    tandem_allocation found;
    tandem_error error = {0};
    require_ok(tandem_plan_verify(&found, b.plan, &b.problem, &error), &error);
    b.plan->target_ns--;
    expect_answers(&b, TANDEM_INFEASIBLE, "its target is ");
    b.plan->target_ns = 0; /* none is said */
    b.problem.memory_limit_bytes = b.plan->peak_bytes[WEAK] > b.plan->peak_bytes[STRONG]
                                       ? b.plan->peak_bytes[WEAK]
                                       : b.plan->peak_bytes[STRONG];
    require_ok(tandem_plan_verify(&found, b.plan, &b.problem, &error), &error);
    b.problem.memory_limit_bytes--;
    expect_answers(&b, TANDEM_INFEASIBLE, "its limit is ");
    close_bench_answers(&b);
}

/* --- Neighbours ----------------------------------------------------------------------------------------- */

static void baselines_are_the_uniform_plans_of_what_is_lowered(void **state)
{
    bench b;
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n = 0;
    tandem_error error = {0};
    tandem_plan *uniform = NULL;
    open_bench_answers(&b);
    require_ok(tandem_baselines_find(baseline, &n, &b.problem, b.plan, &error), &error);
    assert_has_plan(&b);
    assert_int_equal(n, 3); /* fp32, int8, int8_full; the weak device has no bf16 */
    assert_int_equal(baseline[0].precision, TANDEM_PRECISION_FP32);
    assert_int_equal(baseline[0].relation, TANDEM_BASELINE_BASE);
    assert_string_equal(baseline[0].name, "all fp32");
    assert_int_equal(baseline[0].step_ns, b.a.base_ns);
    assert_true(baseline[1].step_ns <= baseline[2].step_ns);
    require_ok(tandem_plan_open(&uniform, b.problem.graph, &b.plan->cluster, "", &error), &error);
    for (int k = 0; k < n; k++) {
        require_ok(tandem_plan_uniform(uniform, b.problem.graph, STRONG, TANDEM_PRECISION_FP32, &error),
                   &error);
        require_ok(tandem_plan_uniform(uniform, b.problem.graph, WEAK, baseline[k].precision, &error),
                   &error);
        tandem_replayer_load(b.p.replayer, &uniform->assignment);
        uint64_t peak_bytes[2];
        assert_int_equal(baseline[k].step_ns, step_of(&b, peak_bytes));
        assert_memory_equal(baseline[k].peak_bytes, peak_bytes, sizeof peak_bytes);
        assert_true(baseline[k].sensitivity_bound == tandem_allocation_sensitivity(&b.problem));
        assert_int_equal(baseline[k].fits, 1);
    }
    tandem_plan_close(uniform);
    close_bench_answers(&b);
}

static tandem_baseline_relation relation_of(const bench *b, int64_t step_ns, int which)
{
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n = 0;
    tandem_error error = {0};
    const int64_t kept_ns = b->plan->step_ns;
    b->plan->step_ns = step_ns;
    require_ok(tandem_baselines_find(baseline, &n, &b->problem, b->plan, &error), &error);
    b->plan->step_ns = kept_ns;
    assert_true(which < n);
    return baseline[which].relation;
}

static void the_two_beside_the_plan_are_marked(void **state)
{
    bench b;
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n = 0;
    tandem_error error = {0};
    open_bench_answers(&b);
    require_ok(tandem_baselines_find(baseline, &n, &b.problem, b.plan, &error), &error);
    const int64_t first_ns = baseline[1].step_ns, second_ns = baseline[2].step_ns;
    assert_true(first_ns < second_ns);
    assert_int_equal(relation_of(&b, first_ns - 1, 1), TANDEM_BASELINE_SLOWER);
    assert_int_equal(relation_of(&b, first_ns - 1, 2), TANDEM_BASELINE_OTHER);
    assert_int_equal(relation_of(&b, first_ns, 1), TANDEM_BASELINE_FASTER);
    assert_int_equal(relation_of(&b, first_ns, 2), TANDEM_BASELINE_SLOWER);
    assert_int_equal(relation_of(&b, second_ns, 1), TANDEM_BASELINE_OTHER);
    assert_int_equal(relation_of(&b, second_ns, 2), TANDEM_BASELINE_FASTER);
    close_bench_answers(&b);
}

static int is_no_int8(const tandem_cost_key *key) { return strcmp(key->precision, "int8") != 0; }

static void baselines_that_were_not_measured_are_left_out(void **state)
{
    bench b;
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n = 0;
    tandem_error error = {0};
    open_bench_of(&b, two_devices, SLOWDOWN, is_no_int8);
    require_ok(tandem_baselines_find(baseline, &n, &b.problem, b.plan, &error), &error);
    assert_int_equal(n, 2);
    assert_int_equal(baseline[1].precision, TANDEM_PRECISION_INT8_FULL);
    close_bench_answers(&b);
}

/* --- Explanations --------------------------------------------------------------------------------------- */

static void a_choice_is_explained_by_replays(void **state)
{
    bench b;
    tandem_error error = {0};
    int n_over = 0, n_harmful = 0;
    open_bench_answers(&b);
    uint64_t now_bytes[2], then_bytes[2];
    const int64_t now_ns = step_of(&b, now_bytes);
    for (int i = 0; i < b.plan->assignment.n_op; i++) {
        if (!is_adjustable_answers(&b, i)) continue;
        for (int c = STRONG; c <= WEAK; c++) {
            tandem_choice choice[TANDEM_N_PRECISION];
            int n = 0, n_chosen = 0;
            require_ok(tandem_choices_explain(choice, &n, &b.problem, b.a.target_ns, c, i, &error), &error);
            assert_has_plan(&b);
            assert_int_equal(n, c == STRONG ? 4 : 3);
            for (int k = 0; k < n; k++) {
                tandem_replayer_set(b.p.replayer, c, i, choice[k].precision);
                const int64_t then_ns = step_of(&b, then_bytes);
                tandem_replayer_set(b.p.replayer, c, i, b.plan->assignment.precision[c][i]);
                n_chosen += choice[k].is_chosen;
                assert_int_equal(choice[k].is_chosen,
                                 choice[k].precision == b.plan->assignment.precision[c][i]);
                assert_int_equal(choice[k].is_measured, 1);
                assert_true(choice[k].self_ns > 0);
                assert_int_equal(choice[k].step_delta_ns, then_ns - now_ns);
                assert_int_equal(choice[k].peak_delta_bytes, (int64_t)(then_bytes[c] - now_bytes[c]));
                assert_int_equal(choice[k].excess_ns, then_ns > b.a.target_ns ? then_ns - b.a.target_ns : 0);
                assert_true(choice[k].sensitivity ==
                            b.p.sensitivity[c][i * TANDEM_N_PRECISION + (int)choice[k].precision]);
                n_over += choice[k].excess_ns > 0;
                n_harmful += choice[k].sensitivity > 0;
            }
            assert_int_equal(n_chosen, 1);
        }
    }
    assert_true(n_over > 0 && n_harmful > 0);
    close_bench_answers(&b);
}

static void what_forbids_a_choice_is_counted(void **state)
{
    bench b;
    tandem_choice choice[TANDEM_N_PRECISION];
    tandem_error error = {0};
    uint64_t now_bytes[2];
    int n = 0, op = 0;
    open_bench_of(&b, two_devices, SLOWDOWN, is_no_int8);
    (void)step_of(&b, now_bytes);
    while (!is_adjustable_answers(&b, op)) op++;
    b.problem.memory_limit_bytes = now_bytes[WEAK] - 100;
    require_ok(tandem_choices_explain(choice, &n, &b.problem, 0, WEAK, op, &error), &error);
    for (int k = 0; k < n; k++) {
        assert_int_equal(choice[k].excess_ns, 0); /* no target, none to exceed */
        if (choice[k].is_chosen) assert_int_equal(choice[k].excess_bytes, 100);
        if (choice[k].precision == TANDEM_PRECISION_INT8)
            assert_true(!choice[k].is_measured && choice[k].self_ns == 0);
    }
    int dependent = 0;
    while (tandem_op_row_get(b.p.graph[0]->op[dependent].kind)->op_class != TANDEM_DEPENDENT) dependent++;
    assert_int_equal(tandem_choices_explain(choice, &n, &b.problem, 0, WEAK, dependent, &error),
                     TANDEM_USAGE);
    assert_non_null(strstr(error.text, "follows its inputs"));
    close_bench_answers(&b);
}

/* --- Shortfalls ----------------------------------------------------------------------------------------- */

static uint64_t smallest_at(int64_t batch)
{
    costed_cluster p;
    tandem_memory_deficit memory_deficit[TANDEM_MAX_CLASS];
    tandem_error error = {0};
    int n = 0;
    require_ok(costed_cluster_open(&p, model, "cpu:avx2_vnni memory=1B", batch, 11, NULL, &error), &error);
    const tandem_allocation_problem problem = costed_problem(&p, 0);
    require_ok(tandem_memory_deficits_find(memory_deficit, &n, &problem, &error), &error);
    assert_int_equal(n, 1);
    assert_int_equal(memory_deficit[0].batch, 0); /* no batch fits a byte */
    assert_int_equal(memory_deficit[0].limit_bytes, 1);
    costed_cluster_close(&p);
    return memory_deficit[0].peak_bytes;
}

static void the_batch_that_fits_is_the_largest(void **state)
{
    static const int64_t batches[] = {1, 37, 100, 255};
    for (size_t k = 0; k < sizeof batches / sizeof batches[0]; k++) {
        char cluster[96];
        costed_cluster p;
        tandem_memory_deficit memory_deficit[TANDEM_MAX_CLASS];
        tandem_error error = {0};
        int n = 0;
        const uint64_t limit_bytes = smallest_at(batches[k]);
        (void)snprintf(cluster, sizeof cluster, "cpu:avx512_bf16 + cpu:avx2_vnni memory=%lluB",
                       (unsigned long long)limit_bytes);
        require_ok(costed_cluster_open(&p, model, cluster, 256, 11, NULL, &error), &error);
        const tandem_allocation_problem problem = costed_problem(&p, 0);
        require_ok(tandem_memory_deficits_find(memory_deficit, &n, &problem, &error), &error);
        assert_int_equal(n, 1);
        assert_int_equal(memory_deficit[0].c, WEAK);
        assert_int_equal(memory_deficit[0].limit_bytes, limit_bytes);
        assert_int_equal(memory_deficit[0].peak_bytes, smallest_at(256));
        assert_int_equal(memory_deficit[0].batch, batches[k]);
        costed_cluster_close(&p);
    }
}

static void what_fits_lacks_nothing(void **state)
{
    bench b;
    tandem_memory_deficit memory_deficit[TANDEM_MAX_CLASS];
    tandem_error error = {0};
    int n = -1;
    open_bench_answers(&b);
    require_ok(tandem_memory_deficits_find(memory_deficit, &n, &b.problem, &error), &error);
    assert_int_equal(n, 0);
    b.problem.memory_limit_bytes = smallest_at(16);
    require_ok(tandem_memory_deficits_find(memory_deficit, &n, &b.problem, &error), &error);
    assert_int_equal(n, 0);
    b.problem.memory_limit_bytes--;
    require_ok(tandem_memory_deficits_find(memory_deficit, &n, &b.problem, &error), &error);
    assert_true(n >= 1);
    close_bench_answers(&b);
}

/* --- Other objectives: refusals ------------------------------------------------------------------------- */

static void limits_that_contradict_each_other_are_refused(void **state)
{
    bench b;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    tandem_pareto_front *front = NULL;
    open_bench_answers(&b);
    static const struct {
        tandem_goal goal;
        const char *policy;
        int64_t target_ns;
    } cases[] = {
        {{TANDEM_MINIMIZE_STEP, 1}, "uniform", 0},        {{TANDEM_MINIMIZE_MEMORY, 1}, "uniform", 0},
        {{TANDEM_MINIMIZE_STEP, 1}, "greedy", 7},         {{TANDEM_MINIMIZE_STEP, -1}, "greedy", 0},
        {{TANDEM_MINIMIZE_STEP, INT64_MIN}, "greedy", 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        tandem_error error = {0};
        b.problem.target_ns = cases[k].target_ns;
        assert_int_equal(tandem_allocate_for(&plan, &a, &cases[k].goal, policy_of(cases[k].policy),
                                             &b.problem, NULL, &error),
                         TANDEM_USAGE);
        assert_int_equal(error.status, TANDEM_USAGE);
    }
    b.problem.target_ns = 0;
    tandem_error error = {0};
    assert_int_equal(tandem_pareto_front_open(&front, policy_of("uniform"), &b.problem, 8, &error),
                     TANDEM_USAGE);
    assert_int_equal(tandem_pareto_front_open(&front, policy_of("greedy"), &b.problem, 1, &error),
                     TANDEM_USAGE);
    assert_true(!plan && !front && a.replays == -5);
    close_bench_answers(&b);
}

/* A policy that knows a single plan misses the baselines that are listed beside its front. */
static void a_front_has_the_baselines_that_its_policy_missed(void **state)
{
    bench b;
    tandem_pareto_front *front = NULL;
    tandem_error error = {0};
    tandem_policy one_plan = *policy_of("uniform");
    int n_better = 0;
    one_plan.ignores_target = 0;
    open_bench_answers(&b);
    b.problem.uniform = TANDEM_PRECISION_INT8;
    require_ok(tandem_pareto_front_open(&front, &one_plan, &b.problem, 3, &error), &error);
    for (int k = 0; k < front->n_baseline; k++) {
        const tandem_baseline *baseline = &front->baseline[k];
        int is_on_front = 0;
        for (int i = 0; i < front->n_point; i++) {
            const tandem_pareto_point *point = &front->point[i];
            const int is_no_worse = point->step_ns <= baseline->step_ns &&
                                    point->sensitivity_bound <= baseline->sensitivity_bound;
            is_on_front |= is_no_worse;
            n_better += point->step_ns == baseline->step_ns && baseline->precision != b.problem.uniform;
        }
        assert_true(is_on_front || !baseline->fits);
    }
    assert_true(n_better >= 1);
    for (int i = 0; i < front->n_point; i++) {
        tandem_replay replay;
        const tandem_plan *plan = front->point[i].plan;
        tandem_replayer_load(b.problem.replayer, &plan->assignment);
        require_ok(tandem_replayer_run(b.problem.replayer, &replay, 0, &error), &error);
        assert_int_equal(replay.step_ns, front->point[i].step_ns);
        assert_true(plan->step_ns == front->point[i].step_ns);
    }
    tandem_pareto_front_close(front);
    close_bench_answers(&b);
}

static void a_budget_below_everything_is_said(void **state)
{
    bench b;
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    tandem_error error = {0};
    open_bench_answers(&b);
    const tandem_goal none = {TANDEM_MINIMIZE_STEP, 0};
    require_ok(tandem_allocate_for(&plan, &a, &none, policy_of("greedy"), &b.problem, NULL, &error), &error);
    assert_true(a.sensitivity_bound == 0 && a.step_ns <= b.a.base_ns);
    tandem_plan_close(plan);
    plan = NULL;
    const tandem_goal least = {TANDEM_MINIMIZE_MEMORY, 0};
    b.problem.target_ns = b.a.fastest_ns; /* takes harm */
    assert_int_equal(tandem_allocate_for(&plan, &a, &least, policy_of("greedy"), &b.problem, NULL, &error),
                     TANDEM_INFEASIBLE);
    assert_non_null(strstr(error.text, "no plan has a sensitivity of 0 or less within that step"));
    b.problem.base_precision = TANDEM_PRECISION_FP32;
    for (int i = 0; i < b.plan->assignment.n_op; i++) /* even fp32 harms */
        b.p.sensitivity[WEAK][i * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] = 1;
    b.problem.target_ns = 0;
    assert_int_equal(tandem_allocate_for(&plan, &a, &none, policy_of("greedy"), &b.problem, NULL, &error),
                     TANDEM_INFEASIBLE);
    assert_non_null(strstr(error.text, "fits the memory"));
    assert_null(plan);
    close_bench_answers(&b);
}

/* --- Without memory ------------------------------------------------------------------------------------- */

typedef tandem_status question(bench *b, tandem_error *error);

static tandem_status ask_verify(bench *b, tandem_error *error)
{
    tandem_allocation found;
    return tandem_plan_verify(&found, b->plan, &b->problem, error);
}

static tandem_status ask_baselines(bench *b, tandem_error *error)
{
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n;
    return tandem_baselines_find(baseline, &n, &b->problem, b->plan, error);
}

static tandem_status ask_explain(bench *b, tandem_error *error)
{
    tandem_choice choice[TANDEM_N_PRECISION];
    int n, op = 0;
    while (!is_adjustable_answers(b, op)) op++;
    return tandem_choices_explain(choice, &n, &b->problem, 1, WEAK, op, error);
}

static tandem_status ask_memory_deficit(bench *b, tandem_error *error)
{
    tandem_memory_deficit memory_deficit[TANDEM_MAX_CLASS];
    int n;
    tandem_allocation_problem problem = b->problem;
    problem.memory_limit_bytes = 1;
    return tandem_memory_deficits_find(memory_deficit, &n, &problem, error);
}

static tandem_status ask_least_step(bench *b, tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_allocation a;
    const tandem_goal goal = {TANDEM_MINIMIZE_STEP, b->a.sensitivity_bound};
    const tandem_status status =
        tandem_allocate_for(&plan, &a, &goal, policy_of("greedy"), &b->problem, NULL, error);
    assert_int_equal(plan != NULL, status == TANDEM_OK);
    tandem_plan_close(plan);
    return status;
}

static tandem_status ask_front(bench *b, tandem_error *error)
{
    tandem_pareto_front *front = NULL;
    const tandem_status status = tandem_pareto_front_open(&front, policy_of("greedy"), &b->problem, 2, error);
    assert_int_equal(front != NULL, status == TANDEM_OK);
    tandem_pareto_front_close(front);
    return status;
}

static void every_allocation_may_fail_answers(void **state)
{
    static question *const questions[] = {ask_verify,         ask_baselines,  ask_explain,
                                          ask_memory_deficit, ask_least_step, ask_front};
    long n_failed = 0;
    for (size_t which = 0; which < sizeof questions / sizeof questions[0]; which++) {
        bench b;
        tandem_status status = TANDEM_NO_MEMORY;
        open_bench_answers(&b);
        long k = 0;
        for (; status != TANDEM_OK; k++) {
            tandem_error error = {0};
            /* each replay plans memory: most are alike */
            tandem_fail_allocation_after(k < 64 ? k : 64 + 197 * (k - 64));
            status = questions[which](&b, &error);
            const int failed = tandem_allocation_failed();
            tandem_fail_allocation_after(-1);
            assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
            assert_int_equal(error.status, status);
        }
        n_failed += k - 1;
        close_bench_answers(&b);
    }
    assert_true(n_failed > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_what_it_says),
        cmocka_unit_test(every_edited_figure_is_named),
        cmocka_unit_test(a_changed_precision_does_not_go_unnoticed),
        cmocka_unit_test(a_bound_is_proven_again),
        cmocka_unit_test(a_broken_limit_is_no_edited_figure),
        cmocka_unit_test(baselines_are_the_uniform_plans_of_what_is_lowered),
        cmocka_unit_test(the_two_beside_the_plan_are_marked),
        cmocka_unit_test(baselines_that_were_not_measured_are_left_out),
        cmocka_unit_test(a_choice_is_explained_by_replays),
        cmocka_unit_test(what_forbids_a_choice_is_counted),
        cmocka_unit_test(the_batch_that_fits_is_the_largest),
        cmocka_unit_test(what_fits_lacks_nothing),
        cmocka_unit_test(limits_that_contradict_each_other_are_refused),
        cmocka_unit_test(a_front_has_the_baselines_that_its_policy_missed),
        cmocka_unit_test(a_budget_below_everything_is_said),
        cmocka_unit_test(every_allocation_may_fail_answers),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
