#include "backend/comm/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* A connection may break an instant before the kernel drops the lock of the dead process, and the others need
 * a moment to see a failure: for so long is looked for the culprit. */
static const int64_t look_ns = 1000000000;

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    (void)nanosleep(&time, NULL); /* a signal may end it early; callers look at the clock */
}

enum { NAME_BYTES = 40, VERDICT_BYTES = TANDEM_ERROR_TEXT + 16 };

typedef enum holder {
    HOLDER_ALIVE,  /* the lock is held */
    HOLDER_GONE,   /* the file is there, its lock is free */
    HOLDER_ABSENT, /* never came */
    HOLDER_UNKNOWN /* the question failed; nobody is accused on that ground */
} holder;

static void name_of(char name[NAME_BYTES], int rank, const char *kind)
{
    (void)snprintf(name, NAME_BYTES, "rank.%d.%s", rank, kind);
}

static bool exists(const tandem_presence *presence, const char *name)
{
    return faccessat(presence->directory, name, F_OK, 0) == 0;
}

static bool has(const tandem_presence *presence, int rank, const char *kind)
{
    char name[NAME_BYTES];
    name_of(name, rank, kind);
    return exists(presence, name);
}

static void create(const tandem_presence *presence, const char *name)
{
    const int file = openat(presence->directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) (void)close(file);
}

static void mark(const tandem_presence *presence, const char *kind)
{
    char name[NAME_BYTES];
    name_of(name, presence->rank, kind);
    create(presence, name);
}

static struct flock whole_file(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

/* Reads a small file into text, with a zero behind. false: it is not there. */
static bool read_text(const tandem_presence *presence, const char *name, char *text, size_t size)
{
    const int file = openat(presence->directory, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t n = pread(file, text, size - 1, 0);
    (void)close(file);
    if (n <= 0) return false;
    text[n] = '\0';
    return true;
}

static bool write_text(int file, const char *text)
{
    const size_t n = strlen(text);
    return write(file, text, n) == (ssize_t)n;
}

static holder holder_of(const tandem_presence *presence, int rank)
{
    char name[NAME_BYTES];
    name_of(name, rank, "alive");
    const int file = openat(presence->directory, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? HOLDER_ABSENT : HOLDER_UNKNOWN;
    struct flock lock = whole_file();
    const int failed = fcntl(file, F_OFD_GETLK, &lock);
    (void)close(file);
    if (failed) return HOLDER_UNKNOWN;
    return lock.l_type == F_UNLCK ? HOLDER_GONE : HOLDER_ALIVE;
}

/* The verdict as an error, if there is one. */
static bool read_verdict(const tandem_presence *presence, tandem_error *error)
{
    char text[VERDICT_BYTES];
    if (!read_text(presence, "failed", text, sizeof text)) return false;
    char *words = text;
    const long rank = strtol(text, &words, 10);
    while (*words == ' ') words++;
    tandem_error_set(error, TANDEM_PEER, "%s", words);
    if (error) error->rank = rank >= 0 && rank < presence->n_rank ? (int)rank : -1;
    return true;
}

void tandem_presence_accuse(const tandem_presence *presence, int rank, const char *text)
{
    /* Written aside and linked into place: others see the whole verdict or none, and only one gets the name.
     * */
    char aside[NAME_BYTES], verdict[VERDICT_BYTES];
    name_of(aside, presence->rank, "verdict");
    (void)snprintf(verdict, sizeof verdict, "%d %s", rank, text);
    const int file =
        openat(presence->directory, aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return;
    const bool written = write_text(file, verdict);
    (void)close(file);
    const int linked = written ? linkat(presence->directory, aside, presence->directory, "failed", 0) : 0;
    (void)linked; /* where another was first, its verdict stands */
    (void)unlinkat(presence->directory, aside, 0);
}

static tandem_status refuse_used(const tandem_presence *presence, const char *store, tandem_error *error)
{
    bool used = exists(presence, "failed");
    for (int r = 0; r < presence->n_rank && !used; r++) used = has(presence, r, "left");
    if (used)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the store '%s' is left over from another run; give a fresh directory",
                                store);
    return TANDEM_OK;
}

/* Creates and locks the file of this rank; *lock stays -1 on error. */
static tandem_status take_place(const tandem_presence *presence, const char *store, int *lock,
                                tandem_error *error)
{
    char name[NAME_BYTES], text[16];
    name_of(name, presence->rank, "alive");
    const int file = openat(presence->directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST)
        return tandem_error_set(error, TANDEM_USAGE,
                                holder_of(presence, presence->rank) == HOLDER_ALIVE
                                    ? "the store '%s' is in use by another run, or by another process with "
                                      "rank %d; "
                                      "give a fresh directory, and each process its own rank"
                                    : "the store '%s' is left over from another run (it has a rank %d, now "
                                      "dead); "
                                      "give a fresh directory",
                                store, presence->rank);
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create '%s/%s': %s", store, name, strerror(errno));
    (void)snprintf(text, sizeof text, "%d\n", presence->n_rank);
    struct flock whole = whole_file();
    if (!write_text(file, text) || fcntl(file, F_OFD_SETLK, &whole) != 0) {
        tandem_error_set(error, TANDEM_IO,
                         "cannot write and lock '%s/%s': %s; the store needs a file system with locks", store,
                         name, strerror(errno));
        (void)unlinkat(presence->directory, name, 0);
        (void)close(file);
        return TANDEM_IO;
    }
    *lock = file;
    return TANDEM_OK;
}

tandem_status tandem_presence_open(tandem_presence *presence, const char *store, int rank, int n_rank,
                                   tandem_error *error)
{
    tandem_presence made = {.directory = -1, .lock = -1, .rank = rank, .n_rank = n_rank};
    made.directory = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made.directory < 0)
        return tandem_error_set(error, errno == ENOENT || errno == ENOTDIR ? TANDEM_USAGE : TANDEM_IO,
                                "cannot open the store '%s': %s; it must be a fresh directory that all ranks "
                                "reach",
                                store, strerror(errno));
    tandem_status status = refuse_used(&made, store, error);
    if (status == TANDEM_OK) status = take_place(&made, store, &made.lock, error);
    if (status != TANDEM_OK) {
        (void)close(made.directory);
        return status;
    }
    *presence = made;
    return TANDEM_OK;
}

/* Rank r, if it has written so, must count as many ranks as this one. */
static tandem_status compare_count(const tandem_presence *presence, int r, tandem_error *error)
{
    char name[NAME_BYTES], text[16];
    name_of(name, r, "alive");
    if (!read_text(presence, name, text, sizeof text) || !strchr(text, '\n')) return TANDEM_OK;
    const long n_rank = strtol(text, NULL, 10);
    if (n_rank == presence->n_rank) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_USAGE,
                            "rank %d was started for %ld ranks, rank %d for %d; give all the same WORLD_SIZE",
                            r, n_rank, presence->rank, presence->n_rank);
}

static tandem_status report_missing(const tandem_presence *presence, const char *store, int r, bool died,
                                    int64_t timeout_ns, tandem_error *error)
{
    char text[TANDEM_ERROR_TEXT];
    if (died)
        (void)snprintf(text, sizeof text, "rank %d died while the ranks joined; the other ranks stop", r);
    else
        (void)snprintf(
            text, sizeof text,
            "rank %d of %d did not join within %g s; start it with RANK=%d and the same store '%s'", r,
            presence->n_rank, (double)timeout_ns * 1e-9, r, store);
    tandem_presence_accuse(presence, r, text);
    if (read_verdict(presence, error)) return TANDEM_PEER;
    tandem_error_set(error, TANDEM_PEER, "%s", text);
    if (error) error->rank = r;
    return TANDEM_PEER;
}

tandem_status tandem_presence_join(const tandem_presence *presence, const char *store, int64_t timeout_ns,
                                   tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    int64_t gone_ns = 0; /* since when rank r has a file and no lock; 0 = it has not */
    for (int r = 0; r < presence->n_rank;) {
        const holder state = r == presence->rank ? HOLDER_ALIVE : holder_of(presence, r);
        const tandem_status status = compare_count(presence, r, error);
        if (status != TANDEM_OK) return status;
        if (state == HOLDER_ALIVE) {
            gone_ns = 0;
            r++;
            continue;
        }
        const int64_t now_ns = tandem_now_ns();
        gone_ns = state != HOLDER_GONE ? 0 : gone_ns ? gone_ns : now_ns;
        if (read_verdict(presence, error)) return TANDEM_PEER;
        const bool died = gone_ns && now_ns - gone_ns > look_ns;
        if (died || now_ns - begin_ns >= timeout_ns)
            return report_missing(presence, store, r, died, timeout_ns, error);
        nap();
    }
    return TANDEM_OK;
}

static bool is_dead(const tandem_presence *presence, int rank)
{
    return holder_of(presence, rank) == HOLDER_GONE && !has(presence, rank, "left");
}

bool tandem_presence_is_broken(const tandem_presence *presence)
{
    return is_dead(presence, (presence->rank + 1) % presence->n_rank) ||
           is_dead(presence, (presence->rank + presence->n_rank - 1) % presence->n_rank) ||
           exists(presence, "stopping") || exists(presence, "failed");
}

bool tandem_presence_has_lost(const tandem_presence *presence)
{
    for (int r = 0; r < presence->n_rank; r++)
        if (r != presence->rank && has(presence, r, "left")) return true;
    return false;
}

void tandem_presence_stop(const tandem_presence *presence)
{
    mark(presence, "stopping");
    create(presence, "stopping");
}

/* The lowest dead rank; where none died, the lowest that left; else -1. */
static int first_gone(const tandem_presence *presence)
{
    int left = -1;
    for (int r = 0; r < presence->n_rank; r++) {
        if (r == presence->rank || holder_of(presence, r) != HOLDER_GONE) continue;
        if (!has(presence, r, "left")) return r;
        if (left < 0) left = r;
    }
    return left;
}

/* The lowest rank that has not noticed the failure, -1 = all have. */
static int first_silent(const tandem_presence *presence)
{
    for (int r = 0; r < presence->n_rank; r++)
        if (r != presence->rank && !has(presence, r, "stopping")) return r;
    return -1;
}

static void write_charge(char text[TANDEM_ERROR_TEXT], const tandem_presence *presence, int gone, int silent,
                         const char *what, const char *why)
{
    if (gone >= 0 && has(presence, gone, "left"))
        (void)snprintf(text, TANDEM_ERROR_TEXT,
                       "rank %d left the run before %s was over (%s); the other ranks stop", gone, what, why);
    else if (gone >= 0)
        (void)snprintf(text, TANDEM_ERROR_TEXT, "rank %d died during %s (%s); the other ranks stop", gone,
                       what, why);
    else if (silent >= 0)
        (void)snprintf(text, TANDEM_ERROR_TEXT,
                       "rank %d was silent during %s (%s): it hangs, is stopped or cut off; the other ranks "
                       "stop",
                       silent, what, why);
    else
        (void)snprintf(text, TANDEM_ERROR_TEXT,
                       "%s failed (%s) though every rank is alive: the network broke, or the ranks disagree "
                       "about the "
                       "order, size or tag of their collectives; all ranks stop",
                       what, why);
}

tandem_status tandem_presence_blame(const tandem_presence *presence, const char *what, const char *why,
                                    tandem_error *error)
{
    const int64_t deadline_ns = tandem_now_ns() + look_ns;
    int gone;
    for (;;) {
        gone = first_gone(presence);
        /* Read after looking: who leaves because of a failure has written the verdict before. */
        if (read_verdict(presence, error)) return TANDEM_PEER;
        if (gone >= 0 || tandem_now_ns() >= deadline_ns) break;
        nap();
    }
    const int silent = gone < 0 ? first_silent(presence) : -1;
    const int culprit = gone >= 0 ? gone : silent;
    char text[TANDEM_ERROR_TEXT];
    write_charge(text, presence, gone, silent, what, why);
    tandem_presence_accuse(presence, culprit, text);
    if (read_verdict(presence, error)) return TANDEM_PEER;
    tandem_error_set(error, TANDEM_PEER, "%s", text);
    if (error) error->rank = culprit;
    return TANDEM_PEER;
}

void tandem_presence_leave(const tandem_presence *presence) { mark(presence, "left"); }

void tandem_presence_close(tandem_presence *presence)
{
    if (presence->lock >= 0) (void)close(presence->lock);
    if (presence->directory >= 0) (void)close(presence->directory);
    presence->lock = presence->directory = -1;
}
