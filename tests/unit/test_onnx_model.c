/* test_onnx_model.c: what an imported model (tests/data/onnx/conv.onnx) brings: an executor begins with its
 * running statistics, which an evaluation uses, and DDP's buckets have its parameters in PyTorch's order.
 * Other models there: what a step replaces of the statistics, and the order of gradients.
 * folder: backend */
#include "tests/support/tandem_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/executor.h"
#include "base/file.h"
#include "graph/onnx/onnx.h"
#include "tandem/advanced/backend.h"
#include "tandem/advanced/step.h"
#include "tandem/cluster.h"

enum { N_CHANNEL = 6 };
#define MODEL "tests/data/onnx/conv.onnx"

/* Of a tensor in the file: its name, then its numbers after a tag and a length of one byte each. */
static void read_numbers(float numbers[N_CHANNEL], const char *name)
{
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(tandem_file_read(&text, &n, MODEL, 1 << 20, NULL), TANDEM_OK);
    const size_t length = strlen(name), bytes = N_CHANNEL * sizeof *numbers;
    char *at = NULL; /* the last time: nodes name it before */
    for (size_t i = 0; i + length + 2 + bytes <= n; i++)
        if (memcmp(text + i, name, length) == 0) at = text + i;
    assert_non_null(at);
    assert_int_equal(at[length + 1], bytes);
    memcpy(numbers, at + length + 2, bytes);
    free(text);
}

static void an_executor_begins_with_the_statistics_of_the_file(void **state)
{
    const tandem_backend_api *const backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    static const tandem_onnx_options none;
    float wanted[2][N_CHANNEL];
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    read_numbers(wanted[0], "bn.mean");
    read_numbers(wanted[1], "bn.var");
    assert_int_equal(tandem_onnx_open(&graph, MODEL, MODEL, &none, 2, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, &error), TANDEM_OK);
    const tandem_worker_options rank = {
        .device = "cpu:sse41", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(20000000000)};
    assert_int_equal(backend->worker_open(&worker, &rank, &error), TANDEM_OK);
    const tandem_executor_options options = {.step = step, .global_batch = 2};
    assert_int_equal(backend->executor_open(&executor, worker, &options, &error), TANDEM_OK);
    assert_int_equal(executor->batchnorm_stats.n, 2 * N_CHANNEL);
    assert_memory_equal(executor->batchnorm_stats.value, wanted, sizeof wanted);
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void a_convolutions_weight_is_in_ddps_buckets_before_its_bias(void **state)
{
    static const tandem_onnx_options none;
    const tandem_step_options as_ddp = {.ddp_buckets = 1};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char name[2][TANDEM_PARAMETER_NAME];
    assert_int_equal(tandem_onnx_open(&graph, MODEL, MODEL, &none, 2, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &as_ddp, &error), TANDEM_OK);
    assert_int_equal(step->n_bucket, 1);
    for (int k = 0; k < 2; k++)
        tandem_parameter_name(name[k], graph, step->parameter_order[graph->n_parameter - 2 + k]);
    assert_string_equal(name[0], "conv.weight");
    assert_string_equal(name[1], "conv.bias");
    /* the bucket waits for the weight, whose gradient is computed last */
    assert_string_equal(graph->op[step->task[step->bucket[0].ready_task].op].name, "conv");
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* The loss, once, of the same samples and weights: so statistics alone change. */
static void fill_samples(void *context, const tandem_executor *executor, int task)
{
    const tandem_step *const step = context;
    const tandem_graph *const g = step->graph;
    if (step->task[task].kind != TANDEM_TASK_FORWARD || step->task[task].op != g->input) return;
    const void *const at =
        tandem_backend_get(TANDEM_BACKEND_VERSION)
            ->executor_value(executor, tandem_value_activation(step, g->input, TANDEM_F32), 0, NULL);
    float *x;
    memcpy(&x, &at, sizeof x); /* on a CPU it is the value itself */
    for (int64_t i = 0; i < tandem_shape_elements(&g->op[g->input].shape); i++)
        x[i] = (float)(i % 7) * 0.5f - (float)(i % 11);
}

static void a_step_replaces_as_much_of_the_statistics_as_the_file_says(void **state)
{
    enum { N = 2 * 3, N_STEP = 3 };
    const tandem_backend_api *const backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    static const tandem_onnx_options none;
    float seen[N_STEP][N];
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    const char *const path = "tests/data/onnx/momentum.onnx";
    assert_int_equal(tandem_onnx_open(&graph, path, path, &none, 2, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, &error), TANDEM_OK);
    const tandem_worker_options rank = {
        .device = "cpu:sse41", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(20000000000)};
    assert_int_equal(backend->worker_open(&worker, &rank, &error), TANDEM_OK);
    const tandem_executor_options options = {.step = step, .global_batch = 2};
    assert_int_equal(backend->executor_open(&executor, worker, &options, &error), TANDEM_OK);
    backend->executor_set_rate(executor, 0);
    backend->executor_observe(executor, fill_samples, step);
    assert_int_equal(executor->batchnorm_stats.n, N);
    for (int k = 0; k < N_STEP; k++) {
        double loss;
        assert_int_equal(backend->executor_step(executor, k, &loss, &error), TANDEM_OK);
        memcpy(seen[k], executor->batchnorm_stats.value, sizeof seen[k]);
    }
    /* r becomes 0.75·r + 0.25·b, where b stays: differences shrink to three quarters */
    for (int i = 0; i < N; i++) {
        const double first = (double)(seen[1][i] - seen[0][i]), then = (double)(seen[2][i] - seen[1][i]);
        assert_true(fabs(first) > 1e-3);
        assert_true(fabs(then - 0.75 * first) <= 1e-5 * fabs(first) + 1e-6);
    }
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* Of row i of the samples that fill_samples makes, (x − mean) / √(variance + ε); then the cross entropy with
 * the label: the model is that norm alone, with a scale of 1 and a shift of 0. */
static double loss_of_norm(int n, int row, int label, double epsilon)
{
    double x[16] = {0}, mean = 0, variance = 0, sum = 0;
    for (int k = 0; k < n; k++) {
        const int i = row * n + k;
        x[k] = (i % 7) * 0.5 - i % 11;
        mean += x[k] / n;
    }
    for (int k = 0; k < n; k++) variance += (x[k] - mean) * (x[k] - mean) / n;
    for (int k = 0; k < n; k++) x[k] = (x[k] - mean) / sqrt(variance + epsilon);
    for (int k = 0; k < n; k++) sum += exp(x[k]);
    assert_true(sum > 0);
    return log(sum > 0 ? sum : 1) - x[label];
}

static void check_epsilon(const char *path)
{
    enum { N = 8, BATCH = 2 };
    const tandem_backend_api *const backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    static const tandem_onnx_options none;
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    double loss = 0, wanted = 0, without = 0;
    assert_int_equal(tandem_onnx_open(&graph, path, path, &none, BATCH, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, &error), TANDEM_OK);
    const tandem_worker_options rank = {
        .device = "cpu:sse41", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(20000000000)};
    assert_int_equal(backend->worker_open(&worker, &rank, &error), TANDEM_OK);
    const tandem_executor_options options = {.step = step, .global_batch = BATCH};
    assert_int_equal(backend->executor_open(&executor, worker, &options, &error), TANDEM_OK);
    backend->executor_observe(executor, fill_samples, step);
    assert_int_equal(backend->executor_step(executor, 0, &loss, &error), TANDEM_OK);
    for (int row = 0; row < BATCH; row++) {
        wanted += loss_of_norm(N, row, executor->label[row], 0.5) / BATCH;
        without += loss_of_norm(N, row, executor->label[row], 1e-5) / BATCH;
    }
    assert_true(fabs(loss - wanted) < 1e-5);
    assert_true(fabs(loss - without) > 1e-3);
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void a_norms_epsilon_is_the_files(void **state)
{
    check_epsilon("tests/data/onnx/epsilon.onnx");
    check_epsilon("tests/data/onnx/epsilon_steps.onnx");
}

/* What DDP's buckets hold, in order. */
static void assert_order(const char *path, int n, const char *const *wanted)
{
    static const tandem_onnx_options none;
    const tandem_step_options as_ddp = {.ddp_buckets = 1};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char name[TANDEM_PARAMETER_NAME];
    assert_int_equal(tandem_onnx_open(&graph, path, path, &none, 2, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &as_ddp, &error), TANDEM_OK);
    assert_int_equal(graph->n_parameter, n);
    for (int k = 0; k < n; k++)
        assert_string_equal(tandem_parameter_name(name, graph, step->parameter_order[k]), wanted[k]);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void gradients_are_handed_on_in_reverse_order_of_the_file(void **state)
{
    static const char *const branches[] = {"right.weight", "left.weight"};
    static const char *const places[] = {"fc.bias", "fc.weight", "attn.table", "to.weight"};
    static const char *const early[] = {"fc.bias", "fc.weight", "to.weight", "attn.table"};
    assert_order("tests/data/onnx/branches.onnx", 2, branches);
    assert_order("tests/data/onnx/places.onnx", 4, places); /* looked up after the product */
    assert_order("tests/data/onnx/early.onnx", 4, early);   /* and before */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executor_begins_with_the_statistics_of_the_file),
        cmocka_unit_test(a_convolutions_weight_is_in_ddps_buckets_before_its_bias),
        cmocka_unit_test(a_step_replaces_as_much_of_the_statistics_as_the_file_says),
        cmocka_unit_test(a_norms_epsilon_is_the_files),
        cmocka_unit_test(gradients_are_handed_on_in_reverse_order_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
