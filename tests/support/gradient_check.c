/* With random c, L = Σ c_i·y_i (summed in double) has dL/dx_j by the five-point stencil
 *     (8(L(x + h) − L(x − h)) − (L(x + 2h) − L(x − 2h))) / 12h,   h = 2^−5,
 * whose own error is h⁴/30 · |L⁽⁵⁾| (3·10⁻⁸ of it) plus the forward kernel's rounding, 2^−24·Σ|c_i y_i| / h
 * at worst. Where y bends within 2h of x (relu at 0, a maximum that changes place) inputs keep away from the
 * bend. The kernel's gradient may lie 2·10⁻⁴ of the largest gradient away, and 2^−14 of Σ|c_i y_i| more. */
#include "tests/support/gradient_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/support/operator_case.h"

static const double h = 0x1p-5;

/* One operator with its three passes, in fp32; −1 where it has none. */
typedef struct subject {
    gradients *g;
    case_graph made;
    tandem_step *step;
    int forward, dgrad, wgrad;
    task_operands of_forward, of_dgrad, of_wgrad;
    tandem_kernel *kernel; /* of the forward pass, for the many runs */
    void *workspace;
    case_array c; /* gradient of the output */
    char what[200];
} subject;

void gradients_complain(gradients *g, const char *format, ...)
{
    if (g->complaints++ >= 8) return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

static int task_of_gradient_check(const subject *s, tandem_task_kind kind)
{
    for (int t = 0; t < s->step->n_task; t++)
        if (s->step->task[t].active && s->step->task[t].op == s->made.op && s->step->task[t].kind == kind)
            return t;
    return -1;
}

static int open_subject_gradient_check(subject *s, const operator_case *c)
{
    tandem_error error = {0};
    uint64_t workspace_bytes = 0;
    case_print(s->what, sizeof s->what, c);
    const tandem_step_options options = {.narrow_rows = s->g->is_gpu};
    if (case_graph_open(&s->made, c, &error) != TANDEM_OK ||
        tandem_step_open_with(&s->step, s->made.graph, TANDEM_F32, 0, &options, &error) != TANDEM_OK) {
        gradients_complain(s->g, "%s: %s", s->what, error.text);
        return 0;
    }
    s->forward = task_of_gradient_check(s, TANDEM_TASK_FORWARD);
    s->dgrad = task_of_gradient_check(s, TANDEM_TASK_DGRAD);
    s->wgrad = task_of_gradient_check(s, TANDEM_TASK_WGRAD);
    operands_open(&s->of_forward, s->step, s->forward);
    if (s->dgrad >= 0) operands_open(&s->of_dgrad, s->step, s->dgrad);
    if (s->wgrad >= 0) operands_open(&s->of_wgrad, s->step, s->wgrad);
    array_open(&s->c, TANDEM_F32, s->of_forward.out[0].n);
    array_random(&s->c, 99);
    if (s->g->backend->prepare(s->g->device, s->step, s->forward, &s->kernel, &workspace_bytes, &error) !=
        TANDEM_OK) {
        gradients_complain(s->g, "%s: %s", s->what, error.text);
        return 0;
    }
    s->workspace = aligned_alloc(64, (workspace_bytes + 64) / 64 * 64);
    return s->workspace != NULL;
}

static void close_subject_gradient_check(subject *s)
{
    s->g->backend->release(s->kernel);
    free(s->workspace);
    array_close(&s->c);
    operands_close(&s->of_forward);
    operands_close(&s->of_dgrad);
    operands_close(&s->of_wgrad);
    tandem_step_close(s->step);
    tandem_graph_close(s->made.graph);
}

/* Inputs that keep 0.2 from 0, and 1/8 from each other where they are compared. */
static void keep_from_bends(case_array *x, tandem_op_kind kind)
{
    for (size_t i = 0; i < x->n; i++) {
        if (kind == TANDEM_OP_RELU) x->value[i] += x->value[i] < 0 ? -0.2 : 0.2;
        if (kind == TANDEM_OP_MAXPOOL)
            x->value[i] = (double)(i * 37 % 101) / 8; /* distinct within any window */
        if (kind == TANDEM_OP_BATCHNORM_RELU || kind == TANDEM_OP_BATCHNORM_ADD_RELU)
            x->value[i] += x->value[i] < 0 ? -2 : 2;
    }
    array_store(x);
}

/* No x̂ is near 0 now, so that with a scale of 1 and more and a small shift (and residual) nothing is near
 * the bend. */
static void keep_norm_from_bend(task_operands *forward, int has_residual)
{
    case_array *scale = &forward->in[1 + has_residual], *shift = &forward->in[2 + has_residual];
    for (size_t i = 0; has_residual && i < forward->in[1].n; i++) forward->in[1].value[i] /= 8;
    if (has_residual) array_store(&forward->in[1]);
    for (size_t j = 0; j < scale->n; j++) {
        scale->value[j] = 1 + fabs(scale->value[j]);
        shift->value[j] /= 4;
    }
    array_store(scale);
    array_store(shift);
}

static double loss(subject *s, double *size)
{
    tandem_kernel_call call = {.workspace = s->workspace,
                               .row_weight = 1,
                               .smoothing = case_smoothing,
                               .first_sample = case_first_place,
                               /* as operands_run's */
                               .rng = {.seed = 1, .stream = {3, 1, TANDEM_RNG_ACTIVATION}}};
    tandem_error error = {0};
    for (int k = 0; k < s->of_forward.n_in; k++) call.in[k] = s->of_forward.in[k].data;
    for (int k = 0; k < s->of_forward.n_out; k++) call.out[k] = s->of_forward.out[k].data;
    if (s->g->backend->run(s->kernel, &call, &error) != TANDEM_OK)
        gradients_complain(s->g, "%s: forward: %s", s->what, error.text);
    array_load(&s->of_forward.out[0]);
    double sum = 0, magnitude = 0;
    for (size_t i = 0; i < s->c.n; i++) {
        /* a loss is differentiated as it is */
        const double c = s->step->graph->op[s->made.op].kind == TANDEM_OP_CROSS_ENTROPY ? 1 : s->c.value[i];
        sum += c * s->of_forward.out[0].value[i];
        magnitude += fabs(c * s->of_forward.out[0].value[i]);
    }
    *size = magnitude;
    return sum;
}

static double slope(subject *s, case_array *x, size_t j, double *size)
{
    static const double place[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    const double kept = x->value[j];
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        x->value[j] = kept + place[k] * h;
        array_store(x);
        sum += weight[k] * loss(s, size);
    }
    x->value[j] = kept;
    array_store(x);
    return sum / (12 * h);
}

/* Gradient of forward operand `k` as a backward kernel has written it. */
static void compare_gradient_check(subject *s, int k, const case_array *gradient, const char *pass)
{
    case_array *x = &s->of_forward.in[k];
    double largest = 0;
    if (x->n != gradient->n) {
        gradients_complain(s->g, "%s: %s has %zu numbers for %zu", s->what, pass, gradient->n, x->n);
        return;
    }
    for (size_t j = 0; j < x->n; j++) largest = fmax(largest, fabs(gradient->value[j]));
    const size_t stride = x->n / s->g->max_elements + 1;
    for (size_t j = 0; j < x->n; j += stride) {
        double size = 0;
        const double numeric = slope(s, x, j, &size);
        const double tolerance = 2e-4 * largest + 0x1p-14 * size;
        if (!(fabs(numeric - gradient->value[j]) <= tolerance)) {
            gradients_complain(s->g,
                               "%s: %s, element %zu of %zu: the kernel says %.7g, differences say %.7g "
                               "± %.2g",
                               s->what, pass, j, x->n, gradient->value[j], numeric, tolerance);
            return;
        }
    }
}

static int run_gradient_check(subject *s, task_operands *operands, int task)
{
    char complaint[1200] = "";
    const int good =
        operands_run(operands, s->g->backend, s->g->device, s->step, task, 1, 1, complaint, sizeof complaint);
    if (!good) gradients_complain(s->g, "%s: %s", s->what, complaint);
    return good;
}

static void copy(case_array *to, const case_array *from)
{
    memcpy(to->data, from->data, to->bytes);
    array_load(to);
}

/* Backward operands, in the order of backend.h, from the forward pass's. */
static void set_task_operands(subject *s)
{
    const task_operands *f = &s->of_forward;
    task_operands *d = &s->of_dgrad, *w = &s->of_wgrad;
    const tandem_op_kind kind = s->step->graph->op[s->made.op].kind;
    if (kind == TANDEM_OP_CROSS_ENTROPY) {
        copy(&d->in[0], &f->in[1]);
        if (d->n_in > 2) copy(&d->in[1], &f->in[0]); /* logits, where they are saved */
        copy(&d->in[d->n_in - 1], &f->out[1]);
        return;
    }
    if (s->wgrad >= 0) {
        copy(&w->in[w->n_in - 1], &s->c);
        if (w->n_in > 1) copy(&w->in[0], &f->in[0]);
    }
    if (s->dgrad < 0) return;
    copy(&d->in[0], &s->c);
    switch (kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_CONV2D:
    case TANDEM_OP_MATMUL: copy(&d->in[1], &f->in[1]); break;
    case TANDEM_OP_RELU:
    case TANDEM_OP_TANH:
    case TANDEM_OP_SOFTMAX: copy(&d->in[1], &f->out[0]); break;
    case TANDEM_OP_MAP:
    case TANDEM_OP_GELU: copy(&d->in[1], &f->in[0]); break;
    case TANDEM_OP_MUL:
    case TANDEM_OP_SCALE:
    case TANDEM_OP_GROUPED_CONV2D:
    case TANDEM_OP_BIAS_GELU:
        copy(&d->in[1], &f->in[0]);
        copy(&d->in[2], &f->in[1]);
        break;
    case TANDEM_OP_BATCHNORM_ADD_RELU:
        copy(&d->in[1], &f->in[0]);
        copy(&d->in[2], &f->out[0]);
        copy(&d->in[3], &f->out[1]);
        copy(&d->in[4], &f->in[2]);
        break;
    case TANDEM_OP_GATHER_LABELLED:
    case TANDEM_OP_MAXPOOL: copy(&d->in[1], &f->out[1]); break;
    case TANDEM_OP_LAYERNORM:
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU:
        copy(&d->in[1], &f->in[0]);
        copy(&d->in[2], &f->out[1]);
        copy(&d->in[3], &f->in[1]);
        if (kind == TANDEM_OP_BATCHNORM_RELU) copy(&d->in[4], &f->in[2]);
        break;
    default: break;
    }
}

static void check_gradients(subject *s)
{
    const tandem_op_kind kind = s->step->graph->op[s->made.op].kind;
    const tandem_op_row *row = tandem_op_row_get(kind);
    operands_fill(&s->of_forward, s->step, s->forward, 17);
    keep_from_bends(&s->of_forward.in[kind == TANDEM_OP_EMBEDDING ? 1 : 0], kind);
    const int is_norm = kind == TANDEM_OP_BATCHNORM_ADD_RELU,
              has_residual = is_norm || kind == TANDEM_OP_CONCAT || kind == TANDEM_OP_MUL;
    if (kind == TANDEM_OP_BATCHNORM_RELU || is_norm) keep_norm_from_bend(&s->of_forward, is_norm);
    if (!run_gradient_check(s, &s->of_forward, s->forward)) return;
    set_task_operands(s);
    if (s->dgrad >= 0 && run_gradient_check(s, &s->of_dgrad, s->dgrad)) {
        compare_gradient_check(s, 0, &s->of_dgrad.out[0], "dgrad");
        if (row->wgrad == TANDEM_GRAD_FUSED)
            for (int k = 1; k < s->of_dgrad.n_out; k++)
                compare_gradient_check(s, k, &s->of_dgrad.out[k],
                                       k == has_residual ? "dgrad, second input"
                                                         : "gradient of a "
                                                           "parameter");
    }
    if (s->wgrad >= 0 && run_gradient_check(s, &s->of_wgrad, s->wgrad))
        compare_gradient_check(s, 1, &s->of_wgrad.out[0], "wgrad");
    if ((row->dgrad == TANDEM_GRAD_TASK) != (s->dgrad >= 0) ||
        (row->wgrad == TANDEM_GRAD_TASK) != (s->wgrad >= 0))
        gradients_complain(s->g, "%s: its row in op.def and its tasks disagree", s->what);
}

void gradients_check_every_case(gradients *g)
{
    for (int i = 0; i < n_operator_case; i++) {
        if (g->is_gpu && operator_cases[i].cpu) continue;
        subject s = {.g = g};
        if (open_subject_gradient_check(&s, &operator_cases[i])) check_gradients(&s);
        close_subject_gradient_check(&s);
    }
}
