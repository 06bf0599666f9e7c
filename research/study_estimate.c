/* study_estimate.c: what a rounding changes of the gradients of one training, estimated along it. */
#include <math.h>
#include <stdlib.h>

#include "runtime/estimate/estimate.h"
#include "research/trainings.h"
#include "research/study_runs.h"

/* The plan with all operators in a precision that they have. NULL: no memory. */
static tandem_precision *make_whole_plan(const tandem_graph *graph, tandem_precision precision)
{
    tandem_precision *plan = calloc((size_t)graph->n_op, sizeof *plan);
    for (int i = 0; i < graph->n_op && plan; i++)
        if (tandem_op_is_adjustable(&graph->op[i]) &&
            tandem_op_row_get(graph->op[i].kind)->precisions & 1u << precision)
            plan[i] = precision;
    return plan;
}

/* What `tandem sensitivity` asks for without options (runtime/estimate/sensitivity.c), of one precision: by a
 * probe, or with --plan of the plan as a whole. */
static estimate_request default_request(const tandem_workload *workload, const study_training *in_fp32,
                                        int is_whole)
{
    estimate_request request = {.n_replicate = PLAN_REPLICATES};
    if (!is_whole)
        request = estimate_request_probe(workload);
    request.n_point = 2;
    request.point[0] = in_fp32->steps / 2;
    request.point[1] = in_fp32->steps * 9 / 10;
    return request;
}

tandem_status study_estimate(tandem_estimate *estimate, const study_lab *lab, const study_training *in_fp32,
                             const study_rounding_plan *rounding, tandem_error *error)
{
    cli_options options;
    tandem_workload workload = {0};
    estimate_request request = {.n_point = rounding->n_point,
                                .n_replicate = rounding->n_replicate,
                                .is_curved = rounding->is_curved,
                                .own_products = rounding->own_products};
    for (int a = 0; a < request.n_point; a++)
        request.point[a] = in_fp32->steps * (2 * a + 1) / (2 * (int64_t)request.n_point);
    tandem_status status = study_workload_open(&workload, &options, lab, in_fp32, error);
    tandem_precision *plan = status == TANDEM_OK && rounding->is_whole
                                 ? make_whole_plan(workload.graph[0], rounding->precision)
                                 : NULL;
    if (status == TANDEM_OK && rounding->is_whole && !plan) status = tandem_no_memory(error, "for a plan");
    if (status == TANDEM_OK && rounding->is_default)
        request = default_request(&workload, in_fp32, rounding->is_whole);
    request.precision = tandem_precision_get(rounding->precision)->name;
    request.emulation = rounding->emulation;
    request.plan = plan;
    request.n_plan = plan != NULL;
    if (status == TANDEM_OK) status = estimate_by_options(estimate, &workload, &options, &request, error);
    free(plan);
    tandem_workload_close(&workload);
    return status;
}

double *study_shares_open(const tandem_estimate *estimate, const study_lab *lab, tandem_precision precision,
                          double of_batch)
{
    const tandem_dtype amp_dtype =
        tandem_precision_has_amp(precision) ? lab->workload.cluster.classes[0].device.amp_dtype : TANDEM_F32;
    double *share = calloc((size_t)estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE, sizeof *share);
    for (int op = 0; op < estimate->n_op && share; op++) {
        const int cell = tandem_estimate_cell(op, precision, amp_dtype);
        share[cell] = estimate->is_estimated[cell] ? of_batch : 0;
    }
    return share;
}
