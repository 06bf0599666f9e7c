/* rank_jobs.c: runs a method, or estimates the operators of a task, job by job, and keeps a record of
 * each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "research/rank.h"
#include "research/study_runs.h"

const double rank_magnified = 4;

const char rank_job_statistics[] = "by statistics and probe", rank_job_probe[] = "sensed by a probe",
           rank_job_sampled[] = "sampled";

void rank_record_name(char text[STUDY_RECORD_NAME], const rank_study *s, int p, const char *what)
{
    (void)snprintf(text, STUDY_RECORD_NAME, "%s: %s: %s", s->lab.task->model,
                   tandem_precision_get(noise_precisions[p])->name, what);
}

void rank_oracle_record_name(char text[STUDY_RECORD_NAME], const rank_study *s, int p, double error_scale)
{
    char what[64];
    (void)snprintf(what, sizeof what, "oracle, errors × %g", error_scale);
    rank_record_name(text, s, p, what);
}

static tandem_status run_statistics_job(rank_study *s, tandem_error *error)
{
    const int n = RANK_N_METHOD * s->lab.n_op;
    char name[STUDY_RECORD_NAME];
    int n_found = 0;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        rank_record_name(name, s, p, rank_job_statistics);
        n_found += study_records_find(s->result[p].value, n, &s->records, name);
    }
    const int64_t begin_ns = tandem_now_ns();
    tandem_status status = TANDEM_OK;
    if (n_found < NOISE_N_PRECISION) {
        for (int p = 0; p < NOISE_N_PRECISION; p++)
            memset(s->result[p].value, 0, (size_t)n * sizeof *s->result[p].value);
        status = rank_look_at_task(s, error);
    }
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK && n_found < NOISE_N_PRECISION; p++) {
        rank_record_name(name, s, p, rank_job_statistics);
        status = study_records_add(&s->records, name, s->result[p].value, n, error);
    }
    noise_progress_add(&s->progress, s->report->options,
                       n_found < NOISE_N_PRECISION ? tandem_now_ns() - begin_ns : 0);
    return status;
}

static tandem_status estimate_task(tandem_estimate *estimate, const rank_study *s, int p, int first, int n,
                                   double error_scale, tandem_error *error)
{
    estimate_request request = {.n_point = s->lab.task->n_point,
                                .n_replicate = n,
                                .first_replicate = first,
                                .precision = tandem_precision_get(noise_precisions[p])->name,
                                .emulation = tandem_emulation_make(0)};
    request.emulation.error_scale = error_scale;
    memcpy(request.point, s->lab.task->point, sizeof s->lab.task->point);
    return estimate_by_options(estimate, &s->lab.workload, &s->lab.options, &request, error);
}

/* Noises of all operators, then of their differences the half intervals. */
static tandem_status measure_pairs(double *noise, const rank_study *s, int p, const tandem_estimate *estimate,
                                   tandem_error *error)
{
    const int n = s->lab.n_op;
    double *weight = calloc((size_t)estimate->n_op, sizeof *weight), *half = noise + n;
    tandem_sensitivity_estimate of = {0};
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for pairs of operators");
    for (int i = 0; i < n && status == TANDEM_OK; i++) {
        weight[s->lab.op[i]] = 1;
        status = noise_of_rows(&of, estimate, noise_precisions[p], weight, s->lab.task->batch, error);
        noise[i] = of.noise;
        for (int j = i + 1; j < n && status == TANDEM_OK; j++) {
            weight[s->lab.op[j]] = -1;
            status = noise_of_rows(&of, estimate, noise_precisions[p], weight, s->lab.task->batch, error);
            *half++ = of.noise_half;
            weight[s->lab.op[j]] = 0;
        }
        weight[s->lab.op[i]] = 0;
    }
    free(weight);
    return status;
}

void rank_count_distinguished(rank_result *result, int n_op)
{
    const double *noise = result->noise, *half = noise + n_op;
    result->n_pair = rank_pair_count(n_op);
    result->n_distinguished = 0;
    for (int i = 0; i < n_op; i++)
        for (int j = i + 1; j < n_op; j++) result->n_distinguished += fabs(noise[i] - noise[j]) > *half++;
}

int rank_has_few_distinguished(const rank_result *result)
{
    return result->n_distinguished < study_margin.rank_least_told * result->n_pair;
}

static tandem_status run_oracle_job(rank_study *s, int p, double error_scale, tandem_error *error)
{
    const int n = s->lab.n_op + rank_pair_count(s->lab.n_op);
    char name[STUDY_RECORD_NAME];
    tandem_estimate estimate = {0};
    rank_oracle_record_name(name, s, p, error_scale);
    s->result[p].error_scale = error_scale;
    int64_t took_ns = 0;
    if (!study_records_find(s->result[p].noise, n, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status =
            estimate_task(&estimate, s, p, s->plan->n_sampled, s->plan->n_oracle, error_scale, error);
        if (status == TANDEM_OK) status = measure_pairs(s->result[p].noise, s, p, &estimate, error);
        tandem_estimate_close(&estimate);
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, s->result[p].noise, n, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    rank_count_distinguished(&s->result[p], s->lab.n_op);
    return TANDEM_OK;
}

/* What `--sensitivity sampled` says, and its noise alone, [2 × n_op]. */
static tandem_status read_sampled(double *value, const rank_study *s, int p, const tandem_estimate *estimate,
                                  tandem_error *error)
{
    double *weight = calloc((size_t)estimate->n_op, sizeof *weight);
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for the rows of operators");
    for (int k = 0; k < s->lab.n_op && status == TANDEM_OK; k++) {
        tandem_sensitivity_estimate of = {0};
        weight[s->lab.op[k]] = 1;
        status = noise_of_rows(&of, estimate, noise_precisions[p], weight, s->lab.task->batch, error);
        weight[s->lab.op[k]] = 0;
        value[k] = of.value;
        value[s->lab.n_op + k] = of.noise;
    }
    free(weight);
    return status;
}

static tandem_status run_sampled_job(rank_study *s, int p, tandem_error *error)
{
    const int n = 2 * s->lab.n_op;
    double *value = s->result[p].value + rank_method_find("sampled") * s->lab.n_op; /* its noise is next */
    char name[STUDY_RECORD_NAME];
    tandem_estimate estimate = {0};
    int64_t took_ns = 0;
    rank_record_name(name, s, p, rank_job_sampled);
    if (!study_records_find(value, n, &s->records, name)) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = estimate_task(&estimate, s, p, 0, s->plan->n_sampled, 1, error);
        if (status == TANDEM_OK) status = read_sampled(value, s, p, &estimate, error);
        tandem_estimate_close(&estimate);
        if (status == TANDEM_OK) status = study_records_add(&s->records, name, value, n, error);
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

/* All precisions at once, as `tandem sensitivity` estimates them; converted to the task's batch. */
static tandem_status estimate_by_probe(rank_study *s, tandem_error *error)
{
    estimate_request request = estimate_request_probe(&s->lab.workload);
    double *weight = calloc((size_t)s->lab.workload.graph[0]->n_op, sizeof *weight);
    tandem_estimate estimate = {0};
    request.n_point = s->lab.task->n_point;
    memcpy(request.point, s->lab.task->point, sizeof s->lab.task->point);
    tandem_status status =
        weight ? estimate_by_options(&estimate, &s->lab.workload, &s->lab.options, &request, error)
               : tandem_no_memory(error, "for the rows of operators");
    for (int i = 0; i < NOISE_N_PRECISION * s->lab.n_op && status == TANDEM_OK; i++) {
        const int p = i / s->lab.n_op, k = i % s->lab.n_op;
        tandem_sensitivity_estimate of = {0};
        weight[s->lab.op[k]] = 1;
        status = noise_of_rows(&of, &estimate, noise_precisions[p], weight, s->lab.task->batch, error);
        weight[s->lab.op[k]] = 0;
        s->result[p].value[rank_method_find("sensed_probe") * s->lab.n_op + k] = of.noise;
    }
    tandem_estimate_close(&estimate);
    free(weight);
    return status;
}

static tandem_status run_probe_job(rank_study *s, tandem_error *error)
{
    const int n = s->lab.n_op, m = rank_method_find("sensed_probe");
    char name[STUDY_RECORD_NAME];
    int n_found = 0;
    int64_t took_ns = 0;
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        rank_record_name(name, s, p, rank_job_probe);
        n_found += study_records_find(s->result[p].value + m * n, n, &s->records, name);
    }
    if (n_found < NOISE_N_PRECISION) {
        const int64_t begin_ns = tandem_now_ns();
        tandem_status status = estimate_by_probe(s, error);
        for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++) {
            rank_record_name(name, s, p, rank_job_probe);
            status = study_records_add(&s->records, name, s->result[p].value + m * n, n, error);
        }
        if (status != TANDEM_OK) return status;
        took_ns = tandem_now_ns() - begin_ns;
    }
    noise_progress_add(&s->progress, s->report->options, took_ns);
    return TANDEM_OK;
}

tandem_status rank_jobs_run(rank_study *s, tandem_error *error)
{
    tandem_status status = run_statistics_job(s, error);
    if (status == TANDEM_OK) status = run_probe_job(s, error);
    for (int p = 0; p < NOISE_N_PRECISION && status == TANDEM_OK; p++) {
        status = run_sampled_job(s, p, error);
        if (status == TANDEM_OK) status = run_oracle_job(s, p, 1, error);
        if (status == TANDEM_OK && rank_has_few_distinguished(&s->result[p])) {
            s->progress.n_job++;
            status = run_oracle_job(s, p, rank_magnified, error);
        }
    }
    return status;
}
