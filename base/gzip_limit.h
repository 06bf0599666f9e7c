/* packed.h: how far a file compressed with gzip may unpack.
 *
 * DEFLATE makes at most 1032 bytes of one (zlib, Technical Details, "Maximum Compression Factor"): 1 MB would
 * fill 1 GB. Recorded traces unpack to 4 … 17 times their size (gzip -l on those in tests/data), so that this
 * limit stops only what was made to fill the memory. */
#ifndef TANDEM_BASE_GZIP_LIMIT_H
#define TANDEM_BASE_GZIP_LIMIT_H

#include <stdint.h>

/* Bytes that any file may unpack to, and bytes for each byte of the file beyond that. */
enum { TANDEM_GZIP_FREE_BYTES = 16 << 20, TANDEM_GZIP_MAX_RATIO = 100 };

#define TANDEM_GZIP_LIMIT_TEXT                                                                               \
    "it unpacks to over 16 MiB and to over 100 times its size, as nothing recorded does. If you trust it, "  \
    "unpack it with gunzip and name what comes out"

/* Whether `unpacked` bytes are too many for `packed` bytes of a file. */
static inline int tandem_gzip_exceeds_limit(uint64_t unpacked, uint64_t packed)
{
    return unpacked > TANDEM_GZIP_FREE_BYTES && unpacked / TANDEM_GZIP_MAX_RATIO > packed;
}

#endif
