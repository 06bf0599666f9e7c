/* fit_tables.c: the rows of a fit, its leave-one-out errors, and the table of constants it writes (fit.h). */
#include <gsl/gsl_fit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/sort.h"
#include "predictor/fit_data.h"

/* --- Rows ----------------------------------------------------------------------------------------------- */

tandem_status tandem_constant_fit_open(tandem_constant_fit **fit, tandem_error *error)
{
    tandem_constant_fit *const made = calloc(1, sizeof *made);
    if (!made) return tandem_no_memory(error, "for a fit");
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

static int is_fittable(const tandem_timing *timing, tandem_device *device, tandem_work *work)
{
    return timing->time_ns > 0 && tandem_timing_device(device, timing->device, NULL) == TANDEM_OK &&
           tandem_device_is_described(device) && tandem_timing_work(work, timing, NULL) == TANDEM_OK &&
           (!work->is_product || device->gpu_spec.flops_per_s[work->type] > 0);
}

static tandem_status add_fit_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_constant_fit *const fit = context;
    tandem_device device;
    fit_row row = {.timed_ns = timing->time_ns, .ns = timing->time_ns, .left_out = NAN};
    if (!is_fittable(timing, &device, &row.work)) {
        fit->n_skipped++;
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
    row.way = tandem_convolution_way(&row.work, timing->algorithm);
    row.cell = find_fit_cell(fit, &row);
    if (row.cell < 0) return tandem_no_memory(error, "for a fit");
    fit->row[fit->n_row++] = row;
    return TANDEM_OK;
}

tandem_status tandem_constant_fit_add_file(tandem_constant_fit *fit, const char *path, tandem_error *error)
{
    return tandem_timings_read_file(path, 1, add_fit_row, fit, error);
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
 * on four cards, whatever the convolution: the last of 5,000 hold 0.3 to 0.8 ms of it. It is taken off. Only
 * convolutions: products and streams stand in the order of their sizes, so that a growth would be theirs. */
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
            if (!is_long_enough(row) || is_odd_convolution(row)) continue;
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
                                "no row to fit: %lld rows of devices or precisions that "
                                "are not described",
                                (long long)fit->n_skipped);
    tandem_status status = count_cell_rows(fit, error);
    if (status == TANDEM_OK) status = take_off_growth(fit, error);
    if (status == TANDEM_OK) status = choose_fitted_rows(fit, error);
    if (status == TANDEM_OK) status = fit_all_stages(fit, &fit->state, NULL, error);
    return status == TANDEM_OK ? list_shares(fit, error) : status;
}

/* --- One chip left out ---------------------------------------------------------------------------------- */

/* The rate with which a row is predicted as it was measured, by bisection; a rate is at most its peak. */
static void calibrate_rate(fit_state *state, const fit_row *row, double *rate, double peak)
{
    const tandem_device *const device = tandem_device_get(row->gpu);
    double low = 0.05 * peak, high = peak;
    for (int i = 0; i < 50; i++) {
        *rate = sqrt(low * high);
        if (fit_predicted_ns(state, row, device) > row->ns)
            low = *rate;
        else
            high = *rate;
    }
}

/* What the datasheet was off, before a row was seen. */
static void keep_device_error(tandem_constant_fit *fit, tandem_peak peak, double expected, double found)
{
    if (fit->n_device_error[peak] == FIT_MAX_DEVICE_ERRORS) return;
    fit->device_error[peak][fit->n_device_error[peak]++] = fabs(log(expected / found));
}

static void calibrate_gpu(tandem_constant_fit *fit, fit_state *state, int gpu)
{
    const tandem_gpu_spec *const spec = &tandem_device_get(gpu)->gpu_spec;
    tandem_reached_rates *const rates = &state->rates[gpu];
    tandem_reached_rates_shared(rates, spec, &state->constants);
    const fit_row *const copy = fit_nearest_row(fit, gpu, TANDEM_N_COMPUTE_DTYPE);
    const tandem_reached_rates shared = *rates;
    if (copy) {
        calibrate_rate(state, copy, &rates->bytes_per_s, spec->bytes_per_s);
        keep_device_error(fit, TANDEM_PEAK_MEMORY, shared.bytes_per_s, rates->bytes_per_s);
    }
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
        const fit_row *const product = fit_nearest_row(fit, gpu, t);
        if (!product) continue;
        calibrate_rate(state, product, &rates->flops_per_s[t], spec->flops_per_s[t]);
        keep_device_error(fit, TANDEM_PEAK_COMPUTE, shared.flops_per_s[t], rates->flops_per_s[t]);
    }
}

static tandem_status leave_chip_out(tandem_constant_fit *fit, fit_state *state, const char *chip,
                                    tandem_error *error)
{
    const tandem_status status = fit_all_stages(fit, state, chip, error);
    if (status != TANDEM_OK) return status;
    for (int d = 0; d < tandem_device_count(); d++)
        if (fit_is_left_out(tandem_device_get(d)->name, chip)) calibrate_gpu(fit, state, d);
    for (size_t i = 0; i < fit->n_row; i++) {
        fit_row *const row = &fit->row[i];
        const tandem_device *const device = tandem_device_get(row->gpu);
        if (row->ns < FIT_MIN_JUDGED_NS || !fit_is_left_out(device->name, chip)) continue;
        row->left_out = (float)log(fit_predicted_ns(state, row, device) / row->ns);
    }
    return fit_judge_calibration(fit, state, chip, error);
}

static double quantile(const double *sorted, size_t n, double share)
{
    return sorted[(size_t)(share * (double)(n - 1) + 0.5)];
}

/* Residuals of a cell into value[]; returns their number. */
static size_t collect_left_out(double *value, const tandem_constant_fit *fit, int cell)
{
    size_t n = 0;
    for (size_t i = 0; i < fit->n_row; i++)
        if (fit->row[i].cell == cell && !isnan(fit->row[i].left_out))
            value[n++] = (double)fit->row[i].left_out;
    return n;
}

/* The group of a cell's rows: they are of one device, class, type and pass. */
static tandem_spread_group group_of_cell(const tandem_constant_fit *fit, int c)
{
    for (size_t i = 0; i < fit->n_row; i++)
        if (fit->row[i].cell == c)
            return tandem_spread_group_of(&fit->row[i].work, &tandem_device_get(fit->row[i].gpu)->gpu_spec);
    return TANDEM_SPREAD_STREAM;
}

enum { MAX_SPREAD_CELLS = 32, MIN_SPREAD_ROWS = 10 };

/* What was left out of a group's cells: |log(predicted / measured)|, sorted. */
typedef struct spread_cells {
    double *error[MAX_SPREAD_CELLS];
    size_t n_row[MAX_SPREAD_CELLS];
    double own[MAX_SPREAD_CELLS]; /* spread about the cell's median */
    int n;
} spread_cells;

/* The share of sorted errors that are at most `half`. */
static double share_within(const double *sorted, size_t n, double half)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (sorted[middle] <= half)
            low = middle + 1;
        else
            high = middle;
    }
    return (double)low / (double)n;
}

/* How far the cell that is furthest from it is from 80 %. */
static double worst_cover(const spread_cells *cells, double half)
{
    double worst = 0;
    for (int c = 0; c < cells->n; c++)
        worst = fmax(worst, fabs(share_within(cells->error[c], cells->n_row[c], half) - 0.8));
    return worst;
}

/* The half-width with which every cell holds a share as near to 80 % as it can. */
static double level_half_width(const spread_cells *cells)
{
    double best = 0, least = INFINITY;
    for (int step = 0; step <= 1000; step++) {
        const double half = 0.005 * pow(400, step / 1000.0), worst = worst_cover(cells, half);
        if (worst < least) least = worst, best = half;
    }
    return best;
}

static void add_spread_cell(spread_cells *cells, const tandem_constant_fit *fit, int c, double *value)
{
    const size_t n = collect_left_out(value, fit, c);
    if (n < MIN_SPREAD_ROWS || cells->n == MAX_SPREAD_CELLS) return;
    const double median = tandem_median(value, n);
    for (size_t i = 0; i < n; i++) value[i] = fabs(value[i] - median);
    cells->own[cells->n] = tandem_median(value, n) / 0.6745;
    (void)collect_left_out(value, fit, c);
    for (size_t i = 0; i < n; i++) value[i] = fabs(value[i]);
    (void)tandem_median(value, n); /* sorts */
    cells->error[cells->n] = value;
    cells->n_row[cells->n++] = n;
}

/* Rows, cards and mean error of a group's cell. value: signed, log(predicted / measured). */
static void add_spread_evidence(tandem_constant_fit *fit, int g, int c, double *value)
{
    tandem_spread *const spread = &fit->spread[g];
    char *const cards = fit->spread_cards[g];
    char gpu[TANDEM_DEVICE_NAME + 1];
    const size_t n = collect_left_out(value, fit, c), used = strlen(cards);
    double sum = spread->error * (double)spread->n_row;
    for (size_t i = 0; i < n; i++) sum += fabs(exp(value[i]) - 1);
    spread->n_row += (int64_t)n;
    spread->error = sum / (double)spread->n_row;
    (void)snprintf(gpu, sizeof gpu, "%s ", fit->cell[c].gpu);
    if (!strstr(cards, gpu) && used + strlen(gpu) < FIT_CARDS_TEXT)
        (void)snprintf(cards + used, FIT_CARDS_TEXT - used, "%s", gpu);
}

/* Per group: the interval that suits its cells, and of it what is a shape's own: the spread within a middling
 * cell. The rest is shared. value: [twice the rows of the fit]. */
static void find_spreads(tandem_constant_fit *fit, double *value)
{
    const double z80 = 1.2816;
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        spread_cells cells = {.n = 0};
        double *room = value;
        fit->spread[g] = (tandem_spread){.cards = fit->spread_cards[g]};
        fit->spread_cards[g][0] = '\0';
        for (int c = 0; c < fit->n_cell; c++) {
            if ((int)group_of_cell(fit, c) != g) continue;
            const int before = cells.n;
            add_spread_cell(&cells, fit, c, room);
            if (cells.n == before) continue;
            room += cells.n_row[before];
            add_spread_evidence(fit, g, c, room);
        }
        if (cells.n == 0) continue;
        const double all = level_half_width(&cells) / z80;
        tandem_spread *const spread = &fit->spread[g];
        spread->n_cell = cells.n;
        spread->own = fmin(all, tandem_median(cells.own, (size_t)cells.n));
        spread->shared = sqrt(all * all - spread->own * spread->own);
    }
}

/* That which holds 80 % of the errors, as if they were normal. */
static void find_device_spreads(tandem_constant_fit *fit)
{
    const double z80 = 1.2816;
    for (int peak = 0; peak < TANDEM_N_PEAK; peak++) {
        const int n = fit->n_device_error[peak];
        if (n == 0) continue;
        (void)tandem_median(fit->device_error[peak], (size_t)n); /* sorts */
        fit->device_spread[peak] =
            (tandem_device_spread){quantile(fit->device_error[peak], (size_t)n, 0.8) / z80, n};
    }
}

static void find_cell_errors(tandem_constant_fit *fit, int c, double *value)
{
    tandem_constant_fit_errors *const cell = &fit->cell[c];
    const tandem_spread *const spread = &fit->spread[group_of_cell(fit, c)];
    const double half = 1.2816 * hypot(spread->shared, spread->own);
    double predicted = 0, measured = 0, mean = 0, bias = 0;
    size_t n = 0, inside = 0;
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->cell != c || isnan(row->left_out)) continue;
        const double ratio = exp((double)row->left_out);
        predicted += ratio * row->ns;
        measured += row->ns;
        mean += fabs(ratio - 1);
        bias += ratio - 1;
        inside += fabs((double)row->left_out) <= half;
        value[n++] = fabs(ratio - 1);
    }
    cell->n_row = (int64_t)n;
    if (n == 0) return;
    cell->median = tandem_median(value, n);
    cell->p90 = quantile(value, n, 0.9);
    cell->mean = mean / (double)n;
    cell->bias = bias / (double)n;
    cell->sum = predicted / measured - 1;
    cell->inside = (double)inside / (double)n;
}

tandem_status tandem_constant_fit_leave_one_out(tandem_constant_fit *fit, tandem_error *error)
{
    memset(fit->n_device_error, 0, sizeof fit->n_device_error);
    tandem_status status = TANDEM_OK;
    fit_state *const state = malloc(sizeof *state);
    double *const value = malloc((2 * fit->n_row + 1) * sizeof *value);
    if (!state || !value) status = tandem_no_memory(error, "for %zu measured times", fit->n_row);
    for (int c = 0; c < fit->n_cell && status == TANDEM_OK; c++) {
        char chip[TANDEM_DEVICE_NAME];
        int is_done = 0;
        (void)snprintf(chip, sizeof chip, "%s", fit->cell[c].gpu);
        chip[strcspn(chip, "_")] = '\0';
        if (strcmp(chip, "titan") == 0) (void)snprintf(chip, sizeof chip, "titan_xp");
        for (int before = 0; before < c; before++) is_done |= fit_is_left_out(fit->cell[before].gpu, chip);
        if (!is_done) status = leave_chip_out(fit, state, chip, error);
    }
    if (status == TANDEM_OK) {
        find_spreads(fit, value);
        find_device_spreads(fit);
    }
    for (int c = 0; c < fit->n_cell && status == TANDEM_OK; c++) find_cell_errors(fit, c, value);
    free(value);
    free(state);
    return status;
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

/* Who includes the file defines the rows it wants. */
static const char *const row_macros[] = {"FITTED", "RATE", "BANDWIDTH", "SPREAD", "DEVICE"};
enum { N_ROW_MACRO = sizeof row_macros / sizeof *row_macros };

tandem_status tandem_constant_fit_write(const tandem_constant_fit *fit, const char *path, tandem_error *error)
{
    tandem_file file;
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status != TANDEM_OK) return status;
    FILE *const to = file.stream;
    fputs(
        "/* constants.def: fitted values of the form's constants. `tandem fit` writes it "
        "(docs/predicting.md);\n * meaning and units: include/tandem/advanced/form.def.\n *\n"
        " * FITTED(key, value, standard error or 0, rows that it rests on)\n"
        " * RATE(card, type, share of the peak reached, standard error, rows)\n"
        " * BANDWIDTH(card, share of the peak reached, standard error, rows)\n"
        " * SPREAD(group, shared, own, cells, rows, mean error, cards): logarithmic standard deviations on\n"
        " * chips left out\n"
        " * DEVICE(peak, shared, shares): the same of what cards reach of a peak */\n",
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
    for (int i = 0; i < N_ROW_MACRO; i++) fprintf(to, "#undef %s\n", row_macros[i]);
    return tandem_file_finish(&file, error);
}
