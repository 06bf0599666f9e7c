/* folder: profiles */
/* Delayed scaling in a step program by hand: which casts have a history, what it takes in memory, how it is
 * written. */
#include "profiles/plan/plan_json.h"
#include "tandem/amax_history.h"
#include "tandem/plan.h"
#include "tandem/advanced/step.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

static tandem_step *open_step_scaling(const tandem_graph *graph, const tandem_step_options *options,
                                      tandem_precision precision)
{
    tandem_step *step = NULL;
    tandem_error error = {0};
    require_ok(tandem_step_open_with(&step, graph, TANDEM_F32, 0, options, &error), &error);
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op_row *row = tandem_op_row_get(graph->op[i].kind);
        if (row->op_class == TANDEM_ADJUSTABLE && row->precisions & (1u << precision))
            tandem_step_set(step, i, precision);
    }
    tandem_step_resolve(step);
    return step;
}

static uint64_t peak_of(const tandem_step *step, uint64_t *histories)
{
    tandem_memory memory;
    assert_int_equal(tandem_memory_plan(&memory, step, NULL, NULL, NULL, NULL), TANDEM_OK);
    *histories = memory.histories;
    return memory.peak;
}

/* --- As a text ------------------------------------------------------------------------------------------ */

static void scalings_are_texts(void **state)
{
    static const struct {
        const char *text, *printed; /* NULL = refused */
        int window, margin;
    } cases[] = {{"current", "current", -1, 0},
                 {"delayed", "delayed:window=16,margin=0", 16, 0},
                 {"delayed:window=4", "delayed:window=4,margin=0", 4, 0},
                 {"delayed:margin=-2", "delayed:window=16,margin=-2", 16, -2},
                 {"delayed:margin=64,window=1024", "delayed:window=1024,margin=64", 1024, 64},
                 {"delayed:window=1", "delayed:window=1,margin=0", 1, 0},
                 {"", NULL, 0, 0},
                 {"delayed:", NULL, 0, 0},
                 {"delayed:window", NULL, 0, 0},
                 {"delayed:window=", NULL, 0, 0},
                 {"delayed:window=0", NULL, 0, 0},
                 {"delayed:window=1025", NULL, 0, 0},
                 {"delayed:window= 4", NULL, 0, 0},
                 {"delayed:window=4,", NULL, 0, 0},
                 {"delayed:window=4x", NULL, 0, 0},
                 {"delayed:margin=65", NULL, 0, 0},
                 {"delayed:margin=99999999999999999999", NULL, 0, 0},
                 {"delayed16", NULL, 0, 0},
                 {"Current", NULL, 0, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tandem_cast_scaling scaling = {77, 77};
        char text[TANDEM_CAST_SCALING_TEXT];
        tandem_error error = {0};
        const tandem_status status = tandem_cast_scaling_parse(&scaling, cases[k].text, &error);
        if (status != (cases[k].printed ? TANDEM_OK : TANDEM_USAGE))
            fail_msg("'%s': %s", cases[k].text, error.text);
        assert_int_equal(scaling.window, cases[k].printed ? cases[k].window : 77);
        assert_int_equal(scaling.margin, cases[k].printed ? cases[k].margin : 77);
        if (cases[k].printed) assert_string_equal(tandem_cast_scaling_print(text, scaling), cases[k].printed);
    }
}

static void what_is_out_of_range_is_refused_scaling(void **state)
{
    static const tandem_cast_scaling wrong[] = {{-2, 0}, {TANDEM_AMAX_WINDOW + 1, 0}, {4, -65}, {4, 65}};
    tandem_graph *graph = open_graph("mlp", 4);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        tandem_step *step = NULL;
        const tandem_step_options options = {.scaling = wrong[k]};
        assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_F32, 0, &options, NULL), TANDEM_USAGE);
        assert_null(step);
    }
    tandem_graph_close(graph);
}

static void a_plan_names_its_scaling(void **state)
{
    tandem_cluster cluster;
    tandem_graph *graph = open_graph("mlp", 4), *opened = NULL;
    tandem_plan *plan = NULL, *read = NULL;
    assert_int_equal(tandem_cluster_parse(&cluster, "cpu:avx2 batch=4", NULL), TANDEM_OK);
    assert_int_equal(tandem_plan_open(&plan, graph, &cluster, "a plan", NULL), TANDEM_OK);
    plan->step.scaling = (tandem_cast_scaling){8, -1};
    char *const text = tandem_plan_text(plan, graph);
    assert_non_null(text);
    char *at = strstr(text, "\"amax\": \"delayed:window=8,margin=-1\",");
    assert_non_null(at);
    assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", NULL), TANDEM_OK);
    assert_int_equal(read->step.scaling.window, 8);
    assert_int_equal(read->step.scaling.margin, -1);
    tandem_graph_close(opened);
    tandem_plan_close(read);
    memcpy(at, "\"amax\": \"delayed:window=0", strlen("\"amax\": \"delayed:window=0"));
    tandem_error error = {0};
    assert_int_equal(tandem_plan_parse(&read, &opened, text, strlen(text), "plan.json", &error),
                     TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "amax"));
    free(text);
    tandem_plan_close(plan);
    tandem_graph_close(graph);
}

/* --- Casts ---------------------------------------------------------------------------------------------- */

/* Weight, activation and gradient casts have one each, and their costs are of their own; ranges that are
 * known do without. */
static void casts_to_s8_have_a_history(void **state)
{
    const tandem_step_options delayed = {.scaling = {16, 0}};
    tandem_graph *graph = open_graph("vit_tiny:depth=1", 4);
    tandem_step *step = open_step_scaling(graph, &delayed, TANDEM_PRECISION_INT8_FULL),
                *current = open_step_scaling(graph, NULL, TANDEM_PRECISION_INT8_FULL);
    int n = 0, n_known = 0, of_kind[TANDEM_N_TASK_KIND] = {0};
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        tandem_cost_key key = {.kind = TANDEM_COST_OP}, before = key;
        const int is_cast = task->active && task->to == TANDEM_S8 &&
                            (task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_CAST ||
                             task->kind == TANDEM_TASK_GRADIENT_CAST);
        assert_int_equal(tandem_step_amax_history(current, t), -1);
        if (!is_cast) {
            assert_int_equal(tandem_step_amax_history(step, t), -1);
            continue;
        }
        assert_true(tandem_step_cost_key(step, t, task->variant, &key));
        assert_true(tandem_step_cost_key(current, t, task->variant, &before));
        const int is_known = task->kind == TANDEM_TASK_CAST && graph->op[task->op].kind == TANDEM_OP_SOFTMAX;
        assert_int_equal(tandem_step_amax_history(step, t), is_known ? -1 : t);
        assert_int_equal(key.range_source, is_known ? TANDEM_RANGE_KNOWN : TANDEM_RANGE_DELAYED);
        assert_int_equal(before.range_source, is_known ? TANDEM_RANGE_KNOWN : TANDEM_RANGE_FOUND);
        of_kind[task->kind]++;
        n_known += is_known;
        n += !is_known;
    }
    assert_true(of_kind[TANDEM_TASK_WEIGHT_CAST] > 0 && of_kind[TANDEM_TASK_CAST] > 0 &&
                of_kind[TANDEM_TASK_GRADIENT_CAST] > 0);
    assert_int_equal(n_known, 1);

    uint64_t histories, none;
    const uint64_t with = peak_of(step, &histories), without = peak_of(current, &none);
    assert_true(none == 0);
    assert_true(histories == (uint64_t)n * 128); /* 20 bytes and 16 floats, to a multiple of 64 */
    assert_true(with == without + histories);
    static tandem_memory_row row[4096];
    assert_in_range(step->n_task, 1, 4096);
    assert_int_equal(tandem_memory_timeline(row, step, NULL, NULL), TANDEM_OK);
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active) assert_true(row[t].bytes[TANDEM_MEMORY_HISTORIES] == histories);
    tandem_step_close(current);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* A change of precisions takes histories along. */
static void a_float_has_none(void **state)
{
    const tandem_step_options delayed = {.scaling = {16, 0}};
    tandem_graph *graph = open_graph("mlp", 4);
    tandem_step *step = open_step_scaling(graph, &delayed, TANDEM_PRECISION_FP32);
    uint64_t histories;
    (void)peak_of(step, &histories);
    assert_true(histories == 0);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

/* Recomputed casts take the range that the first time took: they share its history. */
static void what_is_done_again_shares_its_history(void **state)
{
    const tandem_step_options again = {.n_recompute_segment = TANDEM_RECOMPUTE_SQRT, .scaling = {4, 1}},
                              once = {.scaling = {4, 1}};
    tandem_graph *graph = open_graph("vit_tiny:depth=2", 4);
    tandem_step *step = open_step_scaling(graph, &again, TANDEM_PRECISION_INT8),
                *kept = open_step_scaling(graph, &once, TANDEM_PRECISION_INT8);
    int n_shared = 0;
    for (int t = 0; t < step->n_task; t++) {
        const int first = tandem_step_amax_history(step, t);
        if (first < 0 || first == t) continue;
        assert_true(first < t && tandem_step_is_recomputed(step, t) &&
                    !tandem_step_is_recomputed(step, first));
        assert_int_equal(tandem_step_amax_history(step, first), first);
        assert_int_equal(step->task[first].op, step->task[t].op);
        assert_int_equal(step->task[first].to, step->task[t].to);
        assert_int_equal(step->task[first].from, step->task[t].from);
        n_shared++;
    }
    assert_true(n_shared > 3);
    uint64_t histories, of_kept;
    (void)peak_of(step, &histories);
    (void)peak_of(kept, &of_kept);
    assert_true(histories == of_kept);
    tandem_step_close(kept);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalings_are_texts),       cmocka_unit_test(what_is_out_of_range_is_refused_scaling),
        cmocka_unit_test(a_plan_names_its_scaling), cmocka_unit_test(casts_to_s8_have_a_history),
        cmocka_unit_test(a_float_has_none),         cmocka_unit_test(what_is_done_again_shares_its_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
