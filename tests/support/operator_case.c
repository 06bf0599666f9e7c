#include "tests/support/operator_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/arithmetic.h" /* types; test_cuda_arithmetic.c checks them */
#include "base/philox.h"
#include "graph/ir/build.h"
#include "graph/ir/op.h"
#include "tests/support/reference.h"

/* --- Cases ---------------------------------------------------------------------------------------------- */

#define OF(KIND) .kind = TANDEM_OP_##KIND
const operator_case operator_cases[] = {
    {OF(LINEAR), .batch = 3, .n_dim = 1, .dim = {7}, .out = 5},
    {OF(LINEAR), .batch = 1, .n_dim = 1, .dim = {1}, .out = 1},
    {OF(LINEAR), .batch = 5, .n_dim = 2, .dim = {17, 33}, .out = 65},
    {OF(LINEAR), .batch = 64, .n_dim = 1, .dim = {784}, .out = 10},
    {OF(LINEAR), .batch = 2, .n_dim = 3, .dim = {3, 11, 48}, .out = 31},
    {OF(LINEAR), .batch = 3, .n_dim = 2, .dim = {5, 7}, .out = 11, .flag = 1},
    {OF(LINEAR), .batch = 1, .n_dim = 2, .dim = {1, 1}, .out = 1, .flag = 1},
    {OF(LINEAR), .batch = 2, .n_dim = 2, .dim = {9, 33}, .out = 257, .flag = 1},
    /* sides in sixteens: where casts write transposed copies */
    {OF(LINEAR), .batch = 8, .n_dim = 2, .dim = {4, 32}, .out = 48},
    {OF(LINEAR), .batch = 8, .n_dim = 2, .dim = {4, 32}, .out = 48, .flag = 1},
    {OF(LINEAR), .batch = 2, .n_dim = 2, .dim = {9, 33}, .out = 257, .flag = CASE_HEAD},
    {OF(LINEAR), .batch = 4, .n_dim = 2, .dim = {8, 32}, .out = 77, .flag = CASE_HEAD},
    {OF(LINEAR), .batch = 4, .n_dim = 2, .dim = {8, 32}, .out = 80, .flag = CASE_HEAD},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {5, 7, 3}, .out = 5, .window_h = 3, .stride = 1, .pad = 1},
    {OF(CONV2D), .batch = 1, .n_dim = 3, .dim = {9, 9, 1}, .out = 4, .window_h = 5, .stride = 2, .pad = 2},
    {OF(CONV2D), .batch = 3, .n_dim = 3, .dim = {8, 8, 16}, .out = 16, .window_h = 3, .stride = 1, .pad = 1},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {6, 6, 16}, .out = 32, .window_h = 1, .stride = 2, .pad = 0},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {7, 7, 4}, .out = 8, .window_h = 1, .stride = 1, .pad = 0},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {11, 6, 17}, .out = 19, .window_h = 3, .stride = 2, .pad = 1},
    {OF(CONV2D), .batch = 6, .n_dim = 3, .dim = {8, 8, 32}, .out = 64, .window_h = 3, .stride = 1, .pad = 1},
    {OF(CONV2D), .batch = 1, .n_dim = 3, .dim = {4, 4, 2}, .out = 1, .window_h = 4, .stride = 1, .pad = 0},
    /* Winograd's, where there is AVX-512: tiles of 4x4 that the image fills, or does not, in one block or
     * several, of more channels than there are tiles, or fewer; then one too few, another number of channels,
     * an image smaller than a tile */
    {OF(CONV2D), .cpu = 1, .batch = 5, .n_dim = 3, .dim = {7, 7, 32}, .out = 32, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {5, 13, 32}, .out = 96, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {17, 18, 64}, .out = 32, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 4, .n_dim = 3, .dim = {5, 6, 160}, .out = 64, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 15, .n_dim = 3, .dim = {4, 4, 32}, .out = 32, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {5, 13, 48}, .out = 80, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {1, 2, 64}, .out = 32, .window_h = 3, .stride = 1, .pad = 1},
    /* of the large models: stem, strided 3x3, bottleneck, shortcut, patches */
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {16, 15, 3}, .out = 32, .window_h = 7, .stride = 2, .pad = 3},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {8, 8, 64}, .out = 64, .window_h = 3, .stride = 2, .pad = 1},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {4, 4, 64}, .out = 256, .window_h = 1, .stride = 1, .pad = 0},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {5, 5, 128}, .out = 96, .window_h = 1, .stride = 2, .pad = 0},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {32, 16, 3}, .out = 48, .window_h = 16, .stride = 16,
     .pad = 0},
    /* int8 weight gradients of several shares, by their bytes and by their number */
    {OF(CONV2D), .cpu = 1, .batch = 2, .n_dim = 3, .dim = {47, 47, 32}, .out = 2, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(CONV2D), .cpu = 1, .batch = 1, .n_dim = 3, .dim = {363, 363, 1}, .out = 1, .window_h = 1, .stride = 1,
     .pad = 0},
    /* where oneDNN 2.6.3 reads what it has not written, or writes where it may not (conv2d.c) */
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {1, 1, 32}, .out = 32, .window_h = 3, .stride = 2, .pad = 1},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {3, 2, 3}, .out = 5, .window_h = 4, .stride = 3, .pad = 1},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {14, 14, 7}, .out = 16, .window_h = 1, .stride = 2, .pad = 0},
    {OF(CONV2D), .batch = 2, .n_dim = 3, .dim = {28, 28, 1}, .out = 1, .window_h = 1, .stride = 2, .pad = 0},
    {OF(MATMUL), .batch = 2, .n_dim = 2, .dim = {5, 7}, .out = 3},
    {OF(MATMUL), .batch = 2, .n_dim = 2, .dim = {5, 7}, .out = 3, .flag = 1},
    {OF(MATMUL), .batch = 2, .n_dim = 3, .dim = {3, 17, 32}, .out = 19, .flag = 1},
    {OF(MATMUL), .batch = 2, .n_dim = 3, .dim = {3, 17, 19}, .out = 32},
    {OF(MATMUL), .batch = 2, .n_dim = 3, .dim = {3, 32, 16}, .out = 48},
    {OF(MATMUL), .batch = 2, .n_dim = 3, .dim = {3, 32, 16}, .out = 48, .flag = 1},
    {OF(MATMUL), .batch = 1, .n_dim = 2, .dim = {1, 1}, .out = 1},
    {OF(EMBEDDING), .batch = 3, .n_dim = 1, .dim = {5}, .vocabulary = 11, .out = 7},
    {OF(EMBEDDING), .batch = 2, .n_dim = 1, .dim = {64}, .vocabulary = 5, .out = 33},
    {OF(EMBEDDING), .batch = 3, .n_dim = 1, .dim = {5}, .vocabulary = 11, .out = 7, .flag = 1},
    {OF(EMBEDDING), .batch = 2, .n_dim = 1, .dim = {33}, .vocabulary = 5, .out = 19, .flag = 1},
    {OF(BIAS), .batch = 3, .n_dim = 2, .dim = {5, 7}, .vocabulary = 9},
    {OF(BIAS), .batch = 2, .n_dim = 3, .dim = {3, 1, 33}, .vocabulary = 2},
    {OF(BIAS), .batch = 3, .n_dim = 1, .dim = {13}, .out = 1},
    {OF(BIAS), .batch = 4, .n_dim = 2, .dim = {5, 19}, .out = 2},
    {OF(BIAS), .batch = 2, .n_dim = 3, .dim = {3, 5, 33}, .out = 1},
    {OF(BIAS), .batch = 2, .n_dim = 2, .dim = {9, 257}, .out = 1, .flag = CASE_HEAD},
    {OF(BIAS_GELU), .batch = 3, .n_dim = 1, .dim = {13}, .out = 1},
    {OF(BIAS_GELU), .batch = 4, .n_dim = 2, .dim = {5, 19}, .out = 2},
    {OF(BIAS_GELU), .batch = 2, .n_dim = 3, .dim = {3, 5, 33}, .out = 1},
    {OF(RELU), .batch = 3, .n_dim = 2, .dim = {7, 11}},
    {OF(RELU), .batch = 1, .n_dim = 1, .dim = {1}},
    {OF(DROPOUT), .batch = 3, .n_dim = 2, .dim = {7, 11}, .scale = 0.3f},
    {OF(DROPOUT), .batch = 5, .n_dim = 3, .dim = {3, 9, 13}, .scale = 0.1f},
    {OF(DROPOUT), .batch = 1, .n_dim = 1, .dim = {1}, .scale = 0.5f},
    {OF(ADD), .batch = 3, .n_dim = 2, .dim = {7, 11}},
    {OF(ADD), .batch = 2, .n_dim = 3, .dim = {5, 3, 33}},
    {OF(MAXPOOL), .batch = 2, .n_dim = 3, .dim = {7, 9, 3}, .window_h = 3, .stride = 2, .pad = 1},
    {OF(MAXPOOL), .batch = 2, .n_dim = 3, .dim = {8, 6, 16}, .window_h = 2, .stride = 2, .pad = 0},
    {OF(MAXPOOL), .batch = 1, .n_dim = 3, .dim = {6, 5, 19}, .window_h = 3, .stride = 1, .pad = 1},
    {OF(MAXPOOL), .batch = 2, .n_dim = 3, .dim = {12, 12, 64}, .window_h = 3, .stride = 2, .pad = 1},
    {OF(AVGPOOL), .batch = 2, .n_dim = 3, .dim = {7, 7, 96}, .window_h = 7, .window_w = 7, .stride = 1},
    {OF(AVGPOOL), .batch = 2, .n_dim = 3, .dim = {8, 8, 64}, .window_h = 8, .window_w = 8, .stride = 1},
    {OF(AVGPOOL), .batch = 3, .n_dim = 3, .dim = {7, 9, 5}, .window_h = 2, .window_w = 3, .stride = 2},
    {OF(AVGPOOL), .batch = 1, .n_dim = 3, .dim = {6, 6, 17}, .window_h = 3, .window_w = 3, .stride = 1},
    {OF(TRANSPOSE), .batch = 3, .n_dim = 3, .dim = {5, 4, 8}, .axis = {0, 2, 1, 3}},
    {OF(TRANSPOSE), .batch = 2, .n_dim = 3, .dim = {3, 7, 5}, .axis = {0, 3, 1, 2}},
    {OF(TRANSPOSE), .batch = 2, .n_dim = 2, .dim = {17, 19}, .axis = {0, 2, 1}},
    {OF(TRANSPOSE), .batch = 2, .n_dim = 2, .dim = {3, 5}, .axis = {0, 1, 2}},
    {OF(SLICE), .batch = 3, .n_dim = 2, .dim = {7, 5}, .out = 1},
    {OF(SLICE), .batch = 2, .n_dim = 3, .dim = {6, 3, 11}, .out = 4, .flag = 2},
    {OF(SLICE), .batch = 4, .n_dim = 1, .dim = {9}, .out = 3, .flag = 6},
    {OF(SLICE), .batch = 2, .n_dim = 2, .dim = {1, 1}, .out = 1},
    {OF(GATHER_LABELLED), .batch = 3, .n_dim = 2, .dim = {7, 5}, .out = 3},
    {OF(GATHER_LABELLED), .batch = 2, .n_dim = 3, .dim = {9, 3, 11}, .out = 7},
    {OF(GATHER_LABELLED), .batch = 3, .n_dim = 2, .dim = {1, 1}, .out = 1},
    {OF(CONCAT_TOKEN), .batch = 3, .n_dim = 2, .dim = {7, 5}},
    {OF(CONCAT_TOKEN), .batch = 1, .n_dim = 2, .dim = {1, 1}},
    {OF(CONCAT_TOKEN), .batch = 5, .n_dim = 2, .dim = {4, 33}},
    {OF(CONCAT), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {4, 5, 7}, .out = 2},
    {OF(CONCAT), .cpu = 1, .batch = 2, .n_dim = 2, .dim = {1, 1}, .out = 1},
    {OF(MUL), .cpu = 1, .batch = 3, .n_dim = 2, .dim = {5, 7}},
    {OF(MUL), .cpu = 1, .batch = 2, .n_dim = 3, .dim = {9, 3, 4}, .flag = 1},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 2, .dim = {7, 11}, .vocabulary = TANDEM_FUNCTION_GELU_ERF},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_SWISH},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_SIGMOID},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_LINEAR},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_SIN},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_MISH},
    {OF(MAP), .cpu = 1, .batch = 3, .n_dim = 1, .dim = {9}, .vocabulary = TANDEM_FUNCTION_SOFTPLUS},
    {OF(SCALE), .cpu = 1, .batch = 3, .n_dim = 2, .dim = {5, 7}},
    {OF(SCALE), .cpu = 1, .batch = 2, .n_dim = 3, .dim = {3, 4, 33}},
    {OF(MUL_CONSTANT), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {5, 4, 7}}, /* of dimensions 1 and 3 */
    {OF(MUL_CONSTANT), .cpu = 1, .batch = 2, .n_dim = 2, .dim = {9, 1}},
    {OF(MUL_CONSTANT), .cpu = 1, .batch = 2, .n_dim = 2, .dim = {6, 5}, .flag = 1}, /* of dimension 1 */
    {OF(REPEAT), .cpu = 1, .batch = 3, .n_dim = 3, .dim = {1, 4, 5}, .out = 3},
    {OF(REPEAT), .cpu = 1, .batch = 2, .n_dim = 1, .dim = {1}, .out = 7},
    {OF(GROUPED_CONV2D), .cpu = 1, .batch = 2, .n_dim = 3, .dim = {6, 5, 8}, .out = 8, .window_h = 3,
     .window_w = 3, .stride = 1, .pad = 1, .flag = 8},
    {OF(GROUPED_CONV2D), .cpu = 1, .batch = 2, .n_dim = 3, .dim = {7, 8, 6}, .out = 4, .window_h = 3,
     .window_w = 2, .stride = 2, .pad = 1, .flag = 2},
    {OF(TANH), .batch = 3, .n_dim = 2, .dim = {7, 11}},
    {OF(TANH), .batch = 1, .n_dim = 1, .dim = {1}},
    {OF(GELU), .batch = 3, .n_dim = 2, .dim = {7, 11}},
    {OF(GELU), .batch = 1, .n_dim = 1, .dim = {1}},
    {OF(SOFTMAX), .batch = 3, .n_dim = 2, .dim = {5, 7}, .scale = 1},
    {OF(SOFTMAX), .batch = 2, .n_dim = 3, .dim = {3, 9, 33}, .scale = 0.35f},
    {OF(SOFTMAX), .batch = 2, .n_dim = 3, .dim = {3, 19, 19}, .scale = 0.25f, .flag = 1},
    {OF(SOFTMAX), .batch = 2, .n_dim = 2, .dim = {5, 5}, .scale = 1, .flag = 1},
    /* rows that a warp keeps in registers, in one of three lengths, and longer ones */
    {OF(SOFTMAX), .batch = 1, .n_dim = 2, .dim = {150, 150}, .scale = 0.5f, .flag = 1},
    {OF(SOFTMAX), .batch = 1, .n_dim = 2, .dim = {9, 700}, .scale = 2},
    {OF(SOFTMAX), .batch = 1, .n_dim = 2, .dim = {3, 1030}, .scale = 1},
    {OF(LAYERNORM), .batch = 3, .n_dim = 2, .dim = {5, 7}},
    {OF(LAYERNORM), .batch = 4, .n_dim = 1, .dim = {64}},
    {OF(LAYERNORM), .batch = 2, .n_dim = 3, .dim = {3, 5, 33}},
    {OF(BATCHNORM), .batch = 3, .n_dim = 3, .dim = {5, 7, 3}},
    {OF(BATCHNORM), .batch = 2, .n_dim = 3, .dim = {4, 4, 16}},
    {OF(BATCHNORM), .batch = 2, .n_dim = 3, .dim = {8, 3, 19}},
    {OF(BATCHNORM), .batch = 3, .n_dim = 3, .dim = {33, 40, 21}},
    {OF(BATCHNORM_RELU), .batch = 3, .n_dim = 3, .dim = {5, 7, 3}},
    {OF(BATCHNORM_RELU), .batch = 2, .n_dim = 3, .dim = {4, 4, 16}},
    {OF(BATCHNORM_RELU), .batch = 3, .n_dim = 3, .dim = {33, 40, 21}},
    {OF(BATCHNORM_RELU), .batch = 3, .n_dim = 3, .dim = {33, 40, 22}},
    {OF(BATCHNORM_ADD_RELU), .batch = 3, .n_dim = 3, .dim = {5, 7, 3}},
    {OF(BATCHNORM_ADD_RELU), .batch = 2, .n_dim = 3, .dim = {4, 4, 16}},
    {OF(BATCHNORM_ADD_RELU), .batch = 3, .n_dim = 3, .dim = {33, 40, 22}},
    {OF(CROSS_ENTROPY), .batch = 5, .n_dim = 2, .dim = {1, 10}},
    {OF(CROSS_ENTROPY), .batch = 3, .n_dim = 2, .dim = {7, 37}},
    {OF(CROSS_ENTROPY), .batch = 1, .n_dim = 2, .dim = {1, 2}},
    {OF(CROSS_ENTROPY), .batch = 1, .n_dim = 2, .dim = {3, 601}},
    {OF(CROSS_ENTROPY), .batch = 3, .n_dim = 2, .dim = {4, 13}, .out = 7},
    {OF(CROSS_ENTROPY), .batch = 3, .n_dim = 2, .dim = {4, 257}, .flag = CASE_HEAD},
};
const int n_operator_case = sizeof operator_cases / sizeof operator_cases[0];

void case_print(char *text, size_t size, const operator_case *c)
{
    char shape[64] = "";
    for (int d = 0; d < c->n_dim; d++) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "x%" PRId64, c->dim[d]);
    }
    snprintf(text, size, "%s %" PRId64 "%s out=%" PRId64 " window=%dx%d stride=%d pad=%d flag=%d",
             tandem_op_row_get(c->kind)->name, c->batch, shape, c->out, c->window_h, c->window_w, c->stride,
             c->pad, c->flag);
}

/* A tensor of shape (batch, dim…) that something trained has written, seen through a reshape of the images.
 * */
static int input_tensor(tandem_builder *b, const char *name, int images, const operator_case *c, int n_dim,
                        const int64_t *dim, int64_t inner, int64_t columns)
{
    int64_t shape[TANDEM_MAX_DIM] = {c->batch};
    for (int d = 0; d < n_dim; d++) shape[d + 1] = dim[d];
    shape[n_dim] = inner;
    char reshaped[48];
    snprintf(reshaped, sizeof reshaped, "%s_shape", name);
    const int x = tandem_build_reshape(b, reshaped, images, n_dim + 1, shape);
    return tandem_build_linear(b, name, x, columns, 0.5f);
}

static int build_matmul(tandem_builder *b, const operator_case *c, case_graph *made)
{
    const int64_t heads = c->n_dim == 3 ? c->dim[0] : 1;
    const int64_t m = c->dim[c->n_dim - 2], k = c->dim[c->n_dim - 1], n = c->out;
    const int images = tandem_build_images(b, "images", 1, 1, heads * m * k * n);
    int64_t left[3] = {c->dim[0], c->dim[1], 0}, right[3] = {c->dim[0], c->dim[1], 0};
    left[c->n_dim - 2] = m;
    right[c->n_dim - 2] = c->flag ? n : k;
    made->pre = input_tensor(b, "pre", images, c, c->n_dim, left, k * n, k);
    made->pre2 =
        input_tensor(b, "pre2", images, c, c->n_dim, right, c->flag ? m * k : m * n, c->flag ? k : n);
    return tandem_build_matmul(b, "op", made->pre, made->pre2, c->flag);
}

static int is_head_case(const operator_case *c)
{
    return c->flag == CASE_HEAD &&
           (c->kind == TANDEM_OP_LINEAR || c->kind == TANDEM_OP_BIAS || c->kind == TANDEM_OP_CROSS_ENTROPY);
}

/* dim: tokens, width */
static int build_tied(tandem_builder *b, const operator_case *c, case_graph *made)
{
    made->pre =
        tandem_build_embedding(b, "pre", tandem_build_tokens(b, "tokens", c->dim[0]), c->out, c->dim[1]);
    return tandem_build_tied(b, "op", made->pre, made->pre);
}

/* The second input has `out` rows (concat), or one (mul, flag). */
static int build_pair(tandem_builder *b, const operator_case *c, int images, case_graph *made)
{
    int64_t second[TANDEM_MAX_DIM];
    const int64_t last = c->dim[c->n_dim - 1];
    memcpy(second, c->dim, sizeof second);
    if (c->kind == TANDEM_OP_CONCAT) second[0] = c->out;
    if (c->kind == TANDEM_OP_MUL && c->flag) second[0] = 1;
    made->pre2 = input_tensor(b, "pre2", images, c, c->n_dim, second, last * (c->dim[0] / second[0]), last);
    return c->kind == TANDEM_OP_CONCAT ? tandem_build_concat(b, "op", made->pre, made->pre2)
                                       : tandem_build_mul(b, "op", made->pre, made->pre2);
}

/* flag: the same factor for all of the last dimension; else for dimensions between the first and the last. */
static int build_mul_constant(tandem_builder *b, const operator_case *c, int x)
{
    static float factor[64];
    int64_t step[TANDEM_MAX_DIM] = {0};
    const int n_dim = c->n_dim + 1; /* with the batch */
    for (int k = 0; k < 64; k++) factor[k] = (float)(2 * case_random(77, (uint32_t)k) - 1);
    step[1] = c->flag ? 1 : c->dim[c->n_dim - 1];
    if (!c->flag) step[n_dim - 1] = 1;
    return tandem_build_mul_constant(b, "op", x, factor, step);
}

/* Logits of a tied linear, and what the case has after it. dim: tokens, columns */
static int build_after_head(tandem_builder *b, const operator_case *c, case_graph *made)
{
    enum { WIDTH = 16 };
    const int tokens = tandem_build_tokens(b, "tokens", c->dim[0]),
              word = tandem_build_embedding(b, "word", tokens, c->dim[1], WIDTH);
    made->pre = tandem_build_tied(b, "pre", word, word);
    return c->kind == TANDEM_OP_BIAS ? tandem_build_bias(b, "op", made->pre, 1, 0.1f)
                                     : tandem_build_cross_entropy(b, "op", made->pre, made->labels);
}

static int build_op(tandem_builder *b, const operator_case *c, case_graph *made)
{
    if (c->kind != TANDEM_OP_LINEAR && is_head_case(c)) return build_after_head(b, c, made);
    if (c->kind == TANDEM_OP_LINEAR && c->flag) return build_tied(b, c, made);
    if (c->kind == TANDEM_OP_EMBEDDING)
        return tandem_build_embedding(b, "op", tandem_build_tokens(b, "tokens", c->dim[0]), c->vocabulary,
                                      c->out);
    if (c->kind == TANDEM_OP_MATMUL) return build_matmul(b, c, made);
    int64_t elements = 1;
    for (int d = 0; d < c->n_dim; d++) elements *= c->dim[d];
    const int64_t last = c->dim[c->n_dim - 1];
    const int images = tandem_build_images(b, "images", 1, 1, elements);
    const int x = made->pre = input_tensor(b, "pre", images, c, c->n_dim, c->dim, last, last);
    switch (c->kind) {
    case TANDEM_OP_LINEAR: return tandem_build_linear(b, "op", x, c->out, 0.1f);
    case TANDEM_OP_CONV2D: return tandem_build_conv2d(b, "op", x, c->out, c->window_h, c->stride, c->pad);
    case TANDEM_OP_BIAS:
        return c->vocabulary ? tandem_build_row_bias(b, "op", x, c->vocabulary, 0.1f)
                             : tandem_build_bias(b, "op", x, (int)c->out, 0.1f);
    case TANDEM_OP_BIAS_GELU:
        return tandem_build_gelu(b, "op.gelu", tandem_build_bias(b, "op", x, (int)c->out, 0.1f));
    case TANDEM_OP_RELU: return tandem_build_relu(b, "op", x);
    case TANDEM_OP_DROPOUT: return tandem_build_dropout(b, "op", x, c->scale);
    case TANDEM_OP_ADD:
        made->pre2 = input_tensor(b, "pre2", images, c, c->n_dim, c->dim, last, last);
        return tandem_build_add(b, "op", x, made->pre2);
    case TANDEM_OP_MAXPOOL: return tandem_build_maxpool(b, "op", x, c->window_h, c->stride, c->pad);
    case TANDEM_OP_AVGPOOL: return tandem_build_avgpool(b, "op", x, c->window_h, c->window_w, c->stride);
    case TANDEM_OP_TRANSPOSE: return tandem_build_transpose(b, "op", x, c->axis);
    case TANDEM_OP_SLICE: return tandem_build_slice(b, "op", x, c->flag, c->out);
    case TANDEM_OP_GATHER_LABELLED: return tandem_build_gather_labelled(b, "op", x, made->labels);
    case TANDEM_OP_CONCAT_TOKEN: return tandem_build_concat_token(b, "op", x, 0.1f);
    case TANDEM_OP_CONCAT:
    case TANDEM_OP_MUL: return build_pair(b, c, images, made);
    case TANDEM_OP_MAP: return tandem_build_map(b, "op", x, (tandem_function)c->vocabulary, 0.7f, 0.3f);
    case TANDEM_OP_SCALE: return tandem_build_scale(b, "op", x);
    case TANDEM_OP_MUL_CONSTANT: return build_mul_constant(b, c, x);
    case TANDEM_OP_REPEAT: return tandem_build_repeat(b, "op", x, c->out);
    case TANDEM_OP_GROUPED_CONV2D: {
        const tandem_grouped_window window = {c->window_h, c->window_w, c->stride, c->pad, 0, 1, c->flag};
        return tandem_build_grouped_conv2d(b, "op", x, c->out, &window);
    }
    case TANDEM_OP_TANH: return tandem_build_tanh(b, "op", x);
    case TANDEM_OP_GELU: return tandem_build_gelu(b, "op", x);
    case TANDEM_OP_SOFTMAX: return tandem_build_softmax(b, "op", x, c->scale, c->flag);
    case TANDEM_OP_LAYERNORM: return tandem_build_layernorm(b, "op", x);
    case TANDEM_OP_BATCHNORM: return tandem_build_batchnorm(b, "op", x);
    case TANDEM_OP_BATCHNORM_RELU: return tandem_build_relu(b, "op.relu", tandem_build_batchnorm(b, "op", x));
    case TANDEM_OP_BATCHNORM_ADD_RELU:
        made->pre2 = input_tensor(b, "pre2", images, c, c->n_dim, c->dim, last, last);
        return tandem_build_relu(
            b, "op.relu", tandem_build_add(b, "op.add", tandem_build_batchnorm(b, "op", x), made->pre2));
    case TANDEM_OP_CROSS_ENTROPY: return tandem_build_cross_entropy(b, "op", x, made->labels);
    default: return -1;
    }
}

static int64_t elements_a_sample(const operator_case *c)
{
    const int64_t *d = c->dim;
    const int64_t last = d[c->n_dim - 1];
    int64_t all = 1;
    for (int i = 0; i < c->n_dim; i++) all *= d[i];
    switch (c->kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_MATMUL: return all / last * c->out;
    case TANDEM_OP_EMBEDDING: return all * c->out;
    case TANDEM_OP_SLICE:
    case TANDEM_OP_GATHER_LABELLED: return all / d[0] * c->out;
    case TANDEM_OP_CONCAT_TOKEN: return all + last;
    case TANDEM_OP_REPEAT: return all * c->out;
    case TANDEM_OP_CONCAT: return all / d[0] * (d[0] + c->out);
    case TANDEM_OP_GROUPED_CONV2D:
        return ((d[0] + 2 * c->pad - c->window_h) / c->stride + 1) *
               ((d[1] + 2 * c->pad - c->window_w) / c->stride + 1) * c->out;
    case TANDEM_OP_CONV2D:
        return ((d[0] + 2 * c->pad - c->window_h) / c->stride + 1) *
               ((d[1] + 2 * c->pad - c->window_h) / c->stride + 1) * c->out;
    case TANDEM_OP_MAXPOOL:
        return ((d[0] + 2 * c->pad - c->window_h) / c->stride + 1) *
               ((d[1] + 2 * c->pad - c->window_h) / c->stride + 1) * last;
    case TANDEM_OP_AVGPOOL:
        return ((d[0] - c->window_h) / c->stride + 1) * ((d[1] - c->window_w) / c->stride + 1) * last;
    default: return all;
    }
}

/* Some kinds are what tandem_graph_fuse makes of two or three operators; all after the first then are
 * elsewhere. */
static tandem_status fuse_operator_case(case_graph *made, const operator_case *c, tandem_error *error)
{
    if (c->kind != TANDEM_OP_BIAS_GELU && c->kind != TANDEM_OP_BATCHNORM_RELU &&
        c->kind != TANDEM_OP_BATCHNORM_ADD_RELU)
        return TANDEM_OK;
    const tandem_status status = tandem_graph_fuse(made->graph, error);
    for (int i = 0; i < made->graph->n_op; i++) {
        if (strcmp(made->graph->op[i].name, "op") == 0) made->op = i;
        if (strcmp(made->graph->op[i].name, "post") == 0) made->post = i;
    }
    return status;
}

tandem_status case_graph_open(case_graph *made, const operator_case *c, tandem_error *error)
{
    tandem_builder *b = NULL;
    case_graph result = {.op = -1, .pre = -1, .pre2 = -1, .post = -1, .labels = -1};
    tandem_status status = tandem_builder_open(&b, c->batch, error);
    if (status != TANDEM_OK) return status;
    if (c->kind == TANDEM_OP_GATHER_LABELLED)
        result.labels = tandem_build_masked_labels(b, "labels", c->dim[0], c->out);
    if (c->kind == TANDEM_OP_CROSS_ENTROPY)
        result.labels = c->out ? tandem_build_masked_labels(b, "labels", c->out, c->dim[0])
                               : tandem_build_labels(b, "labels", c->dim[0]);
    result.op = build_op(b, c, &result);
    if (is_head_case(c) && c->kind != TANDEM_OP_CROSS_ENTROPY) {
        tandem_build_cross_entropy(b, "loss", result.op, tandem_build_labels(b, "labels", c->dim[0]));
    } else if (c->kind == TANDEM_OP_EMBEDDING && c->flag) {
        result.post = tandem_build_tied(b, "post", result.op, result.op);
        tandem_build_cross_entropy(b, "loss", result.post, tandem_build_labels(b, "labels", c->dim[0]));
    } else if (c->kind == TANDEM_OP_GATHER_LABELLED) { /* rows of the loss are rows of its labels */
        const int64_t rows[3] = {c->batch, c->out, elements_a_sample(c) / c->out};
        const int flat = tandem_build_reshape(b, "flat", result.op, 3, rows);
        result.post = tandem_build_linear(b, "post", flat, 3, 0.5f);
        tandem_build_cross_entropy(b, "loss", result.post, result.labels);
    } else if (c->kind != TANDEM_OP_CROSS_ENTROPY) {
        const int flat =
            tandem_build_reshape(b, "flat", result.op, 2, (const int64_t[]){c->batch, elements_a_sample(c)});
        result.post = tandem_build_linear(b, "post", flat, 3, 0.5f);
        tandem_build_cross_entropy(b, "loss", result.post, tandem_build_labels(b, "labels", 1));
    }
    const tandem_optimizer_options optimizer = {.kind = TANDEM_SGD, .rate = 0.1f};
    status = tandem_builder_finish(b, "case", &optimizer, &result.graph, error);
    tandem_builder_close(b);
    if (status == TANDEM_OK) status = fuse_operator_case(&result, c, error);
    if (status == TANDEM_OK && result.graph->op[result.op].kind != c->kind)
        status = tandem_error_set(error, TANDEM_BUG, "the case is of another kind of operator");
    if (status == TANDEM_OK)
        *made = result;
    else
        tandem_graph_close(result.graph);
    return status;
}

/* --- Arrays --------------------------------------------------------------------------------------------- */

enum { GUARD_BYTE = 0xA5, SPOILT_BYTE = 0xFF }; /* 0xFFFFFFFF and 0xFFFF are NaNs */

static void *memory(size_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!block) {
        fprintf(stderr, "no memory for a test array of %zu bytes\n", bytes);
        exit(EXIT_FAILURE);
    }
    return block;
}

int has_scale(tandem_dtype dtype)
{
    return dtype == TANDEM_S8 || dtype == TANDEM_E4M3 || dtype == TANDEM_E5M2;
}
double max_of_code(tandem_dtype dtype)
{
    return dtype == TANDEM_E4M3 ? 448 : dtype == TANDEM_E5M2 ? 57344 : 127;
}

void array_open(case_array *array, tandem_dtype dtype, size_t n)
{
    const size_t bytes = n * tandem_dtype_bytes(dtype);
    *array = (case_array){.dtype = dtype, .n = n, .bytes = bytes, .scale = 1};
    array->block = memory(bytes + 2 * CASE_GUARD);
    array->data = (char *)array->block + CASE_GUARD;
    array->value = memory((n + 1) * sizeof *array->value);
    memset(array->block, GUARD_BYTE, bytes + 2 * CASE_GUARD);
    memset(array->value, 0, n * sizeof *array->value);
}

void array_close(case_array *array)
{
    free(array->block);
    free(array->value);
    *array = (case_array){0};
}

void array_spoil(case_array *array) { memset(array->data, SPOILT_BYTE, array->bytes); }

int array_gaps_whole(const case_array *array)
{
    const size_t size = tandem_dtype_bytes(array->dtype);
    const unsigned char *const data = array->data;
    for (size_t i = 0; i < array->bytes && array->row && array->is_gradient; i++)
        if (i / size % array->row >= array->columns && data[i]) return 0;
    return 1;
}

int array_guards_whole(const case_array *array)
{
    const unsigned char *const before = array->block, *const after =
                                                          (const unsigned char *)array->data + array->bytes;
    for (int i = 0; i < CASE_GUARD; i++)
        if (before[i] != GUARD_BYTE || after[i] != GUARD_BYTE) return 0;
    return 1;
}

static uint16_t bf16_of(double value)
{
    const float wide = (float)value;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* Where number i of the values is in the data. */
static size_t place_of_operator_case(const case_array *array, size_t i)
{
    if (array->row) return i / array->columns * array->row + i % array->columns;
    if (array->transposed_copy.batch == 0) return i;
    const size_t rows = (size_t)array->transposed_copy.rows, columns = (size_t)array->transposed_copy.columns;
    return i / (rows * columns) * rows * columns + i % columns * rows + i / columns % rows;
}

void array_store(case_array *array)
{
    for (size_t k = 0; k < array->n; k++) {
        const size_t i = place_of_operator_case(array, k);
        const double v = array->value[k];
        if (array->dtype == TANDEM_F32)
            ((float *)array->data)[i] = (float)v;
        else if (array->dtype == TANDEM_BF16)
            ((uint16_t *)array->data)[i] = bf16_of(v);
        else if (array->dtype == TANDEM_S8)
            ((int8_t *)array->data)[i] = (int8_t)lrint(v / (double)array->scale);
        else if (array->dtype == TANDEM_F16)
            ((uint16_t *)array->data)[i] = tandem_f16_of((float)v);
        else if (array->dtype == TANDEM_E4M3)
            ((uint8_t *)array->data)[i] = tandem_e4m3_of((float)(v / (double)array->scale));
        else if (array->dtype == TANDEM_E5M2)
            ((uint8_t *)array->data)[i] = tandem_e5m2_of((float)(v / (double)array->scale));
        else
            ((int32_t *)array->data)[i] = (int32_t)lrint(v);
    }
    array_load(array);
}

void array_load(case_array *array)
{
    for (size_t k = 0; k < array->n; k++) {
        const size_t i = place_of_operator_case(array, k);
        if (array->dtype == TANDEM_F32) {
            array->value[k] = (double)((const float *)array->data)[i];
        } else if (array->dtype == TANDEM_BF16) {
            const uint32_t bits = (uint32_t)((const uint16_t *)array->data)[i] << 16;
            float wide;
            memcpy(&wide, &bits, sizeof wide);
            array->value[k] = (double)wide;
        } else if (array->dtype == TANDEM_S8) {
            array->value[k] = (double)((const int8_t *)array->data)[i] * (double)array->scale;
        } else if (array->dtype == TANDEM_F16) {
            array->value[k] = (double)tandem_f32_of_f16(((const uint16_t *)array->data)[i]);
        } else if (array->dtype == TANDEM_E4M3) {
            array->value[k] =
                (double)tandem_f32_of_e4m3(((const uint8_t *)array->data)[i]) * (double)array->scale;
        } else if (array->dtype == TANDEM_E5M2) {
            array->value[k] =
                (double)tandem_f32_of_e5m2(((const uint8_t *)array->data)[i]) * (double)array->scale;
        } else {
            array->value[k] = (double)((const int32_t *)array->data)[i];
        }
    }
}

double case_random(uint64_t key, uint32_t index)
{
    return 2 * (double)tandem_philox_uniform(
                   tandem_philox((const uint32_t[4]){index, 0, 0, 77}, key).word[0]) -
           1;
}

void array_random(case_array *array, uint64_t key)
{
    const double codes = max_of_code(array->dtype);
    array->scale =
        has_scale(array->dtype) ? (float)((0.01 + 0.005 * case_random(key, UINT32_MAX)) * 127 / codes) : 1;
    const double most = has_scale(array->dtype) ? codes * (double)array->scale : 1;
    for (size_t i = 0; i < array->n; i++) {
        const double r = case_random(key, (uint32_t)i);
        array->value[i] =
            most * (array->dtype == TANDEM_S8 && key >= 16 * CASE_EXTREME ? (r < 0.75 ? 1 : -1) : r);
    }
    array_store(array);
}

/* --- Operands ------------------------------------------------------------------------------------------- */

/* Whether operand `place` of the task is a list of tokens, labels or places. */
static int is_index(const tandem_op *op, tandem_task_kind kind, int place)
{
    if (op->kind == TANDEM_OP_EMBEDDING) return place == 0;
    if (op->kind == TANDEM_OP_GATHER_LABELLED) return place == 1;
    if (op->kind != TANDEM_OP_CROSS_ENTROPY) return 0;
    return place == (kind == TANDEM_TASK_DGRAD ? 0 : 1);
}

static int is_kernel_of_op(tandem_task_kind kind)
{
    return kind == TANDEM_TASK_FORWARD || kind == TANDEM_TASK_WGRAD || kind == TANDEM_TASK_DGRAD;
}

/* Of a value that is a transposed copy, the matrices that its cast turns; of others none. */
static tandem_matrices columns_of(const tandem_step *step, int id)
{
    for (int t = 0; t < step->n_task && tandem_value_untransposed(step, id) != id; t++)
        if (step->task[t].active && step->task[t].n_write > 0 &&
            step->task[t].write[step->task[t].n_write - 1] == id)
            return tandem_step_matrices(step, t);
    return (tandem_matrices){0};
}

/* Of a value whose rows have gaps: leaves what its numbers are, and where. */
static void open_gaps(case_array *array, const tandem_step *step, int id)
{
    int op = -1;
    const int role = tandem_value_role(step, id, &op);
    if (role != 0 && role != 1) return; /* neither an activation nor a gradient */
    const int64_t row = tandem_step_padded_row(step, op);
    if (!row || step->graph->op[op].kind == TANDEM_OP_CROSS_ENTROPY) return;
    array->columns = (size_t)tandem_shape_last(&step->graph->op[op].shape);
    array->row = (size_t)row;
    array->n = array->n / array->row * array->columns;
    array->is_gradient = role == 1;
    memset(array->data, array->is_gradient ? 0 : SPOILT_BYTE, array->bytes);
}

static void open_operand(case_array *array, const tandem_step *step, int id, int index)
{
    if (id < 0) {
        array_open(array, TANDEM_F32, (size_t)step->graph->parameter[TANDEM_PARAMETER(id)].elements);
        return;
    }
    const tandem_value *value = &step->value[id];
    const tandem_op *op = &step->graph->op[value->op];
    /* places of maxima are bytes, though the step program knows aux as numbers without a type */
    if (op->kind == TANDEM_OP_MAXPOOL && id == tandem_value_aux(step, value->op))
        array_open(array, TANDEM_S8, value->bytes);
    else if (index || (op->kind == TANDEM_OP_GATHER_LABELLED && id == tandem_value_aux(step, value->op)))
        array_open(array, TANDEM_S32, value->bytes / 4);
    else
        array_open(array, value->dtype, value->bytes / tandem_dtype_bytes(value->dtype));
    array->transposed_copy = columns_of(step, id);
    open_gaps(array, step, id);
}

void operands_open(task_operands *operands, const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const tandem_op *op = &step->graph->op[task->op];
    const int own = is_kernel_of_op(task->kind);
    *operands = (task_operands){.n_in = task->n_read - task->accumulate, .n_out = task->n_write};
    for (int k = 0; k < operands->n_in; k++)
        open_operand(&operands->in[k], step, task->read[k], own && is_index(op, task->kind, k));
    for (int k = 0; k < task->n_write; k++) open_operand(&operands->out[k], step, task->write[k], 0);
}

void operands_close(task_operands *operands)
{
    for (int k = 0; k < operands->n_in; k++) array_close(&operands->in[k]);
    for (int k = 0; k < operands->n_out; k++) array_close(&operands->out[k]);
}

/* 0 … n−1; of labels every fifth is −1. */
static void fill_indices(case_array *array, int64_t n, int labels, uint64_t key)
{
    for (size_t i = 0; i < array->n; i++)
        array->value[i] =
            labels && i % 5 == 4 ? -1 : floor((case_random(key, (uint32_t)i) + 1) / 2 * (double)n);
    array_store(array);
}

void operands_fill(task_operands *operands, const tandem_step *step, int t, uint64_t key)
{
    const tandem_task *task = &step->task[t];
    const tandem_graph *graph = step->graph;
    const tandem_op *op = &graph->op[task->op];
    operands->prior_key = key * 16 + TANDEM_TASK_READS;
    for (int k = 0; k < operands->n_in; k++) array_random(&operands->in[k], key * 16 + (uint64_t)k);
    if (!is_kernel_of_op(task->kind)) return;
    for (int k = 0; k < operands->n_in; k++)
        if (is_index(op, task->kind, k))
            fill_indices(&operands->in[k],
                         op->kind == TANDEM_OP_EMBEDDING ? graph->parameter[op->parameter[0]].shape.dim[0]
                                                         : tandem_shape_last(&graph->op[op->input[0]].shape),
                         op->kind != TANDEM_OP_EMBEDDING, key * 16 + (uint64_t)k);
    if (task->kind == TANDEM_TASK_DGRAD) reference_fill_saved(operands, graph, op, key);
}

int operands_add_up(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const tandem_op *op = &step->graph->op[task->op];
    return task->accumulate || (task->kind == TANDEM_TASK_WGRAD && op->kind == TANDEM_OP_EMBEDDING &&
                                step->graph->parameter[op->parameter[0]].tied >= 0);
}

double operands_prior(const task_operands *operands, size_t i)
{
    return operands->prior_key ? floor(64 * case_random(operands->prior_key, (uint32_t)i)) / 64 : 0;
}

typedef struct kernel_run {
    const tandem_device_backend *backend;
    int adds_up;
    tandem_kernel *kernel;
    tandem_kernel_call call;
    case_array workspace;
    float out_scale[TANDEM_TASK_WRITES];
} kernel_run;

static void prepare_call(kernel_run *run, task_operands *operands, uint64_t seed, float row_weight)
{
    for (int k = 0; k < operands->n_in; k++) {
        run->call.in[k] = operands->in[k].data;
        run->call.in_scale[k] = has_scale(operands->in[k].dtype) ? &operands->in[k].scale : NULL;
    }
    for (int k = 0; k < operands->n_out; k++) {
        run->call.out[k] = operands->out[k].data;
        run->call.out_scale[k] = has_scale(operands->out[k].dtype) ? &run->out_scale[k] : NULL;
    }
    if (run->adds_up) run->call.in[operands->n_in] = operands->out[0].data;
    run->call.workspace = run->workspace.data;
    run->call.rng = (tandem_rng_stream){.seed = seed, .stream = {3, 1, TANDEM_RNG_ACTIVATION}};
    run->call.row_weight = row_weight;
    run->call.smoothing = case_smoothing;
    run->call.first_sample = case_first_place;
}

static int once(kernel_run *run, task_operands *operands, char *complaint, size_t size)
{
    tandem_error error = {0};
    array_spoil(&run->workspace);
    for (int k = 0; k < operands->n_out; k++) array_spoil(&operands->out[k]);
    if (run->adds_up) {
        for (size_t i = 0; i < operands->out[0].n; i++)
            operands->out[0].value[i] = operands_prior(operands, i);
        array_store(&operands->out[0]);
    }
    if (run->backend->run(run->kernel, &run->call, &error) != TANDEM_OK) {
        snprintf(complaint, size, "run: %s", error.text);
        return 0;
    }
    int whole = array_guards_whole(&run->workspace);
    for (int k = 0; k < operands->n_in; k++) whole &= array_guards_whole(&operands->in[k]);
    for (int k = 0; k < operands->n_out; k++) whole &= array_guards_whole(&operands->out[k]);
    if (!whole)
        snprintf(complaint, size, "it writes outside its arrays (workspace: %zu bytes)",
                 run->workspace.bytes);
    return whole;
}

/* Once, and again on a spoilt workspace: the inputs must be as they were, and the outputs the same. */
static int twice(kernel_run *run, task_operands *operands, char *complaint, size_t size)
{
    void *before[TANDEM_TASK_READS] = {NULL}, *first[TANDEM_TASK_WRITES] = {NULL};
    float first_scale[TANDEM_TASK_WRITES] = {0};
    for (int k = 0; k < operands->n_in; k++) {
        before[k] = memory(operands->in[k].bytes + 1);
        memcpy(before[k], operands->in[k].data, operands->in[k].bytes);
    }
    int good = once(run, operands, complaint, size);
    for (int k = 0; k < operands->n_out && good; k++) {
        first[k] = memory(operands->out[k].bytes + 1);
        memcpy(first[k], operands->out[k].data, operands->out[k].bytes);
        first_scale[k] = run->out_scale[k];
    }
    good = good && once(run, operands, complaint, size);
    for (int k = 0; k < operands->n_out && good; k++)
        if (memcmp(first[k], operands->out[k].data, operands->out[k].bytes) != 0 ||
            memcmp(&first_scale[k], &run->out_scale[k], sizeof first_scale[k]) != 0) {
            snprintf(complaint, size, "output %d has other bits when it runs again", k);
            good = 0;
        }
    for (int k = 0; k < operands->n_in && good; k++)
        if (memcmp(before[k], operands->in[k].data, operands->in[k].bytes) != 0) {
            snprintf(complaint, size, "it changes input %d", k);
            good = 0;
        }
    for (int k = 0; k < operands->n_in; k++) free(before[k]);
    for (int k = 0; k < operands->n_out; k++) free(first[k]);
    return good;
}

int operands_run(task_operands *operands, const tandem_device_backend *backend, void *device,
                 const tandem_step *step, int task, uint64_t seed, float row_weight, char *complaint,
                 size_t size)
{
    kernel_run run = {.backend = backend, .adds_up = operands_add_up(step, task)};
    uint64_t workspace_bytes = 0;
    tandem_error error = {0};
    if (backend->prepare(device, step, task, &run.kernel, &workspace_bytes, &error) != TANDEM_OK) {
        snprintf(complaint, size, "prepare: %s", error.text);
        return 0;
    }
    array_open(&run.workspace, TANDEM_S8, workspace_bytes);
    operands->seed = seed;
    prepare_call(&run, operands, seed, row_weight);
    const int good = twice(&run, operands, complaint, size);
    for (int k = 0; k < operands->n_out; k++) {
        if (has_scale(operands->out[k].dtype) && has_scale(step->task[task].to))
            operands->out[k].scale = run.out_scale[operands->out[k].transposed_copy.batch ? 0 : k];
        array_load(&operands->out[k]);
    }
    array_close(&run.workspace);
    backend->release(run.kernel);
    return good;
}
