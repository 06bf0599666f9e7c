/* precision_map.c: the operators of a plan in their order, by class: coloured by precision, as wide as their
 * time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"

enum { MAX_MAP_SHAPES = 3000, MAX_TABLE = 400, MAX_CELLS = 1600 };

/* --- Where the times come from -------------------------------------------------------------------------- */

typedef struct map_source {
    const report_part *part;
    const tandem_plan *plan;
    const tandem_graph *graph;
    const json_t *replay; /* with --operators, of the same plan; NULL = none: widths are by FLOP */
    double *ns;           /* [n_op][n_class] of the replay; NaN = unknown */
    double widest;
    double thinnest; /* operators that are thinner are drawn together */
} map_source;

/* The devices of a replay are those of the plan, in the same order. */
static int is_of_plan(const json_t *replay, const tandem_plan *plan)
{
    const json_t *const devices = json_object_get(replay, "devices");
    if (!json_is_array(json_object_get(replay, "operators"))) return 0;
    if (strcmp(report_get_text(replay, "plan"), plan->name) != 0) return 0;
    if (json_array_size(devices) != (size_t)plan->cluster.n_class) return 0;
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (strcmp(report_get_text(json_array_get(devices, (size_t)c), "name"),
                   plan->cluster.classes[c].device.name) != 0)
            return 0;
    return 1;
}

/* The rows of a replay are in the order of the graph, but some are left out. 0 = no memory. */
static int read_operator_times(map_source *m)
{
    const size_t n_class = (size_t)m->plan->cluster.n_class, n_op = (size_t)m->graph->n_op;
    const json_t *const rows = json_object_get(m->replay, "operators"), *row;
    size_t k, op = 0;
    m->ns = malloc((n_op * n_class + 1) * sizeof *m->ns);
    if (!m->ns) return 0;
    for (k = 0; k < n_op * n_class; k++) m->ns[k] = NAN;
    json_array_foreach(rows, k, row)
    {
        const char *const name = report_get_text(row, "operator");
        size_t at = op;
        while (at < n_op && strcmp(m->graph->op[at].name, name) != 0) at++;
        if (at == n_op) continue;
        op = at + 1;
        for (size_t c = 0; c < n_class; c++)
            m->ns[at * n_class + c] =
                report_get_number(json_array_get(json_object_get(row, "devices"), c), "ns");
    }
    return 1;
}

static double operator_ns(const map_source *m, int op, int c)
{
    return m->ns[op * m->plan->cluster.n_class + c];
}

static double operator_width(const map_source *m, int op, int c)
{
    const double width = m->replay ? operator_ns(m, op, c) : m->graph->op[op].flops;
    return isfinite(width) && width > 0 ? width : 0;
}

/* --- What a reader wants to know of one operator -------------------------------------------------------- */

/* By the method of the plan, of one operator and precision; "" = unknown. */
static report_quantity find_sensitivity(const map_source *m, const char *name, const char *precision)
{
    const char *const method = m->plan->method[0] ? m->plan->method : "fisher";
    const json_t *result, *row;
    int next = 0;
    size_t k;
    while ((result = report_next_result(m->part, "sensitivity", &next)))
        json_array_foreach(json_object_get(result, "operators"), k, row)
        {
            if (strcmp(report_get_text(row, "operator"), name) != 0 ||
                strcmp(report_get_text(row, "precision"), precision) != 0)
                continue;
            const double value = report_row_sensitivity(row, method);
            if (isfinite(value)) return report_sensitivity_text(row, value, method);
        }
    return (report_quantity){""};
}

/* What `allocate --explain` found for the operator on class c, of this plan; NULL = nothing. */
static const json_t *find_choices(const map_source *m, const char *op_name, int c)
{
    const json_t *result;
    int next = 0;
    while ((result = report_next_result(m->part, "allocate", &next))) {
        const json_t *const all = json_object_get(result, "explained_all"), *explained,
                            *one = json_object_get(result, "explained");
        size_t k;
        if (strcmp(report_get_text(result, "plan"), m->plan->name) != 0) continue;
        json_array_foreach(all, k, explained)
        {
            if (strcmp(report_get_text(explained, "operator"), op_name) == 0) one = explained;
        }
        const json_t *const device = json_array_get(json_object_get(one, "devices"), (size_t)c);
        if (strcmp(report_get_text(one, "operator"), op_name) == 0 &&
            strcmp(report_get_text(device, "name"), m->plan->cluster.classes[c].device.name) == 0)
            return json_object_get(device, "choices");
    }
    return NULL;
}

/* The verdict on a precision that is possible; "" = none is known. Those of a plan with another choice are of
 * another plan. */
static const char *find_choice_verdict(const json_t *choices, const char *precision, const char *chosen)
{
    const char *verdict = "";
    const json_t *choice;
    size_t k;
    json_array_foreach(choices, k, choice)
    {
        const char *const name = report_get_text(choice, "precision");
        if (report_is_true(choice, "chosen") && strcmp(name, chosen) != 0) return "";
        if (strcmp(name, precision) == 0) verdict = report_get_text(choice, "verdict");
    }
    return verdict;
}

/* The precisions that the operator does not have on this class, and why. */
static void put_reasons(FILE *out, const map_source *m, int op, int c)
{
    static const char *const why[] = {"the operator lacks", "the device lacks", "possible, not chosen:"};
    const char *const chosen = tandem_precision_get(m->plan->assignment.precision[c][op])->name;
    const json_t *const choices = find_choices(m, m->graph->op[op].name, c);
    const unsigned by_device = m->plan->cluster.classes[c].device.precisions,
                   by_operator = tandem_op_row_get(m->graph->op[op].kind)->precisions,
                   others = (1u << TANDEM_N_PRECISION) - 1 - (1u << m->plan->assignment.precision[c][op]);
    unsigned of[] = {others & ~by_operator, others & by_operator & ~by_device,
                     others & by_operator & by_device};
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const char *const name = tandem_precision_get((tandem_precision)p)->name;
        const char *const verdict = of[2] >> p & 1 ? find_choice_verdict(choices, name, chosen) : "";
        if (!verdict[0]) continue;
        report_put(out, "; not %s: %s", name, verdict);
        of[2] &= ~(1u << p);
    }
    for (int k = 0; k < 3; k++)
        for (int p = 0, n = 0; p < TANDEM_N_PRECISION; p++) {
            if (!(of[k] >> p & 1)) continue;
            report_put(out, n ? ", %s%s" : "; %s %s", n ? "" : why[k],
                       tandem_precision_get((tandem_precision)p)->name);
            n = 1;
        }
}

static void put_operator_title(FILE *out, const map_source *m, int op, int c)
{
    const tandem_op *const node = &m->graph->op[op];
    const char *const precision = tandem_precision_get(m->plan->assignment.precision[c][op])->name;
    report_put(out, "<title>%s (%s)", node->name, tandem_op_row_get(node->kind)->name);
    if (tandem_op_is_adjustable(node)) {
        const report_quantity sensitivity = find_sensitivity(m, node->name, precision);
        report_put(out, ": %s", precision);
        if (sensitivity.text[0]) report_put(out, ", sensitivity %s", sensitivity.text);
        put_reasons(out, m, op, c);
    } else {
        report_put(out, ": has no precision of its own");
    }
    if (m->replay) report_put(out, "; %s per step", report_ns(operator_ns(m, op, c)).text);
    report_put(out, "; %s FLOP forward</title>", report_number(node->flops).text);
}

/* --- The map -------------------------------------------------------------------------------------------- */

/* Narrow precisions are low as well, so that colour is not all that distinguishes them. */
static int precision_height(const char *precision)
{
    static const struct {
        const char *name;
        int height;
    } heights[] = {{"fp32", 40}, {"tf32", 36}, {"bf16", 30},     {"fp16", 30},
                   {"fp8", 20},  {"int8", 20}, {"int8_full", 16}};
    for (size_t k = 0; k < sizeof heights / sizeof *heights; k++)
        if (strcmp(heights[k].name, precision) == 0) return heights[k].height;
    return 40;
}

/* Operators that are together: one, or thin ones that look alike. */
typedef struct map_shape {
    int op, n;
    double x, width;
} map_shape;

static const char *operator_tone(const map_source *m, int op, int c)
{
    return tandem_op_is_adjustable(&m->graph->op[op])
               ? report_precision_tone(tandem_precision_get(m->plan->assignment.precision[c][op])->name)
               : "plain";
}

static void put_map_shape(FILE *out, const map_source *m, int c, const map_shape *shape)
{
    const char *const precision = tandem_precision_get(m->plan->assignment.precision[c][shape->op])->name;
    const int height = tandem_op_is_adjustable(&m->graph->op[shape->op]) ? precision_height(precision) : 8;
    report_put(out, "<path class=\"%s\" d=\"M%.2f 42h%.2fv-%dh-%.2fz\">", operator_tone(m, shape->op, c),
               shape->x, shape->width, height, shape->width);
    if (shape->n == 1)
        put_operator_title(out, m, shape->op, c);
    else
        report_put(out, "<title>%d small operators from %s on</title>", shape->n,
                   m->graph->op[shape->op].name);
    report_put(out, "</path>");
}

static void put_map_lane(FILE *out, const map_source *m, int c)
{
    const tandem_cluster_class *const class = &m->plan->cluster.classes[c];
    const double scale = m->widest > 0 ? 1000 / m->widest : 0;
    map_shape shape = {.n = 0};
    report_put(out,
               "<div class=\"lane map\"><p>%s</p><svg viewBox=\"0 0 1000 44\" preserveAspectRatio=\"none\" "
               "tabindex=\"0\" role=\"img\" aria-label=\"Precisions of the operators on %s\">",
               class->device.name, class->device.name);
    for (int op = 0; op < m->graph->n_op; op++) {
        const double width = scale * operator_width(m, op, c);
        const int joins = shape.n && width < m->thinnest && shape.width < m->thinnest &&
                          strcmp(operator_tone(m, op, c), operator_tone(m, shape.op, c)) == 0;
        if (width <= 0) continue;
        if (!joins) {
            if (shape.n) put_map_shape(out, m, c, &shape);
            shape = (map_shape){.op = op, .x = shape.x + shape.width};
        }
        shape.n++;
        shape.width += width;
    }
    if (shape.n) put_map_shape(out, m, c, &shape);
    report_put(out, "</svg></div>\n");
}

static void put_map_legend(FILE *out, const map_source *m)
{
    unsigned used = 0;
    for (int c = 0; c < m->plan->cluster.n_class; c++)
        for (int op = 0; op < m->graph->n_op; op++)
            if (tandem_op_is_adjustable(&m->graph->op[op]))
                used |= 1u << m->plan->assignment.precision[c][op];
    report_put(out, "<p class=\"keys\">");
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (used >> p & 1) {
            const char *const name = tandem_precision_get((tandem_precision)p)->name;
            report_legend(out, report_precision_tone(name), name);
        }
    report_legend(out, "plain", "follows its inputs, or always fp32");
    report_put(out, "</p>");
}

static void put_map_table(FILE *out, const map_source *m)
{
    int n = 0, n_adjustable = 0;
    for (int op = 0; op < m->graph->n_op; op++) n_adjustable += tandem_op_is_adjustable(&m->graph->op[op]);
    report_put(out,
               "<details><summary>As a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"Precisions as a table\"><table><thead><tr><th>operator</th><th>kind</th>");
    for (int c = 0; c < m->plan->cluster.n_class; c++)
        report_put(out, "<th>%s</th>", m->plan->cluster.classes[c].device.name);
    report_put(out, "</tr></thead><tbody>\n");
    for (int op = 0; op < m->graph->n_op && n < MAX_TABLE && n * m->plan->cluster.n_class < MAX_CELLS; op++) {
        if (!tandem_op_is_adjustable(&m->graph->op[op])) continue;
        n++;
        report_put(out, "<tr><th scope=\"row\">%s</th><td>%s</td>", m->graph->op[op].name,
                   tandem_op_row_get(m->graph->op[op].kind)->name);
        for (int c = 0; c < m->plan->cluster.n_class; c++) {
            report_put(out, "<td>%s", tandem_precision_get(m->plan->assignment.precision[c][op])->name);
            if (m->replay) report_put(out, ", %s", report_ns(operator_ns(m, op, c)).text);
            put_reasons(out, m, op, c);
            report_put(out, "</td>");
        }
        report_put(out, "</tr>\n");
    }
    report_put(out, "</tbody></table></div>");
    if (n < n_adjustable)
        report_put(out, "<p>The first %d of %d; the plan's file has them all.</p>", n, n_adjustable);
    report_put(out, "</details>\n");
}

static void put_map(FILE *out, map_source *m)
{
    for (int c = 0; c < m->plan->cluster.n_class; c++) {
        double total = 0;
        for (int op = 0; op < m->graph->n_op; op++) total += operator_width(m, op, c);
        m->widest = fmax(m->widest, total);
    }
    m->thinnest = 1000.0 * m->plan->cluster.n_class / MAX_MAP_SHAPES;
    report_put(out, "<h3>Plan <q>%s</q></h3>", m->plan->name);
    put_map_legend(out, m);
    report_put(out, "<figure class=\"timeline\" data-span=\"%.0f\">\n", m->replay ? m->widest : 0.0);
    for (int c = 0; c < m->plan->cluster.n_class; c++) put_map_lane(out, m, c);
    if (m->replay) {
        const report_axis axis = {.max = m->widest > 0 ? m->widest : 1, .unit = REPORT_NS};
        report_put(out, "<div class=\"lane\"><p>time</p>");
        report_ticks_x(out, &axis);
        report_put(
            out, "</div>\n<figcaption>From the first operator to the last; as wide as the predicted time of "
                 "all its tasks in a step. Narrow precisions are lower.</figcaption>");
    } else {
        report_put(out,
                   "<figcaption>From the first operator to the last; as wide as its FLOP, since no times are "
                   "here: <code>tandem replay --plan FILE --operators --json</code> makes them. Narrow "
                   "precisions are lower.</figcaption>");
    }
    report_put(out, "</figure>\n");
    put_map_table(out, m);
}

static int draw_precision_map(FILE *out, const report_part *part)
{
    for (int k = 0; k < part->n; k++) {
        map_source m = {.part = part, .plan = part->item[k]->plan, .graph = part->item[k]->graph};
        const json_t *replay;
        int next = 0;
        if (!m.plan || !m.graph) continue;
        while (!m.replay && (replay = report_next_result(part, "replay", &next)))
            if (is_of_plan(replay, m.plan)) m.replay = replay;
        if (!read_operator_times(&m)) return 0;
        put_map(out, &m);
        free(m.ns);
    }
    return 1;
}

const report_section report_precision_map = {
    "precisions", "Precision map", draw_precision_map,
    "tandem allocate --model MODEL --cluster CLUSTER --predict -o plan.json"};
