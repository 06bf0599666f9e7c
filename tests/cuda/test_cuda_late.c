/* folder: backend, and others for devices, plans or robust means */
/* Losses and faults that are read one step late: the same bits as read at once, never before they have
 * arrived, and of the step and operator that they are of; on what replaces NVIDIA's libraries, where copies
 * arrive when somebody waits for what was recorded after them. */
#include <dlfcn.h>

#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"

static int *late_copies, *has_device_memory;
static int (*copies_on_their_way)(void), (*open_handles)(void);

static int open_late_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    late_copies = dlsym(library, "stand_in_late_copies");
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    *(void **)(void *)&copies_on_their_way = dlsym(library, "stand_in_copies_on_their_way");
    *(void **)(void *)&open_handles = dlsym(library, "stand_in_open_handles");
    assert_true(late_copies && has_device_memory && copies_on_their_way && open_handles);
    *late_copies = *has_device_memory = 1;
    (void)state;
    return 0;
}

enum { STEPS = 5, BATCH = 2 };

typedef struct late_case {
    const char *model, *graphs;
    tandem_precision precision;
    int n_micro, window;
    float clip;
    int is_observed;
    int is_late; /* expected where it is asked for */
} late_case;

typedef struct late_run {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_worker *worker;
    tandem_executor *executor;
} late_run;

static void look_on(void *context, const tandem_executor *executor, int task)
{
    (void)context, (void)executor, (void)task;
}

static late_run open_late_run(const late_case *c, int is_asked)
{
    late_run o = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    tandem_cluster cluster;
    tandem_error error = {0};
    const tandem_step_options options = {
        .n_micro = c->n_micro, .scaling = {.window = c->window}, .with_norm = c->clip > 0};
    assert_int_equal(setenv("TANDEM_GRAPHS", c->graphs, 1), 0);
    assert_int_equal(tandem_cluster_parse(&cluster, "cuda:0", &error), TANDEM_OK);
    assert_int_equal(tandem_graph_open(&o.graph, c->model, BATCH, &error), TANDEM_OK);
    assert_int_equal(
        tandem_device_open_step(&o.step, &cluster.classes[0].device, o.graph, 4096, &options, &error),
        TANDEM_OK);
    for (int i = 0; i < o.graph->n_op; i++)
        if (tandem_op_is_adjustable(&o.graph->op[i]) &&
            tandem_op_row_get(o.graph->op[i].kind)->precisions >> c->precision & 1)
            tandem_step_set(o.step, i, c->precision);
    tandem_step_resolve(o.step);
    const tandem_worker_options worker = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(o.backend->worker_open(&o.worker, &worker, &error), TANDEM_OK);
    const tandem_executor_options how = {
        .step = o.step, .global_batch = BATCH * c->n_micro, .clip = c->clip, .late_results = is_asked};
    assert_int_equal(o.backend->executor_open(&o.executor, o.worker, &how, &error), TANDEM_OK);
    assert_int_equal(o.backend->executor_memory(o.executor)->peak,
                     o.backend->executor_allocated_bytes(o.executor));
    if (c->is_observed) o.backend->executor_observe(o.executor, look_on, NULL);
    return o;
}

static void close_late_run(const late_run *o)
{
    o->backend->executor_close(o->executor);
    o->backend->worker_close(o->worker);
    tandem_step_close(o->step);
    tandem_graph_close(o->graph);
    assert_int_equal(unsetenv("TANDEM_GRAPHS"), 0);
    assert_int_equal(open_handles(), 0);
}

/* Runs step i, with a rate of its own. *loss: of the step before where that was pending, else of this one. */
static tandem_status run_step(const late_run *o, int i, double *loss, tandem_error *error)
{
    o->backend->executor_set_rate(o->executor, 0.02f / (float)(i + 1));
    return o->backend->executor_step(o->executor, i, loss, error);
}

static void run_late_steps(const late_run *o, int is_late, double loss[STEPS])
{
    for (int i = 0; i < STEPS; i++) {
        double found = -1;
        const int was_pending = o->backend->executor_is_pending(o->executor);
        assert_int_equal(was_pending, is_late && i > 0);
        assert_int_equal(run_step(o, i, &found, NULL), TANDEM_OK);
        assert_int_equal(o->backend->executor_is_pending(o->executor), is_late);
        /* its losses and its faults: nobody waits for a step that runs, and all that was before has come */
        assert_int_equal(copies_on_their_way(), is_late ? 2 : 0);
        if (was_pending) loss[i - 1] = found;
        if (!is_late) loss[i] = found;
        if (was_pending || !is_late) assert_true(found > 0);
    }
    assert_int_equal(o->backend->executor_settle(o->executor, &loss[STEPS - 1], NULL), TANDEM_OK);
    assert_int_equal(o->backend->executor_is_pending(o->executor) + copies_on_their_way(), 0);
    double unchanged = 3;
    assert_int_equal(o->backend->executor_settle(o->executor, &unchanged, NULL), TANDEM_OK);
    assert_true(unchanged == 3);
}

static void check_late_case(const late_case *c)
{
    double loss[2][STEPS];
    float *weight[2];
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        const late_run o = open_late_run(c, is_asked);
        weight[is_asked] = calloc((size_t)o.step->n_flat, sizeof(float));
        assert_non_null(weight[is_asked]);
        run_late_steps(&o, is_asked && c->is_late, loss[is_asked]);
        assert_int_equal(o.backend->executor_get_weights(o.executor, weight[is_asked], NULL), TANDEM_OK);
        if (is_asked) assert_memory_equal(weight[0], weight[1], (size_t)o.step->n_flat * sizeof(float));
        close_late_run(&o);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    for (int i = 1; i < STEPS; i++) assert_true(loss[0][i] != loss[0][i - 1]);
    free(weight[1]);
    free(weight[0]);
}

/* As graphs and as launches, with micro-steps, histories and dropout. Not where the host clips, and at once
 * where somebody looks between tasks. */
static void late_losses_are_the_same(void **state)
{
    static const late_case cases[] = {
        {"mlp:width=16", "1", TANDEM_PRECISION_FP32, 1, 0, 0, 0, 1},
        {"mlp:width=16", "0", TANDEM_PRECISION_FP32, 1, 0, 0, 0, 1},
        {"gpt_tiny:width=32,depth=1,length=8,dropout=0.2", "1", TANDEM_PRECISION_FP8, 1, 3, 0, 0, 1},
        {"gpt_tiny:width=32,depth=1,length=8,dropout=0.2", "1", TANDEM_PRECISION_INT8, 3, 0, 0, 0, 1},
        {"resnet20:width=4,blocks=1", "1", TANDEM_PRECISION_FP32, 2, 0, 0, 0, 1},
        {"mlp:width=16", "1", TANDEM_PRECISION_FP32, 1, 0, 0.5f, 0, 0},
        {"mlp:width=16", "1", TANDEM_PRECISION_FP32, 1, 0, 0, 1, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_late_case(&cases[k]);
    (void)state;
}

static void the_environment_turns_it_off(void **state)
{
    static const late_case c = {"mlp:width=16", "1", TANDEM_PRECISION_FP32, 1, 0, 0, 0, 0};
    assert_int_equal(setenv("TANDEM_LATE", "0", 1), 0);
    check_late_case(&c);
    assert_int_equal(unsetenv("TANDEM_LATE"), 0);
    (void)state;
}

/* --- Faults --------------------------------------------------------------------------------------------- */

enum { FAULT = 2 }; /* the step that fails */
static const late_case fault_case = {
    "gpt_tiny:width=32,depth=1,length=8", "1", TANDEM_PRECISION_FP32, 1, 0, 0, 0, 1};

static void set_parameter(const late_run *o, float *weight, tandem_op_kind kind, const char *name, float to)
{
    int n = 0;
    for (int i = 0; i < o->graph->n_op; i++) {
        const tandem_op *op = &o->graph->op[i];
        if (op->kind != kind || !strstr(op->name, name)) continue;
        const tandem_parameter *p = &o->graph->parameter[op->parameter[0]];
        for (int64_t k = 0; k < p->elements; k++) weight[o->step->parameter_start[op->parameter[0]] + k] = to;
        n++;
    }
    assert_int_equal(n, 1);
}

/* From here on the gradient of v's weight is infinite, that of what comes before it in the backward pass
 * finite: v has rows of 1e37, and a gradient of 1e5. */
static void make_fault(const late_run *o)
{
    float *weight = calloc((size_t)o->step->n_flat, sizeof *weight);
    assert_non_null(weight);
    assert_int_equal(o->backend->executor_get_weights(o->executor, weight, NULL), TANDEM_OK);
    set_parameter(o, weight, TANDEM_OP_LAYERNORM, "norm1", 2e37f);
    set_parameter(o, weight, TANDEM_OP_LINEAR, "attention.q", 0);
    set_parameter(o, weight, TANDEM_OP_LINEAR, "attention.k", 0);
    set_parameter(o, weight, TANDEM_OP_LINEAR, "attention.v", 0);
    set_parameter(o, weight, TANDEM_OP_LINEAR, "attention.out", 1e8f);
    assert_int_equal(o->backend->executor_put_weights(o->executor, weight, NULL), TANDEM_OK);
    free(weight);
}

/* Runs up to the failing step, which fails at once, after the next step, or where it is settled. */
static tandem_error fail_once(int is_asked, int is_settled)
{
    tandem_error error = {0};
    double loss = 0;
    const late_run o = open_late_run(&fault_case, is_asked);
    for (int i = 0; i < FAULT; i++) assert_int_equal(run_step(&o, i, &loss, &error), TANDEM_OK);
    assert_int_equal(o.backend->executor_settle(o.executor, &loss, &error), TANDEM_OK);
    make_fault(&o);
    tandem_status status = run_step(&o, FAULT, &loss, &error);
    assert_int_equal(status, is_asked ? TANDEM_OK : TANDEM_LIMIT_EXCEEDED);
    if (is_asked && !is_settled) status = run_step(&o, FAULT + 1, &loss, &error);
    if (is_settled) status = o.backend->executor_settle(o.executor, &loss, &error);
    assert_int_equal(status, TANDEM_LIMIT_EXCEEDED);
    assert_int_equal(copies_on_their_way(), 0); /* nothing runs on */
    close_late_run(&o);
    return error;
}

static void a_fault_names_its_step_and_operator(void **state)
{
    const tandem_error at_once = fail_once(0, 0), late = fail_once(1, 0), settled = fail_once(1, 1);
    assert_non_null(strstr(at_once.text, "in step 3"));
    assert_non_null(strstr(at_once.text, "attention.v"));
    assert_string_equal(late.text, at_once.text);
    assert_string_equal(settled.text, at_once.text);
    assert_int_equal(late.rank, at_once.rank);
    (void)state;
}

/* A run that ends with a step under way leaves nothing. */
static void a_pending_step_may_be_closed(void **state)
{
    double loss = 0;
    const late_run o = open_late_run(&fault_case, 1);
    assert_int_equal(run_step(&o, 0, &loss, NULL), TANDEM_OK);
    assert_int_equal(copies_on_their_way(), 2);
    close_late_run(&o);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(late_losses_are_the_same),
                                       cmocka_unit_test(the_environment_turns_it_off),
                                       cmocka_unit_test(a_fault_names_its_step_and_operator),
                                       cmocka_unit_test(a_pending_step_may_be_closed)};
    return cmocka_run_group_tests(tests, open_late_stand_in, NULL);
}
