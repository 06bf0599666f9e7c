/* hash.h: 64-bit FNV-1a (Fowler, Noll, Vo), and a table from hashes to indices. Not against an adversary. */
#pragma once

#include <stdint.h>
#include <string.h>

#define TANDEM_HASH_START UINT64_C(0xcbf29ce484222325)

/* `hash` continued by the bytes of `text`. A first text continues TANDEM_HASH_START. */
static inline uint64_t tandem_hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* `hash` continued by n bytes: eight at a time, in four lanes, so that memory limits it and not the chain of
 * products. The same on all machines with the same byte order. */
static inline uint64_t tandem_hash_bytes(uint64_t hash, const void *bytes, uint64_t n)
{
    enum { LANES = 4 };
    const uint64_t prime = UINT64_C(0x100000001b3);
    const unsigned char *at = bytes;
    uint64_t lane[LANES] = {hash, hash + 1, hash + 2, hash + 3}, left = n;
    for (; left >= sizeof lane; left -= sizeof lane, at += sizeof lane) {
        uint64_t word[LANES];
        memcpy(word, at, sizeof word);
        for (int k = 0; k < LANES; k++) {
            lane[k] = (lane[k] ^ word[k]) * prime;
            lane[k] ^= lane[k] >> 29; /* else a high bit would reach no low one */
        }
    }
    for (; left > 0; left--, at++) lane[0] = (lane[0] ^ *at) * prime;
    for (int k = 0; k < LANES; k++) hash = (hash ^ lane[k]) * prime, hash ^= hash >> 32;
    return (hash ^ n) * prime;
}

/* Indices ≥ 0 by hash, which represents the key. All zero is empty. */
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
