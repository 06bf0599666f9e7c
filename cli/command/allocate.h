/* allocate.h: what the files of `tandem allocate` share. allocate.c allocates one plan; each other question
 * has a file. */
#pragma once

#include "cli/prediction.h"
#include "cli/candidate_json.h"
#include "cli/goodput.h"
#include "cli/report_files.h"
#include "tandem/runtime.h"

/* A plan for a workload, and what is printed with it. */
typedef struct allocate_context {
    const cli_options *options;
    tandem_allocation_request request;
    tandem_planner *planner;
    tandem_allocation_problem *problem; /* of the planner */
    tandem_answer answer;
    double seconds;
    tandem_baseline baselines[TANDEM_N_PRECISION];
    int n_baseline;
    tandem_candidate smaller_cluster; /* all zero: none is better */
    int smaller_by_goodput;
    int explained;    /* operator; −1 = none */
    int explains_all; /* --explain all */
    tandem_goodput baseline_goodput[TANDEM_N_PRECISION];
    const tandem_estimate *estimate; /* of the planner; NULL = the model has no estimate */
    int has_whole;                   /* --data: the plan was estimated as a whole */
    tandem_plan_estimate whole;
    tandem_ratio_check ratios;
} allocate_context;

/* allocate_options.c: the question of the options. TANDEM_USAGE names two that contradict each other. */
tandem_status allocate_read_options(allocate_context *a, const cli_options *options, tandem_error *error);
/* Opens a planner for it. */
tandem_status allocate_open(allocate_context *a, tandem_error *error);
/* A note where plans are left out because the time of the norm that they need is not known. */
void allocate_note_left_out(const allocate_context *a);
void allocate_close(allocate_context *a);
/* Units in the unit of the method; NaN where they are unknown. */
double allocate_value(const allocate_context *a, int64_t sensitivity);
/* The same with the digits that the sensitivity of its plan allows. */
tandem_quantity allocate_sum(const allocate_context *a, const tandem_goodput *goodput, int64_t sensitivity);

/* allocate_text.c prints a plan and its baselines, and returns the exit code; allocate_json.c makes an object
 * of them, which the caller owns. */
int allocate_print_text(allocate_context *a);
json_t *allocate_result_json(const allocate_context *a);
/* " with cpu:sse41 in fp32": the plans that a bound covers; "" if no class keeps the base precision. Returns
 * text. */
const char *allocate_print_pinned(char *text, size_t size, const tandem_plan *plan, unsigned keeps_base);
/* The devices of these classes: those that keep the base precision. */
json_t *allocate_kept_json(const tandem_plan *plan, unsigned keeps_base);
/* One line about the loss scale in the step and the gradients that need it; nothing without a loss scale. */
void allocate_print_loss_scale(double loss_scale, const tandem_plan *plan, const tandem_graph *graph);
/* Adjustable operators of one precision on one class. */
typedef struct precision_share {
    int n_op;
    double flops_share; /* share of the forward FLOPs of adjustable operators */
} precision_share;
precision_share allocate_precision_share(const allocate_context *a, int c, tandem_precision precision);

/* allocate_explain.c: why operators have their precisions. */
tandem_status allocate_find_explained(allocate_context *a, tandem_error *error);
int allocate_explain_text(const allocate_context *a);
json_t *allocate_explain_json(const allocate_context *a); /* NULL without memory, or if a replay failed */
/* The same for every adjustable operator, in an array. Cost: a replay per operator, class and precision. */
json_t *allocate_explain_all_json(const allocate_context *a);

/* allocate_whole.c: with --data, estimates the plan as a whole, unless it rounds nothing.
 * TANDEM_LIMIT_EXCEEDED: it is not to be trusted, and --beyond-limits is not given; the error names
 * operators, and a smaller --max-sensitivity with which the plan is, where it finds one. */
tandem_status allocate_estimate_whole(allocate_context *a, tandem_error *error);

/* allocate_infeasible.c: prints how much memory is missing, after `error`. Returns the exit code. */
int allocate_explain_infeasible(const allocate_context *a, const tandem_error *error);

/* allocate_verify.c, allocate_pareto.c, allocate_batch.c: other questions. They return the exit code. */
int allocate_verify(const cli_options *options);
int allocate_pareto(allocate_context *a);
int allocate_batch(allocate_context *a);
