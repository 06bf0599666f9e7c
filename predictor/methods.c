/* methods.c: the list of sensitivity methods, and their use on what the store holds. */
#include "tandem/predictor.h"
#include "base/nearest.h"
#include "predictor/methods.h"

#include <stdlib.h>
#include <string.h>

const tandem_sensitivity_method *const tandem_sensitivity_methods[] = {
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
    const char *candidates[N_METHOD];
    for (size_t m = 0; m < N_METHOD; m++) {
        if (strcmp(tandem_sensitivity_methods[m]->name, name) == 0) {
            *method = tandem_sensitivity_methods[m];
            return TANDEM_OK;
        }
        candidates[m] = tandem_sensitivity_methods[m]->name;
    }
    return tandem_error_set(
        error, TANDEM_UNKNOWN_NAME, "there is no sensitivity method '%.40s'.%s There are %s and %s.", name,
        tandem_nearest_hint(name, candidates, N_METHOD).text, candidates[0], candidates[1]);
}
_Static_assert(N_METHOD == 2, "the message above lists every method");

static tandem_status check_statistics_complete(const tandem_graph *graph, const tandem_statistics *statistics,
                                               tandem_error *error)
{
    for (int i = 0; i < graph->n_op; i++) {
        if (!tandem_op_is_adjustable(&graph->op[i]) || statistics[i].n_batch > 0) continue;
        return tandem_error_set(error, TANDEM_MISSING,
                                "operator '%s' of model %s has no statistics in the store; "
                                "`tandem sensitivity --model %s --data S --device D` measures them",
                                graph->op[i].name, graph->model, graph->model);
    }
    return TANDEM_OK;
}

/* Statistics that are each within their ranges, of operators that are not one model's, may still amount to no
 * number. */
static tandem_status check_sensitivities(const double *sensitivity, const tandem_graph *graph,
                                         tandem_error *error)
{
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION; i++)
        if (!(sensitivity[i] >= 0))
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "the statistics of operator '%s' of model %s in the store give a harm of "
                                    "%g, and harm is 0 or "
                                    "above; `tandem sensitivity --model %s --data S --device D` measures "
                                    "them anew",
                                    graph->op[i / TANDEM_N_PRECISION].name, graph->model, sensitivity[i],
                                    graph->model);
    return TANDEM_OK;
}

tandem_status tandem_sensitivity_load(double *sensitivity, tandem_store *store, const tandem_graph *graph,
                                      const char *method, const char *data, tandem_dtype amp_dtype,
                                      tandem_error *error)
{
    const tandem_sensitivity_method *found;
    tandem_status status = tandem_sensitivity_find(&found, method, error);
    if (status != TANDEM_OK) return status;
    const size_t n_op = graph->n_op ? (size_t)graph->n_op : 1;
    tandem_statistics *const statistics = calloc(n_op, sizeof *statistics);
    double *const computed = calloc(n_op * TANDEM_N_PRECISION, sizeof *computed);
    if (!statistics || !computed)
        status = tandem_no_memory(error,
                                  "for the statistics of model %s (%d "
                                  "operators)",
                                  graph->model, graph->n_op);
    if (status == TANDEM_OK) status = tandem_store_load_statistics(statistics, store, graph, data, error);
    if (status == TANDEM_OK) status = check_statistics_complete(graph, statistics, error);
    if (status == TANDEM_OK) found->compute(computed, graph, statistics, amp_dtype);
    if (status == TANDEM_OK) status = check_sensitivities(computed, graph, error);
    if (status == TANDEM_OK)
        memcpy(sensitivity, computed, (size_t)graph->n_op * TANDEM_N_PRECISION * sizeof *computed);
    free(computed);
    free(statistics);
    return status;
}
