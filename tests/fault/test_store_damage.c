/* link: --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: profiles */
/* The profile store when things go wrong: damaged and foreign files, killed writers, full disks, no
 * memory. */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/philox.h"
#include "tandem/advanced/store.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

/* --- Files as bytes ------------------------------------------------------------------------------------- */
typedef struct content {
    unsigned char *bytes;
    size_t n;
} content;

static content read_file_store_damage(const char *path)
{
    content c = {0};
    struct stat seen;
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &seen), 0);
    c.n = (size_t)seen.st_size;
    c.bytes = malloc(c.n + 1);
    assert_non_null(c.bytes);
    assert_int_equal(fread(c.bytes, 1, c.n, file), c.n);
    (void)fclose(file);
    return c;
}

static void assert_file_is(const char *path, const unsigned char *bytes, size_t n)
{
    const content now = read_file_store_damage(path);
    assert_int_equal(now.n, n);
    assert_memory_equal(now.bytes, bytes, n);
    free(now.bytes);
}

/* --- A store with something of everything --------------------------------------------------------------- */
static tandem_cost_key key_of_store_damage(int i)
{
    tandem_cost_key key = {
        .kind = TANDEM_COST_OP, .precision = "int8", .pass = TANDEM_PASS_FORWARD, .from = TANDEM_S8};
    (void)snprintf(key.signature, sizeof key.signature, "linear m=8 k=%d n=256", i);
    return key;
}

static tandem_status put_store_damage(tandem_store *store, int i, tandem_error *error)
{
    tandem_cost cost;
    int64_t sample[2] = {1000 + i, 1000 + i};
    const tandem_cost_key key = key_of_store_damage(i);
    tandem_cost_from_samples(&cost, sample, 2, 0);
    return tandem_store_put_cost(store, "cpu:avx2", "", &key, &cost, error);
}

static tandem_status put_other(tandem_store *store, tandem_error *error)
{
    int64_t run = 0, sample[1] = {7};
    tandem_collective_point point = {.bytes = 4096};
    tandem_cost_from_samples(&point.cost, sample, 1, 0);
    const tandem_run_record record = {.model = "mlp", .cluster = "a", .plan_name = "x", .plan_json = "{}"};
    const tandem_event_record event = {.kind = "forward", .stream = "compute"};
    tandem_status status = tandem_store_put_collective(store, "a+b", "all-reduce", 0, &point, error);
    if (status == TANDEM_OK)
        status = tandem_store_put_interference(store, "cpu:avx2", "a+b", "compute_under_comm", 4096, 1.5, 3,
                                               error);
    const tandem_timing timing = {
        .device = "t4", .kind = "add", .precision = "fp32", .rows = 8, .columns = 4, .time_ns = 9};
    if (status == TANDEM_OK) status = tandem_store_put_timings(store, &timing, 1, error);
    const tandem_steadiness steadiness = {.compute_speed_sample_ns = 7};
    if (status == TANDEM_OK) status = tandem_store_put_steadiness(store, "cpu:avx2", "", &steadiness, error);
    if (status == TANDEM_OK) status = tandem_store_put_run(store, &record, &run, error);
    const tandem_branch_record branch = {.model = "mlp", .hash = 5, .n_step = 2};
    if (status == TANDEM_OK) status = tandem_store_put_branch(store, &branch, (const double[]){2, 1}, error);
    char plan[] = "{}";
    const tandem_trial_record trial = {.plan = plan, .data = "d", .base = "fp32", .n_step = 2, .n_pair = 3};
    if (status == TANDEM_OK) status = tandem_store_put_trial(store, "mlp", 0, &trial, error);
    return status == TANDEM_OK ? tandem_store_put_events(store, run, &event, 1, error) : status;
}

static tandem_status fill_store_damage(const char *path, int n, tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int i = 0; i < n && status == TANDEM_OK; i++) status = put_store_damage(store, i, error);
    if (status == TANDEM_OK) status = put_other(store, error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    tandem_store_close(store);
    return status;
}

static tandem_status count_cost_store_damage(void *n, const tandem_cost_key *key, const tandem_cost *cost,
                                             tandem_error *error)
{
    (void)key, (void)cost, (void)error;
    ++*(int64_t *)n;
    return TANDEM_OK;
}

static tandem_status count_timing_store_damage(void *n, const tandem_timing *timing, tandem_error *error)
{
    (void)error;
    if (!(timing->time_ns > 0)) return TANDEM_BUG;
    ++*(int64_t *)n;
    return TANDEM_OK;
}

/* Opens it and reads all that the replayer reads. `n`: costs found, −1 on error. */
static tandem_status read_all_store_damage(const char *path, tandem_store_mode mode, int64_t *n,
                                           tandem_error *error)
{
    tandem_store *store = NULL;
    tandem_cost_table *table = NULL;
    tandem_collective_point *points = NULL;
    int n_point = 0;
    double factor = 0;
    int64_t count = 0;
    *n = -1;
    tandem_status status = tandem_store_open(&store, path, mode, error);
    if (status == TANDEM_OK) status = tandem_store_load_costs(&table, store, "cpu:avx2", "", NULL, error);
    if (status == TANDEM_OK)
        status = tandem_store_load_collective(&points, &n_point, store, "a+b", "all-reduce", 0, error);
    if (status == TANDEM_OK) {
        status = tandem_store_get_interference(&factor, store, "cpu:avx2", "a+b", "compute_under_comm", 4096,
                                               error);
        status = status == TANDEM_MISSING ? TANDEM_OK : status;
    }
    if (status == TANDEM_OK)
        status =
            tandem_store_visit_costs(store, "cpu:avx2", "", NULL, count_cost_store_damage, &count, error);
    if (status == TANDEM_OK) *n = count;
    if (status == TANDEM_OK)
        status = tandem_store_visit_timings(store, "t4", count_timing_store_damage, &count, error);
    tandem_branch_record branch = {.hash = 5, .n_step = 2};
    double *loss = NULL;
    tandem_trial_record *trial = NULL;
    int n_trial = 0;
    if (status == TANDEM_OK) status = tandem_store_load_branch(&branch, &loss, store, error);
    if (status == TANDEM_OK) status = tandem_store_load_trials(&trial, &n_trial, store, 0, error);
    tandem_store_close_trials(trial, n_trial);
    free(loss);
    free(points);
    tandem_cost_table_free(table);
    tandem_store_close(store);
    return status;
}

static content good_store(const char *path, int n)
{
    tandem_error error = {0};
    int64_t found = 0;
    require_ok(fill_store_damage(path, n, &error), &error);
    assert_int_equal(read_all_store_damage(path, TANDEM_STORE_READ, &found, &error), TANDEM_OK);
    assert_int_equal(found, n);
    return read_file_store_damage(path);
}

/* --- Damage --------------------------------------------------------------------------------------------- */
static void a_short_file_is_refused_as_it_is(void **state)
{
    const test_folder *const p = *state;
    const content good = good_store(p->path, 400);
    const size_t lengths[] = {1, 15, 16, 99, 100, 1000, 4096, 4097, good.n / 2, good.n - 4096, good.n - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
            tandem_error error = {0};
            int64_t n = 0;
            (void)empty_folder(p->folder);
            write_test_file(p->path, good.bytes, lengths[i]);
            const tandem_status status = read_all_store_damage(p->path, (tandem_store_mode)mode, &n, &error);
            if (status != TANDEM_MALFORMED)
                fail_msg("%zu bytes: %s: %s", lengths[i], tandem_status_name(status), error.text);
            assert_non_null(strstr(error.text, "Move it away"));
            assert_file_is(p->path, good.bytes, lengths[i]);
            assert_int_equal(count_files(p->folder), 1);
        }
    free(good.bytes);
}

static void what_is_no_store_is_refused_as_it_is(void **state)
{
    const test_folder *const p = *state;
    const content good = good_store(p->path, 10);
    static const struct {
        size_t at;
        unsigned char value;
        tandem_status status;
        const char *says;
    } flips[] = {
        {0, 'X', TANDEM_MALFORMED, "Move it away"},
        {15, 1, TANDEM_MALFORMED, "Move it away"},
        {68, 0, TANDEM_WRONG_FORMAT, "another program"}, /* application id */
        /* user version */
        {71, 'x', TANDEM_WRONG_FORMAT, "another program"},
        {63, 6, TANDEM_WRONG_FORMAT, "version 6"},
        {60, 1, TANDEM_WRONG_FORMAT, "version 16777226"},
    };
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; i++)
        for (int mode = TANDEM_STORE_READ; mode <= TANDEM_STORE_WRITE; mode++) {
            tandem_error error = {0};
            int64_t n = 0;
            const unsigned char kept = good.bytes[flips[i].at];
            (void)empty_folder(p->folder);
            good.bytes[flips[i].at] = flips[i].value;
            write_test_file(p->path, good.bytes, good.n);
            assert_int_equal(read_all_store_damage(p->path, (tandem_store_mode)mode, &n, &error),
                             flips[i].status);
            assert_non_null(strstr(error.text, flips[i].says));
            assert_file_is(p->path, good.bytes, good.n);
            assert_int_equal(count_files(p->folder), 1);
            good.bytes[flips[i].at] = kept;
        }
    free(good.bytes);
}

static void make_database(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void other_programs_keep_their_databases(void **state)
{
    const test_folder *const p = *state;
    static const struct {
        const char *sql;
        tandem_status status;
    } databases[] = {
        {"CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)", TANDEM_WRONG_FORMAT},
        {"PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)", TANDEM_WRONG_FORMAT},
        {"PRAGMA application_id = 7; PRAGMA user_version = 1; CREATE TABLE device (x)", TANDEM_WRONG_FORMAT},
        /* ours by its mark, but the tables are missing */
        {"PRAGMA application_id = 1953391725; PRAGMA user_version = 10; CREATE TABLE theirs (x)",
         TANDEM_WRONG_FORMAT},
    };
    for (size_t i = 0; i < sizeof databases / sizeof databases[0]; i++) {
        tandem_error error = {0};
        int64_t n = 0;
        (void)empty_folder(p->folder);
        make_database(p->path, databases[i].sql);
        const content before = read_file_store_damage(p->path);
        assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), databases[i].status);
        assert_file_is(p->path, before.bytes, before.n);
        if (databases[i].status == TANDEM_WRONG_FORMAT) {
            assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_WRITE, &n, &error),
                             TANDEM_WRONG_FORMAT);
            assert_file_is(p->path, before.bytes, before.n);
            assert_int_equal(count_files(p->folder), 1);
        }
        free(before.bytes);
    }
}

/* A store marked as ours whose version is 0 is empty: it is created. */
static void an_empty_store_is_created(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    int64_t n = 0;
    make_database(p->path, "PRAGMA application_id = 1953391725");
    assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), TANDEM_MISSING);
    assert_int_equal(fill_store_damage(p->path, 3, &error), TANDEM_OK);
    assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), TANDEM_OK);
    assert_int_equal(n, 3);
}

static int is_answer(tandem_status status)
{
    return status == TANDEM_OK || status == TANDEM_MALFORMED || status == TANDEM_WRONG_FORMAT ||
           status == TANDEM_MISSING;
}

/* Every page in turn is overwritten; what is read is right, or refused. */
static void a_page_of_garbage_is_refused(void **state)
{
    enum { PAGE = 4096 };
    const test_folder *const p = *state;
    const content good = good_store(p->path, 400);
    unsigned char *const bad = malloc(good.n);
    assert_non_null(bad);
    int refused = 0;
    for (size_t page = 1; page < good.n / PAGE; page++) {
        tandem_error error = {0};
        int64_t n = 0;
        (void)empty_folder(p->folder);
        memcpy(bad, good.bytes, good.n);
        memset(bad + page * PAGE, 0xa5, PAGE);
        write_test_file(p->path, bad, good.n);
        const tandem_status status = read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error);
        assert_true(status == TANDEM_OK || status == TANDEM_MALFORMED);
        assert_true(status == TANDEM_MALFORMED || n == 400);
        refused += status == TANDEM_MALFORMED;
        assert_file_is(p->path, bad, good.n);
    }
    assert_true(refused >= 5); /* the costs alone fill more */
    free(bad);
    free(good.bytes);
}

/* Small pages, so that texts of the schema have pages of their own. Of some of these damages SQLite (3.40)
 * says that it has no memory. */
static void damaged_schemas_lack_no_memory(void **state)
{
    enum { LENGTH = 9 };
    const size_t stride = test_is_long() ? 7 : 29;
    const test_folder *const p = *state;
    make_database(p->path, "PRAGMA page_size = 1024; VACUUM; PRAGMA application_id = 1953391725");
    tandem_error error = {0};
    assert_int_equal(fill_store_damage(p->path, 5, &error), TANDEM_OK);
    const content good = read_file_store_damage(p->path);
    unsigned char *const bad = malloc(good.n);
    assert_non_null(bad);
    int spared = 0;
    for (size_t at = 100; at + LENGTH < good.n; at += stride) {
        tandem_store *store = NULL;
        memcpy(bad, good.bytes, good.n);
        memset(bad + at, 0xff, LENGTH);
        write_test_file(p->path, bad, good.n);
        const tandem_status status = tandem_store_open(&store, p->path, TANDEM_STORE_READ, &error);
        tandem_store_close(store);
        if (status != TANDEM_OK && status != TANDEM_MALFORMED && status != TANDEM_WRONG_FORMAT)
            fail_msg("byte %zu: %s: %s", at, tandem_status_name(status), error.text);
        spared += status != TANDEM_OK && strstr(error.text, "memory to spare") != NULL;
    }
    (void)printf("%d damages that SQLite has no memory for\n", spared);
    free(bad);
    free(good.bytes);
}

static void random_damage_never_crashes(void **state)
{
    enum { SEED = 11 };
    const uint32_t n_case = cases_of(400, 4);
    const test_folder *const p = *state;
    const content good = good_store(p->path, 100);
    unsigned char *const bad = malloc(good.n);
    assert_non_null(bad);
    (void)printf("seed %d\n", SEED);
    int refused = 0;
    for (uint32_t i = 0; i < n_case; i++) {
        tandem_error error = {0};
        int64_t n = 0;
        const tandem_philox_block draw = tandem_philox((const uint32_t[4]){i, 0, 0, 0}, SEED);
        memcpy(bad, good.bytes, good.n);
        /* half of them near the front, where headers and schema are */
        const size_t at = draw.word[0] % (i % 2 ? good.n : 4096);
        size_t length = 1 + draw.word[1] % 8;
        length = at + length > good.n ? good.n - at : length;
        for (size_t b = 0; b < length; b++) bad[at + b] = (unsigned char)(draw.word[2] >> b % 4 * 8);
        (void)empty_folder(p->folder);
        write_test_file(p->path, bad, good.n);
        const tandem_status status = read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error);
        if (!is_answer(status))
            fail_msg("seed %d case %u: %s: %s", SEED, i, tandem_status_name(status), error.text);
        refused += status != TANDEM_OK;
        assert_file_is(p->path, bad, good.n);
        /* and a writer neither */
        (void)fill_store_damage(p->path, 5, &error);
    }
    assert_true(refused > 0);
    free(bad);
    free(good.bytes);
}

/* --- Killed writers ------------------------------------------------------------------------------------- */
static void wait_killed(pid_t child)
{
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void a_killed_transaction_leaves_nothing(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    int64_t n = 0;
    free(good_store(p->path, 50).bytes);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tandem_store *store = NULL;
        tandem_status status = tandem_store_open(&store, p->path, TANDEM_STORE_WRITE, NULL);
        for (int i = 50; i < 60 && status == TANDEM_OK; i++)
            status = put_store_damage(store, i, NULL); /* each a transaction of its own: kept */
        if (status == TANDEM_OK) status = tandem_store_begin(store, NULL);
        for (int i = 60; i < 3000 && status == TANDEM_OK; i++) status = put_store_damage(store, i, NULL);
        if (status == TANDEM_OK) (void)raise(SIGKILL);
        _exit(1);
    }
    wait_killed(child);
    assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), TANDEM_OK);
    assert_int_equal(n, 60);
    assert_int_equal(fill_store_damage(p->path, 70, &error), TANDEM_OK);
    assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), TANDEM_OK);
    assert_int_equal(n, 70);
}

/* The child reports through a pipe what it has committed; it dies at any instant, also while it makes the
 * store. */
static void a_writer_killed_anywhere_keeps_its_word(void **state)
{
    enum { ROUNDS = 12 };
    const test_folder *const p = *state;
    for (int round = 0; round < ROUNDS; round++) {
        int report[2];
        tandem_error error = {0};
        (void)empty_folder(p->folder);
        assert_int_equal(pipe(report), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            tandem_store *store = NULL;
            if (tandem_store_open(&store, p->path, TANDEM_STORE_WRITE, NULL) != TANDEM_OK) _exit(1);
            for (int i = 0; put_store_damage(store, i, NULL) == TANDEM_OK; i++)
                if (write(report[1], &i, sizeof i) != sizeof i) _exit(1);
            _exit(1);
        }
        (void)close(report[1]);
        (void)usleep((useconds_t)(round * round * 300));
        assert_int_equal(kill(child, SIGKILL), 0);
        wait_killed(child);
        int committed = 0, last;
        while (read(report[0], &last, sizeof last) == sizeof last) committed = last + 1;
        (void)close(report[0]);
        int64_t n = 0;
        const tandem_status status = read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error);
        if (committed > 0 || status != TANDEM_MISSING) {
            assert_int_equal(status, TANDEM_OK);
            assert_in_range(n, committed, committed + 1); /* one may be committed and not reported */
        }
        assert_int_equal(fill_store_damage(p->path, committed + 3, &error), TANDEM_OK);
    }
}

/* --- Full disks and folders without rights -------------------------------------------------------------- */
/* A limit on the size of files does what a full disk does. */
static int write_until_full(const char *path)
{
    tandem_store *store = NULL;
    tandem_error error = {0};
    struct stat seen;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (stat(path, &seen) != 0 || tandem_store_open(&store, path, TANDEM_STORE_WRITE, &error) != TANDEM_OK)
        return 1;
    const struct rlimit limit = {(rlim_t)seen.st_size + 20000, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || tandem_store_begin(store, &error) != TANDEM_OK) return 2;
    tandem_status status = TANDEM_OK;
    for (int i = 100; i < 100000 && status == TANDEM_OK; i++) status = put_store_damage(store, i, &error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, &error);
    if (status != TANDEM_IO) {
        (void)fprintf(stderr, "%s: %s\n", tandem_status_name(status), error.text);
        return 3;
    }
    /* nothing of a lost transaction may be kept one by one */
    for (int i = 0; i < 3; i++)
        if (put_store_damage(store, 100 + i, &error) == TANDEM_OK &&
            tandem_store_commit(store, &error) == TANDEM_OK)
            return 4;
    tandem_store_rollback(store);
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &all) != 0 || put_store_damage(store, 99, &error) != TANDEM_OK) return 5;
    tandem_store_close(store);
    return 0;
}

static void a_full_disk_loses_nothing_committed(void **state)
{
    const test_folder *const p = *state;
    tandem_error error = {0};
    int64_t n = 0;
    int how = 0;
    free(good_store(p->path, 50).bytes);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(write_until_full(p->path));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_int_equal(read_all_store_damage(p->path, TANDEM_STORE_READ, &n, &error), TANDEM_OK);
    assert_int_equal(n, 51);
}

static void a_folder_without_rights_is_said(void **state)
{
    const test_folder *const p = *state;
    int how = 0;
    assert_int_equal(chmod(p->folder, 0555), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tandem_store *store = NULL;
        tandem_error error = {0};
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
        _exit(tandem_store_open(&store, p->path, TANDEM_STORE_WRITE, &error) == TANDEM_IO && !store &&
                      strstr(error.text, p->path)
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(chmod(p->folder, 0755), 0);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == 99) {
        (void)printf("SKIP: no right to become another user\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_int_equal(count_files(p->folder), 0);
}

/* --- No memory ------------------------------------------------------------------------------------------ */
/* SQLite's memory comes through here as well, so that its allocations fail with ours. */
static void *sqlite_allocate(int bytes) { return malloc((size_t)bytes); }
static void sqlite_free(void *block) { free(block); }
static void *sqlite_reallocate(void *block, int bytes) { return realloc(block, (size_t)bytes); }
static int sqlite_size(void *block) { return block ? (int)malloc_usable_size(block) : 0; }
static int sqlite_round(int bytes) { return (bytes + 7) & ~7; }
static int sqlite_begin(void *unused)
{
    (void)unused;
    return SQLITE_OK;
}
static void sqlite_end(void *unused) { (void)unused; }

/* Files an algorithm and reads it back. */
static tandem_status know_algorithms(const char *path, tandem_error *error)
{
    static const tandem_algorithm algorithm = {"card | work", "1"};
    tandem_algorithm *known = NULL;
    tandem_store *store = NULL;
    int n = 0;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_put_algorithms(store, &algorithm, 1, error);
    if (status == TANDEM_OK) status = tandem_store_load_algorithms(&known, &n, store, error);
    if (status == TANDEM_OK) assert_int_equal(n, 1);
    free(known);
    tandem_store_close(store);
    return status;
}

static tandem_status everything(const char *path, int64_t *n, tandem_error *error)
{
    tandem_status status = fill_store_damage(path, 2, error);
    if (status == TANDEM_OK) status = know_algorithms(path, error);
    return status == TANDEM_OK ? read_all_store_damage(path, TANDEM_STORE_READ, n, error) : status;
}

/* Some of SQLite's allocations are for speed only: it does without, so OK is right then, too. */
static void allocations_may_fail(void **state)
{
    /* all of the first, then a sample: there are thousands, most of them SQLite's parser's */
    const long all = (long)cases_of(200, 3), stride = test_is_long() ? 7 : 35;
    const test_folder *const p = *state;
    long tried = 0, no_memory = 0, k = 0;
    for (int failed = 1; failed; k += k < all ? 1 : stride) {
        tandem_error error = {0};
        int64_t n = 0;
        (void)empty_folder(p->folder);
        tandem_fail_allocation_after(k);
        const tandem_status status = everything(p->path, &n, &error);
        failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        if (status != TANDEM_OK && (!failed || status != TANDEM_NO_MEMORY))
            fail_msg("allocation %ld: %s: %s", k, tandem_status_name(status), error.text);
        assert_true(status != TANDEM_OK || n == 2);
        tried += failed;
        no_memory += status == TANDEM_NO_MEMORY;
        /* whatever failed, the store is whole */
        assert_int_equal(everything(p->path, &n, &error), TANDEM_OK);
        assert_int_equal(n, 2);
    }
    (void)printf("%ld allocations failed, %ld of them needed\n", tried, no_memory);
    assert_true(no_memory > all);
}

int main(void)
{
    static const sqlite3_mem_methods memory = {
        .xMalloc = sqlite_allocate,
        .xFree = sqlite_free,
        .xRealloc = sqlite_reallocate,
        .xSize = sqlite_size,
        .xRoundup = sqlite_round,
        .xInit = sqlite_begin,
        .xShutdown = sqlite_end,
    };
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &memory) != SQLITE_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_short_file_is_refused_as_it_is, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(what_is_no_store_is_refused_as_it_is, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(other_programs_keep_their_databases, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(an_empty_store_is_created, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_page_of_garbage_is_refused, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(damaged_schemas_lack_no_memory, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(random_damage_never_crashes, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(a_killed_transaction_leaves_nothing, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(a_writer_killed_anywhere_keeps_its_word, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(a_full_disk_loses_nothing_committed, test_folder_open,
                                        test_folder_close),
        cmocka_unit_test_setup_teardown(a_folder_without_rights_is_said, test_folder_open, test_folder_close),
        cmocka_unit_test_setup_teardown(allocations_may_fail, test_folder_open, test_folder_close),
    };
    return cmocka_run_group_tests_name("store damage", tests, NULL, NULL);
}
