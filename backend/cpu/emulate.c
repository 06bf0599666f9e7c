/* emulate.c: tasks whose kernels this device lacks: an f32 kernel between roundings (docs/emulation.md). */
#include "backend/cpu/emulate.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/recipe_product.h"
#include "tandem/advanced/recipe.h"

enum { MAX_ROUNDED_READS = 2 };

/* An array of f32 that is rounded as `to`; n 0: it is not. */
typedef struct rounded_array {
    int64_t rows, columns;
    tandem_dtype to;
} rounded_array;

typedef struct emulated_kernel {
    tandem_kernel inner; /* in f32 */
    rounded_array read[MAX_ROUNDED_READS], write[TANDEM_TASK_WRITES];
    uint64_t offset[MAX_ROUNDED_READS]; /* of rounded operands in the workspace */
    cpu_recipe_product *recipe;         /* in the place of `inner`; NULL: none */
} emulated_kernel;

tandem_task cpu_emulated_task(const tandem_task *task)
{
    tandem_task spec = *task;
    spec.precision = TANDEM_PRECISION_FP32;
    spec.from = spec.to = spec.other_operand_dtype = TANDEM_F32;
    return spec;
}

/* --- What is rounded ------------------------------------------------------------------------------------ */

static rounded_array array_of_value(const tandem_step *step, int id, tandem_dtype to)
{
    const tandem_shape *shape = &step->graph->op[step->value[id].op].shape;
    const int64_t n = (int64_t)(step->value[id].bytes / sizeof(float)), columns = tandem_shape_last(shape);
    const int is_whole = columns > 0 && n % columns == 0;
    return (rounded_array){.rows = is_whole ? n / columns : 1, .columns = is_whole ? columns : n, .to = to};
}

static rounded_array array_of_operand(const tandem_step *step, int id, tandem_dtype to)
{
    if (id >= 0) return array_of_value(step, id, to);
    const tandem_parameter *parameter = &step->graph->parameter[TANDEM_PARAMETER(id)];
    const int64_t columns = tandem_shape_last(&parameter->shape);
    return (rounded_array){.rows = parameter->elements / columns, .columns = columns, .to = to};
}

/* To which dtype a product rounds its operands, as whole tensors; F32: to none. Under a recipe, casts leave
 * that to it. */
static tandem_dtype rounded_operand_dtype(const tandem_step *step, const tandem_task *task)
{
    const int is_product = (task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
                            task->kind == TANDEM_TASK_WGRAD) &&
                           tandem_op_is_adjustable(&step->graph->op[task->op]);
    if (!is_product) return TANDEM_F32;
    if (tandem_precision_product_dtype(task->precision, task->from) == TANDEM_TF32) return TANDEM_TF32;
    const tandem_recipe recipe = tandem_recipe_of(task->from, (tandem_recipe)step->options.recipe);
    if (recipe == TANDEM_RECIPE_NONE) return TANDEM_F32;
    switch (tandem_recipe_rule_of(recipe, step->graph, task->op)) {
    case TANDEM_RECIPE_KEEPS: return TANDEM_BF16;
    case TANDEM_RECIPE_LACKS: return task->from;
    default: return TANDEM_F32;
    }
}

static void find_rounded_arrays(emulated_kernel *emulated, const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const tandem_dtype of_operands = rounded_operand_dtype(step, task);
    for (int r = 0; r < MAX_ROUNDED_READS && of_operands != TANDEM_F32; r++)
        emulated->read[r] = array_of_operand(step, task->read[r], of_operands);
    for (int w = 0; w < task->n_write; w++) {
        const int id = task->write[w];
        const tandem_dtype to = id >= 0 ? step->value[id].dtype : TANDEM_F32;
        if (to == TANDEM_BF16 || to == TANDEM_F16) emulated->write[w] = array_of_value(step, id, to);
    }
}

/* --- Running -------------------------------------------------------------------------------------------- */

static tandem_status round_array(float *out, const float *x, const rounded_array *array,
                                 const tandem_kernel_call *call, tandem_error *error)
{
    const tandem_format_cast cast = {
        .format = call->emulation->format[array->to],
        .x = x,
        .rows = array->rows,
        .columns = array->columns,
        .error_scale = call->error_scale,
        .seed = call->rng.seed,
        .stream = {call->rng.stream[0], call->rng.stream[1], call->rng.stream[2]}};
    return tandem_format_round(out, NULL, &cast, error);
}

static tandem_status cpu_emulated_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                      tandem_error *error)
{
    const emulated_kernel *emulated = kernel->state;
    tandem_kernel_call inner = *call;
    tandem_status status = TANDEM_OK;
    for (int r = 0; r < MAX_ROUNDED_READS && status == TANDEM_OK; r++) {
        if (!emulated->read[r].columns) continue;
        float *rounded = cpu_workspace_at(call->workspace, emulated->offset[r]);
        inner.in[r] = rounded;
        status = round_array(rounded, call->in[r], &emulated->read[r], call, error);
    }
    if (status == TANDEM_OK && emulated->recipe && call->error_scale != 0)
        status = cpu_recipe_run(emulated->recipe, &emulated->inner, &inner, error);
    else if (status == TANDEM_OK)
        status = emulated->inner.run(&emulated->inner, &inner, error);
    for (int w = 0; w < TANDEM_TASK_WRITES && status == TANDEM_OK; w++)
        if (emulated->write[w].columns)
            status = round_array(call->out[w], call->out[w], &emulated->write[w], call, error);
    return status;
}

static void cpu_emulated_destroy(void *state)
{
    emulated_kernel *emulated = state;
    cpu_recipe_close(emulated->recipe);
    if (emulated->inner.destroy) emulated->inner.destroy(emulated->inner.state);
    free(emulated);
}

tandem_status cpu_emulate_kernel(tandem_kernel *kernel, const tandem_step *step, int task,
                                 tandem_error *error)
{
    emulated_kernel *emulated = calloc(1, sizeof *emulated);
    if (!emulated) return cpu_kernel_no_memory(kernel, error);
    emulated->inner = *kernel;
    find_rounded_arrays(emulated, step, task);
    uint64_t end = kernel->workspace_bytes, of_recipe = 0;
    if (cpu_recipe_rounds(step, task)) {
        const tandem_status status =
            cpu_recipe_open(&emulated->recipe, &of_recipe, kernel, step, task, error);
        if (status != TANDEM_OK) {
            free(emulated);
            return status;
        }
    }
    end = end > of_recipe ? end : of_recipe;
    for (int r = 0; r < MAX_ROUNDED_READS; r++) {
        const uint64_t n = (uint64_t)(emulated->read[r].rows * emulated->read[r].columns);
        end = (end + 63) / 64 * 64;
        emulated->offset[r] = cpu_workspace_reserve(&end, n * sizeof(float));
    }
    kernel->workspace_bytes = end;
    kernel->state = emulated;
    kernel->destroy = cpu_emulated_destroy;
    kernel->run = cpu_emulated_run;
    return TANDEM_OK;
}
