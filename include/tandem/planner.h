/* planner.h: from a profile store and the name of a cluster to a plan, in a few calls: what a job scheduler
 * or another program needs of tandem. docs/examples/ has programs that use it.
 *
 * Distinct planners may be used by distinct threads at once, over one store file, too; one planner by one at
 * a time. */
#ifndef TANDEM_PLANNER_H
#define TANDEM_PLANNER_H

#include "tandem/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { TANDEM_DEFAULT_BATCH = 16 };

/* What to plan. Strings are borrowed during the call only. Zero-initialise, then fill what differs. */
typedef struct tandem_request {
    const char *store; /* path of the profile store */
    const char *model; /* "bert_base:layers=4,seq=128" */
    /* as for tandem_cluster_parse; of a tandem_cluster at hand: what tandem_cluster_print writes */
    const char *cluster;
    int64_t batch;      /* local batch of classes that name none; 0 = TANDEM_DEFAULT_BATCH */
    const char *memory; /* limit a rank, "12GiB", or one for each class, "12GiB,4GiB"; NULL = the cluster's */
    const char *method; /* sensitivity; NULL = the first of tandem_sensitivity_get */
    const char *data;   /* statistics of which data set; NULL = of the one measured last */
    const char *base_precision; /* precision to depart from; NULL = "fp32" */
    uint64_t bucket_bytes;      /* 0 = 25 MiB */
    /* 1: times that were not measured are predicted where they can be (predictor.h); with times_only a
     * missing store is one that holds nothing */
    int predict;
    tandem_collective_algorithm collective; /* of all-reduces without a measured curve; 0 = a ring */
    int times_only; /* 1: sensitivities are not loaded: enough to replay plans, too little to allocate one */
    int over_network; /* 1: ranks of one machine exchange gradients over the network, too (cluster.h) */
    /* micro-steps, recomputation: of the plans that are replayed, and of those that are made */
    tandem_step_options step;
} tandem_request;

/* A model on a cluster with its costs and sensitivities, ready to allocate. */
typedef struct tandem_planner tandem_planner;

/* tandem_planner_open: parse, open the graphs, load costs and sensitivities; the store is closed again.
 * TANDEM_USAGE, TANDEM_UNKNOWN_NAME, TANDEM_MISSING (what, and the command that measures it), errors of
 * tandem_cluster_parse, tandem_graph_open and tandem_store_open. *planner unchanged on error.
 * Cost: that of a graph and a step program a class, and one look into the store for each of their costs. */
tandem_status tandem_planner_open(tandem_planner **planner, const tandem_request *request,
                                  tandem_error *error);

/* tandem_planner_open_for: the same for a cluster and graphs that the caller has: all classes have their
 * batch, graph[c] is the model at that of class c. The graphs are borrowed while the planner lives; model,
 * cluster, batch and memory of the request are not looked at. */
tandem_status tandem_planner_open_for(tandem_planner **planner, const tandem_request *request,
                                      const tandem_cluster *cluster, const tandem_graph *const *graph,
                                      tandem_error *error);
void tandem_planner_close(tandem_planner *planner); /* NULL is fine */

/* Belong to the planner. The problem's fields beside replayer, graph and harm are the caller's to set; harm
 * is NULL with times_only. */
tandem_allocation_problem *tandem_planner_problem(tandem_planner *planner);
const tandem_graph *tandem_planner_graph(const tandem_planner *planner, int c);
const tandem_cluster *tandem_planner_cluster(const tandem_planner *planner);
const char *tandem_planner_method(const tandem_planner *planner); /* of the sensitivities */

/* tandem_planner_allocate: tandem_allocate with the policy named (NULL = the first of tandem_policy_get) on
 * the planner's problem. *plan: the caller closes it. TANDEM_UNKNOWN_NAME; TANDEM_USAGE with times_only. */
tandem_status tandem_planner_allocate(tandem_plan **plan, tandem_allocation *allocation,
                                      tandem_planner *planner, const char *policy, tandem_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
