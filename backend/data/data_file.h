/* data_file.h: a whole file in memory, unpacked where it is gzipped. */
#ifndef TANDEM_BACKEND_DATA_FILE_H
#define TANDEM_BACKEND_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

enum { TANDEM_DATA_FILE_LIMIT = 1 << 30 }; /* bytes that a data file may have, unpacked */

typedef struct tandem_data_file {
    uint8_t *bytes; /* (n), never NULL after reading; owned: free() it */
    size_t n;
    bool cut_short; /* the gzip stream breaks off: these are the bytes up to there */
} tandem_data_file;

/* tandem_data_file_read: read all of `path`. A gzip stream that breaks off is no error here, since only the
 * caller knows how many bytes there should be: it must look at `cut_short`.
 * TANDEM_MALFORMED where a gzip stream is damaged, there are more than `limit` bytes, it unpacks too far
 * (base/gzip_limit.h), or `path` is no regular file; TANDEM_IO; TANDEM_NO_MEMORY. *file unchanged on error.
 * */
tandem_status tandem_data_file_read(tandem_data_file *file, const char *path, size_t limit,
                                    tandem_error *error);

#endif
