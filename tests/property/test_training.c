/* folder: backend, and others for devices, plans or robust means */
/* Laws of real training runs: repeatable to the bit, and the same whether one rank or two do the work. Every
 * run is a set of forked ranks, because an instruction set and a Gloo connection belong to a process. */
#include "base/clock.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

static const char *const models[] = {
    "mlp:width=64",
    "vit_tiny:width=48,depth=2",
    "gpt_tiny:width=32,depth=2,length=16",
    "gpt2_small:seq=8,width=32,layers=1,heads=2,vocabulary=200,positions=16",
    "bert_base:seq=16,width=32,layers=1,heads=2,vocabulary=200,positions=32",
    "bert_base:seq=16,width=32,layers=1,heads=2,vocabulary=200,positions=32,head=class",
    "vit_b16:image=8x8x3,patch=4,width=32,layers=1,heads=2,classes=10",
    "resnet20:width=8,blocks=1",
    "resnet18:width=4,image=16x16x3,classes=10",
    "resnet50:width=4,image=16x16x3,classes=10",
    "vgg16_bn:width=4,hidden=32,image=32x32x1,classes=10"};
enum { N_MODEL = 11, N_WITHOUT_BATCHNORM = 7 };

static void two_ranks_of_half_the_batch_follow_one(void **state)
{
    training_require_device();
    for (int m = 0; m < N_WITHOUT_BATCHNORM; m++) {
        experiment e = {.model = models[m],
                        .device = training_strongest(),
                        .batch = 16,
                        .n_rank = 1,
                        .steps = 10,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 7,
                        .killed_rank = -1};
        record *whole = training_run(&e);
        e.batch = 8;
        e.n_rank = 2;
        record *halves = training_run(&e);
        for (int i = 0; i < e.steps; i++) {
            assert_true(whole->loss[0][i] > 0);
            assert_true(fabs(halves->loss[0][i] - whole->loss[0][i]) <= 1e-4 * whole->loss[0][i]);
            assert_true(memcmp(&halves->loss[0][i], &halves->loss[1][i], sizeof(double)) == 0);
        }
        assert_true(whole->loss[0][9] != whole->loss[0][0]); /* it does learn */
        training_forget(whole);
        training_forget(halves);
    }
}

static void same_seed_same_losses_to_the_bit(void **state)
{
    training_require_device();
    tandem_device weakest;
    assert_int_equal(tandem_device_find(&weakest, training_weakest(), NULL), TANDEM_OK);
    const int step = test_is_long() ? 1 : 2; /* else every other model */
    for (int m = 0; m < N_MODEL; m += step)
        for (int n_rank = test_is_long() ? 1 : 2; n_rank <= 2; n_rank++)
            for (int p = 0; p < TANDEM_N_PRECISION; p++) {
                if (!(weakest.precisions >> p & 1)) continue;
                experiment e = {.model = models[m],
                                .device = training_weakest(),
                                .batch = 4,
                                .n_rank = n_rank,
                                .steps = 4,
                                .precision = (tandem_precision)p,
                                .seed = 3,
                                .killed_rank = -1};
                record *first = training_run(&e);
                e.over_network = 1; /* changes nothing either */
                record *second = training_run(&e);
                e.seed = 4;
                record *other = training_run(&e);
                for (int rank = 0; rank < n_rank; rank++) {
                    assert_int_equal(first->status[rank], TANDEM_OK);
                    assert_memory_equal(first->loss[rank], second->loss[rank],
                                        (size_t)e.steps * sizeof(double));
                    assert_int_equal(first->allocated[rank], first->planned[rank]);
                }
                assert_true(memcmp(first->loss[0], other->loss[0], (size_t)e.steps * sizeof(double)) != 0);
                training_forget(first);
                training_forget(second);
                training_forget(other);
            }
}

/* In bf16, too, results depend on no transport, and all ranks update alike. The losses themselves are exact,
 * so the first one, of equal weights, is f32's. */
static void gradients_in_bf16_follow_those_in_f32(void **state)
{
    training_require_device();
    for (int m = 0; m < N_MODEL; m++) {
        experiment e = {.model = models[m],
                        .device = training_weakest(),
                        .batch = 8,
                        .n_rank = 2,
                        .steps = 6,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 11,
                        .killed_rank = -1,
                        .hash_gradients = 1};
        record *exact = training_run_through(&e);
        e.wire = TANDEM_BF16;
        record *shared = training_run_through(&e);
        e.over_network = 1;
        record *narrow = training_run_through(&e);
        training_check_same_bits(shared, narrow, &e);
        assert_true(narrow->loss[0][0] == exact->loss[0][0]);
        for (int i = 0; i < e.steps; i++) {
            assert_true(narrow->gradients[0][i] == narrow->gradients[1][i]);
            assert_true(narrow->gradients[0][i] != exact->gradients[0][i]);
            assert_true(fabs(narrow->loss[0][i] - exact->loss[0][i]) <= 0.02 * exact->loss[0][i]);
        }
        assert_true(narrow->allocated[0] == exact->allocated[0]); /* buckets are packed where they lie */
        e.n_rank = 1;
        record *alone = training_run_through(&e);
        e.wire = TANDEM_F32;
        record *alone_exact = training_run_through(&e);
        training_check_same_bits(alone, alone_exact, &e);
        training_forget(alone_exact);
        training_forget(alone);
        training_forget(narrow);
        training_forget(shared);
        training_forget(exact);
    }
}

static void ranks_that_send_different_types_are_reported(void **state)
{
    training_require_device();
    experiment e = {.model = models[0],
                    .device = training_weakest(),
                    .batch = 4,
                    .n_rank = 3,
                    .steps = 2,
                    .precision = TANDEM_PRECISION_FP32,
                    .killed_rank = -1,
                    .wire = TANDEM_BF16,
                    .wires_differ = 1,
                    .fails = 1};
    for (e.over_network = 0; e.over_network < 2; e.over_network++) {
        const int64_t begin_ns = tandem_now_ns();
        record *r = training_run(&e);
        for (int rank = 0; rank < e.n_rank; rank++) {
            assert_int_equal(r->status[rank], TANDEM_USAGE);
            assert_non_null(strstr(r->error[rank].text, "in f32 from rank 0, and in bf16 from rank 1"));
        }
        assert_true(tandem_now_ns() - begin_ns < INT64_C(15000000000)); /* the time-out is 20 s */
        training_forget(r);
    }
}

/* Rounding noise must not bend the first losses away from fp32's. */
static void low_precision_follows_fp32_at_first(void **state)
{
    training_require_device();
    for (int m = 0; m < N_MODEL; m++) {
        experiment e = {.model = models[m],
                        .device = training_strongest(),
                        .batch = 16,
                        .n_rank = 1,
                        .steps = 3,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 5,
                        .killed_rank = -1};
        tandem_device device;
        assert_int_equal(tandem_device_find(&device, e.device, NULL), TANDEM_OK);
        record *reference = training_run(&e);
        for (int p = 1; p < TANDEM_N_PRECISION; p++) {
            if (!(device.precisions & (1u << p))) continue;
            e.precision = (tandem_precision)p;
            record *narrow = training_run(&e);
            assert_int_equal(narrow->status[0], TANDEM_OK);
            assert_true(fabs(narrow->loss[0][0] - reference->loss[0][0]) < 0.05 * reference->loss[0][0]);
            /* it is not fp32 under another name; a single loss near ln 10 may be the same float */
            assert_true(memcmp(narrow->loss[0], reference->loss[0], (size_t)e.steps * sizeof(double)) != 0);
            training_forget(narrow);
        }
        training_forget(reference);
    }
}

static void a_killed_rank_stops_the_others_soon(void **state)
{
    training_require_device();
    experiment e = {.model = models[1],
                    .device = training_weakest(),
                    .batch = 8,
                    .n_rank = 2,
                    .steps = MAX_STEPS,
                    .precision = TANDEM_PRECISION_FP32,
                    .seed = 1,
                    .killed_rank = 1};
    for (e.over_network = 0; e.over_network < 2; e.over_network++) {
        const int64_t begin = tandem_now_ns();
        record *r = training_run(&e);
        assert_int_equal(r->status[0], TANDEM_RANK_FAILED);
        assert_int_equal(r->error[0].rank, 1);
        assert_int_equal(tandem_status_exit_code(r->status[0]), 6);
        assert_true(r->failed_ns[0] - begin < INT64_C(30000000000));
        training_forget(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_of_half_the_batch_follow_one),
        cmocka_unit_test(same_seed_same_losses_to_the_bit),
        cmocka_unit_test(gradients_in_bf16_follow_those_in_f32),
        cmocka_unit_test(ranks_that_send_different_types_are_reported),
        cmocka_unit_test(low_precision_follows_fp32_at_first),
        cmocka_unit_test(a_killed_rank_stops_the_others_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
