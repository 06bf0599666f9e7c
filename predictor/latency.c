/* latency.c: predicts times of tasks that were never measured, from measured ones on the same device.
 *
 * Tasks of a group take
 *
 *   time = c₀ + c₁·flops + c₂·bytes        products of matrices
 *   time = c₀ + c₂·bytes                   all other tasks
 *
 * with coefficients ≥ 0: the roofline's three terms (launch, rate, bandwidth) as a sum, so that they can be
 * fitted, by robust regression of relative errors (tandem_robust_fit). The group is the first of these that
 * holds enough sizes:
 *
 *   level 0   the same kind of operator, pass, dtype that it multiplies in, and dtype of its result
 *   level 1   the same with any dtype of the result
 *   level 2   products of the same pass and dtype; all tasks that are no products
 *   level 3   products of the same dtype
 *
 * Enough are 6 sizes of a product and 2 of other tasks. With fewer, one special kind (a first convolution
 * with one channel) would decide for all. A described device has no levels 2 and 3: it takes its description
 * instead (predictor/kernel_time.c), calibrated by what was measured (predictor/calibrate.c).
 *
 * On models that were left out of the fit, half of the single times were off by less than 5 to 20 %. A
 * regression of log time on log(flops) and log(bytes) in the same groups was off by 20 to 50 %.
 * bench/predict.sh prints the errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/advanced/predictor.h"

enum { N_LEVEL = 4, N_TERM = 3, MAX_ROWS = 512, PRODUCT_SIZES = 6, STREAM_SIZES = 2 };

/* What the tasks of a group have in common; −1 or NULL: nothing at its level. */
typedef struct task_group {
    int level;
    const char *kind;
    int is_product, pass, from, to;
} task_group;

typedef struct cost_sample {
    task_group own, group; /* at level 0; at the current level */
    double flops, bytes, ns;
} cost_sample;

typedef struct group_fit {
    task_group group;
    double coefficient[N_TERM], spread;
} group_fit;

struct tandem_latency {
    tandem_device device;
    group_fit *fit; /* [n_fit], sorted by group */
    size_t n_fit;
    tandem_calibration *calibration; /* of a described device */
    int64_t n_sample;
};

/* --- Groups ------------------------------------------------------------------------------------- */

/* At level 0. The "pass" of a cast is the source of its range, and whether it writes a transposed copy. */
static task_group group_of_task(const tandem_cost_key *key, const tandem_work *work)
{
    const int pass = key->kind == TANDEM_COST_CAST
                         ? (int)key->range_source + TANDEM_N_RANGE_SOURCE * key->transposed_copy
                         : (int)key->pass;
    return (task_group){0, work->kind, work->is_product, pass, (int)work->type, (int)key->to};
}

static task_group widen_group(task_group group, int level)
{
    group.level = level;
    if (level >= 1) group.to = -1;
    if (level >= 2) group.kind = NULL;
    if (level >= 2 && !group.is_product) group.pass = group.from = -1;
    if (level >= 3) group.pass = -1;
    return group;
}

static int compare_groups(const void *a, const void *b)
{
    const task_group *x = a, *y = b;
    if (x->level != y->level) return x->level < y->level ? -1 : 1;
    const int kind = strcmp(x->kind ? x->kind : "", y->kind ? y->kind : "");
    if (kind != 0) return kind;
    if (x->is_product != y->is_product) return x->is_product < y->is_product ? -1 : 1;
    if (x->pass != y->pass) return x->pass < y->pass ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* By group, and by size within it. */
static int compare_cost_samples(const void *a, const void *b)
{
    const cost_sample *x = a, *y = b;
    const int group = compare_groups(&x->group, &y->group);
    if (group != 0) return group;
    if (x->bytes < y->bytes || x->bytes > y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->flops < y->flops || x->flops > y->flops) return x->flops < y->flops ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static size_t count_sizes(const cost_sample *s, size_t n)
{
    size_t sizes = 1;
    for (size_t i = 1; i < n; i++) sizes += s[i].bytes > s[i - 1].bytes || s[i].flops > s[i - 1].flops;
    return sizes;
}

/* --- Fitting ------------------------------------------------------------------------------------ */

static void regression_terms(double term[N_TERM], int is_product, double flops, double bytes)
{
    term[0] = 1;
    term[1] = is_product ? flops : 0;
    term[2] = bytes;
}

static double fitted_ns(const group_fit *fit, double flops, double bytes)
{
    double term[N_TERM], ns = 0;
    regression_terms(term, fit->group.is_product, flops, bytes);
    for (int k = 0; k < N_TERM; k++) ns += fit->coefficient[k] * term[k];
    return ns;
}

/* Fits one group, from at most MAX_ROWS evenly spaced samples. */
static tandem_status fit_group(group_fit *fit, const cost_sample *s, size_t n, tandem_error *error)
{
    const size_t step = (n + MAX_ROWS - 1) / MAX_ROWS;
    double x[MAX_ROWS * N_TERM], y[MAX_ROWS];
    size_t rows = 0;
    for (size_t i = 0; i < n; i += step, rows++) {
        regression_terms(&x[rows * N_TERM], s[i].group.is_product, s[i].flops, s[i].bytes);
        y[rows] = s[i].ns;
    }
    fit->group = s[0].group;
    return tandem_robust_fit(fit->coefficient, &fit->spread, x, y, rows, N_TERM, error);
}

/* Fits all groups of a level that hold enough sizes, and appends them. */
static tandem_status fit_level(tandem_latency *latency, cost_sample *s, size_t n, int level,
                               tandem_error *error)
{
    if (n == 0) return TANDEM_OK;
    for (size_t i = 0; i < n; i++) s[i].group = widen_group(s[i].own, level);
    qsort(s, n, sizeof *s, compare_cost_samples);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && compare_groups(&s[i].group, &s[end].group) == 0; end++) {
        }
        if (count_sizes(&s[i], end - i) < (s[i].group.is_product ? PRODUCT_SIZES : STREAM_SIZES)) continue;
        group_fit *more = realloc(latency->fit, (latency->n_fit + 1) * sizeof *more);
        if (!more) return tandem_no_memory(error, "to fit %zu measured times", n);
        latency->fit = more;
        const tandem_status status = fit_group(&more[latency->n_fit], &s[i], end - i, error);
        if (status != TANDEM_OK) return status;
        latency->n_fit++;
    }
    return TANDEM_OK;
}

/* --- Predicting --------------------------------------------------------------------------------- */

static const group_fit *find_fit(const tandem_latency *latency, const task_group *own)
{
    const int n_level = tandem_device_is_described(&latency->device) ? 2 : N_LEVEL;
    for (int level = 0; level < n_level && latency->n_fit > 0; level++) {
        const group_fit wanted = {.group = widen_group(*own, level)};
        const group_fit *found =
            bsearch(&wanted, latency->fit, latency->n_fit, sizeof *found, compare_groups);
        if (found) return found;
    }
    return NULL;
}
_Static_assert(offsetof(group_fit, group) == 0, "compare_groups compares fits");

int64_t tandem_latency_ns_by_group(const tandem_latency *latency, const tandem_cost_key *key, double *spread,
                                   int *form_group)
{
    tandem_work work;
    if (!tandem_work_of(&work, key)) return -1;
    const task_group own = group_of_task(key, &work);
    const group_fit *fit = find_fit(latency, &own);
    double ns = -1;
    if (fit)
        ns = fitted_ns(fit, work.flops, work.bytes);
    else if (tandem_device_is_described(&latency->device))
        ns = tandem_calibrated_ns(NULL, latency->calibration, &work);
    if (!(ns >= 0) || ns > 1e18) return -1;
    if (spread) *spread = fit ? fit->spread : NAN;
    if (form_group) *form_group = fit ? -1 : (int)tandem_spread_group_of(&work, &latency->device.gpu_spec);
    return ns > 1 ? llround(ns) : 1;
}

int64_t tandem_latency_ns(const tandem_latency *latency, const tandem_cost_key *key, double *spread)
{
    return tandem_latency_ns_by_group(latency, key, spread, NULL);
}

const tandem_calibration *tandem_latency_calibration(const tandem_latency *latency)
{
    return latency->calibration;
}

int64_t tandem_latency_fitted(const tandem_latency *latency) { return latency->n_sample; }

int64_t tandem_latency_contradicting(const tandem_latency *latency)
{
    return latency->calibration ? tandem_calibration_basis_of(latency->calibration)->n_contradicting : 0;
}

/* --- Opening ------------------------------------------------------------------------------------ */

typedef struct samples {
    cost_sample *one;
    tandem_work *work; /* of each */
    size_t n, room;
} samples;

static tandem_status collect_sample(void *context, const tandem_cost_key *key, const tandem_cost *cost,
                                    tandem_error *error)
{
    samples *all = context;
    tandem_work work;
    const double ns = cost->sum_ns / (double)cost->n;
    if (!tandem_work_of(&work, key) || !(ns > 0)) return TANDEM_OK;
    if (all->n == all->room) {
        const size_t room = all->room ? 2 * all->room : 1024;
        cost_sample *more = realloc(all->one, room * sizeof *more);
        if (more) all->one = more;
        tandem_work *more_work = realloc(all->work, room * sizeof *more_work);
        if (more_work) all->work = more_work;
        if (!more || !more_work) return tandem_no_memory(error, "for measured times");
        all->room = room;
    }
    all->work[all->n] = work;
    all->one[all->n++] =
        (cost_sample){.own = group_of_task(key, &work), .flops = work.flops, .bytes = work.bytes, .ns = ns};
    return TANDEM_OK;
}

static tandem_status calibrate_description(tandem_latency *latency, const samples *all, tandem_store *store,
                                           tandem_error *error)
{
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_status status = tandem_calibration_open(&latency->calibration, &latency->device, error);
    for (size_t i = 0; i < all->n && status == TANDEM_OK; i++)
        status = tandem_calibration_add(latency->calibration, &all->work[i], all->one[i].ns, 0, error);
    if (status == TANDEM_OK && store)
        status = tandem_calibration_add_stored(latency->calibration, store, error);
    if (status == TANDEM_OK) tandem_calibration_finish(latency->calibration, notes);
    return status;
}

static tandem_status collect_samples(samples *all, tandem_store *store, const tandem_device *device,
                                     const char *co_runner, tandem_error *error)
{
    if (!store) return TANDEM_OK;
    tandem_status status =
        tandem_store_visit_costs(store, device->name, co_runner, NULL, collect_sample, all, error);
    if (status == TANDEM_OK && all->n == 0 && co_runner[0])
        status = tandem_store_visit_costs(store, device->name, "", NULL, collect_sample, all, error);
    return status;
}

tandem_status tandem_latency_open(tandem_latency **out, const tandem_device *device, const char *co_runner,
                                  tandem_store *store, tandem_error *error)
{
    samples all = {0};
    const int is_described = tandem_device_is_described(device);
    tandem_latency *latency = calloc(1, sizeof *latency);
    if (!latency) return tandem_no_memory(error, "to predict times on %s", device->name);
    latency->device = *device;
    tandem_status status = collect_samples(&all, store, device, co_runner, error);
    if (status == TANDEM_OK && all.n == 0 && !is_described)
        status = tandem_error_set(error, TANDEM_MISSING,
                                  "nothing has been measured on %s, and it is no described device, so that "
                                  "no time on it can be "
                                  "predicted; `tandem profile --device %s` with any model measures it",
                                  device->name, device->name);
    if (status == TANDEM_OK && is_described) status = calibrate_description(latency, &all, store, error);
    for (int level = 0; level < (is_described ? 2 : N_LEVEL) && status == TANDEM_OK; level++)
        status = fit_level(latency, all.one, all.n, level, error);
    latency->n_sample = (int64_t)all.n;
    if (status == TANDEM_OK && is_described)
        latency->n_sample = tandem_calibration_row_count(latency->calibration);
    free(all.work);
    free(all.one);
    if (status == TANDEM_OK)
        *out = latency;
    else
        tandem_latency_close(latency);
    return status;
}

void tandem_latency_close(tandem_latency *latency)
{
    if (!latency) return;
    tandem_calibration_close(latency->calibration);
    free(latency->fit);
    free(latency);
}
