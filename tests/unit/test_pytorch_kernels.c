/* folder: allocator */
/* Kernels of PyTorch without fusion: their bytes by hand, conditions, times, and who may ask for them. */
#include "tandem/advanced/allocator.h"
#include "tandem/advanced/predictor.h"
#include "tests/support/tandem_test.h"

static tandem_device device_named(const char *name)
{
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, name, NULL), TANDEM_OK);
    return device;
}

static tandem_cost_key torch_key(const char *signature, tandem_pass pass, const char *precision,
                                 tandem_dtype from, tandem_dtype to)
{
    tandem_cost_key key = {
        .kind = TANDEM_COST_OP, .precision = precision, .pass = pass, .from = from, .to = to};
    (void)snprintf(key.signature, sizeof key.signature, "%s", signature);
    return key;
}

/* n kernels that move `bytes` in all; kernels of the task itself do not count in them. */
typedef struct expected_kernels {
    const char *signature;
    tandem_pass pass;
    tandem_dtype dtype;
    double n, bytes;
} expected_kernels;

static void count_torch_kernels(const expected_kernels *e, const tandem_kernel_style *style)
{
    const tandem_device v100 = device_named("v100");
    const tandem_cost_key key =
        torch_key(e->signature, e->pass, e->dtype == TANDEM_F16 ? "fp16" : "fp32", e->dtype, e->dtype);
    tandem_task_kernels kernels;
    double n = 0, bytes = 0;
    assert_true(tandem_kernels_of(&kernels, &key, style, &v100.gpu_spec));
    for (int i = 0; i < kernels.n; i++) {
        n += kernels.count[i];
        /* of products, what is beside the product */
        if (!kernels.work[i].is_product) bytes += kernels.count[i] * kernels.work[i].bytes;
    }
    if (fabs(n - e->n) > 1e-9 || fabs(bytes - e->bytes) > 1e-9 * (1 + e->bytes))
        fail_msg("%s: %g kernels and %g bytes instead of %g and %g", e->signature, n, bytes, e->n, e->bytes);
}

static void kernels_and_their_bytes_are_counted_by_hand(void **state)
{
    static const tandem_pass FORWARD = TANDEM_PASS_FORWARD, DGRAD = TANDEM_PASS_DGRAD,
                             WGRAD = TANDEM_PASS_WGRAD, UPDATE = TANDEM_PASS_UPDATE;
    static const tandem_kernel_style style = {TANDEM_KERNELS_PYTORCH, "vit_b16", 0};
    /* 2 images of 8 x 8 x 4 channels, 16 channels out: 512 and 2048 elements, 576 weights */
    static const char conv[] = "conv2d n=2 h=8 w=8 c=4 -> c=16 k=3x3 s=1 p=1";
    const expected_kernels all[] = {
        {"linear m=4 k=8 n=2", FORWARD, TANDEM_F32, 1, 0},
        {"linear m=4 k=8 n=2", WGRAD, TANDEM_F16, 2, 4 * 16},
        {"linear m=4 k=8 n=2 accumulate=1", DGRAD, TANDEM_F32, 2, 3 * 4 * 32},
        {conv, FORWARD, TANDEM_F32, 1, 0},
        {conv, FORWARD, TANDEM_F16, 3, 2 * 2 * (512 + 2048)},
        {conv, DGRAD, TANDEM_F16, 3, 2 * 2 * (512 + 2048)},
        {conv, WGRAD, TANDEM_F16, 4, 2 * 2 * (512 + 2048) + 4 * 576},
        {"bias n=100 period=10", FORWARD, TANDEM_F32, 0, 0},
        {"bias n=100 period=10 of=20", FORWARD, TANDEM_F32, 1, 800},
        {"bias n=100 period=10", WGRAD, TANDEM_F32, 1, 400},
        {"bias_gelu n=100 period=10", FORWARD, TANDEM_F32, 1, 800},
        {"bias_gelu n=100 period=10", DGRAD, TANDEM_F32, 2, 1600},
        {"batchnorm_add_relu rows=10 n=10", FORWARD, TANDEM_F16, 3, 8 * 200},
        {"batchnorm_add_relu rows=10 n=10", DGRAD, TANDEM_F16, 2, 8 * 200},
        {"batchnorm_relu rows=10 n=10", FORWARD, TANDEM_F32, 2, 5 * 400},
        {"softmax rows=10 n=10 causal=0", FORWARD, TANDEM_F32, 2, 4 * 400},
        {"softmax rows=10 n=10 causal=1", FORWARD, TANDEM_F32, 3, 6 * 400},
        {"softmax rows=10 n=10 causal=0", DGRAD, TANDEM_F32, 3, 8 * 400},
        {"layernorm rows=10 n=10", DGRAD, TANDEM_F32, 2, 5 * 400},
        {"dropout n=100", FORWARD, TANDEM_F16, 1, 500},
        {"maxpool n=1 h=4 w=4 c=1 k=2x2 s=2 p=0", FORWARD, TANDEM_F32, 1, 4 * (16 + 4) + 8 * 4},
        {"cross_entropy rows=10 n=10", DGRAD, TANDEM_F32, 2, 4 * 400},
        {"sgd n=100 parameters=5", UPDATE, TANDEM_F32, 4, 11 * 400},
        {"adamw n=100 parameters=5", UPDATE, TANDEM_F32, 8, 20 * 400},
        /* not in the table: one kernel, as tandem's */
        {"transpose 4x5x5 axes=021", FORWARD, TANDEM_F32, 1, 800}};
    for (size_t i = 0; i < N_OF(all); i++) count_torch_kernels(&all[i], &style);
}

static void a_model_s_writing_decides(void **state)
{
    static const tandem_pass FORWARD = TANDEM_PASS_FORWARD, DGRAD = TANDEM_PASS_DGRAD;
    static const tandem_kernel_style gpt = {TANDEM_KERNELS_PYTORCH, "gpt2_small:layers=1", 0},
                                     bert = {TANDEM_KERNELS_PYTORCH, "bert_base", 0},
                                     last = {TANDEM_KERNELS_PYTORCH_NHWC, "resnet50", 0},
                                     kept = {TANDEM_KERNELS_PYTORCH, "resnet50", 1};
    static const char conv[] = "conv2d n=2 h=8 w=8 c=4 -> c=16 k=3x3 s=1 p=1";
    count_torch_kernels(&(expected_kernels){"bias_gelu n=100 period=10", FORWARD, TANDEM_F32, 8, 18 * 400},
                        &gpt);
    count_torch_kernels(&(expected_kernels){"bias_gelu n=100 period=10", DGRAD, TANDEM_F32, 12, 29 * 400},
                        &gpt);
    count_torch_kernels(&(expected_kernels){"bias_gelu n=100 period=10", FORWARD, TANDEM_F32, 1, 800}, &bert);
    count_torch_kernels(&(expected_kernels){"softmax rows=10 n=10 causal=0", FORWARD, TANDEM_F32, 3, 6 * 400},
                        &bert);
    count_torch_kernels(&(expected_kernels){conv, FORWARD, TANDEM_F16, 1, 0}, &last);
    count_torch_kernels(
        &(expected_kernels){"adamw n=100 parameters=5", TANDEM_PASS_UPDATE, TANDEM_F32, 5, 3 * 400}, &kept);
}

/* A task takes the sum of its kernels; the longest one decides its interval. */
static void a_task_takes_the_sum_of_its_kernels(void **state)
{
    const tandem_device v100 = device_named("v100");
    const tandem_kernel_style first = {TANDEM_KERNELS_PYTORCH, "resnet50", 0},
                              last = {TANDEM_KERNELS_PYTORCH_NHWC, "resnet50", 0};
    const tandem_cost_key conv = torch_key("conv2d n=128 h=56 w=56 c=64 -> c=64 k=1x1 s=1 p=0",
                                           TANDEM_PASS_FORWARD, "fp16", TANDEM_F16, TANDEM_F16);
    tandem_latency *latency = NULL;
    tandem_task_kernels kernels;
    int group = -1;
    assert_int_equal(tandem_latency_open_described(&latency, &v100, "", NULL, NULL), TANDEM_OK);
    assert_true(tandem_kernels_of(&kernels, &conv, &first, &v100.gpu_spec));
    double sum = 0;
    for (int i = 0; i < kernels.n; i++) sum += tandem_described_ns(&v100, &kernels.work[i]);
    assert_true(fabs((double)tandem_latency_of_kernels(latency, &conv, &first, &group) / sum - 1) < 1e-3);
    const int64_t alone = tandem_latency_of_kernels(latency, &conv, &last, &group);
    assert_int_equal(alone, tandem_latency_ns(latency, &conv, NULL));
    assert_int_equal(group, TANDEM_SPREAD_CONV_16);
    assert_true((double)alone < 0.6 * sum);
    tandem_latency_close(latency);
}

static tandem_status open_torch_replayer(tandem_replayer **replayer, const char *device,
                                         const tandem_replayer_options *options, tandem_error *error)
{
    tandem_cluster cluster = {.n_class = 1};
    tandem_graph *graph = NULL;
    cluster.classes[0] = (tandem_cluster_class){.n_rank = 1, .batch = 8, .device = device_named(device)};
    assert_int_equal(tandem_graph_open(&graph, "mlp", 8, NULL), TANDEM_OK);
    const tandem_graph *const graphs[] = {graph};
    const tandem_status status = tandem_replayer_open_with(replayer, &cluster, graphs, NULL, options, error);
    if (status == TANDEM_OK) {
        tandem_replay result;
        tandem_provenance provenance;
        assert_int_equal(tandem_replayer_run(*replayer, &result, 0, error), TANDEM_OK);
        tandem_replayer_provenance(*replayer, 0, &provenance);
        assert_int_equal(provenance.kernels, options->kernels);
        assert_int_equal(provenance.without_update, options->without_update);
        tandem_replayer_close(*replayer);
    }
    tandem_graph_close(graph);
    return status;
}

static void kernels_need_a_description(void **state)
{
    tandem_replayer *replayer = NULL;
    tandem_error error = {0};
    tandem_replayer_options options = {.predict = 1, .kernels = TANDEM_KERNELS_PYTORCH, .without_update = 1};
    require_ok(open_torch_replayer(&replayer, "v100", &options, &error), &error);
    assert_int_equal(open_torch_replayer(&replayer, "cpu:avx2", &options, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "cpu:avx2 runs tandem's kernels"));
    options.predict = 0;
    assert_int_equal(open_torch_replayer(&replayer, "v100", &options, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "--predict"));
    options = (tandem_replayer_options){.predict = 1, .without_update = 1};
    assert_int_equal(open_torch_replayer(&replayer, "v100", &options, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "--kernels pytorch"));
}

static void every_kernel_set_has_a_name(void **state)
{
    tandem_error error = {0};
    tandem_kernel_set found = TANDEM_N_KERNEL_SET;
    for (int i = 0; i < TANDEM_N_KERNEL_SET; i++) {
        const char *const name = tandem_kernel_set_name((tandem_kernel_set)i);
        require_ok(tandem_kernel_set_find(&found, name, &error), &error);
        assert_int_equal(found, i);
    }
    assert_int_equal(tandem_kernel_set_find(&found, "pytorhc", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "pytorch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_and_their_bytes_are_counted_by_hand),
        cmocka_unit_test(a_model_s_writing_decides),
        cmocka_unit_test(a_task_takes_the_sum_of_its_kernels),
        cmocka_unit_test(kernels_need_a_description),
        cmocka_unit_test(every_kernel_set_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
