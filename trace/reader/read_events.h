/* read_events.h: a stream of Chrome trace events, from {"traceEvents":[…]} or a bare list; private to
 * trace/. */
#pragma once

#include "tandem/plan.h"
#include "trace/reader/json_stream.h"

enum { TANDEM_EVENT_TEXT = 240 };

/* A string of an event. The hash covers all of it; the text may be cut. 0 bytes and hash 0 = absent.
 * Invalid or unprintable UTF-8 becomes a question mark. */
typedef struct tandem_event_text {
    uint64_t hash;
    size_t n; /* bytes of `text`, without the final zero */
    char text[TANDEM_EVENT_TEXT];
} tandem_event_text;

typedef struct tandem_event {
    char phase; /* 'X' …; 0 = none */
    int has_start, has_duration, has_name;
    tandem_event_text name, category, process;
    uint64_t thread; /* hash of pid and tid */
    int64_t pid;     /* −1 = no integer */
    int64_t start_ns, duration_ns;
    uint64_t offset; /* byte at which the event begins */
    /* from args */
    /* "Input Dims", "Input type" (also "Input Types") as written, without blanks */
    tandem_event_text dims, types;
    tandem_event_text members; /* hash of "Process Group Ranks" and "Process Group Name" */
    tandem_event_text dtype;   /* "dtype" of a collective */
    tandem_event_text label;   /* "name" of metadata events; "Collective name" of kernels */
    tandem_event_text kind;    /* "kind", written by tandem */
    tandem_event_text precision;
    int64_t external;    /* "External id" (older: "external id"); −1 = none */
    int64_t correlation; /* of a launch and of what it launched; −1 = none */
    int64_t device;      /* number of a kernel's device; −1 = none */
    int64_t sequence;    /* "Seq" of a collective within its group; −1 = none */
    int64_t elements;    /* "In msg nelems"; −1 = none */
    int64_t task;        /* "task", written by tandem; INT64_MIN = none */
} tandem_event;

/* Members beside the events, as far as read. */
typedef struct tandem_events_header {
    int64_t rank, n_rank; /* distributedInfo; −1 = not given */
    /* otherData, written by tandem */
    tandem_event_text title, model, origin;
    tandem_made made;
} tandem_events_header;

typedef struct tandem_events {
    tandem_input *input;
    tandem_json_stream json;
    tandem_events_header header;
    int state;
    int has_events, has_nodes; /* whether there was a member "traceEvents", or "nodes" */
    int64_t n_event;
    /* of an object without events, to say what it is: its "schema", and the names of its first members */
    char schema[48], members[160];
} tandem_events;

/* Reads from an open input, which must outlive it. */
void tandem_events_open(tandem_events *events, tandem_input *input, tandem_error *error);

/* tandem_events_next: the next event; *is_there = 0 after the last one, when the whole text has been
 * checked. TANDEM_MALFORMED with the byte and what was expected: no JSON, a JSON object without a list of
 * events (the error says what it is), a time that is no number or out of range. Errors of
 * tandem_input_refill. */
tandem_status tandem_events_next(tandem_events *events, tandem_event *event, int *is_there);

/* Whether the name is that of a kernel of NCCL, RCCL or MSCCL. */
int tandem_event_is_collective(const tandem_event *event);

/* Copies into to[size]; cuts between characters. */
void tandem_event_copy(char *to, size_t size, const tandem_event_text *text);

/* TANDEM_MALFORMED: the event cannot be used; names its byte. */
tandem_status tandem_events_refuse(tandem_events *events, const tandem_event *event, const char *why);
