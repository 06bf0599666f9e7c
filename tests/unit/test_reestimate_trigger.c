/* folder: runtime */
/* When a run estimates its sensitivities again (reestimate_trigger.h): what is a gradient's range, which
 * growth counts, and what is kept; on a backend that has the numbers which a test gives it. */
#include <math.h>

#include "runtime/train/reestimate_trigger.h"
#include "tests/support/test_graph.h"

enum { BATCH = 2, MAX_NUMBERS = 256, MAX_OPERATORS = 64 };

/* What the backend has: gradients, and the ranges of two ranks. */
static float gradient[MAX_NUMBERS];
static float gathered[2][MAX_OPERATORS];
static tandem_observer *observer;
static void *observer_context;

static const void *value_of_test(const tandem_executor *executor, int value, int is_gradient, float *scale)
{
    (void)executor, (void)value, (void)scale;
    assert_int_equal(is_gradient, 0);
    return gradient;
}

static void keep_observer(tandem_executor *executor, tandem_observer *observe, void *context)
{
    (void)executor;
    observer = observe;
    observer_context = context;
}

static tandem_status gather_given(tandem_worker *worker, const void *own, void *all, size_t bytes,
                                  tandem_error *error)
{
    (void)worker, (void)own, (void)error;
    for (int r = 0; r < 2; r++) memcpy((char *)all + (size_t)r * bytes, gathered[r], bytes);
    return TANDEM_OK;
}

static const tandem_backend_api given_backend = {
    .executor_value = value_of_test, .executor_observe = keep_observer, .worker_gather = gather_given};

typedef struct triggered {
    tandem_graph *graph;
    tandem_step *step;
    training_rank rank;
    reestimate_trigger trigger;
    int doubled, is_due;
} triggered;

static const char mlp[] = "mlp:depth=2,width=4,image=4x4x1",
                  vit[] = "vit_tiny:width=4,heads=2,depth=1,patch=2,image=4x4x1";

static void open_triggered_of(triggered *t, const char *model, int64_t every)
{
    tandem_error error = {0};
    *t = (triggered){.graph = open_graph(model, BATCH)};
    require_ok(tandem_step_open(&t->step, t->graph, TANDEM_F32, 0, &error), &error);
    t->rank = (training_rank){.backend = &given_backend, .self = {.n_rank = 2}, .step = t->step};
    require_ok(reestimate_trigger_open(&t->trigger, &t->rank, every, &error), &error);
    assert_true(t->graph->n_op <= MAX_OPERATORS);
    memset(gathered, 0, sizeof gathered);
    memset(gradient, 0, sizeof gradient);
}

static void open_triggered(triggered *t, int64_t every) { open_triggered_of(t, mlp, every); }

static void close_triggered(triggered *t)
{
    reestimate_trigger_close(&t->trigger);
    tandem_step_close(t->step);
    tandem_graph_close(t->graph);
}

/* Step `done`, in which an operator has these ranges on both ranks; true: it was looked at. */
static int run_triggered(triggered *t, int64_t done, int op, float first, float second)
{
    tandem_error error = {0};
    gathered[0][op] = first;
    gathered[1][op] = second;
    reestimate_trigger_before(&t->trigger, done);
    require_ok(reestimate_trigger_after(&t->trigger, done, &t->is_due, &t->doubled, &error), &error);
    if (!t->trigger.is_observed) assert_true(!t->is_due && t->doubled == -1);
    return t->trigger.is_observed;
}

/* The tasks of a step, seen with these numbers as the gradients. */
static void see_step(const triggered *t, float first, float second)
{
    gradient[0] = first;
    gradient[1] = second;
    for (int task = 0; task < t->step->n_task; task++)
        if (t->step->task[task].active) observer(observer_context, NULL, task);
}

/* 4 beside seven zeros: the root mean square is √2. As the product reads it, or as it is cast: a gradient
 * that passes a bias is cast as the bias's. */
static void check_seen(tandem_precision precision, const char *const seen[2])
{
    triggered t;
    open_triggered(&t, 1);
    for (int i = 0; i < t.graph->n_op; i++)
        if (strcmp(t.graph->op[i].name, "fc1") == 0 || strcmp(t.graph->op[i].name, "fc2") == 0)
            tandem_step_set(t.step, i, precision);
    tandem_step_resolve(t.step);
    reestimate_trigger_before(&t.trigger, 1);
    see_step(&t, 0, 0);
    see_step(&t, INFINITY, 1);
    for (int i = 0; i < t.graph->n_op; i++) assert_true(t.trigger.seen[i] == 0);
    see_step(&t, 2, 2);
    see_step(&t, 0, -4);
    see_step(&t, 1, 1); /* a micro-step of less */
    for (int k = 0; k < 2; k++) {
        float *const range = &t.trigger.seen[op_of(t.graph, seen[k])];
        if (!(fabsf(*range - 4 / sqrtf(2)) < 1e-6F)) fail_msg("%s: %g", seen[k], (double)*range);
        *range = 0;
    }
    t.trigger.seen[op_of(t.graph, "head")] = 0;
    for (int i = 0; i < t.graph->n_op; i++)
        if (t.trigger.seen[i] != 0) fail_msg("%s is seen, too", t.graph->op[i].name);
    see_step(&t, 0, 4);
    reestimate_trigger_before(&t.trigger, 2); /* begins again */
    assert_true(t.trigger.seen[op_of(t.graph, seen[0])] == 0);
    close_triggered(&t);
}

static void a_range_is_the_largest_over_the_root_mean_square(void **state)
{
    static const char *const products[] = {"fc1", "fc2"}, *const casts[] = {"fc1.bias", "fc2.bias"};
    (void)state;
    check_seen(TANDEM_PRECISION_FP32, products);
    check_seen(TANDEM_PRECISION_INT8_FULL, casts);
    triggered t;
    open_triggered_of(&t, vit, 1);
    reestimate_trigger_before(&t.trigger, 1);
    see_step(&t, 0, 1);
    for (int i = 0; i < t.graph->n_op; i++) /* not of norms and biases, whose gradients nothing rounds */
        if ((t.trigger.seen[i] > 0) != tandem_op_is_adjustable(&t.graph->op[i]))
            fail_msg("%s: %g", t.graph->op[i].name, (double)t.trigger.seen[i]);
    close_triggered(&t);
}

/* Quarters of a power of two, from 1; the larger of the ranks counts. */
static void ranges_are_kept_in_quarters(void **state)
{
    static const struct {
        float first, second;
        int kept;
    } rows[] = {{0, 0, 0}, {0.5F, 0, 1}, {1, 1, 1}, {1.19F, 1, 2}, {4, 1, 9}, {1, 8, 13}, {1e9F, 0, 90}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        triggered t;
        open_triggered(&t, 1000);
        assert_true(run_triggered(&t, 125, 1, rows[k].first, rows[k].second));
        assert_int_equal(t.trigger.range[1], rows[k].kept);
        close_triggered(&t);
    }
}

static void a_range_that_has_doubled_since_the_last_estimate_is_due(void **state)
{
    triggered t;
    (void)state;
    open_triggered(&t, 800);
    assert_true(run_triggered(&t, 100, 1, 4, 4)); /* the first that is seen begins nothing */
    assert_true(!t.is_due && t.doubled == -1 && t.trigger.last == 0);
    assert_true(!run_triggered(&t, 150, 1, 99, 99));
    assert_true(run_triggered(&t, 200, 1, 4, 7)); /* 12 of 13 */
    assert_true(!t.is_due && t.trigger.range[1] == 9);
    assert_true(run_triggered(&t, 300, 2, 64, 64)); /* another, not seen before: it has not grown */
    assert_true(!t.is_due);
    assert_true(run_triggered(&t, 400, 1, 4, 8)); /* since step 100 */
    assert_true(t.is_due && t.doubled == 1 && t.trigger.range[1] == 13 && t.trigger.range[2] == 25);
    assert_true(t.trigger.last == 400 && t.trigger.n_estimated == 1);
    assert_true(run_triggered(&t, 500, 1, 4, 8));
    assert_true(!t.is_due);
    assert_true(!run_triggered(&t, 1199, 1, 4, 8));
    assert_true(run_triggered(&t, 1200, 1, 2, 2)); /* by the interval, from step 400 */
    assert_true(t.is_due && t.doubled == -1 && t.trigger.last == 1200 && t.trigger.n_estimated == 2);
    assert_int_equal(t.trigger.range[1], 5);
    close_triggered(&t);
}

/* With one estimate in 24 steps at most 4/3 of them: the first not before step 18, the second not before
 * 36. */
static void early_estimates_may_be_limited(void **state)
{
    triggered t;
    (void)state;
    open_triggered(&t, 24);
    t.trigger.is_limited = 1;
    assert_true(run_triggered(&t, 3, 1, 1, 1));
    assert_true(run_triggered(&t, 15, 1, 2, 2));
    assert_int_equal(t.is_due, 0);
    assert_true(run_triggered(&t, 18, 1, 2, 2));
    assert_true(t.is_due && t.doubled == 1);
    assert_true(run_triggered(&t, 33, 1, 4, 4));
    assert_int_equal(t.is_due, 0);
    assert_true(run_triggered(&t, 36, 1, 4, 4));
    assert_true(t.is_due && t.doubled == 1);
    close_triggered(&t);
}

/* In every eighth of N steps, in each where N is small, and where the interval ends. */
static void ranges_are_compared_eight_times(void **state)
{
    static const struct {
        int64_t every;
        int n;
    } rows[] = {{0, 0}, {1, 96}, {4, 96}, {8, 96}, {16, 48}, {48, 16}, {96, 8}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        triggered t;
        int n = 0;
        open_triggered(&t, rows[k].every);
        for (int64_t done = 1; done <= 96; done++) n += run_triggered(&t, done, 1, 1, 1);
        if (n != rows[k].n) fail_msg("every %lld: %d times", (long long)rows[k].every, n);
        close_triggered(&t);
    }
    triggered t;
    open_triggered(&t, 100);
    t.trigger.last = 7;
    assert_false(run_triggered(&t, 106, 1, 1, 1));
    assert_true(run_triggered(&t, 107, 1, 1, 1) && t.is_due);
    close_triggered(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_the_largest_over_the_root_mean_square),
        cmocka_unit_test(ranges_are_kept_in_quarters),
        cmocka_unit_test(a_range_that_has_doubled_since_the_last_estimate_is_due),
        cmocka_unit_test(early_estimates_may_be_limited),
        cmocka_unit_test(ranges_are_compared_eight_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
