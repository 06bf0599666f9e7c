/* algorithm_cache.c: the cache of algorithms as texts, and the measurement that selects an algorithm. */
#include "backend/cuda/algorithm_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

enum { WHERE_TEXT = 256, CHOICE_TEXT = CUDA_ALGORITHM_WORDS * 17 };

typedef struct known_algorithm {
    char *spec; /* the GPU and versions, then the work's text */
    cuda_algorithm algorithm;
    int is_guess; /* the library's, which has run once; else it was tuned */
} known_algorithm;

struct cuda_algorithm_cache {
    char where[WHERE_TEXT];
    uint64_t cache_bytes;
    int autotune, has_no_trials;
    known_algorithm *known;
    int n_known, n_known_room;
    tandem_algorithm *tuned;
    int n_tuned, n_tuned_room;
};

tandem_status cuda_algorithm_cache_open(cuda_algorithm_cache **out, const cuda_gpu *gpu, const char *versions,
                                        tandem_error *error)
{
    cuda_algorithm_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return tandem_no_memory(error, "to open GPU %s", gpu->name);
    (void)snprintf(cache->where, sizeof cache->where, "%s %d.%d, %s | ", gpu->name, gpu->major, gpu->minor,
                   versions);
    cache->cache_bytes = gpu->cache_bytes;
    *out = cache;
    return TANDEM_OK;
}

void cuda_algorithm_cache_set_trials(cuda_algorithm_cache *cache, int are_made)
{
    cache->has_no_trials = !are_made;
}

void cuda_algorithm_cache_close(cuda_algorithm_cache *cache)
{
    if (!cache) return;
    for (int i = 0; i < cache->n_known; i++) free(cache->known[i].spec);
    for (int i = 0; i < cache->n_tuned; i++) {
        free((char *)cache->tuned[i].spec);
        free((char *)cache->tuned[i].choice);
    }
    free(cache->known);
    free(cache->tuned);
    free(cache);
}

/* --- Texts ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint64_t bytes;
} cuda_types[CUDA_N_TYPE] = {
    [CUDA_TYPE_F32] = {"f32", 4},   [CUDA_TYPE_BF16] = {"bf16", 2}, [CUDA_TYPE_F16] = {"f16", 2},
    [CUDA_TYPE_E4M3] = {"e4m3", 1}, [CUDA_TYPE_E5M2] = {"e5m2", 1}, [CUDA_TYPE_S8] = {"s8", 1},
    [CUDA_TYPE_S32] = {"s32", 4},
};

uint64_t cuda_type_bytes(cuda_type type) { return cuda_types[type].bytes; }

void cuda_product_print(char text[CUDA_WORK_TEXT], const cuda_product_spec *s)
{
    int n = snprintf(
        text, CUDA_WORK_TEXT,
        "product batch=%" PRId64 " m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " %c%c %s*%s>%s%s%s", s->batch,
        s->m, s->n, s->k, s->transpose_a ? 't' : 'n', s->transpose_b ? 't' : 'n', cuda_types[s->a].name,
        cuda_types[s->b].name, cuda_types[s->to].name, s->tf32 ? " tf32" : "", s->fast_sums ? " fast" : "");
    if (s->a_row || s->c_row)
        n += snprintf(text + n, CUDA_WORK_TEXT - (size_t)n, " rows of a %" PRId64 ", of c %" PRId64, s->a_row,
                      s->c_row);
    if (s->has_one_a)
        (void)snprintf(text + n, CUDA_WORK_TEXT - (size_t)n,
                       " one a, b %" PRId64 " and c %" PRId64 " apart, in %" PRIu64 " bytes", s->b_apart,
                       s->c_apart, s->max_workspace);
}

void cuda_convolution_print(char text[CUDA_WORK_TEXT], const cuda_convolution_spec *s)
{
    static const char *const pass[] = {"forward", "dgrad", "wgrad"};
    (void)snprintf(text, CUDA_WORK_TEXT,
                   "convolution %s batch=%d %dx%dx%d > %dx%dx%d window=%dx%d stride=%d pad=%d %s%s",
                   pass[s->pass], s->batch, s->in_h, s->in_w, s->c_in, s->out_h, s->out_w, s->c_out,
                   s->kernel_h, s->kernel_w, s->stride, s->pad, cuda_types[s->type].name,
                   s->tf32 ? " tf32" : "");
}

static void print_algorithm(char text[CHOICE_TEXT], const cuda_algorithm *algorithm)
{
    size_t at = 0;
    for (int i = 0; i < CUDA_ALGORITHM_WORDS; i++)
        at += (size_t)snprintf(text + at, CHOICE_TEXT - at, "%s%" PRIx64, i ? "." : "", algorithm->word[i]);
}

static int parse_algorithm(cuda_algorithm *algorithm, const char *text)
{
    cuda_algorithm read = {{0}, 0};
    for (int i = 0; i < CUDA_ALGORITHM_WORDS; i++) {
        const size_t digits = strspn(text, "0123456789abcdef");
        if (digits < 1 || digits > 16 || text[digits] != (i == CUDA_ALGORITHM_WORDS - 1 ? '\0' : '.'))
            return 0;
        read.word[i] = strtoull(text, NULL, 16);
        text += digits + 1;
    }
    *algorithm = read;
    return 1;
}

/* --- Cached algorithms ---------------------------------------------------------------------------------- */

static known_algorithm *find_known_algorithm(const cuda_algorithm_cache *cache, const char *text)
{
    const size_t n = strlen(cache->where);
    for (int i = 0; i < cache->n_known; i++)
        if (strcmp(cache->known[i].spec + n, text) == 0) return &cache->known[i];
    return NULL;
}

static char *join_texts(const char *first, const char *second)
{
    const size_t n = strlen(first) + strlen(second) + 1;
    char *text = malloc(n);
    if (text) (void)snprintf(text, n, "%s%s", first, second);
    return text;
}

/* Reserves room for one more element; 0 on lack of memory. */
static int reserve_one(void **array, size_t size, int n, int *room)
{
    if (n < *room) return 1;
    const int more = *room ? 2 * *room : 64;
    void *grown = realloc(*array, (size_t)more * size);
    if (!grown) return 0;
    *array = grown;
    *room = more;
    return 1;
}

/* Owns the text in either case. In place of a guess for the same work. */
static int add_known_algorithm(cuda_algorithm_cache *cache, char *spec, const cuda_algorithm *algorithm,
                               int is_guess)
{
    known_algorithm *const before = spec ? find_known_algorithm(cache, spec + strlen(cache->where)) : NULL;
    if (before) {
        free(spec);
        before->algorithm = *algorithm, before->is_guess = is_guess;
        return 1;
    }
    if (!spec ||
        !reserve_one((void **)&cache->known, sizeof *cache->known, cache->n_known, &cache->n_known_room)) {
        free(spec);
        return 0;
    }
    cache->known[cache->n_known++] = (known_algorithm){spec, *algorithm, is_guess};
    return 1;
}

tandem_status cuda_algorithm_cache_load(cuda_algorithm_cache *cache, const tandem_algorithm *choice, int n,
                                        int autotune, tandem_error *error)
{
    const size_t n_where = strlen(cache->where);
    cache->autotune = autotune;
    for (int i = 0; i < n; i++) {
        cuda_algorithm algorithm;
        if (strncmp(choice[i].spec, cache->where, n_where) != 0) continue;
        const known_algorithm *const known = find_known_algorithm(cache, choice[i].spec + n_where);
        if ((known && !known->is_guess) || !parse_algorithm(&algorithm, choice[i].choice)) continue;
        if (!add_known_algorithm(cache, join_texts(choice[i].spec, ""), &algorithm, 0))
            return tandem_no_memory(error, "for %d algorithms chosen before", n);
    }
    return TANDEM_OK;
}

const tandem_algorithm *cuda_algorithm_cache_tuned(const cuda_algorithm_cache *cache, int *n)
{
    *n = cache->n_tuned;
    return cache->tuned;
}

/* Without memory for the entry, the next opening tunes again; that is no error. */
static void add_tuned_algorithm(cuda_algorithm_cache *cache, const char *text,
                                const cuda_algorithm *algorithm)
{
    char word[CHOICE_TEXT];
    print_algorithm(word, algorithm);
    char *spec = join_texts(cache->where, text), *chosen = join_texts(word, "");
    if (spec && chosen &&
        reserve_one((void **)&cache->tuned, sizeof *cache->tuned, cache->n_tuned, &cache->n_tuned_room) &&
        add_known_algorithm(cache, join_texts(spec, ""), algorithm, 0)) {
        cache->tuned[cache->n_tuned++] = (tandem_algorithm){spec, chosen};
        return;
    }
    free(spec);
    free(chosen);
}

/* --- Memory beside the plans ---------------------------------------------------------------------------- */

/* Kept as work of its own whose algorithm is a number: so it is stored for the GPU and its libraries. */
static const char unplanned_text[] = "memory beside the plan";

uint64_t cuda_algorithm_cache_unplanned(cuda_algorithm_cache *cache, uint64_t seen)
{
    const known_algorithm *known = find_known_algorithm(cache, unplanned_text);
    const uint64_t before = known ? known->algorithm.word[0] : 0;
    if (!cache->autotune || seen <= before) return before;
    add_tuned_algorithm(cache, unplanned_text, &(cuda_algorithm){{seen}, 0});
    return seen;
}

/* --- Autotuning ----------------------------------------------------------------------------------------- */

/* Enough sets of operands that a set has left the GPU's cache before its next use. */
enum { MAX_SETS = 64, ROUNDS = 5, PATTERN = 4096, ALIGNMENT = 256 };
/* After the first round, work that has taken this long is not measured further. */
static const int64_t enough_ns = 200000000;

typedef struct algorithm_trial {
    const cuda_vendor *vendor;
    tandem_cuda_stream stream;
    const cuda_work_key *work;
    char *memory, *workspace;
    float *scale;
    uint64_t a_offset, b_offset, c_offset, set_bytes;
    int n_set, next_set;
    tandem_cuda_event start, end;
} algorithm_trial;

static uint64_t align_bytes(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void close_algorithm_trial(algorithm_trial *t)
{
    if (t->end) t->vendor->event_close(t->end);
    if (t->start) t->vendor->event_close(t->start);
    if (t->memory) t->vendor->free(t->memory, 0);
}

/* Numbers below 2 in every float type, since the top exponent bit of each byte is 0. All are finite, and
 * their bits vary as in real data: a GPU's power, and so its clock, depends on them. */
static int fill_operands(const algorithm_trial *t, uint64_t bytes)
{
    unsigned char pattern[PATTERN];
    for (uint32_t i = 0; i < PATTERN / 16; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0};
        const tandem_philox_block block = tandem_philox(counter, 1);
        memcpy(pattern + (size_t)16 * i, block.word, 16);
    }
    for (size_t i = 0; i < PATTERN; i++) pattern[i] &= 0xBF;
    uint64_t done = bytes < PATTERN ? bytes : PATTERN;
    int failed = t->vendor->copy(t->memory, pattern, done, t->stream);
    if (!failed) failed = t->vendor->stream_sync(t->stream); /* `pattern` is on this stack */
    while (!failed && done < bytes) {
        const uint64_t more = done < bytes - done ? done : bytes - done;
        failed = t->vendor->copy(t->memory + done, t->memory, more, t->stream);
        done += more;
    }
    return failed;
}

/* Sets of operands for twice cache_bytes. Returns 0 also without memory; then t->memory is NULL. */
static int open_algorithm_trial(algorithm_trial *t, uint64_t cache_bytes, const cuda_algorithm *candidate,
                                int n)
{
    const cuda_work_key *work = t->work;
    uint64_t workspace_bytes = 0;
    for (int i = 0; i < n; i++)
        if (candidate[i].workspace_bytes > workspace_bytes) workspace_bytes = candidate[i].workspace_bytes;
    t->b_offset = align_bytes(work->a_bytes);
    t->c_offset = t->b_offset + align_bytes(work->b_bytes);
    t->set_bytes = t->c_offset + align_bytes(work->c_bytes);
    const uint64_t sets = 2 * cache_bytes / t->set_bytes + 1;
    t->n_set = (int)(sets < MAX_SETS ? sets : MAX_SETS);
    const uint64_t bytes = (uint64_t)t->n_set * t->set_bytes;
    if (t->vendor->alloc((void **)&t->memory, bytes + ALIGNMENT + align_bytes(workspace_bytes), 0)) {
        t->memory = NULL;
        return 0;
    }
    t->scale = (float *)(void *)(t->memory + bytes);
    t->workspace = t->memory + bytes + ALIGNMENT;
    int failed = fill_operands(t, bytes + ALIGNMENT);
    if (!failed) failed = t->vendor->event_open(&t->start);
    if (!failed) failed = t->vendor->event_open(&t->end);
    return failed;
}

static int run_trial_once(algorithm_trial *t, const cuda_algorithm *algorithm)
{
    char *const set = t->memory + (uint64_t)(t->next_set++ % t->n_set) * t->set_bytes;
    const cuda_operands operands = {set, set + t->b_offset, set + t->c_offset, t->scale, t->scale};
    return t->vendor->work_run(t->work->work, algorithm, &operands, t->workspace, t->stream);
}

/* Two runs after a warm-up run: the host launches the second while the GPU runs the first. */
static int time_trial_once(algorithm_trial *t, int64_t *ns, int64_t *spent_ns,
                           const cuda_algorithm *algorithm)
{
    int64_t taken = 0;
    int failed = run_trial_once(t, algorithm);
    if (!failed) failed = t->vendor->event_record(t->start, t->stream);
    for (int i = 0; i < 2 && !failed; i++) failed = run_trial_once(t, algorithm);
    if (!failed) failed = t->vendor->event_record(t->end, t->stream);
    if (!failed) failed = t->vendor->stream_sync(t->stream);
    if (!failed) failed = t->vendor->elapsed_ns(&taken, t->start, t->end);
    if (!failed && taken < *ns) *ns = taken;
    *spent_ns += taken;
    return failed;
}

/* Selects the fastest by minimum time, with candidates in turn. A candidate that fails is dropped; its error
 * is cleared, because it is no fault of the GPU. So is a candidate that is a fourth slower than the best. */
static int tune_algorithms(algorithm_trial *t, int *best, const cuda_algorithm *candidate, int n)
{
    int64_t ns[CUDA_CANDIDATES], min_ns = INT64_MAX, spent_ns = 0;
    int failed = 0, n_failed = 0;
    for (int i = 0; i < n; i++) ns[i] = INT64_MAX;
    for (int round = 0; round < ROUNDS && spent_ns < enough_ns; round++)
        for (int i = 0; i < n; i++) {
            if (ns[i] < 0 || (round && ns[i] / 5 * 4 > min_ns)) continue;
            const int error = time_trial_once(t, &ns[i], &spent_ns, &candidate[i]);
            if (!error && ns[i] < min_ns) min_ns = ns[i];
            if (!error) continue;
            failed = error;
            ns[i] = -1;
            n_failed++;
        }
    if (n_failed == n) return failed;
    int fastest = -1;
    for (int i = 0; i < n; i++)
        if (ns[i] >= 0 && (fastest < 0 || ns[i] < ns[fastest] - ns[fastest] / 50)) fastest = i;
    *best = fastest;
    return 0;
}

/* The best candidate, else the first that passes the library's check and, where `t` has memory, a run: an
 * algorithm that passes may fail in its first run. The check computes the same workspace as for a cached
 * algorithm. */
static int first_that_runs(cuda_algorithm *chosen, algorithm_trial *t, const cuda_algorithm *candidate, int n,
                           int best)
{
    const cuda_vendor *vendor = t->vendor;
    int failed = 0, is_refused = 1;
    for (int i = -1; i < n && is_refused; i++) {
        *chosen = candidate[i < 0 ? best : i];
        failed = vendor->work_check(chosen, t->work->work);
        is_refused = failed && cuda_error_is_unsupported(failed);
        if (failed || !t->memory) continue;
        failed = run_trial_once(t, chosen);
        if (!failed) failed = vendor->stream_sync(t->stream);
        is_refused = failed != 0;
    }
    return failed;
}

/* Drops candidates whose workspace is too large. */
static int keep_small_candidates(cuda_algorithm *candidate, int n, const cuda_work_key *work)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (!work->has_max_workspace || candidate[i].workspace_bytes <= work->max_workspace)
            candidate[kept++] = candidate[i];
    return kept;
}

int cuda_choose_algorithm(cuda_algorithm *algorithm, cuda_algorithm_cache *cache, const cuda_vendor *vendor,
                          tandem_cuda_stream stream, const cuda_work_key *work)
{
    const known_algorithm *known = find_known_algorithm(cache, work->text);
    cuda_algorithm candidate[CUDA_CANDIDATES], chosen;
    int n = 0, best = 0, failed = 0;
    if (known && !(known->is_guess && cache->autotune)) {
        chosen = known->algorithm;
        failed = vendor->work_check(&chosen, work->work);
        if (!failed && !keep_small_candidates(&chosen, 1, work)) failed = CUBLASLT_NOT_SUPPORTED;
        if (!failed) *algorithm = chosen;
        if (!failed || !cuda_error_is_unsupported(failed)) return failed;
    }
    failed = vendor->work_candidates(candidate, &n, work->work);
    if (failed) return failed;
    n = keep_small_candidates(candidate, n, work);
    if (n == 0) return CUBLASLT_NOT_SUPPORTED;
    algorithm_trial t = {.vendor = vendor, .stream = stream, .work = work};
    const int autotune = cache->autotune && (!known || known->is_guess) && n > 1;
    if (work->c_bytes && !cache->has_no_trials)
        failed = open_algorithm_trial(&t, autotune ? cache->cache_bytes : 0, candidate, n);
    if (!failed && t.memory && autotune) failed = tune_algorithms(&t, &best, candidate, n);
    if (!failed) failed = first_that_runs(&chosen, &t, candidate, n, best);
    const int has_run = t.memory != NULL;
    close_algorithm_trial(&t);
    if (failed) return failed;
    if (has_run && autotune) add_tuned_algorithm(cache, work->text, &chosen);
    /* without memory for the entry, it runs once more when it is next asked for */
    else if (has_run && !known)
        (void)add_known_algorithm(cache, join_texts(cache->where, work->text), &chosen, 1);
    *algorithm = chosen;
    return 0;
}
