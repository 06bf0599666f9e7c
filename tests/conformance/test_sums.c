/* folder: backend, and others for devices, plans or robust means */
/* The gradient of a tensor that several operators read, in small networks on every device of this machine:
 * sums that kernels add to in place against sums of parts that lie apart, in every precision, and against
 * differences of the loss.
 *
 * A process opens one device only, so each device is tested in a child. */
#include <sys/wait.h>
#include <unistd.h>

#include "graph/ir/build.h"
#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/support/metrics.h"
#include "tests/support/tandem_test.h"

enum { BATCH = 3, ROWS = 4, WIDTH = 6, CLASSES = 5 };

/* --- Networks: `x` is read several times ---------------------------------------------------------------- */

static const float deviation = 0.5f;

/* By the sum, which passes its gradient on, and by the linear, which adds to it. */
static int residual(tandem_builder *b, int x)
{
    return tandem_build_add(b, "sum", x,
                            tandem_build_gelu(b, "f", tandem_build_linear(b, "a", x, WIDTH, deviation)));
}

/* The linear reads what it would have to write over: the sum stays a task. */
static int bare_residual(tandem_builder *b, int x)
{
    return tandem_build_add(b, "sum", x, tandem_build_linear(b, "a", x, WIDTH, deviation));
}

static int three_linears(tandem_builder *b, int x)
{
    const int a = tandem_build_gelu(b, "f", tandem_build_linear(b, "a", x, WIDTH, deviation)),
              c = tandem_build_linear(b, "b", x, WIDTH, deviation),
              d = tandem_build_linear(b, "c", x, WIDTH, deviation);
    return tandem_build_add(b, "sum", a, tandem_build_add(b, "sum2", c, d));
}

static int attention(tandem_builder *b, int x)
{
    const int q = tandem_build_linear(b, "q", x, WIDTH, deviation),
              k = tandem_build_linear(b, "k", x, WIDTH, deviation),
              v = tandem_build_linear(b, "v", x, WIDTH, deviation);
    const int p = tandem_build_softmax(b, "p", tandem_build_matmul(b, "qk", q, k, 1), 0.5f, 0);
    return tandem_build_add(b, "sum", x, tandem_build_matmul(b, "pv", p, v, 0));
}

/* Products of x and y in both orders, and of x with itself: both gradients of a product are added to
 * others. */
static int products(tandem_builder *b, int x)
{
    const int y = tandem_build_linear(b, "y", x, WIDTH, deviation),
              xy = tandem_build_matmul(b, "xy", x, y, 1), yx = tandem_build_matmul(b, "yx", y, x, 1),
              xx = tandem_build_matmul(b, "xx", x, x, 1);
    const int both = tandem_build_add(b, "both", tandem_build_softmax(b, "pxy", xy, 1, 0),
                                      tandem_build_softmax(b, "pyx", yx, 1, 0));
    return tandem_build_matmul(
        b, "out", tandem_build_add(b, "all", both, tandem_build_softmax(b, "pxx", xx, 1, 0)), y, 0);
}

static int convolutions(tandem_builder *b, int x)
{
    static const int64_t image[4] = {BATCH, ROWS, 1, WIDTH}, shape[3] = {BATCH, ROWS, WIDTH};
    const int i = tandem_build_reshape(b, "image", x, 4, image);
    const int a = tandem_build_conv2d(b, "a", i, WIDTH, 1, 1, 0),
              c = tandem_build_conv2d(b, "b", i, WIDTH, 1, 1, 0);
    const int sum = tandem_build_add(b, "sum", tandem_build_gelu(b, "f", a), tandem_build_gelu(b, "g", c));
    return tandem_build_reshape(b, "rows", tandem_build_add(b, "with", i, sum), 3, shape);
}

static const struct network {
    const char *name;
    int (*build)(tandem_builder *b, int x);
    int n_adds, n_sum; /* tasks that add to a gradient in place, and sums that remain */
} networks[] = {{"residual", residual, 1, 0},           {"bare residual", bare_residual, 0, 1},
                {"three linears", three_linears, 2, 0}, {"attention", attention, 3, 0},
                {"products", products, 5, 1},           {"convolutions", convolutions, 2, 0}};

static int open_network(tandem_graph **graph, const struct network *network, tandem_error *error)
{
    static const int64_t shape[3] = {BATCH, ROWS, WIDTH}, flat[2] = {BATCH, ROWS * WIDTH};
    static const tandem_optimizer_options still = {.kind = TANDEM_SGD};
    tandem_builder *b = NULL;
    if (tandem_builder_open(&b, BATCH, error) != TANDEM_OK) return 0;
    const int images = tandem_build_images(b, "images", ROWS, 2, WIDTH / 2),
              labels = tandem_build_labels(b, "labels", 1);
    const int x =
        tandem_build_linear(b, "x", tandem_build_reshape(b, "in", images, 3, shape), WIDTH, deviation);
    const int y = tandem_build_reshape(b, "flat", network->build(b, x), 2, flat);
    tandem_build_cross_entropy(b, "loss", tandem_build_linear(b, "head", y, CLASSES, deviation), labels);
    const tandem_status status = tandem_builder_finish(b, network->name, &still, graph, error);
    tandem_builder_close(b);
    return status == TANDEM_OK;
}

/* --- A network on a device ------------------------------------------------------------------------------ */

typedef struct subject {
    const tandem_backend_api *backend;
    tandem_worker *worker;
    const tandem_device *row;
    const struct network *network;
    tandem_graph *graph;
    tandem_precision precision;
    int complaints;
} subject;

static void complain(subject *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s, %s: ", s->network->name, tandem_precision_get(s->precision)->name);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    s->complaints++;
}

static void count_sums(subject *s, const tandem_step *step)
{
    int n_adds = 0, n_sum = 0;
    for (int t = 0; t < step->n_task; t++) {
        if (!step->task[t].active) continue;
        n_sum += step->task[t].kind == TANDEM_TASK_ACCUMULATE;
        n_adds += step->task[t].kind != TANDEM_TASK_ACCUMULATE && step->task[t].accumulate;
    }
    if (n_adds != s->network->n_adds || n_sum != s->network->n_sum)
        complain(s, "%d tasks add and %d sums remain, should be %d and %d", n_adds, n_sum, s->network->n_adds,
                 s->network->n_sum);
}

/* 0 where it cannot be opened. */
static int open_executor_sums(subject *s, tandem_step **step, tandem_executor **executor,
                              int separate_partial_grads)
{
    tandem_error error = {0};
    const tandem_step_options options = {.separate_partial_grads = separate_partial_grads};
    tandem_status status = tandem_step_open_with(step, s->graph, s->row->amp_dtype, 0, &options, &error);
    for (int i = 0; i < s->graph->n_op && status == TANDEM_OK; i++)
        if (tandem_op_row_get(s->graph->op[i].kind)->precisions >> s->precision & 1)
            tandem_step_set(*step, i, s->precision);
    if (status == TANDEM_OK) tandem_step_resolve(*step);
    if (status == TANDEM_OK)
        status = s->backend->executor_open(
            executor, s->worker, &(tandem_executor_options){.step = *step, .seed = 3, .global_batch = BATCH},
            &error);
    if (status != TANDEM_OK) complain(s, "%s", error.text);
    return status == TANDEM_OK;
}

static double loss_of(subject *s, tandem_executor *executor)
{
    double loss = NAN;
    tandem_error error = {0};
    if (s->backend->executor_step(executor, 0, &loss, &error) != TANDEM_OK) complain(s, "%s", error.text);
    return loss;
}

/* Of sums that begin with what is there a product may round differently; in narrow types parts are no longer
 * rounded by themselves, and a cast may fall on the other side. */
static double allowed(tandem_precision precision)
{
    return precision == TANDEM_PRECISION_FP32 ? 1e-6 : precision == TANDEM_PRECISION_BF16 ? 1e-2 : 3e-2;
}

static void compare_sums(subject *s, const tandem_executor *added, const tandem_executor *apart)
{
    for (int p = 0; p < s->graph->n_parameter; p++) {
        const size_t n = (size_t)s->graph->parameter[p].elements;
        const float *const a = s->backend->executor_value(added, TANDEM_PARAMETER(p), 1, NULL),
                           *const b = s->backend->executor_value(apart, TANDEM_PARAMETER(p), 1, NULL);
        double right[WIDTH * ROWS * WIDTH], got[WIDTH * ROWS * WIDTH];
        assert_true(n <= sizeof right / sizeof *right);
        for (size_t i = 0; i < n; i++) right[i] = (double)b[i], got[i] = (double)a[i];
        const double off = metrics_relative_l2(right, got, n);
        if (!(off <= allowed(s->precision)))
            complain(s, "gradient of '%s': added in place it is off by %.3g, allowed is %.3g",
                     s->graph->op[s->graph->parameter[p].op].name, off, allowed(s->precision));
    }
    if (s->backend->executor_allocated_bytes(added) != s->backend->executor_memory(added)->peak)
        complain(s, "%llu bytes were allocated",
                 (unsigned long long)s->backend->executor_allocated_bytes(added));
}

/* Of x's weight, by the stencil of gradient_check.h. */
static void differentiate(subject *s, tandem_executor *executor)
{
    static const double place[4] = {1, -1, 2, -2}, factor[4] = {8, -8, -1, 1}, h = 0x1p-5;
    const int id = TANDEM_PARAMETER(0);
    const float *const gradient = s->backend->executor_value(executor, id, 1, NULL);
    float *const weight = (float *)(uintptr_t)s->backend->executor_value(executor, id, 0, NULL);
    float kept_gradient[WIDTH * WIDTH];
    double largest = 0;
    const double loss = loss_of(s, executor);
    memcpy(kept_gradient, gradient, sizeof kept_gradient);
    for (int i = 0; i < WIDTH * WIDTH; i++) largest = fmax(largest, fabs((double)kept_gradient[i]));
    for (int i = 0; i < WIDTH * WIDTH; i += 5) {
        const float kept = weight[i];
        double slope = 0;
        for (int k = 0; k < 4; k++) {
            weight[i] = (float)((double)kept + place[k] * h);
            slope += factor[k] * loss_of(s, executor) / (12 * h);
        }
        weight[i] = kept;
        if (!(fabs(slope - (double)kept_gradient[i]) <= 1e-3 * largest + 0x1p-14 * loss))
            complain(s, "weight %d of x: gradient %.7g, differences say %.7g", i, (double)kept_gradient[i],
                     slope);
    }
}

static void check_sums(subject *s)
{
    tandem_step *step[2] = {NULL};
    tandem_executor *executor[2] = {NULL};
    if (open_executor_sums(s, &step[0], &executor[0], 0) &&
        open_executor_sums(s, &step[1], &executor[1], 1)) {
        count_sums(s, step[0]);
        (void)loss_of(s, executor[0]);
        (void)loss_of(s, executor[1]);
        compare_sums(s, executor[0], executor[1]);
        if (s->precision == TANDEM_PRECISION_FP32) differentiate(s, executor[0]);
    }
    for (int k = 0; k < 2; k++) {
        s->backend->executor_close(executor[k]);
        tandem_step_close(step[k]);
    }
}

static int child_sums(const tandem_device *row)
{
    subject s = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION), .row = row, .network = networks};
    tandem_error error = {0};
    const tandem_worker_options alone = {.device = row->name, .n_rank = 1, .cpu = -1};
    if (s.backend->worker_open(&s.worker, &alone, &error) != TANDEM_OK) {
        printf("%s cannot be opened: %s\n", row->name, error.text);
        return 1;
    }
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        s.network = &networks[k];
        if (!open_network(&s.graph, s.network, &error)) complain(&s, "%s", error.text);
        for (int p = 0; p < TANDEM_N_PRECISION && s.graph; p++) {
            s.precision = (tandem_precision)p;
            if (row->precisions >> p & 1) check_sums(&s);
        }
        tandem_graph_close(s.graph);
        s.graph = NULL;
    }
    s.backend->worker_close(s.worker);
    return s.complaints > 0;
}

static void sums_on(void **state)
{
    const tandem_device *row = *state;
    if (!tandem_device_is_present(row->name)) {
        printf("SKIP: this machine lacks %s\n", row->name);
        skip();
    }
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int bad = child_sums(row);
        fflush(NULL);
        _exit(bad);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int main(void)
{
    struct CMUnitTest tests[32];
    size_t n = 0;
    for (int i = 0; i < tandem_device_count() && n < sizeof tests / sizeof tests[0]; i++)
        if (!tandem_device_is_described(tandem_device_get(i)))
            tests[n++] = (struct CMUnitTest){.name = tandem_device_get(i)->name,
                                             .test_func = sums_on,
                                             .initial_state = (void *)tandem_device_get(i)};
    return _cmocka_run_group_tests("sums of gradients", tests, n, NULL, NULL);
}
