/* folder: backend, and others for devices, plans or robust means */
/* How images of a data set come to a card, on what replaces NVIDIA's libraries: as bytes, ahead of the step
 * that takes them, in memory that is counted before; with the losses of a host that normalises them. */
#include <dlfcn.h>

#include "backend/executor/image_input.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

enum { STEPS = 5, IMAGES = 32, HEIGHT = 24, WIDTH = 32, SIDE = 28, BATCH = 2 };
static int *has_device_memory, *waits_with_copies, *eager_streams;
static int64_t *memory_left;
static tandem_data images;

static int open_input_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    waits_with_copies = dlsym(library, "stand_in_waits_with_copies");
    memory_left = dlsym(library, "stand_in_memory_left");
    eager_streams = dlsym(library, "stand_in_eager_streams");
    assert_true(has_device_memory && waits_with_copies && memory_left && eager_streams);
    *has_device_memory = 1;
    static uint8_t pixels[IMAGES * HEIGHT * WIDTH], labels[IMAGES];
    for (int i = 0; i < IMAGES * HEIGHT * WIDTH; i++) pixels[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    for (int i = 0; i < IMAGES; i++) labels[i] = (uint8_t)(i * 7 % 10);
    images = (tandem_data){.kind = TANDEM_DATA_IMAGES,
                           .name = "images",
                           .n_train = IMAGES,
                           .n_test = IMAGES,
                           .height = HEIGHT,
                           .width = WIDTH,
                           .channels = 1,
                           .n_class = 10,
                           .pixels_train = pixels,
                           .pixels_test = pixels,
                           .labels_train = labels,
                           .labels_test = labels,
                           .mean = 0.3f,
                           .deviation = 0.25f,
                           .is_shared = 1};
    return training_folder_open(state);
}

/* In a rank, at its end. */
static int waits_so_far(void) { return *waits_with_copies; }

static const char *const models[] = {"mlp:width=16", "resnet20:width=4,blocks=1"}; /* 28 × 28, 32 × 32 × 3 */

static experiment input_experiment(const char *model, int n_micro)
{
    return (experiment){.model = model,
                        .device = "cuda:0",
                        .batch = BATCH,
                        .n_rank = 1,
                        .steps = STEPS,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 5,
                        .killed_rank = -1,
                        .bucket_bytes = 4096,
                        .hash_gradients = 1,
                        .data = &images,
                        .variant = {.n_micro = n_micro},
                        .open_things = waits_so_far};
}

/* After the task that makes the input, or the labels: they are those of the host. */
static void check_batch_of_task(void *context, const tandem_executor *executor, int task)
{
    const training_view *view = context;
    const tandem_graph *graph = executor->graph;
    const tandem_op *op = view->step->task[task].op >= 0 ? &graph->op[view->step->task[task].op] : NULL;
    const int is_input = op == &graph->op[graph->input], n_micro = executor->step->options.n_micro;
    static int64_t micro_index = -1; /* of this rank's run */
    static float x[32 * 32 * 3];
    if (view->step->task[task].kind != TANDEM_TASK_FORWARD || !is_input) return;
    micro_index++;
    const int64_t *dim = op->shape.dim;
    const size_t n = (size_t)(dim[1] * dim[2] * dim[3]);
    const float *got =
        tandem_executor_value((tandem_executor *)(uintptr_t)executor,
                              tandem_value_activation(view->step, graph->input, TANDEM_F32), 0, NULL);
    tandem_data_cursor cursor = {0};
    for (int64_t b = 0; b < BATCH; b++) {
        int64_t sample = -1;
        int32_t label = -1;
        assert_int_equal(tandem_data_sample(&sample, &cursor, &images, executor->data_seed, view->index,
                                            BATCH * n_micro, micro_index % n_micro * BATCH + b, NULL),
                         TANDEM_OK);
        tandem_data_read_resized(&images, 0, sample, (int)dim[1], (int)dim[2], (int)dim[3], x, &label);
        assert_memory_equal(got + (size_t)b * n, x, n * sizeof *x);
    }
    tandem_data_cursor_free(&cursor);
}

/* The input tensor has the bits of the host, launched; and with graphs the losses and gradients of that. */
static void a_step_has_the_bits_that_the_host_would_send(void **state)
{
    for (int m = 0; m < 2; m++)
        for (int n_micro = 1; n_micro <= 3; n_micro++) {
            experiment e = input_experiment(models[m], n_micro);
            record *graphs = training_run_through(&e);
            e.observer = check_batch_of_task;
            record *launched = training_run_through(&e);
            training_check_same_bits(graphs, launched, &e);
            e.observer = NULL;
            *eager_streams = 1; /* a copy that does not wait for who reads its slot comes before */
            record *eager = training_run_through(&e);
            *eager_streams = 0;
            training_check_same_bits(graphs, eager, &e);
            training_forget(eager);
            for (int i = 1; i < STEPS; i++) assert_true(graphs->loss[0][i] != graphs->loss[0][i - 1]);
            training_forget(launched);
            training_forget(graphs);
        }
}

/* The host waits for a step when the copy of the next batch is on its way. */
static void the_next_batch_is_sent_before_a_step_is_waited_for(void **state)
{
    for (int n_micro = 1; n_micro <= 3; n_micro++) {
        experiment e = input_experiment(models[0], n_micro);
        e.hash_gradients = 0; /* which waits, too */
        record *r = training_run_through(&e);
        assert_in_range(r->open_things[0], STEPS, STEPS + 2);
        training_forget(r);
        e.data = NULL; /* noise is made on the card */
        r = training_run_through(&e);
        assert_int_equal(r->open_things[0], 0);
        training_forget(r);
    }
}

typedef struct input_run {
    const tandem_backend_api *backend;
    tandem_graph *graph;
    tandem_step *step;
    tandem_worker *worker;
    tandem_executor *executor;
    tandem_error error;
} input_run;

/* The bytes of the card that an executor takes, or 0 where it does not open. */
static int64_t bytes_of_executor(input_run *o, const tandem_data *data, int64_t has_bytes)
{
    const int64_t all = *memory_left;
    const tandem_executor_options how = {.step = o->step, .global_batch = BATCH, .data = data};
    if (has_bytes) *memory_left = has_bytes;
    const int64_t before = *memory_left;
    const tandem_status status = o->backend->executor_open(&o->executor, o->worker, &how, &o->error);
    const int64_t taken = status == TANDEM_OK ? before - *memory_left : 0;
    if (status == TANDEM_OK && data)
        assert_int_equal(tandem_image_input_device_bytes(o->executor),
                         2 * (1536 + 64) + 2 * SIDE * sizeof(tandem_pixel_blend));
    if (status == TANDEM_OK) o->backend->executor_close(o->executor);
    *memory_left = all;
    return taken;
}

/* Two slots of bytes (2 × 24 × 32 pixels, and labels), and where the model's 28 rows and columns lie. */
static void slots_are_counted_before_they_are_taken(void **state)
{
    input_run o = {.backend = tandem_backend_get(TANDEM_BACKEND_VERSION)};
    const tandem_worker_options worker_options = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    assert_int_equal(tandem_graph_open(&o.graph, models[0], BATCH, NULL), TANDEM_OK);
    assert_int_equal(tandem_step_open(&o.step, o.graph, TANDEM_BF16, 4096, NULL), TANDEM_OK);
    assert_int_equal(o.backend->worker_open(&o.worker, &worker_options, NULL), TANDEM_OK);
    const int64_t noise = bytes_of_executor(&o, NULL, 0), bytes = bytes_of_executor(&o, &images, 0);
    assert_int_equal(bytes - noise, 2 * (1536 + 64) + 2 * SIDE * (int64_t)sizeof(tandem_pixel_blend));
    assert_int_equal(bytes_of_executor(&o, &images, bytes), bytes);
    /* less: reported before anything is taken; the step's arguments and a byte of the mask are not counted */
    assert_int_equal(bytes_of_executor(&o, &images, bytes - 64), 0);
    assert_non_null(strstr(o.error.text, "need"));
    o.backend->worker_close(o.worker);
    tandem_step_close(o.step);
    tandem_graph_close(o.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_bits_that_the_host_would_send),
        cmocka_unit_test(the_next_batch_is_sent_before_a_step_is_waited_for),
        cmocka_unit_test(slots_are_counted_before_they_are_taken),
    };
    return cmocka_run_group_tests_name("images on their way to a card", tests, open_input_stand_in,
                                       training_folder_remove);
}
