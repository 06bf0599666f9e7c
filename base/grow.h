/* grow.h: arrays that grow by one element at a time. */
#pragma once

#include <stddef.h>
#include <stdlib.h>

/* tandem_grow: the array, with room for one more than its n elements of `size` bytes. It doubles *capacity,
 * from 64 up to max. NULL without memory and where n is max; the array and *capacity are unchanged then. */
static inline void *tandem_grow(void *array, int *capacity, int n, size_t size, int max)
{
    if (n < *capacity) return array;
    if (n >= max) return NULL;
    const int first = max < 64 ? max : 64, doubled = n < max / 2 ? 2 * n : max, more = n ? doubled : first;
    void *const grown = realloc(array, (size_t)more * size);
    if (grown) *capacity = more;
    return grown;
}
