/* fit.c: `tandem-fit`: fits the constants of --predict to tables of measured times. */
#include "tools/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/table.h"
#include "tools/constant_fit.h"

static struct {
    int leave_one_out;
    const char *without; /* constants; "each" */
    const char *judge;   /* files, joined by commas */
} fit_own;
const cli_own_option fit_own_option[] = {
    [OPTION_LEAVE_ONE_OUT - OPTION_AFTER_LAST] =
        {.name = "leave-one-out",
         .help =
             "Also fit without each chip, then each generation, in turn, and print how far it is off then",
         .group = 3,
         .flag = &fit_own.leave_one_out},
    [OPTION_WITHOUT - OPTION_AFTER_LAST] =
        {.name = "without",
         .value = "NAME,...",
         .help =
             "Also fit without these constants together, or without each in turn, and print what gets worse",
         .group = 3,
         .text = &fit_own.without},
    [OPTION_JUDGE - OPTION_AFTER_LAST] =
        {.name = "judge",
         .value = "FILE,...",
         .help =
             "With --leave-one-out: tables of cards that are judged as a generation left out, never fitted",
         .group = 3,
         .text = &fit_own.judge},
    {.name = NULL},
};

/* --- As JSON -------------------------------------------------------------------------------------------- */

static json_t *fit_constants_json(const tandem_constant_fit *fit)
{
    json_t *rows = json_array();
    for (int c = 0; c < TANDEM_N_CONSTANT; c++) {
        const tandem_constant_row *const row = tandem_constant_get(c);
        const tandem_constant_fit_value *const fitted = &tandem_constant_fit_constants(fit)[c];
        json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:f,s:o,s:I}", "name", row->name, "unit",
                                              row->unit, "meaning", row->meaning, "value", fitted->value,
                                              "standard_error", cli_json_number(fitted->standard_error),
                                              "rows", (json_int_t)fitted->n_row));
    }
    return rows;
}

static const char *share_name(int type)
{
    return type == TANDEM_N_COMPUTE_DTYPE ? "bandwidth" : tandem_dtype_name((tandem_dtype)type);
}

static json_t *fit_shares_json(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_share *const share = tandem_constant_fit_shares(fit, &n);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:f,s:o,s:I}", "device", share[i].gpu, "of",
                                        share_name(share[i].type), "share", share[i].share.value,
                                        "standard_error", cli_json_number(share[i].share.standard_error),
                                        "rows", (json_int_t)share[i].share.n_row));
    return rows;
}

static json_t *fit_cell_json(const tandem_constant_fit_errors *cell)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "device", cell->gpu, "class",
                     tandem_work_class_name(cell->work_class), "type", tandem_dtype_name(cell->type), "pass",
                     tandem_pass_name(cell->pass), "rows", (json_int_t)cell->n_row, "mean", cell->mean,
                     "median", cell->median, "p90", cell->p90, "bias", cell->bias, "sum", cell->sum, "inside",
                     cell->inside);
}

static json_t *fit_errors_json(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_error_table(fit, &n);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) {
        if (cell[i].n_row == 0) continue;
        json_t *const row = fit_cell_json(&cell[i]);
        json_object_set_new(row, "datasheet", cli_json_number(cell[i].known[TANDEM_KNOWN_DATASHEET]));
        json_object_set_new(row, "three_rows", cli_json_number(cell[i].known[TANDEM_KNOWN_THREE]));
        json_object_set_new(row, "all_rows", cli_json_number(cell[i].known[TANDEM_KNOWN_ALL]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *fit_generations_json(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_generation_table(fit, &n);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) {
        if (cell[i].n_row == 0) continue;
        json_t *const row = fit_cell_json(&cell[i]);
        json_object_set_new(row, "generation", json_string(cell[i].generation));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *fit_growths_json(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_error_table(fit, &n);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++)
        if (cell[i].growth_ns > 0)
            json_array_append_new(rows, json_pack("{s:s,s:s,s:f}", "device", cell[i].gpu, "class",
                                                  tandem_work_class_name(cell[i].work_class), "growth_ns",
                                                  cell[i].growth_ns));
    return rows;
}

static json_t *fit_spreads_json(const tandem_constant_fit *fit)
{
    json_t *rows = json_array();
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        const tandem_spread *const spread = &tandem_constant_fit_spreads(fit)[g];
        json_array_append_new(rows, json_pack("{s:s,s:f,s:f,s:i,s:I,s:f,s:s}", "group",
                                              tandem_spread_group_name((tandem_spread_group)g), "shared",
                                              spread->shared, "own", spread->own, "cells", spread->n_cell,
                                              "left_out_rows", (json_int_t)spread->n_row, "left_out_error",
                                              spread->error, "cards", spread->cards ? spread->cards : ""));
    }
    return rows;
}

static json_t *fit_ratios_json(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_ratio *const cell = tandem_constant_fit_ratio_table(fit, &n);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++) {
        const tandem_ratio_spread *const spread = &tandem_constant_fit_ratios(fit)[cell[i].group].spread;
        json_array_append_new(rows, json_pack("{s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "device",
                                              cell[i].gpu, "ratio", tandem_ratio_group_name(cell[i].group),
                                              "shapes", (json_int_t)cell[i].n_shape, "median", cell[i].median,
                                              "mean", cell[i].mean, "bias", cell[i].bias, "shared",
                                              spread->shared, "own", spread->own, "inside", cell[i].inside,
                                              "inside_by_others", cli_json_number(cell[i].inside_by_others)));
    }
    return rows;
}

static json_t *fit_device_spreads_json(const tandem_constant_fit *fit)
{
    const tandem_device_spread *const of = tandem_constant_fit_device_spreads(fit);
    return json_pack("{s:{s:f,s:i},s:{s:f,s:i}}", "compute", "shared", of[TANDEM_PEAK_COMPUTE].shared,
                     "shares", of[TANDEM_PEAK_COMPUTE].n_share, "memory", "shared",
                     of[TANDEM_PEAK_MEMORY].shared, "shares", of[TANDEM_PEAK_MEMORY].n_share);
}

static int print_fit_json(const tandem_constant_fit *fit, json_t *drops, int64_t rows, int64_t skipped,
                          int64_t ns)
{
    json_t *result = cli_json_new("fit");
    json_object_set_new(result, "rows", json_integer((json_int_t)rows));
    json_object_set_new(result, "skipped", json_integer((json_int_t)skipped));
    json_object_set_new(result, "seconds", json_real(1e-9 * (double)ns));
    json_object_set_new(result, "constants", fit_constants_json(fit));
    json_object_set_new(result, "shares", fit_shares_json(fit));
    json_object_set_new(result, "host_growths", fit_growths_json(fit));
    if (fit_own.leave_one_out) {
        json_object_set_new(result, "left_out", fit_errors_json(fit));
        json_object_set_new(result, "generation_left_out", fit_generations_json(fit));
        json_object_set_new(result, "spreads", fit_spreads_json(fit));
        json_object_set_new(result, "device_spreads", fit_device_spreads_json(fit));
        json_object_set_new(result, "ratios", fit_ratios_json(fit));
    }
    if (fit_own.without) json_object_set(result, "dropped", drops);
    return cli_print_json(result);
}

static json_t *fit_change_json(const tandem_constant_fit *fit, const tandem_constant_fit_change *change)
{
    int n = 0;
    if (change->cell < 0) return json_null();
    const tandem_constant_fit_errors *const cell = &tandem_constant_fit_error_table(fit, &n)[change->cell];
    return json_pack("{s:s,s:s,s:s,s:s,s:b,s:f}", "device", cell->gpu, "class",
                     tandem_work_class_name(cell->work_class), "type", tandem_dtype_name(cell->type), "pass",
                     tandem_pass_name(cell->pass), "calibrated", change->known != TANDEM_KNOWN_DATASHEET,
                     "change", change->points);
}

static json_t *fit_drop_json(const tandem_constant_fit *fit, const char *names,
                             const tandem_constant_fit_drop *drop)
{
    return json_pack("{s:s,s:i,s:i,s:o,s:o}", "constants", names, "worse", drop->n_worse, "better",
                     drop->n_better, "worst", fit_change_json(fit, &drop->worst), "best",
                     fit_change_json(fit, &drop->best));
}

/* --- As text -------------------------------------------------------------------------------------------- */

static void add_value_cells(cli_table *table, const char *name, const tandem_constant_fit_value *value,
                            const char *unit, const char *meaning)
{
    if (isnan(value->standard_error))
        cli_table_row(table, "%s\t%.4g\t-\t%s\t%lld\t%s", name, value->value, unit, (long long)value->n_row,
                      meaning);
    else
        cli_table_row(table, "%s\t%.4g\t%.2g\t%s\t%lld\t%s", name, value->value, value->standard_error, unit,
                      (long long)value->n_row, meaning);
}

static int print_fit_constants(const tandem_constant_fit *fit)
{
    int n = 0;
    const int of_intervals = 2 * TANDEM_N_SPREAD_GROUP + TANDEM_N_PEAK + 2 * TANDEM_N_RATIO_GROUP + 2;
    cli_table table = {0};
    const tandem_constant_fit_share *const share = tandem_constant_fit_shares(fit, &n);
    cli_table_row(&table, "constant\t>value\t>standard error\tunit\t>rows\tmeaning");
    for (int c = 0; c < TANDEM_N_CONSTANT; c++) {
        const tandem_constant_row *const row = tandem_constant_get(c);
        add_value_cells(&table, row->name, &tandem_constant_fit_constants(fit)[c], row->unit, row->meaning);
    }
    for (int i = 0; i < n; i++) {
        char name[TANDEM_DEVICE_NAME + 16];
        (void)snprintf(name, sizeof name, "%s %s", share[i].gpu, share_name(share[i].type));
        add_value_cells(&table, name, &share[i].share, "1", "share of its peak that the card reaches");
    }
    const int code = cli_table_finish(&table);
    printf("%d numbers: %d constants, %d shares, and %d of intervals\n", TANDEM_N_CONSTANT + n + of_intervals,
           (int)TANDEM_N_CONSTANT, n, of_intervals);
    return code;
}

/* What was taken off the times of a table. */
static void print_fit_growths(const tandem_constant_fit *fit)
{
    int n = 0;
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_error_table(fit, &n);
    for (int i = 0; i < n; i++)
        if (cell[i].growth_ns > 0)
            printf("%s: its host took %.0f ns longer for each %s than for the one before; taken off\n",
                   cell[i].gpu, cell[i].growth_ns, tandem_work_class_name(cell[i].work_class));
}

static int print_fit_errors(const tandem_constant_fit *fit)
{
    int n = 0;
    cli_table table = {0};
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_error_table(fit, &n);
    printf("\nEach chip left out, then calibrated by one product per type and one copy; rows above 0.2 ms\n");
    cli_table_row(&table,
                  "device\tclass\ttype\tpass\t>rows\t>mean\t>median\t>p90\t>bias\t>sum\t>inside 80 %%");
    for (int i = 0; i < n; i++)
        if (cell[i].n_row > 0)
            cli_table_row(&table, "%s\t%s\t%s\t%s\t%lld\t%.1f%%\t%.1f%%\t%.1f%%\t%+.1f%%\t%+.1f%%\t%.0f%%",
                          cell[i].gpu, tandem_work_class_name(cell[i].work_class),
                          tandem_dtype_name(cell[i].type), tandem_pass_name(cell[i].pass),
                          (long long)cell[i].n_row, 100 * cell[i].mean, 100 * cell[i].median,
                          100 * cell[i].p90, 100 * cell[i].bias, 100 * cell[i].sum, 100 * cell[i].inside);
    return cli_table_finish(&table);
}

/* The cells of generations left out, beside those of their chips. */
static int print_fit_generations(const tandem_constant_fit *fit)
{
    int n = 0;
    cli_table table = {0};
    const tandem_constant_fit_errors *const chip = tandem_constant_fit_error_table(fit, &n),
                                            *const cell = tandem_constant_fit_generation_table(fit, &n);
    printf(
        "\nEach generation left out, calibrated in the same way; in brackets with only the chip left out\n");
    cli_table_row(&table, "generation\tdevice\tclass\ttype\tpass\t>mean\t>\t>sum\t>\t>inside 80 %%\t>");
    for (int i = 0; i < n; i++)
        if (cell[i].n_row > 0)
            cli_table_row(&table,
                          "%s\t%s\t%s\t%s\t%s\t%.1f%%\t(%.1f%%)\t%+.1f%%\t(%+.1f%%)\t%.0f%%\t(%.0f%%)",
                          cell[i].generation, cell[i].gpu, tandem_work_class_name(cell[i].work_class),
                          tandem_dtype_name(cell[i].type), tandem_pass_name(cell[i].pass), 100 * cell[i].mean,
                          100 * chip[i].mean, 100 * cell[i].sum, 100 * chip[i].sum, 100 * cell[i].inside,
                          100 * chip[i].inside);
    return cli_table_finish(&table);
}

/* Mean errors by what is known of a chip. */
static int print_fit_calibration(const tandem_constant_fit *fit)
{
    int n = 0;
    cli_table table = {0};
    const tandem_constant_fit_errors *const cell = tandem_constant_fit_error_table(fit, &n);
    printf("\nEach chip left out, then calibrated by its own rows: mean errors of its other rows\n");
    cli_table_row(&table, "device\tclass\ttype\tpass\t>datasheet alone\t>three rows\t>every other row");
    for (int i = 0; i < n; i++)
        if (cell[i].n_row > 0 && !isnan(cell[i].known[TANDEM_KNOWN_DATASHEET]))
            cli_table_row(&table, "%s\t%s\t%s\t%s\t%.1f%%\t%.1f%%\t%.1f%%", cell[i].gpu,
                          tandem_work_class_name(cell[i].work_class), tandem_dtype_name(cell[i].type),
                          tandem_pass_name(cell[i].pass), 100 * cell[i].known[TANDEM_KNOWN_DATASHEET],
                          100 * cell[i].known[TANDEM_KNOWN_THREE], 100 * cell[i].known[TANDEM_KNOWN_ALL]);
    return cli_table_finish(&table);
}

/* Of ratios of times on generations left out. "both": by the intervals of both times. */
static int print_fit_ratios(const tandem_constant_fit *fit)
{
    int n = 0;
    cli_table table = {0};
    const tandem_constant_fit_ratio *const cell = tandem_constant_fit_ratio_table(fit, &n);
    if (n == 0) return 0;
    printf("\nRatios of times of one size in two types, each generation left out; errors are logarithms\n");
    cli_table_row(&table, "device\tratio\t>shapes\t>median\t>mean\t>bias\t>both: half\t>inside 80 %%\t>half\t"
                          ">inside 80 %%\t>by other cards");
    for (int i = 0; i < n; i++) {
        const tandem_ratio_spread *const spread = &tandem_constant_fit_ratios(fit)[cell[i].group].spread;
        char by_others[16] = "-";
        if (!isnan(cell[i].inside_by_others))
            (void)snprintf(by_others, sizeof by_others, "%.0f%%", 100 * cell[i].inside_by_others);
        cli_table_row(&table, "%s\t%s\t%lld\t%.3f\t%.3f\t%+.3f\t%.3f\t%.0f%%\t%.3f\t%.0f%%\t%s", cell[i].gpu,
                      tandem_ratio_group_name(cell[i].group), (long long)cell[i].n_shape, cell[i].median,
                      cell[i].mean, cell[i].bias, 1.2816 * cell[i].spread_of_both,
                      100 * cell[i].inside_of_both, 1.2816 * hypot(spread->shared, spread->own),
                      100 * cell[i].inside, by_others);
    }
    return cli_table_finish(&table);
}

static int print_fit_text(const tandem_constant_fit *fit, int64_t rows, int64_t skipped, int64_t ns)
{
    char time[TANDEM_QUANTITY_TEXT];
    printf("%lld rows; %lld rows of other devices, precisions or operators left out; read and fitted in %s\n",
           (long long)rows, (long long)skipped, tandem_quantity_print_ns(time, sizeof time, ns));
    print_fit_growths(fit);
    int code = print_fit_constants(fit);
    if (code == 0 && fit_own.leave_one_out) code = print_fit_errors(fit);
    if (code == 0 && fit_own.leave_one_out) code = print_fit_calibration(fit);
    if (code == 0 && fit_own.leave_one_out) code = print_fit_generations(fit);
    if (code == 0 && fit_own.leave_one_out) code = print_fit_ratios(fit);
    return code;
}

/* --- Without constants ---------------------------------------------------------------------------------- */

/* What a change of the mean error is, and where. */
static void print_change(char *text, size_t size, const tandem_constant_fit *fit,
                         const tandem_constant_fit_change *change)
{
    int n = 0;
    text[0] = '\0';
    if (change->cell < 0) return;
    const tandem_constant_fit_errors *const cell = &tandem_constant_fit_error_table(fit, &n)[change->cell];
    (void)snprintf(text, size, "%+.1f %s %s %s %s%s", 100 * change->points, cell->gpu,
                   tandem_work_class_name(cell->work_class), tandem_dtype_name(cell->type),
                   tandem_pass_name(cell->pass),
                   change->known == TANDEM_KNOWN_DATASHEET ? ", datasheet" : "");
}

/* The same, as a document and as text. */
typedef struct fit_drops {
    json_t *rows;
    cli_table table;
} fit_drops;

static tandem_status add_drop(fit_drops *drops, tandem_constant_fit *fit, const char *names,
                              uint64_t constants, tandem_error *error)
{
    char worst[128], best[128];
    tandem_constant_fit_drop drop;
    const tandem_status status = tandem_constant_fit_drop_constants(&drop, fit, constants, error);
    if (status != TANDEM_OK) return status;
    print_change(worst, sizeof worst, fit, &drop.worst);
    print_change(best, sizeof best, fit, &drop.best);
    cli_table_row(&drops->table, "%s\t%d\t%s\t%d\t%s", names, drop.n_worse, worst, drop.n_better, best);
    json_array_append_new(drops->rows, fit_drop_json(fit, names, &drop));
    return TANDEM_OK;
}

/* The constants of a list of names, or 0 for "each". */
static tandem_status find_constants(uint64_t *constants, const char *names, tandem_error *error)
{
    *constants = 0;
    if (strcmp(names, "each") == 0) return TANDEM_OK;
    for (const char *at = names; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        int c = 0;
        while (c < TANDEM_N_CONSTANT && (strlen(tandem_constant_get(c)->name) != n ||
                                         strncasecmp(tandem_constant_get(c)->name, at, n) != 0))
            c++;
        if (c == TANDEM_N_CONSTANT)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "--without: unknown constant '%.*s'. `tandem-fit` prints the constants; "
                                    "\"each\" is each in turn",
                                    (int)n, at);
        *constants |= UINT64_C(1) << c;
        at += n;
    }
    return *constants ? TANDEM_OK : tandem_error_set(error, TANDEM_USAGE, "--without: names no constant");
}

/* Those, or each in turn for 0. */
static tandem_status drop_constants(fit_drops *drops, tandem_constant_fit *fit, const cli_options *options,
                                    uint64_t constants, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    const int64_t begin_ns = tandem_now_ns();
    cli_table_row(&drops->table, "without\t>worse\tworst, points\t>better\tbest, points");
    if (constants) return add_drop(drops, fit, fit_own.without, constants, error);
    for (int c = 0; c < TANDEM_N_CONSTANT && status == TANDEM_OK; c++) {
        const char *const name = tandem_constant_get(c)->name;
        cli_progress(options, c > 0 ? (tandem_now_ns() - begin_ns) / c * (TANDEM_N_CONSTANT - c) : -1,
                     "fit: without %s, constant %d of %d", name, c + 1, (int)TANDEM_N_CONSTANT);
        status = add_drop(drops, fit, name, UINT64_C(1) << c, error);
    }
    cli_progress_end();
    return status;
}

static int print_drops(fit_drops *drops)
{
    printf("\nWithout constants, each chip left out: cells whose mean error changes by over 0.1 points,\n"
           "calibrated by one product per type and one copy, and from the datasheet alone\n");
    return cli_table_finish(&drops->table);
}

/* --- The command ---------------------------------------------------------------------------------------- */

static tandem_status add_judged_files(tandem_constant_fit *fit, const cli_options *options,
                                      tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    char path[4096];
    for (const char *at = fit_own.judge; *at && status == TANDEM_OK; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        (void)snprintf(path, sizeof path, "%.*s", (int)n, at);
        status = tandem_constant_fit_judge_file(fit, path, options->force, error);
        at += n;
    }
    return status;
}

/* *ns: of reading and of the fit of all rows. */
static tandem_status fit_files(tandem_constant_fit *fit, fit_drops *drops, int64_t *ns,
                               const cli_options *options, tandem_error *error)
{
    uint64_t constants = 0;
    tandem_status status = fit_own.without ? find_constants(&constants, fit_own.without, error) : TANDEM_OK;
    const int64_t begin = tandem_now_ns();
    for (int i = 0; i < options->n_word && status == TANDEM_OK; i++)
        status = tandem_constant_fit_add_file(fit, options->word[i], options->force, error);
    if (status == TANDEM_OK && fit_own.judge) status = add_judged_files(fit, options, error);
    if (status == TANDEM_OK) status = tandem_constant_fit_run(fit, error);
    *ns = tandem_now_ns() - begin;
    if (status == TANDEM_OK && fit_own.leave_one_out) {
        cli_progress(options, -1, "fit: each chip and each generation left out");
        status = tandem_constant_fit_leave_one_out(fit, error);
        cli_progress_end();
    }
    if (status == TANDEM_OK && options->output)
        status = tandem_constant_fit_write(fit, options->output, error);
    if (status == TANDEM_OK && fit_own.without)
        status = drop_constants(drops, fit, options, constants, error);
    return status;
}

static int run_fit(const cli_options *options)
{
    tandem_error error = {0};
    tandem_constant_fit *fit = NULL;
    int64_t ns = 0;
    if (options->n_word == 0)
        return cli_fail_with(TANDEM_USAGE, "no table given. Use: tandem-fit FILE.csv...");
    fit_drops drops = {.rows = json_array()};
    tandem_status status = tandem_constant_fit_open(&fit, &error);
    if (status == TANDEM_OK) status = fit_files(fit, &drops, &ns, options, &error);
    int code = status == TANDEM_OK ? 0 : cli_fail(&error);
    if (code == 0) {
        int64_t skipped = 0;
        const int64_t rows = tandem_constant_fit_row_count(fit, &skipped);
        code = options->json ? print_fit_json(fit, drops.rows, rows, skipped, ns)
                             : print_fit_text(fit, rows, skipped, ns);
        if (code == 0 && fit_own.without && !options->json) code = print_drops(&drops);
    }
    cli_table_free(&drops.table);
    json_decref(drops.rows);
    tandem_constant_fit_close(fit);
    return code;
}

static const int options[] = {OPTION_LEAVE_ONE_OUT, OPTION_WITHOUT, OPTION_JUDGE, OPTION_OUTPUT,
                              OPTION_FORCE,         OPTION_QUIET,   OPTION_END};
const cli_command command_fit = {
    .name = "fit",
    .words = "FILE...",
    .summary = "Fit the constants of --predict to tables of measured times",
    .option = options,
    .description = "Examples:\n"
                   "  tandem-fit products.csv convolutions.csv streams.csv --leave-one-out\n"
                   "  tandem-fit *.csv --leave-one-out -o predictor/constants.def\n"
                   "  tandem-fit *.csv --without conv_strided,conv_narrow\n"
                   "Prints every constant with its unit, standard error and the rows that it rests on.",
    .run = run_fit,
};
