/* folder: step */
/* Variants of a step program by hand: micro-steps, recomputation, and the memory of both. */
#include "tandem/advanced/step.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

static tandem_step *open_step_variants(const tandem_graph *graph, int n_micro, int n_recompute_segment)
{
    tandem_step *step = NULL;
    tandem_error error = {0};
    const tandem_step_options options = {.n_micro = n_micro, .n_recompute_segment = n_recompute_segment};
    require_ok(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &options, &error), &error);
    return step;
}

static int find_variants(const tandem_step *step, tandem_task_kind kind, int op, int again)
{
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active && step->task[t].kind == kind && step->task[t].op == op &&
            tandem_step_is_recomputed(step, t) == again)
            return t;
    return -1;
}

/* --- Words ---------------------------------------------------------------------------------------------- */

static void segments_are_words(void **state)
{
    static const struct {
        const char *word, *printed;
        int n_recompute_segment; /* 0 = refused */
    } cases[] = {{"none", "none", 1}, {"sqrt", "sqrt", TANDEM_RECOMPUTE_SQRT},
                 {"1", "none", 1},    {"12", "12", 12},
                 {"0", NULL, 0},      {"-1", NULL, 0},
                 {"", NULL, 0},       {"2 ", NULL, 0},
                 {"block", NULL, 0},  {"99999999999", NULL, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int n = 77;
        char text[TANDEM_RECOMPUTE_TEXT];
        tandem_error error = {0};
        const tandem_status status = tandem_recompute_parse(&n, cases[k].word, &error);
        assert_int_equal(status, cases[k].n_recompute_segment ? TANDEM_OK : TANDEM_USAGE);
        assert_int_equal(n, cases[k].n_recompute_segment ? cases[k].n_recompute_segment : 77);
        if (cases[k].printed) assert_string_equal(tandem_recompute_print(text, n), cases[k].printed);
    }
}

static void what_is_out_of_range_is_refused_variants(void **state)
{
    static const tandem_step_options wrong[] = {
        {.n_micro = -1}, {.n_micro = TANDEM_MAX_MICRO + 1}, {.n_recompute_segment = -2}};
    tandem_graph *graph = open_graph("mlp", 4);
    tandem_step *const untouched = (tandem_step *)(uintptr_t)16;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        tandem_step *step = untouched;
        tandem_error error = {0};
        assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &wrong[k], &error), TANDEM_USAGE);
        assert_ptr_equal(step, untouched);
        assert_true(error.text[0] != '\0');
    }
    tandem_graph_close(graph);
}

/* --- Recomputation -------------------------------------------------------------------------------------- */

/* Of 256, 512, 768, 1024, 1280, 1536, 1546, 1556 numbers up to each operator, a third is nearest to 512
 * (fc1.bias), two thirds to 1024 (fc2). Of the first segment the backward pass reads nothing but what is
 * handed on; of the second the relu, twice. */
static void an_mlp_in_three_segments(void **state)
{
    tandem_graph *graph = open_graph("mlp", 4);
    tandem_step *step = open_step_variants(graph, 1, 3);
    int relu, bias, second, n_again = 0;
    assert_int_equal(tandem_graph_find(&relu, graph, "fc1.relu", NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_find(&bias, graph, "fc1.bias", NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_find(&second, graph, "fc2", NULL), TANDEM_OK);
    assert_int_equal(step->n_recompute_segment, 3);
    for (int t = 0; t < step->n_task; t++)
        n_again += step->task[t].active && tandem_step_is_recomputed(step, t);
    assert_int_equal(n_again, 1);
    const int again = find_variants(step, TANDEM_TASK_FORWARD, relu, 1),
              wgrad = find_variants(step, TANDEM_TASK_WGRAD, second, 0);
    const int forward = find_variants(step, TANDEM_TASK_FORWARD, relu, 0);
    assert_true(again > find_variants(step, TANDEM_TASK_FORWARD, graph->loss, 0) && again < wgrad);
    /* as it was kept */
    assert_int_equal(step->task[again].read[0], tandem_value_activation(step, bias, TANDEM_F32));
    assert_int_equal(step->value[step->task[forward].write[0]].last,
                     find_variants(step, TANDEM_TASK_FORWARD, second, 0));
    assert_int_equal(step->task[wgrad].read[0], step->task[again].write[0]);
    assert_int_equal(step->value[step->task[again].write[0]].last,
                     find_variants(step, TANDEM_TASK_DGRAD, relu, 0));
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* Ids of what both programs have do not depend on what kernels need; layouts of what is trained are the same.
 * */
static void weights_lie_where_they_lay(void **state)
{
    tandem_graph *graph = open_graph("vit_tiny", 4);
    tandem_step *plain = open_step_variants(graph, 1, 1),
                *varied = open_step_variants(graph, 3, TANDEM_RECOMPUTE_SQRT);
    assert_true(plain->n_flat == varied->n_flat && plain->n_bucket == varied->n_bucket);
    assert_memory_equal(plain->parameter_start, varied->parameter_start,
                        (size_t)graph->n_parameter * sizeof *plain->parameter_start);
    assert_int_equal(plain->n_recompute_segment, 1);
    assert_true(varied->n_recompute_segment > 1);
    tandem_step_close(varied);
    tandem_step_close(plain);
    tandem_graph_close(graph);
}

/* --- Micro-steps ---------------------------------------------------------------------------------------- */

/* Each gradient is summed after the task that writes it, and has room for that long. */
static void gradients_are_summed_where_they_are_written(void **state)
{
    tandem_graph *graph = open_graph("mlp", 4);
    tandem_step *step = open_step_variants(graph, 2, 0);
    tandem_memory_row *row = test_calloc((size_t)step->n_task, sizeof *row);
    tandem_memory memory;
    int n_sum = 0;
    assert_int_equal(tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL), TANDEM_OK);
    assert_int_equal(tandem_memory_timeline(row, step, NULL, NULL), TANDEM_OK);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const uint64_t bytes = row[t].bytes[TANDEM_MEMORY_WEIGHT_GRADIENTS];
        if (!task->active) continue;
        const int is_whole = task->kind == TANDEM_TASK_REDUCE || task->kind == TANDEM_TASK_UPDATE;
        assert_int_equal(tandem_step_runs_per_step(step, task), is_whole ? 1 : 2);
        if (task->kind != TANDEM_TASK_ACCUMULATE) {
            assert_int_equal(bytes > 0, task->kind == TANDEM_TASK_WGRAD);
            continue;
        }
        tandem_cost_key key;
        char signature[64];
        const int64_t elements = graph->parameter[task->parameter].elements;
        (void)snprintf(signature, sizeof signature, "accumulate n=%lld", (long long)elements);
        assert_true(tandem_step_cost_key(step, t, 0, &key));
        assert_string_equal(key.signature, signature);
        assert_false(tandem_step_cost_key(step, t, 1, &key));
        assert_int_equal(step->task[t - 1].kind, TANDEM_TASK_WGRAD);
        assert_int_equal(step->task[t].read[0], step->task[t - 1].write[0]);
        assert_int_equal(step->task[t].write[0], TANDEM_PARAMETER(task->parameter));
        assert_true(bytes == (uint64_t)((elements * 4 + 63) / 64 * 64));
        n_sum++;
    }
    assert_int_equal(n_sum, graph->n_parameter);
    test_free(row);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_words),
        cmocka_unit_test(what_is_out_of_range_is_refused_variants),
        cmocka_unit_test(an_mlp_in_three_segments),
        cmocka_unit_test(weights_lie_where_they_lay),
        cmocka_unit_test(gradients_are_summed_where_they_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
