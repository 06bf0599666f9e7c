/* tokens.h: files of token ids, as nanoGPT and llm.c write them.
 *
 * nanoGPT: the ids as uint16, without a header (karpathy/nanoGPT at commit 04cc18e9, prepare.py of
 * openwebtext: `dtype = np.uint16`, np.memmap). llm.c: 256 int32, of which the first three are magic, version
 * and number of tokens, then the ids: magic 20240520, version 1: uint16; magic 20240801, version 7: uint32
 * (karpathy/llm.c at commit 16635d41, dev/data/data_common.py: HEADERS_INFO, write_datafile). Both write in
 * the byte order of the machine, which is little-endian. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/advanced/data.h"

enum { TANDEM_TOKENS_HEADER = 1024, TANDEM_TOKENS_MAX_ID = (1 << 20) - 1 };

typedef struct tandem_tokens {
    const uint8_t *ids; /* (n · width), within the parsed bytes */
    int64_t n;
    int width;       /* bytes of an id: 2 or 4 */
    int32_t largest; /* id; −1 where n = 0 */
} tandem_tokens;

/* Parses bytes[n], which the caller keeps; `path` names them in errors. TANDEM_MALFORMED: an odd length, a
 * header of another magic or version, or whose count disagrees with the length; no header, but ids as in a
 * file of uint32; an id above TANDEM_TOKENS_MAX_ID, which no model has. *tokens unchanged on error. O(n). */
tandem_status tandem_tokens_parse(tandem_tokens *tokens, const uint8_t *bytes, size_t n, const char *path,
                                  tandem_error *error);

/* Maps a file and sets kind, n_train, n_test, n_class, n_symbol, text, n_text, token_bytes, mapped and length
 * of *data. Windows and test part are a text's (text.h); n_symbol is the largest id + 1. TANDEM_USAGE: length
 * < 1; TANDEM_MALFORMED: as above, or fewer than 10·(length+1) tokens; errors of tandem_mapped_file_open.
 * *data unchanged on error. Cost: reading the file once. */
tandem_status tandem_tokens_open(tandem_data *data, const char *path, int length, tandem_error *error);
