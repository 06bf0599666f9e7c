/* test_onnx_model.c: what an imported model (tests/data/onnx/conv.onnx) brings: an executor begins with its
 * running statistics, which an evaluation uses, and DDP's buckets have its parameters in PyTorch's order.
 * folder: backend */
#include "tests/support/tandem_test.h"

#include <stdlib.h>
#include <string.h>

#include "backend/executor/executor.h"
#include "base/file.h"
#include "graph/onnx/onnx.h"
#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"

enum { N_CHANNEL = 6 };
#define MODEL "tests/data/onnx/conv.onnx"

/* Of a tensor in the file: its name, then its numbers behind a tag and a length of one byte each. */
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
    const tandem_worker_options rank = {"cpu:sse41", 0, 1, NULL, -1, INT64_C(20000000000), 0};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executor_begins_with_the_statistics_of_the_file),
        cmocka_unit_test(a_convolutions_weight_is_in_ddps_buckets_before_its_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
