/* folder: allocator */
/* A planner against the same steps by hand, what it refuses, and many of them at once over one store. */
#include <pthread.h>

#include "tandem/planner.h"
#include "tests/support/scored_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:depth=3,width=64", two_devices[] = "cpu:avx512_bf16 + cpu:avx2_vnni";
enum { BATCH = 4 };
static tandem_planner *const untouched = (tandem_planner *)(uintptr_t)0x10;

static int set_up_planner(void **state)
{
    static costed_cluster p;
    tandem_error error = {0};
    require_ok(costed_cluster_open(&p, model, two_devices, BATCH, 11, NULL, &error), &error);
    scored_cluster_file(&p, "first", 1);
    scored_cluster_file(&p, "second", 7);
    *state = &p;
    return 0;
}

static int tear_down_planner(void **state)
{
    costed_cluster_close(*state);
    return 0;
}

static tandem_request request_of(const costed_cluster *p)
{
    return (tandem_request){.store = p->path, .model = model, .cluster = two_devices, .batch = BATCH};
}

static tandem_planner *open_planner(const tandem_request *request)
{
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    require_ok(tandem_planner_open(&planner, request, &error), &error);
    return planner;
}

/* The plan's text, which the caller frees; slowdown 0: no limit. *allocation may be NULL. */
static char *allocate_planner(tandem_planner *planner, double slowdown, tandem_allocation *allocation)
{
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    const tandem_allocation_request request = {.slowdown_is_given = slowdown > 0, .slowdown = slowdown};
    require_ok(tandem_planner_ask(&answer, planner, &request, &error), &error);
    char *text = tandem_plan_text(answer.plan, tandem_planner_graph(planner, 0));
    assert_non_null(text);
    if (allocation) *allocation = answer.allocation;
    tandem_answer_close(&answer);
    return text;
}

/* --- The plan ------------------------------------------------------------------------------------------ */

static void it_allocates_what_the_steps_by_hand_do(void **state)
{
    costed_cluster *p = *state;
    tandem_error error = {0};
    tandem_allocation_problem problem = costed_problem(p, 0.02);
    const tandem_request request = request_of(p);
    tandem_planner *planner = open_planner(&request), *units = planner;
    problem.sensitivity_unit = tandem_planner_problem(units)->sensitivity_unit;
    problem.estimate = tandem_planner_problem(units)->estimate;
    for (int c = 0; c < 2; c++) problem.sensitivity[c] = tandem_planner_problem(units)->sensitivity[c];
    tandem_plan *plan = NULL;
    tandem_allocation by_hand, by_planner;
    const tandem_goal goal = {TANDEM_MINIMIZE_SENSITIVITY, INT64_MAX};
    require_ok(tandem_allocate_for(&plan, &by_hand, &goal, tandem_policy_get(0), &problem, "sampled", &error),
               &error);
    char *expected = tandem_plan_text(plan, p->graph[0]);

    planner = open_planner(&request);
    char *text = allocate_planner(planner, 0.02, &by_planner);
    assert_string_equal(text, expected);
    assert_true(by_planner.sensitivity_bound > 0 &&
                by_planner.sensitivity_bound == by_hand.sensitivity_bound);
    assert_int_equal(by_planner.step_ns, by_hand.step_ns);
    assert_string_equal(tandem_planner_method(planner), "sampled");
    free(text);
    tandem_planner_close(planner);

    planner = NULL; /* the same with graphs that are borrowed */
    require_ok(tandem_planner_open_for(&planner, &(tandem_request){.store = p->path}, &p->cluster,
                                       (const tandem_graph *const *)p->graph, &error),
               &error);
    assert_ptr_equal(tandem_planner_graph(planner, 1), p->graph[1]);
    text = allocate_planner(planner, 0.02, NULL);
    assert_string_equal(text, expected);
    free(text);
    tandem_planner_close(planner);

    free(expected);
    tandem_plan_close(plan);
    tandem_planner_close(units);
}

static void a_printed_cluster_plans_the_same(void **state)
{
    tandem_request request = request_of(*state);
    request.memory = "1000MiB,3GB";
    char cluster[512];
    tandem_planner *planner = open_planner(&request);
    tandem_cluster_print(cluster, sizeof cluster, tandem_planner_cluster(planner));
    char *expected = allocate_planner(planner, 0.05, NULL);
    tandem_planner_close(planner);
    request.cluster = cluster;
    request.batch = 99;
    request.memory = NULL;
    planner = open_planner(&request);
    char *text = allocate_planner(planner, 0.05, NULL);
    assert_string_equal(text, expected);
    tandem_planner_close(planner);
    free(text);
    free(expected);
}

/* --- What a request says ------------------------------------------------------------------------------- */

static void batches_and_limits_are_filled_in(void **state)
{
    const costed_cluster *p = *state;
    static const struct {
        const char *cluster, *memory;
        int64_t batch, batches[2];
        uint64_t limits[2];
    } cases[] = {
        {"cpu:avx512_bf16 + cpu:avx2_vnni", NULL, 0, {TANDEM_DEFAULT_BATCH, TANDEM_DEFAULT_BATCH}, {0, 0}},
        {"cpu:avx512_bf16 batch=3 + cpu:avx2_vnni", NULL, 5, {3, 5}, {0, 0}},
        {"cpu:avx512_bf16 + cpu:avx2_vnni memory=2GiB", NULL, 4, {4, 4}, {0, (uint64_t)2 << 30}},
        {"cpu:avx512_bf16 + cpu:avx2_vnni memory=2GiB", "1GiB", 4, {4, 4}, {1 << 30, 1 << 30}},
        {"cpu:avx512_bf16 + cpu:avx2_vnni", "1GiB,512MiB", 4, {4, 4}, {1 << 30, 1 << 29}},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const tandem_request request = {.store = p->path,
                                        .model = model,
                                        .cluster = cases[i].cluster,
                                        .memory = cases[i].memory,
                                        .batch = cases[i].batch,
                                        .times_only = 1};
        tandem_planner *planner = open_planner(&request);
        const tandem_cluster *cluster = tandem_planner_cluster(planner);
        for (int c = 0; c < 2; c++) {
            assert_int_equal(cluster->classes[c].batch, cases[i].batches[c]);
            assert_int_equal(tandem_planner_graph(planner, c)->batch, cases[i].batches[c]);
            assert_int_equal(tandem_cluster_memory_limit(cluster, c), cases[i].limits[c]);
        }
        tandem_planner_close(planner);
    }
}

static void a_limit_is_kept(void **state)
{
    tandem_request request = request_of(*state);
    tandem_allocation allocation;
    tandem_planner *planner = open_planner(&request);
    free(allocate_planner(planner, 0, &allocation));
    tandem_planner_close(planner);
    char memory[64];
    (void)snprintf(memory, sizeof memory, "1GiB,%lluB", (unsigned long long)allocation.peak_bytes[1] / 4);
    request.memory = memory;
    planner = open_planner(&request);
    tandem_answer answer;
    tandem_error error = {0};
    assert_int_equal(tandem_planner_ask(&answer, planner, &(tandem_allocation_request){0}, &error),
                     TANDEM_INFEASIBLE);
    assert_non_null(strstr(error.text, "cpu:avx2_vnni"));
    tandem_planner_close(planner);
}

/* In the unit of the method. */
static double planned_value(tandem_planner *planner, int c, int place)
{
    const tandem_allocation_problem *problem = tandem_planner_problem(planner);
    return tandem_sensitivity_value(problem, problem->sensitivity[c][place]);
}

static void choices_reach_the_problem(void **state)
{
    const costed_cluster *p = *state;
    tandem_request request = request_of(p);
    request.method = "fisher";
    tandem_planner *planner = open_planner(&request);
    const int head = p->graph[0]->n_op - 3, place = head * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8;
    assert_int_equal(tandem_op_row_get(p->graph[0]->op[head].kind)->op_class, TANDEM_ADJUSTABLE);
    const double newest = planned_value(planner, 1, place);
    assert_int_equal(tandem_planner_problem(planner)->base_precision, TANDEM_PRECISION_FP32);
    tandem_planner_close(planner);

    request.method = "qsync";
    request.base_precision = "bf16";
    planner = open_planner(&request);
    assert_string_equal(tandem_planner_method(planner), "qsync");
    assert_true(planned_value(planner, 1, place) != newest);
    assert_int_equal(tandem_planner_problem(planner)->base_precision, TANDEM_PRECISION_BF16);
    tandem_planner_close(planner);

    request.method = "fisher";
    request.base_precision = NULL;
    request.data = "second";
    planner = open_planner(&request);
    assert_true(planned_value(planner, 1, place) == newest);
    tandem_planner_close(planner);
    request.data = "first";
    planner = open_planner(&request);
    const double first = planned_value(planner, 1, place);
    assert_true(first > 0 && fabs(newest / first - 7) < 1e-9); /* in proportion to the squared gradients */
    tandem_planner_close(planner);
}

/* Classes 0 and 3 share AMP dtype and batch, and so do 1 and 4; 2 is alone. */
static void each_class_has_the_sensitivity_of_its_own_device_and_batch(void **state)
{
    const costed_cluster *p = *state;
    tandem_request request = request_of(p);
    request.cluster =
        "cpu:avx512_bf16 + cpu:avx2_vnni + cpu:avx2_vnni batch=2 + cpu:avx512_bf16 + cpu:avx2_vnni "
        "net=1GB/s,5us";
    request.method = "fisher";
    tandem_planner *planner = open_planner(&request);
    tandem_error error = {0};
    const size_t n = (size_t)p->graph[0]->n_op * TANDEM_N_PRECISION;
    double *expected = calloc(n, sizeof *expected), largest = 0;
    assert_non_null(expected);
    for (int c = 0; c < 5; c++) {
        require_ok(tandem_sensitivity_load(
                       expected, p->store, tandem_planner_graph(planner, c), "fisher", NULL, NULL,
                       tandem_planner_cluster(planner)->classes[c].device.amp_dtype, ~0u, &error),
                   &error);
        const tandem_cluster *cluster = tandem_planner_cluster(planner);
        int64_t samples = 0;
        for (int k = 0; k < 5; k++) samples += cluster->classes[k].batch;
        /* of a class's part of the batch, rounded up */
        const double share = (double)cluster->classes[c].batch / (double)samples,
                     unit = tandem_planner_problem(planner)->sensitivity_unit;
        for (size_t i = 0; i < n; i++) {
            const double more = planned_value(planner, c, (int)i) - share * expected[i];
            assert_true(more >= -1e-3 * unit && more < 1.001 * unit);
            largest += share * expected[i];
        }
    }
    /* a power of two, so fine that sums have 50 bits or more */
    int exponent;
    assert_true(frexp(tandem_planner_problem(planner)->sensitivity_unit, &exponent) == 0.5 &&
                largest / tandem_planner_problem(planner)->sensitivity_unit > 0x1p50);
    free(expected);
    tandem_planner_close(planner);
}

static tandem_estimated_error drawn_error(uint64_t seed, int place, int replicate)
{
    const double noise = place % 5 ? draw(seed, "noise", (uint32_t)place) : -0.1; /* every fifth clips */
    return (tandem_estimated_error){.total = 1e-3 * noise * (1 + 0.01 * replicate)};
}

/* Gradients in bf16 cost every plan of two ranks the same, that of fp32, too. */
static void check_exchange_counts(tandem_planner *exact, const tandem_request *of)
{
    tandem_request request = *of;
    tandem_error error = {0};
    const tandem_allocation_request question = {0};
    tandem_answer answer[2];
    request.wire = TANDEM_BF16;
    request.cluster = "cpu:avx512_bf16 + cpu:avx2_vnni node=1GB/s,5us"; /* no curve of bf16 was measured */
    tandem_planner *narrow = open_planner(&request);
    const double percent = 100 * tandem_allreduce_noise(tandem_planner_cluster(narrow));
    assert_true(percent > 3.5e-4 && percent < 3.6e-4);
    require_ok(tandem_planner_ask(&answer[0], exact, &question, &error), &error);
    require_ok(tandem_planner_ask(&answer[1], narrow, &question, &error), &error);
    tandem_plan *const plan[] = {answer[0].plan, answer[1].plan};
    assert_true(plan[0]->cluster.wire == TANDEM_F32 && plan[1]->cluster.wire == TANDEM_BF16);
    assert_true(answer[0].allocation.base_sensitivity_bound == 0 &&
                plan[0]->sensitivity_bound < plan[1]->sensitivity_bound);
    const double base =
        tandem_sensitivity_value(tandem_planner_problem(narrow), answer[1].allocation.base_sensitivity_bound);
    assert_true(fabs(base - percent) < 3e-6); /* each class's part is rounded up to a millionth */
    assert_true(plan[1]->sensitivity_bound >= percent);
    const tandem_certificate *proof = &answer[1].allocation.certificate;
    assert_true(tandem_sensitivity_value(tandem_planner_problem(narrow), proof->lower_bound) >=
                0.999 * percent);
    for (int k = 0; k < 2; k++) tandem_answer_close(&answer[k]);
    tandem_planner_close(narrow);
}

/* Millionths of a percent, rounded up, and parts of them that count what is lowered. */
static void extra_samples_are_in_millionths(void **state)
{
    const costed_cluster *p = *state;
    tandem_request request = request_of(p);
    tandem_estimate estimate = {0};
    tandem_error error = {0};
    const tandem_graph *graph = p->graph[0];
    const int n = graph->n_op * TANDEM_N_PRECISION;
    require_ok(tandem_estimate_open(&estimate, graph->n_op, 1, 3, &error), &error);
    estimate.batch = BATCH;
    estimate.steps = 1;
    for (int r = 0; r < 3; r++) estimate.gradient[r] = (tandem_estimated_gradient){4, 1};
    for (int i = 0; i < n * TANDEM_N_AMP_DTYPE; i++) {
        const int place = i / TANDEM_N_AMP_DTYPE;
        if (place % TANDEM_N_PRECISION == TANDEM_PRECISION_FP32 ||
            !(tandem_op_row_get(graph->op[place / TANDEM_N_PRECISION].kind)->precisions &
              1u << place % TANDEM_N_PRECISION))
            continue;
        estimate.is_estimated[i] = 1;
        for (int r = 0; r < 3; r++) tandem_estimate_errors(&estimate, 0, i)[r] = drawn_error(7, place, r);
    }
    require_ok(tandem_store_put_estimate(p->store, graph, "first", &estimate, &error), &error);
    request.method = "sampled";
    tandem_planner *planner = open_planner(&request);
    const tandem_allocation_problem *problem = tandem_planner_problem(planner);
    const tandem_sensitivity_step step = {.global_batch = 2 * BATCH, .n_micro = 1};
    double *expected = calloc((size_t)n, sizeof *expected);
    assert_non_null(expected);
    const double parts = 1e-6 / problem->sensitivity_unit;
    assert_true(parts == nearbyint(parts) && parts > 2 * graph->n_op);
    int n_none = 0;
    for (int c = 0; c < 2; c++) {
        require_ok(tandem_sensitivity_load(expected, p->store, graph, "sampled", NULL, &step,
                                           p->cluster.classes[c].device.amp_dtype, ~0u, &error),
                   &error);
        for (int i = 0; i < n; i++) {
            const int64_t units = problem->sensitivity[c][i], whole = (int64_t)ceil(1e6 * expected[i] / 2);
            const int is_lowered = estimate.is_estimated[i * TANDEM_N_AMP_DTYPE];
            assert_true(units == whole * (int64_t)parts + is_lowered);
            n_none += is_lowered && whole == 0;
        }
    }
    assert_true(n_none > 2); /* they count as lowered all the same */
    free(expected);
    check_exchange_counts(planner, &request);
    tandem_planner_close(planner);
    /* An estimate that is no store's also distinguishes plans. */
    request.method = NULL;
    request.times_only = 1;
    planner = open_planner(&request);
    require_ok(tandem_planner_set_estimate(planner, &estimate, &error), &error);
    assert_ptr_equal(tandem_planner_problem(planner)->estimate, &estimate);
    tandem_planner_close(planner);
    tandem_estimate_close(&estimate);
}

static void times_alone_replay_but_do_not_allocate(void **state)
{
    const costed_cluster *p = *state;
    tandem_request request = request_of(p);
    request.data = "neither"; /* of which there are no statistics */
    request.times_only = 1;
    tandem_planner *planner = open_planner(&request);
    tandem_replay replay, expected;
    tandem_error error = {0};
    tandem_plan *plan = NULL;
    require_ok(tandem_replayer_run(tandem_planner_problem(planner)->replayer, &replay, 0, &error), &error);
    require_ok(tandem_plan_open(&plan, p->graph[0], &p->cluster, "all fp32", &error), &error);
    tandem_replayer_load(p->replayer, &plan->assignment);
    require_ok(tandem_replayer_run(p->replayer, &expected, 0, &error), &error);
    assert_int_equal(replay.step_ns, expected.step_ns);
    tandem_plan_close(plan);
    tandem_answer answer;
    assert_int_equal(tandem_planner_ask(&answer, planner, &(tandem_allocation_request){0}, &error),
                     TANDEM_USAGE);
    assert_non_null(strstr(error.text, "times only"));
    tandem_planner_close(planner);
}

/* --- What is refused ----------------------------------------------------------------------------------- */

static void what_is_wrong_is_said_planner(void **state)
{
    const costed_cluster *p = *state;
    const struct {
        tandem_request request;
        tandem_status status;
        const char *says;
    } cases[] = {
        {{.model = model, .cluster = two_devices}, TANDEM_USAGE, "names no profile store"},
        {{.store = p->path, .cluster = two_devices}, TANDEM_USAGE, "no model given"},
        {{.store = p->path, .model = model}, TANDEM_USAGE, "no devices given"},
        {{.store = p->path, .model = "mpl", .cluster = two_devices}, TANDEM_UNKNOWN_NAME, "'mlp'"},
        {{.store = p->path, .model = model, .cluster = "cpu:avx512_fb16"},
         TANDEM_UNKNOWN_NAME,
         "cpu:avx512_bf16"},
        {{.store = p->path, .model = model, .cluster = "cpu:avx2 +"}, TANDEM_USAGE, "a device is missing"},
        {{.store = p->path, .model = model, .cluster = two_devices, .batch = -1}, TANDEM_USAGE, "-1"},
        {{.store = p->path, .model = model, .cluster = two_devices, .memory = ""},
         TANDEM_USAGE,
         "does not fit"},
        {{.store = p->path, .model = model, .cluster = two_devices, .memory = "1GiB,"},
         TANDEM_USAGE,
         "does not fit"},
        {{.store = p->path, .model = model, .cluster = two_devices, .memory = "1GiB,2GiB,3GiB"},
         TANDEM_USAGE,
         "does not fit 2 classes"},
        {{.store = p->path, .model = model, .cluster = two_devices, .memory = "12"},
         TANDEM_USAGE,
         "unit is missing"},
        {{.store = p->path, .model = model, .cluster = two_devices, .memory = "1GiB,0B"},
         TANDEM_USAGE,
         "above 0"},
        {{.store = p->path, .model = model, .cluster = two_devices, .method = "fischer"},
         TANDEM_UNKNOWN_NAME,
         "'fisher'"},
        {{.store = p->path, .model = model, .cluster = two_devices, .base_precision = "fp23"},
         TANDEM_UNKNOWN_NAME,
         "'fp32'"},
        {{.store = "/nowhere/tandem.db", .model = model, .cluster = two_devices},
         TANDEM_MISSING,
         "tandem profile"},
        {{.store = p->path, .model = model, .cluster = "cpu:sse41"},
         TANDEM_MISSING,
         "`tandem profile "
         "--model mlp"},
        {{.store = p->path, .model = model, .cluster = two_devices, .data = "third"},
         TANDEM_MISSING,
         "tandem sensitivity"},
        {{.store = p->path, .model = "mlp:depth=2", .cluster = two_devices},
         TANDEM_MISSING,
         "tandem sensitivity"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_planner *planner = untouched;
        tandem_error error = {0};
        const tandem_status status = tandem_planner_open(&planner, &cases[i].request, &error);
        if (status != cases[i].status || error.status != status || !strstr(error.text, cases[i].says))
            fail_msg("case %zu: %s: %s", i, tandem_status_name(status), error.text);
        assert_ptr_equal(planner, untouched);
        assert_int_equal(tandem_planner_open(&planner, &cases[i].request, NULL), status);
    }
    tandem_planner_close(NULL);
}

/* --- Many at once -------------------------------------------------------------------------------------- */

enum { N_THREAD = 4, N_ROUND = 5, N_SLOWDOWN = 3 };
static const double slowdowns[N_SLOWDOWN] = {0, 0.03, 0.2};

/* cmocka's assertions are for its own thread: what is wrong is counted. */
typedef struct worker {
    pthread_t thread;
    const tandem_request *request;
    char *const *expected;
    int n_wrong;
} worker;

static void *plan_again_and_again(void *argument)
{
    worker *w = argument;
    for (int k = 0; k < N_ROUND * N_SLOWDOWN; k++) {
        const double slowdown = slowdowns[k % N_SLOWDOWN];
        const tandem_allocation_request request = {
            .of = *w->request, .slowdown_is_given = slowdown > 0, .slowdown = slowdown};
        tandem_answer answer = {.plan = NULL};
        char *text = tandem_answer_open(&answer, &request, NULL) == TANDEM_OK
                         ? tandem_plan_text(answer.plan, tandem_planner_graph(answer.planner, 0))
                         : NULL;
        if (!text || strcmp(text, w->expected[k % N_SLOWDOWN]) != 0) w->n_wrong++;
        free(text);
        tandem_answer_close(&answer);
    }
    return NULL;
}

static void threads_plan_at_once_over_one_store(void **state)
{
    const tandem_request request = request_of(*state);
    char *expected[N_SLOWDOWN];
    for (int k = 0; k < N_SLOWDOWN; k++) {
        tandem_planner *planner = open_planner(&request);
        expected[k] = allocate_planner(planner, slowdowns[k], NULL);
        tandem_planner_close(planner);
    }
    assert_string_not_equal(expected[0], expected[N_SLOWDOWN - 1]);
    worker workers[N_THREAD];
    for (int t = 0; t < N_THREAD; t++) {
        workers[t] = (worker){.request = &request, .expected = expected};
        assert_int_equal(pthread_create(&workers[t].thread, NULL, plan_again_and_again, &workers[t]), 0);
    }
    for (int t = 0; t < N_THREAD; t++) {
        assert_int_equal(pthread_join(workers[t].thread, NULL), 0);
        assert_int_equal(workers[t].n_wrong, 0);
    }
    for (int k = 0; k < N_SLOWDOWN; k++) free(expected[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_allocates_what_the_steps_by_hand_do),
        cmocka_unit_test(a_printed_cluster_plans_the_same),
        cmocka_unit_test(batches_and_limits_are_filled_in),
        cmocka_unit_test(a_limit_is_kept),
        cmocka_unit_test(choices_reach_the_problem),
        cmocka_unit_test(each_class_has_the_sensitivity_of_its_own_device_and_batch),
        cmocka_unit_test(extra_samples_are_in_millionths),
        cmocka_unit_test(times_alone_replay_but_do_not_allocate),
        cmocka_unit_test(what_is_wrong_is_said_planner),
        cmocka_unit_test(threads_plan_at_once_over_one_store),
    };
    return cmocka_run_group_tests_name("planner", tests, set_up_planner, tear_down_planner);
}
