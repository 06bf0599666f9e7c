/* bible.c: a text in windows that are packed one by one. */
#include "data/bible.h"

#include <stdlib.h>
#include <string.h>

#include "data/data_file.h"
#include "data/lzw.h"
#include "data/text.h"

enum { AT_WINDOW = 84, AT_COUNT = 88, AT_OFFSET = 92, MAX_WINDOW = 1 << 16 };
static const char magic[] = "EC02Compressed Data File";

static uint32_t word_at(const uint8_t *bytes, size_t at)
{
    return (uint32_t)bytes[at] << 24 | (uint32_t)bytes[at + 1] << 16 | (uint32_t)bytes[at + 2] << 8 |
           (uint32_t)bytes[at + 3];
}

static tandem_status refuse_bible(const char *path, const char *why, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "%s is not the text of the package bible-kjv-text: %s. Install it again with "
                            "\"apt-get install --reinstall bible-kjv-text\".",
                            path, why);
}

tandem_status tandem_bible_unpack(uint8_t **text, size_t *n_text, const uint8_t *bytes, size_t n,
                                  const char *path, tandem_error *error)
{
    if (n < AT_OFFSET + 8 || memcmp(bytes, magic, sizeof magic - 1) != 0)
        return refuse_bible(path, "it begins otherwise", error);
    const size_t window = word_at(bytes, AT_WINDOW), n_window = word_at(bytes, AT_COUNT);
    if (window < 1 || window > MAX_WINDOW || n_window < 1 || n_window > (n - AT_OFFSET) / 4 - 1)
        return refuse_bible(path, "its windows have no such size or number", error);
    uint8_t *const unpacked = malloc(window * n_window);
    if (!unpacked) return tandem_no_memory(error, "for the %zu bytes of %s", window * n_window, path);
    tandem_status status = TANDEM_OK;
    size_t used = 0, written = 0, before = AT_OFFSET + 4 * (n_window + 1);
    for (size_t w = 0; w < n_window && status == TANDEM_OK; w++, used += written) {
        const size_t begin = word_at(bytes, AT_OFFSET + 4 * w), end = word_at(bytes, AT_OFFSET + 4 * (w + 1));
        if (begin < before || end < begin || end > n)
            status = refuse_bible(path, "a window lies outside of it", error);
        else
            status = tandem_lzw_unpack(unpacked + used, window, &written, bytes + begin, end - begin, error);
        before = end;
    }
    if (status == TANDEM_OK) {
        *text = unpacked;
        *n_text = used;
    } else {
        free(unpacked);
    }
    return status;
}

tandem_status tandem_bible_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_data_file file = {0};
    uint8_t *text = NULL;
    size_t n = 0;
    tandem_status status = tandem_data_file_read(&file, path, TANDEM_DATA_FILE_LIMIT, error);
    if (status == TANDEM_OK) status = tandem_bible_unpack(&text, &n, file.bytes, file.n, path, error);
    free(file.bytes);
    if (status == TANDEM_OK) status = tandem_text_from_bytes(data, length, text, n, path, error);
    if (status != TANDEM_OK) free(text);
    return status;
}
