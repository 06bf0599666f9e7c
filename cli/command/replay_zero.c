/* replay_zero.c: a step with ZeRO: ranks keep shards of the training state. */
#include <stdio.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/replay.h"

json_t *replay_zero_json(const tandem_zero *zero, int stage)
{
    return json_pack("{s:i,s:I,s:I,s:i,s:b}", "stage", stage, "reduce_scatter_ns",
                     (json_int_t)zero->scatter_ns, "all_gather_ns", (json_int_t)zero->gather_ns,
                     "all_gathers", zero->n_gather, "runs", 0);
}

void replay_zero_print(const tandem_zero *zero, int stage)
{
    static const char *const shared[] = {"optimizer state", "optimizer state and gradients",
                                         "optimizer state, gradients and weights"};
    answer_line("ZeRO",
                "stage %d, %s in equal shards over all ranks; reduce-scatters %s, %d all-gathers %s; "
                "only simulated: `tandem train` has no ZeRO",
                stage, shared[stage - 1], tandem_quantity_ns(zero->scatter_ns).text, zero->n_gather,
                tandem_quantity_ns(zero->gather_ns).text);
}
