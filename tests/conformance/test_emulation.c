/* folder: backend, and others for devices */
/* An emulated step beside the same step of real kernels, task by task: every task of the emulated one gets
 * what the real one read, so that its own result can be held to the real one's: the bits of what is
 * rounded, and products to 10^-6. */
#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"
#include "tests/support/training_run.h"

enum { BATCH = 4 };

typedef struct run {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_executor *executor;
} run;

/* Values of the real step, as f32, after the task that wrote them; [n_value × 1] and gradients of
 * parameters. */
typedef struct recording {
    run *real, *emulated;
    float **written[TANDEM_TASK_WRITES]; /* [n_task] */
    int64_t *n[TANDEM_TASK_WRITES];
    int n_rounded, n_product;
} recording;

static void open_run(run *r, tandem_worker *worker, const char *model, tandem_precision precision,
                     tandem_dtype amp_dtype, const tandem_emulation *emulation)
{
    tandem_error error = {0};
    r->backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    const tandem_step_options options = {.emulated = emulation != NULL};
    require_ok(tandem_graph_open(&r->graph, model, BATCH, &error), &error);
    require_ok(tandem_step_open_with(&r->step, r->graph, amp_dtype, 0, &options, &error), &error);
    for (int i = 0; i < r->graph->n_op; i++)
        if (tandem_op_row_get(r->graph->op[i].kind)->precisions >> precision & 1)
            tandem_step_set(r->step, i, precision);
    tandem_step_resolve(r->step);
    const tandem_executor_options how = {
        .step = r->step, .seed = 5, .global_batch = BATCH, .emulation = emulation, .allow_nan = 1};
    require_ok(r->backend->executor_open(&r->executor, worker, &how, &error), &error);
}

static void close_run(run *r)
{
    r->backend->executor_close(r->executor);
    tandem_step_close(r->step);
    tandem_graph_close(r->graph);
}

static int64_t count_elements(const tandem_step *step, int id)
{
    if (id < 0) return step->graph->parameter[TANDEM_PARAMETER(id)].elements;
    const int64_t bytes = (int64_t)tandem_dtype_bytes(step->value[id].dtype);
    return (int64_t)step->value[id].bytes / (step->options.emulated ? 4 : bytes);
}

static float as_f32(const void *x, tandem_dtype type, int64_t i, float scale)
{
    if (type == TANDEM_S8) return scale * (float)((const int8_t *)x)[i];
    if (type == TANDEM_BF16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    return ((const float *)x)[i]; /* s32, too: bits */
}

static void record_task(void *context, const tandem_executor *executor, int t)
{
    recording *r = context;
    const tandem_step *step = r->real->step;
    const tandem_task *task = &step->task[t];
    for (int w = 0; w < task->n_write; w++) {
        if (task->write[w] == -1) continue;
        float scale = 1;
        const tandem_dtype type = task->write[w] >= 0 ? step->value[task->write[w]].dtype : TANDEM_F32;
        const void *x = r->real->backend->executor_value(executor, task->write[w], 1, &scale);
        const int64_t n = count_elements(step, task->write[w]);
        r->n[w][t] = n;
        r->written[w][t] = malloc((size_t)n * sizeof(float));
        assert_non_null(r->written[w][t]);
        for (int64_t i = 0; i < n; i++) r->written[w][t][i] = as_f32(x, type, i, scale);
    }
}

static void compare_task(void *context, const tandem_executor *executor, int t)
{
    recording *r = context;
    const tandem_step *step = r->emulated->step;
    const tandem_task *task = &step->task[t];
    const int is_cast = task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_WEIGHT_CAST ||
                        task->kind == TANDEM_TASK_GRADIENT_CAST || task->kind == TANDEM_TASK_SAVED_CAST;
    for (int w = 0; w < task->n_write; w++) {
        if (!r->written[w][t]) continue;
        /* the executor's own memory, on a CPU */
        float *mine =
            (float *)(uintptr_t)r->emulated->backend->executor_value(executor, task->write[w], 1, NULL);
        const float *expected = r->written[w][t];
        const tandem_dtype type = task->write[w] >= 0 ? step->value[task->write[w]].dtype : TANDEM_F32;
        assert_int_equal(count_elements(step, task->write[w]), r->n[w][t]);
        double square = 0, off = 0;
        int64_t n_other = 0;
        for (int64_t i = 0; i < r->n[w][t]; i++) {
            n_other += mine[i] != expected[i];
            square += (double)expected[i] * (double)expected[i];
            off = fmax(off, fabs((double)mine[i] - (double)expected[i]));
        }
        const double rms = sqrt(square / (double)r->n[w][t]);
        const int is_s32 = type == TANDEM_S32;
        /* a result in bf16 may be rounded the other way where its sum is close to a middle */
        const double allowed = type == TANDEM_BF16 ? 0.02 : 2e-6;
        const int64_t may_differ = type == TANDEM_BF16 ? r->n[w][t] / 100 + 1 : r->n[w][t];
        if (!is_s32 && (is_cast ? n_other > 0 : off > allowed * (rms + 1e-30) * 8 || n_other > may_differ))
            fail_msg("task %d, %s of %s: %lld of %lld differ, by up to %g of %g", t,
                     tandem_task_kind_name(task->kind), step->graph->op[task->op].name, (long long)n_other,
                     (long long)r->n[w][t], off, rms);
        r->n_rounded += is_cast;
        r->n_product += !is_cast;
        memcpy(mine, expected, (size_t)r->n[w][t] * sizeof *mine);
    }
}

static void compare_step(tandem_worker *worker, const char *model, tandem_precision precision,
                         tandem_dtype amp_dtype)
{
    run real = {0}, emulated = {0};
    recording r = {.real = &real, .emulated = &emulated};
    const tandem_emulation emulation = tandem_emulation_make(5);
    tandem_error error = {0};
    double loss[2];
    open_run(&real, worker, model, precision, amp_dtype, NULL);
    open_run(&emulated, worker, model, precision, amp_dtype, &emulation);
    for (int w = 0; w < TANDEM_TASK_WRITES; w++) {
        r.written[w] = calloc((size_t)real.step->n_task, sizeof *r.written[w]);
        r.n[w] = calloc((size_t)real.step->n_task, sizeof *r.n[w]);
    }
    real.backend->executor_observe(real.executor, record_task, &r);
    emulated.backend->executor_observe(emulated.executor, compare_task, &r);
    require_ok(real.backend->executor_step(real.executor, 0, &loss[0], &error), &error);
    require_ok(emulated.backend->executor_step(emulated.executor, 0, &loss[1], &error), &error);
    assert_true(fabs(loss[0] / loss[1] - 1) < 1e-6);
    assert_true(r.n_product > 10);
    if (precision != TANDEM_PRECISION_FP32) assert_true(r.n_rounded > 5);
    for (int w = 0; w < TANDEM_TASK_WRITES; w++) {
        for (int t = 0; t < real.step->n_task; t++) free(r.written[w][t]);
        free(r.written[w]);
        free(r.n[w]);
    }
    close_run(&real);
    close_run(&emulated);
}

static void emulated_tasks_are_the_kernels(void **state)
{
    static const char *const models[] = {"mlp:width=32,depth=2,image=6x6x1,classes=5",
                                         "resnet20:width=8,image=8x8x1",
                                         "vit_tiny:width=16,heads=2,depth=1,image=8x8x1,patch=4"};
    training_require_device();
    const char *name = training_strongest();
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    tandem_device device;
    tandem_worker *worker = NULL;
    tandem_error error = {0};
    require_ok(tandem_device_find(&device, name, &error), &error);
    require_ok(backend->worker_open(
                   &worker,
                   &(tandem_worker_options){.device = name, .n_rank = 1, .cpu = -1, .timeout_ns = 1000000000},
                   &error),
               &error);
    for (size_t m = 0; m < N_OF(models); m++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (device.precisions >> p & 1)
                compare_step(worker, models[m], (tandem_precision)p, device.amp_dtype);
    backend->worker_close(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(emulated_tasks_are_the_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
