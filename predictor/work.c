/* work.c: how much a task computes and moves, from the text of its cost key (graph/signature.c,
 * graph/cost_key.c). Numbers are double: a text that nobody wrote for us may hold any. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/predictor.h"

/* --- Reading a signature: "linear m=784 k=192 n=192" ---------------------------------------------------- */

/* What stands behind the first " name=" of `text`; NULL = nothing. */
static const char *behind(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, name, n) == 0 && at[n + 1] == '=') return at + n + 2;
    return NULL;
}

static double field(const char *text, const char *name)
{
    const char *const value = behind(text, name);
    return value ? (double)strtoll(value, NULL, 10) : 0;
}

/* The second number of "name=3x5". */
static double second(const char *text, const char *name)
{
    const char *const value = behind(text, name), *const x = value ? strchr(value, 'x') : NULL;
    return x ? (double)strtoll(x + 1, NULL, 10) : 0;
}

/* "transpose 4x3x49x64 axes=0213": the product of the dimensions. */
static double dimensions(const char *text)
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

static double bytes_of(tandem_dtype dtype) { return (double)tandem_dtype_bytes(dtype); }

/* One of the three products of x (m, k) and w (k, n), which with y hold that many elements in all:
 * forward x·w → y, dgrad y·wᵀ → x, wgrad xᵀ·y → w. */
typedef struct product {
    double count, m, k, n, x, w, y;
} product;

static void set_product(tandem_work *work, const tandem_cost_key *key, const product *p)
{
    const double in = bytes_of(key->from), adds = field(key->signature, "adds"); /* to what is read before */
    const double out = bytes_of(key->to) * (adds > 0 ? 2 : 1);
    work->is_product = 1;
    work->slower = 1;
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

static void linear(tandem_work *work, const tandem_cost_key *key)
{
    product p = {.count = 1,
                 .m = field(key->signature, "m"),
                 .k = field(key->signature, "k"),
                 .n = field(key->signature, "n")};
    p.x = p.m * p.k, p.w = p.k * p.n, p.y = p.m * p.n;
    set_product(work, key, &p);
}

static void matmul(tandem_work *work, const tandem_cost_key *key)
{
    product p = {.count = field(key->signature, "batch"),
                 .m = field(key->signature, "m"),
                 .k = field(key->signature, "k"),
                 .n = field(key->signature, "n")};
    p.x = p.count * p.m * p.k, p.w = p.count * p.k * p.n, p.y = p.count * p.m * p.n;
    set_product(work, key, &p);
}

/* How many windows the kernel that `attributes` tell has on images of n × h × w. */
static double windows(const char *images, const char *attributes)
{
    const double stride = field(attributes, "s"), pad = field(attributes, "p");
    const double h = floor((field(images, "h") + 2 * pad - field(attributes, "k")) / stride) + 1;
    const double w = floor((field(images, "w") + 2 * pad - second(attributes, "k")) / stride) + 1;
    return stride > 0 && h > 0 && w > 0 ? field(images, "n") * h * w : 0;
}

static double pixels(const char *images)
{
    return field(images, "n") * field(images, "h") * field(images, "w");
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
static void conv2d(tandem_work *work, const tandem_cost_key *key)
{
    const char *const out = strstr(key->signature, " -> ");
    if (!out) return;
    const double c_in = field(key->signature, "c"), c_out = field(out, "c"), m = windows(key->signature, out),
                 k = field(out, "k") * second(out, "k") * c_in;
    const product p = {.count = 1,
                       .m = m,
                       .k = k,
                       .n = c_out,
                       .x = pixels(key->signature) * c_in,
                       .w = k * c_out,
                       .y = m * c_out};
    set_product(work, key, &p);
    if (key->pass == TANDEM_PASS_DGRAD) { /* each pixel collects from the windows it lies in */
        work->m = pixels(key->signature);
        work->n = c_in;
        work->k = work->flops / (2 * work->m * work->n);
    }
    if (work->type == TANDEM_F32 && field(out, "k") == 3 && second(out, "k") == 3 && field(out, "s") == 1)
        work->slower = convolution_transformed;
    if (key->pass != TANDEM_PASS_FORWARD) work->slower *= convolution_backward;
}

/* --- Others with a shape of their own ------------------------------------------------------------------- */

static void pool(tandem_work *work, const tandem_cost_key *key)
{
    const char *const text = key->signature;
    const double c = field(text, "c"), in = pixels(text) * c, out = windows(text, text) * c;
    work->flops = out * field(text, "k") * second(text, "k");
    work->bytes = in * bytes_of(key->from) + out * bytes_of(key->to);
}

static void embedding(tandem_work *work, const tandem_cost_key *key)
{
    const double width = field(key->signature, "width"), rows = width * field(key->signature, "rows"),
                 table = width * field(key->signature, "vocabulary");
    const int is_forward = key->pass == TANDEM_PASS_FORWARD; /* else all of the table's gradient is written */
    work->bytes = is_forward ? rows * (bytes_of(TANDEM_F32) + bytes_of(key->to))
                             : rows * bytes_of(key->from) + (table + rows) * bytes_of(key->to);
}

static const struct {
    const char *name;
    void (*set)(tandem_work *work, const tandem_cost_key *key);
} shaped[] = {{"linear", linear}, {"matmul", matmul}, {"conv2d", conv2d},
              {"maxpool", pool},  {"avgpool", pool},  {"embedding", embedding}};

/* --- Streams of elements -------------------------------------------------------------------------------- */

static double all(const char *text) { return field(text, "n"); }
static double rows(const char *text) { return field(text, "rows") * field(text, "n"); }
static double images(const char *text) { return pixels(text) * field(text, "c"); }
static double symbols(const char *text) { return field(text, "n") * field(text, "length"); }
static double blocks(const char *text) { return field(text, "n") * field(text, "of") * field(text, "row"); }

/* Backward also zeros. */
static double labelled(const char *text)
{
    return field(text, "n") * field(text, "rows") * field(text, "row");
}

/* For each pass: how often every element is read or written, in the type of the operands. Then FLOPs an
 * element. */
static const struct {
    const char *name;
    double (*elements)(const char *signature);
    double passes[TANDEM_N_PASS], flops;
} streams[] = {
    {"images", images, {1, 0, 0, 0}, 0}, /* written; how samples come to the device is not its work */
    {"tokens", symbols, {1, 0, 0, 0}, 0},
    {"labels", symbols, {1, 0, 0, 0}, 0},
    {"bias", all, {2, 0, 1, 0}, 1},
    {"relu", all, {2, 3, 0, 0}, 1},
    {"add", all, {3, 0, 0, 0}, 1},
    {"accumulate", all, {0, 3, 0, 0}, 1},
    {"dropout", all, {2, 2, 0, 0}, 16}, /* nearly all of it draws */
    {"tanh", all, {2, 3, 0, 0}, 8},
    {"gelu", all, {2, 3, 0, 0}, 8},
    {"bias_gelu", all, {2, 3, 0, 0}, 9},
    {"transpose", dimensions, {2, 2, 0, 0}, 0},
    {"slice", blocks, {2, 2, 0, 0}, 0},
    {"labelled", labelled, {2, 2, 0, 0}, 0},
    {"prepend", blocks, {2, 2, 1, 0}, 0},
    {"softmax", rows, {2, 3, 0, 0}, 6},
    {"cross_entropy", rows, {2, 2, 0, 0}, 5},
    /* backward: input and gradient for the rows' sums, and for the columns' */
    {"layernorm", rows, {2, 5, 0, 0}, 7},
    {"batchnorm", rows, {3, 5, 0, 0}, 7}, /* statistics first, then the result */
    {"batchnorm_relu", rows, {3, 5, 0, 0}, 8},
    /* backward: the sums, and the residual's gradient; then x's from that */
    {"batchnorm_add_relu", rows, {4, 7, 0, 0}, 9},
    {"norm", all, {0, 0, 0, 3}, 3},   /* gradients read, then read and written where they are too large */
    {"sgd", all, {0, 0, 0, 5}, 4},    /* weight, gradient and momentum read, weight and momentum written */
    {"adamw", all, {0, 0, 0, 7}, 12}, /* one state more */
};

/* --- Any key -------------------------------------------------------------------------------------------- */

/* To one byte of a range that is not known: once more over all of it, for the largest magnitude. A
 * column-wise copy is as large as the row-wise one. */
static void cast(tandem_work *work, const tandem_cost_key *key)
{
    const int reads = tandem_dtype_bytes(key->to) == 1 && key->range == TANDEM_RANGE_FOUND ? 2 : 1;
    work->kind = "cast";
    work->bytes =
        (double)key->elements * (reads * bytes_of(key->from) + (1 + key->columnwise) * bytes_of(key->to));
}

static int is_kind(const char *signature, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(signature, name, n) == 0 && (signature[n] == ' ' || signature[n] == '\0');
}

static void operator_work(tandem_work *work, const tandem_cost_key *key)
{
    for (size_t i = 0; i < sizeof shaped / sizeof *shaped; i++)
        if (is_kind(key->signature, shaped[i].name)) {
            work->kind = shaped[i].name;
            shaped[i].set(work, key);
        }
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        if (!is_kind(key->signature, streams[i].name)) continue;
        work->kind = streams[i].name;
        const double elements = streams[i].elements(key->signature);
        work->flops = elements * streams[i].flops;
        work->bytes = elements * streams[i].passes[key->pass] * bytes_of(key->from);
    }
}

/* In which type it computes: that of its operands, unless its precision has them rounded. */
static tandem_dtype type_of(const tandem_cost_key *key)
{
    for (int p = 0; p < TANDEM_N_PRECISION && key->kind == TANDEM_COST_OP; p++)
        if (strcmp(key->precision, tandem_precision_get((tandem_precision)p)->name) == 0)
            return tandem_precision_multiplies((tandem_precision)p, key->from);
    return key->from;
}

int tandem_work_of(tandem_work *out, const tandem_cost_key *key)
{
    tandem_work work = {.type = type_of(key)};
    if (key->kind == TANDEM_COST_CAST) cast(&work, key);
    if (key->kind == TANDEM_COST_OP) operator_work(&work, key);
    if (!(work.bytes > 0) || !isfinite(work.bytes) || !isfinite(work.flops)) return 0;
    *out = work;
    return 1;
}
