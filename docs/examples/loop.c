/* loop.c: the whole loop on two devices of this machine's CPU: profile, sensitivity, plan, training,
 * comparison.
 *
 *     cc loop.c $(pkg-config --cflags --libs tandem_runtime) -o loop
 *     ./loop vit_tiny fashion-mnist "strongest + weakest" loop.db loop.json
 */
#include <stdio.h>

#include <tandem/planner.h>
#include <tandem/runtime.h>

int main(int argc, char **argv)
{
    if (argc != 6) return fputs("usage: loop MODEL DATA CLUSTER STORE PLAN\n", stderr), 2;
    const char *data = argv[2], *store = argv[4], *plan_path = argv[5];
    const tandem_workload_request on_cluster = {.model = argv[1], .cluster = argv[3]},
                                  on_one = {.model = argv[1], .cluster = "strongest"},
                                  planned = {.plan = plan_path};
    tandem_error error = {0};

    tandem_profile_result profile = {0};
    const tandem_profile_request profiled = {.workload = on_cluster, .store = store, .data = data};
    tandem_status status = tandem_profile(&profile, &profiled, &error);

    tandem_sensitivity_result sensitivity = {0};
    const tandem_sensitivity_request measured = {.workload = on_one, .store = store, .data = data};
    if (status == TANDEM_OK) status = tandem_sensitivity_measure(&sensitivity, &measured, &error);

    tandem_answer answer = {0};
    const tandem_allocation_request asked = {.of = {.store = store, .model = argv[1], .cluster = argv[3]}};
    if (status == TANDEM_OK) status = tandem_answer_open(&answer, &asked, &error);
    if (status == TANDEM_OK)
        status = tandem_plan_write(answer.plan, tandem_planner_graph(answer.planner, 0), plan_path, &error);

    tandem_compare_result compared = {0};
    tandem_compare_request run = tandem_compare_request_default();
    run.train.workload = planned, run.train.store = store, run.train.data = data;
    if (status == TANDEM_OK) status = tandem_compare(&compared, &run, &error);
    if (status == TANDEM_OK)
        printf("step predicted %.3f ms, measured %.3f ms: %s; loss %.4f after %lld steps\n",
               (double)compared.predicted_ns * 1e-6, (double)compared.measured_ns * 1e-6,
               tandem_compare_verdict_name(compared.steady.verdict), compared.final_loss,
               (long long)compared.steps);
    else
        fprintf(stderr, "loop: %s\n", error.text);
    tandem_compare_result_free(&compared);
    tandem_answer_close(&answer);
    tandem_sensitivity_result_free(&sensitivity);
    tandem_profile_result_free(&profile);
    return tandem_status_exit_code(status);
}
