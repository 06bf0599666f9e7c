/* replay.h: variants of the step for `tandem replay`: Monte Carlo simulation and ZeRO. */
#pragma once

#include "cli/cli.h"
#include "tandem/advanced/zero.h"

/* Uses --simulations, --seed and --time-spread. */
tandem_status replay_monte_carlo(tandem_monte_carlo *noise, tandem_replayer *replayer,
                                 const cli_options *options, tandem_error *error);
json_t *replay_monte_carlo_json(const tandem_monte_carlo *noise, uint64_t seed);
void replay_monte_carlo_print(const tandem_monte_carlo *noise, uint64_t seed);

json_t *replay_zero_json(const tandem_zero *zero, const tandem_sharding *sharding,
                         const tandem_cluster *cluster);
void replay_zero_print(const tandem_zero *zero, const tandem_sharding *sharding,
                       const tandem_cluster *cluster);
