/* graph.c: `tandem graph show MODEL`: the operators of a model; `tandem graph work MODEL` (graph_work.c). */
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "cli/command/graph_work.h"
#include "cli/table.h"

/* --- Figures of one operator ------------------------------------------------------------------ */

/* Its own weights: a linear layer tied to an embedding has none. */
static int64_t count_own_weights(const tandem_graph *graph, const tandem_op *op)
{
    int64_t n = 0;
    for (int k = 0; k < TANDEM_MAX_PARAMETER; k++)
        if (op->parameter[k] >= 0 && &graph->op[graph->parameter[op->parameter[k]].op] == op)
            n += graph->parameter[op->parameter[k]].elements;
    return n;
}

/* Bytes of its output in f32; 0 if the output is a view of the input. */
static uint64_t op_output_bytes(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    return graph->view[i] == i ? (uint64_t)tandem_shape_elements(&op->shape) * tandem_dtype_bytes(op->dtype)
                               : 0;
}

static uint64_t total_output_bytes(const tandem_graph *graph)
{
    uint64_t bytes = 0;
    for (int i = 0; i < graph->n_op; i++) bytes += op_output_bytes(graph, i);
    return bytes;
}

static double graph_forward_flops(const tandem_graph *graph)
{
    double flops = 0;
    for (int i = 0; i < graph->n_op; i++) flops += graph->op[i].flops;
    return flops;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* A whole count: an integer while a double is exact. */
static json_t *whole_count_json(double count)
{
    return count < 0x1p53 ? json_integer((json_int_t)count) : json_real(count);
}

static json_t *graph_operator_json(const tandem_graph *graph, int i)
{
    const tandem_op *op = &graph->op[i];
    const tandem_op_row *row = tandem_op_row_get(op->kind);
    json_t *shape = json_array(), *precisions = json_array(), *inputs = json_array();
    for (int d = 0; d < op->shape.n_dim; d++) json_array_append_new(shape, json_integer(op->shape.dim[d]));
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (row->precisions >> p & 1)
            json_array_append_new(precisions, json_string(tandem_precision_get((tandem_precision)p)->name));
    for (int slot = 0; slot < row->n_input; slot++)
        json_array_append_new(inputs, json_string(graph->op[op->input[slot]].name));
    return json_pack("{s:s,s:s,s:o,s:o,s:I,s:o,s:I,s:s,s:o}", "name", op->name, "kind", row->name, "inputs",
                     inputs, "shape", shape, "parameters", (json_int_t)count_own_weights(graph, op), "flops",
                     whole_count_json(op->flops), "bytes", (json_int_t)op_output_bytes(graph, i), "signature",
                     op->signature, "precisions", precisions);
}

static int print_graph_json(const tandem_graph *graph)
{
    json_t *result = cli_json_new("graph"), *operators = json_array();
    for (int i = 0; i < graph->n_op; i++) json_array_append_new(operators, graph_operator_json(graph, i));
    json_object_set_new(result, "model", json_string(graph->model));
    json_object_set_new(result, "batch", json_integer(graph->batch));
    json_object_set_new(result, "optimizer", json_string(tandem_optimizer_name(graph->optimizer.kind)));
    json_object_set_new(result, "parameters", json_integer(tandem_graph_n_weight(graph)));
    json_object_set_new(result, "flops", whole_count_json(tandem_graph_flops(graph)));
    json_object_set_new(result, "forward_flops", whole_count_json(graph_forward_flops(graph)));
    json_object_set_new(result, "bytes", json_integer((json_int_t)total_output_bytes(graph)));
    json_object_set_new(result, "operators", operators);
    return cli_print_json(result);
}

/* --- Text ------------------------------------------------------------------------------------- */

static const char *print_op_shape(char *text, size_t size, const tandem_shape *shape)
{
    (void)snprintf(text, size, "%s", shape->n_dim ? "" : "scalar");
    for (int d = 0; d < shape->n_dim; d++)
        (void)tandem_append(text, size, "%s%lld", d > 0 ? "×" : "", (long long)shape->dim[d]);
    return text;
}

/* "1.32 GFLOP", "640 FLOP". */
static const char *print_flops(char *text, size_t size, double flops)
{
    const tandem_quantity count = tandem_quantity_count(flops);
    const size_t n = strlen(count.text);
    const int has_prefix = n > 0 && (count.text[n - 1] < '0' || count.text[n - 1] > '9');
    (void)snprintf(text, size, "%s%sFLOP", count.text, has_prefix ? "" : " ");
    return text;
}

static int print_graph_text(const tandem_graph *graph)
{
    char shape[128], flops[TANDEM_QUANTITY_TEXT + 8], all[TANDEM_QUANTITY_TEXT + 8];
    cli_table table = {0};
    cli_table_row(&table, "operator\tkind\toutput\t>parameters\t>FLOP\t>bytes");
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op *op = &graph->op[i];
        cli_table_row(&table, "%s\t%s\t%s\t%s\t%s\t%s", op->name, tandem_op_row_get(op->kind)->name,
                      print_op_shape(shape, sizeof shape, &op->shape),
                      tandem_quantity_count((double)count_own_weights(graph, op)).text,
                      tandem_quantity_count(op->flops).text,
                      tandem_quantity_bytes(op_output_bytes(graph, i)).text);
    }
    const int code = cli_table_finish(&table);
    if (code == 0)
        printf("%s at batch %lld: %d operators, %s parameters, %s forward, %s per training step, %s "
               "of outputs in f32\n",
               graph->model, (long long)graph->batch, graph->n_op,
               tandem_quantity_count((double)tandem_graph_n_weight(graph)).text,
               print_flops(flops, sizeof flops, graph_forward_flops(graph)),
               print_flops(all, sizeof all, tandem_graph_flops(graph)),
               tandem_quantity_bytes(total_output_bytes(graph)).text);
    return code;
}

/* --- The command ------------------------------------------------------------------------------ */

static int check_graph_words(const cli_options *options)
{
    static const char *const action[] = {"show", "work"};
    if (options->n_word > 0 && strcmp(options->word[0], action[0]) != 0 &&
        strcmp(options->word[0], action[1]) != 0) {
        return cli_fail_with(TANDEM_UNKNOWN_NAME, "no action '%s'.%s Use: tandem graph show %s",
                             options->word[0], tandem_nearest_hint(options->word[0], action, 2).text,
                             options->n_word > 1 ? options->word[1] : "MODEL");
    }
    if (options->n_word == 2) return 0;
    return cli_fail_with(TANDEM_USAGE,
                         "no model given. Use e.g. tandem graph show vit_tiny (tandem list models)");
}

/* Exit code 1 where there are some. */
static int print_unsupported(const cli_options *options)
{
    tandem_error error = {0};
    tandem_unsupported list = {0};
    if (tandem_graph_list_unsupported(&list, options->word[1], options->batch, &error) != TANDEM_OK)
        return cli_fail(&error);
    int code = list.n > 0;
    if (options->json) {
        json_t *result = cli_json_new("unsupported"), *nodes = json_array();
        for (int i = 0; i < list.n; i++)
            json_array_append_new(
                nodes, json_pack("{s:s,s:s}", "node", list.line[i].node, "reason", list.line[i].why));
        json_object_set_new(result, "model", json_string(options->word[1]));
        json_object_set_new(result, "nodes", json_integer(list.n_node));
        json_object_set_new(result, "unsupported", nodes);
        json_object_set_new(result, "unjudged", json_integer(list.n_unjudged));
        const int printed = cli_print_json(result);
        code = printed ? printed : code;
    } else {
        for (int i = 0; i < list.n; i++) printf("%s: %s\n", list.line[i].node, list.line[i].why);
        printf("%d of %d nodes are not supported\n", list.n, list.n_node);
        if (list.n_unjudged > 0)
            printf("%d more, after them, could not be judged: the file does not say what shape they read\n",
                   list.n_unjudged);
    }
    tandem_unsupported_close(&list);
    return code;
}

static int run_graph(const cli_options *options)
{
    const int refused = check_graph_words(options);
    if (refused) return refused;
    if (options->unsupported) return print_unsupported(options);
    tandem_error error = {0};
    tandem_graph *graph = NULL;
    if (tandem_graph_open(&graph, options->word[1], options->batch, &error) != TANDEM_OK)
        return cli_fail(&error);
    const int code = strcmp(options->word[0], "work") == 0 ? graph_print_work(options, graph)
                     : options->json                       ? print_graph_json(graph)
                                                           : print_graph_text(graph);
    tandem_graph_close(graph);
    return code;
}

static const int options[] = {OPTION_BATCH,   OPTION_SET,    OPTION_LOSS, OPTION_UNSUPPORTED,
                              OPTION_UNIFORM, OPTION_DEVICE, OPTION_AMAX, OPTION_END};
const cli_command command_graph = {
    .name = "graph",
    .words = "show|work MODEL",
    .summary = "Operators of a model, or the work of a training step on a card",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem graph show resnet20\n"
        "  tandem graph show vit_tiny:width=256,heads=4 --batch 32 --json\n"
        "  tandem graph work gpt2_small --batch 16 --uniform bf16\n"
        "Of show: FLOPs are those of the forward pass; a multiply-add counts as two. Bytes are those of the "
        "output in f32. Of work: launches, FLOPs and bytes of a training step on a GPU [--device cuda:0, "
        "--uniform bf16], by pass and kernel, and their time at fixed rates: an estimate on paper.",
    .run = run_graph,
};
