/* allocate.h: what the files of `tandem allocate` share: allocate.c chooses a plan, or hands on to the file
 * of the question that was asked instead. */
#ifndef TANDEM_CLI_ALLOCATE_H
#define TANDEM_CLI_ALLOCATE_H

#include "cli/prediction.h"
#include "cli/candidate_cluster.h"

/* A plan for a subject, and what is shown beside it. */
typedef struct allocate_context {
    const cli_options *options;
    const tandem_policy *policy;
    tandem_precision uniform;
    tandem_goal goal;
    cli_workload workload;
    tandem_planner *planner;
    tandem_allocation_problem *problem; /* the planner's */
    tandem_allocation result;
    tandem_plan *plan;
    double seconds;
    double loss_scale; /* that is in the step; 0 = none */
    tandem_baseline baselines[TANDEM_N_PRECISION];
    int n_baseline;
    /* the best cluster of fewer classes; samples_per_s = 0: none is better */
    candidate_cluster smaller_cluster;
    int explained; /* operator; −1 = none */
} allocate_context;

/* allocate_options.c: what is asked for, from the options. TANDEM_USAGE names two that contradict each other.
 * */
tandem_status allocate_read_options(allocate_context *a, const cli_options *options, tandem_error *error);
/* A planner for options that have been read, by the limits in them, under the loss scale that a plan is
 * looked for with first. */
tandem_status allocate_open(allocate_context *a, tandem_error *error);
/* The same planner again, under another loss scale. */
tandem_status allocate_reopen(allocate_context *a, double loss_scale, tandem_error *error);
void allocate_close(allocate_context *a);

/* allocate_text.c and allocate_json.c: a plan and its neighbours; they return the exit code. */
int allocate_print_text(allocate_context *a);
int allocate_print_json(allocate_context *a);
/* " that keeps cpu:sse41 in fp32": what a proof is about, of a plan's held classes; "" where none is held, or
 * the proof is of all plans. Returns text. */
const char *allocate_print_pinned(char *text, size_t size, const tandem_plan *plan,
                                  const tandem_certificate *certificate);
/* A line that says which loss scale is in the step, and for which gradients; nothing where there is none. */
void allocate_print_loss_scale(double loss_scale, const tandem_plan *plan, const tandem_graph *graph);
/* Adjustable operators of a precision on a class. */
typedef struct precision_share {
    int n_op;
    double flops_share; /* of the forward pass of adjustable operators */
} precision_share;
precision_share allocate_precision_share(const allocate_context *a, int c, tandem_precision precision);
double allocate_samples_per_s(const allocate_context *a);

/* allocate_explain.c: why one operator has its precision. */
tandem_status allocate_find_explained(allocate_context *a, tandem_error *error);
int allocate_explain_text(const allocate_context *a);
json_t *allocate_explain_json(const allocate_context *a); /* NULL without memory, or where a replay failed */

/* allocate_infeasible.c: `error` says that nothing fits: by how much. Prints; returns the exit code. */
int allocate_explain_infeasible(const allocate_context *a, const tandem_error *error);

/* allocate_verify.c, allocate_pareto.c, allocate_batch.c: other questions; they return the exit code. */
int allocate_verify(const cli_options *options);
int allocate_pareto(allocate_context *a);
int allocate_batch(allocate_context *a);

/* allocate_svg.c: the front as a picture, drawn by gnuplot. TANDEM_MISSING says how to install it. */
tandem_status allocate_svg(const tandem_pareto_front *pareto, const allocate_context *a, const char *path,
                           tandem_error *error);

#endif
