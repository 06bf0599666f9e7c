/* folder: profiles */
/* What a store holds, as a page shows it: every kind of row, what is unknown, and what cannot have been
 * written. */
#include <math.h>
#include <sqlite3.h>
#include <unistd.h>

#include "profiles/store/store_overview.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

static tandem_store *open_for_overview(void **state, tandem_store_mode mode)
{
    const test_folder *const folder = *state;
    tandem_store *store = NULL;
    tandem_error error = {0};
    require_ok(tandem_store_open(&store, folder->path, mode, &error), &error);
    return store;
}

static void put_overview_cost(tandem_store *store, const char *device, const char *signature, int64_t ns)
{
    tandem_cost_key key = {.kind = TANDEM_COST_OP,
                           .precision = "int8",
                           .pass = TANDEM_PASS_FORWARD,
                           .from = TANDEM_S8,
                           .to = TANDEM_F32};
    tandem_cost cost;
    int64_t sample[] = {ns, ns, ns};
    (void)snprintf(key.signature, sizeof key.signature, "%s", signature);
    tandem_cost_from_samples(&cost, sample, 3, 0);
    cost.n_disturbed = 2;
    assert_int_equal(tandem_store_put_cost(store, device, "", &key, &cost, NULL), TANDEM_OK);
}

static void fill_overview_store(void **state)
{
    tandem_store *const store = open_for_overview(state, TANDEM_STORE_WRITE);
    const tandem_steadiness steadiness = {900, 800, 0.03, NAN, 0.01, NAN, 0.02};
    const tandem_run_record run = {.model = "mlp",
                                   .cluster = "c",
                                   .plan_name = "p",
                                   .plan_json = "",
                                   .graph_hash = 7,
                                   .steps = 5,
                                   .measured_ns = 3000,
                                   .sensitivity = NAN,
                                   .final_loss = NAN,
                                   .accuracy = 0.5};
    const tandem_statistics statistics = {
        .n_batch = 3, .local_batch = 8, .rows = 8, .k = 2, .columns = 2, .x_elements = 16, .w_elements = 4};
    tandem_graph *graph = NULL;
    int64_t id = 0;
    int op = 0;
    assert_int_equal(tandem_store_set_environment(store, "a library", 1, NULL), TANDEM_OK);
    put_overview_cost(store, "cpu:a", "short", 100);
    put_overview_cost(store, "cpu:a", "long \xff<b>", 2000);
    put_overview_cost(store, "cpu:b", "other", 50);
    assert_int_equal(tandem_store_put_steadiness(store, "cpu:a", "", &steadiness, NULL), TANDEM_OK);
    assert_int_equal(tandem_store_put_run(store, &run, &id, NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&graph, "mlp", 8, NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_find(&op, graph, "fc1", NULL), TANDEM_OK);
    assert_int_equal(tandem_store_put_statistics(store, graph, "data", op, &statistics, NULL), TANDEM_OK);
    tandem_graph_close(graph);
    tandem_store_close(store);
}

static json_t *read_overview(void **state, tandem_status expected)
{
    tandem_store *const store = open_for_overview(state, TANDEM_STORE_READ);
    tandem_error error = {0};
    json_t *overview = NULL;
    assert_int_equal(tandem_store_overview(&overview, store, &error), expected);
    assert_int_equal(overview != NULL, expected == TANDEM_OK);
    if (expected != TANDEM_OK) assert_non_null(strstr(error.text, "tandem.db"));
    tandem_store_close(store);
    return overview;
}

static const json_t *overview_row(const json_t *overview, const char *member, size_t k, size_t n)
{
    const json_t *const rows = json_object_get(overview, member);
    assert_int_equal(json_array_size(rows), n);
    return json_array_get(rows, k);
}

static void assert_member(const json_t *row, const char *member, double value)
{
    const json_t *const found = json_object_get(row, member);
    assert_non_null(found);
    if (isnan(value))
        assert_true(json_is_null(found));
    else
        assert_float_equal(json_number_value(found), value, 0);
}

static void assert_member_text(const json_t *row, const char *member, const char *text)
{
    assert_string_equal(json_string_value(json_object_get(row, member)), text);
}

static void every_row_is_listed(void **state)
{
    fill_overview_store(state);
    json_t *const overview = read_overview(state, TANDEM_OK);
    const json_t *row = overview_row(overview, "costs", 0, 3);
    assert_member_text(row, "operator", "long \xff<b>"); /* the longest first */
    assert_member_text(row, "precision", "int8");
    assert_member(row, "median_ns", 2000);
    assert_member_text(overview_row(overview, "costs", 2, 3), "device", "cpu:b");
    row = overview_row(overview, "devices", 0, 2);
    assert_member_text(row, "name", "cpu:a");
    assert_member(row, "costs", 2);
    assert_member(row, "repetitions", 6);
    assert_member(row, "disturbed", 4);
    assert_member(row, "compute_spread", 0.03);
    assert_member(row, "steal_share", NAN);
    assert_member(overview_row(overview, "devices", 1, 2), "compute_spread", NAN);
    row = overview_row(overview, "hosts", 0, 1);
    assert_member_text(row, "libraries", "a library");
    assert_member(row, "costs", 3);
    assert_true(json_integer_value(json_object_get(row, "from_time_ns")) > INT64_C(1600000000000000000));
    row = overview_row(overview, "runs", 0, 1);
    assert_member_text(row, "model", "mlp");
    assert_member(row, "predicted_ns", NAN);
    assert_member(row, "measured_ns", 3000);
    assert_member_text(overview_row(overview, "models", 1, 2), "data", "data");
    json_decref(overview);
}

/* Each by SQL past the library. */
static void a_damaged_number_is_refused(void **state)
{
    const test_folder *const folder = *state;
    static const char *const damage[] = {"UPDATE op_cost SET median_ns = -1",
                                         "UPDATE run SET measured_ns = -5",
                                         "UPDATE steadiness SET compute_spread = 9e999"};
    for (size_t k = 0; k < sizeof damage / sizeof *damage; k++) {
        sqlite3 *db = NULL;
        (void)unlink(folder->path);
        fill_overview_store(state);
        assert_int_equal(sqlite3_open(folder->path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, damage[k], NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        assert_null(read_overview(state, TANDEM_MALFORMED));
    }
}

static void a_new_store_has_empty_lists(void **state)
{
    tandem_store_close(open_for_overview(state, TANDEM_STORE_WRITE));
    json_t *const overview = read_overview(state, TANDEM_OK);
    const char *member;
    json_t *rows;
    assert_int_equal(json_object_size(overview), 6);
    json_object_foreach(overview, member, rows) { assert_int_equal(json_array_size(rows), 0); }
    json_decref(overview);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_row_is_listed, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_damaged_number_is_refused, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_new_store_has_empty_lists, test_folder_open, test_folder_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
