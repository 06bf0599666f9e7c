/* batch.h: the samples of a micro-step. With device memory, the host assembles the next batch in staging
 * memory while the device computes; else it assembles the batch in the input tensor itself.
 *
 * Without a data set, float inputs are noise: x[i] = 2·u − 1, where u in [0, 1) is word i % 4 of the Philox
 * block {i / 4, sample, 0, TANDEM_RNG_SHUFFLE}. A device with its own memory generates it. */
#pragma once

#include "backend/executor/executor.h"

/* For evaluations: waits until the last batch was copied to the device; writes sample number `sample` at
 * index b of the batch, and its labels to executor->label; copies the batch to the input tensor. */
tandem_status tandem_batch_wait_copied(const tandem_executor *executor, tandem_error *error);
void tandem_batch_fill_sample(tandem_executor *executor, int test, int64_t b, int64_t sample);
tandem_status tandem_batch_copy_to_device(const tandem_executor *executor, tandem_error *error);

/* Assembles the batch of a micro-step, unless it is loaded. Errors of the data set. */
tandem_status tandem_batch_load(tandem_executor *executor, int64_t micro_index, tandem_error *error);
/* The same, and later work of the compute stream runs after the batch. */
tandem_status tandem_batch_make_ready(tandem_executor *executor, int64_t micro_index, tandem_error *error);
/* Assembles the next batch while the device works on this one. TANDEM_NO_DEVICE; other errors are left to the
 * next load. */
tandem_status tandem_batch_prefetch(tandem_executor *executor, int64_t micro_index, tandem_error *error);
/* Runs the forward task of an input or label operator, which has no kernel. */
tandem_status tandem_batch_run_source(tandem_executor *executor, int op, int64_t micro_index,
                                      tandem_error *error);
