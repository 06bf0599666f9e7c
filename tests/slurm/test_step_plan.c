/* folder: plugins */
/* What the options of a step ask, and which plans answer it. */
#include "plugins/slurm/step_plan.h"
#include "tests/support/tandem_test.h"

static tandem_node node_of(const char *device, int n_task)
{
    tandem_node node = {.name = "n", .n_task = n_task};
    assert_int_equal(tandem_device_find(&node.device, device, NULL), TANDEM_OK);
    return node;
}

static void values_are_checked(void **state)
{
    const struct {
        tandem_spank_option option;
        const char *text, *says; /* NULL: it is taken */
    } cases[] = {
        {TANDEM_SPANK_BATCH, "16", NULL},
        {TANDEM_SPANK_BATCH, "0", "is a whole number from 1"},
        {TANDEM_SPANK_GLOBAL_BATCH, "x", "is a whole number from 1"},
        {TANDEM_SPANK_MEMORY, "12GiB,4GiB", NULL},
        {TANDEM_SPANK_MEMORY, "12", "unit is missing"},
        {TANDEM_SPANK_SLOWDOWN, "0%", NULL},
        {TANDEM_SPANK_SLOWDOWN, "3", "unit is missing"},
        {TANDEM_SPANK_MAX_SENSITIVITY, "1%", NULL},
        {TANDEM_SPANK_MAX_STEP, "200ms", NULL},
        {TANDEM_SPANK_MAX_STEP, "200", "unit is missing"},
        {TANDEM_SPANK_BASE, "fp23", "'fp32'"},
        {TANDEM_SPANK_POLICY, "greddy", "'greedy'"},
        {TANDEM_SPANK_METHOD, "sampld", "'sampled'"},
        {TANDEM_SPANK_MINIMIZE, "memory", NULL},
        {TANDEM_SPANK_MINIMIZE, "time", "training-time"},
        {TANDEM_SPANK_MODEL, "", "--tandem-x needs a value"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        const tandem_status status =
            tandem_step_check_option(cases[i].option, "tandem-x", cases[i].text, &error);
        if ((status == TANDEM_OK) != !cases[i].says || (cases[i].says && !strstr(error.text, cases[i].says)))
            fail_msg("case %zu: %s: %s", i, tandem_status_name(status), error.text);
    }
}

static void options_make_a_question(void **state)
{
    const tandem_node nodes[] = {node_of("cpu:avx2", 1), node_of("t4", 2)};
    const char *given[TANDEM_N_SPANK_OPTION] = {[TANDEM_SPANK_MODEL] = "mlp",
                                                [TANDEM_SPANK_BATCH] = "8",
                                                [TANDEM_SPANK_SLOWDOWN] = "0%",
                                                [TANDEM_SPANK_DB] = "not read",
                                                [TANDEM_SPANK_BASE] = "fp16"};
    tandem_step_question question;
    tandem_error error = {0};
    require_ok(tandem_step_ask(&question, given, nodes, 2, "10Gbit/s,5us", "s.db", &error), &error);
    const tandem_allocation_request *r = &question.request;
    assert_string_equal(r->of.cluster, "1*cpu:avx2@1 + 2*t4@2 net=10Gbit/s,5us");
    assert_string_equal(r->of.store, "s.db");
    assert_true(r->of.predict && r->of.batch == 8 && r->slowdown_is_given && r->slowdown == 0);
    require_ok(tandem_step_ask(&question, given, nodes, 1, "", "s.db", &error), &error);
    assert_false(r->of.predict);
    given[TANDEM_SPANK_MAX_SENSITIVITY] = "1%";
    assert_int_equal(tandem_step_ask(&question, given, nodes, 2, "", "s.db", &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "contradict each other"));
}

/* One difference at a time. */
static void a_plan_answers_its_own_question(void **state)
{
    const tandem_node nodes[] = {node_of("v100", 1), node_of("t4", 1)};
    const char *given[TANDEM_N_SPANK_OPTION] = {[TANDEM_SPANK_MODEL] = "mlp", [TANDEM_SPANK_BATCH] = "8"};
    tandem_step_question question;
    tandem_cluster cluster;
    tandem_graph *graph = NULL;
    tandem_plan *plan = NULL;
    tandem_error error = {0};
    require_ok(tandem_step_ask(&question, given, nodes, 2, "", "s.db", &error), &error);
    require_ok(tandem_cluster_parse(&cluster, question.cluster, &error), &error);
    require_ok(tandem_cluster_fill_defaults(&cluster, 8, NULL, &error), &error);
    require_ok(tandem_graph_open(&graph, "mlp", 8, &error), &error);
    require_ok(tandem_plan_open(&plan, graph, &cluster, "allocated", &error), &error);
    (void)snprintf(plan->policy, sizeof plan->policy, "exact");
    (void)snprintf(plan->method, sizeof plan->method, "sampled");
    plan->objective = TANDEM_MINIMIZE_TRAINING_TIME;
    assert_true(tandem_step_plan_answers(plan, graph, &question.request));
    const struct {
        const char *text;
        tandem_spank_option option;
        int answers;
    } others[] = {
        {"mlp:depth=3", TANDEM_SPANK_MODEL, 0},
        {"4", TANDEM_SPANK_BATCH, 0},
        {"1GiB", TANDEM_SPANK_MEMORY, 0},
        {"0%", TANDEM_SPANK_SLOWDOWN, 0},
        {"fp16", TANDEM_SPANK_BASE, 0},
        {"greedy", TANDEM_SPANK_POLICY, 0},
        {"exact", TANDEM_SPANK_POLICY, 1},
        {"fisher", TANDEM_SPANK_METHOD, 0},
        {"1%", TANDEM_SPANK_MAX_SENSITIVITY, 0},
        {"memory", TANDEM_SPANK_MINIMIZE, 0},
        {"training-time", TANDEM_SPANK_MINIMIZE, 1},
        {"1ms", TANDEM_SPANK_MAX_STEP, 0},
        {"16", TANDEM_SPANK_GLOBAL_BATCH, 1},
        {"18", TANDEM_SPANK_GLOBAL_BATCH, 0},
    };
    for (size_t i = 0; i < N_OF(others); i++) {
        const char *kept = given[others[i].option];
        given[others[i].option] = others[i].text;
        require_ok(tandem_step_ask(&question, given, nodes, 2, "", "s.db", &error), &error);
        if (tandem_step_plan_answers(plan, graph, &question.request) != others[i].answers)
            fail_msg("option %d with '%s'", (int)others[i].option, others[i].text);
        given[others[i].option] = kept;
    }
    plan->objective = TANDEM_MINIMIZE_STEP;
    plan->max_sensitivity = 1;
    given[TANDEM_SPANK_MAX_SENSITIVITY] = "1%";
    require_ok(tandem_step_ask(&question, given, nodes, 2, "", "s.db", &error), &error);
    assert_true(tandem_step_plan_answers(plan, graph, &question.request));
    plan->max_sensitivity = 2;
    assert_false(tandem_step_plan_answers(plan, graph, &question.request));
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(options_make_a_question),
        cmocka_unit_test(a_plan_answers_its_own_question),
    };
    return cmocka_run_group_tests_name("step plan", tests, NULL, NULL);
}
