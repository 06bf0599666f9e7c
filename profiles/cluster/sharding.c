/* sharding.c: which part of the training's state each class of a cluster keeps (ZeRO). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "tandem/cluster.h"

static tandem_status refuse_shares(const char *shards, const tandem_cluster *cluster, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_USAGE,
        "shards '%s': give \"even\", \"fit\", or the shares of a rank in each of %d classes: whole numbers "
        "from 0 to %d with commas between them, not all 0",
        shards, cluster->n_class, (int)TANDEM_MAX_SHARE_UNITS);
}

static tandem_status read_shares(tandem_sharding *to, const char *shards, const tandem_cluster *cluster,
                                 tandem_error *error)
{
    int64_t all = 0;
    const char *at = shards;
    for (int c = 0; c < cluster->n_class; c++) {
        char *end = NULL;
        const char expected = c + 1 < cluster->n_class ? ',' : '\0';
        errno = 0;
        const long units = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (units < 0 || units > TANDEM_MAX_SHARE_UNITS || errno || *end != expected)
            return refuse_shares(shards, cluster, error);
        to->class_ranks[c] = cluster->classes[c].n_rank;
        to->class_units[c] = (int)units;
        all += units;
        at = end + 1;
    }
    to->n_share = cluster->n_class;
    return all > 0 ? TANDEM_OK : refuse_shares(shards, cluster, error);
}

_Static_assert((int)TANDEM_MAX_SHARE >= (int)TANDEM_MAX_CLASS, "each class has a share");

int tandem_cluster_trains_sharded(const tandem_cluster *cluster, int stage)
{
    for (int c = 0; c < cluster->n_class; c++)
        if (strncmp(cluster->classes[c].device.name, "cpu:", 4) != 0) return 0;
    return stage == 1;
}

int tandem_shards_fit(const char *shards) { return shards && strcmp(shards, "fit") == 0; }

tandem_status tandem_cluster_shard(tandem_sharding *sharding, const tandem_cluster *cluster, int stage,
                                   const char *shards, tandem_error *error)
{
    tandem_sharding made = {.stage = stage, .n_rank = tandem_cluster_n_rank(cluster)};
    if (stage < 0 || stage > TANDEM_MAX_ZERO_STAGE)
        return tandem_error_set(error, TANDEM_USAGE, "ZeRO has stages 1, 2 and 3, got %d", stage);
    if (stage == 0 && shards)
        return tandem_error_set(error, TANDEM_USAGE, "shards '%s' without a stage of ZeRO. Give --zero 1",
                                shards);
    if (tandem_shards_fit(shards) && stage > 1)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "shards fit memory in stage 1, where the rest does not depend on them, not in "
            "stage %d. Give shares, such as \"1,3\"",
            stage);
    if (shards && strcmp(shards, "even") != 0 && !tandem_shards_fit(shards)) {
        const tandem_status status = read_shares(&made, shards, cluster, error);
        if (status != TANDEM_OK) return status;
    }
    *sharding = made;
    return TANDEM_OK;
}

/* --- By memory ------------------------------------------------------------------------------------------ */

/* What all ranks keep where each keeps `most` bytes, or its room. */
static double kept_bytes(const tandem_cluster *cluster, const tandem_shard_room *room, double most)
{
    double kept = 0;
    for (int c = 0; c < cluster->n_class; c++)
        kept += cluster->classes[c].n_rank * ((double)room[c].bytes < most ? (double)room[c].bytes : most);
    return kept;
}

static tandem_status lack_room(const tandem_cluster *cluster, const tandem_shard_room *room, uint64_t state,
                               tandem_error *error)
{
    char needed[TANDEM_QUANTITY_TEXT], lacking[TANDEM_QUANTITY_TEXT];
    const double has_room = kept_bytes(cluster, room, (double)UINT64_MAX);
    return tandem_error_set(
        error, TANDEM_INFEASIBLE,
        "the optimizer's state takes %s, of which %s have no room within the memory limits of "
        "all %d ranks, shards rounded up. Raise --memory, or give a smaller --batch",
        tandem_quantity_print_bytes(needed, sizeof needed, state),
        tandem_quantity_print_bytes(lacking, sizeof lacking, state - (uint64_t)has_room),
        tandem_cluster_n_rank(cluster));
}

tandem_status tandem_cluster_fit_shards(tandem_sharding *sharding, const tandem_cluster *cluster,
                                        const tandem_shard_room *room, uint64_t state, tandem_error *error)
{
    double most = 0, high = (double)state;
    int is_even = 1;
    for (int c = 0; c < cluster->n_class; c++) is_even &= room[c].fits_evenly != 0;
    if (is_even) return TANDEM_OK;
    if (kept_bytes(cluster, room, high) < (double)state) return lack_room(cluster, room, state, error);
    for (int k = 0; k < 60; k++) {
        const double middle = (most + high) / 2;
        if (kept_bytes(cluster, room, middle) < (double)state)
            most = middle;
        else
            high = middle;
    }
    sharding->n_share = cluster->n_class;
    for (int c = 0; c < cluster->n_class; c++) {
        const double kept = (double)room[c].bytes < high ? (double)room[c].bytes / high : 1;
        sharding->class_ranks[c] = cluster->classes[c].n_rank;
        sharding->class_units[c] = (int)(kept * TANDEM_MAX_SHARE_UNITS); /* down: a class keeps no more */
    }
    return TANDEM_OK;
}
