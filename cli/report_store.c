/* report_store.c: what a profile store holds, as results that a page draws. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report_files.h"
#include "cli/sensitivity_json.h"
#include "runtime/sense/sensitivity.h"
#include "profiles/store/store_overview.h"

int cli_report_is_store(const char *path, const char *begin, size_t n)
{
    static const char magic[] = "SQLite format 3"; /* with its final zero */
    const char *const ending = strrchr(path, '.');
    return (n >= sizeof magic && memcmp(begin, magic, sizeof magic) == 0) ||
           (ending && strcmp(ending, ".db") == 0);
}

static const char *overview_text(const json_t *row, const char *member)
{
    const char *const text = json_string_value(json_object_get(row, member));
    return text ? text : "";
}

static tandem_status add_store_result(report_page *page, json_t *result, const char *source,
                                      tandem_error *error)
{
    report_item item = {.result = result};
    return report_page_add(page, &item, source, error);
}

/* --- Sensitivities ------------------------------------------------------------------------------------- */

typedef struct store_part {
    report_page *page;
    const char *source;
    const json_t *overview;
    tandem_store *store;
    tandem_device device; /* whose mixed-precision type the sensitivities hold for */
} store_part;

/* The first device of the store that this version knows; else none of them, but what has bf16. */
static tandem_status find_store_device(tandem_device *device, const json_t *overview, tandem_error *error)
{
    const json_t *row;
    size_t k;
    json_array_foreach(json_object_get(overview, "devices"), k, row)
    {
        if (tandem_device_find(device, overview_text(row, "name"), NULL) == TANDEM_OK) return TANDEM_OK;
    }
    const tandem_status status = tandem_device_find(device, "h100", error);
    (void)snprintf(device->name, sizeof device->name, "any device with bf16");
    return status;
}

/* The row of this operator and precision is the last one, if it is there. */
static json_t *find_result_row(json_t *rows, const json_t *row)
{
    json_t *const last = json_array_get(rows, json_array_size(rows) - 1);
    const char *const op_name = overview_text(row, "operator"), *const precision =
                                                                    overview_text(row, "precision");
    if (last && strcmp(overview_text(last, "operator"), op_name) == 0 &&
        strcmp(overview_text(last, "precision"), precision) == 0)
        return json_object_get(last, "sensitivity");
    json_t *const by_method = json_object();
    json_t *const made = json_object();
    json_object_set_new(made, "operator", json_string_nocheck(op_name));
    json_object_set_new(made, "precision", json_string_nocheck(precision));
    json_object_set_new(made, "sensitivity", by_method);
    return json_array_append_new(rows, made) == 0 ? by_method : NULL;
}

/* What `sensitivity --json` printed; no rows: nothing is added. */
static tandem_status add_store_methods(const store_part *s, const json_t *model, tandem_error *error)
{
    json_t *const rows = json_array(), *row;
    const char *const name = overview_text(model, "name"), *const dtype =
                                                               tandem_dtype_name(s->device.amp_dtype);
    size_t k;
    json_array_foreach(json_object_get(s->overview, "sensitivities"), k, row)
    {
        if (strcmp(overview_text(row, "model"), name) == 0 &&
            strcmp(overview_text(row, "amp_dtype"), dtype) == 0 &&
            strcmp(overview_text(row, "precision"), "fp32") != 0)
            json_object_set(find_result_row(rows, row), overview_text(row, "method"),
                            json_object_get(row, "value"));
    }
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return TANDEM_OK;
    }
    json_t *const result = json_pack("{s:s,s:o,s:o,s:O,s:o}", "schema", "tandem.sensitivity/1", "model",
                                     json_string_nocheck(name), "device", json_string(s->device.name),
                                     "batches", json_object_get(model, "batches"), "operators", rows);
    if (!result) return tandem_no_memory(error, "for the sensitivities of '%.200s'", name);
    return add_store_result(s->page, result, s->source, error);
}

/* What `sensitivity --json` printed. Intervals need the model's operators: that of a file is not opened,
 * and one that this version builds otherwise has another hash; both are left out. */
static tandem_status add_store_sensing(const store_part *s, const json_t *model, tandem_error *error)
{
    const char *const name = overview_text(model, "name");
    tandem_graph *graph = NULL;
    tandem_sensing sensing = {0};
    tandem_error own = {0};
    tandem_sensitivity_result rows = {.n_row = 0};
    json_t *result = NULL;
    if (!overview_text(model, "sensed")[0] || strchr(name, '/') || strstr(name, ".onnx") ||
        strstr(name, ".json"))
        return TANDEM_OK;
    tandem_status status = tandem_graph_open(&graph, name, 1, &own);
    if (status == TANDEM_OK)
        status = tandem_store_load_sensing(&sensing, s->store, graph, overview_text(model, "sensed"), &own);
    if (status == TANDEM_OK) status = sensitivity_result_of(&rows, graph, &sensing, &s->device, &own);
    if (status == TANDEM_OK) result = cli_sensitivity_json(&rows, graph);
    json_object_del(result, "made"); /* this command did not measure it */
    tandem_sensitivity_result_free(&rows);
    tandem_sensing_close(&sensing);
    tandem_graph_close(graph);
    if (status == TANDEM_OK) return add_store_result(s->page, result, s->source, error);
    if (status != TANDEM_NO_MEMORY && status != TANDEM_IO && status != TANDEM_MALFORMED) return TANDEM_OK;
    if (error) *error = own;
    return status;
}

/* Models of one name share their sensitivities: the name is all that a page tells of a model. */
static int is_model_before(const json_t *models, size_t k)
{
    for (size_t m = 0; m < k; m++)
        if (strcmp(overview_text(json_array_get(models, m), "name"),
                   overview_text(json_array_get(models, k), "name")) == 0)
            return 1;
    return 0;
}

static tandem_status add_store_models(const store_part *s, tandem_error *error)
{
    const json_t *const models = json_object_get(s->overview, "models"), *model;
    tandem_status status = TANDEM_OK;
    size_t k;
    json_array_foreach(models, k, model)
    {
        if (status == TANDEM_OK && !is_model_before(models, k)) status = add_store_methods(s, model, error);
        if (status == TANDEM_OK) status = add_store_sensing(s, model, error);
    }
    return status;
}

/* --- The store ------------------------------------------------------------------------------------------ */

/* Of what the store holds, one object that the page shares; the sensitivities become results of their own. */
static tandem_status add_store_overview(const store_part *s, json_t *overview, tandem_error *error)
{
    json_t *const shown = json_copy(overview);
    json_object_del(shown, "sensitivities");
    if (!shown || json_object_set_new(shown, "schema", json_string("tandem.store/1")) != 0) {
        json_decref(shown);
        return tandem_no_memory(error, "for what '%.200s' holds", s->source);
    }
    return add_store_result(s->page, shown, s->source, error);
}

tandem_status cli_report_add_store(report_page *page, const char *path, tandem_error *error)
{
    const char *const slash = strrchr(path, '/');
    store_part s = {.page = page, .source = slash && slash[1] ? slash + 1 : path};
    json_t *overview = NULL;
    tandem_status status = tandem_store_open(&s.store, path, TANDEM_STORE_READ, error);
    if (status == TANDEM_OK) status = tandem_store_overview(&overview, s.store, error);
    if (status == TANDEM_OK) status = find_store_device(&s.device, overview, error);
    s.overview = overview;
    if (status == TANDEM_OK) status = add_store_overview(&s, overview, error);
    if (status == TANDEM_OK) status = add_store_models(&s, error);
    json_decref(overview);
    tandem_store_close(s.store);
    return status;
}
