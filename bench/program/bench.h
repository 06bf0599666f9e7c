/* bench.h: what the benchmarks share. Each benchmark has a file bench_NAME.c. */
#pragma once

#include "cli/program.h"

extern const cli_command command_bench;

typedef struct bench_case {
    char name[96];
    int64_t median_ns, p10_ns, p90_ns;                        /* of one repetition */
    double bytes_per_s, flops_per_s, ops_per_s, events_per_s; /* NaN if not applicable */
    double of_copy; /* speed relative to a copy of as many bytes in the same run; NaN if not applicable */
} bench_case;

enum { BENCH_MAX_CASES = 64 };
typedef struct bench_result {
    char model[TANDEM_MODEL_NAME], cluster[512]; /* model and cluster, or another description and "" */
    char costs[128];                             /* source of the costs of a replay; "" = no replay */
    bench_case one[BENCH_MAX_CASES];
    int n_case;
    const cli_options *options; /* for progress messages; NULL = none */
} bench_result;

/* These functions fill in *result and return the exit code. If it is not 0, the error is on stderr. */
int bench_step(bench_result *result, const cli_options *options);
int bench_replay(bench_result *result, const cli_options *options);
int bench_open(bench_result *result, const cli_options *options);
int bench_allocate(bench_result *result, const cli_options *options);
int bench_trace(bench_result *result, const cli_options *options);
int bench_kernels(bench_result *result, const cli_options *options);

/* bench_products: products inside a step and alone. It prints its own columns. */
int bench_products(const cli_options *options);

/* bench_allreduce: all-reduces alone. Its ranks are processes; rank 0 prints. */
int bench_allreduce(const cli_options *options);
/* bench_sensitivity: what an estimate costs beside training steps. It prints its own columns. */
int bench_sensitivity(const cli_options *options);
/* Prints --json or a table. Returns the exit code. */
int bench_print(const bench_result *result, const char *what, const cli_options *options);

/* bench_linear: adds one case per precision of options->device: n steps of a linear layer of these sizes. */
enum { BENCH_LINEAR_ROWS = 2048, BENCH_LINEAR_WIDTH = 1024 };
tandem_status bench_linear(bench_result *result, const cli_options *options, int64_t n, tandem_error *error);

/* The median of n samples, nearest rank. Sorts them. */
int64_t bench_median(int64_t *sample_ns, int64_t n);
/* Adds a case from n samples in ns, with nearest-rank percentiles. Sorts them. */
void bench_add_case(bench_result *result, const char *name, int64_t *sample_ns, int64_t n);

/* Copies model and cluster of the workload into the result. */
void bench_set_name(bench_result *result, const tandem_workload *workload);

/* Default options: resnet20 on two different devices of this machine. `pair` keeps their text. */
enum { BENCH_PAIR = 2 * TANDEM_DEVICE_NAME + 8 };
void bench_default_pair(cli_options *options, char pair[BENCH_PAIR]);

/* bench_store_make: makes a store in the working directory and writes its name to `path`. It has a synthetic
 * cost for every key of graph[c] on class c, and about n_more other rows on the same devices. Without a
 * network link in the cluster, it also has contended costs. */
#define BENCH_STORE_COSTS "synthetic, 5 to 20 us per task"
tandem_status bench_store_make(char path[SCRATCH_STORE], const tandem_cluster *cluster,
                               const tandem_graph *const *graph, uint64_t bucket_bytes, int64_t n_more,
                               tandem_error *error);
