/* allocate_infeasible.c: how much memory is missing, and which batch would fit. */
#include <stdio.h>

#include "base/quantity.h"
#include "cli/command/allocate.h"

static void print_infeasible_text(const allocate_context *a, const tandem_memory_deficit *deficit, int n)
{
    for (int k = 0; k < n; k++) {
        const tandem_memory_deficit *s = &deficit[k];
        const uint64_t missing_bytes = s->peak_bytes - s->limit_bytes;
        fprintf(stderr,
                "%s: out of memory by %s (%llu B) per rank: the smallest plan at batch %lld takes %s; ",
                tandem_planner_cluster(a->planner)->classes[s->c].device.name,
                tandem_quantity_bytes(missing_bytes).text, (unsigned long long)missing_bytes,
                (long long)tandem_planner_cluster(a->planner)->classes[s->c].batch,
                tandem_quantity_bytes(s->peak_bytes).text);
        if (s->batch > 0)
            fprintf(stderr, "batch %lld would fit\n", (long long)s->batch);
        else if (s->batch == 0)
            fputs("no batch would fit\n", stderr);
        else
            fputs("other batches were not captured\n", stderr);
    }
}

static int print_infeasible_json(const allocate_context *a, const tandem_memory_deficit *deficit, int n,
                                 const tandem_error *error)
{
    json_t *result = cli_json_new("allocate"), *rows = json_array();
    for (int k = 0; k < n; k++) {
        const tandem_memory_deficit *s = &deficit[k];
        json_array_append_new(
            rows, json_pack("{s:s,s:I,s:I,s:I,s:I,s:o}", "name",
                            tandem_planner_cluster(a->planner)->classes[s->c].device.name, "min_bytes",
                            (json_int_t)s->peak_bytes, "limit_bytes", (json_int_t)s->limit_bytes,
                            "missing_bytes", (json_int_t)(s->peak_bytes - s->limit_bytes), "batch",
                            (json_int_t)tandem_planner_cluster(a->planner)->classes[s->c].batch,
                            "batch_that_fits", s->batch > 0 ? json_integer(s->batch) : json_null()));
    }
    json_object_set_new(result, "fits", json_false());
    json_object_set_new(result, "why", json_string(error->text));
    json_object_set_new(result, "memory_deficits", rows);
    return cli_print_json(result);
}

int allocate_explain_infeasible(const allocate_context *a, const tandem_error *error)
{
    tandem_memory_deficit deficit[TANDEM_MAX_CLASS];
    tandem_error failed = {0};
    int n = 0, code = cli_fail(error);
    if (tandem_memory_deficits_find(deficit, &n, a->problem, &failed) != TANDEM_OK) return cli_fail(&failed);
    print_infeasible_text(a, deficit, n);
    if (a->options->json && print_infeasible_json(a, deficit, n, error) != 0)
        code = tandem_status_exit_code(TANDEM_IO);
    return code;
}
