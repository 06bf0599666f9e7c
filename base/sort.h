/* sort.h: numbers in order, and their median. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* −1, 0 or 1, as a comparison for qsort returns. */
#define TANDEM_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static inline int tandem_compare_int64(const void *a, const void *b)
{
    return TANDEM_ORDER(*(const int64_t *)a, *(const int64_t *)b);
}

/* Ascending. O(n log n). */
static inline void tandem_sort_int64(int64_t *value, size_t n)
{
    if (n) qsort(value, n, sizeof *value, tandem_compare_int64);
}

/* Of n ≥ 1 sorted numbers; of an even n the mean of the two in the middle, rounded down. */
static inline int64_t tandem_sorted_median(const int64_t *sorted, size_t n)
{
    const int64_t low = sorted[(n - 1) / 2], high = sorted[n / 2];
    return low + (high - low) / 2;
}
