/* trial.c: what pairs of trainings say of a plan.
 *
 * Losses. Each pair gives one difference, the mean of plan less base over the last quarter of the steps; the
 * samples of a step are the same in both, so that most of their noise falls out. Pairs are independent, so
 * Student's t over them has the interval.
 *
 * Extra samples. A plan that needs 1 + x as many samples is at step k where its base is at k/(1 + x). With
 * F the base's curve, x is where the mean of F(k/(1 + x)) − F(k) over the last quarter is the difference of
 * the losses. F is the base's loss, averaged over the pairs, smoothed over log k by local lines (Cleveland,
 * J. Am. Stat. Assoc. 74, 1979) and made monotone by pooling neighbours (Ayer et al., Ann. Math. Stat. 26,
 * 1955). Only a plan that is better than its base needs F beyond the last step: there it goes on with the
 * slope over log k that it has in the last three quarters. */
#include <math.h>
#include <stdlib.h>

#include "predictor/paired.h"
#include "tandem/trial.h"

enum { PLACES = 48 };

/* The base's loss, falling, at places that are equally spaced in the logarithm of the step, 1 to n_step. */
typedef struct base_curve {
    int64_t n_step;
    double loss[PLACES], distance; /* between places */
    double slope;                  /* per unit of log k, over the last three quarters */
} base_curve;

/* --- The base's curve ----------------------------------------------------------------------------------- */

/* Value at x = 0 and slope of a weighted line through points. */
typedef struct line_sums {
    double w, x, y, xx, xy;
} line_sums;

static void line_add(line_sums *s, double w, double x, double y)
{
    s->w += w;
    s->x += w * x;
    s->y += w * y;
    s->xx += w * x * x;
    s->xy += w * x * y;
}

static double line_slope(const line_sums *s)
{
    const double spread = s->w * s->xx - s->x * s->x;
    return spread > 1e-12 * s->w * s->w ? (s->w * s->xy - s->x * s->y) / spread : 0;
}

static double line_at_0(const line_sums *s) { return (s->y - line_slope(s) * s->x) / s->w; }

/* By a local line, with tricube weights of points within a factor of e. */
static double smooth_at(const double *loss, int64_t n_step, double log_step)
{
    line_sums sums = {0};
    for (int64_t k = 1; k <= n_step; k++) {
        const double x = log((double)k) - log_step, near = 1 - fabs(x * x * x);
        if (near > 0) line_add(&sums, near * near * near, x, loss[k - 1]);
    }
    return line_at_0(&sums);
}

/* Pools neighbours until none is above the one before it. */
static void make_falling(double *loss, int n)
{
    double mean[PLACES];
    int count[PLACES], n_pool = 0;
    for (int i = 0; i < n; i++) {
        mean[n_pool] = loss[i];
        count[n_pool++] = 1;
        while (n_pool > 1 && mean[n_pool - 1] > mean[n_pool - 2]) {
            const int a = n_pool - 2, b = n_pool - 1;
            mean[a] = (mean[a] * count[a] + mean[b] * count[b]) / (count[a] + count[b]);
            count[a] += count[b];
            n_pool--;
        }
    }
    for (int pool = 0, i = 0; pool < n_pool; pool++)
        for (int k = 0; k < count[pool]; k++) loss[i++] = mean[pool];
}

static double late_slope(const double *loss, int64_t n_step)
{
    line_sums sums = {0};
    for (int64_t k = n_step / 4 + 1; k <= n_step; k++) line_add(&sums, 1, log((double)k), loss[k - 1]);
    return line_slope(&sums);
}

static void fit_curve(base_curve *curve, const double *loss, int64_t n_step)
{
    curve->n_step = n_step;
    curve->distance = log((double)n_step) / (PLACES - 1);
    for (int i = 0; i < PLACES; i++) curve->loss[i] = smooth_at(loss, n_step, i * curve->distance);
    make_falling(curve->loss, PLACES);
    curve->slope = late_slope(loss, n_step);
}

static double curve_at(const base_curve *curve, double log_step)
{
    const double place = fmax(log_step / curve->distance, 0);
    const int before = place < PLACES - 1 ? (int)place : PLACES - 1;
    if (before == PLACES - 1) return curve->loss[before] + curve->slope * (place - before) * curve->distance;
    const double part = place - before;
    return (1 - part) * curve->loss[before] + part * curve->loss[before + 1];
}

/* The last quarter of the steps: the first of them, from 0. */
static int64_t window_begin(int64_t n_step) { return n_step - n_step / 4; }

/* How much higher the loss of the last quarter is where `late` = log(1 + x): at some steps, as the curve
 * is a line between places. */
static double rise_of(const base_curve *curve, double late)
{
    enum { STEPS = 16 };
    double sum = 0;
    const double begin = (double)window_begin(curve->n_step), steps = (double)curve->n_step - begin;
    for (int i = 0; i < STEPS; i++) {
        const double log_step = log(begin + steps * (i + 0.5) / STEPS);
        sum += curve_at(curve, log_step - late) - curve_at(curve, log_step);
    }
    return sum / STEPS;
}

/* The share of extra samples with that rise. */
static double extra_of(const base_curve *curve, double rise)
{
    double low = -2, high = log((double)curve->n_step);
    if (isnan(rise) || !(curve->slope < 0)) return NAN;
    if (rise == 0 || rise == -INFINITY) return rise;
    if (rise >= rise_of(curve, high)) return INFINITY;
    while (rise < rise_of(curve, low)) low *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (rise_of(curve, middle) < rise)
            low = middle;
        else
            high = middle;
    }
    return expm1((low + high) / 2);
}

/* --- Differences of pairs ------------------------------------------------------------------------------- */

static tandem_trial_interval interval_at(const paired_difference *of, double level)
{
    const paired_interval interval = paired_interval_of(of, level);
    if (isnan(of->mean)) return (tandem_trial_interval){NAN, NAN, NAN};
    if (isinf(of->mean)) return (tandem_trial_interval){of->mean, of->mean, of->mean};
    return (tandem_trial_interval){of->mean, interval.low, interval.high};
}

static tandem_trial_interval extra_interval(const base_curve *curve, tandem_trial_interval rise)
{
    return (tandem_trial_interval){extra_of(curve, rise.mean), extra_of(curve, rise.low),
                                   extra_of(curve, rise.high)};
}

static double window_mean(const double *loss, int64_t n_step)
{
    double sum = 0;
    const int64_t begin = window_begin(n_step);
    for (int64_t i = begin; i < n_step; i++) sum += loss[i];
    return sum / (double)(n_step - begin);
}

static int is_all_finite(const double *loss, int64_t n_step)
{
    for (int64_t i = 0; i < n_step; i++)
        if (!isfinite(loss[i])) return 0;
    return 1;
}

/* Differences of one quantity, one a pair. */
typedef struct trial_differences {
    double training[TANDEM_TRIAL_MOST_PAIRS], held_out[TANDEM_TRIAL_MOST_PAIRS],
        held_out_in_base[TANDEM_TRIAL_MOST_PAIRS];
} trial_differences;

static void subtract_pair(trial_differences *to, int i, const tandem_trial_pair *pair, int64_t n_step)
{
    const int diverged = !is_all_finite(pair->plan_loss, n_step);
    to->training[i] =
        diverged ? INFINITY : window_mean(pair->plan_loss, n_step) - window_mean(pair->base_loss, n_step);
    to->held_out[i] = diverged ? INFINITY : pair->plan_held_out - pair->base_held_out;
    to->held_out_in_base[i] = diverged ? INFINITY : pair->plan_held_out_in_base - pair->base_held_out;
}

static double *mean_base_loss(const tandem_trial_pair *pair, int n_pair, int64_t n_step)
{
    double *const mean = calloc((size_t)n_step, sizeof *mean);
    for (int i = 0; i < n_pair && mean; i++)
        for (int64_t k = 0; k < n_step; k++) mean[k] += pair[i].base_loss[k] / n_pair;
    return mean;
}

/* --- The answer ----------------------------------------------------------------------------------------- */

static tandem_trial_answer answer_of(const base_curve *curve, const paired_difference *of, double level,
                                     double at_most)
{
    if (isinf(of->mean)) return TANDEM_TRIAL_BEYOND;
    const tandem_trial_interval extra = extra_interval(curve, interval_at(of, level));
    if (extra.high <= at_most) return TANDEM_TRIAL_WITHIN;
    return extra.low > at_most ? TANDEM_TRIAL_BEYOND : TANDEM_TRIAL_UNDECIDED;
}

/* Pairs in all after which the same mean and deviation decide. */
static int count_needed(const base_curve *curve, const paired_difference *of,
                        const tandem_trial_question *question, double level)
{
    int low = of->n, high = TANDEM_TRIAL_MOST_PAIRS + 1; /* too few; enough, or more than most */
    while (high - low > 1) {
        paired_difference later = *of;
        later.n = low + (high - low) / 2;
        later.error = of->deviation / sqrt(later.n);
        if (answer_of(curve, &later, level, question->at_most) != TANDEM_TRIAL_UNDECIDED)
            high = later.n;
        else
            low = later.n;
    }
    return high > TANDEM_TRIAL_MOST_PAIRS ? -1 : high;
}

static void answer(tandem_trial_result *out, const base_curve *curve, const paired_difference *of,
                   const tandem_trial_question *question)
{
    const double level = 1 - 0.05 / (question->n_look > 0 ? question->n_look : 1);
    if (isnan(question->at_most)) return;
    if (of->n >= TANDEM_TRIAL_LEAST_PAIRS || isinf(of->mean))
        out->answer = answer_of(curve, of, level, question->at_most);
    if (out->answer != TANDEM_TRIAL_UNDECIDED) return;
    out->pairs_needed = of->n < 2 || isnan(out->extra.mean) ? -1 : count_needed(curve, of, question, level);
}

static tandem_status check_pairs(const tandem_trial_pair *pair, int n_pair,
                                 const tandem_trial_question *question, tandem_error *error)
{
    if (n_pair < 1 || n_pair > TANDEM_TRIAL_MOST_PAIRS)
        return tandem_error_set(error, TANDEM_USAGE, "a trial of %d pairs: it takes 1 to %d", n_pair,
                                TANDEM_TRIAL_MOST_PAIRS);
    if (question->n_step < TANDEM_TRIAL_LEAST_STEPS)
        return tandem_error_set(error, TANDEM_USAGE, "a trial of %lld steps: it takes %d or more",
                                (long long)question->n_step, TANDEM_TRIAL_LEAST_STEPS);
    for (int i = 0; i < n_pair; i++)
        if (!is_all_finite(pair[i].base_loss, question->n_step))
            return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED,
                                    "the base itself diverges in pair %d: its loss is not finite. Lower the "
                                    "learning rate",
                                    i + 1);
    return TANDEM_OK;
}

tandem_status tandem_trial_conclude(tandem_trial_result *result, const tandem_trial_pair *pair, int n_pair,
                                    const tandem_trial_question *question, tandem_error *error)
{
    const int64_t n_step = question->n_step;
    trial_differences differences;
    base_curve curve;
    const tandem_status status = check_pairs(pair, n_pair, question, error);
    if (status != TANDEM_OK) return status;
    double *const base = mean_base_loss(pair, n_pair, n_step);
    if (!base) return tandem_no_memory(error, "for a curve of %lld steps", (long long)n_step);
    fit_curve(&curve, base, n_step);
    tandem_trial_result out = {.n_pair = n_pair, .base_loss = window_mean(base, n_step)};
    free(base);
    for (int i = 0; i < n_pair; i++) {
        subtract_pair(&differences, i, &pair[i], n_step);
        out.n_diverged += isinf(differences.training[i]);
    }
    const paired_difference training = paired_difference_of(differences.training, n_pair),
                            held_out = paired_difference_of(differences.held_out, n_pair),
                            in_base = paired_difference_of(differences.held_out_in_base, n_pair);
    out.training = interval_at(&training, 0.95);
    out.held_out = interval_at(&held_out, 0.95);
    out.held_out_in_base = interval_at(&in_base, 0.95);
    out.extra = extra_interval(&curve, out.training);
    answer(&out, &curve, &training, question);
    *result = out;
    return TANDEM_OK;
}

const char *tandem_trial_answer_name(tandem_trial_answer answer)
{
    static const char *const name[TANDEM_N_TRIAL_ANSWER] = {"undecided", "within", "beyond"};
    return (unsigned)answer < TANDEM_N_TRIAL_ANSWER ? name[answer] : "?";
}
