/* sources.c: where the times of a step come from, of all classes and their all-reduces. */
#include <stdio.h>

#include "tandem/advanced/replayer.h"

/* Whether ranks of one node take the link between nodes (cluster.h: `node` not given). */
static int takes_net_within_nodes(const tandem_cluster *cluster)
{
    if (!(cluster->link_bytes_per_s > 0) || cluster->node.bytes_per_s > 0) return 0;
    for (int c = 0; c < cluster->n_class; c++) {
        const tandem_cluster_class *class = &cluster->classes[c];
        const int is_several = class->n_rank > 1 && class->per_node != 1;
        if (is_several && !(class->link.bytes_per_s > 0)) return 1;
    }
    return 0;
}

void tandem_replayer_sources(const tandem_replayer *replayer, tandem_time_sources *sources)
{
    const tandem_cluster *cluster = tandem_replayer_cluster(replayer);
    *sources = (tandem_time_sources){.n_class = cluster->n_class,
                                     .allreduce = *tandem_replayer_allreduce_source(replayer),
                                     .is_net_within_nodes = takes_net_within_nodes(cluster)};
    for (int c = 0; c < cluster->n_class; c++) {
        (void)snprintf(sources->device[c], sizeof sources->device[c], "%s", cluster->classes[c].device.name);
        tandem_replayer_provenance(replayer, c, &sources->of[c]);
    }
}

int tandem_time_sources_are_described(const tandem_time_sources *sources)
{
    for (int c = 0; c < sources->n_class; c++)
        for (int k = 0; k < TANDEM_N_ORIGIN; k++)
            if (sources->of[c].n_fitted || (k != TANDEM_ORIGIN_PREDICTED && sources->of[c].n_task[k]))
                return 0;
    return sources->allreduce.n_point == 0;
}
