/* file.h: reads whole files, and replaces files so that readers see the old or the new one, never a part. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/path.h"
#include "tandem/status.h"

/* tandem_file_read: all of a file, in *bytes[0 … *n−1]; the caller frees it. TANDEM_IO: missing or
 * unreadable. TANDEM_MALFORMED: more than max_bytes. TANDEM_NO_MEMORY. */
tandem_status tandem_file_read(char **bytes, size_t *n, const char *path, size_t max_bytes,
                               tandem_error *error);

/* Bytes of an open file that were never written, its holes; 0 where the file system does not report them. A
 * program that reads such a file needs memory for bytes that are not there. Cost: O(parts); the first 4096
 * count. */
int64_t tandem_file_hole_bytes(int descriptor);

/* A file being written. All whole files are written so. Until it is complete, the file lies in the folder of
 * its path without a name, or under an unpredictable name where the file system has no unnamed files. A path
 * that is a link stays one, and its target is replaced. The old file's mode is kept, and its owner and group
 * where that is allowed. A new file's mode is 0666 less the umask. Pipes, /dev/null and other special files
 * are written directly, since renaming would replace them. "-" is the standard output. What other users may
 * have put there is neither followed nor replaced (path.h). */
typedef struct tandem_file {
    FILE *stream;    /* to write to; tandem_file_finish checks it for errors */
    char *path;      /* as it was given, for errors */
    tandem_path at;  /* where the file will lie */
    char *partial;   /* its name there until it is complete; NULL: the path is written directly */
    bool is_unnamed; /* `partial` does not exist yet */
} tandem_file;

/* TANDEM_IO, TANDEM_NO_MEMORY. *file unchanged on error. */
tandem_status tandem_file_open(tandem_file *file, const char *path, tandem_error *error);
/* Flushes the file to the medium, moves it to its path, flushes the folder, and closes it. TANDEM_IO: the old
 * file is unchanged (or the new one is there, but a crash of the machine may undo that); closed too. Call it
 * right after a failed write: the error says why it failed. */
tandem_status tandem_file_finish(tandem_file *file, tandem_error *error);
/* Gives up; the old file is unchanged. An all-zero or finished file is fine. */
void tandem_file_discard(tandem_file *file);
