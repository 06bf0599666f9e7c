/* exchange_train.c: the trainings of `tandem study exchange`, and what is predicted of a cell. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sensing.h"
#include "cli/study/exchange.h"
#include "cli/study/study.h"

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
static tandem_precision precision_of_cell(int cell)
{
    return exchange_cell_casts(cell) == EXCHANGE_ALL ? TANDEM_PRECISION_INT8_FULL : TANDEM_PRECISION_FP8;
}

static tandem_emulation emulation_of_cell(const exchange_task *task, int cell, uint64_t seed)
{
    tandem_emulation emulation = tandem_emulation_make(seed);
    emulation.error_scale = exchange_cell_scale(task, cell);
    if (exchange_cell_casts(cell) == EXCHANGE_GRADIENTS) {
        emulation.format[TANDEM_E4M3] = emulation.format[TANDEM_BF16] = TANDEM_FORMAT_ULP;
        emulation.format[TANDEM_E5M2] = TANDEM_FORMAT_S8;
    }
    return emulation;
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
        .precision = cell < 0 ? NULL : tandem_precision_get(precision_of_cell(cell))->name,
        .emulation = cell < 0 ? tandem_emulation_make(seed) : emulation_of_cell(task, cell, seed)};
}

/* --- The prediction --------------------------------------------------------------------------------------
 * */

/* ρ = φρ/φ at one age: with the variance V and the mean square M of gradients at the sensed batch, φ =
 * cV/(cV + M), where c converts to the step's batch. */
static tandem_status add_age(exchange_prediction *sum, const tandem_sensing *sensing, int a,
                             const double *share, const tandem_sensed_step *step, tandem_error *error)
{
    const tandem_sensing one = study_sensing_of_age(sensing, a);
    tandem_sensitivity_estimate estimate = {0};
    const tandem_status status = tandem_sensing_estimate(&estimate, &one, share, step, error);
    if (status != TANDEM_OK) return status;
    double variance = 0, mean_square = 0;
    for (int r = 0; r < one.n_replicate; r++) {
        variance += one.gradient[r].variance;
        mean_square += one.gradient[r].mean_square;
    }
    variance *= (double)one.batch / (double)step->global_batch;
    const double by = (variance + fmax(mean_square, 0)) / variance;
    sum->noise += by * estimate.noise / EXCHANGE_AGES;
    sum->noise_half = hypot(sum->noise_half, by * estimate.noise_half / EXCHANGE_AGES);
    sum->bias += estimate.bias / EXCHANGE_AGES;
    sum->bias_half = hypot(sum->bias_half, estimate.bias_half / EXCHANGE_AGES);
    sum->last_noise = by * estimate.noise;
    return TANDEM_OK;
}

static tandem_status predict_from(exchange_prediction *prediction, const tandem_sensing *sensing,
                                  const exchange_task *task, tandem_precision precision,
                                  tandem_dtype amp_dtype, tandem_error *error)
{
    const tandem_sensed_step step = {.global_batch = task->batch * task->n_micro, .n_micro = task->n_micro};
    double *share = calloc((size_t)sensing->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE, sizeof *share);
    if (!share) return tandem_no_memory(error, "for the shares of a plan");
    for (int op = 0; op < sensing->n_op; op++) {
        const int cell =
            tandem_sensing_cell(op, precision, tandem_precision_has_amp(precision) ? amp_dtype : TANDEM_F32);
        share[cell] = sensing->is_sensed[cell];
    }
    tandem_status status = TANDEM_OK;
    *prediction = (exchange_prediction){0};
    for (int a = 0; a < sensing->n_age && status == TANDEM_OK; a++)
        status = add_age(prediction, sensing, a, share, &step, error);
    free(share);
    return status;
}

/* The plan with all operators in a precision that they have. NULL: no memory. */
static tandem_precision *make_whole_plan(const tandem_graph *graph, tandem_precision precision)
{
    tandem_precision *plan = calloc((size_t)graph->n_op, sizeof *plan);
    for (int i = 0; i < graph->n_op && plan; i++)
        if (tandem_op_is_adjustable(&graph->op[i]) &&
            tandem_op_row_get(graph->op[i].kind)->precisions & 1u << precision)
            plan[i] = precision;
    return plan;
}

tandem_status exchange_predict(exchange_prediction *prediction, const study_lab *lab,
                               const exchange_task *task, int cell, int is_whole, int n_replicate,
                               tandem_error *error)
{
    cli_options options;
    cli_workload workload = {0};
    tandem_sensing sensing = {0};
    const tandem_precision precision = precision_of_cell(cell);
    sensing_request request = {.n_age = EXCHANGE_AGES,
                               .n_replicate = n_replicate,
                               .precision = tandem_precision_get(precision)->name,
                               .emulation = emulation_of_cell(task, cell, 0)};
    for (int a = 0; a < EXCHANGE_AGES; a++)
        request.age[a] = task->steps * (2 * a + 1) / (2 * (int64_t)EXCHANGE_AGES);
    const study_training in_fp32 = exchange_training(task, 0, lab->options->seed);
    tandem_status status = study_workload_open(&workload, &options, lab, &in_fp32, error);
    tandem_precision *plan =
        status == TANDEM_OK && is_whole ? make_whole_plan(workload.graph[0], precision) : NULL;
    if (status == TANDEM_OK && is_whole && !plan) status = tandem_no_memory(error, "for a plan");
    request.plan = plan;
    request.n_plan = plan != NULL;
    if (status == TANDEM_OK) status = sensing_run(&sensing, &workload, &options, &request, error);
    free(plan);
    if (status == TANDEM_OK)
        status = predict_from(prediction, &sensing, task, precision,
                              workload.cluster.classes[0].device.amp_dtype, error);
    tandem_sensing_close(&sensing);
    cli_workload_close(&workload);
    return status;
}
