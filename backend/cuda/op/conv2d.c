/* conv2d: channels last; weight (kernel·kernel·c_in, c_out). A 1x1 window with stride 1 is a product of the
 * images as they lie, in all types and passes. For other windows, floats use cuDNN, which has c_out first: a
 * cast to two bytes writes the weight so; another weight, or its gradient, is transposed in the workspace,
 * which costs kilobytes against megabytes of images. One-byte types use products of im2col columns, and so do
 * floats where cuDNN has no algorithm for a shape. */
#include <stdlib.h>

#include "backend/cuda/operator.h"

typedef struct cuda_conv_state {
    cuda_planned_work chosen; /* none for products of columns */
    tandem_dtype made;        /* cuDNN's result type, where it is not the kernel's */
    uint64_t weight_offset, result_offset, columns_offset;
    cuda_gemm matmul;
    int pointwise;
} cuda_conv_state;

static size_t conv2d_weight_rows(const tandem_kernel *kernel)
{
    return (size_t)(kernel->op->kernel_h * kernel->op->kernel_w) *
           (size_t)tandem_shape_last(cuda_input_shape(kernel, 0));
}

/* (rows, columns) to (columns, rows) */
static int transpose_weight(void *to, const void *from, tandem_dtype dtype, size_t rows, size_t columns,
                            tandem_cuda_stream stream)
{
    const tandem_cuda_permutation p = {{1, 1, columns, rows}, {0, 0, 1, columns}};
    return tandem_cuda_transpose(to, from, cuda_float_of(dtype), &p, stream);
}

static tandem_status cuda_conv2d_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    const cuda_conv_state *state = kernel->state;
    const cuda_device *device = kernel->device;
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const size_t rows = conv2d_weight_rows(kernel), columns = (size_t)tandem_shape_last(&kernel->op->shape);
    void *const turned = cuda_workspace_at(call->workspace, state->weight_offset);
    const int is_transposed = kernel->transposed_copy[1], must_convert = state->made != kernel->task.to;
    void *const result =
        must_convert ? cuda_workspace_at(call->workspace, state->result_offset) : call->out[0];
    int failed = is_transposed ? 0
                               : transpose_weight(turned, call->in[1], kernel->task.from, rows, columns,
                                                  device->stream);
    const cuda_operands operands = {call->in[0], is_transposed ? call->in[1] : turned, result, NULL, NULL};
    if (!failed) failed = cuda_planned_work_run(&state->chosen, device, &operands, call->workspace);
    const size_t n =
        (size_t)tandem_shape_elements(is_forward ? &kernel->op->shape : cuda_input_shape(kernel, 0));
    if (!failed && must_convert)
        failed = tandem_cuda_convert(call->out[0], cuda_float_of(kernel->task.to), result,
                                     cuda_float_of(state->made), n, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_conv2d_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                       tandem_error *error)
{
    const cuda_conv_state *state = kernel->state;
    const cuda_device *device = kernel->device;
    const size_t rows = conv2d_weight_rows(kernel), columns = (size_t)tandem_shape_last(&kernel->op->shape);
    void *const gradient = cuda_workspace_at(call->workspace, state->weight_offset);
    int failed = cuda_planned_work_run(&state->chosen, device,
                                       &(cuda_operands){call->in[0], call->in[1], gradient, NULL, NULL},
                                       call->workspace);
    if (!failed)
        failed = tandem_cuda_transpose_to_f32(call->out[0], gradient, cuda_float_of(state->made), rows,
                                              columns, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

/* cuDNN needs one type for all tensors. An f32 gradient of bf16 operands is computed in bf16, a bf16 gradient
 * of f32 operands in f32; the same holds for f16. */
static tandem_status cuda_conv2d_prepare_float(cuda_conv_state *state, tandem_kernel *kernel,
                                               tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const tandem_cuda_pool w = cuda_window_of(kernel);
    const uint64_t weight_elements =
                       conv2d_weight_rows(kernel) * (uint64_t)tandem_shape_last(&kernel->op->shape),
                   result_elements = (uint64_t)tandem_shape_elements(
                       task->kind == TANDEM_TASK_FORWARD ? &kernel->op->shape : cuda_input_shape(kernel, 0));
    state->made = task->from;
    const cuda_convolution_spec spec = {.pass = task->kind == TANDEM_TASK_FORWARD ? CUDA_CONVOLUTION
                                                : task->kind == TANDEM_TASK_DGRAD ? CUDA_CONVOLUTION_DGRAD
                                                                                  : CUDA_CONVOLUTION_WGRAD,
                                        .batch = w.batch,
                                        .in_h = w.in_h,
                                        .in_w = w.in_w,
                                        .c_in = w.channels,
                                        .out_h = w.out_h,
                                        .out_w = w.out_w,
                                        .c_out = (int)tandem_shape_last(&kernel->op->shape),
                                        .kernel_h = w.kernel_h,
                                        .kernel_w = w.kernel_w,
                                        .stride = w.stride,
                                        .pad = w.pad,
                                        .type = cuda_type_of(task->from),
                                        .tf32 = tandem_precision_get(task->precision)->product_dtype ==
                                                TANDEM_TF32};
    const tandem_status status = cuda_plan_convolution(&state->chosen, kernel, &spec, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = 0;
    cuda_workspace_reserve(&end, state->chosen.algorithm.workspace_bytes);
    if (!kernel->transposed_copy[1])
        state->weight_offset = cuda_workspace_reserve(&end, weight_elements * tandem_dtype_bytes(task->from));
    if (task->kind != TANDEM_TASK_WGRAD && task->to != task->from)
        state->result_offset = cuda_workspace_reserve(&end, result_elements * tandem_dtype_bytes(task->from));
    kernel->workspace_bytes = end;
    kernel->run = task->kind == TANDEM_TASK_WGRAD ? cuda_conv2d_wgrad : cuda_conv2d_run;
    return TANDEM_OK;
}

/* --- Products of columns -------------------------------------------------------------------------------- */

/* The images' columns: the images themselves for a 1×1 window without stride. */
static tandem_status cuda_conv2d_columns(const void **columns, const tandem_kernel *kernel,
                                         const tandem_kernel_call *call, tandem_error *error)
{
    const cuda_conv_state *state = kernel->state;
    *columns = call->in[0];
    if (state->pointwise) return TANDEM_OK;
    void *const made = cuda_workspace_at(call->workspace, state->columns_offset);
    const tandem_cuda_pool window = cuda_window_of(kernel);
    *columns = made;
    return cuda_kernel_result(kernel,
                              tandem_cuda_im2col(made, call->in[0],
                                                 tandem_dtype_bytes(cuda_operand_type(kernel, 0)), &window,
                                                 kernel->device->stream),
                              error);
}

/* columns · W, and columnsᵀ · g */
static tandem_status cuda_conv2d_run_columns(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const cuda_conv_state *state = kernel->state;
    const void *columns = NULL;
    const tandem_status status = cuda_conv2d_columns(&columns, kernel, call, error);
    if (status != TANDEM_OK) return status;
    return cuda_gemm_run(&state->matmul, kernel, columns, call->in[1], call->out[0], call->in_scale[0],
                         call->in_scale[1], call->workspace, error);
}

/* g · Wᵀ: the columns' gradients, which col2im sums to those of the images. */
static tandem_status cuda_conv2d_columns_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               tandem_error *error)
{
    const cuda_conv_state *state = kernel->state;
    const tandem_status status = cuda_gemm_run(&state->matmul, kernel, call->in[0], call->in[1],
                                               state->pointwise ? call->out[0] : NULL, call->in_scale[0],
                                               call->in_scale[1], call->workspace, error);
    if (status != TANDEM_OK || state->pointwise) return status;
    const tandem_cuda_pool window = cuda_window_of(kernel);
    const tandem_cuda_float to = cuda_float_of(kernel->task.to);
    const void *const made = cuda_gemm_result(&state->matmul, call->workspace);
    const size_t stride = (size_t)state->matmul.n;
    const int failed =
        kernel->task.from == TANDEM_S8
            ? tandem_cuda_col2im_s32(call->out[0], to, made, stride, &window, call->in_scale[0],
                                     call->in_scale[1], kernel->device->stream)
            : tandem_cuda_col2im_f32(call->out[0], to, made, stride, &window, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_conv2d_prepare_columns(cuda_conv_state *state, tandem_kernel *kernel,
                                                 tandem_error *error)
{
    const tandem_op *op = kernel->op;
    const tandem_task *task = &kernel->task;
    const int is_dgrad = task->kind == TANDEM_TASK_DGRAD;
    const int64_t n = tandem_shape_last(&op->shape), positions = tandem_shape_elements(&op->shape) / n,
                  k = (int64_t)conv2d_weight_rows(kernel);
    cuda_product_spec spec = {.batch = 1, .m = positions, .n = n, .k = k};
    if (is_dgrad)
        spec = (cuda_product_spec){
            .batch = 1, .m = positions, .n = k, .k = n, .transpose_b = 1, .accumulate = task->accumulate};
    if (task->kind == TANDEM_TASK_WGRAD)
        spec = (cuda_product_spec){.batch = 1, .m = k, .n = n, .k = positions, .transpose_a = 1};
    spec.transpose_b ^= kernel->transposed_copy[1];
    state->pointwise = tandem_conv2d_is_pointwise(op);
    const tandem_dtype operand[2] = {cuda_operand_type(kernel, 0), cuda_operand_type(kernel, 1)};
    const tandem_status status = cuda_gemm_open(&state->matmul, kernel, &spec, operand, task->to,
                                                is_dgrad && !state->pointwise, error);
    if (status != TANDEM_OK) return status;
    uint64_t end = state->matmul.workspace_bytes;
    if (!state->pointwise && !is_dgrad)
        state->columns_offset =
            cuda_workspace_reserve(&end, (uint64_t)(positions * k) * tandem_dtype_bytes(operand[0]));
    kernel->workspace_bytes = end;
    kernel->run = is_dgrad ? cuda_conv2d_columns_dgrad : cuda_conv2d_run_columns;
    return TANDEM_OK;
}

static void cuda_conv2d_destroy(void *state, const cuda_device *device)
{
    cuda_conv_state *conv = state;
    cuda_planned_work_close(&conv->chosen, device);
    cuda_gemm_close(&conv->matmul, device);
    free(conv);
}

static tandem_status cuda_conv2d_prepare(tandem_kernel *kernel, tandem_error *error)
{
    cuda_conv_state *state = calloc(1, sizeof *state);
    if (!state) return cuda_kernel_no_memory(kernel, error);
    const int is_product = cuda_is_code(kernel->task.from) || tandem_conv2d_is_pointwise(kernel->op);
    tandem_status status = is_product ? TANDEM_NO_KERNEL : cuda_conv2d_prepare_float(state, kernel, error);
    if (status == TANDEM_NO_KERNEL) status = cuda_conv2d_prepare_columns(state, kernel, error);
    if (status != TANDEM_OK) {
        cuda_conv2d_destroy(state, kernel->device);
        return status;
    }
    kernel->state = state;
    kernel->destroy = cuda_conv2d_destroy;
    return TANDEM_OK;
}

const cuda_operator cuda_conv2d = {.prepare = cuda_conv2d_prepare};
