/* store_collective.c: the times of collectives, and how much they slow compute down. */
#include "base/grow.h"
#include "profiles/store/store_handle.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

static tandem_status check_measured_name(const char *name, const char *what, tandem_error *error)
{
    if (name && name[0]) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "a measurement needs the name of its %s", what);
}

static tandem_status check_collective_bytes(uint64_t bytes, tandem_error *error)
{
    if (bytes <= INT64_MAX) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE, "a collective of more than 2^63 bytes");
}

tandem_status tandem_store_put_collective(tandem_store *store, const char *group, const char *collective,
                                          int loaded, const tandem_collective_point *point,
                                          tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO collective_cost (device_group, collective, loaded, "
        "bytes, " TANDEM_COST_COLUMNS
        ", host, time_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
        "?15, ?16, ?17, ?18, ?19)";
    tandem_status status = tandem_store_check_cost(&point->cost, error);
    if (status == TANDEM_OK) status = check_measured_name(group, "group", error);
    if (status == TANDEM_OK) status = check_measured_name(collective, "collective", error);
    if (status == TANDEM_OK) status = check_collective_bytes(point->bytes, error);
    if (status == TANDEM_OK) status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_execute(store, error, sql, "ssii" TANDEM_COST_TYPES "ii", group, collective,
                                  (int64_t)(loaded != 0), (int64_t)point->bytes,
                                  TANDEM_COST_VALUES(&point->cost), store->host, tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}

typedef struct collective_curve {
    tandem_collective_point *point;
    int n, capacity;
} collective_curve;

static tandem_status read_curve_point(collective_curve *c, const tandem_store *store, sqlite3_stmt *row,
                                      tandem_error *error)
{
    tandem_collective_point *const more = tandem_grow(c->point, &c->capacity, c->n, sizeof *more, INT_MAX);
    if (!more) return tandem_no_memory(error, "for the points of a collective");
    c->point = more;
    tandem_collective_point *const point = &more[c->n];
    const int64_t bytes = sqlite3_column_int64(row, 0), before = c->n ? (int64_t)point[-1].bytes : 0;
    if (bytes < before) return tandem_store_refuse_damaged(store, "bytes of a collective", error);
    point->bytes = (uint64_t)bytes;
    const tandem_status status = tandem_store_read_cost(&point->cost, store, row, 1, error);
    c->n += status == TANDEM_OK;
    return status;
}

tandem_status tandem_store_load_collective(tandem_collective_point **points, int *n, tandem_store *store,
                                           const char *group, const char *collective, int loaded,
                                           tandem_error *error)
{
    static const char sql[] = "SELECT bytes, " TANDEM_COST_COLUMNS " FROM collective_cost"
                              " WHERE device_group = ?1 AND collective = ?2 AND loaded = ?3 ORDER BY bytes";
    collective_curve read = {0};
    int more = 1;
    sqlite3_stmt *row = NULL;
    tandem_status status =
        tandem_store_query(&row, store, error, sql, "ssi", group, collective, (int64_t)(loaded != 0));
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        status = read_curve_point(&read, store, row, error);
    }
    if (row) (void)sqlite3_reset(row);
    if (status == TANDEM_OK) {
        *points = read.point;
        *n = read.n;
        read.point = NULL;
    }
    free(read.point);
    return status;
}

tandem_status tandem_store_put_interference(tandem_store *store, const char *device, const char *group,
                                            const char *kind, uint64_t bytes, double factor, int64_t n,
                                            tandem_error *error)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO interference (device, device_group, kind, bytes, factor, n, host, time_ns)"
        " VALUES ((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    tandem_status status = check_measured_name(device, "device", error);
    if (status == TANDEM_OK) status = check_measured_name(group, "group", error);
    if (status == TANDEM_OK) status = check_measured_name(kind, "kind", error);
    if (status == TANDEM_OK) status = check_collective_bytes(bytes, error);
    if (status == TANDEM_OK && (!isfinite(factor) || factor <= 0 || n < 1))
        status = tandem_error_set(
            error, TANDEM_USAGE,
            "interference needs a factor above 0 and at least one measurement; got %g from %lld", factor,
            (long long)n);
    if (status == TANDEM_OK) status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_add_device(store, device, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error, sql, "sssiriii", device, group, kind, (int64_t)bytes,
                                      factor, n, store->host, tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}

tandem_status tandem_store_get_interference(double *factor, tandem_store *store, const char *device,
                                            const char *group, const char *kind, uint64_t bytes,
                                            tandem_error *error)
{
    static const char sql[] = "SELECT factor FROM interference WHERE device = (SELECT id FROM device WHERE "
                              "name = ?1)"
                              " AND device_group = ?2 AND kind = ?3 ORDER BY abs(bytes - ?4), bytes LIMIT 1";
    sqlite3_stmt *row = NULL;
    int more = 0;
    double read = 0;
    tandem_status status = check_collective_bytes(bytes, error);
    if (status == TANDEM_OK)
        status = tandem_store_query(&row, store, error, sql, "sssi", device, group, kind, (int64_t)bytes);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, row, error);
    if (status == TANDEM_OK && !more)
        status = tandem_error_set(error, TANDEM_MISSING,
                                  "interference '%s' of '%s' in the group '%s' is not measured: "
                                  "`tandem profile` with these devices measures it",
                                  kind, device, group);
    if (status == TANDEM_OK) {
        read = sqlite3_column_double(row, 0);
        if (!isfinite(read) || read <= 0) status = tandem_store_refuse_damaged(store, "interference", error);
    }
    if (row) (void)sqlite3_reset(row);
    if (status == TANDEM_OK) *factor = read;
    return status;
}
