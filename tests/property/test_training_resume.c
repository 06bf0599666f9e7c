/* folder: backend, and others for devices, plans or robust means */
/* Laws of trainings that are put down and taken up again, that diverge, or that do not fit into memory: real
 * runs of one and two ranks. */
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

enum { HALF = 10, WHOLE = 20 };

static const char *const models[] = {"mlp:width=32", "gpt_tiny:width=32,depth=1,length=16",
                                     "resnet20:width=8,blocks=1"}; /* SGD, AdamW, batch normalisation */
enum { N_MODEL = 3 };

static experiment training_of_training_resume(const char *model, int n_rank, tandem_precision precision)
{
    return (experiment){.model = model,
                        .device = training_weakest(),
                        .batch = 4,
                        .n_rank = n_rank,
                        .steps = WHOLE,
                        .precision = precision,
                        .seed = 11,
                        .killed_rank = -1};
}

static record *run_well_training_resume(const experiment *e)
{
    record *r = training_run(e);
    for (int rank = 0; rank < e->n_rank; rank++) assert_int_equal(r->status[rank], TANDEM_OK);
    return r;
}

/* --- Put down and taken up ------------------------------------------------------------------------------ */

static void ten_and_ten_are_twenty(void **state)
{
    training_require_device();
    const training_file at_once = training_file_named("at_once"), half = training_file_named("half"),
                        rest = training_file_named("rest");
    static const tandem_precision precisions[] = {TANDEM_PRECISION_FP32, TANDEM_PRECISION_INT8_FULL};
    for (int m = 0; m < N_MODEL; m++)
        for (int n_rank = 1; n_rank <= 2; n_rank++)
            for (int p = 0; p < 2; p++) {
                experiment e = training_of_training_resume(models[m], n_rank, precisions[p]);
                e.save = at_once.path;
                record *whole = run_well_training_resume(&e);
                e.steps = HALF;
                e.save = half.path;
                e.save_every = 3; /* saving changes nothing */
                record *first = run_well_training_resume(&e);
                e.steps = WHOLE;
                e.resume = half.path;
                e.save = rest.path;
                e.save_every = 0;
                record *second = run_well_training_resume(&e);
                for (int rank = 0; rank < n_rank; rank++) {
                    assert_int_equal(second->resumed_at[rank], HALF);
                    assert_memory_equal(first->loss[rank], whole->loss[rank], HALF * sizeof(double));
                    assert_memory_equal(second->loss[rank] + HALF, whole->loss[rank] + HALF,
                                        (WHOLE - HALF) * sizeof(double));
                }
                assert_true(training_files_equal(at_once.path, rest.path));
                assert_false(training_files_equal(at_once.path, half.path));
                training_forget(whole);
                training_forget(first);
                training_forget(second);
            }
}

/* The file knows nothing of buckets: parameters are in the graph's order. */
static void buckets_are_no_part_of_a_checkpoint(void **state)
{
    training_require_device();
    const training_file one = training_file_named("one_bucket"), many = training_file_named("many_buckets"),
                        half = training_file_named("half");
    experiment e = training_of_training_resume(models[1], 1, TANDEM_PRECISION_FP32);
    e.save = one.path;
    training_forget(run_well_training_resume(&e));
    e.bucket_bytes = 4096;
    e.steps = HALF;
    e.save = half.path;
    training_forget(run_well_training_resume(&e));
    e.bucket_bytes = 1 << 20;
    e.steps = WHOLE;
    e.resume = half.path;
    e.save = many.path;
    training_forget(run_well_training_resume(&e));
    assert_true(training_files_equal(one.path, many.path));
}

static void another_number_of_ranks_goes_on(void **state)
{
    training_require_device();
    const training_file half = training_file_named("half");
    experiment e = training_of_training_resume(models[0], 2, TANDEM_PRECISION_FP32);
    record *whole = run_well_training_resume(&e);
    e.steps = HALF;
    e.save = half.path;
    training_forget(run_well_training_resume(&e));
    e.steps = WHOLE;
    e.resume = half.path;
    e.n_rank = 1;
    e.batch *= 2;
    record *second = run_well_training_resume(&e);
    for (int i = HALF; i < WHOLE; i++)
        assert_true(fabs(second->loss[0][i] - whole->loss[0][i]) <= 1e-4 * whole->loss[0][i]);
    training_forget(whole);
    training_forget(second);
}

static void a_checkpoint_that_is_refused_stops_all_ranks(void **state)
{
    training_require_device();
    const training_file file = training_file_named("other");
    experiment e = training_of_training_resume(models[0], 2, TANDEM_PRECISION_FP32);
    e.steps = 1;
    e.save = file.path;
    training_forget(run_well_training_resume(&e));
    e = training_of_training_resume(models[1], 2, TANDEM_PRECISION_FP32);
    e.resume = file.path;
    record *r = training_run(&e);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(r->status[rank], TANDEM_WRONG_MODEL);
        assert_non_null(strstr(r->error[rank].text, models[0]));
        assert_int_equal(r->error[rank].rank, 0); /* which reports it */
    }
    training_forget(r);
}

static void a_checkpoint_that_cannot_be_written_stops_all_ranks(void **state)
{
    training_require_device();
    experiment e = training_of_training_resume(models[0], 2, TANDEM_PRECISION_FP32);
    e.save = "/dev/full";
    record *r = training_run(&e);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(r->status[rank], TANDEM_IO);
        assert_non_null(strstr(r->error[rank].text, "/dev/full"));
        assert_non_null(strstr(r->error[rank].text, "No space"));
    }
    training_forget(r);
}

/* --- Divergence ----------------------------------------------------------------------------------------- */

enum { POISONED_STEP = 2 };
/* operators whose gradient of a parameter gets `poison` on the last rank; NULL = no more */
static const char *poisoned[3];
static float poison;

static void poison_gradients(void *context, const tandem_executor *executor, int t)
{
    const training_view *view = context;
    const tandem_task *task = &view->step->task[t];
    if (view->index != POISONED_STEP || view->rank + 1 < view->n_rank || task->kind != TANDEM_TASK_WGRAD)
        return;
    const tandem_op *op = &view->step->graph->op[task->op];
    for (int k = 0; poisoned[k]; k++) {
        if (strcmp(poisoned[k], op->name) != 0) continue;
        const int p = op->parameter[0];
        float *gradient = (float *)(uintptr_t)tandem_backend_get(TANDEM_BACKEND_VERSION)
                              ->executor_value(executor, TANDEM_PARAMETER(p), 1, NULL);
        gradient[view->step->graph->parameter[p].elements - 1] = poison;
    }
}

/* Poisons; says what every rank must say. */
static void expect_divergence(int n_rank, const char *named)
{
    const training_file last = training_file_named("last_good");
    experiment e = training_of_training_resume("mlp:width=32,depth=3", n_rank, TANDEM_PRECISION_FP32);
    e.observer = poison_gradients;
    e.save = last.path;
    e.save_every = 1;
    record *r = training_run(&e);
    char what[96];
    (void)snprintf(what, sizeof what, "step %d: the gradient of operator '%s'", POISONED_STEP + 1, named);
    for (int rank = 0; rank < n_rank; rank++) {
        assert_int_equal(r->status[rank], TANDEM_LIMIT_EXCEEDED);
        assert_non_null(strstr(r->error[rank].text, what));
        assert_int_equal(r->error[rank].rank, 0);
    }
    tandem_graph *graph = NULL;
    tandem_checkpoint_info info = {0};
    assert_int_equal(tandem_graph_open(&graph, e.model, e.batch, NULL), TANDEM_OK);
    assert_int_equal(
        tandem_backend_get(TANDEM_BACKEND_VERSION)->checkpoint_inspect(&info, last.path, graph, NULL),
        TANDEM_OK);
    assert_int_equal(info.step, POISONED_STEP); /* the last good one */
    tandem_graph_close(graph);
    training_forget(r);
}

static void divergence_names_the_operator_and_the_step(void **state)
{
    training_require_device();
    static const float poisons[] = {NAN, INFINITY, -INFINITY};
    static const char *const alone[] = {"fc1", "fc1.bias", "fc3", "head", "head.bias"};
    for (int n_rank = 1; n_rank <= 2; n_rank++)
        for (int k = 0; k < 5; k++) {
            poison = poisons[k % 3];
            poisoned[0] = alone[k];
            poisoned[1] = NULL;
            expect_divergence(n_rank, alone[k]);
        }
    poisoned[0] = "fc1"; /* of two, the first in backward order */
    poisoned[1] = "fc2";
    poisoned[2] = NULL;
    expect_divergence(2, "fc2");
}

static void divergence_can_be_allowed(void **state)
{
    training_require_device();
    experiment e = training_of_training_resume(models[0], 2, TANDEM_PRECISION_FP32);
    poison = NAN;
    poisoned[0] = "head";
    poisoned[1] = NULL;
    e.observer = poison_gradients;
    e.allow_nan = 1;
    record *r = run_well_training_resume(&e);
    assert_true(isfinite(r->loss[0][POISONED_STEP]) && isnan(r->loss[0][POISONED_STEP + 1]));
    training_forget(r);
}

static void a_learning_rate_that_is_too_high_diverges(void **state)
{
    training_require_device();
    const tandem_optimizer_options optimizer = {.kind = TANDEM_SGD, .rate = 1e20f};
    for (int p = 0; p < 2; p++) {
        experiment e =
            training_of_training_resume(models[0], 2, p ? TANDEM_PRECISION_INT8 : TANDEM_PRECISION_FP32);
        e.optimizer = &optimizer;
        record *r = training_run(&e);
        for (int rank = 0; rank < 2; rank++) {
            if (p && r->status[rank] == TANDEM_RANK_FAILED)
                continue; /* a cast to int8 fails on the rank that meets it */
            assert_int_equal(r->status[rank], TANDEM_LIMIT_EXCEEDED);
            assert_non_null(strstr(r->error[rank].text, "training has diverged in step "));
        }
        training_forget(r);
    }
}

/* --- Memory --------------------------------------------------------------------------------------------- */

/* The batch that a refusal names. */
static int64_t named_batch(const char *text)
{
    const char *at = strstr(text, "; batch ");
    assert_non_null(at);
    char *end = NULL;
    const long long batch = strtoll(at + strlen("; batch "), &end, 10);
    assert_string_equal(end, " would fit");
    return batch;
}

static void a_refusal_names_the_largest_batch_that_fits(void **state)
{
    training_require_device();
    for (int p = 0; p < 2; p++) {
        experiment e = training_of_training_resume("vit_tiny:width=48,depth=2", 2,
                                                   p ? TANDEM_PRECISION_INT8_FULL : TANDEM_PRECISION_FP32);
        e.steps = 1;
        e.batch = 24;
        record *r = run_well_training_resume(&e);
        e.memory_bytes = r->planned[0] / 2;
        training_forget(r);
        r = training_run(&e);
        static const char *const categories[] = {"weights ",        "gradients ", "optimizer ",
                                                 "activations ",    "workspace ", "its limit is ",
                                                 "their gradients "};
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(r->status[rank], TANDEM_INFEASIBLE);
            assert_string_equal(r->error[rank].text, r->error[0].text);
            assert_int_equal(r->error[rank].rank, 0);
            for (int k = 0; k < 7; k++) assert_non_null(strstr(r->error[rank].text, categories[k]));
        }
        e.batch = named_batch(r->error[0].text);
        training_forget(r);
        training_forget(run_well_training_resume(&e));
        e.batch++;
        r = training_run(&e);
        assert_int_equal(r->status[0], TANDEM_INFEASIBLE);
        training_forget(r);
    }
    experiment e = training_of_training_resume(models[0], 1, TANDEM_PRECISION_FP32);
    e.memory_bytes = 1024;
    record *r = training_run(&e);
    assert_int_equal(r->status[0], TANDEM_INFEASIBLE);
    assert_non_null(strstr(r->error[0].text, "no smaller batch was found to fit"));
    training_forget(r);
}

static void a_run_larger_than_the_machine_is_refused(void **state)
{
    training_require_device();
    experiment e = training_of_training_resume("resnet20:width=64", 2, TANDEM_PRECISION_FP32);
    e.batch = 1 << 20; /* terabytes */
    record *r = training_run(&e);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(r->status[rank], TANDEM_NO_MEMORY);
        assert_non_null(strstr(r->error[rank].text, "MemAvailable"));
        assert_true(named_batch(r->error[rank].text) < e.batch);
    }
    training_forget(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_and_ten_are_twenty),
        cmocka_unit_test(buckets_are_no_part_of_a_checkpoint),
        cmocka_unit_test(another_number_of_ranks_goes_on),
        cmocka_unit_test(a_checkpoint_that_is_refused_stops_all_ranks),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_stops_all_ranks),
        cmocka_unit_test(divergence_names_the_operator_and_the_step),
        cmocka_unit_test(divergence_can_be_allowed),
        cmocka_unit_test(a_learning_rate_that_is_too_high_diverges),
        cmocka_unit_test(a_refusal_names_the_largest_batch_that_fits),
        cmocka_unit_test(a_run_larger_than_the_machine_is_refused),
    };
    return cmocka_run_group_tests(tests, training_folder_open, training_folder_remove);
}
