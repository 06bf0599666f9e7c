/* test_onnx_statistics.c: an executor begins with the running statistics of the model's file
 * (tests/data/onnx/conv.onnx), which an evaluation uses.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_executor_begins_with_the_statistics_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
