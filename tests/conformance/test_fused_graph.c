/* folder: backend */
/* A residual network trained as it is built and as fuse.c makes it: in fp32 to the same bits, which its
 * operators owe to each other by docs/step.md; in bf16, where fewer roundings are between them, to nearly
 * the same losses. */
#include "graph/ir/build.h"
#include "graph/ir/op.h"
#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/support/tandem_test.h"

enum {
    BATCH = 4,
    STEPS = 3,
    MAX_WEIGHTS = 8192,
    FEWER = 2 + 2 * 2
}; /* relus after batchnorms; sums and their relus */

static int norm_of_conv(tandem_builder *b, const char *conv, const char *norm, int x, int64_t channels,
                        int kernel, int stride)
{
    return tandem_build_batchnorm(b, norm,
                                  tandem_build_conv2d(b, conv, x, channels, kernel, stride, kernel / 2));
}

/* A block whose shortcut is its input, and one whose shortcut has a batchnorm of its own. */
static tandem_graph *network(int is_fused)
{
    static const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.05f, .momentum = 0.9f};
    tandem_error error = {0};
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    assert_int_equal(tandem_builder_open(&b, BATCH, &error), TANDEM_OK);
    const int image = tandem_build_images(b, "image", 8, 8, 3), label = tandem_build_labels(b, "label", 1);
    int x = tandem_build_relu(b, "stem.relu", norm_of_conv(b, "stem", "stem.norm", image, 8, 3, 1));
    int t = norm_of_conv(b, "conv1", "conv1.norm", x, 8, 3, 1);
    x = tandem_build_relu(b, "relu1", tandem_build_add(b, "add1", x, t));
    t = tandem_build_relu(b, "relu2", norm_of_conv(b, "conv2", "conv2.norm", x, 8, 1, 1));
    t = norm_of_conv(b, "conv3", "conv3.norm", t, 16, 3, 2);
    x = norm_of_conv(b, "shortcut", "shortcut.norm", x, 16, 1, 2);
    x = tandem_build_relu(b, "relu3", tandem_build_add(b, "add2", x, t));
    x = tandem_build_reshape(b, "flat", x, 2, (int64_t[]){BATCH, 16 * 4 * 4});
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", x, 10, 0.1f), label);
    require_ok(tandem_builder_finish(b, "residual", &sgd, &graph, &error), &error);
    tandem_builder_close(b);
    const int n_op = graph->n_op;
    if (is_fused) assert_int_equal(tandem_graph_fuse(graph, &error), TANDEM_OK);
    assert_int_equal(graph->n_op, n_op - (is_fused ? FEWER : 0));
    return graph;
}

typedef struct trained {
    double loss[STEPS];
    size_t n;
    float weight[MAX_WEIGHTS];
} trained;

static void train(trained *out, const tandem_backend_api *backend, tandem_worker *worker, int is_fused,
                  tandem_precision precision)
{
    tandem_error error = {0};
    tandem_graph *graph = network(is_fused);
    tandem_step *step = NULL;
    tandem_executor *executor = NULL;
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, &error), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_row_get(graph->op[i].kind)->precisions) tandem_step_set(step, i, precision);
    tandem_step_resolve(step);
    const tandem_executor_options how = {
        .step = step, .seed = 3, .global_batch = BATCH, .without_all_reduce = 1};
    require_ok(backend->executor_open(&executor, worker, &how, &error), &error);
    for (int k = 0; k < STEPS; k++)
        require_ok(backend->executor_step(executor, k, &out->loss[k], &error), &error);
    out->n = 0;
    for (int p = 0; p < graph->n_parameter; p++) {
        const size_t n = (size_t)graph->parameter[p].elements;
        assert_true(out->n + n <= MAX_WEIGHTS);
        memcpy(out->weight + out->n, backend->executor_value(executor, TANDEM_PARAMETER(p), 0, NULL),
               n * sizeof(float));
        out->n += n;
    }
    backend->executor_close(executor);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* The first of these devices that this machine has, or NULL. */
static const char *open_worker(tandem_worker **worker, const tandem_backend_api *backend)
{
    static const char *const device[] = {"cpu:avx512_bf16", "cpu:avx2", "cpu:sse41"};
    for (size_t k = 0; k < sizeof device / sizeof device[0]; k++) {
        const tandem_worker_options alone = {.device = device[k], .n_rank = 1, .cpu = -1};
        if (backend->worker_open(worker, &alone, NULL) == TANDEM_OK) return device[k];
    }
    return NULL;
}

static void fused_and_apart_train_alike(void **state)
{
    static trained fused, apart;
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_worker *worker = NULL;
    const char *const device = open_worker(&worker, backend);
    assert_non_null(device);
    train(&fused, backend, worker, 1, TANDEM_PRECISION_FP32);
    train(&apart, backend, worker, 0, TANDEM_PRECISION_FP32);
    assert_int_equal(fused.n, apart.n);
    assert_memory_equal(fused.loss, apart.loss, sizeof fused.loss);
    assert_memory_equal(fused.weight, apart.weight, fused.n * sizeof(float));
    assert_true(fused.loss[STEPS - 1] != fused.loss[0]);
    if (strcmp(device, "cpu:avx512_bf16") == 0) {
        train(&fused, backend, worker, 1, TANDEM_PRECISION_BF16);
        train(&apart, backend, worker, 0, TANDEM_PRECISION_BF16);
        for (int k = 0; k < STEPS; k++) assert_true(fabs(fused.loss[k] / apart.loss[k] - 1) < 0.02);
    } else {
        print_message("SKIP bf16: this machine lacks cpu:avx512_bf16\n");
    }
    backend->worker_close(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_and_apart_train_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
