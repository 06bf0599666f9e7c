/* sensitivity_sense.c: `tandem sensitivity --at`: senses gradients at several ages of a training. */
#include "cli/command/sensitivity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/sensing.h"
#include "cli/table.h"

enum { REPLICATES = 8, STEPS = 100 };

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
    int64_t age[TANDEM_MAX_AGE] = {0};
    int n_age = 0;
    if (options.steps < 0) options.steps = STEPS;
    tandem_status status = sensing_ages_parse(age, &n_age, options.at, options.steps, &error);
    if (status == TANDEM_OK) status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK && options.probe) request = sensing_request_probe(&workload);
    memcpy(request.age, age, sizeof age);
    request.n_age = n_age;
    if (cli_option_given(given, OPTION_REPETITIONS))
        request.n_replicate = (int)(options.repetitions <= TANDEM_MAX_REPLICATE ? options.repetitions
                                                                                : TANDEM_MAX_REPLICATE + 1);
    if (status == TANDEM_OK) status = check_sensing_store(options.db, &error);
    if (status == TANDEM_OK) status = sensing_run(&sensing, &workload, &options, &request, &error);
    if (status == TANDEM_OK) status = put_sensing(&sensing, &options, workload.graph[0], &error);
    int code = 0;
    if (status == TANDEM_OK) {
        code =
            print_sensed_report(&options, workload.graph[0], &sensing, &workload.cluster.classes[0].device);
    } else {
        code = cli_fail(&error);
    }
    tandem_sensing_close(&sensing);
    cli_workload_close(&workload);
    return code;
}
