/* cast.c: casts of weights, activations, gradients, and of tensors saved in s8.
 *
 * A cast to s8 rounds stochastically (kernels.h) with one scale. Its range is the operator's where that is
 * known (op.def), or that of a history, which saves the pass that finds it. */
#include "backend/cpu/kernel.h"

#include <math.h>
#include <string.h>

#include "tandem/advanced/recipe.h"

static int64_t cpu_cast_elements(const tandem_kernel *kernel)
{
    const tandem_task *task = &kernel->task;
    if (task->kind == TANDEM_TASK_WEIGHT_CAST) return kernel->graph->parameter[task->parameter].elements;
    if (task->kind == TANDEM_TASK_SAVED_CAST)
        return tandem_shape_elements(cpu_input_shape(kernel, task->slot));
    return tandem_shape_elements(&kernel->op->shape);
}

static tandem_status cpu_cast_nonfinite(const tandem_kernel *kernel, uint32_t step, tandem_error *error)
{
    static const char *const what[TANDEM_N_TASK_KIND] = {[TANDEM_TASK_WEIGHT_CAST] = "the weight",
                                                         [TANDEM_TASK_CAST] = "the output",
                                                         [TANDEM_TASK_GRADIENT_CAST] =
                                                             "the gradient of the output"};
    return tandem_error_set(error, TANDEM_LIMIT_EXCEEDED,
                            "training has diverged in step %u: %s of operator '%s' (%s) is not finite (a NaN "
                            "or an infinity), so "
                            "it cannot become %s; a smaller learning rate or a warm-up may help",
                            step + 1, what[kernel->task.kind] ? what[kernel->task.kind] : "an input",
                            kernel->op->name, tandem_op_row_get(kernel->op->kind)->name,
                            kernel->task.to == TANDEM_S8 ? "int8" : tandem_dtype_name(kernel->task.to));
}

/* The range known before the tensor is read; ≤ 0 = none. */
static float cpu_cast_known_range(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    if (call->history)
        return call->reuse_range ? call->history->before : tandem_amax_history_range(call->history);
    return kernel->task.kind == TANDEM_TASK_CAST ? tandem_op_row_get(kernel->op->kind)->range : 0;
}

static tandem_status cpu_cast_quantise(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                       tandem_error *error)
{
    const float range = cpu_cast_known_range(kernel, call);
    const int update_history = call->history && !call->reuse_range;
    float amax = 0;
    const tandem_rounding rounding = {
        .seed = call->rng.seed, .stream = {call->rng.stream[0], call->rng.stream[1], call->rng.stream[2]}};
    const tandem_quantise_call quantise = {.x = call->in[0],
                                           .from = kernel->task.from,
                                           .rows = 1,
                                           .columns = cpu_cast_elements(kernel),
                                           .q = call->out[0],
                                           .scale_mode = range > 0 ? TANDEM_SCALE_KNOWN : TANDEM_SCALE_TENSOR,
                                           .range = range,
                                           .rounding = &rounding,
                                           .scale = call->out_scale[0],
                                           .amax = update_history ? &amax : NULL};
    tandem_status status = tandem_kernels_quantise(kernel->device->isa, &quantise, error);
    if (status == TANDEM_OK && update_history) status = tandem_amax_history_add(call->history, amax, error);
    return status == TANDEM_LIMIT_EXCEEDED ? cpu_cast_nonfinite(kernel, call->rng.stream[0], error) : status;
}

/* With a history the range of earlier casts, or the largest of theirs and its own. */
static tandem_status cpu_cast_emulated_range(float *range, const tandem_kernel *kernel,
                                             const tandem_kernel_call *call, tandem_error *error)
{
    float own = 0;
    *range = cpu_cast_known_range(kernel, call);
    if (!call->history || !call->emulation->widens_ranges) return TANDEM_OK;
    const int64_t n = cpu_cast_elements(kernel);
    const tandem_status status =
        tandem_kernels_amax(kernel->device->isa, &own, call->in[0], TANDEM_F32, 1, n, n, error);
    *range = fmaxf(*range, own);
    return status;
}

/* TANDEM_N_FORMAT: nothing is rounded, as to f32, and where a recipe leaves that to products. */
static tandem_format cpu_cast_format(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    const tandem_dtype to = kernel->task.to;
    const int is_left = tandem_recipe_of(to, call->emulation->recipe) != TANDEM_RECIPE_NONE;
    return to == TANDEM_F32 || is_left ? TANDEM_N_FORMAT : call->emulation->format[to];
}

static tandem_status cpu_cast_round(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    const float *x, tandem_format format, tandem_error *error)
{
    const int64_t n = cpu_cast_elements(kernel);
    const int update_history = call->history && !call->reuse_range;
    const int64_t columns = kernel->task.kind == TANDEM_TASK_WEIGHT_CAST
                                ? tandem_shape_last(&kernel->graph->parameter[kernel->task.parameter].shape)
                                : tandem_shape_last(kernel->task.kind == TANDEM_TASK_SAVED_CAST
                                                        ? cpu_input_shape(kernel, kernel->task.slot)
                                                        : &kernel->op->shape);
    float amax = 0, range = 0;
    tandem_status status = cpu_cast_emulated_range(&range, kernel, call, error);
    const tandem_format_cast cast = {
        .format = format,
        .x = x,
        .rows = n / columns,
        .columns = columns,
        .range = range,
        .error_scale = call->error_scale,
        .seed = call->rng.seed,
        .stream = {call->rng.stream[0], call->rng.stream[1], call->rng.stream[2]}};
    if (status == TANDEM_OK) status = tandem_format_round(call->out[0], &amax, &cast, error);
    if (status == TANDEM_OK && update_history) status = tandem_amax_history_add(call->history, amax, error);
    return status == TANDEM_LIMIT_EXCEEDED ? cpu_cast_nonfinite(kernel, call->rng.stream[0], error) : status;
}

/* What a saved s8 tensor has not been rounded to, because a recipe left that to the forward product. */
static tandem_format cpu_cast_left_format(const tandem_kernel *kernel, const tandem_kernel_call *call)
{
    const tandem_emulation *emulation = call->emulation;
    if (emulation->recipe == TANDEM_RECIPE_NONE || kernel->task.from != TANDEM_S8) return TANDEM_N_FORMAT;
    const int op = (int)(kernel->op - kernel->graph->op);
    return tandem_recipe_rule_of(emulation->recipe, kernel->graph, op) == TANDEM_RECIPE_KEEPS
               ? emulation->format[TANDEM_BF16]
               : emulation->format[TANDEM_S8];
}

static tandem_status cpu_cast_emulate(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const tandem_format left = cpu_cast_left_format(kernel, call), format = cpu_cast_format(kernel, call);
    tandem_status status = TANDEM_OK;
    const float *x = call->in[0];
    if (left != TANDEM_N_FORMAT) {
        status = cpu_cast_round(kernel, call, x, left, error);
        x = call->out[0];
    }
    if (status == TANDEM_OK && format != TANDEM_N_FORMAT)
        status = cpu_cast_round(kernel, call, x, format, error);
    else if (status == TANDEM_OK && x != call->out[0])
        memcpy(call->out[0], x, (size_t)cpu_cast_elements(kernel) * sizeof *x);
    return status;
}

static tandem_status cpu_cast_dequantise(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                         tandem_error *error)
{
    if (kernel->task.to == TANDEM_F32)
        kernel->device->isa->dequantise_f32(call->out[0], call->in[0], (size_t)cpu_cast_elements(kernel),
                                            *call->in_scale[0]);
    else
        kernel->device->isa->dequantise_bf16(call->out[0], call->in[0], (size_t)cpu_cast_elements(kernel),
                                             *call->in_scale[0]);
    return TANDEM_OK;
}

static tandem_status cpu_cast_narrow(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                     tandem_error *error)
{
    kernel->device->isa->bf16_from_f32(call->out[0], call->in[0], (size_t)cpu_cast_elements(kernel));
    return TANDEM_OK;
}

static tandem_status cpu_cast_widen(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                    tandem_error *error)
{
    kernel->device->isa->f32_from_bf16(call->out[0], call->in[0], (size_t)cpu_cast_elements(kernel));
    return TANDEM_OK;
}

static tandem_status cpu_cast_prepare(tandem_kernel *kernel, tandem_error *error)
{
    const tandem_dtype from = kernel->task.from, to = kernel->task.to;
    if (kernel->is_emulated)
        kernel->run = cpu_cast_emulate;
    else if (to == TANDEM_S8 && cpu_is_float(from))
        kernel->run = cpu_cast_quantise;
    else if (from == TANDEM_S8 && cpu_is_float(to))
        kernel->run = cpu_cast_dequantise;
    else if (cpu_is_float(from) && cpu_is_float(to) && from != to)
        kernel->run = to == TANDEM_BF16 ? cpu_cast_narrow : cpu_cast_widen;
    else
        return cpu_kernel_refuse(kernel, "no cast between these types is needed", error);
    return TANDEM_OK;
}

const cpu_operator cpu_cast = {.prepare = cpu_cast_prepare};
