/* hash.h: 64-bit FNV-1a (Fowler, Noll, Vo), for tables and fingerprints; not against an adversary. */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stdint.h>

#define TANDEM_HASH_START UINT64_C(0xcbf29ce484222325)

/* `hash` continued by the bytes of `text`. A first text continues TANDEM_HASH_START. */
static inline uint64_t tandem_hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
