#include "tests/cuda/stand_in.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/cuda/card.h"
#include "tests/cuda/stand_in_graph.h"

enum {
    INVALID = 1, /* cudaErrorInvalidValue, and so on */
    NO_MEMORY = 2,
    LOCKED_ALREADY = 712,
    LOST = 719,
    LOCKS_NONE = 801,
    BAD_VALUE = 10007,
    UNSUPPORTED = 10015
};
#define SECOND INT64_C(1000000000)

cuda_card stand_in_card = {"stand-in", 9, 0, UINT64_C(1) << 30, 1 << 20, 13000, 13000};
int stand_in_n_card = 1;
int stand_in_clocks[2] = {1755, 3201};
int stand_in_fails_after = -1;
int stand_in_fails_once;
int64_t stand_in_memory_left = INT64_C(1) << 30;
int stand_in_is_apart;

/* A step has two threads: the one that computes, and the one that reduces. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int open_things;
int stand_in_clock_stands;
static int64_t clock_ns; /* what work pretends to have taken, beside the time that passes */
int stand_in_open_things(void) { return open_things; }

int stand_in_fate(void)
{
    pthread_mutex_lock(&mutex);
    const int failed = stand_in_fails_after == 0 ? LOST : 0;
    if (stand_in_fails_after > 0 || (failed && stand_in_fails_once)) stand_in_fails_after--;
    pthread_mutex_unlock(&mutex);
    return failed;
}

static void *opened(size_t bytes)
{
    void *thing = calloc(1, bytes);
    if (!thing) abort();
    open_things++;
    return thing;
}

static void closed(void *thing)
{
    if (!thing) return;
    open_things--;
    free(thing);
}

/* --- The card's memory: where it is apart, the host can only touch it while the card works -------------- */

enum { HEADER = 256 }; /* the bytes taken and their kind stand before what is handed out */
static const size_t region_bytes = (size_t)1 << 30;
static char *region;
static size_t region_used;
static int entered;

static void protect(int how)
{
    if (region_used && mprotect(region, region_used, how) != 0) abort();
}

/* Whoever has entered is alone with the card: kernels run in either thread, where a graph has any. */
void stand_in_enter(void)
{
    pthread_mutex_lock(&mutex);
    if (entered++ == 0 && region) protect(PROT_READ | PROT_WRITE);
}

void stand_in_leave(void)
{
    if (--entered == 0 && region) protect(PROT_NONE);
    pthread_mutex_unlock(&mutex);
}

/* From a region that is never used again. */
static char *take_apart(size_t bytes)
{
    if (!region) {
        region = mmap(NULL, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == MAP_FAILED) abort();
    }
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;
    if (region_used + whole > region_bytes) abort();
    char *taken = region + region_used;
    region_used += whole;
    if (mprotect(taken, whole, entered ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) abort();
    return taken;
}

typedef struct header {
    uint64_t bytes;
    int pinned, is_apart;
} header;

/* --- What copies may touch beside the host: the card's memory, and what is page-locked ------------------ */

typedef struct range {
    const char *begin;
    uint64_t bytes;
    int is_registered; /* by lock; else it was taken */
} range;
static range *ranges;
static int n_range, host_bytes, most_host_bytes;
int stand_in_most_host_bytes(void) { return most_host_bytes; }

static void count_host(int64_t more)
{
    host_bytes += (int)more;
    if (host_bytes > most_host_bytes) most_host_bytes = host_bytes;
}

static void add_range(const void *begin, uint64_t bytes, int is_registered)
{
    pthread_mutex_lock(&mutex);
    ranges = realloc(ranges, (size_t)(n_range + 1) * sizeof *ranges);
    if (!ranges) abort();
    ranges[n_range++] = (range){begin, bytes, is_registered};
    if (is_registered) count_host((int64_t)bytes);
    open_things++;
    pthread_mutex_unlock(&mutex);
}

static void remove_range(const void *begin, int is_registered)
{
    pthread_mutex_lock(&mutex);
    int k = 0;
    while (k < n_range &&
           (ranges[k].begin != (const char *)begin || ranges[k].is_registered != is_registered))
        k++;
    if (k == n_range) abort();
    if (is_registered) count_host(-(int64_t)ranges[k].bytes);
    ranges[k] = ranges[--n_range];
    open_things--;
    pthread_mutex_unlock(&mutex);
}

static int overlaps(const void *begin, uint64_t bytes)
{
    for (const range *r = ranges; r < ranges + n_range; r++)
        if (r->begin < (const char *)begin + bytes && (const char *)begin < r->begin + r->bytes) return 1;
    return 0;
}

static int is_locked(const void *begin, uint64_t bytes)
{
    for (const range *r = ranges; r < ranges + n_range; r++)
        if ((const char *)begin >= r->begin && (const char *)begin + bytes <= r->begin + r->bytes) return 1;
    return 0;
}

/* --- The runtime ---------------------------------------------------------------------------------------- */

static int count(int *n)
{
    *n = stand_in_n_card;
    return stand_in_fate();
}

static int look(cuda_card *card, int index)
{
    (void)index;
    *card = stand_in_card;
    return stand_in_fate();
}

static int free_bytes(uint64_t *bytes)
{
    *bytes = (uint64_t)stand_in_memory_left;
    return stand_in_fate();
}

static const char *text(int error)
{
    return error == LOST                                             ? "the card is gone"
           : error == UNSUPPORTED || error == LOCKS_NONE             ? "not supported"
           : error == INVALID                                        ? "an invalid value"
           : error == LOCKED_ALREADY                                 ? "locked already"
           : error == BAD_VALUE                                      ? "a wrong value"
           : error >= CAPTURE_UNSUPPORTED && error <= CAPTURED_EVENT ? "not permitted in a capture"
                                                                     : "no memory";
}

static int lacks(int error) { return error == UNSUPPORTED; }

/* NVML's calls fail by themselves, whatever becomes of the others. */
static int clocks(int *compute_mhz, int *memory_mhz, int index)
{
    if (index < 0 || index >= stand_in_n_card) return INVALID;
    *compute_mhz = stand_in_clocks[0];
    *memory_mhz = stand_in_clocks[1];
    return 0;
}

static int versions(char *written, size_t size)
{
    (void)snprintf(written, size, "stand-in");
    return 0;
}

struct cuda_libraries {
    int index;
};

/* Calls of a thread are for the first card until it says otherwise; here that is for none. */
static _Thread_local int has_card;
static int used_card; /* a process has one */
static int use(int index)
{
    if (index < 0 || index >= stand_in_n_card) abort();
    has_card = 1;
    return stand_in_fate();
}

static int open_libraries(cuda_libraries **libraries, int index)
{
    const int failed = use(index);
    if (failed) return failed;
    used_card = index;
    *libraries = opened(sizeof **libraries);
    (*libraries)->index = index;
    return 0;
}

static void close_libraries(cuda_libraries *libraries) { closed(libraries); }

static int take(void **memory, uint64_t bytes, int pinned)
{
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (graph_forbids()) return CAPTURE_UNSUPPORTED;
    const header h = {bytes, pinned, !pinned && stand_in_is_apart};
    if (!pinned && (int64_t)bytes > stand_in_memory_left) return NO_MEMORY;
    char *whole = h.is_apart ? take_apart(bytes + HEADER)
                             : aligned_alloc(HEADER, (bytes + 2 * HEADER - 1) / HEADER * HEADER);
    if (!whole) abort();
    stand_in_enter();
    memcpy(whole, &h, sizeof h);
    memset(whole + HEADER, 0xA5, bytes); /* a card's memory is not cleared */
    stand_in_leave();
    if (!pinned) stand_in_memory_left -= (int64_t)bytes;
    if (pinned) count_host((int64_t)bytes);
    add_range(whole + HEADER, bytes, 0);
    *memory = whole + HEADER;
    return 0; /* cppcheck-suppress memleak ; given back by `give`, which finds `whole` from it */
}

static void give(void *memory, int pinned)
{
    header h;
    char *whole = (char *)memory - HEADER;
    (void)graph_forbids();
    stand_in_enter();
    memcpy(&h, whole, sizeof h);
    stand_in_leave();
    if (h.pinned != pinned) abort();
    if (!pinned) stand_in_memory_left += (int64_t)h.bytes;
    if (pinned) count_host(-(int64_t)h.bytes);
    remove_range(memory, 0);
    if (!h.is_apart) free(whole);
}

int64_t stand_in_most_locked = INT64_MAX;
int stand_in_refuses_lock = -1;

/* Whole pages, as CUDA before 4.1 asked for, and no driver minds; all of it mapped, none of it locked. */
static int lock(void *memory, uint64_t bytes)
{
    enum { PAGE_BYTES = 4096 };
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (graph_forbids()) return CAPTURE_UNSUPPORTED;
    if (used_card == stand_in_refuses_lock || getenv("STAND_IN_REFUSES_LOCK")) return LOCKS_NONE;
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
    if ((int64_t)bytes > stand_in_most_locked) return NO_MEMORY;
    add_range(memory, bytes, 1);
    return 0;
}

static void do_all(void);

/* What the card still does is done then. */
static void unlock(void *memory)
{
    if (graph_forbids()) abort();
    do_all();
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
enum { MOST_STREAMS = 16 };
static tandem_cuda_stream streams[MOST_STREAMS];
static int n_stream;

static void force(tandem_cuda_event event);

static void do_one(const queued *w)
{
    if (w->awaited) force(w->awaited);
    if (w->to) {
        stand_in_enter();
        memcpy(w->to, w->from, w->bytes);
        stand_in_leave();
    }
    if (w->recorded) {
        w->recorded->at_ns = stand_in_clock_stands ? ++clock_ns : tandem_now_ns() + clock_ns;
        w->recorded->on = NULL;
    }
}

static void do_first(tandem_cuda_stream stream)
{
    queued *w = stream->first;
    stream->first = w->next;
    if (!stream->first) stream->end = &stream->first;
    do_one(w);
    free(w);
}

static void do_all(void)
{
    pthread_mutex_lock(&mutex);
    for (int k = 0; k < n_stream; k++) graph_finish(streams[k]);
    for (int k = 0; k < n_stream; k++)
        while (streams[k]->first) do_first(streams[k]);
    pthread_mutex_unlock(&mutex);
}

static void force(tandem_cuda_event event)
{
    if (event->within) graph_come_to(event->within, event->node);
    while (event->on) do_first(event->on);
}

int stand_in_give(tandem_cuda_stream stream, void (*run)(void *what), void (*drop)(void *what), void *what)
{
    int failed = 0;
    pthread_mutex_lock(&mutex);
    if (stream && graph_is_captured(&stream->place)) {
        failed = graph_put(stream, run, drop, what, NULL);
    } else {
        if (stream) graph_finish(stream);
        run(what);
        if (drop) drop(what);
    }
    pthread_mutex_unlock(&mutex);
    return failed;
}

/* The same of what is small, and copied. */
static int give_copy_of(tandem_cuda_stream stream, void (*run)(void *what), const void *what, size_t bytes)
{
    void *copy = malloc(bytes);
    if (!copy) abort();
    memcpy(copy, what, bytes);
    const int failed = stand_in_give(stream, run, free, copy);
    return failed ? failed : stand_in_fate();
}

static void run_queued(void *what) { do_one(what); }

/* In a capture an event marks a place, and a stream that waits for it goes on there. */
static int capture_queued(tandem_cuda_stream stream, const queued *one)
{
    if (one->awaited) return graph_join(stream, one->awaited);
    if (one->recorded) {
        one->recorded->place = stream->place;
        return 0;
    }
    return give_copy_of(stream, run_queued, one, sizeof *one);
}

static int put(tandem_cuda_stream stream, queued one)
{
    if (!has_card) abort();
    pthread_mutex_lock(&mutex);
    if (one.to && (!stream->is_first || graph_is_captured(&stream->place)) &&
        !(is_locked(one.to, one.bytes) && is_locked(one.from, one.bytes))) {
        pthread_mutex_unlock(&mutex);
        return INVALID; /* it would be done, but nothing beside it: the host would wait */
    }
    if (graph_is_captured(&stream->place) || (one.awaited && one.awaited->place.capture)) {
        const int failed = capture_queued(stream, &one);
        pthread_mutex_unlock(&mutex);
        return failed ? failed : stand_in_fate();
    }
    if (one.recorded) {
        one.recorded->place = (graph_place){0, -1};
        one.recorded->within = NULL;
        one.recorded->on = stream;
    }
    if (stream->is_first) {
        graph_finish(stream);
        do_one(&one);
    } else {
        queued *w = malloc(sizeof *w);
        if (!w) abort();
        *w = one;
        *stream->end = w;
        stream->end = &w->next;
    }
    pthread_mutex_unlock(&mutex);
    return stand_in_fate();
}

typedef struct cleared {
    void *memory;
    uint64_t bytes;
} cleared;

static void run_cleared(void *what)
{
    const cleared *c = what;
    stand_in_enter();
    memset(c->memory, 0, c->bytes);
    stand_in_leave();
}

static int clear(void *memory, uint64_t bytes, tandem_cuda_stream stream)
{
    if (!stream->is_first) abort();
    return give_copy_of(stream, run_cleared, &(cleared){memory, bytes}, sizeof(cleared));
}

static int copy(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream)
{
    return put(stream, (queued){.to = to, .from = from, .bytes = bytes});
}

static int stream_open(tandem_cuda_stream *stream)
{
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (n_stream == MOST_STREAMS) abort();
    *stream = opened(sizeof **stream);
    (*stream)->is_first = n_stream == 0;
    streams[n_stream++] = *stream;
    (*stream)->end = &(*stream)->first;
    return 0;
}
static int wait_all(tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    const int forbidden =
        graph_is_captured(&stream->place) ? graph_invalidate(CAPTURE_UNSUPPORTED) : graph_forbids();
    if (!forbidden) graph_finish(stream);
    while (!forbidden && stream->first) do_first(stream);
    pthread_mutex_unlock(&mutex);
    return forbidden ? forbidden : stand_in_fate();
}
static void stream_close(tandem_cuda_stream stream)
{
    for (queued *w; (w = stream->first) != NULL; free(w)) stream->first = w->next;
    int k = 0;
    while (streams[k] != stream) k++;
    streams[k] = streams[--n_stream];
    closed(stream);
}
static int wait_for(tandem_cuda_stream stream, tandem_cuda_event event)
{
    return put(stream, (queued){.awaited = event});
}
static int call_host(tandem_cuda_stream stream, void (*function)(void *context), void *context)
{
    const int failed = wait_all(stream);
    if (!failed) function(context);
    return failed;
}
static int event_open(tandem_cuda_event *event)
{
    const int failed = stand_in_fate();
    if (!failed) *event = opened(sizeof **event);
    return failed;
}
static void event_close(tandem_cuda_event event) { closed(event); }
static int record(tandem_cuda_event event, tandem_cuda_stream stream)
{
    return put(stream, (queued){.recorded = event});
}
static int reach(tandem_cuda_event event)
{
    if (!has_card) abort();
    pthread_mutex_lock(&mutex);
    int forbidden = event->place.capture ? CAPTURED_EVENT : graph_forbids();
    if (graph_is_captured(&event->place)) forbidden = graph_invalidate(CAPTURED_EVENT);
    if (!forbidden) force(event);
    pthread_mutex_unlock(&mutex);
    return forbidden ? forbidden : stand_in_fate();
}
static int elapsed_ns(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to)
{
    if (from->on || to->on || from->within || to->within) abort(); /* they must have happened */
    *ns = to->at_ns - from->at_ns;
    return stand_in_fate();
}

int stand_in_marks_are_early;

static int outside_waits(int *waits, tandem_cuda_stream stream)
{
    (void)stream;
    *waits = !stand_in_marks_are_early;
    return stand_in_fate();
}

static int capture_begin(tandem_cuda_stream stream)
{
    int failed = stand_in_fate();
    pthread_mutex_lock(&mutex);
    if (!failed) failed = graph_begin(stream);
    pthread_mutex_unlock(&mutex);
    return failed;
}
static int capture_end(tandem_cuda_graph *graph, tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    tandem_cuda_graph made = NULL;
    int failed = graph_end(&made, stream);
    if (!failed && (failed = stand_in_fate())) graph_drop(made);
    if (!failed) {
        open_things++;
        *graph = made;
    }
    pthread_mutex_unlock(&mutex);
    return failed;
}
static int record_outside(tandem_cuda_event event, tandem_cuda_stream stream)
{
    const queued one = {.recorded = event};
    queued *what = malloc(sizeof *what);
    if (!what) abort();
    *what = one;
    pthread_mutex_lock(&mutex);
    int failed = INVALID;
    if (graph_is_captured(&stream->place))
        failed = graph_put(stream, run_queued, free, what, event);
    else
        free(what);
    pthread_mutex_unlock(&mutex);
    return failed ? failed : stand_in_fate();
}
static int graph_run(tandem_cuda_graph graph, tandem_cuda_stream stream)
{
    int failed = stand_in_fate();
    pthread_mutex_lock(&mutex);
    if (!failed) failed = graph_forbids();
    if (!failed) graph_start(graph, stream);
    pthread_mutex_unlock(&mutex);
    return failed;
}
static void graph_close(tandem_cuda_graph graph)
{
    pthread_mutex_lock(&mutex);
    open_things--;
    graph_end_runs(graph); /* the driver keeps it for so long */
    graph_drop(graph);
    pthread_mutex_unlock(&mutex);
}

/* --- Numbers of every type ------------------------------------------------------------------------------ */

static double load(const void *array, cuda_type type, int64_t i)
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

static void store(void *array, cuda_type type, int64_t i, double value)
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

static double *load_all(const void *array, cuda_type type, int64_t n, int tf32)
{
    double *value = malloc((size_t)n * sizeof *value);
    if (!value) abort();
    for (int64_t i = 0; i < n; i++) value[i] = tf32 ? as_tf32(load(array, type, i)) : load(array, type, i);
    return value;
}

/* --- Work: of either kind there are N_ALGORITHM ways, which differ in workspace and in the time they pretend to take ---- */

enum { N_ALGORITHM = 4, BROKEN = 2 };
static const struct {
    uint64_t workspace_bytes;
    int64_t ns;
} algorithms[N_ALGORITHM] = {{512, SECOND * 9},
                             {1000, SECOND * 5},
                             {256, SECOND},
                             {0, SECOND * 7}}; /* BROKEN is named, and fails when it runs */
int stand_in_breaks;                           /* whether it does */
int stand_in_candidates = N_ALGORITHM;
int stand_in_refused;
int stand_in_runs;

struct cuda_work {
    int is_product;
    cuda_product_spec product;
    cuda_convolution_spec convolution;
};

static void work_close(cuda_work *work) { closed(work); }

static int work_candidates(cuda_algorithm candidate[CUDA_CANDIDATES], int *n, const cuda_work *work)
{
    (void)work;
    if (!stand_in_candidates) return UNSUPPORTED;
    for (int i = 0; i < stand_in_candidates; i++)
        candidate[i] = (cuda_algorithm){{(uint64_t)i}, algorithms[i].workspace_bytes};
    *n = stand_in_candidates;
    return stand_in_fate();
}

static int work_check(cuda_algorithm *algorithm, const cuda_work *work)
{
    (void)work;
    if (algorithm->word[0] >= N_ALGORITHM || (int)algorithm->word[0] < stand_in_refused) return UNSUPPORTED;
    algorithm->workspace_bytes = algorithms[algorithm->word[0]].workspace_bytes;
    return stand_in_fate();
}

/* --- Products ------------------------------------------------------------------------------------------- */

static int is_fp8(cuda_type type) { return type == CUDA_TYPE_E4M3 || type == CUDA_TYPE_E5M2; }

static int is_float(cuda_type type) { return type <= CUDA_TYPE_F16; }

/* Which compute capability, times ten, a type's products begin with. */
static int has_type(cuda_type type, int tf32)
{
    const int least = is_fp8(type) ? 89 : type == CUDA_TYPE_BF16 || tf32 ? 80 : 75;
    return 10 * stand_in_card.major + stand_in_card.minor >= least;
}

/* What cuBLASLt documents for these types (cublasLtMatmul, tables 1 and 3); its m is our n. */
static int is_supported(const cuda_product_spec *s)
{
    const int64_t unit = s->a == CUDA_TYPE_S8 ? 4 : 16;
    if (!has_type(s->a, s->tf32) || !has_type(s->b, s->tf32)) return 0;
    if ((s->tf32 && s->a != CUDA_TYPE_F32) || (s->fast_sums && !is_fp8(s->a))) return 0;
    if (is_float(s->a)) return s->a == s->b && (s->to == s->a || s->to == CUDA_TYPE_F32);
    if (s->a == CUDA_TYPE_S8 && (s->b != CUDA_TYPE_S8 || s->to != CUDA_TYPE_S32)) return 0;
    if (is_fp8(s->a) && (!is_fp8(s->b) || (s->a == CUDA_TYPE_E5M2 && s->b == CUDA_TYPE_E5M2) || s->m % 16 ||
                         !is_float(s->to)))
        return 0;
    return !s->transpose_a && s->transpose_b && s->n % unit == 0 && s->k % unit == 0;
}

/* Sides and batches are 32 bits wide in the library's kernels. */
static int has_sides(const cuda_product_spec *s)
{
    const int64_t side[] = {s->batch, s->m, s->n, s->k};
    for (int i = 0; i < 4; i++)
        if (side[i] < 1 || side[i] > INT32_MAX) return 0;
    return 1;
}

static int product_open(cuda_work **work, cuda_libraries *libraries, const cuda_product_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (!has_sides(spec)) return BAD_VALUE;
    if (!is_supported(spec)) return UNSUPPORTED;
    *work = opened(sizeof **work);
    **work = (cuda_work){.is_product = 1, .product = *spec};
    return 0;
}

static void run_product(const cuda_product_spec *s, const cuda_operands *o)
{
    double *const left = load_all(o->a, s->a, s->batch * s->m * s->k, s->tf32);
    double *const right = load_all(o->b, s->b, s->batch * s->k * s->n, s->tf32);
    double *const before = s->accumulate ? load_all(o->c, s->to, s->batch * s->m * s->n, 0) : NULL;
    const int64_t a_row = s->transpose_a ? 1 : s->k, a_step = s->transpose_a ? s->m : 1,
                  b_column = s->transpose_b ? s->k : 1, b_step = s->transpose_b ? 1 : s->n;
    for (int64_t i = 0; i < s->batch * s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            const double *a = left + i / s->m * s->m * s->k + i % s->m * a_row,
                         *b = right + i / s->m * s->k * s->n + j * b_column;
            double sum = 0;
            for (int64_t l = 0; l < s->k; l++, a += a_step, b += b_step) sum += *a * *b;
            if (is_fp8(s->a)) sum *= (double)*o->scale_a * (double)*o->scale_b;
            store(o->c, s->to, i * s->n + j, before ? before[i * s->n + j] + sum : sum);
        }
    free(before);
    free(right);
    free(left);
}

/* --- Convolutions --------------------------------------------------------------------------------------- */

/* Arrays of fewer than 2^31 elements, of one float type throughout (cudnnSetTensor4dDescriptor,
 * cudnnConvolutionForward). */
static int is_convolution(const cuda_convolution_spec *s)
{
    const int64_t x = (int64_t)s->batch * s->in_h * s->in_w * s->c_in,
                  y = (int64_t)s->batch * s->out_h * s->out_w * s->c_out;
    return is_float(s->type) && has_type(s->type, s->tf32) && (!s->tf32 || s->type == CUDA_TYPE_F32) &&
           x <= INT32_MAX && y <= INT32_MAX;
}

static int fits(int out, int in, int kernel, const cuda_convolution_spec *s)
{
    return out >= 1 && s->stride >= 1 && s->pad >= 0 && out == (in + 2 * s->pad - kernel) / s->stride + 1;
}

static int convolution_open(cuda_work **work, cuda_libraries *libraries, const cuda_convolution_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (!fits(spec->out_h, spec->in_h, spec->kernel_h, spec) ||
        !fits(spec->out_w, spec->in_w, spec->kernel_w, spec))
        return BAD_VALUE;
    if (!is_convolution(spec)) return UNSUPPORTED;
    *work = opened(sizeof **work);
    (*work)->convolution = *spec;
    return 0;
}

static void run_convolution(const cuda_convolution_spec *s, const cuda_operands *o)
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
    double *const in = load_all(x, s->type, n_x, s->tf32), *const weight = load_all(w, s->type, n_w, s->tf32),
                  *const out = load_all(y, s->type, n_y, s->tf32);
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
    for (int64_t i = 0; i < n; i++) store(o->c, s->type, i, sum[i]);
    free(out);
    free(weight);
    free(in);
    free(sum);
}

int stand_in_refuses_capture;

typedef struct running_work {
    cuda_work work;
    cuda_operands operands;
    void *workspace;
    uint64_t way;
} running_work;

static void run_work(void *what)
{
    const running_work *w = what;
    stand_in_enter();
    memset(w->workspace, 0x5A, algorithms[w->way].workspace_bytes);
    if (w->work.is_product)
        run_product(&w->work.product, &w->operands);
    else
        run_convolution(&w->work.convolution, &w->operands);
    if (!stand_in_clock_stands) clock_ns += algorithms[w->way].ns;
    stand_in_runs++;
    stand_in_leave();
}

/* As the libraries ask for, and as cublaslt.c promises them. */
static int is_aligned(const cuda_operands *o, const void *workspace)
{
    return ((uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->c) % 64 == 0 && (uintptr_t)workspace % 256 == 0;
}

static int work_run(const cuda_work *work, const cuda_algorithm *algorithm, const cuda_operands *operands,
                    void *workspace, tandem_cuda_stream stream)
{
    const uint64_t way = algorithm->word[0];
    if (!is_aligned(operands, workspace)) return BAD_VALUE;
    if (work->is_product && is_fp8(work->product.a) && (!operands->scale_a || !operands->scale_b))
        return BAD_VALUE;
    if (stand_in_breaks && way == BROKEN) return UNSUPPORTED;
    const int refuses = stand_in_refuses_capture || getenv("STAND_IN_REFUSES_CAPTURE");
    if (refuses && graph_is_captured(&stream->place)) return graph_invalidate(CAPTURE_UNSUPPORTED);
    return give_copy_of(stream, run_work, &(running_work){*work, *operands, workspace, way},
                        sizeof(running_work));
}

const cuda_vendor tandem_cuda_vendor = {.gpu_count = count,
                                        .describe = look,
                                        .free_bytes = free_bytes,
                                        .error_text = text,
                                        .is_unsupported = lacks,
                                        .versions = versions,
                                        .read_clocks = clocks,
                                        .open = open_libraries,
                                        .set_device = use,
                                        .close = close_libraries,
                                        .alloc = take,
                                        .free = give,
                                        .lock = lock,
                                        .unlock = unlock,
                                        .clear = clear,
                                        .copy = copy,
                                        .stream_open = stream_open,
                                        .stream_close = stream_close,
                                        .stream_sync = wait_all,
                                        .stream_wait_event = wait_for,
                                        .call_host = call_host,
                                        .event_open = event_open,
                                        .event_close = event_close,
                                        .event_record = record,
                                        .event_sync = reach,
                                        .elapsed_ns = elapsed_ns,
                                        .capture_begin = capture_begin,
                                        .probe_external_events = outside_waits,
                                        .capture_end = capture_end,
                                        .event_record_external = record_outside,
                                        .graph_launch = graph_run,
                                        .graph_destroy = graph_close,
                                        .product_open = product_open,
                                        .convolution_open = convolution_open,
                                        .work_close = work_close,
                                        .work_candidates = work_candidates,
                                        .work_check = work_check,
                                        .work_run = work_run};

/* --- card.h --------------------------------------------------------------------------------------------- */

const int card_is_real = 0;

int card_skips(void) { return 0; }

void *card_take_shared(size_t bytes)
{
    void *memory = NULL;
    return take(&memory, bytes, 1) ? NULL : memory;
}

void card_give_shared(void *memory) { give(memory, 1); }

int card_open_things(void) { return open_things; }
