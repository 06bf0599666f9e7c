/* sensitivity.c: `tandem sensitivity`: measures statistics of every adjustable operator and the sensitivities
 * that follow. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/batch_statistics.h"
#include "cli/command/sensitivity.h"

enum { BATCHES = 10 };

/* Reports a store that cannot be written before the batches, not after. */
static tandem_status check_store_writable(const char *db, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

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

static int print_sensitivity_report(const tandem_statistics *statistics, const tandem_graph *graph,
                                    const cli_options *options, const tandem_device *device)
{
    double *sensitivity[8] = {0};
    int n_method = 0, code = 0;
    /* those that need statistics stand first */
    for (; n_method < 8 && tandem_sensitivity_get(n_method)->compute; n_method++) {
        sensitivity[n_method] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **sensitivity);
        if (!sensitivity[n_method]) code = cli_fail_with(TANDEM_NO_MEMORY, "no memory for sensitivities");
        if (sensitivity[n_method])
            tandem_sensitivity_get(n_method)->compute(sensitivity[n_method], graph, statistics,
                                                      device->amp_dtype);
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
                json_object_set_new(methods, tandem_sensitivity_get(m)->name, json_real(h));
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

/* --- The command ---------------------------------------------------------------------------------------- */

static int run_sensitivity(const cli_options *given)
{
    cli_options options = *given;
    if (!options.device) options.device = "strongest";
    if (!options.data)
        return cli_fail_with(TANDEM_USAGE,
                             "no data given. Use e.g. --data fashion-mnist (tandem list datasets)");
    if (options.device && strchr(options.device, ','))
        return cli_fail_with(TANDEM_USAGE,
                             "sensitivities hold for all devices. Give one device, got --device %s",
                             options.device);
    if (options.at) return sensitivity_sense(&options);
    if (options.steps < 0) options.steps = BATCHES;
    options.step.separate_partial_grads = 1;
    tandem_error error = {0};
    cli_workload workload = {0};
    training_rank rank = {0};
    tandem_statistics *statistics = NULL;
    const cli_rank alone = {.rank = 0, .n_rank = 1, .store = NULL, .cpu = -1};
    tandem_status status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &options, &alone, &error);
    if (status == TANDEM_OK) status = check_store_writable(options.db, &error);
    if (status == TANDEM_OK) {
        statistics = calloc((size_t)rank.step->graph->n_op, sizeof *statistics);
        status = statistics ? batch_statistics_collect(statistics, &rank, &options, 0, options.steps, &error)
                            : tandem_no_memory(&error, "for statistics");
    }
    if (status == TANDEM_OK) status = put_all_statistics(&rank, statistics, &options, &error);
    const int code = status == TANDEM_OK ? print_sensitivity_report(statistics, rank.step->graph, &options,
                                                                    &workload.cluster.classes[0].device)
                                         : cli_fail(&error);
    free(statistics);
    training_rank_close(&rank);
    cli_workload_close(&workload);
    return code;
}

static const int options[] = {OPTION_MODEL,       OPTION_SET,   OPTION_LOSS, OPTION_DATA,  OPTION_DEVICE,
                              OPTION_BATCH,       OPTION_STEPS, OPTION_SEED, OPTION_AT,    OPTION_PROBE,
                              OPTION_REPETITIONS, OPTION_INIT,  OPTION_DB,   OPTION_QUIET, OPTION_END};
const cli_command command_sensitivity = {
    .name = "sensitivity",
    .words = "",
    .summary = "Measure statistics over real batches, and the sensitivities that follow",
    .option = options,
    .description =
        "Example:\n"
        "  tandem sensitivity --model vit_tiny --data fashion-mnist --batch 16 --steps 10\n"
        "Trains in fp32 for that many batches [10] and stores the statistics of every operator. They "
        "hold for all\n"
        "devices; --device [the strongest one here] only computes them.\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --batch 32 --steps 400 --at 0,10%,50%,90%\n"
        "Senses what precisions change of real gradients at these ages of a training, and stores it for\n"
        "--sensitivity sampled: more samples to the same loss, in percent. With --probe some 15 steps an age "
        "do for\n"
        "all operators and precisions. It senses noise, and no bias.",
    .run = run_sensitivity,
};
