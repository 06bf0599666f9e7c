/* softmax: y = softmax(scale·x) over the last dimension; where causal, entry (i, j) with j > i of the last
 * two dimensions is masked: its y is exactly 0. gx = scale·y·(g − Σ g·y), 0 where masked because y is. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

typedef struct softmax_state {
    cpu_primitive softmax;
    cpu_primitive multiply; /* by the scale: before the forward pass (not where causal), behind the backward pass */
} softmax_state;

/* The scaled and masked rows; a masked entry is so small that its exponential is 0. */
static void mask(float *y, const float *x, int64_t rows, int64_t columns, float scale)
{
    for (int64_t r = 0; r < rows; r++, x += columns, y += columns) {
        const int64_t seen = r % columns + 1;
        for (int64_t j = 0; j < seen; j++) y[j] = scale * x[j];
        for (int64_t j = seen; j < columns; j++) y[j] = -INFINITY;
    }
}

static tandem_status run_forward(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const softmax_state *state = kernel->state;
    const tandem_op *op = kernel->op;
    const void *x = call->in[0];
    tandem_status status = TANDEM_OK;
    if (op->causal) {
        const int64_t columns = tandem_shape_last(&op->shape);
        mask(call->out[0], x, tandem_shape_elements(&op->shape) / columns, columns, op->scale);
        x = call->out[0];
    } else if (state->multiply.primitive) {
        status = cpu_primitive_run(&state->multiply, kernel, (const void *const[]){x, call->out[0]},
                                   call->workspace, error);
        x = call->out[0];
    }
    if (status != TANDEM_OK) return status;
    return cpu_primitive_run(&state->softmax, kernel, (const void *const[]){x, call->out[0]}, call->workspace, error);
}

static tandem_status run_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const softmax_state *state = kernel->state;
    const tandem_status status =
        cpu_primitive_run(&state->softmax, kernel,
                          (const void *const[]){call->in[0], call->in[1], call->out[0]}, call->workspace, error);
    if (status != TANDEM_OK) return status;
    return cpu_primitive_run(&state->multiply, kernel, (const void *const[]){call->out[0], call->out[0]},
                             call->workspace, error);
}

static void destroy(void *state)
{
    softmax_state *softmax = state;
    cpu_primitive_close(&softmax->softmax);
    cpu_primitive_close(&softmax->multiply);
    free(softmax);
}

static tandem_status open_softmax(softmax_state *state, const tandem_kernel *kernel, tandem_error *error)
{
    const int64_t columns = tandem_shape_last(&kernel->op->shape);
    const dnnl_memory_desc_t x =
        cpu_matrix_descriptor(TANDEM_F32, tandem_shape_elements(&kernel->op->shape) / columns, columns);
    dnnl_softmax_desc_t forward, backward;
    if (dnnl_softmax_forward_desc_init(&forward, dnnl_forward_training, &x, 1) != dnnl_success ||
        dnnl_softmax_backward_desc_init(&backward, &x, &x, 1) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no softmax of this shape", error);
    if (kernel->task.kind == TANDEM_TASK_FORWARD)
        return cpu_primitive_make(&state->softmax, kernel, &forward, NULL, 2,
                                  (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST}, error);
    return cpu_primitive_make(&state->softmax, kernel, &backward, &forward, 3,
                              (const int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_DST, DNNL_ARG_DIFF_SRC}, error);
}

static tandem_status open_multiply(softmax_state *state, const tandem_kernel *kernel, tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const float scale = kernel->op->scale;
    if (!(scale < 1 || scale > 1) || (is_forward && kernel->op->causal)) return TANDEM_OK;
    const dnnl_memory_desc_t all = cpu_matrix_descriptor(TANDEM_F32, 1, tandem_shape_elements(&kernel->op->shape));
    dnnl_eltwise_desc_t multiply;
    if (dnnl_eltwise_forward_desc_init(&multiply, dnnl_forward_inference, dnnl_eltwise_linear, &all, scale, 0) !=
        dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no softmax of this shape", error);
    return cpu_primitive_make(&state->multiply, kernel, &multiply, NULL, 2,
                              (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST}, error);
}

static tandem_status prepare(tandem_kernel *kernel, tandem_error *error)
{
    softmax_state *state = calloc(1, sizeof *state);
    if (!state) return cpu_kernel_no_memory(kernel, error);
    tandem_status status = open_softmax(state, kernel, error);
    if (status == TANDEM_OK) status = open_multiply(state, kernel, error);
    if (status != TANDEM_OK) {
        destroy(state);
        return status;
    }
    const uint64_t one = state->softmax.scratchpad_bytes, other = state->multiply.scratchpad_bytes;
    kernel->workspace_bytes = one > other ? one : other;
    kernel->state = state;
    kernel->destroy = destroy;
    kernel->run = kernel->task.kind == TANDEM_TASK_FORWARD ? run_forward : run_dgrad;
    return TANDEM_OK;
}

const cpu_operator cpu_softmax = {prepare};
