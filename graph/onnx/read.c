/* read.c: reads the file, and the elements of its tensors: inline, or in files beside it. */
#include "graph/onnx/onnx_types.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_UNPACKED = 352 << 20, READ_BLOCK = 1 << 18 };
/* Protobuf has no messages of more. */
static const int64_t max_file_bytes = (INT64_C(1) << 31) - 1;

/* --- The file ------------------------------------------------------------------------------------------- */

/* What unpacking may use: empty messages take 50 times their bytes in the file. */
typedef struct unpacking {
    size_t used, allowed;
    bool is_out_of_memory, is_over;
} unpacking;

static void *unpacking_alloc(void *data, size_t n)
{
    unpacking *const u = data;
    if (n > u->allowed - u->used) {
        u->is_over = true;
        return NULL;
    }
    void *const made = malloc(n);
    if (made)
        u->used += n;
    else
        u->is_out_of_memory = true;
    return made;
}

static void unpacking_free(void *data, void *memory)
{
    (void)data;
    free(memory);
}

static bool read_exactly(int file, unsigned char *bytes, size_t n, int64_t offset)
{
    while (n > 0) {
        const ssize_t got = pread(file, bytes, n, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        bytes += got, n -= (size_t)got, offset += got;
    }
    return true;
}

/* Opens a regular file; a pipe or a device would block or never end. */
static bool open_regular(onnx_import *import, int64_t *bytes)
{
    struct stat about;
    import->file = open(import->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (import->file < 0 || fstat(import->file, &about) != 0)
        return onnx_fail(import, TANDEM_IO, "it cannot be read: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return onnx_fail(import, TANDEM_MALFORMED, "it is no regular file; allowed is an ONNX model");
    if (about.st_size > max_file_bytes)
        return onnx_fail(import, TANDEM_MALFORMED,
                         "it has %" PRId64 " bytes; allowed are at most %" PRId64
                         " (keep its weights in files beside it)",
                         (int64_t)about.st_size, max_file_bytes);
    *bytes = about.st_size;
    return true;
}

static bool unpack_model(onnx_import *import, const unsigned char *bytes, size_t n, int64_t size)
{
    const size_t most = (size_t)MAX_UNPACKED, given = ((size_t)16 << 20) + 8 * (size_t)size;
    unpacking u = {.allowed = given < most ? given : most};
    ProtobufCAllocator allocator = {unpacking_alloc, unpacking_free, &u};
    import->model = onnx__model__unpack(&allocator, n, bytes);
    if (import->model && import->model->graph) return true;
    if (u.is_out_of_memory) return onnx_no_memory(import);
    if (u.is_over)
        return onnx_fail(import, TANDEM_MALFORMED,
                         "its messages take more than %zu bytes of memory; allowed are 16 MiB and 8 times "
                         "the file's %" PRId64 " bytes, at most %d MiB",
                         u.allowed, size, MAX_UNPACKED >> 20);
    return onnx_fail_kind(import, size);
}

static bool check_versions(onnx_import *import)
{
    const Onnx__Model *const m = import->model;
    if (m->ir_version < 3 || m->ir_version > 13)
        return onnx_fail(import, TANDEM_WRONG_FORMAT, "its IR version is %" PRId64 "; allowed are 3 to 13",
                         m->ir_version);
    import->opset = onnx_domain_version(import, "");
    if (import->opset >= 7 && import->opset <= 18) return true;
    return onnx_fail(import, TANDEM_WRONG_FORMAT,
                     "its opset is %d; allowed are 7 to 18: export it with opset_version=17", import->opset);
}

/* Gives Constants that hold a list of numbers a tensor of them. */
static bool make_tensors_of_lists(onnx_import *import)
{
    const Onnx__Graph *const g = import->model->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_attribute; k++) {
            Onnx__Attribute *const a = g->node[i]->attribute[k];
            if (!a->name || strcmp(a->name, "value_floats") != 0 || !a->n_floats || a->t) continue;
            a->t = malloc(sizeof *a->t);
            if (!a->t) return onnx_no_memory(import);
            onnx__tensor__init(a->t);
            if (!(a->t->dims = malloc(sizeof *a->t->dims))) return onnx_no_memory(import);
            a->t->n_dims = 1, a->t->dims[0] = (int64_t)a->n_floats;
            a->t->has_data_type = 1, a->t->data_type = ONNX_FLOAT;
            a->t->n_float_data = a->n_floats, a->t->float_data = a->floats;
            a->n_floats = 0, a->floats = NULL;
        }
    return true;
}

const Onnx__Tensor *onnx_file_tensor(const onnx_import *import, int index)
{
    const Onnx__Graph *const g = import->model->graph;
    const size_t i = (size_t)index;
    if (index < 0 || i >= g->n_initializer + g->n_node) return NULL;
    if (i < g->n_initializer) return g->initializer[i];
    const Onnx__Node *const node = g->node[i - g->n_initializer];
    for (size_t k = 0; k < node->n_attribute; k++) {
        const Onnx__Attribute *const a = node->attribute[k];
        if (a->name && (strcmp(a->name, "value") == 0 || strcmp(a->name, "value_floats") == 0)) return a->t;
    }
    return NULL;
}

bool onnx_read_model(onnx_import *import)
{
    int64_t size = 0;
    size_t n = 0;
    unsigned char *bytes = NULL;
    const bool fine = open_regular(import, &size) && onnx_compact_file(import, size, &bytes, &n) &&
                      unpack_model(import, bytes, n, size) && check_versions(import) &&
                      make_tensors_of_lists(import);
    free(bytes);
    return fine;
}

void onnx_free_model(onnx_import *import)
{
    ProtobufCAllocator allocator = {unpacking_alloc, unpacking_free, NULL};
    if (import->model) onnx__model__free_unpacked(import->model, &allocator);
    if (import->file >= 0) close(import->file);
    import->model = NULL;
    import->file = -1;
}

/* --- Files beside it ------------------------------------------------------------------------------------ */

/* Opens a file in the model's folder, or below it. Neither its name nor a link leads out. */
static int open_beside(onnx_import *import, const char *location)
{
    char folder[4096], part[256];
    const char *const slash = strrchr(import->path, '/');
    const size_t length = slash ? (size_t)(slash - import->path) + 1 : 0;
    if (length + 1 >= sizeof folder) return errno = ENAMETOOLONG, -1;
    memcpy(folder, import->path, length);
    memcpy(folder + length, ".", 2);
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!*location || *location == '/') errno = EXDEV;
    if (!*location || *location == '/') goto refuse;
    while (at >= 0) {
        const size_t n = strcspn(location, "/");
        if (n == 0 || n >= sizeof part || (n == 2 && strncmp(location, "..", 2) == 0)) {
            errno = EXDEV;
            goto refuse;
        }
        memcpy(part, location, n);
        part[n] = '\0';
        location += n + (location[n] == '/');
        const int flags = *location ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK;
        const int next = openat(at, part, flags | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
        if (!*location) return at;
    }
    return -1;
refuse:
    if (at >= 0) close(at);
    errno = EXDEV;
    return -1;
}

static bool external_number(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *number >= 0;
}

/* Opens the file that a tensor names, in which its n bytes begin at *offset. −1: error set. */
static int open_external(onnx_import *import, const Onnx__Tensor *tensor, int64_t n, int64_t *offset)
{
    const char *location = "", *name = tensor->name ? tensor->name : "";
    int64_t length = n;
    bool fine = true;
    *offset = 0;
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const Onnx__Entry *const e = tensor->external_data[i];
        if (!e->key || !e->value) continue;
        if (strcmp(e->key, "location") == 0) location = e->value;
        if (strcmp(e->key, "offset") == 0) fine = fine && external_number(e->value, offset);
        if (strcmp(e->key, "length") == 0) fine = fine && external_number(e->value, &length);
    }
    if (!fine || length != n) {
        onnx_fail(import, TANDEM_MALFORMED,
                  "tensor '%.80s' has %" PRId64 " bytes by its shape, but offset or length of its part of "
                  "'%.80s' say otherwise",
                  name, n, location);
        return -1;
    }
    const int file = open_beside(import, location);
    struct stat about;
    if (file < 0 && (errno == EXDEV || errno == ELOOP || errno == ENOTDIR))
        onnx_fail(import, TANDEM_MALFORMED,
                  "the data of tensor '%.80s' are in '%.80s'; allowed are files in the model's folder, "
                  "without '..' and links",
                  name, location);
    else if (file < 0)
        onnx_fail(import, TANDEM_MALFORMED,
                  "the data of tensor '%.80s' are in '%.80s' beside it, which cannot be read: %s", name,
                  location, strerror(errno));
    if (file < 0) return -1;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && *offset <= about.st_size &&
        n <= about.st_size - *offset)
        return file;
    onnx_fail(import, TANDEM_MALFORMED,
              "tensor '%.80s' is %" PRId64 " bytes from byte %" PRId64
              " on of '%.80s', which is no file of so many",
              name, n, *offset, location);
    close(file);
    return -1;
}

/* --- Tensors -------------------------------------------------------------------------------------------- */

static int64_t type_bytes(int type)
{
    switch (type) {
    case ONNX_BOOL:
    case ONNX_UINT8:
    case ONNX_INT8: return 1;
    case ONNX_UINT16:
    case ONNX_INT16:
    case ONNX_FLOAT16:
    case ONNX_BFLOAT16: return 2;
    case ONNX_FLOAT:
    case ONNX_INT32:
    case ONNX_UINT32: return 4;
    case ONNX_DOUBLE:
    case ONNX_INT64:
    case ONNX_UINT64: return 8;
    default: return 0;
    }
}

bool onnx_tensor_elements(onnx_import *import, const Onnx__Tensor *tensor, int64_t *n)
{
    *n = 1;
    for (size_t d = 0; d < tensor->n_dims; d++)
        if (tensor->dims[d] < 0 || __builtin_mul_overflow(*n, tensor->dims[d], n) || *n >= INT64_C(1) << 40)
            return onnx_fail(import, TANDEM_MALFORMED,
                             "dimension %zu of tensor '%.80s' is %" PRId64
                             "; allowed are sizes from 0, and fewer "
                             "than 2^40 elements",
                             d, tensor->name ? tensor->name : "", tensor->dims[d]);
    return true;
}

static bool is_external(const Onnx__Tensor *t) { return t->data_location == 1 || t->n_external_data > 0; }

bool onnx_tensor_has_data(const Onnx__Tensor *t)
{
    return is_external(t) || t->own_bytes || t->raw_data.len || t->n_float_data || t->n_int32_data ||
           t->n_int64_data || t->n_double_data;
}

static double half_to_double(uint16_t half, bool is_bfloat)
{
    const uint32_t bits = (uint32_t)half << 16;
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float value;
    memcpy(&value, &bits, sizeof value);
    if (is_bfloat) return (double)value;
    const double size = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                        : exponent == 0 ? ldexp(fraction, -24)
                                        : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -size : size;
}

static double raw_element(const unsigned char *bytes, int64_t i, int type)
{
    union {
        uint8_t u8;
        int8_t s8;
        uint16_t u16;
        int16_t s16;
        uint32_t u32;
        int32_t s32;
        uint64_t u64;
        int64_t s64;
        float f32;
        double f64;
    } one = {0};
    const int64_t size = type_bytes(type);
    assert(bytes);
    memcpy(&one, bytes + i * size, (size_t)size);
    switch (type) {
    case ONNX_BOOL:
    case ONNX_UINT8: return one.u8;
    case ONNX_INT8: return one.s8;
    case ONNX_UINT16: return one.u16;
    case ONNX_INT16: return one.s16;
    case ONNX_FLOAT16:
    case ONNX_BFLOAT16: return half_to_double(one.u16, type == ONNX_BFLOAT16);
    case ONNX_FLOAT: return (double)one.f32;
    case ONNX_INT32: return one.s32;
    case ONNX_UINT32: return one.u32;
    case ONNX_DOUBLE: return one.f64;
    case ONNX_INT64: return (double)one.s64;
    case ONNX_UINT64: return (double)one.u64;
    default: return 0;
    }
}

/* Of the repeated field that the element type uses. */
static bool typed_element(const Onnx__Tensor *t, int64_t i, double *number)
{
    const size_t at = (size_t)i;
    switch (t->data_type) {
    case ONNX_FLOAT:
        *number = at < t->n_float_data ? (double)t->float_data[at] : 0;
        return at < t->n_float_data;
    case ONNX_DOUBLE: *number = at < t->n_double_data ? t->double_data[at] : 0; return at < t->n_double_data;
    case ONNX_INT64:
        *number = at < t->n_int64_data ? (double)t->int64_data[at] : 0;
        return at < t->n_int64_data;
    case ONNX_FLOAT16:
    case ONNX_BFLOAT16:
        *number = at < t->n_int32_data
                      ? half_to_double((uint16_t)t->int32_data[at], t->data_type == ONNX_BFLOAT16)
                      : 0;
        return at < t->n_int32_data;
    default: *number = at < t->n_int32_data ? t->int32_data[at] : 0; return at < t->n_int32_data;
    }
}

static size_t n_typed_elements(const Onnx__Tensor *t)
{
    switch (t->data_type) {
    case ONNX_FLOAT: return t->n_float_data;
    case ONNX_DOUBLE: return t->n_double_data;
    case ONNX_INT64: return t->n_int64_data;
    default: return t->n_int32_data;
    }
}

/* Data that compact.c left in the file: raw ones, or the packed numbers of floats, which lie as raw ones. */
static bool lies_in_file(const Onnx__Tensor *t)
{
    const int field = t->data_type == ONNX_FLOAT ? 4 : t->data_type == ONNX_DOUBLE ? 10 : 9;
    return t->own_bytes > 0 && (t->own_field == 9 || t->own_field == field);
}

/* Whether a tensor's data are as many as its shape says; a file beside it is opened, and not read. */
bool onnx_tensor_check(onnx_import *import, const Onnx__Tensor *tensor, int64_t n)
{
    const char *const name = tensor->name ? tensor->name : "";
    const int64_t bytes = type_bytes(tensor->data_type) * n;
    if (bytes == 0 && n > 0)
        return onnx_fail(import, TANDEM_MALFORMED, "tensor '%.80s' has element type %d; allowed are numbers",
                         name, tensor->data_type);
    if (is_external(tensor)) {
        int64_t offset;
        const int file = open_external(import, tensor, bytes, &offset);
        if (file >= 0) close(file);
        return file >= 0;
    }
    const int64_t raw = lies_in_file(tensor) ? tensor->own_bytes : (int64_t)tensor->raw_data.len;
    if (raw ? raw == bytes : (int64_t)n_typed_elements(tensor) == n) return true;
    return onnx_fail(import, TANDEM_MALFORMED,
                     "tensor '%.80s' has %" PRId64 " elements by its shape, and %" PRId64
                     " bytes or %zu numbers of data",
                     name, n, raw, n_typed_elements(tensor));
}

/* Numbers first … first + n − 1 of a file whose tensor begins at `offset`. */
static bool read_blocks(onnx_import *import, int file, int64_t offset, int type, int64_t first, int64_t n,
                        double *number, float *single)
{
    const int64_t size = type_bytes(type);
    assert(size > 0);
    const int64_t most = READ_BLOCK / size;
    unsigned char *const block = malloc(READ_BLOCK);
    bool fine = block || onnx_no_memory(import);
    for (int64_t i = 0; i < n && fine; i += most) {
        const int64_t some = n - i < most ? n - i : most;
        if (!read_exactly(file, block, (size_t)(some * size), offset + (first + i) * size))
            fine = onnx_fail(import, TANDEM_IO, "the data of a tensor cannot be read to their end");
        for (int64_t k = 0; k < some && fine; k++) {
            const double one = raw_element(block, k, type);
            if (number) number[i + k] = one;
            if (single) single[i + k] = (float)one;
        }
    }
    free(block);
    return fine;
}

bool onnx_tensor_read_part(onnx_import *import, const Onnx__Tensor *tensor, int64_t all, int64_t first,
                           int64_t n, double *number, float *single)
{
    const int type = tensor->data_type;
    if (is_external(tensor)) {
        int64_t offset;
        const int file = open_external(import, tensor, type_bytes(type) * all, &offset);
        const bool fine = file >= 0 && read_blocks(import, file, offset, type, first, n, number, single);
        if (file >= 0) close(file);
        return fine;
    }
    if (lies_in_file(tensor))
        return read_blocks(import, import->file, tensor->own_offset, type, first, n, number, single);
    for (int64_t i = 0; i < n; i++) {
        double one = 0;
        if (tensor->raw_data.len)
            one = raw_element(tensor->raw_data.data, first + i, type);
        else
            (void)typed_element(tensor, first + i, &one);
        if (number) number[i] = one;
        if (single) single[i] = (float)one;
    }
    return true;
}

bool onnx_tensor_read(onnx_import *import, const Onnx__Tensor *tensor, double *number, float *single,
                      int64_t n)
{
    return onnx_tensor_check(import, tensor, n) &&
           onnx_tensor_read_part(import, tensor, n, 0, n, number, single);
}
