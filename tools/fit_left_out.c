/* fit_left_out.c: how far the form is off on cards that a fit has not seen: each chip, and each generation,
 * is left out in turn (constant_fit.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/fit_data.h"

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
static void keep_device_error(tandem_constant_fit *fit, int gpu, tandem_peak peak, double expected,
                              double found)
{
    if (fit->n_device_error[peak] == FIT_MAX_DEVICE_ERRORS || fit->judged >> gpu & 1) return;
    fit->device_error[peak][fit->n_device_error[peak]++] = fabs(log(expected / found));
}

void fit_calibrate_gpu(tandem_constant_fit *fit, fit_state *state, int gpu)
{
    const tandem_gpu_spec *const spec = &tandem_device_get(gpu)->gpu_spec;
    tandem_reached_rates *const rates = &state->rates[gpu];
    tandem_reached_rates_shared(rates, spec, &state->constants);
    const fit_row *const copy = fit_nearest_row(fit, gpu, TANDEM_N_COMPUTE_DTYPE);
    const tandem_reached_rates shared = *rates;
    if (copy) {
        calibrate_rate(state, copy, &rates->bytes_per_s, spec->bytes_per_s);
        keep_device_error(fit, gpu, TANDEM_PEAK_MEMORY, shared.bytes_per_s, rates->bytes_per_s);
    }
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
        const fit_row *const product = fit_nearest_row(fit, gpu, t);
        fit->device_off[gpu][t] = NAN;
        if (!product) continue;
        calibrate_rate(state, product, &rates->flops_per_s[t], spec->flops_per_s[t]);
        keep_device_error(fit, gpu, TANDEM_PEAK_COMPUTE, shared.flops_per_s[t], rates->flops_per_s[t]);
        fit->device_off[gpu][t] = log(shared.flops_per_s[t] / rates->flops_per_s[t]);
    }
}

/* Fits without devices, calibrates them, and keeps how far their rows are off. */
static tandem_status leave_devices_out(tandem_constant_fit *fit, fit_state *state, uint64_t devices,
                                       tandem_error *error)
{
    const tandem_status status = fit_all_stages(fit, state, &(fit_without){.devices = devices}, error);
    if (status != TANDEM_OK) return status;
    for (int d = 0; d < tandem_device_count(); d++)
        if (devices >> d & 1) fit_calibrate_gpu(fit, state, d);
    for (size_t i = 0; i < fit->n_row; i++) {
        fit_row *const row = &fit->row[i];
        if (row->ns < FIT_MIN_JUDGED_NS || !(devices >> row->gpu & 1)) continue;
        row->left_out = (float)log(fit_predicted_ns(state, row, tandem_device_get(row->gpu)) / row->ns);
    }
    return TANDEM_OK;
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

static int is_judged_cell(const tandem_constant_fit *fit, int c)
{
    return (int)(fit->judged >> fit_find_device(fit->cell[c].gpu) & 1);
}

/* value: [three times the rows of the fit]. */
static void find_spreads(tandem_constant_fit *fit, double *value)
{
    for (int g = 0; g < TANDEM_N_SPREAD_GROUP; g++) {
        spread_cells cells = {.n = 0};
        double *room = value;
        fit->spread[g] = (tandem_spread){.cards = fit->spread_cards[g]};
        fit->spread_cards[g][0] = '\0';
        for (int c = 0; c < fit->n_cell; c++) {
            if ((int)group_of_cell(fit, c) != g || is_judged_cell(fit, c)) continue;
            const int before = cells.n;
            fit_add_spread_cell(&cells, room, collect_left_out(room, fit, c));
            if (cells.n == before) continue;
            room += cells.n_row[before];
            add_spread_evidence(fit, g, c, room);
        }
        if (cells.n == 0) continue;
        const tandem_spread found = fit_spread_of_cells(&cells);
        tandem_spread *const spread = &fit->spread[g];
        spread->n_cell = found.n_cell, spread->own = found.own, spread->shared = found.shared;
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

/* Of the c-th cell's rows, as they were left out last. */
static void find_cell_errors(const tandem_constant_fit *fit, int c, tandem_constant_fit_errors *cell,
                             double *value)
{
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

/* Whether a device is of a chip: "a100_pcie" of "a100". */
static int is_of_chip(const char *device, const char *chip)
{
    const size_t n = strlen(chip);
    return strncmp(device, chip, n) == 0 && (device[n] == '\0' || device[n] == '_');
}

uint64_t fit_chip_of_cell(const tandem_constant_fit *fit, int c)
{
    char chip[TANDEM_DEVICE_NAME];
    uint64_t devices = 0;
    (void)snprintf(chip, sizeof chip, "%s", fit->cell[c].gpu);
    chip[strcspn(chip, "_")] = '\0';
    if (strcmp(chip, "titan") == 0) (void)snprintf(chip, sizeof chip, "titan_xp");
    for (int before = 0; before < c; before++)
        if (is_of_chip(fit->cell[before].gpu, chip)) return 0;
    for (int d = 0; d < tandem_device_count(); d++)
        if (is_of_chip(tandem_device_get(d)->name, chip)) devices |= UINT64_C(1) << d;
    return devices;
}

static tandem_status leave_chips_out(tandem_constant_fit *fit, fit_state *state, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    memset(fit->n_device_error, 0, sizeof fit->n_device_error);
    for (int c = 0; c < fit->n_cell && status == TANDEM_OK; c++) {
        const uint64_t devices = fit_chip_of_cell(fit, c);
        if (devices == 0) continue;
        status = leave_devices_out(fit, state, devices, error);
        if (status == TANDEM_OK) status = fit_judge_calibration(fit, state, devices, error);
    }
    return status;
}

/* --- One generation left out ---------------------------------------------------------------------------- */

/* By the first compute capability of each. */
static const struct {
    int capability;
    const char *name;
} generations[] = {{90, "hopper"}, {89, "ada"},    {80, "ampere"}, {75, "turing"},
                   {70, "volta"},  {60, "pascal"}, {0, "older"}};
enum { N_GENERATION = sizeof generations / sizeof *generations };

static int generation_of(int gpu)
{
    int g = 0;
    while (tandem_device_get(gpu)->gpu_spec.generation < generations[g].capability) g++;
    return g;
}

static uint64_t devices_of_generation(const tandem_constant_fit *fit, int generation)
{
    uint64_t devices = 0;
    for (int c = 0; c < fit->n_cell; c++) {
        const int gpu = fit_find_device(fit->cell[c].gpu);
        if (generation_of(gpu) == generation) devices |= UINT64_C(1) << gpu;
    }
    return devices;
}

/* The errors of cells that hold what a chip left out has, with those of its generation. */
static void find_generation_errors(tandem_constant_fit *fit, double *value)
{
    for (int c = 0; c < fit->n_cell; c++) {
        tandem_constant_fit_errors without = fit->cell[c];
        without.generation = generations[generation_of(fit_find_device(without.gpu))].name;
        find_cell_errors(fit, c, &without, value);
        fit->generation_cell[c] = without;
    }
}

static tandem_status leave_generations_out(tandem_constant_fit *fit, fit_state *state, double *value,
                                           tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    free(fit->generation_cell);
    fit->generation_cell = calloc((size_t)fit->n_cell + 1, sizeof *fit->generation_cell);
    if (!fit->generation_cell) return tandem_no_memory(error, "for a fit");
    for (int g = 0; g < N_GENERATION && status == TANDEM_OK; g++) {
        const uint64_t devices = devices_of_generation(fit, g);
        if (devices) status = leave_devices_out(fit, state, devices, error);
    }
    if (status == TANDEM_OK) find_generation_errors(fit, value);
    return status;
}

tandem_status tandem_constant_fit_leave_one_out(tandem_constant_fit *fit, tandem_error *error)
{
    fit_state *const state = malloc(sizeof *state);
    double *const value = malloc((3 * fit->n_row + 1) * sizeof *value);
    tandem_status status = state && value ? leave_chips_out(fit, state, error)
                                          : tandem_no_memory(error, "for %zu measured times", fit->n_row);
    if (status == TANDEM_OK) {
        find_spreads(fit, value);
        find_device_spreads(fit);
        for (int c = 0; c < fit->n_cell; c++) find_cell_errors(fit, c, &fit->cell[c], value);
        status = leave_generations_out(fit, state, value, error);
    }
    if (status == TANDEM_OK) status = fit_judge_ratios(fit, error);
    free(value);
    free(state);
    return status;
}
