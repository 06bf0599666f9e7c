/* text.c: reads a text as symbols, and masks tokens. */
#include "data/text.h"

#include <stdlib.h>

#include "base/philox.h"
#include "data/data_file.h"
#include "data/labels.h"
#include "data/little_endian.h"

/* The test part is the last tenth; it begins here. */
static int64_t test_part_start(int64_t n_text) { return n_text - n_text / 10; }

/* Windows of length + 1 symbols, `length` apart, so that each symbol has a next one. */
static int64_t n_text_window(int64_t n_symbol, int length) { return (n_symbol - 1) / length; }

int tandem_text_number_symbols(uint8_t *symbol, uint8_t *text, int64_t n)
{
    int occurs[256] = {0}, n_symbol = 0;
    for (int64_t i = 0; i < n; i++) occurs[text[i]] = 1;
    for (int byte = 0; byte < 256; byte++) symbol[byte] = (uint8_t)(occurs[byte] ? n_symbol++ : 0);
    for (int64_t i = 0; i < n; i++) text[i] = symbol[text[i]];
    return n_symbol;
}

tandem_status tandem_text_cut_windows(tandem_data *data, int64_t n, const char *unit, int length,
                                      const char *path, tandem_error *error)
{
    if (length < 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "A sample of %s cannot have %d characters: it needs 1 or more.", path,
                                length);
    const uint64_t needed = 10 * ((uint64_t)length + 1);
    if ((uint64_t)n < needed)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is too short: it has %lld %s; samples of %d need %llu, so that the last tenth, "
            "the test part, holds one.",
            path, (long long)n, unit, length, (unsigned long long)needed);
    data->kind = TANDEM_DATA_TEXT;
    data->n_text = n;
    data->n_train = n_text_window(test_part_start(n), length);
    data->n_test = n_text_window(n - test_part_start(n), length);
    data->length = length;
    return TANDEM_OK;
}

tandem_status tandem_text_from_bytes(tandem_data *data, int length, uint8_t *bytes, size_t n,
                                     const char *path, tandem_error *error)
{
    const tandem_status status = tandem_text_cut_windows(data, (int64_t)n, "bytes", length, path, error);
    if (status != TANDEM_OK) return status;
    data->n_class = data->n_symbol = tandem_text_number_symbols(data->symbol, bytes, data->n_text);
    data->text = bytes;
    return TANDEM_OK;
}

tandem_status tandem_text_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_data_file file = {0};
    tandem_status status = tandem_data_file_read_whole(&file, path, TANDEM_DATA_FILE_LIMIT, error);
    if (status == TANDEM_OK) status = tandem_text_from_bytes(data, length, file.bytes, file.n, path, error);
    if (status != TANDEM_OK) free(file.bytes);
    return status;
}

/* Symbol i of the text. */
static int32_t text_symbol(const tandem_data *data, int64_t i)
{
    switch (data->token_bytes) {
    case 2: return tandem_le16(data->text + 2 * i);
    case 4: return (int32_t)tandem_le32(data->text + 4 * i);
    default: return data->text[i];
    }
}

/* Where a sample begins. */
static int64_t text_window(const tandem_data *data, int test, int64_t sample)
{
    const int64_t test_start =
        data->labels_train ? data->n_train * data->length : test_part_start(data->n_text);
    return (test ? test_start : 0) + sample * data->length;
}

void tandem_data_read_text(const tandem_data *data, int test, int64_t sample, int32_t *tokens, int32_t *label)
{
    const int64_t window = text_window(data, test, sample);
    for (int i = 0; i < data->length; i++) {
        tokens[i] = text_symbol(data, window + i);
        label[i] = text_symbol(data, window + i + 1);
    }
}

/* Line ends fill it. */
static void read_line(const tandem_data *data, int64_t line, int32_t *tokens)
{
    const int64_t from = data->start[line], n = data->start[line + 1] - from;
    for (int i = 0; i < data->length; i++)
        tokens[i] = i < n ? text_symbol(data, from + i) : data->symbol['\n'];
}

void tandem_data_read_text_class(const tandem_data *data, int test, int64_t sample, int32_t *tokens,
                                 int32_t *label)
{
    if (data->start) {
        read_line(data, test ? data->n_train + sample : sample, tokens);
        *label = tandem_data_label(data, test, sample);
        return;
    }
    const int64_t window = text_window(data, test, sample);
    for (int i = 0; i < data->length; i++) tokens[i] = text_symbol(data, window + i);
    if (data->labels_train)
        *label = tandem_data_label(data, test, sample);
    else
        *label = text_symbol(data, window + data->length);
}

/* A number in 0 … n−1 from a word. */
static int64_t word_below(uint32_t word, int64_t n) { return (int64_t)((uint64_t)word * (uint64_t)n >> 32); }

/* Decides position by position, with the probability that makes all choices of the remaining positions
 * equally likely. Source: Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S. */
void tandem_data_mask(int32_t *tokens, int32_t *label, int64_t length, int64_t n, int32_t mask,
                      int64_t n_symbol, uint64_t seed, int64_t sample)
{
    for (int64_t i = 0; i < length; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32),
                                     TANDEM_RNG_MASK};
        const tandem_philox_block draw = tandem_philox(counter, seed);
        label[i] = -1;
        if (word_below(draw.word[0], length - i) >= n) continue;
        n--;
        label[i] = tokens[i];
        const int64_t tenth = word_below(draw.word[1], 10);
        if (tenth < 8)
            tokens[i] = mask;
        else if (tenth == 8)
            tokens[i] = (int32_t)word_below(draw.word[2], n_symbol);
    }
}
