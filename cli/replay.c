/* replay.c: `tandem replay`: simulates one training step from what the store holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/replay_memory.h"
#include "cli/table.h"

typedef struct remedies {
    replay_remedy row[REPLAY_MOST_REMEDIES];
    int n;
} remedies;

typedef struct replaying {
    const cli_options *options;
    const cli_subject *subject;
    tandem_planner *planner;
    tandem_replayer *replayer; /* the planner's */
    tandem_replay result;
    int64_t *operator_ns; /* with --operators: [n_op + N_REST][n_class], of the timeline */
    replay_timeline timeline[TANDEM_MAX_CLASS]; /* with --memory-timeline */
    remedies remedies[TANDEM_MAX_CLASS];        /* of classes over their limit */
} replaying;

/* Rows behind the operators: what belongs to none of them. */
enum { REST_REDUCE, REST_UPDATE, REST_WAIT, N_REST };
static const char *const rest_name[N_REST] = {"all-reduce", "optimizer", "waiting"};

static const tandem_cluster_class *member_of(const replaying *r, int c)
{
    return &r->subject->cluster.member[c];
}

static int over_limit(const replaying *r, int c)
{
    const uint64_t limit = tandem_cluster_limit_bytes(&r->subject->cluster, c);
    return limit > 0 && r->result.member[c].peak_bytes > limit;
}

/* --- Operators -------------------------------------------------------------------------------- */

static int row_of(const tandem_step *step, int task)
{
    const int n_op = step->graph->n_op;
    if (task < 0) return n_op + REST_WAIT;
    if (step->task[task].kind == TANDEM_TASK_REDUCE) return n_op + REST_REDUCE;
    if (step->task[task].kind == TANDEM_TASK_UPDATE) return n_op + REST_UPDATE;
    return step->task[task].op;
}

static tandem_status sum_operators(replaying *r, tandem_error *error)
{
    const int n_class = r->result.n_class, n_row = r->subject->graph[0]->n_op + N_REST;
    r->operator_ns = calloc((size_t)n_row * (size_t)n_class, sizeof *r->operator_ns);
    if (!r->operator_ns)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for the times of %d operators", n_row);
    for (int c = 0; c < n_class; c++) {
        int n_event = 0;
        const tandem_trace_event *event = tandem_replayer_events(r->replayer, c, &n_event);
        const tandem_step *step = tandem_replayer_step(r->replayer, c);
        for (int e = 0; e < n_event; e++)
            r->operator_ns[row_of(step, event[e].task) * n_class + c] += event[e].end_ns - event[e].start_ns;
    }
    return TANDEM_OK;
}

/* Name and kind of a row; NULL where no class spends time on it. */
static const char *row_name(const replaying *r, int row, const char **kind)
{
    const tandem_graph *graph = r->subject->graph[0];
    int64_t sum = 0;
    for (int c = 0; c < r->result.n_class; c++) sum += r->operator_ns[row * r->result.n_class + c];
    if (sum == 0) return NULL;
    if (row >= graph->n_op) return *kind = rest_name[row - graph->n_op];
    *kind = tandem_op_row_get(graph->op[row].kind)->name;
    return graph->op[row].name;
}

/* NULL where the row carries none. */
static const char *row_precision(const replaying *r, int c, int row)
{
    const tandem_graph *graph = r->subject->graph[0];
    if (row >= graph->n_op || tandem_op_row_get(graph->op[row].kind)->op_class != TANDEM_ADJUSTABLE)
        return NULL;
    return tandem_precision_get(tandem_replayer_get(r->replayer, c, row))->name;
}

static json_t *operators_json(const replaying *r)
{
    json_t *rows = json_array();
    for (int row = 0; row < r->subject->graph[0]->n_op + N_REST; row++) {
        const char *kind = NULL, *name = row_name(r, row, &kind);
        if (!name) continue;
        json_t *devices = json_array();
        for (int c = 0; c < r->result.n_class; c++)
            json_array_append_new(devices, json_pack("{s:s,s:s?,s:I}", "name", member_of(r, c)->device.name,
                                                     "precision", row_precision(r, c, row), "ns",
                                                     (json_int_t)r->operator_ns[row * r->result.n_class + c]));
        json_array_append_new(rows, json_pack("{s:s,s:s,s:o}", "operator", name, "kind", kind, "devices", devices));
    }
    return rows;
}

static void append(char *line, size_t size, const char *a, const char *b)
{
    const size_t used = strlen(line);
    (void)snprintf(line + used, size - used, "%s%s", a, b);
}

static int print_operators(const replaying *r)
{
    char line[1024] = "operator\tkind", time[TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    for (int c = 0; c < r->result.n_class; c++)
        append(line, sizeof line, "\t\t>", member_of(r, c)->device.name);
    cli_table_row(&table, "%s", line);
    for (int row = 0; row < r->subject->graph[0]->n_op + N_REST; row++) {
        const char *kind = NULL, *name = row_name(r, row, &kind);
        if (!name) continue;
        (void)snprintf(line, sizeof line, "%s\t%s", name, kind);
        for (int c = 0; c < r->result.n_class; c++) {
            const char *precision = row_precision(r, c, row);
            append(line, sizeof line, "\t", precision ? precision : "");
            append(line, sizeof line, "\t",
                   tandem_quantity_print_ns(time, sizeof time, r->operator_ns[row * r->result.n_class + c]));
        }
        cli_table_row(&table, "%s", line);
    }
    putchar('\n');
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *memory_json(const tandem_memory *memory, const tandem_step *step)
{
    char peak[REPLAY_TASK_TEXT];
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:i,s:s}", "weights",
                     (json_int_t)memory->weights, "gradients", (json_int_t)memory->gradients, "optimizer",
                     (json_int_t)memory->optimizer, "arena", (json_int_t)memory->arena, "arena_live",
                     (json_int_t)memory->arena_live, "activations", (json_int_t)memory->activations,
                     "activation_gradients", (json_int_t)memory->activation_gradients, "weight_copies",
                     (json_int_t)memory->weight_copies, "workspace", (json_int_t)memory->workspace,
                     "weight_gradients", (json_int_t)memory->weight_gradients, "peak_task", memory->peak_task,
                     "peak_at", replay_task_print(peak, step, memory->peak_task));
}

static json_t *devices_json(const replaying *r)
{
    json_t *devices = json_array();
    for (int c = 0; c < r->result.n_class; c++) {
        const tandem_replay_class *class = &r->result.member[c];
        const uint64_t limit = tandem_cluster_limit_bytes(&r->subject->cluster, c);
        json_t *device = json_pack(
            "{s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:o,s:b,s:o,s:o}", "name", member_of(r, c)->device.name, "ranks",
            member_of(r, c)->n_rank, "batch", (json_int_t)r->subject->graph[c]->batch, "busy_ns",
            (json_int_t) class->busy_ns, "exposed_comm_ns", (json_int_t) class->exposed_comm_ns, "wait_ns",
            (json_int_t) class->wait_ns, "peak_bytes", (json_int_t) class->peak_bytes, "limit_bytes",
            limit ? json_integer((json_int_t)limit) : json_null(), "fits", !over_limit(r, c), "memory",
            memory_json(tandem_replayer_memory(r->replayer, c), tandem_replayer_step(r->replayer, c)),
            "costs", cli_provenance_json(r->replayer, c));
        if (r->options->per_task)
            json_object_set_new(device, "memory_timeline", replay_timeline_json(&r->timeline[c]));
        if (over_limit(r, c))
            json_object_set_new(device, "remedies",
                                replay_remedies_json(r->remedies[c].row, r->remedies[c].n, class->peak_bytes));
        json_array_append_new(devices, device);
    }
    return devices;
}

static json_t *exchange_json(const tandem_exchange *exchange)
{
    return json_pack("{s:i,s:i,s:o,s:o,s:o}", "points", exchange->n_point, "beyond", exchange->n_beyond,
                     "latency_ns", exchange->n_point ? cli_number(exchange->latency_ns) : json_null(),
                     "bytes_per_s", exchange->bytes_per_s > 0 ? cli_number(exchange->bytes_per_s) : json_null(),
                     "spread", exchange->n_point ? cli_number(exchange->spread) : json_null());
}

static int print_json(const replaying *r)
{
    char cluster[1024];
    tandem_cluster_print(cluster, sizeof cluster, &r->subject->cluster);
    json_t *result = cli_json("replay");
    json_object_set_new(result, "plan", json_string(r->subject->plan->name));
    json_object_set_new(result, "model", json_string(r->subject->graph[0]->model));
    json_object_set_new(result, "cluster", json_string(cluster));
    json_object_set_new(result, "step_ns", json_integer(r->result.step_ns));
    json_object_set_new(result, "slowest", json_string(member_of(r, r->result.slowest)->device.name));
    json_object_set_new(result, "devices", devices_json(r));
    json_object_set_new(result, "all_reduce", exchange_json(tandem_replayer_exchange(r->replayer)));
    if (r->options->per_operator) json_object_set_new(result, "operators", operators_json(r));
    return cli_print_json(result);
}

/* --- Text ------------------------------------------------------------------------------------- */

static int print_devices(const replaying *r)
{
    char busy[TANDEM_QUANTITY_TEXT], comm[TANDEM_QUANTITY_TEXT], wait[TANDEM_QUANTITY_TEXT],
        bytes[TANDEM_QUANTITY_TEXT];
    cli_table table = {0};
    cli_table_row(&table, "device\t>ranks\t>batch\t>busy\t>exposed comm\t>waits\t>memory");
    for (int c = 0; c < r->result.n_class; c++) {
        const tandem_replay_class *class = &r->result.member[c];
        cli_table_row(&table, "%s\t%d\t%lld\t%s\t%s\t%s\t%s", member_of(r, c)->device.name,
                      member_of(r, c)->n_rank, (long long)r->subject->graph[c]->batch,
                      tandem_quantity_print_ns(busy, sizeof busy, class->busy_ns),
                      tandem_quantity_print_ns(comm, sizeof comm, class->exposed_comm_ns),
                      tandem_quantity_print_ns(wait, sizeof wait, class->wait_ns),
                      tandem_quantity_print_bytes(bytes, sizeof bytes, class->peak_bytes));
    }
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

static void memory_row(cli_table *table, const replaying *r, const char *name, size_t member)
{
    char line[1024], bytes[TANDEM_QUANTITY_TEXT];
    (void)snprintf(line, sizeof line, "%s", name);
    for (int c = 0; c < r->result.n_class; c++) {
        const char *memory = (const char *)tandem_replayer_memory(r->replayer, c);
        uint64_t value;
        memcpy(&value, memory + member, sizeof value);
        append(line, sizeof line, "\t", tandem_quantity_print_bytes(bytes, sizeof bytes, value));
    }
    cli_table_row(table, "%s", line);
}

static int print_memory(const replaying *r)
{
    char line[1024] = "memory of a rank";
    cli_table table = {0};
    for (int c = 0; c < r->result.n_class; c++)
        append(line, sizeof line, "\t>", member_of(r, c)->device.name);
    cli_table_row(&table, "%s", line);
    memory_row(&table, r, "weights", offsetof(tandem_memory, weights));
    memory_row(&table, r, "gradients", offsetof(tandem_memory, gradients));
    memory_row(&table, r, "optimizer state", offsetof(tandem_memory, optimizer));
    memory_row(&table, r, "arena", offsetof(tandem_memory, arena));
    memory_row(&table, r, "  of it alive at the peak", offsetof(tandem_memory, arena_live));
    memory_row(&table, r, "    activations", offsetof(tandem_memory, activations));
    memory_row(&table, r, "    their gradients", offsetof(tandem_memory, activation_gradients));
    memory_row(&table, r, "    weights in low precision", offsetof(tandem_memory, weight_copies));
    if (r->subject->plan->step.n_micro > 1)
        memory_row(&table, r, "    weights' of a micro-step", offsetof(tandem_memory, weight_gradients));
    memory_row(&table, r, "    workspace", offsetof(tandem_memory, workspace));
    (void)snprintf(line, sizeof line, "peak at");
    for (int c = 0; c < r->result.n_class; c++) {
        char task[REPLAY_TASK_TEXT];
        append(line, sizeof line, "\t",
               replay_task_print(task, tandem_replayer_step(r->replayer, c),
                                 tandem_replayer_memory(r->replayer, c)->peak_task));
    }
    cli_table_row(&table, "%s", line);
    putchar('\n');
    const int code = cli_table_print(&table);
    cli_table_free(&table);
    return code;
}

static int print_text(const replaying *r)
{
    char cluster[1024], step[TANDEM_QUANTITY_TEXT];
    tandem_cluster_print(cluster, sizeof cluster, &r->subject->cluster);
    printf("%s, %s, on %s: step %s\n", r->subject->graph[0]->model, r->subject->plan->name, cluster,
           tandem_quantity_print_ns(step, sizeof step, r->result.step_ns));
    int code = print_devices(r);
    cli_provenance_print(r->replayer);
    if (code == 0 && r->options->verbose) code = print_memory(r);
    if (code == 0 && r->options->per_operator) code = print_operators(r);
    for (int c = 0; c < r->result.n_class && code == 0 && r->options->per_task; c++)
        code = replay_timeline_print(&r->timeline[c], member_of(r, c)->device.name);
    for (int c = 0; c < r->result.n_class && code == 0; c++)
        if (over_limit(r, c))
            code = replay_remedies_print(r->remedies[c].row, r->remedies[c].n, r->result.member[c].peak_bytes,
                                         tandem_cluster_limit_bytes(&r->subject->cluster, c),
                                         member_of(r, c)->device.name);
    return code;
}

/* --- The command ------------------------------------------------------------------------------ */

static tandem_status write_trace(const replaying *r, tandem_error *error)
{
    tandem_trace_lane lane[TANDEM_MAX_CLASS] = {0};
    int rank = 0;
    for (int c = 0; c < r->result.n_class; c++) {
        lane[c] = (tandem_trace_lane){.device = member_of(r, c)->device.name,
                                      .rank = rank,
                                      .n_rank = member_of(r, c)->n_rank,
                                      .step = tandem_replayer_step(r->replayer, c)};
        lane[c].event = tandem_replayer_events(r->replayer, c, &lane[c].n_event);
        rank += member_of(r, c)->n_rank;
    }
    return tandem_trace_write(r->options->trace, r->subject->plan->name, lane, r->result.n_class, error);
}

static tandem_status look_at_memory(replaying *r, tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < r->result.n_class && status == TANDEM_OK; c++) {
        if (r->options->per_task) status = replay_timeline_open(&r->timeline[c], r->replayer, c, error);
        if (status == TANDEM_OK && over_limit(r, c))
            status = replay_remedies_find(r->remedies[c].row, &r->remedies[c].n, r->options, r->subject, c,
                                          r->result.member[c].peak_bytes, error);
    }
    return status;
}

static tandem_status replay(replaying *r, tandem_error *error)
{
    const cli_options *options = r->options;
    const int wants_events = options->trace || options->per_operator;
    tandem_status status = cli_planner_open(&r->planner, options, r->subject, 1, error);
    if (status != TANDEM_OK) return status;
    r->replayer = tandem_planner_problem(r->planner)->replayer;
    status = tandem_replayer_run(r->replayer, &r->result,
                                 TANDEM_REPLAY_MEMORY | (wants_events ? TANDEM_REPLAY_EVENTS : 0u), error);
    if (status == TANDEM_OK && options->per_operator) status = sum_operators(r, error);
    if (status == TANDEM_OK) status = look_at_memory(r, error);
    if (status == TANDEM_OK && options->trace) status = write_trace(r, error);
    return status;
}

/* The negative answer: which class lacks memory. */
static int check_memory(const replaying *r)
{
    char need[TANDEM_QUANTITY_TEXT], limit[TANDEM_QUANTITY_TEXT];
    for (int c = 0; c < r->result.n_class; c++)
        if (over_limit(r, c))
            return cli_refuse(TANDEM_NO_FIT,
                              "the plan takes %s on %s, its limit is %s; `tandem allocate` looks for one that fits",
                              tandem_quantity_print_bytes(need, sizeof need, r->result.member[c].peak_bytes),
                              member_of(r, c)->device.name,
                              tandem_quantity_print_bytes(limit, sizeof limit,
                                                          tandem_cluster_limit_bytes(&r->subject->cluster, c)));
    return 0;
}

static int run(const cli_options *options)
{
    tandem_error error = {0};
    cli_subject subject = {0};
    replaying r = {.options = options, .subject = &subject};
    tandem_status status = cli_subject_open(&subject, options, &error);
    if (status == TANDEM_OK) status = replay(&r, &error);
    int code;
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else if (options->trace && strcmp(options->trace, "-") == 0)
        code = 0; /* standard output holds the trace */
    else
        code = options->json ? print_json(&r) : print_text(&r);
    if (code == 0) code = check_memory(&r);
    free(r.operator_ns);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) replay_timeline_close(&r.timeline[c]);
    tandem_planner_close(r.planner);
    cli_subject_close(&subject);
    return code;
}

static const int options[] = {OPTION_PLAN,      OPTION_MODEL,           OPTION_CLUSTER, OPTION_DEVICE,
                              OPTION_UNIFORM,   OPTION_BATCH,           OPTION_MEMORY,  OPTION_BUCKET,
                              OPTION_PREDICT,   OPTION_OPERATORS,       OPTION_TRACE,   OPTION_ACCUMULATE,
                              OPTION_RECOMPUTE, OPTION_MEMORY_TIMELINE, OPTION_END};
const cli_command command_replay = {
    .name = "replay",
    .words = "",
    .summary = "Simulate a step from measured costs: time, waits, memory; runs no kernel",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem replay --plan plan.json --trace step.json\n"
        "  tandem replay --model vit_tiny --cluster \"cpu:avx512 + cpu:sse41\" --uniform fp32,int8 -v\n"
        "  tandem replay --model vit_tiny --cluster \"8*cpu:avx2@1 net=10Gbit/s,20us\" --operators\n"
        "  tandem replay --model resnet50 --batch 32 --cluster \"8*v100@8 + 8*t4@8 net=100Gbit/s,5us\" --predict\n"
        "  tandem replay --model vit_tiny --batch 8 --device cpu:avx2 --accumulate 4 --recompute sqrt --memory-timeline\n"
        "Costs come from the store; those of other batches are interpolated. Where one is missing, exit code 4 and the `tandem\n"
        "profile` that measures it; with --predict it comes from other operators of the device, or from a card's description.\n"
        "What was not measured is counted in the result.\n"
        "-v adds memory by category, --memory-timeline at each task. A plan over a memory limit (--memory 12GiB): by how much,\n"
        "what recomputation, micro-steps, precisions and batches would save, and exit code 1.",
    .run = run,
};
