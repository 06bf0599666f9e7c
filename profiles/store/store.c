/* store.c: opening and migrating a store, transactions, and the running of statements. */
#include "base/hash.h"
#include "profiles/store/store_handle.h"
#include "schema_sql.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

_Static_assert(SQLITE_VERSION_NUMBER >= 3037000, "STRICT tables");

/* The table of casts, which SQLite cannot change in place: its key ends in what is known of how they are
 * made. */
#define CAST_TABLE(name, key_columns, key)                                                                   \
    "CREATE TABLE " name " (\n"                                                                              \
    "    device INTEGER NOT NULL REFERENCES device (id),\n"                                                  \
    "    co_runner TEXT NOT NULL,\n"                                                                         \
    "    elements INTEGER NOT NULL,\n"                                                                       \
    "    operand TEXT NOT NULL,\n"                                                                           \
    "    result TEXT NOT NULL,\n" key_columns "    n INTEGER NOT NULL CHECK (n > 0),\n"                      \
    "    n_outlier INTEGER NOT NULL CHECK (n_outlier >= 0),\n"                                               \
    "    sum_ns REAL NOT NULL,\n"                                                                            \
    "    sum_squares_ns2 REAL NOT NULL,\n"                                                                   \
    "    median_ns INTEGER NOT NULL,\n"                                                                      \
    "    p10_ns INTEGER NOT NULL,\n"                                                                         \
    "    p90_ns INTEGER NOT NULL,\n"                                                                         \
    "    workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),\n"                                   \
    "    host INTEGER NOT NULL REFERENCES host (id),\n"                                                      \
    "    time_ns INTEGER NOT NULL,\n"                                                                        \
    "    PRIMARY KEY (device, co_runner, elements, operand, result, " key ")\n"                              \
    ") STRICT, WITHOUT ROWID;\n"
#define CAST_COSTS(KEY)                                                                                      \
    "device, co_runner, elements, operand, result, " KEY                                                     \
    ", n, n_outlier, sum_ns, sum_squares_ns2, median_ns, p10_ns, p90_ns, workspace_bytes, host, time_ns"
#define CASTS_FROM(name, key, old_key)                                                                       \
    "INSERT INTO " name                                                                                      \
    " (" CAST_COSTS(key) ")\nSELECT " CAST_COSTS(old_key) " FROM cast_cost;\n"                               \
                                                          "DROP TABLE cast_cost;\nALTER TABLE " name         \
                                                          " RENAME TO cast_cost;\n"

/* To version 3: a cast's range may also be delayed. */
#define RANGE                                                                                                \
    "    range_source TEXT NOT NULL, -- found by a pass of its own, known in advance, delayed: from the casts before\n"
static const char delayed_casts[] = CAST_TABLE("cast_cost_3", RANGE, "range_source")
    CASTS_FROM("cast_cost_3", "range_source", "CASE known_range WHEN 0 THEN 'measured' ELSE 'known' END");

/* To version 4: it may write a column-wise copy beside the row-wise one; and at which clocks devices ran
 * while they were profiled. */
static const char columns_and_clocks[] = CAST_TABLE(
    "cast_cost_4",
    RANGE "    transposed_copy INTEGER NOT NULL CHECK (transposed_copy IN (0, 1)), -- writes a column-wise "
          "copy, too\n",
    "range_source, transposed_copy")
    CASTS_FROM(
        "cast_cost_4", "range_source, transposed_copy",
        "range_source, 0") "CREATE TABLE clock (device INTEGER NOT NULL REFERENCES device (id), "
                           "compute_mhz INTEGER NOT NULL CHECK (compute_mhz >= 0), "
                           "memory_mhz INTEGER NOT NULL CHECK (memory_mhz >= 0), host INTEGER NOT NULL "
                           "REFERENCES host (id), time_ns INTEGER NOT NULL, "
                           "PRIMARY KEY (device, host, time_ns)) STRICT, WITHOUT ROWID;";

/* migration[v] takes a store from version v to v + 1. A new version is a new row; rows once released stay
 * as they are. */
static const char *const migration[] = {
    schema_sql,
    /* spec: the card, its libraries' versions, and a piece of work that they can do in several ways; choice:
     * the one that was fastest. Both in the words of the device. */
    "CREATE TABLE algorithm (spec TEXT PRIMARY KEY, choice TEXT NOT NULL, host INTEGER NOT NULL REFERENCES "
    "host (id), "
    "time_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
    delayed_casts,
    columns_and_clocks,
};
enum { VERSION = (int)(sizeof migration / sizeof migration[0]) };

enum { APPLICATION_ID = 0x746e646d }; /* "tndm" */
enum { BUSY_MS = 30000 };

/* --- Errors --------------------------------------------------------------------------------------------- */
static tandem_status status_of_sqlite(int code)
{
    if (code == SQLITE_IOERR_NOMEM) return TANDEM_NO_MEMORY;
    switch (code & 0xff) {
    case SQLITE_NOMEM: return TANDEM_NO_MEMORY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* the schema is not what its version says: our own SQL is tested */
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
    case SQLITE_NOLFS:
    case SQLITE_TOOBIG: return TANDEM_IO;
    default: return TANDEM_BUG;
    }
}

static tandem_status refuse_damaged_store(const char *path, const char *what, const char *why,
                                          tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "the profile store '%.200s' is damaged (%s: %.200s). Move it away and profile "
                            "again.",
                            path, what, why);
}

static tandem_status fail_sqlite_code(const char *path, int code, const char *what, const char *why,
                                      tandem_error *error)
{
    const tandem_status status = status_of_sqlite(code);
    if (status == TANDEM_MALFORMED) return refuse_damaged_store(path, what, why, error);
    if ((code & 0xff) == SQLITE_BUSY)
        return tandem_error_set(error, status,
                                "the profile store '%.200s' is in use: another process has kept it "
                                "from %s for over %d s",
                                path, what, BUSY_MS / 1000);
    return tandem_error_set(error, status, "%s failed in the profile store '%.200s': %.200s", what, path,
                            why);
}

/* The status and text of SQLite's last error on this handle; `what`: "filing a cost". */
static tandem_status fail_sqlite(const tandem_store *store, const char *what, tandem_error *error)
{
    return fail_sqlite_code(store->path, sqlite3_extended_errcode(store->db), what, sqlite3_errmsg(store->db),
                            error);
}

tandem_status tandem_store_refuse_damaged(const tandem_store *store, const char *what, tandem_error *error)
{
    return refuse_damaged_store(store->path, what, "a value that was never written there", error);
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
    sqlite3_stmt *made = NULL;
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, NULL) != SQLITE_OK)
        return fail_sqlite(store, "preparing a statement", error);
    store->prepared[store->n_statement++] = (struct tandem_store_statement){sql, made};
    *statement = made;
    return TANDEM_OK;
}

/* clang's analyzer loses the va_start of the caller. NOLINTBEGIN(clang-analyzer-valist.Uninitialized) */
static int bind_parameters(sqlite3_stmt *statement, const char *types, va_list arguments)
{
    int code = SQLITE_OK;
    for (int i = 1; *types && code == SQLITE_OK; types++, i++) {
        if (*types == 's') {
            code = sqlite3_bind_text(statement, i, va_arg(arguments, const char *), -1, SQLITE_STATIC);
        } else if (*types == 'r') {
            code = sqlite3_bind_double(statement, i, va_arg(arguments, double)); /* NaN becomes NULL there */
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
    (void)sqlite3_reset(found); /* repeats the error of its last run, which is told already */
    if (bind_parameters(found, types, arguments) != SQLITE_OK)
        return fail_sqlite(store,
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
        return fail_sqlite(store, sqlite3_stmt_readonly(statement) ? "reading" : "writing", error);
    *more = code == SQLITE_ROW;
    return TANDEM_OK;
}

tandem_status tandem_store_column_text(const char **text, const tandem_store *store, sqlite3_stmt *statement,
                                       int column, tandem_error *error)
{
    const char *const read = (const char *)sqlite3_column_text(statement, column);
    if (!read)
        return (sqlite3_errcode(store->db) & 0xff) == SQLITE_NOMEM
                   ? fail_sqlite(store, "reading", error)
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

/* One number from a statement that yields one row; `otherwise` where it yields none. */
static tandem_status query_number(int64_t *value, tandem_store *store, const char *sql, int64_t otherwise,
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

static const char not_a_database[] = "it is no database, or its first bytes are overwritten";

/* --- What a file is, before SQLite works on it ---------------------------------------------------------- */
static uint32_t big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool file_has_content(const char *path, const char *suffix)
{
    char *sibling = NULL;
    struct stat seen;
    if (asprintf(&sibling, "%s%s", path, suffix) < 0) return true; /* the careful answer */
    const bool found = stat(sibling, &seen) == 0 && seen.st_size > 0;
    free(sibling);
    return found;
}

static tandem_status refuse_missing_store(const char *path, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MISSING,
                            "there is no profile store '%.200s': measure one with `tandem "
                            "profile`, or name another with --db",
                            path);
}

static tandem_status refuse_store_version(const char *path, int64_t version, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                            "the profile store '%.200s' has schema version %" PRId64 ", this tandem has %d%s",
                            path, version, (int)VERSION,
                            version < VERSION ? ": a command that writes to it, such as `tandem profile`, "
                                                "migrates it"
                                              : ": use the newer tandem, or another store");
}

/* Reads the first bytes through SQLite's own file, without its locks, journals or caches: a second
 * descriptor of ours would drop, when closed, the locks that other handles of this process hold on the
 * file. The application id stands in them from the first transaction on, which is committed before the
 * write-ahead log is there; so they decide whose it is. */
static tandem_status inspect_header(tandem_store *store, tandem_error *error)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    unsigned char header[100];
    int code = sqlite3_file_control(store->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (code == SQLITE_OK) code = file->pMethods->xFileSize(file, &size);
    if (code == SQLITE_OK && size == 0)
        return store->mode == TANDEM_STORE_READ ? refuse_missing_store(store->path, error) : TANDEM_OK;
    if (code == SQLITE_OK && size >= (int)sizeof header)
        code = file->pMethods->xRead(file, header, sizeof header, 0);
    if (code != SQLITE_OK)
        return fail_sqlite_code(store->path, code, "reading the header", sqlite3_errstr(code), error);
    if (size < (int)sizeof header || memcmp(header, "SQLite format 3", 16) != 0)
        return refuse_damaged_store(store->path, "header", not_a_database, error);
    if (big_endian(header + 68) != APPLICATION_ID)
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "'%.200s' is a database of another program, no profile store", store->path);
    if (big_endian(header + 60) > VERSION)
        return refuse_store_version(store->path, big_endian(header + 60), error);
    const uint32_t page = (uint32_t)header[16] << 8 | header[17];
    const int64_t page_bytes = page == 1 ? 65536 : page;
    if (big_endian(header + 24) == big_endian(header + 92) && !file_has_content(store->path, "-wal") &&
        !file_has_content(store->path, "-journal") && size < page_bytes * (int64_t)big_endian(header + 28))
        return refuse_damaged_store(store->path, "size", "it is cut short", error);
    return TANDEM_OK;
}

/* --- Opening -------------------------------------------------------------------------------------------- */
/* The path so that SQLite takes it for nothing else (":memory:", "file:…", ""). */
static char *plain_path(const char *path)
{
    char *plain = NULL;
    return asprintf(&plain, "%s%s", path[0] == '/' ? "" : "./", path) < 0 ? NULL : plain;
}

/* "file:…?immutable=1": no locks, no files beside it: for a store that nobody can write to. */
static char *immutable_uri(const char *path)
{
    static const char prefix[] = "file:", suffix[] = "?immutable=1";
    char *const uri = malloc(sizeof prefix + 3 * strlen(path) + sizeof suffix);
    if (!uri) return NULL;
    char *at = uri + sprintf(uri, "%s", prefix);
    for (; *path; path++)
        at += strchr("?#%", *path) ? sprintf(at, "%%%02X", (unsigned)(unsigned char)*path)
                                   : sprintf(at, "%c", *path);
    (void)sprintf(at, "%s", suffix);
    return uri;
}

static void close_database(tandem_store *store)
{
    for (int i = 0; i < store->n_statement; i++) (void)sqlite3_finalize(store->prepared[i].statement);
    store->n_statement = 0;
    (void)sqlite3_close(store->db);
    store->db = NULL;
}

static tandem_status open_database(tandem_store *store, bool immutable, tandem_error *error)
{
    /* for reading, too: so that closing can tidy the log away; see query_only */
    int access = SQLITE_OPEN_READWRITE;
    if (immutable)
        access = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
    else if (store->mode == TANDEM_STORE_WRITE)
        access |= SQLITE_OPEN_CREATE;
    char *const name = immutable ? immutable_uri(store->path) : strdup(store->path);
    if (!name) return tandem_no_memory(error, "to open '%.200s'", store->path);
    const int code = sqlite3_open_v2(name, &store->db, access | SQLITE_OPEN_NOMUTEX, NULL);
    free(name);
    if (code != SQLITE_OK)
        return fail_sqlite_code(store->path, store->db ? sqlite3_extended_errcode(store->db) : code,
                                "opening", store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code),
                                error);
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, BUSY_MS);
    return TANDEM_OK;
}

/* Settings of a connection, none of which touches the file. */
static tandem_status configure_connection(tandem_store *store, tandem_error *error)
{
    /* Closing would carry the log over into a file that may yet be refused. */
    if (file_has_content(store->path, "-wal"))
        (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (sqlite3_exec(store->db,
                     "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                     "PRAGMA synchronous = NORMAL;",
                     NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(store, "opening", error);
    return TANDEM_OK;
}

/* Within a transaction, so that of several processes one does it. */
static tandem_status migrate_locked(tandem_store *store, tandem_error *error)
{
    int64_t version = 0, id = 0, n_table = 0;
    char pragma[64];
    tandem_status status = query_number(&version, store, "PRAGMA user_version", 0, error);
    if (status == TANDEM_OK) status = query_number(&id, store, "PRAGMA application_id", 0, error);
    if (status == TANDEM_OK)
        status = query_number(&n_table, store, "SELECT count(*) FROM sqlite_schema", 0, error);
    if (status != TANDEM_OK) return status;
    if (id != APPLICATION_ID && (id != 0 || version != 0 || n_table != 0))
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "'%.200s' is a database of another program, no profile store", store->path);
    if (version > VERSION) return refuse_store_version(store->path, version, error);
    for (; version < VERSION; version++)
        if (sqlite3_exec(store->db, migration[version], NULL, NULL, NULL) != SQLITE_OK)
            return fail_sqlite(store, "migrating", error);
    (void)snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   (int)APPLICATION_ID, (int)VERSION);
    if (sqlite3_exec(store->db, pragma, NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(store, "migrating", error);
    return TANDEM_OK;
}

static tandem_status migrate_store(tandem_store *store, tandem_error *error)
{
    tandem_status status = tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status != TANDEM_OK) return status;
    status = migrate_locked(store, error);
    if (status == TANDEM_OK && sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        status = fail_sqlite(store, "migrating", error);
    if (!sqlite3_get_autocommit(store->db)) (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* Only after the first transaction, so that the application id is in the file before there is a log. Where
 * the file system has no shared memory SQLite stays with a rollback journal, which is as safe. */
static tandem_status start_write_ahead_log(tandem_store *store, tandem_error *error)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    int code = SQLITE_OK;
    for (int waited_ms = 0; waited_ms < BUSY_MS; waited_ms += 10) {
        code = sqlite3_exec(store->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY) return fail_sqlite(store, "opening", error);
        if (code == SQLITE_OK) return TANDEM_OK;
        (void)nanosleep(&pause, NULL); /* the busy time-out is not waited for where two do this at once */
    }
    return fail_sqlite(store, "opening", error);
}

static tandem_status check_schema_version(tandem_store *store, tandem_error *error)
{
    int64_t version = 0;
    tandem_status status = configure_connection(store, error);
    if (status == TANDEM_OK) status = query_number(&version, store, "PRAGMA user_version", 0, error);
    if (status != TANDEM_OK) return status;
    if (version > VERSION) return refuse_store_version(store->path, version, error);
    if (store->mode == TANDEM_STORE_READ) {
        if (version == 0) return refuse_missing_store(store->path, error);
        if (version < VERSION) return refuse_store_version(store->path, version, error);
        if (sqlite3_exec(store->db, "PRAGMA query_only = ON", NULL, NULL, NULL) != SQLITE_OK)
            return fail_sqlite(store, "opening", error);
        return TANDEM_OK;
    }
    if (version < VERSION) status = migrate_store(store, error);
    return status == TANDEM_OK ? start_write_ahead_log(store, error) : status;
}

/* A store on a read-only medium has no room for the log's index, and needs none where there is no log. */
static bool is_on_read_only_medium(const tandem_store *store)
{
    const int code = sqlite3_errcode(store->db) & 0xff;
    return store->mode == TANDEM_STORE_READ && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY) &&
           !file_has_content(store->path, "-wal") && !file_has_content(store->path, "-journal");
}

static tandem_status open_and_accept(tandem_store *store, tandem_error *error)
{
    struct stat seen;
    if (stat(store->path, &seen) != 0) {
        if (store->mode == TANDEM_STORE_READ)
            return errno == ENOENT
                       ? refuse_missing_store(store->path, error)
                       : tandem_error_set(error, TANDEM_IO, "the profile store '%.200s' cannot be read: %s",
                                          store->path, strerror(errno));
    } else if (!S_ISREG(seen.st_mode)) {
        return tandem_error_set(error, TANDEM_IO, "'%.200s' is no file, so it cannot be the profile store",
                                store->path);
    } else if (seen.st_size == 1) { /* which SQLite takes for none, and would overwrite */
        return refuse_damaged_store(store->path, "header", not_a_database, error);
    }
    tandem_status status = open_database(store, false, error);
    if (status == TANDEM_OK) status = inspect_header(store, error);
    if (status != TANDEM_OK) return status;
    status = check_schema_version(store, error);
    if (status == TANDEM_IO && is_on_read_only_medium(store)) {
        close_database(store);
        status = open_database(store, true, error);
        if (status == TANDEM_OK) status = check_schema_version(store, error);
    }
    if (status == TANDEM_OK) (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return status;
}

tandem_status tandem_store_open(tandem_store **store, const char *path, tandem_store_mode mode,
                                tandem_error *error)
{
    if (!path || !path[0])
        return tandem_error_set(error, TANDEM_USAGE, "the path of the profile store is empty");
    tandem_status status = TANDEM_OK;
    tandem_store *const made = calloc(1, sizeof *made);
    char *const plain = plain_path(path), *const libraries = strdup("");
    if (!made || !plain || !libraries) {
        free(libraries);
        free(plain);
        free(made);
        return tandem_no_memory(error, "to open '%.200s'", path);
    }
    *made = (tandem_store){.path = plain, .mode = mode, .libraries = libraries};
    tandem_error local = {0}; /* so that a first attempt that failed leaves nothing in the caller's */
    status = open_and_accept(made, &local);
    if (status == TANDEM_OK)
        *store = made;
    else
        tandem_store_close(made);
    if (status != TANDEM_OK && error) *error = local;
    return status;
}

void tandem_store_close(tandem_store *store)
{
    if (!store) return;
    tandem_store_rollback(store);
    close_database(store);
    free(store->libraries);
    free(store->path);
    free(store);
}

/* --- Transactions --------------------------------------------------------------------------------------- */
static tandem_status check_writable(const tandem_store *store, tandem_error *error)
{
    if (store->mode == TANDEM_STORE_READ)
        return tandem_error_set(error, TANDEM_USAGE, "the profile store '%.200s' was opened for reading",
                                store->path);
    if (store->in_transaction && sqlite3_get_autocommit(store->db))
        return tandem_error_set(error, TANDEM_IO,
                                "the transaction in the profile store '%.200s' was undone by an "
                                "earlier error (memory or disk)",
                                store->path);
    return TANDEM_OK;
}

tandem_status tandem_store_begin(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status == TANDEM_OK && store->in_transaction)
        status = tandem_error_set(error, TANDEM_USAGE, "a transaction is open already; they do not nest");
    if (status == TANDEM_OK) status = tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status == TANDEM_OK) store->in_transaction = 1;
    return status;
}

tandem_status tandem_store_commit(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status == TANDEM_OK && !store->in_transaction)
        return tandem_error_set(error, TANDEM_USAGE, "no transaction is open");
    if (status == TANDEM_OK) status = tandem_store_execute(store, error, "COMMIT", "");
    if (status == TANDEM_OK)
        store->in_transaction = 0;
    else
        tandem_store_rollback(store);
    return status;
}

void tandem_store_rollback(tandem_store *store)
{
    if (store->in_transaction && !sqlite3_get_autocommit(store->db))
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    store->in_transaction = 0;
    store->host = 0;
}

/* "model name : …" of /proc/cpuinfo; "" where there is none. */
static void read_cpu(char *cpu, size_t size)
{
    char line[256];
    cpu[0] = '\0';
    FILE *const stream = fopen("/proc/cpuinfo", "re");
    while (stream && fgets(line, sizeof line, stream))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            const char *const name = strchr(line, ':') + 1;
            (void)snprintf(cpu, size, "%.*s", (int)strcspn(name + (*name == ' '), "\n"),
                           name + (*name == ' '));
            break;
        }
    if (stream) (void)fclose(stream);
}

static tandem_status add_host(tandem_store *store, tandem_error *error)
{
    static const char insert[] = "INSERT INTO host (name_hash, cpu, n_cpu, libraries, n_thread) VALUES (?1, "
                                 "?2, ?3, "
                                 "?4, ?5) ON CONFLICT DO NOTHING";
    static const char select[] = "SELECT id FROM host WHERE name_hash = ?1 AND cpu = ?2 AND n_cpu = ?3 AND "
                                 "libraries "
                                 "= ?4 AND n_thread = ?5";
    char name[256] = "", cpu[128], hash[TANDEM_STORE_HASH];
    sqlite3_stmt *statement = NULL;
    int more = 0;
    (void)gethostname(name, sizeof name - 1);
    tandem_store_print_hash(hash, tandem_hash_text(TANDEM_HASH_START, name));
    read_cpu(cpu, sizeof cpu);
    const int64_t n_cpu = sysconf(_SC_NPROCESSORS_CONF), n_thread = store->n_thread;
    tandem_status status =
        tandem_store_execute(store, error, insert, "ssisi", hash, cpu, n_cpu, store->libraries, n_thread);
    if (status == TANDEM_OK)
        status = tandem_store_query(&statement, store, error, select, "ssisi", hash, cpu, n_cpu,
                                    store->libraries, n_thread);
    if (status == TANDEM_OK) status = tandem_store_next_row(&more, store, statement, error);
    if (status == TANDEM_OK && !more) status = tandem_store_refuse_damaged(store, "host", error);
    if (status == TANDEM_OK) store->host = sqlite3_column_int64(statement, 0);
    if (statement) {
        (void)sqlite3_reset(statement);
        (void)sqlite3_clear_bindings(statement);
    }
    return status;
}

tandem_status tandem_store_set_environment(tandem_store *store, const char *libraries, int n_thread,
                                           tandem_error *error)
{
    char *const copy = strdup(libraries);
    if (!copy) return tandem_no_memory(error, "for the names of libraries");
    free(store->libraries);
    store->libraries = copy;
    store->n_thread = n_thread;
    store->host = 0;
    return TANDEM_OK;
}

tandem_status tandem_store_write_begin(tandem_store *store, tandem_error *error)
{
    tandem_status status = check_writable(store, error);
    if (status != TANDEM_OK) return status;
    status = store->in_transaction ? tandem_store_execute(store, error, "SAVEPOINT one_call", "")
                                   : tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status == TANDEM_OK && store->host == 0) {
        status = add_host(store, error);
        if (status != TANDEM_OK) status = tandem_store_write_end(store, status, error);
    }
    return status;
}

tandem_status tandem_store_write_end(tandem_store *store, tandem_status status, tandem_error *error)
{
    if (status == TANDEM_OK)
        status = store->in_transaction ? tandem_store_execute(store, error, "RELEASE one_call", "")
                                       : tandem_store_execute(store, error, "COMMIT", "");
    if (status == TANDEM_OK) return status;
    store->host = 0;
    if (!sqlite3_get_autocommit(store->db)) /* else SQLite has undone everything itself */
        (void)sqlite3_exec(store->db,
                           store->in_transaction ? "ROLLBACK TO one_call; RELEASE one_call" : "ROLLBACK",
                           NULL, NULL, NULL);
    return status;
}

/* --- Rows that others refer to -------------------------------------------------------------------------- */
tandem_status tandem_store_add_device(tandem_store *store, const char *device, tandem_error *error)
{
    return tandem_store_execute(store, error, "INSERT INTO device (name) VALUES (?1) ON CONFLICT DO NOTHING",
                                "s", device);
}

void tandem_store_print_hash(char text[TANDEM_STORE_HASH], uint64_t hash)
{
    (void)snprintf(text, TANDEM_STORE_HASH, "%016" PRIx64, hash);
}

tandem_status tandem_store_add_model(tandem_store *store, const char *model, uint64_t graph_hash,
                                     tandem_error *error)
{
    char hash[TANDEM_STORE_HASH];
    tandem_store_print_hash(hash, graph_hash);
    return tandem_store_execute(store, error,
                                "INSERT INTO model (name, hash) VALUES (?1, ?2) ON CONFLICT DO "
                                "NOTHING",
                                "ss", model, hash);
}

int64_t tandem_store_now_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
