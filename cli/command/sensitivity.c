/* sensitivity.c: `tandem sensitivity`: what low precision costs a model, from its real batches. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/sensitivity.h"
#include "cli/sensitivity_json.h"
#include "cli/table.h"
#include "tandem/advanced/predictor.h"

/* --- Text ----------------------------------------------------------------------------------------------- */

/* Of a precision: the sum over operators, and the operator that needs most. */
static void append_precision_sum(char *text, size_t size, const tandem_sensitivity_result *result,
                                 const tandem_graph *graph, tandem_precision precision)
{
    const tandem_operator_sensitivity *largest = NULL;
    double sum = 0, variance = 0;
    for (int k = 0; k < result->n_row; k++) {
        const tandem_operator_sensitivity *row = &result->row[k];
        if (row->precision != precision) continue;
        const double half = fmax(row->high - row->value, row->value - row->low);
        sum += row->value;
        variance += half * half;
        if (!largest || row->value > largest->value) largest = row;
    }
    if (!largest) return;
    (void)tandem_append(
        text, size, "%s%s %s%% (%s most)", *text ? "; " : "", tandem_precision_get(precision)->name,
        tandem_quantity_known_to(100 * sum, 100 * sqrt(variance)).text, graph->op[largest->op].name);
}

static void print_sensitivity_answer(const tandem_sensitivity_result *result, const tandem_graph *graph)
{
    char text[1024] = "";
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        append_precision_sum(text, sizeof text, result, graph, (tandem_precision)p);
    answer_line("extra samples", "sums over all operators: %s", text);
    answer_line("estimated", "at %lld samples per step; a plan converts to its own",
                (long long)result->batch);
    putchar('\n');
}

/* In percent; the bias as "unknown" where it is. */
static int print_sensitivities(const tandem_sensitivity_result *result, const tandem_graph *graph)
{
    cli_table table = {0};
    print_sensitivity_answer(result, graph);
    cli_table_row(
        &table, "operator\tprecision\t>extra samples %%\t>95 %% interval\t>noise\t>bias\t>at the last point");
    for (int k = 0; k < result->n_row; k++) {
        const tandem_operator_sensitivity *row = &result->row[k];
        const double half = 100 * fmax(row->high - row->value, row->value - row->low);
#define ESTIMATED(share) tandem_quantity_known_to(100 * (share), half).text
        cli_table_row(&table, "%s\t%s\t%s\t%s to %s\t%s\t%s\t%s", graph->op[row->op].name,
                      tandem_precision_get(row->precision)->name, ESTIMATED(row->value), ESTIMATED(row->low),
                      ESTIMATED(row->high), ESTIMATED(row->noise),
                      isfinite(row->bias) ? ESTIMATED(row->bias) : "unknown",
                      ESTIMATED(row->at_point[result->n_point - 1]));
#undef ESTIMATED
    }
    return cli_table_finish(&table);
}

static int print_statistics(const tandem_sensitivity_result *result, const tandem_graph *graph)
{
    printf("%-28s %-10s %14s %14s\n", "operator", "precision", "fisher (nats)", "qsync");
    for (int k = 0; k < result->n_row; k++) {
        const tandem_operator_sensitivity *row = &result->row[k];
        printf("%-28s %-10s", graph->op[row->op].name, tandem_precision_get(row->precision)->name);
        for (int m = 0; m < result->n_method; m++)
            printf(" %14s", tandem_quantity_known_to(row->method[m], NAN).text);
        putchar('\n');
    }
    return 0;
}

/* --- The command ---------------------------------------------------------------------------------------- */

static int print_sensitivity(const tandem_sensitivity_result *result, const cli_options *options)
{
    tandem_error error = {0};
    tandem_graph *graph = NULL;
    if (tandem_graph_open(&graph, result->model, result->batch, &error) != TANDEM_OK) return cli_fail(&error);
    cli_progress_end();
    const int code = options->json      ? cli_print_json(cli_sensitivity_json(result, graph))
                     : result->n_method ? print_statistics(result, graph)
                                        : print_sensitivities(result, graph);
    tandem_graph_close(graph);
    return code;
}

static tandem_status make_sensitivity_request(tandem_sensitivity_request *request, const cli_options *options,
                                              tandem_error *error)
{
    const int64_t n = cli_option_given(options, OPTION_REPETITIONS) ? options->repetitions : 0;
    *request = (tandem_sensitivity_request){
        .listener = cli_listener(options),
        .store = options->db,
        .data = options->data,
        .way = (tandem_sensitivity_way)options->estimated_by,
        .steps = options->steps < 0 ? 0 : options->steps,
        .at = options->at,
        .n_replicate = (int)(n > TANDEM_MAX_REPLICATE ? TANDEM_MAX_REPLICATE + 1 : n),
        .init = options->init,
        .has_training = 1,
        .training = cli_training_options(options)};
    return cli_workload_request(&request->workload, options, error);
}

static int run_sensitivity(const cli_options *given)
{
    cli_options options = *given;
    tandem_error error = {0};
    tandem_sensitivity_request request;
    tandem_sensitivity_result result = {.n_row = 0};
    if (options.plan || options.uniform) return cli_estimate_plan(&options);
    if (options.emulate)
        return cli_fail_with(TANDEM_USAGE,
                             "--emulate needs a plan to estimate as a whole: give --plan FILE, or "
                             "--uniform PRECISION");
    if (!options.device) cli_set_device(&options, "strongest");
    tandem_status status = make_sensitivity_request(&request, &options, &error);
    if (status == TANDEM_OK) status = tandem_sensitivity_measure(&result, &request, &error);
    const int code = status == TANDEM_OK ? print_sensitivity(&result, &options) : cli_fail(&error);
    tandem_sensitivity_result_free(&result);
    return code;
}

static const int options[] = {
    OPTION_MODEL,           OPTION_SET,         OPTION_LOSS,  OPTION_DATA,     OPTION_DEVICE, OPTION_BATCH,
    OPTION_STEPS,           OPTION_SEED,        OPTION_AT,    OPTION_BY,       OPTION_PLAN,   OPTION_UNIFORM,
    OPTION_EMULATE,         OPTION_REPETITIONS, OPTION_INIT,  OPTION_DB,       OPTION_QUIET,  OPTION_RATE,
    OPTION_SCHEDULE,        OPTION_WARMUP,      OPTION_DECAY, OPTION_MOMENTUM, OPTION_BETAS,  OPTION_NO_DECAY,
    OPTION_LABEL_SMOOTHING, OPTION_THREADS,     OPTION_END};
const cli_command command_sensitivity = {
    .name = "sensitivity",
    .words = "",
    .summary = "Estimate what each precision of each operator costs a model",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem sensitivity --model vit_tiny --data fashion-mnist\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --batch 32 --steps 400 --at 10%,50%,90%\n"
        "  tandem sensitivity --model mlp --data fashion-mnist --by samples     its bias, too\n"
        "  tandem sensitivity --plan plan.json --data fashion-mnist             the plan as a whole\n"
        "  tandem sensitivity --model gpt_tiny --data shakespeare.txt --uniform int8 --emulate=nvfp4\n"
        "Trains in fp32 for --steps steps. At the training points --at it estimates what precisions "
        "change of real\n"
        "gradients: more samples to the same loss, in percent. A probe takes the time of some 15 steps a "
        "point for all\n"
        "operators and precisions; it estimates noise, and no bias. --by samples takes a hundred times as "
        "long, and knows\n"
        "bias. The store keeps all of it, and statistics of the first 10 batches for --sensitivity fisher "
        "and qsync.\n"
        "It holds for all devices. --device [the strongest one here] only computes it; an estimate needs a "
        "CPU,\nand --by statistics any device.\n"
        "--lr, --schedule and the like describe your training; without them it is the model's own.\n"
        "With --plan or --uniform all operators are rounded at once: what they add up to, the loss within "
        "their rounding,\nand whether a training is to be trusted. This is printed, and not stored.",
    .run = run_sensitivity,
};
