/* task_work.c: how much a task computes and moves, from the text of its cost key (graph/ir/signature.c,
 * step/program/cost_key.c). Numbers are double, because a text from outside may hold any. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/form.h"
#include "tandem/advanced/predictor.h"

/* --- Reading a signature: "linear m=784 k=192 n=192" ---------------------------------------------------- */

/* The text after the first " name=" of `text`; NULL = it has none. */
static const char *field_text(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, name, n) == 0 && at[n + 1] == '=') return at + n + 2;
    return NULL;
}

static double field_value(const char *text, const char *name)
{
    const char *const value = field_text(text, name);
    return value ? (double)strtoll(value, NULL, 10) : 0;
}

/* The second number of "name=3x5". */
static double second_value(const char *text, const char *name)
{
    const char *const value = field_text(text, name), *const x = value ? strchr(value, 'x') : NULL;
    return x ? (double)strtoll(x + 1, NULL, 10) : 0;
}

/* "transpose 4x3x49x64 axes=0213": the product of the dimensions. */
static double elements_of_dimensions(const char *text)
{
    const char *at = strchr(text, ' ');
    double elements = at ? 1 : 0;
    while (at && (*at == ' ' || *at == 'x')) {
        char *end = NULL;
        const double dimension = (double)strtoll(at + 1, &end, 10);
        if (end == at + 1) break;
        elements *= dimension;
        at = end;
    }
    return elements;
}

/* --- Products ------------------------------------------------------------------------------------------- */

/* Of an element, with its share of a block's scale. */
static double dtype_size(tandem_dtype dtype)
{
    enum { WHOLE_BLOCKS = 1024 };
    return (double)tandem_dtype_size(dtype, WHOLE_BLOCKS) / WHOLE_BLOCKS;
}

/* x (m, k) and w (k, n), y (m, n): elements of all products. Forward x·w → y, dgrad y·wᵀ → x, wgrad xᵀ·y → w.
 */
typedef struct product_operands {
    double x, w, y;
} product_operands;

static int set_product_work(tandem_work *out, const tandem_product_sizes *p, const product_operands *operands,
                            tandem_dtype type, tandem_pass pass)
{
    const double in = p->operand_bytes, result = p->result_bytes;
    const int is_matmul = out->kind && strcmp(out->kind, "matmul") == 0;
    tandem_work work = {.work_class = is_matmul ? TANDEM_WORK_MATMUL : TANDEM_WORK_LINEAR,
                        .kind = out->kind,
                        .type = type,
                        .pass = pass,
                        .flops = 2 * p->count * p->m * p->n * p->k,
                        .element_bytes = in,
                        .is_product = 1,
                        .count = p->count};
    switch (pass) {
    case TANDEM_PASS_FORWARD:
        work.m = p->m, work.n = p->n, work.k = p->k;
        work.bytes = (operands->x + operands->w) * in + operands->y * result;
        break;
    case TANDEM_PASS_DGRAD:
        work.m = p->m, work.n = p->k, work.k = p->n;
        work.bytes = (operands->y + operands->w) * in + operands->x * result;
        break;
    case TANDEM_PASS_WGRAD:
        work.m = p->k, work.n = p->n, work.k = p->m;
        work.bytes = (operands->x + operands->y) * in + operands->w * result;
        break;
    default: return 0; /* a product has no other pass */
    }
    *out = work;
    return 1;
}

int tandem_work_of_product(tandem_work *work, const tandem_product_sizes *sizes, tandem_dtype type,
                           tandem_pass pass)
{
    const tandem_product_sizes *const p = sizes;
    const product_operands operands = {p->count * p->m * p->k, p->count * p->k * p->n,
                                       p->count * p->m * p->n};
    return set_product_work(work, p, &operands, type, pass);
}

/* The number of windows along one side. */
static double count_along(double size, double pad, double kernel, double stride)
{
    const double n = stride > 0 ? floor((size + 2 * pad - kernel) / stride) + 1 : 0;
    return n > 0 ? n : 0;
}

/* A product whose rows are windows or, of a dgrad, pixels. */
int tandem_work_of_convolution(tandem_work *work, const tandem_convolution *v, tandem_dtype type,
                               tandem_pass pass, double operand_bytes, double result_bytes)
{
    const double pixels = v->images * v->height * v->width,
                 m = v->images * count_along(v->height, v->pad_h, v->kernel_h, v->stride_h) *
                     count_along(v->width, v->pad_w, v->kernel_w, v->stride_w),
                 k = v->kernel_h * v->kernel_w * v->channels_in;
    const tandem_product_sizes p = {1, m, k, v->channels_out, operand_bytes, result_bytes};
    const product_operands operands = {pixels * v->channels_in, k * v->channels_out, m * v->channels_out};
    if (!(m * k * v->channels_out > 0) || !set_product_work(work, &p, &operands, type, pass)) return 0;
    work->work_class = TANDEM_WORK_CONVOLUTION;
    work->convolution = *v;
    if (pass == TANDEM_PASS_DGRAD) { /* each pixel sums over the windows that it lies in */
        work->m = pixels;
        work->n = v->channels_in;
        work->k = work->flops / (2 * work->m * work->n);
    }
    return 1;
}

/* Bytes that no sample adds to: those of the weights, of a wgrad of its result. */
static double bytes_of_weights(const tandem_work *w)
{
    const tandem_convolution *const v = &w->convolution;
    const int is_convolution = w->work_class == TANDEM_WORK_CONVOLUTION;
    if (!w->is_product || w->work_class == TANDEM_WORK_MATMUL) return 0;
    if (w->pass != TANDEM_PASS_WGRAD)
        return w->element_bytes *
               (is_convolution ? v->kernel_h * v->kernel_w * v->channels_in * v->channels_out : w->k * w->n);
    const double x = is_convolution ? v->images * v->height * v->width * v->channels_in : w->m * w->k;
    return fmax(0, w->bytes - w->element_bytes * (x + w->k * w->n));
}

int tandem_work_of_batch(tandem_work *scaled, const tandem_work *work, double times)
{
    tandem_work w = *work;
    const double weights = bytes_of_weights(&w);
    double *const rows = w.pass == TANDEM_PASS_WGRAD ? &w.k : &w.m;
    double *const batch = w.work_class == TANDEM_WORK_CONVOLUTION ? &w.convolution.images
                          : w.work_class == TANDEM_WORK_MATMUL    ? &w.count
                                                                  : rows;
    /* elementwise tasks have no rows; they are as large as their bytes */
    const double size = w.is_product ? *batch : w.rows > 0 ? w.rows : w.bytes;
    if (!(size * times >= 1)) return 0;
    if (w.is_product) *batch *= times;
    if (w.work_class == TANDEM_WORK_CONVOLUTION) *rows *= times;
    w.rows *= times;
    w.flops *= times;
    w.bytes = weights + (w.bytes - weights) * times;
    *scaled = w;
    return 1;
}

static void set_element_bytes(tandem_product_sizes *p, const tandem_cost_key *key)
{
    /* A result that is added to another one reads that first. */
    const int is_added = field_value(key->signature, "accumulate") > 0;
    p->operand_bytes = dtype_size(key->from);
    p->result_bytes = dtype_size(key->to) * (is_added ? 2 : 1);
}

/* From one row of a tensor to the next. */
static double stored_columns(const char *signature, double columns)
{
    const double row = field_value(signature, "padded");
    return row > 0 ? row : columns;
}

/* linear, and matmul, which has a batch of products. */
static void matmul_work(tandem_work *work, const tandem_cost_key *key)
{
    tandem_product_sizes p = {
        .count = field_text(key->signature, "batch") ? field_value(key->signature, "batch") : 1,
        .m = field_value(key->signature, "m"),
        .k = field_value(key->signature, "k"),
        .n = field_value(key->signature, "n")};
    set_element_bytes(&p, key);
    const product_operands operands = {p.count * p.m * p.k, p.count * p.k * p.n,
                                       p.count * p.m * stored_columns(key->signature, p.n)};
    (void)set_product_work(work, &p, &operands, work->type, key->pass);
}

static void conv2d_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const in = key->signature, *const out = strstr(in, " -> ");
    tandem_product_sizes p = {0};
    if (!out) return;
    const tandem_convolution v = {.images = field_value(in, "n"),
                                  .channels_in = field_value(in, "c"),
                                  .height = field_value(in, "h"),
                                  .width = field_value(in, "w"),
                                  .channels_out = field_value(out, "c"),
                                  .kernel_h = field_value(out, "k"),
                                  .kernel_w = second_value(out, "k"),
                                  .pad_h = field_value(out, "p"),
                                  .pad_w = field_value(out, "p"),
                                  .stride_h = field_value(out, "s"),
                                  .stride_w = field_value(out, "s")};
    set_element_bytes(&p, key);
    (void)tandem_work_of_convolution(work, &v, work->type, key->pass, p.operand_bytes, p.result_bytes);
}

/* --- Other kinds with a formula of their own ------------------------------------------------------------ */

/* The number of windows on images of n × h × w; `attributes` has kernel, stride and padding. */
static double count_windows(const char *images, const char *attributes)
{
    /* more padding at the end counts half on each side; entries of a window may lie apart */
    const double stride = field_value(attributes, "s"), apart = fmax(1, field_value(attributes, "d")),
                 pad = field_value(attributes, "p") + field_value(attributes, "e") / 2,
                 reach_h = (field_value(attributes, "k") - 1) * apart + 1,
                 reach_w = (second_value(attributes, "k") - 1) * apart + 1;
    return field_value(images, "n") * count_along(field_value(images, "h"), pad, reach_h, stride) *
           count_along(field_value(images, "w"), pad, reach_w, stride);
}

static double count_pixels(const char *images)
{
    return field_value(images, "n") * field_value(images, "h") * field_value(images, "w");
}

static void pool_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const text = key->signature;
    const double c = field_value(text, "c"), in = count_pixels(text) * c, out = count_windows(text, text) * c;
    work->flops = out * field_value(text, "k") * second_value(text, "k");
    work->bytes = in * dtype_size(key->from) + out * dtype_size(key->to);
}

/* Forward reads and writes `rows` rows of f32; backward writes the gradient of the whole table. */
static void embedding_work(tandem_work *work, const tandem_cost_key *key)
{
    const double width = field_value(key->signature, "width"),
                 rows = width * field_value(key->signature, "rows"),
                 table = width * field_value(key->signature, "vocabulary");
    if (key->pass == TANDEM_PASS_FORWARD)
        work->bytes = rows * (dtype_size(TANDEM_F32) + dtype_size(key->to));
    else
        work->bytes = rows * dtype_size(key->from) + (table + rows) * dtype_size(key->to);
}

/* Few multiplications per element, so that it moves more than it computes: no product. One backward task
 * computes both gradients. */
static void grouped_conv2d_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const out = strstr(key->signature, " -> ");
    const double groups = out ? field_value(out, "g") : 0;
    if (!(groups > 0)) return;
    const double c_in = field_value(key->signature, "c"), c_out = field_value(out, "c"),
                 depth = field_value(out, "k") * second_value(out, "k") * c_in / groups,
                 x = count_pixels(key->signature) * c_in, y = count_windows(key->signature, out) * c_out;
    const int passes = key->pass == TANDEM_PASS_FORWARD ? 1 : 2;
    work->flops = 2 * y * depth * passes;
    work->bytes = (passes * (x + depth * c_out) + y) * dtype_size(key->from);
}

/* Logits are read and probabilities written in f32; backward these are read, and the logits' gradient is
 * written in their dtype. saved: logits are read both times, and the rest is small. */
static void cross_entropy_work(tandem_work *work, const tandem_cost_key *key)
{
    const double rows = field_value(key->signature, "rows"), columns = field_value(key->signature, "n"),
                 elements = rows * columns, logits = rows * stored_columns(key->signature, columns);
    work->flops = 5 * elements;
    const int is_forward = key->pass == TANDEM_PASS_FORWARD;
    if (!is_forward && key->pass != TANDEM_PASS_DGRAD) return;
    if (field_value(key->signature, "saved") > 0)
        work->bytes = logits * dtype_size(key->from) * (is_forward ? 1 : 2);
    else
        work->bytes = elements * (dtype_size(key->from) + dtype_size(TANDEM_F32));
}

/* q, k and v are read and the result is written; backward reads these four and the gradient, and writes
 * three. The statistics of a row are f32. Forward has two products of every head's (rows, columns) by the
 * depth. Backward has seven: scores and gradients of probabilities are made for the rows of q, and for those
 * of k and v. A causal mask leaves half of each out. *estimate*: on a described device it would
 * take the time of one product; no such device has the operator. */
static void attention_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const text = key->signature;
    const double heads = field_value(text, "heads"), rows = field_value(text, "rows"),
                 columns = field_value(text, "columns"), depth = field_value(text, "depth"),
                 seen = field_value(text, "causal") > 0 ? 0.5 : 1, of_rows = heads * rows * depth,
                 of_columns = heads * columns * depth, in = dtype_size(key->from);
    const int is_forward = key->pass == TANDEM_PASS_FORWARD, n_product = is_forward ? 2 : 7;
    if (!is_forward && key->pass != TANDEM_PASS_DGRAD) return;
    const double statistics = heads * rows * dtype_size(TANDEM_F32),
                 gradients = (of_rows + 2 * of_columns) * dtype_size(key->to);
    *work = (tandem_work){.work_class = TANDEM_WORK_MATMUL,
                          .kind = work->kind,
                          .type = work->type,
                          .pass = work->pass,
                          .flops = n_product * seen * 2 * heads * rows * columns * depth,
                          .bytes = is_forward ? 2 * (of_rows + of_columns) * in + statistics
                                              : (3 * of_rows + 2 * of_columns) * in + gradients + statistics,
                          .element_bytes = in,
                          .is_product = 1,
                          .count = heads,
                          .m = rows,
                          .n = columns,
                          .k = n_product * seen * depth};
}

static const struct {
    const char *name;
    void (*set)(tandem_work *work, const tandem_cost_key *key);
} shaped_kinds[] = {{"attention", attention_work},
                    {"grouped_conv2d", grouped_conv2d_work},
                    {"linear", matmul_work},
                    {"matmul", matmul_work},
                    {"conv2d", conv2d_work},
                    {"maxpool", pool_work},
                    {"avgpool", pool_work},
                    {"embedding", embedding_work},
                    {"cross_entropy", cross_entropy_work}};

/* --- Streams of elements -------------------------------------------------------------------------------- */

/* The fields whose product is the number of elements; NULL = the dimensions in the text. For each pass, how
 * often every element is read or written, in the dtype of the operands. FLOPs per element. */
static const struct {
    const char *name, *fields;
    double accesses[TANDEM_N_PASS], flops;
} stream_kinds[] = {
    /* written; the copy to the device is not counted */
    {"images", "n h w c", {1, 0, 0, 0}, 0},
    {"tokens", "n length", {1, 0, 0, 0}, 0},
    {"labels", "n length", {1, 0, 0, 0}, 0},
    {"bias", "n", {2, 0, 1, 0}, 1},
    {"relu", "n", {2, 3, 0, 0}, 1},
    {"add", "n", {3, 0, 0, 0}, 1},
    {"accumulate", "n", {0, 3, 0, 0}, 1},
    {"dropout", "n", {2, 2, 0, 0}, 16}, /* mostly random numbers */
    {"tanh", "n", {2, 3, 0, 0}, 8},
    {"gelu", "n", {2, 3, 0, 0}, 8},
    {"bias_gelu", "n", {2, 3, 0, 0}, 9},
    {"transpose", NULL, {2, 2, 0, 0}, 0},
    {"slice", "n of row", {2, 2, 0, 0}, 0},
    {"gather_labelled", "n rows row", {2, 2, 0, 0}, 0},
    {"concat_token", "n of row", {2, 2, 1, 0}, 0},
    /* *estimates*: a stream, and a norm */
    {"call", "n", {2, 3, 0, 0}, 1},
    {"call_trained", "n", {2, 3, 2, 0}, 7},
    {"concat", "n of row", {2, 2, 0, 0}, 0},
    {"mul", "n", {3, 5, 0, 0}, 1},
    {"map", "n", {2, 3, 0, 0}, 8},
    {"scale", "rows n", {2, 3, 0, 0}, 1},
    {"mul_constant", "n", {2, 2, 0, 0}, 1}, /* the factors are few, and stay in a cache */
    {"repeat", "n of row", {2, 2, 0, 0}, 0},
    {"softmax", "rows n", {2, 3, 0, 0}, 6},
    /* backward: input and gradient for the rows' sums, and again for the columns' */
    {"layernorm", "rows n", {2, 5, 0, 0}, 7},
    {"batchnorm", "rows n", {3, 5, 0, 0}, 7}, /* statistics first, then the result */
    {"batchnorm_relu", "rows n", {3, 5, 0, 0}, 8},
    /* backward: the sums and the residual's gradient, then the gradient of x from that */
    {"batchnorm_add_relu", "rows n", {4, 7, 0, 0}, 9},
    /* gradients read, then scaled where their norm is too large */
    {"norm", "n", {0, 0, 0, 3}, 3},
    /* weight, gradient and momentum read, weight and momentum written */
    {"sgd", "n", {0, 0, 0, 5}, 4},
    {"adamw", "n", {0, 0, 0, 7}, 12}, /* one more state */
};

static double count_elements(const char *signature, const char *fields)
{
    double elements = 1;
    char name[8];
    if (!fields) return elements_of_dimensions(signature);
    for (; *fields; fields += strspn(fields, " ")) {
        const size_t n = strcspn(fields, " ");
        memcpy(name, fields, n);
        name[n] = '\0';
        elements *= field_value(signature, name);
        fields += n;
    }
    return elements;
}

static void set_product_sizes(tandem_task_sizes *sizes, const char *signature)
{
    const double batch = field_text(signature, "batch") ? field_value(signature, "batch") : 1,
                 m = field_value(signature, "m"), k = field_value(signature, "k"),
                 n = field_value(signature, "n");
    sizes->input = batch * m * k;
    sizes->weight = batch * k * n;
    sizes->output = batch * m * n;
}

/* Of a convolution or, where nothing follows, of a pool. */
static void set_image_sizes(tandem_task_sizes *sizes, const char *signature)
{
    const char *const after = strstr(signature, " -> "), *const out = after ? after : signature;
    const double c_in = field_value(signature, "c"), c_out = field_value(out, "c");
    sizes->input = count_pixels(signature) * c_in;
    sizes->output = count_windows(signature, out) * c_out;
    if (after) sizes->weight = field_value(out, "k") * second_value(out, "k") * c_in * c_out;
}

static int is_operator_kind(const char *signature, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(signature, name, n) == 0 && (signature[n] == ' ' || signature[n] == '\0');
}

tandem_task_sizes tandem_task_sizes_of(const char *signature)
{
    tandem_task_sizes sizes = {.parameters = field_value(signature, "parameters")};
    for (size_t i = 0; i < sizeof stream_kinds / sizeof *stream_kinds; i++)
        if (is_operator_kind(signature, stream_kinds[i].name))
            sizes.elements = count_elements(signature, stream_kinds[i].fields);
    if (is_operator_kind(signature, "cross_entropy"))
        sizes.elements = field_value(signature, "rows") * field_value(signature, "n");
    if (is_operator_kind(signature, "linear") || is_operator_kind(signature, "matmul"))
        set_product_sizes(&sizes, signature);
    if (is_operator_kind(signature, "conv2d") || is_operator_kind(signature, "maxpool") ||
        is_operator_kind(signature, "avgpool"))
        set_image_sizes(&sizes, signature);
    return sizes;
}

/* --- Any key -------------------------------------------------------------------------------------------- */

/* A cast to one byte whose range is not known reads the tensor twice, first for the largest magnitude; mxfp8
 * has no scale of the tensor. A transposed copy is as large as the other one, and types in blocks have two:
 * products sum along two dimensions, so Transformer Engine writes both at once. */
static void cast_work(tandem_work *work, const tandem_cost_key *key)
{
    const int finds_range = tandem_dtype_bytes(key->to) == 1 && key->to != TANDEM_MXFP8 &&
                            key->range_source == TANDEM_RANGE_FOUND,
              has_copy = key->transposed_copy || tandem_dtype_is_in_blocks(key->to);
    work->kind = "cast";
    work->bytes = (double)key->elements *
                  ((1 + finds_range) * dtype_size(key->from) + (1 + has_copy) * dtype_size(key->to));
}

/* Rows that a forward pass reads more than once. */
static void set_row_work(tandem_work *work, const tandem_cost_key *key)
{
    if (key->pass != TANDEM_PASS_FORWARD) return;
    if (strcmp(work->kind, "softmax") == 0) work->work_class = TANDEM_WORK_SOFTMAX;
    if (strcmp(work->kind, "layernorm") == 0) work->work_class = TANDEM_WORK_LAYERNORM;
    if (work->work_class == TANDEM_WORK_STREAM) return;
    work->rows = field_value(key->signature, "rows");
    work->columns = field_value(key->signature, "n");
    work->element_bytes = dtype_size(key->from);
}

static void set_operator_work(tandem_work *work, const tandem_cost_key *key)
{
    for (size_t i = 0; i < sizeof shaped_kinds / sizeof *shaped_kinds; i++)
        if (is_operator_kind(key->signature, shaped_kinds[i].name)) {
            work->kind = shaped_kinds[i].name;
            shaped_kinds[i].set(work, key);
        }
    for (size_t i = 0; i < sizeof stream_kinds / sizeof *stream_kinds; i++) {
        if (!is_operator_kind(key->signature, stream_kinds[i].name)) continue;
        work->kind = stream_kinds[i].name;
        const double period = field_value(key->signature, "period"),
                     gaps = period > 0 ? stored_columns(key->signature, period) / period : 1,
                     elements = count_elements(key->signature, stream_kinds[i].fields);
        work->flops = elements * stream_kinds[i].flops;
        work->bytes = gaps * elements * stream_kinds[i].accesses[key->pass] * dtype_size(key->from);
        set_row_work(work, key);
    }
}

/* The dtype that it computes in: that of its operands, or that which its precision rounds them to. */
static tandem_dtype compute_dtype_of(const tandem_cost_key *key)
{
    for (int p = 0; p < TANDEM_N_PRECISION && key->kind == TANDEM_COST_OP; p++)
        if (strcmp(key->precision, tandem_precision_get((tandem_precision)p)->name) == 0)
            return tandem_precision_product_dtype((tandem_precision)p, key->from);
    return key->from;
}

int tandem_work_of(tandem_work *out, const tandem_cost_key *key)
{
    tandem_work work = {.type = compute_dtype_of(key), .pass = key->pass};
    if (key->kind == TANDEM_COST_CAST) cast_work(&work, key);
    if (key->kind == TANDEM_COST_OP) set_operator_work(&work, key);
    if (!(work.bytes > 0) || !isfinite(work.bytes) || !isfinite(work.flops)) return 0;
    *out = work;
    return 1;
}
