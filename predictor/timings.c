/* timings.c: reads tables of measured operator times (timings.h). */
#include "tandem/advanced/timings.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/plain_text.h"

/* --- Columns -------------------------------------------------------------------------------------------- */

enum { MAX_COLUMNS = 64 };
typedef enum column_type { COLUMN_TEXT, COLUMN_SIZE, COLUMN_PAD, COLUMN_PASS, COLUMN_TIME } column_type;

static const struct table_column {
    const char *name;
    column_type type;
    size_t member; /* of tandem_timing */
    double unit;   /* of a time, in ns */
} known_columns[] = {
#define TEXT(name, member)                                                                                   \
    {                                                                                                        \
        name, COLUMN_TEXT, offsetof(tandem_timing, member), 0                                                \
    }
#define SIZE(name)                                                                                           \
    {                                                                                                        \
#name, COLUMN_SIZE, offsetof(tandem_timing, name), 0                                                 \
    }
#define WINDOW(name)                                                                                         \
    {                                                                                                        \
#name, COLUMN_SIZE, offsetof(tandem_timing, convolution.name), 0                                     \
    }
    TEXT("device", device),
    TEXT("source", source),
    TEXT("method", method),
    TEXT("operator", kind),
    TEXT("precision", precision),
    TEXT("group", group),
    TEXT("algorithm", algorithm),
    {"pass", COLUMN_PASS, offsetof(tandem_timing, pass), 0},
    SIZE(batch),
    SIZE(m),
    SIZE(k),
    SIZE(n),
    SIZE(rows),
    SIZE(columns),
    SIZE(repeats),
    WINDOW(images),
    WINDOW(channels_in),
    WINDOW(height),
    WINDOW(width),
    WINDOW(channels_out),
    WINDOW(kernel_h),
    WINDOW(kernel_w),
    {"pad_h", COLUMN_PAD, offsetof(tandem_timing, convolution.pad_h), 0},
    {"pad_w", COLUMN_PAD, offsetof(tandem_timing, convolution.pad_w), 0},
    WINDOW(stride_h),
    WINDOW(stride_w),
    {"time_ns", COLUMN_TIME, offsetof(tandem_timing, time_ns), 1},
    {"time_us", COLUMN_TIME, offsetof(tandem_timing, time_ns), 1e3},
    {"time_ms", COLUMN_TIME, offsetof(tandem_timing, time_ns), 1e6},
#undef WINDOW
#undef SIZE
#undef TEXT
};
enum { N_KNOWN_COLUMN = sizeof known_columns / sizeof *known_columns };

typedef struct timing_reader {
    FILE *stream;
    const char *name; /* in errors */
    int64_t line;
    char text[TANDEM_TIMING_LINE];
    char *field[MAX_COLUMNS];
    int n_field, n_column;
    int column[MAX_COLUMNS]; /* of known_columns; −1 = skipped */
    tandem_timing blank;     /* what a row begins with: the header's constants */
    int64_t n_row, count;    /* of the table; as its header says, or −1 */
    tandem_error *error;
} timing_reader;

/* --- Lines ---------------------------------------------------------------------------------------------- */

static tandem_status next_any_line(timing_reader *r, int *more)
{
    *more = fgets(r->text, sizeof r->text, r->stream) != NULL;
    if (!*more)
        return ferror(r->stream)
                   ? tandem_error_set(r->error, TANDEM_IO, "cannot read '%s': %s", r->name, strerror(errno))
                   : TANDEM_OK;
    r->line++;
    const size_t n = strlen(r->text);
    if (n + 1 == sizeof r->text && r->text[n - 1] != '\n')
        return tandem_error_set(r->error, TANDEM_MALFORMED,
                                "%s, line %lld has more than %d bytes, or a byte of 0", r->name,
                                (long long)r->line, TANDEM_TIMING_LINE - 2);
    if (n > 0 && r->text[n - 1] != '\n' && !feof(r->stream))
        return tandem_error_set(r->error, TANDEM_MALFORMED, "%s, line %lld has a byte of 0", r->name,
                                (long long)r->line);
    return TANDEM_OK;
}

/* Lines that begin with # are for readers. */
static tandem_status next_line(timing_reader *r, int *more)
{
    tandem_status status;
    do status = next_any_line(r, more);
    while (status == TANDEM_OK && *more && r->text[0] == '#');
    return status;
}

/* Takes one field out of *at, quotes removed in place; *at is after its comma, or NULL at the line's end. */
static char *take_field(char **at)
{
    char *const begin = *at, *to = begin, *from = begin;
    int is_quoted = *from == '"';
    if (is_quoted)
        for (from++; *from && *from != '\n'; *to++ = *from++)
            if (*from == '"' && *++from != '"') {
                is_quoted = 0;
                break;
            }
    if (is_quoted) return NULL;
    while (*from && *from != ',' && *from != '\r' && *from != '\n') *to++ = *from++;
    if (*from == '\r' && from[1] != '\n' && from[1] != '\0') return NULL;
    *at = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return begin;
}

static tandem_status split_line(timing_reader *r)
{
    char *at = r->text;
    if (r->line == 1 && strncmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
    for (r->n_field = 0; at && r->n_field < MAX_COLUMNS; r->n_field++) {
        r->field[r->n_field] = take_field(&at);
        if (!r->field[r->n_field])
            return tandem_error_set(
                r->error, TANDEM_MALFORMED,
                "%s, line %lld: a quote is not closed, or a carriage return is within the line", r->name,
                (long long)r->line);
    }
    if (at)
        return tandem_error_set(r->error, TANDEM_MALFORMED, "%s, line %lld has more than %d fields", r->name,
                                (long long)r->line, MAX_COLUMNS);
    return TANDEM_OK;
}

/* --- Values --------------------------------------------------------------------------------------------- */

static tandem_status refuse_field(const timing_reader *r, const struct table_column *column, const char *got,
                                  const char *allowed)
{
    return tandem_error_set(r->error, TANDEM_MALFORMED, "%s, line %lld: %s must be %s, got '%.40s'", r->name,
                            (long long)r->line, column->name, allowed, got);
}

static tandem_status read_pass(tandem_pass *pass, const timing_reader *r, const struct table_column *column,
                               const char *text)
{
    for (int p = 0; p < TANDEM_N_PASS; p++)
        if (strcmp(tandem_pass_name((tandem_pass)p), text) == 0) {
            *pass = (tandem_pass)p;
            return TANDEM_OK;
        }
    return refuse_field(r, column, text, "forward, dgrad, wgrad or update");
}

/* As strtod, which is slower, does: the digits and the power of ten are exact in double, so that their
 * quotient is the nearest one (Clinger, "How to Read Floating Point Numbers Accurately", PLDI 1990). */
static double read_size_or_time(const char *text, char **end)
{
    enum { MAX_DIGITS = 15 };
    const char *at = text;
    double digits = 0, scale = 1;
    for (; *at >= '0' && *at <= '9'; at++) digits = 10 * digits + (*at - '0');
    const ptrdiff_t n_whole = at - text;
    if (n_whole > 0 && *at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++) digits = 10 * digits + (*at - '0'), scale *= 10;
    if (n_whole == 0 || *at || at - text > MAX_DIGITS) return tandem_plain_read(text, end);
    *end = (char *)(uintptr_t)at;
    return digits / scale;
}

static tandem_status read_timing_number(double *to, const timing_reader *r, const struct table_column *column,
                                        const char *text)
{
    char *end = NULL;
    const double max_size = 9007199254740992.0, max_ns = 1e15;
    const double x = read_size_or_time(text, &end);
    /* strtod also takes "inf", "nan", hexadecimal digits and leading spaces */
    if (end == text || *end || strspn(text, "0123456789.eE+-") != strlen(text))
        return refuse_field(r, column, text, "a number");
    if (column->type == COLUMN_TIME) {
        if (!(x > 0) || x * column->unit > max_ns)
            return refuse_field(r, column, text, "a time above 0 and at most 1e15 ns");
        *to = x * column->unit;
        return TANDEM_OK;
    }
    if (x != floor(x) || x > max_size || x < (column->type == COLUMN_PAD ? 0 : 1))
        return refuse_field(r, column, text,
                            column->type == COLUMN_PAD ? "a whole number from 0 to 2^53"
                                                       : "a whole number from 1 to 2^53");
    *to = x;
    return TANDEM_OK;
}

static tandem_status read_value(tandem_timing *timing, const timing_reader *r, int known, const char *text)
{
    if (known < 0 || !*text) return TANDEM_OK;
    const struct table_column *const column = &known_columns[known];
    char *const to = (char *)timing + column->member;
    if (column->type == COLUMN_TEXT) {
        const size_t n = strnlen(text, TANDEM_TIMING_TEXT - 1);
        memcpy(to, text, n);
        to[n] = '\0';
        return TANDEM_OK;
    }
    if (column->type == COLUMN_PASS) return read_pass(&timing->pass, r, column, text);
    double number = 0;
    const tandem_status status = read_timing_number(&number, r, column, text);
    if (status == TANDEM_OK) memcpy(to, &number, sizeof number);
    return status;
}

/* --- Header --------------------------------------------------------------------------------------------- */

static int find_column(const char *name)
{
    for (int i = 0; i < N_KNOWN_COLUMN; i++)
        if (strcmp(known_columns[i].name, name) == 0) return i;
    return -1;
}

static tandem_status refuse_header(const timing_reader *r, const char *format, const char *name)
{
    char text[256];
    (void)snprintf(text, sizeof text, format, name);
    return tandem_error_set(r->error, TANDEM_MALFORMED, "%s, line %lld: %s", r->name, (long long)r->line,
                            text);
}

/* What a header has said so far. */
typedef struct header_state {
    int n_time, seen[N_KNOWN_COLUMN];
} header_state;

/* "count=112" is how many rows the table has: one that was cut has fewer. */
static tandem_status read_count(timing_reader *r, const char *text)
{
    char *end = NULL;
    const double count = tandem_plain_read(text, &end);
    if (end == text || *end || !(count >= 0 && count <= 1e9) || count != floor(count))
        return refuse_header(r, "count= must be a whole number from 0 to 1e9, got '%.40s'", text);
    r->count = (int64_t)count;
    return TANDEM_OK;
}

/* One name of a header, or a constant of its table: "name=value". */
static tandem_status read_header_field(timing_reader *r, header_state *header, char *name)
{
    char *const value = strchr(name, '=');
    if (value) *value = '\0';
    if (strcmp(name, "time") == 0)
        return refuse_header(r, "the column '%s' has no unit: time_ns, time_us or time_ms", name);
    if (value && strcmp(name, "count") == 0) return read_count(r, value + 1);
    const int known = find_column(name);
    if (!value) r->column[r->n_column++] = known;
    if (known < 0) return TANDEM_OK;
    if (header->seen[known]++) return refuse_header(r, "the column '%.40s' is there twice", name);
    if (known_columns[known].type == COLUMN_TIME && ++header->n_time > 1)
        return refuse_header(r, "two columns of times, '%.40s' is the second; keep one", name);
    return value ? read_value(&r->blank, r, known, value + 1) : TANDEM_OK;
}

/* The names of the columns, from the line that was split. */
static tandem_status read_header(timing_reader *r, int needs_times)
{
    header_state header = {.n_time = 0};
    tandem_status status = TANDEM_OK;
    r->blank = (tandem_timing){.repeats = 1};
    r->n_column = 0, r->n_row = 0, r->count = -1;
    for (int i = 0; i < r->n_field && status == TANDEM_OK; i++)
        status = read_header_field(r, &header, r->field[i]);
    if (status != TANDEM_OK) return status;
    const int has_operator = header.seen[find_column("operator")];
    if (!has_operator) memcpy(r->blank.kind, "conv2d", sizeof "conv2d");
    if (!has_operator && !header.seen[find_column("images")])
        return refuse_header(r, "no column '%s', and none of convolutions", "operator");
    if (needs_times && header.n_time == 0)
        return refuse_header(r, "no column of times: time_ns, time_us or time_ms%s", "");
    return TANDEM_OK;
}

static tandem_status read_first_header(timing_reader *r, int needs_times)
{
    int more = 0;
    tandem_status status = next_line(r, &more);
    if (status == TANDEM_OK && !more) r->line++;
    if (status == TANDEM_OK && !more)
        return refuse_header(r, "expected the names of the columns, got nothing%s", "");
    if (status == TANDEM_OK) status = split_line(r);
    return status == TANDEM_OK ? read_header(r, needs_times) : status;
}

static tandem_status check_count(const timing_reader *r)
{
    if (r->count < 0 || r->n_row == r->count) return TANDEM_OK;
    return tandem_error_set(r->error, TANDEM_MALFORMED,
                            "%s, line %lld: the table that ends here has %lld rows, its header says "
                            "count=%lld: it is cut, or rows were added. Take the whole file",
                            r->name, (long long)r->line, (long long)r->n_row, (long long)r->count);
}

/* --- Rows ----------------------------------------------------------------------------------------------- */

static int is_blank_line(const timing_reader *r) { return r->n_field == 1 && !*r->field[0]; }

static tandem_status read_row(timing_reader *r, tandem_timing *timing)
{
    if (r->n_field != r->n_column)
        return tandem_error_set(r->error, TANDEM_MALFORMED, "%s, line %lld has %d fields, its header %d",
                                r->name, (long long)r->line, r->n_field, r->n_column);
    *timing = r->blank;
    timing->line = r->line;
    r->n_row++;
    tandem_status status = TANDEM_OK;
    for (int i = 0; i < r->n_field && status == TANDEM_OK; i++)
        status = read_value(timing, r, r->column[i], r->field[i]);
    return status;
}

/* A line that begins with a constant device is the header of another table. */
static int begins_table(const timing_reader *r)
{
    return strncmp(r->text, "device=", strlen("device=")) == 0;
}

static tandem_status begin_table(timing_reader *r, int needs_times)
{
    tandem_status status = check_count(r);
    if (status == TANDEM_OK) status = split_line(r);
    return status == TANDEM_OK ? read_header(r, needs_times) : status;
}

/* What is wrong with a row's content does not say where the row is. */
static tandem_status place_error(const timing_reader *r, tandem_status status)
{
    const int is_of_row = status == TANDEM_MALFORMED || status == TANDEM_USAGE || status == TANDEM_MISSING ||
                          status == TANDEM_UNKNOWN_NAME || status == TANDEM_NO_DEVICE;
    if (!is_of_row || !r->error) return status;
    const tandem_error what = *r->error;
    return tandem_error_set(r->error, status, "%s, line %lld: %s", r->name, (long long)r->line, what.text);
}

tandem_status tandem_timings_read(FILE *stream, const char *name, int needs_times,
                                  tandem_timing_visitor *visit, void *context, tandem_error *error)
{
    timing_reader *const r = calloc(1, sizeof *r);
    if (!r) return tandem_no_memory(error, "to read '%s'", name);
    r->stream = stream, r->name = name, r->error = error;
    tandem_status status = read_first_header(r, needs_times);
    for (int more = 1; status == TANDEM_OK;) {
        tandem_timing timing;
        status = next_line(r, &more);
        if (status == TANDEM_OK && !more) status = check_count(r);
        if (status != TANDEM_OK || !more) break;
        if (begins_table(r)) {
            status = begin_table(r, needs_times);
            continue;
        }
        status = split_line(r);
        if (status == TANDEM_OK && is_blank_line(r)) continue;
        if (status == TANDEM_OK) status = read_row(r, &timing);
        if (status == TANDEM_OK) status = place_error(r, visit(context, &timing, error));
    }
    free(r);
    return status;
}

tandem_status tandem_timings_read_file(const char *path, int needs_times, tandem_timing_visitor *visit,
                                       void *context, tandem_error *error)
{
    FILE *const stream = fopen(path, "r");
    if (!stream) return tandem_error_set(error, TANDEM_IO, "cannot open '%s': %s", path, strerror(errno));
    const tandem_status status = tandem_timings_read(stream, path, needs_times, visit, context, error);
    (void)fclose(stream);
    return status;
}

/* --- What a row means ----------------------------------------------------------------------------------- */

/* How often an operator of streams reads or writes each element; operations per element. `addu`, `mulu`,
 * `divu` and `powu` take a scalar as second operand. */
static const struct {
    const char *name;
    double accesses, flops;
    tandem_work_class work_class;
} stream_operators[] = {
    {"add", 3, 1, TANDEM_WORK_STREAM},      {"addu", 2, 1, TANDEM_WORK_STREAM},
    {"mul", 3, 1, TANDEM_WORK_STREAM},      {"mulu", 2, 1, TANDEM_WORK_STREAM},
    {"div", 3, 4, TANDEM_WORK_STREAM},      {"divu", 2, 4, TANDEM_WORK_STREAM},
    {"pow", 3, 20, TANDEM_WORK_STREAM},     {"powu", 2, 20, TANDEM_WORK_STREAM},
    {"relu", 2, 1, TANDEM_WORK_STREAM},     {"gelu", 2, 8, TANDEM_WORK_STREAM},
    {"tanh", 2, 8, TANDEM_WORK_STREAM},     {"copy", 2, 0, TANDEM_WORK_STREAM},
    {"softmax", 2, 6, TANDEM_WORK_SOFTMAX}, {"layernorm", 2, 7, TANDEM_WORK_LAYERNORM},
};
enum { N_STREAM_OPERATOR = sizeof stream_operators / sizeof *stream_operators };

static tandem_status refuse_timing_kind(const char *name, tandem_error *error)
{
    const char *names[N_STREAM_OPERATOR + 3] = {"linear", "matmul", "conv2d"};
    for (int i = 0; i < N_STREAM_OPERATOR; i++) names[i + 3] = stream_operators[i].name;
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME, "there is no operator '%s'.%s", name,
                            tandem_nearest_hint(name, names, N_STREAM_OPERATOR + 3).text);
}

static tandem_status refuse_sizes(const tandem_timing *timing, const char *needed, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_MALFORMED, "%s needs %s", timing->kind, needed);
}

static tandem_status stream_work(tandem_work *work, const tandem_timing *timing, int i, tandem_dtype type,
                                 tandem_error *error)
{
    const double elements = timing->rows * timing->columns, size = (double)tandem_dtype_bytes(type);
    if (!(elements > 0)) return refuse_sizes(timing, "rows and columns", error);
    *work = (tandem_work){.kind = stream_operators[i].name,
                          .work_class = stream_operators[i].work_class,
                          .type = type,
                          .pass = timing->pass,
                          .flops = elements * stream_operators[i].flops,
                          .bytes = elements * stream_operators[i].accesses * size,
                          .element_bytes = size,
                          .rows = timing->rows,
                          .columns = timing->columns};
    return TANDEM_OK;
}

tandem_status tandem_timing_work(tandem_work *out, const tandem_timing *timing, tandem_error *error)
{
    tandem_precision precision;
    tandem_work work = {.kind = NULL};
    tandem_status status = tandem_precision_find(&precision, timing->precision, error);
    if (status != TANDEM_OK) return status;
    const tandem_dtype stored = tandem_precision_get(precision)->forward,
                       type = tandem_precision_product_dtype(precision, stored);
    /* one-byte operands are summed into two bytes, all others into their own type */
    const double in = (double)tandem_dtype_bytes(stored), result = in == 1 ? 2 : in;
    const int is_matmul = strcmp(timing->kind, "matmul") == 0;
    if (strcmp(timing->kind, "linear") == 0 || is_matmul) {
        const tandem_product_sizes p = {
            timing->batch > 0 ? timing->batch : 1, timing->m, timing->k, timing->n, in, result};
        work.kind = is_matmul ? "matmul" : "linear";
        if (!(timing->m * timing->k * timing->n > 0)) return refuse_sizes(timing, "m, k and n", error);
        if (!tandem_work_of_product(&work, &p, type, timing->pass))
            return refuse_sizes(timing, "the pass forward, dgrad or wgrad", error);
    } else if (strcmp(timing->kind, "conv2d") == 0) {
        work.kind = "conv2d";
        if (!tandem_work_of_convolution(&work, &timing->convolution, type, timing->pass, in, result) ||
            !(work.flops > 0))
            return refuse_sizes(timing, "images, channels, sizes, kernel and stride with a result", error);
    } else {
        int i = 0;
        while (i < N_STREAM_OPERATOR && strcmp(stream_operators[i].name, timing->kind) != 0) i++;
        if (i == N_STREAM_OPERATOR) return refuse_timing_kind(timing->kind, error);
        status = stream_work(&work, timing, i, stored, error);
        if (status != TANDEM_OK) return status;
    }
    if (!isfinite(work.flops) || !isfinite(work.bytes))
        return refuse_sizes(timing, "sizes whose product is finite", error);
    *out = work;
    return TANDEM_OK;
}

/* DeepBench states cuDNN 7.6.2 for V100 and nothing for older cards, whose tables were made before it. T4 is
 * the younger card. */
static int is_of_old_library(const tandem_timing *timing)
{
    const int is_v100 = strchr("vV", timing->device[0]) && strncmp(timing->device + 1, "100", 3) == 0,
              is_t4 = strcmp(timing->device, "t4") == 0 || strcmp(timing->device, "T4") == 0;
    return strcmp(timing->source, "deepbench") == 0 && !is_v100 && !is_t4;
}

int tandem_timing_timed(const tandem_timing *timing)
{
    /* DeepBench multiplies int8 by cuBLAS's and cuDNN's dot products, on cards with tensor cores, too: its
     * rows of T4 end at 25 TOP/s, where these have 130 */
    const int is_by_dot_products =
        strcmp(timing->source, "deepbench") == 0 && strncmp(timing->precision, "int8", 4) == 0;
    return (is_by_dot_products ? TANDEM_TIMED_BY_DOT_PRODUCTS : 0) |
           (is_of_old_library(timing) ? TANDEM_TIMED_OF_OLD_LIBRARY : 0) |
           (strncmp(timing->method, "events", strlen("events")) == 0 ? TANDEM_TIMED_BETWEEN_EVENTS : 0) |
           (strstr(timing->method, "zeros") ? TANDEM_TIMED_OF_ZEROS : 0);
}

/* The nearest described device, and what a description needs. */
static tandem_status refuse_undescribed(const char *name, tandem_status status, tandem_error *error)
{
    enum { MAX_DESCRIBED = 64 };
    const char *names[MAX_DESCRIBED];
    size_t n = 0;
    for (int d = 0; d < tandem_device_count() && n < MAX_DESCRIBED; d++)
        if (tandem_device_is_described(tandem_device_get(d))) names[n++] = tandem_device_get(d)->name;
    return tandem_error_set(
        error, status == TANDEM_OK ? TANDEM_NO_DEVICE : status,
        "the device '%.60s' is not described, so that its times follow no form.%s A description takes the "
        "peak of each type in FLOP/s, the memory's kind and bytes/s, the level-2 cache, watts, process, "
        "clock and number of multiprocessors (profiles/devices/cards.def); `tandem list devices` shows "
        "those that have one",
        name, tandem_nearest_hint(name, names, n).text);
}

tandem_status tandem_timing_device(tandem_device *device, const char *name, tandem_error *error)
{
    const tandem_status status = tandem_device_find(device, name, error);
    if (status == TANDEM_OK && tandem_device_is_described(device)) return TANDEM_OK;
    return refuse_undescribed(name, status, error);
}

tandem_status tandem_timing_check(const tandem_timing *timing, const tandem_work *work,
                                  const tandem_device *device, int force, tandem_error *error)
{
    const tandem_gpu_spec *const spec = &device->gpu_spec;
    const double peak = work->is_product ? spec->flops_per_s[work->type] : spec->flops_per_s[TANDEM_F32];
    if (work->is_product && !(peak > 0))
        return tandem_error_set(error, TANDEM_MISSING, "%s has no units for %s", device->name,
                                timing->precision);
    const double least = 1e9 * fmax(work->flops / peak, work->bytes / spec->bytes_per_s), bound = least / 4;
    if (force || timing->time_ns >= bound) return TANDEM_OK;
    return tandem_error_set(
        error, TANDEM_MALFORMED,
        "%s took %.4g us, which is below %.4g us, a quarter of what the peaks of %s allow. "
        "Is the unit right? --force keeps it",
        timing->kind, 1e-3 * timing->time_ns, 1e-3 * bound, device->name);
}
