/* bench_open.c: how long a replayer takes to gather its costs, from a store of this model alone and from a large one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/prediction.h"

enum { REPETITIONS = 30, MANY = 100000 };

static tandem_status measure(bench_result *result, const cli_options *given, const cli_subject *subject,
                             int64_t n_more, tandem_error *error)
{
    char path[BENCH_STORE_PATH], name[96];
    const int64_t n = given->repetitions > 0 ? given->repetitions : REPETITIONS;
    cli_options options = *given;
    options.db = path;
    int64_t *sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %lld repetitions", (long long)n);
    tandem_status status = bench_store_make(path, &subject->cluster, (const tandem_graph *const *)subject->graph,
                                            options.bucket_bytes, n_more, error);
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        tandem_planner *planner = NULL;
        const int64_t begin = tandem_now_ns();
        status = cli_planner_open(&planner, &options, subject, 1, error);
        sample_ns[i] = tandem_now_ns() - begin;
        tandem_planner_close(planner);
    }
    if (status == TANDEM_OK) {
        (void)snprintf(name, sizeof name, n_more ? "open among %lld rows" : "open", (long long)n_more);
        bench_add(result, name, sample_ns, n);
    }
    bench_store_remove(path);
    free(sample_ns);
    return status;
}

int bench_open(bench_result *result, const cli_options *given)
{
    char pair[BENCH_PAIR];
    cli_options options = *given;
    tandem_error error = {0};
    cli_subject subject = {0};
    bench_default_pair(&options, pair);
    tandem_status status = cli_subject_open(&subject, &options, &error);
    if (status == TANDEM_OK) status = measure(result, &options, &subject, 0, &error);
    if (status == TANDEM_OK) status = measure(result, &options, &subject, MANY, &error);
    if (status == TANDEM_OK) bench_name(result, &subject);
    cli_subject_close(&subject);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
