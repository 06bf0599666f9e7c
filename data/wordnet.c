/* wordnet.c: reads synsets, one a line: "00001740 03 n …words and pointers… | gloss". */
#include "data/wordnet.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_file.h"
#include "data/text.h"

enum { N_LEXICOGRAPHER_FILE = 45, TEST_EVERY = 10, MAX_LENGTH = 1 << 16, AT_NUMBER = 9 };
static const char *const part[TANDEM_WORDNET_FILES] = {"data.noun", "data.verb", "data.adj", "data.adv"};

typedef struct wordnet_gloss {
    const uint8_t *text;
    int n, label;
} wordnet_gloss;

typedef struct wordnet_glosses {
    wordnet_gloss *gloss; /* [n], in the files' order */
    int64_t n, room;
} wordnet_glosses;

static tandem_status add_gloss(wordnet_glosses *w, wordnet_gloss gloss, tandem_error *error)
{
    if (w->n == w->room) {
        const int64_t room = w->room ? 2 * w->room : 1 << 10;
        wordnet_gloss *const more = realloc(w->gloss, (size_t)room * sizeof *more);
        if (!more) return tandem_no_memory(error, "for %lld glosses", (long long)room);
        w->gloss = more;
        w->room = room;
    }
    w->gloss[w->n++] = gloss;
    return TANDEM_OK;
}

static int digit_of(uint8_t c) { return c >= '0' && c <= '9' ? c - '0' : -1; }

/* The lines of the licence begin with a space. */
static tandem_status read_synset(wordnet_glosses *w, const uint8_t *line, size_t n, const char *path,
                                 tandem_error *error)
{
    if (n == 0 || line[0] == ' ') return TANDEM_OK;
    const int tens = n > AT_NUMBER + 1 ? digit_of(line[AT_NUMBER]) : -1,
              ones = n > AT_NUMBER + 1 ? digit_of(line[AT_NUMBER + 1]) : -1;
    const int label = 10 * tens + ones;
    const uint8_t *const bar = memchr(line, '|', n);
    if (tens < 0 || ones < 0 || label >= N_LEXICOGRAPHER_FILE || !bar)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s has a line without a lexicographer file of 00 to 44 or without a gloss: "
                                "%.*s",
                                path, n < 60 ? (int)n : 60, (const char *)line);
    const uint8_t *text = bar + 1, *end = line + n;
    while (text < end && *text == ' ') text++;
    while (end > text && end[-1] == ' ') end--;
    return add_gloss(w, (wordnet_gloss){text, (int)(end - text), label}, error);
}

static tandem_status read_synsets(wordnet_glosses *w, const tandem_data_file *file, const char *path,
                                  tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (size_t at = 0; status == TANDEM_OK && at < file->n;) {
        const uint8_t *const line = file->bytes + at, *const end = memchr(line, '\n', file->n - at);
        const size_t n = end ? (size_t)(end - line) : file->n - at;
        status = read_synset(w, line, n, path, error);
        at += n + 1;
    }
    return status;
}

/* Training samples, then those of the test, in one order for all runs: the files sort them by class. A byte
 * follows the last one. */
static tandem_status fill_samples(tandem_data *data, const wordnet_glosses *w, int length, const char *path,
                                  tandem_error *error)
{
    tandem_data made = {.kind = TANDEM_DATA_TEXT, .n_class = N_LEXICOGRAPHER_FILE, .length = length};
    made.n_test = w->n / TEST_EVERY;
    made.n_train = w->n - made.n_test;
    made.n_text = w->n * length + 1;
    if (made.n_test < 1)
        return tandem_error_set(error, TANDEM_MALFORMED, "%s has %lld glosses, fewer than %d", path,
                                (long long)w->n, TEST_EVERY);
    int64_t *const order = malloc((size_t)w->n * sizeof *order);
    made.text = malloc((size_t)made.n_text);
    made.labels_train = malloc((size_t)made.n_train);
    made.labels_test = malloc((size_t)made.n_test);
    if (!order || !made.text || !made.labels_train || !made.labels_test) {
        free(order);
        free(made.text);
        free(made.labels_train);
        free(made.labels_test);
        return tandem_no_memory(error, "for %lld samples of %d characters", (long long)w->n, length);
    }
    memset(made.text, '\n', (size_t)made.n_text);
    tandem_data_order(order, w->n, 0, 0);
    for (int64_t i = 0; i < w->n; i++) {
        const wordnet_gloss *const gloss = &w->gloss[order[i]];
        uint8_t *const label = i < made.n_train ? &made.labels_train[i] : &made.labels_test[i - made.n_train];
        memcpy(made.text + i * length, gloss->text, (size_t)(gloss->n < length ? gloss->n : length));
        *label = (uint8_t)gloss->label;
    }
    free(order);
    made.n_symbol = tandem_text_number_symbols(made.symbol, made.text, made.n_text);
    *data = made;
    return TANDEM_OK;
}

tandem_status tandem_wordnet_from_files(tandem_data *data, int length,
                                        const tandem_data_file file[TANDEM_WORDNET_FILES], const char *path,
                                        tandem_error *error)
{
    wordnet_glosses glosses = {.n = 0};
    if (length < 1 || length > MAX_LENGTH)
        return tandem_error_set(error, TANDEM_USAGE, "A sample of %s cannot have %d characters: 1 to %d.",
                                path, length, MAX_LENGTH);
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < TANDEM_WORDNET_FILES && status == TANDEM_OK; k++)
        status = read_synsets(&glosses, &file[k], path, error);
    if (status == TANDEM_OK) status = fill_samples(data, &glosses, length, path, error);
    free(glosses.gloss);
    return status;
}

tandem_status tandem_wordnet_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_data_file file[TANDEM_WORDNET_FILES] = {{0}};
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < TANDEM_WORDNET_FILES && status == TANDEM_OK; k++) {
        char at[PATH_MAX];
        const int n = snprintf(at, sizeof at, "%s/%s", path, part[k]);
        status =
            n > 0 && (size_t)n < sizeof at
                ? tandem_data_file_read(&file[k], at, TANDEM_DATA_FILE_LIMIT / TANDEM_WORDNET_FILES, error)
                : tandem_error_set(error, TANDEM_USAGE, "the path of %s is too long", part[k]);
    }
    if (status == TANDEM_OK) status = tandem_wordnet_from_files(data, length, file, path, error);
    for (int k = 0; k < TANDEM_WORDNET_FILES; k++) free(file[k].bytes);
    return status;
}
