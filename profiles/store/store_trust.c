/* store_trust.c: what a file must be before its rows are read. A database is a program too: its schema has
 * expressions, views and triggers, and its pages may lead to others without end. So a store is read only
 * where its schema is the one that schema.sql makes, text for text, and where each page is used once; and
 * every statement has a budget of work. */
#include "profiles/store/store_trust.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

/* --- A connection that does no more than it is asked ---------------------------------------------------- */

/* Reading the schema takes a dozen instructions per object, and ours has about 40 objects. */
enum { WORK_UNIT = 1000, MAX_SCHEMA_UNITS = 4, MAX_SCHEMA_SQL = 4096 };
/* What all statements of a handle may take together, in instructions of SQLite; each statement gives some
 * back (store_sql.c), so that many small ones are never too many. 100 million take about two seconds. */
enum { MAX_WORK_UNITS = 100000 };
/* Honest work grows with the rows: instructions per byte of the file. */
enum { WORK_PER_BYTE = 16 };

static int spend_work(void *context)
{
    tandem_store *const store = context;
    return --store->work_units < 0;
}

static void set_work(tandem_store *store, int64_t units)
{
    store->max_work_units = store->work_units = units;
    sqlite3_progress_handler(store->db, WORK_UNIT, spend_work, store);
}

/* The texts and the shapes of statements: of the schema while it is loaded, then of the product. */
static void limit_statements(sqlite3 *db, int max_text, int max_sql)
{
    static const struct {
        int what, most;
    } limits[] = {
        {SQLITE_LIMIT_COLUMN, 64},          {SQLITE_LIMIT_EXPR_DEPTH, 64},
        {SQLITE_LIMIT_COMPOUND_SELECT, 8},  {SQLITE_LIMIT_VDBE_OP, 25000},
        {SQLITE_LIMIT_FUNCTION_ARG, 16},    {SQLITE_LIMIT_ATTACHED, 0},
        {SQLITE_LIMIT_TRIGGER_DEPTH, 8},    {SQLITE_LIMIT_WORKER_THREADS, 0},
        {SQLITE_LIMIT_VARIABLE_NUMBER, 64}, {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        (void)sqlite3_limit(db, limits[i].what, limits[i].most);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, max_text);
    (void)sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, max_sql);
}

/* Before the first statement, which loads the schema. */
static tandem_status distrust_schema(tandem_store *store, tandem_error *error)
{
    static const struct {
        int option, value;
    } settings[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
        {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
        {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
        {SQLITE_DBCONFIG_DQS_DDL, 0},
        {SQLITE_DBCONFIG_DQS_DML, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
    };
    int code = SQLITE_OK;
    for (size_t i = 0; i < sizeof settings / sizeof *settings && code == SQLITE_OK; i++)
        code = sqlite3_db_config(store->db, settings[i].option, settings[i].value, NULL);
    if (code == SQLITE_OK) code = sqlite3_exec(store->db, "PRAGMA cell_size_check = ON", NULL, NULL, NULL);
    return code == SQLITE_OK ? TANDEM_OK : tandem_store_fail(store, "opening", error);
}

tandem_status tandem_store_distrust(tandem_store *store, tandem_error *error)
{
    limit_statements(store->db, MAX_SCHEMA_SQL * 2, MAX_SCHEMA_SQL);
    set_work(store, MAX_SCHEMA_UNITS);
    return distrust_schema(store, error);
}

tandem_status tandem_store_trust(tandem_store *store, int64_t file_bytes, tandem_error *error)
{
    limit_statements(store->db, TANDEM_STORE_MAX_TEXT, 1 << 16);
    set_work(store, MAX_WORK_UNITS + file_bytes / (WORK_UNIT / WORK_PER_BYTE));
    /* the file names a size for the cache, too */
    return sqlite3_exec(store->db, "PRAGMA cache_size = -2000; PRAGMA mmap_size = 0", NULL, NULL, NULL) ==
                   SQLITE_OK
               ? TANDEM_OK
               : tandem_store_fail(store, "opening", error);
}

/* --- The files beside it -------------------------------------------------------------------------------- */

static tandem_status refuse_companion(const char *path, const char *suffix, const char *why,
                                      tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "the profile store '%.200s' is not read: '%.200s%s', which SQLite would take for "
                            "a part of it, %s. Move that file away.",
                            path, path, suffix, why);
}

/* A journal that names other databases lets SQLite delete files by their names; we never write such. One that
 * claims more pages than there are makes the file grow. NULL: it may be what a killed writer left. */
static const char *judge_journal(const char *path, int64_t store_bytes)
{
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    unsigned char head[28] = {0}, tail[8] = {0};
    struct stat seen;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return errno == ENOENT || errno == EACCES ? NULL : "cannot be read";
    const bool is_long = fstat(file, &seen) == 0 && seen.st_size >= 512;
    const bool has_both = is_long && pread(file, head, sizeof head, 0) == (ssize_t)sizeof head &&
                          pread(file, tail, sizeof tail, seen.st_size - 8) == (ssize_t)sizeof tail;
    (void)close(file);
    if (!has_both || memcmp(head, magic, sizeof magic) != 0) return NULL; /* SQLite ignores it */
    const int64_t pages = tandem_store_big_endian(head + 16), page_bytes = tandem_store_big_endian(head + 24);
    if (memcmp(tail, magic, sizeof magic) == 0) return "names another database that tandem never wrote";
    if (pages * page_bytes > store_bytes) return "belongs to a larger file";
    return NULL;
}

/* May another user have put the file there? */
static bool may_be_planted(const char *path, uid_t owner)
{
    tandem_path place = {0};
    const bool is_followed = tandem_path_follow(&place, path, NULL) == TANDEM_OK;
    const bool is_trusted = is_followed && tandem_path_trusts(owner, &place.of_folder);
    tandem_path_close(&place);
    return !is_trusted;
}

static tandem_status check_companion(const char *path, const struct stat *store, const char *suffix,
                                     tandem_error *error)
{
    char *name = NULL;
    struct stat seen;
    const char *why = NULL;
    if (asprintf(&name, "%s%s", path, suffix) < 0) return tandem_no_memory(error, "to open '%.200s'", path);
    if (lstat(name, &seen) == 0) {
        if (!S_ISREG(seen.st_mode))
            why = "is not a regular file";
        else if (seen.st_uid != store->st_uid && may_be_planted(name, seen.st_uid))
            why = "belongs to another user, in a folder that all may write to";
        else if (seen.st_size > TANDEM_STORE_MAX_BYTES)
            why = "is larger than a store may be";
        else if (strcmp(suffix, "-journal") == 0)
            why = judge_journal(name, store->st_size);
    }
    free(name);
    return why ? refuse_companion(path, suffix, why, error) : TANDEM_OK;
}

/* Several users may share a store; a link or a second name that one of them made may lead to another file. */
tandem_status tandem_store_check_target(const char *path, tandem_error *error)
{
    tandem_path place = {0};
    tandem_status status = tandem_path_follow(&place, path, error);
    if (status == TANDEM_OK && place.exists && tandem_path_trusts(place.seen.st_uid, &place.of_folder))
        status = tandem_path_check_target(&place, path, true, error);
    tandem_path_close(&place);
    return status;
}

tandem_status tandem_store_check_companions(const char *path, tandem_error *error)
{
    static const char *const suffixes[] = {"-wal", "-journal", "-shm"};
    struct stat store = {0};
    tandem_status status = TANDEM_OK;
    char *const real = realpath(path, NULL); /* SQLite keeps them beside the target of a link */
    if (real) (void)stat(real, &store);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && real && status == TANDEM_OK; i++)
        status = check_companion(real, &store, suffixes[i], error);
    free(real);
    return status;
}

/* --- The schema, text for text -------------------------------------------------------------------------- */

static const struct schema_object {
    const char *column[4]; /* type, name, table, text; an index of SQLite's own has none */
} objects[] = {
#define OBJECT(type, name, table, sql) {{type, name, table, sql}},
#include "profiles/store/objects.def"
#undef OBJECT
};
enum { N_OBJECT = sizeof objects / sizeof *objects };

static bool is_object(sqlite3_stmt *row, const struct schema_object *object)
{
    bool is_equal = true;
    for (int c = 0; c < 4 && is_equal; c++) {
        const char *const ours = object->column[c];
        const int type = sqlite3_column_type(row, c);
        const char *const theirs = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(row, c) : NULL;
        is_equal =
            ours ? theirs && (size_t)sqlite3_column_bytes(row, c) == strlen(ours) && strcmp(theirs, ours) == 0
                 : type == SQLITE_NULL;
    }
    return is_equal;
}

static tandem_status refuse_schema(const tandem_store *store, const char *what, const char *name,
                                   tandem_error *error)
{
    return tandem_error_set(error, TANDEM_WRONG_FORMAT,
                            "the profile store '%.200s' was not made by tandem: its schema %.60s '%.100s', "
                            "so nothing of it is run or read. Move it away and profile again.",
                            store->path, what, name);
}

static const char *text_or(sqlite3_stmt *row, int column, const char *otherwise)
{
    const char *const text = (const char *)sqlite3_column_text(row, column);
    return text ? text : otherwise;
}

/* Both lists have one order. */
static tandem_status compare_objects(tandem_store *store, sqlite3_stmt *row, bool is_empty,
                                     tandem_error *error)
{
    int k = is_empty ? N_OBJECT : 0, more = 1;
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK) {
        status = tandem_store_next_row(&more, store, row, error);
        if (status != TANDEM_OK || !more) break;
        if (k == N_OBJECT || !is_object(row, &objects[k]))
            status = refuse_schema(store, "has its own", text_or(row, 1, ""), error);
        else
            k++;
    }
    if (status == TANDEM_OK && k < N_OBJECT)
        status = refuse_schema(store, "lacks", objects[k].column[1], error);
    return status;
}

tandem_status tandem_store_check_schema(tandem_store *store, bool is_empty, tandem_error *error)
{
    static const char list[] =
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name, rowid";
    sqlite3_stmt *row = NULL;
    tandem_status status = tandem_store_query(&row, store, error, list, "");
    if (status == TANDEM_OK) status = compare_objects(store, row, is_empty, error);
    if (row) (void)sqlite3_reset(row);
    return status;
}

/* --- Every page once ------------------------------------------------------------------------------------ */

/* The check says "*** in database main ***" and a line for each page; one that it could not read says why. */
static tandem_status refuse_pages(const tandem_store *store, const char *found, tandem_error *error)
{
    static const char unread[] = "error code=";
    const char *const line = strchr(found, '\n'), *const code = strstr(found, unread);
    const int why = code ? (int)strtol(code + strlen(unread), NULL, 10) : SQLITE_CORRUPT;
    return tandem_store_fail_code(store->path, why, "reading", line ? line + 1 : found, error);
}

/* Of a row, which comes after all pages. SQLite 3.40 finds such values in sound tables without rowids whose
 * key is not their first columns. */
static int is_of_row(const char *found)
{
    static const char null_value[] = "NULL value in ";
    return strncmp(found, null_value, strlen(null_value)) == 0;
}

/* SQLite looks at the pages of all tables in one instruction; then it looks at each row, which those who read
 * rows do anyway: that may end early. */
tandem_status tandem_store_check_pages(tandem_store *store, int64_t file_bytes, tandem_error *error)
{
    enum { MIN_PAGE_BYTES = 512 };
    sqlite3_stmt *check = NULL;
    set_work(store, 1 + file_bytes / MIN_PAGE_BYTES / WORK_UNIT);
    if (sqlite3_prepare_v2(store->db, "PRAGMA quick_check(1)", -1, &check, NULL) != SQLITE_OK)
        return tandem_store_fail(store, "reading", error);
    tandem_status status = TANDEM_OK;
    const int code = sqlite3_step(check);
    if (code != SQLITE_ROW && code != SQLITE_DONE && (code & 0xff) != SQLITE_INTERRUPT)
        status = tandem_store_fail(store, "reading", error);
    else if (code == SQLITE_ROW && strcmp(text_or(check, 0, ""), "ok") != 0 &&
             !is_of_row(text_or(check, 0, "")))
        status = refuse_pages(store, text_or(check, 0, "no text"), error);
    (void)sqlite3_finalize(check);
    return status;
}
