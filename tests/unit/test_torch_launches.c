/* folder: trace */
/* Whose kernel is it, and which step's: launches, hosts that run ahead, steps that are cut off, and traces of
 * many ages. Right values are worked out by hand. */
#include <unistd.h>

#include "tandem/advanced/torch_trace.h"
#include "tests/support/tandem_test.h"

/* --- Writing -------------------------------------------------------------------------------------------- */

typedef struct kineto {
    FILE *file;
    char *text;
    size_t n;
    int n_event;
} kineto;

static void kineto_open(kineto *k, const char *members)
{
    *k = (kineto){0};
    k->file = open_memstream(&k->text, &k->n);
    assert_non_null(k->file);
    (void)fprintf(k->file, "{%s\"traceEvents\": [", members);
}

/* One slice of a category; times in us, args within the braces. */
static void kineto_slice(kineto *k, const char *category, const char *name, int tid, double ts, double dur,
                         const char *args)
{
    (void)fprintf(
        k->file,
        "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f, "
        "\"dur\": %.3f, \"args\": {%s}}",
        k->n_event++ ? ",\n" : "\n", category, name, tid, ts, dur, args);
}

static void kineto_text(kineto *k, const char *event)
{
    (void)fprintf(k->file, "%s%s", k->n_event++ ? ",\n" : "\n", event);
}

static void kineto_step(kineto *k, int number, double ts, double dur)
{
    char name[40];
    (void)snprintf(name, sizeof name, "ProfilerStep#%d", number);
    kineto_slice(k, "user_annotation", name, 1, ts, dur, "");
}

static void kineto_op(kineto *k, const char *name, double ts, double dur)
{
    kineto_slice(k, "cpu_op", name, 1, ts, dur, "\"External id\": 1");
}

static void kineto_launch(kineto *k, int correlation, double ts)
{
    char args[40];
    (void)snprintf(args, sizeof args, "\"correlation\": %d", correlation);
    kineto_slice(k, "cuda_runtime", "cudaLaunchKernel", 1, ts, 1, args);
}

/* As many versions write it: the External id is the correlation. */
static void kineto_kernel(kineto *k, const char *name, int stream, int correlation, double ts, double dur)
{
    char args[160];
    (void)snprintf(args, sizeof args,
                   "\"External id\": %d, \"device\": 0, \"stream\": %d, \"correlation\": %d", correlation,
                   stream, correlation);
    (void)fprintf(k->file,
                  "%s{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": "
                  "%.3f, \"dur\": %.3f, \"args\": {%s}}",
                  k->n_event++ ? ",\n" : "\n", name, stream, ts, dur, args);
}

static void kineto_close(kineto *k)
{
    (void)fputs("\n]}\n", k->file);
    assert_int_equal(fclose(k->file), 0);
}

static tandem_torch_summary *kineto_read(kineto *k)
{
    tandem_torch_summary *torch = NULL;
    tandem_error error = {0};
    kineto_close(k);
    require_ok(tandem_torch_parse(&torch, k->text, k->n, "trace.json", &error), &error);
    free(k->text);
    return torch;
}

static const tandem_torch_operator *kineto_row(const tandem_torch_summary *torch, const char *name,
                                               tandem_torch_pass pass)
{
    for (int i = 0; i < torch->n_operator; i++)
        if (strcmp(torch->operators[i].name, name) == 0 && torch->operators[i].pass == pass)
            return &torch->operators[i];
    fail_msg("no row '%s' in %s", name, tandem_torch_pass_name(pass));
    return NULL;
}

static int64_t device_us(const tandem_torch_summary *torch, const char *name, tandem_torch_pass pass)
{
    return kineto_row(torch, name, pass)->cost.device_ns / 1000;
}

static int64_t casts_us(const tandem_torch_summary *torch)
{
    int64_t sum_ns = 0;
    for (int i = 0; i < torch->n_operator; i++)
        if (torch->operators[i].is_cast) sum_ns += torch->operators[i].cost.device_ns;
    return sum_ns / 1000;
}

/* --- Whose kernel is it --------------------------------------------------------------------------------- */

/* External ids that are correlations: they are equal to those of other operators. */
static void launches_decide_not_external_ids(void **state)
{
    for (int is_linked = 0; is_linked < 2; is_linked++) {
        kineto k;
        kineto_open(&k, "\"distributedInfo\": {\"rank\": 0}, ");
        kineto_step(&k, 1, 1000, 1000);
        kineto_slice(&k, "cpu_op", "aten::to", 1, 1010, 50, "\"External id\": 2");
        kineto_slice(&k, "cpu_op", "aten::detach", 1, 1100, 10, "\"External id\": 3");
        kineto_slice(&k, "cpu_op", "aten::mm", 1, 1200, 100, "\"External id\": 4");
        kineto_slice(&k, "cpu_op", "aten::relu", 1, 1400, 50, "\"External id\": 5");
        kineto_launch(&k, 2, 1220);
        kineto_slice(&k, "kernel", "gemm_kernel", 7, 1300, 400,
                     is_linked ? "\"External id\": 4, \"correlation\": 2"
                               : "\"External id\": 2, \"correlation\": 2");
        kineto_launch(&k, 3, 1420);
        kineto_slice(&k, "kernel", "relu_kernel", 7, 1750, 100,
                     is_linked ? "\"External id\": 5, \"correlation\": 3"
                               : "\"External id\": 3, \"correlation\": 3");
        tandem_torch_summary *const t = kineto_read(&k);
        assert_int_equal(device_us(t, "aten::mm", TANDEM_TORCH_FORWARD), 400);
        assert_int_equal(device_us(t, "aten::relu", TANDEM_TORCH_FORWARD), 100);
        assert_int_equal(casts_us(t), 0);
        assert_int_equal(t->rank[0].n_kernel, 2);
        assert_int_equal(t->rank[0].left_out.n_without_operator, 0);
        assert_int_equal(t->rank[0].left_out.n_by_id, 0);
        tandem_torch_close(t);
    }
}

/* Launches of every runtime; the innermost operator of the launching thread; kernels before launches in the
 * file; a graph launch has many kernels. */
static void every_kind_of_launch_is_joined(void **state)
{
    static const struct {
        const char *category, *name;
    } launches[] = {{"cuda_runtime", "cudaLaunchKernel"},      {"cuda_driver", "cuLaunchKernel"},
                    {"cuda_runtime", "cudaMemcpyAsync"},       {"cuda_runtime", "cudaGraphLaunch"},
                    {"cuda_runtime", "hipModuleLaunchKernel"}, {"Runtime", "cudaLaunchKernelExC"},
                    {"hip_runtime", "hipLaunchKernel"},        {"xpu_runtime", "urEnqueueKernelLaunch"}};
    for (size_t i = 0; i < N_OF(launches); i++) {
        kineto k;
        kineto_open(&k, "");
        kineto_kernel(&k, "first", 7, 41, 60, 10);
        kineto_kernel(&k, "second", 8, 41, 70, 5);
        kineto_slice(&k, launches[i].category, launches[i].name, 1, 30, 4, "\"correlation\": 41");
        kineto_slice(&k, "cpu_op", "other thread", 2, 0, 100, "\"External id\": 41");
        kineto_op(&k, "outer", 10, 50);
        kineto_op(&k, "ended", 12, 10);
        kineto_op(&k, "inner", 30, 20); /* whole us: it begins with its launch */
        kineto_op(&k, "later", 51, 4);
        tandem_torch_summary *const t = kineto_read(&k);
        assert_int_equal(device_us(t, "inner", TANDEM_TORCH_FORWARD), 15);
        assert_int_equal(kineto_row(t, "outer", TANDEM_TORCH_FORWARD)->cost.device_ns, 0);
        assert_int_equal(t->rank[0].left_out.n_without_operator, 0);
        assert_int_equal(t->rank[0].n_stream, 2);
        assert_int_equal(t->rank[0].n_device, 1);
        tandem_torch_close(t);
    }
}

static void kernels_without_operator_are_counted(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_op(&k, "aten::mm", 10, 20);
    kineto_slice(&k, "cpu_op", "aten::to", 1, 32, 2, "\"External id\": 7");
    kineto_launch(&k, 5, 12);
    kineto_launch(&k, 6, 40); /* in no operator */
    kineto_kernel(&k, "a", 7, 5, 50, 10);
    kineto_kernel(&k, "b", 7, 6, 60, 20);
    kineto_kernel(&k, "c", 7, 7, 80, 30);  /* its launch is missing; its External id is its correlation */
    kineto_kernel(&k, "d", 7, 0, 110, 40); /* correlation 0 is nobody's */
    kineto_slice(&k, "cuda_runtime", "cudaLaunchKernel", 1, 13, 1, "\"correlation\": 0");
    tandem_torch_summary *const t = kineto_read(&k);
    const tandem_torch_left_out *const out = &t->rank[0].left_out;
    assert_int_equal(t->rank[0].n_kernel, 4);
    assert_int_equal(t->rank[0].kernel_ns, 100000);
    assert_int_equal(out->n_without_operator, 3);
    assert_int_equal(out->without_operator_ns, 90000);
    assert_int_equal(out->n_without_launch, 2);
    assert_int_equal(out->n_by_id, 0);
    assert_int_equal(device_us(t, "aten::mm", TANDEM_TORCH_FORWARD), 10);
    assert_int_equal(device_us(t, "b", TANDEM_TORCH_UNKNOWN), 20);
    assert_int_equal(device_us(t, "c", TANDEM_TORCH_UNKNOWN), 30);
    assert_int_equal(device_us(t, "d", TANDEM_TORCH_UNKNOWN), 40);
    tandem_torch_close(t);
}

/* Without a launch an External id that is no correlation names the operator: not one that begins later. */
static void ids_count_where_launches_are_missing(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_slice(&k, "cpu_op", "aten::mm", 1, 10, 20, "\"External id\": 3");
    kineto_slice(&k, "cpu_op", "aten::add", 1, 200, 20, "\"External id\": 4");
    kineto_slice(&k, "kernel", "gemm", 7, 50, 10, "\"External id\": 3, \"correlation\": 100");
    kineto_slice(&k, "kernel", "early", 7, 70, 10, "\"External id\": 4, \"correlation\": 101");
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(device_us(t, "aten::mm", TANDEM_TORCH_FORWARD), 10);
    assert_int_equal(device_us(t, "early", TANDEM_TORCH_UNKNOWN), 10);
    assert_int_equal(t->rank[0].left_out.n_by_id, 1);
    assert_int_equal(t->rank[0].left_out.n_without_launch, 1);
    assert_int_equal(t->rank[0].left_out.n_without_operator, 1);
    tandem_torch_close(t);
}

/* Two processes in one file number their launches alike: the launch before the kernel counts. */
static void numbers_that_repeat_are_distinguished_by_time(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_op(&k, "first", 10, 20);
    kineto_op(&k, "second", 100, 20);
    kineto_launch(&k, 9, 12);
    kineto_launch(&k, 9, 102);
    kineto_kernel(&k, "k", 7, 9, 50, 10);
    kineto_kernel(&k, "k", 7, 9, 150, 7);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(device_us(t, "first", TANDEM_TORCH_FORWARD), 10);
    assert_int_equal(device_us(t, "second", TANDEM_TORCH_FORWARD), 7);
    tandem_torch_close(t);
}

/* Operators come first in a file, launches far after them: more than a batch of slices between. */
static void launches_far_after_operators_are_joined(void **state)
{
    enum { N = 70000 };
    kineto k;
    kineto_open(&k, "");
    for (int i = 0; i < N; i++) kineto_op(&k, i % 2 ? "odd" : "even", 10.0 * i, 8);
    for (int i = 0; i < N; i++) kineto_launch(&k, i + 1, 10.0 * i + 2);
    for (int i = 0; i < N; i++) kineto_kernel(&k, "k", 7, i + 1, 10.0 * i + 5, i % 2 ? 3 : 2);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(device_us(t, "odd", TANDEM_TORCH_FORWARD), 3 * N / 2);
    assert_int_equal(device_us(t, "even", TANDEM_TORCH_FORWARD), 2 * N / 2);
    assert_int_equal(t->rank[0].left_out.n_without_operator, 0);
    tandem_torch_close(t);
}

/* aten::to copies to a device: that is no cast. A kernel within it is one. */
static void copies_to_a_device_are_no_casts(void **state)
{
    kineto k;
    kineto_open(&k, "");
    for (int i = 0; i < 2; i++) {
        kineto_op(&k, "aten::to", 100 * i, 50);
        kineto_op(&k, "aten::_to_copy", 100 * i + 5, 40);
        kineto_op(&k, "aten::copy_", 100 * i + 10, 30);
        kineto_launch(&k, 11 + i, 100 * i + 15);
    }
    kineto_slice(&k, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 20, 25, "\"correlation\": 11");
    kineto_kernel(&k, "float_to_half", 7, 12, 120, 4);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(casts_us(t), 4);
    int64_t copies_us = 0;
    for (int i = 0; i < t->n_operator; i++)
        if (strcmp(t->operators[i].name, "aten::copy_") == 0 && !t->operators[i].is_cast)
            copies_us += t->operators[i].cost.device_ns / 1000;
    assert_int_equal(copies_us, 25);
    tandem_torch_close(t);
}

/* A launch of the backward pass, on its own thread. */
static void launches_of_the_backward_pass_are_distinguished(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_step(&k, 1, 0, 200);
    kineto_op(&k, "aten::mm", 10, 20);
    kineto_slice(&k, "cpu_op", "autograd::engine::evaluate_function: MmBackward0", 2, 50, 40, "");
    kineto_slice(&k, "cpu_op", "aten::mm", 2, 55, 20, "\"External id\": 1");
    kineto_launch(&k, 1, 12);
    kineto_slice(&k, "cuda_runtime", "cudaLaunchKernel", 2, 60, 1, "\"correlation\": 2");
    kineto_kernel(&k, "gemm", 7, 1, 100, 10);
    kineto_kernel(&k, "gemm", 7, 2, 110, 30);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(device_us(t, "aten::mm", TANDEM_TORCH_FORWARD), 10);
    assert_int_equal(device_us(t, "aten::mm", TANDEM_TORCH_BACKWARD), 30);
    tandem_torch_close(t);
}

/* --- Steps ---------------------------------------------------------------------------------------------- */

/* A host that is ahead of its device: steps of 2 ms on the host launch n kernels of 1 ms. */
static double write_ahead(kineto *k, int number, int n, double host_us, double device_us_free)
{
    kineto_step(k, number, host_us, 2000);
    for (int i = 0; i < n; i++) {
        const double at_us = host_us + 150 * i;
        const double start_us = device_us_free > at_us + 200 ? device_us_free : at_us + 200;
        kineto_op(k, "aten::mm", at_us + 10, 100);
        kineto_launch(k, 1000 * number + i + 1, at_us + 50);
        kineto_kernel(k, "gemm", 7, 1000 * number + i + 1, start_us, 1000);
        device_us_free = start_us + 1000;
    }
    return device_us_free;
}

static void a_step_is_what_it_launched(void **state)
{
    for (int n_step = 1; n_step <= 5; n_step++) {
        kineto k;
        double device_us_free = 0;
        kineto_open(&k, "");
        for (int s = 0; s < n_step; s++)
            device_us_free = write_ahead(&k, s + 1, 10, 1000 + 2000 * s, device_us_free);
        tandem_torch_summary *const t = kineto_read(&k);
        assert_int_equal(t->rank[0].n_step, n_step);
        for (int s = 0; s < n_step; s++) {
            assert_int_equal(t->rank[0].step[s].duration_ns, 10000000);
            assert_int_equal(t->rank[0].step[s].compute_ns, 10000000);
            assert_int_equal(t->rank[0].step[s].idle_ns, 0);
            assert_int_equal(t->rank[0].step[s].n_kernel, 10);
        }
        assert_int_equal(t->rank[0].left_out.n_outside, 0);
        assert_int_equal(kineto_row(t, "aten::mm", TANDEM_TORCH_FORWARD)->cost.step_device_ns,
                         INT64_C(10000000) * n_step);
        tandem_torch_close(t);
    }
}

/* The last step waits for the device; a fragment launches less; what is launched after the steps is in
 * none. */
static void the_host_waits_at_last(void **state)
{
    kineto k;
    kineto_open(&k, "");
    double device_us_free = write_ahead(&k, 1, 4, 1000, 0); /* the recording began within it */
    kineto_launch(&k, 42, 3005); /* a copy for step 2, while the fragment's kernels run */
    kineto_slice(&k, "gpu_memcpy", "Memcpy HtoD", 9, 3100, 100, "\"correlation\": 42");
    for (int s = 1; s < 4; s++) device_us_free = write_ahead(&k, s + 1, 10, 1000 + 2000 * s, device_us_free);
    kineto_step(&k, 5, 9000, 36200); /* until 45200, when the device has done its kernels */
    for (int i = 0; i < 10; i++) {
        kineto_op(&k, "aten::mm", 9010 + 150 * i, 100);
        kineto_launch(&k, 5001 + i, 9050 + 150 * i);
        kineto_kernel(&k, "gemm", 7, 5001 + i, device_us_free, 1000);
        device_us_free += 1000;
    }
    kineto_launch(&k, 7777, 46000);
    kineto_kernel(&k, "after", 7, 7777, 46500, 300);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].n_fragment, 1);
    assert_int_equal(t->rank[0].fragment[0].number, 1);
    assert_int_equal(t->rank[0].n_step, 4);
    for (int s = 0; s < 4; s++) assert_int_equal(t->rank[0].step[s].duration_ns, 10000000);
    assert_int_equal(t->rank[0].left_out.n_in_fragment, 4);
    assert_int_equal(t->rank[0].left_out.in_fragment_ns, 4000000);
    assert_int_equal(t->rank[0].left_out.n_outside, 1);
    assert_int_equal(t->rank[0].left_out.outside_ns, 300000);
    assert_int_equal(t->rank[0].mean.duration_ns, 10000000);
    tandem_torch_close(t);
}

/* A copy for the next step on a stream of its own, while this one computes. */
static void work_beside_the_step_before_is_said(void **state)
{
    kineto k;
    kineto_open(&k, "");
    const double device_us_free = write_ahead(&k, 1, 10, 1000, 0);
    kineto_launch(&k, 42, 3005);
    kineto_slice(&k, "gpu_memcpy", "Memcpy HtoD", 9, 3100, 500, "\"correlation\": 42");
    (void)write_ahead(&k, 2, 10, 3000, device_us_free);
    tandem_torch_summary *const t = kineto_read(&k);
    const tandem_torch_step *const step = &t->rank[0].step[1];
    assert_int_equal(t->rank[0].step[0].duration_ns, 10000000);
    assert_int_equal(step->duration_ns, 10000000);
    assert_int_equal(step->compute_ns, 10500000);
    assert_int_equal(step->early_ns, 500000);
    assert_int_equal(step->idle_ns, 0);
    tandem_torch_close(t);
}

/* Three steps of 10 ms; then one of which 40 us are left, or half of its kernels. */
static void a_fragment_is_no_step(void **state)
{
    for (int kind = 0; kind < 4; kind++) { /* none, empty, half, at the beginning */
        kineto k;
        kineto_open(&k, "");
        if (kind == 3) kineto_step(&k, 0, -3000, 3000);
        if (kind == 3) kineto_kernel(&k, "gemm", 7, 1, -2000, 1000);
        for (int s = 0; s < 3; s++) {
            kineto_step(&k, s + 1, 10000 * s, 10000);
            kineto_op(&k, "aten::mm", 10000 * s + 10, 9000);
            kineto_kernel(&k, "gemm", 7, 100 + s, 10000 * s + 500, 4000);
            kineto_kernel(&k, "gemm", 7, 200 + s, 10000 * s + 4500, 4000);
        }
        if (kind == 1) kineto_step(&k, 4, 30000, 40);
        if (kind == 2) kineto_step(&k, 4, 30000, 6000);
        if (kind == 2) kineto_kernel(&k, "gemm", 7, 300, 30500, 4000);
        tandem_torch_summary *const t = kineto_read(&k);
        assert_int_equal(t->rank[0].n_step, 3);
        assert_int_equal(t->rank[0].mean.duration_ns / 1000, 10000);
        assert_int_equal(t->rank[0].mean.compute_ns / 1000, 8000);
        assert_int_equal(t->rank[0].n_fragment, kind != 0);
        if (kind == 1) assert_int_equal(t->rank[0].fragment[0].duration_ns, 40000);
        assert_int_equal(t->rank[0].left_out.n_in_fragment, kind >= 2);
        assert_int_equal(t->rank[0].left_out.in_fragment_ns, kind == 2 ? 4000000 : kind == 3 ? 1000000 : 0);
        tandem_torch_close(t);
    }
}

/* Steps differ for good reasons: a longer one, fewer kernels by a fifth; a step beside a small one. */
static void different_steps_are_no_fragments(void **state)
{
    kineto k;
    kineto_open(&k, "");
    for (int s = 0; s < 3; s++) {
        const int n = s == 2 ? 4 : 5;
        kineto_step(&k, s, 1000 * s, 400 + 200 * s);
        for (int i = 0; i < n; i++) kineto_kernel(&k, "k", 7, 0, 1000 * s + 20 * i, 10);
    }
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].n_step, 3);
    assert_int_equal(t->rank[0].n_fragment, 0);
    assert_int_equal(t->rank[0].mean.duration_ns / 1000, 600);
    tandem_torch_close(t);
    kineto_open(&k, "");
    kineto_step(&k, 1, 0, 100);
    kineto_op(&k, "a", 10, 5);
    kineto_op(&k, "a", 20, 5);
    kineto_op(&k, "a", 30, 5);
    kineto_step(&k, 2, 100, 90); /* as long, with a third of the operators */
    kineto_op(&k, "a", 110, 5);
    tandem_torch_summary *const two = kineto_read(&k);
    assert_int_equal(two->rank[0].n_step, 2);
    tandem_torch_close(two);
}

/* What the device still does of what was launched before the recording is of no step. */
static void work_from_before_the_recording_is_of_no_step(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_kernel(&k, "old", 7, 900, 1100, 3000);
    kineto_launch(&k, 42, 1005);
    kineto_slice(&k, "gpu_memcpy", "Memcpy HtoD", 9, 4000, 50, "\"correlation\": 42");
    (void)write_ahead(&k, 1, 10, 1000, 4100);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].left_out.n_outside, 1);
    assert_int_equal(t->rank[0].left_out.outside_ns, 3000000);
    assert_int_equal(t->rank[0].step[0].duration_ns, 10000000);
    assert_int_equal(t->rank[0].step[0].compute_ns, 10050000);
    assert_int_equal(t->rank[0].step[0].early_ns, 50000);
    tandem_torch_close(t);
}

/* Kernels without a launch may be of the step before: they do not say when the first step begins. */
static void kernels_without_launch_begin_no_step(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_step(&k, 1, 0, 1000);
    kineto_kernel(&k, "k", 7, 0, 10, 10);
    kineto_kernel(&k, "k", 7, 0, 950, 100);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].step[0].duration_ns, 1000000);
    assert_int_equal(t->rank[0].step[0].compute_ns, 110000);
    assert_int_equal(t->rank[0].step[0].early_ns, 10000);
    tandem_torch_close(t);
}

/* --- Traces of many ages -------------------------------------------------------------------------------- */

static void numbers_in_quotes_are_read(void **state)
{
    kineto k;
    kineto_open(&k, "\"baseTimeNanoseconds\": 1719853884000000000, \"displayTimeUnit\": \"ms\", ");
    kineto_text(&k, "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": \"12\", \"tid\": "
                    "\"13\", \"ts\": \"100.500\", \"dur\": \"20.25\", \"args\": {\"External id\": \"4\"}}");
    kineto_text(&k, "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"tid\": 13, "
                    "\"pid\": 12, \"ts\": 105, \"dur\": 1, \"args\": {\"correlation\": \"8\"}}");
    kineto_text(&k, "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": \"stream "
                    "7\", \"ts\": 110, \"dur\": 5.5, \"args\": {\"correlation\": 8}}");
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(kineto_row(t, "aten::mm", TANDEM_TORCH_FORWARD)->cost.total_ns, 20250);
    assert_int_equal(kineto_row(t, "aten::mm", TANDEM_TORCH_FORWARD)->cost.device_ns, 5500);
    tandem_torch_close(t);
}

static void what_is_not_read_is_counted(void **state)
{
    kineto k;
    kineto_open(&k, "");
    kineto_step(&k, 1, 0, 100);
    kineto_op(&k, "aten::mm", 10, 20);
    kineto_op(&k, "aten::add", 150, 20); /* after the step */
    kineto_slice(&k, "hpu_op", "gaudi gemm", 3, 10, 40, "");
    kineto_slice(&k, "mtia_ccp_events", "x", 3, 10, 2, "");
    kineto_slice(&k, "hpu_op", "gaudi gemm", 3, 60, 10, "");
    kineto_text(&k, "{\"ph\": \"X\", \"name\": \"k\", \"pid\": \"XLA functions\", \"tid\": 1, \"ts\": 1, "
                    "\"dur\": 3}");
    kineto_text(&k,
                "{\"ph\": \"B\", \"cat\": \"cpu_op\", \"name\": \"k\", \"pid\": 1, \"tid\": 1, \"ts\": 1}");
    kineto_text(&k,
                "{\"ph\": \"E\", \"cat\": \"cpu_op\", \"name\": \"k\", \"pid\": 1, \"tid\": 1, \"ts\": 2}");
    kineto_text(&k,
                "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 1, \"tid\": 1, \"ts\": 2}");
    kineto_text(&k, "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"k\", \"ts\": null, \"dur\": null}");
    for (int i = 0; i < 3; i++)
        kineto_slice(&k, (const char *[]){"python_function", "cuda_sync", "gpu_user_annotation"}[i],
                     "ProfilerStep#1", 1, 0, 100, "");
    tandem_torch_summary *const t = kineto_read(&k);
    const tandem_torch_left_out *const out = &t->rank[0].left_out;
    assert_int_equal(out->n_unknown, 4);
    assert_int_equal(out->unknown_ns, 55000);
    assert_string_equal(out->unknown, "'hpu_op', 'mtia_ccp_events', 'XLA functions'");
    assert_int_equal(out->n_pair, 2);
    assert_int_equal(t->rank[0].n_incomplete, 2);
    assert_int_equal(out->n_call_outside, 1);
    assert_int_equal(out->call_outside_ns, 20000);
    assert_int_equal(t->rank[0].n_step, 1); /* the annotation of the device is no second step */
    assert_int_equal(kineto_row(t, "aten::add", TANDEM_TORCH_FORWARD)->cost.step_self_ns, 0);
    assert_int_equal(kineto_row(t, "aten::mm", TANDEM_TORCH_FORWARD)->cost.step_self_ns, 20000);
    tandem_torch_close(t);
}

/* Beyond the limit kernels are counted, and memory does not follow. */
static void kernels_beyond_the_limit_are_counted(void **state)
{
    enum { LIMIT = 1 << 21, BEYOND = 5 };
    static const char one[] = ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"dur\":1}";
    kineto k;
    kineto_open(&k, "");
    kineto_kernel(&k, "k", 7, 0, 1, 1);
    for (int i = 1; i < LIMIT + BEYOND; i++)
        assert_int_equal(fwrite(one, 1, sizeof one - 1, k.file), sizeof one - 1);
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].n_kernel, LIMIT);
    assert_int_equal(t->rank[0].left_out.n_beyond, BEYOND);
    assert_int_equal(t->rank[0].left_out.beyond_ns, 1000 * BEYOND);
    tandem_torch_close(t);
}

/* Some versions write a step both as an operator and as an annotation. */
static void a_step_that_is_written_twice_is_one(void **state)
{
    kineto k;
    kineto_open(&k, "");
    for (int s = 0; s < 2; s++) {
        kineto_step(&k, s, 100 * s, 99);
        kineto_slice(&k, "cpu_op", s ? "ProfilerStep#1" : "ProfilerStep#0", 1, 100 * s + 1, 98, "");
        kineto_op(&k, "a", 100 * s + 10, 20);
    }
    tandem_torch_summary *const t = kineto_read(&k);
    assert_int_equal(t->rank[0].n_step, 2);
    assert_int_equal(t->rank[0].mean.duration_ns, 99000);
    tandem_torch_close(t);
}

/* --- Collectives of different sizes --------------------------------------------------------------------- */

static void kineto_collective(kineto *k, const char *operation, int sequence, int n_element, double ts,
                              double dur)
{
    char args[300], number[24] = "";
    if (sequence >= 0) (void)snprintf(number, sizeof number, ", \"Seq\": %d", sequence);
    (void)snprintf(
        args, sizeof args,
        "\"Collective name\": \"%s\", \"In msg nelems\": %d, \"Out msg nelems\": 7, \"Group size\": "
        "2, \"dtype\": \"Float\", \"Process Group Name\": \"0\", \"Process Group Ranks\": \"[0, "
        "1]\"%s",
        operation, n_element, number);
    kineto_slice(k, "kernel", "ncclDevKernel_SendRecv", 8, ts, dur, args);
}

static tandem_torch_summary *read_two(kineto *a, kineto *b)
{
    char path[2][64] = {"/tmp/tandem_launches_XXXXXX", "/tmp/tandem_launches_XXXXXX"};
    kineto *const of[] = {a, b};
    const char *const paths[] = {path[0], path[1]};
    tandem_torch_summary *torch = NULL;
    tandem_error error = {0};
    for (int i = 0; i < 2; i++) {
        kineto_close(of[i]);
        const int file = mkstemp(path[i]);
        assert_true(file >= 0);
        assert_int_equal(write(file, of[i]->text, of[i]->n), of[i]->n);
        assert_int_equal(close(file), 0);
        free(of[i]->text);
    }
    const tandem_status status = tandem_torch_read(&torch, paths, 2, &error);
    for (int i = 0; i < 2; i++) (void)unlink(path[i]);
    require_ok(status, &error);
    return torch;
}

static void open_two(kineto *two)
{
    for (int rank = 0; rank < 2; rank++) {
        kineto_open(&two[rank],
                    rank ? "\"distributedInfo\": {\"rank\": 1}, " : "\"distributedInfo\": {\"rank\": 0}, ");
        kineto_step(&two[rank], 1, 0, 100000);
    }
}

static void sizes_do_not_distinguish_an_all_to_all(void **state)
{
    for (int has_sequence = 0; has_sequence < 2; has_sequence++) {
        kineto two[2];
        open_two(two);
        kineto_collective(&two[0], "all_to_allv", has_sequence ? 3 : -1, 1000, 4100, 3000);
        kineto_collective(&two[1], "all_to_allv", has_sequence ? 3 : -1, 1700, 6100, 1000);
        tandem_torch_summary *const t = read_two(&two[0], &two[1]);
        assert_int_equal(t->n_joined, 1);
        assert_int_equal(t->n_by_order, !has_sequence);
        assert_int_equal(t->rank[0].late_ns, 0);
        assert_int_equal(t->rank[1].late_ns, 2000000);
        assert_int_equal(t->rank[0].wait_ns, 2000000);
        assert_int_equal(t->slowest, 1);
        tandem_torch_close(t);
    }
}

static void sequence_numbers_join_collectives(void **state)
{
    kineto two[2];
    open_two(two);
    kineto_collective(&two[0], "all_to_allv", 0, 1000, 1000, 5000);
    kineto_collective(&two[0], "all_to_allv", 1, 1700, 50000, 2000);
    kineto_collective(&two[1], "all_to_allv", 0, 1700, 5000, 1000);
    kineto_collective(&two[1], "all_to_allv", 1, 1000, 43000, 9000);
    tandem_torch_summary *const t = read_two(&two[0], &two[1]);
    assert_int_equal(t->rank[0].late_ns, 7000000);
    assert_int_equal(t->rank[1].late_ns, 4000000);
    assert_int_equal(t->n_collective, 1);
    assert_int_equal(t->collective[0].n, 2);
    tandem_torch_close(t);
}

/* Recordings that begin at another collective: the numbers say which belong together. */
static void recordings_that_begin_apart_are_joined(void **state)
{
    kineto two[2];
    open_two(two);
    for (int i = 0; i < 4; i++) kineto_collective(&two[0], "allreduce", i, 64, 1000 * i, 100 + i);
    for (int i = 1; i < 5; i++) kineto_collective(&two[1], "allreduce", i, 64, 1000 * i, 50);
    tandem_torch_summary *const t = read_two(&two[0], &two[1]);
    assert_int_equal(t->n_joined, 3);
    assert_int_equal(t->rank[0].n_unjoined, 1);
    assert_int_equal(t->rank[1].n_unjoined, 1);
    assert_int_equal(t->rank[1].late_ns, 51000 + 52000 + 53000);
    assert_int_equal(t->rank[0].late_ns, 0);
    tandem_torch_close(t);
}

/* Collectives of a device whose host runs ahead belong to the step that launched them. */
static void collectives_belong_to_the_step_that_launched_them(void **state)
{
    kineto two[2];
    for (int rank = 0; rank < 2; rank++) {
        kineto_open(&two[rank],
                    rank ? "\"distributedInfo\": {\"rank\": 1}, " : "\"distributedInfo\": {\"rank\": 0}, ");
        for (int s = 0; s < 2; s++) {
            kineto_step(&two[rank], s + 1, 1000 * s, 1000);
            kineto_launch(&two[rank], 10 + s, 1000 * s + 100);
            char args[200];
            (void)snprintf(args, sizeof args,
                           "\"Collective name\": \"all_to_all\", \"In msg nelems\": %d, \"correlation\": %d",
                           5 + rank, 10 + s);
            kineto_slice(&two[rank], "kernel", "ncclDevKernel_SendRecv", 8, 5000 + 3000 * s,
                         s ? 300 : 200 + rank, args);
        }
    }
    tandem_torch_summary *const t = read_two(&two[0], &two[1]);
    assert_int_equal(t->n_joined, 2);
    assert_int_equal(t->rank[0].n_unjoined + t->rank[1].n_unjoined, 0);
    assert_int_equal(t->rank[0].left_out.n_collective_outside, 0);
    assert_int_equal(t->rank[0].late_ns, 500); /* 1 us in one of two steps */
    tandem_torch_close(t);
}

/* --- Files of another kind ------------------------------------------------------------------------------ */

static void whole_files_of_another_kind_are_named(void **state)
{
    static const struct {
        const char *text, *word, *more;
    } cases[] = {
        {"{\"schema\": \"1.0.2-chakra.0.0.4\", \"pid\": 1, \"nodes\": [{\"id\": 1}], \"finish_ts\": 2}",
         "execution trace of PyTorch", "torch.profiler"},
        {"{\"schema\": \"tandem.plan/1\", \"model\": \"mlp\"}", "a file of tandem, tandem.plan/1", "'model'"},
        {"{\"name\": \"x\", \"version\": \"1.0\", \"dependencies\": {}}", "a JSON object of another kind",
         "'name', 'version', 'dependencies'"},
        {"{}", "an empty JSON object", "traceEvents"},
        {"{\"a\": 1}\n{\"b\": 2}\n", "a JSON object of another kind", "'a'"},
        {"[1, 2]", "expected '{', an event", "'1'"},
        {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"toplevel\", \"name\": \"T\", \"ts\": 1, \"dur\": 2, "
         "\"pid\": 1, \"tid\": 1}]}",
         "a trace of another program", "'toplevel'"},
        {"[{\"ph\": \"X\", \"name\": \"main\", \"ts\": 1, \"dur\": 2, \"pid\": \"my program\", \"tid\": 1}]",
         "a trace of another program", "'my program'"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_torch_summary *torch = NULL;
        tandem_error error = {0};
        assert_int_equal(tandem_torch_parse(&torch, cases[i].text, strlen(cases[i].text), "x.json", &error),
                         TANDEM_MALFORMED);
        if (!strstr(error.text, cases[i].word) || !strstr(error.text, cases[i].more) ||
            strstr(error.text, "cut off"))
            fail_msg("case %zu: %s", i, error.text);
        for (size_t n = 1; n < strlen(cases[i].text) && cases[i].text[0] == '{' && i < 4; n++) {
            assert_int_equal(tandem_torch_parse(&torch, cases[i].text, n, "x.json", &error),
                             TANDEM_MALFORMED);
            if (!strstr(error.text, "cut off")) fail_msg("case %zu, %zu bytes: %s", i, n, error.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_decide_not_external_ids),
        cmocka_unit_test(every_kind_of_launch_is_joined),
        cmocka_unit_test(kernels_without_operator_are_counted),
        cmocka_unit_test(ids_count_where_launches_are_missing),
        cmocka_unit_test(numbers_that_repeat_are_distinguished_by_time),
        cmocka_unit_test(launches_far_after_operators_are_joined),
        cmocka_unit_test(copies_to_a_device_are_no_casts),
        cmocka_unit_test(launches_of_the_backward_pass_are_distinguished),
        cmocka_unit_test(a_step_is_what_it_launched),
        cmocka_unit_test(the_host_waits_at_last),
        cmocka_unit_test(work_beside_the_step_before_is_said),
        cmocka_unit_test(a_fragment_is_no_step),
        cmocka_unit_test(different_steps_are_no_fragments),
        cmocka_unit_test(work_from_before_the_recording_is_of_no_step),
        cmocka_unit_test(kernels_without_launch_begin_no_step),
        cmocka_unit_test(numbers_in_quotes_are_read),
        cmocka_unit_test(what_is_not_read_is_counted),
        cmocka_unit_test(a_step_that_is_written_twice_is_one),
        cmocka_unit_test(kernels_beyond_the_limit_are_counted),
        cmocka_unit_test(sizes_do_not_distinguish_an_all_to_all),
        cmocka_unit_test(sequence_numbers_join_collectives),
        cmocka_unit_test(recordings_that_begin_apart_are_joined),
        cmocka_unit_test(collectives_belong_to_the_step_that_launched_them),
        cmocka_unit_test(whole_files_of_another_kind_are_named),
    };
    return cmocka_run_group_tests_name("torch_launches", tests, NULL, NULL);
}
