/* folder: backend, and others for devices, plans or robust means */
/* Every operator of op.def, in every precision, on every device this machine has, against a reference in
 * double; and what kernels owe their callers: the same bits again, nothing written outside, refusals that say
 * why.
 *
 * A process opens one device only, so each device is tested in a child; its complaints come back through a
 * pipe. */
#include <dirent.h>

#include "backend/cpu/operator.h"
#include "tests/support/every_case.h"
#include "tests/support/metrics.h"
#include "tests/support/own_process.h"
#include "tests/support/tandem_test.h"

/* --- Casts at their edges ------------------------------------------------------------------------------- */

typedef struct one_case {
    case_graph made;
    tandem_step *step;
} one_case;

static int open_one(bench *b, one_case *one, tandem_op_kind kind)
{
    tandem_error error = {0};
    for (int i = 0; i < n_operator_case; i++) {
        if (operator_cases[i].kind != kind) continue;
        if (case_graph_open(&one->made, &operator_cases[i], &error) == TANDEM_OK &&
            tandem_step_open(&one->step, one->made.graph, TANDEM_F32, 0, &error) == TANDEM_OK)
            return 1;
        break;
    }
    bench_complain(b, "no case of %s: %s", tandem_op_row_get(kind)->name, error.text);
    return 0;
}

static void close_one(one_case *one)
{
    tandem_step_close(one->step);
    tandem_graph_close(one->made.graph);
}

/* Runs the cast of the linear's input to s8 on numbers that are `value`, but the first, which is `first`. */
static tandem_status quantise(bench *b, float first, float value, float *scale, int8_t *q,
                              tandem_error *error)
{
    one_case one;
    tandem_kernel *kernel = NULL;
    uint64_t workspace_bytes = 0;
    if (!open_one(b, &one, TANDEM_OP_LINEAR)) return TANDEM_BUG;
    case_set_precisions(one.step, &one.made, TANDEM_PRECISION_INT8, TANDEM_PRECISION_FP32,
                        TANDEM_PRECISION_FP32);
    const int t = case_find_task(one.step, TANDEM_TASK_CAST, one.made.pre, TANDEM_S8);
    task_operands operands;
    operands_open(&operands, one.step, t);
    for (size_t i = 0; i < operands.in[0].n; i++) operands.in[0].value[i] = (double)(i ? value : first);
    array_store(&operands.in[0]);
    tandem_status status = b->backend->prepare(b->device, one.step, t, &kernel, &workspace_bytes, error);
    if (status == TANDEM_OK) {
        float written = *scale;
        const tandem_kernel_call call = {.in = {operands.in[0].data},
                                         .out = {operands.out[0].data},
                                         .out_scale = {&written},
                                         .rng = {.seed = 1}};
        status = b->backend->run(kernel, &call, error);
        *scale = written;
    }
    *q = ((const int8_t *)operands.out[0].data)[1];
    b->backend->release(kernel);
    operands_close(&operands);
    close_one(&one);
    return status;
}

static void check_cast_edges(bench *b)
{
    float scale = 9;
    int8_t q = 9;
    tandem_error error = {0};
    CHECK(b, quantise(b, 0, 0, &scale, &q, &error) == TANDEM_OK && !(fabsf(scale) > 0) && q == 0,
          "zeros become %d × %g", q, (double)scale);
    CHECK(b,
          quantise(b, 0x1p-140f, -0x1p-140f, &scale, &q, &error) == TANDEM_OK &&
              fabsf(scale * (float)q) <= 0x1p-139f,
          "numbers near 0 become %d × %g", q, (double)scale);
    CHECK(b,
          quantise(b, 2, 2, &scale, &q, &error) == TANDEM_OK && q == 127 && fabsf(scale - 2.0f / 127) < 1e-8f,
          "twos become %d × %g", q, (double)scale);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        scale = 9;
        error = (tandem_error){0};
        const tandem_status status = quantise(b, bad[i], 1, &scale, &q, &error);
        CHECK(b, status == TANDEM_LIMIT_EXCEEDED && strstr(error.text, "'pre'") && scale > 8,
              "quantising %g: status %s, '%s'", (double)bad[i], tandem_status_name(status), error.text);
    }
}

/* --- Refusals ------------------------------------------------------------------------------------------- */

static void expect_refusal(bench *b, const tandem_step *step, int t, const char *what)
{
    tandem_kernel *kernel = NULL;
    uint64_t workspace_bytes = 77;
    tandem_error error = {0};
    const tandem_status status = b->backend->prepare(b->device, step, t, &kernel, &workspace_bytes, &error);
    CHECK(b, status == TANDEM_NO_KERNEL && error.text[0] && !kernel && workspace_bytes == 77,
          "%s: status %s, '%s'", what, tandem_status_name(status), error.text);
    if (kernel) b->backend->release(kernel);
}

static void check_refusals(bench *b)
{
    one_case one;
    if (open_one(b, &one, TANDEM_OP_CONV2D)) {
        expect_refusal(b, one.step, one.step->bucket[0].reduce_task, "an all-reduce as a kernel");
        expect_refusal(b, one.step, one.step->bucket[0].update_task, "an update as a kernel");
        const int forward = case_find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_F32);
        one.step->task[forward].from = TANDEM_S8;
        one.step->task[forward].to = TANDEM_BF16;
        expect_refusal(b, one.step, forward, "a convolution from int8 to bf16");
        close_one(&one);
    }
    if (open_one(b, &one, TANDEM_OP_RELU)) {
        const int forward = case_find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_F32);
        one.step->task[forward].from = one.step->task[forward].to = TANDEM_S8;
        expect_refusal(b, one.step, forward, "relu in int8");
        close_one(&one);
    }
    if (!bench_has_bf16(b) && open_one(b, &one, TANDEM_OP_LINEAR)) {
        case_set_precisions(one.step, &one.made, TANDEM_PRECISION_BF16, TANDEM_PRECISION_FP32,
                            TANDEM_PRECISION_FP32);
        expect_refusal(b, one.step, case_find_task(one.step, TANDEM_TASK_FORWARD, one.made.op, TANDEM_BF16),
                       "linear in bf16");
        close_one(&one);
    }
}

/* Tokens and labels outside their range. */
static void check_bad_indices(bench *b)
{
    static const struct {
        tandem_op_kind kind;
        tandem_task_kind task;
        int operand;
    } cases[] = {{TANDEM_OP_EMBEDDING, TANDEM_TASK_FORWARD, 0},
                 {TANDEM_OP_EMBEDDING, TANDEM_TASK_WGRAD, 0},
                 {TANDEM_OP_CROSS_ENTROPY, TANDEM_TASK_FORWARD, 1},
                 {TANDEM_OP_CROSS_ENTROPY, TANDEM_TASK_DGRAD, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int sign = 0; sign < 2; sign++) {
            one_case one;
            if (!open_one(b, &one, cases[i].kind)) continue;
            task_operands operands;
            char complaint[1200] = "";
            int t = -1;
            for (int k = 0; k < one.step->n_task; k++)
                if (one.step->task[k].active && one.step->task[k].op == one.made.op &&
                    one.step->task[k].kind == cases[i].task)
                    t = k;
            operands_open(&operands, one.step, t);
            operands_fill(&operands, one.step, t, 1);
            const int below = cases[i].kind == TANDEM_OP_CROSS_ENTROPY ? -2 : -1; /* −1 means no label */
            operands.in[cases[i].operand].value[1] = sign ? below : 1000000;
            array_store(&operands.in[cases[i].operand]);
            const int good = operands_run(&operands, b->backend, b->device, one.step, t, 1, 1, complaint,
                                          sizeof complaint);
            CHECK(b, !good && strstr(complaint, "allowed 0"), "%s reads index %d: '%s'",
                  tandem_op_row_get(cases[i].kind)->name, sign ? below : 1000000, complaint);
            operands_close(&operands);
            close_one(&one);
        }
}

static void check_opening(bench *b)
{
    void *device = b;
    tandem_error error = {0};
    CHECK(b, b->backend->open(&device, "cpu:mmx", &error) == TANDEM_UNKNOWN_NAME && device == b,
          "cpu:mmx: %s", error.text);
    const char *other = strcmp(b->row->name, "cpu:sse41") ? "cpu:sse41" : "cpu:avx2";
    CHECK(b, b->backend->open(&device, other, &error) == TANDEM_NO_DEVICE && device == b, "%s beside %s: %s",
          other, b->row->name, error.text);
    void *again = NULL;
    CHECK(b, b->backend->open(&again, b->row->name, &error) == TANDEM_OK, "%s again: %s", b->row->name,
          error.text);
    if (again) b->backend->close(again);
    CHECK(b, strncmp(b->backend->version(), "oneDNN ", 7) == 0, "version: %s", b->backend->version());
}

/* --- The optimizer -------------------------------------------------------------------------------------- */

static void check_update(bench *b, const tandem_optimizer_options *o, int decays)
{
    enum { N = 37 };
    float w[N], g[N], first[N], second[N];
    float *const state[2] = {first, second};
    for (int i = 0; i < N; i++) {
        w[i] = (float)case_random(1, (uint32_t)i);
        g[i] = (float)case_random(2, (uint32_t)i);
        first[i] = (float)case_random(3, (uint32_t)i);
        second[i] = (float)(case_random(4, (uint32_t)i) + 1);
    }
    double right[N];
    const int64_t t = 3;
    const double rate = (double)o->rate, decay = decays ? (double)o->decay : 0, b1 = (double)o->beta1,
                 b2 = (double)o->beta2;
    for (int i = 0; i < N; i++) {
        const double x = (double)w[i], d = (double)g[i];
        const double m = b1 * (double)first[i] + (1 - b1) * d, v = b2 * (double)second[i] + (1 - b2) * d * d;
        right[i] = o->kind == TANDEM_SGD
                       ? x - rate * ((double)o->momentum * (double)first[i] + d + decay * x)
                       : x - rate * (m / (1 - pow(b1, (double)t)) /
                                         (sqrt(v / (1 - pow(b2, (double)t))) + (double)o->epsilon) +
                                     decay * x);
    }
    b->backend->update(b->device, o, decays, NULL, w, state, g, N, t, NULL);
    for (int i = 0; i < N; i++)
        CHECK(b, fabs((double)w[i] - right[i]) < 1e-6, "%s, element %d: %.9g, should be %.9g",
              tandem_optimizer_name(o->kind), i, (double)w[i], right[i]);
}

static void check_updates(bench *b)
{
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f, .momentum = 0.9f, .decay = 0.01f};
    const tandem_optimizer_options adamw = {
        .kind = TANDEM_ADAMW, .rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .decay = 0.1f};
    for (int decays = 0; decays < 2; decays++) {
        check_update(b, &sgd, decays);
        check_update(b, &adamw, decays);
    }
}

/* A device is one core, whatever the environment says. */
static void check_threads(bench *b)
{
#ifndef __SANITIZE_THREAD__
    DIR *threads = opendir("/proc/self/task");
    int n = 0;
    if (!threads) return;
    for (const struct dirent *entry; (entry = readdir(threads));) n += entry->d_name[0] != '.';
    closedir(threads);
    CHECK(b, n == 1, "the device runs %d threads", n);
#else
    (void)b;
#endif
}

/* --- Devices -------------------------------------------------------------------------------------------- */

static int child_operators(const char *name)
{
    tandem_device row;
    bench b = {.backend = &tandem_cpu_backend, .row = &row};
    tandem_error error = {0};
    if (tandem_device_find(&row, name, &error) != TANDEM_OK ||
        b.backend->open(&b.device, name, &error) != TANDEM_OK) {
        printf("%s cannot be opened: %s\n", name, error.text);
        return 1;
    }
    check_opening(&b);
    bench_check_every_case(&b);
    bench_check_every_precision(&b);
    check_cast_edges(&b);
    check_refusals(&b);
    check_bad_indices(&b);
    check_updates(&b);
    check_threads(&b);
    b.backend->close(b.device);
    if (b.complaints > MAX_COMPLAINTS) printf("… %d complaints in all\n", b.complaints);
    if (b.checks < 300) printf("only %d checks ran\n", b.checks);
    return b.complaints > 0 || b.checks < 300;
}

static void every_operator_on(void **state)
{
    const tandem_device *row = *state;
    if (!tandem_device_is_present(row->name)) {
        printf("SKIP: this machine lacks %s\n", row->name);
        skip();
    }
    own_process_check(child_operators, row->name);
}

static void every_operator_has_a_case(void **state)
{
    for (int kind = 0; kind < TANDEM_N_OP_KIND; kind++) {
        const tandem_op_row *row = tandem_op_row_get((tandem_op_kind)kind);
        if (row->op_class == TANDEM_SOURCE || kind == TANDEM_OP_RESHAPE) continue;
        if (kind == TANDEM_OP_CALL || kind == TANDEM_OP_CALL_TRAINED) continue; /* no kernel runs them */
        int n = 0;
        for (int i = 0; i < n_operator_case; i++) n += operator_cases[i].kind == (tandem_op_kind)kind;
        if (n == 0) fail_msg("operator '%s' of op.def has no case in operator_case.c", row->name);
    }
}

static void metrics_by_hand(void **state)
{
    const double r[] = {3, 4, 0}, x[] = {3, 4.5, 0}, zero[] = {0, 0, 0}, apart[] = {-4, 3, 0};
    assert_true(fabs(metrics_relative_l2(r, x, 3) - 0.1) < 1e-12); /* 0.5 / 5 */
    assert_true(metrics_relative_l2(zero, zero, 3) <= 0);
    assert_true(isinf(metrics_relative_l2(zero, r, 3)));
    assert_true(fabs(metrics_cosine(r, r, 3) - 1) < 1e-12 && fabs(metrics_cosine(r, apart, 3)) < 1e-12);
    assert_true(metrics_cosine(zero, zero, 3) >= 1 && metrics_cosine(zero, r, 3) <= 0);
    const double one[] = {1}, next[] = {1 + 0x1p-23}, far[] = {1 + 0x1p-7};
    assert_true(fabs(metrics_max_ulp(one, next, 1, 24) - 1) < 1e-12);
    assert_true(fabs(metrics_max_ulp(one, far, 1, 8) - 1) < 1e-12);
    const double tiny[] = {0}, denormal[] = {0x1p-149}, nan[] = {NAN};
    assert_true(fabs(metrics_max_ulp(tiny, denormal, 1, 24) - 1) < 1e-12);
    assert_true(isnan(metrics_max_ulp(one, nan, 1, 24)));
}

/* Without TEST_LONG: the weakest device, the strongest here, and what most machines have. */
static int is_left_out(const tandem_device *row)
{
    const tandem_device *weakest = NULL, *strongest = NULL;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *other = tandem_device_get(i);
        if (tandem_device_is_described(other) || !tandem_device_is_present(other->name)) continue;
        if (!weakest) weakest = other;
        strongest = other;
    }
    return !test_is_long() && row != weakest && row != strongest && strcmp(row->name, "cpu:avx2") != 0;
}

int main(void)
{
    struct CMUnitTest tests[2 + 32] = {cmocka_unit_test(metrics_by_hand),
                                       cmocka_unit_test(every_operator_has_a_case)};
    size_t n = 2;
    for (int i = 0; i < tandem_device_count() && n < sizeof tests / sizeof tests[0]; i++) {
        const tandem_device *row = tandem_device_get(i);
        if (tandem_device_is_described(row)) continue;
        if (is_left_out(row))
            printf("# left out: every operator on %s\n", row->name);
        else
            tests[n++] = (struct CMUnitTest){
                .name = row->name, .test_func = every_operator_on, .initial_state = (void *)row};
    }
    return _cmocka_run_group_tests("operators", tests, n, NULL, NULL);
}
