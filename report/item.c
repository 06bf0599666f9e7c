/* item.c: what a page is drawn from, and access to its values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/quantity.h"
#include "report/section.h"
#include "tandem/advanced/predictor.h"

enum { MAX_ITEMS = 4096 };

/* --- Items ---------------------------------------------------------------------------------------------- */

void report_item_close(report_item *item)
{
    json_decref(item->result);
    tandem_plan_close(item->plan);
    tandem_graph_close(item->graph);
    tandem_step_timeline_close(item->timeline);
    free(item->log.line);
    free(item->source);
    *item = (report_item){0};
}

void report_page_close(report_page *page)
{
    for (int k = 0; k < page->n; k++) report_item_close(&page->item[k]);
    free(page->item);
    *page = (report_page){0};
}

static const char *model_of_item(const report_item *item)
{
    if (item->plan) return item->plan->model;
    if (item->timeline) return item->timeline->model;
    return report_get_text(item->result, "model");
}

static void read_made_member(char *to, size_t size, const json_t *object, const char *member)
{
    const char *const text = report_get_text(object, member);
    if (text[0]) (void)snprintf(to, size, "%s", text);
}

void report_made_read(tandem_made *origin, const json_t *object)
{
    const json_t *const seed = json_object_get(object, "seed");
    read_made_member(origin->command, sizeof origin->command, object, "command");
    read_made_member(origin->version, sizeof origin->version, object, "version");
    read_made_member(origin->host, sizeof origin->host, object, "host");
    if (json_is_integer(seed))
        (void)snprintf(origin->seed, sizeof origin->seed, "%lld", (long long)json_integer_value(seed));
}

tandem_status report_page_add(report_page *page, report_item *item, const char *source, tandem_error *error)
{
    report_item *const more = tandem_grow(page->item, &page->capacity, page->n, sizeof *more, MAX_ITEMS);
    if (more) page->item = more;
    item->source = more ? strdup(source) : NULL;
    if (!item->source) {
        report_item_close(item);
        return tandem_no_memory(error, "for what '%.200s' holds", source);
    }
    if (!item->model[0]) (void)snprintf(item->model, sizeof item->model, "%s", model_of_item(item));
    if (item->plan) item->made = item->plan->made;
    if (item->timeline) item->made = item->timeline->made;
    report_made_read(&item->made, json_object_get(item->result, "made"));
    page->item[page->n++] = *item;
    *item = (report_item){0};
    return TANDEM_OK;
}

/* --- Values --------------------------------------------------------------------------------------------- */

double report_get_number(const json_t *object, const char *member)
{
    const json_t *const value = json_object_get(object, member);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *report_get_text(const json_t *object, const char *member)
{
    const char *const text = json_string_value(json_object_get(object, member));
    return text ? text : "";
}

double report_row_sensitivity(const json_t *row, const char *method)
{
    const json_t *const value = json_object_get(row, "sensitivity");
    if (json_is_object(value)) return report_get_number(value, method);
    return report_is_extra_samples(method) ? report_get_number(row, "sensitivity") : NAN;
}

int report_is_extra_samples(const char *method)
{
    const tandem_sensitivity_method *row;
    return tandem_sensitivity_find(&row, method, NULL) == TANDEM_OK && strcmp(row->unit, "%") == 0;
}

const char *report_sensitivity_title(const char *method)
{
    if (report_is_extra_samples(method)) return "sensitivity (more samples, %)";
    return strcmp(method, "fisher") == 0 ? "sensitivity (fisher, nats)" : "sensitivity";
}

report_quantity report_sensitivity_text(const json_t *object, double value, const char *method)
{
    const double half =
        (report_get_number(object, "sensitivity_high") - report_get_number(object, "sensitivity_low")) / 2;
    report_quantity q = report_number(value);
    if (isfinite(value))
        (void)snprintf(q.text, sizeof q.text, "%.*s", (int)sizeof q.text - 1,
                       tandem_quantity_known_to(value, report_is_extra_samples(method) ? half : NAN).text);
    return q;
}

int report_is_true(const json_t *object, const char *member)
{
    return json_is_true(json_object_get(object, member));
}

int report_is_result(const report_item *item, const char *command)
{
    static const char prefix[] = "tandem.";
    const char *schema = report_get_text(item->result, "schema");
    const size_t n = strlen(command);
    if (!item->result || strncmp(schema, prefix, sizeof prefix - 1) != 0) return 0;
    schema += sizeof prefix - 1;
    return strncmp(schema, command, n) == 0 && schema[n] == '/';
}

const json_t *report_next_result(const report_part *part, const char *command, int *k)
{
    while (*k < part->n) {
        const report_item *const item = part->item[(*k)++];
        if (report_is_result(item, command)) return item->result;
    }
    return NULL;
}

const json_t *report_next_case(const report_part *part, report_case_cursor *cursor)
{
    for (; cursor->item < part->n; cursor->item++, cursor->index = 0) {
        const report_item *const item = part->item[cursor->item];
        const json_t *const cases = json_object_get(item->result, "cases");
        if (!report_is_result(item, "compare") && !report_is_result(item, "demo")) continue;
        if (cursor->index < json_array_size(cases)) return json_array_get(cases, cursor->index++);
    }
    return NULL;
}

/* --- Colours -------------------------------------------------------------------------------------------- */

const char *report_tone(int index)
{
    static const char *const tone[] = {"c1", "c2", "c3", "c4", "c5", "c6", "c7"};
    return tone[index % 7];
}

const char *report_precision_tone(const char *precision)
{
    static const char *const tone[][2] = {{"fp32", "c5"}, {"tf32", "c1"}, {"fp16", "c4"},     {"bf16", "c2"},
                                          {"fp8", "c7"},  {"int8", "c3"}, {"int8_full", "c6"}};
    for (size_t k = 0; k < sizeof tone / sizeof *tone; k++)
        if (strcmp(tone[k][0], precision) == 0) return tone[k][1];
    return "none";
}

void report_legend(FILE *out, const char *tone, const char *meaning)
{
    report_put(out, "<span class=\"key\"><i class=\"%s\"></i>%s</span> ", tone, meaning);
}
