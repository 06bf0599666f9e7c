/* name.c: a model named by its file: "nets/a.onnx", or "nets/a.onnx:seq=128,loss=nll,output=logits". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "graph/model_file.h"
#include "graph/onnx/onnx.h"

enum { MAX_TEXT = 128 };

typedef struct given_options {
    tandem_onnx_options options;
    char loss[MAX_TEXT], output[MAX_TEXT];
} given_options;

static tandem_status refuse_option(const char *text, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_USAGE,
        "model option '%.80s'; allowed are NAME=NUMBER for a size or an input, loss=LOSS and "
        "output=NAME, with commas between them, at most %d",
        text, TANDEM_ONNX_MAX_OPTION);
}

/* One "name=value" of n characters. */
static tandem_status read_file_option(given_options *g, const char *text, size_t n, tandem_error *error)
{
    char copy[2 * MAX_TEXT];
    if (n >= sizeof copy) return refuse_option(text, error);
    memcpy(copy, text, n);
    copy[n] = '\0';
    char *const value = strrchr(copy, '='), *end;
    if (!value || value == copy || !value[1] || strlen(value + 1) >= MAX_TEXT)
        return refuse_option(copy, error);
    *value = '\0';
    tandem_onnx_options *const o = &g->options;
    if (strcmp(copy, "loss") == 0 || strcmp(copy, "output") == 0) {
        char *const to = *copy == 'l' ? g->loss : g->output;
        memcpy(to, value + 1, strlen(value + 1) + 1);
        if (*copy == 'l')
            o->loss = to;
        else
            o->output = to;
        return TANDEM_OK;
    }
    errno = 0;
    const long long number = strtoll(value + 1, &end, 10);
    if (errno || *end || end == value + 1 || o->n == TANDEM_ONNX_MAX_OPTION ||
        strlen(copy) >= sizeof o->set[0].name)
        return refuse_option(text, error);
    for (int i = 0; i < o->n; i++)
        if (strcmp(o->set[i].name, copy) == 0)
            return tandem_error_set(error, TANDEM_USAGE, "model option '%s' is given twice; allowed once",
                                    copy);
    memcpy(o->set[o->n].name, copy, strlen(copy) + 1);
    o->set[o->n++].value = number;
    return TANDEM_OK;
}

static tandem_status read_file_name(given_options *g, char **path, const char *model, tandem_error *error)
{
    const size_t n = tandem_model_file_length(model, ".onnx");
    const char *text = model + n;
    *path = strndup(model, n);
    if (!*path) return tandem_no_memory(error, "for a path");
    while (*text) {
        const size_t one = strcspn(++text, ",");
        const tandem_status status = read_file_option(g, text, one, error);
        if (status != TANDEM_OK) return status;
        text += one;
    }
    return TANDEM_OK;
}

tandem_status tandem_onnx_open_named(tandem_graph **graph, const char *model, int64_t batch,
                                     tandem_error *error)
{
    given_options g = {0};
    char *path = NULL;
    tandem_status status = read_file_name(&g, &path, model, error);
    if (status == TANDEM_OK && strlen(model) >= TANDEM_MODEL_NAME)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "model '%.80s…' has a name of %zu characters; allowed are at most %d",
                                  model, strlen(model), TANDEM_MODEL_NAME - 1);
    if (status == TANDEM_OK) status = tandem_onnx_open(graph, model, path, &g.options, batch, error);
    free(path);
    return status;
}

tandem_status tandem_onnx_list_named(tandem_unsupported *list, const char *model, int64_t batch,
                                     tandem_error *error)
{
    given_options g = {0};
    char *path = NULL;
    tandem_status status = read_file_name(&g, &path, model, error);
    if (status == TANDEM_OK) status = tandem_onnx_list_unsupported(list, path, &g.options, batch, error);
    free(path);
    return status;
}
