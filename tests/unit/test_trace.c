/* folder: profiles */
/* Traces: what Perfetto is given, read back with a JSON reader. */
#include <jansson.h>
#include <unistd.h>

#include "tandem/advanced/trace.h"
#include "tests/support/tandem_test.h"

typedef struct fixture {
    tandem_graph *graph;
    tandem_step *step;
    char path[64];
} fixture;

static int open_fixture_trace(void **state)
{
    fixture *const f = calloc(1, sizeof *f);
    if (!f || tandem_graph_open(&f->graph, "mlp", 8, NULL) != TANDEM_OK ||
        tandem_step_open(&f->step, f->graph, TANDEM_F32, 0, NULL) != TANDEM_OK)
        return -1;
    (void)snprintf(f->path, sizeof f->path, "/tmp/tandem_trace_XXXXXX");
    const int file = mkstemp(f->path);
    *state = f;
    return file < 0 ? -1 : close(file);
}

static int close_fixture_trace(void **state)
{
    fixture *const f = *state;
    tandem_step_close(f->step);
    tandem_graph_close(f->graph);
    (void)unlink(f->path);
    free(f);
    return 0;
}

/* The first task of a kind that belongs to `op` (NULL: to none). */
static int task_of_trace(const tandem_step *step, tandem_task_kind kind, const char *op)
{
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].kind == kind &&
            (op ? step->task[t].op >= 0 && strcmp(step->graph->op[step->task[t].op].name, op) == 0
                : step->task[t].op < 0))
            return t;
    fail_msg("no such task");
    return -1;
}

static json_t *write_and_read(const fixture *f, const char *title, const tandem_trace_track *track,
                              int n_track)
{
    tandem_error error = {0};
    json_error_t why;
    require_ok(tandem_trace_write(f->path, title, track, n_track, &error), &error);
    json_t *const root = json_load_file(f->path, JSON_REJECT_DUPLICATES, &why);
    if (!root) fail_msg("line %d: %s", why.line, why.text);
    return root;
}

static const char *text_at(const json_t *object, const char *member)
{
    const char *const text = json_string_value(json_object_get(object, member));
    assert_non_null(text);
    return text;
}

static int64_t whole_at(const json_t *object, const char *member)
{
    const json_t *const value = json_object_get(object, member);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void events_are_complete(void **state)
{
    const fixture *const f = *state;
    int fc1 = -1;
    assert_int_equal(tandem_graph_find(&fc1, f->graph, "fc1", NULL), TANDEM_OK);
    tandem_step_set(f->step, fc1, TANDEM_PRECISION_INT8);
    tandem_step_resolve(f->step);
    const int forward = task_of_trace(f->step, TANDEM_TASK_FORWARD, "fc1"),
              relu = task_of_trace(f->step, TANDEM_TASK_FORWARD, "fc1.relu"),
              reduce = task_of_trace(f->step, TANDEM_TASK_REDUCE, NULL);
    const tandem_trace_event event[] = {
        {1234567, 1234568, forward}, {0, 2000000, relu}, {5, 5, reduce}, {7, 9, -1}};
    const tandem_trace_track track[] = {{"cpu:avx2", 0, 1, f->step, event, 4, 0, NULL, NULL},
                                        {"cpu:avx512", 3, 2, f->step, event, 1, 1, NULL, NULL}};
    json_t *const root = write_and_read(f, "uniform int8", track, 2);
    assert_string_equal(text_at(root, "displayTimeUnit"), "ns");
    assert_string_equal(text_at(json_object_get(root, "otherData"), "title"), "uniform int8");
    assert_string_equal(text_at(json_object_get(root, "otherData"), "model"), f->step->graph->model);
    assert_string_equal(text_at(json_object_get(root, "otherData"), "origin"), "simulated");
    json_t *const all = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(all), 6 + 5 + 3);
    for (size_t i = json_array_size(all); i-- > 0;) { /* memory is looked at below */
        const int is_counter = strcmp(text_at(json_array_get(all, i), "ph"), "C") == 0;
        if (is_counter) json_array_remove(all, i);
    }
    assert_int_equal(json_array_size(all), 6 + 5);
    static const struct {
        const char *name, *value;
        int pid, tid;
    } names[] = {
        {"process_name", "rank 0: cpu:avx2", 0, 0}, {"thread_name", "compute", 0, 0},
        {"thread_name", "communication", 0, 1},     {"process_name", "rank 3: cpu:avx512 (one of 2)", 3, 0},
        {"thread_name", "compute", 3, 0},           {"thread_name", "communication", 3, 1}};
    for (size_t i = 0; i < 6; i++) {
        const json_t *const one = json_array_get(all, i);
        assert_string_equal(text_at(one, "ph"), "M");
        assert_string_equal(text_at(one, "name"), names[i].name);
        assert_string_equal(text_at(json_object_get(one, "args"), "name"), names[i].value);
        assert_int_equal(whole_at(one, "pid"), names[i].pid);
        assert_int_equal(whole_at(one, "tid"), names[i].tid);
    }
    static const struct {
        const char *name, *kind, *precision, *from, *to;
        double ts, dur;
        int tid;
    } expected[] = {
        {"fc1", "forward", "int8", "s8", "f32", 1234.567, 0.001, 0},
        {"fc1.relu", "forward", "f32", "f32", "f32", 0, 2000, 0},
        {"all-reduce bucket 0", "all-reduce", "f32", "f32", "f32", 0.005, 0, 1},
    };
    for (size_t i = 0; i < 3; i++) {
        const json_t *const one = json_array_get(all, 6 + i), *const args = json_object_get(one, "args");
        const tandem_task *const task = &f->step->task[event[i].task];
        assert_string_equal(text_at(one, "ph"), "X");
        assert_string_equal(text_at(one, "name"), expected[i].name);
        assert_string_equal(text_at(one, "cat"), expected[i].kind);
        assert_int_equal(whole_at(one, "pid"), 0);
        assert_int_equal(whole_at(one, "tid"), expected[i].tid);
        assert_true(json_real_value(json_object_get(one, "ts")) == expected[i].ts);
        assert_true(json_real_value(json_object_get(one, "dur")) == expected[i].dur);
        assert_string_equal(text_at(args, "kind"), expected[i].kind);
        assert_string_equal(text_at(args, "precision"), expected[i].precision);
        assert_string_equal(text_at(args, "from"), expected[i].from);
        assert_string_equal(text_at(args, "to"), expected[i].to);
        assert_int_equal(whole_at(args, "task"), event[i].task);
        assert_int_equal(whole_at(args, "op"), task->op);
        assert_int_equal(whole_at(args, "variant"), task->variant);
    }
    const json_t *const wait = json_array_get(all, 9);
    assert_string_equal(text_at(wait, "name"), "wait");
    assert_int_equal(whole_at(wait, "tid"), 1);
    assert_int_equal(whole_at(json_object_get(wait, "args"), "task"), -1);
    assert_int_equal(whole_at(json_array_get(all, 10), "pid"), 3);
    json_decref(root);
}

/* Every task that runs, one after another from 100 ns on, all-reduces beside them. Returns how many. */
static int lay_out_trace(const tandem_step *step, tandem_trace_event *event)
{
    int n = 0;
    for (int t = 0; t < step->n_task; t++)
        if (step->task[t].active) event[n] = (tandem_trace_event){100 * (n + 1), 100 * (n + 1) + 100, t}, n++;
    return n;
}

static int64_t place_of_trace(const tandem_trace_event *event, int n, int task)
{
    for (int e = 0; e < n; e++)
        if (event[e].task == task) return event[e].start_ns;
    fail_msg("task %d has not run", task);
    return 0;
}

static int64_t ns_at(const json_t *object, const char *member)
{
    return (int64_t)(json_number_value(json_object_get(object, member)) * 1000 + 0.5);
}

/* Counters show what has changed: added up they are the rows of the memory timeline, at every task. */
static void memory_is_counted(void **state)
{
    const fixture *const f = *state;
    tandem_trace_event *const event = calloc((size_t)f->step->n_task, sizeof *event);
    tandem_memory_row *const row = calloc((size_t)f->step->n_task, sizeof *row);
    uint64_t *const workspace = calloc((size_t)f->step->n_task, sizeof *workspace);
    const int relu = task_of_trace(f->step, TANDEM_TASK_FORWARD, "fc1.relu");
    workspace[relu] = 4096;
    const int n = lay_out_trace(f->step, event);
    const tandem_trace_track track = {"cpu:avx2", 0, 1, f->step, event, n, 0, workspace, NULL};
    assert_int_equal(tandem_memory_timeline(row, f->step, workspace, NULL), TANDEM_OK);
    json_t *const root = write_and_read(f, "", &track, 1), *const sums = json_object();
    const json_t *const all = json_object_get(root, "traceEvents");
    size_t at = 0;
    int n_checked = 0;
    for (int e = 0; e < n; e++) {
        if (f->step->task[event[e].task].stream == TANDEM_STREAM_COMM) continue;
        for (; at < json_array_size(all); at++) {
            const json_t *const one = json_array_get(all, at);
            if (strcmp(text_at(one, "ph"), "C") != 0) continue;
            if (ns_at(one, "ts") > event[e].start_ns) break;
            assert_string_equal(text_at(one, "name"), "memory");
            json_object_update(sums, json_object_get(one, "args"));
        }
        for (int k = 0; k < TANDEM_MEMORY_UNUSED; k++, n_checked++)
            assert_int_equal(json_integer_value(json_object_get(
                                 sums, tandem_memory_category_name((tandem_memory_category)k))),
                             row[event[e].task].bytes[k]);
    }
    assert_true(n_checked > 10 * TANDEM_MEMORY_UNUSED);
    json_decref(sums);
    json_decref(root);
    free(workspace);
    free(row);
    free(event);
}

/* From the task that completes a bucket to its all-reduce, from there to its update; each end within its
 * slice. */
static void buckets_have_arrows(void **state)
{
    const fixture *const f = *state;
    tandem_trace_event *const event = calloc((size_t)f->step->n_task, sizeof *event);
    const int n = lay_out_trace(f->step, event), n_bucket = f->step->n_bucket;
    const tandem_trace_track track = {"cpu:avx2", 0, 1, f->step, event, n, 0, NULL, NULL};
    json_t *const root = write_and_read(f, "", &track, 1);
    const json_t *const all = json_object_get(root, "traceEvents");
    const size_t n_event = json_array_size(all), first = n_event - (size_t)(4 * n_bucket);
    for (int arrow = 0; arrow < 2 * n_bucket; arrow++) {
        const json_t *const from = json_array_get(all, first + 2 * (size_t)arrow),
                            *const to = json_array_get(all, first + 2 * (size_t)arrow + 1);
        const tandem_bucket *const bucket = &f->step->bucket[arrow / 2];
        const int is_second = arrow % 2;
        assert_string_equal(text_at(from, "ph"), "s");
        assert_string_equal(text_at(to, "ph"), "f");
        assert_string_equal(text_at(to, "bp"), "e");
        assert_int_equal(whole_at(from, "id"), arrow);
        assert_int_equal(whole_at(to, "id"), arrow);
        assert_int_equal(whole_at(from, "tid"), is_second);
        assert_int_equal(whole_at(to, "tid"), !is_second);
        assert_int_equal(ns_at(from, "ts"),
                         place_of_trace(event, n, is_second ? bucket->reduce_task : bucket->ready_task) + 99);
        assert_int_equal(ns_at(to, "ts"),
                         place_of_trace(event, n, is_second ? bucket->update_task : bucket->reduce_task));
    }
    json_decref(root);
    free(event);
}

/* More names than the buffer holds, some longer than it, some that need escapes. */
static void buffers_are_flushed(void **state)
{
    const fixture *const f = *state;
    enum { LONG = 200000 };
    char *const title = malloc(LONG + 1);
    assert_non_null(title);
    for (int n = LONG - 70000; n <= LONG; n += 4999) {
        memset(title, 'x', LONG);
        title[n] = '\0';
        if (n % 2) title[n / 2] = '"';
        json_t *const root = write_and_read(f, title, NULL, 0);
        assert_string_equal(text_at(json_object_get(root, "otherData"), "title"), title);
        json_decref(root);
    }
    free(title);
}

static void any_title_is_good_json(void **state)
{
    const fixture *const f = *state;
    static const struct {
        const char *title, *read;
    } cases[] = {
        {"a \"quoted\" \\ title", "a \"quoted\" \\ title"},
        {"tab\tline\nbell\a\x1f\x7f", "tab\tline\nbell\a\x1f\x7f"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"}, /* é € 😀 */
        {"\xff", "\xef\xbf\xbd"},
        {"\xc3", "\xef\xbf\xbd"},                                                 /* cut short by the end */
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                                 /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 /* surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond U+10FFFF */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xe0\xa0\x80 \xe0\x80\x80", "\xe0\xa0\x80 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *const root = write_and_read(f, cases[i].title, NULL, 0);
        assert_string_equal(text_at(json_object_get(root, "otherData"), "title"), cases[i].read);
        assert_int_equal(json_array_size(json_object_get(root, "traceEvents")), 0);
        json_decref(root);
    }
}

/* Every single byte, and every pair of lead and second byte: never broken JSON. */
static void no_bytes_break_it(void **state)
{
    const fixture *const f = *state;
    tandem_error error = {0};
    char title[4 * 256 + 1];
    for (int lead = 1; lead < 256; lead++) {
        size_t n = 0;
        for (int second = 1; second < 256; second++) {
            title[n++] = (char)lead;
            title[n++] = (char)second;
            title[n++] = (char)0x80;
        }
        title[n] = '\0';
        assert_int_equal(tandem_trace_write(f->path, title, NULL, 0, &error), TANDEM_OK);
        json_t *const root = json_load_file(f->path, 0, NULL);
        if (!root) fail_msg("lead byte %02x", (unsigned)lead);
        json_decref(root);
    }
}

/* Of the first track; what is not known is left out. */
static void what_made_it_is_written(void **state)
{
    const fixture *const f = *state;
    const tandem_made made = {.command = "tandem replay \"<b>\"", .version = "9.9", .host = "h", .seed = "7"},
                      part = {.command = "c"};
    const tandem_trace_event event = {0, 1, 0};
    tandem_trace_track track = {"cpu:avx2", 0, 1, f->step, &event, 1, 0, NULL, &made};
    json_t *root = write_and_read(f, "t", &track, 1);
    const json_t *about = json_object_get(root, "otherData");
    assert_int_equal(json_object_size(about), 7);
    assert_string_equal(text_at(about, "command"), made.command);
    assert_string_equal(text_at(about, "version"), "9.9");
    assert_string_equal(text_at(about, "host"), "h");
    assert_string_equal(text_at(about, "seed"), "7");
    json_decref(root);
    track.made = &part;
    root = write_and_read(f, "t", &track, 1);
    about = json_object_get(root, "otherData");
    assert_int_equal(json_object_size(about), 4);
    assert_string_equal(text_at(about, "command"), "c");
    json_decref(root);
}

static void what_is_wrong_is_said_trace(void **state)
{
    const fixture *const f = *state;
    tandem_error error = {0};
    tandem_trace_event event = {0, 1, f->step->n_task};
    const tandem_trace_track track = {"cpu:avx2", 0, 1, f->step, &event, 1, 0, NULL, NULL};
    assert_int_equal(tandem_trace_write(f->path, "", &track, 1, &error), TANDEM_USAGE);
    event.task = -2;
    assert_int_equal(tandem_trace_write(f->path, "", &track, 1, &error), TANDEM_USAGE);
    event.task = 0;
    assert_int_equal(tandem_trace_write("/nonexistent/trace.json", "", &track, 1, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "/nonexistent/trace.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_are_complete, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(memory_is_counted, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(buckets_have_arrows, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(buffers_are_flushed, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(any_title_is_good_json, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(no_bytes_break_it, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(what_made_it_is_written, open_fixture_trace, close_fixture_trace),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_said_trace, open_fixture_trace, close_fixture_trace),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
