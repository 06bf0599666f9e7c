/* folder: replayer */
/* Laws of times that were not measured, over the models of the zoo and seeded random costs. */
#include <math.h>

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

/* The key of a task's form where it is costed by a look-up. */
static int key_of_cost(const program *p, int t, int variant, tandem_cost_key *key)
{
    return tandem_step_cost_key(p->step, t, variant, key) && key->kind != TANDEM_COST_COLLECTIVE;
}

/* Nothing falls by more than 5 % where the batch grows (tiles, waves), and nothing is free. */
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
            if (ns < min_ns || (double)more < 0.95 * (double)ns)
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
        assert_int_equal(tandem_latency_open_described(&latency, device, "", NULL, NULL), TANDEM_OK);
        for (int i = 0; i < tandem_model_count(); i++) {
            program small = open_program(tandem_model_get(i)->name, 3, device->amp_dtype),
                    large = open_program(tandem_model_get(i)->name, 8, device->amp_dtype);
            check_growth(latency, device->name, &small, &large, 1000, &n_predicted);
            close_program(&large);
            close_program(&small);
        }
        tandem_latency_close(latency);
    }
    assert_true(n_predicted > 1000);
}

/* --- The form: seeded shapes of every class, each on every described card ------------------------------- */

enum { MAX_SIZE = 5, N_SHAPE = 240000, MIN_SHAPES = 100000, MAX_CARDS = 64 };
static const struct shape_class {
    const char *name;
    int n_size;
    double max_log2[MAX_SIZE]; /* of each size */
} shape_classes[] = {{"linear", 3, {14, 14, 14}},
                     {"matmul", 4, {10, 11, 11, 11}},
                     {"softmax", 2, {16, 13}},
                     {"layernorm", 2, {16, 13}},
                     {"add", 1, {28}},
                     {"conv2d", 5, {8, 8, 8, 11, 11}}};
enum { N_CLASS = sizeof shape_classes / sizeof *shape_classes };

/* A shape: what does not grow, and its sizes. Half of all are convolutions, whose form has most cases. */
typedef struct drawn_shape {
    int class, kernel, stride;
    tandem_precision precision;
    tandem_pass pass;
    double size[MAX_SIZE];
} drawn_shape;

static drawn_shape draw_shape(int series)
{
    static const tandem_pass passes[] = {TANDEM_PASS_FORWARD, TANDEM_PASS_DGRAD, TANDEM_PASS_WGRAD};
    const int class = series % 2 ? N_CLASS - 1 : series / 2 % N_CLASS, is_product = class < 2 || class == 5;
    const uint32_t counter[4] = {(uint32_t)series, 0, 0, 92}, sizes[4] = {(uint32_t)series, 1, 0, 92};
    const tandem_philox_block kind = tandem_philox(counter, SEED), words = tandem_philox(sizes, SEED);
    drawn_shape shape = {.class = class,
                         .kernel = 1 + 2 * (int)(kind.word[0] % 4),
                         .stride = 1 + (int)(kind.word[0] / 4 % 2),
                         .precision = (tandem_precision)(kind.word[1] % TANDEM_N_PRECISION),
                         .pass = is_product ? passes[kind.word[2] % 3] : TANDEM_PASS_FORWARD};
    for (int i = 0; i < shape_classes[class].n_size; i++) {
        const uint32_t word = i < 4 ? words.word[i] : kind.word[3];
        shape.size[i] = floor(exp2((double)tandem_philox_uniform(word) * shape_classes[class].max_log2[i]));
    }
    return shape;
}

/* The work of a shape; *key: its key. */
static tandem_work work_of_shape(const drawn_shape *shape, tandem_cost_key *key)
{
    const tandem_precision_row *const row = tandem_precision_get(shape->precision);
    const double *const x = shape->size;
    tandem_work work;
    *key = (tandem_cost_key){.kind = TANDEM_COST_OP,
                             .precision = row->name,
                             .pass = shape->pass,
                             .from = row->forward,
                             .to = tandem_dtype_bytes(row->forward) == 1 ? TANDEM_F16 : row->forward};
    char *const text = key->signature;
    const size_t room = sizeof key->signature;
    switch (shape->class) {
    case 0: (void)snprintf(text, room, "linear m=%.0f k=%.0f n=%.0f", x[0], x[1], x[2]); break;
    case 1:
        (void)snprintf(text, room, "matmul batch=%.0f m=%.0f k=%.0f n=%.0f", x[0], x[1], x[2], x[3]);
        break;
    case 2: (void)snprintf(text, room, "softmax rows=%.0f n=%.0f", x[0], x[1]); break;
    case 3: (void)snprintf(text, room, "layernorm rows=%.0f n=%.0f", x[0], x[1]); break;
    case 4: (void)snprintf(text, room, "add n=%.0f", x[0]); break;
    default:
        (void)snprintf(text, room, "conv2d n=%.0f h=%.0f w=%.0f c=%.0f -> c=%.0f k=%dx%d s=%d p=2", x[0],
                       x[1] + 4, x[2] + 4, x[3], x[4], shape->kernel, shape->kernel, shape->stride);
    }
    if (!tandem_work_of(&work, key)) fail_msg("'%s' has no work", text);
    return work;
}

/* Time of a shape on a card; -1 where it has no units for the precision. */
static double shape_ns(const tandem_device *device, const tandem_reached_rates *rates,
                       const tandem_work *work, const char *text)
{
    tandem_kernel_time time;
    const double ns = tandem_kernel_time_of(&time, tandem_constants_fitted(), &device->gpu_spec, rates, work);
    if (ns < 0) return ns;
    const double peak = work->is_product ? device->gpu_spec.flops_per_s[work->type] : 0;
    if (!isfinite(ns) || ns < time.launch_ns || ns < 1e9 * time.bytes / device->gpu_spec.bytes_per_s ||
        (peak > 0 && ns < 1e9 * time.executed_flops / peak))
        fail_msg("%s: '%s' takes %g ns, less than its work at the peaks", device->name, text, ns);
    /* what is executed is what the operator needs, but for Winograd's transforms */
    if (work->is_product && strncmp(time.algorithm, "winograd", strlen("winograd")) != 0 &&
        time.executed_flops < work->flops)
        fail_msg("%s: '%s' executes too little", device->name, text);
    return ns;
}

typedef struct described_cards {
    const tandem_device *device[MAX_CARDS];
    tandem_reached_rates rates[MAX_CARDS];
    int n;
} described_cards;

static void list_described_cards(described_cards *cards)
{
    cards->n = 0;
    for (int d = 0; d < tandem_device_count(); d++) {
        const tandem_device *const device = tandem_device_get(d);
        if (!tandem_device_is_described(device)) continue;
        assert_true(cards->n < MAX_CARDS);
        tandem_reached_rates_fitted(&cards->rates[cards->n], device);
        cards->device[cards->n++] = device;
    }
}

/* One size grows, by one or by half. checked: [cards] counts where the precision has units. */
static void check_shape(const described_cards *cards, int series, int *checked)
{
    const drawn_shape shape = draw_shape(series);
    drawn_shape larger = shape;
    tandem_cost_key key, grown;
    const uint32_t counter[4] = {(uint32_t)series, 2, 0, 92};
    const tandem_philox_block word = tandem_philox(counter, SEED);
    double *const size = &larger.size[word.word[0] % (uint32_t)shape_classes[shape.class].n_size];
    *size = word.word[1] & 1 ? floor(1.5 * *size) + 1 : *size + 1;
    const tandem_work work = work_of_shape(&shape, &key), more_work = work_of_shape(&larger, &grown);
    for (int d = 0; d < cards->n; d++) {
        const double ns = shape_ns(cards->device[d], &cards->rates[d], &work, key.signature),
                     more = shape_ns(cards->device[d], &cards->rates[d], &more_work, grown.signature);
        if (ns < 0) continue;
        checked[d]++;
        if (more < 0.95 * ns)
            fail_msg("%s, %s, pass %d: '%s' takes %g ns, '%s' only %g", cards->device[d]->name, key.precision,
                     (int)shape.pass, key.signature, ns, grown.signature, more);
    }
}

static void described_times_obey_peaks_and_growth(void **state)
{
    described_cards cards;
    int checked[MAX_CARDS] = {0}, least = N_SHAPE;
    list_described_cards(&cards);
    for (int series = 0; series < N_SHAPE; series++) check_shape(&cards, series, checked);
    for (int d = 0; d < cards.n; d++) least = checked[d] < least ? checked[d] : least;
    printf("seed %d: %d to %d shapes on each of %d cards, each with a larger one\n", SEED, least, N_SHAPE,
           cards.n);
    assert_true(cards.n > 10 && least >= MIN_SHAPES);
}

/* Costs that no formula made: 1 to 3 times a time that grows with the work. */
static int64_t random_cost(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
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
            replay_store_fill(&s, p.graph, device.amp_dtype, 0, device.name, "", random_cost, &seed);
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
            replay_store_fill(&s, p[batches[i]].graph, TANDEM_F32, 0, "cpu:avx2", "", random_cost, &seed);
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
                        if (b == batches[i]) assert_int_equal(ns, random_cost(&seed, &key, &bytes));
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
        cmocka_unit_test(described_times_obey_peaks_and_growth),
        cmocka_unit_test(fitted_times_grow_with_the_batch),
        cmocka_unit_test(interpolated_times_lie_between_their_neighbours),
    };
    return cmocka_run_group_tests_name("laws of costs", tests, NULL, NULL);
}
