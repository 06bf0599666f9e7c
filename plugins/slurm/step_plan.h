/* step_plan.h: what a user's options ask of the planner for the nodes of a step; needs no header of Slurm.
 * Private to plugins/slurm. */
#pragma once

#include "plugins/slurm/layout.h"
#include "tandem/planner.h"

typedef enum tandem_spank_option {
    TANDEM_SPANK_MODEL,
    TANDEM_SPANK_BATCH,
    TANDEM_SPANK_DB,
    TANDEM_SPANK_MEMORY,
    TANDEM_SPANK_SLOWDOWN,
    TANDEM_SPANK_BASE,
    TANDEM_SPANK_POLICY,
    TANDEM_SPANK_PLAN,
    TANDEM_SPANK_METHOD,
    TANDEM_SPANK_MAX_SENSITIVITY,
    TANDEM_SPANK_MINIMIZE,
    TANDEM_SPANK_MAX_STEP,
    TANDEM_SPANK_GLOBAL_BATCH,
    TANDEM_N_SPANK_OPTION
} tandem_spank_option;

/* Whether an option takes the value. name: the option's, without "--". TANDEM_USAGE, TANDEM_UNKNOWN_NAME. */
tandem_status tandem_step_check_option(tandem_spank_option option, const char *name, const char *text,
                                       tandem_error *error);

/* A question, and the text of its cluster. It borrows the options. */
typedef struct tandem_step_question {
    tandem_allocation_request request;
    char cluster[TANDEM_LAYOUT_TEXT];
} tandem_step_question;

/* tandem_step_ask: the question of the options for these nodes, which have tasks. Times of described devices
 * are predicted: they cannot have been measured.
 *   given  [TANDEM_N_SPANK_OPTION] texts; NULL = not given. Those of a store and a plan are not read
 *   net    of the site; "" = none
 *   store  path
 * TANDEM_USAGE: options that contradict each other, or more classes than a cluster has; a bad value. The
 * question must stay where it is. */
tandem_status tandem_step_ask(tandem_step_question *question, const char *const *given,
                              const tandem_node *node, int n_node, const char *net, const char *store,
                              tandem_error *error);

/* Whether the plan of an earlier step answers the question: the same model, cluster, method, base precision,
 * policy (any, where the question names none), objective and limits. graph: of the plan. */
int tandem_step_plan_answers(const tandem_plan *plan, const tandem_graph *graph,
                             const tandem_allocation_request *request);
