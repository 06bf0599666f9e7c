/* Host programs of the libraries have locales: a decimal comma, a decimal point of two bytes, other letters.
 * What is written is the same to the byte in each as in C's, and what is read is understood the same
 * (plain_text.h). The locales are made by localedef in a folder of the test. */
#include <inttypes.h>
#include <locale.h>
#include <unistd.h>

#include "base/json.h"
#include "base/plain_text.h"
#include "base/quantity.h"
#include "plugins/slurm/site.h"
#include "profiles/format/json_write.h"
#include "tandem/advanced/timings.h"
#include "tandem/planner.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

static const char *const locales[][3] = {
    {"de_DE", "UTF-8", "0,5"},       /* 1.234,5 */
    {"ps_AF", "UTF-8", "0\u066b5"},  /* a point of two bytes, which jansson takes for two points */
    {"tr_TR", "ISO-8859-9", "0,5"}}; /* bytes above 127 are letters */
static char has_locale[N_OF(locales)];

/* --- What the libraries write and read ------------------------------------------------------------------ */

static void record_models(FILE *out)
{
    static const char *const models[] = {"vit_tiny:dropout=0.1", "bert_base:dropout=0.25", "mlp:dropout=2"};
    for (size_t k = 0; k < N_OF(models); k++) {
        tandem_graph *graph = NULL;
        tandem_error error = {0};
        if (tandem_graph_open(&graph, models[k], 4, &error) != TANDEM_OK) fprintf(out, "%s\n", error.text);
        if (graph) fprintf(out, "%s\n", graph->model);
        for (int i = 0; graph && i < graph->n_op; i++) fprintf(out, "%s\n", graph->op[i].signature);
        tandem_graph_close(graph);
    }
}

static void record_cluster_and_plan(FILE *out, const char *folder)
{
    static const char text[] = "2*t4@2 batch=4 slow=1.05 + v100@1 batch=4 net=12.345678Gbit/s,10.5us";
    tandem_graph *graph = NULL, *read_graph = NULL;
    tandem_plan *plan = NULL, *read_plan = NULL;
    tandem_cluster cluster;
    tandem_error error = {0};
    char printed[1024], path[128];
    require_ok(tandem_cluster_parse(&cluster, text, &error), &error);
    tandem_cluster_print(printed, sizeof printed, &cluster);
    fprintf(out, "%s\n", printed);
    require_ok(tandem_graph_open(&graph, "vit_tiny:dropout=0.1", 4, &error), &error);
    require_ok(tandem_plan_open(&plan, graph, &cluster, "a plan", &error), &error);
    plan->slowdown = 0.1;
    plan->sensitivity_bound = 1.0 / 3;
    plan->loss_scale = 1024.25;
    (void)snprintf(path, sizeof path, "%s/plan.json", folder);
    require_ok(tandem_plan_write(plan, graph, path, &error), &error);
    require_ok(tandem_plan_read(&read_plan, &read_graph, path, &error), &error);
    char *const first = tandem_plan_text(plan, graph), *const second =
                                                           tandem_plan_text(read_plan, read_graph);
    fprintf(out, "%s\n%s\n%d\n", first, second, read_plan->sensitivity_bound == 1.0 / 3);
    free(first);
    free(second);
    tandem_plan_close(plan);
    tandem_plan_close(read_plan);
    tandem_graph_close(graph);
    tandem_graph_close(read_graph);
}

static void record_planner(FILE *out, const char *folder)
{
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    char store[128];
    (void)snprintf(store, sizeof store, "%s/none.db", folder);
    const tandem_allocation_request request = {.of = {.store = store,
                                                      .model = "vit_tiny:dropout=0.1",
                                                      .cluster = "t4@1 + v100@1 net=12.5Gbit/s,10.5us",
                                                      .predict = 1}};
    const tandem_status status = tandem_answer_open(&answer, &request, &error);
    fprintf(out, "%d %s\n", (int)status, status == TANDEM_OK ? "" : error.text);
    if (status == TANDEM_OK) fprintf(out, "%" PRId64 "\n", answer.allocation.step_ns);
    tandem_answer_close(&answer);
}

static tandem_status record_timing(void *to, const tandem_timing *timing, tandem_error *error)
{
    (void)error;
    fprintf(to, "%s %" PRId64 "\n", timing->kind, (int64_t)(timing->time_ns * 1000));
    return TANDEM_OK;
}

static void record_tables(FILE *out)
{
    static char table[] = "device,method,operator,precision,m,k,n,time_us\nt4,loop,linear,fp32,8,8,8,12.625\n"
                          "t4,loop,linear,fp32,16,16,16,1e3\n";
    tandem_error error = {0};
    FILE *const in = fmemopen(table, sizeof table - 1, "r");
    const tandem_status status = tandem_timings_read(in, "table.csv", 1, record_timing, out, &error);
    fprintf(out, "%d %s\n", (int)status, status == TANDEM_OK ? "" : error.text);
    (void)fclose(in);
}

static void record_numbers(FILE *out)
{
    static const double numbers[] = {0.1, 1.0 / 3, 1e300, -2.5e-7, 1234567.5, 0x1p-1074};
    static const char json[] = "{\"a\": [0.25, 1.5e-3, -7.125]}";
    char text[TANDEM_LOSS_SCALE_TEXT];
    double scale = 0;
    json_t *root = NULL;
    tandem_error error = {0};
    for (size_t k = 0; k < N_OF(numbers); k++) {
        tandem_json_write_real(out, numbers[k]);
        fprintf(out, " %s %s %s\n", tandem_loss_scale_print(text, fabs(numbers[k])),
                tandem_quantity_ratio(numbers[k]).text, tandem_quantity_ns((int64_t)(numbers[0] * 1e9)).text);
    }
    fprintf(out, "%d %d\n", tandem_loss_scale_parse(&scale, "1024.5", &error), scale == 1024.5);
    fprintf(out, "%d %s\n", tandem_loss_scale_parse(&scale, "1024,5", &error), error.text);
    require_ok(tandem_json_parse(&root, json, sizeof json - 1, "a.json", &error), &error);
    for (size_t k = 0; k < 3; k++)
        fprintf(out, "%d\n", (int)(1e6 * json_real_value(json_array_get(json_object_get(root, "a"), k))));
    json_decref(root);
    (void)tandem_error_set(&error, TANDEM_USAGE, "got %g, allowed %.3f", 0.5, 1234.5);
    fprintf(out, "%s\n", error.text);
}

/* A byte that is a letter in Latin alphabets ends a name of Slurm's. */
static void record_names(FILE *out)
{
    const char *features = "t4\xe7"
                           "x&v100";
    char name[TANDEM_SITE_NAME];
    while (tandem_feature_next(name, &features)) fprintf(out, "<%s>\n", name);
}

static char *record_all(const char *folder)
{
    char *text = NULL;
    size_t n = 0;
    FILE *const out = open_memstream(&text, &n);
    assert_non_null(out);
    record_models(out);
    record_cluster_and_plan(out, folder);
    record_planner(out, folder);
    record_tables(out);
    record_numbers(out);
    record_names(out);
    (void)fclose(out);
    return text;
}

/* --- In each locale ------------------------------------------------------------------------------------- */

static const char *set_locale(size_t k)
{
    static char name[64], shown[16];
    (void)snprintf(name, sizeof name, "%s.%s", locales[k][0], locales[k][1]);
    if (!setlocale(LC_ALL, name)) return "";
    (void)snprintf(shown, sizeof shown, "%.1f", 0.5);
    return shown;
}

static void check_locale(const test_folder *f, size_t k)
{
    if (!has_locale[k]) {
        print_message("SKIP: locales: no %s could be made; apt-get install locales\n", locales[k][0]);
        skip();
    }
    char *const expected = record_all(f->folder);
    assert_non_null(strstr(expected, "vit_tiny:dropout=0.1"));
    assert_string_equal(set_locale(k), locales[k][2]); /* else nothing is tested */
    char *const got = record_all(f->folder);
    assert_string_equal(set_locale(k), locales[k][2]); /* it is as the host left it */
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_string_equal(got, expected);
    free(expected);
    free(got);
}

static void a_decimal_comma_changes_nothing(void **state) { check_locale(*state, 0); }
static void a_decimal_point_of_two_bytes_changes_nothing(void **state) { check_locale(*state, 1); }
static void other_letters_change_nothing(void **state) { check_locale(*state, 2); }

static void make_locales(const char *folder)
{
    char command[512];
    for (size_t k = 0; k < N_OF(locales); k++) {
        (void)snprintf(command, sizeof command,
                       "localedef -i %s -f %s '%s/%s.%s' >/dev/null 2>&1; test -e '%s/%s.%s/LC_NUMERIC'",
                       locales[k][0], locales[k][1], folder, locales[k][0], locales[k][1], folder,
                       locales[k][0], locales[k][1]);
        has_locale[k] = system(command) == 0; /* NOLINT(cert-env33-c,concurrency-mt-unsafe): its own folder */
    }
    (void)setenv("LOCPATH", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_decimal_comma_changes_nothing, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_decimal_point_of_two_bytes_changes_nothing, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(other_letters_change_nothing, test_folder_open, test_folder_close),
    };
    char folder[] = "/tmp/tandem-locales-XXXXXX", remove[64];
    if (!mkdtemp(folder)) return 5;
    make_locales(folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(remove, sizeof remove, "rm -rf '%s'", folder);
    return system(remove) == 0 ? failed : 5; /* NOLINT(cert-env33-c,concurrency-mt-unsafe): the same */
}
