#include "report/plot.h"

#include <math.h>
#include <string.h>

#include "base/plain_text.h"
#include "report/html.h"

enum { MAX_TICKS = 16 };

typedef struct tick_list {
    double at[MAX_TICKS];
    int n;
} tick_list;

/* --- Axes ----------------------------------------------------------------------------------------------- */

report_axis report_axis_new(report_unit unit, int is_log, const char *title)
{
    return (report_axis){.min = INFINITY, .max = -INFINITY, .is_log = is_log, .unit = unit, .title = title};
}

void report_axis_add(report_axis *axis, double value)
{
    axis->has_zero |= value == 0;
    if (!isfinite(value) || (axis->is_log && value <= 0)) return;
    axis->min = fmin(axis->min, value);
    axis->max = fmax(axis->max, value);
}

void report_axis_round(report_axis *axis)
{
    if (axis->min > axis->max) {
        axis->min = axis->is_log ? 1 : 0;
        axis->max = axis->is_log ? 10 : 1;
    }
    if (axis->is_log) {
        axis->min = pow(10, floor(log10(axis->min) - 0.05) - axis->has_zero);
        axis->max = pow(10, ceil(log10(axis->max) + 0.05));
        return;
    }
    if (axis->min > 0 && axis->min < 0.4 * axis->max) axis->min = 0;
    const double length = axis->max - axis->min, least = fmax(fabs(axis->max), 1e-300) * 0.02;
    const double margin = length > least ? 0.04 * length : least;
    if (axis->min != 0) axis->min -= margin;
    axis->max += margin;
}

double report_axis_share(const report_axis *axis, double value)
{
    if (axis->is_log) {
        const double low = log10(axis->min), high = log10(axis->max);
        return value > axis->min ? (log10(value) - low) / (high - low) : 0;
    }
    return (value - axis->min) / (axis->max - axis->min);
}

double report_x(const report_axis *axis, double value)
{
    return REPORT_WIDTH * report_axis_share(axis, value);
}

double report_y(const report_axis *axis, double value)
{
    return REPORT_HEIGHT * (1 - report_axis_share(axis, value));
}

/* --- Ticks ---------------------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten; of bytes, times one of 1024 as well. */
static double tick_distance(const report_axis *axis, int about)
{
    const double rough = (axis->max - axis->min) / about;
    double unit = 1;
    if (axis->unit == REPORT_BYTES)
        while (axis->max >= 1024 * unit && unit < 0x1p40) unit *= 1024;
    const double power = pow(10, floor(log10(rough / unit)));
    const double factor = rough / unit / power;
    const double distance = unit * power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
    return axis->unit == REPORT_COUNT ? fmax(distance, 1) : distance;
}

static tick_list find_ticks(const report_axis *axis)
{
    tick_list ticks = {.n = 0};
    if (axis->is_log) {
        const double decades = log10(axis->max / axis->min);
        const double every = fmax(1, ceil(decades / 6));
        for (double e = ceil(log10(axis->min) + (axis->has_zero ? 0.5 : 0));
             e <= log10(axis->max) + 1e-9 && ticks.n < MAX_TICKS; e += every)
            ticks.at[ticks.n++] = pow(10, e);
        return ticks;
    }
    const double distance = tick_distance(axis, 5);
    for (double k = ceil(axis->min / distance - 1e-9);
         k * distance <= axis->max * (1 + 1e-12) && ticks.n < MAX_TICKS; k++)
        ticks.at[ticks.n++] = k * distance + 0.0; /* no negative 0 */
    return ticks;
}

/* "20 ms", "1.5 GiB", "0.3", "40%". */
static report_quantity print_tick(const report_axis *axis, double value)
{
    static const struct {
        const char *name;
        double size;
    } times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}},
      bytes[] = {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    report_quantity q;
    int k = 0;
    if (axis->unit == REPORT_NS) {
        while (k < 3 && fabs(axis->max) >= times[k + 1].size) k++;
        (void)tandem_plain_print(q.text, sizeof q.text, "%g %s", value / times[k].size, times[k].name);
    } else if (axis->unit == REPORT_BYTES) {
        while (k < 4 && fabs(axis->max) >= bytes[k + 1].size) k++;
        (void)tandem_plain_print(q.text, sizeof q.text, "%g %s", value / bytes[k].size, bytes[k].name);
    } else if (axis->unit == REPORT_RATIO) {
        (void)tandem_plain_print(q.text, sizeof q.text, "%g%%", 100 * value);
    } else {
        (void)tandem_plain_print(q.text, sizeof q.text, "%g", value);
    }
    return q;
}

void report_ticks_x(FILE *out, const report_axis *axis)
{
    const tick_list ticks = find_ticks(axis);
    report_put(out, "<div class=\"ticks\">");
    for (int k = 0; k < ticks.n; k++)
        report_put(out, "<span style=\"left:%.2f%%\">%s</span>", 100 * report_axis_share(axis, ticks.at[k]),
                   print_tick(axis, ticks.at[k]).text);
    report_put(out, "</div>");
}

static void put_ticks_y(FILE *out, const report_axis *axis)
{
    const tick_list ticks = find_ticks(axis);
    report_put(out, "<div class=\"ticks-y\">");
    for (int k = 0; k < ticks.n; k++)
        report_put(out, "<span style=\"bottom:%.2f%%\">%s</span>", 100 * report_axis_share(axis, ticks.at[k]),
                   print_tick(axis, ticks.at[k]).text);
    if (axis->is_log && axis->has_zero) report_put(out, "<span style=\"bottom:0\">0</span>");
    report_put(out, "</div>");
}

/* --- Plots ---------------------------------------------------------------------------------------------- */

static void put_grid(FILE *out, const report_axis *x, const report_axis *y)
{
    const tick_list across = find_ticks(x), up = find_ticks(y);
    report_put(out, "<path class=\"grid\" d=\"");
    for (int k = 0; k < across.n; k++)
        report_put(out, "M%.1f 0V%d", report_x(x, across.at[k]), REPORT_HEIGHT);
    for (int k = 0; k < up.n; k++) report_put(out, "M0 %.1fH%d", report_y(y, up.at[k]), REPORT_WIDTH);
    report_put(out, "M0 0V%dH%d\"/>", REPORT_HEIGHT, REPORT_WIDTH);
}

void report_plot_begin(FILE *out, const report_axis *x, const report_axis *y, const char *name)
{
    report_put(out,
               "<figure class=\"chart\"><p class=\"axis-y\">%s</p><div class=\"plot\"><svg viewBox=\"0 0 %d "
               "%d\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\">",
               y->title, REPORT_WIDTH, REPORT_HEIGHT, name);
    put_grid(out, x, y);
}

void report_plot_labels(FILE *out, const report_axis *x, const report_axis *y)
{
    report_put(out, "</svg>");
    put_ticks_y(out, y);
    report_ticks_x(out, x);
}

void report_plot_text(FILE *out, const report_axis *x, const report_axis *y, double at_x, double at_y,
                      const char *text, int is_above)
{
    const double right = report_axis_share(x, at_x);
    if (!isfinite(at_x) || !isfinite(at_y)) return;
    report_put(out, "<span class=\"label%s\" style=\"left:%.2f%%;bottom:%.2f%%\">%s</span>",
               is_above       ? " up"
               : right > 0.75 ? " left"
                              : "",
               100 * right, 100 * report_axis_share(y, at_y), text);
}

void report_plot_end(FILE *out, const char *caption)
{
    report_put(out, "</div><figcaption>%s</figcaption></figure>\n", caption);
}
