/* cifar.c: reads the binary version of CIFAR-10 and CIFAR-100. */
#include "data/cifar.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data_file.h"
#include "data/images.h"

const tandem_cifar_kind tandem_cifar_kinds[TANDEM_CIFAR_KINDS] = {
    {"CIFAR-10", "data_batch_1.bin to data_batch_5.bin and test_batch.bin", 1, 10, 0},
    {"CIFAR-100", "train.bin and test.bin", 2, 100, 20}};

/* --- Records -------------------------------------------------------------------------------------------- */

static tandem_status check_cifar_labels(const tandem_cifar_kind *kind, const uint8_t *record, int64_t i,
                                        const char *path, tandem_error *error)
{
    const int fine = record[kind->n_label - 1], coarse = kind->n_label > 1 ? record[0] : 0;
    if (fine < kind->n_class && (kind->n_label == 1 || coarse < kind->n_coarse)) return TANDEM_OK;
    const int is_fine = fine >= kind->n_class;
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s: record %lld has the %slabel %d, allowed are 0 to %d in %s. Fetch the file again.", path,
        (long long)i, is_fine ? "" : "coarse ", is_fine ? fine : coarse,
        (is_fine ? kind->n_class : kind->n_coarse) - 1, kind->name);
}

tandem_status tandem_cifar_count(int64_t *n_image, const tandem_cifar_kind *kind, const uint8_t *bytes,
                                 size_t n, const char *path, tandem_error *error)
{
    const size_t record = (size_t)kind->n_label + TANDEM_CIFAR_PIXELS;
    if (n == 0 || n % record)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "%s has %zu bytes, expected records of %zu, as files of %s have. Fetch it again.", path, n,
            record, kind->name);
    tandem_status status = TANDEM_OK;
    for (size_t i = 0; i < n / record && status == TANDEM_OK; i++)
        status = check_cifar_labels(kind, bytes + i * record, (int64_t)i, path, error);
    if (status == TANDEM_OK) *n_image = (int64_t)(n / record);
    return status;
}

void tandem_cifar_unpack(uint8_t *pixels, uint8_t *label, const tandem_cifar_kind *kind, const uint8_t *bytes,
                         int64_t n_image)
{
    enum { PLANE = TANDEM_CIFAR_PIXELS / 3 };
    for (int64_t i = 0; i < n_image; i++) {
        const uint8_t *const from = bytes + i * (kind->n_label + TANDEM_CIFAR_PIXELS) + kind->n_label;
        uint8_t *const to = pixels + i * TANDEM_CIFAR_PIXELS;
        label[i] = from[-1];
        for (int at = 0; at < PLANE; at++)
            for (int c = 0; c < 3; c++) to[3 * at + c] = from[PLANE * c + at];
    }
}

/* --- Files ---------------------------------------------------------------------------------------------- */

typedef struct cifar_file {
    const char *name;
    int kind, is_test;
} cifar_file;
static const cifar_file files[] = {
    {"data_batch_1.bin", 0, 0}, {"data_batch_2.bin", 0, 0}, {"data_batch_3.bin", 0, 0},
    {"data_batch_4.bin", 0, 0}, {"data_batch_5.bin", 0, 0}, {"test_batch.bin", 0, 1},
    {"train.bin", 1, 0},        {"test.bin", 1, 1},
};
enum { N_FILE = sizeof files / sizeof files[0] };

/* By the last part of the path; NULL: no file of CIFAR is called so. */
static const cifar_file *find_cifar_file(const char *path)
{
    const char *const slash = strrchr(path, '/');
    for (int i = 0; i < N_FILE; i++)
        if (strcmp(slash ? slash + 1 : path, files[i].name) == 0) return &files[i];
    return NULL;
}

/* Whether the directory has the file; path: of it. */
static int has_cifar_file(char path[PATH_MAX], const char *directory, const cifar_file *file)
{
    const int n = snprintf(path, PATH_MAX, "%s/%s", directory, file->name);
    return n > 0 && n < PATH_MAX && access(path, F_OK) == 0;
}

/* By its first file; −1: it has none. A train.bin alone is nanoGPT's. */
static int find_directory_kind(const char *directory)
{
    char path[PATH_MAX];
    for (int i = 0; i < N_FILE; i++)
        if ((files[i].kind == 0 || files[i].is_test) && has_cifar_file(path, directory, &files[i]))
            return files[i].kind;
    return -1;
}

int tandem_cifar_takes(const tandem_data_paths *paths)
{
    const tandem_data_path *const first = &paths->at[0];
    if (paths->n == 1 && first->is_directory) return find_directory_kind(first->path) >= 0;
    if (paths->n == 1) {
        const cifar_file *const file = find_cifar_file(first->path);
        return file && file->kind == 0; /* train.bin and test.bin are names of token ids, too */
    }
    for (int i = 0; i < paths->n; i++)
        if (!tandem_data_path_ends(&paths->at[i], ".bin")) return 0;
    return 1;
}

/* --- A data set ----------------------------------------------------------------------------------------- */

/* What has been read. part[0]: for training, part[1]: of the test. */
typedef struct cifar_images {
    const tandem_cifar_kind *kind;
    struct {
        uint8_t *pixels, *label;
        int64_t n;
    } part[2];
    size_t left; /* bytes that files may still have */
} cifar_images;

static tandem_status grow_cifar_part(cifar_images *images, int test, int64_t n, tandem_error *error)
{
    assert(n > 0);
    uint8_t *const pixels = realloc(images->part[test].pixels, (size_t)n * TANDEM_CIFAR_PIXELS);
    if (pixels) images->part[test].pixels = pixels;
    uint8_t *const label = pixels ? realloc(images->part[test].label, (size_t)n) : NULL;
    if (label) images->part[test].label = label;
    return label ? TANDEM_OK : tandem_no_memory(error, "for %lld images of CIFAR", (long long)n);
}

static tandem_status read_cifar_file(cifar_images *images, const char *path, int test, tandem_error *error)
{
    tandem_data_file file = {0};
    int64_t n = 0, before = images->part[test].n;
    tandem_status status = tandem_data_file_read_whole(&file, path, images->left, error);
    if (status == TANDEM_OK) status = tandem_cifar_count(&n, images->kind, file.bytes, file.n, path, error);
    if (status == TANDEM_OK) status = grow_cifar_part(images, test, before + n, error);
    if (status == TANDEM_OK) {
        tandem_cifar_unpack(images->part[test].pixels + before * TANDEM_CIFAR_PIXELS,
                            images->part[test].label + before, images->kind, file.bytes, n);
        images->part[test].n += n;
        images->left -= file.n;
    }
    free(file.bytes);
    return status;
}

static tandem_status read_cifar_directory(cifar_images *images, const char *directory, tandem_error *error)
{
    const int kind = find_directory_kind(directory);
    tandem_status status = TANDEM_OK;
    images->kind = &tandem_cifar_kinds[kind];
    for (int i = 0; i < N_FILE && status == TANDEM_OK; i++) {
        char path[PATH_MAX];
        if (files[i].kind != kind) continue;
        if (has_cifar_file(path, directory, &files[i]))
            status = read_cifar_file(images, path, files[i].is_test, error);
        else
            status = tandem_error_set(error, TANDEM_MISSING,
                                      "%s has no file %s; a directory of %s has %s. Fetch it again, or list "
                                      "files with commas.",
                                      directory, files[i].name, images->kind->name, images->kind->files);
    }
    return status;
}

static tandem_status read_listed_cifar(cifar_images *images, const tandem_data_path *path,
                                       tandem_error *error)
{
    const cifar_file *const file = find_cifar_file(path->path);
    const tandem_cifar_kind *const kind = file ? &tandem_cifar_kinds[file->kind] : NULL;
    if (!file || path->is_directory || (images->kind && images->kind != kind))
        return tandem_error_set(
            error, TANDEM_USAGE,
            "%s is no file of %s; a list of FILE.bin has %s of %s, or %s of %s. Give files of "
            "one kind.",
            path->path, images->kind ? images->kind->name : "CIFAR", tandem_cifar_kinds[0].files,
            tandem_cifar_kinds[0].name, tandem_cifar_kinds[1].files, tandem_cifar_kinds[1].name);
    images->kind = kind;
    return read_cifar_file(images, path->path, file->is_test, error);
}

static tandem_status read_cifar_list(cifar_images *images, const tandem_data_paths *paths,
                                     tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < paths->n && status == TANDEM_OK; i++)
        status = read_listed_cifar(images, &paths->at[i], error);
    assert(status != TANDEM_OK || images->kind); /* each file has set it */
    for (int test = 0; test < 2 && status == TANDEM_OK; test++)
        if (!images->part[test].n)
            status =
                tandem_error_set(error, TANDEM_MISSING,
                                 "--data names no file for %s; %s has %s. List one of them, too, or give "
                                 "their directory.",
                                 test ? "the test" : "training", images->kind->name, images->kind->files);
    return status;
}

tandem_status tandem_cifar_open(tandem_data *data, const tandem_data_paths *paths, tandem_error *error)
{
    cifar_images images = {.left = TANDEM_DATA_FILE_LIMIT};
    const tandem_status status = paths->at[0].is_directory && paths->n == 1
                                     ? read_cifar_directory(&images, paths->at[0].path, error)
                                     : read_cifar_list(&images, paths, error);
    if (status != TANDEM_OK) {
        for (int test = 0; test < 2; test++) {
            free(images.part[test].pixels);
            free(images.part[test].label);
        }
        return status;
    }
    data->kind = TANDEM_DATA_IMAGES;
    data->n_train = images.part[0].n, data->n_test = images.part[1].n;
    data->height = data->width = TANDEM_CIFAR_SIDE;
    data->channels = 3;
    data->n_class = images.kind->n_class;
    data->pixels_train = images.part[0].pixels, data->pixels_test = images.part[1].pixels;
    data->labels_train = images.part[0].label, data->labels_test = images.part[1].label;
    return tandem_images_measure(data, paths->at[0].path, error);
}
