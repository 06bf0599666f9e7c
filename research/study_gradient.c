/* study_gradient.c: `tandem-study gradient`: the error of rounding in the whole gradient, predicted by a
 * probe (probe.c), beside an oracle: the same gradient with one cast rounded and all else in fp32, over
 * common batches.
 *
 * With g the gradient of a batch, d its change: measured is the mean of |d|² over batches and draws, as a
 * share of the variance of g over batches of this size. For stochastic rounding that is ρ, the noise of
 * gradients. For rounding to nearest it is the noise and the square of the bias. The interval of predicted
 * over measured comes from the batches, which both have in common. beta is −⟨G, E d⟩/|G|², with G from all
 * other batches; a square of the mean is the product of different batches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_cdf.h>

#include "research/batch_ratio.h"
#include "research/study.h"
#include "research/study_gradient.h"
#include "research/work_left.h"
#include "tandem/advanced/predictor.h"

enum { MAX_AGES = 4, MAX_BATCHES = 16, MAX_CELLS = 4096, FIRST_BATCH = 1000 };

/* Cells without a relu behind what is rounded, and with one. */
typedef enum cell_group { GROUP_DRAWN, GROUP_NEAREST, GROUP_BEFORE_RELU, N_GROUP } cell_group;

/* What is studied, and how much of it. */
typedef struct gradient_scope {
    const char *model;
    int64_t batch, age[MAX_AGES];
    int n_age, n_batch, n_draw, n_probe;
} gradient_scope;

typedef struct gradient_study {
    study_report *report;
    gradient_scope scope;
    held_model probed, emulated;
    held_weights at[MAX_AGES];
    float *exact[MAX_BATCHES]; /* [n_weight] the gradient of each batch */
    float *sum, *drawn;        /* [n_weight] */
    double variance;           /* of the gradient over batches */
    double mean_square;        /* |G|², without bias */
    double *task_scale;        /* [n_task] of the emulated step */
    struct {
        double *ratio; /* [n] predicted over measured */
        int n, n_inside, n_close;
    } group[N_GROUP];
} gradient_study;

/* The formats of the study, in the place of s8. The error of ulp is magnified above that of f32 sums. */
static const struct {
    tandem_format format;
    double error_scale;
} studied[] = {{TANDEM_FORMAT_S8, 1},
               {TANDEM_FORMAT_S8_NEAREST, 1},
               {TANDEM_FORMAT_S4, 1},
               {TANDEM_FORMAT_E2M1, 1},
               {TANDEM_FORMAT_ULP, 4096}};
enum { N_STUDIED = sizeof studied / sizeof *studied };

/* --- The oracle ------------------------------------------------------------------------------------------
 * */

static double square_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Gradients of all batches, their variance, and the square of their mean. */
static tandem_status take_exact_gradients(gradient_study *s, const float *weight, tandem_error *error)
{
    held_model *model = &s->emulated;
    const int64_t n = model->n_weight;
    const int n_batch = s->scope.n_batch;
    tandem_emulation emulation = tandem_emulation_make(0);
    emulation.error_scale = 0;
    tandem_status status = model->rank.backend->executor_put_weights(model->rank.executor, weight, error);
    if (status == TANDEM_OK)
        status = model->rank.backend->executor_set_emulation(model->rank.executor, &emulation, error);
    double squares = 0;
    memset(s->sum, 0, (size_t)n * sizeof *s->sum);
    for (int b = 0; b < n_batch && status == TANDEM_OK; b++) {
        status = held_model_gradient(model, FIRST_BATCH + b, s->exact[b], error);
        for (int64_t i = 0; i < n; i++) s->sum[i] += s->exact[b][i];
        squares += square_of(s->exact[b], n);
    }
    const double of_sum = square_of(s->sum, n);
    s->variance = (squares - of_sum / n_batch) / (n_batch - 1);
    s->mean_square = (of_sum - squares) / n_batch / (n_batch - 1);
    return status;
}

/* The task that writes what `task` reads; −1: none does. */
static int writer_of(const tandem_step *step, int task, int slot)
{
    const int id = task < 0 ? -1 : step->task[task].read[slot];
    for (int t = 0; t < step->n_task && id >= 0; t++)
        for (int w = 0; step->task[t].active && w < step->task[t].n_write; w++)
            if (step->task[t].write[w] == id) return t;
    return -1;
}

static int cast_of_part(const tandem_step *step, int op, rounded_part part)
{
    const tandem_op_tasks tasks = tandem_step_op_tasks(step, op);
    if (part == PART_GRADIENT) return writer_of(step, tasks.wgrad, 1);
    return writer_of(step, tasks.forward, part == PART_WEIGHT);
}

/* One cell: a part of an operator in a format. Per batch: predicted and measured squares, and −⟨G, d⟩. */
typedef struct gradient_cell {
    int k;
    rounded_part part;
    int studied;
    double predicted[MAX_BATCHES], measured[MAX_BATCHES], against[MAX_BATCHES];
} gradient_cell;

static int count_draws(const gradient_study *s, const gradient_cell *cell)
{
    const int is_drawn =
        tandem_format_get(studied[cell->studied].format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
    return is_drawn ? s->scope.n_draw : 1;
}

static tandem_status measure_cell(gradient_study *s, gradient_cell *cell, tandem_error *error)
{
    held_model *model = &s->emulated;
    const tandem_step *step = model->rank.step;
    const int64_t n = model->n_weight;
    const int n_batch = s->scope.n_batch, cast = cast_of_part(step, model->op[cell->k], cell->part);
    if (cast < 0) return tandem_error_set(error, TANDEM_BUG, "an operator of the study has no cast");
    memset(s->task_scale, 0, (size_t)step->n_task * sizeof *s->task_scale);
    s->task_scale[cast] = 1;
    tandem_emulation emulation = tandem_emulation_make(0);
    emulation.format[TANDEM_S8] = studied[cell->studied].format;
    emulation.error_scale = studied[cell->studied].error_scale;
    emulation.task_scale = s->task_scale;
    const int n_draw = count_draws(s, cell);
    for (int b = 0; b < n_batch; b++)
        for (int r = 0; r < n_draw; r++) {
            emulation.seed = (uint64_t)(1 + r);
            tandem_status status =
                model->rank.backend->executor_set_emulation(model->rank.executor, &emulation, error);
            if (status == TANDEM_OK) status = held_model_gradient(model, FIRST_BATCH + b, s->drawn, error);
            if (status != TANDEM_OK) return status;
            double square = 0, against = 0;
            for (int64_t i = 0; i < n; i++) {
                const double exact = (double)s->exact[b][i], d = (double)s->drawn[i] - exact;
                square += d * d;
                against -= d * ((double)s->sum[i] - exact) / (n_batch - 1);
            }
            cell->measured[b] += square / n_draw;
            cell->against[b] += against / n_draw;
        }
    return TANDEM_OK;
}

/* --- The table -------------------------------------------------------------------------------------------
 * */

typedef struct batch_mean {
    double mean, half_width; /* of the 95 % interval */
} batch_mean;

static batch_mean mean_of_batches(const double *x, int n)
{
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    for (int i = 0; i < n; i++) square += (x[i] - sum / n) * (x[i] - sum / n);
    return (batch_mean){sum / n, gsl_cdf_tdist_Pinv(0.975, n - 1) * sqrt(square / n / (n - 1))};
}

/* Whether a relu lies between the operator and the loss: its slope jumps, so that the gradient does. */
static int is_before_relu(const gradient_study *s, int k)
{
    const tandem_graph *graph = s->probed.rank.step->graph;
    char reached[4096] = {0};
    for (int i = s->probed.op[k]; i < graph->n_op && i < (int)sizeof reached; i++) {
        const tandem_op *op = &graph->op[i];
        const int n_input = tandem_op_row_get(op->kind)->n_input;
        reached[i] = i == s->probed.op[k];
        for (int slot = 0; slot < n_input; slot++) reached[i] |= reached[op->input[slot]];
        if (reached[i] && op->kind == TANDEM_OP_RELU) return 1;
    }
    return 0;
}

static void add_gradient_cell(gradient_study *s, const gradient_cell *cell, int64_t age)
{
    static const char *const part_name[N_PART_OF_OPERATOR] = {"input", "weight", "gradient"};
    const int n = s->scope.n_batch;
    const char *op = s->probed.rank.step->graph->op[s->probed.op[cell->k]].name,
               *format = tandem_format_get(studied[cell->studied].format)->name;
    const batch_ratio of = batch_ratio_of(cell->predicted, cell->measured, n);
    const batch_mean beta = mean_of_batches(cell->against, n);
    const double measured = mean_of_batches(cell->measured, n).mean / s->variance,
                 predicted = mean_of_batches(cell->predicted, n).mean / s->variance;
    const int is_inside = of.ratio <= of.factor && of.ratio >= 1 / of.factor,
              is_close = of.ratio <= study_margin.gradient_max_ratio &&
                         of.ratio >= 1 / study_margin.gradient_max_ratio;
    const int has_relu = cell->part != PART_GRADIENT && is_before_relu(s, cell->k);
    const int is_drawn =
        tandem_format_get(studied[cell->studied].format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
    const cell_group group = has_relu ? GROUP_BEFORE_RELU : is_drawn ? GROUP_DRAWN : GROUP_NEAREST;
    s->group[group].ratio[s->group[group].n++] = of.ratio;
    s->group[group].n_inside += is_inside;
    s->group[group].n_close += is_close;
    json_t *object = json_pack("{s:s,s:I,s:s,s:s,s:s}", "model", s->scope.model, "age", (json_int_t)age,
                               "operator", op, "part", part_name[cell->part], "format", format);
    json_object_set_new(object, "error_scale", json_real(studied[cell->studied].error_scale));
    json_object_set_new(object, "measured", cli_json_number(measured));
    json_object_set_new(object, "predicted", cli_json_number(predicted));
    json_object_set_new(object, "ratio", cli_json_number(of.ratio));
    json_object_set_new(object, "factor", cli_json_number(of.factor));
    json_object_set_new(object, "before_relu", json_boolean(has_relu));
    json_object_set_new(object, "bias", cli_json_number(beta.mean / s->mean_square));
    json_object_set_new(object, "bias_half_width", cli_json_number(beta.half_width / s->mean_square));
    study_add_cell(s->report, object, is_inside || is_close);
    (void)fprintf(s->report->text,
                  "| %lld | %s %s | %s | %.3g | %.3g | %.2f (%.2f to %.2f) | %.1g ± %.1g | %s |\n",
                  (long long)age, op, part_name[cell->part], format, 100 * measured, 100 * predicted,
                  of.ratio, of.ratio / of.factor, of.ratio * of.factor, 100 * beta.mean / s->mean_square,
                  100 * beta.half_width / s->mean_square,
                  is_close    ? is_inside ? "yes" : "close"
                  : is_inside ? "inside"
                              : "NO");
}

static tandem_status study_cells_of_age(gradient_study *s, gradient_cell *cells, int n_cell, int64_t age,
                                        tandem_error *error)
{
    for (int c = 0; c < n_cell; c++) {
        const tandem_status status = measure_cell(s, &cells[c], error);
        if (status != TANDEM_OK) return status;
        add_gradient_cell(s, &cells[c], age);
        cli_progress(s->report->options, -1, "study: gradient, step %lld, cell %d of %d", (long long)age,
                     c + 1, n_cell);
    }
    return TANDEM_OK;
}

/* In the metric of SGD, whatever the optimizer. */
static tandem_status predict_cells(gradient_study *s, gradient_cell *cells, int n_cell,
                                   const held_weights *trained, tandem_error *error)
{
    const held_weights at = {.weight = trained->weight};
    probe_sums *sums = malloc(sizeof *sums);
    uint32_t formats = 0;
    for (int f = 0; f < N_STUDIED; f++) formats |= 1u << studied[f].format;
    tandem_status status = sums ? TANDEM_OK : tandem_no_memory(error, "for a probe's sums");
    for (int b = 0; b < s->scope.n_batch && status == TANDEM_OK; b++)
        for (int p = 0; p < s->scope.n_probe && status == TANDEM_OK; p++) {
            const probe_request request = {&at, FIRST_BATCH + b, (uint64_t)(b * s->scope.n_probe + p) + 77,
                                           .formats = formats};
            status = probe_predict(sums, &s->probed, &request, error);
            for (int c = 0; c < n_cell && status == TANDEM_OK; c++) {
                const double scale = studied[cells[c].studied].error_scale;
                cells[c].predicted[b] +=
                    scale * scale / s->scope.n_probe *
                    sums->sum[cells[c].k][cells[c].part][studied[cells[c].studied].format];
            }
        }
    free(sums);
    return status;
}

/* The cells of an age. The caller frees them. NULL: no memory. */
static gradient_cell *list_cells(int *n, const gradient_study *s)
{
    int n_cell = 0;
    gradient_cell *cells = calloc((size_t)s->probed.n_op * N_PART_OF_OPERATOR * N_STUDIED, sizeof *cells);
    for (int c = 0; c < s->probed.n_op * N_PART_OF_OPERATOR * N_STUDIED && cells; c++) {
        const int k = c / N_STUDIED / N_PART_OF_OPERATOR;
        const rounded_part part = (rounded_part)(c / N_STUDIED % N_PART_OF_OPERATOR);
        int first = 0;
        if (!held_model_is_linear(&s->probed, k)) continue;
        while (part == PART_INPUT && !held_model_same_input(&s->probed, first, k)) first++;
        if (part == PART_INPUT && first < k) continue; /* one rounded copy: its first reader has the cell */
        cells[n_cell].studied = c % N_STUDIED;
        cells[n_cell].part = part;
        cells[n_cell++].k = k;
    }
    *n = n_cell;
    return cells;
}

static tandem_status study_age(gradient_study *s, int a, tandem_error *error)
{
    int n_cell = 0;
    gradient_cell *cells = list_cells(&n_cell, s);
    tandem_status status = cells ? TANDEM_OK : tandem_no_memory(error, "for the study's cells");
    if (status == TANDEM_OK) status = take_exact_gradients(s, s->at[a].weight, error);
    if (status == TANDEM_OK) status = predict_cells(s, cells, n_cell, &s->at[a], error);
    if (status == TANDEM_OK) status = study_cells_of_age(s, cells, n_cell, s->scope.age[a], error);
    free(cells);
    return status;
}

/* --- A model ---------------------------------------------------------------------------------------------
 * */

static tandem_status open_gradient_study(gradient_study *s, const cli_options *options, tandem_error *error)
{
    tandem_status status = held_weights_train(s->at, s->scope.age, s->scope.n_age, options, error);
    if (status == TANDEM_OK) status = held_model_open(&s->probed, options, "fp32", error);
    if (status == TANDEM_OK) status = held_model_open(&s->emulated, options, "int8_full", error);
    if (status != TANDEM_OK) return status;
    const size_t n = (size_t)s->emulated.n_weight;
    int is_allocated = (s->sum = calloc(n, sizeof *s->sum)) && (s->drawn = calloc(n, sizeof *s->drawn)) &&
                       (s->task_scale = calloc((size_t)s->emulated.rank.step->n_task, sizeof *s->task_scale));
    for (int g = 0; g < N_GROUP && is_allocated; g++)
        is_allocated = (s->group[g].ratio = calloc(MAX_CELLS, sizeof(double))) != NULL;
    for (int b = 0; b < s->scope.n_batch && is_allocated; b++)
        is_allocated = (s->exact[b] = calloc(n, sizeof *s->exact[b])) != NULL;
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the study's gradients");
}

static void close_gradient_study(gradient_study *s)
{
    held_model_close(&s->probed);
    held_model_close(&s->emulated);
    held_weights_free(s->at, MAX_AGES);
    for (int b = 0; b < MAX_BATCHES; b++) free(s->exact[b]);
    free(s->sum);
    free(s->drawn);
    free(s->task_scale);
    for (int g = 0; g < N_GROUP; g++) free(s->group[g].ratio);
}

static void print_gradient_summary(gradient_study *s)
{
    static const char *const name[N_GROUP] = {"drawn", "nearest", "before a relu"};
    static const char *const member[N_GROUP] = {"drawn", "nearest", "before_relu"};
    json_t *object = json_object();
    (void)fprintf(s->report->text,
                  "\n| `%s` | cells | median (%.3g to %.3g) | within %.3g × (%.3g %%) | 1 inside (%.3g to "
                  "%.3g %%) |\n|---|---|---|---|---|\n",
                  s->scope.model, study_margin.gradient_median_low, study_margin.gradient_median_high,
                  study_margin.gradient_max_ratio, 100 * study_margin.gradient_least_close,
                  100 * study_margin.gradient_inside_low, 100 * study_margin.gradient_inside_high);
    for (int g = 0; g < N_GROUP; g++) {
        const int n = s->group[g].n;
        if (n == 0) continue;
        const double median = tandem_median(s->group[g].ratio, (size_t)n);
        const double close = (double)s->group[g].n_close / n, inside = (double)s->group[g].n_inside / n;
        (void)fprintf(s->report->text, "| %s | %d | %.3f | %.0f %% | %.0f %% |\n", name[g], n, median,
                      100 * close, 100 * inside);
        json_object_set_new(object, member[g],
                            json_pack("{s:i,s:f,s:f,s:f}", "cells", n, "median_ratio", median, "close_share",
                                      close, "inside_share", inside));
    }
    json_object_set_new(s->report->json, s->scope.model, object);
}

static cli_options gradient_options(const cli_options *given, const gradient_scope *scope)
{
    cli_options options = *given;
    options.model = scope->model;
    options.batch = scope->batch;
    options.data = STUDY_DATA;
    options.steps = 400;
    return options;
}

/* --- What it takes, before it starts ---------------------------------------------------------------------
 * */

typedef struct gradient_trial {
    gradient_study *s;
    gradient_cell *cells;
    int n_cell;
} gradient_trial;

/* n probes of one batch. */
static tandem_status try_probes(const void *work, int64_t n, tandem_error *error)
{
    const gradient_trial *trial = work;
    trial->s->scope.n_batch = 1;
    trial->s->scope.n_probe = (int)n;
    return predict_cells(trial->s, trial->cells, trial->n_cell, &trial->s->at[0], error);
}

/* n cells from all over the list, with two gradients each. */
static tandem_status try_cells(const void *work, int64_t n, tandem_error *error)
{
    const gradient_trial *trial = work;
    tandem_status status = TANDEM_OK;
    trial->s->scope.n_batch = 2;
    trial->s->scope.n_draw = 1;
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++)
        status = measure_cell(trial->s, &trial->cells[(2 * i + 1) * trial->n_cell / (2 * n)], error);
    return status;
}

/* Seconds of a model whose study was opened with one age. Changes s->scope. */
static tandem_status estimate_gradient(double *seconds, int *n_cell, gradient_study *s,
                                       const cli_options *options, tandem_error *error)
{
    const gradient_scope scope = s->scope;
    gradient_trial trial = {.s = s};
    work_cost training = {0}, probe = {0}, cell = {0};
    trial.cells = list_cells(&trial.n_cell, s);
    int64_t n_gradient = scope.n_batch; /* of an age: exact ones, then two a unit */
    for (int c = 0; c < trial.n_cell && trial.cells; c++)
        n_gradient += scope.n_batch * count_draws(s, &trial.cells[c]);
    tandem_status status = trial.cells ? TANDEM_OK : tandem_no_memory(error, "for the study's cells");
    if (status == TANDEM_OK) status = work_cost_of_training(&training, options, options->steps, error);
    if (status == TANDEM_OK) status = work_cost_measure(&probe, try_probes, &trial, 1, 3, error);
    if (status == TANDEM_OK) status = work_cost_measure(&cell, try_cells, &trial, 2, 7, error);
    free(trial.cells);
    if (status != TANDEM_OK) return status;
    const double of_age = work_cost_seconds(&probe, (int64_t)scope.n_batch * scope.n_probe) +
                          work_cost_seconds(&cell, n_gradient / 2);
    *seconds = work_cost_seconds(&training, scope.age[scope.n_age - 1]) + scope.n_age * of_age;
    *n_cell = scope.n_age * trial.n_cell;
    return TANDEM_OK;
}

static tandem_status note_gradient_model(double *left_s, study_report *report, const gradient_scope *scope,
                                         tandem_error *error)
{
    gradient_study s = {.report = report, .scope = *scope};
    const cli_options options = gradient_options(report->options, scope);
    double seconds = 0;
    int n_cell = 0;
    s.scope.n_age = 1;
    s.scope.age[0] = 1;
    tandem_status status = open_gradient_study(&s, &options, error);
    s.scope = *scope;
    if (status == TANDEM_OK) status = estimate_gradient(&seconds, &n_cell, &s, &options, error);
    close_gradient_study(&s);
    if (status != TANDEM_OK) return status;
    work_left_note(report->options, scope->model, n_cell, n_cell, "cells", seconds);
    *left_s += seconds;
    return TANDEM_OK;
}

/* --- The part --------------------------------------------------------------------------------------------
 * */

static tandem_status study_model_gradient(study_report *report, const gradient_scope *scope,
                                          tandem_error *error)
{
    gradient_study s = {.report = report, .scope = *scope};
    const cli_options options = gradient_options(report->options, scope);
    (void)fprintf(
        report->text,
        "\n## `%s`\n\n"
        "Batch %lld; %d batches × %d draws, %d probes a batch.\n\n"
        "| age | cast | format | measured %% | predicted %% | predicted / measured | bias %% | met |\n"
        "|---|---|---|---|---|---|---|---|\n",
        s.scope.model, (long long)s.scope.batch, s.scope.n_batch, s.scope.n_draw, s.scope.n_probe);
    tandem_status status = open_gradient_study(&s, &options, error);
    for (int a = 0; a < s.scope.n_age && status == TANDEM_OK; a++) status = study_age(&s, a, error);
    if (status == TANDEM_OK) print_gradient_summary(&s);
    close_gradient_study(&s);
    return status;
}

tandem_status study_gradient(study_report *report, tandem_error *error)
{
    static const gradient_scope quick[] = {{"mlp:width=32", 16, {4, 36}, 2, 6, 2, 2},
                                           {"vit_tiny:width=16,heads=2,depth=1", 8, {20}, 1, 6, 2, 2}},
                                full[] = {{"mlp", 32, {0, 40, 200, 360}, 4, MAX_BATCHES, 8, 16},
                                          {"vit_tiny:width=48,heads=3,depth=1", 32, {20, 180}, 2, 12, 4, 16}};
    const gradient_scope *scope = study_own.quick ? quick : full;
    (void)fprintf(
        report->text,
        "# The error of rounding in the whole gradient\n\n"
        "One cast is rounded, all else is fp32. *measured*, *predicted*: mean square of the gradient's\n"
        "error, in percent of the variance of gradients of this batch, in SGD's metric. *bias* is in\n"
        "percent of the gradient. Intervals are of 95 %%, ± half of one. ulp is magnified 4096 times. met:\n"
        "yes, within a factor of %.3g, and 1 inside the interval; close: the first; inside: the second.\n",
        study_margin.gradient_max_ratio);
    tandem_status status = TANDEM_OK;
    double left_s = 0;
    for (int m = 0; m < 2 && !report->options->quiet && status == TANDEM_OK; m++)
        status = note_gradient_model(&left_s, report, &scope[m], error);
    if (status == TANDEM_OK) work_left_note_all(report->options, left_s);
    for (int m = 0; m < 2 && status == TANDEM_OK; m++)
        status = study_model_gradient(report, &scope[m], error);
    return status;
}
