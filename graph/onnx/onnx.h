/* onnx.h: the training graph of a model in an ONNX file. */
#ifndef TANDEM_GRAPH_ONNX_H
#define TANDEM_GRAPH_ONNX_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/graph.h"

enum { TANDEM_ONNX_MAX_OPTION = 16 };

/* What closes a model that its file leaves open. */
typedef struct tandem_onnx_options {
    const char *loss, *output; /* NULL: cross_entropy; the first output */
    /* For tests: no dimension is the batch, which is 1, and the loss reads the output as one row, in ONNX's
     * order. */
    int whole_output;
    int n;
    struct {
        char name[64]; /* of a symbolic size, or of an input, which then holds this number everywhere */
        int64_t value;
    } set[TANDEM_ONNX_MAX_OPTION];
} tandem_onnx_options;

/* Opens the model in `path` at a local batch. `model` is its canonical name. TANDEM_IO: unreadable.
 * TANDEM_MALFORMED, TANDEM_WRONG_FORMAT: no ONNX model, damaged, or of another version. TANDEM_WRONG_GRAPH:
 * it breaks a rule, or has an operator that is not supported. TANDEM_NO_MEMORY. *graph unchanged on error.
 * Reads the file's weights only where they decide the graph. Cost: O(bytes + nodes). */
tandem_status tandem_onnx_open(tandem_graph **graph, const char *model, const char *path,
                               const tandem_onnx_options *options, int64_t batch, tandem_error *error);

/* What tandem_graph_list_unsupported does for a file. */
tandem_status tandem_onnx_list_unsupported(tandem_unsupported *list, const char *path,
                                           const tandem_onnx_options *options, int64_t batch,
                                           tandem_error *error);

/* Both for "FILE.onnx:NAME=NUMBER,…" (name.c). */
tandem_status tandem_onnx_open_named(tandem_graph **graph, const char *model, int64_t batch,
                                     tandem_error *error);
tandem_status tandem_onnx_list_named(tandem_unsupported *list, const char *model, int64_t batch,
                                     tandem_error *error);

#endif
