/* train.c: trains under a plan: as one rank, or by starting all of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/quantity.h"
#include "runtime/listener.h"
#include "runtime/process/ranks.h"
#include "runtime/recipe_note.h"
#include "runtime/train/run_steadiness.h"
#include "runtime/train/train_log.h"
#include "runtime/train/train_reestimate.h"
#include "runtime/train/train_sharding.h"
#include "runtime/unused_formats.h"
#include "tandem/advanced/trace.h"

/* What all ranks saw of the test samples after a number of steps. */
typedef struct evaluation {
    int64_t step; /* 0 = none yet */
    tandem_evaluation seen;
} evaluation;

typedef struct train_context {
    training_rank rank;
    tandem_arena arena; /* of the arrays below */
    const tandem_train_request *request;
    const tandem_workload *workload;
    int64_t begin; /* steps of the run that this one resumes */
    int64_t steps; /* of this run */
    double *loss;  /* [steps] */
    rank_times times;
    step_watch watch;
    kept_steps kept;
    int64_t run_ns;             /* of all steps, with what is between them */
    run_steadiness *steadiness; /* [n_rank] on rank 0 after the end */
    tandem_rank_report *report; /* the same */
    int64_t *task_ns;           /* [n_rank][n_task] there: medians; with per_task */
    evaluation *evaluation;     /* [n_evaluation] */
    int n_evaluation;
    evaluation in_precision; /* the last one again, with the request's evaluate_in */
    int64_t pending_ns;      /* the time of the last step, whose loss may be pending */
    int is_noted;            /* the executor's note was printed */
    train_log log;           /* of rank 0 */
    int watches_tasks;
    train_reestimate reestimate;
    char config_text[TANDEM_CHECKPOINT_TRAIN_CONFIG];
} train_context;

/* --- Steps ---------------------------------------------------------------------------------------------- */

static size_t training_micro_steps(const train_context *t) { return (size_t)t->rank.step->options.n_micro; }

static tandem_status allocate_step_records(train_context *t, tandem_error *error)
{
    const size_t steps = (size_t)t->steps, n_task = (size_t)t->rank.step->n_task;
    const size_t n_time = n_task * training_micro_steps(t), n_rank = (size_t)t->rank.self.n_rank;
    const int64_t every = t->request->evaluate_every;
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
    train_reestimate_close(&t->reestimate);
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
    if (index >= WARM_UP_STEPS && !t->request->workload.emulate)
        t->times.wait_ns[t->times.n_counted++] = wait;
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
    if (t->watches_tasks && (index == WARM_UP_STEPS - 1 || t->reestimate.trigger.is_observed))
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
    runtime_progress(&t->request->listener, (now - begin_ns) / done * (t->steps - done),
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

static tandem_status evaluate_on_ranks(evaluation *sum, train_context *t, int64_t done, tandem_error *error)
{
    const tandem_backend_api *backend = t->rank.backend;
    const int n_rank = t->rank.self.n_rank;
    evaluation own = {.step = done}, *all = calloc((size_t)n_rank, sizeof *all);
    if (!all) return tandem_no_memory(error, "for the results of %d ranks", n_rank);
    tandem_status status =
        backend->executor_evaluate(t->rank.executor, &t->rank.data, t->request->evaluate, &own.seen, error);
    if (status == TANDEM_OK) status = backend->worker_gather(t->rank.worker, &own, all, sizeof own, error);
    sum->step = done;
    for (int r = 0; r < n_rank && status == TANDEM_OK; r++) {
        sum->seen.correct += all[r].seen.correct;
        sum->seen.total += all[r].seen.total;
        sum->seen.loss += all[r].seen.loss;
        sum->seen.loss_square += all[r].seen.loss_square;
    }
    free(all);
    return status;
}

static const evaluation *last_evaluation(const train_context *t)
{
    return t->n_evaluation ? &t->evaluation[t->n_evaluation - 1] : NULL;
}

static tandem_status log_step(train_context *t, int64_t index, int64_t step_ns,
                              const tandem_step_report *report, json_t *estimate, tandem_error *error)
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
                          .estimate = estimate,
                          .is_emulated = t->request->workload.emulate != NULL,
                          .is_evaluated = is_evaluated,
                          .accuracy = is_evaluated ? evaluation_accuracy(e) : NAN},
        error);
}

/* The text of the plan as it is now. */
static void print_training_config(train_context *t)
{
    const tandem_data *data = t->request->data ? &t->rank.data : NULL;
    train_config_print(t->config_text, sizeof t->config_text, &t->rank.config, t->workload, t->request, data,
                       t->rank.data_hash);
    train_reestimate_print(t->config_text, sizeof t->config_text, &t->reestimate);
}

/* Estimates where it is due; not after the last step, unless a checkpoint goes on from there. */
static tandem_status estimate_after_step(train_context *t, int64_t done, int is_last, json_t **estimate,
                                         tandem_error *error)
{
    int is_replanned = 0;
    if (!t->reestimate.trigger.is_observed || (is_last && !t->request->checkpoint)) return TANDEM_OK;
    const tandem_status status = train_reestimate_after(&t->reestimate, done, &is_replanned, estimate, error);
    if (status == TANDEM_OK) print_training_config(t);
    return status;
}

/* The weights at the end again, all in one precision. The rank's plan is that from here on. */
static tandem_status evaluate_in_precision(train_context *t, tandem_error *error)
{
    const tandem_workload *workload = t->workload;
    tandem_plan *uniform = NULL;
    tandem_precision precision;
    tandem_status status = tandem_precision_find(&precision, t->request->evaluate_in, error);
    if (status == TANDEM_OK)
        status = tandem_plan_open(&uniform, workload->graph[0], &workload->cluster, "evaluated", error);
    for (int c = 0; c < workload->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_plan_uniform(uniform, workload->graph[c], c, precision, error);
    if (status == TANDEM_OK)
        status = training_rank_change_plan(&t->rank, workload, t->request, &uniform->assignment,
                                           t->begin + t->steps, error);
    if (status == TANDEM_OK) status = evaluate_on_ranks(&t->in_precision, t, t->begin + t->steps, error);
    tandem_plan_close(uniform);
    return status;
}

/* Work after step number `index` of this run: evaluation, estimate, log, checkpoint. */
static tandem_status finish_training_step(train_context *t, int64_t index, int64_t step_ns,
                                          tandem_error *error)
{
    const tandem_train_request *request = t->request;
    const int64_t done = t->begin + index + 1;
    const int is_last = index + 1 == t->steps, is_0 = t->rank.self.rank == 0;
    const tandem_step_report report = t->rank.backend->executor_report(t->rank.executor);
    const char *note = t->rank.backend->executor_note(t->rank.executor);
    tandem_status status = TANDEM_OK;
    if (*note && !t->is_noted) runtime_note(&request->listener, "%s", note);
    t->is_noted = t->is_noted || *note;
    if (report.skipped && is_0)
        runtime_note(&request->listener,
                     "step %lld: gradients overflow at loss scale %g; the update is skipped", (long long)done,
                     (double)report.loss_scale);
    if (request->data && request->evaluate > 0 && (is_step_due(request->evaluate_every, done) || is_last)) {
        status = evaluate_on_ranks(&t->evaluation[t->n_evaluation], t, done, error);
        t->n_evaluation += status == TANDEM_OK;
        if (status == TANDEM_OK && is_0 && request->evaluate_every)
            runtime_note(&request->listener, "step %lld: loss %.4f, accuracy %.1f%%", (long long)done,
                         t->loss[index], 100 * evaluation_accuracy(last_evaluation(t)));
    }
    json_t *estimate = NULL;
    if (status == TANDEM_OK) status = estimate_after_step(t, done, is_last, &estimate, error);
    if (status == TANDEM_OK && is_0) status = log_step(t, index, step_ns, &report, estimate, error);
    if (status == TANDEM_OK && request->checkpoint &&
        (is_step_due(request->checkpoint_every, done) || is_last))
        status = t->rank.backend->executor_save(t->rank.executor, request->checkpoint, done, t->config_text,
                                                error);
    if (status == TANDEM_OK && request->exported && is_last)
        status = t->rank.backend->executor_export(t->rank.executor, request->exported, error);
    return status;
}

/* Whether a later reader needs the weights of step number `index` of this run. */
static int is_step_used(const train_context *t, int64_t index)
{
    const tandem_train_request *request = t->request;
    const int64_t done = t->begin + index + 1;
    return index + 1 == t->steps || index == WARM_UP_STEPS - 1 ||
           (request->data && request->evaluate > 0 && is_step_due(request->evaluate_every, done)) ||
           (request->checkpoint && is_step_due(request->checkpoint_every, done));
}

/* Runs step number `index` of this run. Its loss is then known, or pending. That of the step before is known:
 * its line of the log is written, also where this one fails. */
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

/* The work after step number `index`. If its loss is pending, only the line of the log remains. */
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
        reestimate_trigger_before(&t->reestimate.trigger, step + 1);
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
        if (status == TANDEM_OK) status = kept_steps_take_speed_sample(&t->kept, &t->watch, &t->rank, error);
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
    const tandem_cluster_class *class = &t->workload->cluster.classes[t->rank.class_index];
    tandem_rank_report mine = {.batch = class->batch,
                               .allocated_bytes = backend->executor_allocated_bytes(t->rank.executor),
                               .planned_bytes = memory->peak,
                               .evaluation_bytes = memory->evaluation,
                               .resident_bytes = backend->executor_resident_bytes(t->rank.executor)};
    (void)snprintf(mine.device, sizeof mine.device, "%s", class->device.name);
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
    return status == TANDEM_OK && t->request->per_task ? gather_task_times(t, error) : status;
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
        status = training_rank_open_step(&other[c], t->workload, t->request, error);
        if (status != TANDEM_OK) break;
        tandem_trace_event *mine = event + (size_t)c * n_time;
        const int64_t *times = all + (size_t)rank * 2 * n_time;
        track[c] =
            (tandem_trace_track){.device = class->device.name,
                                 .made = t->request->made,
                                 .rank = rank,
                                 .n_rank = class->n_rank,
                                 .step = other[c].step,
                                 .event = mine,
                                 .n_event = collect_trace_events(mine, other[c].step, times, times + n_time),
                                 .is_measured = 1};
        rank += class->n_rank;
    }
    if (status == TANDEM_OK)
        status = tandem_trace_write(t->request->trace, t->workload->plan->name, track,
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

/* --- Checks and beginning ------------------------------------------------------------------------------- */

static tandem_status check_train_request(const tandem_train_request *request, tandem_error *error)
{
    if (request->steps < 1)
        return tandem_error_set(error, TANDEM_USAGE, "a training of %lld steps: it takes 1 or more",
                                (long long)request->steps);
    if (request->evaluate_every && (!request->data || request->evaluate == 0))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--eval-every needs test samples: give --data, and --eval above 0");
    if (request->evaluate_in &&
        (!request->data || request->evaluate == 0 || request->reestimate || !request->evaluate_in_plan))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "an evaluation in %s needs data, test samples, and a plan that does not change",
            request->evaluate_in);
    if (request->checkpoint_every && !request->checkpoint)
        return tandem_error_set(error, TANDEM_USAGE, "--checkpoint-every needs --checkpoint FILE");
    if (!request->workload.emulate && request->error_scale != 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--error-scale scales emulated errors: give --emulate, too");
    if (request->workload.emulate && (request->per_task || request->trace))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--emulate and %s contradict each other: an emulated step has no times",
                                request->trace ? "--trace" : "--operators");
    if (request->init && request->resume)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--init and --resume contradict each other: a checkpoint has its own weights");
    return TANDEM_OK;
}

static tandem_status check_checkpoint_step(const tandem_checkpoint_info *info,
                                           const tandem_train_request *request, tandem_error *error)
{
    if (info->step < request->steps) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "'%.200s' already has %lld steps, and --steps counts from the first. Use more",
                            request->resume, (long long)info->step);
}

/* Checks the files to read and to write. */
static tandem_status check_training_files(const tandem_workload *workload, const tandem_backend_api *backend,
                                          const tandem_train_request *request, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (request->resume) {
        tandem_checkpoint_info info;
        status = backend->checkpoint_inspect(&info, request->resume, workload->graph[0], error);
        if (status == TANDEM_OK) status = check_checkpoint_step(&info, request, error);
    }
    if (status == TANDEM_OK && request->init)
        status =
            training_rank_inspect_init(backend, workload->graph[0], request->init, &request->listener, error);
    const char *const written[] = {request->checkpoint, request->exported, request->trace};
    for (int k = 0; k < 3 && status == TANDEM_OK; k++) {
        tandem_file file = {0};
        if (!written[k]) continue;
        status = tandem_file_open(&file, written[k], error);
        tandem_file_discard(&file);
    }
    if (status == TANDEM_OK && request->log) {
        train_log log;
        status = train_log_open(&log, request->log, 1, NULL, error); /* keeps existing lines for now */
        train_log_close(&log);
    }
    return status;
}

/* Checks what can be wrong before ranks start. */
static tandem_status check_training(const tandem_workload *workload, const tandem_train_request *request,
                                    tandem_error *error)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        const tandem_status status = runtime_device_require(workload->cluster.classes[c].device.name, error);
        if (status != TANDEM_OK) return status;
    }
    const tandem_backend_api *backend = runtime_backend(error);
    if (!backend) return TANDEM_MISSING;
    train_config how;
    tandem_status status = train_config_open(&how, workload->graph[0], request, error);
    tandem_sharding sharding;
    if (status == TANDEM_OK) status = train_sharding_make(&sharding, request, &workload->cluster, 0, error);
    if (status == TANDEM_OK) status = train_reestimate_check(request, workload, error);
    if (status == TANDEM_OK) status = check_training_files(workload, backend, request, error);
    tandem_data data = {0};
    if (status == TANDEM_OK && request->data)
        status = training_rank_open_data(&data, backend, workload, request->data, NULL, error);
    backend->data_close(&data);
    return status;
}

/* Loads the checkpoint or the initial weights, if given. */
static tandem_status begin_training(train_context *t, tandem_error *error)
{
    const tandem_train_request *request = t->request;
    print_training_config(t);
    t->steps = request->steps;
    if (t->rank.self.rank == 0) runtime_note_recipe(&request->listener, t->workload);
    if (request->init) return t->rank.backend->executor_import(t->rank.executor, request->init, error);
    if (!request->resume) return TANDEM_OK;
    tandem_checkpoint_info info;
    tandem_status status = t->rank.backend->executor_restore(t->rank.executor, request->resume, &info, error);
    if (status == TANDEM_OK) status = check_checkpoint_step(&info, request, error);
    if (status != TANDEM_OK) return status;
    status = train_reestimate_restore(&t->reestimate, request->resume, info.train_config, error);
    if (status != TANDEM_OK) return status;
    print_training_config(t);
    t->begin = info.step;
    t->steps -= info.step;
    if (t->rank.self.rank != 0) return TANDEM_OK;
    runtime_note(&request->listener, "resumes after step %lld from '%s'", (long long)info.step,
                 request->resume);
    train_config_note_changes(&request->listener, info.train_config, t->config_text);
    return TANDEM_OK;
}

static tandem_status train_as_rank(train_context *t, const tandem_rank_place *self, tandem_error *error)
{
    const int class = tandem_cluster_class_of(&t->workload->cluster, self->rank);
    tandem_status status = step_watch_open(&t->watch, t->workload->cluster.classes[class].device.name, error);
    if (status == TANDEM_OK) status = training_rank_open(&t->rank, t->workload, t->request, self, error);
    if (status == TANDEM_OK) status = step_watch_set_tasks(&t->watch, t->rank.step->n_task, error);
    if (status == TANDEM_OK)
        status = train_reestimate_open(&t->reestimate, t->request, t->workload, &t->rank, error);
    if (status == TANDEM_OK) status = begin_training(t, error);
    if (status == TANDEM_OK) status = allocate_step_records(t, error);
    if (status == TANDEM_OK && self->rank == 0)
        status = train_log_open(&t->log, t->request->log, t->begin > 0, t->request->made, error);
    if (status == TANDEM_OK) status = run_training_steps(t, error);
    if (status == TANDEM_OK) status = gather_rank_reports(t, error);
    if (status == TANDEM_OK && t->request->trace) status = write_train_trace(t, error);
    if (status == TANDEM_OK && t->request->evaluate_in) status = evaluate_in_precision(t, error);
    return status;
}

/* --- The result ----------------------------------------------------------------------------------------- */

static void *copy_of(const void *elements, size_t n, size_t bytes)
{
    void *const copy = n ? malloc(n * bytes) : NULL;
    if (copy) memcpy(copy, elements, n * bytes);
    return copy;
}

static tandem_train_evaluation train_evaluation(const evaluation *e)
{
    tandem_train_evaluation of = {.step = e->step, .accuracy = evaluation_accuracy(e)};
    of.loss = evaluation_loss(e, &of.loss_error);
    return of;
}

static void put_evaluations(tandem_train_result *out, const train_context *t)
{
    for (int k = 0; k < t->n_evaluation; k++) out->evaluation[k] = train_evaluation(&t->evaluation[k]);
    out->in_precision = train_evaluation(&t->in_precision);
    out->accuracy = t->n_evaluation ? out->evaluation[t->n_evaluation - 1].accuracy : NAN;
}

static int put_task_times(tandem_train_result *out, const train_context *t)
{
    if (!t->task_ns) return 1;
    const size_t n_task = (size_t)t->rank.step->n_task;
    out->n_task = (int)n_task;
    out->task_ns = copy_of(t->task_ns, n_task * (size_t)out->n_rank, sizeof *out->task_ns);
    out->task = calloc(n_task, sizeof *out->task);
    const int64_t *start_ns = t->times.start_ns + (training_micro_steps(t) - 1) * n_task;
    for (size_t k = 0; k < n_task && out->task; k++) {
        const tandem_task *task = &t->rank.step->task[k];
        out->task[k] = (tandem_train_task){task->op, (int32_t)task->kind, task->active, start_ns[k]};
    }
    return out->task_ns && out->task;
}

static tandem_status make_train_result(tandem_train_result *result, const train_context *t,
                                       tandem_error *error)
{
    const int n_rank = t->rank.self.n_rank;
    const int64_t period_ns = t->report[0].period_ns;
    tandem_train_result out = {
        .steps = t->steps,
        .resumed_at = t->begin,
        .n_timed = t->times.n_counted,
        .samples_per_s = period_ns > 0 ? (double)t->rank.global_batch * 1e9 / (double)period_ns : NAN,
        .n_evaluation = t->n_evaluation,
        .sharding = t->rank.sharding,
        .n_rank = n_rank};
    (void)snprintf(out.model, sizeof out.model, "%s", t->workload->graph[0]->model);
    (void)snprintf(out.plan, sizeof out.plan, "%s", t->workload->plan->name);
    out.loss = copy_of(t->loss, (size_t)t->steps, sizeof *t->loss);
    out.rank = copy_of(t->report, (size_t)n_rank, sizeof *t->report);
    out.steadiness = copy_of(t->steadiness, (size_t)n_rank, sizeof *t->steadiness);
    out.evaluation = calloc((size_t)t->n_evaluation + 1, sizeof *out.evaluation);
    if (t->reestimate.event)
        out.estimates = json_dumps(t->reestimate.event, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!out.loss || !out.rank || !out.steadiness || !out.evaluation || !put_task_times(&out, t) ||
        (t->reestimate.event && !out.estimates)) {
        tandem_train_result_free(&out);
        return tandem_no_memory(error, "for the result of %lld steps", (long long)t->steps);
    }
    put_evaluations(&out, t);
    *result = out;
    return TANDEM_OK;
}

void tandem_train_result_free(tandem_train_result *result)
{
    free(result->loss);
    free(result->evaluation);
    free(result->rank);
    free(result->steadiness);
    free(result->task_ns);
    free(result->task);
    free(result->estimates);
    *result = (tandem_train_result){0};
}

/* --- Between processes ---------------------------------------------------------------------------------- */

void workload_request_pack(packet *p, tandem_workload_request *request)
{
    const char **const text[] = {&request->plan,    &request->model,  &request->cluster,
                                 &request->uniform, &request->memory, &request->emulate};
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) packet_text(p, text[k]);
}

void training_options_pack(packet *p, tandem_training_options *options)
{
    packet_text(p, &options->betas);
    packet_text(p, &options->no_decay);
    packet_text(p, &options->schedule);
}

static void pack_train_request(packet *p, void *of)
{
    tandem_train_request *request = of;
    packet_value(p, request, sizeof *request);
    const char **const text[] = {&request->store,       &request->data,     &request->trace,  &request->log,
                                 &request->checkpoint,  &request->exported, &request->resume, &request->init,
                                 &request->evaluate_in, &request->shards};
    workload_request_pack(p, &request->workload);
    training_options_pack(p, &request->training);
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) packet_text(p, text[k]);
    packet_borrowed(p, (const void **)&request->made, sizeof *request->made);
}

static void pack_train_result(packet *p, tandem_train_result *result)
{
    const size_t n_rank = (size_t)result->n_rank;
    packet_value(p, result, sizeof *result);
    packet_array(p, &result->loss, (size_t)result->steps, sizeof *result->loss);
    packet_array(p, &result->evaluation, (size_t)result->n_evaluation, sizeof *result->evaluation);
    packet_array(p, &result->rank, n_rank, sizeof *result->rank);
    packet_array(p, &result->steadiness, n_rank, sizeof *result->steadiness);
    packet_array(p, &result->task_ns, n_rank * (size_t)result->n_task, sizeof *result->task_ns);
    packet_array(p, &result->task, (size_t)result->n_task, sizeof *result->task);
    packet_own_text(p, &result->estimates);
}

/* --- Public --------------------------------------------------------------------------------------------- */

tandem_training_options tandem_training_options_default(void)
{
    return (tandem_training_options){.rate = -1, .decay = -1, .momentum = -1};
}

tandem_train_request tandem_train_request_default(void)
{
    return (tandem_train_request){.steps = 100,
                                  .evaluate = 2000,
                                  .timeout_ns = INT64_C(120000000000),
                                  .error_scale = 1,
                                  .training = tandem_training_options_default(),
                                  .max_sensitivity = -1};
}

static tandem_status train_one_rank(tandem_train_result *result, const tandem_workload *workload,
                                    const tandem_train_request *request, tandem_error *error)
{
    train_context t = {.request = request, .workload = workload, .log = {.file = -1}, .watch.probe.file = -1};
    /* an estimate looks between tasks, and may change the plan after any step */
    t.rank.extra.late_results = !request->reestimate;
    tandem_status status = train_as_rank(&t, &request->place, error);
    if (status == TANDEM_OK && request->place.rank == 0) status = make_train_result(result, &t, error);
    release_training(&t);
    return status;
}

static tandem_status run_train_verb(packet *answer, void *of, const tandem_rank_place *place,
                                    const tandem_listener *listener, tandem_error *error)
{
    tandem_train_request request = *(const tandem_train_request *)of;
    tandem_train_result result = {.n_rank = 0};
    request.place = *place;
    request.listener = *listener;
    const tandem_status status = tandem_train(&result, &request, error);
    if (status == TANDEM_OK && place->rank == 0) pack_train_result(answer, &result);
    tandem_train_result_free(&result);
    return status;
}

const rank_verb train_verb = {.name = "train",
                              .request_bytes = sizeof(tandem_train_request),
                              .pack_request = pack_train_request,
                              .run = run_train_verb};

/* Starts all ranks, which the parent's checks let begin. */
static tandem_status train_on_ranks(tandem_train_result *result, const tandem_workload *workload,
                                    const tandem_train_request *request, tandem_error *error)
{
    packet answer = {0};
    tandem_train_request copy = *request;
    tandem_train_result read = {.n_rank = 0};
    tandem_status status = check_training(workload, request, error);
    if (status == TANDEM_OK)
        status = ranks_run(&answer, &train_verb, &copy, &workload->cluster,
                           tandem_cluster_n_rank(&workload->cluster), &request->listener, error);
    if (status == TANDEM_OK) {
        pack_train_result(&answer, &read);
        if (answer.has_failed) status = tandem_no_memory(error, "for the result of a training");
    }
    packet_free(&answer);
    if (status == TANDEM_OK)
        *result = read;
    else
        tandem_train_result_free(&read);
    return status;
}

tandem_status tandem_train(tandem_train_result *result, const tandem_train_request *request,
                           tandem_error *error)
{
    tandem_workload workload = {.loss_scale = 0};
    tandem_status status = check_train_request(request, error);
    if (status == TANDEM_OK) status = tandem_workload_open(&workload, &request->workload, error);
    if (status == TANDEM_OK && request->place.n_rank > 0 && request->place.rank == 0)
        note_unused_formats(&request->listener, &workload, request->workload.emulate);
    if (status == TANDEM_OK)
        status = request->place.n_rank ? train_one_rank(result, &workload, request, error)
                                       : train_on_ranks(result, &workload, request, error);
    tandem_workload_close(&workload);
    return status;
}
