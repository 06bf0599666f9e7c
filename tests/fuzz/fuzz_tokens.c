/* folder: data */
/* Files of token ids: any bytes are refused, or give ids that lie inside of them and below a limit. */
#include "data/tokens.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_tokens tokens, before;
    tandem_error error = {0};
    memset(&tokens, 0xa5, sizeof tokens);
    memcpy(&before, &tokens, sizeof tokens);
    const tandem_status status = tandem_tokens_parse(&tokens, data, size, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && error.status == status && error.text[0] != '\0');
        must(memcmp(&tokens, &before, sizeof tokens) == 0);
        return 0;
    }
    const size_t n = (size_t)tokens.n * (size_t)tokens.width;
    must(tokens.width == 2 || tokens.width == 4);
    must(tokens.n == 0 || (tokens.ids >= data && (size_t)(tokens.ids - data) + n == size));
    must(tokens.largest >= -1 && tokens.largest <= TANDEM_TOKENS_MAX_ID);
    must((tokens.largest < 0) == (tokens.n == 0));
    int is_found = tokens.n == 0;
    for (size_t at = 0; at < n; at += (size_t)tokens.width) {
        int32_t id = tokens.ids[at] | tokens.ids[at + 1] << 8;
        if (tokens.width == 4) id |= tokens.ids[at + 2] << 16 | tokens.ids[at + 3] << 24;
        must(id >= 0 && id <= tokens.largest);
        is_found |= id == tokens.largest;
    }
    must(is_found);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t bare[] = {1, 0, 255, 3, 7, 200, 9, 0};
    static const uint8_t narrow[TANDEM_TOKENS_HEADER + 6] = {0x88, 0xd8, 0x34, 0x01, 1,
                                                             0,    0,    0,    3,    [1024] = 7};
    static const uint8_t wide[TANDEM_TOKENS_HEADER + 8] = {0xa1, 0xd9, 0x34, 0x01, 7, 0, 0, 0, 2, [1030] = 1};
    static const uint8_t *const seeds[] = {bare, narrow, wide};
    static const size_t seed_bytes[] = {sizeof bare, sizeof narrow, sizeof wide};
    return tandem_fuzz_main("tokens", LLVMFuzzerTestOneInput, seeds, seed_bytes, 3, argc, argv);
}
