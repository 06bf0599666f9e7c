/* exchange_train.c: the trainings of `tandem-study exchange` and `crossed`, and what is predicted of a cell.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "research/exchange.h"
#include "research/study.h"

static int fourths_of(int setting) { return setting < EXCHANGE_CURVE ? 4 - setting : 4; }
double exchange_added_noise(int setting) { return 4.0 / fourths_of(setting) - 1; }

exchange_casts exchange_cell_casts(int cell)
{
    return cell < EXCHANGE_CELLS / 2 ? EXCHANGE_ALL : EXCHANGE_GRADIENTS;
}
double exchange_cell_scale(const exchange_task *task, int cell)
{
    return task->error_scale[exchange_cell_casts(cell)] * (1 + cell % 2);
}

/* Where gradients alone are rounded: fp8's plan, for it has dtypes of their own. Errors of ulp stay far below
 * those of s8. */
tandem_precision exchange_precision(exchange_casts casts)
{
    return casts == EXCHANGE_ALL ? TANDEM_PRECISION_INT8_FULL : TANDEM_PRECISION_FP8;
}

tandem_emulation exchange_emulation(exchange_casts casts, double error_scale, uint64_t seed)
{
    tandem_emulation emulation = tandem_emulation_make(seed);
    emulation.error_scale = error_scale;
    if (casts == EXCHANGE_GRADIENTS) {
        emulation.format[TANDEM_E4M3] = emulation.format[TANDEM_BF16] = TANDEM_FORMAT_ULP;
        emulation.format[TANDEM_E5M2] = TANDEM_FORMAT_S8;
    }
    return emulation;
}

static tandem_emulation emulation_of_cell(const exchange_task *task, int cell, uint64_t seed)
{
    return exchange_emulation(exchange_cell_casts(cell), exchange_cell_scale(task, cell), seed);
}

study_training exchange_training(const exchange_task *task, int setting, uint64_t seed)
{
    const int cell = setting - EXCHANGE_CURVE, fourths = fourths_of(setting);
    const int is_of_batch = task->n_micro == 1;
    return (study_training){
        .model = task->model,
        .optimizer = task->optimizer,
        .schedule = SCHEDULE_CONSTANT,
        .rate = task->rate,
        .batch = is_of_batch ? task->batch * fourths / 4 : task->batch,
        .n_micro = is_of_batch ? 1 : task->n_micro * fourths / 4,
        .steps = task->steps,
        .n_test = task->n_test,
        .n_evaluation = task->n_evaluation,
        .precision =
            cell < 0 ? NULL : tandem_precision_get(exchange_precision(exchange_cell_casts(cell)))->name,
        .emulation = cell < 0 ? tandem_emulation_make(seed) : emulation_of_cell(task, cell, seed)};
}

/* --- The prediction --------------------------------------------------------------------------------------
 * */

/* ρ = φρ/φ at one training point: with the variance V and the mean square M of gradients at the estimated
 * batch, φ = cV/(cV + M), where c converts to the step's batch. */
static tandem_status add_training_point(exchange_prediction *sum, const tandem_estimate *estimate, int a,
                                        const double *share, const tandem_sensitivity_step *step,
                                        tandem_error *error)
{
    const tandem_estimate one = study_estimate_at_point(estimate, a);
    tandem_sensitivity_estimate of_plan = {0};
    const tandem_status status = tandem_estimate_sensitivity(&of_plan, &one, share, step, error);
    if (status != TANDEM_OK) return status;
    double variance = 0, mean_square = 0;
    for (int r = 0; r < one.n_replicate; r++) {
        variance += one.gradient[r].variance;
        mean_square += one.gradient[r].mean_square;
    }
    variance *= (double)one.batch / (double)step->global_batch;
    const double by = (variance + fmax(mean_square, 0)) / variance;
    sum->noise += by * of_plan.noise / EXCHANGE_POINTS;
    sum->noise_half = hypot(sum->noise_half, by * of_plan.noise_half / EXCHANGE_POINTS);
    sum->bias += of_plan.bias / EXCHANGE_POINTS;
    sum->bias_half = hypot(sum->bias_half, of_plan.bias_half / EXCHANGE_POINTS);
    sum->last_noise = by * of_plan.noise;
    return TANDEM_OK;
}

double exchange_judged_noise(const exchange_plan *plan, const exchange_prediction *prediction)
{
    return prediction->noise + (plan->is_with_first_order ? prediction->first_order : 0);
}

tandem_status exchange_predict(exchange_prediction *prediction, const study_lab *lab,
                               const exchange_task *task, int cell, exchange_estimated how, int n_replicate,
                               tandem_error *error)
{
    const tandem_precision precision = exchange_precision(exchange_cell_casts(cell));
    double own[EXCHANGE_POINTS * TANDEM_MAX_REPLICATE] = {0};
    const study_training in_fp32 = exchange_training(task, 0, lab->options->seed);
    const study_rounding_plan rounding = {.precision = precision,
                                          .emulation = emulation_of_cell(task, cell, 0),
                                          .n_point = EXCHANGE_POINTS,
                                          .n_replicate = n_replicate,
                                          .is_whole = how != EXCHANGE_SUMMED,
                                          .is_curved = how == EXCHANGE_CURVED,
                                          .own_products = own};
    const tandem_sensitivity_step step = {.global_batch = task->batch * task->n_micro,
                                          .n_micro = task->n_micro};
    tandem_estimate estimate = {0};
    tandem_status status = study_estimate(&estimate, lab, &in_fp32, &rounding, error);
    double *share = status == TANDEM_OK ? study_shares_open(&estimate, lab, precision, 1) : NULL;
    if (status == TANDEM_OK && !share) status = tandem_no_memory(error, "for the shares of a plan");
    *prediction = (exchange_prediction){0};
    for (int a = 0; status == TANDEM_OK && a < estimate.n_point; a++) {
        double half = 0;
        prediction->first_order +=
            exchange_first_order(&half, &estimate, a, share, own + (size_t)a * (size_t)n_replicate) /
            EXCHANGE_POINTS;
        prediction->first_order_half = hypot(prediction->first_order_half, half / EXCHANGE_POINTS);
        status = add_training_point(prediction, &estimate, a, share, &step, error);
    }
    free(share);
    tandem_estimate_close(&estimate);
    return status;
}
