/* sensitivity_sense.c: `tandem sensitivity --at`: senses gradients at several ages of a training. */
#include "cli/command/sensitivity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/sensing.h"
#include "cli/table.h"

enum { REPLICATES = 8, STEPS = 100 };

typedef struct sensed_report {
    const cli_options *options;
    const tandem_graph *graph;
    const tandem_sensing *sensing;
    const tandem_device *device;
    tandem_sensed_step step;
    double *share; /* [cells] */
    cli_table table;
    json_t *operators;
} sensed_report;

/* In percent; the bias as "unknown" where it is. */
static void add_sensed_row(sensed_report *report, int op, tandem_precision precision,
                           const tandem_sensitivity_estimate *e)
{
    const char *name = report->graph->op[op].name, *of = tandem_precision_get(precision)->name;
    char bias[32];
    (void)snprintf(bias, sizeof bias, "%.2g", 100 * e->bias);
    cli_table_row(&report->table, "%s\t%s\t%.2g\t%.2g to %.2g\t%.2g\t%s\t%.2g", name, of, 100 * e->value,
                  100 * e->low, 100 * e->high, 100 * e->noise, isnan(e->bias) ? "unknown" : bias,
                  100 * e->at_age[report->sensing->n_age - 1]);
    json_t *ages = json_array(), *row = json_object();
    for (int a = 0; a < report->sensing->n_age; a++)
        json_array_append_new(ages, cli_json_number(100 * e->at_age[a]));
    json_object_set_new(row, "operator", json_string(name));
    json_object_set_new(row, "precision", json_string(of));
    json_object_set_new(row, "sensitivity", cli_json_number(100 * e->value));
    json_object_set_new(row, "sensitivity_low", cli_json_number(100 * e->low));
    json_object_set_new(row, "sensitivity_high", cli_json_number(100 * e->high));
    json_object_set_new(row, "noise", cli_json_number(100 * e->noise));
    json_object_set_new(row, "bias", cli_json_number(100 * e->bias));
    json_object_set_new(row, "at_ages", ages);
    json_array_append_new(report->operators, row);
}

static tandem_status add_sensed_rows(sensed_report *report, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < report->graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        const tandem_precision precision = (tandem_precision)(i % TANDEM_N_PRECISION);
        const int cell = tandem_sensing_cell(i / TANDEM_N_PRECISION, precision, report->device->amp_dtype);
        tandem_sensitivity_estimate estimate = {0};
        if (!report->sensing->is_sensed[cell]) continue;
        report->share[cell] = 1;
        status = tandem_sensing_estimate(&estimate, report->sensing, report->share, &report->step, error);
        report->share[cell] = 0;
        if (status == TANDEM_OK) add_sensed_row(report, i / TANDEM_N_PRECISION, precision, &estimate);
    }
    return status;
}

static int print_sensed_json(const sensed_report *report)
{
    const tandem_sensing *sensing = report->sensing;
    json_t *result = cli_json_new("sensitivity"), *ages = json_array();
    for (int a = 0; a < sensing->n_age; a++)
        json_array_append_new(ages, json_integer((json_int_t)sensing->age[a]));
    json_object_set_new(result, "model", json_string(report->graph->model));
    json_object_set_new(result, "device", json_string(report->device->name));
    json_object_set_new(result, "batch", json_integer((json_int_t)sensing->batch));
    json_object_set_new(result, "steps", json_integer((json_int_t)sensing->steps));
    json_object_set_new(result, "ages", ages);
    json_object_set_new(result, "replicates", json_integer(sensing->n_replicate));
    json_object_set_new(result, "operators", json_incref(report->operators));
    return cli_print_json(result);
}

static int print_sensed_report(sensed_report *report)
{
    tandem_error error = {0};
    const size_t n_cell = (size_t)report->graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    report->share = calloc(n_cell + 1, sizeof *report->share);
    report->operators = json_array();
    cli_table_row(&report->table,
                  "operator\tprecision\t>more samples %%\t>95 %% interval\t>noise\t>bias\t>at the last age");
    tandem_status status =
        report->share ? add_sensed_rows(report, &error) : tandem_no_memory(&error, "for sensitivities");
    cli_progress_end();
    int code = 0;
    if (status != TANDEM_OK || report->options->json) {
        cli_table_free(&report->table);
        code = status == TANDEM_OK ? print_sensed_json(report) : cli_fail(&error);
    } else {
        code = cli_table_finish(&report->table);
        printf("\nsensed with batches of %lld; a plan converts to its own samples per step\n",
               (long long)report->sensing->batch);
    }
    json_decref(report->operators);
    free(report->share);
    return code;
}

static tandem_status put_sensing(const tandem_sensing *sensing, const cli_options *options,
                                 const tandem_graph *graph, tandem_error *error)
{
    char libraries[128];
    tandem_store *store = NULL;
    const tandem_backend_api *backend = cli_backend(error);
    if (!backend) return TANDEM_MISSING;
    tandem_status status = tandem_store_open(&store, options->db, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK)
        status =
            tandem_store_set_environment(store, backend->libraries(libraries, sizeof libraries), 1, error);
    if (status == TANDEM_OK) status = tandem_store_put_sensing(store, graph, options->data, sensing, error);
    tandem_store_close(store);
    return status;
}

/* Reports a store that cannot be written before the batches, not after. */
static tandem_status check_sensing_store(const char *db, tandem_error *error)
{
    tandem_store *store = NULL;
    const tandem_status status = tandem_store_open(&store, db, TANDEM_STORE_WRITE, error);
    tandem_store_close(store);
    return status;
}

int sensitivity_sense(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    cli_workload workload = {0};
    tandem_sensing sensing = {0};
    sensing_request request = {.n_replicate = REPLICATES};
    if (options.steps < 0) options.steps = STEPS;
    if (cli_option_given(given, OPTION_REPETITIONS))
        request.n_replicate = (int)(options.repetitions <= TANDEM_MAX_REPLICATE ? options.repetitions
                                                                                : TANDEM_MAX_REPLICATE + 1);
    tandem_status status = sensing_ages_parse(request.age, &request.n_age, options.at, options.steps, &error);
    if (status == TANDEM_OK) status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = check_sensing_store(options.db, &error);
    if (status == TANDEM_OK) status = sensing_run(&sensing, &workload, &options, &request, &error);
    if (status == TANDEM_OK) status = put_sensing(&sensing, &options, workload.graph[0], &error);
    int code = 0;
    if (status == TANDEM_OK) {
        sensed_report report = {.options = &options,
                                .graph = workload.graph[0],
                                .sensing = &sensing,
                                .device = &workload.cluster.classes[0].device,
                                .step = {sensing.batch, 1}};
        code = print_sensed_report(&report);
    } else {
        code = cli_fail(&error);
    }
    tandem_sensing_close(&sensing);
    cli_workload_close(&workload);
    return code;
}
