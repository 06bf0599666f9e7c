/* transfer.h: copies between the host and a device with its own memory, concurrent with the step: batches,
 * losses, and buckets on their way through the all-reduce; and times. Without device memory nothing here is
 * called.
 *
 * Four streams: kernels, ready buckets to the host, reduced buckets back, images. The host runs ahead of the
 * device: it queues the whole backward pass on the compute stream, and the reducer's thread waits for each
 * bucket to arrive. */
#pragma once

#include "backend/executor/executor.h"

/* Staging memory that the executor needs: a batch, unless image_input.h sends it, its labels, losses, and,
 * where ranks all-reduce or the host clips, the flat gradients. */
uint64_t tandem_transfer_staging_bytes(const tandem_executor *executor);
/* Allocates staging memory, events and the decay mask; for a forward-only executor, only what a batch needs.
 * */
tandem_status tandem_transfer_open(tandem_executor *executor, int forward_only, tandem_error *error);

/* Waits until the last batch was copied out of `input`. */
tandem_status tandem_transfer_wait_input(const tandem_executor *executor, tandem_error *error);
/* Queues a copy of a batch or its labels from staging memory to the device. */
tandem_status tandem_transfer_copy_to_device(const tandem_executor *executor, int are_labels, void *to,
                                             const void *from, uint64_t bytes, tandem_error *error);

/* Image slots (image_input.h). Waits until slot number micro_index % 2 can be filled again: its last copy is
 * done, and the micro-step that had it before has taken it. Copies on the input stream. The compute stream
 * goes on after all copies so far. Records that a micro-step has taken its input, or its labels. */
tandem_status tandem_transfer_wait_slot(const tandem_executor *executor, int64_t micro_index,
                                        tandem_error *error);
tandem_status tandem_transfer_wait_copy_of_slot(const tandem_executor *executor, int slot,
                                                tandem_error *error);
tandem_status tandem_transfer_send_slot(const tandem_executor *executor, int slot, void *to, const void *from,
                                        uint64_t bytes, tandem_error *error);
tandem_status tandem_transfer_join_input(const tandem_executor *executor, tandem_error *error);
tandem_status tandem_transfer_take_slot(const tandem_executor *executor, int micro, int are_labels,
                                        tandem_error *error);

/* t: updates, this step's included. */
tandem_status tandem_transfer_begin_step(tandem_executor *executor, int64_t index, int64_t t,
                                         tandem_error *error);
/* Records the end of active task number `position`. */
tandem_status tandem_transfer_end_task(const tandem_executor *executor, int position, tandem_error *error);
/* Between micro-steps: reads the times of tasks. */
tandem_status tandem_transfer_end_micro_step(tandem_executor *executor, int micro, tandem_error *error);
/* Queues the copy of a complete bucket to the host, after the work now on the compute stream. */
tandem_status tandem_transfer_send_bucket(const tandem_executor *executor, int b, int64_t micro_index,
                                          tandem_error *error);
/* Records the begin of the wait for a bucket's gradients. */
tandem_status tandem_transfer_record_wait(const tandem_executor *executor, int b, tandem_error *error);
/* Waits until bucket b lies in host_gradient; for the reducer's thread (context: the executor), and without
 * one. */
tandem_status tandem_transfer_wait_bucket(void *context, int b, tandem_error *error);
tandem_status tandem_transfer_update_bucket(const tandem_executor *executor, int b, int64_t t,
                                            tandem_error *error);
/* Of n buckets from b on, whose gradients stay on the device, in one launch. */
tandem_status tandem_transfer_update_buckets(const tandem_executor *executor, int b, int n, int64_t t,
                                             tandem_error *error);
/* Waits for the device; nonfinite_parameter is known then, and, without task times, the times of the buckets.
 * *loss: this rank's, or, with an all-reduce, that of all ranks. */
tandem_status tandem_transfer_end_step(tandem_executor *executor, float *loss, tandem_error *error);
/* Reads the times of tasks and buckets after the step, so that the step does not take longer. */
tandem_status tandem_transfer_read_times(tandem_executor *executor, tandem_error *error);
/* Whether one launch updates all weights, as it does without an observer. */
int tandem_transfer_updates_at_once(const tandem_executor *executor);
/* Late results (late_results.h). Queues the copies of the step's losses and faults to staging memory, after
 * all that is queued. Waits for them: *loss; nonfinite_parameter is known then. */
tandem_status tandem_transfer_queue_results(const tandem_executor *executor, tandem_error *error);
tandem_status tandem_transfer_read_results(tandem_executor *executor, float *loss, tandem_error *error);
