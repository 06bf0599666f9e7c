/* folder: report */
/* The page: escaping, colours, what is a gap, and that equal inputs give equal bytes. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "report/html.h"
#include "report/page.h"
#include "report/section/critical_path.h"
#include "tests/support/page_check.h"

#include "page_css.h"

/* --- Text ---------------------------------------------------------------------------------------------- */

static char *put_name(const char *name)
{
    char *html = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&html, &n);
    report_put(out, "%s", name);
    (void)fclose(out);
    return html;
}

static void text_is_escaped(void **state)
{
    static const char *const cases[][2] = {
        {"<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"},
        {"a\"b'c&d", "a&quot;b&#39;c&amp;d"},
        {"\xe2\x80\xae"
         "evil",
         "[U+202E]evil"},
        {"\x1b[31m", "[U+001B][31m"},
        {"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d"},
        {"\xff\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"a\nb", "a b"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *const html = put_name(cases[k][0]);
        assert_string_equal(html, cases[k][1]);
        free(html);
    }
}

static void long_text_is_cut(void **state)
{
    char name[10001];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    char *const html = put_name(name);
    assert_int_equal(strlen(html), REPORT_LONGEST + strlen("\xe2\x80\xa6 (10000 bytes)"));
    assert_non_null(strstr(html, "\xe2\x80\xa6 (10000 bytes)"));
    free(html);
}

static void gaps_are_dashes(void **state)
{
    assert_string_equal(report_ns(NAN).text, "\xe2\x80\x93");
    assert_string_equal(report_bytes(INFINITY).text, "\xe2\x80\x93");
    assert_string_equal(report_ratio(-INFINITY).text, "\xe2\x80\x93");
    assert_string_equal(report_number(NAN).text, "\xe2\x80\x93");
    assert_string_equal(report_ns(0).text, "0 ns");
    assert_string_equal(report_signed_ratio(0.25).text, "+25.0%");
    assert_string_equal(report_signed_ratio(-0.25).text, "-25.0%");
}

/* --- Colours: WCAG 2.1, relative luminance and contrast ------------------------------------------------ */

static double channel_light(int value)
{
    const double c = value / 255.0;
    return c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

/* Of `--name: #rrggbb` after `from`. */
static double luminance(const char *from, const char *name)
{
    char declared[32];
    unsigned rgb = 0;
    (void)snprintf(declared, sizeof declared, "--%s: #", name);
    const char *const at = strstr(from, declared);
    assert_non_null(at);
    rgb = (unsigned)strtoul(at + strlen(declared), NULL, 16);
    return 0.2126 * channel_light((int)(rgb >> 16)) + 0.7152 * channel_light((int)(rgb >> 8 & 255)) +
           0.0722 * channel_light((int)(rgb & 255));
}

static double contrast(const char *theme, const char *a, const char *b)
{
    const double x = luminance(theme, a), y = luminance(theme, b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

static void colours_meet_wcag_aa(void **state)
{
    static const char *const texts[][2] = {
        {"text", "page"}, {"quiet", "page"}, {"link", "page"}, {"warn", "page"}, {"text", "soft"},
        {"on0", "h0"},    {"on1", "h1"},     {"on2", "h2"},    {"on3", "h3"},    {"on4", "h4"}};
    static const char *const shapes[] = {"c1", "c2",    "c3",    "c4",       "c5",   "c6",
                                         "c7", "plain", "hatch", "critical", "focus"};
    const char *const dark = strstr(page_css, "prefers-color-scheme: dark");
    assert_non_null(dark);
    const char *const themes[] = {page_css, dark};
    for (int t = 0; t < 2; t++) {
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            if (contrast(themes[t], texts[k][0], texts[k][1]) < 4.5)
                fail_msg("%s theme: text %s on %s has %.2f : 1", t ? "dark" : "light", texts[k][0],
                         texts[k][1], contrast(themes[t], texts[k][0], texts[k][1]));
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            if (contrast(themes[t], shapes[k], "page") < 3)
                fail_msg("%s theme: shape %s has %.2f : 1", t ? "dark" : "light", shapes[k],
                         contrast(themes[t], shapes[k], "page"));
    }
}

/* --- Pages --------------------------------------------------------------------------------------------- */

static void add_json_text(report_page *page, const char *source, const char *text)
{
    json_error_t where;
    report_item item = {.result = json_loads(text, 0, &where)};
    assert_non_null(item.result);
    assert_int_equal(report_page_add(page, &item, source, NULL), TANDEM_OK);
}

static void add_trace_text(report_page *page, const char *source, const char *text)
{
    report_item item = {.source = NULL};
    tandem_error error = {0};
    assert_int_equal(tandem_step_timeline_parse(&item.timeline, text, strlen(text), source, &error),
                     TANDEM_OK);
    assert_int_equal(report_page_add(page, &item, source, NULL), TANDEM_OK);
}

/* The page's bytes, checked; the caller frees them. */
static char *write_page(const report_page *page)
{
    char path[] = "/tmp/tandem-report-XXXXXX", *html = NULL;
    tandem_error error = {0};
    size_t n = 0, at = 0;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    assert_int_equal(report_page_write(page, path, &error), TANDEM_OK);
    assert_int_equal(tandem_file_read(&html, &n, path, 1 << 24, &error), TANDEM_OK);
    (void)unlink(path);
    const char *const wrong = page_check(html, n, &at);
    if (wrong) fail_msg("%s: %.60s", wrong, html + at);
    char *const text = strndup(html, n);
    free(html);
    return text;
}

#define TRACE(origin, title, second_ns)                                                                      \
    "{\"otherData\":{\"title\":\"" title "\",\"model\":\"m\",\"origin\":\"" origin "\"},\"traceEvents\":["   \
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"rank 0: fast\"}},"               \
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"rank 1: slow\"}},"               \
    "{\"ph\":\"X\",\"name\":\"fc\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":10,\"args\":{\"kind\":\"forward"     \
    "\",\"task\":1}},"                                                                                       \
    "{\"ph\":\"X\",\"name\":\"fc\",\"pid\":1,\"tid\":0,\"ts\":0,\"dur\":" second_ns                          \
    ",\"args\":{\"kind\":\"forward\",\"task\":1}},"                                                          \
    "{\"ph\":\"X\",\"name\":\"r\",\"pid\":0,\"tid\":1,\"ts\":" second_ns                                     \
    ",\"dur\":5,\"args\":{\"kind\":\"all-reduce\",\"task\":2}},"                                             \
    "{\"ph\":\"X\",\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":" second_ns                                     \
    ",\"dur\":5,\"args\":{\"kind\":\"all-reduce\",\"task\":2}}]}"

static const char hostile[] = "{\"schema\":\"tandem.replay/1\","
                              "\"model\":\"<script>alert(1)</script>\\\"'\","
                              "\"plan\":\"\\u202eevil\\u2066\",\"cluster\":\"</title><img src=x>\","
                              "\"step_ns\":100,\"slowest\":\"a\",\"devices\":[{\"name\":\"<b>\","
                              "\"ranks\":1,"
                              "\"busy_ns\":50,\"wait_ns\":null,\"exposed_comm_ns\":10,\"peak_bytes\":5}]}";

static void hostile_names_are_text(void **state)
{
    report_page page = {0};
    add_json_text(&page, "<img src=x onerror=alert(1)>.json", hostile);
    char *const html = write_page(&page);
    assert_null(strstr(html, "<script>alert"));
    assert_null(strstr(html, "<img"));
    assert_non_null(strstr(html, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;"));
    assert_non_null(strstr(html, "[U+202E]evil[U+2066]"));
    assert_non_null(strstr(html, "&lt;img src=x onerror=alert(1)&gt;.json"));
    free(html);
    report_page_close(&page);
}

static void equal_inputs_give_equal_bytes(void **state)
{
    char *html[2];
    for (int k = 0; k < 2; k++) {
        report_page page = {0};
        add_json_text(&page, "a.json", hostile);
        add_trace_text(&page, "t.json", TRACE("measured", "p", "30"));
        html[k] = write_page(&page);
        report_page_close(&page);
    }
    assert_string_equal(html[0], html[1]);
    free(html[0]);
    free(html[1]);
}

static void missing_values_are_gaps(void **state)
{
    report_page page = {0};
    add_json_text(
        &page, "r.json",
        "{\"schema\":\"tandem.replay/1\",\"model\":\"m\",\"plan\":\"p\",\"step_ns\":null,\"devices\":[{"
        "\"name\":\"gap\",\"busy_ns\":null,\"wait_ns\":\"much\",\"exposed_comm_ns\":[]}]}");
    char *const html = write_page(&page);
    const char *const row = strstr(html, ">gap</th>");
    assert_non_null(row);
    static const char cells[] =
        ">gap</th><td class=\"n\">\xe2\x80\x93</td><td class=\"n\">\xe2\x80\x93</td><td "
        "class=\"n\">\xe2\x80\x93</td><td class=\"n\">\xe2\x80\x93</td>";
    assert_memory_equal(row, cells, sizeof cells - 1);
    assert_null(strstr(html, "0 ns"));
    free(html);
    report_page_close(&page);
}

static int count_of(const char *html, const char *what)
{
    int n = 0;
    for (const char *at = strstr(html, what); at; at = strstr(at + 1, what)) n++;
    return n;
}

static void models_are_kept_apart(void **state)
{
    report_page page = {0};
    add_json_text(&page, "r.json", hostile);
    add_trace_text(&page, "t.json", TRACE("simulated", "p", "30"));
    char *const html = write_page(&page);
    assert_non_null(strstr(html, "These files belong to 2 models"));
    assert_int_equal(count_of(html, "<article>"), 2);
    free(html);
    report_page_close(&page);
}

static void timelines_are_paired(void **state)
{
    report_page page = {0};
    add_trace_text(&page, "measured.json", TRACE("measured", "p", "30"));
    add_trace_text(&page, "other.json", TRACE("simulated", "another plan", "20"));
    char *alone = write_page(&page);
    assert_int_equal(count_of(alone, "<figure class=\"timeline\""), 2);
    assert_non_null(strstr(alone, "Only the run is here"));
    assert_non_null(strstr(alone, "Only the prediction is here"));
    assert_null(strstr(alone, "Tasks that differ most"));
    assert_null(strstr(alone, "are drawn together"));
    assert_null(strstr(alone, "are not drawn"));
    free(alone);
    add_trace_text(&page, "predicted.json", TRACE("simulated", "p", "20"));
    char *const html = write_page(&page);
    assert_int_equal(count_of(html, "<figure class=\"timeline\""), 2);
    assert_null(strstr(html, "Only the run is here"));
    /* 20 us predicted, 30 us measured, of rank 1, is before rank 0, which does not differ */
    const char *const slow = strstr(html, "20.0 us</td><td class=\"n\">30.0 us</td><td class=\"n\">-10.0 "
                                          "us</td>"),
                      *const fast =
                          strstr(html, "10.0 us</td><td class=\"n\">10.0 us</td><td class=\"n\">0 ns</td>");
    assert_non_null(slow);
    assert_non_null(fast);
    assert_true(slow < fast);
    free(html);
    report_page_close(&page);
}

/* A run of another plan of the same name: its task has another precision. */
static void namesakes_are_drawn_apart(void **state)
{
#define STEP_IN(origin, precision)                                                                           \
    "{\"otherData\":{\"title\":\"p\",\"model\":\"m\",\"origin\":\"" origin "\"},\"traceEvents\":[{"          \
    "\"ph\":\"X\",\"name\":\"fc\",\"pid\":0,\"ts\":0,\"dur\":10,\"args\":{\"kind\":\"forward\","             \
    "\"precision\":\"" precision "\",\"task\":1}}]}"
    for (int is_equal = 0; is_equal < 2; is_equal++) {
        report_page page = {0};
        add_trace_text(&page, "predicted.json", STEP_IN("simulated", "int8"));
        add_trace_text(&page, "measured.json",
                       is_equal ? STEP_IN("measured", "int8") : STEP_IN("measured", "fp32"));
        char *const html = write_page(&page);
        assert_int_equal(count_of(html, "<figure class=\"timeline\""), 2 - is_equal);
        assert_int_equal(count_of(html, "is of another plan"), 1 - is_equal);
        free(html);
        report_page_close(&page);
    }
}

static void files_of_two_machines_are_said(void **state)
{
    static const char *const text[] = {
        "{\"schema\":\"tandem.replay/1\",\"step_ns\":1,\"made\":{\"command\":\"a\","
        "\"version\":\"1\",\"host\":\"x\"}}",
        "{\"schema\":\"tandem.replay/1\",\"step_ns\":1,\"made\":{\"command\":\"b\","
        "\"version\":\"2\",\"host\":\"y\"}}",
        "{\"schema\":\"tandem.replay/1\",\"step_ns\":1}"};
    for (int n = 1; n < 3; n++) {
        report_page page = {0};
        for (int k = 0; k < n; k++) add_json_text(&page, "r.json", text[k]);
        add_json_text(&page, "mute.json", text[2]);
        char *const html = write_page(&page);
        assert_int_equal(count_of(html, "made on 2 machines"), n - 1);
        assert_int_equal(count_of(html, "made by 2 versions"), n - 1);
        free(html);
        report_page_close(&page);
    }
}

static void nothing_to_show_is_missing(void **state)
{
    report_page page = {0};
    tandem_error error = {0};
    assert_int_equal(report_page_write(&page, "/nonexistent/page.html", &error), TANDEM_MISSING);
    add_json_text(&page, "list.json", "{\"schema\":\"tandem.list/1\",\"devices\":[]}");
    assert_int_equal(report_page_write(&page, "/nonexistent/page.html", &error), TANDEM_MISSING);
    assert_non_null(strstr(error.text, "tandem allocate"));
    add_trace_text(&page, "t.json", TRACE("simulated", "p", "30"));
    assert_int_equal(report_page_write(&page, "/nonexistent/page.html", &error), TANDEM_IO);
    report_page_close(&page);
}

/* --- What made the files ------------------------------------------------------------------------------- */

static void commands_are_written_as_text(void **state)
{
    report_page page = {0};
    add_json_text(
        &page, "r.json",
        "{\"schema\":\"tandem.replay/1\",\"made\":{\"command\":\"tandem replay --plan='<script>alert(1)"
        "</script>\\u202e'\",\"version\":\"9.9\",\"host\":\"a <b> machine\",\"seed\":7},\"step_ns\":1,"
        "\"devices\":[{\"name\":\"d\"}]}");
    add_json_text(&page, "odd.json",
                  "{\"schema\":\"tandem.replay/1\",\"made\":[\"command\"],"
                  "\"step_ns\":1}");
    char *const html = write_page(&page);
    assert_non_null(
        strstr(html, "<code>tandem replay --plan=&#39;&lt;script&gt;alert(1)&lt;/script&gt;[U+202E]&#39;"
                     "</code></td><td>9.9</td><td>a &lt;b&gt; machine</td><td class=\"n\">7</td>"));
    assert_non_null(
        strstr(html, ">odd.json</th><td>result <code>tandem.replay/1</code></td><td>\xe2\x80\x93</td>"));
    free(html);
    report_page_close(&page);
}

static void a_trace_says_what_made_it(void **state)
{
    static const char text[] =
        "{\"otherData\":{\"title\":\"p\",\"command\":\"tandem replay --plan=p.json\","
        "\"version\":\"9.9\",\"host\":"
        "\"h\",\"seed\":\"11\"},\"traceEvents\":[{\"ph\":\"X\",\"name\":\"fc\",\"pid\":0,\"ts\":0,"
        "\"dur\":10,"
        "\"args\":{\"kind\":\"forward\",\"task\":1}}]}";
    report_page page = {0};
    add_trace_text(&page, "t.json", text);
    char *const html = write_page(&page);
    assert_non_null(strstr(html, "<code>tandem replay --plan=p.json</code></td><td>9.9</td><td>h</td><td "
                                 "class=\"n\">11</td>"));
    free(html);
    report_page_close(&page);
}

/* --- A store ------------------------------------------------------------------------------------------- */

static void a_store_is_drawn(void **state)
{
    report_page page = {0};
    add_json_text(
        &page, "s.db",
        "{\"schema\":\"tandem.store/1\",\"hosts\":[{\"cpu\":\"<cpu>\",\"n_cpu\":2,"
        "\"libraries\":\"\",\"n_thread\":1,"
        "\"name_hash\":\"aa\",\"costs\":1,\"from_time_ns\":0,\"to_time_ns\":1763820300000000000}],"
        "\"devices\":[{"
        "\"name\":\"cpu:x\",\"co_runner\":\"\",\"costs\":1,\"repetitions\":30,\"disturbed\":4,"
        "\"compute_spread\":"
        "0.03,\"memory_spread\":null,\"delay_share\":0.01,\"steal_share\":null,"
        "\"interval_share\":0.02}],\"costs\":"
        "[{\"device\":\"cpu:x\",\"co_runner\":\"\",\"operator\":\"linear m=<3>\","
        "\"precision\":\"int8\",\"pass\":"
        "\"forward\",\"operand\":\"s8\",\"result\":\"f32\",\"median_ns\":2000,\"low_ns\":1900,"
        "\"high_ns\":2100,"
        "\"n\":30}],\"runs\":[{\"time_ns\":0,\"model\":\"m\",\"plan\":\"p\",\"cluster\":\"c\",\"steps\":5,"
        "\"predicted_ns\":null,\"measured_ns\":3000,\"exit_code\":0}]}");
    char *const html = write_page(&page);
    assert_non_null(strstr(html, "<h2>Profile</h2>"));
    assert_non_null(
        strstr(html, ">cpu:x</th><td>alone</td><td class=\"n\">1</td><td class=\"n\">30</td><td "
                     "class=\"n\">4</td><td class=\"n\">3.00%</td><td class=\"n\">\xe2\x80\x93</td><td "
                     "class=\"n\">1.00%</td><td class=\"n\">\xe2\x80\x93</td><td class=\"n\">2.00%</td>"));
    assert_non_null(strstr(html, ">linear m=&lt;3&gt;</th><td>forward</td><td>int8</td><td>s8 &#8594; "
                                 "f32</td><td "
                                 "class=\"n\">2.00 us</td><td class=\"n\">1.90 us to 2.10 us</td>"));
    assert_non_null(
        strstr(html, ">1970-01-01 00:00 UTC</th><td>m</td><td>p</td><td>c</td><td class=\"n\">5</td><td "
                     "class=\"n\">\xe2\x80\x93</td><td class=\"n\">3.00 us</td>"));
    assert_non_null(strstr(html,
                           "&lt;cpu&gt;, 2 CPUs, aa</th><td>\xe2\x80\x93</td><td class=\"n\">1</td><td "
                           "class=\"n\">1</td><td>1970-01-01 00:00 UTC</td><td>2025-11-22 14:05 UTC</td>"));
    free(html);
    report_page_close(&page);
}

static void an_empty_store_shows_nothing(void **state)
{
    report_page page = {0};
    tandem_error error = {0};
    add_json_text(&page, "s.db",
                  "{\"schema\":\"tandem.store/1\",\"hosts\":[],\"devices\":[],\"costs\":[],\"runs\":[]}");
    assert_int_equal(report_page_write(&page, "/nonexistent/page.html", &error), TANDEM_MISSING);
    report_page_close(&page);
}

static void estimated_intervals_are_drawn(void **state)
{
    report_page page = {0};
    add_json_text(
        &page, "s.json",
        "{\"schema\":\"tandem.sensitivity/1\",\"model\":\"m\",\"device\":\"d\",\"steps\":40,\"operators\":["
        "{\"operator\":\"fc\",\"precision\":\"int8\",\"sensitivity\":2,\"sensitivity_low\":1,"
        "\"sensitivity_high\":4},{\"operator\":\"fc\",\"precision\":\"bf16\",\"sensitivity\":null,"
        "\"sensitivity_low\":null,\"sensitivity_high\":null}]}");
    char *const html = write_page(&page);
    assert_non_null(strstr(html, "sensitivity (more samples, %)"));
    assert_non_null(strstr(html, "<title>fc in int8: 1 to 4 (95%)</title>"));
    assert_non_null(strstr(html, ">fc</th><td>int8</td><td class=\"n\">2</td><td class=\"n\">1 to 4</td>"));
    assert_non_null(strstr(html, ">fc</th><td>bf16</td><td class=\"n\">\xe2\x80\x93</td>"));
    assert_null(strstr(html, "fc in bf16"));
    free(html);
    report_page_close(&page);
}

/* --- What a page says of results ------------------------------------------------------------------------ */

static void assert_page_has(const char *const *json, int n, const char *const *text, int n_text)
{
    report_page page = {0};
    char source[32];
    for (int i = 0; i < n; i++) {
        (void)snprintf(source, sizeof source, "%d.json", i);
        add_json_text(&page, source, json[i]);
    }
    char *const html = write_page(&page);
    for (int i = 0; i < n_text; i++)
        if (!strstr(html, text[i])) fail_msg("the page has no '%s'", text[i]);
    free(html);
    report_page_close(&page);
}

static void stragglers_have_a_sentence(void **state)
{
    static const char *const whatif[] =
        {"{\"schema\":\"tandem.whatif/1\",\"slowdown\":1.5,\"step_ns\":3000000,\"ideal_step_ns\":2000000,"
         "\"by_worker\":[{\"name\":\"dp 1 stage 0\",\"slowdown\":1.2}]}"},
                             *const says[] = {"The step takes 3.00 ms; without stragglers 2.00 ms."};
    (void)state;
    assert_page_has(whatif, 1, says, 1);
}

/* The line from a plan down to its bound, and the staircase of the front. */
static void bounds_are_drawn(void **state)
{
    static const char *const allocated[] =
        {"{\"schema\":\"tandem.allocate/1\",\"model\":\"m\",\"method\":\"fisher\",\"step_ns\":7,"
         "\"sensitivity_bound\":0.5,\"lower_bound\":0.25,\"pareto\":[{\"step_ns\":5,"
         "\"sensitivity_bound\":1,\"lower_bound\":0.5},{\"step_ns\":9,\"sensitivity_bound\":0.25,"
         "\"lower_bound\":0.25}]}"},
                             *const says[] = {"class=\"line c3 thin\"", "no plan below"};
    (void)state;
    assert_page_has(allocated, 1, says, 2);
}

/* Two runs with two evaluations: a band that goes to the right above, and back below. */
static void spreads_of_runs_are_drawn(void **state)
{
    static const char *const runs[] =
        {"{\"schema\":\"tandem.train/1\",\"model\":\"m\",\"loss\":[2.5,2.25,2],\"evaluations\":[]}",
         "{\"schema\":\"tandem.train/1\",\"model\":\"m\",\"loss\":[2.25,2,1.5],\"evaluations\":[]}"},
                             *const says[] = {"class=\"band\" d=\"M"};
    (void)state;
    assert_page_has(runs, 2, says, 1);
}

/* --- What forbids other precisions --------------------------------------------------------------------- */

#define EXPLAINED(fp16_is_chosen, fp32_is_chosen)                                                            \
    "{\"schema\":\"tandem.allocate/1\",\"model\":\"mlp\",\"plan\":\"x\",\"step_ns\":9,\"explained_all\":["   \
    "{\"operator\":\"fc1\",\"devices\":[{\"name\":\"v100\",\"choices\":[{\"precision\":\"fp32\","            \
    "\"chosen\":" fp32_is_chosen                                                                             \
    ",\"verdict\":\"chosen\"},{\"precision\":\"fp16\",\"chosen\":" fp16_is_chosen                            \
    ",\"verdict\":\"2 ms <over> the target\"}]}]}]}"

static char *draw_explained(const char *explained)
{
    report_page page = {0};
    report_item item = {.source = NULL};
    tandem_cluster cluster;
    assert_int_equal(tandem_graph_open(&item.graph, "mlp", 8, NULL), TANDEM_OK);
    assert_int_equal(tandem_cluster_parse(&cluster, "v100@8 batch=8 slow=1.5", NULL), TANDEM_OK);
    assert_int_equal(tandem_plan_open(&item.plan, item.graph, &cluster, "x", NULL), TANDEM_OK);
    assert_int_equal(report_page_add(&page, &item, "plan.json", NULL), TANDEM_OK);
    if (explained) add_json_text(&page, "a.json", explained);
    char *const html = write_page(&page);
    report_page_close(&page);
    return html;
}

/* In the titles of the map, and in the table, which needs no script. */
static void verdicts_are_in_the_map(void **state)
{
    static const char verdict[] = "; not fp16: 2 ms &lt;over&gt; the target";
    char *const without = draw_explained(NULL), *const other = draw_explained(EXPLAINED("true", "false")),
                *const with = draw_explained(EXPLAINED("false", "true"));
    assert_int_equal(count_of(with, verdict), 2);
    assert_int_equal(count_of(without, verdict), 0);
    assert_int_equal(count_of(without, "; 1.50 times as slow as its device"), 1);
    assert_int_equal(count_of(other, verdict), 0); /* of a plan that chose otherwise */
    assert_true(count_of(without, "possible, not chosen: fp16") >= 2);
    assert_non_null(strstr(without, "; the device lacks "));
    free(with);
    free(other);
    free(without);
}

/* --- The critical path --------------------------------------------------------------------------------- */

static int path_has(const tandem_step_timeline *t, const unsigned char *is_critical, int rank, int id)
{
    for (int k = 0; k < t->n_task; k++)
        if (t->task[k].rank == rank && t->task[k].id == id) return is_critical[k];
    fail();
    return 0;
}

/* The slow rank's task holds up the all-reduce, whichever rank the step ends on. */
static void critical_path_crosses_ranks(void **state)
{
    static const char text[] = TRACE("simulated", "p", "30");
    tandem_step_timeline *timeline = NULL;
    assert_int_equal(tandem_step_timeline_parse(&timeline, text, strlen(text), "t", NULL), TANDEM_OK);
    unsigned char *const is_critical = report_critical_path(timeline);
    assert_non_null(is_critical);
    assert_int_equal(path_has(timeline, is_critical, 1, 1), 1);
    assert_int_equal(path_has(timeline, is_critical, 0, 1), 0);
    assert_int_equal(path_has(timeline, is_critical, 0, 2) + path_has(timeline, is_critical, 1, 2), 1);
    free(is_critical);
    tandem_step_timeline_close(timeline);
}

/* --- Size ---------------------------------------------------------------------------------------------- */

static void large_traces_make_small_pages(void **state)
{
    enum { N_TASK = 100000 };
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);
    fputs("{\"otherData\":{\"title\":\"p\",\"model\":\"m\",\"origin\":\"simulated\"},"
          "\"traceEvents\":[",
          out);
    for (int k = 0; k < N_TASK; k++)
        fprintf(out,
                "%s{\"ph\":\"X\",\"name\":\"layer%d\",\"pid\":%d,\"tid\":0,\"ts\":%d,\"dur\":9,"
                "\"args\":{\"k"
                "ind\":"
                "\"%s\",\"task\":%d}}",
                k ? "," : "", k % 977, k % 4, k / 4 * 10, k % 3 ? "forward" : "cast", k);
    fputs("]}", out);
    (void)fclose(out);
    report_page page = {0};
    add_trace_text(&page, "t.json", text);
    char *const html = write_page(&page);
    assert_true(strlen(html) < 2000000);
    assert_non_null(strstr(html, "are drawn together"));
    free(html);
    free(text);
    report_page_close(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stragglers_have_a_sentence),
        cmocka_unit_test(bounds_are_drawn),
        cmocka_unit_test(spreads_of_runs_are_drawn),
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(gaps_are_dashes),
        cmocka_unit_test(colours_meet_wcag_aa),
        cmocka_unit_test(hostile_names_are_text),
        cmocka_unit_test(equal_inputs_give_equal_bytes),
        cmocka_unit_test(missing_values_are_gaps),
        cmocka_unit_test(models_are_kept_apart),
        cmocka_unit_test(timelines_are_paired),
        cmocka_unit_test(namesakes_are_drawn_apart),
        cmocka_unit_test(files_of_two_machines_are_said),
        cmocka_unit_test(nothing_to_show_is_missing),
        cmocka_unit_test(commands_are_written_as_text),
        cmocka_unit_test(a_trace_says_what_made_it),
        cmocka_unit_test(a_store_is_drawn),
        cmocka_unit_test(an_empty_store_shows_nothing),
        cmocka_unit_test(estimated_intervals_are_drawn),
        cmocka_unit_test(verdicts_are_in_the_map),
        cmocka_unit_test(critical_path_crosses_ranks),
        cmocka_unit_test(large_traces_make_small_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
