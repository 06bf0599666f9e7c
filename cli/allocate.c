/* allocate.c: `tandem allocate`: a precision for every operator of every class, from measured costs and
 * statistics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantity.h"
#include "cli/prediction.h"
#include "cli/table.h"

/* One plan beside the chosen one, for comparison. */
typedef struct neighbour {
    tandem_precision precision;
    char name[48];
    int64_t step_ns;
    double sensitivity;
    int fits; /* the memory of every class */
} neighbour;

typedef struct allocating {
    const cli_options *options;
    cli_subject subject;
    tandem_planner *planner;
    tandem_allocation_problem *problem; /* the planner's */
    tandem_allocation result;
    tandem_plan *plan;
    double seconds;
    neighbour neighbour[2]; /* all classes in base; the fastest uniform precision of the lowered class */
    int n_neighbour;
} allocating;

/* --- The problem ------------------------------------------------------------------------------ */

/* *uniform: of policy uniform; unchanged with any other. */
static tandem_status read_choices(tandem_precision *uniform, const cli_options *options, tandem_error *error)
{
    const tandem_policy *policy = tandem_policy_get(0);
    tandem_status status = options->policy ? tandem_policy_find(&policy, options->policy, error) : TANDEM_OK;
    if (status != TANDEM_OK) return status;
    const int is_uniform = strcmp(policy->name, "uniform") == 0;
    if (is_uniform && !options->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "policy uniform needs a precision: --policy uniform --uniform int8");
    if (!is_uniform && options->uniform)
        return tandem_error_set(error, TANDEM_USAGE,
                                "--uniform %s goes with --policy uniform; policy %s chooses by itself",
                                options->uniform, policy->name);
    return is_uniform ? tandem_precision_find(uniform, options->uniform, error) : TANDEM_OK;
}

static tandem_status open_problem(allocating *a, tandem_error *error)
{
    cli_options subject_options = *a->options;
    subject_options.uniform = NULL; /* of the policy, not of all classes */
    tandem_precision uniform = TANDEM_PRECISION_FP32;
    tandem_status status = read_choices(&uniform, a->options, error);
    if (status == TANDEM_OK) status = cli_subject_open(&a->subject, &subject_options, error);
    if (status == TANDEM_OK) status = cli_planner_open(&a->planner, a->options, &a->subject, 0, error);
    if (status != TANDEM_OK) return status;
    a->problem = tandem_planner_problem(a->planner);
    a->problem->uniform = uniform;
    a->problem->slowdown = a->options->slowdown;
    return TANDEM_OK;
}

/* --- Neighbours of the plan ------------------------------------------------------------------- */

/* The lowered class in one precision, the others in base. *found = 0 where the device lacks it or a cost
 * of it is missing: a neighbour is only for comparison. */
static tandem_status try_uniform(allocating *a, tandem_precision precision, neighbour *out, int *found,
                                 tandem_error *error)
{
    tandem_plan *plan = NULL;
    tandem_replay replay;
    tandem_error tried = {0};
    *found = 0;
    tandem_status status = tandem_plan_open(&plan, a->problem->graph, &a->plan->cluster, "", &tried);
    for (int c = 0; c < a->plan->cluster.n_class && status == TANDEM_OK; c++)
        status = tandem_plan_uniform(plan, a->problem->graph, c,
                                     c == a->result.lowered ? precision : a->problem->base, &tried);
    if (status == TANDEM_OK) {
        tandem_replayer_set_plan(a->problem->replayer, plan);
        status = tandem_replayer_run(a->problem->replayer, &replay, TANDEM_REPLAY_MEMORY, &tried);
    }
    tandem_plan_close(plan);
    if (status == TANDEM_NO_KERNEL || status == TANDEM_MISSING) return TANDEM_OK;
    if (status != TANDEM_OK) {
        *error = tried;
        return status;
    }
    *found = 1;
    *out = (neighbour){.step_ns = replay.step_ns,
                       .sensitivity = tandem_allocation_sensitivity(a->problem),
                       .fits = 1,
                       .precision = precision};
    for (int c = 0; c < replay.n_class; c++) {
        const uint64_t limit = tandem_cluster_limit_bytes(&a->subject.cluster, c);
        if (limit && replay.member[c].peak_bytes > limit) out->fits = 0;
    }
    (void)snprintf(out->name, sizeof out->name, "%s %s", precision == a->problem->base ? "all" : "uniform",
                   tandem_precision_get(precision)->name);
    return TANDEM_OK;
}

static tandem_status find_neighbours(allocating *a, tandem_error *error)
{
    neighbour *uniform = &a->neighbour[1];
    tandem_status status = try_uniform(a, a->problem->base, &a->neighbour[0], &a->n_neighbour, error);
    for (int p = 0;
         p < TANDEM_N_PRECISION && a->n_neighbour > 0 && a->result.lowered >= 0 && status == TANDEM_OK; p++) {
        neighbour tried;
        int found;
        if (p == (int)a->problem->base) continue;
        status = try_uniform(a, (tandem_precision)p, &tried, &found, error);
        if (status != TANDEM_OK || !found) continue;
        if (a->n_neighbour == 2 && tried.step_ns >= uniform->step_ns) continue;
        *uniform = tried;
        a->n_neighbour = 2;
    }
    return status;
}

static tandem_status allocate(allocating *a, tandem_error *error)
{
    tandem_status status = open_problem(a, error);
    if (status != TANDEM_OK) return status;
    const int64_t begin = tandem_now_ns();
    status = tandem_planner_allocate(&a->plan, &a->result, a->planner, a->options->policy, error);
    a->seconds = (double)(tandem_now_ns() - begin) * 1e-9;
    if (status == TANDEM_OK) status = find_neighbours(a, error);
    if (status == TANDEM_OK && a->options->output)
        status = tandem_plan_write(a->plan, a->problem->graph, a->options->output, error);
    return status;
}

/* --- How much has which precision ------------------------------------------------------------- */

typedef struct part {
    int n_op;
    double flops, all_flops; /* forward, of adjustable operators */
} part;

static part part_of(const allocating *a, int c, int precision)
{
    const tandem_graph *graph = a->problem->graph;
    part p = {0};
    for (int i = 0; i < graph->n_op; i++) {
        if (tandem_op_row_get(graph->op[i].kind)->op_class != TANDEM_ADJUSTABLE) continue;
        p.all_flops += graph->op[i].flops;
        if ((int)a->plan->precision[c][i] != precision) continue;
        p.n_op++;
        p.flops += graph->op[i].flops;
    }
    return p;
}

static double share_of(part p) { return p.all_flops > 0 ? p.flops / p.all_flops : 0; }

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *devices_json(const allocating *a)
{
    json_t *devices = json_array();
    for (int c = 0; c < a->plan->cluster.n_class; c++) {
        json_t *precisions = json_array();
        for (int k = 0; k < TANDEM_N_PRECISION; k++) {
            const part p = part_of(a, c, k);
            if (p.n_op > 0)
                json_array_append_new(precisions, json_pack("{s:s,s:i,s:f}", "name",
                                                            tandem_precision_get((tandem_precision)k)->name,
                                                            "operators", p.n_op, "flops_share", share_of(p)));
        }
        json_array_append_new(devices,
                              json_pack("{s:s,s:b,s:I,s:o}", "name", a->plan->cluster.member[c].device.name,
                                        "lowered", c == a->result.lowered, "peak_bytes",
                                        (json_int_t)a->result.peak_bytes[c], "precisions", precisions));
    }
    return devices;
}

static int print_json(const allocating *a)
{
    json_t *result = cli_json("allocate"), *peaks = json_array(), *neighbours = json_array();
    for (int c = 0; c < a->plan->cluster.n_class; c++)
        json_array_append_new(peaks, json_integer((json_int_t)a->result.peak_bytes[c]));
    for (int k = 0; k < a->n_neighbour; k++)
        json_array_append_new(neighbours,
                              json_pack("{s:s,s:s,s:I,s:o,s:b}", "name", a->neighbour[k].name, "precision",
                                        tandem_precision_get(a->neighbour[k].precision)->name, "step_ns",
                                        (json_int_t)a->neighbour[k].step_ns, "sensitivity",
                                        cli_number(a->neighbour[k].sensitivity), "fits", a->neighbour[k].fits));
    json_object_set_new(result, "plan", json_string(a->plan->name));
    json_object_set_new(result, "policy", json_string(a->plan->policy));
    json_object_set_new(result, "model", json_string(a->plan->model));
    json_object_set_new(result, "method", json_string(a->plan->method));
    json_object_set_new(result, "slowdown", json_real(a->problem->slowdown));
    json_object_set_new(result, "step_ns", json_integer(a->result.step_ns));
    json_object_set_new(result, "target_ns", json_integer(a->result.target_ns));
    json_object_set_new(result, "fastest_ns", json_integer(a->result.fastest_ns));
    json_object_set_new(result, "sensitivity", cli_number(a->result.sensitivity));
    json_object_set_new(result, "fastest_sensitivity", cli_number(a->result.fastest_sensitivity));
    json_object_set_new(result, "lower_bound", cli_number(a->plan->lower_bound));
    json_object_set_new(result, "gap", cli_number(a->plan->gap));
    json_object_set_new(result, "replays", json_integer(a->result.replays));
    json_object_set_new(result, "seconds", json_real(a->seconds));
    json_object_set_new(result, "peak_bytes", peaks);
    json_object_set_new(result, "neighbours", neighbours);
    json_object_set_new(result, "devices", devices_json(a));
    return cli_print_json(result);
}

/* --- Text ------------------------------------------------------------------------------------- */

static void plan_row(cli_table *table, const char *name, int64_t step_ns, double sensitivity, int fits)
{
    char step[TANDEM_QUANTITY_TEXT];
    cli_table_row(table, "%s\t%s\t%.4g\t%s", name, tandem_quantity_print_ns(step, sizeof step, step_ns),
                  sensitivity, fits ? "" : "lacks memory");
}

static int print_plans(const allocating *a)
{
    cli_table table = {0};
    cli_table_row(&table, "plan\t>step\t>sensitivity (%s)", a->plan->method);
    plan_row(&table, a->plan->name, a->result.step_ns, a->result.sensitivity, 1);
    for (int k = 0; k < a->n_neighbour; k++)
        plan_row(&table, a->neighbour[k].name, a->neighbour[k].step_ns, a->neighbour[k].sensitivity,
                 a->neighbour[k].fits);
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

static int print_devices(const allocating *a)
{
    char bytes[TANDEM_QUANTITY_TEXT], share[TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "device\tprecision\t>operators\t>of the FLOPs\t>memory");
    for (int c = 0; c < a->plan->cluster.n_class; c++) {
        int first = 1;
        for (int k = 0; k < TANDEM_N_PRECISION; k++) {
            const part p = part_of(a, c, k);
            if (p.n_op == 0) continue;
            cli_table_row(&table, "%s\t%s\t%d\t%s\t%s", first ? a->plan->cluster.member[c].device.name : "",
                          tandem_precision_get((tandem_precision)k)->name, p.n_op,
                          tandem_quantity_print_ratio(share, sizeof share, share_of(p)),
                          first ? tandem_quantity_print_bytes(bytes, sizeof bytes, a->result.peak_bytes[c]) : "");
            first = 0;
        }
    }
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

static int print_text(const allocating *a)
{
    char target[TANDEM_QUANTITY_TEXT], slowdown[TANDEM_QUANTITY_TEXT], time[TANDEM_QUANTITY_TEXT];
    printf("%s by policy %s: %lld replays in %s; allowed step %s (slowdown %s)\n\n", a->plan->model,
           a->plan->policy, (long long)a->result.replays,
           tandem_quantity_print_ns(time, sizeof time, (int64_t)(a->seconds * 1e9)),
           tandem_quantity_print_ns(target, sizeof target, a->result.target_ns),
           tandem_quantity_print_ratio(slowdown, sizeof slowdown, a->problem->slowdown));
    const int code = print_plans(a);
    if (code) return code;
    putchar('\n');
    return print_devices(a);
}

/* --- The command ------------------------------------------------------------------------------ */

static int run(const cli_options *options)
{
    tandem_error error = {0};
    allocating a = {.options = options};
    int code;
    if (allocate(&a, &error) != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->output && strcmp(options->output, "-") == 0)
        code = 0; /* standard output holds the plan */
    else
        code = options->json ? print_json(&a) : print_text(&a);
    if (code == 0 && options->output && strcmp(options->output, "-") != 0)
        cli_note(options, "plan written to %s", options->output);
    tandem_plan_close(a.plan);
    tandem_planner_close(a.planner);
    cli_subject_close(&a.subject);
    return code;
}

static const int options[] = {OPTION_MODEL,    OPTION_CLUSTER, OPTION_DEVICE, OPTION_BATCH,  OPTION_POLICY,
                              OPTION_SLOWDOWN, OPTION_MEMORY,  OPTION_BASE,   OPTION_METHOD, OPTION_UNIFORM,
                              OPTION_BUCKET,   OPTION_OUTPUT,  OPTION_END};
const cli_command command_allocate = {
    .name = "allocate",
    .words = "",
    .summary = "Choose a precision for every operator of every device, and write the plan",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem allocate --model vit_tiny --cluster \"cpu:avx512 + cpu:sse41\" -o plan.json\n"
        "  tandem allocate --model resnet20 --cluster \"cpu:avx2 + cpu:sse41\" --slowdown 3% --memory 64MiB,32MiB\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --policy uniform --uniform int8 -o -\n"
        "Needs costs (`tandem profile`) and statistics (`tandem sensitivity`). Without -o nothing is written; -o - prints\n"
        "the plan itself. Where no plan fits the memory: exit code 1, and FILE stays as it was. Its neighbours are\n"
        "listed too: every class in the base precision, and the fastest single precision of the class that is lowered.",
    .run = run,
};
