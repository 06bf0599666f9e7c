#include "tests/cuda/stand_in.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/cuda/gpu.h"
#include "tests/cuda/stand_in_graph.h"

enum {
    INVALID = 1, /* cudaErrorInvalidValue, and so on */
    NO_MEMORY = 2,
    UNAVAILABLE = 46,
    LOCKED_ALREADY = 712,
    LOST = 719,
    LOCKS_NONE = 801,
    BAD_VALUE = CUBLASLT_INVALID_VALUE,
    RUN_FAILED = CUDA_FROM_CUBLASLT + 13, /* CUBLAS_STATUS_EXECUTION_FAILED */
    UNSUPPORTED = CUBLASLT_NOT_SUPPORTED
};
#define SECOND INT64_C(1000000000)

cuda_gpu stand_in_gpu = {"stand-in", 9, 0, UINT64_C(1) << 30, 1 << 20, 13000, 13000};
int stand_in_n_gpu = 1;
int stand_in_clocks[2] = {1755, 3201};
int stand_in_calls_to_failure = -1;
int stand_in_fail_once;
int64_t stand_in_memory_left = INT64_C(1) << 30;
int stand_in_has_device_memory;

/* A step has two threads: the one that computes, and the one that reduces. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int open_handles;
int stand_in_clock_is_fixed;
static int64_t clock_ns; /* what work pretends to have taken, beside the time that passes */
int stand_in_open_handles(void) { return open_handles; }

int stand_in_next_error(void)
{
    pthread_mutex_lock(&mutex);
    const int failed = stand_in_calls_to_failure == 0 ? LOST : 0;
    if (stand_in_calls_to_failure > 0 || (failed && stand_in_fail_once)) stand_in_calls_to_failure--;
    pthread_mutex_unlock(&mutex);
    return failed;
}

static void *new_handle(size_t bytes)
{
    void *thing = calloc(1, bytes);
    if (!thing) abort();
    open_handles++;
    return thing;
}

static void free_handle(void *thing)
{
    if (!thing) return;
    open_handles--;
    free(thing);
}

/* --- The card's memory: where it is apart, the host can only touch it while the card works -------------- */

enum { HEADER = 256 }; /* the bytes taken and their kind are before what is handed out */
static const size_t region_bytes = (size_t)1 << 30;
static char *region;
static size_t region_used;
static int enter_depth;

static void protect(int how)
{
    if (region_used && mprotect(region, region_used, how) != 0) abort();
}

/* Whoever has entered is alone with the card: kernels run in either thread, where a graph has any. */
void stand_in_enter(void)
{
    pthread_mutex_lock(&mutex);
    if (enter_depth++ == 0 && region) protect(PROT_READ | PROT_WRITE);
}

void stand_in_leave(void)
{
    if (--enter_depth == 0 && region) protect(PROT_NONE);
    pthread_mutex_unlock(&mutex);
}

/* From a region that is never used again. */
static char *map_device_memory(size_t bytes)
{
    if (!region) {
        region = mmap(NULL, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == MAP_FAILED) abort();
    }
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;
    if (region_used + whole > region_bytes) abort();
    char *memory_taken = region + region_used;
    region_used += whole;
    if (mprotect(memory_taken, whole, enter_depth ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) abort();
    return memory_taken;
}

typedef struct header {
    uint64_t bytes;
    int is_pinned, is_device_memory;
} header;

/* --- What copies may touch beside the host: the card's memory, and what is page-locked ------------------ */

typedef struct memory_range {
    const char *begin;
    uint64_t bytes;
    int is_registered; /* by lock; else it was taken */
    int is_host;       /* page-locked memory; else the card's */
} memory_range;
static memory_range *memory_ranges;
static int n_range, host_bytes, max_host_bytes;
int stand_in_max_host_bytes(void) { return max_host_bytes; }

static void count_host(int64_t more)
{
    host_bytes += (int)more;
    if (host_bytes > max_host_bytes) max_host_bytes = host_bytes;
}

static void add_range(const void *begin, uint64_t bytes, int is_registered, int is_host)
{
    pthread_mutex_lock(&mutex);
    memory_ranges = realloc(memory_ranges, (size_t)(n_range + 1) * sizeof *memory_ranges);
    if (!memory_ranges) abort();
    memory_ranges[n_range++] = (memory_range){begin, bytes, is_registered, is_host};
    if (is_registered) count_host((int64_t)bytes);
    open_handles++;
    pthread_mutex_unlock(&mutex);
}

static void remove_range(const void *begin, int is_registered)
{
    pthread_mutex_lock(&mutex);
    int k = 0;
    while (k < n_range &&
           (memory_ranges[k].begin != (const char *)begin || memory_ranges[k].is_registered != is_registered))
        k++;
    if (k == n_range) abort();
    if (is_registered) count_host(-(int64_t)memory_ranges[k].bytes);
    memory_ranges[k] = memory_ranges[--n_range];
    open_handles--;
    pthread_mutex_unlock(&mutex);
}

static int overlaps(const void *begin, uint64_t bytes)
{
    for (const memory_range *r = memory_ranges; r < memory_ranges + n_range; r++)
        if (r->begin < (const char *)begin + bytes && (const char *)begin < r->begin + r->bytes) return 1;
    return 0;
}

static const memory_range *range_of(const void *begin, uint64_t bytes)
{
    for (const memory_range *r = memory_ranges; r < memory_ranges + n_range; r++)
        if ((const char *)begin >= r->begin && (const char *)begin + bytes <= r->begin + r->bytes) return r;
    return NULL;
}

static int is_locked(const void *begin, uint64_t bytes) { return range_of(begin, bytes) != NULL; }

/* --- The runtime ---------------------------------------------------------------------------------------- */

/* For commands, which cannot change what stand_in.h lists. */
static int environment_number(const char *variable, int otherwise)
{
    const char *const text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static int stand_in_gpu_count(int *n)
{
    *n = stand_in_n_gpu;
    const int failed = environment_number("STAND_IN_COUNT_FAILS", 0);
    return failed ? failed : stand_in_next_error();
}

static int stand_in_describe(cuda_gpu *gpu, int index)
{
    (void)index;
    stand_in_gpu.driver = environment_number("STAND_IN_DRIVER", stand_in_gpu.driver);
    const int capability =
        environment_number("STAND_IN_CAPABILITY", 10 * stand_in_gpu.major + stand_in_gpu.minor);
    stand_in_gpu.major = capability / 10;
    stand_in_gpu.minor = capability % 10;
    *gpu = stand_in_gpu;
    return stand_in_next_error();
}

static int stand_in_free_bytes(uint64_t *bytes)
{
    *bytes = (uint64_t)stand_in_memory_left;
    return stand_in_next_error();
}

static const char *stand_in_error_text(int error)
{
    return error == LOST                                             ? "the GPU is gone"
           : error == UNSUPPORTED || error == LOCKS_NONE             ? "not supported"
           : error == INVALID                                        ? "an invalid value"
           : error == LOCKED_ALREADY                                 ? "locked already"
           : error == RUN_FAILED                                     ? "the run failed"
           : error == BAD_VALUE || error == CUDNN_BAD_PARAM          ? "a wrong value"
           : error >= CAPTURE_UNSUPPORTED && error <= CAPTURED_EVENT ? "not permitted in a capture"
                                                                     : "no memory";
}

/* NVML's calls fail by themselves, whatever becomes of the others. */
static int stand_in_read_clocks(int *compute_mhz, int *memory_mhz, int index)
{
    if (index < 0 || index >= stand_in_n_gpu) return INVALID;
    *compute_mhz = stand_in_clocks[0];
    *memory_mhz = stand_in_clocks[1];
    return 0;
}

static int stand_in_versions(char *written, size_t size)
{
    const char *const asked = getenv("STAND_IN_VERSIONS");
    (void)snprintf(written, size, "%s", asked ? asked : "stand-in");
    return 0;
}

struct cuda_libraries {
    int index;
};

/* Calls of a thread are for the first card until it says otherwise; here that is for none. */
static _Thread_local int has_gpu;
static int used_gpu; /* a process has one */
int stand_in_cores_at_open;
static int stand_in_set_device(int index)
{
    if (index < 0 || index >= stand_in_n_gpu) abort();
    has_gpu = 1;
    return stand_in_next_error();
}

/* Exclusive mode: whoever has locked the file STAND_IN_EXCLUSIVE has the card, until its process ends. */
static int is_held_by_another(void)
{
    const char *const path = getenv("STAND_IN_EXCLUSIVE");
    if (!path) return 0;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* left open */
    if (file < 0) abort();
    return flock(file, LOCK_EX | LOCK_NB) != 0;
}

static int stand_in_open(cuda_libraries **libraries, int index)
{
    const int failed = stand_in_set_device(index);
    if (failed) return failed;
    if (is_held_by_another()) return UNAVAILABLE;
    used_gpu = index;
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) stand_in_cores_at_open = CPU_COUNT(&cores);
    *libraries = new_handle(sizeof **libraries);
    (*libraries)->index = index;
    return 0;
}

static void stand_in_close(cuda_libraries *libraries) { free_handle(libraries); }

static int stand_in_alloc(void **memory, uint64_t bytes, int is_pinned)
{
    const int failed = stand_in_next_error();
    if (failed) return failed;
    if (graph_forbidden_call()) return CAPTURE_UNSUPPORTED;
    const header h = {bytes, is_pinned, !is_pinned && stand_in_has_device_memory};
    static int n_taken; /* of the card's memory, so far; after so many another process has all of it */
    if (!is_pinned && n_taken++ >= environment_number("STAND_IN_ALLOCATIONS", INT_MAX)) return NO_MEMORY;
    if (!is_pinned && (int64_t)bytes > stand_in_memory_left) return NO_MEMORY;
    char *whole = h.is_device_memory ? map_device_memory(bytes + HEADER)
                                     : aligned_alloc(HEADER, (bytes + 2 * HEADER - 1) / HEADER * HEADER);
    if (!whole) abort();
    stand_in_enter();
    memcpy(whole, &h, sizeof h);
    memset(whole + HEADER, 0xA5, bytes); /* a card's memory is not cleared */
    stand_in_leave();
    if (!is_pinned) stand_in_memory_left -= (int64_t)bytes;
    if (is_pinned) count_host((int64_t)bytes);
    add_range(whole + HEADER, bytes, 0, is_pinned);
    *memory = whole + HEADER;
    return 0; /* cppcheck-suppress memleak ; given back by `give`, which finds `whole` from it */
}

static int is_copy_queued(const void *memory, uint64_t bytes);
static int is_copy_late(const void *memory, uint64_t bytes);

static void stand_in_free(void *memory, int is_pinned)
{
    header h;
    char *whole = (char *)memory - HEADER;
    (void)graph_forbidden_call();
    stand_in_clear_now();
    stand_in_enter();
    memcpy(&h, whole, sizeof h);
    stand_in_leave();
    if (h.is_pinned != is_pinned) abort();
    /* cudaFreeHost is not documented to wait for copies; after a failure nothing can be waited for */
    if (is_pinned && stand_in_calls_to_failure < 0 && is_copy_queued(memory, h.bytes)) abort();
    if (is_pinned && stand_in_calls_to_failure < 0 && is_copy_late(memory, h.bytes)) abort();
    if (!is_pinned) stand_in_memory_left += (int64_t)h.bytes;
    if (is_pinned) count_host(-(int64_t)h.bytes);
    remove_range(memory, 0);
    if (!h.is_device_memory) free(whole);
}

int64_t stand_in_max_locked = INT64_MAX;
int stand_in_lock_refused_on = -1;

/* Whole pages, as CUDA before 4.1 asked for, and no driver minds; all of it mapped, none of it locked. */
static int stand_in_lock(void *memory, uint64_t bytes)
{
    enum { PAGE_BYTES = 4096 };
    const int failed = stand_in_next_error();
    if (failed) return failed;
    if (graph_forbidden_call()) return CAPTURE_UNSUPPORTED;
    if (used_gpu == stand_in_lock_refused_on || getenv("STAND_IN_REFUSES_LOCK")) return LOCKS_NONE;
    if (bytes == 0 || bytes % PAGE_BYTES || (uintptr_t)memory % PAGE_BYTES) return INVALID;
    unsigned char *is_there = malloc(bytes / PAGE_BYTES);
    if (!is_there) abort();
    const int is_mapped = mincore(memory, bytes, is_there) == 0;
    free(is_there);
    if (!is_mapped) return INVALID;
    pthread_mutex_lock(&mutex);
    const int is_locked_already = overlaps(memory, bytes);
    pthread_mutex_unlock(&mutex);
    if (is_locked_already) return LOCKED_ALREADY;
    if ((int64_t)bytes > stand_in_max_locked) return NO_MEMORY;
    add_range(memory, bytes, 1, 1);
    return 0;
}

static void run_all_queued(void);

/* What the card still does is done then. */
static void stand_in_unlock(void *memory)
{
    if (graph_forbidden_call()) abort();
    run_all_queued();
    remove_range(memory, 1);
}

/* --- Streams: the first one does all at once, which is where kernels run; the others do nothing before
 * somebody waits for them, so that whoever should wait and does not is seen
 * --------------------------------------------------------------------------- */

struct queued { /* a copy, or an event that is recorded (to NULL), or waited for */
    void *to;
    const void *from;
    uint64_t bytes;
    tandem_cuda_event recorded, awaited;
    struct queued *next;
};
enum { MAX_STREAMS = 16 };
static tandem_cuda_stream streams[MAX_STREAMS];
static int n_stream;

/* NULL: the stream of callers that name none, whose work is done when a call returns. */
static tandem_cuda_stream named_stream(tandem_cuda_stream stream)
{
    static struct CUstream_st unnamed = {.is_first = 1, .end = &unnamed.first};
    return stream ? stream : &unnamed;
}

/* Whether a stream beside the first has still to copy from this memory; bytes 0: from anywhere. */
static int is_copy_queued(const void *memory, uint64_t bytes)
{
    for (int k = 0; k < n_stream; k++)
        for (const queued *w = streams[k]->first; w; w = w->next) {
            const uint64_t offset = (uint64_t)((uintptr_t)w->from - (uintptr_t)memory);
            if (w->to && (bytes == 0 || offset < bytes)) return 1;
        }
    return 0;
}

static void wait_for_event(tandem_cuda_event event);

static void run_queued_item(const queued *w)
{
    if (w->awaited) wait_for_event(w->awaited);
    if (w->to) {
        stand_in_enter();
        memcpy(w->to, w->from, w->bytes);
        stand_in_leave();
    }
    if (w->recorded) {
        w->recorded->at_ns = stand_in_clock_is_fixed ? ++clock_ns : tandem_now_ns() + clock_ns;
        w->recorded->on = NULL;
    }
}

/* --- Copies of the first stream that arrive later ------------------------------------------------------- */

typedef struct late_copy {
    void *to, *data;
    uint64_t bytes;
    int64_t number; /* from 1 on */
    struct late_copy *next;
} late_copy;

int stand_in_late_copies;
static late_copy *first_late;
static int64_t n_late_copy;

int stand_in_copies_on_their_way(void)
{
    int n = 0;
    pthread_mutex_lock(&mutex);
    for (const late_copy *c = first_late; c; c = c->next) n++;
    pthread_mutex_unlock(&mutex);
    return n;
}

/* Whether one has still to arrive in this memory. */
static int is_copy_late(const void *memory, uint64_t bytes)
{
    for (const late_copy *c = first_late; c; c = c->next)
        if ((uint64_t)((uintptr_t)c->to - (uintptr_t)memory) < bytes) return 1;
    return 0;
}

/* Those up to a number arrive, in order. */
static void deliver_copies(int64_t last)
{
    for (late_copy *c; (c = first_late) != NULL && c->number <= last; free(c)) {
        memcpy(c->to, c->data, c->bytes);
        free(c->data);
        first_late = c->next;
    }
}

static int is_late_copy(const queued *one)
{
    const memory_range *to = one->to ? range_of(one->to, one->bytes) : NULL,
                       *from = to ? range_of(one->from, one->bytes) : NULL;
    return stand_in_late_copies && from && to->is_host && !from->is_host;
}

static void send_late_copy(const queued *one)
{
    late_copy *c = malloc(sizeof *c), **end = &first_late;
    if (!c || !(c->data = malloc(one->bytes))) abort();
    *c = (late_copy){one->to, c->data, one->bytes, ++n_late_copy, NULL};
    stand_in_enter();
    memcpy(c->data, one->from, one->bytes);
    stand_in_leave();
    memset(one->to, 0xFF, one->bytes);
    while (*end) end = &(*end)->next;
    *end = c;
}

static void run_first_queued(tandem_cuda_stream stream)
{
    queued *w = stream->first;
    stream->first = w->next;
    if (!stream->first) stream->end = &stream->first;
    run_queued_item(w);
    free(w);
}

static void run_all_queued(void)
{
    pthread_mutex_lock(&mutex);
    for (int k = 0; k < n_stream; k++) graph_finish(streams[k]);
    deliver_copies(n_late_copy);
    for (int k = 0; k < n_stream; k++)
        while (streams[k]->first) run_first_queued(streams[k]);
    pthread_mutex_unlock(&mutex);
}

static void wait_for_event(tandem_cuda_event event)
{
    if (event->within) graph_run_until(event->within, event->node);
    while (event->on) run_first_queued(event->on);
}

int stand_in_submit(tandem_cuda_stream stream, void (*run)(void *what), void (*drop)(void *what), void *what)
{
    int failed = 0;
    pthread_mutex_lock(&mutex);
    stand_in_launches++;
    if (stream && graph_is_captured(&stream->position)) {
        failed = graph_append(stream, run, drop, what, NULL);
    } else {
        if (stream) graph_finish(stream);
        run(what);
        if (drop) drop(what);
    }
    pthread_mutex_unlock(&mutex);
    return failed;
}

/* The same of what is small, and copied. */
static int submit_copy_of(tandem_cuda_stream stream, void (*run)(void *what), const void *what, size_t bytes)
{
    void *stand_in_copy = malloc(bytes);
    if (!stand_in_copy) abort();
    memcpy(stand_in_copy, what, bytes);
    const int failed = stand_in_submit(stream, run, free, stand_in_copy);
    return failed ? failed : stand_in_next_error();
}

static void run_queued_node(void *what) { run_queued_item(what); }

/* In a capture an event marks a place, and a stream that waits for it goes on there. */
static int capture_queued(tandem_cuda_stream stream, const queued *one)
{
    if (one->awaited) return graph_join(stream, one->awaited);
    if (one->recorded) {
        one->recorded->position = stream->position;
        return 0;
    }
    return submit_copy_of(stream, run_queued_node, one, sizeof *one);
}

static int enqueue(tandem_cuda_stream stream, queued one)
{
    if (!has_gpu) abort();
    stream = named_stream(stream);
    pthread_mutex_lock(&mutex);
    if (one.to && (!stream->is_first || graph_is_captured(&stream->position)) &&
        !(is_locked(one.to, one.bytes) && is_locked(one.from, one.bytes))) {
        pthread_mutex_unlock(&mutex);
        return INVALID; /* it would be done, but nothing beside it: the host would wait */
    }
    if (graph_is_captured(&stream->position) || (one.awaited && one.awaited->position.capture)) {
        const int failed = capture_queued(stream, &one);
        pthread_mutex_unlock(&mutex);
        return failed ? failed : stand_in_next_error();
    }
    if (one.recorded) {
        one.recorded->position = (capture_position){0, -1};
        one.recorded->within = NULL;
        one.recorded->on = stream;
        one.recorded->late_copies = stream->is_first ? n_late_copy : 0;
    }
    if (stream->is_first) {
        if (!one.awaited) graph_finish(stream); /* what it waits for may be done before that */
        if (is_late_copy(&one))
            send_late_copy(&one);
        else
            run_queued_item(&one);
    } else if (stand_in_eager_streams && !stream->first) {
        run_queued_item(&one);
    } else {
        queued *w = malloc(sizeof *w);
        if (!w) abort();
        *w = one;
        *stream->end = w;
        stream->end = &w->next;
    }
    pthread_mutex_unlock(&mutex);
    return stand_in_next_error();
}

typedef struct clear_task {
    void *memory;
    uint64_t bytes;
} clear_task;

static void run_cleared(void *what)
{
    const clear_task *c = what;
    stand_in_enter();
    memset(c->memory, 0, c->bytes);
    stand_in_leave();
}

static struct {
    void *memory;
    int value;
    uint64_t bytes;
} delayed_clear;

void stand_in_clear_now(void)
{
    pthread_mutex_lock(&mutex);
    stand_in_enter();
    if (delayed_clear.memory) memset(delayed_clear.memory, delayed_clear.value, delayed_clear.bytes);
    stand_in_leave();
    delayed_clear.memory = NULL;
    pthread_mutex_unlock(&mutex);
}

void stand_in_clear_later(void *memory, int value, uint64_t bytes)
{
    stand_in_clear_now();
    delayed_clear.memory = memory, delayed_clear.value = value, delayed_clear.bytes = bytes;
}

static int stand_in_clear(void *memory, uint64_t bytes, tandem_cuda_stream stream)
{
    if (!named_stream(stream)->is_first) abort();
    return submit_copy_of(stream, run_cleared, &(clear_task){memory, bytes}, sizeof(clear_task));
}

static int stand_in_copy(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream)
{
    return enqueue(stream, (queued){.to = to, .from = from, .bytes = bytes});
}

static int stand_in_stream_open(tandem_cuda_stream *stream)
{
    const int failed = stand_in_next_error();
    if (failed) return failed;
    if (n_stream == MAX_STREAMS) abort();
    *stream = new_handle(sizeof **stream);
    (*stream)->is_first = n_stream == 0;
    streams[n_stream++] = *stream;
    (*stream)->end = &(*stream)->first;
    return 0;
}
static int stand_in_stream_sync(tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    const int forbidden =
        graph_is_captured(&stream->position) ? graph_invalidate(CAPTURE_UNSUPPORTED) : graph_forbidden_call();
    stand_in_waits_with_copies += stream->is_first && is_copy_queued(NULL, 0);
    if (!forbidden) graph_finish(stream);
    while (!forbidden && stream->first) run_first_queued(stream);
    if (!forbidden && stream->is_first) deliver_copies(n_late_copy);
    pthread_mutex_unlock(&mutex);
    return forbidden ? forbidden : stand_in_next_error();
}
static void stand_in_stream_close(tandem_cuda_stream stream)
{
    for (queued *w; (w = stream->first) != NULL; free(w)) stream->first = w->next;
    int k = 0;
    while (streams[k] != stream) k++;
    streams[k] = streams[--n_stream];
    free_handle(stream);
}
static int stand_in_stream_wait_event(tandem_cuda_stream stream, tandem_cuda_event event)
{
    return enqueue(stream, (queued){.awaited = event});
}
int stand_in_early_graph_events, stand_in_lost_graph_events;

typedef struct host_call {
    void (*function)(void *context);
    void *context;
} host_call;
static void run_host_call(void *what)
{
    const host_call *call = what;
    call->function(call->context);
}

static int stand_in_call_host(tandem_cuda_stream stream, void (*function)(void *context), void *context)
{
    if (graph_is_captured(&stream->position)) {
        graph_has_host_call();
        return submit_copy_of(stream, run_host_call, &(host_call){function, context}, sizeof(host_call));
    }
    const int failed = stand_in_stream_sync(stream);
    if (!failed) function(context);
    return failed;
}
static int stand_in_event_open(tandem_cuda_event *event)
{
    const int failed = stand_in_next_error();
    if (!failed) *event = new_handle(sizeof **event);
    return failed;
}
static void stand_in_event_close(tandem_cuda_event event) { free_handle(event); }
static int stand_in_event_record(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return enqueue(stream, (queued){.recorded = event});
}
static int stand_in_event_sync(tandem_cuda_event event)
{
    if (!has_gpu) abort();
    if (event->within && stand_in_early_graph_events) return stand_in_next_error();
    while (event->within && stand_in_lost_graph_events) (void)sched_yield(); /* it never wakes */
    pthread_mutex_lock(&mutex);
    int forbidden = event->position.capture ? CAPTURED_EVENT : graph_forbidden_call();
    if (graph_is_captured(&event->position)) forbidden = graph_invalidate(CAPTURED_EVENT);
    if (!forbidden) wait_for_event(event);
    if (!forbidden) deliver_copies(event->late_copies);
    pthread_mutex_unlock(&mutex);
    return forbidden ? forbidden : stand_in_next_error();
}
static int stand_in_elapsed_ns(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to)
{
    if (from->on || to->on || from->within || to->within) abort(); /* they must have happened */
    *ns = to->at_ns - from->at_ns;
    return stand_in_next_error();
}

static int stand_in_capture_begin(tandem_cuda_stream stream)
{
    int failed = stand_in_next_error();
    pthread_mutex_lock(&mutex);
    if (!failed) failed = graph_begin(stream);
    pthread_mutex_unlock(&mutex);
    return failed;
}

static int stand_in_stream_is_capturing(int *is_capturing, tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    *is_capturing = stream && graph_is_captured(&stream->position);
    pthread_mutex_unlock(&mutex);
    return stand_in_next_error();
}

/* What the driver takes of the card for a graph. */
static int64_t graph_bytes(void)
{
    const char *const asked = getenv("STAND_IN_GRAPH_BYTES");
    return asked ? atoll(asked) : 0;
}

static int stand_in_capture_end(tandem_cuda_graph *graph, tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    tandem_cuda_graph made = NULL;
    int failed = graph_end(&made, stream);
    if (!failed && (failed = stand_in_next_error())) graph_drop(made);
    if (!failed) {
        open_handles++;
        stand_in_memory_left -= graph_bytes();
        *graph = made;
    }
    pthread_mutex_unlock(&mutex);
    return failed;
}
/* Where the environment says so, a recorded event in a graph takes a card's time. */
static void run_event_node(void *what)
{
    const char *const asked = getenv("STAND_IN_EVENT_NS");
    const int64_t end_ns = asked ? tandem_now_ns() + atoi(asked) : 0;
    while (asked && tandem_now_ns() < end_ns) continue;
    run_queued_item(what);
}

static int stand_in_event_record_external(tandem_cuda_event event, tandem_cuda_stream stream)
{
    const queued one = {.recorded = event};
    queued *what = malloc(sizeof *what);
    if (!what) abort();
    *what = one;
    pthread_mutex_lock(&mutex);
    int failed = INVALID;
    if (graph_is_captured(&stream->position))
        failed = graph_append(stream, run_event_node, free, what, event);
    else
        free(what);
    pthread_mutex_unlock(&mutex);
    return failed ? failed : stand_in_next_error();
}
static int stand_in_graph_launch(tandem_cuda_graph graph, tandem_cuda_stream stream)
{
    int failed = stand_in_next_error();
    pthread_mutex_lock(&mutex);
    if (!failed) failed = graph_forbidden_call();
    if (!failed) graph_start(graph, stream);
    pthread_mutex_unlock(&mutex);
    return failed;
}
static void stand_in_graph_destroy(tandem_cuda_graph graph)
{
    pthread_mutex_lock(&mutex);
    open_handles--;
    stand_in_memory_left += graph_bytes();
    graph_finish_runs(graph); /* the driver keeps it for so long */
    graph_drop(graph);
    pthread_mutex_unlock(&mutex);
}

/* --- Numbers of every type ------------------------------------------------------------------------------ */

static double load_number(const void *array, cuda_type type, int64_t i)
{
    switch (type) {
    case CUDA_TYPE_F32: return (double)((const float *)array)[i];
    case CUDA_TYPE_BF16: return (double)tandem_f32_of_bf16(((const uint16_t *)array)[i]);
    case CUDA_TYPE_F16: return (double)tandem_f32_of_f16(((const uint16_t *)array)[i]);
    case CUDA_TYPE_E4M3: return (double)tandem_f32_of_e4m3(((const uint8_t *)array)[i]);
    case CUDA_TYPE_E5M2: return (double)tandem_f32_of_e5m2(((const uint8_t *)array)[i]);
    case CUDA_TYPE_S8: return (double)((const int8_t *)array)[i];
    case CUDA_TYPE_S32: return (double)((const int32_t *)array)[i];
    default: abort();
    }
}

static void store_number(void *array, cuda_type type, int64_t i, double value)
{
    switch (type) {
    case CUDA_TYPE_F32: ((float *)array)[i] = (float)value; return;
    case CUDA_TYPE_BF16: ((uint16_t *)array)[i] = tandem_bf16_of((float)value); return;
    case CUDA_TYPE_F16: ((uint16_t *)array)[i] = tandem_f16_of((float)value); return;
    case CUDA_TYPE_S32: ((int32_t *)array)[i] = (int32_t)value; return;
    default: abort();
    }
}

/* To the 11 bits, sign aside, that a product reads of tf32: 13 less than a float has. */
static double as_tf32(double value)
{
    int exponent = 0;
    const double part = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(part, 11)), exponent - 11);
}

static double *load_numbers(const void *array, cuda_type type, int64_t n, int tf32)
{
    double *value = malloc((size_t)n * sizeof *value);
    if (!value) abort();
    for (int64_t i = 0; i < n; i++)
        value[i] = tf32 ? as_tf32(load_number(array, type, i)) : load_number(array, type, i);
    return value;
}

/* --- Work: each kind has N_ALGORITHM algorithms, with different workspaces and simulated times ------- */

enum { N_ALGORITHM = 4, BROKEN = 2 };
static const struct {
    uint64_t workspace_bytes;
    int64_t ns;
} algorithms[N_ALGORITHM] = {{512, SECOND * 9},
                             {1000, SECOND * 5},
                             {256, SECOND},
                             {0, SECOND * 7}}; /* BROKEN is named, and fails when it runs */
int stand_in_fail_third;                       /* whether it does */
int stand_in_n_failing;
int stand_in_refusal = UNSUPPORTED;
int stand_in_max_convolution_channels = INT32_MAX;
int stand_in_candidates = N_ALGORITHM;
int stand_in_n_refused;
int stand_in_runs, stand_in_launches, stand_in_blocks, stand_in_waits_with_copies, stand_in_eager_streams;

struct cuda_work {
    int is_product;
    cuda_product_spec product;
    cuda_convolution_spec convolution;
};

static void stand_in_work_close(cuda_work *work) { free_handle(work); }

static int stand_in_work_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    const cuda_convolution_spec *const c = &work->convolution;
    if (!stand_in_candidates) return stand_in_refusal;
    if (!work->is_product &&
        (c->c_in > stand_in_max_convolution_channels || c->c_out > stand_in_max_convolution_channels))
        return stand_in_refusal;
    for (int i = 0; i < stand_in_candidates; i++)
        candidate[i] = (cuda_algorithm){{(uint64_t)i}, algorithms[i].workspace_bytes};
    *n = stand_in_candidates;
    return stand_in_next_error();
}

static int stand_in_work_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    (void)work;
    if (algorithm->word[0] >= N_ALGORITHM || (int)algorithm->word[0] < stand_in_n_refused)
        return stand_in_refusal;
    algorithm->workspace_bytes = algorithms[algorithm->word[0]].workspace_bytes;
    return stand_in_next_error();
}

/* --- Products ------------------------------------------------------------------------------------------- */

static int is_fp8(cuda_type type) { return type == CUDA_TYPE_E4M3 || type == CUDA_TYPE_E5M2; }

static int is_float(cuda_type type) { return type <= CUDA_TYPE_F16; }

/* Which compute capability, times ten, a type's products begin with. */
static int has_type(cuda_type type, int tf32)
{
    const int min_capability = is_fp8(type) ? 89 : type == CUDA_TYPE_BF16 || tf32 ? 80 : 75;
    return 10 * stand_in_gpu.major + stand_in_gpu.minor >= min_capability;
}

/* What cuBLASLt documents for these types (cublasLtMatmul, tables 1 and 3); its m is our n. Of s8 that m,
 * which is its n, is whole 32s is not documented; with fewer, cards refused or gave wrong sums. */
static int is_supported_product(const cuda_product_spec *s)
{
    const int64_t unit = s->a == CUDA_TYPE_S8 ? 4 : 16;
    if (!has_type(s->a, s->tf32) || !has_type(s->b, s->tf32)) return 0;
    if ((s->tf32 && s->a != CUDA_TYPE_F32) || (s->fast_sums && !is_fp8(s->a))) return 0;
    if (s->batch > 1 && getenv("STAND_IN_LACKS_SHARED_OPERANDS") && s->has_one_a) return 0;
    /* matrices of a batch do not overlap in a result, and only floats lie apart */
    if ((s->c_apart && s->c_apart < s->m * s->n) || (s->b_apart && s->b_apart < s->k * s->n) ||
        (!is_float(s->a) && (s->has_one_a || s->b_apart || s->c_apart)))
        return 0;
    if ((s->a_row || s->c_row) && (!is_float(s->a) || s->batch > 1)) return 0;
    if (is_float(s->a)) return s->a == s->b && (s->to == s->a || s->to == CUDA_TYPE_F32);
    if (s->a == CUDA_TYPE_S8 && (s->b != CUDA_TYPE_S8 || s->to != CUDA_TYPE_S32)) return 0;
    if (is_fp8(s->a) && (!is_fp8(s->b) || (s->a == CUDA_TYPE_E5M2 && s->b == CUDA_TYPE_E5M2) || s->m % 16 ||
                         !is_float(s->to)))
        return 0;
    const char *const missing_k = getenv("STAND_IN_LACKS_S8_K");
    if (s->a == CUDA_TYPE_S8 && (s->m % 32 || (missing_k && s->k == atoi(missing_k)))) return 0;
    return !s->transpose_a && s->transpose_b && s->n % unit == 0 && s->k % unit == 0;
}

/* As the matrices are stored. */
static int64_t a_columns(const cuda_product_spec *s) { return s->transpose_a ? s->m : s->k; }
static int64_t a_row(const cuda_product_spec *s) { return s->a_row ? s->a_row : a_columns(s); }
static int64_t c_row(const cuda_product_spec *s) { return s->c_row ? s->c_row : s->n; }

static int64_t type_bytes(cuda_type type)
{
    if (type == CUDA_TYPE_F32 || type == CUDA_TYPE_S32) return 4;
    return type == CUDA_TYPE_BF16 || type == CUDA_TYPE_F16 ? 2 : 1;
}

int stand_in_unaligned_products;

/* Whether the rows of all three matrices begin at multiples of 16 bytes. Others are multiplied, but slowly
 * (NVIDIA, cuBLAS documentation, "Tensor Core Usage": lda, ldb and ldc times their types' sizes). */
static int has_aligned_rows(const cuda_product_spec *s)
{
    const int64_t b_row = s->transpose_b ? s->k : s->n;
    return a_row(s) * type_bytes(s->a) % 16 == 0 && b_row * type_bytes(s->b) % 16 == 0 &&
           c_row(s) * type_bytes(s->to) % 16 == 0;
}

/* Sides and batches are 32 bits wide in the library's kernels; rows do not overlap. */
static int has_valid_sides(const cuda_product_spec *s)
{
    const int64_t side[] = {s->batch, s->m, s->n, s->k};
    for (int i = 0; i < 4; i++)
        if (side[i] < 1 || side[i] > INT32_MAX) return 0;
    return a_row(s) >= a_columns(s) && c_row(s) >= s->n;
}

static int stand_in_product_open(cuda_work **work, cuda_libraries *libraries, const cuda_product_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_next_error();
    if (failed) return failed;
    if (!has_valid_sides(spec)) return BAD_VALUE;
    if (!is_supported_product(spec)) return UNSUPPORTED;
    *work = new_handle(sizeof **work);
    **work = (cuda_work){.is_product = 1, .product = *spec};
    return 0;
}

/* From one matrix of a batch to the next. */
static int64_t a_elements(const cuda_product_spec *s) { return (s->transpose_a ? s->k : s->m) * a_row(s); }
static int64_t a_distance(const cuda_product_spec *s) { return s->has_one_a ? 0 : a_elements(s); }
static int64_t b_distance(const cuda_product_spec *s) { return s->b_apart ? s->b_apart : s->k * s->n; }
static int64_t c_distance(const cuda_product_spec *s) { return s->c_apart ? s->c_apart : s->m * c_row(s); }

static void compute_product(const cuda_product_spec *s, const cuda_operands *o)
{
    const int64_t more = s->batch - 1, n_a = more * a_distance(s) + a_elements(s),
                  n_b = more * b_distance(s) + s->k * s->n, n_c = more * c_distance(s) + s->m * c_row(s);
    double *const left = load_numbers(o->a, s->a, n_a, s->tf32);
    double *const right = load_numbers(o->b, s->b, n_b, s->tf32);
    double *const before = s->accumulate ? load_numbers(o->c, s->to, n_c, 0) : NULL;
    const int64_t a_next = s->transpose_a ? 1 : a_row(s), a_step = s->transpose_a ? a_row(s) : 1,
                  b_column = s->transpose_b ? s->k : 1, b_step = s->transpose_b ? 1 : s->n;
    for (int64_t i = 0; i < s->batch * s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t matrix = i / s->m, at = matrix * c_distance(s) + i % s->m * c_row(s) + j;
            const double *a = left + matrix * a_distance(s) + i % s->m * a_next,
                         *b = right + matrix * b_distance(s) + j * b_column;
            double sum = 0;
            for (int64_t l = 0; l < s->k; l++, a += a_step, b += b_step) sum += *a * *b;
            if (is_fp8(s->a)) sum *= (double)*o->scale_a * (double)*o->scale_b;
            store_number(o->c, s->to, at, before ? before[at] + sum : sum);
        }
    free(before);
    free(right);
    free(left);
}

/* --- Convolutions --------------------------------------------------------------------------------------- */

/* Arrays of fewer than 2^31 elements, of one float type throughout (cudnnSetTensor4dDescriptor,
 * cudnnConvolutionForward). */
static int is_supported_convolution(const cuda_convolution_spec *s)
{
    const int64_t x = (int64_t)s->batch * s->in_h * s->in_w * s->c_in,
                  y = (int64_t)s->batch * s->out_h * s->out_w * s->c_out;
    return is_float(s->type) && has_type(s->type, s->tf32) && (!s->tf32 || s->type == CUDA_TYPE_F32) &&
           x <= INT32_MAX && y <= INT32_MAX;
}

static int window_fits(int out, int in, int kernel, const cuda_convolution_spec *s)
{
    return out >= 1 && s->stride >= 1 && s->pad >= 0 && out == (in + 2 * s->pad - kernel) / s->stride + 1;
}

static int stand_in_convolution_open(cuda_work **work, cuda_libraries *libraries,
                                     const cuda_convolution_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_next_error();
    if (failed) return failed;
    if (!window_fits(spec->out_h, spec->in_h, spec->kernel_h, spec) ||
        !window_fits(spec->out_w, spec->in_w, spec->kernel_w, spec))
        return BAD_VALUE;
    if (!is_supported_convolution(spec)) return UNSUPPORTED;
    *work = new_handle(sizeof **work);
    (*work)->convolution = *spec;
    return 0;
}

static void compute_convolution(const cuda_convolution_spec *s, const cuda_operands *o)
{
    const void *const x = s->pass == CUDA_CONVOLUTION_DGRAD ? o->c : o->a,
                      *const w = s->pass == CUDA_CONVOLUTION_WGRAD ? o->c : o->b,
                      *const y = s->pass == CUDA_CONVOLUTION         ? o->c
                                 : s->pass == CUDA_CONVOLUTION_DGRAD ? o->a
                                                                     : o->b;
    const int64_t n_x = (int64_t)s->batch * s->in_h * s->in_w * s->c_in,
                  n_w = (int64_t)s->c_out * s->kernel_h * s->kernel_w * s->c_in,
                  n_y = (int64_t)s->batch * s->out_h * s->out_w * s->c_out;
    const int64_t n = s->pass == CUDA_CONVOLUTION ? n_y : s->pass == CUDA_CONVOLUTION_DGRAD ? n_x : n_w;
    double *sum = calloc((size_t)n, sizeof *sum);
    if (!sum) abort();
    double *const in = load_numbers(x, s->type, n_x, s->tf32),
                  *const weight = load_numbers(w, s->type, n_w, s->tf32),
                  *const out = load_numbers(y, s->type, n_y, s->tf32);
    for (int64_t i = 0; i < n_y; i++) {
        const int64_t channel = i % s->c_out, ox = i / s->c_out % s->out_w,
                      oy = i / s->c_out / s->out_w % s->out_h, image = i / s->c_out / s->out_w / s->out_h;
        for (int64_t q = 0; q < (int64_t)s->kernel_h * s->kernel_w; q++) {
            const int64_t h = oy * s->stride + q / s->kernel_w - s->pad,
                          v = ox * s->stride + q % s->kernel_w - s->pad;
            if (h < 0 || h >= s->in_h || v < 0 || v >= s->in_w) continue;
            const int64_t at_x = ((image * s->in_h + h) * s->in_w + v) * s->c_in,
                          at_w = channel * (n_w / s->c_out) + q * s->c_in;
            for (int64_t c = 0; c < s->c_in; c++)
                if (s->pass == CUDA_CONVOLUTION)
                    sum[i] += in[at_x + c] * weight[at_w + c];
                else if (s->pass == CUDA_CONVOLUTION_DGRAD)
                    sum[at_x + c] += out[i] * weight[at_w + c];
                else
                    sum[at_w + c] += out[i] * in[at_x + c];
        }
    }
    for (int64_t i = 0; i < n; i++) store_number(o->c, s->type, i, sum[i]);
    free(out);
    free(weight);
    free(in);
    free(sum);
}

int stand_in_refuse_capture;

typedef struct running_work {
    cuda_work work;
    cuda_operands operands;
    void *workspace;
    uint64_t algorithm_index;
} running_work;

static void compute_work(void *what)
{
    const running_work *w = what;
    stand_in_enter();
    memset(w->workspace, 0x5A, algorithms[w->algorithm_index].workspace_bytes);
    if (w->work.is_product)
        compute_product(&w->work.product, &w->operands);
    else
        compute_convolution(&w->work.convolution, &w->operands);
    const int is_fast = w->work.is_product && w->work.product.fast_sums;
    stand_in_unaligned_products += w->work.is_product && !has_aligned_rows(&w->work.product);
    if (!stand_in_clock_is_fixed) clock_ns += algorithms[w->algorithm_index].ns / (is_fast ? 2 : 1);
    stand_in_runs++;
    stand_in_leave();
}

/* As the libraries ask for, and as cublaslt.c promises them. */
static int is_aligned(const cuda_operands *o, const void *workspace)
{
    return ((uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c) % 64 == 0 && (uintptr_t)workspace % 256 == 0;
}

static int stand_in_work_run(const cuda_work *work, const cuda_algorithm *algorithm,
                             const cuda_operands *operands, void *workspace, tandem_cuda_stream stream)
{
    const uint64_t algorithm_index = algorithm->word[0];
    if (!is_aligned(operands, workspace)) return BAD_VALUE;
    if (work->is_product && is_fp8(work->product.a) && (!operands->scale_a || !operands->scale_b))
        return BAD_VALUE;
    if (stand_in_fail_third && algorithm_index == BROKEN) return RUN_FAILED;
    if ((int)algorithm_index < stand_in_n_failing) return RUN_FAILED;
    const int must_refuse = stand_in_refuse_capture || getenv("STAND_IN_REFUSES_CAPTURE");
    if (must_refuse && graph_is_captured(&stream->position)) return graph_invalidate(CAPTURE_UNSUPPORTED);
    return submit_copy_of(stream, compute_work, &(running_work){*work, *operands, workspace, algorithm_index},
                          sizeof(running_work));
}

const cuda_vendor tandem_cuda_vendor = {
#define VENDOR_CALL(result, name, ...) .name = stand_in_##name,
#include "backend/cuda/vendor.def"
};

/* --- gpu.h ---------------------------------------------------------------------------------------------- */

const int gpu_is_real = 0;

int skip_without_gpu(void) { return 0; }

void *gpu_alloc_shared(size_t bytes)
{
    void *memory = NULL;
    return stand_in_alloc(&memory, bytes, 1) ? NULL : memory;
}

void gpu_free_shared(void *memory) { stand_in_free(memory, 1); }

int gpu_open_handles(void) { return open_handles; }

int gpu_launches(void) { return stand_in_launches; }

int gpu_blocks(void) { return stand_in_blocks; }

int gpu_has_no_convolutions(int none)
{
    stand_in_max_convolution_channels = none ? 0 : INT32_MAX;
    return 1;
}

void gpu_sync(void) { stand_in_clear_now(); }
