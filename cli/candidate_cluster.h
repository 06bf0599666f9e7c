/* candidate_cluster.h: what a cluster would make of a model, each class at its best plan. */
#ifndef TANDEM_CLI_CANDIDATE_CLUSTER_H
#define TANDEM_CLI_CANDIDATE_CLUSTER_H

#include "cli/prediction.h"
#include "tandem/planner.h"

typedef struct candidate_cluster {
    tandem_cluster cluster;
    char name[256]; /* its devices, cut to fit */
    /* TANDEM_OK, or why there is no plan: TANDEM_MISSING, TANDEM_INFEASIBLE, TANDEM_USAGE (the split) */
    tandem_error error;
    int64_t samples;      /* of a step of all ranks, micro-steps included */
    double samples_per_s; /* 0 where there is no plan */
    uint64_t peak_bytes;  /* of the rank that takes most */
    tandem_allocation allocation;
    /* that is in the step: of the options, else dynamic where the plan has gradients in f16; 0 = none */
    double loss_scale;
    int has_f16;              /* gradients, in the plan */
    cli_cost_sources sources; /* of the step */
} candidate_cluster;

/* The best plan by a policy within --slowdown on a cluster whose classes have their batch, for the model,
 * base and sensitivity of the options; with --batch auto at the best split of --global-batch, which then
 * stands in the cluster. That a cost is missing, nothing fits, or the batch cannot be split is no error, but
 * in `lacks`. */
tandem_status candidate_cluster_find(candidate_cluster *candidate, const cli_options *options,
                                     const tandem_cluster *cluster, const tandem_policy *policy,
                                     tandem_error *error);
/* Devices and ranks of a cluster, without limits and batches; cut to fit. Returns name. */
const char *candidate_cluster_name(char *name, size_t size, const tandem_cluster *cluster);
/* What to do of a plan that needs a loss scale, whose cost was not measured. */
#define CLI_UNMEASURED_LOSS_SCALE                                                                            \
    "its cost was not measured (tandem profile --loss-scale dynamic) and is not in the step; train with"
/* The loss scale of the first plan: that of the options, else dynamic where the cluster may have gradients in
 * f16. */
double cli_loss_scale_first(const cli_options *options, const tandem_cluster *cluster);
/* Makes a plan with this loss scale in its step; *has_f16: whether the plan has gradients in f16. */
typedef tandem_status cli_plan_with_scale(void *context, double loss_scale, int *has_f16,
                                          tandem_error *error);
/* cli_plan_scaled: a plan whose step has the loss scale that the plan needs, and no other: its cost changes
 * the plan. Without --loss-scale it tries cli_loss_scale_first, then none where the plan has no gradients in
 * f16 or the cost of scaling is missing. */
tandem_status cli_plan_scaled(cli_plan_with_scale *plan, void *context, const cli_options *options,
                              const tandem_cluster *cluster, tandem_error *error);
/* "dynamic", a number as text, or null. */
json_t *cli_loss_scale_json(double loss_scale);
json_t *candidate_cluster_json(const candidate_cluster *candidate);

/* Allocation problems of a model on a cluster at batches that tandem_batch_choose picks, by the options. */
typedef struct cli_batch_context {
    const cli_options *options;
    const tandem_cluster *cluster;
    int without_certificate, with_norm; /* with_norm: steps have what a loss scale costs */
    tandem_planner *planner;            /* the one that is open; begins NULL */
} cli_batch_context;
tandem_batch_source cli_batch_source(cli_batch_context *batches);
/* "16 + 8": batches of n classes. Returns text. */
const char *cli_batch_list_print(char *text, size_t size, const int64_t *batch, int n_class);

/* The cluster without class c. */
tandem_cluster cli_cluster_without(const tandem_cluster *cluster, int c);
/* Samples that all ranks take together, in a step that has no micro-steps. */
int64_t cli_cluster_samples(const tandem_cluster *cluster);

#endif
