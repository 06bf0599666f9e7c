/* predict_list.c: `tandem predict --list`: a table of operators, held against its times where it has some. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/quantity.h"
#include "cli/command/predict.h"
#include "cli/table.h"

/* Rows of one device, operator, precision and pass; or of one group. */
typedef struct list_cell {
    char device[TANDEM_TIMING_TEXT], kind[TANDEM_TIMING_TEXT], precision[TANDEM_TIMING_TEXT],
        group[TANDEM_TIMING_TEXT];
    tandem_pass pass;
    double *error; /* [n], relative; first those with a sign */
    int n, room;
    double predicted_ns, measured_ns, spread_ns; /* sums; repeats count */
    int64_t n_inside, n_row, n_timed;
} list_cell;

typedef struct prediction_list {
    predict_devices *devices;
    const cli_options *options;
    list_cell *cell, *group;
    int n_cell, cell_room, n_group, group_room;
    tandem_file file; /* with --output */
} prediction_list;

/* --- Reading -------------------------------------------------------------------------------------------- */

static list_cell *find_list_cell(list_cell **all, int *n, int *room, const list_cell *wanted)
{
    for (int i = *n - 1; i >= 0; i--) {
        list_cell *const cell = &(*all)[i];
        if (cell->pass == wanted->pass && strcmp(cell->device, wanted->device) == 0 &&
            strcmp(cell->kind, wanted->kind) == 0 && strcmp(cell->precision, wanted->precision) == 0 &&
            strcmp(cell->group, wanted->group) == 0)
            return cell;
    }
    list_cell *const more = tandem_grow(*all, room, *n, sizeof *more, 1 << 20);
    if (!more) return NULL;
    *all = more;
    more[*n] = *wanted;
    return &more[(*n)++];
}

static tandem_status count_in_cell(list_cell *cell, const tandem_timing *timing, double ns,
                                   predict_interval interval, tandem_error *error)
{
    cell->n_row++;
    cell->predicted_ns += timing->repeats * ns;
    cell->spread_ns += timing->repeats * (interval.high_ns - ns);
    if (!(timing->time_ns > 0)) return TANDEM_OK;
    double *const more = tandem_grow(cell->error, &cell->room, cell->n, sizeof *more, 1 << 28);
    if (!more) return tandem_no_memory(error, "for a list of operators");
    cell->error = more;
    cell->error[cell->n++] = ns / timing->time_ns - 1;
    cell->measured_ns += timing->repeats * timing->time_ns;
    cell->n_inside += timing->time_ns >= interval.low_ns && timing->time_ns <= interval.high_ns;
    cell->n_timed++;
    return TANDEM_OK;
}

static tandem_status count_row(prediction_list *list, const tandem_timing *timing, const char *device,
                               double ns, predict_interval interval, tandem_error *error)
{
    list_cell wanted = {.pass = timing->pass};
    (void)snprintf(wanted.device, sizeof wanted.device, "%s", device);
    memcpy(wanted.kind, timing->kind, sizeof wanted.kind);
    memcpy(wanted.precision, timing->precision, sizeof wanted.precision);
    list_cell *const cell = find_list_cell(&list->cell, &list->n_cell, &list->cell_room, &wanted);
    if (!cell) return tandem_no_memory(error, "for a list of operators");
    const tandem_status status = count_in_cell(cell, timing, ns, interval, error);
    if (status != TANDEM_OK || !timing->group[0]) return status;
    wanted = (list_cell){.pass = TANDEM_PASS_FORWARD};
    (void)snprintf(wanted.device, sizeof wanted.device, "%s", device);
    memcpy(wanted.group, timing->group, sizeof wanted.group);
    list_cell *const group = find_list_cell(&list->group, &list->n_group, &list->group_room, &wanted);
    return group ? count_in_cell(group, timing, ns, interval, error)
                 : tandem_no_memory(error, "for a list of operators");
}

/* Columns of a row's time over that in another precision, empty where there is none, and what both intervals
 * are made of. */
static void write_ratio(const prediction_list *list, const tandem_calibration *calibration,
                        const tandem_timing *timing, const tandem_work *work, const predict_interval *own)
{
    tandem_timing over = *timing;
    tandem_work wide;
    tandem_time_ratio ratio;
    if (!list->options->over) return;
    (void)snprintf(over.precision, sizeof over.precision, "%s", list->options->over);
    if (!work->is_product || tandem_timing_work(&wide, &over, NULL) != TANDEM_OK || wide.type == work->type ||
        !tandem_calibrated_ratio(&ratio, calibration, work, &wide))
        fputs(",,,,,,", list->file.stream);
    else
        fprintf(list->file.stream, ",%.4g,%.4g,%.4g,%d,%.4g,%.4g", ratio.ratio, ratio.low, ratio.high,
                ratio.spread.n_shape, ratio.spread.shared, ratio.spread.own);
    fprintf(list->file.stream, ",%.4g,%.4g", own->shared, own->own);
}

static tandem_status visit_list_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    prediction_list *const list = context;
    const char *const device = timing->device[0] ? timing->device : list->options->device;
    tandem_calibration *calibration = NULL;
    tandem_kernel_time time;
    tandem_work work;
    if (!device) return tandem_error_set(error, TANDEM_USAGE, "it names no device; --device does");
    tandem_status status = predict_find(&calibration, list->devices, device, error);
    if (status == TANDEM_OK) status = tandem_timing_work(&work, timing, error);
    if (status == TANDEM_OK) status = predict_time(&time, calibration, &work, timing->precision, error);
    if (status != TANDEM_OK) return status;
    /* a time between events holds what they add; so must what is compared with it */
    const int timed = timing->time_ns > 0 ? tandem_timing_timed(timing) : 0;
    const double timed_ns = tandem_calibrated_timed_ns(calibration, &work, timed);
    const predict_interval interval = predict_interval_of(calibration, &work, timed, timed_ns);
    if (list->file.stream) {
        const predict_interval own_interval = predict_interval_of(calibration, &work, 0, time.ns);
        fprintf(list->file.stream, "%lld,%s,%s,%s,%s,%.4g,%.4g,%.4g,%s,%.4g", (long long)timing->line, device,
                timing->kind, timing->precision, tandem_pass_name(timing->pass), 1e-3 * time.ns,
                1e-3 * own_interval.low_ns, 1e-3 * own_interval.high_ns, tandem_time_bound_name(time.bound),
                1e-3 * timed_ns);
        write_ratio(list, calibration, timing, &work, &own_interval);
        fputc('\n', list->file.stream);
    }
    return count_row(list, timing, device, timed_ns, interval, error);
}

/* --- Printing ------------------------------------------------------------------------------------------- */

typedef struct cell_summary {
    double mean, median, p90, bias, inside;
} cell_summary;

static cell_summary summarise(list_cell *cell)
{
    cell_summary s = {NAN, NAN, NAN, NAN, NAN};
    if (cell->n == 0) return s;
    s.mean = s.bias = 0;
    for (int i = 0; i < cell->n; i++) {
        s.bias += cell->error[i] / cell->n;
        cell->error[i] = fabs(cell->error[i]);
        s.mean += cell->error[i] / cell->n;
    }
    s.median = tandem_median(cell->error, (size_t)cell->n); /* sorts */
    s.p90 = cell->error[(int)(0.9 * (cell->n - 1) + 0.5)];
    s.inside = (double)cell->n_inside / cell->n;
    return s;
}

static json_t *cell_json(list_cell *cell, int is_group)
{
    const cell_summary s = summarise(cell);
    json_t *const object = json_object();
    json_object_set_new(object, "device", json_string(cell->device));
    if (is_group)
        json_object_set_new(object, "group", json_string(cell->group));
    else {
        json_object_set_new(object, "operator", json_string(cell->kind));
        json_object_set_new(object, "precision", json_string(cell->precision));
        json_object_set_new(object, "pass", json_string(tandem_pass_name(cell->pass)));
    }
    json_object_set_new(object, "rows", json_integer((json_int_t)cell->n_row));
    json_object_set_new(object, "timed", json_integer((json_int_t)cell->n_timed));
    json_object_set_new(object, "predicted_ns", json_real(cell->predicted_ns));
    json_object_set_new(object, "measured_ns", json_real(cell->measured_ns));
    json_object_set_new(object, "mean", cli_json_number(s.mean));
    json_object_set_new(object, "median", cli_json_number(s.median));
    json_object_set_new(object, "p90", cli_json_number(s.p90));
    json_object_set_new(object, "bias", cli_json_number(s.bias));
    json_object_set_new(object, "inside", cli_json_number(s.inside));
    return object;
}

static int print_list_json(prediction_list *list)
{
    json_t *result = cli_json_new("predict"), *cells = json_array(), *groups = json_array();
    for (int i = 0; i < list->n_cell; i++) json_array_append_new(cells, cell_json(&list->cell[i], 0));
    for (int i = 0; i < list->n_group; i++) json_array_append_new(groups, cell_json(&list->group[i], 1));
    json_object_set_new(result, "cells", cells);
    json_object_set_new(result, "groups", groups);
    return cli_print_json(result);
}

static const char *print_sum(char text[TANDEM_QUANTITY_TEXT], double ns)
{
    return tandem_quantity_print_ns(text, TANDEM_QUANTITY_TEXT, llround(fmin(ns, 9e18)));
}

static int print_list_cells(prediction_list *list)
{
    cli_table table = {0};
    char predicted[TANDEM_QUANTITY_TEXT];
    cli_table_row(&table,
                  "device\toperator\tprecision\tpass\t>rows\t>predicted\t>timed\t>mean\t>median\t>p90\t"
                  ">bias\t>inside 80%%");
    for (int i = 0; i < list->n_cell; i++) {
        list_cell *const cell = &list->cell[i];
        const cell_summary s = summarise(cell);
        char errors[160] = "\t\t\t\t";
        if (cell->n > 0)
            (void)snprintf(errors, sizeof errors, "%.1f%%\t%.1f%%\t%.1f%%\t%+.1f%%\t%.0f%%", 100 * s.mean,
                           100 * s.median, 100 * s.p90, 100 * s.bias, 100 * s.inside);
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%lld\t%s\t%lld\t%s", cell->device, cell->kind, cell->precision,
                      tandem_pass_name(cell->pass), (long long)cell->n_row,
                      print_sum(predicted, cell->predicted_ns), (long long)cell->n_timed, errors);
    }
    return cli_table_finish(&table);
}

static int print_list_groups(prediction_list *list)
{
    cli_table table = {0};
    char predicted[TANDEM_QUANTITY_TEXT], measured[TANDEM_QUANTITY_TEXT];
    if (list->n_group == 0) return 0;
    putchar('\n');
    cli_table_row(&table, "device\tgroup\t>rows\t>predicted\t>measured\t>error");
    for (int i = 0; i < list->n_group; i++) {
        const list_cell *const cell = &list->group[i];
        char error[32] = "";
        if (cell->n_timed == cell->n_row)
            (void)snprintf(error, sizeof error, "%+.1f%%",
                           100 * (cell->predicted_ns / cell->measured_ns - 1));
        cli_table_row(&table, "%s\t%s\t%lld\t%s\t%s\t%s", cell->device, cell->group, (long long)cell->n_row,
                      print_sum(predicted, cell->predicted_ns),
                      cell->n_timed ? print_sum(measured, cell->measured_ns) : "", error);
    }
    return cli_table_finish(&table);
}

static void free_list_cells(list_cell *cell, int n)
{
    for (int i = 0; i < n; i++) free(cell[i].error);
    free(cell);
}

int predict_list(predict_devices *devices, const cli_options *options)
{
    prediction_list list = {.devices = devices, .options = options};
    tandem_error error = {0};
    tandem_status status =
        options->output ? tandem_file_open(&list.file, options->output, &error) : TANDEM_OK;
    if (status == TANDEM_OK && list.file.stream)
        fprintf(list.file.stream,
                "line,device,operator,precision,pass,predicted_us,low_us,high_us,bound,as_timed_us%s\n",
                options->over ? ",ratio,ratio_low,ratio_high,ratio_shapes,ratio_shared,ratio_own,shared,own"
                              : "");
    if (status == TANDEM_OK)
        status = tandem_timings_read_file(options->list, 0, visit_list_row, &list, &error);
    if (status == TANDEM_OK && list.file.stream) status = tandem_file_finish(&list.file, &error);
    int code = 0;
    if (status != TANDEM_OK) {
        tandem_file_discard(&list.file);
        code = cli_fail(&error);
    } else if (options->json)
        code = print_list_json(&list);
    else
        code = print_list_cells(&list);
    if (code == 0 && !options->json) code = print_list_groups(&list);
    free_list_cells(list.cell, list.n_cell);
    free_list_cells(list.group, list.n_group);
    return code;
}
