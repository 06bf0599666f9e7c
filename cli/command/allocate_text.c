/* allocate_text.c: prints a plan, its baselines and its precisions as text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/allocate.h"
#include "cli/ratios.h"
#include "cli/whole_plan.h"
#include "cli/table.h"

precision_share allocate_precision_share(const allocate_context *a, int c, tandem_precision precision)
{
    const tandem_graph *graph = a->problem->graph;
    precision_share part = {0};
    double flops = 0, all_flops = 0;
    for (int i = 0; i < graph->n_op; i++) {
        if (!tandem_op_is_adjustable(&graph->op[i])) continue;
        all_flops += graph->op[i].flops;
        if (a->answer.plan->assignment.precision[c][i] != precision) continue;
        part.n_op++;
        flops += graph->op[i].flops;
    }
    if (all_flops > 0) part.flops_share = flops / all_flops;
    return part;
}

/* --- Plans by their step ---------------------------------------------------------------------- */

typedef struct plan_row {
    const char *name, *remark;
    int64_t step_ns, sensitivity;
    const tandem_goodput *goodput;
} plan_row;

/* Inserts a row after the rows that are not slower. */
static void insert_by_step(plan_row *rows, int *n, plan_row added)
{
    int at = (*n)++;
    for (; at > 0 && rows[at - 1].step_ns > added.step_ns; at--) rows[at] = rows[at - 1];
    rows[at] = added;
}

static int print_compared_plans(const allocate_context *a, int digits)
{
    cli_table table = {0};
    plan_row rows[TANDEM_N_PRECISION + 1];
    char text[SENSITIVITY_TEXT];
    int n = 0;
    for (int k = 0; k < a->n_baseline; k++) {
        const tandem_baseline *baseline = &a->baselines[k];
        insert_by_step(rows, &n,
                       (plan_row){baseline->name, baseline->fits ? "" : "out of memory", baseline->step_ns,
                                  baseline->sensitivity_bound, &a->baseline_goodput[k]});
    }
    insert_by_step(rows, &n,
                   (plan_row){a->answer.plan->name, "<", a->answer.allocation.step_ns,
                              a->answer.allocation.sensitivity_bound, &a->answer.goodput});
    cli_table_row(&table, "plan\t>step\t>sum (%s)%s", cli_method_text(a->answer.plan->method),
                  a->estimate ? "\t>extra samples % (sampling)\t>goodput/s" : "");
    for (int k = 0; k < n; k++) {
        const plan_row *row = &rows[k];
        const tandem_quantity step = tandem_quantity_ns_to(row->step_ns, digits),
                              sum = allocate_sum(a, row->goodput, row->sensitivity);
        if (a->estimate)
            cli_table_row(&table, "%s\t%s\t%s\t%s\t%s\t%s", row->name, step.text, sum.text,
                          goodput_sensitivity(text, row->goodput),
                          goodput_rate(row->goodput, GOODPUT_DIGITS).text, row->remark);
        else
            cli_table_row(&table, "%s\t%s\t%s\t%s", row->name, step.text, sum.text, row->remark);
    }
    return cli_table_finish(&table);
}

/* --- Devices, with --details ------------------------------------------------------------------ */

static int print_allocated_devices(const allocate_context *a)
{
    cli_table table = {0};
    cli_table_row(&table, "device\tprecision\t>operators\t>of the FLOPs\t>memory");
    for (int c = 0; c < a->answer.plan->cluster.n_class; c++) {
        int first = 1;
        for (int k = 0; k < TANDEM_N_PRECISION; k++) {
            const precision_share part = allocate_precision_share(a, c, (tandem_precision)k);
            if (part.n_op == 0) continue;
            cli_table_row(&table, "%s\t%s\t%d\t%s\t%s",
                          first ? a->answer.plan->cluster.classes[c].device.name : "",
                          tandem_precision_get((tandem_precision)k)->name, part.n_op,
                          tandem_quantity_ratio(part.flops_share).text,
                          first ? CLI_PEAK_TEXT(a->answer.allocation.peak_bytes[c]) : "");
            first = 0;
        }
    }
    return cli_table_finish(&table);
}

/* --- The answer ------------------------------------------------------------------------------- */

/* "t4 in int8 (49 operators) and fp32 (5); v100 in fp32". */
static void append_precisions(char *text, size_t size, const allocate_context *a, int c)
{
    int n = 0;
    for (int k = 0; k < TANDEM_N_PRECISION; k++)
        n += allocate_precision_share(a, c, (tandem_precision)k).n_op > 0;
    (void)tandem_append(text, size, "%s%s in ", *text ? "; " : "",
                        a->answer.plan->cluster.classes[c].device.name);
    for (int k = 0, at = 0; k < TANDEM_N_PRECISION; k++) {
        const precision_share part = allocate_precision_share(a, c, (tandem_precision)k);
        if (part.n_op == 0) continue;
        (void)tandem_append(text, size, "%s%s",
                            at == 0      ? ""
                            : at + 1 < n ? ", "
                                         : " and ",
                            tandem_precision_get((tandem_precision)k)->name);
        if (n > 1)
            (void)tandem_append(text, size, " (%d%s)", part.n_op,
                                at               ? ""
                                : part.n_op == 1 ? " operator"
                                                 : " operators");
        at++;
    }
}

static void print_plan_line(const allocate_context *a)
{
    char text[1024] = "", recompute[TANDEM_RECOMPUTE_TEXT];
    const tandem_plan *plan = a->answer.plan;
    for (int c = 0; c < plan->cluster.n_class; c++) append_precisions(text, sizeof text, a, c);
    if (plan->step.n_micro > 1)
        (void)tandem_append(text, sizeof text, "; %d micro-steps", plan->step.n_micro);
    if (plan->step.n_recompute_segment != 0 && plan->step.n_recompute_segment != 1)
        (void)tandem_append(text, sizeof text, "; recomputation %s",
                            tandem_recompute_print(recompute, plan->step.n_recompute_segment));
    if (plan->cluster.wire != TANDEM_F32)
        (void)tandem_append(text, sizeof text, "; gradients in %s on the wire",
                            tandem_dtype_name(plan->cluster.wire));
    answer_line("plan", "%s", text);
}

/* " (slowdown 2%)", and what it counts from where that is a plan of the policy's own. */
static void append_slowdown(char *text, size_t size, const allocate_context *a)
{
    const tandem_policy *policy = NULL;
    const char *from = NULL;
    if (tandem_policy_find(&policy, a->answer.plan->policy, NULL) == TANDEM_OK) from = policy->slowdown_from;
    (void)tandem_append(text, size, " (slowdown %s%s%s)", tandem_quantity_ratio(a->problem->slowdown).text,
                        from ? " of " : "", from ? from : "");
}

/* The limits that were asked for; "" for the least training time, which has none. */
static void append_limits(char *text, size_t size, const allocate_context *a)
{
    const tandem_goal *goal = &a->answer.goal;
    const int has_sensitivity_limit =
        goal->objective == TANDEM_MINIMIZE_STEP ||
        (goal->objective == TANDEM_MINIMIZE_MEMORY && goal->max_sensitivity < INT64_MAX);
    if (goal->objective == TANDEM_MINIMIZE_SENSITIVITY || goal->objective == TANDEM_MINIMIZE_MEMORY) {
        (void)tandem_append(text, size, "; %sallowed %s",
                            goal->objective == TANDEM_MINIMIZE_MEMORY ? "the least memory, " : "",
                            tandem_quantity_ns(a->answer.allocation.target_ns).text);
        if (!a->problem->target_ns) append_slowdown(text, size, a);
    }
    if (has_sensitivity_limit)
        (void)tandem_append(text, size, "; allowed sum %g%s", allocate_value(a, goal->max_sensitivity),
                            cli_method_unit(a->answer.plan->method));
}

static void print_step_line(const allocate_context *a, int digits)
{
    char text[256] = "";
    const tandem_goodput *g = &a->answer.goodput;
    if (isfinite(g->samples_per_s))
        (void)tandem_append(text, sizeof text, ", %s samples/s",
                            tandem_quantity_plain(g->samples_per_s, digits).text);
    if (isfinite(g->samples_per_s) && isfinite(g->fp32_samples_per_s))
        (void)tandem_append(text, sizeof text, "; all fp32 %s",
                            tandem_quantity_plain(g->fp32_samples_per_s, digits).text);
    append_limits(text, sizeof text, a);
    answer_line("step", "%s%s", tandem_quantity_ns_to(a->answer.allocation.step_ns, digits).text, text);
}

const char *allocate_print_pinned(char *text, size_t size, const tandem_plan *plan, unsigned keeps_base)
{
    text[0] = '\0';
    for (int c = 0; c < plan->cluster.n_class; c++)
        if (keeps_base >> c & 1)
            (void)tandem_append(text, size, "%s%s", *text ? ", " : " with ",
                                plan->cluster.classes[c].device.name);
    if (*text) (void)tandem_append(text, size, " in %s", tandem_precision_get(plan->base_precision)->name);
    return text;
}

void allocate_print_loss_scale(double loss_scale, const tandem_plan *plan, const tandem_graph *graph)
{
    char where[256], scale[TANDEM_LOSS_SCALE_TEXT], why[384] = "";
    if (loss_scale == 0) return;
    const int n = cli_count_f16_gradients(plan, graph, where, sizeof where);
    if (n > 0)
        (void)snprintf(why, sizeof why, ": gradients of %d operators are f16 on %s, where small ones vanish",
                       n, where);
    answer_line("loss scale", "%s, in the step%s", tandem_loss_scale_print(scale, loss_scale), why);
}

/* Why the plan is not the one with the least sensitivity. */
static void print_indistinguishable(const allocate_context *a)
{
    const tandem_allocation *found = &a->answer.allocation;
    const double half = (found->difference_high - found->difference_low) / 2;
    if (!found->indistinguishable_ns) return;
    printf("chosen before the plan with the fewest extra samples, whose step is %s: the difference of %s%% "
           "(95%%: %s to %s%%) may be 0\n",
           tandem_quantity_ns(found->indistinguishable_ns).text,
           tandem_quantity_known_to(found->difference, half).text,
           tandem_quantity_known_to(found->difference_low, half).text,
           tandem_quantity_known_to(found->difference_high, half).text);
}

/* Which plans a bound leaves out for want of a time. */
static const char *left_out(const allocate_context *a)
{
    return a->answer.left_out[0] ? ", none with f16 gradients" : "";
}

/* Of step x (1 + sum). Returns whether there is one. */
static int print_training_bound(const allocate_context *a)
{
    char pinned[256];
    const tandem_allocation *found = &a->answer.allocation;
    if (!(found->training_bound_ns > 0)) return 0;
    answer_line("lower bound",
                "%s of step x (1 + sum)%s, of steps from %s%s: this plan is within %s of the best",
                tandem_quantity_ns((int64_t)found->training_bound_ns).text,
                allocate_print_pinned(pinned, sizeof pinned, a->answer.plan, found->training_keeps_base),
                tandem_quantity_ns(found->training_from_ns).text, left_out(a),
                tandem_quantity_ratio(1 - found->training_bound_ns / found->training_ns).text);
    return 1;
}

static void print_sum_bound(const allocate_context *a)
{
    char pinned[256];
    static const char *const label = "lower bound";
    const tandem_certificate *certificate = &a->answer.allocation.certificate;
    if (strcmp(certificate->proof, "zero") == 0) {
        answer_line(label, "sum 0, which is this plan's");
        return;
    }
    if (certificate->lower_bound <= 0) return;
    allocate_print_pinned(pinned, sizeof pinned, a->answer.plan, a->answer.allocation.keeps_base);
    if (certificate->lower_bound == a->answer.allocation.sensitivity_bound)
        answer_line(label, "this plan's sum%s, within that step and memory%s: it is the best (proof: %s)",
                    pinned, left_out(a), certificate->proof);
    else
        answer_line(label,
                    "sum %s%s%s, within that step and memory%s: this plan is within %s of the best (proof: "
                    "%s)",
                    tandem_quantity_plain(allocate_value(a, certificate->lower_bound), 4).text,
                    cli_method_unit(a->answer.plan->method), pinned, left_out(a),
                    tandem_quantity_ratio(certificate->gap).text, certificate->proof);
}

static void print_answer(const allocate_context *a, int digits, double interval)
{
    print_plan_line(a);
    print_step_line(a, digits);
    answer_extra_samples(&a->answer.goodput);
    if (a->has_whole) whole_plan_print_short(&a->whole);
    if (!print_training_bound(a)) print_sum_bound(a);
    answer_times(&a->answer.sources, interval);
    ratios_print(&a->ratios);
    allocate_print_loss_scale(a->answer.plan->loss_scale, a->answer.plan, a->problem->graph);
}

static int print_details(const allocate_context *a)
{
    putchar('\n');
    const int code = print_allocated_devices(a);
    printf("%s by policy %s: %lld replays in %s\n", a->answer.plan->model, a->answer.plan->policy,
           (long long)a->answer.allocation.replays, tandem_quantity_ns((int64_t)(a->seconds * 1e9)).text);
    if (a->answer.allocation.training_bound_ns > 0) print_sum_bound(a);
    answer_extra_samples_details(&a->answer.goodput);
    answer_times_details(&a->answer.sources);
    const int ratios_code = ratios_print_details(&a->ratios);
    return code ? code : ratios_code;
}

static void print_smaller_cluster(const allocate_context *a)
{
    const tandem_answer *answer = &a->smaller_cluster.answer;
    if (!answer->plan) return;
    const int digits = cli_cost_sources_digits(&answer->sources);
    const tandem_quantity smaller = a->smaller_by_goodput
                                        ? goodput_rate(&answer->goodput, digits)
                                        : tandem_quantity_plain(answer->goodput.samples_per_s, digits),
                          here = a->smaller_by_goodput
                                     ? goodput_rate(&a->answer.goodput, digits)
                                     : tandem_quantity_plain(a->answer.goodput.samples_per_s, digits);
    printf("\nfewer devices are %sfaster: %s alone has %s samples/s%s, sum %s%s; this plan has %s. "
           "--batch auto --global-batch N splits a batch so that ranks finish together\n",
           tandem_time_sources_are_described(&answer->sources) ? "predicted to be " : "",
           a->smaller_cluster.name, smaller.text, a->smaller_by_goodput ? " of goodput" : "",
           goodput_sum(&answer->goodput, a->answer.plan->method, answer->plan->sensitivity_bound).text,
           cli_method_unit(a->answer.plan->method), here.text);
}

int allocate_print_text(allocate_context *a)
{
    const double interval = tandem_profile_interval(a->options->db, tandem_planner_cluster(a->planner));
    const int digits = cli_profile_interval_digits(interval);
    print_answer(a, digits, interval);
    putchar('\n');
    int code = print_compared_plans(a, digits);
    print_indistinguishable(a);
    if (!code && (a->explained >= 0 || a->explains_all)) {
        putchar('\n');
        code = allocate_explain_text(a);
    }
    if (!code) print_smaller_cluster(a);
    return !code && a->options->details ? print_details(a) : code;
}
