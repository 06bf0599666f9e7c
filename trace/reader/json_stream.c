/* json_stream.c: the pull parser. It looks for quotes and brackets in 16 and 64 bytes at a time. */
#include "trace/reader/json_stream.h"

#include <emmintrin.h>
#include <stdio.h>
#include <string.h>

/* --- The window ----------------------------------------------------------------------------------------- */

/* Refills the window when *i has reached its end. Keeps the bytes from `at` on if `keep`, otherwise those
 * from *i on. Returns 0 at the end of the text and on an error. */
static int refill_json(tandem_json_stream *r, size_t *i, int keep)
{
    int got = 0;
    tandem_input *const input = r->input;
    if (!keep) input->at = *i;
    const size_t kept = *i - input->at;
    if (r->status == TANDEM_OK) r->status = tandem_input_refill(input, &got, r->error);
    *i = input->at + kept;
    return r->status == TANDEM_OK && got;
}

static tandem_status refuse_json_at(tandem_json_stream *r, size_t i, const char *why)
{
    if (r->status == TANDEM_OK)
        r->status = tandem_error_set(r->error, TANDEM_MALFORMED, "'%.200s', byte %llu: %s", r->input->source,
                                     (unsigned long long)(r->input->offset + i), why);
    return r->status;
}

static int is_json_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static int next_after_space(tandem_json_stream *r)
{
    size_t i = r->input->at;
    for (;;) {
        const unsigned char *const bytes = r->input->bytes;
        while (i < r->input->end && is_json_space(bytes[i])) i++;
        if (i < r->input->end) {
            r->input->at = i;
            return bytes[i];
        }
        if (!refill_json(r, &i, 0)) return -1;
    }
}

/* The next byte that is not white space, which stays unread; −1 at the end. */
static inline int next_json_byte(tandem_json_stream *r)
{
    const tandem_input *const input = r->input;
    if (input->at < input->end && !is_json_space(input->bytes[input->at])) return input->bytes[input->at];
    return next_after_space(r);
}

char tandem_json_stream_peek(tandem_json_stream *r)
{
    const int c = next_json_byte(r);
    return c < 0 ? 0 : (char)c;
}

tandem_status tandem_json_stream_expected(tandem_json_stream *r, const char *what)
{
    char why[160], got[24];
    const int c = next_json_byte(r);
    if (c >= 0) (void)snprintf(got, sizeof got, c >= 0x20 && c < 0x7f ? "'%c'" : "byte 0x%02x", (unsigned)c);
    (void)snprintf(why, sizeof why, "expected %s, got %s", what,
                   c >= 0 ? got : "the end of the text: it was cut off");
    return refuse_json_at(r, r->input->at, why);
}

tandem_status tandem_json_stream_wrong(tandem_json_stream *r, tandem_json_stream_slice got, const char *what)
{
    char why[200], shown[41] = "";
    for (size_t k = 0; k < got.n && k + 1 < sizeof shown; k++)
        shown[k] = got.text[k] >= 0x20 && got.text[k] < 0x7f ? got.text[k] : '?';
    (void)snprintf(why, sizeof why, "expected %s, got %s%s", what, shown, got.n < sizeof shown ? "" : "…");
    return refuse_json_at(r, (size_t)((const unsigned char *)got.text - r->input->bytes), why);
}

/* --- Scanning, 16 bytes at a time: the window has room after its end ------------------------------------ */

/* Index of the first quote or backslash from i on, or `end`. */
static size_t find_quote(const unsigned char *bytes, size_t i, size_t end)
{
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    for (; i < end; i += 16) {
        const __m128i block = _mm_loadu_si128((const __m128i *)(const void *)(bytes + i));
        const int found =
            _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)));
        if (found) {
            i += (size_t)__builtin_ctz((unsigned)found);
            break;
        }
    }
    return i < end ? i : end;
}

/* Bit k describes byte k of a block of 64. '[' and '{' differ by one bit, and so do ']' and '}'. */
typedef struct block_bits {
    uint64_t quote, backslash, open, close;
} block_bits;

static inline block_bits classify_block(const unsigned char *bytes)
{
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), open = _mm_set1_epi8('{'),
                  close = _mm_set1_epi8('}'), bit = _mm_set1_epi8(0x20);
    block_bits bits = {0, 0, 0, 0};
    for (int k = 0; k < 4; k++) {
        const __m128i block = _mm_loadu_si128((const __m128i *)(const void *)(bytes + 16 * k));
        const __m128i folded = _mm_or_si128(block, bit);
        bits.quote |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(block, quote)) << 16 * k;
        bits.backslash |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(block, backslash)) << 16 * k;
        bits.open |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(folded, open)) << 16 * k;
        bits.close |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(folded, close)) << 16 * k;
    }
    return bits;
}

/* Bit k: an odd number of quotes precede or are byte k. */
static inline uint64_t within_quotes(uint64_t quote)
{
    for (int shift = 1; shift < 64; shift *= 2) quote ^= quote << shift;
    return quote;
}

/* Moves *i from after the opening quote to the closing one. Returns 0 if the text ended first. */
static int scan_json_string(tandem_json_stream *r, size_t *i, int keep, int *escaped)
{
    for (;;) {
        *i = find_quote(r->input->bytes, *i, r->input->end);
        if (*i == r->input->end) {
            if (!refill_json(r, i, keep)) return 0;
            continue;
        }
        if (r->input->bytes[*i] == '"') return 1;
        *escaped = 1;
        if (++*i == r->input->end && !refill_json(r, i, keep)) return 0; /* an escaped byte ends nothing */
        ++*i;
    }
}

/* State of a scan through nested values. */
typedef struct nesting {
    uint64_t depth; /* of open brackets */
    int in_text;
} nesting;

/* Scans a block with escapes byte by byte. Returns the index after the outermost closing bracket, or
 * `past`, or `past` + 1. */
static size_t walk_escaped_block(nesting *n, const unsigned char *bytes, size_t i, size_t past)
{
    for (; i < past && n->depth; i++) {
        const unsigned char c = bytes[i];
        if (c == '"')
            n->in_text = !n->in_text;
        else if (n->in_text)
            i += c == '\\';
        else if (c == '{' || c == '[')
            n->depth++;
        else if (c == '}' || c == ']')
            n->depth--;
    }
    return i;
}

/* Moves *i from `depth` brackets deep to after the outermost closing bracket. Returns 0 if the text ended
 * first. */
static int scan_nested(tandem_json_stream *r, size_t *i, uint64_t depth, int keep)
{
    nesting n = {depth, 0};
    while (n.depth) {
        if (*i >= r->input->end) {
            /* an escaped byte beyond the window */
            const size_t beyond = *i - r->input->end;
            *i -= beyond;
            if (!refill_json(r, i, keep)) return 0;
            *i += beyond;
            continue;
        }
        const unsigned char *const bytes = r->input->bytes;
        const size_t left = r->input->end - *i, width = left < 64 ? left : 64;
        const uint64_t there = width < 64 ? (UINT64_C(1) << width) - 1 : ~UINT64_C(0);
        const block_bits bits = classify_block(bytes + *i);
        if (bits.backslash & there) {
            *i = walk_escaped_block(&n, bytes, *i, *i + width);
            continue;
        }
        const uint64_t text = within_quotes(bits.quote & there) ^ (n.in_text ? ~UINT64_C(0) : 0);
        size_t k = width;
        for (uint64_t brackets = (bits.open | bits.close) & ~text & there; brackets;
             brackets &= brackets - 1) {
            const int at = __builtin_ctzll(brackets);
            n.depth += bits.open >> at & 1 ? 1 : UINT64_MAX;
            if (n.depth) continue;
            k = (size_t)at + 1;
            break;
        }
        n.in_text = (int)(text >> (width - 1) & 1);
        *i += k;
    }
    return 1;
}

/* Scans a number or a word, to the first byte that cannot belong to it. */
static void scan_plain(tandem_json_stream *r, size_t *i, int keep)
{
    for (;;) {
        const unsigned char *const bytes = r->input->bytes;
        while (*i < r->input->end && bytes[*i] != ',' && bytes[*i] != '}' && bytes[*i] != ']' &&
               !is_json_space(bytes[*i]))
            ++*i;
        if (*i < r->input->end || !refill_json(r, i, keep)) return;
    }
}

static tandem_status scan_value(tandem_json_stream *r, int keep, size_t *past)
{
    int escaped, whole = 1;
    const int c = next_json_byte(r);
    size_t i = r->input->at;
    const uint64_t begin = r->input->offset + i;
    if (c < 0 || c == ',' || c == '}' || c == ']' || c == ':')
        return tandem_json_stream_expected(r, "a value");
    if (c == '"') {
        i++;
        whole = scan_json_string(r, &i, keep, &escaped);
        i++;
    } else if (c == '{' || c == '[') {
        i++;
        whole = scan_nested(r, &i, 1, keep);
    } else {
        scan_plain(r, &i, keep);
    }
    if (!whole) {
        char why[120];
        (void)snprintf(why, sizeof why,
                       "the text ends within the value that begins at byte %llu: it was cut off",
                       (unsigned long long)begin);
        return refuse_json_at(r, r->input->end, why);
    }
    *past = i;
    return r->status;
}

/* --- Structure ------------------------------------------------------------------------------------------ */

tandem_status tandem_json_stream_enter(tandem_json_stream *r, char bracket)
{
    const int c = next_json_byte(r);
    if (c != bracket)
        return tandem_json_stream_expected(r, bracket == '{' ? "'{', an object" : "'[', an array");
    if (r->depth == TANDEM_JSON_STREAM_DEPTH) return refuse_json_at(r, r->input->at, "nested too deeply");
    r->has_value[++r->depth] = 0;
    r->input->at++;
    return TANDEM_OK;
}

/* Before an element or member: *is_there is 1 and its comma is consumed, or 0 and the closing bracket is
 * consumed. */
static tandem_status next_item(tandem_json_stream *r, char bracket, const char *what, int *is_there)
{
    int c = next_json_byte(r);
    if (c == bracket) {
        r->depth--;
        r->input->at++;
        *is_there = 0;
        return TANDEM_OK;
    }
    if (r->has_value[r->depth]) {
        if (c != ',') return tandem_json_stream_expected(r, what);
        r->input->at++;
    }
    r->has_value[r->depth] = 1;
    *is_there = 1;
    return TANDEM_OK;
}

tandem_status tandem_json_stream_element(tandem_json_stream *r, int *is_there)
{
    return next_item(r, ']', "',' or ']'", is_there);
}

tandem_status tandem_json_stream_member(tandem_json_stream *r, tandem_json_stream_slice *name)
{
    int is_there = 0;
    tandem_status status = next_item(r, '}', "',' or '}'", &is_there);
    if (status != TANDEM_OK) return status;
    *name = (tandem_json_stream_slice){NULL, 0};
    if (!is_there) return TANDEM_OK;
    status = tandem_json_stream_text(r, "'\"', the name of a member", name);
    if (status != TANDEM_OK) return status;
    /* The name is usually still in the window. Refilling for the colon may move it. */
    tandem_input *const input = r->input;
    if (input->at < input->end && input->bytes[input->at] == ':') {
        input->at++;
        return TANDEM_OK;
    }
    size_t i = input->at;
    /* keeps the name in the window */
    input->at = (size_t)((const unsigned char *)name->text - input->bytes);
    for (;;) {
        while (i < input->end && is_json_space(input->bytes[i])) i++;
        if (i < input->end || !refill_json(r, &i, 1)) break;
    }
    name->text = (const char *)input->bytes + input->at;
    input->at = i;
    if (next_json_byte(r) != ':') return tandem_json_stream_expected(r, "':' after the name of a member");
    input->at++;
    return TANDEM_OK;
}

tandem_status tandem_json_stream_leave(tandem_json_stream *r)
{
    size_t i = r->input->at;
    if (!scan_nested(r, &i, 1, 0))
        return refuse_json_at(r, r->input->end, "the text ends within an object or array: it was cut off");
    r->input->at = i;
    r->depth--;
    return TANDEM_OK;
}

tandem_status tandem_json_stream_finish(tandem_json_stream *r)
{
    if (next_json_byte(r) < 0) return r->status;
    return tandem_json_stream_expected(r, "the end of the text");
}

/* --- Values --------------------------------------------------------------------------------------------- */

static unsigned parse_hex4(const unsigned char *text, const unsigned char *end)
{
    unsigned value = 0;
    if (end - text < 4) return 0xfffd;
    for (int k = 0; k < 4; k++) {
        const unsigned char c = text[k], lower = c | 0x20;
        if (c >= '0' && c <= '9')
            value = 16 * value + (unsigned)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = 16 * value + (unsigned)(lower - 'a' + 10);
        else
            return 0xfffd;
    }
    return value;
}

static unsigned char *put_utf8(unsigned char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (unsigned char)code;
    } else if (code < 0x800) {
        *to++ = (unsigned char)(0xc0 | code >> 6);
        *to++ = (unsigned char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (unsigned char)(0xe0 | code >> 12);
        *to++ = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (unsigned char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (unsigned char)(0xf0 | code >> 18);
        *to++ = (unsigned char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (unsigned char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* In place: an escape is never shorter than its meaning. Escapes unknown to JSON mean
 * themselves. */
static size_t unescape(unsigned char *text, size_t n)
{
    unsigned char *to = text;
    const unsigned char *at = text, *const end = text + n;
    while (at < end) {
        if (*at != '\\' || at + 1 == end) {
            *to++ = *at++;
            continue;
        }
        const unsigned char c = at[1];
        at += 2;
        static const char from[] = "bfnrt", meaning[] = "\b\f\n\r\t";
        const char *const known = c ? strchr(from, c) : NULL;
        if (known) {
            *to++ = (unsigned char)meaning[known - from];
        } else if (c == 'u') {
            unsigned code = parse_hex4(at, end);
            at += end - at < 4 ? end - at : 4;
            if (code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
                const unsigned low = parse_hex4(at + 2, end);
                if (low >= 0xdc00 && low < 0xe000) {
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                    at += 6;
                }
            }
            to = put_utf8(to, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
        } else {
            *to++ = c;
        }
    }
    return (size_t)(to - text);
}

tandem_status tandem_json_stream_text(tandem_json_stream *r, const char *what, tandem_json_stream_slice *text)
{
    int escaped = 0;
    if (next_json_byte(r) != '"') return tandem_json_stream_expected(r, what);
    size_t i = ++r->input->at;
    if (!scan_json_string(r, &i, 1, &escaped))
        return refuse_json_at(r, r->input->end, "the text ends within a string: it was cut off");
    unsigned char *const begin = r->input->bytes + r->input->at;
    size_t n = i - r->input->at;
    if (escaped) n = unescape(begin, n);
    *text = (tandem_json_stream_slice){(const char *)begin, n};
    r->input->at = i + 1;
    return TANDEM_OK;
}

tandem_status tandem_json_stream_raw(tandem_json_stream *r, tandem_json_stream_slice *raw)
{
    size_t past = 0;
    const tandem_status status = scan_value(r, 1, &past);
    if (status != TANDEM_OK) return status;
    *raw = (tandem_json_stream_slice){(const char *)r->input->bytes + r->input->at, past - r->input->at};
    r->input->at = past;
    return TANDEM_OK;
}

tandem_status tandem_json_stream_number(tandem_json_stream *r, const char *what,
                                        tandem_json_stream_slice *number)
{
    const int c = next_json_byte(r);
    if (c != '-' && (c < '0' || c > '9')) return tandem_json_stream_expected(r, what);
    return tandem_json_stream_raw(r, number);
}

tandem_status tandem_json_stream_skip(tandem_json_stream *r)
{
    size_t past = 0;
    const tandem_status status = scan_value(r, 0, &past);
    if (status == TANDEM_OK) r->input->at = past;
    return status;
}
