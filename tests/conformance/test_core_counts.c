/* folder: backend, and others for devices, plans or robust means */
/* Every operator, in every precision, on a CPU device with three cores: against a reference in double, as on
 * one core in test_operators.c, and bit for bit against devices with 1, 2 and 8 cores, but where oneDNN sums
 * floats. Cases are those of that test, and larger ones, of which each thread gets a part. Threads may be
 * more than this machine's cores: they are not pinned.
 *
 * A process opens one device only, with any number of cores, so each of two instruction sets is tested in a
 * child. */

#include "backend/cpu/operator.h"
#include "tests/support/every_case.h"
#include "tests/support/own_process.h"
#include "tests/support/tandem_test.h"

#define OF(KIND) .kind = TANDEM_OP_##KIND
static const operator_case large_cases[] = {
    {OF(SOFTMAX), .batch = 8, .n_dim = 3, .dim = {2, 40, 40}, .scale = 0.5f},
    {OF(SOFTMAX), .batch = 8, .n_dim = 3, .dim = {2, 40, 40}, .scale = 0.5f, .flag = 1},
    {OF(GELU), .batch = 9, .n_dim = 2, .dim = {40, 101}},
    {OF(CONV2D), .batch = 9, .n_dim = 3, .dim = {9, 9, 16}, .out = 24, .window_h = 3, .stride = 1, .pad = 1},
    {OF(CONV2D), .batch = 9, .n_dim = 3, .dim = {9, 9, 32}, .out = 64, .window_h = 3, .stride = 2, .pad = 1},
    {OF(CONV2D), .batch = 9, .n_dim = 3, .dim = {12, 12, 32}, .out = 64, .window_h = 3, .stride = 1,
     .pad = 1},
    {OF(MATMUL), .batch = 4, .n_dim = 3, .dim = {3, 33, 40}, .out = 37},
    {OF(LINEAR), .batch = 16, .n_dim = 2, .dim = {16, 128}, .out = 160},
};

enum { N_COUNT = 3 };
static const int core_counts[N_COUNT] = {1, 2, 8}, own_count = 3;

/* The devices with other numbers of cores than that of the bench. */
static struct {
    void *device[N_COUNT];
    int n_compared, n_equal, n_float; /* n_float: of oneDNN's sums of floats, whose bits may differ */
    int n_float_equal;
} teams;

/* What sums floats in an order of oneDNN's: where it divides the work, it may divide sums. */
static int is_sum_of_onednn(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    if (task->from == TANDEM_S8 || task->kind == TANDEM_TASK_CAST ||
        task->kind == TANDEM_TASK_GRADIENT_CAST || task->kind == TANDEM_TASK_SAVED_CAST ||
        task->kind == TANDEM_TASK_WEIGHT_CAST || task->kind == TANDEM_TASK_ACCUMULATE)
        return 0;
    switch (step->graph->op[task->op].kind) {
    case TANDEM_OP_LINEAR:
    case TANDEM_OP_MATMUL:
    case TANDEM_OP_CONV2D:
    case TANDEM_OP_LAYERNORM: return 1;
    case TANDEM_OP_MAXPOOL: /* of windows that overlap */
    case TANDEM_OP_AVGPOOL: return task->kind == TANDEM_TASK_DGRAD;
    default: return 0;
    }
}

static int equal_outputs(const task_operands *a, const task_operands *b)
{
    int equal = 1;
    for (int k = 0; k < a->n_out; k++)
        equal = equal && memcmp(a->out[k].data, b->out[k].data, a->out[k].bytes) == 0 &&
                memcmp(&a->out[k].scale, &b->out[k].scale, sizeof a->out[k].scale) == 0;
    return equal;
}

static int run_task(task_operands *operands, bench *b, void *device, const tandem_step *step, int t,
                    const char *where)
{
    char complaint[1200] = "";
    operands_open(operands, step, t);
    operands_fill(operands, step, t, 11);
    if (operands_run(operands, b->backend, device, step, t, 7, 0.37f, complaint, sizeof complaint)) return 1;
    bench_complain(b, "%s: %s", where, complaint);
    operands_close(operands);
    return 0;
}

static void compare_with_teams(bench *b, const tandem_step *step, int t, const char *where)
{
    task_operands alone, several;
    if (!run_task(&alone, b, b->device, step, t, where)) return;
    for (int c = 0; c < N_COUNT; c++) {
        if (core_counts[c] == 2 && !test_is_long()) continue;
        if (!run_task(&several, b, teams.device[c], step, t, where)) continue;
        const int equal = equal_outputs(&alone, &several), is_float = is_sum_of_onednn(step, t);
        teams.n_compared++;
        teams.n_equal += equal;
        teams.n_float += is_float;
        teams.n_float_equal += is_float && equal;
        CHECK(b, equal || is_float, "%s: other bits on %d cores than on %d", where, core_counts[c],
              own_count);
        operands_close(&several);
    }
    operands_close(&alone);
}

/* What is refused, and with which words. */
static void check_names(bench *b)
{
    static const char *const bad[] = {"0", "x", "1000", "-1", "2x", "", "08", "2:2"};
    for (size_t k = 0; k < N_OF(bad); k++) {
        char name[TANDEM_DEVICE_NAME + 16];
        void *device = b;
        tandem_error error = {0};
        snprintf(name, sizeof name, "%s:%s", b->row->name, bad[k]);
        CHECK(b,
              b->backend->open(&device, name, &error) == TANDEM_UNKNOWN_NAME && device == b &&
                  strstr(error.text, "1 to 512"),
              "%s: '%s'", name, error.text);
    }
}

static int open_with_cores(bench *b, void **device, int n_core)
{
    char name[TANDEM_DEVICE_NAME + 16];
    tandem_error error = {0};
    snprintf(name, sizeof name, "%s:%d", b->row->name, n_core);
    if (b->backend->open(device, name, &error) == TANDEM_OK) return 1;
    printf("%s cannot be opened: %s\n", name, error.text);
    return 0;
}

static int child_core_counts(const char *name)
{
    tandem_device row;
    bench b = {.backend = &tandem_cpu_backend, .row = &row, .look = compare_with_teams};
    tandem_error error = {0};
    if (tandem_device_find(&row, name, &error) != TANDEM_OK || !open_with_cores(&b, &b.device, own_count))
        return 1;
    for (int c = 0; c < N_COUNT; c++)
        if (!open_with_cores(&b, &teams.device[c], core_counts[c])) return 1;
    check_names(&b);
    for (size_t k = 0; k < N_OF(large_cases); k++) {
        bench_check_case(&b, &large_cases[k], TANDEM_F32);
        if (bench_has_bf16(&b)) bench_check_case(&b, &large_cases[k], TANDEM_BF16);
    }
    if (test_is_long()) bench_check_every_case(&b);
    for (int c = 0; c < N_COUNT; c++) b.backend->close(teams.device[c]);
    b.backend->close(b.device);
    fprintf(stderr, "%s: of %d runs %d have the bits of three cores; of %d with sums of oneDNN's, %d\n", name,
            teams.n_compared, teams.n_equal, teams.n_float, teams.n_float_equal);
    if (b.complaints > MAX_COMPLAINTS) printf("… %d complaints in all\n", b.complaints);
    const int least = test_is_long() ? 1000 : 100;
    if (teams.n_compared < least) printf("only %d runs were compared\n", teams.n_compared);
    return b.complaints > 0 || teams.n_compared < least;
}

static void every_operator_on_several_cores(void **state)
{
    const tandem_device *row = *state;
    if (!tandem_device_is_present(row->name)) {
        printf("SKIP: this machine lacks %s\n", row->name);
        skip();
    }
    own_process_check(child_core_counts, row->name);
}

/* All but the strongest here, and AVX2, whose int8 products are all our own: the divided kernels of each
 * instruction set are compared in test_divided_kernels.c. */
static int is_left_out(const tandem_device *row)
{
    const tandem_device *strongest = NULL;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *other = tandem_device_get(i);
        if (!tandem_device_is_described(other) && tandem_device_is_present(other->name)) strongest = other;
    }
    return row != strongest && strcmp(row->name, "cpu:avx2") != 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    own_process_wait_asleep(argv);
    struct CMUnitTest tests[32];
    size_t n = 0;
    if (!test_is_long()) printf("# left out: all but eight large cases on several cores, on two devices\n");
    for (int i = 0; i < tandem_device_count() && n < N_OF(tests); i++) {
        const tandem_device *row = tandem_device_get(i);
        if (tandem_device_is_described(row) || is_left_out(row)) continue;
        tests[n++] = (struct CMUnitTest){.name = row->name,
                                         .test_func = every_operator_on_several_cores,
                                         .initial_state = (void *)(uintptr_t)row};
    }
    return _cmocka_run_group_tests("core counts", tests, n, NULL, NULL);
}
