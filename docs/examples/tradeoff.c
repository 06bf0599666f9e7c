/* tradeoff.c: what a longer step buys: the least sensitivity found for each slowdown that is allowed, from
 * one planner.
 *
 *     cc tradeoff.c $(pkg-config --cflags --libs tandem) -o tradeoff
 *     ./tradeoff tandem.db resnet20 "strongest + weakest" 64MiB
 */
#include <stdio.h>

#include <tandem/planner.h>

static tandem_status print_row(tandem_planner *planner, double slowdown, tandem_error *error)
{
    tandem_answer answer = {.plan = NULL};
    const tandem_allocation_request request = {.slowdown_is_given = 1, .slowdown = slowdown};
    const tandem_status status = tandem_planner_ask(&answer, planner, &request, error);
    if (status == TANDEM_OK)
        printf("%7.0f%% %12.3f %12.4g %9lld\n", 100 * slowdown, (double)answer.allocation.step_ns * 1e-6,
               answer.plan->sensitivity_bound, (long long)answer.allocation.replays);
    tandem_answer_close(&answer);
    return status;
}

int main(int argc, char **argv)
{
    static const double slowdown[] = {0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: tradeoff STORE MODEL CLUSTER [MEMORY]\n");
        return 2;
    }
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    const tandem_request request = {
        .store = argv[1], .model = argv[2], .cluster = argv[3], .memory = argc == 5 ? argv[4] : NULL};
    tandem_status status = tandem_planner_open(&planner, &request, &error);
    if (status == TANDEM_OK)
        printf("slowdown    step (ms)  sensitivity  replays   (%s)\n", tandem_planner_method(planner));
    for (size_t k = 0; k < sizeof slowdown / sizeof *slowdown && status == TANDEM_OK; k++)
        status = print_row(planner, slowdown[k], &error);
    if (status != TANDEM_OK) fprintf(stderr, "tradeoff: %s\n", error.text);
    tandem_planner_close(planner);
    return tandem_status_exit_code(status);
}
