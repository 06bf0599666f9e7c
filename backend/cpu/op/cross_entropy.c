/* cross_entropy: loss = row_weight · Σ rows Σ_j −t[j]·log softmax(logits)[j]; aux: the probabilities. The target t is 1 at the
 * label, or with a smoothing s it is s/classes everywhere and 1 − s more at the label. The gradient of the logits is
 * (p − t)·row_weight. A row labelled −1 is not predicted: it adds nothing to the loss,
 * and its gradient is 0.
 *
 * The probabilities are oneDNN's softmax. The largest logit m has p(m) = 1/Σ exp(x − m), so a row's loss is
 * (m − Σ t[j]·x[j]) − log p(m): as stable as log-sum-exp, and without a second pass of exponentials. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/dnnl_primitive.h"
#include "backend/cpu/kernel.h"

static tandem_status bad_label(const tandem_kernel *kernel, int64_t row, int32_t label, int64_t classes,
                               tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "operator '%s' (cross_entropy): label %" PRId64 " is %" PRId32
                            "; allowed 0 … %" PRId64 ", and −1 for none",
                            kernel->op->name, row, label, classes - 1);
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t place = 0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > x[place]) place = j;
    return place;
}

/* Σ t[j]·x[j], the mean logit counted from the largest: none of it cancels. */
static double target_logit(const float *x, int64_t n, int64_t m, int64_t label, double smoothing)
{
    if (!(smoothing > 0)) return (double)x[label];
    double below = 0;
    for (int64_t j = 0; j < n; j++) below += (double)x[m] - (double)x[j];
    return (1 - smoothing) * (double)x[label] + smoothing * ((double)x[m] - below / (double)n);
}

static tandem_status run_forward(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape), rows = tandem_shape_elements(shape) / classes;
    const float *x = call->in[0];
    const int32_t *const label = call->in[1];
    const float *p = call->out[1];
    const tandem_status status =
        cpu_primitive_run(kernel->state, kernel, (const void *const[]){x, p}, call->workspace, error);
    if (status != TANDEM_OK) return status;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++, x += classes, p += classes) {
        if (label[r] < -1 || label[r] >= classes) return bad_label(kernel, r, label[r], classes, error);
        if (label[r] < 0) continue;
        const int64_t m = largest(x, classes);
        const double target = target_logit(x, classes, m, label[r], (double)call->smoothing);
        sum += ((double)x[m] - target) - log((double)p[m]);
    }
    *(float *)call->out[0] = (float)(sum * (double)call->row_weight);
    return TANDEM_OK;
}

static tandem_status run_dgrad(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error)
{
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape), rows = tandem_shape_elements(shape) / classes;
    const int32_t *const label = call->in[0];
    const float *p = call->in[1], weight = call->row_weight, wrong = call->smoothing / (float)classes;
    float *gradient = call->out[0];
    for (int64_t r = 0; r < rows; r++, p += classes, gradient += classes) {
        if (label[r] < -1 || label[r] >= classes) return bad_label(kernel, r, label[r], classes, error);
        if (label[r] < 0) {
            memset(gradient, 0, (size_t)classes * sizeof *gradient);
            continue;
        }
        const float right = p[label[r]];
        for (int64_t j = 0; j < classes; j++) gradient[j] = (p[j] - wrong) * weight;
        gradient[label[r]] = (right - wrong - (1 - call->smoothing)) * weight;
    }
    return TANDEM_OK;
}

static tandem_status prepare(tandem_kernel *kernel, tandem_error *error)
{
    if (kernel->task.kind == TANDEM_TASK_DGRAD) {
        kernel->run = run_dgrad;
        return TANDEM_OK;
    }
    const tandem_shape *shape = cpu_input_shape(kernel, 0);
    const int64_t classes = tandem_shape_last(shape);
    const dnnl_memory_desc_t x = cpu_matrix_descriptor(TANDEM_F32, tandem_shape_elements(shape) / classes, classes);
    dnnl_softmax_desc_t softmax;
    if (dnnl_softmax_forward_desc_init(&softmax, dnnl_forward_inference, &x, 1) != dnnl_success)
        return cpu_kernel_refuse(kernel, "oneDNN takes no softmax of this shape", error);
    cpu_primitive primitive = {0};
    const tandem_status status = cpu_primitive_make(&primitive, kernel, &softmax, NULL, 2,
                                                    (const int[]){DNNL_ARG_SRC, DNNL_ARG_DST}, error);
    return status == TANDEM_OK ? cpu_primitive_keep(kernel, &primitive, run_forward, error) : status;
}

const cpu_operator cpu_cross_entropy = {prepare};
