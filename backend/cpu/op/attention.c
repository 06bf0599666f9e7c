/* attention: o = dropout(softmax(scale·q·kᵀ))·v of every head as one task, and the gradients of q, k and v.
 *
 * A head is cut into tiles of rows of q. A tile's scores are as wide as all columns that its last row sees.
 * So its softmax is complete, and no sum is corrected later. They stay in the cache, and memory grows with
 * the columns, not with their square. Backward makes a tile's probabilities again, by the kernels that made
 * them. It does not read the result and the statistics.
 *
 * With S scores, P = softmax, D = dropout: gV = (D∘P)ᵀ·g, gP = D∘(g·vᵀ), gS = softmax' of P and gP,
 * gQ = gS·k, gK = gSᵀ·q. Tiles go backwards, so that the first one writes all columns of gK and gV, and the
 * others add to them. Heads are divided among threads. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/op/dropout.h"
#include "backend/cpu/product.h"
#include "backend/cpu/team.h"

/* Scores of a tile, unless 64 rows have more: 256 KiB in f32, of which backward has two. Under a causal mask
 * a tile is as wide as its last row sees, in so many steps at most: each width has products of its own. */
enum { TILE_SCORES = 1 << 16, TILE_ROWS = 64, ROW_STEP = 16, CAUSAL_WIDTHS = 16 };

enum attention_product {
    SCORES,     /* q·kᵀ */
    RESULT,     /* P·v */
    V_GRADIENT, /* gV += (D∘P)ᵀ·g */
    P_GRADIENT, /* g·vᵀ */
    Q_GRADIENT, /* gS·k */
    K_GRADIENT, /* gK += gSᵀ·q */
    N_ATTENTION_PRODUCT
};

/* Tiles of one size; only the last one writes gK and gV without adding. */
typedef struct tile_shape {
    int64_t rows, columns; /* rows of q; columns from 0 on */
    int accumulate;
} tile_shape;

typedef struct attention_tile {
    int64_t first; /* row */
    int shape;
} attention_tile;

/* Of one thread at a time. */
typedef struct attention_part {
    cpu_product (*product)[N_ATTENTION_PRODUCT]; /* [n_shape] */
    tandem_status status;
    tandem_error error;
} attention_part;

typedef struct attention_state {
    cpu_device device;    /* with one core: */
    tandem_kernel kernel; /* the one that runs products */
    int64_t n_tile, n_part;
    int n_shape;
    attention_tile *tile; /* [n_tile] */
    tile_shape *shape;    /* [n_shape], room for n_tile */
    attention_part *part; /* [n_part] */
    /* Offsets in a part of the workspace: scores and their gradients, f32; the same in a narrow dtype; sums
     * of a head's gK and gV in f32; a product's own. */
    uint64_t scores, gradients, narrow, sum[2], scratch, part_bytes;
} attention_state;

typedef struct attention_run {
    const tandem_kernel *kernel;
    const tandem_kernel_call *call;
    tandem_dropout mask;
    int drops;
} attention_run;

/* One tile of one head, where a part has its arrays. */
typedef struct tile_run {
    const attention_run *of;
    attention_part *part;
    const attention_tile *tile;
    const tile_shape *shape; /* of the tile */
    int64_t head;
    char *workspace;
} tile_run;

/* --- Preparing ------------------------------------------------------------------------------------------ */

static int is_causal(const tandem_kernel *kernel)
{
    return kernel->graph->op[kernel->attention.softmax].causal;
}

static int64_t tile_rows(const tandem_kernel *kernel)
{
    const tandem_attention *a = &kernel->attention;
    const int64_t fitting = TILE_SCORES / a->columns / ROW_STEP * ROW_STEP;
    const int64_t wanted = is_causal(kernel) || fitting < TILE_ROWS ? TILE_ROWS : fitting;
    return wanted < a->rows ? wanted : a->rows;
}

/* Of a tile whose last row is end − 1. */
static int64_t tile_columns(const tandem_kernel *kernel, int64_t end)
{
    const int64_t all = kernel->attention.columns;
    if (!is_causal(kernel)) return all;
    const int64_t tiles = (all + TILE_ROWS - 1) / TILE_ROWS,
                  step = (tiles + CAUSAL_WIDTHS - 1) / CAUSAL_WIDTHS * TILE_ROWS,
                  wanted = (end + step - 1) / step * step;
    return wanted < all ? wanted : all;
}

/* Whether gK (which = 0) or gV (1) is summed in f32 before it is written. */
static int has_own_sum(const tandem_kernel *kernel, const attention_state *state, int which)
{
    return kernel->task.kind == TANDEM_TASK_DGRAD && state->n_tile > 1 &&
           kernel->written[1 + which] != TANDEM_F32;
}

static cpu_product_spec tile_product(const tandem_kernel *kernel, const attention_state *state,
                                     const tile_shape *shape, enum attention_product which)
{
    const int64_t rows = shape->rows, columns = shape->columns, depth = kernel->attention.depth;
    cpu_product_spec spec = {.batch = 1, .m = rows, .n = depth, .k = columns, .from = kernel->task.from};
    spec.to = TANDEM_F32;
    switch (which) {
    case SCORES:
    case P_GRADIENT: spec.n = columns, spec.k = depth, spec.transpose_b = 1; break;
    case RESULT: spec.to = kernel->task.to; break;
    case Q_GRADIENT: spec.to = kernel->written[0]; break;
    default:
        spec.m = columns, spec.k = rows, spec.transpose_a = 1, spec.accumulate = shape->accumulate;
        if (state->n_tile == 1) spec.to = kernel->written[which == K_GRADIENT ? 1 : 2];
    }
    return spec;
}

static tandem_status open_products(cpu_product product[N_ATTENTION_PRODUCT], const tandem_kernel *kernel,
                                   const attention_state *state, const tile_shape *shape, uint64_t *scratch,
                                   tandem_error *error)
{
    const int is_forward = kernel->task.kind == TANDEM_TASK_FORWARD;
    tandem_status status = TANDEM_OK;
    for (int k = 0; k < N_ATTENTION_PRODUCT && status == TANDEM_OK; k++) {
        if (k != SCORES && is_forward != (k == RESULT)) continue;
        const cpu_product_spec spec = tile_product(kernel, state, shape, (enum attention_product)k);
        status = cpu_product_open(&product[k], &state->kernel, &spec, error);
        if (product[k].workspace_bytes > *scratch) *scratch = product[k].workspace_bytes;
    }
    return status;
}

static void destroy_attention(void *opened)
{
    attention_state *state = opened;
    for (int64_t p = 0; state->part && p < state->n_part; p++) {
        for (int s = 0; state->part[p].product && s < state->n_shape; s++)
            for (int k = 0; k < N_ATTENTION_PRODUCT; k++) cpu_product_close(&state->part[p].product[s][k]);
        free(state->part[p].product);
    }
    free(state->part);
    free(state->tile);
    free(state->shape);
    free(state);
}

static int find_shape(attention_state *state, tile_shape wanted)
{
    int s = 0;
    while (s < state->n_shape &&
           (state->shape[s].rows != wanted.rows || state->shape[s].columns != wanted.columns ||
            state->shape[s].accumulate != wanted.accumulate))
        s++;
    if (s == state->n_shape) state->shape[state->n_shape++] = wanted;
    return s;
}

/* 0: no memory. */
static int cut_into_tiles(attention_state *state, const tandem_kernel *kernel)
{
    const int64_t height = tile_rows(kernel), rows = kernel->attention.rows;
    state->n_tile = (rows + height - 1) / height;
    state->tile = calloc((size_t)state->n_tile, sizeof *state->tile);
    state->shape = calloc((size_t)state->n_tile, sizeof *state->shape);
    if (!state->tile || !state->shape) return 0;
    for (int64_t t = 0; t < state->n_tile; t++) {
        const int64_t first = t * height, end = first + height < rows ? first + height : rows;
        const tile_shape shape = {end - first, tile_columns(kernel, end), t + 1 < state->n_tile};
        state->tile[t] = (attention_tile){first, find_shape(state, shape)};
    }
    return 1;
}

static tandem_status open_parts(const tandem_kernel *kernel, attention_state *state, uint64_t *scratch,
                                tandem_error *error)
{
    state->part = calloc((size_t)state->n_part, sizeof *state->part);
    if (!state->part || !cut_into_tiles(state, kernel)) return cpu_kernel_no_memory(kernel, error);
    for (int64_t p = 0; p < state->n_part; p++) {
        attention_part *const part = &state->part[p];
        part->product = calloc((size_t)state->n_shape, sizeof *part->product);
        if (!part->product) return cpu_kernel_no_memory(kernel, error);
        for (int s = 0; s < state->n_shape; s++) {
            const tandem_status status =
                open_products(part->product[s], kernel, state, &state->shape[s], scratch, error);
            if (status != TANDEM_OK) return status;
        }
    }
    return TANDEM_OK;
}

static void lay_out_part(const tandem_kernel *kernel, attention_state *state, uint64_t scratch)
{
    const tandem_attention *a = &kernel->attention;
    const uint64_t scores = (uint64_t)(tile_rows(kernel) * a->columns);
    uint64_t *const end = &state->part_bytes;
    state->scores = cpu_workspace_reserve(end, scores * sizeof(float));
    if (kernel->task.kind == TANDEM_TASK_DGRAD)
        state->gradients = cpu_workspace_reserve(end, scores * sizeof(float));
    if (kernel->task.from != TANDEM_F32)
        state->narrow = cpu_workspace_reserve(end, scores * tandem_dtype_bytes(kernel->task.from));
    for (int k = 0; k < 2; k++)
        if (has_own_sum(kernel, state, k))
            state->sum[k] = cpu_workspace_reserve(end, (uint64_t)(a->columns * a->depth) * sizeof(float));
    state->scratch = cpu_workspace_reserve(end, scratch);
}

/* --- A tile --------------------------------------------------------------------------------------------- */

static void *at_element(const void *array, tandem_dtype dtype, int64_t element)
{
    return (char *)(uintptr_t)array + element * (int64_t)tandem_dtype_bytes(dtype);
}

static float *scores_of(const tile_run *run)
{
    const attention_state *state = run->of->kernel->state;
    return cpu_workspace_at(run->workspace, state->scores);
}

static float *gradients_of(const tile_run *run)
{
    const attention_state *state = run->of->kernel->state;
    return cpu_workspace_at(run->workspace, state->gradients);
}

static void run_tile_product(const tile_run *run, enum attention_product which, const void *a, const void *b,
                             void *c)
{
    const attention_state *state = run->of->kernel->state;
    attention_part *const part = run->part;
    if (part->status == TANDEM_OK)
        part->status = cpu_product_run(&part->product[run->tile->shape][which], &state->kernel, a, b, c, 1,
                                       cpu_workspace_at(run->workspace, state->scratch), &part->error);
}

/* The tile's numbers as an operand of a product. */
static const void *operand_of(const tile_run *run, const float *numbers)
{
    const tandem_kernel *kernel = run->of->kernel;
    const attention_state *state = kernel->state;
    if (kernel->task.from == TANDEM_F32) return numbers;
    void *const narrow = cpu_workspace_at(run->workspace, state->narrow);
    kernel->device->one_thread->bf16_from_f32(narrow, numbers,
                                              (size_t)(run->shape->rows * run->shape->columns));
    return narrow;
}

/* to = D∘from */
static void drop_tile(const tile_run *run, float *to, const float *from)
{
    const tandem_kernel *kernel = run->of->kernel;
    const int64_t all = kernel->attention.columns, columns = run->shape->columns, rows = run->shape->rows;
    const int64_t at_once = columns == all ? rows : 1; /* else a row has draws that no score has */
    tandem_dropout mask = run->of->mask;
    mask.first += (uint64_t)((run->head * kernel->attention.rows + run->tile->first) * all);
    for (int64_t r = 0; r < rows; r += at_once) {
        kernel->device->one_thread->dropout_f32(to + r * columns, from + r * columns,
                                                (size_t)(at_once * columns), &mask);
        mask.first += (uint64_t)all;
    }
}

/* The probabilities of a tile, before dropout. statistics [rows of q]: each row's logarithm; NULL: none. */
static void find_probabilities(const tile_run *run, const void *q, const void *k, float *statistics)
{
    const tandem_kernel *kernel = run->of->kernel;
    const tile_shape *shape = run->shape;
    const float scale = kernel->graph->op[kernel->attention.softmax].scale;
    float *const scores = scores_of(run);
    run_tile_product(run, SCORES, q, k, scores);
    if (run->part->status != TANDEM_OK) return;
    for (int64_t r = 0; r < shape->rows; r++) {
        const int64_t seen = is_causal(kernel) ? run->tile->first + r + 1 : shape->columns;
        float *const row = scores + r * shape->columns;
        float largest = 0;
        const float sum = kernel->device->one_thread->softmax_f32(row, row, (size_t)shape->columns,
                                                                  (size_t)seen, scale, &largest);
        if (statistics) statistics[r] = largest + logf(sum);
    }
}

static void run_forward_tile(const tile_run *run)
{
    const tandem_kernel *kernel = run->of->kernel;
    const tandem_kernel_call *call = run->of->call;
    const tandem_attention *a = &kernel->attention;
    const tandem_dtype from = kernel->task.from;
    const int64_t row = run->head * a->rows + run->tile->first, column = run->head * a->columns;
    find_probabilities(run, at_element(call->in[0], from, row * a->depth),
                       at_element(call->in[1], from, column * a->depth), (float *)call->out[1] + row);
    float *const scores = scores_of(run);
    if (run->of->drops) drop_tile(run, scores, scores);
    run_tile_product(run, RESULT, operand_of(run, scores), at_element(call->in[2], from, column * a->depth),
                     at_element(call->out[0], kernel->task.to, row * a->depth));
}

/* Where gK (which = 0) or gV (1) of the head is summed. */
static void *gradient_sum(const tile_run *run, int which)
{
    const tandem_kernel *kernel = run->of->kernel;
    const attention_state *state = kernel->state;
    if (has_own_sum(kernel, state, which)) return cpu_workspace_at(run->workspace, state->sum[which]);
    return at_element(run->of->call->out[1 + which], kernel->written[1 + which],
                      run->head * kernel->attention.columns * kernel->attention.depth);
}

static void run_backward_tile(const tile_run *run)
{
    const tandem_kernel *kernel = run->of->kernel;
    const tandem_kernel_call *call = run->of->call;
    const tandem_attention *a = &kernel->attention;
    const tandem_dtype from = kernel->task.from;
    const int64_t row = (run->head * a->rows + run->tile->first) * a->depth,
                  column = run->head * a->columns * a->depth;
    const void *const g = at_element(call->in[0], from, row), *const q = at_element(call->in[1], from, row),
                      *const k = at_element(call->in[2], from, column),
                      *const v = at_element(call->in[3], from, column);
    float *const scores = scores_of(run), *const gradients = gradients_of(run);
    find_probabilities(run, q, k, NULL);
    if (run->of->drops) drop_tile(run, gradients, scores);
    run_tile_product(run, V_GRADIENT, operand_of(run, run->of->drops ? gradients : scores), g,
                     gradient_sum(run, 1));
    run_tile_product(run, P_GRADIENT, g, v, gradients);
    if (run->part->status != TANDEM_OK) return;
    if (run->of->drops) drop_tile(run, gradients, gradients);
    const size_t columns = (size_t)run->shape->columns;
    for (size_t r = 0; r < (size_t)run->shape->rows; r++)
        kernel->device->one_thread->softmax_backward_f32(gradients + r * columns, gradients + r * columns,
                                                         scores + r * columns, columns,
                                                         kernel->graph->op[a->softmax].scale);
    const void *const of_scores = operand_of(run, gradients);
    run_tile_product(run, Q_GRADIENT, of_scores, k, at_element(call->out[0], kernel->written[0], row));
    run_tile_product(run, K_GRADIENT, of_scores, q, gradient_sum(run, 0));
}

/* --- All heads ------------------------------------------------------------------------------------------ */

static void write_gradient_sums(const tile_run *run)
{
    const tandem_kernel *kernel = run->of->kernel;
    const tandem_attention *a = &kernel->attention;
    for (int k = 0; k < 2; k++)
        if (has_own_sum(kernel, kernel->state, k))
            kernel->device->one_thread->bf16_from_f32(at_element(run->of->call->out[1 + k],
                                                                 kernel->written[1 + k],
                                                                 run->head * a->columns * a->depth),
                                                      gradient_sum(run, k), (size_t)(a->columns * a->depth));
}

static void run_attention_parts(void *context, int64_t begin, int64_t end)
{
    const attention_run *of = context;
    const attention_state *state = of->kernel->state;
    const int64_t heads = of->kernel->attention.heads;
    const int is_forward = of->kernel->task.kind == TANDEM_TASK_FORWARD;
    for (int64_t p = begin; p < end; p++) {
        tile_run run = {.of = of,
                        .part = &state->part[p],
                        .workspace = (char *)of->call->workspace + (uint64_t)p * state->part_bytes};
        run.part->status = TANDEM_OK;
        for (run.head = heads * p / state->n_part; run.head < heads * (p + 1) / state->n_part; run.head++) {
            for (int64_t t = state->n_tile - 1; t >= 0; t--) {
                run.tile = &state->tile[t];
                run.shape = &state->shape[run.tile->shape];
                (is_forward ? run_forward_tile : run_backward_tile)(&run);
            }
            write_gradient_sums(&run);
        }
    }
}

static tandem_status cpu_attention_run(const tandem_kernel *kernel, const tandem_kernel_call *call,
                                       tandem_error *error)
{
    const attention_state *state = kernel->state;
    const int dropout = kernel->attention.dropout;
    attention_run run = {.kernel = kernel, .call = call, .drops = dropout >= 0 && !call->is_evaluation};
    if (run.drops) run.mask = cpu_dropout_mask(kernel->graph, &kernel->graph->op[dropout], call);
    if (state->n_part == 1) cpu_team_set(1); /* a product alone would be divided, in other orders of sums */
    cpu_for(state->n_part, 1, run_attention_parts, &run);
    cpu_team_set(kernel->device->n_core);
    for (int64_t p = 0; p < state->n_part; p++)
        if (state->part[p].status != TANDEM_OK) {
            if (error) *error = state->part[p].error;
            return state->part[p].status;
        }
    return TANDEM_OK;
}

static tandem_status cpu_attention_prepare(tandem_kernel *kernel, tandem_error *error)
{
    attention_state *state = calloc(1, sizeof *state);
    if (!state) return cpu_kernel_no_memory(kernel, error);
    const int64_t heads = kernel->attention.heads;
    const int n_core = kernel->device->n_core;
    state->device = *kernel->device;
    state->device.n_core = 1;
    state->device.isa = state->device.one_thread;
    state->kernel = *kernel;
    state->kernel.device = &state->device;
    state->n_part = heads < n_core ? heads : n_core;
    uint64_t scratch = 0;
    cpu_team_set(1); /* a thread of the team runs a product alone */
    const tandem_status status = open_parts(kernel, state, &scratch, error);
    cpu_team_set(n_core);
    if (status != TANDEM_OK) {
        destroy_attention(state);
        return status;
    }
    lay_out_part(kernel, state, scratch);
    kernel->workspace_bytes = state->part_bytes * (uint64_t)state->n_part;
    kernel->state = state;
    kernel->destroy = destroy_attention;
    kernel->run = cpu_attention_run;
    return TANDEM_OK;
}

const cpu_operator cpu_attention = {.prepare = cpu_attention_prepare};
