/* predict_devices.c: the devices of `tandem predict`, calibrated by the rows of --calibrate. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/calibration_text.h"
#include "cli/command/predict.h"

static int known_device_index(const tandem_device *device)
{
    for (int d = 0; d < tandem_device_count() && d < PREDICT_MAX_DEVICES; d++)
        if (strcmp(tandem_device_get(d)->name, device->name) == 0) return d;
    return -1;
}

/* The store's imported times, unless a file of rows takes their place. */
static tandem_status calibrate_by_store(tandem_calibration *calibration, const predict_devices *devices,
                                        tandem_error *error)
{
    char notes[TANDEM_CALIBRATION_NOTES], text[CALIBRATION_TEXT];
    if (!devices->store) return TANDEM_OK;
    const tandem_status status = tandem_calibration_add_stored(calibration, devices->store, error);
    if (status != TANDEM_OK || tandem_calibration_row_count(calibration) == 0) return status;
    tandem_calibration_finish(calibration, notes);
    if (notes[0]) cli_note(devices->options, "%s", calibration_text(text, sizeof text, calibration));
    return TANDEM_OK;
}

tandem_status predict_find(tandem_calibration **calibration, predict_devices *devices, const char *name,
                           tandem_error *error)
{
    tandem_device device;
    const tandem_status status = tandem_timing_device(&device, name, error);
    if (status != TANDEM_OK) return status;
    const int d = known_device_index(&device);
    if (d < 0) return tandem_error_set(error, TANDEM_NO_DEVICE, "%s is not described", device.name);
    if (!devices->of[d]) {
        tandem_calibration *made = NULL;
        const tandem_status opened = tandem_calibration_open(&made, &device, error);
        if (opened != TANDEM_OK) return opened;
        devices->of[d] = made;
        tandem_status calibrated = calibrate_by_store(made, devices, error);
        if (calibrated == TANDEM_OK && !devices->options->from_description)
            calibrated = tandem_calibration_add_others(made, error);
        if (calibrated != TANDEM_OK) return calibrated;
    }
    *calibration = devices->of[d];
    return TANDEM_OK;
}

typedef struct calibrating {
    predict_devices *devices;
    const cli_options *options;
} calibrating;

static tandem_status add_calibration_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    const calibrating *const c = context;
    tandem_calibration *calibration = NULL;
    tandem_work work;
    const char *const name = timing->device[0] ? timing->device : c->options->device;
    if (!name) return tandem_error_set(error, TANDEM_USAGE, "it names no device; --device does");
    tandem_status status = predict_find(&calibration, c->devices, name, error);
    if (status == TANDEM_OK) status = tandem_timing_work(&work, timing, error);
    if (status == TANDEM_OK && !(timing->time_ns > 0))
        return tandem_error_set(error, TANDEM_MALFORMED, "it has no time");
    if (status == TANDEM_OK)
        status = tandem_timing_check(timing, &work, tandem_calibration_device(calibration), c->options->force,
                                     error);
    return status == TANDEM_OK ? tandem_calibration_add(calibration, &work, timing->time_ns,
                                                        tandem_timing_timed(timing), error)
                               : status;
}

tandem_status predict_devices_open(predict_devices *devices, const cli_options *options, tandem_error *error)
{
    calibrating context = {devices, options};
    tandem_status status = TANDEM_OK;
    devices->options = options;
    if (!options->calibrate && (cli_option_given(options, OPTION_DB) || access(options->db, F_OK) == 0))
        status = tandem_store_open(&devices->store, options->db, TANDEM_STORE_READ, error);
    if (options->calibrate)
        status = tandem_timings_read_file(options->calibrate, 1, add_calibration_row, &context, error);
    for (int d = 0; d < PREDICT_MAX_DEVICES && status == TANDEM_OK; d++) {
        char notes[TANDEM_CALIBRATION_NOTES], text[CALIBRATION_TEXT];
        if (!devices->of[d]) continue;
        tandem_calibration_finish(devices->of[d], notes);
        if (notes[0]) cli_note(options, "%s", notes);
        cli_note(options, "%s", calibration_text(text, sizeof text, devices->of[d]));
    }
    return status;
}

void predict_devices_close(predict_devices *devices)
{
    for (int d = 0; d < PREDICT_MAX_DEVICES; d++) tandem_calibration_close(devices->of[d]);
    tandem_store_close(devices->store);
}

tandem_status predict_time(tandem_kernel_time *time, const tandem_calibration *calibration,
                           const tandem_work *work, const char *precision, tandem_error *error)
{
    const double max_ns = 1e15;
    const char *const device = tandem_calibration_device(calibration)->name;
    tandem_kernel_time calibrated;
    const double ns = tandem_calibrated_ns(&calibrated, calibration, work);
    const tandem_status read = tandem_calibration_check_others(calibration, error);
    if (read != TANDEM_OK) return read;
    if (ns < 0) return tandem_error_set(error, TANDEM_MISSING, "%s has no units for %s", device, precision);
    if (!(ns <= max_ns))
        return tandem_error_set(error, TANDEM_USAGE,
                                "%s takes %.4g ns on %s: allowed are 1e15 ns, eleven days. Check its sizes",
                                work->kind, ns, device);
    *time = calibrated;
    return TANDEM_OK;
}

predict_interval predict_interval_of(const tandem_calibration *calibration, const tandem_work *work,
                                     int timed, double ns)
{
    const double z80 = 1.2816;
    const int is_measured = tandem_calibration_row_count(calibration) > 0;
    const int group = (int)tandem_spread_group_of(work, &tandem_calibration_device(calibration)->gpu_spec) +
                      (tandem_calibration_others(calibration, work, timed) > 0
                           ? (int)TANDEM_N_SPREAD_GROUP * (int)TANDEM_EVIDENCE_OTHERS
                           : 0);
    const double unknown = tandem_calibration_unknown(calibration, work, timed),
                 shared = unknown * tandem_evidence_spread_shared(group, is_measured),
                 own = unknown * tandem_calibration_own_spread(calibration, work, timed),
                 factor = exp(z80 * hypot(shared, own));
    return (predict_interval){ns / factor, ns * factor, shared, own};
}
