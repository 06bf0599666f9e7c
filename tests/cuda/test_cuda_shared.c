/* folder: backend */
/* Memory that processes share, page-locked for a card: what the card brings there, another process reads and
 * changes, and the card takes it back, beside its kernels' lane. On a card in build/card/ (make test-cuda),
 * on what replaces one elsewhere. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/operator.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tandem_test.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* As backend/comm/shm_region.c takes it. */
static uint32_t *share_memory(uint64_t bytes)
{
    const int file = memfd_create("tandem-test", MFD_CLOEXEC);
    assert_true(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
    uint32_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(memory != MAP_FAILED && close(file) == 0);
    if (bytes >= HUGE_PAGE_BYTES) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* The other process: once it reads that all is there, it turns every bit. */
static pid_t start_partner(int ready[2], uint32_t *memory, uint64_t n)
{
    char word = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    (void)close(ready[1]);
    const int is_there = read(ready[0], &word, 1) == 1;
    for (uint64_t i = 0; i < n && is_there; i++) memory[i] = ~memory[i];
    _exit(!is_there);
}

static int end_partner(pid_t pid, const int ready[2], int is_there)
{
    int state = -1;
    const int is_sent = is_there && write(ready[1], "!", 1) == 1;
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return is_sent && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static tandem_status copy_on_stream(void *device, tandem_device_stream lane, void *to, const void *from,
                                    uint64_t bytes, tandem_error *error)
{
    const tandem_device_backend *on = &tandem_cuda_backend;
    tandem_status status = on->stream_wait_stream(device, lane, TANDEM_DEVICE_STREAM_COMPUTE, error);
    if (status == TANDEM_OK) status = on->copy_async(device, lane, to, from, bytes, error);
    if (status == TANDEM_OK) status = on->event_record(device, lane, 0, error);
    return status == TANDEM_OK ? on->event_sync(device, 0, error) : status;
}

/* Returns whether the driver locks the memory. */
static int check_shared_memory(uint64_t bytes)
{
    const tandem_device_backend *on = &tandem_cuda_backend;
    const uint64_t n = bytes / sizeof(uint32_t);
    tandem_error error = {0};
    void *device = NULL, *there = NULL;
    int ready[2];
    uint32_t *shared = share_memory(bytes), *number = malloc(bytes);
    const pid_t partner = start_partner(ready, shared, n); /* before a card is opened here */
    assert_non_null(number);
    for (uint64_t i = 0; i < n; i++) number[i] = (uint32_t)i * 2654435761u;
    assert_int_equal(on->open(&device, "cuda:0", &error), TANDEM_OK);
    assert_int_equal(on->events_create(device, 1, &error), TANDEM_OK);
    assert_int_equal(on->alloc(device, &there, bytes, 0, &error), TANDEM_OK);
    tandem_status status = on->copy(device, there, number, bytes, &error);
    const int is_locked = status == TANDEM_OK && on->lock(device, shared, bytes, &error) == TANDEM_OK;
    if (is_locked) {
        /* it is; and nothing is broken by that */
        assert_int_equal(on->lock(device, shared, bytes, NULL), TANDEM_NO_DEVICE);
        status = copy_on_stream(device, TANDEM_DEVICE_STREAM_D2H, shared, there, bytes, &error);
        assert_true(end_partner(partner, ready, status == TANDEM_OK));
        if (status == TANDEM_OK)
            status = copy_on_stream(device, TANDEM_DEVICE_STREAM_H2D, there, shared, bytes, &error);
        if (status == TANDEM_OK) status = on->copy(device, number, there, bytes, &error);
        on->unlock(device, shared);
    } else {
        (void)end_partner(partner, ready, 0);
    }
    require_ok(status, &error);
    for (uint64_t i = 0; i < n && is_locked; i++)
        if (number[i] != ~((uint32_t)i * 2654435761u))
            fail_msg("number %llu came back wrong", (unsigned long long)i);
    on->free(device, there, 0);
    on->close(device);
    free(number);
    assert_int_equal(munmap(shared, bytes), 0);
    assert_int_equal(gpu_open_handles(), 0);
    if (!is_locked) print_message("%llu bytes: %s\n", (unsigned long long)bytes, error.text);
    return is_locked;
}

static void another_process_sees_what_the_gpu_brings(void **state)
{
    static const uint64_t bytes[] = {4096, HUGE_PAGE_BYTES + 4096, 16 * HUGE_PAGE_BYTES};
    int locked = 0;
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++) locked += check_shared_memory(bytes[k]);
    if (locked == sizeof bytes / sizeof *bytes) return;
    if (!gpu_is_real) fail_msg("the stand-in locks all");
    puts("SKIP: this driver locks no shared memory, as it says above; ranks exchange over the network");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_process_sees_what_the_gpu_brings)};
    return skip_without_gpu() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
