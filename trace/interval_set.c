/* interval_set.c: a union of intervals, merged when it must grow and coarsened when it reaches its limit. */
#include "trace/interval_set.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

static int by_interval_begin(const void *left, const void *right)
{
    const tandem_interval *const a = left, *const b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

/* Merges sorted intervals that are at most `gap_ns` apart. */
static void join_intervals(tandem_interval_set *set, int64_t gap_ns)
{
    size_t n = 0;
    for (size_t k = 0; k < set->n; k++) {
        const tandem_interval interval = set->interval[k];
        tandem_interval *const last = n ? &set->interval[n - 1] : NULL;
        if (last && interval.begin_ns - last->end_ns <= gap_ns) {
            if (interval.begin_ns > last->end_ns) set->filled_gap_ns += interval.begin_ns - last->end_ns;
            if (interval.end_ns > last->end_ns) last->end_ns = interval.end_ns;
        } else {
            set->interval[n++] = interval;
        }
    }
    set->n = set->n_merged = n;
}

void tandem_interval_set_merge(tandem_interval_set *set)
{
    if (set->n_merged == set->n) return;
    int is_sorted = 1;
    for (size_t k = set->n_merged ? set->n_merged : 1; k < set->n && is_sorted; k++)
        is_sorted = set->interval[k - 1].begin_ns <= set->interval[k].begin_ns;
    if (!is_sorted) qsort(set->interval, set->n, sizeof *set->interval, by_interval_begin);
    join_intervals(set, 0);
}

/* Halves the number of merged intervals. The gap that is closed doubles until that is reached. */
static void coarsen_intervals(tandem_interval_set *set)
{
    const size_t half = set->n / 2;
    for (int64_t gap_ns = 1; set->n > half && gap_ns > 0; gap_ns *= 2) join_intervals(set, gap_ns);
}

static tandem_status make_interval_capacity(tandem_interval_set *set, tandem_error *error)
{
    const size_t max = set->max ? set->max : TANDEM_INTERVAL_SET_MAX;
    if (set->capacity >= FIRST_CAPACITY || set->capacity >= max) {
        tandem_interval_set_merge(set);
        if (set->n <= set->capacity / 2) return TANDEM_OK;
        if (set->capacity >= max) {
            coarsen_intervals(set);
            return TANDEM_OK;
        }
    }
    size_t capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY;
    if (capacity > max) capacity = max;
    tandem_interval *const more = realloc(set->interval, capacity * sizeof *more);
    if (!more) return tandem_no_memory(error, "for %zu intervals of a trace", capacity);
    set->interval = more;
    set->capacity = capacity;
    return TANDEM_OK;
}

tandem_status tandem_interval_set_add(tandem_interval_set *set, int64_t begin_ns, int64_t end_ns,
                                      tandem_error *error)
{
    if (begin_ns >= end_ns) return TANDEM_OK;
    if (set->n == set->capacity) {
        const tandem_status status = make_interval_capacity(set, error);
        if (status != TANDEM_OK) return status;
    }
    if (set->n && set->n_merged == set->n && begin_ns >= set->interval[set->n - 1].begin_ns &&
        begin_ns <= set->interval[set->n - 1].end_ns) { /* intervals usually arrive in order */
        if (end_ns > set->interval[set->n - 1].end_ns) set->interval[set->n - 1].end_ns = end_ns;
        return TANDEM_OK;
    }
    if (set->n_merged == set->n && (!set->n || begin_ns > set->interval[set->n - 1].end_ns)) set->n_merged++;
    set->interval[set->n++] = (tandem_interval){begin_ns, end_ns};
    return TANDEM_OK;
}

/* The first interval that ends after `from_ns`. */
static size_t first_ending_after(const tandem_interval_set *set, int64_t from_ns)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (set->interval[middle].end_ns > from_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int64_t interval_overlap_ns(int64_t begin_ns, int64_t end_ns, int64_t from_ns, int64_t to_ns)
{
    if (begin_ns < from_ns) begin_ns = from_ns;
    if (end_ns > to_ns) end_ns = to_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

int64_t tandem_interval_set_covered_ns(const tandem_interval_set *set, int64_t from_ns, int64_t to_ns)
{
    int64_t sum_ns = 0;
    for (size_t k = first_ending_after(set, from_ns); k < set->n && set->interval[k].begin_ns < to_ns; k++)
        sum_ns += interval_overlap_ns(set->interval[k].begin_ns, set->interval[k].end_ns, from_ns, to_ns);
    return sum_ns;
}

int64_t tandem_interval_set_common_ns(const tandem_interval_set *a, const tandem_interval_set *b,
                                      int64_t from_ns, int64_t to_ns)
{
    int64_t sum_ns = 0;
    size_t i = first_ending_after(a, from_ns), k = first_ending_after(b, from_ns);
    while (i < a->n && k < b->n && a->interval[i].begin_ns < to_ns && b->interval[k].begin_ns < to_ns) {
        const int64_t begin_ns = a->interval[i].begin_ns > from_ns ? a->interval[i].begin_ns : from_ns;
        const int64_t end_ns = a->interval[i].end_ns < to_ns ? a->interval[i].end_ns : to_ns;
        sum_ns += interval_overlap_ns(b->interval[k].begin_ns, b->interval[k].end_ns, begin_ns, end_ns);
        if (a->interval[i].end_ns < b->interval[k].end_ns)
            i++;
        else
            k++;
    }
    return sum_ns;
}

void tandem_interval_set_free(tandem_interval_set *set)
{
    free(set->interval);
    *set = (tandem_interval_set){.max = set->max};
}
