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
 * other tenths than the one whose errors bench/README.md has (bench/measured.sh).
 *
 * r is no further from the level than a near row's is. A task takes no less than the same one of half the
 * batch, which it contains: where r says otherwise, both take their geometric mean (isotonic regression).
 * What a user's own rows of a kernel say about all this is added (predictor/own_rows.c). */
#include "predictor/by_others.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/hash.h"
#include "predictor/form.h"
#include "predictor/own_rows.h"
#include "tandem/advanced/timings.h"

enum {
    N_SET = TANDEM_N_OTHERS_KERNEL,
    MAX_HALVES = 64, /* of sizes up to 2^53 */
    MAX_ADDED = 64,
    N_MANNER = 2 * TANDEM_N_PASS,
    N_ANSWER = 2048,
    MAX_TABLES = 1 << 12
};

/* Sizes change what a convolution's library does more slowly than what a product's tiles do. */
static const tandem_kriging_rule convolution_rule = {.length = 6, .noise = 0.03, .n_trust = 4},
                                 other_rule = {.length = 3, .noise = 0.0225, .n_trust = 3};
static const double manner_apart = 1, flops_apart = 0.5;
/* Of the spread of ratios, what all shapes are taken to have in common (bench/ratios.sh). */
static const double common_share = 0.5;
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
    uint32_t source; /* a hash of it and of its method */
} other_row;

/* How far rows are from what the others of them give: a logarithmic standard deviation, and the most that
 * near rows left unknown of one, over the variance of residuals. */
typedef struct rows_spread {
    double own, unknown;
} rows_spread;

/* How far ratios to times of another kernel are off, of equal sizes. */
typedef struct ratio_of_sets {
    int wide; /* + 1: that kernel; 0: not yet asked for */
    tandem_ratio_spread spread;
} ratio_of_sets;

/* Rows of one kernel, class and type. */
typedef struct other_set {
    int is_read;
    other_row *row;
    int n, room;
    int n_of[N_MANNER];
    double level[N_MANNER], events_ns[N_MANNER];
    rows_spread spread[N_MANNER]; /* own 0 = not yet asked for */
    ratio_of_sets ratio[N_MANNER];
    double least, most; /* of residuals about their levels; at most 0, at least 0 */
    tandem_own_rows own;
    double own_added[MAX_ADDED],
        own_events_ns; /* what own rows that are mostly events have over their work */
    int n_added;
} other_set;

/* Models ask for one shape many times. */
typedef struct answer {
    int set; /* + 1; 0 = free */
    float at[TANDEM_N_SHAPE];
    double residual, unknown;
    int n_own; /* rows that own rests on; −1: it was not asked for */
    tandem_own_answer own;
} answer;

/* What a task was said to take, in a state of its kernel: set + 1 (0 = free), timed, with_own, numbers of own
 * rows and of events that they have shown. */
enum { N_ASKING_STATE = 5 };
typedef struct expected_time {
    tandem_work work;
    int state[N_ASKING_STATE];
    tandem_by_others_time time;
} expected_time;

struct tandem_by_others {
    tandem_device device;
    tandem_reached_rates rates;
    other_table *table;
    int n_table, room;
    other_set set[N_SET];
    int lacks_memory;
    int64_t n_contradicting; /* own rows that were left out */
    expected_time *expected; /* [N_ANSWER], by a hash of the task; NULL: none yet */
    answer *known;           /* [N_ANSWER], by a hash of the set and shape; NULL: none yet */
};

/* --- The form ------------------------------------------------------------------------------------------- */

/* A task by the kernel that a row's timing names, without what a host's events add. *time: its own. */
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

int tandem_others_kernel(const tandem_gpu_spec *spec, const tandem_work *work, int timed)
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
        r->table->set = tandem_others_kernel(&r->of->device.gpu_spec, &work, tandem_timing_timed(timing));
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
    for (int s = 0; s < N_SET; s++) {
        free(of->set[s].row);
        tandem_own_rows_clear(&of->set[s].own);
    }
    free(of->table);
    free(of->known);
    free(of->expected);
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
                       .manner = manner_of(&work, timed),
                       .source = (uint32_t)tandem_hash_text(
                           tandem_hash_text(TANDEM_HASH_START, timing->source), timing->method)};
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
    for (int i = 0; i < set->n; i++) {
        const double off = (double)set->row[i].residual - set->level[set->row[i].manner];
        set->least = fmin(set->least, off), set->most = fmax(set->most, off);
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

typedef struct residual_range {
    double low, high;
} residual_range;

/* With 0, which is what far rows leave. */
static residual_range range_of_nearest(const tandem_kriged *nearest, int n)
{
    residual_range range = {0, 0};
    for (int i = 0; i < n; i++) {
        range.low = fmin(range.low, nearest[i].residual);
        range.high = fmax(range.high, nearest[i].residual);
    }
    return range;
}

/* About the level. Weights of kriging may be below 0, so that beside a trend it goes beyond all rows.
 * *unknown: the variance that near rows leave, over that of residuals. */
static double residual_of_nearest(double *unknown, const other_set *set, tandem_work_class class,
                                  const float at[TANDEM_N_SHAPE], float least)
{
    tandem_kriged nearest[TANDEM_MAX_KRIGED] = {{.residual = 0}};
    const int n = take_nearest(nearest, set, at, least);
    const residual_range range = range_of_nearest(nearest, n);
    const double residual = tandem_kriging_residual(
        unknown, nearest, n, class == TANDEM_WORK_CONVOLUTION ? &convolution_rule : &other_rule, at);
    return fmin(range.high, fmax(range.low, residual));
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rows that are most of their time events say nothing of their kernel. */
static rows_spread spread_of_manner(const other_set *set, tandem_work_class class, int manner)
{
    enum { MOST = 64, LEAST = 8 };
    double off[MOST], most_unknown = 0;
    int n = 0;
    const int step = (set->n_of[manner] + MOST - 1) / MOST;
    for (int i = 0, seen = 0; i < set->n && n < MOST; i++) {
        const other_row *const row = &set->row[i];
        double unknown;
        if (row->manner != manner || seen++ % step != 0 || row->weight < 0.25F) continue;
        off[n++] = fabs(set->level[manner] - (double)row->residual +
                        residual_of_nearest(&unknown, set, class, row->shape, same_shape));
        most_unknown = fmax(most_unknown, unknown);
    }
    if (n < LEAST) return (rows_spread){NAN, 1};
    qsort(off, (size_t)n, sizeof *off, compare_doubles);
    return (rows_spread){off[(int)(0.8 * (n - 1) + 0.5)] / 1.2816, most_unknown};
}

static rows_spread known_spread(other_set *set, tandem_work_class class, int manner)
{
    if (set->spread[manner].own == 0) set->spread[manner] = spread_of_manner(set, class, manner);
    return set->spread[manner];
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
static answer known_answer(tandem_by_others *of, int s, tandem_work_class class,
                           const float at[TANDEM_N_SHAPE])
{
    answer *const known = find_answer(of, s, at);
    if (known && known->set == s + 1 && is_same_place(known->at, at)) return *known;
    answer made = {.set = s + 1, .n_own = -1};
    made.residual = residual_of_nearest(&made.unknown, &of->set[s], class, at, 0);
    memcpy(made.at, at, sizeof made.at);
    if (known) *known = made;
    return made;
}

/* What rows leave unknown of a kernel on a card, before any own row: of a shape, and shared by all. */
static tandem_own_prior own_prior(tandem_by_others *of, other_set *set, const tandem_work *work, int manner)
{
    const double spread = known_spread(set, work->work_class, manner).own;
    const tandem_spread_group group = tandem_spread_group_of(work, &of->device.gpu_spec);
    const double fitted = tandem_spread_fitted(group)->own;
    return (tandem_own_prior){.own = spread > 0 ? spread : fitted,
                              .shared = tandem_evidence_spread_shared(
                                  (int)group + (int)TANDEM_N_SPREAD_GROUP * (int)TANDEM_EVIDENCE_OTHERS, 0)};
}

static tandem_own_answer known_own(tandem_by_others *of, int s, const tandem_work *work, int manner,
                                   const float at[TANDEM_N_SHAPE])
{
    other_set *const set = &of->set[s];
    answer *const known = find_answer(of, s, at);
    const int is_here = known && known->set == s + 1 && is_same_place(known->at, at);
    if (set->own.n == 0) return (tandem_own_answer){0, 1};
    if (is_here && known->n_own == set->own.n) return known->own;
    const tandem_own_prior prior = own_prior(of, set, work, manner);
    const tandem_own_answer own = tandem_own_rows_at(&set->own, &prior, at);
    if (is_here) known->own = own, known->n_own = set->own.n;
    return own;
}

/* A kernel of rows, and how a task of it is asked for. */
typedef struct asking {
    tandem_by_others *of;
    int set, manner, timed, with_own;
} asking;

/* What rows make of the form's time, own ones included. *unknown, may be NULL: what own ones leave. */
static double factor_of_rows(double *unknown, const asking *ask, const tandem_work *work)
{
    float at[TANDEM_N_SHAPE];
    locate_work(at, work, ask->timed);
    const answer theirs = known_answer(ask->of, ask->set, work->work_class, at);
    tandem_own_answer own = {0, 1};
    if (ask->with_own) own = known_own(ask->of, ask->set, work, ask->manner, at);
    if (unknown) *unknown = own.unknown;
    return exp(ask->of->set[ask->set].level[ask->manner] + theirs.residual + own.residual);
}

/* Logarithms of times of the same task, each of double the batch of the one before: between which they lie,
 * or both what they are. */
typedef struct batch_chain {
    double low[2 * MAX_HALVES], high[2 * MAX_HALVES];
    int n, asked; /* which of them was asked for */
} batch_chain;

static void set_member(batch_chain *chain, int k, double log_ns) { chain->low[k] = chain->high[k] = log_ns; }

/* Near rows bound a residual; finding it takes five times as long. */
static void bound_member(double *low, double *high, const asking *ask, const tandem_work *work,
                         const tandem_kernel_time *form)
{
    float at[TANDEM_N_SHAPE];
    tandem_kriged nearest[TANDEM_MAX_KRIGED] = {{.residual = 0}};
    const other_set *const set = &ask->of->set[ask->set];
    const double level = set->level[ask->manner];
    locate_work(at, work, ask->timed);
    const residual_range range = range_of_nearest(nearest, take_nearest(nearest, set, at, 0));
    const double own_least = ask->with_own ? set->own.least : 0, own_most = ask->with_own ? set->own.most : 0;
    *low = log(fmax(form->least_ns, form->ns * exp(level + range.low + own_least)));
    *high = log(fmax(form->least_ns, form->ns * exp(level + range.high + own_most)));
}

/* Those that could take as long as the asked one though they are smaller, or as short though larger: within
 * what rows move the form by at most. */
static void find_batch_chain(batch_chain *chain, const asking *ask, const tandem_work *work, double log_ns,
                             double asked_ns)
{
    const other_set *const set = &ask->of->set[ask->set];
    const double apart = exp(set->most - set->least + (ask->with_own ? set->own.most - set->own.least : 0));
    double low[MAX_HALVES], high[MAX_HALVES];
    tandem_kernel_time form;
    int n_down = 0;
    tandem_work at = *work;
    while (n_down < MAX_HALVES - 1 && tandem_work_of_batch(&at, &at, 0.5)) {
        if (!(expected_ns(&form, ask->of, &at, ask->timed) > 0) || form.ns * apart < asked_ns) break;
        bound_member(&low[n_down], &high[n_down], ask, &at, &form);
        n_down++;
    }
    for (int i = 0; i < n_down; i++)
        chain->low[i] = low[n_down - 1 - i], chain->high[i] = high[n_down - 1 - i];
    chain->asked = n_down;
    chain->n = n_down + 1;
    set_member(chain, chain->asked, log_ns);
    at = *work;
    while (chain->n < 2 * MAX_HALVES && tandem_work_of_batch(&at, &at, 2)) {
        if (!(expected_ns(&form, ask->of, &at, ask->timed) > 0) || form.ns > asked_ns * apart) break;
        bound_member(&chain->low[chain->n], &chain->high[chain->n], ask, &at, &form);
        chain->n++;
    }
}

/* Whether none before place k can be longer than one from k on: regression then treats both sides apart. */
static int is_parted_at(const batch_chain *chain, int k)
{
    double most = -INFINITY, least = INFINITY;
    for (int i = 0; i < k; i++) most = fmax(most, chain->high[i]);
    for (int i = k; i < chain->n; i++) least = fmin(least, chain->low[i]);
    return most <= least;
}

/* Finds the times of those from `begin` to `end` that were only bounded. */
static void settle_members(batch_chain *chain, const asking *ask, const tandem_work *work, int begin, int end)
{
    for (int side = 0; side < 2; side++) {
        tandem_work at = *work;
        const int step = side ? 1 : -1;
        for (int k = chain->asked + step; k >= begin && k < end; k += step) {
            tandem_kernel_time form;
            (void)tandem_work_of_batch(&at, &at, side ? 2 : 0.5);
            (void)expected_ns(&form, ask->of, &at, ask->timed);
            set_member(chain, k, log(fmax(form.least_ns, form.ns * factor_of_rows(NULL, ask, &at))));
        }
    }
}

/* Isotonic regression by pooling adjacent violators (Barlow et al., Statistical Inference under Order
 * Restrictions, 1972) of those from `begin` to `end`: the asked one's value. */
static double pooled_log_ns(const batch_chain *chain, int begin, int end)
{
    double mean[2 * MAX_HALVES] = {0};
    int first[2 * MAX_HALVES] = {0}, size[2 * MAX_HALVES] = {0}, n = 0;
    for (int i = begin; i < end; i++) {
        mean[n] = chain->low[i], first[n] = i, size[n++] = 1;
        for (; n > 1 && mean[n - 2] > mean[n - 1]; n--) {
            const int both = size[n - 2] + size[n - 1];
            mean[n - 2] += (mean[n - 1] - mean[n - 2]) * size[n - 1] / both;
            size[n - 2] = both;
        }
    }
    while (n > 1 && first[n - 1] > chain->asked) n--;
    return mean[n > 0 ? n - 1 : 0];
}

/* Where larger batches take no less; log_ns: what rows say of the asked one. */
static double log_in_order(const asking *ask, const tandem_work *work, double log_ns, double asked_ns)
{
    batch_chain chain;
    find_batch_chain(&chain, ask, work, log_ns, asked_ns);
    int begin = chain.asked, end = chain.asked + 1;
    while (begin > 0 && !is_parted_at(&chain, begin)) begin--;
    while (end < chain.n && !is_parted_at(&chain, end)) end++;
    settle_members(&chain, ask, work, begin, end);
    return pooled_log_ns(&chain, begin, end);
}

static int find_expected(tandem_by_others_time *out, const asking *ask, const tandem_work *work)
{
    const other_set *const set = &ask->of->set[ask->set];
    tandem_kernel_time time;
    const double form = expected_ns(&time, ask->of, work, ask->timed);
    if (!(form > 0)) return 0;
    double own_unknown;
    const double factor = factor_of_rows(&own_unknown, ask, work),
                 log_ns = log(fmax(time.least_ns, time.ns * factor)),
                 theirs = set->own_events_ns > 0 ? set->own_events_ns : set->events_ns[ask->manner],
                 events = ask->timed & TANDEM_TIMED_BETWEEN_EVENTS ? theirs : 0;
    const double pooled = log_in_order(ask, work, log_ns, time.ns), ns = fmax(time.least_ns, exp(pooled)),
                 timed_ns = fmax(time.least_ns, form * factor * exp(pooled - log_ns)) + events;
    tandem_kernel_time_scale(&time, ns);
    *out = (tandem_by_others_time){time, timed_ns, events, own_unknown, set->n};
    return 1;
}

/* By their bytes, of which none is padding. */
static int is_same_work(const tandem_work *one, const tandem_work *other)
{
    const void *const a = one, *const b = other;
    _Static_assert(sizeof *one ==
                       sizeof one->kind + 4 * sizeof(int) + 9 * sizeof(double) + sizeof one->convolution,
                   "a task has no padding");
    return memcmp(a, b, sizeof *one) == 0;
}

/* A task that was asked for lately is not computed again; a replay asks twice for each, and for its spread.
 * */
static double others_expect(tandem_by_others_time *out, const asking *ask, const tandem_work *work)
{
    tandem_by_others *const of = ask->of;
    const other_set *const set = &of->set[ask->set];
    const int state[N_ASKING_STATE] = {ask->set + 1, ask->timed, ask->with_own, set->own.n, set->n_added};
    if (!of->expected) of->expected = calloc(N_ANSWER, sizeof *of->expected);
    expected_time *const kept =
        of->expected ? &of->expected[tandem_hash_bytes(TANDEM_HASH_START, work, sizeof *work) % N_ANSWER]
                     : NULL;
    if (kept && memcmp(kept->state, state, sizeof state) == 0 && is_same_work(&kept->work, work)) {
        *out = kept->time;
        return out->time.ns;
    }
    if (!find_expected(out, ask, work)) return -1;
    if (kept) {
        *kept = (expected_time){.work = *work, .time = *out};
        memcpy(kept->state, state, sizeof state);
    }
    return out->time.ns;
}

/* 0: there are no rows of the task's kernel. */
static int begin_asking(asking *ask, tandem_by_others *of, const tandem_work *work, int timed)
{
    const int s = tandem_others_kernel(&of->device.gpu_spec, work, timed);
    const int manner = s >= 0 ? followed_manner(read_set(of, s), work, timed) : -1;
    *ask = (asking){of, s, manner, timed, 1};
    return manner >= 0;
}

double tandem_by_others_ns(tandem_by_others_time *out, tandem_by_others *of, const tandem_work *work,
                           int timed)
{
    asking ask;
    tandem_by_others_time unread;
    return begin_asking(&ask, of, work, timed) ? others_expect(out ? out : &unread, &ask, work) : -1;
}

int64_t tandem_by_others_rows(tandem_by_others *of, const tandem_work *work, int timed)
{
    asking ask;
    return begin_asking(&ask, of, work, timed) ? of->set[ask.set].n : 0;
}

/* --- Own rows ------------------------------------------------------------------------------------------- */

void tandem_by_others_forget_own(tandem_by_others *of)
{
    of->n_contradicting = 0;
    for (int s = 0; s < N_SET; s++) {
        tandem_own_rows_clear(&of->set[s].own);
        of->set[s].n_added = 0, of->set[s].own_events_ns = 0;
    }
    if (of->known) memset(of->known, 0, N_ANSWER * sizeof *of->known);
    if (of->expected) memset(of->expected, 0, N_ANSWER * sizeof *of->expected);
}

/* 0: there are no rows of the task's kernel. */
static int ask_theirs(tandem_by_others_time *theirs, asking *ask, tandem_by_others *of,
                      const tandem_work *work, int timed)
{
    if (!begin_asking(ask, of, work, timed)) return 0;
    ask->with_own = 0;
    return others_expect(theirs, ask, work) > 0;
}

void tandem_by_others_note_events(tandem_by_others *of, const tandem_work *work, int timed, double ns)
{
    asking ask = {.of = NULL};
    tandem_by_others_time theirs = {.n_row = 0};
    if (!(timed & TANDEM_TIMED_BETWEEN_EVENTS) || !ask_theirs(&theirs, &ask, of, work, timed)) return;
    other_set *const set = &of->set[ask.set];
    const double fitted = tandem_events_ns(tandem_constants_fitted(), work),
                 expected = set->events_ns[ask.manner] > 0 ? set->events_ns[ask.manner] : fitted,
                 work_ns = theirs.timed_ns - theirs.events_ns, added = ns - work_ns;
    /* chosen by what is expected: a slow row is not one of a slow host */
    if (work_ns > expected || !(added > 0) || added > 10 * expected || set->n_added == MAX_ADDED) return;
    double sorted[MAX_ADDED];
    set->own_added[set->n_added++] = added;
    memcpy(sorted, set->own_added, sizeof sorted);
    set->own_events_ns = tandem_median(sorted, (size_t)set->n_added);
}

tandem_status tandem_by_others_add_own(tandem_by_others *of, const tandem_work *work, int timed, double ns,
                                       tandem_error *error)
{
    const double contradicts = log(3);
    asking ask = {.of = NULL};
    tandem_by_others_time theirs = {.n_row = 0};
    if (!ask_theirs(&theirs, &ask, of, work, timed)) return TANDEM_OK;
    const double residual = log(ns / theirs.timed_ns), share = fmax(0.02, 1 - theirs.events_ns / ns);
    if (!(fabs(residual) <= contradicts)) {
        of->n_contradicting++;
        return TANDEM_OK;
    }
    tandem_own_row row = {.residual = residual, .weight = share * share};
    locate_work(row.shape, work, timed);
    return tandem_own_rows_add(&of->set[ask.set].own, &row, error);
}

int64_t tandem_by_others_contradicting(const tandem_by_others *of) { return of->n_contradicting; }

int64_t tandem_by_others_own(tandem_by_others *of, const tandem_work *work, int timed)
{
    asking ask;
    return begin_asking(&ask, of, work, timed) ? of->set[ask.set].own.n : 0;
}

/* --- Spread --------------------------------------------------------------------------------------------- */

/* How much wider than among rows a spread is at a task: 1 where rows are near. */
static double growth_at(const asking *ask, const tandem_work *work)
{
    const double most = known_spread(&ask->of->set[ask->set], work->work_class, ask->manner).unknown;
    float at[TANDEM_N_SHAPE];
    locate_work(at, work, ask->timed);
    return sqrt(fmax(1, known_answer(ask->of, ask->set, work->work_class, at).unknown / fmax(0.01, most)));
}

double tandem_by_others_spread(tandem_by_others *of, const tandem_work *work, int timed)
{
    asking ask;
    if (!begin_asking(&ask, of, work, timed)) return NAN;
    return known_spread(&of->set[ask.set], work->work_class, ask.manner).own * growth_at(&ask, work);
}

/* --- Ratios --------------------------------------------------------------------------------------------- */

/* Of rows of the same source and shape, timed alike, from `begin` on: their mean residual. NaN: none, or one
 * that is mostly a host's events. */
static double mean_residual_like(const other_set *set, int begin, const other_row *like)
{
    double sum = 0;
    int n = 0;
    for (int i = begin; i < set->n; i++) {
        const other_row *const row = &set->row[i];
        if (row->source != like->source || square_apart(row->shape, like->shape) >= same_shape) continue;
        if (row->weight < 0.25F) return NAN;
        sum += (double)row->residual;
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

/* What rows of other shapes say of a shape, less what its own say. */
static double off_at(const other_set *set, tandem_work_class class, int manner, const float *shape,
                     double measured)
{
    return set->level[manner] + residual_of_nearest(NULL, set, class, shape, same_shape) - measured;
}

/* Places of the first row at each shape that a source timed in both kernels. */
static int list_pairs(int *place, const other_set *narrow, const other_set *wide, int manner)
{
    int n = 0;
    for (int i = 0; i < narrow->n; i++) {
        const other_row *const row = &narrow->row[i];
        int is_first = row->manner == manner;
        for (int k = 0; k < n && is_first; k++)
            is_first = square_apart(narrow->row[place[k]].shape, row->shape) >= same_shape;
        if (is_first && !isnan(mean_residual_like(narrow, i, row)) &&
            !isnan(mean_residual_like(wide, 0, row)))
            place[n++] = i;
    }
    return n;
}

/* Of up to MOST pairs, evenly spaced. */
static tandem_ratio_spread spread_of_pairs(const other_set *narrow, const other_set *wide, const int *place,
                                           int n_pair, tandem_work_class class, int manner)
{
    enum { MOST = 128, LEAST = 8 };
    double off[MOST];
    int n = 0;
    const int step = (n_pair + MOST - 1) / MOST;
    if (n_pair < LEAST) return (tandem_ratio_spread){NAN, NAN, n_pair};
    for (int k = 0; k < n_pair; k += step) {
        const other_row *const row = &narrow->row[place[k]];
        const double a = mean_residual_like(narrow, place[k], row), b = mean_residual_like(wide, 0, row);
        off[n++] =
            fabs(off_at(narrow, class, manner, row->shape, a) - off_at(wide, class, manner, row->shape, b));
    }
    qsort(off, (size_t)n, sizeof *off, compare_doubles);
    /* of n exchangeable ones, the next lies below the k-th with probability k / (n + 1) */
    const int k = (int)ceil(0.8 * (n + 1));
    const double all = off[k - 1] / 1.2816;
    return (tandem_ratio_spread){common_share * all, all * sqrt(1 - common_share * common_share), n_pair};
}

static tandem_ratio_spread ratio_spread_of_sets(const other_set *narrow, const other_set *wide,
                                                tandem_work_class class, int manner)
{
    tandem_ratio_spread spread = {NAN, NAN, 0};
    int *const place = malloc((size_t)narrow->n * sizeof *place);
    if (!place) return spread;
    const int n = list_pairs(place, narrow, wide, manner);
    spread = spread_of_pairs(narrow, wide, place, n, class, manner);
    free(place);
    return spread;
}

tandem_ratio_spread tandem_by_others_ratio_spread(tandem_by_others *of, const tandem_work *narrow,
                                                  const tandem_work *wide, int timed)
{
    asking a, b;
    const tandem_ratio_spread none = {NAN, NAN, 0};
    if (!begin_asking(&a, of, narrow, timed) || !begin_asking(&b, of, wide, timed) || a.manner != b.manner)
        return none;
    ratio_of_sets *const known = &of->set[a.set].ratio[a.manner];
    if (known->wide != b.set + 1)
        *known = (ratio_of_sets){
            b.set + 1, ratio_spread_of_sets(&of->set[a.set], &of->set[b.set], narrow->work_class, a.manner)};
    const double growth = fmax(growth_at(&a, narrow), growth_at(&b, wide));
    return (tandem_ratio_spread){growth * known->spread.shared, growth * known->spread.own,
                                 known->spread.n_shape};
}

int tandem_by_others_lacks_memory(const tandem_by_others *of) { return of->lacks_memory; }

int64_t tandem_by_others_kernel_rows(const tandem_by_others *of, int kernel)
{
    return kernel >= 0 && kernel < N_SET ? of->set[kernel].n : 0;
}

int64_t tandem_by_others_count(const tandem_by_others *of)
{
    int64_t n = 0;
    for (int t = 0; t < of->n_table; t++) n += of->table[t].n_row;
    return n;
}
