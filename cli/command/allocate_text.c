/* allocate_text.c: prints a plan, its baselines and its precisions as text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/quantity.h"
#include "cli/command/allocate.h"
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
                  a->estimate ? "\t>more samples %\t>worth/s" : "");
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

/* --- Devices ---------------------------------------------------------------------------------- */

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

/* --- What was asked for ------------------------------------------------------------------------ */

static void print_allocate_request(const allocate_context *a)
{
    char recompute[TANDEM_RECOMPUTE_TEXT];
    printf("%s by policy %s: %lld replays in %s; ", a->answer.plan->model, a->answer.plan->policy,
           (long long)a->answer.allocation.replays, tandem_quantity_ns((int64_t)(a->seconds * 1e9)).text);
    const int is_bare = a->answer.goal.objective == TANDEM_MINIMIZE_STEP ||
                        a->answer.goal.objective == TANDEM_MINIMIZE_TRAINING_TIME;
    if (a->answer.goal.objective == TANDEM_MINIMIZE_STEP)
        printf("fastest step with a sensitivity of at most %g %%",
               allocate_value(a, a->answer.goal.max_sensitivity));
    else if (is_bare)
        printf("least step x (1 + sensitivity)");
    else
        printf("%sallowed step %s",
               a->answer.goal.objective == TANDEM_MINIMIZE_MEMORY ? "the least memory, " : "",
               tandem_quantity_ns(a->answer.allocation.target_ns).text);
    if (!is_bare && !a->problem->target_ns)
        printf(" (slowdown %s)", tandem_quantity_ratio(a->problem->slowdown).text);
    if (a->answer.goal.objective == TANDEM_MINIMIZE_MEMORY && a->answer.goal.max_sensitivity < INT64_MAX)
        printf(", sensitivity up to %g %%", allocate_value(a, a->answer.goal.max_sensitivity));
    if (a->answer.plan->step.n_micro > 1) printf(", %d micro-steps", a->answer.plan->step.n_micro);
    if (a->answer.plan->step.n_recompute_segment != 0 && a->answer.plan->step.n_recompute_segment != 1)
        printf(", recomputation %s",
               tandem_recompute_print(recompute, a->answer.plan->step.n_recompute_segment));
    if (a->answer.plan->cluster.wire != TANDEM_F32)
        printf(", gradients in %s on the wire", tandem_dtype_name(a->answer.plan->cluster.wire));
    putchar('\n');
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
    char where[256], scale[TANDEM_LOSS_SCALE_TEXT];
    if (loss_scale == 0) return;
    const int n = cli_count_f16_gradients(plan, graph, where, sizeof where);
    printf("the step includes a loss scale (--loss-scale %s)", tandem_loss_scale_print(scale, loss_scale));
    if (n > 0) printf(": small gradients of %d operators vanish in f16 on %s", n, where);
    putchar('\n');
}

/* Why the plan is not the one with the least sensitivity. */
static void print_indistinguishable(const allocate_context *a)
{
    const tandem_allocation *found = &a->answer.allocation;
    const double half = (found->difference_high - found->difference_low) / 2;
    if (!found->indistinguishable_ns) return;
    printf(
        "faster than the least sensitive plan, whose step is %s: it needs %s %% more samples than that one "
        "(95 %%: %s to %s %%), which cannot be told from none\n",
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

static void print_training_bound(const allocate_context *a)
{
    char pinned[256];
    const tandem_allocation *found = &a->answer.allocation;
    if (!(found->training_bound_ns > 0)) return;
    printf(
        "lower bound  %s of step x (1 + sum), of plans%s that take %s or longer%s: within %s of the best\n",
        tandem_quantity_ns((int64_t)found->training_bound_ns).text,
        allocate_print_pinned(pinned, sizeof pinned, a->answer.plan, found->training_keeps_base),
        tandem_quantity_ns(found->training_from_ns).text, left_out(a),
        tandem_quantity_ratio(1 - found->training_bound_ns / found->training_ns).text);
}

static void print_sum_bound(const allocate_context *a)
{
    char pinned[256];
    const tandem_certificate *certificate = &a->answer.allocation.certificate;
    if (strcmp(certificate->proof, "zero") == 0) {
        puts("lower bound  0: no sum is smaller than this plan's");
        return;
    }
    if (certificate->lower_bound <= 0) return;
    allocate_print_pinned(pinned, sizeof pinned, a->answer.plan, a->answer.allocation.keeps_base);
    if (certificate->lower_bound == a->answer.allocation.sensitivity_bound)
        printf(
            "lower bound  this plan's sum: no plan%s within that step and memory%s has a smaller one (proof: "
            "%s)\n",
            pinned, left_out(a), certificate->proof);
    else
        printf(
            "lower bound  %s%s of the sum, of plans%s within that step and memory%s: within %s of the best "
            "(proof: %s)\n",
            tandem_quantity_plain(allocate_value(a, certificate->lower_bound), 4).text,
            cli_method_unit(a->answer.plan->method), pinned, left_out(a),
            tandem_quantity_ratio(certificate->gap).text, certificate->proof);
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
    printf("\nfewer devices are %sfaster: %s alone makes %s samples/s%s, sum %s%s; this "
           "plan makes %s. --batch auto --global-batch N splits a batch so that ranks finish together\n",
           tandem_time_sources_are_described(&answer->sources) ? "predicted to be " : "",
           a->smaller_cluster.name, smaller.text, a->smaller_by_goodput ? " in fp32's worth" : "",
           goodput_sum(&answer->goodput, a->answer.plan->method, answer->plan->sensitivity_bound).text,
           cli_method_unit(a->answer.plan->method), here.text);
}

int allocate_print_text(allocate_context *a)
{
    print_allocate_request(a);
    print_indistinguishable(a);
    print_training_bound(a);
    print_sum_bound(a);
    goodput_print(&a->answer.goodput);
    allocate_print_loss_scale(a->answer.plan->loss_scale, a->answer.plan, a->problem->graph);
    putchar('\n');
    const double interval = tandem_profile_interval(a->options->db, tandem_planner_cluster(a->planner));
    int code = print_compared_plans(a, cli_profile_interval_digits(interval));
    if (code) return code;
    putchar('\n');
    code = a->explained >= 0 || a->explains_all ? allocate_explain_text(a) : print_allocated_devices(a);
    cli_cost_sources_print(&a->answer.sources);
    cli_profile_interval_print(interval);
    if (!code) print_smaller_cluster(a);
    return code;
}
