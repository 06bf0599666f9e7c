/* memory.c: what a rank's memory holds at each task of the step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"

enum { MAX_COLUMNS = 500 };

/* Categories of a replay's memory timeline, as they are stacked: those of the whole run at the bottom. */
static const struct {
    const char *name, *tone, *meaning;
    const char *category[10]; /* NULL = the end */
} kinds[] = {
    {"weights", "c1", "weights", {"weights", "weight copies"}},
    {"gradients", "c4", "gradients of weights", {"gradients", "weight gradients"}},
    {"optimizer", "c5", "optimizer state", {"optimizer", "amax histories"}},
    {"activations",
     "c2",
     "activations",
     {"activations f32", "activations bf16", "activations s8", "activations f16", "activations e4m3",
      "activations mxfp8", "activations nvfp4", "tokens and labels", "auxiliary results"}},
    {"activation gradients", "c3", "gradients of activations", {"activation gradients"}},
    {"workspace", "c7", "workspace of kernels", {"workspace"}},
    {"unused", "wait", "gaps between tensors", {"unused"}},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

typedef struct memory_column {
    double bytes[N_KIND];
} memory_column;

static memory_column read_column(const json_t *row)
{
    const json_t *const bytes = json_object_get(row, "bytes");
    memory_column column = {{0}};
    for (int kind = 0; kind < N_KIND; kind++)
        for (int k = 0; kinds[kind].category[k]; k++) {
            const double value = report_get_number(bytes, kinds[kind].category[k]);
            if (value > 0) column.bytes[kind] += value;
        }
    return column;
}

static double live_bytes(const memory_column *column)
{
    double sum = 0;
    for (int kind = 0; kind < N_KIND - 1; kind++) sum += column->bytes[kind];
    return sum;
}

/* At most MAX_COLUMNS, each the fullest of its tasks. The caller frees it; NULL = no memory. */
static memory_column *read_columns(const json_t *rows, int *n)
{
    const size_t n_row = json_array_size(rows), n_column = n_row < MAX_COLUMNS ? n_row : MAX_COLUMNS;
    memory_column *const column = calloc(n_column + 1, sizeof *column);
    for (size_t k = 0; column && k < n_row; k++) {
        const memory_column read = read_column(json_array_get(rows, k));
        memory_column *const to = &column[k * n_column / n_row];
        if (live_bytes(&read) >= live_bytes(to)) *to = read;
    }
    *n = (int)n_column;
    return column;
}

/* The sum of the first kinds. */
static double stacked_bytes(const memory_column *column, int n_kind)
{
    double sum = 0;
    for (int kind = 0; kind < n_kind; kind++) sum += column->bytes[kind];
    return sum;
}

/* One side of an area, as a staircase; columns of one height are one stair. */
static void put_stairs(FILE *out, const memory_column *column, int n, int n_kind, int backwards,
                       const report_axis *y)
{
    for (int i = 0; i < n; i++) {
        const int k = backwards ? n - 1 - i : i, next = backwards ? k - 1 : k + 1;
        const double height = stacked_bytes(&column[k], n_kind);
        if (i + 1 < n && stacked_bytes(&column[next], n_kind) == height) continue;
        report_put(out, "V%.1fH%.1f", report_y(y, height),
                   REPORT_WIDTH * (double)(backwards ? k : k + 1) / n);
    }
}

static void put_kind_area(FILE *out, const memory_column *column, int n, int kind, const report_axis *y)
{
    double most = 0;
    for (int k = 0; k < n; k++) most = fmax(most, column[k].bytes[kind]);
    if (most <= 0) return;
    report_put(out, "<path class=\"%s\" d=\"M0 %d", kinds[kind].tone, REPORT_HEIGHT);
    put_stairs(out, column, n, kind + 1, 0, y);
    put_stairs(out, column, n, kind, 1, y);
    report_put(out, "z\"><title>%s: at most %s</title></path>", kinds[kind].meaning, report_bytes(most).text);
}

static void put_peak_table(FILE *out, const json_t *memory)
{
    static const char *const rows[][2] = {{"weights", "weights, in fp32"},
                                          {"gradients", "gradients of weights"},
                                          {"optimizer", "optimizer state"},
                                          {"histories", "amax histories"},
                                          {"activations", "activations"},
                                          {"activation_gradients", "gradients of activations"},
                                          {"weight_copies", "weights in other precisions"},
                                          {"weight_gradients", "gradients of one micro-step"},
                                          {"workspace", "workspace of kernels"}};
    report_put(out, "<details><summary>What the peak holds: %s</summary><table><tbody>\n",
               report_get_text(memory, "peak_at"));
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (report_get_number(memory, rows[k][0]) > 0)
            report_put(out, "<tr><th scope=\"row\">%s</th><td class=\"n\">%s</td></tr>\n", rows[k][1],
                       report_bytes(report_get_number(memory, rows[k][0])).text);
    report_put(out, "</tbody></table></details>\n");
}

static void put_memory_plot(FILE *out, const json_t *device, const memory_column *column, int n)
{
    const double limit = report_get_number(device, "limit_bytes"),
                 peak = report_get_number(device, "peak_bytes");
    const char *const name = report_get_text(device, "name");
    const report_axis x = {.max = (double)json_array_size(json_object_get(device, "memory_timeline")),
                           .unit = REPORT_COUNT,
                           .title = "task of the step"};
    report_axis y = {.unit = REPORT_BYTES, .title = "memory of a rank"};
    for (int k = 0; k < n; k++) report_axis_add(&y, live_bytes(&column[k]) + column[k].bytes[N_KIND - 1]);
    report_axis_add(&y, peak);
    const int shows_limit = limit > 0 && limit < 3 * y.max;
    if (shows_limit) report_axis_add(&y, limit);
    y.max = y.max > 0 ? 1.04 * y.max : 1;
    report_put(out, "<h3>%s: peak %s%s%s</h3>", name, report_bytes(peak).text, limit > 0 ? " of " : "",
               limit > 0 ? report_bytes(limit).text : "");
    report_plot_begin(out, &x, &y, name);
    for (int kind = 0; kind < N_KIND; kind++) put_kind_area(out, column, n, kind, &y);
    if (shows_limit)
        report_put(out, "<path class=\"line limit\" d=\"M0 %.1fH%d\"><title>limit: %s</title></path>",
                   report_y(&y, limit), REPORT_WIDTH, report_bytes(limit).text);
    report_plot_labels(out, &x, &y);
    if (shows_limit) report_plot_text(out, &x, &y, 0, limit, "limit", 0);
    report_plot_end(out, "Across: the tasks of a step in their order.");
    put_peak_table(out, json_object_get(device, "memory"));
}

static void put_memory_legend(FILE *out)
{
    report_put(out, "<p class=\"keys\">");
    for (int kind = 0; kind < N_KIND; kind++) report_legend(out, kinds[kind].tone, kinds[kind].meaning);
    report_put(out, "</p>");
}

static int draw_memory(FILE *out, const report_part *part)
{
    const json_t *replay, *device;
    int next = 0, n_drawn = 0;
    size_t c;
    while ((replay = report_next_result(part, "replay", &next)))
        json_array_foreach(json_object_get(replay, "devices"), c, device)
        {
            const json_t *const rows = json_object_get(device, "memory_timeline");
            int n = 0;
            if (json_array_size(rows) == 0) continue;
            memory_column *const column = read_columns(rows, &n);
            if (!column) return 0;
            if (!n_drawn++) put_memory_legend(out);
            put_memory_plot(out, device, column, n);
            free(column);
        }
    return 1;
}

const report_section report_memory = {"memory", "Memory over the step", draw_memory,
                                      "tandem replay --plan plan.json --memory-timeline --json"};
