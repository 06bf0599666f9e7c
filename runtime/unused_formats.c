/* unused_formats.c: formats of --emulate that change nothing. */
#include "runtime/unused_formats.h"

#include <stdio.h>
#include <string.h>

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
    unsigned found = 0;
    for (int c = 0; c < workload->cluster.n_class; c++) found |= dtypes_of_class(workload, c);
    for (size_t n; emulate && *emulate; emulate += n + (emulate[n] == ',')) {
        char name[32];
        tandem_format format;
        tandem_dtype dtype = TANDEM_S8; /* a recipe takes its place */
        n = strcspn(emulate, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, emulate);
        if (tandem_format_find(&format, name, NULL) == TANDEM_OK)
            dtype = tandem_format_get(format)->dtype;
        else if (tandem_recipe_find(name) == TANDEM_RECIPE_NONE)
            continue; /* which is refused elsewhere */
        if (!(found >> dtype & 1))
            runtime_note(listener,
                         "warning: --emulate=%s changes nothing: it takes the place of %s, which no operator "
                         "of the plan has",
                         name, tandem_dtype_name(dtype));
    }
}
