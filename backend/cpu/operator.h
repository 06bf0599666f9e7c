/* operator.h: how an operator runs on the CPU. Each operator has a file in backend/cpu/op/ that ends in one
 * row.
 *
 * `prepare` reads the task (kind: forward, wgrad or dgrad; precision; from, to) and the operator of the
 * graph. It makes what the kernel needs, such as oneDNN primitives in user scratchpad mode, and sets run,
 * workspace_bytes and state. All data are contiguous and row-major (weights as in graph.h). If a primitive
 * wants a blocked layout, the kernel reorders its operands, with buffers in the workspace. */
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/isa_kernels.h"
#include "tandem/advanced/device_backend.h"
#include "tandem/advanced/step.h"

typedef struct cpu_device {
    char name[TANDEM_DEVICE_NAME];
    int n_core;
    /* What operators call: `divided`, or with one core the table itself. */
    const tandem_isa_kernels *isa;
    const tandem_isa_kernels *one_thread; /* the table itself, for a part of what is divided already */
    tandem_isa_kernels divided;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} cpu_device;

typedef tandem_status cpu_kernel_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error);

struct tandem_kernel {
    const cpu_device *device;
    const tandem_graph *graph;
    const tandem_op *op; /* NULL for update */
    tandem_task task;    /* a copy: kind, precision, from, to; where emulated, in f32 but for casts */
    int is_emulated;
    tandem_attention attention; /* of one that is one task, and what that writes */
    tandem_dtype written[TANDEM_TASK_WRITES];
    uint64_t workspace_bytes;
    void *state; /* of the operator; `destroy` frees it */
    void (*destroy)(void *state);
    cpu_kernel_run *run;
};

typedef struct cpu_operator {
    /* Fills workspace_bytes, state, destroy and run of a kernel whose other fields are set. An error
     * allocates nothing. */
    tandem_status (*prepare)(tandem_kernel *kernel, tandem_error *error);
    /* Without `prepare`: what runs. The tasks read and write one float type, f32 or bf16. */
    cpu_kernel_run *forward, *dgrad;
} cpu_operator;

/* One row per operator of op.def that runs a kernel (sources and reshape run none). */
#define ROW(NAME, name, ...) extern const cpu_operator cpu_##name;
#include "tandem/op.def"
#undef ROW

/* Casts: backend/cpu/cast.c; accumulate: backend/cpu/op/add.c; an attention that is one task
 * (tandem_step_attention): backend/cpu/op/attention.c */
extern const cpu_operator cpu_cast, cpu_accumulate, cpu_attention;

/* The device backend itself: backend/cpu/cpu.c */
extern const tandem_device_backend tandem_cpu_backend;
