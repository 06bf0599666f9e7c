/* batch.h: the samples of a micro-step, from where they are to the step's first tensors. On a device that has
 * memory of its own a batch is put together in staging (transfer.h), beside what the device does; elsewhere
 * in the input tensor itself. Without a data set samples are noise (noise.h), which such a device makes for
 * itself where they are floats. */
#ifndef TANDEM_BACKEND_BATCH_H
#define TANDEM_BACKEND_BATCH_H

#include "backend/executor/executor.h"

/* A batch by hand: awaits that the last one has left; puts sample number `sample` at place b, its labels into
 * executor->label; takes the batch to the input tensor. */
tandem_status tandem_batch_wait_copied(const tandem_executor *executor, tandem_error *error);
void tandem_batch_fill_sample(tandem_executor *executor, int test, int64_t b, int64_t sample);
tandem_status tandem_batch_copy_to_device(const tandem_executor *executor, tandem_error *error);

/* Puts together the batch of a micro-step, unless it is there. Errors of the data set. */
tandem_status tandem_batch_load(tandem_executor *executor, int64_t micro_index, tandem_error *error);
/* The same of the next one, once the device has all of this one's work: TANDEM_NO_DEVICE. */
tandem_status tandem_batch_prefetch(tandem_executor *executor, int64_t micro_index, tandem_error *error);
/* Runs the forward task of operator `op`, which has no kernel: inputs or labels. */
tandem_status tandem_batch_run_source(tandem_executor *executor, int op, int64_t micro_index,
                                      tandem_error *error);

#endif
