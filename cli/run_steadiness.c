#include "cli/run_steadiness.h"

#include <string.h>

#include "cli/cli.h"

/* Delays that are shorter than this share of their step count as somewhere in the step. */
enum { SMALL_SHARE = 1000 };
static const int64_t pulse_every_ns = 20000000;

void steadiness_ring_add(steadiness_ring *ring, const step_watch *watch, int64_t step_ns)
{
    const int64_t slot = ring->n_counted++ % KEPT_STEPS;
    ring->step_ns[slot] = step_ns;
    ring->step_delay_ns[slot] = watch->step_delay_ns;
    ring->pulse[slot] = watch->pulse;
    for (int t = 0; t < ring->n_task; t++) ring->task_delay_ns[t * KEPT_STEPS + slot] = watch->delay_ns[t];
}

static void add_run_delay(run_steadiness *out, int step, int task, int64_t ns)
{
    if (ns > 0 && out->n_delay < MAX_DELAYS)
        out->delay[out->n_delay++] = (step_delay){.step = step, .task = task, .ns = ns};
}

/* The delays of one kept step: its larger ones by task, and the rest. */
static void read_step_delays(const steadiness_ring *ring, int64_t slot, int step, run_steadiness *out)
{
    const int room_for_rest = KEPT_STEPS - step;
    int64_t rest_ns = ring->step_delay_ns[slot];
    for (int t = 0; t < ring->n_task; t++) {
        const int64_t ns = ring->task_delay_ns[t * KEPT_STEPS + slot];
        if (ns <= ring->step_ns[slot] / SMALL_SHARE || out->n_delay + room_for_rest >= MAX_DELAYS) continue;
        add_run_delay(out, step, t, ns);
        rest_ns -= ns;
    }
    add_run_delay(out, step, -1, rest_ns);
}

void steadiness_ring_read(const steadiness_ring *ring, const step_watch *watch, int64_t run_ns,
                          run_steadiness *out)
{
    memset(out, 0, sizeof *out);
    const int64_t n = ring->n_counted < KEPT_STEPS ? ring->n_counted : KEPT_STEPS;
    out->n_step = (int32_t)n;
    out->is_delay_known = n > 0;
    out->pulse_share = run_ns > 0 ? (double)watch->all_pulses_ns / (double)run_ns : 0;
    for (int step = 0; step < n; step++) {
        const int64_t slot = (ring->n_counted - n + step) % KEPT_STEPS;
        out->step_ns[step] = ring->step_ns[slot];
        out->pulse[step] = ring->pulse[slot];
        if (ring->step_delay_ns[slot] < 0) out->is_delay_known = 0;
        read_step_delays(ring, slot, step, out);
    }
}

tandem_status steadiness_ring_pulse(steadiness_ring *ring, step_watch *watch, training_rank *rank,
                                    tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    if (ring->n_counted < ring->next_pulse || ring->n_counted == 0) return TANDEM_OK;
    step_watch_take_pulse(watch);
    const int64_t last_ns = ring->step_ns[(ring->n_counted - 1) % KEPT_STEPS],
                  every_ns = 200 * watch->pulse_cost_ns > pulse_every_ns ? 200 * watch->pulse_cost_ns
                                                                         : pulse_every_ns;
    int64_t steps = last_ns > 0 ? (every_ns + last_ns - 1) / last_ns : 1;
    ring->n_pulse++;
    if (ring->n_pulse & (ring->n_pulse - 1)) /* agreed on at pulses 1, 2, 4, 8, … */
        steps = ring->steps_per_pulse;
    else if (rank->self.n_rank > 1)
        status = rank->backend->worker_broadcast(rank->worker, &steps, sizeof steps, 0, error);
    ring->steps_per_pulse = steps < 1 ? 1 : steps;
    ring->next_pulse = ring->n_counted + ring->steps_per_pulse;
    return status;
}

/* --- As JSON -------------------------------------------------------------------------------------------- */

json_t *run_steadiness_json(const run_steadiness *run)
{
    json_t *steps = json_array(), *compute = json_array(), *memory = json_array(), *delays = json_array();
    for (int k = 0; k < run->n_step; k++) {
        json_array_append_new(steps, json_integer(run->step_ns[k]));
        json_array_append_new(compute, json_integer(run->pulse[k].compute_ns));
        json_array_append_new(memory, json_integer(run->pulse[k].memory_ns));
    }
    for (int k = 0; k < run->n_delay; k++)
        json_array_append_new(delays, json_pack("[i,i,I]", (int)run->delay[k].step, (int)run->delay[k].task,
                                                (json_int_t)run->delay[k].ns));
    if (!run->is_delay_known) {
        json_decref(delays);
        delays = json_null();
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "steps_ns", steps, "compute_pulse_ns", compute,
                     "memory_pulse_ns", memory, "delays", delays, "pulse_share",
                     cli_json_number(run->pulse_share));
}

static int64_t element(const json_t *array, size_t k) { return json_integer_value(json_array_get(array, k)); }

int run_steadiness_from_json(run_steadiness *run, const json_t *object)
{
    const json_t *steps = json_object_get(object, "steps_ns"), *delays = json_object_get(object, "delays"),
                 *compute = json_object_get(object, "compute_pulse_ns"),
                 *memory = json_object_get(object, "memory_pulse_ns");
    size_t k;
    json_t *row;
    memset(run, 0, sizeof *run);
    if (!json_is_array(steps)) return 0;
    for (k = 0; k < json_array_size(steps) && k < KEPT_STEPS; k++) {
        run->step_ns[k] = element(steps, k);
        run->pulse[k] = (tandem_pulse){element(compute, k), element(memory, k)};
    }
    run->n_step = (int32_t)k;
    run->is_delay_known = json_is_array(delays);
    run->pulse_share = json_number_value(json_object_get(object, "pulse_share"));
    json_array_foreach(delays, k, row)
    {
        const int64_t step = element(row, 0), task = element(row, 1);
        if (step >= 0 && step < run->n_step && task >= -1 && task < INT32_MAX)
            add_run_delay(run, (int)step, (int)task, element(row, 2));
    }
    return 1;
}
