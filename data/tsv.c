/* tsv.c: reads tables of texts and labels. */
#include "data/tsv.h"

#include <stdlib.h>
#include <string.h>

#include "data/data_file.h"
#include "data/little_endian.h"
#include "data/text.h"

enum { MIN_SAMPLES = 10, TEST_EVERY = 10, MAX_CLASS = 1 << 16, SHOWN = 60 };

/* Part of the file; it has at most TANDEM_DATA_FILE_LIMIT bytes. */
typedef struct tsv_cell {
    uint32_t at, n;
} tsv_cell;

typedef struct tsv_row {
    tsv_cell text, label;
} tsv_row;

typedef struct tsv_table {
    const uint8_t *bytes;
    size_t n_byte;
    const char *path;
    int label_column; /* 0, 1 */
    tsv_row *row;
    int64_t n, room;
} tsv_table;

/* --- Lines ---------------------------------------------------------------------------------------------- */

/* Cuts a line at its tab. 0: it has none, or more. */
static int cut_tsv_line(tsv_cell cell[2], const tsv_table *t, size_t at, size_t end)
{
    const uint8_t *const line = t->bytes + at, *const tab = memchr(line, '\t', end - at);
    if (!tab) return 0;
    const size_t first = (size_t)(tab - line);
    cell[0] = (tsv_cell){(uint32_t)at, (uint32_t)first};
    cell[1] = (tsv_cell){(uint32_t)(at + first + 1), (uint32_t)(end - at - first - 1)};
    return !memchr(tab + 1, '\t', cell[1].n);
}

static int is_tsv_name(const tsv_table *t, tsv_cell cell, const char *name)
{
    return cell.n == strlen(name) && memcmp(t->bytes + cell.at, name, cell.n) == 0;
}

static int is_text_name(const tsv_table *t, tsv_cell cell)
{
    return is_tsv_name(t, cell, "text") || is_tsv_name(t, cell, "sentence");
}

static tandem_status read_tsv_header(tsv_table *t, size_t at, size_t end, tandem_error *error)
{
    tsv_cell cell[2];
    if (cut_tsv_line(cell, t, at, end))
        for (int k = 0; k < 2; k++)
            if (is_tsv_name(t, cell[k], "label") && is_text_name(t, cell[1 - k])) {
                t->label_column = k;
                return TANDEM_OK;
            }
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s begins with the line \"%.*s\", allowed are \"label\" and \"text\" in any order, with "
        "a tab between them. Add that line.",
        t->path, end - at < SHOWN ? (int)(end - at) : SHOWN, (const char *)t->bytes + at);
}

static tandem_status add_tsv_row(tsv_table *t, size_t at, size_t end, int64_t line, tandem_error *error)
{
    tsv_cell cell[2];
    if (!cut_tsv_line(cell, t, at, end) || cell[0].n == 0 || cell[1].n == 0)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s: line %lld is no label and text with one tab between them. Correct the line, or "
            "remove it.",
            t->path, (long long)line);
    if (t->n == t->room) {
        const int64_t room = t->room ? 2 * t->room : 64;
        tsv_row *const more = realloc(t->row, (size_t)room * sizeof *more);
        if (!more) return tandem_no_memory(error, "for %lld samples of %s", (long long)room, t->path);
        t->row = more;
        t->room = room;
    }
    t->row[t->n++] = (tsv_row){cell[1 - t->label_column], cell[t->label_column]};
    return TANDEM_OK;
}

/* Lines end with "\n" or "\r\n". */
static tandem_status read_tsv_lines(tsv_table *t, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    int64_t line = 1;
    for (size_t at = 0; status == TANDEM_OK && (at < t->n_byte || line == 1); line++) {
        const uint8_t *const found = at < t->n_byte ? memchr(t->bytes + at, '\n', t->n_byte - at) : NULL;
        const size_t next = found ? (size_t)(found - t->bytes) : t->n_byte;
        const size_t end = next > at && t->bytes[next - 1] == '\r' ? next - 1 : next;
        status = line == 1 ? read_tsv_header(t, at, end, error) : add_tsv_row(t, at, end, line, error);
        at = next + 1;
    }
    if (status == TANDEM_OK && t->n < MIN_SAMPLES)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s has %lld samples, allowed are at least %d. Give more.", t->path,
                                (long long)t->n, MIN_SAMPLES);
    return status;
}

/* --- Labels --------------------------------------------------------------------------------------------- */

static int is_integer(const uint8_t *text, size_t n)
{
    const size_t sign = n > 1 && (text[0] == '-' || text[0] == '+');
    for (size_t i = sign; i < n; i++)
        if (text[i] < '0' || text[i] > '9') return 0;
    return 1;
}

/* −1: not among 0 … MAX_CLASS−1. */
static int integer_class(const uint8_t *text, size_t n)
{
    int value = 0;
    for (size_t i = text[0] == '+'; i < n; i++) {
        value = text[0] == '-' ? -1 : 10 * value + text[i] - '0';
        if (value < 0 || value >= MAX_CLASS) return -1;
    }
    return value;
}

static tandem_status read_integer_labels(int *class, int *n_class, const tsv_table *t, tandem_error *error)
{
    *n_class = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const tsv_cell label = t->row[i].label;
        class[i] = integer_class(t->bytes + label.at, label.n);
        if (class[i] < 0)
            return tandem_error_set(
                error, TANDEM_MALFORMED,
                "%s: line %lld has the label %.*s, allowed are 0 to %d, or names. Number the "
                "classes from 0.",
                t->path, (long long)i + 2, label.n < SHOWN ? (int)label.n : SHOWN,
                (const char *)t->bytes + label.at, MAX_CLASS - 1);
        *n_class = class[i] >= *n_class ? class[i] + 1 : *n_class;
    }
    return TANDEM_OK;
}

typedef struct tsv_name {
    const uint8_t *text;
    uint32_t n;
    int64_t row;
} tsv_name;

static int compare_names(const void *left, const void *right)
{
    const tsv_name *const a = left, *const b = right;
    const int differ = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return differ ? differ : (a->n > b->n) - (a->n < b->n);
}

static tandem_status number_names(int *class, int *n_class, const tsv_table *t, tandem_error *error)
{
    tsv_name *const name = malloc((size_t)t->n * sizeof *name);
    if (!name) return tandem_no_memory(error, "for the labels of %s", t->path);
    for (int64_t i = 0; i < t->n; i++)
        name[i] = (tsv_name){t->bytes + t->row[i].label.at, t->row[i].label.n, i};
    qsort(name, (size_t)t->n, sizeof *name, compare_names);
    int n = 0;
    for (int64_t i = 0; i < t->n && n <= MAX_CLASS; i++) {
        n += i == 0 || compare_names(&name[i - 1], &name[i]) != 0;
        class[name[i].row] = n - 1;
    }
    free(name);
    if (n > MAX_CLASS)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has more than %d names of labels, which is the limit. Check which column is the "
            "label.",
            t->path, MAX_CLASS);
    *n_class = n;
    return TANDEM_OK;
}

static tandem_status read_tsv_labels(int *class, int *n_class, const tsv_table *t, tandem_error *error)
{
    int are_integers = 1;
    for (int64_t i = 0; i < t->n && are_integers; i++)
        are_integers = is_integer(t->bytes + t->row[i].label.at, t->row[i].label.n);
    return are_integers ? read_integer_labels(class, n_class, t, error)
                        : number_names(class, n_class, t, error);
}

/* --- A data set ----------------------------------------------------------------------------------------- */

static uint32_t sample_bytes(const tsv_row *row, int length)
{
    return row->text.n < (uint32_t)length ? row->text.n : (uint32_t)length;
}

/* Texts and labels in the order of samples, and the line end that fills short ones. */
static void fill_tsv_samples(tandem_data *data, const tsv_table *t, const int64_t *order, const int *class)
{
    int64_t at = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const tsv_row *const row = &t->row[order[i]];
        const uint32_t n = sample_bytes(row, data->length);
        const int test = i >= data->n_train;
        data->start[i] = at;
        memcpy(data->text + at, t->bytes + row->text.at, n);
        at += n;
        tandem_put_le16((test ? data->labels_test : data->labels_train) + 2 * (test ? i - data->n_train : i),
                        (uint32_t) class[order[i]]);
    }
    data->start[t->n] = at;
    data->text[at] = '\n';
    data->n_symbol = tandem_text_number_symbols(data->symbol, data->text, data->n_text);
}

static tandem_status make_tsv_data(tandem_data *data, const tsv_table *t, int length, tandem_error *error)
{
    tandem_data made = {.kind = TANDEM_DATA_TEXT, .length = length, .label_bytes = 2, .n_text = 1};
    made.n_test = t->n / TEST_EVERY;
    made.n_train = t->n - made.n_test;
    for (int64_t i = 0; i < t->n; i++) made.n_text += sample_bytes(&t->row[i], length);
    int64_t *const order = malloc((size_t)t->n * sizeof *order);
    int *const class = malloc((size_t)t->n * sizeof *class);
    made.text = malloc((size_t)made.n_text);
    made.start = malloc(((size_t)t->n + 1) * sizeof *made.start);
    made.labels_train = malloc(2 * (size_t)made.n_train);
    made.labels_test = malloc(2 * (size_t)made.n_test);
    tandem_status status = order && class && made.text && made.start && made.labels_train && made.labels_test
                               ? read_tsv_labels(class, &made.n_class, t, error)
                               : tandem_no_memory(error, "for %lld samples of %s", (long long)t->n, t->path);
    if (status == TANDEM_OK) {
        tandem_data_order(order, t->n, 0, 0);
        fill_tsv_samples(&made, t, order, class);
        *data = made;
    } else {
        free(made.text);
        free(made.start);
        free(made.labels_train);
        free(made.labels_test);
    }
    free(order);
    free(class);
    return status;
}

tandem_status tandem_tsv_from_bytes(tandem_data *data, int length, const uint8_t *bytes, size_t n,
                                    const char *path, tandem_error *error)
{
    tsv_table table = {.bytes = bytes, .n_byte = n, .path = path};
    if (length < 1)
        return tandem_error_set(error, TANDEM_USAGE,
                                "A sample of %s cannot have %d characters: it needs 1 or more.", path,
                                length);
    tandem_status status = read_tsv_lines(&table, error);
    if (status == TANDEM_OK) status = make_tsv_data(data, &table, length, error);
    free(table.row);
    return status;
}

tandem_status tandem_tsv_open(tandem_data *data, const char *path, int length, tandem_error *error)
{
    tandem_data_file file = {0};
    tandem_status status = tandem_data_file_read_whole(&file, path, TANDEM_DATA_FILE_LIMIT, error);
    if (status == TANDEM_OK) status = tandem_tsv_from_bytes(data, length, file.bytes, file.n, path, error);
    free(file.bytes);
    return status;
}
