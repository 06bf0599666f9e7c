/* Laws of a replayed step that a second simulator can see: over random graphs and models of the zoo, with
 * random times, clusters and plans, the DAG simulator finds the same times from all ranks one by one. */
#include "tests/support/random_graph.h"
#include "tests/support/tandem_test.h"
#include "tests/support/unroll.h"

static const uint64_t seed = 20249;
static const char *const models[] = {"mlp", "resnet20:blocks=1", "vit_tiny:depth=1", "gpt_tiny:depth=1",
                                     "resnet50"};
static const char *const cards[] = {"t4", "v100", "a100", "h100"};
static const uint64_t bucket_sizes[] = {0, 1, 2000, 65536};
enum { CASES = 400, MAX_OPS = 512, N_MODEL = sizeof models / sizeof *models, ZOO_EVERY = 8, MAX_RANKS = 64 };

typedef struct trial {
    chance chance;
    tandem_graph *graph;
    tandem_cluster cluster;
    tandem_replayer_options options;
    tandem_precision precision[TANDEM_MAX_CLASS][MAX_OPS];
} trial;

/* --- A case --------------------------------------------------------------------------------------------- */

static tandem_link draw_link_unroll(chance *c)
{
    return (tandem_link){1e6 * (double)(1 + draw_below(c, 1000)) * (draw_below(c, 2) ? 1 : 100),
                         draw_below(c, 30000)};
}

static void draw_class(trial *t, int c, int max_ranks)
{
    tandem_cluster_class *const class = &t->cluster.classes[c];
    assert_int_equal(tandem_device_find(&class->device, cards[draw_below(&t->chance, 4)], NULL), TANDEM_OK);
    class->n_rank = 1 + (int)draw_below(&t->chance, (uint32_t)max_ranks);
    class->per_node = (int)draw_below(&t->chance, (uint32_t) class->n_rank + 1);
    if (draw_below(&t->chance, 2)) class->link = draw_link_unroll(&t->chance);
    const uint32_t change = 1 + draw_below(&t->chance, 4);
    for (int op = 0; op < t->graph->n_op; op++) {
        const unsigned allowed =
            tandem_op_row_get(t->graph->op[op].kind)->precisions & class->device.precisions;
        if (!allowed || draw_below(&t->chance, change)) continue;
        do t->precision[c][op] = (tandem_precision)draw_below(&t->chance, TANDEM_N_PRECISION);
        while (!(allowed >> t->precision[c][op] & 1));
    }
}

static void draw_trial_unroll(trial *t, uint32_t series)
{
    *t = (trial){.chance = {.seed = seed, .series = series}};
    if (series % ZOO_EVERY)
        t->graph = random_graph(&t->chance);
    else
        assert_int_equal(tandem_graph_open(&t->graph, models[draw_below(&t->chance, N_MODEL)], 2, NULL),
                         TANDEM_OK);
    assert_true(t->graph->n_op <= MAX_OPS);
    t->options = (tandem_replayer_options){
        .predict = 1,
        .bucket_bytes = t->graph->n_op > 100 ? 1 << 20 : bucket_sizes[draw_below(&t->chance, 4)],
        .step = {.n_micro = (int)draw_below(&t->chance, 4),
                 .n_recompute_segment = draw_below(&t->chance, 3) ? 0 : TANDEM_RECOMPUTE_SQRT,
                 .with_norm = series % 3 == 0},
        .collective = (tandem_collective_algorithm)draw_below(&t->chance, TANDEM_N_COLLECTIVE_ALGORITHM + 1)};
    t->cluster.n_class = 1 + (int)draw_below(&t->chance, 4);
    const tandem_link net = draw_link_unroll(&t->chance);
    t->cluster.link_bytes_per_s = net.bytes_per_s;
    t->cluster.link_latency_ns = net.latency_ns;
    if (draw_below(&t->chance, 2)) t->cluster.node = draw_link_unroll(&t->chance);
    for (int c = 0; c < t->cluster.n_class; c++)
        draw_class(t, c, MAX_RANKS / t->cluster.n_class / (t->graph->n_op > 100 ? 4 : 1));
}

static void set_precisions_unroll(const trial *t, tandem_replayer *replayer)
{
    for (int c = 0; c < t->cluster.n_class; c++)
        for (int op = 0; op < t->graph->n_op; op++) tandem_replayer_set(replayer, c, op, t->precision[c][op]);
}

static tandem_replayer *open_trial_unroll(const trial *t)
{
    const tandem_graph *graphs[TANDEM_MAX_CLASS];
    tandem_replayer *replayer = NULL;
    tandem_error error = {0};
    for (int c = 0; c < t->cluster.n_class; c++) graphs[c] = t->graph;
    require_ok(tandem_replayer_open_with(&replayer, &t->cluster, graphs, NULL, &t->options, &error), &error);
    set_precisions_unroll(t, replayer);
    return replayer;
}

static tandem_replay run_unroll(tandem_replayer *replayer)
{
    tandem_replay replay;
    tandem_error error = {0};
    require_ok(tandem_replayer_run(replayer, &replay, 0, &error), &error);
    return replay;
}

static tandem_replay replay_of(const trial *t)
{
    tandem_replayer *replayer = open_trial_unroll(t);
    const tandem_replay replay = run_unroll(replayer);
    tandem_replayer_close(replayer);
    return replay;
}

/* Other times for some tasks and buckets; of these the same whoever computes, so that nothing interferes. */
static void draw_times(trial *t, tandem_replayer *replayer)
{
    const uint32_t keeps_wire = draw_below(&t->chance, 4), fastest = draw_below(&t->chance, 2) ? 100 : 30000;
    for (int c = 0; c < t->cluster.n_class; c++) {
        const tandem_step *const step = tandem_replayer_step(replayer, c);
        const uint32_t longest = draw_below(&t->chance, 2) ? 1000 : 100000;
        for (int k = 0; k < step->n_task; k++) {
            const int computes = step->task[k].stream == TANDEM_STREAM_COMPUTE;
            if (!step->task[k].active || (computes && draw_below(&t->chance, 2))) continue;
            const int64_t ns = draw_below(&t->chance, computes ? longest : fastest);
            if (computes)
                tandem_replayer_set_variant_ns(replayer, c, k, step->task[k].variant, 0, ns);
            else if (c == 0 && draw_below(&t->chance, 4) >= keeps_wire)
                for (int contended = 0; contended < 2; contended++)
                    tandem_replayer_set_variant_ns(replayer, c, k, 0, contended, ns);
        }
    }
}

/* --- Two simulators ------------------------------------------------------------------------------------- */

static void the_simulators_agree(const tandem_replay *replay, tandem_replayer *replayer, uint32_t series)
{
    assert_false(tandem_replayer_has_contention(replayer));
    const tandem_replay unrolled = unroll_replay(replayer);
    if (memcmp(replay, &unrolled, sizeof unrolled) != 0)
        fail_msg("series %u: step %lld ns by the replayer, %lld ns by the DAG simulator", series,
                 (long long)replay->step_ns, (long long)unrolled.step_ns);
}

static void every_rank_by_itself_comes_to_the_same_nanosecond(void **state)
{
    int n_wire = 0, n_other = 0, n_never = 0; /* who the first class waits for */
    for (uint32_t series = 0; series < cases_of(CASES, 4); series++) {
        trial t;
        draw_trial_unroll(&t, series);
        tandem_replayer *replayer = open_trial_unroll(&t);
        tandem_replay replay = run_unroll(replayer);
        the_simulators_agree(&replay, replayer, series);
        draw_times(&t, replayer);
        replay = run_unroll(replayer);
        the_simulators_agree(&replay, replayer, series);
        n_wire += replay.classes[0].exposed_comm_ns > 0;
        n_other += replay.classes[0].wait_ns > 0;
        n_never += replay.classes[0].busy_ns == replay.step_ns;
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
    print_message("the first class waits for the wire in %d cases, for others in %d, never in %d\n", n_wire,
                  n_other, n_never);
    const int n = (int)cases_of(CASES, 4);
    assert_true(n_wire > n / 10 && n_other > n / 10 && n_never > n / 25);
}

/* Class 0 hands its last bucket over after 1000 ns, the wire takes 2000 ns: steps of 3000 ns. Class 1 hands
 * over at once and then computes for 3001 ns: it loses 1 ns a step until, 1000 steps later, the others wait
 * for it. With 2999 ns it never does. */
static void a_class_that_lags_little_by_little_decides_in_the_end(void **state)
{
    for (int64_t own_ns = 2999; own_ns <= 3001; own_ns++) {
        trial t = {.options = {.predict = 1, .bucket_bytes = 1}};
        assert_int_equal(tandem_graph_open(&t.graph, "mlp", 2, NULL), TANDEM_OK);
        assert_int_equal(tandem_cluster_parse(&t.cluster, "3*a100@1 + 2*a100@1 net=1GB/s,0ns", NULL),
                         TANDEM_OK);
        tandem_replayer *replayer = open_trial_unroll(&t);
        (void)run_unroll(replayer);
        for (int c = 0; c < 2; c++) {
            const tandem_step *const step = tandem_replayer_step(replayer, c);
            const int late = step->bucket[step->n_bucket - 1].ready_task;
            assert_true(step->task[late].active && late > step->bucket[0].ready_task);
            for (int k = 0; k < step->n_task; k++) {
                const int64_t wire_ns = k == step->bucket[step->n_bucket - 1].reduce_task ? 2000 : 0;
                const int64_t ns = c == 0 && k == late                          ? 1000
                                   : c == 1 && k == step->bucket[0].update_task ? own_ns
                                                                                : 0;
                if (step->task[k].active && step->task[k].stream == TANDEM_STREAM_COMPUTE)
                    tandem_replayer_set_variant_ns(replayer, c, k, step->task[k].variant, 0, ns);
                else if (step->task[k].active)
                    for (int contended = 0; contended < 2; contended++)
                        tandem_replayer_set_variant_ns(replayer, c, k, 0, contended, wire_ns);
            }
        }
        const tandem_replay replay = run_unroll(replayer);
        assert_int_equal(replay.step_ns, own_ns > 3000 ? own_ns : 3000);
        the_simulators_agree(&replay, replayer, 0);
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
}

/* --- What an unrolled step holds ------------------------------------------------------------------------ */

static void an_unrolled_step_holds_every_task_of_every_rank(void **state)
{
    for (uint32_t series = 1; series < 40; series++) {
        trial t;
        unrolled_step u;
        draw_trial_unroll(&t, series);
        tandem_replayer *replayer = open_trial_unroll(&t);
        (void)run_unroll(replayer);
        const int n_iteration = 1 + (int)draw_below(&t.chance, 3);
        unroll_step(&u, replayer, n_iteration);
        assert_int_equal(u.n_rank, tandem_cluster_n_rank(&t.cluster));
        int rank = 0, n_op = 0;
        for (int c = 0; c < u.n_class; c++) {
            const tandem_step *const step = tandem_replayer_step(replayer, c);
            int n_run = 0;
            for (int k = 0; k < step->n_task; k++)
                if (step->task[k].active) n_run += tandem_step_runs_per_step(step, &step->task[k]);
            assert_int_equal(u.list_length[c] + u.n_bucket, n_run);
            for (int r = 0; r < t.cluster.classes[c].n_rank; r++, rank++, n_op++)
                for (int iteration = 0; iteration < n_iteration; iteration++) {
                    for (int k = 0; k < n_run; k++, n_op++) {
                        const int op = unrolled_op(&u, c, r, iteration, k), task = u.task[op];
                        assert_true(op >= 0 && op < u.graph.n_op && step->task[task].active);
                        const int is_comm = step->task[task].stream == TANDEM_STREAM_COMM;
                        assert_int_equal(u.graph.stream[op], 2 * rank + is_comm);
                        assert_int_equal(u.graph.group[op],
                                         is_comm ? iteration * u.n_bucket + step->task[task].bucket : -1);
                        if (!is_comm)
                            assert_int_equal(u.duration_ticks[op],
                                             TICKS_PER_NS * tandem_replayer_task_ns(replayer, c, task, 0));
                    }
                }
        }
        assert_int_equal(n_op, u.graph.n_op);
        unrolled_step_close(&u);
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
}

/* --- The compiled step by itself ------------------------------------------------------------------------ */

static void a_class_is_as_many_classes_as_it_has_ranks_unroll(void **state)
{
    for (uint32_t series = 1; series < cases_of(CASES, 4); series += 2) {
        trial t;
        draw_trial_unroll(&t, series);
        const int n_rank = 2 + (int)draw_below(&t.chance, TANDEM_MAX_CLASS - 1);
        t.cluster.n_class = 1;
        t.cluster.classes[0].n_rank = n_rank;
        t.cluster.classes[0].per_node = (int)draw_below(&t.chance, 2);
        if (t.cluster.classes[0].per_node == 0) t.cluster.classes[0].link = (tandem_link){0};
        const tandem_replay together = replay_of(&t);
        t.cluster.n_class = n_rank;
        for (int c = 0; c < n_rank; c++) {
            t.cluster.classes[c] = t.cluster.classes[0];
            t.cluster.classes[c].n_rank = 1;
            memcpy(t.precision[c], t.precision[0], sizeof t.precision[0]);
        }
        const tandem_replay apart = replay_of(&t);
        assert_int_equal(apart.step_ns, together.step_ns);
        for (int c = 0; c < n_rank; c++)
            assert_memory_equal(&apart.classes[c], &together.classes[0], sizeof apart.classes[0]);
        tandem_graph_close(t.graph);
    }
}

/* All micro-steps but the last, which hand nothing over. */
static int64_t micro_steps_ns(const tandem_replayer *replayer, int c)
{
    const tandem_step *const step = tandem_replayer_step(replayer, c);
    int64_t sum = 0;
    for (int k = 0; k < step->n_task; k++)
        if (step->task[k].active && step->task[k].stream == TANDEM_STREAM_COMPUTE)
            sum += (tandem_step_runs_per_step(step, &step->task[k]) - 1) *
                   tandem_replayer_task_ns(replayer, c, k, 0);
    return sum;
}

/* From the begin of the list to where bucket b is ready, over the wire to bucket `last`, and from where
 * that one was waited for to the end of the list: one after the other in every step. A time without its
 * fraction of a ns. */
static int64_t longest_chain_ns(const tandem_replayer *replayer, int c)
{
    const tandem_step *const step = tandem_replayer_step(replayer, c);
    int64_t most = 0, before = micro_steps_ns(replayer, c);
    int handed = 0;
    for (int k = 0; k < step->n_task; k++)
        if (tandem_task_wraps_iteration(step, k)) before += tandem_replayer_task_ns(replayer, c, k, 0);
    for (int b = 0; b < step->n_bucket; b++) {
        for (; handed <= step->bucket[b].ready_task; handed++)
            if (step->task[handed].active && step->task[handed].stream == TANDEM_STREAM_COMPUTE)
                before += tandem_replayer_task_ns(replayer, c, handed, 0);
        double wire = 0;
        for (int last = b; last < step->n_bucket; last++) {
            double idle = 0, loaded = 0;
            tandem_replayer_bucket_ns(replayer, last, &idle, &loaded);
            wire += idle;
            int64_t after_ns = 0;
            for (int k = last;
                 k < step->n_bucket && !tandem_task_wraps_iteration(step, step->bucket[k].update_task); k++)
                after_ns += tandem_replayer_task_ns(replayer, c, step->bucket[k].update_task, 0);
            if (before + (int64_t)wire + after_ns > most) most = before + (int64_t)wire + after_ns;
        }
    }
    return most;
}

static int64_t sum_ns(const tandem_replayer *replayer, int c)
{
    const tandem_step *const step = tandem_replayer_step(replayer, c);
    int64_t sum = 0;
    for (int k = 0; k < step->n_task; k++)
        if (step->task[k].active && step->task[k].stream == TANDEM_STREAM_COMPUTE)
            sum +=
                tandem_step_runs_per_step(step, &step->task[k]) * tandem_replayer_task_ns(replayer, c, k, 0);
    return sum;
}

static void no_step_is_shorter_than_its_longest_chain_or_its_busiest_device(void **state)
{
    for (uint32_t series = 0; series < cases_of(CASES, 4); series += 2) {
        trial t;
        draw_trial_unroll(&t, series);
        tandem_replayer *replayer = open_trial_unroll(&t);
        (void)run_unroll(replayer);
        draw_times(&t, replayer);
        const tandem_replay replay = run_unroll(replayer);
        for (int c = 0; c < replay.n_class; c++) {
            assert_true(replay.step_ns >= longest_chain_ns(replayer, c));
            assert_true(replay.step_ns >= sum_ns(replayer, c));
        }
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
}

static void one_device_alone_takes_the_sum_of_its_tasks(void **state)
{
    for (uint32_t series = 0; series < cases_of(CASES, 4); series += 2) {
        trial t;
        draw_trial_unroll(&t, series);
        t.cluster.n_class = t.cluster.classes[0].n_rank = 1;
        t.cluster.classes[0].per_node = 0;
        tandem_replayer *replayer = open_trial_unroll(&t);
        const tandem_replay replay = run_unroll(replayer);
        assert_int_equal(replay.step_ns, sum_ns(replayer, 0));
        assert_int_equal(replay.classes[0].busy_ns, replay.step_ns);
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
}

/* Exactly: times of tasks are whole, those of buckets are set so. */
static void all_times_k_times_as_long_make_the_step_k_times_as_long(void **state)
{
    for (uint32_t series = 0; series < cases_of(CASES, 4); series += 2) {
        trial t;
        draw_trial_unroll(&t, series);
        tandem_replayer *replayer = open_trial_unroll(&t);
        tandem_replay replay[2] = {run_unroll(replayer)};
        const int64_t k = 2 + draw_below(&t.chance, 9);
        for (int turn = 0; turn < 2; turn++) {
            for (int c = 0; c < t.cluster.n_class; c++) {
                const tandem_step *const step = tandem_replayer_step(replayer, c);
                for (int task = 0; task < step->n_task; task++) {
                    if (!step->task[task].active || (step->task[task].stream == TANDEM_STREAM_COMM && c > 0))
                        continue;
                    const int variant =
                        step->task[task].stream == TANDEM_STREAM_COMM ? 0 : step->task[task].variant;
                    for (int contended = 0;
                         contended < (step->task[task].stream == TANDEM_STREAM_COMM ? 2 : 1); contended++) {
                        const int64_t ns = tandem_replayer_variant_ns(replayer, c, task, variant, contended);
                        tandem_replayer_set_variant_ns(replayer, c, task, variant, contended,
                                                       turn ? k * ns : 3 * ns + 1);
                    }
                }
            }
            replay[turn] = run_unroll(replayer);
        }
        assert_int_equal(replay[1].step_ns, k * replay[0].step_ns);
        for (int c = 0; c < t.cluster.n_class; c++) {
            assert_int_equal(replay[1].classes[c].busy_ns, k * replay[0].classes[c].busy_ns);
            assert_int_equal(replay[1].classes[c].wait_ns, k * replay[0].classes[c].wait_ns);
        }
        tandem_replayer_close(replayer);
        tandem_graph_close(t.graph);
    }
}

/* Nothing interferes, and the order of tasks is fixed. */
static void better_links_never_hurt_unroll(void **state)
{
    for (uint32_t series = 0; series < cases_of(CASES, 4); series += 2) {
        trial t;
        draw_trial_unroll(&t, series);
        const int64_t before = replay_of(&t).step_ns;
        const double factor = 1 + draw_below(&t.chance, 40) / 10.0;
        if (draw_below(&t.chance, 2)) t.cluster.link_bytes_per_s *= factor;
        if (draw_below(&t.chance, 2)) t.cluster.link_latency_ns /= 2;
        if (draw_below(&t.chance, 2)) t.cluster.node.bytes_per_s *= factor;
        for (int c = 0; c < t.cluster.n_class; c++)
            if (draw_below(&t.chance, 2)) t.cluster.classes[c].link.bytes_per_s *= factor;
        if (t.cluster.node.bytes_per_s > 0 || t.cluster.link_bytes_per_s > 0)
            assert_true(replay_of(&t).step_ns <= before);
        tandem_graph_close(t.graph);
    }
}

static void order_and_names_of_classes_change_nothing(void **state)
{
    for (uint32_t series = 1; series < cases_of(CASES, 4); series += 2) {
        trial t, turned;
        draw_trial_unroll(&t, series);
        turned = t;
        const int last = t.cluster.n_class - 1;
        for (int c = 0; c <= last; c++) {
            turned.cluster.classes[c] = t.cluster.classes[last - c];
            memcpy(turned.precision[c], t.precision[last - c], sizeof t.precision[c]);
        }
        const tandem_replay a = replay_of(&t), b = replay_of(&turned);
        assert_int_equal(a.step_ns, b.step_ns);
        for (int c = 0; c <= last; c++)
            assert_memory_equal(&a.classes[c], &b.classes[last - c], sizeof a.classes[c]);
        tandem_graph_close(t.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_by_itself_comes_to_the_same_nanosecond),
        cmocka_unit_test(a_class_that_lags_little_by_little_decides_in_the_end),
        cmocka_unit_test(an_unrolled_step_holds_every_task_of_every_rank),
        cmocka_unit_test(a_class_is_as_many_classes_as_it_has_ranks_unroll),
        cmocka_unit_test(no_step_is_shorter_than_its_longest_chain_or_its_busiest_device),
        cmocka_unit_test(one_device_alone_takes_the_sum_of_its_tasks),
        cmocka_unit_test(all_times_k_times_as_long_make_the_step_k_times_as_long),
        cmocka_unit_test(better_links_never_hurt_unroll),
        cmocka_unit_test(order_and_names_of_classes_change_nothing),
    };
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("laws of unrolled steps", tests, NULL, NULL);
}
