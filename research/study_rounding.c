/* study_rounding.c: `tandem-study rounding`: whether the variance of rounding, summed from the numbers of
 * real tensors, is what rounding them gives.
 *
 * Measured: the mean, over draws, of the summed squared error of a tensor; without draws the squared error.
 * Casts to s8 and bf16 are the CPU's kernels, all others the references of format.def, which are held to
 * exact arithmetic elsewhere. The rule beside it has even fractions: s²/6 for stochastic rounding to
 * integers, s²/12 to nearest; for floats the derivation of predictor/fisher.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "research/study.h"
#include "tandem/advanced/format.h"
#include "tandem/kernels.h"

typedef struct rounding_cell {
    const char *model;
    const study_tensor *tensor;
    tandem_format format;
    double predicted, measured, half_width, by_rule; /* sums of squared errors; half of the 95 % interval */
} rounding_cell;

typedef struct rounding_work {
    const tandem_kernels *kernels;
    int draws;
    float out[STUDY_MAX_ELEMENTS];
    int8_t q[STUDY_MAX_ELEMENTS];
    uint16_t narrow[STUDY_MAX_ELEMENTS];
} rounding_work;

static tandem_format_cast cast_of(const study_tensor *tensor, tandem_format format)
{
    return (tandem_format_cast){.format = format,
                                .x = tensor->x,
                                .rows = 1,
                                .columns = tensor->n,
                                .range = tensor->amax,
                                .error_scale = 1,
                                .stream = {0, (uint32_t)format, (uint32_t)tensor->point}};
}

/* --- What rounding gives --------------------------------------------------------------------------------
 * */

static tandem_status round_by_s8_kernel(rounding_work *work, const tandem_format_cast *cast, int is_drawn,
                                        tandem_error *error)
{
    float scale = 0;
    const tandem_rounding rounding = {.seed = cast->seed,
                                      .stream = {cast->stream[0], cast->stream[1], cast->stream[2]}};
    const tandem_quantise_call call = {.x = cast->x,
                                       .from = TANDEM_F32,
                                       .rows = 1,
                                       .columns = cast->columns,
                                       .q = work->q,
                                       .scale_mode = TANDEM_SCALE_KNOWN,
                                       .range = cast->range,
                                       .rounding = is_drawn ? &rounding : NULL,
                                       .scale = &scale};
    const tandem_status status = tandem_kernels_quantise(work->kernels, &call, error);
    for (int64_t i = 0; i < cast->columns && status == TANDEM_OK; i++)
        work->out[i] = scale * (float)work->q[i];
    return status;
}

static tandem_status round_by_bf16_kernel(rounding_work *work, const tandem_format_cast *cast,
                                          tandem_error *error)
{
    const tandem_cast_call narrow = {.x = cast->x,
                                     .from = TANDEM_F32,
                                     .rows = 1,
                                     .columns = cast->columns,
                                     .y = work->narrow,
                                     .to = TANDEM_BF16};
    const tandem_cast_call widen = {.x = work->narrow,
                                    .from = TANDEM_BF16,
                                    .rows = 1,
                                    .columns = cast->columns,
                                    .y = work->out,
                                    .to = TANDEM_F32};
    const tandem_status status = tandem_kernels_cast(work->kernels, &narrow, error);
    return status == TANDEM_OK ? tandem_kernels_cast(work->kernels, &widen, error) : status;
}

static tandem_status round_tensor_once(rounding_work *work, const tandem_format_cast *cast,
                                       tandem_error *error)
{
    switch (cast->format) {
    case TANDEM_FORMAT_S8: return round_by_s8_kernel(work, cast, 1, error);
    case TANDEM_FORMAT_S8_NEAREST: return round_by_s8_kernel(work, cast, 0, error);
    case TANDEM_FORMAT_BF16: return round_by_bf16_kernel(work, cast, error);
    default: return tandem_format_round(work->out, NULL, cast, error);
    }
}

static tandem_status measure_rounding(rounding_cell *cell, rounding_work *work, uint64_t seed,
                                      tandem_error *error)
{
    tandem_format_cast cast = cast_of(cell->tensor, cell->format);
    const int is_drawn = tandem_format_get(cell->format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
    const int draws = is_drawn ? work->draws : 1;
    double sum = 0, squares = 0;
    cast.seed = seed;
    for (int d = 0; d < draws; d++) {
        cast.stream[0] = (uint32_t)d;
        const tandem_status status = round_tensor_once(work, &cast, error);
        if (status != TANDEM_OK) return status;
        double error_square = 0;
        for (int64_t i = 0; i < cast.columns; i++) {
            const double e = (double)work->out[i] - (double)cast.x[i];
            error_square += e * e;
        }
        sum += error_square;
        squares += error_square * error_square;
    }
    cell->measured = sum / draws;
    const double variance = draws > 1 ? (squares - sum * sum / draws) / (draws - 1) : 0;
    cell->half_width = study_margin.rounding_normal * sqrt(fmax(0, variance) / draws);
    return TANDEM_OK;
}

/* --- What is predicted ----------------------------------------------------------------------------------
 * */

static double variance_by_rule(const study_tensor *tensor, const tandem_format_row *row)
{
    double square = 0;
    for (int64_t i = 0; i < tensor->n; i++) square += (double)tensor->x[i] * (double)tensor->x[i];
    const double n = (double)tensor->n, even = row->rounding == TANDEM_ROUNDING_NEAREST ? 12 : 6;
    const double scale = row->scale >= TANDEM_FORMAT_SCALE_TENSOR && tensor->amax > 0
                             ? (double)tensor->amax / tandem_format_largest(row)
                             : 1;
    const double step = ldexp(scale, row->least), share = log(2) * 12 / 18 / even;
    if (row->kind == TANDEM_FORMAT_KIND_INTEGER) return n * step * step / even;
    return fmin(square, ldexp(share, -2 * row->mantissa) * square + n * step * step / even);
}

static int is_rounding_met(const rounding_cell *cell, double predicted)
{
    const double off = fabs(predicted - cell->measured);
    return off <= study_margin.rounding_max_error * cell->measured || off <= cell->half_width;
}

/* --- The table ------------------------------------------------------------------------------------------
 * */

static double ratio_or_one(double a, double b) { return b > 0 ? a / b : a > 0 ? INFINITY : 1; }

static void add_rounding_cell(study_report *report, const rounding_cell *cell)
{
    const char *kind = study_tensor_kind_name(cell->tensor->kind),
               *format = tandem_format_get(cell->format)->name;
    const int is_met = is_rounding_met(cell, cell->predicted),
              rule_is_met = is_rounding_met(cell, cell->by_rule);
    const double n = (double)cell->tensor->n;
    json_t *object = json_pack("{s:s,s:s,s:s,s:I,s:s,s:I}", "model", cell->model, "tensor", kind, "operator",
                               cell->tensor->name, "age", (json_int_t)cell->tensor->point, "format", format,
                               "elements", (json_int_t)cell->tensor->n);
    json_object_set_new(object, "measured", cli_json_number(cell->measured / n));
    json_object_set_new(object, "half_width", cli_json_number(cell->half_width / n));
    json_object_set_new(object, "predicted", cli_json_number(cell->predicted / n));
    json_object_set_new(object, "by_rule", cli_json_number(cell->by_rule / n));
    json_object_set_new(object, "rule_met", json_boolean(rule_is_met));
    study_add_cell(report, object, is_met);
    (void)fprintf(report->text, "| %s | %s %s | %lld | %s | %.3g ± %.1g | %.4f | %.3g | %s | %s |\n",
                  cell->model, kind, cell->tensor->name, (long long)cell->tensor->point, format,
                  cell->measured / n, cell->half_width / n, ratio_or_one(cell->predicted, cell->measured),
                  ratio_or_one(cell->by_rule, cell->measured), is_met ? "yes" : "NO",
                  rule_is_met ? "yes" : "no");
}

static tandem_status study_tensor_formats(study_report *report, rounding_work *work, const char *model,
                                          const study_tensor *tensor, int *n_rule_failed, tandem_error *error)
{
    for (int f = 0; f < TANDEM_N_FORMAT; f++) {
        rounding_cell cell = {.model = model, .tensor = tensor, .format = (tandem_format)f};
        const tandem_format_cast cast = cast_of(tensor, cell.format);
        tandem_status status = tandem_format_variance(NULL, &cell.predicted, &cast, error);
        if (status == TANDEM_OK) status = measure_rounding(&cell, work, report->options->seed, error);
        if (status != TANDEM_OK) return status;
        cell.by_rule = variance_by_rule(tensor, tandem_format_get(cell.format));
        *n_rule_failed += !is_rounding_met(&cell, cell.by_rule);
        add_rounding_cell(report, &cell);
    }
    return TANDEM_OK;
}

static tandem_status study_model_rounding(study_report *report, rounding_work *work, const char *model,
                                          int64_t steps, int *n_rule_failed, tandem_error *error)
{
    study_tensor tensor[STUDY_MAX_TENSORS] = {0};
    const int64_t point[] = {0, steps / 10, steps / 2, steps * 9 / 10};
    int n_tensor = 0;
    tandem_status status =
        study_tensors_collect(tensor, &n_tensor, report->options, model, 32, point, 4, error);
    for (int i = 0; i < n_tensor && status == TANDEM_OK; i++) {
        cli_progress(report->options, -1, "study: %s, tensor %d of %d", model, i + 1, n_tensor);
        status = study_tensor_formats(report, work, model, &tensor[i], n_rule_failed, error);
    }
    study_tensors_free(tensor, n_tensor);
    return status;
}

tandem_status study_rounding(study_report *report, tandem_error *error)
{
    const int is_quick = study_own.quick;
    rounding_work *work = calloc(1, sizeof *work);
    if (!work) return tandem_no_memory(error, "for the study of rounding");
    int n_rule_failed = 0;
    work->draws = is_quick ? 400 : 1000; /* 2 % is three standard errors or more */
    tandem_status status = tandem_kernels_open(&work->kernels, "best", error);
    (void)fprintf(
        report->text,
        "# Variance of rounding of real tensors\n\n"
        "Mean square of the error of an element. *measured*: by %d draws, ± half of its 95 %% interval;\n"
        "without draws the error itself. *predicted* and *by rule* are relative to it. Met: within\n"
        "2 %%, or inside the interval.\n\n"
        "| model | tensor | age | format | measured | predicted | by rule | met | rule met |\n"
        "|---|---|---|---|---|---|---|---|---|\n",
        work->draws);
    if (status == TANDEM_OK)
        status = study_model_rounding(report, work, is_quick ? "mlp:width=64" : "mlp", is_quick ? 40 : 400,
                                      &n_rule_failed, error);
    if (status == TANDEM_OK)
        status = study_model_rounding(report, work, "vit_tiny:width=48,heads=3,depth=1", is_quick ? 10 : 200,
                                      &n_rule_failed, error);
    (void)fprintf(report->text, "\n%d of %d cells are met; by rule %d of them.\n",
                  report->n_cell - report->n_failed, report->n_cell, report->n_cell - n_rule_failed);
    json_object_set_new(report->json, "rule_failed", json_integer(n_rule_failed));
    free(work);
    return status;
}
