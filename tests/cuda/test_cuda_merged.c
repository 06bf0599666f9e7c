/* folder: backend, and others for devices, plans or robust means */
/* Tasks that are one launch (tandem_step_is_merged) have the bits of the same tasks alone, on what replaces
 * NVIDIA's libraries: who observes a step has it task by task. And each of them saves its launch. */
#include <dlfcn.h>

#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"

static int *launches, *has_device_memory;

static int open_merged_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    launches = dlsym(library, "stand_in_launches");
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    assert_true(launches && has_device_memory);
    *has_device_memory = 1;
    (void)state;
    return 0;
}

typedef struct merged_run {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_worker *worker;
    tandem_executor *executor;
} merged_run;

/* window: of amax histories; 0: casts find their own ranges. */
static merged_run open_merged_run(const char *model, tandem_precision precision, uint64_t bucket_bytes,
                                  int window, int timed)
{
    merged_run o = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    tandem_cluster cluster;
    tandem_error error = {0};
    const tandem_step_options options = {.scaling = {.window = window}};
    assert_int_equal(tandem_cluster_parse(&cluster, "cuda:0", &error), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&o.graph, model, 2, &error), TANDEM_OK);
    assert_int_equal(
        tandem_device_open_step(&o.step, &cluster.classes[0].device, o.graph, bucket_bytes, &options, &error),
        TANDEM_OK);
    for (int i = 0; i < o.graph->n_op; i++)
        if (tandem_op_is_adjustable(&o.graph->op[i]) &&
            tandem_op_row_get(o.graph->op[i].kind)->precisions >> precision & 1)
            tandem_step_set(o.step, i, precision);
    tandem_step_resolve(o.step);
    const tandem_worker_options worker = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(o.backend->worker_open(&o.worker, &worker, &error), TANDEM_OK);
    const tandem_executor_options how = {.step = o.step, .global_batch = 2, .with_task_times = timed};
    assert_int_equal(o.backend->executor_open(&o.executor, o.worker, &how, &error), TANDEM_OK);
    assert_int_equal(o.backend->executor_memory(o.executor)->peak,
                     o.backend->executor_allocated_bytes(o.executor));
    return o;
}

static void close_merged_run(const merged_run *o)
{
    o->backend->executor_close(o->executor);
    o->backend->worker_close(o->worker);
    tandem_step_close(o->step);
    tandem_graph_close(o->graph);
}

static void look_between(void *context, const tandem_executor *executor, int task)
{
    (void)context, (void)executor, (void)task;
}

enum { STEPS = 4 };

/* Launches of the first step, which is no graph; the weights after all steps. */
static int run_steps(const merged_run *o, int is_observed, double loss[STEPS], float *weight)
{
    int first = 0;
    o->backend->executor_observe(o->executor, is_observed ? look_between : NULL, NULL);
    for (int i = 0; i < STEPS; i++) {
        const int before = *launches;
        assert_int_equal(o->backend->executor_step(o->executor, i, &loss[i], NULL), TANDEM_OK);
        if (i == 0) first = *launches - before;
    }
    assert_int_equal(o->backend->executor_get_weights(o->executor, weight, NULL), TANDEM_OK);
    return first;
}

/* How many tasks of a kind are merged with the one before. */
static int count_merged(const tandem_step *step, tandem_task_kind kind)
{
    int n = 0;
    for (int t = 0; t < step->n_task; t++)
        n += step->task[t].active && step->task[t].kind == kind && tandem_step_is_merged(step, t);
    return n;
}

typedef struct merged_case {
    const char *model;
    uint64_t bucket_bytes;
    tandem_precision precision;
    int forward, wgrad, dgrad, casts, updates; /* how many are merged, at least */
    int window, results;                       /* with histories: casts of results */
} merged_case;

static void check_merged_case(const merged_case *c)
{
    double loss[2][STEPS];
    float *weight[2];
    int first[2], merged = 0;
    for (int alone = 0; alone < 2; alone++) {
        const merged_run o = open_merged_run(c->model, c->precision, c->bucket_bytes, c->window, 0);
        weight[alone] = calloc((size_t)o.step->n_flat, sizeof(float));
        assert_non_null(weight[alone]);
        first[alone] = run_steps(&o, alone, loss[alone], weight[alone]);
        merged = 0;
        for (int kind = 0; kind < TANDEM_N_TASK_KIND; kind++)
            merged += count_merged(o.step, (tandem_task_kind)kind);
        assert_true(count_merged(o.step, TANDEM_TASK_FORWARD) >= c->forward);
        assert_true(count_merged(o.step, TANDEM_TASK_WGRAD) >= c->wgrad);
        assert_true(count_merged(o.step, TANDEM_TASK_DGRAD) >= c->dgrad);
        assert_true(count_merged(o.step, TANDEM_TASK_WEIGHT_CAST) >= c->casts);
        assert_true(count_merged(o.step, TANDEM_TASK_UPDATE) >= c->updates);
        assert_int_equal(count_merged(o.step, TANDEM_TASK_CAST), c->results);
        if (alone) assert_memory_equal(weight[0], weight[1], (size_t)o.step->n_flat * sizeof(float));
        close_merged_run(&o);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_true(loss[0][STEPS - 1] != loss[0][0]);
    assert_int_equal(first[1] - first[0], merged);
    free(weight[1]);
    free(weight[0]);
}

/* Products of q, k and v, and their biases before transposes; biases before a sum and its layernorm; sums
 * without a bias, where a dropout lies between; weights as they lie, and transposed for windows; a plan
 * without casts, whose forward products read weights that lie in the other order; casts with histories, of
 * layernorms, alone and of sums, and of biases with gelu, in both orders and in one. */
static void merged_tasks_have_the_bits_of_tasks_alone(void **state)
{
    static const merged_case cases[] = {
        {"gpt_tiny:width=32,depth=2,length=8", 0, TANDEM_PRECISION_BF16, 22, 10, 4, 12, 0, 0, 0},
        {"gpt_tiny:width=32,depth=2,length=8", 8192, TANDEM_PRECISION_BF16, 22, 6, 2, 12, 1, 0, 0},
        {"gpt_tiny:width=32,depth=1,length=8,dropout=0.2", 0, TANDEM_PRECISION_FP16, 9, 5, 2, 6, 0, 0, 0},
        {"gpt_tiny:width=32,depth=1,length=8", 0, TANDEM_PRECISION_FP32, 9, 5, 2, 0, 0, 0, 0},
        {"gpt_tiny:width=32,depth=1,length=8", 8192, TANDEM_PRECISION_INT8, 0, 0, 0, 0, 1, 0, 0},
        {"resnet20:width=8,blocks=1", 8192, TANDEM_PRECISION_BF16, 0, 0, 0, 9, 1, 0, 0},
        {"gpt_tiny:width=32,depth=2,length=8", 0, TANDEM_PRECISION_FP8, 10, 0, 0, 0, 0, 2, 7},
        {"gpt_tiny:width=32,depth=1,length=8,dropout=0.2", 0, TANDEM_PRECISION_INT8, 5, 0, 0, 0, 0, 2, 4},
        {"gpt_tiny:width=32,depth=1,length=8", 0, TANDEM_PRECISION_INT8_FULL, 7, 0, 0, 0, 0, 3, 4},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_merged_case(&cases[k]);
}

/* A library without products that share an operand runs them one by one, with the same bits. */
static void products_without_an_algorithm_are_separate(void **state)
{
    static const char *const lacks = "STAND_IN_LACKS_SHARED_OPERANDS";
    double loss[2][STEPS];
    float *weight[2];
    int first[2], products = 0;
    for (int alone = 0; alone < 2; alone++) {
        if (alone) assert_int_equal(setenv(lacks, "1", 1), 0);
        const merged_run o =
            open_merged_run("gpt_tiny:width=32,depth=2,length=8", TANDEM_PRECISION_BF16, 0, 0, 0);
        assert_int_equal(unsetenv(lacks), 0);
        weight[alone] = calloc((size_t)o.step->n_flat, sizeof(float));
        assert_non_null(weight[alone]);
        first[alone] = run_steps(&o, 0, loss[alone], weight[alone]);
        products = 0;
        for (int t = 0; t < o.step->n_task; t++) {
            const int n = tandem_step_merged_products(o.step, t).n;
            products += n > 1 ? n - 1 : 0;
        }
        if (alone) assert_memory_equal(weight[0], weight[1], (size_t)o.step->n_flat * sizeof(float));
        close_merged_run(&o);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_int_equal(products, 8);
    assert_int_equal(first[1] - first[0], products);
    free(weight[1]);
    free(weight[0]);
    (void)state;
}

/* The time of one launch is divided among its tasks: each has a part, and one begins where another ends. */
static void check_parts_of_time(tandem_precision precision, int window)
{
    const merged_run o = open_merged_run("gpt_tiny:width=32,depth=1,length=8", precision, 0, window, 1);
    for (int i = 0; i < 3; i++) {
        double loss = 0;
        int64_t until = 0, before = 0; /* begin of the task before */
        assert_int_equal(o.backend->executor_step(o.executor, i, &loss, NULL), TANDEM_OK);
        const tandem_step_times *times = o.backend->executor_times(o.executor);
        for (int t = 0; t < o.step->n_task; t++) {
            if (!o.step->task[t].active || o.step->task[t].kind == TANDEM_TASK_REDUCE) continue;
            assert_true(times->start_ns[t] >= until && times->end_ns[t] >= times->start_ns[t]);
            const int n = tandem_step_merged_products(o.step, t).n; /* products are alike */
            if (n > 2) {
                const int64_t own = times->end_ns[t] - times->start_ns[t];
                assert_in_range(until - before - own + 2, 0, 4);
            }
            before = times->start_ns[t];
            if (tandem_step_is_merged(o.step, t))
                assert_true(times->start_ns[t] == until && times->end_ns[t] > until);
            until = times->end_ns[t];
        }
    }
    close_merged_run(&o);
}

static void merged_tasks_have_parts_of_the_time(void **state)
{
    check_parts_of_time(TANDEM_PRECISION_BF16, 0);
    check_parts_of_time(TANDEM_PRECISION_FP8, 4);
    (void)state;
}

/* The first step finds empty histories: each of their casts is a launch more than in the next one. An
 * observer keeps both from being graphs. */
static void first_casts_are_two_launches(void **state)
{
    const merged_run o = open_merged_run("gpt_tiny:width=32,depth=1,length=8", TANDEM_PRECISION_FP8, 0, 2, 0);
    int launched[2], n_cast = 0;
    double loss = 0;
    for (int t = 0; t < o.step->n_task; t++) n_cast += tandem_step_amax_history(o.step, t) >= 0;
    assert_true(n_cast > 10);
    o.backend->executor_observe(o.executor, look_between, NULL);
    for (int i = 0; i < 2; i++) {
        const int before = *launches;
        assert_int_equal(o.backend->executor_step(o.executor, i, &loss, NULL), TANDEM_OK);
        launched[i] = *launches - before;
    }
    assert_int_equal(launched[0] - launched[1], n_cast);
    close_merged_run(&o);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merged_tasks_have_the_bits_of_tasks_alone),
                                       cmocka_unit_test(products_without_an_algorithm_are_separate),
                                       cmocka_unit_test(merged_tasks_have_parts_of_the_time),
                                       cmocka_unit_test(first_casts_are_two_launches)};
    return cmocka_run_group_tests(tests, open_merged_stand_in, NULL);
}
