/* data_file.h: reads a whole file into memory, and unpacks it where it is gzipped. */
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
 * bytes, too much from a packed file (base/gzip_limit.h), or no regular file; TANDEM_IO; TANDEM_NO_MEMORY.
 * *file unchanged on error. */
tandem_status tandem_data_file_read(tandem_data_file *file, const char *path, size_t limit,
                                    tandem_error *error);
