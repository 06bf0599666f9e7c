/* certify.c: how good a plan can be at all, for a plan that somebody else has made. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/policies.h"
#include "allocator/proof.h"
#include "base/clock.h"

static const double tolerable_gap = 1e-3;
static const double search_seconds = 0.5; /* it closes small gaps soon, or none */

/* What the replayer has, to be put back. */
static tandem_precision *keep(const tandem_allocation_problem *problem, int n_class)
{
    const int n_op = problem->graph->n_op;
    tandem_precision *kept = malloc(((size_t)n_class * (size_t)n_op + 1) * sizeof *kept);
    for (int c = 0; kept && c < n_class; c++)
        for (int i = 0; i < n_op; i++) kept[c * n_op + i] = tandem_replayer_get(problem->replayer, c, i);
    return kept;
}

static void put_back(const tandem_allocation_problem *problem, int c, const tandem_precision *precision)
{
    const tandem_graph *graph = problem->graph;
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_row_get(graph->op[i].kind)->op_class == TANDEM_ADJUSTABLE)
            tandem_replayer_set(problem->replayer, c, i, precision[i]);
}

static tandem_status hold(const tandem_allocation_problem *problem, unsigned keeps_base, tandem_error *error)
{
    tandem_plan *base = NULL;
    const tandem_status status = tandem_allocation_open_base_plan(&base, problem, error);
    for (int c = 0; status == TANDEM_OK && c < base->cluster.n_class; c++)
        if (keeps_base & 1u << c) put_back(problem, c, base->precision[c]);
    tandem_plan_close(base);
    return status;
}

/* claimed: a bound that somebody has proven, perhaps by a longer search. */
static tandem_status prove(tandem_proof *proof, double sensitivity, double claimed, double seconds,
                           tandem_error *error)
{
    const int64_t begin_ns = tandem_now_ns();
    int found = 0;
    int64_t replays = 0;
    tandem_status status = tandem_proof_bound(proof, 0.7 * seconds, error);
    if (status != TANDEM_OK || sensitivity - proof->lower_bound <= tolerable_gap * sensitivity) return status;
    const double left = seconds - (double)(tandem_now_ns() - begin_ns) * 1e-9;
    const int is_open = proof->lower_bound < claimed;
    return tandem_proof_search(proof, sensitivity, is_open ? left : fmin(left, search_seconds), &found,
                               &replays, error);
}

tandem_status tandem_certify_claim(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                                   int64_t target_ns, unsigned keeps_base, double sensitivity, double claimed,
                                   double time_limit_s, tandem_error *error)
{
    const int n_class = tandem_replayer_cluster(problem->replayer)->n_class, n_op = problem->graph->n_op;
    tandem_proof proof = {0};
    tandem_precision *kept = keep(problem, n_class);
    if (!kept)
        return tandem_error_set(error, TANDEM_NO_MEMORY, "no memory to certify a plan of %d operators", n_op);
    tandem_status status = hold(problem, keeps_base, error);
    if (status == TANDEM_OK) status = tandem_proof_open(&proof, problem, target_ns, keeps_base, error);
    if (status == TANDEM_OK)
        status = prove(&proof, sensitivity, claimed, tandem_allowed_seconds(time_limit_s), error);
    if (status == TANDEM_OK) tandem_proof_certify(certificate, &proof, sensitivity);
    tandem_proof_close(&proof);
    for (int c = 0; c < n_class; c++) put_back(problem, c, kept + c * n_op);
    free(kept);
    return status;
}

tandem_status tandem_certify(tandem_certificate *certificate, const tandem_allocation_problem *problem,
                             int64_t target_ns, unsigned keeps_base, double sensitivity, double time_limit_s,
                             tandem_error *error)
{
    return tandem_certify_claim(certificate, problem, target_ns, keeps_base, sensitivity, 0, time_limit_s,
                                error);
}
