#include "backend/data/text.h"

#include <stdlib.h>

#include "backend/data/file.h"

/* Where the test part begins: it is the last tenth. */
static int64_t test_start(int64_t n_text) { return n_text - n_text / 10; }

/* Windows of length + 1 symbols (each has a next one), `length` apart. */
static int64_t n_window(int64_t n_symbol, int length) { return (n_symbol - 1) / length; }

tandem_status tandem_text_encode(tandem_data *data, int length, uint8_t *bytes, size_t n, const char *path,
                                 tandem_error *error)
{
    if (length < 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "A sample of %s cannot have %d characters: it needs 1 or more.", path, length);
    const uint64_t needed = 10 * ((uint64_t)length + 1);
    if (n < needed)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s is too short: it has %zu bytes; samples of %d characters need %llu, so that the last "
                                "tenth, the test part, holds one.",
                                path, n, length, (unsigned long long)needed);
    uint8_t symbol[256] = {0};
    int occurs[256] = {0}, n_class = 0;
    for (size_t i = 0; i < n; i++) occurs[bytes[i]] = 1;
    for (int byte = 0; byte < 256; byte++)
        if (occurs[byte]) symbol[byte] = (uint8_t)n_class++;
    for (size_t i = 0; i < n; i++) bytes[i] = symbol[bytes[i]];

    data->kind = TANDEM_DATA_TEXT;
    data->n_text = (int64_t)n;
    data->n_train = n_window(test_start(data->n_text), length);
    data->n_test = n_window(data->n_text - test_start(data->n_text), length);
    data->n_class = n_class;
    data->text = bytes;
    data->length = length;
    for (int byte = 0; byte < 256; byte++) data->symbol[byte] = symbol[byte];
    return TANDEM_OK;
}

tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_file file = {0};
    tandem_status status = tandem_data_file_read(&file, path, TANDEM_FILE_LIMIT, error);
    if (status != TANDEM_OK) return status;
    if (file.cut_short)
        status = tandem_error_set(error, TANDEM_MALFORMED,
                                  "%s is cut short: its gzip stream breaks off after %zu bytes of text.",
                                  path, file.n);
    else
        status = tandem_text_encode(data, length, file.bytes, file.n, path, error);
    if (status != TANDEM_OK) free(file.bytes);
    return status;
}

void tandem_data_read_text(const tandem_data *data, int test, int64_t sample, int32_t *tokens, int32_t *label)
{
    const uint8_t *const window = data->text + (test ? test_start(data->n_text) : 0) + sample * data->length;
    for (int i = 0; i < data->length; i++) {
        tokens[i] = window[i];
        label[i] = window[i + 1];
    }
}
