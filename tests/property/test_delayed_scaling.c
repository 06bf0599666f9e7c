/* folder: backend, and others for devices, plans or robust means */
/* Laws of delayed scaling in real runs: the range of every cast is that of the library's history of what the
 * same cast has seen, a cast that is done again has the same bits, runs repeat and resume to the bit, and
 * training converges as without. */
#include "tandem/amax_history.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

enum { STEPS = 12, LONG = 60, TAIL = 15 };

/* --- Against the library's history ---------------------------------------------------------------------- */

/* What a rank's process has seen so far. Whatever is wrong aborts it, which training_run notices. */
static tandem_amax_history *seen[8192];
static int n_clamped;

static void expect_delayed_scaling(int holds, const char *what, const tandem_step *step, int t)
{
    if (holds) return;
    fprintf(stderr, "task %d, the %s of operator '%s': %s\n", t, tandem_task_kind_name(step->task[t].kind),
            step->graph->op[step->task[t].op].name, what);
    abort();
}

static float amax_of_delayed_scaling(const void *x, tandem_dtype type, int64_t n)
{
    float amax = 0;
    for (int64_t i = 0; i < n; i++) {
        float value;
        if (type == TANDEM_BF16) {
            const uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
            memcpy(&value, &bits, sizeof value);
        } else {
            value = ((const float *)x)[i];
        }
        amax = fabsf(value) > amax ? fabsf(value) : amax;
    }
    return amax;
}

static int64_t elements_of(const tandem_step *step, const tandem_task *task)
{
    if (task->kind == TANDEM_TASK_WEIGHT_CAST) return step->graph->parameter[task->parameter].elements;
    return tandem_shape_elements(&step->graph->op[task->op].shape);
}

static void hold_against_history(void *context, const tandem_executor *executor, int t)
{
    const training_view *view = context;
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    const tandem_step *step = view->step;
    const tandem_task *task = &step->task[t];
    const tandem_cast_scaling scaling = step->options.scaling;
    const int first = tandem_step_amax_history(step, t);
    if (scaling.margin <= 0 && view->index == STEPS - 1 && t == step->n_task - 1)
        expect_delayed_scaling(n_clamped > 0, "nothing was clamped", step, 0);
    if (first < 0) return;
    expect_delayed_scaling(first < 8192, "too many tasks for this test", step, t);
    if (!seen[first]) {
        seen[first] = malloc(sizeof *seen[first]);
        expect_delayed_scaling(seen[first] && tandem_amax_history_init(seen[first], scaling.window,
                                                                       scaling.margin, NULL) == TANDEM_OK,
                               "no history", step, t);
    }
    tandem_amax_history *history = seen[first];
    const float amax = amax_of_delayed_scaling(backend->executor_value(executor, task->read[0], 0, NULL),
                                               task->from, elements_of(step, task));
    float range = first == t ? tandem_amax_history_range(history) : history->before, scale = -1;
    if (!(range > 0)) range = amax;
    const int8_t *q = backend->executor_value(executor, task->write[0], 0, &scale);
    expect_delayed_scaling(scale == range / 127, "another range than the history's", step, t);
    if (amax > range) {
        int most = 0;
        for (int64_t i = 0; i < elements_of(step, task); i++) most = abs(q[i]) > most ? abs(q[i]) : most;
        expect_delayed_scaling(most == 127, "what outgrows the range is not clamped to it", step, t);
        n_clamped++;
    }
    if (first == t)
        expect_delayed_scaling(tandem_amax_history_add(history, amax, NULL) == TANDEM_OK, "not finite", step,
                               t);
}

static void ranges_are_those_of_the_history(void **state)
{
    training_require_device();
    static const tandem_step_options variants[] = {
        {.scaling = {3, 0}},
        {.scaling = {1, -1}},
        {.n_micro = 2, .n_recompute_segment = TANDEM_RECOMPUTE_SQRT, .scaling = {4, 1}}};
    const char *const devices[] = {training_weakest(), training_strongest()};
    for (int d = 0; d < 2; d++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            const experiment e = {.model = d ? "vit_tiny:depth=1,width=48" : "resnet20:blocks=1,width=8",
                                  .device = devices[d],
                                  .batch = 2,
                                  .n_rank = 1,
                                  .steps = STEPS,
                                  .precision = v == 1 ? TANDEM_PRECISION_INT8 : TANDEM_PRECISION_INT8_FULL,
                                  .seed = 3,
                                  .killed_rank = -1,
                                  .variant = variants[v],
                                  .observer = hold_against_history};
            training_forget(training_run_through(&e));
        }
}

/* --- The same bits -------------------------------------------------------------------------------------- */

static void recomputation_and_repetition_change_no_bit(void **state)
{
    training_require_device();
    for (int n_micro = 1; n_micro <= 2; n_micro++) {
        experiment e = {.model = "vit_tiny:depth=2,width=48",
                        .device = training_strongest(),
                        .batch = 2,
                        .n_rank = 1,
                        .steps = 5,
                        .precision = TANDEM_PRECISION_INT8_FULL,
                        .seed = 7,
                        .killed_rank = -1,
                        .variant = {.n_micro = n_micro, .scaling = {4, 0}},
                        .hash_gradients = 1};
        record *kept = training_run_through(&e), *repeated = training_run_through(&e);
        e.variant.n_recompute_segment = TANDEM_RECOMPUTE_SQRT;
        record *again = training_run_through(&e);
        training_check_same_bits(kept, repeated, &e);
        training_check_same_bits(kept, again, &e);
        e.variant.scaling.window = 0;
        record *current = training_run_through(&e);
        /* the first step finds its ranges */
        assert_true(current->gradients[0][0] == again->gradients[0][0] || n_micro > 1);
        assert_true(current->gradients[0][4] != again->gradients[0][4]);
        training_forget(current);
        training_forget(again);
        training_forget(repeated);
        training_forget(kept);
    }
}

/* --- Checkpoints ---------------------------------------------------------------------------------------- */

static void check_resumed(const experiment *whole, const experiment *changed, int same)
{
    const training_file half = training_file_named("half"), straight_end = training_file_named("straight"),
                        resumed_end = training_file_named("resumed");
    experiment e = *whole;
    e.save = straight_end.path;
    record *straight = training_run_through(&e);
    e.save = half.path;
    e.steps = whole->steps / 2;
    training_forget(training_run_through(&e));
    e = *changed;
    e.resume = half.path;
    e.save = resumed_end.path;
    record *resumed = training_run_through(&e);
    assert_int_equal(resumed->resumed_at[0], whole->steps / 2);
    if (same) {
        for (int i = whole->steps / 2; i < whole->steps; i++)
            assert_true(straight->loss[0][i] == resumed->loss[0][i]);
        assert_true(training_files_equal(straight_end.path, resumed_end.path));
    }
    training_forget(resumed);
    training_forget(straight);
}

static void a_resumed_run_has_the_same_bits(void **state)
{
    training_require_device();
    const experiment e = {.model = "resnet20:blocks=1,width=8",
                          .device = training_weakest(),
                          .batch = 2,
                          .n_rank = 2,
                          .steps = 6,
                          .precision = TANDEM_PRECISION_INT8_FULL,
                          .seed = 3,
                          .killed_rank = -1,
                          .variant.scaling = {5, 0}};
    check_resumed(&e, &e, 1);
    /* what cannot go on with the histories begins with new ones */
    experiment alone = e, longer = e, current = e, other = e;
    alone.n_rank = 1;
    longer.variant.scaling.window = 9;
    current.variant.scaling.window = 0;
    other.precision = TANDEM_PRECISION_INT8;
    check_resumed(&e, &alone, 0);
    check_resumed(&e, &longer, 0);
    check_resumed(&e, &current, 0);
    check_resumed(&e, &other, 0);
    check_resumed(&current, &e, 0);
}

/* --- Convergence ---------------------------------------------------------------------------------------- */

static double tail_of(const record *r)
{
    double sum = 0;
    for (int i = LONG - TAIL; i < LONG; i++) sum += r->loss[0][i] / TAIL;
    return sum;
}

static void training_converges_as_with_current_ranges(void **state)
{
    training_require_device();
    const training_file words = training_file_named("words.txt");
    FILE *stream = fopen(words.path, "w");
    assert_non_null(stream);
    for (int i = 0; i < 4000; i++)
        (void)fprintf(stream, "%s %s. ", i % 3 ? "a tandem" : "two wheels", i % 7 ? "rolls" : "pauses");
    assert_int_equal(fclose(stream), 0);
    tandem_data data = {0};
    assert_int_equal(tandem_data_open(&data, words.path, 32, NULL), TANDEM_OK);
    const tandem_optimizer_options quick = {
        .kind = TANDEM_ADAMW, .rate = 5e-3f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    experiment e = {.model = "gpt_tiny:width=32,depth=2,heads=2,length=32",
                    .device = training_strongest(),
                    .batch = 8,
                    .n_rank = 1,
                    .steps = LONG,
                    .precision = TANDEM_PRECISION_INT8_FULL,
                    .seed = 1,
                    .killed_rank = -1,
                    .optimizer = &quick,
                    .data = &data};
    record *current = training_run_through(&e);
    e.variant.scaling = (tandem_cast_scaling){16, 0};
    record *delayed = training_run_through(&e);
    const double with = tail_of(delayed), without = tail_of(current);
    assert_true(without < 0.5 * current->loss[0][0]);
    if (fabs(with - without) > 0.05 * without)
        fail_msg("a loss of %.4g with delayed scaling, %.4g with current", with, without);
    training_forget(delayed);
    training_forget(current);
    tandem_data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_those_of_the_history),
        cmocka_unit_test(recomputation_and_repetition_change_no_bit),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(training_converges_as_with_current_ranges),
    };
    return cmocka_run_group_tests(tests, training_folder_open, training_folder_remove);
}
