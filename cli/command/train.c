/* train.c: `tandem train`: starts the ranks of a plan, or runs one of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/quantity.h"
#include "cli/report_files.h"
#include "cli/run_steadiness.h"
#include "cli/command/train_log.h"
#include "cli/command/train_resense.h"

/* What all ranks saw of the test samples after a number of steps. */
typedef struct evaluation {
    int64_t step; /* 0 = none yet */
    tandem_evaluation seen;
} evaluation;

typedef struct train_context {
    training_rank rank;
    tandem_arena arena; /* of the arrays below */
    const cli_options *options;
    const tandem_workload *workload;
    int64_t begin; /* steps of the run that this one resumes */
    int64_t steps; /* of this run */
    double *loss;  /* [steps] */
    rank_times times;
    step_watch watch;
    kept_steps kept;
    int64_t run_ns;             /* of all steps, with what is between them */
    run_steadiness *steadiness; /* [n_rank] on rank 0 after the end */
    rank_report *report;        /* the same */
    int64_t *task_ns;           /* [n_rank][n_task] there: medians; with --operators */
    evaluation *evaluation;     /* [n_evaluation] */
    int n_evaluation;
    int64_t pending_ns; /* the time of the last step, whose loss may be pending */
    int is_noted;       /* the executor's note was printed */
    train_log log;      /* of rank 0 */
    int watches_tasks;
    train_resense resense;
    char config_text[TANDEM_CHECKPOINT_TRAIN_CONFIG];
} train_context;

/* --- Steps ---------------------------------------------------------------------------------------------- */

static size_t training_micro_steps(const train_context *t) { return (size_t)t->rank.step->options.n_micro; }

static tandem_status allocate_step_records(train_context *t, tandem_error *error)
{
    const size_t steps = (size_t)t->steps, n_task = (size_t)t->rank.step->n_task;
    const size_t n_time = n_task * training_micro_steps(t), n_rank = (size_t)t->rank.self.n_rank;
    const int64_t every = t->options->evaluate_every;
    const size_t n_evaluation = every ? (size_t)(t->steps / every) + 2 : 1;
    tandem_arena *const a = &t->arena;
    const int is_allocated =
        (t->loss = tandem_arena_array(a, steps, sizeof *t->loss)) &&
        (t->report = tandem_arena_array(a, n_rank, sizeof *t->report)) &&
        (t->evaluation = tandem_arena_array(a, n_evaluation, sizeof *t->evaluation)) &&
        (t->times.period_ns = tandem_arena_array(a, steps, sizeof(int64_t))) &&
        (t->times.wait_ns = tandem_arena_array(a, steps, sizeof(int64_t))) &&
        (t->times.undisturbed_ns = tandem_arena_array(a, steps, sizeof(int64_t))) &&
        (t->times.busy_ns = tandem_arena_array(a, steps, sizeof(int64_t))) &&
        (t->kept.task_ns = tandem_arena_array(a, n_task * KEPT_STEPS, sizeof(int64_t))) &&
        (t->times.start_ns = tandem_arena_array(a, n_time, sizeof(int64_t))) &&
        (t->times.end_ns = tandem_arena_array(a, n_time, sizeof(int64_t))) &&
        (t->kept.task_delay_ns = tandem_arena_array(a, n_task * KEPT_STEPS, sizeof(int64_t))) &&
        (t->steadiness = tandem_arena_array(a, n_rank, sizeof *t->steadiness));
    t->kept.n_task = (int)n_task;
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "to record %lld steps", (long long)t->steps);
}

static void release_training(train_context *t)
{
    tandem_arena_free(&t->arena);
    free(t->task_ns);
    train_log_close(&t->log);
    train_resense_close(&t->resense);
    step_watch_close(&t->watch);
    training_rank_close(&t->rank);
}

static void record_step_times(train_context *t, int64_t index)
{
    const tandem_step *step = t->rank.step;
    const tandem_step_times *times = t->rank.backend->executor_times(t->rank.executor);
    int64_t wait = 0;
    for (int b = 0; b < step->n_bucket; b++) wait += times->wait_ns[b];
    const size_t n_time = (size_t)step->n_task * training_micro_steps(t);
    memcpy(t->times.start_ns, times->all_start_ns, n_time * sizeof *t->times.start_ns);
    memcpy(t->times.end_ns, times->all_end_ns, n_time * sizeof *t->times.end_ns);
    if (index >= WARM_UP_STEPS && !t->options->emulate) t->times.wait_ns[t->times.n_counted++] = wait;
}

/* Of the step that the watch has seen. */
static void record_step_period(train_context *t, int64_t index, int64_t step_ns)
{
    const int is_known = t->watch.step_delay_ns >= 0;
    const int64_t undisturbed_ns = step_ns - t->watch.step_delay_ns;
    t->times.period_ns[index] = step_ns;
    t->times.undisturbed_ns[index] = is_known ? undisturbed_ns : -1;
    t->times.busy_ns[index] = is_known ? undisturbed_ns - t->times.wait_ns[index] : -1;
    kept_steps_add(&t->kept, &t->watch, t->rank.backend->executor_times(t->rank.executor), step_ns);
}

/* Where that takes less than 0.2 % of a warm step. */
static void watch_tasks_if_cheap(train_context *t, int64_t index, int64_t step_ns)
{
    enum { TASK_COST_NS = 1000, SHARE = 500 };
    const int64_t n_task =
        (int64_t)t->rank.backend->executor_times(t->rank.executor)->n_event * t->rank.step->options.n_micro;
    if (index == WARM_UP_STEPS - 1) t->watches_tasks = n_task * TASK_COST_NS * SHARE <= step_ns;
    if (t->watches_tasks && (index == WARM_UP_STEPS - 1 || t->resense.trigger.is_observed))
        step_watch_tasks(&t->watch, t->rank.backend, t->rank.executor, 1);
}

static void show_train_progress(const train_context *t, int64_t index, int64_t begin_ns)
{
    static int64_t shown_ns;
    const int64_t now = tandem_now_ns(), done = index + 1;
    if (t->rank.self.rank != 0 || done == 0 || (now - shown_ns < INT64_C(500000000) && done < t->steps))
        return;
    shown_ns = now;
    const double rate = (double)(done * t->rank.global_batch) * 1e9 / (double)(now - begin_ns);
    cli_progress(t->options, (now - begin_ns) / done * (t->steps - done),
                 "%s: step %lld of %lld, loss %.4f, %.1f samples/s", t->workload->plan->name,
                 (long long)(t->begin + done), (long long)(t->begin + t->steps), t->loss[index], rate);
}

/* --- Between steps: accuracy, log, checkpoint ----------------------------------------------------------- */

static int is_step_due(int64_t every, int64_t done) { return every > 0 && done % every == 0; }

static double evaluation_accuracy(const evaluation *e)
{
    return e->seen.total > 0 ? (double)e->seen.correct / (double)e->seen.total : NAN;
}

/* In nats, with its standard error: of the test samples, for these weights. */
static double evaluation_loss(const evaluation *e, double *standard_error)
{
    const double n = (double)e->seen.total, mean = n > 0 ? e->seen.loss / n : NAN;
    *standard_error = n > 1 ? sqrt(fmax(e->seen.loss_square / n - mean * mean, 0) / (n - 1)) : NAN;
    return mean;
}

static tandem_status evaluate_on_ranks(train_context *t, int64_t done, tandem_error *error)
{
    const tandem_backend_api *backend = t->rank.backend;
    const int n_rank = t->rank.self.n_rank;
    evaluation own = {.step = done}, *all = calloc((size_t)n_rank, sizeof *all);
    if (!all) return tandem_no_memory(error, "for the results of %d ranks", n_rank);
    tandem_status status =
        backend->executor_evaluate(t->rank.executor, &t->rank.data, t->options->evaluate, &own.seen, error);
    if (status == TANDEM_OK) status = backend->worker_gather(t->rank.worker, &own, all, sizeof own, error);
    evaluation *sum = &t->evaluation[t->n_evaluation];
    sum->step = done;
    for (int r = 0; r < n_rank && status == TANDEM_OK; r++) {
        sum->seen.correct += all[r].seen.correct;
        sum->seen.total += all[r].seen.total;
        sum->seen.loss += all[r].seen.loss;
        sum->seen.loss_square += all[r].seen.loss_square;
    }
    if (status == TANDEM_OK) t->n_evaluation++;
    free(all);
    return status;
}

static const evaluation *last_evaluation(const train_context *t)
{
    return t->n_evaluation ? &t->evaluation[t->n_evaluation - 1] : NULL;
}

static tandem_status log_step(train_context *t, int64_t index, int64_t step_ns,
                              const tandem_step_report *report, json_t *sensed, tandem_error *error)
{
    const int64_t done = t->begin + index + 1;
    const evaluation *e = last_evaluation(t);
    const int is_evaluated = e && e->step == done;
    return train_log_add(
        &t->log,
        &(train_log_line){.step = done,
                          .loss = t->loss[index],
                          .rate = (double)train_config_rate(&t->rank.config, done - 1),
                          .step_ns = step_ns,
                          .samples_per_s = (double)t->rank.global_batch * 1e9 / (double)step_ns,
                          .report = *report,
                          .sensed = sensed,
                          .is_emulated = t->options->emulate != NULL,
                          .is_evaluated = is_evaluated,
                          .accuracy = is_evaluated ? evaluation_accuracy(e) : NAN},
        error);
}

/* The text of the plan as it is now. */
static void print_training_config(train_context *t)
{
    const tandem_data *data = t->options->data ? &t->rank.data : NULL;
    train_config_print(t->config_text, sizeof t->config_text, &t->rank.config, t->workload, t->options, data,
                       t->rank.data_hash);
    train_resense_print(t->config_text, sizeof t->config_text, &t->resense);
}

/* Senses where it is due; not after the last step, unless a checkpoint goes on from there. */
static tandem_status sense_after_step(train_context *t, int64_t done, int is_last, json_t **sensed,
                                      tandem_error *error)
{
    int is_replanned = 0;
    if (!t->resense.trigger.is_observed || (is_last && !t->options->checkpoint)) return TANDEM_OK;
    const tandem_status status = train_resense_after(&t->resense, done, &is_replanned, sensed, error);
    if (status == TANDEM_OK) print_training_config(t);
    return status;
}

/* Work after step number `index` of this run: evaluation, sensing, log, checkpoint. */
static tandem_status finish_training_step(train_context *t, int64_t index, int64_t step_ns,
                                          tandem_error *error)
{
    const cli_options *options = t->options;
    const int64_t done = t->begin + index + 1;
    const int is_last = index + 1 == t->steps, is_0 = t->rank.self.rank == 0;
    const tandem_step_report report = t->rank.backend->executor_report(t->rank.executor);
    const char *note = t->rank.backend->executor_note(t->rank.executor);
    tandem_status status = TANDEM_OK;
    if (*note && !t->is_noted) cli_note(options, "%s", note);
    t->is_noted = t->is_noted || *note;
    if (report.skipped && is_0)
        cli_note(options, "step %lld: gradients overflow at loss scale %g; the update is skipped",
                 (long long)done, (double)report.loss_scale);
    if (options->data && options->evaluate > 0 && (is_step_due(options->evaluate_every, done) || is_last)) {
        status = evaluate_on_ranks(t, done, error);
        if (status == TANDEM_OK && is_0 && options->evaluate_every)
            cli_note(options, "step %lld: loss %.4f, accuracy %.1f%%", (long long)done, t->loss[index],
                     100 * evaluation_accuracy(last_evaluation(t)));
    }
    json_t *sensed = NULL;
    if (status == TANDEM_OK) status = sense_after_step(t, done, is_last, &sensed, error);
    if (status == TANDEM_OK && is_0) status = log_step(t, index, step_ns, &report, sensed, error);
    if (status == TANDEM_OK && options->checkpoint &&
        (is_step_due(options->checkpoint_every, done) || is_last))
        status = t->rank.backend->executor_save(t->rank.executor, options->checkpoint, done, t->config_text,
                                                error);
    if (status == TANDEM_OK && options->export && is_last)
        status = t->rank.backend->executor_export(t->rank.executor, options->export, error);
    return status;
}

/* Whether something behind step number `index` of this run uses its weights, or may begin to look on. */
static int is_step_used(const train_context *t, int64_t index)
{
    const cli_options *options = t->options;
    const int64_t done = t->begin + index + 1;
    return index + 1 == t->steps || index == WARM_UP_STEPS - 1 ||
           (options->data && options->evaluate > 0 && is_step_due(options->evaluate_every, done)) ||
           (options->checkpoint && is_step_due(options->checkpoint_every, done));
}

/* Runs step number `index` of this run. Its loss is then known, or pending. That of the step before is known:
 * its line of the log is written, whatever becomes of this one. */
static tandem_status run_training_step(train_context *t, int64_t index, tandem_error *error)
{
    const tandem_backend_api *backend = t->rank.backend;
    double loss = NAN;
    const int was_pending = backend->executor_is_pending(t->rank.executor);
    tandem_status status = backend->executor_step(t->rank.executor, t->begin + index, &loss, error);
    if (status != TANDEM_OK) return status;
    if (was_pending) {
        t->loss[index - 1] = loss;
        status = finish_training_step(t, index - 1, t->pending_ns, error);
    }
    if (!backend->executor_is_pending(t->rank.executor))
        t->loss[index] = loss;
    else if (status == TANDEM_OK && is_step_used(t, index))
        status = backend->executor_settle(t->rank.executor, &t->loss[index], error);
    return status;
}

/* The work behind step number `index`, unless its loss is pending: behind such a step there is no more than
 * its line of the log. */
static tandem_status finish_known_step(train_context *t, int64_t index, int64_t step_ns, tandem_error *error)
{
    t->pending_ns = step_ns;
    return t->rank.backend->executor_is_pending(t->rank.executor)
               ? TANDEM_OK
               : finish_training_step(t, index, step_ns, error);
}

static tandem_status run_training_steps(train_context *t, tandem_error *error)
{
    const tandem_backend_api *backend = t->rank.backend;
    const int64_t begin_ns = tandem_now_ns();
    for (int64_t index = 0; index < t->steps; index++) {
        const int64_t step = t->begin + index;
        resense_trigger_before(&t->resense.trigger, step + 1);
        backend->executor_set_rate(t->rank.executor, train_config_rate(&t->rank.config, step));
        step_watch_begin(&t->watch);
        /* work between steps counts for none of them */
        const int64_t before = tandem_now_ns();
        tandem_status status = run_training_step(t, index, error);
        if (status != TANDEM_OK) return status;
        const int64_t step_ns = tandem_now_ns() - before;
        step_watch_end(&t->watch);
        record_step_times(t, index);
        watch_tasks_if_cheap(t, index, step_ns);
        if (index >= WARM_UP_STEPS) record_step_period(t, index - WARM_UP_STEPS, step_ns);
        status = finish_known_step(t, index, step_ns, error);
        if (status == TANDEM_OK) status = kept_steps_pulse(&t->kept, &t->watch, &t->rank, error);
        if (status != TANDEM_OK) return status;
        show_train_progress(t, index - backend->executor_is_pending(t->rank.executor), begin_ns);
    }
    t->run_ns = tandem_now_ns() - begin_ns;
    return TANDEM_OK;
}

/* --- Report --------------------------------------------------------------------------------------------- */

static tandem_status gather_task_times(train_context *t, tandem_error *error)
{
    const size_t n_task = (size_t)t->rank.step->n_task;
    int64_t *mine = calloc(n_task, sizeof *mine);
    t->task_ns = calloc(n_task * (size_t)t->rank.self.n_rank, sizeof *t->task_ns);
    tandem_status status = TANDEM_OK;
    if (!mine || !t->task_ns) status = tandem_no_memory(error, "for the times of %zu tasks", n_task);
    for (size_t k = 0; k < n_task && status == TANDEM_OK; k++) mine[k] = kept_steps_task_ns(&t->kept, (int)k);
    if (status == TANDEM_OK)
        status =
            t->rank.backend->worker_gather(t->rank.worker, mine, t->task_ns, n_task * sizeof *mine, error);
    free(mine);
    return status;
}

static int64_t median_of_samples(int64_t *ns, int64_t n, int64_t *p10, int64_t *p90)
{
    tandem_cost cost;
    tandem_cost_from_samples(&cost, ns, n, 0);
    if (p10) *p10 = cost.p10_ns;
    if (p90) *p90 = cost.p90_ns;
    return cost.median_ns;
}

static tandem_status gather_rank_reports(train_context *t, tandem_error *error)
{
    rank_times *times = &t->times;
    const tandem_backend_api *backend = t->rank.backend;
    const tandem_memory *memory = backend->executor_memory(t->rank.executor);
    rank_report mine = {.allocated_bytes = backend->executor_allocated_bytes(t->rank.executor),
                        .planned_bytes = memory->peak,
                        .evaluation_bytes = memory->evaluation,
                        .resident_bytes = backend->executor_resident_bytes(t->rank.executor)};
    if (times->n_counted > 0) {
        mine.period_ns = median_of_samples(times->period_ns, times->n_counted, &mine.p10_ns, &mine.p90_ns);
        mine.wait_ns = median_of_samples(times->wait_ns, times->n_counted, NULL, NULL);
        mine.undisturbed_ns = median_of_samples(times->undisturbed_ns, times->n_counted, NULL, NULL);
        mine.busy_ns = median_of_samples(times->busy_ns, times->n_counted, NULL, NULL);
    }
    tandem_status status = backend->worker_gather(t->rank.worker, &mine, t->report, sizeof mine, error);
    run_steadiness *own = status == TANDEM_OK ? malloc(sizeof *own) : NULL;
    if (status == TANDEM_OK && !own) status = tandem_no_memory(error, "for the kept steps");
    if (status == TANDEM_OK) {
        kept_steps_read(&t->kept, &t->watch, t->run_ns, own);
        status = backend->worker_gather(t->rank.worker, own, t->steadiness, sizeof *own, error);
    }
    free(own);
    return status == TANDEM_OK && t->options->per_operator ? gather_task_times(t, error) : status;
}

static double final_accuracy(const train_context *t)
{
    const evaluation *last = last_evaluation(t);
    return last ? evaluation_accuracy(last) : NAN;
}

static double training_samples_per_s(const train_context *t)
{
    return t->report[0].period_ns > 0 ? (double)t->rank.global_batch * 1e9 / (double)t->report[0].period_ns
                                      : NAN;
}

static json_t *train_rank_json(const train_context *t, int r)
{
    const rank_report *report = &t->report[r];
    const tandem_cluster_class *class =
        &t->workload->cluster.classes[tandem_cluster_class_of(&t->workload->cluster, r)];
    json_t *row = json_pack(
        "{s:i,s:s,s:I,s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:o}", "rank", r, "device", class->device.name, "batch",
        (json_int_t) class->batch, "step_ns", (json_int_t)report->period_ns, "wait_ns",
        (json_int_t)report->wait_ns, "undisturbed_ns", cli_json_known_integer(report->undisturbed_ns),
        "busy_ns", cli_json_known_integer(report->busy_ns), "planned_bytes",
        (json_int_t)report->planned_bytes, "allocated_bytes", (json_int_t)report->allocated_bytes,
        "evaluation_bytes", (json_int_t)report->evaluation_bytes, "resident_bytes",
        cli_json_known_integer(report->resident_bytes));
    json_object_set_new(row, "steadiness", run_steadiness_json(&t->steadiness[r]));
    json_t *tasks = t->task_ns ? json_array() : NULL;
    for (int k = 0; tasks && k < t->rank.step->n_task; k++)
        json_array_append_new(tasks, json_integer(t->task_ns[r * t->rank.step->n_task + k]));
    if (tasks) json_object_set_new(row, "task_ns", tasks);
    return row;
}

static json_t *train_ranks_json(const train_context *t)
{
    json_t *ranks = json_array();
    for (int r = 0; r < t->rank.self.n_rank; r++) json_array_append_new(ranks, train_rank_json(t, r));
    return ranks;
}

static json_t *train_operators_json(const train_context *t)
{
    json_t *operators = json_array();
    const tandem_step *step = t->rank.step;
    const int64_t *start_ns = t->times.start_ns + (training_micro_steps(t) - 1) * (size_t)step->n_task;
    for (int k = 0; k < step->n_task; k++) {
        const tandem_task *task = &step->task[k];
        if (!task->active || task->kind == TANDEM_TASK_REDUCE || !t->times.n_counted) continue;
        json_array_append_new(operators,
                              json_pack("{s:i,s:s,s:s,s:I,s:I}", "task", k, "operator",
                                        task->op >= 0 ? step->graph->op[task->op].name : "", "kind",
                                        tandem_task_kind_name(task->kind), "start_ns",
                                        (json_int_t)start_ns[k], "measured_ns", (json_int_t)t->task_ns[k]));
    }
    return operators;
}

static json_t *evaluations_json(const train_context *t)
{
    json_t *evaluations = json_array();
    for (int k = 0; k < t->n_evaluation; k++) {
        const evaluation *e = &t->evaluation[k];
        double standard_error = 0;
        const double loss = evaluation_loss(e, &standard_error);
        json_array_append_new(evaluations, json_pack("{s:I,s:o,s:o,s:o}", "step", (json_int_t)e->step,
                                                     "accuracy", cli_json_number(evaluation_accuracy(e)),
                                                     "loss", cli_json_number(loss), "loss_error",
                                                     cli_json_number(standard_error)));
    }
    return evaluations;
}

static json_t *train_result_json(const train_context *t)
{
    json_t *loss = json_array();
    for (int64_t i = 0; i < t->steps; i++) json_array_append_new(loss, cli_json_number(t->loss[i]));
    const int64_t step_ns = t->options->emulate ? -1 : t->report[0].period_ns;
    json_t *result = cli_json_new("train");
    json_object_set_new(result, "plan", json_string(t->workload->plan->name));
    json_object_set_new(result, "model", json_string(t->workload->graph[0]->model));
    json_object_set_new(result, "emulated", json_boolean(t->options->emulate != NULL));
    json_object_set_new(result, "steps", json_integer(t->steps));
    json_object_set_new(result, "resumed_at", json_integer(t->begin));
    json_object_set_new(result, "loss", loss);
    json_object_set_new(result, "accuracy", cli_json_number(final_accuracy(t)));
    json_object_set_new(result, "evaluations", evaluations_json(t));
    if (t->resense.trigger.every > 0) json_object_set(result, "sensed", t->resense.event);
    json_object_set_new(result, "samples_per_s", cli_json_number(training_samples_per_s(t)));
    json_object_set_new(result, "step_ns", cli_json_known_integer(step_ns));
    json_object_set_new(result, "step_p10_ns", json_integer(t->report[0].p10_ns));
    json_object_set_new(result, "step_p90_ns", json_integer(t->report[0].p90_ns));
    json_object_set_new(result, "ranks", train_ranks_json(t));
    if (t->options->per_operator) json_object_set_new(result, "operators", train_operators_json(t));
    return result;
}

static void print_train_rank(const train_context *t, int r)
{
    tandem_quantity step = {"-"}, wait = {"-"}, resident = {"-"};
    const rank_report *report = &t->report[r];
    if (t->times.n_counted > 0) {
        step = tandem_quantity_ns(report->period_ns);
        wait = tandem_quantity_ns(report->wait_ns);
    }
    if (report->resident_bytes >= 0) resident = tandem_quantity_bytes((uint64_t)report->resident_bytes);
    printf("%-6d %-18s %12s %12s %12s %12s\n", r,
           t->workload->cluster.classes[tandem_cluster_class_of(&t->workload->cluster, r)].device.name,
           step.text, wait.text, tandem_quantity_bytes(report->allocated_bytes).text, resident.text);
}

static int print_train_text(const train_context *t)
{
    cli_progress_end();
    printf("%s, %s\n", t->workload->graph[0]->model, t->workload->plan->name);
    printf("%-6s %-18s %12s %12s %12s %12s\n", "rank", "device", "step", "idle", "memory", "resident");
    for (int r = 0; r < t->rank.self.n_rank; r++) print_train_rank(t, r);
    printf("loss %.4f after step %lld, %.4f after step %lld", t->loss[0], (long long)t->begin + 1,
           t->loss[t->steps - 1], (long long)(t->begin + t->steps));
    if (t->times.n_counted > 0)
        printf("; %.1f samples/s", training_samples_per_s(t));
    else if (t->options->emulate)
        printf("; emulated, so it has no times");
    else
        printf("; no times: the first %d steps are warm-up", WARM_UP_STEPS);
    const double accuracy = final_accuracy(t);
    if (isfinite(accuracy)) printf("; accuracy %.1f%%", 100 * accuracy);
    putchar('\n');
    return 0;
}

/* --- Trace: one representative rank a class ------------------------------------------------------------- */

static int collect_trace_events(tandem_trace_event *event, const tandem_step *step, const int64_t *start_ns,
                                const int64_t *end_ns)
{
    int n = 0;
    for (int k = 0; k < step->n_task * step->options.n_micro; k++)
        if (step->task[k % step->n_task].active && end_ns[k] > 0)
            event[n++] = (tandem_trace_event){start_ns[k], end_ns[k], k % step->n_task};
    return n;
}

static tandem_status write_train_tracks(const train_context *t, const int64_t *all, tandem_error *error)
{
    const size_t n_time = (size_t)t->rank.step->n_task * training_micro_steps(t);
    tandem_trace_track track[TANDEM_MAX_CLASS] = {0};
    training_rank other[TANDEM_MAX_CLASS] = {0};
    tandem_trace_event *event = calloc(n_time * (size_t)t->workload->cluster.n_class, sizeof *event);
    tandem_status status = event ? TANDEM_OK : tandem_no_memory(error, "for the trace");
    int rank = 0;
    for (int c = 0; c < t->workload->cluster.n_class && status == TANDEM_OK; c++) {
        const tandem_cluster_class *class = &t->workload->cluster.classes[c];
        other[c].class_index = c;
        status = training_rank_open_step(&other[c], t->workload, t->options, error);
        if (status != TANDEM_OK) break;
        tandem_trace_event *mine = event + (size_t)c * n_time;
        const int64_t *times = all + (size_t)rank * 2 * n_time;
        track[c] =
            (tandem_trace_track){.device = class->device.name,
                                 .made = cli_made(),
                                 .rank = rank,
                                 .n_rank = class->n_rank,
                                 .step = other[c].step,
                                 .event = mine,
                                 .n_event = collect_trace_events(mine, other[c].step, times, times + n_time),
                                 .is_measured = 1};
        rank += class->n_rank;
    }
    if (status == TANDEM_OK)
        status = tandem_trace_write(t->options->trace, t->workload->plan->name, track,
                                    t->workload->cluster.n_class, error);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) tandem_step_close(other[c].step);
    free(event);
    return status;
}

static tandem_status write_train_trace(train_context *t, tandem_error *error)
{
    const size_t n_time = (size_t)t->rank.step->n_task * training_micro_steps(t);
    int64_t *mine = malloc(2 * n_time * sizeof *mine);
    int64_t *all = malloc(2 * n_time * sizeof *all * (size_t)t->rank.self.n_rank);
    tandem_status status = mine && all ? TANDEM_OK : tandem_no_memory(error, "for the trace");
    if (status == TANDEM_OK) {
        memcpy(mine, t->times.start_ns, n_time * sizeof *mine);
        memcpy(mine + n_time, t->times.end_ns, n_time * sizeof *mine);
        status = t->rank.backend->worker_gather(t->rank.worker, mine, all, 2 * n_time * sizeof *mine, error);
    }
    if (status == TANDEM_OK && t->rank.self.rank == 0) status = write_train_tracks(t, all, error);
    free(all);
    free(mine);
    return status;
}

/* --- The command ---------------------------------------------------------------------------------------- */

static tandem_status check_training_options(const cli_options *options, tandem_error *error)
{
    if (options->evaluate_every && (!options->data || options->evaluate == 0))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--eval-every needs test samples: give --data, and --eval above 0");
    if (options->checkpoint_every && !options->checkpoint)
        return tandem_error_set(error, TANDEM_USAGE, "--checkpoint-every needs --checkpoint FILE");
    if (!options->emulate && cli_option_given(options, OPTION_ERROR_SCALE))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--error-scale scales emulated errors: give --emulate, too");
    if (options->emulate && (options->per_operator || options->trace))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--emulate and %s contradict each other: an emulated step has no times",
                                options->trace ? "--trace" : "--operators");
    if (options->init && options->resume)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--init and --resume contradict each other: a checkpoint has its own weights");
    return TANDEM_OK;
}

static tandem_status check_checkpoint_step(const tandem_checkpoint_info *info, const cli_options *options,
                                           tandem_error *error)
{
    if (info->step < options->steps) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "'%.200s' already has %lld steps, and --steps counts from the first. Use more",
                            options->resume, (long long)info->step);
}

/* Checks the files to read and to write. */
static tandem_status check_training_files(const tandem_workload *workload, const tandem_backend_api *backend,
                                          const cli_options *options, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (options->resume) {
        tandem_checkpoint_info info;
        status = backend->checkpoint_inspect(&info, options->resume, workload->graph[0], error);
        if (status == TANDEM_OK) status = check_checkpoint_step(&info, options, error);
    }
    if (status == TANDEM_OK && options->init)
        status = backend->tensors_inspect(options->init, workload->graph[0], error);
    const char *const written[] = {options->checkpoint, options->export, options->trace, options->report};
    for (int k = 0; k < 4 && status == TANDEM_OK; k++) {
        tandem_file file = {0};
        if (!written[k]) continue;
        status = tandem_file_open(&file, written[k], error);
        tandem_file_discard(&file);
    }
    if (status == TANDEM_OK && options->log) {
        train_log log;
        status = train_log_open(&log, options->log, 1, error); /* keeps existing lines for now */
        train_log_close(&log);
    }
    return status;
}

/* Checks what can be wrong before ranks start. */
static tandem_status check_training(const tandem_workload *workload, const cli_options *options,
                                    tandem_error *error)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        const tandem_status status = cli_device_require(workload->cluster.classes[c].device.name, error);
        if (status != TANDEM_OK) return status;
    }
    const tandem_backend_api *backend = cli_backend(error);
    if (!backend) return TANDEM_MISSING;
    train_config how;
    tandem_status status = train_config_open(&how, workload->graph[0], options, error);
    if (status == TANDEM_OK) status = train_resense_check(options, workload, error);
    if (status == TANDEM_OK) status = check_training_files(workload, backend, options, error);
    tandem_data data = {0};
    if (status == TANDEM_OK && options->data)
        status = training_rank_open_data(&data, backend, workload, options, error);
    backend->data_close(&data);
    return status;
}

/* Loads the checkpoint or the initial weights, if given. */
static tandem_status begin_training(train_context *t, tandem_error *error)
{
    const cli_options *options = t->options;
    print_training_config(t);
    t->steps = options->steps;
    if (options->init) return t->rank.backend->executor_import(t->rank.executor, options->init, error);
    if (!options->resume) return TANDEM_OK;
    tandem_checkpoint_info info;
    tandem_status status = t->rank.backend->executor_restore(t->rank.executor, options->resume, &info, error);
    if (status == TANDEM_OK) status = check_checkpoint_step(&info, options, error);
    if (status != TANDEM_OK) return status;
    status = train_resense_restore(&t->resense, options->resume, info.train_config, error);
    if (status != TANDEM_OK) return status;
    print_training_config(t);
    t->begin = info.step;
    t->steps -= info.step;
    if (t->rank.self.rank != 0) return TANDEM_OK;
    cli_note(options, "resumes after step %lld from '%s'", (long long)info.step, options->resume);
    train_config_note_changes(options, info.train_config, t->config_text);
    return TANDEM_OK;
}

static tandem_status train_as_rank(train_context *t, const cli_rank *self, tandem_error *error)
{
    const int class = tandem_cluster_class_of(&t->workload->cluster, self->rank);
    tandem_status status = step_watch_open(&t->watch, t->workload->cluster.classes[class].device.name, error);
    if (status == TANDEM_OK) status = training_rank_open(&t->rank, t->workload, t->options, self, error);
    if (status == TANDEM_OK) status = step_watch_set_tasks(&t->watch, t->rank.step->n_task, error);
    if (status == TANDEM_OK)
        status = train_resense_open(&t->resense, t->options, t->workload, &t->rank, error);
    if (status == TANDEM_OK) status = begin_training(t, error);
    if (status == TANDEM_OK) status = allocate_step_records(t, error);
    if (status == TANDEM_OK && self->rank == 0)
        status = train_log_open(&t->log, t->options->log, t->begin > 0, error);
    if (status == TANDEM_OK) status = run_training_steps(t, error);
    if (status == TANDEM_OK) status = gather_rank_reports(t, error);
    if (status == TANDEM_OK && t->options->trace) status = write_train_trace(t, error);
    return status;
}

static int write_train_page(const train_context *t)
{
    tandem_error error = {0};
    report_page page = {0};
    const cli_options *const options = t->options;
    const tandem_workload *const workload = t->workload;
    tandem_status status = cli_report_add_result(&page, train_result_json(t), "train", &error);
    if (status == TANDEM_OK)
        status = cli_report_add_plan(&page, options, workload->plan, &workload->cluster, workload->graph[0],
                                     0, &error);
    if (status == TANDEM_OK && options->trace && strcmp(options->trace, "-") != 0)
        status = cli_report_add_trace(&page, options->trace, "the last step", &error);
    return cli_report_finish(&page, options, status, &error);
}

static int run_train(const cli_options *given)
{
    cli_options options = *given;
    if (options.steps < 0) options.steps = 100;
    if (options.evaluate < 0) options.evaluate = 2000;
    /* sensing looks between tasks, and may change the plan behind any step */
    options.late_results = !cli_option_given(&options, OPTION_RESENSE);
    /* a plan of the launcher, e.g. a job scheduler */
    const char *planned = getenv("TANDEM_PLAN");
    if (!options.plan && !options.model && planned && *planned) options.plan = planned;
    tandem_error error = {0};
    cli_rank self;
    tandem_workload workload = {0};
    const int joined = cli_rank_from_environment(&self, &error);
    if (joined < 0 || check_training_options(&options, &error) != TANDEM_OK) return cli_fail(&error);
    if (cli_workload_open(&workload, &options, &error) != TANDEM_OK) return cli_fail(&error);
    int code = 0;
    if (!joined) {
        if (check_training(&workload, &options, &error) != TANDEM_OK)
            code = cli_fail(&error);
        else
            code = cli_ranks_start(tandem_cluster_n_rank(&workload.cluster), &options);
        tandem_workload_close(&workload);
        return code;
    }
    if (self.rank == 0) cli_note_unproven_bound(&options, workload.plan);
    train_context t = {
        .options = &options, .workload = &workload, .log = {.file = -1}, .watch.probe.file = -1};
    if (train_as_rank(&t, &self, &error) != TANDEM_OK)
        code = cli_fail_on_rank(self.rank, &error);
    else if (self.rank == 0)
        code = options.json ? cli_print_json(train_result_json(&t)) : print_train_text(&t);
    if (code == 0 && self.rank == 0 && options.report) code = write_train_page(&t);
    release_training(&t);
    tandem_workload_close(&workload);
    return code;
}

static const int options[] = {OPTION_PLAN,
                              OPTION_MODEL,
                              OPTION_SET,
                              OPTION_LOSS,
                              OPTION_CLUSTER,
                              OPTION_DEVICE,
                              OPTION_UNIFORM,
                              OPTION_BATCH,
                              OPTION_DATA,
                              OPTION_SEED,
                              OPTION_STEPS,
                              OPTION_EVALUATE,
                              OPTION_MEMORY,
                              OPTION_BUCKET,
                              OPTION_WIRE,
                              OPTION_TIMEOUT,
                              OPTION_OPERATORS,
                              OPTION_TRACE,
                              OPTION_RATE,
                              OPTION_SCHEDULE,
                              OPTION_WARMUP,
                              OPTION_DECAY,
                              OPTION_MOMENTUM,
                              OPTION_BETAS,
                              OPTION_ALLOW_NAN,
                              OPTION_LOG,
                              OPTION_EVALUATE_EVERY,
                              OPTION_CHECKPOINT,
                              OPTION_CHECKPOINT_EVERY,
                              OPTION_RESUME,
                              OPTION_RESENSE,
                              OPTION_MAX_SENSITIVITY,
                              OPTION_NO_DECAY,
                              OPTION_CLIP,
                              OPTION_LABEL_SMOOTHING,
                              OPTION_LOSS_SCALE,
                              OPTION_INIT,
                              OPTION_EXPORT,
                              OPTION_ACCUMULATE,
                              OPTION_RECOMPUTE,
                              OPTION_AMAX,
                              OPTION_DB,
                              OPTION_QUIET,
                              OPTION_REPORT,
                              OPTION_EMULATE,
                              OPTION_ERROR_SCALE,
                              OPTION_DATA_SEED,
                              OPTION_ROUNDING_SEED,
                              OPTION_END};
const cli_command command_train = {
    .name = "train",
    .words = "",
    .summary = "Train under a plan: start local ranks, or join a run",
    .option = options,
    .joins_run = 1,
    .description =
        "Examples:\n"
        "  tandem train --model vit_tiny --cluster \"cpu:avx2 + cpu:sse41\" --data fashion-mnist --steps "
        "100\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 100 --trace step.json\n"
        "  tandem train --model mlp --device cpu:sse41 --uniform int8 --data fashion-mnist --steps 50\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 5000 --lr 1e-3 --schedule cosine \\\n"
        "    --warmup 200 --checkpoint run.ckpt --checkpoint-every 500 --log run.jsonl --eval-every 500\n"
        "  tandem train --model vit_tiny:dropout=0.1 --device cpu:avx2 --data fashion-mnist --clip 1 \\\n"
        "    --label-smoothing 0.1 --init begin.safetensors --export end.safetensors\n"
        "  tandem train --model vit_tiny --device cpu:avx2 --batch 8 --accumulate 16 --recompute sqrt "
        "--data fashion-mnist\n"
        "  tandem train --model resnet20 --device strongest --uniform int8 --amax delayed --data "
        "fashion-mnist\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 60000 --resense --max-sensitivity 2%\n"
        "A run with --checkpoint run.ckpt continues from there with --resume run.ckpt, with the same bits.\n"
        "Learning rate of step s = 0, 1, ... of N steps with W warm-up steps and peak rate r:\n"
        "  warm-up  r (s+1)/W;  linear  r (N-s)/(N-W);  cosine  r/2 (1 + cos(pi (s-W)/(N-W)));\n"
        "  step  r, r/10 from N/2 on, r/100 from 3N/4 on.\n"
        "--accumulate N takes N batches of every rank per step and updates once, with the mean gradient.\n"
        "--recompute drops activations and computes them again: less memory, the same bits, more time.\n"
        "--amax delayed takes the range of a cast to int8 from the last 16 casts of the same tensor, in "
        "one pass\n"
        "instead of two. delayed:window=N,margin=M uses 2^M times the largest of the last N. Larger "
        "values clamp.\n"
        "On several machines, for each rank: RANK=r WORLD_SIZE=n TANDEM_STORE=/shared/fresh/dir tandem "
        "train ...\n"
        "LOCAL_RANK selects the core. Without --data, inputs are noise, good only for timing. If a rank "
        "fails, the\n"
        "others stop with exit code 6. If the loss or a gradient is not finite, all stop with exit code 1.",
    .run = run_train,
};
