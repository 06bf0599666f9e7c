/* folder: backend, and others for devices, plans or robust means */
/* Attention as one task on CPUs (backend/cpu/op/attention.c) against its definition in double, on the
 * strongest device of this machine and on AVX2: forward and backward, one tile and several, causal, with
 * dropout, in fp32 and bf16, gradients in both; and the bits of 1, 2, 3 and 8 cores. */
#include <math.h>

#include "backend/cpu/operator.h"
#include "base/philox.h"
#include "graph/ir/build.h"
#include "tests/support/every_case.h"
#include "tests/support/own_process.h"
#include "tests/support/tandem_test.h"

typedef struct attention_shape {
    int64_t batch, heads, rows, columns, depth;
    int causal;
    float rate;
} attention_shape;

/* More than 2^16 scores, or more than 64 causal rows, are several tiles. */
static const attention_shape shapes[] = {
    {2, 3, 17, 17, 8, 0, 0},       {1, 2, 33, 33, 16, 1, 0},       {2, 1, 9, 21, 5, 0, 0.2f},
    {1, 2, 197, 197, 64, 0, 0},    {1, 3, 64, 64, 32, 1, 0.1f},    {1, 2, 300, 300, 24, 0, 0.1f},
    {2, 2, 150, 150, 32, 1, 0.3f}, {1, 9, 70, 70, 8, 1, 0},        {1, 1, 1, 1, 1, 1, 0},
    {1, 1, 5, 70000, 4, 0, 0},     {1, 1, 1100, 1100, 8, 1, 0.1f},
};

enum { N_CORES = 4 };
static const int core_counts[N_CORES] = {1, 2, 3, 8};
static void *teams[N_CORES];

/* What the definition gives, and how far a kernel may be away: of o, or of gq, gk and gv. */
typedef struct expected {
    double *value[3], *bound[3];
} expected;

static int build_heads(tandem_builder *b, const char *name, int x, const attention_shape *s, int64_t length)
{
    char reshaped[32];
    snprintf(reshaped, sizeof reshaped, "%s.heads", name);
    const int64_t dim[4] = {s->batch, s->heads, length, s->depth};
    const int linear = tandem_build_linear(b, name, x, s->heads * length * s->depth, 0.1f);
    return tandem_build_reshape(b, reshaped, linear, 4, dim);
}

static tandem_graph *open_attention(const attention_shape *s)
{
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_builder_open(&b, s->batch, &error), TANDEM_OK);
    const int64_t flat[2] = {s->batch, s->heads * s->rows * s->depth};
    const int images = tandem_build_images(b, "images", 1, 1, 3),
              labels = tandem_build_labels(b, "labels", 1);
    const int64_t row[2] = {s->batch, 3};
    const int x = tandem_build_reshape(b, "row", images, 2, row);
    const int q = build_heads(b, "q", x, s, s->rows), k = build_heads(b, "k", x, s, s->columns),
              v = build_heads(b, "v", x, s, s->columns);
    int t = tandem_build_matmul(b, "scores", q, k, 1);
    t = tandem_build_softmax(b, "softmax", t, 1 / sqrtf((float)s->depth), s->causal);
    if (s->rate > 0) t = tandem_build_dropout(b, "dropout", t, s->rate);
    t = tandem_build_reshape(b, "flat", tandem_build_matmul(b, "mix", t, v, 0), 2, flat);
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", t, 2, 0.1f), labels);
    const tandem_optimizer_options still = {.kind = TANDEM_SGD};
    const tandem_status status = tandem_builder_finish(b, "attention", &still, &graph, &error);
    tandem_builder_close(b);
    if (status != TANDEM_OK) fail_msg("%s", error.text);
    return graph;
}

/* --- The definition ------------------------------------------------------------------------------------- */

/* 0, or what a score that is kept is multiplied by. Operands_run draws from stream {3, 1, ACTIVATION}. */
static double factor_of(const attention_shape *s, uint64_t seed, int64_t head, int64_t r, int64_t c)
{
    if (s->rate <= 0) return 1;
    const double rate = round((double)s->rate * 65536) / 65536;
    const int64_t first = case_first_place * s->heads * s->rows * s->columns,
                  e = first + (head * s->rows + r) * s->columns + c;
    const uint32_t counter[4] = {(uint32_t)(e / 8), 3, 1, TANDEM_RNG_ACTIVATION};
    const uint32_t word = tandem_philox(counter, seed).word[e / 2 % 4];
    return (e % 2 ? word >> 16 : word & 0xFFFF) < rate * 65536 ? 0 : 1 / (1 - rate);
}

static double dot_of(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The probabilities of a row, before dropout. */
static void row_of_probabilities(double *p, const attention_shape *s, const double *q, const double *k,
                                 int64_t r)
{
    const int64_t seen = s->causal ? r + 1 : s->columns;
    double sum = 0;
    for (int64_t c = 0; c < s->columns; c++) {
        p[c] = c < seen ? exp(dot_of(q, k + c * s->depth, s->depth) / sqrt((double)s->depth)) : 0;
        sum += p[c];
    }
    for (int64_t c = 0; c < s->columns; c++) p[c] /= sum;
}

/* value += weight·x, and how far that may be off. */
static void add_term(const expected *e, int which, int64_t at, double weight, const double *x, int64_t n,
                     double error)
{
    for (int64_t i = 0; i < n; i++) {
        e->value[which][at + i] += weight * x[i];
        e->bound[which][at + i] += error * fabs(x[i]);
    }
}

/* relative: of an operand that is rounded to the products' type, and of their sums. Sums inside the softmax
 * and of its gradient are in f32. */
static void expect_row(const expected *e, const attention_shape *s, const task_operands *x, int is_forward,
                       double relative, int64_t head, int64_t r, double *p, double *g_score)
{
    const int64_t d = s->depth, row = (head * s->rows + r) * d, column = head * s->columns * d;
    const double inner = 0x1p-19 * (double)d, scale = 1 / sqrt((double)d);
    const double *const q = x->in[is_forward ? 0 : 1].value + row,
                        *const k = x->in[is_forward ? 1 : 2].value + column,
                        *const v = x->in[is_forward ? 2 : 3].value + column, *const g = x->in[0].value + row;
    row_of_probabilities(p, s, q, k, r);
    double along = 0;
    for (int64_t c = 0; c < s->columns; c++) {
        const double kept = p[c] * factor_of(s, x->seed, head, r, c), error = (relative + inner) * kept;
        if (is_forward) {
            add_term(e, 0, row, kept, v + c * d, d, error);
            continue;
        }
        add_term(e, 2, column + c * d, kept, g, d, error);
        g_score[c] = dot_of(g, v + c * d, d) * factor_of(s, x->seed, head, r, c);
        along += p[c] * g_score[c];
    }
    for (int64_t c = 0; c < s->columns && !is_forward; c++) {
        const double weight = scale * p[c] * (g_score[c] - along),
                     error = relative * fabs(weight) + inner * scale * p[c] * (double)d * 2;
        add_term(e, 0, row, weight, k + c * d, d, error);
        add_term(e, 1, column + c * d, weight, q, d, error);
    }
}

static void expect(const expected *e, const attention_shape *s, const task_operands *x, int is_forward)
{
    const double relative = x->in[0].dtype == TANDEM_F32 ? 0x1p-20 : 0x1p-8;
    double *const p = calloc((size_t)(2 * s->columns), sizeof *p);
    assert_non_null(p);
    for (int64_t head = 0; head < s->batch * s->heads; head++)
        for (int64_t r = 0; r < s->rows; r++)
            expect_row(e, s, x, is_forward, relative, head, r, p, p + s->columns);
    free(p);
}

/* --- The kernels ---------------------------------------------------------------------------------------- */

static void print_attention(char *text, size_t size, const attention_shape *s, const tandem_task *task)
{
    snprintf(text, size, "%s %lldx%lld heads %lldx%lld of %lld%s%s in %s, gradients in %s",
             tandem_task_kind_name(task->kind), (long long)s->batch, (long long)s->heads, (long long)s->rows,
             (long long)s->columns, (long long)s->depth, s->causal ? " causal" : "",
             s->rate > 0 ? " with dropout" : "", tandem_dtype_name(task->from), tandem_dtype_name(task->to));
}

static void check_results(bench *b, const task_operands *x, const expected *e, int n, const char *where)
{
    for (int k = 0; k < n; k++)
        for (size_t i = 0; i < x->out[k].n; i++) {
            const double value = x->out[k].value[i], wanted = e->value[k][i],
                         narrow = x->out[k].dtype == TANDEM_F32 ? 0 : 0x1p-8 * fabs(wanted);
            if (fabs(value - wanted) <= e->bound[k][i] + narrow + 1e-7) continue;
            bench_complain(b, "%s: result %d, element %zu: %.7g, defined is %.7g, bound %.2g", where, k, i,
                           value, wanted, e->bound[k][i] + narrow);
            return;
        }
}

static void compare_teams(bench *b, const tandem_step *step, int t, const task_operands *alone,
                          const char *where)
{
    for (int c = 1; c < N_CORES; c++) {
        task_operands several;
        char complaint[1200] = "";
        operands_open(&several, step, t);
        for (int k = 0; k < several.n_in; k++) array_random(&several.in[k], 7 + (uint64_t)k);
        CHECK(b, operands_run(&several, b->backend, teams[c], step, t, 7, 1, complaint, sizeof complaint),
              "%s on %d cores: %s", where, core_counts[c], complaint);
        for (int k = 0; k < alone->n_out; k++)
            CHECK(b, memcmp(several.out[k].data, alone->out[k].data, alone->out[k].bytes) == 0,
                  "%s: result %d has other bits on %d cores than on one", where, k, core_counts[c]);
        operands_close(&several);
    }
}

static void check_attention_task(bench *b, const attention_shape *s, const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const int is_forward = task->kind == TANDEM_TASK_FORWARD, n = is_forward ? 1 : 3;
    char where[200], complaint[1200] = "";
    task_operands x;
    expected e = {.value = {NULL}};
    print_attention(where, sizeof where, s, task);
    operands_open(&x, step, t);
    for (int k = 0; k < x.n_in; k++) array_random(&x.in[k], 7 + (uint64_t)k);
    CHECK(b, operands_run(&x, b->backend, b->device, step, t, 7, 1, complaint, sizeof complaint), "%s: %s",
          where, complaint);
    for (int k = 0; k < n; k++) {
        e.value[k] = calloc(x.out[k].n, sizeof(double));
        e.bound[k] = calloc(x.out[k].n, sizeof(double));
        assert_true(e.value[k] && e.bound[k]);
    }
    expect(&e, s, &x, is_forward);
    check_results(b, &x, &e, n, where);
    compare_teams(b, step, t, &x, where);
    for (int k = 0; k < n; k++) free(e.value[k]), free(e.bound[k]);
    operands_close(&x);
}

/* Of a step in which the products have one precision, and linears before them another, so that gradients come
 * in f32 and in bf16. */
static int check_attention_step(bench *b, const attention_shape *s, tandem_precision own,
                                tandem_precision before)
{
    const tandem_step_options options = {.fused_attention = TANDEM_ATTENTION_PRECISIONS};
    tandem_graph *graph = open_attention(s);
    tandem_step *step = NULL;
    int n = 0;
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i]))
            tandem_step_set(step, i, graph->op[i].kind == TANDEM_OP_MATMUL ? own : before);
    tandem_step_resolve(step);
    for (int t = 0; t < step->n_task; t++) {
        tandem_attention attention;
        if (!tandem_step_attention(step, t, &attention)) continue;
        check_attention_task(b, s, step, t);
        n++;
    }
    tandem_step_close(step);
    tandem_graph_close(graph);
    return n;
}

static int child_attention(const char *name)
{
    tandem_device row;
    bench b = {.backend = &tandem_cpu_backend, .row = &row};
    tandem_error error = {0};
    int n = 0, wanted = 0;
    if (tandem_device_find(&row, name, &error) != TANDEM_OK) return 1;
    for (int c = 0; c < N_CORES; c++) {
        char cores[TANDEM_DEVICE_NAME + 16];
        snprintf(cores, sizeof cores, "%s:%d", name, core_counts[c]);
        if (b.backend->open(&teams[c], cores, &error) != TANDEM_OK) {
            printf("%s\n", error.text);
            return 1;
        }
    }
    b.device = teams[0];
    const int has_bf16 = bench_has_bf16(&b);
    for (size_t k = 0; k < N_OF(shapes); k++) {
        n += check_attention_step(&b, &shapes[k], TANDEM_PRECISION_FP32, TANDEM_PRECISION_FP32);
        wanted += 2;
        if (!has_bf16) continue;
        n += check_attention_step(&b, &shapes[k], TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32);
        n += check_attention_step(&b, &shapes[k], TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16);
        n += check_attention_step(&b, &shapes[k], TANDEM_PRECISION_FP32, TANDEM_PRECISION_BF16);
        wanted += 6;
    }
    for (int c = 0; c < N_CORES; c++) b.backend->close(teams[c]);
    if (n != wanted) printf("%d tasks were attentions; wanted %d\n", n, wanted);
    if (b.complaints > MAX_COMPLAINTS) printf("… %d complaints in all\n", b.complaints);
    return b.complaints > 0 || n != wanted;
}

static void attention_is_as_defined(void **state)
{
    const tandem_device *row = *state;
    if (!tandem_device_is_present(row->name)) {
        printf("SKIP: this machine lacks %s\n", row->name);
        skip();
    }
    own_process_check(child_attention, row->name);
}

int main(int argc, char **argv)
{
    (void)argc;
    own_process_wait_asleep(argv);
    struct CMUnitTest tests[2];
    size_t n = 0;
    const tandem_device *strongest = NULL;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *row = tandem_device_get(i);
        if (tandem_device_is_described(row)) continue;
        if (strcmp(row->name, "cpu:avx2") == 0)
            tests[n++] = (struct CMUnitTest){.name = row->name,
                                             .test_func = attention_is_as_defined,
                                             .initial_state = (void *)(uintptr_t)row};
        if (tandem_device_is_present(row->name)) strongest = row;
    }
    if (strongest && strcmp(strongest->name, "cpu:avx2") != 0)
        tests[n++] = (struct CMUnitTest){.name = strongest->name,
                                         .test_func = attention_is_as_defined,
                                         .initial_state = (void *)(uintptr_t)strongest};
    return _cmocka_run_group_tests("attention", tests, n, NULL, NULL);
}
