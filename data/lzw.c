/* lzw.c: a stream of codes, each of which is a text seen before and one more byte. */
#include "data/lzw.h"

#include <stdlib.h>

enum { FIRST_BITS = 9, LAST_BITS = 16, CLEAR = 256, N_CODE = 1 << LAST_BITS, CODES_OF_GROUP = 8 };

typedef struct lzw_tables {
    uint16_t prefix[N_CODE]; /* code of a text without its last byte */
    uint8_t last[N_CODE];    /* that byte */
    uint8_t reversed[N_CODE];
} lzw_tables;

typedef struct lzw_codes {
    const uint8_t *from;
    uint64_t bit, group, end; /* of the next code, of the group that it is in, of the stream */
    int width;                /* bits of a code */
} lzw_codes;

/* Codes come in groups of eight. Where the width changes, the rest of a group is left out. */
static void set_code_width(lzw_codes *codes, int width)
{
    const uint64_t group_bits = (uint64_t)CODES_OF_GROUP * (uint64_t)codes->width;
    codes->bit = codes->group + (codes->bit - codes->group + group_bits - 1) / group_bits * group_bits;
    codes->group = codes->bit;
    codes->width = width;
}

/* −1: the stream has ended. */
static int next_code(lzw_codes *codes)
{
    int code = 0;
    if (codes->bit + (uint64_t)codes->width > codes->end) return -1;
    for (int i = 0; i < codes->width; i++, codes->bit++)
        code |= (codes->from[codes->bit / 8] >> (codes->bit % 8) & 1) << i;
    return code;
}

/* Writes the text of a code backwards; its length. */
static int reverse_text(lzw_tables *t, int code)
{
    int n = 0;
    for (; code > CLEAR; code = t->prefix[code]) t->reversed[n++] = t->last[code];
    t->reversed[n++] = (uint8_t)code;
    return n;
}

static tandem_status unpack_codes(uint8_t *to, size_t room, size_t *n, lzw_codes *codes, lzw_tables *t,
                                  tandem_error *error)
{
    size_t written = 0;
    int n_code = CLEAR + 1, previous = -1, first = 0, code;
    for (;;) {
        if (n_code >= 1 << codes->width && codes->width < LAST_BITS) set_code_width(codes, codes->width + 1);
        if ((code = next_code(codes)) < 0) break;
        if (code == CLEAR) {
            set_code_width(codes, FIRST_BITS);
            n_code = CLEAR + 1;
            previous = -1;
            continue;
        }
        /* the next new code is the text before, followed by its own first byte */
        const int is_new = code == n_code && previous >= 0;
        if (!is_new && (code >= n_code || (previous < 0 && code > CLEAR)))
            return tandem_error_set(error, TANDEM_MALFORMED, "a packed text has code %d, of %d", code,
                                    n_code);
        const int length = reverse_text(t, is_new ? previous : code);
        if ((size_t)length + (size_t)is_new > room - written)
            return tandem_error_set(error, TANDEM_MALFORMED, "a packed text has more than %zu bytes", room);
        first = t->reversed[length - 1];
        for (int i = length; i > 0; i--) to[written++] = t->reversed[i - 1];
        if (is_new) to[written++] = (uint8_t)first;
        if (previous >= 0 && n_code < N_CODE) {
            t->prefix[n_code] = (uint16_t)previous;
            t->last[n_code++] = (uint8_t)first;
        }
        previous = code;
    }
    *n = written;
    return TANDEM_OK;
}

tandem_status tandem_lzw_unpack(uint8_t *to, size_t room, size_t *n, const uint8_t *from, size_t n_from,
                                tandem_error *error)
{
    lzw_codes codes = {.from = from, .end = (uint64_t)n_from * 8, .width = FIRST_BITS};
    lzw_tables *const tables = malloc(sizeof *tables);
    if (!tables) return tandem_no_memory(error, "for the codes of a packed text");
    const tandem_status status = unpack_codes(to, room, n, &codes, tables, error);
    free(tables);
    return status;
}
