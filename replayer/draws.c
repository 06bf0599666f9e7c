/* draws.c: steps whose tasks take times that are drawn, rank by rank, from what was measured.
 *
 * Times start from a recorded step: what a task took in it, beside whoever was busy, is its mean; so is what
 * an all-reduce took. A task's time is lognormal with that mean and with the measured ratio of the 90th to
 * the 10th percentile:
 *     time = mean · exp(σz − σ²/2),  z normal,  σ = ln(p90/p10) / (2 · 1.2816)
 * independent of all others. Steps follow each other as in the recurrence (recurrence.c), with every rank in
 * place of every class: what a rank has left of one step it does in the next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "replayer/stages.h"

enum { WARM_UP = 4, A_BLOCK = 4 /* numbers */ };

typedef struct drawing {
    tandem_replayer *replayer;
    int n_rank, n_bucket;
    uint64_t seed;
    double *sigma[TANDEM_MAX_CLASS]; /* [n_place] */
    double *sum_ns;                  /* [n_rank × 2·n_bucket] the list's time to the end of each stretch */
    double *rest_ns;                 /* [n_rank] left of the former step */
    double *wire_ns;                 /* [n_bucket] */
    /* [n_bucket] first when the last rank has handed a bucket over, then when it is through */
    double *end_ns;
    int64_t *step_ns; /* [n_draw] */
} drawing;

/* --- Spreads -------------------------------------------------------------------------------------------- */

/* −1 where the time was not measured. */
static double measured_sigma(const tandem_replay_member *member, int t)
{
    const int company = member->company[member->n_pace - 1];
    const size_t form = (size_t)t * TANDEM_MAX_VARIANT + (size_t)member->step->task[t].variant;
    return member->costs.origin[form][company] == TANDEM_ORIGIN_MEASURED
               ? (double)member->costs.sigma[form][company]
               : -1;
}

/* Tasks that were not measured vary as `given`, or as the others do on average. Adds up what the result says.
 * */
static void find_sigmas(double *sigma, const tandem_replay_member *member, double given, double sum[3])
{
    double measured_ns = 0, weighed = 0;
    for (int i = 0; i < member->n_place; i++) {
        const double ns = tandem_recorded_ns(member, i);
        sigma[i] = measured_sigma(member, member->task[i]);
        if (sigma[i] < 0) continue;
        measured_ns += ns;
        weighed += ns * sigma[i];
    }
    const double usual = measured_ns > 0 ? weighed / measured_ns : 0,
                 other = given >= 0 ? sqrt(log1p(given * given)) : usual;
    for (int i = 0; i < member->n_place; i++) {
        const double ns = tandem_recorded_ns(member, i);
        if (sigma[i] < 0) sigma[i] = other;
        sum[0] += ns;
        sum[2] += ns * sigma[i];
    }
    sum[1] += measured_ns;
}

/* --- A rank --------------------------------------------------------------------------------------------- */

/* Four normal numbers by Box and Muller's transform (Ann. Math. Statist. 29, 1958). */
static void draw_normal(double z[A_BLOCK], uint32_t block, uint32_t step, uint32_t rank, uint64_t seed)
{
    const uint32_t counter[4] = {block, step, rank, TANDEM_DRAW_TIME};
    const tandem_philox_block drawn = tandem_philox(counter, seed);
    for (int k = 0; k < A_BLOCK; k += 2) {
        const double u = ((double)drawn.word[k] + 0.5) * 0x1p-32, turn = (double)drawn.word[k + 1] * 0x1p-32;
        const double length = sqrt(-2 * log(u)), angle = 2 * M_PI * turn;
        z[k] = length * cos(angle);
        z[k + 1] = length * sin(angle);
    }
}

static void draw_rank(drawing *d, int c, int rank, uint32_t step)
{
    const tandem_replay_member *member = &d->replayer->member[c];
    const int n_stretch = 2 * d->n_bucket;
    double z[A_BLOCK] = {0}, *sum_ns = d->sum_ns + (size_t)rank * (size_t)n_stretch, passed_ns = 0;
    int stretch = 0;
    for (int i = 0; i < member->n_place; i++) {
        const double sigma = d->sigma[c][i];
        if (i % A_BLOCK == 0) draw_normal(z, (uint32_t)(i / A_BLOCK), step, (uint32_t)rank, d->seed);
        for (const int own = tandem_recorded_stretch(member, i); stretch < own; stretch++)
            sum_ns[stretch] = passed_ns;
        passed_ns +=
            tandem_recorded_ns(member, i) * (sigma > 0 ? exp(sigma * z[i % A_BLOCK] - sigma * sigma / 2) : 1);
    }
    for (; stretch < n_stretch; stretch++) sum_ns[stretch] = passed_ns;
}

/* --- A step of all ranks -------------------------------------------------------------------------------- */

static double run_step(drawing *d, uint32_t step)
{
    const int n = d->n_bucket;
    for (int b = 0; b < n; b++) d->end_ns[b] = 0;
    for (int c = 0, rank = 0; c < d->replayer->n_class; c++)
        for (int k = 0; k < d->replayer->cluster.member[c].n_rank; k++, rank++) {
            draw_rank(d, c, rank, step);
            const double *hand_ns = d->sum_ns + (size_t)rank * 2 * (size_t)n;
            for (int b = 0; b < n; b++) {
                const double handed = d->rest_ns[rank] + hand_ns[b];
                d->end_ns[b] = handed > d->end_ns[b] ? handed : d->end_ns[b];
            }
        }
    for (int b = 0; b < n; b++) {
        if (b > 0 && d->end_ns[b - 1] > d->end_ns[b]) d->end_ns[b] = d->end_ns[b - 1];
        d->end_ns[b] += d->wire_ns[b];
    }
    const double step_ns = d->end_ns[n - 1];
    for (int rank = 0; rank < d->n_rank; rank++) {
        const double *wait_ns = d->sum_ns + ((size_t)rank * 2 + 1) * (size_t)n;
        double late = d->rest_ns[rank];
        for (int b = 0; b < n; b++)
            late = d->end_ns[b] - wait_ns[b] > late ? d->end_ns[b] - wait_ns[b] : late;
        d->rest_ns[rank] = late + wait_ns[n - 1] - step_ns;
    }
    return step_ns;
}

/* --- All of them ---------------------------------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int allocate(drawing *d, int n_draw)
{
    const size_t n_bucket = (size_t)d->n_bucket, n_rank = (size_t)d->n_rank;
    int whole = 1;
    for (int c = 0; c < d->replayer->n_class; c++) {
        d->sigma[c] = malloc((size_t)d->replayer->member[c].n_place * sizeof **d->sigma);
        whole = whole && d->sigma[c];
    }
    d->sum_ns = calloc(n_rank * 2 * n_bucket, sizeof *d->sum_ns);
    d->rest_ns = calloc(n_rank, sizeof *d->rest_ns);
    d->wire_ns = malloc(n_bucket * sizeof *d->wire_ns);
    d->end_ns = malloc(n_bucket * sizeof *d->end_ns);
    d->step_ns = malloc((size_t)n_draw * sizeof *d->step_ns);
    return whole && d->sum_ns && d->rest_ns && d->wire_ns && d->end_ns && d->step_ns;
}

static void release(drawing *d)
{
    free(d->step_ns);
    free(d->end_ns);
    free(d->wire_ns);
    free(d->rest_ns);
    free(d->sum_ns);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) free(d->sigma[c]);
}

/* As the recorded step was. */
static void begin(drawing *d, double spread, tandem_noise *result)
{
    const tandem_replayer *replayer = d->replayer;
    double sum[3] = {0};
    for (int b = 0; b < d->n_bucket; b++)
        d->wire_ns[b] = replayer->wire_end_ns[b] - replayer->wire_start_ns[b];
    for (int c = 0, rank = 0; c < replayer->n_class; c++) {
        find_sigmas(d->sigma[c], &replayer->member[c], spread, sum);
        for (int k = 0; k < replayer->cluster.member[c].n_rank; k++)
            d->rest_ns[rank++] = tandem_recorded_rest_ns(&replayer->member[c]);
    }
    result->measured = sum[1] / sum[0];
    result->sigma = sum[2] / sum[0];
}

static void summarise(tandem_noise *result, int64_t *step_ns, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)step_ns[k];
    qsort(step_ns, (size_t)n, sizeof *step_ns, compare_ns);
    result->n_draw = n;
    result->mean_ns = tandem_whole_ns(sum / n);
    result->p50_ns = step_ns[(n - 1) / 2];
    result->p95_ns = step_ns[((int64_t)n * 95 + 99) / 100 - 1];
    result->least_ns = step_ns[0];
    result->most_ns = step_ns[n - 1];
}

tandem_status tandem_replayer_draw(tandem_noise *noise, tandem_replayer *replayer,
                                   const tandem_noise_options *options, tandem_error *error)
{
    drawing d = {.replayer = replayer,
                 .n_rank = tandem_cluster_n_rank(&replayer->cluster),
                 .n_bucket = replayer->n_bucket,
                 .seed = options->seed};
    tandem_replay plain;
    tandem_noise result = {.n_rank = d.n_rank};
    if (options->n_draw < 1 || options->n_draw > TANDEM_MOST_DRAWS || d.n_rank > TANDEM_MOST_DRAWN_RANKS)
        return tandem_error_set(error, TANDEM_USAGE,
                                "1 to %d steps of at most %d ranks are drawn, got %d of "
                                "%d",
                                TANDEM_MOST_DRAWS, TANDEM_MOST_DRAWN_RANKS, options->n_draw, d.n_rank);
    tandem_status status = tandem_replayer_run(replayer, &plain, TANDEM_REPLAY_EVENTS, error);
    if (status != TANDEM_OK) return status;
    if (!allocate(&d, options->n_draw)) {
        status = tandem_error_set(error, TANDEM_NO_MEMORY, "no memory for %d steps of %d ranks",
                                  options->n_draw, d.n_rank);
        goto out;
    }
    begin(&d, options->spread, &result);
    for (int k = -WARM_UP; k < options->n_draw; k++) {
        const double step_ns = run_step(&d, (uint32_t)(k + WARM_UP));
        if (k >= 0) d.step_ns[k] = tandem_rounded_ns(step_ns);
    }
    summarise(&result, d.step_ns, options->n_draw);
    *noise = result;
out:
    release(&d);
    return status;
}
