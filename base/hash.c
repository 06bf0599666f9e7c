/* hash.c: a hash table of indices, with linear probing. */
#include "base/hash.h"

#include <stdlib.h>

static struct tandem_hash_slot *slot_of_hash(const tandem_hash_index *table, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & (table->capacity - 1);
    while (table->slot[at].index_1 && table->slot[at].hash != hash) at = (at + 1) & (table->capacity - 1);
    return &table->slot[at];
}

int tandem_hash_index_find(const tandem_hash_index *table, uint64_t hash)
{
    return table->capacity ? (int)(slot_of_hash(table, hash)->index_1 - 1) : -1;
}

static int grow_hash_index(tandem_hash_index *table)
{
    tandem_hash_index larger = {.n = table->n, .capacity = table->capacity ? 2 * table->capacity : 256};
    larger.slot = calloc(larger.capacity, sizeof *larger.slot);
    if (!larger.slot) return 0;
    for (uint32_t k = 0; k < table->capacity; k++)
        if (table->slot[k].index_1) *slot_of_hash(&larger, table->slot[k].hash) = table->slot[k];
    free(table->slot);
    *table = larger;
    return 1;
}

int tandem_hash_index_add(tandem_hash_index *table, uint64_t hash, int index)
{
    if (2 * (table->n + 1) > table->capacity && !grow_hash_index(table)) return 0;
    *slot_of_hash(table, hash) = (struct tandem_hash_slot){hash, (int64_t)index + 1};
    table->n++;
    return 1;
}

void tandem_hash_index_free(tandem_hash_index *table)
{
    free(table->slot);
    *table = (tandem_hash_index){0};
}
