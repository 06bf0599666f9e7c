/* file.h: files read whole, and files that are old or new but never half. */
#ifndef TANDEM_BASE_FILE_H
#define TANDEM_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tandem/status.h"

/* tandem_file_read: all of a file, in *bytes[0 … *n−1], the caller's to free(). TANDEM_IO (missing,
 * unreadable); TANDEM_MALFORMED where it holds more than `most` bytes; TANDEM_NO_MEMORY. */
tandem_status tandem_file_read(char **bytes, size_t *n, const char *path, size_t max_bytes,
                               tandem_error *error);

/* A file being written: the only way in which tandem writes a whole file. Until it is complete it lies in its
 * path's folder without a name, or, where the file system has no such files, under one of its own that nobody
 * can foresee. A path that is a link stays one: what it points to is replaced. The old file's mode is kept,
 * and its owner and group where that is allowed; a new file's mode is 0666 less the umask. What is no regular
 * file (a pipe, /dev/null) is written directly, since renaming would replace it; "-" is the standard
 * output. */
typedef struct tandem_file {
    FILE *stream;         /* to write to; its errors are found by tandem_file_finish */
    char *path, *partial; /* partial NULL: written directly */
    bool is_unnamed;      /* there is nothing at `partial` yet */
} tandem_file;

/* TANDEM_IO, TANDEM_NO_MEMORY. *file unchanged on error. */
tandem_status tandem_file_open(tandem_file *file, const char *path, tandem_error *error);
/* Flushes it to the medium, puts it in its place, and flushes the folder. TANDEM_IO: the old file stands as
 * it was (or the new one, but a crash of the machine may undo that). Closes in either case. Call it also
 * where a write failed, at once: it says why. */
tandem_status tandem_file_finish(tandem_file *file, tandem_error *error);
/* Gives up: the old file stands as it was. An all-zero one, or a finished one, is fine. */
void tandem_file_discard(tandem_file *file);

#endif
