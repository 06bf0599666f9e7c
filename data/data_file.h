/* data_file.h: reads a whole file into memory, and unpacks it where it is gzipped; or maps it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TANDEM_DATA_FILE_LIMIT = 1 << 30 }; /* bytes of a data file, unpacked */

typedef struct tandem_data_file {
    uint8_t *bytes; /* (n), never NULL after reading; the caller frees it */
    size_t n;
    bool cut_short; /* the gzip stream ends early: these are the bytes before its end */
} tandem_data_file;

/* Reads all of `path`. A gzip stream that ends early is no error here, because only the caller knows how many
 * bytes there must be: it checks `cut_short`. TANDEM_MALFORMED: a damaged gzip stream, more than `limit`
 * bytes, too much from a packed file (base/gzip_limit.h), more than 64 MiB that were never written (holes of
 * a sparse file), or no regular file; TANDEM_IO; TANDEM_NO_MEMORY.
 * *file unchanged on error. */
tandem_status tandem_data_file_read(tandem_data_file *file, const char *path, size_t limit,
                                    tandem_error *error);

/* The same, where a gzip stream that ends early is TANDEM_MALFORMED, too. */
tandem_status tandem_data_file_read_whole(tandem_data_file *file, const char *path, size_t limit,
                                          tandem_error *error);

/* A whole file as it lies on the disk, read-only: the system reads its pages when they are used, and may drop
 * them again. Processes that map the same file share its pages. A file that becomes shorter meanwhile ends
 * the process that reads beyond its end (SIGBUS). */
typedef struct tandem_mapped_file {
    const uint8_t *bytes; /* (n); NULL where n = 0 */
    size_t n;
} tandem_mapped_file;

/* TANDEM_MALFORMED: no regular file, or one with holes as above; TANDEM_IO; TANDEM_NO_MEMORY. *file unchanged
 * on error. O(1). */
tandem_status tandem_mapped_file_open(tandem_mapped_file *file, const char *path, tandem_error *error);
void tandem_mapped_file_close(tandem_mapped_file *file); /* an all-zero one is fine, and is what it leaves */
