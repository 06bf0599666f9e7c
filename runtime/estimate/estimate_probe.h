/* estimate_probe.h: estimates all operators in all precisions by a few pairs of gradients. */
#pragma once

#include "runtime/estimate/probe_direction.h"
#include "runtime/train/training_rank.h"

enum { PROBE_RANGE_BATCHES = 16 };

/* One training point. The executor runs the model in fp32, with separate_partial_grads, and holds its
 * weights; they are moved meanwhile, and put back to the bit. */
typedef struct probe_point {
    const tandem_backend_api *backend;
    tandem_executor *executor;
    const tandem_step *step;
    probe_metric metric; /* in which the optimizer steps */
    tandem_estimate *estimate;
    const tandem_emulation *emulation; /* whose formats represent their dtypes */
    int point_index;
    int64_t first_batch; /* replicate r takes the batches from first_batch + 2r on */
    uint64_t seed;
    int n_range_batch; /* 1 to PROBE_RANGE_BATCHES; the range of a cast is that of so many batches */
    int rank, n_rank;  /* replicates r with r mod n_rank = rank are estimated; 0 of 1: all */
} probe_point;

/* estimate_probe_point: fills the errors of every cell that estimate->is_estimated names, and for each
 * replicate the buckets of its two gradients (tandem/advanced/probe.h), sketch [2 × n_replicate ×
 * TANDEM_PROBE_SKETCH]. Bias is not estimated: `against` stays 0. With estimate->range_batch > 0 also with
 * wide ranges. TANDEM_NO_MEMORY, TANDEM_USAGE on a device with memory of its own, and what a step reports.
 * Cost: four gradients a replicate. */
tandem_status estimate_probe_point(const probe_point *point, float *sketch, tandem_error *error);
