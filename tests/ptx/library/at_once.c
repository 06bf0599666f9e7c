/* at_once.c: what tests/cuda/simt.h needs besides, where every launch runs at once on the host. */
#include <stdlib.h>
#include <string.h>

#include "tests/ptx/library/device.h"

int stand_in_blocks;
void stand_in_enter(void) {}
void stand_in_leave(void) {}
int stand_in_next_error(void) { return 0; }
void stand_in_clear_later(void *memory, int value, uint64_t bytes) { memset(memory, value, bytes); }
void stand_in_clear_now(void) {}
struct CUstream_st;
int stand_in_submit(struct CUstream_st *stream, void (*run)(void *), void (*drop)(void *), void *what)
{
    (void)stream;
    run(what);
    drop(what);
    return 0;
}

const char *device_open(const char *folder, const ptx_options *options)
{
    (void)folder, (void)options;
    return NULL;
}

ptx_machine *device_machine(void) { return NULL; }

void *device_alloc(size_t bytes, int is_written)
{
    (void)is_written;
    const size_t whole = (bytes + 511) / 256 * 256;
    void *const at = aligned_alloc(256, whole);
    if (!at) abort();
    return memset(at, 0x5A, whole);
}

void device_free(void *at) { free(at); }
