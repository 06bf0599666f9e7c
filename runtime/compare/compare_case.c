#include "cli/command/compare_case.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/prediction.h"

/* --- Predicting ------------------------------------------------------------------------------- */

static tandem_status predict_task_times(compare_case *out, const tandem_replayer *replayer,
                                        tandem_error *error)
{
    const tandem_step *step = tandem_replayer_step(replayer, 0);
    out->task = calloc((size_t)step->n_task, sizeof *out->task);
    if (!out->task) return tandem_no_memory(error, "for the times of %d tasks", step->n_task);
    out->n_task = step->n_task;
    for (int t = 0; t < step->n_task; t++)
        out->task[t] = (compare_task){.op = step->task[t].op,
                                      .kind = tandem_task_kind_name(step->task[t].kind),
                                      .stream = step->task[t].stream == TANDEM_STREAM_COMM ? "communication"
                                                                                           : "compute"};
    for (int c = 0; c < out->n_class; c++) {
        int n_event = 0;
        const tandem_trace_event *event = tandem_replayer_events(replayer, c, &n_event);
        for (int e = 0; e < n_event; e++) /* of the last micro-step, as measured */
            if (event[e].task >= 0)
                out->task[event[e].task].class_predicted_ns[c] = event[e].end_ns - event[e].start_ns;
    }
    return TANDEM_OK;
}

tandem_status compare_case_predict(compare_case *out, const cli_options *options,
                                   const tandem_workload *workload, tandem_error *error)
{
    compare_case made = {.n_class = workload->cluster.n_class,
                         .error = NAN,
                         .sensitivity = NAN,
                         .samples_per_s = NAN,
                         .first_loss = NAN,
                         .final_loss = NAN,
                         .accuracy = NAN};
    tandem_planner *planner = NULL;
    tandem_replay replay;
    const unsigned flags = TANDEM_REPLAY_MEMORY | TANDEM_REPLAY_EVENTS;
    /* Comparing times needs no statistics; without them the sensitivity is unknown. */
    tandem_status status = cli_planner_open(&planner, options, workload, 0, NULL);
    const int is_scored = status == TANDEM_OK;
    if (!is_scored) status = cli_planner_open(&planner, options, workload, 1, error);
    if (status != TANDEM_OK) return status;
    const tandem_allocation_problem *problem = tandem_planner_problem(planner);
    status =
        plan_price_load(&made.price, options, workload->plan, workload->graph[0], problem->replayer, error);
    if (status == TANDEM_OK) status = tandem_replayer_run(problem->replayer, &replay, flags, error);
    if (status == TANDEM_OK) status = predict_task_times(&made, problem->replayer, error);
    if (status == TANDEM_OK) {
        (void)snprintf(made.plan, sizeof made.plan, "%s", workload->plan->name);
        made.predicted_ns = replay.step_ns;
        if (is_scored)
            made.sensitivity = tandem_sensitivity_value(problem, tandem_allocation_sensitivity(problem));
        for (int c = 0; c < made.n_class; c++) {
            compare_class *class = &made.classes[c];
            (void)snprintf(class->device, sizeof class->device, "%s",
                           workload->cluster.classes[c].device.name);
            class->n_rank = workload->cluster.classes[c].n_rank;
            class->predicted_peak_bytes = replay.classes[c].peak_bytes;
            /* the executor cannot tell a bucket in transfer from an unfinished one of another rank */
            class->predicted_wait_ns = replay.classes[c].exposed_comm_ns + replay.classes[c].wait_ns;
        }
        *out = made;
    }
    tandem_planner_close(planner);
    return status;
}

/* --- Measuring -------------------------------------------------------------------------------- */

enum { MAX_ARGUMENTS = 32, NUMBER_TEXT = 32 };

typedef struct command_line {
    const char *argument[MAX_ARGUMENTS];
    int n;
    char number[8][NUMBER_TEXT];
    int n_number;
} command_line;

static void append_argument(command_line *line, const char *option, const char *value)
{
    line->argument[line->n++] = option;
    if (value) line->argument[line->n++] = value;
}

static void append_number(command_line *line, const char *option, uint64_t value, const char *unit)
{
    char *text = line->number[line->n_number++];
    (void)snprintf(text, NUMBER_TEXT, "%" PRIu64 "%s", value, unit);
    append_argument(line, option, text);
}

static void append_real(command_line *line, const char *option, double x)
{
    char *text = line->number[line->n_number++];
    (void)snprintf(text, NUMBER_TEXT, "%.17g", x);
    append_argument(line, option, text);
}

/* Options of both the run and a profile for it. */
static void append_training_options(command_line *line, const cli_options *options)
{
    if (options->data) append_argument(line, "--data", options->data);
    if (options->bucket_bytes) append_number(line, "--bucket", options->bucket_bytes, "B");
    if (options->clip > 0) append_real(line, "--clip", options->clip);
    if (options->loss_scale > 0) append_real(line, "--loss-scale", options->loss_scale);
    if (options->loss_scale < 0) append_argument(line, "--loss-scale", "dynamic");
}

static json_t *run_train_command(const cli_options *options, const char *plan_path, int *exit_code)
{
    command_line line = {0};
    append_argument(&line, "train", NULL);
    append_argument(&line, "--plan", plan_path);
    append_training_options(&line, options);
    append_number(&line, "--steps", (uint64_t)options->steps, "");
    append_number(&line, "--eval", options->data && options->evaluate > 0 ? (uint64_t)options->evaluate : 0,
                  "");
    append_number(&line, "--seed", options->seed, "");
    append_number(&line, "--timeout", (uint64_t)options->timeout_ns, "ns");
    append_argument(&line, "--operators", NULL);
    if (options->trace) append_argument(&line, "--trace", options->trace);
    return cli_run_self(options, line.argument, exit_code);
}

static int64_t integer_member(const json_t *object, const char *member)
{
    return json_integer_value(json_object_get(object, member));
}

static double real_or_nan(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* −1 for null. */
static int64_t integer_or_unknown(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Adds one rank's part to the mean of its class. */
static void read_class_tasks(compare_case *out, int c, const json_t *task_ns)
{
    const int n_rank = out->classes[c].n_rank;
    for (int t = 0; t < out->n_task; t++)
        out->task[t].class_measured_ns[c] += json_integer_value(json_array_get(task_ns, (size_t)t)) / n_rank;
}

/* Ranks are numbered class by class. */
static void read_rank_reports(compare_case *out, const json_t *ranks)
{
    size_t r = 0;
    for (int c = 0; c < out->n_class; c++) {
        compare_class *class = &out->classes[c];
        int64_t wait_ns = 0, busy_ns = 0;
        for (int k = 0; k < class->n_rank; k++, r++) {
            const json_t *rank = json_array_get(ranks, r);
            const uint64_t evaluation = (uint64_t)integer_member(rank, "evaluation_bytes"),
                           bytes = (uint64_t)integer_member(rank, "allocated_bytes") - evaluation;
            const int64_t resident = integer_or_unknown(rank, "resident_bytes"),
                          busy = integer_or_unknown(rank, "busy_ns"),
                          undisturbed = integer_or_unknown(rank, "undisturbed_ns");
            if (bytes > class->allocated_peak_bytes) class->allocated_peak_bytes = bytes;
            if (evaluation > class->evaluation_bytes) class->evaluation_bytes = evaluation;
            if (k == 0 || resident > class->resident_peak_bytes) class->resident_peak_bytes = resident;
            wait_ns += integer_member(rank, "wait_ns");
            busy_ns = busy < 0 || busy_ns < 0 ? -1 : busy_ns + busy;
            if (r == 0 || undisturbed < out->undisturbed_ns) out->undisturbed_ns = undisturbed;
            read_class_tasks(out, c, json_object_get(rank, "task_ns"));
            (void)run_steadiness_from_json(&out->steadiness[r], json_object_get(rank, "steadiness"));
        }
        class->measured_wait_ns = wait_ns / class->n_rank;
        class->measured_busy_ns = busy_ns < 0 ? -1 : busy_ns / class->n_rank;
    }
}

static void read_measured_tasks(compare_case *out, const json_t *operators)
{
    size_t k;
    json_t *row;
    json_array_foreach(operators, k, row)
    {
        const int64_t t = integer_member(row, "task");
        if (t < 0 || t >= out->n_task) continue;
        out->task[t].measured_ns = integer_member(row, "measured_ns");
        out->task[t].measured_start_ns = integer_member(row, "start_ns");
    }
}

int compare_case_measure(compare_case *out, const cli_options *options, const char *plan_path)
{
    if (options->steps < COMPARE_MIN_STEPS)
        return cli_fail_with(TANDEM_USAGE,
                             "%" PRId64 " steps are all warm-up. Use %d or more, e.g. --steps 30",
                             options->steps, COMPARE_MIN_STEPS);
    int code = 0;
    json_t *run = run_train_command(options, plan_path, &code);
    for (int c = 0; c < out->n_class; c++) out->n_rank += out->classes[c].n_rank;
    out->steadiness = calloc((size_t)out->n_rank, sizeof *out->steadiness);
    if (code == 0 && !out->steadiness)
        code = cli_fail_with(TANDEM_NO_MEMORY, "no memory for the steps of %d ranks", out->n_rank);
    if (code == 0) {
        const json_t *loss = json_object_get(run, "loss");
        const size_t n_loss = json_array_size(loss);
        out->steps = integer_member(run, "steps");
        out->measured_ns = integer_member(run, "step_ns");
        out->measured_p10_ns = integer_member(run, "step_p10_ns");
        out->measured_p90_ns = integer_member(run, "step_p90_ns");
        if (out->measured_ns > 0)
            out->error = (double)(out->predicted_ns - out->measured_ns) / (double)out->measured_ns;
        out->samples_per_s = out->price.samples_per_s = real_or_nan(run, "samples_per_s");
        out->accuracy = real_or_nan(run, "accuracy");
        if (n_loss > 0 && json_is_number(json_array_get(loss, 0)))
            out->first_loss = json_number_value(json_array_get(loss, 0));
        if (n_loss == (size_t)out->steps && json_is_number(json_array_get(loss, n_loss - 1)))
            out->final_loss = json_number_value(json_array_get(loss, n_loss - 1));
        read_rank_reports(out, json_object_get(run, "ranks"));
        read_measured_tasks(out, json_object_get(run, "operators"));
    }
    json_decref(run);
    return code;
}

/* --- Replaying what was measured -------------------------------------------------------------- */

/* An all-reduce includes the wait for other ranks, so the rank that waits least gives its time. */
static int64_t min_class_ns(const compare_case *out, int t)
{
    int64_t min = out->task[t].class_measured_ns[0];
    for (int c = 1; c < out->n_class; c++)
        if (out->task[t].class_measured_ns[c] < min) min = out->task[t].class_measured_ns[c];
    return min;
}

static void set_measured_time(tandem_replayer *replayer, const compare_case *out, int c, int t)
{
    const tandem_task *task = &tandem_replayer_step(replayer, c)->task[t];
    const int is_reduce = task->kind == TANDEM_TASK_REDUCE;
    const int64_t ns = is_reduce ? min_class_ns(out, t) : out->task[t].class_measured_ns[c];
    if (!task->active || ns <= 0) return;
    for (int contended = 0; contended < 2; contended++)
        tandem_replayer_set_variant_ns(replayer, c, t, is_reduce ? 0 : task->variant, contended, ns);
}

tandem_status compare_case_resimulate(compare_case *out, const cli_options *options,
                                      const tandem_workload *workload, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_replay replay;
    if (!options->per_operator) return TANDEM_OK;
    tandem_status status = cli_planner_open(&planner, options, workload, 1, error);
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

static tandem_status predict_remeasured(compare_case *out, const cli_options *options,
                                        const tandem_workload *workload, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_replay replay;
    tandem_status status = cli_planner_open(&planner, options, workload, 1, error);
    if (status != TANDEM_OK) return status;
    status = tandem_replayer_run(tandem_planner_problem(planner)->replayer, &replay, 0, error);
    tandem_planner_close(planner);
    if (status == TANDEM_OK) out->remeasured_ns = replay.step_ns;
    return status;
}

int compare_case_remeasure(compare_case *out, const cli_options *given, const tandem_workload *workload,
                           const char *plan_path)
{
    tandem_error error = {0};
    char store[CLI_SCRATCH_STORE];
    cli_options options = *given;
    command_line line = {0};
    int code = 0;
    if (cli_scratch_store_make(store, &error) != TANDEM_OK) return cli_fail(&error);
    options.db = store;
    append_argument(&line, "profile", NULL);
    append_argument(&line, "--db", store);
    append_argument(&line, "--plan", plan_path);
    append_training_options(&line, &options);
    json_t *profile = cli_run_self(&options, line.argument, &code);
    json_decref(profile);
    if (code == 0 && predict_remeasured(out, &options, workload, &error) != TANDEM_OK)
        code = cli_fail(&error);
    cli_scratch_store_remove(store);
    return code;
}

/* --- Keeping ---------------------------------------------------------------------------------- */

static tandem_status store_task_events(const compare_case *out, tandem_store *store, int64_t run_id,
                                       tandem_error *error)
{
    tandem_event_record *event = calloc((size_t)out->n_task, sizeof *event);
    int n = 0;
    if (!event) return tandem_no_memory(error, "for %d events", out->n_task);
    for (int t = 0; t < out->n_task; t++) {
        const compare_task *task = &out->task[t];
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

tandem_status compare_case_store(const compare_case *out, const cli_options *options,
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
                                   .sensitivity = out->sensitivity,
                                   .final_loss = out->final_loss,
                                   .accuracy = out->accuracy};
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    if (status == TANDEM_OK) status = tandem_store_put_run(store, &run, &run_id, error);
    if (status == TANDEM_OK && options->per_operator) status = store_task_events(out, store, run_id, error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK && store) tandem_store_rollback(store);
    tandem_store_close(store);
    free(text);
    return status;
}

/* --- Telling ---------------------------------------------------------------------------------- */

/* Other processes delay_factor the step more than the medians of its tasks. A process that never pauses is in
 * both, and then this error is too large. */
double compare_case_simulation_error(const compare_case *out)
{
    const double step = (double)(out->undisturbed_ns > 0 ? out->undisturbed_ns : out->measured_ns);
    return out->resimulated_ns ? ((double)out->resimulated_ns - step) / step : NAN;
}

double compare_case_drift(const compare_case *out)
{
    return out->remeasured_ns ? (double)(out->remeasured_ns - out->predicted_ns) / (double)out->predicted_ns
                              : NAN;
}

/* Appends to the array of that name, which the first element creates. */
static void append_json_member(json_t *object, const char *member, json_t *value)
{
    if (!json_object_get(object, member)) json_object_set_new(object, member, json_array());
    json_array_append_new(json_object_get(object, member), value);
}

static void add_class_json(json_t *object, const compare_case *out, const compare_class *class)
{
    const int is_known = class->resident_peak_bytes >= 0;
    append_json_member(object, "devices", json_string(class->device));
    append_json_member(object, "predicted_peak_bytes",
                       json_integer((json_int_t) class->predicted_peak_bytes));
    append_json_member(object, "allocated_peak_bytes",
                       json_integer((json_int_t) class->allocated_peak_bytes));
    append_json_member(object, "evaluation_bytes", json_integer((json_int_t) class->evaluation_bytes));
    append_json_member(object, "resident_peak_bytes", cli_json_known_integer(class->resident_peak_bytes));
    append_json_member(object, "unplanned_bytes",
                       is_known ? json_integer(compare_unplanned_bytes(class)) : json_null());
    append_json_member(object, "predicted_wait_ns", json_integer(class->predicted_wait_ns));
    append_json_member(object, "measured_wait_ns", json_integer(class->measured_wait_ns));
    append_json_member(object, "resimulated_busy_ns",
                       out->resimulated_ns ? json_integer(class->resimulated_busy_ns) : json_null());
    append_json_member(object, "measured_busy_ns", cli_json_known_integer(class->measured_busy_ns));
}

static void add_steadiness_json(json_t *object, const compare_steadiness *s)
{
    json_object_set_new(object, "error_at_run_speed", cli_json_number(s->error_at_run_speed));
    json_object_set_new(object, "error_at_run_speed_interval",
                        json_pack("[o,o]", cli_json_number(s->low), cli_json_number(s->high)));
    json_object_set_new(object, "profile_noise", cli_json_number(s->profile_noise));
    json_object_set_new(object, "verdict", json_string(compare_verdict_name(s->verdict)));
    json_object_set_new(object, "moved_by", cli_json_number(s->moved_by));
    json_object_set_new(object, "steps_needed",
                        s->steps_needed > 0 ? json_integer(s->steps_needed) : json_null());
    json_object_set_new(object, "kept_steps", json_integer(s->n_step));
    json_object_set_new(object, "undisturbed_steps", json_integer(s->n_undisturbed));
    json_object_set_new(object, "delay_share", cli_json_number(s->delay_share));
    json_object_set_new(object, "pulse_share", cli_json_number(s->pulse_share));
    json_object_set_new(object, "compute_slowdown", cli_json_number(s->compute_slowdown));
    json_object_set_new(object, "memory_slowdown", cli_json_number(s->memory_slowdown));
    json_object_set_new(object, "kind_off",
                        s->kind && s->kind[0] ? json_pack("{s:s,s:s,s:o}", "device", s->kind_device, "kind",
                                                          s->kind, "error", cli_json_number(s->kind_error))
                                              : json_null());
}

json_t *compare_case_json(const compare_case *out)
{
    json_t *result =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "plan", out->plan,
                  "predicted_ns", (json_int_t)out->predicted_ns, "measured_ns", (json_int_t)out->measured_ns,
                  "measured_p10_ns", (json_int_t)out->measured_p10_ns, "measured_p90_ns",
                  (json_int_t)out->measured_p90_ns, "undisturbed_ns",
                  cli_json_known_integer(out->undisturbed_ns), "error", cli_json_number(out->error),
                  "remeasured_ns", out->remeasured_ns ? json_integer(out->remeasured_ns) : json_null(),
                  "drift", cli_json_number(compare_case_drift(out)), "resimulated_ns",
                  out->resimulated_ns ? json_integer(out->resimulated_ns) : json_null(), "simulation_error",
                  cli_json_number(compare_case_simulation_error(out)), "sensitivity_bound",
                  cli_json_number(out->sensitivity), "samples_per_s", cli_json_number(out->samples_per_s),
                  "first_loss", cli_json_number(out->first_loss), "final_loss",
                  cli_json_number(out->final_loss), "accuracy", cli_json_number(out->accuracy));
    plan_price_add_json(result, &out->price);
    add_steadiness_json(result, &out->steady);
    for (int c = 0; c < out->n_class; c++) add_class_json(result, out, &out->classes[c]);
    return result;
}

void compare_case_free(compare_case *out)
{
    free(out->task);
    free(out->steadiness);
    *out = (compare_case){0};
}

/* --- The plan's file -------------------------------------------------------------------------- */

tandem_status compare_plan_write(char path[COMPARE_PLAN_PATH], const tandem_workload *workload,
                                 tandem_error *error)
{
    char name[COMPARE_PLAN_PATH] = ".tandem-plan-XXXXXX.json";
    tandem_plan plan = *workload->plan; /* shares the precisions of the workload's plan */
    plan.cluster = workload->cluster;
    const int file = cli_scratch_file_make(name, (int)strlen(".json"));
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot write the plan to the working directory: %s",
                                strerror(errno));
    (void)close(file);
    const tandem_status status = tandem_plan_write(&plan, workload->graph[0], name, error);
    if (status == TANDEM_OK)
        memcpy(path, name, sizeof name);
    else
        cli_scratch_file_remove(name);
    return status;
}
