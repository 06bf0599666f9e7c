/* study_sampled.c: `tandem study sampled` and `tandem study batch`: the noise that a few replicates predict
 * (predictor/sampled.c), beside that of many other replicates, with other batches and draws, at the same
 * weights. For `batch`, those have another batch, to which the prediction is converted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sensing.h"
#include "cli/study/study.h"
#include "tandem/advanced/predictor.h"

enum { MAX_MODELS = 4 };

typedef struct sampled_scope {
    const char *model;
    int64_t batch, measured_batch; /* sensed for the prediction, and measured; trained at the first */
    int64_t age[2];
    int n_age, n_predicted, n_measured; /* replicates */
} sampled_scope;

typedef struct sampled_study {
    study_report *report;
    const sampled_scope *scope;
    const tandem_graph *graph;
    tandem_sensing predicted, measured;
    double *share; /* [cells] */
    double *ratio; /* [n] */
    int n, n_close, n_inside;
    double max_ratio;
} sampled_study;

tandem_sensing study_sensing_of_age(const tandem_sensing *sensing, int a)
{
    const int n_cell = sensing->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    tandem_sensing one = *sensing;
    one.n_age = 1;
    one.gradient += (size_t)a * (size_t)sensing->n_replicate;
    one.error += (size_t)a * (size_t)n_cell * (size_t)sensing->n_replicate;
    return one;
}

static tandem_status add_sampled_cell(sampled_study *s, int a, int op, tandem_precision precision,
                                      tandem_error *error)
{
    const int cell = tandem_sensing_cell(op, precision, TANDEM_F32);
    const tandem_sensing predicted = study_sensing_of_age(&s->predicted, a),
                         measured = study_sensing_of_age(&s->measured, a);
    const tandem_sensed_step step = {.global_batch = s->measured.batch, .n_micro = 1};
    tandem_sensitivity_estimate p = {0}, m = {0};
    s->share[cell] = 1;
    tandem_status status = tandem_sensing_estimate(&p, &predicted, s->share, &step, error);
    if (status == TANDEM_OK) status = tandem_sensing_estimate(&m, &measured, s->share, &step, error);
    s->share[cell] = 0;
    if (status != TANDEM_OK) return status;
    /* of two positive numbers: the interval is that of the logarithm */
    const double ratio = p.noise / m.noise,
                 factor = exp(hypot(p.noise_half / p.noise, m.noise_half / m.noise));
    const int is_inside = ratio <= factor && ratio >= 1 / factor,
              is_close = ratio <= s->max_ratio && ratio >= 1 / s->max_ratio;
    s->ratio[s->n++] = ratio;
    s->n_close += is_close;
    s->n_inside += is_inside;
    const char *name = s->graph->op[op].name, *of = tandem_precision_get(precision)->name;
    json_t *object = json_pack("{s:s,s:I,s:s,s:s}", "model", s->scope->model, "age",
                               (json_int_t)s->scope->age[a], "operator", name, "precision", of);
    json_object_set_new(object, "measured", cli_json_number(100 * m.noise));
    json_object_set_new(object, "predicted", cli_json_number(100 * p.noise));
    json_object_set_new(object, "ratio", cli_json_number(ratio));
    json_object_set_new(object, "factor", cli_json_number(factor));
    json_object_set_new(object, "bias", cli_json_number(100 * m.bias));
    json_object_set_new(object, "bias_half_width", cli_json_number(100 * m.bias_half));
    study_add_cell(s->report, object, is_close || is_inside);
    (void)fprintf(s->report->text, "| %lld | %s | %s | %.3g | %.3g | %.2f (× %.2f) | %.1g ± %.1g | %s |\n",
                  (long long)s->scope->age[a], name, of, 100 * m.noise, 100 * p.noise, ratio, factor,
                  100 * m.bias, 100 * m.bias_half,
                  is_close    ? is_inside ? "yes" : "close"
                  : is_inside ? "inside"
                              : "NO");
    return TANDEM_OK;
}

static tandem_status sense_both(sampled_study *s, const cli_workload *workload, const cli_options *options,
                                tandem_error *error)
{
    const sampled_scope *scope = s->scope;
    sensing_request request = {.n_age = scope->n_age, .n_replicate = scope->n_predicted};
    memcpy(request.age, scope->age, (size_t)scope->n_age * sizeof *request.age);
    tandem_status status = sensing_run(&s->predicted, workload, options, &request, error);
    request.first_replicate = scope->n_predicted;
    request.n_replicate = scope->n_measured;
    request.batch = scope->measured_batch;
    if (status == TANDEM_OK) status = sensing_run(&s->measured, workload, options, &request, error);
    return status;
}

static void print_sampled_summary(const sampled_study *s)
{
    const double median = tandem_median(s->ratio, (size_t)s->n);
    const double close = (double)s->n_close / s->n, inside = (double)s->n_inside / s->n;
    (void)fprintf(s->report->text,
                  "\n| `%s` | cells | median (0.95 to 1.05) | within %.3g × (90 %%) | 1 inside (90 to 98 %%) "
                  "|\n|---|---|---|---|---|\n| noise | %d | %.3f | %.0f %% | %.0f %% |\n",
                  s->scope->model, s->max_ratio, s->n, median, 100 * close, 100 * inside);
    json_object_set_new(s->report->json, s->scope->model,
                        json_pack("{s:i,s:f,s:f,s:f}", "cells", s->n, "median_ratio", median, "close_share",
                                  close, "inside_share", inside));
}

static tandem_status study_sampled_cells(sampled_study *s, tandem_error *error)
{
    const int n_cell = s->graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    tandem_status status = TANDEM_OK;
    s->share = calloc((size_t)n_cell, sizeof *s->share);
    s->ratio = calloc((size_t)(n_cell * s->scope->n_age), sizeof *s->ratio);
    if (!s->share || !s->ratio) return tandem_no_memory(error, "for the study's cells");
    for (int a = 0; a < s->scope->n_age; a++)
        for (int op = 0; op < s->graph->n_op; op++)
            for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++)
                if (s->predicted.is_sensed[tandem_sensing_cell(op, (tandem_precision)p, TANDEM_F32)])
                    status = add_sampled_cell(s, a, op, (tandem_precision)p, error);
    return status;
}

static tandem_status study_sampled_model(study_report *report, const sampled_scope *scope, double max_ratio,
                                         tandem_error *error)
{
    sampled_study s = {.report = report, .scope = scope, .max_ratio = max_ratio};
    cli_options options = *report->options;
    cli_workload workload = {0};
    options.model = scope->model;
    options.batch = scope->batch;
    options.data = STUDY_DATA;
    options.steps = 400;
    if (!options.device) options.device = "strongest";
    (void)fprintf(
        report->text,
        "\n## `%s`\n\nPredicted from %d replicates of 2 batches of %lld, measured with %d of %lld.\n\n"
        "| age | operator | precision | measured %% | predicted %% | predicted / measured | bias %% | "
        "met |\n|---|---|---|---|---|---|---|---|\n",
        scope->model, scope->n_predicted, (long long)scope->batch, scope->n_measured,
        (long long)scope->measured_batch);
    tandem_status status = cli_workload_open(&workload, &options, error);
    s.graph = workload.graph[0];
    if (status == TANDEM_OK) status = sense_both(&s, &workload, &options, error);
    if (status == TANDEM_OK) status = study_sampled_cells(&s, error);
    if (status == TANDEM_OK) print_sampled_summary(&s);
    free(s.share);
    free(s.ratio);
    tandem_sensing_close(&s.predicted);
    tandem_sensing_close(&s.measured);
    cli_workload_close(&workload);
    return status;
}

static tandem_status study_models(study_report *report, const sampled_scope *scope, double max_ratio,
                                  tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int m = 0; m < MAX_MODELS && scope[m].model && status == TANDEM_OK; m++)
        status = study_sampled_model(report, &scope[m], max_ratio, error);
    return status;
}

tandem_status study_sampled(study_report *report, tandem_error *error)
{
    static const sampled_scope
        quick[MAX_MODELS] = {{"mlp:width=32", 32, 32, {36}, 1, 16, 24},
                             {"vit_tiny:width=16,heads=2,depth=1,patch=7", 8, 8, {20}, 1, 16, 16}},
        full[MAX_MODELS] = {{"mlp", 32, 32, {40, 360}, 2, 16, 32},
                            {"mlp:depth=12,width=64", 32, 32, {40, 360}, 2, 16, 32},
                            {"resnet20:width=8,blocks=1", 16, 16, {40, 360}, 2, 16, 24},
                            {"vit_tiny:width=48,heads=3,depth=1", 32, 32, {20, 180}, 2, 8, 24}};
    (void)fprintf(
        report->text,
        "# Noise from a few samples of the gradient's error\n\n"
        "One operator has a precision, all else is fp32. *measured*, *predicted*: the noise φρ, in\n"
        "percent of more samples to the same loss, by other batches and draws. *bias*, as measured:\n"
        "β, in percent. ± is half of a 95 %% interval; × is the factor by which the ratio's reaches up\n"
        "and down. met: yes, within a factor of 1.5, and 1 inside the interval; close: the first;\n"
        "inside: the second.\n");
    return study_models(report, report->options->quick ? quick : full, 1.5, error);
}

tandem_status study_batch(study_report *report, tandem_error *error)
{
    static const sampled_scope
        quick[MAX_MODELS] = {{"vit_tiny:width=16,heads=2,depth=1,patch=7", 8, 32, {20}, 1, 16, 16}},
        full[MAX_MODELS] = {{"mlp", 32, 128, {40, 360}, 2, 48, 24},
                            {"vit_tiny:width=48,heads=3,depth=1", 16, 64, {180}, 1, 32, 24}};
    (void)fprintf(
        report->text,
        "# Noise at another batch\n\n"
        "As in *sampled*, but predicted for a larger batch than was sensed: the samples' part of the\n"
        "noise falls with the batch, that of a rounded weight does not. met: yes, within a factor of\n"
        "1.2, and 1 inside the interval; close: the first; inside: the second.\n");
    return study_models(report, report->options->quick ? quick : full, 1.2, error);
}
