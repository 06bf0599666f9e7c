/* folder: predictor */
/* Sensitivities from estimated errors: by hand, by simulation, and through the store. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "tandem/advanced/format.h"
#include "tandem/advanced/predictor.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

enum { N_OP = 2, N_CELL = N_OP * TANDEM_N_PRECISION * TANDEM_N_AMP_DTYPE };

static tandem_estimate open_estimated(int n_op, int n_point, int n_replicate)
{
    tandem_estimate estimate = {0};
    tandem_error error = {0};
    require_ok(tandem_estimate_open(&estimate, n_op, n_point, n_replicate, &error), &error);
    estimate.batch = 8;
    estimate.steps = 100;
    for (int a = 0; a < n_point; a++) estimate.point[a] = 10 * a;
    return estimate;
}

/* All replicates alike: |E g|² = 1, Var g = 4; of one cell the given error. */
static void set_errors(tandem_estimate *estimate, int cell, tandem_estimated_error of)
{
    for (int i = 0; i < estimate->n_point * estimate->n_replicate; i++) {
        estimate->gradient[i] = (tandem_estimated_gradient){.variance = 4, .mean_square = 1};
        tandem_estimate_errors(estimate, i / estimate->n_replicate, cell)[i % estimate->n_replicate] = of;
    }
    estimate->is_estimated[cell] = 1;
}

static tandem_sensitivity_estimate estimate_of(const tandem_estimate *estimate, const double *share,
                                               int64_t global_batch, int n_micro)
{
    tandem_sensitivity_estimate of_plan = {0};
    tandem_error error = {0};
    const tandem_sensitivity_step step = {.global_batch = global_batch, .n_micro = n_micro};
    require_ok(tandem_estimate_sensitivity(&of_plan, estimate, share, &step, &error), &error);
    return of_plan;
}

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-12)) fail_msg("got %.15g, expected %.15g", got, expected);
}

/* Samples' part 0.2, weights' part 0.2. */
static const tandem_estimated_error half_and_half = {
    .total = 0.5, .shared = 0.3, .mean_square = 0.1, .against = 0.02};

static void parts_convert_to_the_step(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 2, 4);
    double share[N_CELL] = {0};
    const int cell = tandem_estimate_cell(1, TANDEM_PRECISION_INT8_FULL, TANDEM_BF16);
    set_errors(&estimate, cell, half_and_half);
    share[cell] = 1;
    tandem_sensitivity_estimate e = estimate_of(&estimate, share, 8, 1);
    assert_near(e.noise, (0.2 + 0.2) / (4 + 1));
    assert_near(e.bias, 0.02);
    assert_near(e.value, 0.08 + 0.02);
    assert_near(e.low, e.value);
    assert_near(e.high, e.value);
    assert_near(e.at_point[1], e.value);
    e = estimate_of(&estimate, share, 32, 1); /* four times the batch: a quarter of what samples add */
    assert_near(e.noise, (0.05 + 0.2) / (1 + 1));
    e = estimate_of(&estimate, share, 32, 2); /* weights are rounded twice */
    assert_near(e.noise, (0.05 + 0.1) / (1 + 1));
    share[cell] = 0.5; /* half of the samples */
    e = estimate_of(&estimate, share, 8, 1);
    assert_near(e.noise, 0.04);
    assert_near(e.bias, 0.01);
    tandem_estimate_close(&estimate);
}

/* What is rounded to nearest has no draw: all of the noise falls with the batch. */
static void weights_that_are_not_drawn_add_no_noise(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 1, 4);
    double share[N_CELL] = {0};
    const int cell = tandem_estimate_cell(1, TANDEM_PRECISION_BF16, TANDEM_F32);
    set_errors(&estimate, cell, half_and_half);
    share[cell] = 1;
    assert_near(estimate_of(&estimate, share, 8, 1).noise, 0.4 / (4 + 1));
    assert_near(estimate_of(&estimate, share, 32, 1).noise, 0.1 / (1 + 1));
    tandem_estimate_close(&estimate);
}

/* The noise at the batch that was estimated, with ranges of so many samples. Var g = 4, |E g|² = 1. */
static double noise_at_range(const tandem_estimate *estimate, int cell, double micro_batch)
{
    double share[N_CELL] = {0}, micro[N_CELL] = {0};
    tandem_sensitivity_estimate e = {0};
    tandem_error error = {0};
    const tandem_sensitivity_step step = {
        .global_batch = estimate->batch, .n_micro = 1, .micro_batch = micro};
    share[cell] = 1;
    micro[cell] = micro_batch;
    require_ok(tandem_estimate_sensitivity(&e, estimate, share, &step, &error), &error);
    return e.noise;
}

/* Of samples 0.2, with four times the samples in a range 0.3; of weights 0.2, whatever the range. */
static void the_part_of_samples_grows_with_the_range(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 2, 4);
    const int drawn = tandem_estimate_cell(1, TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              nearest = tandem_estimate_cell(0, TANDEM_PRECISION_FP8, TANDEM_F32);
    tandem_estimated_error of = half_and_half;
    of.wide_total = of.total + 0.1;
    of.wide_mean_square = 7; /* not read: half of what two batches share is the mean's */
    set_errors(&estimate, drawn, of);
    assert_near(noise_at_range(&estimate, drawn, 32), 0.4 / 5); /* ranges were not estimated */
    estimate.range_batch = 8;
    assert_near(noise_at_range(&estimate, drawn, 0), 0.4 / 5);
    assert_near(noise_at_range(&estimate, drawn, 8), 0.4 / 5);
    assert_near(noise_at_range(&estimate, drawn, 16), (0.25 + 0.2) / 5);
    assert_near(noise_at_range(&estimate, drawn, 32), (0.3 + 0.2) / 5);
    assert_near(noise_at_range(&estimate, drawn, 128), (0.4 + 0.2) / 5);
    assert_near(noise_at_range(&estimate, drawn, 2), (0.2 * 0.2 / 0.3 + 0.2) / 5);
    of.wide_total = of.total; /* a scale by row or block, or none */
    of.wide_shared = 7;
    set_errors(&estimate, drawn, of);
    assert_near(noise_at_range(&estimate, drawn, 128), 0.4 / 5);
    assert_near(noise_at_range(&estimate, drawn, 2), 0.4 / 5);
    of.wide_total = of.total + 0.2; /* what is rounded to nearest has a bias of its own range: 0.4 → 0.5 */
    of.wide_mean_square = of.mean_square + 0.1;
    of.wide_shared = of.wide_mean_square + 0.05; /* what the samples of a range have in common */
    set_errors(&estimate, nearest, of);
    assert_near(noise_at_range(&estimate, nearest, 8), 0.4 / 5);
    assert_near(noise_at_range(&estimate, nearest, 32), (0.5 + 3 * 0.05) / 5);
    assert_near(noise_at_range(&estimate, nearest, 2), (0.4 * 0.4 / 0.5 - 0.75 * 0.05) / 5);
    tandem_estimate_close(&estimate);
}

/* Of mean 0 and variance 1: the sum of twelve uniform numbers. */
static double drawn_normal(uint64_t seed, uint32_t *counter)
{
    double sum = -6;
    for (int k = 0; k < 3; k++) {
        const tandem_philox_block block = tandem_philox((const uint32_t[]){(*counter)++, 0, 0, 0}, seed);
        for (int i = 0; i < 4; i++) sum += ((double)block.word[i] + 0.5) / 4294967296.0;
    }
    return sum;
}

enum { ELEMENTS = 256, MAX_DRAWN = 1024 };

/* Of rounding a sample's numbers to s8. */
static double variance_at_range(const float *x, float range)
{
    double sum = 0;
    tandem_error error = {0};
    const tandem_format_cast cast = {
        .format = TANDEM_FORMAT_S8, .x = x, .rows = 1, .columns = ELEMENTS, .range = range};
    require_ok(tandem_format_variance(NULL, &sum, &cast, &error), &error);
    return sum;
}

static float range_of_samples(const float *x, int n)
{
    float range = 0;
    for (int i = 0; i < n * ELEMENTS; i++) range = fmaxf(range, fabsf(x[i]));
    return range;
}

/* The mean of a sample's noise where ranges are those of n samples. */
static double noise_of_drawn(const float *x, int n_drawn, int n)
{
    double sum = 0;
    for (int s = 0; s < n_drawn; s++)
        sum += variance_at_range(x + (size_t)s * ELEMENTS,
                                 range_of_samples(x + (size_t)(s / n * n) * ELEMENTS, n));
    return sum / n_drawn;
}

/* Of normal numbers after a relu: estimated with the ranges of 8 samples and of 32, and converted, against
 * what rounding is with the ranges of other batches. */
static void converted_noise_is_that_of_the_larger_range(void **state)
{
    (void)state;
    static const int batch[] = {2, 4, 8, 16, 32, 64, 128, 256};
    const int cell = tandem_estimate_cell(1, TANDEM_PRECISION_INT8_FULL, TANDEM_F32);
    float *const x = malloc((size_t)MAX_DRAWN * ELEMENTS * sizeof *x);
    tandem_estimate estimate = open_estimated(N_OP, 1, 3);
    uint32_t counter = 0;
    assert_non_null(x);
    for (int i = 0; i < MAX_DRAWN * ELEMENTS; i++) x[i] = (float)fmax(drawn_normal(5, &counter), 0);
    estimate.range_batch = estimate.batch;
    set_errors(&estimate, cell,
               (tandem_estimated_error){.total = noise_of_drawn(x, MAX_DRAWN, 8),
                                        .wide_total = noise_of_drawn(x, MAX_DRAWN, 8 * TANDEM_WIDE_RANGE)});
    for (size_t k = 0; k < sizeof batch / sizeof *batch; k++) {
        const double converted = 5 * noise_at_range(&estimate, cell, batch[k]),
                     measured = noise_of_drawn(x, MAX_DRAWN, batch[k]);
        if (fabs(converted / measured - 1) > (batch[k] < estimate.batch ? 0.08 : 0.04))
            fail_msg("ranges of %d samples: converted %.3g, measured %.3g", batch[k], converted, measured);
    }
    assert_true(noise_of_drawn(x, MAX_DRAWN, 256) > 1.3 * noise_of_drawn(x, MAX_DRAWN, 8));
    free(x);
    tandem_estimate_close(&estimate);
}

static void operators_add_up(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 1, 3);
    double share[N_CELL] = {0};
    const int first = tandem_estimate_cell(0, TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              second = tandem_estimate_cell(1, TANDEM_PRECISION_INT8, TANDEM_F16);
    set_errors(&estimate, first, half_and_half);
    set_errors(&estimate, second, (tandem_estimated_error){.total = 0.1, .against = -0.05});
    share[first] = share[second] = 1;
    const tandem_sensitivity_estimate e = estimate_of(&estimate, share, 8, 1);
    assert_near(e.noise, 0.08 + 0.02);
    assert_near(e.bias, 0.02 - 0.05);
    assert_near(e.value, 0.1); /* a bias that helps is not counted */
    /* only int8 depends on the AMP dtype */
    assert_int_equal(tandem_estimate_cell(0, TANDEM_PRECISION_INT8_FULL, TANDEM_F16), first);
    assert_int_not_equal(tandem_estimate_cell(1, TANDEM_PRECISION_INT8, TANDEM_F32), second);
    tandem_estimate_close(&estimate);
}

/* |G|² = 1: `against` is the bias. It varies by ± spread from replicate to replicate. */
static void set_bias(tandem_estimate *estimate, int cell, double bias, double spread)
{
    set_errors(estimate, cell, (tandem_estimated_error){.total = 0.5});
    for (int r = 0; r < estimate->n_replicate; r++)
        tandem_estimate_errors(estimate, 0, cell)[r].against = bias + (r % 2 ? spread : -spread);
}

/* A bias of 0.1 that is known, one of 0.3 that may be 0, and one of −0.4 that may be. */
static void a_bias_counts_where_it_differs_from_0(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 1, 8);
    double share[N_CELL] = {0};
    const int known = tandem_estimate_cell(0, TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              lost = tandem_estimate_cell(1, TANDEM_PRECISION_BF16, TANDEM_F32),
              helps = tandem_estimate_cell(1, TANDEM_PRECISION_FP8, TANDEM_F32);
    set_bias(&estimate, known, 0.1, 0.01);
    set_bias(&estimate, lost, 0.3, 1);
    set_bias(&estimate, helps, -0.4, 1);
    share[lost] = 1;
    const tandem_sensitivity_estimate alone = estimate_of(&estimate, share, 8, 1);
    assert_near(alone.bias, 0.3);
    assert_true(alone.bias_half > 0.3);
    assert_near(alone.value, 0.1); /* the noise */
    assert_near(alone.at_point[0], 0.1);
    assert_near(alone.low, 0.1);
    assert_near(alone.high, 0.1 + 0.3 + alone.bias_half);
    share[known] = 1;
    tandem_sensitivity_estimate both = estimate_of(&estimate, share, 8, 1);
    assert_near(both.bias, 0.1 + 0.3);
    assert_near(both.value, 0.2 + 0.1);
    assert_near(both.high, 0.2 + both.bias + both.bias_half);
    assert_true(both.low < 0.3 && both.low > 0.2 + 0.07);
    share[helps] = 1; /* the parts that are not distinguished may be less than 0 together */
    both = estimate_of(&estimate, share, 8, 1);
    assert_near(both.bias, 0);
    assert_near(both.value, 0.3 + 0.1);
    assert_true(both.high > 0.3 + 0.5);
    tandem_estimate_close(&estimate);
}

static void a_lost_gradient_has_no_bias(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(1, 1, 4);
    double share[N_CELL] = {0};
    const int cell = tandem_estimate_cell(0, TANDEM_PRECISION_FP8, TANDEM_F32);
    set_errors(&estimate, cell, half_and_half);
    share[cell] = 1;
    for (int r = 0; r < 4; r++) estimate.gradient[r].mean_square = r % 2 ? 0.5 : -1;
    const tandem_sensitivity_estimate e = estimate_of(&estimate, share, 8, 1);
    assert_true(isnan(e.bias) && isnan(e.bias_half));
    assert_near(e.noise, 0.4 / 4);
    assert_true(e.value > 0 && e.low <= e.value && e.high >= e.value);
    for (int r = 0; r < 4; r++) estimate.gradient[r].mean_square = 0;
    const tandem_sensitivity_estimate none = estimate_of(&estimate, share, 8, 1);
    assert_true(isnan(none.bias) && isfinite(none.value) && isfinite(none.at_point[0]));
    tandem_estimate_close(&estimate);
}

static void a_bias_without_an_estimate_is_unknown(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(1, 1, 4);
    double share[N_CELL] = {0};
    const int cell = tandem_estimate_cell(0, TANDEM_PRECISION_FP8, TANDEM_F32);
    set_errors(&estimate, cell, (tandem_estimated_error){.total = 0.5});
    share[cell] = 1;
    assert_near(estimate_of(&estimate, share, 8, 1).bias, 0);
    estimate.without_bias = 1;
    const tandem_sensitivity_estimate e = estimate_of(&estimate, share, 8, 1);
    assert_true(isnan(e.bias) && isnan(e.bias_half));
    assert_near(e.value, 0.1);
    tandem_estimate_close(&estimate);
}

static void bad_estimates_are_refused(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(1, 1, 3), none = {0};
    tandem_sensitivity_estimate e = {.value = -7};
    tandem_error error = {0};
    double share[N_CELL] = {0};
    const tandem_sensitivity_step step = {.global_batch = 8, .n_micro = 1}, empty = {.n_micro = 1};
    const int cell = tandem_estimate_cell(0, TANDEM_PRECISION_BF16, TANDEM_F32);
    assert_int_equal(tandem_estimate_open(&none, 1, 1, TANDEM_MIN_REPLICATE - 1, &error), TANDEM_USAGE);
    assert_int_equal(tandem_estimate_open(&none, 1, TANDEM_MAX_TRAINING_POINT + 1, 3, &error), TANDEM_USAGE);
    share[cell] = 1;
    assert_int_equal(tandem_estimate_sensitivity(&e, &estimate, share, &step, &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "bf16"));
    set_errors(&estimate, cell, half_and_half);
    assert_int_equal(tandem_estimate_sensitivity(&e, &estimate, share, &empty, &error), TANDEM_USAGE);
    for (int r = 0; r < 3; r++) estimate.gradient[r].variance = 0;
    assert_int_equal(tandem_estimate_sensitivity(&e, &estimate, share, &step, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "no variance"));
    assert_true(e.value == -7);
    tandem_estimate_close(&estimate);
}

/* --- By simulation -------------------------------------------------------------------------------------- */

enum { DIMENSION = 40, REPLICATES = 8, TRIALS = 400 };

static double dot_sampled(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < DIMENSION; i++) sum += a[i] * b[i];
    return sum;
}

/* The products of all pairs of different replicates with replicate r, their mean. */
static double pairs_with(double a[REPLICATES][DIMENSION], double b[REPLICATES][DIMENSION], int r)
{
    double sum = 0;
    for (int s = 0; s < REPLICATES; s++)
        if (s != r) sum += 0.5 * (dot_sampled(a[r], b[s]) + dot_sampled(a[s], b[r]));
    return sum / (REPLICATES - 1);
}

/* g = G + noise; d = bias·G + what a weight shares + what a sample adds. |G|² = DIMENSION. */
static void simulate_replicates(tandem_estimate *estimate, int cell, uint64_t seed, double gradient_noise,
                                double of_weights, double of_samples, double bias)
{
    double g[REPLICATES][DIMENSION], d[REPLICATES][DIMENSION];
    tandem_estimated_error *of = tandem_estimate_errors(estimate, 0, cell);
    uint32_t counter = 0;
    for (int r = 0; r < REPLICATES; r++) {
        double of_batch[2][2][DIMENSION]; /* [g, d][batch] */
        for (int i = 0; i < DIMENSION; i++) {
            const double weight = of_weights * drawn_normal(seed, &counter);
            for (int b = 0; b < 2; b++) {
                of_batch[0][b][i] = 1 + gradient_noise * drawn_normal(seed, &counter);
                of_batch[1][b][i] = weight + of_samples * drawn_normal(seed, &counter) - bias;
            }
            g[r][i] = (of_batch[0][0][i] + of_batch[0][1][i]) / 2;
            d[r][i] = (of_batch[1][0][i] + of_batch[1][1][i]) / 2;
        }
        double(*e)[DIMENSION] = of_batch[1], (*f)[DIMENSION] = of_batch[0];
        of[r].total = (dot_sampled(e[0], e[0]) + dot_sampled(e[1], e[1])) / 2;
        of[r].shared = dot_sampled(e[0], e[1]);
        estimate->gradient[r].variance =
            (dot_sampled(f[0], f[0]) + dot_sampled(f[1], f[1])) / 2 - dot_sampled(f[0], f[1]);
    }
    for (int r = 0; r < REPLICATES; r++) {
        estimate->gradient[r].mean_square = pairs_with(g, g, r);
        of[r].mean_square = pairs_with(d, d, r);
        of[r].against = -pairs_with(d, g, r);
    }
}

static void intervals_hold_what_they_estimate(void **state)
{
    (void)state;
    const double gradient_noise = 2, of_weights = 0.3, of_samples = 0.5, bias = 0.1;
    double value_of_none = 0, noise_of_none = 0; /* where there is no bias */
    const int cell = tandem_estimate_cell(0, TANDEM_PRECISION_INT8_FULL, TANDEM_F32);
    tandem_estimate estimate = open_estimated(1, 1, REPLICATES);
    double share[N_CELL] = {0}, sum = 0, sum_of_bias = 0;
    int n_noise = 0, n_bias = 0;
    share[cell] = 1;
    estimate.is_estimated[cell] = 1;
    /* at four times the batch: Var g 4/4, samples 0.25/4, weights 0.09, all over |G|² = 1 */
    const double noise = (0.25 / 4 + 0.09) / (1 + 1);
    for (int t = 0; t < TRIALS; t++) {
        simulate_replicates(&estimate, cell, 100 + (uint64_t)t, gradient_noise, of_weights, of_samples, bias);
        const tandem_sensitivity_estimate e = estimate_of(&estimate, share, 4 * estimate.batch, 1);
        n_noise += fabs(e.noise - noise) <= e.noise_half;
        n_bias += fabs(e.bias - bias) <= e.bias_half;
        sum += e.noise / TRIALS;
        sum_of_bias += e.bias / TRIALS;
        simulate_replicates(&estimate, cell, 100 + (uint64_t)t, gradient_noise, of_weights, of_samples, 0);
        const tandem_sensitivity_estimate none = estimate_of(&estimate, share, 4 * estimate.batch, 1);
        value_of_none += none.value / TRIALS;
        noise_of_none += fmax(none.noise, 0) / TRIALS;
    }
    /* clipped at 0, and no more, it would add 0.4 times its standard error: a tenth of the noise */
    if (value_of_none > 1.03 * noise_of_none)
        fail_msg("without bias: the value %g, the noise %g", value_of_none, noise_of_none);
    if (fabs(sum / noise - 1) > 0.03 || fabs(sum_of_bias / bias - 1) > 0.05)
        fail_msg("noise %g of %g, bias %g of %g", sum, noise, sum_of_bias, bias);
    if (n_noise < 0.9 * TRIALS || n_noise > 0.985 * TRIALS || n_bias < 0.9 * TRIALS ||
        n_bias > 0.985 * TRIALS)
        fail_msg("%d and %d of %d intervals hold; 95 %% should", n_noise, n_bias, TRIALS);
    tandem_estimate_close(&estimate);
}

/* --- Of a plan ------------------------------------------------------------------------------------------ */

static void set_planned(tandem_estimate *estimate, tandem_plan *plan, const tandem_graph *graph,
                        const char *name, tandem_precision precision, unsigned classes, double total)
{
    const int op = op_of(graph, name);
    set_errors(estimate, tandem_estimate_cell(op, precision, TANDEM_F32),
               (tandem_estimated_error){.total = total});
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (classes >> c & 1) plan->assignment.precision[c][op] = precision;
}

/* Two classes with half of the samples each; Var g = 4, |E g|² = 1, at the batch that was estimated. */
static void a_plan_costs_what_its_operators_cost(void **state)
{
    (void)state;
    tandem_graph *graph = open_graph("mlp:width=4,depth=3,image=2x2x1,classes=2", 2),
                 *other = open_graph("mlp:width=5,depth=1,image=2x2x1,classes=2", 2);
    tandem_estimate estimate = open_estimated(graph->n_op, 2, 3);
    tandem_cluster cluster;
    tandem_plan *plan = NULL;
    tandem_plan_sensitivity of = {.n_point = -7};
    tandem_error error = {0};
    require_ok(tandem_cluster_parse(&cluster, "2*cpu:avx2 batch=2 + cpu:sse41 batch=4", &error), &error);
    require_ok(tandem_plan_open(&plan, graph, &cluster, "by hand", &error), &error);
    set_planned(&estimate, plan, graph, "fc1", TANDEM_PRECISION_INT8_FULL, 3, 0.5);
    set_planned(&estimate, plan, graph, "fc2", TANDEM_PRECISION_INT8_FULL, 2, 1.2);
    set_planned(&estimate, plan, graph, "fc3", TANDEM_PRECISION_BF16, 1, 0.1);
    set_planned(&estimate, plan, graph, "head", TANDEM_PRECISION_FP8, 2, 0.3);
    require_ok(tandem_plan_sensitivity_estimate(&of, &estimate, plan, graph, &error), &error);
    assert_near(of.estimate.noise, (0.5 + 0.6 + 0.05 + 0.15) / 5);
    assert_near(of.estimate.value, of.estimate.noise);
    assert_true(of.n_point == 2 && of.point_share[0] == 0 && of.point_share[1] == 0.1);
    assert_int_equal(of.n_largest, 3);
    static const char *const largest[] = {"fc2", "fc1", "head"};
    static const double value[] = {0.12, 0.1, 0.03};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(of.largest[k].op, op_of(graph, largest[k]));
        assert_near(of.largest[k].value, value[k]);
    }
    assert_int_equal(of.largest[2].precision, TANDEM_PRECISION_FP8);
    /* ranges of 2 and of 4 samples, estimated at 1: fc2 in the second class alone, fc1 in both */
    const int fc1 = tandem_estimate_cell(op_of(graph, "fc1"), TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              fc2 = tandem_estimate_cell(op_of(graph, "fc2"), TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              fc3 = tandem_estimate_cell(op_of(graph, "fc3"), TANDEM_PRECISION_BF16, TANDEM_F32),
              head = tandem_estimate_cell(op_of(graph, "head"), TANDEM_PRECISION_FP8, TANDEM_F32);
    estimate.range_batch = 1;
    set_errors(&estimate, fc1, (tandem_estimated_error){.total = 0.5, .wide_total = 0.7});
    set_errors(&estimate, fc2, (tandem_estimated_error){.total = 1.2, .wide_total = 1.3});
    set_errors(&estimate, fc3, (tandem_estimated_error){.total = 0.1, .wide_total = 0.1});
    set_errors(&estimate, head, (tandem_estimated_error){.total = 0.3, .wide_total = 0.3});
    require_ok(tandem_plan_sensitivity_estimate(&of, &estimate, plan, graph, &error), &error);
    assert_near(of.estimate.noise, (0.5 + 0.6 + 0.05 + 0.15 + (0.5 * 0.5 + 0.5) * 0.2 + 0.5 * 0.1) / 5);
    estimate.range_batch = 0;
    plan->step.n_micro = 2; /* twice the samples: half of the noise, over Var g = 2 and |E g|² = 1 */
    require_ok(tandem_plan_sensitivity_estimate(&of, &estimate, plan, graph, &error), &error);
    assert_near(of.estimate.noise, 0.65 / 3);
    const tandem_plan_sensitivity exact = of;
    plan->cluster.wire = TANDEM_BF16; /* of three ranks: twice the rounding of one; operators keep theirs */
    require_ok(tandem_plan_sensitivity_estimate(&of, &estimate, plan, graph, &error), &error);
    const double exchange = 2 * 0x1p-14 * 0.6931471805599453 / 18;
    assert_near(tandem_allreduce_noise(&plan->cluster), exchange);
    assert_near(of.estimate.noise, exact.estimate.noise + exchange);
    assert_near(of.estimate.value, exact.estimate.value + exchange);
    assert_near(of.estimate.low, exact.estimate.low + exchange);
    assert_near(of.estimate.high, exact.estimate.high + exchange);
    assert_near(of.estimate.at_point[1], exact.estimate.at_point[1] + exchange);
    assert_near(of.largest[0].value, exact.largest[0].value);
    tandem_sensitivity_difference d = {0};
    tandem_plan *in_f32 = NULL;
    require_ok(tandem_plan_open(&in_f32, graph, &cluster, "in f32", &error), &error);
    tandem_assignment_copy(&in_f32->assignment, &plan->assignment);
    in_f32->step = plan->step;
    require_ok(tandem_plan_sensitivity_compare(&d, &estimate, plan, in_f32, graph, &error), &error);
    assert_near(d.value, exchange);
    require_ok(tandem_plan_sensitivity_compare(&d, &estimate, plan, plan, graph, &error), &error);
    assert_near(d.value, 0);
    tandem_plan_close(in_f32);
    plan->cluster.classes[0].n_rank = 1;
    plan->cluster.n_class = 1; /* one rank exchanges nothing */
    assert_true(tandem_allreduce_noise(&plan->cluster) == 0);
    plan->cluster = cluster;
    estimate.is_estimated[tandem_estimate_cell(op_of(graph, "fc3"), TANDEM_PRECISION_BF16, TANDEM_F32)] = 0;
    of.n_point = -7;
    assert_int_equal(tandem_plan_sensitivity_estimate(&of, &estimate, plan, graph, &error), TANDEM_MISSING);
    assert_int_equal(tandem_plan_sensitivity_estimate(&of, &estimate, plan, other, &error),
                     TANDEM_WRONG_MODEL);
    assert_int_equal(of.n_point, -7);
    tandem_plan_close(plan);
    tandem_estimate_close(&estimate);
    tandem_graph_close(graph);
    tandem_graph_close(other);
}

/* What both plans share drops out of the difference, with its error. So does a bias that no plan has. */
static void the_difference_of_plans_is_paired(void **state)
{
    (void)state;
    tandem_estimate estimate = open_estimated(N_OP, 1, 8);
    tandem_sensitivity_difference d = {0};
    tandem_error error = {0};
    double less[N_CELL] = {0}, more[N_CELL] = {0};
    const tandem_sensitivity_step step = {.global_batch = 8, .n_micro = 1};
    const int shared = tandem_estimate_cell(0, TANDEM_PRECISION_INT8_FULL, TANDEM_F32),
              own = tandem_estimate_cell(1, TANDEM_PRECISION_BF16, TANDEM_F32);
    set_errors(&estimate, shared, (tandem_estimated_error){.total = 0.5});
    set_errors(&estimate, own, (tandem_estimated_error){.total = 0.05});
    for (int r = 0; r < 8; r++) tandem_estimate_errors(&estimate, 0, shared)[r].total += r % 2 ? 0.4 : -0.4;
    less[shared] = more[shared] = more[own] = 1;
    require_ok(tandem_estimate_compare(&d, &estimate, more, &step, less, &step, &error), &error);
    assert_near(d.value, 0.01);
    assert_near(d.low, 0.01);
    assert_near(d.high, 0.01);
    const tandem_sensitivity_estimate e = estimate_of(&estimate, less, 8, 1);
    assert_true(e.high - e.low > 0.1);
    less[shared] = 0; /* now the difference has the error of what varies */
    require_ok(tandem_estimate_compare(&d, &estimate, more, &step, less, &step, &error), &error);
    assert_near(d.value, 0.11);
    assert_near(d.high - d.value, e.high - e.value);
    for (int r = 0; r < 8; r++)
        tandem_estimate_errors(&estimate, 0, own)[r].against = -0.5 + (r % 2 ? 0.1 : -0.1);
    less[shared] = 1;
    require_ok(tandem_estimate_compare(&d, &estimate, more, &step, less, &step, &error), &error);
    assert_near(d.high, 0.01); /* a bias that helps */
    for (int r = 0; r < 8; r++) tandem_estimate_errors(&estimate, 0, own)[r].against *= -1;
    require_ok(tandem_estimate_compare(&d, &estimate, more, &step, less, &step, &error), &error);
    assert_near(d.value, 0.51);
    assert_true(d.low < 0.5 && d.high > 0.52);
    estimate.is_estimated[own] = 0;
    assert_int_equal(tandem_estimate_compare(&d, &estimate, more, &step, less, &step, &error),
                     TANDEM_MISSING);
    assert_near(d.value, 0.51);
    tandem_estimate_close(&estimate);
}

/* --- Through the store ---------------------------------------------------------------------------------- */

static void estimate_all(tandem_estimate *estimate, const tandem_graph *graph, double total)
{
    static const tandem_dtype amp_dtype[] = {TANDEM_F32, TANDEM_BF16, TANDEM_F16};
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION; i++)
        for (int k = 0; k < 3; k++)
            if (i % TANDEM_N_PRECISION &&
                tandem_op_row_get(graph->op[i / TANDEM_N_PRECISION].kind)->precisions &
                    1u << i % TANDEM_N_PRECISION)
                set_errors(estimate,
                           tandem_estimate_cell(i / TANDEM_N_PRECISION,
                                                (tandem_precision)(i % TANDEM_N_PRECISION), amp_dtype[k]),
                           (tandem_estimated_error){.total = total * (1 + k), .against = 0.001});
}

static void replicates_come_back_from_the_store(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem-sampled-XXXXXX", path[64], side[80];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/store.db", folder);
    tandem_graph *graph = open_graph("mlp:width=4,depth=1,image=2x2x1,classes=2", 2);
    tandem_estimate estimate = open_estimated(graph->n_op, 2, 3), read = {0};
    const size_t n = (size_t)graph->n_op * TANDEM_N_PRECISION;
    double *sensitivity = calloc(n, sizeof *sensitivity);
    tandem_store *store = NULL;
    tandem_error error = {0};
    const tandem_sensitivity_step step = {.global_batch = 16, .n_micro = 1};
    const int fc1 = op_of(graph, "fc1"), at = fc1 * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8;
    require_ok(tandem_store_open(&store, path, TANDEM_STORE_WRITE, &error), &error);
    assert_int_equal(
        tandem_sensitivity_load(sensitivity, store, graph, "sampled", NULL, &step, TANDEM_F32, ~0u, &error),
        TANDEM_MISSING);
    assert_non_null(strstr(error.text, "`tandem sensitivity --model mlp"));
    estimate_all(&estimate, graph, 0.5);
    estimate.optimizer = graph->optimizer.kind;
    require_ok(tandem_store_put_estimate(store, graph, "a", &estimate, &error), &error);
    estimate_all(&estimate, graph, 0.1); /* replaces the first */
    estimate.range_batch = 4;
    for (int i = 0; i < (int)n * TANDEM_N_AMP_DTYPE * 2 * 3; i++) {
        estimate.error[i].wide_total = 1.5 * estimate.error[i].total;
        estimate.error[i].wide_shared = estimate.error[i].wide_mean_square = estimate.error[i].mean_square;
    }
    require_ok(tandem_store_put_estimate(store, graph, "a", &estimate, &error), &error);
    require_ok(tandem_store_load_estimate(&read, store, graph, NULL, &error), &error);
    assert_true(read.batch == 8 && read.steps == 100 && read.n_point == 2 && read.n_replicate == 3 &&
                read.range_batch == 4 && read.point[1] == 10);
    for (int cell = 0; cell < (int)n * TANDEM_N_AMP_DTYPE; cell++) {
        assert_int_equal(read.is_estimated[cell], estimate.is_estimated[cell]);
        assert_memory_equal(tandem_estimate_errors(&read, 1, cell),
                            tandem_estimate_errors(&estimate, 1, cell), 3 * sizeof(tandem_estimated_error));
    }
    require_ok(
        tandem_sensitivity_load(sensitivity, store, graph, "sampled", "a", &step, TANDEM_BF16, ~0u, &error),
        &error);
    /* in percent, at twice the batch; its ranges are of 2 samples, half of those that were estimated */
    assert_near(sensitivity[at], 100 * (0.2 * 0.2 / 0.25 * 0.5 / (4 * 0.5 + 1) + 0.001));
    assert_true(sensitivity[fc1 * TANDEM_N_PRECISION + TANDEM_PRECISION_FP32] == 0);
    assert_int_equal(tandem_store_load_estimate(&read, store, graph, "b", &error), TANDEM_MISSING);
    assert_int_equal(read.without_bias, 0);
    tandem_estimate_close(&read);
    for (int i = 0; i < (int)n * TANDEM_N_AMP_DTYPE * 2 * 3; i++) estimate.error[i].against = 0;
    require_ok(tandem_store_put_estimate(store, graph, "a", &estimate, &error), &error);
    require_ok(tandem_store_load_estimate(&read, store, graph, NULL, &error), &error);
    assert_int_equal(read.without_bias, 1);
    estimate.is_estimated[tandem_estimate_cell(fc1, TANDEM_PRECISION_FP8, TANDEM_F32)] = 0;
    require_ok(tandem_store_put_estimate(store, graph, "a", &estimate, &error), &error);
    assert_int_equal(
        tandem_sensitivity_load(sensitivity, store, graph, "sampled", "a", &step, TANDEM_F32, ~0u, &error),
        TANDEM_MISSING);
    assert_non_null(strstr(error.text, "'fc1'"));
    estimate.error[0].total = NAN;
    memset(estimate.is_estimated, 1, n * TANDEM_N_AMP_DTYPE);
    assert_int_equal(tandem_store_put_estimate(store, graph, "a", &estimate, &error), TANDEM_USAGE);
    tandem_store_close(store);
    tandem_estimate_close(&read);
    tandem_estimate_close(&estimate);
    static const char *const suffix[] = {"", "-wal", "-shm"};
    for (int k = 0; k < 3; k++) {
        (void)snprintf(side, sizeof side, "%s%s", path, suffix[k]);
        (void)unlink(side);
    }
    (void)rmdir(folder);
    free(sensitivity);
    tandem_graph_close(graph);
}

/* Student's t of 2 degrees of freedom is 4.3027 at 97.5 %; the squares of {1, 2, 3} about 2 sum to 2. */
static void a_jackknife_holds_95_percent(void **state)
{
    const double half = tandem_jackknife_half((const double[]){1, 2, 3}, 3);
    if (!(fabs(half - 4.3027 * sqrt(2 * 2 / 3.0)) < 1e-3)) fail_msg("%g", half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jackknife_holds_95_percent),
        cmocka_unit_test(parts_convert_to_the_step),
        cmocka_unit_test(weights_that_are_not_drawn_add_no_noise),
        cmocka_unit_test(the_part_of_samples_grows_with_the_range),
        cmocka_unit_test(converted_noise_is_that_of_the_larger_range),
        cmocka_unit_test(operators_add_up),
        cmocka_unit_test(a_bias_counts_where_it_differs_from_0),
        cmocka_unit_test(a_lost_gradient_has_no_bias),
        cmocka_unit_test(a_bias_without_an_estimate_is_unknown),
        cmocka_unit_test(bad_estimates_are_refused),
        cmocka_unit_test(intervals_hold_what_they_estimate),
        cmocka_unit_test(a_plan_costs_what_its_operators_cost),
        cmocka_unit_test(the_difference_of_plans_is_paired),
        cmocka_unit_test(replicates_come_back_from_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
