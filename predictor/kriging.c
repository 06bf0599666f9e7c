/* kriging.c: what rows near to a task took, about what the form gives: Gaussian process regression over the
 * nearest of them (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2).
 *
 *   r = kᵀ α,   α = (K + N)⁻¹ residuals,   K = exp(−distance / length),   N = noise / (weight · trust)
 *
 * k is as K, of the task to the rows. Trust is first 1, then that of Cauchy's distribution,
 *
 *   trust = 1 / (1 + (e / agreement)²),   e = α / diag (K + N)⁻¹
 *
 * where e is a row's residual about what the others give (equation 5.12): a row of another kernel than its
 * neighbours' says little. Unlike a mean over rows (nearby.c), this follows trends, and rows beside one
 * another count as one. Far from all rows r falls to 0.
 *
 * Where residuals also share a part of variance `shared`, K is shared + exp(−distance / length): r falls to
 * what the rows have in common. What they leave unknown is of variance 1 + shared − kᵀ (K + N)⁻¹ k (equation
 * 2.26). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "predictor/form.h"

enum { MOST = TANDEM_MAX_KRIGED };
static const double found = 0.05; /* trust that changes less is found */

/* Of matrices the upper half: row i from column i on. All sums run along rows. */
typedef struct kriging_system {
    int n;
    double kernel[MOST][MOST], factor[MOST][MOST]; /* U of K + N = Uᵀ U */
    double inverse[MOST][MOST];                    /* of U */
    double trust[MOST], alpha[MOST], left_out[MOST];
} kriging_system;

static double covariance(const float *a, const float *b, const tandem_kriging_rule *rule)
{
    float square = 0;
    for (int k = 0; k < TANDEM_N_SHAPE; k++) square += (a[k] - b[k]) * (a[k] - b[k]);
    return rule->shared + exp(-sqrt((double)square) / rule->length);
}

/* Cholesky's method. */
static void factor(kriging_system *s, const tandem_kriged *rows, double noise)
{
    for (int i = 0; i < s->n; i++) {
        double *const row = s->factor[i];
        memcpy(&row[i], &s->kernel[i][i], (size_t)(s->n - i) * sizeof *row);
        row[i] += noise / (rows[i].weight * s->trust[i]);
        for (int k = 0; k < i; k++) {
            const double *const above = s->factor[k], times = above[i];
            for (int j = i; j < s->n; j++) row[j] -= times * above[j];
        }
        const double scale = 1 / sqrt(row[i]);
        for (int j = i; j < s->n; j++) row[j] *= scale;
    }
}

static void invert_factor(kriging_system *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        double *const row = s->inverse[i];
        const double scale = 1 / s->factor[i][i];
        memset(row, 0, sizeof s->inverse[i]);
        for (int k = i + 1; k < s->n; k++) {
            const double *const below = s->inverse[k], times = s->factor[i][k] * scale;
            for (int j = k; j < s->n; j++) row[j] -= times * below[j];
        }
        row[i] = scale;
    }
}

/* α, and each row's residual about the others. */
static void solve(kriging_system *s, const tandem_kriged *rows, double noise)
{
    double half[MOST] = {0};
    factor(s, rows, noise);
    invert_factor(s);
    for (int i = 0; i < s->n; i++)
        for (int j = i; j < s->n; j++) half[j] += s->inverse[i][j] * rows[i].residual;
    for (int i = 0; i < s->n; i++) {
        double alpha = 0, diagonal = 0;
        for (int j = i; j < s->n; j++) {
            alpha += s->inverse[i][j] * half[j];
            diagonal += s->inverse[i][j] * s->inverse[i][j];
        }
        s->alpha[i] = alpha, s->left_out[i] = alpha / diagonal;
    }
}

/* Returns the most that a row's trust changed. */
static double find_trust(kriging_system *s, const tandem_kriged *rows)
{
    double most = 0;
    for (int i = 0; i < s->n; i++) {
        const double apart = s->left_out[i] / rows[i].agreement, before = s->trust[i];
        s->trust[i] = 1 / (1 + apart * apart);
        most = fmax(most, fabs(s->trust[i] - before));
    }
    return most;
}

/* (K + N)⁻¹ = U⁻¹ U⁻ᵀ. */
static double explained_variance(const kriging_system *s, const double *to_rows)
{
    double half[MOST] = {0}, sum = 0;
    for (int i = 0; i < s->n; i++)
        for (int j = i; j < s->n; j++) half[j] += s->inverse[i][j] * to_rows[i];
    for (int j = 0; j < s->n; j++) sum += half[j] * half[j];
    return sum;
}

double tandem_kriging_residual(double *unknown, const tandem_kriged *rows, int n,
                               const tandem_kriging_rule *rule, const float at[TANDEM_N_SHAPE])
{
    kriging_system s;
    double residual = 0, to_rows[MOST] = {0};
    assert(n >= 0 && n <= MOST);
    s.n = n;
    for (int i = 0; i < n; i++) {
        s.trust[i] = 1;
        s.kernel[i][i] = 1 + rule->shared;
        for (int j = i + 1; j < n; j++) s.kernel[i][j] = covariance(rows[i].shape, rows[j].shape, rule);
    }
    solve(&s, rows, rule->noise);
    for (int times = 0; times < rule->n_trust && find_trust(&s, rows) > found; times++)
        solve(&s, rows, rule->noise);
    for (int i = 0; i < n; i++) {
        to_rows[i] = covariance(rows[i].shape, at, rule);
        residual += s.alpha[i] * to_rows[i];
    }
    if (unknown) *unknown = fmax(0, 1 + rule->shared - explained_variance(&s, to_rows));
    return residual;
}
