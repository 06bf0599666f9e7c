/* plot.h: axes, lines and points. A plot is an SVG that is stretched to the width of the page; its text
 * is beside it as HTML, so that it can be selected and is readable on a phone. */
#pragma once

#include <stdio.h>

/* REPORT_COUNT: whole numbers. */
typedef enum report_unit { REPORT_PLAIN, REPORT_COUNT, REPORT_NS, REPORT_BYTES, REPORT_RATIO } report_unit;

typedef struct report_axis {
    double min, max; /* extended by report_axis_add */
    int is_log;      /* a value of 0 lies one decade below the smallest positive one */
    int has_zero;    /* set by report_axis_add */
    report_unit unit;
    const char *title; /* with the unit where the ticks have none */
} report_axis;

enum { REPORT_WIDTH = 1000, REPORT_HEIGHT = 400 };

/* An axis without values. */
report_axis report_axis_new(report_unit unit, int is_log, const char *title);
/* NaN and, on a logarithmic axis, numbers below 0 change nothing. */
void report_axis_add(report_axis *axis, double value);
/* Makes an axis of at least some length, with a margin on both sides; a linear one begins at 0 where that
 * costs little of it. */
void report_axis_round(report_axis *axis);
/* 0 at its begin, 1 at its end. */
double report_axis_share(const report_axis *axis, double value);

/* Writes the ticks as HTML below a plot, or beside it. */
void report_ticks_x(FILE *out, const report_axis *axis);

/* report_plot_begin … paths in the coordinates of report_x, report_y … report_plot_labels … report_plot_text
 * … report_plot_end. `name` is read aloud. */
void report_plot_begin(FILE *out, const report_axis *x, const report_axis *y, const char *name);
void report_plot_labels(FILE *out, const report_axis *x, const report_axis *y);
void report_plot_text(FILE *out, const report_axis *x, const report_axis *y, double at_x, double at_y,
                      const char *text, int is_above);
void report_plot_end(FILE *out, const char *caption);
double report_x(const report_axis *axis, double value);
double report_y(const report_axis *axis, double value);
