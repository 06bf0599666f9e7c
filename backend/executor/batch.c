/* batch.c: reads or generates the samples of a micro-step and brings them to the device. */
#include "backend/executor/batch.h"

#include <string.h>

#include "backend/executor/image_input.h"
#include "backend/executor/transfer.h"
#include "kernels/cpu/isa_kernels.h"
#include "base/philox.h"

/* --- A sample ------------------------------------------------------------------------------------------- */

static uint64_t input_sample_bytes(const tandem_graph *graph)
{
    const int64_t n = tandem_shape_elements(&graph->op[graph->input].shape) / graph->batch;
    return (uint64_t)n * 4; /* f32 or s32 */
}

static void *input_sample_at(const tandem_executor *executor, int64_t b)
{
    return (char *)executor->input + (uint64_t)b * input_sample_bytes(executor->graph);
}

/* Whether the device generates the inputs: noise, while it trains. */
static int is_noise_on_device(const tandem_executor *executor)
{
    const int is_noise =
        !executor->options.data && executor->graph->op[executor->graph->input].dtype == TANDEM_F32;
    return is_noise && executor->step_args != NULL;
}

/* Without a data set: uniform inputs and labels, so that no kernel meets denormals or an empty range. */
static void fill_noise_sample(tandem_executor *executor, int64_t b, int64_t sample)
{
    const tandem_graph *graph = executor->graph;
    const tandem_op *input = &graph->op[graph->input];
    const int64_t n = tandem_shape_elements(&input->shape) / graph->batch;
    const uint32_t stream[3] = {(uint32_t)sample, 0, TANDEM_RNG_SHUFFLE};
    void *to = input_sample_at(executor, b);
    if (input->dtype == TANDEM_F32 && !is_noise_on_device(executor))
        executor->noise_kernels->noise_f32(to, (size_t)n, executor->data_seed, stream);
    tandem_philox_block block = {{0}};
    for (int64_t i = 0; i < n && input->dtype == TANDEM_S32; i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), stream[0], stream[1], stream[2]};
        if (i % 4 == 0) block = tandem_philox(counter, executor->data_seed);
        ((int32_t *)to)[i] = (int32_t)(block.word[i % 4] % (uint32_t)graph->vocabulary);
    }
    for (int64_t i = 0; i < graph->length; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)sample, 1, TANDEM_RNG_SHUFFLE};
        const uint32_t word = tandem_philox(counter, executor->data_seed).word[0];
        executor->label[b * graph->length + i] = (int32_t)(word % (uint32_t)graph->n_class);
    }
}

/* Reads an image in the model's size. */
static void read_image_resized(const tandem_executor *executor, int test, int64_t sample, float *x,
                               int32_t *label)
{
    const tandem_data *data = executor->options.data;
    const int64_t *dim = executor->graph->op[executor->graph->input].shape.dim;
    const int height = (int)dim[1], width = (int)dim[2], channels = (int)dim[3];
    if (height == data->height && width == data->width && channels == data->channels)
        tandem_data_read_image(data, test, sample, x, label);
    else
        tandem_data_read_resized(data, test, sample, height, width, channels, x, label);
}

void tandem_batch_fill_sample(tandem_executor *executor, int test, int64_t b, int64_t sample)
{
    const tandem_graph *graph = executor->graph;
    const tandem_data *data = executor->options.data;
    int32_t *label = executor->label + b * graph->length;
    void *to = input_sample_at(executor, b);
    if (!data)
        fill_noise_sample(executor, b, sample);
    else if (data->kind == TANDEM_DATA_IMAGES)
        read_image_resized(executor, test, sample, to, label);
    else if (graph->length == data->length && !data->labels_train)
        tandem_data_read_text(data, test, sample, to, label);
    else
        tandem_data_read_text_class(data, test, sample, to, label);
    if (graph->n_masked) /* the last token of the vocabulary masks a token */
        tandem_data_mask(to, label, graph->length, graph->n_masked, (int32_t)graph->vocabulary - 1,
                         data ? data->n_symbol : graph->vocabulary, executor->data_seed, sample);
}

/* --- A batch -------------------------------------------------------------------------------------------- */

tandem_status tandem_batch_wait_copied(const tandem_executor *executor, tandem_error *error)
{
    return tandem_worker_has_device_memory(executor->worker) ? tandem_transfer_wait_input(executor, error)
                                                             : TANDEM_OK;
}

tandem_status tandem_batch_copy_to_device(const tandem_executor *executor, tandem_error *error)
{
    if (!tandem_worker_has_device_memory(executor->worker)) return TANDEM_OK;
    const tandem_graph *graph = executor->graph;
    const int id = tandem_value_activation(executor->step, graph->input, TANDEM_F32);
    return tandem_transfer_copy_to_device(executor, 0, executor->arena + executor->offset[id],
                                          executor->input, (uint64_t)graph->batch * input_sample_bytes(graph),
                                          error);
}

tandem_status tandem_batch_load(tandem_executor *executor, int64_t micro_index, tandem_error *error)
{
    const tandem_executor_options *options = &executor->options;
    const int64_t index = micro_index / executor->step->options.n_micro;
    const int64_t first = tandem_executor_first_sample(executor, micro_index);
    if (executor->loaded_micro_index == micro_index) return TANDEM_OK;
    executor->loaded_micro_index = -1;
    const int has_slots = executor->staged_slots != NULL;
    const tandem_status waited = has_slots ? tandem_transfer_wait_slot(executor, micro_index, error)
                                           : tandem_batch_wait_copied(executor, error);
    if (waited != TANDEM_OK) return waited;
    for (int64_t b = 0; b < executor->graph->batch; b++) {
        int64_t sample = index * options->global_batch + first + b;
        if (options->data) {
            const tandem_status status =
                tandem_data_sample(&sample, executor->cursor, options->data, executor->data_seed, index,
                                   options->global_batch, first + b, error);
            if (status != TANDEM_OK) return status;
        }
        if (has_slots)
            tandem_image_input_fill(executor, micro_index, b, sample);
        else
            tandem_batch_fill_sample(executor, 0, b, sample);
    }
    const tandem_status sent = has_slots ? tandem_image_input_send(executor, micro_index, error) : TANDEM_OK;
    if (sent != TANDEM_OK) return sent;
    /* the arena does not keep it */
    if (tandem_worker_has_device_memory(executor->worker)) executor->loaded_micro_index = micro_index;
    return TANDEM_OK;
}

tandem_status tandem_batch_make_ready(tandem_executor *executor, int64_t micro_index, tandem_error *error)
{
    const tandem_status status = tandem_batch_load(executor, micro_index, error);
    return status == TANDEM_OK && executor->staged_slots ? tandem_transfer_join_input(executor, error)
                                                         : status;
}

/* A later call reports that the data cannot be read. */
tandem_status tandem_batch_prefetch(tandem_executor *executor, int64_t micro_index, tandem_error *error)
{
    if (!tandem_worker_has_device_memory(executor->worker)) return TANDEM_OK;
    const tandem_status status = tandem_batch_load(executor, micro_index, error);
    return status == TANDEM_NO_DEVICE ? status : TANDEM_OK;
}

static tandem_status fill_noise_on_device(const tandem_executor *executor, int64_t micro_index,
                                          tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    const tandem_executor_options *options = &executor->options;
    const int id = tandem_value_activation(executor->step, graph->input, TANDEM_F32);
    return executor->worker->backend->fill_noise(
        executor->worker->device, (float *)(void *)(executor->arena + executor->offset[id]), graph->batch,
        tandem_shape_elements(&graph->op[graph->input].shape) / graph->batch, executor->data_seed,
        (uint32_t)tandem_executor_first_sample(executor, micro_index), (uint32_t)options->global_batch,
        &executor->step_args->step_index, error);
}

tandem_status tandem_batch_run_source(tandem_executor *executor, int op, int64_t micro_index,
                                      tandem_error *error)
{
    const tandem_graph *graph = executor->graph;
    if (op == graph->input) {
        const tandem_status status =
            executor->graphs.is_capturing ? TANDEM_OK : tandem_batch_make_ready(executor, micro_index, error);
        if (status != TANDEM_OK) return status;
        if (executor->staged_slots) return tandem_image_input_run(executor, op, micro_index, error);
        return is_noise_on_device(executor) ? fill_noise_on_device(executor, micro_index, error)
                                            : tandem_batch_copy_to_device(executor, error);
    }
    if (executor->staged_slots) return tandem_image_input_run(executor, op, micro_index, error);
    void *label = executor->arena + executor->offset[tandem_value_activation(executor->step, op, TANDEM_S32)];
    const uint64_t bytes = (uint64_t)(graph->batch * graph->length) * sizeof(int32_t);
    if (tandem_worker_has_device_memory(executor->worker))
        return tandem_transfer_copy_to_device(executor, 1, label, executor->label, bytes, error);
    memcpy(label, executor->label, bytes);
    return TANDEM_OK;
}
