/* allocate_options.c: checks the options of `tandem allocate` and opens its planner. */
#include <math.h>
#include <string.h>

#include "cli/command/allocate.h"

/* Each kind of answer is asked for alone, and some exclude limits. Limits that exclude each other:
 * tandem_allocation_request_check. */
static tandem_status check_option_conflicts(const cli_options *o, tandem_error *error)
{
    const int front = o->pareto > 0;
    const struct option_conflict {
        int first, second;
        const char *names, *why;
    } conflicts[] = {
        {o->batch_auto, front, "--batch auto and --pareto contradict each other",
         "a Pareto front has one batch"},
        {o->batch_auto, o->explain != NULL, "--batch auto and --explain contradict each other",
         "write the plan, then explain with its batches"},
        {front, o->max_step_ns > 0, "--pareto and --max-step contradict each other",
         "a Pareto front covers all step times"},
        {front, o->slowdown >= 0, "--pareto and --slowdown contradict each other",
         "a Pareto front covers all step times"},
        {front, o->max_sensitivity >= 0, "--pareto and --max-sensitivity contradict each other",
         "a Pareto front covers all step times"},
        {front, o->minimize != TANDEM_MINIMIZE_OPEN, "--pareto and --minimize contradict each other",
         "a Pareto front covers all step times"},
        {front, o->explain != NULL, "--pareto and --explain contradict each other",
         "a Pareto front has many plans"},
        {front, o->output != NULL, "--pareto and --output contradict each other",
         "a Pareto front has many plans. --max-step selects one"},
        {o->batch_auto, o->report != NULL, "--batch auto and --report contradict each other",
         "write the plan for these batches, with --report"},
        {o->batch_auto, o->global_batch == 0, "--batch auto without --global-batch",
         "give the samples per step"},
        {o->data != NULL, front, "--pareto and --data contradict each other",
         "a Pareto front has many plans. `tandem sensitivity --plan FILE` estimates one as a whole"},
        {o->data != NULL, o->batch_auto, "--batch auto and --data contradict each other",
         "write the plan, then `tandem sensitivity --plan FILE` estimates it as a whole"},
        {o->beyond_limits, o->data == NULL, "--beyond-limits without --data",
         "only a plan that is estimated as a whole has limits"},
        {o->global_batch > 0, !o->batch_auto, "--global-batch without --batch auto", "it needs --batch auto"},
    };
    for (size_t k = 0; k < sizeof conflicts / sizeof *conflicts; k++)
        if (conflicts[k].first && conflicts[k].second)
            return tandem_error_set(error, TANDEM_USAGE, "%s: %s", conflicts[k].names, conflicts[k].why);
    return TANDEM_OK;
}

tandem_status allocate_read_options(allocate_context *a, const cli_options *options, tandem_error *error)
{
    *a = (allocate_context){.options = options, .explained = -1};
    tandem_status status = cli_allocation_request(&a->request, options, error);
    if (status == TANDEM_OK) status = check_option_conflicts(options, error);
    return status == TANDEM_OK ? tandem_allocation_request_check(&a->request, error) : status;
}

tandem_status allocate_open(allocate_context *a, tandem_error *error)
{
    const tandem_status status = tandem_planner_open(&a->planner, &a->request.of, error);
    if (status != TANDEM_OK) return status;
    a->problem = tandem_planner_problem(a->planner);
    return TANDEM_OK;
}

void allocate_note_left_out(const allocate_context *a)
{
    if (a->answer.left_out[0])
        cli_note(
            a->options,
            "plans whose gradients are f16 are left out: the time of the norm that they need is not known. "
            "%s",
            a->answer.left_out);
}

tandem_quantity allocate_sum(const allocate_context *a, const tandem_goodput *goodput, int64_t sensitivity)
{
    return goodput_sum(goodput, tandem_planner_method(a->planner), allocate_value(a, sensitivity));
}

double allocate_value(const allocate_context *a, int64_t sensitivity)
{
    return tandem_sensitivity_value(a->problem, sensitivity);
}

void allocate_close(allocate_context *a)
{
    tandem_candidate_close(&a->smaller_cluster);
    tandem_answer_close(&a->answer);
    tandem_planner_close(a->planner);
}
