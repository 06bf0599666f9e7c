/* test_recorded_memory.c: the peak of a captured module's step, by hand and by looking at each event. */
#include "tandem/advanced/step.h"
#include "tandem/record.h"
#include "tests/support/tandem_test.h"

enum { N_CALL = 3, BATCH = 8 };

/* Two linear layers with something between them. */
static const tandem_recorded_call calls[N_CALL] = {
    {.kind = TANDEM_OP_LINEAR, .name = "up", .input = {2, {BATCH, 64}}, .shape = {2, {BATCH, 32}}},
    {.kind = TANDEM_OP_CALL, .name = "relu", .text = "relu(8x32)", .shape = {2, {BATCH, 32}}},
    {.kind = TANDEM_OP_LINEAR, .name = "down", .input = {2, {BATCH, 32}}, .shape = {2, {BATCH, 10}}}};

static tandem_graph *open_recording(const tandem_recorded_memory *memory, tandem_optimizer_options optimizer)
{
    const tandem_recorded_graph recording = {.model = "Net",
                                             .batch = BATCH,
                                             .n_call = N_CALL,
                                             .call = calls,
                                             .n_prediction = 1,
                                             .n_class = 10,
                                             .optimizer = optimizer,
                                             .memory = memory};
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    require_ok(tandem_graph_record(&graph, &recording, &error), &error);
    return graph;
}

static tandem_memory memory_in(const tandem_graph *graph, const char *name, tandem_precision precision,
                               const tandem_step_options *options)
{
    tandem_precision *const chosen = calloc((size_t)graph->n_op, sizeof *chosen);
    tandem_memory memory;
    tandem_error error = {0};
    int op = 0;
    assert_non_null(chosen);
    require_ok(tandem_graph_find(&op, graph, name, &error), &error);
    chosen[op] = precision;
    require_ok(tandem_memory_of_graph(&memory, graph, chosen, options, &error), &error);
    free(chosen);
    assert_true(memory.peak == memory.weights + memory.gradients + memory.optimizer + memory.arena);
    return memory;
}

/* The forward pass of `up` reads x and makes h at event 0; relu makes r at 1 and nothing keeps h, released at
 * 2; `down` makes y at 3, released at 4 after the loss. Its backward pass from event 5 on reads r, makes the
 * gradient of r at 5 and of its weight at 6; r is released at 7. That of `up` makes its weight's gradient at
 * 8; the gradient of r is released at 9. */
static const tandem_recorded_reader readers[] = {{1, 5, TANDEM_READS_FIRST}};
static const tandem_recorded_block blocks[] = {
    {.bytes = 1024, .born = 0, .freed = 2, .rest = 1},
    {.bytes = 1024, .born = 1, .freed = 7, .rest = 3, .first_reader = 0, .n_reader = 1},
    {.bytes = 320, .born = 3, .freed = 4, .rest = 4},
    {.bytes = 1024, .born = 5, .freed = 9, .rest = 8},
    {.bytes = 1280, .born = 6, .freed = 10, .rest = -1, .is_gradient = 1},
    {.bytes = 8192, .born = 8, .freed = 10, .rest = -1, .is_gradient = 1}};
static const tandem_recorded_product products[] = {{0, 0, 1, 8, 9, 0}, {2, 3, 4, 5, 7, 0}};
static const tandem_recorded_memory by_hand = {.weight_bytes = 10000,
                                               .trained_bytes = 9472,
                                               .largest_bytes = 8192,
                                               .n_event = 10,
                                               .backward = 5,
                                               .n_block = N_OF(blocks),
                                               .n_reader = N_OF(readers),
                                               .n_product = N_OF(products),
                                               .block = blocks,
                                               .reader = readers,
                                               .product = products};

static void a_peak_is_what_lives_at_its_event(void **state)
{
    const tandem_optimizer_options plain = {.kind = TANDEM_SGD};
    tandem_graph *graph = open_recording(&by_hand, plain);
    /* at event 8: the gradients of r and of both weights; the update has both gradients alone */
    const tandem_memory fp32 = memory_in(graph, "down", TANDEM_PRECISION_FP32, NULL);
    assert_int_equal(fp32.peak, 10000 + 1280 + 8192 + 1024);
    assert_int_equal(fp32.gradients, 1280 + 8192);
    assert_int_equal(fp32.activation_gradients, 1024);
    assert_int_equal(fp32.activations, 0);
    tandem_graph_close(graph);

    /* Two f32 arrays of state, and two tensors of the largest parameter: the update is the peak. */
    graph = open_recording(&by_hand, (tandem_optimizer_options){.kind = TANDEM_ADAMW});
    const tandem_memory adamw = memory_in(graph, "down", TANDEM_PRECISION_FP32, NULL);
    assert_int_equal(adamw.peak, 10000 + 9472 + 2 * 9472 + 2 * 8192);
    assert_int_equal(adamw.workspace, 2 * 8192);
    const tandem_memory in_ddp =
        memory_in(graph, "down", TANDEM_PRECISION_FP32, &(tandem_step_options){.ddp_bucket_memory = 1});
    assert_int_equal(in_ddp.peak - adamw.peak, 9472);
    tandem_graph_close(graph);
}

static void low_precision_keeps_narrow_copies(void **state)
{
    tandem_recorded_memory memory = by_hand;
    memory.keeps_gradients = 1; /* and the blocks of gradients are gone: the peak is that of activations */
    memory.has_fast_bf16 = 1;
    memory.n_block = 4;
    tandem_graph *graph = open_recording(&memory, (tandem_optimizer_options){.kind = TANDEM_SGD});
    /* event 5: r and its gradient */
    const tandem_memory fp32 = memory_in(graph, "down", TANDEM_PRECISION_FP32, NULL);
    assert_int_equal(fp32.peak, 10000 + 9472 + 1024 + 1024);
    /* r is released when the forward pass of `down` ends; 8 × 32 + 10 × 32 bytes are kept. The gradient of r
     * outlives the pass, so it is no workspace. The peak is at event 1, before the copies: h and r. */
    const tandem_memory full = memory_in(graph, "down", TANDEM_PRECISION_INT8_FULL, NULL);
    assert_int_equal(full.peak, 10000 + 9472 + 1024 + 1024);
    /* bf16: 512 bytes of r, 640 of the weight, and while the pass runs 160 of y's gradient, 640 for the
     * weight's; with r's gradient */
    const tandem_memory bf16 = memory_in(graph, "down", TANDEM_PRECISION_BF16, NULL);
    assert_int_equal(bf16.peak, 10000 + 9472 + 1024 + 512 + 640 + 160 + 640);
    assert_int_equal(bf16.activations, 512);
    assert_int_equal(bf16.weight_copies, 640);
    assert_int_equal(bf16.workspace, 160 + 640);
    assert_int_equal(bf16.activation_gradients, 1024);
    tandem_graph_close(graph);
    /* where bf16 is slow, the forward pass has both operands in f32, too: the peak is there */
    memory.has_fast_bf16 = 0;
    graph = open_recording(&memory, (tandem_optimizer_options){.kind = TANDEM_SGD});
    assert_int_equal(memory_in(graph, "down", TANDEM_PRECISION_BF16, NULL).workspace, 4 * (256 + 320));
    tandem_graph_close(graph);
}

/* A convolution whose input and gradient come in another order: each is copied while its pass runs. */
static void images_in_another_order_are_copied(void **state)
{
    static const tandem_recorded_call convolution[] = {
        {.kind = TANDEM_OP_CONV2D,
         .name = "first",
         .input = {4, {1, 8, 8, 4}},
         .shape = {4, {1, 8, 8, 8}},
         .kernel = 1,
         .stride = 1},
        {.kind = TANDEM_OP_LINEAR, .name = "head", .input = {2, {1, 512}}, .shape = {2, {1, 10}}}};
    for (int copies = 0; copies < 4; copies++) {
        const tandem_recorded_product product = {0, 0, 1, 2, 3, copies};
        const tandem_recorded_memory memory = {
            .keeps_gradients = 1, .n_event = 4, .n_product = 1, .product = &product};
        const tandem_recorded_graph recording = {.model = "Net",
                                                 .batch = 1,
                                                 .n_call = 2,
                                                 .call = convolution,
                                                 .n_prediction = 1,
                                                 .n_class = 10,
                                                 .memory = &memory};
        tandem_graph *graph = NULL;
        tandem_error error = {0};
        require_ok(tandem_graph_record(&graph, &recording, &error), &error);
        /* codes of 256 numbers and 32 weights; 1024 bytes of the input, 2048 of the gradient */
        const uint64_t copied = copies & TANDEM_COPIES_GRADIENT ? 2048
                                : copies & TANDEM_COPIES_INPUT  ? 1024
                                                                : 0;
        assert_int_equal(memory_in(graph, "first", TANDEM_PRECISION_INT8_FULL, NULL).peak, 256 + 32 + copied);
        tandem_graph_close(graph);
    }
}

static void blocks_of_a_gpu_are_rounded_up(void **state)
{
    tandem_recorded_memory memory = by_hand;
    memory.keeps_gradients = 1;
    memory.n_block = 3;
    tandem_graph *graph = open_recording(&memory, (tandem_optimizer_options){.kind = TANDEM_SGD});
    const tandem_step_options on_gpu = {.gpu_blocks = 1};
    /* event 1: 2 × 1024; event 3: 1024 + 320 */
    assert_int_equal(memory_in(graph, "up", TANDEM_PRECISION_FP32, &on_gpu).peak, 10000 + 9472 + 2048);
    tandem_graph_close(graph);
    memory.block = blocks + 2; /* y alone */
    memory.n_block = 1;
    graph = open_recording(&memory, (tandem_optimizer_options){.kind = TANDEM_SGD});
    assert_int_equal(memory_in(graph, "up", TANDEM_PRECISION_FP32, &on_gpu).peak, 10000 + 9472 + 512);
    assert_int_equal(memory_in(graph, "up", TANDEM_PRECISION_FP32, NULL).peak, 10000 + 9472 + 320);
    tandem_graph_close(graph);
}

/* Two convolutions, of which one may run in low precision. */
static void converted_convolutions_have_the_other_order_of_images(void **state)
{
    static const tandem_recorded_call convolutions[] = {
        {.kind = TANDEM_OP_CONV2D,
         .name = "first",
         .input = {4, {1, 8, 8, 4}},
         .shape = {4, {1, 8, 8, 4}},
         .kernel = 3,
         .stride = 1,
         .pad = 1},
        {.kind = TANDEM_OP_LINEAR, .name = "head", .input = {2, {1, 256}}, .shape = {2, {1, 10}}}};
    static const tandem_recorded_block plain = {.bytes = 100, .freed = 1, .rest = -1},
                                       other = {.bytes = 70000, .freed = 1, .rest = -1};
    static const tandem_recorded_product both[] = {{0, -1, -1, -1, -1, 0}, {1, -1, -1, -1, -1, 0}};
    const tandem_recorded_memory last = {
        .keeps_gradients = 1, .n_event = 2, .n_block = 1, .n_product = 2, .block = &other, .product = both};
    tandem_recorded_memory memory = last;
    memory.block = &plain;
    memory.channels_last = &last;
    const tandem_recorded_graph recording = {.model = "Net",
                                             .batch = 1,
                                             .n_call = 2,
                                             .call = convolutions,
                                             .n_prediction = 1,
                                             .n_class = 10,
                                             .memory = &memory};
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    require_ok(tandem_graph_record(&graph, &recording, &error), &error);
    const tandem_step_options on_gpu = {.gpu_blocks = 1};
    assert_int_equal(memory_in(graph, "first", TANDEM_PRECISION_FP32, NULL).peak, 100);
    assert_int_equal(memory_in(graph, "head", TANDEM_PRECISION_INT8_FULL, NULL).peak, 100);
    assert_int_equal(memory_in(graph, "first", TANDEM_PRECISION_INT8_FULL, NULL).peak, 70000);
    assert_int_equal(memory_in(graph, "first", TANDEM_PRECISION_INT8_FULL, &on_gpu).peak, 512);
    tandem_graph_close(graph);
}

static void without_memory_the_peak_is_0(void **state)
{
    tandem_graph *graph = open_recording(NULL, (tandem_optimizer_options){.kind = TANDEM_SGD});
    tandem_memory memory;
    tandem_error error = {0};
    require_ok(tandem_memory_of_graph(&memory, graph, NULL, NULL, &error), &error);
    assert_int_equal(memory.peak, 0);
    tandem_graph_close(graph);
}

/* --- Drawn steps, event by event ------------------------------------------------------------------------ */

enum { MAX_BLOCK = 40, MAX_READER = 60, N_EVENT = 2 * MAX_BLOCK + 4 };

typedef struct drawn_step {
    tandem_recorded_memory memory;
    tandem_recorded_block block[MAX_BLOCK];
    tandem_recorded_reader reader[MAX_READER];
    tandem_recorded_product product[2];
    int is_int8_full[2];
} drawn_step;

static unsigned draw(uint64_t *random, unsigned below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*random >> 33) % below;
}

static void draw_readers(drawn_step *s, tandem_recorded_block *block, uint64_t *random)
{
    block->first_reader = s->memory.n_reader;
    for (int p = 0; p < 2; p++) {
        const int begin = s->product[p].backward;
        if (draw(random, 3) || block->freed <= begin || s->memory.n_reader == MAX_READER) continue;
        const int event = begin + (int)draw(random, (unsigned)(block->freed - begin));
        s->reader[s->memory.n_reader++] =
            (tandem_recorded_reader){p, event, (tandem_recorded_role)draw(random, 3)};
        block->n_reader++;
    }
}

static void draw_step(drawn_step *s, uint64_t *random)
{
    const int n = 1 + (int)draw(random, MAX_BLOCK);
    int n_event = 8 + (int)draw(random, N_EVENT - 8);
    *s = (drawn_step){.memory = {.weight_bytes = 5, .keeps_gradients = 1, .n_event = n_event, .n_block = n}};
    s->memory.backward = n_event / 2;
    for (int p = 0; p < 2; p++) {
        const int first = (int)draw(random, (unsigned)n_event / 2 - 1), then = n_event / 2 + p;
        s->product[p] =
            (tandem_recorded_product){2 * p, first, first + 1, then, then + 1 + (int)draw(random, 2), 0};
        s->is_int8_full[p] = (int)draw(random, 2);
    }
    for (int b = 0, born = 0; b < n; b++) {
        born += (int)draw(random, 2);
        if (born > n_event - 1) born = n_event - 1;
        tandem_recorded_block *const block = &s->block[b];
        *block = (tandem_recorded_block){.bytes = (int64_t)draw(random, 5000), .born = born};
        block->freed = born + 1 + (int)draw(random, (unsigned)(n_event - born));
        block->rest = born + (int)draw(random, (unsigned)(block->freed - born)); /* while it is there */
        draw_readers(s, block, random);
    }
    s->memory.n_product = 2;
    s->memory.block = s->block;
    s->memory.reader = s->reader;
    s->memory.product = s->product;
}

/* Whether somebody needs the block at event e or later, by the words of record.h; with `in_plan` in int8_full
 * where drawn, else all in fp32. int8_full keeps narrow copies of both operands. */
static int is_needed(const drawn_step *s, const tandem_recorded_block *block, int e, int in_plan)
{
    if (block->rest >= e) return 1;
    for (int r = block->first_reader; r < block->first_reader + block->n_reader; r++) {
        const tandem_recorded_reader *reader = &s->reader[r];
        const int is_narrow = in_plan && s->is_int8_full[reader->product];
        if (is_narrow ? s->product[reader->product].forward_end >= e
                      : reader->role != TANDEM_KEEPS_SECOND && reader->event >= e)
            return 1;
    }
    return 0;
}

static int lives(const drawn_step *s, const tandem_recorded_block *block, int e)
{
    if (e < block->born || e >= block->freed) return 0;
    for (int p = 0; p < 2; p++) {
        const tandem_recorded_product *at = &s->product[p];
        if (!s->is_int8_full[p]) continue;
        if (block->born >= at->forward && block->freed < at->forward_end) return 0;
        if (block->born >= at->backward && block->freed < at->backward_end) return 0;
    }
    /* It stays as long as PyTorch kept it, unless that was for a reader that the plan does not have. */
    int last_in_plan = -1, last_in_fp32 = -1;
    for (int at = 0; at <= s->memory.n_event; at++) {
        if (is_needed(s, block, at, 1)) last_in_plan = at;
        if (is_needed(s, block, at, 0)) last_in_fp32 = at;
    }
    return last_in_plan >= last_in_fp32 || last_in_plan <= block->born || e < last_in_plan;
}

static int64_t peak_event_by_event(const drawn_step *s)
{
    /* of `up` 8 × 64 + 64 × 32 bytes, of `down` 8 × 32 + 32 × 10: both operands in one byte a number */
    static const int64_t copies[2] = {512 + 2048, 256 + 320};
    int64_t peak = 0;
    for (int e = 0; e < s->memory.n_event; e++) {
        int64_t now = 0;
        for (int b = 0; b < s->memory.n_block; b++) now += lives(s, &s->block[b], e) ? s->block[b].bytes : 0;
        for (int p = 0; p < 2; p++)
            if (s->is_int8_full[p] && e >= s->product[p].forward && e < s->product[p].backward_end)
                now += copies[p];
        if (now > peak) peak = now;
    }
    return peak + s->memory.weight_bytes;
}

static void drawn_steps_have_the_peak_of_their_events(void **state)
{
    const uint32_t n = cases_of(20000, 10);
    for (uint32_t seed = 1; seed <= n; seed++) {
        drawn_step s;
        uint64_t random = seed;
        tandem_precision precision[16] = {0};
        tandem_memory memory;
        tandem_error error = {0};
        draw_step(&s, &random);
        tandem_graph *graph = open_recording(&s.memory, (tandem_optimizer_options){.kind = TANDEM_SGD});
        assert_true(graph->n_op <= (int)N_OF(precision));
        for (int p = 0; p < 2; p++)
            if (s.is_int8_full[p]) precision[graph->memory->product[p].call] = TANDEM_PRECISION_INT8_FULL;
        require_ok(tandem_memory_of_graph(&memory, graph, precision, NULL, &error), &error);
        if ((int64_t)memory.peak != peak_event_by_event(&s))
            fail_msg("seed %u: %llu, but %lld by its events", seed, (unsigned long long)memory.peak,
                     (long long)peak_event_by_event(&s));
        tandem_graph_close(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_is_what_lives_at_its_event),
        cmocka_unit_test(low_precision_keeps_narrow_copies),
        cmocka_unit_test(images_in_another_order_are_copied),
        cmocka_unit_test(blocks_of_a_gpu_are_rounded_up),
        cmocka_unit_test(converted_convolutions_have_the_other_order_of_images),
        cmocka_unit_test(without_memory_the_peak_is_0),
        cmocka_unit_test(drawn_steps_have_the_peak_of_their_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
