/* hash.h: 64-bit FNV-1a (Fowler, Noll, Vo), and a table from hashes to indices. Not against an adversary. */
#pragma once

#include <stdint.h>

#define TANDEM_HASH_START UINT64_C(0xcbf29ce484222325)

/* `hash` continued by the bytes of `text`. A first text continues TANDEM_HASH_START. */
static inline uint64_t tandem_hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* Indices ≥ 0 by hash, which stands for the key. All zero is empty. */
typedef struct tandem_hash_index {
    struct tandem_hash_slot {
        uint64_t hash;
        int64_t index_1; /* index + 1; 0 = free */
    } * slot;            /* [capacity] open addressing, at most half full */
    uint32_t n, capacity;
} tandem_hash_index;

/* The index of a hash; −1 = none. O(1). */
int tandem_hash_index_find(const tandem_hash_index *table, uint64_t hash);
/* Adds a hash that the table does not have. 0 = no memory; the table is unchanged then. Amortised O(1). */
int tandem_hash_index_add(tandem_hash_index *table, uint64_t hash, int index);
void tandem_hash_index_free(tandem_hash_index *table); /* all zero is fine */
