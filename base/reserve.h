/* reserve.h: arrays that grow. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* tandem_reserve: gives an array room for n elements of `size` bytes; capacities double. `array` points to a
 * pointer of any object type, which memcpy reads and writes because it need not be a void *. 1 where there is
 * room; 0 where memory is missing: array and capacity are as before. */
static inline int tandem_reserve(void *array, size_t *capacity, size_t n, size_t size)
{
    void *old, *larger;
    size_t wanted = *capacity ? *capacity : 256;
    if (n <= *capacity) return 1;
    while (wanted < n) wanted *= 2;
    memcpy(&old, array, sizeof old);
    if (!(larger = realloc(old, wanted * size))) return 0;
    memcpy(array, &larger, sizeof larger);
    *capacity = wanted;
    return 1;
}
