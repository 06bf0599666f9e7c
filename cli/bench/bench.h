/* bench.h: what the benchmarks share; one a file, in bench_….c. */
#ifndef TANDEM_CLI_BENCH_H
#define TANDEM_CLI_BENCH_H

#include "cli/cli.h"

typedef struct bench_case {
    char name[96];
    int64_t median_ns, p10_ns, p90_ns;                        /* of one */
    double bytes_per_s, flops_per_s, ops_per_s, events_per_s; /* NaN where it has no meaning */
    double of_copy; /* speed of a copy of as many bytes, in the same run, is 1; NaN as above */
} bench_case;

enum { BENCH_MAX_CASES = 64 };
typedef struct bench_result {
    char model[TANDEM_MODEL_NAME], cluster[512]; /* or what else was measured, and "" */
    char costs[128];                             /* where a replay's costs are from; "" = no replay */
    bench_case one[BENCH_MAX_CASES];
    int n_case;
    const cli_options *options; /* progress by these; NULL = none */
} bench_result;

/* Fill in *result. Return the exit code; where it is not 0, what went wrong is on stderr. */
int bench_step(bench_result *result, const cli_options *options);
int bench_replay(bench_result *result, const cli_options *options);
int bench_open(bench_result *result, const cli_options *options);
int bench_allocate(bench_result *result, const cli_options *options);
int bench_trace(bench_result *result, const cli_options *options);
int bench_kernels(bench_result *result, const cli_options *options);

/* bench_products: products inside a step and alone; prints them itself, as they have columns of their own. */
int bench_products(const cli_options *options);

/* bench_allreduce: all-reduces by themselves; its ranks are processes, of which the first prints. */
int bench_allreduce(const cli_options *options);
/* As --json or as a table. Returns the exit code. */
int bench_print(const bench_result *result, const char *what, const cli_options *options);

/* bench_linear: adds a case for each precision of options->device: n steps of a linear layer of these sizes.
 * */
enum { BENCH_LINEAR_ROWS = 2048, BENCH_LINEAR_WIDTH = 1024 };
tandem_status bench_linear(bench_result *result, const cli_options *options, int64_t n, tandem_error *error);

/* The median of n samples, which are sorted: nearest rank. */
int64_t bench_median(int64_t *sample_ns, int64_t n);
/* Adds a case from n samples in ns, which are sorted: nearest ranks. */
void bench_add_case(bench_result *result, const char *name, int64_t *sample_ns, int64_t n);

/* Model and cluster of the result are the subject's. */
void bench_set_name(bench_result *result, const cli_workload *workload);

/* Fills in, where they are not given, resnet20 and two unlike devices of this machine, whose text is kept in
 * `pair`. */
enum { BENCH_PAIR = 2 * TANDEM_DEVICE_NAME + 8 };
void bench_default_pair(cli_options *options, char pair[BENCH_PAIR]);

/* bench_store_make: a store in the working directory with a cost, made up, for everything that graph[c] on
 * class c of the cluster can ask for, and about n_more rows beside that, on the same devices. Where the
 * cluster has no link, ranks slow each other, and an all-reduce compute and the other way round. The store's
 * name goes to `path`. */
#define BENCH_STORE_COSTS "made up, 5 to 20 us a task"
tandem_status bench_store_make(char path[CLI_SCRATCH_STORE], const tandem_cluster *cluster,
                               const tandem_graph *const *graph, uint64_t bucket_bytes, int64_t n_more,
                               tandem_error *error);

#endif
