/* sharding.c: which part of the training's state each class of a cluster keeps (ZeRO). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tandem/cluster.h"

static tandem_status refuse_shares(const char *shards, const tandem_cluster *cluster, tandem_error *error)
{
    return tandem_error_set(
        error, TANDEM_USAGE,
        "shards '%s': give \"even\", or the share of a rank in each of %d classes, such as "
        "\"1,3\": whole numbers from 0 to %d, not all 0",
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

tandem_status tandem_cluster_shard(tandem_sharding *sharding, const tandem_cluster *cluster, int stage,
                                   const char *shards, tandem_error *error)
{
    tandem_sharding made = {.stage = stage, .n_rank = tandem_cluster_n_rank(cluster)};
    if (stage < 0 || stage > TANDEM_MAX_ZERO_STAGE)
        return tandem_error_set(error, TANDEM_USAGE, "ZeRO has stages 1, 2 and 3, got %d", stage);
    if (stage == 0 && shards)
        return tandem_error_set(error, TANDEM_USAGE, "shards '%s' without a stage of ZeRO. Give --zero 1",
                                shards);
    if (shards && strcmp(shards, "even") != 0) {
        const tandem_status status = read_shares(&made, shards, cluster, error);
        if (status != TANDEM_OK) return status;
    }
    *sharding = made;
    return TANDEM_OK;
}
