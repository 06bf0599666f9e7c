/* folder: graph */
/* ONNX models from any bytes: an error with a text, or a graph that keeps its laws. */
#include <sys/mman.h>
#include <unistd.h>

#include "graph/onnx/onnx.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tandem_onnx_options options = {.n = 1, .set = {{"seq", 5}}};
    char path[64];
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    const int file = memfd_create("fuzz.onnx", MFD_CLOEXEC);
    if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const tandem_status status = tandem_onnx_open(&graph, "fuzz.onnx", path, &options, 3, &error);
    demand((status == TANDEM_OK) == (graph != NULL), "outputs are untouched");
    demand(status == TANDEM_OK || (error.status == status && error.text[0]), "an error has a text");
    demand(status != TANDEM_BUG, "no input is our bug");
    if (graph)
        demand(graph->n_op > 1 && graph->op[graph->loss].kind == TANDEM_OP_CROSS_ENTROPY,
               "it ends with the loss");
    tandem_graph_close(graph);
    close(file);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("onnx", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
