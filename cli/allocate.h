/* allocate.h: what the files of `tandem allocate` share: allocate.c chooses a plan, or hands on to the file
 * of the question that was asked instead. */
#ifndef TANDEM_CLI_ALLOCATE_H
#define TANDEM_CLI_ALLOCATE_H

#include "cli/prediction.h"
#include "cli/prospect.h"

/* A plan for a subject, and what is shown beside it. */
typedef struct allocating {
    const cli_options *options;
    const tandem_policy *policy;
    tandem_precision uniform;
    tandem_goal goal;
    cli_subject subject;
    tandem_planner *planner;
    tandem_allocation_problem *problem; /* the planner's */
    tandem_allocation result;
    tandem_plan *plan;
    double seconds;
    double loss_scale; /* that is in the step; 0 = none */
    tandem_baseline neighbour[TANDEM_N_PRECISION];
    int n_neighbour;
    cli_prospect fewer; /* the best cluster of fewer classes; samples_per_s = 0: none is better */
    int explained;      /* operator; −1 = none */
} allocating;

/* allocate_choices.c: what is asked for, from the options. TANDEM_USAGE names two that contradict each other.
 * */
tandem_status allocate_choose(allocating *a, const cli_options *options, tandem_error *error);
/* A planner for options that have been read, by the limits in them, under the loss scale that a plan is
 * looked for with first. */
tandem_status allocate_open(allocating *a, tandem_error *error);
/* The same planner again, under another loss scale. */
tandem_status allocate_reopen(allocating *a, double loss_scale, tandem_error *error);
void allocate_close(allocating *a);

/* allocate_text.c and allocate_json.c: a plan and its neighbours; they return the exit code. */
int allocate_print_text(allocating *a);
int allocate_print_json(allocating *a);
/* " that keeps cpu:sse41 in fp32": what a proof is about, of a plan's held classes; "" where none is held, or
 * the proof is of all plans. Returns text. */
const char *allocate_print_held(char *text, size_t size, const tandem_plan *plan,
                                const tandem_certificate *certificate);
/* A line that says which loss scale is in the step, and for which gradients; nothing where there is none. */
void allocate_print_loss_scale(double loss_scale, const tandem_plan *plan, const tandem_graph *graph);
/* Adjustable operators of a precision on a class. */
typedef struct allocate_part {
    int n_op;
    double flops_share; /* of the forward pass of adjustable operators */
} allocate_part;
allocate_part allocate_part_of(const allocating *a, int c, tandem_precision precision);
double allocate_samples_per_s(const allocating *a);

/* allocate_explain.c: why one operator has its precision. */
tandem_status allocate_find_explained(allocating *a, tandem_error *error);
int allocate_explain_text(const allocating *a);
json_t *allocate_explain_json(const allocating *a); /* NULL without memory, or where a replay failed */

/* allocate_shortfall.c: `error` says that nothing fits: by how much. Prints; returns the exit code. */
int allocate_shortfall(const allocating *a, const tandem_error *error);

/* allocate_verify.c, allocate_front.c, allocate_batch.c: other questions; they return the exit code. */
int allocate_verify(const cli_options *options);
int allocate_front(allocating *a);
int allocate_batch(allocating *a);

/* allocate_svg.c: the front as a picture, drawn by gnuplot. TANDEM_MISSING says how to install it. */
tandem_status allocate_svg(const tandem_pareto_front *front, const allocating *a, const char *path,
                           tandem_error *error);

#endif
