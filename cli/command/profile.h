/* profile.h: the stages of `tandem profile`. All ranks run them together. */
#pragma once

#include "cli/cli.h"

enum { PROFILE_MAX_RANKS = 64 };

/* Smallest and largest clock rates seen; 0 = unknown. */
typedef struct profile_clocks {
    tandem_clocks min, max;
} profile_clocks;

typedef struct profile_rank {
    const cli_options *options;
    const tandem_workload *workload;
    const tandem_backend_api *backend;
    cli_rank self;
    int class_index; /* class of this rank */
    const char *device;
    tandem_store *store;
    tandem_worker *worker;
    tandem_data data; /* open if options->data is given */
    profile_clocks clocks;
    tandem_steadiness steadiness; /* of the less steady stage */
    /* of a GPU: what timing a task adds to it, which its cost is without; −1 = not measured, or no GPU */
    int64_t event_ns;
    /* of a sweep: its plans are short, and none but the first begins later; 0 = a profile */
    int64_t sweep_end_ns;
    int has_swept; /* the first has run */
} profile_rank;

typedef struct profile_count {
    int64_t measured, known; /* keys measured now; keys found in the store */
} profile_count;

/* Whether only the costs of one plan are measured: --plan or --uniform. */
static inline int profile_of_plan(const cli_options *options) { return options->plan || options->uniform; }

/* Opens the backend, the store and a worker for this rank; rank->options, workload and self are set. */
tandem_status profile_rank_open(profile_rank *rank, tandem_error *error);
void profile_rank_close(profile_rank *rank);
/* What a profile and a sweep report of a device: JSON, null where it is not known; or a line of text. */
json_t *profile_clocks_json(const profile_clocks *clocks);
json_t *profile_steadiness_json(const tandem_steadiness *steadiness);
void profile_print_clocks(const profile_clocks *clocks);
/* Warns before a profile that will take long. */
tandem_status profile_warn_of_unsteady_machine(const cli_options *options, tandem_error *error);
/* `tandem profile --sweep`. Returns the exit code. */
int profile_sweep(const cli_options *options);

/* profile_costs: measures every operator signature, precision and pass, cast and optimizer of this rank's
 * device by running step programs: all uniform plans, then mixed ones for casts between different precisions;
 * or one plan. co_runner: "" = this rank runs alone while the others wait; else the device of the other busy
 * rank, and all ranks call this together. */
tandem_status profile_costs(profile_rank *rank, const char *co_runner, profile_count *count,
                            tandem_error *error);

/* profile_updates: measures the updates, and the norm of all gradients, after real all-reduces, in some steps
 * of all ranks together. All ranks call it. */
tandem_status profile_updates(profile_rank *rank, const char *co_runner, profile_count *count,
                              tandem_error *error);

/* TANDEM_USAGE if ranks share memory by the cluster's text but cannot. */
tandem_status profile_check_sharing(const profile_rank *rank, tandem_error *error);

/* `tandem profile --import`. Returns the exit code. */
int profile_import(const cli_options *options);

/* Measures all-reduces among the ranks, idle and under load, and how they slow computation. */
tandem_status profile_allreduce(profile_rank *rank, profile_count *count, tandem_error *error);
