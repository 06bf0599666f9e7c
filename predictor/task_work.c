/* task_work.c: how much a task computes and moves, from the text of its cost key (graph/ir/signature.c,
 * graph/step/cost_key.c). Numbers are double: a text that nobody wrote for us may hold any. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/predictor.h"

/* --- Reading a signature: "linear m=784 k=192 n=192" ---------------------------------------------------- */

/* What stands behind the first " name=" of `text`; NULL = nothing. */
static const char *field_text(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, name, n) == 0 && at[n + 1] == '=') return at + n + 2;
    return NULL;
}

static double field_number(const char *text, const char *name)
{
    const char *const value = field_text(text, name);
    return value ? (double)strtoll(value, NULL, 10) : 0;
}

/* The second number of "name=3x5". */
static double field_second_number(const char *text, const char *name)
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

static double dtype_size(tandem_dtype dtype) { return (double)tandem_dtype_bytes(dtype); }

/* One of the three products of x (m, k) and w (k, n), which with y hold that many elements in all:
 * forward x·w → y, dgrad y·wᵀ → x, wgrad xᵀ·y → w. */
typedef struct matrix_product {
    double count, m, k, n, x, w, y;
} matrix_product;

static void set_product_work(tandem_work *work, const tandem_cost_key *key, const matrix_product *p)
{
    /* to what is read before */
    const double in = dtype_size(key->from), n_added = field_number(key->signature, "accumulate");
    const double out = dtype_size(key->to) * (n_added > 0 ? 2 : 1);
    work->is_product = 1;
    work->time_factor = 1;
    work->count = p->count;
    switch (key->pass) {
    case TANDEM_PASS_FORWARD:
        work->m = p->m, work->n = p->n, work->k = p->k;
        work->bytes = (p->x + p->w) * in + p->y * out;
        break;
    case TANDEM_PASS_DGRAD:
        work->m = p->m, work->n = p->k, work->k = p->n;
        work->bytes = (p->y + p->w) * in + p->x * out;
        break;
    case TANDEM_PASS_WGRAD:
        work->m = p->k, work->n = p->n, work->k = p->m;
        work->bytes = (p->x + p->y) * in + p->w * out;
        break;
    default: return; /* a product has no other pass: nothing is known of it */
    }
    work->flops = 2 * p->count * p->m * p->n * p->k;
}

static void linear_work(tandem_work *work, const tandem_cost_key *key)
{
    matrix_product p = {.count = 1,
                        .m = field_number(key->signature, "m"),
                        .k = field_number(key->signature, "k"),
                        .n = field_number(key->signature, "n")};
    p.x = p.m * p.k, p.w = p.k * p.n, p.y = p.m * p.n;
    set_product_work(work, key, &p);
}

static void matmul_work(tandem_work *work, const tandem_cost_key *key)
{
    matrix_product p = {.count = field_number(key->signature, "batch"),
                        .m = field_number(key->signature, "m"),
                        .k = field_number(key->signature, "k"),
                        .n = field_number(key->signature, "n")};
    p.x = p.count * p.m * p.k, p.w = p.count * p.k * p.n, p.y = p.count * p.m * p.n;
    set_product_work(work, key, &p);
}

/* How many windows the kernel that `attributes` tell has on images of n × h × w. */
static double count_windows(const char *elements_images, const char *attributes)
{
    const double stride = field_number(attributes, "s"), pad = field_number(attributes, "p");
    const double h =
        floor((field_number(elements_images, "h") + 2 * pad - field_number(attributes, "k")) / stride) + 1;
    const double w =
        floor((field_number(elements_images, "w") + 2 * pad - field_second_number(attributes, "k")) /
              stride) +
        1;
    return stride > 0 && h > 0 && w > 0 ? field_number(elements_images, "n") * h * w : 0;
}

static double count_pixels(const char *elements_images)
{
    return field_number(elements_images, "n") * field_number(elements_images, "h") *
           field_number(elements_images, "w");
}

/* A backward pass of a convolution in forward passes. Both together take 2.5 of them (V100, f32), 2.6 (V100,
 * f16), 2.8 (P100), 2.9 (Titan Xp), each the median over the training convolutions of Baidu's DeepBench
 * (github.com/baidu-research/DeepBench at da81ba7, results/train); 1.35 is half of 2.7, the middle of these.
 * */
static const double convolution_backward = 1.35;
/* In f32, 3 × 3 kernels of stride 1 are transformed so that they multiply up to 2.25 times less, 0.44 (Lavin
 * and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016). What the transforms leave of
 * that, 0.7, is an *estimate*. */
static const double convolution_transformed = 0.7;

/* As a product whose rows are windows, or pixels. */
static void conv2d_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const out = strstr(key->signature, " -> ");
    if (!out) return;
    const double c_in = field_number(key->signature, "c"), c_out = field_number(out, "c"),
                 m = count_windows(key->signature, out),
                 k = field_number(out, "k") * field_second_number(out, "k") * c_in;
    const matrix_product p = {.count = 1,
                              .m = m,
                              .k = k,
                              .n = c_out,
                              .x = count_pixels(key->signature) * c_in,
                              .w = k * c_out,
                              .y = m * c_out};
    set_product_work(work, key, &p);
    if (key->pass == TANDEM_PASS_DGRAD) { /* each pixel collects from the windows it lies in */
        work->m = count_pixels(key->signature);
        work->n = c_in;
        work->k = work->flops / (2 * work->m * work->n);
    }
    if (work->type == TANDEM_F32 && field_number(out, "k") == 3 && field_second_number(out, "k") == 3 &&
        field_number(out, "s") == 1)
        work->time_factor = convolution_transformed;
    if (key->pass != TANDEM_PASS_FORWARD) work->time_factor *= convolution_backward;
}

/* --- Others with a shape of their own ------------------------------------------------------------------- */

static void pool_work(tandem_work *work, const tandem_cost_key *key)
{
    const char *const text = key->signature;
    const double c = field_number(text, "c"), in = count_pixels(text) * c,
                 out = count_windows(text, text) * c;
    work->flops = out * field_number(text, "k") * field_second_number(text, "k");
    work->bytes = in * dtype_size(key->from) + out * dtype_size(key->to);
}

static void embedding_work(tandem_work *work, const tandem_cost_key *key)
{
    const double width = field_number(key->signature, "width"),
                 elements_rows = width * field_number(key->signature, "rows"),
                 table = width * field_number(key->signature, "vocabulary");
    const int is_forward = key->pass == TANDEM_PASS_FORWARD; /* else all of the table's gradient is written */
    work->bytes = is_forward
                      ? elements_rows * (dtype_size(TANDEM_F32) + dtype_size(key->to))
                      : elements_rows * dtype_size(key->from) + (table + elements_rows) * dtype_size(key->to);
}

static const struct {
    const char *name;
    void (*set)(tandem_work *work, const tandem_cost_key *key);
} shaped_kinds[] = {{"linear", linear_work}, {"matmul", matmul_work}, {"conv2d", conv2d_work},
                    {"maxpool", pool_work},  {"avgpool", pool_work},  {"embedding", embedding_work}};

/* --- Streams of elements -------------------------------------------------------------------------------- */

static double elements_n(const char *text) { return field_number(text, "n"); }
static double elements_rows(const char *text) { return field_number(text, "rows") * field_number(text, "n"); }
static double elements_images(const char *text) { return count_pixels(text) * field_number(text, "c"); }
static double elements_symbols(const char *text)
{
    return field_number(text, "n") * field_number(text, "length");
}
static double elements_blocks(const char *text)
{
    return field_number(text, "n") * field_number(text, "of") * field_number(text, "row");
}

/* Backward also zeros. */
static double elements_labelled(const char *text)
{
    return field_number(text, "n") * field_number(text, "rows") * field_number(text, "row");
}

/* For each pass: how often every element is read or written, in the type of the operands. Then FLOPs an
 * element. */
static const struct {
    const char *name;
    double (*elements)(const char *signature);
    double accesses[TANDEM_N_PASS], flops;
} stream_kinds[] = {
    /* written; how samples come to the device is not its work */
    {"images", elements_images, {1, 0, 0, 0}, 0},
    {"tokens", elements_symbols, {1, 0, 0, 0}, 0},
    {"labels", elements_symbols, {1, 0, 0, 0}, 0},
    {"bias", elements_n, {2, 0, 1, 0}, 1},
    {"relu", elements_n, {2, 3, 0, 0}, 1},
    {"add", elements_n, {3, 0, 0, 0}, 1},
    {"accumulate", elements_n, {0, 3, 0, 0}, 1},
    {"dropout", elements_n, {2, 2, 0, 0}, 16}, /* nearly all of it draws */
    {"tanh", elements_n, {2, 3, 0, 0}, 8},
    {"gelu", elements_n, {2, 3, 0, 0}, 8},
    {"bias_gelu", elements_n, {2, 3, 0, 0}, 9},
    {"transpose", elements_of_dimensions, {2, 2, 0, 0}, 0},
    {"slice", elements_blocks, {2, 2, 0, 0}, 0},
    {"gather_labelled", elements_labelled, {2, 2, 0, 0}, 0},
    {"concat_token", elements_blocks, {2, 2, 1, 0}, 0},
    {"softmax", elements_rows, {2, 3, 0, 0}, 6},
    {"cross_entropy", elements_rows, {2, 2, 0, 0}, 5},
    /* backward: input and gradient for the rows' sums, and for the columns' */
    {"layernorm", elements_rows, {2, 5, 0, 0}, 7},
    {"batchnorm", elements_rows, {3, 5, 0, 0}, 7}, /* statistics first, then the result */
    {"batchnorm_relu", elements_rows, {3, 5, 0, 0}, 8},
    /* backward: the sums, and the residual's gradient; then x's from that */
    {"batchnorm_add_relu", elements_rows, {4, 7, 0, 0}, 9},
    /* gradients read, then read and written where they are too large */
    {"norm", elements_n, {0, 0, 0, 3}, 3},
    /* weight, gradient and momentum read, weight and momentum written */
    {"sgd", elements_n, {0, 0, 0, 5}, 4},
    {"adamw", elements_n, {0, 0, 0, 7}, 12}, /* one state more */
};

/* --- Any key -------------------------------------------------------------------------------------------- */

/* To one byte of a range that is not known: once more over all of it, for the largest magnitude. A
 * column-wise copy is as large as the row-wise one. */
static void cast_work(tandem_work *work, const tandem_cost_key *key)
{
    const int n_read = tandem_dtype_bytes(key->to) == 1 && key->range_source == TANDEM_RANGE_FOUND ? 2 : 1;
    work->kind = "cast";
    work->bytes = (double)key->elements *
                  (n_read * dtype_size(key->from) + (1 + key->transposed_copy) * dtype_size(key->to));
}

static int is_operator_kind(const char *signature, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(signature, name, n) == 0 && (signature[n] == ' ' || signature[n] == '\0');
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
        const double elements = stream_kinds[i].elements(key->signature);
        work->flops = elements * stream_kinds[i].flops;
        work->bytes = elements * stream_kinds[i].accesses[key->pass] * dtype_size(key->from);
    }
}

/* In which type it computes: that of its operands, unless its precision has them rounded. */
static tandem_dtype compute_dtype_of(const tandem_cost_key *key)
{
    for (int p = 0; p < TANDEM_N_PRECISION && key->kind == TANDEM_COST_OP; p++)
        if (strcmp(key->precision, tandem_precision_get((tandem_precision)p)->name) == 0)
            return tandem_precision_product_dtype((tandem_precision)p, key->from);
    return key->from;
}

int tandem_work_of(tandem_work *out, const tandem_cost_key *key)
{
    tandem_work work = {.type = compute_dtype_of(key)};
    if (key->kind == TANDEM_COST_CAST) cast_work(&work, key);
    if (key->kind == TANDEM_COST_OP) set_operator_work(&work, key);
    if (!(work.bytes > 0) || !isfinite(work.bytes) || !isfinite(work.flops)) return 0;
    *out = work;
    return 1;
}
