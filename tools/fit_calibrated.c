/* fit_calibrated.c: what rows of a device do for its other rows: the errors of a chip that was left out of a
 * fit, from its datasheet alone, from three rows, and from every other row (constant_fit.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/fit_data.h"
#include "predictor/form.h"

enum { MAX_JUDGED = 500, MAX_USED = 1000 }; /* rows of a cell, evenly spaced */

int fit_find_device(const char *name)
{
    for (int d = 0; d < tandem_device_count() && d < FIT_MAX_DEVICES; d++)
        if (strcmp(tandem_device_get(d)->name, name) == 0) return d;
    return -1;
}

/* Whether a source timed products of a card in a type and, in the same way, in another one. */
static int has_other_type(const tandem_constant_fit *fit, const fit_row *as)
{
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->gpu == as->gpu && row->manner == as->manner && row->work.work_class == TANDEM_WORK_LINEAR &&
            row->work.type != as->work.type)
            return 1;
    }
    return 0;
}

/* Of a card that is only judged, products of a source that timed two types come first: two sources may have
 * used two cards, or one that was hotter, and the ratio of their rates is no card's. */
const fit_row *fit_nearest_row(const tandem_constant_fit *fit, int gpu, int type)
{
    const double other_source = 100;
    const fit_row *best = NULL;
    uint32_t manner = 0;
    double least = INFINITY, apart = -1;
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        const tandem_work *const w = &row->work;
        if (row->gpu != gpu) continue;
        double distance;
        if (type == TANDEM_N_COMPUTE_DTYPE) {
            if (w->work_class != TANDEM_WORK_STREAM || w->flops > w->rows * w->columns) continue;
            distance = fabs(log(w->rows * w->columns / 4e7));
        } else {
            if (w->work_class != TANDEM_WORK_LINEAR || (int)w->type != type) continue;
            if (apart < 0 || row->manner != manner)
                apart = !(fit->judged >> gpu & 1) || has_other_type(fit, row) ? 0 : other_source;
            manner = row->manner;
            distance = apart + fabs(log(w->m / 4096)) + fabs(log(w->k / 2048)) + fabs(log(w->n / 4096));
        }
        if (distance < least) least = distance, best = row;
    }
    return best;
}

/* The shortest stream, hardly more than a launch; NULL = none. */
static const fit_row *find_tiny_row(const tandem_constant_fit *fit, int gpu)
{
    const fit_row *best = NULL;
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->gpu != gpu || row->work.work_class != TANDEM_WORK_STREAM) continue;
        if (!best || row->work.bytes < best->work.bytes) best = row;
    }
    return best;
}

static tandem_status add_calibrating_row(tandem_calibration *calibration, const fit_row *row,
                                         tandem_error *error)
{
    return row ? tandem_calibration_add(calibration, &row->work, row->ns, row->timed, error) : TANDEM_OK;
}

/* Every second row of the device, at most MAX_USED of a cell. counts: [cells] */
static tandem_status add_every_other(tandem_calibration *calibration, const tandem_constant_fit *fit, int gpu,
                                     int64_t *counts, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < fit->n_cell; c++) counts[c] = 0;
    for (size_t i = 0; i < fit->n_row && status == TANDEM_OK; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->gpu != gpu) continue;
        const int64_t step = 2 * ((fit->cell_rows[row->cell] + 2 * MAX_USED - 1) / (2 * MAX_USED));
        if (counts[row->cell]++ % step == 0) status = add_calibrating_row(calibration, row, error);
    }
    return status;
}

static tandem_status add_known_rows(tandem_calibration *calibration, const tandem_constant_fit *fit, int gpu,
                                    tandem_dtype type, tandem_known known, int64_t *counts,
                                    tandem_error *error)
{
    if (known == TANDEM_KNOWN_DATASHEET) return TANDEM_OK;
    if (known == TANDEM_KNOWN_ALL) return add_every_other(calibration, fit, gpu, counts, error);
    tandem_status status = add_calibrating_row(calibration, fit_nearest_row(fit, gpu, (int)type), error);
    if (status == TANDEM_OK)
        status = add_calibrating_row(calibration, fit_nearest_row(fit, gpu, TANDEM_N_COMPUTE_DTYPE), error);
    return status == TANDEM_OK ? add_calibrating_row(calibration, find_tiny_row(fit, gpu), error) : status;
}

/* Mean error over the rows that calibrate nothing, the second of each two. */
static double judge_cell(const tandem_calibration *calibration, const tandem_constant_fit *fit, int c)
{
    const int64_t step = 2 * ((fit->cell_rows[c] + 2 * MAX_JUDGED - 1) / (2 * MAX_JUDGED));
    double sum = 0, n = 0;
    int64_t seen = 0;
    for (size_t i = 0; i < fit->n_row; i++) {
        const fit_row *const row = &fit->row[i];
        if (row->cell != c || seen++ % step != 1 || row->ns < FIT_MIN_JUDGED_NS) continue;
        sum += fabs(tandem_calibrated_timed_ns(calibration, &row->work, row->timed) / row->ns - 1);
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

static tandem_status judge_known(tandem_constant_fit *fit, const fit_state *state, int c, tandem_known known,
                                 int64_t *counts, tandem_error *error)
{
    tandem_constant_fit_errors *const cell = &fit->cell[c];
    tandem_calibration *calibration = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    const int gpu = fit_find_device(cell->gpu);
    const tandem_device *const device = tandem_device_get(gpu);
    tandem_reached_rates rates;
    tandem_reached_rates_shared(&rates, &device->gpu_spec, &state->constants);
    tandem_status status =
        tandem_calibration_open_with(&calibration, device, &state->constants, &rates, error);
    if (status == TANDEM_OK) status = add_known_rows(calibration, fit, gpu, cell->type, known, counts, error);
    if (status == TANDEM_OK) {
        tandem_calibration_finish(calibration, notes);
        cell->known[known] = judge_cell(calibration, fit, c);
    }
    tandem_calibration_close(calibration);
    return status;
}

tandem_status fit_judge_calibration(tandem_constant_fit *fit, const fit_state *state, uint64_t devices,
                                    tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t *const counts = calloc((size_t)fit->n_cell + 1, sizeof *counts);
    if (!counts) return tandem_no_memory(error, "for a fit");
    for (int c = 0; c < fit->n_cell; c++)
        for (int known = 0; known < TANDEM_N_KNOWN && status == TANDEM_OK; known++)
            if (devices >> fit_find_device(fit->cell[c].gpu) & 1)
                status = judge_known(fit, state, c, (tandem_known)known, counts, error);
    free(counts);
    return status;
}
