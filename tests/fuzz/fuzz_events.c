/* folder: trace */
/* Recorded events from any bytes, plain or compressed: an error, or times that add up; both as a trace of the
 * PyTorch profiler and as a step of tandem's own. */
#include "tandem/advanced/torch_trace.h"
#include "tandem/advanced/whatif.h"
#include "tests/fuzz/fuzz_main.h"

static void check_error(tandem_status status, const tandem_error *error)
{
    demand(status == TANDEM_MALFORMED && error->status == status && error->text[0], "an error has a text");
}

static void check_step(const tandem_torch_step *step)
{
    demand(step->duration_ns >= 0 && step->compute_ns >= 0 && step->exposed_ns >= 0 && step->idle_ns >= 0,
           "no time is negative");
    demand(step->exposed_ns <= step->comm_ns, "only communication is exposed");
    demand(step->compute_ns + step->exposed_ns + step->idle_ns == step->duration_ns + step->early_ns &&
               step->early_ns >= 0,
           "a step adds up");
}

/* Every kernel is in a whole step, in a fragment or in none, and is counted there. */
static void check_kernels(const tandem_torch_rank *rank)
{
    const tandem_torch_left_out *const out = &rank->left_out;
    int64_t n = out->n_outside;
    for (int k = 0; k < rank->n_step; k++) n += rank->step[k].n_kernel;
    for (int k = 0; k < rank->n_fragment; k++) n += rank->fragment[k].n_kernel;
    demand(n == rank->n_kernel, "kernels in steps and outside are all kernels");
    demand(out->n_without_operator <= rank->n_kernel &&
               out->n_without_launch + out->n_by_id <= rank->n_kernel,
           "no more is left out than there is");
    demand((out->n_unknown > 0) == (out->unknown[0] != 0), "what is unknown has a name");
}

static void check_torch(const tandem_torch_summary *torch)
{
    demand(torch->n_rank == 1 && torch->rank[0].n_step >= 1, "one rank");
    for (int s = 0; s < torch->rank[0].n_step; s++) check_step(&torch->rank[0].step[s]);
    for (int s = 0; s < torch->rank[0].n_fragment; s++) check_step(&torch->rank[0].fragment[s]);
    check_kernels(&torch->rank[0]);
    for (int k = 0; k < torch->n_operator; k++) {
        const tandem_torch_operator *const op = &torch->operators[k];
        demand(op->name && op->signature && op->pass < TANDEM_N_TORCH_PASS, "a row has a name");
        demand((op->cost.calls > 0 || op->cost.device_ns > 0) && op->cost.self_ns >= 0, "a row was called");
        demand(op->cost.step_calls <= op->cost.calls && op->cost.step_self_ns <= op->cost.self_ns &&
                   op->cost.step_device_ns <= op->cost.device_ns,
               "whole steps have a part of the trace");
        demand(memcmp(&op->cost, &op->rank[0], sizeof op->cost) == 0, "one rank is all ranks");
    }
}

static void check_whatif_fuzz_events(const tandem_whatif *w)
{
    demand(w->n_step == 1 && w->n_rank >= 1 && w->n_rank == w->n_worker, "ranks");
    for (int k = 0; k < w->n_rank; k++) {
        const tandem_whatif_rank *const rank = &w->rank[k];
        demand(rank->busy_ns >= 0 && rank->exposed_ns >= 0 && rank->wait_ns >= 0 && rank->idle_ns >= 0,
               "no time is negative");
        demand(rank->busy_ns + rank->exposed_ns + rank->wait_ns + rank->idle_ns == w->recorded_ns,
               "a step adds up");
    }
    demand(w->cause.without_ns <= w->step_ns, "without a cause the step is no longer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_torch_summary *torch = NULL;
    tandem_whatif *whatif = NULL;
    tandem_error error = {0};
    tandem_status status = tandem_torch_parse(&torch, data, size, "fuzz.json", &error);
    if (status == TANDEM_OK)
        check_torch(torch);
    else
        check_error(status, &error);
    demand((status == TANDEM_OK) == (torch != NULL), "outputs are untouched");
    tandem_torch_close(torch);
    error = (tandem_error){0};
    status = tandem_whatif_parse_trace(&whatif, data, size, "fuzz.json", &error);
    if (status == TANDEM_OK)
        check_whatif_fuzz_events(whatif);
    else
        check_error(status, &error);
    demand((status == TANDEM_OK) == (whatif != NULL), "outputs are untouched");
    tandem_whatif_close(whatif);
    return 0;
}

int main(int argc, char **argv)
{
    return tandem_fuzz_main("events", LLVMFuzzerTestOneInput, NULL, NULL, 0, argc, argv);
}
