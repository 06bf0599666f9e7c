/* idx.c: reads images and labels of the MNIST family. */
#include "data/idx.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data_file.h"
#include "data/images.h"

enum { TYPE_UNSIGNED_BYTE = 8 };

/* The bytes that the header demands; 0 where the header is incomplete or no IDX header, UINT64_MAX where 64
 * bits cannot count them. */
static uint64_t expected_idx_bytes(const uint8_t *bytes, size_t n)
{
    if (n < 4 || bytes[0] != 0 || bytes[1] != 0 || bytes[3] < 1 || bytes[3] > TANDEM_IDX_DIMENSIONS) return 0;
    const size_t header = 4 + 4 * (size_t)bytes[3];
    if (n < header) return 0;
    uint64_t product = 1;
    for (size_t at = 4; at < header; at += 4) {
        const uint32_t size = (uint32_t)bytes[at] << 24 | (uint32_t)bytes[at + 1] << 16 |
                              (uint32_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (__builtin_mul_overflow(product, size, &product)) return UINT64_MAX;
    }
    return product > UINT64_MAX - header ? UINT64_MAX : product + header;
}

static tandem_status check_idx_magic(const uint8_t *bytes, size_t n, const char *path, tandem_error *error)
{
    if (n < 4)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s is cut short: got %zu bytes, expected an IDX header of at least 8.", path,
                                n);
    if (bytes[0] != 0 || bytes[1] != 0)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is no IDX file: its magic is 0x%02x%02x%02x%02x, expected two zero bytes, 0x08 and the "
            "number of dimensions.",
            path, bytes[0], bytes[1], bytes[2], bytes[3]);
    if (bytes[2] != TYPE_UNSIGNED_BYTE)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s holds values of IDX type 0x%02x, expected 0x08 (unsigned bytes).", path,
                                bytes[2]);
    if (bytes[3] < 1 || bytes[3] > TANDEM_IDX_DIMENSIONS)
        return tandem_error_set(error, TANDEM_MALFORMED, "%s has %d dimensions, expected 1 to %d.", path,
                                bytes[3], TANDEM_IDX_DIMENSIONS);
    return TANDEM_OK;
}

tandem_status tandem_idx_parse(tandem_idx *idx, const uint8_t *bytes, size_t n, const char *path,
                               tandem_error *error)
{
    const tandem_status status = check_idx_magic(bytes, n, path, error);
    if (status != TANDEM_OK) return status;
    const size_t header = 4 + 4 * (size_t)bytes[3];
    if (n < header)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s is cut short: got %zu bytes, expected a header of %zu for %d dimensions.",
                                path, n, header, bytes[3]);
    const uint64_t expected = expected_idx_bytes(bytes, n);
    if (n != expected)
        return tandem_error_set(error, TANDEM_MALFORMED, "%s %s: got %zu bytes, expected %llu by its header.",
                                path, n < expected ? "is cut short" : "is too long", n,
                                (unsigned long long)expected);
    tandem_idx result = {
        .n_dimension = bytes[3], .size = {1, 1, 1, 1}, .values = bytes + header, .n_value = n - header};
    for (int i = 0; i < result.n_dimension; i++) {
        const uint8_t *const at = bytes + 4 + 4 * i;
        result.size[i] = (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | at[3];
    }
    *idx = result;
    return TANDEM_OK;
}

/* One of the four files: its bytes, and the view of them. */
typedef struct idx_part {
    char path[PATH_MAX];
    tandem_data_file file;
    tandem_idx idx;
} idx_part;

static tandem_status find_idx_part(idx_part *p, const char *directory, const char *name, tandem_error *error)
{
    static const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        const int length = snprintf(p->path, sizeof p->path, "%s/%s%s", directory, name, ends[i]);
        if (length < 0 || (size_t)length >= sizeof p->path)
            return tandem_error_set(error, TANDEM_IO, "The path of %s is longer than %zu bytes.", name,
                                    sizeof p->path - 1);
        if (access(p->path, F_OK) == 0) return TANDEM_OK;
    }
    return tandem_error_set(
        error, TANDEM_MISSING,
        "%s has no file %s or %s.gz. A directory of images holds train-images-idx3-ubyte, "
        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, gzipped or not; or the "
        "binary files of CIFAR.",
        directory, name, name);
}

static tandem_status read_idx_part(idx_part *p, const char *directory, const char *name, tandem_error *error)
{
    tandem_status status = find_idx_part(p, directory, name, error);
    if (status != TANDEM_OK) return status;
    status = tandem_data_file_read(&p->file, p->path, TANDEM_DATA_FILE_LIMIT, error);
    if (status != TANDEM_OK) return status;
    if (p->file.cut_short) {
        const uint64_t expected = expected_idx_bytes(p->file.bytes, p->file.n);
        if (expected == 0)
            return tandem_error_set(
                error, TANDEM_MALFORMED,
                "%s is cut short: its gzip stream breaks off after %zu bytes, expected an IDX header and "
                "values.",
                p->path, p->file.n);
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s is cut short: its gzip stream breaks off after %zu bytes, expected %llu and their checksum.",
            p->path, p->file.n, (unsigned long long)expected);
    }
    return tandem_idx_parse(&p->idx, p->file.bytes, p->file.n, p->path, error);
}

static tandem_status check_images_and_labels(const idx_part *images, const idx_part *labels,
                                             tandem_error *error)
{
    if (images->idx.n_dimension < 3)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %d dimensions, expected 3 (images, rows, columns) or 4 (with channels).", images->path,
            images->idx.n_dimension);
    if (labels->idx.n_dimension != 1)
        return tandem_error_set(error, TANDEM_MALFORMED, "%s has %d dimensions, expected 1 (labels).",
                                labels->path, labels->idx.n_dimension);
    if (images->idx.size[0] != labels->idx.size[0])
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "%s has %lld images, but %s has %lld labels: there must be one for each.",
                                images->path, (long long)images->idx.size[0], labels->path,
                                (long long)labels->idx.size[0]);
    if (images->idx.n_value == 0)
        return tandem_error_set(error, TANDEM_MALFORMED, "%s is empty: %lld images of %lld × %lld × %lld.",
                                images->path, (long long)images->idx.size[0], (long long)images->idx.size[1],
                                (long long)images->idx.size[2], (long long)images->idx.size[3]);
    return TANDEM_OK;
}

static tandem_status check_same_image_shape(const idx_part *train, const idx_part *test, tandem_error *error)
{
    if (memcmp(train->idx.size + 1, test->idx.size + 1, 3 * sizeof train->idx.size[0]) == 0) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s has images of %lld × %lld × %lld, but %s of %lld × %lld × %lld: they must agree.", train->path,
        (long long)train->idx.size[1], (long long)train->idx.size[2], (long long)train->idx.size[3],
        test->path, (long long)test->idx.size[1], (long long)test->idx.size[2], (long long)test->idx.size[3]);
}

/* Labels give the classes. A test label that is larger than all training labels is an error from 10 on: no
 * output of the model learns what it means. */
static tandem_status count_label_classes(int *n_class, const idx_part *train, const idx_part *test,
                                         tandem_error *error)
{
    int n = 0;
    for (size_t i = 0; i < train->idx.n_value; i++)
        n = train->idx.values[i] >= n ? train->idx.values[i] + 1 : n;
    const int allowed = n > 10 ? n : 10;
    for (size_t i = 0; i < test->idx.n_value; i++) {
        if (test->idx.values[i] >= allowed)
            return tandem_error_set(error, TANDEM_MALFORMED,
                                    "%s: label %zu is %d, but the training labels end at %d.", test->path, i,
                                    test->idx.values[i], n - 1);
        n = test->idx.values[i] >= n ? test->idx.values[i] + 1 : n;
    }
    *n_class = n;
    return TANDEM_OK;
}

/* Passes the values, without their header, to the data set. */
static uint8_t *release_values(idx_part *p)
{
    uint8_t *const bytes = p->file.bytes;
    memmove(bytes, p->idx.values, p->idx.n_value);
    p->file.bytes = NULL;
    return bytes;
}

tandem_status tandem_idx_open(tandem_data *data, const char *directory, tandem_error *error)
{
    enum { TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS, N_PART };
    static const char *const names[N_PART] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                              "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    tandem_status status = TANDEM_OK;
    int n_class = 0;
    idx_part *const p = calloc(N_PART, sizeof *p);
    if (!p) return tandem_no_memory(error, "to read %s", directory);
    for (int i = 0; i < N_PART && status == TANDEM_OK; i++)
        status = read_idx_part(&p[i], directory, names[i], error);
    if (status == TANDEM_OK) status = check_images_and_labels(&p[TRAIN_IMAGES], &p[TRAIN_LABELS], error);
    if (status == TANDEM_OK) status = check_images_and_labels(&p[TEST_IMAGES], &p[TEST_LABELS], error);
    if (status == TANDEM_OK) status = check_same_image_shape(&p[TRAIN_IMAGES], &p[TEST_IMAGES], error);
    if (status == TANDEM_OK) status = count_label_classes(&n_class, &p[TRAIN_LABELS], &p[TEST_LABELS], error);
    if (status == TANDEM_OK) {
        const tandem_idx *const train = &p[TRAIN_IMAGES].idx;
        data->kind = TANDEM_DATA_IMAGES;
        data->n_train = train->size[0];
        data->n_test = p[TEST_IMAGES].idx.size[0];
        data->height = (int)train->size[1]; /* an int holds it, because of the limit of a file */
        data->width = (int)train->size[2];
        data->channels = (int)train->size[3];
        data->n_class = n_class;
        data->pixels_train = release_values(&p[TRAIN_IMAGES]);
        data->pixels_test = release_values(&p[TEST_IMAGES]);
        data->labels_train = release_values(&p[TRAIN_LABELS]);
        data->labels_test = release_values(&p[TEST_LABELS]);
        status = tandem_images_measure(data, p[TRAIN_IMAGES].path, error);
    }
    for (int i = 0; i < N_PART; i++) free(p[i].file.bytes);
    free(p);
    return status;
}
