/* read_events.c: Chrome trace events from a JSON stream. Skips what no reader asks for, most of all the
 * arguments of kernels. */
#include "trace/reader/read_events.h"

#include <stdio.h>
#include <string.h>

enum { BEFORE_EVENTS, IN_LIST, IN_OBJECT, PAST_EVENTS };

/* --- Strings -------------------------------------------------------------------------------------------- */

/* Eight bytes at a time, multiply and shift, with a final mix. */
static uint64_t hash_bytes(const char *text, size_t n, uint64_t hash)
{
    const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
    hash ^= n;
    for (; n >= 8; text += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 29;
    }
    uint64_t rest = 0;
    if (n) memcpy(&rest, text, n);
    hash = (hash ^ rest) * prime;
    hash ^= hash >> 32;
    hash *= prime;
    return hash ^ hash >> 29;
}

/* Length of the UTF-8 character at text[0 … n−1]; 0 if it is invalid or cannot be printed. */
static size_t utf8_char_length(const unsigned char *text, size_t n)
{
    if (text[0] < 0x80) return text[0] >= 0x20 && text[0] != 0x7f;
    const size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4 || length > n) return 0;
    for (size_t k = 1; k < length; k++)
        if ((text[k] & 0xc0) != 0x80) return 0;
    const unsigned second_byte = text[1];
    if ((text[0] == 0xe0 && second_byte < 0xa0) || (text[0] == 0xed && second_byte > 0x9f) ||
        (text[0] == 0xf0 && second_byte < 0x90) || (text[0] == 0xf4 && second_byte > 0x8f) ||
        (text[0] == 0xc2 && second_byte < 0xa0))
        return 0;
    return length;
}

static int has_no_controls(const char *text, size_t n)
{
    unsigned char odd = 0;
    for (size_t k = 0; k < n; k++)
        odd |= (unsigned char)((text[k] < 0x20) | (text[k] == 0x7f)); /* char is signed */
    return !odd;
}

/* Copies as much as fits, whole characters; invalid and unprintable ones become question marks. Returns the
 * bytes without the final zero. */
static size_t copy_printable(char *to, size_t size, tandem_json_stream_slice from)
{
    size_t n = from.n < size - 1 ? from.n : size - 1, used = 0;
    while (n < from.n && n > 0 && ((unsigned char)from.text[n] & 0xc0) == 0x80) n--;
    if (has_no_controls(from.text, n)) {
        memcpy(to, from.text, n);
        used = n;
    } else {
        for (size_t k = 0; k < n;) {
            const size_t length = utf8_char_length((const unsigned char *)from.text + k, n - k);
            if (length) memcpy(to + used, from.text + k, length);
            if (!length) to[used] = '?';
            used += length ? length : 1;
            k += length ? length : 1;
        }
    }
    to[used] = '\0';
    return used;
}

static void set_event_text(tandem_event_text *to, tandem_json_stream_slice from)
{
    to->hash = from.n ? hash_bytes(from.text, from.n, 0) : 0;
    to->n = copy_printable(to->text, sizeof to->text, from);
}

/* A value as written, without blanks and quotes: [[8,16],[]]. */
static void set_raw_text(tandem_event_text *to, tandem_json_stream_slice from)
{
    char text[TANDEM_EVENT_TEXT];
    tandem_json_stream_slice short_one = {text, 0};
    for (size_t k = 0; k < from.n && short_one.n < sizeof text; k++)
        if (from.text[k] > ' ' && from.text[k] != '"') text[short_one.n++] = from.text[k];
    set_event_text(to, short_one);
    if (from.n > sizeof text) to->hash = hash_bytes(from.text, from.n, to->hash);
}

void tandem_event_copy(char *to, size_t size, const tandem_event_text *text)
{
    size_t n = text->n < size - 1 ? text->n : size - 1;
    while (n < text->n && n > 0 && ((unsigned char)text->text[n] & 0xc0) == 0x80) n--;
    memcpy(to, text->text, n);
    to[n] = '\0';
}

static int slice_is(tandem_json_stream_slice slice, const char *word)
{
    const size_t n = strlen(word);
    return slice.n == n && memcmp(slice.text, word, n) == 0;
}

/* --- Values --------------------------------------------------------------------------------------------- */

/* An integer; `otherwise` for anything else. */
static int64_t integer_or(tandem_json_stream_slice raw, int64_t otherwise)
{
    const int is_negative = raw.n > 0 && raw.text[0] == '-';
    int64_t value = 0;
    size_t k = (size_t)is_negative;
    if (k == raw.n || raw.n > 18) return otherwise;
    for (; k < raw.n; k++) {
        if (raw.text[k] < '0' || raw.text[k] > '9') return otherwise;
        value = 10 * value + (raw.text[k] - '0');
    }
    return is_negative ? -value : value;
}

/* Some writers put numbers in quotes. */
static tandem_json_stream_slice without_quotes(tandem_json_stream_slice raw)
{
    const int is_quoted = raw.n >= 2 && raw.text[0] == '"' && raw.text[raw.n - 1] == '"';
    return is_quoted ? (tandem_json_stream_slice){raw.text + 1, raw.n - 2} : raw;
}

static tandem_status read_integer_or(tandem_json_stream *json, int64_t *value, int64_t otherwise)
{
    tandem_json_stream_slice raw;
    const tandem_status status = tandem_json_stream_raw(json, &raw);
    if (status == TANDEM_OK) *value = integer_or(without_quotes(raw), otherwise);
    return status;
}

/* A number, also in quotes; null is no time. */
static tandem_status read_event_time(tandem_json_stream *json, const char *what, int64_t *ns, int *has)
{
    tandem_json_stream_slice number;
    const char first = tandem_json_stream_peek(json);
    const tandem_status status = first == '"'   ? tandem_json_stream_text(json, what, &number)
                                 : first == 'n' ? tandem_json_stream_raw(json, &number)
                                                : tandem_json_stream_number(json, what, &number);
    if (status != TANDEM_OK || slice_is(number, "null")) return status;
    const int code = tandem_input_parse_us(ns, number.text, number.n);
    if (code == -1) return tandem_json_stream_wrong(json, number, what);
    if (code == -2) return tandem_json_stream_wrong(json, number, "a time within 73 years of its origin");
    *has = 1;
    return TANDEM_OK;
}

/* A string, or another value as written. */
static tandem_status read_event_text(tandem_json_stream *json, tandem_event_text *text)
{
    tandem_json_stream_slice slice;
    const int is_text = tandem_json_stream_peek(json) == '"';
    const tandem_status status =
        is_text ? tandem_json_stream_text(json, "a string", &slice) : tandem_json_stream_raw(json, &slice);
    if (status == TANDEM_OK) (is_text ? set_event_text : set_raw_text)(text, slice);
    return status;
}

static tandem_status read_raw_text(tandem_json_stream *json, tandem_event_text *text)
{
    tandem_json_stream_slice slice;
    const tandem_status status = tandem_json_stream_raw(json, &slice);
    if (status == TANDEM_OK) set_raw_text(text, slice);
    return status;
}

/* --- Arguments of an event ------------------------------------------------------------------------------ */

static tandem_status read_group_members(tandem_json_stream *json, tandem_event *event)
{
    tandem_json_stream_slice raw;
    const uint64_t before = event->members.hash;
    const tandem_status status = tandem_json_stream_raw(json, &raw);
    if (status != TANDEM_OK) return status;
    set_raw_text(&event->members, raw);
    event->members.hash ^= before; /* independent of the order of the two */
    return TANDEM_OK;
}

static tandem_status read_event_argument(tandem_json_stream *json, tandem_json_stream_slice name,
                                         tandem_event *event)
{
    switch (name.n) {
    case 3:
        if (slice_is(name, "Seq") || slice_is(name, "seq"))
            return read_integer_or(json, &event->sequence, -1);
        break;
    case 4:
        if (slice_is(name, "name")) return read_event_text(json, &event->label);
        if (slice_is(name, "kind")) return read_event_text(json, &event->kind);
        if (slice_is(name, "task")) return read_integer_or(json, &event->task, INT64_MIN);
        break;
    case 5:
        if (slice_is(name, "dtype")) return read_event_text(json, &event->dtype);
        break;
    case 6:
        if (slice_is(name, "device")) return read_integer_or(json, &event->device, -1);
        break;
    case 9:
        if (slice_is(name, "precision")) return read_event_text(json, &event->precision);
        break;
    case 10:
        if (slice_is(name, "Input Dims")) return read_raw_text(json, &event->dims);
        if (slice_is(name, "Input type")) return read_raw_text(json, &event->types);
        break;
    case 11:
        if (slice_is(name, "External id") || slice_is(name, "external id"))
            return read_integer_or(json, &event->external, -1);
        if (slice_is(name, "correlation")) return read_integer_or(json, &event->correlation, -1);
        if (slice_is(name, "Input Types") || slice_is(name, "Input types"))
            return read_raw_text(json, &event->types);
        break;
    case 13:
        if (slice_is(name, "In msg nelems")) return read_integer_or(json, &event->elements, -1);
        break;
    case 15:
        if (slice_is(name, "Collective name")) return read_event_text(json, &event->label);
        break;
    case 18:
        if (slice_is(name, "Process Group Name")) return read_group_members(json, event);
        break;
    case 19:
        if (slice_is(name, "Process Group Ranks")) return read_group_members(json, event);
        break;
    default: break;
    }
    return tandem_json_stream_skip(json);
}

int tandem_event_is_collective(const tandem_event *event)
{
    static const char *const libraries[] = {"nccl", "rccl", "msccl"};
    const char *const text = event->name.text, *const name = text + 5 * (strncmp(text, "void ", 5) == 0);
    for (size_t k = 0; k < sizeof libraries / sizeof *libraries; k++)
        if (strncmp(name, libraries[k], strlen(libraries[k])) == 0) return 1;
    return 0;
}

/* Whether all needed arguments are known. Arguments of kernels are most of a trace. */
static int has_all_arguments(const tandem_event *event)
{
    if (event->external < 0) return 0;
    if (strcmp(event->category.text, "kernel") == 0)
        return event->correlation >= 0 && event->device >= 0 && !tandem_event_is_collective(event);
    return event->dims.n && event->types.n;
}

static tandem_status read_event_arguments(tandem_json_stream *json, tandem_event *event)
{
    const int is_kept_phase = event->phase == 0 || event->phase == 'X' || event->phase == 'M';
    if (!is_kept_phase || tandem_json_stream_peek(json) != '{') return tandem_json_stream_skip(json);
    tandem_json_stream_slice name = {NULL, 0};
    tandem_status status = tandem_json_stream_enter(json, '{');
    while (status == TANDEM_OK) {
        status = tandem_json_stream_member(json, &name);
        if (status != TANDEM_OK || !name.text) break;
        status = read_event_argument(json, name, event);
        if (status == TANDEM_OK && has_all_arguments(event)) return tandem_json_stream_leave(json);
    }
    return status;
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status read_pid_or_tid(tandem_json_stream *json, tandem_event *event, int is_process)
{
    tandem_json_stream_slice raw;
    const tandem_status status = tandem_json_stream_raw(json, &raw);
    if (status != TANDEM_OK) return status;
    const tandem_json_stream_slice id = without_quotes(raw);
    event->thread += hash_bytes(id.text, id.n, is_process ? 1 : 2); /* in either order */
    if (is_process) {
        event->pid = integer_or(id, -1);
        set_event_text(&event->process, id);
    }
    return TANDEM_OK;
}

static tandem_status read_event_phase(tandem_json_stream *json, tandem_event *event)
{
    tandem_json_stream_slice text;
    const tandem_status status = tandem_json_stream_text(json, "a string, the phase of an event", &text);
    if (status == TANDEM_OK) event->phase = text.n == 1 ? text.text[0] : '?';
    return status;
}

static tandem_status read_event_member(tandem_json_stream *json, tandem_json_stream_slice name,
                                       tandem_event *event)
{
    tandem_status status;
    if (slice_is(name, "ph")) return read_event_phase(json, event);
    if (slice_is(name, "ts"))
        return read_event_time(json, "a number, the ts of an event in us", &event->start_ns,
                               &event->has_start);
    if (slice_is(name, "pid")) return read_pid_or_tid(json, event, 1);
    if (slice_is(name, "tid")) return read_pid_or_tid(json, event, 0);
    if (slice_is(name, "cat")) return read_event_text(json, &event->category);
    if (slice_is(name, "name")) {
        status = read_event_text(json, &event->name);
        event->has_name = 1;
        return status;
    }
    if (slice_is(name, "args")) return read_event_arguments(json, event);
    if (slice_is(name, "dur"))
        return read_event_time(json, "a number, the dur of an event in us", &event->duration_ns,
                               &event->has_duration);
    return tandem_json_stream_skip(json);
}

static void clear_event_text(tandem_event_text *text)
{
    text->hash = 0;
    text->n = 0;
    text->text[0] = '\0';
}

/* The texts are large: only their beginnings are cleared. */
static void clear_event(tandem_event *event)
{
    clear_event_text(&event->name);
    clear_event_text(&event->category);
    clear_event_text(&event->process);
    clear_event_text(&event->dims);
    clear_event_text(&event->types);
    clear_event_text(&event->members);
    clear_event_text(&event->dtype);
    clear_event_text(&event->label);
    clear_event_text(&event->kind);
    clear_event_text(&event->precision);
    event->phase = 0;
    event->has_start = event->has_duration = event->has_name = 0;
    event->thread = 0;
    event->pid = event->external = event->correlation = event->device = -1;
    event->sequence = event->elements = -1;
    event->task = INT64_MIN;
    event->start_ns = event->duration_ns = 0;
}

static tandem_status read_trace_event(tandem_events *events, tandem_event *event)
{
    tandem_json_stream *const json = &events->json;
    tandem_json_stream_slice name = {NULL, 0};
    clear_event(event);
    if (tandem_json_stream_peek(json) != '{') return tandem_json_stream_expected(json, "'{', an event");
    event->offset = events->input->offset + events->input->at;
    tandem_status status = tandem_json_stream_enter(json, '{');
    while (status == TANDEM_OK) {
        status = tandem_json_stream_member(json, &name);
        if (status != TANDEM_OK || !name.text) break;
        status = read_event_member(json, name, event);
    }
    events->n_event++;
    return status;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

void tandem_events_open(tandem_events *events, tandem_input *input, tandem_error *error)
{
    *events = (tandem_events){
        .input = input, .json = {.input = input, .error = error}, .header = {.rank = -1, .n_rank = -1}};
}

/* Reads the value of one member of an object of the header. */
typedef tandem_status read_header_member(tandem_events *events, tandem_json_stream_slice name);

static tandem_status read_distributed_info(tandem_events *events, tandem_json_stream_slice name)
{
    tandem_json_stream *const json = &events->json;
    if (slice_is(name, "rank")) return read_integer_or(json, &events->header.rank, -1);
    if (slice_is(name, "world_size")) return read_integer_or(json, &events->header.n_rank, -1);
    return tandem_json_stream_skip(json);
}

/* A string of any length; other values are skipped. */
static tandem_status read_made_text(tandem_json_stream *json, char *to, size_t size)
{
    tandem_json_stream_slice slice;
    if (tandem_json_stream_peek(json) != '"') return tandem_json_stream_skip(json);
    const tandem_status status = tandem_json_stream_text(json, "a string", &slice);
    if (status == TANDEM_OK) (void)copy_printable(to, size, slice);
    return status;
}

static tandem_status read_other_data(tandem_events *events, tandem_json_stream_slice name)
{
    tandem_json_stream *const json = &events->json;
    tandem_events_header *const header = &events->header;
    if (slice_is(name, "title")) return read_event_text(json, &header->title);
    if (slice_is(name, "model")) return read_event_text(json, &header->model);
    if (slice_is(name, "origin")) return read_event_text(json, &header->origin);
#define MADE_TEXT(member)                                                                                    \
    if (slice_is(name, #member)) return read_made_text(json, header->made.member, sizeof header->made.member);
    MADE_TEXT(command)
    MADE_TEXT(version)
    MADE_TEXT(host)
    MADE_TEXT(seed)
#undef MADE_TEXT
    return tandem_json_stream_skip(json);
}

/* Another value than an object is skipped. */
static tandem_status read_header_object(tandem_events *events, read_header_member *read)
{
    tandem_json_stream *const json = &events->json;
    if (tandem_json_stream_peek(json) != '{') return tandem_json_stream_skip(json);
    tandem_json_stream_slice name = {NULL, 0};
    tandem_status status = tandem_json_stream_enter(json, '{');
    while (status == TANDEM_OK) {
        status = tandem_json_stream_member(json, &name);
        if (status != TANDEM_OK || !name.text) break;
        status = read(events, name);
    }
    return status;
}

/* Keeps the name of a member, and what else shows what an object without events is. */
static tandem_status note_member(tandem_events *events, tandem_json_stream_slice name)
{
    tandem_json_stream *const json = &events->json;
    const size_t n = strlen(events->members);
    char shown[80];
    if (name.n < sizeof shown && n + name.n + 5 < sizeof events->members) {
        (void)copy_printable(shown, sizeof shown, name);
        (void)snprintf(events->members + n, sizeof events->members - n, "%s'%s'", n ? ", " : "", shown);
    }
    events->has_nodes |= slice_is(name, "nodes");
    if (slice_is(name, "schema")) return read_made_text(json, events->schema, sizeof events->schema);
    return tandem_json_stream_skip(json);
}

/* The object was whole: it is not said to be cut off. */
static tandem_status refuse_other_object(tandem_events *events)
{
    char kind[160] = "a JSON object of another kind";
    if (strncmp(events->schema, "tandem.", 7) == 0)
        (void)snprintf(kind, sizeof kind, "a file of tandem, %s", events->schema);
    else if (events->has_nodes && events->schema[0])
        (void)snprintf(kind, sizeof kind,
                       "an execution trace of PyTorch, %s, whose nodes have no times. Record with "
                       "torch.profiler",
                       events->schema);
    else if (!events->members[0])
        (void)snprintf(kind, sizeof kind, "an empty JSON object");
    return tandem_error_set(
        events->json.error, TANDEM_MALFORMED,
        "'%.200s', byte %llu: expected a member \"traceEvents\" in the trace; the file is whole, but it is "
        "%s%s%s",
        events->input->source, (unsigned long long)(events->input->offset + events->input->at), kind,
        events->members[0] ? "; its members: " : "", events->members);
}

/* Skips members of the outer object up to the events or to its end. */
static tandem_status find_trace_events(tandem_events *events)
{
    tandem_json_stream *const json = &events->json;
    tandem_json_stream_slice name = {NULL, 0};
    for (;;) {
        tandem_status status = tandem_json_stream_member(json, &name);
        if (status != TANDEM_OK) return status;
        if (!name.text) {
            events->state = PAST_EVENTS;
            return events->has_events ? tandem_json_stream_finish(json) : refuse_other_object(events);
        }
        if (slice_is(name, "traceEvents")) {
            events->state = IN_OBJECT;
            events->has_events = 1;
            return tandem_json_stream_enter(json, '[');
        }
        if (slice_is(name, "distributedInfo"))
            status = read_header_object(events, read_distributed_info);
        else
            status = slice_is(name, "otherData") ? read_header_object(events, read_other_data)
                                                 : note_member(events, name);
        if (status != TANDEM_OK) return status;
    }
}

static tandem_status begin_events(tandem_events *events)
{
    tandem_json_stream *const json = &events->json;
    const char c = tandem_json_stream_peek(json);
    if (c == '[') {
        events->state = IN_LIST;
        return tandem_json_stream_enter(json, '[');
    }
    if (c != '{') return tandem_json_stream_expected(json, "'{' or '[', a trace");
    const tandem_status status = tandem_json_stream_enter(json, '{');
    return status == TANDEM_OK ? find_trace_events(events) : status;
}

tandem_status tandem_events_next(tandem_events *events, tandem_event *event, int *is_there)
{
    tandem_status status = events->state == BEFORE_EVENTS ? begin_events(events) : TANDEM_OK;
    *is_there = 0;
    while (status == TANDEM_OK && (events->state == IN_LIST || events->state == IN_OBJECT)) {
        status = tandem_json_stream_element(&events->json, is_there);
        if (status != TANDEM_OK) return status;
        if (*is_there) return read_trace_event(events, event);
        if (events->state == IN_OBJECT) {
            status = find_trace_events(events);
        } else {
            events->state = PAST_EVENTS;
            status = tandem_json_stream_finish(&events->json);
        }
    }
    return status;
}

tandem_status tandem_events_refuse(tandem_events *events, const tandem_event *event, const char *why)
{
    return tandem_error_set(events->json.error, TANDEM_MALFORMED, "'%.200s', the event at byte %llu: %s",
                            events->input->source, (unsigned long long)event->offset, why);
}
