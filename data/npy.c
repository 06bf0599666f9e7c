/* npy.c: reads arrays of NumPy: samples and their labels. */
#include "data/npy.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_file.h"
#include "data/images.h"
#include "data/little_endian.h"

/* --- The header's dictionary ---------------------------------------------------------------------------- */

enum { MAX_TYPE_TEXT = 24, ALL_KEYS = 7 };

typedef struct npy_header {
    const char *at, *end; /* what is still to be read */
    char type[MAX_TYPE_TEXT];
    int is_fortran, n_dim; /* n_dim counts those beyond TANDEM_NPY_DIMENSIONS, too */
    int64_t dim[TANDEM_NPY_DIMENSIONS];
    int keys; /* a bit for each key that was there */
} npy_header;

static int next_npy_char(npy_header *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
    return h->at < h->end ? (unsigned char)*h->at : -1;
}

static int take_npy_char(npy_header *h, char c)
{
    if (next_npy_char(h) != c) return 0;
    h->at++;
    return 1;
}

static int take_npy_word(npy_header *h, const char *word)
{
    const size_t n = strlen(word);
    (void)next_npy_char(h);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n) != 0) return 0;
    h->at += n;
    return 1;
}

/* A string in single or double quotes, without escapes, cut to fit. */
static int take_npy_string(npy_header *h, char *text, size_t size)
{
    const int quote = next_npy_char(h);
    if (quote != '\'' && quote != '"') return 0;
    const char *const from = h->at + 1, *const to = memchr(from, quote, (size_t)(h->end - from));
    if (!to) return 0;
    const size_t n = (size_t)(to - from) < size - 1 ? (size_t)(to - from) : size - 1;
    memcpy(text, from, n);
    text[n] = '\0';
    h->at = to + 1;
    return 1;
}

/* A type is a string, or a list of fields, which no array of numbers has. */
static int take_npy_type(npy_header *h)
{
    if (next_npy_char(h) != '[') return take_npy_string(h, h->type, sizeof h->type);
    int depth = 0;
    for (; h->at < h->end; h->at++) {
        depth += (*h->at == '[') - (*h->at == ']');
        if (depth == 0) break;
    }
    (void)snprintf(h->type, sizeof h->type, "fields");
    return take_npy_char(h, ']');
}

static int take_npy_number(npy_header *h, int64_t *number)
{
    int c = next_npy_char(h);
    if (c < '0' || c > '9') return 0;
    *number = 0;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, *h->at - '0', number))
            return 0;
    (void)take_npy_char(h, 'L'); /* Python 2 */
    return 1;
}

static int take_npy_shape(npy_header *h)
{
    if (!take_npy_char(h, '(')) return 0;
    for (h->n_dim = 0; !take_npy_char(h, ')'); h->n_dim++) {
        int64_t n = 0;
        if (!take_npy_number(h, &n) || (!take_npy_char(h, ',') && next_npy_char(h) != ')')) return 0;
        if (h->n_dim < TANDEM_NPY_DIMENSIONS) h->dim[h->n_dim] = n;
    }
    return 1;
}

static int take_npy_bool(npy_header *h, int *value)
{
    *value = take_npy_word(h, "True");
    return *value || take_npy_word(h, "False");
}

static int take_npy_entry(npy_header *h)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[MAX_TYPE_TEXT];
    int k = 0, is_read = 0;
    if (!take_npy_string(h, key, sizeof key) || !take_npy_char(h, ':')) return 0;
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 0) is_read = take_npy_type(h);
    if (k == 1) is_read = take_npy_bool(h, &h->is_fortran);
    if (k == 2) is_read = take_npy_shape(h);
    h->keys |= 1 << k;
    return is_read;
}

static int take_npy_dictionary(npy_header *h)
{
    if (!take_npy_char(h, '{')) return 0;
    while (!take_npy_char(h, '}'))
        if (!take_npy_entry(h) || (!take_npy_char(h, ',') && next_npy_char(h) != '}')) return 0;
    return h->keys == ALL_KEYS && next_npy_char(h) == -1;
}

/* Bytes before the values; 0: it is no such file. */
static size_t find_npy_values(size_t *header, const uint8_t *bytes, size_t n, const char *path,
                              tandem_error *error)
{
    enum { BEFORE_LENGTH = 8 };
    static const char magic[] = "\x93NUMPY";
    if (n < BEFORE_LENGTH + 4 || memcmp(bytes, magic, sizeof magic - 1) != 0) {
        (void)tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is no array of NumPy: it begins otherwise than np.save writes, or ends at once. "
            "Write it with np.save.",
            path);
        return 0;
    }
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        (void)tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has format version %d.%d, allowed are 1.0, 2.0 and 3.0. Write it with np.save.", path,
            bytes[6], bytes[7]);
        return 0;
    }
    *header = BEFORE_LENGTH + (bytes[6] == 1 ? 2 : 4);
    const size_t length =
        bytes[6] == 1 ? tandem_le16(bytes + BEFORE_LENGTH) : tandem_le32(bytes + BEFORE_LENGTH);
    if (length <= n - *header) return *header + length;
    (void)tandem_error_set(error, TANDEM_MALFORMED,
                           "%s is cut short: got %zu bytes, expected a header of %zu. Write it again.", path,
                           n, length);
    return 0;
}

/* --- Types and sizes ------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    tandem_npy_type type;
    int bytes, is_sample, is_label;
} types[] = {{"<f4", TANDEM_NPY_F32, 4, 1, 0},
             {"|u1", TANDEM_NPY_U8, 1, 1, 1},
             {"<i4", TANDEM_NPY_S32, 4, 0, 1},
             {"<i8", TANDEM_NPY_S64, 8, 0, 1}};
enum { N_TYPE = sizeof types / sizeof types[0] };

/* The kinds of numpy.dtype.kind. Those with a number of bits have it after their name. */
static void print_npy_type(char *text, size_t size, const char *type)
{
    static const struct {
        const char *name;
        char kind, has_bits;
    } kinds[] = {{"float", 'f', 1}, {"int", 'i', 1},      {"uint", 'u', 1},     {"complex", 'c', 1},
                 {"bool", 'b', 0},  {"object", 'O', 0},   {"str", 'U', 0},      {"bytes", 'S', 0},
                 {"void", 'V', 0},  {"datetime", 'M', 0}, {"timedelta", 'm', 0}};
    const char *const order = type[0] == '>' ? "big-endian " : "";
    (void)snprintf(text, size, "unknown");
    for (size_t k = 0; type[0] && k < sizeof kinds / sizeof *kinds; k++)
        if (type[1] == kinds[k].kind) {
            const int bits = 8 * (int)strtol(type + 2, NULL, 10);
            if (kinds[k].has_bits && bits > 0)
                (void)snprintf(text, size, "%s%s%d", order, kinds[k].name, bits);
            else
                (void)snprintf(text, size, "%s%s", order, kinds[k].name);
        }
}

/* The row of `types`; −1 where it is no type of such an array. */
static int find_npy_type(const char *text, int is_label, const char *path, tandem_error *error)
{
    for (int k = 0; k < N_TYPE; k++)
        if (strcmp(text, types[k].text) == 0 && (is_label ? types[k].is_label : types[k].is_sample)) return k;
    char name[64];
    print_npy_type(name, sizeof name, text);
    (void)tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s holds %s of dtype '%s' (%s), allowed are %s, little-endian. Convert it with astype.", path,
        is_label ? "labels" : "samples", text, name,
        is_label ? "int64, int32 and uint8" : "float32 and uint8");
    return -1;
}

static tandem_status read_npy_size(tandem_npy *npy, const npy_header *h, int bytes, size_t n,
                                   const char *path, tandem_error *error)
{
    int64_t n_value = 1, n_byte = 0;
    if (h->is_fortran)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is in Fortran order, allowed is C order. Save np.ascontiguousarray of it.", path);
    if (h->n_dim > TANDEM_NPY_DIMENSIONS)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s has %d dimensions, allowed are at most %d. Save it in another shape.",
                                path, h->n_dim, TANDEM_NPY_DIMENSIONS);
    npy->n_dim = h->n_dim;
    for (int d = 0; d < TANDEM_NPY_DIMENSIONS; d++) {
        npy->dim[d] = d < h->n_dim ? h->dim[d] : 1;
        if (npy->dim[d] > INT_MAX || __builtin_mul_overflow(n_value, npy->dim[d], &n_value))
            n_value = INT64_MAX;
    }
    if (__builtin_mul_overflow(n_value, (int64_t)bytes, &n_byte)) n_byte = INT64_MAX;
    if ((uint64_t)n_byte != n)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s %s: got %zu bytes of values, expected %lld by its shape. Write it again.",
                                path, n < (uint64_t)n_byte ? "is cut short" : "is too long", n,
                                (long long)n_byte);
    npy->n_value = n_value;
    return TANDEM_OK;
}

tandem_status tandem_npy_parse(tandem_npy *npy, const uint8_t *bytes, size_t n, int is_label,
                               const char *path, tandem_error *error)
{
    size_t header = 0;
    const size_t at = find_npy_values(&header, bytes, n, path, error);
    if (at == 0) return TANDEM_MALFORMED;
    npy_header h = {.at = (const char *)bytes + header, .end = (const char *)bytes + at};
    if (!take_npy_dictionary(&h))
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has a header that is no dictionary of descr, fortran_order and shape alone. Write "
            "it with np.save.",
            path);
    const int type = find_npy_type(h.type, is_label, path, error);
    if (type < 0) return TANDEM_MALFORMED;
    tandem_npy result = {.type = types[type].type, .values = bytes + at};
    const tandem_status status = read_npy_size(&result, &h, types[type].bytes, n - at, path, error);
    if (status == TANDEM_OK) *npy = result;
    return status;
}

/* --- A data set ----------------------------------------------------------------------------------------- */

typedef struct npy_file {
    const char *path;
    tandem_mapped_file file;
    tandem_npy npy;
} npy_file;

static tandem_status open_npy_file(npy_file *f, int is_label, tandem_error *error)
{
    const tandem_status status = tandem_mapped_file_open(&f->file, f->path, error);
    return status == TANDEM_OK ? tandem_npy_parse(&f->npy, f->file.bytes, f->file.n, is_label, f->path, error)
                               : status;
}

static tandem_status check_npy_shapes(const npy_file *x, const npy_file *y, tandem_error *error)
{
    enum { MIN_SAMPLES = 10 };
    if (x->npy.n_dim < 2 || x->npy.n_value == 0)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %d dimensions and %lld values, expected samples as (N, height, width, "
            "channels), (N, height, width) or (N, features). Name it before the labels.",
            x->path, x->npy.n_dim, (long long)x->npy.n_value);
    if (y->npy.n_dim != 1)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %d dimensions, expected 1, the labels. Save one label for each sample.", y->path,
            y->npy.n_dim);
    if (x->npy.dim[0] != y->npy.dim[0] || x->npy.dim[0] < MIN_SAMPLES)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %lld samples and %s %lld labels, expected as many, and at least %d. Save "
            "both together.",
            x->path, (long long)x->npy.dim[0], y->path, (long long)y->npy.dim[0], MIN_SAMPLES);
    return TANDEM_OK;
}

static int64_t npy_label_at(const tandem_npy *y, int64_t i)
{
    switch (y->type) {
    case TANDEM_NPY_S64: return (int64_t)tandem_le64(y->values + 8 * i);
    case TANDEM_NPY_S32: return (int32_t)tandem_le32(y->values + 4 * i);
    default: return y->values[i];
    }
}

/* Labels in two bytes each, which *labels owns. */
static tandem_status read_npy_labels(uint8_t **labels, int *n_class, const npy_file *y, tandem_error *error)
{
    uint8_t *const read = malloc(2 * (size_t)y->npy.n_value);
    if (!read) return tandem_no_memory(error, "for the labels of %s", y->path);
    *n_class = 0;
    for (int64_t i = 0; i < y->npy.n_value; i++) {
        const int64_t label = npy_label_at(&y->npy, i);
        if (label < 0 || label > UINT16_MAX) {
            free(read);
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "%s: label %lld is %lld, allowed are 0 to %d. Number the classes from 0.",
                                    y->path, (long long)i, (long long)label, UINT16_MAX);
        }
        tandem_put_le16(read + 2 * i, (uint32_t)label);
        *n_class = label >= *n_class ? (int)label + 1 : *n_class;
    }
    *labels = read;
    return TANDEM_OK;
}

static tandem_status fill_npy_data(tandem_data *data, const npy_file *x, const npy_file *y,
                                   tandem_error *error)
{
    const tandem_npy *const npy = &x->npy;
    tandem_data made = {.kind = TANDEM_DATA_IMAGES, .is_interleaved = 1, .label_bytes = 2};
    made.n_test = npy->dim[0] / TANDEM_IMAGES_TEST_EVERY;
    made.n_train = npy->dim[0] - made.n_test;
    made.is_flat = npy->n_dim == 2;
    made.height = made.is_flat ? 1 : (int)npy->dim[1];
    made.width = made.is_flat ? (int)npy->dim[1] : (int)npy->dim[2];
    made.channels = (int)npy->dim[3];
    made.is_f32 = npy->type == TANDEM_NPY_F32;
    made.pixels_train = (uint8_t *)(uintptr_t)npy->values;
    made.mapped = x->file.bytes;
    made.n_mapped = x->file.n;
    tandem_status status = tandem_images_measure(&made, x->path, error);
    if (status == TANDEM_OK) status = read_npy_labels(&made.labels_train, &made.n_class, y, error);
    if (status == TANDEM_OK) *data = made;
    return status;
}

int tandem_npy_takes(const tandem_data_paths *paths)
{
    for (int i = 0; i < paths->n; i++)
        if (tandem_data_path_ends(&paths->at[i], ".npy")) return 1;
    return 0;
}

tandem_status tandem_npy_open(tandem_data *data, const tandem_data_paths *paths, tandem_error *error)
{
    npy_file x = {.path = paths->at[0].path}, y = {.path = paths->at[1].path};
    if (paths->n != 2)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "--data names %d files of NumPy, expected two. Give the samples and their labels: "
            "--data x.npy,y.npy.",
            paths->n);
    tandem_status status = open_npy_file(&x, 0, error);
    if (status == TANDEM_OK) status = open_npy_file(&y, 1, error);
    if (status == TANDEM_OK) status = check_npy_shapes(&x, &y, error);
    if (status == TANDEM_OK) status = fill_npy_data(data, &x, &y, error);
    tandem_mapped_file_close(&y.file);
    if (status != TANDEM_OK) tandem_mapped_file_close(&x.file);
    return status;
}
