/* folder: backend */
/* What an estimate asks of an executor: weights that round alike in all steps, and AdamW's mean squares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/held_run.h"

enum { BATCH = 4 };

/* In int8_full where it is emulated; then the weights are held. */
static void open_emulated_run(held_run *r, const char *model, const tandem_emulation *emulation, int n_micro)
{
    tandem_error error = {0};
    open_held_step(r, model, BATCH,
                   &(tandem_step_options){.emulated = emulation != NULL, .n_micro = n_micro});
    for (int i = 0; i < r->graph->n_op && emulation; i++)
        if (tandem_op_row_get(r->graph->op[i].kind)->precisions >> TANDEM_PRECISION_INT8_FULL & 1)
            tandem_step_set(r->step, i, TANDEM_PRECISION_INT8_FULL);
    tandem_step_resolve(r->step);
    const tandem_executor_options how = {.step = r->step,
                                         .seed = 5,
                                         .global_batch = (int64_t)BATCH * n_micro,
                                         .emulation = emulation,
                                         .hold_weights = emulation != NULL};
    require_ok(r->backend->executor_open(&r->executor, r->worker, &how, &error), &error);
}

/* The last weight cast. */
typedef struct kept_weight {
    const held_run *run;
    float *copy; /* [n] */
    int64_t n;
} kept_weight;

static void keep_weight_copy(void *context, const tandem_executor *executor, int t)
{
    kept_weight *kept = context;
    const held_run *r = kept->run;
    const tandem_task *task = &r->step->task[t];
    if (task->kind != TANDEM_TASK_WEIGHT_CAST) return;
    kept->n = r->graph->parameter[task->parameter].elements;
    kept->copy = realloc(kept->copy, (size_t)kept->n * sizeof *kept->copy);
    assert_non_null(kept->copy);
    memcpy(kept->copy, r->backend->executor_value(executor, task->write[0], 0, NULL),
           (size_t)kept->n * sizeof *kept->copy);
}

/* How many elements of the last weight are rounded otherwise in the next step. */
static int64_t count_other_draws(int same_weight_draws)
{
    held_run r;
    tandem_error error = {0};
    tandem_emulation emulation = tandem_emulation_make(7);
    emulation.same_weight_draws = same_weight_draws;
    open_emulated_run(&r, "mlp:width=16,depth=1", &emulation, 1);
    kept_weight kept = {.run = &r};
    double loss = 0;
    int64_t n_other = 0;
    r.backend->executor_observe(r.executor, keep_weight_copy, &kept);
    require_ok(r.backend->executor_step(r.executor, 3, &loss, &error), &error);
    float *first = malloc((size_t)kept.n * sizeof *first);
    assert_non_null(first);
    memcpy(first, kept.copy, (size_t)kept.n * sizeof *first);
    require_ok(r.backend->executor_step(r.executor, 4, &loss, &error), &error);
    for (int64_t i = 0; i < kept.n; i++) n_other += first[i] != kept.copy[i];
    free(kept.copy);
    free(first);
    close_held_run(&r);
    return n_other;
}

static void weights_draw_alike_where_asked(void **state)
{
    (void)state;
    assert_int_equal(count_other_draws(1), 0);
    assert_true(count_other_draws(0) > 20);
}

/* How many elements a micro-step's weight casts change. */
typedef struct changed_weights {
    held_run *run;
    int64_t n[2];
    int n_cast; /* of one micro-step, then of both */
} changed_weights;

static void count_changed_weights(void *context, const tandem_executor *executor, int t)
{
    changed_weights *of = context;
    held_run *r = of->run;
    const tandem_task *task = &r->step->task[t];
    if (task->kind != TANDEM_TASK_WEIGHT_CAST) return;
    const int64_t n = r->graph->parameter[task->parameter].elements;
    const float *rounded = r->backend->executor_value(executor, task->write[0], 0, NULL),
                *weight = r->backend->executor_value(executor, TANDEM_PARAMETER(task->parameter), 0, NULL);
    assert_true(rounded && weight);
    int n_cast = 0; /* of a micro-step */
    for (int k = 0; k < r->step->n_task; k++)
        n_cast += r->step->task[k].kind == TANDEM_TASK_WEIGHT_CAST && r->step->task[k].active;
    for (int64_t i = 0; i < n; i++) of->n[of->n_cast / n_cast] += rounded[i] != weight[i];
    of->n_cast++;
}

static void first_micro_steps_round_nothing(void **state)
{
    (void)state;
    for (int n_exact = 0; n_exact <= 2; n_exact++) {
        held_run r;
        changed_weights seen = {.run = &r};
        tandem_error error = {0};
        tandem_emulation emulation = tandem_emulation_make(7);
        emulation.exact_micro_steps = n_exact;
        double loss = 0;
        open_emulated_run(&r, "mlp:width=16,depth=1", &emulation, 2);
        r.backend->executor_observe(r.executor, count_changed_weights, &seen);
        for (int64_t index = 0; index < 2; index++) {
            seen.n[0] = seen.n[1] = seen.n_cast = 0;
            require_ok(r.backend->executor_step(r.executor, index, &loss, &error), &error);
            assert_int_equal(seen.n[0] == 0, n_exact > 0);
            assert_int_equal(seen.n[1] == 0, n_exact > 1);
        }
        close_held_run(&r);
    }
}

/* After one step of AdamW: (1 − β₂)·g². */
static void mean_squares_are_those_of_adamw(void **state)
{
    (void)state;
    held_run r;
    tandem_error error = {0};
    double loss = 0;
    int64_t n_seen = 0;
    open_emulated_run(&r, "vit_tiny:width=12,depth=1", NULL, 1);
    float *square = malloc((size_t)r.step->n_flat * sizeof *square);
    assert_non_null(square);
    require_ok(r.backend->executor_step(r.executor, 0, &loss, &error), &error);
    require_ok(r.backend->executor_get_mean_squares(r.executor, square, &error), &error);
    const double kept = 1 - (double)r.graph->optimizer.beta2;
    for (int p = 0; p < r.graph->n_parameter; p++) {
        const float *g = r.backend->executor_value(r.executor, TANDEM_PARAMETER(p), 1, NULL);
        for (int64_t i = 0; i < r.graph->parameter[p].elements; i++) {
            const double expected = kept * (double)g[i] * (double)g[i];
            n_seen += expected > 0;
            assert_true(fabs((double)square[r.step->parameter_start[p] + i] - expected) <=
                        1e-3 * expected + 1e-30);
        }
    }
    assert_true(n_seen > 100);
    free(square);
    close_held_run(&r);
    open_emulated_run(&r, "mlp:width=16,depth=1", NULL, 1);
    float one = 0;
    assert_int_equal(r.backend->executor_get_mean_squares(r.executor, &one, &error), TANDEM_USAGE);
    assert_non_null(strstr(error.text, "sgd"));
    close_held_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_draw_alike_where_asked),
        cmocka_unit_test(first_micro_steps_round_nothing),
        cmocka_unit_test(mean_squares_are_those_of_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
