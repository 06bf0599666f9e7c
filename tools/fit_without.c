/* fit_without.c: what the errors of chips left out are where a fit goes without some constants
 * (constant_fit.h).
 *
 * A stage of a fit depends on the stages before it. So each chip's state before every stage is kept. A fit
 * without a constant begins with the first stage that the constant is in, and its search where that with all
 * constants ended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/fit_data.h"

enum { N_JUDGED = 2 }; /* the datasheet alone; one product per type and one copy */
static const tandem_known judged_known[N_JUDGED] = {TANDEM_KNOWN_DATASHEET, TANDEM_KNOWN_THREE};

typedef struct fit_chip {
    uint64_t devices;
    fit_state before[FIT_CHOICES + 1], with; /* before each stage, and at the end */
} fit_chip;

/* Mean errors of a cell: [N_JUDGED]; NaN without rows. */
typedef struct cell_means {
    double mean[N_JUDGED];
} cell_means;

struct fit_chips {
    fit_chip *chip;
    int n_chip;
    cell_means *with; /* all constants: [cells] */
};

void fit_close_chips(struct fit_chips *chips)
{
    if (!chips) return;
    free(chips->chip);
    free(chips->with);
    free(chips);
}

/* Adds up |predicted / measured − 1| of a chip's rows. */
static void add_errors(cell_means *sum, double *n, const tandem_constant_fit *fit, const fit_state *state,
                       uint64_t devices, int judged)
{
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->ns < FIT_MIN_JUDGED_NS || !(devices >> row->gpu & 1)) continue;
        const double ns = fit_predicted_ns(state, row, tandem_device_get(row->gpu));
        sum[row->cell].mean[judged] += fabs(ns / row->ns - 1);
        n[row->cell]++;
    }
}

/* Means of the cells of a chip, which are 0 before. *state: fitted without its rows; its rates are
 * overwritten. */
static tandem_status judge_chip(cell_means *means, tandem_constant_fit *fit, fit_state *state,
                                uint64_t devices, tandem_error *error)
{
    double *const n = malloc(((size_t)fit->n_cell + 1) * sizeof *n);
    if (!n) return tandem_no_memory(error, "for a fit");
    for (int judged = 0; judged < N_JUDGED; judged++) {
        memset(n, 0, (size_t)fit->n_cell * sizeof *n);
        for (int d = 0; d < tandem_device_count(); d++) {
            if (!(devices >> d & 1)) continue;
            tandem_reached_rates_shared(&state->rates[d], &tandem_device_get(d)->gpu_spec, &state->constants);
            if (judged_known[judged] != TANDEM_KNOWN_DATASHEET) fit_calibrate_gpu(fit, state, d);
        }
        add_errors(means, n, fit, state, devices, judged);
        for (int c = 0; c < fit->n_cell; c++)
            if (devices >> fit_find_device(fit->cell[c].gpu) & 1) means[c].mean[judged] /= n[c];
    }
    free(n);
    return TANDEM_OK;
}

/* Fits with all constants, without the chip; keeps the state before each stage. */
static tandem_status fit_chip_with_all(struct fit_chips *chips, tandem_constant_fit *fit, fit_state *state,
                                       uint64_t devices, tandem_error *error)
{
    fit_chip *const chip = &chips->chip[chips->n_chip++];
    const fit_without without = {.devices = devices};
    tandem_status status = TANDEM_OK;
    chip->devices = devices;
    fit_begin(state, &without);
    for (int stage = FIT_STREAMS; stage <= FIT_CHOICES && status == TANDEM_OK; stage++) {
        chip->before[stage] = *state;
        status = fit_next_stage(fit, state, &without, stage, error);
    }
    chip->with = *state;
    return status == TANDEM_OK ? judge_chip(chips->with, fit, state, devices, error) : status;
}

static tandem_status open_chips(tandem_constant_fit *fit, fit_state *state, tandem_error *error)
{
    if (fit->chips) return TANDEM_OK;
    int n = 0;
    for (int c = 0; c < fit->n_cell; c++) n += fit_chip_of_cell(fit, c) != 0;
    struct fit_chips *const chips = calloc(1, sizeof *chips);
    if (!chips) return tandem_no_memory(error, "for a fit");
    chips->chip = calloc((size_t)n + 1, sizeof *chips->chip);
    chips->with = calloc((size_t)fit->n_cell + 1, sizeof *chips->with);
    tandem_status status = chips->chip && chips->with ? TANDEM_OK : tandem_no_memory(error, "for a fit");
    for (int c = 0; c < fit->n_cell && status == TANDEM_OK; c++) {
        const uint64_t devices = fit_chip_of_cell(fit, c);
        if (devices) status = fit_chip_with_all(chips, fit, state, devices, error);
    }
    if (status == TANDEM_OK)
        fit->chips = chips;
    else
        fit_close_chips(chips);
    return status;
}

static tandem_status fit_chip_without(cell_means *means, tandem_constant_fit *fit, fit_state *state,
                                      const fit_chip *chip, uint64_t constants, tandem_error *error)
{
    const fit_without without = {.devices = chip->devices, .constants = constants, .near = &chip->with};
    tandem_status status = TANDEM_OK;
    int first = FIT_CHOICES;
    for (int c = 0; c < TANDEM_N_CONSTANT; c++)
        if (constants >> c & 1 && fit_stage_of_constant(c) < first) first = fit_stage_of_constant(c);
    *state = chip->before[first];
    if (first == FIT_STREAMS) fit_begin(state, &without);
    for (int stage = first; stage <= FIT_CHOICES && status == TANDEM_OK; stage++)
        status = fit_next_stage(fit, state, &without, stage, error);
    return status == TANDEM_OK ? judge_chip(means, fit, state, chip->devices, error) : status;
}

static void compare_cells(tandem_constant_fit_drop *drop, const tandem_constant_fit *fit,
                          const cell_means *without)
{
    const double noticeable = 1e-3;
    *drop = (tandem_constant_fit_drop){.worst.cell = -1, .best.cell = -1};
    for (int c = 0; c < fit->n_cell; c++)
        for (int j = 0; j < N_JUDGED; j++) {
            const double points = without[c].mean[j] - fit->chips->with[c].mean[j];
            const tandem_constant_fit_change change = {c, judged_known[j], points};
            if (isnan(points)) continue;
            drop->n_worse += points > noticeable;
            drop->n_better += points < -noticeable;
            if (points > drop->worst.points) drop->worst = change;
            if (points < drop->best.points) drop->best = change;
        }
}

tandem_status tandem_constant_fit_drop_constants(tandem_constant_fit_drop *drop, tandem_constant_fit *fit,
                                                 uint64_t constants, tandem_error *error)
{
    fit_state *const state = malloc(sizeof *state);
    cell_means *const without = calloc((size_t)fit->n_cell + 1, sizeof *without);
    tandem_status status =
        state && without ? open_chips(fit, state, error) : tandem_no_memory(error, "for a fit");
    for (int i = 0; status == TANDEM_OK && i < fit->chips->n_chip; i++)
        status = fit_chip_without(without, fit, state, &fit->chips->chip[i], constants, error);
    if (status == TANDEM_OK) compare_cells(drop, fit, without);
    free(without);
    free(state);
    return status;
}
