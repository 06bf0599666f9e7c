/* sensed_plan.c: the sensitivity of a whole plan: that of the sum of its replicates. */
#include "cli/sensed_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* [cells] the part of the global batch that runs each operator in each precision; returns the step. */
static tandem_sensed_step fill_shares(double *share, const tandem_plan *plan, const tandem_graph *graph)
{
    const tandem_cluster *cluster = &plan->cluster;
    tandem_sensed_step step = {.n_micro = plan->step.n_micro > 1 ? plan->step.n_micro : 1};
    int64_t samples = 0;
    for (int c = 0; c < cluster->n_class; c++)
        samples += cluster->classes[c].batch * cluster->classes[c].n_rank;
    step.global_batch = samples * step.n_micro;
    for (int c = 0; c < cluster->n_class; c++)
        for (int op = 0; op < graph->n_op; op++) {
            const tandem_precision precision = plan->assignment.precision[c][op];
            if (precision == TANDEM_PRECISION_FP32) continue;
            share[tandem_sensing_cell(op, precision, cluster->classes[c].device.amp_dtype)] +=
                (double)(cluster->classes[c].batch * cluster->classes[c].n_rank) / (double)samples;
        }
    return step;
}

tandem_status sensed_plan_estimate(tandem_sensitivity_estimate *estimate, int *is_known,
                                   const cli_options *options, const tandem_plan *plan,
                                   const tandem_graph *graph, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_sensing sensing = {0};
    *is_known = strcmp(plan->method, "sampled") == 0;
    if (!*is_known) return TANDEM_OK;
    const size_t n_cell = (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    double *share = calloc(n_cell + 1, sizeof *share);
    tandem_status status = share ? TANDEM_OK : tandem_no_memory(error, "for a plan's shares");
    if (status == TANDEM_OK) status = tandem_store_open(&store, options->db, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK) status = tandem_store_load_sensing(&sensing, store, graph, options->data, error);
    if (status == TANDEM_OK) {
        const tandem_sensed_step step = fill_shares(share, plan, graph);
        status = tandem_sensing_estimate(estimate, &sensing, share, &step, error);
    }
    tandem_sensing_close(&sensing);
    tandem_store_close(store);
    free(share);
    return status;
}

void sensed_plan_print(const tandem_sensitivity_estimate *e)
{
    printf("sensitivity  %.2g %% more samples to the same loss (95 %%: %.2g to %.2g %%): noise %.2g %%, ",
           100 * e->value, 100 * e->low, 100 * e->high, 100 * fmax(e->noise, 0));
    if (isnan(e->bias))
        puts("bias unknown");
    else
        printf("bias %.2g %%\n", 100 * fmax(e->bias, 0));
}

json_t *sensed_plan_json(const tandem_sensitivity_estimate *e, int is_known)
{
    json_t *object = is_known ? json_object() : json_null();
    if (!is_known) return object;
    json_object_set_new(object, "sensitivity", cli_json_number(100 * e->value));
    json_object_set_new(object, "sensitivity_low", cli_json_number(100 * e->low));
    json_object_set_new(object, "sensitivity_high", cli_json_number(100 * e->high));
    json_object_set_new(object, "noise", cli_json_number(100 * e->noise));
    json_object_set_new(object, "bias", cli_json_number(100 * e->bias));
    return object;
}
