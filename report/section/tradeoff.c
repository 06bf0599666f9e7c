/* tradeoff.c: step time against sensitivity: the Pareto front, the plans, what is uniform, and the bound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"

/* Results of one method can be drawn together: sensitivities of two methods have different units. */
typedef struct tradeoff {
    FILE *out;
    const report_part *part;
    const char *method;
    report_axis step, sensitivity;
} tradeoff;

static int is_of_method(const tradeoff *t, const json_t *result)
{
    const char *const method = report_get_text(result, "method");
    return strcmp(method, t->method) == 0;
}

/* --- Axes ----------------------------------------------------------------------------------------------- */

static void add_point(tradeoff *t, const json_t *point)
{
    report_axis_add(&t->step, report_get_number(point, "step_ns"));
    report_axis_add(&t->sensitivity, report_get_number(point, "sensitivity_bound"));
    if (report_get_number(point, "lower_bound") > 0)
        report_axis_add(&t->sensitivity, report_get_number(point, "lower_bound"));
}

static void measure_axes(tradeoff *t)
{
    const json_t *result, *point;
    int next = 0;
    size_t k;
    while ((result = report_next_result(t->part, "allocate", &next))) {
        if (!is_of_method(t, result)) continue;
        if (isfinite(report_get_number(result, "step_ns"))) add_point(t, result);
        for (int side = -1; side < 2; side += 2)
            report_axis_add(&t->step, report_get_number(result, "step_ns") *
                                          (1 + side * report_get_number(result, "profile_interval")));
        json_array_foreach(json_object_get(result, "pareto"), k, point) { add_point(t, point); }
        json_array_foreach(json_object_get(result, "baselines"), k, point) { add_point(t, point); }
    }
    report_axis_round(&t->step);
    report_axis_round(&t->sensitivity);
}

/* --- Points --------------------------------------------------------------------------------------------- */

static int is_point(const json_t *point)
{
    return isfinite(report_get_number(point, "step_ns")) &&
           isfinite(report_get_number(point, "sensitivity_bound"));
}

static report_quantity point_sensitivity(const tradeoff *t, const json_t *point, double value)
{
    return report_sensitivity_text(point, value, t->method);
}

static void put_point(const tradeoff *t, const char *tone, const json_t *point, const char *name)
{
    if (!is_point(point)) return;
    const double step = report_get_number(point, "step_ns"),
                 s = report_get_number(point, "sensitivity_bound");
    report_put(t->out, "<path class=\"dot %s\" d=\"M%.2f %.2fh0\"><title>%s: step %s, sensitivity %s", tone,
               report_x(&t->step, step), report_y(&t->sensitivity, s), name, report_ns(step).text,
               point_sensitivity(t, point, s).text);
    const double bound = report_get_number(point, "lower_bound"),
                 peak = report_get_number(point, "peak_bytes");
    if (isfinite(bound)) report_put(t->out, ", no plan below %s", point_sensitivity(t, point, bound).text);
    if (isfinite(peak)) report_put(t->out, ", memory %s", report_bytes(peak).text);
    report_put(t->out, "</title></path>");
}

/* A plan that is valid at a step stays so at longer ones: the front is a staircase. */
static void put_front_line(const tradeoff *t, const json_t *front, const char *member, const char *tone,
                           int is_stair)
{
    const json_t *point;
    size_t k;
    int n = 0;
    report_put(t->out, "<path class=\"line %s\" d=\"", tone);
    json_array_foreach(front, k, point)
    {
        const double step = report_get_number(point, "step_ns"), s = report_get_number(point, member);
        if (!isfinite(step) || !isfinite(s)) continue;
        const double x = report_x(&t->step, step), y = report_y(&t->sensitivity, s);
        if (n++ == 0)
            report_put(t->out, "M%.2f %.2f", x, y);
        else if (is_stair)
            report_put(t->out, "H%.2fV%.2f", x, y);
        else
            report_put(t->out, "L%.2f %.2f", x, y);
    }
    report_put(t->out, "\"/>");
}

/* The interval of the profile, across; the distance to the bound, downwards. */
static void put_intervals(const tradeoff *t, const json_t *plan)
{
    const double interval = report_get_number(plan, "profile_interval"),
                 step = report_get_number(plan, "step_ns"), s = report_get_number(plan, "sensitivity_bound"),
                 bound = report_get_number(plan, "lower_bound");
    if (!is_point(plan)) return;
    if (interval > 0)
        report_put(t->out, "<path class=\"line c3\" d=\"M%.2f %.2fH%.2f\"/>",
                   report_x(&t->step, step * (1 - interval)), report_y(&t->sensitivity, s),
                   report_x(&t->step, step * (1 + interval)));
    if (isfinite(bound) && bound >= 0)
        report_put(t->out, "<path class=\"line c3 thin\" d=\"M%.2f %.2fV%.2f\"/>", report_x(&t->step, step),
                   report_y(&t->sensitivity, s), report_y(&t->sensitivity, bound));
}

/* Whether an earlier result has the same baseline: each is drawn once. */
static int is_baseline_drawn(const tradeoff *t, const json_t *result, const json_t *baseline)
{
    const json_t *other, *one;
    int next = 0;
    size_t k;
    while ((other = report_next_result(t->part, "allocate", &next)) && other != result)
        json_array_foreach(json_object_get(other, "baselines"), k, one)
        {
            if (is_of_method(t, other) &&
                strcmp(report_get_text(one, "name"), report_get_text(baseline, "name")) == 0 &&
                report_get_number(one, "step_ns") == report_get_number(baseline, "step_ns"))
                return 1;
        }
    return 0;
}

static void put_tradeoff_shapes(const tradeoff *t)
{
    const json_t *result, *point;
    int next = 0;
    size_t k;
    while ((result = report_next_result(t->part, "allocate", &next))) {
        const json_t *const front = json_object_get(result, "pareto");
        if (!is_of_method(t, result)) continue;
        put_front_line(t, front, "lower_bound", "c5 dashed", 0);
        put_front_line(t, front, "sensitivity_bound", "c1", 1);
        json_array_foreach(front, k, point) { put_point(t, "c1", point, "allocated"); }
        json_array_foreach(json_object_get(result, "baselines"), k, point)
        {
            if (!is_baseline_drawn(t, result, point))
                put_point(t, "square c5", point, report_get_text(point, "name"));
        }
        put_intervals(t, result);
        put_point(t, "large c3", result, report_get_text(result, "plan"));
    }
}

static void put_tradeoff_names(const tradeoff *t)
{
    const json_t *result, *point;
    int next = 0, n_named = 0; /* every second name is above its point */
    size_t k;
    while ((result = report_next_result(t->part, "allocate", &next))) {
        if (!is_of_method(t, result)) continue;
        json_array_foreach(json_object_get(result, "baselines"), k, point)
        {
            if (!is_baseline_drawn(t, result, point))
                report_plot_text(t->out, &t->step, &t->sensitivity, report_get_number(point, "step_ns"),
                                 report_get_number(point, "sensitivity_bound"),
                                 report_get_text(point, "name"), n_named++ % 2);
        }
        if (!is_point(result)) continue;
        report_plot_text(t->out, &t->step, &t->sensitivity, report_get_number(result, "step_ns"),
                         report_get_number(result, "sensitivity_bound"), report_get_text(result, "policy"),
                         1);
    }
}

/* --- Table ---------------------------------------------------------------------------------------------- */

static void put_tradeoff_row(const tradeoff *t, const json_t *point, const char *name)
{
    report_put(t->out,
               "<tr><th scope=\"row\">%s</th><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
               "class=\"n\">%s</td><td>%s</td></tr>\n",
               name, report_ns(report_get_number(point, "step_ns")).text,
               point_sensitivity(t, point, report_get_number(point, "sensitivity_bound")).text,
               point_sensitivity(t, point, report_get_number(point, "lower_bound")).text,
               json_is_false(json_object_get(point, "fits")) ? "out of memory" : "");
}

static void put_tradeoff_table(const tradeoff *t)
{
    const json_t *result, *point;
    int next = 0;
    size_t k;
    report_put(t->out,
               "<details><summary>As a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"Trade-off as a table\"><table><thead><tr><th>plan</th><th "
               "class=\"n\">step</th><th class=\"n\">sensitivity</th><th class=\"n\">no plan "
               "below</th><th></th></tr></thead><tbody>\n");
    while ((result = report_next_result(t->part, "allocate", &next))) {
        if (!is_of_method(t, result)) continue;
        if (isfinite(report_get_number(result, "step_ns")))
            put_tradeoff_row(t, result, report_get_text(result, "plan"));
        json_array_foreach(json_object_get(result, "pareto"), k, point)
        {
            put_tradeoff_row(t, point, "allocated");
        }
        json_array_foreach(json_object_get(result, "baselines"), k, point)
        {
            if (!is_baseline_drawn(t, result, point))
                put_tradeoff_row(t, point, report_get_text(point, "name"));
        }
    }
    report_put(t->out, "</tbody></table></div></details>\n");
}

/* --- The section ---------------------------------------------------------------------------------------- */

static void put_tradeoff(tradeoff *t)
{
    char caption[400];
    t->step = report_axis_new(REPORT_NS, 0, "step");
    t->sensitivity = report_axis_new(REPORT_PLAIN, 1, report_sensitivity_title(t->method));
    measure_axes(t);
    report_put(t->out, "<p class=\"keys\">");
    report_legend(t->out, "c1", "allocated plans: the front");
    report_legend(t->out, "c3", "the plan, with its interval and the distance to the bound");
    report_legend(t->out, "c5", "uniform plans (squares); dashed: no plan is below");
    report_put(t->out, "</p>");
    report_plot_begin(t->out, &t->step, &t->sensitivity, "Step time against sensitivity");
    put_tradeoff_shapes(t);
    report_plot_labels(t->out, &t->step, &t->sensitivity);
    put_tradeoff_names(t);
    (void)snprintf(
        caption, sizeof caption,
        "Across: the time of a step. Upwards: what the precisions cost the model (method %.40s). Left and "
        "low is better.",
        t->method[0] ? t->method : "unknown");
    report_plot_end(t->out, caption);
    put_tradeoff_table(t);
}

/* Whether an earlier result has the same method. */
static int is_method_drawn(const report_part *part, const char *method, int before)
{
    const json_t *result;
    int next = 0;
    while ((result = report_next_result(part, "allocate", &next)) && next < before)
        if (strcmp(report_get_text(result, "method"), method) == 0) return 1;
    return 0;
}

static int draw_tradeoff(FILE *out, const report_part *part)
{
    const json_t *result;
    int next = 0;
    while ((result = report_next_result(part, "allocate", &next))) {
        tradeoff t = {.out = out, .part = part, .method = report_get_text(result, "method")};
        const int has_points = json_array_size(json_object_get(result, "pareto")) > 0 || is_point(result);
        if (has_points && !is_method_drawn(part, t.method, next)) put_tradeoff(&t);
    }
    return 1;
}

const report_section report_tradeoff = {"tradeoff", "Trade-off", draw_tradeoff,
                                        "tandem allocate --model MODEL --cluster CLUSTER --pareto --json"};
