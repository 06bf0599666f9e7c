/* folder: graph */
/* Laws that every graph keeps, over seeded random ones ($TANDEM_TEST_SEED: another seed). The generator
 * follows shapes by itself, so what the builder infers is checked against a second opinion. */
#include <inttypes.h>
#include <stdbool.h>

#include "base/philox.h"
#include "graph/ir/build.h"
#include "graph/ir/op.h"
#include "graph/zoo/zoo.h"
#include "tests/support/tandem_test.h"

enum { N_GRAPH = 300, MAX_OP = 160, MAX_SAMPLE = 4096 /* numbers of a sample in a tensor */ };
enum { VOCABULARY = 50, WORD_WIDTH = 8 };

static const tandem_optimizer_options sgd = {.kind = TANDEM_SGD, .rate = 0.1f};
static tandem_graph *const untouched = (tandem_graph *)(uintptr_t)0x10;

static uint64_t seed_used(void)
{
    const char *text = getenv("TANDEM_TEST_SEED");
    return text && *text ? strtoull(text, NULL, 10) : 1;
}

/* --- Draws ---------------------------------------------------------------------------------------------- */
typedef struct draws {
    uint64_t seed;
    uint32_t run, n;
} draws;

/* In 0 … n−1. */
static int below_graph(draws *d, int n)
{
    const uint32_t counter[4] = {d->n / 4, d->run, 0, 0};
    return (int)((uint64_t)tandem_philox(counter, d->seed).word[d->n++ % 4] * (uint64_t)n >> 32);
}
static int between_graph(draws *d, int least, int most) { return least + below_graph(d, most - least + 1); }

/* --- A generator of valid graphs ------------------------------------------------------------------------ */
typedef struct generator {
    draws draw;
    tandem_builder *b;
    int64_t batch;
    int n; /* tensors so far */
    tandem_shape shape[MAX_OP];
    bool is_read[MAX_OP], is_f32[MAX_OP];
    int label;
    int word; /* the embedding, as long as nothing is tied to it; 0: none */
} generator;

static const char *next_name(generator *g)
{
    static char name[16]; /* the builder copies it */
    (void)snprintf(name, sizeof name, "t%d", g->n);
    return name;
}

/* Notes what was built; its inputs are read now. */
static int took(generator *g, int t, tandem_shape shape, int x, int y)
{
    assert_int_equal(t, g->n);
    assert_true(g->n < MAX_OP);
    g->shape[t] = shape;
    g->is_f32[t] = true;
    if (x >= 0) g->is_read[x] = true;
    if (y >= 0) g->is_read[y] = true;
    return g->n++;
}

static int64_t sample_elements(const generator *g, int t)
{
    return tandem_shape_elements(&g->shape[t]) / g->batch;
}

/* A random tensor of numbers. */
static int any_tensor(generator *g)
{
    for (;;) {
        const int t = below_graph(&g->draw, g->n);
        if (g->is_f32[t]) return t;
    }
}

static void grow_linear(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    const int64_t n = between_graph(&g->draw, 1, 12);
    if (s.n_dim < 2 || sample_elements(g, x) / tandem_shape_last(&s) * n > MAX_SAMPLE) return;
    s.dim[s.n_dim - 1] = n;
    took(g, tandem_build_linear(g->b, next_name(g), x, n, 0.1f), s, x, -1);
}

static void grow_window(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    const int kind = below_graph(&g->draw, 3), kernel = between_graph(&g->draw, 1, 4),
              stride = between_graph(&g->draw, 1, 3);
    const int pad = kind == 2 ? 0 : between_graph(&g->draw, 0, kernel / 2 < kernel ? kernel / 2 : 0);
    const int64_t channels = between_graph(&g->draw, 1, 6);
    if (s.n_dim != 4 || s.dim[1] + 2 * pad < kernel || s.dim[2] + 2 * pad < kernel) return;
    for (int d = 1; d <= 2; d++) { /* counted, not computed */
        int64_t n = 0;
        for (int64_t at = 0; at + kernel <= s.dim[d] + 2 * pad; at += stride) n++;
        s.dim[d] = n;
    }
    if (kind == 0 && s.dim[1] * s.dim[2] * channels > MAX_SAMPLE) return;
    if (kind == 0) {
        s.dim[3] = channels;
        took(g, tandem_build_conv2d(g->b, next_name(g), x, channels, kernel, stride, pad), s, x, -1);
    } else if (kind == 1) {
        took(g, tandem_build_maxpool(g->b, next_name(g), x, kernel, stride, pad), s, x, -1);
    } else {
        took(g, tandem_build_avgpool(g->b, next_name(g), x, kernel, kernel, stride), s, x, -1);
    }
}

static void grow_matmul(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    if (s.n_dim < 3) return;
    const int64_t m = s.dim[s.n_dim - 2];
    if (sample_elements(g, x) / tandem_shape_last(&s) * m > MAX_SAMPLE) return;
    s.dim[s.n_dim - 1] = m;
    const int square = took(g, tandem_build_matmul(g->b, next_name(g), x, x, 1), s, x, x);
    const int weighted = took(
        g, tandem_build_softmax(g->b, next_name(g), square, 0.5f, below_graph(&g->draw, 2)), s, square, -1);
    took(g, tandem_build_matmul(g->b, next_name(g), weighted, x, 0), g->shape[x], weighted, x);
}

static void grow_elementwise(generator *g, int x)
{
    const tandem_shape s = g->shape[x];
    switch (below_graph(&g->draw, 9)) {
    case 7:
        if (s.n_dim < 2) break;
        x = took(g, tandem_build_bias(g->b, next_name(g), x, 1, 0), s, x, -1);
        took(g, tandem_build_gelu(g->b, next_name(g), x), s, x, -1);
        break;
    case 6: took(g, tandem_build_dropout(g->b, next_name(g), x, 0.25f), s, x, -1); break;
    case 4: took(g, tandem_build_tanh(g->b, next_name(g), x), s, x, -1); break;
    case 0: took(g, tandem_build_relu(g->b, next_name(g), x), s, x, -1); break;
    case 1: took(g, tandem_build_gelu(g->b, next_name(g), x), s, x, -1); break;
    case 2:
        if (s.n_dim >= 2) took(g, tandem_build_layernorm(g->b, next_name(g), x), s, x, -1);
        break;
    case 3:
        if (s.n_dim == 4) took(g, tandem_build_batchnorm(g->b, next_name(g), x), s, x, -1);
        break;
    case 5:
        if (s.n_dim != 4) break;
        x = took(g, tandem_build_batchnorm(g->b, next_name(g), x), s, x, -1);
        took(g, tandem_build_relu(g->b, next_name(g), x), s, x, -1);
        break;
    default:
        if (s.n_dim >= 2)
            took(g, tandem_build_bias(g->b, next_name(g), x, between_graph(&g->draw, 1, s.n_dim - 1), 0), s,
                 x, -1);
    }
}

/* With the last tensor of the same shape, which may be x itself. */
static void grow_add(generator *g, int x)
{
    for (int y = g->n - 1; y >= 0; y--) {
        const tandem_shape *a = &g->shape[x], *b = &g->shape[y];
        if (!g->is_f32[y] || a->n_dim != b->n_dim ||
            memcmp(a->dim, b->dim, (size_t)a->n_dim * sizeof *a->dim) != 0)
            continue;
        const int is_block = a->n_dim == 4 && below_graph(&g->draw, 2);
        if (is_block) x = took(g, tandem_build_batchnorm(g->b, next_name(g), x), *a, x, -1);
        x = took(g, tandem_build_add(g->b, next_name(g), x, y), *a, x, y);
        if (is_block) took(g, tandem_build_relu(g->b, next_name(g), x), *a, x, -1);
        return;
    }
}

/* Into random factors of the sample; now and then one of them joins the batch. */
static void grow_reshape(generator *g, int x)
{
    int64_t left = sample_elements(g, x);
    tandem_shape s = {between_graph(&g->draw, 1, 4), {g->batch, 1, 1, 1}};
    for (int d = s.n_dim - 1; d > 0; d--) {
        const int64_t wanted = between_graph(&g->draw, 1, 8);
        s.dim[d] = left % wanted == 0 ? wanted : 1;
        left /= s.dim[d];
    }
    if (s.n_dim > 1 && below_graph(&g->draw, 4))
        s.dim[1] *= left;
    else
        s.dim[0] *= left;
    took(g, tandem_build_reshape(g->b, next_name(g), x, s.n_dim, s.dim), s, x, -1);
}

static void grow_transpose(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    int axis[TANDEM_MAX_DIM] = {0, 1, 2, 3};
    if (s.n_dim < 2) return;
    for (int d = s.n_dim - 1; d > 1; d--) {
        const int other = between_graph(&g->draw, 1, d), moved = axis[d];
        axis[d] = axis[other];
        axis[other] = moved;
    }
    for (int d = 0; d < s.n_dim; d++) s.dim[d] = g->shape[x].dim[axis[d]];
    took(g, tandem_build_transpose(g->b, next_name(g), x, axis), s, x, -1);
}

/* Rows of dimension 1: fewer, one more, each with something of its own, or the one of the sample's label. */
static void grow_rows(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    const int kind = below_graph(&g->draw, 4);
    if (kind == 0 && s.n_dim >= 2) {
        const int64_t n = between_graph(&g->draw, 1, (int)s.dim[1]),
                      start = below_graph(&g->draw, (int)(s.dim[1] - n) + 1);
        s.dim[1] = n;
        took(g, tandem_build_slice(g->b, next_name(g), x, start, n), s, x, -1);
    } else if (kind == 1 && s.n_dim == 3 && sample_elements(g, x) + tandem_shape_last(&s) <= MAX_SAMPLE) {
        s.dim[1]++;
        took(g, tandem_build_concat_token(g->b, next_name(g), x, 0.1f), s, x, -1);
    } else if (kind == 2 && s.n_dim >= 3) {
        const int64_t rows = s.dim[s.n_dim - 2] + below_graph(&g->draw, 3);
        took(g, tandem_build_row_bias(g->b, next_name(g), x, rows, 0.1f), s, x, -1);
    } else if (kind == 3 && s.n_dim >= 2 && s.dim[0] == g->batch) {
        const int64_t start = below_graph(&g->draw, (int)s.dim[1]);
        s.dim[1] = 1;
        x = took(g, tandem_build_slice(g->b, next_name(g), x, start, 1), s, x, -1);
        took(g, tandem_build_gather_labelled(g->b, next_name(g), x, g->label), s, x, g->label);
    }
}

/* Back by the embedding's table, once. */
static void grow_tied(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    if (!g->word || s.n_dim < 2 || tandem_shape_last(&s) != WORD_WIDTH) return;
    if (sample_elements(g, x) / WORD_WIDTH * VOCABULARY > MAX_SAMPLE) return;
    s.dim[s.n_dim - 1] = VOCABULARY;
    took(g, tandem_build_tied(g->b, next_name(g), x, g->word), s, x, -1);
    g->word = 0;
}

/* Operators of imported models. */
static void grow_imported(generator *g, int x)
{
    tandem_shape s = g->shape[x];
    static const float factor[MAX_SAMPLE];
    int64_t step[TANDEM_MAX_DIM] = {0};
    switch (below_graph(&g->draw, 7)) {
    case 5:
        if (s.n_dim < 2) break;
        step[s.n_dim - 1] = below_graph(&g->draw, 2);
        took(g, tandem_build_mul_constant(g->b, next_name(g), x, factor, step), s, x, -1);
        break;
    case 6:
        if (s.n_dim < 2 || s.dim[1] != 1 || 3 * sample_elements(g, x) > MAX_SAMPLE) break;
        s.dim[1] = 3;
        took(g, tandem_build_repeat(g->b, next_name(g), x, 3), s, x, -1);
        break;
    case 0:
        took(g,
             tandem_build_map(g->b, next_name(g), x,
                              (tandem_function)below_graph(&g->draw, TANDEM_N_FUNCTION), 1, 0),
             s, x, -1);
        break;
    case 1: took(g, tandem_build_mul(g->b, next_name(g), x, x), s, x, x); break;
    case 2:
        if (s.n_dim >= 2) took(g, tandem_build_scale(g->b, next_name(g), x), s, x, -1);
        break;
    case 3:
        if (s.n_dim < 2 || 2 * sample_elements(g, x) > MAX_SAMPLE) break;
        s.dim[1] *= 2;
        took(g, tandem_build_concat(g->b, next_name(g), x, x), s, x, x);
        break;
    default:
        if (s.n_dim == 4) {
            const tandem_grouped_window window = {1, 1, 1, 0, 0, 1, (int)s.dim[3]};
            took(g, tandem_build_grouped_conv2d(g->b, next_name(g), x, s.dim[3], &window), s, x, -1);
        }
    }
}

static void grow(generator *g)
{
    static void (*const kinds[])(generator *, int) = {
        grow_linear,  grow_window,    grow_window, grow_matmul, grow_elementwise, grow_add,
        grow_reshape, grow_transpose, grow_rows,   grow_tied,   grow_imported};
    kinds[below_graph(&g->draw, (int)(sizeof kinds / sizeof *kinds))](g, any_tensor(g));
}

static void begin_graph(generator *g)
{
    const int64_t h = between_graph(&g->draw, 1, 12), w = between_graph(&g->draw, 1, 12),
                  c = between_graph(&g->draw, 1, 4);
    if (below_graph(&g->draw, 3)) {
        took(g, tandem_build_images(g->b, next_name(g), h, w, c), (tandem_shape){4, {g->batch, h, w, c}}, -1,
             -1);
    } else {
        const tandem_shape tokens = {2, {g->batch, h}}, x = {3, {g->batch, h, WORD_WIDTH}};
        const int t = took(g, tandem_build_tokens(g->b, next_name(g), h), tokens, -1, -1);
        g->is_f32[t] = false;
        g->word = took(g, tandem_build_embedding(g->b, next_name(g), t, VOCABULARY, WORD_WIDTH), x, t, -1);
    }
    g->label =
        took(g, tandem_build_masked_labels(g->b, next_name(g), 1, 1), (tandem_shape){1, {g->batch}}, -1, -1);
    g->is_f32[g->label] = false;
}

/* Every tensor nobody reads becomes (batch, 8); the sum of these are the logits. */
static void end_graph(generator *g)
{
    int sum = -1;
    const tandem_shape logits = {2, {g->batch, 8}};
    for (int t = 0, n = g->n; t < n; t++) {
        if (g->is_read[t] || !g->is_f32[t]) continue;
        const tandem_shape flat = {2, {g->batch, sample_elements(g, t)}};
        int x = took(g, tandem_build_reshape(g->b, next_name(g), t, 2, flat.dim), flat, t, -1);
        x = took(g, tandem_build_linear(g->b, next_name(g), x, 8, 0.1f), logits, x, -1);
        sum = sum < 0 ? x : took(g, tandem_build_add(g->b, next_name(g), sum, x), logits, sum, x);
    }
    took(g, tandem_build_cross_entropy(g->b, next_name(g), sum, g->label), (tandem_shape){0, {0}}, sum,
         g->label);
}

/* Random graph number `run` at a batch; *g keeps the shapes the generator thinks it has. */
static tandem_graph *random_graph_graph(generator *g, uint32_t run, int64_t batch)
{
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    memset(g, 0, sizeof *g);
    g->draw = (draws){.seed = seed_used(), .run = run};
    g->batch = batch;
    assert_int_equal(tandem_builder_open(&g->b, batch, &error), TANDEM_OK);
    begin_graph(g);
    for (int n = between_graph(&g->draw, 0, 25); n > 0; n--) grow(g);
    end_graph(g);
    if (tandem_builder_finish(g->b, "random", &sgd, &graph, &error) != TANDEM_OK)
        fail_msg("run %u: %s", run, error.text);
    tandem_builder_close(g->b);
    return graph;
}

/* Operators that one kernel computes are made one, as in the zoo. */
static void fuse_graph(tandem_graph *graph) { assert_int_equal(tandem_graph_fuse(graph, NULL), TANDEM_OK); }

/* --- Laws of one graph ---------------------------------------------------------------------------------- */
static void check_shapes(const tandem_graph *graph, const generator *g)
{
    assert_int_equal(graph->n_op, g->n);
    for (int t = 0; t < g->n; t++) {
        assert_int_equal(graph->op[t].shape.n_dim, g->shape[t].n_dim);
        for (int d = 0; d < g->shape[t].n_dim; d++)
            assert_int_equal(graph->op[t].shape.dim[d], g->shape[t].dim[d]);
        assert_int_equal(graph->op[t].dtype, g->is_f32[t] ? TANDEM_F32 : TANDEM_S32);
    }
}

static void check_edges(const tandem_graph *graph)
{
    for (int t = 0; t < graph->n_op; t++) {
        int at = graph->consumer_start[t];
        for (int i = 0; i < graph->n_op; i++)
            for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++)
                if (graph->op[i].input[slot] == t) assert_int_equal(graph->consumer[at++], i);
        assert_int_equal(at, graph->consumer_start[t + 1]);
        assert_int_equal(at == graph->consumer_start[t], t == graph->loss);
    }
}

static void check_operators(const tandem_graph *graph)
{
    for (int i = 0; i < graph->n_op; i++) {
        const tandem_op *op = &graph->op[i];
        const tandem_op_row *row = tandem_op_row_get(op->kind);
        int trained = row->n_parameter > 0;
        for (int slot = 0; slot < TANDEM_MAX_INPUT; slot++) {
            assert_true(slot < row->n_input ? op->input[slot] >= 0 && op->input[slot] < i
                                            : op->input[slot] == -1);
            trained |= slot < row->n_input && graph->op[op->input[slot]].needs_gradient;
        }
        assert_int_equal(op->needs_gradient, trained);
        for (int slot = 0; slot < TANDEM_MAX_PARAMETER; slot++) {
            const int p = op->parameter[slot];
            assert_true(slot < row->n_parameter ? graph->parameter[p].op == i || graph->parameter[p].tied == i
                                                : p == -1);
            if (p >= 0)
                assert_int_equal(graph->parameter[p].tied == i,
                                 op->kind == TANDEM_OP_LINEAR && op->transpose_b);
        }
        const int expected = op->kind == TANDEM_OP_RESHAPE ? graph->view[op->input[0]] : i;
        assert_int_equal(graph->view[i], expected);
        assert_int_equal(graph->view[graph->view[i]], graph->view[i]);
        assert_int_equal((row->saves & TANDEM_SAVES_AUX) != 0, op->aux_bytes > 0);
        assert_true(op->flops >= 0);
        assert_true(strncmp(op->signature, row->name, strlen(row->name)) == 0);
    }
    assert_int_equal(graph->op[graph->loss].kind, TANDEM_OP_CROSS_ENTROPY);
    assert_int_equal(graph->loss, graph->n_op - 1);
    for (int p = 0; p < graph->n_parameter; p++) {
        assert_int_equal(graph->parameter[p].elements, tandem_shape_elements(&graph->parameter[p].shape));
        if (graph->parameter[p].tied < 0) continue;
        assert_int_equal(graph->op[graph->parameter[p].op].kind, TANDEM_OP_EMBEDDING);
        /* backward, the embedding comes last */
        assert_true(graph->parameter[p].tied > graph->parameter[p].op);
    }
}

static void random_graphs_keep_the_laws(void **state)
{
    generator *g = malloc(sizeof *g);
    assert_non_null(g);
    int64_t n_op = 0;
    bool seen[TANDEM_N_OP_KIND] = {false};
    for (uint32_t run = 0; run < N_GRAPH; run++) {
        tandem_graph *graph =
            random_graph_graph(g, run, between_graph(&(draws){.seed = 99, .run = run}, 1, 7));
        check_shapes(graph, g);
        check_edges(graph);
        check_operators(graph);
        fuse_graph(graph);
        check_edges(graph);
        check_operators(graph);
        for (int i = 0; i < graph->n_op; i++) seen[graph->op[i].kind] = true;
        n_op += graph->n_op;
        tandem_graph_close(graph);
    }
    for (int k = 0; k < TANDEM_N_OP_KIND; k++)
        if (!seen[k] && k != TANDEM_OP_CALL && k != TANDEM_OP_CALL_TRAINED) /* recorded, not built */
            fail_msg("no random graph had a %s", tandem_op_row_get((tandem_op_kind)k)->name);
    (void)printf("%d graphs, %" PRId64 " operators\n", (int)N_GRAPH, n_op);
    free(g);
}

/* The batch scales the work and nothing else. */
static void the_batch_changes_no_more_than_the_work(void **state)
{
    generator *g = malloc(sizeof *g);
    assert_non_null(g);
    for (uint32_t run = 0; run < N_GRAPH; run++) {
        tandem_graph *a = random_graph_graph(g, run, 2), *b = random_graph_graph(g, run, 5),
                     *again = random_graph_graph(g, run, 2);
        fuse_graph(a);
        fuse_graph(b);
        fuse_graph(again);
        assert_true(a->hash == b->hash && a->hash == again->hash);
        assert_int_equal(a->n_op, b->n_op);
        assert_int_equal(tandem_graph_n_weight(a), tandem_graph_n_weight(b));
        assert_true(tandem_graph_flops(a) * 5 == tandem_graph_flops(b) * 2);
        for (int i = 0; i < a->n_op; i++) {
            assert_string_equal(a->op[i].name, b->op[i].name);
            assert_string_equal(a->op[i].signature, again->op[i].signature);
            assert_string_not_equal(a->op[i].signature, b->op[i].signature);
        }
        tandem_graph_close(a);
        tandem_graph_close(b);
        tandem_graph_close(again);
    }
    free(g);
}

/* --- Equal signatures cost the same --------------------------------------------------------------------- */
static int by_signature(const void *a, const void *b)
{
    return strcmp(((const tandem_op *)a)->signature, ((const tandem_op *)b)->signature);
}

static void equal_signatures_mean_equal_work(void **state)
{
    generator *g = malloc(sizeof *g);
    tandem_op *op = malloc((size_t)N_GRAPH * MAX_OP * sizeof *op);
    assert_non_null(g);
    assert_non_null(op);
    size_t n = 0;
    for (uint32_t run = 0; run < N_GRAPH; run++) {
        tandem_graph *graph = random_graph_graph(g, run, 3);
        fuse_graph(graph);
        memcpy(op + n, graph->op, (size_t)graph->n_op * sizeof *op);
        n += (size_t)graph->n_op;
        tandem_graph_close(graph);
    }
    qsort(op, n, sizeof *op, by_signature);
    int n_equal = 0;
    for (size_t i = 1; i < n; i++) {
        if (strcmp(op[i - 1].signature, op[i].signature) != 0) continue;
        n_equal++;
        assert_int_equal(op[i - 1].kind, op[i].kind);
        assert_true(op[i - 1].flops == op[i].flops);
        assert_int_equal(op[i - 1].aux_bytes, op[i].aux_bytes);
        assert_int_equal(tandem_shape_elements(&op[i - 1].shape), tandem_shape_elements(&op[i].shape));
    }
    assert_true(n_equal > 100);
    free(op);
    free(g);
}

/* --- Senseless arguments -------------------------------------------------------------------------------- */
static int64_t odd_number(draws *d)
{
    static const int64_t telling[] = {0, -1, INT64_MIN, INT64_MAX, INT64_C(1) << 44, INT32_MAX, 3, 4,
                                      8, 2,  1,         5};
    return telling[below_graph(d, (int)(sizeof telling / sizeof *telling))];
}

static int odd_int(draws *d)
{
    const int64_t n = odd_number(d);
    return n > INT32_MAX ? INT32_MAX : n < INT32_MIN ? INT32_MIN : (int)n;
}

/* One call with arguments that may be right; x is a tensor or something near one. */
static int call_at_random(draws *d, tandem_builder *b, const char *name, int n)
{
    const int x = below_graph(d, 8) ? below_graph(d, n + 1) : odd_int(d), y = below_graph(d, n + 1);
    const bool tame = below_graph(d, 10) != 0;
    const int64_t big = tame ? between_graph(d, 1, 9) : odd_number(d);
    const int small = tame ? between_graph(d, 1, 3) : odd_int(d),
              other = tame ? between_graph(d, 0, 1) : odd_int(d);
    const float real = tame ? 0.5f : (float)odd_number(d);
    const int axis[4] = {tame ? 0 : odd_int(d), between_graph(d, 1, 3), between_graph(d, 1, 3),
                         between_graph(d, 1, 3)};
    const int64_t dim[4] = {tame ? 2 : odd_number(d), big, odd_number(d), odd_number(d)};
    switch (below_graph(d, TANDEM_N_OP_KIND)) {
    case 0: return tandem_build_images(b, name, big, big, big);
    case 1: return tandem_build_tokens(b, name, big);
    case 2: return tandem_build_labels(b, name, big);
    case 3: return tandem_build_linear(b, name, x, big, real);
    case 4: return tandem_build_conv2d(b, name, x, big, small, small, other);
    case 5: return tandem_build_matmul(b, name, x, y, other);
    case 6: return tandem_build_embedding(b, name, x, big, big);
    case 7: return tandem_build_bias(b, name, x, small, real);
    case 8: return tandem_build_relu(b, name, x);
    case 9: return tandem_build_gelu(b, name, x);
    case 10: return tandem_build_add(b, name, x, y);
    case 11: return tandem_build_maxpool(b, name, x, small, small, other);
    case 12: return tandem_build_avgpool(b, name, x, small, small, small);
    case 13: return tandem_build_reshape(b, name, x, tame ? small : odd_int(d), dim);
    case 14: return tandem_build_transpose(b, name, x, axis);
    case 15: return tandem_build_softmax(b, name, x, real, other);
    case 16: return tandem_build_layernorm(b, name, x);
    case 17: return tandem_build_batchnorm(b, name, x);
    case 18: return tandem_build_masked_labels(b, name, big, small);
    case 19: return tandem_build_gather_labelled(b, name, x, y);
    default: return tandem_build_cross_entropy(b, name, x, y);
    }
}

/* A refusal is said once and holds; whatever a builder has taken can be given back. */
static void senseless_arguments_are_refused(void **state)
{
    int64_t n_taken = 0;
    for (uint32_t run = 0; run < 20 * N_GRAPH; run++) {
        draws d = {.seed = seed_used() + 1, .run = run};
        tandem_builder *b = NULL;
        tandem_graph *graph = untouched;
        tandem_error error = {0};
        assert_int_equal(tandem_builder_open(&b, 2, &error), TANDEM_OK);
        int n = tandem_build_images(b, "image", 4, 4, 4) + 1, last = 0;
        n += below_graph(&d, 2) ? tandem_build_labels(b, "label", 1) == 1 : 0;
        for (int call = 0; call < 12; call++) {
            char name[16];
            (void)snprintf(name, sizeof name, "t%d", call);
            const int t = call_at_random(&d, b, name, n);
            assert_true(last < 0 ? t == -1 : t == -1 || t == n);
            n += t >= 0;
            n_taken += t >= 0;
            last = t;
        }
        const tandem_status status = tandem_builder_finish(b, "random", &sgd, &graph, &error);
        assert_true(status == TANDEM_WRONG_GRAPH || (status == TANDEM_OK && last >= 0));
        assert_int_equal(error.status, status);
        if (status == TANDEM_OK)
            tandem_graph_close(graph);
        else
            assert_true(graph == untouched && error.text[0] != '\0');
        tandem_builder_close(b);
    }
    assert_true(n_taken > N_GRAPH); /* not all of it was senseless */
}

/* --- Names of models ------------------------------------------------------------------------------------ */
/* Values near the defaults, and the least and the most where they do not make the graph large. */
static int64_t random_value(draws *d, const tandem_model_option *option)
{
    if (strcmp(option->name, "image") == 0) {
        /* whole patches, and stages */
        const int unit = option->default_value == TANDEM_ZOO_IMAGE(28, 28, 1) ? 4 : 32;
        return TANDEM_ZOO_IMAGE(unit * between_graph(d, 1, 9), unit * between_graph(d, 1, 9),
                                between_graph(d, 1, 4));
    }
    static const int64_t factor[] = {1, 2, 3};
    const int64_t value = option->default_value * factor[below_graph(d, 3)];
    return below_graph(d, 3) == 0 ? option->min_value : value > option->max_value ? option->max_value : value;
}

/* "NAME:option=value,…" from values[], in an order that starts at option `first`; the defaults as well if
 * `all`. */
static void write_name(char *text, size_t room, const tandem_model *model, const int64_t *value, int first,
                       bool all)
{
    int n_option = 0;
    while (model->option[n_option].name) n_option++;
    size_t n = (size_t)snprintf(text, room, "%s", model->name);
    char separator = ':';
    for (int k = 0; k < n_option; k++) {
        const int i = (first + k) % n_option;
        char number[TANDEM_MODEL_VALUE_TEXT];
        if (!all && value[i] == model->option[i].default_value) continue;
        n += (size_t)snprintf(text + n, room - n, "%c%s=%s", separator, model->option[i].name,
                              tandem_model_value_print(number, &model->option[i], value[i]));
        assert_true(n < room);
        separator = ',';
    }
}

static void a_model_has_one_canonical_name(void **state)
{
    int n_open = 0;
    for (uint32_t run = 0; run < N_GRAPH; run++) {
        draws d = {.seed = seed_used() + 2, .run = run};
        const tandem_model *model = tandem_model_get((int)run % tandem_model_count());
        int64_t value[TANDEM_ZOO_MAX_OPTION];
        for (int i = 0; model->option[i].name; i++) value[i] = random_value(&d, &model->option[i]);
        char any_order[256], plain[256];
        write_name(any_order, sizeof any_order, model, value, below_graph(&d, TANDEM_ZOO_MAX_OPTION), true);
        write_name(plain, sizeof plain, model, value, 0, false);
        tandem_graph *a = untouched, *b = untouched;
        tandem_error error = {0};
        const tandem_status status = tandem_graph_open(&a, any_order, 2, &error);
        assert_int_equal(tandem_graph_open(&b, plain, 3, NULL), status);
        if (status != TANDEM_OK) { /* values that do not go together */
            assert_true(status == TANDEM_USAGE && a == untouched && b == untouched);
            continue;
        }
        assert_string_equal(a->model, plain);
        assert_string_equal(b->model, plain);
        assert_true(a->hash == b->hash);
        check_edges(a);
        check_operators(a);
        tandem_graph_close(a);
        tandem_graph_close(b);
        n_open++;
    }
    assert_true(n_open > N_GRAPH / 2);
}

int main(void)
{
    (void)printf("seed %" PRIu64 "\n", seed_used());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_keep_the_laws),
        cmocka_unit_test(the_batch_changes_no_more_than_the_work),
        cmocka_unit_test(equal_signatures_mean_equal_work),
        cmocka_unit_test(senseless_arguments_are_refused),
        cmocka_unit_test(a_model_has_one_canonical_name),
    };
    return cmocka_run_group_tests_name("graph laws", tests, NULL, NULL);
}
