/* allocate_explain.c: `tandem allocate --explain`: what other precisions of one operator would change. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/command/allocate.h"
#include "cli/table.h"

tandem_status allocate_find_explained(allocate_context *a, tandem_error *error)
{
    tandem_choice choice[TANDEM_N_PRECISION];
    int n, op;
    a->explains_all = strcmp(a->options->explain, "all") == 0;
    if (a->explains_all) return TANDEM_OK;
    tandem_status status = tandem_graph_find(&op, a->problem->graph, a->options->explain, error);
    /* checks before the search that the operator is adjustable */
    if (status == TANDEM_OK) status = tandem_choices_explain(choice, &n, a->problem, 0, 0, op, error);
    if (status == TANDEM_OK) a->explained = op;
    return status;
}

/* Half of the interval of an operator's part in percent; NaN where it is not known. */
static double choice_half(const allocate_context *a, const tandem_choice *choice, int c, int op)
{
    tandem_sensitivity_estimate e = {0};
    if (!a->estimate || !cli_method_is_percent(a->answer.plan->method) ||
        tandem_choice_sensitivity_estimate(&e, a->estimate, a->answer.plan, a->problem->graph, c, op,
                                           choice->precision, NULL) != TANDEM_OK)
        return NAN;
    return 100 * fmax(e.high - e.value, e.value - e.low);
}

/* Prints why a precision was not chosen. half: of the interval of the difference to the chosen one. */
static void print_choice_verdict(char *text, size_t size, const allocate_context *a,
                                 const tandem_choice *choice, const tandem_choice *chosen, double half)
{
    text[0] = '\0';
    if (choice->is_chosen || !choice->is_measured) {
        (void)snprintf(text, size, choice->is_chosen ? "chosen" : "not measured");
        return;
    }
    if (choice->excess_ns > 0)
        (void)tandem_append(text, size, "%s over the target", tandem_quantity_ns(choice->excess_ns).text);
    if (choice->excess_bytes > 0)
        (void)tandem_append(text, size, "%s%llu B over the memory limit", *text ? ", " : "",
                            (unsigned long long)choice->excess_bytes);
    if (choice->sensitivity > chosen->sensitivity)
        (void)tandem_append(
            text, size, "%s%s%s more sensitivity", *text ? ", " : "",
            tandem_quantity_known_to(allocate_value(a, choice->sensitivity - chosen->sensitivity), half).text,
            cli_method_unit(a->answer.plan->method));
    if (!*text)
        (void)snprintf(text, size, "%s",
                       choice->sensitivity < chosen->sensitivity ? "feasible; not explored by this policy"
                                                                 : "same sensitivity, and no better");
}

static const tandem_choice *find_chosen_precision(const tandem_choice *choice, int n)
{
    for (int k = 0; k < n; k++)
        if (choice[k].is_chosen) return &choice[k];
    return choice;
}

/* With a sign, as a difference. */
static const char *print_signed_bytes(char *text, size_t size, int64_t bytes)
{
    (void)snprintf(text, size, "%s%s",
                   bytes < 0   ? "-"
                   : bytes > 0 ? "+"
                               : "",
                   tandem_quantity_bytes((uint64_t)(bytes < 0 ? -bytes : bytes)).text);
    return text;
}

static void add_choice_rows(cli_table *table, const allocate_context *a, const tandem_choice *choice, int n,
                            int class_index, int op)
{
    const char *device = a->answer.plan->cluster.classes[class_index].device.name;
    const tandem_choice *chosen = find_chosen_precision(choice, n);
    const double chosen_half = choice_half(a, chosen, class_index, op);
    char bytes[TANDEM_QUANTITY_TEXT + 1], verdict[256];
    for (int k = 0; k < n; k++) {
        const tandem_choice *c = &choice[k];
        const double half = choice_half(a, c, class_index, op);
        print_choice_verdict(verdict, sizeof verdict, a, c, chosen, hypot(half, chosen_half));
        cli_table_row(table, "%s\t%s\t%s\t%s\t%s%s\t%s\t%s", k == 0 ? device : "",
                      tandem_precision_get(c->precision)->name,
                      tandem_quantity_known_to(allocate_value(a, c->sensitivity), half).text,
                      c->is_measured ? tandem_quantity_ns(c->self_ns).text : "-",
                      c->is_measured && c->step_delta_ns > 0 ? "+" : "",
                      c->is_measured ? tandem_quantity_ns(c->step_delta_ns).text : "-",
                      c->is_measured ? print_signed_bytes(bytes, sizeof bytes, c->peak_delta_bytes) : "-",
                      verdict);
    }
}

static int print_explained_op(const allocate_context *a, int op)
{
    cli_table table = {0};
    tandem_error error = {0};
    int code = 0;
    printf("%s: effect of each precision, if only this operator changes\n", a->problem->graph->op[op].name);
    cli_table_row(&table, "device\tprecision\t>sensitivity (%s)\t>own time\t>step\t>memory\t",
                  cli_method_text(a->answer.plan->method));
    for (int c = 0; c < a->answer.plan->cluster.n_class && !code; c++) {
        tandem_choice choice[TANDEM_N_PRECISION];
        int n = 0;
        if (tandem_choices_explain(choice, &n, a->problem, a->answer.allocation.target_ns, c, op, &error) !=
            TANDEM_OK)
            code = cli_fail(&error);
        add_choice_rows(&table, a, choice, n, c, op);
    }
    if (!code) return cli_table_finish(&table);
    cli_table_free(&table);
    return code;
}

int allocate_explain_text(const allocate_context *a)
{
    const tandem_graph *const graph = a->problem->graph;
    int code = 0;
    if (!a->explains_all) return print_explained_op(a, a->explained);
    for (int op = 0, n = 0; op < graph->n_op && !code; op++) {
        if (!tandem_op_is_adjustable(&graph->op[op])) continue;
        if (n++) putchar('\n');
        code = print_explained_op(a, op);
    }
    return code;
}

static json_t *explained_choices_json(const allocate_context *a, const tandem_choice *choice, int n,
                                      int class_index, int op)
{
    json_t *rows = json_array();
    const tandem_choice *chosen = find_chosen_precision(choice, n);
    const double chosen_half = choice_half(a, chosen, class_index, op);
    for (int k = 0; k < n; k++) {
        const tandem_choice *c = &choice[k];
        char verdict[256];
        print_choice_verdict(verdict, sizeof verdict, a, c, chosen,
                             hypot(choice_half(a, c, class_index, op), chosen_half));
        json_array_append_new(
            rows, json_pack("{s:s,s:b,s:b,s:o,s:I,s:I,s:I,s:I,s:I,s:s}", "precision",
                            tandem_precision_get(c->precision)->name, "chosen", c->is_chosen, "measured",
                            c->is_measured, "sensitivity", cli_json_number(allocate_value(a, c->sensitivity)),
                            "self_ns", (json_int_t)c->self_ns, "step_change_ns", (json_int_t)c->step_delta_ns,
                            "memory_change_bytes", (json_int_t)c->peak_delta_bytes, "excess_ns",
                            (json_int_t)c->excess_ns, "excess_bytes", (json_int_t)c->excess_bytes, "verdict",
                            verdict));
    }
    return rows;
}

static json_t *explained_op_json(const allocate_context *a, int op)
{
    json_t *devices = json_array();
    for (int c = 0; c < a->answer.plan->cluster.n_class; c++) {
        tandem_choice choice[TANDEM_N_PRECISION];
        int n = 0;
        if (tandem_choices_explain(choice, &n, a->problem, a->answer.allocation.target_ns, c, op, NULL) !=
            TANDEM_OK)
            break; /* the same replay succeeded before: only memory can be missing */
        json_array_append_new(devices,
                              json_pack("{s:s,s:o}", "name", a->answer.plan->cluster.classes[c].device.name,
                                        "choices", explained_choices_json(a, choice, n, c, op)));
    }
    return json_pack("{s:s,s:o}", "operator", a->problem->graph->op[op].name, "devices", devices);
}

json_t *allocate_explain_json(const allocate_context *a) { return explained_op_json(a, a->explained); }

json_t *allocate_explain_all_json(const allocate_context *a)
{
    const tandem_graph *const graph = a->problem->graph;
    json_t *const rows = json_array();
    for (int op = 0; op < graph->n_op; op++)
        if (tandem_op_is_adjustable(&graph->op[op])) json_array_append_new(rows, explained_op_json(a, op));
    return rows;
}
