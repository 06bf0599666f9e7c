/* study_price.c: `tandem-study price`: whether a plan needs as many more samples as its sensitivity says.
 * docs/study/README.md has the design.
 *
 * fp32 trains with 4, 3, 2 and 1 fourths of the samples, and a plan with all of them, each at five rates.
 * The rate with the least mean test loss counts, on both sides. Between its lengths fp32's loss is linear in
 * the logarithm of the samples. Where it is as high as the plan's, fp32 has seen 1/(1 + x) of the samples: x
 * is what is measured. Seeds are common; the interval is the bootstrap's over seeds, with the rates chosen
 * again in each draw. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include <gsl/gsl_rng.h>

#include "research/price.h"
#include "research/work_left.h"

enum { MAX_TASKS = 16, PRICE_VALUES = 5 /* of a prediction's record */ };
static const unsigned long price_bootstrap_seed = 1;

typedef double price_seed[PRICE_SETTINGS][PRICE_RATES]; /* test losses */

/* In samples, as a share of fp32's. */
typedef struct price_prediction {
    double value, low, high, noise, bias;
} price_prediction;

typedef struct price_measured {
    double value; /* more samples, as a share */
    study_interval interval;
} price_measured;

typedef struct price_result {
    price_seed *loss; /* [n_seed] */
    price_prediction predicted[PRICE_N_ESTIMATED][PRICE_CELLS];
    price_measured measured[PRICE_CELLS];
    int is_left_out; /* records of it are missing */
} price_result;

typedef struct price_study {
    study_report *report;
    const price_plan *plan;
    int n_seed; /* of the plan's */
    study_jobs jobs;
    price_result result[MAX_TASKS];
    double *room; /* [n_bootstrap] */
} price_study;

/* --- Running ---------------------------------------------------------------------------------------------
 * */

static void name_price_setting(char text[64], const price_task *task, int setting)
{
    if (setting < PRICE_LENGTHS) {
        (void)snprintf(text, 64, "fp32, %d/4 of the samples", 4 - setting);
        return;
    }
    const price_cell *cell = &price_cells[setting - PRICE_LENGTHS];
    const int n = snprintf(text, 64, "%s", cell->name);
    if (cell->times > 0)
        (void)snprintf(text + n, (size_t)(64 - n), " × %g", cell->times * task->error_scale[cell->casts]);
}

static void name_price_record(char text[STUDY_RECORD_NAME], const price_task *task, int setting, int rate,
                              int seed)
{
    char of[64];
    name_price_setting(of, task, setting);
    (void)snprintf(text, STUDY_RECORD_NAME, "%s %s: %s: rate × %g: %d", task->training->model,
                   tandem_optimizer_name(task->training->optimizer), of, price_rates[rate], seed);
}

static tandem_status note_price_plan(price_study *s, tandem_error *error)
{
    const cli_options *options = s->report->options;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const price_task *task = &s->plan->task[t];
        const double before_s = s->jobs.left_s;
        int n = 0;
        for (int k = 0; k < PRICE_SETTINGS && status == TANDEM_OK; k++) {
            const study_training training = price_training(task, k, PRICE_RATES / 2, options->seed);
            int n_missing = 0;
            for (int i = 0; i < PRICE_RATES * s->n_seed; i++) {
                char name[STUDY_RECORD_NAME];
                double value = 0;
                name_price_record(name, task, k, i % PRICE_RATES, i / PRICE_RATES);
                n_missing += !study_records_find(&value, 1, &s->jobs.records, name);
            }
            status = study_jobs_estimate(&s->jobs, &training, n_missing, error);
            n += n_missing;
        }
        if (status == TANDEM_OK)
            study_jobs_note(&s->jobs, task->training->model, task->training->optimizer, n,
                            s->n_seed * PRICE_SETTINGS * PRICE_RATES, before_s);
    }
    if (status == TANDEM_OK) work_left_note_all(options, s->jobs.left_s);
    return status;
}

/* All operators rounded, the sum over them: as plans are estimated. */
static tandem_status estimate_price(price_prediction *of, price_study *s, const price_task *task, int cell,
                                    price_estimated how, tandem_error *error)
{
    const study_training *in_fp32 = task->training;
    const tandem_precision precision = exchange_precision(price_cells[cell].casts);
    const study_rounding_plan rounding = {.precision = precision,
                                          .emulation = price_emulation(task, cell, 0),
                                          .n_point = s->plan->n_point,
                                          .n_replicate = s->plan->n_replicate,
                                          .is_whole = how == PRICE_AS_A_WHOLE,
                                          .is_default = how != PRICE_BY_SAMPLES};
    const tandem_sensitivity_step step = {.global_batch = in_fp32->batch, .n_micro = 1};
    tandem_sensitivity_estimate of_plan = {0};
    tandem_estimate estimate = {0};
    tandem_status status = study_estimate(&estimate, &s->jobs.lab, in_fp32, &rounding, error);
    double *share = status == TANDEM_OK ? study_shares_open(&estimate, &s->jobs.lab, precision, 1) : NULL;
    if (status == TANDEM_OK && !share) status = tandem_no_memory(error, "for the shares of a plan");
    if (status == TANDEM_OK) status = tandem_estimate_sensitivity(&of_plan, &estimate, share, &step, error);
    *of = (price_prediction){of_plan.value, of_plan.low, of_plan.high, of_plan.noise, of_plan.bias};
    free(share);
    tandem_estimate_close(&estimate);
    return status;
}

static tandem_status predict_price(price_study *s, int t, int cell, price_estimated how, tandem_error *error)
{
    static const char *const estimated_name[] = {[PRICE_AS_A_WHOLE] = "estimated as a whole",
                                                 [PRICE_BY_DEFAULT] = "estimated by default",
                                                 [PRICE_BY_SAMPLES] = "estimated by samples"};
    const price_task *task = &s->plan->task[t];
    price_prediction *of = &s->result[t].predicted[how][cell];
    char name[STUDY_RECORD_NAME], setting[64];
    double value[PRICE_VALUES];
    int is_own = 0;
    name_price_setting(setting, task, PRICE_LENGTHS + cell);
    (void)snprintf(name, sizeof name, "%s %s: %s: %s", task->training->model,
                   tandem_optimizer_name(task->training->optimizer), setting, estimated_name[how]);
    if (study_jobs_find(value, PRICE_VALUES, &is_own, &s->jobs, name)) {
        *of = (price_prediction){value[0], value[1], value[2], value[3], value[4]};
        return TANDEM_OK;
    }
    if (!is_own) return TANDEM_OK;
    const tandem_status status = estimate_price(of, s, task, cell, how, error);
    if (status != TANDEM_OK) return status;
    return study_records_add(&s->jobs.records, name,
                             (const double[PRICE_VALUES]){of->value, of->low, of->high, of->noise, of->bias},
                             PRICE_VALUES, error);
}

static tandem_status train_price(price_study *s, int t, int seed, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < PRICE_SETTINGS; k++)
        for (int r = 0; r < PRICE_RATES && status == TANDEM_OK; r++) {
            char name[STUDY_RECORD_NAME];
            const study_training training =
                price_training(&s->plan->task[t], k, r, s->report->options->seed + (uint64_t)seed);
            name_price_record(name, &s->plan->task[t], k, r, seed);
            status = study_jobs_train(&s->result[t].loss[seed][k][r], 1, &s->jobs, name, &training, error);
        }
    return status;
}

/* Task by task, so that a study that stops early has whole tasks. */
static tandem_status run_price_jobs(void *study, tandem_error *error)
{
    price_study *s = study;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task; t++) {
        const int n_missing = s->jobs.n_missing;
        for (int c = 0; c < PRICE_CELLS * PRICE_N_ESTIMATED && status == TANDEM_OK; c++)
            status =
                predict_price(s, t, c / PRICE_N_ESTIMATED, (price_estimated)(c % PRICE_N_ESTIMATED), error);
        for (int k = 0; k < s->n_seed && status == TANDEM_OK; k++) status = train_price(s, t, k, error);
        s->result[t].is_left_out = s->jobs.n_missing > n_missing;
    }
    return status;
}

/* --- Statistics ------------------------------------------------------------------------------------------
 * */

/* The rate with the least mean loss, and that loss; a rate at which some training diverged does not count. */
typedef struct tuned_loss {
    double loss;
    int rate;
} tuned_loss;

static tuned_loss tune_rate(const price_result *result, int setting, const int *seed, int n)
{
    tuned_loss best = {INFINITY, 0};
    for (int r = 0; r < PRICE_RATES; r++) {
        double mean = 0;
        for (int i = 0; i < n; i++) mean += result->loss[seed[i]][setting][r] / n;
        if (mean < best.loss) best = (tuned_loss){mean, r};
    }
    return best;
}

/* x where fp32's curve has the loss; the curve goes on below its first length as it begins. INFINITY: above
 * its last length. NaN: there is no such place. */
static double extra_samples_at(const double curve[PRICE_LENGTHS], double loss)
{
    double u[PRICE_LENGTHS];
    for (int k = 0; k < PRICE_LENGTHS; k++) u[k] = log1p(price_extra_samples(k));
    for (int k = 0; k + 1 < PRICE_LENGTHS; k++) {
        const double rise = curve[k + 1] - curve[k];
        if (loss > curve[k + 1] || (loss < curve[k] && k > 0)) continue;
        return rise > 0 ? expm1(u[k] + (u[k + 1] - u[k]) * (loss - curve[k]) / rise) : NAN;
    }
    return loss > curve[PRICE_LENGTHS - 1] ? INFINITY : NAN;
}

static void measure_prices(double extra[PRICE_CELLS], const price_result *result, const int *seed, int n)
{
    double curve[PRICE_LENGTHS];
    for (int k = 0; k < PRICE_LENGTHS; k++) curve[k] = tune_rate(result, k, seed, n).loss;
    for (int c = 0; c < PRICE_CELLS; c++)
        extra[c] = extra_samples_at(curve, tune_rate(result, PRICE_LENGTHS + c, seed, n).loss);
}

/* What has no place on the curve counts as above it. */
static tandem_status measure_price_task(price_study *s, int t, tandem_error *error)
{
    price_measured *of = s->result[t].measured;
    const int n_draw = s->plan->n_bootstrap;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    int *seed = calloc((size_t)s->n_seed, sizeof *seed);
    double(*drawn)[PRICE_CELLS] = calloc((size_t)n_draw, sizeof *drawn), all[PRICE_CELLS];
    const int is_allocated = random && seed && drawn;
    if (is_allocated) {
        gsl_rng_set(random, price_bootstrap_seed + (unsigned long)t);
        for (int k = 0; k < s->n_seed; k++) seed[k] = k;
        measure_prices(all, &s->result[t], seed, s->n_seed);
        for (int i = 0; i < n_draw; i++) {
            for (int k = 0; k < s->n_seed; k++)
                seed[k] = (int)gsl_rng_uniform_int(random, (unsigned long)s->n_seed);
            measure_prices(drawn[i], &s->result[t], seed, s->n_seed);
        }
        for (int c = 0; c < PRICE_CELLS; c++) {
            for (int i = 0; i < n_draw; i++) s->room[i] = drawn[i][c];
            of[c] = (price_measured){all[c], study_draws_interval(s->room, n_draw)};
        }
    }
    if (random) gsl_rng_free(random);
    free(seed);
    free(drawn);
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the draws of a bootstrap");
}

/* --- Predictions from other tasks ------------------------------------------------------------------------
 * */

/* What a cell is predicted to need, up to a factor that other tasks know: by an estimate, its noise alone, or
 * the same for all cells. */
typedef enum price_basis {
    BASIS_WHOLE,
    BASIS_DEFAULT,
    BASIS_SAMPLES,
    BASIS_NOISE,
    BASIS_CONSTANT,
    N_BASIS
} price_basis;
static const char *const basis_name[N_BASIS] = {"estimated as a whole", "by default, summed",
                                                "by samples, summed", "by samples, noise alone",
                                                "a constant"};

static double within_limits(double share)
{
    const double most = study_margin.price_ceiling;
    return share > study_margin.price_floor ? fmin(share, most)
           : isnan(share)                   ? most
                                            : study_margin.price_floor;
}

static double measured_share(const price_study *s, int t, int c)
{
    return within_limits(s->result[t].measured[c].value);
}

static double basis_of(const price_study *s, int t, int c, price_basis basis)
{
    const price_result *of = &s->result[t];
    switch (basis) {
    case BASIS_WHOLE: return within_limits(of->predicted[PRICE_AS_A_WHOLE][c].value);
    case BASIS_DEFAULT: return within_limits(of->predicted[PRICE_BY_DEFAULT][c].value);
    case BASIS_SAMPLES: return within_limits(of->predicted[PRICE_BY_SAMPLES][c].value);
    case BASIS_NOISE: return within_limits(of->predicted[PRICE_BY_SAMPLES][c].noise);
    case BASIS_CONSTANT:
    case N_BASIS: break;
    }
    return 1;
}

/* The interval of 95 % of a cell: as the cells of all other tasks scatter about what their basis says. */
typedef struct price_interval {
    double value, low, high;
} price_interval;

static price_interval interval_from_others(const price_study *s, int t, int c, price_basis basis)
{
    static const double normal_95 = 1.959964;
    double sum = 0, square = 0;
    int n = 0;
    for (int other = 0; other < s->plan->n_task; other++)
        for (int k = 0; k < PRICE_CELLS; k++) {
            if (other == t || s->result[other].is_left_out) continue;
            const double r = log(measured_share(s, other, k) / basis_of(s, other, k, basis));
            sum += r;
            square += r * r;
            n++;
        }
    const double mean = sum / n, deviation = sqrt(fmax(square - n * mean * mean, 0) / (n - 1)),
                 value = basis_of(s, t, c, basis) * exp(mean),
                 half = exp(normal_95 * deviation * sqrt(1 + 1.0 / n));
    return (price_interval){value, value / half, value * half};
}

static int is_in_interval(const price_interval *of, double share)
{
    return of->low <= share && share <= of->high;
}

/* --- The tables ------------------------------------------------------------------------------------------
 * */

/* The best rate of a setting; *is_edge: it lies at the end of the grid. */
static double rate_of(const price_study *s, int t, int setting, int *is_edge)
{
    int seed[STUDY_MAX_SEEDS];
    for (int k = 0; k < s->n_seed; k++) seed[k] = k;
    const int rate = tune_rate(&s->result[t], setting, seed, s->n_seed).rate;
    if (is_edge) *is_edge = rate == 0 || rate == PRICE_RATES - 1;
    return s->plan->task[t].training->rate * price_rates[rate];
}

static json_t *price_cell_json(const price_study *s, int t, int c, const char *plan)
{
    const price_task *task = &s->plan->task[t];
    const price_result *result = &s->result[t];
    const price_prediction *whole = &result->predicted[PRICE_AS_A_WHOLE][c];
    const price_interval interval = interval_from_others(s, t, c, BASIS_WHOLE);
    const double numbers[] = {result->measured[c].value,
                              result->measured[c].interval.low,
                              result->measured[c].interval.high,
                              whole->value,
                              whole->low,
                              whole->high,
                              interval.value,
                              interval.low,
                              interval.high,
                              result->predicted[PRICE_BY_DEFAULT][c].value,
                              result->predicted[PRICE_BY_SAMPLES][c].value,
                              result->predicted[PRICE_BY_SAMPLES][c].noise};
    static const char *const name[] = {"measured",       "measured_low",   "measured_high", "estimated",
                                       "estimated_low",  "estimated_high", "predicted",     "predicted_low",
                                       "predicted_high", "by_default",     "by_samples",    "noise"};
    json_t *object = json_pack("{s:s,s:s,s:s}", "model", task->training->model, "optimizer",
                               tandem_optimizer_name(task->training->optimizer), "plan", plan);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(object, name[i], cli_json_number(100 * numbers[i]));
    json_object_set_new(object, "rate", cli_json_number(rate_of(s, t, PRICE_LENGTHS + c, NULL)));
    return object;
}

static void add_price_cell(price_study *s, int t, int c)
{
    const price_task *task = &s->plan->task[t];
    const price_result *result = &s->result[t];
    const price_measured *measured = &result->measured[c];
    const price_prediction *whole = &result->predicted[PRICE_AS_A_WHOLE][c];
    const price_interval interval = interval_from_others(s, t, c, BASIS_WHOLE);
    const char *optimizer = tandem_optimizer_name(task->training->optimizer);
    const int is_inside = is_in_interval(&interval, measured_share(s, t, c));
    char plan[64];
    name_price_setting(plan, task, PRICE_LENGTHS + c);
    study_add_cell(s->report, price_cell_json(s, t, c, plan), is_inside);
    (void)fprintf(s->report->text,
                  "| `%s` %s | %s | %.3g (%.3g to %.3g) | %.3g (%.3g to %.3g) | %.3g (%.3g to %.3g) | %s | "
                  "%.3g | %.3g | %.3g | %g |\n",
                  task->training->model, optimizer, plan, 100 * measured->value, 100 * measured->interval.low,
                  100 * measured->interval.high, 100 * whole->value, 100 * whole->low, 100 * whole->high,
                  100 * interval.value, 100 * interval.low, 100 * interval.high, is_inside ? "yes" : "NO",
                  100 * result->predicted[PRICE_BY_DEFAULT][c].value,
                  100 * result->predicted[PRICE_BY_SAMPLES][c].value,
                  100 * result->predicted[PRICE_BY_SAMPLES][c].noise, rate_of(s, t, PRICE_LENGTHS + c, NULL));
    study_figure_add(s->report, 100 * measured->interval.low, 100 * measured->value,
                     100 * measured->interval.high, 100 * interval.value, "%s %s: %s", task->training->model,
                     optimizer, plan);
}

/* Of all cells, by a basis: the share of the intervals that hold, their median width, and the share of the
 * predictions from a trial of another plan of the task that are close. */
typedef struct price_quality {
    double inside, width, close;
} price_quality;

static price_quality quality_of(const price_study *s, price_basis basis)
{
    double width[MAX_TASKS * PRICE_CELLS] = {0};
    int n = 0, n_inside = 0, n_close = 0, n_pair = 0;
    for (int t = 0; t < s->plan->n_task; t++)
        for (int c = 0; c < PRICE_CELLS && !s->result[t].is_left_out; c++) {
            const price_interval interval = interval_from_others(s, t, c, basis);
            const double measured = measured_share(s, t, c);
            width[n++] = interval.high / interval.low;
            n_inside += is_in_interval(&interval, measured);
            for (int k = 0; k < PRICE_CELLS; k++) {
                if (k == c) continue;
                const double factor = measured_share(s, t, k) / basis_of(s, t, k, basis),
                             ratio = within_limits(basis_of(s, t, c, basis) * factor) / measured;
                n_pair++;
                n_close += fmax(ratio, 1 / ratio) <= study_margin.price_close_ratio;
            }
        }
    return (price_quality){(double)n_inside / n, tandem_median(width, (size_t)n), (double)n_close / n_pair};
}

/* Trainings whose best rate lies at the end of the grid, and tasks in which e2m1 and s4 have the measured
 * order. */
static void count_edges_and_orders(const price_study *s, int *n_edge, int *n_order, int *n_task)
{
    *n_edge = *n_order = *n_task = 0;
    for (int t = 0; t < s->plan->n_task; t++) {
        if (s->result[t].is_left_out) continue;
        for (int k = 0; k < PRICE_SETTINGS; k++) {
            int is_edge = 0;
            (void)rate_of(s, t, k, &is_edge);
            *n_edge += is_edge;
        }
        const price_result *result = &s->result[t];
        const double predicted = result->predicted[PRICE_AS_A_WHOLE][PRICE_E2M1].value -
                                 result->predicted[PRICE_AS_A_WHOLE][PRICE_S4].value,
                     measured = measured_share(s, t, PRICE_E2M1) - measured_share(s, t, PRICE_S4);
        *n_order += predicted * measured > 0;
        (*n_task)++;
    }
}

static void print_price_bar(const price_study *s, int is_met, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("- ", s->report->text);
    (void)vfprintf(s->report->text, format, arguments);
    va_end(arguments);
    (void)fprintf(s->report->text, ": %s\n", is_met ? "yes" : "NO");
    s->report->n_failed += !is_met;
}

static void print_price_bars(price_study *s)
{
    FILE *text = s->report->text;
    price_quality of[N_BASIS];
    int n_edge, n_order, n_task;
    json_t *bases = json_array();
    (void)fputs("\n| predicted by | intervals that hold | median width, upper over lower end | by a trial of "
                "another plan, within 2 times |\n|---|---|---|---|\n",
                text);
    for (int b = 0; b < N_BASIS; b++) {
        of[b] = quality_of(s, (price_basis)b);
        (void)fprintf(text, "| %s | %.0f %% | %.3g | %.0f %% |\n", basis_name[b], 100 * of[b].inside,
                      of[b].width, 100 * of[b].close);
        json_array_append_new(bases, json_pack("{s:s,s:f,s:f,s:f}", "basis", basis_name[b], "inside",
                                               of[b].inside, "width", of[b].width, "close", of[b].close));
    }
    count_edges_and_orders(s, &n_edge, &n_order, &n_task);
    const price_quality *judged = &of[BASIS_WHOLE];
    (void)fputs("\nJudged is what is estimated as a whole:\n\n", text);
    s->report->n_failed = 0; /* of bars; cells have none of their own */
    print_price_bar(s, judged->inside >= study_margin.price_least_inside,
                    "%.0f %% of %d intervals hold what is measured, of %.0f %% that are asked for",
                    100 * judged->inside, n_task * PRICE_CELLS, 100 * study_margin.price_least_inside);
    print_price_bar(s, judged->width <= study_margin.price_most_width,
                    "the median interval is %.3g times as high as low, at most %g", judged->width,
                    study_margin.price_most_width);
    print_price_bar(s, judged->close >= study_margin.price_least_close,
                    "by a trial of another plan %.0f %% are within %g times, of %.0f %%", 100 * judged->close,
                    study_margin.price_close_ratio, 100 * study_margin.price_least_close);
    print_price_bar(s, n_order == n_task, "e2m1 and s4 have the measured order in %d of %d tasks", n_order,
                    n_task);
    print_price_bar(s, n_edge <= (int)study_margin.price_most_at_edge,
                    "the best rate lies at the end of the grid in %d of %d settings", n_edge,
                    n_task * PRICE_SETTINGS);
    json_object_set_new(s->report->json, "bases", bases);
    json_object_set_new(s->report->json, "ordered", json_integer(n_order));
    json_object_set_new(s->report->json, "at_edge", json_integer(n_edge));
}

static void print_price_curves(price_study *s)
{
    json_t *curves = json_array();
    int seed[STUDY_MAX_SEEDS];
    for (int k = 0; k < s->n_seed; k++) seed[k] = k;
    (void)fputs("\n| fp32's least test loss with | all samples | 3/4 | 1/2 | 1/4 |\n|---|---|---|---|---|\n",
                s->report->text);
    for (int t = 0; t < s->plan->n_task; t++) {
        const study_training *training = s->plan->task[t].training;
        const char *optimizer = tandem_optimizer_name(training->optimizer);
        if (s->result[t].is_left_out) continue;
        json_t *losses = json_array(), *rates = json_array();
        (void)fprintf(s->report->text, "| `%s` %s", training->model, optimizer);
        for (int k = 0; k < PRICE_LENGTHS; k++) {
            const tuned_loss of = tune_rate(&s->result[t], k, seed, s->n_seed);
            json_array_append_new(losses, cli_json_number(of.loss));
            json_array_append_new(rates, cli_json_number(rate_of(s, t, k, NULL)));
            (void)fprintf(s->report->text, " | %.4f at %g", of.loss, rate_of(s, t, k, NULL));
        }
        (void)fputs(" |\n", s->report->text);
        json_array_append_new(curves, json_pack("{s:s,s:s,s:o,s:o}", "model", training->model, "optimizer",
                                                optimizer, "losses", losses, "rates", rates));
    }
    json_object_set_new(s->report->json, "curves", curves);
}

static tandem_status print_price_study(price_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int n_whole_task = 0;
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fprintf(
        s->report->text,
        "# Extra samples of a plan to the same loss\n\n"
        "*measured*: x, where fp32 with 1/(1 + x) of the samples ends at the plan's test loss, in percent,\n"
        "with the 95 %% interval over %d seeds, of %d planned. Both sides have the best of %d rates;\n"
        "*rate* is the plan's. Below 0: the plan ends lower than fp32. inf: above fp32's loss with a\n"
        "fourth of the samples.\n\n"
        "*estimated*: as `tandem sensitivity --plan` estimates a plan as a whole, with the interval of\n"
        "sampling. *predicted*: the same times a factor, with an interval of 95 %%, both from the cells of\n"
        "all other tasks; a cell needs from %g to %g %%. *by default*, *by samples*: sums over operators,\n"
        "by the probe, and by %d replicates at %d training points. *noise*: of the latter, without bias.\n\n"
        "| task | plan | measured | estimated | predicted | inside | by default | by samples | noise | rate "
        "|\n"
        "|---|---|---|---|---|---|---|---|---|---|\n",
        s->n_seed, s->plan->n_seed, PRICE_RATES, 100 * study_margin.price_floor,
        100 * study_margin.price_ceiling, s->plan->n_replicate, s->plan->n_point);
    study_figure_begin(s->report, "Extra samples of a plan to the same loss", "percent", NAN);
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) {
        if (s->result[t].is_left_out) continue;
        n_whole_task++;
        status = measure_price_task(s, t, error);
    }
    if (status == TANDEM_OK && n_whole_task < 2) return study_jobs_require_all(&s->jobs, error);
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++)
        for (int c = 0; c < PRICE_CELLS && !s->result[t].is_left_out; c++) add_price_cell(s, t, c);
    if (status != TANDEM_OK) return status;
    print_price_curves(s);
    for (int t = 0; t < s->plan->n_task; t++)
        if (s->result[t].is_left_out) study_leave_out(s->report, s->plan->task[t].training);
    print_price_bars(s);
    return TANDEM_OK;
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status open_price_study(price_study *s, const cli_options *options, tandem_error *error)
{
    s->room = calloc((size_t)s->plan->n_bootstrap, sizeof *s->room);
    int is_allocated = s->room != NULL;
    for (int t = 0; t < s->plan->n_task && is_allocated; t++)
        is_allocated = (s->result[t].loss = calloc((size_t)s->n_seed, sizeof *s->result[t].loss)) != NULL;
    if (!is_allocated) return tandem_no_memory(error, "for the study's losses");
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++)
        status = study_training_data_open(s->plan->task[t].training, error);
    if (status != TANDEM_OK) return status;
    study_margins_add(&s->report->margins, "seeds", s->plan->n_seed);
    study_margins_add(&s->report->margins, "draws", s->plan->n_bootstrap);
    return study_jobs_open(&s->jobs, options, "price", price_plan_hash(s->plan), &s->report->margins, error);
}

tandem_status study_price(study_report *report, tandem_error *error)
{
    const cli_options *options = report->options;
    price_study s = {.report = report, .plan = study_own.quick ? &price_plan_quick : &price_plan_full};
    s.n_seed = study_seed_count(options, s.plan->n_seed);
    tandem_status status = open_price_study(&s, options, error);
    if (status == TANDEM_OK && !study_is_silent(options)) status = note_price_plan(&s, error);
    if (status == TANDEM_OK) status = study_jobs_run(&s.jobs, run_price_jobs, &s, error);
    if (status == TANDEM_OK) status = print_price_study(&s, error);
    study_jobs_close(&s.jobs);
    for (int t = 0; t < MAX_TASKS; t++) free(s.result[t].loss);
    free(s.room);
    return status;
}
