/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=strdup --wrap=open_memstream */
/* folder: report */
/* A page is drawn and written while memory runs out: NO_MEMORY is said, and the file keeps its old bytes.
 * The streams in memory grow by allocations that fail, too, as those of the C library may. */
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "report/page.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

/* --- Streams in memory that grow by realloc ------------------------------------------------------------- */

typedef struct memory_stream {
    char **text, *bytes;
    size_t *n_text, n, capacity;
} memory_stream;

static ssize_t memory_stream_write(void *cookie, const char *from, size_t n)
{
    memory_stream *const s = cookie;
    if (s->n + n + 1 > s->capacity) {
        const size_t more = 2 * s->capacity + n + 1;
        char *const bytes = realloc(s->bytes, more);
        if (!bytes) return 0; /* the stream has an error from now on */
        s->bytes = bytes;
        s->capacity = more;
    }
    memcpy(s->bytes + s->n, from, n);
    s->n += n;
    s->bytes[s->n] = '\0';
    return (ssize_t)n;
}

static int memory_stream_close(void *cookie)
{
    memory_stream *const s = cookie;
    *s->text = s->bytes;
    *s->n_text = s->n;
    free(s);
    return 0;
}

FILE *__wrap_open_memstream(char **text, size_t *n_text);
FILE *__wrap_open_memstream(char **text, size_t *n_text)
{
    static const cookie_io_functions_t functions = {.write = memory_stream_write,
                                                    .close = memory_stream_close};
    memory_stream *const s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (memory_stream){.text = text, .n_text = n_text};
    *text = NULL;
    *n_text = 0;
    FILE *const out = fopencookie(s, "w", functions);
    if (!out) free(s);
    return out;
}

char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    char *const copy = malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* --- What is drawn: every section -------------------------------------------------------------------- */

static const char trace[] =
    "{\"otherData\":{\"title\":\"x\",\"model\":\"mlp\",\"origin\":\"%s\"},"
    "\"traceEvents\":[{\"ph\":\"X\",\"name\":"
    "\"fc\",\"pid\":0,\"ts\":0,\"dur\":10,\"args\":{\"kind\":\"forward\",\"task\":1}},{\"ph\":\"X\","
    "\"name\":\"r\",\"pid\":"
    "0,\"ts\":10,\"dur\":5,\"args\":{\"kind\":\"all-reduce\",\"task\":2}}]}";

static const char *const results[] = {
    "{\"schema\":\"tandem.replay/1\",\"model\":\"mlp\",\"plan\":\"x\",\"step_ns\":9,"
    "\"devices\":[{\"name\":\"v100\",\"busy_ns\":"
    "5,\"limit_bytes\":10,\"memory_timeline\":[{\"bytes\":{\"weights\":5}},"
    "{\"bytes\":{\"weights\":7}}],\"costs\":{"
    "\"measured\":{\"tasks\":1,\"share\":1}}}],\"operators\":[{\"operator\":\"fc1\","
    "\"devices\":[{\"ns\":5}]}]}",
    "{\"schema\":\"tandem.allocate/1\",\"model\":\"mlp\",\"plan\":\"x\",\"method\":\"fisher\","
    "\"step_ns\":9,\"sensitivity_bound\":1,"
    "\"pareto\":[{\"step_ns\":5,\"sensitivity_bound\":1e-3},"
    "{\"step_ns\":9,\"sensitivity_bound\":1e-4}]}",
    "{\"schema\":\"tandem.train/1\",\"model\":\"mlp\",\"loss\":[2.5,null,2],"
    "\"evaluations\":[{\"step\":2,\"accuracy\":0.5}]}",
    "{\"schema\":\"tandem.whatif/1\",\"slowdown\":1.5,\"by_worker\":[{\"name\":\"dp 1 stage 0\","
    "\"slowdown\":1.2}]}",
    "{\"schema\":\"tandem.sensitivity/1\",\"model\":\"mlp\",\"operators\":[{\"operator\":\"fc1\","
    "\"precision\":\"int8\","
    "\"sensitivity\":{\"fisher\":1e-4}}]}",
    "{\"schema\":\"tandem.store/1\",\"devices\":[{\"name\":\"cpu:a\",\"costs\":1}],"
    "\"costs\":[{\"device\":\"cpu:a\",\"operator\":"
    "\"o\",\"median_ns\":5}]}",
};
enum { N_RESULT = sizeof results / sizeof *results };

static tandem_status add_plan(report_page *page, tandem_error *error)
{
    report_item item = {.source = NULL};
    tandem_cluster cluster;
    tandem_status status = tandem_graph_open(&item.graph, "mlp", 8, error);
    if (status == TANDEM_OK) status = tandem_cluster_parse(&cluster, "v100@8 batch=8", error);
    if (status == TANDEM_OK) status = tandem_plan_open(&item.plan, item.graph, &cluster, "x", error);
    if (status == TANDEM_OK) return report_page_add(page, &item, "plan.json", error);
    report_item_close(&item);
    return status;
}

static tandem_status add_trace(report_page *page, const char *origin, tandem_error *error)
{
    char text[1024];
    report_item item = {.source = NULL};
    (void)snprintf(text, sizeof text, trace, origin);
    const tandem_status status =
        tandem_step_timeline_parse(&item.timeline, text, strlen(text), origin, error);
    return status == TANDEM_OK ? report_page_add(page, &item, origin, error) : status;
}

static tandem_status add_log(report_page *page, tandem_error *error)
{
    report_item item = {.log = {.line = calloc(2, sizeof *item.log.line), .n = 2}};
    if (!item.log.line) return tandem_no_memory(error, "for a log");
    item.log.line[0] = (report_log_line){1, 2.5, 0.5};
    item.log.line[1] = (report_log_line){2, 2.25, 0.5};
    return report_page_add(page, &item, "run.jsonl", error);
}

static tandem_status open_page(report_page *page, tandem_error *error)
{
    tandem_status status = add_plan(page, error);
    if (status == TANDEM_OK) status = add_trace(page, "simulated", error);
    if (status == TANDEM_OK) status = add_trace(page, "measured", error);
    if (status == TANDEM_OK) status = add_log(page, error);
    for (int k = 0; k < N_RESULT && status == TANDEM_OK; k++) {
        report_item item = {.result = json_loads(results[k], 0, NULL)};
        status = item.result ? report_page_add(page, &item, "result.json", error)
                             : tandem_no_memory(error, "for a result");
    }
    return status;
}

/* --- The tests ------------------------------------------------------------------------------------------ */

typedef tandem_status page_work(const char *path, tandem_error *error);

/* Lets allocation 1, 2, 3, … fail until there are no more; what then is in the file is the page. */
static void survive_page(page_work *work, const char *path, long least)
{
    static const char old[] = "old bytes";
    long k = 0;
    for (int failed = 1; failed; k++) {
        tandem_error error = {0};
        char *bytes = NULL;
        size_t n = 0;
        FILE *const file = fopen(path, "w");
        assert_non_null(file);
        (void)fputs(old, file);
        assert_int_equal(fclose(file), 0);
        tandem_fail_allocation_after(k);
        const tandem_status status = work(path, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != (failed ? TANDEM_NO_MEMORY : TANDEM_OK) || error.status != status)
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
        assert_int_equal(tandem_file_read(&bytes, &n, path, 1 << 24, NULL), TANDEM_OK);
        assert_int_equal(n == sizeof old - 1 && memcmp(bytes, old, n) == 0, failed);
        free(bytes);
    }
    (void)printf("survived %ld failures\n", k - 1);
    assert_true(k - 1 >= least);
}

static tandem_status open_and_write(const char *path, tandem_error *error)
{
    report_page page = {0};
    tandem_status status = open_page(&page, error);
    if (status == TANDEM_OK) status = report_page_write(&page, path, error);
    report_page_close(&page);
    return status;
}

/* Not jansson's own allocations: its parser loses characters silently (profiles/format/json_write.h). */
static void a_page_survives(void **state)
{
    char path[] = "/tmp/tandem-page-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    survive_page(open_and_write, path, 60);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_page_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
