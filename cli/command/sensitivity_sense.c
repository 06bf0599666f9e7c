/* sensitivity_sense.c: senses gradients at several ages of a training. */
#include "cli/command/sensitivity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/sensing.h"
#include "cli/table.h"

enum { REPLICATES = 8, STEPS = 100 };

/* The ages that --at gives, or 50 % and 90 % of the steps: the weights as drawn say little of a training. And
 * --repetitions. Refuses what cannot be kept before the batches, not after. */
static tandem_status read_sensing_request(sensing_request *request, const cli_options *options,
                                          tandem_error *error)
{
    const int64_t early = options->steps / 2, late = options->steps * 9 / 10;
    tandem_sensing kept = {0};
    tandem_status status = TANDEM_OK;
    request->age[0] = early;
    request->age[1] = late;
    request->n_age = late > early ? 2 : 1;
    if (options->at)
        status = sensing_ages_parse(request->age, &request->n_age, options->at, options->steps, error);
    if (cli_option_given(options, OPTION_REPETITIONS))
        request->n_replicate = (int)(options->repetitions <= TANDEM_MAX_REPLICATE ? options->repetitions
                                                                                  : TANDEM_MAX_REPLICATE + 1);
    if (status == TANDEM_OK)
        status = tandem_sensing_open(&kept, 1, request->n_age, request->n_replicate, error);
    tandem_sensing_close(&kept);
    return status;
}

/* Precisions that a device lacks are emulated. */
static tandem_status check_sensing_device(const tandem_workload *workload, tandem_error *error)
{
    const char *const device = workload->cluster.classes[0].device.name;
    if (strncmp(device, "cpu:", strlen("cpu:")) == 0) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "sensing emulates precisions, which CPU devices do; '%s' is none. Leave --device "
                            "out: sensitivities hold for all devices. --by statistics needs none",
                            device);
}

static double sensed_number(const json_t *row, const char *member)
{
    return json_number_value(json_object_get(row, member));
}

/* In percent; the bias as "unknown" where it is. */
static int print_sensed_table(const json_t *result)
{
    cli_table table = {0};
    const json_t *row;
    size_t k;
    cli_table_row(&table,
                  "operator\tprecision\t>more samples %%\t>95 %% interval\t>noise\t>bias\t>at the last age");
    json_array_foreach(json_object_get(result, "operators"), k, row)
    {
        const json_t *const ages = json_object_get(row, "at_ages"), *const unknown =
                                                                        json_object_get(row, "bias");
        const double value = sensed_number(row, "sensitivity"), low = sensed_number(row, "sensitivity_low"),
                     high = sensed_number(row, "sensitivity_high"), half = fmax(high - value, value - low);
#define SENSED(number) tandem_quantity_known_to(number, half).text
        cli_table_row(&table, "%s\t%s\t%s\t%s to %s\t%s\t%s\t%s",
                      json_string_value(json_object_get(row, "operator")),
                      json_string_value(json_object_get(row, "precision")), SENSED(value), SENSED(low),
                      SENSED(high), SENSED(sensed_number(row, "noise")),
                      json_is_number(unknown) ? SENSED(json_number_value(unknown)) : "unknown",
                      SENSED(json_number_value(json_array_get(ages, json_array_size(ages) - 1))));
#undef SENSED
    }
    return cli_table_finish(&table);
}

static int print_sensed_report(const cli_options *options, const tandem_graph *graph,
                               const tandem_sensing *sensing, const tandem_device *device)
{
    tandem_error error = {0};
    json_t *result = NULL;
    const tandem_status status = sensing_result_json(&result, graph, sensing, device, &error);
    cli_progress_end();
    if (status != TANDEM_OK) return cli_fail(&error);
    if (options->json) return cli_print_json(result);
    const int code = print_sensed_table(result);
    json_decref(result);
    printf("\nsensed with batches of %lld; a plan converts to its own samples per step\n",
           (long long)sensing->batch);
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

static tandem_status sense_and_put(tandem_sensing *sensing, const tandem_workload *workload,
                                   const cli_options *options, const sensing_request *request,
                                   tandem_error *error)
{
    cli_options batches = *options;
    if (batches.steps > SENSITIVITY_BATCHES) batches.steps = SENSITIVITY_BATCHES;
    tandem_status status = sensitivity_put_statistics(&batches, 0, NULL, error);
    if (status == TANDEM_OK) status = sensing_run(sensing, workload, options, request, error);
    return status == TANDEM_OK ? put_sensing(sensing, options, workload->graph[0], error) : status;
}

int sensitivity_sense(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    tandem_workload workload = {0};
    tandem_sensing sensing = {0};
    sensing_request request = {.n_replicate = REPLICATES, .has_wide_ranges = 1};
    if (options.steps < 0) options.steps = STEPS;
    tandem_status status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = check_sensing_device(&workload, &error);
    if (status == TANDEM_OK && options.sensed_by == CLI_BY_PROBE) request = sensing_request_probe(&workload);
    if (status == TANDEM_OK) status = read_sensing_request(&request, &options, &error);
    if (status == TANDEM_OK) status = sensitivity_check_store(options.db, &error);
    if (status == TANDEM_OK) status = sense_and_put(&sensing, &workload, &options, &request, &error);
    const int code = status == TANDEM_OK ? print_sensed_report(&options, workload.graph[0], &sensing,
                                                               &workload.cluster.classes[0].device)
                                         : cli_fail(&error);
    tandem_sensing_close(&sensing);
    tandem_workload_close(&workload);
    return code;
}
