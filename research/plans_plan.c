/* plans_plan.c: the cells and seeds of `tandem-study plans`. They are fixed before a run: records
 * name this plan, and another plan does not take them. */
#include "research/plans.h"

#include "base/hash.h"

/* In a pilot of one or two pairs, with seeds from 1000 on, s4 lost 1.3 to 4.6 points and e2m1 up to 2.4.
 * int8_full, fp8, fp16 without a loss scale, and fp8 with gradients in s4 lost no more than pairs spread. So
 * fp8 represents here what loses nothing. */
const plans_regime plans_regimes[PLANS_REGIMES] = {
    {"fp8", TANDEM_PRECISION_FP8, 0, {{0}}},
    {"e2m1", TANDEM_PRECISION_INT8_FULL, 1, {{TANDEM_S8, TANDEM_FORMAT_MXFP4}}},
    {"e2m1, gradients in s4",
     TANDEM_PRECISION_FP8,
     2,
     {{TANDEM_E4M3, TANDEM_FORMAT_MXFP4}, {TANDEM_E5M2, TANDEM_FORMAT_S4}}},
    {"s4, gradients in e5m2", TANDEM_PRECISION_FP8, 1, {{TANDEM_E4M3, TANDEM_FORMAT_S4}}},
    {"s4", TANDEM_PRECISION_INT8_FULL, 1, {{TANDEM_S8, TANDEM_FORMAT_S4}}},
};

static const study_training full_tasks[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=32,image=14x14x1", TANDEM_SGD, 0.02, 16, 2, 1600, 5000),
    STUDY_ANNEALED_TRAINING("resnet20:width=4,blocks=1,image=14x14x1", TANDEM_SGD, 0.1, 16, 2, 400, 3000),
    STUDY_ANNEALED_TRAINING("mlp:depth=6,width=32,image=14x14x1", TANDEM_ADAMW, 0.004, 16, 2, 1000, 5000),
    STUDY_ANNEALED_TRAINING("vit_tiny:width=16,heads=2,depth=1,patch=7", TANDEM_ADAMW, 0.005, 16, 2, 800,
                            3000),
};
const plans_plan plans_plan_full = {
    .task = full_tasks,
    .n_task = sizeof full_tasks / sizeof *full_tasks,
    .n_seed = 12,
    .n_point = 3,
    .n_replicate = 24,
};

/* Whether the parts work together. */
static const study_training quick_tasks[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_SGD, 0.05, 8, 2, 60, 200),
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_ADAMW, 0.01, 8, 2, 60, 200),
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
        hash = study_hash_number(tandem_hash_text(hash, of->name), of->precision);
        for (int k = 0; k < of->n_format; k++) {
            hash = study_hash_number(hash, of->replaced[k].dtype);
            hash = study_hash_number(hash, of->replaced[k].format);
        }
    }
    for (int t = 0; t < plan->n_task; t++) hash = study_hash_training(hash, &plan->task[t]);
    return hash;
}
