/* cpu.c: the device backend "cpu": one x86-64 core, or several, limited to an instruction set.
 *
 * All work begins on the thread that opened the device. With several cores, that thread and those of
 * OpenMP share it (team.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/executor/adamw.h"
#include "backend/cpu/divided_kernels.h"
#include "backend/cpu/emulate.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/library.h"
#include "backend/cpu/team.h"
#include "base/device_cores.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* oneDNN's instruction set of a device. */
static const struct {
    const char *device;
    dnnl_cpu_isa_t isa;
} onednn_isas[] = {
    {"cpu:sse41", dnnl_cpu_isa_sse41},
    {"cpu:avx", dnnl_cpu_isa_avx},
    {"cpu:avx2", dnnl_cpu_isa_avx2},
    {"cpu:avx2_vnni", dnnl_cpu_isa_avx2_vnni},
    {"cpu:avx512", dnnl_cpu_isa_avx512_core},
    {"cpu:avx512_vnni", dnnl_cpu_isa_avx512_core_vnni},
    {"cpu:avx512_bf16", dnnl_cpu_isa_avx512_core_bf16},
    {"cpu:avx512_amx", dnnl_cpu_isa_avx512_core_amx},
};
enum { N_DEVICE = sizeof onednn_isas / sizeof onednn_isas[0] };

/* A reshape is a view: it has no kernel and no task. */
const cpu_operator cpu_reshape = {.prepare = NULL};

#define KERNELS_OF_SOURCE(name) NULL
#define KERNELS_OF_ADJUSTABLE(name) &cpu_##name
#define KERNELS_OF_DEPENDENT(name) &cpu_##name
#define KERNELS_OF_FIXED(name) &cpu_##name
#define KERNELS_OF_BY_ROWS(name) &cpu_##name
static const cpu_operator *const cpu_operator_rows[N_KERNEL_ROW] = {
#define ROW(NAME, name, class, ...) [TANDEM_OP_##NAME] = KERNELS_OF_##class(name),
#include "tandem/op.def"
#undef ROW
    [KERNEL_ROW_CAST] = &cpu_cast,
    [KERNEL_ROW_ACCUMULATE] = &cpu_accumulate,
};

/* --- The device ----------------------------------------------------------------------------------------- */

static tandem_status find_onednn_isa(dnnl_cpu_isa_t *isa, const char *name, tandem_error *error)
{
    for (int i = 0; i < N_DEVICE; i++)
        if (strcmp(onednn_isas[i].device, name) == 0) {
            *isa = onednn_isas[i].isa;
            return TANDEM_OK;
        }
    return tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                            "there is no device '%s'; allowed: cpu:sse41, cpu:avx, cpu:avx2, cpu:avx2_vnni, "
                            "cpu:avx512, cpu:avx512_vnni, cpu:avx512_bf16",
                            name);
}

/* Limits oneDNN to the instruction set, once per process. */
static tandem_status limit_onednn_isa(dnnl_cpu_isa_t isa, const char *name, tandem_error *error)
{
    /* A second call fails and changes nothing. */
    const int was_unlimited = dnnl_set_max_cpu_isa(isa) == dnnl_success;
    if (dnnl_get_effective_cpu_isa() == isa) return TANDEM_OK;
    if (was_unlimited)
        return tandem_error_set(error, TANDEM_NO_DEVICE,
                                "this machine lacks the instruction set of device '%s'", name);
    return tandem_error_set(error, TANDEM_NO_DEVICE,
                            "device '%s' cannot be opened: oneDNN is held to another instruction set in this "
                            "process, and a process opens one device only",
                            name);
}

static void cpu_close_device(void *device)
{
    cpu_device *cpu = device;
    if (!cpu) return;
    if (cpu->stream) dnnl_stream_destroy(cpu->stream);
    if (cpu->engine) dnnl_engine_destroy(cpu->engine);
    free(cpu);
}

/* The kernels of the device whose name without cores is `base`; 0: there are none. */
static int find_kernels(cpu_device *cpu, const char *base)
{
    cpu->isa = cpu->one_thread = tandem_isa_kernels_find(base + strlen("cpu:"));
    if (!cpu->isa || cpu->n_core == 1) return cpu->isa != NULL;
    cpu_divide_kernels(&cpu->divided, cpu->one_thread);
    cpu->isa = &cpu->divided;
    return 1;
}

static tandem_status cpu_open_device(void **device, const char *name, tandem_error *error)
{
    dnnl_cpu_isa_t isa = dnnl_cpu_isa_all;
    char base[TANDEM_DEVICE_NAME];
    const int n_core = tandem_device_split_cores(base, sizeof base, name);
    tandem_status status = find_onednn_isa(&isa, base, error);
    if (status == TANDEM_OK && n_core == 0)
        status = tandem_error_set(error, TANDEM_UNKNOWN_NAME,
                                  "device '%s': a number of cores from 1 to %d follows '%s:'", name,
                                  TANDEM_MAX_CORE, base);
    if (status == TANDEM_OK) status = limit_onednn_isa(isa, base, error);
    if (status != TANDEM_OK) return status;
    cpu_team_set(n_core); /* oneDNN's primitives, too, have as many threads */
    cpu_device *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return tandem_no_memory(error, "to open device '%s'", name);
    (void)snprintf(cpu->name, sizeof cpu->name, "%s", name);
    cpu->n_core = n_core;
    if (!find_kernels(cpu, base)) {
        cpu_close_device(cpu);
        return tandem_error_set(error, TANDEM_BUG, "device '%s' has no table of kernels", name);
    }
    if (dnnl_engine_create(&cpu->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags) != dnnl_success) {
        cpu_close_device(cpu);
        return tandem_error_set(error, TANDEM_NO_MEMORY, "oneDNN has no memory to open device '%s'", name);
    }
    *device = cpu;
    return TANDEM_OK;
}

/* --- Kernels -------------------------------------------------------------------------------------------- */

static tandem_kernel *cpu_new_kernel(void *device, const tandem_step *step, int task)
{
    tandem_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) return NULL;
    const tandem_task *task_spec = &step->task[task];
    kernel->device = device;
    kernel->graph = step->graph;
    kernel->op = task_spec->op >= 0 ? &step->graph->op[task_spec->op] : NULL;
    kernel->task = *task_spec;
    (void)tandem_step_attention(step, task, &kernel->attention);
    for (int k = 0; k < task_spec->n_write; k++)
        if (task_spec->write[k] >= 0) kernel->written[k] = step->value[task_spec->write[k]].dtype;
    return kernel;
}

static void cpu_release_kernel(tandem_kernel *kernel)
{
    if (!kernel) return;
    if (kernel->destroy) kernel->destroy(kernel->state);
    free(kernel);
}

static tandem_status cpu_prepare_kernel(void *device, const tandem_step *step, int task,
                                        tandem_kernel **kernel, uint64_t *workspace_bytes,
                                        tandem_error *error)
{
    const tandem_task *task_spec = &step->task[task];
    const tandem_op *op = task_spec->op >= 0 ? &step->graph->op[task_spec->op] : NULL;
    cpu_team_set(((const cpu_device *)device)->n_core);
    tandem_attention attention;
    const cpu_operator *found = tandem_step_attention(step, task, &attention)
                                    ? &cpu_attention
                                    : cpu_operator_rows[kernel_row_of(task_spec, op)];
    if (!found || (!found->prepare && !found->forward)) return kernel_missing(task, task_spec, op, error);
    tandem_kernel *prepared = cpu_new_kernel(device, step, task);
    if (!prepared) return kernel_no_memory(task_spec, op, error);
    prepared->is_emulated = step->options.emulated;
    const int is_wrapped = prepared->is_emulated && found != &cpu_cast;
    if (is_wrapped) prepared->task = cpu_emulated_task(task_spec);
    cpu_kernel_run *const run = task_spec->kind == TANDEM_TASK_FORWARD ? found->forward : found->dgrad;
    tandem_status status =
        found->prepare ? found->prepare(prepared, error) : cpu_kernel_of_float(prepared, run, error);
    if (status != TANDEM_OK) {
        free(prepared);
        return status;
    }
    if (is_wrapped) status = cpu_emulate_kernel(prepared, step, task, error);
    if (status != TANDEM_OK) {
        cpu_release_kernel(prepared);
        return status;
    }
    *kernel = prepared;
    *workspace_bytes = prepared->workspace_bytes;
    return TANDEM_OK;
}

static tandem_status cpu_prepare_library_kernel(void *device, const tandem_step *step, int task,
                                                tandem_kernel **kernel, uint64_t bytes[3],
                                                uint64_t *workspace_bytes, tandem_error *error)
{
    cpu_team_set(((const cpu_device *)device)->n_core);
    tandem_kernel *prepared = cpu_new_kernel(device, step, task);
    if (!prepared) return kernel_no_memory(&step->task[task], &step->graph->op[step->task[task].op], error);
    const tandem_status status = cpu_library_prepare(prepared, bytes, error);
    if (status != TANDEM_OK) {
        free(prepared);
        return status;
    }
    *kernel = prepared;
    *workspace_bytes = prepared->workspace_bytes;
    return TANDEM_OK;
}

static tandem_status cpu_run_kernel(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    cpu_team_set(kernel->device->n_core); /* another device of this thread may have changed it */
    return kernel->run(kernel, call, error);
}

/* --- The optimizer -------------------------------------------------------------------------------------- */

static int cpu_update_weights(void *device, const tandem_optimizer_options *options, int decays,
                              const unsigned char *decay_mask, float *weight, float *const *state,
                              const float *gradient, int64_t n, int64_t t, const float *rates)
{
    const cpu_device *const cpu = device;
    const tandem_isa_kernels *isa = cpu->isa;
    cpu_team_set(cpu->n_core);
    const float decay = decays ? options->decay : 0;
    if (options->kind == TANDEM_SGD)
        return isa->sgd(weight, state[0], gradient, (size_t)n, options->rate, options->momentum, decay);
    return isa->adamw(weight, state[0], state[1], gradient, (size_t)n, options->rate, options->beta1,
                      options->beta2, options->epsilon, decay, tandem_adamw_correction(options->beta1, t),
                      tandem_adamw_correction(options->beta2, t));
}

static const char *cpu_libraries_text(void)
{
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

const tandem_device_backend tandem_cpu_backend = {
    .open = cpu_open_device,
    .close = cpu_close_device,
    .prepare = cpu_prepare_kernel,
    .prepare_library = cpu_prepare_library_kernel,
    .release = cpu_release_kernel,
    .run = cpu_run_kernel,
    .update = cpu_update_weights,
    .version = cpu_libraries_text,
};
