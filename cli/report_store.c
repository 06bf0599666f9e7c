/* report_store.c: what a profile store holds, as results that a page draws. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report_files.h"
#include "cli/sensitivity_json.h"
#include "runtime/estimate/sensitivity.h"
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

/* A result as `sensitivity --json` printed it. */
static tandem_status add_store_rows(const store_part *s, const tandem_sensitivity_result *rows,
                                    const tandem_graph *graph, tandem_error *error)
{
    json_t *const result = cli_sensitivity_json(rows, graph);
    json_object_del(result, "made"); /* this command did not measure it */
    return add_store_result(s->page, result, s->source, error);
}

static tandem_status add_store_methods(const store_part *s, const json_t *model, const tandem_graph *graph,
                                       tandem_error *error)
{
    assert(graph);
    tandem_sensitivity_result rows = {.n_row = 0};
    tandem_statistics *const statistics = calloc((size_t)graph->n_op, sizeof *statistics);
    tandem_status status = statistics
                               ? tandem_store_load_statistics(statistics, s->store, graph, NULL, error)
                               : tandem_no_memory(error, "for the statistics of '%.200s'", graph->model);
    if (status == TANDEM_OK)
        status = sensitivity_result_of_statistics(&rows, graph, statistics,
                                                  json_integer_value(json_object_get(model, "batches")),
                                                  &s->device, error);
    if (status == TANDEM_OK) status = add_store_rows(s, &rows, graph, error);
    tandem_sensitivity_result_free(&rows);
    free(statistics);
    return status;
}

static tandem_status add_store_estimate(const store_part *s, const json_t *model, const tandem_graph *graph,
                                        tandem_error *error)
{
    tandem_estimate estimate = {0};
    tandem_sensitivity_result rows = {.n_row = 0};
    tandem_status status =
        tandem_store_load_estimate(&estimate, s->store, graph, overview_text(model, "estimated"), error);
    if (status == TANDEM_OK) status = sensitivity_result_of(&rows, graph, &estimate, &s->device, error);
    if (status == TANDEM_OK) status = add_store_rows(s, &rows, graph, error);
    tandem_sensitivity_result_free(&rows);
    tandem_estimate_close(&estimate);
    return status;
}

/* Sensitivities need the model's operators: a model of a file is not opened, and one that this version builds
 * otherwise has another hash; both are left out. */
static tandem_status add_store_model(const store_part *s, const json_t *model, tandem_error *error)
{
    const char *const name = overview_text(model, "name");
    const int has_statistics = overview_text(model, "data")[0] != '\0',
              is_estimated = overview_text(model, "estimated")[0] != '\0';
    tandem_graph *graph = NULL;
    tandem_error own_error = {0};
    char hash[24];
    if (strchr(name, '/') || strstr(name, ".onnx") || strstr(name, ".json") ||
        (!has_statistics && !is_estimated))
        return TANDEM_OK;
    tandem_status status = tandem_graph_open(&graph, name, 1, &own_error);
    if (graph) (void)snprintf(hash, sizeof hash, "%016" PRIx64, graph->hash);
    if (status == TANDEM_OK && strcmp(hash, overview_text(model, "hash")) != 0) status = TANDEM_MISSING;
    if (status == TANDEM_OK && has_statistics) status = add_store_methods(s, model, graph, &own_error);
    if (status == TANDEM_OK && is_estimated) status = add_store_estimate(s, model, graph, &own_error);
    tandem_graph_close(graph);
    if (status != TANDEM_NO_MEMORY && status != TANDEM_IO && status != TANDEM_MALFORMED) return TANDEM_OK;
    if (error) *error = own_error;
    return status;
}

static tandem_status add_store_models(const store_part *s, tandem_error *error)
{
    const json_t *const models = json_object_get(s->overview, "models"), *model;
    tandem_status status = TANDEM_OK;
    size_t k;
    json_array_foreach(models, k, model) if (status == TANDEM_OK) status = add_store_model(s, model, error);
    return status;
}

/* --- The store ------------------------------------------------------------------------------------------ */

/* What the store holds, as one object that the page shares. */
static tandem_status add_store_overview(const store_part *s, json_t *overview, tandem_error *error)
{
    json_t *const shown = json_copy(overview);
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
