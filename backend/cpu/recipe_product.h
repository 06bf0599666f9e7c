/* recipe_product.h: a product of linear or matmul whose operands a recipe rounds (docs/recipes.md). */
#ifndef TANDEM_BACKEND_CPU_RECIPE_PRODUCT_H
#define TANDEM_BACKEND_CPU_RECIPE_PRODUCT_H

#include "backend/cpu/operator.h"

typedef struct cpu_recipe_product cpu_recipe_product;

/* Whether a recipe rounds the operands of this task. */
int cpu_recipe_rounds(const tandem_step *step, int task);
/* cpu_recipe_open: for a task of which cpu_recipe_rounds, and its kernel in f32. *workspace_bytes: what a run
 * needs, from the begin of the workspace. TANDEM_NO_KERNEL, TANDEM_NO_MEMORY. */
tandem_status cpu_recipe_open(cpu_recipe_product **out, uint64_t *workspace_bytes,
                              const tandem_kernel *kernel, const tandem_step *step, int task,
                              tandem_error *error);
void cpu_recipe_close(cpu_recipe_product *product); /* NULL is fine */
/* cpu_recipe_run: rounds both operands and multiplies the copies. TANDEM_LIMIT_EXCEEDED: a number is not
 * finite. */
tandem_status cpu_recipe_run(const cpu_recipe_product *product, const tandem_kernel *kernel,
                             const tandem_kernel_call *call, tandem_error *error);

#endif
