/* rank_left.c: the time of the jobs of `tandem study rank`, by trials of a training, of a probe, and of a
 * sensing of all operators, whose precisions take turns. */
#include "cli/study/rank_left.h"

#include <stdlib.h>

#include "cli/study/study_gradient.h"
#include "cli/study/work_left.h"

typedef struct probe_trial {
    held_model *model;
    const held_weights *at;
    probe_sums *sums;
} probe_trial;

static tandem_status try_rank_probes(const void *work, int64_t n, tandem_error *error)
{
    const probe_trial *trial = work;
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        const probe_request request = {trial->at, i, 1, .is_alone = 1};
        status = probe_predict(trial->sums, trial->model, &request, error);
    }
    return status;
}

/* At weights after one step: AdamW has a metric then. */
static tandem_status measure_probe_cost(work_cost *cost, const noise_lab *lab, tandem_error *error)
{
    static const int64_t age = 1;
    held_weights at = {0};
    held_model model = {0};
    probe_sums *sums = malloc(sizeof *sums);
    tandem_status status = sums ? held_weights_train(&at, &age, 1, &lab->options, error)
                                : tandem_no_memory(error, "for a probe's sums");
    if (status == TANDEM_OK) status = held_model_open(&model, &lab->options, "fp32", error);
    if (status == TANDEM_OK)
        status = work_cost_measure(cost, try_rank_probes, &(probe_trial){&model, &at, sums}, 0, 1, error);
    held_model_close(&model);
    held_weights_free(&at, 1);
    free(sums);
    return status;
}

/* Of all operators of the task. */
static tandem_status measure_sensing_cost(work_cost *cost, const noise_lab *lab, tandem_error *error)
{
    const int n_op = lab->workload.graph[0]->n_op;
    tandem_precision *plan = calloc((size_t)lab->n_op * (size_t)n_op, sizeof *plan);
    if (!plan) return tandem_no_memory(error, "for the operators of a task");
    for (int k = 0; k < lab->n_op; k++) plan[k * n_op + lab->op[k]] = noise_precisions[k % NOISE_N_PRECISION];
    const sensing_request request = {.precision = tandem_precision_get(noise_precisions[0])->name,
                                     .emulation = tandem_emulation_make(0),
                                     .plan = plan,
                                     .n_plan = lab->n_op};
    const tandem_status status = work_cost_of_sensing(cost, &lab->workload, &lab->options, &request, error);
    free(plan);
    return status;
}

tandem_status rank_left_seconds(double *seconds, const noise_lab *lab, const rank_left *left,
                                tandem_error *error)
{
    const noise_task *task = lab->task;
    work_cost training = {0}, probe = {0}, sensing = {0};
    tandem_status status = TANDEM_OK;
    if (left->n_job > 0) status = work_cost_of_training(&training, &lab->options, task->steps, error);
    if (status == TANDEM_OK && left->n_probe > 0) status = measure_probe_cost(&probe, lab, error);
    if (status == TANDEM_OK && left->n_sensing > 0) status = measure_sensing_cost(&sensing, lab, error);
    if (status != TANDEM_OK) return status;
    const double of_age = training.unit_s * left->n_step + probe.unit_s * left->n_probe +
                          sensing.once_s * left->n_sensing + sensing.unit_s * left->n_replicate;
    *seconds = left->n_job * work_cost_seconds(&training, task->age[task->n_age - 1]) + task->n_age * of_age;
    return TANDEM_OK;
}
