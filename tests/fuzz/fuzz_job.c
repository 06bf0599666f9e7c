/* folder: trace */
/* Traces in CSV, plain or compressed: an error, or a job; and then an error, or an analysis whose numbers
 * hang together. */
#include "tandem/advanced/whatif.h"
#include "tests/fuzz/fuzz_main.h"

static void check_job(const tandem_pipeline_trace *pipeline)
{
    demand(pipeline->n_op > 0 && pipeline->n_step > 0 && pipeline->n_step <= pipeline->n_op,
           "a job has operators");
    for (int i = 0; i < pipeline->n_op; i++) {
        const tandem_pipeline_op *const op = &pipeline->op[i];
        demand(op->kind < TANDEM_N_PIPELINE_OP_KIND && op->duration_ns >= 0, "kind and duration");
        demand(op->step >= 0 && op->step < pipeline->n_step && op->dp_rank >= 0 &&
                   op->dp_rank < pipeline->n_dp,
               "step and rank");
        demand(op->stage >= 0 && op->stage < pipeline->n_stage && op->tp_rank >= 0 &&
                   op->tp_rank < pipeline->n_tp,
               "stage");
        demand(op->chunk >= 0 && op->chunk < pipeline->n_chunk, "chunk");
        demand(i == 0 || op->step >= op[-1].step, "steps in order");
    }
    for (int s = 1; s < pipeline->n_step; s++)
        demand(pipeline->step[s] > pipeline->step[s - 1], "steps ascend");
}

static void check_parts(const tandem_whatif_parts *parts, int n_step)
{
    demand(n_step > 0 && (parts->n == 0) == !parts->part, "parts");
    for (int k = 0; k < parts->n; k++) {
        demand(parts->part[k].name[0] && parts->part[k].with_ns >= 0 && parts->part[k].without_ns >= 0,
               "a part");
        demand(k == 0 || parts->part[k].with_ns <= parts->part[k - 1].with_ns, "worst first");
    }
}

static void check_whatif_fuzz_job(const tandem_whatif *w, const tandem_pipeline_trace *pipeline)
{
    demand(w->n_op == pipeline->n_op && w->n_step == pipeline->n_step, "sizes");
    demand(w->step_ns >= 0 && w->ideal_ns >= 0 && w->recorded_ns >= 0, "times");
    demand(w->cause.without_ns <= w->step_ns && w->cause.without_what_ns <= w->step_ns,
           "without a cause the step is no longer");
    check_parts(&w->by_operator, w->n_step);
    check_parts(&w->by_stage, w->n_step);
    check_parts(&w->by_dp_rank, w->n_step);
    check_parts(&w->by_worker, w->n_step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_pipeline_trace *pipeline = NULL;
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    tandem_status status = tandem_pipeline_trace_parse(&pipeline, data, size, "fuzz.csv", &error);
    if (status == TANDEM_OK) {
        check_job(pipeline);
        status = tandem_whatif_pipeline(&whatif, pipeline, NULL, &error);
        if (status == TANDEM_OK) check_whatif_fuzz_job(whatif, pipeline);
    } else {
        demand(!pipeline, "the output is untouched");
    }
    if (status != TANDEM_OK) {
        demand(status == TANDEM_MALFORMED && error.status == status && error.text[0], "an error has a text");
        demand(!whatif, "the output is untouched");
    }
    tandem_whatif_close(whatif);
    tandem_pipeline_trace_close(pipeline);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("job", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
