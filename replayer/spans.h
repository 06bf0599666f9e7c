/* spans.h: the union of many intervals of time, in bounded memory; private to replayer/. */
#ifndef TANDEM_REPLAYER_SPANS_H
#define TANDEM_REPLAYER_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_span {
    int64_t begin_ns, end_ns;
} tandem_span;

enum { TANDEM_SPANS_MOST = 1 << 20 /* 16 MiB */ };

/* Intervals in any order. Where more than TANDEM_SPANS_MOST would have to be kept apart, those with the
 * smallest gaps between them are joined, and the gaps added up: by so much the union may be too long. All
 * zero: empty. */
typedef struct tandem_spans {
    tandem_span *span;
    size_t n, room, most; /* most: 0 = TANDEM_SPANS_MOST */
    size_t n_united;      /* the first n_united are sorted and apart */
    int64_t lost_ns;
} tandem_spans;

/* Adds [begin, end); nothing where it is empty. Amortised O(log n). TANDEM_NO_MEMORY. */
tandem_status tandem_spans_add(tandem_spans *spans, int64_t begin_ns, int64_t end_ns, tandem_error *error);
/* Sorts and unites: to be called before measuring. */
void tandem_spans_unite(tandem_spans *spans);
/* How much of [from, to) the union covers, and how much of it two unions cover together. O(log n + those
 * within). */
int64_t tandem_spans_within(const tandem_spans *spans, int64_t from_ns, int64_t to_ns);
int64_t tandem_spans_common(const tandem_spans *a, const tandem_spans *b, int64_t from_ns, int64_t to_ns);
void tandem_spans_free(tandem_spans *spans);

#endif
