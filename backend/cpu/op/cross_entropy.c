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

static tandem_status cpu_cross_entropy_forward(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                               tandem_error *error)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape), rows = tandem_shape_elements(shape) / classes;
    const float *x = call->in[0];
    float *p = call->out[1];
    double sum = 0;
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++, x += classes, p += classes) {
        int32_t label = -1;
        float top = 0;
        const tandem_status status =
            cpu_cross_entropy_label(&label, &label_index, kernel, call->in[1], r, error);
        if (status != TANDEM_OK) return status;
        const float exponentials =
            kernel->device->isa->softmax_f32(p, x, (size_t)classes, (size_t)classes, 1, &top);
        if (label < 0) continue;
        const double target = cross_entropy_target(x, classes, (double)top, label, (double)call->smoothing);
        sum += ((double)top - target) + log((double)exponentials);
    }
    *(float *)call->out[0] = (float)(sum * (double)call->row_weight);
    return TANDEM_OK;
}

static tandem_status cpu_cross_entropy_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                             tandem_error *error)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape), rows = tandem_shape_elements(shape) / classes;
    const float *p = call->in[1], weight = call->row_weight, wrong = call->smoothing / (float)classes;
    float *gradient = call->out[0];
    int64_t label_index = -1;
    for (int64_t r = 0; r < rows; r++, p += classes, gradient += classes) {
        int32_t label = -1;
        const tandem_status status =
            cpu_cross_entropy_label(&label, &label_index, kernel, call->in[0], r, error);
        if (status != TANDEM_OK) return status;
        if (label < 0) {
            memset(gradient, 0, (size_t)classes * sizeof *gradient);
            continue;
        }
        const float right = p[label];
        kernel->device->isa->scale_difference_f32(gradient, p, (size_t)classes, wrong, weight);
        gradient[label] = (right - wrong - (1 - call->smoothing)) * weight;
    }
    return TANDEM_OK;
}

static tandem_status cpu_cross_entropy_prepare(tandem_kernel *kernel, tandem_error *error)
{
    kernel->run =
        kernel->task.kind == TANDEM_TASK_DGRAD ? cpu_cross_entropy_dgrad : cpu_cross_entropy_forward;
    return TANDEM_OK;
}

const cpu_operator cpu_cross_entropy = {.prepare = cpu_cross_entropy_prepare};
