/* cluster.c: the cluster's classes, and how each spends a step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/section.h"

enum { CLUSTER_TEXT = 1024 };

/* --- Classes ------------------------------------------------------------------------------------------- */

static void put_precisions(FILE *out, unsigned precisions)
{
    int n = 0;
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (precisions >> p & 1)
            report_put(out, n++ ? ", %s" : "%s", tandem_precision_get((tandem_precision)p)->name);
}

static const char *device_meaning(const tandem_device *device)
{
    if (tandem_device_is_described(device)) return "described; times are predicted";
    return tandem_device_is_recorded(device->name) ? "recorded in another framework"
                                                   : "measured on its machine";
}

static void put_class_row(FILE *out, const tandem_cluster *cluster, int c)
{
    const tandem_cluster_class *const class = &cluster->classes[c];
    const uint64_t limit = tandem_cluster_memory_limit(cluster, c);
    report_put(out,
               "<tr><th scope=\"row\">%s</th><td>%s</td><td class=\"n\">%d</td><td class=\"n\">%lld</td>",
               class->device.name, device_meaning(&class->device), class->n_rank, (long long)class->batch);
    report_put(out, "<td class=\"n\">%s</td><td>", limit ? report_bytes((double)limit).text : "none");
    put_precisions(out, class->device.precisions);
    if (class->slowdown_ppm)
        report_put(out, "; %.2f times as slow as its device", (double)class->slowdown_ppm * 1e-6);
    report_put(out, "</td></tr>\n");
}

static void put_cluster(FILE *out, const tandem_cluster *cluster, const char *text)
{
    report_put(out,
               "<p><code>%s</code></p><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"Classes of the cluster\"><table><thead><tr><th>class</th><th>times</th><th "
               "class=\"n\">ranks</th><th class=\"n\">batch per rank</th><th class=\"n\">memory "
               "limit</th><th>precisions</th></tr></thead><tbody>\n",
               text);
    for (int c = 0; c < cluster->n_class; c++) put_class_row(out, cluster, c);
    report_put(out, "</tbody></table></div>\n");
}

/* Whether an earlier item has the same cluster. */
static int is_cluster_drawn(const report_part *part, int n, const char *text)
{
    char other[CLUSTER_TEXT];
    for (int k = 0; k < n; k++) {
        if (!part->item[k]->plan) continue;
        tandem_cluster_print(other, sizeof other, &part->item[k]->plan->cluster);
        if (strcmp(other, text) == 0) return 1;
    }
    return 0;
}

/* --- How a class spends the step ----------------------------------------------------------------------- */

static void put_share_bar(FILE *out, const char *tone, double at, double ns, double step, const char *what)
{
    if (!(ns > 0) || !(step > 0)) return;
    report_put(out,
               "<path class=\"%s\" d=\"M%.1f 0h%.1fv20h-%.1fz\"><title>%s: %s, %s of the step</title></path>",
               tone, 1000 * at / step, 1000 * ns / step, 1000 * ns / step, what, report_ns(ns).text,
               report_ratio(ns / step).text);
}

static void put_device_row(FILE *out, const json_t *device, double step)
{
    const double busy = report_get_number(device, "busy_ns"),
                 comm = report_get_number(device, "exposed_comm_ns"),
                 wait = report_get_number(device, "wait_ns"),
                 limit = report_get_number(device, "limit_bytes");
    const double shown_busy = isfinite(busy) ? busy : 0, shown_comm = isfinite(comm) ? comm : 0;
    report_put(out,
               "<tr><th scope=\"row\">%s</th><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
               "class=\"n\">%s</td><td class=\"n\">%s%s</td><td class=\"bar\"><svg viewBox=\"0 0 1000 20\" "
               "preserveAspectRatio=\"none\" aria-hidden=\"true\">",
               report_get_text(device, "name"), report_ns(busy).text, report_ns(comm).text,
               report_ns(wait).text, report_bytes(report_get_number(device, "peak_bytes")).text,
               isfinite(limit) && !report_is_true(device, "fits") ? " (over its limit)" : "");
    put_share_bar(out, "c1", 0, busy, step, "busy");
    put_share_bar(out, "c4", shown_busy, comm, step, "communication that nothing hides");
    put_share_bar(out, "wait", shown_busy + shown_comm, wait, step, "waiting for others");
    report_put(out, "</svg></td></tr>\n");
}

static void put_step_shares(FILE *out, const json_t *replay)
{
    const json_t *const devices = json_object_get(replay, "devices"), *device;
    const double step = report_get_number(replay, "step_ns");
    size_t k;
    if (json_array_size(devices) == 0) return;
    report_put(out, "<h3>One predicted step of <q>%s</q>: %s</h3><p class=\"keys\">",
               report_get_text(replay, "plan"), report_ns(step).text);
    report_legend(out, "c1", "busy");
    report_legend(out, "c4", "communication that nothing hides");
    report_legend(out, "wait", "waiting for others");
    report_put(out,
               "</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Step by "
               "class\"><table><thead><tr><th>class</th><th class=\"n\">busy</th><th "
               "class=\"n\">communication</th><th class=\"n\">waiting</th><th class=\"n\">memory</th><th "
               "class=\"bar\">share of the step</th></tr></thead><tbody>\n");
    json_array_foreach(devices, k, device) { put_device_row(out, device, step); }
    report_put(out, "</tbody></table></div>\n");
}

/* --- Candidates: what `advise` compared ---------------------------------------------------------------- */

static void put_candidate_row(FILE *out, const json_t *candidate, int is_best, const char *method)
{
    report_put(out, "<tr><th scope=\"row\">%s%s</th><td><code>%s</code></td>",
               report_get_text(candidate, "role"), is_best ? " (best)" : "",
               report_get_text(candidate, "cluster"));
    report_put(
        out,
        "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>"
        "<td class=\"n\">%s</td>",
        report_number(report_get_number(candidate, "samples_per_s")).text,
        report_number(report_get_number(candidate, "fp32_goodput_samples_per_s")).text,
        report_ns(report_get_number(candidate, "step_ns")).text,
        report_sensitivity_text(candidate, report_get_number(candidate, "sensitivity_bound"), method).text);
    report_put(out, "<td class=\"n\">%s</td><td>%s</td></tr>\n",
               report_bytes(report_get_number(candidate, "peak_bytes")).text,
               report_get_text(candidate, "error"));
}

static void put_candidates(FILE *out, const json_t *advice)
{
    const json_t *candidate;
    const double best = report_get_number(advice, "best");
    size_t k;
    report_put(out,
               "<h3>Candidates</h3><p>%s</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"Candidates\"><table><thead><tr><th>case</th><th>cluster</th><th "
               "class=\"n\">samples/s</th><th class=\"n\">goodput</th><th "
               "class=\"n\">step</th><th class=\"n\">sensitivity (%s)</th><th class=\"n\">memory "
               "of a rank</th><th>why there is no plan</th></tr></thead><tbody>\n",
               report_get_text(advice, "verdict"), report_get_text(advice, "method"));
    json_array_foreach(json_object_get(advice, "cases"), k, candidate)
    {
        put_candidate_row(out, candidate, (double)k == best, report_get_text(advice, "method"));
    }
    report_put(out, "</tbody></table></div>\n");
}

static int draw_cluster(FILE *out, const report_part *part)
{
    char text[CLUSTER_TEXT];
    const json_t *replay;
    int n_drawn = 0, next = 0;
    for (int k = 0; k < part->n; k++) {
        const tandem_plan *const plan = part->item[k]->plan;
        if (!plan) continue;
        tandem_cluster_print(text, sizeof text, &plan->cluster);
        if (is_cluster_drawn(part, k, text)) continue;
        put_cluster(out, &plan->cluster, text);
        n_drawn++;
    }
    static const char *const with_cluster[] = {"demo", "compare", "replay"};
    for (int c = 0; c < 3 && !n_drawn; c++) {
        const char *const described =
            report_get_text(report_next_result(part, with_cluster[c], &(int){0}), "cluster");
        if (described[0]) report_put(out, "<p><code>%s</code></p>\n", described);
        n_drawn += described[0] != '\0';
    }
    while ((replay = report_next_result(part, "replay", &next))) put_step_shares(out, replay);
    next = 0;
    while ((replay = report_next_result(part, "advise", &next))) put_candidates(out, replay);
    return 1;
}

const report_section report_cluster = {
    "cluster", "Cluster", draw_cluster,
    "tandem allocate --model MODEL --cluster CLUSTER --predict -o plan.json"};
