/* replay_zero.c: a step with ZeRO: ranks keep shards of the training state. */
#include <stdio.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/replay.h"

json_t *replay_zero_json(const tandem_zero *zero, const tandem_sharding *sharding,
                         const tandem_cluster *cluster)
{
    return json_pack("{s:i,s:o,s:I,s:I,s:i,s:b}", "stage", sharding->stage, "shares",
                     cli_json_shares(sharding), "reduce_scatter_ns", (json_int_t)zero->scatter_ns,
                     "all_gather_ns", (json_int_t)zero->gather_ns, "all_gathers", zero->n_gather, "runs",
                     tandem_cluster_trains_sharded(cluster, sharding->stage));
}

void replay_zero_print(const tandem_zero *zero, const tandem_sharding *sharding,
                       const tandem_cluster *cluster)
{
    static const char *const shared[] = {"optimizer state", "optimizer state and gradients",
                                         "optimizer state, gradients and weights"};
    char shares[256] = "in equal shards";
    for (int c = 0; c < sharding->n_share; c++) {
        if (c == 0) *shares = '\0';
        (void)tandem_append(shares, sizeof shares, "%s%.3g%% for a rank of %s",
                            c == 0 ? "in shards of " : ", ", 100 * tandem_shard_share(sharding, c),
                            cluster->classes[c].device.name);
    }
    answer_line("ZeRO", "stage %d, %s %s over all ranks; reduce-scatters %s, %d all-gather%s %s%s",
                sharding->stage, shared[sharding->stage - 1], shares,
                tandem_quantity_ns(zero->scatter_ns).text, zero->n_gather, zero->n_gather == 1 ? "" : "s",
                tandem_quantity_ns(zero->gather_ns).text,
                tandem_cluster_trains_sharded(cluster, sharding->stage)
                    ? ""
                    : "; only simulated: `tandem train` has stage 1, on CPUs");
}
