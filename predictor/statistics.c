/* statistics.c: sums over operands and output gradients of real batches, which sensitivities are computed
 * from. */
#include <math.h>
#include <stdlib.h>

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

void tandem_statistics_finish(tandem_statistics *s, int64_t n_batch)
{
    double *const mean[] = {&s->x_amax,   &s->w_amax,   &s->g_amax,       &s->x_square,
                            &s->w_square, &s->g_square, &s->wgrad_square, &s->dgrad_square,
                            &s->g2_w2,    &s->g2_x2,    &s->g2_x2_c,      &s->x2_g2_d};
    for (size_t k = 0; k < sizeof mean / sizeof *mean; k++) *mean[k] /= (double)n_batch;
    s->n_batch = n_batch;
}
