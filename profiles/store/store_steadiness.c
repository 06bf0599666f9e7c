/* store_steadiness.c: how steady a machine was while it was measured. */
#include <math.h>

#include "profiles/store/store_handle.h"

static int is_share(double x) { return isnan(x) || (x >= 0 && isfinite(x)); }

static int is_steadiness(const tandem_steadiness *s)
{
    return s->compute_speed_sample_ns >= 0 && s->memory_speed_sample_ns >= 0 && is_share(s->compute_spread) &&
           is_share(s->memory_spread) && is_share(s->delay_share) && is_share(s->steal_share) &&
           is_share(s->interval_share);
}

tandem_status tandem_store_put_steadiness(tandem_store *store, const char *device, const char *co_runner,
                                          const tandem_steadiness *s, tandem_error *error)
{
    if (!device || !device[0] || !co_runner || !is_steadiness(s))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "steadiness needs a device, and speed samples, spreads and shares of 0 or more");
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_add_device(store, device, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(
            store, error,
            "INSERT OR REPLACE INTO steadiness (device, co_runner, compute_speed_sample_ns, "
            "memory_speed_sample_ns, compute_spread, memory_spread, delay_share, steal_share, "
            "interval_share, host, time_ns) VALUES "
            "((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            "ssiirrrrrii", device, co_runner, s->compute_speed_sample_ns, s->memory_speed_sample_ns,
            s->compute_spread, s->memory_spread, s->delay_share, s->steal_share, s->interval_share,
            store->host, tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}

static double real_or_unknown(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_NULL ? NAN : sqlite3_column_double(row, column);
}

tandem_status tandem_store_get_steadiness(tandem_steadiness *steadiness, tandem_store *store,
                                          const char *device, const char *co_runner, tandem_error *error)
{
    tandem_steadiness read = {.compute_spread = NAN,
                              .memory_spread = NAN,
                              .delay_share = NAN,
                              .steal_share = NAN,
                              .interval_share = NAN};
    sqlite3_stmt *row = NULL;
    int more = 0;
    tandem_status status = TANDEM_OK;
    if (store->mode == TANDEM_STORE_WRITE && store->host == 0) { /* learns which host this is */
        status = tandem_store_write_begin(store, error);
        if (status == TANDEM_OK) status = tandem_store_write_end(store, TANDEM_OK, error);
    }
    if (status == TANDEM_OK)
        status = tandem_store_query(
            &row, store, error,
            "SELECT compute_speed_sample_ns, memory_speed_sample_ns, compute_spread, memory_spread, "
            "delay_share, steal_share, interval_share FROM steadiness WHERE device = (SELECT id FROM device "
            "WHERE name = ?1) AND "
            "co_runner = ?2 AND (?3 = 0 OR host IN (SELECT h.id FROM host AS h JOIN host AS own "
            "USING (name_hash) "
            "WHERE own.id = ?3)) ORDER BY time_ns DESC LIMIT 1",
            "ssi", device, co_runner, store->host);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK && more) {
        read = (tandem_steadiness){.compute_speed_sample_ns = sqlite3_column_int64(row, 0),
                                   .memory_speed_sample_ns = sqlite3_column_int64(row, 1),
                                   .compute_spread = real_or_unknown(row, 2),
                                   .memory_spread = real_or_unknown(row, 3),
                                   .delay_share = real_or_unknown(row, 4),
                                   .steal_share = real_or_unknown(row, 5),
                                   .interval_share = real_or_unknown(row, 6)};
        if (!is_steadiness(&read)) status = tandem_store_refuse_damaged(store, "a steadiness", error);
    }
    if (row) {
        (void)sqlite3_reset(row);
        (void)sqlite3_clear_bindings(row);
    }
    if (status == TANDEM_OK) *steadiness = read;
    return status;
}
