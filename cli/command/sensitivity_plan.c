/* sensitivity_plan.c: `tandem sensitivity --plan`: what a plan does as a whole. */
#include "cli/command/sensitivity.h"

#include "cli/whole_plan.h"

static tandem_status check_plan_options(const cli_options *options, tandem_error *error)
{
    static const int foreign[] = {OPTION_BY, OPTION_DB};
    static const char *const name[] = {"--by", "--db"};
    for (size_t k = 0; k < sizeof foreign / sizeof *foreign; k++)
        if (cli_option_given(options, foreign[k]))
            return tandem_error_set(
                error, TANDEM_USAGE,
                "%s and %s contradict each other: a plan as a whole is estimated by samples, "
                "and not stored",
                name[k], options->plan ? "--plan" : "--uniform");
    return TANDEM_OK;
}

int cli_estimate_plan(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    tandem_plan_estimate estimate = {.steps = 0};
    const int64_t n = cli_option_given(&options, OPTION_REPETITIONS) ? options.repetitions : 0;
    if (!options.plan && !options.device) cli_set_device(&options, "strongest");
    tandem_plan_estimate_request request = {
        .listener = cli_listener(&options),
        .data = options.data,
        .steps = options.steps < 0 ? 0 : options.steps,
        .at = options.at,
        .n_replicate = (int)(n > TANDEM_MAX_REPLICATE ? TANDEM_MAX_REPLICATE + 1 : n),
        .init = options.init,
        .has_training = 1,
        .training = cli_training_options(&options)};
    tandem_status status = check_plan_options(&options, &error);
    if (status == TANDEM_OK) status = cli_workload_request(&request.workload, &options, &error);
    if (status == TANDEM_OK) status = tandem_plan_estimate_measure(&estimate, &request, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    cli_progress_end();
    if (!options.json) {
        whole_plan_print(&estimate);
        return 0;
    }
    json_t *const json = cli_json_new("plan_estimate");
    json_object_update_new(json, whole_plan_json(&estimate));
    return cli_print_json(json);
}
