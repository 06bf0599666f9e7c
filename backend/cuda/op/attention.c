/* attention: o = dropout(softmax(scale·q·kᵀ))·v where a plan runs it as one task (tandem_step_attention), and
 * the gradients of q, k and v. The operator of the task is the last product. */
#include "backend/cuda/operator.h"

static tandem_dropout attention_mask(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    const tandem_attention *a = &kernel->attention;
    const uint64_t n = (uint64_t)(a->heads * a->rows * a->columns);
    return cuda_dropout_mask(&kernel->graph->op[a->dropout], call, n / (uint64_t)kernel->graph->batch);
}

static tandem_cuda_attention_spec attention_spec(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                                 const tandem_dropout *mask)
{
    const tandem_attention *a = &kernel->attention;
    const tandem_op *softmax = &kernel->graph->op[a->softmax];
    const int drops = a->dropout >= 0 && !call->is_evaluation;
    return (tandem_cuda_attention_spec){.heads = (size_t)a->heads,
                                        .rows = (size_t)a->rows,
                                        .columns = (size_t)a->columns,
                                        .depth = (size_t)a->depth,
                                        .scale = softmax->scale,
                                        .causal = softmax->causal,
                                        .dropout = drops ? mask : NULL,
                                        .stream_offset = call->rng.stream_offset};
}

static tandem_status cuda_attention_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                            tandem_error *error)
{
    const tandem_dropout mask =
        kernel->attention.dropout >= 0 ? attention_mask(kernel, call) : (tandem_dropout){0};
    const tandem_cuda_attention_spec spec = attention_spec(kernel, call, &mask);
    const int failed =
        tandem_cuda_attention(call->out[0], call->out[1], call->in[0], call->in[1], call->in[2],
                              cuda_float_of(kernel->task.from), &spec, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_attention_backward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const tandem_dropout mask =
        kernel->attention.dropout >= 0 ? attention_mask(kernel, call) : (tandem_dropout){0};
    const tandem_cuda_attention_spec spec = attention_spec(kernel, call, &mask);
    tandem_cuda_attention_gradient x = {.g = call->in[0],
                                        .q = call->in[1],
                                        .k = call->in[2],
                                        .v = call->in[3],
                                        .o = call->in[4],
                                        .statistics = call->in[5],
                                        .along = call->workspace};
    for (int k = 0; k < 3; k++) {
        x.gradient[k] = call->out[k];
        x.type[k] = cuda_float_of(kernel->written[k]);
    }
    const int failed =
        tandem_cuda_attention_backward(&x, cuda_float_of(kernel->task.from), &spec, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_attention_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_attention *a = &kernel->attention;
    const int64_t longest = a->rows > a->columns ? a->rows : a->columns;
    const tandem_status able = cuda_require_capability(kernel, cuda_type_of(kernel->task.from), 0, error);
    if (able != TANDEM_OK) return able;
    if (longest > INT32_MAX / 2 || a->heads > INT32_MAX / (longest / 64 + 1)) /* blocks of 64 rows */
        return cuda_kernel_refuse(kernel, "it has more than 2^31 blocks", error);
    if (kernel->task.kind == TANDEM_TASK_FORWARD) {
        kernel->run = cuda_attention_forward;
        return TANDEM_OK;
    }
    kernel->run = cuda_attention_backward;
    kernel->workspace_bytes = tandem_attention_statistics_bytes(a);
    return TANDEM_OK;
}

const cuda_operator cuda_attention = {.prepare = cuda_attention_prepare};
