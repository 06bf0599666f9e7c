/* folder: backend */
/* The kernels of attention against products, softmax and dropout in double: result, statistics and all three
 * gradients, of every depth class, with lengths that fill no tile. Its dropout is the CPU's, to the bit. On a
 * card in build/card/ (make test-cuda), as coroutines (simt.h) elsewhere. */
#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

typedef struct attention_shape {
    size_t heads, rows, columns, depth;
    int causal;
    float rate;
} attention_shape;

static const attention_shape shapes[] = {
    {2, 1, 1, 8, 1, 0},     {3, 7, 7, 5, 1, 0},         {2, 33, 33, 32, 1, 0.25f},
    {2, 70, 70, 64, 1, 0},  {1, 65, 130, 64, 0, 0},     {2, 67, 67, 40, 1, 0.1f},
    {1, 50, 19, 128, 0, 0}, {1, 81, 81, 128, 1, 0.25f}, {2, 24, 100, 16, 0, 0.5f}};
enum { N_SHAPE = sizeof shapes / sizeof *shapes, FORWARD_LAUNCHES = 1, BACKWARD_LAUNCHES = 2 };

/* Unit roundoff of a type, and what f32 sums in another order may add to it. */
static double roundoff_of(tandem_cuda_float type) { return type == TANDEM_CUDA_BF16 ? 0x1p-8 : 0x1p-11; }
static const double sums = 1e-5;

typedef struct attention_case {
    attention_shape s;
    tandem_cuda_float type;
    double scale, *x[4]; /* q, k, v, g, as the kernels read them */
    double *p, *mask, *along, *along_bound;
    void *in[4], *o, *gradient[3];
    float *statistics, *rows;
    tandem_dropout draws;
} attention_case;

static size_t elements_of(const attention_shape *s, int x)
{
    return s->heads * (x == 1 || x == 2 ? s->columns : s->rows) * s->depth;
}

static void *alloc_attention(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

static double *alloc_doubles(size_t n)
{
    double *x = calloc(n, sizeof *x);
    assert_non_null(x);
    return x;
}

static double rounded(tandem_cuda_float type, double x)
{
    return type == TANDEM_CUDA_BF16 ? tandem_f32_of_bf16(tandem_bf16_of((float)x))
                                    : tandem_f32_of_f16(tandem_f16_of((float)x));
}

static double read_narrow(const void *x, tandem_cuda_float type, size_t i)
{
    if (type == TANDEM_CUDA_F32) return ((const float *)x)[i];
    const uint16_t code = ((const uint16_t *)x)[i];
    return type == TANDEM_CUDA_BF16 ? tandem_f32_of_bf16(code) : tandem_f32_of_f16(code);
}

static void draw_operand(attention_case *c, int x)
{
    const size_t n = elements_of(&c->s, x);
    c->x[x] = alloc_doubles(n);
    c->in[x] = alloc_attention(n * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)x, 0, 0};
        const double value = tandem_philox_uniform(tandem_philox(counter, 9).word[0]) * 4.0 - 2;
        c->x[x][i] = rounded(c->type, value);
        ((uint16_t *)c->in[x])[i] = c->type == TANDEM_CUDA_BF16 ? tandem_bf16_of((float)c->x[x][i])
                                                                : tandem_f16_of((float)c->x[x][i]);
    }
}

/* The factors of the CPU's dropout. */
static void find_mask(attention_case *c)
{
    const size_t n = c->s.heads * c->s.rows * c->s.columns;
    const uint32_t threshold = (uint32_t)(c->s.rate * 65536.0f + 0.5f);
    float *ones = malloc(n * sizeof *ones);
    assert_non_null(ones);
    c->mask = alloc_doubles(n);
    c->draws = (tandem_dropout){.seed = 5,
                                .first = 3 * n,
                                .stream = {1, 2, 3},
                                .threshold = threshold,
                                .scale = 65536.0f / (65536.0f - (float)threshold)};
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    if (c->s.rate > 0) tandem_isa_kernels_find("sse41")->dropout_f32(ones, ones, n, &c->draws);
    for (size_t i = 0; i < n; i++) c->mask[i] = ones[i];
    free(ones);
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double dot_of_magnitudes(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs(a[i] * b[i]);
    return sum;
}

/* Row r of the probabilities of head h. */
static double *row_of_probabilities(const attention_case *c, double *of, size_t h, size_t r)
{
    return of + (h * c->s.rows + r) * c->s.columns;
}

static int is_seen(const attention_case *c, size_t i, size_t j) { return !c->s.causal || j <= i; }

static void check_near(double got, double wanted, double bound, const char *what, size_t at)
{
    if (!(fabs(got - wanted) <= bound))
        fail_msg("%s[%zu]: got %.9g, should be %.9g within %.3g", what, at, got, wanted, bound);
}

static void check_result(attention_case *c)
{
    const attention_shape *s = &c->s;
    const double u = roundoff_of(c->type);
    for (size_t h = 0; h < s->heads; h++)
        for (size_t i = 0; i < s->rows; i++) {
            const double *q = c->x[0] + (h * s->rows + i) * s->depth;
            double *p = row_of_probabilities(c, c->p, h, i), sum = 0;
            const double *mask = row_of_probabilities(c, c->mask, h, i);
            for (size_t j = 0; j < s->columns; j++) {
                p[j] = is_seen(c, i, j)
                           ? exp(c->scale * dot(q, c->x[1] + (h * s->columns + j) * s->depth, s->depth))
                           : 0;
                sum += p[j];
            }
            check_near(c->statistics[h * s->rows + i], sum > 0 ? log2(sum) : NAN, 1e-4, "statistics", i);
            for (size_t j = 0; j < s->columns; j++) p[j] /= sum;
            for (size_t d = 0; d < s->depth; d++) {
                double o = 0, size = 0;
                for (size_t j = 0; j < s->columns; j++) {
                    const double term = p[j] * mask[j] * c->x[2][(h * s->columns + j) * s->depth + d];
                    o += term;
                    size += fabs(term);
                }
                const size_t at = (h * s->rows + i) * s->depth + d;
                check_near(read_narrow(c->o, c->type, at), o, u * (size + fabs(o)) + sums * size, "o", at);
            }
        }
}

/* What softmax's gradient subtracts, from the rounded result, and how far that may be off. */
static void find_along(attention_case *c)
{
    const attention_shape *s = &c->s;
    for (size_t r = 0; r < s->heads * s->rows; r++) {
        const double *g = c->x[3] + r * s->depth;
        double *o = alloc_doubles(s->depth);
        for (size_t d = 0; d < s->depth; d++) o[d] = read_narrow(c->o, c->type, r * s->depth + d);
        c->along[r] = dot(g, o, s->depth);
        c->along_bound[r] = sums * dot_of_magnitudes(g, o, s->depth);
        free(o);
    }
}

/* Terms of the gradients of q (row i of head h), k and v (row j), with what rounding may make of them. */
typedef struct gradient_sums {
    double *sum[3], *bound[3];
} gradient_sums;

static void add_terms(attention_case *c, gradient_sums *to, size_t h, size_t i, size_t j)
{
    const attention_shape *s = &c->s;
    const double u = roundoff_of(c->type);
    const size_t row = h * s->rows + i, column = h * s->columns + j;
    const double p = row_of_probabilities(c, c->p, h, i)[j], mask = row_of_probabilities(c, c->mask, h, i)[j],
                 *g = c->x[3] + row * s->depth, *v = c->x[2] + column * s->depth,
                 ds = p * (mask * dot(g, v, s->depth) - c->along[row]),
                 ds_bound = u * fabs(ds) + 2 * p * c->along_bound[row] +
                            4 * sums * p * (mask * dot_of_magnitudes(g, v, s->depth) + fabs(c->along[row]));
    for (size_t d = 0; d < s->depth; d++) {
        const size_t at[3] = {row * s->depth + d, column * s->depth + d, column * s->depth + d};
        const double term[3] = {c->scale * ds * c->x[1][at[1]], c->scale * ds * c->x[0][at[0]],
                                p * mask * g[d]},
                     bound[3] = {c->scale * ds_bound * fabs(c->x[1][at[1]]),
                                 c->scale * ds_bound * fabs(c->x[0][at[0]]),
                                 (u + 4 * sums) * fabs(p * mask * g[d])};
        for (int x = 0; x < 3; x++) {
            to->sum[x][at[x]] += term[x];
            to->bound[x][at[x]] += bound[x] + sums * fabs(term[x]);
        }
    }
}

static void check_gradients(attention_case *c, const tandem_cuda_float type[3])
{
    static const char *const name[3] = {"gradient of q", "gradient of k", "gradient of v"};
    const attention_shape *s = &c->s;
    gradient_sums all;
    for (int x = 0; x < 3; x++) {
        all.sum[x] = alloc_doubles(elements_of(s, x));
        all.bound[x] = alloc_doubles(elements_of(s, x));
    }
    find_along(c);
    for (size_t h = 0; h < s->heads; h++)
        for (size_t i = 0; i < s->rows; i++)
            for (size_t j = 0; j < s->columns; j++)
                if (is_seen(c, i, j)) add_terms(c, &all, h, i, j);
    for (int x = 0; x < 3; x++) {
        const double u = type[x] == TANDEM_CUDA_F32 ? 0 : roundoff_of(type[x]);
        for (size_t i = 0; i < elements_of(s, x); i++)
            check_near(read_narrow(c->gradient[x], type[x], i), all.sum[x][i],
                       all.bound[x][i] + u * fabs(all.sum[x][i]) + 1e-7, name[x], i);
        free(all.sum[x]);
        free(all.bound[x]);
    }
}

static void run_attention(attention_case *c, const tandem_cuda_float type[3])
{
    const attention_shape *s = &c->s;
    const tandem_cuda_attention_spec spec = {.heads = s->heads,
                                             .rows = s->rows,
                                             .columns = s->columns,
                                             .depth = s->depth,
                                             .scale = (float)c->scale,
                                             .causal = s->causal,
                                             .dropout = s->rate > 0 ? &c->draws : NULL};
    tandem_cuda_attention_gradient x = {.g = c->in[3],
                                        .q = c->in[0],
                                        .k = c->in[1],
                                        .v = c->in[2],
                                        .o = c->o,
                                        .statistics = c->statistics,
                                        .along = c->rows};
    for (int k = 0; k < 3; k++) x.gradient[k] = c->gradient[k], x.type[k] = type[k];
    const int before = gpu_launches();
    assert_int_equal(
        tandem_cuda_attention(c->o, c->statistics, c->in[0], c->in[1], c->in[2], c->type, &spec, NULL), 0);
    assert_true(before < 0 || gpu_launches() == before + FORWARD_LAUNCHES);
    assert_int_equal(tandem_cuda_attention_backward(&x, c->type, &spec, NULL), 0);
    assert_true(before < 0 || gpu_launches() == before + FORWARD_LAUNCHES + BACKWARD_LAUNCHES);
    gpu_sync();
}

static void check_attention_case(const attention_shape *s, tandem_cuda_float type, tandem_cuda_float wide)
{
    const tandem_cuda_float to[3] = {wide, type, wide};
    const size_t n_row = s->heads * s->rows;
    attention_case c = {.s = *s, .type = type, .scale = (double)(1 / sqrtf((float)s->depth))};
    for (int x = 0; x < 4; x++) draw_operand(&c, x);
    find_mask(&c);
    c.p = alloc_doubles(n_row * s->columns);
    c.along = alloc_doubles(n_row);
    c.along_bound = alloc_doubles(n_row);
    c.o = alloc_attention(elements_of(s, 0) * sizeof(uint16_t));
    for (int x = 0; x < 3; x++) c.gradient[x] = alloc_attention(elements_of(s, x) * sizeof(float));
    c.statistics = alloc_attention(n_row * sizeof(float));
    c.rows = alloc_attention(n_row * sizeof(float));
    run_attention(&c, to);
    check_result(&c);
    check_gradients(&c, to);
    for (int x = 0; x < 4; x++) {
        free(c.x[x]);
        gpu_free_shared(c.in[x]);
        if (x < 3) gpu_free_shared(c.gradient[x]);
    }
    free(c.mask);
    free(c.p);
    free(c.along);
    free(c.along_bound);
    gpu_free_shared(c.o);
    gpu_free_shared(c.statistics);
    gpu_free_shared(c.rows);
}

static void attention_is_its_parts_in_bf16(void **state)
{
    for (int k = 0; k < N_SHAPE; k++) check_attention_case(&shapes[k], TANDEM_CUDA_BF16, TANDEM_CUDA_F32);
}

static void attention_is_its_parts_in_f16(void **state)
{
    for (int k = 0; k < N_SHAPE; k++) check_attention_case(&shapes[k], TANDEM_CUDA_F16, TANDEM_CUDA_F16);
}

static void what_has_no_kernel_is_an_error(void **state)
{
    const tandem_cuda_attention_spec deep = {.heads = 1, .rows = 1, .columns = 1, .depth = 129, .scale = 1};
    assert_int_not_equal(tandem_cuda_attention(NULL, NULL, NULL, NULL, NULL, TANDEM_CUDA_BF16, &deep, NULL),
                         0);
    assert_int_not_equal(tandem_cuda_attention(NULL, NULL, NULL, NULL, NULL, TANDEM_CUDA_F32, &deep, NULL),
                         0);
}

static void launches_are_those_that_a_step_counts(void **state)
{
    const tandem_step_options options = {
        .narrow_rows = 1, .fused_attention = TANDEM_ATTENTION_PRECISIONS & ~(1u << TANDEM_PRECISION_FP32)};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    int n_attention = 0;
    assert_int_equal(tandem_graph_open(&graph, "gpt_tiny:depth=2", 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &options, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) tandem_step_set(step, i, TANDEM_PRECISION_BF16);
    tandem_step_resolve(step);
    for (int t = 0; t < step->n_task; t++) {
        tandem_attention attention;
        if (!tandem_step_attention(step, t, &attention)) continue;
        const int is_forward = step->task[t].kind == TANDEM_TASK_FORWARD;
        assert_int_equal(tandem_step_launches(step, t), is_forward ? FORWARD_LAUNCHES : BACKWARD_LAUNCHES);
        n_attention++;
    }
    assert_int_equal(n_attention, 4);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_is_its_parts_in_bf16),
                                       cmocka_unit_test(attention_is_its_parts_in_f16),
                                       cmocka_unit_test(what_has_no_kernel_is_an_error),
                                       cmocka_unit_test(launches_are_those_that_a_step_counts)};
    if (skip_without_gpu()) return 0;
    return cmocka_run_group_tests_name("attention on cards", tests, NULL, NULL);
}
