/* lzw.h: unpacks what `compress` packs: Lempel, Ziv and Welch's codes of 9 to 16 bits, lowest bit first. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* Unpacks from[n_from], a stream in block mode without its three bytes of header, to `to`.
 *   n  [out] bytes written, at most `room`; unchanged on error, when `to` is of no use
 * TANDEM_MALFORMED: a code that no earlier one explains, or more than `room` bytes; TANDEM_NO_MEMORY: 256 KiB
 * of tables. Source: Welch, "A technique for high-performance data compression", Computer 17(6), 1984; the
 * packing of codes into groups of eight is that of compress(1). O(n + n_from). */
tandem_status tandem_lzw_unpack(uint8_t *to, size_t room, size_t *n, const uint8_t *from, size_t n_from,
                                tandem_error *error);
