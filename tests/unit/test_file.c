/* link: --wrap=open --wrap=malloc --wrap=calloc --wrap=realloc */
/* folder: base */
/* Files written whole: old or new, never half, and nobody else's. Each test has a folder of its own and is
 * run twice: where files can be without a name until they are complete, and where they cannot. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/tandem_test.h"

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

static bool without_nameless; /* as on a file system that has no such files */

int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (without_nameless && (flags & __O_TMPFILE)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static char folder[] = "/tmp/tandem-file-XXXXXX";

static int enter_file(void **state)
{
    (void)strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : 1;
}

static int enter_without_nameless(void **state)
{
    without_nameless = true;
    return enter_file(state);
}

static int leave_file(void **state)
{
    char command[64];
    without_nameless = false;
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_holds(const char *path, const char *text)
{
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(tandem_file_read(&bytes, &n, path, 1 << 20, NULL), TANDEM_OK);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, n);
    free(bytes);
}

static int entries(void)
{
    DIR *list = opendir(".");
    int n = 0;
    assert_non_null(list);
    while (readdir(list)) n++;
    (void)closedir(list);
    return n - 2;
}

static void write_whole(const char *path, const char *text)
{
    tandem_file file = {0};
    tandem_error error = {0};
    assert_int_equal(tandem_file_open(&file, path, &error), TANDEM_OK);
    assert_true(fputs(text, file.stream) >= 0);
    assert_int_equal(tandem_file_finish(&file, &error), TANDEM_OK);
    assert_null(file.stream);
    assert_null(file.path);
}

static mode_t mode_of(const char *path)
{
    struct stat seen;
    assert_int_equal(lstat(path, &seen), 0);
    return seen.st_mode & 07777;
}

static bool is_link(const char *path)
{
    struct stat seen;
    assert_int_equal(lstat(path, &seen), 0);
    return S_ISLNK(seen.st_mode);
}

static void a_neighbour_of_any_name_survives(void **state)
{
    put_file("t.json.tmp", "the user's");
    put_file("victim", "the victim's");
    assert_int_equal(symlink("victim", "u.json.tmp"), 0);
    write_whole("t.json", "one");
    write_whole("u.json", "two");
    assert_holds("t.json", "one");
    assert_holds("u.json", "two");
    assert_holds("t.json.tmp", "the user's");
    assert_holds("victim", "the victim's");
    assert_int_equal(entries(), 5);
}

static void the_mode_of_the_old_file_is_kept(void **state)
{
    const mode_t before = umask(027);
    write_whole("new", "one");
    assert_int_equal(mode_of("new"), 0640);
    static const mode_t modes[] = {0600, 0644, 0400, 0666, 0755};
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        assert_int_equal(chmod("new", modes[k]), 0);
        write_whole("new", "again");
        assert_int_equal(mode_of("new"), modes[k]);
    }
    (void)umask(before);
    assert_holds("new", "again");
}

/* At no moment may others read what replaces a file that only its owner reads. */
static void it_is_never_more_open_than_the_old_file(void **state)
{
    tandem_file file = {0};
    struct stat seen;
    put_file("secret", "old");
    assert_int_equal(chmod("secret", 0600), 0);
    assert_int_equal(tandem_file_open(&file, "secret", NULL), TANDEM_OK);
    assert_int_equal(fstat(fileno(file.stream), &seen), 0);
    assert_int_equal(seen.st_mode & 0777, 0600);
    tandem_file_discard(&file);
}

static void owner_and_group_of_the_old_file_are_kept(void **state)
{
    struct stat seen;
    if (geteuid() != 0) {
        (void)puts("SKIP: files of another user: this needs root");
        skip();
    }
    put_file("theirs", "old");
    assert_int_equal(chown("theirs", 65534, 65533), 0);
    write_whole("theirs", "new");
    assert_int_equal(stat("theirs", &seen), 0);
    assert_int_equal(seen.st_uid, 65534);
    assert_int_equal(seen.st_gid, 65533);
    assert_holds("theirs", "new");
}

static void a_link_stays_a_link(void **state)
{
    assert_int_equal(mkdir("there", 0777), 0);
    put_file("there/real", "old");
    assert_int_equal(symlink("real", "there/second"), 0);
    assert_int_equal(symlink("there/second", "first"), 0);
    write_whole("first", "new");
    assert_true(is_link("first") && is_link("there/second") && !is_link("there/real"));
    assert_holds("there/real", "new");
    assert_int_equal(symlink("there/not_yet", "dangling"), 0);
    write_whole("dangling", "made");
    assert_true(is_link("dangling"));
    assert_holds("there/not_yet", "made");
    assert_int_equal(symlink("circle", "circle"), 0);
    tandem_file file = {0};
    tandem_error error = {0};
    assert_int_equal(tandem_file_open(&file, "circle", &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "circle"));
    assert_null(file.stream);
}

/* /dev/stdout and its like are links whose text is no path where there is a pipe, or a file without a name,
 * behind them. */
static void write_to_descriptors(void)
{
    int ends[2];
    char text[8] = "", path[32];
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    write_whole(path, "through");
    assert_int_equal(read(ends[0], text, sizeof text), 7);
    (void)close(ends[0]);
    (void)close(ends[1]);
    const int deleted = open("deleted", O_RDWR | O_CREAT, 0600);
    assert_true(deleted >= 0 && unlink("deleted") == 0 && write(deleted, "something longer", 16) == 16);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", deleted);
    write_whole(path, "shorter");
    assert_int_equal(pread(deleted, text, sizeof text, 0), 7);
    (void)close(deleted);
}

static void pipes_and_devices_are_written_directly(void **state)
{
    char text[8] = "";
    struct stat seen;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    const int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    write_whole("pipe", "through");
    assert_int_equal(read(reader, text, sizeof text), 7);
    (void)close(reader);
    write_whole("/dev/null", "away");
    assert_int_equal(stat("/dev/null", &seen), 0);
    assert_true(S_ISCHR(seen.st_mode));
    assert_int_equal(symlink("/dev/null", "nowhere"), 0);
    write_whole("nowhere", "away");
    assert_true(is_link("nowhere"));
    write_to_descriptors();
    tandem_file file = {0};
    assert_int_equal(tandem_file_open(&file, "-", NULL), TANDEM_OK);
    assert_ptr_equal(file.stream, stdout);
    tandem_file_discard(&file);
    assert_int_equal(entries(), 2);
}

static void what_cannot_be_written_is_an_error(void **state)
{
    tandem_error error = {0};
    tandem_file file = {0};
    assert_int_equal(tandem_file_open(&file, "/dev/full", &error), TANDEM_OK);
    (void)fputs("anything", file.stream);
    assert_int_equal(tandem_file_finish(&file, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "/dev/full"));
    assert_int_equal(tandem_file_open(&file, "no/folder", &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "no/folder"));
    assert_int_equal(tandem_file_open(&file, ".", &error), TANDEM_IO);
    assert_int_equal(tandem_file_open(&file, "", &error), TANDEM_IO);
    assert_null(file.stream);
    assert_int_equal(entries(), 0);
}

/* A file that may not grow beyond a limit fails as on a disk that is full. */
static void a_full_disk_leaves_the_old_file_and_nothing_else(void **state)
{
    tandem_error error = {0};
    tandem_file file = {0};
    struct rlimit before;
    put_file("t.json", "old");
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, before.rlim_max}), 0);
    assert_int_equal(tandem_file_open(&file, "t.json", &error), TANDEM_OK);
    for (int k = 0; k < 10000 && !ferror(file.stream); k++) (void)fputs("0123456789", file.stream);
    const tandem_status status = tandem_file_finish(&file, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TANDEM_IO);
    assert_non_null(strstr(error.text, "t.json"));
    assert_null(strstr(error.text, ".tandem-"));
    assert_holds("t.json", "old");
    assert_int_equal(entries(), 1);
    assert_int_equal(tandem_file_open(&file, "t.json", &error), TANDEM_OK);
    tandem_file_discard(&file);
    assert_holds("t.json", "old");
    assert_int_equal(entries(), 1);
}

static void without_memory_the_old_file_stays(void **state)
{
    put_file("t.json", "old");
    tandem_status status = TANDEM_NO_MEMORY;
    for (long k = 0; status != TANDEM_OK; k++) {
        tandem_file file = {0};
        tandem_fail_allocation_after(k);
        status = tandem_file_open(&file, "t.json", NULL);
        const int failed = tandem_allocation_failed();
        tandem_fail_allocation_after(-1);
        assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
        tandem_file_discard(&file);
    }
    assert_holds("t.json", "old");
    assert_int_equal(entries(), 1);
}

enum { WRITES = 400, LENGTH = 40000 };

static void write_often(char letter)
{
    static char text[LENGTH + 1];
    memset(text, letter, LENGTH);
    for (int k = 0; k < WRITES; k++) write_whole("shared", text);
    _exit(0);
}

static bool is_whole(const char *path)
{
    char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(tandem_file_read(&bytes, &n, path, 1 << 20, NULL), TANDEM_OK);
    bool whole = n == LENGTH;
    for (size_t k = 1; whole && k < n; k++) whole = bytes[k] == bytes[0];
    free(bytes);
    return whole;
}

static void of_two_writers_one_has_the_last_word(void **state)
{
    static char text[LENGTH + 1];
    memset(text, 'c', LENGTH);
    write_whole("shared", text);
    pid_t child[2];
    for (int k = 0; k < 2; k++) {
        child[k] = fork();
        assert_true(child[k] >= 0);
        if (child[k] == 0) write_often((char)('a' + k));
    }
    for (int left = 2; left > 0;) {
        int how = 0;
        const pid_t ended = waitpid(-1, &how, WNOHANG);
        if (ended > 0) {
            left--;
            assert_int_equal(how, 0);
        }
        assert_true(is_whole("shared"));
    }
    assert_int_equal(entries(), 1);
}

static void a_writer_that_is_killed_leaves_nothing(void **state)
{
    put_file("t.json", "old");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tandem_file file = {0};
        const char how = tandem_file_open(&file, "t.json", NULL) == TANDEM_OK &&
                                 fputs("half", file.stream) >= 0 && fflush(file.stream) == 0
                             ? (char)('0' + file.is_unnamed)
                             : '?';
        (void)!write(ready[1], &how, 1);
        for (;;) (void)pause();
    }
    char how = '?';
    assert_int_equal(read(ready[0], &how, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_holds("t.json", "old");
    assert_int_not_equal(how, '?');
    if (how == '0') {
        (void)puts("SKIP: a writer that is killed: the file system of /tmp has no files without a name");
        skip();
    }
    assert_int_equal(entries(), 1);
}

#define EITHER_WAY(test)                                                                                     \
    cmocka_unit_test_setup_teardown(test, enter_file, leave_file),                                           \
    {                                                                                                        \
#test " (named)", test, enter_without_nameless, leave_file, NULL                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EITHER_WAY(a_neighbour_of_any_name_survives),
        EITHER_WAY(the_mode_of_the_old_file_is_kept),
        EITHER_WAY(it_is_never_more_open_than_the_old_file),
        EITHER_WAY(owner_and_group_of_the_old_file_are_kept),
        EITHER_WAY(a_link_stays_a_link),
        EITHER_WAY(pipes_and_devices_are_written_directly),
        EITHER_WAY(what_cannot_be_written_is_an_error),
        EITHER_WAY(a_full_disk_leaves_the_old_file_and_nothing_else),
        EITHER_WAY(without_memory_the_old_file_stays),
        EITHER_WAY(of_two_writers_one_has_the_last_word),
        cmocka_unit_test_setup_teardown(a_writer_that_is_killed_leaves_nothing, enter_file, leave_file),
    };
    return cmocka_run_group_tests_name("files written whole", tests, NULL, NULL);
}
