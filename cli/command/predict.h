/* predict.h: what the two files of `tandem predict` share. */
#ifndef TANDEM_CLI_COMMAND_PREDICT_H
#define TANDEM_CLI_COMMAND_PREDICT_H

#include "cli/cli.h"
#include "tandem/advanced/timings.h"

/* A calibration per described device, opened when it is first asked for. */
enum { PREDICT_MAX_DEVICES = 64 };
typedef struct predict_devices {
    tandem_calibration *of[PREDICT_MAX_DEVICES]; /* by index of tandem_device_get */
    tandem_store *store;                         /* whose imported times calibrate them; NULL = none */
    const cli_options *options;
} predict_devices;

/* Opens all that --calibrate has rows of; those that are asked for by name are calibrated by the store.
 * Errors of the files. */
tandem_status predict_devices_open(predict_devices *devices, const cli_options *options, tandem_error *error);
void predict_devices_close(predict_devices *devices);
/* TANDEM_UNKNOWN_NAME, TANDEM_NO_DEVICE, TANDEM_NO_MEMORY. */
tandem_status predict_find(tandem_calibration **calibration, predict_devices *devices, const char *name,
                           tandem_error *error);

/* A task's time and terms. TANDEM_MISSING: the device does not multiply in that precision; TANDEM_USAGE: it
 * takes longer than any time of a timing table may, 1e15 ns. Outputs unchanged. */
tandem_status predict_time(tandem_kernel_time *time, const tandem_calibration *calibration,
                           const tandem_work *work, const char *precision, tandem_error *error);

/* The 80 % interval of a time of a task, and of what it is made: logarithmic standard deviations. timed: of
 * such a timing. */
typedef struct predict_interval {
    double low_ns, high_ns, shared, own;
} predict_interval;
predict_interval predict_interval_of(const tandem_calibration *calibration, const tandem_work *work,
                                     int timed, double ns);

/* --over: what a task takes over the same in another precision. */
typedef struct predict_ratio {
    const char *over; /* NULL: not asked for */
    tandem_time_ratio of;
} predict_ratio;

/* --list. Returns the exit code. */
int predict_list(predict_devices *devices, const cli_options *options);

#endif
