/* folder: base */
/* Small files that would fill the memory: each ends the program with exit code 3 and a reason, and it never
 * holds more than some dozen MiB. Runs the program itself and asks the kernel for its peak. */
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/support/tandem_test.h"

enum { MIB = 1 << 20, MEMBERS = 512 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TIMES = 6 }; /* sanitizers hold some of what was freed, and a shadow of all */
#else
enum { TIMES = 1 };
#endif

typedef struct place {
    char folder[32], program[PATH_MAX];
} place;

/* --- Files ---------------------------------------------------------------------------------------------- */

/* Enters a folder of its own. The program lies two folders above the test's. */
static int enter_small_files(void **state)
{
    place *const p = calloc(1, sizeof *p);
    assert_non_null(p);
    const ssize_t n = readlink("/proc/self/exe", p->program, sizeof p->program - 1);
    assert_true(n > 0);
    for (int k = 0; k < 3; k++) *strrchr(p->program, '/') = '\0';
    (void)strcat(p->program, "/tandem");
    (void)strcpy(p->folder, "/tmp/tandem_small_XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    assert_int_equal(chdir(p->folder), 0);
    *state = p;
    return 0;
}

static int leave_small_files(void **state)
{
    static const char *const names[] = {"head", "body", "out", "err", "pipe", "train-images-idx3-ubyte.gz"};
    place *const p = *state;
    for (size_t k = 0; k < N_OF(names); k++) (void)unlink(names[k]);
    (void)chdir("/");
    (void)rmdir(p->folder);
    free(p);
    return 0;
}

/* Appends one member of gzip. */
static void append(const char *path, const void *bytes, size_t n)
{
    const gzFile file = gzopen(path, "ab6");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
}

/* A member of `first`, then MEMBERS of about 1 MiB of `again`: 512 MiB from a file of at most 4. */
static void write_bomb(const char *path, const char *first, size_t n_first, const char *again, size_t n_again)
{
    char *const much = malloc(MIB + n_again);
    size_t n = 0;
    struct stat about;
    assert_non_null(much);
    for (; n < MIB; n += n_again) memcpy(much + n, again, n_again);
    (void)unlink("body");
    append("body", much, n);
    assert_int_equal(stat("body", &about), 0);
    FILE *const from = fopen("body", "rb");
    assert_non_null(from);
    assert_int_equal(fread(much, 1, (size_t)about.st_size, from), about.st_size);
    assert_int_equal(fclose(from), 0);
    append(path, first, n_first);
    FILE *const to = fopen(path, "ab");
    assert_non_null(to);
    for (int k = 0; k < MEMBERS; k++)
        assert_int_equal(fwrite(much, 1, (size_t)about.st_size, to), about.st_size);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_size < 4 * MIB);
    free(much);
}

/* --- Runs ----------------------------------------------------------------------------------------------- */

static void child_small_files(const char *program, const char *const *word)
{
    const int out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600),
              err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || err < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(126);
    (void)alarm(60); /* what waits for a pipe would wait for ever */
    (void)execv(program, (char *const *)(uintptr_t)word);
    _exit(127);
}

/* Runs the program: it must end with exit code 3, say `why`, and never hold more than `most` MiB. */
static void refused_small_files(const place *p, int most, const char *why, const char *const *word)
{
    char said[4096] = "";
    int ended = 0;
    struct rusage used;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) child_small_files(p->program, word);
    assert_int_equal(wait4(pid, &ended, 0, &used), pid);
    FILE *const err = fopen("err", "rb");
    assert_non_null(err);
    const size_t n = fread(said, 1, sizeof said - 1, err);
    assert_int_equal(fclose(err), 0);
    said[n] = '\0';
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 3)
        fail_msg("%s %s: ended with %#x; expected exit code 3. It said: %s", word[1], word[2],
                 (unsigned)ended, said);
    if (!strstr(said, why)) fail_msg("%s %s: expected '%s', got: %s", word[1], word[2], why, said);
    if (used.ru_maxrss > 1024L * most * TIMES)
        fail_msg("%s %s: held %ld KiB; expected at most %d MiB", word[1], word[2], used.ru_maxrss,
                 most * TIMES);
}
#define REFUSED(p, most, why, ...)                                                                           \
    refused_small_files(p, most, why, (const char *const[]){"tandem", __VA_ARGS__, NULL})

/* --- Traces --------------------------------------------------------------------------------------------- */

static void a_trace_of_chakra(void **state)
{
    static const char zeros[4096];
    write_bomb("zeros.et.gz", "", 1, zeros, sizeof zeros); /* empty metadata, then empty nodes */
    REFUSED(*state, 64, "an empty message; expected a node", "whatif", "zeros.et.gz");
    write_bomb("same.et.gz", "", 1, "\2\10\5", 3); /* nodes of id 5 */
    REFUSED(*state, 64, "node 5 () occurs twice", "whatif", "same.et.gz");
    (void)unlink("zeros.et.gz");
    (void)unlink("same.et.gz");
}

/* Nodes of which each depends 900,000 times on the first. */
static void dependencies_of_a_trace_of_chakra(void **state)
{
    enum { N_DEP = 900000 };
    unsigned char *const node = malloc(N_DEP + 16);
    assert_non_null(node);
    memcpy(node, "\xa6\xf7\x36\x08\x01\x2a\xa0\xf7\x36", 9); /* length; id; packed field 5 and its length */
    memset(node + 9, 1, N_DEP);
    append("deps.et.gz", "", 1);
    for (unsigned char id = 1; id < 64; id++) {
        node[4] = id;
        append("deps.et.gz", node, N_DEP + 9);
    }
    REFUSED(*state, 256, "unpacks to over 16 MiB and to over 100 times its size", "whatif", "deps.et.gz");
    free(node);
    (void)unlink("deps.et.gz");
}

static void other_traces(void **state)
{
    static const char heading[] = "dp_rank,stage,step,optype,seq_id,start_us,dur_us\n",
                      row[] = "0,0,0,gc,0,0,1\n";
    static const char task[] = "{\"ph\":\"X\",\"name\":\"a\",\"ts\":0,\"dur\":1,\"pid\":0,\"tid\":0,"
                               "\"args\":{\"kind\":\"x\",\"task\":1}},";
    static const char kernel[] =
        "{\"ph\":\"X\",\"name\":\"a\",\"cat\":\"kernel\",\"ts\":0,\"dur\":1,\"pid\":0,\"tid\":0},";
    static const char too_far[] = "unpack it with gunzip";
    write_bomb("job.csv.gz", heading, strlen(heading), row, strlen(row));
    REFUSED(*state, 128, too_far, "whatif", "job.csv.gz");
    write_bomb("step.json.gz", "[", 1, task, strlen(task));
    REFUSED(*state, 128, too_far, "whatif", "step.json.gz");
    write_bomb("torch.json.gz", "[", 1, kernel, strlen(kernel));
    REFUSED(*state, 64, too_far, "whatif", "torch.json.gz");
    write_bomb("blanks.json.gz", "[", 1, "    ", 4);
    REFUSED(*state, 64, too_far, "whatif", "blanks.json.gz");
    (void)unlink("job.csv.gz");
    (void)unlink("step.json.gz");
    (void)unlink("torch.json.gz");
    (void)unlink("blanks.json.gz");
}

static void what_never_ends(void **state)
{
    assert_int_equal(mkfifo("pipe", 0600), 0);
    REFUSED(*state, 64, "'/dev/zero' is not a regular file", "whatif", "/dev/zero");
    REFUSED(*state, 64, "'pipe' is not a regular file", "whatif", "pipe");
}

/* --- What is read whole --------------------------------------------------------------------------------- */

static void files_that_are_read_whole(void **state)
{
    REFUSED(*state, 96, "larger than the 67108864 bytes", "replay", "--plan", "/dev/zero");
    REFUSED(*state, 96, "larger than the 1048576 bytes", "replay", "--model", "mlp", "--uniform", "fp32",
            "--predict", "--cluster", "/dev/zero");
}

static void data_and_weights(void **state)
{
    static const char header[] = {0, 0, 8, 3, 0, 1, 0, 0, 0, 0, 0, 28, 0, 0, 0, 28}, zeros[784];
    write_bomb("train-images-idx3-ubyte.gz", header, sizeof header, zeros, sizeof zeros);
    REFUSED(*state, 192, "unpack it with gunzip", "train", "-q", "--model", "mlp", "--device", "cpu:sse41",
            "--data", ".", "--steps", "1");
    (void)unlink("train-images-idx3-ubyte.gz");
    FILE *const text = fopen("body", "wb");
    assert_non_null(text);
    for (int k = 0; k < 64; k++) assert_true(fputs("mixed devices train one model together ", text) >= 0);
    assert_int_equal(fclose(text), 0);
    REFUSED(*state, 192, "'/dev/zero' is no regular file; write the weights into one", "train", "-q",
            "--model", "gpt_tiny:length=8", "--device", "cpu:sse41", "--data", "body", "--steps", "1",
            "--init", "/dev/zero");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_trace_of_chakra, enter_small_files, leave_small_files),
        cmocka_unit_test_setup_teardown(dependencies_of_a_trace_of_chakra, enter_small_files,
                                        leave_small_files),
        cmocka_unit_test_setup_teardown(other_traces, enter_small_files, leave_small_files),
        cmocka_unit_test_setup_teardown(what_never_ends, enter_small_files, leave_small_files),
        cmocka_unit_test_setup_teardown(files_that_are_read_whole, enter_small_files, leave_small_files),
        cmocka_unit_test_setup_teardown(data_and_weights, enter_small_files, leave_small_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
