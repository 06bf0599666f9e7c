/* bible.h: the King James text as Debian's package bible-kjv-text has it. */
#pragma once

#include "tandem/advanced/data.h"

/* Unpacks the bytes of such a file: big-endian words from byte 84 on: bytes of a window, windows, where each
 * begins, and the end; each window is a stream of tandem_lzw_unpack.
 *   text  [out] (*n_text), the caller frees it; both unchanged on error
 * TANDEM_MALFORMED: another file, cut short, or windows that lie elsewhere; TANDEM_NO_MEMORY. */
tandem_status tandem_bible_unpack(uint8_t **text, size_t *n_text, const uint8_t *bytes, size_t n,
                                  const char *path, tandem_error *error);
/* As tandem_text_open, of such a file. */
tandem_status tandem_bible_open(tandem_data *data, const char *path, int length, tandem_error *error);
