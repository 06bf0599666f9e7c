/* layout.c: groups the nodes of a step into classes, and gives every node its first rank. */
#include "plugins/slurm/layout.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct node_group {
    const char *device;
    int per_node, n_rank;
} node_group;

static int find_node_group(const node_group *groups, int n, const tandem_node *node)
{
    int g = 0;
    while (g < n && (groups[g].per_node != node->n_task || strcmp(groups[g].device, node->device.name) != 0))
        g++;
    return g;
}

tandem_status tandem_layout_print(char text[TANDEM_LAYOUT_TEXT], const tandem_node *node, int n_node,
                                  const char *net, tandem_error *error)
{
    node_group groups[TANDEM_MAX_CLASS];
    int n = 0;
    for (int i = 0; i < n_node; i++) {
        if (!node[i].n_task) continue;
        const int g = find_node_group(groups, n, &node[i]);
        if (g == TANDEM_MAX_CLASS)
            return tandem_error_set(
                error, TANDEM_USAGE,
                "the nodes make more than %d classes of ranks (a class is one device and one number of "
                "tasks a node); give every node the same number of tasks, or take fewer kinds of nodes",
                TANDEM_MAX_CLASS);
        if (g == n) groups[n++] = (node_group){.device = node[i].device.name, .per_node = node[i].n_task};
        groups[g].n_rank += node[i].n_task;
    }
    char text_made[TANDEM_LAYOUT_TEXT] = "";
    size_t used = 0;
    for (int g = 0; g < n; g++)
        used += (size_t)snprintf(text_made + used, sizeof text_made - used, "%s%d*%s@%d", g ? " + " : "",
                                 groups[g].n_rank, groups[g].device, groups[g].per_node);
    (void)snprintf(text_made + used, sizeof text_made - used, "%s%.100s", net[0] ? " net=" : "", net);
    memcpy(text, text_made, sizeof text_made);
    return TANDEM_OK;
}
_Static_assert(TANDEM_MAX_CLASS *(TANDEM_DEVICE_NAME + 24) + 128 < TANDEM_LAYOUT_TEXT,
               "a cluster's text fits");

static tandem_status refuse_cluster(const tandem_node *node, int n_node, const tandem_cluster *cluster,
                                    tandem_error *error)
{
    char wanted[TANDEM_LAYOUT_TEXT], here[TANDEM_LAYOUT_TEXT];
    tandem_cluster_print(wanted, sizeof wanted, cluster);
    const tandem_status status = tandem_layout_print(here, node, n_node, "", error);
    if (status != TANDEM_OK) return status;
    return tandem_error_set(error, TANDEM_WRONG_MODEL,
                            "the plan is for %.400s; the nodes of this step are %.400s", wanted, here);
}

tandem_status tandem_layout_ranks(tandem_node *node, int n_node, const tandem_cluster *cluster,
                                  tandem_error *error)
{
    int left = 0, rank = 0;
    for (int i = 0; i < n_node; i++) {
        node[i].class_index = -1;
        left += node[i].n_task;
    }
    for (int c = 0; c < cluster->n_class; c++) {
        int wanted = cluster->classes[c].n_rank;
        for (int i = 0; i < n_node && wanted > 0; i++) {
            const bool fits =
                node[i].class_index < 0 && node[i].n_task > 0 && node[i].n_task <= wanted &&
                (!cluster->classes[c].per_node || cluster->classes[c].per_node == node[i].n_task) &&
                strcmp(node[i].device.name, cluster->classes[c].device.name) == 0;
            if (!fits) continue;
            node[i].class_index = c;
            node[i].first_rank = rank;
            rank += node[i].n_task;
            wanted -= node[i].n_task;
            left -= node[i].n_task;
        }
        if (wanted > 0) return refuse_cluster(node, n_node, cluster, error);
    }
    return left ? refuse_cluster(node, n_node, cluster, error) : TANDEM_OK;
}
