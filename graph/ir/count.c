/* count.c: FLOPs and bytes of auxiliary results of an operator. */
#include "graph/ir/op.h"

int64_t tandem_op_n_factor(const tandem_op *op)
{
    int64_t n = 1;
    for (int d = 0; d < op->shape.n_dim; d++) n += (op->shape.dim[d] - 1) * op->factor_step[d];
    return n;
}

static double forward_product_flops(const tandem_op *op, const tandem_shape *in)
{
    const double out = (double)tandem_shape_elements(&op->shape);
    const double depth = (double)tandem_shape_last(in);
    if (op->kind == TANDEM_OP_GROUPED_CONV2D)
        return 2 * out * (double)op->kernel_h * (double)op->kernel_w * depth / op->groups;
    if (op->kind == TANDEM_OP_CONV2D) return 2 * out * (double)op->kernel_h * (double)op->kernel_w * depth;
    return 2 * out * depth;
}

static double count_forward_flops(const tandem_op *op, const tandem_shape *in)
{
    const double out = (double)tandem_shape_elements(&op->shape);
    switch (op->kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_CONV2D:
    case TANDEM_OP_GROUPED_CONV2D:
    case TANDEM_OP_MATMUL: return forward_product_flops(op, in);
    case TANDEM_OP_MAP: return tandem_function_flops(op->function) * out;
    case TANDEM_OP_BIAS:
    case TANDEM_OP_SCALE:
    case TANDEM_OP_MUL:
    case TANDEM_OP_MUL_CONSTANT:
    case TANDEM_OP_ADD:
    case TANDEM_OP_TANH:
    case TANDEM_OP_DROPOUT:
    case TANDEM_OP_RELU: return out;
    case TANDEM_OP_GELU: return 8 * out;
    case TANDEM_OP_BIAS_GELU: return 9 * out;
    case TANDEM_OP_SOFTMAX: return 6 * out;
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM: return 7 * out;
    case TANDEM_OP_BATCHNORM_RELU: return 8 * out;
    case TANDEM_OP_BATCHNORM_ADD_RELU: return 9 * out;
    case TANDEM_OP_MAXPOOL:
    case TANDEM_OP_AVGPOOL: return out * (double)op->kernel_h * (double)op->kernel_w;
    case TANDEM_OP_CROSS_ENTROPY: return 5 * (double)tandem_shape_elements(in);
    case TANDEM_OP_IMAGES:
    case TANDEM_OP_TOKENS:
    case TANDEM_OP_LABELS:
    case TANDEM_OP_EMBEDDING:
    case TANDEM_OP_RESHAPE:
    case TANDEM_OP_TRANSPOSE:
    case TANDEM_OP_SLICE:
    case TANDEM_OP_GATHER_LABELLED:
    case TANDEM_OP_CONCAT_TOKEN:
    case TANDEM_OP_CALL:
    case TANDEM_OP_CALL_TRAINED:
    case TANDEM_OP_CONCAT:
    case TANDEM_OP_REPEAT:
    case TANDEM_N_OP_KIND: break;
    }
    return 0;
}

static uint64_t count_aux_bytes(const tandem_op *op, const tandem_shape *in)
{
    const uint64_t elements = (uint64_t)tandem_shape_elements(&op->shape);
    const uint64_t last = (uint64_t)tandem_shape_last(&op->shape);
    if (op->kind == TANDEM_OP_LAYERNORM) /* mean and variance of each row, f32 */
        return 2 * 4 * (elements / last);
    if (tandem_op_is_batchnorm(op)) /* mean and variance of each channel, f32 */
        return 2 * 4 * last;
    if (op->kind == TANDEM_OP_MAXPOOL) /* index of the maximum in its window */
        return elements * ((int64_t)op->kernel_h * op->kernel_w <= 256 ? 1 : 4);
    if (op->kind == TANDEM_OP_GATHER_LABELLED) /* index of each row, s32 */
        return 4 * (uint64_t)(op->shape.dim[0] * op->shape.dim[1]);
    if (op->kind == TANDEM_OP_CROSS_ENTROPY) /* probabilities, f32 */
        return 4 * (uint64_t)tandem_shape_elements(in);
    return 0;
}

void tandem_op_count(tandem_op *op, const tandem_op *all)
{
    const tandem_shape *in = op->input[0] >= 0 ? &all[op->input[0]].shape : &op->shape;
    op->flops = count_forward_flops(op, in);
    op->aux_bytes = count_aux_bytes(op, in);
}
