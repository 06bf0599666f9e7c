/* objectives.c: the fastest step within a sensitivity, the least memory within step and sensitivity, and the
 * least training time.
 *
 * A policy minimizes sensitivity within a limit, and bisection narrows that limit: of the step, or of the
 * bytes per rank. A plan counts by its replay, not by the limit that was asked for. So the next interval
 * begins at the value reached, and a policy that does better ends the search sooner. The best plan stays. */
#include "allocator/policies.h"
#include "allocator/bound/effort.h"
#include "allocator/problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"

/* bisection ends at this part of the value */
static const int64_t bisection_fineness = 4096;
enum { USUAL_ANSWERS = 16 }; /* plans that share the work of proofs */

typedef struct objective_search {
    tandem_allocation_problem problem; /* the caller's, without certificates */
    const tandem_policy *policy;
    const char *method;
    int64_t max_sensitivity;
    int64_t replays, work;
    /* the last plan, and the best so far; NULL = none */
    tandem_plan *plan, *best_plan;
    tandem_allocation answer, best;
} objective_search;

static uint64_t search_peak_bytes(const objective_search *d, const tandem_allocation *a)
{
    return tandem_max_peak_bytes(a->peak_bytes, tandem_replayer_cluster(d->problem.replayer)->n_class);
}

static int answer_is_within(const objective_search *d, int64_t target_ns, uint64_t limit_bytes)
{
    return d->answer.sensitivity_bound <= d->max_sensitivity &&
           (!target_ns || d->answer.step_ns <= target_ns) &&
           (!limit_bytes || search_peak_bytes(d, &d->answer) <= limit_bytes);
}

/* Asks for the least sensitivity within a step and memory; 0 = the caller's limits. *found = 0: no plan, or
 * only one above max_sensitivity, which is in d->answer. */
static tandem_status ask_policy(objective_search *d, int64_t target_ns, uint64_t limit_bytes, int *found,
                                tandem_error *error)
{
    tandem_allocation_problem problem = d->problem;
    tandem_error why = {0};
    if (target_ns) problem.target_ns = target_ns;
    if (limit_bytes) problem.memory_limit_bytes = limit_bytes;
    tandem_plan_close(d->plan);
    d->plan = NULL;
    *found = 0;
    const tandem_status status = tandem_allocate(&d->plan, &d->answer, d->policy, &problem, d->method, &why);
    if (status == TANDEM_OK) {
        d->replays += d->answer.replays;
        d->work += d->answer.work;
        *found = answer_is_within(d, target_ns, limit_bytes);
    } else if (error) {
        *error = why;
    }
    return status;
}

static void keep_answer(objective_search *d)
{
    tandem_plan_close(d->best_plan);
    d->best_plan = d->plan;
    d->best = d->answer;
    d->plan = NULL;
}

/* The same, where no plan is no error. */
static tandem_status ask_policy_or_none(objective_search *d, int64_t target_ns, uint64_t limit_bytes,
                                        int *found, tandem_error *error)
{
    tandem_error why = {0};
    const tandem_status status = ask_policy(d, target_ns, limit_bytes, found, &why);
    if (status == TANDEM_INFEASIBLE) return TANDEM_OK;
    if (status != TANDEM_OK && error) *error = why;
    return status;
}

static tandem_status report_sensitivity_missed(const objective_search *d, const char *within,
                                               tandem_error *error)
{
    const double value = tandem_sensitivity_value(&d->problem, d->answer.sensitivity_bound);
    return tandem_error_set(error, TANDEM_INFEASIBLE,
                            "no plan has a sensitivity of %g or less%s: the least found is %s, with a step "
                            "of %" PRId64 " ns",
                            tandem_sensitivity_value(&d->problem, d->max_sensitivity), within,
                            tandem_quantity_known_to(value, NAN).text, d->answer.step_ns);
}

/* --- The fastest step ----------------------------------------------------------------------------------- */

static tandem_status minimize_step(objective_search *d, tandem_error *error)
{
    int found;
    int64_t low_ns = 0; /* no plan was found at this step */
    d->problem.slowdown = 0;
    tandem_status status = ask_policy(d, 0, 0, &found, error);
    if (status != TANDEM_OK) return status;
    if (!found) {
        low_ns = d->answer.step_ns;
        status = ask_policy(d, INT64_MAX / 4, 0, &found, error);
        if (status == TANDEM_OK && !found)
            status = report_sensitivity_missed(d, " and fits the memory", error);
    }
    if (status == TANDEM_OK) keep_answer(d);
    while (status == TANDEM_OK && d->best.step_ns - low_ns > 1 + d->best.step_ns / bisection_fineness) {
        const int64_t target_ns = low_ns + (d->best.step_ns - low_ns) / 2;
        status = ask_policy_or_none(d, target_ns, 0, &found, error);
        if (found)
            keep_answer(d);
        else
            low_ns = target_ns;
    }
    return status;
}

/* --- The least memory ----------------------------------------------------------------------------------- */

static tandem_status minimize_memory(objective_search *d, tandem_error *error)
{
    int found;
    tandem_status status = ask_policy(d, 0, 0, &found, error);
    if (status == TANDEM_OK && !found) status = report_sensitivity_missed(d, " within that step", error);
    if (status != TANDEM_OK) return status;
    keep_answer(d);
    /* of the first plan: a smaller one may not be slower */
    const int64_t target_ns = d->best.target_ns;
    uint64_t low_bytes = 0;
    while (status == TANDEM_OK) {
        const uint64_t high_bytes = search_peak_bytes(d, &d->best);
        if (high_bytes <= low_bytes + 64 + high_bytes / (uint64_t)bisection_fineness)
            break; /* the interval may be empty */
        const uint64_t limit_bytes = low_bytes + (high_bytes - low_bytes) / 2;
        status = ask_policy_or_none(d, target_ns, limit_bytes, &found, error);
        if (found)
            keep_answer(d);
        else
            low_bytes = limit_bytes;
    }
    return status;
}

/* --- The least training time -----------------------------------------------------------------------------
 *
 * f = step · (1 + S), S as a share. A plan with a step in (a, b] has at least the sensitivity that is proven
 * for the target b, so that its f exceeds a · (1 + bound(b)). The interval with the least such bound is
 * halved until that is close to the best f, or as close as the best plan's sensitivity is known. No plan with
 * a step above the best f has less. Of a policy that proves nothing, each plan is expected to be the least
 * sensitive one within its target: that guides the search, and nothing is proven by it. */

enum { MAX_TRAINING_TARGETS = 64, SURE_TRAINING_TARGETS = 4 }; /* the latter even where the work is spent */
static const double training_fineness = 1.0 / 1024, max_training_fineness = 0.01;

typedef enum least_share { PROVEN, EXPECTED, N_LEAST_SHARE } least_share;

typedef struct training_search {
    objective_search *d;
    int n; /* targets, ascending; the first one's is the fastest step */
    struct training_target {
        int64_t target_ns;
        double least_share[N_LEAST_SHARE]; /* of all plans within it */
    } at[MAX_TRAINING_TARGETS];
    double best_ns;
    double fineness; /* of the best plan: closer needs no proof */
} training_search;

static double sensitivity_share(const objective_search *d, int64_t units)
{
    return units < 0 ? 0 : tandem_sensitivity_value(&d->problem, units) / 100;
}

/* Step x (1 + sensitivity): the time to the same loss. */
static double training_ns_of(const objective_search *d, int64_t step_ns, int64_t units)
{
    return (double)step_ns * (1 + sensitivity_share(d, units));
}

/* Between training_fineness and 1 %: as far as the plan's sensitivity is known. */
static tandem_status find_training_fineness(training_search *t, tandem_error *error)
{
    const objective_search *d = t->d;
    tandem_plan_sensitivity of = {.n_point = 0};
    t->fineness = training_fineness;
    if (!d->problem.estimate) return TANDEM_OK;
    const tandem_status status =
        tandem_plan_sensitivity_estimate(&of, d->problem.estimate, d->best_plan, d->problem.graph, error);
    const double half = fmax(of.estimate.high - of.estimate.value, of.estimate.value - of.estimate.low);
    t->fineness = fmin(fmax(half / (1 + of.estimate.value), training_fineness), max_training_fineness);
    return status;
}

/* Asks at a target, 0 = the fastest, and puts it after target `before`. */
static tandem_status add_training_target(training_search *t, int before, int64_t target_ns,
                                         tandem_error *error)
{
    objective_search *d = t->d;
    int found;
    tandem_error why = {0};
    const tandem_status status = ask_policy(d, target_ns, 0, &found, &why);
    /* a policy may miss what it found with more time: nothing is proven there */
    struct training_target added = {.target_ns = target_ns};
    if (status != TANDEM_OK && (status != TANDEM_INFEASIBLE || t->n == 0)) {
        if (error) *error = why;
        return status;
    }
    if (status == TANDEM_OK) {
        const int64_t reached = d->answer.sensitivity_bound, proven = d->answer.certificate.lower_bound;
        const double ns = training_ns_of(d, d->answer.step_ns, reached);
        added.least_share[PROVEN] = sensitivity_share(d, proven);
        added.least_share[EXPECTED] = sensitivity_share(d, proven < 0 ? reached : proven);
        if (!target_ns) added.target_ns = d->answer.step_ns;
        if (ns < t->best_ns) {
            t->best_ns = ns;
            keep_answer(d);
            const tandem_status known = find_training_fineness(t, error);
            if (known != TANDEM_OK) return known;
        }
    }
    for (int k = t->n++; k > before + 1; k--) t->at[k] = t->at[k - 1];
    t->at[before + 1] = added;
    return TANDEM_OK;
}

/* The interval after target k: no plan in it has less. */
static double interval_bound_ns(const training_search *t, int k, least_share by)
{
    const double share = k + 1 < t->n ? t->at[k + 1].least_share[by] : 0;
    return (double)t->at[k].target_ns * (1 + share);
}

static int least_interval(const training_search *t, least_share by)
{
    int least = 0;
    for (int k = 1; k < t->n; k++)
        if (interval_bound_ns(t, k, by) < interval_bound_ns(t, least, by)) least = k;
    return least;
}

static tandem_status minimize_training_time(objective_search *d, tandem_error *error)
{
    training_search t = {.d = d, .best_ns = INFINITY, .fineness = training_fineness};
    const int64_t work_limit = USUAL_ANSWERS * d->problem.work_limit;
    d->problem.slowdown = 0;
    d->problem.target_ns = 0;
    d->problem.work_limit = work_limit / MAX_TRAINING_TARGETS;
    d->max_sensitivity = INT64_MAX;
    tandem_status status = add_training_target(&t, -1, 0, error);
    const tandem_allocation first = d->best;
    /* all bounds are of plans that keep the same classes in base: the other ones stay free at longer steps */
    d->problem.is_free = ~first.keeps_base;
    if (status == TANDEM_OK && training_ns_of(d, first.base_ns, first.base_sensitivity_bound) < t.best_ns)
        status = add_training_target(&t, 0, first.base_ns, error);
    while (status == TANDEM_OK && t.n < MAX_TRAINING_TARGETS) {
        const int k = least_interval(&t, EXPECTED);
        if (interval_bound_ns(&t, k, EXPECTED) >= t.best_ns * (1 - t.fineness)) break;
        if (t.n >= SURE_TRAINING_TARGETS && d->work > work_limit) break;
        const int is_last = k + 1 == t.n;
        const int64_t begin_ns = t.at[k].target_ns,
                      end_ns =
                          (int64_t)(is_last ? t.best_ns : fmin((double)t.at[k + 1].target_ns, t.best_ns)),
                      next_ns = is_last ? end_ns : begin_ns + (end_ns - begin_ns) / 2;
        if (next_ns <= begin_ns) break;
        status = add_training_target(&t, k, next_ns, error);
    }
    d->best.training_ns = t.best_ns;
    d->best.training_from_ns = first.step_ns;
    d->best.training_keeps_base = first.keeps_base;
    d->best.training_bound_ns =
        status == TANDEM_OK ? fmin(interval_bound_ns(&t, least_interval(&t, PROVEN), PROVEN), t.best_ns)
                            : NAN;
    return status;
}

/* --- Plans that cannot be distinguished ------------------------------------------------------------------
 *
 * Of the plans whose sensitivity is the best one's as far as can be known, the fastest is taken: the interval
 * of the difference, from the replicates that both have, holds 0 or lies below it. A few replicates know
 * little, and a wide interval is no sign that plans are equal: so it must also end within 1 % of the samples,
 * and the faster plan must not train longer. The other plan is always the best one, so that small differences
 * do not add up. A bisection of the step finds it; it may pass over a plan. */
static const double largest_difference = 0.01; /* as a share of the samples */

/* Asks at a target, 0 = the fastest; keeps the answer where it may replace the best plan, `reference`, which
 * trains in reference_ns. */
static tandem_status try_faster(objective_search *d, const tandem_plan *reference, double reference_ns,
                                int64_t target_ns, int *is_taken, tandem_error *error)
{
    const tandem_allocation_problem *problem = &d->problem;
    tandem_sensitivity_difference difference;
    int found = 0;
    *is_taken = 0;
    tandem_status status = ask_policy_or_none(d, target_ns, 0, &found, error);
    if (status != TANDEM_OK || !found || d->answer.step_ns >= d->best.step_ns ||
        training_ns_of(d, d->answer.step_ns, d->answer.sensitivity_bound) > reference_ns)
        return status;
    status = tandem_plan_sensitivity_compare(&difference, problem->estimate, d->plan, reference,
                                             problem->graph, error);
    *is_taken = status == TANDEM_OK && difference.low <= 0 && difference.high <= largest_difference;
    if (!*is_taken) return status;
    d->answer.difference = 100 * difference.value;
    d->answer.difference_low = 100 * difference.low;
    d->answer.difference_high = 100 * difference.high;
    keep_answer(d);
    return TANDEM_OK;
}

static tandem_status bisect_faster(objective_search *d, const tandem_plan *reference, tandem_error *error)
{
    const double reference_ns = training_ns_of(d, d->best.step_ns, d->best.sensitivity_bound);
    int64_t low_ns = d->best.fastest_ns;
    int is_taken;
    tandem_status status = try_faster(d, reference, reference_ns, 0, &is_taken, error);
    if (is_taken) return status;
    while (status == TANDEM_OK && d->best.step_ns - low_ns > 1 + d->best.step_ns / bisection_fineness) {
        const int64_t target_ns = low_ns + (d->best.step_ns - low_ns) / 2;
        status = try_faster(d, reference, reference_ns, target_ns, &is_taken, error);
        if (!is_taken) low_ns = target_ns;
    }
    return status;
}

/* What holds of the plan that was taken: it is within the target of the one that it replaces, and its bound
 * is that one's. */
static void describe_taken(objective_search *d, const tandem_allocation_problem *problem,
                           const tandem_allocation *reference)
{
    tandem_allocation *a = &d->best;
    tandem_certificate *certificate = &a->certificate;
    a->indistinguishable_ns = reference->step_ns;
    a->target_ns = reference->target_ns;
    a->fastest_ns = reference->fastest_ns;
    a->fastest_sensitivity_bound = reference->fastest_sensitivity_bound;
    *certificate = (tandem_certificate){.lower_bound = -1, .gap = NAN};
    if (a->keeps_base == reference->keeps_base) *certificate = reference->certificate;
    if (certificate->lower_bound >= 0 && a->sensitivity_bound > 0)
        certificate->gap =
            (double)(a->sensitivity_bound - certificate->lower_bound) / (double)a->sensitivity_bound;
    if (a->sensitivity_bound == 0) *certificate = (tandem_certificate){.proof = "zero"};
    tandem_allocation_fill_plan(d->best_plan, problem, a);
}

/* problem: the caller's. d->best gives way to the fastest plan that may replace it. */
static tandem_status take_faster(objective_search *d, const tandem_allocation_problem *problem,
                                 tandem_error *error)
{
    const tandem_allocation reference = d->best;
    tandem_plan *reference_plan = d->best_plan;
    if (!problem->estimate || reference.step_ns <= reference.fastest_ns) return TANDEM_OK;
    d->problem.slowdown = 0;
    d->problem.target_ns = 0;
    d->max_sensitivity = INT64_MAX;
    d->best_plan = NULL;
    const tandem_status status = bisect_faster(d, reference_plan, error);
    if (d->best_plan) {
        tandem_plan_close(reference_plan);
        describe_taken(d, problem, &reference);
    } else {
        d->best_plan = reference_plan;
    }
    return status;
}

/* --- Plans of one precision ------------------------------------------------------------------------------
 *
 * They are listed beside every answer. One that is better by the goal is the answer. */

/* What the goal minimizes; INFINITY: the plan exceeds a limit. */
static double goal_value(const objective_search *d, const tandem_goal *goal, int64_t step_ns,
                         int64_t sensitivity, uint64_t peak_bytes)
{
    const int64_t target_ns = d->best.target_ns;
    switch (goal->objective) {
    case TANDEM_MINIMIZE_STEP: return sensitivity <= goal->max_sensitivity ? (double)step_ns : INFINITY;
    case TANDEM_MINIMIZE_TRAINING_TIME: return training_ns_of(d, step_ns, sensitivity);
    case TANDEM_MINIMIZE_MEMORY:
        return step_ns <= target_ns && sensitivity <= goal->max_sensitivity ? (double)peak_bytes : INFINITY;
    case TANDEM_MINIMIZE_OPEN:
    case TANDEM_MINIMIZE_SENSITIVITY: break;
    }
    return step_ns <= target_ns ? (double)sensitivity : INFINITY;
}

static double baseline_value(const objective_search *d, const tandem_goal *goal, const tandem_baseline *b)
{
    const int n_class = tandem_replayer_cluster(d->problem.replayer)->n_class;
    return b->fits ? goal_value(d, goal, b->step_ns, b->sensitivity_bound,
                                tandem_max_peak_bytes(b->peak_bytes, n_class))
                   : INFINITY;
}

/* Makes it the best plan, with the target and the bounds of the plan that it replaces where its classes allow
 * them. */
static tandem_status take_baseline(objective_search *d, const tandem_baseline *b,
                                   const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_plan *const plan = d->best_plan;
    tandem_allocation *a = &d->best;
    const tandem_status status =
        tandem_baseline_assign(plan, problem->graph, problem->base_precision, b, error);
    if (status != TANDEM_OK) return status;
    const unsigned kept = a->keeps_base & ~b->lowered;
    a->step_ns = b->step_ns;
    a->sensitivity_bound = b->sensitivity_bound;
    memcpy(a->peak_bytes, b->peak_bytes, sizeof a->peak_bytes);
    if (a->step_ns > a->target_ns) a->target_ns = a->step_ns;
    if (kept != a->keeps_base || a->certificate.lower_bound > a->sensitivity_bound)
        a->certificate = (tandem_certificate){.lower_bound = -1, .gap = NAN};
    else if (a->certificate.lower_bound >= 0 && a->sensitivity_bound > 0)
        a->certificate.gap =
            (double)(a->sensitivity_bound - a->certificate.lower_bound) / (double)a->sensitivity_bound;
    if (a->sensitivity_bound == 0) a->certificate = (tandem_certificate){.proof = "zero"};
    a->keeps_base = kept;
    if (isfinite(a->training_ns)) {
        a->training_ns = training_ns_of(d, a->step_ns, a->sensitivity_bound);
        a->training_bound_ns = fmin(a->training_bound_ns, a->training_ns);
    }
    tandem_allocation_fill_plan(plan, problem, a);
    return TANDEM_OK;
}

static tandem_status take_better_baseline(objective_search *d, const tandem_goal *goal,
                                          const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_baseline baseline[TANDEM_N_PRECISION];
    int n = 0, best = -1;
    if (d->policy->ignores_target) return TANDEM_OK; /* its one plan was asked for */
    const tandem_status status = tandem_baselines_find(baseline, &n, problem, d->best_plan, error);
    if (status != TANDEM_OK) return status;
    d->replays += n;
    double least =
        goal_value(d, goal, d->best.step_ns, d->best.sensitivity_bound, search_peak_bytes(d, &d->best));
    int64_t least_step_ns = d->best.step_ns;
    for (int k = 0; k < n; k++) {
        const double value = baseline_value(d, goal, &baseline[k]);
        if (value > least || (value == least && baseline[k].step_ns >= least_step_ns)) continue;
        least = value;
        least_step_ns = baseline[k].step_ns;
        best = k;
    }
    return best >= 0 ? take_baseline(d, &baseline[best], problem, error) : TANDEM_OK;
}

/* --- Public --------------------------------------------------------------------------------------------- */

/* Certifies the final plan only. For the least memory a bound on sensitivity says nothing. Leaves the plan in
 * the replayer. */
static tandem_status certify_answer(objective_search *d, const tandem_goal *goal,
                                    const tandem_allocation_problem *problem, tandem_error *error)
{
    tandem_certificate *certificate = &d->best.certificate;
    tandem_status status = TANDEM_OK;
    tandem_replayer_load(problem->replayer, &d->best_plan->assignment);
    if (goal->objective == TANDEM_MINIMIZE_SENSITIVITY && !d->best.indistinguishable_ns &&
        certificate->lower_bound > 0)
        return TANDEM_OK;
    if (goal->objective == TANDEM_MINIMIZE_MEMORY)
        *certificate = (tandem_certificate){.lower_bound = -1, .gap = NAN};
    else if (certificate->lower_bound < 0 && !problem->without_certificate)
        status = tandem_certify(certificate, problem, d->best.target_ns, d->best.keeps_base,
                                d->best.sensitivity_bound, error);
    *certificate = tandem_certificate_without_empty(certificate, d->best.sensitivity_bound);
    d->best_plan->lower_bound = tandem_sensitivity_value(problem, certificate->lower_bound);
    d->best_plan->gap = certificate->gap;
    (void)snprintf(d->best_plan->proof, sizeof d->best_plan->proof, "%s", certificate->proof);
    return status;
}

static tandem_status check_training_method(const char *method, tandem_error *error)
{
    const tandem_sensitivity_method *row = NULL;
    if (method && tandem_sensitivity_find(&row, method, NULL) == TANDEM_OK && strcmp(row->unit, "%") == 0)
        return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_USAGE,
        "the least training time needs sensitivities in percent of more samples: those of "
        "method %s have the unit %s. Use method sampled",
        method ? method : "(none)", row ? row->unit : "none");
}

static tandem_status check_goal(const tandem_allocation_problem *problem, const tandem_policy *policy,
                                const tandem_goal *goal, const char *method, tandem_error *error)
{
    const int is_training = goal->objective == TANDEM_MINIMIZE_TRAINING_TIME;
    if (goal->objective == TANDEM_MINIMIZE_SENSITIVITY) return TANDEM_OK;
    if (goal->objective == TANDEM_MINIMIZE_OPEN)
        return tandem_error_set(error, TANDEM_USAGE, "the goal says nothing of what is to be minimized");
    if (policy->ignores_target)
        return tandem_error_set(error, TANDEM_USAGE,
                                "policy %s has a single plan: it takes neither a target nor a largest "
                                "sensitivity",
                                policy->name);
    if (goal->max_sensitivity < 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a budget of %" PRId64 " units: a sensitivity is a number from 0 upwards",
                                goal->max_sensitivity);
    if (problem->target_ns && goal->objective == TANDEM_MINIMIZE_STEP)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "both a target and the fastest step within a budget: the target says how long the step may be");
    if (problem->target_ns && is_training)
        return tandem_error_set(error, TANDEM_USAGE,
                                "both a target and the least training time, which decides on the step");
    return is_training ? check_training_method(method, error) : TANDEM_OK;
}

static tandem_status minimize(objective_search *d, tandem_objective objective,
                              const tandem_allocation_problem *problem, tandem_error *error)
{
    switch (objective) {
    case TANDEM_MINIMIZE_STEP: return minimize_step(d, error);
    case TANDEM_MINIMIZE_MEMORY: return minimize_memory(d, error);
    case TANDEM_MINIMIZE_TRAINING_TIME: return minimize_training_time(d, error);
    case TANDEM_MINIMIZE_OPEN:
    case TANDEM_MINIMIZE_SENSITIVITY: break;
    }
    tandem_allocation_problem asked = *problem;
    asked.known_fastest = d->problem.known_fastest;
    const tandem_status status =
        tandem_allocate(&d->best_plan, &d->best, d->policy, &asked, d->method, error);
    if (status == TANDEM_OK) d->replays = d->best.replays;
    return status;
}

/* Whether a largest sensitivity was given that the objective takes. */
static int is_limited_by(const tandem_goal *goal)
{
    return goal->max_sensitivity < INT64_MAX &&
           (goal->objective == TANDEM_MINIMIZE_STEP || goal->objective == TANDEM_MINIMIZE_MEMORY);
}

tandem_status tandem_allocate_for(tandem_plan **plan, tandem_allocation *allocation, const tandem_goal *goal,
                                  const tandem_policy *policy, const tandem_allocation_problem *problem,
                                  const char *method, tandem_error *error)
{
    objective_search d = {
        .problem = *problem, .policy = policy, .method = method, .max_sensitivity = goal->max_sensitivity};
    tandem_known_fastest known = {.is_known = 0};
    d.problem.without_certificate = 1;
    d.problem.known_fastest = &known;
    d.problem.work_limit = tandem_effort_limit(problem->work_limit) / USUAL_ANSWERS;
    tandem_status status = check_goal(problem, policy, goal, method, error);
    if (status == TANDEM_OK) status = minimize(&d, goal->objective, problem, error);
    if (status == TANDEM_OK) status = take_better_baseline(&d, goal, problem, error);
    if (status == TANDEM_OK && goal->objective == TANDEM_MINIMIZE_SENSITIVITY)
        status = take_faster(&d, problem, error);
    if (status == TANDEM_OK) status = certify_answer(&d, goal, problem, error);
    if (status == TANDEM_OK) {
        d.best_plan->objective = goal->objective;
        d.best_plan->max_sensitivity =
            is_limited_by(goal) ? tandem_sensitivity_value(problem, goal->max_sensitivity) : NAN;
        *plan = d.best_plan;
        *allocation = d.best;
        allocation->replays = d.replays;
        allocation->work = d.work;
        d.best_plan = NULL;
    }
    tandem_known_fastest_close(&known);
    tandem_plan_close(d.best_plan);
    tandem_plan_close(d.plan);
    return status;
}
