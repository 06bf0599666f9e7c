/* store.c: opens, checks and creates a store. */
#include "profiles/store/store_trust.h"
#include "schema_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

_Static_assert(SQLITE_VERSION_NUMBER >= 3037000, "STRICT tables");

/* Of schema.sql and objects.def. A store of another version is refused; 0 is an empty one. */
enum { VERSION = 10 };
enum { APPLICATION_ID = 0x746e646d }; /* "tndm" */

static const char not_a_database[] = "it is not a database, or its first bytes are overwritten";

/* --- What a file is, before SQLite works on it ---------------------------------------------------------- */
/* 0: the file is empty, or not there. */
static int64_t file_bytes(const char *path, const char *suffix)
{
    char *sibling = NULL;
    struct stat seen;
    if (asprintf(&sibling, "%s%s", path, suffix) < 0) return 1; /* assume the worst */
    const bool found = stat(sibling, &seen) == 0;
    free(sibling);
    return found ? seen.st_size : 0;
}

static bool file_has_content(const char *path, const char *suffix) { return file_bytes(path, suffix) > 0; }

static tandem_status refuse_missing_store(const char *path, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MISSING,
                            "there is no profile store '%.200s': create one with `tandem "
                            "profile`, or name another with --db",
                            path);
}

static tandem_status refuse_store_version(const char *path, int64_t version, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_WRONG_FORMAT,
        "the profile store '%.200s' has schema version %" PRId64
        ", this tandem has %d: `tandem profile --db FILE` makes a new one, or use the tandem that made this",
        path, version, (int)VERSION);
}

/* Reads the first bytes through SQLite's own file, without its locks, journals or caches. A second
 * descriptor, when closed, would drop the locks of this process's other handles on the file. The
 * application id is in these bytes from the first transaction on, which precedes the write-ahead log; so
 * they decide whose file it is. */
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
        return tandem_store_fail_code(store->path, code, "reading the header", sqlite3_errstr(code), error);
    if (size < (int)sizeof header || memcmp(header, "SQLite format 3", 16) != 0)
        return tandem_store_refuse_file(store->path, "header", not_a_database, error);
    if (tandem_store_big_endian(header + 68) != APPLICATION_ID)
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "'%.200s' is the database of another program, not a profile store",
                                store->path);
    const uint32_t version = tandem_store_big_endian(header + 60);
    if (version != 0 && version != VERSION) return refuse_store_version(store->path, version, error);
    if (tandem_store_big_endian(header + 56) > 1)
        return tandem_store_refuse_file(store->path, "header", "its texts are not in UTF-8", error);
    const uint32_t page = (uint32_t)header[16] << 8 | header[17];
    const int64_t page_bytes = page == 1 ? 65536 : page;
    if (tandem_store_big_endian(header + 24) == tandem_store_big_endian(header + 92) &&
        !file_has_content(store->path, "-wal") && !file_has_content(store->path, "-journal") &&
        size < page_bytes * (int64_t)tandem_store_big_endian(header + 28))
        return tandem_store_refuse_file(store->path, "size", "it is cut short", error);
    return TANDEM_OK;
}

/* --- Opening -------------------------------------------------------------------------------------------- */
/* The path in a form that SQLite cannot take for something else (":memory:", "file:…", ""). */
static char *plain_path(const char *path)
{
    char *plain = NULL;
    return asprintf(&plain, "%s%s", path[0] == '/' ? "" : "./", path) < 0 ? NULL : plain;
}

/* "file:…?immutable=1": without locks and side files, for a store that no process can write to. */
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
    /* for reading too, so that closing can remove the log; see query_only */
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
        return tandem_store_fail_code(store->path, store->db ? sqlite3_extended_errcode(store->db) : code,
                                      "opening", store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code),
                                      error);
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, TANDEM_STORE_BUSY_MS);
    return TANDEM_OK;
}

/* Settings of a connection, before its first statement. They do not touch the file. */
static tandem_status configure_connection(tandem_store *store, tandem_error *error)
{
    /* Closing would copy the log into a file that may yet be refused, or that is only read. */
    if (file_has_content(store->path, "-wal"))
        (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return tandem_store_distrust(store, error);
}

/* In one transaction: a writer may create the store meanwhile. *version: of the file's schema. */
static tandem_status judge_content(tandem_store *store, int64_t *version, tandem_error *error)
{
    if (sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        return tandem_store_fail(store, "opening", error);
    tandem_status status = tandem_store_number(version, store, "PRAGMA user_version", 0, error);
    if (status == TANDEM_OK && store->mode == TANDEM_STORE_READ && *version == 0)
        status = refuse_missing_store(store->path, error);
    if (status == TANDEM_OK && *version != 0 && *version != VERSION)
        status = refuse_store_version(store->path, *version, error);
    if (status == TANDEM_OK) status = tandem_store_check_schema(store, *version == 0, error);
    if (status == TANDEM_OK) status = tandem_store_check_pages(store, file_bytes(store->path, ""), error);
    if (status == TANDEM_OK && sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        status = tandem_store_fail(store, "opening", error);
    return status; /* a refused connection is closed, which ends its transaction */
}

/* In a transaction, so that only one of several processes creates it. */
static tandem_status create_locked(tandem_store *store, tandem_error *error)
{
    int64_t version = 0, id = 0, n_table = 0;
    char pragma[64];
    tandem_status status = tandem_store_number(&version, store, "PRAGMA user_version", 0, error);
    if (status == TANDEM_OK) status = tandem_store_number(&id, store, "PRAGMA application_id", 0, error);
    if (status == TANDEM_OK)
        status = tandem_store_number(&n_table, store, "SELECT count(*) FROM sqlite_schema", 0, error);
    if (status != TANDEM_OK) return status;
    if (id != APPLICATION_ID && (id != 0 || version != 0 || n_table != 0))
        return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                                "'%.200s' is the database of another program, not a profile store",
                                store->path);
    if (version != 0 && version != VERSION) return refuse_store_version(store->path, version, error);
    status = tandem_store_check_schema(store, version == 0, error);
    if (status != TANDEM_OK || version == VERSION) return status; /* another one has created it */
    (void)snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   (int)APPLICATION_ID, (int)VERSION);
    if (sqlite3_exec(store->db, schema_sql, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(store->db, pragma, NULL, NULL, NULL) != SQLITE_OK)
        return tandem_store_fail(store, "creating", error);
    return TANDEM_OK;
}

static tandem_status create_store(tandem_store *store, tandem_error *error)
{
    tandem_status status = tandem_store_execute(store, error, "BEGIN IMMEDIATE", "");
    if (status != TANDEM_OK) return status;
    status = create_locked(store, error);
    if (status == TANDEM_OK && sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        status = tandem_store_fail(store, "creating", error);
    if (!sqlite3_get_autocommit(store->db)) (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* After the first transaction, so that the file has the application id before there is a log. On file
 * systems without shared memory SQLite keeps a rollback journal, which is as safe. */
static tandem_status start_write_ahead_log(tandem_store *store, tandem_error *error)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    int code = SQLITE_OK;
    for (int waited_ms = 0; waited_ms < TANDEM_STORE_BUSY_MS; waited_ms += 10) {
        code = sqlite3_exec(store->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY)
            return tandem_store_fail(store, "opening", error);
        if (code == SQLITE_OK) return TANDEM_OK;
        (void)nanosleep(&pause, NULL); /* SQLite does not wait when two processes do this at once */
    }
    return tandem_store_fail(store, "opening", error);
}

static tandem_status accept_content(tandem_store *store, tandem_error *error)
{
    int64_t version = 0;
    tandem_status status = configure_connection(store, error);
    if (status == TANDEM_OK) status = judge_content(store, &version, error);
    if (status == TANDEM_OK)
        status =
            tandem_store_trust(store, file_bytes(store->path, "") + file_bytes(store->path, "-wal"), error);
    if (status != TANDEM_OK) return status;
    if (store->mode == TANDEM_STORE_READ)
        return sqlite3_exec(store->db, "PRAGMA query_only = ON", NULL, NULL, NULL) == SQLITE_OK
                   ? TANDEM_OK
                   : tandem_store_fail(store, "opening", error);
    if (sqlite3_exec(store->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL) != SQLITE_OK)
        return tandem_store_fail(store, "opening", error);
    if (version == 0) status = create_store(store, error);
    return status == TANDEM_OK ? start_write_ahead_log(store, error) : status;
}

/* A store on a read-only medium has no room for the log's index, and needs none if there is no log. */
static bool is_on_read_only_medium(const tandem_store *store)
{
    const int code = sqlite3_errcode(store->db) & 0xff;
    return store->mode == TANDEM_STORE_READ && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY) &&
           !file_has_content(store->path, "-wal") && !file_has_content(store->path, "-journal");
}

static tandem_status open_again(tandem_store *store, bool immutable, tandem_error *error)
{
    close_database(store);
    const tandem_status status = open_database(store, immutable, error);
    return status == TANDEM_OK ? accept_content(store, error) : status;
}

static bool has_memory(void)
{
    enum { MORE_THAN_A_SCHEMA_TAKES = 1 << 20 };
    void *const memory = sqlite3_malloc(MORE_THAN_A_SCHEMA_TAKES);
    sqlite3_free(memory);
    return memory != NULL;
}

/* SQLite says "out of memory" of a few damaged schemas, too: whenever it reads them, whatever there is. */
static tandem_status tell_damage_from_no_memory(tandem_store *store, tandem_error *error)
{
    if (!has_memory()) return TANDEM_NO_MEMORY;
    const tandem_status status = open_again(store, false, error);
    if (status != TANDEM_NO_MEMORY || !has_memory()) return status;
    return tandem_store_refuse_file(store->path, "schema", "SQLite cannot read it, with memory to spare",
                                    error);
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
        return tandem_error_set(error, TANDEM_IO,
                                "'%.200s' is not a regular file, so it cannot be the profile store",
                                store->path);
    } else if (seen.st_size == 1) { /* SQLite takes it for an empty file and would overwrite it */
        return tandem_store_refuse_file(store->path, "header", not_a_database, error);
    } else if (seen.st_size > TANDEM_STORE_MAX_BYTES) {
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "'%.200s' has %lld bytes; a profile store has at most %d. Is it the one you "
                                "mean?",
                                store->path, (long long)seen.st_size, (int)TANDEM_STORE_MAX_BYTES);
    }
    tandem_status status =
        store->mode == TANDEM_STORE_WRITE ? tandem_store_check_target(store->path, error) : TANDEM_OK;
    if (status == TANDEM_OK) status = tandem_store_check_companions(store->path, error);
    if (status == TANDEM_OK) status = open_database(store, false, error);
    if (status == TANDEM_OK) status = inspect_header(store, error);
    if (status != TANDEM_OK) return status;
    status = accept_content(store, error);
    if (status == TANDEM_NO_MEMORY) status = tell_damage_from_no_memory(store, error);
    if (status == TANDEM_IO && is_on_read_only_medium(store)) status = open_again(store, true, error);
    if (status == TANDEM_OK && store->mode == TANDEM_STORE_WRITE)
        (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return status;
}

tandem_status tandem_store_open(tandem_store **store, const char *path, tandem_store_mode mode,
                                tandem_error *error)
{
    if (!path || !path[0])
        return tandem_error_set(error, TANDEM_USAGE, "the path of the profile store is empty");
    tandem_status status = TANDEM_OK;
    tandem_store *const opened = calloc(1, sizeof *opened);
    char *const plain = plain_path(path), *const libraries = strdup("");
    if (!opened || !plain || !libraries) {
        free(libraries);
        free(plain);
        free(opened);
        return tandem_no_memory(error, "to open '%.200s'", path);
    }
    *opened = (tandem_store){.path = plain, .mode = mode, .libraries = libraries};
    tandem_error local = {0}; /* a failed first attempt must not reach the caller's error */
    status = open_and_accept(opened, &local);
    if (status == TANDEM_OK)
        *store = opened;
    else
        tandem_store_close(opened);
    if (status != TANDEM_OK && error) *error = local;
    return status;
}

/* Where two processes close at the same time, SQLite leaves the log for the next one that opens. Then a copy
 * of the one file would lack what was filed last. */
static void empty_log(tandem_store *store)
{
    int is_refused = 1;
    if (!store->db || store->mode != TANDEM_STORE_WRITE) return;
    (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1, &is_refused);
    if (is_refused) return;
    (void)sqlite3_busy_timeout(store->db, 1000);
    (void)sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

void tandem_store_close(tandem_store *store)
{
    if (!store) return;
    tandem_store_rollback(store);
    empty_log(store);
    close_database(store);
    free(store->libraries);
    free(store->path);
    free(store);
}
