/* link: --wrap=openat --wrap=__openat_2 --wrap=getrandom --wrap=malloc --wrap=calloc --wrap=realloc */
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

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

int __wrap___openat_2(int folder, const char *path, int flags); /* openat, where flags are no constant */
ssize_t __real_getrandom(void *bytes, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t n, unsigned flags);

static bool without_nameless; /* as on a file system that has no such files */
static bool is_foreseen;      /* the random number is 7 */
static int n_careless;        /* opened for writing, but new ones not alone, or through a link */
static const char *swapped;   /* before this name is opened, a link to `victim` takes its place */

ssize_t __wrap_getrandom(void *bytes, size_t n, unsigned flags)
{
    if (!is_foreseen) return __real_getrandom(bytes, n, flags);
    memset(bytes, 0, n);
    *(char *)bytes = 7;
    return (ssize_t)n;
}

static bool is_nameless(int flags)
{
    return (flags & __O_TMPFILE) == __O_TMPFILE;
} /* folders have a bit of it */

static bool is_careless(int flags)
{
    if ((flags & O_ACCMODE) == O_RDONLY || is_nameless(flags)) return false;
    return !(flags & O_NOFOLLOW) || (flags & O_CREAT && !(flags & O_EXCL));
}

int __wrap_openat(int folder_of, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = flags & O_CREAT || is_nameless(flags) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (without_nameless && is_nameless(flags)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    n_careless += is_careless(flags);
    if (swapped && strcmp(path, swapped) == 0) {
        char aside[64];
        (void)snprintf(aside, sizeof aside, "%s.aside", path);
        (void)rename(path, aside);
        (void)!symlink("victim", path);
        swapped = NULL;
    }
    return __real_openat(folder_of, path, flags, mode);
}

int __wrap___openat_2(int folder_of, const char *path, int flags)
{
    return __wrap_openat(folder_of, path, flags);
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
    without_nameless = is_foreseen = false;
    n_careless = 0;
    swapped = NULL;
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

/* /dev/stdout and its like are links whose text is no path where they lead to a pipe, or a file without
 * a name. */
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

/* --- Other users ---------------------------------------------------------------------------------------- */

enum { NOBODY = 65534, DAEMON = 1 };

static void skip_unless_root(void)
{
    if (geteuid() == 0) return;
    (void)puts("SKIP: files of another user: this needs root");
    skip();
}

static void put_link(const char *to, const char *path, uid_t owner)
{
    assert_int_equal(symlink(to, path), 0);
    assert_int_equal(lchown(path, owner, owner), 0);
}

/* Writes nothing, leaves nothing, and names the file. */
static void assert_not_written(const char *path, const char *says)
{
    tandem_file file = {0};
    tandem_error error = {0};
    const int n = entries();
    const tandem_status status = tandem_file_open(&file, path, &error);
    if (status != TANDEM_IO || !strstr(error.text, says))
        fail_msg("%s: '%s' has no '%s'", path, error.text, says);
    assert_null(file.stream);
    if (tandem_path_open(path, O_TRUNC | O_CREAT, &error) >= 0) fail_msg("%s is opened in place", path);
    assert_non_null(strstr(error.text, says));
    assert_int_equal(entries(), n);
}

/* Root follows links of root alone: in a folder that all may write to, and in a folder of theirs. */
static void root_follows_no_link_of_others(void **state)
{
    skip_unless_root();
    put_file("victim", "secret");
    assert_int_equal(chmod("victim", 0600), 0);
    assert_int_equal(mkdir("inside", 0700), 0);
    assert_int_equal(mkdir("theirs", 0755), 0);
    assert_int_equal(chown("theirs", NOBODY, NOBODY), 0);
    put_link("../victim", "theirs/out.json", NOBODY);
    put_link("victim", "out.json", NOBODY);
    put_link("not_yet", "dangling", NOBODY);
    put_link("inside", "parent", NOBODY);
    put_link("out.json", "own", 0);
    for (mode_t mode = 0755; mode <= 01777; mode += 01777 - 0755) {
        assert_int_equal(chmod(".", mode), 0);
        assert_not_written("out.json", "another user");
        assert_not_written("theirs/out.json", "another user");
        assert_not_written("dangling", "another user");
        assert_not_written("parent/new", "another user");
        assert_not_written("own", "another user"); /* the second link is theirs */
    }
    assert_holds("victim", "secret");
    assert_int_equal(access("not_yet", F_OK), -1);
    assert_int_equal(access("inside/new", F_OK), -1);
    assert_int_equal(symlink("victim", "mine"), 0);
    write_whole("mine", "meant");
    assert_holds("victim", "meant");
}

/* As another user, in a process of its own. */
static void as_nobody(void (*check)(void))
{
    int how = 0;
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) _exit(99);
        check();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void expect_in_child(bool holds, const char *what)
{
    if (holds) return;
    (void)fprintf(stderr, "as nobody: %s\n", what);
    _exit(1);
}

static tandem_status write_one(const char *path)
{
    tandem_file file = {0};
    const tandem_status status = tandem_file_open(&file, path, NULL);
    return status == TANDEM_OK ? tandem_file_finish(&file, NULL) : status;
}

static void write_as_nobody(void)
{
    expect_in_child(write_one("of_daemon") == TANDEM_IO, "a link of a third user is not followed");
    expect_in_child(write_one("of_root") == TANDEM_OK, "one of root is");
    expect_in_child(write_one("own") == TANDEM_OK, "and one's own");
    expect_in_child(write_one("shared/of_owner") == TANDEM_OK,
                    "and one of the folder's owner, where he alone writes");
    expect_in_child(write_one("shared/of_other") == TANDEM_IO, "but not one of a third user");
    expect_in_child(write_one("file_of_daemon") == TANDEM_IO, "a file of a third user stays");
}

static void users_follow_their_own_links_and_those_of_root(void **state)
{
    skip_unless_root();
    assert_int_equal(chmod(".", 01777), 0);
    assert_int_equal(mkdir("mine", 0700), 0);
    assert_int_equal(chown("mine", NOBODY, NOBODY), 0);
    assert_int_equal(mkdir("shared", 0755), 0);
    put_link("mine/a", "of_daemon", DAEMON);
    put_link("mine/b", "of_root", 0);
    put_link("mine/c", "own", NOBODY);
    put_link("../mine/d", "shared/of_owner", DAEMON);
    put_link("../mine/e", "shared/of_other", 2);
    assert_int_equal(chown("shared", DAEMON, DAEMON), 0);
    put_file("file_of_daemon", "theirs");
    assert_int_equal(chown("file_of_daemon", DAEMON, DAEMON), 0);
    as_nobody(write_as_nobody);
    assert_int_equal(access("mine/a", F_OK), -1);
    assert_int_equal(access("mine/b", F_OK), 0);
    assert_int_equal(access("mine/c", F_OK), 0);
    assert_int_equal(access("mine/d", F_OK), 0);
    assert_int_equal(access("mine/e", F_OK), -1);
    assert_holds("file_of_daemon", "theirs");
}

/* In a folder that all may write to, what another user put there is not written to: a file that keeps its
 * owner and mode, a pipe that waits for what is secret, a second name of one's own file. */
static void what_others_put_there_stays(void **state)
{
    tandem_error error = {0};
    skip_unless_root();
    assert_int_equal(chmod(".", 01777), 0);
    put_file("planted", "bait");
    assert_int_equal(chown("planted", NOBODY, NOBODY), 0);
    assert_int_equal(mkfifo("pipe", 0666), 0);
    assert_int_equal(chown("pipe", NOBODY, NOBODY), 0);
    assert_not_written("planted", "another user");
    assert_not_written("pipe", "another user");
    assert_holds("planted", "bait");
    put_file("victim", "secret");
    assert_int_equal(link("victim", "second"), 0);
    assert_int_equal(tandem_path_open("second", O_TRUNC, &error), -1);
    assert_non_null(strstr(error.text, "another name"));
    write_whole("second", "new"); /* replaced, so that the other name keeps its content */
    assert_holds("victim", "secret");
    assert_holds("second", "new");
    assert_int_equal(chmod(".", 0755), 0); /* one's own folder: what lies there is meant */
    write_whole("planted", "written");
}

static void what_is_opened_is_what_was_seen(void **state)
{
    tandem_error error = {0};
    put_file("victim", "secret");
    put_file("log", "old");
    swapped = "log";
    assert_int_equal(tandem_path_open("log", O_TRUNC, &error), -1);
    assert_null(swapped);
    assert_holds("victim", "secret");
    assert_int_equal(remove("victim") | mkdir("victim", 0700) | mkdir("parent", 0700), 0);
    swapped = "parent";
    tandem_file file = {0};
    assert_int_equal(tandem_file_open(&file, "parent/new", &error), TANDEM_IO);
    assert_null(swapped);
    assert_int_equal(access("victim/new", F_OK), -1);
    swapped = "made";
    assert_int_equal(tandem_path_open("made", O_CREAT, &error), -1);
    assert_null(swapped);
    assert_int_equal(n_careless, 0);
}

/* The name of the file in the making was foreseen, and lies there: as a link, a file, a second name. */
static void a_foreseen_name_is_not_taken(void **state)
{
    static const char partial[] = ".tandem-t.json-0000000000000007";
    tandem_file file = {0};
    tandem_error error = {0};
    is_foreseen = true;
    put_file("victim", "secret");
    for (int kind = 0; kind < 3; kind++) {
        assert_int_equal(kind == 0   ? symlink("victim", partial)
                         : kind == 1 ? link("victim", partial)
                                     : mkfifo(partial, 0666),
                         0);
        tandem_status status = tandem_file_open(&file, "t.json", &error);
        if (status == TANDEM_OK) { /* a file without a name takes it at its end */
            (void)fputs("new", file.stream);
            status = tandem_file_finish(&file, &error);
        }
        assert_int_equal(status, TANDEM_IO);
        assert_holds("victim", "secret");
        assert_int_equal(access("t.json", F_OK), -1);
        (void)unlink(partial);
    }
    write_whole("t.json", "new");
    assert_holds("t.json", "new");
    assert_int_equal(n_careless, 0);
}

static void a_file_is_written_in_place(void **state)
{
    tandem_error error = {0};
    struct stat seen;
    int file = tandem_path_open("log", O_CREAT | O_APPEND, &error);
    assert_true(file >= 0 && write(file, "one", 3) == 3 && close(file) == 0);
    file = tandem_path_open("log", O_CREAT | O_APPEND, &error);
    assert_true(file >= 0 && write(file, "two", 3) == 3 && close(file) == 0);
    assert_holds("log", "onetwo");
    assert_int_equal(symlink("log", "way"), 0);
    file = tandem_path_open("way", O_CREAT | O_APPEND | O_TRUNC, &error);
    assert_true(file >= 0 && write(file, "new", 3) == 3 && close(file) == 0);
    assert_holds("log", "new");
    assert_int_equal(fstatat(AT_FDCWD, "log", &seen, 0), 0);
    assert_int_equal(seen.st_mode & 0777 & ~0644U, 0);
    assert_int_equal(tandem_path_open("none", 0, &error), -1);
    assert_int_equal(tandem_path_open("new/", O_CREAT, &error), -1);
    file = tandem_path_open("/dev/null", O_TRUNC, &error);
    assert_true(file >= 0 && close(file) == 0);
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
        EITHER_WAY(root_follows_no_link_of_others),
        EITHER_WAY(users_follow_their_own_links_and_those_of_root),
        EITHER_WAY(what_others_put_there_stays),
        EITHER_WAY(what_is_opened_is_what_was_seen),
        EITHER_WAY(a_foreseen_name_is_not_taken),
        EITHER_WAY(a_file_is_written_in_place),
        cmocka_unit_test_setup_teardown(a_writer_that_is_killed_leaves_nothing, enter_file, leave_file),
    };
    return cmocka_run_group_tests_name("files written whole", tests, NULL, NULL);
}
