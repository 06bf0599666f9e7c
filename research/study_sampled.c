/* study_sampled.c: `tandem-study sampled` and `tandem-study batch`: the noise that a few replicates predict
 * (predictor/sampled.c), beside that of many other replicates, with other batches and draws, at the same
 * weights. For `batch`, those have another batch, to which the prediction is converted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/estimate/estimate.h"
#include "base/hash.h"
#include "research/trainings.h"
#include "research/study_runs.h"
#include "research/work_left.h"
#include "tandem/advanced/predictor.h"

enum { MAX_MODELS = 4, MAX_GROUPS = 16, TRAINED_STEPS = 400 };

typedef struct sampled_scope {
    const char *model;
    int64_t batch, measured_batch; /* estimated for the prediction, and measured; trained at the first */
    int64_t point[2];
    int n_point, n_predicted, n_measured; /* replicates */
    int n_rank;                           /* that have the measured batch each; 0: no rank but this one */
    /* > 0: this many predictions, n_predicted replicates each, whose samples together are those that are
     * measured: common random numbers. 0: one, of other samples. */
    int n_group;
    uint64_t first_seed; /* added to that of the command line */
} sampled_scope;

/* Of a noise. Parts are those of a precision that draws: its roundings of samples, and those of a weight. */
typedef enum sampled_part { PART_NOISE, PART_SAMPLES, PART_WEIGHTS, N_PARTS } sampled_part;

typedef struct sampled_tally {
    double *ratio;                    /* [n], predicted over measured */
    int n, n_close, n_inside, n_lost; /* n_lost: the measured interval holds 0 */
} sampled_tally;

/* Rows of margins.def: those of `sampled`, or of `batch`. */
typedef struct ratio_margins {
    double max_ratio, median_low, median_high, least_close, inside_low, inside_high;
} ratio_margins;

typedef struct sampled_study {
    study_report *report;
    const sampled_scope *scope;
    study_records *records;
    const tandem_graph *graph;
    tandem_estimate predicted[MAX_GROUPS], measured;
    double *share, *micro_batch; /* [cells]; the latter of one rank that is measured */
    sampled_tally tally[N_PARTS];
    ratio_margins margins;
} sampled_study;

tandem_estimate study_estimate_at_point(const tandem_estimate *estimate, int a)
{
    const int n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    tandem_estimate one = *estimate;
    one.n_point = 1;
    one.gradient += (size_t)a * (size_t)estimate->n_replicate;
    one.error += (size_t)a * (size_t)n_cell * (size_t)estimate->n_replicate;
    return one;
}

/* Some replicates of an estimate, of neighbouring batches. */
typedef struct sampled_replicates {
    int first, n;
} sampled_replicates;

/* The estimate of a cell's part at a training point, without some replicates. */
static tandem_status estimate_part(tandem_sensitivity_estimate *to, sampled_study *s,
                                   const tandem_estimate *estimate, int a, int cell, sampled_part part,
                                   sampled_replicates without, tandem_error *error)
{
    const tandem_sensitivity_step step = {
        .global_batch = s->measured.batch, .n_micro = 1, .micro_batch = s->micro_batch};
    tandem_estimate one = study_estimate_at_point(estimate, a);
    const tandem_estimated_error *of = tandem_estimate_errors(&one, 0, cell);
    tandem_estimated_gradient gradient[TANDEM_MAX_REPLICATE];
    tandem_estimated_error room[TANDEM_MAX_REPLICATE];
    int n = 0;
    for (int r = 0; r < one.n_replicate; r++) {
        if (r >= without.first && r < without.first + without.n) continue;
        gradient[n] = one.gradient[r];
        room[n] = of[r];
        if (part == PART_SAMPLES) room[n].mean_square = of[r].shared;
        if (part == PART_WEIGHTS) room[n].total = room[n].wide_total = of[r].shared;
        n++;
    }
    one.n_replicate = n;
    one.gradient = gradient;
    one.error = room - (size_t)cell * (size_t)n;
    s->share[cell] = 1;
    const tandem_status status = tandem_estimate_sensitivity(to, &one, s->share, &step, error);
    s->share[cell] = 0;
    return status;
}

/* Its numbers are those of a record, which keeps what is not finite as NaN. */
typedef struct sampled_ratio {
    double predicted, measured, measured_half; /* noises */
    double bias, bias_half;
    double ratio, factor; /* its interval reaches up and down by the factor */
} sampled_ratio;
enum { VALUES_OF_RATIO = sizeof(sampled_ratio) / sizeof(double) };

static int is_ratio_close(const sampled_study *s, const sampled_ratio *of)
{
    return of->ratio <= s->margins.max_ratio && of->ratio >= 1 / s->margins.max_ratio;
}

static int is_ratio_inside(const sampled_ratio *of)
{
    return of->ratio <= of->factor && of->ratio >= 1 / of->factor;
}

static int count_groups(const sampled_scope *scope) { return scope->n_group > 0 ? scope->n_group : 1; }

/* The factor where predictions and measurement have samples in common: the jackknife over groups of samples,
 * of the logarithm. */
static tandem_status set_common_factor(sampled_ratio *made, sampled_study *s, int a, int cell,
                                       sampled_part part, const double *predicted, tandem_error *error)
{
    const int n = s->scope->n_group, n_left = s->measured.n_replicate / n;
    double of[MAX_GROUPS] = {0};
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        tandem_sensitivity_estimate measured = {0};
        status = estimate_part(&measured, s, &s->measured, a, cell, part,
                               (sampled_replicates){k * n_left, n_left}, error);
        of[k] = log((n * made->predicted - predicted[k]) / (n - 1) / measured.noise);
    }
    made->factor = exp(tandem_jackknife_half(of, n));
    return status;
}

static tandem_status compare_part(sampled_ratio *made, sampled_study *s, int a, int cell, sampled_part part,
                                  tandem_error *error)
{
    static const sampled_replicates none;
    const int n_group = count_groups(s->scope);
    double predicted[MAX_GROUPS] = {0}, sum = 0;
    tandem_sensitivity_estimate p = {0}, m = {0};
    tandem_status status = estimate_part(&m, s, &s->measured, a, cell, part, none, error);
    for (int k = 0; k < n_group && status == TANDEM_OK; k++) {
        status = estimate_part(&p, s, &s->predicted[k], a, cell, part, none, error);
        predicted[k] = p.noise;
        sum += p.noise;
    }
    if (status != TANDEM_OK) return status;
    p.noise = sum / n_group;
    /* of two positive numbers: the interval is that of the logarithm */
    *made = (sampled_ratio){.predicted = p.noise,
                            .measured = m.noise,
                            .measured_half = m.noise_half,
                            .bias = m.bias,
                            .bias_half = m.bias_half,
                            .ratio = p.noise / m.noise,
                            .factor = exp(hypot(p.noise_half / p.noise, m.noise_half / m.noise))};
    return n_group > 1 ? set_common_factor(made, s, a, cell, part, predicted, error) : TANDEM_OK;
}

static void count_ratio(const sampled_study *s, sampled_tally *tally, const sampled_ratio *of)
{
    tally->ratio[tally->n++] = of->ratio;
    tally->n_close += is_ratio_close(s, of);
    tally->n_inside += is_ratio_inside(of);
}

static const char *name_met(const sampled_study *s, const sampled_ratio *of)
{
    if (is_ratio_close(s, of)) return is_ratio_inside(of) ? "yes" : "close";
    return is_ratio_inside(of) ? "inside" : "NO";
}

/* The two parts of a precision that draws: their columns, and whether both are met. */
static void add_cell_parts(sampled_study *s, const sampled_ratio ratio[N_PARTS], tandem_precision precision,
                           int *is_met, json_t *object)
{
    static const char *const names[N_PARTS] = {"", "samples_ratio", "weights_ratio"};
    const int is_drawn = tandem_precision_draws_weights(precision);
    for (int part = PART_SAMPLES; part < N_PARTS; part++) {
        const sampled_ratio *of = &ratio[part];
        const int is_known = is_drawn && of->predicted > 0 && of->measured > of->measured_half;
        if (is_known) {
            count_ratio(s, &s->tally[part], of);
            *is_met = *is_met && (is_ratio_close(s, of) || is_ratio_inside(of));
            (void)fprintf(s->report->text, "%.2f (× %.2f) | ", of->ratio, of->factor);
        } else {
            s->tally[part].n_lost += is_drawn;
            (void)fprintf(s->report->text, "%s | ", is_drawn ? "?" : "");
        }
        json_object_set_new(object, names[part], cli_json_number(is_known ? of->ratio : NAN));
    }
}

static void add_sampled_cell(sampled_study *s, int a, int op, tandem_precision precision,
                             const sampled_ratio ratio[N_PARTS])
{
    const sampled_ratio *of = &ratio[PART_NOISE];
    count_ratio(s, &s->tally[PART_NOISE], of);
    const char *name = s->graph->op[op].name, *precision_name = tandem_precision_get(precision)->name;
    json_t *object = json_pack("{s:s,s:I,s:s,s:s}", "model", s->scope->model, "age",
                               (json_int_t)s->scope->point[a], "operator", name, "precision", precision_name);
    json_object_set_new(object, "measured", cli_json_number(100 * of->measured));
    json_object_set_new(object, "predicted", cli_json_number(100 * of->predicted));
    json_object_set_new(object, "ratio", cli_json_number(of->ratio));
    json_object_set_new(object, "factor", cli_json_number(of->factor));
    json_object_set_new(object, "bias", cli_json_number(100 * of->bias));
    json_object_set_new(object, "bias_half_width", cli_json_number(100 * of->bias_half));
    (void)fprintf(s->report->text, "| %lld | %s | %s | %.3g | %.3g | %.2f (× %.2f) | ",
                  (long long)s->scope->point[a], name, precision_name, 100 * of->measured,
                  100 * of->predicted, of->ratio, of->factor);
    int is_met = is_ratio_close(s, of) || is_ratio_inside(of);
    if (s->scope->n_rank > 0) add_cell_parts(s, ratio, precision, &is_met, object);
    study_add_cell(s->report, object, is_met);
    (void)fprintf(s->report->text, "%.1g ± %.1g | %s |\n", 100 * of->bias, 100 * of->bias_half,
                  name_met(s, of));
}

/* Of prediction k, or for k = count_groups() of what is measured. Batches in common are the first after the
 * training. While all lie in one pass over the data, batch b of a global batch of n has the samples
 * n·b … n·(b + 1) − 1 of its order. */
static estimate_request request_of_group(const sampled_scope *scope, int k)
{
    const int is_measured = k == count_groups(scope);
    estimate_request request = {.n_point = scope->n_point,
                                .n_replicate = is_measured ? scope->n_measured : scope->n_predicted,
                                .first_replicate = k * scope->n_predicted, /* other draws */
                                .batch = is_measured ? scope->measured_batch : 0,
                                .n_rank = is_measured ? scope->n_rank : 0,
                                .has_wide_ranges = !is_measured && scope->n_rank > 0};
    memcpy(request.point, scope->point, (size_t)scope->n_point * sizeof *request.point);
    if (scope->n_group > 0)
        request.batches_from = is_measured
                                   ? TRAINED_STEPS * scope->batch / (scope->measured_batch * scope->n_rank)
                                   : TRAINED_STEPS + 2 * (int64_t)request.first_replicate;
    return request;
}

static tandem_status estimate_both(sampled_study *s, const tandem_workload *workload,
                                   const cli_options *options, tandem_error *error)
{
    const int n_group = count_groups(s->scope);
    tandem_status status = TANDEM_OK;
    for (int k = 0; k <= n_group && status == TANDEM_OK; k++) {
        const estimate_request request = request_of_group(s->scope, k);
        status = estimate_by_options(k < n_group ? &s->predicted[k] : &s->measured, workload, options,
                                     &request, error);
    }
    return status;
}

static void print_tally(const sampled_study *s, const char *name, const sampled_tally *of)
{
    if (of->n == 0) return;
    const double median = tandem_median(of->ratio, (size_t)of->n);
    const double close = (double)of->n_close / of->n, inside = (double)of->n_inside / of->n;
    (void)fprintf(s->report->text, "| %s | %d | %.3f | %.0f %% | %.0f %% |\n", name, of->n, median,
                  100 * close, 100 * inside);
}

static json_t *tally_json(const sampled_tally *of)
{
    if (of->n == 0) return json_null();
    return json_pack("{s:i,s:f,s:f,s:f}", "cells", of->n, "median_ratio",
                     tandem_median(of->ratio, (size_t)of->n), "close_share", (double)of->n_close / of->n,
                     "inside_share", (double)of->n_inside / of->n);
}

static void print_sampled_summary(const sampled_study *s)
{
    const int n_part = s->scope->n_rank > 0 ? N_PARTS : 1;
    static const char *const names[N_PARTS] = {"noise", "its part of samples", "its part of weights"};
    (void)fprintf(
        s->report->text,
        "\n| `%s` | cells | median (%.3g to %.3g) | within %.3g × (%.3g %%) | 1 inside (%.3g to %.3g %%) "
        "|\n|---|---|---|---|---|\n",
        s->scope->model, s->margins.median_low, s->margins.median_high, s->margins.max_ratio,
        100 * s->margins.least_close, 100 * s->margins.inside_low, 100 * s->margins.inside_high);
    for (int part = 0; part < n_part; part++) print_tally(s, names[part], &s->tally[part]);
    json_t *object = tally_json(&s->tally[PART_NOISE]);
    if (n_part > 1) {
        json_object_set_new(object, "samples", tally_json(&s->tally[PART_SAMPLES]));
        json_object_set_new(object, "weights", tally_json(&s->tally[PART_WEIGHTS]));
    }
    json_object_set_new(s->report->json, s->scope->model, object);
}

/* --- Cells, and their record -----------------------------------------------------------------------------
 * */

/* One operator in one precision at one training point. */
typedef struct sampled_cell {
    int a, op;
    tandem_precision precision;
} sampled_cell;

/* All cells of the model, [*n], which the caller frees. NULL: no memory. */
static sampled_cell *list_sampled_cells(int *n, const sampled_scope *scope, const tandem_graph *graph)
{
    sampled_cell *cells =
        calloc((size_t)scope->n_point * (size_t)graph->n_op * TANDEM_N_PRECISION, sizeof *cells);
    *n = 0;
    for (int a = 0; a < scope->n_point && cells; a++)
        for (int op = 0; op < graph->n_op; op++)
            for (int p = TANDEM_PRECISION_FP32 + 1; p < TANDEM_N_PRECISION; p++)
                if (tandem_op_is_adjustable(&graph->op[op]) &&
                    tandem_op_row_get(graph->op[op].kind)->precisions & 1u << p)
                    cells[(*n)++] = (sampled_cell){a, op, (tandem_precision)p};
    return cells;
}

static int parts_of(const sampled_scope *scope) { return scope->n_rank > 0 ? N_PARTS : 1; }

/* What is estimated of all cells: [n × N_PARTS]. */
static tandem_status compare_sampled_cells(sampled_ratio *ratio, sampled_study *s, const sampled_cell *cells,
                                           int n, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    const int n_cell = s->graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    s->share = calloc(2 * (size_t)n_cell, sizeof *s->share);
    if (!s->share) return tandem_no_memory(error, "for the study's cells");
    s->micro_batch = s->share + n_cell;
    for (int i = 0; i < n_cell; i++) s->micro_batch[i] = (double)s->scope->measured_batch;
    for (int i = 0; i < n * N_PARTS && status == TANDEM_OK; i++) {
        const sampled_cell *of = &cells[i / N_PARTS];
        const sampled_part part = (sampled_part)(i % N_PARTS);
        const int is_wanted =
            part == PART_NOISE || (parts_of(s->scope) > 1 && tandem_precision_draws_weights(of->precision));
        if (is_wanted)
            status = compare_part(&ratio[i], s, of->a,
                                  tandem_estimate_cell(of->op, of->precision, TANDEM_F32), part, error);
    }
    return status;
}

/* By estimate, or from the record of the model. */
static tandem_status find_ratios(sampled_ratio *ratio, sampled_study *s, const tandem_workload *workload,
                                 const cli_options *options, const sampled_cell *cells, int n,
                                 tandem_error *error)
{
    const int n_value = n * N_PARTS * VALUES_OF_RATIO;
    double *value = (double *)ratio; /* a sampled_ratio is its numbers */
    tandem_status status = TANDEM_OK;
    if (!study_records_find(value, n_value, s->records, s->scope->model)) {
        status = estimate_both(s, workload, options, error);
        if (status == TANDEM_OK) status = compare_sampled_cells(ratio, s, cells, n, error);
        if (status == TANDEM_OK)
            status = study_records_add(s->records, s->scope->model, value, n_value, error);
    }
    for (int i = 0; i < n_value; i++) /* what is not finite prints alike, from a record or not */
        if (!isfinite(value[i])) value[i] = copysign(NAN, -1);
    return status;
}

static tandem_status study_sampled_cells(sampled_study *s, const tandem_workload *workload,
                                         const cli_options *options, tandem_error *error)
{
    int n = 0;
    sampled_cell *cells = list_sampled_cells(&n, s->scope, s->graph);
    sampled_ratio *ratio = calloc((size_t)n * N_PARTS + 1, sizeof *ratio);
    int is_allocated = cells && ratio;
    for (int part = 0; part < N_PARTS && is_allocated; part++)
        is_allocated = (s->tally[part].ratio = calloc((size_t)n + 1, sizeof(double))) != NULL;
    tandem_status status = is_allocated ? find_ratios(ratio, s, workload, options, cells, n, error)
                                        : tandem_no_memory(error, "for the study's cells");
    for (int i = 0; i < n && status == TANDEM_OK; i++)
        add_sampled_cell(s, cells[i].a, cells[i].op, cells[i].precision, ratio + (size_t)i * N_PARTS);
    free(cells);
    free(ratio);
    return status;
}

/* --- A model ---------------------------------------------------------------------------------------------
 * */

static cli_options options_of_scope(const cli_options *given, const sampled_scope *scope)
{
    cli_options options = *given;
    options.model = scope->model;
    options.batch = scope->batch;
    options.data = STUDY_DATA;
    options.steps = TRAINED_STEPS;
    options.seed += scope->first_seed;
    options.checkpoint = NULL; /* the study's records, and no training's */
    return options;
}

/* Seconds of the estimates of a model, each of which trains up to the last training point. */
static tandem_status estimate_seconds(double *seconds, const cli_options *given, const sampled_scope *scope,
                                      const tandem_workload *workload, tandem_error *error)
{
    const int n_group = count_groups(scope);
    const cli_options options = options_of_scope(given, scope);
    const estimate_request predicted = request_of_group(scope, 0),
                           measured = request_of_group(scope, n_group);
    work_cost training = {0}, of_predicted = {0}, of_measured = {0};
    tandem_status status = work_cost_of_training(&training, &options, TRAINED_STEPS, error);
    if (status == TANDEM_OK)
        status = work_cost_of_estimate(&of_predicted, workload, &options, &predicted, error);
    of_measured = of_predicted;
    if (status == TANDEM_OK && scope->n_rank > 0) /* else both are of one batch */
        status = work_cost_of_estimate(&of_measured, workload, &options, &measured, error);
    if (status != TANDEM_OK) return status;
    *seconds = (n_group + 1) * work_cost_seconds(&training, scope->point[scope->n_point - 1]) +
               n_group * scope->n_point * work_cost_seconds(&of_predicted, predicted.n_replicate) +
               scope->n_point * work_cost_seconds(&of_measured, measured.n_replicate);
    return TANDEM_OK;
}

/* Says what a model has left, and adds its seconds to *left_s. */
static tandem_status note_sampled_model(double *left_s, const cli_options *given, const sampled_scope *scope,
                                        const study_records *records, tandem_error *error)
{
    const int n = count_groups(scope) + 1;
    const cli_options options = options_of_scope(given, scope);
    tandem_workload workload = {0};
    double seconds = 0;
    int n_cell = 0, is_left = 0;
    tandem_status status = cli_workload_open(&workload, &options, error);
    if (status == TANDEM_OK) {
        free(list_sampled_cells(&n_cell, scope, workload.graph[0]));
        is_left = !study_records_has(records, scope->model, n_cell * N_PARTS * VALUES_OF_RATIO);
        if (is_left) status = estimate_seconds(&seconds, given, scope, &workload, error);
    }
    tandem_workload_close(&workload);
    if (status == TANDEM_OK) work_left_note(given, scope->model, is_left ? n : 0, n, "sensings", seconds);
    *left_s += seconds;
    return status;
}

static tandem_status study_sampled_model(study_report *report, const sampled_scope *scope,
                                         study_records *records, const ratio_margins *margins,
                                         tandem_error *error)
{
    sampled_study s = {.report = report, .scope = scope, .records = records, .margins = *margins};
    const cli_options options = options_of_scope(report->options, scope);
    tandem_workload workload = {0};
    (void)fprintf(report->text, "\n## `%s`\n\nPredicted from ", scope->model);
    if (scope->n_group > 0)
        (void)fprintf(report->text, "the same samples, by the mean of %d sensings of\n", scope->n_group);
    (void)fprintf(report->text, "%d replicates of 2 batches of %lld, measured with %d of ",
                  scope->n_predicted, (long long)scope->batch, scope->n_measured);
    if (scope->n_rank > 0) (void)fprintf(report->text, "%d × ", scope->n_rank);
    (void)fprintf(
        report->text,
        "%lld.\n\n"
        "| age | operator | precision | measured %% | predicted %% | predicted / measured |%s bias %% "
        "| met |\n|---|---|---|---|---|---|%s---|---|\n",
        (long long)scope->measured_batch, scope->n_rank > 0 ? " of samples | of weights |" : "",
        scope->n_rank > 0 ? "---|---|" : "");
    tandem_status status = cli_workload_open(&workload, &options, error);
    s.graph = workload.graph[0];
    if (status == TANDEM_OK) status = study_sampled_cells(&s, &workload, &options, error);
    if (status == TANDEM_OK) print_sampled_summary(&s);
    free(s.share);
    for (int part = 0; part < N_PARTS; part++) free(s.tally[part].ratio);
    for (int k = 0; k < MAX_GROUPS; k++) tandem_estimate_close(&s.predicted[k]);
    tandem_estimate_close(&s.measured);
    tandem_workload_close(&workload);
    return status;
}

/* --- The parts -------------------------------------------------------------------------------------------
 * */

/* The hash of what decides the values of records. */
static uint64_t hash_scopes(const char *part, const sampled_scope *scope)
{
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, part);
    for (int m = 0; m < MAX_MODELS && scope[m].model; m++) {
        const sampled_scope *of = &scope[m];
        const double number[] = {(double)of->batch,    (double)of->measured_batch,
                                 (double)of->point[0], (double)of->point[1],
                                 of->n_point,          of->n_predicted,
                                 of->n_measured,       of->n_rank,
                                 of->n_group,          (double)of->first_seed};
        hash = tandem_hash_text(hash, of->model);
        for (size_t i = 0; i < sizeof number / sizeof *number; i++) hash = study_hash_number(hash, number[i]);
    }
    return hash;
}

static tandem_status study_models(study_report *report, const char *part, const sampled_scope *scope,
                                  const ratio_margins *margins, tandem_error *error)
{
    const cli_options *options = report->options;
    study_records records = {0};
    char name[STUDY_PLAN_NAME];
    double left_s = 0;
    int n = 0;
    while (n < MAX_MODELS && scope[n].model) n++;
    study_plan_name(name, hash_scopes(part, scope), options->seed);
    tandem_status status = study_records_open(&records, options->checkpoint, name, &report->margins, error);
    for (int m = 0; m < n && !options->quiet && status == TANDEM_OK; m++)
        status = note_sampled_model(&left_s, options, &scope[m], &records, error);
    if (status == TANDEM_OK) work_left_note_all(options, left_s);
    for (int m = 0; m < n && status == TANDEM_OK; m++)
        status = study_sampled_model(report, &scope[m], &records, margins, error);
    study_records_close(&records);
    return status;
}

tandem_status study_sampled(study_report *report, tandem_error *error)
{
    static const sampled_scope
        quick[MAX_MODELS] = {{"mlp:width=32", 32, 32, {36}, 1, 16, 24, 0, 0, 0},
                             {"vit_tiny:width=16,heads=2,depth=1,patch=7", 8, 8, {20}, 1, 16, 16, 0, 0, 0}},
        full[MAX_MODELS] = {{"mlp", 32, 32, {40, 360}, 2, 16, 32, 0, 0, 0},
                            {"mlp:depth=12,width=64", 32, 32, {40, 360}, 2, 16, 32, 0, 0, 0},
                            {"resnet20:width=8,blocks=1", 16, 16, {40, 360}, 2, 16, 24, 0, 0, 0},
                            {"vit_tiny:width=48,heads=3,depth=1", 32, 32, {20, 180}, 2, 8, 24, 0, 0, 0}};
    const ratio_margins margins = {study_margin.sampled_max_ratio,   study_margin.sampled_median_low,
                                   study_margin.sampled_median_high, study_margin.sampled_least_close,
                                   study_margin.sampled_inside_low,  study_margin.sampled_inside_high};
    (void)fprintf(
        report->text,
        "# Noise from a few samples of the gradient's error\n\n"
        "One operator has a precision, all else is fp32. *measured*, *predicted*: the noise φρ, in\n"
        "percent of more samples to the same loss, by other batches and draws. *bias*, as measured:\n"
        "β, in percent. ± is half of a 95 %% interval; × is the factor by which the ratio's reaches up\n"
        "and down. met: yes, within a factor of %.3g, and 1 inside the interval; close: the first;\n"
        "inside: the second.\n",
        margins.max_ratio);
    return study_models(report, "sampled", study_own.quick ? quick : full, &margins, error);
}

tandem_status study_batch(study_report *report, tandem_error *error)
{
    static const sampled_scope
        quick[MAX_MODELS] = {{"vit_tiny:width=16,heads=2,depth=1,patch=7", 8, 8, {20}, 1, 16, 16, 4, 0, 0},
                             {"mlp:width=16,image=7x7x1", 8, 16, {20}, 1, 16, 8, 4, 4, 64}},
        full[MAX_MODELS] = {
            {"mlp:width=32,image=14x14x1", 16, 64, {40, 360}, 2, 64, 64, 4, MAX_GROUPS, 64},
            {"mlp:depth=6,width=32,image=14x14x1", 16, 64, {40, 360}, 2, 64, 64, 4, MAX_GROUPS, 64},
            {"resnet20:width=4,blocks=1,image=14x14x1", 16, 64, {40, 360}, 2, 64, 64, 4, MAX_GROUPS, 64},
            {"vit_tiny:width=16,heads=2,depth=1,patch=7", 16, 64, {40, 360}, 2, 64, 64, 4, MAX_GROUPS, 64},
        };
    const ratio_margins margins = {study_margin.batch_max_ratio,   study_margin.batch_median_low,
                                   study_margin.batch_median_high, study_margin.batch_least_close,
                                   study_margin.batch_inside_low,  study_margin.batch_inside_high};
    (void)fprintf(
        report->text,
        "# Noise at another batch, of other ranks\n\n"
        "As in *sampled*, but predicted for 4 ranks, each with a larger batch than was sensed. They round\n"
        "one weight alike, and all else apart. The part of samples falls with the batch, that of a weight\n"
        "does not. *of samples*, *of weights*: predicted over measured of these parts, where a precision\n"
        "draws; ?: the measured interval holds 0. met: yes, within a factor of %.3g, and 1 inside the\n"
        "interval; close: the first; inside: the second.\n",
        margins.max_ratio);
    return study_models(report, "batch", study_own.quick ? quick : full, &margins, error);
}
