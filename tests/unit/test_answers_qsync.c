/* folder: allocator */
/* The published procedure, on an mlp of three products whose times and harms are chosen so that every
 * decision of it can be determined by hand. */
#include "tandem/advanced/allocator.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

static const char device[] = "cpu:avx2";
enum { FC1, FC2, HEAD, N_PRODUCT };
static const char *const product[N_PRODUCT] = {"fc1", "fc2", "head"};

/* What a product takes in a pass, by precision; -1 = not measured. Everything else takes nothing. */
typedef struct cost_table {
    const tandem_graph *graph;
    int op[N_PRODUCT];
    int64_t ns[N_PRODUCT][TANDEM_N_PRECISION];
    int64_t sensitivity[N_PRODUCT][TANDEM_N_PRECISION];
} cost_table;

typedef struct bench {
    cost_table costs;
    replay_store profile;
    tandem_graph *graph;
    tandem_cluster cluster;
    tandem_replayer *replayer;
    int64_t *sensitivity;
    tandem_allocation_problem problem;
} bench;

static int64_t cost_answers_qsync(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    const cost_table *p = context;
    *workspace_bytes = 0;
    if (key->kind != TANDEM_COST_OP) return 0;
    for (int k = 0; k < N_PRODUCT; k++)
        if (strcmp(p->graph->op[p->op[k]].signature, key->signature) == 0)
            for (int q = 0; q < TANDEM_N_PRECISION; q++)
                if (strcmp(tandem_precision_get((tandem_precision)q)->name, key->precision) == 0)
                    return key->pass == TANDEM_PASS_FORWARD || p->ns[k][q] < 0 ? p->ns[k][q] : 0;
    return 0;
}

static void open_bench_answers_qsync(bench *b, const char *memory)
{
    tandem_error error = {0};
    char text[96];
    assert_int_equal(tandem_graph_open(&b->graph, "mlp:width=64", 256, &error), TANDEM_OK);
    b->costs.graph = b->graph;
    b->sensitivity = calloc((size_t)b->graph->n_op * TANDEM_N_PRECISION, sizeof *b->sensitivity);
    assert_non_null(b->sensitivity);
    for (int k = 0; k < N_PRODUCT; k++) {
        assert_int_equal(tandem_graph_find(&b->costs.op[k], b->graph, product[k], &error), TANDEM_OK);
        memcpy(&b->sensitivity[b->costs.op[k] * TANDEM_N_PRECISION], b->costs.sensitivity[k],
               sizeof b->costs.sensitivity[k]);
    }
    (void)snprintf(text, sizeof text, "%s batch=256%s", device, memory);
    assert_int_equal(tandem_cluster_parse(&b->cluster, text, &error), TANDEM_OK);
    replay_store_open(&b->profile);
    replay_store_fill(&b->profile, b->graph, TANDEM_F32, 0, device, "", cost_answers_qsync, &b->costs);
    require_ok(tandem_replayer_open(&b->replayer, &b->cluster, (const tandem_graph *const *)&b->graph,
                                    b->profile.store, 0, &error),
               &error);
    b->problem = (tandem_allocation_problem){.replayer = b->replayer,
                                             .graph = b->graph,
                                             .sensitivity = {b->sensitivity},
                                             .base_precision = TANDEM_PRECISION_FP32};
}

static void close_bench_answers_qsync(bench *b)
{
    tandem_replayer_close(b->replayer);
    replay_store_close(&b->profile);
    free(b->sensitivity);
    tandem_graph_close(b->graph);
}

static tandem_status allocate_answers_qsync(bench *b, tandem_plan **plan, tandem_allocation *allocation,
                                            tandem_error *error)
{
    const tandem_policy *policy = NULL;
    assert_int_equal(tandem_policy_find(&policy, "qsync", error), TANDEM_OK);
    return tandem_allocate(plan, allocation, policy, &b->problem, "made up", error);
}

static void assert_precisions(const bench *b, const tandem_plan *plan, tandem_precision fc1,
                              tandem_precision fc2, tandem_precision head)
{
    const tandem_precision expected[N_PRODUCT] = {fc1, fc2, head};
    for (int k = 0; k < N_PRODUCT; k++)
        assert_int_equal(plan->assignment.precision[0][b->costs.op[k]], expected[k]);
}

#define FP32 TANDEM_PRECISION_FP32
#define INT8 TANDEM_PRECISION_INT8
#define FULL TANDEM_PRECISION_INT8_FULL

/* Raising fc1 takes 9000 ns, fc2 900, head 100. */
static bench three_products(void)
{
    return (bench){.costs = {.ns = {[FC1] = {[FP32] = 10000, [INT8] = 1000, [FULL] = -1},
                                    [FC2] = {[FP32] = 1900, [INT8] = 1000, [FULL] = -1},
                                    [HEAD] = {[FP32] = 1100, [INT8] = 1000, [FULL] = -1}},
                             .sensitivity = {[FC1] = {[INT8] = 5, [FULL] = 5},
                                             [FC2] = {[INT8] = 3, [FULL] = 3},
                                             [HEAD] = {[INT8] = 1, [FULL] = 1}}}};
}

static void the_initial_setting_is_the_fastest(void **state)
{
    bench b = three_products();
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    b.costs.ns[FC2][INT8] = 2500; /* slower than fp32 */
    open_bench_answers_qsync(&b, "");
    assert_int_equal(allocate_answers_qsync(&b, &plan, &a, &error), TANDEM_OK);
    assert_precisions(&b, plan, INT8, FP32, INT8);
    assert_int_equal(a.base_ns, 13000);
    assert_int_equal(a.fastest_ns, 3900);
    assert_int_equal(a.step_ns, 3900);
    assert_int_equal(a.target_ns, 3900);
    assert_true(a.sensitivity_bound == 6 && a.fastest_sensitivity_bound == 6 &&
                a.base_sensitivity_bound == 0);
    assert_int_equal(a.keeps_base, 0);
    tandem_plan_close(plan);
    close_bench_answers_qsync(&b);
}

/* 3000 ns at first. The most sensitive comes first; where it is too long it is undone, and the next is tried.
 * */
static void the_most_sensitive_is_raised_first(void **state)
{
    static const struct {
        int64_t target_ns;
        tandem_precision fc1, fc2, head;
    } cases[] = {
        {3000, INT8, INT8, INT8},  {3099, INT8, INT8, INT8},  {3100, INT8, INT8, FP32},
        {3899, INT8, INT8, FP32},  {3900, INT8, FP32, INT8},  {3999, INT8, FP32, INT8},
        {4000, INT8, FP32, FP32},  {11999, INT8, FP32, FP32}, {12000, FP32, INT8, INT8},
        {12899, FP32, INT8, FP32}, {12900, FP32, FP32, INT8}, {13000, FP32, FP32, FP32},
    };
    bench b = three_products();
    open_bench_answers_qsync(&b, "");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        tandem_plan *plan = NULL;
        tandem_allocation a;
        tandem_error error = {0};
        b.problem.target_ns = cases[k].target_ns;
        assert_int_equal(allocate_answers_qsync(&b, &plan, &a, &error), TANDEM_OK);
        assert_precisions(&b, plan, cases[k].fc1, cases[k].fc2, cases[k].head);
        assert_int_equal(a.target_ns, cases[k].target_ns);
        assert_true(a.step_ns <= a.target_ns);
        tandem_plan_close(plan);
    }
    close_bench_answers_qsync(&b);
}

/* From the narrowest to the next wider one, not to the widest at once. */
static void an_operator_is_raised_step_by_step(void **state)
{
    bench b = three_products();
    for (int k = 0; k < N_PRODUCT; k++) {
        b.costs.ns[k][FULL] = 100;
        b.costs.sensitivity[k][FULL] *= 2;
    }
    open_bench_answers_qsync(&b, "");
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    /* 300 at first; each step to int8 takes 900: fc1 (gain 5), fc2 (3), no more */
    b.problem.target_ns = 2100;
    assert_int_equal(allocate_answers_qsync(&b, &plan, &a, &error), TANDEM_OK);
    assert_precisions(&b, plan, INT8, INT8, FULL);
    tandem_plan_close(plan);
    close_bench_answers_qsync(&b);
}

static void a_target_out_of_reach_is_said(void **state)
{
    bench b = three_products();
    open_bench_answers_qsync(&b, "");
    tandem_plan *plan = NULL;
    tandem_allocation a = {.replays = -5};
    tandem_error error = {0};
    b.problem.target_ns = 2999;
    assert_int_equal(allocate_answers_qsync(&b, &plan, &a, &error), TANDEM_INFEASIBLE);
    assert_null(plan);
    assert_int_equal(a.replays, -5);
    assert_non_null(strstr(error.text, "(3000 ns)"));
    close_bench_answers_qsync(&b);
}

/* fp32 is fastest everywhere, but does not fit: what is harmed least is lowered first, until it does. */
static void for_memory_the_least_sensitive_is_lowered(void **state)
{
    bench b = three_products();
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error error = {0};
    for (int k = 0; k < N_PRODUCT; k++) b.costs.ns[k][INT8] = b.costs.ns[k][FULL] = 20000;
    open_bench_answers_qsync(&b, "");
    b.problem.slowdown = 100;
    assert_int_equal(allocate_answers_qsync(&b, &plan, &a, &error), TANDEM_OK);
    assert_precisions(&b, plan, FP32, FP32, FP32);
    const uint64_t base_bytes = a.peak_bytes[0];
    tandem_plan_close(plan);
    close_bench_answers_qsync(&b);

    char memory[48];
    plan = NULL;
    (void)snprintf(memory, sizeof memory, " memory=%lluB", (unsigned long long)base_bytes - 1);
    bench tight = three_products();
    for (int k = 0; k < N_PRODUCT; k++) tight.costs.ns[k][INT8] = tight.costs.ns[k][FULL] = 20000;
    open_bench_answers_qsync(&tight, memory);
    tight.problem.slowdown = 100;
    require_ok(allocate_answers_qsync(&tight, &plan, &a, &error), &error);
    assert_true(a.peak_bytes[0] < base_bytes);
    /* head and fc2 went first and made no room; fc1, whose input is the largest, did; then those came back */
    assert_precisions(&tight, plan, FULL, FP32, FP32);
    assert_true(a.fastest_sensitivity_bound == 9 && a.sensitivity_bound == 5);
    tandem_plan_close(plan);
    close_bench_answers_qsync(&tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_initial_setting_is_the_fastest),
        cmocka_unit_test(the_most_sensitive_is_raised_first),
        cmocka_unit_test(an_operator_is_raised_step_by_step),
        cmocka_unit_test(a_target_out_of_reach_is_said),
        cmocka_unit_test(for_memory_the_least_sensitive_is_lowered),
    };
    return cmocka_run_group_tests_name("answers/qsync", tests, NULL, NULL);
}
