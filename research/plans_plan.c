/* plans_plan.c: the cells and seeds of `tandem-study plans`. They are fixed before a run: records
 * name this plan, and another plan does not take them. */
#include "research/plans.h"

#include "base/hash.h"

const char *const plans_arm_names[PLANS_ARMS] = {"uniform",   "allocated", "by samples", "QSync's",
                                                 "last high", "ends high", "random",     "worst"};

/* Published recipes keep some 15 % of the layers of nvfp4 high. e2m1 is mxfp4 to nearest. */
const plans_regime plans_regimes[PLANS_REGIMES] = {
    {"e2m1", "t4", TANDEM_PRECISION_FP32, TANDEM_PRECISION_INT8_FULL, TANDEM_FORMAT_MXFP4, 0.75},
    {"s4", "t4", TANDEM_PRECISION_FP32, TANDEM_PRECISION_INT8_FULL, TANDEM_FORMAT_S4, 0.75},
    {"nvfp4 beside bf16", "b200", TANDEM_PRECISION_BF16, TANDEM_PRECISION_NVFP4, TANDEM_N_FORMAT, 0.85},
};

/* Rates are the best of a grid in fp32, inside it (docs/study/README.md). */
static const study_training full_tasks[] = {
    STUDY_ANNEALED_TRAINING("resnet20:width=8,image=14x14x1", TANDEM_SGD, 0.025, 16, 1, 400, 3000),
    STUDY_ANNEALED_TRAINING("vit_tiny:width=32,heads=4,depth=4,patch=7", TANDEM_ADAMW, 0.008, 32, 1, 600,
                            3000),
    STUDY_ANNEALED_TRAINING_ON("bible-kjv-text", "gpt_tiny:width=32,heads=4,depth=4,length=32", TANDEM_ADAMW,
                               0.004, 16, 1, 800, 1000),
};
const plans_plan plans_plan_full = {
    .task = full_tasks,
    .n_task = sizeof full_tasks / sizeof *full_tasks,
    .n_seed = 10,
    .n_point = 3,
    .n_replicate = 24,
};

/* Whether the parts work together. */
static const study_training quick_tasks[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=64,image=7x7x1,depth=4", TANDEM_SGD, 0.05, 8, 2, 60, 200),
    STUDY_ANNEALED_TRAINING("mlp:width=64,image=7x7x1,depth=4", TANDEM_ADAMW, 0.01, 8, 2, 60, 200),
};
const plans_plan plans_plan_quick = {
    .task = quick_tasks,
    .n_task = sizeof quick_tasks / sizeof *quick_tasks,
    .n_seed = 3,
    .n_point = 1,
    .n_replicate = 4,
};

uint64_t plans_plan_hash(const plans_plan *plan)
{
    uint64_t hash = study_hash_number(study_hash_number(TANDEM_HASH_START, plan->n_replicate), plan->n_point);
    for (int r = 0; r < PLANS_REGIMES; r++) {
        const plans_regime *of = &plans_regimes[r];
        hash = tandem_hash_text(tandem_hash_text(hash, of->name), of->cluster);
        const double number[] = {of->high, of->low, of->format, of->kept};
        for (size_t i = 0; i < sizeof number / sizeof *number; i++) hash = study_hash_number(hash, number[i]);
    }
    for (int t = 0; t < plan->n_task; t++) hash = study_hash_training(hash, &plan->task[t]);
    return hash;
}
