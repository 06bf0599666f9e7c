/* transfer.h: what goes to and from a device that has memory of its own, beside the work of a step: batches
 * and losses, buckets on their way through the all-reduce, times. Nothing here is called where operands lie
 * in the host's memory.
 *
 * Three streams: kernels; buckets to the host as they are complete; buckets back as they are reduced. The
 * host runs ahead of the device: it puts all of a backward pass on the first stream, and the reducer's thread
 * waits for each bucket to arrive. */
#ifndef TANDEM_BACKEND_TRANSFER_H
#define TANDEM_BACKEND_TRANSFER_H

#include "backend/executor/executor.h"

/* Bytes of the host that a device must be able to copy from and to: a batch, its labels, losses, and where
 * ranks exchange or gradients are judged, the flat gradients. */
uint64_t tandem_transfer_staging_bytes(const tandem_executor *executor);
/* Staging, events, and which weights decay; of an executor for forward passes, only what brings in a batch.
 * */
tandem_status tandem_transfer_open(tandem_executor *executor, int forward_only, tandem_error *error);

/* Until the last batch has left the place where the next one is put together. */
tandem_status tandem_transfer_wait_input(const tandem_executor *executor, tandem_error *error);
/* Brings `bytes` from staging to the device, beside the host. */
tandem_status tandem_transfer_copy_to_device(const tandem_executor *executor, int are_labels, void *to,
                                             const void *from, uint64_t bytes, tandem_error *error);

/* t: updates that were made, with this step's. */
tandem_status tandem_transfer_begin_step(tandem_executor *executor, int64_t index, int64_t t,
                                         tandem_error *error);
/* The task at `position` of the active ones was put on its stream: its time ends there. */
tandem_status tandem_transfer_end_task(const tandem_executor *executor, int position, tandem_error *error);
/* Between micro-steps. */
tandem_status tandem_transfer_end_micro_step(tandem_executor *executor, int micro, tandem_error *error);
/* Bucket b is complete once the first stream has come so far. */
tandem_status tandem_transfer_send_bucket(const tandem_executor *executor, int b, int64_t micro_index,
                                          tandem_error *error);
/* Before a bucket's gradients are waited for, and the update behind it. */
tandem_status tandem_transfer_record_wait(const tandem_executor *executor, int b, tandem_error *error);
/* Until bucket b is in the host's gradients; for the reducer's thread (context: the executor), and without
 * one. */
tandem_status tandem_transfer_wait_bucket(void *context, int b, tandem_error *error);
tandem_status tandem_transfer_update_bucket(const tandem_executor *executor, int b, int64_t t,
                                            tandem_error *error);
/* Waits for the device; not_finite is known then, and the times of the buckets where nobody asked for those
 * of tasks. *loss: of this rank, or where there is an all-reduce, of all. */
tandem_status tandem_transfer_end_step(tandem_executor *executor, float *loss, tandem_error *error);
/* Those of tasks and buckets, where they were asked for: behind the step, which lasts no longer for it. */
tandem_status tandem_transfer_read_times(tandem_executor *executor, tandem_error *error);

#endif
