/* bench_allocate.c: time of an allocation with loaded costs: greedy, greedy with certificate, exact. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/program/bench.h"
#include "cli/prediction.h"

enum { REPETITIONS = 10 };

static tandem_status measure_policy(bench_result *result, tandem_planner *planner, const char *policy,
                                    int with_certificate, double slowdown, int64_t n, tandem_error *error)
{
    char name[96];
    int64_t *sample_ns = malloc((size_t)n * sizeof *sample_ns);
    if (!sample_ns) return tandem_no_memory(error, "for %lld repetitions", (long long)n);
    const tandem_allocation_request question = {.policy = policy,
                                                .slowdown_is_given = slowdown >= 0,
                                                .slowdown = slowdown,
                                                .without_certificate = !with_certificate};
    tandem_status status = TANDEM_OK;
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        tandem_answer answer = {.plan = NULL};
        const int64_t begin = tandem_now_ns();
        status = tandem_planner_ask(&answer, planner, &question, error);
        sample_ns[i] = tandem_now_ns() - begin;
        tandem_answer_close(&answer);
    }
    (void)snprintf(name, sizeof name, "%s%s", policy, with_certificate ? " with certificate" : "");
    if (status == TANDEM_OK) bench_add_case(result, name, sample_ns, n);
    free(sample_ns);
    return status;
}

int bench_allocate(bench_result *result, const cli_options *given)
{
    char pair[BENCH_PAIR];
    cli_options options = *given;
    tandem_error error = {0};
    tandem_workload workload = {0};
    tandem_planner *planner = NULL;
    const int64_t n = options.repetitions > 0 ? options.repetitions : REPETITIONS;
    bench_default_pair(&options, pair);
    tandem_status status = cli_workload_open(&workload, &options, &error);
    if (status == TANDEM_OK) status = cli_planner_open(&planner, &options, &workload, 0, &error);
    if (status == TANDEM_OK) {
        bench_set_name(result, &workload);
        status = measure_policy(result, planner, "greedy", 0, options.slowdown, n, &error);
    }
    if (status == TANDEM_OK)
        status = measure_policy(result, planner, "greedy", 1, options.slowdown, n, &error);
    if (status == TANDEM_OK)
        status = measure_policy(result, planner, "exact", 1, options.slowdown, n, &error);
    tandem_planner_close(planner);
    tandem_workload_close(&workload);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}
