/* replay_monte_carlo.c: simulated steps with randomly drawn task times. */
#include <stdio.h>

#include "base/quantity.h"
#include "cli/answer.h"
#include "cli/command/replay.h"

tandem_status replay_monte_carlo(tandem_monte_carlo *noise, tandem_replayer *replayer,
                                 const cli_options *options, tandem_error *error)
{
    const tandem_monte_carlo_options how = {
        .n_simulation = (int)options->simulations, .seed = options->seed, .spread = options->time_spread};
    return tandem_replayer_monte_carlo(noise, replayer, &how, error);
}

json_t *replay_monte_carlo_json(const tandem_monte_carlo *noise, uint64_t seed)
{
    return json_pack("{s:i,s:I,s:i,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "n", noise->n_simulation, "seed",
                     (json_int_t)seed, "ranks", noise->n_rank, "mean_ns", (json_int_t)noise->mean_ns,
                     "p50_ns", (json_int_t)noise->p50_ns, "p95_ns", (json_int_t)noise->p95_ns, "min_ns",
                     (json_int_t)noise->min_ns, "max_ns", (json_int_t)noise->max_ns, "sigma",
                     cli_json_number(noise->sigma), "measured_share", cli_json_number(noise->measured_share),
                     "interval_share", cli_json_number(noise->interval_share));
}

void replay_monte_carlo_print(const tandem_monte_carlo *noise, uint64_t seed)
{
    answer_line("simulated", "%d steps of %d ranks (seed %llu): median %s, 95th percentile %s, mean %s",
                noise->n_simulation, noise->n_rank, (unsigned long long)seed,
                tandem_quantity_ns(noise->p50_ns).text, tandem_quantity_ns(noise->p95_ns).text,
                tandem_quantity_ns(noise->mean_ns).text);
    answer_line("spread", "standard deviation of a task %s, measured for %s of the time",
                tandem_quantity_ratio(noise->sigma).text, tandem_quantity_ratio(noise->measured_share).text);
    if (noise->interval_share > 0)
        answer_line("uncertainty", "each step draws the error of %s of the time from its 80%% interval",
                    tandem_quantity_ratio(noise->interval_share).text);
}
