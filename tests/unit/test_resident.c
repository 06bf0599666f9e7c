/* folder: backend */
/* What a process has in memory, by the system: the most of it, from where one began to look, without what
 * other ranks share. */
#include <sys/mman.h>

#include "backend/device/resident.h"
#include "tests/support/tandem_test.h"

enum { MIB = 1 << 20, SOME = 64 * MIB, CLOSE = 2 * MIB };

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

static const tandem_device_backend on_host = {.alloc = NULL};

static tandem_status take_resident(void *device, void **memory, uint64_t bytes, int is_staging,
                                   tandem_error *error)
{
    (void)device, (void)memory, (void)bytes, (void)is_staging, (void)error;
    return TANDEM_NO_MEMORY;
}

static uint64_t device_free;
static uint64_t free_bytes(void *device)
{
    (void)device;
    return device_free;
}

static void use_and_give_back(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    assert_int_equal(munmap(memory, bytes), 0);
}

static void require_plain_build(void)
{
    if (!IS_SANITIZED) return;
    print_message("SKIP: resident memory: the system counts what a sanitizer remembers, too\n");
    skip();
}

static void the_most_is_reported_and_forgotten(void **state)
{
    require_plain_build();
    const tandem_worker worker = {.backend = &on_host};
    use_and_give_back(2 * SOME); /* before anybody looks */
    tandem_resident since = tandem_resident_begin(&worker);
    if (since.before_bytes < 0) {
        print_message("SKIP: resident memory: this system does not report the most that a process had in "
                      "memory\n");
        skip();
    }
    assert_in_range(tandem_resident_peak_bytes(&since, &worker), 0, CLOSE);
    use_and_give_back(SOME);
    assert_in_range(tandem_resident_peak_bytes(&since, &worker), SOME - CLOSE, SOME + CLOSE);
    use_and_give_back(SOME / 2); /* less than before */
    assert_in_range(tandem_resident_peak_bytes(&since, &worker), SOME - CLOSE, SOME + CLOSE);
    since = tandem_resident_begin(&worker);
    assert_in_range(tandem_resident_peak_bytes(&since, &worker), 0, CLOSE);
}

static void memory_that_nobody_touched_does_not_count(void **state)
{
    require_plain_build();
    const tandem_worker worker = {.backend = &on_host};
    const tandem_resident since = tandem_resident_begin(&worker);
    if (since.before_bytes < 0) skip();
    void *memory = mmap(NULL, SOME, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_in_range(tandem_resident_peak_bytes(&since, &worker), 0, CLOSE);
    assert_int_equal(munmap(memory, SOME), 0);
}

static void a_device_says_what_is_free_there(void **state)
{
    const tandem_device_backend apart = {.alloc = take_resident, .free_bytes = free_bytes};
    const tandem_worker worker = {.backend = &apart};
    device_free = 1000;
    const tandem_resident since = tandem_resident_begin(&worker);
    device_free = 300;
    assert_int_equal(tandem_resident_peak_bytes(&since, &worker), 700);
    device_free = 2000; /* others gave back more than this rank took: nothing can be determined */
    assert_int_equal(tandem_resident_peak_bytes(&since, &worker), -1);
    device_free = 0; /* not known */
    assert_int_equal(tandem_resident_peak_bytes(&since, &worker), -1);
    const tandem_resident never = tandem_resident_begin(&worker);
    device_free = 300;
    assert_int_equal(tandem_resident_peak_bytes(&never, &worker), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_is_reported_and_forgotten),
        cmocka_unit_test(memory_that_nobody_touched_does_not_count),
        cmocka_unit_test(a_device_says_what_is_free_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
