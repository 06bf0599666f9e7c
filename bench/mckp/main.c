/* main.c: solves a knapsack problem (mckp.h) and prints the answer as JSON. usage: mckp FILE [POLICY] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/mckp/mckp.h"

static const size_t max_file_bytes = (size_t)64 << 20;

static tandem_status solve_file(const char *path, const char *policy, tandem_error *error)
{
    char *text = NULL;
    size_t n = 0;
    mckp *problem = NULL;
    mckp_answer answer = {0};
    tandem_status status = tandem_file_read(&text, &n, path, max_file_bytes, error);
    if (status == TANDEM_OK) status = mckp_parse(&problem, text, n, path, error);
    const int64_t begin_ns = tandem_now_ns();
    if (status == TANDEM_OK) status = mckp_solve(&answer, problem, policy, error);
    const double seconds = (double)(tandem_now_ns() - begin_ns) * 1e-9;
    if (status == TANDEM_OK)
        printf("{\"policy\": \"%s\", \"items\": %d, \"groups\": %d, \"sensitivity\": %.17g, \"lower_bound\": "
               "%.17g, "
               "\"gap\": %.17g, \"time_ns\": %.17g, \"bytes\": %" PRIu64 ", \"seconds\": %.9f}\n",
               policy, problem->n_item, problem->n_group, answer.sensitivity, answer.lower_bound, answer.gap,
               answer.time_ns, answer.bytes, seconds);
    mckp_close(problem);
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    tandem_error error = {0};
    if (argc < 2 || argc > 3) {
        fputs("usage: mckp FILE [exact|greedy|bound]\n", stderr);
        return 2;
    }
    if (solve_file(argv[1], argc > 2 ? argv[2] : "exact", &error) == TANDEM_OK) return 0;
    fprintf(stderr, "mckp: %s\n", error.text);
    return tandem_status_exit_code(error.status);
}
