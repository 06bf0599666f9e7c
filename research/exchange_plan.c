/* exchange_plan.c: the cells and seeds of `tandem-study exchange` and `tandem-study crossed`. They
 * are fixed before a run: records name this plan, and another plan does not take them. */
#include "research/exchange.h"

#include "base/hash.h"

static const exchange_task full_tasks[] = {
    {"mlp:width=32,image=14x14x1", TANDEM_SGD, 1, 0.01, 16, 800, 1000, 8, 1, {9, 20}},
    {"mlp:depth=6,width=32,image=14x14x1", TANDEM_ADAMW, 1, 0.002, 16, 800, 1000, 8, 0, {3, 12}},
    {"resnet20:width=4,blocks=1,image=14x14x1", TANDEM_SGD, 4, 0.05, 4, 300, 500, 8, 0, {5, 15}},
    {"vit_tiny:width=16,heads=2,depth=1,patch=7", TANDEM_ADAMW, 1, 0.005, 16, 600, 500, 8, 1, {8, 10}},
};
const exchange_plan exchange_plan_full = {
    .part = "exchange",
    .task = full_tasks,
    .n_task = sizeof full_tasks / sizeof *full_tasks,
    .n_seed = 64,
    .n_replicate = 48,
    .n_bootstrap = 4000,
};

/* Two tasks, a few seeds: whether the parts work together. Its intervals are wide. */
static const exchange_task quick_tasks[] = {
    {"mlp:width=8,image=7x7x1", TANDEM_SGD, 1, 0.05, 8, 120, 200, 2, 1, {8, 16}},
    {"mlp:width=8,image=7x7x1", TANDEM_ADAMW, 4, 0.01, 4, 60, 200, 2, 0, {8, 16}},
};
const exchange_plan exchange_plan_quick = {
    .part = "exchange",
    .task = quick_tasks,
    .n_task = sizeof quick_tasks / sizeof *quick_tasks,
    .n_seed = 6,
    .n_replicate = 8,
    .n_bootstrap = 400,
};

/* The models of `exchange`, each with the other optimizer. The rates are those that the optimizer has there:
 * in an mlp, and in the others. A first run, seeds 64 to 95 with its own scales, is the pilot: seven of its
 * 16 intervals were wide. By their spreads the widest cell needs 109 seeds, the others at most 70; 128 leave
 * room. Two scales differ from the pilot's, {4, 16} of the deep mlp and {4, 15} of resnet20, because cells
 * measured more than 100 % and less than 7 % there. All seeds are new. */
static const exchange_task crossed_tasks[] = {
    {"mlp:width=32,image=14x14x1", TANDEM_ADAMW, 1, 0.002, 16, 800, 1000, 8, 1, {9, 20}},
    {"mlp:depth=6,width=32,image=14x14x1", TANDEM_SGD, 1, 0.01, 16, 800, 1000, 8, 0, {4, 13}},
    {"resnet20:width=4,blocks=1,image=14x14x1", TANDEM_ADAMW, 4, 0.005, 4, 300, 500, 8, 0, {5, 15}},
    {"vit_tiny:width=16,heads=2,depth=1,patch=7", TANDEM_SGD, 1, 0.05, 16, 600, 500, 8, 1, {12, 20}},
};
const exchange_plan crossed_plan_full = {
    .part = "crossed",
    .task = crossed_tasks,
    .n_task = sizeof crossed_tasks / sizeof *crossed_tasks,
    .n_seed = 128,
    .n_replicate = 48,
    .n_bootstrap = 4000,
    .first_seed = 96,
    .is_with_first_order = 1,
};
static const exchange_task crossed_quick_tasks[] = {
    {"mlp:width=8,image=7x7x1", TANDEM_ADAMW, 1, 0.01, 8, 60, 200, 2, 1, {8, 16}},
    {"mlp:width=8,image=7x7x1", TANDEM_SGD, 4, 0.05, 4, 60, 200, 2, 0, {8, 16}},
};
const exchange_plan crossed_plan_quick = {
    .part = "crossed",
    .task = crossed_quick_tasks,
    .n_task = sizeof crossed_quick_tasks / sizeof *crossed_quick_tasks,
    .n_seed = 4,
    .n_replicate = 8,
    .n_bootstrap = 400,
    .first_seed = 64,
    .is_with_first_order = 1,
};

uint64_t exchange_plan_hash(const exchange_plan *plan)
{
    uint64_t hash = study_hash_number(TANDEM_HASH_START, plan->n_replicate);
    for (int t = 0; t < plan->n_task; t++) {
        const exchange_task *task = &plan->task[t];
        const double number[] = {task->optimizer,    task->rate,           (double)task->batch,
                                 task->n_micro,      (double)task->steps,  (double)task->n_test,
                                 task->n_evaluation, task->error_scale[0], task->error_scale[1]};
        hash = tandem_hash_text(hash, task->model);
        for (size_t i = 0; i < sizeof number / sizeof *number; i++) hash = study_hash_number(hash, number[i]);
    }
    return hash;
}

study_margins exchange_margins_of(const exchange_plan *plan)
{
    static const char *const is_fitted[] = {"is_fitted_1", "is_fitted_2", "is_fitted_3", "is_fitted_4"};
    study_margins margins = study_margins_of(plan->part);
    study_margins_add(&margins, "seeds", plan->n_seed);
    study_margins_add(&margins, "draws", plan->n_bootstrap);
    study_margins_add(&margins, "with_first_order", plan->is_with_first_order);
    for (int t = 0; t < plan->n_task; t++) study_margins_add(&margins, is_fitted[t], plan->task[t].is_fitted);
    return margins;
}
