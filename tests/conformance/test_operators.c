/* Every operator of op.def, in every precision, on every device this machine has, against a reference in
 * double; and what kernels owe their callers: the same bits again, nothing written outside, refusals that say
 * why.
 *
 * A process opens one device only, so each device is tested in a child; its complaints come back through a
 * pipe. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/operator.h"
#include "tandem/cluster.h"
#include "tests/conformance/metrics.h"
#include "tests/conformance/operator_case.h"

enum { MOST_COMPLAINTS = 8, TEXT = 4096 };

/* One device, in its process. */
typedef struct bench {
    const tandem_device_backend *backend;
    const tandem_device *row;
    void *device;
    int complaints, checks;
} bench;

__attribute__((format(printf, 2, 3))) static void complain(bench *b, const char *format, ...)
{
    if (b->complaints++ >= MOST_COMPLAINTS) return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

#define CHECK(b, condition, ...)                                                                             \
    do {                                                                                                     \
        (b)->checks++;                                                                                       \
        if (!(condition)) complain((b), __VA_ARGS__);                                                        \
    } while (0)

static int has_bf16(const bench *b) { return (b->row->precisions >> TANDEM_PRECISION_BF16) & 1; }

/* --- A task against the reference ----------------------------------------------------------------------- */

static void name_task(char *text, size_t size, const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    snprintf(text, size, "%s of '%s' (%s, %s to %s)", tandem_task_kind_name(task->kind),
             step->graph->op[task->op].name, tandem_precision_get(task->precision)->name,
             tandem_dtype_name(task->from), tandem_dtype_name(task->to));
}

static void compare_output(bench *b, const case_array *got, const double *result, const double *bound,
                           const char *where, int k)
{
    for (size_t i = 0; i < got->n; i++) {
        if (fabs(got->value[i] - result[i]) <= bound[i]) continue;
        complain(b, "%s, output %d, element %zu of %zu: got %.9g, should be %.9g ± %.3g (relative L2 %.3g, %.3g ulp, cosine %.6f)",
                 where, k, i, got->n, got->value[i], result[i], bound[i],
                 metrics_relative_l2(result, got->value, got->n),
                 metrics_max_ulp(result, got->value, got->n, got->dtype == TANDEM_BF16 ? 8 : 24),
                 metrics_cosine(result, got->value, got->n));
        return;
    }
}

static double *numbers(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    if (!x) abort();
    return x;
}

/* A scale is the largest magnitude (or the operator's known range) over 127, to the last bit. */
static void check_scale(bench *b, const tandem_step *step, int t, const task_operands *operands, const char *where)
{
    const tandem_task *task = &step->task[t];
    if (task->to != TANDEM_S8) return;
    double most =
        task->kind == TANDEM_TASK_CAST ? (double)tandem_op_row_get(step->graph->op[task->op].kind)->range : 0;
    if (!(most > 0))
        for (size_t i = 0; i < operands->in[0].n; i++) most = fmax(most, fabs(operands->in[0].value[i]));
    const float scale = (float)most / 127;
    CHECK(b, !(operands->out[0].scale < scale) && !(operands->out[0].scale > scale),
          "%s: the scale is %.9g, should be %.9g", where, (double)operands->out[0].scale, (double)scale);
}

static void check_task(bench *b, const tandem_step *step, int t, uint64_t key, const char *what)
{
    const float row_weight = 0.37f;
    char where[480], task[200], complaint[1200] = "";
    name_task(task, sizeof task, step, t);
    snprintf(where, sizeof where, "%s: %s", what, task);
    task_operands operands;
    operands_open(&operands, step, t);
    operands_fill(&operands, step, t, key);
    double *result[TANDEM_TASK_WRITES] = {NULL}, *bound[TANDEM_TASK_WRITES] = {NULL};
    for (int k = 0; k < operands.n_out; k++) {
        result[k] = numbers(operands.out[k].n);
        bound[k] = numbers(operands.out[k].n);
    }
    b->checks++;
    if (!operands_run(&operands, b->backend, b->device, step, t, 7, row_weight, complaint, sizeof complaint)) {
        complain(b, "%s: %s", where, complaint);
    } else if (!task_reference(step, t, &operands, row_weight, result, bound)) {
        complain(b, "%s: the reference does not know this operator", where);
    } else {
        for (int k = 0; k < operands.n_out; k++)
            compare_output(b, &operands.out[k], result[k], bound[k], where, k);
        check_scale(b, step, t, &operands, where);
    }
    for (int k = 0; k < operands.n_out; k++) {
        free(result[k]);
        free(bound[k]);
    }
    operands_close(&operands);
}

/* --- All forms of a case -------------------------------------------------------------------------------- */

typedef struct form {
    tandem_task_kind kind;
    int slot;
    tandem_precision precision;
    tandem_dtype from, to;
} form;
typedef struct forms {
    int n;
    form form[64];
} forms;

static int is_new(forms *seen, const tandem_task *task)
{
    const form f = {task->kind, task->slot, task->precision, task->from, task->to};
    for (int i = 0; i < seen->n; i++) {
        const form *s = &seen->form[i];
        if (s->kind == f.kind && s->slot == f.slot && s->precision == f.precision && s->from == f.from &&
            s->to == f.to)
            return 0;
    }
    if (seen->n < (int)(sizeof seen->form / sizeof seen->form[0])) seen->form[seen->n++] = f;
    return 1;
}

/* The operator's own tasks, and the casts and sums on its input. */
static int concerns(const tandem_task *task, const case_graph *made)
{
    if (!task->active || task->op < 0) return 0;
    return task->op == made->op ||
           (task->op == made->pre && (task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST));
}

static void set_precisions(tandem_step *step, const case_graph *made, tandem_precision own,
                           tandem_precision before, tandem_precision behind)
{
    if (tandem_op_row_get(step->graph->op[made->op].kind)->precisions) tandem_step_set(step, made->op, own);
    if (made->pre >= 0) tandem_step_set(step, made->pre, before);
    if (made->pre2 >= 0) tandem_step_set(step, made->pre2, before);
    if (made->post >= 0) tandem_step_set(step, made->post, behind);
    tandem_step_resolve(step);
}

/* Precisions of the linears before and behind the operator: they decide in which types its inputs and
 * gradients come, and which casts its output goes through. */
static const struct {
    tandem_precision before, behind;
} around[] = {{TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32}, {TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_BF16}, {TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_INT8}, {TANDEM_PRECISION_BF16, TANDEM_PRECISION_INT8}};

static void check_case(bench *b, const operator_case *c, tandem_dtype wider)
{
    case_graph made;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char what[200];
    case_print(what, sizeof what, c);
    if (case_graph_open(&made, c, &error) != TANDEM_OK) {
        complain(b, "%s: %s", what, error.text);
        return;
    }
    if (tandem_step_open(&step, made.graph, wider, 0, &error) != TANDEM_OK) {
        complain(b, "%s: %s", what, error.text);
        tandem_graph_close(made.graph);
        return;
    }
    forms seen = {0};
    const unsigned own = tandem_op_row_get(c->kind)->precisions;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        if ((own && !(own >> p & 1)) || !(b->row->precisions >> p & 1) || (!own && p > 0)) continue;
        for (size_t k = 0; k < sizeof around / sizeof around[0]; k++) {
            if (!(b->row->precisions >> around[k].before & b->row->precisions >> around[k].behind & 1))
                continue;
            set_precisions(step, &made, (tandem_precision)p, around[k].before, around[k].behind);
            for (int t = 0; t < step->n_task; t++)
                if (concerns(&step->task[t], &made) && is_new(&seen, &step->task[t])) {
                    const uint64_t key = (uint64_t)(1000 * p + 10 * t) + k;
                    check_task(b, step, t, key, what);
                    if (step->task[t].from == TANDEM_S8) check_task(b, step, t, key | CASE_EXTREME, what);
                }
        }
    }
    CHECK(b, seen.n > 0, "%s: nothing of it ran", what);
    tandem_step_close(step);
    tandem_graph_close(made.graph);
}

static void check_every_case(bench *b)
{
    for (int i = 0; i < n_operator_case; i++) {
        check_case(b, &operator_cases[i], TANDEM_F32);
        /* int8's gradients run in the wider type: what other devices of a cluster would do with it, too */
        if (has_bf16(b) && tandem_op_row_get(operator_cases[i].kind)->op_class == TANDEM_ADJUSTABLE)
            check_case(b, &operator_cases[i], TANDEM_BF16);
    }
}

/* --- A precision against fp32: casts and product together ----------------------------------------------- */

static int find_task(const tandem_step *step, tandem_task_kind kind, int op, tandem_dtype to)
{
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active && step->task[t].kind == kind && step->task[t].op == op &&
            (kind == TANDEM_TASK_FORWARD || step->task[t].to == to))
            return t;
    return -1;
}

/* Operand k of the forward pass in its precision, cast by the device from `wide`; returns how far a number
 * may have moved: one step of s8, 2^−8 of itself in bf16. */
static int cast_operand(bench *b, const tandem_step *step, int cast, const case_array *wide,
                        case_array *narrow, const char *what)
{
    task_operands operands;
    char complaint[1200] = "";
    operands_open(&operands, step, cast);
    memcpy(operands.in[0].data, wide->data, wide->bytes);
    array_load(&operands.in[0]);
    const int good = operands_run(&operands, b->backend, b->device, step, cast, 11 + (uint64_t)cast, 1,
                                  complaint, sizeof complaint);
    CHECK(b, good, "%s: cast: %s", what, complaint);
    memcpy(narrow->data, operands.out[0].data, narrow->bytes);
    narrow->scale = operands.out[0].scale;
    array_load(narrow);
    operands_close(&operands);
    return good;
}

/* Σ (|x| + e_x)(|w| + e_w) − Σ |x||w| bounds the error of a product whose operands moved by up to e; with
 * squares and variances (a stochastically rounded number has s²/6 on average) the same difference is the
 * variance of that error. */
static void predict(const tandem_step *step, int t, const task_operands *wide, const task_operands *narrow,
                    int squares, double *difference)
{
    task_operands plain, moved;
    operands_open(&plain, step, t);
    operands_open(&moved, step, t);
    const size_t n = wide->out[0].n;
    double *const small = numbers(n), *const large = numbers(n), *const ignored = numbers(n);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < wide->in[k].n; i++) {
            const double x = fabs(wide->in[k].value[i]);
            const double e =
                narrow->in[k].dtype == TANDEM_S8 ? (double)narrow->in[k].scale * (1 + 0x1p-12) : x * 0x1p-8;
            plain.in[k].value[i] = squares ? x * x : x;
            moved.in[k].value[i] = squares ? x * x + e * e / 6 : x + e;
        }
    task_reference(step, t, &plain, 1, (double *const[]){small}, (double *const[]){ignored});
    task_reference(step, t, &moved, 1, (double *const[]){large}, (double *const[]){ignored});
    for (size_t i = 0; i < n; i++) difference[i] = large[i] - small[i];
    free(small);
    free(large);
    free(ignored);
    operands_close(&plain);
    operands_close(&moved);
}

static void compare_precision(bench *b, const tandem_step *step, int t, const task_operands *wide,
                              const task_operands *narrow, const char *what)
{
    const size_t n = wide->out[0].n;
    const case_array *got = &narrow->out[0];
    const int is_int8 = narrow->in[0].dtype == TANDEM_S8;
    double *const right = numbers(n), *const own = numbers(n), *const slack = numbers(n), *const variance = numbers(n);
    double error2 = 0, predicted2 = 0;
    int within = 1;
    task_reference(step, t, wide, 1, (double *const[]){right}, (double *const[]){own});
    predict(step, t, wide, narrow, 0, slack);
    predict(step, t, wide, narrow, 1, variance);
    for (size_t i = 0; i < n; i++) {
        const double error = got->value[i] - right[i];
        within &= fabs(error) <= slack[i] + own[i] + 0x1p-20 * slack[i] +
                                     (got->dtype == TANDEM_BF16 ? 0x1p-7 * fabs(right[i]) : 0);
        error2 += error * error;
        predicted2 += variance[i];
    }
    const double relative = metrics_relative_l2(right, got->value, n),
                 cosine = metrics_cosine(right, got->value, n);
    CHECK(b, within, "%s: an error lies over its bound (relative L2 %.3g, cosine %.6f)", what, relative, cosine);
    CHECK(b, cosine > (is_int8 ? 0.99 : 0.9999), "%s: cosine to fp32 is %.6f", what, cosine);
    const double ratio = sqrt(error2 / predicted2);
    if (is_int8 && n >= 500)
        CHECK(b, ratio > 0.7 && ratio < 1.4,
              "%s: the error is %.2f times what stochastic rounding should cause", what, ratio);
    free(right);
    free(own);
    free(slack);
    free(variance);
}

static void check_precision(bench *b, const operator_case *c, tandem_precision p)
{
    case_graph made;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char what[240], complaint[1200] = "";
    case_print(what, sizeof what - 20, c);
    strcat(strcat(what, ", "), tandem_precision_get(p)->name);
    const tandem_dtype type = tandem_precision_get(p)->forward;
    if (case_graph_open(&made, c, &error) != TANDEM_OK ||
        tandem_step_open(&step, made.graph, TANDEM_F32, 0, &error) != TANDEM_OK) {
        complain(b, "%s: %s", what, error.text);
        return;
    }
    task_operands wide, narrow;
    const int t = find_task(step, TANDEM_TASK_FORWARD, made.op, TANDEM_F32);
    operands_open(&wide, step, t);
    operands_fill(&wide, step, t, 5);
    set_precisions(step, &made, p, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
    operands_open(&narrow, step, t);
    const int cast[2] = {find_task(step, TANDEM_TASK_CAST, made.pre, type),
                         made.pre2 >= 0 ? find_task(step, TANDEM_TASK_CAST, made.pre2, type)
                                        : find_task(step, TANDEM_TASK_WEIGHT_CAST, made.op, type)};
    int good = cast[0] >= 0 && cast[1] >= 0;
    CHECK(b, good, "%s: the step has no cast of an operand", what);
    for (int k = 0; k < 2 && good; k++)
        good = cast_operand(b, step, cast[k], &wide.in[k], &narrow.in[k], what);
    if (good) {
        good = operands_run(&narrow, b->backend, b->device, step, t, 3, 1, complaint, sizeof complaint);
        CHECK(b, good, "%s: %s", what, complaint);
    }
    if (good) compare_precision(b, step, t, &wide, &narrow, what);
    operands_close(&wide);
    operands_close(&narrow);
    tandem_step_close(step);
    tandem_graph_close(made.graph);
}

static void check_every_precision(bench *b)
{
    for (int i = 0; i < n_operator_case; i++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const tandem_op_row *row = tandem_op_row_get(operator_cases[i].kind);
            if (!(row->precisions >> p & b->row->precisions >> p & 1)) continue;
            if (row->dgrad != TANDEM_BACKWARD_TASK || tandem_precision_get((tandem_precision)p)->forward == TANDEM_F32)
                continue;
            check_precision(b, &operator_cases[i], (tandem_precision)p);
        }
}

/* --- Casts at their edges ------------------------------------------------------------------------------- */

typedef struct one_case {
    case_graph made;
    tandem_step *step;
} one_case;

static int open_one(bench *b, one_case *one, tandem_op_kind kind)
{
    tandem_error error = {0};
    for (int i = 0; i < n_operator_case; i++) {
        if (operator_cases[i].kind != kind) continue;
        if (case_graph_open(&one->made, &operator_cases[i], &error) == TANDEM_OK &&
            tandem_step_open(&one->step, one->made.graph, TANDEM_F32, 0, &error) == TANDEM_OK)
            return 1;
        break;
    }
    complain(b, "no case of %s: %s", tandem_op_row_get(kind)->name, error.text);
    return 0;
}

static void close_one(one_case *one)
{
    tandem_step_close(one->step);
    tandem_graph_close(one->made.graph);
}

/* Runs the cast of the linear's input to s8 on numbers that are `value`, but the first, which is `first`. */
static tandem_status quantise(bench *b, float first, float value, float *scale, int8_t *q, tandem_error *error)
{
    one_case one;
    tandem_kernel *kernel = NULL;
    uint64_t workspace_bytes = 0;
    if (!open_one(b, &one, TANDEM_OP_LINEAR)) return TANDEM_BUG;
    set_precisions(one.step, &one.made, TANDEM_PRECISION_INT8, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
    const int t = find_task(one.step, TANDEM_TASK_CAST, one.made.pre, TANDEM_S8);
    task_operands operands;
    operands_open(&operands, one.step, t);
    for (size_t i = 0; i < operands.in[0].n; i++) operands.in[0].value[i] = (double)(i ? value : first);
    array_store(&operands.in[0]);
    tandem_status status = b->backend->prepare(b->device, one.step, t, &kernel, &workspace_bytes, error);
    if (status == TANDEM_OK) {
        float written = *scale;
        const tandem_kernel_call call = {.in = {operands.in[0].data},
                                         .out = {operands.out[0].data},
                                         .out_scale = {&written},
                                         .draws = {.seed = 1}};
        status = b->backend->run(kernel, &call, error);
        *scale = written;
    }
    *q = ((const int8_t *)operands.out[0].data)[1];
    b->backend->release(kernel);
    operands_close(&operands);
    close_one(&one);
    return status;
}

static void check_cast_edges(bench *b)
{
    float scale = 9;
    int8_t q = 9;
    tandem_error error = {0};
    CHECK(b, quantise(b, 0, 0, &scale, &q, &error) == TANDEM_OK && !(fabsf(scale) > 0) && q == 0,
          "zeros become %d × %g", q, (double)scale);
    CHECK(b, quantise(b, 0x1p-140f, -0x1p-140f, &scale, &q, &error) == TANDEM_OK && fabsf(scale * (float)q) <= 0x1p-139f,
          "numbers near 0 become %d × %g", q, (double)scale);
    CHECK(b, quantise(b, 2, 2, &scale, &q, &error) == TANDEM_OK && q == 127 && fabsf(scale - 2.0f / 127) < 1e-8f,
          "twos become %d × %g", q, (double)scale);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        scale = 9;
        error = (tandem_error){0};
        const tandem_status status = quantise(b, bad[i], 1, &scale, &q, &error);
        CHECK(b, status == TANDEM_OVER_LIMIT && strstr(error.text, "'pre'") && scale > 8,
              "quantising %g: status %s, '%s'", (double)bad[i], tandem_status_name(status), error.text);
    }
}

/* --- Refusals ------------------------------------------------------------------------------------------- */

static void expect_refusal(bench *b, const tandem_step *step, int t, const char *what)
{
    tandem_kernel *kernel = NULL;
    uint64_t workspace_bytes = 77;
    tandem_error error = {0};
    const tandem_status status = b->backend->prepare(b->device, step, t, &kernel, &workspace_bytes, &error);
    CHECK(b, status == TANDEM_NO_KERNEL && error.text[0] && !kernel && workspace_bytes == 77,
          "%s: status %s, '%s'", what, tandem_status_name(status), error.text);
    if (kernel) b->backend->release(kernel);
}

static void check_refusals(bench *b)
{
    one_case one;
    if (open_one(b, &one, TANDEM_OP_CONV2D)) {
        expect_refusal(b, one.step, one.step->bucket[0].reduce_task, "an all-reduce as a kernel");
        expect_refusal(b, one.step, one.step->bucket[0].update_task, "an update as a kernel");
        const int forward = find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_F32);
        one.step->task[forward].from = TANDEM_S8;
        one.step->task[forward].to = TANDEM_BF16;
        expect_refusal(b, one.step, forward, "a convolution from int8 to bf16");
        close_one(&one);
    }
    if (open_one(b, &one, TANDEM_OP_RELU)) {
        const int forward = find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_F32);
        one.step->task[forward].from = one.step->task[forward].to = TANDEM_S8;
        expect_refusal(b, one.step, forward, "relu in int8");
        close_one(&one);
    }
    if (!has_bf16(b) && open_one(b, &one, TANDEM_OP_LINEAR)) {
        set_precisions(one.step, &one.made, TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
        expect_refusal(b, one.step, find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_BF16),
                       "linear in bf16");
        close_one(&one);
    }
}

/* Tokens and labels outside their range. */
static void check_bad_indices(bench *b)
{
    static const struct {
        tandem_op_kind kind;
        tandem_task_kind task;
        int operand;
    } cases[] = {{TANDEM_OP_EMBEDDING, TANDEM_TASK_FORWARD, 0},
                 {TANDEM_OP_EMBEDDING, TANDEM_TASK_WGRAD, 0},
                 {TANDEM_OP_CROSS_ENTROPY, TANDEM_TASK_FORWARD, 1},
                 {TANDEM_OP_CROSS_ENTROPY, TANDEM_TASK_DGRAD, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int sign = 0; sign < 2; sign++) {
            one_case one;
            if (!open_one(b, &one, cases[i].kind)) continue;
            task_operands operands;
            char complaint[1200] = "";
            int t = -1;
            for (int k = 0; k < one.step->n_task; k++)
                if (one.step->task[k].active && one.step->task[k].op == one.made.op &&
                    one.step->task[k].kind == cases[i].task)
                    t = k;
            operands_open(&operands, one.step, t);
            operands_fill(&operands, one.step, t, 1);
            const int below = cases[i].kind == TANDEM_OP_CROSS_ENTROPY ? -2 : -1; /* a label of −1 is none */
            operands.in[cases[i].operand].value[1] = sign ? below : 1000000;
            array_store(&operands.in[cases[i].operand]);
            const int good =
                operands_run(&operands, b->backend, b->device, one.step, t, 1, 1, complaint, sizeof complaint);
            CHECK(b, !good && strstr(complaint, "allowed 0"), "%s reads index %d: '%s'",
                  tandem_op_row_get(cases[i].kind)->name, sign ? below : 1000000, complaint);
            operands_close(&operands);
            close_one(&one);
        }
}

static void check_opening(bench *b)
{
    void *device = b;
    tandem_error error = {0};
    CHECK(b, b->backend->open(&device, "cpu:mmx", &error) == TANDEM_UNKNOWN_NAME && device == b,
          "cpu:mmx: %s", error.text);
    const char *other = strcmp(b->row->name, "cpu:sse41") ? "cpu:sse41" : "cpu:avx2";
    CHECK(b, b->backend->open(&device, other, &error) == TANDEM_NO_DEVICE && device == b, "%s beside %s: %s",
          other, b->row->name, error.text);
    void *again = NULL;
    CHECK(b, b->backend->open(&again, b->row->name, &error) == TANDEM_OK, "%s again: %s", b->row->name, error.text);
    if (again) b->backend->close(again);
    CHECK(b, strncmp(b->backend->version(), "oneDNN ", 7) == 0, "version: %s", b->backend->version());
}

/* --- The optimizer -------------------------------------------------------------------------------------- */

static void check_update(bench *b, const tandem_optimizer_options *o, int decays)
{
    enum { N = 37 };
    float w[N], g[N], first[N], second[N];
    float *const state[2] = {first, second};
    for (int i = 0; i < N; i++) {
        w[i] = (float)case_random(1, (uint32_t)i);
        g[i] = (float)case_random(2, (uint32_t)i);
        first[i] = (float)case_random(3, (uint32_t)i);
        second[i] = (float)(case_random(4, (uint32_t)i) + 1);
    }
    double right[N];
    const int64_t t = 3;
    const double rate = (double)o->rate, decay = decays ? (double)o->decay : 0, b1 = (double)o->beta1,
                 b2 = (double)o->beta2;
    for (int i = 0; i < N; i++) {
        const double x = (double)w[i], d = (double)g[i];
        const double m = b1 * (double)first[i] + (1 - b1) * d, v = b2 * (double)second[i] + (1 - b2) * d * d;
        right[i] = o->kind == TANDEM_SGD
                       ? x - rate * ((double)o->momentum * (double)first[i] + d + decay * x)
                       : x - rate * (m / (1 - pow(b1, (double)t)) /
                                         (sqrt(v / (1 - pow(b2, (double)t))) + (double)o->epsilon) +
                                     decay * x);
    }
    b->backend->update(b->device, o, decays, w, state, g, N, t);
    for (int i = 0; i < N; i++)
        CHECK(b, fabs((double)w[i] - right[i]) < 1e-6, "%s, element %d: %.9g, should be %.9g",
              tandem_optimizer_name(o->kind), i, (double)w[i], right[i]);
}

static void check_updates(bench *b)
{
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f, .momentum = 0.9f, .decay = 0.01f};
    const tandem_optimizer_options adamw = {
        .kind = TANDEM_ADAMW, .rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .decay = 0.1f};
    for (int decays = 0; decays < 2; decays++) {
        check_update(b, &sgd, decays);
        check_update(b, &adamw, decays);
    }
}

/* A device is one core, whatever the environment says. */
static void check_threads(bench *b)
{
#ifndef __SANITIZE_THREAD__
    DIR *threads = opendir("/proc/self/task");
    int n = 0;
    if (!threads) return;
    for (const struct dirent *entry; (entry = readdir(threads));) n += entry->d_name[0] != '.';
    closedir(threads);
    CHECK(b, n == 1, "the device runs %d threads", n);
#else
    (void)b;
#endif
}

/* --- Devices -------------------------------------------------------------------------------------------- */

static int child(const tandem_device *row)
{
    bench b = {.backend = &tandem_cpu_backend, .row = row};
    tandem_error error = {0};
    if (b.backend->open(&b.device, row->name, &error) != TANDEM_OK) {
        printf("%s cannot be opened: %s\n", row->name, error.text);
        return 1;
    }
    check_opening(&b);
    check_every_case(&b);
    check_every_precision(&b);
    check_cast_edges(&b);
    check_refusals(&b);
    check_bad_indices(&b);
    check_updates(&b);
    check_threads(&b);
    b.backend->close(b.device);
    if (b.complaints > MOST_COMPLAINTS) printf("… %d complaints in all\n", b.complaints);
    if (b.checks < 300) printf("only %d checks ran\n", b.checks);
    return b.complaints > 0 || b.checks < 300;
}

static void every_operator_on(void **state)
{
    const tandem_device *row = *state;
    if (!tandem_device_present(row->name)) {
        printf("SKIP: this machine lacks %s\n", row->name);
        skip();
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDOUT_FILENO);
        const int bad = child(row);
        fflush(NULL);
        _exit(bad);
    }
    close(ends[1]);
    char text[TEXT];
    size_t used = 0;
    for (ssize_t n; used < sizeof text - 1 && (n = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(ends[0]);
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("%s: %s%s", row->name, WIFSIGNALED(how) ? "died of a signal; " : "", text);
}

static void every_operator_has_a_case(void **state)
{
    (void)state;
    for (int kind = 0; kind < TANDEM_N_OP_KIND; kind++) {
        const tandem_op_row *row = tandem_op_row_get((tandem_op_kind)kind);
        if (row->op_class == TANDEM_SOURCE || kind == TANDEM_OP_RESHAPE) continue;
        int n = 0;
        for (int i = 0; i < n_operator_case; i++) n += operator_cases[i].kind == (tandem_op_kind)kind;
        if (n == 0) fail_msg("operator '%s' of op.def has no case in operator_case.c", row->name);
    }
}

static void metrics_by_hand(void **state)
{
    (void)state;
    const double r[] = {3, 4, 0}, x[] = {3, 4.5, 0}, zero[] = {0, 0, 0}, apart[] = {-4, 3, 0};
    assert_true(fabs(metrics_relative_l2(r, x, 3) - 0.1) < 1e-12); /* 0.5 / 5 */
    assert_true(metrics_relative_l2(zero, zero, 3) <= 0);
    assert_true(isinf(metrics_relative_l2(zero, r, 3)));
    assert_true(fabs(metrics_cosine(r, r, 3) - 1) < 1e-12 && fabs(metrics_cosine(r, apart, 3)) < 1e-12);
    assert_true(metrics_cosine(zero, zero, 3) >= 1 && metrics_cosine(zero, r, 3) <= 0);
    const double one[] = {1}, next[] = {1 + 0x1p-23}, far[] = {1 + 0x1p-7};
    assert_true(fabs(metrics_max_ulp(one, next, 1, 24) - 1) < 1e-12);
    assert_true(fabs(metrics_max_ulp(one, far, 1, 8) - 1) < 1e-12);
    const double tiny[] = {0}, denormal[] = {0x1p-149}, nan[] = {NAN};
    assert_true(fabs(metrics_max_ulp(tiny, denormal, 1, 24) - 1) < 1e-12);
    assert_true(isnan(metrics_max_ulp(one, nan, 1, 24)));
}

int main(void)
{
    struct CMUnitTest tests[2 + 32] = {cmocka_unit_test(metrics_by_hand),
                                       cmocka_unit_test(every_operator_has_a_case)};
    size_t n = 2;
    for (int i = 0; i < tandem_device_count() && n < sizeof tests / sizeof tests[0]; i++)
        if (!tandem_device_is_described(tandem_device_get(i)))
            tests[n++] = (struct CMUnitTest){.name = tandem_device_get(i)->name,
                                             .test_func = every_operator_on,
                                             .initial_state = (void *)tandem_device_get(i)};
    return _cmocka_run_group_tests("operators", tests, n, NULL, NULL);
}
