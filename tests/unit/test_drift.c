/* folder: research */
/* Outliers that grow in channels change no bit of what a model computes in fp32, and the range of what is
 * cast; a probe rounds to the formats that represent the dtypes; when ranges begin an estimate. */
#include "runtime/train/reestimate_trigger.h"
#include "runtime/estimate/estimate_probe.h"
#include "research/drift.h"
#include "graph/ir/build.h"
#include "tests/support/held_run.h"

enum { BATCH = 4 };

static double loss_of_step(const held_run *r)
{
    tandem_error error = {0};
    double loss = 0;
    require_ok(r->backend->executor_step(r->executor, 0, &loss, &error), &error);
    return loss;
}

static float first_gradient(const held_run *r, int parameter, int64_t i)
{
    return ((const float *)r->backend->executor_value(r->executor, TANDEM_PARAMETER(parameter), 1, NULL))[i];
}

/* The gradient of what is scaled up falls by as much, and that of the weights that read it grows. */
static void check_growth(const char *model, int n_expected)
{
    static drift_place place[DRIFT_MAX_PLACES];
    held_run r = {0};
    tandem_error error = {0};
    open_held_run(&r, model, BATCH);
    assert_int_equal(drift_places_find(place, r.graph), n_expected);
    float *weight = calloc((size_t)r.step->n_flat, sizeof *weight);
    assert_non_null(weight);
    require_ok(r.backend->executor_get_weights(r.executor, weight, &error), &error);
    for (int64_t i = 0; i < r.step->n_flat; i++) /* biases begin at 0, where no factor shows */
        if (weight[i] == 0) weight[i] = (float)(i % 5 - 2) / 32;
    require_ok(r.backend->executor_put_weights(r.executor, weight, &error), &error);
    const double loss = loss_of_step(&r);
    for (int i = 0; i < n_expected; i++) {
        const int64_t j = place[i].n_channel - 1,
                      n_column = tandem_shape_last(&r.graph->parameter[place[i].divided[0]].shape),
                      column = 2 % n_column;
        const float scaled = first_gradient(&r, place[i].scaled[0], j),
                    divided = first_gradient(&r, place[i].divided[0], j * n_column + column);
        require_ok(r.backend->executor_get_weights(r.executor, weight, &error), &error);
        drift_place_scale(weight, r.step, &place[i], j, 8);
        require_ok(r.backend->executor_put_weights(r.executor, weight, &error), &error);
        if (loss_of_step(&r) != loss) fail_msg("place %d of %s changes the loss", i, model);
        assert_true(first_gradient(&r, place[i].scaled[0], j) == scaled / 8);
        assert_true(first_gradient(&r, place[i].divided[0], j * n_column + column) == divided * 8);
        drift_place_scale(weight, r.step, &place[i], j, 2); /* of a weight that is not put back */
        drift_place_scale(weight, r.step, &place[i], j, 0.0625F);
        require_ok(r.backend->executor_put_weights(r.executor, weight, &error), &error);
        assert_true(loss_of_step(&r) == loss);
        assert_true(first_gradient(&r, place[i].scaled[0], j) == scaled);
    }
    free(weight);
    close_held_run(&r);
}

static void growing_outliers_change_no_bit_in_fp32(void **state)
{
    check_growth("mlp:depth=4,width=16,image=7x7x1", 4);
    check_growth("vit_tiny:width=16,heads=2,depth=2,patch=14", 4); /* two norms a block */
    check_growth("resnet20:width=4,blocks=1,image=14x14x1", 3);    /* the first convolution of a block */
}

/* Places of: a linear, n_bias biases, and n_reader linears that are added up. */
static int count_places(int n_bias, int n_reader)
{
    static drift_place place[DRIFT_MAX_PLACES];
    const int64_t flat[2] = {BATCH, 16};
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    char name[32];
    require_ok(tandem_builder_open(&b, BATCH, &error), &error);
    const int image = tandem_build_images(b, "image", 4, 4, 1), label = tandem_build_labels(b, "label", 1);
    int x = tandem_build_linear(b, "first", tandem_build_reshape(b, "flat", image, 2, flat), 8, 1), sum = -1;
    for (int i = 0; i < n_bias; i++) {
        (void)snprintf(name, sizeof name, "bias%d", i);
        x = tandem_build_bias(b, name, x, 1, 0);
    }
    for (int i = 0; i < n_reader; i++) {
        (void)snprintf(name, sizeof name, "reader%d", i);
        const int y = tandem_build_linear(b, name, x, 10, 1);
        (void)snprintf(name, sizeof name, "sum%d", i);
        sum = i == 0 ? y : tandem_build_add(b, name, sum, y);
    }
    (void)tandem_build_cross_entropy(b, "loss", sum, label);
    const tandem_optimizer_options optimizer = {.kind = TANDEM_SGD, .rate = 1};
    require_ok(tandem_builder_finish(b, "places", &optimizer, &graph, &error), &error);
    const int n = drift_places_find(place, graph);
    for (int i = 0; i < n; i++) {
        assert_int_equal(place[i].n_scaled, 1 + n_bias);
        assert_int_equal(place[i].n_divided, n_reader);
    }
    tandem_graph_close(graph);
    tandem_builder_close(b);
    return n;
}

/* A place that kept some of them would change what a model computes. */
static void a_place_has_all_its_parameters_or_is_none(void **state)
{
    assert_int_equal(count_places(0, 1), 1);
    assert_int_equal(count_places(DRIFT_MAX_PARAMETERS - 1, DRIFT_MAX_PARAMETERS), 1);
    assert_int_equal(count_places(DRIFT_MAX_PARAMETERS, 1), 0);
    assert_int_equal(count_places(0, DRIFT_MAX_PARAMETERS + 1), 0);
}

/* The noise of all operators in int8_full, whose s8 a format represents. */
static double probed_noise(held_run *r, tandem_format format)
{
    enum { REPLICATES = 4 };
    static float sketch[2 * REPLICATES * TANDEM_PROBE_SKETCH];
    tandem_error error = {0};
    tandem_estimate estimate = {0};
    tandem_emulation emulation = tandem_emulation_make(0);
    double noise = 0;
    emulation.format[TANDEM_S8] = format;
    require_ok(tandem_estimate_open(&estimate, r->graph->n_op, 1, REPLICATES, &error), &error);
    estimate.batch = BATCH;
    for (int op = 0; op < r->graph->n_op; op++)
        estimate.is_estimated[tandem_estimate_cell(op, TANDEM_PRECISION_INT8_FULL, TANDEM_F32)] =
            (unsigned char)tandem_op_is_adjustable(&r->graph->op[op]);
    probe_point point = {.backend = r->backend,
                         .executor = r->executor,
                         .step = r->step,
                         .estimate = &estimate,
                         .emulation = &emulation,
                         .n_range_batch = 1,
                         .n_rank = 1};
    require_ok(estimate_probe_point(&point, sketch, &error), &error);
    for (int op = 0; op < estimate.n_op; op++) {
        const int cell = tandem_estimate_cell(op, TANDEM_PRECISION_INT8_FULL, TANDEM_F32);
        for (int k = 0; k < REPLICATES && estimate.is_estimated[cell]; k++)
            noise += tandem_estimate_errors(&estimate, 0, cell)[k].total;
    }
    tandem_estimate_close(&estimate);
    return noise;
}

/* Steps of s4 are 127/7 times those of s8; after gelus noise grows with their square. */
static void a_probe_takes_the_formats_of_an_emulation(void **state)
{
    held_run r = {0};
    open_held_run(&r, "vit_tiny:width=16,heads=2,depth=1,patch=14", BATCH);
    const double ratio = probed_noise(&r, TANDEM_FORMAT_S4) / probed_noise(&r, TANDEM_FORMAT_S8),
                 expected = 127.0 * 127.0 / (7.0 * 7.0);
    close_held_run(&r);
    if (!(ratio > 0.7 * expected && ratio < 1.4 * expected)) fail_msg("s4 has %.3g times the noise", ratio);
}

/* Outliers of a gradient come after an estimate without them, and go after one with them. */
static int count_estimates(int is_limited, int64_t every, int64_t steps)
{
    held_run r = {0};
    tandem_error error = {0};
    static drift_place place[DRIFT_MAX_PLACES];
    reestimate_trigger trigger;
    int n = 0, has_outliers = 0;
    open_held_run(&r, "mlp:depth=2,width=128,image=7x7x1", BATCH);
    assert_true(drift_places_find(place, r.graph) > 0);
    float *weight = calloc((size_t)r.step->n_flat, sizeof *weight);
    assert_non_null(weight);
    require_ok(r.backend->executor_get_weights(r.executor, weight, &error), &error);
    training_rank rank = {.backend = r.backend,
                          .self = {.n_rank = 1},
                          .step = r.step,
                          .worker = r.worker,
                          .executor = r.executor};
    require_ok(reestimate_trigger_open(&trigger, &rank, every, &error), &error);
    trigger.is_limited = is_limited;
    for (int64_t done = 1; done <= steps; done++) {
        int is_due = 0, doubled = -1;
        double loss = 0;
        const int is_wanted = done > 5 && n % 2 == 0;
        for (int64_t j = 0; j < 2 && is_wanted != has_outliers; j++)
            drift_place_scale(weight, r.step, &place[0], j, is_wanted ? 1.0F / 64 : 64);
        has_outliers = is_wanted;
        require_ok(r.backend->executor_put_weights(r.executor, weight, &error), &error);
        reestimate_trigger_before(&trigger, done);
        require_ok(r.backend->executor_step(r.executor, done - 1, &loss, &error), &error);
        require_ok(reestimate_trigger_after(&trigger, done, &is_due, &doubled, &error), &error);
        n += is_due;
        assert_true(n == trigger.n_estimated && (is_due || doubled < 0));
        if (is_due && is_limited && doubled >= 0) assert_true(3 * every * n <= 4 * done);
        assert_true(done - trigger.last < every);
    }
    free(weight);
    reestimate_trigger_close(&trigger);
    close_held_run(&r);
    return n;
}

static void ranges_add_a_third_of_the_estimates_at_most(void **state)
{
    const int limited = count_estimates(1, 40, 1200), always = count_estimates(0, 40, 1200);
    /* 40, and one that the interval begins after that */
    if (limited < 30 || limited > 41 || always < 50) fail_msg("%d estimates, limited to %d", always, limited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_outliers_change_no_bit_in_fp32),
        cmocka_unit_test(a_place_has_all_its_parameters_or_is_none),
        cmocka_unit_test(a_probe_takes_the_formats_of_an_emulation),
        cmocka_unit_test(ranges_add_a_third_of_the_estimates_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
