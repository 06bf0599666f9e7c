/* tokens.c: reads files of token ids. */
#include "data/tokens.h"

#include "data/data_file.h"
#include "data/little_endian.h"
#include "data/text.h"

/* --- llm.c's header ------------------------------------------------------------------------------------- */

enum { HEADER_INTS = 256, USED_INTS = 3, FIRST_DATE = 20240000, LAST_DATE = 20249999 };

static const struct {
    uint32_t magic, version;
    int width;
} layouts[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { N_LAYOUT = sizeof layouts / sizeof layouts[0] };

static int is_date(uint32_t magic) { return magic >= FIRST_DATE && magic <= LAST_DATE; }

static uint32_t swap_bytes(uint32_t word)
{
    return word >> 24 | (word >> 8 & 0xff00) | (word << 8 & 0xff0000) | word << 24;
}

/* Whether the bytes begin with a header, of any magic. llm.c's magics are dates of 2024: the id 55012 or
 * more, which GPT-2 does not have, and the id 308. Other programs leave the rest of such a header 0. */
static int has_token_header(const uint8_t *bytes, size_t n)
{
    if (n < 4) return 0;
    const uint32_t magic = tandem_le32(bytes);
    if (is_date(magic) || is_date(swap_bytes(magic))) return 1;
    if (n < TANDEM_TOKENS_HEADER || !magic || !tandem_le32(bytes + 4) || !tandem_le32(bytes + 8)) return 0;
    for (int i = USED_INTS; i < HEADER_INTS; i++)
        if (tandem_le32(bytes + 4 * i)) return 0;
    return 1;
}

static tandem_status check_token_layout(int *width, const uint8_t *bytes, const char *path,
                                        tandem_error *error)
{
    const uint32_t magic = tandem_le32(bytes), version = tandem_le32(bytes + 4);
    for (int k = 0; k < N_LAYOUT; k++)
        if (magic == layouts[k].magic) {
            *width = layouts[k].width;
            if (version == layouts[k].version) return TANDEM_OK;
            return tandem_error_set(
                error, TANDEM_MALFORMED,
                "%s has magic %u and version %u, allowed is version %u. Write it again with "
                "llm.c's write_datafile.",
                path, magic, version, layouts[k].version);
        }
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s has a header of magic %u%s, allowed are llm.c's 20240520 (uint16) and 20240801 (uint32), "
        "little-endian. Write it again with llm.c's write_datafile, or without a header as uint16.",
        path, magic, is_date(swap_bytes(magic)) ? ", which is big-endian" : "");
}

static tandem_status parse_token_header(tandem_tokens *tokens, const uint8_t *bytes, size_t n,
                                        const char *path, tandem_error *error)
{
    if (n < TANDEM_TOKENS_HEADER)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s is cut short: got %zu bytes, expected a header of %d. Write it again.",
                                path, n, TANDEM_TOKENS_HEADER);
    const tandem_status status = check_token_layout(&tokens->width, bytes, path, error);
    if (status != TANDEM_OK) return status;
    const uint64_t n_token = tandem_le32(bytes + 8),
                   expected = TANDEM_TOKENS_HEADER + n_token * (uint64_t)tokens->width;
    if (n != expected)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s %s: got %zu bytes, expected %llu for the %llu tokens of %d bytes of its header. "
            "Write it again.",
            path, n < expected ? "is cut short" : "is too long", n, (unsigned long long)expected,
            (unsigned long long)n_token, tokens->width);
    tokens->ids = bytes + TANDEM_TOKENS_HEADER;
    tokens->n = (int64_t)n_token;
    return TANDEM_OK;
}

/* --- Ids ------------------------------------------------------------------------------------------------ */

/* Whether ids without a header are the halves of uint32: every second one is 0, or as small as the upper half
 * of the largest id of a vocabulary, and the others are not. */
static int has_wide_ids(const uint8_t *bytes, size_t n)
{
    enum { MIN_PAIRS = 16, MAX_UPPER = TANDEM_TOKENS_MAX_ID >> 16 };
    uint32_t lower = 0, upper = 0;
    if (n % 4 || n / 4 < MIN_PAIRS) return 0;
    for (size_t at = 0; at < n && upper <= MAX_UPPER; at += 4) {
        const uint32_t first = tandem_le16(bytes + at), second = tandem_le16(bytes + at + 2);
        lower = first > lower ? first : lower;
        upper = second > upper ? second : upper;
    }
    return upper <= MAX_UPPER && lower > 2 * MAX_UPPER;
}

static tandem_status parse_bare_tokens(tandem_tokens *tokens, const uint8_t *bytes, size_t n,
                                       const char *path, tandem_error *error)
{
    if (n % 2)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %zu bytes, but a file of uint16 ids without a header has an even number. "
            "Fetch it again; a text needs another name than FILE.bin.",
            path, n);
    if (has_wide_ids(bytes, n))
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has no header, and every second id of uint16 is 0 or nearly so, as where ids are uint32; "
            "allowed are ids of uint16. Write it as uint16, or with llm.c's header of magic 20240801.",
            path);
    *tokens = (tandem_tokens){.ids = bytes, .n = (int64_t)(n / 2), .width = 2};
    return TANDEM_OK;
}

static tandem_status find_largest_id(tandem_tokens *tokens, const char *path, tandem_error *error)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < tokens->n && tokens->width == 2; i++) {
        const uint32_t id = tandem_le16(tokens->ids + 2 * i);
        largest = id > largest ? id : largest;
    }
    for (int64_t i = 0; i < tokens->n && tokens->width == 4; i++) {
        const uint32_t id = tandem_le32(tokens->ids + 4 * i);
        if (id > TANDEM_TOKENS_MAX_ID)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "%s: token %lld is %u, allowed are 0 to %d. Write it again.", path,
                                    (long long)i, id, TANDEM_TOKENS_MAX_ID);
        largest = id > largest ? id : largest;
    }
    tokens->largest = tokens->n ? (int32_t)largest : -1;
    return TANDEM_OK;
}

/* Mapped files are not unpacked. The bytes: RFC 1952, section 2.3.1. */
static tandem_status refuse_packed_tokens(const uint8_t *bytes, size_t n, const char *path,
                                          tandem_error *error)
{
    if (n < 3 || bytes[0] != 0x1f || bytes[1] != 0x8b || bytes[2] != 8) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "%s is gzipped, allowed are plain files of token ids. Unpack it with gunzip.",
                            path);
}

tandem_status tandem_tokens_parse(tandem_tokens *tokens, const uint8_t *bytes, size_t n, const char *path,
                                  tandem_error *error)
{
    tandem_tokens result = {0};
    tandem_status status = refuse_packed_tokens(bytes, n, path, error);
    if (status == TANDEM_OK)
        status = has_token_header(bytes, n) ? parse_token_header(&result, bytes, n, path, error)
                                            : parse_bare_tokens(&result, bytes, n, path, error);
    if (status == TANDEM_OK) status = find_largest_id(&result, path, error);
    if (status == TANDEM_OK) *tokens = result;
    return status;
}

/* --- A data set ----------------------------------------------------------------------------------------- */

tandem_status tandem_tokens_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_mapped_file file = {0};
    tandem_tokens tokens = {0};
    tandem_status status = tandem_mapped_file_open(&file, path, error);
    if (status == TANDEM_OK) status = tandem_tokens_parse(&tokens, file.bytes, file.n, path, error);
    if (status == TANDEM_OK) status = tandem_text_cut_windows(data, tokens.n, "tokens", length, path, error);
    if (status != TANDEM_OK) {
        tandem_mapped_file_close(&file);
        return status;
    }
    data->n_class = data->n_symbol = tokens.largest + 1;
    data->text = (uint8_t *)(uintptr_t)tokens.ids;
    data->token_bytes = tokens.width;
    data->mapped = file.bytes;
    data->n_mapped = file.n;
    return TANDEM_OK;
}
