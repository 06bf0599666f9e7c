/* bench_wide.h: a graph of many operators and clusters of many ranks, for replay benchmarks. */
#pragma once

#include "tandem/cluster.h"

/* 1,000 operators in residual blocks, 160 of them products with weights. Buckets of one byte give each weight
 * a bucket of its own. */
enum { BENCH_WIDE_OPS = 1000, BENCH_WIDE_BUCKETS = 160, BENCH_WIDE_BUCKET_BYTES = 1 };
tandem_status bench_wide_graph(tandem_graph **graph, tandem_error *error);

/* n_class classes of n_rank / n_class GPUs, one rank per node, joined by a link: there is no contention. */
void bench_wide_cluster(tandem_cluster *cluster, int n_class, int n_rank, double link_bytes_per_s);
