/* unused_formats.c: formats of --emulate that change nothing, and precisions that products lack. */
#include "runtime/unused_formats.h"

#include "runtime/listener.h"
#include "tandem/advanced/recipe.h"

/* Bit d: an operator of the class has dtype d somewhere. */
static unsigned dtypes_of_class(const tandem_workload *workload, int c)
{
    const tandem_dtype amp = workload->cluster.classes[c].device.amp_dtype;
    unsigned found = 0;
    for (int op = 0; op < workload->graph[0]->n_op; op++) {
        const tandem_precision_row *row = tandem_precision_get(workload->plan->assignment.precision[c][op]);
        const tandem_dtype dtypes[] = {row->forward, row->dgrad, row->wgrad,        row->other_operand_dtype,
                                       row->output,  row->saved, row->product_dtype};
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            found |= 1u << (dtypes[k] == TANDEM_AMP ? amp : dtypes[k]);
    }
    return found;
}

void note_unused_formats(const tandem_listener *listener, const tandem_workload *workload,
                         const char *emulate)
{
    tandem_emulation emulation = tandem_emulation_make(0);
    unsigned found = 0;
    if (workload->lacking[0]) runtime_note(listener, "%s", workload->lacking);
    if (!emulate || tandem_emulation_replace(&emulation, emulate, NULL) != TANDEM_OK) return;
    for (int c = 0; c < workload->cluster.n_class; c++) found |= dtypes_of_class(workload, c);
    for (int d = 0; d < TANDEM_N_COMPUTE_DTYPE; d++) {
        const tandem_dtype dtype = (tandem_dtype)d;
        if (emulation.format[d] == tandem_format_of_dtype(dtype) || found >> d & 1) continue;
        runtime_note(listener,
                     "warning: --emulate=%s changes nothing: it takes the place of %s, which no operator of "
                     "the plan has",
                     dtype == TANDEM_S8 && emulation.recipe != TANDEM_RECIPE_NONE
                         ? tandem_recipe_get(emulation.recipe)->name
                         : tandem_format_get(emulation.format[d])->name,
                     tandem_dtype_name(dtype));
    }
}
