/* add_jobs.c: estimates the plans of a task with their parts, job by job, and keeps a record of each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "research/add.h"
#include "research/study_runs.h"
#include "tandem/advanced/predictor.h"

enum { VALUES = 4 }; /* of a plan in a record */

/* --- One estimate ----------------------------------------------------------------------------------------
 * */

/* Measured over summed of one plan, from an estimate of rows that have it and its parts. */
static tandem_status compare_plan(add_result *result, add_rows *rows, const add_study *s,
                                  const tandem_estimate *estimate, const tandem_precision *plan,
                                  tandem_error *error)
{
    static const tandem_precision as = TANDEM_PRECISION_INT8_FULL;
    double *weight = calloc((size_t)rows->n, sizeof *weight);
    tandem_sensitivity_estimate whole = {0}, sum = {0}, single = {0}, difference = {0};
    if (!weight) return tandem_no_memory(error, "for the parts of a plan");
    weight[add_rows_find(rows, plan)] = 1;
    tandem_status status = noise_of_rows(&whole, estimate, as, weight, estimate->batch, error);
    memset(weight, 0, (size_t)rows->n * sizeof *weight);
    (void)add_rows_sum_parts(weight, rows, s, plan, 1);
    if (status == TANDEM_OK) status = noise_of_rows(&single, estimate, as, weight, estimate->batch, error);
    memset(weight, 0, (size_t)rows->n * sizeof *weight);
    (void)add_rows_sum_parts(weight, rows, s, plan, 0);
    if (status == TANDEM_OK) status = noise_of_rows(&sum, estimate, as, weight, estimate->batch, error);
    weight[add_rows_find(rows, plan)] -= 1;
    if (status == TANDEM_OK)
        status = noise_of_rows(&difference, estimate, as, weight, estimate->batch, error);
    free(weight);
    if (status != TANDEM_OK) return status;
    *result = (add_result){.ratio = whole.noise / sum.noise,
                           .half = difference.noise_half / sum.noise,
                           .by_operators = whole.noise / single.noise};
    for (int i = 0; i < s->lab.n_op; i++)
        for (int j = i + 1; j < s->lab.n_op; j++)
            if (plan[s->lab.op[i]] != TANDEM_PRECISION_FP32 &&
                add_plan_shares_cast(s, plan, s->lab.op[i], s->lab.op[j]))
                result->shares = 1;
    return TANDEM_OK;
}

estimate_request add_request(const add_study *s)
{
    return (estimate_request){.point = {s->lab.task->steps / 2},
                              .n_point = 1,
                              .n_replicate = s->scope->n_replicate,
                              .precision = tandem_precision_get(TANDEM_PRECISION_INT8_FULL)->name,
                              .emulation = tandem_emulation_make(0)};
}

static tandem_status estimate_rows(tandem_estimate *estimate, const add_study *s, const add_rows *rows,
                                   double error_scale, tandem_error *error)
{
    estimate_request request = add_request(s);
    request.emulation.error_scale = error_scale;
    request.plan = rows->plan;
    request.n_plan = rows->n;
    return estimate_by_options(estimate, &s->lab.workload, &s->lab.options, &request, error);
}

/* Estimates n plans with their parts. */
static tandem_status compare_plans(add_result *result, const add_study *s, const tandem_precision *plan,
                                   int n, tandem_error *error)
{
    add_rows rows;
    tandem_estimate estimate = {0};
    tandem_status status = add_rows_of_plans(&rows, s, plan, n, error);
    if (status == TANDEM_OK) status = estimate_rows(&estimate, s, &rows, 1, error);
    for (int i = 0; i < n && status == TANDEM_OK; i++)
        status = compare_plan(&result[i], &rows, s, &estimate, plan + (size_t)i * (size_t)rows.n_op, error);
    tandem_estimate_close(&estimate);
    free(rows.plan);
    return status;
}

/* The noise of each row alone. */
static tandem_status estimate_noises(double *noise, const add_study *s, const add_rows *rows,
                                     double error_scale, tandem_error *error)
{
    tandem_estimate estimate = {0};
    double *weight = calloc((size_t)rows->n, sizeof *weight);
    tandem_status status = weight ? TANDEM_OK : tandem_no_memory(error, "for the parts of plans");
    if (status == TANDEM_OK) status = estimate_rows(&estimate, s, rows, error_scale, error);
    for (int i = 0; i < rows->n && status == TANDEM_OK; i++) {
        tandem_sensitivity_estimate one = {0};
        weight[i] = 1;
        status = noise_of_rows(&one, &estimate, TANDEM_PRECISION_INT8_FULL, weight, estimate.batch, error);
        weight[i] = 0;
        noise[i] = one.noise;
    }
    tandem_estimate_close(&estimate);
    free(weight);
    return status;
}

/* --- Jobs, and their records -----------------------------------------------------------------------------
 * */

/* Adds a job. The caller names it. */
static add_job *append_job(add_study *s, const tandem_precision *plan, add_result *result, int n)
{
    add_job *job = &s->job[s->n_job++];
    *job = (add_job){.n = n, .n_value = VALUES * n, .plan = plan, .result = result, .scale = -1};
    return job;
}

/* All pairs of operators in int8_full, [n_pair × graph->n_op]. */
static tandem_precision *make_pairs(const add_study *s, int n_pair)
{
    const size_t n_op = (size_t)s->lab.workload.graph[0]->n_op;
    tandem_precision *plan = calloc((size_t)n_pair * n_op, sizeof *plan), *of = plan;
    for (int i = 0; i < s->lab.n_op && plan; i++)
        for (int j = i + 1; j < s->lab.n_op; j++, of += n_op)
            of[s->lab.op[i]] = of[s->lab.op[j]] = TANDEM_PRECISION_INT8_FULL;
    return plan;
}

static tandem_status list_pairs_job(add_study *s, tandem_error *error)
{
    const int n_pair = s->lab.n_op * (s->lab.n_op - 1) / 2;
    s->pairs = make_pairs(s, n_pair);
    s->pair = calloc((size_t)n_pair + 1, sizeof *s->pair);
    if (!s->pairs || !s->pair) return tandem_no_memory(error, "for the study's results");
    add_job *job = append_job(s, s->pairs, s->pair, n_pair);
    (void)snprintf(job->name, sizeof job->name, "%s: pairs", s->lab.task->model);
    return TANDEM_OK;
}

static tandem_status list_scale_jobs(add_study *s, tandem_error *error)
{
    int is_allocated = 1;
    s->n_scaled = s->n_plan < s->scope->n_scaled ? s->n_plan : s->scope->n_scaled;
    s->scaled.n_op = s->lab.workload.graph[0]->n_op;
    for (int i = 0; i < s->n_scaled && is_allocated; i++)
        is_allocated = add_rows_add(&s->scaled, add_plan_at(s, i)) >= 0;
    for (int i = 0; i < s->n_plan && is_allocated; i++)
        is_allocated = add_rows_sum_parts(NULL, &s->scaled, s, add_plan_at(s, i), 0);
    for (int k = 0; k < ADD_N_SCALE && is_allocated; k++) {
        add_job *job = append_job(s, NULL, NULL, 0);
        job->scale = k;
        job->n_value = s->scaled.n;
        (void)snprintf(job->name, sizeof job->name, "%s: errors × %g, %d plans and %d parts",
                       s->lab.task->model, add_scales[k], s->n_scaled, s->scaled.n - s->n_scaled);
        is_allocated = (s->noise[k] = calloc((size_t)s->scaled.n, sizeof *s->noise[k])) != NULL;
    }
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for plans and their parts");
}

/* Plans, the pairs, and each scale. */
int add_job_count(int n_plan, add_role role)
{
    return (n_plan + ADD_PLANS_OF_JOB - 1) / ADD_PLANS_OF_JOB + (role != ADD_CONTROL) +
           (role != ADD_ALONE ? ADD_N_SCALE : 0);
}

tandem_status add_jobs_list(add_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    s->n_job = 0;
    if (add_job_count(s->n_plan, s->role) > ADD_MAX_JOBS)
        return tandem_error_set(error, TANDEM_BUG, "a task of the study has %d plans", s->n_plan);
    s->result = calloc((size_t)s->n_plan + 1, sizeof *s->result);
    if (!s->result) return tandem_no_memory(error, "for the study's results");
    for (int first = 0; first < s->n_plan; first += ADD_PLANS_OF_JOB) {
        const int n = s->n_plan - first < ADD_PLANS_OF_JOB ? s->n_plan - first : ADD_PLANS_OF_JOB;
        add_job *job = append_job(s, add_plan_at(s, first), s->result + first, n);
        (void)snprintf(job->name, sizeof job->name, "%s: plans %d to %d", s->lab.task->model, first + 1,
                       first + n);
    }
    if (s->role != ADD_CONTROL) status = list_pairs_job(s, error);
    if (status == TANDEM_OK && s->role != ADD_ALONE) status = list_scale_jobs(s, error);
    return status;
}

/* Into value, [n_value]. */
static tandem_status measure_job(double *value, const add_study *s, const add_job *job, tandem_error *error)
{
    if (job->scale >= 0) return estimate_noises(value, s, &s->scaled, add_scales[job->scale], error);
    const tandem_status status = compare_plans(job->result, s, job->plan, job->n, error);
    for (int i = 0; i < job->n && status == TANDEM_OK; i++) {
        const add_result *result = &job->result[i];
        const double of[VALUES] = {result->ratio, result->half, result->by_operators, result->shares};
        memcpy(value + VALUES * i, of, sizeof of);
    }
    return status;
}

static void read_job(add_study *s, const add_job *job, const double *value)
{
    if (job->scale >= 0) memcpy(s->noise[job->scale], value, (size_t)job->n_value * sizeof *value);
    for (int i = 0; i < job->n; i++) {
        const double *of = value + VALUES * i;
        job->result[i] = (add_result){of[0], of[1], of[2], of[3]};
    }
}

static tandem_status run_add_job(add_study *s, const add_job *job, tandem_error *error)
{
    double *value = calloc((size_t)job->n_value, sizeof *value);
    int64_t took_ns = 0;
    tandem_status status = value ? TANDEM_OK : tandem_no_memory(error, "for the study's results");
    if (value && !study_records_find(value, job->n_value, &s->records, job->name)) {
        const int64_t begin_ns = tandem_now_ns();
        status = measure_job(value, s, job, error);
        if (status == TANDEM_OK)
            status = study_records_add(&s->records, job->name, value, job->n_value, error);
        took_ns = tandem_now_ns() - begin_ns;
    }
    if (status == TANDEM_OK) {
        read_job(s, job, value);
        noise_progress_add(&s->progress, s->report->options, took_ns);
    }
    free(value);
    return status;
}

tandem_status add_jobs_run(add_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < s->n_job && status == TANDEM_OK; i++) status = run_add_job(s, &s->job[i], error);
    return status;
}
