/* provenance.c: which file says what, which command made it, and where each time comes from. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/section.h"

/* --- Files ---------------------------------------------------------------------------------------------- */

static void put_kind_of_item(FILE *out, const report_item *item)
{
    if (item->plan)
        report_put(out, "plan <q>%s</q> by policy %s, for %s", item->plan->name,
                   item->plan->policy[0] ? item->plan->policy : "none", item->plan->model);
    else if (item->timeline)
        report_put(out, "trace <q>%s</q>, %s: %d ranks, %d events", item->timeline->title,
                   item->timeline->is_measured > 0    ? "measured"
                   : item->timeline->is_measured == 0 ? "simulated"
                                                      : "of unknown origin",
                   item->timeline->n_rank, item->timeline->n_task);
    else if (item->log.n)
        report_put(out, "training log of %d lines", item->log.n);
    else
        report_put(out, "result <code>%s</code>", report_get_text(item->result, "schema"));
}

/* "" is a dash. */
static const char *or_dash(const char *text) { return text[0] ? text : "\xe2\x80\x93"; }

static void put_files(FILE *out, const report_part *part)
{
    report_put(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Files\"><table><thead>"
                    "<tr><th>file</th><th>holds</th><th>made by</th><th>tandem</th><th>machine</th><th "
                    "class=\"n\">seed</th></tr></thead><tbody>\n");
    for (int k = 0; k < part->n; k++) {
        const report_item *const item = part->item[k];
        const tandem_made *const origin = &item->made;
        report_put(out, "<tr><th scope=\"row\">%s</th><td>", item->source);
        put_kind_of_item(out, item);
        if (origin->command[0])
            report_put_whole(out, "</td><td><code>%s</code></td>", origin->command);
        else
            report_put(out, "</td><td>\xe2\x80\x93</td>");
        report_put(out, "<td>%s</td><td>%s</td><td class=\"n\">%s</td></tr>\n", or_dash(origin->version),
                   or_dash(origin->host), or_dash(origin->seed));
    }
    report_put(
        out, "</tbody></table></div><p class=\"note\">Commands are shown without options that only say "
             "where output goes. The machine's name is kept as a hash. A dash: the file does not say.</p>\n");
}

/* --- Where times come from ------------------------------------------------------------------------------ */

static void put_cost_row(FILE *out, const char *name, const char *of, const json_t *costs)
{
    static const char *const origins[] = {"measured", "interpolated", "extrapolated", "predicted"};
    report_put(out, "<tr><th scope=\"row\">%s</th><td>%s</td>", name, of);
    for (size_t k = 0; k < sizeof origins / sizeof *origins; k++) {
        const json_t *const origin = json_object_get(costs, origins[k]);
        const double share = report_get_number(origin, "share"), tasks = report_get_number(origin, "tasks");
        if (tasks > 0)
            report_put(out, "<td class=\"n\">%s (%.0f tasks)</td>", report_ratio(share).text, tasks);
        else
            report_put(out, "<td class=\"n\">%s</td>", report_ratio(share).text);
    }
    const double form = report_get_number(costs, "form_interval_80");
    report_put(out, "<td class=\"n\">%s</td></tr>\n", report_ratio(form).text);
}

static void put_cost_rows(FILE *out, const report_part *part, const char *command)
{
    const json_t *result, *device;
    int next = 0;
    size_t k;
    while ((result = report_next_result(part, command, &next)))
        json_array_foreach(json_object_get(result, "devices"), k, device)
        {
            if (json_is_object(json_object_get(device, "costs")))
                put_cost_row(out, report_get_text(device, "name"), report_get_text(result, "plan"),
                             json_object_get(device, "costs"));
        }
}

static int has_costs(const report_part *part)
{
    int replay = 0, allocate = 0;
    return report_next_result(part, "replay", &replay) || report_next_result(part, "allocate", &allocate);
}

static void put_costs(FILE *out, const report_part *part)
{
    if (!has_costs(part)) return;
    report_put(
        out, "<h3>Where the times come from</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
             "aria-label=\"Origin of the times\"><table><thead><tr><th>class</th><th>plan</th><th "
             "class=\"n\">measured</th><th class=\"n\">interpolated</th><th class=\"n\">extrapolated</th><th "
             "class=\"n\">predicted from a description</th><th class=\"n\">80%% interval of the "
             "latter</th></tr></thead><tbody>\n");
    put_cost_rows(out, part, "replay");
    put_cost_rows(out, part, "allocate");
    report_put(out, "</tbody></table></div>\n");
}

/* --- Who measured -------------------------------------------------------------------------------------- */

static void put_measuring_host(FILE *out, const json_t *host)
{
    report_put(out, "<tr><th scope=\"row\">%s, %s CPUs, %s</th><td>%s</td><td class=\"n\">%s</td>",
               or_dash(report_get_text(host, "cpu")), report_number(report_get_number(host, "n_cpu")).text,
               report_get_text(host, "name_hash"), or_dash(report_get_text(host, "libraries")),
               report_number(report_get_number(host, "n_thread")).text);
    report_put(out, "<td class=\"n\">%s</td><td>%s</td><td>%s</td></tr>\n",
               report_number(report_get_number(host, "costs")).text,
               report_time_of_day(report_get_number(host, "from_time_ns")).text,
               report_time_of_day(report_get_number(host, "to_time_ns")).text);
}

static void put_measuring_hosts(FILE *out, const report_part *part)
{
    const json_t *store, *host;
    int next = 0;
    size_t k;
    while ((store = report_next_result(part, "store", &next))) {
        const json_t *const hosts = json_object_get(store, "hosts");
        if (json_array_size(hosts) == 0) continue;
        report_put(out,
                   "<h3>Who measured the store's costs</h3><div class=\"scroll\" tabindex=\"0\" "
                   "role=\"region\" aria-label=\"Machines that measured\"><table><thead><tr><th>machine</th>"
                   "<th>libraries</th><th class=\"n\">threads</th><th class=\"n\">costs</th><th>first</th>"
                   "<th>last</th></tr></thead><tbody>\n");
        json_array_foreach(hosts, k, host) { put_measuring_host(out, host); }
        report_put(out, "</tbody></table></div>\n");
    }
}

static int draw_provenance(FILE *out, const report_part *part)
{
    put_files(out, part);
    put_costs(out, part);
    put_measuring_hosts(out, part);
    return 1;
}

const report_section report_provenance = {"provenance", "Provenance", draw_provenance, NULL};
