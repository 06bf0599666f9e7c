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
    tandem_plan *plan = NULL;
    tandem_allocation found;
    const tandem_goal goal = {TANDEM_MINIMIZE_SENSITIVITY, INT64_MAX};
    tandem_planner_problem(planner)->slowdown = slowdown;
    const tandem_status status = tandem_planner_allocate_for(&plan, &found, planner, &goal, NULL, error);
    if (status == TANDEM_OK)
        printf("%7.0f%% %12.3f %12.4g %9lld\n", 100 * slowdown, (double)found.step_ns * 1e-6,
               plan->sensitivity, (long long)found.replays);
    tandem_plan_close(plan);
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
