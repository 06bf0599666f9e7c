/* plan.c: from a profile store to a plan: how many operators get which precision on each device, and how good
 * that is.
 *
 *     cc plan.c $(pkg-config --cflags --libs tandem) -o plan
 *     ./plan tandem.db vit_tiny "strongest + weakest" plan.json
 */
#include <math.h>
#include <stdio.h>

#include <tandem/planner.h>

static void print_device(const tandem_plan *plan, const tandem_graph *graph, const tandem_allocation *found,
                         int c)
{
    int count[TANDEM_N_PRECISION] = {0};
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) count[plan->assignment.precision[c][i]]++;
    printf("%s:", plan->cluster.classes[c].device.name);
    for (int p = 0; p < TANDEM_N_PRECISION; p++)
        if (count[p] > 0) printf(" %d %s", count[p], tandem_precision_get((tandem_precision)p)->name);
    printf(", %.1f MiB\n", (double)found->peak_bytes[c] / (1 << 20));
}

static void print_certificate(const tandem_plan *plan, const tandem_allocation *found)
{
    const tandem_certificate *certificate = &found->certificate;
    printf("step %.3f ms, all in base %.3f ms; sensitivity %.3g\n", (double)found->step_ns * 1e-6,
           (double)found->base_ns * 1e-6, plan->sensitivity_bound);
    if (isnan(plan->lower_bound))
        printf("no bound: the policy proves nothing about other plans\n");
    else
        printf("no plan has less than %.3g: %.2f%% better at most (%s)\n", plan->lower_bound,
               100 * certificate->gap, certificate->proof);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: plan STORE MODEL CLUSTER FILE\n");
        return 2;
    }
    tandem_answer answer = {.plan = NULL};
    tandem_error error = {0};
    const tandem_allocation_request request = {
        .of = {.store = argv[1], .model = argv[2], .cluster = argv[3]}};
    tandem_status status = tandem_answer_open(&answer, &request, &error);
    if (status == TANDEM_OK)
        status = tandem_plan_write(answer.plan, tandem_planner_graph(answer.planner, 0), argv[4], &error);
    if (status == TANDEM_OK) {
        for (int c = 0; c < answer.plan->cluster.n_class; c++)
            print_device(answer.plan, tandem_planner_graph(answer.planner, c), &answer.allocation, c);
        print_certificate(answer.plan, &answer.allocation);
    } else {
        fprintf(stderr, "plan: %s\n", error.text);
    }
    tandem_answer_close(&answer);
    return tandem_status_exit_code(status);
}
