/* folder: backend, and others for devices, plans or robust means */
/* Laws of the variants of a step, in real runs: micro-steps train as one batch of all their samples does,
 * recomputation changes no bit, each run repeats to the bit, and what is allocated is what was planned. */
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

enum { STEPS = 10, FEW_STEPS = 3 };

/* --- Micro-steps ---------------------------------------------------------------------------------------- */

/* Of models without batch normalisation, which sees the samples of one micro-step only. */
static void check_micro_steps(const char *model, int n_rank)
{
    const int n_micro = 4, batch = 2;
    experiment e = {.model = model,
                    .device = training_weakest(),
                    .batch = n_micro * batch,
                    .n_rank = n_rank,
                    .steps = STEPS,
                    .seed = 5,
                    .killed_rank = -1,
                    .hash_gradients = 1};
    record *whole = training_run_through(&e);
    e.batch = batch;
    e.variant.n_micro = n_micro;
    record *summed = training_run_through(&e), *again = training_run_through(&e);
    for (int i = 0; i < STEPS; i++) {
        const double off = fabs(summed->loss[0][i] - whole->loss[0][i]) / whole->loss[0][i];
        if (off > 1e-4)
            fail_msg("%s, step %d: loss %.9g in micro-steps, %.9g at once", model, i + 1, summed->loss[0][i],
                     whole->loss[0][i]);
    }
    assert_true(summed->loss[0][STEPS - 1] != summed->loss[0][0]);
    if (strcmp(model, "mlp") != 0) /* there the weights are most of it */
        assert_true(summed->allocated[0] < whole->allocated[0]);
    training_check_same_bits(summed, again, &e);
    training_forget(again);
    training_forget(summed);
    training_forget(whole);
}

static void micro_steps_train_as_one_batch(void **state)
{
    training_require_device();
    check_micro_steps("gpt_tiny:depth=2", 1);
    check_micro_steps("vit_tiny:depth=2", 1);
    /* a tied table */
    check_micro_steps("gpt2_small:layers=1,width=64,heads=2,vocabulary=64,seq=32,positions=32", 1);
    check_micro_steps("mlp", 2);
}

/* --- What is left --- */

/* Weights, optimizer state and running statistics: what is computed again is not followed again. */
static void nothing_else_changes(void **state)
{
    training_require_device();
    const training_file file[] = {training_file_named("kept"), training_file_named("recomputed")};
    for (int k = 0; k < 2; k++) {
        const experiment e = {.model = "resnet20:blocks=1,width=8",
                              .device = training_weakest(),
                              .batch = 4,
                              .n_rank = 1,
                              .steps = FEW_STEPS,
                              .seed = 3,
                              .killed_rank = -1,
                              .variant = {.n_micro = 2, .n_recompute_segment = k ? TANDEM_RECOMPUTE_SQRT : 1},
                              .save = file[k].path};
        training_forget(training_run_through(&e));
    }
    assert_true(training_files_equal(file[0].path, file[1].path));
}

/* --- Recomputation -------------------------------------------------------------------------------------- */

static void check_recomputation(const char *model, const char *device, tandem_precision precision,
                                int n_micro, int n_rank)
{
    static const int n_recompute_segment[] = {TANDEM_RECOMPUTE_SQRT, 2, 9};
    experiment e = {.model = model,
                    .device = device,
                    .batch = 4,
                    .n_rank = n_rank,
                    .steps = FEW_STEPS,
                    .precision = precision,
                    .seed = 7,
                    .killed_rank = -1,
                    .variant.n_micro = n_micro,
                    .hash_gradients = 1};
    record *kept = training_run_through(&e);
    for (size_t k = 0; k < sizeof n_recompute_segment / sizeof *n_recompute_segment; k++) {
        e.variant.n_recompute_segment = n_recompute_segment[k];
        record *again = training_run_through(&e);
        training_check_same_bits(kept, again, &e);
        if (n_recompute_segment[k] < 0) assert_true(again->allocated[0] < kept->allocated[0]);
        training_forget(again);
    }
    training_forget(kept);
}

static void recomputation_changes_no_bit(void **state)
{
    training_require_device();
    static const char *const model[] = {"resnet20", "vit_tiny:depth=2", "gpt_tiny:depth=2"};
    const char *weak = training_weakest();
    for (size_t m = 0; m < sizeof model / sizeof *model; m++) {
        check_recomputation(model[m], weak, TANDEM_PRECISION_FP32, 1, 1);
        check_recomputation(model[m], weak, TANDEM_PRECISION_INT8, 1, 1);
    }
    check_recomputation("vit_tiny:depth=2", weak, TANDEM_PRECISION_INT8_FULL, 3, 2);
    tandem_device strong;
    assert_int_equal(tandem_device_find(&strong, training_strongest(), NULL), TANDEM_OK);
    if (strong.precisions & 1u << TANDEM_PRECISION_BF16)
        check_recomputation("gpt_tiny:depth=2", strong.name, TANDEM_PRECISION_BF16, 2, 1);
    else
        print_message("SKIP bf16: no device here has it\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_steps_train_as_one_batch),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(nothing_else_changes),
    };
    return cmocka_run_group_tests(tests, training_folder_open, training_folder_remove);
}
