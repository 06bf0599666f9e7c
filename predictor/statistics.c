/* statistics.c: sums over operands and output gradients of real batches, which sensitivities are computed
 * from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/advanced/predictor.h"

double tandem_statistics_square(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

double tandem_statistics_amax(const float *x, int64_t n)
{
    float max = 0;
    for (int64_t i = 0; i < n; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return (double)max;
}

/* Sums the squares of a matrix (rows, columns) by row and by column. */
static void sum_squares(const float *m, int64_t rows, int64_t columns, double *of_row, double *of_column)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double square = (double)m[i * columns + j] * (double)m[i * columns + j];
            of_row[i] += square;
            of_column[j] += square;
        }
}

/* Σ_i a_i Σ_l m_il² b_l */
static double weighted_squares(const float *m, int64_t rows, int64_t columns, const double *a,
                               const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        double of_row = 0;
        for (int64_t l = 0; l < columns; l++)
            of_row += (double)m[i * columns + l] * (double)m[i * columns + l] * b[l];
        sum += a[i] * of_row;
    }
    return sum;
}

static double dot_f64(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double sum_f64(const double *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i];
    return sum;
}

tandem_status tandem_statistics_add_product(tandem_statistics *s, const tandem_product *p,
                                            tandem_error *error)
{
    const size_t rows = (size_t)p->rows, k = (size_t)p->k, columns = (size_t)p->columns;
    double *block = calloc(2 * rows + 2 * k + 2 * columns, sizeof *block);
    if (!block)
        return tandem_no_memory(error, "for statistics of a product %lldx%lldx%lld", (long long)p->rows,
                                (long long)p->k, (long long)p->columns);
    double *x_row = block, *g_row = x_row + rows, *x_column = g_row + rows, *w_row = x_column + k;
    double *w_column = w_row + k, *g_column = w_column + columns;
    sum_squares(p->x, p->rows, p->k, x_row, x_column);
    sum_squares(p->g, p->rows, p->columns, g_row, g_column);
    if (p->transposed)
        sum_squares(p->w, p->columns, p->k, w_column, w_row);
    else
        sum_squares(p->w, p->k, p->columns, w_row, w_column);
    s->x_square += sum_f64(x_row, p->rows);
    s->w_square += sum_f64(w_row, p->k);
    s->g_square += sum_f64(g_row, p->rows);
    s->g2_w2 += dot_f64(g_column, w_column, p->columns);
    s->g2_x2 += dot_f64(g_row, x_row, p->rows);
    s->g2_x2_c += weighted_squares(p->x, p->rows, p->k, g_row, x_column);
    s->x2_g2_d += weighted_squares(p->g, p->rows, p->columns, x_row, g_column);
    free(block);
    return TANDEM_OK;
}

/* A convolution's input as a matrix: (n·out_height·out_width, kernel_h·kernel_w·channels), zero outside the
 * image. */
static float *columns_of_windows(const tandem_window *of, const float *x)
{
    const int64_t windows = of->n * of->out_height * of->out_width;
    float *columns = calloc((size_t)(windows * of->kernel_h * of->kernel_w * of->channels), sizeof *columns);
    float *to = columns;
    for (int64_t window = 0; window < windows && columns; window++)
        for (int64_t k = 0; k < of->kernel_h * of->kernel_w; k++, to += of->channels) {
            const int64_t image = window / of->out_width / of->out_height,
                          y = window / of->out_width % of->out_height * of->stride + k / of->kernel_w -
                              of->pad,
                          z = window % of->out_width * of->stride + k % of->kernel_w - of->pad;
            if (y < 0 || y >= of->height || z < 0 || z >= of->width) continue;
            memcpy(to, x + ((image * of->height + y) * of->width + z) * of->channels,
                   (size_t)of->channels * sizeof *to);
        }
    return columns;
}

static tandem_status add_product_stack(tandem_statistics *s, tandem_product product, int64_t count,
                                       tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i < count && status == TANDEM_OK; i++) {
        status = tandem_statistics_add_product(s, &product, error);
        product.x += product.rows * product.k;
        product.w += product.k * product.columns;
        product.g += product.rows * product.columns;
    }
    return status;
}

tandem_status tandem_statistics_add_call(tandem_statistics *s, const tandem_product *product, int64_t count,
                                         const tandem_window *window, tandem_error *error)
{
    tandem_product single = *product;
    if (window) {
        single.rows = window->n * window->out_height * window->out_width;
        single.k = window->kernel_h * window->kernel_w * window->channels;
    }
    s->rows = count * single.rows;
    s->k = single.k;
    s->columns = single.columns;
    s->x_elements = window ? window->n * window->height * window->width * window->channels
                           : count * single.rows * single.k;
    s->w_elements = count * single.k * single.columns;
    s->x_amax += tandem_statistics_amax(single.x, s->x_elements);
    s->w_amax += tandem_statistics_amax(single.w, s->w_elements);
    s->g_amax += tandem_statistics_amax(single.g, s->rows * s->columns);
    if (!window) return add_product_stack(s, single, count, error);
    float *columns = columns_of_windows(window, single.x);
    if (!columns) return tandem_no_memory(error, "for the windows of a convolution");
    single.x = columns;
    const tandem_status status = tandem_statistics_add_product(s, &single, error);
    free(columns);
    return status;
}

void tandem_statistics_finish(tandem_statistics *s, int64_t n_batch)
{
    double *const mean[] = {&s->x_amax,   &s->w_amax,   &s->g_amax,       &s->x_square,
                            &s->w_square, &s->g_square, &s->wgrad_square, &s->dgrad_square,
                            &s->g2_w2,    &s->g2_x2,    &s->g2_x2_c,      &s->x2_g2_d};
    for (size_t k = 0; k < sizeof mean / sizeof *mean; k++) *mean[k] /= (double)n_batch;
    s->n_batch = n_batch;
}
