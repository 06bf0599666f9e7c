/* latency.c: predicts times of tasks that were never measured, from measured ones on the same device.
 *
 * Tasks of a group take
 *
 *   products   c₀ + c₁·flops + c₂·bytes of the first operand + c₃·of the second + c₄·of the result
 *   others     c₀ + c₁·bytes + c₂…₄·bytes past a level of the cache + c₅·rows
 *
 * with coefficients ≥ 0: the roofline's terms (launch, rate, bandwidths) as a sum, so that they can be
 * fitted, by robust regression of relative errors (tandem_robust_fit). Products of (m, k) and (k, n) that
 * have a part of each side on top, (m + m₀)(k + k₀)(n + n₀), are such a sum: what tiles, packing and loops
 * cost. A product's columns count as whole vectors. A convolution is a product of windows (im2col); kernels
 * of other algorithms are groups of their own. The group is the first of these that holds enough sizes:
 *
 *   level 0   the same kind of operator, variant (predictor/task_terms.c), pass, dtype that it multiplies in,
 *             and dtype of its result
 *   level 1   the same with any variant
 *   level 2   and any dtype of the result
 *   level 3   products of the same pass and dtype; all tasks that are no products
 *   level 4   products of the same dtype
 *
 * Enough are 6 sizes of a product and 2 of other tasks. With fewer, one special kind (a first convolution
 * with one channel) would decide for all. Groups of few sizes have only the terms launch, flops and bytes.
 * A described device has no levels 3 and 4: it takes its description instead (predictor/kernel_time.c),
 * calibrated by what was measured (predictor/calibrate.c).
 *
 * In groups of one kind and many sizes, a task then follows what tasks near to it took about their group's
 * sum (predictor/nearby.c). bench/predict.sh prints the errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predictor/form.h"
#include "tandem/advanced/predictor.h"

enum {
    N_LEVEL = 5,
    N_LEVEL_DESCRIBED = 3,
    MAX_ROWS = 512,   /* of a regression */
    MAX_NEAR = 2048,  /* rows whose residuals count */
    SPREAD_ROWS = 16, /* for the spread of predictions */
    PRODUCT_SIZES = 6,
    STREAM_SIZES = 2,
    ALL_TERMS_SIZES = 24
};

static const tandem_nearby_rule near_rule = {
    .width = 0.2, .floor = 0.2, .reach = 1.5, .agreement = 0.15, .n_nearest = 8};

/* What the tasks of a group have in common; −1 or NULL: nothing at its level. */
typedef struct task_group {
    int level;
    const char *kind;
    int is_product, variant, pass, from, to;
} task_group;

typedef struct cost_sample {
    task_group own, group; /* at level 0; at the current level */
    tandem_task_terms of;
    double ns, weight;
} cost_sample;

typedef struct group_fit {
    task_group group;
    int has_all_terms;
    double coefficient[TANDEM_N_TERM], spread;
    tandem_nearby *near; /* [n_near]; NULL = the group has several kinds, or few sizes */
    size_t n_near;
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
static task_group group_of_task(const tandem_cost_key *key, const tandem_work *work, int variant)
{
    const int pass = key->kind == TANDEM_COST_CAST
                         ? (int)key->range_source + TANDEM_N_RANGE_SOURCE * key->transposed_copy
                         : (int)key->pass;
    return (task_group){0, work->kind, work->is_product, variant, pass, (int)work->type, (int)key->to};
}

static task_group widen_group(task_group group, int level)
{
    group.level = level;
    if (level >= 1) group.variant = -1;
    if (level >= 2) group.to = -1;
    if (level >= 3) group.kind = NULL;
    if (level >= 3 && !group.is_product) group.pass = group.from = -1;
    if (level >= 4) group.pass = -1;
    return group;
}

static int compare_ints(int a, int b) { return (a > b) - (a < b); }

static int compare_groups(const void *a, const void *b)
{
    const task_group *x = a, *y = b;
    const int level = compare_ints(x->level, y->level);
    if (level != 0) return level;
    const int kind = strcmp(x->kind ? x->kind : "", y->kind ? y->kind : "");
    if (kind != 0) return kind;
    const int of[] = {compare_ints(x->is_product, y->is_product), compare_ints(x->variant, y->variant),
                      compare_ints(x->pass, y->pass), compare_ints(x->from, y->from)};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i] != 0) return of[i];
    return compare_ints(x->to, y->to);
}

/* By group, and by size within it. */
static int compare_cost_samples(const void *a, const void *b)
{
    const cost_sample *x = a, *y = b;
    const int group = compare_groups(&x->group, &y->group);
    if (group != 0) return group;
    const tandem_task_terms *const p = &x->of, *const q = &y->of;
    if (p->bytes < q->bytes || p->bytes > q->bytes) return p->bytes < q->bytes ? -1 : 1;
    if (p->flops < q->flops || p->flops > q->flops) return p->flops < q->flops ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static size_t count_sizes(const cost_sample *s, size_t n)
{
    size_t sizes = 1;
    for (size_t i = 1; i < n; i++)
        sizes += s[i].of.bytes > s[i - 1].of.bytes || s[i].of.flops > s[i - 1].of.flops;
    return sizes;
}

/* --- Fitting ------------------------------------------------------------------------------------ */

/* The terms that a group is fitted with: all, or launch, FLOPs of products, and bytes. */
static void regression_terms(double term[TANDEM_N_TERM], const group_fit *fit, const tandem_task_terms *terms)
{
    const double few[TANDEM_N_TERM] = {1, fit->group.is_product ? terms->flops : 0, terms->bytes};
    memcpy(term, fit->has_all_terms ? terms->term : few, sizeof few);
}

static double fitted_ns(const group_fit *fit, const tandem_task_terms *terms)
{
    double term[TANDEM_N_TERM], ns = 0;
    regression_terms(term, fit, terms);
    for (int k = 0; k < TANDEM_N_TERM; k++) ns += fit->coefficient[k] * term[k];
    return ns;
}

static double near_ns(const group_fit *fit, const tandem_task_terms *terms)
{
    const double ns = fitted_ns(fit, terms);
    return fit->near ? ns * exp(tandem_nearby_residual(fit->near, fit->n_near, &near_rule, terms->shape))
                     : ns;
}

/* How far rows are off that count in no prediction of their own: the median over 0.6745. */
static double spread_around(group_fit *fit, const cost_sample *s, size_t n, size_t step)
{
    double off[SPREAD_ROWS];
    size_t rows = 0;
    const size_t every = (fit->n_near + SPREAD_ROWS - 1) / SPREAD_ROWS;
    for (size_t i = 0; i < fit->n_near && i * step < n; i += every) {
        const double kept = fit->near[i].weight;
        fit->near[i].weight = 0;
        off[rows++] = fabs(near_ns(fit, &s[i * step].of) / s[i * step].ns - 1);
        fit->near[i].weight = kept;
    }
    return rows > 0 ? tandem_median(off, rows) / 0.6745 : fit->spread;
}

/* Residuals of all that a prediction of the group follows. */
static tandem_status keep_nearby(group_fit *fit, const cost_sample *s, size_t n, size_t step,
                                 tandem_error *error)
{
    fit->near = malloc(((n + step - 1) / step) * sizeof *fit->near);
    if (!fit->near) return tandem_no_memory(error, "to fit %zu measured times", n);
    for (size_t i = 0; i < n; i += step) {
        tandem_nearby *const neighbour = &fit->near[fit->n_near++];
        const double residual = log(s[i].ns / fitted_ns(fit, &s[i].of));
        neighbour->residual = isfinite(residual) ? residual : 0;
        neighbour->weight = s[i].weight;
        memcpy(neighbour->shape, s[i].of.shape, sizeof neighbour->shape);
    }
    fit->spread = spread_around(fit, s, n, step);
    return TANDEM_OK;
}

/* Fits one group, from at most MAX_ROWS evenly spaced samples. */
static tandem_status fit_group(group_fit *fit, const cost_sample *s, size_t n, size_t n_size,
                               tandem_error *error)
{
    const size_t step = (n + MAX_ROWS - 1) / MAX_ROWS;
    double x[MAX_ROWS * TANDEM_N_TERM], y[MAX_ROWS];
    size_t rows = 0;
    *fit = (group_fit){.group = s[0].group, .has_all_terms = n_size >= ALL_TERMS_SIZES};
    for (size_t i = 0; i < n; i += step, rows++) {
        regression_terms(&x[rows * TANDEM_N_TERM], fit, &s[i].of);
        y[rows] = s[i].ns;
    }
    const tandem_status status =
        tandem_robust_fit(fit->coefficient, &fit->spread, x, y, rows, TANDEM_N_TERM, error);
    return status == TANDEM_OK && fit->group.kind && fit->has_all_terms
               ? keep_nearby(fit, s, n, (n + MAX_NEAR - 1) / MAX_NEAR, error)
               : status;
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
        const size_t n_size = count_sizes(&s[i], end - i);
        if (n_size < (s[i].group.is_product ? PRODUCT_SIZES : STREAM_SIZES)) continue;
        group_fit *more = realloc(latency->fit, (latency->n_fit + 1) * sizeof *more);
        if (!more) return tandem_no_memory(error, "to fit %zu measured times", n);
        latency->fit = more;
        const tandem_status status = fit_group(&more[latency->n_fit], &s[i], end - i, n_size, error);
        latency->n_fit++;
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* --- Predicting --------------------------------------------------------------------------------- */

static const group_fit *find_fit(const tandem_latency *latency, const task_group *own_group)
{
    const int n_level = tandem_device_is_described(&latency->device) ? N_LEVEL_DESCRIBED : N_LEVEL;
    for (int level = 0; level < n_level && latency->n_fit > 0; level++) {
        const group_fit wanted = {.group = widen_group(*own_group, level)};
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
    tandem_task_terms terms;
    if (!tandem_work_of(&work, key)) return -1;
    tandem_task_terms_of(&terms, &work, key, latency->device.name);
    const task_group own_group = group_of_task(key, &work, terms.variant);
    const group_fit *fit = find_fit(latency, &own_group);
    double ns = -1;
    if (fit)
        ns = near_ns(fit, &terms);
    else if (tandem_device_is_described(&latency->device))
        ns = tandem_calibrated_ns(NULL, latency->calibration, &work);
    if (!(ns >= 0) || ns > 1e18) return -1;
    if (spread) *spread = fit ? fit->spread : NAN;
    if (form_group) *form_group = fit ? -1 : tandem_calibration_form_group(latency->calibration, &work);
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

int64_t tandem_latency_kernel_rows(const tandem_latency *latency, int kernel)
{
    return latency->calibration ? tandem_calibration_kernel_rows(latency->calibration, kernel) : 0;
}

int64_t tandem_latency_contradicting(const tandem_latency *latency)
{
    return latency->calibration ? tandem_calibration_basis_of(latency->calibration)->n_contradicting : 0;
}

/* --- Opening ------------------------------------------------------------------------------------ */

typedef struct samples {
    const char *device;
    cost_sample *one;
    tandem_work *work; /* of each */
    size_t n, room;
} samples;

static tandem_status collect_sample(void *context, const tandem_cost_key *key, const tandem_cost *cost,
                                    tandem_error *error)
{
    samples *all = context;
    tandem_work work;
    const double ns = cost->median_ns > 0 ? (double)cost->median_ns : cost->sum_ns / (double)cost->n;
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
    cost_sample *const sample = &all->one[all->n];
    *sample = (cost_sample){.ns = ns};
    sample->weight = (double)cost->n / ((double)cost->n + 2); /* few repetitions say less */
    tandem_task_terms_of(&sample->of, &work, key, all->device);
    sample->own = group_of_task(key, &work, sample->of.variant);
    all->work[all->n++] = work;
    return TANDEM_OK;
}

static tandem_status calibrate_description(tandem_latency *latency, const samples *all, tandem_store *store,
                                           int with_others, tandem_error *error)
{
    char notes[TANDEM_CALIBRATION_NOTES];
    tandem_status status = tandem_calibration_open(&latency->calibration, &latency->device, error);
    for (size_t i = 0; i < all->n && status == TANDEM_OK; i++)
        status = tandem_calibration_add(latency->calibration, &all->work[i], all->one[i].ns, 0, error);
    if (status == TANDEM_OK && store)
        status = tandem_calibration_add_stored(latency->calibration, store, error);
    if (status == TANDEM_OK) tandem_calibration_finish(latency->calibration, notes);
    if (status == TANDEM_OK && with_others)
        status = tandem_calibration_add_others(latency->calibration, error);
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

static tandem_status open_latency(tandem_latency **out, const tandem_device *device, const char *co_runner,
                                  tandem_store *store, int with_others, tandem_error *error)
{
    samples all = {.device = device->name};
    const int is_described = tandem_device_is_described(device);
    tandem_latency *latency = calloc(1, sizeof *latency);
    if (!latency) return tandem_no_memory(error, "to predict times on %s", device->name);
    latency->device = *device;
    tandem_status status = collect_samples(&all, store, device, co_runner, error);
    if (status == TANDEM_OK && all.n == 0 && !is_described)
        status = tandem_error_set(error, TANDEM_MISSING,
                                  "nothing has been measured on %s, and it is no described device, so that "
                                  "no time on it can be predicted; `tandem profile --device %s --sweep` "
                                  "measures it, or with any --model",
                                  device->name, device->name);
    if (status == TANDEM_OK && is_described)
        status = calibrate_description(latency, &all, store, with_others, error);
    for (int level = 0; level < (is_described ? N_LEVEL_DESCRIBED : N_LEVEL) && status == TANDEM_OK; level++)
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

tandem_status tandem_latency_open(tandem_latency **latency, const tandem_device *device,
                                  const char *co_runner, tandem_store *store, tandem_error *error)
{
    return open_latency(latency, device, co_runner, store, 1, error);
}

tandem_status tandem_latency_open_described(tandem_latency **latency, const tandem_device *device,
                                            const char *co_runner, tandem_store *store, tandem_error *error)
{
    return open_latency(latency, device, co_runner, store, 0, error);
}

void tandem_latency_close(tandem_latency *latency)
{
    if (!latency) return;
    tandem_calibration_close(latency->calibration);
    for (size_t i = 0; i < latency->n_fit; i++) free(latency->fit[i].near);
    free(latency->fit);
    free(latency);
}
