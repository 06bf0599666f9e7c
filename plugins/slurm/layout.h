/* layout.h: the nodes of a step as a cluster, and the ranks of its tasks. Private to plugins/slurm.
 *
 * Nodes with the same device and the same number of tasks form one class; classes are in the order of their
 * first nodes. tandem numbers ranks class by class; Slurm numbers tasks by its own distribution. So a task's
 * rank is the first rank of its node plus its index on the node (SLURM_LOCALID), for every SLURM_PROCID. */
#pragma once

#include "tandem/cluster.h"

typedef struct tandem_node {
    const char *name; /* borrowed */
    tandem_device device;
    int n_task;
    int class_index; /* of its class; set by tandem_layout_ranks */
    int first_rank;  /* set by tandem_layout_ranks */
} tandem_node;

enum { TANDEM_LAYOUT_TEXT = 4096 };

/* tandem_layout_print: the cluster as text, "2*cpu:avx2@1 + 4*t4@2 net=100Gbit/s,5us". `net` may be "".
 * TANDEM_USAGE: the nodes form more classes than a cluster may have. Cost: O(nodes). */
tandem_status tandem_layout_print(char text[TANDEM_LAYOUT_TEXT], const tandem_node *node, int n_node,
                                  const char *net, tandem_error *error);

/* tandem_layout_ranks: sets class and first rank of every node, such that each class of `cluster` gets its
 * ranks from whole nodes, in order. TANDEM_WRONG_MODEL: the nodes do not form the cluster; names both. */
tandem_status tandem_layout_ranks(tandem_node *node, int n_node, const tandem_cluster *cluster,
                                  tandem_error *error);
