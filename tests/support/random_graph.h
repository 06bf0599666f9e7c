/* random_graph.h: training graphs drawn by Philox: tensors of one shape, joined at random by every kind of
 * operator that keeps it. For tests of laws that hold for all graphs. */
#ifndef TANDEM_TESTS_PROPERTY_RANDOM_GRAPH_H
#define TANDEM_TESTS_PROPERTY_RANDOM_GRAPH_H

#include "base/philox.h"
#include "graph/ir/build.h"
#include "graph/ir/op.h"
#include "tests/support/tandem_test.h"

typedef struct chance {
    uint64_t seed;
    uint32_t series, drawn;
} chance;

static inline uint32_t draw_below(chance *c, uint32_t below)
{
    const uint32_t counter[4] = {c->drawn++, c->series, 0, 77};
    return tandem_philox(counter, c->seed).word[0] % below;
}

enum { MAX_TENSORS = 40, ROWS = 4, WIDTH = 8, BATCH = 2 };

/* The operators on images, of x as if it were some. */
static inline int from_image(tandem_builder *b, chance *c, const char *name, int x)
{
    static const int64_t image[4] = {BATCH, ROWS, 2, WIDTH / 2}, shape[3] = {BATCH, ROWS, WIDTH};
    char first[40], second[40], third[40];
    (void)snprintf(first, sizeof first, "%s.in", name);
    (void)snprintf(second, sizeof second, "%s.op", name);
    (void)snprintf(third, sizeof third, "%s.relu", name);
    x = tandem_build_reshape(b, first, x, 4, image);
    switch (draw_below(c, 5)) {
    case 0: {
        const int pad = (int)draw_below(c, 2);
        x = tandem_build_conv2d(b, second, x, WIDTH / 2, 1 + 2 * pad, 1, pad);
        break;
    }
    case 1: x = tandem_build_maxpool(b, second, x, 3, 1, 1); break;
    case 2: x = tandem_build_batchnorm(b, second, x); break;
    case 3: x = tandem_build_relu(b, third, tandem_build_batchnorm(b, second, x)); break;
    default: x = tandem_build_avgpool(b, second, x, 1, 1, 1); break;
    }
    return tandem_build_reshape(b, name, x, 3, shape);
}

static inline int from_images(tandem_builder *b, const char *name, int x, int y)
{
    static const int64_t image[4] = {BATCH, ROWS, 2, WIDTH / 2}, shape[3] = {BATCH, ROWS, WIDTH};
    char first[40], second[40], third[40], fourth[40], fifth[40];
    (void)snprintf(first, sizeof first, "%s.in", name);
    (void)snprintf(second, sizeof second, "%s.in2", name);
    (void)snprintf(third, sizeof third, "%s.op", name);
    (void)snprintf(fourth, sizeof fourth, "%s.add", name);
    (void)snprintf(fifth, sizeof fifth, "%s.relu", name);
    x = tandem_build_reshape(b, first, x, 4, image);
    y = tandem_build_reshape(b, second, y, 4, image);
    x = tandem_build_add(b, fourth, tandem_build_batchnorm(b, third, x), y);
    return tandem_build_reshape(b, name, tandem_build_relu(b, fifth, x), 3, shape);
}

/* Of x over y: softmax(q·kᵀ)·v. */
static inline int from_attention(tandem_builder *b, chance *c, const char *name, int x, int y)
{
    char part[4][40];
    for (int k = 0; k < 4; k++) (void)snprintf(part[k], sizeof part[k], "%s.%d", name, k);
    const int q = tandem_build_linear(b, part[0], x, WIDTH, 0.1f),
              k = tandem_build_linear(b, part[1], y, WIDTH, 0.1f), v = draw_below(c, 4) ? y : q;
    int p = tandem_build_matmul(b, part[2], q, k, 1);
    char softmax[40], dropout[40], turned[40];
    (void)snprintf(softmax, sizeof softmax, "%s.p", name);
    (void)snprintf(dropout, sizeof dropout, "%s.d", name);
    (void)snprintf(turned, sizeof turned, "%s.v", name);
    p = tandem_build_softmax(b, softmax, p, 0.5f, (int)draw_below(c, 2));
    if (draw_below(c, 2)) p = tandem_build_dropout(b, dropout, p, 0.25f);
    return tandem_build_matmul(b, name, p, tandem_build_linear(b, turned, v, WIDTH, 0.1f), 0);
}

/* One row, times factors, as often as there were rows. */
static inline int from_factors(tandem_builder *b, chance *c, const char *name, int x)
{
    static const float factor[WIDTH] = {0.5f, -1, 2};
    char part[2][40];
    for (int k = 0; k < 2; k++) (void)snprintf(part[k], sizeof part[k], "%s.%d", name, k);
    const int row = tandem_build_slice(b, part[0], x, draw_below(c, ROWS), 1);
    return tandem_build_repeat(
        b, name, tandem_build_mul_constant(b, part[1], row, factor, (const int64_t[]){0, 0, 1}), ROWS);
}

static inline int from_window(tandem_builder *b, chance *c, const char *name, int x, int y)
{
    char second[40];
    (void)snprintf(second, sizeof second, "%s.b", name);
    static const int turn[3] = {0, 2, 1};
    static const int64_t turned[3] = {BATCH, ROWS, WIDTH}, flat[2] = {BATCH, ROWS * WIDTH};
    switch (draw_below(c, 23)) {
    case 0: return tandem_build_linear(b, name, x, WIDTH, 0.1f);
    case 1: return tandem_build_bias(b, name, x, 1 + (int)draw_below(c, 2), 0);
    case 2: return tandem_build_relu(b, name, x);
    case 3: return tandem_build_gelu(b, name, x);
    case 4: return tandem_build_layernorm(b, name, x);
    case 5: return tandem_build_softmax(b, name, x, 1, 0);
    case 6: return tandem_build_reshape(b, name, tandem_build_transpose(b, second, x, turn), 3, turned);
    case 7: return tandem_build_reshape(b, name, tandem_build_reshape(b, second, x, 2, flat), 3, turned);
    case 8: return tandem_build_linear(b, name, tandem_build_matmul(b, second, x, y, 1), WIDTH, 0.1f);
    case 9:
    case 10: return from_image(b, c, name, x);
    case 11: return tandem_build_tanh(b, name, x);
    case 12: return tandem_build_row_bias(b, name, x, ROWS + 1, 0.1f);
    case 13:
        return tandem_build_slice(b, name, tandem_build_concat_token(b, second, x, 0.1f), draw_below(c, 2),
                                  ROWS);
    case 14: return tandem_build_dropout(b, name, x, 0.25f);
    case 15: return tandem_build_gelu(b, name, tandem_build_bias(b, second, x, 1, 0));
    case 16: return from_images(b, name, x, y);
    case 17: return tandem_build_mul(b, name, x, y);
    case 18:
        return tandem_build_slice(b, name, tandem_build_concat(b, second, x, y), draw_below(c, ROWS), ROWS);
    case 19: return tandem_build_scale(b, name, tandem_build_map(b, second, x, TANDEM_FUNCTION_SWISH, 0, 0));
    case 20: return from_attention(b, c, name, x, y);
    case 21: return from_factors(b, c, name, x);
    default: return tandem_build_add(b, name, x, y);
    }
}

static inline int by_the_table_and_back(tandem_builder *b, const char *name, int x, int embedding)
{
    return tandem_build_linear(b, name, tandem_build_tied(b, "tied", x, embedding), WIDTH, 0.1f);
}

/* Tensors of one shape, joined at random (often the same one twice, often one read by many), all of them
 * read in the end; fused, as those of the zoo are. */
static inline tandem_graph *random_graph(chance *c)
{
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    static const int64_t shape[3] = {BATCH, ROWS, WIDTH}, flat[2] = {BATCH, ROWS * WIDTH};
    int tensor[MAX_TENSORS], n_reader[MAX_TENSORS] = {0}, n = 0;
    assert_int_equal(tandem_builder_open(&b, BATCH, &error), TANDEM_OK);
    const int has_table = draw_below(c, 2) == 0;
    if (!has_table)
        tensor[n++] =
            tandem_build_reshape(b, "in", tandem_build_images(b, "image", ROWS, 2, WIDTH / 2), 3, shape);
    else
        tensor[n++] = tandem_build_embedding(b, "in", tandem_build_tokens(b, "tokens", ROWS), 16, WIDTH);
    const int labels = tandem_build_labels(b, "label", 1), n_tensor = 2 + (int)draw_below(c, MAX_TENSORS - 2);
    /* which one is; 0: none */
    const int tied = has_table && draw_below(c, 2) ? (int)draw_below(c, (uint32_t)n_tensor) : 0;
    for (; n < n_tensor; n++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t%d", n);
        const int near = n > 4 ? n - 4 : 0, i = near + (int)draw_below(c, (uint32_t)(n - near)),
                  j = (int)draw_below(c, (uint32_t)n);
        n_reader[i]++;
        tensor[n] = n == tied ? by_the_table_and_back(b, name, tensor[i], tensor[0])
                              : from_window(b, c, name, tensor[i], tensor[j]);
    }
    int sum = tensor[n - 1];
    for (int i = 0; i < n - 1; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "sum%d", i);
        if (!n_reader[i]) sum = tandem_build_add(b, name, sum, tensor[i]);
    }
    sum = tandem_build_linear(b, "head", tandem_build_reshape(b, "flatten", sum, 2, flat), 10, 0.1f);
    tandem_build_cross_entropy(b, "loss", sum, labels);
    const tandem_optimizer_options options = {.kind = TANDEM_ADAMW};
    require_ok(tandem_builder_finish(b, "random", &options, &graph, &error), &error);
    tandem_builder_close(b);
    assert_int_equal(tandem_graph_fuse(graph, &error), TANDEM_OK);
    return graph;
}

#endif
