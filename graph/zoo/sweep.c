/* sweep.c: the networks of a sweep (zoo.h): branches of convolutions, transformers and perceptrons side by
 * side, of drawn sizes, whose results are added. Together they hold the operators of training across sizes,
 * caches and tiles.
 *
 * A step runs one branch after the other, forward and then backward, so that between two uses of a weight or
 * an activation lies the rest of the step: as in training, no operand waits in a cache for its next use. A
 * tiny task took up to three times as long as in a small network of its own, where all stays in the cache.
 * Perceptrons are alone, because such models are small.
 *
 * Sources have shapes that models have not: images four times as high as wide, and texts of seven parts.
 * Else a replay would take a network for the model at another batch, and interpolate.
 *
 * How much a branch computes follows a sequence of low discrepancy (fractions of multiples of the golden
 * ratio), so that any number of first networks is spread over all sizes. Other sizes are drawn: the same on
 * every machine. */
#include "graph/zoo/zoo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Multiplications and additions of the forward pass of a branch, and of a network about. */
static const double least_flops = 2e5, most_flops = 1e9, network_flops = 4e8;
/* At most, about: rows of text; logits; positions of an image. */
enum { MAX_BRANCH = 12, PARTS = 7, MAX_ROWS = 2048, MAX_LOGITS = 1 << 20, MAX_GRID = 14 };

typedef struct sweep_network {
    uint64_t state;   /* of draws */
    int64_t n_branch; /* of all networks up to here */
    int64_t batch, classes;
    int64_t side, channels;     /* of images */
    int64_t length, vocabulary; /* of a part of a text; 0 = images */
    char scope[16];             /* of the branch */
    double flops;               /* of the branch */
    int layer;                  /* of the branch */
} sweep_network;

/* Even in [0, 1): splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static double draw_share(sweep_network *d)
{
    uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int draw_is(sweep_network *d, double share) { return draw_share(d) < share; }

/* Even in the logarithm. */
static int64_t draw_size(sweep_network *d, double low, double high)
{
    return (int64_t)(low * pow((high + 1) / low, draw_share(d)));
}

static int64_t draw_from_list(sweep_network *d, const int64_t *list, int n)
{
    return list[(int)(draw_share(d) * n)];
}
#define DRAW_OF(d, ...)                                                                                      \
    draw_from_list(d, (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* Widths are mostly multiples of 32, 16 or 8, as of models. */
static int64_t round_width(sweep_network *d, double width, double least, double most)
{
    const double w = fmin(most, fmax(least, width));
    const int64_t wanted = DRAW_OF(d, 32, 32, 32, 32, 16, 16, 16, 8, 8, 1);
    const int64_t step = w < 0.6 * (double)wanted ? 8 : wanted, n = llround(w / (double)step) * step;
    return n > 0 ? n : step;
}

/* A name within the branch. */
static tandem_zoo_name name_in_branch(sweep_network *d, const char *part)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s%d", part, d->layer++);
    return tandem_zoo_join_name(d->scope, text);
}

/* (batch, k) → (batch, classes) */
static int build_logits(tandem_builder *b, sweep_network *d, int x)
{
    return tandem_zoo_linear(b, name_in_branch(d, "head").text, x, d->classes, 0.02f);
}

/* --- Perceptrons ---------------------------------------------------------------------------------------- */

static int build_activation(tandem_builder *b, sweep_network *d, int x)
{
    const tandem_zoo_name name = name_in_branch(d, "f");
    const double kind = draw_share(d);
    if (kind < 0.5) return tandem_build_relu(b, name.text, x);
    if (kind < 0.7) return tandem_build_gelu(b, name.text, x);
    if (kind < 0.8) return tandem_build_tanh(b, name.text, x);
    if (kind < 0.9) return tandem_build_layernorm(b, name.text, x);
    return tandem_build_dropout(b, name.text, x, 0.1f);
}

/* Hidden layers of one width, with d->flops of work, or of widths that vary about it. */
static int build_perceptron(tandem_builder *b, sweep_network *d, int image)
{
    const int64_t depth = draw_size(d, 1, 4), flat[2] = {d->batch, d->side * d->side * d->channels};
    const int is_even = draw_is(d, 0.6);
    const double weights = d->flops / (2 * (double)d->batch), pixels = (double)flat[1],
                 half = pixels / (2 * (double)depth),
                 width = sqrt(half * half + weights / (double)depth) - half;
    int x = tandem_build_reshape(b, name_in_branch(d, "flat").text, image, 2, flat);
    const int64_t even = round_width(d, width, 8, 2048);
    for (int64_t i = 0; i < depth; i++) {
        const int64_t k = is_even ? even : round_width(d, width * exp(1.4 * draw_share(d) - 0.7), 8, 2048);
        x = tandem_zoo_linear(b, name_in_branch(d, "fc").text, x, k, 0.02f);
        x = build_activation(b, d, x);
    }
    return build_logits(b, d, x);
}

/* --- Convolutions --------------------------------------------------------------------------------------- */

/* The width with which a layer of 3x3 has the work of d->flops. */
static int64_t draw_channels(sweep_network *d, const tandem_shape *in)
{
    const double each = 18 * (double)(d->batch * in->dim[1] * in->dim[2]);
    return round_width(d, sqrt(d->flops / each) * exp(draw_share(d) - 0.5), 4, 768);
}

/* As widths of models go on: mostly the same, doubled where images shrink. */
static int64_t next_channels(sweep_network *d, const tandem_shape *in, int stride)
{
    const double same = (double)in->dim[3], kind = draw_share(d),
                 each = 18 * (double)(d->batch * in->dim[1] * in->dim[2]) * same / (stride * stride),
                 most = fmin(1024, fmax(8, 3 * d->flops / each));
    if (kind < 0.55 && same * stride <= most) return (int64_t)same * stride;
    if (kind < 0.65 && same * 4 <= most) return (int64_t)same * 4;
    if (kind < 0.75 && same >= 16) return (int64_t)same / 4;
    return round_width(d, fmax(16, same) * exp(2 * draw_share(d) - 1), 4, most);
}

/* A convolution, and its batchnorm or bias. */
static int build_sweep_conv(tandem_builder *b, sweep_network *d, int x, int kernel, int stride,
                            int64_t channels)
{
    const tandem_zoo_name name = name_in_branch(d, "conv");
    if (draw_is(d, 0.9)) return tandem_zoo_conv(b, "", name.text, x, channels, kernel, stride);
    x = tandem_build_conv2d(b, name.text, x, channels, kernel, stride, kernel / 2);
    return tandem_build_bias(b, tandem_zoo_join_name(name.text, "bias").text, x, 1, 0);
}

/* Now and then an operator that few models have. */
static int build_rare(tandem_builder *b, sweep_network *d, int x)
{
    static const tandem_function functions[] = {TANDEM_FUNCTION_SIGMOID,    TANDEM_FUNCTION_SWISH,
                                                TANDEM_FUNCTION_GELU_ERF,   TANDEM_FUNCTION_HARD_SWISH,
                                                TANDEM_FUNCTION_LEAKY_RELU, TANDEM_FUNCTION_SOFTPLUS};
    enum { N = sizeof functions / sizeof *functions };
    const tandem_zoo_name name = name_in_branch(d, "rare");
    const int64_t channels = tandem_shape_last(tandem_builder_shape(b, x));
    const double kind = draw_share(d);
    if (kind < 0.08) return tandem_build_map(b, name.text, x, functions[(int)(draw_share(d) * N)], 0.1f, 0);
    if (kind < 0.11) return tandem_build_scale(b, name.text, x);
    if (kind < 0.15) {
        const tandem_zoo_name gate = tandem_zoo_join_name(name.text, "gate");
        return tandem_build_mul(b, name.text, x,
                                tandem_build_map(b, gate.text, x, TANDEM_FUNCTION_SIGMOID, 0, 0));
    }
    if (kind < 0.18) return tandem_build_concat(b, name.text, x, x);
    if (kind > 0.25) return x;
    const int side = draw_is(d, 0.7) ? 3 : 5, groups = draw_is(d, 0.8) ? (int)channels : 1;
    const tandem_grouped_window window = {side, side, 1, side / 2, 0, 1, groups};
    return tandem_build_grouped_conv2d(b, name.text, x, channels, &window);
}

static int draw_kernel(sweep_network *d) { return (int)DRAW_OF(d, 3, 3, 3, 3, 3, 3, 1, 1, 1, 5); }

/* Two convolutions whose result is added to x, or to a convolution of x. */
static int build_sweep_residual(tandem_builder *b, sweep_network *d, int x, int stride)
{
    const int kernel = draw_kernel(d);
    const int64_t channels = tandem_shape_last(tandem_builder_shape(b, x));
    const int is_same = stride == 1 && draw_is(d, 0.75);
    const tandem_shape old = *tandem_builder_shape(b, x);
    int t = build_sweep_conv(b, d, x, kernel, stride, next_channels(d, &old, stride));
    t = build_rare(b, d, tandem_build_relu(b, name_in_branch(d, "relu").text, t));
    const tandem_shape inner = *tandem_builder_shape(b, t);
    t = build_sweep_conv(b, d, t, kernel == 1 ? 3 : draw_kernel(d), 1,
                         is_same ? channels : next_channels(d, &inner, 1));
    const tandem_shape out = *tandem_builder_shape(b, t);
    if (out.dim[1] * stride > old.dim[1] + stride) return t; /* joined images are twice as high */
    if (!is_same) x = build_sweep_conv(b, d, x, 1, stride, out.dim[3]);
    t = tandem_build_add(b, name_in_branch(d, "add").text, x, t);
    return tandem_build_relu(b, name_in_branch(d, "out").text, t);
}

/* The mean over all pixels. */
static int build_pooled_logits(tandem_builder *b, sweep_network *d, int x)
{
    const tandem_shape last = *tandem_builder_shape(b, x);
    const int64_t flat[2] = {d->batch, last.dim[3]};
    x = tandem_build_avgpool(b, name_in_branch(d, "pool").text, x, (int)last.dim[1], (int)last.dim[2], 1);
    return build_logits(b, d, tandem_build_reshape(b, name_in_branch(d, "flat").text, x, 2, flat));
}

static int view_square(tandem_builder *b, sweep_network *d, int image)
{
    const int64_t dim[4] = {d->batch, d->side, d->side, d->channels};
    return tandem_build_reshape(b, name_in_branch(d, "square").text, image, 4, dim);
}

/* The image's pixels are one image, or are divided into a smaller one with more channels. */
static int view_image(tandem_builder *b, sweep_network *d, int image)
{
    const int64_t deal = d->flops > 3e7 ? DRAW_OF(d, 1, 1, 2) : DRAW_OF(d, 1, 2, 2, 4, 4),
                  side = d->side / deal, dim[4] = {d->batch, side, side, d->channels * deal * deal};
    if (side * deal != d->side) return view_square(b, d, image);
    return tandem_build_reshape(b, name_in_branch(d, "view").text, image, 4, dim);
}

static int build_convolutions(tandem_builder *b, sweep_network *d, int image)
{
    const int n_block = (int)draw_size(d, 1, 4);
    int x = view_image(b, d, image);
    const int is_large = tandem_builder_shape(b, x)->dim[1] >= 40;
    d->flops /= 2.5 * n_block;
    const int64_t channels = draw_channels(d, tandem_builder_shape(b, x));
    x = build_sweep_conv(b, d, x, is_large && draw_is(d, 0.4) ? 7 : 3, is_large ? 2 : 1, channels);
    x = tandem_build_relu(b, name_in_branch(d, "relu").text, x);
    if (tandem_builder_shape(b, x)->dim[1] >= 12 && draw_is(d, 0.3))
        x = draw_is(d, 0.5) ? tandem_build_maxpool(b, name_in_branch(d, "max").text, x, 3, 2, 1)
                            : tandem_build_maxpool(b, name_in_branch(d, "max").text, x, 2, 2, 0);
    for (int i = 0; i < n_block; i++) {
        const int stride = tandem_builder_shape(b, x)->dim[1] >= 6 && draw_is(d, 0.4) ? 2 : 1;
        x = build_sweep_residual(b, d, x, stride);
    }
    return build_pooled_logits(b, d, x);
}

/* --- Transformers --------------------------------------------------------------------------------------- */

/* Sizes for about d->flops on sequences of f->length. */
static void draw_transformer(sweep_network *d, tandem_zoo_transformer *f, int64_t batch)
{
    f->batch = batch;
    f->ratio = DRAW_OF(d, 2, 3, 4, 4);
    f->depth = d->flops > 1e8 ? 1 + draw_is(d, 0.5) : 1;
    f->causal = draw_is(d, 0.5);
    f->post_norm = draw_is(d, 0.3);
    f->dropout = draw_is(d, 0.3) ? 0.1f : 0;
    f->scope = d->scope;
    /* of each of their rows: linear layers, 2·(4 + 2·ratio)·width², and attention, 4·length·width */
    const double row = d->flops / (double)(f->batch * f->length * f->depth),
                 square = 2 * (4 + 2 * (double)f->ratio), half = 2 * (double)f->length / square,
                 wanted = sqrt(half * half + row / square) - half;
    const int64_t head = DRAW_OF(d, 8, 16, 32, 32, 48, 64, 64);
    f->heads = llround(fmin(16, fmax(1, wanted / (double)head)));
    f->width = f->heads * head;
}

/* Patches of images. */
static int build_image_transformer(tandem_builder *b, sweep_network *d, int image)
{
    int64_t patch = DRAW_OF(d, 2, 4, 4, 4, 8, 8);
    while (d->side / patch > MAX_GRID) patch *= 2;
    const int64_t grid = d->side / patch;
    tandem_zoo_transformer f = {.length = grid * grid};
    if (grid * patch != d->side || grid < 2) return build_convolutions(b, d, image);
    draw_transformer(d, &f, d->batch);
    int x = view_square(b, d, image);
    x = tandem_build_conv2d(b, name_in_branch(d, "patch").text, x, f.width, (int)patch, (int)patch, 0);
    const int64_t dim[3] = {d->batch, f.length, f.width}, column[4] = {d->batch, f.length, 1, f.width};
    x = tandem_build_reshape(b, name_in_branch(d, "tokens").text, x, 3, dim);
    x = tandem_build_bias(b, name_in_branch(d, "bias").text, x, 1, 0);
    x = tandem_build_bias(b, name_in_branch(d, "position").text, x, 2, 0.02f);
    x = tandem_zoo_blocks(b, x, &f);
    if (draw_is(d, 0.5))
        return build_pooled_logits(b, d,
                                   tandem_build_reshape(b, name_in_branch(d, "column").text, x, 4, column));
    x = tandem_zoo_first_token(b, name_in_branch(d, "first").text, x);
    return build_logits(b, d, tandem_build_tanh(b, name_in_branch(d, "tanh").text, x));
}

/* Symbols of a text, whose parts are samples of their own; every position predicts one. */
static int build_text_transformer(tandem_builder *b, sweep_network *d, int tokens)
{
    tandem_zoo_transformer f = {.length = d->length};
    draw_transformer(d, &f, d->batch * PARTS);
    const int64_t parts[3] = {f.batch, f.length, f.width},
                  whole[3] = {d->batch, PARTS * f.length, d->vocabulary};
    const int word =
        tandem_build_embedding(b, name_in_branch(d, "embedding").text, tokens, d->vocabulary, f.width);
    int x = tandem_build_reshape(b, name_in_branch(d, "parts").text, word, 3, parts);
    x = tandem_build_row_bias(b, name_in_branch(d, "position").text, x, f.length + (draw_is(d, 0.5) ? 0 : 16),
                              0.02f);
    x = tandem_zoo_blocks(b, x, &f);
    const tandem_zoo_name name = name_in_branch(d, "head");
    x = draw_is(d, 0.3) ? tandem_build_tied(b, name.text, x, word)
                        : tandem_build_linear(b, name.text, x, d->vocabulary, 0.02f);
    return tandem_build_reshape(b, name_in_branch(d, "whole").text, x, 3, whole);
}

/* --- Networks ------------------------------------------------------------------------------------------- */

typedef int branch_builder(tandem_builder *b, sweep_network *d, int source);

static branch_builder *draw_branch(sweep_network *d)
{
    if (d->length > 0) return build_text_transformer;
    return draw_is(d, 0.65) ? build_convolutions : build_image_transformer;
}

/* Branches until the network has its work; a perceptron alone has as much work as it draws. */
static void build_network(tandem_builder *b, sweep_network *d, int is_perceptron)
{
    const double golden = 0.6180339887498949;
    const int64_t length = PARTS * d->length;
    const int source = length > 0 ? tandem_build_tokens(b, "tokens", length)
                                  : tandem_build_images(b, "image", 2 * d->side, d->side / 2, d->channels);
    const int label = tandem_build_labels(b, "label", length > 0 ? length : 1);
    double flops = 0;
    int sum = -1;
    for (int i = 0; i < MAX_BRANCH && flops < network_flops; i++) {
        char add[16];
        const double share = fmod((double)(d->n_branch + i + 1) * golden, 1);
        d->flops = is_perceptron ? (double)d->batch * 2e4 * pow(500, share)
                                 : least_flops * pow(most_flops / least_flops, share);
        flops += is_perceptron ? network_flops : d->flops;
        d->layer = 0;
        (void)snprintf(d->scope, sizeof d->scope, "b%d", i);
        (void)snprintf(add, sizeof add, "sum%d", i);
        branch_builder *const build = is_perceptron ? build_perceptron : draw_branch(d);
        const int logits = build(b, d, source);
        sum = i == 0 ? logits : tandem_build_add(b, add, sum, logits);
    }
    tandem_build_cross_entropy(b, "loss", sum, label);
}

static const tandem_optimizer_options sweep_optimizers[] = {
    {.kind = TANDEM_SGD, .rate = 1e-3f, .momentum = 0.9f, .decay = 1e-4f},
    {.kind = TANDEM_ADAMW, .rate = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f}};

tandem_status tandem_sweep_open(tandem_graph **graph, int index, tandem_error *error)
{
    /* in turns: images, a perceptron, images, text, a perceptron */
    const int is_perceptron = index % 5 == 1 || index % 5 == 4, is_text = index % 5 == 3;
    sweep_network network = {.state = (uint64_t)index << 32, .n_branch = (int64_t)index * 5}, *d = &network;
    d->batch = draw_is(d, 0.8) ? DRAW_OF(d, 1, 2, 4, 8, 8, 16, 16, 16, 32, 32, 64) : draw_size(d, 1, 64);
    d->classes = draw_is(d, 0.6) ? 10 : draw_size(d, 2, 1000);
    d->side = is_perceptron ? DRAW_OF(d, 8, 14, 16, 20, 28, 28, 32)
                            : DRAW_OF(d, 24, 28, 32, 32, 36, 40, 48, 56, 64);
    d->channels = DRAW_OF(d, 1, 1, 3, 3, 3, 4);
    if (is_text) {
        d->batch = (d->batch + 3) / 4;
        const double samples = PARTS * (double)d->batch;
        d->length = draw_size(d, 8, fmax(16, fmin(192, MAX_ROWS / samples)));
        d->vocabulary = draw_size(d, 32, fmin(4096, MAX_LOGITS / (samples * (double)d->length)));
    }
    char name[32];
    (void)snprintf(name, sizeof name, "network %d", index + 1);
    tandem_builder *b = NULL;
    tandem_graph *made = NULL;
    tandem_status status = tandem_builder_open(&b, d->batch, error);
    if (status != TANDEM_OK) return status;
    build_network(b, d, is_perceptron);
    status = tandem_builder_finish(b, name, &sweep_optimizers[draw_is(d, 0.5)], &made, error);
    if (status == TANDEM_OK) status = tandem_graph_fuse(made, error);
    if (status == TANDEM_OK)
        *graph = made;
    else
        tandem_graph_close(made);
    tandem_builder_close(b);
    return status;
}
