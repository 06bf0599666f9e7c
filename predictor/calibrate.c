/* calibrate.c: measured times of a device sharpen the form (predictor.h).
 *
 * Of a row that is mostly compute, the rate is that with which the form gives its time; of one that is mostly
 * memory, the bandwidth; of a tiny one, the launch. The median of each counts. Then, with residuals
 * r = log(measured / form), a task of a class is longer by
 *
 *   r_class · n / (n + 2)  +  Σ wᵢ (rᵢ − r_class · n / (n + 2)) / (Σ wᵢ + ½),   wᵢ = exp(−dᵢ² / 2h²)
 *
 * with the mean r_class of its n rows, and d the distance of shapes in logarithms (predictor/nearby.c). The
 * constants 2, ½ and h = 0.7 are *estimates*.
 *
 * Where others' rows of a kernel ship, they give its times, and own rows correct them (by_others.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/by_others.h"
#include "predictor/form.h"
#include "tandem/advanced/predictor.h"

enum { MAX_NEAR = 1024 }; /* rows that are asked how near they are, evenly spaced */

static const tandem_nearby_rule near_rule = {.width = 0.7, .floor = 0.5};

typedef struct calibration_row {
    tandem_work work;
    double ns, residual;
    int timed, is_telling; /* is_telling: mostly of its work, not of a launch or events */
} calibration_row;

struct tandem_calibration {
    tandem_device device;
    tandem_constants constants; /* the fitted ones; what events add is this device's, where rows show it */
    tandem_calibration_basis basis;
    tandem_reached_rates rates;
    calibration_row *row;
    size_t n, room;
    tandem_nearby *near; /* [n_near] residuals about their class's mean */
    size_t n_near;
    double class_mean[TANDEM_N_WORK_CLASS]; /* shrunk */
    tandem_by_others *others;               /* NULL: none ship, or none are wanted */
    /* rows that count, by class, type and whether their kernel is another than that of the card's tasks */
    int n_own[TANDEM_N_WORK_CLASS][TANDEM_N_COMPUTE_DTYPE][2];
};

tandem_status tandem_calibration_open(tandem_calibration **calibration, const tandem_device *device,
                                      tandem_error *error)
{
    if (!tandem_device_is_described(device))
        return tandem_error_set(
            error, TANDEM_NO_DEVICE,
            "%s is not described, so that its times follow no form; `tandem list devices` "
            "shows those that are",
            device->name);
    tandem_reached_rates rates;
    tandem_reached_rates_fitted(&rates, device);
    return tandem_calibration_open_with(calibration, device, tandem_constants_fitted(), &rates, error);
}

tandem_status tandem_calibration_open_with(tandem_calibration **calibration, const tandem_device *device,
                                           const tandem_constants *constants,
                                           const tandem_reached_rates *rates, tandem_error *error)
{
    tandem_calibration *const opened = calloc(1, sizeof *opened);
    if (!opened) return tandem_no_memory(error, "to calibrate %s", device->name);
    opened->device = *device;
    opened->constants = *constants;
    opened->rates = *rates;
    *calibration = opened;
    return TANDEM_OK;
}

void tandem_calibration_close(tandem_calibration *calibration)
{
    if (!calibration) return;
    free(calibration->row);
    free(calibration->near);
    tandem_by_others_close(calibration->others);
    free(calibration);
}

/* What is no product computes in f32. */
static tandem_dtype rate_type(const tandem_work *work)
{
    return work->is_product && work->type < TANDEM_N_COMPUTE_DTYPE ? work->type : TANDEM_F32;
}

/* How many own rows are of the kernel of a task, its class and its type. */
static int own_rows(const tandem_calibration *c, const tandem_work *work, int timed)
{
    return c
        ->n_own[work->work_class][rate_type(work)][tandem_is_other_kernel(&c->device.gpu_spec, work, timed)];
}

tandem_status tandem_calibration_add(tandem_calibration *c, const tandem_work *work, double ns, int timed,
                                     tandem_error *error)
{
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 64;
        calibration_row *const more = realloc(c->row, room * sizeof *more);
        if (!more) return tandem_no_memory(error, "to calibrate %s", c->device.name);
        c->row = more;
        c->room = room;
    }
    c->row[c->n++] = (calibration_row){.work = *work, .ns = ns, .timed = timed};
    return TANDEM_OK;
}

static double uncalibrated_ns(const tandem_calibration *c, const tandem_work *work, int timed,
                              tandem_kernel_time *time)
{
    const tandem_constants *const constants = &c->constants;
    tandem_reached_rates rates = c->rates;
    tandem_gpu_spec spec = c->device.gpu_spec;
    if (tandem_is_other_kernel(&spec, work, timed)) tandem_take_dot_products(&spec, &rates);
    if (timed & TANDEM_TIMED_OF_ZEROS) tandem_reached_rates_without_power(&rates, &spec, constants);
    return tandem_timed_ns(constants, work, timed,
                           tandem_kernel_time_of(time, constants, &spec, &rates, work));
}

/* --- Rates ---------------------------------------------------------------------------------------------- */

/* The value of *rate with which a row is as it was measured; 0: no value from `min` to the peak does that. */
static double solve_rate(tandem_calibration *c, const calibration_row *row, double *rate, double min,
                         double peak)
{
    const double kept = *rate, tolerance = 1.02;
    double low = min, high = peak;
    for (int i = 0; i < 40; i++) {
        *rate = sqrt(low * high);
        if (uncalibrated_ns(c, &row->work, row->timed, NULL) > row->ns)
            low = *rate;
        else
            high = *rate;
    }
    const double found = *rate, ns = uncalibrated_ns(c, &row->work, row->timed, NULL);
    *rate = kept;
    return ns < row->ns * tolerance && row->ns < ns * tolerance ? found : 0;
}

/* What is in a row's time beside its work: a launch and, between events, a host's time, which differs from
 * machine to machine by up to four times. */
static double overhead_ns(const tandem_calibration *c, const calibration_row *row)
{
    const double host_ns = tandem_events_ns(&c->constants, &row->work);
    return c->rates.launch_ns + (row->timed & TANDEM_TIMED_BETWEEN_EVENTS ? 5 * host_ns : 0);
}

/* Whether a row is mostly of one term. */
static int is_mostly(const tandem_calibration *c, const calibration_row *row, int is_memory)
{
    tandem_kernel_time time;
    if (uncalibrated_ns(c, &row->work, row->timed, &time) < 0) return 0;
    const double one = is_memory ? time.memory_ns : time.compute_ns,
                 other = is_memory ? time.compute_ns : time.memory_ns;
    return one > 2 * other && one > overhead_ns(c, row);
}

/* Sets *rate to the median of what rows say; returns how many contradict the datasheet. */
static int calibrate_one(tandem_calibration *c, double *rate, double peak, int type, double *scratch)
{
    const int is_memory = type == TANDEM_N_COMPUTE_DTYPE;
    size_t n = 0;
    int n_contradiction = 0;
    for (size_t i = 0; i < c->n; i++) {
        const calibration_row *const row = &c->row[i];
        const int is_meant = is_memory
                                 ? row->work.work_class == TANDEM_WORK_STREAM
                                 : row->work.work_class == TANDEM_WORK_LINEAR && (int)row->work.type == type;
        const int is_other = tandem_is_other_kernel(&c->device.gpu_spec, &row->work, row->timed);
        if (!is_meant || is_other || !is_mostly(c, row, is_memory)) continue;
        const double found = solve_rate(c, row, rate, *rate / 3, peak);
        if (found > 0)
            scratch[n++] = found;
        else
            n_contradiction++;
    }
    if (n > 0) *rate = tandem_median(scratch, n);
    c->basis.n_rate[type] = (int64_t)n;
    return n_contradiction;
}

/* Rows that take hardly longer than a launch, kernel time only: a host's events hide the launch. */
static void calibrate_launch(tandem_calibration *c, double *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        tandem_kernel_time time;
        const calibration_row *const row = &c->row[i];
        if (row->timed & TANDEM_TIMED_BETWEEN_EVENTS || uncalibrated_ns(c, &row->work, 0, &time) < 0)
            continue;
        const double rest = time.ns - time.launch_ns;
        if (rest < time.launch_ns && row->ns > rest && row->ns < 10 * time.launch_ns)
            scratch[n++] = row->ns - rest;
    }
    if (n > 0) c->rates.launch_ns = tandem_median(scratch, n);
    c->basis.n_launch = (int64_t)n;
}

/* What rows between events show of the host in front of products, or of streams: over what is expected, the
 * median of rows that hold hardly more. 0: no row does. */
static double find_events(tandem_calibration *c, int is_product, double *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const calibration_row *const row = &c->row[i];
        if (!(row->timed & TANDEM_TIMED_BETWEEN_EVENTS) || row->work.is_product != is_product) continue;
        const double ns = uncalibrated_ns(c, &row->work, 0, NULL), added = row->ns - ns;
        const double expected = tandem_events_ns(&c->constants, &row->work);
        if (ns > 0 && added > ns && added < 10 * expected) scratch[n++] = added / expected;
    }
    c->basis.n_events += (int64_t)n;
    return n > 0 ? tandem_median(scratch, n) : 0;
}

/* It is in no prediction. In front of products a host takes no less time than in front of streams. */
static void calibrate_events(tandem_calibration *c, double *scratch)
{
    double *const of_stream = &c->constants.value[TANDEM_CONSTANT_EVENTS],
                  *const of_product = &c->constants.value[TANDEM_CONSTANT_EVENTS_PRODUCT];
    const double stream = find_events(c, 0, scratch), product = find_events(c, 1, scratch);
    if (stream > 0) *of_stream *= stream;
    if (product > 0) *of_product *= product;
    if (stream > 0 && !(product > 0)) *of_product = fmax(*of_product, *of_stream);
}

/* --- Residuals ------------------------------------------------------------------------------------------ */

/* Tasks of another class, type or, of products, pass are too far to count. */
static void shape_of(double shape[TANDEM_N_SHAPE], const tandem_work *w, int is_other_kernel)
{
    const double far = 1e6, kernel = is_other_kernel ? 0.5 : 0;
    const double sides[] = {w->count, w->m, w->k, w->n, w->columns};
    enum { N_SIDE = sizeof sides / sizeof *sides };
    const double kinds[] = {far * w->work_class, far * (w->type + kernel), w->is_product ? far * w->pass : 0};
    _Static_assert(N_SIDE + sizeof kinds / sizeof *kinds == TANDEM_N_SHAPE, "every place is set");
    memcpy(&shape[N_SIDE], kinds, sizeof kinds);
    for (int i = 0; i < N_SIDE; i++) shape[i] = w->is_product ? log(fmax(1, sides[i])) : 0;
    if (!w->is_product) shape[0] = log(w->bytes), shape[1] = log(fmax(1, w->columns));
}

static double residual_at(const tandem_calibration *c, const tandem_work *work, int timed)
{
    double at[TANDEM_N_SHAPE];
    const int is_other_kernel = tandem_is_other_kernel(&c->device.gpu_spec, work, timed);
    shape_of(at, work, is_other_kernel);
    return (is_other_kernel ? 0 : c->class_mean[work->work_class]) +
           tandem_nearby_residual(c->near, c->n_near, &near_rule, at);
}

static void keep_nearby_rows(tandem_calibration *c)
{
    const size_t step = (c->n + MAX_NEAR - 1) / MAX_NEAR;
    for (size_t i = 0; i < c->n; i += step) {
        const calibration_row *const row = &c->row[i];
        const int is_other = tandem_is_other_kernel(&c->device.gpu_spec, &row->work, row->timed);
        if (isnan(row->residual)) continue;
        tandem_nearby *const neighbour = &c->near[c->n_near++];
        neighbour->residual = row->residual - (is_other ? 0 : c->class_mean[row->work.work_class]);
        neighbour->weight = 1;
        shape_of(neighbour->shape, &row->work, is_other);
    }
}

/* Rows that are mostly a launch say nothing of their class, and those mostly of events nothing at all. */
static void find_residuals(tandem_calibration *c, int *n_contradiction)
{
    double sum[TANDEM_N_WORK_CLASS] = {0}, n[TANDEM_N_WORK_CLASS] = {0};
    memset(c->n_own, 0, sizeof c->n_own);
    for (size_t i = 0; i < c->n; i++) {
        calibration_row *const row = &c->row[i];
        const double ns = uncalibrated_ns(c, &row->work, row->timed, NULL),
                     kernel_ns =
                         uncalibrated_ns(c, &row->work, row->timed & TANDEM_TIMED_BY_DOT_PRODUCTS, NULL) -
                         c->rates.launch_ns;
        const int is_telling = kernel_ns > overhead_ns(c, row),
                  is_other = tandem_is_other_kernel(&c->device.gpu_spec, &row->work, row->timed);
        row->is_telling = is_telling;
        row->residual = ns > 0 ? log(row->ns / ns) : NAN;
        if (row->timed & TANDEM_TIMED_BETWEEN_EVENTS && !is_telling) row->residual = NAN;
        if (fabs(row->residual) > log(3)) {
            ++*n_contradiction;
            row->residual = NAN;
        }
        if (isnan(row->residual)) continue;
        c->basis.n_near++;
        if (is_telling) c->n_own[row->work.work_class][rate_type(&row->work)][is_other]++;
        if (!is_telling || is_other) continue;
        sum[row->work.work_class] += row->residual;
        n[row->work.work_class]++;
    }
    for (int class = 0; class < TANDEM_N_WORK_CLASS; class ++)
        c->class_mean[class] = n[class] > 0 ? sum[class] / (n[class] + 2) : 0;
}

/* About what others' rows expect of them. A row that says little of its work says nothing of theirs. */
static tandem_status add_rows_about_others(tandem_calibration *c, tandem_error *error)
{
    const size_t step = (c->n + MAX_NEAR - 1) / MAX_NEAR;
    tandem_status status = TANDEM_OK;
    if (!c->others || !c->near) return TANDEM_OK;
    tandem_by_others_forget_own(c->others);
    for (size_t i = 0; i < c->n; i += step)
        tandem_by_others_note_events(c->others, &c->row[i].work, c->row[i].timed, c->row[i].ns);
    for (size_t i = 0; i < c->n && status == TANDEM_OK; i += step) {
        const calibration_row *const row = &c->row[i];
        if (isnan(row->residual) || !row->is_telling) continue;
        status = tandem_by_others_add_own(c->others, &row->work, row->timed, row->ns, error);
    }
    c->basis.n_contradicting += tandem_by_others_contradicting(c->others);
    return status;
}

tandem_status tandem_calibration_add_others(tandem_calibration *c, tandem_error *error)
{
    if (c->others) return TANDEM_OK;
    const tandem_status status =
        tandem_by_others_open(&c->others, tandem_measured_files(), &c->device, error);
    return status == TANDEM_OK ? add_rows_about_others(c, error) : status;
}

void tandem_calibration_finish(tandem_calibration *c, char notes[TANDEM_CALIBRATION_NOTES])
{
    const tandem_gpu_spec *const spec = &c->device.gpu_spec;
    double *const scratch = malloc((c->n + 1) * sizeof *scratch);
    int n_contradiction = 0, n_residual = 0;
    free(c->near);
    c->near = malloc((c->n + 1) * sizeof *c->near);
    c->n_near = 0;
    notes[0] = '\0';
    if (!scratch || !c->near) {
        free(scratch);
        (void)snprintf(notes, TANDEM_CALIBRATION_NOTES, "no memory to calibrate %s", c->device.name);
        return;
    }
    c->basis = (tandem_calibration_basis){.n_row = (int64_t)c->n};
    calibrate_events(c, scratch);
    (void)calibrate_one(c, &c->rates.bytes_per_s, spec->bytes_per_s, TANDEM_N_COMPUTE_DTYPE, scratch);
    for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++)
        if (spec->flops_per_s[t] > 0)
            n_contradiction += calibrate_one(c, &c->rates.flops_per_s[t], spec->flops_per_s[t], t, scratch);
    calibrate_launch(c, scratch);
    free(scratch);
    find_residuals(c, &n_residual);
    keep_nearby_rows(c);
    c->basis.n_contradicting = n_residual;
    if (add_rows_about_others(c, NULL) != TANDEM_OK)
        (void)snprintf(notes, TANDEM_CALIBRATION_NOTES, "no memory to calibrate %s", c->device.name);
    else if (n_residual > 0)
        (void)snprintf(notes, TANDEM_CALIBRATION_NOTES,
                       "%d of %zu rows contradict the datasheet of %s by more than 3 x and are left out",
                       n_residual, c->n, c->device.name);
    else if (n_contradiction > 0)
        (void)snprintf(notes, TANDEM_CALIBRATION_NOTES,
                       "%d of %zu rows need more than the peak of %s, or less than a third of what is "
                       "expected; no rate follows from them",
                       n_contradiction, c->n, c->device.name);
}

/* By what others measured of a task's kernel, and own rows about it; −1: nothing. */
static double others_ns(tandem_by_others_time *of, const tandem_calibration *c, const tandem_work *work,
                        int timed)
{
    return c->others ? tandem_by_others_ns(of, c->others, work, timed) : -1;
}

/* By the form and own rows. */
static double own_ns(tandem_kernel_time *time, const tandem_calibration *c, const tandem_work *work,
                     int timed)
{
    const int kernel = timed & TANDEM_TIMED_BY_DOT_PRODUCTS;
    if (uncalibrated_ns(c, work, kernel, time) < 0) return -1;
    if (c->n > 0)
        tandem_kernel_time_scale(time, fmax(time->least_ns, time->ns * exp(residual_at(c, work, kernel))));
    return time->ns;
}

double tandem_calibrated_ns(tandem_kernel_time *out, const tandem_calibration *c, const tandem_work *work)
{
    tandem_kernel_time time;
    tandem_by_others_time others = {.n_row = 0};
    if (others_ns(&others, c, work, 0) > 0)
        time = others.time;
    else if (own_ns(&time, c, work, 0) < 0)
        return -1;
    if (out) *out = time;
    return time.ns;
}

double tandem_calibrated_timed_ns(const tandem_calibration *c, const tandem_work *work, int timed)
{
    tandem_kernel_time time;
    tandem_by_others_time others = {.n_row = 0};
    if (others_ns(&others, c, work, timed) > 0) return others.timed_ns;
    const double ns = own_ns(&time, c, work, timed);
    return ns < 0 ? ns
                  : uncalibrated_ns(c, work, timed, NULL) * ns /
                        uncalibrated_ns(c, work, timed & TANDEM_TIMED_BY_DOT_PRODUCTS, NULL);
}

int64_t tandem_calibration_others(const tandem_calibration *c, const tandem_work *work, int timed)
{
    return c->others ? tandem_by_others_rows(c->others, work, timed) : 0;
}

int64_t tandem_calibration_own_about_others(const tandem_calibration *c, const tandem_work *work, int timed)
{
    return c->others ? tandem_by_others_own(c->others, work, timed) : 0;
}

double tandem_calibration_unknown(const tandem_calibration *c, const tandem_work *work, int timed)
{
    tandem_by_others_time of;
    return c->others && tandem_by_others_ns(&of, c->others, work, timed) > 0 ? of.unknown : 1;
}

tandem_evidence tandem_calibration_evidence(const tandem_calibration *c, const tandem_work *work)
{
    const int kernel = TANDEM_TIMED_BY_DOT_PRODUCTS;
    if (tandem_calibration_others(c, work, 0) > 0) return TANDEM_EVIDENCE_OTHERS;
    if (!work->is_product || !tandem_is_other_kernel(&c->device.gpu_spec, work, kernel) ||
        own_rows(c, work, 0) > 0)
        return TANDEM_EVIDENCE_DESCRIPTION;
    return tandem_calibration_others(c, work, kernel) > 0 || own_rows(c, work, kernel) > 0
               ? TANDEM_EVIDENCE_OTHER_KERNEL
               : TANDEM_EVIDENCE_DESCRIPTION;
}

int tandem_calibration_form_group(const tandem_calibration *c, const tandem_work *work)
{
    const tandem_evidence source = tandem_calibration_evidence(c, work);
    const int kernel =
        source == TANDEM_EVIDENCE_OTHERS ? tandem_others_kernel(&c->device.gpu_spec, work, 0) : 0;
    return (int)tandem_spread_group_of(work, &c->device.gpu_spec) +
           (int)TANDEM_N_SPREAD_GROUP * ((int)source + (int)TANDEM_N_EVIDENCE * kernel);
}

double tandem_calibration_own_spread(const tandem_calibration *c, const tandem_work *work, int timed)
{
    const double fitted = tandem_spread_fitted(tandem_spread_group_of(work, &c->device.gpu_spec))->own;
    if (tandem_calibration_others(c, work, timed) == 0) return fitted;
    const double spread = tandem_by_others_spread(c->others, work, timed);
    return spread > 0 ? spread : fitted;
}

/* As if the errors of both times had nothing in common. */
static tandem_ratio_spread independent_spread(const tandem_calibration *c, const tandem_work *a,
                                              const tandem_work *b)
{
    const int is_measured = c->n > 0;
    return (tandem_ratio_spread){
        hypot(tandem_evidence_spread_shared(tandem_calibration_form_group(c, a), is_measured),
              tandem_evidence_spread_shared(tandem_calibration_form_group(c, b), is_measured)),
        hypot(tandem_calibration_own_spread(c, a, 0), tandem_calibration_own_spread(c, b, 0)), 0};
}

static tandem_ratio_spread described_ratio_spread(const tandem_calibration *c, tandem_ratio_group group)
{
    const tandem_ratio_fit *const fit = tandem_ratio_fitted(group);
    const double device = c->n > 0 ? 0 : tandem_device_ratio_fitted(&c->device.gpu_spec)->shared;
    return (tandem_ratio_spread){hypot(fit->spread.shared, device), fit->spread.own, fit->spread.n_shape};
}

/* What own rows leave of it: a ratio is known where both times are. */
static tandem_ratio_spread narrowed(tandem_ratio_spread spread, const tandem_calibration *c,
                                    const tandem_work *a, const tandem_work *b)
{
    if (c->n == 0) return spread;
    const double unknown =
        hypot(tandem_calibration_unknown(c, a, 0), tandem_calibration_unknown(c, b, 0)) / sqrt(2);
    return (tandem_ratio_spread){unknown * spread.shared, unknown * spread.own, spread.n_shape};
}

tandem_ratio_spread tandem_calibration_ratio_spread(const tandem_calibration *c, const tandem_work *narrow,
                                                    const tandem_work *wide)
{
    const int by_others =
        (tandem_calibration_others(c, narrow, 0) > 0) + (tandem_calibration_others(c, wide, 0) > 0);
    const tandem_ratio_group group = tandem_ratio_group_of(narrow, wide);
    tandem_ratio_spread spread = {NAN, NAN, 0};
    if (by_others == 2) spread = tandem_by_others_ratio_spread(c->others, narrow, wide, 0);
    if (by_others == 0 && group != TANDEM_N_RATIO_GROUP && tandem_ratio_fitted(group)->spread.n_shape > 0)
        return described_ratio_spread(c, group);
    if (isnan(spread.own)) spread = independent_spread(c, narrow, wide);
    return narrowed(spread, c, narrow, wide);
}

int tandem_calibrated_ratio(tandem_time_ratio *out, const tandem_calibration *c, const tandem_work *narrow,
                            const tandem_work *wide)
{
    const double z80 = 1.2816, a = tandem_calibrated_ns(NULL, c, narrow),
                 b = tandem_calibrated_ns(NULL, c, wide);
    if (!(a > 0) || !(b > 0)) return 0;
    const tandem_ratio_spread spread = tandem_calibration_ratio_spread(c, narrow, wide);
    const double factor = exp(z80 * hypot(spread.shared, spread.own));
    *out = (tandem_time_ratio){a / b, a / b / factor, a / b * factor, spread};
    return 1;
}

tandem_status tandem_calibration_check_others(const tandem_calibration *c, tandem_error *error)
{
    return c && c->others && tandem_by_others_lacks_memory(c->others)
               ? tandem_no_memory(error, "for what others measured of %s", c->device.name)
               : TANDEM_OK;
}

int64_t tandem_calibration_kernel_rows(const tandem_calibration *c, int kernel)
{
    return c->others ? tandem_by_others_kernel_rows(c->others, kernel) : 0;
}

int64_t tandem_calibration_others_count(const tandem_calibration *c)
{
    return c->others ? tandem_by_others_count(c->others) : 0;
}

const tandem_device *tandem_calibration_device(const tandem_calibration *c) { return &c->device; }

const tandem_reached_rates *tandem_calibration_rates(const tandem_calibration *calibration)
{
    return &calibration->rates;
}

const tandem_calibration_basis *tandem_calibration_basis_of(const tandem_calibration *calibration)
{
    return &calibration->basis;
}

int64_t tandem_calibration_row_count(const tandem_calibration *calibration)
{
    return (int64_t)calibration->n;
}
