/* data.c: opens data sets, and gives each step its samples. */
#include "tandem/advanced/data.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/data_file.h"
#include "data/data_formats.h"
#include "data/data_sets.h"

static tandem_status read_named(tandem_data *data, tandem_data_reader *read, const char *name, int length,
                                tandem_error *error)
{
    char path[PATH_MAX];
    const tandem_status status = tandem_data_find(path, sizeof path, name, error);
    return status == TANDEM_OK ? read(data, path, length, error) : status;
}

static tandem_status read_paths(tandem_data *data, const char *source, int length, tandem_error *error)
{
    tandem_data_paths *const paths = malloc(sizeof *paths);
    if (!paths) return tandem_no_memory(error, "to open %.300s", source);
    tandem_status status = tandem_data_paths_find(paths, source, error);
    if (status == TANDEM_OK) status = tandem_data_formats_read(data, paths, length, error);
    free(paths);
    return status;
}

tandem_status tandem_data_open(tandem_data *data, const char *source, int length, tandem_error *error)
{
    tandem_data result = {0};
    if (!source || !source[0])
        return tandem_error_set(
            error, TANDEM_USAGE,
            "No data set is named. Give %s, a directory of images, or files: \"tandem list "
            "datasets\" has the formats.",
            tandem_data_set_at(0)->name);
    tandem_data_reader *const read = tandem_data_set_reader(source);
    const tandem_status status =
        read ? read_named(&result, read, source, length, error) : read_paths(&result, source, length, error);
    if (status != TANDEM_OK) return status;
    (void)snprintf(result.name, sizeof result.name, "%s", source);
    *data = result;
    return TANDEM_OK;
}

/* Bytes of the stored arrays. Interleaved: the first of each has both parts. */
typedef struct data_bytes {
    uint64_t pixels[2], labels[2], text, start;
} data_bytes;

static data_bytes count_data_bytes(const tandem_data *data)
{
    const uint64_t of_image = (uint64_t)data->height * (uint64_t)data->width * (uint64_t)data->channels *
                              (data->is_f32 ? sizeof(float) : 1),
                   of_label = data->label_bytes ? (uint64_t)data->label_bytes : 1,
                   of_symbol = data->token_bytes ? (uint64_t)data->token_bytes : 1;
    data_bytes bytes = {.text = (uint64_t)data->n_text * of_symbol,
                        .start = (uint64_t)(data->n_train + data->n_test + 1) * sizeof *data->start};
    const int64_t n[2] = {data->n_train + (data->is_interleaved ? data->n_test : 0), data->n_test};
    for (int test = 0; test < 2; test++) {
        bytes.pixels[test] = (uint64_t)n[test] * of_image;
        bytes.labels[test] = (uint64_t)n[test] * of_label;
    }
    return bytes;
}

/* What newer formats have beside the shape; without it, a hash is what it was before them. */
static uint64_t hash_layout(uint64_t hash, const tandem_data *data)
{
    const int layout[] = {data->token_bytes, data->label_bytes, data->is_f32, data->is_flat,
                          data->is_interleaved};
    int is_there = 0;
    for (size_t k = 0; k < sizeof layout / sizeof *layout; k++) is_there |= layout[k];
    return is_there ? tandem_hash_bytes(hash, layout, sizeof layout) : hash;
}

uint64_t tandem_data_hash(const tandem_data *data)
{
    const int64_t shape[] = {data->kind,     data->n_train, data->n_test,   data->height, data->width,
                             data->channels, data->n_class, data->n_symbol, data->n_text, data->length};
    const data_bytes n = count_data_bytes(data);
    uint64_t hash = hash_layout(tandem_hash_bytes(TANDEM_HASH_START, shape, sizeof shape), data);
    if (data->pixels_train) hash = tandem_hash_bytes(hash, data->pixels_train, n.pixels[0]);
    if (data->pixels_test) hash = tandem_hash_bytes(hash, data->pixels_test, n.pixels[1]);
    if (data->labels_train) hash = tandem_hash_bytes(hash, data->labels_train, n.labels[0]);
    if (data->labels_test) hash = tandem_hash_bytes(hash, data->labels_test, n.labels[1]);
    if (data->text) hash = tandem_hash_bytes(hash, data->text, n.text);
    if (data->start) hash = tandem_hash_bytes(hash, data->start, n.start);
    return tandem_hash_bytes(hash, data->symbol, sizeof data->symbol);
}

void tandem_data_close(tandem_data *data)
{
    if (!data->is_shared) {
        if (!data->mapped) { /* else they lie in it */
            free(data->pixels_train);
            free(data->text);
        }
        free(data->pixels_test);
        free(data->start);
        free(data->labels_train);
        free(data->labels_test);
        tandem_mapped_file_close(&(tandem_mapped_file){data->mapped, data->n_mapped});
    }
    *data = (tandem_data){0};
}
