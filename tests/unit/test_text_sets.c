/* folder: data */
/* link: --wrap=malloc --wrap=calloc --wrap=realloc --wrap=free */
/* Named data sets of text: the packed King James text and WordNet's glosses, small ones of our own, damaged
 * ones, and the real ones where they are installed. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/philox.h"
#include "data/bible.h"
#include "data/lzw.h"
#include "data/wordnet.h"
#include "tests/support/fail_allocation.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

/* --- A packer, the other way round ---------------------------------------------------------------------- */

enum { CLEAR = 256, N_CODE = 1 << 16, N_SLOT = 1 << 18 };

typedef struct lzw_packer {
    uint8_t *to;
    uint64_t bit, group;
    int width, n_code;
    uint32_t key[N_SLOT]; /* prefix << 8 | byte, and 1: a slot of 0 is free */
    uint16_t code[N_SLOT];
} lzw_packer;

static void align_packed(lzw_packer *p, int width)
{
    const uint64_t group_bits = 8 * (uint64_t)p->width;
    while ((p->bit - p->group) % group_bits) p->bit++;
    p->group = p->bit;
    p->width = width;
}

static void put_code(lzw_packer *p, int code)
{
    for (int i = 0; i < p->width; i++, p->bit++)
        p->to[p->bit / 8] = (uint8_t)(p->to[p->bit / 8] | (code >> i & 1) << (p->bit % 8));
}

static uint32_t *find_packed(lzw_packer *p, int prefix, uint8_t byte)
{
    const uint32_t key = ((uint32_t)prefix << 8 | byte) + 1;
    uint32_t slot = key * 2654435761u >> 14;
    while (p->key[slot] && p->key[slot] != key) slot = (slot + 1) % N_SLOT;
    return &p->key[slot];
}

/* Clears the codes before byte number clear_at; 0: never. Returns the bytes written. */
static size_t pack_text(uint8_t *to, const uint8_t *text, size_t n, size_t clear_at)
{
    lzw_packer *const p = calloc(1, sizeof *p);
    assert_non_null(p);
    *p = (lzw_packer){.to = to, .width = 9, .n_code = CLEAR + 1};
    int prefix = -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t *const slot = prefix < 0 ? NULL : find_packed(p, prefix, text[i]);
        if (slot && *slot && !(clear_at && i == clear_at)) {
            prefix = p->code[slot - p->key];
            continue;
        }
        if (prefix >= 0) {
            put_code(p, prefix);
            /* a reader knows a code when it has read the next one */
            if (p->n_code > 1 << p->width && p->width < 16) fail_msg("a width was missed");
            if (p->n_code >= 1 << p->width && p->width < 16) align_packed(p, p->width + 1);
            if (p->n_code < N_CODE && !*slot) {
                *slot = ((uint32_t)prefix << 8 | text[i]) + 1;
                p->code[slot - p->key] = (uint16_t)p->n_code++;
            }
        }
        if (clear_at && i == clear_at) {
            put_code(p, CLEAR);
            align_packed(p, 9);
            memset(p->key, 0, sizeof p->key);
            p->n_code = CLEAR + 1;
        }
        prefix = text[i];
    }
    if (prefix >= 0) put_code(p, prefix);
    const size_t bytes = (size_t)(p->bit + 7) / 8;
    free(p);
    return bytes;
}

/* n bytes of an alphabet, with runs. */
static uint8_t *make_text(size_t n, uint32_t n_symbol, uint32_t seed)
{
    uint8_t *const text = malloc(n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 7), seed, 0, TANDEM_RNG_SHUFFLE};
        const tandem_philox_block block = tandem_philox(counter, 1);
        text[i] = (uint8_t)(i % 7 < block.word[1] % 8 ? block.word[0] % n_symbol
                                                      : (block.word[2] >> i % 7) % n_symbol);
    }
    return text;
}

static void texts_are_unpacked_as_they_were(void **state)
{
    static const size_t size[] = {0, 1, 2, 300, 5000, 400000};
    static const uint32_t alphabet[] = {1, 2, 27, 256};
    (void)state;
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (size_t a = 0; a < sizeof alphabet / sizeof *alphabet; a++)
            for (size_t clear_at = 0; clear_at <= size[s]; clear_at += size[s] / 2 + 1) {
                const size_t n = size[s];
                uint8_t *const text = make_text(n, alphabet[a], (uint32_t)s), *const to = malloc(n + 1);
                uint8_t *const packed = calloc(1, 3 * n + 64);
                size_t n_to = 77;
                tandem_error error = {0};
                assert_non_null(to);
                assert_non_null(packed);
                const size_t n_packed = pack_text(packed, text, n, clear_at);
                require_ok(tandem_lzw_unpack(to, n, &n_to, packed, n_packed, &error), &error);
                assert_int_equal(n_to, n);
                assert_memory_equal(to, text, n);
                if (n > 1) {
                    assert_int_equal(tandem_lzw_unpack(to, n - 1, &n_to, packed, n_packed, &error),
                                     TANDEM_MALFORMED);
                    assert_int_equal(n_to, n);
                }
                free(packed);
                free(to);
                free(text);
            }
}

static void codes_that_nothing_explains_are_refused(void **state)
{
    static const uint8_t first_is_new[] = {0x01, 0x03}, /* 257, before any other */
        later[] = {0x41, 0x04, 0x02};                   /* 65, then 258 */
    uint8_t to[16];
    size_t n = 5;
    tandem_error error = {0};
    (void)state;
    assert_int_equal(tandem_lzw_unpack(to, sizeof to, &n, first_is_new, 2, &error), TANDEM_MALFORMED);
    assert_int_equal(tandem_lzw_unpack(to, sizeof to, &n, later, 3, &error), TANDEM_MALFORMED);
    assert_int_equal(n, 5);
}

/* --- The King James text -------------------------------------------------------------------------------- */

enum { WINDOW = 4096, N_WINDOW = 3, N_LAST = 500, FILE_BYTES = 65536 };

static void put_word(uint8_t *to, size_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Returns the bytes of a file of text[2·WINDOW + N_LAST]. */
static size_t make_bible(uint8_t *file, const uint8_t *text)
{
    size_t at = 92 + 4 * (N_WINDOW + 1);
    memset(file, 0, FILE_BYTES);
    memcpy(file, "EC02Compressed Data File", 24);
    put_word(file + 84, WINDOW);
    put_word(file + 88, N_WINDOW);
    for (size_t w = 0; w < N_WINDOW; w++) {
        put_word(file + 92 + 4 * w, at);
        at += pack_text(file + at, text + w * WINDOW, w < N_WINDOW - 1 ? WINDOW : N_LAST, 0);
    }
    put_word(file + 92 + 4 * N_WINDOW, at);
    return at;
}

static void packed_windows_are_one_text(void **state)
{
    enum { N_TEXT = 2 * WINDOW + N_LAST };
    uint8_t *const text = make_text(N_TEXT, 60, 3), *const file = malloc(FILE_BYTES);
    char folder[] = "/tmp/tandem-bible-XXXXXX", path[64];
    tandem_data data = {0};
    tandem_error error = {0};
    (void)state;
    assert_non_null(file);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/bible.data", folder);
    write_test_file(path, file, make_bible(file, text));
    setenv("TANDEM_DATA", folder, 1);
    require_ok(tandem_data_open(&data, "bible-kjv-text", 9, &error), &error);
    assert_int_equal(data.n_text, N_TEXT);
    assert_int_equal(data.n_class, data.n_symbol);
    for (int i = 0; i < N_TEXT; i++) assert_int_equal(data.text[i], data.symbol[text[i]]);
    tandem_data_close(&data);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    unsetenv("TANDEM_DATA");
    free(file);
    free(text);
}

static void damaged_bibles_are_refused(void **state)
{
    uint8_t *const text = make_text(2 * WINDOW + N_LAST, 60, 3), *const file = malloc(FILE_BYTES),
                   *out = NULL;
    size_t n_out = 3;
    tandem_error error = {0};
    (void)state;
    assert_non_null(file);
    const size_t n = make_bible(file, text);
    const struct {
        size_t at, value;
    } damage[] = {{0, 1},  {84, 0},     {84, 1 << 17},          {88, 0},         {88, 1 << 30},
                  {92, 3}, {96, n + 1}, {92 + 4 * N_WINDOW, 0}, {92, FILE_BYTES}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        (void)make_bible(file, text);
        put_word(file + damage[i].at, damage[i].value);
        assert_int_equal(tandem_bible_unpack(&out, &n_out, file, n, "it", &error), TANDEM_MALFORMED);
        assert_non_null(strstr(error.text, "bible-kjv-text"));
    }
    (void)make_bible(file, text);
    for (size_t cut = 0; cut < n; cut += cut < 128 ? 1 : 97)
        assert_int_equal(tandem_bible_unpack(&out, &n_out, file, cut, "it", &error), TANDEM_MALFORMED);
    assert_null(out);
    assert_int_equal(n_out, 3);
    free(file);
    free(text);
}

/* --- WordNet -------------------------------------------------------------------------------------------- */

static const char *const synsets[TANDEM_WORDNET_FILES] = {
    "  1 A licence. | with a bar\n"
    "00000001 00 n 01 a 0 000 | gloss 00\n00000002 05 n 01 b 0 000 | gloss 05  \n"
    "00000003 03 n 01 c 0 000 |gloss 03\n",
    "00000004 29 v 01 d 0 000 | gloss 29\n00000005 30 v 01 e 0 000 | gloss 30\n",
    "00000006 44 a 01 f 0 000 | gloss 44\n00000007 01 a 01 g 0 000 | gloss 01\n"
    "00000008 31 a 01 h 0 000 | gloss 31\n",
    "00000009 02 r 01 i 0 000 | gloss 02\n00000010 17 r 01 j 0 000 | gloss 17; \"longer\"\n"
    "00000011 09 r 01 k 0 000 | gloss 09"};

static tandem_status open_glosses(tandem_data *data, int length, int changed, const char *text,
                                  tandem_error *error)
{
    tandem_data_file file[TANDEM_WORDNET_FILES] = {{0}};
    for (int k = 0; k < TANDEM_WORDNET_FILES; k++) {
        file[k].bytes = (uint8_t *)(uintptr_t)(k == changed ? text : synsets[k]);
        file[k].n = strlen((const char *)file[k].bytes);
    }
    return tandem_wordnet_from_files(data, length, file, "glosses", error);
}

static void each_gloss_has_its_class(void **state)
{
    enum { N_CHARACTER = 20 }; /* so that the test part does not begin at a tenth of the text */
    tandem_data data = {0};
    tandem_error error = {0};
    uint64_t seen = 0;
    (void)state;
    require_ok(open_glosses(&data, N_CHARACTER, -1, NULL, &error), &error);
    assert_int_equal(data.n_train, 10);
    assert_int_equal(data.n_test, 1);
    assert_int_equal(data.n_class, 45);
    for (int i = 0; i < 11; i++) {
        int32_t token[N_CHARACTER], label = -1;
        char text[N_CHARACTER + 1] = "";
        tandem_data_read_text_class(&data, i == 10, i % 10, token, &label);
        for (int k = 0; k < N_CHARACTER; k++)
            for (int byte = 0; byte < 256; byte++)
                if (byte < 128 && data.symbol[byte] == token[k] && (token[k] || byte == '\n'))
                    text[k] = (char)byte;
        char expected[N_CHARACTER + 1];
        (void)snprintf(expected, sizeof expected, "gloss %02d%s", label,
                       label == 17 ? "; \"longer\"\n\n" : "\n\n\n\n\n\n\n\n\n\n\n\n");
        assert_string_equal(text, expected);
        seen |= UINT64_C(1) << label;
    }
    assert_int_equal(__builtin_popcountll(seen), 11);
    tandem_data_close(&data);
}

static void damaged_glosses_are_refused(void **state)
{
    static const char *const damaged[] = {"00000001 45 n 01 a 0 000 | more than 44\n",
                                          "00000001 x3 n 01 a 0 000 | no number\n",
                                          "00000001 03 n 01 a 0 000 no gloss\n", "00000001\n", "0"};
    tandem_data data = {.n_text = 4711};
    tandem_error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        assert_int_equal(open_glosses(&data, 12, 2, damaged[i], &error), TANDEM_MALFORMED);
        assert_non_null(strstr(error.text, "lexicographer"));
    }
    assert_int_equal(open_glosses(&data, 0, -1, NULL, &error), TANDEM_USAGE);
    assert_int_equal(open_glosses(&data, 12, 0, " nothing\n", &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "8 glosses"));
    assert_int_equal(data.n_text, 4711);
}

/* --- Lack of memory ------------------------------------------------------------------------------------- */

static void each_allocation_may_fail(void **state)
{
    uint8_t *const text = make_text(2 * WINDOW + N_LAST, 60, 3), *const file = malloc(FILE_BYTES),
                   *out = NULL;
    tandem_data data = {0};
    tandem_error error = {0};
    size_t n_out = 0;
    (void)state;
    assert_non_null(file);
    const size_t n = make_bible(file, text);
    for (int is_bible = 0; is_bible < 2; is_bible++) {
        tandem_status status = TANDEM_NO_MEMORY;
        long n_try = 0;
        for (; status != TANDEM_OK; n_try++) {
            const long alive = tandem_allocations_alive();
            tandem_fail_allocation_after(n_try);
            status = is_bible ? tandem_bible_unpack(&out, &n_out, file, n, "it", &error)
                              : open_glosses(&data, 12, -1, NULL, &error);
            const int failed = tandem_allocation_failed();
            tandem_fail_allocation_after(-1);
            assert_int_equal(status, failed ? TANDEM_NO_MEMORY : TANDEM_OK);
            if (failed) assert_int_equal(tandem_allocations_alive(), alive);
        }
        assert_in_range(n_try, 5, 7); /* the text and three windows' codes; glosses and four arrays */
    }
    tandem_data_close(&data);
    free(out);
    free(file);
    free(text);
}

/* --- The real ones -------------------------------------------------------------------------------------- */

static int open_real(tandem_data *data, const char *name, int length)
{
    tandem_error error = {0};
    const tandem_status status = tandem_data_open(data, name, length, &error);
    if (status == TANDEM_MISSING) {
        printf("SKIP: %s\n", error.text);
        skip();
    }
    require_ok(status, &error);
    return 1;
}

static void the_king_james_text_is_what_it_is(void **state)
{
    static const char begin[] = "Holy Bible, Authorized (King James) Version.", end[] = "you all. Amen.\n";
    tandem_data data = {0};
    (void)state;
    (void)open_real(&data, "bible-kjv-text", 64);
    assert_int_equal(data.n_text, 67 * 65536 + 13563);
    for (size_t i = 0; begin[i]; i++) assert_int_equal(data.text[i], data.symbol[(uint8_t)begin[i]]);
    for (size_t i = 0; end[i]; i++)
        assert_int_equal(data.text[(size_t)data.n_text - strlen(end) + i], data.symbol[(uint8_t)end[i]]);
    tandem_data_close(&data);
}

static void wordnet_is_what_it_is(void **state)
{
    tandem_data data = {0};
    int64_t count[45] = {0};
    (void)state;
    (void)open_real(&data, "wordnet-base", 64);
    assert_int_equal(data.n_train + data.n_test, 117659); /* wnstats(7WN): synsets */
    for (int64_t i = 0; i < data.n_train; i++) count[data.labels_train[i]]++;
    for (int64_t i = 0; i < data.n_test; i++) count[data.labels_test[i]]++;
    assert_int_equal(count[2], 3621);                         /* adverbs, all in one file */
    assert_int_equal(count[0] + count[1] + count[44], 18156); /* adjectives */
    for (int c = 0; c < 45; c++) assert_true(count[c] > 0);
    tandem_data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_unpacked_as_they_were),
        cmocka_unit_test(codes_that_nothing_explains_are_refused),
        cmocka_unit_test(packed_windows_are_one_text),
        cmocka_unit_test(damaged_bibles_are_refused),
        cmocka_unit_test(each_gloss_has_its_class),
        cmocka_unit_test(damaged_glosses_are_refused),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(the_king_james_text_is_what_it_is),
        cmocka_unit_test(wordnet_is_what_it_is),
    };
    return cmocka_run_group_tests_name("text_sets", tests, NULL, NULL);
}
