/* interval_set.h: the union of many time intervals, in bounded memory; private to trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct tandem_interval {
    int64_t begin_ns, end_ns;
} tandem_interval;

enum { TANDEM_INTERVAL_SET_MAX = 1 << 20 /* 16 MiB */ };

/* Intervals in any order; all zero is an empty set. Beyond TANDEM_INTERVAL_SET_MAX separate intervals, the
 * ones with the smallest gaps are merged. filled_gap_ns sums the closed gaps: the union may be too long by
 * that much. */
typedef struct tandem_interval_set {
    tandem_interval *interval;
    size_t n, capacity, max; /* max: 0 = TANDEM_INTERVAL_SET_MAX */
    size_t n_merged;         /* the first n_merged are sorted and disjoint */
    int64_t filled_gap_ns;
} tandem_interval_set;

/* Adds [begin, end), unless it is empty. Amortised O(log n). TANDEM_NO_MEMORY. */
tandem_status tandem_interval_set_add(tandem_interval_set *set, int64_t begin_ns, int64_t end_ns,
                                      tandem_error *error);
/* Sorts and merges. To be called before measuring. */
void tandem_interval_set_merge(tandem_interval_set *set);
/* The time in [from, to) that one set covers, and that two sets cover together. O(log n + intervals
 * within). */
int64_t tandem_interval_set_covered_ns(const tandem_interval_set *set, int64_t from_ns, int64_t to_ns);
int64_t tandem_interval_set_common_ns(const tandem_interval_set *a, const tandem_interval_set *b,
                                      int64_t from_ns, int64_t to_ns);
void tandem_interval_set_free(tandem_interval_set *set);
