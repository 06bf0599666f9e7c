/* profile.h: the stages of `tandem profile`, run by every rank together. */
#ifndef TANDEM_CLI_PROFILE_H
#define TANDEM_CLI_PROFILE_H

#include "cli/cli.h"

/* The least and the most that were seen; 0: not known. */
typedef struct profile_clocks {
    tandem_clocks min, max;
} profile_clocks;

typedef struct profile_rank {
    const cli_options *options;
    const cli_workload *workload;
    const tandem_backend_api *backend;
    cli_rank self;
    int class_index; /* class of this rank */
    const char *device;
    tandem_store *store;
    tandem_worker *worker;
    tandem_data data; /* opened where options->data is given */
    profile_clocks clocks;
} profile_rank;

typedef struct profile_count {
    int64_t measured, known; /* keys measured now; keys that were in the store */
} profile_count;

/* Whether only what one plan needs is measured: --plan, --uniform. */
static inline int profile_of_plan(const cli_options *options) { return options->plan || options->uniform; }

/* Every operator signature × precision × pass, cast and optimizer of this rank's device, by running step
 * programs: all uniform plans, then mixed ones, for the casts between unlike neighbours; or of one plan.
 * neighbour: "" = this rank runs alone, the others wait; else the device of the rank that is kept busy
 * meanwhile, and every rank calls this at once. */
tandem_status profile_costs(profile_rank *rank, const char *co_runner, profile_count *count,
                            tandem_error *error);

/* TANDEM_USAGE where the cluster's text says that ranks share memory, and they do not. */
tandem_status profile_check_sharing(const profile_rank *rank, tandem_error *error);

/* The all-reduce curve between the ranks, idle and under load, and what it costs the computation beside it.
 * */
tandem_status profile_allreduce(profile_rank *rank, profile_count *count, tandem_error *error);

#endif
