/* published.c: reads weights by published names. */
#include "backend/published.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/plain_text.h"

typedef enum published_layout { SAME, WHOLE_SAME, LINEAR, CONV, PART_0, PART_1, PART_2 } published_layout;

typedef struct published_row {
    const char *models, *own, *published;
    published_layout layout;
    int is_optional;
} published_row;

static const published_row rows[] = {
#define PREFIX(model, prefix)
#define PUBLISHED(models, own, published, layout, is_optional) {models, own, published, layout, is_optional},
#include "backend/published.def"
#undef PUBLISHED
#undef PREFIX
};
static const struct {
    const char *model, *prefix;
} prefixes[] = {
#define PREFIX(model, prefix) {model, prefix},
#define PUBLISHED(models, own, published, layout, is_optional)
#include "backend/published.def"
#undef PUBLISHED
#undef PREFIX
};
enum {
    N_ROW = sizeof rows / sizeof *rows,
    N_PREFIX = sizeof prefixes / sizeof *prefixes,
    N_NUMBER = 3,
    PUBLISHED_NAME = 160
};

/* A tensor of the model in the file. */
typedef struct published_match {
    const published_row *row; /* NULL: the file does not have it */
    const char *name;         /* the file's; borrowed from the header */
    tandem_shape shape;       /* in the file */
    tandem_stored_tensor stored;
} published_match;

typedef struct published_file {
    const char *model, *path;
    json_t *header;
    uint64_t data_bytes;
} published_file;

/* --- Names ---------------------------------------------------------------------------------------------- */

/* Whether `model`, up to its options, is a word of `models`. */
static int names_model(const char *models, const char *model)
{
    const size_t n = strcspn(model, ":");
    for (const char *word = models; *word;) {
        const size_t length = strcspn(word, " ");
        if (length == n && strncmp(word, model, n) == 0) return 1;
        word += length;
        word += strspn(word, " ");
    }
    return 0;
}

/* Whether n bytes of `name` are the pattern; number: those in the places of #. */
static int matches_pattern(const char *pattern, const char *name, size_t n, int number[N_NUMBER])
{
    const char *const end = name + n;
    for (int k = 0; *pattern; pattern++) {
        if (*pattern != '#') {
            if (name == end || *name++ != *pattern) return 0;
            continue;
        }
        const size_t digits = strspn(name, "0123456789");
        if (digits == 0 || digits > 6 || k == N_NUMBER) return 0;
        number[k++] = atoi(name);
        name += digits;
    }
    return name == end;
}

/* The part of a name that a layout leaves to both: ".weight". */
static const char *suffix_of(const char *name, published_layout layout)
{
    static const char *const suffixes[] = {".weight", ".bias", ".running_mean", ".running_var"};
    const char *const dot = layout == WHOLE_SAME ? NULL : strrchr(name, '.');
    for (int k = 0; dot && k < 4; k++)
        if (strcmp(dot, suffixes[k]) == 0) return dot;
    return name + strlen(name);
}

static void print_published_name(char text[PUBLISHED_NAME], const char *prefix, const published_row *row,
                                 const int number[N_NUMBER], const char *suffix)
{
    int k = 0;
    (void)snprintf(text, PUBLISHED_NAME, "%s", prefix);
    for (const char *at = row->published; *at; at++)
        if (*at == '#')
            (void)tandem_append(text, PUBLISHED_NAME, "%d", number[k++]);
        else
            (void)tandem_append(text, PUBLISHED_NAME, "%c", *at);
    (void)tandem_append(text, PUBLISHED_NAME, "%s", suffix);
}

/* Older files call the numbers of a norm gamma and beta. */
static const char *older_suffix(const published_row *row, const char *suffix)
{
    if (!strstr(row->published, "LayerNorm")) return NULL;
    return strcmp(suffix, ".weight") == 0 ? ".gamma" : strcmp(suffix, ".bias") == 0 ? ".beta" : NULL;
}

/* --- Shapes --------------------------------------------------------------------------------------------- */

/* 0: it is none, or has more numbers than any file. */
static int read_dims(published_match *to, const json_t *entry)
{
    static const int64_t MAX_ELEMENTS = INT64_C(1) << 40;
    int64_t n = 1;
    const json_t *shape = json_object_get(entry, "shape");
    to->shape.n_dim = (int)json_array_size(shape);
    if (!json_is_array(shape) || json_array_size(shape) > TANDEM_MAX_DIM) return 0;
    for (int d = 0; d < to->shape.n_dim; d++) {
        const json_int_t dim = json_integer_value(json_array_get(shape, (size_t)d));
        if (dim < 1 || __builtin_mul_overflow(n, dim, &n) || n > MAX_ELEMENTS) return 0;
        to->shape.dim[d] = dim;
    }
    return 1;
}

static int is_same_but_ones(const published_match *of, const tandem_shape *shape)
{
    int a = 0, b = 0;
    for (;;) {
        while (a < of->shape.n_dim && of->shape.dim[a] == 1) a++;
        while (b < shape->n_dim && shape->dim[b] == 1) b++;
        if (a == of->shape.n_dim || b == shape->n_dim) return a == of->shape.n_dim && b == shape->n_dim;
        if (of->shape.dim[a++] != shape->dim[b++]) return 0;
    }
}

/* Vectors lie alike in all layouts but parts. */
static published_layout layout_of(const published_row *row, const tandem_shape *shape)
{
    const int is_vector = shape->n_dim < 2;
    return is_vector && (row->layout == LINEAR || row->layout == CONV) ? SAME : row->layout;
}

static int has_fitting_shape(const published_match *of, const published_row *row, const tandem_shape *shape)
{
    const int64_t *const file = of->shape.dim, *const own = shape->dim;
    switch (layout_of(row, shape)) {
    case LINEAR: return of->shape.n_dim == 2 && shape->n_dim == 2 && file[0] == own[1] && file[1] == own[0];
    case CONV:
        return of->shape.n_dim == 4 && shape->n_dim == 2 && file[0] == own[1] && file[2] == file[3] &&
               tandem_shape_elements(&of->shape) == own[0] * own[1];
    case PART_0:
    case PART_1:
    case PART_2:
        if (of->shape.n_dim != shape->n_dim || of->shape.n_dim < 1 || of->shape.n_dim > 2) return 0;
        return (of->shape.n_dim == 1 || file[0] == own[0]) &&
               file[of->shape.n_dim - 1] == 3 * own[of->shape.n_dim - 1];
    default: return is_same_but_ones(of, shape);
    }
}

/* --- A tensor in the file ------------------------------------------------------------------------------- */

static tandem_status check_entry(published_match *of, const json_t *entry, const published_file *file,
                                 tandem_error *error)
{
    tandem_tensor there = {.shape = of->shape};
    (void)snprintf(there.name, sizeof there.name, "%s", of->name);
    return tandem_safetensors_find(&of->stored, &there, entry, file->data_bytes, file->path, error);
}

/* The entry of a row's name, with one of the prefixes of the model; NULL: there is none. */
static const json_t *find_entry(published_match *to, const published_file *file, const published_row *row,
                                const int number[N_NUMBER], const char *suffix)
{
    char name[PUBLISHED_NAME];
    const char *const older = older_suffix(row, suffix);
    for (int p = -1; p < N_PREFIX; p++) {
        if (p >= 0 && !names_model(prefixes[p].model, file->model)) continue;
        for (int is_older = 0; is_older < 1 + (older != NULL); is_older++) {
            print_published_name(name, p < 0 ? "" : prefixes[p].prefix, row, number,
                                 is_older ? older : suffix);
            const json_t *const entry = json_object_get(file->header, name);
            if (!entry) continue;
            to->name = json_object_iter_key(json_object_iter_at(file->header, name));
            return entry;
        }
    }
    return NULL;
}

/* to->row stays NULL where the file lacks it and the model can do without. */
static tandem_status match_tensor(published_match *to, const tandem_tensor *tensor,
                                  const published_file *file, tandem_error *error)
{
    char wanted[PUBLISHED_NAME] = "";
    int is_optional = 0;
    for (int r = 0; r < N_ROW; r++) {
        const published_row *row = &rows[r];
        const char *const suffix = suffix_of(tensor->name, row->layout);
        int number[N_NUMBER] = {0};
        if (!names_model(row->models, file->model) ||
            !matches_pattern(row->own, tensor->name, (size_t)(suffix - tensor->name), number))
            continue;
        is_optional |= row->is_optional;
        print_published_name(wanted, "", row, number, suffix);
        published_match found = {.row = row};
        const json_t *const entry = find_entry(&found, file, row, number, suffix);
        if (!entry) continue;
        if (read_dims(&found, entry) && has_fitting_shape(&found, row, &tensor->shape)) {
            *to = found;
            return check_entry(to, entry, file, error);
        }
        if (!row->is_optional)
            return tandem_error_set(error, TANDEM_WRONG_MODEL,
                                    "tensor '%.100s' in '%.200s' does not have the shape of '%s' in model "
                                    "'%s'; give the model the file's sizes",
                                    found.name, file->path, tensor->name, file->model);
    }
    if (is_optional) return TANDEM_OK;
    return tandem_error_set(error, TANDEM_WRONG_MODEL,
                            "'%.200s' has published names, but no '%.100s' for '%s' of model '%s'",
                            file->path, wanted, tensor->name, file->model);
}

/* --- Values --------------------------------------------------------------------------------------------- */

static void put_convolution(float *own, const float *file, const published_match *of)
{
    const int64_t n_out = of->shape.dim[0], n_in = of->shape.dim[1], height = of->shape.dim[2],
                  width = of->shape.dim[3];
    for (int64_t out = 0; out < n_out; out++)
        for (int64_t in = 0; in < n_in; in++)
            for (int64_t y = 0; y < height; y++)
                for (int64_t x = 0; x < width; x++)
                    own[((y * width + x) * n_in + in) * n_out + out] =
                        file[((out * n_in + in) * height + y) * width + x];
}

static void put_column_part(float *own, const float *file, const tandem_shape *shape, int part)
{
    const int64_t columns = shape->dim[shape->n_dim - 1], n_row = shape->n_dim == 2 ? shape->dim[0] : 1;
    for (int64_t row = 0; row < n_row; row++)
        memcpy(own + row * columns, file + (3 * row + part) * columns, (size_t)columns * sizeof *own);
}

static void put_values(float *own, const float *file, const published_match *of, const tandem_shape *shape)
{
    const published_layout layout = layout_of(of->row, shape);
    if (layout == LINEAR) {
        for (int64_t in = 0; in < shape->dim[0]; in++)
            for (int64_t out = 0; out < shape->dim[1]; out++)
                own[in * shape->dim[1] + out] = file[out * shape->dim[0] + in];
    } else if (layout == CONV) {
        put_convolution(own, file, of);
    } else if (layout >= PART_0) {
        put_column_part(own, file, shape, (int)(layout - PART_0));
    } else {
        memcpy(own, file, (size_t)tandem_shape_elements(shape) * sizeof *own);
    }
}

static tandem_status fill_tensor(const tandem_tensor *tensor, const published_match *of, FILE *stream,
                                 uint64_t data_start, const char *path, tandem_error *error)
{
    const int64_t n = tandem_shape_elements(&of->shape);
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return tandem_no_memory(error, "for tensor '%s'", tensor->name);
    const tandem_tensor whole = {.shape = {1, {n}}, .value = values};
    const tandem_status status =
        tandem_safetensors_read_values(&whole, &of->stored, stream, data_start, path, error);
    if (status == TANDEM_OK) put_values(tensor->value, values, of, &tensor->shape);
    free(values);
    return status;
}

/* --- What is said --------------------------------------------------------------------------------------- */

static int is_used(const published_match *match, int n, const char *name)
{
    for (int k = 0; k < n; k++)
        if (match[k].row && strcmp(match[k].name, name) == 0) return 1;
    return 0;
}

static void say_what_differs(char said[TANDEM_TENSORS_SAID], const published_match *match,
                             const tandem_tensor *tensor, int n, const published_file *file)
{
    enum { NAMED = 3 };
    int n_left = 0, n_absent = 0;
    const char *name;
    json_t *entry;
    *said = '\0';
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0 || is_used(match, n, name)) continue;
        if (n_left++ < NAMED)
            (void)tandem_append(said, TANDEM_TENSORS_SAID, "%s'%.80s'",
                                n_left > 1 ? ", " : "left out: ", name);
    }
    if (n_left > NAMED) (void)tandem_append(said, TANDEM_TENSORS_SAID, " and %d more", n_left - NAMED);
    for (int k = 0; k < n; k++) {
        if (match[k].row) continue;
        if (n_absent++ < NAMED)
            (void)tandem_append(said, TANDEM_TENSORS_SAID, "%s'%s'",
                                n_absent > 1 ? ", "
                                : n_left     ? "; not in it, as drawn: "
                                             : "not in it, as drawn: ",
                                tensor[k].name);
    }
    if (n_absent > NAMED) (void)tandem_append(said, TANDEM_TENSORS_SAID, " and %d more", n_absent - NAMED);
}

/* --- Public --------------------------------------------------------------------------------------------- */

/* Whether the file has published names: not the first of the model's own, and one that a row makes. */
static int has_published_names(const published_file *file, const tandem_tensor *tensor, int n)
{
    published_match first = {.row = NULL};
    if (n == 0 || json_object_get(file->header, tensor[0].name)) return 0;
    for (int r = 0; r < N_ROW; r++) {
        const char *const suffix = suffix_of(tensor[0].name, rows[r].layout);
        int number[N_NUMBER] = {0};
        if (names_model(rows[r].models, file->model) &&
            matches_pattern(rows[r].own, tensor[0].name, (size_t)(suffix - tensor[0].name), number) &&
            find_entry(&first, file, &rows[r], number, suffix))
            return 1;
    }
    return 0;
}

static tandem_status read_published(int *is_published, char *said, const tandem_tensor *tensor, int n,
                                    const published_file *file, FILE *stream, uint64_t data_start, int fill,
                                    tandem_error *error)
{
    *is_published = has_published_names(file, tensor, n);
    published_match *match = *is_published ? calloc((size_t)n, sizeof *match) : NULL;
    if (!*is_published) return TANDEM_OK;
    if (!match) return tandem_no_memory(error, "for the tensors of '%.200s'", file->path);
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < n && status == TANDEM_OK; k++)
        status = match_tensor(&match[k], &tensor[k], file, error);
    for (int k = 0; k < n && status == TANDEM_OK && fill; k++)
        if (match[k].row) status = fill_tensor(&tensor[k], &match[k], stream, data_start, file->path, error);
    if (status == TANDEM_OK) say_what_differs(said, match, tensor, n, file);
    free(match);
    return status;
}

tandem_status tandem_published_read(int *is_published, char said[TANDEM_TENSORS_SAID],
                                    const tandem_tensor *tensor, int n, const char *model, const char *path,
                                    int fill, tandem_error *error)
{
    char *text = NULL;
    uint64_t header_bytes = 0;
    published_file file = {.model = model, .path = path};
    FILE *stream = NULL;
    *is_published = 0;
    *said = '\0';
    tandem_status status =
        tandem_safetensors_open(&stream, &text, &header_bytes, &file.data_bytes, path, error);
    if (status != TANDEM_OK) return status;
    const locale_t before = tandem_plain_begin();
    file.header = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, NULL);
    tandem_plain_end(before);
    if (json_is_object(file.header)) /* what else is wrong of it, the reader of own names says */
        status = read_published(is_published, said, tensor, n, &file, stream,
                                sizeof header_bytes + header_bytes, fill, error);
    json_decref(file.header);
    free(text);
    (void)fclose(stream);
    return status;
}
