#include "cli/sensitivity_json.h"

#include "tandem/advanced/predictor.h"

static json_t *percent(double share) { return cli_json_number(100 * share); }

static void add_interval(json_t *row, const tandem_operator_sensitivity *sensitivity, int n_point)
{
    json_t *points = json_array();
    for (int a = 0; a < n_point; a++) json_array_append_new(points, percent(sensitivity->at_point[a]));
    json_object_set_new(row, "sensitivity", percent(sensitivity->value));
    json_object_set_new(row, "sensitivity_low", percent(sensitivity->low));
    json_object_set_new(row, "sensitivity_high", percent(sensitivity->high));
    json_object_set_new(row, "noise", percent(sensitivity->noise));
    json_object_set_new(row, "bias", percent(sensitivity->bias));
    json_object_set_new(row, "at_training_points", points);
}

static void add_methods(json_t *row, const tandem_operator_sensitivity *sensitivity)
{
    json_t *methods = json_object();
    int n = 0;
    for (int m = 0; tandem_sensitivity_get(m); m++)
        if (tandem_sensitivity_get(m)->compute)
            json_object_set_new(methods, tandem_sensitivity_get(m)->name,
                                json_real(sensitivity->method[n++]));
    json_object_set_new(row, "sensitivity", methods);
}

static json_t *rows_json(const tandem_sensitivity_result *result, const tandem_graph *graph)
{
    json_t *rows = json_array();
    for (int k = 0; k < result->n_row; k++) {
        const tandem_operator_sensitivity *sensitivity = &result->row[k];
        json_t *row = json_pack("{s:s,s:s}", "operator", graph->op[sensitivity->op].name, "precision",
                                tandem_precision_get(sensitivity->precision)->name);
        if (result->n_method)
            add_methods(row, sensitivity);
        else
            add_interval(row, sensitivity, result->n_point);
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *cli_sensitivity_json(const tandem_sensitivity_result *result, const tandem_graph *graph)
{
    json_t *object = cli_json_new("sensitivity"), *points = json_array();
    for (int a = 0; a < result->n_point; a++)
        json_array_append_new(points, json_integer((json_int_t)result->point[a]));
    json_object_set_new(object, "model", json_string(result->model));
    json_object_set_new(object, "device", json_string(result->device));
    if (result->n_method) {
        json_object_set_new(object, "batches", json_integer((json_int_t)result->steps));
        json_decref(points);
    } else {
        json_object_set_new(object, "batch", json_integer((json_int_t)result->batch));
        json_object_set_new(object, "steps", json_integer((json_int_t)result->steps));
        json_object_set_new(object, "training_points", points);
        json_object_set_new(object, "replicates", json_integer(result->n_replicate));
    }
    json_object_set_new(object, "operators", rows_json(result, graph));
    return object;
}
