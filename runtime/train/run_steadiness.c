#include "runtime/train/run_steadiness.h"

#include <string.h>

#include "runtime/listener.h"
#include "tandem/runtime.h"

/* Delays that are shorter than this share of their step count as somewhere in the step. */
enum { SMALL_SHARE = 1000 };

static void move_kept_step(kept_steps *kept, int to, int from)
{
    const size_t n_task = (size_t)kept->n_task, bytes = n_task * sizeof(int64_t);
    kept->step_ns[to] = kept->step_ns[from];
    kept->step_delay_ns[to] = kept->step_delay_ns[from];
    kept->speed_sample[to] = kept->speed_sample[from];
    memmove(kept->task_ns + (size_t)to * n_task, kept->task_ns + (size_t)from * n_task, bytes);
    memmove(kept->task_delay_ns + (size_t)to * n_task, kept->task_delay_ns + (size_t)from * n_task, bytes);
}

/* Whether the next counted step is to be kept; makes room for it. */
static int has_room_for_step(kept_steps *kept)
{
    if (kept->distance == 0) kept->distance = 1;
    if (kept->n_counted % kept->distance != 0) return 0;
    if (kept->n_kept < KEPT_STEPS) return 1;
    for (int k = 1; 2 * k < KEPT_STEPS; k++) move_kept_step(kept, k, 2 * k);
    kept->n_paired = kept->n_kept = KEPT_STEPS / 2;
    kept->distance *= 2;
    return kept->n_counted % kept->distance == 0;
}

void kept_steps_add(kept_steps *kept, const step_watch *watch, const tandem_step_times *times,
                    int64_t step_ns)
{
    const int is_kept = has_room_for_step(kept);
    kept->n_counted++;
    kept->last_step_ns = step_ns;
    if (!is_kept) return;
    const int slot = kept->n_kept++;
    int64_t *const ns = kept->task_ns + (size_t)slot * (size_t)kept->n_task;
    kept->step_ns[slot] = step_ns;
    kept->step_delay_ns[slot] = watch->step_delay_ns;
    kept->speed_sample[slot] = watch->speed_sample;
    for (int t = 0; t < kept->n_task; t++)
        ns[t] = times->start_ns[t] >= 0 ? times->end_ns[t] - times->start_ns[t] : 0;
    memcpy(kept->task_delay_ns + (size_t)slot * (size_t)kept->n_task, watch->delay_ns,
           (size_t)kept->n_task * sizeof *watch->delay_ns);
}

int64_t kept_steps_task_ns(const kept_steps *kept, int t)
{
    enum { SHARE = 100, ENOUGH = 3 };
    tandem_cost cost;
    int64_t own[KEPT_STEPS], undisturbed[KEPT_STEPS], n = 0, n_undisturbed = 0;
    for (int k = 0; k < kept->n_kept; k++) {
        const size_t at = (size_t)k * (size_t)kept->n_task + (size_t)t;
        const int64_t ns = kept->task_ns[at], delay_ns = kept->task_delay_ns[at];
        if (ns <= 0) continue;
        own[n++] = delay_ns > 0 && delay_ns < ns ? ns - delay_ns : ns;
        if (delay_ns <= ns / SHARE) undisturbed[n_undisturbed++] = ns;
    }
    if (n_undisturbed >= ENOUGH)
        tandem_cost_from_samples(&cost, undisturbed, n_undisturbed, 0);
    else
        tandem_cost_from_samples(&cost, own, n, 0);
    return n > 0 ? tandem_cost_mean_ns(&cost) : 0; /* like predicted times: means add, medians do not */
}

static void add_run_delay(run_steadiness *out, int step, int task, int64_t ns)
{
    if (ns > 0 && out->n_delay < MAX_DELAYS)
        out->delay[out->n_delay++] = (step_delay){.step = step, .task = task, .ns = ns};
}

/* The delays of one kept step: its larger ones by task, and the rest. */
static void read_step_delays(const kept_steps *kept, int step, run_steadiness *out)
{
    const int room_for_rest = KEPT_STEPS - step;
    int64_t rest_ns = kept->step_delay_ns[step];
    for (int t = 0; t < kept->n_task; t++) {
        const int64_t ns = kept->task_delay_ns[(size_t)step * (size_t)kept->n_task + (size_t)t];
        if (ns <= kept->step_ns[step] / SMALL_SHARE || out->n_delay + room_for_rest >= MAX_DELAYS) continue;
        add_run_delay(out, step, t, ns);
        rest_ns -= ns;
    }
    add_run_delay(out, step, -1, rest_ns);
}

void kept_steps_read(const kept_steps *kept, const step_watch *watch, int64_t run_ns, run_steadiness *out)
{
    memset(out, 0, sizeof *out);
    out->n_step = kept->n_kept;
    out->is_delay_known = kept->n_kept > 0;
    out->speed_sample_share = run_ns > 0 ? (double)watch->all_speed_samples_ns / (double)run_ns : 0;
    for (int step = 0; step < kept->n_kept; step++) {
        out->step_ns[step] = kept->step_ns[step];
        out->speed_sample[step] = kept->speed_sample[step];
        if (kept->step_delay_ns[step] < 0) out->is_delay_known = 0;
        read_step_delays(kept, step, out);
    }
}

/* Gives the kept steps since the speed sample before the mean of both. */
static void pair_speed_samples(kept_steps *kept, const tandem_speed_sample *after)
{
    for (; kept->n_paired < kept->n_kept; kept->n_paired++) {
        tandem_speed_sample *const before = &kept->speed_sample[kept->n_paired];
        *before = (tandem_speed_sample){(before->compute_ns + after->compute_ns) / 2,
                                        (before->memory_ns + after->memory_ns) / 2};
    }
}

tandem_status kept_steps_take_speed_sample(kept_steps *kept, step_watch *watch, training_rank *rank,
                                           tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (kept->n_counted == 0 || kept->n_counted < kept->next_speed_sample) return TANDEM_OK;
    step_watch_take_speed_sample(watch);
    pair_speed_samples(kept, &watch->speed_sample);
    const int64_t every_ns = step_watch_speed_sample_every_ns(watch);
    int64_t steps = kept->last_step_ns > 0 ? (every_ns + kept->last_step_ns - 1) / kept->last_step_ns : 1;
    kept->n_speed_sample++;
    if (kept->n_speed_sample & (kept->n_speed_sample - 1)) /* agreed on at speed samples 1, 2, 4, 8, … */
        steps = kept->steps_per_speed_sample;
    else if (rank->self.n_rank > 1)
        status = rank->backend->worker_broadcast(rank->worker, &steps, sizeof steps, 0, error);
    kept->steps_per_speed_sample = steps < 1 ? 1 : steps;
    kept->next_speed_sample = kept->n_counted + kept->steps_per_speed_sample;
    return status;
}
