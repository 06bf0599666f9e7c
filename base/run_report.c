#include "base/run_report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 40, REPORT_BYTES = TANDEM_ERROR_TEXT + 64 };

static struct flock whole_run_file(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

static void started_file_name(char name[NAME_BYTES], int rank)
{
    (void)snprintf(name, NAME_BYTES, "rank.%d.started", rank);
}

static int open_run_directory(const char *store) { return open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

int tandem_run_start(const char *store, int rank)
{
    char name[NAME_BYTES];
    const int directory = open_run_directory(store);
    if (directory < 0) return -1;
    started_file_name(name, rank);
    int file = openat(directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct flock whole = whole_run_file();
    (void)close(directory);
    if (file >= 0 && fcntl(file, F_OFD_SETLK, &whole) != 0) {
        (void)close(file);
        file = -1;
    }
    return file;
}

bool tandem_run_has_ended(int directory, int rank)
{
    char name[NAME_BYTES];
    started_file_name(name, rank);
    const int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return false;
    struct flock lock = whole_run_file();
    const bool has_ended = fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    (void)close(file);
    return has_ended;
}

void tandem_run_report_write(int directory, int own, tandem_status status, int failed, const char *text)
{
    /* Writes a temporary file and links it into place: other ranks see the whole report or none, and only the
     * first report gets the name. */
    char aside[NAME_BYTES], report[REPORT_BYTES];
    (void)snprintf(aside, sizeof aside, "rank.%d.verdict", own);
    const int length = snprintf(report, sizeof report, "%d %s %s", failed, tandem_status_name(status), text);
    const size_t n = (size_t)length < sizeof report ? (size_t)length : sizeof report - 1;
    const int file = openat(directory, aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return;
    const bool is_written = write(file, report, n) == (ssize_t)n;
    (void)close(file);
    const int linked = is_written ? linkat(directory, aside, directory, "failed", 0) : 0;
    (void)linked; /* an earlier report stays */
    (void)unlinkat(directory, aside, 0);
}

void tandem_run_report_own(const char *store, int own, const char *text)
{
    char whole[TANDEM_ERROR_TEXT];
    const int directory = open_run_directory(store);
    if (directory < 0) return;
    (void)snprintf(whole, sizeof whole, "rank %d could not join: %.900s", own, text);
    tandem_run_report_write(directory, own, TANDEM_RANK_FAILED, own, whole);
    (void)close(directory);
}

/* The status that the words begin with, and moves *words past it. */
static tandem_status read_report_status(const char **words)
{
    for (int k = 1; k < TANDEM_N_STATUS; k++) {
        const char *name = tandem_status_name((tandem_status)k);
        const size_t n = strlen(name);
        if (strncmp(*words, name, n) != 0 || (*words)[n] != ' ') continue;
        *words += n + 1;
        return (tandem_status)k;
    }
    return TANDEM_RANK_FAILED;
}

bool tandem_run_report_read(int directory, int n_rank, tandem_error *error)
{
    char text[REPORT_BYTES], *end = text;
    const int file = openat(directory, "failed", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t n = pread(file, text, sizeof text - 1, 0);
    (void)close(file);
    if (n <= 0) return false;
    text[n] = '\0';
    const long rank = strtol(text, &end, 10);
    const char *words = end + (*end == ' ');
    const tandem_status status = read_report_status(&words);
    (void)tandem_error_set(error, status, "%s", words);
    if (error) error->rank = status == TANDEM_RANK_FAILED && rank >= 0 && rank < n_rank ? (int)rank : -1;
    return true;
}
