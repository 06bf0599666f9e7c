#include "runtime/profile/profile_machine.h"

#include <math.h>
#include <stdlib.h>

#include "base/sort.h"

static const double other_machine = 0.3;

tandem_status profile_machine_open(profile_machine *machine, tandem_store *store, const char *device,
                                   const char *co_runner, tandem_error *error)
{
    tandem_steadiness stored;
    *machine = (profile_machine){.n = 0};
    tandem_machine_counts_read(&machine->before, "");
    const tandem_status status = tandem_store_get_steadiness(&stored, store, device, co_runner, error);
    if (status != TANDEM_OK) return status;
    machine->stored = (tandem_speed_sample){stored.compute_speed_sample_ns, stored.memory_speed_sample_ns};
    return TANDEM_OK;
}

void profile_machine_free(profile_machine *machine)
{
    free(machine->speed_sample);
    *machine = (profile_machine){.n = 0};
}

tandem_status profile_machine_add(profile_machine *machine, const step_watch *watch, int64_t step_ns,
                                  tandem_error *error)
{
    if (machine->n == machine->capacity) {
        const int64_t capacity = machine->capacity ? 2 * machine->capacity : 64;
        tandem_speed_sample *const grown = realloc(machine->speed_sample, (size_t)capacity * sizeof *grown);
        if (!grown) return tandem_no_memory(error, "for the speed samples of the profile");
        machine->speed_sample = grown;
        machine->capacity = capacity;
    }
    machine->speed_sample[machine->n++] = watch->speed_sample;
    machine->steps_ns += step_ns;
    if (watch->step_delay_ns < 0) machine->delays_ns = -1;
    if (machine->delays_ns >= 0) machine->delays_ns += watch->step_delay_ns;
    return TANDEM_OK;
}

/* One of both times of all speed samples, sorted. The caller frees it; NULL without memory. */
static int64_t *sorted_speed_samples(const profile_machine *machine, int is_memory)
{
    int64_t *const ns = malloc(((size_t)machine->n + 1) * sizeof *ns);
    for (int64_t i = 0; ns && i < machine->n; i++)
        ns[i] = is_memory ? machine->speed_sample[i].memory_ns : machine->speed_sample[i].compute_ns;
    if (ns) tandem_sort_int64(ns, (size_t)machine->n);
    return ns;
}

static int64_t median_of_speed_samples(const profile_machine *machine, int is_memory)
{
    int64_t *const ns = sorted_speed_samples(machine, is_memory);
    const int64_t median = ns && machine->n > 0 ? tandem_sorted_median(ns, (size_t)machine->n) : 0;
    free(ns);
    return median;
}

static double spread_of_speed_samples(const profile_machine *machine, int is_memory)
{
    int64_t *const ns = sorted_speed_samples(machine, is_memory);
    const int64_t n = machine->n;
    double spread = NAN;
    if (ns && n > 0 && ns[n / 2] > 0) spread = (double)(ns[9 * n / 10] - ns[n / 10]) / (double)ns[n / 2];
    free(ns);
    return spread;
}

void profile_machine_settle(profile_machine *machine)
{
    const tandem_speed_sample now = {median_of_speed_samples(machine, 0),
                                     median_of_speed_samples(machine, 1)},
                              *stored = &machine->stored;
    const int is_same = stored->compute_ns > 0 && now.compute_ns > 0 &&
                        fabs((double)now.compute_ns / (double)stored->compute_ns - 1) <= other_machine;
    machine->steady = is_same ? *stored : now;
    if (machine->steady.memory_ns == 0) machine->steady.memory_ns = now.memory_ns;
    if (spread_of_speed_samples(machine, 1) > SPEED_SAMPLE_UNRELIABLE) machine->steady.memory_ns = 0;
}

tandem_steadiness profile_machine_summary(profile_machine *machine, double interval_share)
{
    tandem_machine_counts now;
    tandem_machine_counts_read(&now, "");
    const int64_t steal_ns = tandem_count_since(machine->before.steal_ns, now.steal_ns),
                  busy_ns = tandem_count_since(machine->before.busy_ns, now.busy_ns);
    return (tandem_steadiness){.compute_speed_sample_ns = machine->steady.compute_ns,
                               .memory_speed_sample_ns = machine->steady.memory_ns,
                               .compute_spread = spread_of_speed_samples(machine, 0),
                               .memory_spread = spread_of_speed_samples(machine, 1),
                               .delay_share = machine->delays_ns >= 0 && machine->steps_ns > 0
                                                  ? (double)machine->delays_ns / (double)machine->steps_ns
                                                  : NAN,
                               .steal_share = steal_ns >= 0 && busy_ns + steal_ns > 0
                                                  ? (double)steal_ns / (double)(busy_ns + steal_ns)
                                                  : NAN,
                               .interval_share = interval_share};
}

void profile_keep_worse(tandem_steadiness *worse, const tandem_steadiness *other)
{
    worse->compute_spread = fmax(worse->compute_spread, other->compute_spread);
    worse->memory_spread = fmax(worse->memory_spread, other->memory_spread);
    worse->delay_share = fmax(worse->delay_share, other->delay_share);
    worse->steal_share = fmax(worse->steal_share, other->steal_share);
    worse->interval_share = fmax(worse->interval_share, other->interval_share);
}

/* A task that was not measured in that round has its median of all; 0 where these are over a tenth of the
 * time. */
static double sum_of_round(const key_samples *key, const int *key_of, int n_task, int round)
{
    double sum_ns = 0, missing_ns = 0;
    for (int t = 0; t < n_task; t++) {
        if (key_of[t] < 0) continue;
        const double ns = key[key_of[t]].round_ns[round];
        *(ns > 0 ? &sum_ns : &missing_ns) += ns > 0 ? ns : (double)key[key_of[t]].cost.median_ns;
    }
    return missing_ns <= (sum_ns + missing_ns) / 10 ? sum_ns + missing_ns : 0;
}

double profile_interval_share(const key_samples *key, const int *key_of, int n_task)
{
    double sum_ns[PROFILE_MAX_ROUNDS] = {0}, mean_ns = 0;
    int n = 0;
    for (int round = 0; round < PROFILE_MAX_ROUNDS; round++) {
        const double ns = sum_of_round(key, key_of, n_task, round);
        if (ns > 0) sum_ns[n++] = ns;
    }
    for (int i = 0; i < n; i++) mean_ns += sum_ns[i] / n;
    return n > 1 ? half_interval_of_mean(sum_ns, n) / mean_ns : NAN;
}
