/* question.c: what a request asks for: which limits contradict each other, and the goal that they make. */
#include "allocator/queries/question.h"

#include <math.h>
#include <string.h>

/* --- Contradictions ------------------------------------------------------------------------------------- */

#define DECIDES_STEP "the training time decides on the step"
#define MINIMIZES_BOTH                                                                                       \
    "one minimizes the step, the other the sensitivity. With --minimize memory, both are limits"
#define SPLITS_BY_TIME "batches are chosen for the training time"

static tandem_status check_limits(const tandem_allocation_request *r, tandem_error *error)
{
    const int target = r->max_step_ns > 0, slowdown = r->slowdown_is_given,
              budget = r->max_sensitivity_is_given, split = r->global_batch > 0,
              sensitivity = r->minimize == TANDEM_MINIMIZE_SENSITIVITY,
              step = r->minimize == TANDEM_MINIMIZE_STEP, memory = r->minimize == TANDEM_MINIMIZE_MEMORY,
              training = r->minimize == TANDEM_MINIMIZE_TRAINING_TIME;
    const int n_micro = r->of.step.n_micro > 1 ? r->of.step.n_micro : 1;
    const struct contradiction {
        int first, second;
        const char *names, *why;
    } all[] = {
        {target, slowdown, "--max-step and --slowdown contradict each other", "both limit the step time"},
        {budget && !memory, target, "--max-sensitivity and --max-step contradict each other", MINIMIZES_BOTH},
        {budget && !memory, slowdown, "--max-sensitivity and --slowdown contradict each other",
         MINIMIZES_BOTH},
        {training, target, "--minimize training-time and --max-step contradict each other", DECIDES_STEP},
        {training, slowdown, "--minimize training-time and --slowdown contradict each other", DECIDES_STEP},
        {training, budget, "--minimize training-time and --max-sensitivity contradict each other",
         "the training time decides on both"},
        {step, target, "--minimize step and --max-step contradict each other",
         "the fastest step has no limit but --max-sensitivity"},
        {step, slowdown, "--minimize step and --slowdown contradict each other",
         "the fastest step has no limit but --max-sensitivity"},
        {sensitivity, budget, "--minimize sensitivity and --max-sensitivity contradict each other",
         MINIMIZES_BOTH},
        {split, budget, "--batch auto and --max-sensitivity contradict each other",
         SPLITS_BY_TIME ". --slowdown or --max-step limits the step"},
        {split, memory, "--batch auto and --minimize memory contradict each other", SPLITS_BY_TIME},
        {split, step, "--batch auto and --minimize step contradict each other", SPLITS_BY_TIME},
        {split, r->global_batch % n_micro != 0, "--global-batch and --accumulate do not match",
         "the global batch must be a multiple of the micro-steps"},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k].first && all[k].second)
            return tandem_error_set(error, TANDEM_USAGE, "%s: %s", all[k].names, all[k].why);
    return TANDEM_OK;
}

/* Numbers that no limit can be. */
static tandem_status check_numbers(const tandem_allocation_request *r, tandem_error *error)
{
    if (r->slowdown_is_given && !(r->slowdown >= 0 && isfinite(r->slowdown)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "a slowdown of %g%%: the step may be 0%% or more longer than the fastest one",
                                100 * r->slowdown);
    if (r->max_sensitivity_is_given && !(r->max_sensitivity >= 0 && isfinite(r->max_sensitivity)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "a largest sensitivity of %g%%: it counts more samples, from 0%% upwards",
                                100 * r->max_sensitivity);
    if (r->max_step_ns < 0 || r->global_batch < 0)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "a largest step of %lld ns and a global batch of %lld: both are above 0, or 0 "
            "where they are not given",
            (long long)r->max_step_ns, (long long)r->global_batch);
    return TANDEM_OK;
}

/* --- Policies and methods ------------------------------------------------------------------------------- */

tandem_status tandem_request_policy(const tandem_policy **policy, const tandem_allocation_request *request,
                                    tandem_error *error)
{
    *policy = tandem_policy_get(0);
    return request->policy ? tandem_policy_find(policy, request->policy, error) : TANDEM_OK;
}

/* The first limit or aim of a request, by its name; NULL: none. */
static const char *first_limit(const tandem_allocation_request *r)
{
    return r->max_step_ns > 0            ? "--max-step"
           : r->slowdown_is_given        ? "--slowdown"
           : r->max_sensitivity_is_given ? "--max-sensitivity"
           : r->minimize                 ? "--minimize"
           : r->global_batch > 0         ? "--batch auto"
                                         : NULL;
}

/* Policy uniform needs a precision and has no other choice; other policies choose the precisions. */
static tandem_status check_policy(const tandem_allocation_request *r, tandem_error *error)
{
    const tandem_policy *policy;
    tandem_precision precision;
    const char *limit = first_limit(r);
    const tandem_status status = tandem_request_policy(&policy, r, error);
    if (status != TANDEM_OK) return status;
    if (policy->takes_uniform && !r->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "policy uniform needs a precision, e.g. --policy uniform --uniform int8");
    if (!policy->takes_uniform && r->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--uniform %s is only for --policy uniform; policy %s chooses the precisions",
                                r->uniform, policy->name);
    if (policy->ignores_target && limit)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--policy %s and %s contradict each other: this policy has a single plan",
                                policy->name, limit);
    return r->uniform ? tandem_precision_find(&precision, r->uniform, error) : TANDEM_OK;
}

/* Limits and aims in samples need a method that counts samples. */
static tandem_status check_method(const tandem_allocation_request *r, tandem_error *error)
{
    const tandem_sensitivity_method *method = tandem_sensitivity_get(0);
    const int is_training = r->minimize == TANDEM_MINIMIZE_TRAINING_TIME;
    const tandem_status status =
        r->of.method ? tandem_sensitivity_find(&method, r->of.method, error) : TANDEM_OK;
    if (status != TANDEM_OK || strcmp(method->unit, "%") == 0) return status;
    if (!r->max_sensitivity_is_given && !is_training) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_USAGE,
        "%s counts more samples in percent, and method %s %s%s; add --sensitivity sampled",
        is_training ? "--minimize training-time" : "--max-sensitivity", method->name,
        strcmp(method->unit, "none") == 0 ? "has no unit" : "counts ",
        strcmp(method->unit, "none") == 0 ? "" : method->unit);
}

tandem_status tandem_allocation_request_check(const tandem_allocation_request *request, tandem_error *error)
{
    tandem_status status = check_limits(request, error);
    if (status == TANDEM_OK) status = check_numbers(request, error);
    if (status == TANDEM_OK) status = check_policy(request, error);
    return status == TANDEM_OK ? check_method(request, error) : status;
}

/* --- The goal ------------------------------------------------------------------------------------------- */

int tandem_question_has_slowdown(const tandem_allocation_request *request)
{
    return request->slowdown_is_given || request->minimize == TANDEM_MINIMIZE_SENSITIVITY;
}

tandem_objective tandem_allocation_request_objective(const tandem_allocation_request *r)
{
    const tandem_policy *policy = NULL;
    const char *method = r->of.method ? r->of.method : tandem_sensitivity_get(0)->name;
    if (r->minimize) return r->minimize;
    if (r->max_sensitivity_is_given) return TANDEM_MINIMIZE_STEP;
    if (r->slowdown_is_given || r->max_step_ns > 0 || tandem_request_policy(&policy, r, NULL) != TANDEM_OK)
        return TANDEM_MINIMIZE_SENSITIVITY;
    return tandem_goal_without_limit(policy, method).objective;
}

tandem_status tandem_question_apply(tandem_goal *goal, tandem_allocation_problem *problem,
                                    const tandem_allocation_request *request, tandem_error *error)
{
    const tandem_status status =
        request->uniform ? tandem_precision_find(&problem->uniform, request->uniform, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    problem->slowdown = request->slowdown_is_given ? request->slowdown : 0;
    problem->target_ns = request->max_step_ns;
    problem->work_limit = request->work_limit;
    problem->is_free = request->is_free;
    problem->without_f16_gradients = request->without_f16_gradients;
    problem->without_certificate = request->without_certificate;
    goal->objective = tandem_allocation_request_objective(request);
    goal->max_sensitivity = request->max_sensitivity_is_given
                                ? tandem_sensitivity_units(problem, 100 * request->max_sensitivity)
                                : INT64_MAX;
    return TANDEM_OK;
}
