/* folder: profiles */
/* Stores that were made to harm: a schema that runs, pages that lead nowhere or everywhere, files beside the
 * store that SQLite would take for parts of it. Each is refused with a text, and stays as it is. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/store/store_handle.h"
#include "schema_sql.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

/* --- Stores --------------------------------------------------------------------------------------------- */

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void make_good_store(const char *path, int n)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    int64_t sample[2] = {1000, 1010};
    tandem_cost cost;
    tandem_cost_from_samples(&cost, sample, 2, 0);
    require_ok(tandem_store_open(&store, path, TANDEM_STORE_WRITE, &error), &error);
    require_ok(tandem_store_begin(store, &error), &error);
    for (int i = 0; i < n; i++) {
        tandem_cost_key key = {
            .kind = TANDEM_COST_OP, .precision = "int8", .pass = TANDEM_PASS_FORWARD, .from = TANDEM_S8};
        (void)snprintf(key.signature, sizeof key.signature, "linear m=8 k=%d n=256", i);
        require_ok(tandem_store_put_cost(store, "cpu:avx2", "", &key, &cost, &error), &error);
    }
    require_ok(tandem_store_commit(store, &error), &error);
    tandem_store_close(store);
}

typedef struct file_content {
    unsigned char bytes[1 << 20];
    size_t n;
} file_content;

static void keep_content(file_content *kept, const char *path)
{
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    kept->n = fread(kept->bytes, 1, sizeof kept->bytes, file);
    assert_true(kept->n < sizeof kept->bytes);
    (void)fclose(file);
}

static tandem_status ignore_cost(void *n, const tandem_cost_key *key, const tandem_cost *cost,
                                 tandem_error *error)
{
    (void)key, (void)cost, (void)error;
    ++*(int *)n;
    return TANDEM_OK;
}

static tandem_status read_costs(const char *path, tandem_store_mode mode, int *n, tandem_error *error)
{
    tandem_store *store = NULL;
    *n = 0;
    tandem_status status = tandem_store_open(&store, path, mode, error);
    if (status == TANDEM_OK)
        status = tandem_store_visit_costs(store, "cpu:avx2", "", NULL, ignore_cost, n, error);
    tandem_store_close(store);
    return status;
}

/* In a process of its own, with 20 s of the processor and 1 GiB: a trap that works kills that one alone. */
static tandem_status try_to_read(const char *path, tandem_store_mode mode, char text[TANDEM_ERROR_TEXT])
{
    int report[2], how = 0;
    assert_int_equal(pipe(report), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit seconds = {20, 20}, bytes = {1U << 30, 1U << 30};
        tandem_error error = {0};
        int n = 0;
        (void)setrlimit(RLIMIT_CPU, &seconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they map terabytes */
        (void)setrlimit(RLIMIT_AS, &bytes);
#else
        (void)bytes;
#endif
        const tandem_status status = read_costs(path, mode, &n, &error);
        const ssize_t said = write(report[1], error.text, strlen(error.text) + 1);
        _exit(said > 0 ? (int)status : 99);
    }
    (void)close(report[1]);
    (void)memset(text, 0, TANDEM_ERROR_TEXT);
    (void)!read(report[0], text, TANDEM_ERROR_TEXT - 1);
    (void)close(report[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how)) fail_msg("reading '%s' ended by signal %d", path, WTERMSIG(how));
    return (tandem_status)WEXITSTATUS(how);
}

/* Both modes refuse it for the reason, and leave it as it is. */
static void assert_refused(const test_folder *p, tandem_status expected, const char *says, const char *trap)
{
    static file_content before, after;
    char text[TANDEM_ERROR_TEXT];
    keep_content(&before, p->path);
    for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
        const tandem_status status = try_to_read(p->path, (tandem_store_mode)mode, text);
        if (status != expected || !strstr(text, says))
            fail_msg("%s: %s: '%s' has no '%s'", trap, tandem_status_name(status), text, says);
        keep_content(&after, p->path);
        assert_int_equal(after.n, before.n);
        assert_memory_equal(after.bytes, before.bytes, before.n);
    }
}

/* --- The schema ----------------------------------------------------------------------------------------- */

#define ENDLESS "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
#define OTHER_TEXT(table, from, to)                                                                          \
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '" from "', '" to              \
    "') WHERE name = '" table "'"

static void what_a_schema_adds_is_refused(void **state)
{
    const test_folder *const p = *state;
    static const char *const traps[] = {
        "DROP TABLE op_cost; CREATE VIEW op_cost AS " ENDLESS,
        "DROP TABLE operator; CREATE VIEW operator AS SELECT 1 AS id, hex(zeroblob(400000000)) AS signature",
        "CREATE VIEW theirs AS SELECT 1",
        "CREATE VIEW host_view AS SELECT load_extension('x')",
        "CREATE TRIGGER t AFTER INSERT ON device BEGIN DELETE FROM op_cost; END",
        "CREATE TRIGGER t AFTER UPDATE ON operator BEGIN " ENDLESS "; END",
        "CREATE TEMP VIEW v AS SELECT 1; CREATE TABLE theirs (x)",
        "CREATE INDEX i ON op_cost (median_ns)",
        "CREATE INDEX i ON operator (length(hex(zeroblob(1000))))",
        "CREATE INDEX i ON operator (signature) WHERE length(signature) > 3",
        "CREATE TABLE a (b, c AS (length(hex(zeroblob(400000000)))) VIRTUAL)",
        "CREATE VIRTUAL TABLE f USING fts5 (x)",
        "CREATE VIRTUAL TABLE f USING rtree (i, a, b)",
        "ANALYZE",
        "CREATE TABLE s (i INTEGER PRIMARY KEY AUTOINCREMENT)",
        "ALTER TABLE operator ADD COLUMN c TEXT AS (hex(zeroblob(400000000)))",
        "ALTER TABLE op_cost ADD COLUMN c INTEGER DEFAULT 7",
        "ALTER TABLE op_cost RENAME COLUMN n TO n2",
        "DROP TABLE clock",
        OTHER_TEXT("op_cost", "CHECK (n > 0)", "CHECK (n > 0 AND length(hex(zeroblob(400000000))) > 0)"),
        OTHER_TEXT("operator", "signature TEXT NOT NULL UNIQUE", "signature AS (1) NOT NULL UNIQUE"),
        OTHER_TEXT("op_cost", "low_ns INTEGER NOT NULL",
                   "low_ns INTEGER NOT NULL DEFAULT (abs(-9223372036854775807 - 1))"),
        OTHER_TEXT("operator", "signature TEXT", "signature TEXT COLLATE theirs"),
        OTHER_TEXT("operator", "CREATE TABLE", "CREATE  TABLE"),
        OTHER_TEXT("operator", ") STRICT", ")"),
        OTHER_TEXT("op_cost", ", WITHOUT ROWID", ""),
        OTHER_TEXT("op_cost", "REFERENCES host (id)", ""),
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET tbl_name = 'host' WHERE name = 'clock'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = CAST(sql AS BLOB) WHERE name = 'clock'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET type = 'view' WHERE name = 'clock'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'host'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM "
        "sqlite_schema WHERE name = 'host') WHERE name = 'device'",
        "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'clock'",
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n WHERE i < 3000) SELECT 'view', 'v' || i, 'v' || i, 0, 'CREATE VIEW v' || i || "
        "' AS SELECT 1' FROM n",
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('view', 'v', 'v', 0, 'CREATE VIEW v "
        "AS SELECT ' || substr(replace(hex(zeroblob(200000)), '0', '1+'), 1, 200000) || '1')",
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('view', 'v', 'v', 0, 'CREATE VIEW v "
        "AS SELECT ' || substr(replace(hex(zeroblob(2000)), '0', '(('), 1, 3000))",
    };
    for (size_t i = 0; i < N_OF(traps); i++) {
        (void)empty_folder(p->folder);
        make_good_store(p->path, 20);
        run_sql(p->path, traps[i]);
        char text[TANDEM_ERROR_TEXT];
        const tandem_status status = try_to_read(p->path, TANDEM_STORE_READ, text);
        if (status != TANDEM_WRONG_FORMAT && status != TANDEM_MALFORMED)
            fail_msg("%s: %s: %s", traps[i], tandem_status_name(status), text);
        assert_refused(p, status, "Move it away", traps[i]);
    }
}

/* Where a legal statement added an object, the error names it. */
static void the_foreign_object_is_named(void **state)
{
    const test_folder *const p = *state;
    make_good_store(p->path, 3);
    run_sql(p->path, "CREATE VIEW theirs AS SELECT 1");
    assert_refused(p, TANDEM_WRONG_FORMAT, "has its own 'theirs'", "a view");
}

/* objects.def says what schema.sql makes. */
static void a_store_of_our_schema_is_ours(void **state)
{
    const test_folder *const p = *state;
    for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
        tandem_store *store = NULL;
        tandem_error error = {0};
        (void)empty_folder(p->folder);
        run_sql(p->path, schema_sql);
        run_sql(p->path, "PRAGMA application_id = 1953391725; PRAGMA user_version = 10");
        require_ok(tandem_store_open(&store, p->path, (tandem_store_mode)mode, &error), &error);
        tandem_store_close(store);
        run_sql(p->path, "CREATE VIEW theirs AS SELECT 1");
        assert_int_equal(tandem_store_open(&store, p->path, (tandem_store_mode)mode, &error),
                         TANDEM_WRONG_FORMAT);
    }
}

/* --- The connection ------------------------------------------------------------------------------------- */

static void unsafe(sqlite3_context *context, int n, sqlite3_value **value)
{
    (void)n, (void)value;
    sqlite3_result_int(context, 1);
}

static int exec_on(const tandem_store *store, const char *sql)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL);
}

/* Whatever was in the schema: it could call no function that has effects, and no view or trigger runs. */
static void a_schema_may_not_act(void **state)
{
    const test_folder *const p = *state;
    static const struct {
        int option, expected;
    } settings[] = {{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0}, {SQLITE_DBCONFIG_DEFENSIVE, 1},
                    {SQLITE_DBCONFIG_ENABLE_VIEW, 0},    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                    {SQLITE_DBCONFIG_ENABLE_FKEY, 1},    {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0}};
    tandem_store *store = NULL;
    tandem_error error = {0};
    for (int mode = TANDEM_STORE_WRITE; mode >= TANDEM_STORE_READ; mode--) {
        require_ok(tandem_store_open(&store, p->path, (tandem_store_mode)mode, &error), &error);
        for (size_t i = 0; i < N_OF(settings); i++) {
            int value = -1;
            assert_int_equal(sqlite3_db_config(store->db, settings[i].option, -1, &value), SQLITE_OK);
            assert_int_equal(value, settings[i].expected);
        }
        assert_int_equal(sqlite3_limit(store->db, SQLITE_LIMIT_ATTACHED, -1), 0);
        assert_true(sqlite3_limit(store->db, SQLITE_LIMIT_LENGTH, -1) <= 64 << 20);
        if (mode == TANDEM_STORE_READ) tandem_store_close(store);
        if (mode == TANDEM_STORE_READ) break;
        assert_int_equal(
            sqlite3_create_function(store->db, "unsafe", 0, SQLITE_UTF8, NULL, unsafe, NULL, NULL),
            SQLITE_OK);
        assert_int_equal(exec_on(store, "SELECT unsafe()"), SQLITE_OK);
        assert_int_equal(
            exec_on(store, "CREATE TABLE a (b, c DEFAULT (unsafe())); INSERT INTO a (b) VALUES (1)"),
            SQLITE_ERROR);
        (void)exec_on(store, "DROP TABLE a; CREATE VIEW v AS SELECT 1");
        assert_int_equal(exec_on(store, "SELECT * FROM v"), SQLITE_ERROR);
        (void)exec_on(store, "DROP VIEW v");
        tandem_store_close(store);
    }
}

/* The statement would run for ever, or yield rows for ever. */
static void a_statement_has_a_budget(void **state)
{
    static const char endless[] =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0";
    static const char many[] =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    static const char *const sql[] = {endless, many};
    const test_folder *const p = *state;
    for (size_t i = 0; i < N_OF(sql); i++) {
        tandem_store *store = NULL;
        tandem_error error = {0};
        sqlite3_stmt *row = NULL;
        int more = 1;
        int64_t n = 0;
        if (i == 0) make_good_store(p->path, 3);
        require_ok(tandem_store_open(&store, p->path, TANDEM_STORE_READ, &error), &error);
        require_ok(tandem_store_query(&row, store, &error, sql[i], ""), &error);
        tandem_status status = TANDEM_OK;
        while (status == TANDEM_OK && more && n <= TANDEM_STORE_MAX_ROWS) {
            status = tandem_store_next_row(&more, store, row, &error);
            n++;
        }
        assert_int_equal(status, TANDEM_MALFORMED);
        assert_non_null(strstr(error.text, "more work"));
        assert_int_equal(n, i == 0 ? 1 : TANDEM_STORE_MAX_ROWS + 1);
        tandem_store_close(store);
    }
}

/* --- Pages ---------------------------------------------------------------------------------------------- */

static int64_t ask_number(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    const int64_t number = sqlite3_column_int64(row, 0);
    (void)sqlite3_finalize(row);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return number;
}

static void put_big_endian(unsigned char *at, uint32_t value, int n)
{
    for (int i = 0; i < n; i++) at[i] = (unsigned char)(value >> 8 * (n - 1 - i));
}

/* All children of a table's root are its first child: its rows come hundreds of times, and with several such
 * levels hundreds to that power. */
static void a_page_that_comes_again_is_refused(void **state)
{
    enum { PAGE = 4096 };
    static file_content content;
    const test_folder *const p = *state;
    make_good_store(p->path, 2000);
    const size_t root =
        (size_t)ask_number(p->path, "SELECT rootpage FROM sqlite_schema WHERE name = 'operator'");
    keep_content(&content, p->path);
    unsigned char *const page = content.bytes + (root - 1) * PAGE;
    assert_int_equal(page[0], 5); /* inner page of a table */
    const int n_cell = page[3] << 8 | page[4];
    assert_true(n_cell > 3);
    const unsigned char *const first = page + (page[12] << 8 | page[13]);
    const uint32_t child =
        (uint32_t)first[0] << 24 | (uint32_t)first[1] << 16 | (uint32_t)first[2] << 8 | first[3];
    for (int i = 0; i < n_cell; i++)
        put_big_endian(page + (page[12 + 2 * i] << 8 | page[13 + 2 * i]), child, 4);
    write_test_file(p->path, content.bytes, content.n);
    assert_refused(p, TANDEM_MALFORMED, "Move it away", "a page twice");
    put_big_endian(page + 8, (uint32_t)root, 4); /* its last child is itself */
    write_test_file(p->path, content.bytes, content.n);
    assert_refused(p, TANDEM_MALFORMED, "Move it away", "a page in itself");
}

static void a_huge_file_is_refused(void **state)
{
    const test_folder *const p = *state;
    char text[TANDEM_ERROR_TEXT];
    make_good_store(p->path, 3);
    assert_int_equal(truncate(p->path, INT64_C(5) << 30), 0);
    for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
        assert_int_equal(try_to_read(p->path, (tandem_store_mode)mode, text), TANDEM_MALFORMED);
        assert_non_null(strstr(text, "at most"));
    }
    assert_int_equal(truncate(p->path, INT64_C(1) << 30), 0);
    /* pages after those that the header counts are no part of it */
    assert_int_equal(try_to_read(p->path, TANDEM_STORE_READ, text), TANDEM_OK);
}

/* --- Files beside it ------------------------------------------------------------------------------------ */

/* The journal of a transaction over several databases names another file, which SQLite deletes once it has
 * rolled back. */
static size_t make_journal(unsigned char *bytes, const char *names, uint32_t pages)
{
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    enum { SECTOR = 512, PAGE = 4096 };
    uint32_t sum = 0;
    const size_t n = strlen(names);
    unsigned char *at = bytes + SECTOR;
    (void)memset(bytes, 0, SECTOR);
    (void)memcpy(bytes, magic, sizeof magic);
    put_big_endian(bytes + 12, 77, 4);
    put_big_endian(bytes + 16, pages, 4);
    put_big_endian(bytes + 20, SECTOR, 4);
    put_big_endian(bytes + 24, PAGE, 4);
    if (n == 0) return SECTOR;
    put_big_endian(at, 0x40000000 / PAGE + 1, 4);
    for (size_t i = 0; i < n; i++) sum += (unsigned char)names[i];
    (void)memcpy(at + 4, names, n);
    put_big_endian(at + 4 + n, (uint32_t)n, 4);
    put_big_endian(at + 8 + n, sum, 4);
    (void)memcpy(at + 12 + n, magic, sizeof magic);
    return SECTOR + n + 20;
}

static void a_journal_deletes_no_other_file(void **state)
{
    const test_folder *const p = *state;
    char victim[128], journal[128];
    unsigned char bytes[1024];
    (void)snprintf(victim, sizeof victim, "%s/victim", p->folder);
    (void)snprintf(journal, sizeof journal, "%s-journal", p->path);
    make_good_store(p->path, 3);
    const uint32_t pages = (uint32_t)ask_number(p->path, "PRAGMA page_count");
    write_test_file(victim, "mine", 4);
    write_test_file(journal, bytes, make_journal(bytes, victim, pages));
    assert_refused(p, TANDEM_MALFORMED, "never wrote", "a journal with a name");
    assert_int_equal(access(victim, F_OK), 0);
    write_test_file(journal, bytes, make_journal(bytes, "", 1 << 30));
    assert_refused(p, TANDEM_MALFORMED, "larger file", "a journal that grows the file");
}

static void what_lies_beside_a_store_is_a_file(void **state)
{
    static const char *const suffixes[] = {"-wal", "-journal", "-shm"};
    const test_folder *const p = *state;
    char name[128], victim[128];
    (void)snprintf(victim, sizeof victim, "%s/victim", p->folder);
    for (size_t i = 0; i < N_OF(suffixes); i++)
        for (int kind = 0; kind < 3; kind++) {
            (void)empty_folder(p->folder);
            make_good_store(p->path, 3);
            write_test_file(victim, "mine", 4);
            (void)snprintf(name, sizeof name, "%s%s", p->path, suffixes[i]);
            assert_int_equal(kind == 0   ? mkfifo(name, 0600)
                             : kind == 1 ? symlink(victim, name)
                                         : mkdir(name, 0700),
                             0);
            assert_refused(p, TANDEM_MALFORMED, "not a regular file", name);
        }
}

/* In a folder that all may write to, a log of another user is no part of the own store. */
static void a_log_of_others_is_no_part(void **state)
{
    const test_folder *const p = *state;
    char log[128];
    if (geteuid() != 0) {
        (void)printf("SKIP: no right to become another user\n");
        skip();
    }
    make_good_store(p->path, 3);
    (void)snprintf(log, sizeof log, "%s-wal", p->path);
    write_test_file(log, "some", 4);
    assert_int_equal(chown(log, 65534, 65534), 0);
    assert_int_equal(chmod(p->folder, 01777), 0);
    assert_refused(p, TANDEM_MALFORMED, "another user", "a log of others");
    assert_int_equal(chown(p->path, 65534, 65534), 0); /* the store is theirs as well: a store of theirs */
    int n = 0;
    tandem_error error = {0};
    require_ok(read_costs(p->path, TANDEM_STORE_READ, &n, &error), &error);
    assert_int_equal(n, 3);
}

/* What a killed writer left in the log is read, and stays in the log. */
static void reading_leaves_the_log(void **state)
{
    static file_content before, after;
    const test_folder *const p = *state;
    int how = 0, n = 0;
    tandem_error error = {0};
    make_good_store(p->path, 3);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tandem_store *store = NULL;
        tandem_cost_key key = {
            .kind = TANDEM_COST_OP, .precision = "int8", .signature = "linear m=1 k=1 n=1"};
        tandem_cost cost;
        int64_t sample = 5;
        tandem_cost_from_samples(&cost, &sample, 1, 0);
        if (tandem_store_open(&store, p->path, TANDEM_STORE_WRITE, NULL) == TANDEM_OK &&
            tandem_store_put_cost(store, "cpu:avx2", "", &key, &cost, NULL) == TANDEM_OK)
            (void)raise(SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    keep_content(&before, p->path);
    require_ok(read_costs(p->path, TANDEM_STORE_READ, &n, &error), &error);
    assert_int_equal(n, 4);
    keep_content(&after, p->path);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.bytes, before.bytes, before.n);
    require_ok(read_costs(p->path, TANDEM_STORE_WRITE, &n, &error), &error);
    assert_int_equal(n, 4);
    assert_int_equal(count_files(p->folder), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_schema_adds_is_refused, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(the_foreign_object_is_named, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_store_of_our_schema_is_ours, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_schema_may_not_act, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_statement_has_a_budget, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_page_that_comes_again_is_refused, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(a_huge_file_is_refused, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_journal_deletes_no_other_file, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(what_lies_beside_a_store_is_a_file, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(a_log_of_others_is_no_part, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(reading_leaves_the_log, test_folder_open, test_folder_close),
    };
    return cmocka_run_group_tests_name("hostile store", tests, NULL, NULL);
}
