/* profile.h: the stages of a profile. All ranks run them together. */
#pragma once

#include "runtime/backend_library.h"
#include "runtime/listener.h"
#include "runtime/process/ranks.h"
#include "tandem/advanced/backend.h"
#include "tandem/advanced/store.h"
#include "tandem/runtime.h"

enum { PROFILE_MAX_RANKS = 64 };

typedef struct profile_rank {
    const tandem_profile_request *request;
    const tandem_workload *workload;
    const tandem_backend_api *backend;
    tandem_rank_place self;
    int class_index; /* class of this rank */
    const char *device;
    tandem_store *store;
    tandem_worker *worker;
    tandem_data data; /* open if request->data is given */
    tandem_clock_range clocks;
    tandem_steadiness steadiness; /* of the less steady stage */
    /* of a GPU: what timing a task adds to it, which its cost is without; −1 = not measured, or no GPU */
    int64_t event_ns;
    /* of a sweep: its plans are short, and none but the first begins later; 0 = a profile */
    int64_t sweep_end_ns;
    int has_swept; /* the first has run */
} profile_rank;

/* Whether only the costs of one plan are measured: --plan or --uniform. */
static inline int profile_of_plan(const tandem_profile_request *request)
{
    return request->workload.plan || request->workload.uniform;
}

/* Opens the backend, the store and a worker for this rank; rank->request, workload and self are set. */
tandem_status profile_rank_open(profile_rank *rank, tandem_error *error);
void profile_rank_close(profile_rank *rank);
/* Warns before a profile that will take long. */
tandem_status profile_warn_of_unsteady_machine(const tandem_profile_request *request, tandem_error *error);
/* A sweep of the rank's device, whose workload gets the networks. Counts go to result->rank[0]. */
tandem_status profile_sweep(profile_rank *rank, tandem_workload *workload, tandem_profile_result *result,
                            tandem_error *error);

/* profile_costs: measures every operator signature, precision and pass, cast and optimizer of this rank's
 * device by running step programs: all uniform plans, then mixed ones for casts between different precisions;
 * or one plan. co_runner: "" = this rank runs alone while the others wait; else the device of the other busy
 * rank, and all ranks call this together. */
tandem_status profile_costs(profile_rank *rank, const char *co_runner, tandem_profile_count *count,
                            tandem_error *error);

/* profile_updates: measures the updates, and the norm of all gradients, after real all-reduces, in some steps
 * of all ranks together. All ranks call it. */
tandem_status profile_updates(profile_rank *rank, const char *co_runner, tandem_profile_count *count,
                              tandem_error *error);

/* TANDEM_USAGE if ranks share memory by the cluster's text but cannot. */
tandem_status profile_check_sharing(const profile_rank *rank, tandem_error *error);

/* Measures all-reduces among the ranks, idle and under load, and how they slow computation. */
tandem_status profile_allreduce(profile_rank *rank, tandem_profile_count *count, tandem_error *error);
