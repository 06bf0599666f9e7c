/* folder: trace */
/* What-if analysis of tandem's own traces: written by hand, by the writer of traces, and wrongly. */
#include <unistd.h>

#include "tandem/advanced/trace.h"
#include "tandem/advanced/whatif.h"
#include "tests/support/tandem_test.h"
#include "tests/support/whatif_parts.h"

/* One task of a step in us: two ranks, two buckets. */
typedef struct row {
    const char *kind;
    int pid, task;
    double start, duration;
} row;

/* Rank 1 is slow; its second all-reduce begins when it is ready, and so is the shortest one. */
static const row rows[] = {
    {"forward", 0, 0, 0, 10}, {"wgrad", 0, 1, 10, 10},     {"all-reduce", 0, 2, 20, 25},
    {"dgrad", 0, 3, 20, 5},   {"wgrad", 0, 4, 25, 5},      {"all-reduce", 0, 5, 45, 35},
    {"update", 0, 6, 45, 2},  {"update", 0, 7, 80, 3},     {"forward", 1, 0, 0, 20},
    {"wgrad", 1, 1, 20, 20},  {"all-reduce", 1, 2, 40, 5}, {"dgrad", 1, 3, 40, 10},
    {"cast", 1, 30, 1000, 0}, {"wgrad", 1, 4, 50, 15},     {"all-reduce", 1, 5, 65, 15},
    {"update", 1, 6, 65, 4},  {"update", 1, 7, 80, 6},
};

static size_t print_rows_whatif_trace(char *text, size_t size, const row *of, size_t n)
{
    size_t used = (size_t)snprintf(
        text, size,
        "{\"otherData\":{\"title\":\"x\"},\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"rank 1: "
        "cpu:slow\"}},\n"
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":9,\"tid\":0,\"args\":{\"name\":\"nobody\"}}");
    for (size_t k = 0; k < n; k++) {
        if (of[k].start == 1000) continue;
        used += (size_t)snprintf(
            text + used, size - used,
            ",\n{\"ph\":\"X\",\"name\":\"x\",\"cat\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"op\":1,\"kind\":\"%s\",\"task\":%d}}",
            of[k].kind, of[k].pid, of[k].start, of[k].duration, of[k].kind, of[k].task);
    }
    used += (size_t)snprintf(text + used, size - used, "\n]}\n");
    assert_true(used < size);
    return used;
}

static tandem_whatif *analyse_whatif_trace(const char *text, size_t n)
{
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    require_ok(tandem_whatif_parse_trace(&whatif, text, n, "step.json", &error), &error);
    return whatif;
}

/* Where a rank was: at work, waiting for what was on the wire, for others, for nothing. */
static void expect_rank(const tandem_whatif *w, int rank, int64_t busy_ns, int64_t exposed_ns,
                        int64_t wait_ns, int64_t idle_ns)
{
    assert_int_equal(w->rank[rank].busy_ns, busy_ns);
    assert_int_equal(w->rank[rank].exposed_ns, exposed_ns);
    assert_int_equal(w->rank[rank].wait_ns, wait_ns);
    assert_int_equal(w->rank[rank].idle_ns, idle_ns);
}

static void a_step_by_hand_whatif_trace(void **state)
{
    char text[8000];
    tandem_whatif *const w =
        analyse_whatif_trace(text, print_rows_whatif_trace(text, sizeof text, rows, N_OF(rows)));
    assert_int_equal(w->n_worker, 2);
    assert_int_equal(w->n_op, 16);
    assert_int_equal(w->recorded_ns, 86000);
    /* Rank 1: 20 + 20, bucket 0 from 40 to 45; 10 + 15, bucket 1 from 65 to 80; its updates 4 (from 65) and 6
     * */
    assert_int_equal(w->step_ns, 86000);
    /* Both like rank 0: bucket 0 at 20 … 25; 30 … 45 bucket 1; updates 2 (from 30) and 3 */
    assert_int_equal(w->ideal_ns, 48000);
    assert_int_equal(w->by_worker.n, 2);
    assert_string_equal(w->by_worker.part[0].name, "rank 1: cpu:slow");
    assert_int_equal(w->by_worker.part[0].with_ns, 86000);
    assert_int_equal(w->by_worker.part[0].without_ns, 48000);
    assert_int_equal(part_of(&w->by_worker, "rank 0")->without_ns, 86000);
    assert_int_equal(part_of(&w->by_operator, "forward")->without_ns, 76000);
    assert_int_equal(part_of(&w->by_operator, "update")->with_ns, 51000);
    assert_int_equal(part_of(&w->by_operator, "all-reduce")->with_ns, 48000);
    assert_string_equal(w->cause.who, "rank 1: cpu:slow");
    assert_string_equal(w->cause.what, "wgrad");
    /* Where rank 0 was: 35 us busy; bucket 0 on the wire 40 … 45, bucket 1 65 … 80; it waits 30 … 40 and 47 …
     * 65 */
    assert_int_equal(w->n_rank, 2);
    assert_string_equal(w->rank[0].name, "rank 0");
    expect_rank(w, 0, 35000, 20000, 28000, 3000);
    expect_rank(w, 1, 75000, 11000, 0, 0);
    tandem_whatif_close(w);
}

static void waits_of_a_simulated_step_are_waits(void **state)
{
    static const row simulated[] = {
        {"forward", 0, 0, 0, 10}, {"all-reduce", 0, 1, 30, 5}, {"wait", 0, -1, 10, 25},
        {"update", 0, 2, 35, 1},  {"forward", 1, 0, 0, 30},    {"all-reduce", 1, 1, 30, 5},
        {"wait", 1, -1, 30, 5},   {"update", 1, 2, 35, 1},
    };
    char text[8000];
    tandem_whatif *const w =
        analyse_whatif_trace(text, print_rows_whatif_trace(text, sizeof text, simulated, N_OF(simulated)));
    assert_int_equal(w->step_ns, 36000);
    assert_int_equal(w->ideal_ns, 16000);
    expect_rank(w, 0, 11000, 5000, 20000, 0);
    tandem_whatif_close(w);
}

static void tasks_that_the_fastest_lacks_take_nothing(void **state)
{
    row changed[N_OF(rows)];
    char text[8000];
    memcpy(changed, rows, sizeof rows);
    changed[12].start = 41; /* a cast on rank 1, 3 us, after the last task it waits for nobody */
    changed[12].duration = 3;
    tandem_whatif *const w =
        analyse_whatif_trace(text, print_rows_whatif_trace(text, sizeof text, changed, N_OF(changed)));
    assert_int_equal(w->step_ns, 89000);
    assert_int_equal(w->ideal_ns, 48000);
    assert_int_equal(part_of(&w->by_operator, "cast")->without_ns, 86000);
    tandem_whatif_close(w);
}

static void small_negative_durations_are_0_and_counted_whatif_trace(void **state)
{
    row changed[N_OF(rows)];
    char text[8000];
    memcpy(changed, rows, sizeof rows);
    changed[12].start = 41; /* the cast on rank 1 */
    changed[12].duration = -26.9;
    tandem_whatif *const w =
        analyse_whatif_trace(text, print_rows_whatif_trace(text, sizeof text, changed, N_OF(changed)));
    assert_int_equal(w->n_negative, 1);
    assert_int_equal(w->step_ns, 86000);
    assert_int_equal(w->ideal_ns, 48000);
    tandem_whatif_close(w);
}

static void what_the_writer_writes_is_read(void **state)
{
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_whatif *w = NULL;
    tandem_error error = {0};
    tandem_trace_format recording = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
    char path[] = "/tmp/tandem_step_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && close(file) == 0);
    assert_int_equal(tandem_graph_open(&graph, "mlp", 8, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, NULL), TANDEM_OK);
    tandem_trace_event *const event = calloc((size_t)step->n_task, sizeof *event);
    assert_non_null(event);
    int n = 0;
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active) {
            event[n] = (tandem_trace_event){1000 * n, 1000 * (n + 1), t};
            n++;
        }
    const tandem_trace_track track[] = {{"cpu:avx2", 0, 1, step, event, n, 0, NULL, NULL},
                                        {"cpu:sse41", 1, 3, step, event, n, 0, NULL, NULL}};
    assert_int_equal(tandem_trace_write(path, "both alike", track, 2, &error), TANDEM_OK);
    assert_int_equal(tandem_trace_format_detect(&recording, path, &error), TANDEM_OK);
    assert_int_equal(recording, TANDEM_TRACE_FORMAT_STEP);
    require_ok(tandem_whatif_trace(&w, path, NULL, &error), &error);
    (void)unlink(path);
    assert_int_equal(w->n_op, 2 * n);
    assert_int_equal(w->step_ns, 1000 * n);
    assert_int_equal(w->ideal_ns, w->step_ns);
    assert_string_equal(w->cause.who, "");
    assert_string_equal(w->rank[1].name, "rank 1: cpu:sse41 (one of 3)");
    assert_int_equal(w->rank[1].wait_ns, 0);
    tandem_whatif_close(w);
    free(event);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void steps_that_make_no_estimate_are_refused(void **state)
{
    static const struct {
        row first, second, third;
        const char *word, *more;
    } cases[] = {
        {{"forward", 0, 0, 0, 1},
         {"forward", 0, 0, 1, 1},
         {"update", 0, 2, 5, 1},
         "runs task 0 twice",
         "rank 0"},
        {{"forward", 0, 0, 0, 1},
         {"all-reduce", 0, 1, 1, 1},
         {"forward", 1, 0, 0, 1},
         "reduces 1 buckets "
         "and updates 0",
         "rank 0"},
        {{"forward", 0, -3, 0, 1},
         {"forward", 0, 1, 1, 1},
         {"forward", 1, 0, 0, 1},
         "expected a pid and a "
         "task",
         "byte"},
        {{"forward", -1, 3, 0, 1},
         {"forward", 0, 1, 1, 1},
         {"forward", 1, 0, 0, 1},
         "expected a pid and a "
         "task",
         "byte"},
        {{"forward", 0, 3, 0, -10001},
         {"forward", 0, 1, 1, 1},
         {"forward", 1, 0, 0, 1},
         "expected ts and dur, the latter from -10000 us",
         "byte"},
        {{"update", 0, 1, 0, 1},
         {"forward", 0, 2, 1, 1},
         {"all-reduce", 0, 3, 0, 1},
         "form a dependency cycle",
         "rank 0: all-reduce, task 3"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        const row three[] = {cases[i].first, cases[i].second, cases[i].third};
        tandem_whatif *const untouched = (tandem_whatif *)(uintptr_t)16, *whatif = untouched;
        tandem_error error = {0};
        char text[2000];
        const size_t n = print_rows_whatif_trace(text, sizeof text, three, N_OF(three));
        assert_int_equal(tandem_whatif_parse_trace(&whatif, text, n, "step.json", &error), TANDEM_MALFORMED);
        assert_ptr_equal(whatif, untouched);
        if (!strstr(error.text, cases[i].word) || !strstr(error.text, cases[i].more))
            fail_msg("case %zu, '%s' and '%s': %s", i, cases[i].word, cases[i].more, error.text);
    }
    row changed[N_OF(rows)];
    char text[8000];
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    memcpy(changed, rows, sizeof rows);
    changed[14].start = changed[16].start = 1000; /* rank 1 without its second bucket */
    const size_t n = print_rows_whatif_trace(text, sizeof text, changed, N_OF(changed));
    assert_int_equal(tandem_whatif_parse_trace(&whatif, text, n, "step.json", &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "reduces"));
    assert_int_equal(tandem_whatif_parse_trace(&whatif, "[]", 2, "step.json", &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "holds no tasks"));
}

static void recordings_are_distinguished(void **state)
{
    static const struct {
        const char *text;
        tandem_trace_format recording;
        tandem_status status;
    } cases[] = {
        {"dp_rank,stage\n", TANDEM_TRACE_FORMAT_PIPELINE_CSV, TANDEM_OK},
        {"", TANDEM_TRACE_FORMAT_PIPELINE_CSV, TANDEM_OK},
        {"[{\"ph\":\"M\"},{\"ph\":\"X\",\"name\":\"aten::mm\"}]", TANDEM_TRACE_FORMAT_TORCH, TANDEM_OK},
        {" {\"traceEvents\":[{\"ph\":\"X\",\"args\":{\"kind\":\"forward\",\"task\":3}}, and what follows is "
         "not looked at",
         TANDEM_TRACE_FORMAT_STEP, TANDEM_OK},
        {"{\"traceEvents\":[]}", TANDEM_TRACE_FORMAT_TORCH, TANDEM_OK},
        {"{\"traceEvents\":", TANDEM_TRACE_FORMAT_PIPELINE_CSV, TANDEM_MALFORMED},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char path[] = "/tmp/tandem_kind_XXXXXX";
        const int file = mkstemp(path);
        const size_t n = strlen(cases[i].text);
        tandem_trace_format recording = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
        assert_true(file >= 0 && write(file, cases[i].text, n) == (ssize_t)n && close(file) == 0);
        const tandem_status status = tandem_trace_format_detect(&recording, path, NULL);
        (void)unlink(path);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(recording, cases[i].recording);
    }
}

/* PyTorch's execution traces are JSON, and some are named like Chakra's. A Chakra trace may begin as JSON
 * does: with the length of its metadata, here 123 bytes. */
static void json_named_like_chakra_is_json(void **state)
{
    static const struct {
        const char *text;
        tandem_trace_format recording;
        tandem_status status;
    } cases[] = {
        {"{\n \"schema\": \"1.0.2-chakra.0.0.4\", \"nodes\": []}", TANDEM_TRACE_FORMAT_PIPELINE_CSV,
         TANDEM_MALFORMED},
        {"{\"traceEvents\":[]}", TANDEM_TRACE_FORMAT_TORCH, TANDEM_OK},
        {"{\n\x05"
         "0.0.4 and more",
         TANDEM_TRACE_FORMAT_CHAKRA, TANDEM_OK},
        {"\x07\n\x05"
         "0.0.4",
         TANDEM_TRACE_FORMAT_CHAKRA, TANDEM_OK},
        {"", TANDEM_TRACE_FORMAT_CHAKRA, TANDEM_OK},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        char path[] = "/tmp/tandem_kind_XXXXXX.0.et";
        const int file = mkstemps(path, 5);
        const size_t n = strlen(cases[i].text);
        tandem_trace_format recording = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
        tandem_error error = {0};
        assert_true(file >= 0 && write(file, cases[i].text, n) == (ssize_t)n && close(file) == 0);
        const tandem_status status = tandem_trace_format_detect(&recording, path, &error);
        (void)unlink(path);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(recording, cases[i].recording);
        if (status != TANDEM_OK) assert_non_null(strstr(error.text, "an execution trace of PyTorch"));
    }
}

/* Longer than the window, and named like a Chakra trace. */
static void long_json_named_like_chakra_is_json(void **state)
{
    enum { N = 3 << 20 };
    char path[] = "/tmp/tandem_kind_XXXXXX.0.et";
    const int file = mkstemps(path, 5);
    char *const blank = malloc(N);
    tandem_trace_format recording = TANDEM_TRACE_FORMAT_CHAKRA;
    tandem_error error = {0};
    assert_non_null(blank);
    memset(blank, ' ', N);
    memcpy(blank, "{\"a\":1,", 7);
    memcpy(blank + N - 18, "\"traceEvents\": []}", 18);
    assert_true(file >= 0 && write(file, blank, N) == N && close(file) == 0);
    const tandem_status status = tandem_trace_format_detect(&recording, path, &error);
    (void)unlink(path);
    free(blank);
    require_ok(status, &error);
    assert_int_equal(recording, TANDEM_TRACE_FORMAT_TORCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_by_hand_whatif_trace),
        cmocka_unit_test(waits_of_a_simulated_step_are_waits),
        cmocka_unit_test(tasks_that_the_fastest_lacks_take_nothing),
        cmocka_unit_test(small_negative_durations_are_0_and_counted_whatif_trace),
        cmocka_unit_test(what_the_writer_writes_is_read),
        cmocka_unit_test(steps_that_make_no_estimate_are_refused),
        cmocka_unit_test(recordings_are_distinguished),
        cmocka_unit_test(json_named_like_chakra_is_json),
        cmocka_unit_test(long_json_named_like_chakra_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
