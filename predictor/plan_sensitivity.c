/* plan_sensitivity.c: the sensitivity of a whole plan, from all replicates of a sensing. */
#include <stdlib.h>
#include <string.h>

#include "tandem/advanced/predictor.h"

/* The cells that a plan uses, with the part of its global batch that runs each of them. */
typedef struct plan_shares {
    double *share; /* [cells of tandem_sensing_cell] */
    tandem_sensed_step step;
} plan_shares;

static size_t sensed_cell_count(const tandem_graph *graph)
{
    return (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
}

static tandem_status open_plan_shares(plan_shares *shares, const tandem_plan *plan, const tandem_graph *graph,
                                      tandem_error *error)
{
    const tandem_cluster *cluster = &plan->cluster;
    int64_t samples = 0;
    for (int c = 0; c < cluster->n_class; c++)
        samples += cluster->classes[c].batch * cluster->classes[c].n_rank;
    shares->step.n_micro = plan->step.n_micro > 1 ? plan->step.n_micro : 1;
    shares->step.global_batch = samples * shares->step.n_micro;
    shares->share = calloc(sensed_cell_count(graph) + 1, sizeof *shares->share);
    if (!shares->share) return tandem_no_memory(error, "for a plan's shares");
    for (int c = 0; c < cluster->n_class; c++)
        for (int op = 0; op < graph->n_op; op++) {
            const tandem_precision precision = plan->assignment.precision[c][op];
            if (precision == TANDEM_PRECISION_FP32 || samples < 1) continue;
            shares->share[tandem_sensing_cell(op, precision, cluster->classes[c].device.amp_dtype)] +=
                (double)(cluster->classes[c].batch * cluster->classes[c].n_rank) / (double)samples;
        }
    return TANDEM_OK;
}

/* Inserts behind those that are no smaller. */
static void insert_largest(tandem_plan_sensitivity *of, tandem_largest_sensitivity added)
{
    int at = of->n_largest;
    while (at > 0 && of->largest[at - 1].value < added.value) at--;
    if (at == TANDEM_N_LARGEST) return;
    const int n_kept = of->n_largest < TANDEM_N_LARGEST ? of->n_largest : TANDEM_N_LARGEST - 1;
    memmove(&of->largest[at + 1], &of->largest[at], (size_t)(n_kept - at) * sizeof *of->largest);
    of->largest[at] = added;
    of->n_largest = n_kept + 1;
}

/* Each operator in each precision alone; the AMP types of a precision count together. */
static tandem_status find_largest(tandem_plan_sensitivity *of, const tandem_sensing *sensing,
                                  const plan_shares *shares, const tandem_graph *graph, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    double *const alone = calloc(sensed_cell_count(graph) + 1, sizeof *alone);
    if (!alone) return tandem_no_memory(error, "for a plan's shares");
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        const size_t first = (size_t)i * TANDEM_N_AMP_DTYPE, bytes = TANDEM_N_AMP_DTYPE * sizeof *alone;
        tandem_sensitivity_estimate one = {0};
        int is_used = 0;
        for (size_t k = 0; k < TANDEM_N_AMP_DTYPE; k++) is_used |= shares->share[first + k] > 0;
        if (!is_used) continue;
        memcpy(alone + first, shares->share + first, bytes);
        status = tandem_sensing_estimate(&one, sensing, alone, &shares->step, error);
        memset(alone + first, 0, bytes);
        if (status == TANDEM_OK && one.value > 0)
            insert_largest(of, (tandem_largest_sensitivity){i / TANDEM_N_PRECISION,
                                                            (tandem_precision)(i % TANDEM_N_PRECISION),
                                                            one.value});
    }
    free(alone);
    return status;
}

tandem_status tandem_plan_sensitivity_estimate(tandem_plan_sensitivity *out, const tandem_sensing *sensing,
                                               const tandem_plan *plan, const tandem_graph *graph,
                                               tandem_error *error)
{
    tandem_plan_sensitivity of = {.n_age = sensing->n_age};
    plan_shares shares = {0};
    tandem_status status = tandem_plan_check(plan, graph, error);
    if (status == TANDEM_OK) status = open_plan_shares(&shares, plan, graph, error);
    if (status == TANDEM_OK)
        status = tandem_sensing_estimate(&of.estimate, sensing, shares.share, &shares.step, error);
    if (status == TANDEM_OK) status = find_largest(&of, sensing, &shares, graph, error);
    for (int a = 0; a < of.n_age; a++)
        of.age_share[a] = sensing->steps > 0 ? (double)sensing->age[a] / (double)sensing->steps : 0;
    if (status == TANDEM_OK) *out = of;
    free(shares.share);
    return status;
}
