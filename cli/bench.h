/* bench.h: what the benchmarks share; one a file, in bench_….c. */
#ifndef TANDEM_CLI_BENCH_H
#define TANDEM_CLI_BENCH_H

#include "cli/cli.h"

typedef struct bench_case {
    char name[96];
    int64_t median_ns, p10_ns, p90_ns; /* of one */
    double bytes_per_s, flops_per_s;   /* NaN where it has no meaning */
} bench_case;

enum { BENCH_MOST_CASES = 16 };
typedef struct bench_result {
    char model[TANDEM_MODEL_NAME], cluster[512];
    char costs[128]; /* where a replay's costs are from; "" = no replay */
    bench_case one[BENCH_MOST_CASES];
    int n_case;
} bench_result;

/* Fill in *result. Return the exit code; where it is not 0, what went wrong is on stderr. */
int bench_step(bench_result *result, const cli_options *options);
int bench_replay(bench_result *result, const cli_options *options);

/* Adds a case from n samples in ns, which are sorted: nearest ranks. */
void bench_add(bench_result *result, const char *name, int64_t *sample_ns, int64_t n);

#endif
