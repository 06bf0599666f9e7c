/* folder: report */
/* Pages from any bytes: as a result, and as the names in one. Whatever they are, the page keeps the laws of
 * tests/support/page_check.h, and the same input gives the same bytes. */
#include "report/page.h"
#include "tests/fuzz/fuzz_main.h"
#include "tests/support/page_check.h"

/* Takes over the result. */
static char *draw_fuzzed(json_t *result, const char *source, size_t *n)
{
    report_page page = {0};
    report_item item = {.result = result};
    tandem_error error = {0};
    char *html = NULL;
    demand(report_page_add(&page, &item, source, &error) == TANDEM_OK, "an item is added");
    const tandem_status status = report_page_draw(&html, n, &page, &error);
    demand(status == TANDEM_OK || (status == TANDEM_MISSING && error.text[0] && !html), "an error has a "
                                                                                        "text");
    report_page_close(&page);
    return html;
}

static void check_drawn(json_t *result, const char *source)
{
    size_t n = 0, again = 0, at = 0;
    char *const html = draw_fuzzed(json_incref(result), source, &n), *const second = draw_fuzzed(
                                                                         json_incref(result), source, &again);
    demand(n == again && (!html || memcmp(html, second, n) == 0), "the same input gives the same bytes");
    const char *const wrong = html ? page_check(html, n, &at) : NULL;
    if (wrong) (void)fprintf(stderr, "%s: %.80s\n", wrong, html + at);
    demand(!wrong, "the page keeps its laws");
    free(second);
    free(html);
    json_decref(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_error_t where;
    json_t *const any = json_loadb((const char *)data, size, 0, &where);
    char *const name = calloc(size + 1, 1);
    demand(name != NULL, "memory");
    if (size) memcpy(name, data, size);
    if (any) check_drawn(any, "any.json");
    json_t *const named =
        json_pack("{s:s,s:o,s:o,s:i,s:o,s:[{s:o,s:i,s:i}]}", "schema", "tandem.replay/1", "model",
                  json_stringn_nocheck(name, strlen(name)), "plan", json_stringn_nocheck(name, strlen(name)),
                  "ste"
                  "p_ns",
                  100, "slowest", json_stringn_nocheck(name, strlen(name)), "devices", "name",
                  json_stringn_nocheck(name, strlen(name)), "busy_ns", 50, "wait_ns", 40);
    check_drawn(named, name);
    free(name);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const text[] = {
        "{\"schema\":\"tandem.allocate/1\",\"model\":\"m\",\"method\":\"fisher\","
        "\"pareto\":[{\"step_ns\":5,"
        "\"sensitivity_bound\":0,\"lower_bound\":null},{\"step_ns\":9,\"sensitivity_bound\":1e-3}],"
        "\"baselines\":[{\"name\":\"<b>\",\"step_ns\":7,\"sensitivity_bound\":0.1}]}",
        "{\"schema\":\"tandem.replay/1\",\"step_ns\":9,\"devices\":[{\"name\":\"d\",\"limit_bytes\":10,"
        "\"memory_timeline\":[{\"bytes\":{\"weights\":5,\"unused\":1}},{\"bytes\":{\"weights\":7}}]}]}",
        "{\"schema\":\"tandem.train/1\",\"model\":\"m\",\"loss\":[2.5,null,2],\"evaluations\":[{\"step\":2,"
        "\"accuracy\":0.5}]}",
        "{\"schema\":\"tandem.whatif/1\",\"slowdown\":1.5,\"by_worker\":[{\"name\":\"dp 1 stage 0\","
        "\"slowdown\":1.2}]}",
        "{\"schema\":\"tandem.sensitivity/1\",\"operators\":[{\"operator\":\"o\",\"precision\":\"int8\","
        "\"sensitivity\":{\"fisher\":1e-4}}]}",
        "{\"schema\":\"tandem.sensitivity/1\",\"steps\":40,\"operators\":[{\"operator\":\"o\","
        "\"precision\":\"int8\","
        "\"sensitivity\":2,\"sensitivity_low\":1,\"sensitivity_high\":4}]}",
        "{\"schema\":\"tandem.store/1\",\"made\":{\"command\":\"tandem\",\"version\":\"1\","
        "\"host\":\"h\",\"seed\":3},"
        "\"hosts\":[{\"cpu\":\"c\",\"n_cpu\":2,\"from_time_ns\":0}],\"devices\":[{\"name\":\"d\","
        "\"co_runner\":\"\","
        "\"costs\":1}],\"costs\":[{\"device\":\"d\",\"operator\":\"o\",\"median_ns\":5,\"low_ns\":4,"
        "\"high_ns\":6}],"
        "\"collectives\":[{\"group\":\"g\",\"bytes\":4}],\"models\":[{\"name\":\"m\"}],"
        "\"runs\":[{\"time_ns\":9e18}]}",
        "{\"schema\":\"tandem.profile/1\",\"devices\":[{\"name\":\"d\","
        "\"steadiness\":{\"interval\":0.1}}]}",
        "<script>alert('\"&')</script>\xe2\x80\xae\xff"};
    enum { N_SEED = sizeof text / sizeof *text };
    const uint8_t *seeds[N_SEED];
    size_t seed_bytes[N_SEED];
    for (int k = 0; k < N_SEED; k++) {
        seeds[k] = (const uint8_t *)text[k];
        seed_bytes[k] = strlen(text[k]);
    }
    return tandem_fuzz_main("page", LLVMFuzzerTestOneInput, seeds, seed_bytes, N_SEED, argc, argv);
}
