/* folder: backend */
/* link: --wrap=openat --wrap=fsync --wrap=renameat --wrap=malloc --wrap=calloc --wrap=realloc */
/* Checkpoint files that are damaged, foreign, cut short, that find no space, or whose writer is killed: the
 * file is old or new and whole, or refused by name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zlib.h>

#include "backend/checkpoint.h"
#include "base/file.h"
#include "base/philox.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

enum {
    HEADER = 232 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    AT_VERSION = 8,
    AT_STEP = 16,
    AT_OPTIMIZER = 168,
    AT_RECIPE = 184,
    AT_ARRAYS = 12,
    AT_SKIPPED = 192 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    AT_RANKS = 200 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    AT_GOOD = 204 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    AT_SCALE = 208 + TANDEM_CHECKPOINT_TRAIN_CONFIG,
    KILLS = 25
};

typedef struct fixture {
    char folder[64], path[80];
    tandem_graph *graph;
    tandem_step *step;
    tandem_training_state state;
} fixture;

static const char model[] = "gpt_tiny:width=16,depth=1,heads=2,length=8"; /* AdamW: three arrays */

static int open_fixture_checkpoint(void **out)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/tandem-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof f->path, "%s/run.ckpt", f->folder);
    assert_int_equal(tandem_graph_open(&f->graph, model, 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open(&f->step, f->graph, TANDEM_F32, 0, NULL), TANDEM_OK);
    f->state = (tandem_training_state){.step = f->step, .n_array = 3, .n_rank = 1};
    for (int k = 0; k < 3; k++) {
        f->state.array[k] = malloc((size_t)f->step->n_flat * sizeof(float));
        assert_non_null(f->state.array[k]);
    }
    *out = f;
    return 0;
}

static int close_fixture_checkpoint(void **out)
{
    fixture *f = *out;
    char command[96];
    for (int k = 0; k < 3; k++) free(f->state.array[k]);
    tandem_step_close(f->step);
    tandem_graph_close(f->graph);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    free(f);
    return system(command);
}

/* A state in which every number shows the step it is of. */
static void fill_checkpoint(fixture *f, int64_t step)
{
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < f->step->n_flat; i++) f->state.array[k][i] = (float)(1000 * (k + 1) + step);
}

static tandem_status save_checkpoint(fixture *f, const char *path, int64_t step, tandem_error *error)
{
    uint32_t crc[TANDEM_CHECKPOINT_ARRAYS];
    fill_checkpoint(f, step);
    for (int k = 0; k < 3; k++) crc[k] = tandem_checkpoint_crc(&f->state, k);
    return tandem_checkpoint_write(path, &f->state, crc, step, "seed: 7\n", error);
}

/* Reads the file back; its step, or −1 with *error. */
static int64_t load_checkpoint(fixture *f, const char *path, tandem_error *error)
{
    tandem_checkpoint checkpoint = {0};
    if (tandem_checkpoint_open(&checkpoint, path, f->graph, error) != TANDEM_OK) return -1;
    fill_checkpoint(f, -1);
    assert_int_equal(tandem_checkpoint_read(&checkpoint, &f->state, path, NULL), TANDEM_OK);
    const int64_t step = checkpoint.info.step;
    assert_string_equal(checkpoint.info.train_config, "seed: 7\n");
    tandem_checkpoint_close(&checkpoint);
    for (int k = 0; k < 3; k++)
        for (int p = 0; p < f->graph->n_parameter; p++)
            for (int64_t i = 0; i < f->graph->parameter[p].elements; i++)
                assert_true(f->state.array[k][f->step->parameter_start[p] + i] ==
                            (float)(1000 * (k + 1) + step));
    return step;
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
}

static char *bytes_of_checkpoint(const char *path, size_t *n)
{
    char *bytes = NULL;
    assert_int_equal(tandem_file_read(&bytes, n, path, 1 << 26, NULL), TANDEM_OK);
    return bytes;
}

static void expect_refused(fixture *f, tandem_status status, const char *what)
{
    tandem_error error = {0};
    assert_int_equal(load_checkpoint(f, f->path, &error), -1);
    assert_int_equal(error.status, status);
    assert_non_null(strstr(error.text, what));
    assert_non_null(strstr(error.text, f->path));
}

/* --- What is read --------------------------------------------------------------------------------------- */

static void what_is_saved_is_loaded(void **state)
{
    fixture *f = *state;
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    assert_int_equal(load_checkpoint(f, f->path, NULL), 12);
    size_t n = 0;
    free(bytes_of_checkpoint(f->path, &n));
    assert_int_equal(n, HEADER + 3 * 4 * (size_t)tandem_graph_n_weight(f->graph));
}

static void every_flipped_bit_is_found(void **state)
{
    fixture *f = *state;
    size_t n = 0;
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    char *bytes = bytes_of_checkpoint(f->path, &n);
    const int file = open(f->path, O_WRONLY);
    assert_true(file >= 0);
    for (size_t at = 0; at < n; at += at < HEADER ? 1 : 61) {
        const char flipped = (char)(bytes[at] ^ (1 << at % 8));
        tandem_error error = {0};
        tandem_checkpoint_info info;
        assert_int_equal(pwrite(file, &flipped, 1, (off_t)at), 1);
        assert_true(tandem_checkpoint_inspect(&info, f->path, f->graph, &error) != TANDEM_OK);
        assert_int_equal(tandem_status_exit_code(error.status), 3);
        assert_int_equal(pwrite(file, bytes + at, 1, (off_t)at), 1);
    }
    assert_int_equal(close(file), 0);
    assert_int_equal(load_checkpoint(f, f->path, NULL), 12);
    free(bytes);
}

static void every_cut_is_found(void **state)
{
    fixture *f = *state;
    size_t n = 0;
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    char *bytes = bytes_of_checkpoint(f->path, &n);
    for (size_t left = 0; left < n; left += left < HEADER + 8 ? 1 : 997) {
        write_bytes(f->path, bytes, left);
        expect_refused(f, TANDEM_MALFORMED, "cut short");
    }
    write_bytes(f->path, bytes, n - 1);
    expect_refused(f, TANDEM_MALFORMED, "cut short");
    char *longer = calloc(1, n + 1);
    assert_non_null(longer);
    memcpy(longer, bytes, n);
    write_bytes(f->path, longer, n + 1);
    expect_refused(f, TANDEM_MALFORMED, "is longer than");
    free(longer);
    free(bytes);
}

static tandem_amax_record *record_at(const tandem_amax_snapshot *image, int k)
{
    return (void *)(image->record + (uint64_t)k * image->record_bytes);
}

/* Saved with the checksums of what it holds, and refused where it is taken up again. */
static void expect_history_refused(fixture *f, const char *what)
{
    tandem_checkpoint checkpoint = {0};
    tandem_error error = {0};
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    assert_int_equal(tandem_checkpoint_open(&checkpoint, f->path, f->graph, NULL), TANDEM_OK);
    assert_int_equal(tandem_checkpoint_read(&checkpoint, &f->state, f->path, &error), TANDEM_MALFORMED);
    tandem_checkpoint_close(&checkpoint);
    assert_non_null(strstr(error.text, what));
}

/* Every byte of them is written. */
static void fill_records(const tandem_amax_snapshot *image)
{
    for (size_t k = 0; k < tandem_amax_snapshot_bytes(image); k++) image->record[k] = (unsigned char)(k * 7);
    for (int k = 0; k < image->n_rank * image->n; k++) {
        tandem_amax_history *const h = &record_at(image, k)->history;
        h->updates = 3 + k;
        h->before = k == 0 ? -1 : 0.5f * (float)k;
        for (int i = 0; i < image->window; i++) h->amax[i] = 0.25f * (float)(k + i);
    }
}

/* A training with delayed scaling has its histories after all else; each byte and the end of them are looked
 * at. */
static void histories_are_saved_and_their_damage_is_found(void **state)
{
    enum { RANKS = 1, CASTS = 3, WINDOW = 5 };
    fixture *f = *state;
    tandem_amax_snapshot *image = &f->state.histories;
    *image = (tandem_amax_snapshot){RANKS, CASTS, WINDOW, tandem_amax_record_bytes(WINDOW), NULL};
    const size_t bytes = (size_t)tandem_amax_snapshot_bytes(image);
    image->record = malloc(2 * bytes);
    assert_non_null(image->record);
    fill_records(image);
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    unsigned char *const written = image->record, *const read = image->record + bytes;
    image->record = read;
    assert_int_equal(load_checkpoint(f, f->path, NULL), 12);
    assert_memory_equal(read, written, bytes);

    size_t n = 0;
    const size_t first = HEADER + 3 * 4 * (size_t)tandem_graph_n_weight(f->graph);
    char *file = bytes_of_checkpoint(f->path, &n);
    assert_int_equal(n, first + 16 + bytes);
    for (size_t at = first; at < n; at++) {
        file[at] = (char)(file[at] ^ (1 << at % 8));
        write_bytes(f->path, file, n);
        expect_refused(f, TANDEM_MALFORMED, "amax histories");
        file[at] = (char)(file[at] ^ (1 << at % 8));
        write_bytes(f->path, file, at);
        expect_refused(f, TANDEM_MALFORMED, "cut short");
    }
    free(file);
    image->record = written;
    static const float never[] = {NAN, INFINITY, -INFINITY, -2};
    for (size_t k = 0; k < sizeof never / sizeof *never; k++) {
        fill_records(image);
        record_at(image, 1)->history.amax[WINDOW - 1] = never[k];
        expect_history_refused(f, "for its amax in a history; 0 or above is allowed");
        fill_records(image);
        record_at(image, 2)->history.before = never[k];
        expect_history_refused(f, "for its range in an amax history");
    }
    fill_records(image);
    record_at(image, 0)->history.updates = -1;
    expect_history_refused(f, "-1 for its casts in an amax history");
    free(written < read ? written : read);
    *image = (tandem_amax_snapshot){0};
}

/* Another header, whose own checksum is right. */
static void rewrite(const fixture *f, size_t at, const void *bytes, size_t n)
{
    size_t all = 0;
    char *file = bytes_of_checkpoint(f->path, &all);
    memcpy(file + at, bytes, n);
    const uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)file, HEADER - 4);
    memcpy(file + HEADER - 4, &crc, 4);
    write_bytes(f->path, file, all);
    free(file);
}

static void what_is_foreign_is_refused_by_name(void **state)
{
    fixture *f = *state;
    const uint32_t newer = TANDEM_CHECKPOINT_VERSION + 1;
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    rewrite(f, AT_VERSION, &newer, sizeof newer);
    expect_refused(f, TANDEM_WRONG_FORMAT, "of version 4, this tandem reads versions 2 and 3");
    write_bytes(f->path, "SQLite format 3", 16);
    expect_refused(f, TANDEM_WRONG_FORMAT, "no checkpoint");
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    rewrite(f, AT_OPTIMIZER, "sgd\0\0", 6);
    expect_refused(f, TANDEM_WRONG_MODEL, "trained by optimizer sgd");

    fixture *other = f;
    tandem_graph *graph = f->graph;
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&other->graph, "mlp:width=16", 2, NULL), TANDEM_OK);
    expect_refused(other, TANDEM_WRONG_MODEL, "this run trains 'mlp:width=16'");
    tandem_graph_close(other->graph);
    f->graph = graph;
    assert_int_equal(load_checkpoint(f, f->path, NULL), 12);
}

/* Checksums are no proof of who wrote a file. */
static void what_no_training_has_is_refused(void **state)
{
    fixture *f = *state;
    static const struct {
        size_t at, n;
        union {
            int64_t i;
            uint32_t u;
            float f;
            char text[8];
        } value;
        const char *what;
    } never[] = {
        {AT_STEP, 8, {.i = -1}, "-1 for its steps done; 0 to 2^53 is allowed"},
        {AT_STEP, 8, {.i = INT64_MAX}, "for its steps done"},
        {AT_SKIPPED, 8, {.i = -1}, "-1 for its skipped steps; 0 to the steps done"},
        {AT_SKIPPED, 8, {.i = 13}, "13 for its skipped steps"},
        {AT_GOOD, 4, {.u = 13}, "13 for its steps since the loss scale changed"},
        {AT_GOOD, 4, {.u = UINT32_MAX}, "4294967295 for its steps since"},
        {AT_SCALE, 4, {.f = NAN}, "nan for its loss scale; above 0 to 2^64"},
        {AT_SCALE, 4, {.f = INFINITY}, "inf for its loss scale"},
        {AT_SCALE, 4, {.f = -1}, "-1 for its loss scale"},
        {AT_SCALE, 4, {.f = -0.0f}, "-0 for its loss scale"},
        {AT_SCALE, 4, {.f = 1e-40f}, "for its loss scale"},
        {AT_SCALE, 4, {.f = 0x1p65f}, "for its loss scale"},
        {AT_ARRAYS, 4, {.u = 0}, "0 for its arrays; 1 to 3"},
        {AT_ARRAYS, 4, {.u = 4}, "4 for its arrays"},
        {AT_RANKS, 4, {.u = 0}, "0 for its ranks; 1 to"},
        {AT_RANKS, 4, {.u = UINT32_MAX}, "4294967295 for its ranks"},
    };
    for (size_t k = 0; k < sizeof never / sizeof *never; k++) {
        assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
        rewrite(f, never[k].at, &never[k].value, never[k].n);
        expect_refused(f, TANDEM_MALFORMED, never[k].what);
    }
    static char endless[TANDEM_CHECKPOINT_TRAIN_CONFIG];
    memset(endless, 'x', sizeof endless);
    assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
    rewrite(f, AT_RECIPE, endless, sizeof endless);
    expect_refused(f, TANDEM_MALFORMED, "a text without an end");
}

static void scale_and_counts_come_back(void **state)
{
    fixture *f = *state;
    static const tandem_loss_scale some[] = {
        {0, 0, 0}, {1, 12, 0}, {65536, 3, 9}, {0x1p64f, 0, 12}, {FLT_MIN, 1, 1}};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        tandem_checkpoint checkpoint = {0};
        f->state.loss_scale = some[k];
        assert_int_equal(save_checkpoint(f, f->path, 12, NULL), TANDEM_OK);
        assert_int_equal(tandem_checkpoint_open(&checkpoint, f->path, f->graph, NULL), TANDEM_OK);
        assert_true(checkpoint.loss_scale.scale == some[k].scale);
        assert_int_equal(checkpoint.loss_scale.good_steps, some[k].good_steps);
        assert_int_equal(checkpoint.loss_scale.skipped, some[k].skipped);
        tandem_checkpoint_close(&checkpoint);
    }
}

static void what_cannot_be_opened_is_said(void **state)
{
    fixture *f = *state;
    expect_refused(f, TANDEM_IO, "No such file");
    assert_int_equal(mkdir(f->path, 0700), 0);
    expect_refused(f, TANDEM_IO, "Is a directory");
    tandem_error error = {0};
    assert_int_equal(save_checkpoint(f, f->path, 1, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "Is a directory"));
}

/* --- A crash of the machine ----------------------------------------------------------------------------- */

/* What a writer asks of the system, in order: 'f' flushes a file, 'd' a folder, 'r' renames. */
static char events[16];
static int64_t flushed_bytes;  /* of the file when it was last flushed */
static bool has_failing_flush; /* of files, as a broken disk */
static bool without_nameless;  /* as on a file system that has no such files */

static void note_event(char event)
{
    const size_t n = strlen(events);
    if (n + 1 < sizeof events) events[n] = event;
}

/* See fail_allocation.c for what the linker makes of these names. */
int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __real_fsync(int file);
int __wrap_fsync(int file);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE; /* it contains O_DIRECTORY */
    const mode_t mode = is_nameless || (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (without_nameless && is_nameless) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(folder, path, flags, mode);
}

int __wrap_fsync(int file)
{
    struct stat is;
    assert_int_equal(fstat(file, &is), 0);
    note_event(S_ISDIR(is.st_mode) ? 'd' : 'f');
    if (!S_ISREG(is.st_mode)) return __real_fsync(file);
    flushed_bytes = is.st_size;
    if (!has_failing_flush) return __real_fsync(file);
    errno = EIO;
    return -1;
}

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    note_event('r');
    return __real_renameat(from_folder, from, to_folder, to);
}

/* Without the first flush, a crash may leave the new name with no data; without the second, the old name. */
static void data_are_flushed_before_the_name_and_the_folder_after_it(void **state)
{
    fixture *f = *state;
    struct stat is;
    for (int k = 0; k < 4; k++) { /* a new file and an old one, with and without a name meanwhile */
        without_nameless = k >= 2;
        memset(events, 0, sizeof events);
        assert_int_equal(save_checkpoint(f, f->path, 3 + k, NULL), TANDEM_OK);
        assert_string_equal(events, "frd");
        assert_int_equal(stat(f->path, &is), 0);
        assert_int_equal(flushed_bytes, is.st_size); /* all of it was there */
        if (k == 1) assert_int_equal(unlink(f->path), 0);
    }
    without_nameless = false;
}

static void data_that_cannot_be_flushed_replace_nothing(void **state)
{
    fixture *f = *state;
    tandem_error error = {0};
    assert_int_equal(save_checkpoint(f, f->path, 3, NULL), TANDEM_OK);
    memset(events, 0, sizeof events);
    has_failing_flush = true;
    assert_int_equal(save_checkpoint(f, f->path, 4, &error), TANDEM_IO);
    has_failing_flush = false;
    assert_string_equal(events, "f");
    assert_non_null(strstr(error.text, strerror(EIO)));
    assert_int_equal(load_checkpoint(f, f->path, NULL), 3);
}

/* --- No space ------------------------------------------------------------------------------------------- */

static void a_full_device_is_said(void **state)
{
    tandem_error error = {0};
    assert_int_equal(save_checkpoint(*state, "/dev/full", 1, &error), TANDEM_IO);
    assert_non_null(strstr(error.text, "No space left on device"));
}

/* A file that may not become large enough, whatever the user's rights. */
static void a_file_that_cannot_grow_leaves_the_old_one(void **state)
{
    fixture *f = *state;
    assert_int_equal(save_checkpoint(f, f->path, 5, NULL), TANDEM_OK);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tandem_error error = {0};
        const struct rlimit limit = {4096, 4096};
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &limit);
        const tandem_status status = save_checkpoint(f, f->path, 6, &error);
        _exit(status == TANDEM_IO && strstr(error.text, "File too large") ? 0 : 1);
    }
    int end = 0;
    assert_int_equal(waitpid(pid, &end, 0), pid);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 0);
    assert_int_equal(load_checkpoint(f, f->path, NULL), 5);
    assert_int_equal(count_files(f->folder), 1); /* nothing half-written is left */
}

static void a_full_file_system_leaves_the_old_one(void **state)
{
    fixture *f = *state;
    size_t n = 0;
    assert_int_equal(save_checkpoint(f, f->path, 5, NULL), TANDEM_OK);
    char *bytes = bytes_of_checkpoint(f->path, &n), size[32];
    (void)snprintf(size, sizeof size, "size=%zu", n + n / 2); /* one fits, not two */
    const int mounted = mount("tmpfs", f->folder, "tmpfs", 0, size) == 0;
    if (mounted) write_bytes(f->path, bytes, n);
    free(bytes);
    if (!mounted) {
        printf("SKIP: no small file system can be mounted here: %s\n", strerror(errno));
        skip();
    }
    tandem_error error = {0};
    const tandem_status status = save_checkpoint(f, f->path, 6, &error);
    const int64_t step = load_checkpoint(f, f->path, NULL);
    const int files = count_files(f->folder);
    assert_int_equal(umount(f->folder), 0);
    assert_int_equal(status, TANDEM_IO);
    assert_non_null(strstr(error.text, "No space left on device"));
    assert_int_equal(step, 5);
    assert_int_equal(files, 1);
}

/* --- A killed writer ------------------------------------------------------------------------------------ */

static void write_for_ever(fixture *f, int64_t step)
{
    for (;; step++)
        if (save_checkpoint(f, f->path, step, NULL) != TANDEM_OK) _exit(1);
}

/* What a writer leaves that is killed between naming its complete file and putting it in its place: whole
 * files. How many. */
static int whole_files_beside(fixture *f, bool nameless)
{
    DIR *list = opendir(f->folder);
    int n = 0;
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list));) {
        char path[512];
        if (strncmp(entry->d_name, ".tandem-", 8) != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s", f->folder, entry->d_name);
        if (nameless) assert_true(load_checkpoint(f, path, NULL) >= 0);
        n++;
    }
    (void)closedir(list);
    return n;
}

static void a_killed_writer_leaves_a_whole_file(void **state)
{
    fixture *f = *state;
    assert_int_equal(save_checkpoint(f, f->path, 0, NULL), TANDEM_OK);
    int64_t step = 0, writers_that_came_far = 0;
    for (int k = 0; k < KILLS || (writers_that_came_far == 0 && k < 40 * KILLS); k++) {
        const uint32_t counter[4] = {(uint32_t)k, 0, 0, 0};
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) write_for_ever(f, step + 1);
        (void)usleep(500 + tandem_philox(counter, 1).word[0] % 20000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        int end = 0;
        assert_int_equal(waitpid(pid, &end, 0), pid);
        assert_true(WIFSIGNALED(end));
        tandem_error error = {0};
        const int64_t now = load_checkpoint(f, f->path, &error);
        if (now < 0) print_error("kill %d: %s\n", k, error.text);
        assert_true(now >= step);
        writers_that_came_far += now > step;
        step = now;
    }
    assert_true(writers_that_came_far > 0);
    const int probe = open(f->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600); /* NFS has no such files */
    if (probe >= 0) (void)close(probe);
    const int left = whole_files_beside(f, probe >= 0);
    assert_int_equal(save_checkpoint(f, f->path, step + 1, NULL), TANDEM_OK);
    assert_int_equal(count_files(f->folder), 1 + left);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture_checkpoint, close_fixture_checkpoint)
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_is_loaded),
        TEST(every_flipped_bit_is_found),
        TEST(histories_are_saved_and_their_damage_is_found),
        TEST(every_cut_is_found),
        TEST(what_is_foreign_is_refused_by_name),
        TEST(what_no_training_has_is_refused),
        TEST(scale_and_counts_come_back),
        TEST(data_are_flushed_before_the_name_and_the_folder_after_it),
        TEST(data_that_cannot_be_flushed_replace_nothing),
        TEST(what_cannot_be_opened_is_said),
        TEST(a_full_device_is_said),
        TEST(a_file_that_cannot_grow_leaves_the_old_one),
        TEST(a_full_file_system_leaves_the_old_one),
        TEST(a_killed_writer_leaves_a_whole_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
