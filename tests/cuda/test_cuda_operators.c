/* folder: backend */
/* Every operator of the CUDA backend, in every precision, against the reference, and the same bits twice: on
 * a card in build/card/ (make test-cuda). Elsewhere its host code and its kernels as they are, the kernels'
 * threads as coroutines (simt.h), NVIDIA's libraries as plain loops (stand_in.h). */
#include <stdio.h>
#include <unistd.h>

#include "tests/cuda/gpu.h"
#include "tests/cuda/mirror.h"
#include "tests/support/every_case.h"
#include "tests/support/tandem_test.h"

/* Those in blocks, which no card here has, come last. */
static const unsigned all_precisions = (1u << TANDEM_PRECISION_MXFP8) - 1;

/* What is counted of a step without a card is what the backend launches. */
static int n_launch_count;
static void launches_are_as_counted(bench *b, const tandem_step *step, int task, const char *where)
{
    const tandem_op *op = &step->graph->op[step->task[task].op];
    const int64_t first = case_first_place * tandem_shape_elements(&op->shape) / step->graph->batch;
    if (gpu_is_real || (op->kind == TANDEM_OP_DROPOUT && first % 8 > 0)) return; /* not the first rank */
    const int launched = mirror_last_launches(), counted = tandem_step_launches(step, task);
    n_launch_count++;
    CHECK(b, launched == counted, "%s: %d launches, tandem_step_launches says %d", where, launched, counted);
}

static const tandem_device gpu_row = {.name = "cuda:0",
                                      .precisions = all_precisions,
                                      .amp_dtype = TANDEM_BF16,
                                      .transposed_copy = 1,
                                      .narrow_rows = 1,
                                      .merged_tasks = 1,
                                      .padded_rows = 1};

static bench bench_of_gpu(int is_real)
{
    return (bench){.backend = &mirror_backend,
                   .row = &gpu_row,
                   .narrow_gradients = 1,
                   .is_gpu = 1,
                   .max_complaints = is_real ? MAX_COMPLAINTS_ON_CARD : 0};
}

static void every_operator_agrees_with_the_reference(void **state)
{
    bench b = bench_of_gpu(gpu_is_real);
    b.look = launches_are_as_counted;
    tandem_error error = {0};
    assert_int_equal(mirror_backend.open(&b.device, "cuda:0", &error), TANDEM_OK);
    bench_check_every_case(&b);
    bench_check_every_precision(&b);
    bench_print_wrong(&b);
    b.backend->close(b.device);
    assert_int_equal(b.complaints, 0);
    assert_true(b.checks > 300);
    assert_true(gpu_is_real || n_launch_count > 1000);
    assert_true(b.copies > 20);
    assert_true(b.gaps > 30);
    assert_int_equal(gpu_open_handles(), 0);
}

/* Lines on stdout of n complaints and the counts after them. */
static int lines_of(bench *b, int n)
{
    char line[256];
    int lines = 0;
    FILE *kept = tmpfile();
    const int out = dup(STDOUT_FILENO);
    assert_true(kept && out >= 0 && fflush(stdout) == 0 && dup2(fileno(kept), STDOUT_FILENO) >= 0);
    for (int i = 0; i < n; i++) bench_complain(b, "complaint %d", i);
    bench_print_wrong(b);
    (void)fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    (void)close(out);
    rewind(kept);
    while (fgets(line, sizeof line, kept)) lines++;
    (void)fclose(kept);
    return lines;
}

/* A change of the code shows in a few lines. The first run on a card may not come again: each is wanted, and
 * how many of an operator, a precision and a pass were wrong. */
static void complaints_on_a_gpu_are_not_cut_short(void **state)
{
    bench elsewhere = bench_of_gpu(0), on_gpu = bench_of_gpu(1);
    on_gpu.count[TANDEM_OP_LINEAR][TANDEM_PRECISION_INT8][TANDEM_TASK_WGRAD] = (bench_count){9, 3};
    on_gpu.count[TANDEM_OP_LINEAR][TANDEM_PRECISION_BF16][TANDEM_TASK_WGRAD] = (bench_count){9, 0};
    on_gpu.count[TANDEM_OP_CONV2D][TANDEM_PRECISION_INT8][TANDEM_TASK_FORWARD] = (bench_count){1, 1};
    assert_int_equal(lines_of(&elsewhere, 300), 8);
    assert_int_equal(lines_of(&on_gpu, 300), 300 + 2);
    assert_int_equal(on_gpu.complaints, 300);
}

/* Where cuDNN has no algorithm for a convolution, its columns are multiplied. */
static void convolutions_without_an_algorithm_are_products(void **state)
{
    bench b = bench_of_gpu(0);
    tandem_error error = {0};
    b.only = TANDEM_OP_CONV2D;
    if (gpu_has_no_convolutions(1)) {
        assert_int_equal(mirror_backend.open(&b.device, "cuda:0", &error), TANDEM_OK);
        bench_check_every_case(&b);
        b.backend->close(b.device);
        gpu_has_no_convolutions(0);
        assert_int_equal(b.complaints, 0);
        assert_true(b.checks > 100);
    }
    assert_int_equal(gpu_open_handles(), 0);
}

/* What the three products of a linear in fp8 need beside their operands. */
static uint64_t workspace_of_a_linear(void *device, const operator_case *c, int transposed_copy)
{
    const tandem_step_options options = {.transposed_copy = transposed_copy};
    uint64_t sum = 0;
    case_graph made;
    tandem_step *step = NULL;
    tandem_error error = {0};
    assert_int_equal(case_graph_open(&made, c, &error), TANDEM_OK);
    assert_int_equal(tandem_step_open_with(&step, made.graph, TANDEM_BF16, 0, &options, &error), TANDEM_OK);
    case_set_precisions(step, &made, TANDEM_PRECISION_FP8, TANDEM_PRECISION_BF16, TANDEM_PRECISION_BF16);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        uint64_t bytes = 0;
        tandem_kernel *kernel = NULL;
        if (!task->active || task->op != made.op ||
            (task->kind != TANDEM_TASK_FORWARD && task->kind != TANDEM_TASK_DGRAD &&
             task->kind != TANDEM_TASK_WGRAD))
            continue;
        assert_int_equal(mirror_backend.prepare(device, step, t, &kernel, &bytes, &error), TANDEM_OK);
        mirror_backend.release(kernel);
        sum += bytes;
    }
    tandem_step_close(step);
    tandem_graph_close(made.graph);
    return sum;
}

/* Where casts write transposed copies, no product turns an operand. */
static void products_of_column_wise_copies_turn_nothing(void **state)
{
    const operator_case c = {.kind = TANDEM_OP_LINEAR, .batch = 64, .n_dim = 1, .dim = {128}, .out = 256};
    const uint64_t operands = 64 * 128 + 128 * 256 + 64 * 256; /* x, w and g, each in one of them */
    void *device = NULL;
    tandem_error error = {0};
    assert_int_equal(mirror_backend.open(&device, "cuda:0", &error), TANDEM_OK);
    assert_true(workspace_of_a_linear(device, &c, 1) + operands <= workspace_of_a_linear(device, &c, 0));
    mirror_backend.close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_operator_agrees_with_the_reference),
                                       cmocka_unit_test(complaints_on_a_gpu_are_not_cut_short),
                                       cmocka_unit_test(convolutions_without_an_algorithm_are_products),
                                       cmocka_unit_test(products_of_column_wise_copies_turn_nothing)};
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
