/* folder: backend */
/* Softmax and layernorm of rows that a warp has, and of rows that a block has, and the cross-entropy of rows
 * that begin anywhere, against double: results, moments and gradients, with a causal mask, and after a sum.
 * On a card in build/card/ (make test-cuda), as coroutines (simt.h) elsewhere. */
#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

static const size_t lengths[] = {1, 31, 32, 33, 96, 128, 197, 260, 768, 769, 1023, 1024, 1025};
enum { N_LENGTH = sizeof lengths / sizeof *lengths, EDGE = 8, WARPS_A_BLOCK = 8 };
static const tandem_cuda_float types[] = {TANDEM_CUDA_F32, TANDEM_CUDA_BF16, TANDEM_CUDA_F16};
/* What sums in f32 may be off, of the sum of their magnitudes; below it, f16 has no normal numbers. */
static const double of_sums = 1e-5, smallest = 1e-7;

/* More rows than a block of warps has; of short ones as many as columns, so that the mask is seen whole. */
static size_t rows_of(size_t columns) { return columns <= 256 ? columns + 3 : 19; }

/* Where a warp has the row, eight are a block's. */
static size_t blocks_of(size_t rows, size_t columns, size_t max_columns)
{
    const size_t max = columns % 4 == 0 ? max_columns : 256;
    return columns <= max ? (rows + WARPS_A_BLOCK - 1) / WARPS_A_BLOCK : rows;
}

static void check_blocks(size_t expected)
{
    if (gpu_blocks() >= 0) assert_int_equal(gpu_blocks(), expected);
}

static size_t bytes_of(tandem_cuda_float type) { return type == TANDEM_CUDA_F32 ? 4 : 2; }

static double roundoff(tandem_cuda_float type)
{
    return type == TANDEM_CUDA_F32 ? 0x1p-24 : type == TANDEM_CUDA_BF16 ? 0x1p-8 : 0x1p-11;
}

static double number_at(const void *x, tandem_cuda_float type, size_t i)
{
    if (type == TANDEM_CUDA_F32) return ((const float *)x)[i];
    const uint16_t code = ((const uint16_t *)x)[i];
    return type == TANDEM_CUDA_BF16 ? tandem_f32_of_bf16(code) : tandem_f32_of_f16(code);
}

static void put_number(void *x, tandem_cuda_float type, size_t i, float value)
{
    if (type == TANDEM_CUDA_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = type == TANDEM_CUDA_BF16 ? tandem_bf16_of(value) : tandem_f16_of(value);
}

static void *alloc_row_array(size_t bytes)
{
    void *memory = gpu_alloc_shared(bytes);
    assert_non_null(memory);
    return memory;
}

/* In [−3, 3). */
static void *draw_rows(tandem_cuda_float type, size_t n, uint32_t which)
{
    void *x = alloc_row_array(n * bytes_of(type));
    for (size_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, which, 0, 0};
        put_number(x, type, i, tandem_philox_uniform(tandem_philox(counter, 5).word[0]) * 6 - 3);
    }
    return x;
}

/* Results of two launches, of which the second one's threads run in another order, and what lies after. */
typedef struct results {
    char *data[2];
    size_t bytes;
} results;

static results open_results(size_t bytes)
{
    results r = {{NULL}, bytes};
    for (int k = 0; k < 2; k++) r.data[k] = memset(alloc_row_array(bytes + EDGE), 0x3C, bytes + EDGE);
    return r;
}

static void close_results(results *r)
{
    static const char edge[EDGE + 1] = "<<<<<<<<"; /* 0x3C */
    assert_memory_equal(r->data[0], r->data[1], r->bytes);
    for (int k = 0; k < 2; k++) {
        assert_memory_equal(r->data[k] + r->bytes, edge, EDGE);
        gpu_free_shared(r->data[k]);
    }
}

static void check_number(double got, double expected, double bound, const char *what, size_t columns)
{
    if (fabs(got - expected) <= bound) return;
    print_message("%s of %zu columns: got %.9g, should be %.9g within %.3g\n", what, columns, got, expected,
                  bound);
    fail();
}

/* --- Softmax -------------------------------------------------------------------------------------------- */

static const float scale = 0.7f;

static void check_softmax_result(const void *y, const void *x, tandem_cuda_float type, size_t columns,
                                 int causal)
{
    for (size_t r = 0; r < rows_of(columns); r++) {
        const size_t start = r * columns, seen = causal ? r % columns + 1 : columns;
        double sum = 0;
        for (size_t j = 0; j < seen; j++) sum += exp((double)scale * number_at(x, type, start + j));
        for (size_t j = 0; j < columns; j++) {
            const double p = j < seen ? exp((double)scale * number_at(x, type, start + j)) / sum : 0;
            check_number(number_at(y, type, start + j), p,
                         (roundoff(type) + of_sums) * p + smallest * (p > 0), "softmax", columns);
        }
    }
}

static void check_softmax_gradient(const void *gx, const void *g, const void *y, tandem_cuda_float type,
                                   size_t columns)
{
    for (size_t r = 0; r < rows_of(columns); r++) {
        const size_t start = r * columns;
        double along = 0, size = 0;
        for (size_t i = start; i < start + columns; i++) {
            along += number_at(g, type, i) * number_at(y, type, i);
            size += fabs(number_at(g, type, i) * number_at(y, type, i));
        }
        for (size_t i = start; i < start + columns; i++) {
            const double own = number_at(y, type, i), gradient = number_at(g, type, i),
                         expected = (double)scale * own * (gradient - along);
            check_number(number_at(gx, type, i), expected,
                         roundoff(type) * fabs(expected) + of_sums * own * (size + fabs(gradient)) + smallest,
                         "softmax's gradient", columns);
        }
    }
}

static void check_softmax(tandem_cuda_float type, size_t columns, int causal)
{
    const size_t rows = rows_of(columns), n = rows * columns, blocks = blocks_of(rows, columns, 1024);
    void *x = draw_rows(type, n, 1), *g = draw_rows(type, n, 2);
    results y = open_results(n * bytes_of(type)), gx = open_results(n * bytes_of(type));
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tandem_cuda_softmax(y.data[k], x, type, rows, columns, scale, causal, NULL), 0);
        check_blocks(blocks);
        assert_int_equal(
            tandem_cuda_softmax_backward(gx.data[k], g, y.data[0], type, rows, columns, scale, NULL), 0);
        check_blocks(blocks);
    }
    gpu_sync();
    check_softmax_result(y.data[0], x, type, columns, causal);
    check_softmax_gradient(gx.data[0], g, y.data[0], type, columns);
    close_results(&gx);
    close_results(&y);
    gpu_free_shared(g);
    gpu_free_shared(x);
}

static void softmax_of_rows_is_its_definition(void **state)
{
    for (int k = 0; k < N_LENGTH; k++)
        for (int type = 0; type < 3; type++)
            for (int causal = 0; causal < 2; causal++) check_softmax(types[type], lengths[k], causal);
}

/* Far from 0, and with logits of −∞, as masks make them. */
static void softmax_of_large_numbers_is_finite(void **state)
{
    enum { ROWS = 3 };
    for (int k = 0; k < N_LENGTH; k++) {
        const size_t columns = lengths[k];
        float *x = alloc_row_array(ROWS * columns * sizeof *x),
              *y = alloc_row_array(ROWS * columns * sizeof *y);
        for (size_t i = 0; i < ROWS * columns; i++)
            x[i] = i % columns % 3 == 1 ? -INFINITY : i / columns == 1 ? -1e4f : 1e4f;
        assert_int_equal(tandem_cuda_softmax(y, x, TANDEM_CUDA_F32, ROWS, columns, 1, 0, NULL), 0);
        gpu_sync();
        const double seen = (double)(columns - (columns + 1) / 3);
        for (size_t i = 0; i < ROWS * columns; i++)
            check_number((double)y[i], i % columns % 3 == 1 ? 0 : 1 / seen, 1e-6 / seen, "softmax", columns);
        gpu_free_shared(y);
        gpu_free_shared(x);
    }
}

/* --- Layernorm ------------------------------------------------------------------------------------------ */

static const float epsilon = 1e-5f;

typedef struct norm_rows {
    tandem_cuda_float type;
    size_t rows, columns, n;
    void *x, *residual, *g;
    float *scale, *shift, *bias; /* [columns] */
} norm_rows;

static norm_rows open_norm_rows(tandem_cuda_float type, size_t columns)
{
    const size_t rows = rows_of(columns), n = rows * columns;
    return (norm_rows){type,
                       rows,
                       columns,
                       n,
                       draw_rows(type, n, 1),
                       draw_rows(type, n, 2),
                       draw_rows(type, n, 3),
                       draw_rows(TANDEM_CUDA_F32, columns, 4),
                       draw_rows(TANDEM_CUDA_F32, columns, 5),
                       draw_rows(TANDEM_CUDA_F32, columns, 6)};
}

static void close_norm_rows(const norm_rows *c)
{
    gpu_free_shared(c->bias);
    gpu_free_shared(c->shift);
    gpu_free_shared(c->scale);
    gpu_free_shared(c->g);
    gpu_free_shared(c->residual);
    gpu_free_shared(c->x);
}

/* y and both moments, of the rows x. */
static void check_norm_result(const norm_rows *c, const void *y, const float *moments, const void *x)
{
    for (size_t r = 0; r < c->rows; r++) {
        const size_t start = r * c->columns;
        double mean = 0, variance = 0;
        for (size_t j = 0; j < c->columns; j++) mean += number_at(x, c->type, start + j) / (double)c->columns;
        for (size_t j = 0; j < c->columns; j++)
            variance += pow(number_at(x, c->type, start + j) - mean, 2) / (double)c->columns;
        check_number((double)moments[r], mean, of_sums, "mean", c->columns);
        check_number((double)moments[c->rows + r], variance, of_sums * (1 + variance), "variance",
                     c->columns);
        for (size_t j = 0; j < c->columns; j++) {
            const double factor = (double)c->scale[j] / sqrt(variance + (double)epsilon),
                         off = number_at(x, c->type, start + j) - mean,
                         expected = off * factor + (double)c->shift[j];
            check_number(number_at(y, c->type, start + j), expected,
                         roundoff(c->type) * fabs(expected) +
                             of_sums * (fabs(factor) * (1 + fabs(off)) + fabs((double)c->shift[j])),
                         "layernorm", c->columns);
        }
    }
}

/* Alone, and of a sum: its elements are rounded as those of the operators by themselves. */
static void check_norm(const norm_rows *c, int is_sum, int has_bias)
{
    results y = open_results(c->n * bytes_of(c->type)), sum = open_results(c->n * bytes_of(c->type)),
            moments = open_results(2 * c->rows * sizeof(float));
    void *expected = alloc_row_array(c->n * bytes_of(c->type));
    for (int k = 0; k < 2; k++) {
        float *const mean = (float *)(void *)moments.data[k];
        const tandem_cuda_residual with = {c->residual, has_bias ? c->bias : NULL, sum.data[k]};
        const int failed =
            is_sum ? tandem_cuda_add_layernorm(y.data[k], &with, c->x, c->type, c->scale, c->shift, mean,
                                               mean + c->rows, c->rows, c->columns, epsilon, NULL)
                   : tandem_cuda_layernorm(y.data[k], c->x, c->type, c->scale, c->shift, mean, mean + c->rows,
                                           c->rows, c->columns, epsilon, NULL);
        assert_int_equal(failed, 0);
        check_blocks(blocks_of(c->rows, c->columns, 1024));
    }
    gpu_sync();
    if (is_sum) {
        for (size_t i = 0; i < c->n; i++) {
            const float x = (float)number_at(c->x, c->type, i);
            put_number(expected, c->type, i, has_bias ? x + c->bias[i % c->columns] : x);
            put_number(expected, c->type, i,
                       (float)number_at(c->residual, c->type, i) + (float)number_at(expected, c->type, i));
        }
        assert_memory_equal(sum.data[0], expected, sum.bytes);
    }
    check_norm_result(c, y.data[0], (float *)(void *)moments.data[0], is_sum ? expected : c->x);
    gpu_free_shared(expected);
    close_results(&moments);
    close_results(&sum);
    close_results(&y);
}

static void layernorm_of_rows_is_its_definition(void **state)
{
    for (int k = 0; k < N_LENGTH; k++)
        for (int type = 0; type < 3; type++) {
            const norm_rows c = open_norm_rows(types[type], lengths[k]);
            check_norm(&c, 0, 0);
            check_norm(&c, 1, 0);
            check_norm(&c, 1, 1);
            close_norm_rows(&c);
        }
}

/* Of a row r: gx; and what it adds to the gradients of scale and shift, and to the bounds of these sums. */
static void check_norm_gradient(const norm_rows *c, size_t r, const void *gx, const float *moments,
                                double *sums /* (4, columns) */)
{
    const size_t start = r * c->columns, n = c->columns;
    const double inverse = 1 / sqrt((double)moments[c->rows + r] + (double)epsilon);
    double sum = 0, along = 0, size = 0;
    for (size_t j = 0; j < n; j++) {
        const double g = number_at(c->g, c->type, start + j), scaled = g * (double)c->scale[j],
                     normal = (number_at(c->x, c->type, start + j) - (double)moments[r]) * inverse;
        sum += scaled / (double)n;
        along += scaled * normal / (double)n;
        size += fabs(scaled) * (1 + fabs(normal)) / (double)n;
        sums[j] += g * normal;
        sums[n + j] += g;
        sums[2 * n + j] += fabs(g * normal);
        sums[3 * n + j] += fabs(g);
    }
    for (size_t j = 0; j < n; j++) {
        const double scaled = number_at(c->g, c->type, start + j) * (double)c->scale[j],
                     normal = (number_at(c->x, c->type, start + j) - (double)moments[r]) * inverse,
                     expected = inverse * (scaled - sum - normal * along);
        check_number(number_at(gx, c->type, start + j), expected,
                     roundoff(c->type) * fabs(expected) +
                         of_sums * inverse * (fabs(scaled) + size * (1 + fabs(normal))) + smallest,
                     "layernorm's gradient", n);
    }
}

static void check_norm_gradients(const norm_rows *c)
{
    const size_t n = c->columns;
    float *moments = alloc_row_array(2 * c->rows * sizeof *moments);
    void *workspace = alloc_row_array(tandem_cuda_layernorm_workspace(c->rows, n)),
         *y = alloc_row_array(c->n * bytes_of(c->type));
    uint32_t *tickets = alloc_row_array(TANDEM_CUDA_TICKETS * sizeof *tickets);
    double *sums = calloc(4 * n, sizeof *sums);
    results gx = open_results(c->n * bytes_of(c->type)), own = open_results(2 * n * sizeof(float));
    assert_non_null(sums);
    memset(tickets, 0, TANDEM_CUDA_TICKETS * sizeof *tickets);
    assert_int_equal(tandem_cuda_layernorm(y, c->x, c->type, c->scale, c->shift, moments, moments + c->rows,
                                           c->rows, n, epsilon, NULL),
                     0);
    for (int k = 0; k < 2; k++) {
        float *const gscale = (float *)(void *)own.data[k];
        assert_int_equal(tandem_cuda_layernorm_backward(gx.data[k], gscale, gscale + n, c->g, c->x, c->type,
                                                        c->scale, moments, moments + c->rows, c->rows, n,
                                                        epsilon, workspace, tickets, NULL),
                         0);
    }
    gpu_sync();
    for (size_t r = 0; r < c->rows; r++) check_norm_gradient(c, r, gx.data[0], moments, sums);
    for (size_t j = 0; j < 2 * n; j++)
        check_number((double)((float *)(void *)own.data[0])[j], sums[j], of_sums * (1 + sums[2 * n + j]),
                     "a parameter's gradient", n);
    for (size_t i = 0; i < TANDEM_CUDA_TICKETS; i++) assert_int_equal(tickets[i], 0);
    close_results(&own);
    close_results(&gx);
    free(sums);
    gpu_free_shared(tickets);
    gpu_free_shared(y);
    gpu_free_shared(workspace);
    gpu_free_shared(moments);
}

static void layernorms_gradients_are_those_of_its_definition(void **state)
{
    for (int k = 0; k < N_LENGTH; k++)
        for (int type = 0; type < 3; type++) {
            const norm_rows c = open_norm_rows(types[type], lengths[k]);
            check_norm_gradients(&c);
            close_norm_rows(&c);
        }
}

/* --- Cross-entropy -------------------------------------------------------------------------------------- */

static const float smoothing = 0.1f, row_weight = 0.37f;

typedef struct loss_rows {
    tandem_cuda_float type;
    size_t rows, classes, row; /* row: elements from one row to the next */
    void *x;
    int32_t *label;
    double loss, *top, *sum; /* [rows] */
} loss_rows;

/* What lies between rows is no number. */
static loss_rows open_loss_rows(tandem_cuda_float type, size_t classes, size_t row)
{
    const size_t rows = classes <= 256 ? 11 : 3;
    loss_rows c = {type,
                   rows,
                   classes,
                   row,
                   draw_rows(type, rows * row, 7),
                   alloc_row_array(rows * 4),
                   0,
                   calloc(rows, sizeof *c.top),
                   calloc(rows, sizeof *c.sum)};
    assert_true(c.top && c.sum);
    for (size_t r = 0; r < rows; r++) {
        double mean = 0;
        memset((char *)c.x + (r * row + classes) * bytes_of(type), 0xFF, (row - classes) * bytes_of(type));
        c.label[r] = r % 3 == 1 ? -1 : (int32_t)((r + 1) * 7919 % classes);
        c.top[r] = -INFINITY;
        for (size_t j = 0; j < classes; j++) c.top[r] = fmax(c.top[r], number_at(c.x, type, r * row + j));
        for (size_t j = 0; j < classes; j++) {
            const double logit = number_at(c.x, type, r * row + j);
            c.sum[r] += exp(logit - c.top[r]);
            mean += logit / (double)classes;
        }
        if (c.label[r] < 0) continue;
        const double own = number_at(c.x, type, r * row + (size_t)c.label[r]);
        c.loss += (double)row_weight *
                  (log(c.sum[r]) + c.top[r] - (1 - (double)smoothing) * own - (double)smoothing * mean);
    }
    return c;
}

static void close_loss_rows(loss_rows *c)
{
    gpu_free_shared(c->label);
    gpu_free_shared(c->x);
    free(c->sum);
    free(c->top);
}

/* The loss, the numbers that are saved of each row, and the probabilities of an evaluation. */
static void check_loss_result(const loss_rows *c)
{
    const size_t n = c->rows * c->classes;
    results loss = open_results(sizeof(float)), saved = open_results(2 * c->rows * sizeof(float)),
            p = open_results(n * sizeof(float));
    float *workspace = alloc_row_array(c->rows * sizeof *workspace);
    uint32_t *bad = memset(alloc_row_array(sizeof *bad), 0, sizeof *bad);
    for (int k = 0; k < 2; k++) {
        const tandem_cuda_cross_entropy_out out = {
            (float *)(void *)loss.data[k], (float *)(void *)saved.data[k], (float *)(void *)p.data[k]};
        assert_int_equal(tandem_cuda_cross_entropy(&out, c->x, c->type, c->label, c->rows, c->classes, c->row,
                                                   row_weight, smoothing, bad, workspace, NULL),
                         0);
    }
    gpu_sync();
    assert_int_equal(*bad, 0);
    const float *of_rows = (float *)(void *)saved.data[0], *all = (float *)(void *)p.data[0];
    check_number((double)*(float *)(void *)loss.data[0], c->loss, 2e-5 * (1 + c->loss), "loss", c->classes);
    for (size_t r = 0; r < c->rows; r++) {
        check_number((double)of_rows[r], c->top[r], 0, "largest logit", c->classes);
        check_number((double)of_rows[c->rows + r], c->sum[r], of_sums * c->sum[r], "sum", c->classes);
        for (size_t j = 0; j < c->classes; j++) {
            const double expected = exp(number_at(c->x, c->type, r * c->row + j) - c->top[r]) / c->sum[r];
            check_number((double)all[r * c->classes + j], expected, of_sums * expected, "probability",
                         c->classes);
        }
    }
    gpu_free_shared(bad);
    gpu_free_shared(workspace);
    close_results(&p);
    close_results(&saved);
    close_results(&loss);
}

/* Into an array of its own, and over the logits. */
static void check_loss_gradient(const loss_rows *c)
{
    const size_t n = c->rows * c->row;
    const float factor_of_scale = 8;
    results gx = open_results(n * bytes_of(c->type));
    float *saved = alloc_row_array(2 * c->rows * sizeof *saved), *factor = alloc_row_array(sizeof *factor);
    *factor = factor_of_scale;
    for (size_t r = 0; r < c->rows; r++) saved[r] = (float)c->top[r], saved[c->rows + r] = (float)c->sum[r];
    memcpy(gx.data[1], c->x, gx.bytes);
    for (int k = 0; k < 2; k++)
        assert_int_equal(tandem_cuda_cross_entropy_backward(gx.data[k], k ? gx.data[k] : c->x, c->type, saved,
                                                            c->label, c->rows, c->classes, c->row, row_weight,
                                                            factor, smoothing, NULL),
                         0);
    gpu_sync();
    for (size_t r = 0; r < c->rows; r++)
        for (size_t j = 0; j < c->classes; j++) {
            const double p = exp(number_at(c->x, c->type, r * c->row + j) - c->top[r]) / c->sum[r],
                         target = (double)smoothing / (double)c->classes +
                                  (c->label[r] == (int32_t)j ? 1 - (double)smoothing : 0),
                         weight = (double)(row_weight * factor_of_scale),
                         expected = c->label[r] < 0 ? 0 : (p - target) * weight;
            check_number(number_at(gx.data[0], c->type, r * c->row + j), expected,
                         roundoff(c->type) * fabs(expected) + of_sums * weight * (p + target) + smallest,
                         "gradient of logits", c->classes);
        }
    for (size_t i = 0; i < n; i++)
        if (i % c->row >= c->classes)
            check_number(number_at(gx.data[0], c->type, i), 0, 0, "gap", c->classes);
    gpu_free_shared(factor);
    gpu_free_shared(saved);
    close_results(&gx);
}

/* From the probabilities themselves, as steps without narrow_rows keep them. */
static void a_loss_takes_probabilities_too(void **state)
{
    const float p[4] = {0.5f, 0.25f, 0.125f, 0.125f};
    const int32_t own = 2;
    float *x = memcpy(alloc_row_array(sizeof p), p, sizeof p), *gx = alloc_row_array(sizeof p);
    int32_t *label = memcpy(alloc_row_array(sizeof own), &own, sizeof own);
    assert_int_equal(
        tandem_cuda_cross_entropy_backward(gx, x, TANDEM_CUDA_F32, NULL, label, 1, 4, 4, 2, NULL, 0, NULL),
        0);
    gpu_sync();
    for (int32_t j = 0; j < 4; j++) assert_true(gx[j] == 2 * (p[j] - (float)(j == own)));
    gpu_free_shared(label);
    gpu_free_shared(gx);
    gpu_free_shared(x);
}

/* Rows of an odd number of classes begin anywhere in their array, or at multiples of 64. */
static void a_loss_of_rows_is_its_definition(void **state)
{
    static const size_t classes[] = {2, 3, 7, 8, 9, 15, 16, 197, 2048, 2049, 5027};
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++)
        for (int i = 0; i < 6; i++) {
            const size_t row = i < 3 ? classes[k] : (classes[k] + 63) / 64 * 64;
            loss_rows c = open_loss_rows(types[i % 3], classes[k], row);
            check_loss_result(&c);
            check_loss_gradient(&c);
            close_loss_rows(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(softmax_of_rows_is_its_definition),
                                       cmocka_unit_test(softmax_of_large_numbers_is_finite),
                                       cmocka_unit_test(layernorm_of_rows_is_its_definition),
                                       cmocka_unit_test(layernorms_gradients_are_those_of_its_definition),
                                       cmocka_unit_test(a_loss_of_rows_is_its_definition),
                                       cmocka_unit_test(a_loss_takes_probabilities_too)};
    if (skip_without_gpu()) return 0;
    return cmocka_run_group_tests_name("rows on cards", tests, NULL, NULL);
}
