/* candidate_cluster.h: the best plan of a model on a cluster, to compare clusters. */
#pragma once

#include "cli/goodput.h"
#include "cli/prediction.h"
#include "tandem/planner.h"

typedef struct candidate_cluster {
    tandem_cluster cluster;
    char name[256];                /* its devices, cut to fit */
    char model[TANDEM_MODEL_NAME]; /* canonical; "" without a plan */
    /* TANDEM_OK, or why there is no plan: TANDEM_MISSING, TANDEM_INFEASIBLE, TANDEM_USAGE (the split) */
    tandem_error error;
    int64_t samples;                   /* per step of all ranks, micro-steps included */
    double rate;                       /* what clusters are compared by; candidate_clusters_rate sets it */
    uint64_t peak_bytes;               /* the largest of all ranks */
    int64_t busy_ns[TANDEM_MAX_CLASS]; /* of a rank in a step */
    tandem_allocation allocation;
    double loss_scale;           /* of the plan, included in the step; 0 = none */
    tandem_time_sources sources; /* of the step's times */
    tandem_goodput goodput;      /* all zero without a plan */
    double sensitivity_bound;    /* the allocator's sum, in the unit of the method */
} candidate_cluster;

/* candidate_cluster_find: the best plan by `policy` within --slowdown, or without one that with the most
 * samples/s in fp32's worth, for the model, base precision and sensitivity of the options. The cluster's
 * classes have their batches; --batch auto replaces them by the best split of --global-batch. A missing cost,
 * an infeasible limit or an impossible split is no error: candidate->error says it. */
tandem_status candidate_cluster_find(candidate_cluster *candidate, const cli_options *options,
                                     const tandem_cluster *cluster, const tandem_policy *policy,
                                     tandem_error *error);
/* candidate_clusters_rate: sets rate of n candidates: samples/s in fp32's worth where the price of each plan
 * is known, and then returns 1; else samples/s. 0 without a plan. */
int candidate_clusters_rate(candidate_cluster *candidate, int n);
/* Devices and ranks of a cluster, without limits and batches, cut to fit. Returns name. */
const char *candidate_cluster_name(char *name, size_t size, const tandem_cluster *cluster);
/* "dynamic", a number as text, or null. */
json_t *cli_loss_scale_json(double loss_scale);
json_t *candidate_cluster_json(const candidate_cluster *candidate);

/* What cli_batch_source needs to open an allocation problem for the batches that tandem_batch_choose tries.
 * */
typedef struct cli_batch_context {
    const cli_options *options;
    const tandem_cluster *cluster;
    int without_certificate;
    tandem_planner *planner; /* the open one, or NULL */
} cli_batch_context;
tandem_batch_source cli_batch_source(cli_batch_context *batches);
/* "16 + 8": batches of n classes. Returns text. */
const char *cli_batch_list_print(char *text, size_t size, const int64_t *batch, int n_class);

/* The cluster without class c. */
tandem_cluster cli_cluster_without(const tandem_cluster *cluster, int c);
