/* train_sharding.h: which part of the training's state each rank of a run keeps (ZeRO). */
#pragma once

#include "runtime/train/training_rank.h"

/* The sharding that the request asks for, as rank `rank` of the workload's cluster has it; all zero without
 * one, and with a single rank. TANDEM_USAGE: a stage that training does not have, shares that are no numbers
 * or not one per class, sensitivities that are estimated again, or a device with memory of its own. */
tandem_status train_sharding_make(tandem_sharding *sharding, const tandem_train_request *request,
                                  const tandem_cluster *cluster, int rank, tandem_error *error);
/* All ranks: changes rank->sharding so that each rank's memory fits into its limit; memory: the plan of this
 * rank with equal shards. Rank 0 notes the shares. TANDEM_INFEASIBLE, the same on every rank; errors of
 * worker_gather. */
tandem_status train_sharding_fit(training_rank *rank, const tandem_cluster *cluster,
                                 const tandem_memory *memory, const tandem_listener *listener,
                                 tandem_error *error);
