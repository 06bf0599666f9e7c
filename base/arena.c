/* arena.c: blocks that double in size, in a list. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 4 << 10, MAX_BLOCK_BYTES = 1 << 20 };

struct tandem_arena_block {
    _Alignas(ALIGNMENT) struct tandem_arena_block *older;
    size_t used, bytes;
};

_Static_assert(sizeof(struct tandem_arena_block) % ALIGNMENT == 0, "what follows the header is aligned");
_Static_assert(_Alignof(max_align_t) >= ALIGNMENT, "calloc aligns enough");

static struct tandem_arena_block *new_arena_block(size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(struct tandem_arena_block)) return NULL;
    struct tandem_arena_block *block = calloc(1, sizeof *block + bytes);
    if (block) block->bytes = bytes;
    return block;
}

static void *take_from_block(struct tandem_arena_block *block, size_t bytes)
{
    unsigned char *const at = (unsigned char *)(block + 1) + block->used;
    block->used += bytes;
    return at;
}

void *tandem_arena_alloc(tandem_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGNMENT) return NULL;
    bytes = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (arena->block && bytes <= arena->block->bytes - arena->block->used)
        return take_from_block(arena->block, bytes);
    const size_t block_bytes = arena->next_bytes ? arena->next_bytes : FIRST_BLOCK_BYTES;
    struct tandem_arena_block *const block = new_arena_block(bytes > block_bytes ? bytes : block_bytes);
    if (!block) return NULL;
    if (bytes > block_bytes && arena->block) {
        /* A block for one large array goes after the first one, which still has free room. */
        block->older = arena->block->older;
        arena->block->older = block;
        return take_from_block(block, bytes);
    }
    block->older = arena->block;
    arena->block = block;
    arena->next_bytes = block_bytes < MAX_BLOCK_BYTES ? block_bytes * 2 : block_bytes;
    return take_from_block(block, bytes);
}

void *tandem_arena_array(tandem_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : tandem_arena_alloc(arena, bytes);
}

char *tandem_arena_text(tandem_arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *const copy = tandem_arena_alloc(arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void tandem_arena_free(tandem_arena *arena)
{
    while (arena->block) {
        struct tandem_arena_block *const block = arena->block;
        arena->block = block->older;
        free(block);
    }
    arena->next_bytes = 0;
}
