/* folder: replayer */
/* Laws of times that were not measured, over the models of the zoo and seeded random prices. */
#include "base/philox.h"
#include "tandem/advanced/predictor.h"
#include "tandem/advanced/replayer.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

enum { SEED = 30333, N_SERIES = 12 };

static double draw_cost(uint64_t seed, const char *text, uint32_t purpose)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *c = text; *c; c++) hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
    const uint32_t counter[4] = {(uint32_t)hash, (uint32_t)(hash >> 32), purpose, 91};
    return (double)tandem_philox_uniform(tandem_philox(counter, seed).word[0]);
}

/* A model's step program at a batch. */
typedef struct program {
    tandem_graph *graph;
    tandem_step *step;
} program;

static program open_program(const char *model, int64_t batch, tandem_dtype amp_dtype)
{
    program p = {NULL, NULL};
    tandem_error error = {0};
    if (tandem_graph_open(&p.graph, model, batch, &error) != TANDEM_OK ||
        tandem_step_open(&p.step, p.graph, amp_dtype, 0, &error) != TANDEM_OK)
        fail_msg("%s", error.text);
    return p;
}

static void close_program(program *p)
{
    tandem_step_close(p->step);
    tandem_graph_close(p->graph);
}

/* The key of a task's form where it is priced by a look-up. */
static int key_of_cost(const program *p, int t, int variant, tandem_cost_key *key)
{
    return tandem_step_cost_key(p->step, t, variant, key) && key->kind != TANDEM_COST_COLLECTIVE;
}

/* Nothing falls where the batch grows, and nothing is free. */
static void check_growth(const tandem_latency *latency, const char *name, const program *small,
                         const program *large, int64_t min_ns, int *n_predicted)
{
    for (int t = 0; t < small->step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
            tandem_cost_key a, b;
            if (!key_of_cost(small, t, variant, &a) || !key_of_cost(large, t, variant, &b)) continue;
            const int64_t ns = tandem_latency_ns(latency, &a, NULL),
                          more = tandem_latency_ns(latency, &b, NULL);
            if (ns < 0 && more < 0) continue;
            (*n_predicted)++;
            if (ns < min_ns || more < ns)
                fail_msg("%s on %s: %s %lld ns, %s %lld ns", small->graph->model, name, a.signature,
                         (long long)ns, b.signature, (long long)more);
        }
}

static void every_operator_of_the_zoo_has_work(void **state)
{
    for (int i = 0; i < tandem_model_count(); i++) {
        program p = open_program(tandem_model_get(i)->name, 4, TANDEM_BF16);
        for (int t = 0; t < p.step->n_task; t++)
            for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
                tandem_cost_key key;
                tandem_work work;
                if (!key_of_cost(&p, t, variant, &key)) continue;
                if (!tandem_work_of(&work, &key))
                    fail_msg("%s: nothing is known of '%s'", p.graph->model, key.signature);
                assert_true(work.bytes > 0 && work.flops >= 0 && work.kind);
                if (work.is_product) assert_true(work.m >= 1 && work.n >= 1 && work.k > 0 && work.count >= 1);
            }
        close_program(&p);
    }
}

static void described_times_grow_with_the_batch(void **state)
{
    int n_predicted = 0;
    for (int d = 0; d < tandem_device_count(); d++) {
        const tandem_device *device = tandem_device_get(d);
        tandem_latency *latency = NULL;
        if (!tandem_device_is_described(device)) continue;
        assert_int_equal(tandem_latency_open(&latency, device, "", NULL, NULL), TANDEM_OK);
        for (int i = 0; i < tandem_model_count(); i++) {
            program small = open_program(tandem_model_get(i)->name, 3, device->amp_dtype),
                    large = open_program(tandem_model_get(i)->name, 8, device->amp_dtype);
            check_growth(latency, device->name, &small, &large, device->gpu_spec.launch_ns, &n_predicted);
            close_program(&large);
            close_program(&small);
        }
        tandem_latency_close(latency);
    }
    assert_true(n_predicted > 1000);
}

/* A product whose sides grow one by one. */
static void described_products_grow_with_every_side(void **state)
{
    tandem_device device;
    assert_int_equal(tandem_device_find(&device, "t4", NULL), TANDEM_OK);
    for (int series = 0; series < N_SERIES; series++) {
        double size[3] = {1, 1, 1}, former = 0;
        for (int step = 0; step < 200; step++) {
            char text[64], place[32];
            (void)snprintf(place, sizeof place, "%d %d", series, step);
            const int side = (int)(3 * draw_cost(SEED, place, 1));
            size[side] += floor(1 + 60 * draw_cost(SEED, place, 2));
            tandem_cost_key key = {.kind = TANDEM_COST_OP, .precision = "fp32"};
            tandem_work work;
            (void)snprintf(text, sizeof text, "linear m=%.0f k=%.0f n=%.0f", size[0], size[1], size[2]);
            (void)snprintf(key.signature, sizeof key.signature, "%s", text);
            assert_true(tandem_work_of(&work, &key));
            const double ns = tandem_roofline_ns(&device.gpu_spec, &work);
            if (ns < former)
                fail_msg("seed %d, series %d: %s takes %g ns, less than %g", SEED, series, text, ns, former);
            former = ns;
        }
    }
}

/* Prices that no formula made: 1 to 3 times a time that grows with the work. */
static int64_t random_price(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    const uint64_t *seed = context;
    char text[TANDEM_COST_KEY_TEXT];
    tandem_work work;
    tandem_cost_key_print(text, sizeof text, key);
    *workspace_bytes = 0;
    if (!tandem_work_of(&work, key)) return -1;
    return (int64_t)((200 + work.bytes * 0.2 + work.flops * 0.02) * (1 + 2 * draw_cost(*seed, text, 3)));
}

static void fitted_times_grow_with_the_batch(void **state)
{
    static const char *const measured[] = {"mlp:width=32,depth=2,image=4x4x1",
                                           "gpt_tiny:length=8,width=16,depth=1,heads=2",
                                           "resnet20:width=4,blocks=1,image=8x8x1"};
    static const char *const asked[] = {"gpt_tiny:length=16,width=32,depth=1,heads=4",
                                        "vit_tiny:image=8x8x1,width=24,depth=1,heads=2",
                                        "mlp:width=80,depth=1,image=8x8x1"};
    tandem_device device;
    int n_predicted = 0;
    assert_int_equal(tandem_device_find(&device, "cpu:avx512_bf16", NULL), TANDEM_OK);
    printf("seed %d, series 0 … %d\n", SEED, N_SERIES - 1);
    for (int series = 0; series < N_SERIES; series++) {
        uint64_t seed = (uint64_t)(SEED + series);
        replay_store s = {.path = ""};
        tandem_latency *latency = NULL;
        replay_store_open(&s);
        for (int64_t batch = 2; batch <= 6; batch += 2) {
            program p = open_program(measured[series % 3], batch, device.amp_dtype);
            replay_store_fill(&s, p.graph, device.amp_dtype, 0, device.name, "", random_price, &seed);
            close_program(&p);
        }
        assert_int_equal(tandem_latency_open(&latency, &device, "", s.store, NULL), TANDEM_OK);
        program small = open_program(asked[series / 3 % 3], 4, device.amp_dtype),
                large = open_program(asked[series / 3 % 3], 9, device.amp_dtype);
        check_growth(latency, device.name, &small, &large, 1, &n_predicted);
        close_program(&large);
        close_program(&small);
        tandem_latency_close(latency);
        replay_store_close(&s);
    }
    assert_true(n_predicted > 1000);
}

/* At a measured batch what was measured, between two of them between the two. */
static void interpolated_times_lie_between_their_neighbours(void **state)
{
    static const char model[] = "mlp:width=8,depth=2,image=4x4x1";
    static const int64_t batches[] = {2, 5, 6, 11};
    tandem_cluster cluster = {.n_class = 1, .classes = {replay_class("cpu:avx2", TANDEM_F32, 1, 0)}};
    for (int series = 0; series < N_SERIES; series++) {
        uint64_t seed = (uint64_t)(SEED + series);
        replay_store s = {.path = ""};
        tandem_replayer *replayer[12] = {NULL};
        program p[12];
        replay_store_open(&s);
        for (int64_t b = 1; b <= 11; b++) p[b] = open_program(model, b, TANDEM_F32);
        for (int i = 0; i < 4; i++)
            replay_store_fill(&s, p[batches[i]].graph, TANDEM_F32, 0, "cpu:avx2", "", random_price, &seed);
        for (int64_t b = 2; b <= 11; b++) {
            const tandem_graph *graph[] = {p[b].graph};
            assert_int_equal(tandem_replayer_open(&replayer[b], &cluster, graph, s.store, 0, NULL),
                             TANDEM_OK);
        }
        for (int i = 0; i < 3; i++)
            for (int64_t b = batches[i]; b <= batches[i + 1]; b++)
                for (int t = 0; t < p[b].step->n_task; t++)
                    for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
                        tandem_cost_key key;
                        uint64_t bytes;
                        if (!key_of_cost(&p[b], t, variant, &key)) continue;
                        const int64_t ns = tandem_replayer_variant_ns(replayer[b], 0, t, variant, 0),
                                      low =
                                          tandem_replayer_variant_ns(replayer[batches[i]], 0, t, variant, 0),
                                      high = tandem_replayer_variant_ns(replayer[batches[i + 1]], 0, t,
                                                                        variant, 0);
                        if (b == batches[i]) assert_int_equal(ns, random_price(&seed, &key, &bytes));
                        /* a cast of as many elements as one of another batch is measured, not interpolated */
                        if (key.kind == TANDEM_COST_CAST) continue;
                        assert_in_range(ns, low < high ? low : high, low < high ? high : low);
                    }
        for (int64_t b = 1; b <= 11; b++) {
            tandem_replayer_close(replayer[b]);
            close_program(&p[b]);
        }
        replay_store_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_of_the_zoo_has_work),
        cmocka_unit_test(described_times_grow_with_the_batch),
        cmocka_unit_test(described_products_grow_with_every_side),
        cmocka_unit_test(fitted_times_grow_with_the_batch),
        cmocka_unit_test(interpolated_times_lie_between_their_neighbours),
    };
    return cmocka_run_group_tests_name("laws of costs", tests, NULL, NULL);
}
