/* folder: backend, and others for devices, plans or robust means */
/* Laws of what trainings do besides: clipping, loss scaling, label smoothing, dropout, parameters without
 * decay, running statistics, weights in files. Real runs of one and two ranks. */
#include "base/file.h"
#include "tests/support/tandem_test.h"
#include "tests/support/training_run.h"

enum { STEPS = 12 };
static const char gpt[] = "gpt_tiny:width=32,depth=1,length=16,dropout=0.1", mlp[] = "mlp:width=32",
                  resnet[] = "resnet20:width=8,blocks=1";

static char *read_file_training_features(const char *path, size_t *n, size_t *data)
{
    char *bytes = NULL;
    uint64_t header = 0;
    assert_int_equal(tandem_file_read(&bytes, n, path, 1 << 28, NULL), TANDEM_OK);
    memcpy(&header, bytes, sizeof header);
    *data = sizeof header + header;
    return bytes;
}

static experiment training_of_training_features(const char *model, int n_rank)
{
    return (experiment){.model = model,
                        .device = training_strongest(),
                        .batch = 8 / n_rank,
                        .n_rank = n_rank,
                        .steps = STEPS,
                        .precision = TANDEM_PRECISION_FP32,
                        .seed = 11,
                        .killed_rank = -1};
}

static record *run_well_training_features(const experiment *e)
{
    record *r = training_run(e);
    for (int rank = 0; rank < e->n_rank; rank++) assert_int_equal(r->status[rank], TANDEM_OK);
    return r;
}

static int same_losses(const record *a, const record *b, int steps)
{
    return memcmp(a->loss[0], b->loss[0], (size_t)steps * sizeof(double)) == 0;
}

static void assert_near_training_features(const record *a, const record *b, int steps, double most)
{
    for (int i = 0; i < steps; i++) assert_true(fabs(a->loss[0][i] - b->loss[0][i]) <= most * b->loss[0][i]);
}

/* --- Everything together -------------------------------------------------------------------------------- */

static void with_all(experiment *e)
{
    e->clip = 0.7;
    e->label_smoothing = 0.1f;
    e->loss_scale = -1;
    e->no_decay = "*.fc1.weight,embedding*,fc1*,conv.*";
}

/* Dropout draws by the place in the global batch, so that two ranks drop what one does. */
static void two_ranks_follow_one_and_repeat_to_the_bit(void **state)
{
    training_require_device();
    static const char *const models[] = {gpt, mlp};
    for (int m = 0; m < 2; m++) {
        experiment e = training_of_training_features(models[m], 1);
        with_all(&e);
        record *one = run_well_training_features(&e);
        e = training_of_training_features(models[m], 2);
        with_all(&e);
        record *two = run_well_training_features(&e), *again = run_well_training_features(&e);
        e.seed = 12;
        record *other = run_well_training_features(&e);
        assert_near_training_features(two, one, STEPS, 1e-4);
        assert_true(same_losses(two, again, STEPS));
        assert_false(same_losses(two, other, STEPS));
        assert_memory_equal(two->loss[0], two->loss[1], STEPS * sizeof(double));
        assert_memory_equal(two->report[0], two->report[1], STEPS * sizeof(tandem_step_report));
        training_forget(one);
        training_forget(two);
        training_forget(again);
        training_forget(other);
    }
}

/* So do micro-steps; and what is computed again drops the same again, to the bit. */
static void dropout_is_the_same_in_micro_steps_and_again(void **state)
{
    training_require_device();
    experiment e = training_of_training_features("gpt_tiny:width=32,depth=4,length=16,dropout=0.1", 1);
    record *whole = run_well_training_features(&e);
    e.variant.n_recompute_segment = 4;
    record *again = run_well_training_features(&e);
    assert_true(same_losses(again, whole, STEPS));
    assert_true(again->allocated[0] < whole->allocated[0]); /* it does compute again */
    training_forget(again);
    e.variant = (tandem_step_options){.n_micro = 4};
    with_all(&e);
    e.loss_scale = 0;
    e.batch = 2;
    record *parts = run_well_training_features(&e);
    e.variant.n_micro = 0;
    e.batch = 8;
    record *at_once = run_well_training_features(&e);
    assert_near_training_features(parts, at_once, STEPS, 1e-4);
    training_forget(parts);
    training_forget(at_once);
    training_forget(whole);
}

static void each_of_them_makes_a_difference(void **state)
{
    training_require_device();
    static const tandem_optimizer_options decays = {
        .kind = TANDEM_ADAMW, .rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .decay = 0.5f};
    experiment plain = training_of_training_features(gpt, 1);
    plain.optimizer = &decays;
    record *without = run_well_training_features(&plain);
    for (int k = 0; k < 4; k++) {
        experiment e = plain;
        if (k == 0) e.model = "gpt_tiny:width=32,depth=1,length=16";
        if (k == 1) e.clip = 0.1;
        if (k == 2) e.label_smoothing = 0.2f;
        if (k == 3) e.no_decay = "head.weight";
        record *with = run_well_training_features(&e);
        assert_false(same_losses(with, without, STEPS));
        /* what acts on updates alone shows from the second step on */
        if (k == 1 || k == 3) assert_true(with->loss[0][0] == without->loss[0][0]);
        training_forget(with);
    }
    training_forget(without);
}

/* --- Clipping ------------------------------------------------------------------------------------------- */

/* The step of plain SGD has the length rate × the clipped norm. */
static void a_clipped_step_has_the_length_asked_for(void **state)
{
    training_require_device();
    const training_file before = training_file_named("before"), after = training_file_named("after");
    static const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 1};
    for (int n_rank = 1; n_rank <= 2; n_rank++) {
        experiment e = training_of_training_features(mlp, n_rank);
        e.bucket_bytes = 4096; /* several */
        e.steps = 1;
        e.optimizer = &(tandem_optimizer_options){.kind = TANDEM_SGD, .rate = 0};
        e.export = before.path;
        training_forget(run_well_training_features(&e));
        e.optimizer = &sgd;
        e.clip = 0.01;
        e.export = after.path;
        record *r = run_well_training_features(&e);
        assert_true(r->report[0][0].gradient_norm > 0.01);
        size_t n[2], data = 0;
        char *const bytes[2] = {read_file_training_features(before.path, &n[0], &data),
                                read_file_training_features(after.path, &n[1], &data)};
        assert_int_equal(n[0], n[1]);
        double square = 0;
        for (size_t at = data; at < n[0]; at += sizeof(float)) {
            float from, to;
            memcpy(&from, bytes[0] + at, sizeof from);
            memcpy(&to, bytes[1] + at, sizeof to);
            square += ((double)to - (double)from) * ((double)to - (double)from);
        }
        assert_true(fabs(sqrt(square) - 0.01) < 1e-5);
        free(bytes[0]);
        free(bytes[1]);
        training_forget(r);
    }
}

/* A norm that is never reached changes no bit. */
static void a_wide_clip_changes_nothing(void **state)
{
    training_require_device();
    experiment e = training_of_training_features(gpt, 2);
    record *without = run_well_training_features(&e);
    e.clip = 1e9;
    record *with = run_well_training_features(&e);
    assert_true(same_losses(with, without, STEPS));
    assert_true(with->report[0][3].gradient_norm > 0 && without->report[0][3].gradient_norm < 0);
    training_forget(with);
    training_forget(without);
}

/* --- Loss scaling --------------------------------------------------------------------------------------- */

/* A power of two only moves exponents. */
static void a_scale_is_undone(void **state)
{
    training_require_device();
    experiment e = training_of_training_features(mlp, 2);
    record *without = run_well_training_features(&e);
    e.loss_scale = 1024;
    record *with = run_well_training_features(&e);
    assert_true(same_losses(with, without, STEPS));
    assert_true(with->report[0][0].loss_scale == 1024 && !with->report[0][0].skipped);
    training_forget(with);
    training_forget(without);
}

static void multiply_training_features(char *bytes, size_t n, float factor)
{
    for (size_t at = 0; at < n * sizeof(float); at += sizeof(float)) {
        float w;
        memcpy(&w, bytes + at, sizeof w);
        w *= factor;
        memcpy(bytes + at, &w, sizeof w);
    }
}

/* A training whose first layer is so large, and its last so small, that its loss is an ordinary one, but
 * 65536 times the gradient of the last is infinite; some halvings make it finite. Weights stay as they are.
 * */
static experiment large_training(int n_rank, const char *path)
{
    enum { PIXELS = 784, WIDTH = 32, CLASSES = 10 };
    static const tandem_optimizer_options still = {.kind = TANDEM_SGD, .rate = 0, .momentum = 0.5f};
    experiment e = training_of_training_features("mlp:width=32,depth=1", n_rank);
    e.optimizer = &still;
    e.steps = 1;
    e.export = path;
    training_forget(run_well_training_features(&e));
    size_t n = 0, data = 0;
    char *bytes = read_file_training_features(path, &n, &data);
    assert_int_equal(n - data, (PIXELS * WIDTH + WIDTH + WIDTH * CLASSES + CLASSES) * sizeof(float));
    multiply_training_features(bytes + data, PIXELS * WIDTH, 1e35f);
    multiply_training_features(bytes + data + (PIXELS * WIDTH + WIDTH) * sizeof(float), WIDTH * CLASSES,
                               1e-35f);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
    assert_int_equal(fclose(stream), 0);
    free(bytes);
    e.init = path;
    e.export = NULL;
    e.steps = STEPS;
    return e;
}

static void overflow_skips_steps(void **state)
{
    training_require_device();
    const training_file large = training_file_named("large"), first = training_file_named("first"),
                        last = training_file_named("last");
    for (int n_rank = 1; n_rank <= 2; n_rank++) {
        experiment e = large_training(n_rank, large.path);
        e.loss_scale = 65536;
        e.save = first.path;
        e.steps = 1;
        record *one = run_well_training_features(&e);
        e.steps = 2;
        e.save = last.path;
        record *two = run_well_training_features(&e);
        assert_true(one->report[0][0].skipped && two->report[0][0].skipped && two->report[0][1].skipped);
        e.loss_scale = 0; /* without a scale there is nothing to be skipped for */
        record *without = run_well_training_features(&e);
        assert_false(without->report[0][0].skipped);
        /* weights and momentum are as they were: all that lies after the header */
        size_t n[2];
        char *bytes[2];
        assert_int_equal(tandem_file_read(&bytes[0], &n[0], first.path, 1 << 28, NULL), TANDEM_OK);
        e.loss_scale = 65536;
        training_forget(run_well_training_features(&e));
        assert_int_equal(tandem_file_read(&bytes[1], &n[1], last.path, 1 << 28, NULL), TANDEM_OK);
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0] + 4096, bytes[1] + 4096, n[0] - 4096);
        free(bytes[0]);
        free(bytes[1]);
        training_forget(one);
        training_forget(two);
        training_forget(without);
    }
}

static void a_dynamic_scale_finds_its_place_and_is_resumed(void **state)
{
    training_require_device();
    const training_file half = training_file_named("half"), whole = training_file_named("whole"),
                        rest = training_file_named("rest"), large = training_file_named("large");
    for (int n_rank = 1; n_rank <= 2; n_rank++) {
        experiment e = large_training(n_rank, large.path);
        e.loss_scale = -1;
        e.save = whole.path;
        record *r = run_well_training_features(&e);
        const tandem_step_report *report = r->report[0];
        int skipped = 0;
        for (int i = 0; i < STEPS; i++) {
            assert_true(report[i].loss_scale == ldexpf(1, 16 - skipped));
            skipped += report[i].skipped;
        }
        assert_true(report[0].skipped && skipped < STEPS);
        e.steps = STEPS / 2;
        e.save = half.path;
        training_forget(run_well_training_features(&e));
        e.steps = STEPS;
        e.init = NULL;
        e.resume = half.path;
        e.save = rest.path;
        record *resumed = run_well_training_features(&e);
        assert_memory_equal(resumed->report[0] + STEPS / 2, report + STEPS / 2, STEPS / 2 * sizeof *report);
        assert_true(training_files_equal(whole.path, rest.path));
        training_forget(resumed);
        training_forget(r);
    }
}

/* --- Weights in files ----------------------------------------------------------------------------------- */

static void weights_come_back_on_any_number_of_ranks(void **state)
{
    training_require_device();
    const training_file first = training_file_named("first"), copy = training_file_named("copy");
    for (int n_rank = 1; n_rank <= 2; n_rank++) {
        experiment e = training_of_training_features(resnet, n_rank);
        e.export = first.path;
        training_forget(run_well_training_features(&e));
        for (int again = 1; again <= 2; again++) {
            experiment still = training_of_training_features(resnet, again);
            still.optimizer = &(tandem_optimizer_options){.kind = TANDEM_SGD, .rate = 0};
            still.init = first.path;
            still.export = copy.path;
            still.steps = 1;
            training_forget(run_well_training_features(&still));
            /* a step follows the statistics, and leaves the weights */
            size_t n[2], data = 0;
            char *const bytes[2] = {read_file_training_features(first.path, &n[0], &data),
                                    read_file_training_features(copy.path, &n[1], &data)};
            assert_int_equal(n[0], n[1]);
            tandem_graph *graph = NULL;
            assert_int_equal(tandem_graph_open(&graph, resnet, 1, NULL), TANDEM_OK);
            const size_t end = data + (size_t)tandem_graph_n_weight(graph) * sizeof(float);
            tandem_graph_close(graph);
            assert_memory_equal(bytes[0], bytes[1], end);
            assert_true(memcmp(bytes[0] + end, bytes[1] + end, n[0] - end) != 0);
            free(bytes[0]);
            free(bytes[1]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_follow_one_and_repeat_to_the_bit),
        cmocka_unit_test(dropout_is_the_same_in_micro_steps_and_again),
        cmocka_unit_test(each_of_them_makes_a_difference),
        cmocka_unit_test(a_clipped_step_has_the_length_asked_for),
        cmocka_unit_test(a_wide_clip_changes_nothing),
        cmocka_unit_test(a_scale_is_undone),
        cmocka_unit_test(overflow_skips_steps),
        cmocka_unit_test(a_dynamic_scale_finds_its_place_and_is_resumed),
        cmocka_unit_test(weights_come_back_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests_name("training features", tests, training_folder_open,
                                       training_folder_remove);
}
