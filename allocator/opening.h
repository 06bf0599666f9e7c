/* opening.h: what a request names, opened; shared by workload.c and planner.c, private to allocator/. */
#pragma once

#include "tandem/advanced/predictor.h"
#include "tandem/advanced/store.h"
#include "tandem/planner.h"

/* Parses a cluster, and fills in batches, limits and how ranks exchange gradients. batch 0 =
 * TANDEM_DEFAULT_BATCH. is_emulated: devices are emulated (tandem_workload_request). TANDEM_USAGE: no model,
 * no cluster, or TANDEM_ALLREDUCE has an unknown value; errors of tandem_cluster_parse. */
tandem_status tandem_open_cluster(tandem_cluster *cluster, const char *model, const char *text, int64_t batch,
                                  const char *memory, int is_emulated, tandem_error *error);

/* What a model that PyTorch runs, or a model with few activations, cannot have. `graph` is the model.
 * TANDEM_USAGE. */
tandem_status tandem_check_model(const tandem_graph *graph, const char *memory, int n_recompute_segment,
                                 tandem_error *error);

/* The cluster of a request, with batches, limits and how gradients travel. Errors as above. */
tandem_status tandem_request_cluster(tandem_cluster *cluster, const tandem_request *request,
                                     tandem_error *error);

/* Opens a planner for a cluster whose classes have their batches: as tandem_planner_open, which parses the
 * request's cluster. Of the request, cluster, batch, memory, wire and over_network are not read. */
tandem_status tandem_planner_open_at(tandem_planner **planner, const tandem_request *request,
                                     const tandem_cluster *cluster, tandem_error *error);

/* The step with all operators in fp32; −1: a time of it is missing. Simulated once; the replayer's precisions
 * stay, its last run may not. TANDEM_NO_MEMORY. */
tandem_status tandem_planner_fp32_step(int64_t *step_ns, tandem_planner *planner, tandem_error *error);

/* A plan of the planner's model that a trial measured, with what `estimate` predicts for it now. */
typedef struct tandem_tried {
    uint64_t plan_hash;         /* tandem_trial_plan_hash */
    tandem_precision precision; /* of its largest part */
    tandem_tried_plan plan;
} tandem_tried;
/* Those against fp32 on the estimate's data, one of a plan, at most TANDEM_STORE_TRIED_PLANS. A plan whose
 * text does not fit the model, or whose operators have no estimate, is left out. The planner keeps them;
 * predicted once. TANDEM_NO_MEMORY: *n = 0. */
tandem_status tandem_planner_tried(const tandem_tried **tried, int *n, tandem_planner *planner,
                                   const tandem_estimate *estimate, tandem_error *error);

/* The same for an answer: as tandem_answer_open, for a checked request. */
tandem_status tandem_answer_open_at(tandem_answer *answer, const tandem_allocation_request *request,
                                    const tandem_cluster *cluster, tandem_error *error);
