/* replay.c: `tandem replay`: simulates one training step with costs from the store. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/goodput.h"
#include "cli/prediction.h"
#include "cli/command/replay.h"
#include "cli/command/replay_memory.h"
#include "cli/table.h"

typedef struct remedy_list {
    tandem_remedy row[TANDEM_MAX_REMEDIES];
    int n;
} remedy_list;

typedef struct replay_context {
    const cli_options *options;
    const tandem_workload *workload;
    tandem_planner *planner;
    tandem_replayer *replayer; /* of the planner */
    tandem_goodput goodput;
    int has_sum; /* the planner has sensitivities */
    double sum;  /* of the operators' sensitivities: what the allocator bounds; NaN = not known */
    tandem_replay result;
    tandem_sharding sharding; /* of --zero */
    tandem_zero zero;         /* with --zero: source of the result */
    tandem_monte_carlo noise; /* with --simulations */
    int64_t *operator_ns;     /* with --operators: [n_op + N_REST][n_class], sums over the timeline */
    replay_timeline timeline[TANDEM_MAX_CLASS]; /* with --memory-timeline */
    remedy_list remedies[TANDEM_MAX_CLASS];     /* of classes over their limit */
} replay_context;

/* Rows after the operators: tasks without an operator. */
enum { REST_REDUCE, REST_NORM, REST_UPDATE, REST_WAIT, N_REST };
static const char *const rest_name[N_REST] = {"all-reduce", "norm", "optimizer", "idle"};

static const tandem_cluster_class *workload_class(const replay_context *r, int c)
{
    return &r->workload->cluster.classes[c];
}

static const tandem_memory *class_memory(const replay_context *r, int c)
{
    return r->options->zero ? &r->zero.memory[c] : tandem_replayer_memory(r->replayer, c);
}

static int is_class_over_limit(const replay_context *r, int c)
{
    const uint64_t limit = tandem_cluster_memory_limit(&r->workload->cluster, c);
    return limit > 0 && r->result.classes[c].peak_bytes > limit;
}

/* --- Operators -------------------------------------------------------------------------------- */

static int operator_row(const tandem_step *step, int task)
{
    const int n_op = step->graph->n_op;
    if (task < 0) return n_op + REST_WAIT;
    if (step->task[task].kind == TANDEM_TASK_REDUCE) return n_op + REST_REDUCE;
    if (step->task[task].kind == TANDEM_TASK_NORM) return n_op + REST_NORM;
    if (step->task[task].kind == TANDEM_TASK_UPDATE) return n_op + REST_UPDATE;
    return step->task[task].op;
}

static tandem_status sum_operator_times(replay_context *r, tandem_error *error)
{
    const int n_class = r->result.n_class, n_row = r->workload->graph[0]->n_op + N_REST;
    r->operator_ns = calloc((size_t)n_row * (size_t)n_class, sizeof *r->operator_ns);
    if (!r->operator_ns) return tandem_no_memory(error, "for the times of %d operators", n_row);
    for (int c = 0; c < n_class; c++) {
        int n_event = 0;
        const tandem_trace_event *event = tandem_replayer_events(r->replayer, c, &n_event);
        const tandem_step *step = tandem_replayer_step(r->replayer, c);
        for (int e = 0; e < n_event; e++)
            r->operator_ns[operator_row(step, event[e].task) * n_class + c] +=
                event[e].end_ns - event[e].start_ns;
    }
    return TANDEM_OK;
}

/* Name and kind of a row; NULL if no class spends time on it. */
static const char *operator_row_name(const replay_context *r, int row, const char **kind)
{
    const tandem_graph *graph = r->workload->graph[0];
    int64_t sum = 0;
    for (int c = 0; c < r->result.n_class; c++) sum += r->operator_ns[row * r->result.n_class + c];
    if (sum == 0) return NULL;
    if (row >= graph->n_op) return *kind = rest_name[row - graph->n_op];
    *kind = tandem_op_row_get(graph->op[row].kind)->name;
    return graph->op[row].name;
}

/* NULL for a row without a precision. */
static const char *operator_row_precision(const replay_context *r, int c, int row)
{
    const tandem_graph *graph = r->workload->graph[0];
    if (row >= graph->n_op || !tandem_op_is_adjustable(&graph->op[row])) return NULL;
    return tandem_precision_get(tandem_replayer_get(r->replayer, c, row))->name;
}

static json_t *replay_operators_json(const replay_context *r)
{
    json_t *rows = json_array();
    for (int row = 0; row < r->workload->graph[0]->n_op + N_REST; row++) {
        const char *kind = NULL, *name = operator_row_name(r, row, &kind);
        if (!name) continue;
        json_t *devices = json_array();
        for (int c = 0; c < r->result.n_class; c++)
            json_array_append_new(devices,
                                  json_pack("{s:s,s:s?,s:I}", "name", workload_class(r, c)->device.name,
                                            "precision", operator_row_precision(r, c, row), "ns",
                                            (json_int_t)r->operator_ns[row * r->result.n_class + c]));
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:o}", "operator", name, "kind", kind, "devices", devices));
    }
    return rows;
}

static int print_replay_operators(const replay_context *r)
{
    char line[1024] = "operator\tkind";
    cli_table table = {0};
    for (int c = 0; c < r->result.n_class; c++)
        (void)tandem_append(line, sizeof line, "\t\t>%s", workload_class(r, c)->device.name);
    cli_table_row(&table, "%s", line);
    for (int row = 0; row < r->workload->graph[0]->n_op + N_REST; row++) {
        const char *kind = NULL, *name = operator_row_name(r, row, &kind);
        if (!name) continue;
        (void)snprintf(line, sizeof line, "%s\t%s", name, kind);
        for (int c = 0; c < r->result.n_class; c++) {
            const char *precision = operator_row_precision(r, c, row);
            (void)tandem_append(line, sizeof line, "\t%s", precision ? precision : "");
            (void)tandem_append(line, sizeof line, "\t%s",
                                tandem_quantity_ns(r->operator_ns[row * r->result.n_class + c]).text);
        }
        cli_table_row(&table, "%s", line);
    }
    putchar('\n');
    return cli_table_finish(&table);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *memory_json(const tandem_memory *memory, const tandem_step *step)
{
    char peak[REPLAY_TASK_TEXT];
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:s}", "weights",
                     (json_int_t)memory->weights, "gradients", (json_int_t)memory->gradients, "optimizer",
                     (json_int_t)memory->optimizer, "histories", (json_int_t)memory->histories, "arena",
                     (json_int_t)memory->arena, "arena_live", (json_int_t)memory->arena_live, "activations",
                     (json_int_t)memory->activations, "activation_gradients",
                     (json_int_t)memory->activation_gradients, "weight_copies",
                     (json_int_t)memory->weight_copies, "workspace", (json_int_t)memory->workspace,
                     "weight_gradients", (json_int_t)memory->weight_gradients, "peak_task", memory->peak_task,
                     "peak_at", replay_task_print(peak, step, memory->peak_task));
}

static json_t *replay_devices_json(const replay_context *r)
{
    json_t *devices = json_array();
    for (int c = 0; c < r->result.n_class; c++) {
        const tandem_replay_class *class = &r->result.classes[c];
        const uint64_t limit = tandem_cluster_memory_limit(&r->workload->cluster, c);
        json_t *device = json_pack(
            "{s:s,s:i,s:I,s:I,s:I,s:I,s:o,s:o,s:b,s:o,s:o}", "name", workload_class(r, c)->device.name,
            "ranks", workload_class(r, c)->n_rank, "batch", (json_int_t)r->workload->graph[c]->batch,
            "busy_ns", (json_int_t) class->busy_ns, "exposed_comm_ns", (json_int_t) class->exposed_comm_ns,
            "wait_ns", (json_int_t) class->wait_ns, "peak_bytes", cli_peak_json(class->peak_bytes),
            "limit_bytes", limit ? json_integer((json_int_t)limit) : json_null(), "fits",
            !is_class_over_limit(r, c), "memory",
            memory_json(class_memory(r, c), tandem_replayer_step(r->replayer, c)), "costs",
            cli_provenance_json(r->replayer, c));
        if (r->options->per_task)
            json_object_set_new(device, "memory_timeline", replay_timeline_json(&r->timeline[c]));
        if (is_class_over_limit(r, c))
            json_object_set_new(
                device, "remedies",
                replay_remedies_json(r->remedies[c].row, r->remedies[c].n, class->peak_bytes));
        json_array_append_new(devices, device);
    }
    return devices;
}

static json_t *buckets_json(const replay_context *r)
{
    const tandem_step *step = tandem_replayer_step(r->replayer, 0);
    json_t *buckets = json_array();
    for (int b = 0; b < step->n_bucket; b++) {
        double idle_ns = 0, loaded_ns = 0;
        tandem_replayer_bucket_ns(r->replayer, b, &idle_ns, &loaded_ns);
        json_array_append_new(buckets,
                              json_pack("{s:I,s:s?,s:o,s:o}", "bytes",
                                        (json_int_t)(step->bucket[b].elements * (int64_t)sizeof(float)),
                                        "source", tandem_replayer_bucket_source(r->replayer, b), "idle_ns",
                                        cli_json_number(idle_ns), "loaded_ns", cli_json_number(loaded_ns)));
    }
    return buckets;
}

static json_t *allreduce_json(const replay_context *r)
{
    const tandem_allreduce_source *source = tandem_replayer_allreduce_source(r->replayer);
    return json_pack("{s:s,s:i,s:i,s:o,s:o,s:o,s:o}", "wire", tandem_dtype_name(r->workload->cluster.wire),
                     "points", source->n_point, "extrapolated", source->n_extrapolated, "latency_ns",
                     source->n_point ? cli_json_number(source->latency_ns) : json_null(), "bytes_per_s",
                     source->bytes_per_s > 0 ? cli_json_number(source->bytes_per_s) : json_null(), "spread",
                     source->n_point ? cli_json_number(source->spread) : json_null(), "buckets",
                     buckets_json(r));
}

/* step × (1 + sum), which `tandem allocate` bounds; NaN: the method has another unit than percent. */
static double replay_training_ns(const replay_context *r)
{
    const int is_percent = r->has_sum && cli_method_is_percent(tandem_planner_method(r->planner));
    return is_percent || r->sum == 0 ? (double)r->result.step_ns * (1 + r->sum / 100) : NAN;
}

static void print_replay_sum(const replay_context *r)
{
    const double training_ns = replay_training_ns(r);
    if (!(r->sum > 0)) return;
    const char *method = tandem_planner_method(r->planner);
    if (isfinite(training_ns))
        answer_line("sum", "%s (%s) over all operators; step x (1 + sum) %s",
                    goodput_sum(&r->goodput, method, r->sum).text, cli_method_text(method),
                    tandem_quantity_ns((int64_t)training_ns).text);
    else
        answer_line("sum", "%s (%s) over all operators", goodput_sum(&r->goodput, method, r->sum).text,
                    cli_method_text(method));
}

static int print_replay_json(const replay_context *r)
{
    char cluster[1024];
    tandem_cluster_print(cluster, sizeof cluster, &r->workload->cluster);
    json_t *result = cli_json_new("replay");
    json_object_set_new(result, "plan", json_string(r->workload->plan->name));
    json_object_set_new(result, "model", json_string(r->workload->graph[0]->model));
    json_object_set_new(result, "cluster", json_string(cluster));
    json_object_set_new(result, "step_ns", json_integer(r->result.step_ns));
    json_object_set_new(result, "samples_per_s", cli_json_number(r->goodput.samples_per_s));
    goodput_add_json(result, &r->goodput);
    json_object_set_new(result, "sensitivity_bound", cli_json_number(r->sum));
    json_object_set_new(result, "training_ns", cli_json_number(replay_training_ns(r)));
    json_object_set_new(result, "profile_interval",
                        cli_json_number(tandem_profile_interval(r->options->db, &r->workload->cluster)));
    json_object_set_new(result, "slowest", json_string(workload_class(r, r->result.slowest)->device.name));
    json_object_set_new(result, "devices", replay_devices_json(r));
    json_object_set_new(result, "all_reduce", allreduce_json(r));
    if (r->options->zero)
        json_object_set_new(result, "zero", replay_zero_json(&r->zero, &r->sharding, &r->workload->cluster));
    if (r->options->simulations)
        json_object_set_new(result, "simulations", replay_monte_carlo_json(&r->noise, r->options->seed));
    if (r->options->per_operator) json_object_set_new(result, "operators", replay_operators_json(r));
    return cli_print_json(result);
}

/* --- Text ------------------------------------------------------------------------------------- */

static int print_replay_devices(const replay_context *r)
{
    cli_table table = {0};
    cli_table_row(&table, "device\t>ranks\t>batch\t>busy\t>exposed comm\t>idle\t>memory");
    for (int c = 0; c < r->result.n_class; c++) {
        const tandem_replay_class *class = &r->result.classes[c];
        cli_table_row(&table, "%s\t%d\t%lld\t%s\t%s\t%s\t%s", workload_class(r, c)->device.name,
                      workload_class(r, c)->n_rank, (long long)r->workload->graph[c]->batch,
                      tandem_quantity_ns(class->busy_ns).text,
                      tandem_quantity_ns(class->exposed_comm_ns).text,
                      tandem_quantity_ns(class->wait_ns).text, CLI_PEAK_TEXT(class->peak_bytes));
    }
    return cli_table_finish(&table);
}

static void add_memory_row(cli_table *table, const replay_context *r, const char *name, size_t offset)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "%s", name);
    for (int c = 0; c < r->result.n_class; c++) {
        const char *memory = (const char *)class_memory(r, c);
        uint64_t value;
        memcpy(&value, memory + offset, sizeof value);
        (void)tandem_append(line, sizeof line, "\t%s", tandem_quantity_bytes(value).text);
    }
    cli_table_row(table, "%s", line);
}

static int print_replay_memory(const replay_context *r)
{
    char line[1024] = "memory of a rank";
    cli_table table = {0};
    for (int c = 0; c < r->result.n_class; c++)
        (void)tandem_append(line, sizeof line, "\t>%s", workload_class(r, c)->device.name);
    cli_table_row(&table, "%s", line);
    add_memory_row(&table, r, "weights", offsetof(tandem_memory, weights));
    add_memory_row(&table, r, "gradients", offsetof(tandem_memory, gradients));
    add_memory_row(&table, r, "optimizer state", offsetof(tandem_memory, optimizer));
    if (r->workload->plan->step.scaling.window > 0)
        add_memory_row(&table, r, "amax histories", offsetof(tandem_memory, histories));
    add_memory_row(&table, r, "arena", offsetof(tandem_memory, arena));
    add_memory_row(&table, r, "  of it alive at the peak", offsetof(tandem_memory, arena_live));
    add_memory_row(&table, r, "    activations", offsetof(tandem_memory, activations));
    add_memory_row(&table, r, "    their gradients", offsetof(tandem_memory, activation_gradients));
    add_memory_row(&table, r, "    weights in low precision", offsetof(tandem_memory, weight_copies));
    if (r->workload->plan->step.n_micro > 1)
        add_memory_row(&table, r, "    weights' of a micro-step", offsetof(tandem_memory, weight_gradients));
    add_memory_row(&table, r, "    workspace", offsetof(tandem_memory, workspace));
    (void)snprintf(line, sizeof line, "peak at");
    for (int c = 0; c < r->result.n_class; c++) {
        char task[REPLAY_TASK_TEXT];
        (void)tandem_append(line, sizeof line, "\t%s",
                            replay_task_print(task, tandem_replayer_step(r->replayer, c),
                                              tandem_replayer_memory(r->replayer, c)->peak_task));
    }
    cli_table_row(&table, "%s", line);
    putchar('\n');
    return cli_table_finish(&table);
}

static void print_replay_answer(const replay_context *r, double interval)
{
    char cluster[1024], rate[64] = "";
    tandem_time_sources sources;
    tandem_replayer_sources(r->replayer, &sources);
    tandem_cluster_print(cluster, sizeof cluster, &r->workload->cluster);
    if (isfinite(r->goodput.samples_per_s))
        (void)snprintf(rate, sizeof rate, ", %s samples/s",
                       tandem_quantity_plain(r->goodput.samples_per_s, 3).text);
    answer_line("step", "%s%s: %s, %s, on %s",
                tandem_quantity_ns_to(r->result.step_ns, cli_profile_interval_digits(interval)).text, rate,
                r->workload->graph[0]->model, r->workload->plan->name, cluster);
    answer_extra_samples(&r->goodput);
    print_replay_sum(r);
    answer_times(&sources, interval);
    if (r->options->zero) replay_zero_print(&r->zero, &r->sharding, &r->workload->cluster);
    if (r->options->simulations) replay_monte_carlo_print(&r->noise, r->options->seed);
}

static int print_replay_details(const replay_context *r)
{
    tandem_time_sources sources;
    tandem_replayer_sources(r->replayer, &sources);
    const int code = print_replay_memory(r);
    putchar('\n');
    answer_extra_samples_details(&r->goodput);
    answer_times_details(&sources);
    return code;
}

static int print_replay_text(const replay_context *r)
{
    print_replay_answer(r, tandem_profile_interval(r->options->db, &r->workload->cluster));
    putchar('\n');
    int code = print_replay_devices(r);
    if (code == 0 && r->options->details) code = print_replay_details(r);
    if (code == 0 && r->options->per_operator) code = print_replay_operators(r);
    for (int c = 0; c < r->result.n_class && code == 0 && r->options->per_task; c++)
        code = replay_timeline_print(&r->timeline[c], workload_class(r, c)->device.name);
    for (int c = 0; c < r->result.n_class && code == 0; c++)
        if (is_class_over_limit(r, c))
            code = replay_remedies_print(
                r->remedies[c].row, r->remedies[c].n, r->result.classes[c].peak_bytes,
                tandem_cluster_memory_limit(&r->workload->cluster, c), workload_class(r, c)->device.name);
    return code;
}

/* --- The command ------------------------------------------------------------------------------ */

/* Writes one rank per class, or all ranks. */
static tandem_status write_replay_trace(const replay_context *r, tandem_error *error)
{
    int n_rank = 0, n = 0, rank = 0;
    for (int c = 0; c < r->result.n_class; c++) n_rank += workload_class(r, c)->n_rank;
    tandem_trace_track *const track = calloc((size_t)n_rank + 1, sizeof *track);
    if (!track) return tandem_no_memory(error, "for the trace of %d ranks", n_rank);
    for (int c = 0; c < r->result.n_class; c++) {
        const int n_class_rank = workload_class(r, c)->n_rank;
        tandem_trace_track one = {.device = workload_class(r, c)->device.name,
                                  .made = cli_made(),
                                  .n_rank = r->options->all_ranks ? 1 : n_class_rank,
                                  .step = tandem_replayer_step(r->replayer, c),
                                  .workspace = tandem_replayer_workspace(r->replayer, c)};
        one.event = tandem_replayer_events(r->replayer, c, &one.n_event);
        for (one.rank = rank; one.rank < rank + n_class_rank; one.rank += one.n_rank) track[n++] = one;
        rank += n_class_rank;
    }
    const tandem_status status =
        tandem_trace_write(r->options->trace, r->workload->plan->name, track, n, error);
    free(track);
    return status;
}

static tandem_status explain_memory(replay_context *r, tandem_error *error)
{
    const tandem_request request = cli_planner_request(r->options);
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < r->result.n_class && status == TANDEM_OK; c++) {
        if (r->options->per_task) status = replay_timeline_open(&r->timeline[c], r->replayer, c, error);
        if (status == TANDEM_OK && is_class_over_limit(r, c))
            status = tandem_remedies_find(r->remedies[c].row, &r->remedies[c].n, &request, r->workload,
                                          r->options->zero ? &r->sharding : NULL, c,
                                          r->result.classes[c].peak_bytes, error);
    }
    return status;
}

static int needs_events(const cli_options *options) { return options->trace || options->per_operator; }

/* With sensitivities where the store has them: by the method of the plan, whose sum its bound is of. */
static tandem_status open_replay_planner(replay_context *r, tandem_error *error)
{
    cli_options options = *r->options;
    const char *method = r->workload->plan->method;
    if (!options.method && method[0]) options.method = method;
    const tandem_status status = cli_planner_open(&r->planner, &options, r->workload, 1, error);
    if (status == TANDEM_OK) r->has_sum = tandem_planner_load_sensitivities(r->planner, NULL) == TANDEM_OK;
    return status;
}

static int64_t replay_step_samples(const replay_context *r)
{
    return tandem_cluster_samples(&r->workload->plan->cluster, r->workload->plan->step.n_micro);
}

/* As a training would choose them. */
static tandem_status fit_replayed_shards(replay_context *r, tandem_error *error)
{
    tandem_shard_room room[TANDEM_MAX_CLASS];
    tandem_zero even;
    const tandem_cluster *cluster = &r->workload->cluster;
    const tandem_step *step = tandem_replayer_step(r->replayer, 0);
    const tandem_status status = tandem_replayer_zero(&even, r->replayer, &r->sharding, error);
    if (status != TANDEM_OK) return status;
    for (int c = 0; c < cluster->n_class; c++)
        room[c] = tandem_step_shard_room(step, &even.memory[c], tandem_cluster_memory_limit(cluster, c));
    return tandem_cluster_fit_shards(&r->sharding, cluster, room, tandem_step_state_bytes(step), error);
}

static tandem_status replay_plan(replay_context *r, tandem_error *error)
{
    const cli_options *options = r->options;
    tandem_status status = open_replay_planner(r, error);
    if (status != TANDEM_OK) return status;
    const tandem_allocation_problem *problem = tandem_planner_problem(r->planner);
    r->sum = r->has_sum ? tandem_sensitivity_value(problem, tandem_allocation_sensitivity(problem)) : NAN;
    r->replayer = tandem_planner_problem(r->planner)->replayer;
    status = tandem_planner_goodput(&r->goodput, r->planner, r->workload->plan, error);
    if (r->goodput.is_fp32 && !r->has_sum) r->sum = 0;
    if (status == TANDEM_OK)
        status = tandem_replayer_run(
            r->replayer, &r->result,
            TANDEM_REPLAY_MEMORY | (needs_events(options) ? TANDEM_REPLAY_EVENTS : 0u), error);
    if (status == TANDEM_OK && tandem_shards_fit(options->shards)) status = fit_replayed_shards(r, error);
    if (status == TANDEM_OK && options->zero) {
        status = tandem_replayer_zero(&r->zero, r->replayer, &r->sharding, error);
        r->result = r->zero.replay;
    }
    if (status == TANDEM_OK)
        tandem_goodput_set_rate(&r->goodput,
                                (double)replay_step_samples(r) / ((double)r->result.step_ns * 1e-9));
    if (status == TANDEM_OK && options->simulations)
        status = replay_monte_carlo(&r->noise, r->replayer, options, error);
    if (status == TANDEM_OK && options->per_operator) status = sum_operator_times(r, error);
    if (status == TANDEM_OK) status = explain_memory(r, error);
    if (status == TANDEM_OK && options->trace) status = write_replay_trace(r, error);
    return status;
}

/* The negative answer: a class runs out of memory. */
static int check_memory_limits(const replay_context *r)
{
    for (int c = 0; c < r->result.n_class; c++)
        if (is_class_over_limit(r, c))
            return cli_fail_with(
                TANDEM_INFEASIBLE,
                "the plan takes %s on %s, but the limit is %s. `tandem allocate` searches one that fits",
                tandem_quantity_bytes(r->result.classes[c].peak_bytes).text,
                workload_class(r, c)->device.name,
                tandem_quantity_bytes(tandem_cluster_memory_limit(&r->workload->cluster, c)).text);
    return 0;
}

static int run_replay(const cli_options *options)
{
    tandem_error error = {0};
    tandem_workload workload = {0};
    replay_context r = {.options = options, .workload = &workload};
    if (options->all_ranks && !options->trace)
        return cli_fail_with(TANDEM_USAGE, "--all-ranks needs --trace FILE");
    if (options->zero && (needs_events(options) || options->simulations || options->per_task))
        return cli_fail_with(
            TANDEM_USAGE,
            "--zero computes only totals. Leave out --trace, --operators, --memory-timeline and "
            "--simulations");
    if (options->zero && options->step.n_micro > 1)
        return cli_fail_with(TANDEM_USAGE, "--zero has one batch per step. Leave out --accumulate");
    if (options->time_spread >= 0 && !options->simulations)
        return cli_fail_with(TANDEM_USAGE, "--time-spread needs --simulations, e.g. --simulations 100");
    if (cli_option_given(options, OPTION_SEED) && !options->simulations &&
        !(options->uniform && strstr(options->uniform, "random")))
        return cli_fail_with(TANDEM_USAGE, "--seed needs --simulations N or --uniform random");
    tandem_status status = cli_workload_open(&workload, options, &error);
    if (status == TANDEM_OK && workload.lacking[0]) cli_note(options, "%s", workload.lacking);
    if (status == TANDEM_OK)
        status = tandem_cluster_shard(&r.sharding, &workload.cluster, options->zero, options->shards, &error);
    if (status == TANDEM_OK) status = replay_plan(&r, &error);
    int code;
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->trace && strcmp(options->trace, "-") == 0)
        code = 0; /* standard output holds the trace */
    else
        code = options->json ? print_replay_json(&r) : print_replay_text(&r);
    if (code == 0) code = check_memory_limits(&r);
    free(r.operator_ns);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) replay_timeline_close(&r.timeline[c]);
    tandem_planner_close(r.planner);
    tandem_workload_close(&workload);
    return code;
}

static const int options[] = {OPTION_PLAN,
                              OPTION_MODEL,
                              OPTION_SET,
                              OPTION_LOSS,
                              OPTION_CLUSTER,
                              OPTION_DEVICE,
                              OPTION_UNIFORM,
                              OPTION_BATCH,
                              OPTION_MEMORY,
                              OPTION_BUCKET,
                              OPTION_COLLECTIVE,
                              OPTION_WIRE,
                              OPTION_PREDICT,
                              OPTION_FROM_DESCRIPTION,
                              OPTION_KERNELS,
                              OPTION_WITHOUT_UPDATE,
                              OPTION_OPERATORS,
                              OPTION_TRACE,
                              OPTION_ALL_RANKS,
                              OPTION_ACCUMULATE,
                              OPTION_RECOMPUTE,
                              OPTION_AMAX,
                              OPTION_CLIP,
                              OPTION_LOSS_SCALE,
                              OPTION_MEMORY_TIMELINE,
                              OPTION_SIMULATIONS,
                              OPTION_TIME_SPREAD,
                              OPTION_SEED,
                              OPTION_ZERO,
                              OPTION_SHARDS,
                              OPTION_DB,
                              OPTION_QUIET,
                              OPTION_DETAILS,
                              OPTION_END};
const cli_command command_replay = {
    .name = "replay",
    .words = "",
    .summary = "Simulate a step from measured costs: time, waits, memory; runs no kernel",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem replay --plan plan.json --trace step.json\n"
        "  tandem replay --plan plan.json --trace step.et --all-ranks   MLCommons Chakra traces: "
        "step.0.et, ...\n"
        "  tandem replay --model vit_tiny --cluster \"strongest + weakest\" --uniform fp32,int8 --details\n"
        "  tandem replay --model vit_tiny --cluster \"8*cpu:avx2@1 net=10Gbit/s,20us\" --operators\n"
        "  tandem replay --model resnet50 --batch 32 --cluster \"8*v100@8 + 8*t4@8 net=100Gbit/s,5us\" "
        "--predict\n"
        "  tandem replay --model resnet20 --device strongest --uniform int8 --amax delayed\n"
        "  tandem replay --model vit_tiny --batch 8 --device cpu:avx2 --accumulate 4 --recompute sqrt "
        "--memory-timeline\n"
        "  tandem replay --model vit_tiny --device cpu:avx2 --clip 1            updates wait for the "
        "gradient norm\n"
        "  tandem replay --model resnet50 --cluster \"16*a100@8 link=600GB/s,1us net=9GB/s,5us\" "
        "--predict --collective auto\n"
        "  tandem replay --model resnet50 --batch 32 --cluster \"16*t4@8 net=100Gbit/s,5us "
        "slow=1.1@rank3\" --predict\n"
        "  tandem replay --model resnet50 --cluster \"32*t4@8 net=100Gbit/s,5us\" --predict "
        "--simulations 200 --time-spread 5%\n"
        "  tandem replay --model bert_base --cluster \"8*t4@8 net=100Gbit/s,5us\" --predict --zero 3 "
        "--details\n"
        "Costs come from the store; those of other batches are interpolated. If a cost is missing, the "
        "exit code is\n"
        "4, and the error names the `tandem profile` that measures it. With --predict, missing costs "
        "come from\n"
        "other operators of the device or from its description. The result counts unmeasured costs.\n"
        "link= is between two devices of a class in a node, node= within a node, net= between nodes. "
        "slow= makes\n"
        "ranks slower than their device. --simulations N draws the time of each task on each rank from "
        "what was\n"
        "measured; each step waits for the slowest rank. --zero 1, 2 or 3 shards the training state; on\n"
        "CPUs `tandem train` runs stage 1.\n"
        "--details adds memory by category and where times come from, --memory-timeline memory at each task. "
        "For a plan over a memory limit\n"
        "(--memory 12GiB): the deficit, what recomputation, micro-steps, precisions and batches would "
        "save, and\n"
        "exit code 1.",
    .run = run_replay,
};
