/* study_exchange.c: `tandem-study exchange` and `tandem-study crossed`: whether noise of rounding costs a
 * training what as much noise of small batches costs it. docs/study/README.md has the design.
 *
 * A task trains in fp32 at batches B, 3/4·B and 1/2·B, with the same steps and rate. At B/(1 + x) the
 * gradient's variance is 1 + x times that at B. The final test loss of these three makes a curve over x, a
 * parabola. A plan's final test loss at batch B has a place x on it: its measured noise. Predicted is ρ =
 * Var d/Var g, estimated at five points of a training in fp32 and added over operators. Everything has the
 * same seeds; the interval is the bootstrap's over seeds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_rng.h>

#include "research/exchange.h"
#include "research/work_left.h"

static const char *const estimated_name[] = {[EXCHANGE_SUMMED] = "sensed",
                                             [EXCHANGE_WHOLE] = "sensed whole",
                                             [EXCHANGE_CURVED] = "sensed by curvature"};
enum { MAX_TASKS = 16 };
static const uint64_t bootstrap_seed = 1;

/* What is measured of a task, from one choice of seeds. */
typedef struct exchange_noise {
    double x[EXCHANGE_CELLS]; /* NaN: off the curve */
    double slope;             /* of the curve at B: nats for an added noise of 1 */
} exchange_noise;

typedef struct exchange_result {
    double (*loss)[EXCHANGE_SETTINGS]; /* [n_seed] */
    exchange_prediction predicted[EXCHANGE_N_ESTIMATED][EXCHANGE_CELLS];
    exchange_noise measured;
    exchange_noise *drawn; /* [n_bootstrap] */
} exchange_result;

typedef struct exchange_study {
    study_report *report;
    const exchange_plan *plan;
    int n_seed; /* of the plan's */
    study_jobs jobs;
    exchange_result result[MAX_TASKS];
    double *room; /* [n_bootstrap] */
} exchange_study;

static const char *casts_name(int cell)
{
    return exchange_cell_casts(cell) == EXCHANGE_ALL ? "all casts" : "gradients";
}

static void name_setting(char text[64], const exchange_task *task, int setting)
{
    if (setting < EXCHANGE_CURVE) {
        (void)snprintf(text, 64, "fp32 at %d/4 of the batch", 4 - setting);
        return;
    }
    const int cell = setting - EXCHANGE_CURVE;
    (void)snprintf(text, 64, "%s, s8 × %g", casts_name(cell), exchange_cell_scale(task, cell));
}

/* seed: −1 − how a cell is estimated, where it is no training's. */
static void name_record(char text[STUDY_RECORD_NAME], const exchange_task *task, int setting, int seed)
{
    char of[64];
    name_setting(of, task, setting);
    const int n = snprintf(text, STUDY_RECORD_NAME, "%s %s: %s: ", task->model,
                           tandem_optimizer_name(task->optimizer), of);
    if (seed < 0)
        (void)snprintf(text + n, (size_t)(STUDY_RECORD_NAME - n), "%s", estimated_name[-seed - 1]);
    else
        (void)snprintf(text + n, (size_t)(STUDY_RECORD_NAME - n), "%d", seed);
}

/* --- Running ---------------------------------------------------------------------------------------------
 * */

/* How many trainings of a setting are missing. */
static int count_missing(const exchange_study *s, const exchange_task *task, int setting)
{
    char name[STUDY_RECORD_NAME];
    double loss = 0;
    int n = 0;
    for (int k = 0; k < s->n_seed; k++) {
        name_record(name, task, setting, k);
        n += !study_records_find(&loss, 1, &s->jobs.records, name);
    }
    return n;
}

/* What is still to be run, before it starts. */
static tandem_status note_plan(exchange_study *s, tandem_error *error)
{
    const cli_options *options = s->jobs.options;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) {
        const exchange_task *task = &s->plan->task[t];
        const double before_s = s->jobs.left_s;
        int n = 0;
        for (int k = 0; k < EXCHANGE_SETTINGS && status == TANDEM_OK; k++) {
            const study_training training = exchange_training(task, k, options->seed);
            const int n_missing = count_missing(s, task, k);
            status = study_jobs_estimate(&s->jobs, &training, n_missing, error);
            n += n_missing;
        }
        if (status == TANDEM_OK)
            study_jobs_note(&s->jobs, task->model, task->optimizer, n, s->n_seed * EXCHANGE_SETTINGS,
                            before_s);
    }
    if (status == TANDEM_OK) work_left_note_all(options, s->jobs.left_s);
    return status;
}

static tandem_status predict_cell(exchange_study *s, int t, int c, exchange_estimated how,
                                  tandem_error *error)
{
    const exchange_task *task = &s->plan->task[t];
    exchange_prediction *of = &s->result[t].predicted[how][c];
    char name[STUDY_RECORD_NAME];
    double value[EXCHANGE_VALUES];
    name_record(name, task, EXCHANGE_CURVE + c, -1 - (int)how);
    int is_own = 0;
    if (study_jobs_find(value, EXCHANGE_VALUES, &is_own, &s->jobs, name)) {
        *of = (exchange_prediction){value[0], value[1], value[2], value[3], value[4], value[5], value[6]};
        return TANDEM_OK;
    }
    if (!is_own) return TANDEM_OK;
    const tandem_status status =
        exchange_predict(of, &s->jobs.lab, task, c, how, s->plan->n_replicate, error);
    if (status != TANDEM_OK) return status;
    return study_records_add(&s->jobs.records, name,
                             (const double[EXCHANGE_VALUES]){of->noise, of->noise_half, of->bias,
                                                             of->bias_half, of->last_noise, of->first_order,
                                                             of->first_order_half},
                             EXCHANGE_VALUES, error);
}

static tandem_status predict_task(exchange_study *s, int t, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < EXCHANGE_N_ESTIMATED * EXCHANGE_CELLS && status == TANDEM_OK; c++)
        status = predict_cell(s, t, c / EXCHANGE_N_ESTIMATED, (exchange_estimated)(c % EXCHANGE_N_ESTIMATED),
                              error);
    return status;
}

/* All settings of one seed of a task. */
static tandem_status train_seed(exchange_study *s, int t, int seed, tandem_error *error)
{
    const exchange_task *task = &s->plan->task[t];
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < EXCHANGE_SETTINGS && status == TANDEM_OK; k++) {
        char name[STUDY_RECORD_NAME];
        const study_training training = exchange_training(task, k, s->jobs.options->seed + (uint64_t)seed);
        name_record(name, task, k, seed);
        status = study_jobs_train(&s->result[t].loss[seed][k], 1, &s->jobs, name, &training, error);
    }
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

/* Where the parabola through (x[i], y[i]) has the value y, on its side of x[0]; NaN: nowhere. */
static double place_on_curve(const double x[EXCHANGE_CURVE], const double y[EXCHANGE_CURVE], double value,
                             double *slope)
{
    const double first = (y[1] - y[0]) / (x[1] - x[0]), second = (y[2] - y[1]) / (x[2] - x[1]);
    const double bend = (second - first) / (x[2] - x[0]), linear = first - bend * (x[1] + x[0]);
    const double above = value - y[0]; /* with x[0] = 0: linear·x + bend·x² */
    *slope = linear;
    return 2 * above / (linear + sqrt(linear * linear + 4 * bend * above));
}

static exchange_noise measure_noise(const double mean[EXCHANGE_SETTINGS])
{
    exchange_noise noise;
    double x[EXCHANGE_CURVE];
    for (int k = 0; k < EXCHANGE_CURVE; k++) x[k] = exchange_added_noise(k);
    for (int c = 0; c < EXCHANGE_CELLS; c++)
        noise.x[c] = place_on_curve(x, mean, mean[EXCHANGE_CURVE + c], &noise.slope);
    return noise;
}

/* random NULL: every seed once. */
static exchange_noise measure_seeds(const exchange_study *s, const exchange_result *result, gsl_rng *random)
{
    double mean[EXCHANGE_SETTINGS] = {0};
    for (int i = 0; i < s->n_seed; i++) {
        const unsigned long seed =
            random ? gsl_rng_uniform_int(random, (unsigned long)s->n_seed) : (unsigned long)i;
        for (int k = 0; k < EXCHANGE_SETTINGS; k++) mean[k] += result->loss[seed][k] / s->n_seed;
    }
    return measure_noise(mean);
}

/* What is off the curve counts as above it. */
static study_interval interval_of_cell(exchange_study *s, const exchange_result *result, int c)
{
    for (int i = 0; i < s->plan->n_bootstrap; i++) s->room[i] = result->drawn[i].x[c];
    return study_draws_interval(s->room, s->plan->n_bootstrap);
}

/* Some of the pairs of cells whose scales are 1 : 2. */
typedef struct exchange_pairs {
    int first_task, n_task, first_kind, n_kind;
} exchange_pairs;

/* The mean of log₂(x₂/x₁). draw < 0: measured. */
static double mean_exponent(const exchange_study *s, const exchange_pairs *pairs, int draw)
{
    double noise = 0;
    for (int i = 0; i < pairs->n_task * pairs->n_kind; i++) {
        const exchange_result *result = &s->result[pairs->first_task + i / pairs->n_kind];
        const double *x = draw < 0 ? result->measured.x : result->drawn[draw].x;
        const int c = 2 * (pairs->first_kind + i % pairs->n_kind);
        noise += log2(fmax(x[c + 1], 0) / fmax(x[c], 0));
    }
    return noise / pairs->n_task / pairs->n_kind;
}

static study_interval exponent_interval(exchange_study *s, const exchange_pairs *pairs)
{
    for (int i = 0; i < s->plan->n_bootstrap; i++) s->room[i] = mean_exponent(s, pairs, i);
    return study_draws_interval(s->room, s->plan->n_bootstrap);
}

static tandem_status measure_task(exchange_study *s, int t, tandem_error *error)
{
    exchange_result *result = &s->result[t];
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    result->drawn = calloc((size_t)s->plan->n_bootstrap, sizeof *result->drawn);
    tandem_status status =
        random && result->drawn ? TANDEM_OK : tandem_no_memory(error, "for the draws of a bootstrap");
    if (status == TANDEM_OK) {
        gsl_rng_set(random, bootstrap_seed + (unsigned long)t);
        result->measured = measure_seeds(s, result, NULL);
        for (int i = 0; i < s->plan->n_bootstrap; i++) result->drawn[i] = measure_seeds(s, result, random);
    }
    if (random) gsl_rng_free(random);
    return status;
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

/* NaN is not. */
static int is_within_factor(double ratio)
{
    return ratio <= study_margin.exchange_max_ratio && ratio >= 1 / study_margin.exchange_max_ratio;
}

static int is_narrow_interval(study_interval interval, double measured)
{
    return interval.high - interval.low <= 2 * study_margin.exchange_max_half_width * measured;
}

typedef struct exchange_ratios {
    double log_sum;
    int n, n_off, n_close, n_narrow; /* n_off: without a ratio, for their loss is not above fp32's */
} exchange_ratios;

static double mean_ratio(const exchange_ratios *of) { return exp(of->log_sum / (of->n - of->n_off)); }

static void add_ratio(exchange_ratios *ratios, double ratio, int is_close, int is_narrow)
{
    ratios->n++;
    ratios->n_off += !(ratio > 0);
    if (ratio > 0) ratios->log_sum += log(ratio);
    ratios->n_close += is_close;
    ratios->n_narrow += is_narrow;
}

static json_t *exchange_cell_json(const exchange_task *task, int c, const exchange_result *result,
                                  double measured, double ratio, study_interval interval, int is_narrow)
{
    json_t *object = json_pack("{s:s,s:s,s:s,s:f}", "model", task->model, "optimizer",
                               tandem_optimizer_name(task->optimizer), "casts", casts_name(c), "error_scale",
                               exchange_cell_scale(task, c));
    const exchange_prediction *predicted = &result->predicted[EXCHANGE_SUMMED][c],
                              *whole = &result->predicted[EXCHANGE_WHOLE][c];
    json_object_set_new(object, "predicted", cli_json_number(100 * predicted->noise));
    json_object_set_new(object, "predicted_half_width", cli_json_number(100 * predicted->noise_half));
    json_object_set_new(object, "predicted_at_last_age", cli_json_number(100 * predicted->last_noise));
    json_object_set_new(object, "whole", cli_json_number(100 * whole->noise));
    json_object_set_new(object, "whole_half_width", cli_json_number(100 * whole->noise_half));
    json_object_set_new(object, "first_order", cli_json_number(100 * predicted->first_order));
    json_object_set_new(object, "first_order_half_width", cli_json_number(100 * predicted->first_order_half));
    json_object_set_new(object, "first_order_whole", cli_json_number(100 * whole->first_order));
    json_object_set_new(object, "bias", cli_json_number(100 * predicted->bias));
    json_object_set_new(object, "bias_half_width", cli_json_number(100 * predicted->bias_half));
    json_object_set_new(object, "measured", cli_json_number(100 * measured));
    json_object_set_new(object, "measured_low", cli_json_number(100 * interval.low));
    json_object_set_new(object, "measured_high", cli_json_number(100 * interval.high));
    json_object_set_new(object, "ratio", ratio == ratio ? json_real(ratio) : json_null());
    json_object_set_new(object, "narrow", json_boolean(is_narrow));
    return object;
}

static void add_exchange_cell(exchange_study *s, int t, int c, exchange_ratios ratios[2])
{
    const exchange_task *task = &s->plan->task[t];
    const exchange_prediction *predicted = &s->result[t].predicted[EXCHANGE_SUMMED][c];
    const double measured = s->result[t].measured.x[c],
                 ratio = measured > 0 ? exchange_judged_noise(s->plan, predicted) / measured : NAN;
    const study_interval interval = interval_of_cell(s, &s->result[t], c);
    const int is_close = is_within_factor(ratio), is_narrow = is_narrow_interval(interval, measured);
    char of[64];
    name_setting(of, task, EXCHANGE_CURVE + c);
    add_ratio(&ratios[task->is_fitted], ratio, is_close, is_narrow);
    study_add_cell(s->report,
                   exchange_cell_json(task, c, &s->result[t], measured, ratio, interval, is_narrow),
                   is_close);
    (void)fprintf(s->report->text,
                  "| `%s` %s | %s | %.3g ± %.2g | %.3g | %.3g | %.3g (%.3g to %.3g) | %.2f | %.2g ± %.1g | "
                  "%s%s | %.2g ± %.1g |\n",
                  task->model, tandem_optimizer_name(task->optimizer), of, 100 * predicted->noise,
                  100 * predicted->noise_half, 100 * predicted->last_noise,
                  100 * s->result[t].predicted[EXCHANGE_WHOLE][c].noise, 100 * measured, 100 * interval.low,
                  100 * interval.high, ratio, 100 * predicted->bias, 100 * predicted->bias_half,
                  is_close ? "yes" : "NO", is_narrow ? "" : ", wide", 100 * predicted->first_order,
                  100 * predicted->first_order_half);
    study_figure_add(s->report, 100 * interval.low, 100 * measured, 100 * interval.high,
                     100 * exchange_judged_noise(s->plan, predicted), "%s %s: %s", task->model,
                     tandem_optimizer_name(task->optimizer), of);
}

/* One bar of all cells together. */
static void add_bar(exchange_study *s, const char *name, double value, study_interval interval, int is_met)
{
    json_t *object = json_pack("{s:o,s:b}", "value", cli_json_number(value), "met", is_met);
    (void)fprintf(s->report->text, "| %s | %.3g", name, value);
    if (interval.low < interval.high) {
        json_object_set_new(object, "low", cli_json_number(interval.low));
        json_object_set_new(object, "high", cli_json_number(interval.high));
        (void)fprintf(s->report->text, " (%.3g to %.3g)", interval.low, interval.high);
    }
    (void)fprintf(s->report->text, " | %s |\n", is_met ? "yes" : "NO");
    json_object_set_new(json_object_get(s->report->json, "bars"), name, object);
    s->report->n_failed += !is_met;
}

static void print_bars(exchange_study *s, const exchange_ratios ratios[2])
{
    static const study_interval none;
    const exchange_plan *plan = s->plan;
    const exchange_pairs pairs = {0, plan->n_task, 0, EXCHANGE_N_CASTS};
    exchange_ratios all = ratios[0];
    all.n += ratios[1].n;
    all.n_off += ratios[1].n_off;
    all.log_sum += ratios[1].log_sum;
    all.n_close += ratios[1].n_close;
    all.n_narrow += ratios[1].n_narrow;
    const double mean = mean_ratio(&all), factor = mean_ratio(&ratios[1]),
                 judged = mean_ratio(&ratios[0]) / factor, close = (double)all.n_close / all.n,
                 narrow = (double)all.n_narrow / all.n, exponent = mean_exponent(s, &pairs, -1);
    json_object_set_new(s->report->json, "bars", json_object());
    json_object_set_new(s->report->json, "off_curve", json_integer(all.n_off));
    if (all.n_off > 0)
        (void)fprintf(s->report->text,
                      "\n%d cells have no ratio: their loss, or what is predicted, is not above fp32's.\n",
                      all.n_off);
    (void)fputs("\n| all cells | value | met |\n|---|---|---|\n", s->report->text);
    add_bar(s, "geometric mean of predicted over measured", mean, none,
            mean >= study_margin.exchange_mean_low && mean <= study_margin.exchange_mean_high &&
                all.n_off == 0);
    add_bar(s, "share of cells within the factor", close, none, close >= study_margin.exchange_least_share);
    add_bar(s, "share of cells whose interval is narrow", narrow, none, narrow >= 1);
    add_bar(s, "exponent of the error scale", exponent, exponent_interval(s, &pairs),
            fabs(exponent - study_margin.exchange_exponent) <= study_margin.exchange_exponent_room);
    add_bar(s, "the mean on half of the tasks, over that on the others", judged, none,
            judged >= study_margin.exchange_mean_low && judged <= study_margin.exchange_mean_high);
}

/* Of some kinds of plans, the cells whose prediction lies between two shares. */
typedef struct exchange_selection {
    exchange_pairs pairs;
    double least, most;
} exchange_selection;

static exchange_ratios ratios_of_selection(exchange_study *s, const exchange_selection *of)
{
    exchange_ratios ratios = {0};
    for (int i = 0; i < 2 * of->pairs.n_task * of->pairs.n_kind; i++) {
        const exchange_result *result = &s->result[i / 2 / of->pairs.n_kind];
        const int c = 2 * of->pairs.first_kind + i % (2 * of->pairs.n_kind);
        const double x = result->measured.x[c],
                     noise = exchange_judged_noise(s->plan, &result->predicted[EXCHANGE_SUMMED][c]),
                     ratio = x > 0 ? noise / x : NAN;
        if (noise < of->least || noise > of->most) continue;
        add_ratio(&ratios, ratio, is_within_factor(ratio),
                  is_narrow_interval(interval_of_cell(s, result, c), x));
    }
    return ratios;
}

static void print_selection(exchange_study *s, const char *name, const char *note,
                            const exchange_selection *of)
{
    const exchange_ratios ratios = ratios_of_selection(s, of);
    json_t *const object =
        json_pack("{s:i,s:o,s:i,s:i}", "cells", ratios.n, "mean_ratio", cli_json_number(mean_ratio(&ratios)),
                  "close", ratios.n_close, "narrow", ratios.n_narrow);
    (void)fprintf(s->report->text, "| %s%s | %d | %.2f | %d | %d |", name, note, ratios.n,
                  mean_ratio(&ratios), ratios.n_close, ratios.n_narrow);
    if (of->most == INFINITY) { /* else pairs of cells may be torn */
        const study_interval interval = exponent_interval(s, &of->pairs);
        const double exponent = mean_exponent(s, &of->pairs, -1);
        (void)fprintf(s->report->text, " %.2f (%.2f to %.2f)", exponent, interval.low, interval.high);
        json_object_set_new(object, "exponent", cli_json_number(exponent));
        json_object_set_new(object, "exponent_low", cli_json_number(interval.low));
        json_object_set_new(object, "exponent_high", cli_json_number(interval.high));
    }
    (void)fputs(" |\n", s->report->text);
    json_object_set_new(s->report->json, name, object);
}

/* What was learned after the bars were fixed: it has no bar. */
static void print_first_order(exchange_study *s)
{
    json_t *of_all = json_array();
    (void)fprintf(
        s->report->text,
        "\n| task, with the first order | predicted / measured | within %.3g × | whole / measured | "
        "within | whole, by curvature / measured | within |\n|---|---|---|---|---|---|---|\n",
        study_margin.exchange_max_ratio);
    for (int t = 0; t < s->plan->n_task; t++) {
        const exchange_result *result = &s->result[t];
        exchange_ratios ratios[EXCHANGE_N_ESTIMATED] = {{0}};
        for (int c = 0; c < EXCHANGE_CELLS; c++)
            for (int k = 0; k < EXCHANGE_N_ESTIMATED; k++) {
                const exchange_prediction *of = &result->predicted[k][c];
                const double x = result->measured.x[c],
                             ratio = x > 0 ? (of->noise + of->first_order) / x : NAN;
                add_ratio(&ratios[k], ratio, is_within_factor(ratio), 0);
            }
        const exchange_task *task = &s->plan->task[t];
        json_t *object =
            json_pack("{s:s,s:s}", "model", task->model, "optimizer", tandem_optimizer_name(task->optimizer));
        (void)fprintf(s->report->text, "| `%s` %s", task->model, tandem_optimizer_name(task->optimizer));
        for (int k = 0; k < EXCHANGE_N_ESTIMATED; k++) {
            static const char *const mean_key[] = {"mean_ratio", "mean_ratio_whole", "mean_ratio_curved"},
                                     *const close_key[] = {"close", "close_whole", "close_curved"};
            (void)fprintf(s->report->text, " | %.2f | %d of %d", mean_ratio(&ratios[k]), ratios[k].n_close,
                          EXCHANGE_CELLS);
            json_object_set_new(object, mean_key[k], cli_json_number(mean_ratio(&ratios[k])));
            json_object_set_new(object, close_key[k], json_integer(ratios[k].n_close));
        }
        (void)fputs(" |\n", s->report->text);
        json_array_append_new(of_all, object);
    }
    json_object_set_new(s->report->json, "first_order", of_all);
}

static void print_kinds(exchange_study *s)
{
    const int n_task = s->plan->n_task;
    const exchange_selection in_range = {{0, n_task, 0, EXCHANGE_N_CASTS},
                                         study_margin.exchange_selected_least,
                                         study_margin.exchange_selected_most};
    char name[64];
    (void)fprintf(s->report->text,
                  "\n| plans | cells | geometric mean | within %.3g × | narrow | exponent |\n"
                  "|---|---|---|---|---|---|\n",
                  study_margin.exchange_max_ratio);
    for (int k = 0; k < EXCHANGE_N_CASTS; k++)
        print_selection(s, casts_name(2 * k), "",
                        &(exchange_selection){{0, n_task, k, 1}, -INFINITY, INFINITY});
    /* A cell is in it by the number that is judged: it is printed beside all cells, and never in their
     * place. */
    (void)snprintf(name, sizeof name, "predicted %.3g to %.3g %%", 100 * in_range.least, 100 * in_range.most);
    print_selection(s, name, s->report->margins.late[0] ? ": a range entered after the run" : "", &in_range);
}

static void print_curves(exchange_study *s)
{
    json_t *curves = json_array();
    (void)fputs("\n| curve | B | 3/4·B | 1/2·B | slope at B |\n|---|---|---|---|---|\n", s->report->text);
    for (int t = 0; t < s->plan->n_task; t++) {
        const exchange_task *task = &s->plan->task[t];
        double mean[EXCHANGE_SETTINGS] = {0};
        json_t *losses = json_array();
        (void)fprintf(s->report->text, "| `%s` %s", task->model, tandem_optimizer_name(task->optimizer));
        for (int k = 0; k < EXCHANGE_SETTINGS; k++) {
            for (int i = 0; i < s->n_seed; i++) mean[k] += s->result[t].loss[i][k] / s->n_seed;
            json_array_append_new(losses, cli_json_number(mean[k]));
            if (k < EXCHANGE_CURVE) (void)fprintf(s->report->text, " | %.4f", mean[k]);
        }
        (void)fprintf(s->report->text, " | %.4f |\n", s->result[t].measured.slope);
        json_array_append_new(curves, json_pack("{s:s,s:s,s:o}", "model", task->model, "optimizer",
                                                tandem_optimizer_name(task->optimizer), "losses", losses));
    }
    json_object_set_new(s->report->json, "curves", curves);
}

static void print_exchange_study(exchange_study *s)
{
    exchange_ratios ratios[2] = {{0}};
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fputs(s->plan->is_with_first_order
                    ? "# Noise with its first order, in the tasks of *exchange* with the other optimizer\n\n"
                      "predicted / measured: of *predicted* and *first order* together.\n"
                    : "# The exchange rate: noise of rounding as noise of a smaller batch\n\n",
                s->report->text);
    (void)fprintf(
        s->report->text,
        "*predicted*: ρ = Var d / Var g in percent, the mean over five ages; *late*: at 90 %% of the\n"
        "training; *whole*: as predicted, but with all operators rounded at once. *measured*: the added\n"
        "noise in percent at which fp32's curve over batches has the plan's test loss, with its 95 %%\n"
        "interval over %d seeds, of %d planned. *bias*: β in percent, predicted, no part of ρ. met: within\n"
        "a factor of %.3g; wide: the interval is wider than ± %.0f %%. *first order*: 2·Cov(g, d)/Var g\n"
        "+ 2β in percent, predicted, no part of ρ.\n\n"
        "| task | plan | predicted | late | whole | measured | predicted / measured | bias | met | "
        "first order |\n|---|---|---|---|---|---|---|---|---|---|\n",
        s->n_seed, s->plan->n_seed, study_margin.exchange_max_ratio,
        100 * study_margin.exchange_max_half_width);
    study_figure_begin(s->report, "The exchange rate: added noise of gradients", "percent", NAN);
    for (int t = 0; t < s->plan->n_task; t++)
        for (int c = 0; c < EXCHANGE_CELLS; c++) add_exchange_cell(s, t, c, ratios);
    print_curves(s);
    print_kinds(s);
    print_bars(s, ratios);
    print_first_order(s);
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_exchange_study(exchange_study *s, const cli_options *options, tandem_error *error)
{
    s->room = calloc((size_t)s->plan->n_bootstrap, sizeof *s->room);
    int is_allocated = s->room != NULL;
    for (int t = 0; t < s->plan->n_task && is_allocated; t++)
        is_allocated = (s->result[t].loss = calloc((size_t)s->n_seed, sizeof *s->result[t].loss)) != NULL;
    if (!is_allocated) return tandem_no_memory(error, "for the study's losses");
    s->report->margins = exchange_margins_of(s->plan);
    return study_jobs_open(&s->jobs, options, s->plan->part, exchange_plan_hash(s->plan), &s->report->margins,
                           error);
}

static void close_exchange_study(exchange_study *s)
{
    study_jobs_close(&s->jobs);
    for (int t = 0; t < MAX_TASKS; t++) {
        free(s->result[t].loss);
        free(s->result[t].drawn);
    }
    free(s->room);
}

/* Seed by seed, so that a study that stops early has as many of every cell. */
static tandem_status run_exchange_jobs(void *study, tandem_error *error)
{
    exchange_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) status = predict_task(s, t, error);
    for (int k = 0; k < s->n_seed && status == TANDEM_OK; k++)
        for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) status = train_seed(s, t, k, error);
    return status;
}

static tandem_status run_exchange_study(exchange_study *s, tandem_error *error)
{
    const cli_options *options = s->report->options;
    tandem_status status = study_is_silent(options) ? TANDEM_OK : note_plan(s, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s->jobs, run_exchange_jobs, s, error);
    if (status == TANDEM_OK) status = study_jobs_require_all(&s->jobs, error);
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) status = measure_task(s, t, error);
    return status;
}

static tandem_status study_exchange_plan(study_report *report, const exchange_plan *plan, tandem_error *error)
{
    cli_options options = *report->options;
    options.seed += plan->first_seed;
    exchange_study s = {.report = report, .plan = plan, .n_seed = study_seed_count(&options, plan->n_seed)};
    tandem_status status = open_exchange_study(&s, &options, error);
    if (status == TANDEM_OK) status = run_exchange_study(&s, error);
    if (status == TANDEM_OK) print_exchange_study(&s);
    close_exchange_study(&s);
    return status;
}

tandem_status study_exchange_rate(study_report *report, tandem_error *error)
{
    return study_exchange_plan(report, study_own.quick ? &exchange_plan_quick : &exchange_plan_full, error);
}

tandem_status study_crossed(study_report *report, tandem_error *error)
{
    return study_exchange_plan(report, study_own.quick ? &crossed_plan_quick : &crossed_plan_full, error);
}
