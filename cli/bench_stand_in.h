/* bench_stand_in.h: replayers over costs that are made up: how fast a replay is does not depend on them. */
#ifndef TANDEM_CLI_BENCH_STAND_IN_H
#define TANDEM_CLI_BENCH_STAND_IN_H

#include "tandem/replayer.h"

/* What the costs are, for people. */
extern const char *const bench_stand_in_costs;

/* bench_stand_in_open: a replayer with a cost for every form of every task, alone and beside every other class; over a store in the
 * working directory that is gone by the return. The cluster's link says what an all-reduce takes; where it has none,
 * one is made up that slows compute and is slowed by it. */
tandem_status bench_stand_in_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                  const tandem_graph *const *graph, uint64_t bucket_bytes, tandem_error *error);

/* A graph of 1,000 operators, 160 of them products with weights, in residual blocks. With buckets of a byte each weight
 * has one of its own. */
enum { BENCH_WIDE_OPS = 1000, BENCH_WIDE_BUCKETS = 160, BENCH_WIDE_BUCKET_BYTES = 1 };
tandem_status bench_wide_graph(tandem_graph **graph, tandem_error *error);

/* n_class classes of n_rank / n_class cards, each rank on a node of its own, joined by a link: nobody interferes with
 * anybody. */
void bench_wide_cluster(tandem_cluster *cluster, int n_class, int n_rank);

#endif
