/* folder: backend, and others for devices, plans or robust means */
/* Every operator's backward kernels against finite differences of its own forward kernel, on this machine's
 * strongest and weakest device (gradient_check.c).
 *
 * And a step of a graph with a tied table, whose gradient two operators make, against differences of its
 * loss. */
#include "backend/cpu/operator.h"
#include "graph/ir/build.h"
#include "tandem/cluster.h"
#include "tandem/advanced/backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/own_process.h"
#include "tests/support/tandem_test.h"

enum { MAX_ELEMENTS = 120 };
static const double h = 0x1p-5;

/* --- A table that two operators read: its gradient is the sum of theirs --------------------------------- */

/* Tokens by a table, a norm, and back by the same table; the optimizer's rate is 0, so that weights stay. */
static tandem_status open_tied(tandem_graph **graph, tandem_error *error)
{
    tandem_builder *b = NULL;
    tandem_status status = tandem_builder_open(&b, 2, error);
    if (status != TANDEM_OK) return status;
    const int tokens = tandem_build_tokens(b, "tokens", 5), labels = tandem_build_labels(b, "labels", 5);
    const int word = tandem_build_embedding(b, "word", tokens, 7, 6);
    const int x = tandem_build_layernorm(b, "norm", tandem_build_row_bias(b, "position", word, 9, 0.5f));
    tandem_build_cross_entropy(b, "loss", tandem_build_tied(b, "head", x, word), labels);
    const tandem_optimizer_options still = {.kind = TANDEM_SGD};
    status = tandem_builder_finish(b, "tied", &still, graph, error);
    tandem_builder_close(b);
    return status;
}

/* Gradient of parameter p as a step leaves it, against differences of the loss of steps on the same samples.
 * */
static void compare_steps(gradients *g, const tandem_backend_api *backend, tandem_executor *executor,
                          const tandem_graph *graph, int p)
{
    static const double place[4] = {1, -1, 2, -2}, share[4] = {8, -8, -1, 1};
    double written[64], loss = 0;
    tandem_error error = {0};
    float *const weight = (float *)(uintptr_t)backend->executor_value(executor, TANDEM_PARAMETER(p), 0, NULL);
    const float *const gradient = backend->executor_value(executor, TANDEM_PARAMETER(p), 1, NULL);
    const int64_t n = graph->parameter[p].elements;
    tandem_status status = backend->executor_step(executor, 0, &loss, &error);
    for (int64_t i = 0; i < n; i++) written[i] = (double)gradient[i];
    for (int64_t i = 0; i < n && status == TANDEM_OK; i++) {
        const float kept = weight[i];
        double sum = 0;
        for (int k = 0; k < 4 && status == TANDEM_OK; k++) {
            weight[i] = kept + (float)(place[k] * h);
            status = backend->executor_step(executor, 0, &loss, &error);
            sum += share[k] * loss / (12 * h);
        }
        weight[i] = kept;
        if (!(fabs(sum - written[i]) <= 2e-4))
            gradients_complain(g, "tied: element %lld of '%s': the step says %.6g, differences say %.6g",
                               (long long)i, graph->op[graph->parameter[p].op].name, written[i], sum);
    }
    if (status != TANDEM_OK) gradients_complain(g, "tied: %s", error.text);
}

static void check_tied(gradients *g, const char *device)
{
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_graph *graph = NULL;
    tandem_step *step = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    const tandem_worker_options alone = {.device = device, .n_rank = 1, .cpu = -1};
    tandem_status status = open_tied(&graph, &error);
    if (status == TANDEM_OK) status = tandem_step_open(&step, graph, TANDEM_F32, 0, &error);
    if (status == TANDEM_OK) status = backend->worker_open(&worker, &alone, &error);
    if (status == TANDEM_OK)
        status = backend->executor_open(
            &executor, worker, &(tandem_executor_options){.step = step, .seed = 3, .global_batch = 2},
            &error);
    if (status != TANDEM_OK) gradients_complain(g, "tied: %s", error.text);
    for (int p = 0; p < graph->n_parameter && status == TANDEM_OK; p++)
        compare_steps(g, backend, executor, graph, p);
    if (executor) backend->executor_close(executor);
    if (worker) backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
}

static int child_gradients(const char *device)
{
    tandem_error error = {0};
    void *opened = NULL;
    if (tandem_cpu_backend.open(&opened, device, &error) != TANDEM_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    gradients g = {.backend = &tandem_cpu_backend, .device = opened, .max_elements = MAX_ELEMENTS};
    gradients_check_every_case(&g);
    check_tied(&g, device);
    tandem_cpu_backend.close(opened);
    return g.complaints > 0;
}

/* Rows of cpu.def go from the weakest to the strongest. */
static const char *end_of_the_list(int strongest)
{
    const char *found = NULL;
    for (int i = 0; i < tandem_device_count(); i++) {
        const tandem_device *row = tandem_device_get(i);
        if (tandem_device_is_present(row->name) && (strongest || !found)) found = row->name;
    }
    return found;
}

static void on_the_strongest_device(void **state)
{
    assert_non_null(end_of_the_list(1));
    own_process_check(child_gradients, end_of_the_list(1));
}

static void on_the_weakest_device(void **state)
{
    if (!test_is_long()) {
        printf("# left out: gradients on the weakest device\n");
        return;
    }
    if (strcmp(end_of_the_list(0), end_of_the_list(1)) == 0) {
        printf("SKIP: this machine has one device, which is tested already\n");
        skip();
    }
    own_process_check(child_gradients, end_of_the_list(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_the_strongest_device),
                                       cmocka_unit_test(on_the_weakest_device)};
    return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
