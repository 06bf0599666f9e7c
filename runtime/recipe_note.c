#include "runtime/recipe_note.h"

#include "tandem/advanced/recipe.h"

static int casts_to_s8(const tandem_workload *workload, int op)
{
    for (int c = 0; c < workload->cluster.n_class; c++)
        if (tandem_precision_get(workload->plan->assignment.precision[c][op])->forward == TANDEM_S8) return 1;
    return 0;
}

void runtime_note_recipe(const tandem_listener *listener, const tandem_workload *workload)
{
    const tandem_recipe recipe = (tandem_recipe)workload->plan->step.recipe;
    const tandem_graph *graph = workload->graph[0];
    int n[TANDEM_RECIPE_LACKS + 1] = {0};
    if (recipe == TANDEM_RECIPE_NONE) return;
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i]) && casts_to_s8(workload, i))
            n[tandem_recipe_rule_of(recipe, graph, i)]++;
    runtime_note(
        listener,
        "%s: operators that round each operand: %d; last linear ones, in bf16: %d; that it cannot do, "
        "such as convolutions, and that round whole tensors to %s: %d",
        tandem_recipe_get(recipe)->name, n[TANDEM_RECIPE_ROUNDS], n[TANDEM_RECIPE_KEEPS],
        tandem_format_get(tandem_recipe_get(recipe)->operand[TANDEM_RECIPE_FORWARD][0].format)->name,
        n[TANDEM_RECIPE_LACKS]);
}
