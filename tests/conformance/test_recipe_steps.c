/* folder: backend, and others for devices */
/* Steps under a recipe: every product of linear and attention is that of operands which nvfp4_reference.h
 * rounds; convolutions have the bits of nvfp4; ranks stay equal, in the memory that was planned. Plans that
 * mix nvfp4, mxfp8 and other precisions round each operator as its own says. */
#include "backend/cpu/operator.h"
#include "tandem/advanced/recipe.h"
#include "tests/support/held_run.h"
#include "tests/support/nvfp4_reference.h"
#include "tests/support/training_run.h"

enum { BATCH = 3, STEP = 3, SEED = 11 };
#define MOST_OFF 2e-5 /* of sums in f32, in their root mean square */

static tandem_emulation emulation_of(const char *name)
{
    tandem_emulation emulation = tandem_emulation_make(SEED);
    tandem_error error = {0};
    require_ok(tandem_emulation_replace(&emulation, name, &error), &error);
    return emulation;
}

static void open_recipe_run(held_run *r, const char *model, const tandem_emulation *emulation,
                            tandem_precision precision)
{
    tandem_error error = {0};
    open_held_step(r, model, BATCH, &(tandem_step_options){.emulated = 1, .recipe = (int)emulation->recipe});
    for (int i = 0; i < r->graph->n_op; i++)
        if (tandem_op_row_get(r->graph->op[i].kind)->precisions >> precision & 1)
            tandem_step_set(r->step, i, precision);
    tandem_step_resolve(r->step);
    const tandem_executor_options how = {
        .step = r->step, .seed = 5, .global_batch = BATCH, .emulation = emulation};
    require_ok(r->backend->executor_open(&r->executor, r->worker, &how, &error), &error);
}

/* --- Products ------------------------------------------------------------------------------------------- */

typedef struct seen_products {
    const tandem_step *step;
    tandem_dtype from; /* of the products that are checked */
    uint32_t rank, micro_index;
    double most_off;                          /* of a result, in root mean squares */
    int has_draws, has_hadamard, has_squares; /* of the recipe */
    int n_linear[3], n_matmul[3], n_kept;
} seen_products;

/* y = x·w, y (m, n), x (m, k), w (k, n), or (n, k) where it is transposed; `batch` times. */
typedef struct product_shape {
    int64_t batch, m, n, k;
    int is_transposed, is_weight;
} product_shape;

static product_shape shape_of_product(const tandem_graph *graph, const tandem_op *op)
{
    const tandem_shape *x = &graph->op[op->input[0]].shape, *y = &op->shape;
    product_shape of = {.k = x->dim[x->n_dim - 1],
                        .n = y->dim[y->n_dim - 1],
                        .m = x->dim[x->n_dim - 2],
                        .batch = 1,
                        .is_transposed = op->transpose_b,
                        .is_weight = op->kind == TANDEM_OP_LINEAR};
    for (int d = 0; d < x->n_dim - 2; d++) of.batch *= x->dim[d];
    if (of.is_weight) of.m *= of.batch, of.batch = 1;
    return of;
}

static void set_operand(nvfp4_operand *of, int64_t rows, int64_t columns, int sums_rows)
{
    of->rows = rows;
    of->columns = columns;
    of->sums_rows = sums_rows;
}

/* Fills in how the operands lie, and which one has the rows of the result; its rows and columns. */
static int lay_out_product(nvfp4_operand of[2], int64_t size[2], const product_shape *s, int product)
{
    const int64_t w_rows = s->is_transposed ? s->n : s->k, w_columns = s->is_transposed ? s->k : s->n;
    if (product == 0) {
        set_operand(&of[0], s->m, s->k, 0);
        set_operand(&of[1], w_rows, w_columns, !s->is_transposed);
        size[0] = s->m, size[1] = s->n;
        return 0;
    }
    if (product == 1) {
        set_operand(&of[0], s->m, s->n, 0);
        set_operand(&of[1], w_rows, w_columns, s->is_transposed);
        size[0] = s->m, size[1] = s->k;
        return 0;
    }
    set_operand(&of[0], s->m, s->k, 1);
    set_operand(&of[1], s->m, s->n, 1);
    size[0] = w_rows, size[1] = w_columns;
    return s->is_transposed;
}

/* The largest error of a result beyond its own rounding, in its root mean square. */
static double off_of_sums(const float *out, const float *a, const float *b, int64_t batch,
                          const int64_t size[2], int64_t depth, double rounding)
{
    const int64_t n = batch * size[0] * size[1];
    double square = 0, most = 0;
    for (int64_t e = 0; e < n; e++) {
        const int64_t at = e / (size[0] * size[1]), i = e / size[1] % size[0], j = e % size[1];
        double sum = 0;
        for (int64_t s = 0; s < depth; s++)
            sum += (double)a[(at * size[0] + i) * depth + s] * (double)b[(at * size[1] + j) * depth + s];
        square += sum * sum;
        most = fmax(most, fabs(sum - (double)out[e]) - rounding * fabs(sum));
    }
    return most / (sqrt(square / (double)n) + 1e-30);
}

static void round_to_bf16(float *x, int64_t n)
{
    const tandem_format_cast cast = {
        .format = TANDEM_FORMAT_BF16, .x = x, .rows = 1, .columns = n, .error_scale = 1};
    tandem_error error = {0};
    require_ok(tandem_format_round(x, NULL, &cast, &error), &error);
}

/* Copied along the sum, to bf16. */
static void round_kept(float *out, const nvfp4_operand *of)
{
    const int64_t n = nvfp4_copied(of), padded = nvfp4_padded(nvfp4_sum(of)), lines = nvfp4_lines(of);
    for (int64_t e = 0; e < n; e++)
        out[e] = nvfp4_source(of, e / padded / lines, e / padded % lines, e % padded);
    round_to_bf16(out, n);
}

static int64_t padded_sum(const nvfp4_operand *of, tandem_dtype from)
{
    return from == TANDEM_MXFP8 ? (nvfp4_sum(of) + 31) / 32 * 32 : nvfp4_padded(nvfp4_sum(of));
}

/* Numbers of e4m3 times a power of two, with which the largest of 32 is from 256 to below 512: MX v1.0,
 * section 6.3, with three bits of mantissa above 2^-6, steps of 2^-9 below, and at most 448. */
static void round_mxfp8_block(float *x)
{
    double largest = 0;
    for (int i = 0; i < 32; i++) largest = fmax(largest, fabs((double)x[i]));
    if (largest == 0) return;
    const double scale = exp2(floor(log2(largest)) - 8);
    for (int i = 0; i < 32; i++) {
        const double scaled = fabs((double)x[i]) / scale, least = exp2(-6),
                     step = exp2(floor(log2(fmax(scaled, least))) - 3);
        x[i] = (float)copysign(fmin(rint(scaled / step) * step, 448) * scale, (double)x[i]);
    }
}

static void round_mxfp8(float *out, const nvfp4_operand *of)
{
    const int64_t padded = padded_sum(of, TANDEM_MXFP8), lines = nvfp4_lines(of), sum = nvfp4_sum(of);
    for (int64_t e = 0; e < of->batch * lines * padded; e++)
        out[e] = e % padded < sum ? nvfp4_source(of, e / padded / lines, e / padded % lines, e % padded) : 0;
    for (int64_t e = 0; e < of->batch * lines * padded; e += 32) round_mxfp8_block(out + e);
}

static void check_product(void *context, const tandem_executor *executor, int t)
{
    static const tandem_task_kind kinds[] = {TANDEM_TASK_FORWARD, TANDEM_TASK_DGRAD, TANDEM_TASK_WGRAD};
    seen_products *seen = context;
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    const tandem_graph *graph = seen->step->graph;
    const tandem_task *task = &seen->step->task[t];
    int product = 0;
    while (product < 3 && kinds[product] != task->kind) product++;
    if (product == 3 || task->from != seen->from || task->accumulate) return;
    const product_shape shape = shape_of_product(graph, &graph->op[task->op]);
    const tandem_recipe_rule rule =
        tandem_recipe_rule_of(tandem_recipe_of(seen->from, TANDEM_RECIPE_NVFP4_RECIPE), graph, task->op);
    const int is_kept = rule == TANDEM_RECIPE_KEEPS;
    if (rule == TANDEM_RECIPE_LACKS) return;
    nvfp4_operand of[2];
    float *copy[2];
    int64_t size[2];
    for (int k = 0; k < 2; k++) {
        const int is_weight = product < 2 && k == 1 && shape.is_weight,
                  is_gradient = product == 1 ? k == 0 : product == 2 && k == 1;
        const uint32_t purpose = 16 + 2 * (uint32_t)product + (uint32_t)k;
        of[k] = (nvfp4_operand){.x = backend->executor_value(executor, task->read[k], 0, NULL),
                                .batch = shape.batch,
                                .is_square = is_weight && seen->has_squares,
                                .has_hadamard = product == 2 && seen->has_hadamard,
                                .is_drawn = is_gradient && seen->has_draws,
                                .seed = SEED,
                                .stream = {seen->micro_index, (uint32_t)task->op, purpose | seen->rank << 8}};
    }
    const int first = lay_out_product(of, size, &shape, product);
    for (int k = 0; k < 2; k++) {
        copy[k] = malloc((size_t)(of[k].batch * nvfp4_lines(&of[k]) * padded_sum(&of[k], seen->from)) *
                         sizeof(float));
        assert_non_null(copy[k]);
        if (seen->from == TANDEM_MXFP8)
            round_mxfp8(copy[k], &of[k]);
        else if (is_kept)
            round_kept(copy[k], &of[k]);
        else
            nvfp4_round(copy[k], &of[k]);
    }
    const double off =
        off_of_sums(backend->executor_value(executor, task->write[0], 1, NULL), copy[first], copy[1 - first],
                    shape.batch, size, padded_sum(&of[0], seen->from), task->to == TANDEM_BF16 ? 0x1p-8 : 0);
    seen->most_off = fmax(seen->most_off, off);
    for (int k = 0; k < 2; k++) free(copy[k]);
    if (is_kept)
        seen->n_kept++;
    else if (shape.is_weight)
        seen->n_linear[product]++;
    else
        seen->n_matmul[product]++;
}

/* Widths, images and texts that are no multiples of 16, and a tied head. */
static void products_are_those_of_rounded_operands(void **state)
{
    static const char *const models[] = {"mlp:width=24,depth=2,image=6x6x1,classes=5",
                                         "vit_tiny:width=20,heads=2,depth=2,image=8x8x1,patch=2",
                                         "gpt_tiny:width=24,heads=2,depth=2,length=20"};
    static const struct {
        const char *name;
        int has_draws, has_hadamard, has_squares;
    } recipes[] = {{"nvfp4_recipe", 1, 1, 1},
                   {"nvfp4_without_sr", 0, 1, 1},
                   {"nvfp4_without_hadamard", 1, 0, 1},
                   {"nvfp4_without_2d", 1, 1, 0}};
    for (size_t m = 0; m < N_OF(models); m++)
        for (size_t k = 0; k < N_OF(recipes); k++) {
            held_run r;
            tandem_error error = {0};
            double loss = 0;
            const tandem_emulation emulation = emulation_of(recipes[k].name);
            open_recipe_run(&r, models[m], &emulation, TANDEM_PRECISION_INT8_FULL);
            seen_products seen = {.step = r.step,
                                  .from = TANDEM_S8,
                                  .micro_index = STEP,
                                  .has_draws = recipes[k].has_draws,
                                  .has_hadamard = recipes[k].has_hadamard,
                                  .has_squares = recipes[k].has_squares};
            r.backend->executor_observe(r.executor, check_product, &seen);
            require_ok(r.backend->executor_step(r.executor, STEP, &loss, &error), &error);
            if (seen.most_off > MOST_OFF)
                fail_msg("%s, %s: a product is off by %g", models[m], recipes[k].name, seen.most_off);
            assert_true(seen.n_linear[0] >= 2 && seen.n_linear[1] >= 1 && seen.n_linear[2] >= 2);
            assert_true(seen.n_kept >= 2);
            for (int product = 0; product < 3; product++) assert_int_equal(seen.n_matmul[product] > 0, m > 0);
            close_held_run(&r);
        }
}

/* --- Precisions that have a recipe ---------------------------------------------------------------------- */

typedef struct seen_mix {
    seen_products of[2]; /* in nvfp4, in mxfp8 */
    int n_cast;
} seen_mix;

/* Casts leave the rounding to products: each rounds along its own sum, once. */
static void check_cast_copies(seen_mix *mix, const tandem_executor *executor, int t)
{
    const tandem_step *step = mix->of[0].step;
    const tandem_backend_api *backend = tandem_backend_get(TANDEM_BACKEND_VERSION);
    const tandem_task *task = &step->task[t];
    const int is_cast = task->kind == TANDEM_TASK_CAST || task->kind == TANDEM_TASK_GRADIENT_CAST;
    if (!is_cast || !tandem_dtype_is_in_blocks(task->to)) return;
    const tandem_value *value = &step->value[task->write[0]];
    assert_memory_equal(backend->executor_value(executor, task->write[0], 1, NULL),
                        backend->executor_value(executor, task->read[0], 0, NULL), value->bytes);
    mix->n_cast++;
}

static void check_mixed_product(void *context, const tandem_executor *executor, int t)
{
    seen_mix *mix = context;
    for (int k = 0; k < 2; k++) check_product(&mix->of[k], executor, t);
    check_cast_copies(mix, executor, t);
}

/* Linear operators in turn; others in int8_full, bf16 or what they have. */
static void set_mixed_plan(tandem_step *step)
{
    static const tandem_precision turn[] = {TANDEM_PRECISION_NVFP4, TANDEM_PRECISION_MXFP8,
                                            TANDEM_PRECISION_BF16, TANDEM_PRECISION_INT8_FULL};
    size_t n = 0;
    for (int i = 0; i < step->graph->n_op; i++) {
        const tandem_op_kind kind = step->graph->op[i].kind;
        if (kind == TANDEM_OP_LINEAR)
            tandem_step_set(step, i, turn[n++ % N_OF(turn)]);
        else if (kind == TANDEM_OP_MATMUL)
            tandem_step_set(step, i, turn[2 + n % 2]);
    }
    tandem_step_resolve(step);
}

static void a_plan_mixes_precisions_in_blocks(void **state)
{
    static const char *const models[] = {"mlp:width=24,depth=5,image=6x6x1,classes=5",
                                         "vit_tiny:width=20,heads=2,depth=2,image=8x8x1,patch=2",
                                         "gpt_tiny:width=40,heads=2,depth=2,length=20"};
    for (size_t m = 0; m < N_OF(models); m++) {
        held_run r;
        tandem_error error = {0};
        double loss = 0;
        const tandem_emulation emulation = tandem_emulation_make(SEED);
        open_held_step(&r, models[m], BATCH, &(tandem_step_options){.emulated = 1});
        set_mixed_plan(r.step);
        const tandem_executor_options how = {
            .step = r.step, .seed = 5, .global_batch = BATCH, .emulation = &emulation};
        require_ok(r.backend->executor_open(&r.executor, r.worker, &how, &error), &error);
        const seen_products seen = {
            .step = r.step, .micro_index = STEP, .has_draws = 1, .has_hadamard = 1, .has_squares = 1};
        seen_mix mix = {{seen, seen}, 0};
        mix.of[0].from = TANDEM_NVFP4;
        mix.of[1].from = TANDEM_MXFP8;
        r.backend->executor_observe(r.executor, check_mixed_product, &mix);
        require_ok(r.backend->executor_step(r.executor, STEP, &loss, &error), &error);
        assert_true(mix.n_cast > 3);
        for (int k = 0; k < 2; k++) {
            if (mix.of[k].most_off > MOST_OFF)
                fail_msg("%s, %s: a product is off by %g", models[m], k ? "mxfp8" : "nvfp4",
                         mix.of[k].most_off);
            assert_true(mix.of[k].n_linear[0] >= 2 - (m == 0) && mix.of[k].n_linear[2] >= 2 - (m == 0));
            assert_int_equal(mix.of[k].n_kept + mix.of[k].n_matmul[0], 0);
        }
        close_held_run(&r);
    }
}

/* --- Workspace ------------------------------------------------------------------------------------------ */

enum { GUARD_BYTES = 1 << 16, GUARD = 0x5A };

static float *drawn_array(uint64_t bytes, uint32_t key)
{
    const size_t n = bytes / sizeof(float);
    float *const x = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] =
            (float)(tandem_philox((const uint32_t[]){(uint32_t)i, key, 0, 0}, 1).word[0] >> 8) * 0x1p-23F - 1;
    return x;
}

static uint64_t bytes_of_value(const tandem_step *step, int id)
{
    if (id >= 0) return step->value[id].bytes;
    return (uint64_t)step->graph->parameter[TANDEM_PARAMETER(id)].elements * sizeof(float);
}

/* Runs a product alone. It writes nothing beyond the workspace that it asked for. */
static void check_workspace(void *device, const tandem_step *step, int t, const tandem_emulation *emulation)
{
    const tandem_task *task = &step->task[t];
    tandem_kernel *kernel = NULL;
    uint64_t bytes = 0;
    tandem_error error = {0};
    require_ok(tandem_cpu_backend.prepare(device, step, t, &kernel, &bytes, &error), &error);
    unsigned char *const workspace = aligned_alloc(64, (bytes + 63) / 64 * 64 + GUARD_BYTES);
    assert_non_null(workspace);
    memset(workspace, GUARD, bytes + GUARD_BYTES);
    float *in[2], *const out = drawn_array(bytes_of_value(step, task->write[0]), 3);
    tandem_kernel_call call = {.out = {out},
                               .workspace = workspace,
                               .rng = {.seed = SEED},
                               .emulation = emulation,
                               .error_scale = 1};
    for (int r = 0; r < 2; r++)
        call.in[r] = in[r] = drawn_array(bytes_of_value(step, task->read[r]), (uint32_t)r);
    require_ok(tandem_cpu_backend.run(kernel, &call, &error), &error);
    for (int i = 0; i < GUARD_BYTES; i++) assert_int_equal(workspace[bytes + (uint64_t)i], GUARD);
    tandem_cpu_backend.release(kernel);
    free(workspace);
    free(out);
    for (int r = 0; r < 2; r++) free(in[r]);
}

static void products_stay_in_their_workspace(void **state)
{
    const tandem_emulation emulation = emulation_of("nvfp4_recipe");
    held_run r;
    tandem_error error = {0};
    void *device = NULL;
    int n = 0;
    open_recipe_run(&r, "vit_tiny:width=20,heads=2,depth=1,image=8x8x1,patch=2", &emulation,
                    TANDEM_PRECISION_INT8_FULL);
    require_ok(tandem_cpu_backend.open(&device, "cpu:sse41", &error), &error);
    for (int t = 0; t < r.step->n_task; t++) {
        const tandem_task *task = &r.step->task[t];
        if (!task->active || task->from != TANDEM_S8 || task->accumulate || task->n_read < 2 ||
            task->op < 0 ||
            tandem_recipe_rule_of(emulation.recipe, r.graph, task->op) != TANDEM_RECIPE_ROUNDS)
            continue;
        check_workspace(device, r.step, t, &emulation);
        n++;
    }
    assert_true(n > 15);
    tandem_cpu_backend.close(device);
    close_held_run(&r);
}

/* --- What a recipe cannot do ---------------------------------------------------------------------------- */

typedef struct forward_hash {
    const held_run *run;
    uint64_t hash; /* FNV-1a of the results of convolutions, and of the inputs that they saved */
    int n;
} forward_hash;

static void hash_convolution(void *context, const tandem_executor *executor, int t)
{
    forward_hash *of = context;
    const tandem_task *task = &of->run->step->task[t];
    const int is_seen = task->kind == TANDEM_TASK_FORWARD || task->kind == TANDEM_TASK_SAVED_CAST;
    if (!is_seen || of->run->graph->op[task->op].kind != TANDEM_OP_CONV2D) return;
    const uint32_t *word = of->run->backend->executor_value(executor, task->write[0], 0, NULL);
    const int64_t n = (int64_t)(of->run->step->value[task->write[0]].bytes / sizeof *word);
    for (int64_t i = 0; i < n; i++) of->hash = (of->hash ^ word[i]) * UINT64_C(0x100000001b3);
    of->n++;
}

static forward_hash convolutions_under(const char *formats, tandem_precision precision)
{
    held_run r;
    tandem_error error = {0};
    double loss = 0;
    const tandem_emulation emulation = emulation_of(formats);
    open_recipe_run(&r, "resnet20:width=8,image=8x8x1", &emulation, precision);
    forward_hash of = {.run = &r, .hash = UINT64_C(0xcbf29ce484222325)};
    r.backend->executor_observe(r.executor, hash_convolution, &of);
    require_ok(r.backend->executor_step(r.executor, STEP, &loss, &error), &error);
    close_held_run(&r);
    return of;
}

static void convolutions_have_the_bits_of_nvfp4(void **state)
{
    static const tandem_precision precisions[] = {TANDEM_PRECISION_INT8_FULL, TANDEM_PRECISION_INT8};
    for (size_t k = 0; k < N_OF(precisions); k++) {
        const forward_hash plain = convolutions_under("nvfp4", precisions[k]),
                           recipe = convolutions_under("nvfp4_recipe", precisions[k]),
                           other = convolutions_under("mxfp4", precisions[k]);
        assert_true(plain.n > 10 && plain.n == recipe.n);
        assert_true(plain.hash == recipe.hash);
        assert_true(plain.hash != other.hash);
    }
}

/* --- Trainings ------------------------------------------------------------------------------------------ */

/* Each rank draws its own gradients, and rounds weights as the other one does. Ends the rank where not. */
static void check_product_of_rank(void *context, const tandem_executor *executor, int t)
{
    const training_view *view = context;
    seen_products seen = {.step = view->step,
                          .from = TANDEM_S8,
                          .rank = (uint32_t)view->rank,
                          .micro_index = (uint32_t)view->index,
                          .has_draws = 1,
                          .has_hadamard = 1,
                          .has_squares = 1};
    check_product(&seen, executor, t);
    if (seen.most_off > MOST_OFF) abort();
}

static void ranks_draw_their_own_gradients(void **state)
{
    training_require_device();
    const tandem_emulation emulation = emulation_of("nvfp4_recipe");
    const experiment e = {.model = "mlp:width=24,depth=2,image=6x6x1,classes=5",
                          .device = training_weakest(),
                          .batch = BATCH,
                          .n_rank = 2,
                          .steps = 2,
                          .precision = TANDEM_PRECISION_INT8_FULL,
                          .seed = SEED,
                          .killed_rank = -1,
                          .observer = check_product_of_rank,
                          .variant = {.emulated = 1, .recipe = TANDEM_RECIPE_NVFP4_RECIPE},
                          .emulation = &emulation};
    training_forget(training_run_through(&e));
}

/* Memory is compared where the run goes through (training_run.c). */
static void ranks_stay_equal_in_planned_memory(void **state)
{
    static const char *const models[] = {"mlp:width=24,depth=2,image=6x6x1,classes=5",
                                         "vit_tiny:width=20,heads=2,depth=1,image=8x8x1,patch=2"};
    training_require_device();
    const tandem_emulation emulation = emulation_of("nvfp4_recipe"), plain = emulation_of("nvfp4");
    for (size_t m = 0; m < N_OF(models); m++) {
        experiment e = {.model = models[m],
                        .device = training_weakest(),
                        .batch = BATCH,
                        .n_rank = 2,
                        .steps = 4,
                        .precision = TANDEM_PRECISION_INT8_FULL,
                        .seed = SEED,
                        .killed_rank = -1,
                        .hash_gradients = 1,
                        .variant = {.n_micro = 2, .emulated = 1, .recipe = TANDEM_RECIPE_NVFP4_RECIPE},
                        .emulation = &emulation};
        record *a = training_run_through(&e), *b = training_run_through(&e);
        training_check_same_bits(a, b, &e);
        for (int i = 0; i < e.steps; i++) assert_true(a->gradients[0][i] == a->gradients[1][i]);
        e.variant.recipe = TANDEM_RECIPE_NONE;
        e.emulation = &plain;
        record *c = training_run_through(&e);
        assert_true(a->gradients[0][3] != c->gradients[0][3]);
        training_forget(a);
        training_forget(b);
        training_forget(c);
    }
}

static void a_step_without_the_recipe_is_refused(void **state)
{
    held_run r;
    tandem_error error = {0};
    const tandem_emulation emulation = emulation_of("nvfp4_recipe"), plain = emulation_of("nvfp4");
    open_held_step(&r, "mlp:width=16,depth=1", BATCH, &(tandem_step_options){.emulated = 1});
    const tandem_executor_options how = {
        .step = r.step, .seed = 5, .global_batch = BATCH, .emulation = &emulation};
    assert_int_equal(r.backend->executor_open(&r.executor, r.worker, &how, &error), TANDEM_USAGE);
    r.backend->worker_close(r.worker);
    tandem_step_close(r.step);
    tandem_graph_close(r.graph);
    open_recipe_run(&r, "mlp:width=16,depth=1", &emulation, TANDEM_PRECISION_INT8_FULL);
    assert_int_equal(r.backend->executor_set_emulation(r.executor, &plain, &error), TANDEM_USAGE);
    close_held_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_rounded_operands),
        cmocka_unit_test(a_plan_mixes_precisions_in_blocks),
        cmocka_unit_test(products_stay_in_their_workspace),
        cmocka_unit_test(convolutions_have_the_bits_of_nvfp4),
        cmocka_unit_test(ranks_draw_their_own_gradients),
        cmocka_unit_test(ranks_stay_equal_in_planned_memory),
        cmocka_unit_test(a_step_without_the_recipe_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
