/* train.c: `tandem train`: trains under a plan, and prints how it went. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/quantity.h"
#include "cli/report_files.h"
#include "runtime/train/run_steadiness.h"

enum { MAX_TRACE = 1 << 30 };

/* --- JSON ----------------------------------------------------------------------------------------------- */

static json_t *steadiness_json(const run_steadiness *run)
{
    json_t *steps = json_array(), *compute = json_array(), *memory = json_array(), *delays = json_array();
    for (int k = 0; k < run->n_step; k++) {
        json_array_append_new(steps, json_integer(run->step_ns[k]));
        json_array_append_new(compute, json_integer(run->speed_sample[k].compute_ns));
        json_array_append_new(memory, json_integer(run->speed_sample[k].memory_ns));
    }
    for (int k = 0; k < run->n_delay; k++)
        json_array_append_new(delays, json_pack("[i,i,I]", (int)run->delay[k].step, (int)run->delay[k].task,
                                                (json_int_t)run->delay[k].ns));
    if (!run->is_delay_known) {
        json_decref(delays);
        delays = json_null();
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "steps_ns", steps, "compute_speed_sample_ns", compute,
                     "memory_speed_sample_ns", memory, "delays", delays, "speed_sample_share",
                     cli_json_number(run->speed_sample_share));
}

static json_t *train_rank_json(const tandem_train_result *result, int r)
{
    const tandem_rank_report *rank = &result->rank[r];
    json_t *row = json_pack(
        "{s:i,s:s,s:I,s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:o}", "rank", r, "device", rank->device, "batch",
        (json_int_t)rank->batch, "step_ns", (json_int_t)rank->period_ns, "wait_ns", (json_int_t)rank->wait_ns,
        "undisturbed_ns", cli_json_known_integer(rank->undisturbed_ns), "busy_ns",
        cli_json_known_integer(rank->busy_ns), "planned_bytes", (json_int_t)rank->planned_bytes,
        "allocated_bytes", (json_int_t)rank->allocated_bytes, "evaluation_bytes",
        (json_int_t)rank->evaluation_bytes, "resident_bytes", cli_json_known_integer(rank->resident_bytes));
    json_object_set_new(row, "steadiness", steadiness_json(&result->steadiness[r]));
    json_t *tasks = result->n_task ? json_array() : NULL;
    for (int k = 0; k < result->n_task; k++)
        json_array_append_new(tasks, json_integer(result->task_ns[r * result->n_task + k]));
    if (tasks) json_object_set_new(row, "task_ns", tasks);
    return row;
}

static json_t *train_operators_json(const tandem_train_result *result, const tandem_graph *graph)
{
    json_t *operators = json_array();
    for (int k = 0; k < result->n_task; k++) {
        const tandem_train_task *task = &result->task[k];
        if (!task->is_active || tandem_task_is_collective(task->kind) || !result->n_timed) continue;
        json_array_append_new(operators, json_pack("{s:i,s:s,s:s,s:I,s:I}", "task", k, "operator",
                                                   task->op >= 0 ? graph->op[task->op].name : "", "kind",
                                                   tandem_task_kind_name((tandem_task_kind)task->kind),
                                                   "start_ns", (json_int_t)task->start_ns, "measured_ns",
                                                   (json_int_t)result->task_ns[k]));
    }
    return operators;
}

static json_t *evaluations_json(const tandem_train_result *result)
{
    json_t *evaluations = json_array();
    for (int k = 0; k < result->n_evaluation; k++) {
        const tandem_train_evaluation *e = &result->evaluation[k];
        json_array_append_new(evaluations,
                              json_pack("{s:I,s:o,s:o,s:o}", "step", (json_int_t)e->step, "accuracy",
                                        cli_json_number(e->accuracy), "loss", cli_json_number(e->loss),
                                        "loss_error", cli_json_number(e->loss_error)));
    }
    return evaluations;
}

static json_t *train_zero_json(const tandem_sharding *sharding)
{
    return sharding->stage
               ? json_pack("{s:i,s:o}", "stage", sharding->stage, "shares", cli_json_shares(sharding))
               : json_null();
}

/* graph: NULL without --operators. */
static json_t *train_result_json(const tandem_train_result *result, const cli_options *options,
                                 const tandem_graph *graph)
{
    json_t *loss = json_array(), *ranks = json_array();
    for (int64_t i = 0; i < result->steps; i++) json_array_append_new(loss, cli_json_number(result->loss[i]));
    for (int r = 0; r < result->n_rank; r++) json_array_append_new(ranks, train_rank_json(result, r));
    const int64_t step_ns = options->emulate ? -1 : result->rank[0].period_ns;
    json_t *object = cli_json_new("train");
    json_object_set_new(object, "plan", json_string(result->plan));
    json_object_set_new(object, "model", json_string(result->model));
    json_object_set_new(object, "emulated", json_boolean(options->emulate != NULL));
    json_object_set_new(object, "formats",
                        options->emulate && *options->emulate ? json_string(options->emulate) : json_null());
    json_object_set_new(object, "zero", train_zero_json(&result->sharding));
    json_object_set_new(object, "steps", json_integer(result->steps));
    json_object_set_new(object, "resumed_at", json_integer(result->resumed_at));
    json_object_set_new(object, "loss", loss);
    json_object_set_new(object, "accuracy", cli_json_number(result->accuracy));
    json_object_set_new(object, "evaluations", evaluations_json(result));
    if (result->estimates) json_object_set_new(object, "estimates", json_loads(result->estimates, 0, NULL));
    json_object_set_new(object, "samples_per_s", cli_json_number(result->samples_per_s));
    json_object_set_new(object, "step_ns", cli_json_known_integer(step_ns));
    json_object_set_new(object, "step_p10_ns", json_integer(result->rank[0].p10_ns));
    json_object_set_new(object, "step_p90_ns", json_integer(result->rank[0].p90_ns));
    json_object_set_new(object, "ranks", ranks);
    if (graph) json_object_set_new(object, "operators", train_operators_json(result, graph));
    return object;
}

/* --- Text ----------------------------------------------------------------------------------------------- */

static void print_train_rank(const tandem_train_result *result, int r)
{
    tandem_quantity step = {"-"}, wait = {"-"}, resident = {"-"};
    const tandem_rank_report *rank = &result->rank[r];
    if (result->n_timed > 0) {
        step = tandem_quantity_ns(rank->period_ns);
        wait = tandem_quantity_ns(rank->wait_ns);
    }
    if (rank->resident_bytes >= 0) resident = tandem_quantity_bytes((uint64_t)rank->resident_bytes);
    printf("%-6d %-18s %12s %12s %12s %12s\n", r, rank->device, step.text, wait.text,
           tandem_quantity_bytes(rank->allocated_bytes).text, resident.text);
}

static int print_train_text(const tandem_train_result *result, const cli_options *options)
{
    cli_progress_end();
    printf("%s, %s\n", result->model, result->plan);
    printf("%-6s %-18s %12s %12s %12s %12s\n", "rank", "device", "step", "idle", "memory", "resident");
    for (int r = 0; r < result->n_rank; r++) print_train_rank(result, r);
    printf("loss %.4f after step %lld, %.4f after step %lld", result->loss[0],
           (long long)result->resumed_at + 1, result->loss[result->steps - 1],
           (long long)(result->resumed_at + result->steps));
    if (result->n_timed > 0)
        printf("; %.1f samples/s", result->samples_per_s);
    else if (options->emulate)
        printf("; emulated, so it has no times");
    else
        printf("; no times: the first %d steps are warm-up", WARM_UP_STEPS);
    if (isfinite(result->accuracy)) printf("; accuracy %.1f%%", 100 * result->accuracy);
    putchar('\n');
    return 0;
}

/* --- The command ---------------------------------------------------------------------------------------- */

static int write_train_page(const tandem_train_result *result, const cli_options *options,
                            const tandem_workload *workload)
{
    tandem_error error = {0};
    report_page page = {0};
    const tandem_graph *const graph = options->per_operator ? workload->graph[0] : NULL;
    tandem_status status =
        cli_report_add_result(&page, train_result_json(result, options, graph), "train", &error);
    if (status == TANDEM_OK)
        status = cli_report_add_plan(&page, options, workload->plan, &workload->cluster, workload->graph[0],
                                     0, &error);
    if (status == TANDEM_OK && options->trace && strcmp(options->trace, "-") != 0)
        status = cli_report_add_trace(&page, options->trace, "the last step", &error);
    return cli_report_finish(&page, options, status, &error);
}

/* What is printed and drawn after a run. */
static int print_training(const tandem_train_result *result, const cli_options *options,
                          const tandem_workload *workload)
{
    const tandem_graph *const graph = options->per_operator ? workload->graph[0] : NULL;
    const int code = options->json ? cli_print_json(train_result_json(result, options, graph))
                                   : print_train_text(result, options);
    return code == 0 && options->report ? write_train_page(result, options, workload) : code;
}

/* Standard output then holds the trace alone. */
static int print_trace_file(const char *path)
{
    tandem_error error = {0};
    char *bytes = NULL;
    size_t n = 0;
    if (tandem_file_read(&bytes, &n, path, MAX_TRACE, &error) != TANDEM_OK) return cli_fail(&error);
    const int is_written = fwrite(bytes, 1, n, stdout) == n;
    free(bytes);
    return is_written ? 0 : cli_fail_with(TANDEM_IO, "cannot write the trace to standard output");
}

static int trains_to_standard_output(const cli_options *options)
{
    return options->trace && strcmp(options->trace, "-") == 0;
}

/* Joins the run of a launcher, or starts one. */
static int train_and_print(const cli_options *options, const tandem_train_request *request)
{
    tandem_error error = {0};
    tandem_workload workload = {0};
    tandem_train_result result = {.n_rank = 0};
    const int rank = request->place.n_rank ? request->place.rank : 0;
    if (cli_workload_open(&workload, options, &error) != TANDEM_OK) return cli_fail(&error);
    if (rank == 0) cli_note_unproven_bound(options, workload.plan);
    const tandem_status status = tandem_train(&result, request, &error);
    int code = status == TANDEM_OK ? 0 : cli_fail_on_rank(rank, &error);
    if (code == 0 && rank == 0)
        code = trains_to_standard_output(options) ? print_trace_file(request->trace)
                                                  : print_training(&result, options, &workload);
    tandem_train_result_free(&result);
    tandem_workload_close(&workload);
    return code;
}

static int run_train(const cli_options *given)
{
    cli_options options = *given;
    tandem_train_request request;
    tandem_error error = {0};
    /* a plan of the launcher, e.g. a job scheduler */
    const char *planned = getenv("TANDEM_PLAN");
    if (!options.plan && !options.model && planned && *planned) options.plan = planned;
    tandem_status status = cli_train_request(&request, &options, &error);
    if (status == TANDEM_OK && rank_place_from_environment(&request.place, &error) < 0) status = error.status;
    if (status == TANDEM_OK) status = cli_report_check(&options, &error);
    char trace_path[SCRATCH_JSON] = "";
    if (status == TANDEM_OK && trains_to_standard_output(&options)) { /* of ranks, it is not ours */
        status = scratch_json_make(trace_path, &error);
        request.trace = trace_path;
    }
    const int code = status == TANDEM_OK ? train_and_print(&options, &request) : cli_fail(&error);
    if (*trace_path) scratch_file_remove(trace_path);
    return code;
}

static const int options[] = {OPTION_PLAN,
                              OPTION_MODEL,
                              OPTION_SET,
                              OPTION_LOSS,
                              OPTION_CLUSTER,
                              OPTION_DEVICE,
                              OPTION_THREADS,
                              OPTION_UNIFORM,
                              OPTION_BATCH,
                              OPTION_DATA,
                              OPTION_SEED,
                              OPTION_STEPS,
                              OPTION_EVALUATE,
                              OPTION_MEMORY,
                              OPTION_BUCKET,
                              OPTION_WIRE,
                              OPTION_ZERO,
                              OPTION_SHARDS,
                              OPTION_TIMEOUT,
                              OPTION_OPERATORS,
                              OPTION_TRACE,
                              OPTION_RATE,
                              OPTION_SCHEDULE,
                              OPTION_WARMUP,
                              OPTION_DECAY,
                              OPTION_MOMENTUM,
                              OPTION_BETAS,
                              OPTION_ALLOW_NAN,
                              OPTION_LOG,
                              OPTION_EVALUATE_EVERY,
                              OPTION_CHECKPOINT,
                              OPTION_CHECKPOINT_EVERY,
                              OPTION_RESUME,
                              OPTION_REESTIMATE,
                              OPTION_MAX_SENSITIVITY,
                              OPTION_NO_DECAY,
                              OPTION_CLIP,
                              OPTION_LABEL_SMOOTHING,
                              OPTION_LOSS_SCALE,
                              OPTION_INIT,
                              OPTION_EXPORT,
                              OPTION_ACCUMULATE,
                              OPTION_RECOMPUTE,
                              OPTION_AMAX,
                              OPTION_DB,
                              OPTION_QUIET,
                              OPTION_REPORT,
                              OPTION_EMULATE,
                              OPTION_ERROR_SCALE,
                              OPTION_DATA_SEED,
                              OPTION_ROUNDING_SEED,
                              OPTION_END};
const cli_command command_train = {
    .name = "train",
    .words = "",
    .summary = "Train under a plan: start local ranks, or join a run",
    .option = options,
    .joins_run = 1,
    .description =
        "Examples:\n"
        "  tandem train --model vit_tiny --cluster \"cpu:avx2 + cpu:sse41\" --data fashion-mnist --steps "
        "100\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 100 --trace step.json\n"
        "  tandem train --model mlp --device cpu:sse41 --uniform int8 --data fashion-mnist --steps 50\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 5000 --lr 1e-3 --schedule cosine \\\n"
        "    --warmup 200 --checkpoint run.ckpt --checkpoint-every 500 --log run.jsonl --eval-every 500\n"
        "  tandem train --model vit_tiny:dropout=0.1 --device cpu:avx2 --data fashion-mnist --clip 1 \\\n"
        "    --label-smoothing 0.1 --init begin.safetensors --export end.safetensors\n"
        "  tandem train --model vit_tiny --device cpu:avx2 --batch 8 --accumulate 16 --recompute sqrt "
        "--data fashion-mnist\n"
        "  tandem train --model resnet20 --device strongest --uniform int8 --amax delayed --data "
        "fashion-mnist\n"
        "  tandem train --plan plan.json --data fashion-mnist --steps 60000 --reestimate "
        "--max-sensitivity 2%\n"
        "A run with --checkpoint run.ckpt continues from there with --resume run.ckpt, with the same bits.\n"
        "Learning rate of step s = 0, 1, ... of N steps with W warm-up steps and peak rate r:\n"
        "  warm-up  r (s+1)/W;  linear  r (N-s)/(N-W);  cosine  r/2 (1 + cos(pi (s-W)/(N-W)));\n"
        "  step  r, r/10 from N/2 on, r/100 from 3N/4 on.\n"
        "--accumulate N takes N batches of every rank per step and updates once, with the mean gradient.\n"
        "--recompute drops activations and computes them again: less memory, the same bits, more time.\n"
        "--amax delayed takes the range of a cast to int8 from the last 16 casts of the same tensor, in "
        "one pass\n"
        "instead of two. delayed:window=N,margin=M uses 2^M times the largest of the last N. Larger "
        "values clamp.\n"
        "On several machines, for each rank: RANK=r WORLD_SIZE=n TANDEM_STORE=/shared/fresh/dir tandem "
        "train ...\n"
        "LOCAL_RANK selects the core. Without --data, inputs are noise, good only for timing. If a rank "
        "fails, the\n"
        "others stop with exit code 6. If the loss or a gradient is not finite, all stop with exit code 1.",
    .run = run_train,
};
