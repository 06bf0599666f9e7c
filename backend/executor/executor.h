/* executor.h: the state of an executor, shared by the files of this folder. */
#pragma once

#include "backend/device/device_memory.h"
#include "backend/device/resident.h"
#include "backend/executor/amax_histories.h"
#include "backend/executor/batchnorm_stats.h"
#include "backend/executor/device_graphs.h"
#include "backend/executor/grad_scaler.h"
#include "backend/executor/late_results.h"
#include "base/arena.h"
#include "tandem/kernels.h"

/* Arguments of kernels that change in each step. They lie in device memory, and each step copies them there,
 * because a device graph keeps all other arguments. */
typedef struct tandem_step_args {
    uint32_t micro_index, step_index; /* of the step's first micro-step, and of the step */
    float loss_scale;
    float rates[3]; /* as tandem_device_backend.update takes them */
} tandem_step_args;

struct tandem_executor {
    tandem_worker *worker;
    tandem_executor_options options;
    const tandem_step *step;
    const tandem_graph *graph;
    tandem_optimizer_options optimizer;
    tandem_data data; /* what options.data leads to: a copy that fits the model */
    uint64_t data_seed;
    tandem_emulation emulation; /* where options.emulation is given */

    /* memory */
    tandem_memory memory; /* the plan */
    uint64_t allocated;   /* bytes that the plan counts */
    tandem_resident resident;
    uint64_t free_before_bytes; /* on the device, before the plan's memory was taken; 0 = not known */
    struct {
        tandem_memory_location location;
        void *memory;
    } owned[16]; /* memory that tandem_executor_alloc gave */
    int n_owned;
    float *weight, *gradient;     /* flat arrays, [step->n_flat] */
    float *state[2];              /* flat arrays, or of this rank's shards alone (tandem_step_shard) */
    tandem_shard *shard;          /* [step->n_bucket] */
    size_t *border;               /* [step->n_bucket][n_rank + 1] of shards; NULL without sharding */
    struct sharded_result *found; /* [n_rank] what ranks have found in a step; NULL without sharding */
    float *host_gradient; /* `gradient`, or a copy on the host; NULL: the host neither reduces nor clips */
    unsigned char *arena;
    tandem_amax_histories histories;
    tandem_executor *evaluator; /* forward-only, in fp32, with these weights and this arena; NULL: none */
    tandem_step *evaluator_step;
    int is_evaluation; /* this executor is another one's evaluator */

    /* tables: one entry per task, NULL or unset where the task is not active or runs no kernel */
    tandem_arena tables;
    tandem_kernel **kernel;
    tandem_kernel_call *call;
    uint64_t *workspace;
    int64_t *workspace_offset;
    int64_t *offset;                 /* [n_value] in the arena, or in the gradients (tandem_memory_plan) */
    float *scale;                    /* [n_value] of values of one byte per element, in device memory */
    unsigned char *has_weight_decay; /* [n_parameter] */
    int loss_forward_task, loss_dgrad_task;
    int *active; /* ids of the active tasks, in order */
    int n_active;
    int n_backward; /* active tasks before the norm of all gradients or the first update */
    int n_run;      /* active tasks of a step: all, or those before the first update */
    int *n_merged;  /* [n_active] how many tasks a launch at this place does; 1 where nothing is merged */

    /* the batch */
    const tandem_kernels *noise_kernels;
    int32_t *label;             /* (batch, length) */
    void *input;                /* the input tensor in the arena, or staging memory for it */
    int64_t loaded_micro_index; /* the micro-step whose batch lies in `input` and `label`; −1 = none */
    tandem_data_cursor own_cursor, *cursor; /* of the lender, or its own */

    /* with device memory only (transfer.h), else NULL */
    float *micro_loss; /* [n_micro] of this step, on the host; with late results on the device */
    tandem_step_args *step_args, *staged_step_args; /* staged: of two steps */
    tandem_late_results late;
    tandem_device_graphs graphs;
    unsigned char *staged_slots;    /* what image_slots have, on the host (image_input.h); NULL: not used */
    tandem_image_slots image_slots; /* micro: 0 */
    unsigned char *decay_mask;      /* [n_flat / 16] whether these weights decay */
    unsigned char
        *host_copy;         /* of arena, weights and gradients, for executor_value; NULL until it is asked */
    int64_t timed_until_ns; /* the end of the last task whose time was read */
    int64_t busy_ns;        /* of the last step: from its begin event to the end of its last task */
    int64_t host_overhead_ns; /* of that step: its time on the host beyond busy_ns */

    /* the step */
    tandem_reducer *reducer;
    tandem_step_times times;
    tandem_batchnorm_stats batchnorm_stats; /* an evaluator's: the mean over the ranks */
    tandem_grad_scaler grad_scaler;
    float loss;              /* over the micro-steps so far */
    int nonfinite_parameter; /* whose gradient is not finite in this step; −1 = none */
    tandem_observer *observer;
    void *observer_context;
};

/* --- prepare.c, open.c, step.c, evaluate.c, memory_check.c, …: the functions of backend.h --------------- */
/* Where a value lies. */
unsigned char *tandem_executor_place(const tandem_executor *executor, int id);
tandem_status tandem_executor_open(tandem_executor **executor, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
tandem_status tandem_executor_plan(tandem_memory *memory, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
void tandem_executor_close(tandem_executor *executor);
tandem_status tandem_executor_step(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error);
tandem_status tandem_executor_settle(tandem_executor *executor, double *loss, tandem_error *error);
int tandem_executor_is_pending(const tandem_executor *executor);
tandem_status tandem_executor_set_emulation(tandem_executor *executor, const tandem_emulation *emulation,
                                            tandem_error *error);
tandem_status tandem_executor_get_weights(const tandem_executor *executor, float *weight,
                                          tandem_error *error);
tandem_status tandem_executor_get_mean_squares(const tandem_executor *executor, float *mean_square,
                                               tandem_error *error);
float *tandem_executor_weights(tandem_executor *executor);
float *tandem_executor_mean_squares(tandem_executor *executor);
void *tandem_executor_spare(const tandem_executor *executor, uint64_t *bytes);
tandem_status tandem_executor_put_weights(tandem_executor *executor, const float *weight,
                                          tandem_error *error);
tandem_status tandem_executor_evaluate(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       tandem_evaluation *seen, tandem_error *error);
tandem_status tandem_executor_save(tandem_executor *executor, const char *path, int64_t step,
                                   const char *train_config, tandem_error *error);
tandem_status tandem_executor_restore(tandem_executor *executor, const char *path,
                                      tandem_checkpoint_info *info, tandem_error *error);
tandem_status tandem_executor_import(tandem_executor *executor, const char *path, tandem_error *error);
tandem_status tandem_executor_export(tandem_executor *executor, const char *path, tandem_error *error);
tandem_status tandem_tensors_inspect(char said[TANDEM_TENSORS_SAID], const char *path,
                                     const tandem_graph *graph, tandem_error *error);
tandem_status tandem_executor_benchmark_product(const tandem_executor *executor, int task, int use_library,
                                                int64_t *sample_ns, int n, tandem_error *error);
const void *tandem_executor_value(tandem_executor *executor, int value, int gradient, float *scale);

/* Keeps a copy of a data set that shows its samples as the model takes them (tandem_data_fit); NULL: noise.
 * Unchanged on error. */
tandem_status tandem_executor_take_data(tandem_executor *executor, const tandem_data *data,
                                        tandem_error *error);
/* Makes tables, kernels and the memory plan, but no memory; with options->with_evaluation the evaluator's
 * too. */
tandem_status tandem_executor_prepare(tandem_executor **executor, tandem_worker *worker,
                                      const tandem_executor_options *options, int forward_only,
                                      tandem_error *error);
/* All ranks: checks that the plan fits into memory, as executor_open of backend.h says. */
tandem_status tandem_executor_check_memory(const tandem_executor *executor, tandem_error *error);
/* After the second step of a device with its own memory: sets what the process takes beside the plan. Cost:
 * some 50 us. */
void tandem_executor_note_unplanned(const tandem_executor *executor);
/* All ranks: gives every rank the status and error of rank 0. */
tandem_status tandem_executor_share_status(const tandem_executor *executor, tandem_status status,
                                           tandem_error *own, tandem_error *error);

/* --- memory.c ------------------------------------------------------------------------------------------- */
tandem_status tandem_executor_no_memory(const tandem_executor *executor, tandem_error *error);
/* Cleared memory, which closing the executor frees. Where *status is not TANDEM_OK, it allocates nothing and
 * returns NULL; where it fails, it sets *status. */
void *tandem_executor_alloc(tandem_executor *executor, tandem_memory_location location, uint64_t bytes,
                            tandem_status *status, tandem_error *error);
/* The same for flat arrays on the host that ranks exchange: in shared memory where they share any. Returns
 * NULL on error. Of gradients, host_gradient; of weights, those of sharded states. */
float *tandem_executor_alloc_shared(tandem_executor *executor, tandem_status *status, tandem_error *error);

/* --- norm.c --------------------------------------------------------------------------------------------- */
/* The sum of squares of all gradients, which the host has. All ranks, with sharding. A double holds it: it is
 * finite exactly if all gradients are. */
tandem_status tandem_executor_sum_squares(double *sum, const tandem_executor *executor, tandem_error *error);

/* --- sharding.c ----------------------------------------------------------------------------------------- */
/* The tables `shard` and `border`. TANDEM_USAGE: a sharding of other ranks, or on a device with memory of its
 * own. */
tandem_status tandem_executor_open_shards(tandem_executor *executor, tandem_error *error);
/* Updates this rank's shard of parameter p, or all of it. After a gradient that is not finite nothing is
 * updated. */
void tandem_executor_update_parameter(tandem_executor *executor, int p, int b, int64_t index);
/* Divides this rank's gradients by the loss scale, and clips them. All ranks, with sharding. */
tandem_status tandem_executor_unscale_and_clip(tandem_executor *executor, tandem_error *error);
/* All ranks, with sharding: waits until all weights are there, and sets the loss and nonfinite_parameter as
 * the ranks have found them. */
tandem_status tandem_executor_end_sharded_step(tandem_executor *executor, int64_t origin, float *loss,
                                               tandem_error *error);
/* All ranks: gathers array k of the optimizer's state into the gradients' memory, which is free between
 * steps; and takes this rank's shards from there. */
tandem_status tandem_executor_gather_state(tandem_executor *executor, int k, tandem_error *error);
void tandem_executor_take_state(tandem_executor *executor, int k);

/* --- run.c ---------------------------------------------------------------------------------------------- */
/* Runs the active tasks first … end − 1. micro_index counts micro-steps over all steps; origin: when the step
 * began. */
tandem_status tandem_executor_run_tasks(tandem_executor *executor, int first, int end, int64_t micro_index,
                                        int64_t origin, tandem_error *error);
/* How many active tasks, from number k on, are one launch now: 1 for who looks between tasks. */
static inline int tandem_executor_merged(const tandem_executor *executor, int k)
{
    const int is_update = executor->step->task[executor->active[k]].kind == TANDEM_TASK_UPDATE;
    return executor->observer || (is_update && executor->host_gradient) ? 1 : executor->n_merged[k];
}
/* Runs one task of the compute stream. */
tandem_status tandem_executor_run_task(tandem_executor *executor, int task, int64_t micro_index,
                                       tandem_error *error);

/* Whether this rank keeps shards of the optimizer's state. */
static inline int tandem_executor_is_sharded(const tandem_executor *executor)
{
    return executor->step->options.sharding.stage > 0;
}

/* Bytes of an array of the optimizer's state. */
static inline uint64_t tandem_executor_state_bytes(const tandem_executor *executor)
{
    return (uint64_t)tandem_step_shard_elements(executor->step) * sizeof(float);
}

/* Bytes of a flat array. */
static inline uint64_t tandem_executor_flat_bytes(const tandem_executor *executor)
{
    return (uint64_t)executor->step->n_flat * sizeof(float);
}

/* Whether batches are images that a device with its own memory gets as bytes (image_input.h). */
static inline int tandem_executor_sends_images(const tandem_executor *executor)
{
    const tandem_data *data = executor->options.data;
    return data && data->kind == TANDEM_DATA_IMAGES && !data->is_f32 && !executor->is_evaluation &&
           executor->worker->backend->fill_images;
}

/* Whether gradients are summed over the ranks. */
static inline int tandem_executor_has_all_reduce(const tandem_executor *executor)
{
    return executor->worker->comm && !executor->options.without_all_reduce;
}

/* The spare element of bucket 0, in which the all-reduce sums the loss. */
static inline float *tandem_executor_loss_slot(const tandem_executor *executor)
{
    const tandem_bucket *bucket = &executor->step->bucket[0];
    return executor->host_gradient + bucket->start + bucket->elements - 1;
}

/* The index in the global batch of a micro-step's first sample of this rank. */
static inline int64_t tandem_executor_first_sample(const tandem_executor *executor, int64_t micro_index)
{
    return executor->options.first_sample +
           micro_index % executor->step->options.n_micro * executor->graph->batch;
}

/* Steps that updated the weights, step `index` included. */
static inline int64_t tandem_executor_applied_steps(const tandem_executor *executor, int64_t index)
{
    return index + 1 - executor->grad_scaler.loss_scale.skipped;
}
