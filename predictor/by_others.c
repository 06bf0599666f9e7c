/* by_others.c: what others measured of a card (by_others.h).
 *
 * The form gives a row's time but for r = log(measured / form). Of a task it is expected to be
 *
 *   r = level + kriging of (rᵢ − levelᵢ) over the rows of its kernel nearest to it (predictor/kriging.c)
 *
 * A kernel has its class, its type and, of a convolution, its pass. *level* is the median of rows that were
 * timed alike, between events or alone; far from all rows it holds by itself. A row that was timed otherwise
 * counts as if its sizes were `manner_apart` further away.
 *
 * Events around one call add what the shortest row of their manner has over a launch; the more of a row is
 * such time, the less it counts. Lengths, noise and agreement were chosen by rows that were kept back, of
 * other tenths than the one whose errors bench/README.md has (bench/measured.sh). */
#include "predictor/by_others.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/hash.h"
#include "predictor/form.h"
#include "tandem/advanced/timings.h"

enum {
    N_SET = TANDEM_N_WORK_CLASS * TANDEM_N_COMPUTE_DTYPE * 2,
    N_MANNER = 2 * TANDEM_N_PASS,
    N_ANSWER = 1024,
    MAX_TABLES = 1 << 12
};

/* Sizes change what a convolution's library does more slowly than what a product's tiles do. */
static const tandem_kriging_rule convolution_rule = {.length = 6, .noise = 0.03, .n_trust = 4},
                                 other_rule = {.length = 3, .noise = 0.0225, .n_trust = 3};
static const double manner_apart = 1, flops_apart = 0.5;
static const float same_shape = 1e-9F, other_pass = 1e9F; /* squares of distances */

/* How far a row may be from what its neighbours say. A framework chose the convolutions between events, by
 * rule, and some far from the fastest; those of loops are the fastest of all. */
static double agreement_of(const tandem_work *work, int timed)
{
    const int is_between_events = timed & TANDEM_TIMED_BETWEEN_EVENTS;
    if (work->work_class == TANDEM_WORK_CONVOLUTION) return is_between_events ? 0.015 : 0.2;
    return is_between_events ? 1 : 0.1;
}

/* One table of a file, from its header on. */
typedef struct other_table {
    const char *text;
    size_t size;
    int set;
    int64_t n_row;
} other_table;

/* In single precision: a card has thousands, and each page of them costs a microsecond or more. */
typedef struct other_row {
    float shape[TANDEM_N_SHAPE];
    float residual, weight, agreement, ns; /* residual: still with the level */
    int manner;
} other_row;

/* Rows of one kernel, class and type. */
typedef struct other_set {
    int is_read, is_followed;
    other_row *row;
    int n, room;
    int n_of[N_MANNER];
    double level[N_MANNER], events_ns[N_MANNER], spread[N_MANNER]; /* spread: 0 = not yet asked for */
} other_set;

/* Models ask for one shape many times. */
typedef struct answer {
    int set; /* + 1; 0 = free */
    float at[TANDEM_N_SHAPE];
    double residual;
} answer;

struct tandem_by_others {
    tandem_device device;
    tandem_reached_rates rates;
    other_table *table;
    int n_table, room;
    other_set set[N_SET];
    int lacks_memory;
    answer *known; /* [N_ANSWER], by a hash of the set and shape; NULL: none yet */
};

/* --- The form ------------------------------------------------------------------------------------------- */

/* A task by the kernel that a row's timing names, without what a host's events add. */
static double expected_ns(tandem_kernel_time *time, const tandem_by_others *of, const tandem_work *work,
                          int timed)
{
    const tandem_constants *const constants = tandem_constants_fitted();
    /* rows of zeros are no faster than others where both are known (T4) */
    const int kept = timed & ~TANDEM_TIMED_OF_ZEROS;
    tandem_gpu_spec spec = of->device.gpu_spec;
    tandem_reached_rates rates = of->rates;
    if (tandem_is_other_kernel(&spec, work, timed)) tandem_take_dot_products(&spec, &rates);
    const double ns = tandem_kernel_time_of(time, constants, &spec, &rates, work);
    const double added = timed & TANDEM_TIMED_BETWEEN_EVENTS ? tandem_events_ns(constants, work) : 0;
    return ns < 0 ? ns : tandem_timed_ns(constants, work, kept, ns) - added;
}

static int set_of(const tandem_gpu_spec *spec, const tandem_work *work, int timed)
{
    const int type = work->is_product ? (int)work->type : TANDEM_F32; /* others are bytes, mostly */
    if (type >= TANDEM_N_COMPUTE_DTYPE) return -1;
    return ((int)work->work_class * TANDEM_N_COMPUTE_DTYPE + type) * 2 +
           tandem_is_other_kernel(spec, work, timed);
}

/* Gradients of products are products; those of convolutions are kernels of their own. */
static int manner_of(const tandem_work *work, int timed)
{
    const int pass = work->work_class == TANDEM_WORK_CONVOLUTION ? (int)work->pass : 0;
    return 2 * pass + (timed & TANDEM_TIMED_BETWEEN_EVENTS ? 1 : 0);
}

static void locate_work(float shape[TANDEM_N_SHAPE], const tandem_work *w, int timed)
{
    const double far = 1e6, apart = timed & TANDEM_TIMED_BETWEEN_EVENTS ? manner_apart : 0;
    const tandem_convolution *const v = &w->convolution;
    double at[TANDEM_N_SHAPE] = {apart};
    if (w->work_class == TANDEM_WORK_CONVOLUTION) {
        /* how much a size says of the algorithm */
        const double tells[] = {0.7, 1.2, 1.3, 1.2, 1.6, 1.6};
        const double sizes[] = {v->images,
                                v->channels_in,
                                sqrt(v->height * v->width),
                                v->channels_out,
                                v->kernel_h * v->kernel_w,
                                v->stride_h * v->stride_w};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            at[1 + i] = tells[i] * log(fmax(1, sizes[i]));
        at[7] = far * w->pass;
    } else if (w->is_product) {
        const double sizes[] = {w->count, w->m, w->k, w->n};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) at[1 + i] = log(fmax(1, sizes[i]));
    } else {
        at[1] = log(fmax(1, w->bytes));
        at[2] = log(fmax(1, w->columns));
        at[3] = flops_apart * log(1 + w->flops / fmax(1, w->bytes));
    }
    for (int k = 0; k < TANDEM_N_SHAPE; k++) shape[k] = (float)at[k];
}

/* --- Tables --------------------------------------------------------------------------------------------- */

static const char table_begin[] = "device=";

/* Where a line of the text begins a table; its end: there is none. */
static const char *find_table(const char *text)
{
    while (strncmp(text, table_begin, strlen(table_begin)) != 0) {
        const char *const end = strchr(text, '\n');
        if (!end) return text + strlen(text);
        text = end + 1;
    }
    return text;
}

static tandem_status read_table(const other_table *table, const char *name, tandem_timing_visitor *visit,
                                void *context, tandem_error *error)
{
    FILE *const stream = fmemopen((void *)(uintptr_t)table->text, table->size, "r");
    if (!stream) return tandem_no_memory(error, "to read measured times");
    const tandem_status status = tandem_timings_read(stream, name, 1, visit, context, error);
    (void)fclose(stream);
    return status;
}

typedef struct table_reading {
    tandem_by_others *of;
    other_table *table;
    other_set *set;
} table_reading;

/* Of a table's first row: whose kernel it is. Ends the reading. */
static tandem_status see_first_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    const table_reading *const r = context;
    tandem_work work;
    /* "a100_pcie_neusight" begins as a file of a100 does */
    if (strcmp(timing->device, r->of->device.name) != 0) return TANDEM_MISSING;
    if (tandem_timing_work(&work, timing, error) == TANDEM_OK)
        r->table->set = set_of(&r->of->device.gpu_spec, &work, tandem_timing_timed(timing));
    return TANDEM_MISSING;
}

static int64_t count_rows(const other_table *table)
{
    int64_t n = -1; /* its header */
    for (size_t i = 0; i < table->size; i++) n += table->text[i] == '\n' && table->text[i + 1] != '#';
    return n;
}

static tandem_status find_tables(tandem_by_others *of, const tandem_measured_file *file, tandem_error *error)
{
    const size_t n = strlen(of->device.name);
    if (strncmp(file->name, of->device.name, n) != 0 || file->name[n] != '_') return TANDEM_OK;
    for (const char *at = find_table(file->text), *next; *at; at = next) {
        next = find_table(at + 1);
        other_table table = {.text = at, .size = (size_t)(next - at), .set = -1};
        table_reading reading = {.of = of, .table = &table};
        if (read_table(&table, file->name, see_first_row, &reading, NULL) == TANDEM_NO_MEMORY)
            return tandem_no_memory(error, "for measured times of %s", of->device.name);
        if (table.set < 0) continue;
        table.n_row = count_rows(&table);
        other_table *const more = tandem_grow(of->table, &of->room, of->n_table, sizeof *more, MAX_TABLES);
        if (!more) return tandem_no_memory(error, "for measured times of %s", of->device.name);
        of->table = more;
        of->table[of->n_table++] = table;
    }
    return TANDEM_OK;
}

tandem_status tandem_by_others_open(tandem_by_others **out, const tandem_measured_file *files,
                                    const tandem_device *device, tandem_error *error)
{
    tandem_by_others *const of = calloc(1, sizeof *of);
    tandem_status status = TANDEM_OK;
    *out = NULL;
    if (!of) return tandem_no_memory(error, "for measured times of %s", device->name);
    of->device = *device;
    tandem_reached_rates_fitted(&of->rates, device);
    for (; files->name && status == TANDEM_OK; files++) status = find_tables(of, files, error);
    if (status == TANDEM_OK && of->n_table > 0)
        *out = of;
    else
        tandem_by_others_close(of);
    return status;
}

void tandem_by_others_close(tandem_by_others *of)
{
    if (!of) return;
    for (int s = 0; s < N_SET; s++) free(of->set[s].row);
    free(of->table);
    free(of->known);
    free(of);
}

/* --- Rows of a kernel ----------------------------------------------------------------------------------- */

static tandem_status add_other_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    const table_reading *const r = context;
    other_set *const set = r->set;
    tandem_work work;
    const int timed = tandem_timing_timed(timing);
    tandem_status status = tandem_timing_work(&work, timing, error);
    if (status != TANDEM_OK) return status;
    const double ns = expected_ns(NULL, r->of, &work, timed);
    if (!(ns > 0) || set->n == set->room) return TANDEM_OK;
    other_row *const row = &set->row[set->n++];
    *row = (other_row){.ns = (float)timing->time_ns,
                       .residual = (float)log(timing->time_ns / ns),
                       .agreement = (float)agreement_of(&work, timed),
                       .manner = manner_of(&work, timed)};
    locate_work(row->shape, &work, timed);
    return TANDEM_OK;
}

/* What events of each manner add: what its shortest row takes over a launch. */
static void find_other_events(other_set *set, double launch_ns)
{
    for (int m = 1; m < N_MANNER; m += 2) {
        double least = INFINITY;
        for (int i = 0; i < set->n; i++)
            if (set->row[i].manner == m) least = fmin(least, (double)set->row[i].ns);
        set->events_ns[m] = isfinite(least) ? fmax(0, least - launch_ns) : 0;
    }
}

static void find_other_residuals(other_set *set, double *scratch)
{
    for (int i = 0; i < set->n; i++) {
        other_row *const row = &set->row[i];
        const double share = fmax(0.02, 1 - set->events_ns[row->manner] / (double)row->ns);
        row->residual += (float)log(share);
        row->weight = (float)(share * share);
    }
    for (int m = 0; m < N_MANNER; m++) {
        size_t n = 0;
        for (int i = 0; i < set->n; i++)
            if (set->row[i].manner == m) scratch[n++] = (double)set->row[i].residual;
        set->n_of[m] = (int)n;
        set->level[m] = n > 0 ? tandem_median(scratch, n) : 0;
    }
}

static tandem_status read_tables(tandem_by_others *of, int s)
{
    other_set *const set = &of->set[s];
    int64_t n = 0;
    tandem_status status = TANDEM_OK;
    for (int t = 0; t < of->n_table; t++) n += of->table[t].set == s ? of->table[t].n_row : 0;
    if (n == 0) return TANDEM_OK;
    set->row = malloc((size_t)n * sizeof *set->row);
    if (!set->row) return TANDEM_NO_MEMORY;
    set->room = (int)n;
    for (int t = 0; t < of->n_table && status == TANDEM_OK; t++) {
        table_reading reading = {.of = of, .table = &of->table[t], .set = set};
        if (of->table[t].set == s)
            status = read_table(&of->table[t], of->device.name, add_other_row, &reading, NULL);
    }
    return status;
}

/* Without memory the kernel is left to the description, which is kept to be said. */
static other_set *read_set(tandem_by_others *of, int s)
{
    other_set *const set = &of->set[s];
    if (set->is_read) return set;
    set->is_read = 1;
    of->lacks_memory |= read_tables(of, s) != TANDEM_OK;
    double *const scratch = malloc((size_t)(set->n + 1) * sizeof *scratch);
    of->lacks_memory |= !scratch;
    if (of->lacks_memory) set->n = 0;
    find_other_events(set, of->rates.launch_ns);
    if (scratch) find_other_residuals(set, scratch);
    free(scratch);
    return set;
}

/* --- Tasks ---------------------------------------------------------------------------------------------- */

/* The manner of rows that a task follows: its own or, where no row has it, the other one. −1: none. */
static int followed_manner(const other_set *set, const tandem_work *work, int timed)
{
    const int own = manner_of(work, timed);
    return set->n_of[own] > 0 ? own : set->n_of[own ^ 1] > 0 ? own ^ 1 : -1;
}

static float square_apart(const float *a, const float *b)
{
    float square = 0;
    for (int k = 0; k < TANDEM_N_SHAPE; k++) square += (a[k] - b[k]) * (a[k] - b[k]);
    return square;
}

/* The rows nearest to a shape, from a square on; without those of other passes. Returns their number. */
static int take_nearest(tandem_kriged nearest[TANDEM_MAX_KRIGED], const other_set *set,
                        const float at[TANDEM_N_SHAPE], float least)
{
    float squares[TANDEM_MAX_KRIGED], farthest = other_pass;
    const other_row *rows[TANDEM_MAX_KRIGED];
    int n = 0;
    for (int i = 0; i < set->n; i++) {
        const float square = square_apart(set->row[i].shape, at);
        if (square < least || square >= farthest) continue;
        int k = n < TANDEM_MAX_KRIGED ? n++ : n - 1;
        for (; k > 0 && squares[k - 1] > square; k--) squares[k] = squares[k - 1], rows[k] = rows[k - 1];
        squares[k] = square, rows[k] = &set->row[i];
        if (n == TANDEM_MAX_KRIGED) farthest = squares[n - 1];
    }
    for (int k = 0; k < n; k++)
        nearest[k] = (tandem_kriged){.shape = rows[k]->shape,
                                     .residual = (double)rows[k]->residual - set->level[rows[k]->manner],
                                     .weight = (double)rows[k]->weight,
                                     .agreement = (double)rows[k]->agreement};
    return n;
}

/* About the level. */
static double residual_of_nearest(const other_set *set, tandem_work_class class,
                                  const float at[TANDEM_N_SHAPE], float least)
{
    tandem_kriged nearest[TANDEM_MAX_KRIGED];
    const int n = take_nearest(nearest, set, at, least);
    return tandem_kriging_residual(nearest, n,
                                   class == TANDEM_WORK_CONVOLUTION ? &convolution_rule : &other_rule, at);
}

static answer *find_answer(tandem_by_others *of, int s, const float at[TANDEM_N_SHAPE])
{
    uint64_t hash = tandem_hash_bytes(TANDEM_HASH_START, at, TANDEM_N_SHAPE * sizeof *at);
    if (!of->known) of->known = calloc(N_ANSWER, sizeof *of->known);
    return of->known ? &of->known[(hash + (uint64_t)s) % N_ANSWER] : NULL;
}

static int is_same_place(const float *a, const float *b)
{
    int k = 0;
    while (k < TANDEM_N_SHAPE && !(a[k] < b[k]) && !(a[k] > b[k])) k++;
    return k == TANDEM_N_SHAPE;
}

/* A shape that was asked for lately is not computed again. */
static double known_residual(tandem_by_others *of, int s, tandem_work_class class,
                             const float at[TANDEM_N_SHAPE])
{
    answer *const known = find_answer(of, s, at);
    if (known && known->set == s + 1 && is_same_place(known->at, at)) return known->residual;
    const double residual = residual_of_nearest(&of->set[s], class, at, 0);
    if (!known) return residual;
    *known = (answer){.set = s + 1, .residual = residual};
    memcpy(known->at, at, sizeof known->at);
    return residual;
}

double tandem_by_others_ns(tandem_by_others_time *out, tandem_by_others *of, const tandem_work *work,
                           int timed)
{
    float at[TANDEM_N_SHAPE];
    tandem_kernel_time time;
    const int s = set_of(&of->device.gpu_spec, work, timed);
    other_set *const set = s >= 0 ? read_set(of, s) : NULL;
    const int manner = set ? followed_manner(set, work, timed) : -1;
    if (manner < 0) return -1;
    const double form = expected_ns(&time, of, work, timed);
    if (!(form > 0)) return -1;
    locate_work(at, work, timed);
    const double factor = exp(set->level[manner] + known_residual(of, s, work->work_class, at)),
                 events = timed & TANDEM_TIMED_BETWEEN_EVENTS ? set->events_ns[manner] : 0;
    set->is_followed = 1;
    time.ns = fmax(time.least_ns, time.ns * factor);
    if (out) *out = (tandem_by_others_time){time, fmax(time.least_ns, form * factor) + events, set->n};
    return time.ns;
}

int64_t tandem_by_others_rows(tandem_by_others *of, const tandem_work *work, int timed)
{
    const int s = set_of(&of->device.gpu_spec, work, timed);
    const other_set *const set = s >= 0 ? read_set(of, s) : NULL;
    return set && followed_manner(set, work, timed) >= 0 ? set->n : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rows that are most of their time events say nothing of their kernel. */
static double spread_of_manner(const other_set *set, tandem_work_class class, int manner)
{
    enum { MOST = 24, LEAST = 8 };
    double off[MOST];
    int n = 0;
    const int step = (set->n_of[manner] + MOST - 1) / MOST;
    for (int i = 0, seen = 0; i < set->n && n < MOST; i++) {
        const other_row *const row = &set->row[i];
        if (row->manner != manner || seen++ % step != 0 || row->weight < 0.25F) continue;
        off[n++] = fabs(set->level[manner] - (double)row->residual +
                        residual_of_nearest(set, class, row->shape, same_shape));
    }
    if (n < LEAST) return NAN;
    qsort(off, (size_t)n, sizeof *off, compare_doubles);
    return off[(int)(0.8 * (n - 1) + 0.5)] / 1.2816;
}

double tandem_by_others_spread(tandem_by_others *of, const tandem_work *work, int timed)
{
    const int s = set_of(&of->device.gpu_spec, work, timed);
    other_set *const set = s >= 0 ? read_set(of, s) : NULL;
    const int manner = set ? followed_manner(set, work, timed) : -1;
    if (manner < 0) return NAN;
    if (set->spread[manner] == 0) set->spread[manner] = spread_of_manner(set, work->work_class, manner);
    return set->spread[manner];
}

int tandem_by_others_lacks_memory(const tandem_by_others *of) { return of->lacks_memory; }

int64_t tandem_by_others_used(const tandem_by_others *of)
{
    int64_t n = 0;
    for (int s = 0; s < N_SET; s++) n += of->set[s].is_followed ? of->set[s].n : 0;
    return n;
}

int64_t tandem_by_others_count(const tandem_by_others *of)
{
    int64_t n = 0;
    for (int t = 0; t < of->n_table; t++) n += of->table[t].n_row;
    return n;
}
