/* profile.c: the costs of a store, how steady its machines were while they were measured, and its runs. */
#include <math.h>
#include <string.h>

#include "report/section.h"

enum { MAX_COSTS = 2000, MAX_COLLECTIVES = 300 };

#define SCROLL(name)                                                                                         \
    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" name "\"><table><thead><tr>"

static const char *beside(const json_t *row)
{
    const char *const other = report_get_text(row, "co_runner");
    return other[0] ? other : "alone";
}

/* --- How steady the machine was ------------------------------------------------------------------------- */

static void put_steadiness_cells(FILE *out, const json_t *s, const char *interval)
{
    static const char *const members[] = {"compute_spread", "memory_spread", "delay_share", "steal_share"};
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        report_put(out, "<td class=\"n\">%s</td>", report_ratio(report_get_number(s, members[k])).text);
    report_put(out, "<td class=\"n\">%s</td></tr>\n", report_ratio(report_get_number(s, interval)).text);
}

static void put_steadiness_head(FILE *out, const char *more)
{
    report_put(out, "<h3>How steady the machine was</h3>" SCROLL("Steadiness") "<th>device</th>");
    if (more[0])
        report_put(out, "<th>beside</th><th class=\"n\">costs</th><th class=\"n\">repetitions</th><th "
                        "class=\"n\">dropped as disturbed</th>");
    report_put(out,
               "<th class=\"n\">compute varies by</th><th class=\"n\">memory varies by</th><th class=\"n\">"
               "others had the core</th><th class=\"n\">other virtual machines</th><th "
               "class=\"n\">interval of "
               "a step</th></tr></thead><tbody>\n");
}

static void put_steadiness_end(FILE *out)
{
    report_put(out, "</tbody></table></div><p class=\"note\">A dash: the system does not report it. Where it "
                    "does not report the time of others, a disturbed sample cannot be distinguished "
                    "from a slow one.</p>\n");
}

/* Of what `profile --json` printed. */
static void put_profile_steadiness(FILE *out, const report_part *part)
{
    const json_t *profile, *device;
    int next = 0, n = 0;
    size_t k;
    while ((profile = report_next_result(part, "profile", &next)))
        json_array_foreach(json_object_get(profile, "devices"), k, device)
        {
            const json_t *const s = json_object_get(device, "steadiness");
            if (!json_is_object(s)) continue;
            if (!n++) put_steadiness_head(out, "");
            report_put(out, "<tr><th scope=\"row\">%s</th>", report_get_text(device, "name"));
            put_steadiness_cells(out, s, "interval");
        }
    if (n) put_steadiness_end(out);
}

static void put_store_steadiness(FILE *out, const json_t *store)
{
    const json_t *const devices = json_object_get(store, "devices"), *device;
    size_t k;
    if (json_array_size(devices) == 0) return;
    put_steadiness_head(out, "store");
    json_array_foreach(devices, k, device)
    {
        report_put(
            out,
            "<tr><th scope=\"row\">%s</th><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
            "class=\"n\">%s</td>",
            report_get_text(device, "name"), beside(device),
            report_number(report_get_number(device, "costs")).text,
            report_number(report_get_number(device, "repetitions")).text,
            report_number(report_get_number(device, "disturbed")).text);
        put_steadiness_cells(out, device, "interval_share");
    }
    put_steadiness_end(out);
}

/* --- Costs by operator ---------------------------------------------------------------------------------- */

static void put_cost_bar(FILE *out, double ns, double longest)
{
    report_put(out, "<td class=\"bar narrow\"><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
                    "aria-hidden=\"true\">");
    if (ns > 0 && longest > 0)
        report_put(out, "<path class=\"c1\" d=\"M0 0h%.1fv20h-%.1fz\"/>", 1000 * ns / longest,
                   1000 * ns / longest);
    report_put(out, "</svg></td>");
}

static void put_cost(FILE *out, const json_t *cost, double longest)
{
    const double low = report_get_number(cost, "low_ns"), high = report_get_number(cost, "high_ns"),
                 ns = report_get_number(cost, "median_ns");
    report_put(out, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s &#8594; %s</td>",
               report_get_text(cost, "operator"), report_get_text(cost, "pass"),
               report_get_text(cost, "precision"), report_get_text(cost, "operand"),
               report_get_text(cost, "result"));
    report_put(out, "<td class=\"n\">%s</td>", report_ns(ns).text);
    if (high > 0 && low > 0)
        report_put(out, "<td class=\"n\">%s to %s</td>", report_ns(low).text, report_ns(high).text);
    else
        report_put(out, "<td class=\"n\">\xe2\x80\x93</td>");
    report_put(out, "<td class=\"n\">%s</td>", report_number(report_get_number(cost, "n")).text);
    put_cost_bar(out, ns, longest);
    report_put(out, "</tr>\n");
}

static int is_same_group(const json_t *a, const json_t *b)
{
    return strcmp(report_get_text(a, "device"), report_get_text(b, "device")) == 0 &&
           strcmp(report_get_text(a, "co_runner"), report_get_text(b, "co_runner")) == 0;
}

/* Rows of one device and co-runner follow each other, the longest first. */
static void put_store_costs(FILE *out, const json_t *store)
{
    const json_t *cost, *first = NULL;
    size_t k;
    json_array_foreach(json_object_get(store, "costs"), k, cost)
    {
        if (k >= MAX_COSTS) break;
        if (!first || !is_same_group(first, cost)) {
            if (first) report_put(out, "</tbody></table></div></details>\n");
            first = cost;
            report_put(out,
                       "<details><summary>Costs by operator: %s, %s</summary>" SCROLL(
                           "Costs by operator") "<th>operator</th><th>pass</th><th>precision</th><th>reads "
                                                "&#8594; writes</th><th "
                                                "class=\"n\">median</th><th class=\"n\">95%% "
                                                "interval</th><th class=\"n\">repetitions"
                                                "</th><th class=\"bar narrow\"></th></tr></thead><tbody>\n",
                       report_get_text(cost, "device"), beside(cost));
        }
        put_cost(out, cost, report_get_number(first, "median_ns"));
    }
    if (first)
        report_put(out, "</tbody></table></div></details><p class=\"note\">The longest of each device "
                        "are shown; "
                        "the table above counts all, with casts.</p>\n");
}

/* --- All-reduces ---------------------------------------------------------------------------------------- */

static void put_store_collectives(FILE *out, const json_t *store)
{
    const json_t *const rows = json_object_get(store, "collectives"), *row;
    size_t k;
    if (json_array_size(rows) == 0) return;
    report_put(out, "<details><summary>All-reduces</summary>" SCROLL(
                        "All-reduces") "<th>ranks</th><th>collective</th><th>meanwhile</th><th "
                                       "class=\"n\">size</th><th class=\"n\">"
                                       "median</th></tr></thead><tbody>\n");
    json_array_foreach(rows, k, row)
    {
        if (k >= MAX_COLLECTIVES) break;
        report_put(out,
                   "<tr><th "
                   "scope=\"row\">%s</th><td>%s</td><td>%s</td>",
                   report_get_text(row, "group"), report_get_text(row, "collective"),
                   report_get_number(row, "loaded") > 0 ? "every rank computes" : "idle");
        report_put(out, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   report_bytes(report_get_number(row, "bytes")).text,
                   report_ns(report_get_number(row, "median_ns")).text);
    }
    report_put(out, "</tbody></table></div></details>\n");
}

/* --- Models and runs ------------------------------------------------------------------------------------ */

static void put_store_models(FILE *out, const json_t *store)
{
    const json_t *const models = json_object_get(store, "models"), *model;
    size_t k;
    if (json_array_size(models) == 0) return;
    report_put(out, "<h3>Models</h3>" SCROLL(
                        "Models") "<th>model</th><th>graph</th><th>statistics over</th><th "
                                  "class=\"n\">batches</th><th>estimated over</th></tr></thead><tbody>\n");
    json_array_foreach(models, k, model)
    {
        const char *const data = report_get_text(model, "data"), *const estimated =
                                                                     report_get_text(model, "estimated");
        report_put(
            out,
            "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td class=\"n\">%s</td><td>%s</td></tr>\n",
            report_get_text(model, "name"), report_get_text(model, "hash"), data[0] ? data : "\xe2\x80\x93",
            report_number(report_get_number(model, "batches")).text,
            estimated[0] ? estimated : "\xe2\x80\x93");
    }
    report_put(out, "</tbody></table></div>\n");
}

static void put_store_runs(FILE *out, const json_t *store)
{
    const json_t *const runs = json_object_get(store, "runs"), *run;
    size_t k;
    if (json_array_size(runs) == 0) return;
    report_put(out, "<h3>Runs on record</h3>" SCROLL(
                        "Runs on record") "<th>when</th><th>model</th><th>plan</th><th>"
                                          "cluster</th><th class=\"n\">steps</th><th "
                                          "class=\"n\">predicted</th><th class=\"n\">measured"
                                          "</th><th class=\"n\">exit code</th></tr></thead><tbody>\n");
    json_array_foreach(runs, k, run)
    {
        report_put(out, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td>",
                   report_time_of_day(report_get_number(run, "time_ns")).text, report_get_text(run, "model"),
                   report_get_text(run, "plan"), report_get_text(run, "cluster"));
        report_put(out,
                   "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                   "class=\"n\">%s</td></tr>\n",
                   report_number(report_get_number(run, "steps")).text,
                   report_ns(report_get_number(run, "predicted_ns")).text,
                   report_ns(report_get_number(run, "measured_ns")).text,
                   report_number(report_get_number(run, "exit_code")).text);
    }
    report_put(out, "</tbody></table></div>\n");
}

static int draw_profile(FILE *out, const report_part *part)
{
    const json_t *store;
    int next = 0;
    put_profile_steadiness(out, part);
    while ((store = report_next_result(part, "store", &next))) {
        put_store_steadiness(out, store);
        put_store_costs(out, store);
        put_store_collectives(out, store);
        put_store_models(out, store);
        put_store_runs(out, store);
    }
    return 1;
}

const report_section report_profile = {
    "profile", "Profile", draw_profile,
    "tandem profile --model MODEL --cluster CLUSTER, then tandem report --db FILE"};
