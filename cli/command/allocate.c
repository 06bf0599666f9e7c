/* allocate.c: `tandem allocate`: chooses a precision for every operator of every class. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/command/allocate.h"

/* --- A plan ----------------------------------------------------------------------------------- */

static tandem_status ask_planner(allocate_context *a, tandem_error *error)
{
    const int64_t begin = tandem_now_ns();
    const char *why_none;
    cli_progress(a->options, -1, "allocating with policy %s; a proof takes some 10 s at most",
                 a->request.policy ? a->request.policy : tandem_policy_get(0)->name);
    const tandem_status status = tandem_planner_ask(&a->answer, a->planner, &a->request, error);
    a->seconds = (double)(tandem_now_ns() - begin) * 1e-9;
    cli_progress_end();
    if (status != TANDEM_OK) return status;
    a->answer.plan->made = *cli_made();
    return tandem_planner_estimate(&a->estimate, &why_none, a->planner, error);
}

static tandem_status find_baselines(allocate_context *a, tandem_error *error)
{
    const tandem_plan *plan = a->answer.plan;
    tandem_status status = tandem_baselines_find(a->baselines, &a->n_baseline, a->problem, plan, error);
    for (int k = 0; k < a->n_baseline && status == TANDEM_OK; k++)
        status = tandem_baseline_goodput(&a->baseline_goodput[k], a->planner, &a->baselines[k], plan, error);
    return status;
}

/* Leaves the plan in the replayer. */
static tandem_status allocate_and_write(allocate_context *a, tandem_error *error)
{
    tandem_status status = ask_planner(a, error);
    if (status == TANDEM_OK) status = find_baselines(a, error);
    if (status == TANDEM_OK)
        status = tandem_smaller_cluster_find(&a->smaller_cluster, &a->smaller_by_goodput, &a->request,
                                             &a->answer, error);
    cli_progress(a->options, -1, "asking again at the ends of ratios between predicted times");
    if (status == TANDEM_OK)
        status = tandem_answer_check_ratios(&a->ratios, a->planner, &a->answer, &a->request, error);
    cli_progress_end();
    if (status == TANDEM_OK && a->options->data) status = allocate_estimate_whole(a, error);
    if (status == TANDEM_OK && a->options->output)
        status = tandem_plan_write(a->answer.plan, a->problem->graph, a->options->output, error);
    return status;
}

static int write_allocate_page(const allocate_context *a)
{
    tandem_error error = {0};
    report_page page = {0};
    json_t *const result = allocate_result_json(a);
    if (!a->explains_all) json_object_set_new(result, "explained_all", allocate_explain_all_json(a));
    tandem_status status = cli_report_add_result(&page, result, "allocate", &error);
    if (status == TANDEM_OK)
        status = cli_report_add_plan(&page, a->options, a->answer.plan, &a->answer.plan->cluster,
                                     a->problem->graph, 1, &error);
    return cli_report_finish(&page, a->options, status, &error);
}

static int allocate_and_print(allocate_context *a)
{
    tandem_error error = {0};
    const cli_options *options = a->options;
    tandem_status status = options->explain ? allocate_find_explained(a, &error) : TANDEM_OK;
    if (status == TANDEM_OK) status = allocate_and_write(a, &error);
    if (status == TANDEM_INFEASIBLE) return allocate_explain_infeasible(a, &error);
    if (status != TANDEM_OK) return cli_fail(&error);
    allocate_note_left_out(a);
    if (options->output && strcmp(options->output, "-") == 0) return 0; /* standard output holds the plan */
    const int code = options->json ? cli_print_json(allocate_result_json(a)) : allocate_print_text(a);
    if (code == 0 && options->output) cli_note(options, "plan written to %s", options->output);
    return code == 0 && options->report ? write_allocate_page(a) : code;
}

/* --- The command ------------------------------------------------------------------------------ */

static int run_allocate(const cli_options *options)
{
    tandem_error error = {0};
    allocate_context a;
    int code;
    if (options->verify) return allocate_verify(options);
    tandem_status status = allocate_read_options(&a, options, &error);
    if (status == TANDEM_OK && options->batch_auto) return allocate_batch(&a);
    if (status == TANDEM_OK) status = cli_report_check(options, &error);
    if (status == TANDEM_OK) status = allocate_open(&a, &error);
    if (status != TANDEM_OK)
        code = cli_fail(&error);
    else
        code = options->pareto > 0 ? allocate_pareto(&a) : allocate_and_print(&a);
    allocate_close(&a);
    return code;
}

static const int options[] = {OPTION_MODEL,
                              OPTION_SET,
                              OPTION_LOSS,
                              OPTION_CLUSTER,
                              OPTION_DEVICE,
                              OPTION_BATCH,
                              OPTION_POLICY,
                              OPTION_SLOWDOWN,
                              OPTION_MAX_STEP,
                              OPTION_MAX_SENSITIVITY,
                              OPTION_MEMORY,
                              OPTION_MINIMIZE,
                              OPTION_GLOBAL_BATCH,
                              OPTION_PARETO,
                              OPTION_REPORT,
                              OPTION_VERIFY,
                              OPTION_EXPLAIN,
                              OPTION_BASE_PRECISION,
                              OPTION_METHOD,
                              OPTION_UNIFORM,
                              OPTION_BUCKET,
                              OPTION_COLLECTIVE,
                              OPTION_WIRE,
                              OPTION_ACCUMULATE,
                              OPTION_RECOMPUTE,
                              OPTION_PREDICT,
                              OPTION_FROM_DESCRIPTION,
                              OPTION_KERNELS,
                              OPTION_WITHOUT_UPDATE,
                              OPTION_OUTPUT,
                              OPTION_LOSS_SCALE,
                              OPTION_DATA,
                              OPTION_BEYOND_LIMITS,
                              OPTION_DB,
                              OPTION_QUIET,
                              OPTION_PROOF_WORK,
                              OPTION_DETAILS,
                              OPTION_END};
const cli_command command_allocate = {
    .name = "allocate",
    .words = "",
    .summary = "Choose a precision for every operator on every device, and write the plan",
    .option = options,
    .description =
        "Examples:\n"
        "  tandem allocate --model vit_tiny --cluster \"strongest + weakest\" -o plan.json\n"
        "  tandem allocate --model resnet20 --cluster \"cpu:avx2 + cpu:sse41\" --slowdown 3% --memory "
        "64MiB,32MiB\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --policy uniform --uniform int8 -o -\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --explain fc1     why fc1 has its "
        "precision\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --pareto --report front.html\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --batch auto --global-batch 64\n"
        "  tandem allocate --model vit_tiny --device cpu:avx2,cpu:sse41 --accumulate 4 --recompute sqrt "
        "-o plan.json\n"
        "  tandem allocate --model mlp --device cpu:avx2,cpu:sse41 --data fashion-mnist     the plan as a "
        "whole, too\n"
        "  tandem allocate --verify plan.json\n"
        "Needs costs (`tandem profile`) and an estimate of the model (`tandem sensitivity`). Without -o, no "
        "plan is\n"
        "written; -o - prints the plan. The default plan has the least step x (1 + sensitivity): the "
        "highest goodput.\n"
        "--max-sensitivity 1% asks for the fastest step that needs at most 1% more "
        "samples, --max-step\n"
        "and --slowdown for the least sensitivity within a step, --minimize memory for the least memory "
        "within all\n"
        "limits. --sensitivity fisher ranks plans by statistics: the least of it among the fastest plans.\n"
        "Gradients in f16 need a loss scale: a plan with such gradients has --loss-scale dynamic in its "
        "step and\n"
        "its file. The output also lists baselines: all classes in the base precision, and uniform "
        "precisions.\n"
        "With --data the plan is estimated as a whole, all operators rounded at once, and refused where its "
        "rounding\n"
        "decides the steps, or it takes more than twice the samples: exit code 1, unless --beyond-limits.\n"
        "If no plan fits: exit code 1, how much memory is missing, and FILE stays unchanged.",
    .run = run_allocate,
};
