/* allocate_options.c: checks the options of `tandem allocate` and opens its planner. */
#include <math.h>
#include <string.h>

#include "cli/command/allocate.h"

/* --- Contradictions --------------------------------------------------------------------------- */

/* Each question is asked alone, and some exclude limits. */
static tandem_status check_option_conflicts(const cli_options *o, tandem_error *error)
{
    const int target = o->max_step_ns > 0, slowdown = o->slowdown >= 0, budget = o->max_sensitivity >= 0,
              front = o->pareto > 0, memory = o->minimize == TANDEM_MINIMIZE_MEMORY,
              training = o->minimize == TANDEM_MINIMIZE_TRAINING_TIME;
    const struct option_conflict {
        int first, second;
        const char *names, *why;
    } conflicts[] = {
        {target, slowdown, "--max-step and --slowdown contradict each other", "both limit the step time"},
        {budget && !memory, target, "--max-sensitivity and --max-step contradict each other",
         "one minimizes the step, the other the sensitivity. With --minimize memory, both are limits"},
        {budget && !memory, slowdown, "--max-sensitivity and --slowdown contradict each other",
         "one minimizes the step, the other the sensitivity. With --minimize memory, both are limits"},
        {training, target, "--minimize training-time and --max-step contradict each other",
         "the training time decides on the step"},
        {training, slowdown, "--minimize training-time and --slowdown contradict each other",
         "the training time decides on the step"},
        {training, budget, "--minimize training-time and --max-sensitivity contradict each other",
         "the training time decides on both"},
        {training, front, "--minimize training-time and --pareto contradict each other",
         "a Pareto front covers all step times"},
        {o->batch_auto, budget, "--batch auto and --max-sensitivity contradict each other",
         "batches are chosen for the training time. --slowdown or --max-step limits the step"},
        {o->batch_auto, memory, "--batch auto and --minimize memory contradict each other",
         "batches are chosen for the training time"},
        {o->batch_auto, front, "--batch auto and --pareto contradict each other",
         "a Pareto front has one batch"},
        {o->batch_auto, o->explain != NULL, "--batch auto and --explain contradict each other",
         "write the plan, then explain with its batches"},
        {front, target, "--pareto and --max-step contradict each other",
         "a Pareto front covers all step times"},
        {front, slowdown, "--pareto and --slowdown contradict each other",
         "a Pareto front covers all step times"},
        {front, budget, "--pareto and --max-sensitivity contradict each other",
         "a Pareto front covers all step times"},
        {front, memory, "--pareto and --minimize memory contradict each other",
         "a Pareto front covers all step times"},
        {front, o->explain != NULL, "--pareto and --explain contradict each other",
         "a Pareto front has many plans"},
        {front, o->output != NULL, "--pareto and --output contradict each other",
         "a Pareto front has many plans. --max-step selects one"},
        {o->batch_auto, o->report != NULL, "--batch auto and --report contradict each other",
         "write the plan for these batches, with --report"},
        {o->batch_auto, o->global_batch == 0, "--batch auto without --global-batch",
         "give the samples per step"},
        {o->batch_auto && o->step.n_micro > 1,
         o->global_batch % (o->step.n_micro > 1 ? o->step.n_micro : 1) != 0,
         "--global-batch and --accumulate do not match",
         "the global batch must be a multiple of the micro-steps"},
        {o->global_batch > 0, !o->batch_auto, "--global-batch without --batch auto", "else --batch says it"},
    };
    for (size_t k = 0; k < sizeof conflicts / sizeof *conflicts; k++)
        if (conflicts[k].first && conflicts[k].second)
            return tandem_error_set(error, TANDEM_USAGE, "%s: %s", conflicts[k].names, conflicts[k].why);
    return TANDEM_OK;
}

/* Policy uniform needs a precision and has no other choice; other policies choose the precisions. */
static tandem_status check_policy_options(const allocate_context *a, tandem_error *error)
{
    const cli_options *o = a->options;
    const char *limit = o->max_step_ns > 0        ? "--max-step"
                        : o->slowdown >= 0        ? "--slowdown"
                        : o->max_sensitivity >= 0 ? "--max-sensitivity"
                        : o->minimize             ? "--minimize"
                        : o->pareto > 0           ? "--pareto"
                        : o->batch_auto           ? "--batch auto"
                                                  : NULL;
    if (a->policy->takes_uniform && !o->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "policy uniform needs a precision, e.g. --policy uniform --uniform int8");
    if (!a->policy->takes_uniform && o->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--uniform %s is only for --policy uniform; policy %s chooses the precisions",
                                o->uniform, a->policy->name);
    if (a->policy->ignores_target && limit)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--policy %s and %s contradict each other: this policy has a single plan",
                                a->policy->name, limit);
    return TANDEM_OK;
}

/* Limits and aims in samples need a method that counts samples. */
static tandem_status check_price_limits(const cli_options *options, tandem_error *error)
{
    const tandem_sensitivity_method *method = tandem_sensitivity_get(0);
    const int is_training = options->minimize == TANDEM_MINIMIZE_TRAINING_TIME;
    tandem_status status = TANDEM_OK;
    if (options->max_sensitivity < 0 && !is_training) return TANDEM_OK;
    if (options->method) status = tandem_sensitivity_find(&method, options->method, error);
    if (status != TANDEM_OK || strcmp(method->unit, "%") == 0) return status;
    return tandem_error_set(
        error, TANDEM_USAGE,
        "%s counts more samples in percent, and method %s %s%s; add --sensitivity sampled",
        is_training ? "--minimize training-time" : "--max-sensitivity", method->name,
        strcmp(method->unit, "none") == 0 ? "has no unit" : "counts ",
        strcmp(method->unit, "none") == 0 ? "" : method->unit);
}

/* --- Public ----------------------------------------------------------------------------------- */

tandem_status allocate_read_options(allocate_context *a, const cli_options *options, tandem_error *error)
{
    *a = (allocate_context){.options = options, .policy = tandem_policy_get(0), .explained = -1};
    tandem_status status = check_option_conflicts(options, error);
    if (status == TANDEM_OK && options->policy)
        status = tandem_policy_find(&a->policy, options->policy, error);
    if (status == TANDEM_OK) status = check_policy_options(a, error);
    if (status == TANDEM_OK && options->uniform)
        status = tandem_precision_find(&a->uniform, options->uniform, error);
    if (status == TANDEM_OK) status = check_price_limits(options, error);
    return status;
}

/* Without a limit or an aim, it is the planner's. --slowdown 0% is a limit. */
static tandem_goal goal_of_options(const allocate_context *a)
{
    const cli_options *options = a->options;
    const int64_t most = options->max_sensitivity >= 0
                             ? tandem_sensitivity_units(a->problem, 100 * options->max_sensitivity)
                             : INT64_MAX;
    if (options->minimize) return (tandem_goal){(tandem_objective)options->minimize, most};
    if (options->max_sensitivity >= 0) return (tandem_goal){TANDEM_MINIMIZE_STEP, most};
    if (options->slowdown >= 0) return (tandem_goal){TANDEM_MINIMIZE_SENSITIVITY, INT64_MAX};
    return tandem_planner_goal(a->planner, a->policy->name);
}

/* A plan has a loss scale where it needs one, unless the options give one to all. */
static tandem_status open_allocate_planner(allocate_context *a, tandem_error *error)
{
    tandem_request request = cli_planner_request(a->options);
    return tandem_planner_open_for(&a->planner, &request, &a->workload.cluster,
                                   (const tandem_graph *const *)a->workload.graph, error);
}

tandem_status allocate_open(allocate_context *a, tandem_error *error)
{
    cli_options workload_options = *a->options;
    workload_options.uniform = NULL; /* it belongs to the policy, not to all classes */
    tandem_status status = cli_workload_open(&a->workload, &workload_options, error);
    if (status == TANDEM_OK) status = price_source_open(&a->source, a->options, a->workload.graph[0], error);
    if (status == TANDEM_OK) status = open_allocate_planner(a, error);
    if (status != TANDEM_OK) return status;
    a->problem = tandem_planner_problem(a->planner);
    a->problem->uniform = a->uniform;
    a->problem->slowdown = fmax(a->options->slowdown, 0);
    a->problem->target_ns = a->options->max_step_ns;
    a->goal = goal_of_options(a);
    return TANDEM_OK;
}

void allocate_note_left_out(const allocate_context *a)
{
    tandem_error why = {0};
    if (tandem_replayer_check_norm(a->problem->replayer, &why) != TANDEM_OK)
        cli_note(
            a->options,
            "plans whose gradients are f16 are left out: the time of the norm that they need is not known. "
            "%s",
            why.text);
}

tandem_quantity allocate_sum(const allocate_context *a, const plan_price *price, int64_t sensitivity)
{
    return plan_price_sum(price, tandem_planner_method(a->planner), allocate_value(a, sensitivity));
}

double allocate_value(const allocate_context *a, int64_t sensitivity)
{
    return tandem_sensitivity_value(a->problem, sensitivity);
}

void allocate_close(allocate_context *a)
{
    price_source_close(&a->source);
    tandem_plan_close(a->plan);
    tandem_planner_close(a->planner);
    tandem_workload_close(&a->workload);
}
