/* folder: plugins */
/* What srun leaves for the tasks of a step: they take it from its own folder and file, and from no other; and
 * no name but those that srun writes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugins/slurm/run_folder.h"
#include "tests/support/tandem_test.h"

static const char left_text[] = "TANDEM_PLAN=/home/u/plan.json\nTANDEM_RANKS=0 1 cpu:avx2 n[0-3];\n";

typedef struct place {
    char path[32];
    int directory;
} place;

static int open_place_run_folder(void **state)
{
    static place p;
    (void)strcpy(p.path, "/tmp/tandem-run-XXXXXX");
    if (!mkdtemp(p.path)) return 1;
    p.directory = open(p.path, O_RDONLY | O_DIRECTORY);
    *state = &p;
    return p.directory < 0;
}

static int close_place_run_folder(void **state)
{
    const place *p = *state;
    static const char *const files[] = {"run/environment", "run/left", "other/environment"},
                             *const folders[] = {"run", "other"};
    for (size_t k = 0; k < N_OF(files); k++) (void)unlinkat(p->directory, files[k], 0);
    for (size_t k = 0; k < N_OF(folders); k++) {
        (void)unlinkat(p->directory, folders[k], 0);
        (void)unlinkat(p->directory, folders[k], AT_REMOVEDIR);
    }
    (void)close(p->directory);
    return rmdir(p->path); /* so nothing else was left */
}

static void put_run_folder(const place *p, const char *name, const char *text, mode_t mode)
{
    const int file = openat(p->directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(file, mode), 0);
    (void)close(file);
}

/* A folder as srun makes it, with such a file in it. */
static void plant(const place *p, const char *folder, const char *text)
{
    char file[64];
    (void)snprintf(file, sizeof file, "%s/environment", folder);
    assert_int_equal(mkdirat(p->directory, folder, 0700), 0);
    put_run_folder(p, file, text, 0600);
}

/* "" where it is taken, else what is said of it. */
static const char *reading(const place *p, tandem_status expected)
{
    static tandem_error error;
    tandem_run_environment left = {0};
    error = (tandem_error){0};
    const tandem_status status = tandem_run_folder_read(&left, p->directory, "run", &error);
    if (status != expected) fail_msg("%s: %s", tandem_status_name(status), error.text);
    if (status != TANDEM_OK) assert_null(left.text);
    free(left.text);
    return error.text;
}

static void refused_run_folder(const place *p, const char *why)
{
    const char *said = reading(p, TANDEM_WRONG_FORMAT);
    if (!strstr(said, why)) fail_msg("%s", said);
}

/* --- The folder ----------------------------------------------------------------------------------------- */

static void a_folder_is_named_by_job_component_and_step(void **state)
{
    char name[TANDEM_RUN_NAME];
    assert_string_equal(tandem_run_folder_name(name, 7, 0, 2), ".tandem-run-7.2");
    assert_string_equal(tandem_run_folder_name(name, UINT32_MAX, UINT32_MAX, UINT32_MAX),
                        ".tandem-run-4294967295+4294967295.4294967295");
}

static void a_meeting_place_is_empty_and_private(void **state)
{
    const place *p = *state;
    struct stat seen;
    tandem_error error = {0};
    const mode_t mask = umask(0);
    assert_int_equal(tandem_run_folder_make(p->directory, "run", NULL), TANDEM_OK);
    (void)umask(mask);
    assert_int_equal(fstatat(p->directory, "run", &seen, 0), 0);
    assert_int_equal(seen.st_mode & 0777, 0700);
    put_run_folder(p, "run/left", "by an earlier run", 0600);
    assert_int_equal(tandem_run_folder_make(p->directory, "run", NULL), TANDEM_OK);
    assert_int_not_equal(fstatat(p->directory, "run/left", &seen, 0), 0);
    put_run_folder(p, "run/environment", "of this one", 0600);
    tandem_run_folder_remove(p->directory, "run");
    assert_int_not_equal(fstatat(p->directory, "run", &seen, 0), 0);
    tandem_run_folder_remove(p->directory, "run");

    /* a link to a folder of ours is none */
    assert_int_equal(mkdirat(p->directory, "other", 0700), 0);
    put_run_folder(p, "other/environment", "stays", 0600);
    assert_int_equal(symlinkat("other", p->directory, "run"), 0);
    assert_int_equal(tandem_run_folder_make(p->directory, "run", &error), TANDEM_WRONG_FORMAT);
    tandem_run_folder_remove(p->directory, "run");
    assert_int_equal(fstatat(p->directory, "other/environment", &seen, 0), 0);
}

static void a_directory_that_cannot_be_written_says_so_run_folder(void **state)
{
    tandem_error error = {0};
    const int proc = open("/proc", O_RDONLY | O_DIRECTORY); /* refuses even root */
    assert_true(proc >= 0);
    assert_int_equal(tandem_run_folder_make(proc, "run", &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "'run' cannot be made in the job's working directory"));
    (void)close(proc);
}

/* --- What is left --------------------------------------------------------------------------------------- */

static void what_is_written_is_read(void **state)
{
    const place *p = *state;
    tandem_run_environment left = {0};
    struct stat seen;
    const char *const value[TANDEM_N_RUN_VARIABLE] = {
        [TANDEM_RUN_PLAN] = "/a b/=c", [TANDEM_RUN_RANKS] = "0 1 t4 g[0-3];", [TANDEM_RUN_SIZE] = "4"};
    assert_int_equal(tandem_run_folder_make(p->directory, "run", NULL), TANDEM_OK);
    assert_non_null(strstr(reading(p, TANDEM_IO), "'run' cannot be read")); /* there is no file yet */
    const mode_t mask = umask(0);
    assert_int_equal(tandem_run_folder_write(p->directory, "run", value, NULL), TANDEM_OK);
    (void)umask(mask);
    assert_int_equal(fstatat(p->directory, "run/environment", &seen, 0), 0);
    assert_int_equal(seen.st_mode & 0777, 0600);
    assert_int_equal(tandem_run_folder_read(&left, p->directory, "run", NULL), TANDEM_OK);
    for (int v = 0; v < TANDEM_N_RUN_VARIABLE; v++) {
        if (value[v])
            assert_string_equal(left.value[v], value[v]);
        else
            assert_null(left.value[v]);
    }
    assert_int_equal(left.failed, 0);
    free(left.text);

    /* and what comes later takes its place: the step has failed after all */
    const char *const failed[TANDEM_N_RUN_VARIABLE] = {[TANDEM_RUN_FAILED] = "4"};
    left = (tandem_run_environment){0};
    assert_int_equal(tandem_run_folder_write(p->directory, "run", failed, NULL), TANDEM_OK);
    assert_int_equal(tandem_run_folder_read(&left, p->directory, "run", NULL), TANDEM_OK);
    assert_int_equal(left.failed, 4);
    assert_null(left.value[TANDEM_RUN_RANKS]);
    free(left.text);
}

static void a_value_that_would_be_two_lines_is_not_written(void **state)
{
    const place *p = *state;
    tandem_error error = {0};
    const char *const value[TANDEM_N_RUN_VARIABLE] = {
        [TANDEM_RUN_PLAN] = "/home/u\nLD_PRELOAD=/tmp/x.so", [TANDEM_RUN_RANKS] = "0 1 t4 n0;"};
    assert_int_equal(tandem_run_folder_make(p->directory, "run", NULL), TANDEM_OK);
    assert_int_equal(tandem_run_folder_write(p->directory, "run", value, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "TANDEM_PLAN"));
    (void)reading(p, TANDEM_IO);
}

static void where_there_is_no_folder_there_is_nothing(void **state)
{
    assert_non_null(strstr(reading(*state, TANDEM_MISSING), "there is no 'run'"));
}

/* --- What others have put there ------------------------------------------------------------------------- */

static void links_are_not_followed_run_folder(void **state)
{
    const place *p = *state;
    plant(p, "other", left_text);
    assert_int_equal(symlinkat("other", p->directory, "run"), 0);
    refused_run_folder(p, "'run' in the working directory is a link");
    (void)unlinkat(p->directory, "run", 0);
    assert_int_equal(mkdirat(p->directory, "run", 0700), 0);
    assert_int_equal(symlinkat("../other/environment", p->directory, "run/environment"), 0);
    refused_run_folder(p, "'run/environment' in the working directory is a link");
}

static void what_is_no_folder_or_no_file_is_refused_at_once(void **state)
{
    const place *p = *state;
    put_run_folder(p, "run", left_text, 0600);
    refused_run_folder(p, "'run' in the working directory is a link, or no folder");
    (void)unlinkat(p->directory, "run", 0);
    assert_int_equal(mkdirat(p->directory, "run", 0700), 0);
    assert_int_equal(mkfifoat(p->directory, "run/environment", 0600), 0);
    refused_run_folder(p, "no regular file");
}

static void what_others_may_write_is_refused(void **state)
{
    const place *p = *state;
    static const mode_t modes[] = {0720, 0702, 0777, 01777};
    plant(p, "run", left_text);
    for (size_t k = 0; k < N_OF(modes); k++) {
        assert_int_equal(fchmodat(p->directory, "run", modes[k], 0), 0);
        refused_run_folder(p, "'run' in the working directory is of mode");
    }
    assert_int_equal(fchmodat(p->directory, "run", 0755, 0), 0);
    assert_string_equal(reading(p, TANDEM_OK), ""); /* to be read is no harm */
    for (size_t k = 0; k < N_OF(modes); k++) {
        assert_int_equal(fchmodat(p->directory, "run/environment", modes[k] & 0666, 0), 0);
        refused_run_folder(p, "'run/environment' in the working directory is of mode");
    }
}

static void what_is_somebody_elses_is_refused(void **state)
{
    const place *p = *state;
    if (geteuid() != 0) {
        (void)printf("SKIP: only root can give a file to somebody else\n");
        skip();
    }
    plant(p, "run", left_text);
    assert_int_equal(fchownat(p->directory, "run", 65534, 65534, 0), 0);
    refused_run_folder(p, "'run' in the working directory is user 65534's, not user 0's");
    assert_int_equal(tandem_run_folder_make(p->directory, "run", NULL), TANDEM_WRONG_FORMAT);
    assert_int_equal(
        tandem_run_folder_write(p->directory, "run", (const char *[TANDEM_N_RUN_VARIABLE]){NULL}, NULL),
        TANDEM_WRONG_FORMAT);
    tandem_run_folder_remove(p->directory, "run");
    assert_int_equal(fchownat(p->directory, "run", 0, 0, 0), 0);
    /* and it was not removed */
    assert_int_equal(fchownat(p->directory, "run/environment", 65534, 65534, 0), 0);
    refused_run_folder(p, "'run/environment' in the working directory is user 65534's");
}

/* --- What is in it -------------------------------------------------------------------------------------- */

static void other_names_are_refused_and_nothing_is_taken(void **state)
{
    static const char *const rows[][2] = {
        {"LD_PRELOAD=/tmp/x.so\n", "line 1: 'LD_PRELOAD' is no name of srun's"},
        {"TANDEM_RANKS=0 1 t4 n0;\nPATH=/tmp\n", "line 2: 'PATH'"},
        {"TANDEM_RANKS=0 1 t4 n0;\nTANDEM_PLA=x\n", "line 2: 'TANDEM_PLA'"},
        {"TANDEM_RANKS=0 1 t4 n0;\n TANDEM_PLAN=x\n", "line 2: '?TANDEM_PLAN'"},
        {"TANDEM_RANKS=0 1 t4 n0;\n\n", "line 2: ''"},
        {"TANDEM_RANKS=0 1 t4 n0;\n\x1b[31mTANDEM_PLAN=x\n", "line 2: '??31mTANDEM_PLAN'"},
        {"TANDEM_RANKS\n", "line 1: 'TANDEM_RANKS'"},
        {"TANDEM_RANKS=0 1 t4 n0;\nTANDEM_RANKS=0 1 t4 n0;\n", "line 2: it is there twice"},
        {"TANDEM_RANKS=0 1 t4 n0;\nTANDEM_PLAN=\n", "line 2: there is no value"},
        {"TANDEM_RANKS=0 1 t4 n0;\nTANDEM_PLAN=/tm", "line 2: it does not end"},
        {"TANDEM_PLAN=/tmp\n", "there is no TANDEM_RANKS"},
        {"", "there is no TANDEM_RANKS"},
        {"TANDEM_FAILED=0\n", "a number from 1 to 255"},
        {"TANDEM_FAILED=256\n", "a number from 1 to 255"},
        {"TANDEM_FAILED=-1\n", "a number from 1 to 255"},
        {"TANDEM_FAILED=4x\n", "a number from 1 to 255"},
        {"TANDEM_FAILED=4\nTANDEM_RANKS=0 1 t4 n0;\n", "more beside TANDEM_FAILED"},
    };
    for (size_t k = 0; k < N_OF(rows); k++) {
        tandem_run_environment left = {0};
        tandem_error error = {0};
        assert_int_equal(tandem_run_environment_parse(&left, rows[k][0], strlen(rows[k][0]), "run", &error),
                         TANDEM_WRONG_FORMAT);
        assert_null(left.text);
        if (!strstr(error.text, rows[k][1])) fail_msg("row %zu: %s", k, error.text);
    }
    tandem_run_environment left = {0};
    assert_int_equal(tandem_run_environment_parse(&left, "TANDEM_RANKS=0\0\n", 16, "run", NULL),
                     TANDEM_WRONG_FORMAT);
}

static void a_file_has_a_size_that_it_may_have(void **state)
{
    const place *p = *state;
    char *text = malloc(TANDEM_RUN_MAX_BYTES + 2);
    assert_non_null(text);
    memset(text, 'x', TANDEM_RUN_MAX_BYTES + 1);
    memcpy(text, "TANDEM_RANKS=", 13);
    text[TANDEM_RUN_MAX_BYTES - 1] = '\n';
    text[TANDEM_RUN_MAX_BYTES] = '\0';
    plant(p, "run", text);
    assert_string_equal(reading(p, TANDEM_OK), "");
    text[TANDEM_RUN_MAX_BYTES - 1] = 'x';
    text[TANDEM_RUN_MAX_BYTES] = '\n';
    text[TANDEM_RUN_MAX_BYTES + 1] = '\0';
    put_run_folder(p, "run/environment", text, 0600);
    refused_run_folder(p, "bytes at most");
    free(text);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, open_place_run_folder, close_place_run_folder)
    const struct CMUnitTest tests[] = {
        ROW(a_folder_is_named_by_job_component_and_step),
        ROW(a_meeting_place_is_empty_and_private),
        ROW(a_directory_that_cannot_be_written_says_so_run_folder),
        ROW(what_is_written_is_read),
        ROW(a_value_that_would_be_two_lines_is_not_written),
        ROW(where_there_is_no_folder_there_is_nothing),
        ROW(links_are_not_followed_run_folder),
        ROW(what_is_no_folder_or_no_file_is_refused_at_once),
        ROW(what_others_may_write_is_refused),
        ROW(what_is_somebody_elses_is_refused),
        ROW(other_names_are_refused_and_nothing_is_taken),
        ROW(a_file_has_a_size_that_it_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
