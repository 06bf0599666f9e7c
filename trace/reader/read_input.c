/* read_input.c: a moving window over a file or bytes in memory, inflated by zlib if they are gzip. */
#include "trace/reader/read_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/gzip_limit.h"

enum { PACKED_CAPACITY = 1 << 16, GZIP_WINDOW = 15 + 16 /* zlib: with a gzip header */ };
static const unsigned char gzip_magic[2] = {0x1f, 0x8b}, byte_order_mark[3] = {0xef, 0xbb, 0xbf};

struct tandem_input_source {
    int file; /* −1 = memory */
    const unsigned char *memory;
    size_t memory_left;
    uint64_t n_read, n_unpacked; /* bytes read from the file; bytes they inflate to */
    int is_started, is_packed, is_inflating;
    z_stream stream;
    unsigned char packed[PACKED_CAPACITY];
};

/* --- Opening -------------------------------------------------------------------------------------------- */

static tandem_status open_input_source(tandem_input *input, const char *source, tandem_error *error)
{
    tandem_input opened = {.source = source, .capacity = TANDEM_INPUT_WINDOW};
    opened.from = calloc(1, sizeof *opened.from);
    opened.bytes = malloc(TANDEM_INPUT_WINDOW + TANDEM_INPUT_PADDING);
    if (!opened.from || !opened.bytes) {
        free(opened.bytes);
        free(opened.from);
        return tandem_no_memory(error, "to read '%.200s'", source);
    }
    memset(opened.bytes, 0, TANDEM_INPUT_PADDING);
    opened.from->file = -1;
    *input = opened;
    return TANDEM_OK;
}

tandem_status tandem_input_open_bytes(tandem_input *input, const void *bytes, size_t n, const char *source,
                                      tandem_error *error)
{
    const tandem_status status = open_input_source(input, source, error);
    if (status != TANDEM_OK) return status;
    input->from->memory = bytes;
    input->from->memory_left = n;
    return TANDEM_OK;
}

/* Does not block, so that a FIFO without a writer is refused. */
static tandem_status open_regular_input(int *file, const char *path, tandem_error *error)
{
    struct stat about = {0};
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int code = opened < 0 || fstat(opened, &about) != 0 ? errno : S_ISDIR(about.st_mode) ? EISDIR : 0;
    if (code == 0 && S_ISREG(about.st_mode)) {
        *file = opened;
        return TANDEM_OK;
    }
    if (opened >= 0) (void)close(opened);
    if (code) return tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be read: %s", path, strerror(code));
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "'%.200s' is not a regular file; a trace is read more than once, and a pipe or a device may never "
        "end. Write it to a file and pass that",
        path);
}

tandem_status tandem_input_open(tandem_input *input, const char *path, tandem_error *error)
{
    int file = -1;
    tandem_status status = open_regular_input(&file, path, error);
    if (status == TANDEM_OK) status = open_input_source(input, path, error);
    if (status == TANDEM_OK)
        input->from->file = file;
    else if (file >= 0)
        (void)close(file);
    return status;
}

void tandem_input_close(tandem_input *input)
{
    if (input->from) {
        if (input->from->is_inflating) (void)inflateEnd(&input->from->stream);
        if (input->from->file >= 0) (void)close(input->from->file);
    }
    free(input->bytes);
    free(input->from);
    *input = (tandem_input){0};
}

/* --- Reading on ----------------------------------------------------------------------------------------- */

/* Reads up to `capacity` bytes of the file itself. */
static tandem_status read_source(tandem_input *input, void *to, size_t capacity, size_t *n,
                                 tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    if (from->file < 0) {
        *n = capacity < from->memory_left ? capacity : from->memory_left;
        if (*n) memcpy(to, from->memory, *n);
        from->memory += *n;
        from->memory_left -= *n;
    } else {
        ssize_t got;
        do got = read(from->file, to, capacity);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return tandem_error_set(error, TANDEM_IO, "'%.200s' cannot be read: %s", input->source,
                                    strerror(errno));
        *n = (size_t)got;
    }
    from->n_read += *n;
    return TANDEM_OK;
}

static tandem_status refuse_damaged_input(const tandem_input *input, const char *why, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED, "'%.200s', byte %llu: %s", input->source,
                            (unsigned long long)(input->from->n_read - input->from->stream.avail_in), why);
}

/* Refills `packed` if it is empty and the file has more. */
static tandem_status read_packed(tandem_input *input, tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    size_t n = 0;
    if (from->stream.avail_in > 0) return TANDEM_OK;
    const tandem_status status = read_source(input, from->packed, sizeof from->packed, &n, error);
    from->stream.next_in = from->packed;
    from->stream.avail_in = (uInt)n;
    return status;
}

/* Reads the first bytes as if compressed, to detect gzip. */
static tandem_status detect_gzip(tandem_input *input, tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    size_t n = 0, got = 1;
    while (n < sizeof gzip_magic && got > 0) {
        const tandem_status status =
            read_source(input, from->packed + n, sizeof from->packed - n, &got, error);
        if (status != TANDEM_OK) return status;
        n += got;
    }
    from->is_started = 1;
    from->stream.next_in = from->packed;
    from->stream.avail_in = (uInt)n;
    from->is_packed = n >= sizeof gzip_magic && memcmp(from->packed, gzip_magic, sizeof gzip_magic) == 0;
    if (from->is_packed && inflateInit2(&from->stream, GZIP_WINDOW) != Z_OK)
        return tandem_no_memory(error, "to read '%.200s'", input->source);
    from->is_inflating = from->is_packed;
    return TANDEM_OK;
}

/* After a gzip member comes another one, or the end of the file. */
static tandem_status next_gzip_member(tandem_input *input, tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    const tandem_status status = read_packed(input, error);
    if (status != TANDEM_OK) return status;
    if (from->stream.avail_in == 0) {
        (void)inflateEnd(&from->stream);
        from->is_inflating = 0;
    } else if (*from->stream.next_in != gzip_magic[0] || inflateReset(&from->stream) != Z_OK) {
        return refuse_damaged_input(
            input, "data after the end of the compressed data; expected the end of the file", error);
    }
    return TANDEM_OK;
}

static tandem_status inflate_packed(tandem_input *input, unsigned char *to, size_t capacity, size_t *n,
                                    tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    *n = 0;
    while (*n == 0 && from->is_inflating) {
        tandem_status status = read_packed(input, error);
        if (status != TANDEM_OK) return status;
        if (from->stream.avail_in == 0)
            return refuse_damaged_input(input, "the file ends within compressed data; it was cut off", error);
        from->stream.next_out = to;
        from->stream.avail_out = (uInt)capacity;
        const int code = inflate(&from->stream, Z_NO_FLUSH);
        *n = capacity - from->stream.avail_out;
        if (code == Z_MEM_ERROR) return tandem_no_memory(error, "to read '%.200s'", input->source);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return refuse_damaged_input(input, "the compressed data are damaged", error);
        from->n_unpacked += *n;
        if (tandem_gzip_exceeds_limit(from->n_unpacked, from->n_read))
            return refuse_damaged_input(input, TANDEM_GZIP_LIMIT_TEXT, error);
        if (code == Z_STREAM_END) status = next_gzip_member(input, error);
        if (status != TANDEM_OK) return status;
    }
    return TANDEM_OK;
}

/* Plain text: first what detect_gzip read ahead, then the file. */
static tandem_status copy_plain(tandem_input *input, unsigned char *to, size_t capacity, size_t *n,
                                tandem_error *error)
{
    struct tandem_input_source *const from = input->from;
    if (from->stream.avail_in == 0) return read_source(input, to, capacity, n, error);
    *n = capacity < from->stream.avail_in ? capacity : from->stream.avail_in;
    memcpy(to, from->stream.next_in, *n);
    from->stream.next_in += *n;
    from->stream.avail_in -= (uInt)*n;
    return TANDEM_OK;
}

/* Reads on after `end`. */
static tandem_status refill_window(tandem_input *input, size_t *n, tandem_error *error)
{
    unsigned char *const to = input->bytes + input->end;
    const tandem_status status = (input->from->is_packed ? inflate_packed : copy_plain)(
        input, to, input->capacity - input->end, n, error);
    if (status == TANDEM_OK) input->end += *n;
    return status;
}

static tandem_status skip_byte_order_mark(tandem_input *input, tandem_error *error)
{
    size_t n = 1;
    tandem_status status = TANDEM_OK;
    while (status == TANDEM_OK && n > 0 && input->end < sizeof byte_order_mark &&
           input->end < input->capacity)
        status = refill_window(input, &n, error);
    if (input->end >= sizeof byte_order_mark &&
        memcmp(input->bytes, byte_order_mark, sizeof byte_order_mark) == 0)
        input->at = sizeof byte_order_mark;
    return status;
}

tandem_status tandem_input_refill(tandem_input *input, int *got, tandem_error *error)
{
    const int is_first = !input->from->is_started;
    tandem_status status = is_first ? detect_gzip(input, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    const size_t kept = input->end - input->at;
    size_t n = 0;
    if (kept == input->capacity)
        return tandem_error_set(
            error, TANDEM_MALFORMED, "'%.200s', byte %llu: one value or line is longer than %zu bytes",
            input->source, (unsigned long long)(input->offset + input->at), input->capacity);
    if (kept && input->at) memmove(input->bytes, input->bytes + input->at, kept);
    input->offset += input->at;
    input->at = 0;
    input->end = kept;
    status = refill_window(input, &n, error);
    if (status == TANDEM_OK && is_first) status = skip_byte_order_mark(input, error);
    if (status != TANDEM_OK) return status;
    memset(input->bytes + input->end, 0, TANDEM_INPUT_PADDING);
    *got = n > 0;
    return TANDEM_OK;
}

tandem_status tandem_input_read_line(tandem_input *input, const char **line, size_t *n, tandem_error *error)
{
    size_t seen = 0; /* bytes from `at` on without a line end */
    int got = 1;
    for (;;) {
        const unsigned char *const from = input->bytes + input->at;
        const unsigned char *const end = memchr(from + seen, '\n', input->end - input->at - seen);
        if (end || !got) {
            const size_t length = end ? (size_t)(end - from) : input->end - input->at;
            const int is_last = !end && length == 0;
            *line = is_last ? NULL : (const char *)from;
            *n = length > 0 && from[length - 1] == '\r' ? length - 1 : length;
            input->at += length + (end ? 1 : 0);
            return TANDEM_OK;
        }
        seen = input->end - input->at;
        const tandem_status status = tandem_input_refill(input, &got, error);
        if (status != TANDEM_OK) return status;
    }
}

/* --- Times ---------------------------------------------------------------------------------------------- */

static const int64_t max_ns = INT64_C(1) << 61;

/* digits · 10^exponent, rounded half away from 0; −1 beyond max_ns. */
static int64_t scale_decimal(uint64_t digits, long exponent)
{
    if (digits == 0 || exponent < -20) return 0; /* fewer than 20 digits are kept */
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(digits, 10u, &digits) || digits > (uint64_t)max_ns) return -1;
    for (; exponent < -1; exponent++) digits /= 10;
    if (exponent == -1) digits = digits / 10 + (digits % 10 >= 5);
    return digits > (uint64_t)max_ns ? -1 : (int64_t)digits;
}

int tandem_input_parse_us(int64_t *ns, const char *text, size_t n)
{
    const char *at = text, *const end = text + n;
    const int is_negative = at < end && *at == '-';
    uint64_t digits = 0;
    long exponent = 3; /* µs → ns */
    int n_digit = 0, kept = 0, in_fraction = 0;
    if (at < end && (*at == '-' || *at == '+')) at++;
    for (; at < end && ((*at >= '0' && *at <= '9') || (*at == '.' && !in_fraction)); at++) {
        if (*at == '.') {
            in_fraction = 1;
            continue;
        }
        n_digit++;
        const int is_kept = kept < 19;
        if (is_kept) digits = 10 * digits + (uint64_t)(*at - '0');
        if (is_kept && digits > 0) kept++;
        exponent += (is_kept ? 0 : 1) - in_fraction;
    }
    if (n_digit == 0) return -1;
    if (at < end && (*at == 'e' || *at == 'E')) {
        long power = 0;
        const int is_small = ++at < end && *at == '-';
        if (at < end && (*at == '-' || *at == '+')) at++;
        if (at == end) return -1;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            if (power < 100000) power = 10 * power + (*at - '0');
        exponent += is_small ? -power : power;
    }
    if (at < end) return -1;
    const int64_t value = scale_decimal(digits, exponent);
    if (value < 0) return -2;
    *ns = is_negative ? -value : value;
    return 0;
}

int tandem_input_clamp_duration(int64_t *duration_ns, int64_t *n_negative)
{
    if (*duration_ns < INT64_C(-10000000) || *duration_ns > INT64_C(1) << 53) return 0;
    if (*duration_ns < 0) {
        *duration_ns = 0;
        ++*n_negative;
    }
    return 1;
}
