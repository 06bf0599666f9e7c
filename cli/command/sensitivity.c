/* sensitivity.c: `tandem sensitivity`: what low precision costs a model, from its real batches. */
#include <string.h>

#include "cli/command/sensitivity.h"

static tandem_status check_sensitivity_options(const cli_options *options, tandem_error *error)
{
    if (!options->data)
        return tandem_error_set(error, TANDEM_USAGE,
                                "no data given. Use e.g. --data fashion-mnist (tandem list datasets)");
    if (strchr(options->device, ','))
        return tandem_error_set(error, TANDEM_USAGE,
                                "sensitivities hold for all devices. Give one device, got --device %s",
                                options->device);
    if (options->sensed_by == CLI_BY_STATISTICS &&
        (options->at || cli_option_given(options, OPTION_REPETITIONS)))
        return tandem_error_set(error, TANDEM_USAGE,
                                "--by statistics and %s contradict each other: statistics are means over the "
                                "first --steps batches",
                                options->at ? "--at" : "--repetitions");
    return TANDEM_OK;
}

static int run_sensitivity(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    int code = 0;
    if (!options.device) options.device = "strongest";
    tandem_status status = check_sensitivity_options(&options, &error);
    if (status == TANDEM_OK && options.sensed_by != CLI_BY_STATISTICS) return sensitivity_sense(&options);
    if (options.steps < 0) options.steps = SENSITIVITY_BATCHES;
    if (status == TANDEM_OK) status = sensitivity_put_statistics(&options, 1, &code, &error);
    return status == TANDEM_OK ? code : cli_fail(&error);
}

static const int options[] = {OPTION_MODEL,       OPTION_SET,   OPTION_LOSS, OPTION_DATA,  OPTION_DEVICE,
                              OPTION_BATCH,       OPTION_STEPS, OPTION_SEED, OPTION_AT,    OPTION_BY,
                              OPTION_REPETITIONS, OPTION_INIT,  OPTION_DB,   OPTION_QUIET, OPTION_END};
const cli_command command_sensitivity = {
    .name = "sensitivity",
    .words = "",
    .summary = "Sense what each precision of each operator costs a model",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem sensitivity --model vit_tiny --data fashion-mnist\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --batch 32 --steps 400 --at 10%,50%,90%\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --by samples     its bias, too\n"
        "Trains in fp32 for --steps steps. At the ages --at of this training it senses what precisions "
        "change of real\n"
        "gradients: more samples to the same loss, in percent. A probe takes the time of some 15 steps an "
        "age for all\n"
        "operators and precisions; it senses noise, and no bias. --by samples takes a hundred times as "
        "long, and knows\n"
        "bias. The store keeps all of it, and statistics of the first 10 batches for --sensitivity fisher "
        "and qsync.\n"
        "It holds for all devices. --device [the strongest one here] only computes it; sensing needs a CPU, "
        "and\n"
        "--by statistics any device.",
    .run = run_sensitivity,
};
