/* folder: replayer */
/* Laws of the replayer, over models of the zoo with random costs, clusters and plans. */
#include "base/philox.h"
#include "replayer/internal.h"
#include "tandem/advanced/zero.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

static const uint64_t seed = 20222;
static const char *const models[] = {"mlp", "resnet20:blocks=1", "vit_tiny:depth=1", "gpt_tiny:depth=1"};
enum { FREE, CONTENDED, CROWDED };
enum { N_MODEL = sizeof models / sizeof models[0], N_DEVICE = 3, MAX_OPS = 256, SCALE = 7 };
static uint32_t n_case(void) { return cases_of(60, 3); }
static const struct {
    const char *name, *plain; /* plain: no all-reduce among such is measured */
    tandem_dtype amp_dtype;
} devices[N_DEVICE] = {{"cpu:avx2", "plain:avx2", TANDEM_F32},
                       {"cpu:avx512", "plain:avx512", TANDEM_F32},
                       {"cpu:avx512_bf16", "plain:avx512_bf16", TANDEM_BF16}};
static const uint64_t bucket_sizes[] = {0, 1, 65536};

/* --- Chance --------------------------------------------------------------------------------------------- */

typedef struct chance {
    uint32_t series, drawn;
} chance;

static uint32_t draw_replay(chance *c, uint32_t below)
{
    const uint32_t counter[4] = {c->drawn++, c->series, 0, 78};
    return tandem_philox(counter, seed).word[0] % below;
}

/* --- Costs: a random number of each key; times SCALE in the second store -------------------------------- */

typedef struct costing {
    int64_t scale;
    uint32_t device;
    uint32_t beside_percent; /* on top of the time alone: 0 … this */
} costing;

static int64_t cost_replay(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    const costing *p = context;
    char text[TANDEM_MAX_SIGNATURE + 96];
    uint32_t hash = 2166136261u;
    tandem_cost_key_print(text, sizeof text, key);
    for (const char *letter = text; *letter; letter++) hash = (hash ^ (unsigned char)*letter) * 16777619u;
    const uint32_t counter[4] = {hash, p->device, 0, 79};
    const tandem_philox_block word = tandem_philox(counter, seed);
    const int64_t alone = 100 + word.word[0] % 20000;
    *workspace_bytes = word.word[2] % 3 ? 0 : word.word[2] % 100000;
    return (alone + alone * (p->beside_percent ? word.word[1] % p->beside_percent : 0) / 100) * p->scale;
}

typedef struct world {
    tandem_graph *graph[N_MODEL];
    replay_store store[2]; /* costs; the same times SCALE */
} world;

static void fill_replay(world *w, int model, int which)
{
    for (uint32_t d = 0; d < N_DEVICE; d++)
        for (int k = 0; k < 3; k++) {
            costing p = {.scale = which ? SCALE : 1, .device = d};
            const char *const name[2] = {devices[d].name, devices[d].plain};
            for (int plain = 0; plain < 2; plain++)
                replay_store_fill(&w->store[which], w->graph[model], devices[d].amp_dtype, bucket_sizes[k],
                                  name[plain], "", cost_replay, &p);
            p.beside_percent = 80;
            for (int other = 0; other < N_DEVICE; other++)
                replay_store_fill(&w->store[which], w->graph[model], devices[d].amp_dtype, bucket_sizes[k],
                                  devices[d].name, devices[other].name, cost_replay, &p);
        }
}

static int make_world(void **state)
{
    static world w;
    for (int which = 0; which < 2; which++) {
        replay_store_open(&w.store[which]);
        for (int m = 0; m < N_MODEL; m++) {
            if (!which) assert_int_equal(tandem_graph_open(&w.graph[m], models[m], 2, NULL), TANDEM_OK);
            fill_replay(&w, m, which);
        }
    }
    print_message("seed %llu, series 0 … %u\n", (unsigned long long)seed, n_case() - 1);
    *state = &w;
    return 0;
}

static int unmake_world(void **state)
{
    world *w = *state;
    for (int m = 0; m < N_MODEL; m++) tandem_graph_close(w->graph[m]);
    for (int which = 0; which < 2; which++) replay_store_close(&w->store[which]);
    return 0;
}

/* --- A case: model, cluster, buckets and plans ---------------------------------------------------------- */

typedef struct trial {
    const tandem_graph *graph[TANDEM_MAX_CLASS];
    tandem_cluster cluster;
    uint64_t bucket_bytes;
    tandem_precision precision[TANDEM_MAX_CLASS][MAX_OPS];
    uint32_t contended;
    tandem_step_options step;
    chance chance;
} trial;

static tandem_precision draw_precision_replay(chance *c, unsigned allowed)
{
    tandem_precision p;
    do p = (tandem_precision)draw_replay(c, TANDEM_N_PRECISION);
    while (!(allowed & (1u << p)));
    return p;
}

static void draw_plan_replay(trial *t, int c)
{
    const uint32_t change = 1 + draw_replay(&t->chance, 4);
    for (int i = 0; i < t->graph[c]->n_op; i++) {
        const unsigned allowed = tandem_op_row_get(t->graph[c]->op[i].kind)->precisions;
        if (allowed && draw_replay(&t->chance, change) == 0)
            t->precision[c][i] = draw_precision_replay(&t->chance, allowed);
    }
}

/* Measured curves and slowing of the cluster's group, in both stores. */
static void draw_measured(trial *t, world *w)
{
    char group[TANDEM_GROUP_KEY_TEXT];
    tandem_cluster_group_key(group, sizeof group, &t->cluster);
    for (int loaded = 0; loaded < 2; loaded++) {
        int64_t ns = 1000 + draw_replay(&t->chance, 10000);
        for (uint64_t bytes = 256; bytes < 1u << 20; bytes *= 4, ns += draw_replay(&t->chance, 20000))
            for (int which = 0; which < 2; which++)
                replay_store_put_curve(&w->store[which], group, loaded, bytes, ns * (which ? SCALE : 1));
    }
    for (int c = 0; c < t->cluster.n_class; c++) {
        const double factor = 1 + draw_replay(&t->chance, 100) / 100.0;
        for (int which = 0; which < 2; which++)
            assert_int_equal(tandem_store_put_interference(w->store[which].store,
                                                           t->cluster.classes[c].device.name, group,
                                                           "compute_under_comm", 4096, factor, 1, NULL),
                             TANDEM_OK);
    }
}

/* contended: ranks share nodes (never more than two classes, so that a neighbour is the same in any
 * order), and all-reduces are measured; CROWDED: two classes of one rank share one. Otherwise every rank has
 * its node, and nothing slows anything. */
static void draw_trial_replay(trial *t, world *w, uint32_t series, uint32_t contended)
{
    static const int n_micro[] = {1, 1, 2, 5}, n_recompute_segment[] = {1, 1, TANDEM_RECOMPUTE_SQRT, 3};
    *t = (trial){.contended = contended, .chance = {.series = series}};
    t->step.n_micro = n_micro[draw_replay(&t->chance, 4)];
    t->step.n_recompute_segment = n_recompute_segment[draw_replay(&t->chance, 4)];
    t->step.with_norm = series / 2 % 2;
    const uint32_t model = draw_replay(&t->chance, N_MODEL);
    assert_true(w->graph[model]->n_op <= MAX_OPS);
    t->bucket_bytes = bucket_sizes[draw_replay(&t->chance, 3)];
    t->cluster.n_class = 1 + (int)draw_replay(&t->chance, 3);
    if (contended == CROWDED && t->cluster.n_class == 1) t->cluster.n_class = 2;
    for (int c = 0; c < t->cluster.n_class; c++) {
        const uint32_t d = draw_replay(&t->chance, N_DEVICE);
        t->graph[c] = w->graph[model];
        t->cluster.classes[c] = replay_class(contended ? devices[d].name : devices[d].plain,
                                             devices[d].amp_dtype, 1 + (int)draw_replay(&t->chance, 3), 1);
        if (contended && c < 2) t->cluster.classes[c].per_node = (int)draw_replay(&t->chance, 3);
        if (contended == CROWDED && c < 2) t->cluster.classes[c].per_node = 0;
        if (contended == CROWDED && c < 2) t->cluster.classes[c].n_rank = 1;
        draw_plan_replay(t, c);
    }
    t->cluster.link_bytes_per_s = 1e6 * (double)(10 + draw_replay(&t->chance, 2000));
    t->cluster.link_latency_ns = draw_replay(&t->chance, 5000);
    if (contended && tandem_cluster_n_rank(&t->cluster) > 1) draw_measured(t, w);
}

static tandem_replayer *open_trial_replay(const trial *t, replay_store *s)
{
    tandem_replayer *replayer = NULL;
    tandem_error error = {0};
    const tandem_replayer_options options = {.bucket_bytes = t->bucket_bytes, .step = t->step};
    require_ok(tandem_replayer_open_with(&replayer, &t->cluster, t->graph, s->store, &options, &error),
               &error);
    for (int c = 0; c < t->cluster.n_class; c++)
        for (int i = 0; i < t->graph[c]->n_op; i++)
            if (tandem_op_row_get(t->graph[c]->op[i].kind)->precisions)
                tandem_replayer_set(replayer, c, i, t->precision[c][i]);
    return replayer;
}

static tandem_replay run_replay_test(tandem_replayer *replayer, unsigned flags)
{
    tandem_replay replay;
    tandem_error error = {0};
    require_ok(tandem_replayer_run(replayer, &replay, flags, &error), &error);
    return replay;
}

static tandem_replay replay_trial(const trial *t, replay_store *s)
{
    tandem_replayer *replayer = open_trial_replay(t, s);
    const tandem_replay replay = run_replay_test(replayer, 0);
    tandem_replayer_close(replayer);
    return replay;
}

static void check_same_class(const tandem_replay_class *a, const tandem_replay_class *b)
{
    assert_int_equal(a->busy_ns, b->busy_ns);
    assert_int_equal(a->exposed_comm_ns, b->exposed_comm_ns);
    assert_int_equal(a->wait_ns, b->wait_ns);
    assert_true(a->peak_bytes == b->peak_bytes);
}

static void check_same(const tandem_replay *a, const tandem_replay *b)
{
    assert_int_equal(a->step_ns, b->step_ns);
    assert_int_equal(a->n_class, b->n_class);
    assert_int_equal(a->slowest, b->slowest);
    for (int c = 0; c < a->n_class; c++) check_same_class(&a->classes[c], &b->classes[c]);
}

/* --- Laws ----------------------------------------------------------------------------------------------- */

static void every_class_spends_exactly_the_step(void **state)
{
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, *state, n, n % 3);
        const tandem_replay replay = replay_trial(&t, &((world *)*state)->store[0]);
        assert_in_range(replay.slowest, 0, replay.n_class - 1);
        for (int c = 0; c < replay.n_class; c++) {
            const tandem_replay_class *class = &replay.classes[c];
            assert_true(class->busy_ns > 0 && class->exposed_comm_ns >= 0 && class->wait_ns >= 0);
            assert_int_equal(class->busy_ns + class->exposed_comm_ns + class->wait_ns, replay.step_ns);
        }
    }
}

/* Nothing slows anything: a class is busy for the sum of its tasks, and all buckets must go over the wire. */
static void alone_a_class_is_busy_for_its_tasks(void **state)
{
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, *state, n, 0);
        tandem_replayer *replayer = open_trial_replay(&t, &((world *)*state)->store[0]);
        const tandem_replay replay = run_replay_test(replayer, 0);
        for (int c = 0; c < replay.n_class; c++) {
            const tandem_step *step = tandem_replayer_step(replayer, c);
            int64_t busy = 0, times = 0;
            for (int k = 0; k < step->n_task; k++)
                if (step->task[k].active)
                    *(step->task[k].stream == TANDEM_STREAM_COMM ? &times : &busy) +=
                        tandem_step_runs_per_step(step, &step->task[k]) *
                        tandem_replayer_task_ns(replayer, c, k, 0);
            /* rounding */
            assert_in_range(replay.classes[c].busy_ns - busy + 4 * step->n_bucket, 0, 8 * step->n_bucket);
            assert_true(replay.step_ns >= times - step->n_bucket);
        }
        tandem_replayer_close(replayer);
    }
}

/* Neighbours, interference and loaded wires only ever add time, and no more than if all of it were slow. */
static void contention_lies_between_none_and_all(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, 1 + n % 2);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        const tandem_replay replay = run_replay_test(replayer, 0);
        for (int c = 0; c < replay.n_class; c++) {
            const tandem_step *step = tandem_replayer_step(replayer, c);
            int64_t least = 0, most = 0;
            for (int k = 0; k < step->n_task; k++) {
                if (!step->task[k].active || step->task[k].stream == TANDEM_STREAM_COMM) continue;
                const int repeats = tandem_step_runs_per_step(step, &step->task[k]);
                const int64_t alone = repeats * tandem_replayer_task_ns(replayer, c, k, 0),
                              contended = repeats * tandem_replayer_task_ns(replayer, c, k, 1);
                least += alone;
                most += contended > alone ? contended : alone;
            }
            assert_true(replay.classes[c].busy_ns >= least - 4 * step->n_bucket);
            assert_true(replay.classes[c].busy_ns <= 2 * most + 4 * step->n_bucket);
        }
        tandem_replayer_close(replayer);
    }
}

static void a_change_undone_leaves_nothing(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, n % 3);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]), *fresh;
        const tandem_replay before = run_replay_test(replayer, TANDEM_REPLAY_MEMORY);
        trial changed = t;
        for (int c = 0; c < t.cluster.n_class; c++) draw_plan_replay(&changed, c);
        for (int back = 0; back < 2; back++) {
            const trial *to = back ? &t : &changed;
            for (int c = 0; c < t.cluster.n_class; c++)
                for (int i = 0; i < t.graph[c]->n_op; i++)
                    if (tandem_op_row_get(t.graph[c]->op[i].kind)->precisions)
                        tandem_replayer_set(replayer, c, i, to->precision[c][i]);
            const tandem_replay after =
                run_replay_test(replayer, TANDEM_REPLAY_MEMORY | TANDEM_REPLAY_EVENTS);
            if (back) check_same(&before, &after);
            fresh = open_trial_replay(to, &w->store[0]); /* one that never had another plan */
            const tandem_replay again = run_replay_test(fresh, TANDEM_REPLAY_MEMORY);
            check_same(&again, &after);
            tandem_replayer_close(fresh);
        }
        tandem_replayer_close(replayer);
    }
}

/* --- One change at a time ------------------------------------------------------------------------------- */

enum { CHANGES = 6 };

/* What a task was made to take; or the precision of an operator. */
typedef struct change {
    int c, op; /* −1: a time */
    tandem_precision precision;
    int task, variant, contended;
    int64_t ns;
} change;

/* The current variant of a task that computes, or any bucket's all-reduce. */
static void draw_task(chance *c, const tandem_replayer *replayer, change *to)
{
    const tandem_step *step = tandem_replayer_step(replayer, to->c);
    do to->task = (int)draw_replay(c, (uint32_t)step->n_task);
    while (!step->task[to->task].active);
    to->variant = step->task[to->task].variant;
    to->contended = (int)draw_replay(c, 2);
    to->ns = draw_replay(c, 4) ? draw_replay(c, 40000) : 0;
}

static change draw_change(trial *t, const tandem_replayer *replayer)
{
    change to = {.c = (int)draw_replay(&t->chance, (uint32_t)t->cluster.n_class), .op = -1};
    const tandem_graph *graph = t->graph[to.c];
    if (draw_replay(&t->chance, 2)) {
        draw_task(&t->chance, replayer, &to);
        return to;
    }
    do to.op = (int)draw_replay(&t->chance, (uint32_t)graph->n_op);
    while (!tandem_op_row_get(graph->op[to.op].kind)->precisions);
    to.precision = draw_precision_replay(&t->chance, tandem_op_row_get(graph->op[to.op].kind)->precisions);
    return to;
}

/* Returns what undoes it. */
static change make_change(tandem_replayer *replayer, const change *to)
{
    change back = *to;
    if (to->op >= 0) {
        back.precision = tandem_replayer_get(replayer, to->c, to->op);
        tandem_replayer_set(replayer, to->c, to->op, to->precision);
    } else {
        back.ns = tandem_replayer_variant_ns(replayer, to->c, to->task, to->variant, to->contended);
        tandem_replayer_set_variant_ns(replayer, to->c, to->task, to->variant, to->contended, to->ns);
    }
    return back;
}

/* The changes made one by one, each replayed and some undone, and all at once in a new replayer, come to the
 * same. */
static void changes_add_up_to_a_fresh_replay(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        change kept[CHANGES];
        int n_kept = 0;
        draw_trial_replay(&t, w, n, n % 3);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        for (int k = 0; k < CHANGES; k++) {
            const tandem_replay before = run_replay_test(replayer, TANDEM_REPLAY_MEMORY);
            const change to = draw_change(&t, replayer), back = make_change(replayer, &to);
            const tandem_replay after =
                run_replay_test(replayer, draw_replay(&t.chance, 2) ? TANDEM_REPLAY_MEMORY : 0);
            assert_int_equal(after.n_class, before.n_class);
            if (draw_replay(&t.chance, 2)) {
                kept[n_kept++] = to;
            } else {
                make_change(replayer, &back);
                const tandem_replay again = run_replay_test(replayer, TANDEM_REPLAY_MEMORY);
                assert_memory_equal(&again, &before, sizeof again);
            }
        }
        tandem_replayer *fresh = open_trial_replay(&t, &w->store[0]);
        for (int k = 0; k < n_kept; k++) make_change(fresh, &kept[k]);
        const tandem_replay a = run_replay_test(replayer, TANDEM_REPLAY_MEMORY),
                            b = run_replay_test(fresh, TANDEM_REPLAY_MEMORY);
        assert_memory_equal(&a, &b, sizeof a);
        tandem_replayer_close(fresh);
        tandem_replayer_close(replayer);
    }
}

/* Like those there are, each with a plan of its own. */
static void add_classes(trial *t, int more)
{
    for (int k = 0; k < more; k++) {
        const int c = t->cluster.n_class++;
        t->cluster.classes[c] = t->cluster.classes[k % 3 % c];
        t->graph[c] = t->graph[0];
        draw_plan_replay(t, c);
    }
}

/* Where nothing interferes, event by event comes to the same nanosecond, in every plan and at every time. */
static void the_recurrence_agrees_with_the_events(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < 4 * n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, FREE);
        add_classes(&t, (int)draw_replay(&t.chance, 6));
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        for (int k = 0; k < CHANGES; k++) {
            change to = draw_change(&t, replayer);
            to.contended = 0;
            make_change(replayer, &to);
            if (to.op < 0 && tandem_replayer_step(replayer, to.c)->task[to.task].kind == TANDEM_TASK_REDUCE) {
                to.contended = 1; /* both alike: it still interferes with nobody */
                make_change(replayer, &to);
            }
            assert_false(replayer->has_contention);
            /* sums are exact, so that their order does not count */
            for (int b = 0; b < replayer->n_bucket; b++)
                assert_true(replayer->allreduce_ns[0][b] * 1024 ==
                            floor(replayer->allreduce_ns[0][b] * 1024));
            const tandem_replay recurrence = run_replay_test(replayer, 0);
            replayer->has_contention = 1;
            const tandem_replay events = run_replay_test(replayer, 0);
            replayer->has_contention = 0;
            assert_memory_equal(&recurrence, &events, sizeof events);
        }
        tandem_replayer_close(replayer);
    }
}

static void check_near(const double *a, const double *b, int n_class)
{
    for (int c = 0; c < n_class; c++)
        if (!(fabs(a[c] - b[c]) < 0.002)) fail_msg("class %d: %.6f, not %.6f", c, a[c], b[c]);
}

/* An iteration event by event, as a recorded one, and an iteration with every shortcut and the memoized
 * suffixes from before the change are the same, wherever they begin. */
static void shortcuts_change_nothing(void **state)
{
    enum { LAPS = 3 };
    world *w = *state;
    for (uint32_t n = 0; n < 8 * n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, 1 + n % 2);
        if (n % 4 == 3) t.cluster.classes[0].slowdown_ppm = 200000 + draw_replay(&t.chance, 5000000);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        for (int k = 0; k < 2 * CHANGES; k++) {
            const change to = draw_change(&t, replayer);
            make_change(replayer, &to);
            const tandem_replay plain = run_replay_test(replayer, 0),
                                timed = run_replay_test(replayer, TANDEM_REPLAY_EVENTS);
            check_same(&plain, &timed);
            tandem_iteration iteration = {.backlog_ns = {0}};
            for (int l = 0; l < LAPS; l++) {
                tandem_iteration by_events = iteration;
                tandem_iteration_by_events(&iteration, replayer, -1, 0);
                tandem_iteration_by_events(&by_events, replayer, 0, 0);
                if (!(fabs(iteration.step_ns - by_events.step_ns) < 0.002))
                    fail_msg("%u %d %d step %.6f %.6f", n, k, l, iteration.step_ns, by_events.step_ns);
                check_near(iteration.backlog_ns, by_events.backlog_ns, replayer->n_class);
                check_near(iteration.exposed_ns, by_events.exposed_ns, replayer->n_class);
                check_near(iteration.waiting_ns, by_events.waiting_ns, replayer->n_class);
                check_near(iteration.backward_end_ns, by_events.backward_end_ns, replayer->n_class);
            }
        }
        tandem_replayer_close(replayer);
    }
}

/* A place of a list at one pace is the same share of the same task at the other. */
static void positions_are_the_same_at_either_rate(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, CROWDED);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        (void)run_replay_test(replayer, TANDEM_REPLAY_EVENTS);
        const tandem_sim_class *class = &replayer->classes[draw_replay(&t.chance, 2)];
        for (int k = 0; k < 20; k++) {
            const int i = (int)draw_replay(&t.chance, (uint32_t) class->list_length),
                      from = (int)draw_replay(&t.chance, 2);
            const double share = draw_replay(&t.chance, 100) / 100.0;
            double at[2];
            for (int rate = 0; rate < 2; rate++)
                at[rate] = (double)class->sum[rate][i] +
                           share * (double)(class->sum[rate][i + 1] - class->sum[rate][i]);
            int likely = (int)draw_replay(&t.chance, (uint32_t)(2 * replayer->n_bucket));
            const double found =
                tandem_cost_sums_convert_ns(class, replayer->n_bucket, at[from], from, !from, &likely);
            assert_true(fabs(found - at[!from]) < 1e-6);
        }
        tandem_replayer_close(replayer);
    }
}

static void all_times_as_long_make_the_step_as_long(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, n % 3);
        const tandem_replay once = replay_trial(&t, &w->store[0]);
        t.cluster.link_bytes_per_s /= SCALE;
        t.cluster.link_latency_ns *= SCALE;
        const tandem_replay longer = replay_trial(&t, &w->store[1]);
        assert_in_range(longer.step_ns - SCALE * once.step_ns + SCALE, 0, 2 * SCALE);
        assert_int_equal(once.slowest, longer.slowest);
    }
}

static void the_order_of_classes_changes_nothing_replay(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t, turned;
        draw_trial_replay(&t, w, n, n % 3);
        turned = t;
        const int last = t.cluster.n_class - 1;
        for (int c = 0; c <= last; c++) {
            turned.cluster.classes[c] = t.cluster.classes[last - c];
            memcpy(turned.precision[c], t.precision[last - c], sizeof t.precision[c]);
        }
        const tandem_replay a = replay_trial(&t, &w->store[0]), b = replay_trial(&turned, &w->store[0]);
        assert_int_equal(a.step_ns, b.step_ns);
        for (int c = 0; c <= last; c++) check_same_class(&a.classes[c], &b.classes[last - c]);
    }
}

static void a_class_of_two_ranks_is_two_classes_of_one(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, n % 3);
        t.cluster.n_class = 1;
        t.cluster.classes[0].n_rank = 2;
        t.cluster.classes[0].per_node = n % 2 ? 0 : 1;
        if (t.contended) draw_measured(&t, w);
        const tandem_replay together = replay_trial(&t, &w->store[0]);
        t.cluster.n_class = 2;
        t.cluster.classes[0].n_rank = 1;
        t.cluster.classes[1] = t.cluster.classes[0];
        memcpy(t.precision[1], t.precision[0], sizeof t.precision[0]);
        t.graph[1] = t.graph[0];
        const tandem_replay apart = replay_trial(&t, &w->store[0]);
        assert_int_equal(together.step_ns, apart.step_ns);
        for (int c = 0; c < 2; c++) check_same_class(&together.classes[0], &apart.classes[c]);
        assert_int_equal(apart.slowest, 0);
    }
}

/* Where nothing slows anything. (Where it does, more overlap can be worse, in the simulation as in life.) */
static void a_faster_wire_never_hurts(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, FREE);
        int64_t step_ns = INT64_MAX;
        for (int k = 0; k < 4; k++) {
            const tandem_replay replay = replay_trial(&t, &w->store[0]);
            assert_true(replay.step_ns <= step_ns);
            step_ns = replay.step_ns;
            t.cluster.link_bytes_per_s *= 1 + draw_replay(&t.chance, 30) / 10.0;
            t.cluster.link_latency_ns /= 1 + draw_replay(&t.chance, 3);
        }
    }
}

/* --- The timeline --------------------------------------------------------------------------------------- */

typedef struct times {
    int64_t start_ns, end_ns;
} times;

/* Collects the times of tasks, in the last micro-step; the compute stream's events follow one upon the other
 * without gap. */
static void check_lane(const tandem_replayer *replayer, int c, const tandem_replay *replay, int contended,
                       times *of_task)
{
    const tandem_step *step = tandem_replayer_step(replayer, c);
    int n_event = 0, n_wire = 0, last = -1, micro = 0;
    const tandem_trace_event *event = tandem_replayer_events(replayer, c, &n_event);
    int64_t idle_ns = 0;
    for (int i = 0; i < n_event; i++) {
        assert_true(event[i].end_ns >= event[i].start_ns);
        if (event[i].task >= 0) {
            assert_true(step->task[event[i].task].active &&
                        event[i].start_ns >= of_task[event[i].task].end_ns);
            of_task[event[i].task] = (times){event[i].start_ns, event[i].end_ns};
        }
        if (event[i].task >= 0 && step->task[event[i].task].stream == TANDEM_STREAM_COMM) {
            n_wire++;
            continue;
        }
        assert_int_equal(n_wire, 0);
        assert_true(i == 0 || event[i].start_ns == event[i - 1].end_ns);
        micro += event[i].task >= 0 && event[i].task <= last; /* in order, micro-step by micro-step */
        if (event[i].task >= 0) last = event[i].task;
        if (event[i].task < 0) idle_ns += event[i].end_ns - event[i].start_ns;
    }
    assert_int_equal(n_wire, step->n_bucket);
    assert_int_equal(micro, step->options.n_micro - 1);
    for (int k = 0; k < step->n_task; k++) assert_int_equal(step->task[k].active, of_task[k].start_ns >= 0);
    const int64_t span = event[n_event - n_wire - 1].end_ns - event[0].start_ns;
    const int64_t idle = replay->classes[c].exposed_comm_ns + replay->classes[c].wait_ns;
    if (contended) return; /* steps may go on taking turns: one longer, one shorter */
    assert_in_range(span - replay->step_ns + 1, 0, 2);
    assert_in_range(idle_ns - idle + 2 * step->n_bucket, 0, 4 * step->n_bucket); /* rounding */
}

static void check_buckets_replay(const tandem_step *step, times *const *of_task, int n_class)
{
    for (int b = 0; b < step->n_bucket; b++) {
        const times reduce = of_task[0][step->bucket[b].reduce_task];
        int64_t ready_ns = b ? of_task[0][step->bucket[b - 1].reduce_task].end_ns : 0;
        for (int c = 0; c < n_class; c++) {
            const times own = of_task[c][step->bucket[b].reduce_task],
                        ready = of_task[c][step->bucket[b].ready_task];
            assert_true(own.start_ns == reduce.start_ns && own.end_ns == reduce.end_ns);
            assert_true(of_task[c][step->bucket[b].update_task].start_ns >= reduce.end_ns - 1);
            if (step->norm_task >= 0) assert_true(of_task[c][step->norm_task].start_ns >= reduce.end_ns - 1);
            if (ready.end_ns > ready_ns) ready_ns = ready.end_ns;
        }
        /* at once, when it is ready and the wire is free */
        assert_in_range(reduce.start_ns - ready_ns + 1, 0, 2);
    }
}

static void timelines_keep_the_rules(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, n % 3);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        const tandem_replay plain = run_replay_test(replayer, 0),
                            replay = run_replay_test(replayer, TANDEM_REPLAY_EVENTS);
        check_same(&plain, &replay);
        times *of_task[TANDEM_MAX_CLASS];
        int64_t first = INT64_MAX;
        for (int c = 0; c < replay.n_class; c++) {
            const int n_task = tandem_replayer_step(replayer, c)->n_task;
            int n_event;
            of_task[c] = malloc((size_t)n_task * sizeof *of_task[c]);
            assert_non_null(of_task[c]);
            for (int k = 0; k < n_task; k++) of_task[c][k] = (times){-1, -1};
            check_lane(replayer, c, &replay, t.contended != FREE, of_task[c]);
            const tandem_trace_event *event = tandem_replayer_events(replayer, c, &n_event);
            if (event[0].start_ns < first) first = event[0].start_ns;
        }
        assert_int_equal(first, 0);
        check_buckets_replay(tandem_replayer_step(replayer, 0), of_task, replay.n_class);
        for (int c = 0; c < replay.n_class; c++) free(of_task[c]);
        tandem_replayer_close(replayer);
    }
}

/* --- Steps that vary ------------------------------------------------------------------------------------ */

static tandem_monte_carlo draw_steps(tandem_replayer *replayer, int n_draw, uint64_t from)
{
    const tandem_monte_carlo_options options = {.n_simulation = n_draw, .seed = from, .spread = -1};
    tandem_monte_carlo noise;
    tandem_error error = {0};
    require_ok(tandem_replayer_monte_carlo(&noise, replayer, &options, &error), &error);
    return noise;
}

/* Costs of a test were measured once, so they do not vary, also with contention. With some random costs,
 * steps do not repeat within the most iterations of a replay. */
static void without_spread_every_step_is_the_replay(void **state)
{
    world *w = *state;
    uint32_t n_repeating = 0;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, n % 3);
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        const tandem_replay plain = run_replay_test(replayer, 0);
        const tandem_monte_carlo noise = draw_steps(replayer, 5, n);
        const double recorded_ns = replayer->allreduce_end_ns[replayer->n_bucket - 1];
        assert_int_equal(noise.min_ns, noise.max_ns);
        assert_int_equal(noise.mean_ns, noise.max_ns);
        if (fabs(recorded_ns - (double)plain.step_ns) < 0.6) {
            n_repeating++;
            assert_int_equal(noise.max_ns, plain.step_ns);
        }
        assert_true(noise.sigma == 0 && fabs(noise.measured_share - 1) < 1e-9);
        tandem_replayer_close(replayer);
    }
    assert_in_range(n_repeating, n_case() * 9 / 10, n_case());
}

static void let_vary(tandem_replayer *replayer, float sigma)
{
    for (int c = 0; c < replayer->n_class; c++)
        for (int k = 0; k < replayer->classes[c].step->n_task * TANDEM_MAX_VARIANT; k++)
            for (int contention = 0; contention < TANDEM_N_CONTENTION; contention++)
                replayer->classes[c].costs.sigma[k][contention] = sigma;
}

/* All wait for the slowest: more of them are slower, and a step is no faster than the mean of one rank's. */
static void more_ranks_are_waited_for_longer(void **state)
{
    enum { DRAWS = 200 };
    world *w = *state;
    for (uint32_t n = 0; n < N_MODEL; n++) {
        trial t = {.chance = {.series = n}, .cluster = {.n_class = 1, .link_bytes_per_s = 1e12}};
        int64_t former_ns = 0;
        t.graph[0] = w->graph[n];
        for (int n_rank = 1; n_rank <= 64; n_rank *= 4) {
            t.cluster.classes[0] = replay_class(devices[0].plain, devices[0].amp_dtype, n_rank, 1);
            tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
            const tandem_replay plain = run_replay_test(replayer, 0);
            let_vary(replayer, 0.3F);
            const tandem_monte_carlo a = draw_steps(replayer, DRAWS, 1), b = draw_steps(replayer, DRAWS, 1),
                                     other = draw_steps(replayer, DRAWS, 2);
            assert_memory_equal(&a, &b, sizeof a);
            assert_true(other.mean_ns != a.mean_ns && other.p50_ns != a.p50_ns);
            assert_true(a.min_ns < a.p50_ns && a.p50_ns < a.p95_ns && a.p95_ns <= a.max_ns);
            assert_true(a.p50_ns > former_ns);
            /* of one rank: the mean of its tasks, to four standard errors of the mean of all draws */
            const double error_ns = (double)(a.p95_ns - a.p50_ns) / 1.645 * 4 / sqrt(DRAWS);
            if (n_rank == 1) assert_true(fabs((double)(a.mean_ns - plain.step_ns)) < error_ns);
            if (n_rank > 1) assert_true((double)a.mean_ns > (double)plain.step_ns + error_ns);
            former_ns = a.p50_ns;
            tandem_replayer_close(replayer);
        }
    }
}

/* --- ZeRO ----------------------------------------------------------------------------------------------- */

static tandem_zero run_zero_replay(tandem_replayer *replayer, int stage)
{
    tandem_zero zero;
    tandem_error error = {0};
    require_ok(tandem_replayer_zero(&zero, replayer, &(tandem_sharding){.stage = stage}, &error), &error);
    return zero;
}

static void zero_of_one_rank_is_the_plain_step(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, FREE);
        t.step.with_norm = 0;
        t.cluster.n_class = t.cluster.classes[0].n_rank = 1;
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        const tandem_replay plain = run_replay_test(replayer, TANDEM_REPLAY_MEMORY);
        for (int stage = 1; stage <= TANDEM_MAX_ZERO_STAGE; stage++) {
            const tandem_zero zero = run_zero_replay(replayer, stage);
            check_same(&zero.replay, &plain);
            assert_memory_equal(&zero.memory[0], tandem_replayer_memory(replayer, 0), sizeof zero.memory[0]);
            assert_int_equal(zero.scatter_ns + zero.gather_ns, 0);
        }
        tandem_replayer_close(replayer);
    }
}

/* With every stage, and with more ranks; what is sharded as 1/n, but for 16 elements a bucket. All classes
 * spend the step. */
static void zero_shares_memory_out(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        uint64_t former[TANDEM_MAX_ZERO_STAGE + 1] = {0};
        draw_trial_replay(&t, w, n, n % 3);
        for (int n_rank = 2; n_rank <= 128; n_rank *= 4) {
            t.cluster.classes[0].n_rank = n_rank;
            if (t.contended)
                t.cluster.classes[0].per_node = 1; /* no neighbour of its own that was not measured */
            tandem_error error = {0};
            tandem_replayer *replayer = NULL;
            require_ok(tandem_replayer_open(&replayer, &t.cluster, t.graph, w->store[0].store, t.bucket_bytes,
                                            &error),
                       &error);
            const tandem_replay plain = run_replay_test(replayer, TANDEM_REPLAY_MEMORY);
            const tandem_memory memory = *tandem_replayer_memory(replayer, 0);
            const int n_all = tandem_cluster_n_rank(&t.cluster);
            uint64_t less = plain.classes[0].peak_bytes;
            for (int stage = 1; stage <= TANDEM_MAX_ZERO_STAGE; stage++) {
                const tandem_zero zero = run_zero_replay(replayer, stage);
                const tandem_memory *own = &zero.memory[0];
                const uint64_t padding =
                    (uint64_t)tandem_replayer_step(replayer, 0)->n_bucket * 17 * sizeof(float);
                const uint64_t n_state = memory.optimizer / memory.weights;
                assert_true(own->optimizer * (uint64_t)n_all >= memory.optimizer);
                assert_true(own->optimizer <= memory.optimizer / (uint64_t)n_all + n_state * padding);
                assert_true(own->peak <= less && own->weights <= memory.weights &&
                            own->gradients <= memory.gradients);
                assert_true(own->peak == own->weights + own->gradients + own->optimizer + memory.arena);
                if (n_rank > 2) assert_true(own->peak <= former[stage]);
                for (int c = 0; c < zero.replay.n_class; c++) {
                    const tandem_replay_class *of = &zero.replay.classes[c];
                    assert_true(of->busy_ns > 0 && of->exposed_comm_ns >= 0 && of->wait_ns >= 0);
                    assert_int_equal(of->busy_ns + of->exposed_comm_ns + of->wait_ns, zero.replay.step_ns);
                }
                less = former[stage] = own->peak;
            }
            tandem_replayer_close(replayer);
        }
    }
}

/* Nothing is left of stages 1 and 2 but shorter updates, and of stage 2 that three buckets of gradients are
 * too many. */
static void zero_over_an_endless_wire_is_plain(void **state)
{
    world *w = *state;
    for (uint32_t n = 0; n < n_case(); n++) {
        trial t;
        draw_trial_replay(&t, w, n, FREE);
        t.step.with_norm = 0;
        t.cluster.link_bytes_per_s = 1e300;
        t.cluster.link_latency_ns = 0;
        tandem_replayer *replayer = open_trial_replay(&t, &w->store[0]);
        const tandem_zero zero = run_zero_replay(replayer, 1), second = run_zero_replay(replayer, 2),
                          third = run_zero_replay(replayer, 3);
        const tandem_sharding even = {.stage = 1, .n_rank = tandem_cluster_n_rank(&t.cluster)};
        for (int c = 0, rank = 0; c < t.cluster.n_class; rank += t.cluster.classes[c].n_rank, c++) {
            const tandem_step *step = tandem_replayer_step(replayer, c);
            for (int b = 0; b < step->n_bucket; b++) {
                const int task = step->bucket[b].update_task;
                const int64_t elements = step->bucket[b].elements;
                const int64_t shard = tandem_shard_border(&even, elements, rank + 1) -
                                      tandem_shard_border(&even, elements, rank);
                const double ns =
                    (double)tandem_replayer_task_ns(replayer, c, task, 0) * (double)shard / (double)elements;
                tandem_replayer_set_variant_ns(replayer, c, task, step->task[task].variant, 0,
                                               (int64_t)floor(ns + 0.5));
            }
        }
        const tandem_replay plain = run_replay_test(replayer, 0);
        assert_int_equal(zero.replay.step_ns, plain.step_ns);
        assert_true(second.replay.step_ns >= zero.replay.step_ns);
        assert_true(third.replay.step_ns >= zero.replay.step_ns);
        tandem_replayer_close(replayer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_spends_exactly_the_step),
        cmocka_unit_test(alone_a_class_is_busy_for_its_tasks),
        cmocka_unit_test(contention_lies_between_none_and_all),
        cmocka_unit_test(a_change_undone_leaves_nothing),
        cmocka_unit_test(changes_add_up_to_a_fresh_replay),
        cmocka_unit_test(the_recurrence_agrees_with_the_events),
        cmocka_unit_test(shortcuts_change_nothing),
        cmocka_unit_test(positions_are_the_same_at_either_rate),
        cmocka_unit_test(all_times_as_long_make_the_step_as_long),
        cmocka_unit_test(the_order_of_classes_changes_nothing_replay),
        cmocka_unit_test(a_class_of_two_ranks_is_two_classes_of_one),
        cmocka_unit_test(a_faster_wire_never_hurts),
        cmocka_unit_test(timelines_keep_the_rules),
        cmocka_unit_test(without_spread_every_step_is_the_replay),
        cmocka_unit_test(more_ranks_are_waited_for_longer),
        cmocka_unit_test(zero_of_one_rank_is_the_plain_step),
        cmocka_unit_test(zero_shares_memory_out),
        cmocka_unit_test(zero_over_an_endless_wire_is_plain),
    };
    return cmocka_run_group_tests_name("replay laws", tests, make_world, unmake_world);
}
