/* folder: data */
/* Files of token ids: what nanoGPT and llm.c write, and what must be refused. */
#include <fcntl.h>
#include <unistd.h>

#include "data/tokens.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

enum { N_TOKEN = 44, LENGTH = 3, MAX_BYTES = TANDEM_TOKENS_HEADER + 4 * N_TOKEN + 8 };

typedef struct token_file {
    uint8_t bytes[MAX_BYTES];
    size_t n;
} token_file;

static void put_le(uint8_t *to, uint32_t value, int width)
{
    for (int k = 0; k < width; k++) to[k] = (uint8_t)(value >> (8 * k));
}

/* The largest one is not the last. */
static uint32_t id_of_token(int i) { return 7 * ((uint32_t)i ^ 1) + 2; }

/* magic 0: no header. */
static token_file tokens_of(uint32_t magic, uint32_t version, int width)
{
    token_file f = {.n = 0};
    if (magic) {
        put_le(f.bytes, magic, 4);
        put_le(f.bytes + 4, version, 4);
        put_le(f.bytes + 8, N_TOKEN, 4);
        f.n = TANDEM_TOKENS_HEADER;
    }
    for (int i = 0; i < N_TOKEN; i++, f.n += (size_t)width) put_le(f.bytes + f.n, id_of_token(i), width);
    return f;
}

static const char *write_tokens(const test_folder *folder, const token_file *f)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/tokens.bin", folder->folder);
    write_test_file(path, f->bytes, f->n);
    return path;
}

static void ids_are_read_in_windows(void **state)
{
    const struct {
        uint32_t magic, version;
        int width;
    } cases[] = {{0, 0, 2}, {20240520, 1, 2}, {20240801, 7, 4}};
    for (size_t k = 0; k < 3; k++) {
        const token_file f = tokens_of(cases[k].magic, cases[k].version, cases[k].width);
        tandem_data data = {0};
        tandem_error error = {0};
        require_ok(tandem_data_open(&data, write_tokens(*state, &f), LENGTH, &error), &error);
        assert_int_equal(data.kind, TANDEM_DATA_TEXT);
        assert_int_equal(data.n_text, N_TOKEN);
        assert_int_equal(data.n_train, 13); /* of 40 tokens, each with a next one */
        assert_int_equal(data.n_test, 1);   /* of 4 */
        assert_int_equal(data.n_symbol, 7 * 43 + 3);
        assert_int_equal(data.n_class, data.n_symbol);
        for (int sample = 0; sample <= data.n_train; sample++) {
            const int test = sample == data.n_train, from = test ? 40 : LENGTH * sample;
            int32_t token[LENGTH], next[LENGTH], class;
            tandem_data_read_text(&data, test, test ? 0 : sample, token, next);
            for (int i = 0; i < LENGTH; i++) {
                assert_int_equal(token[i], (int)id_of_token(from + i));
                assert_int_equal(next[i], (int)id_of_token(from + i + 1));
            }
            tandem_data_read_text_class(&data, test, test ? 0 : sample, token, &class);
            assert_int_equal(class, (int)id_of_token(from + LENGTH));
        }
        tandem_data_close(&data);
        assert_null(data.mapped);
    }
}

static uint64_t hash_of_tokens(const test_folder *folder, const token_file *f, int length)
{
    tandem_data data = {0};
    tandem_error error = {0};
    require_ok(tandem_data_open(&data, write_tokens(folder, f), length, &error), &error);
    const uint64_t hash = tandem_data_hash(&data);
    tandem_data_close(&data);
    return hash;
}

static void a_hash_is_of_the_ids(void **state)
{
    token_file bare = tokens_of(0, 0, 2), with_header = tokens_of(20240520, 1, 2);
    const uint64_t hash = hash_of_tokens(*state, &bare, LENGTH);
    assert_true(hash == hash_of_tokens(*state, &with_header, LENGTH));
    assert_true(hash != hash_of_tokens(*state, &bare, LENGTH - 1));
    bare.bytes[2 * N_TOKEN - 2] ^= 1; /* of the last one */
    assert_true(hash != hash_of_tokens(*state, &bare, LENGTH));
}

static void refused_tokens(const test_folder *folder, const token_file *f, int length, tandem_status expected,
                           const char *has)
{
    tandem_data data = {.n_text = 4711};
    tandem_error error = {0};
    const tandem_status status = tandem_data_open(&data, write_tokens(folder, f), length, &error);
    if (status != expected || !strstr(error.text, has))
        fail_msg("got %s (%s), expected %s with \"%s\"", tandem_status_name(status), error.text,
                 tandem_status_name(expected), has);
    assert_int_equal(data.n_text, 4711);
}

static void wrong_headers_are_refused(void **state)
{
    const struct {
        uint32_t magic, version, n;
        const char *has;
    } cases[] = {
        {20240521, 1, N_TOKEN, "a header of magic 20240521, allowed are llm.c's 20240520"},
        {20240522, 1, N_TOKEN, "a header of magic 20240522"}, /* llm.c's questions with answers */
        {20250211, 1, N_TOKEN, "a header of magic 20250211"}, /* the rest of the header is 0 */
        {0x88d83401, 1, N_TOKEN, "which is big-endian"},
        {20240520, 2, N_TOKEN, "magic 20240520 and version 2, allowed is version 1"},
        {20240801, 1, N_TOKEN, "magic 20240801 and version 1, allowed is version 7"},
        {20240520, 1, N_TOKEN + 1, "is cut short: got 1112 bytes, expected 1114"},
        {20240520, 1, N_TOKEN - 1, "is too long: got 1112 bytes, expected 1110"},
        {20240520, 1, 0xffffffff, "is cut short: got 1112 bytes, expected 8589935614"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        token_file f = tokens_of(cases[k].magic, cases[k].version, 2);
        put_le(f.bytes + 8, cases[k].n, 4);
        f.bytes[1000] = cases[k].magic != 20250211;
        refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, cases[k].has);
    }
    for (size_t n = 4; n < TANDEM_TOKENS_HEADER; n += 60) {
        token_file f = tokens_of(20240520, 1, 2);
        f.n = n;
        refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "expected a header of 1024");
    }
}

static void ids_that_cannot_be_are_refused(void **state)
{
    token_file f = tokens_of(0, 0, 2);
    f.n--;
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "has 87 bytes");
    f = tokens_of(0, 0, 4);
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "as where ids are uint32");
    put_le(f.bytes, 128255, 4); /* Llama 3 */
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "as where ids are uint32");
    f = tokens_of(20240801, 7, 4);
    put_le(f.bytes + TANDEM_TOKENS_HEADER + 4 * 5, 1 << 20, 4);
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "token 5 is 1048576, allowed are 0 to 1048575");
    f = (token_file){.bytes = {0x1f, 0x8b, 8, 0}, .n = 100};
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "is gzipped");
}

static void files_without_a_sample_are_refused(void **state)
{
    token_file f = tokens_of(0, 0, 2);
    refused_tokens(*state, &f, 0, TANDEM_USAGE, "it needs 1 or more");
    refused_tokens(*state, &f, 4, TANDEM_MALFORMED, "has 44 tokens; samples of 4 need 50");
    f.n = 0;
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "has 0 tokens");
    f = tokens_of(20240520, 1, 2);
    f.n = TANDEM_TOKENS_HEADER;
    put_le(f.bytes + 8, 0, 4);
    refused_tokens(*state, &f, LENGTH, TANDEM_MALFORMED, "has 0 tokens");
}

static void what_was_never_written_is_no_token(void **state)
{
    const test_folder *const folder = *state;
    const token_file f = tokens_of(0, 0, 2);
    tandem_data data = {0};
    tandem_error error = {0};
    const char *const path = write_tokens(folder, &f);
    assert_int_equal(truncate(path, INT64_C(2) << 30), 0);
    assert_int_equal(tandem_data_open(&data, path, LENGTH, &error), TANDEM_MALFORMED);
    assert_non_null(strstr(error.text, "were never written"));
}

int main(void)
{
#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_open, test_folder_close)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(ids_are_read_in_windows),
        WITH_FOLDER(a_hash_is_of_the_ids),
        WITH_FOLDER(wrong_headers_are_refused),
        WITH_FOLDER(ids_that_cannot_be_are_refused),
        WITH_FOLDER(files_without_a_sample_are_refused),
        WITH_FOLDER(what_was_never_written_is_no_token),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
