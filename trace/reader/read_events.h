/* read_events.h: Chrome trace events one after the other, from {"traceEvents":[…]} or from a bare list;
 * private to replayer/. */
#ifndef TANDEM_REPLAYER_READ_EVENTS_H
#define TANDEM_REPLAYER_READ_EVENTS_H

#include "trace/reader/json_stream.h"

enum { TANDEM_EVENT_TEXT = 240 };

/* A string of an event: its hash is of the whole, its text may be cut; 0 bytes and hash 0 where it is absent.
 * What is no printable UTF-8 is a question mark. */
typedef struct tandem_event_text {
    uint64_t hash;
    size_t n; /* bytes of `text`, without the zero behind it */
    char text[TANDEM_EVENT_TEXT];
} tandem_event_text;

typedef struct tandem_event {
    char phase; /* 'X' …; 0 = none given */
    int has_start, has_duration, has_name;
    tandem_event_text name, category, process;
    uint64_t thread; /* pid and tid, hashed */
    int64_t pid;     /* −1 where it is no whole number */
    int64_t start_ns, duration_ns;
    uint64_t offset; /* byte of the text at which it begins */
    /* of args, where they are there */
    /* "Input Dims", "Input type" (also "Input Types"), as they are written, without blanks */
    tandem_event_text dims, types;
    tandem_event_text members; /* "Process Group Ranks" and "Process Group Name" together */
    tandem_event_text label;   /* "name": of metadata events; "Collective name": of kernels */
    tandem_event_text kind;    /* "kind": tandem's own */
    int64_t external;          /* "External id", older: "external id"; −1 = none */
    int64_t elements;          /* "In msg nelems"; −1 = none */
    int64_t task;              /* "task": tandem's own; −1 … ; INT64_MIN = none */
} tandem_event;

/* What stands beside the events, as far as it has been read. */
typedef struct tandem_events_header {
    int64_t rank, n_rank; /* distributedInfo; −1 = not said */
} tandem_events_header;

typedef struct tandem_events {
    tandem_input *input;
    tandem_json_stream json;
    tandem_events_header header;
    int state;
    int64_t n_event;
} tandem_events;

/* Reads from an input that is open, which outlives it. */
void tandem_events_open(tandem_events *events, tandem_input *input, tandem_error *error);

/* tandem_events_next: the next event; *is_there = 0 behind the last, when the whole text has been checked.
 * TANDEM_MALFORMED with the byte and what was expected: no JSON, no list of events, a time that is no number
 * or out of range; and what tandem_input_refill says. */
tandem_status tandem_events_next(tandem_events *events, tandem_event *event, int *is_there);

/* Into to[size], cut between characters where it is too long. */
void tandem_event_copy(char *to, size_t size, const tandem_event_text *text);

/* That an event cannot be used: TANDEM_MALFORMED with its place. */
tandem_status tandem_events_refuse(tandem_events *events, const tandem_event *event, const char *why);

#endif
