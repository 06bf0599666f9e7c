/* training.c: one training of a part of the study. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "research/trainings.h"
#include "research/study_runs.h"

tandem_status study_lab_open(study_lab *lab, const cli_options *options, tandem_error *error)
{
    cli_options smallest = *options;
    smallest.model = "mlp:width=1";
    smallest.batch = 1;
    *lab = (study_lab){.options = options, .backend = runtime_backend(error)};
    if (!lab->backend) return TANDEM_MISSING;
    tandem_status status = cli_workload_open(&lab->workload, &smallest, error);
    if (status == TANDEM_OK)
        status = lab->backend->worker_open(
            &lab->worker,
            &(tandem_worker_options){
                .device = lab->workload.cluster.classes[0].device.name, .n_rank = 1, .cpu = -1},
            error);
    if (status != TANDEM_OK) study_lab_close(lab);
    return status;
}

void study_lab_close(study_lab *lab)
{
    if (lab->worker) lab->backend->worker_close(lab->worker);
    tandem_workload_close(&lab->workload);
    *lab = (study_lab){0};
}

uint64_t study_hash_number(uint64_t hash, double x)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.17g,", x);
    return tandem_hash_text(hash, text);
}

void study_plan_name(char text[STUDY_PLAN_NAME], uint64_t hash, uint64_t seed)
{
    (void)snprintf(text, STUDY_PLAN_NAME, "%016llx, seed %llu", (unsigned long long)hash,
                   (unsigned long long)seed);
}

uint64_t study_hash_training(uint64_t hash, const study_training *training)
{
    const double number[] = {training->optimizer,      training->schedule,    training->rate,
                             (double)training->batch,  training->n_micro,     (double)training->steps,
                             (double)training->n_test, training->n_evaluation};
    hash = tandem_hash_text(hash, training->model);
    if (training->data) hash = tandem_hash_text(hash, training->data);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) hash = study_hash_number(hash, number[i]);
    return hash;
}

int study_seed_count(const cli_options *options, int n_planned)
{
    return options->repetitions > 0 && options->repetitions < n_planned ? (int)options->repetitions
                                                                        : n_planned;
}

int study_is_silent(const cli_options *options)
{
    return study_own.quick || options->quiet || study_own.recorded;
}

void study_leave_out(study_report *report, const study_training *task)
{
    json_t *left_out = json_object_get(report->json, "left_out");
    if (!left_out) {
        left_out = json_array();
        json_object_set_new(report->json, "left_out", left_out);
    }
    json_array_append_new(left_out, json_string(task->model));
    (void)fprintf(report->text, "\nLeft out, for it did not run to its end: `%s`, %s.\n", task->model,
                  tandem_optimizer_name(task->optimizer));
}

static const char *study_data_name(const study_training *training)
{
    return training->data ? training->data : STUDY_DATA;
}

tandem_status study_training_data_open(const study_training *training, tandem_error *error)
{
    tandem_graph *graph = NULL;
    tandem_status status = tandem_graph_open(&graph, training->model, training->batch, error);
    if (status == TANDEM_OK) status = study_data_open(study_data_name(training), (int)graph->length, error);
    tandem_graph_close(graph);
    return status;
}

static tandem_optimizer_options optimizer_of(const study_training *training)
{
    const float rate = (float)training->rate;
    if (training->optimizer == TANDEM_SGD)
        return (tandem_optimizer_options){.kind = TANDEM_SGD, .rate = rate, .momentum = 0.9f};
    return (tandem_optimizer_options){
        .kind = TANDEM_ADAMW, .rate = rate, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
}

tandem_status study_workload_open(tandem_workload *workload, cli_options *options, const study_lab *lab,
                                  const study_training *training, tandem_error *error)
{
    const int is_emulated = training->precision || training->op_precision;
    *options = *lab->options;
    options->model = training->model;
    options->data = study_data_name(training);
    options->steps = training->steps;
    options->batch = training->batch;
    options->step.n_micro = training->n_micro;
    options->uniform = training->precision;
    options->emulate = is_emulated ? "" : NULL;
    options->loss_scale = training->loss_scale;
    const tandem_status status = cli_workload_open(workload, options, error);
    if (status != TANDEM_OK) return status;
    const tandem_graph *graph = workload->graph[0];
    workload->graph[0]->optimizer = optimizer_of(training);
    for (int i = 0; i < graph->n_op && training->op_precision; i++)
        if (tandem_op_is_adjustable(&graph->op[i]) &&
            tandem_op_row_get(graph->op[i].kind)->precisions & 1u << training->op_precision[i])
            workload->plan->assignment.precision[0][i] = training->op_precision[i];
    return TANDEM_OK;
}

static tandem_status open_training(tandem_executor **executor, tandem_step **step, const study_lab *lab,
                                   const tandem_workload *workload, const study_training *training,
                                   tandem_error *error)
{
    const tandem_graph *graph = workload->graph[0];
    const tandem_status status =
        tandem_device_open_step(step, &workload->cluster.classes[0].device, graph, lab->options->bucket_bytes,
                                &workload->plan->step, error);
    if (status != TANDEM_OK) return status;
    tandem_step_load(*step, workload->plan->assignment.precision[0]);
    const tandem_executor_options executor_options = {
        .step = *step,
        .data = study_data(study_data_name(training)),
        .seed = training->emulation.seed,
        .emulation = workload->plan->step.emulated ? &training->emulation : NULL,
        .global_batch = graph->batch * training->n_micro,
        .optimizer = &graph->optimizer,
        .loss_scale = (float)workload->loss_scale,
        .with_evaluation = 1};
    return lab->backend->executor_open(executor, lab->worker, &executor_options, error);
}

/* Evaluations end with the last step. */
static int is_evaluated(const study_training *training, int64_t done, int64_t steps)
{
    const int64_t n = training->n_evaluation, every = steps / (4 * n);
    return done == steps || (every > 0 && (steps - done) % every == 0 && (steps - done) / every < n);
}

static tandem_status run_steps(study_trained *trained, tandem_executor *executor, const study_lab *lab,
                               const study_training *training, int64_t steps, tandem_error *error)
{
    const train_config config = {
        .optimizer = optimizer_of(training), .schedule = training->schedule, .steps = training->steps};
    const tandem_data *data = study_data(study_data_name(training));
    tandem_status status = TANDEM_OK;
    int n = 0;
    *trained = (study_trained){0};
    for (int64_t i = 0; i < steps && status == TANDEM_OK; i++) {
        double of_batch = 0;
        tandem_evaluation seen;
        lab->backend->executor_set_rate(executor, train_config_rate(&config, i));
        status = lab->backend->executor_step(executor, i, &of_batch, error);
        if (status != TANDEM_OK) break;
        trained->n_skipped += lab->backend->executor_report(executor).skipped;
        if (!is_evaluated(training, i + 1, steps)) continue;
        status = lab->backend->executor_evaluate(executor, data, training->n_test, &seen, error);
        if (status != TANDEM_OK) break;
        trained->loss += seen.loss / (double)seen.total;
        trained->accuracy += (double)seen.correct / (double)seen.total;
        n++;
    }
    trained->loss /= n;
    trained->accuracy /= n;
    return status;
}

tandem_status study_train(study_trained *trained, const study_lab *lab, const study_training *training,
                          int64_t steps, tandem_error *error)
{
    tandem_executor *executor = NULL;
    tandem_step *step = NULL;
    cli_options options;
    tandem_workload workload = {0};
    tandem_status status = study_workload_open(&workload, &options, lab, training, error);
    if (status == TANDEM_OK) status = open_training(&executor, &step, lab, &workload, training, error);
    if (status == TANDEM_OK) status = run_steps(trained, executor, lab, training, steps, error);
    if (executor) lab->backend->executor_close(executor);
    tandem_step_close(step);
    tandem_workload_close(&workload);
    return status;
}
