/* product_limits.c: times one large product of each precision. */
#include "bench/program/product_limits.h"

#include <string.h>

#include "bench/program/bench.h"
#include "runtime/train/training_rank.h"

enum { RUNS = 5 };
static const char large_product[] = "mlp:width=1024,depth=2,image=32x32x1,classes=2"; /* its "fc2" */
static const double product_flops = 2.0 * 1024 * 1024 * 1024;

static int is_large_product(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    return task->active && task->kind == TANDEM_TASK_FORWARD &&
           strcmp(step->graph->op[task->op].name, "fc2") == 0;
}

static tandem_status time_product(double *flops_per_s, const training_rank *rank, int task, int by_library,
                                  tandem_error *error)
{
    int64_t ns[RUNS] = {0};
    tandem_error own = {0};
    const tandem_status status =
        rank->backend->executor_benchmark_product(rank->executor, task, by_library, ns, RUNS, &own);
    if (status == TANDEM_NO_KERNEL && by_library) return TANDEM_OK;
    if (status != TANDEM_OK) {
        *error = own;
        return status;
    }
    const int64_t median_ns = bench_median(ns, RUNS);
    if (median_ns > 0 && product_flops * 1e9 / (double)median_ns > *flops_per_s)
        *flops_per_s = product_flops * 1e9 / (double)median_ns;
    return TANDEM_OK;
}

static tandem_status time_products(double *flops_per_s, const training_rank *rank, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < rank->step->n_task && status == TANDEM_OK; t++)
        for (int by_library = 0; by_library < 2 && status == TANDEM_OK; by_library++)
            if (is_large_product(rank->step, t))
                status = time_product(flops_per_s, rank, t, by_library, error);
    return status;
}

tandem_status product_limits_measure(product_limits *limits, tandem_precision precision,
                                     const cli_options *options, tandem_error *error)
{
    if (limits->flops_per_s[precision] > 0) return TANDEM_OK;
    cli_options of_product = *options;
    of_product.model = large_product;
    of_product.batch = 1024;
    of_product.plan = of_product.init = of_product.resume = NULL;
    of_product.uniform = tandem_precision_get(precision)->name;
    of_product.step = (tandem_step_options){0};
    const tandem_train_request training = cli_training(&of_product);
    const tandem_rank_place alone = {.n_rank = 1};
    tandem_workload workload = {0};
    training_rank rank = {0};
    tandem_status status = cli_workload_open(&workload, &of_product, error);
    if (status == TANDEM_OK) status = training_rank_open(&rank, &workload, &training, &alone, error);
    if (status == TANDEM_OK) status = time_products(&limits->flops_per_s[precision], &rank, error);
    training_rank_close(&rank);
    tandem_workload_close(&workload);
    return status;
}
