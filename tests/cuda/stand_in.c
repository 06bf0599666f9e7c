#include "tests/cuda/stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/cuda/card.h"

enum { LOST = 719, NO_MEMORY = 2 };

cuda_card stand_in_card = {"stand-in", 9, 0, UINT64_C(1) << 30, 13000, 13000};
int stand_in_n_card = 1;
int stand_in_fails_after = -1;
int stand_in_fails_once;
int64_t stand_in_memory_left = INT64_C(1) << 30;
int stand_in_is_apart;

/* A step has two threads: the one that computes, and the one that reduces. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int open_things;
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

/* --- The card's memory: where it is apart, the host can only touch it while the card works ---------------------------------- */

enum { HEADER = 256 }; /* the bytes taken and their kind stand before what is handed out */
static const size_t region_bytes = (size_t)1 << 30;
static char *region;
static size_t region_used;
static int entered;

static void protect(int how)
{
    if (region_used && mprotect(region, region_used, how) != 0) abort();
}

void stand_in_enter(void)
{
    pthread_mutex_lock(&mutex);
    if (entered++ == 0 && region) protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&mutex);
}

void stand_in_leave(void)
{
    pthread_mutex_lock(&mutex);
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

/* --- The runtime ---------------------------------------------------------------------------------------------------------- */

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

static const char *text(int error) { return error == LOST ? "the card is gone" : "no memory"; }

static int versions(char *written, size_t size)
{
    (void)snprintf(written, size, "stand-in");
    return 0;
}

struct cuda_libraries {
    int index;
};

static int open_libraries(cuda_libraries **libraries, int index)
{
    const int failed = stand_in_fate();
    if (failed) return failed;
    *libraries = opened(sizeof **libraries);
    (*libraries)->index = index;
    return 0;
}

static void close_libraries(cuda_libraries *libraries) { closed(libraries); }

static int take(void **memory, uint64_t bytes, int pinned)
{
    const int failed = stand_in_fate();
    if (failed) return failed;
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
    open_things++;
    *memory = whole + HEADER;
    return 0; /* cppcheck-suppress memleak ; given back by `give`, which finds `whole` from it */
}

static void give(void *memory, int pinned)
{
    header h;
    char *whole = (char *)memory - HEADER;
    stand_in_enter();
    memcpy(&h, whole, sizeof h);
    stand_in_leave();
    if (h.pinned != pinned) abort();
    if (!pinned) stand_in_memory_left += (int64_t)h.bytes;
    if (h.is_apart)
        open_things--;
    else
        closed(whole);
}

/* --- Streams: the first one does all at once, which is where kernels run; the others do nothing before somebody waits for them,
 * so that whoever should wait and does not is seen --------------------------------------------------------------------------- */

typedef struct work { /* a copy, or an event that is recorded (to NULL), or waited for */
    void *to;
    const void *from;
    uint64_t bytes;
    tandem_cuda_event recorded, awaited;
    struct work *next;
} work;

struct CUstream_st {
    int is_first;
    work *first, **end;
};
static int n_stream;

struct CUevent_st {
    int64_t at_ns;
    tandem_cuda_stream on; /* that has still to come to it; NULL = none */
};

static void force(tandem_cuda_event event);

static void do_one(const work *w)
{
    if (w->awaited) force(w->awaited);
    if (w->to) {
        stand_in_enter();
        memcpy(w->to, w->from, w->bytes);
        stand_in_leave();
    }
    if (w->recorded) {
        w->recorded->at_ns = tandem_now_ns();
        w->recorded->on = NULL;
    }
}

static void do_first(tandem_cuda_stream stream)
{
    work *w = stream->first;
    stream->first = w->next;
    if (!stream->first) stream->end = &stream->first;
    do_one(w);
    free(w);
}

static void force(tandem_cuda_event event)
{
    while (event->on) do_first(event->on);
}

static int put(tandem_cuda_stream stream, work one)
{
    pthread_mutex_lock(&mutex);
    if (one.recorded) one.recorded->on = stream;
    if (stream->is_first) {
        do_one(&one);
    } else {
        work *w = malloc(sizeof *w);
        if (!w) abort();
        *w = one;
        *stream->end = w;
        stream->end = &w->next;
    }
    pthread_mutex_unlock(&mutex);
    return stand_in_fate();
}

static int clear(void *memory, uint64_t bytes, tandem_cuda_stream stream)
{
    if (!stream->is_first) abort();
    stand_in_enter();
    memset(memory, 0, bytes);
    stand_in_leave();
    return stand_in_fate();
}

static int copy(void *to, const void *from, uint64_t bytes, tandem_cuda_stream stream)
{
    return put(stream, (work){.to = to, .from = from, .bytes = bytes});
}

static int stream_open(tandem_cuda_stream *stream)
{
    const int failed = stand_in_fate();
    if (failed) return failed;
    *stream = opened(sizeof **stream);
    (*stream)->is_first = n_stream++ == 0;
    (*stream)->end = &(*stream)->first;
    return 0;
}
static int wait_all(tandem_cuda_stream stream)
{
    pthread_mutex_lock(&mutex);
    while (stream->first) do_first(stream);
    pthread_mutex_unlock(&mutex);
    return stand_in_fate();
}
static void stream_close(tandem_cuda_stream stream)
{
    for (work *w; (w = stream->first) != NULL; free(w)) stream->first = w->next;
    n_stream--;
    closed(stream);
}
static int wait_for(tandem_cuda_stream stream, tandem_cuda_event event)
{
    return put(stream, (work){.awaited = event});
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
    return put(stream, (work){.recorded = event});
}
static int reach(tandem_cuda_event event)
{
    pthread_mutex_lock(&mutex);
    force(event);
    pthread_mutex_unlock(&mutex);
    return stand_in_fate();
}
static int elapsed_ns(int64_t *ns, tandem_cuda_event from, tandem_cuda_event to)
{
    if (from->on || to->on) abort(); /* they must have happened */
    *ns = to->at_ns - from->at_ns;
    return stand_in_fate();
}

/* --- Numbers of every type ------------------------------------------------------------------------------------------------ */

static double load(const void *array, cuda_type type, int64_t i)
{
    switch (type) {
    case CUDA_TYPE_F32: return (double)((const float *)array)[i];
    case CUDA_TYPE_BF16: return (double)tandem_f32_of_bf16(((const uint16_t *)array)[i]);
    case CUDA_TYPE_S8: return (double)((const int8_t *)array)[i];
    case CUDA_TYPE_S32: return (double)((const int32_t *)array)[i];
    }
    abort();
}

static void store(void *array, cuda_type type, int64_t i, double value)
{
    switch (type) {
    case CUDA_TYPE_F32: ((float *)array)[i] = (float)value; return;
    case CUDA_TYPE_BF16: ((uint16_t *)array)[i] = tandem_bf16_of((float)value); return;
    case CUDA_TYPE_S32: ((int32_t *)array)[i] = (int32_t)value; return;
    case CUDA_TYPE_S8: break;
    }
    abort();
}

static double *load_all(const void *array, cuda_type type, int64_t n)
{
    double *value = malloc((size_t)n * sizeof *value);
    if (!value) abort();
    for (int64_t i = 0; i < n; i++) value[i] = load(array, type, i);
    return value;
}

/* --- Products --------------------------------------------------------------------------------------------------------------- */

enum { WORKSPACE = 512 }; /* so that offsets behind it are met */

struct cuda_product {
    cuda_product_spec spec;
};

static int product_open(cuda_product **product, uint64_t *workspace_bytes, cuda_libraries *libraries,
                        const cuda_product_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_fate();
    if (failed) return failed;
    if (spec->from == CUDA_TYPE_S8 && (spec->transpose_a || !spec->transpose_b || spec->n % 4 || spec->k % 4))
        return 15;
    *product = opened(sizeof **product);
    (*product)->spec = *spec;
    *workspace_bytes = WORKSPACE;
    return 0;
}

static void product_close(cuda_product *product) { closed(product); }

static int product_run(const cuda_product *product, const void *a, const void *b, void *c, void *workspace,
                       tandem_cuda_stream stream)
{
    (void)stream;
    const cuda_product_spec *s = &product->spec;
    stand_in_enter();
    memset(workspace, 0x5A, WORKSPACE);
    double *const left = load_all(a, s->from, s->batch * s->m * s->k), *const right = load_all(
                                                                           b, s->from, s->batch * s->k * s->n);
    for (int64_t i = 0; i < s->batch * s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t group = i / s->m, row = i % s->m;
            double sum = 0;
            for (int64_t l = 0; l < s->k; l++)
                sum += left[group * s->m * s->k + (s->transpose_a ? l * s->m + row : row * s->k + l)] *
                       right[group * s->k * s->n + (s->transpose_b ? j * s->k + l : l * s->n + j)];
            store(c, s->to, i * s->n + j, sum);
        }
    free(right);
    free(left);
    stand_in_leave();
    return stand_in_fate();
}

/* --- Convolutions ----------------------------------------------------------------------------------------------------------- */

struct cuda_convolution {
    cuda_convolution_spec spec;
};

static int convolution_open(cuda_convolution **convolution, uint64_t *workspace_bytes,
                            cuda_libraries *libraries, const cuda_convolution_spec *spec)
{
    (void)libraries;
    const int failed = stand_in_fate();
    if (failed) return failed;
    *convolution = opened(sizeof **convolution);
    (*convolution)->spec = *spec;
    *workspace_bytes = WORKSPACE;
    return 0;
}

static void convolution_close(cuda_convolution *convolution) { closed(convolution); }

static int convolution_run(const cuda_convolution *convolution, void *x, void *w, void *y, void *workspace,
                           tandem_cuda_stream stream)
{
    (void)stream;
    const cuda_convolution_spec *s = &convolution->spec;
    const int64_t n_x = (int64_t)s->batch * s->in_h * s->in_w * s->c_in,
                  n_w = (int64_t)s->c_out * s->kernel_h * s->kernel_w * s->c_in,
                  n_y = (int64_t)s->batch * s->out_h * s->out_w * s->c_out;
    const int64_t n = s->pass == CUDA_CONVOLUTION ? n_y : s->pass == CUDA_CONVOLUTION_DGRAD ? n_x : n_w;
    double *sum = calloc((size_t)n, sizeof *sum);
    if (!sum) abort();
    stand_in_enter();
    memset(workspace, 0x5A, WORKSPACE);
    double *const in = load_all(x, s->type, n_x), *const weight = load_all(w, s->type, n_w),
                  *const out = load_all(y, s->type, n_y);
    for (int64_t i = 0; i < n_y; i++) {
        const int64_t o = i % s->c_out, ox = i / s->c_out % s->out_w, oy = i / s->c_out / s->out_w % s->out_h,
                      image = i / s->c_out / s->out_w / s->out_h;
        for (int64_t k = 0; k < n_w / s->c_out; k++) {
            const int64_t c = k % s->c_in, kx = k / s->c_in % s->kernel_w, ky = k / s->c_in / s->kernel_w;
            const int64_t h = oy * s->stride + ky - s->pad, v = ox * s->stride + kx - s->pad;
            if (h < 0 || h >= s->in_h || v < 0 || v >= s->in_w) continue;
            const int64_t at_x = ((image * s->in_h + h) * s->in_w + v) * s->c_in + c,
                          at_w = o * (n_w / s->c_out) + k;
            if (s->pass == CUDA_CONVOLUTION)
                sum[i] += in[at_x] * weight[at_w];
            else if (s->pass == CUDA_CONVOLUTION_DGRAD)
                sum[at_x] += out[i] * weight[at_w];
            else
                sum[at_w] += out[i] * in[at_x];
        }
    }
    void *const result = s->pass == CUDA_CONVOLUTION ? y : s->pass == CUDA_CONVOLUTION_DGRAD ? x : w;
    for (int64_t i = 0; i < n; i++) store(result, s->type, i, sum[i]);
    free(out);
    free(weight);
    free(in);
    free(sum);
    stand_in_leave();
    return stand_in_fate();
}

const cuda_vendor tandem_cuda_vendor = {.count = count,
                                        .look = look,
                                        .free_bytes = free_bytes,
                                        .text = text,
                                        .versions = versions,
                                        .open = open_libraries,
                                        .close = close_libraries,
                                        .take = take,
                                        .give = give,
                                        .clear = clear,
                                        .copy = copy,
                                        .stream_open = stream_open,
                                        .stream_close = stream_close,
                                        .wait = wait_all,
                                        .wait_for = wait_for,
                                        .call_host = call_host,
                                        .event_open = event_open,
                                        .event_close = event_close,
                                        .record = record,
                                        .reach = reach,
                                        .elapsed_ns = elapsed_ns,
                                        .product_open = product_open,
                                        .product_close = product_close,
                                        .product_run = product_run,
                                        .convolution_open = convolution_open,
                                        .convolution_close = convolution_close,
                                        .convolution_run = convolution_run};

/* --- card.h --------------------------------------------------------------------------------------------------------------- */

const int card_is_real = 0;

int card_skips(void) { return 0; }

void *card_take_shared(size_t bytes)
{
    void *memory = NULL;
    return take(&memory, bytes, 1) ? NULL : memory;
}

void card_give_shared(void *memory) { give(memory, 1); }

int card_open_things(void) { return open_things; }
