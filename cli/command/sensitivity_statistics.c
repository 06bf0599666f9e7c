/* sensitivity_statistics.c: `tandem sensitivity --by statistics`: measures statistics of every adjustable
 * operator, and what the methods say that need nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/batch_statistics.h"
#include "cli/command/sensitivity.h"

static tandem_status put_all_statistics(const training_rank *rank, const tandem_statistics *statistics,
                                        const cli_options *options, tandem_error *error)
{
    const tandem_graph *graph = rank->step->graph;
    char libraries[128];
    tandem_store *store = NULL;
    double *sensitivity = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof *sensitivity);
    if (!sensitivity) return tandem_no_memory(error, "for sensitivities");
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK)
        status = tandem_store_set_environment(store, rank->backend->libraries(libraries, sizeof libraries), 1,
                                              error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int i = 0; i < graph->n_op && status == TANDEM_OK; i++)
        if (statistics[i].n_batch > 0)
            status = tandem_store_put_statistics(store, graph, options->data, i, &statistics[i], error);
    for (int m = 0; tandem_sensitivity_get(m) && status == TANDEM_OK; m++) {
        const tandem_sensitivity_method *method = tandem_sensitivity_get(m);
        if (!method->compute) continue;
        static const tandem_dtype amp_dtype[] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
        for (size_t k = 0; k < sizeof amp_dtype / sizeof *amp_dtype && status == TANDEM_OK; k++) {
            method->compute(sensitivity, graph, statistics, amp_dtype[k]);
            for (int i = 0; i < graph->n_op; i++)
                for (int p = 0; p < TANDEM_N_PRECISION && status == TANDEM_OK; p++)
                    if (tandem_op_row_get(graph->op[i].kind)->precisions & (1u << p))
                        status = tandem_store_put_sensitivity(store, graph, method->name, i,
                                                              (tandem_precision)p, amp_dtype[k],
                                                              sensitivity[i * TANDEM_N_PRECISION + p], error);
        }
    }
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    if (status != TANDEM_OK && store) tandem_store_rollback(store);
    tandem_store_close(store);
    free(sensitivity);
    return status;
}

/* --- Report --------------------------------------------------------------------------------------------- */

enum { MAX_METHOD = 8 };

static int print_statistics_report(const tandem_statistics *statistics, const tandem_graph *graph,
                                   const cli_options *options, const tandem_device *device)
{
    const tandem_sensitivity_method *method[MAX_METHOD];
    double *sensitivity[MAX_METHOD] = {0};
    int n_method = 0, code = 0;
    for (int m = 0; tandem_sensitivity_get(m) && n_method < MAX_METHOD; m++)
        if (tandem_sensitivity_get(m)->compute) method[n_method++] = tandem_sensitivity_get(m);
    for (int m = 0; m < n_method; m++) {
        sensitivity[m] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **sensitivity);
        if (!sensitivity[m]) code = cli_fail_with(TANDEM_NO_MEMORY, "no memory for sensitivities");
        if (sensitivity[m]) method[m]->compute(sensitivity[m], graph, statistics, device->amp_dtype);
    }
    json_t *operators = json_array();
    cli_progress_end();
    if (!options->json && !code)
        printf("%-28s %-10s %14s %14s\n", "operator", "precision", "fisher (nats)", "qsync");
    for (int i = 0; i < graph->n_op && !code; i++)
        for (int p = 1; p < TANDEM_N_PRECISION; p++) {
            const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
            if (!(row->precisions & (1u << p))) continue;
            json_t *methods = json_object();
            if (!options->json)
                printf("%-28s %-10s", graph->op[i].name, tandem_precision_get((tandem_precision)p)->name);
            for (int m = 0; m < n_method; m++) {
                const double h = sensitivity[m][i * TANDEM_N_PRECISION + p];
                json_object_set_new(methods, method[m]->name, json_real(h));
                if (!options->json) printf(" %14s", tandem_quantity_known_to(h, NAN).text);
            }
            if (!options->json) putchar('\n');
            json_array_append_new(operators,
                                  json_pack("{s:s,s:s,s:o}", "operator", graph->op[i].name, "precision",
                                            tandem_precision_get((tandem_precision)p)->name, "sensitivity",
                                            methods));
        }
    for (int m = 0; m < n_method; m++) free(sensitivity[m]);
    if (!options->json || code) {
        json_decref(operators);
        return code;
    }
    json_t *result = cli_json_new("sensitivity");
    json_object_set_new(result, "model", json_string(graph->model));
    json_object_set_new(result, "device", json_string(device->name));
    json_object_set_new(result, "batches", json_integer(options->steps));
    json_object_set_new(result, "operators", operators);
    return cli_print_json(result);
}

/* --- Public --------------------------------------------------------------------------------------------- */

tandem_status sensitivity_check_store(const char *db, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

tandem_status sensitivity_put_statistics(const cli_options *given, int is_printed, int *code,
                                         tandem_error *error)
{
    cli_options options = *given;
    options.step.separate_partial_grads = 1;
    tandem_workload workload = {0};
    training_rank rank = {0};
    tandem_statistics *statistics = NULL;
    const cli_rank alone = {.rank = 0, .n_rank = 1, .store = NULL};
    tandem_status status = cli_workload_open(&workload, &options, error);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &options, &alone, error);
    if (status == TANDEM_OK) status = sensitivity_check_store(options.db, error);
    if (status == TANDEM_OK && options.init)
        status = rank.backend->executor_import(rank.executor, options.init, error);
    if (status == TANDEM_OK) {
        statistics = calloc((size_t)rank.step->graph->n_op, sizeof *statistics);
        status = statistics ? batch_statistics_collect(statistics, &rank, &options, 0, options.steps, error)
                            : tandem_no_memory(error, "for statistics");
    }
    if (status == TANDEM_OK) status = put_all_statistics(&rank, statistics, &options, error);
    if (status == TANDEM_OK && is_printed)
        *code = print_statistics_report(statistics, rank.step->graph, &options,
                                        &workload.cluster.classes[0].device);
    free(statistics);
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}
