/* bench_store.c: a profile store that lasts for a benchmark: one cost for everything that a subject can ask for, and as many
 * more rows of other shapes as are wanted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"

enum { STAND_IN_NS = 10000 };

static tandem_cost stand_in(void)
{
    tandem_cost cost;
    int64_t sample_ns = STAND_IN_NS;
    tandem_cost_from_samples(&cost, &sample_ns, 1, 0);
    return cost;
}

/* Alone, and beside every device of the cluster. */
static tandem_status put(tandem_store *store, const cli_subject *subject, int c, const tandem_cost_key *key,
                         tandem_error *error)
{
    const tandem_cost cost = stand_in();
    const char *device = subject->cluster.member[c].device.name;
    tandem_status status = tandem_store_put_cost(store, device, "", key, &cost, error);
    for (int other = 0; other < subject->cluster.n_class && status == TANDEM_OK; other++)
        status = tandem_store_put_cost(store, device, subject->cluster.member[other].device.name, key, &cost, error);
    return status;
}

static tandem_status fill_class(tandem_store *store, const cli_subject *subject, uint64_t bucket_bytes, int c,
                                tandem_error *error)
{
    tandem_step *step = NULL;
    tandem_status status =
        tandem_step_open(&step, subject->graph[c], subject->cluster.member[c].device.wider, bucket_bytes, error);
    for (int t = 0; status == TANDEM_OK && t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT && status == TANDEM_OK; variant++) {
            tandem_cost_key key;
            if (step->task[t].kind == TANDEM_TASK_REDUCE || !tandem_step_key(step, t, variant, &key))
                continue;
            status = put(store, subject, c, &key, error);
        }
    tandem_step_close(step);
    return status;
}

static tandem_status fill_exchange(tandem_store *store, const cli_subject *subject, tandem_error *error)
{
    char group[TANDEM_MAX_CLASS * (TANDEM_DEVICE_NAME + 12)];
    const tandem_collective_point point = {.bytes = 1 << 20, .cost = stand_in()};
    tandem_status status = TANDEM_OK;
    tandem_cluster_group(group, sizeof group, &subject->cluster);
    for (int c = 0; c < subject->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_store_put_interference(store, subject->cluster.member[c].device.name, group,
                                               "compute_under_comm", 1, 1, error);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++)
        status = tandem_store_put_collective(store, group, "all-reduce", loaded, &point, error);
    return status;
}

/* Products of shapes that no model has: linear layers with three inputs. */
static tandem_status fill_others(tandem_store *store, const cli_subject *subject, int64_t n_more, tandem_error *error)
{
    const int64_t a_key = subject->cluster.n_class + 1;
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i * a_key < n_more && status == TANDEM_OK; i++) {
        tandem_cost_key key = {.kind = TANDEM_COST_OP,
                               .precision = i % 2 ? "int8" : "fp32",
                               .pass = (tandem_pass)(i / 2 % 3),
                               .from = i % 2 ? TANDEM_S8 : TANDEM_F32,
                               .to = TANDEM_F32};
        (void)snprintf(key.signature, sizeof key.signature, "linear m=%lld k=3 n=64", (long long)(i / 6 + 1));
        status = put(store, subject, (int)(i / 6 % subject->cluster.n_class), &key, error);
    }
    return status;
}

tandem_status bench_store_make(char path[BENCH_STORE_PATH], const cli_subject *subject, uint64_t bucket_bytes,
                               int64_t n_more, tandem_error *error)
{
    (void)snprintf(path, BENCH_STORE_PATH, ".tandem-bench-XXXXXX");
    const int file = mkstemp(path);
    if (file < 0)
        return tandem_error_set(error, TANDEM_IO, "cannot make a store in the working directory: %s",
                                strerror(errno));
    (void)close(file);
    tandem_store *store = NULL;
    tandem_status status = tandem_store_open(&store, path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = tandem_store_begin(store, error);
    for (int c = 0; c < subject->cluster.n_class && status == TANDEM_OK; c++)
        status = fill_class(store, subject, bucket_bytes, c, error);
    if (status == TANDEM_OK) status = fill_exchange(store, subject, error);
    if (status == TANDEM_OK) status = fill_others(store, subject, n_more, error);
    if (status == TANDEM_OK) status = tandem_store_commit(store, error);
    tandem_store_close(store);
    if (status != TANDEM_OK) bench_store_remove(path);
    return status;
}

void bench_store_remove(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    char file[BENCH_STORE_PATH + 8];
    for (int k = 0; k < 3; k++) {
        (void)snprintf(file, sizeof file, "%s%s", path, suffix[k]);
        (void)unlink(file);
    }
}
