/* gzip_limit.h: how large a file compressed with gzip may become.
 *
 * DEFLATE makes at most 1032 bytes of one (zlib, Technical Details, "Maximum Compression Factor"): 1 MB would
 * fill 1 GB. Recorded traces unpack to 4 … 17 times their size (gzip -l on those in tests/data), so the limit
 * stops only files that were made to fill the memory. */
#pragma once

#include <stdint.h>

/* Bytes to which any file may unpack; beyond that, bytes per byte of the file. */
enum { TANDEM_GZIP_FREE_BYTES = 16 << 20, TANDEM_GZIP_MAX_RATIO = 100 };

#define TANDEM_GZIP_LIMIT_TEXT                                                                               \
    "it unpacks to over 16 MiB and to over 100 times its size, as nothing recorded does. If you trust it, "  \
    "unpack it with gunzip and name what comes out"

/* Whether `packed` bytes of a file may not unpack to `unpacked` bytes. */
static inline int tandem_gzip_exceeds_limit(uint64_t unpacked, uint64_t packed)
{
    return unpacked > TANDEM_GZIP_FREE_BYTES && unpacked / TANDEM_GZIP_MAX_RATIO > packed;
}
