/* study_price.c: `tandem-study price`: whether a plan needs as many more samples as its sensitivity says.
 * docs/study/README.md has the design.
 *
 * fp32 trains with 4, 3, 2 and 1 fourths of the samples, and a plan with all of them, each at three rates.
 * The rate with the least mean test loss counts, on both sides. Between its lengths fp32's loss is linear in
 * the logarithm of the samples. Where it is as high as the plan's, fp32 has seen 1/(1 + x) of the samples: x
 * is what is measured. Seeds are common; the interval is the bootstrap's over seeds, with the rates chosen
 * again in each draw. */
#include <math.h>
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

typedef struct price_result {
    price_seed *loss; /* [n_seed] */
    price_prediction predicted[PRICE_N_ESTIMATED][PRICE_CELLS];
    int is_left_out; /* records of it are missing */
} price_result;

typedef struct price_study {
    study_report *report;
    const price_plan *plan;
    int n_seed; /* of the plan's */
    study_jobs jobs;
    price_result result[MAX_TASKS];
    double *room; /* [n_bootstrap] */
    int n_far;    /* cells whose prediction lies below half of the measured one */
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
            const study_training training = price_training(task, k, 1, options->seed);
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
                                          .is_default = how == PRICE_BY_DEFAULT};
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
    static const char *const estimated_name[] = {
        [PRICE_BY_DEFAULT] = "sensed by default", [PRICE_BY_SAMPLES] = "sensed"};
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

typedef struct price_measured {
    double value; /* more samples, as a share */
    study_interval interval;
} price_measured;

/* What has no place on the curve counts as above it. */
static tandem_status measure_price_task(price_measured of[PRICE_CELLS], price_study *s, int t,
                                        tandem_error *error)
{
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

/* --- The tables ------------------------------------------------------------------------------------------
 * */

static double rate_of(const price_study *s, int t, int setting)
{
    int seed[STUDY_MAX_SEEDS];
    for (int k = 0; k < s->n_seed; k++) seed[k] = k;
    return s->plan->task[t].training->rate *
           price_rates[tune_rate(&s->result[t], setting, seed, s->n_seed).rate];
}

static void add_price_cell(price_study *s, int t, int c, const price_measured *measured)
{
    const price_task *task = &s->plan->task[t];
    const price_prediction *predicted = &s->result[t].predicted[PRICE_BY_DEFAULT][c],
                           *sampled = &s->result[t].predicted[PRICE_BY_SAMPLES][c];
    const char *optimizer = tandem_optimizer_name(task->training->optimizer);
    const double ratio = measured->value > 0 ? predicted->value / measured->value : NAN,
                 sampled_ratio = measured->value > 0 ? sampled->value / measured->value : NAN;
    const int is_met = measured->value <= 0 || ratio >= study_margin.price_least_ratio;
    char of[64];
    name_price_setting(of, task, PRICE_LENGTHS + c);
    json_t *object =
        json_pack("{s:s,s:s,s:s}", "model", task->training->model, "optimizer", optimizer, "plan", of);
    json_object_set_new(object, "predicted", cli_json_number(100 * predicted->value));
    json_object_set_new(object, "predicted_low", cli_json_number(100 * predicted->low));
    json_object_set_new(object, "predicted_high", cli_json_number(100 * predicted->high));
    json_object_set_new(object, "by_samples", cli_json_number(100 * sampled->value));
    json_object_set_new(object, "noise", cli_json_number(100 * sampled->noise));
    json_object_set_new(object, "bias", cli_json_number(100 * sampled->bias));
    json_object_set_new(object, "measured", cli_json_number(100 * measured->value));
    json_object_set_new(object, "measured_low", cli_json_number(100 * measured->interval.low));
    json_object_set_new(object, "measured_high", cli_json_number(100 * measured->interval.high));
    json_object_set_new(object, "ratio", cli_json_number(ratio));
    json_object_set_new(object, "ratio_by_samples", cli_json_number(sampled_ratio));
    json_object_set_new(object, "rate", cli_json_number(rate_of(s, t, PRICE_LENGTHS + c)));
    study_add_cell(s->report, object, is_met);
    s->n_far += !is_met;
    (void)fprintf(s->report->text,
                  "| `%s` %s | %s | %.3g (%.3g to %.3g) | %.3g (%.3g to %.3g) | %.2g + %.2g | "
                  "%.3g (%.3g to %.3g) | %.2f | %.2f | %g | %s |\n",
                  task->training->model, optimizer, of, 100 * predicted->value, 100 * predicted->low,
                  100 * predicted->high, 100 * sampled->value, 100 * sampled->low, 100 * sampled->high,
                  100 * sampled->noise, 100 * fmax(sampled->bias, 0), 100 * measured->value,
                  100 * measured->interval.low, 100 * measured->interval.high, ratio, sampled_ratio,
                  rate_of(s, t, PRICE_LENGTHS + c), is_met ? "yes" : "NO");
    study_figure_add(s->report, 100 * measured->interval.low, 100 * measured->value,
                     100 * measured->interval.high, 100 * predicted->value, "%s %s: %s",
                     task->training->model, optimizer, of);
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
            json_array_append_new(rates, cli_json_number(rate_of(s, t, k)));
            (void)fprintf(s->report->text, " | %.4f at %g", of.loss, rate_of(s, t, k));
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
    json_object_set_new(s->report->json, "seeds", json_integer(s->n_seed));
    (void)fprintf(
        s->report->text,
        "# Extra samples of a plan to the same loss\n\n"
        "*predicted*: the sensitivity, in percent of samples, with its 95 %% interval, as `tandem\n"
        "sensitivity` senses it without options: by a probe, without bias. *by samples*: the same by %d\n"
        "replicates at %d ages, which is not the default: *noise + bias*. *measured*: x, where\n"
        "fp32 with 1/(1 + x) of the samples ends at the plan's test loss, in percent, with the 95 %%\n"
        "interval over %d seeds, of %d planned. Both sides have the best of three rates (*rate*: the\n"
        "plan's). Below 0: the plan ends lower than fp32. inf: above fp32's loss with a fourth of the\n"
        "samples. met: predicted is at least %g times measured; too high is the safe side.\n\n"
        "| task | plan | predicted | by samples | noise + bias | measured | predicted / measured | "
        "by samples / measured | rate | met |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n",
        s->plan->n_replicate, s->plan->n_point, s->n_seed, s->plan->n_seed, study_margin.price_least_ratio);
    study_figure_begin(s->report, "Extra samples of a plan to the same loss", "percent", NAN);
    for (int t = 0; t < s->plan->n_task && status == TANDEM_OK; t++) {
        if (s->result[t].is_left_out) continue;
        price_measured of[PRICE_CELLS] = {{0}};
        status = measure_price_task(of, s, t, error);
        for (int c = 0; c < PRICE_CELLS && status == TANDEM_OK; c++) add_price_cell(s, t, c, &of[c]);
    }
    if (status != TANDEM_OK) return status;
    print_price_curves(s);
    for (int t = 0; t < s->plan->n_task; t++)
        if (s->result[t].is_left_out) study_leave_out(s->report, s->plan->task[t].training);
    if (s->report->n_cell == 0) return study_jobs_require_all(&s->jobs, error);
    const double share = 1 - (double)s->n_far / s->report->n_cell;
    const int is_met = share >= study_margin.price_least_share;
    (void)fprintf(s->report->text, "\n%d of %d cells are met, %.0f %%: %s (%.0f %%).\n",
                  s->report->n_cell - s->n_far, s->report->n_cell, 100 * share, is_met ? "yes" : "NO",
                  100 * study_margin.price_least_share);
    json_object_set_new(s->report->json, "share_met", cli_json_number(share));
    s->report->n_failed = !is_met; /* the bar is of all cells together */
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
    study_margins_add(&s->report->margins, "seeds", s->plan->n_seed);
    study_margins_add(&s->report->margins, "draws", s->plan->n_bootstrap);
    study_margins_add(&s->report->margins, "judged_by_default_sensing", 1);
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
