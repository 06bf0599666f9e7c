/* exchange_train.c: one training of `tandem study exchange`, and what is predicted of a cell. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sensing.h"
#include "cli/study/exchange.h"
#include "cli/study/study.h"

tandem_status exchange_lab_open(exchange_lab *lab, const cli_options *options, tandem_error *error)
{
    cli_options smallest = *options;
    smallest.model = "mlp:width=1";
    smallest.batch = 1;
    *lab = (exchange_lab){.options = options, .backend = cli_backend(error)};
    if (!lab->backend) return TANDEM_MISSING;
    tandem_status status = cli_workload_open(&lab->workload, &smallest, error);
    if (status == TANDEM_OK) status = lab->backend->data_open(&lab->data, STUDY_DATA, 1, error);
    if (status == TANDEM_OK)
        status = lab->backend->worker_open(
            &lab->worker,
            &(tandem_worker_options){
                .device = lab->workload.cluster.classes[0].device.name, .n_rank = 1, .cpu = -1},
            error);
    if (status != TANDEM_OK) exchange_lab_close(lab);
    return status;
}

void exchange_lab_close(exchange_lab *lab)
{
    if (lab->worker) lab->backend->worker_close(lab->worker);
    if (lab->backend) lab->backend->data_close(&lab->data);
    cli_workload_close(&lab->workload);
    *lab = (exchange_lab){0};
}

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

static tandem_optimizer_options optimizer_of(const exchange_task *task)
{
    if (task->optimizer == TANDEM_SGD)
        return (tandem_optimizer_options){.kind = TANDEM_SGD, .rate = (float)task->rate, .momentum = 0.9f};
    return (tandem_optimizer_options){
        .kind = TANDEM_ADAMW, .rate = (float)task->rate, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
}

/* The task's model with its optimizer. cell < 0: in fp32. */
static tandem_status open_task_workload(cli_workload *workload, cli_options *options, const exchange_lab *lab,
                                        const exchange_task *task, int cell, int fourths, tandem_error *error)
{
    *options = *lab->options;
    options->model = task->model;
    options->data = STUDY_DATA;
    options->steps = task->steps;
    options->batch = task->n_micro == 1 ? task->batch * fourths / 4 : task->batch;
    options->step.n_micro = task->n_micro == 1 ? 1 : task->n_micro * fourths / 4;
    options->uniform = cell < 0 ? NULL : tandem_precision_get(precision_of_cell(cell))->name;
    options->emulate = cell < 0 ? NULL : "";
    const tandem_status status = cli_workload_open(workload, options, error);
    if (status == TANDEM_OK) workload->graph[0]->optimizer = optimizer_of(task);
    return status;
}

/* --- A training ------------------------------------------------------------------------------------------
 * */

static tandem_status open_task_executor(tandem_executor **executor, tandem_step **step,
                                        const exchange_lab *lab, const cli_workload *workload,
                                        const cli_options *options, const tandem_emulation *emulation,
                                        tandem_error *error)
{
    const tandem_graph *graph = workload->graph[0];
    const tandem_status status = tandem_device_open_step(step, &workload->cluster.classes[0].device, graph,
                                                         options->bucket_bytes, &workload->plan->step, error);
    if (status != TANDEM_OK) return status;
    tandem_step_load(*step, workload->plan->assignment.precision[0]);
    const tandem_executor_options executor_options = {.step = *step,
                                                      .data = &lab->data,
                                                      .seed = emulation->seed,
                                                      .emulation = options->emulate ? emulation : NULL,
                                                      .global_batch =
                                                          graph->batch * workload->plan->step.n_micro,
                                                      .optimizer = &graph->optimizer,
                                                      .with_evaluation = 1};
    return lab->backend->executor_open(executor, lab->worker, &executor_options, error);
}

/* The steps of the task's evaluations end with the last step. */
static int is_evaluated(const exchange_task *task, int64_t done, int64_t steps)
{
    const int64_t every = steps / (4 * (int64_t)task->n_evaluation);
    return done == steps ||
           (every > 0 && (steps - done) % every == 0 && (steps - done) / every < task->n_evaluation);
}

static tandem_status run_task_steps(double *loss, tandem_executor *executor, const exchange_lab *lab,
                                    const exchange_task *task, int64_t steps, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    double sum = 0;
    int n = 0;
    for (int64_t i = 0; i < steps && status == TANDEM_OK; i++) {
        double of_batch = 0;
        tandem_evaluation seen;
        status = lab->backend->executor_step(executor, i, &of_batch, error);
        if (status != TANDEM_OK || !is_evaluated(task, i + 1, steps)) continue;
        status = lab->backend->executor_evaluate(executor, &lab->data, task->n_test, &seen, error);
        if (status != TANDEM_OK) break;
        sum += seen.loss / (double)seen.total;
        n++;
    }
    *loss = sum / n;
    return status;
}

tandem_status exchange_train(double *loss, const exchange_lab *lab, const exchange_task *task, int setting,
                             uint64_t seed, int64_t steps, tandem_error *error)
{
    const int cell = setting - EXCHANGE_CURVE;
    tandem_executor *executor = NULL;
    tandem_step *step = NULL;
    cli_options options;
    cli_workload workload = {0};
    const tandem_emulation emulation = emulation_of_cell(task, cell, seed);
    tandem_status status =
        open_task_workload(&workload, &options, lab, task, cell, fourths_of(setting), error);
    if (status == TANDEM_OK)
        status = open_task_executor(&executor, &step, lab, &workload, &options, &emulation, error);
    if (status == TANDEM_OK) status = run_task_steps(loss, executor, lab, task, steps, error);
    if (executor) lab->backend->executor_close(executor);
    tandem_step_close(step);
    cli_workload_close(&workload);
    return status;
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

tandem_status exchange_predict(exchange_prediction *prediction, const exchange_lab *lab,
                               const exchange_task *task, int cell, int is_whole, int n_replicate,
                               tandem_error *error)
{
    cli_options options;
    cli_workload workload = {0};
    tandem_sensing sensing = {0};
    const tandem_precision precision = precision_of_cell(cell);
    sensing_request request = {.n_age = EXCHANGE_AGES,
                               .n_replicate = n_replicate,
                               .is_whole_plan = is_whole,
                               .precision = tandem_precision_get(precision)->name,
                               .emulation = emulation_of_cell(task, cell, 0)};
    for (int a = 0; a < EXCHANGE_AGES; a++)
        request.age[a] = task->steps * (2 * a + 1) / (2 * (int64_t)EXCHANGE_AGES);
    tandem_status status = open_task_workload(&workload, &options, lab, task, -1, 4, error);
    if (status == TANDEM_OK) status = sensing_run(&sensing, &workload, &options, &request, error);
    if (status == TANDEM_OK)
        status = predict_from(prediction, &sensing, task, precision,
                              workload.cluster.classes[0].device.amp_dtype, error);
    tandem_sensing_close(&sensing);
    cli_workload_close(&workload);
    return status;
}
