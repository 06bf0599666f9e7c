/* recipe_product.c: a product of linear or matmul whose operands a recipe rounds.
 *
 * Both operands are copied into the workspace with the summed dimension last, in lines of whole blocks, and
 * rounded there. So every product is C = A·Bᵀ of f32 matrices, over a sum that is a multiple of the block. */
#include "backend/cpu/recipe_product.h"

#include <stdlib.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/product.h"
#include "base/philox.h"
#include "tandem/advanced/recipe.h"

typedef struct operand_copy {
    tandem_recipe_cast shape; /* of the operand; x, format and draws are those of a call */
    int is_weight;
    uint32_t purpose; /* of its draws, without the rank */
    uint64_t offset;  /* in the workspace */
} operand_copy;

struct cpu_recipe_product {
    cpu_product product; /* its workspace comes first */
    tandem_recipe_product kind;
    tandem_dtype from;    /* of the operands, which decides the recipe of a call */
    operand_copy copy[2]; /* of operands 0 and 1 of the task */
    uint64_t scratch_offset;
};

int cpu_recipe_rounds(const tandem_step *step, int t)
{
    const tandem_task *task = &step->task[t];
    const tandem_recipe recipe = tandem_recipe_of(task->from, (tandem_recipe)step->options.recipe);
    const int is_pass = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_DGRAD ||
                        task->kind == TANDEM_TASK_WGRAD;
    return recipe != TANDEM_RECIPE_NONE && is_pass &&
           tandem_recipe_rule_of(recipe, step->graph, task->op) == TANDEM_RECIPE_ROUNDS;
}

/* --- Shapes --------------------------------------------------------------------------------------------- */

static tandem_recipe_product product_of_task(const tandem_task *task)
{
    switch (task->kind) {
    case TANDEM_TASK_DGRAD: return TANDEM_RECIPE_DGRAD;
    case TANDEM_TASK_WGRAD: return TANDEM_RECIPE_WGRAD;
    default: return TANDEM_RECIPE_FORWARD;
    }
}

/* The matrices of y = x·w, as in op/linear.c: x (m, k), w (k, n) or, transposed, (n, k), y (m, n). */
static void find_recipe_shapes(cpu_recipe_product *recipe, cpu_product_spec *spec,
                               const tandem_kernel *kernel, tandem_format format)
{
    const tandem_shape *x = cpu_input_shape(kernel, 0);
    const int is_linear = kernel->op->kind == TANDEM_OP_LINEAR, transposed = kernel->op->transpose_b;
    const int64_t k = tandem_shape_last(x), n = tandem_shape_last(&kernel->op->shape),
                  rows = tandem_shape_elements(x) / k, m = is_linear ? rows : x->dim[x->n_dim - 2];
    const tandem_recipe_cast of_x = {.batch = rows / m, .rows = m, .columns = k},
                             of_y = {.batch = rows / m, .rows = m, .columns = n},
                             of_w = {.batch = rows / m,
                                     .rows = transposed ? n : k,
                                     .columns = transposed ? k : n};
    tandem_recipe_cast of[2] = {of_x, of_w};
    *spec = (cpu_product_spec){.batch = rows / m,
                               .from = TANDEM_F32,
                               .to = TANDEM_F32,
                               .transpose_b = 1,
                               .accumulate = kernel->task.accumulate};
    recipe->kind = product_of_task(&kernel->task);
    if (recipe->kind == TANDEM_RECIPE_FORWARD) {
        of[1].sums_rows = !transposed;
        spec->m = m, spec->n = n, spec->k = tandem_recipe_padded(k, format);
    } else if (recipe->kind == TANDEM_RECIPE_DGRAD) {
        of[0] = of_y;
        of[1].sums_rows = transposed;
        spec->m = m, spec->n = k, spec->k = tandem_recipe_padded(n, format);
    } else {
        of[1] = of_y;
        of[0].sums_rows = of[1].sums_rows = 1;
        spec->swap_operands = transposed; /* gᵀ·x */
        spec->m = transposed ? n : k, spec->n = transposed ? k : n, spec->k = tandem_recipe_padded(m, format);
    }
    for (int r = 0; r < 2; r++) {
        of[r].operand.format = format;
        recipe->copy[r] =
            (operand_copy){.shape = of[r],
                           .is_weight = is_linear && r == 1 && recipe->kind != TANDEM_RECIPE_WGRAD,
                           .purpose = (uint32_t)TANDEM_RNG_RECIPE + 2 * (uint32_t)recipe->kind + (uint32_t)r};
    }
}

/* Scratch holds squares of every weight: whether a recipe has them changes no memory. */
static uint64_t place_recipe_copies(cpu_recipe_product *recipe)
{
    uint64_t end = 0;
    int64_t most_scratch = 0;
    cpu_workspace_reserve(&end, recipe->product.workspace_bytes);
    for (int r = 0; r < 2; r++) {
        operand_copy *copy = &recipe->copy[r];
        tandem_recipe_cast square = copy->shape;
        square.operand.is_square = copy->is_weight;
        const int64_t scratch = tandem_recipe_scratch(&square);
        most_scratch = scratch > most_scratch ? scratch : most_scratch;
        copy->offset =
            cpu_workspace_reserve(&end, (uint64_t)tandem_recipe_copied(&copy->shape) * sizeof(float));
    }
    recipe->scratch_offset = cpu_workspace_reserve(&end, (uint64_t)most_scratch * sizeof(float));
    return end;
}

tandem_status cpu_recipe_open(cpu_recipe_product **out, uint64_t *workspace_bytes,
                              const tandem_kernel *kernel, const tandem_step *step, int task,
                              tandem_error *error)
{
    cpu_product_spec spec;
    const tandem_dtype from = step->task[task].from;
    const tandem_recipe_row *row =
        tandem_recipe_get(tandem_recipe_of(from, (tandem_recipe)step->options.recipe));
    cpu_recipe_product *recipe = calloc(1, sizeof *recipe);
    if (!recipe) return cpu_kernel_no_memory(kernel, error);
    recipe->from = from;
    find_recipe_shapes(recipe, &spec, kernel, row->operand[TANDEM_RECIPE_FORWARD][0].format);
    const tandem_status status = cpu_product_open(&recipe->product, kernel, &spec, error);
    if (status != TANDEM_OK) {
        free(recipe);
        return status;
    }
    *workspace_bytes = place_recipe_copies(recipe);
    *out = recipe;
    return TANDEM_OK;
}

void cpu_recipe_close(cpu_recipe_product *recipe)
{
    if (!recipe) return;
    cpu_product_close(&recipe->product);
    free(recipe);
}

/* --- Running -------------------------------------------------------------------------------------------- */

static tandem_status round_operand_copy(const cpu_recipe_product *recipe, int r, const tandem_kernel *kernel,
                                        const tandem_kernel_call *call, tandem_error *error)
{
    const operand_copy *copy = &recipe->copy[r];
    const uint32_t rank = call->rng.stream[2] >> 8 << 8;
    tandem_recipe_cast cast = copy->shape;
    cast.operand =
        tandem_recipe_get(tandem_recipe_of(recipe->from, call->emulation->recipe))->operand[recipe->kind][r];
    cast.operand.is_square = cast.operand.is_square && copy->is_weight;
    cast.x = call->in[r];
    cast.error_scale = call->error_scale;
    cast.seed = call->rng.seed;
    cast.stream[0] = copy->is_weight && call->emulation->same_weight_draws ? 0 : call->rng.stream[0];
    cast.stream[1] = call->rng.stream[1];
    cast.stream[2] = copy->purpose | (copy->is_weight ? 0 : rank);
    const tandem_status status =
        tandem_recipe_round(cpu_workspace_at(call->workspace, copy->offset),
                            cpu_workspace_at(call->workspace, recipe->scratch_offset), &cast, error);
    if (status != TANDEM_LIMIT_EXCEEDED) return status;
    return tandem_error_set(
        error, status,
        "training has diverged in step %u: an operand of the %s of operator '%s' is not "
        "finite (a NaN or an infinity), so it cannot be rounded to %s; a smaller learning "
        "rate or a warm-up may help",
        call->rng.stream[0] + 1, tandem_task_kind_name(kernel->task.kind), kernel->op->name,
        tandem_format_get(cast.operand.format)->name);
}

tandem_status cpu_recipe_run(const cpu_recipe_product *recipe, const tandem_kernel *kernel,
                             const tandem_kernel_call *call, tandem_error *error)
{
    tandem_status status = round_operand_copy(recipe, 0, kernel, call, error);
    if (status == TANDEM_OK) status = round_operand_copy(recipe, 1, kernel, call, error);
    if (status != TANDEM_OK) return status;
    const int first = recipe->product.spec.swap_operands ? 1 : 0;
    return cpu_product_run(&recipe->product, kernel,
                           cpu_workspace_at(call->workspace, recipe->copy[first].offset),
                           cpu_workspace_at(call->workspace, recipe->copy[1 - first].offset), call->out[0], 1,
                           call->workspace, error);
}
