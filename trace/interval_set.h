/* spans.h: the union of many intervals of time, in bounded memory; private to replayer/. */
#ifndef TANDEM_REPLAYER_INTERVAL_SET_H
#define TANDEM_REPLAYER_INTERVAL_SET_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_interval {
    int64_t begin_ns, end_ns;
} tandem_interval;

enum { TANDEM_INTERVAL_SET_MAX = 1 << 20 /* 16 MiB */ };

/* Intervals in any order. Where more than TANDEM_INTERVAL_SET_MAX would have to be kept apart, those with the
 * smallest gaps between them are joined, and the gaps added up: by so much the union may be too long. All
 * zero: empty. */
typedef struct tandem_interval_set {
    tandem_interval *interval;
    size_t n, capacity, max; /* most: 0 = TANDEM_INTERVAL_SET_MAX */
    size_t n_merged;         /* the first n_merged are sorted and apart */
    int64_t filled_gap_ns;
} tandem_interval_set;

/* Adds [begin, end); nothing where it is empty. Amortised O(log n). TANDEM_NO_MEMORY. */
tandem_status tandem_interval_set_add(tandem_interval_set *set, int64_t begin_ns, int64_t end_ns,
                                      tandem_error *error);
/* Sorts and unites: to be called before measuring. */
void tandem_interval_set_merge(tandem_interval_set *set);
/* How much of [from, to) the union covers, and how much of it two unions cover together. O(log n + those
 * within). */
int64_t tandem_interval_set_covered_ns(const tandem_interval_set *set, int64_t from_ns, int64_t to_ns);
int64_t tandem_interval_set_common_ns(const tandem_interval_set *a, const tandem_interval_set *b,
                                      int64_t from_ns, int64_t to_ns);
void tandem_interval_set_free(tandem_interval_set *set);

#endif
