/* train_reestimate.c: when a run estimates again, what it decides, and how it changes its plan between two
 * steps.
 *
 * All inputs of the decision are the same on all ranks and in a resumed run: steps, gradients, and what
 * the checkpoint keeps. Rank 0 allocates, by the policy that no time limit stops. */
#include "runtime/train/train_reestimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "runtime/train/train_log.h"
#include "runtime/workload_planner.h"

/* What rank 0 sends to the others. */
typedef struct reestimate_decision {
    tandem_error error; /* status TANDEM_OK: allocated */
    int n_changed;
    int64_t step_ns;
    double sensitivity; /* of the plan: the allocator's sum, in percent */
} reestimate_decision;

/* --- Opening -------------------------------------------------------------------------------------------- */

tandem_status train_reestimate_check(const tandem_train_request *request, const tandem_workload *workload,
                                     tandem_error *error)
{
    if (!request->reestimate) {
        return request->max_sensitivity < 0
                   ? TANDEM_OK
                   : tandem_error_set(error, TANDEM_USAGE,
                                      "--max-sensitivity limits the plans of --reestimate: give that, too");
    }
    if (!request->data)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--reestimate estimates gradients of real samples: give --data");
    if (request->workload.emulate)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--emulate and --reestimate contradict each other: an emulated step has no times");
    for (int c = 0; c < workload->cluster.n_class; c++)
        if (strncmp(workload->cluster.classes[c].device.name, "cpu:", strlen("cpu:")) != 0)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "--reestimate emulates precisions and needs CPU devices; '%s' is not one",
                                    workload->cluster.classes[c].device.name);
    tandem_planner *planner = NULL;
    const tandem_status status = workload_planner_open(&planner, workload, request, 1, error);
    tandem_planner_close(planner);
    return status;
}

static int n_adjustable(const tandem_graph *graph)
{
    int n = 0;
    for (int i = 0; i < graph->n_op; i++) n += tandem_op_is_adjustable(&graph->op[i]);
    return n;
}

tandem_status train_reestimate_open(train_reestimate *reestimate, const tandem_train_request *request,
                                    const tandem_workload *workload, training_rank *rank, tandem_error *error)
{
    enum { OTHER_TEXT = 256 };
    const tandem_graph *graph = workload->graph[0];
    char text[TANDEM_CHECKPOINT_TRAIN_CONFIG];
    *reestimate = (train_reestimate){.request = request, .workload = workload, .rank = rank};
    if (!request->reestimate) return TANDEM_OK;
    train_config_print(text, sizeof text, &rank->config, workload, request, &rank->data, rank->data_hash);
    const size_t kept = (size_t)n_adjustable(graph) * (size_t)(workload->cluster.n_class + 1);
    if (strlen(text) + kept + OTHER_TEXT > sizeof text)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--reestimate keeps %zu characters of plan and ranges in a checkpoint, which has "
            "room for %zu; join classes of the cluster",
            kept, sizeof text - strlen(text) - OTHER_TEXT);
    const int64_t every =
        request->reestimate_every > 0 ? request->reestimate_every : estimate_interval_in_run(workload);
    const tandem_status status = reestimate_trigger_open(&reestimate->trigger, rank, every, error);
    if (status != TANDEM_OK) return status;
    reestimate->trigger.is_limited = request->reestimate_every == 0; /* a given interval is not limited */
    if (!(reestimate->event = json_array())) return tandem_no_memory(error, "for what is estimated");
    reestimate->begin_ns = tandem_now_ns();
    if (rank->self.rank == 0 && request->reestimate_every == 0)
        runtime_note(&request->listener, "estimates again every %lld steps", (long long)every);
    return TANDEM_OK;
}

void train_reestimate_close(train_reestimate *reestimate)
{
    reestimate_trigger_close(&reestimate->trigger);
    json_decref(reestimate->event);
    *reestimate = (train_reestimate){0};
}

/* --- The decision --------------------------------------------------------------------------------------- */

/* Rank 0: precisions by what was estimated. */
static tandem_status allocate_again(tandem_assignment *chosen, reestimate_decision *decision,
                                    const train_reestimate *reestimate, tandem_estimate *estimate,
                                    tandem_error *error)
{
    const tandem_train_request *const request = reestimate->request;
    const size_t n_cell = (size_t)estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    tandem_planner *planner = NULL;
    tandem_plan *plan = NULL;
    tandem_allocation result;
    const tandem_policy *policy = NULL;
    memset(estimate->is_estimated, 1, n_cell); /* what no device runs is in no plan */
    tandem_status status = workload_planner_open(&planner, reestimate->workload, request, 1, error);
    if (status == TANDEM_OK) status = tandem_planner_set_estimate(planner, estimate, error);
    if (status == TANDEM_OK) status = tandem_policy_find(&policy, "greedy", error);
    if (status == TANDEM_OK) {
        tandem_allocation_problem *const problem = tandem_planner_problem(planner);
        const tandem_goal goal = {
            .objective = request->max_sensitivity >= 0 ? TANDEM_MINIMIZE_STEP : TANDEM_MINIMIZE_TRAINING_TIME,
            .max_sensitivity = request->max_sensitivity >= 0
                                   ? tandem_sensitivity_units(problem, 100 * request->max_sensitivity)
                                   : INT64_MAX};
        problem->without_certificate = 1;
        /* a run that began without a loss scale goes on without one */
        problem->without_f16_gradients = reestimate->workload->loss_scale == 0;
        status = tandem_allocate_for(&plan, &result, &goal, policy, problem, "sampled", error);
        if (status == TANDEM_OK) {
            decision->sensitivity = tandem_sensitivity_value(problem, result.sensitivity_bound);
            decision->step_ns = result.step_ns;
        }
    }
    if (status == TANDEM_OK) tandem_assignment_copy(chosen, &plan->assignment);
    tandem_plan_close(plan);
    tandem_planner_close(planner);
    return status;
}

static int count_changed(const tandem_assignment *a, const tandem_assignment *b)
{
    int n = 0;
    for (int c = 0; c < a->n_class; c++)
        for (int i = 0; i < a->n_op; i++) n += a->precision[c][i] != b->precision[c][i];
    return n;
}

/* The same on all ranks. No plan within the limits, and gradients without variance, are no error of the
 * training: decision->error says why the plan stays. */
static tandem_status share_decision(reestimate_decision *decision, tandem_assignment *chosen,
                                    const train_reestimate *reestimate, tandem_estimate *estimate,
                                    tandem_error *error)
{
    const training_rank *const rank = reestimate->rank;
    if (rank->self.rank == 0) {
        const tandem_status status = allocate_again(chosen, decision, reestimate, estimate, &decision->error);
        if (status == TANDEM_OK) decision->error = (tandem_error){0};
        decision->n_changed = count_changed(chosen, &reestimate->workload->plan->assignment);
    }
    tandem_status status =
        rank->backend->worker_broadcast(rank->worker, decision, sizeof *decision, 0, error);
    for (int c = 0; c < chosen->n_class && status == TANDEM_OK; c++)
        status =
            rank->backend->worker_broadcast(rank->worker, chosen->precision[c],
                                            (size_t)chosen->n_op * sizeof *chosen->precision[c], 0, error);
    const tandem_status decided = decision->error.status;
    if (status != TANDEM_OK || decided == TANDEM_OK || decided == TANDEM_INFEASIBLE ||
        decided == TANDEM_USAGE)
        return status;
    if (error) *error = decision->error;
    return decided;
}

static void note_estimate(train_reestimate *reestimate, const reestimate_decision *decision, int64_t done,
                          int doubled, int64_t taken_ns)
{
    const tandem_graph *graph = reestimate->workload->graph[0];
    const int is_kept = decision->error.status != TANDEM_OK;
    const double run_ns = (double)(tandem_now_ns() - reestimate->begin_ns);
    reestimate->taken_ns += taken_ns;
    json_t *const event = json_object();
    json_object_set_new(event, "step", json_integer((json_int_t)done));
    json_object_set_new(event, "reason", json_string(doubled < 0 ? "interval" : "range"));
    if (doubled >= 0) json_object_set_new(event, "operator", json_string(graph->op[doubled].name));
    json_object_set_new(event, "changed", json_integer(is_kept ? 0 : decision->n_changed));
    json_object_set_new(event, "sensitivity_bound",
                        json_number_or_null(is_kept ? NAN : decision->sensitivity));
    json_object_set_new(event, "predicted_step_ns",
                        is_kept ? json_null() : json_integer((json_int_t)decision->step_ns));
    if (is_kept) json_object_set_new(event, "kept_because", json_string(decision->error.text));
    json_object_set_new(event, "taken_ns", json_integer((json_int_t)taken_ns));
    json_object_set_new(event, "share", json_number_or_null((double)reestimate->taken_ns / run_ns));
    json_array_append_new(reestimate->event, event);
    if (is_kept)
        runtime_note(&reestimate->request->listener, "step %lld: estimated again; the plan stays: %s",
                     (long long)done, decision->error.text);
    else
        runtime_note(
            &reestimate->request->listener,
            "step %lld: estimated again%s%s; %d precisions change; sensitivity %.2g %%; estimates have taken "
            "%.2g %% of the run",
            (long long)done, doubled < 0 ? "" : ", for the range has doubled of ",
            doubled < 0 ? "" : graph->op[doubled].name, decision->n_changed, decision->sensitivity,
            100 * (double)reestimate->taken_ns / run_ns);
}

static tandem_status estimate_again(train_reestimate *reestimate, int64_t done, int doubled,
                                    int *is_replanned, tandem_error *error)
{
    const tandem_workload *const workload = reestimate->workload;
    const int64_t begin = tandem_now_ns();
    const estimate_request asked = estimate_request_in_run(workload, done);
    tandem_assignment chosen = {0};
    tandem_estimate estimate = {0};
    reestimate_decision decision = {0};
    tandem_status status =
        tandem_assignment_open(&chosen, workload->cluster.n_class, workload->graph[0]->n_op, error);
    if (status == TANDEM_OK)
        status = estimate_of_rank(&estimate, reestimate->rank, workload, reestimate->request, &asked, error);
    if (status == TANDEM_OK) status = share_decision(&decision, &chosen, reestimate, &estimate, error);
    *is_replanned = status == TANDEM_OK && decision.error.status == TANDEM_OK && decision.n_changed > 0;
    if (*is_replanned)
        status = training_rank_change_plan(reestimate->rank, reestimate->workload, reestimate->request,
                                           &chosen, done, error);
    tandem_estimate_close(&estimate);
    tandem_assignment_close(&chosen);
    if (status == TANDEM_OK && reestimate->rank->self.rank == 0)
        note_estimate(reestimate, &decision, done, doubled, tandem_now_ns() - begin);
    return status;
}

tandem_status train_reestimate_after(train_reestimate *reestimate, int64_t done, int *is_replanned,
                                     json_t **event, tandem_error *error)
{
    int is_due = 0, doubled = -1;
    *is_replanned = 0;
    *event = NULL;
    tandem_status status = reestimate_trigger_after(&reestimate->trigger, done, &is_due, &doubled, error);
    if (status != TANDEM_OK || !is_due) return status;
    status = estimate_again(reestimate, done, doubled, is_replanned, error);
    if (status == TANDEM_OK && reestimate->rank->self.rank == 0)
        *event = json_array_get(reestimate->event, json_array_size(reestimate->event) - 1);
    return status;
}

/* --- In a checkpoint ------------------------------------------------------------------------------------ */

enum { FIRST_CHARACTER = '!' };

void train_reestimate_print(char *text, size_t size, const train_reestimate *reestimate)
{
    const tandem_graph *const graph = reestimate->workload->graph[0];
    const tandem_assignment *const plan = &reestimate->workload->plan->assignment;
    if (reestimate->trigger.every == 0) return;
    (void)tandem_append(text, size, "estimated again: every %lld steps",
                        (long long)reestimate->trigger.every);
    if (reestimate->request->max_sensitivity >= 0)
        (void)tandem_append(text, size, ", at most %.9g %% more samples",
                            100 * reestimate->request->max_sensitivity);
    (void)tandem_append(text, size,
                        "\nlast estimated: %lld, times: %d\nplan: ", (long long)reestimate->trigger.last,
                        reestimate->trigger.n_estimated);
    for (int c = 0; c < plan->n_class; c++)
        for (int i = 0; i < graph->n_op; i++)
            if (tandem_op_is_adjustable(&graph->op[i]))
                (void)tandem_append(text, size, "%c", FIRST_CHARACTER + (int)plan->precision[c][i]);
    (void)tandem_append(text, size, "\nranges: ");
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i]))
            (void)tandem_append(text, size, "%c", FIRST_CHARACTER + reestimate->trigger.range[i]);
    (void)tandem_append(text, size, "\n");
}

/* The text after "key: " up to the line's end, of *length; NULL: there is none. */
static const char *find_kept_line(const char *config, const char *key, size_t *length)
{
    const size_t n = strlen(key);
    for (const char *line = config; *line;) {
        const size_t whole = strcspn(line, "\n");
        if (whole >= n && strncmp(line, key, n) == 0) {
            *length = whole - n;
            return line + n;
        }
        line += whole + (line[whole] == '\n');
    }
    return NULL;
}

/* 0: the text is no plan of this workload. */
static int read_plan_line(tandem_assignment *plan, const char *line, const tandem_workload *workload)
{
    for (int c = 0; c < plan->n_class; c++)
        for (int i = 0; i < plan->n_op; i++) {
            const tandem_op *op = &workload->graph[c]->op[i];
            if (!tandem_op_is_adjustable(op)) continue;
            const int precision = *line++ - FIRST_CHARACTER;
            const unsigned allowed =
                tandem_op_row_get(op->kind)->precisions & workload->cluster.classes[c].device.precisions;
            if (precision < 0 || precision >= TANDEM_N_PRECISION || !(allowed & 1u << precision)) return 0;
            plan->precision[c][i] = (tandem_precision)precision;
        }
    return 1;
}

tandem_status train_reestimate_restore(train_reestimate *reestimate, const char *path, const char *config,
                                       tandem_error *error)
{
    const tandem_graph *const graph = reestimate->workload->graph[0];
    const size_t n = (size_t)n_adjustable(graph), n_class = (size_t)reestimate->workload->cluster.n_class;
    size_t last_length = 0, plan_length = 0, range_length = 0;
    const char *const last = find_kept_line(config, "last estimated: ", &last_length);
    const char *const plan = find_kept_line(config, "plan: ", &plan_length);
    const char *range = find_kept_line(config, "ranges: ", &range_length);
    if (reestimate->trigger.every == 0 || !last || !plan || !range || plan_length != n * n_class ||
        range_length != n)
        return TANDEM_OK; /* of a run without it, or of another cluster: this one begins to estimate */
    tandem_assignment chosen = {0};
    tandem_status status = tandem_assignment_open(&chosen, (int)n_class, graph->n_op, error);
    if (status != TANDEM_OK) return status;
    if (read_plan_line(&chosen, plan, reestimate->workload)) {
        char *times = NULL;
        reestimate->trigger.last = strtoll(last, &times, 10);
        if (strncmp(times, ", times: ", strlen(", times: ")) == 0)
            reestimate->trigger.n_estimated = (int)strtol(times + strlen(", times: "), NULL, 10);
        for (int i = 0; i < graph->n_op; i++)
            if (tandem_op_is_adjustable(&graph->op[i]))
                reestimate->trigger.range[i] = (unsigned char)(*range++ - FIRST_CHARACTER);
        if (!tandem_assignment_is_equal(&chosen, &reestimate->workload->plan->assignment)) {
            tandem_assignment_copy(&reestimate->workload->plan->assignment, &chosen);
            status = training_rank_resume(reestimate->rank, reestimate->workload, reestimate->request, path,
                                          NULL, error);
        }
    }
    tandem_assignment_close(&chosen);
    return status;
}
