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
                                                      : "its origin is not told",
                   item->timeline->n_rank, item->timeline->n_task);
    else if (item->log.n)
        report_put(out, "training log of %d lines", item->log.n);
    else
        report_put(out, "result <code>%s</code>", report_get_text(item->result, "schema"));
}

/* What a result tells of how it was made. */
static void put_making(FILE *out, const json_t *result)
{
    static const char *const members[] = {"version", "host", "libraries", "seed"};
    const json_t *const made = json_object_get(result, "made");
    const char *const command = report_get_text(made, "command");
    if (command[0]) report_put(out, "<code>%s</code>", command);
    for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
        const char *const text = report_get_text(made, members[k]);
        const double number = report_get_number(made, members[k]);
        if (text[0])
            report_put(out, "; %s %s", members[k], text);
        else if (isfinite(number))
            report_put(out, "; %s %.0f", members[k], number);
    }
}

static void put_files(FILE *out, const report_part *part)
{
    report_put(
        out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
             "aria-label=\"Files\"><table><thead><tr><th>file</th><th>holds</th><th>made by</th></tr></thead>"
             "<tbody>\n");
    for (int k = 0; k < part->n; k++) {
        report_put(out, "<tr><th scope=\"row\">%s</th><td>", part->item[k]->source);
        put_kind_of_item(out, part->item[k]);
        report_put(out, "</td><td>");
        put_making(out, part->item[k]->result);
        report_put(out, "</td></tr>\n");
    }
    report_put(out, "</tbody></table></div>\n");
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

/* --- How steady the machine was ------------------------------------------------------------------------- */

static void put_steadiness(FILE *out, const report_part *part)
{
    const json_t *profile, *device;
    int next = 0, n = 0;
    size_t k;
    while ((profile = report_next_result(part, "profile", &next)))
        json_array_foreach(json_object_get(profile, "devices"), k, device)
        {
            const json_t *const s = json_object_get(device, "steadiness");
            if (!json_is_object(s)) continue;
            if (!n++)
                report_put(
                    out, "<h3>How steady the machine was</h3><div class=\"scroll\" tabindex=\"0\" "
                         "role=\"region\" aria-label=\"Steadiness\"><table><thead><tr><th>device</th><th "
                         "class=\"n\">compute varies by</th><th class=\"n\">memory varies by</th><th "
                         "class=\"n\">others had the core</th><th class=\"n\">other virtual machines</th><th "
                         "class=\"n\">interval of a step</th></tr></thead><tbody>\n");
            report_put(out,
                       "<tr><th scope=\"row\">%s</th><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
                       "class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                       report_get_text(device, "name"),
                       report_ratio(report_get_number(s, "compute_spread")).text,
                       report_ratio(report_get_number(s, "memory_spread")).text,
                       report_ratio(report_get_number(s, "delay_share")).text,
                       report_ratio(report_get_number(s, "steal_share")).text,
                       report_ratio(report_get_number(s, "interval")).text);
        }
    if (n)
        report_put(
            out,
            "</tbody></table></div><p class=\"note\">A dash: the system does not tell. Where it does not "
            "tell what others took, a disturbed sample cannot be told from a slow one.</p>\n");
}

static int draw_provenance(FILE *out, const report_part *part)
{
    put_files(out, part);
    put_costs(out, part);
    put_steadiness(out, part);
    return 1;
}

const report_section report_provenance = {"provenance", "Provenance", draw_provenance, NULL};
