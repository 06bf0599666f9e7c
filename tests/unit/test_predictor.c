/* folder: predictor */
/* Sensitivities computed by hand, and their variances by simulation. */
#include <unistd.h>

#include "base/philox.h"
#include "predictor/methods.h"
#include "tandem/advanced/predictor.h"
#include "tests/support/tandem_test.h"
#include "tests/support/test_graph.h"

/* image label | flatten fc1 fc1.bias fc1.relu head head.bias | loss; depths 0 0 | 1 2 3 4 5 6 | 1 */
static const char small[] = "mlp:width=4,depth=1,image=2x2x1,classes=2";
static const double bf16_share = 0.69314718055994531 / 18 / 16384;

static void *zeros(const tandem_graph *graph, size_t each)
{
    void *room = calloc((size_t)graph->n_op, each);
    assert_non_null(room);
    return room;
}

/* A model of two products, and statistics of nothing yet. */
typedef struct two_products {
    tandem_graph *graph;
    tandem_statistics *s;
    int fc1, head;
} two_products;
#define SIZES                                                                                                \
    .n_batch = 1, .local_batch = 2, .rows = 2, .k = 4, .columns = 4, .x_elements = 8,                        \
    .w_elements = 16 /* fc1's */

static two_products open_products(void)
{
    two_products m = {.graph = open_graph(small, 2)};
    m.s = zeros(m.graph, sizeof *m.s);
    m.fc1 = op_of(m.graph, "fc1");
    m.head = op_of(m.graph, "head");
    return m;
}

static void close_products(two_products *m)
{
    free(m->s);
    tandem_graph_close(m->graph);
}

static double *compute(const char *name, const tandem_graph *graph, const tandem_statistics *s,
                       tandem_dtype amp_dtype)
{
    const tandem_sensitivity_method *method = NULL;
    tandem_error error = {0};
    double *sensitivity = zeros(graph, TANDEM_N_PRECISION * sizeof *sensitivity);
    for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION; i++) sensitivity[i] = NAN; /* whatever was there */
    require_ok(tandem_sensitivity_find(&method, name, &error), &error);
    method->compute(sensitivity, graph, s, amp_dtype);
    return sensitivity;
}

static void assert_close(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}

/* --- Names ---------------------------------------------------------------------------------------------- */

static void methods_are_found_by_name(void **state)
{
    const tandem_sensitivity_method *method = NULL;
    int n = 0;
    for (; tandem_sensitivity_get(n); n++) {
        assert_true(tandem_sensitivity_get(n)->meaning[0] && tandem_sensitivity_get(n)->unit[0]);
        assert_int_equal(tandem_sensitivity_find(&method, tandem_sensitivity_get(n)->name, NULL), TANDEM_OK);
        assert_ptr_equal(method, tandem_sensitivity_get(n));
    }
    assert_int_equal(n, 3);
    assert_null(tandem_sensitivity_get(-1));
    assert_null(tandem_sensitivity_get(n + 1));
    const tandem_sensitivity_method *const before = method;
    tandem_error error = {0};
    assert_int_equal(tandem_sensitivity_find(&method, "fischer", &error), TANDEM_UNKNOWN_NAME);
    assert_non_null(strstr(error.text, "ou mean 'fisher'"));
    assert_ptr_equal(method, before);
}

/* --- qsync ---------------------------------------------------------------------------------------------- */

static void qsync_is_as_published(void **state)
{
    two_products m = open_products();
    /* S_v = 0.04, e_v = 2; S_w = 0.02, e_w = 1; e_g = −3; X = 4, W = 3, G = 2; D_v = 8, D_w = 16, D_o = 8 */
    m.s[m.fc1] = (tandem_statistics){SIZES,          .x_amax = 5.08, .w_amax = 2.54,   .g_amax = 0.127,
                                     .x_square = 16, .w_square = 9,  .wgrad_square = 4};
    m.s[m.head] = m.s[m.fc1];
    m.s[m.head].x_amax = m.s[m.head].w_amax = 0.3; /* e = −2 */
    double *sensitivity = compute("qsync", m.graph, m.s, TANDEM_F32);
    const double f = (3 * 0.0016 * 8 + 4 * 0.0004 * 16) / 6, b = (2 * 0.0016 * 8 + 4 * 16.0 / 262144 * 8) / 6;
    const double *of_fc1 = sensitivity + m.fc1 * TANDEM_N_PRECISION,
                 *of_head = sensitivity + m.head * TANDEM_N_PRECISION;
    assert_close(of_fc1[TANDEM_PRECISION_INT8], 4 * (6 - 2) * f + 2 * b);
    assert_close(of_fc1[TANDEM_PRECISION_INT8_FULL], of_fc1[TANDEM_PRECISION_INT8]);
    const double sixth = 1.0 / 6 / 16384;
    assert_close(of_fc1[TANDEM_PRECISION_BF16],
                 4 * (6 - 2) * sixth * (3 * 8 * 2 + 4 * 16 * 1) + 2 * sixth * (2 * 8 * 2 + 4 * 8 * -3));
    const double sixth16 = 1.0 / 6 / 262144; /* k = 9 */
    const double of_16 =
        4 * (6 - 2) * sixth16 * (3 * 8 * 2 + 4 * 16 * 1) + 2 * sixth16 * (2 * 8 * 2 + 4 * 8 * -3);
    assert_close(of_fc1[TANDEM_PRECISION_FP16], of_16);
    assert_close(of_fc1[TANDEM_PRECISION_TF32], of_16);
    const double s_v = 5.08 / 14 * 5.08 / 14, s_w = 2.54 / 14 * 2.54 / 14; /* fp8: steps of amax/14; k = 2 */
    assert_close(of_fc1[TANDEM_PRECISION_FP8],
                 4 * (6 - 2) * (3 * s_v * 8 + 4 * s_w * 16) / 6 + 2 * (2 * s_v * 8 + 4 * 16.0 / 16 * 8) / 6);
    assert_true(of_head[TANDEM_PRECISION_BF16] == 0); /* negative as published; cut off */
    assert_true(of_head[TANDEM_PRECISION_INT8] > 0);
    for (int i = 0; i < m.graph->n_op; i++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++)
            if (p == TANDEM_PRECISION_FP32 || (i != m.fc1 && i != m.head))
                assert_true(sensitivity[i * TANDEM_N_PRECISION + p] == 0);
    free(sensitivity);
    close_products(&m);
}

/* --- fisher, by hand ------------------------------------------------------------------------------------ */

/* The magnitude at which int8 rounding has variance v. */
static double amax_of_predictor(double v) { return 127 * sqrt(6 * v); }

/* v_x = 1, v_w = 4, v_g = 9 in int8; mean squares 2, 3, 7/8 */
static const tandem_statistics by_hand = {
    SIZES,      .x_square = 16, .w_square = 48, .g_square = 7, .wgrad_square = 19, .dgrad_square = 10,
    .g2_w2 = 3, .g2_x2 = 5,     .g2_x2_c = 11,  .x2_g2_d = 13,
};

static tandem_statistics numbers_predictor(void)
{
    tandem_statistics s = by_hand;
    s.x_amax = amax_of_predictor(1);
    s.w_amax = amax_of_predictor(4);
    s.g_amax = amax_of_predictor(9);
    return s;
}

static void fisher_by_hand(void **state)
{
    two_products m = open_products();
    m.s[m.fc1] = m.s[m.head] = numbers_predictor(); /* ½ N = 1 */
    m.s[m.head].columns = 2;                        /* mean square of g 7/4 */
    const double rate2 = (double)m.graph->optimizer.rate * (double)m.graph->optimizer.rate;
    double *sensitivity = compute("fisher", m.graph, m.s, TANDEM_F32);
    const double *of_fc1 = sensitivity + m.fc1 * TANDEM_N_PRECISION,
                 *of_head = sensitivity + m.head * TANDEM_N_PRECISION;

    /* fc1: nothing before it has a gradient */
    const double forward = 1 * 3 + 4 * 5 + 4 * 1 * 4 * 7;
    assert_close(of_fc1[TANDEM_PRECISION_INT8], forward + rate2 * 13);
    assert_close(of_fc1[TANDEM_PRECISION_INT8_FULL], forward + rate2 * (9 * 11 + 1 * 13 + 2 * 9 * 1 * 5));
    const double x = bf16_share * 2, w = bf16_share * 3, g = bf16_share * 7 / 8;
    assert_close(of_fc1[TANDEM_PRECISION_BF16],
                 x * 3 + w * 5 + 4 * x * w * 7 + w * 5 + rate2 * (g * 11 + x * 13 + 2 * g * x * 5));

    /* head: its noise goes on to fc1, where a share of 1 costs rate²·7/8·11 */
    const double upstream = rate2 * 7 / 8 * 11;
    const double share = (9 * 2 * 48 + 4 * 4 * 7 + 2 * 4 * 2 * 9 * 4) / 10.0;
    assert_close(of_head[TANDEM_PRECISION_INT8], forward + rate2 * 13);
    assert_close(of_head[TANDEM_PRECISION_INT8_FULL],
                 forward + rate2 * (9 * 11 + 1 * 13 + 2 * 9 * 1 * 5) + share * upstream);
    free(sensitivity);

    /* where the AMP dtype is bf16 the backward pass of int8 rounds to it; x stays as it was saved */
    sensitivity = compute("fisher", m.graph, m.s, TANDEM_BF16);
    const double g_head = bf16_share * 7 / 4;
    const double share16 = (g_head * 2 * 48 + w * 4 * 7 + 2 * 4 * 2 * g_head * w) / 10;
    assert_close(sensitivity[m.head * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8],
                 forward + rate2 * (g_head * 11 + 1 * 13 + 2 * g_head * 1 * 5) + share16 * upstream);
    free(sensitivity);
    close_products(&m);
}

/* Several readers of one tensor dilute the noise of each; AdamW divides by the gradient; a position is a
 * sample. */
static void fisher_in_attention(void **state)
{
    tandem_graph *graph = open_graph("gpt_tiny:depth=1,width=8,heads=2,length=4,vocabulary=16", 3);
    tandem_statistics *s = zeros(graph, sizeof *s);
    for (int i = 0; i < graph->n_op; i++)
        if (tandem_op_is_adjustable(&graph->op[i])) s[i] = numbers_predictor();
    double *sensitivity = compute("fisher", graph, s, TANDEM_F32);
    const double half_n = 2 * 4 / 2.0; /* batch of the statistics × length */
    const double rate = (double)graph->optimizer.rate, rate2 = rate * rate / (19.0 / 16);
    const double own = half_n * rate2 * 7 / 8 * 11, of_table = half_n * rate2 * 7 / 8 * (7 * 2 * 4 / 16.0);
    const double forward = half_n * (1 * 3 + 4 * 5 + 4 * 1 * 4 * 7);
    const double wgrad = half_n * rate2 * (9 * 11 + 1 * 13 + 2 * 9 * 1 * 5);
    const double share = (9 * 2 * 48 + 4 * 4 * 7 + 2 * 4 * 4 * 9 * 4) / 10.0;
    const int q = op_of(graph, "block0.attention.q"), table = op_of(graph, "embedding");
    const int scores = op_of(graph, "block0.attention.scores"), mix = op_of(graph, "block0.attention.mix");

    /* the embedding's output has two readers after its position: the norm, and the residual sum; the norm's
     * has q, k, v */
    const double before_q = of_table / 2;
    assert_close(sensitivity[q * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8_FULL],
                 forward + wgrad + share * before_q / 3);
    assert_close(sensitivity[table * TANDEM_N_PRECISION + TANDEM_PRECISION_BF16],
                 half_n * bf16_share * 3 * 7 + half_n * rate2 * bf16_share * 7 / 8 * (7 * 2 * 4 / 16.0));
    assert_true(sensitivity[table * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8] == 0);

    /* scores = q·kᵀ, four rows a matrix: both gradients go on, each after its own linear and a third of the
     * norm */
    const double after = own + before_q / 3;
    const double first = (9 * 4 * 48 + 4 * 4 * 7 + 2 * 4 * 4 * 9 * 4) / 10.0;
    const double second = (9 * 4 * 16 + 1 * 4 * 7 + 4 * 16 * 9 * 1) / 19.0;
    assert_close(sensitivity[scores * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8_FULL],
                 forward + (first + second) * after);

    /* mix = softmax·v: the range of a softmax is 1, whatever was measured */
    const double v_x = 1 / (127.0 * 127 * 6);
    const double by_range = half_n * (v_x * 3 + 4 * 5 + 4 * v_x * 4 * 7);
    const double second_saved = v_x * 4 * 7 / 19.0; /* int8 with f32 after: only x is rounded */
    assert_close(sensitivity[mix * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8],
                 by_range + second_saved * after);
    free(sensitivity);
    free(s);
    tandem_graph_close(graph);
}

/* --- Laws ----------------------------------------------------------------------------------------------- */

static double uniform(uint64_t seed, uint32_t a, uint32_t b)
{
    const uint32_t counter[4] = {a, b, 5, 6};
    return (double)tandem_philox_uniform(tandem_philox(counter, seed).word[0]);
}

/* Positive numbers over several decades; amax² at least the mean square. */
static tandem_statistics drawn_predictor(uint64_t seed, uint32_t op)
{
    double u[16];
    for (uint32_t k = 0; k < 16; k++) u[k] = pow(10, 6 * uniform(seed, op, k) - 4);
    tandem_statistics s = {.n_batch = 10,
                           .local_batch = 16,
                           .rows = 48,
                           .k = 12,
                           .columns = 20,
                           .x_elements = 576,
                           .w_elements = 240,
                           .x_square = u[0],
                           .w_square = u[1],
                           .g_square = u[2],
                           .wgrad_square = u[3],
                           .dgrad_square = u[4],
                           .g2_w2 = u[5],
                           .g2_x2 = u[6],
                           .g2_x2_c = u[7],
                           .x2_g2_d = u[8]};
    /* 1: a softmax's range counts as its magnitude */
    s.x_amax = fmax(1, (1 + u[9]) * sqrt(s.x_square / 576));
    s.w_amax = fmax(1, (1 + u[10]) * sqrt(s.w_square / 240));
    s.g_amax = (1 + u[11]) * sqrt(s.g_square / 960);
    if (s.x_square > 576) s.x_square = 576;
    if (s.w_square > 240) s.w_square = 240;
    return s;
}

static void check_order_predictor(const tandem_graph *graph, const double *sensitivity, const char *method,
                                  uint64_t seed)
{
    for (int i = 0; i < graph->n_op; i++) {
        const double *h = sensitivity + i * TANDEM_N_PRECISION;
        const unsigned precisions = tandem_op_row_get(graph->op[i].kind)->precisions;
        assert_true(h[TANDEM_PRECISION_FP32] == 0);
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            if (!isfinite(h[p]) || h[p] < 0)
                fail_msg("seed %llu, %s: %g", (unsigned long long)seed, method, h[p]);
            if (!(precisions & 1u << p)) assert_true(h[p] == 0);
        }
        if (!(precisions & 1u << TANDEM_PRECISION_INT8_FULL)) continue;
        assert_true(h[TANDEM_PRECISION_INT8] > 0);
        assert_true(h[TANDEM_PRECISION_TF32] <= h[TANDEM_PRECISION_FP16] || strcmp(method, "fisher") != 0);
        if (h[TANDEM_PRECISION_INT8] > h[TANDEM_PRECISION_INT8_FULL])
            fail_msg("seed %llu, %s, %s: int8 %g, int8_full %g", (unsigned long long)seed, method,
                     graph->op[i].name, h[TANDEM_PRECISION_INT8], h[TANDEM_PRECISION_INT8_FULL]);
    }
}

static void sensitivity_is_ordered_and_grows_with_the_step(void **state)
{
    static const char *const model[] = {"mlp", "resnet20:blocks=1", "vit_tiny:depth=2", "gpt_tiny:depth=2"};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        tandem_graph *graph = open_graph(model[seed % 4], 2);
        tandem_statistics *s = zeros(graph, sizeof *s);
        for (int i = 0; i < graph->n_op; i++) s[i] = drawn_predictor(seed, (uint32_t)i);
        for (int m = 0; tandem_sensitivity_methods[m] && tandem_sensitivity_methods[m]->compute; m++)
            for (int k = 0; k < 3; k++) {
                const tandem_dtype amp_dtype = k == 0 ? TANDEM_F32 : k == 1 ? TANDEM_BF16 : TANDEM_F16;
                const char *method = tandem_sensitivity_methods[m]->name;
                double *sensitivity = compute(method, graph, s, amp_dtype);
                check_order_predictor(graph, sensitivity, method, seed);
                for (int i = 0; i < graph->n_op; i++) s[i].x_amax *= 2, s[i].w_amax *= 2, s[i].g_amax *= 2;
                double *coarser = compute(method, graph, s, amp_dtype);
                for (int i = 0; i < graph->n_op; i++) {
                    s[i].x_amax /= 2, s[i].w_amax /= 2, s[i].g_amax /= 2;
                    const int at = i * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8;
                    assert_true(coarser[at] > sensitivity[at] || sensitivity[at] == 0);
                }
                free(coarser);
                free(sensitivity);
            }
        free(s);
        tandem_graph_close(graph);
    }
}

/* Nothing was seen (all zero): no harm, and no division by zero. */
static void statistics_of_nothing_are_no_sensitivity(void **state)
{
    tandem_graph *graph = open_graph("vit_tiny:depth=1", 2);
    tandem_statistics *s = zeros(graph, sizeof *s);
    for (int m = 0; tandem_sensitivity_methods[m] && tandem_sensitivity_methods[m]->compute; m++) {
        double *sensitivity = compute(tandem_sensitivity_methods[m]->name, graph, s, TANDEM_BF16);
        for (int i = 0; i < graph->n_op * TANDEM_N_PRECISION; i++) assert_true(sensitivity[i] == 0);
        free(sensitivity);
    }
    free(s);
    tandem_graph_close(graph);
}

/* --- The variances, by simulation ----------------------------------------------------------------------- */

enum {
    ROWS = 3,
    K = 5,
    COLUMNS = 4,
    N_X = ROWS * K,
    N_W = K * COLUMNS,
    N_G = ROWS * COLUMNS,
    TRIALS = 100000
};
static const char product_model[] = "mlp:width=4,depth=1,image=5x1x1,classes=2"; /* fc1: x (3, 5), w (5, 4) */

/* Numbers in [−1, 1), and what stochastic rounding to multiples of `step` makes of them. */
static void draw_rounded(float *x, float *rounded, int n, float step, uint32_t trial, uint32_t stream)
{
    for (int i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, trial, stream, 0};
        const tandem_philox_block word = tandem_philox(counter, 2024);
        x[i] = 2 * tandem_philox_uniform(word.word[0]) - 1;
        const float below = floorf(x[i] / step), fraction = x[i] / step - below;
        rounded[i] = step * (below + (tandem_philox_uniform(word.word[1]) < fraction ? 1.0f : 0.0f));
    }
}

/* c (m, n) = a (m, k) · b (k, n); a_step and so on: distances of neighbours along rows and columns of each.
 * */
static double entry(const float *a, const float *b, int k, int a_step, int b_step)
{
    double sum = 0;
    for (int l = 0; l < k; l++) sum += (double)a[l * a_step] * (double)b[l * b_step];
    return sum;
}

typedef struct trial {
    float x[N_X], w[N_W], g[N_G], x_rounded[N_X], w_rounded[N_W], g_rounded[N_G];
} trial;

/* ½ N Σ g² (error of y)² */
static double sensitivity_through_y(const trial *t)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            const double error = entry(t->x_rounded + i * K, t->w_rounded + j, K, 1, COLUMNS) -
                                 entry(t->x + i * K, t->w + j, K, 1, COLUMNS);
            sum += pow((double)t->g[i * COLUMNS + j] * error, 2);
        }
    return sum * ROWS / 2;
}

/* ½ N η² Σ_ij g_ij² Σ_l x_il² (error of dw_lj)² */
static double sensitivity_through_weight(const trial *t, double rate)
{
    double sum = 0;
    for (int l = 0; l < K; l++)
        for (int j = 0; j < COLUMNS; j++) {
            const double error = entry(t->x_rounded + l, t->g_rounded + j, ROWS, K, COLUMNS) -
                                 entry(t->x + l, t->g + j, ROWS, K, COLUMNS);
            for (int i = 0; i < ROWS; i++)
                sum += pow((double)t->g[i * COLUMNS + j] * (double)t->x[i * K + l] * error, 2);
        }
    return sum * ROWS / 2 * rate * rate;
}

static tandem_statistics measure_predictor(const trial *t, float x_step, float w_step, float g_step)
{
    tandem_error error = {0};
    tandem_statistics s = {.local_batch = ROWS,
                           .rows = ROWS,
                           .k = K,
                           .columns = COLUMNS,
                           .x_elements = N_X,
                           .w_elements = N_W,
                           .x_amax = 127 * (double)x_step,
                           .w_amax = 127 * (double)w_step,
                           .g_amax = 127 * (double)g_step};
    require_ok(
        tandem_statistics_add_product(&s, &(tandem_product){ROWS, K, COLUMNS, t->x, t->w, t->g, 0}, &error),
        &error);
    tandem_statistics_finish(&s, 1);
    return s;
}

/* Mean over the trials of what the rounding does less what is predicted of int8_full; they must agree within
 * four standard errors, which must be small enough to decide. */
static void simulate(float rate)
{
    static const float x_step = 1 / 16.0f, w_step = 1 / 8.0f, g_step = 1 / 32.0f;
    tandem_graph *graph = open_graph(product_model, ROWS);
    tandem_statistics *s = zeros(graph, sizeof *s);
    double *sensitivity = zeros(graph, TANDEM_N_PRECISION * sizeof *sensitivity);
    const int fc1 = op_of(graph, "fc1");
    const tandem_sensitivity_method *method = NULL;
    double sum = 0, squares = 0, predicted = 0;
    graph->optimizer.rate = rate;
    require_ok(tandem_sensitivity_find(&method, "fisher", NULL), &(tandem_error){.text = "fisher"});
    for (uint32_t k = 0; k < TRIALS; k++) {
        trial t;
        draw_rounded(t.x, t.x_rounded, N_X, x_step, k, TANDEM_RNG_ACTIVATION);
        draw_rounded(t.w, t.w_rounded, N_W, w_step, k, TANDEM_RNG_WEIGHT);
        draw_rounded(t.g, t.g_rounded, N_G, g_step, k, TANDEM_RNG_GRADIENT);
        s[fc1] = measure_predictor(&t, x_step, w_step, g_step);
        method->compute(sensitivity, graph, s, TANDEM_F32);
        const double expected = sensitivity[fc1 * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8_FULL];
        const double d = sensitivity_through_y(&t) + sensitivity_through_weight(&t, (double)rate) - expected;
        sum += d;
        squares += d * d;
        predicted += expected;
    }
    const double mean = sum / TRIALS, deviation = sqrt((squares / TRIALS - mean * mean) / TRIALS);
    print_message("rate %g: predicted %.5g, simulated %.5g, standard error %.2g\n", (double)rate,
                  predicted / TRIALS, mean + predicted / TRIALS, deviation);
    assert_true(fabs(mean) < 4 * deviation);
    assert_true(deviation < 0.01 * predicted / TRIALS);
    free(sensitivity);
    free(s);
    tandem_graph_close(graph);
}

static void the_variance_of_the_output_is_as_derived(void **state)
{
    simulate(0); /* nothing but the forward pass */
}

static void the_variance_of_the_weight_gradient_is_as_derived(void **state)
{
    simulate(1000); /* nothing beside the backward pass */
}

static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void bf16_rounding_is_a_fixed_share(void **state)
{
    enum { N = 400000 };
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) { /* mantissas even on a logarithmic scale */
        const float x = exp2f((float)uniform(77, i, 1)), error = to_bf16(x) - x;
        const double d = (double)error * (double)error - bf16_share * (double)x * (double)x;
        sum += d;
        squares += d * d;
    }
    const double mean = sum / N, deviation = sqrt(squares / N / N);
    assert_true(fabs(mean) < 4 * deviation);
    assert_true(deviation < 0.005 * bf16_share);
}

/* --- Floats of few bits --------------------------------------------------------------------------------- */

/* To nearest, with steps of 2^(least − mantissa) below 2^least. */
static double to_float(double x, int mantissa, int least)
{
    const int e = fabs(x) > 0 ? ilogb(x) : least;
    const double step = ldexp(1, (e > least ? e : least) - mantissa);
    return step * nearbyint(x / step);
}

static const struct {
    tandem_precision precision;
    int mantissa, least;
    double largest; /* 0: there is no scale */
} float_rows[] = {{TANDEM_PRECISION_TF32, 10, -126, 0},
                  {TANDEM_PRECISION_FP16, 10, -14, 0},
                  {TANDEM_PRECISION_BF16, 7, -126, 0},
                  {TANDEM_PRECISION_FP8, 3, -6, 448}};
enum { N_FLOAT = sizeof float_rows / sizeof *float_rows };

/* The variance that fisher takes rounding of x to have: the harm of an operator whose gradient meets x alone,
 * ½ N = 1. */
static double assumed_variance(tandem_precision precision, double amax, double mean_square)
{
    two_products m = open_products();
    m.s[m.fc1] = (tandem_statistics){SIZES, .x_amax = amax, .x_square = 8 * mean_square, .g2_w2 = 1};
    double *sensitivity = compute("fisher", m.graph, m.s, TANDEM_F32);
    const double variance = sensitivity[m.fc1 * TANDEM_N_PRECISION + (int)precision];
    free(sensitivity);
    close_products(&m);
    return variance;
}

/* Mean squared error of numbers between 2^from and 2^to, even on a logarithmic scale (even: plainly, from 0
 * on), over what is assumed. One number is `amax`, so that the scale is known. */
static double error_over_assumed(int row, double from, double to, int even, double amax)
{
    enum { N = 200000 };
    const double scale = float_rows[row].largest > 0 ? float_rows[row].largest / amax : 1;
    double error = 0, square = 0;
    for (uint32_t i = 0; i < N; i++) {
        const double u = uniform(91, i, (uint32_t)row),
                     x = even ? u * exp2(to) : exp2(from + u * (to - from));
        const double rounded = to_float(x * scale, float_rows[row].mantissa, float_rows[row].least) / scale;
        error += (rounded - x) * (rounded - x);
        square += x * x;
    }
    return error / N / assumed_variance(float_rows[row].precision, amax, square / N);
}

static void float_rounding_is_as_derived(void **state)
{
    for (int row = 0; row < N_FLOAT; row++) { /* far above the least numbers: a share of the mean square */
        /* whole binades */
        const double whole = float_rows[row].largest > 0 ? log2(256 / float_rows[row].largest) : 0;
        const double ratio = error_over_assumed(row, whole - 3, whole, 0, 1);
        if (ratio < 0.97 || ratio > 1.01)
            fail_msg("%s: the error is %g of what is assumed",
                     tandem_precision_get(float_rows[row].precision)->name, ratio);
    }
    static const struct {
        int row;
        double to, amax;
    } small_numbers[] = {{1, -21, 1}, {3, -7, 448}, {3, -8, 224}};
    /* some steps of the least only */
    for (size_t k = 0; k < sizeof small_numbers / sizeof *small_numbers; k++) {
        const double ratio =
            error_over_assumed(small_numbers[k].row, 0, small_numbers[k].to, 1, small_numbers[k].amax);
        if (ratio < 0.9 || ratio > 1.05) fail_msg("case %zu: the error is %g of what is assumed", k, ratio);
    }
    /* below half a step all of it is lost, no more */
    const double lost = error_over_assumed(1, -34, -26, 0, 1);
    assert_true(lost > 0.999 && lost < 1.001);
}

/* fc1 alone, with a gradient as large as that of the whole model, and head's, which is `times` as large. */
static double sensitivity_of_gradients(tandem_precision precision, tandem_dtype amp_dtype, double times)
{
    two_products m = open_products();
    m.s[m.fc1] = (tandem_statistics){SIZES, .g_amax = 1e-9, .g_square = 8e-18, .g2_x2_c = 1};
    m.s[m.head].g_amax = 1e-9 * times;
    double *sensitivity = compute("fisher", m.graph, m.s, amp_dtype);
    /* y is rounded, too */
    const double result = precision == TANDEM_PRECISION_FP16 ? ldexp(1, -48) / 12 * 8e-18 : 0;
    const double variance = (sensitivity[m.fc1 * TANDEM_N_PRECISION + (int)precision] - result) /
                            ((double)m.graph->optimizer.rate * (double)m.graph->optimizer.rate);
    free(sensitivity);
    close_products(&m);
    return variance;
}

/* The scale of the loss is as large as the largest gradient allows: 2^45 for 1e-9, of which 2^46 is 70369. */
static void gradients_in_f16_are_scaled_with_the_loss(void **state)
{
    const double ms = 1e-18, share = 0.69314718055994531 / 18 / (1 << 20);
    const double step = ldexp(1, -24 - 45), coarse = ldexp(1, -24 - 6);
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_FP16, TANDEM_F32, 1),
                 share * ms + step * step / 12);
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_FP16, TANDEM_F32, 1e12),
                 share * ms + coarse * coarse / 12);
    /* 2^-4: all of fc1's are lost */
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_FP16, TANDEM_F32, 1e15), ms);
    /* as the AMP dtype of int8; tf32 knows no scale, nor does fp8, which has its own */
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_INT8, TANDEM_F16, 1),
                 share * ms + step * step / 12);
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_TF32, TANDEM_F32, 1e12), share * ms);
    const double e5m2 = ldexp(1, -16) * 1e-9 / 57344;
    assert_close(sensitivity_of_gradients(TANDEM_PRECISION_FP8, TANDEM_F32, 1e12),
                 0.69314718055994531 / 18 / 16 * ms + e5m2 * e5m2 / 12);
}

/* What does not fit f16 is lost; bf16 and fp8 hold it. */
static void operands_beyond_f16_are_harmful(void **state)
{
    const double inside = assumed_variance(TANDEM_PRECISION_FP16, 65504, 100),
                 beyond = assumed_variance(TANDEM_PRECISION_FP16, 65600, 100);
    assert_true(inside < 1e-3);
    assert_close(beyond, 65600.0 * 65600.0);
    assert_true(assumed_variance(TANDEM_PRECISION_BF16, 65600, 100) < 1e-3);
    assert_true(assumed_variance(TANDEM_PRECISION_FP8, 65600, 100) <= 100);
}

/* --- From the store ------------------------------------------------------------------------------------- */

static void sensitivities_come_from_the_statistics_in_the_store(void **state)
{
    char folder[] = "/tmp/tandem-predictor-XXXXXX", path[64], side[80];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/store.db", folder);
    two_products m = open_products();
    double *sensitivity = zeros(m.graph, TANDEM_N_PRECISION * sizeof *sensitivity);
    tandem_store *store = NULL;
    tandem_error error = {0};
    m.s[m.fc1] = m.s[m.head] = numbers_predictor();
    sensitivity[3] = -7;
    require_ok(tandem_store_open(&store, path, TANDEM_STORE_WRITE, &error), &error);
    assert_int_equal(
        tandem_sensitivity_load(sensitivity, store, m.graph, "fisher", NULL, NULL, TANDEM_F32, ~0u, &error),
        TANDEM_MISSING);
    require_ok(tandem_store_put_statistics(store, m.graph, "a", m.fc1, &m.s[m.fc1], &error), &error);
    assert_int_equal(
        tandem_sensitivity_load(sensitivity, store, m.graph, "fisher", NULL, NULL, TANDEM_F32, ~0u, &error),
        TANDEM_MISSING);
    assert_non_null(strstr(error.text, "'head'"));
    assert_non_null(strstr(error.text, "`tandem sensitivity --model mlp"));
    require_ok(tandem_store_put_statistics(store, m.graph, "a", m.head, &m.s[m.head], &error), &error);
    assert_int_equal(
        tandem_sensitivity_load(sensitivity, store, m.graph, "nobody", NULL, NULL, TANDEM_F32, ~0u, &error),
        TANDEM_UNKNOWN_NAME);
    assert_true(sensitivity[3] == -7); /* unchanged so far */
    for (int k = 0; tandem_sensitivity_methods[k]->compute; k++) {
        const char *method = tandem_sensitivity_methods[k]->name;
        double *expected = compute(method, m.graph, m.s, TANDEM_BF16);
        require_ok(tandem_sensitivity_load(sensitivity, store, m.graph, method, NULL, NULL, TANDEM_BF16, ~0u,
                                           &error),
                   &error);
        for (int i = 0; i < m.graph->n_op * TANDEM_N_PRECISION; i++)
            assert_close(sensitivity[i], expected[i]);
        assert_true(sensitivity[m.fc1 * TANDEM_N_PRECISION + TANDEM_PRECISION_INT8] > 0);
        /* noise of the exchange, ½ N η² φ wgrad_square/w_elements · g2_x2, in every precision */
        const tandem_sensitivity_step step = {.global_batch = 2, .n_micro = 1, .gradient_noise = 0.5};
        const double rate2 = (double)m.graph->optimizer.rate * (double)m.graph->optimizer.rate,
                     more = strcmp(method, "fisher") == 0 ? rate2 * 0.5 * 19 / 16 * 5 : 0;
        require_ok(tandem_sensitivity_load(sensitivity, store, m.graph, method, NULL, &step, TANDEM_BF16, ~0u,
                                           &error),
                   &error);
        for (int i = 0; i < m.graph->n_op * TANDEM_N_PRECISION; i++) {
            const int op = i / TANDEM_N_PRECISION;
            assert_close(sensitivity[i], expected[i] + (op == m.fc1 || op == m.head ? more : 0));
        }
        free(expected);
    }
    tandem_store_close(store);
    static const char *const suffix[] = {"", "-wal", "-shm"};
    for (int k = 0; k < 3; k++) {
        (void)snprintf(side, sizeof side, "%s%s", path, suffix[k]);
        (void)unlink(side);
    }
    assert_int_equal(rmdir(folder), 0);
    free(sensitivity);
    close_products(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_are_found_by_name),
        cmocka_unit_test(qsync_is_as_published),
        cmocka_unit_test(fisher_by_hand),
        cmocka_unit_test(fisher_in_attention),
        cmocka_unit_test(sensitivity_is_ordered_and_grows_with_the_step),
        cmocka_unit_test(statistics_of_nothing_are_no_sensitivity),
        cmocka_unit_test(the_variance_of_the_output_is_as_derived),
        cmocka_unit_test(the_variance_of_the_weight_gradient_is_as_derived),
        cmocka_unit_test(bf16_rounding_is_a_fixed_share),
        cmocka_unit_test(float_rounding_is_as_derived),
        cmocka_unit_test(gradients_in_f16_are_scaled_with_the_loss),
        cmocka_unit_test(operands_beyond_f16_are_harmful),
        cmocka_unit_test(sensitivities_come_from_the_statistics_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
