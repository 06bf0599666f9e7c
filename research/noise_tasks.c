/* noise_tasks.c: the tasks of `tandem-study rank` and `tandem-study add`, and the noise of their gradients.
 */
#include "research/noise_tasks.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "research/trainings.h"

/* The data sets of the last two are not installed by default. */
static const noise_task
    full_tasks[] = {{"mlp", STUDY_DATA, 32, 400, {40, 360}, 2},
                    {"mlp:depth=12,width=64", STUDY_DATA, 32, 400, {40, 360}, 2},
                    {"resnet20:width=8,blocks=1,image=14x14x1", STUDY_DATA, 16, 400, {40, 360}, 2},
                    {"vit_tiny:width=48,heads=3,depth=1", STUDY_DATA, 32, 200, {20, 180}, 2},
                    {"gpt_tiny:width=48,heads=3,depth=1", "bible-kjv-text", 16, 200, {20, 180}, 2},
                    {"bert_base:layers=1,width=48,heads=3,seq=64,vocabulary=256,head=class,classes=45",
                     "wordnet-base",
                     16,
                     200,
                     {20, 180},
                     2}},
    quick_tasks[] = {{"mlp:width=32,image=14x14x1", STUDY_DATA, 32, 40, {36}, 1},
                     {"vit_tiny:width=8,heads=1,depth=1,patch=14", STUDY_DATA, 8, 40, {20}, 1}};
const noise_tasks noise_tasks_full = {full_tasks, sizeof full_tasks / sizeof *full_tasks},
                  noise_tasks_quick = {quick_tasks, sizeof quick_tasks / sizeof *quick_tasks};

const tandem_precision noise_precisions[NOISE_N_PRECISION] = {TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP8,
                                                              TANDEM_PRECISION_INT8_FULL};

static int has_noise_precisions(const tandem_op *op)
{
    int has_all = tandem_op_is_adjustable(op);
    for (int p = 0; p < NOISE_N_PRECISION; p++)
        has_all = has_all && tandem_op_row_get(op->kind)->precisions & 1u << noise_precisions[p];
    return has_all;
}

tandem_status noise_lab_open(noise_lab *lab, const noise_task *task, const cli_options *options,
                             tandem_error *error)
{
    char path[4096];
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return TANDEM_MISSING;
    tandem_status status = backend->data_find(path, sizeof path, task->data, error);
    if (status != TANDEM_OK) return status;
    *lab = (noise_lab){.task = task, .options = *options};
    lab->options.model = task->model;
    lab->options.batch = task->batch;
    lab->options.data = task->data;
    lab->options.steps = task->steps;
    lab->options.checkpoint = NULL; /* the study's records, and no training's */
    status = cli_workload_open(&lab->workload, &lab->options, error);
    if (status != TANDEM_OK) return status;
    const tandem_graph *graph = lab->workload.graph[0];
    lab->op = calloc((size_t)graph->n_op, sizeof *lab->op);
    for (int i = 0; i < graph->n_op && lab->op; i++)
        if (has_noise_precisions(&graph->op[i])) lab->op[lab->n_op++] = i;
    return lab->op ? TANDEM_OK : tandem_no_memory(error, "for the operators of a task");
}

void noise_lab_close(noise_lab *lab)
{
    tandem_workload_close(&lab->workload);
    free(lab->op);
    *lab = (noise_lab){0};
}

int noise_task_skip(study_report *report, const noise_task *task, tandem_status status)
{
    if (status != TANDEM_MISSING && status != TANDEM_UNKNOWN_NAME) return 0;
    json_t *skipped = json_object_get(report->json, "skipped");
    if (!skipped) {
        skipped = json_array();
        json_object_set_new(report->json, "skipped", skipped);
    }
    json_array_append_new(skipped, json_string(task->model));
    (void)fprintf(report->text, "\nSKIP `%s`: the data set %s is not here.\n", task->model, task->data);
    cli_note(report->options, "SKIP %s: the data set %s is not here", task->model, task->data);
    return 1;
}

void noise_plan_name(char text[STUDY_PLAN_NAME], const noise_tasks *tasks, const char *what,
                     const double *number, int n, uint64_t seed)
{
    char tail[STUDY_PLAN_NAME];
    uint64_t hash = tandem_hash_text(TANDEM_HASH_START, what);
    for (int t = 0; t < tasks->n; t++) {
        const noise_task *task = &tasks->task[t];
        const double fixed[] = {(double)task->batch, (double)task->steps, (double)task->point[0],
                                (double)task->point[1], task->n_point};
        const char *const name[] = {task->model, ",", task->data, ","};
        for (size_t i = 0; i < sizeof name / sizeof *name; i++) hash = tandem_hash_text(hash, name[i]);
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) hash = study_hash_number(hash, fixed[i]);
    }
    for (int i = 0; i < n; i++) hash = study_hash_number(hash, number[i]);
    study_plan_name(tail, hash, seed);
    (void)snprintf(text, STUDY_PLAN_NAME, "%.15s %.47s", what, tail);
}

tandem_status noise_of_rows(tandem_sensitivity_estimate *to, const tandem_estimate *estimate,
                            tandem_precision precision, const double *weight, int64_t batch,
                            tandem_error *error)
{
    const tandem_sensitivity_step step = {.global_batch = batch, .n_micro = 1};
    double *share = calloc((size_t)estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE, sizeof *share);
    if (!share) return tandem_no_memory(error, "for the rows of a sum");
    for (int row = 0; row < estimate->n_op; row++)
        share[tandem_estimate_cell(row, precision, TANDEM_F32)] = weight[row];
    const tandem_status status = tandem_estimate_sensitivity(to, estimate, share, &step, error);
    free(share);
    return status;
}

void noise_progress_add(noise_progress *progress, const cli_options *options, int64_t ns)
{
    progress->n_done++;
    progress->n_ran += ns > 0;
    progress->ran_ns += ns;
    if (progress->n_ran > 0)
        cli_progress(options, progress->ran_ns / progress->n_ran * (progress->n_job - progress->n_done),
                     "study: %s, job %d of %d", progress->part, progress->n_done, progress->n_job);
}
