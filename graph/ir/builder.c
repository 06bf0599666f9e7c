/* builder.c: collects operators and parameters, checks them, and makes the finished graph of them. */
#include "graph/ir/builder.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/plain_text.h"

enum { MAX_OP = 65535, MAX_BATCH = 1 << 20 };
static const int64_t max_elements = (INT64_C(1) << 44) - 1; /* of f32: below 2^46 bytes */

tandem_status tandem_builder_open(tandem_builder **builder, int64_t batch, tandem_error *error)
{
    if (batch < 1 || batch > MAX_BATCH)
        return tandem_error_set(error, TANDEM_USAGE, "the batch is %" PRId64 "; allowed 1 … %d", batch,
                                MAX_BATCH);
    tandem_builder *b = calloc(1, sizeof *b);
    if (!b) return tandem_no_memory(error, "to build a graph");
    b->batch = batch;
    b->max_op = MAX_OP;
    b->input = b->label = -1;
    *builder = b;
    return TANDEM_OK;
}

void tandem_builder_set_max_op(tandem_builder *b, int max_op)
{
    b->max_op = max_op < MAX_OP ? max_op : MAX_OP;
}

int tandem_builder_n_op(const tandem_builder *b) { return b->n_op; }

/* Leaves what was built to its new owner. */
static void detach_graph(tandem_builder *b)
{
    free(b->by_name);
    free(b->given);
    *b = (tandem_builder){.batch = b->batch, .max_op = b->max_op, .input = -1, .label = -1};
}

void tandem_builder_close(tandem_builder *b)
{
    if (!b) return;
    for (int c = 0; c < b->n_constant; c++) free(b->constant[c]);
    free(b->constant);
    free(b->given);
    free(b->by_name);
    free(b->parameter);
    free(b->op);
    free(b);
}

int64_t tandem_builder_batch(const tandem_builder *b) { return b->batch; }

const tandem_shape *tandem_builder_shape(const tandem_builder *b, int tensor)
{
    static const tandem_shape none = {0};
    return tensor >= 0 && tensor < b->n_op ? &b->op[tensor].shape : &none;
}

/* --- Errors --------------------------------------------------------------------------------------------- */
bool fail_build(tandem_builder *b, const tandem_op *op, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)tandem_plain_print_list(text, sizeof text, format, arguments);
    va_end(arguments);
    tandem_error_set(&b->error, TANDEM_WRONG_GRAPH, "operator '%s' (%s): %s", op->name,
                     tandem_op_row_get(op->kind)->name, text);
    return false;
}

static bool fail_no_memory(tandem_builder *b)
{
    tandem_no_memory(&b->error, "for a graph of %d operators", b->n_op + 1);
    return false;
}

const char *shape_as_text(char text[SHAPE_TEXT], const tandem_shape *shape)
{
    size_t n = 0;
    text[0] = '\0';
    for (int d = 0; d < shape->n_dim; d++)
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%" PRId64, d ? "x" : "", shape->dim[d]);
    return n ? text : "a single number";
}

/* --- Names ---------------------------------------------------------------------------------------------- */
/* The slot of by_name that holds the name, or would. */
static uint32_t find_name_slot(const tandem_builder *b, const char *name)
{
    const uint32_t mask = 2 * (uint32_t)b->op_capacity - 1;
    uint32_t slot = (uint32_t)tandem_hash_text(TANDEM_HASH_START, name) & mask;
    while (b->by_name[slot] && strcmp(b->op[b->by_name[slot] - 1].name, name) != 0) slot = (slot + 1) & mask;
    return slot;
}

static bool set_op_name(tandem_builder *b, tandem_op *op, const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    const size_t length = name ? strnlen(name, sizeof op->name) : 0;
    if (length == 0 || length >= sizeof op->name || name[strspn(name, allowed)] != '\0') {
        tandem_error_set(&b->error, TANDEM_WRONG_GRAPH,
                         "operator %d (%s) has the name '%.60s'; allowed are 1 … %zu letters, digits, and "
                         "any of ._-/",
                         b->n_op, tandem_op_row_get(op->kind)->name, name ? name : "", sizeof op->name - 1);
        return false;
    }
    memcpy(op->name, name, length);
    if (b->by_name[find_name_slot(b, op->name)])
        return fail_build(b, op, "the name is taken by operator %d; names must be unique",
                          b->by_name[find_name_slot(b, op->name)] - 1);
    return true;
}

/* --- Operators ------------------------------------------------------------------------------------------ */
static bool reserve_op(tandem_builder *b)
{
    if (b->n_op < b->op_capacity) return true;
    const int capacity = b->op_capacity ? 2 * b->op_capacity : 64;
    int *by_name = calloc(2 * (size_t)capacity, sizeof *by_name);
    tandem_op *op = by_name ? realloc(b->op, (size_t)capacity * sizeof *op) : NULL;
    if (!op) {
        free(by_name);
        return fail_no_memory(b);
    }
    free(b->by_name);
    b->by_name = by_name;
    b->op = op;
    b->op_capacity = capacity;
    for (int i = 0; i < b->n_op; i++) b->by_name[find_name_slot(b, b->op[i].name)] = i + 1;
    return true;
}

static bool check_input(tandem_builder *b, const tandem_op *op, int slot)
{
    const int t = op->input[slot];
    if (t < 0 || t >= b->n_op)
        return b->n_op ? fail_build(b, op, "input %d is tensor %d; allowed 0 … %d", slot, t, b->n_op - 1)
                       : fail_build(b, op, "input %d is tensor %d, but there is none yet", slot, t);
    const tandem_op *in = &b->op[t];
    if (in->kind == TANDEM_OP_CROSS_ENTROPY)
        return fail_build(b, op, "it reads '%s'; nothing may follow the loss", in->name);
    const bool reads_classes =
        (op->kind == TANDEM_OP_CROSS_ENTROPY || op->kind == TANDEM_OP_GATHER_LABELLED) && slot == 1;
    if ((in->kind == TANDEM_OP_LABELS) != reads_classes)
        return fail_build(
            b, op,
            "input %d is '%s' (%s); labels are read by the loss and by gather_labelled, as their second "
            "input, and by nothing else",
            slot, in->name, tandem_op_row_get(in->kind)->name);
    const bool any_type = op->kind == TANDEM_OP_RESHAPE;
    const tandem_dtype wanted = reads_classes || op->kind == TANDEM_OP_EMBEDDING ? TANDEM_S32 : TANDEM_F32;
    if (!any_type && in->dtype != wanted)
        return fail_build(b, op, "input %d, '%s', has type %s; allowed is %s", slot, in->name,
                          tandem_dtype_name(in->dtype), tandem_dtype_name(wanted));
    return true;
}

bool check_shape(tandem_builder *b, const tandem_op *op, const char *what, const tandem_shape *shape)
{
    int64_t elements = 1;
    for (int d = 0; d < shape->n_dim; d++) {
        if (shape->dim[d] < 1)
            return fail_build(b, op, "dimension %d of its %s is %" PRId64 "; allowed 1 or more", d, what,
                              shape->dim[d]);
        char text[SHAPE_TEXT];
        if (__builtin_mul_overflow(elements, shape->dim[d], &elements) || elements > max_elements)
            return fail_build(b, op, "its %s has shape %s; allowed are fewer than 2^44 elements", what,
                              shape_as_text(text, shape));
    }
    return true;
}

bool check_n_dim(tandem_builder *b, const tandem_op *op, int slot, int min, int max)
{
    const tandem_shape *in = input_shape(b, op, slot);
    char text[SHAPE_TEXT];
    if (in->n_dim >= min && in->n_dim <= max) return true;
    return min == max ? fail_build(b, op, "input %d has shape %s, %d dimensions; allowed %d", slot,
                                   shape_as_text(text, in), in->n_dim, min)
                      : fail_build(b, op, "input %d has shape %s, %d dimensions; allowed %d … %d", slot,
                                   shape_as_text(text, in), in->n_dim, min, max);
}

bool check_op_range(tandem_builder *b, const tandem_op *op, const char *what, int64_t got, int64_t min,
                    int64_t max)
{
    return (got >= min && got <= max) ||
           fail_build(b, op, "%s is %" PRId64 "; allowed %" PRId64 " … %" PRId64, what, got, min, max);
}

const float *keep_constant(tandem_builder *b, const float *given, int64_t n)
{
    for (int c = 0; c < b->n_constant; c++)
        if (b->given[c].number == given && b->given[c].n == n) return b->constant[c];
    if (b->n_constant == b->constant_capacity) {
        const int capacity = b->constant_capacity ? 2 * b->constant_capacity : 8;
        struct given_constant *more = realloc(b->given, (size_t)capacity * sizeof *more);
        if (more) b->given = more;
        float **copies = more ? realloc(b->constant, (size_t)capacity * sizeof *copies) : NULL;
        if (copies) b->constant = copies;
        if (!copies) return fail_no_memory(b), NULL;
        b->constant_capacity = capacity;
    }
    float *const copy = malloc((size_t)n * sizeof *copy);
    if (!copy) return fail_no_memory(b), NULL;
    memcpy(copy, given, (size_t)n * sizeof *copy);
    b->given[b->n_constant] = (struct given_constant){given, n};
    return b->constant[b->n_constant++] = copy;
}

bool add_parameter(tandem_builder *b, tandem_op *op, tandem_shape shape, float deviation, bool ones,
                   bool has_weight_decay)
{
    if (!check_shape(b, op, "parameter", &shape)) return false;
    if (!isfinite(deviation) || deviation < 0)
        return fail_build(b, op, "the deviation of its initial weights is %g; allowed 0 or more",
                          (double)deviation);
    if (b->n_parameter == b->parameter_capacity) {
        const int capacity = b->parameter_capacity ? 2 * b->parameter_capacity : 64;
        tandem_parameter *parameter = realloc(b->parameter, (size_t)capacity * sizeof *parameter);
        if (!parameter) return fail_no_memory(b);
        b->parameter = parameter;
        b->parameter_capacity = capacity;
    }
    tandem_parameter *p = &b->parameter[b->n_parameter];
    *p = (tandem_parameter){.op = b->n_op,
                            .tied = -1,
                            .after = -1,
                            .shape = shape,
                            .elements = tandem_shape_elements(&shape),
                            .has_weight_decay = has_weight_decay};
    p->init = ones ? TANDEM_INIT_ONE : deviation > 0 ? TANDEM_INIT_NORMAL : TANDEM_INIT_ZERO;
    p->deviation = deviation;
    op->parameter[op->parameter[0] < 0 ? 0 : 1] = b->n_parameter++;
    return true;
}

tandem_op *begin_op(tandem_builder *b, tandem_op_kind kind, const char *name, int x, int y, int min_dim,
                    int max_dim)
{
    if (b->error.status != TANDEM_OK) return NULL;
    if (b->n_op >= b->max_op) {
        tandem_error_set(&b->error, b->max_op < MAX_OP ? TANDEM_LIMIT_EXCEEDED : TANDEM_WRONG_GRAPH,
                         "the graph has more than %d operators, which is the limit", b->max_op);
        return NULL;
    }
    if (!reserve_op(b)) return NULL;
    const tandem_op_row *row = tandem_op_row_get(kind);
    tandem_op *op = &b->op[b->n_op];
    *op = (tandem_op){.kind = kind, .input = {x, y}, .parameter = {-1, -1}, .dtype = TANDEM_F32};
    op->needs_gradient = row->n_parameter > 0;
    if (!set_op_name(b, op, name)) return NULL;
    for (int slot = 0; slot < row->n_input; slot++) {
        if (!check_input(b, op, slot)) return NULL;
        op->needs_gradient |= b->op[op->input[slot]].needs_gradient;
    }
    for (int slot = row->n_input; slot < TANDEM_MAX_INPUT; slot++) op->input[slot] = -1;
    if (row->n_input == 0) return op;
    op->shape = *input_shape(b, op, 0);
    return check_n_dim(b, op, 0, min_dim, max_dim) ? op : NULL;
}

int finish_op(tandem_builder *b, tandem_op *op)
{
    if (!check_shape(b, op, "output", &op->shape)) return -1;
    tandem_op_count(op, b->op);
    tandem_op_sign(op, b->op, b->parameter);
    b->by_name[find_name_slot(b, op->name)] = b->n_op + 1;
    return b->n_op++;
}

/* --- The finished graph --------------------------------------------------------------------------------- */
static tandem_status check_model(const char *model, const tandem_optimizer_options *o, tandem_error *error)
{
    if (!model || !*model || strlen(model) >= TANDEM_MODEL_NAME)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the model's name has %zu characters; allowed 1 … %d",
                                model ? strlen(model) : 0, TANDEM_MODEL_NAME - 1);
    const float options[] = {o->rate, o->momentum, o->beta1, o->beta2, o->epsilon, o->decay};
    bool fine = o->kind == TANDEM_SGD || o->kind == TANDEM_ADAMW;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        fine = fine && isfinite(options[i]) && options[i] >= 0;
    return fine ? TANDEM_OK
                : tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                   "model %s: an option of its optimizer is negative or not a number", model);
}

tandem_status tandem_graph_connect(tandem_graph *g, tandem_error *error)
{
    int *start = g->consumer_start;
    memset(start, 0, ((size_t)g->n_op + 1) * sizeof *start);
    for (int i = 0; i < g->n_op; i++)
        for (int slot = 0; slot < TANDEM_MAX_INPUT && g->op[i].input[slot] >= 0; slot++)
            start[g->op[i].input[slot] + 1]++;
    for (int t = 0; t < g->n_op; t++) {
        if (start[t + 1] == 0 && t != g->loss)
            return tandem_error_set(
                error, TANDEM_WRONG_GRAPH,
                "operator '%s' (%s): nothing reads its output; allowed for the loss alone", g->op[t].name,
                tandem_op_row_get(g->op[t].kind)->name);
        start[t + 1] += start[t];
    }
    /* start[t + 1] is the end of t's part. Filling backwards moves it to the beginning, in ascending
     * order. */
    const int n_edge = start[g->n_op];
    for (int i = g->n_op - 1; i >= 0; i--)
        for (int slot = 0; slot < TANDEM_MAX_INPUT && g->op[i].input[slot] >= 0; slot++)
            g->consumer[--start[g->op[i].input[slot] + 1]] = i;
    memmove(start, start + 1, (size_t)g->n_op * sizeof *start);
    start[g->n_op] = n_edge;
    for (int t = 0; t < g->n_op; t++)
        g->view[t] = g->op[t].kind == TANDEM_OP_RESHAPE ? g->view[g->op[t].input[0]] : t;
    return TANDEM_OK;
}

static tandem_status check_ends(const tandem_builder *b, tandem_error *error)
{
    const tandem_op *last = b->n_op ? &b->op[b->n_op - 1] : NULL;
    if (!last || last->kind != TANDEM_OP_CROSS_ENTROPY)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the graph ends with %s%s%s; allowed is cross_entropy",
                                last ? "operator '" : "nothing", last ? last->name : "", last ? "'" : "");
    if (b->input < 0)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH,
                                "the graph reads no samples; it needs images or tokens");
    if (!last->needs_gradient)
        return tandem_error_set(error, TANDEM_WRONG_GRAPH, "the graph has nothing to train before its loss");
    return TANDEM_OK;
}

/* Tokens for which every embedding of the graph has a row. */
static int64_t min_vocabulary(const tandem_graph *g)
{
    int64_t vocabulary = 0;
    for (int p = 0; p < g->n_parameter; p++) {
        const tandem_parameter *table = &g->parameter[p];
        if (g->op[table->op].kind == TANDEM_OP_EMBEDDING &&
            (vocabulary == 0 || table->shape.dim[0] < vocabulary))
            vocabulary = table->shape.dim[0];
    }
    return vocabulary;
}

/* What the input operator says of the samples; an import may know more. */
static void set_sample(tandem_graph *g)
{
    const tandem_shape *const shape = &g->op[g->input].shape;
    g->sample = (tandem_sample){.n_dim = shape->n_dim - 1};
    memcpy(g->sample.dim, shape->dim + 1, (size_t)g->sample.n_dim * sizeof *shape->dim);
}

tandem_status tandem_builder_finish(tandem_builder *b, const char *model,
                                    const tandem_optimizer_options *optimizer, tandem_graph **graph,
                                    tandem_error *error)
{
    if (b->error.status != TANDEM_OK) return tandem_error_set(error, b->error.status, "%s", b->error.text);
    tandem_status status = check_model(model, optimizer, error);
    if (status == TANDEM_OK) status = check_ends(b, error);
    if (status != TANDEM_OK) return status;
    const size_t n = (size_t)b->n_op;
    tandem_graph *g = calloc(1, sizeof *g);
    if (g) {
        g->consumer_start = calloc(n + 1, sizeof *g->consumer_start);
        g->consumer = calloc(n * TANDEM_MAX_INPUT, sizeof *g->consumer);
        g->view = calloc(n, sizeof *g->view);
    }
    if (!g || !g->consumer_start || !g->consumer || !g->view) {
        status = tandem_no_memory(error, "for a graph of %d operators", b->n_op);
        goto out;
    }
    memcpy(g->model, model, strlen(model));
    g->batch = b->batch;
    g->n_op = b->n_op;
    g->n_parameter = b->n_parameter;
    g->op = b->op;
    g->parameter = b->parameter;
    g->loss = b->n_op - 1;
    g->input = b->input;
    g->label = b->label;
    g->n_class = tandem_shape_last(&g->op[g->op[g->loss].input[0]].shape);
    set_sample(g);
    g->length = tandem_shape_elements(&g->op[g->label].shape) / g->batch;
    g->n_masked = b->masked;
    g->vocabulary = min_vocabulary(g);
    g->n_constant = b->n_constant;
    g->constant = b->constant;
    g->optimizer = *optimizer;
    status = tandem_graph_connect(g, error);
    if (status != TANDEM_OK) {
        g->op = NULL; /* the builder's still */
        g->parameter = NULL;
        g->constant = NULL, g->n_constant = 0;
        goto out;
    }
    g->hash = tandem_graph_hash(g);
    detach_graph(b);
    *graph = g;
    g = NULL;
out:
    tandem_graph_close(g);
    return status;
}
