/* costed_cluster.h: clusters whose costs and harms are drawn by Philox: every cost that any plan could need
 * is in a store of its own, in a new temporary folder. For tests of what searches over plans. */
#ifndef TANDEM_TESTS_PROPERTY_COSTED_CLUSTER_H
#define TANDEM_TESTS_PROPERTY_COSTED_CLUSTER_H

#include <unistd.h>

#include "base/philox.h"
#include "tandem/advanced/allocator.h"
#include "tests/support/scratch_files.h"
#include "tests/support/tandem_test.h"

typedef struct costed_cluster {
    char folder[64], path[96];
    tandem_cluster cluster;
    tandem_replayer_options options; /* micro-steps, recomputation, buckets */
    tandem_graph *graph[TANDEM_MAX_CLASS];
    tandem_store *store;
    tandem_replayer *replayer;
    int64_t *sensitivity[TANDEM_MAX_CLASS]; /* in units of 1e-12 */
} costed_cluster;

static inline const tandem_policy *policy_of(const char *name)
{
    const tandem_policy *policy = NULL;
    tandem_error error = {0};
    require_ok(tandem_policy_find(&policy, name, &error), &error);
    return policy;
}

/* In [0, 1), from a seed and a text. */
static inline double draw(uint64_t seed, const char *text, uint32_t purpose)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *c = text; *c; c++) hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
    const uint32_t counter[4] = {(uint32_t)hash, (uint32_t)(hash >> 32), purpose, 77};
    return (double)tandem_philox_uniform(tandem_philox(counter, seed).word[0]);
}

static inline double between(double low, double high, double u) { return low + (high - low) * u; }

/* Operators 20 to 400 us a pass on the strongest device, narrower types mostly but not always faster; casts
 * by elements. */
static inline int64_t costed_ns(uint64_t seed, const char *device, const tandem_cost_key *key, int contended)
{
    char text[2 * TANDEM_MAX_SIGNATURE];
    tandem_cost_key_print(text, sizeof text, key);
    const double weak = strcmp(device, "cpu:avx512_bf16") == 0 ? 1 : between(1.2, 2.5, draw(seed, device, 1));
    const double contention = contended ? between(1, 1.3, draw(seed, text, 2)) : 1;
    if (key->kind == TANDEM_COST_CAST)
        return (int64_t)(weak * contention *
                         (800 + (double)key->elements * between(0.05, 0.6, draw(seed, text, 3))));
    double ns =
        between(2e4, 4e5, pow(draw(seed, key->signature, 4), 2)) * between(0.8, 1.3, draw(seed, text, 5));
    if (strcmp(key->precision, "bf16") == 0)
        ns *= between(0.4, 1.1, draw(seed, text, 6));
    else if (strcmp(key->precision, "int8") == 0)
        ns *= key->pass == TANDEM_PASS_FORWARD ? between(0.2, 0.8, draw(seed, text, 7))
                                               : between(0.9, 1.1, draw(seed, text, 7));
    else if (strcmp(key->precision, "int8_full") == 0)
        ns *= between(0.2, 0.9, draw(seed, text, 8));
    return (int64_t)(weak * contention * ns);
}

static inline tandem_cost costed_cost(int64_t ns)
{
    tandem_cost cost;
    tandem_cost_from_samples(&cost, &ns, 1, 0);
    return cost;
}

typedef int costed_filter(const tandem_cost_key *key); /* whether a cost is measured; NULL = all are */

static inline tandem_status cost_class(costed_cluster *p, int c, uint64_t seed, const char *co_runner,
                                       costed_filter *measured, tandem_error *error)
{
    const tandem_device *device = &p->cluster.classes[c].device;
    tandem_step *step = NULL;
    tandem_step_options options = p->options.step;
    options.with_norm |= p->options.norm_as_needed;
    tandem_status status =
        tandem_device_open_step(&step, device, p->graph[c], p->options.bucket_bytes, &options, error);
    for (int t = 0; status == TANDEM_OK && t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT && status == TANDEM_OK; variant++) {
            tandem_cost_key key;
            if (!tandem_step_cost_key(step, t, variant, &key) || key.kind == TANDEM_COST_COLLECTIVE ||
                (measured && !measured(&key)))
                continue;
            const tandem_cost cost = costed_cost(costed_ns(seed, device->name, &key, co_runner[0] != '\0'));
            status = tandem_store_put_cost(p->store, device->name, co_runner, &key, &cost, error);
        }
    tandem_step_close(step);
    return status;
}

static inline tandem_status cost_all(costed_cluster *p, uint64_t seed, costed_filter *measured,
                                     tandem_error *error)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    const int n = p->cluster.n_class;
    tandem_status status = tandem_store_begin(p->store, error);
    for (int c = 0; c < n && status == TANDEM_OK; c++) {
        status = cost_class(p, c, seed, "", measured, error);
        if (status == TANDEM_OK && n > 1)
            status = cost_class(p, c, seed, p->cluster.classes[!c].device.name, measured, error);
    }
    tandem_cluster_group_key(group, sizeof group, &p->cluster);
    for (int loaded = 0; loaded < 2 && status == TANDEM_OK; loaded++) {
        const tandem_collective_point point = {1 << 20, costed_cost(loaded ? 600000 : 500000)};
        status = tandem_store_put_collective(p->store, group, "all-reduce", loaded, &point, error);
    }
    for (int c = 0; c < n && status == TANDEM_OK; c++)
        status = tandem_store_put_interference(p->store, p->cluster.classes[c].device.name, group,
                                               "compute_under_comm", 1 << 20, 1.2, 1, error);
    return status == TANDEM_OK ? tandem_store_commit(p->store, error) : status;
}

static inline tandem_status draw_sensitivity(costed_cluster *p, int c, uint64_t seed, tandem_error *error)
{
    const tandem_graph *graph = p->graph[c];
    p->sensitivity[c] = calloc((size_t)graph->n_op * TANDEM_N_PRECISION, sizeof **p->sensitivity);
    if (!p->sensitivity[c]) return tandem_no_memory(error, "for a test");
    for (int i = 0; i < graph->n_op; i++) {
        const unsigned precisions = tandem_op_row_get(graph->op[i].kind)->precisions;
        const double size = pow(10, between(-6, -3, draw(seed, graph->op[i].name, 20)));
        const double of[TANDEM_N_PRECISION] = {
            [TANDEM_PRECISION_TF32] = size * between(0.001, 0.01, draw(seed, graph->op[i].name, 23)),
            [TANDEM_PRECISION_FP16] = size * between(0.005, 0.1, draw(seed, graph->op[i].name, 24)),
            [TANDEM_PRECISION_FP8] = size * between(0.5, 3, draw(seed, graph->op[i].name, 25)),
            [TANDEM_PRECISION_BF16] = size * between(0.01, 0.3, draw(seed, graph->op[i].name, 21)),
            [TANDEM_PRECISION_INT8] = size,
            [TANDEM_PRECISION_INT8_FULL] = size * between(1, 3, draw(seed, graph->op[i].name, 22)),
            [TANDEM_PRECISION_MXFP8] = size * between(0.3, 2, draw(seed, graph->op[i].name, 26)),
            [TANDEM_PRECISION_NVFP4] = size * between(2, 30, draw(seed, graph->op[i].name, 27)),
        };
        for (int q = 0; q < TANDEM_N_PRECISION; q++)
            if (precisions & 1u << q) p->sensitivity[c][i * TANDEM_N_PRECISION + q] = llround(of[q] * 1e12);
    }
    return TANDEM_OK;
}

static inline void costed_cluster_close(costed_cluster *p)
{
    tandem_replayer_close(p->replayer);
    tandem_store_close(p->store);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) {
        free(p->sensitivity[c]);
        tandem_graph_close(p->graph[c]);
    }
    char command[160];
    if (p->folder[0]) {
        (void)snprintf(command, sizeof command, "%s-wal", p->path);
        (void)unlink(command);
        (void)snprintf(command, sizeof command, "%s-shm", p->path);
        (void)unlink(command);
        (void)unlink(p->path);
        (void)rmdir(p->folder);
    }
    *p = (costed_cluster){.folder = ""};
}

/* Of one graph a class; takes them over, on errors too. `cluster` as for tandem_cluster_parse, at most two
 * classes. */
static inline tandem_status costed_cluster_of_with(costed_cluster *p, tandem_graph *const *graph,
                                                   const char *cluster,
                                                   const tandem_replayer_options *options, uint64_t seed,
                                                   costed_filter *measured, tandem_error *error)
{
    *p = (costed_cluster){.options = *options};
    (void)snprintf(p->folder, sizeof p->folder, "%s/tandem-costed-XXXXXX", scratch());
    for (int c = 0; c < 2; c++) p->graph[c] = graph[c];
    tandem_status status = TANDEM_OK;
    if (!mkdtemp(p->folder)) {
        p->folder[0] = '\0';
        status = tandem_error_set(error, TANDEM_IO, "no temporary folder");
    }
    (void)snprintf(p->path, sizeof p->path, "%s/store.db", p->folder);
    if (status == TANDEM_OK) status = tandem_cluster_parse(&p->cluster, cluster, error);
    for (int c = 0; status == TANDEM_OK && c < p->cluster.n_class; c++) {
        p->cluster.classes[c].batch = graph[c]->batch;
        status = draw_sensitivity(p, c, seed, error);
    }
    if (status == TANDEM_OK) status = tandem_store_open(&p->store, p->path, TANDEM_STORE_WRITE, error);
    if (status == TANDEM_OK) status = cost_all(p, seed, measured, error);
    if (status == TANDEM_OK)
        status = tandem_replayer_open_with(&p->replayer, &p->cluster, (const tandem_graph *const *)p->graph,
                                           p->store, &p->options, error);
    if (status != TANDEM_OK) costed_cluster_close(p);
    return status;
}

static inline tandem_status costed_cluster_of(costed_cluster *p, tandem_graph *const *graph,
                                              const char *cluster, uint64_t seed, costed_filter *measured,
                                              tandem_error *error)
{
    return costed_cluster_of_with(p, graph, cluster, &(tandem_replayer_options){0}, seed, measured, error);
}

/* Of a model of the zoo; `batch` for classes that name none. */
static inline tandem_status costed_cluster_open_with(costed_cluster *p, const char *model,
                                                     const char *cluster, int64_t batch,
                                                     const tandem_replayer_options *options, uint64_t seed,
                                                     costed_filter *measured, tandem_error *error)
{
    tandem_cluster parsed;
    tandem_graph *graph[2] = {NULL, NULL};
    *p = (costed_cluster){.folder = ""};
    tandem_status status = tandem_cluster_parse(&parsed, cluster, error);
    for (int c = 0; status == TANDEM_OK && c < parsed.n_class; c++) {
        const int64_t own = parsed.classes[c].batch;
        status = tandem_graph_open(&graph[c], model, own ? own : batch, error);
    }
    if (status == TANDEM_OK) return costed_cluster_of_with(p, graph, cluster, options, seed, measured, error);
    for (int c = 0; c < 2; c++) tandem_graph_close(graph[c]);
    return status;
}

static inline tandem_status costed_cluster_open(costed_cluster *p, const char *model, const char *cluster,
                                                int64_t batch, uint64_t seed, costed_filter *measured,
                                                tandem_error *error)
{
    return costed_cluster_open_with(p, model, cluster, batch, &(tandem_replayer_options){0}, seed, measured,
                                    error);
}

/* The same clusters and costs with other limits on memory, one a class; 0: none. */
static inline tandem_status costed_cluster_limit(costed_cluster *p, const uint64_t *limit_bytes,
                                                 tandem_error *error)
{
    for (int c = 0; c < p->cluster.n_class; c++) p->cluster.classes[c].memory_bytes = limit_bytes[c];
    tandem_replayer_close(p->replayer);
    p->replayer = NULL;
    return tandem_replayer_open_with(&p->replayer, &p->cluster, (const tandem_graph *const *)p->graph,
                                     p->store, &p->options, error);
}

static inline tandem_allocation_problem costed_problem(const costed_cluster *p, double slowdown)
{
    tandem_allocation_problem problem = {.replayer = p->replayer,
                                         .graph = p->graph[0],
                                         .base_precision = TANDEM_PRECISION_FP32,
                                         .uniform = TANDEM_PRECISION_INT8,
                                         .slowdown = slowdown,
                                         .sensitivity_unit = 1e-12,
                                         .without_certificate = 1};
    for (int c = 0; c < p->cluster.n_class; c++) problem.sensitivity[c] = p->sensitivity[c];
    return problem;
}

#endif
