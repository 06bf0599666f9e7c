/* sensitivity.c: what each precision of each operator costs the model. */
#include <math.h>
#include <string.h>

#include "report/section.h"

enum { MAX_ROWS = 1500, MAX_METHODS = 8, MAX_PRECISIONS = 16 };

/* The methods and precisions that a result knows. */
typedef struct sensitivity_names {
    const char *method[MAX_METHODS], *precision[MAX_PRECISIONS];
    int n_method, n_precision;
} sensitivity_names;

static const char *const sampled = "sampled";

static int add_name(const char **names, int n, int max, const char *name)
{
    for (int k = 0; k < n; k++)
        if (strcmp(names[k], name) == 0) return n;
    if (n < max) names[n++] = name;
    return n;
}

static sensitivity_names list_names(const json_t *rows)
{
    sensitivity_names names = {.n_method = 0};
    json_t *row, *value;
    const char *method;
    size_t k;
    json_array_foreach((json_t *)(uintptr_t)rows, k, row)
    {
        names.n_precision =
            add_name(names.precision, names.n_precision, MAX_PRECISIONS, report_get_text(row, "precision"));
        if (json_is_number(json_object_get(row, "sensitivity")))
            names.n_method = add_name(names.method, names.n_method, MAX_METHODS, sampled);
        json_object_foreach(json_object_get(row, "sensitivity"), method, value)
        {
            names.n_method = add_name(names.method, names.n_method, MAX_METHODS, method);
        }
    }
    return names;
}

/* Rows of one operator follow each other. */
static int count_operators(const json_t *rows)
{
    const char *last = NULL;
    const json_t *row;
    int n = 0;
    size_t k;
    json_array_foreach(rows, k, row)
    {
        const char *const name = report_get_text(row, "operator");
        n += !last || strcmp(last, name) != 0;
        last = name;
    }
    return n;
}

static void put_sensitivity_interval(FILE *out, const json_t *row, double x, const report_axis *y)
{
    const double low = report_get_number(row, "sensitivity_low"),
                 high = report_get_number(row, "sensitivity_high");
    if (!(low >= 0) || !(high > low) || !isfinite(high)) return;
    report_put(
        out,
        "<path class=\"line thin %s\" d=\"M%.1f %.1fV%.1f\"><title>%s in %s: %s to %s (95%%)</title></path>",
        report_precision_tone(report_get_text(row, "precision")), x, report_y(y, low), report_y(y, high),
        report_get_text(row, "operator"), report_get_text(row, "precision"),
        report_sensitivity_text(row, low, sampled).text, report_sensitivity_text(row, high, sampled).text);
}

static void put_sensitivity_dots(FILE *out, const json_t *rows, const char *method, const report_axis *x,
                                 const report_axis *y)
{
    const char *last = NULL;
    const json_t *row;
    int n = 0; /* operators are counted from 1 on */
    size_t k;
    json_array_foreach(rows, k, row)
    {
        const char *const name = report_get_text(row, "operator"), *const precision =
                                                                       report_get_text(row, "precision");
        const double value = report_row_sensitivity(row, method);
        n += !last || strcmp(last, name) != 0;
        last = name;
        if (!isfinite(value) || value < 0 || k >= MAX_ROWS) continue;
        put_sensitivity_interval(out, row, report_x(x, n), y);
        report_put(out, "<path class=\"dot small %s\" d=\"M%.1f %.1fh0\"><title>%s in %s: %s</title></path>",
                   report_precision_tone(precision), report_x(x, n), report_y(y, value), name, precision,
                   report_sensitivity_text(row, value, method).text);
    }
}

static void put_sensitivity_plot(FILE *out, const json_t *rows, const sensitivity_names *names,
                                 const char *method)
{
    const json_t *row;
    size_t k;
    const report_axis x = {.max = count_operators(rows) + 1, .unit = REPORT_COUNT, .title = "operator"};
    report_axis y = report_axis_new(REPORT_PLAIN, 1, report_sensitivity_title(method));
    json_array_foreach(rows, k, row)
    {
        report_axis_add(&y, report_row_sensitivity(row, method));
        if (!report_is_extra_samples(method)) continue;
        report_axis_add(&y, report_get_number(row, "sensitivity_low"));
        report_axis_add(&y, report_get_number(row, "sensitivity_high"));
    }
    report_axis_round(&y);
    report_put(out, "<p class=\"keys\">");
    for (int p = 0; p < names->n_precision; p++)
        report_legend(out, report_precision_tone(names->precision[p]), names->precision[p]);
    report_put(out, "</p>");
    report_plot_begin(out, &x, &y, "Sensitivity of each operator");
    put_sensitivity_dots(out, rows, method, &x, &y);
    report_plot_labels(out, &x, &y);
    report_plot_end(
        out, "Across: the operators in their order. Upwards: what the precision costs the model. Lines: "
             "95% intervals, where they are known.");
}

static void put_sensitivity_table(FILE *out, const json_t *rows, const sensitivity_names *names)
{
    const json_t *row;
    size_t k;
    report_put(
        out, "<details><summary>As a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
             "aria-label=\"Sensitivities as a table\"><table><thead><tr><th>operator</th><th>precision</th>");
    const int has_intervals = names->n_method == 1 && report_is_extra_samples(names->method[0]);
    for (int m = 0; m < names->n_method; m++) report_put(out, "<th class=\"n\">%s</th>", names->method[m]);
    if (has_intervals) report_put(out, "<th class=\"n\">95%% interval</th>");
    report_put(out, "</tr></thead><tbody>\n");
    json_array_foreach(rows, k, row)
    {
        if (k >= MAX_ROWS) break;
        report_put(out, "<tr><th scope=\"row\">%s</th><td>%s</td>", report_get_text(row, "operator"),
                   report_get_text(row, "precision"));
        for (int m = 0; m < names->n_method; m++)
            report_put(
                out, "<td class=\"n\">%s</td>",
                report_sensitivity_text(row, report_row_sensitivity(row, names->method[m]), names->method[m])
                    .text);
        if (has_intervals)
            report_put(
                out, "<td class=\"n\">%s to %s</td>",
                report_sensitivity_text(row, report_get_number(row, "sensitivity_low"), sampled).text,
                report_sensitivity_text(row, report_get_number(row, "sensitivity_high"), sampled).text);
        report_put(out, "</tr>\n");
    }
    report_put(out, "</tbody></table></div>");
    if (json_array_size(rows) > MAX_ROWS)
        report_put(out, "<p>The first %d of %zu rows.</p>", MAX_ROWS, json_array_size(rows));
    report_put(out, "</details>\n");
}

static int draw_sensitivity(FILE *out, const report_part *part)
{
    const json_t *result;
    int next = 0;
    while ((result = report_next_result(part, "sensitivity", &next))) {
        const json_t *const rows = json_object_get(result, "operators");
        const sensitivity_names names = list_names(rows);
        const double batches = report_get_number(result, "batches"),
                     steps = report_get_number(result, "steps");
        if (names.n_method == 0) continue;
        if (isfinite(steps))
            report_put(out,
                       "<p>Estimated in a training of %s steps, for %s: more samples to the same loss.</p>",
                       report_number(steps).text, report_get_text(result, "device"));
        else
            report_put(out, "<p>Over %s batches, for %s.</p>", report_number(batches).text,
                       report_get_text(result, "device"));
        put_sensitivity_plot(out, rows, &names, names.method[0]);
        put_sensitivity_table(out, rows, &names);
    }
    return 1;
}

const report_section report_sensitivity = {"sensitivity", "Sensitivity", draw_sensitivity,
                                           "tandem sensitivity --model MODEL --data DATA --json"};
