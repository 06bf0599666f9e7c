/* compare_case.c: predicts a plan's step, runs it, and holds both against each other. */
#include "runtime/compare/compare_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/process/process.h"
#include "runtime/workload_planner.h"

enum { STEPS = 30, MIN_STEPS = 3 }; /* the first two are warm-up */

/* --- Predicting ------------------------------------------------------------------------------- */

static tandem_status predict_task_times(tandem_compare_result *out, const tandem_replayer *replayer,
                                        tandem_error *error)
{
    const tandem_step *step = tandem_replayer_step(replayer, 0);
    out->task = calloc((size_t)step->n_task, sizeof *out->task);
    if (!out->task) return tandem_no_memory(error, "for the times of %d tasks", step->n_task);
    out->n_task = step->n_task;
    for (int t = 0; t < step->n_task; t++)
        out->task[t] = (tandem_compare_task){
            .op = step->task[t].op,
            .kind = tandem_task_kind_name(step->task[t].kind),
            .stream = step->task[t].stream == TANDEM_STREAM_COMM ? "communication" : "compute"};
    for (int c = 0; c < out->n_class; c++) {
        int n_event = 0;
        const tandem_trace_event *event = tandem_replayer_events(replayer, c, &n_event);
        for (int e = 0; e < n_event; e++) /* of the last micro-step, as measured */
            if (event[e].task >= 0)
                out->task[event[e].task].class_predicted_ns[c] = event[e].end_ns - event[e].start_ns;
    }
    return TANDEM_OK;
}

static tandem_status predict(tandem_compare_result *out, const tandem_compare_request *request,
                             const tandem_workload *workload, tandem_error *error)
{
    tandem_compare_result made = {.n_class = workload->cluster.n_class,
                                  .error = NAN,
                                  .sensitivity_bound = NAN,
                                  .samples_per_s = NAN,
                                  .first_loss = NAN,
                                  .final_loss = NAN,
                                  .accuracy = NAN};
    tandem_planner *planner = NULL;
    tandem_replay replay;
    const unsigned flags = TANDEM_REPLAY_MEMORY | TANDEM_REPLAY_EVENTS;
    /* Comparing times needs no statistics; without them the sensitivity is unknown. */
    tandem_status status = workload_planner_open(&planner, workload, &request->train, 0, NULL);
    const int is_scored = status == TANDEM_OK;
    if (!is_scored) status = workload_planner_open(&planner, workload, &request->train, 1, error);
    if (status != TANDEM_OK) return status;
    const tandem_allocation_problem *problem = tandem_planner_problem(planner);
    status = tandem_replayer_run(problem->replayer, &replay, flags, error);
    if (status == TANDEM_OK) status = predict_task_times(&made, problem->replayer, error);
    if (status == TANDEM_OK) {
        (void)snprintf(made.plan, sizeof made.plan, "%s", workload->plan->name);
        made.predicted_ns = replay.step_ns;
        if (is_scored)
            made.sensitivity_bound =
                tandem_sensitivity_value(problem, tandem_allocation_sensitivity(problem));
        for (int c = 0; c < made.n_class; c++) {
            tandem_compare_class *class = &made.classes[c];
            (void)snprintf(class->device, sizeof class->device, "%s",
                           workload->cluster.classes[c].device.name);
            class->n_rank = workload->cluster.classes[c].n_rank;
            class->predicted_peak_bytes = replay.classes[c].peak_bytes;
            /* the executor cannot distinguish a bucket in transfer from an unfinished one of another rank */
            class->predicted_wait_ns = replay.classes[c].exposed_comm_ns + replay.classes[c].wait_ns;
        }
    }
    tandem_planner_close(planner);
    if (status == TANDEM_OK)
        *out = made;
    else
        tandem_compare_result_free(&made);
    return status;
}

/* --- Measuring -------------------------------------------------------------------------------- */

/* Adds one rank's part to the mean of its class. */
static void add_class_tasks(tandem_compare_result *out, int c, const tandem_train_result *run, size_t r)
{
    const int64_t *task_ns = run->task_ns + r * (size_t)run->n_task;
    for (int t = 0; t < out->n_task && t < run->n_task; t++)
        out->task[t].class_measured_ns[c] += task_ns[t] / out->classes[c].n_rank;
}

static void add_rank_bytes(tandem_compare_class *class, const tandem_rank_report *rank, int is_first)
{
    const uint64_t bytes = rank->allocated_bytes - rank->evaluation_bytes;
    if (bytes > class->allocated_peak_bytes) class->allocated_peak_bytes = bytes;
    if (rank->evaluation_bytes > class->evaluation_bytes) class->evaluation_bytes = rank->evaluation_bytes;
    if (is_first || rank->resident_bytes > class->resident_peak_bytes)
        class->resident_peak_bytes = rank->resident_bytes;
}

/* Ranks are numbered class by class. */
static void take_rank_reports(tandem_compare_result *out, const tandem_train_result *run)
{
    size_t r = 0;
    for (int c = 0; c < out->n_class; c++) {
        tandem_compare_class *class = &out->classes[c];
        int64_t wait_ns = 0, busy_ns = 0;
        for (int k = 0; k < class->n_rank; k++, r++) {
            const tandem_rank_report *rank = &run->rank[r];
            add_rank_bytes(class, rank, k == 0);
            wait_ns += rank->wait_ns;
            busy_ns = rank->busy_ns < 0 || busy_ns < 0 ? -1 : busy_ns + rank->busy_ns;
            if (r == 0 || rank->undisturbed_ns < out->undisturbed_ns)
                out->undisturbed_ns = rank->undisturbed_ns;
            add_class_tasks(out, c, run, r);
        }
        class->measured_wait_ns = wait_ns / class->n_rank;
        class->measured_busy_ns = busy_ns < 0 ? -1 : busy_ns / class->n_rank;
    }
}

/* Of rank 0. */
static void take_measured_tasks(tandem_compare_result *out, const tandem_train_result *run)
{
    for (int t = 0; t < out->n_task && t < run->n_task; t++) {
        if (!run->task[t].is_active || tandem_task_is_collective(run->task[t].kind) || run->n_timed == 0)
            continue;
        out->task[t].measured_ns = run->task_ns[t];
        out->task[t].measured_start_ns = run->task[t].start_ns;
    }
}

/* Takes what a comparison keeps of a run, which loses its steadiness. */
static void take_run(tandem_compare_result *out, tandem_train_result *run)
{
    const tandem_rank_report *first = &run->rank[0];
    out->n_rank = run->n_rank;
    out->steps = run->steps;
    out->measured_ns = first->period_ns;
    out->measured_p10_ns = first->p10_ns;
    out->measured_p90_ns = first->p90_ns;
    if (out->measured_ns > 0)
        out->error = (double)(out->predicted_ns - out->measured_ns) / (double)out->measured_ns;
    out->samples_per_s = run->samples_per_s;
    out->accuracy = run->accuracy;
    out->first_loss = run->loss[0];
    out->final_loss = run->loss[run->steps - 1];
    take_rank_reports(out, run);
    take_measured_tasks(out, run);
    out->steadiness = run->steadiness;
    run->steadiness = NULL;
}

/* --- Replaying what was measured -------------------------------------------------------------- */

/* An all-reduce includes the wait for other ranks, so the rank that waits least gives its time. */
static int64_t min_class_ns(const tandem_compare_result *out, int t)
{
    int64_t min = out->task[t].class_measured_ns[0];
    for (int c = 1; c < out->n_class; c++)
        if (out->task[t].class_measured_ns[c] < min) min = out->task[t].class_measured_ns[c];
    return min;
}

static void set_measured_time(tandem_replayer *replayer, const tandem_compare_result *out, int c, int t)
{
    const tandem_task *task = &tandem_replayer_step(replayer, c)->task[t];
    const int is_reduce = tandem_task_is_collective(task->kind);
    const int64_t ns = is_reduce ? min_class_ns(out, t) : out->task[t].class_measured_ns[c];
    if (!task->active || ns <= 0) return;
    for (int contended = 0; contended < 2; contended++)
        tandem_replayer_set_variant_ns(replayer, c, t, is_reduce ? 0 : task->variant, contended, ns);
}

static tandem_status resimulate(tandem_compare_result *out, const tandem_compare_request *request,
                                const tandem_workload *workload, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_replay replay;
    if (!request->per_task) return TANDEM_OK;
    tandem_status status = workload_planner_open(&planner, workload, &request->train, 1, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    /* finds which variant of each task the plan has */
    status = tandem_replayer_run(replayer, &replay, 0, error);
    for (int c = 0; c < out->n_class && status == TANDEM_OK; c++)
        for (int t = 0; t < out->n_task; t++) set_measured_time(replayer, out, c, t);
    if (status == TANDEM_OK) status = tandem_replayer_run(replayer, &replay, 0, error);
    tandem_planner_close(planner);
    if (status != TANDEM_OK) return status;
    out->resimulated_ns = replay.step_ns;
    for (int c = 0; c < out->n_class; c++) out->classes[c].resimulated_busy_ns = replay.classes[c].busy_ns;
    return status;
}

/* --- Measuring costs again ---------------------------------------------------------------------- */

static tandem_status predict_remeasured(tandem_compare_result *out, const char *store,
                                        const tandem_compare_request *request,
                                        const tandem_workload *workload, tandem_error *error)
{
    tandem_train_request train = request->train;
    tandem_planner *planner = NULL;
    tandem_replay replay;
    train.store = store;
    tandem_status status = workload_planner_open(&planner, workload, &train, 1, error);
    if (status != TANDEM_OK) return status;
    status = tandem_replayer_run(tandem_planner_problem(planner)->replayer, &replay, 0, error);
    tandem_planner_close(planner);
    if (status == TANDEM_OK) out->remeasured_ns = replay.step_ns;
    return status;
}

/* The costs of the plan alone: that of a request without a plan is uniform. */
static tandem_profile_request profile_of(const tandem_compare_request *request, const char *store)
{
    tandem_profile_request profile = {.workload = request->train.workload,
                                      .listener = request->train.listener,
                                      .store = store,
                                      .data = request->train.data,
                                      .bucket_bytes = request->train.bucket_bytes};
    if (!profile.workload.plan && !profile.workload.uniform) profile.workload.uniform = "fp32";
    return profile;
}

static tandem_status remeasure(tandem_compare_result *out, const tandem_compare_request *request,
                               const tandem_workload *workload, tandem_error *error)
{
    char store[SCRATCH_STORE];
    tandem_profile_result measured = {.n_rank = 0};
    tandem_status status = scratch_store_make(store, error);
    if (status != TANDEM_OK) return status;
    const tandem_profile_request profile = profile_of(request, store);
    status = tandem_profile(&measured, &profile, error);
    if (status == TANDEM_OK) status = predict_remeasured(out, store, request, workload, error);
    tandem_profile_result_free(&measured);
    scratch_store_remove(store);
    return status;
}

/* --- Keeping ---------------------------------------------------------------------------------- */

static tandem_status store_task_events(const tandem_compare_result *out, tandem_store *store, int64_t run_id,
                                       tandem_error *error)
{
    tandem_event_record *event = calloc((size_t)out->n_task, sizeof *event);
    int n = 0;
    if (!event) return tandem_no_memory(error, "for %d events", out->n_task);
    for (int t = 0; t < out->n_task; t++) {
        const tandem_compare_task *task = &out->task[t];
        if (task->measured_ns > 0)
            event[n++] = (tandem_event_record){.rank = 0,
                                               .task = t,
                                               .op = task->op,
                                               .kind = task->kind,
                                               .stream = task->stream,
                                               .start_ns = task->measured_start_ns,
                                               .duration_ns = task->measured_ns};
    }
    const tandem_status status = tandem_store_put_events(store, run_id, event, n, error);
    free(event);
    return status;
}

static tandem_status store_run(const tandem_compare_result *out, const tandem_compare_request *request,
                               const tandem_workload *workload, tandem_error *error)
{
    char cluster[1024];
    int64_t run_id = 0;
    tandem_store *store = NULL;
    char *text = tandem_plan_text(workload->plan, workload->graph[0]);
    if (!text) return tandem_no_memory(error, "for the text of the plan");
    tandem_cluster_print(cluster, sizeof cluster, &workload->cluster);
    const tandem_run_record run = {.model = workload->graph[0]->model,
                                   .cluster = cluster,
                                   .plan_name = out->plan,
                                   .plan_json = text,
                                   .graph_hash = workload->graph[0]->hash,
                                   .steps = out->steps,
                                   .predicted_ns = out->predicted_ns,
                                   .measured_ns = out->measured_ns,
                                   .sensitivity = out->sensitivity_bound,
                                   .final_loss = out->final_loss,
                                   .accuracy = out->accuracy};
    tandem_status status = tandem_store_open(&store, request->train.store, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    if (status == TANDEM_OK) status = tandem_store_put_run(store, &run, &run_id, error);
    if (status == TANDEM_OK && request->per_task) status = store_task_events(out, store, run_id, error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK && store) tandem_store_rollback(store);
    tandem_store_close(store);
    free(text);
    return status;
}

/* --- Reporting------------------------------------------------------------------------------- */

/* Other processes delay_factor the step more than the medians of its tasks. A process that never pauses is in
 * both, and then this error is too large. */
double tandem_compare_simulation_error(const tandem_compare_result *out)
{
    const double step = (double)(out->undisturbed_ns > 0 ? out->undisturbed_ns : out->measured_ns);
    return out->resimulated_ns ? ((double)out->resimulated_ns - step) / step : NAN;
}

double tandem_compare_drift(const tandem_compare_result *out)
{
    return out->remeasured_ns ? (double)(out->remeasured_ns - out->predicted_ns) / (double)out->predicted_ns
                              : NAN;
}

/* --- Public ------------------------------------------------------------------------------------- */

tandem_compare_request tandem_compare_request_default(void)
{
    tandem_compare_request request = {.train = tandem_train_request_default(), .tolerance = 0.05};
    request.train.steps = STEPS;
    request.train.evaluate = 0;
    return request;
}

/* Checks what can be wrong before anything is replayed or run. */
static tandem_status check_compare(const tandem_compare_request *request, const tandem_workload *workload,
                                   tandem_error *error)
{
    const int is_joined = request->train.place.n_rank > 0;
    if (request->train.steps < MIN_STEPS)
        return tandem_error_set(error, TANDEM_USAGE, "--steps %lld: all are warm-up steps. Use %d or more",
                                (long long)request->train.steps, MIN_STEPS);
    if (is_joined && request->remeasure)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--remeasure starts its own ranks and cannot join a run. Use `tandem profile --plan` "
            "with another --db");
    /* in a joined run each rank checks its own device */
    for (int c = 0; c < workload->cluster.n_class && !is_joined; c++) {
        const tandem_status status = runtime_device_require(workload->cluster.classes[c].device.name, error);
        if (status != TANDEM_OK) return status;
    }
    return runtime_backend(error) ? TANDEM_OK : TANDEM_MISSING;
}

/* The run has times of tasks, for the kinds of tasks that are off. out: NULL on ranks after the first. */
static tandem_status measure(tandem_compare_result *out, const tandem_compare_request *request,
                             tandem_error *error)
{
    tandem_train_request train = request->train;
    tandem_train_result run = {.n_rank = 0};
    train.per_task = 1;
    const tandem_status status = tandem_train(&run, &train, error);
    if (status == TANDEM_OK && out) take_run(out, &run);
    tandem_train_result_free(&run);
    return status;
}

static tandem_status compare_workload(tandem_compare_result *out, const tandem_compare_request *request,
                                      const tandem_workload *workload, tandem_error *error)
{
    tandem_status status = check_compare(request, workload, error);
    if (status == TANDEM_OK) status = predict(out, request, workload, error);
    if (status == TANDEM_OK) status = measure(out, request, error);
    if (status == TANDEM_OK && request->remeasure) status = remeasure(out, request, workload, error);
    if (status == TANDEM_OK) status = compare_judge(out, request, workload, error);
    if (status == TANDEM_OK) status = resimulate(out, request, workload, error);
    return status == TANDEM_OK ? store_run(out, request, workload, error) : status;
}

tandem_status tandem_compare_predict(tandem_compare_result *result, const tandem_compare_request *request,
                                     tandem_error *error)
{
    tandem_workload workload = {.loss_scale = 0};
    tandem_status status = tandem_workload_open(&workload, &request->train.workload, error);
    if (status == TANDEM_OK) status = predict(result, request, &workload, error);
    tandem_workload_close(&workload);
    return status;
}

tandem_status tandem_compare(tandem_compare_result *result, const tandem_compare_request *request,
                             tandem_error *error)
{
    tandem_workload workload = {.loss_scale = 0};
    tandem_compare_result out = {.n_class = 0};
    if (request->train.place.rank > 0) return measure(NULL, request, error);
    tandem_status status = tandem_workload_open(&workload, &request->train.workload, error);
    if (status == TANDEM_OK) status = compare_workload(&out, request, &workload, error);
    tandem_workload_close(&workload);
    if (status == TANDEM_OK)
        *result = out;
    else
        tandem_compare_result_free(&out);
    return status;
}

void tandem_compare_result_free(tandem_compare_result *out)
{
    free(out->task);
    free(out->steadiness);
    *out = (tandem_compare_result){0};
}
