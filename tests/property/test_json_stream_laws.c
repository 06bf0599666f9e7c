/* folder: trace */
/* Laws of the JSON reader on random texts: what it reads of an event is what jansson reads, wherever the
 * window ends; what is cut off is refused. */
#include <jansson.h>

#include "base/philox.h"
#include "tests/support/tandem_test.h"
#include "trace/reader/read_events.h"

enum { TEXTS = 400, CAPACITY = 1 << 16, MIN_WINDOW = 700, MAX_WINDOW = 1200 };

typedef struct drawn {
    char text[CAPACITY];
    size_t n;
    uint64_t seed;
    uint32_t n_draw;
} drawn;

static uint32_t below_json_stream(drawn *d, uint32_t n)
{
    const uint32_t counter[4] = {d->n_draw++, 0, 0, 0};
    return (uint32_t)((uint64_t)tandem_philox(counter, d->seed).word[0] * n >> 32);
}

static void put_json_stream(drawn *d, const char *text)
{
    const size_t n = strlen(text);
    assert_true(d->n + n < CAPACITY);
    memcpy(d->text + d->n, text, n);
    d->n += n;
}

static void put_blanks(drawn *d)
{
    static const char *const blanks[] = {"", "", " ", "\n    ", "\t\r\n"};
    put_json_stream(d, blanks[below_json_stream(d, 5)]);
}

static void put_string(drawn *d)
{
    static const char *const pieces[] = {"a",        "bc",
                                         "aten::mm", "\\\"",
                                         "\\\\",     "\\n",
                                         "\\u00e9",  "{",
                                         "}]",       ",:",
                                         "\xc3\xa9", "\\/",
                                         "\\u2026",  "\\ud83d\\ude00",
                                         "\\t",      "[",
                                         " ",        "\xf0\x9f\x98\x80",
                                         "x\\\\",    "\\b"};
    put_json_stream(d, "\"");
    for (uint32_t k = below_json_stream(d, 12); k > 0; k--)
        put_json_stream(d, pieces[below_json_stream(d, sizeof pieces / sizeof *pieces)]);
    put_json_stream(d, "\"");
}

static void put_value(drawn *d, int depth)
{
    static const char *const plain[] = {"null", "true", "false", "0", "-12.5e3", "17"};
    const uint32_t kind = below_json_stream(d, depth > 0 ? 4 : 2);
    if (kind == 0) put_json_stream(d, plain[below_json_stream(d, 6)]);
    if (kind == 1) put_string(d);
    if (kind < 2) return;
    put_json_stream(d, kind == 2 ? "[" : "{");
    for (uint32_t k = below_json_stream(d, 4), n = 0; n < k; n++) {
        char name[24];
        (void)snprintf(name, sizeof name, "\"k%u\"", n);
        put_json_stream(d, n ? "," : "");
        put_blanks(d);
        if (kind == 3) {
            put_json_stream(d, name);
            put_blanks(d);
            put_json_stream(d, ":");
        }
        put_value(d, depth - 1);
        put_blanks(d);
    }
    put_json_stream(d, kind == 2 ? "]" : "}");
}

static void put_member(drawn *d, const char *name, int first)
{
    put_json_stream(d, first ? "" : ",");
    put_blanks(d);
    put_json_stream(d, "\"");
    put_json_stream(d, name);
    put_json_stream(d, "\"");
    put_blanks(d);
    put_json_stream(d, ":");
    put_blanks(d);
}

static void put_event(drawn *d)
{
    char number[48];
    put_json_stream(d, "{");
    put_member(d, "ph", 1);
    put_json_stream(d, "\"X\"");
    for (int k = 0; k < 2; k++) {
        put_member(d, k ? "cat" : "name", 0);
        put_string(d);
    }
    if (below_json_stream(d, 2)) {
        put_member(d, "junk", 0);
        put_value(d, 3);
    }
    for (int k = 0; k < 2; k++) {
        (void)snprintf(number, sizeof number, "%u.%03u", below_json_stream(d, 1000000),
                       below_json_stream(d, 1000));
        put_member(d, k ? "dur" : "ts", 0);
        put_json_stream(d, number);
    }
    put_member(d, "args", 0);
    put_json_stream(d, "{");
    put_member(d, "junk", 1);
    put_value(d, 3);
    (void)snprintf(number, sizeof number, "%u", below_json_stream(d, 1000000));
    put_member(d, "External id", 0);
    put_json_stream(d, number);
    put_member(d, "Input Dims", 0);
    put_json_stream(d, "[[8, 16],[]]");
    put_blanks(d);
    put_json_stream(d, "}");
    put_blanks(d);
    put_json_stream(d, "}");
}

static int draw_text(drawn *d, uint64_t seed)
{
    d->n = d->n_draw = 0;
    d->seed = seed;
    const int is_list = below_json_stream(d, 4) == 0, n = (int)below_json_stream(d, 20);
    put_blanks(d);
    if (!is_list) {
        put_json_stream(d, "{");
        put_member(d, "before", 1);
        put_value(d, 4);
        put_member(d, "traceEvents", 0);
    }
    put_json_stream(d, "[");
    for (int k = 0; k < n; k++) {
        put_json_stream(d, k ? "," : "");
        put_blanks(d);
        put_event(d);
        put_blanks(d);
    }
    put_json_stream(d, "]");
    if (!is_list) {
        put_member(d, "after", 0);
        put_value(d, 4);
        put_json_stream(d, "}");
    }
    put_blanks(d);
    return n;
}

/* Strings that can be printed are kept as they are; control characters become question marks. */
static void same_text(const tandem_event_text *got, const json_t *expected)
{
    char text[TANDEM_EVENT_TEXT];
    (void)snprintf(text, sizeof text, "%s", json_string_value(expected));
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '?';
    assert_string_equal(got->text, text);
    assert_int_equal(got->n, strlen(text));
}

static void same_event(const tandem_event *got, const json_t *expected)
{
    const json_t *const args = json_object_get(expected, "args");
    same_text(&got->name, json_object_get(expected, "name"));
    same_text(&got->category, json_object_get(expected, "cat"));
    assert_int_equal(got->phase, 'X');
    assert_int_equal(got->start_ns, llround(1000 * json_number_value(json_object_get(expected, "ts"))));
    assert_int_equal(got->duration_ns, llround(1000 * json_number_value(json_object_get(expected, "dur"))));
    assert_int_equal(got->external, json_integer_value(json_object_get(args, "External id")));
    assert_string_equal(got->dims.text, "[[8,16],[]]");
}

static tandem_status read_all_json_stream(const drawn *d, size_t n, size_t window, const json_t *expected,
                                          tandem_error *error)
{
    tandem_input input = {0};
    tandem_events events;
    tandem_event event;
    int is_there = 1;
    size_t k = 0;
    assert_int_equal(tandem_input_open_bytes(&input, d->text, n, "drawn", error), TANDEM_OK);
    input.capacity = window;
    tandem_events_open(&events, &input, error);
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK) {
        status = tandem_events_next(&events, &event, &is_there);
        if (status != TANDEM_OK || !is_there) break;
        if (expected) same_event(&event, json_array_get(expected, k));
        k++;
    }
    if (status == TANDEM_OK && expected) assert_int_equal(k, json_array_size(expected));
    tandem_input_close(&input);
    return status;
}

static void it_reads_what_jansson_reads(void **state)
{
    static drawn d;
    const char *const given = getenv("TANDEM_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < TEXTS; i++) {
        json_error_t why;
        tandem_error error = {0};
        const int n = draw_text(&d, seed * TEXTS + (uint64_t)i);
        json_t *const root = json_loadb(d.text, d.n, 0, &why);
        if (!root) fail_msg("seed %llu: %s", (unsigned long long)d.seed, why.text);
        const json_t *const all = json_is_array(root) ? root : json_object_get(root, "traceEvents");
        assert_int_equal(json_array_size(all), n);
        const size_t window = MIN_WINDOW + below_json_stream(&d, MAX_WINDOW - MIN_WINDOW);
        if (read_all_json_stream(&d, d.n, window, all, &error) != TANDEM_OK)
            fail_msg("seed %llu, window %zu: %s\n%.*s", (unsigned long long)d.seed, window, error.text,
                     (int)d.n, d.text);
        size_t end = d.n;
        while (end > 0 && strchr(" \n\t\r", d.text[end - 1])) end--;
        const size_t cut = 1 + below_json_stream(&d, (uint32_t)end - 1);
        if (read_all_json_stream(&d, cut, window, NULL, &error) != TANDEM_MALFORMED)
            fail_msg("seed %llu: cut at %zu of %zu and read", (unsigned long long)d.seed, cut, end);
        assert_non_null(strstr(error.text, "byte"));
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_reads_what_jansson_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
