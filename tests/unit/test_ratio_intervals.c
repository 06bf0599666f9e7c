/* folder: replayer */
/* Intervals of ratios of times in two precisions: of a shape, against errors put in by hand; of sums, against
 * draws of what they are made of. */
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>

#include "predictor/by_others.h"
#include "tandem/advanced/replayer.h"
#include "tandem/advanced/timings.h"
#include "tests/support/tandem_test.h"

static tandem_device ratio_device(const char *name)
{
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, name, NULL), TANDEM_OK);
    return device;
}

static tandem_work linear_in(const char *precision, double m, double k, double n)
{
    tandem_work work;
    tandem_timing timing = {.m = m, .k = k, .n = n};
    (void)snprintf(timing.kind, sizeof timing.kind, "linear");
    (void)snprintf(timing.precision, sizeof timing.precision, "%s", precision);
    assert_int_equal(tandem_timing_work(&work, &timing, NULL), TANDEM_OK);
    return work;
}

/* --- Of a shape ----------------------------------------------------------------------------------------- */

enum { N_PAIR = 40 };

/* Errors of fp16 are `times` those of fp32. n_both: sizes that one source timed in both. Another one timed
 * the others in fp16. */
static tandem_by_others *open_pairs(double times, int n_both, char **text)
{
    const tandem_device t4 = ratio_device("t4");
    const struct {
        const char *precision, *method;
        int begin, end;
    } tables[] = {{"fp32", "loop", 0, N_PAIR}, {"fp16", "loop", 0, n_both}, {"fp16", "more", n_both, N_PAIR}};
    tandem_by_others *of = NULL;
    const size_t room = 2 * (N_PAIR + 3) * 128;
    char *const to = malloc(room);
    size_t at = 0;
    assert_non_null(to);
    for (int p = 0; p < 3; p++) {
        if (tables[p].begin == tables[p].end) continue;
        at += (size_t)snprintf(&to[at], room - at,
                               "device=t4,source=x,method=%s,operator=linear,precision=%s,count=%d,m,k,n,"
                               "time_us\n",
                               tables[p].method, tables[p].precision, tables[p].end - tables[p].begin);
        for (int i = tables[p].begin; i < tables[p].end; i++) {
            const double m = 100 + 61 * ((17 * i) % 41), k = 90 + 97 * (i % 13), n = 70 + 89 * (i % 11),
                         error = 0.3 * sin(12.9898 * (i + 1));
            const tandem_work work = linear_in(tables[p].precision, m, k, n);
            at +=
                (size_t)snprintf(&to[at], room - at, "%g,%g,%g,%.9g\n", m, k, n,
                                 1e-3 * tandem_described_ns(&t4, &work) * exp(p > 0 ? times * error : error));
        }
    }
    (void)snprintf(&to[at], room - at, "# end\n");
    const tandem_measured_file files[] = {{"t4_x", to}, {NULL, NULL}};
    assert_int_equal(tandem_by_others_open(&of, files, &t4, NULL), TANDEM_OK);
    *text = to;
    return of;
}

/* What rows say of a kernel changes its sign with their errors. So a ratio of times whose errors are equal is
 * off by nothing, and one whose errors are opposite by twice as much as each time. */
static void common_errors_cancel_and_opposite_ones_add_up(void **state)
{
    /* the tasks are of a size that is measured, where no interval grows */
    static const double times[] = {0, 1, -1};
    double alone = 0; /* of errors in fp32 alone */
    const tandem_work narrow = linear_in("fp16", 710, 381, 337), wide = linear_in("fp32", 710, 381, 337);
    (void)state;
    for (int k = 0; k < 3; k++) {
        char *text = NULL;
        tandem_by_others *const of = open_pairs(times[k], N_PAIR, &text);
        const tandem_ratio_spread spread = tandem_by_others_ratio_spread(of, &narrow, &wide, 0),
                                  again = tandem_by_others_ratio_spread(of, &narrow, &wide, 0);
        const double one = tandem_by_others_spread(of, &wide, 0), all = hypot(spread.shared, spread.own);
        if (k == 0) alone = all;
        assert_true(one > 0.1 && alone >= one && alone < 1.3 * one && spread.n_shape == N_PAIR);
        if (!(fabs(all - alone * (1 - times[k])) < 1e-3 * alone))
            fail_msg("x %g: %g, alone %g", times[k], all, alone);
        assert_true(fabs(spread.shared - all / 2) < 1e-9); /* a quarter of the variance is shared */
        assert_true(spread.shared == again.shared && spread.own == again.own);
        tandem_by_others_close(of);
        free(text);
    }
}

/* Nor are sizes that two sources timed. */
static void seven_pairs_are_too_few(void **state)
{
    const tandem_work narrow = linear_in("fp16", 710, 381, 337), wide = linear_in("fp32", 710, 381, 337);
    (void)state;
    for (int n = 7; n <= 8; n++) {
        char *text = NULL;
        tandem_by_others *const of = open_pairs(1, n, &text);
        const tandem_ratio_spread spread = tandem_by_others_ratio_spread(of, &narrow, &wide, 0);
        assert_int_equal(spread.n_shape, n);
        assert_int_equal(isnan(spread.own), n == 7);
        tandem_by_others_close(of);
        free(text);
    }
}

static tandem_calibration *open_calibration(const char *gpu, int with_others)
{
    tandem_calibration *c = NULL;
    char notes[TANDEM_CALIBRATION_NOTES];
    const tandem_device device = ratio_device(gpu);
    assert_int_equal(tandem_calibration_open(&c, &device, NULL), TANDEM_OK);
    tandem_calibration_finish(c, notes);
    if (with_others) assert_int_equal(tandem_calibration_add_others(c, NULL), TANDEM_OK);
    return c;
}

/* By hand, of a card that is only described: what generations left out show, and what cards reach of their
 * peaks. Of types that were never timed together both times count, whose spreads are of spreads.def. */
static void a_described_ratio_has_its_own_interval(void **state)
{
    tandem_calibration *const c = open_calibration("v100", 0);
    const tandem_work half = linear_in("fp16", 2048, 1024, 1024), wide = linear_in("fp32", 2048, 1024, 1024);
    const tandem_ratio_fit *const fit = tandem_ratio_fitted(TANDEM_RATIO_LINEAR_16);
    const double device = tandem_device_ratio_fitted(&tandem_calibration_device(c)->gpu_spec)->shared,
                 shared = sqrt(fit->spread.shared * fit->spread.shared + device * device);
    tandem_time_ratio ratio;
    (void)state;
    assert_int_equal(tandem_calibrated_ratio(&ratio, c, &half, &wide), 1);
    assert_true(fit->spread.n_shape > 50 && fabs(ratio.spread.shared - shared) < 1e-12);
    assert_true(ratio.spread.own == fit->spread.own && ratio.spread.n_shape == fit->spread.n_shape);
    const double a = tandem_calibrated_ns(NULL, c, &half), b = tandem_calibrated_ns(NULL, c, &wide),
                 z = log(ratio.high / ratio.ratio);
    assert_true(fabs(ratio.ratio - a / b) < 1e-12 && fabs(z - log(ratio.ratio / ratio.low)) < 1e-9);
    assert_true(fabs(z - 1.2816 * sqrt(shared * shared + fit->spread.own * fit->spread.own)) < 1e-9);
    const tandem_work s8 = linear_in("int8", 2048, 1024, 1024);
    const tandem_spread *const of_s8 = tandem_spread_fitted(TANDEM_SPREAD_LINEAR_S8),
                               *const of_32 = tandem_spread_fitted(TANDEM_SPREAD_LINEAR_32);
    const tandem_ratio_spread both = tandem_calibration_ratio_spread(c, &s8, &wide);
    assert_true(both.n_shape == 0 &&
                fabs(both.own - sqrt(of_s8->own * of_s8->own + of_32->own * of_32->own)) < 1e-12);
    assert_true(both.shared > of_s8->shared && both.shared > of_32->shared);
    tandem_calibration_close(c);
}

/* Beyond all rows an interval says so. */
static void a_ratio_beyond_all_rows_is_less_known(void **state)
{
    tandem_calibration *const c = open_calibration("a100", 1);
    double all[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        const double size = k == 0 ? 1024 : 200000;
        const tandem_work narrow = linear_in("int8", 16, size, 1024),
                          wide = linear_in("bf16", 16, size, 1024);
        const tandem_ratio_spread spread = tandem_calibration_ratio_spread(c, &narrow, &wide);
        all[k] = hypot(spread.shared, spread.own);
    }
    assert_true(all[0] > 0.05 && all[1] > 1.3 * all[0]);
    tandem_calibration_close(c);
}

/* The spread of a ratio with an own row in each of the first n_type types, as the prediction has them. */
static double spread_with_own(int n_type)
{
    const tandem_work works[] = {linear_in("fp16", 4096, 1024, 1024), linear_in("fp32", 4096, 1024, 1024)};
    tandem_calibration *const c = open_calibration("t4", 1);
    char notes[TANDEM_CALIBRATION_NOTES];
    for (int k = 0; k < n_type; k++)
        assert_int_equal(
            tandem_calibration_add(c, &works[k], tandem_calibrated_ns(NULL, c, &works[k]), 0, NULL),
            TANDEM_OK);
    tandem_calibration_finish(c, notes);
    const tandem_ratio_spread spread = tandem_calibration_ratio_spread(c, &works[0], &works[1]);
    assert_true(spread.n_shape > 50);
    tandem_calibration_close(c);
    return hypot(spread.shared, spread.own);
}

/* What a plan's answer asks to be timed narrows the interval that it rests on. */
static void own_rows_of_both_types_narrow_a_ratio(void **state)
{
    const double without = spread_with_own(0), of_one = spread_with_own(1), of_both = spread_with_own(2);
    (void)state;
    assert_true(of_one < 0.95 * without && of_both < 0.8 * without && of_both < of_one);
}

/* --- Of sums -------------------------------------------------------------------------------------------- */

enum { MAX_PAIRS = 256, N_DRAW = 20000 };

typedef struct drawn_pair {
    double narrow_ns, wide_ns, wide_shared, wide_own;
    tandem_ratio_spread ratio;
} drawn_pair;

/* The first variant of a product that is in a precision, by its cost key. Returns its time. */
static double time_in(tandem_work *work, tandem_replayer *replayer, const tandem_step *step, int t,
                      const char *precision)
{
    for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
        tandem_cost_key key;
        if (!tandem_step_cost_key(step, t, variant, &key) || key.kind != TANDEM_COST_OP ||
            strcmp(key.precision, precision) != 0 || !tandem_work_of(work, &key) || !work->is_product)
            continue;
        const double ns = (double)tandem_replayer_variant_ns(replayer, 0, t, variant, 0);
        if (ns > 0) return ns;
    }
    return 0;
}

static int list_drawn_pairs(drawn_pair *pair, tandem_replayer *replayer, const tandem_calibration *c)
{
    const tandem_step *const step = tandem_replayer_step(replayer, 0);
    int n = 0;
    for (int t = 0; t < step->n_task && n < MAX_PAIRS; t++) {
        tandem_work narrow, wide;
        if (step->task[t].op < 0 || !tandem_op_is_adjustable(&step->graph->op[step->task[t].op])) continue;
        const double a = time_in(&narrow, replayer, step, t, "fp16"),
                     b = time_in(&wide, replayer, step, t, "fp32");
        if (!(a > 0 && b > 0)) continue;
        const int group = tandem_calibration_form_group(c, &wide);
        pair[n++] =
            (drawn_pair){a, b, tandem_evidence_spread_shared(group, 0),
                         tandem_spread_fitted((tandem_spread_group)(group % (int)TANDEM_N_SPREAD_GROUP))->own,
                         tandem_calibration_ratio_spread(c, &narrow, &wide)};
    }
    return n;
}

static int compare_drawn(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Errors a hundredth as large, so that logarithms of sums are as good as linear. */
static double half_of_draws(const drawn_pair *pair, int n, double *off)
{
    const double small = 0.01;
    double narrow_ns = 0, wide_ns = 0;
    gsl_rng *const random = gsl_rng_alloc(gsl_rng_mt19937);
    assert_non_null(random);
    for (int i = 0; i < n; i++) narrow_ns += pair[i].narrow_ns, wide_ns += pair[i].wide_ns;
    for (int k = 0; k < N_DRAW; k++) {
        const double of_wide = gsl_ran_gaussian(random, 1), of_ratio = gsl_ran_gaussian(random, 1);
        double a = 0, b = 0;
        for (int i = 0; i < n; i++) {
            const double wide =
                             pair[i].wide_shared * of_wide + pair[i].wide_own * gsl_ran_gaussian(random, 1),
                         ratio = pair[i].ratio.shared * of_ratio +
                                 pair[i].ratio.own * gsl_ran_gaussian(random, 1);
            a += pair[i].narrow_ns * exp(small * (wide + ratio));
            b += pair[i].wide_ns * exp(small * wide);
        }
        off[k] = fabs(log(a / b / (narrow_ns / wide_ns))) / small;
    }
    gsl_rng_free(random);
    qsort(off, N_DRAW, sizeof *off, compare_drawn);
    return off[N_DRAW * 4 / 5];
}

/* Each product's time in fp16 is off by what it is in fp32, and by its ratio. */
static void require_drawn_interval(const char *gpu, const char *model, int64_t batch)
{
    double *const off = malloc(N_DRAW * sizeof *off), half = 0, sums[2] = {0, 0};
    drawn_pair *const pair = malloc(MAX_PAIRS * sizeof *pair);
    tandem_graph *graph = NULL;
    tandem_replayer *replayer = NULL;
    tandem_cluster cluster = {.n_class = 1};
    const tandem_replayer_options options = {.predict = 1};
    assert_true(off && pair);
    assert_int_equal(tandem_graph_open(&graph, model, batch, NULL), TANDEM_OK);
    const tandem_graph *const graphs[] = {graph};
    cluster.classes[0] = (tandem_cluster_class){.n_rank = 1, .batch = batch, .device = ratio_device(gpu)};
    assert_int_equal(tandem_replayer_open_with(&replayer, &cluster, graphs, NULL, &options, NULL), TANDEM_OK);
    tandem_calibration *const c = open_calibration(gpu, 1);
    const int n = list_drawn_pairs(pair, replayer, c);
    for (int i = 0; i < n; i++) sums[0] += pair[i].narrow_ns, sums[1] += pair[i].wide_ns;
    const double ratio = tandem_replayer_product_ratio(&half, replayer, 0, TANDEM_PRECISION_FP16),
                 drawn = half_of_draws(pair, n, off);
    assert_true(n > 5 && fabs(ratio - sums[0] / sums[1]) < 1e-9);
    if (!(fabs(log1p(half) / drawn - 1) < 0.03))
        fail_msg("%s on %s: half an interval of %g, drawn %g", model, gpu, log1p(half), drawn);
    assert_true(tandem_replayer_product_ratio(&half, replayer, 0, TANDEM_PRECISION_FP32) > 0.999);
    assert_true(half < 1e-9); /* of a precision over itself */
    tandem_calibration_close(c);
    tandem_replayer_close(replayer);
    tandem_graph_close(graph);
    free(pair);
    free(off);
}

static void a_ratio_of_sums_is_as_far_off_as_draws(void **state)
{
    static const char *const gpus[] = {"t4", "v100", "l4"};
    (void)state;
    for (size_t k = 0; k < sizeof gpus / sizeof *gpus; k++) {
        require_drawn_interval(gpus[k], "resnet20", 64);
        require_drawn_interval(gpus[k], "mlp", 8); /* whose products differ most in their ratios */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(common_errors_cancel_and_opposite_ones_add_up),
                                       cmocka_unit_test(seven_pairs_are_too_few),
                                       cmocka_unit_test(a_described_ratio_has_its_own_interval),
                                       cmocka_unit_test(a_ratio_beyond_all_rows_is_less_known),
                                       cmocka_unit_test(own_rows_of_both_types_narrow_a_ratio),
                                       cmocka_unit_test(a_ratio_of_sums_is_as_far_off_as_draws)};
    return cmocka_run_group_tests_name("ratio_intervals", tests, NULL, NULL);
}
