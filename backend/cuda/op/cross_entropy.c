/* cross_entropy: loss = row_weight · Σ rows −log softmax(logits)[label]; aux: two numbers of each row, from
 * which backward makes its probabilities; without narrow_rows, as in evaluations, the probabilities. An
 * invalid label is stored on the GPU (cuda_faults), and device_sync reports it. With fewer rows than labels,
 * the rows belong to the labels that are not −1; the workspace holds these labels. */
#include "backend/cuda/operator.h"

typedef struct loss_shape {
    size_t rows, classes, row; /* row: elements from one row of logits to the next */
    size_t batch, length;      /* length: labels per sample */
} loss_shape;

static loss_shape loss_shape_of(const tandem_kernel *kernel)
{
    const tandem_shape *logits = cuda_input_shape(kernel, 0);
    const size_t classes = (size_t)tandem_shape_last(logits);
    const size_t batch = (size_t)kernel->graph->batch;
    return (loss_shape){.rows = (size_t)tandem_shape_elements(logits) / classes,
                        .classes = classes,
                        .row = kernel->padded_row ? (size_t)kernel->padded_row : classes,
                        .batch = batch,
                        .length = (size_t)tandem_shape_elements(cuda_input_shape(kernel, 1)) / batch};
}

static int has_label_per_row(const loss_shape *s) { return s->rows == s->batch * s->length; }

/* *own: the rows' labels. Where a sample has fewer rows than labels, they are gathered in `room`, 2·rows
 * words. */
static int gather_labels(const int32_t **own, const int32_t *label, const loss_shape *s, int32_t *buffer,
                         const cuda_device *device)
{
    *own = label;
    if (has_label_per_row(s)) return 0;
    *own = buffer;
    int32_t *const label_index = buffer + s->rows;
    const int failed = tandem_cuda_label_indices(label_index, label, s->batch, s->length, s->rows / s->batch,
                                                 &device->faults->bad_label, device->stream);
    return failed ? failed
                  : tandem_cuda_gather_rows(buffer, label, TANDEM_CUDA_F32, label_index, s->rows, 1,
                                            device->stream);
}

static tandem_status cuda_cross_entropy_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                                tandem_error *error)
{
    const cuda_device *device = kernel->device;
    const loss_shape s = loss_shape_of(kernel);
    const int32_t *label = NULL;
    int failed = gather_labels(&label, call->in[1], &s, (int32_t *)call->workspace + s.rows, device);
    const tandem_cuda_cross_entropy_out out = {.loss = call->out[0],
                                               .saved = kernel->saves_input ? call->out[1] : NULL,
                                               .p = kernel->saves_input ? NULL : call->out[1]};
    if (!failed)
        failed = tandem_cuda_cross_entropy(&out, call->in[0], cuda_float_of(kernel->task.from), label, s.rows,
                                           s.classes, s.row, call->row_weight, call->smoothing,
                                           &device->faults->bad_label, call->workspace, device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_cross_entropy_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                              tandem_error *error)
{
    const loss_shape s = loss_shape_of(kernel);
    const int32_t *label = NULL;
    int failed = gather_labels(&label, call->in[0], &s, call->workspace, kernel->device);
    if (!failed)
        failed = tandem_cuda_cross_entropy_backward(call->out[0], call->in[1], cuda_float_of(kernel->task.to),
                                                    kernel->saves_input ? call->in[2] : NULL, label, s.rows,
                                                    s.classes, s.row, call->row_weight, call->row_factor,
                                                    call->smoothing, kernel->device->stream);
    return cuda_kernel_result(kernel, failed, error);
}

static tandem_status cuda_cross_entropy_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    const loss_shape s = loss_shape_of(kernel);
    kernel->workspace_bytes =
        ((is_forward ? 1u : 0u) + (has_label_per_row(&s) ? 0u : 2u)) * s.rows * sizeof(float);
    kernel->run = is_forward ? cuda_cross_entropy_forward : cuda_cross_entropy_dgrad;
    if (!is_forward && kernel->task.from != kernel->task.to)
        return cuda_kernel_refuse(kernel, "it reads logits of the type of their gradient", error);
    return TANDEM_OK;
}

const cuda_operator cuda_cross_entropy = {.prepare = cuda_cross_entropy_prepare};
