/* constant_fit.c: fits the form's constants to measured times (constant_fit.h). */
#include "tools/constant_fit.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tools/fit_data.h"
#include "predictor/form.h"

/* --- What a stage fits ---------------------------------------------------------------------------------- */

/* The stage that fits a constant. What no stage fits follows from shares. */
static const int stage_of[TANDEM_N_CONSTANT] = {
    [TANDEM_CONSTANT_EVENTS] = FIT_STREAMS,
    [TANDEM_CONSTANT_SOFTMAX_FLOPS] = FIT_ROWS,
    [TANDEM_CONSTANT_SOFTMAX_FLOPS_OLD] = FIT_ROWS,
    [TANDEM_CONSTANT_SOFTMAX_ROW] = FIT_ROWS,
    [TANDEM_CONSTANT_LAYERNORM_CACHE] = FIT_ROWS,
    [TANDEM_CONSTANT_LAYERNORM_ROW] = FIT_ROWS,
    [TANDEM_CONSTANT_EVENTS_PRODUCT] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_LAUNCH] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_WAVE_SHARE] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_PROLOGUE] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_SPLIT_DEPTH] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_TILE_LOSS] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_DEPTH_LOSS] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_DEPTH_LOSS_OLD] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_DEPTH_HALF] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_OVERLAP] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_PRODUCT_BANDWIDTH] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_CACHE_SHARE] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_BATCHED_TIME] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_BATCHED_PROLOGUE] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_BATCHED_OVERLAP] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_BATCHED_BANDWIDTH] = FIT_PRODUCTS,
    [TANDEM_CONSTANT_CONV_DIRECT] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_PROLOGUE] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_TAIL] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_NARROW] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_WGRAD] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_WGRAD_POINTS] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_STRIDED] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_PARTIAL] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_CONV_BY_RULE] = FIT_CHOICES,
    [TANDEM_CONSTANT_CONV_OLD_LIBRARY] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_WINOGRAD_FUSED] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_WINOGRAD] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_WINOGRAD_DATA_WGRAD] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_WINOGRAD_DATA] = FIT_CONVOLUTIONS,
    [TANDEM_CONSTANT_WINOGRAD_WEIGHTS] = FIT_CONVOLUTIONS,
};

int fit_stage_of_constant(int constant)
{
    return stage_of[constant] == 0 || constant == TANDEM_CONSTANT_LAUNCH ? FIT_STREAMS : stage_of[constant];
}

static int stage_of_class(tandem_work_class class)
{
    if (class == TANDEM_WORK_CONVOLUTION) return FIT_CONVOLUTIONS;
    if (class == TANDEM_WORK_LINEAR || class == TANDEM_WORK_MATMUL) return FIT_PRODUCTS;
    return class == TANDEM_WORK_STREAM ? FIT_STREAMS : FIT_ROWS;
}

static int is_of_stage(const fit_row *row, int stage)
{
    if (stage == FIT_CHOICES)
        return row->work.work_class == TANDEM_WORK_CONVOLUTION && row->timed & TANDEM_TIMED_BETWEEN_EVENTS;
    return stage_of_class(row->work.work_class) == stage;
}

/* One number that is fitted: x, any real number, means min + (max − min) / (1 + e^−x). */
typedef struct fit_parameter {
    double *value, min, max, start; /* start: a real number */
    tandem_constant_fit_value *result;
    int gpu; /* −1 = all */
} fit_parameter;

enum { MAX_PARAMETERS = 96 };

typedef struct fit_problem {
    const tandem_constant_fit *fit;
    fit_state *state;
    int stage;
    const fit_without *without;
    fit_parameter parameter[MAX_PARAMETERS];
    int n_parameter;
    const fit_row **row;
    double *weight; /* square roots */
    size_t n_row;
} fit_problem;

static double to_real(const fit_parameter *p, double value)
{
    const double margin = 1e-3, share = (value - p->min) / (p->max - p->min);
    const double inside = fmin(1 - margin, fmax(margin, share));
    return log(inside / (1 - inside));
}

static double from_real(const fit_parameter *p, double x)
{
    return p->min + (p->max - p->min) / (1 + exp(-x));
}

static void set_parameters(const fit_problem *problem, const gsl_vector *x)
{
    for (int i = 0; i < problem->n_parameter; i++)
        *problem->parameter[i].value = from_real(&problem->parameter[i], gsl_vector_get(x, (size_t)i));
}

double fit_predicted_ns(const fit_state *state, const fit_row *row, const tandem_device *device)
{
    return fit_predicted_by(state, row, device, WAY_FASTEST);
}

double fit_predicted_by(const fit_state *state, const fit_row *row, const tandem_device *device,
                        convolution_way way)
{
    const tandem_gpu_spec *const spec = &device->gpu_spec;
    tandem_reached_rates rates = state->rates[row->gpu];
    if (row->timed & TANDEM_TIMED_OF_ZEROS)
        tandem_reached_rates_without_power(&rates, spec, &state->constants);
    return tandem_timed_ns(&state->constants, &row->work, row->timed,
                           tandem_kernel_time_by(NULL, &state->constants, spec, &rates, &row->work, way));
}

static double residual_of(const fit_problem *problem, size_t i)
{
    const fit_row *const row = problem->row[i];
    const convolution_way way = problem->stage == FIT_CONVOLUTIONS ? row->way : WAY_FASTEST;
    const double ns = fit_predicted_by(problem->state, row, tandem_device_get(row->gpu), way);
    return problem->weight[i] * log(ns / row->ns);
}

/* What follows from fitted numbers: constants that are dropped, and launches. */
static void set_followers(fit_state *state, uint64_t dropped)
{
    for (int c = 0; c < TANDEM_N_CONSTANT; c++) {
        const tandem_constant_row *const row = tandem_constant_get(c);
        if (dropped >> c & 1)
            state->constants.value[c] = row->as < 0 ? row->without : state->constants.value[row->as];
    }
    for (int d = 0; d < tandem_device_count(); d++)
        state->rates[d].launch_ns = 1e3 * state->constants.value[TANDEM_CONSTANT_LAUNCH];
}

/* A weak prior, as of rows that say "as it began": 4 units away from there it counts like a row that is off
 * by 40 %. It holds what no row decides within its bounds, where a derivative would vanish. */
static const double prior_weight = 0.1;

static double prior_of(const fit_problem *problem, int p, const gsl_vector *x)
{
    return prior_weight * (gsl_vector_get(x, (size_t)p) - problem->parameter[p].start);
}

static int fit_residuals(const gsl_vector *x, void *context, gsl_vector *f)
{
    const fit_problem *const problem = context;
    set_parameters(problem, x);
    set_followers(problem->state, problem->without->constants);
    for (size_t i = 0; i < problem->n_row; i++) gsl_vector_set(f, i, residual_of(problem, i));
    for (int p = 0; p < problem->n_parameter; p++)
        gsl_vector_set(f, problem->n_row + (size_t)p, prior_of(problem, p, x));
    return GSL_SUCCESS;
}

/* Differences forward; a parameter of a card touches its rows only. */
static int fit_derivatives(const gsl_vector *x, void *context, gsl_matrix *j)
{
    const fit_problem *const problem = context;
    const double step = 1e-3;
    set_parameters(problem, x);
    set_followers(problem->state, problem->without->constants);
    gsl_vector *const base = gsl_vector_alloc(problem->n_row);
    if (!base) return GSL_ENOMEM;
    for (size_t i = 0; i < problem->n_row; i++) gsl_vector_set(base, i, residual_of(problem, i));
    gsl_matrix_set_zero(j);
    for (int p = 0; p < problem->n_parameter; p++) {
        const fit_parameter *const one = &problem->parameter[p];
        const double kept = *one->value;
        *one->value = from_real(one, gsl_vector_get(x, (size_t)p) + step);
        set_followers(problem->state, problem->without->constants);
        for (size_t i = 0; i < problem->n_row; i++)
            if (one->gpu < 0 || one->gpu == problem->row[i]->gpu)
                gsl_matrix_set(j, i, (size_t)p, (residual_of(problem, i) - gsl_vector_get(base, i)) / step);
        gsl_matrix_set(j, problem->n_row + (size_t)p, (size_t)p, prior_weight);
        *one->value = kept;
    }
    set_followers(problem->state, problem->without->constants);
    gsl_vector_free(base);
    return GSL_SUCCESS;
}

/* --- One stage ------------------------------------------------------------------------------------------ */

static void add_fit_parameter(fit_problem *problem, double *value, double min, double max,
                              tandem_constant_fit_value *result, int gpu)
{
    if (problem->n_parameter == MAX_PARAMETERS) return;
    fit_parameter *const one = &problem->parameter[problem->n_parameter++];
    *one = (fit_parameter){.min = min, .max = max, .result = result, .gpu = gpu};
    one->value = value;
}

/* Whether rows of the card say something about a type's rate, or about its bandwidth. */
static bool has_rows(const fit_problem *problem, int gpu, int type)
{
    for (size_t i = 0; i < problem->n_row; i++)
        if (problem->row[i]->gpu == gpu &&
            (type == TANDEM_N_COMPUTE_DTYPE || (int)problem->row[i]->work.type == type))
            return true;
    return false;
}

static void add_share(fit_problem *problem, int gpu, int type)
{
    fit_state *const state = problem->state;
    const tandem_gpu_spec *const spec = &tandem_device_get(gpu)->gpu_spec;
    tandem_constant_fit_value *const result = &state->share[gpu][type];
    if (result->n_row > 0 || !has_rows(problem, gpu, type)) return;
    if (type == TANDEM_N_COMPUTE_DTYPE)
        add_fit_parameter(problem, &state->rates[gpu].bytes_per_s, 0.2 * spec->bytes_per_s, spec->bytes_per_s,
                          result, gpu);
    else
        add_fit_parameter(problem, &state->rates[gpu].flops_per_s[type], 0.1 * spec->flops_per_s[type],
                          spec->flops_per_s[type], result, gpu);
}

static void add_stage_parameters(fit_problem *problem, int stage)
{
    fit_state *const state = problem->state;
    for (int c = 0; c < TANDEM_N_CONSTANT; c++) {
        const tandem_constant_row *const row = tandem_constant_get(c);
        if (stage_of[c] == stage && !(problem->without->constants >> c & 1))
            add_fit_parameter(problem, &state->constants.value[c], row->min, row->max, &state->constant[c],
                              -1);
    }
    for (int d = 0; d < tandem_device_count(); d++) {
        if (stage == FIT_STREAMS) add_share(problem, d, TANDEM_N_COMPUTE_DTYPE);
        for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE && stage == FIT_PRODUCTS; t++) add_share(problem, d, t);
    }
}

/* Bisquare weights of Tukey, with the constant 4.685 (95 % efficient for normal errors). */
static void reweigh(const fit_problem *problem, const gsl_vector *residual, double *scratch)
{
    for (size_t i = 0; i < problem->n_row; i++)
        scratch[i] = fabs(gsl_vector_get(residual, i) / fmax(problem->weight[i], 1e-9));
    const double min_scale = 0.01; /* what agrees better than that is no outlier's fault */
    const double scale = fmax(min_scale, tandem_median(scratch, problem->n_row) / 0.6745);
    for (size_t i = 0; i < problem->n_row; i++) {
        const double r = fabs(gsl_vector_get(residual, i) / fmax(problem->weight[i], 1e-9)) / (4.685 * scale);
        problem->weight[i] = r < 1 ? 1 - r * r : 1e-6;
    }
}

static void keep_results(const fit_problem *problem, const gsl_multifit_nlinear_workspace *w)
{
    const gsl_matrix *const j = gsl_multifit_nlinear_jac(w);
    const gsl_vector *const f = gsl_multifit_nlinear_residual(w), *const x = gsl_multifit_nlinear_position(w);
    const size_t n = (size_t)problem->n_parameter;
    gsl_matrix *const covariance = gsl_matrix_alloc(n, n);
    double chi_square = 0;
    gsl_blas_ddot(f, f, &chi_square);
    const double variance = chi_square / fmax(1, (double)problem->n_row - (double)n);
    const bool is_known = covariance && gsl_multifit_nlinear_covar(j, 0, covariance) == GSL_SUCCESS;
    for (size_t p = 0; p < n; p++) {
        const fit_parameter *const one = &problem->parameter[p];
        const double real = gsl_vector_get(x, p), value = from_real(one, real),
                     slope = (value - one->min) * (one->max - value) / (one->max - one->min);
        int64_t rows = 0;
        for (size_t i = 0; i < problem->n_row; i++)
            rows += fabs(gsl_matrix_get(j, i, p)) > 1e-5 * problem->weight[i];
        const double error = is_known ? slope * sqrt(variance * gsl_matrix_get(covariance, p, p)) : NAN;
        *one->value = value;
        *one->result = (tandem_constant_fit_value){value, error, rows};
    }
    gsl_matrix_free(covariance);
}

/* Where the search for a number begins: at its start, or where another fit ended. */
static double search_from(const fit_problem *problem, int p)
{
    const fit_parameter *const one = &problem->parameter[p];
    const fit_state *const near = problem->without->near;
    if (!near) return one->start;
    const ptrdiff_t offset = (const char *)one->value - (const char *)problem->state;
    double value;
    memcpy(&value, (const char *)near + offset, sizeof value);
    return to_real(one, value);
}

/* Weights of a search that begins near its end; before, all rows weigh the same. */
static void weigh_near(const fit_problem *problem, const gsl_vector *x, double *scratch)
{
    gsl_vector *const residual = gsl_vector_alloc(problem->n_row + (size_t)problem->n_parameter);
    if (!residual) return;
    (void)fit_residuals(x, (void *)problem, residual);
    reweigh(problem, residual, scratch);
    gsl_vector_free(residual);
}

static tandem_status solve_stage(fit_problem *problem, tandem_error *error)
{
    enum { MAX_ROUNDS = 5, NEAR_ROUND = 3, FIRST_STEPS = 60, MAX_STEPS = 12 };
    const size_t n = (size_t)problem->n_parameter;
    tandem_status status = tandem_no_memory(NULL, "for a fit");
    gsl_multifit_nlinear_parameters parameters = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_fdf system = {
        .f = fit_residuals, .df = fit_derivatives, .n = problem->n_row + n, .p = n, .params = problem};
    gsl_multifit_nlinear_workspace *const w =
        gsl_multifit_nlinear_alloc(gsl_multifit_nlinear_trust, &parameters, problem->n_row + n, n);
    gsl_vector *const x = gsl_vector_alloc(n);
    double *const scratch = malloc(problem->n_row * sizeof *scratch);
    if (w && x && scratch) {
        status = TANDEM_OK;
        for (size_t p = 0; p < n; p++) {
            problem->parameter[p].start = to_real(&problem->parameter[p], *problem->parameter[p].value);
            gsl_vector_set(x, p, search_from(problem, (int)p));
        }
        const int first_round = problem->without->near ? NEAR_ROUND : 0;
        if (first_round > 0) weigh_near(problem, x, scratch);
        for (int round = first_round; round < MAX_ROUNDS; round++) {
            int info = 0;
            (void)gsl_multifit_nlinear_init(x, &system, w);
            /* not converged: the last position serves */
            (void)gsl_multifit_nlinear_driver(round == 0 ? FIRST_STEPS : MAX_STEPS, 1e-5, 1e-8, 1e-8, NULL,
                                              NULL, &info, w);
            gsl_vector_memcpy(x, gsl_multifit_nlinear_position(w));
            if (round + 1 < MAX_ROUNDS) reweigh(problem, gsl_multifit_nlinear_residual(w), scratch);
        }
        keep_results(problem, w);
        set_followers(problem->state, problem->without->constants);
    }
    free(scratch);
    gsl_vector_free(x);
    if (w) gsl_multifit_nlinear_free(w);
    return status == TANDEM_OK ? status : tandem_no_memory(error, "to fit %zu times", problem->n_row);
}

static tandem_status fit_stage(const tandem_constant_fit *fit, fit_state *state, const fit_without *without,
                               int stage, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    fit_problem problem = {.fit = fit,
                           .state = state,
                           .stage = stage,
                           .without = without,
                           .row = malloc((fit->n_row + 1) * sizeof(fit_row *)),
                           .weight = malloc((fit->n_row + 1) * sizeof(double))};
    if (!problem.row || !problem.weight) status = tandem_no_memory(error, "to fit %zu times", fit->n_row);
    for (size_t i = 0; i < fit->n_row && status == TANDEM_OK; i++) {
        const fit_row *const row = &fit->row[i];
        if (!row->is_fitted || !is_of_stage(row, stage) || without->devices >> row->gpu & 1) continue;
        if (stage >= FIT_PRODUCTS && tandem_device_get(row->gpu)->gpu_spec.watts < 100) continue;
        problem.weight[problem.n_row] = 1;
        problem.row[problem.n_row++] = row;
    }
    if (status == TANDEM_OK) add_stage_parameters(&problem, stage);
    if (status == TANDEM_OK && problem.n_parameter > 0 && problem.n_row > 2 * (size_t)problem.n_parameter)
        status = solve_stage(&problem, error);
    free(problem.row);
    free(problem.weight);
    return status;
}

/* --- What follows from the shares ----------------------------------------------------------------------- */

/* The median share of one group of cards; nothing where none was measured. */
static void set_median_share(fit_state *state, int constant, int (*is_of)(int gpu, int type))
{
    double share[256];
    size_t n = 0;
    int64_t rows = 0;
    for (int d = 0; d < tandem_device_count(); d++)
        for (int t = 0; t <= TANDEM_N_COMPUTE_DTYPE; t++) {
            if (state->share[d][t].n_row == 0 || !is_of(d, t) || n == sizeof share / sizeof *share) continue;
            share[n++] = state->share[d][t].value;
            rows += state->share[d][t].n_row;
        }
    if (n == 0) return;
    const double median = tandem_median(share, n); /* sorts */
    const double spread = n > 1 ? (share[n - 1] - share[0]) / (2 * sqrt((double)n)) : NAN;
    state->constant[constant] = (tandem_constant_fit_value){median, spread, rows};
    state->constants.value[constant] = median;
}

static int is_f32_share(int gpu, int type) { return gpu >= 0 && type == TANDEM_F32; }
static int is_two_byte_share(int gpu, int type)
{
    const tandem_gpu_spec *const spec = &tandem_device_get(gpu)->gpu_spec;
    return (type == TANDEM_F16 || type == TANDEM_BF16 || type == TANDEM_TF32) &&
           spec->flops_per_s[type] > 2 * spec->flops_per_s[TANDEM_F32];
}
static int is_byte_share(int gpu, int type) { return gpu >= 0 && type == TANDEM_S8; }
static int is_hbm_share(int gpu, int type)
{
    return type == TANDEM_N_COMPUTE_DTYPE && tandem_device_get(gpu)->gpu_spec.memory_kind == TANDEM_HBM;
}
static int is_gddr_share(int gpu, int type)
{
    return type == TANDEM_N_COMPUTE_DTYPE && tandem_device_get(gpu)->gpu_spec.memory_kind == TANDEM_GDDR;
}

/* The largest energy with which every measured card still reaches what it reached: the card that is nearest
 * to its watts counts as bound by them. */
static void set_energy(fit_state *state, int constant, int (*is_of)(int gpu, int type))
{
    double least = INFINITY;
    int64_t rows = 0;
    for (int d = 0; d < tandem_device_count(); d++)
        for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++) {
            const tandem_gpu_spec *const spec = &tandem_device_get(d)->gpu_spec;
            if (state->share[d][t].n_row == 0 || !is_of(d, t)) continue;
            const double energy =
                1e12 * spec->watts / (state->rates[d].flops_per_s[t] * spec->process_nm / 7.0);
            rows += state->share[d][t].n_row;
            least = fmin(least, energy);
        }
    if (!isfinite(least)) return;
    state->constant[constant] = (tandem_constant_fit_value){least, NAN, rows};
    state->constants.value[constant] = least;
}

/* Rates of the fit are absolute; results are shares. */
static void make_shares(fit_state *state)
{
    for (int d = 0; d < tandem_device_count(); d++) {
        const tandem_gpu_spec *const spec = &tandem_device_get(d)->gpu_spec;
        for (int t = 0; t <= TANDEM_N_COMPUTE_DTYPE; t++) {
            tandem_constant_fit_value *const share = &state->share[d][t];
            const double peak = t == TANDEM_N_COMPUTE_DTYPE ? spec->bytes_per_s : spec->flops_per_s[t];
            if (share->n_row == 0) continue;
            share->value /= peak;
            share->standard_error /= peak;
        }
    }
    set_median_share(state, TANDEM_CONSTANT_REACH_32, is_f32_share);
    set_median_share(state, TANDEM_CONSTANT_REACH_16, is_two_byte_share);
    set_median_share(state, TANDEM_CONSTANT_REACH_8, is_byte_share);
    set_median_share(state, TANDEM_CONSTANT_BANDWIDTH_HBM, is_hbm_share);
    set_median_share(state, TANDEM_CONSTANT_BANDWIDTH_GDDR, is_gddr_share);
    set_energy(state, TANDEM_CONSTANT_ENERGY_32, is_f32_share);
    set_energy(state, TANDEM_CONSTANT_ENERGY_16, is_two_byte_share);
}

/* Shares that follow from rates and bandwidths; with them, what cards without products or copies reach. */
static void share_rates(fit_state *state, uint64_t dropped)
{
    make_shares(state);
    set_followers(state, dropped);
    for (int d = 0; d < tandem_device_count(); d++) {
        tandem_reached_rates shared, *const own = &state->rates[d];
        tandem_reached_rates_shared(&shared, &tandem_device_get(d)->gpu_spec, &state->constants);
        for (int t = 0; t < TANDEM_N_COMPUTE_DTYPE; t++)
            if (state->share[d][t].n_row == 0) own->flops_per_s[t] = shared.flops_per_s[t];
        if (state->share[d][TANDEM_N_COMPUTE_DTYPE].n_row == 0) own->bytes_per_s = shared.bytes_per_s;
    }
}

void fit_begin(fit_state *state, const fit_without *without)
{
    memset(state, 0, sizeof *state);
    tandem_constants_start(&state->constants);
    for (int c = 0; c < TANDEM_N_CONSTANT; c++)
        state->constant[c] = (tandem_constant_fit_value){state->constants.value[c], NAN, 0};
    set_followers(state, without->constants);
    for (int d = 0; d < tandem_device_count(); d++)
        tandem_reached_rates_shared(&state->rates[d], &tandem_device_get(d)->gpu_spec, &state->constants);
}

tandem_status fit_next_stage(const tandem_constant_fit *fit, fit_state *state, const fit_without *without,
                             int stage, tandem_error *error)
{
    (void)gsl_set_error_handler_off();
    set_followers(state, without->constants);
    const tandem_status status = fit_stage(fit, state, without, stage, error);
    if (status == TANDEM_OK && stage == FIT_PRODUCTS) share_rates(state, without->constants);
    return status;
}

tandem_status fit_all_stages(const tandem_constant_fit *fit, fit_state *state, const fit_without *without,
                             tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    fit_begin(state, without);
    for (int stage = FIT_STREAMS; stage <= FIT_CHOICES && status == TANDEM_OK; stage++)
        status = fit_next_stage(fit, state, without, stage, error);
    return status;
}
