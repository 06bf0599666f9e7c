#include "cli/bench_stand_in.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "graph/build.h"
#include "tandem/store.h"

const char *const bench_stand_in_costs = "made up, 5 to 20 us a task";

/* --- Costs ------------------------------------------------------------------------------------ */

static tandem_cost cost_of(int64_t ns)
{
    tandem_cost cost;
    tandem_cost_from_samples(&cost, &ns, 1, 0);
    return cost;
}

/* 5 to 20 us by key and device; a fifth more beside a neighbour. */
static tandem_cost draw(const char *device, const tandem_cost_key *key, int beside)
{
    char text[TANDEM_MAX_SIGNATURE + 96];
    uint32_t hash = 2166136261u;
    tandem_cost_key_print(text, sizeof text, key);
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (const char *c = device; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    const uint32_t counter[4] = {hash, 0, 0, 0};
    const int64_t alone_ns = 5000 + tandem_philox(counter, 1).word[0] % 15000;
    return cost_of(beside ? alone_ns * 6 / 5 : alone_ns);
}

static tandem_status fill_class(tandem_store *store, const tandem_cluster *cluster, const tandem_graph *graph,
                                uint64_t bucket_bytes, int c, tandem_error *error)
{
    const char *device = cluster->member[c].device.name;
    tandem_step *step = NULL;
    tandem_status status = tandem_step_open(&step, graph, cluster->member[c].device.wider, bucket_bytes, error);
    for (int t = 0; status == TANDEM_OK && t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT && status == TANDEM_OK; variant++) {
            tandem_cost_key key;
            if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_key(step, t, variant, &key))
                continue;
            tandem_cost cost = draw(device, &key, 0);
            status = tandem_store_put_cost(store, device, "", &key, &cost, error);
            cost = draw(device, &key, 1);
            for (int other = 0; other < cluster->n_class && status == TANDEM_OK && !cluster->link_bytes_per_s; other++)
                status = tandem_store_put_cost(store, device, cluster->member[other].device.name, &key, &cost, error);
        }
    tandem_step_close(step);
    return status;
}

/* An all-reduce that slows compute by a sixth, and that compute slows by a fifth. */
static tandem_status fill_wire(tandem_store *store, const tandem_cluster *cluster, tandem_error *error)
{
    char group[TANDEM_MAX_CLASS * (TANDEM_DEVICE_NAME + 12)];
    tandem_status status = TANDEM_OK;
    tandem_cluster_group(group, sizeof group, cluster);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        const tandem_collective_point point = {.bytes = 1 << 20, .cost = cost_of(loaded ? 30000 : 25000)};
        status = tandem_store_put_collective(store, group, "all-reduce", loaded, &point, error);
    }
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = tandem_store_put_interference(store, cluster->member[c].device.name, group,
                                               "compute_under_comm", 7.0 / 6, 1, error);
    return status;
}

static tandem_status fill(tandem_store *store, const tandem_cluster *cluster,
                          const tandem_graph *const *graph, uint64_t bucket_bytes, tandem_error *error)
{
    tandem_status status = tandem_store_begin(store, error);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++)
        status = fill_class(store, cluster, graph[c], bucket_bytes, c, error);
    if (status == TANDEM_OK && !cluster->link_bytes_per_s) status = fill_wire(store, cluster, error);
    return status == TANDEM_OK ? tandem_store_commit(store, error) : status;
}

static void remove_store(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    char file[64];
    for (int k = 0; k < 3; k++) {
        (void)snprintf(file, sizeof file, "%s%s", path, suffix[k]);
        (void)unlink(file);
    }
}

tandem_status bench_stand_in_open(tandem_replayer **replayer, const tandem_cluster *cluster,
                                  const tandem_graph *const *graph, uint64_t bucket_bytes, tandem_error *error)
{
    char path[] = ".tandem-bench-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot make a store in the working directory: %s",
                                strerror(errno));
    (void)close(file);
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = fill(store, cluster, graph, bucket_bytes, error);
    if (status == TANDEM_OK)
        status = tandem_replayer_open(replayer, cluster, graph, store, bucket_bytes, error);
    tandem_store_close(store);
    remove_store(path);
    return status;
}

/* --- A wide graph ----------------------------------------------------------------------------- */

enum { BATCH = 8, SIDE = 8, WIDTH = SIDE * SIDE, CLASSES = 10, BLOCKS = BENCH_WIDE_BUCKETS - 1 };
enum { OPS_A_BLOCK = 6, OPS_AROUND = 5, LONGER_BLOCKS = BENCH_WIDE_OPS - OPS_AROUND - BLOCKS * OPS_A_BLOCK };

static int build_block(tandem_builder *b, int block, int x)
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
    for (int block = 0; block < BLOCKS; block++) x = build_block(b, block, x);
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", x, CLASSES, 0.1f), labels);
    status = tandem_builder_finish(b, "1000 operators, 160 buckets", &optimizer, graph, error);
    tandem_builder_close(b);
    return status;
}

void bench_wide_cluster(tandem_cluster *cluster, int n_class, int n_rank)
{
    *cluster = (tandem_cluster){.n_class = n_class, .link_bytes_per_s = 12.5e9, .link_latency_ns = 20000};
    for (int c = 0; c < n_class; c++) {
        tandem_cluster_class *member = &cluster->member[c];
        *member = (tandem_cluster_class){.n_rank = n_rank / n_class, .per_node = 1, .batch = BATCH};
        (void)snprintf(member->device.name, sizeof member->device.name, "card%d", c);
        member->device.precisions = (1u << TANDEM_N_PRECISION) - 1;
        member->device.wider = c % 2 ? TANDEM_F32 : TANDEM_BF16;
    }
}
