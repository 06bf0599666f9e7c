/* candidate.c: the best plan of a model on a cluster, to compare clusters. */
#include "allocator/opening.h"
#include "allocator/queries/candidate.h"

#include <string.h>

void tandem_candidate_close(tandem_candidate *candidate)
{
    tandem_answer_close(&candidate->answer);
    *candidate = (tandem_candidate){.rate = 0};
}

tandem_cluster tandem_cluster_without(const tandem_cluster *cluster, int c)
{
    tandem_cluster rest = *cluster;
    rest.n_class--;
    memmove(&rest.classes[c], &rest.classes[c + 1], (size_t)(rest.n_class - c) * sizeof rest.classes[c]);
    return rest;
}

/* Limits and batches are equal in all clusters that are compared, so the name leaves them out. */
const char *tandem_candidate_name(char *name, size_t size, const tandem_cluster *cluster)
{
    tandem_cluster bare = *cluster;
    bare.link_bytes_per_s = bare.node.bytes_per_s = 0;
    for (int c = 0; c < bare.n_class; c++)
        bare.classes[c].batch = 0, bare.classes[c].memory_bytes = 0, bare.classes[c].link.bytes_per_s = 0;
    tandem_cluster_print(name, size, &bare);
    return name;
}

static int may_have_no_plan(tandem_status status, const tandem_allocation_request *request)
{
    return status == TANDEM_MISSING || status == TANDEM_INFEASIBLE ||
           (status == TANDEM_USAGE && request->global_batch);
}

tandem_status tandem_candidate_find(tandem_candidate *out, const tandem_allocation_request *request,
                                    const tandem_cluster *cluster, tandem_error *error)
{
    tandem_candidate candidate = {.cluster = *cluster};
    tandem_error why = {0};
    candidate.samples = request->global_batch ? request->global_batch
                                              : tandem_cluster_samples(cluster, request->of.step.n_micro);
    (void)tandem_candidate_name(candidate.name, sizeof candidate.name, cluster);
    const tandem_status status = tandem_answer_open_at(&candidate.answer, request, cluster, &why);
    if (status == TANDEM_OK) {
        for (int c = 0; c < cluster->n_class; c++)
            candidate.cluster.classes[c].batch = candidate.answer.plan->cluster.classes[c].batch;
        tandem_planner_close(candidate.answer.planner);
        candidate.answer.planner = NULL;
    } else if (may_have_no_plan(status, request)) {
        candidate.error = why;
    } else {
        if (error) *error = why;
        return status;
    }
    *out = candidate;
    return TANDEM_OK;
}

int tandem_candidates_rate(tandem_candidate *candidate, int n)
{
    int by_goodput = 1;
    for (int k = 0; k < n; k++) {
        const tandem_goodput *g = &candidate[k].answer.goodput;
        if (g->samples_per_s > 0 && !(g->goodput > 0)) by_goodput = 0;
    }
    for (int k = 0; k < n; k++) {
        const tandem_goodput *g = &candidate[k].answer.goodput;
        candidate[k].rate = by_goodput && g->samples_per_s > 0 ? g->goodput : g->samples_per_s;
    }
    return by_goodput;
}

/* --- Fewer devices -------------------------------------------------------------------------------------- */

/* Both at their best plans. Of the answer's limits only the slowdown holds. */
static tandem_allocation_request question_of_smaller(const tandem_allocation_request *request)
{
    return (tandem_allocation_request){.of = request->of,
                                       .policy = "greedy",
                                       .slowdown_is_given = request->slowdown_is_given,
                                       .slowdown = request->slowdown,
                                       .without_certificate = 1};
}

tandem_status tandem_smaller_cluster_find(tandem_candidate *smaller, int *by_goodput,
                                          const tandem_allocation_request *request,
                                          const tandem_answer *answer, tandem_error *error)
{
    const tandem_cluster *cluster = &answer->plan->cluster;
    const tandem_allocation_request asked = question_of_smaller(request);
    tandem_candidate best = {.rate = 0};
    tandem_goodput most = answer->goodput;
    tandem_status status = TANDEM_OK;
    for (int c = 0; c < cluster->n_class && cluster->n_class > 1 && status == TANDEM_OK; c++) {
        const tandem_cluster rest = tandem_cluster_without(cluster, c);
        tandem_candidate pair[2] = {{.answer.goodput = most}, {.rate = 0}};
        status = tandem_candidate_find(&pair[1], &asked, &rest, error);
        if (status != TANDEM_OK) continue;
        const int is_goodput = tandem_candidates_rate(pair, 2);
        if (pair[1].rate <= pair[0].rate) {
            tandem_candidate_close(&pair[1]);
            continue;
        }
        tandem_candidate_close(&best);
        best = pair[1];
        most = best.answer.goodput;
        *by_goodput = is_goodput;
    }
    if (status == TANDEM_OK)
        *smaller = best;
    else
        tandem_candidate_close(&best);
    return status;
}
