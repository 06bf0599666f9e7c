/* arena.h: many allocations that are freed together. */
#pragma once

#include <stddef.h>

/* All zero: empty and ready. Not thread-safe. May be moved, but not copied and used twice. */
typedef struct tandem_arena {
    struct tandem_arena_block *block; /* the newest first; allocations come from the first */
    size_t next_bytes;                /* size of the next block; sizes double up to 1 MiB */
} tandem_arena;

/* tandem_arena_alloc: `bytes` zeroed bytes, aligned to 16, valid until tandem_arena_free. For 0 bytes, a
 * pointer that must not be read. NULL: out of memory; the arena and earlier allocations are unchanged.
 * Amortised O(bytes). */
void *tandem_arena_alloc(tandem_arena *arena, size_t bytes);

/* tandem_arena_array: the same for count × size bytes; also NULL where the product overflows. */
void *tandem_arena_array(tandem_arena *arena, size_t count, size_t size);

/* tandem_arena_text: a copy of a string; NULL: out of memory. */
char *tandem_arena_text(tandem_arena *arena, const char *text);

/* tandem_arena_free: frees everything; the arena is empty and ready again. */
void tandem_arena_free(tandem_arena *arena);
