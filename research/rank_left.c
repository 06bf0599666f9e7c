/* rank_left.c: which jobs of a task of `tandem-study rank` have no record, and the time that they take, by
 * trials of a training, of a probe, and of an estimate of all operators, whose precisions take turns. */
#include <stdlib.h>

#include "research/probe.h"
#include "research/rank.h"
#include "research/work_left.h"

/* Of the jobs without a record. Each trains up to the last training point. */
typedef struct rank_left {
    int n_job;
    int n_probe;                 /* of a point, for `probe` */
    int n_step;                  /* of a point: gradients of so many steps, for `sensed_probe` */
    int n_estimate, n_replicate; /* of a point: estimates of all operators in one precision, and their sum */
} rank_left;

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
        const probe_request request = {trial->at, i, 1};
        status = probe_predict(trial->sums, trial->model, &request, error);
    }
    return status;
}

/* At weights after one step: AdamW has a metric then. */
static tandem_status measure_probe_cost(work_cost *cost, const noise_lab *lab, tandem_error *error)
{
    static const int64_t point = 1;
    held_weights at = {0};
    held_model model = {0};
    probe_sums *sums = malloc(sizeof *sums);
    tandem_status status = sums ? held_weights_train(&at, &point, 1, &lab->options, error)
                                : tandem_no_memory(error, "for a probe's sums");
    if (status == TANDEM_OK) status = held_model_open(&model, &lab->options, error);
    if (status == TANDEM_OK)
        status = work_cost_measure(cost, try_rank_probes, &(probe_trial){&model, &at, sums}, 0, 1, error);
    held_model_close(&model);
    held_weights_free(&at, 1);
    free(sums);
    return status;
}

/* Of all operators of the task. */
static tandem_status measure_estimate_cost(work_cost *cost, const noise_lab *lab, tandem_error *error)
{
    const int n_op = lab->workload.graph[0]->n_op;
    tandem_precision *plan = calloc((size_t)lab->n_op * (size_t)n_op, sizeof *plan);
    if (!plan) return tandem_no_memory(error, "for the operators of a task");
    for (int k = 0; k < lab->n_op; k++) plan[k * n_op + lab->op[k]] = noise_precisions[k % NOISE_N_PRECISION];
    const estimate_request request = {.precision = tandem_precision_get(noise_precisions[0])->name,
                                      .emulation = tandem_emulation_make(0),
                                      .plan = plan,
                                      .n_plan = lab->n_op};
    const tandem_status status = work_cost_of_estimate(cost, &lab->workload, &lab->options, &request, error);
    free(plan);
    return status;
}

/* Seconds of a core, by trials. */
static tandem_status rank_left_seconds(double *seconds, const noise_lab *lab, const rank_left *left,
                                       tandem_error *error)
{
    const noise_task *task = lab->task;
    work_cost training = {0}, probe = {0}, estimate = {0};
    tandem_status status = TANDEM_OK;
    if (left->n_job > 0) status = work_cost_of_training(&training, &lab->options, task->steps, error);
    if (status == TANDEM_OK && left->n_probe > 0) status = measure_probe_cost(&probe, lab, error);
    if (status == TANDEM_OK && left->n_estimate > 0) status = measure_estimate_cost(&estimate, lab, error);
    if (status != TANDEM_OK) return status;
    const double of_point = training.unit_s * left->n_step + probe.unit_s * left->n_probe +
                            estimate.once_s * left->n_estimate + estimate.unit_s * left->n_replicate;
    *seconds =
        left->n_job * work_cost_seconds(&training, task->point[task->n_point - 1]) + task->n_point * of_point;
    return TANDEM_OK;
}

static void count_estimate_left(rank_left *left, int n_replicate)
{
    left->n_job++;
    left->n_estimate++;
    left->n_replicate += n_replicate;
}

/* An oracle with magnified errors is known of once that without them has its record. *n_all: all jobs. */
static rank_left count_rank_left(int *n_all, rank_study *s)
{
    const int n = s->lab.n_op, n_oracle = n + rank_pair_count(n);
    char name[STUDY_RECORD_NAME];
    int has_statistics = 1, has_probe = 1;
    rank_left left = {0};
    *n_all = RANK_N_TASK_JOB;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        rank_result *result = &s->result[p];
        rank_record_name(name, s, p, rank_job_statistics);
        has_statistics = has_statistics && study_records_has(&s->records, name, RANK_N_METHOD * n);
        rank_record_name(name, s, p, rank_job_probe);
        has_probe = has_probe && study_records_has(&s->records, name, n);
        rank_record_name(name, s, p, rank_job_sampled);
        if (!study_records_has(&s->records, name, 2 * n)) count_estimate_left(&left, s->plan->n_sampled);
        rank_oracle_record_name(name, s, p, 1);
        if (!study_records_find(result->noise, n_oracle, &s->records, name)) {
            count_estimate_left(&left, s->plan->n_oracle);
            continue;
        }
        rank_count_distinguished(result, n);
        if (!rank_has_few_distinguished(result)) continue;
        ++*n_all;
        rank_oracle_record_name(name, s, p, rank_magnified);
        if (!study_records_has(&s->records, name, n_oracle)) count_estimate_left(&left, s->plan->n_oracle);
    }
    left.n_job += !has_statistics + !has_probe;
    left.n_probe = has_statistics ? 0 : s->plan->n_batch;
    left.n_step = has_probe ? 0 : rank_steps_of(s, RANK_NEEDS_ESTIMATED_PROBE);
    return left;
}

tandem_status rank_left_note(double *left_s, rank_study *s, tandem_error *error)
{
    double seconds = 0;
    int n_all = 0;
    const rank_left left = count_rank_left(&n_all, s);
    const tandem_status status = rank_left_seconds(&seconds, &s->lab, &left, error);
    if (status == TANDEM_OK)
        work_left_note(s->report->options, s->lab.task->model, left.n_job, n_all, "jobs", seconds);
    *left_s += seconds;
    return status;
}
