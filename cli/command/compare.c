/* compare.c: `tandem compare`: the predicted and the measured step of a plan. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "base/append.h"
#include "cli/answer.h"
#include "cli/command/compare.h"
#include "cli/compare_json.h"
#include "cli/prediction.h"
#include "cli/report_files.h"
#include "cli/table.h"

typedef struct comparison {
    const cli_options *options;
    tandem_workload workload; /* what was compared, for its names */
    tandem_compare_result result;
    tandem_goodput goodput;
} comparison;

/* --- Operators: sums over their tasks, of a rank of the first class --------------------------- */

typedef struct operator_times {
    const char *name, *kind;
    int64_t predicted_ns, measured_ns;
} operator_times;

/* Rows after the operators: tasks without an operator. */
static const operator_times rest[] = {{.name = "norm", .kind = "norm"},
                                      {.name = "optimizer", .kind = "update"}};
enum { N_REST = sizeof rest / sizeof *rest };

/* Of operator `op`, or of a row after the last one. All-reduces are left out: a rank cannot know when it
 * began to wait for others. */
static operator_times times_of_operator(const tandem_compare_result *compared, const tandem_graph *graph,
                                        int op)
{
    operator_times times = op < graph->n_op
                               ? (operator_times){.name = graph->op[op].name,
                                                  .kind = tandem_op_row_get(graph->op[op].kind)->name}
                               : rest[op - graph->n_op];
    for (int t = 0; t < compared->n_task; t++) {
        const tandem_compare_task *task = &compared->task[t];
        const int is_its =
            op < graph->n_op ? task->op == op : task->op < 0 && strcmp(task->kind, times.kind) == 0;
        if (!is_its) continue;
        times.predicted_ns += task->class_predicted_ns[0];
        times.measured_ns += task->measured_ns;
    }
    return times;
}

static double times_error(operator_times times)
{
    return times.measured_ns > 0
               ? (double)(times.predicted_ns - times.measured_ns) / (double)times.measured_ns
               : NAN;
}

/* Of one kind of task on the devices of a class. */
static operator_times times_of_kind(const tandem_compare_result *compared, int c, tandem_task_kind kind)
{
    operator_times times = {.name = compared->classes[c].device, .kind = tandem_task_kind_name(kind)};
    for (int t = 0; t < compared->n_task; t++) {
        const tandem_compare_task *task = &compared->task[t];
        if (strcmp(task->kind, times.kind) != 0 || kind == TANDEM_TASK_REDUCE) continue;
        times.predicted_ns += task->class_predicted_ns[c];
        times.measured_ns += task->class_measured_ns[c];
    }
    return times;
}

static void add_times_json(json_t *rows, const char *what, operator_times times)
{
    if (times.predicted_ns == 0 && times.measured_ns == 0) return;
    json_array_append_new(rows, json_pack("{s:s,s:s,s:I,s:I,s:o}", what, times.name, "kind", times.kind,
                                          "predicted_ns", (json_int_t)times.predicted_ns, "measured_ns",
                                          (json_int_t)times.measured_ns, "error",
                                          cli_json_number(times_error(times))));
}

static json_t *task_kinds_json(const tandem_compare_result *compared)
{
    json_t *rows = json_array();
    for (int c = 0; c < compared->n_class; c++)
        for (int kind = 0; kind < TANDEM_N_TASK_KIND; kind++)
            add_times_json(rows, "device", times_of_kind(compared, c, (tandem_task_kind)kind));
    return rows;
}

static json_t *compared_operators_json(const tandem_compare_result *compared, const tandem_graph *graph)
{
    json_t *rows = json_array();
    for (int op = 0; op < graph->n_op + N_REST; op++)
        add_times_json(rows, "operator", times_of_operator(compared, graph, op));
    return rows;
}

static void add_times_row(cli_table *table, operator_times times)
{
    char predicted[TANDEM_QUANTITY_TEXT], measured[TANDEM_QUANTITY_TEXT], error[TANDEM_QUANTITY_TEXT];
    if (times.predicted_ns == 0 && times.measured_ns == 0) return;
    cli_table_row(table, "%s\t%s\t%s\t%s\t%s", times.name, times.kind,
                  tandem_quantity_print_ns(predicted, sizeof predicted, times.predicted_ns),
                  tandem_quantity_print_ns(measured, sizeof measured, times.measured_ns),
                  tandem_quantity_print_ratio(error, sizeof error, times_error(times)));
}

static int print_compared_operators(const tandem_compare_result *compared, const tandem_graph *graph)
{
    cli_table operators = {0}, kinds = {0};
    cli_table_row(&operators, "operator on %s\tkind\t>predicted\t>measured\t>error",
                  compared->classes[0].device);
    for (int op = 0; op < graph->n_op + N_REST; op++)
        add_times_row(&operators, times_of_operator(compared, graph, op));
    cli_table_row(&kinds, "device\tkind of task\t>predicted\t>measured\t>error");
    for (int c = 0; c < compared->n_class; c++)
        for (int kind = 0; kind < TANDEM_N_TASK_KIND; kind++)
            add_times_row(&kinds, times_of_kind(compared, c, (tandem_task_kind)kind));
    putchar('\n');
    int code = cli_table_finish(&operators);
    putchar('\n');
    if (code == 0) return cli_table_finish(&kinds);
    cli_table_free(&kinds);
    return code;
}

/* --- Result ----------------------------------------------------------------------------------- */

static json_t *compare_result_json(const comparison *c)
{
    const tandem_compare_result *compared = &c->result;
    const tandem_workload *workload = &c->workload;
    char cluster[1024];
    tandem_cluster_print(cluster, sizeof cluster, &workload->cluster);
    json_t *result = cli_json_new("compare"), *cases = json_array();
    json_array_append_new(cases, cli_compare_json(compared, &c->goodput));
    json_object_set_new(result, "model", json_string(workload->graph[0]->model));
    json_object_set_new(result, "cluster", json_string(cluster));
    json_object_set_new(result, "steps", json_integer(compared->steps));
    json_object_set_new(result, "cases", cases);
    json_object_set_new(result, "mean_abs_error", cli_json_number(fabs(compared->error)));
    json_object_set_new(result, "max_abs_error", cli_json_number(fabs(compared->error)));
    if (c->options->per_operator) {
        json_object_set_new(result, "operators", compared_operators_json(compared, workload->graph[0]));
        json_object_set_new(result, "kinds", task_kinds_json(compared));
    }
    return result;
}

typedef struct resident_text {
    char peak[TANDEM_QUANTITY_TEXT], unplanned[TANDEM_QUANTITY_TEXT + 1];
} resident_text;

static resident_text print_resident(const tandem_compare_class *class)
{
    resident_text text = {"-", "-"};
    if (class->resident_peak_bytes < 0) return text;
    const int64_t more = cli_unplanned_bytes(class);
    (void)tandem_quantity_print_bytes(text.peak, sizeof text.peak, (uint64_t) class->resident_peak_bytes);
    text.unplanned[0] = more < 0 ? '-' : '+';
    (void)tandem_quantity_print_bytes(text.unplanned + 1, sizeof text.unplanned - 1,
                                      (uint64_t)(more < 0 ? -more : more));
    return text;
}

static int print_compared_devices(const tandem_compare_result *compared)
{
    char bytes[2][TANDEM_QUANTITY_TEXT], wait[2][TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "device\t>memory predicted\t>allocated\t>resident\t>unplanned\t>idle "
                          "predicted\t>idle measured");
    for (int c = 0; c < compared->n_class; c++) {
        const tandem_compare_class *class = &compared->classes[c];
        const resident_text resident = print_resident(class);
        cli_table_row(&table, "%s\t%s%s\t%s\t%s\t%s\t%s\t%s", class->device,
                      tandem_quantity_print_bytes(bytes[0], sizeof bytes[0], class->predicted_peak_bytes),
                      class->predicted_peak_bytes == class->allocated_peak_bytes ? " =" : "",
                      tandem_quantity_print_bytes(bytes[1], sizeof bytes[1], class->allocated_peak_bytes),
                      resident.peak, resident.unplanned,
                      tandem_quantity_print_ns(wait[0], sizeof wait[0], class->predicted_wait_ns),
                      tandem_quantity_print_ns(wait[1], sizeof wait[1], class->measured_wait_ns));
    }
    return cli_table_finish(&table);
}

static void print_run_speed(const tandem_compare_speed *s)
{
    char text[256];
    if (!isfinite(s->error_at_run_speed)) return;
    (void)snprintf(text, sizeof text, "error %s (%s to %s)",
                   tandem_quantity_ratio(s->error_at_run_speed).text, tandem_quantity_ratio(s->low).text,
                   tandem_quantity_ratio(s->high).text);
    if (isnan(s->delay_share))
        (void)tandem_append(text, sizeof text, "; time taken by other processes is unavailable");
    else
        (void)tandem_append(text, sizeof text, "; other processes took %s of the time",
                            tandem_quantity_ratio(s->delay_share).text);
    if (isfinite(s->profile_noise))
        (void)tandem_append(text, sizeof text, "; two profiles differ by %s",
                            tandem_quantity_ratio(s->profile_noise).text);
    answer_line("at run's speed", "%s", text);
}

static void print_error_parts(const tandem_compare_result *compared, int details)
{
    const double measured_ns = (double)compared->measured_ns;
    if (compared->remeasured_ns)
        answer_line(
            "remeasured", "predicted %s from costs measured after the run; machine drift %s, error %s",
            tandem_quantity_ns(compared->remeasured_ns).text,
            tandem_quantity_ratio(tandem_compare_drift(compared)).text,
            tandem_quantity_ratio(((double)compared->remeasured_ns - measured_ns) / measured_ns).text);
    if (compared->resimulated_ns && details)
        answer_line("simulation", "%s with the task times of this run: error of the simulation alone %s",
                    tandem_quantity_ns(compared->resimulated_ns).text,
                    tandem_quantity_ratio(tandem_compare_simulation_error(compared)).text);
}

static void print_compare_answer(const comparison *c)
{
    char cluster[1024], verdict[256];
    const tandem_compare_result *compared = &c->result;
    tandem_cluster_print(cluster, sizeof cluster, &c->workload.cluster);
    if (isfinite(compared->steady.error_at_run_speed))
        answer_line("verdict", "%s",
                    tandem_compare_verdict_print(verdict, sizeof verdict, &compared->steady));
    answer_line("step", "predicted %s, measured %s (p10 %s, p90 %s, %lld steps): error %s",
                tandem_quantity_ns(compared->predicted_ns).text,
                tandem_quantity_ns(compared->measured_ns).text,
                tandem_quantity_ns(compared->measured_p10_ns).text,
                tandem_quantity_ns(compared->measured_p90_ns).text, (long long)compared->steps,
                tandem_quantity_ratio(compared->error).text);
    print_run_speed(&compared->steady);
    print_error_parts(compared, c->options->details);
    answer_extra_samples(&c->goodput);
    answer_line("run", "%s, %s, on %s", c->workload.graph[0]->model, compared->plan, cluster);
}

static int print_compare_text(const comparison *c)
{
    cli_progress_end();
    print_compare_answer(c);
    putchar('\n');
    int code = print_compared_devices(&c->result);
    if (code == 0 && c->options->per_operator)
        code = print_compared_operators(&c->result, c->workload.graph[0]);
    if (code == 0 && c->options->details) answer_extra_samples_details(&c->goodput);
    return code;
}

/* --- The command ------------------------------------------------------------------------------ */

/* Of the error at the speed of the run, where it is known: a machine that has moved is no fault of a
 * prediction. */
static int check_error_limit(const tandem_compare_result *compared, const cli_options *options)
{
    char text[TANDEM_QUANTITY_TEXT], limit[TANDEM_QUANTITY_TEXT];
    const int is_known = isfinite(compared->steady.error_at_run_speed);
    const double error = is_known ? compared->steady.error_at_run_speed : compared->error;
    if (options->limit < 0 || fabs(error) <= options->limit) return 0;
    return cli_fail_with(TANDEM_LIMIT_EXCEEDED, "the error %s%s exceeds the limit %s",
                         tandem_quantity_print_ratio(text, sizeof text, error),
                         is_known ? " at the speed of the run" : "",
                         tandem_quantity_print_ratio(limit, sizeof limit, options->limit));
}

static int write_compare_page(const comparison *c)
{
    tandem_error error = {0};
    report_page page = {0};
    tandem_status status = cli_report_add_result(&page, compare_result_json(c), "compare", &error);
    if (status == TANDEM_OK)
        status = cli_report_add_plan(&page, c->options, c->workload.plan, &c->workload.cluster,
                                     c->workload.graph[0], 1, &error);
    if (status == TANDEM_OK)
        status = cli_report_add_trace(&page, c->options->trace, "the measured step", &error);
    return cli_report_finish(&page, c->options, status, &error);
}

tandem_status cli_compare_goodput(tandem_goodput *goodput, const cli_options *options,
                                  const tandem_workload *workload, double samples_per_s, tandem_error *error)
{
    tandem_planner *planner = NULL;
    tandem_status status = cli_planner_open(&planner, options, workload, 1, error);
    if (status == TANDEM_OK) status = tandem_planner_goodput(goodput, planner, workload->plan, error);
    if (status == TANDEM_OK) tandem_goodput_set_rate(goodput, samples_per_s);
    tandem_planner_close(planner);
    return status;
}

static tandem_status make_compare_request(tandem_compare_request *request, const cli_options *options,
                                          tandem_error *error)
{
    *request = tandem_compare_request_default();
    const tandem_compare_request absent = *request;
    tandem_status status = cli_train_request(&request->train, options, error);
    if (options->steps < 0) request->train.steps = absent.train.steps;
    if (options->evaluate < 0) request->train.evaluate = absent.train.evaluate;
    request->train.log = request->train.checkpoint = NULL;
    request->remeasure = options->remeasure;
    request->per_task = options->per_operator;
    if (options->limit >= 0) request->tolerance = options->limit;
    if (status == TANDEM_OK && rank_place_from_environment(&request->train.place, error) < 0)
        status = error->status;
    return status;
}

static int print_comparison(const comparison *c)
{
    const int code = c->options->json ? cli_print_json(compare_result_json(c)) : print_compare_text(c);
    return code == 0 && c->options->report ? write_compare_page(c) : code;
}

static int compare_and_print(const cli_options *options, const tandem_compare_request *request)
{
    tandem_error error = {0};
    comparison c = {.options = options};
    const int rank = request->train.place.rank;
    tandem_status status = tandem_workload_open(&c.workload, &request->train.workload, &error);
    if (status == TANDEM_OK) status = tandem_compare(&c.result, request, &error);
    if (status == TANDEM_OK && rank == 0)
        status = cli_compare_goodput(&c.goodput, options, &c.workload, c.result.samples_per_s, &error);
    int code = status == TANDEM_OK ? 0 : cli_fail_on_rank(rank, &error);
    if (code == 0 && rank == 0) code = print_comparison(&c);
    if (code == 0 && rank == 0) code = check_error_limit(&c.result, options);
    tandem_compare_result_free(&c.result);
    tandem_workload_close(&c.workload);
    return code;
}

/* What only one of the two comparisons reads. */
static tandem_status check_comparison(const cli_options *options, tandem_error *error)
{
    static const int of_loss[] = {OPTION_AT_MOST, OPTION_BASE_PRECISION, OPTION_REPETITIONS, OPTION_RESUME,
                                  OPTION_INIT,    OPTION_EMULATE,        OPTION_END},
                     of_step[] = {OPTION_METHOD, OPTION_OPERATORS, OPTION_LIMIT,
                                  OPTION_REPORT, OPTION_REMEASURE, OPTION_END};
    const int *const wrong = options->measure_loss ? of_step : of_loss;
    for (int k = 0; wrong[k] != OPTION_END; k++)
        if (cli_option_given(options, wrong[k]))
            return tandem_error_set(error, TANDEM_USAGE, "--%s %s --measure-loss", cli_option_name(wrong[k]),
                                    options->measure_loss ? "does not go with" : "needs");
    return TANDEM_OK;
}

static int run_compare(const cli_options *given)
{
    char trace_path[SCRATCH_JSON];
    cli_options options = *given;
    tandem_error error = {0};
    tandem_compare_request request;
    tandem_status status = check_comparison(&options, &error);
    if (status == TANDEM_OK && options.measure_loss) return cli_compare_loss(&options);
    if (status == TANDEM_OK) status = cli_report_check(&options, &error);
    if (status == TANDEM_OK && options.report) {
        status = scratch_json_make(trace_path, &error);
        if (status == TANDEM_OK) options.trace = trace_path;
    }
    if (status == TANDEM_OK) status = make_compare_request(&request, &options, &error);
    const int code = status == TANDEM_OK ? compare_and_print(&options, &request) : cli_fail(&error);
    if (options.trace) scratch_file_remove(options.trace);
    return code;
}

static const int options[] = {OPTION_PLAN,         OPTION_MODEL,     OPTION_SET,
                              OPTION_LOSS,         OPTION_CLUSTER,   OPTION_DEVICE,
                              OPTION_THREADS,      OPTION_UNIFORM,   OPTION_BATCH,
                              OPTION_MEMORY,       OPTION_BUCKET,    OPTION_WIRE,
                              OPTION_STEPS,        OPTION_DATA,      OPTION_EVALUATE,
                              OPTION_SEED,         OPTION_TIMEOUT,   OPTION_METHOD,
                              OPTION_OPERATORS,    OPTION_LIMIT,     OPTION_REPORT,
                              OPTION_ACCUMULATE,   OPTION_RECOMPUTE, OPTION_CLIP,
                              OPTION_LOSS_SCALE,   OPTION_REMEASURE, OPTION_AMAX,
                              OPTION_DB,           OPTION_QUIET,     OPTION_DETAILS,
                              OPTION_MEASURE_LOSS, OPTION_AT_MOST,   OPTION_BASE_PRECISION,
                              OPTION_REPETITIONS,  OPTION_RATE,      OPTION_SCHEDULE,
                              OPTION_WARMUP,       OPTION_DECAY,     OPTION_NO_DECAY,
                              OPTION_MOMENTUM,     OPTION_BETAS,     OPTION_LABEL_SMOOTHING,
                              OPTION_RESUME,       OPTION_INIT,      OPTION_EMULATE,
                              OPTION_ERROR_SCALE,  OPTION_END};
const cli_command command_compare = {
    .name = "compare",
    .words = "",
    .summary = "Predicted and measured step of a plan; or its loss",
    .option = options,
    .joins_run = 1,
    .description =
        "Examples:\n"
        "  tandem compare --plan plan.json --steps 30\n"
        "  tandem compare --plan plan.json --steps 100 --data fashion-mnist --operators\n"
        "  tandem compare --model vit_tiny --cluster \"strongest + weakest\" --uniform fp32,int8 --limit "
        "10%\n"
        "  tandem compare --model vit_tiny --device cpu:avx2 --uniform random --seed 3          a mixed "
        "plan\n"
        "  tandem compare --model vit_tiny --device cpu:avx2 --batch 8 --accumulate 4 --recompute sqrt "
        "--clip 1\n"
        "  tandem compare --model resnet20 --device strongest --uniform int8_full --amax delayed:window=32\n"
        "  tandem compare --plan plan.json --measure-loss --at-most 2% --data fashion-mnist --lr 0.01\n"
        "The error is (predicted - measured) / measured. The measured step is the median of the steps [30]\n"
        "after two warm-up steps. The second error compares each step with its prediction at the speed that "
        "the\n"
        "machine had in it, without what others took. With --limit, the exit code is 1 if that error is "
        "larger.\n"
        "The verdict says whether the prediction is off or the machine has moved. Without --data, inputs are "
        "noise.\n"
        "The run is stored.\n"
        "--remeasure measures the plan's costs again after the run: it shows the drift since the profile.\n"
        "--measure-loss trains pairs of branches of --steps steps [200], in --base-precision [fp32] and\n"
        "under the plan, from --resume, --init or fresh weights (docs/trials.md). Devices that are not here\n"
        "are emulated. With --at-most, the exit code is 1 if the plan needs more. Trainings are stored.\n"
        "Over a network: run the same line for each rank, with RANK, WORLD_SIZE, TANDEM_STORE and "
        "TANDEM_IFACE\n"
        "set; rank 0 compares.",
    .run = run_compare,
};
