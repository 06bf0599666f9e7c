/* bench_wide.c: a graph of many operators and clusters of many ranks. */
#include "bench/program/bench_wide.h"

#include <stdio.h>

#include "graph/ir/build.h"

enum { BATCH = 8, SIDE = 8, WIDTH = SIDE * SIDE, CLASSES = 10, BLOCKS = BENCH_WIDE_BUCKETS - 1 };
enum {
    OPS_PER_BLOCK = 6,
    OPS_OUTSIDE_BLOCKS = 5,
    LONGER_BLOCKS = BENCH_WIDE_OPS - OPS_OUTSIDE_BLOCKS - BLOCKS * OPS_PER_BLOCK
};

static int build_wide_block(tandem_builder *b, int block, int x)
{
    static const char *const part[] = {"product", "relu", "add", "relu2", "gelu", "join", "relu3"};
    char name[7][32];
    for (int k = 0; k < 7; k++) (void)snprintf(name[k], sizeof name[k], "block%d.%s", block, part[k]);
    int y = tandem_build_relu(b, name[1], tandem_build_linear(b, name[0], x, WIDTH, 0.1f));
    if (block < LONGER_BLOCKS) y = tandem_build_relu(b, name[6], y);
    y = tandem_build_relu(b, name[3], tandem_build_add(b, name[2], x, y));
    return tandem_build_add(b, name[5], tandem_build_gelu(b, name[4], y), y);
}

tandem_status bench_wide_graph(tandem_graph **graph, tandem_error *error)
{
    static const int64_t flat[2] = {BATCH, WIDTH};
    const tandem_optimizer_options optimizer = {.kind = TANDEM_ADAMW};
    tandem_builder *b = NULL;
    tandem_status status = tandem_builder_open(&b, BATCH, error);
    if (status != TANDEM_OK) return status;
    int x = tandem_build_reshape(b, "flatten", tandem_build_images(b, "image", SIDE, SIDE, 1), 2, flat);
    const int labels = tandem_build_labels(b, "label", 1);
    for (int block = 0; block < BLOCKS; block++) x = build_wide_block(b, block, x);
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", x, CLASSES, 0.1f), labels);
    status = tandem_builder_finish(b, "1000 operators, 160 buckets", &optimizer, graph, error);
    tandem_builder_close(b);
    return status;
}

void bench_wide_cluster(tandem_cluster *cluster, int n_class, int n_rank, double link_bytes_per_s)
{
    *cluster = (tandem_cluster){.n_class = n_class, .link_bytes_per_s = link_bytes_per_s};
    for (int c = 0; c < n_class; c++) {
        tandem_cluster_class *class = &cluster->classes[c];
        *class = (tandem_cluster_class){.n_rank = n_rank / n_class, .per_node = 1, .batch = BATCH};
        (void)snprintf(class->device.name, sizeof class->device.name, "card%d", c);
        class->device.precisions = (1u << TANDEM_N_PRECISION) - 1;
        class->device.amp_dtype = c % 2 ? TANDEM_F32 : TANDEM_BF16;
    }
}
