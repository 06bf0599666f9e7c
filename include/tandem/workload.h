/* workload.h: what runs: a model at the batch of every class of a cluster, and one plan for it. */
#ifndef TANDEM_WORKLOAD_H
#define TANDEM_WORKLOAD_H

#include "tandem/plan.h"

TANDEM_BEGIN_DECLARATIONS

enum { TANDEM_DEFAULT_BATCH = 16 };

/* Zero-initialise it, then fill in what differs. Strings are borrowed during the calls that take it. */
typedef struct tandem_workload_request {
    const char *plan;    /* path of a plan's file: it has the model, the ranks, batches and precisions */
    const char *model;   /* without a plan: "vit_tiny:depth=2"; with one, it must be the plan's */
    const char *cluster; /* without a plan, as tandem_cluster_parse reads it: "cpu:avx2 + cpu:sse41" */
    /* without a plan: one precision for all operators, or one for each class, "fp32,int8"; "random" draws
     * them with the seed. NULL = fp32 */
    const char *uniform;
    const char *memory; /* limit per rank, "12GiB", or per class, "12GiB,4GiB"; NULL = the cluster's */
    uint64_t seed;      /* of "random" */
    int64_t batch; /* samples per rank of classes that name none; 0 = TANDEM_DEFAULT_BATCH. Not with a plan */
    /* number formats in the place of their dtypes, "s4"; "" = each dtype has its own; every device then has
     * every precision, and described ones become the strongest of this machine. NULL = nothing is emulated */
    const char *emulate;
    int wire_is_given; /* 1: gradients travel in `wire`, also where the plan says otherwise */
    tandem_dtype wire;
    /* n_micro, n_recompute_segment, scaling and separate_partial_grads replace the plan's where they are not
     * 0; other members are ignored */
    tandem_step_options step;
    double clip;       /* largest norm of the gradients; 0 = none */
    double loss_scale; /* 0 = the plan's, or a dynamic one where the plan needs one; < 0 = dynamic */
} tandem_workload_request;

/* The model at the batch of every class of its cluster, and one plan. Unused members are NULL. */
typedef struct tandem_workload {
    tandem_cluster cluster; /* with batches and memory limits */
    tandem_graph *graph[TANDEM_MAX_CLASS];
    tandem_plan *plan;
    /* of the request, else of the plan's file, else a dynamic one where the plan needs one; 0 = none, < 0 =
     * dynamic */
    double loss_scale;
    /* "19 of 20 products of b200 lack nvfp4, and have bf16": of `uniform`, one text after the other of the
     * classes; "": none does. An embedding, which multiplies nothing, does not count */
    char lacking[320];
    int scale_is_by_need; /* 1: neither request nor plan's file ask for more than what the plan needs */
} tandem_workload;

/* tandem_workload_open: opens model, cluster and plan of a request; *workload must be all zero. The caller
 * closes it. TANDEM_USAGE: the request contradicts itself, or TANDEM_ALLREDUCE has an unknown value; errors
 * of tandem_plan_read, tandem_cluster_parse and tandem_graph_open. *workload unchanged on error. Cost: a
 * graph per class. */
tandem_status tandem_workload_open(tandem_workload *workload, const tandem_workload_request *request,
                                   tandem_error *error);
void tandem_workload_close(tandem_workload *workload); /* all zero is fine */
/* Whether TANDEM_ALLREDUCE makes ranks of one machine exchange gradients over the network. TANDEM_USAGE:
 * unknown value. */
tandem_status tandem_workload_transport(int *over_network, tandem_error *error);

TANDEM_END_DECLARATIONS
#endif
