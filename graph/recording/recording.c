/* recording.c: reads what tandem.Graph.save of the Python package wrote: the calls of a module, in order. */
#include "graph/recording/recording.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "graph/model_file.h"
#include "graph/recording/growth.h"
#include "graph/recording/step_memory.h"

enum { MAX_RECORDING_BYTES = 64 << 20 };
static const char schema_name[] = "tandem.recording/1";

/* --- Members -------------------------------------------------------------------------------------------- */

static tandem_status read_recorded_shape(tandem_shape *shape, const tandem_json_location *location,
                                         const json_t *object, const char *member)
{
    const json_t *const sizes = json_object_get(object, member);
    if (!json_is_array(sizes) || json_array_size(sizes) > TANDEM_MAX_DIM)
        return tandem_json_refuse(location, member, "must be an array of at most 4 sizes");
    *shape = (tandem_shape){.n_dim = (int)json_array_size(sizes)};
    for (int d = 0; d < shape->n_dim; d++) {
        const json_t *const size = json_array_get(sizes, (size_t)d);
        shape->dim[d] = json_integer_value(size);
        if (!json_is_integer(size) || shape->dim[d] < 1)
            return tandem_json_refuse(location, member, "must hold whole numbers above 0");
    }
    return TANDEM_OK;
}
_Static_assert(TANDEM_MAX_DIM == 4, "the message above says 4");

static tandem_status read_call_kind(tandem_op_kind *kind, const tandem_json_location *location,
                                    const json_t *object)
{
    static const tandem_op_kind kinds[] = {TANDEM_OP_LINEAR, TANDEM_OP_CONV2D, TANDEM_OP_MATMUL,
                                           TANDEM_OP_CALL};
    const char *name = NULL;
    const tandem_status status = tandem_json_text(&name, location, object, "kind", 1);
    if (status != TANDEM_OK) return status;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (strcmp(name, tandem_op_row_get(kinds[k])->name) == 0) {
            *kind = kinds[k];
            return TANDEM_OK;
        }
    return tandem_json_refuse(location, "kind", "must be linear, conv2d, matmul or call");
}

static tandem_status read_recorded_call(tandem_recorded_call *call, const tandem_json_location *location,
                                        const json_t *object)
{
    static const char *const allowed[] = {
        "name", "kind",        "text",   "input",      "second",   "shape",    "kernel", "stride",
        "pad",  "transpose_b", "weight", "parameters", "elements", "operator", "growth", NULL};
    int64_t kernel = 0, stride = 0, pad = 0, transpose_b = 0, elements = 0;
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK) status = read_call_kind(&call->kind, location, object);
    if (status == TANDEM_OK) status = tandem_json_text(&call->name, location, object, "operator", 1);
    if (status == TANDEM_OK) status = tandem_json_text(&call->text, location, object, "text", 1);
    if (status == TANDEM_OK) status = read_recorded_shape(&call->input, location, object, "input");
    if (status == TANDEM_OK) status = read_recorded_shape(&call->second, location, object, "second");
    if (status == TANDEM_OK) status = read_recorded_shape(&call->shape, location, object, "shape");
    if (status == TANDEM_OK)
        status = tandem_json_integer(&kernel, location, object, "kernel", 0, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&stride, location, object, "stride", 0, INT32_MAX, 1);
    if (status == TANDEM_OK) status = tandem_json_integer(&pad, location, object, "pad", 0, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&transpose_b, location, object, "transpose_b", 0, 1, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&elements, location, object, "elements", 0, INT64_MAX, 1);
    if (status != TANDEM_OK) return status;
    call->kernel = (int)kernel;
    call->stride = (int)stride;
    call->pad = (int)pad;
    call->transpose_b = (int)transpose_b;
    call->parameter_elements = elements; /* read of a call alone: others have their weight */
    return TANDEM_OK;
}

static tandem_status read_recorded_optimizer(tandem_optimizer_options *optimizer,
                                             tandem_json_location *location, const json_t *root)
{
    static const char *const allowed[] = {"kind",  "rate",    "momentum", "beta1",
                                          "beta2", "epsilon", "decay",    NULL};
    const json_t *const object = json_object_get(root, "optimizer");
    double rate = 0.01, momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0;
    double *const number[] = {&rate, &momentum, &beta1, &beta2, &epsilon, &decay};
    const char *kind = NULL;
    (void)snprintf(location->path, sizeof location->path, "optimizer");
    tandem_status status = tandem_json_check_members(location, object, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&kind, location, object, "kind", 1);
    for (size_t k = 0; k < sizeof number / sizeof *number && status == TANDEM_OK; k++)
        status = tandem_json_real(number[k], location, object, allowed[k + 1], 0);
    if (status == TANDEM_OK && strcmp(kind, "sgd") != 0 && strcmp(kind, "adamw") != 0)
        status = tandem_json_refuse(location, "kind", "must be sgd or adamw");
    location->path[0] = '\0';
    if (status == TANDEM_OK)
        *optimizer = (tandem_optimizer_options){.kind = *kind == 'a' ? TANDEM_ADAMW : TANDEM_SGD,
                                                .rate = (float)rate,
                                                .momentum = (float)momentum,
                                                .beta1 = (float)beta1,
                                                .beta2 = (float)beta2,
                                                .epsilon = (float)epsilon,
                                                .decay = (float)decay};
    return status;
}

/* --- The file ------------------------------------------------------------------------------------------- */

/* Everything but the calls. Strings are borrowed from `root`. */
static tandem_status read_recording_head(tandem_recorded_graph *recording, tandem_json_location *location,
                                         const json_t *root)
{
    static const char *const allowed[] = {"schema",        "model",        "batch",          "calls",
                                          "parameters",    "n_prediction", "n_class",        "optimizer",
                                          "torch_version", "memory",       "memory_unknown", NULL};
    const json_t *const schema = json_object_get(root, "schema"), *const calls =
                                                                      json_object_get(root, "calls");
    if (!json_is_string(schema) || strcmp(json_string_value(schema), schema_name) != 0)
        return tandem_error_set(
            location->error, TANDEM_WRONG_FORMAT,
            "'%.200s' is no captured model (%s): tandem.capture(module, inputs).save(PATH) "
            "of the Python package writes one (docs/pytorch.md)",
            location->source, schema_name);
    tandem_status status = tandem_json_check_members(location, root, allowed);
    if (status == TANDEM_OK) status = tandem_json_text(&recording->model, location, root, "model", 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&recording->batch, location, root, "batch", 1, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status =
            tandem_json_integer(&recording->n_prediction, location, root, "n_prediction", 1, INT32_MAX, 1);
    if (status == TANDEM_OK)
        status = tandem_json_integer(&recording->n_class, location, root, "n_class", 1, INT32_MAX, 1);
    if (status == TANDEM_OK) status = read_recorded_optimizer(&recording->optimizer, location, root);
    const size_t n = json_array_size(calls);
    if (status == TANDEM_OK && (n < 1 || n > TANDEM_MAX_RECORDED_CALL))
        status = tandem_json_refuse(location, "calls", "must be an array of 1 to 16000 calls");
    recording->n_call = (int)n;
    return status;
}
_Static_assert(TANDEM_MAX_RECORDED_CALL == 16000, "the message above says 16000");

static tandem_status check_recorded_batch(const tandem_recorded_graph *recording, const char *model,
                                          int64_t batch, tandem_error *error)
{
    if (recording->batch == batch || (recording->memory && recording->memory->has_growth)) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_USAGE,
        "'%.200s' was captured with batch %" PRId64 ", and batch %" PRId64
        " was asked for. How a step grows with the batch was not recorded (docs/pytorch.md, Memory). "
        "Ask for %" PRId64 ", or capture the module with %" PRId64,
        model, recording->batch, batch, recording->batch, batch);
}

typedef char call_text[TANDEM_RECORDED_TEXT + 1];

/* text: [n_call] of calls that grow. */
static tandem_status read_calls(tandem_recorded_call *call, call_text *text,
                                const tandem_recorded_graph *recording, int64_t batch,
                                tandem_json_location *location, const json_t *calls)
{
    const int64_t more = batch - recording->batch;
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < recording->n_call && status == TANDEM_OK; i++) {
        const json_t *const object = json_array_get(calls, (size_t)i);
        (void)snprintf(location->path, sizeof location->path, "calls[%d]", i);
        status = read_recorded_call(&call[i], location, object);
        if (status == TANDEM_OK && more &&
            !tandem_recorded_grow(&call[i], json_object_get(object, "growth"), more, batch, text[i]))
            status = tandem_json_refuse(location, "growth", "does not give sizes above 0 at this batch");
    }
    return status;
}

static tandem_status record_calls(tandem_graph **graph, tandem_recorded_graph *recording, int64_t batch,
                                  tandem_json_location *location, const json_t *calls)
{
    const size_t n = (size_t)recording->n_call;
    tandem_recorded_call *const call = calloc(n, sizeof *call + sizeof(call_text));
    if (!call) return tandem_no_memory(location->error, "for a recording of %d calls", recording->n_call);
    tandem_status status = read_calls(call, (call_text *)(call + n), recording, batch, location, calls);
    recording->call = call;
    recording->batch = batch;
    if (status == TANDEM_OK) {
        tandem_error inner = {0};
        status = tandem_graph_record(graph, recording, &inner);
        if (status != TANDEM_OK)
            tandem_error_set(location->error, status, "'%.200s': %.700s", location->source, inner.text);
    }
    free(call);
    return status;
}

tandem_status tandem_recorded_parse(tandem_graph **graph, const char *bytes, size_t n, const char *model,
                                    int64_t batch, tandem_error *error)
{
    tandem_json_location location = {.source = model, .error = error};
    tandem_recorded_graph recording = {0};
    tandem_graph *made = NULL;
    tandem_recorded_memory *memory = NULL;
    json_t *root = NULL;
    tandem_status status = tandem_json_parse(&root, bytes, n, model, error);
    if (status == TANDEM_OK) status = read_recording_head(&recording, &location, root);
    if (status == TANDEM_OK)
        status = tandem_recorded_memory_read(&memory, batch, &location, json_object_get(root, "memory"));
    recording.memory = memory;
    if (status == TANDEM_OK) status = check_recorded_batch(&recording, model, batch, error);
    if (status == TANDEM_OK)
        status = record_calls(&made, &recording, batch, &location, json_object_get(root, "calls"));
    if (status == TANDEM_OK) {
        (void)snprintf(made->model, sizeof made->model, "%s", model);
        *graph = made;
    }
    tandem_recorded_memory_close(memory);
    json_decref(root);
    return status;
}

int64_t tandem_recorded_batch(const char *model)
{
    tandem_json_location location = {.source = model};
    tandem_recorded_graph recording = {0};
    json_t *root = NULL;
    char *bytes = NULL;
    size_t n = 0;
    if (tandem_model_file_length(model, ".json") == 0) return 0;
    tandem_status status = tandem_file_read(&bytes, &n, model, MAX_RECORDING_BYTES, NULL);
    if (status == TANDEM_OK) status = tandem_json_parse(&root, bytes, n, model, NULL);
    if (status == TANDEM_OK) status = read_recording_head(&recording, &location, root);
    json_decref(root);
    free(bytes);
    return status == TANDEM_OK ? recording.batch : 0;
}

tandem_status tandem_recorded_open_named(tandem_graph **graph, const char *model, int64_t batch,
                                         tandem_error *error)
{
    char *bytes = NULL;
    size_t n = 0;
    if (strlen(model) >= TANDEM_MODEL_NAME || model[tandem_model_file_length(model, ".json")])
        return tandem_error_set(error, TANDEM_USAGE,
                                "model '%.80s': a captured model is a path of at most %d characters without "
                                "options",
                                model, TANDEM_MODEL_NAME - 1);
    tandem_status status = tandem_file_read(&bytes, &n, model, MAX_RECORDING_BYTES, error);
    if (status == TANDEM_OK) status = tandem_recorded_parse(graph, bytes, n, model, batch, error);
    free(bytes);
    return status;
}
