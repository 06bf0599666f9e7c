/* batch_statistics.h: statistics of every adjustable operator over real batches (advanced/predictor.h). */
#pragma once

#include "runtime/train/training_rank.h"
#include "tandem/advanced/predictor.h"

/* batch_statistics_collect: runs the steps first … first + n_batch − 1 of a rank whose step keeps partial
 * gradients apart, and takes means over them.
 *   statistics  [n_op], all zero; those of operators that are not adjustable stay so
 * TANDEM_NO_MEMORY, errors of a step. Cost: the steps, and some passes over operands and gradients. */
tandem_status batch_statistics_collect(tandem_statistics *statistics, const training_rank *rank,
                                       const tandem_train_request *training, int64_t first, int64_t n_batch,
                                       tandem_error *error);
