/* study.h: what the parts of `tandem-study` share. Each part has a file study_NAME.c. */
#ifndef TANDEM_RESEARCH_STUDY_H
#define TANDEM_RESEARCH_STUDY_H

#include <stdio.h>

#include "cli/program.h"
#include "research/study_margins.h"
#include "tandem/advanced/estimate.h"

#define STUDY_DATA "fashion-mnist"

/* The options that no other program has (study_options.c). */
enum { OPTION_QUICK = OPTION_AFTER_LAST, OPTION_RECORDED };
typedef struct study_options {
    int quick;    /* small */
    int recorded; /* runs nothing */
} study_options;
extern study_options study_own;
extern const cli_own_option study_own_option[];
extern const cli_command command_study;

/* A figure: a row a cell. */
typedef struct study_figure_row {
    char label[160];
    double low, value, high, predicted; /* infinite: at the end of the axis; NaN: not drawn */
} study_figure_row;
typedef struct study_figure {
    const char *title, *unit; /* borrowed */
    double mark;              /* a line besides that at 0; NaN: none */
    study_figure_row *row;    /* [n] */
    int n, room, is_lost;     /* is_lost: there was no memory for a row */
} study_figure;

/* The tables of a part, as Markdown and as JSON. The same options give the same bytes. */
typedef struct study_report {
    const cli_options *options;
    FILE *text;           /* Markdown */
    json_t *json;         /* "cells": one object a row; and what the part adds */
    json_t *cells;        /* borrowed from json */
    int n_cell, n_failed; /* cells that have a bar, and those that miss it */
    study_figure figure;
    study_margins margins; /* with `late`, as soon as the records are open */
} study_report;

/* Each part fills in a report. TANDEM_OK also where the bar is missed: report->n_failed says so. */
typedef tandem_status study_part(study_report *report, tandem_error *error);
study_part study_rounding, study_sampled, study_batch, study_exchange_rate, study_crossed, study_rank,
    study_add, study_null, study_price, study_plans, study_drift;

/* Adds a cell that has a bar; takes over the object. */
void study_add_cell(study_report *report, json_t *cell, int is_met);

/* The figure of the part (study_figure.c): first its title and unit, then its rows. */
void study_figure_begin(study_report *report, const char *title, const char *unit, double mark);
void study_figure_add(study_report *report, double low, double value, double high, double predicted,
                      const char *format, ...) __attribute__((format(printf, 6, 7)));

/* The middle 95 % of n draws of a bootstrap, which it sorts; NaN counts as above all. NaN for n = 0. */
typedef struct study_interval {
    double low, high;
} study_interval;
study_interval study_draws_interval(double *draw, int n);

/* One training point of an estimate, so that each training point is a cell of its own; borrows. */
tandem_estimate study_estimate_at_point(const tandem_estimate *estimate, int a);

/* --- Tensors of a training in fp32 (study_tensors.c) -----------------------------------------------------
 * */

typedef enum study_tensor_kind {
    STUDY_RELU_OUTPUT,
    STUDY_SOFTMAX,
    STUDY_WEIGHT,
    STUDY_GRADIENT, /* of an adjustable operator's output */
    STUDY_N_TENSOR_KIND
} study_tensor_kind;
const char *study_tensor_kind_name(study_tensor_kind kind);

/* The first elements of a tensor, with the largest magnitude of all of it. */
enum { STUDY_MAX_ELEMENTS = 8192, STUDY_MAX_TENSORS = 64 };
typedef struct study_tensor {
    int64_t point; /* steps before */
    int64_t n;
    float *x; /* [n] */
    study_tensor_kind kind;
    float amax;
    char name[64]; /* of its operator */
} study_tensor;

/* study_tensors_collect: trains a model in fp32 on fashion-mnist and copies, in the steps of n_point
 * ascending training points, the first and the last tensor of each kind. The caller frees them with
 * study_tensors_free, after errors too. Cost: the steps up to the last training point. */
tandem_status study_tensors_collect(study_tensor tensor[STUDY_MAX_TENSORS], int *n_tensor,
                                    const cli_options *options, const char *model, int64_t batch,
                                    const int64_t *point, int n_point, tandem_error *error);
void study_tensors_free(study_tensor *tensor, int n_tensor);

#endif
