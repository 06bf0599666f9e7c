/* embedding: the f32 table's row for each token, rounded to the result's type. The table's gradient sums the
 * rows of g in order; that of a tied table is added to the one that its linear has written. */
#include <inttypes.h>
#include <string.h>

#include "backend/cpu/kernel.h"

static tandem_status cpu_embedding_bad_token(const tandem_kernel *kernel, int64_t index, int32_t token,
                                             int64_t vocabulary, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "operator '%s' (embedding): token %" PRId64 " is %" PRId32
                            "; allowed 0 … %" PRId64,
                            kernel->op->name, index, token, vocabulary - 1);
}

static void embed_tokens(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                         int64_t end)
{
    const int64_t width = kernel->graph->parameter[kernel->op->parameter[0]].shape.dim[1];
    const int32_t *const token = call->in[0];
    for (int64_t i = begin; i < end; i++) {
        const float *const row = (const float *)call->in[1] + token[i] * width;
        if (kernel->task.to == TANDEM_F32)
            memcpy((float *)call->out[0] + i * width, row, (size_t)width * sizeof *row);
        else
            kernel->device->one_thread->bf16_from_f32((uint16_t *)call->out[0] + i * width, row,
                                                      (size_t)width);
    }
}

static tandem_status cpu_embedding_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                           tandem_error *error)
{
    const tandem_shape *table = &kernel->graph->parameter[kernel->op->parameter[0]].shape;
    const int64_t n = tandem_shape_elements(cpu_input_shape(kernel, 0));
    const int32_t *const token = call->in[0];
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= table->dim[0])
            return cpu_embedding_bad_token(kernel, i, token[i], table->dim[0], error);
    cpu_kernel_rows(kernel, call, n, table->dim[1], embed_tokens);
    return TANDEM_OK;
}

static tandem_status cpu_embedding_wgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_error *error)
{
    const tandem_parameter *table = &kernel->graph->parameter[kernel->op->parameter[0]];
    const int64_t vocabulary = table->shape.dim[0], width = table->shape.dim[1];
    const int64_t n = tandem_shape_elements(cpu_input_shape(kernel, 0));
    const size_t row_bytes = (size_t)width * tandem_dtype_bytes(kernel->task.from);
    const int32_t *const token = call->in[0];
    float *const gradient = call->out[0];
    if (table->tied < 0) memset(gradient, 0, (size_t)table->elements * sizeof *gradient);
    for (int64_t i = 0; i < n; i++) {
        if (token[i] < 0 || token[i] >= vocabulary)
            return cpu_embedding_bad_token(kernel, i, token[i], vocabulary, error);
        cpu_add_row(gradient + token[i] * width, (const char *)call->in[1] + (size_t)i * row_bytes,
                    kernel->task.from, width);
    }
    return TANDEM_OK;
}

static tandem_status cpu_embedding_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_task *task = &kernel->task;
    const int is_forward = task->kind == TANDEM_TASK_FORWARD;
    if (!cpu_is_float(task->from) || task->to != (is_forward ? task->from : TANDEM_F32) ||
        task->kind == TANDEM_TASK_DGRAD)
        return cpu_kernel_refuse(kernel, "tables are f32 or bf16", error);
    kernel->run = is_forward ? cpu_embedding_forward : cpu_embedding_wgrad;
    return TANDEM_OK;
}

const cpu_operator cpu_embedding = {.prepare = cpu_embedding_prepare};
