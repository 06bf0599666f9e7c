/* cross_entropy: loss = row_weight · Σ rows Σ_j −t[j]·log softmax(logits)[j]; aux: the probabilities. The
 * target t is 1 at the label; with smoothing s it is s/classes for every class, plus 1 − s at the label. The
 * gradient of the logits is (p − t)·row_weight. A row with label −1 adds nothing to the loss, and its
 * gradient is 0. With fewer rows than labels, the rows belong to the labels that are not −1 (kernel.h).
 *
 * With the largest logit m and S = Σ exp(x − m), a row's loss is (m − Σ t[j]·x[j]) + log S. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/kernel.h"

/* The label of row r; *place: its position. */
static tandem_status cpu_cross_entropy_label(int32_t *label, int64_t *label_index,
                                             const tandem_kernel *kernel, const int32_t *labels, int64_t r,
                                             tandem_error *error)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape), rows = tandem_shape_elements(shape) / classes;
    const tandem_status status = cpu_label_index(label_index, kernel, labels, r, rows, error);
    if (status != TANDEM_OK) return status;
    *label = labels[*label_index];
    if (*label >= -1 && *label < classes) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "operator '%s' (cross_entropy): label %" PRId64 " is %" PRId32
                            "; allowed 0 … %" PRId64 ", and −1 for none",
                            kernel->op->name, *label_index, *label, classes - 1);
}

/* Σ t[j]·x[j], with the mean logit relative to the largest: no cancellation. */
static double cross_entropy_target(const float *x, int64_t n, double top, int64_t label, double smoothing)
{
    if (!(smoothing > 0)) return (double)x[label];
    double below = 0;
    for (int64_t j = 0; j < n; j++) below += top - (double)x[j];
    return (1 - smoothing) * (double)x[label] + smoothing * (top - below / (double)n);
}

static int64_t cross_entropy_rows(const tandem_kernel *kernel)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    return tandem_shape_elements(shape) / tandem_shape_last(shape);
}

/* Writes the probabilities of row r and returns its loss, 0 without a label. */
static double cross_entropy_loss_row(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t r,
                                     int32_t label)
{
    const int64_t classes = tandem_shape_last(cpu_input_shape(kernel, 0));
    const float *const x = (const float *)call->in[0] + r * classes;
    float *const p = (float *)call->out[1] + r * classes;
    float top = 0;
    const float exponentials =
        kernel->device->one_thread->softmax_f32(p, x, (size_t)classes, (size_t)classes, 1, &top);
    if (label < 0) return 0;
    const double target = cross_entropy_target(x, classes, (double)top, label, (double)call->smoothing);
    return ((double)top - target) + log((double)exponentials);
}

static void cross_entropy_gradient_row(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t r,
                                       int32_t label)
{
    const int64_t classes = tandem_shape_last(cpu_input_shape(kernel, 0));
    const float *const p = (const float *)call->in[1] + r * classes;
    const float weight = call->row_weight, wrong = call->smoothing / (float)classes;
    float *const gradient = (float *)call->out[0] + r * classes;
    if (label < 0) {
        memset(gradient, 0, (size_t)classes * sizeof *gradient);
        return;
    }
    const float right = p[label];
    kernel->device->one_thread->scale_difference_f32(gradient, p, (size_t)classes, wrong, weight);
    gradient[label] = (right - wrong - (1 - call->smoothing)) * weight;
}

/* --- On one thread -------------------------------------------------------------------------------------- */

static tandem_status cpu_cross_entropy_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               tandem_error *error)
{
    const int64_t rows = cross_entropy_rows(kernel);
    double sum = 0;
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++) {
        int32_t label = -1;
        const tandem_status status =
            cpu_cross_entropy_label(&label, &label_index, kernel, call->in[1], r, error);
        if (status != TANDEM_OK) return status;
        const double loss = cross_entropy_loss_row(kernel, call, r, label);
        if (label >= 0) sum += loss;
    }
    *(float *)call->out[0] = (float)(sum * (double)call->row_weight);
    return TANDEM_OK;
}

static tandem_status cpu_cross_entropy_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const int64_t rows = cross_entropy_rows(kernel);
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++) {
        int32_t label = -1;
        const tandem_status status =
            cpu_cross_entropy_label(&label, &label_index, kernel, call->in[0], r, error);
        if (status != TANDEM_OK) return status;
        cross_entropy_gradient_row(kernel, call, r, label);
    }
    return TANDEM_OK;
}

/* --- On several ----------------------------------------------------------------------------------------- */

/* The workspace: of each row its label, which depends on the row before, and its loss. One thread adds the
 * losses, in the order of the rows. */
typedef struct cross_entropy_row {
    double loss;
    int32_t label;
} cross_entropy_row;

static tandem_status find_cross_entropy_labels(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               const int32_t *labels, tandem_error *error)
{
    const int64_t rows = cross_entropy_rows(kernel);
    cross_entropy_row *const row = call->workspace;
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++) {
        const tandem_status status =
            cpu_cross_entropy_label(&row[r].label, &label_index, kernel, labels, r, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

static void cross_entropy_losses(const tandem_kernel *kernel, const tandem_kernel_call *call, int64_t begin,
                                 int64_t end)
{
    cross_entropy_row *const row = call->workspace;
    for (int64_t r = begin; r < end; r++) row[r].loss = cross_entropy_loss_row(kernel, call, r, row[r].label);
}

static void cross_entropy_gradients(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    int64_t begin, int64_t end)
{
    const cross_entropy_row *const row = call->workspace;
    for (int64_t r = begin; r < end; r++) cross_entropy_gradient_row(kernel, call, r, row[r].label);
}

static tandem_status cpu_cross_entropy_forward_divided(const tandem_kernel *kernel,
                                                       const tandem_kernel_call *call, tandem_error *error)
{
    const int64_t rows = cross_entropy_rows(kernel);
    const cross_entropy_row *const row = call->workspace;
    const tandem_status status = find_cross_entropy_labels(kernel, call, call->in[1], error);
    if (status != TANDEM_OK) return status;
    cpu_kernel_rows(kernel, call, rows, tandem_shape_last(cpu_input_shape(kernel, 0)), cross_entropy_losses);
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        if (row[r].label >= 0) sum += row[r].loss;
    *(float *)call->out[0] = (float)(sum * (double)call->row_weight);
    return TANDEM_OK;
}

static tandem_status cpu_cross_entropy_dgrad_divided(const tandem_kernel *kernel,
                                                     const tandem_kernel_call *call, tandem_error *error)
{
    const tandem_status status = find_cross_entropy_labels(kernel, call, call->in[0], error);
    if (status != TANDEM_OK) return status;
    cpu_kernel_rows(kernel, call, cross_entropy_rows(kernel), tandem_shape_last(cpu_input_shape(kernel, 0)),
                    cross_entropy_gradients);
    return TANDEM_OK;
}

static tandem_status cpu_cross_entropy_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const int is_dgrad = kernel->task.kind == TANDEM_TASK_DGRAD;
    if (kernel->device->n_core == 1) {
        kernel->run = is_dgrad ? cpu_cross_entropy_dgrad : cpu_cross_entropy_forward;
        return TANDEM_OK;
    }
    kernel->workspace_bytes = (uint64_t)cross_entropy_rows(kernel) * sizeof(cross_entropy_row);
    kernel->run = is_dgrad ? cpu_cross_entropy_dgrad_divided : cpu_cross_entropy_forward_divided;
    return TANDEM_OK;
}

const cpu_operator cpu_cross_entropy = {.prepare = cpu_cross_entropy_prepare};
