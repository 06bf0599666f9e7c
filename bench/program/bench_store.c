/* bench_store.c: a temporary profile store with synthetic costs for given graphs and cluster, and any number
 * of other rows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/philox.h"
#include "bench/program/bench.h"

typedef struct store_filler {
    tandem_store *store;
    const tandem_cluster *cluster;
    const tandem_graph *const *graph;
    uint64_t bucket_bytes;
} store_filler;

/* Three samples within 5 %. */
static tandem_cost synthetic_cost(int64_t ns)
{
    tandem_cost cost;
    int64_t sample_ns[] = {ns - ns / 20, ns, ns + ns / 20};
    tandem_cost_from_samples(&cost, sample_ns, 3, 0);
    return cost;
}

/* 5 to 20 us, by key and device. */
static int64_t synthetic_ns(const char *device, const tandem_cost_key *key)
{
    char text[TANDEM_MAX_SIGNATURE + 96];
    tandem_cost_key_print(text, sizeof text, key);
    const uint64_t hash = tandem_hash_text(tandem_hash_text(TANDEM_HASH_START, text), device);
    const uint32_t counter[4] = {(uint32_t)hash, (uint32_t)(hash >> 32), 0, 0};
    return 5000 + tandem_philox(counter, 1).word[0] % 15000;
}

/* Alone, and 20 % more next to every device of the cluster if ranks may share a machine. */
static tandem_status put_synthetic_cost(const store_filler *m, int c, const tandem_cost_key *key,
                                        tandem_error *error)
{
    const char *device = m->cluster->classes[c].device.name;
    const int64_t ns = synthetic_ns(device, key);
    tandem_cost cost = synthetic_cost(ns);
    tandem_status status = tandem_store_put_cost(m->store, device, "", key, &cost, error);
    cost = synthetic_cost(ns * 6 / 5);
    for (int other = 0; other < m->cluster->n_class && status == TANDEM_OK && !m->cluster->link_bytes_per_s;
         other++)
        status = tandem_store_put_cost(m->store, device, m->cluster->classes[other].device.name, key, &cost,
                                       error);
    return status;
}

static tandem_status fill_class_costs(const store_filler *m, int c, tandem_error *error)
{
    tandem_step *step = NULL;
    tandem_status status = tandem_device_open_step(&step, &m->cluster->classes[c].device, m->graph[c],
                                                   m->bucket_bytes, NULL, error);
    for (int t = 0; status == TANDEM_OK && t < step->n_task; t++)
        for (uint64_t variants = tandem_step_variants(step, t, m->cluster->classes[c].device.precisions);
             variants && status == TANDEM_OK; variants &= variants - 1) {
            tandem_cost_key key;
            if (step->task[t].kind == TANDEM_TASK_REDUCE ||
                !tandem_step_cost_key(step, t, __builtin_ctzll(variants), &key))
                continue;
            status = put_synthetic_cost(m, c, &key, error);
        }
    tandem_step_close(step);
    return status;
}

/* An all-reduce slows compute by 1/6; compute slows the all-reduce by 1/5. */
static tandem_status fill_allreduce_costs(const store_filler *m, tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    tandem_status status = TANDEM_OK;
    tandem_cluster_group_key(group, sizeof group, m->cluster);
    for (int c = 0; c < m->cluster->n_class && status == TANDEM_OK; c++)
        status = tandem_store_put_interference(m->store, m->cluster->classes[c].device.name, group,
                                               "compute_under_comm", 1 << 20, 7.0 / 6, 1, error);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        const tandem_collective_point point = {.bytes = 1 << 20,
                                               .cost = synthetic_cost(loaded ? 30000 : 25000)};
        status = tandem_store_put_collective(m->store, group, "all-reduce", loaded, &point, error);
    }
    return status;
}

/* Linear layers with three inputs, which no model has. */
static tandem_status fill_unrelated_costs(const store_filler *m, int64_t n_more, tandem_error *error)
{
    const int64_t a_key = m->cluster->n_class + 1;
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i * a_key < n_more && status == TANDEM_OK; i++) {
        tandem_cost_key key = {.kind = TANDEM_COST_OP,
                               .precision = i % 2 ? "int8" : "fp32",
                               .pass = (tandem_pass)(i / 2 % 3),
                               .from = i % 2 ? TANDEM_S8 : TANDEM_F32,
                               .to = TANDEM_F32};
        (void)snprintf(key.signature, sizeof key.signature, "linear m=%lld k=3 n=64", (long long)(i / 6 + 1));
        status = put_synthetic_cost(m, (int)(i / 6 % m->cluster->n_class), &key, error);
    }
    return status;
}

tandem_status bench_store_make(char path[SCRATCH_STORE], const tandem_cluster *cluster,
                               const tandem_graph *const *graph, uint64_t bucket_bytes, int64_t n_more,
                               tandem_error *error)
{
    tandem_status status = scratch_store_make(path, error);
    if (status != TANDEM_OK) return status;
    store_filler m = {.cluster = cluster, .graph = graph, .bucket_bytes = bucket_bytes};
    status = tandem_store_open(&m.store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_begin(m.store, error);
    for (int c = 0; c < cluster->n_class && status == TANDEM_OK; c++) status = fill_class_costs(&m, c, error);
    if (status == TANDEM_OK && !cluster->link_bytes_per_s) status = fill_allreduce_costs(&m, error);
    if (status == TANDEM_OK) status = fill_unrelated_costs(&m, n_more, error);
    if (status == TANDEM_OK) status = tandem_store_commit(m.store, error);
    tandem_store_close(m.store);
    if (status != TANDEM_OK) scratch_store_remove(path);
    return status;
}
