/* constants.c: the constants of the form, their fitted values, and what a card reaches of its peaks. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "predictor/form.h"

static const tandem_constant_row constant_rows[] = {
#define IS(value) (value), -1
#define AS(key) NAN, TANDEM_CONSTANT_##key
#define CONSTANT(key, unit, start, min, max, without, meaning)                                               \
    {#key, unit, meaning, start, min, max, without},
#include "tandem/advanced/form.def"
#undef CONSTANT
#undef AS
#undef IS
};

/* A key that constants.def lacks would be 0 in silence; one that is there twice is refused by the
 * compiler (-Woverride-init). */
enum {
    N_FITTED =
        sizeof(char[]){
#define FITTED(...) 0,
#include "predictor/constants.def"
        },
    N_SPREAD =
        sizeof(char[]){
#define SPREAD(...) 0,
#include "predictor/constants.def"
        },
    N_DEVICE =
        sizeof(char[]){
#define DEVICE(...) 0,
#include "predictor/constants.def"
        },
    N_RATIO =
        sizeof(char[]){
#define RATIO(...) 0,
#include "predictor/constants.def"
        },
    N_DEVICE_RATIO =
        sizeof(char[]){
#define DEVICE_RATIO(...) 0,
#include "predictor/constants.def"
        }
};
#define COMPLETE                                                                                             \
    "constants.def has one row of each key: give a new one FITTED(KEY, start, 0, 0), run `tandem-fit`"
_Static_assert((int)N_FITTED == (int)TANDEM_N_CONSTANT, COMPLETE);
_Static_assert((int)N_SPREAD == (int)TANDEM_N_SPREAD_GROUP, COMPLETE);
_Static_assert((int)N_DEVICE == (int)TANDEM_N_PEAK, COMPLETE);
_Static_assert((int)N_RATIO == (int)TANDEM_N_RATIO_GROUP, COMPLETE);

static const tandem_constants fitted = {{
#define FITTED(key, value, standard_error, rows) [TANDEM_CONSTANT_##key] = (value),
#include "predictor/constants.def"
}};

/* Shares of peaks that measured cards reach. */
static const struct {
    const char *gpu;
    int type; /* TANDEM_N_COMPUTE_DTYPE: the memory's */
    double share;
} measured_gpus[] = {
#define RATE(gpu, type, share, standard_error, rows) {gpu, TANDEM_##type, share},
#define BANDWIDTH(gpu, share, standard_error, rows) {gpu, TANDEM_N_COMPUTE_DTYPE, share},
#include "predictor/constants.def"
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

static const tandem_spread group_spreads[TANDEM_N_SPREAD_GROUP] = {
#define SPREAD(group, ...) [TANDEM_SPREAD_##group] = {__VA_ARGS__},
#include "predictor/constants.def"
};

const tandem_spread *tandem_spread_fitted(tandem_spread_group group) { return &group_spreads[group]; }

static const tandem_device_spread device_spreads[TANDEM_N_PEAK] = {
#define DEVICE(peak, shared, shares) [TANDEM_PEAK_##peak] = {shared, shares},
#include "predictor/constants.def"
};

static const struct {
    const char *name;
    tandem_peak peak;
} spread_groups[TANDEM_N_SPREAD_GROUP] = {
#define SPREAD_GROUP(key, peak, name) {name, TANDEM_PEAK_##peak},
#include "tandem/advanced/spreads.def"
#undef SPREAD_GROUP
};

const char *tandem_spread_group_name(tandem_spread_group group) { return spread_groups[group].name; }

const tandem_device_spread *tandem_device_spread_fitted(tandem_spread_group group)
{
    return &device_spreads[spread_groups[group].peak];
}

double tandem_spread_shared(tandem_spread_group group, int is_measured)
{
    return is_measured ? group_spreads[group].shared
                       : hypot(group_spreads[group].shared, tandem_device_spread_fitted(group)->shared);
}

tandem_evidence tandem_evidence_of_group(int form_group)
{
    return (tandem_evidence)(form_group / TANDEM_N_SPREAD_GROUP % TANDEM_N_EVIDENCE);
}

int tandem_kernel_of_group(int form_group)
{
    const int n_source = (int)TANDEM_N_SPREAD_GROUP * (int)TANDEM_N_EVIDENCE;
    return tandem_evidence_of_group(form_group) == TANDEM_EVIDENCE_OTHERS ? form_group / n_source : -1;
}

double tandem_evidence_spread_shared(int form_group, int is_measured)
{
    const int group = form_group % TANDEM_N_SPREAD_GROUP;
    if (tandem_evidence_of_group(form_group) != TANDEM_EVIDENCE_OTHERS)
        return tandem_spread_shared((tandem_spread_group)group, is_measured);
    /* an estimate: T4's two sources differ by a quarter in fp32, and cards of 250 W by some 10 % */
    const double two_cards = 0.1;
    const double most = tandem_device_spread_fitted((tandem_spread_group)group)->shared;
    return fmax(two_cards, fmin(group_spreads[group].shared, most));
}

static const tandem_ratio_fit ratio_fits[TANDEM_N_RATIO_GROUP] = {
#define RATIO(group, shared, own, n_shape, error, cards)                                                     \
    [TANDEM_RATIO_##group] = {{shared, own, n_shape}, error, cards},
#include "predictor/constants.def"
};

const tandem_ratio_fit *tandem_ratio_fitted(tandem_ratio_group group) { return &ratio_fits[group]; }

enum { RATIO_OTHER, RATIO_SMALL, N_RATIO_CARDS };
static const tandem_device_spread device_ratios[] = {
#define DEVICE_RATIO(cards, shared, shares) [RATIO_##cards] = {shared, shares},
#include "predictor/constants.def"
};
_Static_assert((int)N_DEVICE_RATIO == (int)N_RATIO_CARDS, COMPLETE);

const tandem_device_spread *tandem_device_ratio_fitted(const tandem_gpu_spec *spec)
{
    return &device_ratios[spec->watts < 100 ? RATIO_SMALL : RATIO_OTHER];
}

const char *tandem_ratio_group_name(tandem_ratio_group group)
{
    static const char *const names[TANDEM_N_RATIO_GROUP] = {
#define RATIO_GROUP(key, name) name,
#include "tandem/advanced/ratios.def"
#undef RATIO_GROUP
    };
    return names[group];
}

tandem_ratio_group tandem_ratio_group_of(const tandem_work *narrow, const tandem_work *wide)
{
    const int bytes = (int)tandem_dtype_bytes(narrow->type),
              is_half_over_32 = bytes == 2 && wide->type == TANDEM_F32;
    if (narrow->work_class != wide->work_class || narrow->pass != wide->pass) return TANDEM_N_RATIO_GROUP;
    if (narrow->work_class == TANDEM_WORK_CONVOLUTION && is_half_over_32)
        return narrow->pass == TANDEM_PASS_FORWARD ? TANDEM_RATIO_CONV_16 : TANDEM_RATIO_CONV_16_GRAD;
    if (narrow->work_class != TANDEM_WORK_LINEAR) return TANDEM_N_RATIO_GROUP;
    if (is_half_over_32) return TANDEM_RATIO_LINEAR_16;
    if (bytes != 1 || tandem_dtype_bytes(wide->type) != 2) return TANDEM_N_RATIO_GROUP;
    return narrow->type == TANDEM_S8 ? TANDEM_RATIO_LINEAR_8 : TANDEM_RATIO_LINEAR_FP8;
}

static tandem_spread_group convolution_spread(const tandem_work *work, int is_old, int is_small)
{
    const int is_forward = work->pass == TANDEM_PASS_FORWARD;
    if (work->element_bytes < 2) return TANDEM_SPREAD_CONV_8;
    if (is_small) return TANDEM_SPREAD_CONV_SMALL;
    if (work->element_bytes < 4) return is_forward ? TANDEM_SPREAD_CONV_16 : TANDEM_SPREAD_CONV_16_GRAD;
    if (!is_forward)
        return work->pass == TANDEM_PASS_DGRAD ? TANDEM_SPREAD_CONV_DGRAD : TANDEM_SPREAD_CONV_WGRAD;
    return is_old ? TANDEM_SPREAD_CONV_OLD : TANDEM_SPREAD_CONV_32;
}

static tandem_spread_group linear_spread(tandem_dtype type, int is_old)
{
    if (type == TANDEM_S8) return is_old ? TANDEM_SPREAD_LINEAR_S8_OLD : TANDEM_SPREAD_LINEAR_S8;
    if (tandem_dtype_bytes(type) == 1) return TANDEM_SPREAD_LINEAR_FP8;
    if (type == TANDEM_F16) return TANDEM_SPREAD_LINEAR_F16;
    if (type != TANDEM_F32) return TANDEM_SPREAD_LINEAR_BF16;
    return is_old ? TANDEM_SPREAD_LINEAR_OLD : TANDEM_SPREAD_LINEAR_32;
}

tandem_spread_group tandem_spread_group_of(const tandem_work *work, const tandem_gpu_spec *spec)
{
    const int is_old = spec->generation < 70, is_small = spec->watts < 100;
    switch (work->work_class) {
    case TANDEM_WORK_SOFTMAX:
        if (is_old) return TANDEM_SPREAD_SOFTMAX_OLD;
        return spec->generation < 80 ? TANDEM_SPREAD_SOFTMAX_70 : TANDEM_SPREAD_SOFTMAX;
    case TANDEM_WORK_LAYERNORM: return TANDEM_SPREAD_LAYERNORM;
    case TANDEM_WORK_LINEAR: return is_small ? TANDEM_SPREAD_LINEAR_SMALL : linear_spread(work->type, is_old);
    case TANDEM_WORK_MATMUL:
        if (is_small) return TANDEM_SPREAD_MATMUL_SMALL;
        return is_old ? TANDEM_SPREAD_MATMUL_OLD : TANDEM_SPREAD_MATMUL;
    case TANDEM_WORK_CONVOLUTION: return convolution_spread(work, is_old, is_small);
    case TANDEM_WORK_STREAM:
    case TANDEM_N_WORK_CLASS: break;
    }
    if (is_small) return TANDEM_SPREAD_STREAM_SMALL;
    if (is_old) return TANDEM_SPREAD_STREAM_OLD;
    if (spec->memory_kind == TANDEM_GDDR) return TANDEM_SPREAD_STREAM_GDDR;
    return spec->generation < 80 ? TANDEM_SPREAD_STREAM_70 : TANDEM_SPREAD_STREAM;
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
