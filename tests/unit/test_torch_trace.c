/* folder: trace */
/* Traces of the PyTorch profiler: written here, with times worked out by hand, in good order and in all kinds
 * of bad. */
#include <unistd.h>
#include <zlib.h>

#include "tandem/advanced/torch_trace.h"
#include "tests/support/tandem_test.h"
#include "trace/interval_set.h"

/* --- Writing -------------------------------------------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t n, capacity;
    int n_event;
} writer;

static void add_torch_trace(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_torch_trace(writer *w, const char *format, ...)
{
    char *piece = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int n = vasprintf(&piece, format, arguments);
    va_end(arguments);
    assert_true(n >= 0);
    if (w->n + (size_t)n + 1 > w->capacity) {
        w->capacity = 2 * (w->n + (size_t)n + 1);
        w->text = realloc(w->text, w->capacity);
        assert_non_null(w->text);
    }
    memcpy(w->text + w->n, piece, (size_t)n + 1);
    w->n += (size_t)n;
    free(piece);
}

static void begin_torch_trace(writer *w, int rank)
{
    *w = (writer){0};
    add_torch_trace(w,
                    "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, "
                    "\"world_size\": 2}, \"traceEvents\": [",
                    rank);
}

/* Times in us; args: what is within the braces. */
static void slice_torch_trace(writer *w, const char *category, const char *name, int tid, double start,
                              double duration, const char *args)
{
    add_torch_trace(
        w,
        "%s\n  {\n    \"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d,\n    "
        "\"ts\": %.3f, \"dur\": %.3f,\n    \"args\": {\n      %s\n    }\n  }",
        w->n_event++ ? "," : "", category, name, tid, start, duration, args);
}

static void op(writer *w, const char *name, double start, double duration)
{
    slice_torch_trace(w, "cpu_op", name, 1, start, duration,
                      "\"Input Dims\": [[4, 8], []], \"Input type\": [\"float\", "
                      "\"\"]");
}

static void step(writer *w, int number, double start, double duration)
{
    char name[40];
    (void)snprintf(name, sizeof name, "ProfilerStep#%d", number);
    slice_torch_trace(w, "user_annotation", name, 1, start, duration, "\"External id\": 1");
}

static void end_torch_trace(writer *w) { add_torch_trace(w, "\n  ], \"traceName\": \"x.json\"}\n"); }

static tandem_torch_summary *parse_torch_trace(const writer *w)
{
    tandem_torch_summary *torch = NULL;
    tandem_error error = {0};
    require_ok(tandem_torch_parse(&torch, w->text, w->n, "trace.json", &error), &error);
    return torch;
}

static void refused_torch_trace(const void *text, size_t n, const char *word, const char *more)
{
    tandem_torch_summary *const untouched = (tandem_torch_summary *)(uintptr_t)16, *torch = untouched;
    tandem_error error = {0};
    assert_int_equal(tandem_torch_parse(&torch, text, n, "trace.json", &error), TANDEM_MALFORMED);
    assert_ptr_equal(torch, untouched);
    if (!strstr(error.text, "trace.json") || !strstr(error.text, word) || !strstr(error.text, more))
        fail_msg("'%s' and '%s' are not said: %s", word, more, error.text);
}

static const tandem_torch_operator *row_of(const tandem_torch_summary *torch, const char *name,
                                           tandem_torch_pass pass)
{
    for (int k = 0; k < torch->n_operator; k++)
        if (strcmp(torch->operators[k].name, name) == 0 && torch->operators[k].pass == pass)
            return &torch->operators[k];
    fail_msg("no row '%s' in %s", name, tandem_torch_pass_name(pass));
    return NULL;
}

static void expect_cost(const tandem_torch_summary *torch, const char *name, tandem_torch_pass pass,
                        int64_t calls, int64_t total_ns, int64_t self_ns)
{
    const tandem_torch_cost *const cost = &row_of(torch, name, pass)->cost;
    if (cost->calls != calls || cost->total_ns != total_ns || cost->self_ns != self_ns)
        fail_msg("%s: %lld calls, %lld ns, itself %lld ns", name, (long long)cost->calls,
                 (long long)cost->total_ns, (long long)cost->self_ns);
}

/* --- One rank ------------------------------------------------------------------------------------------- */

/* Events of a step on the host, as {name, category, start, duration}. */
static const struct {
    const char *name, *category, *types;
    int tid;
    double start, duration;
} host_step[] = {
    {"ProfilerStep#5", "user_annotation", "", 1, 0, 100},
    {"aten::linear", "cpu_op", "float,float", 1, 10, 30},
    {"aten::addmm", "cpu_op", "float,float", 1, 15, 20},
    {"aten::copy_", "cpu_op", "c10::BFloat16,float", 1, 20, 5},
    {"aten::copy_", "cpu_op", "float,float", 1, 28, 2},
    {"DistributedDataParallel.forward", "user_annotation", "", 1, 41, 5},
    {"aten::to", "cpu_op", "float", 1, 42, 3},
    {"autograd::engine::evaluate_function: MmBackward0", "cpu_op", "", 2, 50, 30},
    {"aten::mm", "cpu_op", "float,float", 2, 55, 20},
    {"gloo:all_reduce", "user_annotation", "", 3, 70, 18},
    {"Optimizer.step#SGD.step", "user_annotation", "", 1, 85, 10},
    {"aten::add_", "cpu_op", "float,float", 1, 86, 4},
    {"cudaLaunchKernel", "cuda_runtime", "", 1, 87, 1},
    {"train.py(12): main", "python_function", "", 1, 0, 99},
};

static void write_host_step(writer *w, int backwards)
{
    begin_torch_trace(w, 0);
    for (size_t k = 0; k < N_OF(host_step); k++) {
        const size_t at = backwards ? N_OF(host_step) - 1 - k : k;
        char args[100];
        const char *const comma = strchr(host_step[at].types, ',');
        const int n = comma ? (int)(comma - host_step[at].types) : (int)strlen(host_step[at].types);
        (void)snprintf(args, sizeof args, "\"Input type\": [\"%.*s\"%s%s%s]", n, host_step[at].types,
                       comma ? ", \"" : "", comma ? comma + 1 : "", comma ? "\"" : "");
        slice_torch_trace(w, host_step[at].category, host_step[at].name, host_step[at].tid,
                          host_step[at].start, host_step[at].duration, args);
    }
    end_torch_trace(w);
}

static void a_step_on_the_host(void **state)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        writer w;
        write_host_step(&w, backwards);
        tandem_torch_summary *const t = parse_torch_trace(&w);
        assert_int_equal(t->n_rank, 1);
        assert_int_equal(t->rank[0].is_device, 0);
        assert_int_equal(t->rank[0].n_event, N_OF(host_step));
        assert_int_equal(t->rank[0].n_step, 1);
        const tandem_torch_step *const s = &t->rank[0].step[0];
        assert_int_equal(s->number, 5);
        assert_int_equal(s->duration_ns, 100000);
        assert_int_equal(s->compute_ns, 30000 + 3000 + 30000 + 4000);
        assert_int_equal(s->comm_ns, 18000);
        assert_int_equal(s->exposed_ns, 8000 - 2000); /* 80 … 88, less add_ from 86 on */
        assert_int_equal(s->idle_ns, 100000 - 67000 - 6000);
        expect_cost(t, "aten::linear", TANDEM_TORCH_FORWARD, 1, 30000, 10000);
        expect_cost(t, "aten::addmm", TANDEM_TORCH_FORWARD, 1, 20000, 13000);
        expect_cost(t, "aten::to", TANDEM_TORCH_FORWARD, 1, 3000, 3000);
        expect_cost(t, "aten::mm", TANDEM_TORCH_BACKWARD, 1, 20000, 20000);
        expect_cost(t, "autograd::engine::evaluate_function: MmBackward0", TANDEM_TORCH_BACKWARD, 1, 30000,
                    10000);
        expect_cost(t, "aten::add_", TANDEM_TORCH_OPTIMIZER, 1, 4000, 4000);
        int n_cast = 0, n_copy = 0;
        for (int k = 0; k < t->n_operator; k++) {
            n_cast += t->operators[k].is_cast;
            n_copy += strcmp(t->operators[k].name, "aten::copy_") == 0;
            assert_true(k == 0 || t->operators[k].cost.self_ns <= t->operators[k - 1].cost.self_ns);
        }
        assert_int_equal(n_copy, 2); /* one signature each */
        assert_int_equal(n_cast, 2); /* to, and the copy_ between two types */
        assert_string_equal(row_of(t, "aten::add_", TANDEM_TORCH_OPTIMIZER)->signature, "[float,float]");
        tandem_torch_close(t);
        free(w.text);
    }
}

static void a_note_within_an_operator_is_no_operator(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    op(&w, "outer", 0, 100);
    slice_torch_trace(&w, "user_annotation", "note", 1, 10, 50, "");
    op(&w, "inner", 20, 30);
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    expect_cost(t, "outer", TANDEM_TORCH_FORWARD, 1, 100000, 70000);
    expect_cost(t, "inner", TANDEM_TORCH_FORWARD, 1, 30000, 30000);
    assert_int_equal(t->rank[0].step[0].number, -1); /* no steps: one */
    assert_int_equal(t->rank[0].step[0].duration_ns, 100000);
    assert_int_equal(t->rank[0].step[0].compute_ns, 100000);
    tandem_torch_close(t);
    free(w.text);
}

static void slices_that_begin_together_nest(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    op(&w, "inner", 0, 30); /* written first */
    op(&w, "outer", 0, 100);
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    expect_cost(t, "outer", TANDEM_TORCH_FORWARD, 1, 100000, 70000);
    expect_cost(t, "inner", TANDEM_TORCH_FORWARD, 1, 30000, 30000);
    tandem_torch_close(t);
    free(w.text);
}

static void kernels_belong_to_operators(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    step(&w, 1, 0, 100);
    slice_torch_trace(&w, "cpu_op", "aten::mm", 1, 1, 5, "\"External id\": 11, \"Input Dims\": [[4, 4]]");
    slice_torch_trace(&w, "cpu_op", "c10d::allreduce_", 1, 8, 1, "\"External id\": 12");
    slice_torch_trace(&w, "kernel", "gemm<4>", 7, 10, 40, "\"External id\": 11, \"stream\": 7");
    slice_torch_trace(&w, "kernel", "gemm<4>", 7, 50, 10, "\"stream\": 7, \"External id\": 11");
    slice_torch_trace(&w, "kernel", "gemm<4>", 7, 60, 5, "\"External id\": 999");
    slice_torch_trace(&w, "gpu_memcpy", "Memcpy HtoD", 9, 62, 8, "\"bytes\": 12");
    slice_torch_trace(&w, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 20, 55, 35,
                      "\"External id\": 12, \"In msg nelems\": 64");
    slice_torch_trace(&w, "gpu_user_annotation", "ProfilerStep#1", 7, 10, 80, "");
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    const tandem_torch_step *const s = &t->rank[0].step[0];
    assert_int_equal(t->rank[0].is_device, 1);
    assert_int_equal(s->compute_ns, 60000); /* 10 … 70 */
    assert_int_equal(s->comm_ns, 35000);
    assert_int_equal(s->exposed_ns, 20000);
    assert_int_equal(s->idle_ns, 20000);
    assert_int_equal(row_of(t, "aten::mm", TANDEM_TORCH_FORWARD)->cost.device_ns, 50000);
    assert_int_equal(row_of(t, "c10d::allreduce_", TANDEM_TORCH_FORWARD)->cost.device_ns, 35000);
    assert_int_equal(row_of(t, "gemm<4>", TANDEM_TORCH_UNKNOWN)->cost.device_ns, 5000);
    assert_int_equal(row_of(t, "Memcpy HtoD", TANDEM_TORCH_UNKNOWN)->cost.device_ns, 8000);
    assert_string_equal(t->operators[0].name, "aten::mm");
    tandem_torch_close(t);
    free(w.text);
}

static void many_kernels_find_their_operators(void **state)
{
    enum { N = 5000 };
    writer w;
    begin_torch_trace(&w, 0);
    for (int k = 0; k < N; k++) {
        char args[60];
        (void)snprintf(args, sizeof args, "\"External id\": %d", 7 * k);
        slice_torch_trace(&w, "cpu_op", k % 2 ? "odd" : "even", 1, 10.0 * k, 5, args);
    }
    for (int k = 0; k < N; k++) {
        char args[60];
        (void)snprintf(args, sizeof args, "\"External id\": %d", 7 * k);
        slice_torch_trace(&w, "kernel", "k", 7, 10.0 * k + 3, k % 2 ? 3 : 2, args);
    }
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(t->n_operator, 2);
    assert_int_equal(row_of(t, "odd", TANDEM_TORCH_FORWARD)->cost.device_ns, 3000 * N / 2);
    assert_int_equal(row_of(t, "even", TANDEM_TORCH_FORWARD)->cost.device_ns, 2000 * N / 2);
    tandem_torch_close(t);
    free(w.text);
}

static void old_traces_are_read(void **state)
{
    static const char list[] =
        "[{\"name\": \"aten::add\", \"ph\": \"X\", \"ts\": 1, \"dur\": 4, \"tid\": 1, \"pid\": \"CPU "
        "functions\", \"args\": {}},"
        " {\"name\": \"aten::mul\", \"ph\": \"X\", \"ts\": 2, \"dur\": 2, \"tid\": \"1\", \"pid\": \"CPU "
        "functions\"},"
        " {\"name\": \"add_kernel\", \"ph\": \"X\", \"ts\": 3, \"dur\": 7, \"tid\": \"stream 7\", \"pid\": "
        "\"CUDA functions\", \"args\": []}]";
    tandem_torch_summary *t = NULL;
    assert_int_equal(tandem_torch_parse(&t, list, sizeof list - 1, "list.json", NULL), TANDEM_OK);
    assert_int_equal(t->rank[0].is_device, 1);
    assert_int_equal(t->rank[0].step[0].duration_ns, 9000);
    assert_int_equal(t->rank[0].step[0].compute_ns, 7000);
    expect_cost(t, "aten::add", TANDEM_TORCH_FORWARD, 1, 4000, 2000); /* tid 1 and "1" are one thread */
    tandem_torch_close(t);
}

/* --- Bad order ------------------------------------------------------------------------------------------ */

static void missing_fields_and_overlaps_are_counted(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    op(&w, "a", 0, 10);
    op(&w, "b", 5, 10); /* ends after a: 5 us of it are within */
    add_torch_trace(&w, ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"no "
                        "dur\",\"ts\":1},{\"ph\":\"X\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":1},"
                        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"no "
                        "ts\",\"dur\":1},{},{\"ph\":\"i\",\"name\":\"Iteration Start\",\"ts\":0}");
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(t->rank[0].n_incomplete, 3);
    assert_int_equal(t->rank[0].n_overlapping, 1);
    expect_cost(t, "a", TANDEM_TORCH_FORWARD, 1, 10000, 5000);
    expect_cost(t, "b", TANDEM_TORCH_FORWARD, 1, 10000, 10000);
    tandem_torch_close(t);
    free(w.text);
}

/* Clocks that are set while they measure. */
static void small_negative_durations_are_0_and_counted_torch_trace(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    op(&w, "a", 0, 10);
    add_torch_trace(&w, ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"b\",\"ts\":2,\"dur\":-26.9},"
                        "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"b\",\"ts\":3,\"dur\":-1e4}");
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(t->rank[0].n_negative, 2);
    assert_int_equal(t->rank[0].n_overlapping, 0);
    expect_cost(t, "a", TANDEM_TORCH_FORWARD, 1, 10000, 10000);
    expect_cost(t, "b", TANDEM_TORCH_FORWARD, 2, 0, 0);
    tandem_torch_close(t);
    free(w.text);
}

static void names_may_hold_anything(void **state)
{
    writer w;
    begin_torch_trace(&w, 0);
    op(&w, "caf\\u00e9 \\ud83d\\ude00 \\\"x\\\" \\\\ \\n \\ud800 \\q \x80 \x1b[31m", 0, 1);
    slice_torch_trace(&w, "cpu_op", "nan", 1, 2, 1,
                      "\"bandwidth\": NaN, \"x\": -Infinity, \"broken \x01\x02\": [[[}]], \"External id\": "
                      "99999999999999999999999");
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    (void)row_of(t, "caf\xc3\xa9 \xf0\x9f\x98\x80 \"x\" \\ ? \xef\xbf\xbd q ? ?[31m", TANDEM_TORCH_FORWARD);
    (void)row_of(t, "nan", TANDEM_TORCH_FORWARD);
    tandem_torch_close(t);
    free(w.text);
}

static void long_names_are_distinguished(void **state)
{
    writer w;
    char name[600];
    begin_torch_trace(&w, 0);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    op(&w, name, 0, 1);
    name[sizeof name - 2] = 'y';
    op(&w, name, 2, 1);
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(t->n_operator, 2);
    tandem_torch_close(t);
    free(w.text);
}

static void deep_nesting_is_survived(void **state)
{
    enum { DEPTH = 300000, SLICES = 20000 };
    writer w;
    begin_torch_trace(&w, 0);
    add_torch_trace(&w,
                    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"deep\",\"ts\":0,\"dur\":1,\"args\":{\"x\":");
    w.n_event++;
    char *const brackets = malloc(2 * DEPTH + 1);
    assert_non_null(brackets);
    memset(brackets, '[', DEPTH);
    memset(brackets + DEPTH, ']', DEPTH);
    brackets[2 * DEPTH] = '\0';
    add_torch_trace(&w, "%s}}", brackets);
    for (int k = 0; k < SLICES; k++) op(&w, "nested", 10 + k, 2.0 * (SLICES - k));
    end_torch_trace(&w);
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(row_of(t, "nested", TANDEM_TORCH_FORWARD)->cost.calls, SLICES);
    tandem_torch_close(t);
    free(brackets);
    free(w.text);
}

static void errors_say_where(void **state)
{
    static const struct {
        const char *text, *word, *more;
    } cases[] = {
        {"", "byte 0: expected '{' or '['", "cut off"},
        {"  x", "byte 2: expected '{' or '['", "'x'"},
        {"{}", "expected a member \"traceEvents\"", "byte 2"},
        {"{\"traceEvents\": 7}", "expected '[', an array", "byte 16"},
        {"{\"traceEvents\": []}", "none of which is an operator", "0 events"},
        {"{\"traceEvents\": [{\"ph\": \"i\"}]} x", "expected the end of the text", "'x'"},
        {"{\"traceEvents\": [7]}", "expected '{', an event", "byte 17"},
        {"{\"traceEvents\": [{} {}]}", "expected ',' or ']'", "byte 20"},
        {"{\"traceEvents\": [{\"ph\" 7}]}", "':' after the name", "byte 23"},
        {"{\"traceEvents\": [{\"ph\": 7}]}", "expected a string, the phase", "byte 24"},
        {"{\"traceEvents\": [{\"ph\": \"X\" \"ts\": 7}]}", "expected ',' or '}'", "byte 28"},
        {"{\"traceEvents\": [{\"ts\": NaN}]}", "expected a number, the ts", "'N'"},
        {"{\"traceEvents\": [{\"ts\": \"7x\"}]}", "expected a number, the ts", "7x"},
        {"{\"traceEvents\": [{\"dur\": 1e5x}]}", "expected a number, the dur", "1e5x"},
        {"{\"traceEvents\": [{\"dur\": 1e300}]}", "within 73 years", "1e300"},
        {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"x\", \"ts\": 1, \"dur\": "
         "-10001}]}",
         "the event at byte 17", "from -10000 us"},
        {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"x\", \"ts\": 1, \"dur\": "
         "1e13}]}",
         "the event at byte 17", "104 days"},
        {"{\"traceEvents\": [{\"name\": \"abc", "within a string", "cut off"},
        {"{\"traceEvents\": [{\"name\": \"abc\\", "within a string", "cut off"},
        {"{\"traceEvents\": [{\"args\": {\"x\": [1, {\"y", "cut off", "begins at byte 32"},
        {"{\"traceEvents\": [{\"ph\": \"X\"},", "expected '{', an event", "end of the text"},
        {"[{\"ph\": \"X\"}", "expected ',' or ']'", "end of the text"},
        {"[{\"ph\": \"X\"},]", "expected '{', an event", "']'"},
    };
    for (size_t i = 0; i < N_OF(cases); i++)
        refused_torch_trace(cases[i].text, strlen(cases[i].text), cases[i].word, cases[i].more);
    char digits[300] = "{\"traceEvents\": [{\"ts\": ";
    const size_t n = strlen(digits);
    memset(digits + n, '7', 200);
    refused_torch_trace(digits, n + 200, "within 73 years", "byte 24");
    (void)memcpy(digits + n + 200, "}]}", 4);
    refused_torch_trace(digits, n + 203, "within 73 years", "777");
}

static void a_window_is_not_enough_for_a_name(void **state)
{
    enum { LONG = (1 << 20) + 10 };
    writer w;
    begin_torch_trace(&w, 0);
    char *const name = malloc(LONG + 1);
    assert_non_null(name);
    memset(name, 'x', LONG);
    name[LONG] = '\0';
    add_torch_trace(
        &w, "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"ts\":0,\"dur\":1,\"args\":{\"%s\":\"%s\"}}]}",
        "x", name); /* skipped: any length */
    tandem_torch_summary *const t = parse_torch_trace(&w);
    assert_int_equal(t->n_operator, 1);
    tandem_torch_close(t);
    free(w.text);
    begin_torch_trace(&w, 0);
    add_torch_trace(&w, "{\"name\":\"%s\"}]}", name);
    refused_torch_trace(w.text, w.n, "longer than 1048576 bytes", "byte");
    free(w.text);
    free(name);
}

static void compressed_traces_are_read(void **state)
{
    writer w;
    write_host_step(&w, 0);
    unsigned char *const packed = malloc(w.n + 1000);
    assert_non_null(packed);
    z_stream stream = {.next_in = (unsigned char *)w.text,
                       .avail_in = (uInt)w.n,
                       .next_out = packed,
                       .avail_out = (uInt)w.n + 1000};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    const size_t n = stream.total_out;
    (void)deflateEnd(&stream);
    tandem_torch_summary *t = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_torch_parse(&t, packed, n, "trace.json.gz", &error), TANDEM_OK);
    assert_int_equal(t->rank[0].n_event, N_OF(host_step));
    tandem_torch_close(t);
    refused_torch_trace(packed, n - 1, "cut off", "byte");
    refused_torch_trace(packed, n / 2, "cut off", "byte");
    packed[n / 2] ^= 0x10;
    t = NULL;
    assert_int_equal(tandem_torch_parse(&t, packed, n, "trace.json.gz", &error), TANDEM_MALFORMED);
    free(packed);
    free(w.text);
}

/* --- Several ranks -------------------------------------------------------------------------------------- */

typedef struct files {
    char folder[64], path[3][96];
} files;

static void write_trace_file(files *f, int k, const writer *w)
{
    char path[sizeof f->path[k]];
    (void)snprintf(path, sizeof path, "%s/rank%d.json", f->folder, k);
    memcpy(f->path[k], path, sizeof path);
    FILE *const file = fopen(f->path[k], "w");
    assert_non_null(file);
    assert_int_equal(fwrite(w->text, 1, w->n, file), w->n);
    assert_int_equal(fclose(file), 0);
}

static int make_folder_torch_trace(void **state)
{
    files *const f = calloc(1, sizeof *f);
    if (!f) return -1;
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/tandem_torch_XXXXXX");
    *state = f;
    return mkdtemp(f->folder) ? 0 : -1;
}

static int remove_folder_torch_trace(void **state)
{
    files *const f = *state;
    for (size_t k = 0; k < N_OF(f->path); k++) (void)unlink(f->path[k]);
    const int code = rmdir(f->folder);
    free(f);
    return code;
}

/* Two steps of 100 us with two all-reduces each; rank 1 computes 30 us longer before the first, and so comes
 * last to it. Clocks of the ranks are 1000 s apart. The third collective of step 2 only one rank has. */
static void write_rank(writer *w, int rank)
{
    const double late = rank == 1 ? 30 : 0;
    begin_torch_trace(w, rank);
    for (int s = 0; s < 2; s++) {
        const double at = 1e9 * rank + 100 * s;
        step(w, 7 + s, at, 100);
        op(w, "aten::mm", at, 10 + late);
        op(w, "aten::relu", at + 10 + late, 5);
        slice_torch_trace(w, "user_annotation", "gloo:all_reduce", 3, at + 15 + late, 40 - late,
                          "\"Input Dims\": "
                          "[[1000]]");
        slice_torch_trace(w, "user_annotation", "gloo:all_reduce", 3, at + 60, 20 + rank,
                          "\"Input Dims\": [[1000]]");
    }
    if (rank == 0)
        slice_torch_trace(w, "user_annotation", "gloo:broadcast", 3, 190, 5, "\"Input Dims\": [[3]]");
    end_torch_trace(w);
}

static void the_late_rank_is_found(void **state)
{
    files *const f = *state;
    for (int k = 0; k < 2; k++) { /* rank 1's file first */
        writer w;
        write_rank(&w, 1 - k);
        write_trace_file(f, k, &w);
        free(w.text);
    }
    const char *const path[] = {f->path[0], f->path[1]};
    tandem_torch_summary *t = NULL;
    tandem_error error = {0};
    require_ok(tandem_torch_read(&t, path, 2, &error), &error);
    assert_int_equal(t->n_rank, 2);
    assert_int_equal(t->rank[0].rank, 0);
    assert_string_equal(t->rank[0].path, f->path[1]);
    assert_int_equal(t->rank[1].n_step, 2);
    assert_int_equal(t->rank[1].mean.compute_ns, 45000);
    assert_int_equal(t->n_joined, 4);
    assert_int_equal(t->rank[0].n_unjoined, 1);
    /* first: 40 and 10 us; second: 20 and 21 us */
    assert_int_equal(t->rank[0].wait_ns, 30000);
    assert_int_equal(t->rank[0].late_ns, 1000);
    assert_int_equal(t->rank[0].n_last, 2);
    assert_int_equal(t->rank[1].wait_ns, 1000);
    assert_int_equal(t->rank[1].late_ns, 30000);
    assert_int_equal(t->rank[1].n_last, 2);
    assert_int_equal(t->slowest, 1);
    assert_string_equal(t->operators[t->excess].name, "aten::mm");
    assert_int_equal(t->excess_ns, 30000);
    assert_int_equal(t->n_collective, 1);
    assert_string_equal(t->collective[0].name, "all-reduce");
    assert_string_equal(t->collective[0].signature, "[[1000]]");
    assert_int_equal(t->collective[0].n, 4);
    assert_int_equal(t->collective[0].transfer_ns, 10000);
    assert_int_equal(t->collective[0].wait_ns, 62000);
    const tandem_torch_operator *const mm = row_of(t, "aten::mm", TANDEM_TORCH_FORWARD);
    assert_int_equal(mm->cost.self_ns, 100000);
    assert_int_equal(mm->rank[0].self_ns, 20000);
    assert_int_equal(mm->rank[1].self_ns, 80000);
    tandem_torch_close(t);
    const char *const twice[] = {f->path[0], f->path[0]};
    t = NULL;
    assert_int_equal(tandem_torch_read(&t, twice, 2, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "both of rank 1"));
    const char *const absent[] = {f->path[0], "/nonexistent.json"};
    assert_int_equal(tandem_torch_read(&t, absent, 2, &error), TANDEM_IO);
    assert_null(t);
}

static void groups_are_joined_apart(void **state)
{
    files *const f = *state;
    /* three ranks; 0 and 2 reduce in one group, 0 and 1 in another: same size, other members */
    static const char *const group[3][2] = {{"[0, 2]", "[0, 1]"}, {NULL, "[0, 1]"}, {"[0, 2]", NULL}};
    static const double duration[3][2] = {{10, 20}, {0, 4}, {7, 0}};
    const char *path[3];
    for (int rank = 0; rank < 3; rank++) {
        writer w;
        begin_torch_trace(&w, rank);
        step(&w, 1, 0, 100);
        slice_torch_trace(&w, "kernel", "gemm", 7, 0, 3, "");
        for (int g = 0; g < 2; g++) {
            char args[160];
            if (!group[rank][g]) continue;
            (void)snprintf(args, sizeof args,
                           "\"Collective name\": \"allreduce\", \"In msg nelems\": 64, \"Process Group "
                           "Ranks\": \"%s\", \"Process Group Name\": \"%d\"",
                           group[rank][g], g);
            slice_torch_trace(&w, "kernel", "ncclDevKernel_Generic_4(ncclDevComm*)", 20, 10 + 40 * g,
                              duration[rank][g], args);
        }
        end_torch_trace(&w);
        write_trace_file(f, rank, &w);
        path[rank] = f->path[rank];
        free(w.text);
    }
    tandem_torch_summary *t = NULL;
    tandem_error error = {0};
    require_ok(tandem_torch_read(&t, path, 3, &error), &error);
    assert_int_equal(t->n_joined, 2);
    assert_int_equal(t->n_collective, 2);
    assert_string_equal(t->collective[0].name, "all-reduce");
    assert_int_equal(t->rank[0].wait_ns, 3000 + 16000);
    assert_int_equal(t->rank[1].late_ns, 16000);
    assert_int_equal(t->rank[2].late_ns, 3000);
    assert_int_equal(t->slowest, 1);
    tandem_torch_close(t);
}

/* --- Intervals ------------------------------------------------------------------------------------------ */

static void intervals_are_united(void **state)
{
    static const tandem_interval given[] = {{50, 60}, {10, 20}, {15, 30}, {30, 31},
                                            {55, 56}, {5, 5},   {9, 3},   {100, 200}};
    tandem_interval_set a = {0}, b = {0};
    for (size_t k = 0; k < N_OF(given); k++)
        assert_int_equal(tandem_interval_set_add(&a, given[k].begin_ns, given[k].end_ns, NULL), TANDEM_OK);
    tandem_interval_set_merge(&a);
    assert_int_equal(a.n, 3); /* 10 … 31, 50 … 60, 100 … 200 */
    assert_int_equal(tandem_interval_set_covered_ns(&a, 0, 1000), 131);
    assert_int_equal(tandem_interval_set_covered_ns(&a, 30, 55), 6);
    assert_int_equal(tandem_interval_set_covered_ns(&a, 31, 50), 0);
    assert_int_equal(tandem_interval_set_add(&b, 20, 150, NULL), TANDEM_OK);
    tandem_interval_set_merge(&b);
    assert_int_equal(tandem_interval_set_common_ns(&a, &b, 0, 1000), 11 + 10 + 50);
    assert_int_equal(tandem_interval_set_common_ns(&b, &a, 25, 120), 6 + 10 + 20);
    assert_int_equal(a.filled_gap_ns, 0);
    tandem_interval_set_free(&a);
    tandem_interval_set_free(&b);
}

static void intervals_take_no_more_than_their_room(void **state)
{
    enum { N = 100000, MAX = 1024 };
    tandem_interval_set set = {.max = MAX};
    for (int64_t k = 0; k < N; k++) { /* from both ends; each 10 long, gaps of 1, every thousandth of 1001 */
        const int64_t at = k % 2 ? N - 1 - k / 2 : k / 2;
        const int64_t begin_torch_trace = 11 * at + 1000 * (at / 1000);
        assert_int_equal(tandem_interval_set_add(&set, begin_torch_trace, begin_torch_trace + 10, NULL),
                         TANDEM_OK);
        assert_true(set.capacity <= MAX);
    }
    tandem_interval_set_merge(&set);
    const int64_t busy = tandem_interval_set_covered_ns(&set, 0, INT64_MAX);
    assert_true(busy >= 10 * N && busy <= 10 * N + set.filled_gap_ns);
    assert_true(set.filled_gap_ns >= N / 2); /* small gaps went first */
    assert_true(set.filled_gap_ns < N + 1000);
    tandem_interval_set_free(&set);
}

/* Times cut to whole us: what begins where a short scope seems to end is within it yet; with parts of a us it
 * is after it. A copy within a cast is one, too. */
static void cut_times_are_seen_through(void **state)
{
    for (int is_exact = 0; is_exact < 2; is_exact++) {
        writer w;
        begin_torch_trace(&w, 0);
        slice_torch_trace(&w, "cpu_op", "autograd::engine::evaluate_function: X", 1, 10, 3, "");
        slice_torch_trace(&w, "cpu_op", "aten::add_", 1, 13, 1, "");
        slice_torch_trace(&w, "cpu_op", "aten::mul", 1, 15 + 0.5 * is_exact, 4, "");
        slice_torch_trace(&w, "cpu_op", "aten::_to_copy", 1, 20, 6, "");
        slice_torch_trace(&w, "cpu_op", "aten::copy_", 1, 22, 3, "");
        slice_torch_trace(&w, "cpu_op", "aten::copy_", 1, 30, 9, "");
        end_torch_trace(&w);
        tandem_torch_summary *const torch = parse_torch_trace(&w);
        expect_cost(torch, "aten::add_", is_exact ? TANDEM_TORCH_FORWARD : TANDEM_TORCH_BACKWARD, 1, 1000,
                    1000);
        /* 2 us past its end is after it */
        expect_cost(torch, "aten::mul", TANDEM_TORCH_FORWARD, 1, 4000, 4000);
        int n_copy = 0;
        for (int k = 0; k < torch->n_operator; k++) {
            const tandem_torch_operator *const one = &torch->operators[k];
            if (strcmp(one->name, "aten::copy_") != 0) continue;
            assert_int_equal(one->cost.self_ns, one->is_cast ? 3000 : 9000);
            n_copy++;
        }
        assert_int_equal(n_copy, 2);
        tandem_torch_close(torch);
        free(w.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_times_are_seen_through),
        cmocka_unit_test(a_step_on_the_host),
        cmocka_unit_test(a_note_within_an_operator_is_no_operator),
        cmocka_unit_test(slices_that_begin_together_nest),
        cmocka_unit_test(kernels_belong_to_operators),
        cmocka_unit_test(many_kernels_find_their_operators),
        cmocka_unit_test(old_traces_are_read),
        cmocka_unit_test(missing_fields_and_overlaps_are_counted),
        cmocka_unit_test(small_negative_durations_are_0_and_counted_torch_trace),
        cmocka_unit_test(names_may_hold_anything),
        cmocka_unit_test(long_names_are_distinguished),
        cmocka_unit_test(deep_nesting_is_survived),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(a_window_is_not_enough_for_a_name),
        cmocka_unit_test(compressed_traces_are_read),
        cmocka_unit_test_setup_teardown(the_late_rank_is_found, make_folder_torch_trace,
                                        remove_folder_torch_trace),
        cmocka_unit_test_setup_teardown(groups_are_joined_apart, make_folder_torch_trace,
                                        remove_folder_torch_trace),
        cmocka_unit_test(intervals_are_united),
        cmocka_unit_test(intervals_take_no_more_than_their_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
