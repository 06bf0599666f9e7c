/* advise.c: whether adding devices to a cluster pays. */
#include "allocator/opening.h"
#include "allocator/queries/candidate.h"
#include "allocator/queries/question.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CASE = TANDEM_CASE_SUBSET + 2 * TANDEM_MAX_CLASS };

/* --- Clusters ------------------------------------------------------------------------------------------- */

static tandem_status check_question(const tandem_allocation_request *request, const char *add,
                                    tandem_error *error)
{
    const tandem_policy *policy;
    if ((!request->of.model && !request->of.n_graph) || !request->of.cluster || !add)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "advise needs a model, the current ranks and the new ranks, e.g. --model vit_tiny "
            "--cluster strongest --add weakest");
    const tandem_status status = tandem_request_policy(&policy, request, error);
    if (status == TANDEM_OK && policy->ignores_target)
        return tandem_error_set(
            error, TANDEM_USAGE,
            "policy %s has a single plan and cannot compare clusters. Use another --policy", policy->name);
    return status == TANDEM_OK ? tandem_allocation_request_check(request, error) : status;
}

static tandem_status read_clusters(tandem_cluster *a, tandem_cluster *b,
                                   const tandem_allocation_request *request, const char *add,
                                   tandem_error *error)
{
    tandem_request added = request->of;
    added.cluster = add;
    tandem_status status = tandem_request_cluster(a, &request->of, error);
    if (status == TANDEM_OK) status = tandem_request_cluster(b, &added, error);
    if (status == TANDEM_OK && a->n_class + b->n_class > TANDEM_MAX_CLASS)
        status = tandem_error_set(error, TANDEM_USAGE,
                                  "the clusters have %d classes together; at most %d are allowed",
                                  a->n_class + b->n_class, TANDEM_MAX_CLASS);
    return status;
}

/* The slower of two links; an unknown link does not count. */
static tandem_link slower_link(tandem_link a, tandem_link b)
{
    if (a.bytes_per_s <= 0) return b;
    if (b.bytes_per_s <= 0) return a;
    return (tandem_link){fmin(a.bytes_per_s, b.bytes_per_s),
                         a.latency_ns > b.latency_ns ? a.latency_ns : b.latency_ns};
}

/* Both clusters are in one network: a link that one text gives holds for both. */
static void share_cluster_links(tandem_cluster *a, tandem_cluster *b)
{
    tandem_cluster *const side[] = {a, b};
    for (int k = 0; k < 2; k++) {
        const tandem_cluster *other = side[1 - k];
        if (side[k]->link_bytes_per_s <= 0) {
            side[k]->link_bytes_per_s = other->link_bytes_per_s;
            side[k]->link_latency_ns = other->link_latency_ns;
        }
        if (side[k]->node.bytes_per_s <= 0) side[k]->node = other->node;
    }
}

static tandem_cluster join_clusters(const tandem_cluster *a, const tandem_cluster *b)
{
    tandem_cluster all = *a;
    memcpy(&all.classes[all.n_class], b->classes, (size_t)b->n_class * sizeof *b->classes);
    all.n_class += b->n_class;
    const tandem_link net = slower_link((tandem_link){a->link_bytes_per_s, a->link_latency_ns},
                                        (tandem_link){b->link_bytes_per_s, b->link_latency_ns});
    all.link_bytes_per_s = net.bytes_per_s;
    all.link_latency_ns = net.latency_ns;
    all.node = slower_link(a->node, b->node);
    return all;
}

static tandem_cluster halve_class(const tandem_cluster *cluster, int c)
{
    tandem_cluster half = *cluster;
    half.classes[c].n_rank /= 2;
    if (half.classes[c].per_node > half.classes[c].n_rank) half.classes[c].per_node = half.classes[c].n_rank;
    return half;
}

/* The clusters in the order of the cases; returns their number. */
static int list_cases(tandem_cluster all[MAX_CASE], const tandem_cluster *a, const tandem_cluster *b)
{
    int n = TANDEM_CASE_SUBSET;
    all[TANDEM_CASE_CURRENT] = *a;
    all[TANDEM_CASE_NEW_ONLY] = *b;
    all[TANDEM_CASE_COMBINED] = join_clusters(a, b);
    for (int c = 0; c < b->n_class && b->n_class > 1; c++) {
        const tandem_cluster part = tandem_cluster_without(b, c);
        all[n++] = join_clusters(a, &part);
    }
    for (int c = 0; c < b->n_class; c++) {
        if (b->classes[c].n_rank < 2) continue;
        const tandem_cluster part = halve_class(b, c);
        all[n++] = join_clusters(a, &part);
    }
    return n;
}

/* --- Cases ---------------------------------------------------------------------------------------------- */

static tandem_status find_cases(tandem_advice *advice, const tandem_allocation_request *request,
                                const tandem_cluster *all, int n, const tandem_advice_listener *listener,
                                tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    advice->candidate = calloc((size_t)n, sizeof *advice->candidate);
    if (!advice->candidate) return tandem_no_memory(error, "for %d clusters", n);
    for (int k = 0; k < n && status == TANDEM_OK; k++) {
        char name[256];
        if (listener)
            listener->next(listener->context, k, n, tandem_candidate_name(name, sizeof name, &all[k]));
        status = tandem_candidate_find(&advice->candidate[k], request, &all[k], error);
        if (status == TANDEM_OK) advice->n++;
    }
    return status;
}

/* The new ranks alone may be impossible; the other two are needed. */
static tandem_status check_cases(const tandem_advice *advice, tandem_error *error)
{
    for (int k = TANDEM_CASE_CURRENT; k <= TANDEM_CASE_COMBINED; k++) {
        const tandem_error *why = &advice->candidate[k].error;
        if (k == TANDEM_CASE_NEW_ONLY || why->status == TANDEM_OK || why->status == TANDEM_INFEASIBLE)
            continue;
        if (error) *error = *why;
        return why->status;
    }
    return TANDEM_OK;
}

static int is_described(const tandem_advice *advice)
{
    for (int k = 0; k < advice->n; k++)
        if (advice->candidate[k].answer.plan &&
            !tandem_time_sources_are_described(&advice->candidate[k].answer.sources))
            return 0;
    return 1;
}

static tandem_status choose_case(tandem_advice *advice, tandem_error *error)
{
    const tandem_status status = check_cases(advice, error);
    if (status != TANDEM_OK) return status;
    advice->by_goodput = tandem_candidates_rate(advice->candidate, advice->n);
    for (int k = 0; k < advice->n; k++)
        if (advice->candidate[k].rate > advice->candidate[advice->best].rate) advice->best = k;
    if (!(advice->candidate[advice->best].rate > 0)) {
        if (error) *error = advice->candidate[TANDEM_CASE_COMBINED].error;
        return advice->candidate[TANDEM_CASE_COMBINED].error.status;
    }
    advice->is_described = is_described(advice);
    tandem_advice_interval_find(&advice->interval, advice->candidate, advice->n, advice->best);
    return TANDEM_OK;
}

static int has_predicted_times(const tandem_time_sources *sources)
{
    for (int c = 0; c < sources->n_class; c++)
        if (sources->of[c].n_task[TANDEM_ORIGIN_PREDICTED]) return 1;
    return 0;
}

static tandem_status check_best_ratios(tandem_advice *advice, const tandem_allocation_request *request,
                                       tandem_error *error)
{
    const tandem_candidate *best = &advice->candidate[advice->best];
    tandem_answer again = {.plan = NULL};
    if (!has_predicted_times(&best->answer.sources) || request->global_batch) return TANDEM_OK;
    tandem_status status = tandem_answer_open_at(&again, request, &best->cluster, error);
    if (status == TANDEM_OK)
        status = tandem_answer_check_ratios(&advice->ratios, again.planner, &again, request, error);
    tandem_answer_close(&again);
    return status;
}

/* --- Public --------------------------------------------------------------------------------------------- */

tandem_status tandem_advise(tandem_advice *out, const tandem_allocation_request *request, const char *add,
                            const tandem_advice_listener *listener, tandem_error *error)
{
    tandem_advice advice = {.candidate = NULL};
    tandem_allocation_request asked = *request;
    tandem_cluster a, b, *all = malloc(MAX_CASE * sizeof *all);
    asked.without_certificate = 1; /* plans are only compared */
    tandem_status status =
        all ? check_question(request, add, error) : tandem_no_memory(error, "for %d clusters", MAX_CASE);
    if (status == TANDEM_OK) status = read_clusters(&a, &b, request, add, error);
    if (status == TANDEM_OK) {
        share_cluster_links(&a, &b);
        status = find_cases(&advice, &asked, all, list_cases(all, &a, &b), listener, error);
    }
    if (status == TANDEM_OK) status = choose_case(&advice, error);
    if (status == TANDEM_OK) status = check_best_ratios(&advice, &asked, error);
    free(all);
    if (status == TANDEM_OK)
        *out = advice;
    else
        tandem_advice_close(&advice);
    return status;
}

void tandem_advice_close(tandem_advice *advice)
{
    for (int k = 0; k < advice->n; k++) tandem_candidate_close(&advice->candidate[k]);
    free(advice->candidate);
    *advice = (tandem_advice){.candidate = NULL};
}
