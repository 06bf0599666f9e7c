/* fit_tables.c: the rows of a fit, and the table of constants it writes (constant_fit.h). */
#include <gsl/gsl_fit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/plain_text.h"
#include "base/sort.h"
#include "tools/fit_data.h"

/* --- Rows ----------------------------------------------------------------------------------------------- */

tandem_status tandem_constant_fit_open(tandem_constant_fit **fit, tandem_error *error)
{
    tandem_constant_fit *const made = calloc(1, sizeof *made);
    if (!made) return tandem_no_memory(error, "for a fit");
    for (int d = 0; d < FIT_MAX_DEVICES; d++)
        for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) made->device_off[d][t] = NAN;
    *fit = made;
    return TANDEM_OK;
}

void tandem_constant_fit_close(tandem_constant_fit *fit)
{
    if (!fit) return;
    free(fit->row);
    free(fit->cell);
    free(fit->share);
    free(fit->cell_rows);
    free(fit->generation_cell);
    free(fit->ratio);
    fit_close_chips(fit->chips);
    free(fit);
}

int64_t tandem_constant_fit_row_count(const tandem_constant_fit *fit, int64_t *n_skipped)
{
    if (n_skipped) *n_skipped = fit->n_skipped;
    return (int64_t)fit->n_row;
}

/* The cell of a row; −1 without memory. Rows come sorted, so that the last cells are asked first. */
static int find_fit_cell(tandem_constant_fit *fit, const fit_row *row)
{
    const char *const gpu = tandem_device_get(row->gpu)->name;
    for (int c = fit->n_cell - 1; c >= 0; c--) {
        const tandem_constant_fit_errors *const one = &fit->cell[c];
        if (one->work_class == row->work.work_class && one->type == row->work.type &&
            one->pass == row->work.pass && strcmp(one->gpu, gpu) == 0)
            return c;
    }
    tandem_constant_fit_errors *const more =
        tandem_grow(fit->cell, &fit->cell_room, fit->n_cell, sizeof *more, 1 << 20);
    if (!more) return -1;
    fit->cell = more;
    tandem_constant_fit_errors *const made = &more[fit->n_cell];
    *made = (tandem_constant_fit_errors){
        .work_class = row->work.work_class, .type = row->work.type, .pass = row->work.pass};
    (void)snprintf(made->gpu, sizeof made->gpu, "%s", gpu);
    return fit->n_cell++;
}

/* TANDEM_MALFORMED: no device can reach its time. Any other failure: it is left out. */
static tandem_status check_fit_row(const tandem_constant_fit *fit, const tandem_timing *timing,
                                   tandem_device *device, tandem_work *work, tandem_error *error)
{
    if (!(timing->time_ns > 0)) return tandem_error_set(error, TANDEM_MISSING, "it has no time");
    tandem_status status = tandem_timing_device(device, timing->device, error);
    if (status == TANDEM_OK && tandem_timing_work(work, timing, error) != TANDEM_OK) status = TANDEM_MISSING;
    return status == TANDEM_OK ? tandem_timing_check(timing, work, device, fit->force, error) : status;
}

static tandem_status add_fit_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_constant_fit *const fit = context;
    tandem_device device;
    fit_row row = {.timed_ns = timing->time_ns, .ns = timing->time_ns, .left_out = NAN};
    tandem_error why = {0};
    const tandem_status status = check_fit_row(fit, timing, &device, &row.work, &why);
    if (status == TANDEM_MALFORMED) return tandem_error_set(error, status, "%s", why.text);
    if (status != TANDEM_OK) {
        if (fit->n_skipped++ == 0)
            (void)snprintf(fit->skipped_why, sizeof fit->skipped_why, "line %lld: %.400s",
                           (long long)timing->line, why.text);
        return TANDEM_OK;
    }
    if (fit->n_row == fit->room) {
        const size_t room = fit->room ? 2 * fit->room : 4096;
        fit_row *const more = realloc(fit->row, room * sizeof *more);
        if (!more) return tandem_no_memory(error, "for %zu measured times", room);
        fit->row = more;
        fit->room = room;
    }
    row.gpu = fit_find_device(device.name);
    row.timed = (unsigned char)tandem_timing_timed(timing);
    row.manner =
        (uint32_t)tandem_hash_text(tandem_hash_text(TANDEM_HASH_START, timing->source), timing->method);
    if (fit->is_judging) fit->judged |= UINT64_C(1) << row.gpu;
    if (fit->is_judging && tandem_is_other_kernel(&device.gpu_spec, &row.work, row.timed)) return TANDEM_OK;
    row.way = tandem_convolution_way(&row.work, timing->algorithm);
    row.cell = find_fit_cell(fit, &row);
    if (row.cell < 0) return tandem_no_memory(error, "for a fit");
    fit->row[fit->n_row++] = row;
    return TANDEM_OK;
}

tandem_status tandem_constant_fit_add_file(tandem_constant_fit *fit, const char *path, int force,
                                           tandem_error *error)
{
    fit->force = force;
    return tandem_timings_read_file(path, 1, add_fit_row, fit, error);
}

tandem_status tandem_constant_fit_judge_file(tandem_constant_fit *fit, const char *path, int force,
                                             tandem_error *error)
{
    fit->is_judging = 1;
    const tandem_status status = tandem_constant_fit_add_file(fit, path, force, error);
    fit->is_judging = 0;
    return status;
}

static int is_between_events(const fit_row *row, int cell)
{
    return row->cell == cell && row->timed & TANDEM_TIMED_BETWEEN_EVENTS;
}

/* Below, a host's events, or a launch, are most of the time. */
static int is_long_enough(const fit_row *row)
{
    const double min_events_ns = 1e5, min_ns = 3e4;
    return row->ns >= (row->timed & TANDEM_TIMED_BETWEEN_EVENTS ? min_events_ns : min_ns);
}

/* The tables have convolutions of one-byte types only of cards whose library had no fast kernel for them. */
static int is_odd_convolution(const fit_row *row)
{
    return row->work.work_class == TANDEM_WORK_CONVOLUTION && row->work.element_bytes < 2;
}

/* --- The host ------------------------------------------------------------------------------------------- */

enum { FLOOR_PARTS = 10, FLOOR_SHARE = 50 /* 2 % */, MIN_FLOOR_ROWS = 1000 };

/* ns by which the shortest rows of a table grow from one row to the next: the slope of a line through the
 * floors of FLOOR_PARTS equal parts, each the mean of its shortest 2 %. ns: [n] in the order of timing. */
static double find_growth(const double *ns, size_t n, double *scratch)
{
    double x[FLOOR_PARTS], y[FLOOR_PARTS] = {0}, intercept = 0, slope = 0, c00, c01, c11, squares;
    for (size_t part = 0; part < FLOOR_PARTS; part++) {
        const size_t begin = n * part / FLOOR_PARTS, rows = n * (part + 1) / FLOOR_PARTS - begin,
                     lowest = rows / FLOOR_SHARE;
        memcpy(scratch, ns + begin, rows * sizeof *scratch);
        (void)tandem_median(scratch, rows); /* sorts */
        for (size_t k = 0; k < lowest; k++) y[part] += scratch[k] / (double)lowest;
        x[part] = (double)begin + 0.5 * (double)rows;
    }
    (void)gsl_fit_linear(x, 1, y, 1, FLOOR_PARTS, &intercept, &slope, &c00, &c01, &c11, &squares);
    return fmax(0, slope);
}

/* NeuSight's host took longer for each convolution of a new shape than for the one before, by 0.05 to 0.16 us
 * on four cards, for each convolution: the last of 5,000 hold 0.3 to 0.8 ms of it. It is taken off. Only
 * convolutions: products and streams are in the order of their sizes, so that a growth would be theirs. */
static tandem_status take_off_growth(tandem_constant_fit *fit, tandem_error *error)
{
    double *const ns = malloc(2 * (fit->n_row + 1) * sizeof *ns);
    if (!ns) return tandem_no_memory(error, "for a fit");
    for (int c = 0; c < fit->n_cell; c++) {
        size_t n = 0;
        if (fit->cell[c].work_class != TANDEM_WORK_CONVOLUTION) continue;
        for (size_t i = 0; i < fit->n_row; i++)
            if (is_between_events(&fit->row[i], c)) ns[n++] = fit->row[i].timed_ns;
        if (n < MIN_FLOOR_ROWS) continue;
        fit->cell[c].growth_ns = find_growth(ns, n, ns + n);
        n = 0;
        for (size_t i = 0; i < fit->n_row; i++)
            if (is_between_events(&fit->row[i], c))
                fit->row[i].ns = fit->row[i].timed_ns - fit->cell[c].growth_ns * (double)n++;
    }
    free(ns);
    return TANDEM_OK;
}

/* Evenly spaced rows of each cell that say something of the card. */
static tandem_status choose_fitted_rows(tandem_constant_fit *fit, tandem_error *error)
{
    enum { MAX_PER_CELL = 400 };
    int64_t *const seen = calloc(2 * (size_t)fit->n_cell + 1, sizeof *seen);
    if (!seen) return tandem_no_memory(error, "for a fit");
    int64_t *const all = seen + fit->n_cell;
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < fit->n_row; i++) {
            fit_row *const row = &fit->row[i];
            row->is_fitted = 0;
            if (!is_long_enough(row) || is_odd_convolution(row) || fit->judged >> row->gpu & 1) continue;
            if (round == 0) {
                all[row->cell]++;
                continue;
            }
            const int64_t others = all[row->cell] > 0 ? all[row->cell] - 1 : 0,
                          step = 1 + others / MAX_PER_CELL;
            row->is_fitted = seen[row->cell]++ % step == 0;
        }
    free(seen);
    return TANDEM_OK;
}

/* --- The fit of all rows -------------------------------------------------------------------------------- */

static tandem_status list_shares(tandem_constant_fit *fit, tandem_error *error)
{
    const size_t room = FIT_MAX_DEVICES * (TANDEM_N_COMPUTE_DTYPE + 1);
    if (!fit->share) fit->share = malloc(room * sizeof *fit->share);
    if (!fit->share) return tandem_no_memory(error, "for a fit");
    fit->n_share = 0;
    for (int d = 0; d < tandem_device_count(); d++)
        for (int t = 0; t <= TANDEM_N_COMPUTE_DTYPE; t++) {
            if (fit->state.share[d][t].n_row == 0) continue;
            tandem_constant_fit_share *const one = &fit->share[fit->n_share++];
            *one = (tandem_constant_fit_share){.type = t, .share = fit->state.share[d][t]};
            (void)snprintf(one->gpu, sizeof one->gpu, "%s", tandem_device_get(d)->name);
        }
    return TANDEM_OK;
}

static tandem_status count_cell_rows(tandem_constant_fit *fit, tandem_error *error)
{
    free(fit->cell_rows);
    fit->cell_rows = calloc((size_t)fit->n_cell + 1, sizeof *fit->cell_rows);
    if (!fit->cell_rows) return tandem_no_memory(error, "for a fit");
    for (size_t i = 0; i < fit->n_row; i++) fit->cell_rows[fit->row[i].cell]++;
    return TANDEM_OK;
}

tandem_status tandem_constant_fit_run(tandem_constant_fit *fit, tandem_error *error)
{
    if (fit->n_row == 0)
        return tandem_error_set(error, TANDEM_USAGE,
                                fit->n_skipped == 0 ? "no row to fit: the tables have none"
                                                    : "no row to fit: %lld are left out, the first of %s",
                                (long long)fit->n_skipped, fit->skipped_why);
    tandem_status status = count_cell_rows(fit, error);
    if (status == TANDEM_OK) status = take_off_growth(fit, error);
    if (status == TANDEM_OK) status = choose_fitted_rows(fit, error);
    if (status == TANDEM_OK) status = fit_all_stages(fit, &fit->state, &(fit_without){0}, error);
    return status == TANDEM_OK ? list_shares(fit, error) : status;
}

/* --- Results -------------------------------------------------------------------------------------------- */

const tandem_constant_fit_value *tandem_constant_fit_constants(const tandem_constant_fit *fit)
{
    return fit->state.constant;
}

const tandem_constant_fit_share *tandem_constant_fit_shares(const tandem_constant_fit *fit, int *n)
{
    *n = fit->n_share;
    return fit->share;
}

const tandem_constant_fit_errors *tandem_constant_fit_error_table(const tandem_constant_fit *fit, int *n)
{
    *n = fit->n_cell;
    return fit->cell;
}

const tandem_constant_fit_errors *tandem_constant_fit_generation_table(const tandem_constant_fit *fit, int *n)
{
    *n = fit->generation_cell ? fit->n_cell : 0;
    return fit->generation_cell;
}

const tandem_spread *tandem_constant_fit_spreads(const tandem_constant_fit *fit) { return fit->spread; }

const tandem_device_spread *tandem_constant_fit_device_spreads(const tandem_constant_fit *fit)
{
    return fit->device_spread;
}

static const char *const group_keys[TANDEM_N_SPREAD_GROUP] = {
#define SPREAD_GROUP(key, peak, name) #key,
#include "tandem/advanced/spreads.def"
#undef SPREAD_GROUP
};

static void write_number(FILE *to, const tandem_constant_fit_value *value)
{
    fprintf(to, "%.4g, %.2g, %lld", value->value, isnan(value->standard_error) ? 0.0 : value->standard_error,
            (long long)value->n_row);
}

static void write_ratios(FILE *to, const tandem_constant_fit *fit)
{
    static const char *const keys[TANDEM_N_RATIO_GROUP] = {
#define RATIO_GROUP(key, name) #key,
#include "tandem/advanced/ratios.def"
#undef RATIO_GROUP
    };
    for (int g = 0; g < TANDEM_N_RATIO_GROUP; g++) {
        const tandem_ratio_fit *const of = &fit->ratio_of[g];
        fprintf(to, "RATIO(%s, %.3g, %.3g, %d, %.3g, \"%s\")\n", keys[g], of->spread.shared, of->spread.own,
                of->spread.n_shape, of->error, of->cards ? of->cards : "");
    }
    for (int is_small = 0; is_small < 2; is_small++)
        fprintf(to, "DEVICE_RATIO(%s, %.3g, %d)\n", is_small ? "SMALL" : "OTHER",
                fit->device_ratio[is_small].shared, fit->device_ratio[is_small].n_share);
}

/* Who includes the file defines the rows it wants. */
static const char *const row_macros[] = {"FITTED", "RATE",  "BANDWIDTH",   "SPREAD",
                                         "DEVICE", "RATIO", "DEVICE_RATIO"};
enum { N_ROW_MACRO = sizeof row_macros / sizeof *row_macros };

tandem_status tandem_constant_fit_write(const tandem_constant_fit *fit, const char *path, tandem_error *error)
{
    tandem_file file;
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    FILE *const to = file.stream;
    const locale_t before = tandem_plain_begin();
    fputs(
        "/* constants.def: fitted values of the form's constants. `tandem-fit` writes it "
        "(docs/predicting.md);\n * meaning and units: include/tandem/advanced/form.def.\n *\n"
        " * FITTED(key, value, standard error or 0, rows that it rests on)\n"
        " * RATE(card, type, share of the peak reached, standard error, rows)\n"
        " * BANDWIDTH(card, share of the peak reached, standard error, rows)\n"
        " * SPREAD(group, shared, own, cells, rows, mean error, cards): logarithmic standard deviations on\n"
        " * chips left out\n"
        " * DEVICE(peak, shared, shares): the same of what cards reach of a peak\n"
        " * RATIO(group, shared, own, shapes, mean error, cards): the same of ratios of times, on\n"
        " * generations left out\n"
        " * DEVICE_RATIO(cards, shared, shares): the same of what cards reach of a peak in one type over\n"
        " * another; SMALL: cards below 100 W */\n",
        to);
    for (int i = 0; i < N_ROW_MACRO; i++)
        fprintf(to, "#ifndef %s\n#define %s(...)\n#endif\n", row_macros[i], row_macros[i]);
    for (int c = 0; c < TANDEM_N_CONSTANT; c++) {
        fprintf(to, "FITTED(%s, ", tandem_constant_get(c)->name);
        write_number(to, &fit->state.constant[c]);
        fputs(")\n", to);
    }
    for (int i = 0; i < fit->n_share; i++) {
        const tandem_constant_fit_share *const one = &fit->share[i];
        static const char *const type_keys[] = {
            [TANDEM_F32] = "F32",   [TANDEM_TF32] = "TF32", [TANDEM_F16] = "F16", [TANDEM_BF16] = "BF16",
            [TANDEM_E4M3] = "E4M3", [TANDEM_E5M2] = "E5M2", [TANDEM_S8] = "S8"};
        if (one->type == TANDEM_N_COMPUTE_DTYPE)
            fprintf(to, "BANDWIDTH(\"%s\", ", one->gpu);
        else
            fprintf(to, "RATE(\"%s\", %s, ", one->gpu, type_keys[one->type]);
        write_number(to, &one->share);
        fputs(")\n", to);
    }
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++)
        fprintf(to, "SPREAD(%s, %.3g, %.3g, %d, %lld, %.3g, \"%s\")\n", group_keys[g], fit->spread[g].shared,
                fit->spread[g].own, fit->spread[g].n_cell, (long long)fit->spread[g].n_row,
                fit->spread[g].error, fit->spread[g].cards ? fit->spread[g].cards : "");
    for (int peak = 0; peak < TANDEM_N_PEAK; peak++)
        fprintf(to, "DEVICE(%s, %.3g, %d)\n", peak == TANDEM_PEAK_COMPUTE ? "COMPUTE" : "MEMORY",
                fit->device_spread[peak].shared, fit->device_spread[peak].n_share);
    write_ratios(to, fit);
    for (int i = 0; i < N_ROW_MACRO; i++) fprintf(to, "#undef %s\n", row_macros[i]);
    tandem_plain_end(before);
    return tandem_file_finish(&file, error);
}
