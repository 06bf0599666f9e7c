/* plan_sensitivity.c: the sensitivity of a whole plan, from all replicates of an estimate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/advanced/predictor.h"

double tandem_allreduce_noise(const tandem_cluster *cluster)
{
    const int n_rank = tandem_cluster_n_rank(cluster);
    return n_rank > 1 ? tandem_rounding_variance(cluster->wire, 0, 1) * (n_rank + 1) / 2 : 0;
}

/* The cells that a plan uses, with the part of its global batch that runs each of them. */
typedef struct plan_shares {
    double *share;       /* [cells of tandem_estimate_cell] */
    double *micro_batch; /* after it, as many: of the step */
    tandem_sensitivity_step step;
} plan_shares;

static size_t estimated_cell_count(const tandem_graph *graph)
{
    return (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
}

/* With no share yet; plan_shares_add adds them. The caller frees shares->share. */
static tandem_status open_plan_shares(plan_shares *shares, const tandem_plan *plan, const tandem_graph *graph,
                                      tandem_error *error)
{
    shares->step.n_micro = plan->step.n_micro > 1 ? plan->step.n_micro : 1;
    shares->step.global_batch = tandem_cluster_samples(&plan->cluster, plan->step.n_micro);
    shares->step.gradient_noise = tandem_allreduce_noise(&plan->cluster);
    shares->share = calloc(2 * (estimated_cell_count(graph) + 1), sizeof *shares->share);
    if (!shares->share) return tandem_no_memory(error, "for a plan's shares");
    shares->step.micro_batch = shares->micro_batch = shares->share + estimated_cell_count(graph);
    return TANDEM_OK;
}

static void add_plan_share(plan_shares *shares, const tandem_plan *plan, int c, int op,
                           tandem_precision precision)
{
    const tandem_cluster_class *class = &plan->cluster.classes[c];
    if (precision == TANDEM_PRECISION_FP32 || shares->step.global_batch < 1) return;
    const int cell = tandem_estimate_cell(op, precision, class->device.amp_dtype);
    const double added =
        (double)(class->batch * class->n_rank * shares->step.n_micro) / (double)shares->step.global_batch;
    double *const share = &shares->share[cell], *const micro_batch = &shares->micro_batch[cell];
    *micro_batch = *share > 0 ? pow(*micro_batch, *share / (*share + added)) *
                                    pow((double)class->batch, added / (*share + added))
                              : (double)class->batch;
    *share += added;
}

static tandem_status fill_plan_shares(plan_shares *shares, const tandem_plan *plan, const tandem_graph *graph,
                                      tandem_error *error)
{
    tandem_status status = tandem_plan_check(plan, graph, error);
    if (status == TANDEM_OK) status = open_plan_shares(shares, plan, graph, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < plan->cluster.n_class; c++)
        for (int op = 0; op < graph->n_op; op++)
            add_plan_share(shares, plan, c, op, plan->assignment.precision[c][op]);
    return TANDEM_OK;
}

/* Inserts after those that are no smaller. */
static void insert_largest(tandem_plan_sensitivity *sum, tandem_largest_sensitivity added)
{
    int at = sum->n_largest;
    while (at > 0 && sum->largest[at - 1].value < added.value) at--;
    if (at == TANDEM_N_LARGEST) return;
    const int n_kept = sum->n_largest < TANDEM_N_LARGEST ? sum->n_largest : TANDEM_N_LARGEST - 1;
    memmove(&sum->largest[at + 1], &sum->largest[at], (size_t)(n_kept - at) * sizeof *sum->largest);
    sum->largest[at] = added;
    sum->n_largest = n_kept + 1;
}

/* Each operator in each precision alone; the AMP types of a precision count together. */
static tandem_status find_largest(tandem_plan_sensitivity *sum, const tandem_estimate *estimate,
                                  const plan_shares *shares, const tandem_graph *graph, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    tandem_sensitivity_step step = shares->step;
    step.gradient_noise = 0; /* of no operator */
    double *const alone = calloc(estimated_cell_count(graph) + 1, sizeof *alone);
    if (!alone) return tandem_no_memory(error, "for a plan's shares");
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        const size_t first = (size_t)i * TANDEM_N_AMP_DTYPE, bytes = TANDEM_N_AMP_DTYPE * sizeof *alone;
        tandem_sensitivity_estimate of_operator = {0};
        int is_used = 0;
        for (size_t k = 0; k < TANDEM_N_AMP_DTYPE; k++) is_used |= shares->share[first + k] > 0;
        if (!is_used) continue;
        memcpy(alone + first, shares->share + first, bytes);
        status = tandem_estimate_sensitivity(&of_operator, estimate, alone, &step, error);
        memset(alone + first, 0, bytes);
        if (status == TANDEM_OK && of_operator.value > 0)
            insert_largest(sum, (tandem_largest_sensitivity){
                                    i / TANDEM_N_PRECISION, (tandem_precision)(i % TANDEM_N_PRECISION),
                                    of_operator.value, of_operator.low, of_operator.high});
    }
    free(alone);
    return status;
}

tandem_status tandem_plan_sensitivity_estimate(tandem_plan_sensitivity *out, const tandem_estimate *estimate,
                                               const tandem_plan *plan, const tandem_graph *graph,
                                               tandem_error *error)
{
    tandem_plan_sensitivity sum = {.n_point = estimate->n_point};
    plan_shares shares = {0};
    tandem_status status = fill_plan_shares(&shares, plan, graph, error);
    if (status == TANDEM_OK)
        status = tandem_estimate_sensitivity(&sum.estimate, estimate, shares.share, &shares.step, error);
    if (status == TANDEM_OK) status = find_largest(&sum, estimate, &shares, graph, error);
    for (int a = 0; a < sum.n_point; a++)
        sum.point_share[a] = estimate->steps > 0 ? (double)estimate->point[a] / (double)estimate->steps : 0;
    if (status == TANDEM_OK) *out = sum;
    free(shares.share);
    return status;
}

tandem_status tandem_choice_sensitivity_estimate(tandem_sensitivity_estimate *to,
                                                 const tandem_estimate *estimate, const tandem_plan *plan,
                                                 const tandem_graph *graph, int c, int op,
                                                 tandem_precision precision, tandem_error *error)
{
    plan_shares shares = {0};
    tandem_status status = open_plan_shares(&shares, plan, graph, error);
    if (status == TANDEM_OK) add_plan_share(&shares, plan, c, op, precision);
    shares.step.gradient_noise = 0;
    if (status == TANDEM_OK)
        status = tandem_estimate_sensitivity(to, estimate, shares.share, &shares.step, error);
    free(shares.share);
    return status;
}

tandem_status tandem_plan_sensitivity_compare(tandem_sensitivity_difference *difference,
                                              const tandem_estimate *estimate, const tandem_plan *more,
                                              const tandem_plan *less, const tandem_graph *graph,
                                              tandem_error *error)
{
    plan_shares of_more = {0}, of_less = {0};
    tandem_status status = fill_plan_shares(&of_more, more, graph, error);
    if (status == TANDEM_OK) status = fill_plan_shares(&of_less, less, graph, error);
    if (status == TANDEM_OK && (of_more.step.global_batch != of_less.step.global_batch ||
                                of_more.step.n_micro != of_less.step.n_micro))
        status = tandem_error_set(
            error, TANDEM_USAGE, "plans with different samples or micro-steps in a step share no replicates");
    if (status == TANDEM_OK)
        status = tandem_estimate_compare(difference, estimate, of_more.share, &of_more.step, of_less.share,
                                         &of_less.step, error);
    if (status == TANDEM_OK) {
        const double exchange = of_more.step.gradient_noise - of_less.step.gradient_noise;
        difference->value += exchange;
        difference->low += exchange;
        difference->high += exchange;
    }
    free(of_less.share);
    free(of_more.share);
    return status;
}
