/* monte_carlo.c: simulates many steps in which every rank draws the time of every task at random.
 *
 * A recorded step gives the mean time of each task, contention included, and the time of each all-reduce. The
 * time of a task is lognormal with that mean and with the measured ratio of its 90th to its 10th percentile:
 *     time = mean · exp(σz − σ²/2),  z normal,  σ = ln(p90/p10) / (2 · 1.2816)
 * Draws are independent. A time by the form (predictor.h) is off by an unknown error: each step
 * draws it again from its 80 % interval, for all ranks of a device at once. What a device's tasks share is
 * one draw, what is a task's own another:
 *     factor = exp(s·z − s²/2) · exp(o·z' − o²/2)
 * Steps follow each other as in recurrence.c, with a rank in place of each class: the
 * backlog of a rank runs in its next step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "base/philox.h"
#include "replayer/internal.h"

enum { N_WARM_UP = 4, NORMALS_PER_BLOCK = 4 };

typedef struct monte_carlo {
    tandem_arena arena;
    tandem_replayer *replayer;
    int n_rank, n_bucket;
    uint64_t seed;
    double *sigma[TANDEM_MAX_CLASS]; /* [list_length] */
    /* [list_length] of times by the form: standard deviations, and what this step draws from them */
    double *shared[TANDEM_MAX_CLASS], *own[TANDEM_MAX_CLASS], *factor[TANDEM_MAX_CLASS];
    int has_form[TANDEM_MAX_CLASS]; /* some of its times are by the form */
    double *sum_ns;                 /* [n_rank × 2·n_bucket] list time at the end of each interval */
    double *backlog_ns;             /* [n_rank] from the previous step */
    double *allreduce_ns;           /* [n_bucket] */
    /* [n_bucket] first when the last rank has made the bucket ready, then when it is through */
    double *end_ns;
    int64_t *step_ns; /* [n_simulation] */
} monte_carlo;

/* --- Spreads -------------------------------------------------------------------------------------------- */

/* −1 where the time was not measured. */
static double measured_sigma(const tandem_sim_class *class, int t)
{
    const int contention = class->contention[class->n_rate - 1];
    const size_t slot = tandem_cost_slot(&class->costs, t, class->step->task[t].variant);
    return class->costs.origin[slot][contention] == TANDEM_ORIGIN_MEASURED
               ? (double)class->costs.sigma[slot][contention]
               : -1;
}

/* Tasks that were not measured have the standard deviation `given` or, below 0, the mean of the others. Adds
 * to `sum` all time, the measured time, and time × sigma. */
static void find_task_sigmas(double *sigma, const tandem_sim_class *class, double given, double sum[3])
{
    double measured_ns = 0, sigma_ns = 0;
    for (int i = 0; i < class->list_length; i++) {
        const double ns = tandem_recorded_task_ns(class, i);
        sigma[i] = measured_sigma(class, class->task[i]);
        if (sigma[i] < 0) continue;
        measured_ns += ns;
        sigma_ns += ns * sigma[i];
    }
    const double measured_mean = measured_ns > 0 ? sigma_ns / measured_ns : 0,
                 default_sigma = given >= 0 ? sqrt(log1p(given * given)) : measured_mean;
    for (int i = 0; i < class->list_length; i++) {
        const double ns = tandem_recorded_task_ns(class, i);
        if (sigma[i] < 0) sigma[i] = default_sigma;
        sum[0] += ns;
        sum[2] += ns * sigma[i];
    }
    sum[1] += measured_ns;
}

/* --- A rank --------------------------------------------------------------------------------------------- */

/* Four normal numbers by Box and Muller's transform (Ann. Math. Statist. 29, 1958). */
static void draw_normal(double z[NORMALS_PER_BLOCK], uint32_t block, uint32_t step, uint32_t rank,
                        uint64_t seed)
{
    const uint32_t counter[4] = {block, step, rank, TANDEM_RNG_TIME};
    const tandem_philox_block drawn = tandem_philox(counter, seed);
    for (int k = 0; k < NORMALS_PER_BLOCK; k += 2) {
        const double u = ((double)drawn.word[k] + 0.5) * 0x1p-32, turn = (double)drawn.word[k + 1] * 0x1p-32;
        const double length = sqrt(-2 * log(u)), angle = 2 * M_PI * turn;
        z[k] = length * cos(angle);
        z[k + 1] = length * sin(angle);
    }
}

/* Ranks below all others, whose numbers are for a device. */
enum { DEVICE_RANK = INT32_MAX, SHARED_BLOCK = INT32_MAX };

/* The first class on the same device. */
static int first_class_on_device(const tandem_replayer *replayer, int c)
{
    int first = 0;
    while (strcmp(replayer->cluster.classes[first].device.name, replayer->cluster.classes[c].device.name) !=
           0)
        first++;
    return first;
}

/* 0 where the form does not give the time. */
static void find_form_errors(monte_carlo *d, int c, double *interval_ns)
{
    const tandem_sim_class *class = &d->replayer->classes[c];
    const int contention = class->contention[class->n_rate - 1];
    for (int i = 0; i < class->list_length; i++) {
        const int t = class->task[i];
        const size_t slot = tandem_cost_slot(&class->costs, t, class->step->task[t].variant);
        d->shared[c][i] = d->own[c][i] = 0;
        d->factor[c][i] = 1;
        if (class->costs.origin[slot][contention] != TANDEM_ORIGIN_PREDICTED) continue;
        const int group = class->costs.form_group[slot][contention];
        if (group < 0) continue;
        d->shared[c][i] = tandem_evidence_spread_shared(group, class->costs.n_fitted[contention] > 0);
        d->own[c][i] = tandem_spread_fitted((tandem_spread_group)(group % TANDEM_N_SPREAD_GROUP))->own;
        *interval_ns += tandem_recorded_task_ns(class, i);
        d->has_form[c] = 1;
    }
}

static void draw_form_errors(monte_carlo *d, uint32_t step)
{
    for (int c = 0; c < d->replayer->n_class; c++) {
        if (!d->has_form[c]) continue;
        const uint32_t rank = (uint32_t)DEVICE_RANK - (uint32_t)first_class_on_device(d->replayer, c);
        double device[NORMALS_PER_BLOCK], z[NORMALS_PER_BLOCK] = {0};
        draw_normal(device, SHARED_BLOCK, step, rank, d->seed);
        for (int i = 0; i < d->replayer->classes[c].list_length; i++) {
            const double shared = d->shared[c][i], own = d->own[c][i];
            if (i % NORMALS_PER_BLOCK == 0)
                draw_normal(z, (uint32_t)(i / NORMALS_PER_BLOCK), step, rank, d->seed);
            if (shared > 0 || own > 0)
                d->factor[c][i] = exp(shared * device[0] - shared * shared / 2 +
                                      own * z[i % NORMALS_PER_BLOCK] - own * own / 2);
        }
    }
}

static void draw_rank_times(monte_carlo *d, int c, int rank, uint32_t step)
{
    const tandem_sim_class *class = &d->replayer->classes[c];
    const int n_interval = 2 * d->n_bucket;
    double z[NORMALS_PER_BLOCK] = {0}, *sum_ns = d->sum_ns + (size_t)rank * (size_t)n_interval,
           elapsed_ns = 0;
    int interval = 0;
    for (int i = 0; i < class->list_length; i++) {
        const double sigma = d->sigma[c][i];
        if (i % NORMALS_PER_BLOCK == 0)
            draw_normal(z, (uint32_t)(i / NORMALS_PER_BLOCK), step, (uint32_t)rank, d->seed);
        for (const int own = tandem_recorded_interval(class, i); interval < own; interval++)
            sum_ns[interval] = elapsed_ns;
        elapsed_ns += tandem_recorded_task_ns(class, i) * d->factor[c][i] *
                      (sigma > 0 ? exp(sigma * z[i % NORMALS_PER_BLOCK] - sigma * sigma / 2) : 1);
    }
    for (; interval < n_interval; interval++) sum_ns[interval] = elapsed_ns;
}

/* --- A step of all ranks -------------------------------------------------------------------------------- */

static double run_random_step(monte_carlo *d, uint32_t step)
{
    const int n = d->n_bucket;
    for (int b = 0; b < n; b++) d->end_ns[b] = 0;
    draw_form_errors(d, step);
    for (int c = 0, rank = 0; c < d->replayer->n_class; c++)
        for (int k = 0; k < d->replayer->cluster.classes[c].n_rank; k++, rank++) {
            draw_rank_times(d, c, rank, step);
            const double *ready_ns = d->sum_ns + (size_t)rank * 2 * (size_t)n;
            for (int b = 0; b < n; b++) {
                const double ready = d->backlog_ns[rank] + ready_ns[b];
                d->end_ns[b] = ready > d->end_ns[b] ? ready : d->end_ns[b];
            }
        }
    for (int b = 0; b < n; b++) {
        if (b > 0 && d->end_ns[b - 1] > d->end_ns[b]) d->end_ns[b] = d->end_ns[b - 1];
        d->end_ns[b] += d->allreduce_ns[b];
    }
    const double step_ns = d->end_ns[n - 1];
    for (int rank = 0; rank < d->n_rank; rank++) {
        const double *wait_ns = d->sum_ns + ((size_t)rank * 2 + 1) * (size_t)n;
        double end = d->backlog_ns[rank];
        for (int b = 0; b < n; b++) end = d->end_ns[b] - wait_ns[b] > end ? d->end_ns[b] - wait_ns[b] : end;
        d->backlog_ns[rank] = end + wait_ns[n - 1] - step_ns;
    }
    return step_ns;
}

/* --- All steps ------------------------------------------------------------------------------------------ */

static int allocate_monte_carlo(monte_carlo *d, int n_simulation)
{
    const size_t n_bucket = (size_t)d->n_bucket, n_rank = (size_t)d->n_rank;
    for (int c = 0; c < d->replayer->n_class; c++) {
        const size_t length = (size_t)d->replayer->classes[c].list_length;
        if (!(d->sigma[c] = tandem_arena_array(&d->arena, length, sizeof **d->sigma)) ||
            !(d->shared[c] = tandem_arena_array(&d->arena, length, sizeof **d->shared)) ||
            !(d->own[c] = tandem_arena_array(&d->arena, length, sizeof **d->own)) ||
            !(d->factor[c] = tandem_arena_array(&d->arena, length, sizeof **d->factor)))
            return 0;
    }
    return (d->sum_ns = tandem_arena_array(&d->arena, n_rank * 2 * n_bucket, sizeof *d->sum_ns)) &&
           (d->backlog_ns = tandem_arena_array(&d->arena, n_rank, sizeof *d->backlog_ns)) &&
           (d->allreduce_ns = tandem_arena_array(&d->arena, n_bucket, sizeof *d->allreduce_ns)) &&
           (d->end_ns = tandem_arena_array(&d->arena, n_bucket, sizeof *d->end_ns)) &&
           (d->step_ns = tandem_arena_array(&d->arena, (size_t)n_simulation, sizeof *d->step_ns));
}

/* Takes means from the recorded step. */
static void begin_monte_carlo(monte_carlo *d, double spread, tandem_monte_carlo *result)
{
    const tandem_replayer *replayer = d->replayer;
    double sum[3] = {0}, interval_ns = 0;
    for (int b = 0; b < d->n_bucket; b++)
        d->allreduce_ns[b] = replayer->allreduce_end_ns[b] - replayer->allreduce_start_ns[b];
    for (int c = 0, rank = 0; c < replayer->n_class; c++) {
        find_task_sigmas(d->sigma[c], &replayer->classes[c], spread, sum);
        find_form_errors(d, c, &interval_ns);
        for (int k = 0; k < replayer->cluster.classes[c].n_rank; k++)
            d->backlog_ns[rank++] = tandem_recorded_backlog_ns(&replayer->classes[c]);
    }
    result->measured_share = sum[1] / sum[0];
    result->sigma = sum[2] / sum[0];
    result->interval_share = interval_ns / sum[0];
}

static void summarise_steps(tandem_monte_carlo *result, int64_t *step_ns, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)step_ns[k];
    tandem_sort_int64(step_ns, (size_t)n);
    result->n_simulation = n;
    result->mean_ns = tandem_round_ns(sum / n);
    result->p50_ns = step_ns[(n - 1) / 2];
    result->p95_ns = step_ns[((int64_t)n * 95 + 99) / 100 - 1];
    result->min_ns = step_ns[0];
    result->max_ns = step_ns[n - 1];
}

tandem_status tandem_replayer_monte_carlo(tandem_monte_carlo *out, tandem_replayer *given,
                                          const tandem_monte_carlo_options *options, tandem_error *error)
{
    tandem_replayer *const replayer = tandem_replayer_program(given);
    monte_carlo d = {.replayer = replayer,
                     .n_rank = tandem_cluster_n_rank(&replayer->cluster),
                     .n_bucket = replayer->n_bucket,
                     .seed = options->seed};
    tandem_replay plain;
    tandem_monte_carlo result = {.n_rank = d.n_rank};
    if (options->n_simulation < 1 || options->n_simulation > TANDEM_MAX_SIMULATIONS ||
        d.n_rank > TANDEM_MAX_SIMULATED_RANKS)
        return tandem_error_set(error, TANDEM_USAGE,
                                "cannot simulate %d steps of %d ranks; allowed are 1 to %d steps of at most "
                                "%d ranks",
                                options->n_simulation, d.n_rank, TANDEM_MAX_SIMULATIONS,
                                TANDEM_MAX_SIMULATED_RANKS);
    tandem_status status = tandem_replayer_run(replayer, &plain, TANDEM_REPLAY_EVENTS, error);
    if (status == TANDEM_OK && !allocate_monte_carlo(&d, options->n_simulation))
        status = tandem_no_memory(error, "for %d steps of %d ranks", options->n_simulation, d.n_rank);
    if (status == TANDEM_OK) {
        begin_monte_carlo(&d, options->spread, &result);
        for (int k = -N_WARM_UP; k < options->n_simulation; k++) {
            const double step_ns = run_random_step(&d, (uint32_t)(k + N_WARM_UP));
            if (k >= 0) d.step_ns[k] = tandem_round_noisy_ns(step_ns);
        }
        summarise_steps(&result, d.step_ns, options->n_simulation);
        *out = result;
    }
    tandem_arena_free(&d.arena);
    return status;
}
