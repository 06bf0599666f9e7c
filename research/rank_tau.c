/* rank_tau.c: Kendall's tau-b between the order of a method and the measured one, and its interval, the
 * bootstrap's over operators. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_rng.h>

#include "research/rank.h"
#include "research/held_model.h"

static const unsigned long rank_bootstrap_seed = 1;

typedef struct rank_counts {
    double same, other, tied;
} rank_counts;

/* NaN: no pair is distinguished. */
static double tau_of(const rank_counts *counts)
{
    const double decided = counts->same + counts->other;
    if (decided + counts->tied == 0) return NAN;
    return decided > 0 ? (counts->same - counts->other) / sqrt(decided * (decided + counts->tied)) : 0;
}

/* times: how often each operator is there; NULL: once. */
static void count_pairs(rank_counts *counts, const rank_result *result, const double *value, const int *times,
                        int n)
{
    const double *half = result->noise + n;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const double measured = result->noise[i] - result->noise[j], said = value[i] - value[j],
                         by = times ? (double)times[i] * times[j] : 1;
            if (fabs(measured) <= *half++) continue;
            if (said * measured > 0)
                counts->same += by;
            else if (said * measured < 0)
                counts->other += by;
            else
                counts->tied += by;
        }
}

double rank_tau_of_method(const rank_study *s, int m, int first, int n_precision, const int *times,
                          uint64_t draw)
{
    rank_counts counts = {0};
    const int n = s->lab.n_op, is_random = rank_methods[m] == &rank_method_random;
    for (int p = first; p < first + n_precision; p++) {
        const rank_input input = {.precision = noise_precisions[p], .draw = draw};
        double value[STUDY_MAX_OPERATORS] = {0};
        for (int k = 0; k < n; k++)
            value[k] = is_random ? rank_method_random.compute(&input, k) : s->result[p].value[m * n + k];
        count_pairs(&counts, &s->result[p], value, times, n);
    }
    return tau_of(&counts);
}

/* At least two operators, so that there is a pair. */
static void draw_operators(int times[STUDY_MAX_OPERATORS], int n, gsl_rng *random)
{
    int n_other = 0;
    while (n_other == 0) {
        memset(times, 0, (size_t)n * sizeof *times);
        for (int k = 0; k < n; k++) times[gsl_rng_uniform_int(random, (unsigned long)n)]++;
        for (int k = 0; k < n; k++) n_other += times[k] > 0 && times[k] < n;
    }
}

tandem_status rank_bootstrap(rank_study *s, tandem_error *error)
{
    int times[STUDY_MAX_OPERATORS];
    const int n_draw = s->plan->n_bootstrap, t = s->n_task;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    s->drawn[t] = calloc((size_t)RANK_N_METHOD * (size_t)n_draw, sizeof *s->drawn[t]);
    if (random && s->drawn[t]) {
        gsl_rng_set(random, rank_bootstrap_seed + (unsigned long)t);
        for (int i = 0; i < n_draw; i++) {
            draw_operators(times, s->lab.n_op, random);
            for (int m = 0; m < RANK_N_METHOD; m++)
                s->drawn[t][m * n_draw + i] =
                    rank_tau_of_method(s, m, 0, NOISE_N_PRECISION, times, (uint64_t)i + 1);
        }
        for (int m = 0; m < RANK_N_METHOD; m++)
            s->tau[t][m] = rank_tau_of_method(s, m, 0, NOISE_N_PRECISION, NULL, 0);
    }
    const int is_drawn = random && s->drawn[t];
    if (random) gsl_rng_free(random);
    return is_drawn ? TANDEM_OK : tandem_no_memory(error, "for the draws of a bootstrap");
}

study_interval rank_interval_of(rank_study *s, int t, int m, int less)
{
    const int n_draw = s->plan->n_bootstrap;
    int n = 0;
    for (int i = 0; i < n_draw; i++) {
        const double one = s->drawn[t][m * n_draw + i] - (less < 0 ? 0 : s->drawn[t][less * n_draw + i]);
        if (!isnan(one)) s->room[n++] = one; /* else the draw has no pair */
    }
    return study_draws_interval(s->room, n);
}
