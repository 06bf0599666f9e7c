/* folder: profiles */
/* The profile store: hand-computed summaries, round trips, transactions, several writers at once. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tandem/advanced/store.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

/* --- A directory for each test -------------------------------------------------------------------------- */
static tandem_store *open_store(const char *path, tandem_store_mode mode)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    require_ok(tandem_store_open(&store, path, mode, &error), &error);
    assert_non_null(store);
    return store;
}

static tandem_cost_key op_key_store(const char *signature)
{
    tandem_cost_key key = {.kind = TANDEM_COST_OP,
                           .precision = "int8",
                           .pass = TANDEM_PASS_WGRAD,
                           .from = TANDEM_S8,
                           .to = TANDEM_F32};
    (void)snprintf(key.signature, sizeof key.signature, "%s", signature);
    return key;
}

static tandem_cost cost_of_store(int64_t ns) /* two repetitions */
{
    tandem_cost cost;
    int64_t sample[2] = {ns, ns + 10};
    tandem_cost_from_samples(&cost, sample, 2, 7);
    return cost;
}

static void put_store(tandem_store *store, const char *device, const char *co_runner,
                      const tandem_cost_key *key, int64_t ns)
{
    tandem_error error = {0};
    const tandem_cost cost = cost_of_store(ns);
    require_ok(tandem_store_put_cost(store, device, co_runner, key, &cost, &error), &error);
}

static tandem_status count_cost_store(void *n, const tandem_cost_key *key, const tandem_cost *cost,
                                      tandem_error *error)
{
    (void)key, (void)cost, (void)error;
    ++*(int64_t *)n;
    return TANDEM_OK;
}

static int64_t count_costs_of(tandem_store *store, const char *device, const char *co_runner,
                              const tandem_step *step)
{
    int64_t n = 0;
    tandem_error error = {0};
    require_ok(tandem_store_visit_costs(store, device, co_runner, step, count_cost_store, &n, &error),
               &error);
    return n;
}

static int64_t count_costs(tandem_store *store, const char *device)
{
    return count_costs_of(store, device, "", NULL);
}

/* One number by SQL of our own, past the library. */
static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &row, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    const int64_t value = sqlite3_column_int64(row, 0);
    (void)sqlite3_finalize(row);
    (void)sqlite3_close(db);
    return value;
}

/* --- Summaries ------------------------------------------------------------------------------------------ */
static void samples_are_summarised(void **state)
{
    tandem_cost cost;
    int64_t sample[] = {300, 700, 100, 150, 200}; /* median 200: 700 > 600 is an interruption */
    tandem_cost_from_samples(&cost, sample, 5, 64);
    assert_int_equal(cost.n, 4);
    assert_int_equal(cost.n_outlier, 1);
    assert_true(cost.sum_ns == 750.0);
    assert_true(cost.sum_squares_ns2 == 162500.0); /* 100² + 150² + 200² + 300² */
    assert_int_equal(cost.median_ns, 175);
    assert_int_equal(cost.p10_ns, 100);
    assert_int_equal(cost.p90_ns, 300);
    assert_int_equal(cost.workspace_bytes, 64);
    assert_int_equal(tandem_cost_mean_ns(&cost), 188); /* 187.5 */

    int64_t edge[] = {300, 100, 100}; /* three times the median is not over it */
    tandem_cost_from_samples(&cost, edge, 3, 0);
    assert_int_equal(cost.n, 3);
    assert_int_equal(cost.median_ns, 100);

    int64_t one[] = {42};
    tandem_cost_from_samples(&cost, one, 1, 0);
    assert_int_equal(cost.n, 1);
    assert_int_equal(cost.p10_ns, 42);
    assert_int_equal(cost.p90_ns, 42);

    int64_t ten[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1}; /* median 5.5 → 5; outliers over 15: none */
    tandem_cost_from_samples(&cost, ten, 10, 0);
    assert_int_equal(cost.median_ns, 5);
    assert_int_equal(cost.p10_ns, 1);
    assert_int_equal(cost.p90_ns, 9);

    int64_t
        hundred[100]; /* tables of the sign test: the 40th to the 61st hold the median in 96.5 of 100 cases */
    for (int k = 0; k < 100; k++) hundred[k] = 200 - k;
    tandem_cost_from_samples(&cost, hundred, 100, 0);
    assert_int_equal(cost.low_ns, 140);
    assert_int_equal(cost.high_ns, 161);
    assert_int_equal(cost.n_disturbed, 0);

    int64_t huge[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX};
    tandem_cost_from_samples(&cost, huge, 3, 0);
    assert_int_equal(cost.n, 3);
    assert_int_equal(cost.median_ns, INT64_MAX);

    tandem_cost_from_samples(&cost, one, 0, 0);
    assert_int_equal(cost.n, 0);
    assert_int_equal(tandem_cost_mean_ns(&cost), 0);
}

static void keys_have_a_text(void **state)
{
    char text[TANDEM_COST_KEY_TEXT];
    tandem_cost_key key = op_key_store("linear m=8 k=784 n=256");
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "linear m=8 k=784 n=256 | int8 | wgrad | s8>f32");
    key = (tandem_cost_key){.kind = TANDEM_COST_CAST, .from = TANDEM_F32, .to = TANDEM_S8, .elements = 1024};
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "cast n=1024 | f32>s8");
    key.range_source = TANDEM_RANGE_KNOWN;
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "cast n=1024 | f32>s8 | known range");
    key.range_source = TANDEM_RANGE_DELAYED;
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "cast n=1024 | f32>s8 | delayed");
    key.transposed_copy = 1;
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "cast n=1024 | f32>s8 | delayed | transposed");
    key = (tandem_cost_key){.kind = TANDEM_COST_COLLECTIVE, .elements = INT64_MIN, .from = TANDEM_F32};
    tandem_cost_key_print(text, sizeof text, &key);
    assert_string_equal(text, "all-reduce n=-9223372036854775808 | f32");
    memset(text, 'x', sizeof text);
    tandem_cost_key_print(text, 5, &key);
    assert_string_equal(text, "all-");
    tandem_cost_key_print(text, 0, &key);
    assert_string_equal(text, "all-");
    key = op_key_store("");
    memset(key.signature, 's', sizeof key.signature - 1);
    key.precision = "int8_full";
    tandem_cost_key_print(text, sizeof text, &key);
    assert_non_null(strstr(text, "sss | int8_full | wgrad | s8>f32"));
}

/* --- Round trips ---------------------------------------------------------------------------------------- */
static void costs_come_back(void **state)
{
    const test_folder *const p = *state;
    tandem_store *store = open_store(p->path, TANDEM_STORE_WRITE);
    tandem_cost_key op = op_key_store("linear m=1 k=2 n=3"),
                    cast = {.kind = TANDEM_COST_CAST, .from = TANDEM_F32, .to = TANDEM_S8, .elements = 9};
    put_store(store, "cpu:avx2", "", &op, 1000);
    put_store(store, "cpu:avx2", "", &op, 2000); /* replaces */
    put_store(store, "cpu:avx2", "cpu:avx512", &op, 3000);
    put_store(store, "cpu:sse41", "", &op, 4000);
    put_store(store, "cpu:avx2", "", &cast, 5000);
    cast.range_source = TANDEM_RANGE_KNOWN;
    put_store(store, "cpu:avx2", "", &cast, 6000);
    cast.range_source = TANDEM_RANGE_DELAYED;
    put_store(store, "cpu:avx2", "", &cast, 7000);
    cast.transposed_copy = 1;
    put_store(store, "cpu:avx2", "", &cast, 8000);
    tandem_store_close(store);

    store = open_store(p->path, TANDEM_STORE_READ);
    tandem_cost_table *table = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_store_load_costs(&table, store, "cpu:avx2", "", NULL, &error), TANDEM_OK);
    assert_int_equal(count_costs(store, "cpu:avx2"), 5);
    const tandem_cost *const found = tandem_cost_table_find(table, &op);
    assert_non_null(found);
    const tandem_cost expected = cost_of_store(2000);
    assert_memory_equal(found, &expected, sizeof expected);
    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &cast)), 8005);
    cast.transposed_copy = 0;
    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &cast)), 7005);
    cast.range_source = TANDEM_RANGE_KNOWN;
    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &cast)), 6005);
    cast.range_source = TANDEM_RANGE_FOUND;
    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &cast)), 5005);
    op.pass = TANDEM_PASS_DGRAD;
    assert_null(tandem_cost_table_find(table, &op));
    op.pass = TANDEM_PASS_WGRAD;
    op.to = TANDEM_BF16;
    assert_null(tandem_cost_table_find(table, &op));
    tandem_cost_table_free(table);
    op.to = TANDEM_F32;
    assert_int_equal(tandem_store_load_costs(&table, store, "cpu:avx2", "cpu:avx512", NULL, &error),
                     TANDEM_OK);
    assert_int_equal(count_costs_of(store, "cpu:avx2", "cpu:avx512", NULL), 1);
    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &op)), 3005);
    tandem_cost_table_free(table);
    assert_int_equal(count_costs(store, "never seen"), 0);
    assert_null(tandem_cost_table_find(NULL, &op));
    tandem_cost_table_free(NULL);
    tandem_store_close(store);
    tandem_store_close(NULL);
}

static void thousands_of_costs_are_found(void **state)
{
    enum { N = 5000 };
    const test_folder *const p = *state;
    tandem_error error = {0};
    char signature[64];
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_OK);
    for (int i = 0; i < N; i++) {
        (void)snprintf(signature, sizeof signature, "linear m=%d", i);
        const tandem_cost_key key = op_key_store(signature);
        put_store(store, "cpu:avx2", "", &key, 100 + i);
    }
    assert_int_equal(tandem_store_commit(store, &error), TANDEM_OK);
    tandem_cost_table *table = NULL;
    assert_int_equal(tandem_store_load_costs(&table, store, "cpu:avx2", "", NULL, &error), TANDEM_OK);
    assert_int_equal(count_costs(store, "cpu:avx2"), N);
    for (int i = 0; i < N; i++) {
        (void)snprintf(signature, sizeof signature, "linear m=%d", i);
        const tandem_cost_key key = op_key_store(signature);
        const tandem_cost *const found = tandem_cost_table_find(table, &key);
        assert_non_null(found);
        assert_int_equal(tandem_cost_mean_ns(found), 105 + i);
    }
    const tandem_cost_key absent = op_key_store("linear m=5000");
    assert_null(tandem_cost_table_find(table, &absent));
    tandem_cost_table_free(table);
    tandem_store_close(store);
}

/* What a step program can ask for is loaded, all of it, and nothing else. */
static void a_step_loads_its_own_costs(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    assert_int_equal(tandem_graph_open(&graph, "mlp:width=4,depth=1,image=2x2x1,classes=2", 4, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_step_open(&step, graph, TANDEM_F32, 0, &error), TANDEM_OK);
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_OK);
    const tandem_cost_key other = op_key_store("linear m=4 k=4 n=5"),
                          another = {
                              .kind = TANDEM_COST_CAST, .from = TANDEM_F32, .to = TANDEM_S8, .elements = 999};
    put_store(store, "cpu:avx2", "", &other, 1);
    put_store(store, "cpu:avx2", "", &another, 1);
    int n_variant = 0;
    for (int fill = 1; fill >= 0; fill--) {
        tandem_cost_table *table = NULL;
        if (!fill)
            assert_int_equal(tandem_store_load_costs(&table, store, "cpu:avx2", "", step, &error), TANDEM_OK);
        for (int t = 0; t < step->n_task; t++)
            for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
                tandem_cost_key key;
                if (!tandem_step_cost_key(step, t, variant, &key) || key.kind == TANDEM_COST_COLLECTIVE)
                    continue;
                n_variant += fill;
                if (fill)
                    put_store(store, "cpu:avx2", "", &key, 100);
                else
                    assert_int_equal(tandem_cost_mean_ns(tandem_cost_table_find(table, &key)), 105);
            }
        if (fill) assert_int_equal(tandem_store_commit(store, &error), TANDEM_OK);
        if (!fill) {
            assert_null(tandem_cost_table_find(table, &other));
            assert_null(tandem_cost_table_find(table, &another));
            assert_int_equal(count_costs_of(store, "cpu:avx2", "", step), count_costs(store, "cpu:avx2") - 2);
        }
        tandem_cost_table_free(table);
    }
    assert_true(n_variant > 50);
    int64_t n = 0;
    assert_int_equal(tandem_store_count_costs(&n, store, &error), TANDEM_OK);
    assert_int_equal(n, count_costs(store, "cpu:avx2"));
    tandem_store_close(store);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static void a_machine_s_steadiness_is_kept(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    const tandem_steadiness put = {16000, 21000, 0.01, 0.02, 0.25, NAN, 0.03}, wrong = {.delay_share = -1};
    tandem_steadiness got = put;
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_get_steadiness(&got, store, "cpu:avx2", "", &error), TANDEM_OK);
    assert_true(got.compute_speed_sample_ns == 0 && isnan(got.delay_share) && isnan(got.interval_share));
    assert_int_equal(tandem_store_put_steadiness(store, "cpu:avx2", "", &put, &error), TANDEM_OK);
    assert_int_equal(tandem_store_put_steadiness(store, "cpu:avx2", "", &wrong, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_get_steadiness(&got, store, "cpu:avx2", "cpu:sse41", &error), TANDEM_OK);
    assert_int_equal(got.memory_speed_sample_ns, 0);
    assert_int_equal(tandem_store_get_steadiness(&got, store, "cpu:avx2", "", &error), TANDEM_OK);
    assert_true(got.compute_speed_sample_ns == 16000 && got.memory_speed_sample_ns == 21000 &&
                got.delay_share > 0.2 && isnan(got.steal_share) && got.interval_share > 0.02);
    tandem_store_close(store);
}

static void store_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Of another version: nothing of it is read, written or changed, and a command for a new one is named. */
static void a_store_of_another_version_is_refused(void **state)
{
    static const int versions[] = {1, 5, 6, 9, 11};
    const test_folder *const p = *state;
    tandem_cost_key key = op_key_store("a");
    tandem_store *store = open_store(p->path, TANDEM_STORE_WRITE);
    put_store(store, "cpu:avx2", "", &key, 100);
    tandem_store_close(store);
    for (size_t i = 0; i < N_OF(versions); i++)
        for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
            char text[64];
            tandem_error error = {0};
            (void)snprintf(text, sizeof text, "PRAGMA user_version = %d", versions[i]);
            store_sql(p->path, text);
            assert_int_equal(tandem_store_open(&store, p->path, (tandem_store_mode)mode, &error),
                             TANDEM_WRONG_FORMAT);
            (void)snprintf(text, sizeof text, "has schema version %d, this tandem has 10", versions[i]);
            assert_non_null(strstr(error.text, text));
            assert_non_null(strstr(error.text, "`tandem profile --db FILE` makes a new one"));
            assert_int_equal(ask(p->path, "PRAGMA user_version"), versions[i]);
            assert_int_equal(ask(p->path, "SELECT count(*) FROM op_cost"), 1);
        }
}

/* A copy of the one file has it, also while another process has the store open. */
static void a_closed_store_is_one_file(void **state)
{
    const test_folder *const p = *state;
    char log[128];
    struct stat found;
    sqlite3 *other = NULL;
    const tandem_cost_key key = op_key_store("a");
    tandem_store_close(open_store(p->path, TANDEM_STORE_WRITE));
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    put_store(store, "cpu:avx2", "", &key, 100);
    assert_int_equal(sqlite3_open(p->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "SELECT count(*) FROM op_cost", NULL, NULL, NULL), SQLITE_OK);
    tandem_store_close(store);
    (void)snprintf(log, sizeof log, "%s-wal", p->path);
    assert_int_equal(stat(log, &found), 0);
    assert_int_equal(found.st_size, 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static void rows_know_who_and_when(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    const int64_t before = (int64_t)time(NULL) * 1000000000;
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    const tandem_cost_key a = op_key_store("a"), b = op_key_store("b"), c = op_key_store("c");
    put_store(store, "cpu:avx2", "", &a, 1);
    assert_int_equal(tandem_store_set_environment(store, "oneDNN 2.6.3", 3, &error), TANDEM_OK);
    put_store(store, "cpu:avx2", "", &b, 1);
    put_store(store, "cpu:avx2", "", &c, 1);
    for (int mhz = 1500; mhz <= 1980; mhz += 480)
        assert_int_equal(tandem_store_put_clocks(store, "cuda:0", mhz, 3201, &error), TANDEM_OK);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM clock JOIN device ON device.id = clock.device WHERE "
                                  "name = 'cuda:0' AND "
                                  "memory_mhz = 3201"),
                     2);
    assert_int_equal(ask(p->path, "SELECT max(compute_mhz) - min(compute_mhz) FROM clock"), 480);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM host"), 2);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM op_cost JOIN host ON host.id = op_cost.host "
                                  "WHERE libraries = 'oneDNN 2.6.3' AND n_thread = 3"),
                     2);
    assert_in_range(ask(p->path, "SELECT min(time_ns) FROM op_cost"), before, before + INT64_C(600000000000));
    assert_int_equal(ask(p->path, "SELECT count(*) FROM host WHERE length(name_hash) = 16"), 2);
    assert_int_equal(ask(p->path, "PRAGMA application_id"), 0x746e646d);
    assert_int_equal(ask(p->path, "PRAGMA user_version"), 10);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

static void algorithms_are_replaced_and_come_back(void **state)
{
    enum { MANY = 300 }; /* more than one allocation holds */
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_algorithm *known = NULL, one[MANY];
    char spec[MANY][64];
    int n = -1;
    tandem_store *store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_load_algorithms(&known, &n, store, &error), TANDEM_OK);
    assert_int_equal(n, 0);
    assert_null(known);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(spec[i], sizeof spec[i], "a card, a library 1.2 | product number %03d", i);
        one[i] = (tandem_algorithm){spec[i], "first"};
    }
    assert_int_equal(tandem_store_put_algorithms(store, one, MANY, &error), TANDEM_OK);
    assert_int_equal(tandem_store_put_algorithms(store, &(tandem_algorithm){spec[7], "second"}, 1, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_store_put_algorithms(store, NULL, 0, &error), TANDEM_OK);
    tandem_store_close(store);
    store = open_store(p->path, TANDEM_STORE_READ);
    assert_int_equal(tandem_store_put_algorithms(store, one, 1, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_load_algorithms(&known, &n, store, &error), TANDEM_OK);
    tandem_store_close(store);
    assert_int_equal(n, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_string_equal(known[i].spec, spec[i]);
        assert_string_equal(known[i].choice, i == 7 ? "second" : "first");
    }
    free(known);
}

static void collectives_come_back_in_order(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    for (int i = 0; i < 40; i++) { /* descending, more than one allocation holds */
        const tandem_collective_point point = {(uint64_t)(40 - i) * 1000, cost_of_store(100 * (40 - i))};
        assert_int_equal(tandem_store_put_collective(store, "2*a", "all-reduce", 0, &point, &error),
                         TANDEM_OK);
    }
    const tandem_collective_point busy = {1000, cost_of_store(9)};
    assert_int_equal(tandem_store_put_collective(store, "2*a", "all-reduce", 1, &busy, &error), TANDEM_OK);
    tandem_collective_point *points = NULL;
    int n = -1;
    assert_int_equal(tandem_store_load_collective(&points, &n, store, "2*a", "all-reduce", 0, &error),
                     TANDEM_OK);
    assert_int_equal(n, 40);
    for (int i = 0; i < n; i++) {
        assert_int_equal(points[i].bytes, (uint64_t)(i + 1) * 1000);
        assert_int_equal(tandem_cost_mean_ns(&points[i].cost), 100 * (i + 1) + 5);
    }
    free(points);
    assert_int_equal(tandem_store_load_collective(&points, &n, store, "2*a", "all-reduce", 1, &error),
                     TANDEM_OK);
    assert_int_equal(n, 1);
    free(points);
    assert_int_equal(tandem_store_load_collective(&points, &n, store, "2*b", "all-reduce", 0, &error),
                     TANDEM_OK);
    assert_int_equal(n, 0);
    assert_null(points);
    const tandem_collective_point huge = {UINT64_MAX, cost_of_store(9)};
    assert_int_equal(tandem_store_put_collective(store, "2*a", "all-reduce", 0, &huge, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_put_collective(store, "", "all-reduce", 0, &busy, &error), TANDEM_USAGE);
    tandem_store_close(store);
}

static void interference_comes_back(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    double factor = -1;
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    const char *const kind = "compute_under_comm";
    static const struct {
        uint64_t bytes;
        double factor;
    } nearest[] = {{0, 1.5}, {4096, 1.5}, {8000, 1.5}, {9000, 1.75}, {INT64_MAX, 1.75}};
    assert_int_equal(tandem_store_get_interference(&factor, store, "a", "a+b", kind, 4096, &error),
                     TANDEM_MISSING);
    assert_true(factor == -1);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 4096, 1.25, 30, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 4096, 1.5, 30, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 12288, 1.75, 30, &error),
                     TANDEM_OK);
    for (size_t i = 0; i < sizeof nearest / sizeof nearest[0]; i++) {
        assert_int_equal(
            tandem_store_get_interference(&factor, store, "a", "a+b", kind, nearest[i].bytes, &error),
            TANDEM_OK);
        assert_true(factor == nearest[i].factor);
    }
    assert_int_equal(tandem_store_get_interference(&factor, store, "b", "a+b", kind, 4096, &error),
                     TANDEM_MISSING);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 4096, NAN, 30, &error),
                     TANDEM_USAGE);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 4096, 0, 30, &error),
                     TANDEM_USAGE);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, 4096, 1, 0, &error),
                     TANDEM_USAGE);
    assert_int_equal(tandem_store_put_interference(store, "a", "a+b", kind, UINT64_MAX, 1, 1, &error),
                     TANDEM_USAGE);
    tandem_store_close(store);
}

static const tandem_statistics statistics_example = {
    .n_batch = 5,
    .local_batch = 8,
    .rows = 8,
    .k = 784,
    .columns = 256,
    .x_elements = 6272,
    .w_elements = 200704,
    .x_amax = 1.5,
    .w_amax = 0.25,
    .g_amax = 1e-30,
    .x_square = 2,
    .w_square = 3,
    .g_square = 4,
    .wgrad_square = 5,
    .dgrad_square = 6,
    .g2_w2 = 7,
    .g2_x2 = 8,
    .g2_x2_c = 9,
    .x2_g2_d = 1e300,
};

/* Which number an operator has is this version's affair. */
static void statistics_go_by_the_name_of_an_operator(void **state)
{
    const test_folder *const p = *state;
    tandem_graph *const graph = open_graph("mlp", 8);
    const int fc1 = op_of(graph, "fc1");
    tandem_statistics read[64];
    tandem_store *store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_put_statistics(store, graph, "d", fc1, &statistics_example, NULL),
                     TANDEM_OK);
    tandem_store_close(store);
    static const char renumber[] = "UPDATE statistics SET op = op + 1 RETURNING op";
    assert_int_equal(ask(p->path, renumber), fc1 + 1);
    store = open_store(p->path, TANDEM_STORE_WRITE);
    assert_int_equal(tandem_store_load_statistics(read, store, graph, "d", NULL), TANDEM_OK);
    assert_memory_equal(&read[fc1], &statistics_example, sizeof read[fc1]);
    assert_int_equal(read[fc1 + 1].n_batch, 0);
    assert_int_equal(tandem_store_put_statistics(store, graph, "d", fc1, &statistics_example, NULL),
                     TANDEM_OK);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM statistics"), 1);
    tandem_graph_close(graph);
}

static void statistics_come_back(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_graph *const graph = open_graph("mlp", 8), *const other = open_graph("mlp:width=64", 8);
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    tandem_statistics read[64], one = statistics_example;
    assert_true(graph->n_op <= 64);
    memset(read, 0x55, sizeof read);
    assert_int_equal(tandem_store_load_statistics(read, store, graph, NULL, &error), TANDEM_MISSING);
    assert_int_equal(read[0].n_batch, 0x5555555555555555);

    const int fc1 = op_of(graph, "fc1"), fc2 = op_of(graph, "fc2");
    assert_int_equal(tandem_store_put_statistics(store, graph, "fashion-mnist", fc1, &one, &error),
                     TANDEM_OK);
    assert_int_equal(tandem_store_put_statistics(store, graph, "fashion-mnist", fc2, &one, &error),
                     TANDEM_OK);
    one.n_batch = 77;
    assert_int_equal(tandem_store_put_statistics(store, graph, "other", fc2, &one, &error), TANDEM_OK);
    assert_int_equal(tandem_store_load_statistics(read, store, graph, "fashion-mnist", &error), TANDEM_OK);
    for (int op = 0; op < graph->n_op; op++) {
        if (op == fc1 || op == fc2)
            assert_memory_equal(&read[op], &statistics_example, sizeof read[op]);
        else
            assert_int_equal(read[op].n_batch, 0);
    }
    /* any data: what was measured last, and nothing of the rest */
    assert_int_equal(tandem_store_load_statistics(read, store, graph, NULL, &error), TANDEM_OK);
    assert_int_equal(read[fc2].n_batch, 77);
    assert_int_equal(read[fc1].n_batch, 0);
    assert_int_equal(tandem_store_load_statistics(read, store, graph, "third", &error), TANDEM_MISSING);
    assert_int_equal(tandem_store_load_statistics(read, store, other, NULL, &error), TANDEM_MISSING);

    one.g2_w2 = NAN;
    assert_int_equal(tandem_store_put_statistics(store, graph, "other", fc2, &one, &error), TANDEM_USAGE);
    one.g2_w2 = 0;
    assert_int_equal(tandem_store_put_statistics(store, graph, "other", graph->n_op, &one, &error),
                     TANDEM_USAGE);
    assert_int_equal(tandem_store_put_statistics(store, graph, "other", graph->loss, &one, &error),
                     TANDEM_USAGE);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM model"), 1);
    tandem_graph_close(graph);
    tandem_graph_close(other);
}

static void runs_are_recorded(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    int64_t first = -1, second = -1;
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    tandem_run_record run = {.model = "mlp",
                             .cluster = "a + b",
                             .plan_name = "allocated",
                             .plan_json = "{}",
                             .graph_hash = UINT64_MAX,
                             .steps = 10,
                             .measured_ns = 1234,
                             .sensitivity = 0.5,
                             .final_loss = NAN,
                             .accuracy = 0.875};
    assert_int_equal(tandem_store_put_run(store, &run, &first, &error), TANDEM_OK);
    run.exit_code = 6;
    assert_int_equal(tandem_store_put_run(store, &run, &second, &error), TANDEM_OK);
    assert_int_not_equal(first, second);
    const tandem_event_record event[] = {{0, 0, -1, "update", "compute", 5, 6},
                                         {0, 1, 3, "forward", "compute", 1, 2},
                                         {1, 0, 3, "forward", "compute", 1, 2}};
    assert_int_equal(tandem_store_put_events(store, first, event, 3, &error), TANDEM_OK);
    assert_int_equal(tandem_store_put_events(store, second + 100, event, 3, &error), TANDEM_USAGE);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM plan"), 1);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM run WHERE predicted_ns IS NULL AND final_loss IS "
                                  "NULL AND "
                                  "measured_ns = 1234 AND accuracy = 0.875"),
                     2);
    assert_int_equal(ask(p->path, "SELECT sum(exit_code) FROM run"), 6);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM model WHERE hash = 'ffffffffffffffff'"), 1);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM event WHERE op IS NULL"), 1);
    assert_int_equal(ask(p->path, "SELECT sum(duration_ns) FROM event"), 10);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/* --- Refusals ------------------------------------------------------------------------------------------- */
static void what_is_no_measurement_is_refused(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    const tandem_cost_key key = op_key_store("a");
    const tandem_cost good = cost_of_store(5);
    tandem_cost bad[5] = {good, good, good, good, good};
    bad[0].n = 0;
    bad[1].sum_ns = NAN;
    bad[2].sum_squares_ns2 = INFINITY;
    bad[3].median_ns = -1;
    bad[4].workspace_bytes = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        error = (tandem_error){0};
        assert_int_equal(tandem_store_put_cost(store, "d", "", &key, &bad[i], &error), TANDEM_USAGE);
        assert_int_equal(error.status, TANDEM_USAGE);
    }
    tandem_cost_key odd = op_key_store("");
    assert_int_equal(tandem_store_put_cost(store, "d", "", &odd, &good, &error), TANDEM_USAGE);
    odd.kind = TANDEM_COST_COLLECTIVE;
    assert_int_equal(tandem_store_put_cost(store, "d", "", &odd, &good, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_put_cost(store, "", "", &key, &good, &error), TANDEM_USAGE);
    assert_int_equal(count_costs(store, "d"), 0);
    tandem_store_close(store);
}

static void reading_writes_nothing(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_store *const unchanged = (tandem_store *)(uintptr_t)16;
    tandem_store *store = unchanged;
    assert_int_equal(tandem_store_open(&store, p->path, TANDEM_STORE_READ, &error), TANDEM_MISSING);
    assert_ptr_equal(store, unchanged);
    assert_non_null(strstr(error.text, "tandem profile"));
    assert_int_equal(count_files(p->folder), 0);

    tandem_store_close(open_store(p->path, TANDEM_STORE_WRITE));
    assert_int_equal(count_files(p->folder), 1);
    store = open_store(p->path, TANDEM_STORE_READ);
    const tandem_cost_key key = op_key_store("a");
    const tandem_cost cost = cost_of_store(5);
    assert_int_equal(tandem_store_put_cost(store, "d", "", &key, &cost, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_USAGE);
    tandem_store_close(store);
    assert_int_equal(count_files(p->folder), 1);

    store = unchanged;
    assert_int_equal(tandem_store_open(&store, p->folder, TANDEM_STORE_READ, &error), TANDEM_IO);
    assert_int_equal(tandem_store_open(&store, "", TANDEM_STORE_WRITE, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_open(&store, "/nonexistent/x/tandem.db", TANDEM_STORE_WRITE, &error),
                     TANDEM_IO);
    assert_int_equal(tandem_store_open(&store, "/nonexistent/x/tandem.db", TANDEM_STORE_READ, &error),
                     TANDEM_MISSING);
    assert_ptr_equal(store, unchanged);
}

/* Names that SQLite gives a meaning of its own are files like all others. */
static void odd_paths_are_files(void **state)
{
    const test_folder *const p = *state;
    static const char *const names[] = {":memory:", "file:x?mode=memory", "100% #1?.db"};
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(p->folder), 0);
    for (size_t i = 0; i < 3; i++) {
        const tandem_cost_key key = op_key_store("a");
        tandem_store *store = open_store(names[i], TANDEM_STORE_WRITE);
        put_store(store, "d", "", &key, 5);
        tandem_store_close(store);
        assert_int_equal(access(names[i], F_OK), 0);
        store = open_store(names[i], TANDEM_STORE_READ);
        assert_int_equal(count_costs(store, "d"), 1);
        tandem_store_close(store);
    }
    assert_int_equal(chdir(before), 0);
    assert_int_equal(count_files(p->folder), 3);
}

/* A file without tables becomes a store, whatever made it: a process killed while it made one, or `touch`. */
static void an_empty_file_becomes_a_store(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_store *store = NULL;
    FILE *const file = fopen(p->path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tandem_store_open(&store, p->path, TANDEM_STORE_READ, &error), TANDEM_MISSING);
    tandem_store_close(open_store(p->path, TANDEM_STORE_WRITE));
    tandem_store_close(open_store(p->path, TANDEM_STORE_READ));
}

/* Runs `inside` in a child, as a user without rights where we are root; its result. −1 where that cannot
 * be had. */
static int run_as_nobody(int (*inside)(const test_folder *), const test_folder *p)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
        _exit(inside(p));
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how) == 99 ? -1 : WEXITSTATUS(how);
}

static int read_sealed(const test_folder *p)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    int64_t n = 0;
    if (tandem_store_open(&store, p->path, TANDEM_STORE_READ, &error) != TANDEM_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const tandem_status loaded = tandem_store_visit_costs(store, "d", "", NULL, count_cost_store, &n, &error);
    tandem_store_close(store);
    if (loaded != TANDEM_OK || n != 1) return 2;
    return tandem_store_open(&store, p->path, TANDEM_STORE_WRITE, &error) == TANDEM_IO ? 0 : 3;
}

static void a_sealed_folder_can_be_read(void **state)
{
    const test_folder *const p = *state;
    const tandem_cost_key key = op_key_store("a");
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    put_store(store, "d", "", &key, 5);
    tandem_store_close(store);
    assert_int_equal(chmod(p->path, 0444), 0);
    assert_int_equal(chmod(p->folder, 0555), 0);
    const int result = run_as_nobody(read_sealed, p);
    assert_int_equal(chmod(p->folder, 0755), 0);
    if (result < 0) {
        (void)printf("SKIP: no right to become another user\n");
        skip();
    }
    assert_int_equal(result, 0);
    assert_int_equal(count_files(p->folder), 1);
}

/* --- Transactions and several writers ------------------------------------------------------------------- */
static void transactions_are_whole(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    const tandem_cost_key a = op_key_store("a"), b = op_key_store("b");
    const tandem_cost bad = {0};
    assert_int_equal(tandem_store_commit(store, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_OK);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_USAGE);
    put_store(store, "d", "", &a, 5);
    assert_int_equal(count_costs(store, "d"), 1);
    tandem_store_rollback(store);
    tandem_store_rollback(store);
    assert_int_equal(count_costs(store, "d"), 0);
    /* the row of the host went with it, and comes back with the next */
    put_store(store, "d", "", &a, 5);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_OK);
    put_store(store, "d", "", &b, 5);
    assert_int_equal(tandem_store_put_cost(store, "d", "", &b, &bad, &error), TANDEM_USAGE);
    const tandem_event_record event = {.kind = "forward", .stream = "compute"};
    /* a savepoint undone */
    assert_int_equal(tandem_store_put_events(store, 1, &event, 1, &error), TANDEM_USAGE);
    assert_int_equal(tandem_store_commit(store, &error), TANDEM_OK);
    assert_int_equal(count_costs(store, "d"), 2);
    assert_int_equal(tandem_store_begin(store, &error), TANDEM_OK);
    put_store(store, "e", "", &b, 5);
    tandem_store_close(store); /* without commit */
    assert_int_equal(ask(p->path, "SELECT count(*) FROM op_cost"), 2);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

/* A run with an event: a read before the write, in one transaction. */
static tandem_status put_run(tandem_store *store, tandem_error *error)
{
    int64_t id = 0;
    const tandem_run_record run = {.model = "mlp", .cluster = "a", .plan_name = "x"};
    const tandem_event_record event = {.kind = "forward", .stream = "compute"};
    const tandem_status status = tandem_store_put_run(store, &run, &id, error);
    return status == TANDEM_OK ? tandem_store_put_events(store, id, &event, 1, error) : status;
}

static int write_costs(const char *path, int writer, int n)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    char signature[64];
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, &error);
    for (int i = 0; i < n && status == TANDEM_OK; i++) {
        (void)snprintf(signature, sizeof signature, "writer=%d n=%d", writer, i);
        const tandem_cost_key key = op_key_store(signature);
        const tandem_cost cost = cost_of_store(i);
        status = tandem_store_put_cost(store, "d", "", &key, &cost, &error);
        if (status == TANDEM_OK) status = put_run(store, &error);
    }
    tandem_store_close(store);
    if (status != TANDEM_OK) (void)fprintf(stderr, "writer %d: %s\n", writer, error.text);
    return status == TANDEM_OK ? 0 : 1;
}

static void writers_share_the_store(void **state)
{
    enum { WRITERS = 4, EACH = 200 };
    const test_folder *const p = *state;
    pid_t child[WRITERS];
    for (int w = 0; w < WRITERS; w++) { /* none of them finds a store */
        child[w] = fork();
        assert_true(child[w] >= 0);
        if (child[w] == 0) _exit(write_costs(p->path, w, EACH));
    }
    for (int w = 0; w < WRITERS; w++) {
        int how = 0;
        assert_int_equal(waitpid(child[w], &how, 0), child[w]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    tandem_store *const store = open_store(p->path, TANDEM_STORE_READ);
    assert_int_equal(count_costs(store, "d"), WRITERS * EACH);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM host"), 1);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM event"), WRITERS * EACH);
    assert_int_equal(
        ask(p->path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
}

/* --- Trials --------------------------------------------------------------------------------------------- */
static void branches_come_back(void **state)
{
    const test_folder *const p = *state;
    const double first[] = {2.5, NAN, 1.25}, later[] = {3, 2, 1};
    const tandem_branch_record put = {.model = "m",
                                      .graph_hash = 9,
                                      .hash = UINT64_MAX,
                                      .n_step = 3,
                                      .held_out = 1.5,
                                      .held_out_in_base = NAN};
    tandem_branch_record got = {.hash = UINT64_MAX, .n_step = 3}, other = {.hash = UINT64_MAX, .n_step = 2};
    double *loss = NULL;
    tandem_error error = {0};
    tandem_store *store = open_store(p->path, TANDEM_STORE_WRITE);
    require_ok(tandem_store_put_branch(store, &put, first, &error), &error);
    require_ok(tandem_store_load_branch(&got, &loss, store, &error), &error);
    assert_true(loss[0] == 2.5 && isnan(loss[1]) && loss[2] == 1.25);
    assert_true(got.held_out == 1.5 && isnan(got.held_out_in_base));
    free(loss);
    require_ok(tandem_store_load_branch(&other, &loss, store, &error), &error);
    assert_null(loss); /* of another number of steps */
    require_ok(tandem_store_put_branch(store, &put, later, &error), &error);
    require_ok(tandem_store_load_branch(&got, &loss, store, &error), &error);
    assert_true(loss[0] == 3 && loss[2] == 1);
    free(loss);
    tandem_store_close(store);
    assert_int_equal(ask(p->path, "SELECT count(*) FROM branch_loss"), 3);
    store_sql(p->path, "DELETE FROM branch_loss WHERE step = 1");
    store = open_store(p->path, TANDEM_STORE_READ);
    loss = NULL;
    assert_int_equal(tandem_store_load_branch(&got, &loss, store, &error), TANDEM_MALFORMED);
    assert_null(loss);
    tandem_store_close(store);
}

static void trials_come_back_in_order(void **state)
{
    const test_folder *const p = *state;
    char text[] = "{}";
    tandem_trial_record trial = {.plan_hash = 7,
                                 .plan = text,
                                 .data = "d",
                                 .base = "fp32",
                                 .n_step = 20,
                                 .n_pair = 3,
                                 .extra = 0.5,
                                 .extra_low = -INFINITY,
                                 .extra_high = INFINITY},
                        *all = NULL;
    int n = -1;
    tandem_error error = {0};
    tandem_store *const store = open_store(p->path, TANDEM_STORE_WRITE);
    require_ok(tandem_store_load_trials(&all, &n, store, 9, &error), &error);
    assert_true(n == 0 && !all);
    require_ok(tandem_store_put_trial(store, "m", 9, &trial, &error), &error);
    trial.extra = 0.25; /* of the same plan, base and training */
    require_ok(tandem_store_put_trial(store, "m", 9, &trial, &error), &error);
    trial.n_pair = 2; /* replaces nothing */
    trial.extra = 0.75;
    require_ok(tandem_store_put_trial(store, "m", 9, &trial, &error), &error);
    trial.training = 8;
    trial.is_emulated = 1;
    trial.n_diverged = 2;
    require_ok(tandem_store_put_trial(store, "m", 9, &trial, &error), &error);
    require_ok(tandem_store_load_trials(&all, &n, store, 9, &error), &error);
    assert_int_equal(n, 2);
    assert_true(all[1].is_emulated && all[1].n_diverged == 2 && !all[0].is_emulated);
    assert_true(all[0].extra == 0.25 && all[0].extra_low == -INFINITY && all[0].extra_high == INFINITY &&
                all[0].plan_hash == 7);
    assert_string_equal(all[1].base, "fp32");
    assert_string_equal(all[0].plan, "{}");
    tandem_store_close_trials(all, n);
    for (uint64_t k = 0; k < TANDEM_STORE_TRIED_PLANS; k++) {
        trial.plan_hash = 100 + k;
        require_ok(tandem_store_put_trial(store, "m", 9, &trial, &error), &error);
    }
    require_ok(tandem_store_load_trials(&all, &n, store, 9, &error), &error);
    assert_int_equal(n, TANDEM_STORE_TRIED_PLANS + 2);
    assert_true(all[TANDEM_STORE_TRIED_PLANS - 1].plan && !all[TANDEM_STORE_TRIED_PLANS].plan);
    tandem_store_close_trials(all, n);
    tandem_store_close(store);
    /* A store of strangers may have a text of any length, and numbers that no trial has. */
    store_sql(p->path, "UPDATE trial SET plan = hex(zeroblob(1 << 20))");
    tandem_store *const of_strangers = open_store(p->path, TANDEM_STORE_READ);
    require_ok(tandem_store_load_trials(&all, &n, of_strangers, 9, &error), &error);
    assert_true(n == TANDEM_STORE_TRIED_PLANS + 2 && !all[0].plan);
    tandem_store_close_trials(all, n);
    tandem_store_close(of_strangers);
    store_sql(p->path, "UPDATE trial SET extra_high = 0.1");
    tandem_store *const damaged = open_store(p->path, TANDEM_STORE_READ);
    all = NULL;
    assert_int_equal(tandem_store_load_trials(&all, &n, damaged, 9, &error), TANDEM_MALFORMED);
    assert_true(!all && strstr(error.text, "a trial"));
    tandem_store_close(damaged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_summarised),
        cmocka_unit_test(keys_have_a_text),
        cmocka_unit_test_setup_teardown(costs_come_back, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(thousands_of_costs_are_found, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_step_loads_its_own_costs, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_machine_s_steadiness_is_kept, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_store_of_another_version_is_refused, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(rows_know_who_and_when, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(branches_come_back, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(trials_come_back_in_order, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(algorithms_are_replaced_and_come_back, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(collectives_come_back_in_order, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(interference_comes_back, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(statistics_come_back, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(statistics_go_by_the_name_of_an_operator, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(runs_are_recorded, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(what_is_no_measurement_is_refused, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(reading_writes_nothing, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(odd_paths_are_files, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(an_empty_file_becomes_a_store, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_sealed_folder_can_be_read, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(transactions_are_whole, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_closed_store_is_one_file, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(writers_share_the_store, test_folder_open, test_folder_close),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
