/* study_rank.c: `tandem-study rank`: whether methods put operators into the order of their measured noise.
 *
 * Measured is an oracle: one operator in a precision and all else in fp32, at held weights, the noise of its
 * gradients by many replicates (predictor/sampled.c). All operators have the same batches and draws. Two
 * operators are distinguished where the 95 % interval of the difference of their noises, the jackknife's over
 * common replicates, does not hold 0. Over the pairs that are distinguished, within a precision and summed
 * over precisions, Kendall's tau-b counts pairs in the measured order less those in the other one:
 *     τ = (C − D)/√((C + D + T)(C + D)),    T: pairs that the method does not distinguish.
 * The interval is the bootstrap's over operators, with the same draws for all methods. */
#include <stdlib.h>

#include "research/rank.h"
#include "research/held_model.h"
#include "research/work_left.h"

static const rank_plan full_plan = {&noise_tasks_full, 8, 48, 8, 2000},
                       quick_plan = {&noise_tasks_quick, 3, 8, 2, 200};

static tandem_status open_results(rank_study *s, tandem_error *error)
{
    const int n = s->lab.n_op;
    int is_allocated = 1;
    if (n < 2 || n > STUDY_MAX_OPERATORS)
        return tandem_error_set(error, TANDEM_BUG, "a task of the study has %d operators", n);
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        s->result[p].value = calloc((size_t)(RANK_N_METHOD * n), sizeof(double));
        s->result[p].noise = calloc((size_t)(n + rank_pair_count(n)), sizeof(double));
        is_allocated = is_allocated && s->result[p].value && s->result[p].noise;
    }
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for the study's results");
}

static void close_results(rank_study *s)
{
    for (int p = 0; p < NOISE_N_PRECISION; p++) {
        free(s->result[p].value);
        free(s->result[p].noise);
        s->result[p] = (rank_result){0};
    }
    noise_lab_close(&s->lab);
}

/* Says what a task has left, and adds its seconds to *left_s; nothing where its data set is not here. */
static tandem_status note_rank_task(double *left_s, rank_study *s, const noise_task *task,
                                    tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    const int is_here = status == TANDEM_OK;
    if (is_here) status = open_results(s, error);
    if (status == TANDEM_OK) status = rank_left_note(left_s, s, error);
    close_results(s);
    return is_here ? status : TANDEM_OK; /* the run says what is wrong */
}

static tandem_status note_rank_plan(rank_study *s, tandem_error *error)
{
    double left_s = 0;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < s->plan->tasks->n && status == TANDEM_OK; t++)
        status = note_rank_task(&left_s, s, &s->plan->tasks->task[t], error);
    if (status == TANDEM_OK) work_left_note_all(s->report->options, left_s);
    return status;
}

static tandem_status run_rank_task(rank_study *s, const noise_task *task, tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    if (status != TANDEM_OK && noise_task_skip(s->report, task, status)) {
        s->progress.n_job -= RANK_N_TASK_JOB;
        return TANDEM_OK;
    }
    if (status != TANDEM_OK) *error = why;
    if (status == TANDEM_OK) status = open_results(s, error);
    if (status == TANDEM_OK) status = rank_jobs_run(s, error);
    if (status == TANDEM_OK) status = rank_bootstrap(s, error);
    if (status == TANDEM_OK) {
        rank_table_print(s);
        s->model[s->n_task++] = task->model;
    }
    close_results(s);
    return status;
}

static tandem_status open_rank_records(rank_study *s, tandem_error *error)
{
    const rank_plan *plan = s->plan;
    const double number[] = {plan->n_sampled, plan->n_oracle, plan->n_batch};
    char name[STUDY_PLAN_NAME];
    study_margins_add(&s->report->margins, "draws", plan->n_bootstrap);
    noise_plan_name(name, plan->tasks, "rank", number, sizeof number / sizeof *number,
                    s->report->options->seed);
    return study_records_open(&s->records, s->report->options->checkpoint, name, &s->report->margins, error);
}

tandem_status study_rank(study_report *report, tandem_error *error)
{
    rank_study s = {.report = report, .plan = study_own.quick ? &quick_plan : &full_plan};
    s.progress = (noise_progress){.part = "rank", .n_job = s.plan->tasks->n * RANK_N_TASK_JOB};
    (void)fprintf(
        report->text,
        "# The order of operators\n\n"
        "One operator has a precision, all else is fp32. Measured: the noise φρ of its gradients, by %d\n"
        "replicates of two batches at each age. τ: Kendall's tau-b over the pairs of operators that this\n"
        "distinguishes, within a precision, with its 95 %% interval over operators. *steps*: what a method\n"
        "takes at one age for three precisions.\n",
        s.plan->n_oracle);
    s.room = calloc((size_t)s.plan->n_bootstrap, sizeof *s.room);
    tandem_status status = s.room ? open_rank_records(&s, error) : tandem_no_memory(error, "for a bootstrap");
    if (status == TANDEM_OK && !report->options->quiet) status = note_rank_plan(&s, error);
    for (int t = 0; t < s.plan->tasks->n && status == TANDEM_OK; t++)
        status = run_rank_task(&s, &s.plan->tasks->task[t], error);
    if (status == TANDEM_OK) rank_bars_print(&s);
    study_records_close(&s.records);
    for (int t = 0; t < NOISE_MAX_TASKS; t++) free(s.drawn[t]);
    free(s.room);
    return status;
}
