/* layout.h: the nodes of a step as a cluster of tandem's, and the ranks that their tasks become. Private to
 * allocator/slurm.
 *
 * Nodes with the same device and the same number of tasks are one class; classes stand in the order of their
 * first nodes. tandem numbers ranks class by class, Slurm numbers tasks by its own distribution: so a task's
 * rank is the first rank of its node plus its place on the node (SLURM_LOCALID), whatever SLURM_PROCID is. */
#ifndef TANDEM_ALLOCATOR_SLURM_LAYOUT_H
#define TANDEM_ALLOCATOR_SLURM_LAYOUT_H

#include "tandem/cluster.h"

typedef struct tandem_node {
    const char *name; /* borrowed */
    tandem_device device;
    int n_task;
    int class_index; /* its class, out of tandem_layout_ranks */
    int first_rank;  /* likewise */
} tandem_node;

enum { TANDEM_LAYOUT_TEXT = 4096 };

/* tandem_layout_print: the cluster in tandem's words, "2*cpu:avx2@1 + 4*t4@2 net=100Gbit/s,5us". `net` may be
 * "". TANDEM_USAGE where there are more classes than a cluster has. Cost: O(nodes). */
tandem_status tandem_layout_print(char text[TANDEM_LAYOUT_TEXT], const tandem_node *node, int n_node,
                                  const char *net, tandem_error *error);

/* tandem_layout_ranks: fill in class and first rank of every node, so that each class of `cluster` gets its
 * ranks, nodes taken in order and whole. TANDEM_WRONG_MODEL where the nodes are not the cluster: says what
 * each is. */
tandem_status tandem_layout_ranks(tandem_node *node, int n_node, const tandem_cluster *cluster,
                                  tandem_error *error);

#endif
