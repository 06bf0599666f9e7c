/* demo.c: the whole loop on two different devices of this machine, with the commands that a user would type.
 * */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/compare_json.h"
#include "cli/profile_json.h"
#include "cli/sensitivity_json.h"
#include "cli/prediction.h"
#include "cli/report_files.h"
#include "cli/table.h"

enum { N_CASE = 3, STEPS = 80, MIN_STEPS = 24 };
/* to the end of the last case, so that the demo ends within three minutes also where steps slow down */
static const int64_t loop_budget_ns = INT64_C(150000000000);
static const char demo_model[] = "vit_tiny:width=256,heads=4", demo_batch[] = "16", demo_slowdown[] = "1%",
                  plan_path[] = "tandem-demo-plan.json";

typedef struct demo {
    cli_options options; /* for the commands that it runs */
    const tandem_device *strong, *weak;
    int64_t begin_ns;
    double delay_share; /* of the time, others had a core during the profile */
    char devices[2 * TANDEM_DEVICE_NAME], cluster[2 * TANDEM_DEVICE_NAME + 8], uniform_plan[64];
    tandem_compare_result result[N_CASE]; /* all fp32, uniform, allocated */
    tandem_goodput goodput[N_CASE];
    json_t *stage[3]; /* what profile, sensitivity and allocate printed */
    char trace_path[SCRATCH_JSON];
} demo;

/* --- Stages --------------------------------------------------------------------------------------------- */

/* Prints the command and runs it. The caller owns its JSON; NULL and *code if it failed. */
static json_t *run_demo_allocate(const demo *d, const char *const *argument, int *code)
{
    char line[1024] = "tandem allocate";
    for (int k = 0; argument[k]; k++) {
        const int has_space = strchr(argument[k], ' ') != NULL;
        (void)tandem_append(line, sizeof line, has_space ? " \"%s\"" : " %s", argument[k]);
    }
    cli_note(&d->options, "$ %s", line);
    return cli_run_inner(&command_allocate, &d->options, argument, code);
}

/* What all stages ask of the model and its batch. */
static tandem_workload_request demo_workload(const demo *d, const char *cluster)
{
    return (tandem_workload_request){
        .model = d->options.model, .cluster = cluster, .batch = d->options.batch, .seed = d->options.seed};
}

static int demo_profile(demo *d)
{
    tandem_error error = {0};
    tandem_profile_result result = {.n_rank = 0};
    const tandem_profile_request request = {.workload = demo_workload(d, d->cluster),
                                            .listener = cli_listener(&d->options),
                                            .store = d->options.db,
                                            .data = d->options.data};
    cli_note(&d->options, "$ tandem profile --db %s --model %s --batch %s --device %s --data %s",
             d->options.db, d->options.model, demo_batch, d->devices, d->options.data);
    if (tandem_profile(&result, &request, &error) != TANDEM_OK) return cli_fail(&error);
    for (int r = 0; r < result.n_rank; r++) d->delay_share = fmax(d->delay_share, result.rank[r].delay_share);
    d->stage[0] = cli_profile_json(&result, d->options.db);
    tandem_profile_result_free(&result);
    return 0;
}

static int demo_sensitivity(demo *d)
{
    tandem_error error = {0};
    tandem_sensitivity_result result = {.n_row = 0};
    tandem_graph *graph = NULL;
    const tandem_sensitivity_request request = {.workload = demo_workload(d, "strongest"),
                                                .listener = cli_listener(&d->options),
                                                .store = d->options.db,
                                                .data = d->options.data};
    cli_note(&d->options, "$ tandem sensitivity --db %s --model %s --batch %s --data %s", d->options.db,
             d->options.model, demo_batch, d->options.data);
    tandem_status status = tandem_sensitivity_measure(&result, &request, &error);
    if (status == TANDEM_OK) status = tandem_graph_open(&graph, result.model, result.batch, &error);
    if (status == TANDEM_OK) d->stage[1] = cli_sensitivity_json(&result, graph);
    tandem_graph_close(graph);
    tandem_sensitivity_result_free(&result);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}

static int demo_allocate(demo *d)
{
    int code = 0;
    const char *const argument[] = {"--db",       d->options.db, "--model",  d->options.model, "--batch",
                                    demo_batch,   "--cluster",   d->cluster, "--policy",       "greedy",
                                    "--slowdown", demo_slowdown, "-o",       plan_path,        NULL};
    json_t *allocation = run_demo_allocate(d, argument, &code);
    const json_t *devices = json_object_get(allocation, "devices"),
                 *baselines = json_object_get(allocation, "baselines");
    const int strong_is_lowered = json_is_true(json_object_get(json_array_get(devices, 0), "lowered"));
    const char *narrow = json_string_value(json_object_get(json_array_get(baselines, 1), "precision"));
    if (!narrow) narrow = "fp32"; /* no precision is faster than fp32 here */
    /* classes in the cluster's order: strong, weak */
    (void)snprintf(d->uniform_plan, sizeof d->uniform_plan, strong_is_lowered ? "%s,fp32" : "fp32,%s",
                   narrow);
    d->stage[2] = allocation;
    return code;
}

/* As many steps as are affordable in what is left of the time, while others have the cores as often as during
 * the profile; equal for all cases. */
static int choose_demo_steps(demo *d)
{
    int64_t all_ns = 0;
    for (int k = 0; k < N_CASE; k++) all_ns += d->result[k].predicted_ns;
    const double share = d->delay_share < 0.9 ? d->delay_share : 0.9;
    const int64_t left_ns = loop_budget_ns - (tandem_now_ns() - d->begin_ns),
                  affordable = all_ns > 0 ? (int64_t)((1 - share) * (double)left_ns) / all_ns : STEPS;
    if (d->options.steps < 0)
        d->options.steps = affordable > STEPS ? STEPS : affordable < MIN_STEPS ? MIN_STEPS : affordable;
    return 0;
}

/* A case: a plan's file, or one precision per class. */
static tandem_compare_request demo_case(const demo *d, int k)
{
    tandem_compare_request request = tandem_compare_request_default();
    tandem_workload_request workload = demo_workload(d, d->cluster);
    if (k == 2) /* a plan names its model and cluster */
        workload = (tandem_workload_request){.plan = plan_path, .seed = d->options.seed};
    if (k == 1) workload.uniform = d->uniform_plan;
    request.train.workload = workload;
    request.train.listener = cli_listener(&d->options);
    request.train.store = d->options.db;
    request.train.data = d->options.data;
    request.train.steps = d->options.steps;
    request.train.trace = k == 2 && d->options.report ? d->trace_path : NULL;
    request.train.made = cli_made();
    return request;
}

static int predict_demo_case(demo *d, int k)
{
    tandem_error error = {0};
    const tandem_compare_request request = demo_case(d, k);
    return tandem_compare_predict(&d->result[k], &request, &error) == TANDEM_OK ? 0 : cli_fail(&error);
}

/* Prints the command that trains this case. */
static void show_train_command(const demo *d, int k)
{
    char what[TANDEM_MODEL_NAME + 1024];
    if (k == 2)
        (void)snprintf(what, sizeof what, "--plan %s", plan_path);
    else
        (void)snprintf(what, sizeof what, "--model %s --batch %s --cluster \"%s\" --uniform %s",
                       d->options.model, demo_batch, d->cluster, k == 1 ? d->uniform_plan : "fp32");
    cli_note(&d->options, "$ tandem train %s --data %s --steps %lld --eval 0", what, d->options.data,
             (long long)d->options.steps);
}

static int measure_demo_case(demo *d, int k)
{
    static const char *const name[N_CASE] = {"all fp32", "uniform", "allocated"};
    tandem_error error = {0};
    tandem_workload workload = {0};
    const tandem_compare_request request = demo_case(d, k);
    tandem_compare_result result = {.n_class = 0};
    show_train_command(d, k);
    tandem_status status = tandem_compare(&result, &request, &error);
    if (status == TANDEM_OK) {
        tandem_compare_result_free(&d->result[k]);
        d->result[k] = result;
        (void)snprintf(d->result[k].plan, sizeof d->result[k].plan, "%s", name[k]);
        status = tandem_workload_open(&workload, &request.train.workload, &error);
    }
    if (status == TANDEM_OK)
        status = cli_compare_goodput(&d->goodput[k], &d->options, &workload, result.samples_per_s, &error);
    tandem_workload_close(&workload);
    return status == TANDEM_OK ? 0 : cli_fail(&error);
}

static int run_demo_cases(demo *d)
{
    int code = 0;
    for (int k = 0; k < N_CASE && !code; k++) code = predict_demo_case(d, k);
    if (!code) code = choose_demo_steps(d);
    for (int k = 0; k < N_CASE && !code; k++) code = measure_demo_case(d, k);
    return code;
}

/* --- Report --------------------------------------------------------------------------------------------- */

/* "46.2 MiB =" where the allocation is what was predicted. */
static void append_class_memory(char *text, size_t size, const tandem_compare_class *class)
{
    const int is_equal = class->predicted_peak_bytes == class->allocated_peak_bytes;
    (void)tandem_append(text, size, "\t%s %s", tandem_quantity_bytes(class->allocated_peak_bytes).text,
                        is_equal ? "=" : "!");
}

static void add_demo_row(cli_table *table, const demo *d, int k)
{
    char memory[256] = "", verdict[256];
    const tandem_compare_result *c = &d->result[k];
    for (int m = 0; m < c->n_class; m++) append_class_memory(memory, sizeof memory, &c->classes[m]);
    cli_table_row(table, "%s\t%s\t%s\t%+.1f%%\t%+.1f%%\t%.1f\t%s%s\t%.4f\t%.4f\t%s", c->plan,
                  tandem_quantity_ns(c->predicted_ns).text, tandem_quantity_ns(c->measured_ns).text,
                  100 * c->error, 100 * c->steady.error_at_run_speed, c->samples_per_s,
                  tandem_quantity_ns(c->classes[0].measured_wait_ns).text, memory, c->first_loss,
                  c->final_loss, tandem_compare_verdict_print(verdict, sizeof verdict, &c->steady));
}

static int print_demo_table(const demo *d)
{
    cli_table table = {0};
    cli_table_row(&table,
                  "plan\t>predicted\t>measured\t>error\t>at run's speed\t>samples/s\t>%s idle\t>memory %s"
                  "\t>memory %s\t>loss 1\t>loss end\tverdict",
                  d->strong->name, d->strong->name, d->weak->name);
    for (int k = 0; k < N_CASE; k++) add_demo_row(&table, d, k);
    return cli_table_finish(&table);
}

static void print_demo_answer(const demo *d)
{
    const tandem_compare_result *fp32 = &d->result[0], *allocated = &d->result[N_CASE - 1];
    answer_line("allocated", "%.2f times the samples/s of all fp32 (measured), in %s",
                allocated->samples_per_s / fp32->samples_per_s, plan_path);
    answer_extra_samples(&d->goodput[N_CASE - 1]);
    answer_line("run", "%s, batch %s per rank, %s and %s; %lld steps, the same samples in each case",
                d->options.model, demo_batch, d->strong->name, d->weak->name, (long long)d->options.steps);
    answer_line("plans", "uniform: %s in %s; allocated: within %s of the fastest step", d->weak->name,
                strchr(d->uniform_plan, ',') + 1, demo_slowdown);
}

static int print_demo_text(const demo *d)
{
    print_demo_answer(d);
    putchar('\n');
    const int code = print_demo_table(d);
    if (code == 0) puts("\n= after a memory: as predicted, to the byte; ! otherwise");
    return code;
}

static json_t *demo_result_json(const demo *d)
{
    json_t *result = cli_json_new("demo");
    json_object_set(result, "model", json_object_get(d->stage[2], "model")); /* canonical */
    json_object_set_new(result, "cluster", json_string(d->cluster));
    json_object_set_new(result, "steps", json_integer(d->options.steps));
    json_t *cases = json_array();
    double sum = 0, max = 0;
    for (int k = 0; k < N_CASE; k++) {
        json_array_append_new(cases, cli_compare_json(&d->result[k], &d->goodput[k]));
        sum += fabs(d->result[k].error);
        max = fmax(max, fabs(d->result[k].error));
    }
    json_object_set_new(result, "cases", cases);
    json_object_set_new(result, "mean_abs_error", json_real(sum / N_CASE));
    json_object_set_new(result, "max_abs_error", json_real(max));
    return result;
}

static int write_demo_page(demo *d)
{
    static const char *const name[] = {"profile", "sensitivity", "allocate"};
    tandem_error error = {0};
    report_page page = {0};
    tandem_workload workload = {0};
    tandem_status status = cli_report_add_result(&page, demo_result_json(d), "demo", &error);
    for (int k = 0; k < 3 && status == TANDEM_OK; k++)
        status = cli_report_add_result(&page, json_incref(d->stage[k]), name[k], &error);
    const tandem_workload_request allocated = demo_case(d, 2).train.workload;
    if (status == TANDEM_OK) status = tandem_workload_open(&workload, &allocated, &error);
    if (status == TANDEM_OK)
        status = cli_report_add_plan(&page, &d->options, workload.plan, &workload.cluster, workload.graph[0],
                                     1, &error);
    if (status == TANDEM_OK) status = cli_report_add_trace(&page, d->trace_path, "the measured step", &error);
    tandem_workload_close(&workload);
    return cli_report_finish(&page, &d->options, status, &error);
}

/* --- The command ---------------------------------------------------------------------------------------- */

static void release_demo(demo *d)
{
    for (int k = 0; k < N_CASE; k++) tandem_compare_result_free(&d->result[k]);
    for (int k = 0; k < 3; k++) json_decref(d->stage[k]);
    if (d->trace_path[0]) scratch_file_remove(d->trace_path);
}

static int run_demo(const cli_options *given)
{
    demo d = {.options = *given};
    tandem_error error = {0};
    if (!runtime_backend(&error) || cli_report_check(given, &error) != TANDEM_OK) return cli_fail(&error);
    if (given->report && scratch_json_make(d.trace_path, &error) != TANDEM_OK) return cli_fail(&error);
    tandem_device_demo_pair(&d.strong, &d.weak);
    (void)snprintf(d.devices, sizeof d.devices, "%s,%s", d.strong->name, d.weak->name);
    (void)snprintf(d.cluster, sizeof d.cluster, "%s + %s", d.strong->name, d.weak->name);
    if (!d.options.model) d.options.model = demo_model;
    d.options.cluster = d.cluster;
    d.options.batch = strtoll(demo_batch, NULL, 10);
    if (!d.options.data) d.options.data = "fashion-mnist";
    d.options.evaluate = 0; /* after so few steps, an accuracy says nothing about a plan */
    d.begin_ns = tandem_now_ns();
    int code = demo_profile(&d);
    if (!code) code = demo_sensitivity(&d);
    if (!code) code = demo_allocate(&d);
    if (!code) code = run_demo_cases(&d);
    if (code) {
        release_demo(&d);
        return code;
    }
    cli_note(&d.options, "the whole loop took %s", tandem_quantity_ns(tandem_now_ns() - d.begin_ns).text);
    code = given->json ? cli_print_json(demo_result_json(&d)) : print_demo_text(&d);
    if (code == 0 && given->report) code = write_demo_page(&d);
    release_demo(&d);
    return code;
}

static const int options[] = {OPTION_MODEL, OPTION_SET,    OPTION_LOSS, OPTION_DATA,  OPTION_STEPS,
                              OPTION_SEED,  OPTION_REPORT, OPTION_DB,   OPTION_QUIET, OPTION_END};
const cli_command command_demo = {
    .name = "demo",
    .words = "",
    .summary = "Profile, allocate, train and compare on two devices of this machine",
    .option = options,
    .description =
        "Profiles a small vision transformer, or the model given, on the strongest device of this "
        "machine and on a\n"
        "different one, measures sensitivities, allocates precisions, trains three plans and prints "
        "predicted and\n"
        "measured values. Each stage is a command that is printed. Writes the profile store and\n"
        "tandem-demo-plan.json to the working directory.\n"
        "Examples:\n"
        "  tandem demo --report demo.html\n"
        "  tandem demo --steps 200 --json >demo.json",
    .run = run_demo,
};
