#include "replayer/read_events.h"

#include <stdio.h>
#include <string.h>

enum { BEFORE, IN_LIST, IN_OBJECT, BEHIND };

/* --- Strings -------------------------------------------------------------------------------------------- */

/* FNV-1a, eight bytes at a time, with a final mix. */
static uint64_t hash_of(const char *text, size_t n, uint64_t hash)
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

/* Bytes of the UTF-8 character at text[0 … n−1], 0 where there is none that can be printed. */
static size_t character(const unsigned char *text, size_t n)
{
    if (text[0] < 0x80) return text[0] >= 0x20 && text[0] != 0x7f;
    const size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4 || length > n) return 0;
    for (size_t k = 1; k < length; k++)
        if ((text[k] & 0xc0) != 0x80) return 0;
    const unsigned second = text[1];
    if ((text[0] == 0xe0 && second < 0xa0) || (text[0] == 0xed && second > 0x9f) ||
        (text[0] == 0xf0 && second < 0x90) || (text[0] == 0xf4 && second > 0x8f) ||
        (text[0] == 0xc2 && second < 0xa0))
        return 0;
    return length;
}

static int is_plain(const char *text, size_t n)
{
    unsigned char odd = 0;
    for (size_t k = 0; k < n; k++)
        odd |= (unsigned char)((text[k] < 0x20) | (text[k] == 0x7f)); /* char is signed */
    return !odd;
}

static void set_text(tandem_event_text *to, tandem_pull_slice from)
{
    const size_t most = sizeof to->text - 1, n = from.n < most ? from.n : most;
    to->hash = from.n ? hash_of(from.text, from.n, 0) : 0;
    to->n = 0;
    if (is_plain(from.text, n)) {
        memcpy(to->text, from.text, n);
        to->n = n;
    } else {
        for (size_t k = 0; k < n;) {
            const size_t length = character((const unsigned char *)from.text + k, n - k);
            if (length) memcpy(to->text + to->n, from.text + k, length);
            if (!length) to->text[to->n] = '?';
            to->n += length ? length : 1;
            k += length ? length : 1;
        }
    }
    to->text[to->n] = '\0';
}

/* A value as it is written, without blanks and quotes: [[8,16],[]]. */
static void set_raw(tandem_event_text *to, tandem_pull_slice from)
{
    char text[TANDEM_EVENT_TEXT];
    tandem_pull_slice short_one = {text, 0};
    for (size_t k = 0; k < from.n && short_one.n < sizeof text; k++)
        if (from.text[k] > ' ' && from.text[k] != '"') text[short_one.n++] = from.text[k];
    set_text(to, short_one);
    if (from.n > sizeof text) to->hash = hash_of(from.text, from.n, to->hash);
}

void tandem_event_copy(char *to, size_t size, const tandem_event_text *text)
{
    size_t n = text->n < size - 1 ? text->n : size - 1;
    while (n < text->n && n > 0 && ((unsigned char)text->text[n] & 0xc0) == 0x80) n--;
    memcpy(to, text->text, n);
    to[n] = '\0';
}

static int is(tandem_pull_slice slice, const char *word)
{
    const size_t n = strlen(word);
    return slice.n == n && memcmp(slice.text, word, n) == 0;
}

/* --- Values --------------------------------------------------------------------------------------------- */

/* A whole number; anything else is `otherwise`. */
static int64_t whole(tandem_pull_slice raw, int64_t otherwise)
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

static tandem_status read_whole(tandem_pull *pull, int64_t *value, int64_t otherwise)
{
    tandem_pull_slice raw;
    const tandem_status status = tandem_pull_raw(pull, &raw);
    if (status == TANDEM_OK) *value = whole(raw, otherwise);
    return status;
}

static tandem_status read_time(tandem_pull *pull, const char *what, int64_t *ns, int *has)
{
    tandem_pull_slice number;
    const tandem_status status = tandem_pull_number(pull, what, &number);
    if (status != TANDEM_OK) return status;
    const int code = tandem_input_ns(ns, number.text, number.n);
    if (code == -1) return tandem_pull_wrong(pull, number, what);
    if (code == -2) return tandem_pull_wrong(pull, number, "a time within 73 years of its origin");
    *has = 1;
    return TANDEM_OK;
}

/* A string, or anything else as it is written. */
static tandem_status read_text(tandem_pull *pull, tandem_event_text *text)
{
    tandem_pull_slice slice;
    const int is_text = tandem_pull_peek(pull) == '"';
    const tandem_status status =
        is_text ? tandem_pull_text(pull, "a string", &slice) : tandem_pull_raw(pull, &slice);
    if (status == TANDEM_OK) (is_text ? set_text : set_raw)(text, slice);
    return status;
}

static tandem_status read_raw(tandem_pull *pull, tandem_event_text *text)
{
    tandem_pull_slice slice;
    const tandem_status status = tandem_pull_raw(pull, &slice);
    if (status == TANDEM_OK) set_raw(text, slice);
    return status;
}

/* --- Arguments of an event ------------------------------------------------------------------------------ */

static tandem_status read_members(tandem_pull *pull, tandem_event *event)
{
    tandem_pull_slice raw;
    const uint64_t before = event->members.hash;
    const tandem_status status = tandem_pull_raw(pull, &raw);
    if (status != TANDEM_OK) return status;
    set_raw(&event->members, raw);
    event->members.hash ^= before; /* in whichever order the two stand */
    return TANDEM_OK;
}

static tandem_status read_argument(tandem_pull *pull, tandem_pull_slice name, tandem_event *event)
{
    switch (name.n) {
    case 4:
        if (is(name, "name")) return read_text(pull, &event->label);
        if (is(name, "kind")) return read_text(pull, &event->kind);
        if (is(name, "task")) return read_whole(pull, &event->task, INT64_MIN);
        break;
    case 10:
        if (is(name, "Input Dims")) return read_raw(pull, &event->dims);
        if (is(name, "Input type")) return read_raw(pull, &event->types);
        break;
    case 11:
        if (is(name, "External id") || is(name, "external id")) return read_whole(pull, &event->external, -1);
        if (is(name, "Input Types") || is(name, "Input types")) return read_raw(pull, &event->types);
        break;
    case 13:
        if (is(name, "In msg nelems")) return read_whole(pull, &event->elements, -1);
        break;
    case 15:
        if (is(name, "Collective name")) return read_text(pull, &event->label);
        break;
    case 18:
        if (is(name, "Process Group Name")) return read_members(pull, event);
        break;
    case 19:
        if (is(name, "Process Group Ranks")) return read_members(pull, event);
        break;
    default: break;
    }
    return tandem_pull_skip(pull);
}

/* Whether all that is wanted of the arguments is known. Most of a trace are arguments of kernels. */
static int is_enough(const tandem_event *event)
{
    if (event->external < 0) return 0;
    if (strcmp(event->category.text, "kernel") == 0)
        return strncmp(event->name.text, "nccl", 4) != 0 && strncmp(event->name.text, "rccl", 4) != 0;
    return event->dims.n && event->types.n;
}

static tandem_status read_arguments(tandem_pull *pull, tandem_event *event)
{
    const int is_wanted = event->phase == 0 || event->phase == 'X' || event->phase == 'M';
    if (!is_wanted || tandem_pull_peek(pull) != '{') return tandem_pull_skip(pull);
    tandem_pull_slice name = {NULL, 0};
    tandem_status status = tandem_pull_enter(pull, '{');
    while (status == TANDEM_OK) {
        status = tandem_pull_member(pull, &name);
        if (status != TANDEM_OK || !name.text) break;
        status = read_argument(pull, name, event);
        if (status == TANDEM_OK && is_enough(event)) return tandem_pull_leave(pull);
    }
    return status;
}

/* --- Events --------------------------------------------------------------------------------------------- */

static tandem_status read_place(tandem_pull *pull, tandem_event *event, int is_process)
{
    tandem_pull_slice raw;
    const tandem_status status = tandem_pull_raw(pull, &raw);
    if (status != TANDEM_OK) return status;
    event->thread = hash_of(raw.text, raw.n, event->thread + (is_process ? 1 : 2));
    if (is_process) {
        event->pid = whole(raw, -1);
        set_raw(&event->process, raw);
    }
    return TANDEM_OK;
}

static tandem_status read_phase(tandem_pull *pull, tandem_event *event)
{
    tandem_pull_slice text;
    const tandem_status status = tandem_pull_text(pull, "a string, the phase of an event", &text);
    if (status == TANDEM_OK) event->phase = text.n == 1 ? text.text[0] : '?';
    return status;
}

static tandem_status read_member(tandem_pull *pull, tandem_pull_slice name, tandem_event *event)
{
    tandem_status status;
    if (is(name, "ph")) return read_phase(pull, event);
    if (is(name, "ts"))
        return read_time(pull, "a number, the ts of an event in us", &event->start_ns, &event->has_start);
    if (is(name, "pid")) return read_place(pull, event, 1);
    if (is(name, "tid")) return read_place(pull, event, 0);
    if (is(name, "cat")) return read_text(pull, &event->category);
    if (is(name, "name")) {
        status = read_text(pull, &event->name);
        event->has_name = 1;
        return status;
    }
    if (is(name, "args")) return read_arguments(pull, event);
    if (is(name, "dur"))
        return read_time(pull, "a number, the dur of an event in us", &event->duration_ns,
                         &event->has_duration);
    return tandem_pull_skip(pull);
}

static void clear_text(tandem_event_text *text)
{
    text->hash = 0;
    text->n = 0;
    text->text[0] = '\0';
}

/* The texts are large: only their beginnings are cleared. */
static void clear(tandem_event *event)
{
    clear_text(&event->name);
    clear_text(&event->category);
    clear_text(&event->process);
    clear_text(&event->dims);
    clear_text(&event->types);
    clear_text(&event->members);
    clear_text(&event->label);
    clear_text(&event->kind);
    event->phase = 0;
    event->has_start = event->has_duration = event->has_name = 0;
    event->thread = 0;
    event->pid = event->external = event->elements = -1;
    event->task = INT64_MIN;
    event->start_ns = event->duration_ns = 0;
}

static tandem_status read_event(tandem_events *events, tandem_event *event)
{
    tandem_pull *const pull = &events->pull;
    tandem_pull_slice name = {NULL, 0};
    clear(event);
    if (tandem_pull_peek(pull) != '{') return tandem_pull_expected(pull, "'{', an event");
    event->offset = events->input->offset + events->input->at;
    tandem_status status = tandem_pull_enter(pull, '{');
    while (status == TANDEM_OK) {
        status = tandem_pull_member(pull, &name);
        if (status != TANDEM_OK || !name.text) break;
        status = read_member(pull, name, event);
    }
    events->n_event++;
    return status;
}

/* --- Files ---------------------------------------------------------------------------------------------- */

void tandem_events_open(tandem_events *events, tandem_input *input, tandem_error *error)
{
    *events = (tandem_events){.input = input, .pull = {.input = input, .error = error}, .header = {-1, -1}};
}

static tandem_status read_distributed(tandem_events *events)
{
    tandem_pull *const pull = &events->pull;
    if (tandem_pull_peek(pull) != '{') return tandem_pull_skip(pull);
    tandem_pull_slice name = {NULL, 0};
    tandem_status status = tandem_pull_enter(pull, '{');
    while (status == TANDEM_OK) {
        status = tandem_pull_member(pull, &name);
        if (status != TANDEM_OK || !name.text) break;
        if (is(name, "rank"))
            status = read_whole(pull, &events->header.rank, -1);
        else if (is(name, "world_size"))
            status = read_whole(pull, &events->header.n_rank, -1);
        else
            status = tandem_pull_skip(pull);
    }
    return status;
}

/* Through the members of the outer object, to the events or to its end. */
static tandem_status find_events(tandem_events *events)
{
    tandem_pull *const pull = &events->pull;
    tandem_pull_slice name = {NULL, 0};
    for (;;) {
        tandem_status status = tandem_pull_member(pull, &name);
        if (status != TANDEM_OK) return status;
        if (!name.text) {
            events->state = BEHIND;
            return tandem_pull_finish(pull);
        }
        if (is(name, "traceEvents")) {
            events->state = IN_OBJECT;
            return tandem_pull_enter(pull, '[');
        }
        status = is(name, "distributedInfo") ? read_distributed(events) : tandem_pull_skip(pull);
        if (status != TANDEM_OK) return status;
    }
}

static tandem_status begin(tandem_events *events)
{
    tandem_pull *const pull = &events->pull;
    const char c = tandem_pull_peek(pull);
    if (c == '[') {
        events->state = IN_LIST;
        return tandem_pull_enter(pull, '[');
    }
    if (c != '{') return tandem_pull_expected(pull, "'{' or '[', a trace");
    const tandem_status status = tandem_pull_enter(pull, '{');
    if (status != TANDEM_OK) return status;
    const tandem_status found = find_events(events);
    if (found == TANDEM_OK && events->state == BEHIND)
        return tandem_pull_expected(pull, "a member \"traceEvents\" in the trace");
    return found;
}

tandem_status tandem_events_next(tandem_events *events, tandem_event *event, int *is_there)
{
    tandem_status status = events->state == BEFORE ? begin(events) : TANDEM_OK;
    *is_there = 0;
    while (status == TANDEM_OK && (events->state == IN_LIST || events->state == IN_OBJECT)) {
        status = tandem_pull_element(&events->pull, is_there);
        if (status != TANDEM_OK) return status;
        if (*is_there) return read_event(events, event);
        if (events->state == IN_OBJECT) {
            status = find_events(events);
        } else {
            events->state = BEHIND;
            status = tandem_pull_finish(&events->pull);
        }
    }
    return status;
}

tandem_status tandem_events_refuse(tandem_events *events, const tandem_event *event, const char *why)
{
    return tandem_error_set(events->pull.error, TANDEM_MALFORMED, "'%.200s', the event at byte %llu: %s",
                            events->input->source, (unsigned long long)event->offset, why);
}
