/* plans_pair.c: a V100 in fp32 beside a T4 in low precision, as far as `tandem-study plans` needs them.
 *
 * The study's models are so small that launches would be all of their time on such cards. So a step counts
 * the arithmetic of products alone, at the datasheets' peaks, as in a model large enough. Formats that a T4
 * lacks run at the rate of its 8-bit units. */
#include "research/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_randist.h>

#include "tandem/advanced/allocator.h"

enum { FAST, SLOW };
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

static int has_low_precision(const plans_pair *pair, int op)
{
    const tandem_op *of = &pair->graph[SLOW]->op[op];
    return tandem_op_is_adjustable(of) && tandem_op_row_get(of->kind)->precisions & 1u << pair->precision;
}

/* On a card: all operators in fp32, then those that have it in low precision. */
static tandem_status time_card(int64_t *fp32_ps, int64_t *low_ps, const plans_pair *pair, int c,
                               tandem_error *error)
{
    const tandem_device *device = &pair->cluster.classes[c].device;
    tandem_step *step = NULL;
    const tandem_status status = tandem_device_open_step(&step, device, pair->graph[c], 0, NULL, error);
    if (status != TANDEM_OK) return status;
    add_op_times(fp32_ps, step, device);
    for (int i = 0; i < pair->n_op && low_ps; i++)
        if (has_low_precision(pair, i)) tandem_step_set(step, i, pair->precision);
    if (low_ps) add_op_times(low_ps, step, device);
    tandem_step_close(step);
    return TANDEM_OK;
}

tandem_status plans_pair_open(plans_pair *pair, const study_training *task, const plans_regime *regime,
                              tandem_error *error)
{
    *pair = (plans_pair){.precision = regime->precision};
    tandem_status status = tandem_cluster_parse(&pair->cluster, "v100 + t4 net=100Gbit/s,5us", error);
    if (status == TANDEM_OK) status = tandem_cluster_fill_defaults(&pair->cluster, task->batch, NULL, error);
    if (status == TANDEM_OK)
        status = tandem_cluster_open_graphs(pair->graph, &pair->cluster, task->model, error);
    if (status != TANDEM_OK) return status;
    pair->cluster.classes[FAST].device.precisions = 1u << TANDEM_PRECISION_FP32;
    pair->cluster.classes[SLOW].device.precisions = 1u << TANDEM_PRECISION_FP32 | 1u << regime->precision;
    pair->n_op = pair->graph[SLOW]->n_op;
    int64_t *fast_ps = calloc((size_t)pair->n_op, sizeof *fast_ps);
    pair->fp32_ps = calloc((size_t)pair->n_op, sizeof *pair->fp32_ps);
    pair->low_ps = calloc((size_t)pair->n_op, sizeof *pair->low_ps);
    if (!fast_ps || !pair->fp32_ps || !pair->low_ps) {
        free(fast_ps);
        return tandem_no_memory(error, "for the times of operators");
    }
    status = time_card(fast_ps, NULL, pair, FAST, error);
    if (status == TANDEM_OK) status = time_card(pair->fp32_ps, pair->low_ps, pair, SLOW, error);
    int64_t slow_ps = 0;
    for (int i = 0; i < pair->n_op && status == TANDEM_OK; i++) {
        pair->fast_ps += fast_ps[i];
        slow_ps += pair->fp32_ps[i];
        if (!has_low_precision(pair, i)) pair->low_ps[i] = 0;
    }
    if (status == TANDEM_OK) pair->split = (double)pair->fast_ps / (double)slow_ps;
    free(fast_ps);
    return status;
}

void plans_pair_close(plans_pair *pair)
{
    for (int c = 0; c < pair->cluster.n_class; c++) tandem_graph_close(pair->graph[c]);
    free(pair->fp32_ps);
    free(pair->low_ps);
    *pair = (plans_pair){0};
}

int64_t plans_pair_ps(const plans_pair *pair, const tandem_precision *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < pair->n_op; i++)
        sum += plan[i] == pair->precision ? pair->low_ps[i] : pair->fp32_ps[i];
    return sum;
}

void plans_uniform(tandem_precision *plan, const plans_pair *pair)
{
    for (int i = 0; i < pair->n_op; i++)
        plan[i] = has_low_precision(pair, i) ? pair->precision : TANDEM_PRECISION_FP32;
}

tandem_status plans_random(tandem_precision *plan, const plans_pair *pair, uint64_t seed, tandem_error *error)
{
    int *order = calloc((size_t)pair->n_op, sizeof *order);
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    const int is_allocated = order && random;
    plans_uniform(plan, pair);
    if (is_allocated) {
        gsl_rng_set(random, 1 + (unsigned long)seed);
        for (int i = 0; i < pair->n_op; i++) order[i] = i;
        gsl_ran_shuffle(random, order, (size_t)pair->n_op, sizeof *order);
    }
    for (int i = 0; i < pair->n_op && is_allocated; i++) {
        tandem_precision *const of = &plan[order[i]], before = *of;
        *of = TANDEM_PRECISION_FP32;
        if (plans_pair_ps(pair, plan) > pair->fast_ps) *of = before;
    }
    if (random) gsl_rng_free(random);
    free(order);
    return is_allocated ? TANDEM_OK : tandem_no_memory(error, "for a random plan");
}

/* Gives a replayer the pair's times: all else takes none. */
static void set_pair_times(tandem_replayer *replayer, const plans_pair *pair)
{
    for (int c = 0; c < pair->cluster.n_class; c++) {
        const tandem_step *step = tandem_replayer_step(replayer, c);
        const tandem_device *device = &pair->cluster.classes[c].device;
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
}

static double share_of_samples(const tandem_allocation_problem *problem, int64_t units)
{
    return tandem_sensitivity_value(problem, units) / 100;
}

static double extra_samples_of_slow_card(const tandem_allocation_problem *problem,
                                         const tandem_precision *plan)
{
    tandem_replayer_load_class(problem->replayer, SLOW, plan);
    return share_of_samples(problem, tandem_allocation_sensitivity(problem));
}

tandem_status plans_allocate(tandem_precision *plan, plans_shares *shares, const plans_pair *pair,
                             const cli_options *options, tandem_estimate *estimate, tandem_error *error)
{
    const size_t n_cell = (size_t)estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    const tandem_request request = {.store = options->db, .predict = 1, .times_only = 1};
    tandem_planner *planner = NULL;
    tandem_answer answer = {.plan = NULL};
    const tandem_allocation_request question = {.max_step_ns = pair->fast_ps};
    memset(estimate->is_estimated, 1, n_cell); /* what neither card runs is in no plan */
    tandem_status status = tandem_planner_open_for(&planner, &request, &pair->cluster,
                                                   (const tandem_graph *const *)pair->graph, error);
    if (status == TANDEM_OK) status = tandem_planner_set_estimate(planner, estimate, error);
    if (status == TANDEM_OK) {
        tandem_allocation_problem *problem = tandem_planner_problem(planner);
        set_pair_times(problem->replayer, pair);
        status = tandem_planner_ask(&answer, planner, &question, error);
        if (status == TANDEM_OK)
            shares->allocated = share_of_samples(problem, answer.allocation.sensitivity_bound);
        shares->before = extra_samples_of_slow_card(problem, plan);
        plans_uniform(plan, pair);
        shares->uniform = extra_samples_of_slow_card(problem, plan);
    }
    for (int i = 0; i < pair->n_op && status == TANDEM_OK; i++)
        plan[i] = answer.plan->assignment.precision[SLOW][i];
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
    return status;
}
