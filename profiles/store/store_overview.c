/* store_overview.c: what a store holds, row by row as JSON: the names of the columns are those of members. */
#include "profiles/store/store_overview.h"

#include <math.h>

#include "profiles/store/store_handle.h"

/* Of one device beside one co-runner; the table of operators and that of casts. */
#define ALL_COSTS                                                                                            \
    "(SELECT device, co_runner, n, n_disturbed, host, time_ns FROM op_cost UNION ALL SELECT device, "        \
    "co_runner, n, n_disturbed, host, time_ns FROM cast_cost)"

/* Every order is complete, so that equal stores give equal objects. */
static const struct {
    const char *member, *sql;
} topics[] = {
    {"hosts", "SELECT cpu, n_cpu, libraries, n_thread, name_hash, count(c.n) AS costs, min(c.time_ns) AS "
              "from_time_ns, "
              "max(c.time_ns) AS to_time_ns FROM host AS h LEFT JOIN (SELECT host, n, time_ns FROM " ALL_COSTS
              " UNION ALL SELECT host, n, time_ns FROM collective_cost) AS c ON c.host = h.id GROUP BY h.id "
              "ORDER BY "
              "h.id LIMIT 500"},
    {"devices",
     "SELECT d.name, c.co_runner, c.costs, c.repetitions, c.disturbed, s.compute_spread, s.memory_spread, "
     "s.delay_share, s.steal_share, s.interval_share, s.time_ns FROM (SELECT device, co_runner, "
     "count(*) AS "
     "costs, sum(n) AS repetitions, sum(n_disturbed) AS disturbed FROM " ALL_COSTS
     " GROUP BY device, co_runner) AS c JOIN device AS d ON d.id = c.device LEFT JOIN (SELECT *, "
     "row_number() "
     "OVER (PARTITION BY device, co_runner ORDER BY time_ns DESC, host) AS age FROM steadiness) AS s ON "
     "s.device = c.device AND s.co_runner = c.co_runner AND s.age = 1 ORDER BY d.name, c.co_runner "
     "LIMIT 500"},
    {"costs",
     "SELECT d.name AS device, c.co_runner, o.signature AS operator, c.\"precision\" AS "
     "\"precision\", c.pass, "
     "c.operand, c.result, c.median_ns, c.low_ns, c.high_ns, c.n, c.n_disturbed FROM (SELECT *, "
     "row_number() "
     "OVER (PARTITION BY device, co_runner ORDER BY median_ns DESC, operator, \"precision\", pass, "
     "operand, "
     "result) AS place FROM op_cost) AS c JOIN device AS d ON d.id = c.device JOIN operator AS o ON o.id = "
     "c.operator WHERE c.place <= 300 ORDER BY d.name, c.co_runner, c.place LIMIT 3000"},
    {"collectives", "SELECT device_group AS \"group\", collective, loaded, bytes, median_ns, n FROM "
                    "collective_cost ORDER BY "
                    "device_group, collective, loaded, bytes LIMIT 500"},
    {"models",
     "SELECT m.name, m.hash, s.data, s.n_batch AS batches, (SELECT data FROM estimate WHERE model = "
     "m.id ORDER "
     "BY time_ns DESC, id DESC LIMIT 1) AS estimated FROM model AS m LEFT JOIN (SELECT model, data, n_batch, "
     "row_number() OVER (PARTITION BY model ORDER BY time_ns DESC, data, op) AS age FROM "
     "statistics) AS s ON "
     "s.model = m.id AND s.age = 1 ORDER BY m.name, m.hash LIMIT 200"},
    {"runs", "SELECT m.name AS model, p.name AS plan, p.cluster, r.steps, r.predicted_ns, r.measured_ns, "
             "r.accuracy, "
             "r.exit_code, r.time_ns FROM run AS r JOIN plan AS p ON p.id = r.plan JOIN model AS m ON m.id "
             "= p.model "
             "ORDER BY r.time_ns DESC, r.id DESC LIMIT 200"},
};

/* NULL: no memory, or *is_damaged. */
static json_t *overview_value(sqlite3_stmt *row, int column, int *is_damaged)
{
    switch (sqlite3_column_type(row, column)) {
    case SQLITE_NULL: return json_null();
    case SQLITE_INTEGER:
        *is_damaged = sqlite3_column_int64(row, column) < 0;
        return *is_damaged ? NULL : json_integer(sqlite3_column_int64(row, column));
    case SQLITE_FLOAT:
        *is_damaged = !isfinite(sqlite3_column_double(row, column));
        return *is_damaged ? NULL : json_real(sqlite3_column_double(row, column));
    default: {
        const char *const text = (const char *)sqlite3_column_text(row, column);
        return text ? json_string_nocheck(text) : NULL;
    }
    }
}

static tandem_status add_overview_row(json_t *rows, const tandem_store *store, sqlite3_stmt *row,
                                      tandem_error *error)
{
    json_t *const object = json_object();
    int is_whole = object != NULL, is_damaged = 0;
    for (int c = 0; c < sqlite3_column_count(row) && is_whole; c++) {
        const char *const name = sqlite3_column_name(row, c);
        json_t *const value = overview_value(row, c, &is_damaged);
        is_whole = name && value && json_object_set_new_nocheck(object, name, value) == 0;
        if (!name) json_decref(value);
    }
    if (is_whole && json_array_append(rows, object) != 0) is_whole = 0;
    json_decref(object);
    if (is_damaged) return tandem_store_refuse_damaged(store, "a number", error);
    return is_whole ? TANDEM_OK : tandem_no_memory(error, "for what '%.200s' holds", store->path);
}

static tandem_status read_overview_rows(json_t *rows, tandem_store *store, const char *sql,
                                        tandem_error *error)
{
    sqlite3_stmt *row = NULL;
    int more = 1;
    tandem_status status = tandem_store_query(&row, store, error, sql, "");
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = add_overview_row(rows, store, row, error);
    }
    if (row) (void)sqlite3_reset(row);
    return status;
}

tandem_status tandem_store_overview(json_t **overview, tandem_store *store, tandem_error *error)
{
    json_t *const read = json_object();
    tandem_status status = TANDEM_OK;
    for (size_t k = 0; k < sizeof topics / sizeof *topics && status == TANDEM_OK; k++) {
        json_t *const rows = json_array();
        if (json_object_set_new_nocheck(read, topics[k].member, rows) != 0)
            status = tandem_no_memory(error, "for what '%.200s' holds", store->path);
        else
            status = read_overview_rows(rows, store, topics[k].sql, error);
    }
    if (status == TANDEM_OK)
        *overview = read;
    else
        json_decref(read);
    return status;
}
