#include "backend/executor/image_input.h"

#include <stdlib.h>
#include <string.h>

#include "backend/executor/transfer.h"

enum { N_SLOT = 2, ALIGNMENT = 64 };

static uint64_t align_slot(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t image_bytes(const tandem_data *data)
{
    return (uint64_t)data->height * (uint64_t)data->width * (uint64_t)data->channels;
}

static uint64_t label_offset(const tandem_executor *executor)
{
    return align_slot((uint64_t)executor->graph->batch * image_bytes(executor->options.data));
}

static uint64_t slot_bytes(const tandem_executor *executor)
{
    return align_slot(label_offset(executor) + (uint64_t)executor->graph->batch * sizeof(int32_t));
}

uint64_t tandem_image_input_staging_bytes(const tandem_executor *executor)
{
    return tandem_executor_sends_images(executor) ? N_SLOT * slot_bytes(executor) : 0;
}

/* The model's rows and columns, each with where it lies in the data's images. */
static uint64_t blend_bytes(const tandem_executor *executor)
{
    const int64_t *dim = executor->graph->op[executor->graph->input].shape.dim;
    return (uint64_t)(dim[1] + dim[2]) * sizeof(tandem_pixel_blend);
}

uint64_t tandem_image_input_device_bytes(const tandem_executor *executor)
{
    const uint64_t slots = tandem_image_input_staging_bytes(executor);
    return slots ? slots + blend_bytes(executor) : 0;
}

tandem_status tandem_image_input_open(tandem_executor *executor, tandem_error *error)
{
    const tandem_data *data = executor->options.data;
    const int64_t *dim = executor->graph->op[executor->graph->input].shape.dim;
    const uint64_t slots = tandem_image_input_staging_bytes(executor), blends = blend_bytes(executor);
    tandem_status status = TANDEM_OK;
    executor->staged_slots = tandem_executor_alloc(executor, TANDEM_STAGING_MEMORY, slots, &status, error);
    unsigned char *there =
        tandem_executor_alloc(executor, TANDEM_DEVICE_MEMORY, slots + blends, &status, error);
    void *view = NULL;
    if (status == TANDEM_OK)
        status = tandem_worker_view(&view, executor->worker, there + slots, blends, 0, error);
    if (status != TANDEM_OK) return status;
    tandem_pixel_blend *row = view, *const device_row = (tandem_pixel_blend *)(void *)(there + slots);
    tandem_data_blends(row, dim[1], data->height);
    tandem_data_blends(row + dim[1], dim[2], data->width);
    executor->image_slots = (tandem_image_slots){.slots = there,
                                                 .slot_bytes = slot_bytes(executor),
                                                 .label_offset = label_offset(executor),
                                                 .micro_index = &executor->step_args->micro_index,
                                                 .height = data->height,
                                                 .width = data->width,
                                                 .channels = data->channels,
                                                 .mean = data->mean,
                                                 .deviation = data->deviation,
                                                 .blend_of_row = device_row,
                                                 .blend_of_column = device_row + dim[1]};
    return tandem_worker_end_view(executor->worker, view, there + slots, blends, 1, error);
}

void tandem_image_input_close(const tandem_executor *executor)
{
    for (int slot = 0; executor->staged_slots && slot < N_SLOT; slot++)
        (void)tandem_transfer_wait_copy_of_slot(executor, slot, NULL);
}

static unsigned char *staged_slot(const tandem_executor *executor, int64_t micro_index)
{
    return executor->staged_slots + (uint64_t)(micro_index % N_SLOT) * executor->image_slots.slot_bytes;
}

void tandem_image_input_fill(tandem_executor *executor, int64_t micro_index, int64_t b, int64_t sample)
{
    unsigned char *slot = staged_slot(executor, micro_index);
    int32_t *label = (int32_t *)(void *)(slot + executor->image_slots.label_offset);
    tandem_data_read_pixels(executor->options.data, sample,
                            slot + (uint64_t)b * image_bytes(executor->options.data), &label[b]);
}

tandem_status tandem_image_input_send(const tandem_executor *executor, int64_t micro_index,
                                      tandem_error *error)
{
    const uint64_t bytes = executor->image_slots.slot_bytes;
    const int slot = (int)(micro_index % N_SLOT);
    unsigned char *to = (unsigned char *)(uintptr_t)executor->image_slots.slots + (uint64_t)slot * bytes;
    return tandem_transfer_send_slot(executor, slot, to, staged_slot(executor, micro_index), bytes, error);
}

tandem_status tandem_image_input_run(const tandem_executor *executor, int op, int64_t micro_index,
                                     tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    const tandem_device_backend *backend = executor->worker->backend;
    const int is_input = op == graph->input, micro = (int)(micro_index % executor->step->options.n_micro);
    const tandem_dtype dtype = is_input ? TANDEM_F32 : TANDEM_S32;
    void *to = executor->arena + executor->offset[tandem_value_activation(executor->step, op, dtype)];
    const int64_t *dim = graph->op[graph->input].shape.dim;
    tandem_image_slots slots = executor->image_slots;
    slots.micro = (uint32_t)micro;
    const tandem_status status =
        is_input ? backend->fill_images(executor->worker->device, to, dim, &slots, error)
                 : backend->fill_labels(executor->worker->device, to, graph->batch, &slots, error);
    return status == TANDEM_OK ? tandem_transfer_take_slot(executor, micro, !is_input, error) : status;
}
