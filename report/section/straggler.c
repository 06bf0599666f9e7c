/* straggler.c: how much each worker slows a recorded job, by rank and stage. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"

enum { MAX_SIDE = 128, N_HEAT = 5, MAX_PARTS = 40 };

/* "dp 3 stage 1" and "dp 3 stage 1 tp 0"; of several tp the slowest counts. */
typedef struct heat_map {
    double slowdown[MAX_SIDE][MAX_SIDE]; /* [stage][dp] NaN = unknown */
    int n_stage, n_dp;
} heat_map;

/* The number after a word of a name; −1 = none. */
static long number_after(const char *name, const char *word)
{
    const char *const at = strstr(name, word);
    char *end = NULL;
    const long number = at ? strtol(at + strlen(word), &end, 10) : -1;
    return at && end > at + strlen(word) ? number : -1;
}

static void read_worker(heat_map *map, const json_t *worker)
{
    const char *const name = report_get_text(worker, "name");
    const long dp = number_after(name, "dp "), stage = number_after(name, "stage ");
    const double slowdown = report_get_number(worker, "slowdown");
    if (dp < 0 || stage < 0 || dp >= MAX_SIDE || stage >= MAX_SIDE) return;
    if (dp >= map->n_dp) map->n_dp = (int)dp + 1;
    if (stage >= map->n_stage) map->n_stage = (int)stage + 1;
    double *const cell = &map->slowdown[stage][dp];
    if (isfinite(slowdown) && !(*cell >= slowdown)) *cell = slowdown;
}

/* 0 up to 1 %, then 5, 20, 50 %, more. */
static int heat_of(double slowdown)
{
    static const double above[N_HEAT - 1] = {1.01, 1.05, 1.2, 1.5};
    int heat = 0;
    while (heat < N_HEAT - 1 && slowdown > above[heat]) heat++;
    return heat;
}

static void put_cell(FILE *out, double slowdown)
{
    if (isfinite(slowdown))
        report_put(out, "<td class=\"n heat h%d\">%.2f</td>", heat_of(slowdown), slowdown);
    else
        report_put(out, "<td class=\"n\">\xe2\x80\x93</td>");
}

static int put_heat_map(FILE *out, const json_t *whatif)
{
    const json_t *worker;
    size_t k;
    heat_map map = {.n_stage = 0};
    for (int s = 0; s < MAX_SIDE; s++)
        for (int d = 0; d < MAX_SIDE; d++) map.slowdown[s][d] = NAN;
    json_array_foreach(json_object_get(whatif, "by_worker"), k, worker) { read_worker(&map, worker); }
    if (map.n_stage == 0) return 0;
    report_put(
        out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Slowdown by rank and "
             "stage\"><table class=\"heatmap\"><caption>Slowdown of the whole job if only this worker is as "
             "slow as recorded</caption><thead><tr><th>stage</th>");
    for (int d = 0; d < map.n_dp; d++) report_put(out, "<th class=\"n\">dp %d</th>", d);
    report_put(out, "</tr></thead><tbody>\n");
    for (int s = 0; s < map.n_stage; s++) {
        report_put(out, "<tr><th scope=\"row\">%d</th>", s);
        for (int d = 0; d < map.n_dp; d++) put_cell(out, map.slowdown[s][d]);
        report_put(out, "</tr>\n");
    }
    report_put(out, "</tbody></table></div>\n");
    return 1;
}

static void put_slow_parts(FILE *out, const json_t *parts, const char *what)
{
    const json_t *worker;
    size_t k;
    if (json_array_size(parts) == 0) return;
    report_put(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Slowdown by "
        "%s\"><table><thead><tr><th>%s</th><th class=\"n\">slowdown by it alone</th><th class=\"n\">step "
        "without it</th><th class=\"n\">gain</th></tr></thead><tbody>\n",
        what, what);
    json_array_foreach(parts, k, worker)
    {
        if (k >= MAX_PARTS) break;
        report_put(out, "<tr><th scope=\"row\">%s</th>", report_get_text(worker, "name"));
        put_cell(out, report_get_number(worker, "slowdown"));
        report_put(out, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   report_ns(report_get_number(worker, "without_ns")).text,
                   report_ratio(report_get_number(worker, "gain")).text);
    }
    report_put(out, "</tbody></table></div>\n");
}

static int draw_straggler(FILE *out, const report_part *part)
{
    const json_t *whatif;
    int next = 0;
    while ((whatif = report_next_result(part, "whatif", &next))) {
        if (!isfinite(report_get_number(whatif, "slowdown"))) continue;
        report_put(out, "<p>The step takes %s; without stragglers %s.</p>\n",
                   report_ns(report_get_number(whatif, "step_ns")).text,
                   report_ns(report_get_number(whatif, "ideal_step_ns")).text);
        if (!put_heat_map(out, whatif)) put_slow_parts(out, json_object_get(whatif, "by_worker"), "worker");
        put_slow_parts(out, json_object_get(whatif, "by_stage"), "stage");
        put_slow_parts(out, json_object_get(whatif, "by_operator"), "operator");
    }
    return 1;
}

const report_section report_straggler = {"stragglers", "Stragglers", draw_straggler,
                                         "tandem whatif trace.json --json"};
