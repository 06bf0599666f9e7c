/* add_left.c: what the jobs of a task have left, before they start. A job trains up to the training point at
 * which it estimates its rows, and fp32 beside them. Trials estimate some rows of the first job. */
#include <stdlib.h>
#include <string.h>

#include "research/add.h"
#include "research/work_left.h"

enum { TRIED_ROWS = 11 };

/* Jobs without a record, and the rows that they estimate, with fp32. */
typedef struct add_left {
    int n_job, n_row;
} add_left;

static tandem_status count_left(add_left *left, const add_study *s, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < s->n_job && status == TANDEM_OK; i++) {
        const add_job *job = &s->job[i];
        add_rows rows = {.n = s->scaled.n};
        if (study_records_has(&s->records, job->name, job->n_value)) continue;
        if (job->scale < 0) status = add_rows_of_plans(&rows, s, job->plan, job->n, error);
        left->n_job++;
        left->n_row += rows.n + 1;
        free(rows.plan);
    }
    return status;
}

/* Of a replicate of one row. */
static tandem_status measure_row_cost(work_cost *cost, const add_study *s, tandem_error *error)
{
    add_rows rows;
    estimate_request request = add_request(s);
    tandem_status status = add_rows_of_plans(&rows, s, s->job[0].plan, s->job[0].n, error);
    if (status != TANDEM_OK) {
        free(rows.plan);
        return status;
    }
    const size_t n_op = (size_t)rows.n_op;
    const int n = rows.n < TRIED_ROWS ? rows.n : TRIED_ROWS;
    for (int i = 0; i < n; i++) /* from all over: plans and parts have different costs */
        memmove(rows.plan + (size_t)i * n_op, rows.plan + (size_t)(i * rows.n / n) * n_op,
                n_op * sizeof *rows.plan);
    request.plan = rows.plan;
    request.n_plan = n;
    status = work_cost_of_estimate(cost, &s->lab.workload, &s->lab.options, &request, error);
    free(rows.plan);
    cost->once_s /= n + 1;
    cost->unit_s /= n + 1;
    return status;
}

tandem_status add_left_note(double *left_s, const add_study *s, tandem_error *error)
{
    const noise_task *task = s->lab.task;
    add_left left = {0};
    work_cost training = {0}, row = {0};
    tandem_status status = count_left(&left, s, error);
    if (status == TANDEM_OK && left.n_job > 0) {
        status = work_cost_of_training(&training, &s->lab.options, task->steps, error);
        if (status == TANDEM_OK) status = measure_row_cost(&row, s, error);
    }
    if (status != TANDEM_OK) return status;
    const double seconds = left.n_job * work_cost_seconds(&training, task->steps / 2) +
                           left.n_row * work_cost_seconds(&row, s->scope->n_replicate);
    work_left_note(s->report->options, task->model, left.n_job, s->n_job, "jobs", seconds);
    *left_s += seconds;
    return TANDEM_OK;
}
