/* rest_of_step.c: sorts the tasks of a step into kinds of work. */
#include "bench/program/rest_of_step.h"

#include <stdio.h>

#include "base/quantity.h"

enum {
    WEIGHT_CASTS,
    ACTIVATION_CASTS,
    GRADIENT_CASTS,
    NORMS,
    SOFTMAX,
    ELEMENTWISE,
    LAYOUT,
    LOSS,
    UPDATES,
    OTHERS
};
_Static_assert(OTHERS + 1 == REST_KINDS, "a name for each kind");

static const char *const rest_names[REST_KINDS] = {
    [WEIGHT_CASTS] = "casts of weights",
    [ACTIVATION_CASTS] = "casts of activations",
    [GRADIENT_CASTS] = "casts of gradients",
    [NORMS] = "norms",
    [SOFTMAX] = "softmax",
    [ELEMENTWISE] = "biases, sums and activation functions",
    [LAYOUT] = "layouts and pooling",
    [LOSS] = "loss",
    [UPDATES] = "updates of weights",
    [OTHERS] = "other tasks",
};

static int kind_of_operator(tandem_op_kind kind)
{
    switch (kind) {
    case TANDEM_OP_BATCHNORM:
    case TANDEM_OP_BATCHNORM_RELU:
    case TANDEM_OP_BATCHNORM_ADD_RELU:
    case TANDEM_OP_LAYERNORM: return NORMS;
    case TANDEM_OP_SOFTMAX: return SOFTMAX;
    case TANDEM_OP_BIAS:
    case TANDEM_OP_BIAS_GELU:
    case TANDEM_OP_RELU:
    case TANDEM_OP_GELU:
    case TANDEM_OP_TANH:
    case TANDEM_OP_MAP:
    case TANDEM_OP_ADD:
    case TANDEM_OP_MUL:
    case TANDEM_OP_MUL_CONSTANT:
    case TANDEM_OP_SCALE:
    case TANDEM_OP_DROPOUT: return ELEMENTWISE;
    case TANDEM_OP_MAXPOOL:
    case TANDEM_OP_AVGPOOL:
    case TANDEM_OP_TRANSPOSE:
    case TANDEM_OP_SLICE:
    case TANDEM_OP_CONCAT:
    case TANDEM_OP_CONCAT_TOKEN:
    case TANDEM_OP_GATHER_LABELLED:
    case TANDEM_OP_REPEAT: return LAYOUT;
    case TANDEM_OP_CROSS_ENTROPY: return LOSS;
    default: return OTHERS;
    }
}

static int kind_of_task(const tandem_step *step, const tandem_task *task)
{
    switch (task->kind) {
    case TANDEM_TASK_WEIGHT_CAST: return WEIGHT_CASTS;
    case TANDEM_TASK_CAST:
    case TANDEM_TASK_SAVED_CAST: return ACTIVATION_CASTS;
    case TANDEM_TASK_GRADIENT_CAST: return GRADIENT_CASTS;
    case TANDEM_TASK_UPDATE: return UPDATES;
    case TANDEM_TASK_FORWARD:
    case TANDEM_TASK_WGRAD:
    case TANDEM_TASK_DGRAD: return kind_of_operator(step->graph->op[task->op].kind);
    default: return OTHERS;
    }
}

void rest_of_step_add(rest_of_step *rest, const tandem_step *step, int task, int64_t median_ns)
{
    const tandem_task *of = &step->task[task];
    if (!of->active || median_ns <= 0) return;
    const int kind = kind_of_task(step, of);
    rest->of[kind].count++;
    rest->of[kind].ns += median_ns;
}

static int64_t outside_tasks_ns(const rest_of_step *rest, int64_t products_ns, int64_t step_ns)
{
    int64_t left_ns = step_ns - products_ns;
    for (int k = 0; k < REST_KINDS; k++) left_ns -= rest->of[k].ns;
    return left_ns;
}

/* Kinds by their time, the longest first. */
static void order_kinds(int order[REST_KINDS], const rest_of_step *rest)
{
    for (int k = 0; k < REST_KINDS; k++) {
        int at = k;
        for (; at > 0 && rest->of[order[at - 1]].ns < rest->of[k].ns; at--) order[at] = order[at - 1];
        order[at] = k;
    }
}

json_t *rest_of_step_json(const rest_of_step *rest, int64_t products_ns, int64_t step_ns)
{
    json_t *array = json_array();
    int order[REST_KINDS] = {0};
    order_kinds(order, rest);
    for (int k = 0; k < REST_KINDS; k++)
        if (rest->of[order[k]].count > 0)
            json_array_append_new(array, json_pack("{s:s,s:i,s:I}", "kind", rest_names[order[k]], "tasks",
                                                   rest->of[order[k]].count, "step_ns",
                                                   (json_int_t)rest->of[order[k]].ns));
    json_array_append_new(array, json_pack("{s:s,s:i,s:I}", "kind", "outside tasks", "tasks", 0, "step_ns",
                                           (json_int_t)outside_tasks_ns(rest, products_ns, step_ns)));
    return array;
}

static void add_rest_row(cli_table *table, const char *name, int count, int64_t ns, int64_t step_ns)
{
    char tasks[16] = "";
    if (count > 0) (void)snprintf(tasks, sizeof tasks, "%d", count);
    cli_table_row(table, "%s\t%s\t%s\t%.1f%%", name, tasks, tandem_quantity_ns(ns).text,
                  step_ns > 0 ? 100 * (double)ns / (double)step_ns : 0.0);
}

void rest_of_step_rows(const rest_of_step *rest, int64_t products_ns, int64_t step_ns, cli_table *table)
{
    int order[REST_KINDS] = {0};
    order_kinds(order, rest);
    for (int k = 0; k < REST_KINDS; k++)
        if (rest->of[order[k]].count > 0)
            add_rest_row(table, rest_names[order[k]], rest->of[order[k]].count, rest->of[order[k]].ns,
                         step_ns);
    const int64_t outside_ns = outside_tasks_ns(rest, products_ns, step_ns);
    if (outside_ns > 0) add_rest_row(table, "outside tasks", 0, outside_ns, step_ns);
}
