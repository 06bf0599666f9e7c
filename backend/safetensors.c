/* safetensors.c: reads and writes safetensors files. */
#include "backend/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/nearest.h"
#include "base/plain_text.h"

static const char metadata[] = "__metadata__";
static const struct {
    const char *name;
    uint64_t bytes;
} types[] = {
    [TANDEM_STORED_F32] = {"F32", 4}, [TANDEM_STORED_BF16] = {"BF16", 2}, [TANDEM_STORED_F16] = {"F16", 2}};
enum { N_TYPE = sizeof types / sizeof *types, SHAPE_TEXT = 96 };

static tandem_status safetensors_no_memory(const char *path, tandem_error *error)
{
    return tandem_no_memory(error, "for the header of '%.200s'", path);
}

/* --- What the header says ------------------------------------------------------------------------------- */

static char *print_shape(char text[SHAPE_TEXT], const tandem_shape *shape)
{
    size_t n = (size_t)snprintf(text, SHAPE_TEXT, "[");
    for (int d = 0; d < shape->n_dim; d++)
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "%s%" PRId64, d ? ", " : "", shape->dim[d]);
    (void)snprintf(text + n, SHAPE_TEXT - n, "]");
    return text;
}

/* The same for a shape in JSON, cut to fit. */
static char *print_json_shape(char text[SHAPE_TEXT], const json_t *shape)
{
    const locale_t before = tandem_plain_begin();
    char *dumped = json_dumps(shape, JSON_ENCODE_ANY | JSON_COMPACT);
    tandem_plain_end(before);
    (void)snprintf(text, SHAPE_TEXT, "%s", dumped ? dumped : "none");
    free(dumped);
    return text;
}

static int is_same_shape(const json_t *got, const tandem_shape *shape)
{
    if (!json_is_array(got) || (int)json_array_size(got) != shape->n_dim) return 0;
    for (int d = 0; d < shape->n_dim; d++) {
        const json_t *dim = json_array_get(got, (size_t)d);
        if (!json_is_integer(dim) || json_integer_value(dim) != shape->dim[d]) return 0;
    }
    return 1;
}

static tandem_status read_data_offsets(tandem_stored_tensor *stored, const tandem_tensor *tensor,
                                       const json_t *entry, uint64_t data_bytes, const char *path,
                                       tandem_error *error)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    const int are_two = json_array_size(offsets) == 2 && json_is_integer(first) && json_is_integer(last);
    const json_int_t start = json_integer_value(first), end = json_integer_value(last);
    if (!are_two || start < 0 || end < start || (uint64_t)end > data_bytes)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "tensor '%s' in '%.200s' has no valid place in the file: data_offsets must be two whole numbers "
            "up to %" PRIu64 ", the bytes after the header; is the file cut short?",
            tensor->name, path, data_bytes);
    const uint64_t bytes = (uint64_t)tandem_shape_elements(&tensor->shape) * types[stored->type].bytes;
    if ((uint64_t)(end - start) != bytes)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "tensor '%s' in '%.200s' has %lld bytes; its shape and type take %" PRIu64,
                                tensor->name, path, (long long)(end - start), bytes);
    stored->start = (uint64_t)start;
    stored->bytes = bytes;
    return TANDEM_OK;
}

tandem_status tandem_safetensors_find(tandem_stored_tensor *out, const tandem_tensor *tensor,
                                      const json_t *entry, uint64_t data_bytes, const char *path,
                                      tandem_error *error)
{
    tandem_stored_tensor stored = {0};
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    int k = 0;
    while (k < N_TYPE && !(type && strcmp(type, types[k].name) == 0)) k++;
    if (k == N_TYPE)
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "tensor '%s' in '%.200s' has type '%.20s'; allowed F32, BF16, F16",
                                tensor->name, path, type ? type : "none");
    stored.type = (tandem_stored_type)k;
    const json_t *shape = json_object_get(entry, "shape");
    if (!is_same_shape(shape, &tensor->shape)) {
        char got[SHAPE_TEXT], wanted[SHAPE_TEXT];
        return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                "tensor '%s' in '%.200s' has shape %s; the model's has %s", tensor->name,
                                path, print_json_shape(got, shape), print_shape(wanted, &tensor->shape));
    }
    const tandem_status status = read_data_offsets(&stored, tensor, entry, data_bytes, path, error);
    if (status == TANDEM_OK) *out = stored;
    return status;
}

/* --- All of it against what there must be --------------------------------------------------------------- */

/* Copies a name for messages: cut, and printable on a terminal. */
static void print_printable(char text[TANDEM_TENSOR_NAME], const char *name)
{
    size_t i = 0;
    for (; name[i] && i < TANDEM_TENSOR_NAME - 1; i++)
        text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    text[i] = '\0';
}

static tandem_hint nearest_tensor_hint(const char *name, const tandem_tensor *tensor, int n)
{
    tandem_hint hint = {""};
    const char **candidate = malloc((size_t)n * sizeof *candidate + 1);
    for (int k = 0; candidate && k < n; k++) candidate[k] = tensor[k].name;
    if (candidate) hint = tandem_nearest_hint(name, candidate, (size_t)n);
    free(candidate);
    return hint;
}

static tandem_status unexpected_tensor_error(const tandem_tensor *tensor, int n, const char *name,
                                             const char *path, tandem_error *error)
{
    char text[TANDEM_TENSOR_NAME];
    print_printable(text, name);
    return tandem_error_set(error, TANDEM_WRONG_MODEL,
                            "'%.200s' has a tensor '%s', the model has none of that name.%s", path, text,
                            nearest_tensor_hint(text, tensor, n).text);
}

static tandem_status missing_tensor_error(const tandem_tensor *missing, json_t *header, const char *path,
                                          tandem_error *error)
{
    tandem_hint hint = {""};
    const char **candidate = malloc(json_object_size(header) * sizeof *candidate + 1), *key;
    json_t *entry;
    size_t n = 0;
    json_object_foreach(header, key, entry) if (candidate) candidate[n++] = key;
    const char *near = candidate ? tandem_nearest(missing->name, candidate, n) : NULL;
    char text[TANDEM_TENSOR_NAME];
    if (near) {
        print_printable(text, near);
        (void)snprintf(hint.text, sizeof hint.text, "; the nearest is '%.60s'", text);
    }
    free(candidate);
    return tandem_error_set(error, TANDEM_WRONG_MODEL, "'%.200s' does not have the model's tensor '%s'%s",
                            path, missing->name, hint.text);
}

static int is_tensor_of_model(const tandem_tensor *tensor, int n, const char *name)
{
    for (int k = 0; k < n; k++)
        if (strcmp(tensor[k].name, name) == 0) return 1;
    return 0;
}

static int compare_start(const void *a, const void *b)
{
    const tandem_stored_tensor *const x = a, *const y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static tandem_status check_data_coverage(const tandem_stored_tensor *stored, int n, uint64_t data_bytes,
                                         const char *path, tandem_error *error)
{
    tandem_stored_tensor *sorted = malloc((size_t)n * sizeof *sorted + 1);
    if (!sorted) return safetensors_no_memory(path, error);
    memcpy(sorted, stored, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_start);
    uint64_t end = 0;
    int k = 0;
    for (; k < n && sorted[k].start == end; k++) end += sorted[k].bytes;
    free(sorted);
    if (k == n && end == data_bytes) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_MALFORMED,
                            "the tensors of '%.200s' overlap or leave gaps: after byte %" PRIu64
                            " of the %" PRIu64 " after the header",
                            path, end, data_bytes);
}

static tandem_status match_tensors(tandem_stored_tensor *stored, const tandem_tensor *tensor, int n,
                                   json_t *header, uint64_t data_bytes, const char *path, tandem_error *error)
{
    const char *key;
    json_t *entry;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        entry = json_object_get(header, tensor[k].name);
        status = entry ? tandem_safetensors_find(&stored[k], &tensor[k], entry, data_bytes, path, error)
                       : missing_tensor_error(&tensor[k], header, path, error);
    }
    if (status != TANDEM_OK) return status;
    const size_t rest = json_object_size(header) - (json_object_get(header, metadata) != NULL);
    if (rest != (size_t)n) /* the file has a tensor that the model does not have */
        json_object_foreach(
            header, key,
            entry) if (strcmp(key, metadata) != 0 &&
                       !is_tensor_of_model(tensor, n, key)) return unexpected_tensor_error(tensor, n, key,
                                                                                           path, error);
    return check_data_coverage(stored, n, data_bytes, path, error);
}

tandem_status tandem_safetensors_parse(tandem_stored_tensor *out, const tandem_tensor *tensor, int n,
                                       const char *text, size_t header_bytes, uint64_t data_bytes,
                                       const char *path, tandem_error *error)
{
    json_error_t wrong;
    const locale_t before = tandem_plain_begin();
    json_t *header = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, &wrong);
    tandem_plain_end(before);
    if (!header && json_error_code(&wrong) == json_error_out_of_memory)
        return safetensors_no_memory(path, error);
    if (!json_is_object(header)) {
        json_decref(header);
        return tandem_error_set(error, TANDEM_MALFORMED, "the header of '%.200s' is no JSON object: %s", path,
                                header ? "it is something else" : wrong.text);
    }
    tandem_stored_tensor *stored = calloc((size_t)n + 1, sizeof *stored);
    tandem_status status = stored ? match_tensors(stored, tensor, n, header, data_bytes, path, error)
                                  : safetensors_no_memory(path, error);
    if (status == TANDEM_OK) memcpy(out, stored, (size_t)n * sizeof *stored);
    free(stored);
    json_decref(header);
    return status;
}

/* --- Reading -------------------------------------------------------------------------------------------- */

static tandem_status safetensors_read_error(tandem_error *error, const char *path, int code)
{
    return tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be read: %s", path, strerror(code));
}

static float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction. */
static float f32_from_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return f32_from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
}

/* Widens n numbers of two bytes in place; they lie at the end of the room for n of four. */
static void widen_in_place(float *value, int64_t n, tandem_stored_type type)
{
    const unsigned char *narrow = (const unsigned char *)value + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        uint16_t word;
        memcpy(&word, narrow + 2 * i, sizeof word);
        value[i] = type == TANDEM_STORED_F16 ? f32_from_half(word) : f32_from_bits((uint32_t)word << 16);
    }
}

tandem_status tandem_safetensors_read_values(const tandem_tensor *tensor, const tandem_stored_tensor *stored,
                                             FILE *stream, uint64_t data_start, const char *path,
                                             tandem_error *error)
{
    const int64_t n = tandem_shape_elements(&tensor->shape);
    char *to = (char *)tensor->value + (uint64_t)n * sizeof(float) - stored->bytes;
    errno = 0;
    if (fseeko(stream, (off_t)(data_start + stored->start), SEEK_SET) != 0 ||
        fread(to, 1, stored->bytes, stream) != stored->bytes)
        return safetensors_read_error(error, path, errno ? errno : EIO);
    if (stored->type != TANDEM_STORED_F32) widen_in_place(tensor->value, n, stored->type);
    return TANDEM_OK;
}

/* Reads the header into *text, which the caller frees; gives its bytes and the bytes after it. */
static tandem_status read_safetensors_header(char **text, uint64_t *header_bytes, uint64_t *data_bytes,
                                             FILE *stream, const char *path, tandem_error *error)
{
    struct stat file_stat;
    uint64_t n = 0;
    if (fstat(fileno(stream), &file_stat) != 0) return safetensors_read_error(error, path, errno);
    if (S_ISDIR(file_stat.st_mode)) return safetensors_read_error(error, path, EISDIR);
    if (!S_ISREG(file_stat.st_mode)) /* its size limits what is read */
        return tandem_error_set(error, TANDEM_MALFORMED,
                                "'%.200s' is no regular file; write the weights into one", path);
    const uint64_t size = (uint64_t)file_stat.st_size;
    if (fread(&n, 1, sizeof n, stream) != sizeof n || n < 2 || n > size - sizeof n ||
        n > tandem_safetensors_header_bytes)
        return tandem_error_set(
            error, TANDEM_MALFORMED,
            "'%.200s' is no file of safetensors, or cut short: it says that its header has %" PRIu64
            " bytes, the file has %" PRIu64 ", and headers have 2 to %" PRIu64,
            path, n, size, tandem_safetensors_header_bytes);
    char *bytes = malloc(n);
    if (!bytes) return safetensors_no_memory(path, error);
    errno = 0;
    if (fread(bytes, 1, n, stream) != n) {
        free(bytes);
        return safetensors_read_error(error, path, errno ? errno : EIO);
    }
    *text = bytes;
    *header_bytes = n;
    *data_bytes = size - sizeof n - n;
    return TANDEM_OK;
}

tandem_status tandem_safetensors_open(FILE **stream, char **text, uint64_t *header_bytes,
                                      uint64_t *data_bytes, const char *path, tandem_error *error)
{
    FILE *const opened = fopen(path, "rbe");
    if (!opened) return safetensors_read_error(error, path, errno);
    const tandem_status status = read_safetensors_header(text, header_bytes, data_bytes, opened, path, error);
    if (status == TANDEM_OK)
        *stream = opened;
    else
        (void)fclose(opened);
    return status;
}

tandem_status tandem_safetensors_read(const tandem_tensor *tensor, int n, const char *path, int fill,
                                      tandem_error *error)
{
    char *text = NULL;
    uint64_t header_bytes = 0, data_bytes = 0;
    tandem_stored_tensor *stored = NULL;
    FILE *stream = NULL;
    tandem_status status = tandem_safetensors_open(&stream, &text, &header_bytes, &data_bytes, path, error);
    if (status != TANDEM_OK) return status;
    if (!(stored = calloc((size_t)n + 1, sizeof *stored))) status = safetensors_no_memory(path, error);
    if (status == TANDEM_OK)
        status = tandem_safetensors_parse(stored, tensor, n, text, header_bytes, data_bytes, path, error);
    for (int k = 0; fill && k < n && status == TANDEM_OK; k++)
        status = tandem_safetensors_read_values(&tensor[k], &stored[k], stream,
                                                sizeof header_bytes + header_bytes, path, error);
    free(stored);
    free(text);
    (void)fclose(stream);
    return status;
}

/* --- Writing -------------------------------------------------------------------------------------------- */

static json_t *make_tensor_entry(const tandem_tensor *tensor, uint64_t start)
{
    json_t *shape = json_array();
    for (int d = 0; d < tensor->shape.n_dim; d++)
        json_array_append_new(shape, json_integer(tensor->shape.dim[d]));
    const uint64_t bytes = (uint64_t)tandem_shape_elements(&tensor->shape) * sizeof(float);
    return json_pack("{s:s,s:o,s:[I,I]}", "dtype", types[TANDEM_STORED_F32].name, "shape", shape,
                     "data_offsets", (json_int_t)start, (json_int_t)(start + bytes));
}

/* The header's text, padded with blanks to a multiple of 8; NULL without memory. */
static char *make_header_text(const tandem_tensor *tensor, int n, const char *model)
{
    json_t *header = json_pack("{s:{s:s,s:s}}", metadata, "format", "tandem", "model", model);
    uint64_t start = 0;
    int whole = header != NULL;
    for (int k = 0; k < n && whole; k++) {
        whole = json_object_set_new(header, tensor[k].name, make_tensor_entry(&tensor[k], start)) == 0;
        start += (uint64_t)tandem_shape_elements(&tensor[k].shape) * sizeof(float);
    }
    const locale_t before = tandem_plain_begin();
    char *dumped = whole ? json_dumps(header, JSON_COMPACT) : NULL, *text = NULL;
    tandem_plain_end(before);
    json_decref(header);
    if (!dumped || asprintf(&text, "%s%*s", dumped, (int)(-strlen(dumped) & 7), "") < 0) text = NULL;
    free(dumped);
    return text;
}

tandem_status tandem_safetensors_write(const tandem_tensor *tensor, int n, const char *model,
                                       const char *path, tandem_error *error)
{
    char *text = make_header_text(tensor, n, model);
    if (!text) return safetensors_no_memory(path, error);
    tandem_file file = {0};
    const tandem_status status = tandem_file_open(&file, path, error);
    if (status == TANDEM_OK) {
        const uint64_t bytes = strlen(text);
        int written =
            fwrite(&bytes, sizeof bytes, 1, file.stream) == 1 && fwrite(text, bytes, 1, file.stream) == 1;
        for (int k = 0; k < n && written; k++) {
            const size_t elements = (size_t)tandem_shape_elements(&tensor[k].shape);
            written = fwrite(tensor[k].value, sizeof(float), elements, file.stream) == elements;
        }
    }
    free(text);
    /* it reports a failed write */
    return status == TANDEM_OK ? tandem_file_finish(&file, error) : status;
}
