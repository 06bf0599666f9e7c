/* folder: replayer */
/* A store whose cells hold anything: texts in columns of numbers, NaN, negative and huge counts, blobs, rows
 * twice. All that reads the store is an error, or numbers within their ranges. The first byte says which
 * reader runs; the rest are edits of a good store whose tables have lost their constraints: table, row,
 * column, kind of value, and the value. */
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "profiles/store/store_handle.h"
#include "tandem/advanced/predictor.h"
#include "tandem/advanced/replayer.h"
#include "tandem/advanced/timings.h"
#include "tests/fuzz/fuzz_main.h"

static const char model[] = "mlp:width=4,depth=1,image=4x4x1,classes=2", device[] = "cpu:sse41",
                  data_set[] = "some";
static const struct {
    const char *name, *index; /* what look-ups go by */
} tables[] = {{"op_cost", "operator"},    {"cast_cost", "elements"}, {"collective_cost", "device_group"},
              {"interference", "device"}, {"statistics", "model"},   {"algorithm", "spec"},
              {"operator", "signature"},  {"device", "name"},        {"model", "hash"},
              {"steadiness", "device"},   {"timing_set", "device"},  {"timing", "timing_set"}};
enum { N_TABLE = sizeof tables / sizeof *tables, MAX_COLUMNS = 32, MAX_EDITS = 24 };

static struct {
    tandem_graph *graph;
    tandem_step *step;
    tandem_store *store;
    tandem_cluster cluster;
    tandem_device device;
    char group[TANDEM_GROUP_KEY_TEXT];
    int n_row[N_TABLE], n_column[N_TABLE];
    sqlite3_stmt *update[N_TABLE][MAX_COLUMNS], *again[N_TABLE];
} set;

static void execute(const char *sql)
{
    demand(sqlite3_exec(set.store->db, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
}

/* --- A good store --------------------------------------------------------------------------------------- */

static void fill_costs(const char *co_runner)
{
    for (int t = 0; t < set.step->n_task; t++)
        for (uint64_t forms = tandem_step_variants(set.step, t, set.device.precisions); forms;
             forms &= forms - 1) {
            const int variant = __builtin_ctzll(forms);
            tandem_cost_key key;
            tandem_cost cost;
            int64_t ns[2] = {1000 + 10 * t, 1200 + 10 * t + variant};
            if (set.step->task[t].kind == TANDEM_TASK_REDUCE ||
                !tandem_step_cost_key(set.step, t, variant, &key))
                continue;
            tandem_cost_from_samples(&cost, ns, 2, 64);
            demand(tandem_store_put_cost(set.store, device, co_runner, &key, &cost, NULL) == TANDEM_OK,
                   "a cost is filed");
        }
}

static void fill_rest(void)
{
    for (int k = 0; k < 6; k++) {
        tandem_collective_point point = {.bytes = (uint64_t)64 << 2 * k};
        int64_t ns[2] = {2000 << k, 2100 << k};
        tandem_cost_from_samples(&point.cost, ns, 2, 0);
        demand(tandem_store_put_collective(set.store, set.group, "all-reduce", k & 1, &point, NULL) ==
                   TANDEM_OK,
               "a point");
    }
    demand(tandem_store_put_interference(set.store, device, set.group, "compute_under_comm", 4096, 1.25, 3,
                                         NULL) == TANDEM_OK,
           "interference");
    const tandem_timing timing = {.source = "a table",
                                  .method = "loop",
                                  .kind = "add",
                                  .precision = "fp32",
                                  .rows = 64,
                                  .columns = 8,
                                  .time_ns = 5000,
                                  .flops = 512,
                                  .bytes = 6144};
    tandem_timing times[2] = {timing, timing};
    for (int k = 0; k < 2; k++) memcpy(times[k].device, device, sizeof device);
    times[1].time_ns = 7000;
    demand(tandem_store_put_timings(set.store, times, 2, NULL) == TANDEM_OK, "imported times");
    const tandem_steadiness steadiness = {16000, 21000, 0.01, 0.02, 0.03, NAN, 0.01};
    demand(tandem_store_put_steadiness(set.store, device, "", &steadiness, NULL) == TANDEM_OK, "steadiness");
    const tandem_statistics s = {2, 2, 2, 16, 4, 32, 64, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    for (int op = 0; op < set.graph->n_op; op++)
        if (tandem_op_is_adjustable(&set.graph->op[op])) {
            demand(tandem_store_put_statistics(set.store, set.graph, data_set, op, &s, NULL) == TANDEM_OK,
                   "statistics");
        }
    const tandem_algorithm choice[] = {{"a card: a product", "7"}, {"a card: another", "9"}};
    demand(tandem_store_put_algorithms(set.store, choice, 2, NULL) == TANDEM_OK, "choices");
}

/* The same columns without types, keys and checks: as another program might have made them. */
static void loosen(int t)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql, "ALTER TABLE %s RENAME TO strict", tables[t].name);
    execute(sql);
    (void)snprintf(sql, sizeof sql, "CREATE TABLE %s AS SELECT * FROM strict; DROP TABLE strict",
                   tables[t].name);
    execute(sql);
    (void)snprintf(sql, sizeof sql, "CREATE INDEX of_%s ON %s (%s)", tables[t].name, tables[t].name,
                   tables[t].index);
    execute(sql);
    (void)snprintf(sql, sizeof sql, "SELECT * FROM %s", tables[t].name);
    sqlite3_stmt *row = NULL;
    demand(sqlite3_prepare_v2(set.store->db, sql, -1, &row, NULL) == SQLITE_OK, sql);
    while (sqlite3_step(row) == SQLITE_ROW) set.n_row[t]++;
    set.n_column[t] = sqlite3_column_count(row);
    for (int c = 0; c < set.n_column[t] && c < MAX_COLUMNS; c++) {
        (void)snprintf(sql, sizeof sql, "UPDATE %s SET \"%s\" = ?1 WHERE rowid = ?2", tables[t].name,
                       sqlite3_column_name(row, c));
        demand(sqlite3_prepare_v2(set.store->db, sql, -1, &set.update[t][c], NULL) == SQLITE_OK, sql);
    }
    (void)sqlite3_finalize(row);
    (void)snprintf(sql, sizeof sql, "INSERT INTO %s SELECT * FROM %s WHERE rowid = ?2", tables[t].name,
                   tables[t].name);
    demand(sqlite3_prepare_v2(set.store->db, sql, -1, &set.again[t], NULL) == SQLITE_OK, sql);
}

static void set_up_fuzz_stored_rows(void)
{
    char path[] = "/tmp/tandem-rows-XXXXXX", companion[sizeof path + 4];
    if (set.store) return;
    const int file = mkstemp(path);
    demand(file >= 0 && close(file) == 0, "a file");
    demand(tandem_graph_open(&set.graph, model, 2, NULL) == TANDEM_OK, "a model");
    const tandem_step_options options = {.n_micro = 2, .with_norm = 1};
    demand(tandem_step_open_with(&set.step, set.graph, TANDEM_F32, 0, &options, NULL) == TANDEM_OK, "a step");
    demand(tandem_cluster_parse(&set.cluster, "cpu:sse41 batch=2 + cpu:sse41 batch=2", NULL) == TANDEM_OK,
           "a cluster");
    demand(tandem_device_find(&set.device, device, NULL) == TANDEM_OK, "a device");
    tandem_cluster_group_key(set.group, sizeof set.group, &set.cluster);
    demand(tandem_store_open(&set.store, path, TANDEM_STORE_WRITE, NULL) == TANDEM_OK, "a store");
    demand(tandem_store_begin(set.store, NULL) == TANDEM_OK, "a transaction");
    fill_costs("");
    fill_costs(device);
    fill_rest();
    demand(tandem_store_commit(set.store, NULL) == TANDEM_OK, "it is kept");
    execute("PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON");
    for (int t = 0; t < N_TABLE; t++) loosen(t);
    execute("PRAGMA wal_checkpoint(TRUNCATE)");
    (void)unlink(path); /* SQLite has it open */
    for (int k = 0; k < 2; k++) {
        (void)snprintf(companion, sizeof companion, "%s%s", path, k ? "-shm" : "-wal");
        (void)unlink(companion);
    }
}

/* --- Edits ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *at;
    size_t left;
} reader;

static uint8_t take_fuzz_stored_rows(reader *r)
{
    if (r->left == 0) return 0;
    r->left--;
    return *r->at++;
}

static const void *take_some(reader *r, size_t n, size_t *got)
{
    const void *const at = r->at;
    *got = n < r->left ? n : r->left;
    r->at += *got;
    r->left -= *got;
    return at;
}

static void bind_value(sqlite3_stmt *statement, reader *r)
{
    static const int64_t whole[] = {
        0, -1, 1, INT64_MAX, INT64_MIN, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_C(1) << 53};
    static const double real[] = {0, -1, 1e308, -1e308, 1e-320, INFINITY, -INFINITY, 1e18, 9.3e18, 0.5};
    static const char *const text[] = {"",
                                       "nan",
                                       "-1",
                                       "1e999",
                                       "fp32",
                                       "int8",
                                       "f32",
                                       "s8",
                                       "forward",
                                       "known",
                                       "all-reduce",
                                       "linear m=2 k=16 n=4",
                                       "images n=99999999999999999999 h=4 w=4 c=1",
                                       "images n=7 h=4 w=4 c=1"};
    size_t n = 0;
    int64_t bits = 0;
    double number = 0;
    const uint8_t kind = take_fuzz_stored_rows(r) % 8, which = take_fuzz_stored_rows(r);
    switch (kind) {
    case 0: (void)sqlite3_bind_null(statement, 1); break;
    case 1: (void)sqlite3_bind_int64(statement, 1, whole[which % (sizeof whole / sizeof *whole)]); break;
    case 2: (void)sqlite3_bind_double(statement, 1, real[which % (sizeof real / sizeof *real)]); break;
    case 3:
        (void)sqlite3_bind_text(statement, 1, text[which % (sizeof text / sizeof *text)], -1, SQLITE_STATIC);
        break;
    case 4: {
        const void *const some = take_some(r, which, &n);
        (void)sqlite3_bind_text(statement, 1, some, (int)n, SQLITE_TRANSIENT);
        break;
    }
    case 5: {
        const void *const some = take_some(r, which, &n);
        (void)sqlite3_bind_blob(statement, 1, some, (int)n, SQLITE_TRANSIENT);
        break;
    }
    default: {
        const void *const some = take_some(r, sizeof bits, &n);
        if (n) memcpy(&bits, some, n);
        memcpy(&number, &bits, sizeof number);
        if (kind == 6)
            (void)sqlite3_bind_int64(statement, 1, bits);
        else
            (void)sqlite3_bind_double(statement, 1, number);
    }
    }
}

static void edit_fuzz_stored_rows(reader *r)
{
    for (int k = 0; k < MAX_EDITS && r->left > 0; k++) {
        const int t = take_fuzz_stored_rows(r) % N_TABLE, row = take_fuzz_stored_rows(r) % (set.n_row[t] + 1),
                  c = take_fuzz_stored_rows(r) % (set.n_column[t] + 1);
        sqlite3_stmt *const statement = c < set.n_column[t] ? set.update[t][c] : set.again[t];
        if (c < set.n_column[t]) bind_value(statement, r);
        (void)sqlite3_bind_int(statement, 2, row + 1);
        demand(sqlite3_step(statement) == SQLITE_DONE, "a row is edited");
        (void)sqlite3_reset(statement);
        (void)sqlite3_clear_bindings(statement);
    }
}

/* --- Readers -------------------------------------------------------------------------------------------- */

static void check_status(tandem_status status, const tandem_error *error)
{
    if (status == TANDEM_OK) return;
    demand(error->status == status && error->text[0], "an error has a text");
    demand(status == TANDEM_MALFORMED || status == TANDEM_MISSING || status == TANDEM_LIMIT_EXCEEDED,
           error->text);
}

static tandem_status check_cost(void *context, const tandem_cost_key *key, const tandem_cost *cost,
                                tandem_error *error)
{
    char text[TANDEM_COST_KEY_TEXT];
    (void)context;
    (void)error;
    tandem_cost_key_print(text, sizeof text, key);
    demand(key->kind == TANDEM_COST_OP || key->elements >= 0, "elements");
    demand(cost->n >= 1 && cost->n_outlier >= 0 && isfinite(cost->sum_ns) && cost->sum_ns >= 0,
           "repetitions");
    demand(cost->median_ns >= 0 && cost->p10_ns >= 0 && cost->p90_ns >= 0 && tandem_cost_mean_ns(cost) >= 0 &&
               cost->low_ns >= 0 && cost->low_ns <= cost->high_ns && cost->n_disturbed >= 0,
           "times");
    return TANDEM_OK;
}

static void read_costs(void)
{
    tandem_error error = {0};
    check_status(tandem_store_visit_costs(set.store, device, "", NULL, check_cost, NULL, &error), &error);
    check_status(tandem_store_visit_costs(set.store, device, device, set.step, check_cost, NULL, &error),
                 &error);
    int64_t *batch = NULL;
    int n = 0;
    check_status(tandem_store_load_batches(&batch, &n, set.store, device, "", set.graph, &error), &error);
    for (int k = 0; k < n; k++)
        demand(batch[k] > 0 && (k == 0 || batch[k] >= batch[k - 1]), "batches ascend");
    free(batch);
}

static void read_curves(void)
{
    tandem_error error = {0};
    tandem_steadiness steadiness = {0};
    check_status(tandem_store_get_steadiness(&steadiness, set.store, device, "", &error), &error);
    demand(steadiness.compute_speed_sample_ns >= 0 && !(steadiness.delay_share < 0), "steadiness");
    for (int loaded = 0; loaded < 2; loaded++) {
        tandem_collective_point *point = NULL;
        int n = 0;
        check_status(
            tandem_store_load_collective(&point, &n, set.store, set.group, "all-reduce", loaded, &error),
            &error);
        for (int k = 0; k < n; k++) {
            demand(point[k].bytes <= INT64_MAX && (k == 0 || point[k].bytes >= point[k - 1].bytes),
                   "a curve ascends");
            (void)check_cost(NULL, &(tandem_cost_key){.kind = TANDEM_COST_OP, .precision = ""},
                             &point[k].cost, NULL);
        }
        free(point);
    }
    double factor = 1;
    const tandem_status status = tandem_store_get_interference(&factor, set.store, device, set.group,
                                                               "compute_under_comm", 512, &error);
    check_status(status, &error);
    demand(isfinite(factor) && factor > 0, "a factor");
}

static void read_sensitivity(void)
{
    static const char *const method[] = {"fisher", "qsync"};
    tandem_error error = {0};
    const int n = set.graph->n_op * TANDEM_N_PRECISION;
    double *const sensitivity = calloc((size_t)n, sizeof *sensitivity);
    demand(sensitivity != NULL, "there is memory");
    for (int k = 0; k < 4; k++) {
        const tandem_status status =
            tandem_sensitivity_load(sensitivity, set.store, set.graph, method[k & 1], k < 2 ? NULL : data_set,
                                    NULL, TANDEM_F32, ~0u, &error);
        check_status(status, &error);
        for (int i = 0; i < n; i++) demand(!isnan(sensitivity[i]) && sensitivity[i] >= 0, "harm is a number");
    }
    free(sensitivity);
}

static tandem_status check_stored_timing(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_work work;
    (void)context;
    demand(timing->time_ns > 0 && timing->time_ns <= 1e15, "a time is in its bounds");
    demand(timing->flops >= 0 && isfinite(timing->flops) && isfinite(timing->bytes), "a work is finite");
    demand(timing->m >= 0 && timing->convolution.images >= 0, "a size is not negative");
    demand(timing->kind[TANDEM_TIMING_TEXT - 1] == '\0', "a text ends");
    (void)tandem_timing_work(&work, timing, error);
    return TANDEM_OK;
}

static void read_choices(void)
{
    tandem_error refusal = {0};
    check_status(tandem_store_visit_timings(set.store, device, check_stored_timing, NULL, &refusal),
                 &refusal);
    tandem_algorithm *choice = NULL;
    tandem_error error = {0};
    int n = 0;
    check_status(tandem_store_load_algorithms(&choice, &n, set.store, &error), &error);
    for (int k = 0; k < n; k++) demand(choice[k].spec && choice[k].choice, "a choice");
    free(choice);
}

static void predict_fuzz_stored_rows(void)
{
    tandem_latency *latency = NULL;
    tandem_error error = {0};
    check_status(tandem_latency_open(&latency, &set.device, device, set.store, &error), &error);
    for (int t = 0; latency && t < set.step->n_task; t++) {
        tandem_cost_key key;
        if (set.step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_cost_key(set.step, t, 0, &key))
            continue;
        const int64_t ns = tandem_latency_ns(latency, &key, NULL);
        demand(ns == -1 || ns >= 1, "a predicted time");
    }
    tandem_latency_close(latency);
}

static void replay(void)
{
    const tandem_graph *const graph[] = {set.graph, set.graph};
    const tandem_replayer_options options = {.predict = 1};
    tandem_replayer *replayer = NULL;
    tandem_error error = {0};
    tandem_replay result = {.step_ns = -7};
    tandem_status status =
        tandem_replayer_open_with(&replayer, &set.cluster, graph, set.store, &options, &error);
    if (status == TANDEM_OK) status = tandem_replayer_run(replayer, &result, TANDEM_REPLAY_MEMORY, &error);
    check_status(status, &error);
    if (status == TANDEM_OK) {
        tandem_monte_carlo noise;
        const tandem_monte_carlo_options draws = {.n_simulation = 2, .seed = 1, .spread = -1};
        demand(result.step_ns >= 0 && result.classes[0].busy_ns >= 0 && result.classes[0].wait_ns >= 0,
               "a step");
        status = tandem_replayer_monte_carlo(&noise, replayer, &draws, &error);
        check_status(status, &error);
        if (status == TANDEM_OK) demand(noise.min_ns >= 0 && noise.max_ns >= noise.min_ns, "steps that vary");
    } else {
        demand(result.step_ns == -7, "the output is untouched");
    }
    tandem_replayer_close(replayer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(void) = {
        read_costs, read_curves, read_sensitivity, read_choices, predict_fuzz_stored_rows, replay};
    if (size < 1) return 0;
    set_up_fuzz_stored_rows();
    reader r = {data + 1, size - 1};
    execute("BEGIN");
    edit_fuzz_stored_rows(&r);
    readers[data[0] % (sizeof readers / sizeof *readers)]();
    execute("ROLLBACK");
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t costs[] = {0, 0, 3, 7, 1, 3, 1, 0, 2, 3, 5}, curve[] = {1, 2, 1, 3, 1, 4},
                         sensitivity[] = {2, 4, 0, 12, 2, 2};
    static const uint8_t choice[] = {3, 5, 0, 0, 5, 3, 1, 2, 3}, times[] = {4, 0, 9, 9, 2, 2, 0, 8, 7, 1, 3};
    static const uint8_t step[] = {5}, batch[] = {5, 7, 1, 1, 3, 12, 7, 2, 1, 3, 13};
    static const uint8_t *const seeds[] = {costs, curve, sensitivity, choice, times, step, batch};
    static const size_t n[] = {sizeof costs, sizeof curve, sizeof sensitivity, sizeof choice,
                               sizeof times, sizeof step,  sizeof batch};
    return tandem_fuzz_main("stored_rows", LLVMFuzzerTestOneInput, seeds, n, 7, argc, argv);
}
