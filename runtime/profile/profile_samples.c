/* profile_samples.c: summarises the repetitions of a cost key: which count, at which speed, how surely. */
#include "runtime/profile/profile_samples.h"

#include <math.h>
#include <stdlib.h>

#include "base/sort.h"

enum { DISTURBED_SHARE = 100, MIN_UNDISTURBED = 3, FIRST_SAMPLES = 32 };

void key_samples_free(key_samples *key)
{
    free(key->sample);
    *key = (key_samples){.n = 0};
}

static tandem_status no_samples_memory(tandem_error *error)
{
    return tandem_no_memory(error, "for the repetitions of the profile");
}

tandem_status key_samples_add(key_samples *key, int64_t ns, int64_t delay_ns,
                              const tandem_speed_sample *speed, int round, tandem_error *error)
{
    if (key->n == key->capacity) {
        const int64_t capacity = key->capacity ? 2 * key->capacity : FIRST_SAMPLES;
        task_sample *const grown = realloc(key->sample, (size_t)capacity * sizeof *grown);
        if (!grown) return no_samples_memory(error);
        key->sample = grown;
        key->capacity = capacity;
    }
    const int64_t own_ns = delay_ns > 0 ? ns - delay_ns : ns;
    key->sample[key->n++] =
        (task_sample){.ns = own_ns > 0 ? own_ns : 0,
                      .speed_sample = *speed,
                      .round = round,
                      .is_disturbed = ns < 0 || (delay_ns > 0 && delay_ns > ns / DISTURBED_SHARE)};
    return TANDEM_OK;
}

/* The times that count, those of one round or of all (−1); at least room for one. */
static int64_t collect_times(int64_t *ns, const key_samples *key, int round, int with_disturbed,
                             const tandem_speed_sample *steady, double memory_share)
{
    int64_t n = 0;
    for (int64_t i = 0; i < key->n; i++) {
        const task_sample *s = &key->sample[i];
        if ((s->is_disturbed && !with_disturbed) || (round >= 0 && s->round != round)) continue;
        ns[n++] =
            llround((double)s->ns / tandem_speed_sample_slowdown(&s->speed_sample, steady, memory_share));
    }
    return n;
}

double half_interval_of_mean(const double *value, int n)
{
    /* the 97.5th percentile of Student's distribution of 1, 2, … degrees of freedom */
    static const double percentile[] = {12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20};
    enum { N = sizeof percentile / sizeof *percentile };
    double mean = 0, square = 0;
    if (n < 2) return 0;
    for (int i = 0; i < n; i++) mean += value[i] / n;
    for (int i = 0; i < n; i++) square += (value[i] - mean) * (value[i] - mean);
    return percentile[n - 2 < N ? n - 2 : N - 1] * sqrt(square / (n - 1) / n);
}

static void widen_interval(tandem_cost *cost, double half_ns)
{
    const int64_t half = llround(half_ns);
    if (cost->median_ns - half < cost->low_ns)
        cost->low_ns = cost->median_ns > half ? cost->median_ns - half : 0;
    if (cost->median_ns + half > cost->high_ns) cost->high_ns = cost->median_ns + half;
}

static void set_speed_sample(key_samples *key, int64_t *ns)
{
    for (int64_t i = 0; i < key->n; i++) ns[i] = key->sample[i].speed_sample.compute_ns;
    tandem_sort_int64(ns, (size_t)key->n);
    key->cost.compute_speed_sample_ns = tandem_sorted_median(ns, (size_t)key->n);
    for (int64_t i = 0; i < key->n; i++) ns[i] = key->sample[i].speed_sample.memory_ns;
    tandem_sort_int64(ns, (size_t)key->n);
    key->cost.memory_speed_sample_ns = tandem_sorted_median(ns, (size_t)key->n);
}

tandem_status key_samples_summarise(key_samples *key, const tandem_speed_sample *steady, tandem_error *error)
{
    int64_t n_undisturbed = 0;
    if (key->n == 0) return TANDEM_OK;
    for (int64_t i = 0; i < key->n; i++) n_undisturbed += !key->sample[i].is_disturbed;
    int64_t *const ns = malloc((size_t)key->n * sizeof *ns);
    if (!ns) return no_samples_memory(error);
    const int with_disturbed = n_undisturbed < MIN_UNDISTURBED;
    int64_t n = collect_times(ns, key, -1, with_disturbed, steady, 0);
    tandem_sort_int64(ns, (size_t)n);
    const double memory_share =
        n > 0 ? task_memory_share(&key->key, tandem_sorted_median(ns, (size_t)n), steady) : 0;
    double median[PROFILE_MAX_ROUNDS];
    int n_round = 0;
    for (int round = 0; round < PROFILE_MAX_ROUNDS; round++) {
        key->round_ns[round] = 0;
        n = collect_times(ns, key, round, with_disturbed, steady, memory_share);
        if (n == 0) continue;
        tandem_sort_int64(ns, (size_t)n);
        key->round_ns[round] = median[n_round++] = (double)tandem_sorted_median(ns, (size_t)n);
    }
    n = collect_times(ns, key, -1, with_disturbed, steady, memory_share);
    tandem_cost_from_samples(&key->cost, ns, n, key->workspace_bytes);
    key->cost.n_disturbed = key->n - n_undisturbed;
    widen_interval(&key->cost, half_interval_of_mean(median, n_round));
    set_speed_sample(key, ns);
    free(ns);
    return TANDEM_OK;
}
