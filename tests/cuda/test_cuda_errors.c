/* folder: backend */
/* What the CUDA backend says where a card is missing, too old, full or lost, and that nothing is left
 * then. Libraries are replaced (stand_in.h), kernels run as coroutines (simt.h). */
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/operator.h"
#include "tandem/cluster.h"
#include "tests/cuda/stand_in.h"
#include "tests/support/every_case.h"
#include "tests/support/tandem_test.h"

/* backend/device/worker.h */
tandem_status tandem_cuda_backend_load(const tandem_device_backend **backend, tandem_error *error);

/* --- Opening -------------------------------------------------------------------------------------------- */

static void assert_open_refused(const char *name, tandem_status status, const char *text)
{
    void *device = &device;
    void *const before = device;
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_open_with(&device, name, &stand_in_vendor, &error), status);
    assert_non_null(strstr(error.text, text));
    assert_ptr_equal(device, before);
    assert_int_equal(stand_in_open_handles(), 0);
}

static void a_gpu_that_cannot_be_used_is_refused(void **state)
{
    const cuda_gpu good = stand_in_gpu;
    stand_in_n_gpu = 0;
    assert_open_refused("cuda:0", TANDEM_NO_DEVICE, "has 0 GPUs");
    stand_in_n_gpu = 1;
    assert_open_refused("cuda:1", TANDEM_NO_DEVICE, "has 1 GPU");
    assert_open_refused("cuda:x", TANDEM_UNKNOWN_NAME, "cuda:0, cuda:1");
    assert_open_refused("cuda:", TANDEM_UNKNOWN_NAME, "cuda:0, cuda:1");
    stand_in_gpu.major = 7, stand_in_gpu.minor = 0;
    assert_open_refused("cuda:0", TANDEM_NO_DEVICE, "compute capability 7.0");
    stand_in_gpu = good;
    stand_in_gpu.driver = 12040;
    assert_open_refused("cuda:0", TANDEM_NO_DEVICE, "CUDA 12.4, older than the 13.0");
    stand_in_gpu = good;
    stand_in_gpu.runtime = 13020; /* a driver of the same major version will do */
    void *device = NULL;
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, NULL), TANDEM_OK);
    tandem_cuda_backend.close(device);
    stand_in_gpu = good;
    const int64_t left = stand_in_memory_left;
    stand_in_memory_left = 8;
    assert_open_refused("cuda:0", TANDEM_NO_MEMORY, "ran out of memory when it was to open");
    stand_in_memory_left = left;
}

/* --- A card that is lost at the n-th call or launch, for every n ---------------------------------------- */

/* Does something; what it took it has given back when it returns. */
typedef tandem_status attempt(void *context, tandem_error *error);

/* Call n fails, and where the card is lost all after it, too. Returns whether there is a call n. */
static int lost_at(attempt *something, void *context, const char *what, int n, int once)
{
    const int before = stand_in_open_handles();
    tandem_error error = {0};
    stand_in_fail_once = once;
    stand_in_calls_to_failure = n;
    const tandem_status status = something(context, &error);
    const int failed = once ? stand_in_calls_to_failure < 0 : stand_in_calls_to_failure == 0;
    stand_in_calls_to_failure = -1;
    stand_in_fail_once = 0;
    if (stand_in_open_handles() != before) fail_msg("%s: call %d fails: something stays open", what, n);
    if (status == TANDEM_OK && !(failed && once)) return failed;
    if (status != TANDEM_NO_DEVICE || !strstr(error.text, "the GPU is gone") || !strstr(error.text, "cuda:0"))
        fail_msg("%s: call %d fails%s: status %d, %s", what, n, once ? " alone" : "", (int)status,
                 error.text);
    return 1;
}

/* How many calls it makes. Each that fails must be reported, by the words of the library, and leave
 * nothing. */
static int lost_at_every_call(attempt *something, void *context, const char *what)
{
    int n = 0;
    while (lost_at(something, context, what, n, 1)) n++;
    for (int k = 0; k < n; k++) (void)lost_at(something, context, what, k, 0);
    return n;
}

static tandem_status open_and_close(void *context, tandem_error *error)
{
    (void)context;
    void *device = NULL;
    const tandem_status status = tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, error);
    assert_int_equal(status == TANDEM_OK, device != NULL);
    tandem_cuda_backend.close(device);
    return status;
}

static void a_gpu_lost_while_it_is_opened_leaves_nothing(void **state)
{
    assert_in_range(lost_at_every_call(open_and_close, NULL, "open"), 5, 99);
    assert_int_equal(stand_in_open_handles(), 0);
}

/* A device, with memory of its own and of the host; pages are nobody's. */
enum { PAGE_BYTES = 4096, N_PAGE = 4 };
typedef struct subject {
    void *device, *memory, *staged;
    char here[256], *pages; /* [N_PAGE · PAGE_BYTES] as ranks share them */
} subject;

static subject open_error_subject(void)
{
    subject s = {0};
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_open_with(&s.device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.alloc(s.device, &s.memory, sizeof s.here, 0, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.alloc(s.device, &s.staged, sizeof s.here, 1, &error), TANDEM_OK);
    /* which the device keeps */
    assert_int_equal(tandem_cuda_backend.events_create(s.device, 3, &error), TANDEM_OK);
    s.pages = mmap(NULL, N_PAGE * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s.pages != MAP_FAILED);
    return s;
}

static void close_error_subject(const subject *s)
{
    (void)munmap(s->pages, N_PAGE * PAGE_BYTES);
    tandem_cuda_backend.free(s->device, s->staged, 1);
    tandem_cuda_backend.free(s->device, s->memory, 0);
    tandem_cuda_backend.close(s->device);
    assert_int_equal(stand_in_open_handles(), 0);
}

static tandem_status try_alloc_some(void *context, tandem_error *error)
{
    const subject *s = context;
    void *memory = NULL;
    const tandem_status status = tandem_cuda_backend.alloc(s->device, &memory, 100, 0, error);
    tandem_cuda_backend.free(s->device, memory, 0);
    return status;
}
static tandem_status try_lock_some(void *context, tandem_error *error)
{
    const subject *s = context;
    const tandem_status status = tandem_cuda_backend.lock(s->device, s->pages, PAGE_BYTES, error);
    if (status == TANDEM_OK) tandem_cuda_backend.unlock(s->device, s->pages);
    return status;
}
static tandem_status try_copy_some(void *context, tandem_error *error)
{
    subject *s = context;
    return tandem_cuda_backend.copy(s->device, s->memory, s->here, sizeof s->here, error);
}
static tandem_status try_device_sync(void *context, tandem_error *error)
{
    int is_finite = 7;
    const tandem_status status =
        tandem_cuda_backend.device_sync(((subject *)context)->device, &is_finite, error);
    if (status != TANDEM_OK) assert_int_equal(is_finite, 7);
    return status;
}
static tandem_status update_and_settle(void *context, tandem_error *error)
{
    const subject *s = context;
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f};
    float *const w = s->memory, *const v = w + 16, *const g = w + 32;
    (void)tandem_cuda_backend.update(s->device, &sgd, 1, NULL, w, (float *const[2]){v, NULL}, g, 16, 1, NULL);
    int is_finite = 0;
    return tandem_cuda_backend.device_sync(s->device, &is_finite, error);
}
static tandem_status update_and_read_later(void *context, tandem_error *error)
{
    const subject *s = context;
    const tandem_device_backend *on = &tandem_cuda_backend;
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f};
    float *const w = s->memory, *const v = w + 16, *const g = w + 32;
    int64_t nonfinite = 7;
    for (int i = 0; i < 16; i++) w[i] = v[i] = g[i] = 0;
    (void)on->update(s->device, &sgd, 1, NULL, w, (float *const[2]){v, NULL}, g, 16, 1, NULL);
    tandem_status status = on->queue_faults(s->device, s->staged, error);
    if (status == TANDEM_OK) status = on->event_record(s->device, TANDEM_DEVICE_STREAM_COMPUTE, 0, error);
    if (status == TANDEM_OK) status = on->event_sync(s->device, 0, error);
    if (status == TANDEM_OK) status = on->read_faults(&nonfinite, s->staged, error);
    assert_int_equal(nonfinite, status == TANDEM_OK ? -1 : 7);
    return status;
}
static tandem_status try_update_running(void *context, tandem_error *error)
{
    const subject *s = context;
    return tandem_cuda_backend.batchnorm_update(s->device, s->memory, (float *)s->memory + 16, 8, 100, 0.1f,
                                                error);
}
/* Lanes beside the first, as the executor uses them. */
static tandem_status try_copy_on_stream(void *context, tandem_error *error)
{
    subject *s = context;
    const tandem_device_backend *on = &tandem_cuda_backend;
    int64_t ns = 0;
    tandem_status status = on->events_create(s->device, 3, error);
    if (status == TANDEM_OK) status = on->event_record(s->device, TANDEM_DEVICE_STREAM_COMPUTE, 0, error);
    if (status == TANDEM_OK)
        status =
            on->stream_wait_stream(s->device, TANDEM_DEVICE_STREAM_D2H, TANDEM_DEVICE_STREAM_COMPUTE, error);
    if (status == TANDEM_OK)
        status =
            on->copy_async(s->device, TANDEM_DEVICE_STREAM_D2H, s->staged, s->memory, sizeof s->here, error);
    if (status == TANDEM_OK) status = on->event_record(s->device, TANDEM_DEVICE_STREAM_D2H, 1, error);
    if (status == TANDEM_OK) status = on->event_sync(s->device, 1, error);
    if (status == TANDEM_OK) status = on->event_elapsed(&ns, s->device, 0, 1, error);
    return status;
}

static void a_gpu_lost_later_is_reported_at_once(void **state)
{
    static const struct {
        const char *name;
        attempt *something;
        int min_calls;
    } rows[] = {{"take", try_alloc_some, 2},      {"lock", try_lock_some, 1},
                {"copy", try_copy_some, 2},       {"settle", try_device_sync, 3},
                {"update", update_and_settle, 4}, {"running statistics", try_update_running, 1},
                {"lanes", try_copy_on_stream, 6}, {"update, later", update_and_read_later, 5}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        subject s = open_error_subject();
        const int calls = lost_at_every_call(rows[k].something, &s, rows[k].name);
        if (calls < rows[k].min_calls) fail_msg("%s: only %d calls", rows[k].name, calls);
        close_error_subject(&s);
    }
}

/* One task of an operator, prepared and run (twice, by operands_run). */
typedef struct one_task {
    void *device;
    const tandem_step *step;
    int task;
} one_task;

static tandem_status prepare_and_run(void *context, tandem_error *error)
{
    const one_task *one = context;
    task_operands operands;
    char complaint[1200] = "";
    operands_open(&operands, one->step, one->task);
    operands_fill(&operands, one->step, one->task, 3);
    const int good = operands_run(&operands, &tandem_cuda_backend, one->device, one->step, one->task, 7, 1,
                                  complaint, sizeof complaint);
    operands_close(&operands);
    return good ? TANDEM_OK : tandem_error_set(error, TANDEM_NO_DEVICE, "%s", complaint);
}

static int lost_in_every_task(void *device, const operator_case *c, tandem_precision precision)
{
    case_graph made;
    tandem_step *step = NULL;
    tandem_error error = {0};
    char what[300];
    int calls = 0;
    assert_int_equal(case_graph_open(&made, c, &error), TANDEM_OK);
    const tandem_step_options options = {.transposed_copy = 1, .narrow_rows = 1};
    assert_int_equal(tandem_step_open_with(&step, made.graph, TANDEM_BF16, 0, &options, &error), TANDEM_OK);
    case_set_precisions(step, &made, precision, precision, precision);
    for (int t = 0; t < step->n_task; t++) {
        const tandem_task *task = &step->task[t];
        const int is_shared = task->kind == TANDEM_TASK_REDUCE || task->kind == TANDEM_TASK_UPDATE;
        if (!task->active || is_shared || (task->op != made.op && task->op != made.pre)) continue;
        one_task one = {device, step, t};
        const tandem_op_kind kind = made.graph->op[task->op].kind;
        if (tandem_op_row_get(kind)->op_class == TANDEM_SOURCE || kind == TANDEM_OP_RESHAPE) continue;
        (void)snprintf(what, sizeof what, "%s of %s in %s", tandem_task_kind_name(task->kind),
                       tandem_op_row_get(kind)->name, tandem_precision_get(precision)->name);
        if (prepare_and_run(&one, &error) != TANDEM_OK) { /* with nothing lost */
            if (!strstr(error.text, "has no kernel")) fail_msg("%s: %s", what, error.text);
            continue;
        }
        calls += lost_at_every_call(prepare_and_run, &one, what);
    }
    tandem_step_close(step);
    tandem_graph_close(made.graph);
    return calls;
}

static void a_gpu_lost_in_any_operator_is_reported_at_once(void **state)
{
    static const tandem_precision precisions[] = {TANDEM_PRECISION_FP32, TANDEM_PRECISION_BF16,
                                                  TANDEM_PRECISION_INT8_FULL};
    void *device = NULL;
    tandem_error error = {0};
    int calls = 0;
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    for (int i = 0; i < n_operator_case; i++) {
        const tandem_op_kind kind = operator_cases[i].kind;
        const int is_first = i == 0 || operator_cases[i - 1].kind != kind, /* they are small */
            has_copies = kind == TANDEM_OP_LINEAR && operator_cases[i].out == 48 &&
                         !operator_cases[i].flag; /* column-wise ones */
        if (!is_first && !has_copies) continue;
        for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++)
            if (k == 0 || tandem_op_row_get(kind)->precisions >> precisions[k] & 1)
                calls += lost_in_every_task(device, &operator_cases[i], precisions[k]);
    }
    assert_true(calls > 300);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_handles(), 0);
}

/* --- Memory and gradients ------------------------------------------------------------------------------- */

static void memory_is_cleared_and_ends(void **state)
{
    void *device = NULL, *memory = NULL;
    tandem_error error = {0};
    const char zeros[100] = {0};
    char back[100] = "x";
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.alloc(device, &memory, sizeof back, 0, &error), TANDEM_OK);
    assert_int_equal(tandem_cuda_backend.copy(device, back, memory, sizeof back, &error), TANDEM_OK);
    assert_memory_equal(back, zeros, sizeof back);
    void *more = NULL;
    assert_int_equal(tandem_cuda_backend.alloc(device, &more, UINT64_C(1) << 40, 0, &error),
                     TANDEM_NO_MEMORY);
    assert_non_null(strstr(error.text, "cuda:0"));
    assert_null(more);
    stand_in_calls_to_failure = 0;
    assert_int_equal(tandem_cuda_backend.copy(device, back, memory, sizeof back, &error), TANDEM_NO_DEVICE);
    stand_in_calls_to_failure = -1;
    tandem_cuda_backend.free(device, memory, 0);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_handles(), 0);
}

static tandem_status bring_down(const subject *s, char *to)
{
    const tandem_device_backend *on = &tandem_cuda_backend;
    const tandem_status status =
        on->stream_wait_stream(s->device, TANDEM_DEVICE_STREAM_D2H, TANDEM_DEVICE_STREAM_COMPUTE, NULL);
    if (status != TANDEM_OK) return status;
    return on->copy_async(s->device, TANDEM_DEVICE_STREAM_D2H, to, s->memory, sizeof s->here, NULL);
}

static void not_locked(const subject *s, char *memory, uint64_t bytes, const char *why)
{
    tandem_error error = {0};
    assert_int_equal(tandem_cuda_backend.lock(s->device, memory, bytes, &error), TANDEM_NO_DEVICE);
    if (!strstr(error.text, why) || !strstr(error.text, "page-lock")) fail_msg("%s", error.text);
}

static void memory_of_others_is_locked_once(void **state)
{
    subject s = open_error_subject();
    const tandem_device_backend *on = &tandem_cuda_backend;
    memset(s.here, 7, sizeof s.here);
    assert_int_equal(on->copy(s.device, s.memory, s.here, sizeof s.here, NULL), TANDEM_OK);
    assert_int_equal(bring_down(&s, s.pages), TANDEM_NO_DEVICE); /* the host would wait */
    not_locked(&s, s.pages + 64, PAGE_BYTES, "invalid");
    not_locked(&s, s.pages, 64, "invalid");
    not_locked(&s, s.pages, 0, "invalid");
    assert_int_equal(on->lock(s.device, s.pages + PAGE_BYTES, 2 * PAGE_BYTES, NULL), TANDEM_OK);
    not_locked(&s, s.pages + PAGE_BYTES, 2 * PAGE_BYTES, "already");
    not_locked(&s, s.pages, 2 * PAGE_BYTES, "already");
    assert_int_equal(bring_down(&s, s.pages), TANDEM_NO_DEVICE);
    assert_int_equal(bring_down(&s, s.pages + PAGE_BYTES), TANDEM_OK);
    on->unlock(s.device, s.pages + PAGE_BYTES); /* what is on its way arrives */
    assert_memory_equal(s.pages + PAGE_BYTES, s.here, sizeof s.here);
    assert_int_equal(bring_down(&s, s.pages + PAGE_BYTES), TANDEM_NO_DEVICE);
    assert_int_equal(munmap(s.pages + 3 * PAGE_BYTES, PAGE_BYTES), 0);
    not_locked(&s, s.pages + 2 * PAGE_BYTES, 2 * PAGE_BYTES, "invalid");
    close_error_subject(&s);
}

static void gradients_that_are_not_finite_are_reported_once(void **state)
{
    enum { FLAT = 32 };
    void *device = NULL;
    tandem_error error = {0};
    int is_finite = -1;
    const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f, .momentum = 0.9f};
    assert_int_equal(tandem_cuda_open_with(&device, "cuda:0", &stand_in_vendor, &error), TANDEM_OK);
    void *memory = NULL;
    assert_int_equal(tandem_cuda_backend.alloc(device, &memory, 3 * FLAT * sizeof(float), 0, &error),
                     TANDEM_OK);
    float *const w = memory, *const v = w + FLAT, *const g = v + FLAT;
    float *const states[2] = {v, NULL};
    for (int round = 0; round < 3; round++) {
        g[5] = round == 1 ? NAN : 1;
        assert_int_equal(
            tandem_cuda_backend.update(device, &sgd, 1, NULL, w, states, g, FLAT, round + 1, NULL), 1);
        assert_int_equal(tandem_cuda_backend.device_sync(device, &is_finite, &error), TANDEM_OK);
        assert_int_equal(is_finite, round != 1);
    }
    /* without waiting: which 16 elements, once */
    void *staged = NULL;
    assert_int_equal(tandem_cuda_backend.alloc(device, &staged, TANDEM_FAULT_BYTES, 1, &error), TANDEM_OK);
    g[5] = 1, g[17] = INFINITY;
    for (int round = 0; round < 2; round++) {
        int64_t nonfinite = -2;
        if (round == 0) (void)tandem_cuda_backend.update(device, &sgd, 1, NULL, w, states, g, FLAT, 4, NULL);
        assert_int_equal(tandem_cuda_backend.queue_faults(device, staged, &error), TANDEM_OK);
        assert_int_equal(tandem_cuda_backend.read_faults(&nonfinite, staged, &error), TANDEM_OK);
        assert_int_equal(nonfinite, round == 0 ? 1 : -1);
    }
    tandem_cuda_backend.free(device, staged, 1);
    tandem_cuda_backend.free(device, memory, 0);
    tandem_cuda_backend.close(device);
    assert_int_equal(stand_in_open_handles(), 0);
}

/* --- The library itself, as ranks open it --------------------------------------------------------------- */

static void library_refused(const char *path, const char *text)
{
    const tandem_device_backend *backend = NULL;
    tandem_error error = {0};
    assert_int_equal(setenv("TANDEM_CUDA", path, 1), 0);
    const tandem_status status = tandem_cuda_backend_load(&backend, &error);
    assert_int_equal(unsetenv("TANDEM_CUDA"), 0);
    assert_int_equal(status, TANDEM_NO_DEVICE);
    assert_null(backend);
    if (!strstr(error.text, text)) fail_msg("'%s' does not say '%s'", error.text, text);
}

/* A copy of the library that replaces libtandem_cuda.so here, which needs libq.so.6 where that needs
 * libm.so.6. */
static void write_one_that_lacks_something(const char *path)
{
    static const char has[] = "libm.so.6", lacks[] = "libq.so.6";
    char own[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(n > 0);
    own[n] = '\0';
    *strrchr(own, '/') = '\0';
    memcpy(strrchr(own, '/'), "/libtandem_cuda.so", sizeof "/libtandem_cuda.so");
    FILE *from = fopen(own, "rb"), *to = fopen(path, "wb");
    assert_true(from && to && fseek(from, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(from);
    char *bytes = malloc(size);
    rewind(from);
    assert_true(bytes && fread(bytes, 1, size, from) == size);
    char *name = memmem(bytes, size, has, sizeof has);
    assert_non_null(name);
    memcpy(name, lacks, sizeof lacks);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    free(bytes);
    assert_int_equal(fclose(to), 0);
    (void)fclose(from);
}

static void a_library_that_does_not_open_says_why(void **state)
{
    char path[] = "/tmp/tandem-cuda-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    library_refused(path, "file too short");
    write_one_that_lacks_something(path);
    library_refused(path, "libq.so.6: cannot open shared object file");
    assert_int_equal(unlink(path), 0);
    library_refused(path, "No such file");
    library_refused("libm.so.6", "of another version");
}

static void the_library_is_of_one_version(void **state)
{
    const tandem_device_backend *tandem_cuda_get(int version);
    assert_ptr_equal(tandem_cuda_get(TANDEM_BACKEND_VERSION), &tandem_cuda_backend);
    assert_null(tandem_cuda_get(TANDEM_BACKEND_VERSION + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_cannot_be_used_is_refused),
        cmocka_unit_test(a_gpu_lost_while_it_is_opened_leaves_nothing),
        cmocka_unit_test(a_gpu_lost_later_is_reported_at_once),
        cmocka_unit_test(a_gpu_lost_in_any_operator_is_reported_at_once),
        cmocka_unit_test(memory_is_cleared_and_ends),
        cmocka_unit_test(memory_of_others_is_locked_once),
        cmocka_unit_test(gradients_that_are_not_finite_are_reported_once),
        cmocka_unit_test(a_library_that_does_not_open_says_why),
        cmocka_unit_test(the_library_is_of_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
