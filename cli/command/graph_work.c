/* graph_work.c: the work of a training step, by pass and kind of kernel: launches, FLOPs, bytes, and a time
 * on paper. Each task takes the longer of its FLOPs and its bytes at fixed rates, and nothing lies between
 * two kernels. So it shows what a change of the step program gains, independent of fits and measurements. A
 * step is expected to take longer: rates by kind of task, and gaps, give a second range. */
#include "cli/command/graph_work.h"

#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/table.h"
#include "tandem/advanced/predictor.h"

/* What large copies and products are taken to reach on one H200 (docs/cuda.md, "Beside what it should
 * reach"). */
static const double paper_bytes_per_s = 4.2e12, paper_flops_16 = 0.79e15, paper_flops_8 = 1.45e15;

/* What kinds of tasks are expected to reach, fast and slow, on one H200 (docs/cuda.md, "A step on paper"). */
enum { EXPECT_FAST, EXPECT_SLOW, N_EXPECTED };
static const double expected_bytes_per_s = 0.87 * 4.2e12, expected_gap_ns = 2700, /* after each launch */
    expected_product_flops[N_EXPECTED] = {0.64e15, 0.58e15},
                    expected_convolution_flops[N_EXPECTED] = {0.36e15, 0.26e15},
                    expected_attention_flops = 0.245e15, expected_of_one_byte = 1.45 / 0.79;

enum { STEP_FORWARD, STEP_BACKWARD, STEP_UPDATE, N_STEP_PART, MAX_WORK_ROWS = 128 };
static const char *const part_names[N_STEP_PART] = {"forward", "backward", "update"};

typedef struct work_row {
    int part; /* of the step; N_STEP_PART: all of it */
    const char *kind;
    int64_t n_task, launches;
    double flops, bytes, ns, expected_ns[N_EXPECTED];
} work_row;

typedef struct step_work {
    int n;
    work_row row[MAX_WORK_ROWS], whole[N_STEP_PART + 1]; /* the parts' sums, and the step's */
} step_work;

/* --- Counting ------------------------------------------------------------------------------------------- */

static int part_of_task(const tandem_task *task)
{
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST:
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_CAST: return STEP_FORWARD;
    case TANDEM_TASK_NORM:
    case TANDEM_TASK_UPDATE: return STEP_UPDATE;
    default: return STEP_BACKWARD;
    }
}

static double paper_ns(const tandem_work *work, double bytes)
{
    const double bytes_ns = 1e9 * bytes / paper_bytes_per_s;
    if (!work->is_product) return bytes_ns;
    const double rate = tandem_dtype_bytes(work->type) == 1 ? paper_flops_8 : paper_flops_16,
                 flops_ns = 1e9 * work->flops / rate;
    return flops_ns > bytes_ns ? flops_ns : bytes_ns;
}

static double expected_task_ns(const tandem_work *work, double bytes, int64_t launches, int how)
{
    const double bytes_ns = 1e9 * bytes / expected_bytes_per_s, gaps_ns = expected_gap_ns * (double)launches;
    if (!work->is_product) return bytes_ns + gaps_ns;
    double rate = expected_product_flops[how];
    if (strcmp(work->kind, "conv2d") == 0) rate = expected_convolution_flops[how];
    if (strcmp(work->kind, "attention") == 0) rate = expected_attention_flops;
    if (tandem_dtype_bytes(work->type) == 1) rate *= expected_of_one_byte;
    const double flops_ns = 1e9 * work->flops / rate;
    return (flops_ns > bytes_ns ? flops_ns : bytes_ns) + gaps_ns;
}

static void add_work_row(work_row *row, const work_row *added)
{
    row->n_task += added->n_task;
    row->launches += added->launches;
    row->flops += added->flops;
    row->bytes += added->bytes;
    row->ns += added->ns;
    for (int how = 0; how < N_EXPECTED; how++) row->expected_ns[how] += added->expected_ns[how];
}

/* Rows of a part are in the order in which the step comes to them. */
static tandem_status add_step_work(step_work *all, const work_row *added, tandem_error *error)
{
    int i = 0;
    while (i < all->n && (all->row[i].part != added->part || strcmp(all->row[i].kind, added->kind) != 0)) i++;
    if (i == MAX_WORK_ROWS)
        return tandem_error_set(error, TANDEM_BUG, "more than %d kinds of kernels", MAX_WORK_ROWS);
    if (i == all->n) all->row[all->n++] = (work_row){.part = added->part, .kind = added->kind};
    add_work_row(&all->row[i], added);
    add_work_row(&all->whole[added->part], added);
    add_work_row(&all->whole[N_STEP_PART], added);
    return TANDEM_OK;
}

static int is_card_task(const tandem_step *step, const tandem_task *task)
{
    if (!task->active || tandem_task_is_collective(task->kind)) return 0;
    return task->op < 0 || tandem_op_row_get(step->graph->op[task->op].kind)->op_class != TANDEM_SOURCE;
}

static tandem_status count_step_work(step_work *all, const tandem_step *step, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < step->n_task && status == TANDEM_OK; t++) {
        const tandem_task *task = &step->task[t];
        tandem_cost_key key;
        tandem_work work;
        if (!is_card_task(step, task) || !tandem_step_cost_key(step, t, task->variant, &key) ||
            !tandem_work_of(&work, &key))
            continue;
        if (work.is_product && tandem_dtype_bytes(work.type) > 2)
            return tandem_error_set(error, TANDEM_USAGE,
                                    "'%s' multiplies in %s; there are rates for products of two bytes (bf16, "
                                    "fp16) and of one. Use e.g. --uniform bf16",
                                    step->graph->op[task->op].name, tandem_dtype_name(work.type));
        const double unmoved = (double)tandem_step_unmoved_bytes(step, t),
                     bytes = work.bytes > unmoved ? work.bytes - unmoved : 0;
        work_row added = {.part = part_of_task(task),
                          .kind = work.kind,
                          .n_task = 1,
                          .launches = tandem_step_launches(step, t),
                          .flops = work.flops,
                          .bytes = bytes,
                          .ns = paper_ns(&work, bytes)};
        for (int how = 0; how < N_EXPECTED; how++)
            added.expected_ns[how] = expected_task_ns(&work, bytes, added.launches, how);
        status = add_step_work(all, &added, error);
    }
    return status;
}

static tandem_status open_uniform_step(tandem_step **step, const tandem_graph *graph,
                                       const cli_options *options, tandem_error *error)
{
    const char *const name = options->device ? options->device : "cuda:0";
    tandem_cluster cluster;
    tandem_plan *plan = NULL;
    tandem_precision precision = TANDEM_PRECISION_BF16;
    tandem_status status = tandem_cluster_parse(&cluster, name, error);
    if (status != TANDEM_OK) return status;
    const tandem_device *const device = &cluster.classes[0].device;
    if (cluster.n_class != 1 ||
        (!tandem_device_is_described(device) && strncmp(device->name, "cuda:", 5) != 0))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--device %s: launches are counted of one GPU. Use e.g. --device cuda:0",
                                name);
    cluster.classes[0].batch = graph->batch;
    if (options->uniform) status = tandem_precision_find(&precision, options->uniform, error);
    if (status == TANDEM_OK) status = tandem_plan_open(&plan, graph, &cluster, "paper", error);
    if (status == TANDEM_OK) status = tandem_plan_uniform(plan, graph, 0, precision, error);
    const tandem_step_options of_step = {.scaling = options->step.scaling};
    if (status == TANDEM_OK) status = tandem_device_open_step(step, device, graph, 0, &of_step, error);
    if (status == TANDEM_OK) tandem_step_load(*step, plan->assignment.precision[0]);
    tandem_plan_close(plan);
    return status;
}

/* --- Printing ------------------------------------------------------------------------------------------- */

static json_t *work_row_json(const work_row *row)
{
    json_t *one =
        json_pack("{s:I,s:I,s:f,s:f,s:f}", "tasks", (json_int_t)row->n_task, "launches",
                  (json_int_t)row->launches, "flops", row->flops, "bytes", row->bytes, "ns", row->ns);
    if (row->kind) json_object_set_new(one, "kernel", json_string(row->kind));
    if (row->part < N_STEP_PART) json_object_set_new(one, "pass", json_string(part_names[row->part]));
    return one;
}

static int print_work_json(const step_work *all, const tandem_graph *graph, const char *precision)
{
    json_t *result = cli_json_new("work"), *rows = json_array();
    for (int part = 0; part < N_STEP_PART; part++)
        for (int i = 0; i < all->n; i++)
            if (all->row[i].part == part) json_array_append_new(rows, work_row_json(&all->row[i]));
    json_object_set_new(result, "model", json_string(graph->model));
    json_object_set_new(result, "batch", json_integer(graph->batch));
    json_object_set_new(result, "precision", json_string(precision));
    json_object_set_new(result, "bytes_per_s", json_real(paper_bytes_per_s));
    json_object_set_new(result, "flops_per_s",
                        json_pack("{s:f,s:f}", "two_bytes", paper_flops_16, "one_byte", paper_flops_8));
    json_object_set_new(result, "kernels", rows);
    json_object_set_new(result, "step", work_row_json(&all->whole[N_STEP_PART]));
    json_object_set_new(result, "expected_ns",
                        json_pack("[f,f]", all->whole[N_STEP_PART].expected_ns[EXPECT_FAST],
                                  all->whole[N_STEP_PART].expected_ns[EXPECT_SLOW]));
    return cli_print_json(result);
}

static void print_work_row(cli_table *table, const work_row *row)
{
    cli_table_row(table, "%s\t%s\t%lld\t%lld\t%.2f\t%.2f\t%.2f",
                  row->part < N_STEP_PART ? part_names[row->part] : "step", row->kind ? row->kind : "all",
                  (long long)row->n_task, (long long)row->launches, row->flops * 1e-12, row->bytes * 1e-9,
                  row->ns * 1e-6);
}

static int print_work_text(const step_work *all, const tandem_graph *graph, const char *precision)
{
    cli_table table = {0};
    cli_table_row(&table, "pass\tkernel\t>tasks\t>launches\t>TFLOP\t>GB\t>ms on paper");
    for (int part = 0; part < N_STEP_PART; part++) {
        for (int i = 0; i < all->n; i++)
            if (all->row[i].part == part) print_work_row(&table, &all->row[i]);
        print_work_row(&table, &all->whole[part]);
    }
    print_work_row(&table, &all->whole[N_STEP_PART]);
    const int code = cli_table_finish(&table);
    if (code == 0)
        printf("%s at batch %lld in %s, at %.1f TB/s, %.2f PFLOP/s of two bytes and %.2f of one; nothing was "
               "measured\n",
               graph->model, (long long)graph->batch, precision, paper_bytes_per_s * 1e-12,
               paper_flops_16 * 1e-15, paper_flops_8 * 1e-15);
    if (code == 0)
        printf("expected %.1f to %.1f ms, on paper, too: products %.2f to %.2f PFLOP/s of two bytes, "
               "convolutions %.2f to %.2f, attention %.3f, bytes %.2f TB/s, gaps of %.1f us\n",
               all->whole[N_STEP_PART].expected_ns[EXPECT_FAST] * 1e-6,
               all->whole[N_STEP_PART].expected_ns[EXPECT_SLOW] * 1e-6,
               expected_product_flops[EXPECT_FAST] * 1e-15, expected_product_flops[EXPECT_SLOW] * 1e-15,
               expected_convolution_flops[EXPECT_FAST] * 1e-15,
               expected_convolution_flops[EXPECT_SLOW] * 1e-15, expected_attention_flops * 1e-15,
               expected_bytes_per_s * 1e-12, expected_gap_ns * 1e-3);
    return code;
}

int graph_print_work(const cli_options *options, const tandem_graph *graph)
{
    tandem_error error = {0};
    tandem_step *step = NULL;
    step_work all = {.n = 0};
    for (int part = 0; part <= N_STEP_PART; part++) all.whole[part].part = part;
    tandem_status status = open_uniform_step(&step, graph, options, &error);
    if (status == TANDEM_OK) status = count_step_work(&all, step, &error);
    tandem_step_close(step);
    if (status != TANDEM_OK) return cli_fail(&error);
    const char *const precision = options->uniform ? options->uniform : "bf16";
    return (options->json ? print_work_json : print_work_text)(&all, graph, precision);
}
