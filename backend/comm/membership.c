/* membership.c: keeps the files of a run's directory that say which ranks live. */
#include "backend/comm/membership.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/comm/patience.h"
#include "base/plain_text.h"
#include "base/run_report.h"
#include "tandem/status.h"

/* A connection may break just before the kernel releases the dead process's lock, and the other ranks need a
 * moment to notice a failure. The search for the failed rank takes this long. */
static const int64_t search_ns = 1000000000;

static void sleep_briefly(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    (void)nanosleep(&time, NULL); /* a signal may end it early; callers look at the clock */
}

enum { NAME_BYTES = 40, MEMBER_BYTES = 64 };

typedef enum rank_state {
    RANK_ALIVE,  /* the lock is held */
    RANK_GONE,   /* the file exists, its lock is free */
    RANK_ENDED,  /* the rank never joined, and its process has ended (base/run_report.h) */
    RANK_ABSENT, /* the rank never joined */
    RANK_UNKNOWN /* the query failed, so the rank is not reported as failed */
} rank_state;

static void rank_file_name(char name[NAME_BYTES], int rank, const char *kind)
{
    (void)snprintf(name, NAME_BYTES, "rank.%d.%s", rank, kind);
}

static bool run_file_exists(const tandem_membership *membership, const char *name)
{
    return faccessat(membership->directory, name, F_OK, 0) == 0;
}

static bool rank_file_exists(const tandem_membership *membership, int rank, const char *kind)
{
    char name[NAME_BYTES];
    rank_file_name(name, rank, kind);
    return run_file_exists(membership, name);
}

static void create_run_file(const tandem_membership *membership, const char *name)
{
    const int file = openat(membership->directory, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) (void)close(file);
}

static void create_rank_file(const tandem_membership *membership, const char *kind)
{
    char name[NAME_BYTES];
    rank_file_name(name, membership->rank, kind);
    create_run_file(membership, name);
}

static struct flock whole_file_lock(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

/* Reads a small file into text and ends it with a zero. false: there is no such file. */
static bool read_run_file(const tandem_membership *membership, const char *name, char *text, size_t size)
{
    const int file = openat(membership->directory, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t n = pread(file, text, size - 1, 0);
    (void)close(file);
    if (n <= 0) return false;
    text[n] = '\0';
    return true;
}

static bool write_all_text(int file, const char *text)
{
    const size_t n = strlen(text);
    return write(file, text, n) == (ssize_t)n;
}

static rank_state find_rank_state(const tandem_membership *membership, int rank)
{
    char name[NAME_BYTES];
    rank_file_name(name, rank, "alive");
    const int file = openat(membership->directory, name, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT)
        return tandem_run_has_ended(membership->directory, rank) ? RANK_ENDED : RANK_ABSENT;
    if (file < 0) return RANK_UNKNOWN;
    struct flock lock = whole_file_lock();
    const int failed = fcntl(file, F_OFD_GETLK, &lock);
    (void)close(file);
    if (failed) return RANK_UNKNOWN;
    return lock.l_type == F_UNLCK ? RANK_GONE : RANK_ALIVE;
}

/* The report as an error; TANDEM_OK: there is none. */
static tandem_status read_report(const tandem_membership *membership, tandem_error *error)
{
    tandem_error report;
    if (!tandem_run_report_read(membership->directory, membership->n_rank, &report)) return TANDEM_OK;
    if (error) *error = report;
    return report.status;
}

void tandem_membership_report_failed(const tandem_membership *membership, int rank, const char *text)
{
    tandem_run_report_write(membership->directory, membership->rank, TANDEM_RANK_FAILED, rank, text);
}

tandem_status tandem_membership_refuse_all(const tandem_membership *membership, const tandem_error *error)
{
    tandem_run_report_write(membership->directory, membership->rank, TANDEM_USAGE, -1, error->text);
    return TANDEM_USAGE;
}

/* Reports the rank, unless there is an earlier report, and returns the report that holds. */
static tandem_status agree_on_failed_rank(const tandem_membership *membership, int rank, const char *text,
                                          tandem_error *error)
{
    tandem_membership_report_failed(membership, rank, text);
    const tandem_status status = read_report(membership, error);
    if (status != TANDEM_OK) return status;
    tandem_error_set(error, TANDEM_RANK_FAILED, "%s", text);
    if (error) error->rank = rank;
    return TANDEM_RANK_FAILED;
}

/* A report is of this run where this rank has never begun it. */
static tandem_status check_store_is_fresh(const tandem_membership *membership, const char *store,
                                          tandem_error *error)
{
    const tandem_status status =
        rank_file_exists(membership, membership->rank, "alive") ? TANDEM_OK : read_report(membership, error);
    if (status != TANDEM_OK) return status;
    bool used = run_file_exists(membership, "failed");
    for (int r = 0; r < membership->n_rank && !used; r++) used = rank_file_exists(membership, r, "left");
    if (used)
        return tandem_error_set(error, TANDEM_USAGE,
                                "the store '%s' is left over from another run; give a fresh directory",
                                store);
    return TANDEM_OK;
}

/* Creates and locks this rank's file; *lock stays -1 on error. */
static tandem_status claim_rank_file(const tandem_membership *membership, const char *store, int *lock,
                                     tandem_error *error)
{
    char name[NAME_BYTES], text[MEMBER_BYTES];
    rank_file_name(name, membership->rank, "alive");
    const int file = openat(membership->directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST)
        return tandem_error_set(
            error, TANDEM_USAGE,
            find_rank_state(membership, membership->rank) == RANK_ALIVE
                ? "the store '%s' is in use by another run, or by another process with rank %d; give a fresh "
                  "directory, and each process its own rank"
                : "the store '%s' is left over from another run (its rank %d is dead); give a fresh one",
            store, membership->rank);
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot create '%s/%s': %s", store, name, strerror(errno));
    (void)snprintf(text, sizeof text, "%d\n%s\n", membership->n_rank, TANDEM_VERSION);
    struct flock whole = whole_file_lock();
    if (!write_all_text(file, text) || fcntl(file, F_OFD_SETLK, &whole) != 0) {
        tandem_error_set(error, TANDEM_IO,
                         "cannot write and lock '%s/%s': %s; the store needs a file system with locks", store,
                         name, strerror(errno));
        (void)unlinkat(membership->directory, name, 0);
        (void)close(file);
        return TANDEM_IO;
    }
    *lock = file;
    return TANDEM_OK;
}

tandem_status tandem_membership_open(tandem_membership *membership, const char *store, int rank, int n_rank,
                                     tandem_error *error)
{
    tandem_membership made = {.directory = -1, .lock = -1, .rank = rank, .n_rank = n_rank};
    made.directory = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made.directory < 0)
        return tandem_error_set(
            error, errno == ENOENT || errno == ENOTDIR ? TANDEM_USAGE : TANDEM_IO,
            "cannot open the store '%s': %s; it must be a fresh directory that all ranks reach", store,
            strerror(errno));
    tandem_status status = check_store_is_fresh(&made, store, error);
    if (status == TANDEM_OK) status = claim_rank_file(&made, store, &made.lock, error);
    if (status != TANDEM_OK) {
        (void)close(made.directory);
        return status;
    }
    *membership = made;
    return TANDEM_OK;
}

void tandem_membership_refuse(const char *store, int rank, int n_rank, const char *text)
{
    const tandem_membership membership = {.directory = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                          .lock = -1,
                                          .rank = rank,
                                          .n_rank = n_rank};
    if (membership.directory < 0) return;
    tandem_membership_report_failed(&membership, rank, text);
    (void)close(membership.directory);
}

/* Rank r, if it has written its file, must be of the same version and expect as many ranks as this one. */
static tandem_status compare_member(const tandem_membership *membership, int r, tandem_error *error)
{
    char name[NAME_BYTES], text[MEMBER_BYTES];
    tandem_error why;
    rank_file_name(name, r, "alive");
    if (!read_run_file(membership, name, text, sizeof text) || !strchr(text, '\n')) return TANDEM_OK;
    char *version = NULL;
    const long n_rank = strtol(text, &version, 10);
    version += *version == '\n';
    version[strcspn(version, "\n")] = '\0';
    if (n_rank != membership->n_rank)
        (void)tandem_error_set(
            &why, TANDEM_USAGE,
            "rank %d was started for %ld ranks, rank %d for %d; give all the same WORLD_SIZE", r, n_rank,
            membership->rank, membership->n_rank);
    else if (strcmp(version, TANDEM_VERSION) != 0)
        (void)tandem_error_set(
            &why, TANDEM_USAGE,
            "rank %d has libtandem_backend of version %.20s, rank %d of version %s; start all ranks "
            "with the same",
            r, *version ? version : "0.1.0 or earlier", membership->rank, TANDEM_VERSION);
    else
        return TANDEM_OK;
    if (error) *error = why;
    return tandem_membership_refuse_all(membership, &why);
}

static tandem_status report_missing_rank(const tandem_membership *membership, const char *store, int r,
                                         rank_state state, int64_t timeout_ns, tandem_error *error)
{
    char text[TANDEM_ERROR_TEXT];
    if (state == RANK_ENDED)
        (void)snprintf(text, sizeof text,
                       "rank %d ended before it joined, as its own output may say; the other ranks stop", r);
    else if (state == RANK_GONE)
        (void)snprintf(text, sizeof text, "rank %d died while the ranks joined; the other ranks stop", r);
    else
        (void)tandem_plain_print(
            text, sizeof text,
            "rank %d of %d did not join within %g s; start it with RANK=%d and the same store '%s'", r,
            membership->n_rank, (double)timeout_ns * 1e-9, r, store);
    return agree_on_failed_rank(membership, r, text, error);
}

tandem_status tandem_membership_join(const tandem_membership *membership, const char *store,
                                     int64_t timeout_ns, tandem_error *error)
{
    tandem_patience patience = tandem_patience_begin();
    int64_t gone_ns = -1; /* after which waiting rank r was first seen to be gone; -1 = it is not */
    for (int r = 0; r < membership->n_rank;) {
        const rank_state state = r == membership->rank ? RANK_ALIVE : find_rank_state(membership, r);
        tandem_status status = compare_member(membership, r, error);
        if (status != TANDEM_OK) return status;
        if (state == RANK_ALIVE) {
            gone_ns = -1;
            r++;
            continue;
        }
        const bool is_late = tandem_patience_ends(&patience, timeout_ns),
                   is_gone = state == RANK_GONE || state == RANK_ENDED;
        gone_ns = !is_gone ? -1 : gone_ns >= 0 ? gone_ns : patience.waited_ns;
        status = read_report(membership, error);
        if (status != TANDEM_OK) return status;
        const bool has_ended = is_gone && patience.waited_ns - gone_ns > search_ns;
        if (has_ended || is_late)
            return report_missing_rank(membership, store, r, has_ended ? state : RANK_ABSENT, timeout_ns,
                                       error);
        sleep_briefly();
    }
    return TANDEM_OK;
}

/* --- Addresses ------------------------------------------------------------------------------------------ */

tandem_status tandem_membership_write_address(const tandem_membership *membership, const char *text,
                                              tandem_error *error)
{
    char name[NAME_BYTES], aside[NAME_BYTES];
    rank_file_name(name, membership->rank, "address");
    rank_file_name(aside, membership->rank, "address.new");
    const int file =
        openat(membership->directory, aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool is_written = file >= 0 && write_all_text(file, text);
    if (is_written && renameat(membership->directory, aside, membership->directory, name) == 0) {
        (void)close(file);
        return TANDEM_OK;
    }
    (void)tandem_error_set(error, TANDEM_IO, "cannot write '%s' into the store: %s", name, strerror(errno));
    if (file >= 0) (void)close(file);
    return TANDEM_IO;
}

bool tandem_membership_read_address(const tandem_membership *membership, int rank, char *text, size_t size)
{
    char name[NAME_BYTES];
    rank_file_name(name, rank, "address");
    return read_run_file(membership, name, text, size);
}

static bool is_rank_dead(const tandem_membership *membership, int rank)
{
    return find_rank_state(membership, rank) == RANK_GONE && !rank_file_exists(membership, rank, "left");
}

bool tandem_membership_is_broken(const tandem_membership *membership)
{
    return is_rank_dead(membership, (membership->rank + 1) % membership->n_rank) ||
           is_rank_dead(membership, (membership->rank + membership->n_rank - 1) % membership->n_rank) ||
           run_file_exists(membership, "stopping") || run_file_exists(membership, "failed");
}

bool tandem_membership_has_left(const tandem_membership *membership)
{
    for (int r = 0; r < membership->n_rank; r++)
        if (r != membership->rank && rank_file_exists(membership, r, "left")) return true;
    return false;
}

void tandem_membership_stop(const tandem_membership *membership)
{
    create_rank_file(membership, "stopping");
    create_run_file(membership, "stopping");
}

/* The lowest dead rank; without one, the lowest rank that left; else -1. */
static int first_gone_rank(const tandem_membership *membership)
{
    int left = -1;
    for (int r = 0; r < membership->n_rank; r++) {
        if (r == membership->rank || find_rank_state(membership, r) != RANK_GONE) continue;
        if (!rank_file_exists(membership, r, "left")) return r;
        if (left < 0) left = r;
    }
    return left;
}

/* The lowest rank that has not noticed the failure; -1 = all have. */
static int first_silent_rank(const tandem_membership *membership)
{
    for (int r = 0; r < membership->n_rank; r++)
        if (r != membership->rank && !rank_file_exists(membership, r, "stopping")) return r;
    return -1;
}

static void print_failure(char text[TANDEM_ERROR_TEXT], const tandem_membership *membership, int gone,
                          int silent, const char *what, const char *why)
{
    if (gone >= 0 && rank_file_exists(membership, gone, "left"))
        (void)snprintf(text, TANDEM_ERROR_TEXT,
                       "rank %d left the run before %s was over (%s); the other ranks stop", gone, what, why);
    else if (gone >= 0)
        (void)snprintf(text, TANDEM_ERROR_TEXT, "rank %d died during %s (%s); the other ranks stop", gone,
                       what, why);
    else if (silent >= 0)
        (void)snprintf(
            text, TANDEM_ERROR_TEXT,
            "rank %d was silent during %s (%s): it hangs, is stopped or cut off; the other ranks stop",
            silent, what, why);
    else if (strcmp(what, TANDEM_JOINING) == 0)
        (void)snprintf(text, TANDEM_ERROR_TEXT, "%s failed though every rank is alive (%s); all ranks stop",
                       what, why);
    else
        (void)snprintf(
            text, TANDEM_ERROR_TEXT,
            "%s failed (%s) though every rank is alive: the network broke, or the ranks disagree about the "
            "order, size or tag of their collectives; all ranks stop",
            what, why);
}

tandem_status tandem_membership_find_failed(const tandem_membership *membership, const char *what,
                                            const char *why, tandem_error *error)
{
    tandem_patience patience = tandem_patience_begin();
    int gone;
    for (;;) {
        gone = first_gone_rank(membership);
        /* Read after the search: a rank that leaves because of a failure has written the report before. */
        const tandem_status status = read_report(membership, error);
        if (status != TANDEM_OK) return status;
        if (gone >= 0 || tandem_patience_ends(&patience, search_ns)) break;
        sleep_briefly();
    }
    const int silent = gone < 0 ? first_silent_rank(membership) : -1;
    char text[TANDEM_ERROR_TEXT];
    print_failure(text, membership, gone, silent, what, why);
    return agree_on_failed_rank(membership, gone >= 0 ? gone : silent, text, error);
}

void tandem_membership_leave(const tandem_membership *membership) { create_rank_file(membership, "left"); }

void tandem_membership_close(tandem_membership *membership)
{
    if (membership->lock >= 0) (void)close(membership->lock);
    if (membership->directory >= 0) (void)close(membership->directory);
    membership->lock = membership->directory = -1;
}
