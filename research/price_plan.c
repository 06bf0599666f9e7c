/* price_plan.c: the cells and seeds of `tandem-study price`. They are fixed before a run: records
 * name this plan, and another plan does not take them. */
#include "research/price.h"

#include "base/hash.h"

const double price_rates[PRICE_RATES] = {0.25, 0.5, 1, 2, 4};

const price_cell price_cells[PRICE_CELLS] = {
    [PRICE_E2M1] = {"all casts, e2m1", 0, EXCHANGE_ALL, TANDEM_FORMAT_MXFP4},
    [PRICE_S4] = {"all casts, s4", 0, EXCHANGE_ALL, TANDEM_FORMAT_S4},
    {"all casts, s8", 1, EXCHANGE_ALL, TANDEM_FORMAT_S8},
    {"gradients, s8", 1, EXCHANGE_GRADIENTS, TANDEM_FORMAT_S8},
};

/* Rates are near the best of fp32, in pilots of one seed. Errors of s8 are magnified, so that each cell needs
 * some tens of percent more. */
static const study_training full_trainings[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=32,image=14x14x1", TANDEM_SGD, 0.02, 16, 1, 1600, 2000),
    STUDY_ANNEALED_TRAINING("mlp:depth=6,width=32,image=14x14x1", TANDEM_ADAMW, 0.004, 16, 1, 1000, 2000),
    STUDY_ANNEALED_TRAINING("vit_tiny:width=16,heads=2,depth=1,patch=7", TANDEM_ADAMW, 0.04, 16, 1, 800,
                            2000),
    STUDY_ANNEALED_TRAINING("resnet20:width=4,blocks=1,image=14x14x1", TANDEM_SGD, 0.1, 16, 1, 400, 2000),
    STUDY_ANNEALED_TRAINING("resnet20:width=4,blocks=1,image=14x14x1", TANDEM_ADAMW, 0.02, 16, 1, 400, 2000),
    STUDY_ANNEALED_TRAINING_ON("bible-kjv-text", "gpt_tiny:width=16,heads=2,depth=2,length=16", TANDEM_ADAMW,
                               0.01, 16, 1, 800, 2000),
};
static const price_task full_tasks[] = {{&full_trainings[0], {12, 30}}, {&full_trainings[1], {5, 18}},
                                        {&full_trainings[2], {8, 10}},  {&full_trainings[3], {8, 15}},
                                        {&full_trainings[4], {8, 12}},  {&full_trainings[5], {8, 12}}};
const price_plan price_plan_full = {
    .task = full_tasks,
    .n_task = sizeof full_tasks / sizeof *full_tasks,
    .n_seed = 8,
    .n_point = 3,
    .n_replicate = 24,
    .n_bootstrap = 4000,
};

/* Whether the parts work together. */
static const study_training quick_trainings[] = {
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_SGD, 0.05, 8, 1, 60, 200),
    STUDY_ANNEALED_TRAINING("mlp:width=8,image=7x7x1", TANDEM_ADAMW, 0.01, 8, 1, 60, 200),
};
static const price_task quick_tasks[] = {{&quick_trainings[0], {8, 16}}, {&quick_trainings[1], {8, 16}}};
const price_plan price_plan_quick = {
    .task = quick_tasks,
    .n_task = sizeof quick_tasks / sizeof *quick_tasks,
    .n_seed = 3,
    .n_point = 2,
    .n_replicate = 4,
    .n_bootstrap = 400,
};

uint64_t price_plan_hash(const price_plan *plan)
{
    uint64_t hash = study_hash_number(study_hash_number(TANDEM_HASH_START, plan->n_replicate), plan->n_point);
    for (int r = 0; r < PRICE_RATES; r++) hash = study_hash_number(hash, price_rates[r]);
    for (int c = 0; c < PRICE_CELLS; c++) {
        const price_cell *cell = &price_cells[c];
        hash = study_hash_number(study_hash_number(hash, cell->casts), cell->times);
        hash = study_hash_number(hash, cell->format);
    }
    for (int t = 0; t < plan->n_task; t++) {
        hash = study_hash_training(hash, plan->task[t].training);
        for (int k = 0; k < EXCHANGE_N_CASTS; k++)
            hash = study_hash_number(hash, plan->task[t].error_scale[k]);
    }
    return hash;
}

static int fourths_of_samples(int setting) { return setting < PRICE_LENGTHS ? 4 - setting : 4; }
double price_extra_samples(int length) { return 4.0 / fourths_of_samples(length) - 1; }

tandem_emulation price_emulation(const price_task *task, int cell, uint64_t seed)
{
    const price_cell *of = &price_cells[cell];
    const double scale = of->times > 0 ? of->times * task->error_scale[of->casts] : 1;
    tandem_emulation emulation = exchange_emulation(of->casts, scale, seed);
    if (of->casts == EXCHANGE_ALL) emulation.format[TANDEM_S8] = of->format;
    return emulation;
}

study_training price_training(const price_task *task, int setting, int rate, uint64_t seed)
{
    const int cell = setting - PRICE_LENGTHS;
    study_training training = *task->training;
    training.rate *= price_rates[rate];
    training.steps = training.steps * fourths_of_samples(setting) / 4;
    training.emulation = cell < 0 ? tandem_emulation_make(seed) : price_emulation(task, cell, seed);
    if (cell >= 0)
        training.precision = tandem_precision_get(exchange_precision(price_cells[cell].casts))->name;
    return training;
}
