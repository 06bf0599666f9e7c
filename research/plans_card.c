/* plans_card.c: a card with a wide and a narrow precision, alone or beside a faster one, as far as
 * `tandem-study plans` and `drift` need one.
 *
 * The study's models are so small that launches would be all of their time on such cards. So a step counts
 * the arithmetic of products alone, at the datasheets' peaks, as in a model large enough. Formats that a
 * card lacks run at the rate of its 8-bit units. */
#include "research/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_randist.h>

#include "tandem/advanced/allocator.h"

static const double ps_per_s = 1e12;

/* Of a task in a variant; 0: no product. */
static int64_t product_ps(const tandem_step *step, int t, int variant, const tandem_device *device)
{
    tandem_cost_key key;
    tandem_work work;
    if (!tandem_step_cost_key(step, t, variant, &key) || !tandem_work_of(&work, &key) || !work.is_product)
        return 0;
    double rate = device->gpu_spec.flops_per_s[work.type];
    if (!(rate > 0)) rate = device->gpu_spec.flops_per_s[work.type == TANDEM_F32 ? TANDEM_F32 : TANDEM_S8];
    return llround(work.flops / rate * ps_per_s);
}

/* Adds the time of every operator under the precisions of the step. */
static void add_op_times(int64_t *of_op, tandem_step *step, const tandem_device *device)
{
    tandem_step_resolve(step);
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].op >= 0 && step->task[t].active)
            of_op[step->task[t].op] += product_ps(step, t, step->task[t].variant, device);
}

static int can_have(const plans_card *card, int op, tandem_precision precision)
{
    const tandem_op *of = &card->graph[card->c]->op[op];
    return tandem_op_is_adjustable(of) && tandem_op_row_get(of->kind)->precisions & 1u << precision;
}

static tandem_precision wide_precision(const plans_card *card, int op)
{
    return can_have(card, op, card->regime.high) ? card->regime.high : TANDEM_PRECISION_FP32;
}

/* Of all operators of class c: in the high precision, and those that have it in the low one. */
static tandem_status time_class(int64_t *high_ps, int64_t *low_ps, const plans_card *card, int c,
                                tandem_error *error)
{
    const tandem_device *device = &card->cluster.classes[c].device;
    tandem_step *step = NULL;
    const tandem_status status = tandem_device_open_step(&step, device, card->graph[c], 0, NULL, error);
    if (status != TANDEM_OK) return status;
    for (int i = 0; i < card->n_op; i++)
        if (can_have(card, i, card->regime.high)) tandem_step_set(step, i, card->regime.high);
    add_op_times(high_ps, step, device);
    for (int i = 0; i < card->n_op && low_ps; i++)
        if (can_have(card, i, card->regime.low)) tandem_step_set(step, i, card->regime.low);
    if (low_ps) add_op_times(low_ps, step, device);
    tandem_step_close(step);
    return TANDEM_OK;
}

static int64_t sum_ps(const int64_t *of_op, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += of_op[i];
    return sum;
}

static tandem_status time_step(plans_card *card, tandem_error *error)
{
    int64_t saved_ps = 0;
    tandem_status status = time_class(card->high_ps, card->low_ps, card, card->c, error);
    for (int i = 0; i < card->n_op && status == TANDEM_OK; i++) {
        if (!can_have(card, i, card->regime.low)) card->low_ps[i] = 0;
        if (card->low_ps[i] == 0) continue;
        saved_ps += card->high_ps[i] - card->low_ps[i];
        card->n_choice++;
    }
    card->target_ps =
        sum_ps(card->high_ps, card->n_op) - (int64_t)floor(card->regime.kept * (double)saved_ps);
    if (status != TANDEM_OK || card->c == 0) return status;
    int64_t *fast_ps = calloc((size_t)card->n_op, sizeof *fast_ps);
    status = fast_ps ? time_class(fast_ps, NULL, card, 0, error)
                     : tandem_no_memory(error, "for the times of operators");
    if (status == TANDEM_OK) card->target_ps = sum_ps(fast_ps, card->n_op);
    free(fast_ps);
    return status;
}

tandem_status plans_card_open(plans_card *card, const study_training *task, const plans_regime *regime,
                              tandem_error *error)
{
    const unsigned high = 1u << TANDEM_PRECISION_FP32 | 1u << regime->high;
    *card = (plans_card){.regime = *regime};
    tandem_status status = tandem_cluster_parse(&card->cluster, regime->cluster, error);
    if (status == TANDEM_OK) status = tandem_cluster_fill_defaults(&card->cluster, task->batch, NULL, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(card->graph, &card->cluster, task->model, error);
    if (status != TANDEM_OK) return status;
    card->c = card->cluster.n_class - 1;
    for (int c = 0; c <= card->c; c++)
        card->cluster.classes[c].device.precisions = c == card->c ? high | 1u << regime->low : high;
    card->n_op = card->graph[card->c]->n_op;
    card->high_ps = calloc((size_t)card->n_op, sizeof *card->high_ps);
    card->low_ps = calloc((size_t)card->n_op, sizeof *card->low_ps);
    if (!card->high_ps || !card->low_ps) return tandem_no_memory(error, "for the times of operators");
    return time_step(card, error);
}

void plans_card_close(plans_card *card)
{
    for (int c = 0; c < card->cluster.n_class; c++) tandem_graph_close(card->graph[c]);
    free(card->high_ps);
    free(card->low_ps);
    *card = (plans_card){.n_op = 0};
}

static int is_low(const plans_card *card, const tandem_precision *plan, int op)
{
    return card->low_ps[op] > 0 && plan[op] == card->regime.low;
}

int64_t plans_card_ps(const plans_card *card, const tandem_precision *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < card->n_op; i++) sum += is_low(card, plan, i) ? card->low_ps[i] : card->high_ps[i];
    return sum;
}

double plans_card_score(const plans_card *card, const tandem_precision *plan, const double *score)
{
    double sum = 0;
    for (int i = 0; i < card->n_op; i++) sum += is_low(card, plan, i) ? score[i] : 0;
    return sum;
}

double plans_card_log_count(const plans_card *card)
{
    enum { UNITS = 1000 };
    double count[UNITS + 1] = {1}; /* of plans that take no more than so many units beyond all low */
    int64_t low_ps = 0;
    for (int i = 0; i < card->n_op; i++) low_ps += card->low_ps[i] > 0 ? card->low_ps[i] : card->high_ps[i];
    const double unit = (double)(card->target_ps - low_ps) / UNITS;
    for (int i = 0; i < card->n_op; i++) {
        if (card->low_ps[i] == 0 || unit <= 0) continue;
        const int64_t cost = (int64_t)ceil((double)(card->high_ps[i] - card->low_ps[i]) / unit);
        for (int64_t k = UNITS; k >= cost && cost >= 0; k--) count[k] += count[k - cost];
    }
    double sum = 0;
    for (int k = 0; k <= UNITS; k++) sum += count[k];
    return log10(sum);
}

/* --- Plans that need no estimate ----------------------------------------------------------------------- */

void plans_uniform(tandem_precision *plan, const plans_card *card)
{
    for (int i = 0; i < card->n_op; i++)
        plan[i] = card->low_ps[i] > 0 ? card->regime.low : wide_precision(card, i);
}

static tandem_status shuffle(int *order, int n, uint64_t seed, tandem_error *error)
{
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    if (!random) return tandem_no_memory(error, "for a random plan");
    gsl_rng_set(random, 1 + (unsigned long)seed);
    gsl_ran_shuffle(random, order, (size_t)n, sizeof *order);
    gsl_rng_free(random);
    return TANDEM_OK;
}

/* What it needs more for the time that it saves; those without a choice come last. */
static double score_of_time(const plans_card *card, const double *score, int op)
{
    return card->low_ps[op] > 0 ? score[op] / (double)(card->high_ps[op] - card->low_ps[op]) : INFINITY;
}

static void sort_by_score(int *order, const plans_card *card, const double *score)
{
    for (int i = 1; i < card->n_op; i++)
        for (int k = i; k > 0; k--) {
            const int a = order[k - 1], b = order[k];
            if (score_of_time(card, score, a) <= score_of_time(card, score, b)) break;
            order[k - 1] = b;
            order[k] = a;
        }
}

/* Those that have a choice from either end, in turns; then all others. */
static void order_from_ends(int *order, const plans_card *card)
{
    const int n = card->n_op;
    int n_ordered = 0, first = 0, last = n - 1;
    while (first <= last) {
        while (first < n && card->low_ps[first] == 0) first++;
        while (last >= 0 && card->low_ps[last] == 0) last--;
        if (first <= last) order[n_ordered++] = first++;
        if (first <= last) order[n_ordered++] = last--;
    }
    for (int i = 0; i < n; i++)
        if (card->low_ps[i] == 0) order[n_ordered++] = i;
}

tandem_status plans_draw(tandem_precision *plan, const plans_card *card, plans_arm arm, uint64_t seed,
                         const double *score, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int *order = calloc((size_t)card->n_op, sizeof *order);
    if (!order) return tandem_no_memory(error, "for an order of operators");
    for (int i = 0; i < card->n_op; i++) order[i] = arm == PLANS_LAST ? card->n_op - 1 - i : i;
    if (arm == PLANS_ENDS) order_from_ends(order, card);
    if (arm == PLANS_WORST) sort_by_score(order, card, score);
    if (arm == PLANS_RANDOM) status = shuffle(order, card->n_op, seed, error);
    plans_uniform(plan, card);
    for (int i = 0; i < card->n_op && status == TANDEM_OK; i++) {
        tandem_precision *const of = &plan[order[i]], before = *of;
        *of = wide_precision(card, order[i]);
        if (plans_card_ps(card, plan) > card->target_ps) *of = before;
    }
    free(order);
    return status;
}

/* --- Plans of the allocator ---------------------------------------------------------------------------- */

/* Gives a replayer the times of a class: all else takes none. */
static void set_product_times(tandem_replayer *replayer, const plans_card *card, int c)
{
    const tandem_step *step = tandem_replayer_step(replayer, c);
    const tandem_device *device = &card->cluster.classes[c].device;
    for (int t = 0; t < step->n_task; t++) {
        const int is_reduce = step->task[t].kind == TANDEM_TASK_REDUCE;
        const uint64_t variants = is_reduce ? 1 : tandem_step_variants(step, t, device->precisions);
        for (int v = 0; v < TANDEM_MAX_VARIANT; v++) {
            if (!(variants >> v & 1)) continue;
            const int64_t ps = is_reduce ? 0 : product_ps(step, t, v, device);
            for (int contended = 0; contended < 2; contended++)
                tandem_replayer_set_variant_ns(replayer, c, t, v, contended, ps);
        }
    }
}

static tandem_status open_planner(tandem_planner **planner, const plans_card *card,
                                  const cli_options *options, tandem_error *error)
{
    const tandem_request request = {.store = options->db,
                                    .predict = 1,
                                    .times_only = 1,
                                    .base_precision = tandem_precision_get(card->regime.high)->name};
    return tandem_planner_open_for(planner, &request, &card->cluster,
                                   (const tandem_graph *const *)card->graph, error);
}

static void copy_plan(tandem_precision *to, const plans_card *card, const tandem_plan *plan)
{
    for (int i = 0; i < card->n_op; i++) to[i] = plan->assignment.precision[card->c][i];
}

tandem_status plans_allocate(tandem_precision *plan, double *score, const plans_card *card,
                             const cli_options *options, tandem_estimate *estimate, tandem_error *error)
{
    const size_t n_cell = (size_t)estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    const tandem_allocation_request question = {.max_step_ns = card->target_ps};
    tandem_planner *planner = NULL;
    tandem_answer answer = {.plan = NULL};
    memset(estimate->is_estimated, 1, n_cell); /* what the card does not run is in no plan */
    tandem_status status = open_planner(&planner, card, options, error);
    if (status == TANDEM_OK) status = tandem_planner_set_estimate(planner, estimate, error);
    if (status == TANDEM_OK) {
        tandem_allocation_problem *problem = tandem_planner_problem(planner);
        for (int c = 0; c <= card->c; c++) set_product_times(problem->replayer, card, c);
        for (int i = 0; i < card->n_op; i++) {
            const int64_t units =
                problem->sensitivity[card->c][i * TANDEM_N_PRECISION + (int)card->regime.low];
            score[i] = card->low_ps[i] > 0 ? tandem_sensitivity_value(problem, units) / 100 : 0;
        }
        status = tandem_planner_ask(&answer, planner, &question, error);
    }
    if (status == TANDEM_OK) copy_plan(plan, card, answer.plan);
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
    return status;
}

tandem_status plans_allocate_by(tandem_precision *plan, const plans_card *card, const cli_options *options,
                                const double *indicator, tandem_error *error)
{
    static const double largest = 1e9; /* units of an operator */
    tandem_planner *planner = NULL;
    tandem_plan *allocated = NULL;
    tandem_allocation allocation;
    double top = 0;
    int64_t *units = calloc((size_t)card->n_op * TANDEM_N_PRECISION, sizeof *units);
    tandem_status status =
        units ? open_planner(&planner, card, options, error) : tandem_no_memory(error, "for an indicator");
    for (int i = 0; i < card->n_op; i++) top = fmax(top, indicator[i]);
    for (int i = 0; i < card->n_op && units && top > 0; i++)
        units[i * TANDEM_N_PRECISION + (int)card->regime.low] = llround(largest * indicator[i] / top);
    if (status == TANDEM_OK) {
        tandem_allocation_problem *problem = tandem_planner_problem(planner);
        for (int c = 0; c <= card->c; c++) set_product_times(problem->replayer, card, c);
        problem->sensitivity[card->c] = units;
        problem->target_ns = card->target_ps;
        status = tandem_allocate(&allocated, &allocation, tandem_policy_get(0), problem, NULL, error);
        problem->sensitivity[card->c] = NULL;
    }
    if (status == TANDEM_OK) copy_plan(plan, card, allocated);
    tandem_plan_close(allocated);
    tandem_planner_close(planner);
    free(units);
    return status;
}
