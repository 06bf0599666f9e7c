/* folder: backend, and others for devices, plans or robust means */
/* Trainings whose steps are graphs of the card have the bits of those whose kernels are launched one by one,
 * on what replaces NVIDIA's libraries (stand_in_graph.h): a graph there has the arguments that launches had
 * when it was made, its nodes are done in every order that dependencies allow, and half of the graphs do
 * nothing that nobody waits for. */
#include <dlfcn.h>

#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

static int *fails_after, *has_device_memory, *graph_runs, *refuses_capture, *marks_are_early, *waits_are_lost;
/* A thread that never wakes keeps what it waits for: two events and a graph. */
static int n_left_alone;
static int (*open_things)(void);

static int open_graph_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    fails_after = dlsym(library, "stand_in_calls_to_failure");
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    graph_runs = dlsym(library, "stand_in_graph_runs");
    refuses_capture = dlsym(library, "stand_in_refuse_capture");
    marks_are_early = dlsym(library, "stand_in_early_graph_events");
    waits_are_lost = dlsym(library, "stand_in_lost_graph_events");
    *(void **)(void *)&open_things = dlsym(library, "stand_in_open_handles");
    assert_true(fails_after && has_device_memory && graph_runs && refuses_capture && marks_are_early &&
                waits_are_lost && open_things);
    *has_device_memory = 1;
    return training_folder_open(state);
}

/* In a rank, at its end. */
static int graphs_that_ran(void) { return open_things() ? -1 : *graph_runs; }

/* --- The same bits -------------------------------------------------------------------------------------- */

enum { STEPS = 5 };

static float steep_rate(int64_t run_graph_step) { return run_graph_step == 0 ? 20 : 0.01f; }
static float falling_rate(int64_t run_graph_step) { return 0.02f / (float)(run_graph_step + 1); }

static experiment graph_experiment(const char *model)
{
    return (experiment){.model = model,
                        .device = "cuda:0",
                        .batch = 2,
                        .n_rank = 1,
                        .steps = STEPS,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 5,
                        .killed_rank = -1,
                        .bucket_bytes = 4096,
                        .rate = falling_rate,
                        .hash_gradients = 1,
                        .open_things = graphs_that_ran};
}

static record *run_with_graphs(experiment e, const char *graphs, const training_file *file)
{
    e.save = file->path;
    assert_int_equal(setenv("TANDEM_GRAPHS", graphs, 1), 0);
    record *r = training_run_through(&e);
    assert_int_equal(unsetenv("TANDEM_GRAPHS"), 0);
    return r;
}

/* Losses, gradients and reports of every step, and what a checkpoint holds: weights, moments, statistics,
 * histories. Graphs ran in all steps but the first. */
static int check_graph_run(const experiment *e)
{
    int skipped = 0;
    const training_file with = training_file_named("with"), without = training_file_named("without");
    record *a = run_with_graphs(*e, "1", &with), *b = run_with_graphs(*e, "0", &without);
    training_check_same_bits(a, b, e);
    for (int rank = 0; rank < e->n_rank; rank++) {
        const int is_gpu = rank == 0 || !e->second_device,
                  n_micro = e->variant.n_micro ? e->variant.n_micro : 1;
        assert_memory_equal(a->report[rank], b->report[rank], STEPS * sizeof *a->report[rank]);
        assert_int_equal(b->open_things[rank], 0);
        assert_int_equal(a->open_things[rank], is_gpu ? (STEPS - 1) * n_micro : 0);
    }
    for (int i = 1; i < STEPS; i++) assert_true(a->loss[0][i] != a->loss[0][i - 1]);
    for (int i = 0; i < STEPS; i++) skipped += a->report[0][i].skipped;
    assert_true(training_files_equal(with.path, without.path));
    training_forget(b);
    training_forget(a);
    return skipped;
}

/* SGD and AdamW, statistics of batchnorms, dropout; the rate is another one in every step. */
static const char *const models[] = {"mlp:width=16", "resnet20:width=4,blocks=1",
                                     "gpt_tiny:width=16,depth=1,length=8,dropout=0.2"};
enum { RESNET = 1, GPT, N_MODEL };

static void in_every_precision(void **state)
{
    for (int m = 0; m < N_MODEL; m++)
        for (int p = TANDEM_PRECISION_FP32; p <= TANDEM_PRECISION_INT8_FULL; p++) {
            if (m == RESNET && p != TANDEM_PRECISION_FP32 && p != TANDEM_PRECISION_INT8)
                continue; /* it takes long */
            experiment e = graph_experiment(models[m]);
            e.precision = (tandem_precision)p;
            (void)check_graph_run(&e);
        }
}

/* Integers with ranges of casts before; micro-steps, each a graph, with integers and dropout; recomputation.
 * */
static void with_histories_and_micro_steps(void **state)
{
    for (int m = 0; m < N_MODEL; m++)
        for (int v = 0; v < (m == RESNET ? 1 : 3); v++) {
            experiment e = graph_experiment(models[m]);
            e.precision = TANDEM_PRECISION_INT8_FULL;
            e.variant = (tandem_step_options){.n_micro = v == 1 ? 3 : 1,
                                              .n_recompute_segment = v == 2 ? TANDEM_RECOMPUTE_SQRT : 0,
                                              .scaling = {.window = v == 1 ? 0 : 3}};
            (void)check_graph_run(&e);
        }
}

/* Gradients are judged on the host: by their norm, with a scale that does not change, with one that must be
 * found, whereby steps are skipped and others follow. */
static void where_gradients_are_judged(void **state)
{
    for (int m = 0; m < N_MODEL; m++)
        for (int v = m == RESNET; v < (m == RESNET ? 2 : 3); v++) {
            experiment e = graph_experiment(models[m]);
            e.precision = v == 0 ? TANDEM_PRECISION_FP32 : TANDEM_PRECISION_FP16;
            e.clip = v == 0 ? 0.05 : 0;
            e.loss_scale = v == 1 ? 256 : v == 2 ? -1 : 0;
            e.variant.n_micro = v == 0 ? 2 : 1;
            const int leaps = m == 0 && v == 2; /* to weights that make gradients too large */
            if (leaps) e.rate = steep_rate;
            assert_int_equal(check_graph_run(&e) > 0, leaps);
        }
}

/* Cards, and a card and a CPU, with a bucket or several on their way while the graph runs. */
static void of_several_ranks(void **state)
{
    training_require_device();
    for (int m = 0; m < N_MODEL; m++)
        for (int v = 0; v < (m == GPT ? 4 : 2); v++) {
            experiment e = graph_experiment(models[m]);
            e.n_rank = 2;
            e.second_device = v % 2 ? training_weakest() : NULL;
            e.precision = v % 2 ? TANDEM_PRECISION_INT8 : TANDEM_PRECISION_BF16;
            e.variant.n_micro = v < 2 ? 1 : 2;
            e.clip = v == 3 ? 0.1 : 0;
            e.evaluate = v == 0 ? 5 : 0;
            (void)check_graph_run(&e);
        }
}

/* With micro-steps, what is dropped is drawn by the step, not by the micro-step: the CPU's losses are these
 * only then. */
static void what_is_drawn_is_what_the_cpu_draws(void **state)
{
    training_require_device();
    const training_file gpu = training_file_named("card"), cpu = training_file_named("cpu");
    experiment e = graph_experiment(models[GPT]);
    e.variant.n_micro = 2;
    e.hash_gradients = 0;
    record *a = run_with_graphs(e, "1", &gpu);
    e.device = training_weakest();
    e.open_things = NULL;
    record *b = run_with_graphs(e, "1", &cpu);
    assert_int_equal(a->open_things[0], 2 * (STEPS - 1));
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->loss[0][i] - b->loss[0][i]) <= 1e-4 * b->loss[0][i]))
            fail_msg("step %d: loss %.9g, should be %.9g", i, a->loss[0][i], b->loss[0][i]);
    training_forget(b);
    training_forget(a);
}

/* A run that goes on after a checkpoint, whose first step is then a later one; and evaluations between
 * graphs. */
static void after_a_checkpoint(void **state)
{
    enum { HALF = 2 };
    experiment e = graph_experiment(models[GPT]);
    e.precision = TANDEM_PRECISION_INT8;
    const training_file half = training_file_named("half"), rest = training_file_named("rest"),
                        whole = training_file_named("whole");
    record *all = run_with_graphs(e, "1", &whole);
    e.steps = HALF;
    record *first = run_with_graphs(e, "1", &half);
    e.steps = STEPS;
    e.resume = half.path;
    record *second = run_with_graphs(e, "1", &rest);
    assert_int_equal(second->open_things[0], STEPS - HALF - 1);
    assert_memory_equal(all->loss[0] + HALF, second->loss[0] + HALF, (STEPS - HALF) * sizeof(double));
    assert_true(training_files_equal(whole.path, rest.path));
    training_forget(second);
    training_forget(first);
    training_forget(all);
}

/* --- One executor in this process ----------------------------------------------------------------------- */

typedef struct opened_run {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_worker *worker;
    tandem_executor *executor;
} opened_run;

static opened_run open_graph_run(int timed)
{
    opened_run o = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    assert_int_equal(tandem_graph_open(&o.graph, models[0], 2, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open(&o.step, o.graph, TANDEM_BF16, 4096, NULL), TANDEM_OK);
    const tandem_worker_options worker_options = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(o.backend->worker_open(&o.worker, &worker_options, NULL), TANDEM_OK);
    const tandem_executor_options how = {.step = o.step, .global_batch = 2, .with_task_times = timed};
    assert_int_equal(o.backend->executor_open(&o.executor, o.worker, &how, NULL), TANDEM_OK);
    return o;
}

static void close_graph_run(const opened_run *o)
{
    o->backend->executor_close(o->executor);
    o->backend->worker_close(o->worker);
    tandem_step_close(o->step);
    tandem_graph_close(o->graph);
    assert_int_equal(open_things(), n_left_alone);
}

static double run_graph_step(const opened_run *o, int i)
{
    double loss = 0;
    assert_int_equal(o->backend->executor_step(o->executor, i, &loss, NULL), TANDEM_OK);
    return loss;
}

static void count_task(void *context, const tandem_executor *executor, int task)
{
    (void)executor;
    (void)task;
    ++*(int *)context;
}

/* The batch that was put together ahead is that of the step after; where another step comes, it is not
 * taken. */
static void steps_come_in_any_order(void **state)
{
    static const int order[] = {0, 1, 7, 8, 3, 3, 0, 1};
    double right[9];
    for (int i = 0; i < 9; i++) {
        opened_run o = open_graph_run(0);
        o.backend->executor_set_rate(o.executor, 0);
        right[i] = run_graph_step(&o, i);
        assert_true(i == 0 || right[i] != right[i - 1]);
        close_graph_run(&o);
    }
    opened_run o = open_graph_run(0);
    o.backend->executor_set_rate(o.executor, 0); /* the weights stay */
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        assert_true(run_graph_step(&o, order[k]) == right[order[k]]);
    close_graph_run(&o);
}

/* Every task has a time, one after the other, and the losses are those of steps that nobody times. */
static void steps_are_timed_in_them(void **state)
{
    enum { N = 3 };
    double right[N];
    opened_run o = open_graph_run(0);
    for (int i = 0; i < N; i++) right[i] = run_graph_step(&o, i);
    close_graph_run(&o);
    const int before = *graph_runs;
    o = open_graph_run(1);
    for (int i = 0; i < N; i++) {
        assert_true(run_graph_step(&o, i) == right[i]);
        const tandem_step_times *times = o.backend->executor_times(o.executor);
        int64_t until = 0;
        for (int t = 0; t < o.step->n_task; t++) {
            if (!o.step->task[t].active || o.step->task[t].kind == TANDEM_TASK_REDUCE) continue;
            assert_true(times->start_ns[t] >= until && times->end_ns[t] >= times->start_ns[t]);
            until = times->end_ns[t];
        }
        assert_true(until > 0);
    }
    assert_int_equal(*graph_runs, before + N - 1);
    close_graph_run(&o);
}

/* What a step takes beside its tasks, on the host, is the begin of the next: here nearly all of it, since the
 * card's clock does not move. */
static void the_tasks_of_a_step_are_all_of_it(void **state)
{
    int *is_clock_fixed = dlsym(stand_in_library_open(), "stand_in_clock_is_fixed");
    int64_t late_ns = 0;
    assert_non_null(is_clock_fixed);
    *is_clock_fixed = 1;
    opened_run o = open_graph_run(1);
    for (int i = 0; i < 4; i++) {
        (void)run_graph_step(&o, i);
        const tandem_step_times *times = o.backend->executor_times(o.executor);
        int64_t first_ns = INT64_MAX, last_ns = 0;
        for (int t = 0; t < o.step->n_task; t++) {
            if (!o.step->task[t].active || o.step->task[t].kind == TANDEM_TASK_REDUCE) continue;
            if (times->end_ns[t] < first_ns) first_ns = times->end_ns[t];
            if (times->end_ns[t] > last_ns) last_ns = times->end_ns[t];
        }
        assert_in_range(first_ns - late_ns, 1, 1000);
        late_ns = times->step_ns - (last_ns - late_ns);
        assert_true(late_ns > 1000);
    }
    close_graph_run(&o);
    *is_clock_fixed = 0;
}

static void there_are_none_for_who_looks_between_tasks(void **state)
{
    int seen = 0;
    const int before = *graph_runs;
    opened_run o = open_graph_run(0);
    for (int i = 0; i < 6; i++) { /* graphs come and go with the observer */
        o.backend->executor_observe(o.executor, i % 2 ? NULL : count_task, &seen);
        const int had = seen;
        (void)run_graph_step(&o, i);
        assert_int_equal(seen > had, i % 2 == 0);
    }
    assert_int_equal(*graph_runs, before + 3);
    assert_string_equal(o.backend->executor_note(o.executor), "");
    close_graph_run(&o);
}

static void check_without_graphs(int *why, const char *said)
{
    double right[4];
    opened_run o = open_graph_run(0);
    for (int i = 0; i < 4; i++) right[i] = run_graph_step(&o, i);
    close_graph_run(&o);
    const int before = *graph_runs;
    *why = 1;
    o = open_graph_run(0);
    for (int i = 0; i < 4; i++) {
        assert_true(run_graph_step(&o, i) == right[i]);
        assert_int_equal(*o.backend->executor_note(o.executor) != '\0', i > 0);
    }
    const char *note = o.backend->executor_note(o.executor);
    if (!strstr(note, "no graph") || !strstr(note, "cuda:0") || !strstr(note, said)) fail_msg("%s", note);
    if (why == waits_are_lost) n_left_alone = 3;
    close_graph_run(&o);
    *why = 0;
    assert_int_equal(*graph_runs, before);
}

/* A library whose work cannot be captured; a driver whose events in graphs nobody can wait for. */
static void where_none_can_be_made_steps_are_launched(void **state)
{
    check_without_graphs(refuses_capture, "not permitted in a capture");
    check_without_graphs(marks_are_early, "wait for an event in a graph");
    check_without_graphs(waits_are_lost, "wait for an event in a graph");
}

/* Call or node number n of the fourth step fails, and all after it. Returns how many were left to come. */
static int lose_gpu_in_call(int n, tandem_status expected)
{
    opened_run o = open_graph_run(0);
    tandem_error error = {0};
    double loss = -1;
    for (int i = 0; i < 3; i++) (void)run_graph_step(&o, i);
    *fails_after = n;
    const tandem_status status = o.backend->executor_step(o.executor, 3, &loss, &error);
    const int left = *fails_after;
    *fails_after = -1;
    if (status != expected) fail_msg("call %d: status %d, %s", n, (int)status, error.text);
    if (status != TANDEM_OK) {
        if (!strstr(error.text, "the GPU is gone") || !strstr(error.text, "cuda:0"))
            fail_msg("call %d: %s", n, error.text);
        assert_int_equal(tandem_status_exit_code(status), 4);
        assert_true(loss == -1);
    }
    close_graph_run(&o);
    return left;
}

static void a_gpu_that_is_lost_in_a_graph_is_reported(void **state)
{
    const int many = 10000, n = many - lose_gpu_in_call(many, TANDEM_OK);
    assert_in_range(n, 40, 500);
    for (int k = 0; k < n; k++) (void)lose_gpu_in_call(k, TANDEM_NO_DEVICE);
}

/* A call that fails alone, while the graph is made: it is not made, or the step fails as it would have
 * before. */
static void a_call_that_fails_while_it_is_made_ends_no_training(void **state)
{
    int *fails_once = dlsym(stand_in_library_open(), "stand_in_fail_once"), notes = 0, without_effect = 0;
    assert_non_null(fails_once);
    double right[3];
    opened_run o = open_graph_run(0);
    for (int i = 0; i < 3; i++) right[i] = run_graph_step(&o, i);
    close_graph_run(&o);
    for (int n = 0, goes_on = 1; goes_on; n++) {
        tandem_error error = {0};
        double loss = 0;
        o = open_graph_run(0);
        (void)run_graph_step(&o, 0);
        *fails_once = 1;
        *fails_after = n;
        const tandem_status status = o.backend->executor_step(o.executor, 1, &loss, &error);
        const int failed = *fails_after < 0; /* 0: in a graph of the probe, and the card is lost for good */
        goes_on = *fails_after <= 0;
        *fails_once = 0;
        *fails_after = -1;
        const int is_noted = *o.backend->executor_note(o.executor) != '\0';
        notes += is_noted && status == TANDEM_OK;
        if (is_noted && status == TANDEM_OK) {
            assert_true(loss == right[1]);
            assert_true(run_graph_step(&o, 2) == right[2]);
        }
        if (!is_noted && failed && status != TANDEM_OK) assert_int_equal(status, TANDEM_NO_DEVICE);
        without_effect += !is_noted && failed && status == TANDEM_OK;
        close_graph_run(&o);
    }
    assert_true(notes > 30);
    assert_int_equal(without_effect, 1); /* how much memory is free is not known then */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_every_precision),
        cmocka_unit_test(with_histories_and_micro_steps),
        cmocka_unit_test(where_gradients_are_judged),
        cmocka_unit_test(of_several_ranks),
        cmocka_unit_test(what_is_drawn_is_what_the_cpu_draws),
        cmocka_unit_test(after_a_checkpoint),
        cmocka_unit_test(steps_come_in_any_order),
        cmocka_unit_test(steps_are_timed_in_them),
        cmocka_unit_test(the_tasks_of_a_step_are_all_of_it),
        cmocka_unit_test(there_are_none_for_who_looks_between_tasks),
        cmocka_unit_test(where_none_can_be_made_steps_are_launched),
        cmocka_unit_test(a_gpu_that_is_lost_in_a_graph_is_reported),
        cmocka_unit_test(a_call_that_fails_while_it_is_made_ends_no_training),
    };
    return cmocka_run_group_tests_name("graphs of a card", tests, open_graph_stand_in,
                                       training_folder_remove);
}
