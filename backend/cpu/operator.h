/* operator.h: how an operator is implemented on the CPU: one file each in backend/cpu/op/, ending in one row.
 *
 * `prepare` looks at the task (kind: forward, wgrad or dgrad; precision; from, to) and at the operator of the
 * graph, makes what it needs (oneDNN primitives, in user scratchpad mode so that the scratchpad is part of
 * our workspace), and sets run, workspace_bytes and state. Everything is contiguous row-major (weights as in
 * graph.h); a primitive that wants a blocked layout is wrapped with its reorders inside the kernel, and their
 * buffers are workspace. */
#ifndef TANDEM_BACKEND_CPU_OPERATOR_H
#define TANDEM_BACKEND_CPU_OPERATOR_H

#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/isa_kernels.h"
#include "tandem/advanced/device_backend.h"

typedef struct cpu_device {
    char name[TANDEM_DEVICE_NAME];
    const tandem_isa_kernels *isa;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} cpu_device;

struct tandem_kernel {
    const cpu_device *device;
    const tandem_graph *graph;
    const tandem_op *op; /* NULL for update */
    tandem_task task;    /* a copy: kind, precision, from, to */
    uint64_t workspace_bytes;
    void *state; /* of the operator; released by `destroy` */
    void (*destroy)(void *state);
    tandem_status (*run)(const tandem_kernel *kernel, const tandem_kernel_call *call, tandem_error *error);
};

typedef struct cpu_operator {
    /* Fills workspace_bytes, state, destroy, run of a kernel whose other fields are set. On error nothing is
     * left behind. */
    tandem_status (*prepare)(tandem_kernel *kernel, tandem_error *error);
} cpu_operator;

/* One row for each operator of op.def that runs a kernel (sources and reshape run none). */
#define ROW(NAME, name, ...) extern const cpu_operator cpu_##name;
#include "tandem/op.def"
#undef ROW

/* Casts: backend/cpu/cast.c; accumulate: backend/cpu/op/add.c */
extern const cpu_operator cpu_cast, cpu_accumulate;

/* The device backend itself: backend/cpu/cpu.c */
extern const tandem_device_backend tandem_cpu_backend;

#endif
