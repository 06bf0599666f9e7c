/* sensed_result.c: a sensing as `sensitivity --json` prints it and a page draws it. */
#include <stdlib.h>

#include "cli/sensing.h"

/* In percent. */
static json_t *sensed_row_json(const tandem_graph *graph, int op, tandem_precision precision, int n_age,
                               const tandem_sensitivity_estimate *e)
{
    json_t *ages = json_array(), *row = json_object();
    for (int a = 0; a < n_age; a++) json_array_append_new(ages, cli_json_number(100 * e->at_age[a]));
    json_object_set_new(row, "operator", json_string(graph->op[op].name));
    json_object_set_new(row, "precision", json_string(tandem_precision_get(precision)->name));
    json_object_set_new(row, "sensitivity", cli_json_number(100 * e->value));
    json_object_set_new(row, "sensitivity_low", cli_json_number(100 * e->low));
    json_object_set_new(row, "sensitivity_high", cli_json_number(100 * e->high));
    json_object_set_new(row, "noise", cli_json_number(100 * e->noise));
    json_object_set_new(row, "bias", cli_json_number(100 * e->bias));
    json_object_set_new(row, "at_ages", ages);
    return row;
}

/* share: all 0, and all 0 again afterwards. */
static tandem_status add_sensed_rows(json_t *rows, double *share, const tandem_graph *graph,
                                     const tandem_sensing *sensing, const tandem_device *device,
                                     tandem_error *error)
{
    const tandem_sensed_step step = {.global_batch = sensing->batch, .n_micro = 1};
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION && status == TANDEM_OK; i++) {
        const int op = i / TANDEM_N_PRECISION;
        const tandem_precision precision = (tandem_precision)(i % TANDEM_N_PRECISION);
        const int cell = tandem_sensing_cell(op, precision, device->amp_dtype);
        tandem_sensitivity_estimate estimate = {0};
        if (!sensing->is_sensed[cell]) continue;
        share[cell] = 1;
        status = tandem_sensing_estimate(&estimate, sensing, share, &step, error);
        share[cell] = 0;
        if (status == TANDEM_OK)
            json_array_append_new(rows, sensed_row_json(graph, op, precision, sensing->n_age, &estimate));
    }
    return status;
}

tandem_status sensing_result_json(json_t **result, const tandem_graph *graph, const tandem_sensing *sensing,
                                  const tandem_device *device, tandem_error *error)
{
    const size_t n_cell = (size_t)graph->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    double *const share = calloc(n_cell + 1, sizeof *share);
    json_t *const made = cli_json_new("sensitivity"), *const rows = json_array(), *const ages = json_array();
    tandem_status status = share && made && rows && ages
                               ? add_sensed_rows(rows, share, graph, sensing, device, error)
                               : tandem_no_memory(error, "for sensitivities");
    free(share);
    for (int a = 0; a < sensing->n_age; a++)
        json_array_append_new(ages, json_integer((json_int_t)sensing->age[a]));
    json_object_set_new(made, "model", json_string(graph->model));
    json_object_set_new(made, "device", json_string(device->name));
    json_object_set_new(made, "batch", json_integer((json_int_t)sensing->batch));
    json_object_set_new(made, "steps", json_integer((json_int_t)sensing->steps));
    json_object_set_new(made, "ages", ages);
    json_object_set_new(made, "replicates", json_integer(sensing->n_replicate));
    json_object_set_new(made, "operators", rows);
    if (status == TANDEM_OK)
        *result = made;
    else
        json_decref(made);
    return status;
}
