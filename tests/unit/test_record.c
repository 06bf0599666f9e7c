/* test_record.c: graphs and costs that another framework recorded (record.h).
 * folder: replayer */
#include "tests/support/tandem_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tandem/advanced/replayer.h"
#include "tandem/record_costs.h"

/* Images (2, 4, 4, 3) through a convolution, a norm, a product of two activations, and a linear layer of
 * which the bias is a row of its own. */
static const tandem_recorded_call calls[] = {
    {.kind = TANDEM_OP_CONV2D,
     .name = "conv",
     .input = {4, {2, 4, 4, 3}},
     .shape = {4, {2, 4, 4, 8}},
     .kernel = 3,
     .stride = 1,
     .pad = 1},
    {.kind = TANDEM_OP_CALL,
     .name = "norm",
     .text = "batch_norm(2x8x4x4)",
     .shape = {2, {2, 128}},
     .parameter_elements = 16},
    {.kind = TANDEM_OP_MATMUL,
     .name = "product",
     .input = {3, {2, 8, 16}},
     .second = {3, {2, 8, 16}},
     .shape = {3, {2, 8, 8}},
     .transpose_b = 1},
    {.kind = TANDEM_OP_LINEAR, .name = "fc", .input = {2, {2, 64}}, .shape = {2, {2, 10}}},
    {.kind = TANDEM_OP_CALL,
     .name = "fc.bias",
     .text = "bias",
     .shape = {2, {2, 10}},
     .parameter_elements = 10}};
enum { N_CALL = (int)(sizeof calls / sizeof *calls) };

static tandem_recorded_graph recording_of(const tandem_recorded_call *call, int n)
{
    return (tandem_recorded_graph){.model = "Net",
                                   .batch = 2,
                                   .n_call = n,
                                   .call = call,
                                   .n_prediction = 1,
                                   .n_class = 10,
                                   .optimizer = {.kind = TANDEM_SGD, .rate = 0.1f}};
}

static tandem_graph *recorded_graph(void)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const tandem_recorded_graph recording = recording_of(calls, N_CALL);
    if (tandem_graph_record(&graph, &recording, &error) != TANDEM_OK) fail_msg("%s", error.text);
    return graph;
}

static int op_of_record(const tandem_graph *graph, const char *name)
{
    int op = -1;
    assert_int_equal(tandem_graph_find(&op, graph, name, NULL), TANDEM_OK);
    return op;
}

static void a_recording_becomes_a_graph_of_its_names(void **state)
{
    tandem_graph *graph = recorded_graph();
    assert_string_equal(graph->op[op_of_record(graph, "conv")].signature,
                        "conv2d n=2 h=4 w=4 c=3 -> c=8 k=3x3 s=1 p=1");
    assert_string_equal(graph->op[op_of_record(graph, "norm")].signature,
                        "call_trained batch_norm(2x8x4x4) n=256");
    assert_string_equal(graph->op[op_of_record(graph, "product")].signature,
                        "matmul batch=2 m=8 k=16 n=8 tb=1");
    assert_string_equal(graph->op[op_of_record(graph, "fc")].signature, "linear m=2 k=64 n=10");
    assert_int_equal(tandem_graph_n_weight(graph), 9 * 3 * 8 + 16 + 64 * 10 + 10);
    for (int i = 0; i < graph->n_op; i++)
        assert_int_equal(tandem_op_is_adjustable(&graph->op[i]), !strcmp(graph->op[i].name, "conv") ||
                                                                     !strcmp(graph->op[i].name, "product") ||
                                                                     !strcmp(graph->op[i].name, "fc"));
    tandem_graph_close(graph);
}

static void the_hash_is_that_of_the_module(void **state)
{
    tandem_graph *one = recorded_graph(), *other = NULL;
    tandem_recorded_graph recording = recording_of(calls, N_CALL);
    recording.optimizer = (tandem_optimizer_options){.kind = TANDEM_ADAMW, .rate = 0.5f};
    assert_int_equal(tandem_graph_record(&other, &recording, NULL), TANDEM_OK);
    assert_true(one->hash == other->hash);
    assert_int_equal(other->optimizer.kind, TANDEM_ADAMW);
    tandem_graph_close(other);
    tandem_recorded_call larger[N_CALL]; /* twice the batch */
    memcpy(larger, calls, sizeof larger);
    for (int i = 0; i < N_CALL; i++)
        larger[i].input.dim[0] *= 2, larger[i].second.dim[0] *= 2, larger[i].shape.dim[0] *= 2;
    recording = recording_of(larger, N_CALL);
    recording.batch = 4;
    assert_int_equal(tandem_graph_record(&other, &recording, NULL), TANDEM_OK);
    assert_true(one->hash == other->hash);
    tandem_graph_close(other);
    memcpy(larger, calls, sizeof larger);
    larger[3].shape.dim[1] = larger[4].shape.dim[1] = 11; /* another module */
    recording = recording_of(larger, N_CALL);
    assert_int_equal(tandem_graph_record(&other, &recording, NULL), TANDEM_OK);
    assert_true(one->hash != other->hash);
    tandem_graph_close(other);
    tandem_graph_close(one);
}

static void assert_refused(const tandem_recorded_call *call, int n, tandem_status expected, const char *text)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const tandem_recorded_graph recording = recording_of(call, n);
    assert_int_equal(tandem_graph_record(&graph, &recording, &error), expected);
    assert_null(graph);
    if (!strstr(error.text, text)) fail_msg("'%s' does not say '%s'", error.text, text);
}

static void wrong_recordings_are_refused_by_name(void **state)
{
    tandem_recorded_call wrong[N_CALL];
    assert_refused(calls, 0, TANDEM_USAGE, "0 calls");
    memcpy(wrong, calls, sizeof wrong);
    wrong[0].shape.dim[1] = 5;
    assert_refused(wrong, N_CALL, TANDEM_WRONG_GRAPH,
                   "operator 'conv' (conv2d): its result was recorded as 2x5x4x8");
    memcpy(wrong, calls, sizeof wrong);
    wrong[1].text = "two words";
    assert_refused(wrong, N_CALL, TANDEM_WRONG_GRAPH,
                   "operator 'norm' (call_trained): its text is 'two words'");
    memcpy(wrong, calls, sizeof wrong);
    wrong[4].name = "fc";
    assert_refused(wrong, N_CALL, TANDEM_WRONG_GRAPH, "the name is taken");
    memcpy(wrong, calls, sizeof wrong);
    wrong[3].kind = TANDEM_OP_RELU;
    assert_refused(wrong, N_CALL, TANDEM_USAGE, "call 'fc' has kind");
    memcpy(wrong, calls, sizeof wrong);
    wrong[2].second.n_dim = 5;
    assert_refused(wrong, N_CALL, TANDEM_WRONG_GRAPH, "call 'product' reads a tensor of 5 dimensions");
    memcpy(wrong, calls, sizeof wrong);
    wrong[1].shape.dim[0] = -1;
    assert_refused(wrong, N_CALL, TANDEM_WRONG_GRAPH, "operator 'norm'");
}

/* --- Costs ----------------------------------------------------------------------------------------------
 * */

typedef struct recorded_store {
    char path[64];
    tandem_graph *graph;
} recorded_store;

static recorded_store store_of_record(void)
{
    recorded_store s = {.path = "/tmp/test_record.XXXXXX", .graph = recorded_graph()};
    const int file = mkstemp(s.path);
    assert_true(file >= 0);
    close(file);
    unlink(s.path);
    return s;
}

static void close_store_of_record(recorded_store *s)
{
    unlink(s->path);
    tandem_graph_close(s->graph);
}

static tandem_status put_record(const recorded_store *s, const char *device, int64_t fc_int8_ns,
                                tandem_error *error)
{
    static const int64_t forward[N_CALL] = {1000, 200, 300, 400, 0},
                         backward[N_CALL] = {2000, 500, 700, 900, 0};
    const int64_t update = 800, zero = 0;
    tandem_recorded_cost cost[N_CALL + 1];
    for (int i = 0; i < N_CALL; i++)
        cost[i] = (tandem_recorded_cost){.op = op_of_record(s->graph, calls[i].name),
                                         .n = 1,
                                         .forward_ns = &forward[i],
                                         .backward_ns = &backward[i]};
    cost[N_CALL] = cost[3];
    cost[N_CALL].precision = TANDEM_PRECISION_INT8_FULL;
    cost[N_CALL].forward_ns = &fc_int8_ns;
    cost[N_CALL].backward_ns = &zero;
    const tandem_recorded_costs costs = {.device = device,
                                         .libraries = "test",
                                         .n_thread = 1,
                                         .n_cost = N_CALL + 1,
                                         .cost = cost,
                                         .n_update = 1,
                                         .update_ns = &update};
    return tandem_record_costs(s->path, s->graph, &costs, error);
}

static int64_t replay_record(const recorded_store *s, const char *text, tandem_precision fc,
                             tandem_error *error)
{
    tandem_cluster cluster;
    tandem_store *store = NULL;
    tandem_replayer *replayer = NULL;
    tandem_replay replay = {.step_ns = -1};
    const tandem_replayer_options options = {.step = {.with_norm = 1, .ddp_buckets = 1}};
    assert_int_equal(tandem_cluster_parse(&cluster, text, error), TANDEM_OK);
    assert_int_equal(tandem_cluster_fill_defaults(&cluster, 2, NULL, error), TANDEM_OK);
    cluster.over_network = 1;
    assert_int_equal(tandem_store_open(&store, s->path, TANDEM_STORE_READ, error), TANDEM_OK);
    const tandem_graph *graph[2] = {s->graph, s->graph};
    if (tandem_replayer_open_with(&replayer, &cluster, graph, store, &options, error) != TANDEM_OK)
        fail_msg("%s", error->text);
    tandem_replayer_set(replayer, 0, op_of_record(s->graph, "fc"), fc);
    (void)tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_MEMORY, error);
    tandem_replayer_close(replayer);
    tandem_store_close(store);
    return replay.step_ns;
}

static void a_replay_takes_as_long_as_the_recorded_calls(void **state)
{
    recorded_store s = store_of_record();
    tandem_error error = {0};
    if (put_record(&s, "torch:one", 100, &error) != TANDEM_OK) fail_msg("%s", error.text);
    const int64_t all_ns = 1000 + 200 + 300 + 400 + 2000 + 500 + 700 + 900 + 800;
    assert_int_equal(replay_record(&s, "torch:one", TANDEM_PRECISION_FP32, &error), all_ns);
    assert_int_equal(replay_record(&s, "torch:one", TANDEM_PRECISION_INT8_FULL, &error),
                     all_ns - 400 - 900 + 100);
    /* a precision that was not recorded is missing, by its name */
    assert_int_equal(replay_record(&s, "torch:one", TANDEM_PRECISION_BF16, &error), -1);
    assert_int_equal(error.status, TANDEM_MISSING);
    assert_non_null(strstr(error.text, "fc"));
    close_store_of_record(&s);
}

static void an_all_reduce_delays_the_step(void **state)
{
    recorded_store s = store_of_record();
    tandem_error error = {0};
    tandem_cluster cluster;
    const int64_t long_ns = 5000000;
    assert_int_equal(put_record(&s, "torch:one", 100, &error), TANDEM_OK);
    assert_int_equal(put_record(&s, "torch:two", 100, &error), TANDEM_OK);
    assert_int_equal(tandem_cluster_parse(&cluster, "torch:one + torch:two", &error), TANDEM_OK);
    cluster.over_network = 1;
    if (tandem_record_all_reduce(s.path, &cluster, 4096, &long_ns, &long_ns, 1, 1, &error) != TANDEM_OK)
        fail_msg("%s", error.text);
    assert_true(replay_record(&s, "torch:one + torch:two", TANDEM_PRECISION_FP32, &error) > long_ns);
    assert_int_equal(tandem_record_all_reduce(s.path, &cluster, 4096, &long_ns, &long_ns, 1, 0.5, &error),
                     TANDEM_USAGE);
    close_store_of_record(&s);
}

static void wrong_costs_leave_no_store(void **state)
{
    recorded_store s = store_of_record();
    tandem_error error = {0};
    static const char *const device[] = {"cpu:avx2", "torch:", "torch:Upper", "torch:a b", ""};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) {
        assert_int_equal(put_record(&s, device[i], 100, &error), TANDEM_USAGE);
        assert_non_null(strstr(error.text, "torch:NAME"));
    }
    assert_int_equal(put_record(&s, "torch:one", -1, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "'fc' took -1 ns"));
    assert_int_equal(access(s.path, F_OK), -1);
    close_store_of_record(&s);
}

static void a_recorded_device_has_no_kernels(void **state)
{
    tandem_error error = {0};
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, "torch:any.name-1", &error), TANDEM_OK);
    assert_string_equal(device.name, "torch:any.name-1");
    assert_int_equal(tandem_device_require("torch:x", &error), TANDEM_NO_DEVICE);
    assert_non_null(strstr(error.text, "PyTorch"));
    assert_int_equal(tandem_device_is_present("torch:x"), 0);
}

static void ddp_closes_buckets_when_they_are_full(void **state)
{
    static const int64_t elements[] = {100 << 10, 200 << 10, 3 << 20, 100, 5 << 20, 100};
    enum { N = (int)(sizeof elements / sizeof *elements) };
    tandem_recorded_call call[N + 1] = {
        {.kind = TANDEM_OP_LINEAR, .name = "first", .input = {2, {2, 1}}, .shape = {2, {2, 10}}}};
    static const char *const name[N] = {"a", "b", "c", "d", "e", "f"};
    for (int i = 0; i < N; i++) /* gradients are ready in the order of `elements` */
        call[N - i] = (tandem_recorded_call){.kind = TANDEM_OP_CALL,
                                             .name = name[i],
                                             .text = "x",
                                             .shape = {2, {2, 5}},
                                             .parameter_elements = elements[i]};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_error error = {0};
    const tandem_recorded_graph recording = recording_of(call, N + 1);
    const tandem_step_options options = {.ddp_buckets = 1};
    assert_int_equal(tandem_graph_record(&graph, &recording, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 8 << 20, &options, &error), TANDEM_OK);
    /* 0.4 + 0.8 MiB reach 1 MiB; 12 MiB reach 8; 400 B + 20 MiB reach 8; the rest */
    const int n_parameter[] = {2, 1, 2, 2};
    assert_int_equal(step->n_bucket, 4);
    for (int b = 0; b < 4; b++) assert_int_equal(step->bucket[b].n_parameter, n_parameter[b]);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_becomes_a_graph_of_its_names),
        cmocka_unit_test(the_hash_is_that_of_the_module),
        cmocka_unit_test(wrong_recordings_are_refused_by_name),
        cmocka_unit_test(a_replay_takes_as_long_as_the_recorded_calls),
        cmocka_unit_test(an_all_reduce_delays_the_step),
        cmocka_unit_test(wrong_costs_leave_no_store),
        cmocka_unit_test(a_recorded_device_has_no_kernels),
        cmocka_unit_test(ddp_closes_buckets_when_they_are_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
