/* test_recording.c: captured modules in files (graph/recording), against the same calls in memory.
 * folder: profiles */
#include "graph/recording/recording.h"
#include "tandem/record.h"
#include "tests/support/tandem_test.h"

#include <unistd.h>

static const char saved[] =
    "{\"schema\": \"tandem.recording/1\", \"model\": \"Net\", \"batch\": 2, \"calls\": ["
    "{\"name\": \"fc\", \"kind\": \"linear\", \"text\": \"\", \"input\": [2, 64], \"second\": [],"
    " \"shape\": [2, 10], \"kernel\": 0, \"stride\": 0, \"pad\": 0, \"transpose_b\": 0,"
    " \"weight\": \"fc.weight\", \"parameters\": [\"fc.weight\"], \"elements\": 640, \"operator\": \"fc\"},"
    "{\"name\": \"a name (of PyTorch)\", \"kind\": \"call\", \"text\": \"bias\", \"input\": [],"
    " \"second\": [], \"shape\": [2, 10], \"kernel\": 0, \"stride\": 0, \"pad\": 0, \"transpose_b\": 0,"
    " \"weight\": null, \"parameters\": [\"fc.bias\"], \"elements\": 10, \"operator\": \"fc.bias\"}],"
    "\"parameters\": {\"fc.weight\": [10, 64], \"fc.bias\": [10]}, \"n_prediction\": 1, \"n_class\": 10,"
    "\"optimizer\": {\"kind\": \"adamw\", \"rate\": 0.5}, \"torch_version\": \"1.13.1\"}";

static const tandem_recorded_call calls[] = {
    {.kind = TANDEM_OP_LINEAR, .name = "fc", .input = {2, {2, 64}}, .shape = {2, {2, 10}}},
    {.kind = TANDEM_OP_CALL,
     .name = "fc.bias",
     .text = "bias",
     .shape = {2, {2, 10}},
     .parameter_elements = 10}};

static void a_file_is_the_graph_of_its_calls(void **state)
{
    tandem_graph *read = NULL, *recorded = NULL;
    tandem_error error = {0};
    const tandem_recorded_graph recording = {.model = "Net",
                                             .batch = 2,
                                             .n_call = N_OF(calls),
                                             .call = calls,
                                             .n_prediction = 1,
                                             .n_class = 10,
                                             .optimizer = {.kind = TANDEM_ADAMW}};
    require_ok(tandem_graph_record(&recorded, &recording, &error), &error);
    require_ok(tandem_recorded_parse(&read, saved, strlen(saved), "dir/own.json", 2, &error), &error);
    assert_string_equal(read->model, "dir/own.json");
    assert_true(read->hash == recorded->hash && read->is_recorded);
    assert_int_equal(read->n_op, recorded->n_op);
    for (int i = 0; i < read->n_op; i++)
        assert_string_equal(read->op[i].signature, recorded->op[i].signature);
    assert_int_equal(tandem_graph_n_weight(read), 650);
    assert_int_equal(read->optimizer.kind, TANDEM_ADAMW);
    assert_true(read->optimizer.rate == 0.5f && read->optimizer.beta2 == 0.999f);
    tandem_graph_close(read);
    tandem_graph_close(recorded);
}

/* The text with `from` replaced once by `to`, at `batch`. */
static void assert_edit_refused(const char *from, const char *to, int64_t batch, tandem_status expected,
                                const char *says)
{
    char text[4096];
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const char *const at = strstr(saved, from);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - saved), saved, to, at + strlen(from));
    assert_int_equal(tandem_recorded_parse(&graph, text, strlen(text), "own.json", batch, &error), expected);
    assert_null(graph);
    if (!strstr(error.text, says) || !strstr(error.text, "own.json"))
        fail_msg("'%s' does not say '%s'", error.text, says);
}

static void what_is_wrong_is_named(void **state)
{
    assert_edit_refused("tandem.recording/1", "tandem.plan/1", 2, TANDEM_WRONG_FORMAT,
                        "is no captured model");
    assert_edit_refused("", "", 4, TANDEM_USAGE, "captured with batch 2, and batch 4 was asked for");
    assert_edit_refused("[2, 64]", "[2, 64, 1, 1, 1]", 2, TANDEM_MALFORMED, "calls[0].input: must be");
    assert_edit_refused("[2, 64]", "[2, 0]", 2, TANDEM_MALFORMED, "calls[0].input: must hold");
    assert_edit_refused("\"call\"", "\"relu\"", 2, TANDEM_MALFORMED, "calls[1].kind: must be linear");
    assert_edit_refused("\"calls\"", "\"cals\"", 2, TANDEM_MALFORMED, "Did you mean 'calls'?");
    assert_edit_refused("\"adamw\"", "\"adam\"", 2, TANDEM_MALFORMED, "optimizer.kind: must be sgd or adamw");
    assert_edit_refused("\"operator\": \"fc.bias\"", "\"operator\": \"fc\"", 2, TANDEM_WRONG_GRAPH, "unique");
    assert_edit_refused("\"shape\": [2, 10]", "\"shape\": [2, 1099511627776]", 2, TANDEM_WRONG_GRAPH, "2^44");
    assert_edit_refused("]}", "", 2, TANDEM_MALFORMED, "not JSON");
}

/* `saved` with what a step allocates: y of `fc`, 40 bytes a sample, which is read until event 2. */
static const char
    growth[] = ", \"growth\": [[1, 0], [], [1, 0], []]",
    memory[] = ", \"memory\": {\"batch\": 2, \"other_batch\": 1, \"n_event\": 4, \"backward\": 2,"
               " \"weights\": 2600, \"trained\": 2600, \"largest\": 2560,"
               " \"keeps_gradients\": true, \"has_fast_bf16\": false, \"products\": [[0, 0, 1, 2, 3, 0]],"
               " \"blocks\": [[80, 40.0, 0, 3, 1, 0, [[0, 2, 0]]]]},"
               " \"memory_unknown\": \"\"}";

/* The bias's result has 20 elements at each batch, which are rows of some batches. */
static const char fixed[] = ", \"growth\": [[], [], [0], []]";

static char *with_memory(const char *of_memory)
{
    static char text[4096];
    const char *const first = strstr(saved, "},{") ? strstr(saved, "},{") : strstr(saved, "}, {"),
                      *const second = strstr(saved, "}],");
    assert_true(first && second && first < second);
    (void)snprintf(text, sizeof text, "%.*s%s%.*s%s%.*s%s", (int)(first - saved), saved, growth,
                   (int)(second - first), first, fixed, (int)(strlen(second) - 1), second, of_memory);
    return text;
}

static void a_file_with_memory_has_every_batch(void **state)
{
    const char *const text = with_memory(memory);
    for (int64_t batch = 1; batch <= 5; batch++) {
        tandem_graph *graph = NULL;
        tandem_error error = {0};
        require_ok(tandem_recorded_parse(&graph, text, strlen(text), "own.json", batch, &error), &error);
        int fc = -1;
        require_ok(tandem_graph_find(&fc, graph, "fc", &error), &error);
        assert_true(graph->batch == batch && graph->op[fc].shape.dim[0] == batch);
        int bias = -1;
        require_ok(tandem_graph_find(&bias, graph, "fc.bias", &error), &error);
        assert_int_equal(graph->op[bias].shape.dim[0], 20 % batch ? 1 : batch);
        assert_int_equal(tandem_shape_elements(&graph->op[bias].shape), 20);
        assert_non_null(graph->memory);
        assert_int_equal(graph->memory->block[0].bytes, 40 * batch);
        assert_int_equal(graph->memory->product[0].call, fc);
        assert_int_equal(graph->memory->weight_bytes, 2600);
        tandem_graph_close(graph);
    }
}

static void assert_memory_refused(const char *from, const char *to, tandem_status expected, const char *says)
{
    char changed[2048];
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const char *const at = strstr(memory, from);
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - memory), memory, to, at + strlen(from));
    const char *const text = with_memory(changed);
    const tandem_status status = tandem_recorded_parse(&graph, text, strlen(text), "own.json", 2, &error);
    if (status != expected || !strstr(error.text, says))
        fail_msg("%s: %d, '%s' does not say '%s'", to, status, error.text, says);
    assert_null(graph);
}

static void wrong_memory_is_named(void **state)
{
    assert_memory_refused("[[0, 2, 0]]", "[[0, 2, 3]]", TANDEM_MALFORMED, "memory.blocks: has a wrong row 0");
    assert_memory_refused("[[0, 2, 0]]", "7", TANDEM_MALFORMED, "memory.blocks: has a wrong row 0");
    assert_memory_refused("80, 40.0, 0, 3", "80, \"x\", 0, 3", TANDEM_MALFORMED, "wrong row 0");
    assert_memory_refused("[0, 0, 1, 2, 3, 0]", "[0, 0, 1, 2]", TANDEM_MALFORMED,
                          "memory.products: has a wrong");
    assert_memory_refused("\"n_event\": 4", "\"n_event\": -4", TANDEM_MALFORMED, "memory.n_event");
    assert_memory_refused("\"weights\"", "\"weight\"", TANDEM_MALFORMED, "Did you mean 'weights'?");
    assert_memory_refused("80, 40.0, 0, 3", "80, 40.0, 3, 3", TANDEM_WRONG_GRAPH, "is not released after");
    assert_memory_refused("80, 40.0, 0, 3", "80, 40.0, 0, 9", TANDEM_WRONG_GRAPH, "is not released after");
    assert_memory_refused("80, 40.0, 0, 3", "-80, 40.0, 0, 3", TANDEM_WRONG_GRAPH, "impossible size");
    assert_memory_refused("0, [[0, 2, 0]]", "0, [[1, 2, 0]]", TANDEM_WRONG_GRAPH, "reader 0");
    assert_memory_refused("[0, 0, 1, 2, 3, 0]", "[9, 0, 1, 2, 3, 0]", TANDEM_WRONG_GRAPH, "product 0");
    assert_memory_refused("[0, 0, 1, 2, 3, 0]", "[0, 0, 1, 2, 9, 0]", TANDEM_WRONG_GRAPH, "product 0");
    assert_memory_refused("]]]}", "]]], \"channels_last\": {}}", TANDEM_MALFORMED, "memory.channels_last");
    assert_memory_refused(" \"keeps_gradients\": true,", "", TANDEM_MALFORMED,
                          "memory.keeps_gradients: must be");
    assert_memory_refused("\"largest\": 2560", "\"largest\": 2700", TANDEM_WRONG_GRAPH, "impossible weights");
}

static void a_path_names_it(void **state)
{
    char path[] = "/tmp/tandem-own-XXXXXX.json", with_option[64];
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const int file = mkstemps(path, 5);
    assert_true(file >= 0);
    assert_int_equal(write(file, saved, strlen(saved)), strlen(saved));
    (void)close(file);
    assert_int_equal(tandem_recorded_batch(path), 2);
    require_ok(tandem_graph_open(&graph, path, 2, &error), &error);
    tandem_graph_close(graph);
    graph = NULL;
    (void)snprintf(with_option, sizeof with_option, "%s:seq=3", path);
    assert_int_equal(tandem_graph_open(&graph, with_option, 2, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "without options"));
    (void)unlink(path);
    assert_int_equal(tandem_graph_open(&graph, path, 2, &error), TANDEM_IO);
    assert_int_equal(tandem_recorded_batch(path), 0);
    assert_int_equal(tandem_recorded_batch("mlp"), 0);
    assert_null(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_the_graph_of_its_calls), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_file_with_memory_has_every_batch), cmocka_unit_test(wrong_memory_is_named),
        cmocka_unit_test(a_path_names_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
