/* folder: allocator */
/* A question: which limits contradict each other, the goal that they make, and the answer against the same
 * steps by hand. */
#include "tandem/advice.h"
#include "tests/support/scored_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:depth=3,width=64", two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni";
enum { BATCH = 4 };

static int set_up_question(void **state)
{
    static costed_cluster p;
    tandem_error error = {0};
    require_ok(costed_cluster_open(&p, model, two_devices, BATCH, 11, NULL, &error), &error);
    scored_cluster_file(&p, "first", 1);
    *state = &p;
    return 0;
}

static int tear_down_question(void **state)
{
    costed_cluster_close(*state);
    return 0;
}

static tandem_request request_of(const costed_cluster *p)
{
    return (tandem_request){.store = p->path, .model = model, .cluster = two_devices, .batch = BATCH};
}

/* --- Contradictions ------------------------------------------------------------------------------------- */

static void contradictions_are_named(void **state)
{
    const struct {
        tandem_allocation_request request;
        tandem_status status;
        const char *says;
    } cases[] = {
        {{.slowdown_is_given = 1, .max_step_ns = 5}, TANDEM_USAGE, "--max-step and --slowdown contradict"},
        {{.slowdown_is_given = 1, .max_sensitivity_is_given = 1}, TANDEM_USAGE, "--max-sensitivity and --sl"},
        {{.max_step_ns = 5, .max_sensitivity_is_given = 1}, TANDEM_USAGE, "--max-sensitivity and --max-step"},
        {{.minimize = TANDEM_MINIMIZE_TRAINING_TIME, .max_step_ns = 5},
         TANDEM_USAGE,
         "training-time and --m"},
        {{.minimize = TANDEM_MINIMIZE_TRAINING_TIME, .slowdown_is_given = 1}, TANDEM_USAGE, "decides on the"},
        {{.minimize = TANDEM_MINIMIZE_TRAINING_TIME, .max_sensitivity_is_given = 1}, TANDEM_USAGE, "on both"},
        {{.minimize = TANDEM_MINIMIZE_STEP, .slowdown_is_given = 1}, TANDEM_USAGE, "--minimize step and --s"},
        {{.minimize = TANDEM_MINIMIZE_STEP, .max_step_ns = 5},
         TANDEM_USAGE,
         "--minimize step and --max-step"},
        {{.minimize = TANDEM_MINIMIZE_SENSITIVITY, .max_sensitivity_is_given = 1},
         TANDEM_USAGE,
         "--minimize sensitivity and"},
        {{.global_batch = 8, .max_sensitivity_is_given = 1}, TANDEM_USAGE, "--batch auto and --max-sens"},
        {{.global_batch = 8, .minimize = TANDEM_MINIMIZE_MEMORY}, TANDEM_USAGE, "--minimize memory"},
        {{.global_batch = 8, .minimize = TANDEM_MINIMIZE_STEP}, TANDEM_USAGE, "--minimize step"},
        {{.global_batch = 9, .of.step.n_micro = 2}, TANDEM_USAGE, "multiple of the micro-steps"},
        {{.slowdown_is_given = 1, .slowdown = -0.1}, TANDEM_USAGE, "a slowdown of -10%"},
        {{.slowdown_is_given = 1, .slowdown = NAN}, TANDEM_USAGE, "a slowdown of nan"},
        {{.max_sensitivity_is_given = 1, .max_sensitivity = -1}, TANDEM_USAGE, "-100%"},
        {{.max_step_ns = -5}, TANDEM_USAGE, "-5 ns"},
        {{.policy = "exakt"}, TANDEM_UNKNOWN_NAME, "'exact'"},
        {{.policy = "uniform"}, TANDEM_USAGE, "policy uniform needs a precision"},
        {{.policy = "uniform", .uniform = "int9"}, TANDEM_UNKNOWN_NAME, "'int8'"},
        {{.policy = "uniform", .uniform = "int8", .max_step_ns = 5}, TANDEM_USAGE, "has a single plan"},
        {{.uniform = "int8"}, TANDEM_USAGE, "only for --policy uniform"},
        {{.of.method = "fischer"}, TANDEM_UNKNOWN_NAME, "'fisher'"},
        {{.of.method = "fisher", .max_sensitivity_is_given = 1}, TANDEM_USAGE, "--max-sensitivity counts"},
        {{.of.method = "qsync", .minimize = TANDEM_MINIMIZE_TRAINING_TIME}, TANDEM_USAGE, "has no unit"},
        {{.of.method = "fisher"}, TANDEM_OK, ""},
        {{.minimize = TANDEM_MINIMIZE_MEMORY, .max_step_ns = 5, .max_sensitivity_is_given = 1},
         TANDEM_OK,
         ""},
        {{.minimize = TANDEM_MINIMIZE_SENSITIVITY, .slowdown_is_given = 1}, TANDEM_OK, ""},
        {{.policy = "uniform", .uniform = "int8"}, TANDEM_OK, ""},
        {{.global_batch = 8, .of.step.n_micro = 2}, TANDEM_OK, ""},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_error error = {0};
        const tandem_status status = tandem_allocation_request_check(&cases[i].request, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].says))
            fail_msg("case %zu: %s: %s", i, tandem_status_name(status), error.text);
    }
}

/* --- The goal ------------------------------------------------------------------------------------------- */

static tandem_answer ask(tandem_planner *planner, const tandem_allocation_request *request)
{
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    require_ok(tandem_planner_ask(&answer, planner, request, &error), &error);
    assert_int_equal(answer.plan->objective, answer.goal.objective);
    return answer;
}

static void limits_make_the_goal(void **state)
{
    const struct {
        tandem_allocation_request request;
        tandem_objective objective;
    } cases[] = {
        {{.policy = NULL}, TANDEM_MINIMIZE_TRAINING_TIME},
        {{.policy = "greedy"}, TANDEM_MINIMIZE_TRAINING_TIME},
        {{.policy = "uniform", .uniform = "int8"}, TANDEM_MINIMIZE_SENSITIVITY},
        {{.slowdown_is_given = 1}, TANDEM_MINIMIZE_SENSITIVITY},
        {{.max_step_ns = INT64_C(1) << 40}, TANDEM_MINIMIZE_SENSITIVITY},
        {{.max_sensitivity_is_given = 1, .max_sensitivity = 10}, TANDEM_MINIMIZE_STEP},
        {{.minimize = TANDEM_MINIMIZE_MEMORY}, TANDEM_MINIMIZE_MEMORY},
        {{.minimize = TANDEM_MINIMIZE_STEP}, TANDEM_MINIMIZE_STEP},
    };
    const tandem_request request = request_of(*state);
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    require_ok(tandem_planner_open(&planner, &request, &error), &error);
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_answer answer = ask(planner, &cases[i].request);
        assert_int_equal(answer.goal.objective, cases[i].objective);
        assert_true(isnan(answer.allocation.training_ns) ==
                    (cases[i].objective != TANDEM_MINIMIZE_TRAINING_TIME));
        tandem_answer_close(&answer);
    }
    tandem_planner_close(planner);
}

/* By a method that counts no samples there is no training time. */
static void another_method_has_another_goal(void **state)
{
    tandem_allocation_request request = {.of = request_of(*state)};
    request.of.method = "fisher";
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    require_ok(tandem_answer_open(&answer, &request, &error), &error);
    assert_int_equal(answer.goal.objective, TANDEM_MINIMIZE_SENSITIVITY);
    assert_string_equal(answer.plan->method, "fisher");
    tandem_answer_close(&answer);
}

/* What a question before set on a planner's problem does not stay. */
static void each_question_has_its_own_limits(void **state)
{
    const tandem_request request = request_of(*state);
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    require_ok(tandem_planner_open(&planner, &request, &error), &error);
    const tandem_allocation_request all = {0}, limited = {.max_step_ns = INT64_C(1) << 40, .work_limit = 1},
                                    uniform = {.policy = "uniform", .uniform = "int8"};
    tandem_answer first = ask(planner, &all), second = ask(planner, &limited), third = ask(planner, &uniform),
                  fourth = ask(planner, &all);
    assert_int_equal(second.plan->target_ns, INT64_C(1) << 40);
    assert_string_equal(third.plan->name, "uniform int8");
    char *const before = tandem_plan_text(first.plan, tandem_planner_graph(planner, 0)),
                *const after = tandem_plan_text(fourth.plan, tandem_planner_graph(planner, 0));
    assert_string_equal(after, before);
    free(before);
    free(after);
    tandem_answer *const answers[] = {&first, &second, &third, &fourth};
    for (int k = 0; k < 4; k++) tandem_answer_close(answers[k]);
    tandem_planner_close(planner);
}

/* --- The answer ----------------------------------------------------------------------------------------- */

static void an_answer_says_what_its_plan_does(void **state)
{
    const tandem_allocation_request request = {.of = request_of(*state)};
    tandem_answer answer = {.plan = NULL};
    tandem_planned_step step;
    tandem_error error = {0};
    require_ok(tandem_answer_open(&answer, &request, &error), &error);
    require_ok(tandem_planner_replay(&step, answer.planner, answer.plan, &error), &error);
    assert_int_equal(answer.step.step_ns, step.step_ns);
    assert_int_equal(answer.allocation.step_ns, step.step_ns);
    assert_true(fabs(answer.goodput.samples_per_s * (double)step.step_ns * 1e-9 - 2 * BATCH) < 1e-9);
    assert_int_equal(answer.sources.n_class, 2);
    assert_string_equal(answer.sources.device[1], "cpu:avx2_vnni");
    assert_true(answer.sources.of[0].n_task[TANDEM_ORIGIN_MEASURED] > 0);
    assert_int_equal(answer.split.n_split, 0);
    tandem_answer_close(&answer);
    assert_true(answer.plan == NULL && answer.planner == NULL);
    tandem_answer_close(&answer);
}

/* The caller's graphs replace the model's name. */
static void graphs_of_the_caller_are_planned(void **state)
{
    const costed_cluster *p = *state;
    tandem_allocation_request request = {.of = request_of(p)};
    tandem_answer by_name = {.plan = NULL}, by_graph = {.plan = NULL};
    tandem_error error = {0};
    require_ok(tandem_answer_open(&by_name, &request, &error), &error);
    request.of.model = NULL;
    request.of.batch = 0;
    request.of.graph = (const tandem_graph *const *)p->graph;
    request.of.n_graph = 1;
    require_ok(tandem_answer_open(&by_graph, &request, &error), &error);
    assert_ptr_equal(tandem_planner_graph(by_graph.planner, 1), p->graph[0]);
    assert_int_equal(by_graph.step.step_ns, by_name.step.step_ns);
    request.of.batch = 2 * BATCH;
    assert_int_equal(tandem_answer_open(&by_name, &request, &error), TANDEM_WRONG_MODEL);
    assert_non_null(strstr(error.text, "has batch 8, and the model was captured with batch 4"));
    tandem_answer_close(&by_name);
    tandem_answer_close(&by_graph);
}

/* Costs are measured at one batch: every other split is passed over. */
static void a_global_batch_is_split(void **state)
{
    tandem_allocation_request request = {.of = request_of(*state), .global_batch = 2 * BATCH};
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    require_ok(tandem_answer_open(&answer, &request, &error), &error);
    assert_ptr_equal(answer.plan, answer.split.both.plan);
    assert_true(answer.split.n_split > answer.split.n_missing);
    assert_int_equal(answer.plan->cluster.classes[0].batch, BATCH);
    assert_int_equal(tandem_planner_graph(answer.planner, 1)->batch, BATCH);
    assert_int_equal(answer.goal.objective, TANDEM_MINIMIZE_TRAINING_TIME);
    assert_int_equal(tandem_planner_ask(&answer, answer.planner, &request, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "a planner has its batches"));
    tandem_answer_close(&answer);
    request.of.step.n_micro = 2;
    request.global_batch = 2;
    assert_int_equal(tandem_answer_open(&answer, &request, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "into 2 micro-steps first"));
    request.of.step.n_micro = 0;
    request.slowdown_is_given = 1;
    request.global_batch = 2 * BATCH;
    require_ok(tandem_answer_open(&answer, &request, &error), &error);
    assert_int_equal(answer.goal.objective, TANDEM_MINIMIZE_SENSITIVITY);
    tandem_answer_close(&answer);
}

/* --- Clusters compared ---------------------------------------------------------------------------------- */

static tandem_allocation_request question_of_gpus(const costed_cluster *p)
{
    tandem_allocation_request request = {.of = request_of(p)};
    request.of.cluster = "2*v100@2 net=10Gbit/s,5us";
    request.of.predict = 1;
    return request;
}

static void count_cases(void *context, int k, int n, const char *cluster)
{
    int *seen = context;
    assert_int_equal(k, *seen);
    assert_int_equal(n, 6);
    assert_non_null(strstr(cluster, k == TANDEM_CASE_NEW_ONLY ? "t4" : "v100"));
    ++*seen;
}

/* Each case is what its cluster alone is answered, but for the certificate. */
static void advice_is_the_best_of_its_cases(void **state)
{
    tandem_allocation_request request = question_of_gpus(*state);
    tandem_advice advice = {.candidate = NULL};
    tandem_answer alone = {.plan = NULL};
    tandem_error error = {0};
    int seen = 0;
    const tandem_advice_listener listener = {&seen, count_cases};
    require_ok(tandem_advise(&advice, &request, "2*t4@2 + p4", &listener, &error), &error);
    assert_true(seen == 6 && advice.n == 6 && advice.by_goodput && advice.is_described);
    for (int k = 0; k < advice.n; k++) {
        const tandem_candidate *one = &advice.candidate[k];
        assert_non_null(one->answer.plan);
        assert_true(one->rate == one->answer.goodput.goodput &&
                    one->rate <= advice.candidate[advice.best].rate);
    }
    assert_string_equal(advice.candidate[TANDEM_CASE_COMBINED].name, "2*v100@2 + 2*t4@2 + p4");
    assert_string_equal(advice.candidate[TANDEM_CASE_SUBSET].name, "2*v100@2 + p4");
    assert_string_equal(advice.candidate[advice.n - 1].name, "2*v100@2 + t4@1 + p4");
    assert_int_equal(advice.interval.n, 3);
    request.of.cluster = "2*v100@2 + 2*t4@2 + p4 net=10Gbit/s,5us";
    require_ok(tandem_answer_open(&alone, &request, &error), &error);
    assert_int_equal(advice.candidate[TANDEM_CASE_COMBINED].answer.step.step_ns, alone.step.step_ns);
    tandem_answer_close(&alone);
    tandem_advice_close(&advice);
}

static void advice_refuses(void **state)
{
    tandem_allocation_request request = question_of_gpus(*state);
    tandem_advice advice = {.n = -7};
    tandem_error error = {0};
    assert_int_equal(tandem_advise(&advice, &request, NULL, NULL, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "advise needs a model"));
    request.policy = "uniform";
    assert_int_equal(tandem_advise(&advice, &request, "t4", NULL, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "cannot compare clusters"));
    request.policy = NULL;
    request.of.predict = 0;
    assert_int_equal(tandem_advise(&advice, &request, "t4", NULL, &error), TANDEM_MISSING);
    request.of.predict = 1;
    request.global_batch = 2; /* too few for three ranks: that case has no split */
    assert_int_equal(tandem_advise(&advice, &request, "t4", NULL, &error), TANDEM_USAGE);
    assert_int_equal(advice.n, -7);
}

static void fewer_devices_may_make_more(void **state)
{
    tandem_allocation_request request = question_of_gpus(*state);
    tandem_candidate smaller = {.rate = 0};
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    int by_goodput = 0;
    request.of.cluster = "v100 + p4 net=1Mbit/s,5us"; /* the exchange takes longer than all else */
    require_ok(tandem_answer_open(&answer, &request, &error), &error);
    require_ok(tandem_smaller_cluster_find(&smaller, &by_goodput, &request, &answer, &error), &error);
    assert_true(by_goodput && smaller.answer.plan && smaller.rate > answer.goodput.goodput);
    assert_string_equal(smaller.name, "v100");
    tandem_candidate_close(&smaller);
    tandem_answer_close(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(limits_make_the_goal),
        cmocka_unit_test(another_method_has_another_goal),
        cmocka_unit_test(each_question_has_its_own_limits),
        cmocka_unit_test(an_answer_says_what_its_plan_does),
        cmocka_unit_test(graphs_of_the_caller_are_planned),
        cmocka_unit_test(a_global_batch_is_split),
        cmocka_unit_test(advice_is_the_best_of_its_cases),
        cmocka_unit_test(advice_refuses),
        cmocka_unit_test(fewer_devices_may_make_more),
    };
    return cmocka_run_group_tests_name("question", tests, set_up_question, tear_down_question);
}
