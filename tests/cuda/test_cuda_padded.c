/* folder: backend, and others for devices, plans or robust means */
/* Logits over an odd number of words, whose rows begin at multiples of 64 elements on cards: whole steps of a
 * model with them, on what replaces NVIDIA's libraries, beside the same steps without gaps. */
#include <dlfcn.h>
#include <math.h>

#include "tandem/advanced/backend.h"
#include "tandem/cluster.h"
#include "tests/cuda/stand_in_library.h"
#include "tests/support/tandem_test.h"

static int *unaligned_products, *has_device_memory;

static int open_padded_stand_in(void **state)
{
    void *library = stand_in_library_open();
    if (!library) fail_msg("%s", dlerror());
    unaligned_products = dlsym(library, "stand_in_unaligned_products");
    has_device_memory = dlsym(library, "stand_in_has_device_memory");
    assert_true(unaligned_products && has_device_memory);
    *has_device_memory = 1;
    (void)state;
    return 0;
}

enum { STEPS = 2, BATCH = 2, WORDS = 257, ROW = 320 };

typedef struct padded_run {
    double loss[STEPS];
    float *weight;
    int64_t n_weight;
    uint64_t arena, logits; /* bytes; logits: of the head's result */
    int unaligned;          /* products, in all steps */
} padded_run;

static tandem_step *open_padded_step(const tandem_graph *graph, tandem_precision precision, int padded,
                                     int n_micro)
{
    tandem_cluster cluster;
    tandem_step *step = NULL;
    tandem_error error = {0};
    const tandem_step_options options = {.n_micro = n_micro};
    assert_int_equal(tandem_cluster_parse(&cluster, "cuda:0", &error), TANDEM_OK);
    assert_int_equal(cluster.classes[0].device.padded_rows, 1);
    cluster.classes[0].device.padded_rows = padded;
    assert_int_equal(tandem_device_open_step(&step, &cluster.classes[0].device, graph, 0, &options, &error),
                     TANDEM_OK);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i]) &&
            tandem_op_row_get(graph->op[i].kind)->precisions >> precision & 1)
            tandem_step_set(step, i, precision);
    tandem_step_resolve(step);
    return step;
}

/* Predicted and allocated bytes are one number, with gaps and without. */
static padded_run run_padded(const char *model, tandem_precision precision, int padded, int n_micro)
{
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    const tandem_worker_options of_worker = {
        .device = "cuda:0", .n_rank = 1, .cpu = -1, .timeout_ns = INT64_C(1000000000)};
    padded_run r = {.arena = 0};
    tandem_graph *graph = NULL;
    tandem_worker *worker = NULL;
    tandem_executor *executor = NULL;
    tandem_error error = {0};
    assert_int_equal(tandem_graph_open(&graph, model, BATCH, &error), TANDEM_OK);
    tandem_step *step = open_padded_step(graph, precision, padded, n_micro);
    const int logits = graph->op[graph->loss].input[0];
    assert_int_equal(tandem_step_padded_row(step, logits), padded ? ROW : 0);
    r.logits = step->value[tandem_value_activation(step, logits, step->output_dtype[logits])].bytes;
    assert_int_equal(backend->worker_open(&worker, &of_worker, &error), TANDEM_OK);
    const tandem_executor_options how = {.step = step, .global_batch = (int64_t)BATCH * n_micro};
    assert_int_equal(backend->executor_open(&executor, worker, &how, &error), TANDEM_OK);
    assert_int_equal(backend->executor_memory(executor)->peak, backend->executor_allocated_bytes(executor));
    r.arena = backend->executor_memory(executor)->arena;
    r.n_weight = step->n_flat;
    r.weight = calloc((size_t)r.n_weight, sizeof *r.weight);
    assert_non_null(r.weight);
    const int before = *unaligned_products;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(backend->executor_step(executor, i, &r.loss[i], &error), TANDEM_OK);
    r.unaligned = *unaligned_products - before;
    assert_int_equal(backend->executor_get_weights(executor, r.weight, &error), TANDEM_OK);
    backend->executor_close(executor);
    backend->worker_close(worker);
    tandem_step_close(step);
    tandem_graph_close(graph);
    return r;
}

static double relative_distance(const padded_run *a, const padded_run *b)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < a->n_weight; i++) {
        apart += pow((double)a->weight[i] - (double)b->weight[i], 2);
        size += pow((double)b->weight[i], 2);
    }
    return sqrt(apart / size);
}

/* gpt2's head reads the words' table as it lies; bert's has a bias after that. Sides that are no words are
 * multiples of 16, so that the logits alone decide which products have rows that a card loads slowly. */
static const char *const models[] = {
    "gpt2_small:seq=16,width=32,layers=1,heads=2,vocabulary=257,positions=16",
    "bert_base:seq=16,width=32,layers=1,heads=2,vocabulary=257,positions=16"};

static void check_padded_model(const char *model, tandem_precision precision, int n_micro)
{
    padded_run gaps = run_padded(model, precision, 1, n_micro),
               none = run_padded(model, precision, 0, n_micro);
    const int draws_by_place = precision == TANDEM_PRECISION_INT8 || precision == TANDEM_PRECISION_INT8_FULL;
    assert_int_equal(gaps.logits * WORDS, none.logits * ROW);
    assert_true(gaps.arena >= none.arena);
    /* codes are padded to whole sixteens anyway */
    assert_int_equal(gaps.unaligned, 0);
    if (precision != TANDEM_PRECISION_FP8 && precision != TANDEM_PRECISION_INT8_FULL)
        assert_true(none.unaligned >= STEPS * n_micro);
    for (int i = 0; i < STEPS; i++) {
        assert_true(isfinite(gaps.loss[i]));
        /* the first loss has been through no gradient; sums over a row have another order */
        assert_true(fabs(gaps.loss[i] - none.loss[i]) < (i == 0 ? 1e-5 : 2e-3) * none.loss[i]);
    }
    assert_true(relative_distance(&gaps, &none) < (draws_by_place ? 2e-2 : 1e-3));
    free(none.weight);
    free(gaps.weight);
}

static void gaps_change_no_step(void **state)
{
    static const tandem_precision precisions[] = {
        TANDEM_PRECISION_FP32, TANDEM_PRECISION_TF32, TANDEM_PRECISION_BF16,     TANDEM_PRECISION_FP16,
        TANDEM_PRECISION_FP8,  TANDEM_PRECISION_INT8, TANDEM_PRECISION_INT8_FULL};
    for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++)
        check_padded_model(models[0], precisions[k], 1 + (int)(k % 2));
    check_padded_model(models[1], TANDEM_PRECISION_BF16, 2);
    check_padded_model(models[1], TANDEM_PRECISION_FP8, 1);
    check_padded_model(models[1], TANDEM_PRECISION_INT8, 1);
    (void)state;
}

/* Who looks into values has them as their shapes say, and so has who has nothing to gain. */
static void other_steps_have_no_gaps(void **state)
{
    static const struct {
        const char *model;
        tandem_step_options options;
    } cases[] = {
        {"gpt2_small:seq=16,width=32,layers=1,heads=2,vocabulary=264,positions=16",
         {.narrow_rows = 1, .padded_rows = 1}},
        {"gpt_tiny:width=32,depth=1,length=8", {.narrow_rows = 1, .padded_rows = 1}}, /* not tied */
        {NULL, {.padded_rows = 1}},
        {NULL, {.narrow_rows = 1}},
        {NULL, {.narrow_rows = 1, .padded_rows = 1, .emulated = 1}},
        {NULL, {.narrow_rows = 1, .padded_rows = 1, .separate_partial_grads = 1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tandem_graph *graph = NULL;
        tandem_step *step = NULL;
        assert_int_equal(tandem_graph_open(&graph, cases[k].model ? cases[k].model : models[0], BATCH, NULL),
                         TANDEM_OK);
        assert_int_equal(tandem_step_open_with(&step, graph, TANDEM_BF16, 0, &cases[k].options, NULL),
                         TANDEM_OK);
        for (int i = 0; i < graph->n_op; i++) assert_int_equal(tandem_step_padded_row(step, i), 0);
        tandem_step_close(step);
        tandem_graph_close(graph);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gaps_change_no_step),
                                       cmocka_unit_test(other_steps_have_no_gaps)};
    return cmocka_run_group_tests_name("rows of logits with gaps", tests, open_padded_stand_in, NULL);
}
