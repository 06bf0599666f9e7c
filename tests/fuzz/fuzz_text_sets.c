/* folder: data */
/* Packed texts and files of glosses: whatever the bytes, reading says no and leaves everything as it was, or
 * gives a text whose samples lie inside of it. */
#include "data/bible.h"
#include "data/lzw.h"
#include "data/wordnet.h"
#include "tests/fuzz/fuzz_main.h"

enum { ROOM = 1 << 16, LENGTH = 9 };

static void unpack_codes_of(const uint8_t *data, size_t size)
{
    static uint8_t to[ROOM];
    tandem_error error = {0};
    size_t n = 4711;
    const tandem_status status = tandem_lzw_unpack(to, sizeof to, &n, data, size, &error);
    must(status == TANDEM_OK ? n <= ROOM : status == TANDEM_MALFORMED && n == 4711 && error.text[0]);
}

static void unpack_windows_of(const uint8_t *data, size_t size)
{
    tandem_error error = {0};
    uint8_t *text = NULL;
    size_t n = 4711;
    const tandem_status status = tandem_bible_unpack(&text, &n, data, size, "input", &error);
    if (status == TANDEM_OK) {
        volatile uint8_t last = 0;
        must(text != NULL && n <= size * (size_t)ROOM);
        for (size_t i = 0; i < n; i++) last = text[i];
        (void)last;
        free(text);
    } else {
        must(status == TANDEM_MALFORMED && !text && n == 4711 && error.text[0]);
    }
}

/* The four files are the parts between bytes 0. */
static void read_glosses_of(const uint8_t *data, size_t size)
{
    tandem_data_file file[TANDEM_WORDNET_FILES] = {{0}};
    tandem_error error = {0};
    tandem_data glosses = {.n_text = 4711};
    size_t at = 0;
    for (int k = 0; k < TANDEM_WORDNET_FILES; k++) {
        const uint8_t *const end =
            at < size && k < TANDEM_WORDNET_FILES - 1 ? memchr(data + at, 0, size - at) : NULL;
        file[k].bytes = (uint8_t *)(uintptr_t)(data + at);
        file[k].n = end ? (size_t)(end - data) - at : size - at;
        at = end ? at + file[k].n + 1 : size;
    }
    const tandem_status status = tandem_wordnet_from_files(&glosses, LENGTH, file, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && glosses.n_text == 4711 && error.text[0]);
        return;
    }
    must(glosses.n_train > 0 && glosses.n_test > 0 && glosses.n_symbol <= 256);
    for (int64_t i = 0; i < glosses.n_train + glosses.n_test; i++) {
        int32_t token[LENGTH], label;
        const int test = i >= glosses.n_train;
        tandem_data_read_text_class(&glosses, test, test ? i - glosses.n_train : i, token, &label);
        must(label >= 0 && label < glosses.n_class);
        for (int k = 0; k < LENGTH; k++) must(token[k] >= 0 && token[k] < glosses.n_symbol);
    }
    tandem_data_close(&glosses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unpack_codes_of(data, size);
    unpack_windows_of(data, size);
    read_glosses_of(data, size);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t packed[] = {
        'E', 'C', '0',      '2',      'C',        'o',        'm',          'p',  'r', 'e', 's',
        's', 'e', 'd',      ' ',      'D',        'a',        't',          'a',  ' ', 'F', 'i',
        'l', 'e', [86] = 1, [91] = 1, [95] = 100, [99] = 103, [100] = 0x48, 0xde, 0xb0};
    static const uint8_t codes[] = {0x41, 0x02, 0x06, 0x00, 0x01};
    static const char glosses[] = "00000001 03 n | a\n00000001 04 n | b\n00000001 05 n | c\n\0"
                                  "00000001 29 v | d\n00000001 30 v | e\n\0"
                                  "00000001 00 a | f\n00000001 01 a | g\n00000001 44 a | h\n\0"
                                  "00000001 02 r | i\n00000001 02 r | j\n00000001 02 r | k\n";
    static const uint8_t *const seeds[] = {packed, codes, (const uint8_t *)glosses};
    static const size_t seed_bytes[] = {sizeof packed, sizeof codes, sizeof glosses - 1};
    return tandem_fuzz_main("text_sets", LLVMFuzzerTestOneInput, seeds, seed_bytes, 3, argc, argv);
}
