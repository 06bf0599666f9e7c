/* constants.c: the constants of the form, their fitted values, and what a card reaches of its peaks. */
#include <stddef.h>
#include <string.h>

#include "predictor/form.h"

static const tandem_constant_row constant_rows[] = {
#define CONSTANT(key, unit, start, min, max, meaning) {#key, unit, meaning, start, min, max},
#include "tandem/advanced/form.def"
#undef CONSTANT
};

static const tandem_constants fitted = {{
#define FITTED(key, value, standard_error, rows) [TANDEM_CONSTANT_##key] = (value),
#define RATE(gpu, type, share, standard_error, rows)
#define BANDWIDTH(gpu, share, standard_error, rows)
#define SPREAD(class, shared, own, cells)
#include "predictor/constants.def"
#undef SPREAD
#undef BANDWIDTH
#undef RATE
#undef FITTED
}};

/* Shares of peaks that measured cards reach. */
static const struct {
    const char *gpu;
    int type; /* TANDEM_N_COMPUTE_DTYPE: the memory's */
    double share;
} measured_gpus[] = {
#define FITTED(key, value, standard_error, rows)
#define RATE(gpu, type, share, standard_error, rows) {gpu, TANDEM_##type, share},
#define BANDWIDTH(gpu, share, standard_error, rows) {gpu, TANDEM_N_COMPUTE_DTYPE, share},
#define SPREAD(class, shared, own, cells)
#include "predictor/constants.def"
#undef SPREAD
#undef BANDWIDTH
#undef RATE
#undef FITTED
};

const tandem_constant_row *tandem_constant_get(int constant) { return &constant_rows[constant]; }

const tandem_constants *tandem_constants_fitted(void) { return &fitted; }

void tandem_constants_start(tandem_constants *constants)
{
    for (int i = 0; i < TANDEM_N_CONSTANT; i++) constants->value[i] = constant_rows[i].start;
}

double tandem_measured_share(const char *gpu, int type)
{
    for (size_t i = 0; i < sizeof measured_gpus / sizeof *measured_gpus; i++)
        if (measured_gpus[i].type == type && strcmp(measured_gpus[i].gpu, gpu) == 0)
            return measured_gpus[i].share;
    return 0;
}

static const tandem_class_spread class_spreads[TANDEM_N_WORK_CLASS] = {
#define FITTED(key, value, standard_error, rows)
#define RATE(gpu, type, share, standard_error, rows)
#define BANDWIDTH(gpu, share, standard_error, rows)
#define SPREAD(class, shared, own, cells) [class] = {shared, own, cells},
#include "predictor/constants.def"
#undef SPREAD
#undef BANDWIDTH
#undef RATE
#undef FITTED
};

const tandem_class_spread *tandem_class_spread_fitted(tandem_work_class class)
{
    return &class_spreads[class];
}

const char *tandem_work_class_name(tandem_work_class class)
{
    static const char *const names[TANDEM_N_WORK_CLASS] = {
        [TANDEM_WORK_STREAM] = "stream",       [TANDEM_WORK_SOFTMAX] = "softmax",
        [TANDEM_WORK_LAYERNORM] = "layernorm", [TANDEM_WORK_LINEAR] = "linear",
        [TANDEM_WORK_MATMUL] = "matmul",       [TANDEM_WORK_CONVOLUTION] = "convolution"};
    return names[class];
}

const char *tandem_time_bound_name(tandem_time_bound bound)
{
    static const char *const names[TANDEM_N_TIME_BOUND] = {[TANDEM_BOUND_LAUNCH] = "launch",
                                                           [TANDEM_BOUND_COMPUTE] = "compute",
                                                           [TANDEM_BOUND_MEMORY] = "memory",
                                                           [TANDEM_BOUND_POWER] = "power"};
    return names[bound];
}
