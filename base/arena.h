/* arena.h: many small allocations with one life. */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stddef.h>

/* An all-zero one is empty and ready. Not thread-safe; may be moved, not copied and used twice. */
typedef struct tandem_arena {
    struct tandem_arena_block *block; /* the newest first; only the first one is allocated from */
    size_t next_bytes;                /* size of the next block: they double up to 1 MiB */
} tandem_arena;

/* tandem_arena_alloc: `bytes` zeroed bytes, aligned to 16, valid until tandem_arena_free. 0 bytes are a
 * pointer that must not be read. NULL where memory is out; the arena and all it gave before stay as they
 * were. Amortised O(bytes). */
void *tandem_arena_alloc(tandem_arena *arena, size_t bytes);

/* tandem_arena_array: the same for count × size bytes; NULL, too, where the product overflows. */
void *tandem_arena_array(tandem_arena *arena, size_t count, size_t size);

/* tandem_arena_text: a copy of a string; NULL where memory is out. */
char *tandem_arena_text(tandem_arena *arena, const char *text);

/* tandem_arena_free: give everything back; the arena is empty and ready again. */
void tandem_arena_free(tandem_arena *arena);

#endif
