/* folder: profiles */
/* Stores that were made to harm. The first byte says what the rest is:
 *   S  SQL that is run on a good store, past tandem
 *   T  the number of an object of the schema (a byte), and its text from now on
 *   B  edits of the file: where (3 bytes), how many (1), and those bytes
 *   P  the same within the page of the schema and the roots of tables
 *   W  the log beside the store;  J  the journal beside it
 * Whatever it is: the store is refused with a text, and unchanged, or all that is read of it ends within
 * limits. */
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/store/store_handle.h"
#include "profiles/store/store_overview.h"
#include "tests/fuzz/fuzz_main.h"

enum { MAX_STORE = 1 << 18, MAX_HEAP = 96 << 20, MAX_OBJECTS = 64, THEIR_WORK = 20000 };

static struct {
    char path[64], log[72], journal[72], index[72];
    uint8_t good[MAX_STORE];
    size_t n_good;
    char object[MAX_OBJECTS][64];
    int n_object, their_work;
} set;

/* --- A good store --------------------------------------------------------------------------------------- */

static void fill_good_store(tandem_store *store)
{
    int64_t run = 0, sample[2] = {1000, 1010};
    tandem_collective_point point = {.bytes = 4096};
    tandem_cost_from_samples(&point.cost, sample, 2, 0);
    for (int i = 0; i < 12; i++) {
        tandem_cost_key key = {
            .kind = TANDEM_COST_OP, .precision = "int8", .pass = TANDEM_PASS_FORWARD, .from = TANDEM_S8};
        (void)snprintf(key.signature, sizeof key.signature, "linear m=8 k=%d n=256", i);
        demand(tandem_store_put_cost(store, "d", "", &key, &point.cost, NULL) == TANDEM_OK, "a cost");
    }
    const tandem_run_record record = {.model = "mlp", .cluster = "a", .plan_name = "x", .plan_json = "{}"};
    const tandem_timing timing = {
        .device = "t4", .kind = "add", .precision = "fp32", .rows = 8, .columns = 4, .time_ns = 9};
    const tandem_algorithm choice = {"a card: a product", "7"};
    demand(tandem_store_put_collective(store, "a+b", "all-reduce", 0, &point, NULL) == TANDEM_OK &&
               tandem_store_put_interference(store, "d", "a+b", "compute_under_comm", 4096, 1.5, 3, NULL) ==
                   TANDEM_OK &&
               tandem_store_put_timings(store, &timing, 1, NULL) == TANDEM_OK &&
               tandem_store_put_algorithms(store, &choice, 1, NULL) == TANDEM_OK &&
               tandem_store_put_run(store, &record, &run, NULL) == TANDEM_OK,
           "the rest");
}

static void list_objects(void)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *row = NULL;
    demand(sqlite3_open(set.path, &db) == SQLITE_OK &&
               sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema", -1, &row, NULL) == SQLITE_OK,
           "objects");
    while (sqlite3_step(row) == SQLITE_ROW && set.n_object < MAX_OBJECTS)
        (void)snprintf(set.object[set.n_object++], sizeof set.object[0], "%s", sqlite3_column_text(row, 0));
    (void)sqlite3_finalize(row);
    (void)sqlite3_close(db);
}

static void set_up_fuzz_schema(void)
{
    if (set.n_good) return;
    (void)sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    (void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 512, 600); /* most of the time goes into its parser */
    tandem_store *store = NULL;
    char folder[] = "/dev/shm/tandem_fuzz_XXXXXX", other[] = "/tmp/tandem_fuzz_XXXXXX";
    const char *const made = mkdtemp(folder) ? folder : mkdtemp(other);
    demand(made != NULL, "there is a folder");
    (void)snprintf(set.path, sizeof set.path, "%s/db", made);
    (void)snprintf(set.log, sizeof set.log, "%s-wal", set.path);
    (void)snprintf(set.journal, sizeof set.journal, "%s-journal", set.path);
    (void)snprintf(set.index, sizeof set.index, "%s-shm", set.path);
    sqlite3 *small = NULL; /* small pages: small files, and more of them */
    demand(sqlite3_open(set.path, &small) == SQLITE_OK &&
               sqlite3_exec(small, "PRAGMA page_size = 1024; VACUUM", NULL, NULL, NULL) == SQLITE_OK &&
               sqlite3_exec(small, "PRAGMA application_id = 1953391725", NULL, NULL, NULL) == SQLITE_OK &&
               sqlite3_close(small) == SQLITE_OK,
           "an empty store");
    demand(tandem_store_open(&store, set.path, TANDEM_STORE_WRITE, NULL) == TANDEM_OK, "it is a store");
    fill_good_store(store);
    tandem_store_close(store);
    list_objects();
    FILE *const file = fopen(set.path, "rb");
    demand(file != NULL, "it is a file");
    set.n_good = fread(set.good, 1, sizeof set.good, file);
    demand(set.n_good > 0 && set.n_good < sizeof set.good, "a small one");
    (void)fclose(file);
}

static void clean_up(void)
{
    if (!set.path[0]) return;
    (void)unlink(set.path);
    (void)unlink(set.log);
    (void)unlink(set.journal);
    (void)unlink(set.index);
    *strrchr(set.path, '/') = '\0';
    (void)rmdir(set.path);
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    demand(file >= 0 && write(file, bytes, n) == (ssize_t)n && close(file) == 0, "a file is written");
}

/* --- What is done to it --------------------------------------------------------------------------------- */

/* They touch no other file, and no setting of the process. */
static int authorize(void *unused, int action, const char *a, const char *b, const char *c, const char *d)
{
    static const char *const allowed[] = {"writable_schema",    "user_version", "application_id",
                                          "schema_version",     "encoding",     "auto_vacuum",
                                          "default_cache_size", "journal_mode", "legacy_alter_table"};
    (void)unused, (void)b, (void)c, (void)d;
    if (action == SQLITE_ATTACH) return SQLITE_DENY;
    if (action != SQLITE_PRAGMA) return SQLITE_OK;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (sqlite3_stricmp(a, allowed[i]) == 0) return SQLITE_OK;
    return SQLITE_DENY;
}

static int end_their_work(void *unused)
{
    (void)unused;
    return --set.their_work < 0;
}

static sqlite3 *open_theirs(void)
{
    sqlite3 *db = NULL;
    demand(sqlite3_open(set.path, &db) == SQLITE_OK, "SQLite opens it");
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 1 << 20);
    (void)sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    (void)sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    set.their_work = THEIR_WORK / 100;
    sqlite3_progress_handler(db, 100, end_their_work, NULL);
    (void)sqlite3_set_authorizer(db, authorize, NULL);
    return db;
}

static void run_their_sql(const uint8_t *data, size_t size)
{
    char *const sql = malloc(size + 1);
    demand(sql != NULL, "there is memory");
    if (size) memcpy(sql, data, size);
    sql[size] = '\0';
    sqlite3 *const db = open_theirs();
    for (const char *at = sql; at && *at;) { /* a statement that fails does not end the others */
        sqlite3_stmt *statement = NULL;
        if (sqlite3_prepare_v2(db, at, -1, &statement, &at) != SQLITE_OK) break;
        for (int row = 0; statement && row < 100 && sqlite3_step(statement) == SQLITE_ROW;) row++;
        (void)sqlite3_finalize(statement);
    }
    (void)sqlite3_close(db);
    free(sql);
}

static void write_their_text(const uint8_t *data, size_t size)
{
    static const char sql[] = "UPDATE sqlite_schema SET sql = ?1 WHERE name = ?2";
    sqlite3_stmt *statement = NULL;
    if (size < 1) return;
    sqlite3 *const db = open_theirs();
    (void)sqlite3_exec(db, "PRAGMA writable_schema = ON", NULL, NULL, NULL);
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_text(statement, 1, (const char *)data + 1, (int)size - 1, SQLITE_STATIC);
        (void)sqlite3_bind_text(statement, 2, set.object[data[0] % set.n_object], -1, SQLITE_STATIC);
        (void)sqlite3_step(statement);
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
}

static void edit_file(const uint8_t *data, size_t size, size_t within)
{
    static uint8_t bad[MAX_STORE];
    memcpy(bad, set.good, set.n_good);
    while (size >= 4) {
        const size_t at = ((size_t)data[0] << 16 | (size_t)data[1] << 8 | data[2]) % within;
        size_t n = data[3] % 64;
        data += 4;
        size -= 4;
        if (n > size) n = size;
        if (n > set.n_good - at) n = set.n_good - at;
        if (n) memcpy(bad + at, data, n);
        data += n;
        size -= n;
    }
    write_bytes(set.path, bad, set.n_good);
}

/* --- What must hold ------------------------------------------------------------------------------------- */

static void check_status_schema(tandem_status status, const tandem_error *error)
{
    if (status == TANDEM_OK) return;
    demand(error->status == status && error->text[0], "an error has a text");
    demand(status == TANDEM_MALFORMED || status == TANDEM_WRONG_FORMAT || status == TANDEM_MISSING ||
               status == TANDEM_IO,
           error->text);
}

static tandem_status pass_cost(void *n, const tandem_cost_key *key, const tandem_cost *cost,
                               tandem_error *error)
{
    (void)error;
    demand(cost->n >= 1 && key->elements >= 0, "a cost");
    ++*(int64_t *)n;
    return TANDEM_OK;
}

static tandem_status pass_timing(void *n, const tandem_timing *timing, tandem_error *error)
{
    (void)error;
    demand(timing->time_ns > 0, "a time");
    ++*(int64_t *)n;
    return TANDEM_OK;
}

static void read_all(tandem_store *store, bool all)
{
    tandem_error error = {0};
    json_t *overview = NULL;
    tandem_collective_point *point = NULL;
    tandem_algorithm *choice = NULL;
    double factor = 0;
    int n = 0;
    int64_t rows = 0;
    check_status_schema(tandem_store_visit_costs(store, "d", "", NULL, pass_cost, &rows, &error), &error);
    check_status_schema(tandem_store_load_collective(&point, &n, store, "a+b", "all-reduce", 0, &error),
                        &error);
    check_status_schema(
        tandem_store_get_interference(&factor, store, "d", "a+b", "compute_under_comm", 512, &error), &error);
    check_status_schema(tandem_store_visit_timings(store, "t4", pass_timing, &rows, &error), &error);
    check_status_schema(tandem_store_load_algorithms(&choice, &n, store, &error), &error);
    if (all) check_status_schema(tandem_store_overview(&overview, store, &error), &error);
    json_decref(overview);
    free(choice);
    free(point);
}

typedef struct file_bytes {
    uint8_t bytes[1 << 21];
    size_t n;
} file_bytes;

static void read_bytes(file_bytes *of, const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? 0 : read(file, of->bytes, sizeof of->bytes);
    of->n = n < 0 ? 0 : (size_t)n;
    if (file >= 0) (void)close(file);
}

static void read_store(bool has_journal, bool all)
{
    static file_bytes before, after;
    tandem_store *store = NULL;
    tandem_error error = {0};
    read_bytes(&before, set.path);
    (void)sqlite3_memory_highwater(1);
    const tandem_status status = tandem_store_open(&store, set.path, TANDEM_STORE_READ, &error);
    check_status_schema(status, &error);
    if (status == TANDEM_OK) read_all(store, all);
    tandem_store_close(store);
    demand(sqlite3_memory_highwater(0) < MAX_HEAP, "SQLite's memory has a bound");
    read_bytes(&after, set.path);
    /* a journal that may be ours is rolled back */
    demand(has_journal || (after.n == before.n && memcmp(after.bytes, before.bytes, after.n) == 0),
           "reading changes nothing");
}

/* A store that is read can be written to, unless a value in it says otherwise. */
static void write_store(void)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    check_status_schema(tandem_store_open(&store, set.path, TANDEM_STORE_WRITE, &error), &error);
    tandem_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    set_up_fuzz_schema();
    if (size < 1) return 0;
    (void)unlink(set.log);
    (void)unlink(set.journal);
    (void)unlink(set.index);
    /* without a log that is faster */
    set.good[18] = set.good[19] = data[0] == 'W' ? 2 : 1;
    if (data[0] != 'B' && data[0] != 'P') write_bytes(set.path, set.good, set.n_good);
    switch (data[0]) {
    case 'S': run_their_sql(data + 1, size - 1); break;
    case 'T': write_their_text(data + 1, size - 1); break;
    case 'P': edit_file(data + 1, size - 1, 4096); break;
    case 'W': write_bytes(set.log, data + 1, size - 1); break;
    case 'J': write_bytes(set.journal, data + 1, size - 1); break;
    case 'B': edit_file(data + 1, size - 1, set.n_good); break;
    default: return 0;
    }
    read_store(data[0] == 'J' || access(set.journal, F_OK) == 0, size % 4 == 1);
    if (size % 8 == 0) write_store();
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const sql[] = {
        "SDROP TABLE op_cost; CREATE VIEW op_cost AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM n) SELECT max(i) FROM n",
        "SCREATE TRIGGER t AFTER INSERT ON device BEGIN DELETE FROM op_cost; END",
        "SPRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'host'",
        "SUPDATE operator SET signature = hex(zeroblob(100000)); DELETE FROM device",
        "SCREATE INDEX i ON operator (length(signature)); CREATE VIRTUAL TABLE f USING fts5 (x)",
        "T\x01"
        "CREATE TABLE host (a, b AS (hex(zeroblob(100000000))))",
        "T\x02"
        "CREATE VIEW device AS SELECT 1",
        "P\x01\x02\x03\x04"
        "abcd",
        "W\x37\x7f\x06\x82",
        "J\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
        "B\x01\x02\x03\x04"
        "abcd",
    };
    enum { N = sizeof sql / sizeof *sql };
    const uint8_t *seed[N];
    size_t n[N];
    for (int i = 0; i < N; i++) {
        seed[i] = (const uint8_t *)sql[i];
        n[i] = strlen(sql[i]);
    }
    (void)atexit(clean_up);
    return tandem_fuzz_main("schema", LLVMFuzzerTestOneInput, seed, n, N, argc, argv);
}
