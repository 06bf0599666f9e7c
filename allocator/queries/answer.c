/* answer.c: the answer to a question: the best plan, and what is reported with it. */
#include "allocator/opening.h"
#include "allocator/queries/goodput.h"
#include "allocator/queries/question.h"

#include <stdio.h>
#include <string.h>

#include "base/append.h"

/* --- At the batches of a planner ------------------------------------------------------------------------ */

/* What is reported with the answer's plan, which stays in the replayer. */
static tandem_status describe_plan(tandem_answer *answer, tandem_planner *planner, tandem_error *error)
{
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    tandem_error why = {0};
    const tandem_plan *plan = answer->plan;
    tandem_status status = tandem_planner_goodput(&answer->goodput, planner, plan, error);
    if (status == TANDEM_OK) status = tandem_planner_replay(&answer->step, planner, plan, error);
    if (status != TANDEM_OK) return status;
    tandem_replayer_sources(replayer, &answer->sources);
    if (tandem_replayer_check_norm(replayer, &why) != TANDEM_OK)
        (void)snprintf(answer->left_out, sizeof answer->left_out, "%s", why.text);
    return TANDEM_OK;
}

static tandem_status check_planner(tandem_planner *planner, const tandem_allocation_request *request,
                                   tandem_error *error)
{
    if (!tandem_planner_problem(planner)->sensitivity[0])
        return tandem_error_set(error, TANDEM_USAGE,
                                "this planner was opened for times only: it has no sensitivities to "
                                "allocate by");
    if (request->global_batch)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a planner has its batches: tandem_answer_open splits a global batch");
    return tandem_allocation_request_check(request, error);
}

tandem_status tandem_planner_ask(tandem_answer *out, tandem_planner *planner,
                                 const tandem_allocation_request *request, tandem_error *error)
{
    tandem_answer answer = {.plan = NULL};
    tandem_allocation_problem *problem = tandem_planner_problem(planner);
    const char *method = tandem_planner_method(planner);
    const tandem_policy *policy = NULL;
    tandem_status status = check_planner(planner, request, error);
    if (status == TANDEM_OK) status = tandem_request_policy(&policy, request, error);
    if (status == TANDEM_OK) status = tandem_question_apply(&answer.goal, problem, request, error);
    if (status == TANDEM_OK)
        status = tandem_allocate_for(&answer.plan, &answer.allocation, &answer.goal, policy, problem, method,
                                     error);
    if (status == TANDEM_OK) status = describe_plan(&answer, planner, error);
    if (status == TANDEM_OK)
        *out = answer;
    else
        tandem_plan_close(answer.plan);
    return status;
}

/* --- At the best batches -------------------------------------------------------------------------------- */

/* Problems at the batches that a search tries. */
typedef struct batch_problems {
    const tandem_allocation_request *request;
    const tandem_cluster *cluster;
    tandem_planner *planner; /* the open one, or NULL */
} batch_problems;

static tandem_status open_at_batches(tandem_planner **planner, const batch_problems *problems,
                                     const int64_t *batch, tandem_error *error)
{
    tandem_cluster cluster = *problems->cluster;
    for (int c = 0; c < cluster.n_class; c++) cluster.classes[c].batch = batch[c];
    return tandem_planner_open_at(planner, &problems->request->of, &cluster, error);
}

static tandem_status open_split_problem(void *context, const int64_t batch[TANDEM_MAX_CLASS],
                                        tandem_allocation_problem **problem, tandem_error *error)
{
    batch_problems *problems = context;
    tandem_goal goal;
    const tandem_status status = open_at_batches(&problems->planner, problems, batch, error);
    if (status != TANDEM_OK) return status;
    *problem = tandem_planner_problem(problems->planner);
    return tandem_question_apply(&goal, *problem, problems->request, error);
}

static void close_split_problem(void *context, tandem_allocation_problem *problem)
{
    batch_problems *problems = context;
    (void)problem;
    tandem_planner_close(problems->planner);
    problems->planner = NULL;
}

/* Micro-steps divide the global batch before it is split. */
static void append_micro_step_hint(tandem_error *error, int n_micro)
{
    if (error && error->status == TANDEM_USAGE && n_micro > 1)
        (void)tandem_append(error->text, sizeof error->text,
                            ". --accumulate %d splits --global-batch into %d micro-steps first", n_micro,
                            n_micro);
}

/* The answer's split, its plan and what was asked for; the caller opens a planner at its batches. */
static tandem_status choose_batches(tandem_answer *answer, batch_problems *problems, tandem_error *error)
{
    const tandem_allocation_request *r = problems->request;
    const tandem_batch_source source = {problems, open_split_problem, close_split_problem};
    const tandem_policy *policy = NULL;
    const char *method = r->of.method ? r->of.method : tandem_sensitivity_get(0)->name;
    const int n_micro = r->of.step.n_micro > 1 ? r->of.step.n_micro : 1;
    tandem_status status = tandem_request_policy(&policy, r, error);
    if (status != TANDEM_OK) return status;
    status = tandem_batch_choose(&answer->split, problems->cluster, r->global_batch / n_micro, &source,
                                 policy, method, r->max_step_ns,
                                 tandem_question_has_slowdown(r) ? r->slowdown : -1, error);
    if (status != TANDEM_OK) {
        append_micro_step_hint(error, n_micro);
        return status;
    }
    answer->plan = answer->split.both.plan;
    answer->allocation = answer->split.both.allocation;
    answer->goal = (tandem_goal){answer->plan->objective, INT64_MAX};
    return TANDEM_OK;
}

static tandem_status split_and_ask(tandem_answer *answer, const tandem_allocation_request *request,
                                   const tandem_cluster *cluster, tandem_error *error)
{
    batch_problems problems = {.request = request, .cluster = cluster};
    tandem_status status = choose_batches(answer, &problems, error);
    if (status == TANDEM_OK)
        status = open_at_batches(&answer->planner, &problems, answer->split.both.batch, error);
    tandem_batch_plan *const of_split[] = {&answer->split.precision_alone, &answer->split.batch_alone,
                                           &answer->split.both};
    for (int k = 0; k < 3 && status == TANDEM_OK; k++)
        if (of_split[k]->plan)
            status = tandem_goodput_find(&of_split[k]->goodput, answer->planner, of_split[k]->plan, error);
    if (status == TANDEM_OK) status = describe_plan(answer, answer->planner, error);
    if (status == TANDEM_OK) answer->split.both.goodput = answer->goodput; /* with the step in fp32 */
    return status;
}

/* --- Public --------------------------------------------------------------------------------------------- */

tandem_status tandem_answer_open_at(tandem_answer *out, const tandem_allocation_request *request,
                                    const tandem_cluster *cluster, tandem_error *error)
{
    tandem_answer answer = {.plan = NULL};
    tandem_planner *planner = NULL;
    tandem_status status;
    if (request->global_batch) {
        status = split_and_ask(&answer, request, cluster, error);
    } else {
        status = tandem_planner_open_at(&planner, &request->of, cluster, error);
        if (status == TANDEM_OK) status = tandem_planner_ask(&answer, planner, request, error);
        answer.planner = planner;
    }
    if (status == TANDEM_OK)
        *out = answer;
    else
        tandem_answer_close(&answer);
    return status;
}

tandem_status tandem_answer_open(tandem_answer *answer, const tandem_allocation_request *request,
                                 tandem_error *error)
{
    tandem_cluster cluster;
    tandem_status status = tandem_allocation_request_check(request, error);
    if (status == TANDEM_OK) status = tandem_request_cluster(&cluster, &request->of, error);
    return status == TANDEM_OK ? tandem_answer_open_at(answer, request, &cluster, error) : status;
}

void tandem_answer_close(tandem_answer *answer)
{
    if (answer->split.n_split)
        tandem_batch_choice_free(&answer->split);
    else
        tandem_plan_close(answer->plan);
    tandem_planner_close(answer->planner);
    *answer = (tandem_answer){.plan = NULL};
}
