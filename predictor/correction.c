/* correction.c: what trials of other plans of a model say of a plan's prediction.
 *
 * A plan is taken to need f·e^ε times what is predicted for it: log f is that of the model and number
 * format, and normal over them; ε is a plan's own, and normal too. bench/deviations.py finds both
 * deviations, from 64 measured plans of ten models. A trial measures that with a normal error; one that
 * diverged, or whose loss is above all of its base's curve, says that the plan needs at least twice the
 * samples. The factor's distribution after the trials is summed over a grid of log f and ε (Bayes). */
#include <math.h>

#include "tandem/advanced/predictor.h"

#define DEVIATION_OF_MODELS 1.0
#define DEVIATION_OF_PLANS 0.5
#define NORMAL_95 1.959964

enum { N_FACTOR = 241, N_PLAN = 25 };

/* log f from −6 to 6. */
static double log_factor(int i) { return -6 + 12.0 * i / (N_FACTOR - 1); }

/* ε over three deviations, and its weight. */
static double plan_scatter(int k) { return DEVIATION_OF_PLANS * (6.0 * k / (N_PLAN - 1) - 3); }

static double plan_weight(int k)
{
    const double x = plan_scatter(k) / DEVIATION_OF_PLANS;
    return exp(-x * x / 2);
}

static int is_without_limit(const tandem_tried_plan *tried) { return tried->diverged || isinf(tried->extra); }

static int says_something(const tandem_tried_plan *tried)
{
    return tried->predicted > 0 &&
           (is_without_limit(tried) || (!isnan(tried->extra) && isfinite(tried->low)));
}

/* Of the trial's interval, whose upper end may have no limit; at least what the grid can tell apart. */
static double error_of(const tandem_tried_plan *tried)
{
    const double half = isfinite(tried->high) ? (tried->high - tried->low) / 2 : tried->extra - tried->low;
    return fmax(half / NORMAL_95, fmax(0.05 * fabs(tried->extra), 1e-9));
}

/* Up to a factor that f does not change. */
static double likelihood(const tandem_tried_plan *tried, double log_f)
{
    double sum = 0;
    if (is_without_limit(tried))
        return erfc(-(log_f + log(tried->predicted)) / (DEVIATION_OF_PLANS * sqrt(2))) / 2;
    for (int k = 0; k < N_PLAN; k++) {
        const double needs = tried->predicted * exp(log_f + plan_scatter(k)),
                     off = (tried->extra - needs) / error_of(tried);
        sum += plan_weight(k) * exp(-off * off / 2);
    }
    return sum;
}

/* log f where the part below is `part`; with the scatter of the plan that is asked about. */
static double factor_quantile(const double weight[N_FACTOR], double part)
{
    double low = -8, high = 8, all = 0;
    for (int i = 0; i < N_FACTOR; i++) all += weight[i];
    for (int step = 0; step < 40; step++) {
        const double middle = (low + high) / 2;
        double below = 0;
        for (int i = 0; i < N_FACTOR; i++)
            below += weight[i] * erfc((log_factor(i) - middle) / (DEVIATION_OF_PLANS * sqrt(2))) / 2;
        if (below < part * all)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

tandem_correction tandem_correction_find(const tandem_tried_plan *tried, int n)
{
    double weight[N_FACTOR], most = 0;
    tandem_correction to = {.n_trial = 0, .factor = NAN, .low = NAN, .high = NAN};
    for (int i = 0; i < N_FACTOR; i++) {
        const double x = log_factor(i) / DEVIATION_OF_MODELS;
        weight[i] = -x * x / 2; /* logarithms, as products of many trials would vanish */
    }
    for (int k = 0; k < n; k++) {
        if (!says_something(&tried[k])) continue;
        to.n_trial++;
        for (int i = 0; i < N_FACTOR; i++) weight[i] += log(likelihood(&tried[k], log_factor(i)) + 1e-300);
    }
    if (to.n_trial == 0) return to;
    for (int i = 0; i < N_FACTOR; i++) most = i == 0 ? weight[0] : fmax(most, weight[i]);
    for (int i = 0; i < N_FACTOR; i++) weight[i] = exp(weight[i] - most);
    to.factor = exp(factor_quantile(weight, 0.5));
    to.low = exp(factor_quantile(weight, 0.025));
    to.high = exp(factor_quantile(weight, 0.975));
    return to;
}

/* Both scatters are of logarithms, and so is that of sampling taken, to each side by itself. */
static double scatter_of(double ratio)
{
    const double sampling = ratio > 1 ? log(ratio) / NORMAL_95 : 0;
    return NORMAL_95 * sqrt(DEVIATION_OF_MODELS * DEVIATION_OF_MODELS +
                            DEVIATION_OF_PLANS * DEVIATION_OF_PLANS + sampling * sampling);
}

tandem_prediction tandem_prediction_interval(double value, double low, double high)
{
    if (!(value > 0)) return (tandem_prediction){low, high > 0 ? high * exp(scatter_of(1)) : high};
    return (tandem_prediction){low > 0 ? value * exp(-scatter_of(value / low)) : fmin(low, 0),
                               value * exp(scatter_of(high / value))};
}
