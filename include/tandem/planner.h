/* planner.h: from a profile store and the name of a cluster to a plan, in a few calls: what a job scheduler or another
 * program needs of tandem. Everything it opens it closes itself. */
#ifndef TANDEM_PLANNER_H
#define TANDEM_PLANNER_H

#include "tandem/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to plan. Strings are borrowed during the call only. Zero-initialise, then fill what differs. */
typedef struct tandem_request {
    const char *store;     /* path of the profile store */
    const char *model;     /* "bert_base:layers=4,seq=128" */
    const char *cluster;   /* as for tandem_cluster_parse */
    int64_t batch;         /* local batch of classes that name none; 0 = 16 */
    const char *memory;    /* limit a rank, "12GiB", or one for each class, "12GiB,4GiB"; NULL = the cluster's */
    const char *method;    /* sensitivity; NULL = "fisher" */
    const char *data;      /* statistics of which data set; NULL = any */
    const char *base;      /* precision to depart from; NULL = "fp32" */
    uint64_t bucket_bytes; /* 0 = 25 MiB */
    int predict;           /* 1: times that were not measured are predicted where they can be (predictor.h) */
} tandem_request;

/* A model on a cluster with its costs and sensitivities, ready to allocate. */
typedef struct tandem_planner tandem_planner;

/* tandem_planner_open: parse, open the graphs, load costs and sensitivities. TANDEM_USAGE, TANDEM_UNKNOWN_NAME,
 * TANDEM_MISSING (what, and the command that measures it), what the store says. *planner unchanged on error.
 * Distinct planners may be used by distinct threads at once, over one store file too; one planner by one at a time. */
tandem_status tandem_planner_open(tandem_planner **planner, const tandem_request *request, tandem_error *error);
void tandem_planner_close(tandem_planner *planner); /* NULL is fine */

/* Belong to the planner. The problem's fields beside replayer, graph and harm are the caller's to set. */
tandem_allocation_problem *tandem_planner_problem(tandem_planner *planner);
const tandem_graph *tandem_planner_graph(const tandem_planner *planner, int c);
const tandem_cluster *tandem_planner_cluster(const tandem_planner *planner);
const char *tandem_planner_method(const tandem_planner *planner);

/* tandem_planner_allocate: run the policy named (NULL = the default) on the planner's problem: tandem_allocate.
 * *plan: the caller closes it. */
tandem_status tandem_planner_allocate(tandem_plan **plan, tandem_allocation *allocation, tandem_planner *planner,
                                      const char *policy, tandem_error *error);

#ifdef __cplusplus
}
#endif
#endif
