#include "tests/support/every_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "step/program/step_index.h"
#include "tests/support/metrics.h"

void bench_complain(bench *b, const char *format, ...)
{
    if (b->complaints++ >= (b->max_complaints ? b->max_complaints : MAX_COMPLAINTS)) return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void bench_print_wrong(const bench *b)
{
    for (int kind = 0; kind < TANDEM_N_OP_KIND; kind++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            for (int pass = 0; pass < TANDEM_N_TASK_KIND; pass++) {
                const bench_count *n = &b->count[kind][p][pass];
                if (n->wrong)
                    printf("wrong: %s, %s, %s: %d of %d\n", tandem_op_row_get((tandem_op_kind)kind)->name,
                           tandem_precision_get((tandem_precision)p)->name,
                           tandem_task_kind_name((tandem_task_kind)pass), n->wrong, n->checked);
            }
}

int bench_has_bf16(const bench *b) { return (b->row->precisions >> TANDEM_PRECISION_BF16) & 1; }

/* --- A task against the reference ----------------------------------------------------------------------- */

static void name_task(char *text, size_t size, const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    snprintf(text, size, "%s of '%s' (%s, %s to %s%s)", tandem_task_kind_name(task->kind),
             step->graph->op[task->op].name, tandem_precision_get(task->precision)->name,
             tandem_dtype_name(task->from), tandem_dtype_name(task->to), task->accumulate ? ", added" : "");
}

static void compare_output(bench *b, const case_array *got, const double *result, const double *bound,
                           const char *where, int k)
{
    for (size_t i = 0; i < got->n; i++) {
        if (fabs(got->value[i] - result[i]) <= bound[i]) continue;
        bench_complain(b,
                       "%s, output %d, element %zu of %zu: got %.9g, should be %.9g ± %.3g (relative L2 "
                       "%.3g, %.3g ulp, cosine %.6f)",
                       where, k, i, got->n, got->value[i], result[i], bound[i],
                       metrics_relative_l2(result, got->value, got->n),
                       metrics_max_ulp(result, got->value, got->n, got->dtype == TANDEM_BF16 ? 8 : 24),
                       metrics_cosine(result, got->value, got->n));
        return;
    }
}

static double *numbers_every_case(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    if (!x) abort();
    return x;
}

/* A scale is the largest magnitude (or the operator's known range) over 127, to the last bit. */
static void check_scale(bench *b, const tandem_step *step, int t, const task_operands *operands,
                        const char *where)
{
    const tandem_task *task = &step->task[t];
    if (!has_scale(task->to)) return;
    double most =
        task->kind == TANDEM_TASK_CAST ? (double)tandem_op_row_get(step->graph->op[task->op].kind)->range : 0;
    if (!(most > 0))
        for (size_t i = 0; i < operands->in[0].n; i++) most = fmax(most, fabs(operands->in[0].value[i]));
    const float scale = (float)most / (float)max_of_code(task->to);
    CHECK(b, !(operands->out[0].scale < scale) && !(operands->out[0].scale > scale),
          "%s: the scale is %.9g, should be %.9g", where, (double)operands->out[0].scale, (double)scale);
}

/* What lies between the rows of a gradient is read by products and casts. */
static void check_gaps(bench *b, const task_operands *operands, const char *where)
{
    for (int k = 0; k < operands->n_out; k++) {
        b->gaps += operands->out[k].row > 0;
        CHECK(b, array_gaps_whole(&operands->out[k]), "%s: output %d is not 0 between its rows", where, k);
    }
}

/* A transposed copy has the same codes as the rows. */
static void check_copy(bench *b, const task_operands *operands, const char *where)
{
    const case_array *rows = &operands->out[0], *copy = &operands->out[1];
    if (operands->n_out < 2 || !copy->transposed_copy.batch) return;
    b->copies++;
    CHECK(b, memcmp(rows->value, copy->value, rows->n * sizeof *rows->value) == 0,
          "%s: the transposed copy is another one", where);
}

static void check_task_every_case(bench *b, const tandem_step *step, int t, uint64_t key, const char *what)
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
        result[k] = numbers_every_case(operands.out[k].n);
        bound[k] = numbers_every_case(operands.out[k].n);
    }
    const int complaints_before = b->complaints;
    bench_count *const count =
        &b->count[step->graph->op[step->task[t].op].kind][step->task[t].precision][step->task[t].kind];
    b->checks++;
    if (!operands_run(&operands, b->backend, b->device, step, t, 7, row_weight, complaint,
                      sizeof complaint)) {
        bench_complain(b, "%s: %s", where, complaint);
    } else if (!task_reference(step, t, &operands, row_weight, result, bound)) {
        bench_complain(b, "%s: the reference does not know this operator", where);
    } else {
        const tandem_task *own = &step->task[t];
        if (b->narrow_gradients && step->graph->op[own->op].kind == TANDEM_OP_CONV2D &&
            (own->from == TANDEM_BF16 || own->from == TANDEM_F16))
            for (size_t i = 0; i < operands.out[0].n; i++)
                bound[0][i] += own->from == TANDEM_BF16 ? 0x1p-8 * fabs(result[0][i])
                                                        : 0x1p-11 * fabs(result[0][i]) + 0x1p-25;
        for (int k = 0; k < operands.n_out; k++)
            compare_output(b, &operands.out[k], result[k], bound[k], where, k);
        if (b->look) b->look(b, step, t, where);
        check_scale(b, step, t, &operands, where);
        check_copy(b, &operands, where);
        check_gaps(b, &operands, where);
    }
    count->checked++;
    count->wrong += b->complaints > complaints_before;
    for (int k = 0; k < operands.n_out; k++) {
        free(result[k]);
        free(bound[k]);
    }
    operands_close(&operands);
}

/* Where the kernel can add the gradient of an input to one that came before, it does so as well. */
static void check_adding_task(bench *b, tandem_step *step, int t, uint64_t key, const char *what)
{
    tandem_task *task = &step->task[t];
    const int is_of_input =
        task->kind == TANDEM_TASK_DGRAD || (task->kind == TANDEM_TASK_WGRAD && task->write[0] >= 0);
    if (!is_of_input || !can_accumulate_gradient(&step->graph->op[task->op])) return;
    task->accumulate = 1;
    task->read[task->n_read++] = task->write[0];
    check_task_every_case(b, step, t, key, what);
    task->read[--task->n_read] = -1;
    task->accumulate = 0;
}

/* --- All forms of a case -------------------------------------------------------------------------------- */

typedef struct task_variant {
    tandem_task_kind kind;
    int slot;
    tandem_precision precision;
    tandem_dtype from, other_operand_dtype, to;
} task_variant;
typedef struct variants {
    int n;
    task_variant form[256];
} variants;

static int is_new(variants *seen, const tandem_task *task)
{
    const task_variant f = {task->kind, task->slot, task->precision, task->from, task->other_operand_dtype,
                            task->to};
    for (int i = 0; i < seen->n; i++) {
        const task_variant *s = &seen->form[i];
        if (s->kind == f.kind && s->slot == f.slot && s->precision == f.precision && s->from == f.from &&
            s->other_operand_dtype == f.other_operand_dtype && s->to == f.to)
            return 0;
    }
    if (seen->n < (int)(sizeof seen->form / sizeof seen->form[0])) seen->form[seen->n++] = f;
    return 1;
}

/* The operator's own tasks, and the casts and sums on its input. */
static int concerns(const tandem_task *task, const case_graph *made)
{
    if (!task->active || task->op < 0) return 0;
    return task->op == made->op || (task->op == made->pre && (task->kind == TANDEM_TASK_CAST ||
                                                              task->kind == TANDEM_TASK_GRADIENT_CAST));
}

/* other: of what is before the second input. */
static void set_precisions_every_case(tandem_step *step, const case_graph *made, tandem_precision own,
                                      tandem_precision before, tandem_precision other, tandem_precision after)
{
    if (tandem_op_row_get(step->graph->op[made->op].kind)->precisions) tandem_step_set(step, made->op, own);
    if (made->pre >= 0) tandem_step_set(step, made->pre, before);
    if (made->pre2 >= 0) tandem_step_set(step, made->pre2, other);
    if (made->post >= 0) tandem_step_set(step, made->post, after);
    tandem_step_resolve(step);
}

void case_set_precisions(tandem_step *step, const case_graph *made, tandem_precision own,
                         tandem_precision before, tandem_precision after)
{
    set_precisions_every_case(step, made, own, before, before, after);
}

/* Precisions of the linears before and after the operator: they decide in which types its inputs and
 * gradients come, and which casts its output goes through. `other`: of the one before the second of two
 * inputs. */
static const struct {
    tandem_precision before, other, after;
} around[] = {{TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32, TANDEM_PRECISION_BF16},
              {TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32, TANDEM_PRECISION_INT8},
              {TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16, TANDEM_PRECISION_INT8},
              {TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP16},
              {TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP8},
              {TANDEM_PRECISION_FP8, TANDEM_PRECISION_FP8, TANDEM_PRECISION_FP8},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP16},
              {TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_FP32, TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32},
              {TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP16, TANDEM_PRECISION_FP32}};

/* An embedding lacks precisions that linears have. */
static int can_carry(const tandem_graph *graph, int op, tandem_precision precision)
{
    return op < 0 || tandem_op_row_get(graph->op[op].kind)->precisions >> precision & 1;
}

void bench_check_case(bench *b, const operator_case *c, tandem_dtype amp_dtype)
{
    case_graph made;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char what[200];
    case_print(what, sizeof what, c);
    if (case_graph_open(&made, c, &error) != TANDEM_OK) {
        bench_complain(b, "%s: %s", what, error.text);
        return;
    }
    const tandem_step_options options = {.transposed_copy = b->row->transposed_copy,
                                         .narrow_rows = b->row->narrow_rows,
                                         .merged_tasks = b->row->merged_tasks,
                                         .padded_rows = b->row->padded_rows};
    if (tandem_step_open_with(&step, made.graph, amp_dtype, 0, &options, &error) != TANDEM_OK) {
        bench_complain(b, "%s: %s", what, error.text);
        tandem_graph_close(made.graph);
        return;
    }
    variants seen = {0};
    const unsigned own = tandem_op_row_get(c->kind)->precisions;
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        if ((own && !(own >> p & 1)) || !(b->row->precisions >> p & 1) || (!own && p > 0)) continue;
        for (size_t k = 0; k < sizeof around / sizeof around[0]; k++) {
            const unsigned together = b->row->precisions >> around[k].before &
                                      b->row->precisions >> around[k].after &
                                      b->row->precisions >> around[k].other;
            if (!(together & 1) || (made.pre2 < 0 && around[k].other != around[k].before) ||
                !can_carry(made.graph, made.pre, around[k].before) ||
                !can_carry(made.graph, made.post, around[k].after))
                continue;
            set_precisions_every_case(step, &made, (tandem_precision)p, around[k].before, around[k].other,
                                      around[k].after);
            for (int t = 0; t < step->n_task; t++)
                if (concerns(&step->task[t], &made) && is_new(&seen, &step->task[t])) {
                    const uint64_t key = (uint64_t)(1000 * p + 10 * t) + k;
                    check_task_every_case(b, step, t, key, what);
                    check_adding_task(b, step, t, key, what);
                    if (step->task[t].from == TANDEM_S8)
                        check_task_every_case(b, step, t, key | CASE_EXTREME, what);
                }
        }
    }
    CHECK(b, seen.n > 0, "%s: nothing of it ran", what);
    tandem_step_close(step);
    tandem_graph_close(made.graph);
}

/* On a card, where a library's call may hang: the last line says in which case. */
static void name_case_under_way(const bench *b, int i)
{
    char what[200];
    case_print(what, sizeof what, &operator_cases[i]);
    if (b->max_complaints) printf("# case %d: %s\n", i, what);
}

void bench_check_every_case(bench *b)
{
    for (int i = 0; i < n_operator_case; i++) {
        if ((b->is_gpu && operator_cases[i].cpu) || (b->only && operator_cases[i].kind != b->only)) continue;
        name_case_under_way(b, i);
        bench_check_case(b, &operator_cases[i], TANDEM_F32);
        /* int8's gradients run in the AMP dtype: what other devices of a cluster would do with it, too */
        if (bench_has_bf16(b) && tandem_op_row_get(operator_cases[i].kind)->op_class == TANDEM_ADJUSTABLE)
            bench_check_case(b, &operator_cases[i], TANDEM_BF16);
    }
}

/* --- A precision against fp32: casts and product together ----------------------------------------------- */

int case_find_task(const tandem_step *step, tandem_task_kind kind, int op, tandem_dtype to)
{
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active && step->task[t].kind == kind && step->task[t].op == op &&
            (kind == TANDEM_TASK_FORWARD || step->task[t].to == to))
            return t;
    return -1;
}

/* An operand of the forward pass in its precision, cast by the device from `wide`. */
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
    memcpy(narrow->data, operands.out[operands.n_out > 1 && narrow->transposed_copy.batch > 0].data,
           narrow->bytes);
    narrow->scale = operands.out[0].scale;
    array_load(narrow);
    operands_close(&operands);
    return good;
}

/* By how much a number may have moved when it was cast. */
static double moved_by(tandem_dtype type, double x, double scale)
{
    switch (type) {
    case TANDEM_S8: return scale * (1 + 0x1p-12);
    case TANDEM_E4M3: return x * (0x1p-4 + 0x1p-20) + scale * 0x1p-10;
    case TANDEM_F16: return x * 0x1p-11 + 0x1p-25;
    default: return x * 0x1p-8;
    }
}

/* Σ (|x| + e_x)(|w| + e_w) − Σ |x||w| bounds the error of a product whose operands moved by up to e; with
 * squares and variances (a stochastically rounded number has s²/6 on average) the same difference is the
 * variance of that error. */
static void predict_every_case(const tandem_step *step, int t, const task_operands *wide,
                               const task_operands *narrow, int squares, double *difference)
{
    task_operands plain, moved;
    operands_open(&plain, step, t);
    operands_open(&moved, step, t);
    const size_t n = wide->out[0].n;
    double *const small = numbers_every_case(n), *const large = numbers_every_case(n),
                  *const ignored = numbers_every_case(n);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < wide->in[k].n; i++) {
            const double x = fabs(wide->in[k].value[i]);
            const double scale = (double)narrow->in[k].scale, e = moved_by(narrow->in[k].dtype, x, scale);
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
    const int is_int8 = narrow->in[0].dtype == TANDEM_S8, is_fp8 = narrow->in[0].dtype == TANDEM_E4M3;
    double *const right = numbers_every_case(n), *const own = numbers_every_case(n),
                  *const slack = numbers_every_case(n), *const variance = numbers_every_case(n);
    double error2 = 0, predicted2 = 0;
    size_t first = n; /* over its bound */
    double first_bound = 0;
    task_reference(step, t, wide, 1, (double *const[]){right}, (double *const[]){own});
    predict_every_case(step, t, wide, narrow, 0, slack);
    predict_every_case(step, t, wide, narrow, 1, variance);
    for (size_t i = 0; i < n; i++) {
        const double error = got->value[i] - right[i];
        const double bound =
            slack[i] + own[i] + 0x1p-20 * slack[i] + (got->dtype == TANDEM_F32 ? 0 : 0x1p-7 * fabs(right[i]));
        if (!(fabs(error) <= bound) && first == n) first = i, first_bound = bound;
        error2 += error * error;
        predicted2 += variance[i];
    }
    const double relative = metrics_relative_l2(right, got->value, n),
                 cosine = metrics_cosine(right, got->value, n);
    CHECK(b, first == n,
          "%s: element %zu of %zu: got %.9g, should be %.9g ± %.3g (relative L2 %.3g, cosine %.6f)", what,
          first, n, first < n ? got->value[first] : 0, first < n ? right[first] : 0, first_bound, relative,
          cosine);
    CHECK(b, cosine > (is_int8 ? 0.99 : is_fp8 ? 0.998 : 0.9999), "%s: cosine to fp32 is %.6f", what, cosine);
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
    const tandem_step_options options = {.transposed_copy = b->row->transposed_copy,
                                         .narrow_rows = b->row->narrow_rows,
                                         .merged_tasks = b->row->merged_tasks,
                                         .padded_rows = b->row->padded_rows};
    if (case_graph_open(&made, c, &error) != TANDEM_OK ||
        tandem_step_open_with(&step, made.graph, TANDEM_F32, 0, &options, &error) != TANDEM_OK) {
        bench_complain(b, "%s: %s", what, error.text);
        return;
    }
    task_operands wide, narrow;
    const int t = case_find_task(step, TANDEM_TASK_FORWARD, made.op, TANDEM_F32);
    operands_open(&wide, step, t);
    operands_fill(&wide, step, t, 5);
    case_set_precisions(step, &made, p, TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
    operands_open(&narrow, step, t);
    const int cast[2] = {case_find_task(step, TANDEM_TASK_CAST, made.pre, type),
                         made.pre2 >= 0 ? case_find_task(step, TANDEM_TASK_CAST, made.pre2, type)
                                        : case_find_task(step, TANDEM_TASK_WEIGHT_CAST, made.op, type)};
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

void bench_check_every_precision(bench *b)
{
    for (int i = 0; i < n_operator_case; i++) {
        name_case_under_way(b, i);
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            const tandem_op_row *row = tandem_op_row_get(operator_cases[i].kind);
            if (!(row->precisions >> p & b->row->precisions >> p & 1)) continue;
            if (row->dgrad != TANDEM_GRAD_TASK ||
                tandem_precision_get((tandem_precision)p)->forward == TANDEM_F32)
                continue;
            check_precision(b, &operator_cases[i], (tandem_precision)p);
        }
    }
}
