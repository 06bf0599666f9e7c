/* folder: step */
/* What a precision makes of the step program of a small model, counted by hand: types, casts, memory, cost
 * keys. */
#include "tandem/advanced/step.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

/* image label | flatten fc1 fc1.bias fc1.relu fc2 fc2.bias fc2.relu head head.bias | loss */
static const char model[] = "mlp:width=8,depth=2,image=2x2x1,classes=4";
enum { BATCH = 3 };

typedef struct bench {
    tandem_graph *graph;
    tandem_step *step;
} bench;

static bench set_up_precisions(tandem_dtype amp_dtype)
{
    bench b = {0};
    tandem_error error = {0};
    if (tandem_graph_open(&b.graph, model, BATCH, &error) != TANDEM_OK ||
        tandem_step_open(&b.step, b.graph, amp_dtype, 0, &error) != TANDEM_OK)
        fail_msg("%s", error.text);
    return b;
}

static void tear_down_precisions(bench *b)
{
    tandem_step_close(b->step);
    tandem_graph_close(b->graph);
}

static void set(bench *b, const char *name, tandem_precision precision)
{
    tandem_step_set(b->step, op_of(b->graph, name), precision);
    tandem_step_resolve(b->step);
}

/* The active task of that kind of operator `name`, −1 = there is none; of casts the one to `to`. */
static int find_precisions(const bench *b, tandem_task_kind kind, const char *name, tandem_dtype to)
{
    const int op = op_of(b->graph, name);
    const int is_cast = kind == TANDEM_TASK_CAST || kind == TANDEM_TASK_GRADIENT_CAST ||
                        kind == TANDEM_TASK_WEIGHT_CAST || kind == TANDEM_TASK_SAVED_CAST;
    for (int t = 0; t < b->step->n_task; t++) {
        const tandem_task *task = &b->step->task[t];
        if (task->active && task->kind == kind && task->op == op && (!is_cast || task->to == to)) return t;
    }
    return -1;
}

static const tandem_task *task_of_precisions(const bench *b, tandem_task_kind kind, const char *name,
                                             tandem_dtype to)
{
    const int t = find_precisions(b, kind, name, to);
    if (t < 0) fail_msg("no task %s of %s", tandem_task_kind_name(kind), name);
    return &b->step->task[t];
}

static int n_active(const bench *b)
{
    int n = 0;
    for (int t = 0; t < b->step->n_task; t++) n += b->step->task[t].active;
    return n;
}

static void check_types_precisions(const tandem_task *task, tandem_dtype from,
                                   tandem_dtype other_operand_dtype, tandem_dtype to)
{
    assert_int_equal(task->from, from);
    assert_int_equal(task->other_operand_dtype, other_operand_dtype);
    assert_int_equal(task->to, to);
}

static uint64_t arena_of(const bench *b)
{
    tandem_memory memory;
    assert_int_equal(tandem_memory_plan(&memory, b->step, NULL, NULL, NULL, NULL), TANDEM_OK);
    return memory.arena;
}

/* The same tasks in the same types as in fp32, filed under another precision. */
static void tf32_needs_no_cast_and_no_memory(void **state)
{
    bench b = set_up_precisions(TANDEM_BF16);
    const int tasks = n_active(&b);
    const uint64_t arena = arena_of(&b);
    set(&b, "fc2", TANDEM_PRECISION_TF32);
    assert_int_equal(n_active(&b), tasks);
    assert_true(arena_of(&b) == arena);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_FORWARD, "fc2", TANDEM_F32), TANDEM_F32,
                           TANDEM_F32, TANDEM_F32);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F32), TANDEM_F32,
                           TANDEM_F32, TANDEM_F32);
    tandem_cost_key key;
    const int t = find_precisions(&b, TANDEM_TASK_WGRAD, "fc2", TANDEM_F32);
    assert_true(tandem_step_cost_key(b.step, t, b.step->task[t].variant, &key));
    assert_string_equal(key.precision, "tf32");
    assert_int_equal(key.from, TANDEM_F32);
    tear_down_precisions(&b);
}

/* fc2 in fp8: its input, its weight and its output gradient are cast; what was saved is read as it is. The
 * result is bf16, and so are the bias, the relu and their gradients; head, in fp32, reads a cast of it and
 * hands a bf16 gradient back. */
static void fp8_multiplies_two_types(void **state)
{
    bench b = set_up_precisions(TANDEM_BF16);
    const int tasks = n_active(&b);
    set(&b, "fc2", TANDEM_PRECISION_FP8);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_FORWARD, "fc2", TANDEM_BF16), TANDEM_E4M3,
                           TANDEM_E4M3, TANDEM_BF16);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F32), TANDEM_E5M2,
                           TANDEM_E4M3, TANDEM_F32);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_WGRAD, "fc2", TANDEM_F32), TANDEM_E5M2,
                           TANDEM_E4M3, TANDEM_F32);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_FORWARD, "fc2.relu", TANDEM_BF16), TANDEM_BF16,
                           TANDEM_BF16, TANDEM_BF16);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "head", TANDEM_BF16), TANDEM_F32,
                           TANDEM_F32, TANDEM_BF16);
    assert_true(find_precisions(&b, TANDEM_TASK_CAST, "fc1.relu", TANDEM_E4M3) >= 0);
    assert_true(find_precisions(&b, TANDEM_TASK_WEIGHT_CAST, "fc2", TANDEM_E4M3) >= 0);
    assert_true(find_precisions(&b, TANDEM_TASK_GRADIENT_CAST, "fc2.bias", TANDEM_E5M2) >= 0);
    assert_true(find_precisions(&b, TANDEM_TASK_CAST, "fc2.relu", TANDEM_F32) >= 0);
    assert_int_equal(find_precisions(&b, TANDEM_TASK_SAVED_CAST, "fc2", TANDEM_BF16), -1);
    assert_int_equal(n_active(&b), tasks + 4);

    /* the backward products read the copies that the forward product read */
    const tandem_task *forward = task_of_precisions(&b, TANDEM_TASK_FORWARD, "fc2", TANDEM_BF16),
                      *wgrad = task_of_precisions(&b, TANDEM_TASK_WGRAD, "fc2", TANDEM_F32),
                      *dgrad = task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F32);
    assert_int_equal(wgrad->read[0], forward->read[0]);
    assert_int_equal(dgrad->read[1], forward->read[1]);
    assert_int_equal(dgrad->read[0], wgrad->read[1]);
    assert_int_equal(b.step->value[wgrad->read[0]].dtype, TANDEM_E4M3);
    assert_int_equal(b.step->value[wgrad->read[1]].dtype, TANDEM_E5M2);
    assert_true(b.step->value[wgrad->read[0]].bytes == BATCH * 8);
    tear_down_precisions(&b);
}

/* As with bf16: what lies between two products in f16 is f16, and what reads f16 and bf16 at once would be
 * f32. */
static void dependent_operators_follow_f16(void **state)
{
    bench b = set_up_precisions(TANDEM_BF16);
    set(&b, "fc1", TANDEM_PRECISION_FP16);
    set(&b, "fc2", TANDEM_PRECISION_FP16);
    assert_int_equal(b.step->output_dtype[op_of(b.graph, "fc1.relu")], TANDEM_F16);
    assert_int_equal(find_precisions(&b, TANDEM_TASK_CAST, "fc1.relu", TANDEM_F32), -1);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F16), TANDEM_F16,
                           TANDEM_F16, TANDEM_F16);
    const int relu = find_precisions(&b, TANDEM_TASK_FORWARD, "fc1.relu", TANDEM_F16);
    tandem_cost_key key;
    assert_true(tandem_step_cost_key(b.step, relu, b.step->task[relu].variant, &key));
    assert_string_equal(key.precision, "fp16");
    assert_int_equal(key.from, TANDEM_F16);
    set(&b, "fc2", TANDEM_PRECISION_BF16);
    assert_true(find_precisions(&b, TANDEM_TASK_CAST, "fc1.relu", TANDEM_BF16) >= 0);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F16), TANDEM_BF16,
                           TANDEM_BF16, TANDEM_F16);
    tear_down_precisions(&b);
}

/* Where f16 is the widest fast type, int8's gradients run in it. */
static void int8_goes_back_in_the_amp_dtype(void **state)
{
    bench b = set_up_precisions(TANDEM_F16);
    set(&b, "fc2", TANDEM_PRECISION_INT8);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_FORWARD, "fc2", TANDEM_F32), TANDEM_S8,
                           TANDEM_S8, TANDEM_F32);
    check_types_precisions(task_of_precisions(&b, TANDEM_TASK_DGRAD, "fc2", TANDEM_F32), TANDEM_F16,
                           TANDEM_F16, TANDEM_F32);
    const int saved_cast = find_precisions(&b, TANDEM_TASK_SAVED_CAST, "fc2", TANDEM_F16);
    assert_true(saved_cast >= 0 &&
                find_precisions(&b, TANDEM_TASK_GRADIENT_CAST, "fc2.bias", TANDEM_F16) >= 0);
    tandem_cost_key key;
    assert_true(tandem_step_cost_key(b.step, saved_cast, b.step->task[saved_cast].variant, &key));
    assert_int_equal(key.from, TANDEM_S8);
    assert_int_equal(key.to, TANDEM_F16);
    tear_down_precisions(&b);
}

/* A cast to one byte of what has a range needs one pass, to E4M3 as to s8; f16 has no scale. */
static void ranges_are_known_to_types_of_one_byte(void **state)
{
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    int softmax = -1;
    assert_int_equal(tandem_graph_open(&graph, "vit_tiny:depth=1,width=32,heads=2", 1, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_BF16, 0, NULL), TANDEM_OK);
    for (int i = 0; i < graph->n_op && softmax < 0; i++)
        if (graph->op[i].kind == TANDEM_OP_SOFTMAX) softmax = i;
    const int reader = graph->consumer[graph->consumer_start[softmax]];
    static const struct {
        tandem_precision precision;
        tandem_dtype type;
        tandem_range_source range_source;
    } rows[] = {{TANDEM_PRECISION_INT8, TANDEM_S8, TANDEM_RANGE_KNOWN},
                {TANDEM_PRECISION_FP8, TANDEM_E4M3, TANDEM_RANGE_KNOWN},
                {TANDEM_PRECISION_FP16, TANDEM_F16, TANDEM_RANGE_FOUND}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int seen = 0;
        tandem_step_set(step, reader, rows[k].precision);
        tandem_step_resolve(step);
        for (int t = 0; t < step->n_task; t++) {
            tandem_cost_key key;
            const tandem_task *task = &step->task[t];
            if (!task->active || task->kind != TANDEM_TASK_CAST || task->op != softmax) continue;
            assert_int_equal(task->to, rows[k].type);
            assert_true(tandem_step_cost_key(step, t, task->variant, &key));
            assert_int_equal(key.range_source, rows[k].range_source);
            seen++;
        }
        assert_int_equal(seen, 1);
    }
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void rows_say_what_is_multiplied(void **state)
{
    assert_int_equal(tandem_precision_product_dtype(TANDEM_PRECISION_TF32, TANDEM_F32), TANDEM_TF32);
    assert_int_equal(tandem_precision_product_dtype(TANDEM_PRECISION_FP32, TANDEM_F32), TANDEM_F32);
    assert_int_equal(tandem_precision_product_dtype(TANDEM_PRECISION_FP8, TANDEM_E5M2), TANDEM_E5M2);
    for (int p = 0; p < TANDEM_N_PRECISION; p++) {
        const tandem_precision_row *row = tandem_precision_get((tandem_precision)p);
        assert_int_equal(row->dgrad, row->wgrad);
        /* only what was saved in s8 is ever restored (step/program/dtypes.h) */
        if (row->saved != row->other_operand_dtype) assert_int_equal(row->saved, TANDEM_S8);
        assert_true(row->output == TANDEM_F32 || row->output == TANDEM_BF16 || row->output == TANDEM_F16);
    }
    for (int d = 0; d < TANDEM_N_STORAGE_DTYPE; d++) {
        const uint64_t bytes = tandem_dtype_bytes((tandem_dtype)d);
        const char *name = tandem_dtype_name((tandem_dtype)d);
        assert_true(bytes == (strcmp(name, "f32") == 0                                ? 4
                              : strcmp(name, "bf16") == 0 || strcmp(name, "f16") == 0 ? 2
                                                                                      : 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tf32_needs_no_cast_and_no_memory),
        cmocka_unit_test(fp8_multiplies_two_types),
        cmocka_unit_test(dependent_operators_follow_f16),
        cmocka_unit_test(int8_goes_back_in_the_amp_dtype),
        cmocka_unit_test(ranges_are_known_to_types_of_one_byte),
        cmocka_unit_test(rows_say_what_is_multiplied),
    };
    return cmocka_run_group_tests_name("precisions", tests, NULL, NULL);
}
