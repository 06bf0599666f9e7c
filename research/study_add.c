/* study_add.c: `tandem-study add`: whether the noise of a plan is the sum of the noises of its parts.
 *
 * Plans give each operator of a task a precision at random, or fp32. Measured is the noise of a plan's
 * gradients at held weights (predictor/sampled.c), and summed are those of its parts, each alone, with the
 * same batches and draws. A part is an operator. Operators with one precision that read one input read one
 * rounded copy of it, and so one draw: together they are one part. The sum over single operators, as plans
 * are made with, is printed beside it. Intervals are the jackknife's over common replicates. For pairs of
 * operators in int8_full the same names the worst pair.
 *
 * Why tasks with relus are not additive: the first plans, and the parts of all, once more with errors times
 * a. Their noise grows with a where slopes jump, and with a² where they do not (add_law.c). Controls are the
 * same plans of the same models with gelus in the place of relus; they have no bars. */
#include <stdlib.h>

#include "research/add.h"
#include "research/work_left.h"

/* With gelus the deep mlp diverges at its rate: no control. */
static const char *const full_controls[] = {"mlp:gelu=1", NULL,
                                            "resnet20:width=8,blocks=1,image=14x14x1,gelu=1"},
                         *const quick_controls[] = {"mlp:width=32,image=14x14x1,gelu=1"};
static const add_scope full_scope = {&noise_tasks_full, 200, 16, 24, full_controls, 3, 50},
                       quick_scope = {&noise_tasks_quick, 10, 4, 4, quick_controls, 1, 10};

static void free_add_task(add_study *s)
{
    free(s->plan);
    free(s->result);
    free(s->pair);
    free(s->pairs);
    free(s->scaled.plan);
    s->plan = s->pairs = NULL;
    s->result = s->pair = NULL;
    s->scaled = (add_rows){0};
    for (int k = 0; k < ADD_N_SCALE; k++) {
        free(s->noise[k]);
        s->noise[k] = NULL;
    }
    noise_lab_close(&s->lab);
}

static tandem_status run_add_task(add_study *s, const noise_task *task, int n_plan, int seed,
                                  tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    s->progress.n_job -= add_job_count(n_plan, s->role);
    if (status != TANDEM_OK && noise_task_skip(s->report, task, status)) return TANDEM_OK;
    if (status != TANDEM_OK) *error = why;
    if (status == TANDEM_OK) status = add_plans_draw(s, n_plan, seed, error);
    s->progress.n_job += add_job_count(s->n_plan, s->role);
    if (status == TANDEM_OK) status = add_jobs_list(s, error);
    if (status == TANDEM_OK) status = add_jobs_run(s, error);
    if (status == TANDEM_OK) status = add_table_print(s, error);
    free_add_task(s);
    return status;
}

/* Says what a task has left; nothing where its data set is not here. */
static tandem_status note_add_task(add_study *s, const noise_task *task, int n_plan, int seed,
                                   tandem_error *error)
{
    tandem_error why = {0};
    tandem_status status = noise_lab_open(&s->lab, task, s->report->options, &why);
    const int is_here = status == TANDEM_OK;
    if (is_here) status = add_plans_draw(s, n_plan, seed, error);
    if (status == TANDEM_OK) status = add_jobs_list(s, error);
    if (status == TANDEM_OK) status = add_left_note(&s->left_s, s, error);
    free_add_task(s);
    return is_here ? status : TANDEM_OK; /* the run says what is wrong */
}

/* What is done with a task and its control. seed: of its plans. */
typedef tandem_status add_visit(add_study *s, const noise_task *task, int n_plan, int seed,
                                tandem_error *error);

/* Each task, and its control. */
static tandem_status visit_add_tasks(add_study *s, add_visit *visit, tandem_error *error)
{
    const add_scope *scope = s->scope;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < scope->tasks->n && status == TANDEM_OK; t++) {
        noise_task task = scope->tasks->task[t];
        s->role = t < scope->n_compared ? ADD_COMPARED : ADD_ALONE;
        status = visit(s, &task, scope->n_plan, t, error);
        if (s->role == ADD_ALONE || !scope->control[t] || status != TANDEM_OK) continue;
        s->role = ADD_CONTROL;
        task.model = scope->control[t];
        status = visit(s, &task, scope->n_control_plan, t, error);
    }
    return status;
}

static int count_add_jobs(const add_scope *scope)
{
    int n = 0;
    for (int t = 0; t < scope->tasks->n; t++) {
        n += add_job_count(scope->n_plan, t < scope->n_compared ? ADD_COMPARED : ADD_ALONE);
        if (t < scope->n_compared && scope->control[t])
            n += add_job_count(scope->n_control_plan, ADD_CONTROL);
    }
    return n;
}

tandem_status study_add(study_report *report, tandem_error *error)
{
    add_study s = {
        .report = report, .scope = study_own.quick ? &quick_scope : &full_scope, .progress = {.part = "add"}};
    const double number[] = {s.scope->n_plan, s.scope->n_replicate, ADD_PLANS_OF_JOB};
    char name[STUDY_PLAN_NAME];
    s.progress.n_job = count_add_jobs(s.scope);
    noise_plan_name(name, s.scope->tasks, "add", number, sizeof number / sizeof *number,
                    report->options->seed);
    (void)fprintf(
        report->text,
        "# Noise of a plan, and the sum over its parts\n\n"
        "Up to %d different plans of a task give each operator bf16, fp8, int8_full or fp32 at random.\n"
        "*measured*: the noise φρ of the whole plan's gradients. *summed*: those of its parts, each alone,\n"
        "with the same batches and draws. Operators that read one rounded copy are one part; *over single\n"
        "operators* counts each of them alone. *1 inside*: of the 95 %% interval of a plan's ratio.\n\n"
        "Models with gelu=1 are controls, with %d of the same plans and no bars. *Power of a*: with which\n"
        "the noise of plans grows between two scales of all errors: 1 where slopes jump, else 2. A and B of\n"
        "a part are the jumping and the smooth share of its noise, A·a + B·a².\n",
        s.scope->n_plan, s.scope->n_control_plan);
    tandem_status status =
        study_records_open(&s.records, report->options->checkpoint, name, &report->margins, error);
    if (status == TANDEM_OK && !report->options->quiet) {
        status = visit_add_tasks(&s, note_add_task, error);
        if (status == TANDEM_OK) work_left_note_all(report->options, s.left_s);
    }
    if (status == TANDEM_OK) status = visit_add_tasks(&s, run_add_task, error);
    study_records_close(&s.records);
    return status;
}
