/* study_figure.c: the figure of a part of the study, as SVG: a row a cell, its interval, its value, and what
 * was predicted. */
#include "research/study_figure.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 480, WIDTH = 480, RIGHT = 30, TOP = 74, ROW = 20, BOTTOM = 40, MAX_TICKS = 7 };

void study_figure_begin(study_report *report, const char *title, const char *unit, double mark)
{
    study_figure *figure = &report->figure;
    figure->title = title;
    figure->unit = unit;
    figure->mark = mark;
}

void study_figure_add(study_report *report, double low, double value, double high, double predicted,
                      const char *format, ...)
{
    study_figure *figure = &report->figure;
    if (figure->n == figure->room) {
        const int room = 2 * figure->room + 32;
        study_figure_row *grown = realloc(figure->row, (size_t)room * sizeof *grown);
        if (!grown) {
            figure->is_lost = 1;
            return;
        }
        figure->row = grown;
        figure->room = room;
    }
    study_figure_row *row = &figure->row[figure->n++];
    *row = (study_figure_row){.low = low, .value = value, .high = high, .predicted = predicted};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(row->label, sizeof row->label, format, arguments);
    va_end(arguments);
}

/* --- The axis --------------------------------------------------------------------------------------------
 * */

typedef struct figure_axis {
    double low, high, step;
} figure_axis;

static void widen_axis(figure_axis *axis, double x)
{
    if (!isfinite(x)) return;
    axis->low = fmin(axis->low, x);
    axis->high = fmax(axis->high, x);
}

/* 1, 2 or 5 times a power of ten. */
static double round_step(double least)
{
    const double power = pow(10, floor(log10(least)));
    const double of[] = {1, 2, 5, 10};
    int k = 0;
    while (k < 3 && of[k] * power < least) k++;
    return of[k] * power;
}

static figure_axis axis_of(const study_figure *figure)
{
    figure_axis axis = {0, 0, 1};
    widen_axis(&axis, figure->mark);
    for (int i = 0; i < figure->n; i++) {
        const study_figure_row *row = &figure->row[i];
        widen_axis(&axis, row->low);
        widen_axis(&axis, row->value);
        widen_axis(&axis, row->high);
        widen_axis(&axis, row->predicted);
    }
    if (!(axis.high > axis.low)) axis.high = axis.low + 1;
    axis.step = round_step((axis.high - axis.low) / MAX_TICKS);
    axis.low = axis.step * floor(axis.low / axis.step);
    axis.high = axis.step * ceil(axis.high / axis.step);
    return axis;
}

/* What lies beyond the axis is drawn at its end. */
static double place_on_axis(const figure_axis *axis, double x)
{
    const double share = (x - axis->low) / (axis->high - axis->low);
    return LEFT + WIDTH * fmin(fmax(share, 0), 1);
}

/* --- Drawing ---------------------------------------------------------------------------------------------
 * */

static void print_escaped(FILE *svg, const char *text)
{
    for (; *text; text++)
        if (*text == '&')
            (void)fputs("&amp;", svg);
        else if (*text == '<')
            (void)fputs("&lt;", svg);
        else
            (void)fputc(*text, svg);
}

static void draw_axis(FILE *svg, const study_figure *figure, const figure_axis *axis)
{
    const int bottom = TOP + ROW * figure->n;
    for (int i = 0; axis->low + i * axis->step <= axis->high + 0.5 * axis->step; i++) {
        const double x = axis->low + i * axis->step, at = place_on_axis(axis, x);
        (void)fprintf(svg,
                      "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#ddd'/>\n"
                      "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
                      at, at, TOP - 6, bottom, at, bottom + 16, fabs(x) < axis->step / 2 ? 0 : x);
    }
    const double marks[] = {0, figure->mark};
    for (int k = 0; k < 2; k++)
        if (isfinite(marks[k]))
            (void)fprintf(svg, "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#888'%s/>\n",
                          place_on_axis(axis, marks[k]), place_on_axis(axis, marks[k]), TOP - 6, bottom,
                          k ? " stroke-dasharray='4 3'" : "");
    (void)fprintf(svg, "<text x='%d' y='%d' text-anchor='middle'>", LEFT + WIDTH / 2, bottom + 33);
    print_escaped(svg, figure->unit);
    (void)fputs("</text>\n", svg);
}

static void draw_row(FILE *svg, const study_figure *figure, const figure_axis *axis, int i)
{
    const study_figure_row *row = &figure->row[i];
    const double y = TOP + ROW * (i + 0.5);
    (void)fprintf(svg, "<text x='%d' y='%.1f' text-anchor='end'>", LEFT - 10, y + 4);
    print_escaped(svg, row->label);
    (void)fputs("</text>\n", svg);
    if (!isnan(row->low) && !isnan(row->high))
        (void)fprintf(svg, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#246' stroke-width='2'/>\n",
                      place_on_axis(axis, row->low), place_on_axis(axis, row->high), y, y);
    if (!isnan(row->value))
        (void)fprintf(svg, "<circle cx='%.1f' cy='%.1f' r='4' fill='#246'/>\n",
                      place_on_axis(axis, row->value), y);
    if (isnan(row->predicted)) return;
    const double x = place_on_axis(axis, row->predicted);
    (void)fprintf(svg, "<path d='M%.1f %.1fl5 5l-5 5l-5 -5z' fill='none' stroke='#c40' stroke-width='2'/>\n",
                  x, y - 5);
}

void study_figure_write(FILE *svg, const study_report *report)
{
    const study_figure *figure = &report->figure;
    const figure_axis axis = axis_of(figure);
    const int width = LEFT + WIDTH + RIGHT, height = TOP + ROW * figure->n + BOTTOM;
    int has_predicted = 0;
    for (int i = 0; i < figure->n; i++) has_predicted |= !isnan(figure->row[i].predicted);
    (void)fprintf(svg,
                  "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
                  "font-family='sans-serif' font-size='12' fill='#222'>\n"
                  "<rect width='%d' height='%d' fill='#fff'/>\n<text x='16' y='24' font-size='16'>",
                  width, height, width, height, width, height);
    print_escaped(svg, figure->title);
    (void)fprintf(
        svg,
        "</text>\n<text x='16' y='44'>dot and line: measured, with its interval%s; number formats but "
        "f32 are emulated</text>\n",
        has_predicted ? "; diamond: predicted" : "");
    draw_axis(svg, figure, &axis);
    for (int i = 0; i < figure->n; i++) draw_row(svg, figure, &axis, i);
    (void)fputs("</svg>\n", svg);
}
