/* folder: runtime */
/* Random directions over parameters: their mean square along a fixed vector, also of parameters of which they
 * have a part only; weights come back to the bit. An executor in lent memory computes what one of its own
 * memory does, and leaves the lender's training as it was. */
#include <math.h>

#include "runtime/estimate/probe_direction.h"
#include "runtime/estimate/probe_loops.h"
#include "tandem/advanced/backend.h"
#include "tests/support/tandem_test.h"

enum { BATCH = 8 };
/* 196 × 97 numbers: every second block, and the last one alone, with 4 of 32 numbers */
static const char model[] = "mlp:width=97,depth=2,image=14x14x1";

typedef struct opened_step {
    tandem_graph *graph;
    tandem_step *step;
} opened_step;

static opened_step open_step(int64_t batch)
{
    opened_step s = {0};
    tandem_error error = {0};
    const tandem_step_options options = {.separate_partial_grads = 1};
    require_ok(tandem_graph_open(&s.graph, model, batch, &error), &error);
    require_ok(tandem_step_open_with(&s.step, s.graph, TANDEM_F32, 0, &options, &error), &error);
    return s;
}

static void close_step(opened_step *s)
{
    tandem_step_close(s->step);
    tandem_graph_close(s->graph);
}

/* Of all numbers, or of those around the end of the first parameter. */
static float slope_at(const tandem_step *step, int64_t i, int is_at_end)
{
    enum { OWN = 4 };
    const int64_t past = i - step->parameter_start[0] - step->graph->parameter[0].elements;
    if (!is_at_end) return (float)(1 + i % 5);
    return past < -OWN || past >= TANDEM_PROBE_BLOCK - OWN ? 0 : past < 0 ? 3 : 1;
}

/* (zᵀh)² has the mean Σ m·h², with m the metric; over 4,000 draws within 5 of its standard errors, 2.3 %. */
static void a_direction_has_the_square_of_the_metric(void **state)
{
    enum { DRAWS = 4000 };
    opened_step s = open_step(BATCH);
    tandem_error error = {0};
    probe_direction direction;
    float *h = calloc((size_t)s.step->n_flat, sizeof *h),
          *square = malloc((size_t)s.step->n_flat * sizeof *h);
    assert_non_null(h);
    assert_non_null(square);
    require_ok(probe_direction_open(&direction, s.step, 0, &error), &error);
    assert_true(direction.n_block * TANDEM_PROBE_BLOCK < tandem_graph_n_weight(s.graph) * 3 / 4);
    for (int law = 0; law < 4; law++) {
        const int has_metric = law % 2;
        const probe_metric metric = {.mean_square = has_metric ? square : NULL, .by = 2, .least = 0.5F};
        double expected = 0, mean = 0;
        for (int64_t i = 0; i < s.step->n_flat; i++) {
            square[i] = (float)(i % 7);
            h[i] = slope_at(s.step, i, law / 2);
        }
        for (int p = 0; p < s.graph->n_parameter; p++)
            for (int64_t k = 0; k < s.graph->parameter[p].elements; k++) {
                const int64_t i = s.step->parameter_start[p] + k;
                expected +=
                    (double)h[i] * (double)h[i] / (has_metric ? sqrt(fmax(2 * (double)square[i], 0.5)) : 1);
            }
        for (uint32_t d = 0; d < DRAWS; d++) {
            float bucket[TANDEM_PROBE_BLOCK] = {0};
            probe_direction_draw(&direction, &metric, 1, d);
            probe_direction_project(bucket, TANDEM_PROBE_BLOCK, &direction, 1, h);
            mean += pow(tandem_probe_sum(bucket, TANDEM_PROBE_BLOCK), 2) / DRAWS;
        }
        if (fabs(mean / expected - 1) > 0.12) fail_msg("mean square %g, expected %g", mean, expected);
    }
    probe_direction_close(&direction);
    free(h);
    free(square);
    close_step(&s);
}

static void moved_weights_come_back(void **state)
{
    opened_step s = open_step(BATCH);
    tandem_error error = {0};
    probe_direction direction;
    const size_t n = (size_t)s.step->n_flat;
    float *before = malloc(n * sizeof *before), *weight = malloc(n * sizeof *weight);
    assert_non_null(before);
    assert_non_null(weight);
    for (size_t i = 0; i < n; i++) before[i] = i % 3 ? sinf((float)i) : -0.0F;
    memcpy(weight, before, n * sizeof *weight);
    require_ok(probe_direction_open(&direction, s.step, 1, &error), &error);
    for (uint32_t r = 0; r < 3; r++) {
        probe_direction_draw(&direction, &(probe_metric){0}, 1, r);
        probe_direction_keep(&direction, weight);
        probe_direction_move(&direction, weight, 0.25F);
        const int64_t at = direction.at[0];
        assert_true(weight[at] == before[at] + 0.25F * direction.value[0] && weight[at] != before[at]);
        probe_direction_move(&direction, weight, -0.25F);
        assert_true(weight[at] == before[at] - 0.25F * direction.value[0]);
        probe_direction_restore(&direction, weight);
        assert_memory_equal(weight, before, n * sizeof *weight);
    }
    probe_direction_close(&direction);
    free(before);
    free(weight);
    close_step(&s);
}

typedef struct rounds {
    const tandem_backend_api *backend;
    tandem_worker *worker;
    opened_step full, half;
} rounds;

static void open_rounds(rounds *r)
{
    tandem_error error = {0};
    const tandem_worker_options worker = {.device = "cpu:sse41", .n_rank = 1, .cpu = -1};
    r->backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    require_ok(r->backend->worker_open(&r->worker, &worker, &error), &error);
    r->full = open_step(BATCH);
    r->half = open_step(BATCH / 2);
}

static tandem_executor *open_executor(const rounds *r, tandem_executor *lender, int is_half,
                                      const float *weight)
{
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    const tandem_executor_options how = {.step = is_half ? r->half.step : r->full.step,
                                         .seed = 5,
                                         .weight = weight,
                                         .global_batch = is_half ? BATCH / 2 : BATCH,
                                         .hold_weights = is_half,
                                         .without_all_reduce = is_half,
                                         .lender = lender};
    require_ok(r->backend->executor_open(&executor, r->worker, &how, &error), &error);
    return executor;
}

static double step_once(const rounds *r, tandem_executor *executor, int64_t index)
{
    tandem_error error = {0};
    double loss = 0;
    require_ok(r->backend->executor_step(executor, index, &loss, &error), &error);
    return loss;
}

static void a_borrower_computes_in_lent_memory(void **state)
{
    rounds r = {0};
    tandem_error error = {0};
    uint64_t spare = 0;
    open_rounds(&r);
    tandem_executor *const alone = open_executor(&r, NULL, 0, NULL), *const lender =
                                                                         open_executor(&r, NULL, 0, NULL);
    const float *weight = r.backend->executor_weights(lender);
    assert_non_null(weight);
    for (int64_t i = 0; i < 3; i++) {
        assert_true(step_once(&r, alone, i) == step_once(&r, lender, i));
        tandem_executor *const borrower = open_executor(&r, lender, 1, NULL), *const other = open_executor(
                                                                                  &r, NULL, 1, weight);
        assert_true(step_once(&r, borrower, 100 + i) == step_once(&r, other, 100 + i));
        for (int p = 0; p < r.half.graph->n_parameter; p++)
            assert_memory_equal(r.backend->executor_value(borrower, TANDEM_PARAMETER(p), 1, NULL),
                                r.backend->executor_value(other, TANDEM_PARAMETER(p), 1, NULL),
                                (size_t)r.half.graph->parameter[p].elements * sizeof(float));
        char *const room = r.backend->executor_spare(borrower, &spare);
        assert_true(room && spare > 0);
        const double loss = step_once(&r, borrower, 200);
        memset(room, 0x7F, spare);
        assert_true(step_once(&r, borrower, 200) == loss);
        for (uint64_t at = 0; at < spare; at++)
            if (room[at] != 0x7F) fail_msg("byte %llu of the spare memory is in use", (unsigned long long)at);
        assert_int_equal(r.backend->executor_save(borrower, "no.ckpt", 1, "", &error), TANDEM_USAGE);
        r.backend->executor_close(borrower);
        r.backend->executor_close(other);
    }
    assert_true(step_once(&r, alone, 3) == step_once(&r, lender, 3));
    tandem_executor *none = NULL;
    const tandem_executor_options wrong = {.step = r.half.step, .global_batch = BATCH / 2, .lender = lender};
    assert_int_equal(r.backend->executor_open(&none, r.worker, &wrong, &error), TANDEM_USAGE);
    r.backend->executor_close(alone);
    r.backend->executor_close(lender);
    r.backend->worker_close(r.worker);
    close_step(&r.full);
    close_step(&r.half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_direction_has_the_square_of_the_metric),
        cmocka_unit_test(moved_weights_come_back),
        cmocka_unit_test(a_borrower_computes_in_lent_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
