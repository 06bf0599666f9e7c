/* variances.c: what rounding adds to an operator's operands, from their statistics. */
#include "research/method/method.h"

static double per_element(double square, double n) { return n > 0 ? square / n : 0; }

rank_variances rank_variances_of(const rank_input *input, int k)
{
    const tandem_statistics *s = &input->statistics[input->op[k]];
    const tandem_precision_row *row = tandem_precision_get(input->precision);
    const double rows = (double)s->rows;
    return (rank_variances){
        tandem_rounding_variance(row->forward, s->x_amax, per_element(s->x_square, rows * (double)s->k)),
        tandem_rounding_variance(row->forward, s->w_amax, per_element(s->w_square, (double)s->w_elements)),
        tandem_rounding_variance(row->wgrad, s->g_amax, per_element(s->g_square, rows * (double)s->columns))};
}
