/* null_plan.c: the cells and seeds of `tandem-study null`. They are fixed before a run: records name
 * this plan, and another plan does not take them. */
#include "research/null.h"

#include "base/hash.h"

const null_precision null_precisions[NULL_PRECISIONS] = {
    {"fp32", NULL, 0, TANDEM_N_FORMAT, 0},
    {"ulp", "int8_full", 0, TANDEM_FORMAT_ULP, 1},
    {"tf32", "tf32", 0, TANDEM_N_FORMAT, 0},
    {"bf16", "bf16", 0, TANDEM_N_FORMAT, 0},
    {"fp16, dynamic loss scale", "fp16", -1, TANDEM_N_FORMAT, 0},
    {"int8", "int8", 0, TANDEM_N_FORMAT, 0},
};

static const study_training full_tasks[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=32,image=14x14x1", TANDEM_SGD, 0.02, 16, 1, 1600, 5000),
    STUDY_ANNEALED_TRAINING("mlp:depth=6,width=32,image=14x14x1", TANDEM_ADAMW, 0.004, 16, 1, 1000, 5000),
    STUDY_ANNEALED_TRAINING("resnet20:width=4,blocks=1,image=14x14x1", TANDEM_SGD, 0.1, 16, 1, 400, 3000),
    STUDY_ANNEALED_TRAINING("vit_tiny:width=16,heads=2,depth=1,patch=7", TANDEM_ADAMW, 0.005, 16, 1, 800,
                            3000),
};
const null_plan null_plan_full = {
    .task = full_tasks,
    .n_task = sizeof full_tasks / sizeof *full_tasks,
    .n_pilot = 8,
    .first_pilot = 1000,
    .n_least = 12,
    .n_pair = 64,
};

/* Two tasks, a few pairs: whether the parts work together. */
static const study_training quick_tasks[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_SGD, 0.05, 8, 1, 60, 200),
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_ADAMW, 0.01, 8, 1, 60, 200),
};
const null_plan null_plan_quick = {
    .task = quick_tasks,
    .n_task = sizeof quick_tasks / sizeof *quick_tasks,
    .n_pilot = 3,
    .first_pilot = 1000,
    .n_least = 3,
    .n_pair = 5,
};

uint64_t null_plan_hash(const null_plan *plan)
{
    uint64_t hash = study_hash_number(TANDEM_HASH_START, plan->n_pilot);
    hash = study_hash_number(hash, plan->first_pilot);
    for (int t = 0; t < plan->n_task; t++) hash = study_hash_training(hash, &plan->task[t]);
    for (int p = 1; p < NULL_PRECISIONS; p++) {
        const null_precision *of = &null_precisions[p];
        hash = tandem_hash_text(tandem_hash_text(hash, of->name), of->precision);
        hash = study_hash_number(study_hash_number(hash, of->format), of->loss_scale);
    }
    return hash;
}
