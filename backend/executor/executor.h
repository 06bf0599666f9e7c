/* executor.h: what an executor holds, shared by the files that open it, run it and evaluate with it. */
#ifndef TANDEM_BACKEND_EXECUTOR_H
#define TANDEM_BACKEND_EXECUTOR_H

#include "backend/device/device_memory.h"
#include "backend/executor/grad_scaler.h"
#include "backend/executor/device_graphs.h"
#include "backend/executor/noise.h"
#include "backend/device/resident.h"
#include "backend/executor/batchnorm_stats.h"
#include "backend/executor/amax_histories.h"
#include "backend/device/worker.h"

/* What kernels are told anew in each step. Of a device with memory of its own it lies there, and is brought
 * there at a step's begin: a graph has its other arguments for good. */
typedef struct tandem_step_args {
    uint32_t micro_index, step_index; /* of the step's first micro-step, and of the step */
    float loss_scale;
    float rates[3]; /* as tandem_device_backend.update has them */
} tandem_step_args;

struct tandem_executor {
    tandem_worker *worker;
    tandem_executor_options options;
    const tandem_step *step;
    const tandem_graph *graph;
    tandem_optimizer_options optimizer;

    /* memory: all that the plan counts */
    tandem_memory memory;
    uint64_t allocated;
    tandem_resident resident;            /* since before it was opened */
    float *weight, *gradient, *state[2]; /* flat arrays, [step->n_flat] */
    unsigned char *arena;
    tandem_amax_histories histories;
    /* for evaluations: of the same graph in fp32, in this arena; NULL: there will be none */
    tandem_executor *evaluator;
    tandem_step *evaluator_step;
    /* it is the `forward` of the executor that trains, and has its weights and its arena */
    int is_evaluation;

    /* one of each a task; NULL or unset where it is not active or runs no kernel */
    tandem_kernel **kernel;
    tandem_kernel_call *call;
    uint64_t *workspace;
    int64_t *workspace_offset;
    int64_t *offset; /* [n_value] in the arena */
    float *scale;    /* [n_value] of s8, e4m3 and e5m2, where the device has its memory */
    int loss_forward_task, loss_dgrad_task; /* tasks of the loss */
    int *active;                            /* ids of active tasks, in order */
    int n_active;

    const tandem_noise *noise_kernels;
    int32_t *label; /* (batch, length) of the step's samples, filled with the inputs */
    void *input;    /* where a batch is put together: in the arena, or on its way to the device */
    /* what is reduced and judged: `gradient`, or a copy on the host; NULL: neither is done there */
    float *host_gradient;
    /* of a device that has memory of its own (transfer.h), else NULL */
    float *micro_loss; /* [n_micro] of this step, as far as they have come back */
    tandem_step_args *step_args, *staged_step_args; /* on the device; where the host writes it */
    tandem_device_graphs graphs;
    unsigned char *decay_mask; /* [n_flat / 16] on the device: whether these weights decay */
    /* of arena, weights and gradients, for who asks for values; NULL while nobody did */
    unsigned char *host_copy;
    int64_t timed_until_ns; /* tasks of this step */
    int64_t busy_ns; /* of the last step, from where its begin was marked to the end of its last task */
    int64_t host_overhead_ns;   /* what that step took besides, on the host's side */
    int64_t loaded_micro_index; /* the micro-step whose batch lies in `input` and `label`; −1 = none */
    tandem_data_cursor cursor;
    tandem_reducer *reducer;
    tandem_step_times times;
    /* running ones of batchnorms; of an evaluation: the mean over the ranks */
    tandem_batchnorm_stats batchnorm_stats;
    tandem_grad_scaler grad_scaler;
    unsigned char *has_weight_decay; /* [n_parameter] whether weight decay applies */
    float loss;                      /* of this step, over the micro-steps so far */
    int nonfinite_parameter;         /* parameter whose gradient is not, in this step; −1 = all are */
    tandem_observer *observer;
    void *observer_context;
};

tandem_status tandem_executor_open(tandem_executor **executor, tandem_worker *worker,
                                   const tandem_executor_options *options, tandem_error *error);
void tandem_executor_close(tandem_executor *executor);
tandem_status tandem_executor_step(tandem_executor *executor, int64_t index, double *loss,
                                   tandem_error *error);
tandem_status tandem_executor_evaluate(tandem_executor *executor, const tandem_data *data, int64_t n,
                                       int64_t *correct, int64_t *total, tandem_error *error);

/* Opens what a step program needs, but its memory: tables, kernels, the memory plan; with
 * options->with_evaluation, for evaluations, too. */
tandem_status tandem_executor_prepare(tandem_executor **executor, tandem_worker *worker,
                                      const tandem_executor_options *options, int forward_only,
                                      tandem_error *error);
/* Whether what was prepared fits: agreed upon by all ranks, see executor_open in backend.h (memory_check.c).
 * */
tandem_status tandem_executor_check_memory(const tandem_executor *executor, tandem_error *error);

tandem_status tandem_executor_save(tandem_executor *executor, const char *path, int64_t step,
                                   const char *train_config, tandem_error *error);
tandem_status tandem_executor_restore(tandem_executor *executor, const char *path,
                                      tandem_checkpoint_info *info, tandem_error *error);

/* Weights and running statistics from and to files of safetensors (executor_tensors.c); see backend.h. */
tandem_status tandem_executor_import(tandem_executor *executor, const char *path, tandem_error *error);
tandem_status tandem_executor_export(tandem_executor *executor, const char *path, tandem_error *error);
tandem_status tandem_tensors_inspect(const char *path, const tandem_graph *graph, tandem_error *error);
/* What rank 0 has done is what all have done: its status and the text, on every rank; rank 0 tells it. */
tandem_status tandem_executor_share_status(const tandem_executor *executor, tandem_status status,
                                           tandem_error *own, tandem_error *error);

/* Whether gradients are summed over ranks. */
static inline int tandem_executor_has_all_reduce(const tandem_executor *executor)
{
    return executor->worker->comm && !executor->options.without_all_reduce;
}

/* All gradients, on the host: where the other ranks reach them, if they are exchanged. Cleared. */
tandem_status tandem_executor_alloc_gradients(float **gradient, tandem_executor *executor,
                                              tandem_error *error);

/* The spare element of bucket 0, which takes the loss through the all-reduce. */
static inline float *tandem_executor_loss_slot(const tandem_executor *executor)
{
    const tandem_bucket *bucket = &executor->step->bucket[0];
    return executor->host_gradient + bucket->start + bucket->elements - 1;
}

/* A product by itself (executor_benchmark.c): executor_benchmark_product of backend.h. */
tandem_status tandem_executor_benchmark_product(const tandem_executor *executor, int task, int use_library,
                                                int64_t *sample_ns, int n, tandem_error *error);

/* Data behind a value: executor_value of backend.h. */
const void *tandem_executor_value(tandem_executor *executor, int value, int gradient, float *scale);

/* The place in the global batch of a micro-step's first sample of this rank. */
static inline int64_t tandem_executor_first_sample(const tandem_executor *executor, int64_t micro_index)
{
    return executor->options.first_sample +
           micro_index % executor->step->options.n_micro * executor->graph->batch;
}
/* The place of the first active task behind the passes: of the norm of all gradients, or an update. */
int tandem_executor_n_backward(const tandem_executor *executor);
/* Runs the active tasks from place `first` on, to `end`; origin: when the step began. */
tandem_status tandem_executor_run_tasks(tandem_executor *executor, int first, int end, int64_t micro_index,
                                        int64_t origin, tandem_error *error);
/* Runs one task of the compute stream that has a kernel; `micro_index` numbers micro-steps through all steps:
 * it decides draws. */
tandem_status tandem_executor_run_task(tandem_executor *executor, int task, int64_t micro_index,
                                       tandem_error *error);

#endif
