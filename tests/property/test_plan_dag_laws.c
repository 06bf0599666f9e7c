/* folder: allocator */
/* Laws of the plan DAG of a class, over random graphs and the zoo, with all costs and with some missing: its
 * paths are the plans that can be replayed, one path per plan; what lies on a path is what the resolver makes
 * of the plan, each task once; its bytes are those that are alive while the loss is computed, so never more
 * than the arena holds. */
#include "allocator/bound/plan_dag.h"
#include "tests/support/costed_cluster.h"
#include "tests/support/random_graph.h"
#include "tests/support/tandem_test.h"

enum { RANDOM_GRAPHS = 180, PLANS = 40, MAX_ENUMERATED = 5000, BATCH_OF_ZOO = 4 };
static const uint64_t seed = 20241;

/* On one machine alone, beside others of its kind, beside another class; with all precisions, with fp16 as
 * the wider one; with attention as one task, of fp32 too. */
static const char *const clusters[] = {"cpu:avx512_bf16",
                                       "2*cpu:avx2_vnni",
                                       "cpu:avx512_bf16 + cpu:avx2_vnni",
                                       "cpu:avx512_amx",
                                       "cpu:avx512_amx + cpu:avx2_vnni",
                                       "cuda:0",
                                       "t4",
                                       "b200"};
enum { N_CLUSTER = sizeof clusters / sizeof *clusters };

static void *array_plan_dag(size_t n, size_t size)
{
    void *a = calloc(n ? n : 1, size);
    assert_non_null(a);
    return a;
}

/* What is not there: one cost in fifty, or one cast in four. */
static uint64_t missing_seed;

static int is_measured_mostly(const tandem_cost_key *key)
{
    char text[2 * TANDEM_MAX_SIGNATURE];
    tandem_cost_key_print(text, sizeof text, key);
    return draw(missing_seed, text, 30) > 1.0 / 50;
}

static int is_measured_unless_cast(const tandem_cost_key *key)
{
    char text[2 * TANDEM_MAX_SIGNATURE];
    tandem_cost_key_print(text, sizeof text, key);
    return key->kind != TANDEM_COST_CAST || draw(missing_seed, text, 30) > 1.0 / 4;
}
static costed_filter *const filters[] = {NULL, is_measured_mostly, is_measured_unless_cast};
enum { N_FILTER = sizeof filters / sizeof *filters };

/* --- The class whose plan DAG is checked --------------------------------------------------------------- */

typedef struct subject {
    const tandem_replayer *replayer;
    const tandem_graph *graph;
    const int64_t *sensitivity;
    int c, n_layer;
    unsigned *allowed;
    tandem_plan_dag *plan_dag; /* NULL: no plan can be replayed */
    tandem_step *step;
    int *op;      /* [n_layer] the adjustable operators */
    int *variant; /* [n_task] on the path; −1 = not on it */
    /* bytes of the path as a part of the arena's, over the plans looked at */
    double tightness_sum, tightness_min;
    int n_plan, n_path;
} subject;

static void draw_allowed(subject *s, chance *c, int all)
{
    const unsigned device = tandem_replayer_cluster(s->replayer)->classes[s->c].device.precisions;
    for (int i = 0; i < s->graph->n_op; i++) {
        const unsigned precisions = tandem_op_row_get(s->graph->op[i].kind)->precisions & device;
        s->allowed[i] = precisions;
        while (!all && precisions && draw_below(c, 4) == 0) {
            s->allowed[i] = precisions & draw_below(c, 1u << TANDEM_N_PRECISION);
            if (s->allowed[i]) break;
            s->allowed[i] = precisions;
        }
    }
}

static void open_subject_plan_dag(subject *s, const costed_cluster *p, int c, chance *chances, int all)
{
    tandem_error error = {0};
    const tandem_step *step = tandem_replayer_step(p->replayer, c);
    *s = (subject){.replayer = p->replayer,
                   .graph = p->graph[c],
                   .sensitivity = p->sensitivity[c],
                   .c = c,
                   .tightness_min = 1};
    s->allowed = array_plan_dag((size_t)s->graph->n_op, sizeof *s->allowed);
    s->op = array_plan_dag((size_t)s->graph->n_op, sizeof *s->op);
    s->variant = array_plan_dag((size_t)step->n_task, sizeof *s->variant);
    require_ok(tandem_step_open_with(&s->step, s->graph, step->amp_dtype, step->bucket_bytes, &step->options,
                                     &error),
               &error);
    assert_int_equal(s->step->n_task, step->n_task);
    for (int i = 0; i < s->graph->n_op; i++)
        if (tandem_op_row_get(s->graph->op[i].kind)->precisions) s->op[s->n_layer++] = i;
    draw_allowed(s, chances, all);
    const tandem_status status =
        tandem_plan_dag_open(&s->plan_dag, p->replayer, c, s->allowed, s->sensitivity, &error);
    if (status != TANDEM_MISSING) require_ok(status, &error);
    if (status != TANDEM_OK) assert_non_null(strstr(error.text, "has not been measured"));
}

static void close_subject_plan_dag(subject *s)
{
    tandem_plan_dag_close(s->plan_dag);
    tandem_step_close(s->step);
    free(s->variant);
    free(s->op);
    free(s->allowed);
}

/* --- Structure ------------------------------------------------------------------------------------------ */

static int n_state(const tandem_plan_dag *plan_dag) { return plan_dag->state_start[plan_dag->n_layer + 1]; }

static void check_task_sets(const tandem_plan_dag *plan_dag)
{
    int *users = array_plan_dag((size_t)plan_dag->n_task_set, sizeof *users);
    for (int a = 0; a < plan_dag->arc_start[n_state(plan_dag)]; a++) {
        assert_in_range(plan_dag->arc[a].task_set, 1, plan_dag->n_task_set - 1); /* no arc has task set 0 */
        users[plan_dag->arc[a].task_set]++;
    }
    for (int b = 0; b < plan_dag->n_task_set; b++) {
        const int n = plan_dag->task_set_start[b + 1] - plan_dag->task_set_start[b];
        const tandem_task_variant *entry = &plan_dag->task_variant[plan_dag->task_set_start[b]];
        assert_true(b == 0 || users[b] > 0);
        assert_true(n >= 0);
        for (int k = 1; b > 0 && k < n; k++) assert_true(entry[k - 1].task < entry[k].task);
        /* equal content is shared; it may be empty but for bytes */
        for (int other = 1; b > 0 && other < b; other++) {
            const int n_other = plan_dag->task_set_start[other + 1] - plan_dag->task_set_start[other];
            if (n == 0 || n != n_other || plan_dag->bytes[b] != plan_dag->bytes[other]) continue;
            assert_memory_not_equal(&plan_dag->task_variant[plan_dag->task_set_start[other]], entry,
                                    (size_t)n * sizeof *entry);
        }
    }
    free(users);
}

/* What all arcs of a layer add lies in task set 0. */
static void check_layer_task_sets(const subject *s, int l)
{
    const tandem_plan_dag *plan_dag = s->plan_dag;
    char *seen = array_plan_dag((size_t)plan_dag->n_task_set, 1);
    int *n_user = array_plan_dag((size_t)s->step->n_task * TANDEM_MAX_VARIANT, sizeof *n_user), n = 0;
    for (int a = plan_dag->arc_start[plan_dag->state_start[l]];
         a < plan_dag->arc_start[plan_dag->state_start[l + 1]]; a++) {
        const int b = plan_dag->arc[a].task_set;
        if (seen[b]) continue;
        seen[b] = 1;
        n++;
        for (int k = plan_dag->task_set_start[b]; k < plan_dag->task_set_start[b + 1]; k++)
            n_user[plan_dag->task_variant[k].task * TANDEM_MAX_VARIANT + plan_dag->task_variant[k].variant]++;
    }
    for (int k = 0; k < s->step->n_task * TANDEM_MAX_VARIANT; k++) assert_true(n_user[k] < n);
    free(n_user);
    free(seen);
}

static void check_structure(const subject *s)
{
    const tandem_plan_dag *plan_dag = s->plan_dag;
    assert_int_equal(plan_dag->n_layer, s->n_layer);
    assert_int_equal(plan_dag->state_start[0], 0);
    assert_int_equal(plan_dag->state_start[s->n_layer + 1], plan_dag->state_start[s->n_layer] + 1);
    if (s->n_layer > 0) assert_int_equal(plan_dag->state_start[1], 1);
    char *entered = array_plan_dag((size_t)n_state(plan_dag), 1);
    entered[0] = 1;
    for (int l = 0; l < s->n_layer; l++) {
        assert_int_equal(plan_dag->op[l], s->op[l]);
        check_layer_task_sets(s, l);
        for (int state = plan_dag->state_start[l]; state < plan_dag->state_start[l + 1]; state++) {
            const int first = plan_dag->arc_start[state], end = plan_dag->arc_start[state + 1];
            assert_true(entered[state] && end > first); /* it is on a path */
            for (int a = first; a < end; a++) {
                const tandem_arc *arc = &plan_dag->arc[a];
                assert_in_range(arc->to, plan_dag->state_start[l + 1], plan_dag->state_start[l + 2] - 1);
                assert_true(a == first || arc[-1].choice < arc->choice);
                assert_true(s->allowed[s->op[l]] & 1u << arc->choice);
                assert_true(arc->sensitivity ==
                            (double)s->sensitivity[s->op[l] * TANDEM_N_PRECISION + arc->choice]);
                entered[arc->to] = 1;
            }
        }
    }
    assert_int_equal(plan_dag->arc_start[n_state(plan_dag) - 1], plan_dag->arc_start[n_state(plan_dag)]);
    free(entered);
    check_task_sets(plan_dag);
}

/* --- One plan ------------------------------------------------------------------------------------------- */

/* Whether a replay has all the times it needs. */
static int can_be_replayed(const subject *s)
{
    tandem_contention own, other;
    tandem_replayer_contention(s->replayer, s->c, &own);
    int has_co_runner = own.is_always_contended;
    for (int c = 0; c < tandem_replayer_cluster(s->replayer)->n_class; c++) {
        tandem_replayer_contention(s->replayer, c, &other);
        if (c != s->c && own.is_on_shared_node && other.is_on_shared_node) has_co_runner = 1;
    }
    for (int t = 0; t < s->step->n_task; t++) {
        const tandem_task *task = &s->step->task[t];
        if (!task->active || task->stream != TANDEM_STREAM_COMPUTE) continue;
        if (!own.is_always_contended &&
            tandem_replayer_variant_ns(s->replayer, s->c, t, task->variant, 0) < 0)
            return 0;
        if (has_co_runner && tandem_replayer_variant_ns(s->replayer, s->c, t, task->variant, 1) < 0) return 0;
    }
    return 1;
}

/* Of values in the arena. */
static uint64_t alive_at(const tandem_step *step, const int64_t *offset, int t)
{
    uint64_t bytes = 0;
    for (int v = 0; v < step->n_value; v++) {
        const tandem_value *value = &step->value[v];
        if (offset[v] >= 0 && value->first <= t && t <= value->last) bytes += (value->bytes + 63) / 64 * 64;
    }
    return bytes;
}

static void take_plan_dag(subject *s, int task_set)
{
    for (int k = s->plan_dag->task_set_start[task_set]; k < s->plan_dag->task_set_start[task_set + 1]; k++) {
        const tandem_task_variant *entry = &s->plan_dag->task_variant[k];
        assert_in_range(entry->task, 0, s->step->n_task - 1);
        assert_int_equal(s->variant[entry->task], -1); /* once */
        s->variant[entry->task] = entry->variant;
    }
}

/* Follows the plan; returns whether there is such a path. */
static int follow(subject *s, const tandem_precision *precision, uint64_t *bytes)
{
    if (!s->plan_dag) return 0;
    int state = 0;
    for (int t = 0; t < s->step->n_task; t++) s->variant[t] = -1;
    take_plan_dag(s, 0);
    *bytes = s->plan_dag->bytes[0];
    for (int l = 0; l < s->n_layer; l++) {
        int a = s->plan_dag->arc_start[state];
        const int end = s->plan_dag->arc_start[state + 1];
        while (a < end && s->plan_dag->arc[a].choice != (int)precision[s->op[l]]) a++;
        if (a == end) return 0;
        take_plan_dag(s, s->plan_dag->arc[a].task_set);
        *bytes += s->plan_dag->bytes[s->plan_dag->arc[a].task_set];
        state = s->plan_dag->arc[a].to;
    }
    return 1;
}

/* Returns whether the plan has a path. */
static int check_plan_plan_dag(subject *s, const tandem_precision *precision)
{
    tandem_memory memory;
    uint64_t bytes = 0;
    for (int l = 0; l < s->n_layer; l++) tandem_step_set(s->step, s->op[l], precision[s->op[l]]);
    tandem_step_resolve(s->step);
    const int exists = follow(s, precision, &bytes);
    assert_int_equal(exists, can_be_replayed(s));
    s->n_plan++;
    if (!exists) return 0;
    s->n_path++;
    for (int t = 0; t < s->step->n_task; t++) {
        const tandem_task *task = &s->step->task[t];
        const int is_term = task->active && task->stream == TANDEM_STREAM_COMPUTE;
        if (s->variant[t] != (is_term ? task->variant : -1))
            fail_msg("task %d (%s of %s): variant %d on the path, %d resolved (active %d)", t,
                     tandem_task_kind_name(task->kind),
                     task->op >= 0 ? s->graph->op[task->op].name : "a bucket", s->variant[t], task->variant,
                     task->active);
    }
    int64_t *offset = calloc((size_t)s->step->n_value, sizeof *offset);
    assert_non_null(offset);
    assert_int_equal(tandem_memory_plan(&memory, s->step, NULL, offset, NULL, NULL), TANDEM_OK);
    int loss_task = 0;
    while (s->step->task[loss_task].kind != TANDEM_TASK_FORWARD ||
           s->step->task[loss_task].op != s->graph->loss)
        loss_task++;
    assert_true(bytes == alive_at(s->step, offset, loss_task));
    free(offset);
    assert_true(bytes <= memory.arena_live);
    const double tightness = (double)bytes / (double)memory.arena_live;
    s->tightness_sum += tightness;
    if (tightness < s->tightness_min) s->tightness_min = tightness;
    return 1;
}

static void draw_precisions(const subject *s, chance *c, tandem_precision *precision)
{
    const uint32_t alike = draw_below(c, TANDEM_N_PRECISION), change = 1 + draw_below(c, 4);
    for (int l = 0; l < s->n_layer; l++) {
        const unsigned allowed = s->allowed[s->op[l]];
        uint32_t p = alike;
        if (draw_below(c, change) == 0) p = draw_below(c, TANDEM_N_PRECISION);
        while (!(allowed & 1u << p)) p = (p + 1) % TANDEM_N_PRECISION;
        precision[s->op[l]] = (tandem_precision)p;
    }
}

/* --- All plans ------------------------------------------------------------------------------------------ */

static double count_plans(const subject *s)
{
    double n = 1;
    for (int l = 0; l < s->n_layer; l++) n *= (double)__builtin_popcount(s->allowed[s->op[l]]);
    return n;
}

static double count_paths(const tandem_plan_dag *plan_dag)
{
    double *paths = array_plan_dag((size_t)n_state(plan_dag), sizeof *paths);
    paths[0] = 1;
    for (int state = 0; state < n_state(plan_dag); state++)
        for (int a = plan_dag->arc_start[state]; a < plan_dag->arc_start[state + 1]; a++)
            paths[plan_dag->arc[a].to] += paths[state];
    const double all = paths[n_state(plan_dag) - 1];
    free(paths);
    return all;
}

/* The next plan in order of its choices; 0 = there is none. */
static int advance(const subject *s, tandem_precision *precision)
{
    for (int l = s->n_layer - 1; l >= 0; l--) {
        const unsigned allowed = s->allowed[s->op[l]];
        unsigned p = precision[s->op[l]] + 1;
        while (p < TANDEM_N_PRECISION && !(allowed & 1u << p)) p++;
        if (p < TANDEM_N_PRECISION) {
            precision[s->op[l]] = (tandem_precision)p;
            return 1;
        }
        precision[s->op[l]] = (tandem_precision)__builtin_ctz(allowed);
    }
    return 0;
}

static void check_all_plans(subject *s, tandem_precision *precision)
{
    double n = 0;
    for (int l = 0; l < s->n_layer; l++)
        precision[s->op[l]] = (tandem_precision)__builtin_ctz(s->allowed[s->op[l]]);
    do n += check_plan_plan_dag(s, precision);
    while (advance(s, precision));
    assert_true(n == (s->plan_dag ? count_paths(s->plan_dag) : 0));
}

static void check_class_plan_dag(subject *s, chance *c)
{
    tandem_precision *precision = array_plan_dag((size_t)s->graph->n_op, sizeof *precision);
    if (s->plan_dag) check_structure(s);
    if (count_plans(s) <= MAX_ENUMERATED)
        check_all_plans(s, precision);
    else
        for (int k = 0; k < PLANS; k++) {
            draw_precisions(s, c, precision);
            check_plan_plan_dag(s, precision);
        }
    free(precision);
}

static int max_states(const tandem_plan_dag *plan_dag)
{
    int max = 1;
    for (int l = 0; l < plan_dag->n_layer; l++) {
        const int n = plan_dag->state_start[l + 1] - plan_dag->state_start[l];
        if (n > max) max = n;
    }
    return max;
}

static void print_subject(const subject *s)
{
    print_message("%s on %s: %d layers, %d states (at most %d a layer), %d arcs, %d task sets, %d of %d "
                  "plans "
                  "have paths, "
                  "bytes/arena %.3f (least %.3f)\n",
                  s->graph->model, tandem_replayer_cluster(s->replayer)->classes[s->c].device.name,
                  s->n_layer, n_state(s->plan_dag), max_states(s->plan_dag),
                  s->plan_dag->arc_start[n_state(s->plan_dag)], s->plan_dag->n_task_set, s->n_path, s->n_plan,
                  s->tightness_sum / s->n_path, s->tightness_min);
}

/* One batch a step, micro-steps, recomputation by different cuts, both. */
static const tandem_step_options variants[] = {{.n_micro = 0},
                                               {.n_micro = 3},
                                               {.n_recompute_segment = TANDEM_RECOMPUTE_SQRT},
                                               {.n_recompute_segment = 4, .with_norm = 1},
                                               {.n_micro = 2, .n_recompute_segment = 3}};
enum { N_VARIANT = sizeof variants / sizeof *variants };

static void check_model_plan_dag(const char *model, const char *cluster, uint32_t series,
                                 tandem_step_options variant)
{
    costed_cluster p;
    tandem_error error = {0};
    chance c = {.seed = seed, .series = series};
    require_ok(costed_cluster_open_with(&p, model, cluster, BATCH_OF_ZOO,
                                        &(tandem_replayer_options){.step = variant}, seed, NULL, &error),
               &error);
    for (int k = 0; k < p.cluster.n_class; k++) {
        subject s;
        open_subject_plan_dag(&s, &p, k, &c, 1);
        assert_non_null(s.plan_dag);
        check_class_plan_dag(&s, &c);
        print_subject(&s);
        assert_int_equal(s.n_path, s.n_plan);
        close_subject_plan_dag(&s);
    }
    costed_cluster_close(&p);
}

static void check_zoo(tandem_step_options variant)
{
    for (int m = 0; m < tandem_model_count(); m++)
        check_model_plan_dag(tandem_model_get(m)->name, clusters[2], (uint32_t)m, variant);
}

/* Whether a plan's attention is one task depends on two choices. */
static void laws_hold_where_attention_is_one_task(void **state)
{
    static const char *const devices[] = {"cuda:0", "cpu:avx512_amx"};
    for (uint32_t d = 0; d < 2; d++) {
        check_model_plan_dag("gpt_tiny:dropout=0.1", devices[d], 100 + 2 * d, variants[0]);
        check_model_plan_dag("vit_tiny", devices[d], 101 + 2 * d, variants[N_VARIANT - 1]);
    }
}

static void laws_hold_on_the_zoo_plan_dag(void **state) { check_zoo(variants[0]); }

static void laws_hold_on_the_zoo_with_micro_steps_and_segments(void **state)
{
    check_zoo(variants[N_VARIANT - 1]);
}

static void laws_hold_on_random_graphs_plan_dag(void **state)
{
    int n_segmented = 0;
    int n_plan_dag = 0, n_path = 0, n_plan = 0, max = 0;
    double tightness = 0, min = 1;
    print_message("random graphs: seed %llu, series 1000 … %d\n", (unsigned long long)seed,
                  1000 + RANDOM_GRAPHS - 1);
    for (int g = 0; g < RANDOM_GRAPHS; g++) {
        costed_cluster p;
        tandem_error error = {0};
        chance c = {.seed = seed, .series = 1000 + (uint32_t)g}, again = c;
        tandem_graph *const graph[2] = {random_graph(&c), random_graph(&again)};
        missing_seed = seed + (uint64_t)g;
        require_ok(costed_cluster_of_with(&p, graph, clusters[g % N_CLUSTER],
                                          &(tandem_replayer_options){.step = variants[g % N_VARIANT]},
                                          seed + (uint64_t)g, filters[g / N_CLUSTER % N_FILTER], &error),
                   &error);
        subject s;
        open_subject_plan_dag(&s, &p, (int)draw_below(&c, (uint32_t)p.cluster.n_class), &c, g % 4 < 2);
        check_class_plan_dag(&s, &c);
        n_plan_dag += s.plan_dag != NULL;
        n_segmented += s.plan_dag && s.step->n_recompute_segment > 1;
        n_path += s.n_path;
        n_plan += s.n_plan;
        tightness += s.tightness_sum;
        if (s.tightness_min < min) min = s.tightness_min;
        if (s.plan_dag && max_states(s.plan_dag) > max) max = max_states(s.plan_dag);
        close_subject_plan_dag(&s);
        costed_cluster_close(&p);
    }
    print_message("%d plan DAGs, %d of %d plans have paths, at most %d states a layer, bytes/arena %.3f "
                  "(least "
                  "%.3f)\n",
                  n_plan_dag, n_path, n_plan, max, tightness / n_path, min);
    print_message("%d of them with segments\n", n_segmented);
    assert_true(n_segmented > RANDOM_GRAPHS / 8);
    assert_true(n_plan_dag > RANDOM_GRAPHS / 2 && n_path > n_plan / 4 && n_path < n_plan);
}

/* --- A frontier wider than a word ----------------------------------------------------------------------- */

enum { N_BRANCH = 90, N_FREE = 4 };
static char bound_signature[TANDEM_MAX_SIGNATURE]; /* operators of this one are measured in bf16 only */

static int is_measured_in_bf16(const tandem_cost_key *key)
{
    return key->kind != TANDEM_COST_OP || strcmp(key->signature, bound_signature) != 0 ||
           strcmp(key->precision, "bf16") == 0;
}

/* Many products of one tensor, all of them open until they are added up; few have a choice. */
static tandem_graph *wide_graph(void)
{
    tandem_builder *b = NULL;
    tandem_graph *graph = NULL;
    tandem_error error = {0};
    static const int64_t shape[3] = {BATCH, ROWS, WIDTH}, flat[2] = {BATCH, ROWS * WIDTH};
    char name[32];
    int branch[N_BRANCH];
    require_ok(tandem_builder_open(&b, BATCH, &error), &error);
    const int x =
        tandem_build_reshape(b, "in", tandem_build_images(b, "image", ROWS, 2, WIDTH / 2), 3, shape);
    const int labels = tandem_build_labels(b, "label", 1);
    const int y = tandem_build_gelu(b, "gelu", tandem_build_linear(b, "wide", x, 2 * WIDTH, 0.1f));
    for (int k = 0; k < N_BRANCH; k++) {
        const int is_free = k % (N_BRANCH / N_FREE) == 1;
        (void)snprintf(name, sizeof name, "%s%d", is_free ? "free" : "bound", k);
        branch[k] = tandem_build_linear(b, name, is_free ? y : x, WIDTH, 0.1f);
    }
    int sum = branch[N_BRANCH - 1];
    for (int k = N_BRANCH - 2; k >= 0; k--) {
        (void)snprintf(name, sizeof name, "sum%d", k);
        sum = tandem_build_add(b, name, sum, branch[k]);
    }
    sum = tandem_build_linear(b, "head", tandem_build_reshape(b, "flatten", sum, 2, flat), 10, 0.1f);
    tandem_build_cross_entropy(b, "loss", sum, labels);
    const tandem_optimizer_options options = {.kind = TANDEM_ADAMW};
    require_ok(tandem_builder_finish(b, "wide", &options, &graph, &error), &error);
    tandem_builder_close(b);
    return graph;
}

static void wide_frontiers_take_more_words(void **state)
{
    costed_cluster p;
    tandem_error error = {0};
    chance c = {.seed = seed, .series = 1};
    tandem_graph *const graph[2] = {wide_graph(), NULL};
    int bound = -1;
    require_ok(tandem_graph_find(&bound, graph[0], "bound0", &error), &error);
    (void)snprintf(bound_signature, sizeof bound_signature, "%s", graph[0]->op[bound].signature);
    require_ok(costed_cluster_of(&p, graph, clusters[0], seed, is_measured_in_bf16, &error), &error);
    subject s;
    open_subject_plan_dag(&s, &p, 0, &c, 1);
    assert_non_null(s.plan_dag);
    check_structure(&s);
    tandem_precision *precision = array_plan_dag((size_t)s.graph->n_op, sizeof *precision);
    for (int k = 0; k < PLANS; k++) {
        draw_precisions(&s, &c, precision);
        for (int i = 0; i < s.graph->n_op; i++)
            if (strcmp(s.graph->op[i].signature, bound_signature) == 0) precision[i] = TANDEM_PRECISION_BF16;
        assert_true(check_plan_plan_dag(&s, precision));
        precision[bound] = TANDEM_PRECISION_INT8;
        assert_false(check_plan_plan_dag(&s, precision));
    }
    print_subject(&s);
    free(precision);
    close_subject_plan_dag(&s);
    costed_cluster_close(&p);
}

/* … and of a graph that leaves open more than can be gone through it says so, instead of going on for ever.
 * */
static void what_cannot_be_gone_through_is_said(void **state)
{
    costed_cluster p;
    tandem_error error = {0};
    tandem_graph *const graph[2] = {wide_graph(), NULL};
    require_ok(costed_cluster_of(&p, graph, clusters[0], seed, NULL, &error), &error);
    unsigned *allowed = array_plan_dag((size_t)graph[0]->n_op, sizeof *allowed);
    for (int i = 0; i < graph[0]->n_op; i++) allowed[i] = tandem_op_row_get(graph[0]->op[i].kind)->precisions;
    tandem_plan_dag *plan_dag = NULL;
    assert_int_equal(tandem_plan_dag_open(&plan_dag, p.replayer, 0, allowed, p.sensitivity[0], &error),
                     TANDEM_NO_MEMORY);
    assert_null(plan_dag);
    assert_non_null(strstr(error.text, "in use at once"));
    free(allowed);
    costed_cluster_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws_hold_on_the_zoo_plan_dag),
        cmocka_unit_test(laws_hold_on_the_zoo_with_micro_steps_and_segments),
        cmocka_unit_test(laws_hold_where_attention_is_one_task),
        cmocka_unit_test(laws_hold_on_random_graphs_plan_dag),
        cmocka_unit_test(wide_frontiers_take_more_words),
        cmocka_unit_test(what_cannot_be_gone_through_is_said),
    };
    return cmocka_run_group_tests_name("plan DAG laws", tests, NULL, NULL);
}
