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

uint64_t tandem_data_hash(const tandem_data *data)
{
    const int64_t shape[] = {data->kind,     data->n_train, data->n_test,   data->height, data->width,
                             data->channels, data->n_class, data->n_symbol, data->n_text, data->length};
    const uint64_t of_pixels = (uint64_t)data->height * (uint64_t)data->width * (uint64_t)data->channels,
                   n_train = (uint64_t)data->n_train, n_test = (uint64_t)data->n_test;
    uint64_t hash = tandem_hash_bytes(TANDEM_HASH_START, shape, sizeof shape);
    if (data->pixels_train) hash = tandem_hash_bytes(hash, data->pixels_train, n_train * of_pixels);
    if (data->pixels_test) hash = tandem_hash_bytes(hash, data->pixels_test, n_test * of_pixels);
    if (data->labels_train) hash = tandem_hash_bytes(hash, data->labels_train, n_train);
    if (data->labels_test) hash = tandem_hash_bytes(hash, data->labels_test, n_test);
    const uint64_t of_symbol = data->token_bytes ? (uint64_t)data->token_bytes : 1;
    if (data->token_bytes) hash = tandem_hash_bytes(hash, &data->token_bytes, sizeof data->token_bytes);
    if (data->text) hash = tandem_hash_bytes(hash, data->text, (uint64_t)data->n_text * of_symbol);
    return tandem_hash_bytes(hash, data->symbol, sizeof data->symbol);
}

void tandem_data_close(tandem_data *data)
{
    if (!data->is_shared) {
        free(data->pixels_train);
        free(data->pixels_test);
        free(data->labels_train);
        free(data->labels_test);
        if (!data->mapped) free(data->text);
        tandem_mapped_file_close(&(tandem_mapped_file){data->mapped, data->n_mapped});
    }
    *data = (tandem_data){0};
}
