/* collective.h: times of collectives on the links of a cluster.
 *
 * The α–β model: a message of m bytes takes the latency of its link plus m / bandwidth. A rank sends one
 * message and receives one at the same time. A round of an algorithm lasts as long as its slowest message.
 * Adding numbers costs nothing. The link of a message:
 *
 *     two ranks of a class on one node       the class's `link`, else as
 *     two ranks on one node                  `node`, else as
 *     two ranks on different nodes           `net`: one connection per node, shared evenly by its messages of
 *     a round
 *
 * Ranks are ordered node by node; the order of classes does not matter. With n ranks on m nodes, g of them on
 * one, M bytes, p the largest power of two ≤ n, h = ⌈log2 n⌉:
 *
 *     reduce-scatter, all-gather
 *       ring               (n−1) messages of M/n                               [Patarasuk, Yuan 2009]
 *       halving-doubling   log2 p messages of M/2, M/4 … M/p, the largest to the neighbour;
 *                          n > p: one of M from each excess rank, one of M/n to it
 *                                                                  [Rabenseifner 2004, Thakur et al. 2005]
 *       tree               everything to one rank by two trees, then parts by a binomial tree;
 *                          or parts to one rank, then everything from there    [Thakur et al. 2005]
 *       hierarchical       a ring of M/g in each node, then one of M/m between nodes; or the reverse
 *                                                                              [Cho et al. 2019]
 *     all-reduce           both one after the other. Halving-doubling: without the messages of M/n. Tree: two
 *                          trees up, and down again. Hierarchical: in the node, twice between nodes, in the
 *                          node
 *     broadcast
 *       tree               two trees, each with M/2 in k blocks: 2(h+k−1) messages of M/2k, with the best k
 *                                                                              [Sanders, Speck, Träff 2009]
 *       ring               nth parts one after the other: 2(n−1) messages of M/n
 *       halving-doubling   parts by a binomial tree, then its all-gather       [Thakur et al. 2005]
 *       hierarchical       parts one by one in the first node, as `ring` between nodes, all-gather in each
 *                          node
 *
 * R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, Int. J.
 * High Performance Computing Applications 19 (2005). R. Rabenseifner, Optimization of collective reduction
 * operations, ICCS 2004. P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
 * workstations, J. Parallel Distrib. Comput. 69 (2009). P. Sanders, J. Speck, J. L. Träff, Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35 (2009). M. Cho et al.,
 * BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, SysML 2019. */
#pragma once

#include "tandem/advanced/replayer.h"

typedef enum tandem_collective {
    TANDEM_ALL_REDUCE,
    TANDEM_REDUCE_SCATTER, /* a rank keeps an nth part of the sum */
    TANDEM_ALL_GATHER,     /* a rank brings an nth part */
    TANDEM_BROADCAST,
    TANDEM_N_COLLECTIVE
} tandem_collective;

typedef struct tandem_topology tandem_topology;

/* tandem_topology_open: the links of a cluster, and the messages of every collective by one algorithm or,
 * with TANDEM_AUTO, by each. TANDEM_MISSING where ranks have no link, with a clause that names the cluster
 * and what to add ("the cluster … names no link between its nodes; add net=…"); TANDEM_NO_MEMORY. *topology
 * unchanged on error. Cost: O(classes) for a ring and hierarchical, O(ranks · log ranks) for the others. */
tandem_status tandem_topology_open(tandem_topology **topology, const tandem_cluster *cluster,
                                   tandem_collective_algorithm algorithm, tandem_error *error);
void tandem_topology_close(tandem_topology *topology); /* NULL is fine */

/* tandem_collective_ns: time of one collective of all ranks; 0 where there is one rank.
 *   bytes  of the whole array: what every rank has in the end, or, of a reduce-scatter, had in the beginning
 *   used   [out] the algorithm: with TANDEM_AUTO the fastest, the first of equals; may be NULL
 * Cost: O(log ranks × links). */
double tandem_collective_ns(const tandem_topology *topology, tandem_collective collective, uint64_t bytes,
                            tandem_collective_algorithm *used);
