/* folder: backend */
/* What a step ends with (late_results.h): a loss, or where training has diverged; at once, or read later. */
#include <math.h>

#include "backend/executor/executor.h"
#include "tests/support/test_graph.h"

/* Of an executor that found its first gradient that is not finite in a parameter; −1: in none. */
static tandem_status finish(double *loss, float carried, int parameter, int allow_nan, tandem_error *error)
{
    tandem_graph *graph = open_graph("mlp:depth=1,width=4,image=4x4x1", 2);
    const tandem_executor executor = {
        .graph = graph, .nonfinite_parameter = parameter, .options = {.allow_nan = allow_nan}};
    *error = (tandem_error){.rank = 7};
    *loss = 3;
    const tandem_status status = tandem_late_finish_step(&executor, 4, carried, loss, error);
    tandem_graph_close(graph);
    return status;
}

static void a_finite_step_has_its_loss(void **state)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, 0.5F, -1, 0, &error), TANDEM_OK);
    assert_true(loss == 0.5);
}

/* All ranks see the same sums, so that rank 0 is the one that reports. */
static void check_divergence(float carried, int parameter, const char *says, const char *lacks)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, carried, parameter, 0, &error), TANDEM_LIMIT_EXCEEDED);
    if (!strstr(error.text, says) || !strstr(error.text, "in step 5: ") ||
        (lacks && strstr(error.text, lacks)))
        fail_msg("%s", error.text);
    assert_int_equal(error.rank, 0);
    assert_true(loss == 3);
}

static void either_a_loss_or_a_gradient_diverges(void **state)
{
    check_divergence(INFINITY, -1, "the loss is inf", "operator '");
    check_divergence(-NAN, -1, "the loss is nan", "operator '");
    check_divergence(0.5F, 0, "operator 'fc1' (linear) is not finite, the loss is 0.5", NULL);
    check_divergence(NAN, 2, "operator 'head' (linear) is not finite, the loss is nan", NULL);
}

static void a_nan_that_is_allowed_has_no_sign(void **state)
{
    tandem_error error;
    double loss;
    assert_int_equal(finish(&loss, -NAN, 0, 1, &error), TANDEM_OK);
    assert_true(isnan(loss) && !signbit(loss));
}

/* --- Read later, on a device that answers what a test wants --------------------------------------------- */

typedef struct scripted_device {
    tandem_status copies, results; /* of queueing the copies of faults; of reading them */
    int n_event_wait, n_drain;
} scripted_device;

static tandem_status take_memory(void *device, void **memory, uint64_t bytes, int is_staging,
                                 tandem_error *error)
{
    (void)device, (void)memory, (void)bytes, (void)is_staging, (void)error;
    return TANDEM_BUG; /* that there is such a function says that the device has memory of its own */
}

static tandem_status copy_loss(void *device, tandem_device_stream stream, void *to, const void *from,
                               uint64_t bytes, tandem_error *error)
{
    (void)device, (void)stream, (void)error;
    memcpy(to, from, bytes);
    return TANDEM_OK;
}

static tandem_status report_copies(void *device, void *staged, tandem_error *error)
{
    const tandem_status status = ((scripted_device *)device)->copies;
    memcpy(staged, &((scripted_device *)device)->results, sizeof status);
    return status == TANDEM_OK ? status : tandem_error_set(error, status, "no copy");
}

static tandem_status report_results(int64_t *nonfinite, const void *staged, tandem_error *error)
{
    tandem_status status;
    memcpy(&status, staged, sizeof status);
    *nonfinite = -1;
    return status == TANDEM_OK ? status : tandem_error_set(error, status, "no results");
}

static tandem_status record_nothing(void *device, tandem_device_stream stream, int event, tandem_error *error)
{
    (void)device, (void)stream, (void)event, (void)error;
    return TANDEM_OK;
}

static tandem_status count_event_wait(void *device, int event, tandem_error *error)
{
    (void)event, (void)error;
    ((scripted_device *)device)->n_event_wait++;
    return TANDEM_OK;
}

static tandem_status count_drain(void *device, int *is_finite, tandem_error *error)
{
    (void)is_finite, (void)error;
    ((scripted_device *)device)->n_drain++;
    return TANDEM_OK;
}

typedef struct late_step {
    tandem_device_backend backend;
    tandem_worker worker;
    tandem_graph graph;
    tandem_task task;
    tandem_step step;
    int active[1], n_merged[1];
    float loss;
    unsigned char staged[TANDEM_FAULT_BYTES + sizeof(float)];
    tandem_executor executor;
} late_step;

/* Step 4 has ended with a loss, and n_launch launches update its weights. */
static tandem_status queue_step(late_step *l, scripted_device *device, float ends_with, int n_launch,
                                double *loss)
{
    tandem_error error = {0};
    *l = (late_step){.backend = {.alloc = take_memory,
                                 .copy_async = copy_loss,
                                 .queue_faults = report_copies,
                                 .read_faults = report_results,
                                 .event_record = record_nothing,
                                 .event_sync = count_event_wait,
                                 .device_sync = count_drain},
                     .task = {.kind = TANDEM_TASK_UPDATE},
                     .n_merged = {1},
                     .loss = ends_with};
    l->worker = (tandem_worker){.backend = &l->backend, .device = device, .n_rank = 1};
    l->step = (tandem_step){.graph = &l->graph, .task = &l->task, .n_bucket = n_launch};
    l->step.options.n_micro = 1;
    l->executor = (tandem_executor){.worker = &l->worker,
                                    .graph = &l->graph,
                                    .step = &l->step,
                                    .active = l->active,
                                    .n_merged = l->n_merged,
                                    .micro_loss = &l->loss,
                                    .nonfinite_parameter = -1,
                                    .late = {.is_enabled = 1, .staged = l->staged}};
    return tandem_late_queue(&l->executor, 4, loss, &error);
}

static void results_are_read_once_and_later(void **state)
{
    late_step l;
    scripted_device device = {0};
    double loss = 3;
    assert_int_equal(queue_step(&l, &device, 0.5F, 1, &loss), TANDEM_OK);
    assert_int_equal(tandem_executor_is_pending(&l.executor), 1);
    assert_true(loss == 3 && device.n_event_wait == 0);
    assert_int_equal(tandem_executor_settle(&l.executor, &loss, NULL), TANDEM_OK);
    assert_int_equal(tandem_executor_is_pending(&l.executor), 0);
    assert_true(loss == 0.5 && device.n_event_wait == 1);
    assert_int_equal(tandem_executor_settle(&l.executor, &loss, NULL), TANDEM_OK);
    tandem_late_close(&l.executor);
    assert_true(device.n_event_wait == 1 && device.n_drain == 0);
    /* two launches: the second may not run on a gradient that is not finite */
    assert_int_equal(queue_step(&l, &device, 0.25F, 2, &loss), TANDEM_OK);
    assert_int_equal(tandem_executor_is_pending(&l.executor), 0);
    assert_true(loss == 0.25 && device.n_event_wait == 2);
}

/* What was queued before may still write to memory that its owner frees next. */
static void nothing_runs_on_after_an_error(void **state)
{
    late_step l;
    scripted_device device = {.copies = TANDEM_NO_DEVICE};
    double loss = 3;
    for (int n_launch = 1; n_launch <= 2; n_launch++) { /* copies that were not queued are not read */
        assert_int_equal(queue_step(&l, &device, 0.5F, n_launch, &loss), TANDEM_NO_DEVICE);
        assert_int_equal(tandem_executor_is_pending(&l.executor), 1);
        assert_true(device.n_event_wait == 0 && device.n_drain == n_launch - 1);
        tandem_late_close(&l.executor);
        assert_int_equal(device.n_drain, n_launch);
    }
    device = (scripted_device){.results = TANDEM_MALFORMED};
    assert_int_equal(queue_step(&l, &device, 0.5F, 1, &loss), TANDEM_OK);
    assert_int_equal(tandem_late_read(&l.executor, &loss, NULL), TANDEM_MALFORMED);
    assert_true(device.n_drain == 1 && !tandem_executor_is_pending(&l.executor));
    device = (scripted_device){0};
    assert_int_equal(queue_step(&l, &device, INFINITY, 1, &loss), TANDEM_OK);
    tandem_error error = {0};
    assert_int_equal(tandem_late_read(&l.executor, &loss, &error), TANDEM_LIMIT_EXCEEDED);
    assert_non_null(strstr(error.text, "in step 5: "));
    assert_true(device.n_drain == 1 && loss == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finite_step_has_its_loss), cmocka_unit_test(either_a_loss_or_a_gradient_diverges),
        cmocka_unit_test(a_nan_that_is_allowed_has_no_sign),
        cmocka_unit_test(results_are_read_once_and_later), cmocka_unit_test(nothing_runs_on_after_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
