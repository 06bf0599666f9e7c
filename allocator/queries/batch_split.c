/* batch_split.c: chooses each class's part of the global batch, together with the precisions.
 *
 * A split gives every rank of a class the same batch. The search moves samples between one pair of classes at
 * a time, in the smallest unit that keeps the sum. It tries a coarse grid first, then finer ones around the
 * best split. It repeats this for all pairs until nothing improves. With two classes that covers every split,
 * or a fine grid of them. The policy evaluates a split. The search first looks for the split with the fastest
 * step. With a limit, that gives the target, and the least sensitivity within it is looked for next. Without
 * one it is the least step × (1 + sensitivity): only splits whose fastest step is below the best such value
 * can have less. Splits with missing costs are passed over. */
#include "allocator/policies.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE_ROUNDS = 3, GRID_POINTS = 64, MAX_GRIDS = 3 };

/* What a split is evaluated by; the smallest value is best. */
typedef enum split_criterion {
    BASE_STEP,
    FASTEST_STEP,
    SENSITIVITY,
    TRAINING_TIME,
    N_CRITERION
} split_criterion;

typedef struct batch_split {
    int64_t batch[TANDEM_MAX_CLASS];
    int is_missing;
    double value[N_CRITERION]; /* NAN = not evaluated; INFINITY = no plan */
} batch_split;

typedef struct split_search {
    const tandem_batch_source *source;
    int n_class;
    int64_t n_rank[TANDEM_MAX_CLASS], all_ranks;
    int64_t global_batch;
    int64_t target_ns;  /* of SENSITIVITY */
    const char *method; /* of TRAINING_TIME: in percent */
    batch_split *seen;
    int n_seen, capacity, n_missing;
    tandem_error missing; /* what the first split with missing costs lacks */
} split_search;

/* --- One split ------------------------------------------------------------------------------------------ */

static tandem_status find_or_add_split(batch_split **out, split_search *s, const int64_t *batch,
                                       tandem_error *error)
{
    const size_t bytes = (size_t)s->n_class * sizeof *batch;
    for (int k = 0; k < s->n_seen; k++)
        if (memcmp(s->seen[k].batch, batch, bytes) == 0) {
            *out = &s->seen[k];
            return TANDEM_OK;
        }
    if (s->n_seen == s->capacity) {
        const int capacity = 2 * s->capacity + GRID_POINTS;
        batch_split *grown = realloc(s->seen, (size_t)capacity * sizeof *grown);
        if (!grown) return tandem_no_memory(error, "for %d splits of a batch", capacity);
        s->seen = grown;
        s->capacity = capacity;
    }
    batch_split *added = &s->seen[s->n_seen++];
    *added = (batch_split){.value = {NAN, NAN, NAN, NAN}};
    memcpy(added->batch, batch, bytes);
    *out = added;
    return TANDEM_OK;
}

/* Makes the plan that a criterion evaluates, at one split. `policy` NULL: greedy, without a certificate and
 * without looking at plans that an estimate cannot distinguish, for one of many splits. TANDEM_MISSING,
 * TANDEM_INFEASIBLE. */
static tandem_status make_split_plan(tandem_plan **plan, tandem_allocation *a, const split_search *s,
                                     const int64_t *batch, split_criterion criterion,
                                     const tandem_policy *policy, const char *method, tandem_error *error)
{
    static const tandem_goal training_time = {TANDEM_MINIMIZE_TRAINING_TIME, INT64_MAX};
    tandem_allocation_problem *opened = NULL;
    tandem_status status = s->source->open(s->source->context, batch, &opened, error);
    if (status != TANDEM_OK) return status;
    tandem_allocation_problem problem = *opened;
    if (!policy || criterion == BASE_STEP) problem.without_certificate = 1;
    if (!policy) problem.estimate = NULL;
    if (criterion == FASTEST_STEP || criterion == TRAINING_TIME) problem.slowdown = 0;
    if (criterion == FASTEST_STEP || criterion == TRAINING_TIME) problem.target_ns = 0;
    if (criterion == SENSITIVITY) problem.target_ns = s->target_ns;
    if (!policy) policy = &tandem_policy_greedy;
    if (criterion == BASE_STEP) policy = &tandem_policy_base;
    status = criterion == TRAINING_TIME
                 ? tandem_allocate_for(plan, a, &training_time, policy, &problem, s->method, error)
                 : tandem_allocate(plan, a, policy, &problem, method, error);
    s->source->close(s->source->context, opened);
    return status;
}

static tandem_status evaluate_split(split_search *s, const int64_t *batch, split_criterion criterion,
                                    double *value, tandem_error *error)
{
    batch_split *at = NULL;
    tandem_plan *plan = NULL;
    tandem_allocation a;
    tandem_error why = {0};
    tandem_status status = find_or_add_split(&at, s, batch, error);
    if (status != TANDEM_OK) return status;
    *value = at->is_missing ? INFINITY : at->value[criterion];
    if (!isnan(*value)) return TANDEM_OK;
    status = make_split_plan(&plan, &a, s, batch, criterion, NULL, NULL, &why);
    tandem_plan_close(plan);
    *value = status != TANDEM_OK          ? INFINITY
             : criterion == SENSITIVITY   ? (double)a.sensitivity_bound
             : criterion == TRAINING_TIME ? a.training_ns
                                          : (double)a.step_ns;
    at->value[criterion] = *value;
    if (status == TANDEM_MISSING) {
        at->is_missing = 1;
        if (s->n_missing++ == 0) s->missing = why;
    }
    if (status == TANDEM_OK || status == TANDEM_MISSING || status == TANDEM_INFEASIBLE) return TANDEM_OK;
    return tandem_error_forward(status, &why, error);
}

/* The same; INFINITY where the split cannot have less than `limit`: no training time is below the fastest
 * step. */
static tandem_status evaluate_split_below(split_search *s, const int64_t *batch, split_criterion criterion,
                                          double limit, double *value, tandem_error *error)
{
    if (criterion == TRAINING_TIME) {
        const tandem_status status = evaluate_split(s, batch, FASTEST_STEP, value, error);
        if (status != TANDEM_OK) return status;
        if (*value >= limit) {
            *value = INFINITY;
            return TANDEM_OK;
        }
    }
    return evaluate_split(s, batch, criterion, value, error);
}

/* --- Searching ------------------------------------------------------------------------------------------ */

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Moves samples between two classes of best[n_class] to where the value is least. */
static tandem_status search_class_pair(split_search *s, int64_t *best, double *value, int from, int to,
                                       split_criterion criterion, tandem_error *error)
{
    const int64_t divisor = greatest_common_divisor(s->n_rank[from], s->n_rank[to]);
    assert(divisor > 0);
    /* per rank, for one unit */
    const int64_t less = s->n_rank[to] / divisor, more = s->n_rank[from] / divisor;
    assert(less > 0 && more > 0);
    int64_t middle[TANDEM_MAX_CLASS];
    memcpy(middle, best, sizeof middle);
    int64_t low = -((middle[to] - 1) / more), high = (middle[from] - 1) / less, at = 0;
    int64_t stride = (high - low) / GRID_POINTS + 1;
    tandem_status status = TANDEM_OK;
    for (int grid = 0; grid < MAX_GRIDS && status == TANDEM_OK; grid++) {
        const int64_t centre = at, first = centre - (centre - low) / stride * stride;
        for (int64_t u = first; u <= high && status == TANDEM_OK; u += stride) {
            int64_t tried[TANDEM_MAX_CLASS];
            double reached;
            memcpy(tried, middle, sizeof tried);
            tried[from] -= u * less;
            tried[to] += u * more;
            status = evaluate_split_below(s, tried, criterion, *value, &reached, error);
            if (status != TANDEM_OK || reached >= *value) continue;
            *value = reached;
            at = u;
            memcpy(best, tried, sizeof tried);
        }
        if (stride == 1) break;
        low = at - stride > low ? at - stride : low;
        high = at + stride < high ? at + stride : high;
        stride = (high - low) / GRID_POINTS + 1;
    }
    return status;
}

static tandem_status search_splits(split_search *s, int64_t *best, double *value, split_criterion criterion,
                                   tandem_error *error)
{
    tandem_status status = evaluate_split(s, best, criterion, value, error);
    double before = NAN;
    for (int round = 0; round < MAX_LINE_ROUNDS && status == TANDEM_OK && *value != before; round++) {
        before = *value;
        for (int from = 0; from < s->n_class; from++)
            for (int to = from + 1; to < s->n_class && status == TANDEM_OK; to++)
                status = search_class_pair(s, best, value, from, to, criterion, error);
    }
    return status;
}

/* --- The split to begin with ---------------------------------------------------------------------------- */

/* The most even split: two classes may share the remainder. Returns 0 if there is none. */
static int divide_evenly(int64_t *batch, const split_search *s)
{
    assert(s->all_ranks > 0);
    const int64_t even = s->global_batch / s->all_ranks, left = s->global_batch % s->all_ranks;
    for (int c = 0; c < s->n_class; c++) batch[c] = even;
    if (left == 0) return even > 0;
    for (int i = 0; i < s->n_class; i++)
        for (int j = 0; j < s->n_class; j++)
            for (int64_t k = 0; k < s->n_rank[j] && i != j; k++) {
                const int64_t rest = left - s->n_rank[i] * k;
                if (rest % s->n_rank[j] != 0 || even + rest / s->n_rank[j] < 1 || even + k < 1) continue;
                batch[i] += k;
                batch[j] += rest / s->n_rank[j];
                return 1;
            }
    return 0;
}

static tandem_status check_global_batch(const split_search *s, int64_t *batch, tandem_error *error)
{
    if (divide_evenly(batch, s)) return TANDEM_OK;
    const int64_t below = s->global_batch / s->all_ranks * s->all_ranks;
    return tandem_error_set(error, TANDEM_USAGE,
                            "a global batch of %" PRId64 " cannot be split among %" PRId64
                            " ranks so that the ranks of a class have equal parts; %" PRId64 " can",
                            s->global_batch, s->all_ranks, below > 0 ? below : s->all_ranks);
}

/* --- Public --------------------------------------------------------------------------------------------- */

/* Fills in one of the three results. Without a plan there, it stays empty. */
static tandem_status fill_batch_plan(tandem_batch_plan *out, split_search *s, const int64_t *batch,
                                     split_criterion criterion, const tandem_policy *policy,
                                     const char *method, tandem_error *error)
{
    tandem_error why = {0};
    const tandem_status status =
        make_split_plan(&out->plan, &out->allocation, s, batch, criterion, policy, method, &why);
    memcpy(out->batch, batch, sizeof out->batch);
    if (status == TANDEM_OK || status == TANDEM_MISSING || status == TANDEM_INFEASIBLE) return TANDEM_OK;
    return tandem_error_forward(status, &why, error);
}

/* The split and the plan with the least step × (1 + sensitivity), from the fastest split on. */
static tandem_status choose_by_training_time(tandem_batch_choice *choice, split_search *s, int64_t *batch,
                                             const tandem_policy *policy, tandem_error *error)
{
    double value;
    tandem_status status = search_splits(s, batch, &value, FASTEST_STEP, error);
    if (status == TANDEM_OK && isfinite(value)) {
        status = search_splits(s, batch, &value, TRAINING_TIME, error);
        if (status == TANDEM_OK)
            status = fill_batch_plan(&choice->both, s, batch, TRAINING_TIME, policy, s->method, error);
    }
    return status;
}

/* The split and the plan with the least sensitivity within target_ns; 0: within (1 + slowdown) × the fastest
 * step of all splits. */
static tandem_status choose_within_limit(tandem_batch_choice *choice, split_search *s, int64_t *batch,
                                         int64_t target_ns, double slowdown, const tandem_policy *policy,
                                         const char *method, tandem_error *error)
{
    int64_t fastest[TANDEM_MAX_CLASS] = {0};
    double value;
    tandem_status status = TANDEM_OK;
    if (!target_ns) {
        status = search_splits(s, batch, &value, FASTEST_STEP, error);
        memcpy(fastest, batch, sizeof fastest);
        if (status == TANDEM_OK && isfinite(value))
            target_ns = (int64_t)value + (int64_t)fmin(value * fmax(slowdown, 0), 0x1p61);
    }
    s->target_ns = target_ns;
    if (status == TANDEM_OK && target_ns) {
        status = search_splits(s, batch, &value, SENSITIVITY, error);
        if (status == TANDEM_OK)
            status = fill_batch_plan(&choice->both, s, batch, SENSITIVITY, policy, method, error);
        /* policies search locally: under the target they may miss the plan that set it */
        if (status == TANDEM_OK && !choice->both.plan && fastest[0] > 0)
            status = fill_batch_plan(&choice->both, s, fastest, FASTEST_STEP, policy, method, error);
    }
    return status;
}

static tandem_status choose_batch_plans(tandem_batch_choice *choice, split_search *s, const int64_t *even,
                                        int64_t target_ns, double slowdown, const tandem_policy *policy,
                                        const char *method, tandem_error *error)
{
    const int is_limited =
        target_ns > 0 || slowdown >= 0 ||
        tandem_goal_without_limit(policy, method).objective != TANDEM_MINIMIZE_TRAINING_TIME;
    int64_t batch[TANDEM_MAX_CLASS];
    double value;
    memcpy(batch, even, sizeof batch);
    tandem_status status = search_splits(s, batch, &value, BASE_STEP, error);
    if (status == TANDEM_OK)
        status = fill_batch_plan(&choice->batch_alone, s, batch, BASE_STEP, policy, method, error);
    if (status == TANDEM_OK)
        status = is_limited
                     ? choose_within_limit(choice, s, batch, target_ns, slowdown, policy, method, error)
                     : choose_by_training_time(choice, s, batch, policy, error);
    if (status == TANDEM_OK)
        status = fill_batch_plan(&choice->precision_alone, s, even, is_limited ? N_CRITERION : TRAINING_TIME,
                                 policy, method, error);
    return status;
}

tandem_status tandem_batch_choose(tandem_batch_choice *out, const tandem_cluster *cluster,
                                  int64_t global_batch, const tandem_batch_source *source,
                                  const tandem_policy *policy, const char *method, int64_t target_ns,
                                  double slowdown, tandem_error *error)
{
    tandem_batch_choice choice = {.n_split = 0};
    split_search s = {
        .source = source, .n_class = cluster->n_class, .global_batch = global_batch, .method = method};
    int64_t even[TANDEM_MAX_CLASS] = {0};
    for (int c = 0; c < cluster->n_class; c++) s.all_ranks += s.n_rank[c] = cluster->classes[c].n_rank;
    tandem_status status = check_global_batch(&s, even, error);
    if (status == TANDEM_OK)
        status = choose_batch_plans(&choice, &s, even, target_ns, slowdown, policy, method, error);
    choice.n_split = s.n_seen;
    choice.n_missing = s.n_missing;
    if (status == TANDEM_OK && s.n_seen == s.n_missing) {
        if (error) *error = s.missing;
        status = TANDEM_MISSING;
    } else if (status == TANDEM_OK && !choice.both.plan) {
        status = tandem_error_set(error, TANDEM_INFEASIBLE,
                                  "no split of a global batch of %" PRId64
                                  " has a plan within the limits (%d splits tried)",
                                  global_batch, s.n_seen - s.n_missing);
    }
    if (status == TANDEM_OK)
        *out = choice;
    else
        tandem_batch_choice_free(&choice);
    free(s.seen);
    return status;
}

void tandem_batch_choice_free(tandem_batch_choice *choice)
{
    tandem_plan_close(choice->both.plan);
    tandem_plan_close(choice->batch_alone.plan);
    tandem_plan_close(choice->precision_alone.plan);
    *choice = (tandem_batch_choice){.n_split = 0};
}
