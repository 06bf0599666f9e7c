/* estimate.c: replicates of what every operator in every precision changes of the gradient.
 *
 * For one operator in one precision, all others in fp32, an emulated executor takes the gradients of the two
 * batches of each replicate. Weights round alike in both; activations and gradients draw again. */
#include "runtime/estimate/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/plain_text.h"
#include "runtime/estimate/estimate_probe.h"
#include "tandem/advanced/recipe.h"

enum { MAX_HALVINGS = 40 }; /* of a dynamic loss scale, until a step is not skipped */

typedef struct estimating_run {
    const tandem_workload *workload;
    tandem_graph *estimated; /* its model at the batch that is estimated */
    const tandem_train_request *training;
    const estimate_request *request;
    tandem_emulation emulation; /* but its seed */
    unsigned precisions;        /* that are estimated, 1 << tandem_precision */
    training_rank *rank;        /* its weights are estimated */
    tandem_estimate *estimate;
    int point_index, n_cell, n_cell_done, n_wide_cell; /* n_wide_cell: of a training point */
    int64_t first_batch;                               /* index of the training point's first batch */
    int64_t n_weight, n_padded;
    float *weight;                               /* [n_flat] at the training point */
    float *metric;                               /* [n_padded], as all below: numbers after n_weight are 0 */
    float **exact;                               /* [2 · n_replicate] of every batch, in fp32 */
    float **mean;                                /* [n_replicate] of a cell: ½(d₁ + d₂) */
    float *d[2];                                 /* of a replicate */
    double *sum;                                 /* over replicates, of `mean` */
    double *gradient_sum;                        /* of the means of exact */
    double exact_loss[2 * TANDEM_MAX_REPLICATE]; /* of every batch, in fp32 */
    double loss_rise;                            /* of a replicate: of its two batches, the mean */
    int64_t begin_ns;
} estimating_run;

/* --- Training points ------------------------------------------------------------------------------------ */

tandem_status estimate_points_parse(int64_t point[TANDEM_MAX_TRAINING_POINT], int *n_point, const char *text,
                                    int64_t steps, tandem_error *error)
{
    int n = 0;
    for (const char *at = text; *at;) {
        char *end = NULL;
        const double number = tandem_plain_read(at, &end);
        const int is_share = *end == '%',
                  is_number = end > at && number >= 0 && number <= (is_share ? 100 : 1e9);
        const char *next = end + is_share;
        const int64_t step = is_number ? (int64_t)(is_share ? (double)steps * number / 100 : number) : -1;
        if (!is_number || (*next && *next != ',') || step > steps || (n > 0 && step <= point[n - 1]) ||
            n == TANDEM_MAX_TRAINING_POINT)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "--at takes up to %d ascending training points of the %lld steps of --steps, such as "
                "0,10%%,50%% or 0,200; got '%.60s' in '%.60s'",
                TANDEM_MAX_TRAINING_POINT, (long long)steps, at, text);
        point[n++] = step;
        at = next + (*next == ',');
    }
    *n_point = n;
    return n > 0 ? TANDEM_OK
                 : tandem_error_set(error, TANDEM_USAGE, "--at takes at least one training point, such as 0");
}

tandem_status estimate_choose_points(estimate_request *to, const char *at, int64_t steps, tandem_error *error)
{
    const int64_t early = steps / 2, late = steps * 9 / 10;
    tandem_estimate kept = {0};
    to->point[0] = early;
    to->point[1] = late;
    to->n_point = late > early ? 2 : 1;
    tandem_status status = at ? estimate_points_parse(to->point, &to->n_point, at, steps, error) : TANDEM_OK;
    if (status == TANDEM_OK) status = tandem_estimate_open(&kept, 1, to->n_point, to->n_replicate, error);
    tandem_estimate_close(&kept);
    return status;
}

/* --- Gradients ------------------------------------------------------------------------------------------ */

tandem_status estimate_copy_gradient(float *gradient, const tandem_backend_api *backend,
                                     const tandem_executor *executor, const tandem_graph *graph,
                                     tandem_error *error)
{
    for (int p = 0; p < graph->n_parameter; p++) {
        const int64_t n = graph->parameter[p].elements;
        const float *of = backend->executor_value(executor, TANDEM_PARAMETER(p), 1, NULL);
        if (!of) return tandem_no_memory(error, "to read a gradient");
        memcpy(gradient, of, (size_t)n * sizeof *gradient);
        gradient += n;
    }
    return TANDEM_OK;
}

/* Products are in the metric: Σ m·a·b. Each has LANES sums in a fixed order, so that additions overlap. */
enum { LANES = 8 };

static double sum_of_lanes(const double lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* ⟨a, a⟩, ⟨b, b⟩ and ⟨a, b⟩ */
typedef struct pair_products {
    double aa, bb, ab;
} pair_products;

static pair_products products_of_pair(const estimating_run *run, const float *a, const float *b)
{
    double aa[LANES] = {0}, bb[LANES] = {0}, ab[LANES] = {0};
    for (int64_t i = 0; i < run->n_padded; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double x = (double)a[i + k], y = (double)b[i + k], m = (double)run->metric[i + k];
            aa[k] += m * x * x;
            bb[k] += m * y * y;
            ab[k] += m * x * y;
        }
    return (pair_products){sum_of_lanes(aa), sum_of_lanes(bb), sum_of_lanes(ab)};
}

/* Of a replicate whose own mean of d is `mean`, with the other replicates: the means of ⟨d, d'⟩, and of
 * ⟨g, d'⟩ and ⟨d, g'⟩, where g is the mean of g1 and g2. */
typedef struct other_products {
    double dd, gd, dg;
} other_products;

static other_products products_with_others(const estimating_run *run, const float *mean, const float *g1,
                                           const float *g2)
{
    double dd[LANES] = {0}, gd[LANES] = {0}, dg[LANES] = {0};
    for (int64_t i = 0; i < run->n_padded; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double d = (double)mean[i + k], g = 0.5 * ((double)g1[i + k] + (double)g2[i + k]),
                         m = (double)run->metric[i + k], others = m * (run->sum[i + k] - d);
            dd[k] += d * others;
            gd[k] += g * others;
            dg[k] += m * d * (run->gradient_sum[i + k] - g);
        }
    const double n = run->estimate->n_replicate - 1;
    return (other_products){sum_of_lanes(dd) / n, sum_of_lanes(gd) / n, sum_of_lanes(dg) / n};
}

/* A frozen executor of the workload's model with one operator in a precision; fp32: not emulated. */
typedef struct frozen_executor {
    tandem_step *step;
    tandem_executor *executor;
} frozen_executor;

static int has_precision(const tandem_op *op, int precision)
{
    return tandem_op_is_adjustable(op) && tandem_op_row_get(op->kind)->precisions & 1u << precision;
}

/* Whether the precision has casts whose range is that of a whole tensor, of one batch. */
static int has_tensor_range(const estimating_run *run, tandem_precision precision)
{
    const tandem_emulation *emulation = &run->emulation;
    const tandem_precision_row *row = tandem_precision_get(precision);
    const tandem_dtype of[] = {row->forward, row->dgrad, row->wgrad};
    for (int k = 0; k < 3; k++) { /* AMP dtypes have no scale */
        const tandem_format format = of[k] == TANDEM_AMP ? TANDEM_N_FORMAT : emulation->format[of[k]];
        if (format != TANDEM_N_FORMAT && tandem_format_get(format)->scale == TANDEM_FORMAT_SCALE_TENSOR)
            return 1;
    }
    return 0;
}

static int estimated_ranks(const estimating_run *run)
{
    return run->request->n_rank > 1 ? run->request->n_rank : 1;
}

static void close_frozen_executor(frozen_executor *frozen, const estimating_run *run)
{
    if (frozen->executor) run->rank->backend->executor_close(frozen->executor);
    tandem_step_close(frozen->step);
    *frozen = (frozen_executor){0};
}

static int draws_weights(tandem_precision precision, const tandem_emulation *emulation)
{
    const tandem_dtype forward = tandem_precision_get(precision)->forward;
    const tandem_format format = forward == TANDEM_AMP ? TANDEM_N_FORMAT : emulation->format[forward];
    const tandem_recipe recipe = tandem_recipe_of(forward, emulation->recipe);
    if (recipe != TANDEM_RECIPE_NONE) return tandem_recipe_draws_weights(recipe);
    return format != TANDEM_N_FORMAT && tandem_format_get(format)->rounding == TANDEM_ROUNDING_STOCHASTIC;
}

tandem_precision estimate_plan_precision(const tandem_precision *plan, int n_op,
                                         const tandem_emulation *emulation)
{
    tandem_precision found = TANDEM_PRECISION_FP32;
    for (int i = 0; i < n_op; i++) {
        if (plan[i] == TANDEM_PRECISION_FP32) continue;
        if (draws_weights(plan[i], emulation)) return TANDEM_PRECISION_INT8_FULL;
        found = TANDEM_PRECISION_FP8;
    }
    return found;
}

/* The plan that row `row` of the estimate is; NULL: it is an operator. */
static const tandem_precision *plan_of_row(const estimating_run *run, int row)
{
    const size_t n_op = (size_t)run->workload->graph[0]->n_op;
    return run->request->plan ? run->request->plan + (size_t)row * n_op : NULL;
}

/* Whether some gradient of the row is f16, so that it needs a loss scale. */
static int has_f16_gradient(const estimating_run *run, int row, tandem_precision precision,
                            tandem_dtype amp_dtype)
{
    const tandem_precision *plan = plan_of_row(run, row);
    int has = (!plan || run->request->precision) && tandem_precision_has_f16_gradient(precision, amp_dtype);
    for (int i = 0; plan && i < run->workload->graph[0]->n_op; i++)
        has |= tandem_precision_has_f16_gradient(plan[i], amp_dtype);
    return has;
}

static tandem_status open_frozen_executor(frozen_executor *frozen, const estimating_run *run, int op,
                                          tandem_precision precision, tandem_dtype amp_dtype,
                                          tandem_error *error)
{
    const tandem_train_request *training = run->training;
    const int is_emulated = precision != TANDEM_PRECISION_FP32;
    if (is_emulated && run->request->plan_amp) amp_dtype = run->request->plan_amp[op];
    const int is_scaled = is_emulated && has_f16_gradient(run, op, precision, amp_dtype),
              has_data_seed = training->has_data_seed;
    tandem_device device = run->workload->cluster.classes[0].device;
    tandem_step_options step_options = run->workload->plan->step;
    if (is_emulated) device.amp_dtype = amp_dtype;
    if (is_emulated && run->emulation.widens_ranges) step_options.scaling.window = TANDEM_WIDE_RANGE;
    step_options.emulated = is_emulated;
    step_options.recipe = is_emulated ? (int)run->emulation.recipe : TANDEM_RECIPE_NONE;
    /* A sensitivity is converted to the micro-steps of a training. Here they represent ranks: their weights
     * draw alike. */
    step_options.n_micro = estimated_ranks(run);
    if (run->request->by_probe) step_options.separate_partial_grads = 1;
    step_options.with_norm = is_scaled;
    tandem_status status = tandem_device_open_step(&frozen->step, &device, run->estimated,
                                                   training->bucket_bytes, &step_options, error);
    if (status != TANDEM_OK) return status;
    const int n_op = run->workload->graph[0]->n_op;
    const tandem_precision *plan = is_emulated ? plan_of_row(run, op) : NULL;
    for (int i = 0; i < n_op && is_emulated; i++)
        if (plan ? plan[i] != TANDEM_PRECISION_FP32 : i == op)
            tandem_step_set(frozen->step, i, plan ? plan[i] : precision);
    tandem_step_resolve(frozen->step);
    const tandem_executor_options executor_options = {
        .step = frozen->step,
        .data = training->data ? &run->rank->data : NULL,
        .seed = training->workload.seed,
        .weight = run->weight,
        .data_seed = has_data_seed ? &training->data_seed : NULL,
        .label_smoothing = (float)training->training.label_smoothing,
        .emulation = is_emulated ? &run->emulation : NULL,
        .hold_weights = 1,
        .lender = run->request->by_probe ? run->rank->executor : NULL,
        .without_all_reduce = 1,
        .global_batch = run->estimate->batch,
        .loss_scale = !is_scaled                     ? 0
                      : run->request->loss_scale > 0 ? (float)run->request->loss_scale
                                                     : -1,
        .allow_nan = 1};
    status =
        run->rank->backend->executor_open(&frozen->executor, run->rank->worker, &executor_options, error);
    if (status != TANDEM_OK) close_frozen_executor(frozen, run);
    return status;
}

/* The gradient of batch b of the training point, and its loss. A step that overflows has none: it is lost. */
static tandem_status take_frozen_gradient(float *gradient, double *loss, const frozen_executor *frozen,
                                          const estimating_run *run, int b, tandem_error *error)
{
    const tandem_backend_api *backend = run->rank->backend;
    const int64_t index = run->first_batch + b;
    tandem_status status = TANDEM_OK;
    const int n_try = run->request->loss_scale > 0 ? 1 : MAX_HALVINGS;
    int is_lost = 1;
    *loss = NAN;
    for (int k = 0; k < n_try && is_lost && status == TANDEM_OK; k++) {
        status = backend->executor_step(frozen->executor, index, loss, error);
        if (status == TANDEM_OK) is_lost = backend->executor_report(frozen->executor).skipped;
    }
    if (status == TANDEM_LIMIT_EXCEEDED) status = TANDEM_OK;
    if (status == TANDEM_OK)
        status = estimate_copy_gradient(gradient, backend, frozen->executor, frozen->step->graph, error);
    for (int64_t i = 0; i < run->n_weight && !is_lost && status == TANDEM_OK; i++)
        is_lost = !isfinite(gradient[i]);
    if (status == TANDEM_OK && is_lost) memset(gradient, 0, (size_t)run->n_weight * sizeof *gradient);
    return status;
}

/* --- fp32 ----------------------------------------------------------------------------------------------- */

/* Adds ½(d₁ + d₂) of a replicate to the sum over replicates. */
static void add_mean_error(estimating_run *run, float *mean)
{
    for (int64_t i = 0; i < run->n_weight; i++) {
        mean[i] = 0.5f * (run->d[0][i] + run->d[1][i]);
        run->sum[i] += (double)mean[i];
    }
}

/* v̂ → 1/√v̂. */
static void invert_mean_squares(float *metric, int64_t n, double mean)
{
    const double least = (double)tandem_probe_least_square(mean, 1);
    for (int64_t i = 0; i < n && mean > 0; i++) metric[i] = (float)(1 / sqrt(fmax((double)metric[i], least)));
}

tandem_status estimate_copy_metric(float *metric, float *room, const training_rank *rank, int64_t point,
                                   tandem_error *error)
{
    const tandem_step *step = rank->step;
    const tandem_graph *graph = step->graph;
    const double kept = 1 - pow((double)rank->config.optimizer.beta2, (double)point);
    const tandem_status status = rank->backend->executor_get_mean_squares(rank->executor, room, error);
    const int64_t n_weight = tandem_graph_n_weight(graph);
    double mean = 0;
    int64_t i = 0;
    for (int p = 0; p < graph->n_parameter && status == TANDEM_OK; p++)
        for (int64_t k = 0; k < graph->parameter[p].elements; k++, i++) {
            const double square = (double)room[step->parameter_start[p] + k] / kept;
            metric[i] = (float)square;
            mean += square / (double)n_weight;
        }
    if (status == TANDEM_OK) invert_mean_squares(metric, n_weight, mean);
    return status;
}

/* Before the first step v̂ is that of the batches. */
static tandem_status fill_metric(estimating_run *run, int64_t point, tandem_error *error)
{
    const int n_batch = 2 * run->estimate->n_replicate;
    double mean = 0;
    if (point > 0) {
        float *const room = malloc((size_t)run->rank->step->n_flat * sizeof *room);
        const tandem_status status = room ? estimate_copy_metric(run->metric, room, run->rank, point, error)
                                          : tandem_no_memory(error, "for the optimizer's state");
        free(room);
        return status;
    }
    for (int64_t i = 0; i < run->n_weight; i++) {
        double square = 0;
        for (int b = 0; b < n_batch; b++)
            square += (double)run->exact[b][i] * (double)run->exact[b][i] / n_batch;
        run->metric[i] = (float)square;
        mean += square / (double)run->n_weight;
    }
    invert_mean_squares(run->metric, run->n_weight, mean);
    return TANDEM_OK;
}

static void multiply_by_curvature(estimating_run *run)
{
    const int n_batch = 2 * run->estimate->n_replicate;
    for (int64_t i = 0; i < run->n_weight; i++) {
        double square = 0;
        for (int b = 0; b < n_batch; b++) square += (double)run->exact[b][i] * (double)run->exact[b][i];
        run->metric[i] *= (float)(square / n_batch);
    }
}

static tandem_status estimate_fp32(estimating_run *run, int64_t point, tandem_error *error)
{
    const int n = run->estimate->n_replicate;
    frozen_executor frozen = {0};
    tandem_status status = open_frozen_executor(&frozen, run, 0, TANDEM_PRECISION_FP32, TANDEM_F32, error);
    for (int b = 0; b < 2 * n && status == TANDEM_OK; b++)
        status = take_frozen_gradient(run->exact[b], &run->exact_loss[b], &frozen, run, b, error);
    close_frozen_executor(&frozen, run);
    if (status == TANDEM_OK && run->estimate->optimizer == TANDEM_ADAMW)
        status = fill_metric(run, point, error);
    if (status != TANDEM_OK) return status;
    for (int b = 0; b < 2 * n && run->request->fp32_loss; b++)
        run->request->fp32_loss[run->point_index] += run->exact_loss[b] / (2 * n);
    if (run->request->is_curved) multiply_by_curvature(run);
    memset(run->gradient_sum, 0, (size_t)run->n_padded * sizeof *run->gradient_sum);
    for (int b = 0; b < 2 * n; b++)
        for (int64_t i = 0; i < run->n_weight; i++) run->gradient_sum[i] += 0.5 * (double)run->exact[b][i];
    memset(run->d[0], 0, (size_t)run->n_padded * sizeof *run->d[0]); /* no error: gd is what is read */
    memcpy(run->sum, run->gradient_sum, (size_t)run->n_padded * sizeof *run->sum);
    for (int r = 0; r < n; r++) {
        const float *g[2] = {run->exact[2 * r], run->exact[2 * r + 1]};
        const pair_products own = products_of_pair(run, g[0], g[1]);
        const double square = 0.25 * (own.aa + own.bb) + 0.5 * own.ab; /* of their mean */
        const double with_all = products_with_others(run, run->d[0], g[0], g[1]).gd;
        run->estimate->gradient[run->point_index * n + r] = (tandem_estimated_gradient){
            .variance = 0.5 * (own.aa + own.bb) - own.ab, .mean_square = with_all - square / (n - 1)};
    }
    return TANDEM_OK;
}

/* --- One operator in one precision ---------------------------------------------------------------------- */

static tandem_status take_errors(estimating_run *run, const frozen_executor *frozen, int r,
                                 tandem_error *error)
{
    tandem_emulation emulation = run->emulation;
    emulation.seed = run->training->workload.seed + 1 + (uint64_t)run->request->first_replicate + (uint64_t)r;
    emulation.same_weight_draws = 1;
    tandem_status status = run->rank->backend->executor_set_emulation(frozen->executor, &emulation, error);
    run->loss_rise = 0;
    for (int k = 0; k < 2 && status == TANDEM_OK; k++) {
        double loss;
        status = take_frozen_gradient(run->d[k], &loss, frozen, run, 2 * r + k, error);
        run->loss_rise += 0.5 * (loss - run->exact_loss[2 * r + k]);
        for (int64_t i = 0; i < run->n_weight; i++) run->d[k][i] -= run->exact[2 * r + k][i];
    }
    return status;
}

/* The mean over both ways of −⟨d of one replicate, g of another⟩. */
static void set_pair_means(const estimating_run *run, tandem_estimated_error *of)
{
    for (int r = 0; r < run->estimate->n_replicate; r++) {
        const other_products with =
            products_with_others(run, run->mean[r], run->exact[2 * r], run->exact[2 * r + 1]);
        of[r].mean_square = with.dd;
        of[r].against = -0.5 * (with.gd + with.dg);
    }
}

/* Both batches of a replicate get the range of these two and of the two before, around a ring of all. So its
 * second batch comes before its first, too: then the last four calls and the current one are of these four.
 * r: −1: the two before the first replicate. */
static tandem_status fill_histories(const estimating_run *run, const frozen_executor *frozen, float *room,
                                    int r, tandem_error *error)
{
    const int n_batch = 2 * run->estimate->n_replicate;
    tandem_status status = TANDEM_OK;
    double loss;
    if (r < 0) status = take_frozen_gradient(room, &loss, frozen, run, n_batch - 2, error);
    return status == TANDEM_OK
               ? take_frozen_gradient(room, &loss, frozen, run, (2 * r + 1 + n_batch) % n_batch, error)
               : status;
}

static tandem_status estimate_cell_with_ranges(tandem_estimated_error *of, estimating_run *run, int op,
                                               tandem_precision precision, tandem_dtype amp_dtype,
                                               tandem_error *error)
{
    const int n = run->estimate->n_replicate, is_wide = run->emulation.widens_ranges;
    frozen_executor frozen = {0};
    tandem_status status = open_frozen_executor(&frozen, run, op, precision, amp_dtype, error);
    if (status == TANDEM_OK && is_wide) status = fill_histories(run, &frozen, run->d[0], -1, error);
    memset(run->sum, 0, (size_t)run->n_padded * sizeof *run->sum);
    for (int r = 0; r < n && status == TANDEM_OK; r++) {
        if (is_wide) status = fill_histories(run, &frozen, run->d[0], r, error);
        if (status == TANDEM_OK) status = take_errors(run, &frozen, r, error);
        if (status != TANDEM_OK) break;
        const pair_products own = products_of_pair(run, run->d[0], run->d[1]);
        of[r] = (tandem_estimated_error){.total = 0.5 * (own.aa + own.bb), .shared = own.ab};
        if (run->request->loss_rise && !is_wide)
            run->request->loss_rise[(run->point_index * run->estimate->n_op + op) * n + r] = run->loss_rise;
        if (run->request->own_products && !is_wide)
            run->request->own_products[run->point_index * n + r] +=
                0.5 * (products_of_pair(run, run->exact[2 * r], run->d[0]).ab +
                       products_of_pair(run, run->exact[2 * r + 1], run->d[1]).ab);
        add_mean_error(run, run->mean[r]);
    }
    close_frozen_executor(&frozen, run);
    if (status == TANDEM_OK) set_pair_means(run, of);
    return status;
}

static tandem_status estimate_cell(estimating_run *run, int op, tandem_precision precision,
                                   tandem_dtype amp_dtype, tandem_error *error)
{
    const int n = run->estimate->n_replicate, cell = tandem_estimate_cell(op, precision, amp_dtype);
    tandem_estimated_error *of = tandem_estimate_errors(run->estimate, run->point_index, cell),
                           wide[TANDEM_MAX_REPLICATE];
    tandem_status status = estimate_cell_with_ranges(of, run, op, precision, amp_dtype, error);
    if (status != TANDEM_OK) return status;
    memcpy(wide, of, (size_t)n * sizeof *wide);
    for (int r = 0; r < n; r++) wide[r].shared = of[r].mean_square; /* no range that samples have in common */
    if (run->estimate->range_batch > 0 && has_tensor_range(run, precision)) {
        run->emulation.widens_ranges = 1;
        status = estimate_cell_with_ranges(wide, run, op, precision, amp_dtype, error);
        run->emulation.widens_ranges = 0;
    }
    for (int r = 0; r < n && status == TANDEM_OK; r++) {
        of[r].wide_total = wide[r].total;
        of[r].wide_shared = wide[r].shared;
        of[r].wide_mean_square = wide[r].mean_square;
    }
    return status;
}

/* The ranks take cells in turn, and meet after each turn: so none waits long for one that has died. */
static tandem_status estimate_cell_in_turn(estimating_run *run, int op, tandem_precision precision,
                                           tandem_dtype amp_dtype, tandem_error *error)
{
    const int n_rank = run->rank->self.n_rank, k = run->n_cell_done % n_rank;
    tandem_status status =
        k == run->rank->self.rank ? estimate_cell(run, op, precision, amp_dtype, error) : TANDEM_OK;
    run->n_cell_done++;
    if (status == TANDEM_OK && n_rank > 1 && (k == n_rank - 1 || run->n_cell_done == run->n_cell))
        status = run->rank->backend->worker_barrier(run->rank->worker, error);
    if (status != TANDEM_OK) return status;
    run->estimate->is_estimated[tandem_estimate_cell(op, precision, amp_dtype)] = 1;
    const int64_t now = tandem_now_ns();
    runtime_progress(&run->training->listener,
                     (now - run->begin_ns) / run->n_cell_done * (run->n_cell - run->n_cell_done),
                     "sensitivity: cell %d of %d", run->n_cell_done, run->n_cell);
    return TANDEM_OK;
}

/* Whether some device of the workload runs the precision with the AMP dtype. */
static int is_run_by_devices(const tandem_workload *workload, int precision, tandem_dtype amp_dtype)
{
    for (int c = 0; c < workload->cluster.n_class; c++) {
        const tandem_device *device = &workload->cluster.classes[c].device;
        if (device->precisions & 1u << precision &&
            (!tandem_precision_has_amp((tandem_precision)precision) || device->amp_dtype == amp_dtype))
            return 1;
    }
    return 0;
}

/* Each variant of an operator's precisions, or a plan; is_counted: counts them only. */
static tandem_status for_cells_of_row(int *n_cell, estimating_run *run, int row, int is_counted,
                                      tandem_error *error)
{
    const tandem_graph *graph = run->workload->graph[0];
    static const tandem_dtype amp_dtypes[TANDEM_N_AMP_DTYPE] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    tandem_status status = TANDEM_OK;
    if (run->request->plan_amp) {
        const tandem_precision precision =
            estimate_plan_precision(plan_of_row(run, row), graph->n_op, &run->emulation);
        if (precision == TANDEM_PRECISION_FP32) return TANDEM_OK;
        ++*n_cell;
        return is_counted ? TANDEM_OK : estimate_cell_in_turn(run, row, precision, TANDEM_F32, error);
    }
    for (int p = TANDEM_PRECISION_FP32 + 1; p < TANDEM_N_PRECISION; p++) {
        const int is_asked = (run->precisions & 1u << p) != 0;
        if (!is_asked || (!run->request->plan && !has_precision(&graph->op[row], p))) continue;
        const int n_amp = tandem_precision_has_amp((tandem_precision)p) ? TANDEM_N_AMP_DTYPE : 1;
        for (int k = 0; k < n_amp && status == TANDEM_OK; k++) {
            if (run->request->is_for_devices && !is_run_by_devices(run->workload, p, amp_dtypes[k])) continue;
            ++*n_cell;
            if (is_counted) run->n_wide_cell += has_tensor_range(run, (tandem_precision)p);
            if (run->request->by_probe && !is_counted)
                run->estimate->is_estimated[tandem_estimate_cell(row, (tandem_precision)p, amp_dtypes[k])] =
                    1;
            else if (!is_counted)
                status = estimate_cell_in_turn(run, row, (tandem_precision)p, amp_dtypes[k], error);
        }
    }
    return status;
}

/* --- By a probe ----------------------------------------------------------------------------------------- */

/* The sum of v̂ over all weights. */
static double sum_of_metric(const probe_metric *metric, const tandem_step *step)
{
    double sum = 0;
    for (int p = 0; p < step->graph->n_parameter; p++)
        sum += (double)metric->by * tandem_probe_sum(metric->mean_square + step->parameter_start[p],
                                                     step->graph->parameter[p].elements);
    return sum;
}

/* Before the first step v̂ is that of a few batches. square: [n_flat] */
static tandem_status add_first_squares(float *square, const estimating_run *run,
                                       const frozen_executor *frozen, tandem_error *error)
{
    enum { BATCHES = 4 };
    const tandem_step *const step = frozen->step;
    float *const gradient = calloc((size_t)(run->n_weight + 1), sizeof *gradient);
    tandem_status status = gradient ? TANDEM_OK : tandem_no_memory(error, "for a gradient");
    for (int b = 0; b < BATCHES && status == TANDEM_OK; b++) {
        double loss;
        status = take_frozen_gradient(gradient, &loss, frozen, run, b, error);
        const float *g = gradient;
        for (int p = 0; p < step->graph->n_parameter && status == TANDEM_OK; p++) {
            const int64_t n = step->graph->parameter[p].elements;
            float *const to = square + step->parameter_start[p];
            for (int64_t i = 0; i < n; i++) to[i] += g[i] * g[i] / BATCHES;
            g += n;
        }
    }
    free(gradient);
    return status;
}

/* The metric of the training point: of the run's own mean squares, or before its first step of the batches'
 * (*first, which the caller frees). */
static tandem_status take_metric(probe_metric *metric, float **first, const estimating_run *run,
                                 const frozen_executor *frozen, int64_t done, tandem_error *error)
{
    const training_rank *const rank = run->rank;
    *metric = (probe_metric){.by = 1};
    if (run->estimate->optimizer != TANDEM_ADAMW) return TANDEM_OK;
    tandem_status status = TANDEM_OK;
    if (done > 0) {
        metric->by = (float)(1 / (1 - pow((double)rank->config.optimizer.beta2, (double)done)));
        metric->mean_square = rank->backend->executor_mean_squares(rank->executor);
    } else {
        *first = calloc((size_t)frozen->step->n_flat, sizeof **first);
        status = *first ? add_first_squares(*first, run, frozen, error)
                        : tandem_no_memory(error, "for the squares of gradients");
        metric->mean_square = *first;
    }
    if (status == TANDEM_OK && metric->mean_square)
        metric->least = tandem_probe_least_square(sum_of_metric(metric, frozen->step), run->n_weight);
    if (!(metric->least > 0)) metric->mean_square = NULL; /* all gradients are 0 */
    return status;
}

/* The replicates of all ranks: gradients by their sums, errors as they are. */
static tandem_status share_replicates(estimating_run *run, float *sketch, tandem_error *error)
{
    tandem_estimate *const estimate = run->estimate;
    const int n_rank = run->rank->self.n_rank, n = estimate->n_replicate,
              n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    const size_t sums = 2 * (size_t)n * TANDEM_PROBE_SKETCH * sizeof *sketch,
                 errors = (size_t)n_cell * (size_t)n * sizeof *estimate->error;
    if (n_rank == 1) return TANDEM_OK;
    char *const all = malloc((size_t)n_rank * (sums > errors ? sums : errors));
    if (!all) return tandem_no_memory(error, "for what %d ranks have estimated", n_rank);
    const tandem_backend_api *const backend = run->rank->backend;
    tandem_status status = backend->worker_gather(run->rank->worker, sketch, all, sums, error);
    for (int r = 0; r < n && status == TANDEM_OK; r++)
        memcpy(sketch + (size_t)r * 2 * TANDEM_PROBE_SKETCH,
               all + (size_t)(r % n_rank) * sums + (size_t)r * 2 * TANDEM_PROBE_SKETCH * sizeof *sketch,
               2 * TANDEM_PROBE_SKETCH * sizeof *sketch);
    if (status == TANDEM_OK)
        status = backend->worker_gather(run->rank->worker, estimate->error, all, errors, error);
    for (int i = 0; i < n_cell * n && status == TANDEM_OK; i++)
        memcpy(&estimate->error[i],
               all + (size_t)(i % n % n_rank) * errors + (size_t)i * sizeof *estimate->error,
               sizeof *estimate->error);
    free(all);
    return status;
}

/* The estimated batches whose largest number is a range: as many as a batch of the training has. */
static int range_batches_of_probe(const estimating_run *run)
{
    const int64_t n = run->workload->graph[0]->batch / run->estimate->batch;
    return n > 1 ? (int)(n < PROBE_RANGE_BATCHES ? n : PROBE_RANGE_BATCHES) : 1;
}

static tandem_status probe_with(estimating_run *run, const frozen_executor *frozen,
                                const probe_metric *metric, int a, tandem_error *error)
{
    const int is_shared = run->request->is_at_hand;
    const int n_range_batch = range_batches_of_probe(run);
    float *const sketch =
        calloc(2 * (size_t)run->estimate->n_replicate * TANDEM_PROBE_SKETCH, sizeof *sketch);
    tandem_status status = sketch ? TANDEM_OK : tandem_no_memory(error, "for the sums of gradients");
    const probe_point point = {.backend = run->rank->backend,
                               .executor = frozen->executor,
                               .step = frozen->step,
                               .metric = *metric,
                               .estimate = run->estimate,
                               .emulation = &run->emulation,
                               .point_index = a,
                               .first_batch = run->first_batch,
                               .seed = run->training->workload.seed,
                               .n_range_batch = n_range_batch,
                               .rank = is_shared ? run->rank->self.rank : 0,
                               .n_rank = is_shared ? run->rank->self.n_rank : 1};
    if (status == TANDEM_OK) status = estimate_probe_point(&point, sketch, error);
    if (status == TANDEM_OK && is_shared) status = share_replicates(run, sketch, error);
    if (status == TANDEM_OK) tandem_probe_set_gradients(run->estimate, a, sketch);
    free(sketch);
    return status;
}

/* In the memory of the training, between two of its steps. */
static tandem_status probe_point_of_run(estimating_run *run, int a, tandem_error *error)
{
    frozen_executor frozen = {0};
    probe_metric metric;
    float *first = NULL;
    int n_cell = 0;
    tandem_status status = TANDEM_OK;
    for (int row = 0; row < run->estimate->n_op && status == TANDEM_OK; row++)
        status = for_cells_of_row(&n_cell, run, row, 0, error);
    if (status == TANDEM_OK)
        status = open_frozen_executor(&frozen, run, 0, TANDEM_PRECISION_FP32, TANDEM_F32, error);
    if (status == TANDEM_OK)
        status = take_metric(&metric, &first, run, &frozen, run->estimate->point[a], error);
    if (status == TANDEM_OK) status = probe_with(run, &frozen, &metric, a, error);
    free(first);
    close_frozen_executor(&frozen, run);
    return status;
}

/* --- A training ----------------------------------------------------------------------------------------- */

static tandem_status estimate_point(estimating_run *run, int a, tandem_error *error)
{
    int n_cell = 0;
    run->point_index = a;
    run->first_batch =
        run->request->batches_from > 0
            ? run->request->batches_from
            : run->training->steps + 2 * ((int64_t)a * TANDEM_MAX_REPLICATE + run->request->first_replicate);
    if (run->request->by_probe) /* after the samples of these batches of the training */
        run->first_batch = (run->first_batch * run->rank->global_batch - 1) / run->estimate->batch + 1;
    if (run->request->by_probe) return probe_point_of_run(run, a, error);
    tandem_status status = run->rank->backend->executor_get_weights(run->rank->executor, run->weight, error);
    if (status == TANDEM_OK) status = estimate_fp32(run, run->estimate->point[a], error);
    for (int row = 0; row < run->estimate->n_op && status == TANDEM_OK; row++)
        status = for_cells_of_row(&n_cell, run, row, 0, error);
    return status;
}

/* After the only training point: the gradients of rank 0, and each cell from the rank that estimated it. */
static tandem_status share_cells(estimating_run *run, tandem_error *error)
{
    tandem_estimate *const estimate = run->estimate;
    const int n_rank = run->rank->self.n_rank, n = estimate->n_replicate,
              n_cell = estimate->n_op * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE;
    if (n_rank == 1) return TANDEM_OK;
    const size_t bytes = (size_t)n_cell * (size_t)n * sizeof *estimate->error;
    tandem_estimated_error *const all = malloc(bytes * (size_t)n_rank);
    if (!all) return tandem_no_memory(error, "for what %d ranks have estimated", n_rank);
    const tandem_backend_api *const backend = run->rank->backend;
    tandem_status status = backend->worker_gather(run->rank->worker, estimate->error, all, bytes, error);
    if (status == TANDEM_OK)
        status = backend->worker_broadcast(run->rank->worker, estimate->gradient,
                                           (size_t)n * sizeof *estimate->gradient, 0, error);
    for (int cell = 0, k = 0; cell < n_cell && status == TANDEM_OK; cell++) {
        if (!estimate->is_estimated[cell]) continue;
        const size_t at = (size_t)(k++ % n_rank) * (size_t)n_cell + (size_t)cell;
        memcpy(tandem_estimate_errors(estimate, 0, cell), all + at * (size_t)n, (size_t)n * sizeof *all);
    }
    free(all);
    return status;
}

static tandem_status train_and_estimate(estimating_run *run, tandem_error *error)
{
    const tandem_backend_api *backend = run->rank->backend;
    tandem_status status = run->training->init
                               ? backend->executor_import(run->rank->executor, run->training->init, error)
                               : TANDEM_OK;
    int64_t step = 0;
    for (int a = 0; a < run->estimate->n_point && status == TANDEM_OK; a++) {
        for (; step < run->estimate->point[a] && status == TANDEM_OK; step++) {
            double loss = 0;
            backend->executor_set_rate(run->rank->executor, train_config_rate(&run->rank->config, step));
            status = backend->executor_step(run->rank->executor, step, &loss, error);
            if (step % 16 == 0)
                runtime_progress(&run->training->listener, -1, "sensitivity: step %lld of %lld, loss %.4f",
                                 (long long)step, (long long)run->estimate->point[run->estimate->n_point - 1],
                                 loss);
        }
        if (status == TANDEM_OK && a == 0) run->begin_ns = tandem_now_ns();
        if (status == TANDEM_OK) status = estimate_point(run, a, error);
    }
    return status;
}

static float **open_vectors(int n, int64_t length)
{
    float **vector = calloc((size_t)n, sizeof *vector);
    for (int i = 0; vector && i < n; i++) {
        vector[i] = calloc((size_t)length, sizeof **vector);
        if (vector[i]) continue;
        while (i-- > 0) free(vector[i]);
        free((void *)vector);
        return NULL;
    }
    return vector;
}

static void close_vectors(float **vector, int n)
{
    for (int i = 0; vector && i < n; i++) free(vector[i]);
    free((void *)vector);
}

static tandem_status open_estimating_run(estimating_run *run, tandem_error *error)
{
    const tandem_graph *graph = run->workload->graph[0];
    run->n_weight = tandem_graph_n_weight(graph);
    run->n_padded = (run->n_weight + LANES - 1) / LANES * LANES;
    run->estimate->batch = run->estimated->batch * estimated_ranks(run);
    if (run->request->has_wide_ranges && run->workload->plan->step.scaling.window <= 0)
        run->estimate->range_batch =
            run->estimated->batch * (run->request->by_probe ? range_batches_of_probe(run) : 1);
    run->estimate->steps = run->training->steps;
    run->estimate->seed = run->training->workload.seed;
    run->estimate->optimizer = graph->optimizer.kind;
    const int n = run->estimate->n_replicate;
    const size_t padded = (size_t)run->n_padded;
    for (int row = 0; row < run->estimate->n_op; row++)
        (void)for_cells_of_row(&run->n_cell, run, row, 1, NULL);
    run->n_cell *= run->estimate->n_point;
    run->begin_ns = tandem_now_ns();
    if (run->request->by_probe) return TANDEM_OK; /* in the memory of the training */
    run->weight = malloc((size_t)run->rank->step->n_flat * sizeof *run->weight);
    run->metric = calloc(padded, sizeof *run->metric);
    run->exact = open_vectors(2 * n, run->n_padded);
    run->mean = open_vectors(n, run->n_padded);
    run->d[0] = calloc(padded, sizeof *run->d[0]);
    run->d[1] = calloc(padded, sizeof *run->d[1]);
    run->sum = calloc(padded, sizeof *run->sum);
    run->gradient_sum = calloc(padded, sizeof *run->gradient_sum);
    if (!run->weight || !run->metric || !run->exact || !run->mean || !run->d[0] || !run->d[1] || !run->sum ||
        !run->gradient_sum)
        return tandem_no_memory(error, "for the gradients of %d batches", 2 * n);
    for (int64_t i = 0; i < run->n_weight; i++) run->metric[i] = 1;
    return TANDEM_OK;
}

static void close_estimating_run(estimating_run *run)
{
    const int n = run->request->n_replicate;
    free(run->weight);
    free(run->metric);
    close_vectors(run->exact, 2 * n);
    close_vectors(run->mean, n);
    free(run->d[0]);
    free(run->d[1]);
    free(run->sum);
    free(run->gradient_sum);
    tandem_graph_close(run->estimated);
}

static tandem_status choose_precisions(estimating_run *run, tandem_error *error)
{
    tandem_precision precision;
    run->emulation = tandem_emulation_make(run->training->workload.seed);
    run->precisions = ~0u;
    if (run->request->precision || run->request->plan_amp) run->emulation = run->request->emulation;
    if (!run->request->precision) return TANDEM_OK;
    const tandem_status status = tandem_precision_find(&precision, run->request->precision, error);
    if (status == TANDEM_OK) run->precisions = 1u << precision;
    return status;
}

int estimate_count_gradients(const tandem_workload *workload, const estimate_request *request)
{
    estimating_run run = {
        .workload = workload, .request = request, .precisions = ~0u, .emulation = tandem_emulation_make(0)};
    if (request->by_probe) return 4 * request->n_replicate;
    for (int op = 0; op < workload->graph[0]->n_op; op++)
        (void)for_cells_of_row(&run.n_cell, &run, op, 1, NULL);
    return 2 * request->n_replicate * (1 + run.n_cell) +
           (request->has_wide_ranges ? run.n_wide_cell * (3 * request->n_replicate + 2) : 0);
}

/* What a gradient of a probe costs, in steps of the training: as many gradients of its batch, and as many
 * FLOPs a weight. `tandem-bench sensitivity` prints what it comes to. */
static double cost_of_probe(const tandem_workload *workload, int64_t batch)
{
    static const double gradients = 1.3, weight_flops = 60;
    const tandem_graph *graph = workload->graph[0];
    return gradients * (double)batch / (double)graph->batch +
           weight_flops * (double)tandem_graph_n_weight(graph) / tandem_graph_flops(graph);
}

estimate_request estimate_request_probe(const tandem_workload *workload)
{
    enum { MIN_REPLICATES = 4, MAX_STEPS = 15, FEWER_SAMPLES = 2, MIN_ESTIMATED_BATCH = 4 };
    const int64_t fewer = workload->graph[0]->batch / FEWER_SAMPLES,
                  batch = fewer > MIN_ESTIMATED_BATCH ? fewer : MIN_ESTIMATED_BATCH;
    const int most = (int)(MAX_STEPS / (4 * cost_of_probe(workload, batch)));
    return (estimate_request){.n_replicate = most > MIN_REPLICATES ? most : MIN_REPLICATES,
                              .by_probe = 1,
                              .batch = batch,
                              .has_wide_ranges = 1};
}

estimate_request estimate_request_in_run(const tandem_workload *workload, int64_t step)
{
    estimate_request request = estimate_request_probe(workload);
    request.point[0] = step;
    request.n_point = 1;
    request.is_for_devices = request.is_at_hand = 1;
    request.has_wide_ranges = 0; /* its own batches are those of its plans */
    request.batches_from = step;
    return request;
}

int64_t estimate_interval_in_run(const tandem_workload *workload)
{
    const estimate_request request = estimate_request_in_run(workload, 1);
    return (int64_t)ceil(100 * estimate_count_gradients(workload, &request) *
                         cost_of_probe(workload, request.batch));
}

tandem_status estimate_of_rank(tandem_estimate *estimate, training_rank *rank,
                               const tandem_workload *workload, const tandem_train_request *training,
                               const estimate_request *request, tandem_error *error)
{
    tandem_estimate made = {0};
    estimating_run run = {
        .workload = workload, .training = training, .request = request, .rank = rank, .estimate = &made};
    const int n_row = request->plan ? request->n_plan : workload->graph[0]->n_op;
    tandem_status status = tandem_estimate_open(&made, n_row, request->n_point, request->n_replicate, error);
    if (status != TANDEM_OK) return status;
    memcpy(made.point, request->point, sizeof made.point);
    made.without_bias = request->by_probe;
    status = choose_precisions(&run, error);
    if (status == TANDEM_OK)
        status = tandem_graph_open(&run.estimated, workload->graph[0]->model,
                                   request->batch > 0 ? request->batch : workload->graph[0]->batch, error);
    if (status == TANDEM_OK) status = open_estimating_run(&run, error);
    if (status == TANDEM_OK)
        status = request->is_at_hand ? estimate_point(&run, 0, error) : train_and_estimate(&run, error);
    if (status == TANDEM_OK && !request->by_probe) status = share_cells(&run, error);
    close_estimating_run(&run);
    if (status == TANDEM_OK)
        *estimate = made;
    else
        tandem_estimate_close(&made);
    return status;
}

tandem_status estimate_run(tandem_estimate *estimate, const tandem_workload *workload,
                           const tandem_train_request *training, const estimate_request *request,
                           tandem_error *error)
{
    const tandem_rank_place alone = {.rank = 0, .n_rank = 1};
    training_rank rank = {0};
    tandem_status status = training_rank_open(&rank, workload, training, &alone, error);
    if (status != TANDEM_OK) return status;
    status = estimate_of_rank(estimate, &rank, workload, training, request, error);
    training_rank_close(&rank);
    return status;
}
