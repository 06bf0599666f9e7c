/* folder: profiles */
/* Captured modules in JSON from any bytes: an error, or a graph whose operators add up. */
#include "graph/recording/recording.h"
#include "tandem/advanced/step.h"
#include "tandem/record.h"
#include "tests/fuzz/fuzz_main.h"

/* A module with each kind of call. */
static const char seed[] =
    "{\"schema\": \"tandem.recording/1\", \"model\": \"Net\", \"batch\": 2, \"calls\": [\n"
    "{\"name\": \"conv\", \"kind\": \"conv2d\", \"text\": \"\", \"input\": [2, 8, 8, 3], \"second\": [],"
    " \"shape\": [2, 8, 8, 4], \"kernel\": 3, \"stride\": 1, \"pad\": 1, \"transpose_b\": 0,"
    " \"weight\": \"conv.weight\", \"parameters\": [], \"elements\": 108, \"operator\": \"conv\"},\n"
    "{\"name\": \"norm\", \"kind\": \"call\", \"text\": \"batch_norm(2x4x8x8)\", \"input\": [],"
    " \"second\": [], \"shape\": [2, 256], \"kernel\": 0, \"stride\": 0, \"pad\": 0, \"transpose_b\": 0,"
    " \"weight\": null, \"parameters\": [], \"elements\": 8, \"operator\": \"norm\"},\n"
    "{\"name\": \"qk\", \"kind\": \"matmul\", \"text\": \"\", \"input\": [2, 8, 16], \"second\": [2, 8, 16],"
    " \"shape\": [2, 8, 8], \"kernel\": 0, \"stride\": 0, \"pad\": 0, \"transpose_b\": 1,"
    " \"weight\": null, \"parameters\": [], \"elements\": 0, \"operator\": \"scores\"},\n"
    "{\"name\": \"fc\", \"kind\": \"linear\", \"text\": \"\", \"input\": [2, 64], \"second\": [],"
    " \"shape\": [2, 10], \"kernel\": 0, \"stride\": 0, \"pad\": 0, \"transpose_b\": 0,"
    " \"weight\": \"fc.weight\", \"parameters\": [], \"elements\": 640, \"operator\": \"fc\"}],\n"
    "\"memory\": {\"batch\": 2, \"other_batch\": 1, \"n_event\": 6, \"backward\": 3, \"weights\": 900,"
    " \"trained\": 900, \"largest\": 640, \"keeps_gradients\": false, \"has_fast_bf16\": true,"
    " \"products\": [[0, 0, 1, 4, 5, 3], [2, 1, 2, 3, 4, 0]],"
    " \"blocks\": [[64, 32.0, 0, 5, 1, 0, [[0, 4, 0], [1, 3, 1]]], [32, 16, 2, 6, -1, 1, []]]},\n"
    "\"parameters\": {}, \"n_prediction\": 1, \"n_class\": 10,"
    " \"optimizer\": {\"kind\": \"sgd\", \"rate\": 0.1, \"momentum\": 0.9}, \"torch_version\": \"1\"}";

static void check_recorded_graph(const tandem_graph *graph)
{
    int64_t weights = 0;
    must(graph->is_recorded && graph->batch == 2 && strcmp(graph->model, "fuzz.json") == 0);
    for (int i = 0; i < graph->n_op; i++) {
        must(tandem_shape_elements(&graph->op[i].shape) > 0);
        for (int k = 0; k < TANDEM_MAX_INPUT; k++) must(graph->op[i].input[k] < i);
    }
    for (int p = 0; p < graph->n_parameter; p++) weights += graph->parameter[p].elements;
    must(weights == tandem_graph_n_weight(graph) && weights >= 0);
    if (!graph->memory) return;
    tandem_memory memory;
    const tandem_status status = tandem_memory_of_graph(&memory, graph, NULL, NULL, NULL);
    must(status == TANDEM_NO_MEMORY || (status == TANDEM_OK && memory.peak >= memory.weights));
}

static void check_recording_text(const char *text, size_t size)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const tandem_status status = tandem_recorded_parse(&graph, text, size, "fuzz.json", 2, &error);
    if (status == TANDEM_OK)
        check_recorded_graph(graph);
    else
        must(error.status == status && error.text[0] != '\0' && !graph);
    tandem_graph_close(graph);
}

/* Value `which` of the members in `text`, or NULL. The characters are compared here: a sanitizer measures the
 * whole text at each strstr, which took a fifth of the time. */
static const char *value_at(const char *text, unsigned which)
{
    for (; *text; text++)
        if (text[0] == '"' && text[1] == ':' && text[2] == ' ' && which-- == 0) return text + 3;
    return NULL;
}

static unsigned values_in(const char *text)
{
    unsigned n = 0;
    while ((text = value_at(text, 0))) n++;
    return n;
}

static size_t value_bytes(const char *value)
{
    return *value == '[' ? strcspn(value, "]") + 1 : strcspn(value, ",}\n");
}

/* Random bytes are seldom JSON. So the same bytes also choose values of a good recording, and what to put in
 * their places: each pair of bytes is one edit, four at most. */
static void check_edited_recording(const uint8_t *data, size_t size)
{
    static const char *const values[] = {"null",
                                         "0",
                                         "1",
                                         "-1",
                                         "2",
                                         "16",
                                         "1e308",
                                         "16777216",
                                         "[2, 10]",
                                         "[]",
                                         "[2,4,8]",
                                         "{}",
                                         "\"\"",
                                         "\"call\"",
                                         "\"conv\"",
                                         "\"matmul\"",
                                         "\"linear\"",
                                         "\"conv2d\"",
                                         "[2, 8, 8, 3]",
                                         "9223372036854775807",
                                         "[17592186044415]",
                                         "true"};
    char *text = strdup(seed);
    for (size_t i = 0; text && i + 1 < size && i < 8; i += 2) {
        const unsigned n = values_in(text);
        const char *const at = n ? value_at(text, data[i] % n) : NULL;
        char *edited = NULL;
        if (!at) break;
        if (asprintf(&edited, "%.*s%s%s", (int)(at - text), text,
                     values[data[i + 1] % (sizeof values / sizeof *values)], at + value_bytes(at)) < 0)
            edited = NULL;
        free(text);
        text = edited;
    }
    if (text) check_recording_text(text, strlen(text));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_recording_text((const char *)data, size);
    check_edited_recording(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t edits[] = {3, 8, 18, 11, 22, 16, 40, 9};
    const uint8_t *const seeds[] = {(const uint8_t *)seed, edits};
    const size_t n[] = {sizeof seed - 1, sizeof edits};
    return tandem_fuzz_main("recording", LLVMFuzzerTestOneInput, seeds, n, 2, argc, argv);
}
