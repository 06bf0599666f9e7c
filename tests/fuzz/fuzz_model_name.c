/* folder: graph */
/* Names of models with options: whatever the text, opening says no or gives a graph whose own name opens it
 * again. */
#include "tandem/graph.h"
#include "tests/fuzz/fuzz_main.h"

/* Errors go to terminals and into JSON: the part of it that was the input must not carry control characters
 * or broken UTF-8; the signs of our own (…) are whole. */
static void must_be_fit_to_print(const char *text)
{
    must(text[0] != '\0');
    while (*text) {
        if (strncmp(text, "…", strlen("…")) == 0)
            text += strlen("…");
        else
            must(*text >= ' ' && *text <= '~'), text++;
    }
}

static void must_open_again(const tandem_graph *graph)
{
    tandem_graph *again = NULL;
    must(tandem_graph_open(&again, graph->model, 2, NULL) == TANDEM_OK);
    must(strcmp(again->model, graph->model) == 0 && again->hash == graph->hash);
    tandem_graph_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *const model = malloc(size + 1);
    if (!model) return 0;
    if (size) memcpy(model, data, size);
    model[size] = '\0';
    tandem_graph *const untouched = (tandem_graph *)(uintptr_t)0x10;
    tandem_graph *graph = untouched;
    tandem_error error = {0};
    const tandem_status status = tandem_graph_open(&graph, model, 2, &error);
    must(error.status == status);
    if (status == TANDEM_OK) {
        must_open_again(graph);
        tandem_graph_close(graph);
    } else {
        must(status == TANDEM_UNKNOWN_NAME || status == TANDEM_USAGE || status == TANDEM_WRONG_GRAPH);
        must(graph == untouched);
        must_be_fit_to_print(error.text);
    }
    free(model);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        "mlp",
        "mlp:width=64,depth=1,image=32x32x3,classes=100",
        "resnet20:blocks=1",
        "resnet20:width=8,image=9x7x2",
        "vit_tiny:heads=4,width=64,depth=1",
        "vit_tiny:patch=7,mlp=2",
        "gpt_tiny:length=16,vocabulary=65,depth=1",
        "gpt_tiny:width=4096,heads=8",
        "gpt_tiny:dropout=0.1",
        "vit_tiny:dropout=.25,depth=2",
        "bert_base:dropout=0.12345",
        "vit_tinny:",
        "mlp:widht=3",
        "mlp:width=99999999999999999999",
        "mlp:image=4096x4096x64",
    };
    enum { N = sizeof texts / sizeof *texts };
    const uint8_t *seeds[N];
    size_t seed_bytes[N];
    for (int i = 0; i < N; i++) {
        seeds[i] = (const uint8_t *)texts[i];
        seed_bytes[i] = strlen(texts[i]);
    }
    return tandem_fuzz_main("model_name", LLVMFuzzerTestOneInput, seeds, seed_bytes, N, argc, argv);
}
