/* bench_products.c: products inside a training step next to the same products alone, and next to the rate of
 * one large product: linear, matmul and conv2d, all passes, and attention that is one task. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "bench/program/bench.h"
#include "bench/program/product_limits.h"
#include "bench/program/rest_of_step.h"
#include "runtime/train/training_rank.h"
#include "cli/table.h"

enum { ROUNDS = 5, RUNS = 3, MAX_ROWS = 20 };

/* Products with the same work, and the times of one of them in ns. */
typedef struct bench_product {
    tandem_cost_key key;
    int task, count; /* the first one, and how many the step has */
    double flops;    /* of one product */
    double limit;    /* flops per second of a large product in its precision; of all: of the mix */
    /* samples, [rounds × RUNS]; library_ns NULL: the library has no such kernel */
    int64_t *alone_ns, *library_ns;
    /* medians; step_ns is the mean of medians; library_median_ns 0: no such kernel */
    int64_t step_ns, alone_median_ns, library_median_ns;
} bench_product;

typedef struct product_bench {
    const cli_options *options;
    tandem_workload workload;
    training_rank rank;
    bench_product *one;
    int n, *product_of;                                 /* [n_task], −1: not a product */
    int64_t rounds, *step_ns, *task_ns, median_step_ns; /* [rounds], [n_task × rounds] */
    int64_t casts_ns, biases_ns;                        /* of a step: sums of medians */
    rest_of_step rest;
    product_limits limits;
} product_bench;

/* --- What there is -------------------------------------------------------------------------------------- */

static int is_product_task(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
                        task->kind == TANDEM_TASK_WGRAD;
    if (!task->active || !is_pass) return 0;
    const tandem_op_kind kind = step->graph->op[task->op].kind;
    return kind == TANDEM_OP_LINEAR || kind == TANDEM_OP_MATMUL || kind == TANDEM_OP_CONV2D;
}

static int is_cast_task(const tandem_task *task)
{
    return task->active && (task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_WEIGHT_CAST ||
                            task->kind == TANDEM_TASK_GRADIENT_CAST || task->kind == TANDEM_TASK_SAVED_CAST);
}

/* Of a bias that is an operator of its own; one that is added together with a gelu is not distinguished. */
static int is_bias_task(const tandem_step *step, const tandem_task *task)
{
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
                        task->kind == TANDEM_TASK_WGRAD;
    return task->active && is_pass && step->graph->op[task->op].kind == TANDEM_OP_BIAS;
}

/* Equal precisions have the same name pointer. */
static int is_same_product(const tandem_cost_key *a, const tandem_cost_key *b)
{
    return a->pass == b->pass && a->from == b->from && a->to == b->to && a->precision == b->precision &&
           strcmp(a->signature, b->signature) == 0;
}

/* Two products of an attention forward; backward makes the scores again and has four more. A causal mask
 * leaves half of each out. */
static double flops_of_task(const tandem_step *step, int t)
{
    tandem_attention attention;
    const double flops = step->graph->op[step->task[t].op].flops;
    if (!tandem_step_attention(step, t, &attention)) return flops;
    const double seen = step->graph->op[attention.softmax].causal ? 0.5 : 1;
    return (step->task[t].kind == TANDEM_TASK_FORWARD ? 2 : 5) * seen * flops;
}

static tandem_status add_product(product_bench *all, int t, tandem_error *error)
{
    tandem_cost_key key;
    (void)tandem_step_cost_key(all->rank.step, t, all->rank.step->task[t].variant, &key);
    int k = 0;
    while (k < all->n && !is_same_product(&all->one[k].key, &key)) k++;
    all->product_of[t] = k;
    bench_product *one = &all->one[k];
    if (k < all->n) {
        one->count++;
        return TANDEM_OK;
    }
    all->n++;
    *one = (bench_product){.key = key, .task = t, .count = 1, .flops = flops_of_task(all->rank.step, t)};
    one->alone_ns = calloc((size_t)all->rounds * RUNS, sizeof *one->alone_ns);
    one->library_ns = calloc((size_t)all->rounds * RUNS, sizeof *one->library_ns);
    if (one->alone_ns && one->library_ns) return TANDEM_OK;
    return tandem_no_memory(error, "for %" PRId64 " samples", all->rounds);
}

static tandem_status find_products(product_bench *all, tandem_error *error)
{
    const size_t n_task = (size_t)all->rank.step->n_task;
    all->one = calloc(n_task, sizeof *all->one);
    all->product_of = calloc(n_task, sizeof *all->product_of);
    all->step_ns = calloc((size_t)all->rounds, sizeof *all->step_ns);
    all->task_ns = calloc(n_task * (size_t)all->rounds, sizeof *all->task_ns);
    tandem_status status = all->one && all->product_of && all->step_ns && all->task_ns
                               ? TANDEM_OK
                               : tandem_no_memory(error, "for %zu tasks", n_task);
    for (int t = 0; t < all->rank.step->n_task && status == TANDEM_OK; t++) {
        all->product_of[t] = -1;
        if (is_product_task(all->rank.step, t)) status = add_product(all, t, error);
    }
    return status;
}

/* --- Measuring ------------------------------------------------------------------------------------------ */

static void record_product_step(product_bench *all, int64_t round)
{
    const tandem_step_times *times = all->rank.backend->executor_times(all->rank.executor);
    all->step_ns[round] = times->step_ns;
    for (int t = 0; t < all->rank.step->n_task; t++)
        all->task_ns[t * all->rounds + round] = times->end_ns[t] - times->start_ns[t];
}

static tandem_status run_product_alone(product_bench *all, bench_product *one, int64_t round,
                                       tandem_error *error)
{
    tandem_error none = {0};
    tandem_status status = all->rank.backend->executor_benchmark_product(
        all->rank.executor, one->task, 0, one->alone_ns + round * RUNS, RUNS, error);
    if (status != TANDEM_OK || !one->library_ns) return status;
    status = all->rank.backend->executor_benchmark_product(all->rank.executor, one->task, 1,
                                                           one->library_ns + round * RUNS, RUNS, &none);
    if (status == TANDEM_NO_KERNEL) {
        free(one->library_ns);
        one->library_ns = NULL;
        return TANDEM_OK;
    }
    if (status != TANDEM_OK) *error = none;
    return status;
}

/* Alternates steps and products alone, so that disturbances affect both. */
static tandem_status measure_step_products(product_bench *all, tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    double loss = 0;
    tandem_status status = TANDEM_OK;
    for (int64_t w = 0; w < WARM_UP_STEPS && status == TANDEM_OK; w++)
        status = all->rank.backend->executor_step(all->rank.executor, w, &loss, error);
    for (int64_t round = 0; round < all->rounds && status == TANDEM_OK; round++) {
        const int64_t left_ns = round ? (tandem_now_ns() - begin_ns) / round * (all->rounds - round) : -1;
        cli_progress(all->options, left_ns, "products: %" PRId64 " of %" PRId64 " steps", round, all->rounds);
        status = all->rank.backend->executor_step(all->rank.executor, WARM_UP_STEPS + round, &loss, error);
        if (status == TANDEM_OK) record_product_step(all, round);
        for (int k = 0; k < all->n && status == TANDEM_OK; k++)
            status = run_product_alone(all, &all->one[k], round, error);
    }
    return status;
}

/* Largest time in the step first. */
static int compare_by_step_time(const void *a, const void *b)
{
    const bench_product *x = a, *y = b;
    const int64_t x_ns = x->step_ns * x->count, y_ns = y->step_ns * y->count;
    return (x_ns < y_ns) - (x_ns > y_ns);
}

static void summarise_products(product_bench *all)
{
    for (int k = 0; k < all->n; k++) {
        bench_product *one = &all->one[k];
        one->alone_median_ns = bench_median(one->alone_ns, all->rounds * RUNS);
        one->library_median_ns = one->library_ns ? bench_median(one->library_ns, all->rounds * RUNS) : 0;
    }
    for (int t = 0; t < all->rank.step->n_task; t++) {
        const int64_t median_ns = bench_median(all->task_ns + t * all->rounds, all->rounds);
        const tandem_task *task = &all->rank.step->task[t];
        if (all->product_of[t] >= 0)
            all->one[all->product_of[t]].step_ns += median_ns;
        else
            rest_of_step_add(&all->rest, all->rank.step, t, median_ns);
        if (is_cast_task(task)) all->casts_ns += median_ns;
        if (is_bias_task(all->rank.step, task)) all->biases_ns += median_ns;
    }
    for (int k = 0; k < all->n; k++)
        if (all->one[k].count > 1) all->one[k].step_ns /= all->one[k].count;
    all->median_step_ns = bench_median(all->step_ns, all->rounds);
    if (all->n > 0) qsort(all->one, (size_t)all->n, sizeof *all->one, compare_by_step_time);
}

/* --- Result --------------------------------------------------------------------------------------------- */

/* Sum over all products of the step. Without a library kernel, our own time counts. */
static bench_product sum_products(const product_bench *all)
{
    bench_product total = {.count = 0};
    double limit_s = 0;
    int has_library = 0;
    for (int k = 0; k < all->n; k++) {
        const bench_product *one = &all->one[k];
        total.count += one->count;
        total.flops += one->flops * one->count;
        total.step_ns += one->step_ns * one->count;
        total.alone_median_ns += one->alone_median_ns * one->count;
        total.library_median_ns +=
            (one->library_median_ns ? one->library_median_ns : one->alone_median_ns) * one->count;
        has_library |= one->library_median_ns > 0;
        if (one->limit > 0) limit_s += one->flops * one->count / one->limit;
    }
    if (limit_s > 0) total.limit = total.flops / limit_s;
    if (!has_library) total.library_median_ns = 0;
    return total;
}

/* NaN if there is nothing to divide by. */
static double ratio_to_ns(double a, int64_t b_ns) { return a > 0 && b_ns > 0 ? a / (double)b_ns : NAN; }
static double product_flops_per_s(const bench_product *one, int64_t ns)
{
    return 1e9 * ratio_to_ns(one->flops, ns);
}

static double share_of_limit(const bench_product *one)
{
    return one->limit > 0 ? product_flops_per_s(one, one->step_ns) / one->limit : NAN;
}

static json_t *bench_product_json(const bench_product *one)
{
    return json_pack(
        "{s:i,s:f,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "count", one->count, "flops", one->flops,
        "step_ns", (json_int_t)one->step_ns, "alone_ns", (json_int_t)one->alone_median_ns, "library_ns",
        one->library_median_ns ? json_integer(one->library_median_ns) : json_null(), "step_flops_per_s",
        cli_json_number(product_flops_per_s(one, one->step_ns)), "alone_flops_per_s",
        cli_json_number(product_flops_per_s(one, one->alone_median_ns)), "library_flops_per_s",
        cli_json_number(product_flops_per_s(one, one->library_median_ns)), "of_alone",
        cli_json_number(ratio_to_ns((double)one->alone_median_ns, one->step_ns)), "of_library",
        cli_json_number(ratio_to_ns((double)one->library_median_ns, one->step_ns)), "limit_flops_per_s",
        cli_json_number(one->limit > 0 ? one->limit : NAN), "of_limit", cli_json_number(share_of_limit(one)));
}

static int print_products_json(const product_bench *all)
{
    const bench_product total = sum_products(all);
    json_t *object = cli_json_new("bench"), *array = json_array();
    for (int k = 0; k < all->n; k++) {
        const tandem_cost_key *key = &all->one[k].key;
        json_t *one = bench_product_json(&all->one[k]);
        json_object_set_new(one, "signature", json_string(key->signature));
        json_object_set_new(one, "pass", json_string(tandem_pass_name(key->pass)));
        json_object_set_new(one, "precision", json_string(key->precision));
        json_object_set_new(one, "from", json_string(tandem_dtype_name(key->from)));
        json_object_set_new(one, "to", json_string(tandem_dtype_name(key->to)));
        json_array_append_new(array, one);
    }
    json_object_set_new(object, "what", json_string("products"));
    json_object_set_new(object, "model", json_string(all->rank.step->graph->model));
    json_object_set_new(object, "device", json_string(all->workload.cluster.classes[0].device.name));
    json_object_set_new(object, "batch", json_integer(all->rank.step->graph->batch));
    json_object_set_new(object, "step_ns", json_integer(all->median_step_ns));
    json_object_set_new(object, "casts_ns", json_integer(all->casts_ns));
    json_object_set_new(object, "biases_ns", json_integer(all->biases_ns));
    json_object_set_new(object, "products", array);
    json_object_set_new(object, "total", bench_product_json(&total));
    json_object_set_new(object, "rest", rest_of_step_json(&all->rest, total.step_ns, all->median_step_ns));
    return cli_print_json(object);
}

static char *print_gflops(char *text, size_t size, const bench_product *one, int64_t ns)
{
    (void)snprintf(text, size, ns ? "%.0f" : "", product_flops_per_s(one, ns) * 1e-9);
    return text;
}

static char *print_alone_percent(char *text, size_t size, int64_t alone_ns, int64_t step_ns)
{
    (void)snprintf(text, size, alone_ns ? "%.0f%%" : "", 100 * ratio_to_ns((double)alone_ns, step_ns));
    return text;
}

static void add_product_row(cli_table *table, const bench_product *one, const char *name, const char *pass,
                            const char *precision)
{
    enum { WIDTH = TANDEM_QUANTITY_TEXT };
    tandem_quantity best = {""};
    char rate[3][WIDTH], share[2][WIDTH], of_limit[WIDTH] = "";
    if (one->limit > 0) (void)snprintf(of_limit, sizeof of_limit, "%.0f%%", 100 * share_of_limit(one));
    if (one->library_median_ns) best = tandem_quantity_ns(one->library_median_ns);
    cli_table_row(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", name, pass, precision,
                  one->count, tandem_quantity_ns(one->step_ns).text,
                  tandem_quantity_ns(one->alone_median_ns).text, best.text,
                  print_gflops(rate[0], WIDTH, one, one->step_ns),
                  print_gflops(rate[1], WIDTH, one, one->alone_median_ns),
                  print_gflops(rate[2], WIDTH, one, one->library_median_ns),
                  print_alone_percent(share[0], WIDTH, one->alone_median_ns, one->step_ns),
                  print_alone_percent(share[1], WIDTH, one->library_median_ns, one->step_ns), of_limit);
}

static int print_products_text(const product_bench *all)
{
    const bench_product total = sum_products(all);
    cli_progress_end();
    printf("%s, batch %" PRId64 ", on %s: step %s, of it products %s, casts %s, biases %s\n",
           all->rank.step->graph->model, all->rank.step->graph->batch,
           all->workload.cluster.classes[0].device.name, tandem_quantity_ns(all->median_step_ns).text,
           tandem_quantity_ns(total.step_ns).text, tandem_quantity_ns(all->casts_ns).text,
           tandem_quantity_ns(all->biases_ns).text);
    cli_table table = {0};
    cli_table_row(&table,
                  "product\tpass\tin\t>count\t>in the "
                  "step\t>alone\t>library\t>GFLOP/s\t>alone\t>library\t>of alone\t>of library\t>of limit");
    for (int k = 0; k < all->n && k < MAX_ROWS; k++) {
        const tandem_cost_key *key = &all->one[k].key;
        add_product_row(&table, &all->one[k], key->signature, tandem_pass_name(key->pass), key->precision);
    }
    if (all->n > MAX_ROWS) cli_table_row(&table, "… %d more", all->n - MAX_ROWS);
    add_product_row(&table, &total, "all", "", "");
    const int code = cli_table_finish(&table);
    puts("alone: the same kernel (tandem's own for int8 and, with AVX-512, Winograd 3x3). library: oneDNN's\n"
         "kernel in layouts of its choice, with direct convolutions. limit: the rate of one product of\n"
         "1024 x 1024 x 1024, alone, in this precision; Winograd needs fewer operations than are counted.\n");
    cli_table rest = {0};
    cli_table_row(&rest, "the rest of the step\t>tasks\t>time\t>share");
    rest_of_step_rows(&all->rest, total.step_ns, all->median_step_ns, &rest);
    const int rest_code = cli_table_finish(&rest);
    return code ? code : rest_code;
}

/* --- The benchmark -------------------------------------------------------------------------------------- */

static tandem_status open_product_bench(product_bench *all, tandem_error *error)
{
    tandem_status status = cli_workload_open(&all->workload, all->options, error);
    if (status != TANDEM_OK) return status;
    const int n_rank = tandem_cluster_n_rank(&all->workload.cluster);
    if (n_rank != 1)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "bench products measures one device, got %d ranks. Use e.g. --device cpu:avx2", n_rank);
    const tandem_rank_place alone = {.n_rank = 1};
    const tandem_train_request training = cli_training(all->options);
    status = training_rank_open(&all->rank, &all->workload, &training, &alone, error);
    return status == TANDEM_OK ? find_products(all, error) : status;
}

static tandem_status measure_limits(product_bench *all, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < all->n && status == TANDEM_OK; k++) {
        const tandem_precision precision = all->rank.step->task[all->one[k].task].precision;
        status = product_limits_measure(&all->limits, precision, all->options, error);
        all->one[k].limit = all->limits.flops_per_s[precision];
    }
    return status;
}

static void close_product_bench(product_bench *all)
{
    for (int k = 0; k < all->n; k++) {
        free(all->one[k].alone_ns);
        free(all->one[k].library_ns);
    }
    free(all->one);
    free(all->product_of);
    free(all->task_ns);
    free(all->step_ns);
    training_rank_close(&all->rank);
    tandem_workload_close(&all->workload);
}

int bench_products(const cli_options *given)
{
    cli_options options = *given;
    product_bench all = {.options = &options,
                         .rounds = options.repetitions > 0 ? options.repetitions : ROUNDS};
    tandem_error error = {0};
    if (!options.model) options.model = "resnet20";
    if (!options.device && !options.cluster) cli_set_device(&options, "strongest");
    options.steps = WARM_UP_STEPS + all.rounds;
    options.allow_nan = 1; /* noise teaches nothing, so a loss that is not finite is fine */
    tandem_status status = open_product_bench(&all, &error);
    if (status == TANDEM_OK) status = measure_limits(&all, &error);
    if (status == TANDEM_OK) status = measure_step_products(&all, &error);
    int code = status == TANDEM_OK ? 0 : cli_fail(&error);
    if (code == 0) {
        summarise_products(&all);
        code = options.json ? print_products_json(&all) : print_products_text(&all);
    }
    close_product_bench(&all);
    return code;
}
