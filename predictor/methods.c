/* methods.c: the table of sensitivity methods, and their use on the statistics in the store. */
#include "tandem/advanced/predictor.h"
#include "base/nearest.h"
#include "predictor/methods.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tandem_sensitivity_method *const tandem_sensitivity_methods[] = {
    &tandem_sensitivity_sampled,
    &tandem_sensitivity_fisher,
    &tandem_sensitivity_qsync,
    NULL,
};
enum { N_METHOD = sizeof tandem_sensitivity_methods / sizeof tandem_sensitivity_methods[0] - 1 };

const tandem_sensitivity_method *tandem_sensitivity_get(int index)
{
    return index >= 0 && index < (int)N_METHOD ? tandem_sensitivity_methods[index] : NULL;
}

tandem_status tandem_sensitivity_find(const tandem_sensitivity_method **method, const char *name,
                                      tandem_error *error)
{
    const char *names[N_METHOD];
    char list[160] = "";
    tandem_hint hint;
    for (size_t m = 0; m < N_METHOD; m++) {
        names[m] = tandem_sensitivity_methods[m]->name;
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", m ? ", " : "", names[m]);
    }
    const int k = tandem_name_find(name, names, N_METHOD, sizeof *names, &hint);
    if (k < 0)
        return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                "there is no sensitivity method '%.40s'.%s There are: %s", name, hint.text,
                                list);
    *method = tandem_sensitivity_methods[k];
    return TANDEM_OK;
}

static tandem_status check_statistics_complete(const tandem_graph *graph, const tandem_statistics *statistics,
                                               tandem_error *error)
{
    for (int i = 0; i < graph->n_op; i++) {
        if (!tandem_op_is_adjustable(&graph->op[i]) || statistics[i].n_batch > 0) continue;
        return tandem_error_set(error, TANDEM_MISSING,
                                "operator '%s' of model %s has no statistics in the store; measure them with "
                                "`tandem sensitivity --model %s --data DATA`",
                                graph->op[i].name, graph->model, graph->model);
    }
    return TANDEM_OK;
}

/* Statistics in range may still give no number, for instance where the operators are of different models. */
static tandem_status check_sensitivities(const double *sensitivity, const tandem_graph *graph,
                                         tandem_error *error)
{
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION; i++)
        if (!(sensitivity[i] >= 0 && sensitivity[i] <= DBL_MAX))
            return tandem_error_set(
                error, TANDEM_MALFORMED,
                "the statistics of operator '%s' of model %s in the store give a sensitivity of %g, "
                "allowed are numbers ≥ 0; measure them again with `tandem sensitivity --model %s "
                "--data DATA`",
                graph->op[i / TANDEM_N_PRECISION].name, graph->model, sensitivity[i], graph->model);
    return TANDEM_OK;
}

static tandem_status compute_from_statistics(double *computed, const tandem_sensitivity_method *method,
                                             tandem_store *store, const tandem_graph *graph, const char *data,
                                             const tandem_sensitivity_step *step, tandem_dtype amp_dtype,
                                             tandem_error *error)
{
    tandem_statistics *const statistics = calloc(graph->n_op ? (size_t)graph->n_op : 1, sizeof *statistics);
    if (!statistics)
        return tandem_no_memory(error, "for the statistics of model %s (%d operators)", graph->model,
                                graph->n_op);
    tandem_status status = tandem_store_load_statistics(statistics, store, graph, data, error);
    if (status == TANDEM_OK) status = check_statistics_complete(graph, statistics, error);
    if (status == TANDEM_OK) method->compute(computed, graph, statistics, amp_dtype);
    if (status == TANDEM_OK && step && step->gradient_noise > 0 && method->add_gradient_noise)
        method->add_gradient_noise(computed, graph, statistics, step->gradient_noise);
    free(statistics);
    return status;
}

static tandem_status compute_from_estimate(double *computed, const tandem_sensitivity_method *method,
                                           tandem_store *store, const tandem_graph *graph, const char *data,
                                           const tandem_sensitivity_step *step, tandem_dtype amp_dtype,
                                           unsigned precisions, tandem_error *error)
{
    tandem_estimate estimate = {0};
    tandem_status status = tandem_store_load_estimate(&estimate, store, graph, data, error);
    if (status == TANDEM_OK)
        status = method->compute_estimated(computed, graph, &estimate, step, amp_dtype, precisions, error);
    tandem_estimate_close(&estimate);
    return status;
}

tandem_status tandem_sensitivity_load(double *sensitivity, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data,
                                      const tandem_sensitivity_step *step, tandem_dtype amp_dtype,
                                      unsigned precisions, tandem_error *error)
{
    const tandem_sensitivity_method *found;
    tandem_status status = tandem_sensitivity_find(&found, method, error);
    if (status != TANDEM_OK) return status;
    const size_t n_op = graph->n_op ? (size_t)graph->n_op : 1;
    double *const computed = calloc(n_op * TANDEM_N_PRECISION, sizeof *computed);
    if (!computed)
        return tandem_no_memory(error, "for the sensitivities of model %s (%d operators)", graph->model,
                                graph->n_op);
    if (found->compute)
        status = compute_from_statistics(computed, found, store, graph, data, step, amp_dtype, error);
    else
        status =
            compute_from_estimate(computed, found, store, graph, data, step, amp_dtype, precisions, error);
    if (status == TANDEM_OK) status = check_sensitivities(computed, graph, error);
    if (status == TANDEM_OK)
        memcpy(sensitivity, computed, (size_t)graph->n_op * TANDEM_N_PRECISION * sizeof *computed);
    free(computed);
    return status;
}
