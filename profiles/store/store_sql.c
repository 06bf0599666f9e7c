/* store_sql.c: SQLite's errors as statuses, and prepared statements. */
#include "profiles/store/store_handle.h"

#include <assert.h>
#include <stdarg.h>

/* --- Errors --------------------------------------------------------------------------------------------- */
static tandem_status status_of_sqlite(int code)
{
    if (code == SQLITE_IOERR_NOMEM) return TANDEM_NO_MEMORY;
    switch (code & 0xff) {
    case SQLITE_NOMEM: return TANDEM_NO_MEMORY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_TOOBIG:    /* longer than any text that tandem writes */
    case SQLITE_INTERRUPT: /* where a budget of work is spent */
    case SQLITE_ERROR:     /* the schema does not match its version; the product's SQL is tested */
        return TANDEM_MALFORMED;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_NOLFS: return TANDEM_IO;
    default: return TANDEM_BUG;
    }
}

tandem_status tandem_store_refuse_file(const char *path, const char *what, const char *why,
                                       tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "the profile store '%.200s' is damaged (%s: %.200s). Move it away and profile "
                            "again.",
                            path, what, why);
}

static tandem_status refuse_work(const char *path, const char *what, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "the profile store '%.200s' is damaged, or made to keep its readers busy: %s it "
                            "takes more work, or yields more rows, than a store can need. Move it away and "
                            "profile again.",
                            path, what);
}

tandem_status tandem_store_fail_code(const char *path, int code, const char *what, const char *why,
                                     tandem_error *error)
{
    const tandem_status status = status_of_sqlite(code);
    if ((code & 0xff) == SQLITE_INTERRUPT) return refuse_work(path, what, error);
    if (status == TANDEM_MALFORMED) return tandem_store_refuse_file(path, what, why, error);
    if ((code & 0xff) == SQLITE_BUSY)
        return tandem_error_set(error, status,
                                "the profile store '%.200s' is in use: another process has kept it "
                                "from %s for over %d s",
                                path, what, TANDEM_STORE_BUSY_MS / 1000);
    return tandem_error_set(error, status, "%s failed in the profile store '%.200s': %.200s", what, path,
                            why);
}

tandem_status tandem_store_fail(const tandem_store *store, const char *what, tandem_error *error)
{
    return tandem_store_fail_code(store->path, sqlite3_extended_errcode(store->db), what,
                                  sqlite3_errmsg(store->db), error);
}

tandem_status tandem_store_refuse_damaged(const tandem_store *store, const char *what, tandem_error *error)
{
    return tandem_store_refuse_file(store->path, what, "a value that was never written there", error);
}

/* --- Work ----------------------------------------------------------------------------------------------- */

/* Spent by what store_trust.c has SQLite call. */
static void allow_work(tandem_store *store)
{
    enum { UNITS_PER_STATEMENT = 250 };
    store->rows_left = TANDEM_STORE_MAX_ROWS;
    store->work_units += UNITS_PER_STATEMENT;
    if (store->work_units > store->max_work_units) store->work_units = store->max_work_units;
}

/* --- Statements ----------------------------------------------------------------------------------------- */
static tandem_status prepare_statement(sqlite3_stmt **statement, tandem_store *store, const char *sql,
                                       tandem_error *error)
{
    for (int i = 0; i < store->n_statement; i++)
        if (store->prepared[i].sql == sql) {
            *statement = store->prepared[i].statement;
            return TANDEM_OK;
        }
    assert(store->n_statement < TANDEM_STORE_MAX_STATEMENT);
    sqlite3_stmt *prepared = NULL;
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared, NULL) != SQLITE_OK)
        return tandem_store_fail(store, "preparing a statement", error);
    store->prepared[store->n_statement++] = (struct tandem_store_statement){sql, prepared};
    *statement = prepared;
    return TANDEM_OK;
}

/* clang's analyzer loses the caller's va_start. NOLINTBEGIN(clang-analyzer-valist.Uninitialized) */
static int bind_parameters(sqlite3_stmt *statement, const char *types, va_list arguments)
{
    int code = SQLITE_OK;
    for (int i = 1; *types && code == SQLITE_OK; types++, i++) {
        if (*types == 's') {
            code = sqlite3_bind_text(statement, i, va_arg(arguments, const char *), -1, SQLITE_STATIC);
        } else if (*types == 'r') {
            code = sqlite3_bind_double(statement, i, va_arg(arguments, double)); /* NaN becomes NULL */
        } else {
            const int64_t value = va_arg(arguments, int64_t);
            assert(*types == 'i' || *types == 'o');
            code = *types == 'o' && value == 0 ? sqlite3_bind_null(statement, i)
                                               : sqlite3_bind_int64(statement, i, value);
        }
    }
    return code;
}
/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

static tandem_status bind_query(sqlite3_stmt **statement, tandem_store *store, tandem_error *error,
                                const char *sql, const char *types, va_list arguments)
{
    sqlite3_stmt *found = NULL;
    const tandem_status status = prepare_statement(&found, store, sql, error);
    if (status != TANDEM_OK) return status;
    allow_work(store);
    (void)sqlite3_reset(found); /* returns the error of the last run again */
    if (bind_parameters(found, types, arguments) != SQLITE_OK)
        return tandem_store_fail(store,
                                 "preparing a "
                                 "statement",
                                 error);
    *statement = found;
    return TANDEM_OK;
}

tandem_status tandem_store_query(sqlite3_stmt **statement, tandem_store *store, tandem_error *error,
                                 const char *sql, const char *types, ...)
{
    va_list arguments;
    va_start(arguments, types);
    const tandem_status status = bind_query(statement, store, error, sql, types, arguments);
    va_end(arguments);
    return status;
}

tandem_status tandem_store_next_row(int *more, tandem_store *store, sqlite3_stmt *statement,
                                    tandem_error *error)
{
    const int code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return tandem_store_fail(store, sqlite3_stmt_readonly(statement) ? "reading" : "writing", error);
    *more = code == SQLITE_ROW;
    return *more && --store->rows_left < 0 ? refuse_work(store->path, "reading", error) : TANDEM_OK;
}

tandem_status tandem_store_column_text(const char **text, const tandem_store *store, sqlite3_stmt *statement,
                                       int column, tandem_error *error)
{
    const char *const read = (const char *)sqlite3_column_text(statement, column);
    if (!read)
        return (sqlite3_errcode(store->db) & 0xff) == SQLITE_NOMEM
                   ? tandem_store_fail(store, "reading", error)
                   : tandem_store_refuse_damaged(store, "a name", error);
    *text = read;
    return TANDEM_OK;
}

tandem_status tandem_store_execute(tandem_store *store, tandem_error *error, const char *sql,
                                   const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    va_list arguments;
    va_start(arguments, types);
    tandem_status status = bind_query(&statement, store, error, sql, types, arguments);
    va_end(arguments);
    int more = 0;
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    if (statement) {
        (void)sqlite3_reset(statement);
        (void)sqlite3_clear_bindings(statement);
    }
    return status;
}

tandem_status tandem_store_number(int64_t *value, tandem_store *store, const char *sql, int64_t otherwise,
                                  tandem_error *error)
{
    sqlite3_stmt *statement = NULL;
    int more = 0;
    tandem_status status = tandem_store_query(&statement, store, error, sql, "");
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    if (status == TANDEM_OK) *value = more ? sqlite3_column_int64(statement, 0) : otherwise;
    if (statement) (void)sqlite3_reset(statement);
    return status;
}
