/* folder: backend */
/* Graphs of the CUDA backend by themselves: what is recorded is done later, with the arguments it had; what
 * may not be done meanwhile makes an end of it, and of nothing else. And what replaces NVIDIA's libraries
 * keeps to the rules of a capture. */
#include "backend/cuda/operator.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/tandem_test.h"

static const tandem_device_backend *const backend = &tandem_cuda_backend;

enum { N = 16 };
typedef struct subject {
    void *device;
    float *memory, *staged; /* [N] on the device, on the host */
} subject;

static int open_capture_subject(void **state)
{
    static subject s;
    void *memory = NULL, *staged = NULL;
    s = (subject){NULL, NULL, NULL};
    assert_int_equal(tandem_cuda_open_with(&s.device, "cuda:0", &stand_in_vendor, NULL), TANDEM_OK);
    assert_int_equal(backend->events_create(s.device, 2, NULL), TANDEM_OK);
    assert_int_equal(backend->alloc(s.device, &memory, N * sizeof(float), 0, NULL), TANDEM_OK);
    assert_int_equal(backend->alloc(s.device, &staged, N * sizeof(float), 1, NULL), TANDEM_OK);
    s.memory = memory;
    s.staged = staged;
    *state = &s;
    return 0;
}

static int close_capture_subject(void **state)
{
    const subject *s = *state;
    backend->free(s->device, s->memory, 0);
    backend->free(s->device, s->staged, 1);
    backend->close(s->device);
    return stand_in_open_handles();
}

/* Up on the first lane, and down again after it on another one, which ends with mark 1. */
static tandem_status copy_there_and_back(const subject *s, tandem_error *error)
{
    const uint64_t bytes = N / 2 * sizeof(float);
    tandem_status status =
        backend->copy_async(s->device, TANDEM_DEVICE_STREAM_COMPUTE, s->memory, s->staged, bytes, error);
    if (status == TANDEM_OK)
        status = backend->stream_wait_stream(s->device, TANDEM_DEVICE_STREAM_D2H,
                                             TANDEM_DEVICE_STREAM_COMPUTE, error);
    if (status == TANDEM_OK)
        status = backend->copy_async(s->device, TANDEM_DEVICE_STREAM_D2H, s->staged + N / 2, s->memory, bytes,
                                     error);
    return status == TANDEM_OK ? backend->event_record(s->device, TANDEM_DEVICE_STREAM_D2H, 1, error)
                               : status;
}

static void it_is_done_when_it_is_replayed(void **state)
{
    const subject *s = *state;
    void *graph = NULL;
    assert_int_equal(backend->graph_begin_capture(s->device, NULL), TANDEM_OK);
    assert_int_equal(copy_there_and_back(s, NULL), TANDEM_OK);
    s->staged[0] = 1;
    assert_int_equal(backend->graph_end_capture(s->device, &graph, NULL), TANDEM_OK);
    assert_true(s->staged[N / 2] == 0);
    for (int k = 2; k < 6; k++) { /* both kinds of runs */
        s->staged[0] = (float)k;
        assert_int_equal(backend->graph_launch(s->device, graph, NULL), TANDEM_OK);
        assert_int_equal(backend->event_sync(s->device, 1, NULL), TANDEM_OK);
        assert_true(s->staged[N / 2] == (float)k);
    }
    backend->graph_destroy(s->device, graph);
    backend->graph_destroy(s->device, NULL);
}

/* The rate is an argument, and what lies on the card is none. */
static void arguments_stay_and_memory_does_not(void **state)
{
    const subject *s = *state;
    void *graph = NULL, *memory = NULL;
    float weight[2];
    assert_int_equal(backend->alloc(s->device, &memory, (3 * N + 1) * sizeof(float), 0, NULL), TANDEM_OK);
    float *const w = memory, *const v = w + N, *const g = v + N, *const rates = g + N, step = 2;
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.5f};
        assert_int_equal(backend->copy(s->device, g, &(float){1}, sizeof *g, NULL), TANDEM_OK);
        assert_int_equal(backend->copy(s->device, w, &(float){0}, sizeof *w, NULL), TANDEM_OK);
        assert_int_equal(backend->graph_begin_capture(s->device, NULL), TANDEM_OK);
        (void)backend->update(s->device, &sgd, 0, NULL, w, (float *const[2]){v, NULL}, g, N, 1,
                              by_memory ? rates : NULL);
        assert_int_equal(backend->graph_end_capture(s->device, &graph, NULL), TANDEM_OK);
        sgd.rate = 7;
        for (int k = 0; k < 2; k++) {
            const float rate = (float)k * step;
            assert_int_equal(backend->copy(s->device, rates, &rate, sizeof rate, NULL), TANDEM_OK);
            assert_int_equal(backend->graph_launch(s->device, graph, NULL), TANDEM_OK);
            assert_int_equal(backend->copy(s->device, &weight[k], w, sizeof *w, NULL), TANDEM_OK);
        }
        assert_true(weight[0] == (by_memory ? 0 : -0.5f) && weight[1] == (by_memory ? -step : -1.0f));
        backend->graph_destroy(s->device, graph);
    }
    backend->free(s->device, memory, 0);
}

static tandem_status try_alloc(const subject *s, tandem_error *error)
{
    void *memory = NULL;
    return backend->alloc(s->device, &memory, 64, 0, error);
}
static tandem_status try_copy(const subject *s, tandem_error *error)
{
    return backend->copy(s->device, s->staged, s->memory, sizeof *s->staged, error);
}
static tandem_status try_event_sync(const subject *s, tandem_error *error)
{
    return backend->event_sync(s->device, 0, error);
}
static tandem_status try_capture_again(const subject *s, tandem_error *error)
{
    return backend->graph_begin_capture(s->device, error);
}

static void what_is_not_permitted_makes_an_end_of_it(void **state)
{
    const subject *s = *state;
    static const struct {
        tandem_status (*call)(const subject *s, tandem_error *error);
        int ends;
    } rows[] = {{try_alloc, 1}, {try_copy, 1}, {try_event_sync, 1}, {try_capture_again, 0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        tandem_error error = {0};
        void *graph = NULL;
        assert_int_equal(backend->graph_begin_capture(s->device, NULL), TANDEM_OK);
        assert_int_equal(copy_there_and_back(s, NULL), TANDEM_OK);
        assert_int_equal(rows[k].call(s, &error), TANDEM_NO_DEVICE);
        assert_int_equal(backend->graph_end_capture(s->device, &graph, &error),
                         rows[k].ends ? TANDEM_NO_DEVICE : TANDEM_OK);
        assert_int_equal(graph == NULL, rows[k].ends);
        if (rows[k].ends) assert_non_null(strstr(error.text, "not permitted in a capture"));
        backend->graph_destroy(s->device, graph);
        s->staged[0] = (float)(10 + k); /* and all is as it was */
        assert_int_equal(copy_there_and_back(s, NULL), TANDEM_OK);
        assert_int_equal(backend->event_sync(s->device, 1, NULL), TANDEM_OK);
        assert_true(s->staged[N / 2] == s->staged[0]);
    }
}

/* By the libraries' own calls. */
static void a_capture_keeps_its_rules(void **state)
{
    enum {
        UNSUPPORTED = 900,
        INVALIDATED = 901,
        UNMATCHED = 903,
        UNJOINED = 904,
        ISOLATION = 905,
        CAPTURED = 907
    };
    const cuda_vendor *v = &stand_in_vendor;
    tandem_cuda_stream a = NULL, b = NULL;
    tandem_cuda_event e = NULL, f = NULL;
    tandem_cuda_graph graph = NULL;
    void *memory = NULL;
    assert_int_equal(v->alloc(&memory, 2 * sizeof(float), 1), 0);
    float *const x = memory, *const y = x + 1;
    *x = 1;
    *y = 2;
    assert_int_equal(v->stream_open(&a), 0);
    assert_int_equal(v->stream_open(&b), 0);
    assert_int_equal(v->event_open(&e), 0);
    assert_int_equal(v->event_open(&f), 0);
    assert_int_not_equal(v->event_record_external(e, a), 0); /* of captures only */
    assert_int_equal(v->capture_end(&graph, a), UNMATCHED);
    assert_int_equal(v->event_record(f, a), 0);

    assert_int_equal(v->capture_begin(a), 0); /* forked, not joined */
    assert_int_equal(v->event_record(e, a), 0);
    assert_int_equal(v->stream_wait_event(b, e), 0);
    assert_int_equal(v->copy(y, x, sizeof *x, b), 0);
    assert_int_equal(v->capture_end(&graph, b), UNMATCHED);
    assert_int_equal(v->capture_end(&graph, a), UNJOINED);
    assert_int_equal(v->event_sync(e), CAPTURED); /* it marks nothing that happens */

    assert_int_equal(v->capture_begin(a), 0); /* waits for what is not in it */
    assert_int_equal(v->stream_wait_event(a, f), ISOLATION);
    assert_int_equal(v->copy(y, x, sizeof *x, a), INVALIDATED);
    assert_int_equal(v->capture_end(&graph, a), INVALIDATED);

    assert_int_equal(v->capture_begin(a), 0); /* waited for */
    assert_int_equal(v->event_record(e, a), 0);
    assert_int_equal(v->event_sync(e), CAPTURED);
    assert_int_equal(v->capture_end(&graph, a), INVALIDATED);
    assert_int_equal(v->capture_begin(a), 0);
    assert_int_equal(v->stream_sync(a), UNSUPPORTED);
    assert_int_equal(v->capture_end(&graph, a), INVALIDATED);
    assert_null(graph);
    assert_true(*y == 2);
    v->event_close(e);
    v->event_close(f);
    v->stream_close(a);
    v->stream_close(b);
    v->free(memory, 1);
}

/* Call or node number n fails, alone or with all after it. Returns whether it was reported. */
static int fails_at(const subject *s, int n, int once)
{
    tandem_error error = {0};
    void *graph = NULL;
    stand_in_fail_once = once;
    stand_in_calls_to_failure = n;
    tandem_status status = backend->graph_begin_capture(s->device, &error);
    if (status == TANDEM_OK) {
        const tandem_status put = copy_there_and_back(s, &error);
        const tandem_status ended =
            backend->graph_end_capture(s->device, &graph, put == TANDEM_OK ? &error : NULL);
        assert_int_equal(ended == TANDEM_OK, graph != NULL); /* of what was put down, if not of all */
        status = put == TANDEM_OK ? ended : put;
    }
    if (status == TANDEM_OK) status = backend->graph_launch(s->device, graph, &error);
    if (status == TANDEM_OK) status = backend->event_sync(s->device, 1, &error);
    stand_in_calls_to_failure = -1;
    stand_in_fail_once = 0;
    backend->graph_destroy(s->device, graph);
    if (status == TANDEM_OK) return 0;
    assert_int_equal(status, TANDEM_NO_DEVICE);
    if (!strstr(error.text, "cuda:0") || !strstr(error.text, "the GPU is gone"))
        fail_msg("call %d: %s", n, error.text);
    return 1;
}

static void a_gpu_that_is_lost_is_reported(void **state)
{
    const subject *s = *state;
    int n = 0;
    while (fails_at(s, n, 1)) n++; /* the first capture tries graphs' events before; it did so by now */
    for (n = 0; fails_at(s, n, 1);) n++;
    assert_in_range(n, 12, 40);
    for (int k = 0; k < n; k++) assert_true(fails_at(s, k, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_done_when_it_is_replayed, open_capture_subject,
                                        close_capture_subject),
        cmocka_unit_test_setup_teardown(arguments_stay_and_memory_does_not, open_capture_subject,
                                        close_capture_subject),
        cmocka_unit_test_setup_teardown(what_is_not_permitted_makes_an_end_of_it, open_capture_subject,
                                        close_capture_subject),
        cmocka_unit_test(a_capture_keeps_its_rules),
        cmocka_unit_test_setup_teardown(a_gpu_that_is_lost_is_reported, open_capture_subject,
                                        close_capture_subject),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
