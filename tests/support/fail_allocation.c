#include "tests/support/fail_allocation.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* What the linker makes of --wrap=NAME: calls of NAME reach __wrap_NAME, and __real_NAME is NAME itself. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block) __attribute__((weak)); /* absent in tests that do not wrap it */
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

static atomic_long left = -1; /* allocations until the one that fails; < 0: none will */
static atomic_int failed;
static atomic_long alive;

void tandem_fail_allocation_after(long k)
{
    atomic_store(&failed, 0);
    atomic_store(&left, k < 0 ? -1 : k);
}

int tandem_allocation_failed(void) { return atomic_load(&failed); }
long tandem_allocations_alive(void) { return atomic_load(&alive); }

/* Whether the allocation that now comes is the one. */
static bool fails_now(void)
{
    long before = atomic_load(&left);
    while (before >= 0 && !atomic_compare_exchange_weak(&left, &before, before - 1))
        ;
    if (before != 0) return false;
    atomic_store(&failed, 1);
    errno = ENOMEM;
    return true;
}

static void *count(void *block)
{
    if (block) atomic_fetch_add(&alive, 1);
    return block;
}

void *__wrap_malloc(size_t bytes) { return fails_now() ? NULL : count(__real_malloc(bytes)); }
void *__wrap_calloc(size_t n, size_t size) { return fails_now() ? NULL : count(__real_calloc(n, size)); }

void *__wrap_realloc(void *block, size_t bytes)
{
    if (fails_now()) return NULL;
    return block ? __real_realloc(block, bytes) : count(__real_realloc(block, bytes));
}

void __wrap_free(void *block)
{
    if (block) atomic_fetch_sub(&alive, 1);
    __real_free(block);
}
