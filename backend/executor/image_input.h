/* image_input.h: images of a data set on their way to a device with its own memory: as bytes, on a stream of
 * their own, normalised there. Two slots take turns, by the parity of the micro-step: while the device
 * computes with one, the next batch is copied to the other. */
#pragma once

#include "backend/executor/executor.h"

/* Device memory, beside the plan, and page-locked memory of the host; 0 where batches do not go so
 * (tandem_executor_sends_images). The functions below are not called there, but close. */
uint64_t tandem_image_input_device_bytes(const tandem_executor *executor);
uint64_t tandem_image_input_staging_bytes(const tandem_executor *executor);
tandem_status tandem_image_input_open(tandem_executor *executor, tandem_error *error);
/* Waits until no copy reads or writes the slots, which are freed after that. */
void tandem_image_input_close(const tandem_executor *executor);
/* Puts the pixels and the label of training sample number `sample` at index b of a micro-step's slot. */
void tandem_image_input_fill(tandem_executor *executor, int64_t micro_index, int64_t b, int64_t sample);
/* Queues the copy of the micro-step's slot; slot_bytes of it. */
tandem_status tandem_image_input_send(const tandem_executor *executor, int64_t micro_index,
                                      tandem_error *error);
/* Queues the kernel that writes the input tensor, or the labels. */
tandem_status tandem_image_input_run(const tandem_executor *executor, int op, int64_t micro_index,
                                     tandem_error *error);
