/* whatif.c: `tandem whatif`: a recorded step without its stragglers, and their causes. */
#include "tandem/advanced/whatif.h"

#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/table.h"
#include "cli/command/whatif.h"

enum { ROWS = 10 /* of the workers, unless -v is given */ };

static double time_ratio(int64_t a_ns, int64_t b_ns) { return b_ns > 0 ? (double)a_ns / (double)b_ns : 1; }

/* The share of the step that would be saved. */
static double step_reduction(const tandem_whatif *whatif, int64_t without_ns)
{
    return 1 - time_ratio(without_ns, whatif->step_ns);
}

/* --- For people ----------------------------------------------------------------------------------------- */

static void print_whatif_cause(const tandem_whatif *whatif)
{
    const tandem_whatif_cause *const cause = &whatif->cause;
    const double all = 100 * step_reduction(whatif, cause->without_ns),
                 one = 100 * step_reduction(whatif, cause->without_what_ns);
    const tandem_quantity step = tandem_quantity_ns(whatif->step_ns),
                          without = tandem_quantity_ns(cause->without_what_ns);
    if (whatif->step_ns <= whatif->ideal_ns)
        printf("No stragglers: the step is as short as the ideal one.\n");
    else if (cause->who[0] && cause->what[0])
        printf("Without the slow %s of %s the step would be %.1f%% shorter: %s instead of %s. "
               "Without all slow operators there: %.1f%%.\n",
               cause->what, cause->who, one, without.text, step.text, all);
    else if (cause->who[0] || cause->what[0])
        printf("Without the slow %s%s the step would be %.1f%% shorter: %s instead of %s.\n",
               cause->who[0] ? "operators of " : cause->what, cause->who, one, without.text, step.text);
    else
        printf("No single cause makes half of the slowdown: without any stragglers the step would "
               "be %.1f%% shorter.\n",
               all);
}

static int print_whatif_parts(const char *heading, const tandem_whatif_parts *parts,
                              const tandem_whatif *whatif, int max_rows)
{
    cli_table table = {0};
    if (parts->n == 0) return 0;
    cli_table_row(&table, "%s\t>ideal with it\t>slowdown\t>step without it\t>shorter by", heading);
    for (int k = 0; k < parts->n && k < max_rows; k++) {
        const tandem_whatif_part *const part = &parts->part[k];
        cli_table_row(&table, "%s\t%s\t%.4f\t%s\t%.2f%%", part->name, tandem_quantity_ns(part->with_ns).text,
                      time_ratio(part->with_ns, whatif->ideal_ns), tandem_quantity_ns(part->without_ns).text,
                      100 * step_reduction(whatif, part->without_ns));
    }
    putchar('\n');
    const int code = cli_table_finish(&table);
    if (parts->n > max_rows) printf("… and %d more (-v)\n", parts->n - max_rows);
    return code;
}

static int print_whatif_ranks(const tandem_whatif *whatif)
{
    cli_table table = {0};
    if (whatif->n_rank == 0) return 0;
    cli_table_row(&table, "rank\t>computes\t>exposed communication\t>waiting\t>idle");
    for (int k = 0; k < whatif->n_rank; k++) {
        const tandem_whatif_rank *const rank = &whatif->rank[k];
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%s", rank->name, tandem_quantity_ns(rank->busy_ns).text,
                      tandem_quantity_ns(rank->exposed_ns).text, tandem_quantity_ns(rank->wait_ns).text,
                      tandem_quantity_ns(rank->idle_ns).text);
    }
    putchar('\n');
    return cli_table_finish(&table);
}

/* The critical path: shares by operator type; with -v every operator. */
static int print_critical_path(const tandem_whatif *whatif, const cli_options *options)
{
    cli_table table = {0};
    if (whatif->n_critical == 0) return 0;
    printf("\nCritical path: %d operator%s", whatif->n_critical, whatif->n_critical == 1 ? "" : "s");
    for (int k = 0; k < whatif->by_operator.n; k++) {
        const char *const what = whatif->by_operator.part[k].name;
        int64_t sum_ns = 0;
        for (int i = 0; i < whatif->n_critical; i++)
            if (strcmp(whatif->critical_path[i].what, what) == 0)
                sum_ns += whatif->critical_path[i].end_ns - whatif->critical_path[i].start_ns;
        if (sum_ns > 0) printf(", %s %.1f%%", what, 100 * time_ratio(sum_ns, whatif->step_ns));
    }
    putchar('\n');
    if (!options->details) return 0;
    cli_table_row(&table, ">from\t>takes\twho\ttype\toperator");
    for (int i = 0; i < whatif->n_critical; i++) {
        const tandem_whatif_path_op *const path_op = &whatif->critical_path[i];
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%s", tandem_quantity_ns(path_op->start_ns).text,
                      tandem_quantity_ns(path_op->end_ns - path_op->start_ns).text, path_op->who,
                      path_op->what, path_op->name);
    }
    return cli_table_finish(&table);
}

static void print_whatif_steps(const tandem_whatif *whatif)
{
    const tandem_whatif_step *worst = whatif->step;
    for (int k = 1; k < whatif->n_step; k++)
        if (whatif->step[k].step_ns > worst->step_ns) worst = &whatif->step[k];
    printf("%d step%s of %d %s%s, %lld %s\n", whatif->n_step, whatif->n_step == 1 ? "" : "s",
           whatif->n_worker, whatif->n_rank ? "rank" : "worker", whatif->n_worker == 1 ? "" : "s",
           (long long)whatif->n_op, whatif->n_rank ? "tasks" : "operators");
    printf("step %s recorded, %s without unaccounted pauses, %s without stragglers: slowdown %.4f\n",
           whatif->recorded_ns > 0 ? tandem_quantity_ns(whatif->recorded_ns).text : "not",
           tandem_quantity_ns(whatif->step_ns).text, tandem_quantity_ns(whatif->ideal_ns).text,
           time_ratio(whatif->step_ns, whatif->ideal_ns));
    whatif_print_negative(whatif->n_negative);
    if (whatif->n_missing_control)
        printf("control dependencies on missing nodes, which do not count: %lld\n",
               (long long)whatif->n_missing_control);
    if (whatif->n_dropped_control)
        printf("control dependencies that contradict others, which decide: %lld\n",
               (long long)whatif->n_dropped_control);
    if (whatif->n_step > 1)
        printf("longest: step %lld, %s, slowdown %.4f\n", (long long)worst->number,
               tandem_quantity_ns(worst->step_ns).text, time_ratio(worst->step_ns, worst->ideal_ns));
}

static int print_whatif_text(const tandem_whatif *whatif, const cli_options *options)
{
    print_whatif_steps(whatif);
    print_whatif_cause(whatif);
    int code = print_critical_path(whatif, options);
    if (!code) code = print_whatif_ranks(whatif);
    if (!code) code = print_whatif_parts("stage", &whatif->by_stage, whatif, whatif->by_stage.n);
    if (!code)
        code = print_whatif_parts("operator type", &whatif->by_operator, whatif, whatif->by_operator.n);
    if (!code)
        code = print_whatif_parts("data-parallel rank", &whatif->by_dp_rank, whatif,
                                  options->details ? whatif->by_dp_rank.n : ROWS);
    if (!code)
        code = print_whatif_parts(whatif->n_rank ? "rank" : "worker", &whatif->by_worker, whatif,
                                  options->details ? whatif->by_worker.n : ROWS);
    return code;
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static json_t *whatif_parts_json(const tandem_whatif_parts *parts, const tandem_whatif *whatif)
{
    json_t *const rows = json_array();
    for (int k = 0; k < parts->n; k++) {
        const tandem_whatif_part *const part = &parts->part[k];
        json_array_append_new(rows, json_pack("{s:s,s:I,s:o,s:I,s:o}", "name", part->name, "with_ns",
                                              (json_int_t)part->with_ns, "slowdown",
                                              cli_json_number(time_ratio(part->with_ns, whatif->ideal_ns)),
                                              "without_ns", (json_int_t)part->without_ns, "gain",
                                              cli_json_number(step_reduction(whatif, part->without_ns))));
    }
    return rows;
}

static json_t *whatif_steps_json(const tandem_whatif *whatif)
{
    json_t *const steps = json_array();
    for (int k = 0; k < whatif->n_step; k++) {
        const tandem_whatif_step *const step = &whatif->step[k];
        json_array_append_new(steps, json_pack("{s:I,s:I,s:I,s:I,s:o}", "step", (json_int_t)step->number,
                                               "recorded_ns", (json_int_t)step->recorded_ns, "step_ns",
                                               (json_int_t)step->step_ns, "ideal_step_ns",
                                               (json_int_t)step->ideal_ns, "slowdown",
                                               cli_json_number(time_ratio(step->step_ns, step->ideal_ns))));
    }
    return steps;
}

static json_t *whatif_ranks_json(const tandem_whatif *whatif)
{
    json_t *const ranks = json_array();
    for (int k = 0; k < whatif->n_rank; k++) {
        const tandem_whatif_rank *const rank = &whatif->rank[k];
        json_array_append_new(
            ranks, json_pack("{s:s,s:I,s:I,s:I,s:I}", "name", rank->name, "busy_ns",
                             (json_int_t)rank->busy_ns, "exposed_comm_ns", (json_int_t)rank->exposed_ns,
                             "wait_ns", (json_int_t)rank->wait_ns, "idle_ns", (json_int_t)rank->idle_ns));
    }
    return ranks;
}

static json_t *critical_path_json(const tandem_whatif *whatif)
{
    json_t *const links = json_array();
    for (int k = 0; k < whatif->n_critical; k++) {
        const tandem_whatif_path_op *const path_op = &whatif->critical_path[k];
        json_array_append_new(links,
                              json_pack("{s:s,s:s,s:s,s:I,s:I}", "who", path_op->who, "what", path_op->what,
                                        "name", path_op->name, "start_ns", (json_int_t)path_op->start_ns,
                                        "end_ns", (json_int_t)path_op->end_ns));
    }
    return links;
}

static int print_whatif_json(const tandem_whatif *whatif)
{
    json_t *const object = cli_json_new("whatif");
    json_object_set_new(object, "recording",
                        json_string(whatif->n_critical ? "chakra"
                                    : whatif->n_rank   ? "tandem"
                                                       : "job"));
    json_object_set_new(object, "workers", json_integer(whatif->n_worker));
    json_object_set_new(object, "operators", json_integer(whatif->n_op));
    json_object_set_new(object, "negative_durations", json_integer(whatif->n_negative));
    json_object_set_new(object, "slowdown", cli_json_number(time_ratio(whatif->step_ns, whatif->ideal_ns)));
    json_object_set_new(object, "recorded_ns", json_integer(whatif->recorded_ns));
    json_object_set_new(object, "step_ns", json_integer(whatif->step_ns));
    json_object_set_new(object, "ideal_step_ns", json_integer(whatif->ideal_ns));
    json_object_set_new(object, "cause",
                        json_pack("{s:s,s:s,s:I,s:I,s:o}", "who", whatif->cause.who, "what",
                                  whatif->cause.what, "without_ns", (json_int_t)whatif->cause.without_ns,
                                  "without_what_ns", (json_int_t)whatif->cause.without_what_ns, "gain",
                                  cli_json_number(step_reduction(whatif, whatif->cause.without_ns))));
    json_object_set_new(object, "by_operator", whatif_parts_json(&whatif->by_operator, whatif));
    json_object_set_new(object, "by_stage", whatif_parts_json(&whatif->by_stage, whatif));
    json_object_set_new(object, "by_dp_rank", whatif_parts_json(&whatif->by_dp_rank, whatif));
    json_object_set_new(object, "by_worker", whatif_parts_json(&whatif->by_worker, whatif));
    if (whatif->n_rank) json_object_set_new(object, "ranks", whatif_ranks_json(whatif));
    if (whatif->n_critical) {
        json_object_set_new(object, "missing_control", json_integer(whatif->n_missing_control));
        json_object_set_new(object, "dropped_control", json_integer(whatif->n_dropped_control));
        json_object_set_new(object, "critical_path", critical_path_json(whatif));
    }
    json_object_set_new(object, "steps", whatif_steps_json(whatif));
    return cli_print_json(object);
}

/* --- The command ---------------------------------------------------------------------------------------- */

static tandem_status analyse_recording(tandem_whatif **whatif, tandem_trace_format format,
                                       const cli_options *options, tandem_error *error)
{
    tandem_pipeline_trace *pipeline = NULL;
    const char *const path = options->word[0];
    if (format == TANDEM_TRACE_FORMAT_CHAKRA)
        return tandem_whatif_chakra(whatif, options->word, options->n_word, options->trace, error);
    if (format == TANDEM_TRACE_FORMAT_STEP) return tandem_whatif_trace(whatif, path, options->trace, error);
    tandem_status status = tandem_pipeline_trace_read(&pipeline, path, error);
    if (status == TANDEM_OK) status = tandem_whatif_pipeline(whatif, pipeline, options->trace, error);
    tandem_pipeline_trace_close(pipeline);
    return status;
}

static int run_whatif(const cli_options *options)
{
    tandem_error error = {0};
    tandem_whatif *whatif = NULL;
    tandem_trace_format format = TANDEM_TRACE_FORMAT_PIPELINE_CSV;
    if (options->n_word == 0) return cli_fail_with(TANDEM_USAGE, "no trace given. Use tandem whatif TRACE");
    const size_t n = options->trace ? strlen(options->trace) : 0;
    if (n > 3 && strcmp(options->trace + n - 3, ".et") == 0)
        return cli_fail_with(TANDEM_USAGE, "--trace writes the step and its ideal as JSON, got '%s'",
                             options->trace);
    tandem_status status = tandem_trace_format_detect(&format, options->word[0], &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    if (format == TANDEM_TRACE_FORMAT_TORCH) return whatif_torch(options);
    if (options->n_word > 1 && format != TANDEM_TRACE_FORMAT_CHAKRA)
        return cli_fail_with(
            TANDEM_USAGE,
            "'%s' has all ranks and must be the only file. Several files, one per rank, come "
            "from the PyTorch profiler or Chakra",
            options->word[0]);
    status = analyse_recording(&whatif, format, options, &error);
    int code = 0;
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->json)
        code = print_whatif_json(whatif);
    else if (!options->trace || strcmp(options->trace, "-") != 0)
        code = print_whatif_text(whatif, options);
    tandem_whatif_close(whatif);
    return code;
}

static const int options[] = {OPTION_TRACE, OPTION_QUIET, OPTION_DETAILS, OPTION_END};
const cli_command command_whatif = {
    .name = "whatif",
    .words = "TRACE...",
    .summary = "A recorded step without its stragglers, and their causes",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem whatif trace.csv                        a pipeline-parallel job: stages, ranks, "
        "workers, operators\n"
        "  tandem whatif trace.csv.gz --trace ideal.json  also the step and its ideal as JSON for Perfetto\n"
        "  tandem whatif rank0.json.gz rank1.json.gz      PyTorch profiler traces, one file per rank\n"
        "  tandem whatif step.json                        a step of tandem train --trace or tandem "
        "replay --trace\n"
        "  tandem whatif step.0.et step.4.et              MLCommons Chakra traces, one file per rank\n"
        "An operator is slow if it takes longer than usual. Usual is the mean of its type in a job (the "
        "median for\n"
        "communication), the rank that computes least in a step of tandem, and the other ranks for PyTorch.\n"
        "'ideal with it' is the ideal step with only this part as recorded; 'step without it' is the "
        "recorded step\n"
        "with only this part ideal. -v lists all rows.\n"
        "Files may be compressed with gzip. Pipes and devices are rejected, and so are files that unpack "
        "to more\n"
        "than 16 MiB and more than 100 times their size. Durations from 0 down to -10 ms come from "
        "clocks that\n"
        "differ: they count as 0, and the result counts them.",
    .run = run_whatif,
};
