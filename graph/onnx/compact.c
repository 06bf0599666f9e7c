/* compact.c: an ONNX file without what the import does not read: fields of no use, and the data of large
 * tensors, which are replaced by their places in the file. So memory follows the graph, not the weights,
 * nor the holes of a file that promises them. Wire format: protobuf.dev, "Encoding". */
#include "graph/onnx/onnx_types.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, MAX_COMPACT = 96 << 20, SMALL_DATA = 4096, MAX_OPEN = 6, LENGTH_BYTES = 5 };
enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_BYTES = 2, WIRE_4_BYTES = 5 };
enum message { IS_MODEL, IS_GRAPH, IS_NODE, IS_ATTRIBUTE, IS_TENSOR, IS_VALUE, IS_DATA };

/* The fields that are kept (onnx.proto): IS_VALUE as they are, IS_DATA where they are small, messages without
 * what is not kept of them. */
static const struct {
    enum message of;
    uint32_t field;
    enum message is;
} kept[] = {
    {IS_MODEL, 1, IS_VALUE},      {IS_MODEL, 7, IS_GRAPH},     {IS_MODEL, 8, IS_VALUE},
    {IS_GRAPH, 1, IS_NODE},       {IS_GRAPH, 5, IS_TENSOR},    {IS_GRAPH, 11, IS_VALUE},
    {IS_GRAPH, 12, IS_VALUE},     {IS_GRAPH, 13, IS_VALUE},    {IS_NODE, 1, IS_VALUE},
    {IS_NODE, 2, IS_VALUE},       {IS_NODE, 3, IS_VALUE},      {IS_NODE, 4, IS_VALUE},
    {IS_NODE, 5, IS_ATTRIBUTE},   {IS_NODE, 7, IS_VALUE},      {IS_ATTRIBUTE, 1, IS_VALUE},
    {IS_ATTRIBUTE, 2, IS_VALUE},  {IS_ATTRIBUTE, 3, IS_VALUE}, {IS_ATTRIBUTE, 4, IS_VALUE},
    {IS_ATTRIBUTE, 5, IS_TENSOR}, {IS_ATTRIBUTE, 7, IS_VALUE}, {IS_ATTRIBUTE, 8, IS_VALUE},
    {IS_TENSOR, 1, IS_VALUE},     {IS_TENSOR, 2, IS_VALUE},    {IS_TENSOR, 4, IS_DATA},
    {IS_TENSOR, 5, IS_VALUE},     {IS_TENSOR, 7, IS_VALUE},    {IS_TENSOR, 8, IS_VALUE},
    {IS_TENSOR, 9, IS_DATA},      {IS_TENSOR, 10, IS_DATA},    {IS_TENSOR, 13, IS_VALUE},
    {IS_TENSOR, 14, IS_VALUE},
};

typedef struct open_message {
    enum message is;
    int64_t end;      /* in the file */
    size_t length_at; /* in what is written */
} open_message;

typedef struct compactor {
    onnx_import *import;
    int64_t at, size; /* in the file */
    unsigned char *block;
    int64_t block_at, n_block;
    unsigned char *out;
    size_t n, room;
    open_message open[MAX_OPEN];
    int n_open;
    bool is_broken; /* no wire format, or not all of it */
} compactor;

/* --- Reading -------------------------------------------------------------------------------------------- */

static bool load_block(compactor *c)
{
    ssize_t got;
    do got = pread(c->import->file, c->block, BLOCK, c->at);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return onnx_fail(c->import, TANDEM_IO, "it cannot be read to its end: it has changed, or %s",
                         got < 0 ? strerror(errno) : "it was cut");
    c->block_at = c->at;
    c->n_block = got;
    return true;
}

static bool next_byte(compactor *c, int64_t end, unsigned char *byte)
{
    if (c->at >= end) return c->is_broken = true, false;
    if ((c->at < c->block_at || c->at >= c->block_at + c->n_block) && !load_block(c)) return false;
    assert(c->block);
    *byte = c->block[c->at++ - c->block_at];
    return true;
}

static bool read_varint(compactor *c, int64_t end, uint64_t *value)
{
    unsigned char byte = 0x80;
    *value = 0;
    for (unsigned shift = 0; byte & 0x80; shift += 7) {
        if (shift >= 70) return c->is_broken = true, false;
        if (!next_byte(c, end, &byte)) return false;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
    }
    return true;
}

/* --- Writing -------------------------------------------------------------------------------------------- */

static bool reserve(compactor *c, uint64_t n)
{
    if (n <= c->room - c->n) return true;
    if (n > MAX_COMPACT || c->n + n > MAX_COMPACT)
        return onnx_fail(c->import, TANDEM_MALFORMED,
                         "without the data of its tensors it has more than %d MiB; allowed are as many. Keep "
                         "weights as raw_data, or in files beside it",
                         MAX_COMPACT >> 20);
    const size_t room = 2 * c->room + (size_t)n > MAX_COMPACT ? MAX_COMPACT : 2 * c->room + (size_t)n;
    unsigned char *const more = realloc(c->out, room);
    if (!more) return onnx_no_memory(c->import);
    c->out = more;
    c->room = room;
    return true;
}

static bool put_varint(compactor *c, uint64_t value)
{
    if (!reserve(c, 10)) return false;
    assert(c->out);
    for (; value >= 0x80; value >>= 7) c->out[c->n++] = (unsigned char)(value | 0x80);
    c->out[c->n++] = (unsigned char)value;
    return true;
}

static bool put_number(compactor *c, uint64_t field, uint64_t value)
{
    return put_varint(c, field << 3 | WIRE_VARINT) && put_varint(c, value);
}

static bool copy_bytes(compactor *c, uint64_t n)
{
    if (!reserve(c, n)) return false;
    for (uint64_t left = n; left > 0;) {
        if ((c->at < c->block_at || c->at >= c->block_at + c->n_block) && !load_block(c)) return false;
        const uint64_t here = (uint64_t)(c->block_at + c->n_block - c->at), some = here < left ? here : left;
        memcpy(c->out + c->n, c->block + (c->at - c->block_at), some);
        c->n += some, left -= some, c->at += (int64_t)some;
    }
    return true;
}

/* --- Fields --------------------------------------------------------------------------------------------- */

static bool find_kept(enum message of, uint64_t field, enum message *is)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i].of == of && kept[i].field == field) return *is = kept[i].is, true;
    return false;
}

static bool open_field(compactor *c, uint64_t key, enum message is, uint64_t n)
{
    if (!put_varint(c, key) || !reserve(c, LENGTH_BYTES)) return false;
    c->open[c->n_open++] = (open_message){is, c->at + (int64_t)n, c->n};
    c->n += LENGTH_BYTES;
    return true;
}

/* A length of always as many bytes, which are written when it is known. */
static void close_field(compactor *c)
{
    const open_message *const m = &c->open[--c->n_open];
    if (c->n_open == 0) return;
    size_t length = c->n - m->length_at - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++, length >>= 7)
        c->out[m->length_at + (size_t)i] =
            (unsigned char)((length & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

static bool pass_bytes(compactor *c, uint64_t key, bool is_kept, enum message is)
{
    uint64_t n;
    const int64_t end = c->open[c->n_open - 1].end;
    if (!read_varint(c, end, &n)) return false;
    if (n > (uint64_t)(end - c->at)) return c->is_broken = true, false;
    if (is_kept && is < IS_VALUE) return open_field(c, key, is, n);
    if (is_kept && (is == IS_VALUE || n <= SMALL_DATA))
        return put_varint(c, key) && put_varint(c, n) && copy_bytes(c, n);
    const uint64_t from = (uint64_t)c->at;
    c->at += (int64_t)n;
    return !is_kept || (put_number(c, 1001, from) && put_number(c, 1002, n) && put_number(c, 1003, key >> 3));
}

static bool pass_field(compactor *c)
{
    uint64_t key, value;
    enum message is = IS_VALUE;
    const open_message here = c->open[c->n_open - 1];
    if (!read_varint(c, here.end, &key)) return false;
    const bool is_kept = find_kept(here.is, key >> 3, &is);
    const int64_t bytes = (key & 7) == WIRE_8_BYTES ? 8 : 4;
    if (key >> 3 == 0) return c->is_broken = true, false;
    switch (key & 7) {
    case WIRE_VARINT:
        return read_varint(c, here.end, &value) && (!is_kept || (put_varint(c, key) && put_varint(c, value)));
    case WIRE_8_BYTES:
    case WIRE_4_BYTES:
        if (here.end - c->at < bytes) return c->is_broken = true, false;
        if (is_kept) return put_varint(c, key) && copy_bytes(c, (uint64_t)bytes);
        c->at += bytes;
        return true;
    case WIRE_BYTES: return pass_bytes(c, key, is_kept, is);
    default: return c->is_broken = true, false;
    }
}

bool onnx_compact_file(onnx_import *import, int64_t size, unsigned char **bytes, size_t *n)
{
    compactor c = {.import = import, .size = size, .block = malloc(BLOCK)};
    bool fine = c.block || onnx_no_memory(import);
    c.open[c.n_open++] = (open_message){IS_MODEL, size, 0};
    while (fine && c.n_open > 0) {
        if (c.at == c.open[c.n_open - 1].end)
            close_field(&c);
        else
            fine = pass_field(&c);
    }
    free(c.block);
    if (fine) {
        *bytes = c.out;
        *n = c.n;
        return true;
    }
    free(c.out);
    return c.is_broken ? onnx_fail_kind(import, size) : false;
}
