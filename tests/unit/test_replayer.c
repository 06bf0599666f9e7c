/* folder: replayer */
/* The replayer on a small model with costs that can be added up by hand. */
#include "replayer/internal.h"
#include "tandem/advanced/zero.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

/* Its step in fp32: 8 forward tasks (image, label, fc1, its bias and relu, head, its bias, loss), 3 dgrads
 * (loss, head, relu), 4 wgrads (head.bias, head | fc1.bias, fc1: the dgrads of head and relu lie between),
 * updates. Buckets: one of 80 elements in all, or, with FOUR_BUCKETS, one of 32 elements after each
 * wgrad. */
static const char model[] = "mlp:width=4,depth=1,image=2x2x1,classes=2";
enum { FORWARD = 100, DGRAD = 200, WGRAD = 300, UPDATE = 50, CAST = 10, FC1_INT8 = 40 };
enum { ONE_BUCKET = 0, FOUR_BUCKETS = 1, ONE_STEP = 8 * FORWARD + 3 * DGRAD + 4 * WGRAD + UPDATE };
static const char fc1_int8[] = "linear m=4 k=4 n=4 | int8 | forward | s8>f32";

/* Times a factor; a key whose text is `without` is left out. */
typedef struct costing {
    int64_t times;
    const char *without;
} costing;

static int64_t cost_replayer(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    static const int64_t by_pass[TANDEM_N_PASS] = {FORWARD, DGRAD, WGRAD, UPDATE};
    const costing *p = context;
    char text[TANDEM_MAX_SIGNATURE + 96];
    tandem_cost_key_print(text, sizeof text, key);
    if (p->without && strcmp(text, p->without) == 0) return -1;
    if (strcmp(text, fc1_int8) == 0) {
        *workspace_bytes = 1000;
        return FC1_INT8 * p->times;
    }
    return (key->kind == TANDEM_COST_CAST ? CAST : by_pass[key->pass]) * p->times;
}

typedef struct bench {
    replay_store profile;
    tandem_graph *graph;
    const tandem_graph *graphs[TANDEM_MAX_CLASS];
    tandem_cluster cluster;
    tandem_replayer *replayer;
    tandem_error error;
} bench;

static void set_up_replayer(bench *b)
{
    *b = (bench){0};
    replay_store_open(&b->profile);
    assert_int_equal(tandem_graph_open(&b->graph, model, 4, &b->error), TANDEM_OK);
    for (int c = 0; c < TANDEM_MAX_CLASS; c++) b->graphs[c] = b->graph;
}

static void tear_down_replayer(bench *b)
{
    tandem_replayer_close(b->replayer);
    tandem_graph_close(b->graph);
    replay_store_close(&b->profile);
}

static void put_costs(bench *b, const char *device, const char *co_runner, costing p)
{
    replay_store_fill(&b->profile, b->graph, TANDEM_F32, ONE_BUCKET, device, co_runner, cost_replayer, &p);
    replay_store_fill(&b->profile, b->graph, TANDEM_F32, FOUR_BUCKETS, device, co_runner, cost_replayer, &p);
}

static void add_class(bench *b, const char *device, int n_rank, int per_node)
{
    b->cluster.classes[b->cluster.n_class++] = replay_class(device, TANDEM_F32, n_rank, per_node);
}

static tandem_status try_open(bench *b, uint64_t bucket_bytes)
{
    return tandem_replayer_open(&b->replayer, &b->cluster, b->graphs, b->profile.store, bucket_bytes,
                                &b->error);
}

static tandem_replay run_replayer(bench *b, unsigned flags)
{
    tandem_replay replay;
    if (tandem_replayer_run(b->replayer, &replay, flags, &b->error) != TANDEM_OK)
        fail_msg("%s", b->error.text);
    return replay;
}

static tandem_replay open_and_run(bench *b, uint64_t bucket_bytes)
{
    if (try_open(b, bucket_bytes) != TANDEM_OK) fail_msg("%s", b->error.text);
    return run_replayer(b, TANDEM_REPLAY_EVENTS);
}

static void check_class_replayer(const tandem_replay *replay, int c, int64_t busy_ns, int64_t exposed_comm_ns,
                                 int64_t wait_ns)
{
    assert_int_equal(replay->classes[c].busy_ns, busy_ns);
    assert_int_equal(replay->classes[c].exposed_comm_ns, exposed_comm_ns);
    assert_int_equal(replay->classes[c].wait_ns, wait_ns);
    assert_int_equal(busy_ns + exposed_comm_ns + wait_ns, replay->step_ns);
}

static int op_named_replayer(const bench *b, const char *name)
{
    int op = -1;
    assert_int_equal(tandem_graph_find(&op, b->graph, name, NULL), TANDEM_OK);
    return op;
}

/* The event of a task; task −1: the first wait. */
static const tandem_trace_event *event_of(const bench *b, int c, int task)
{
    int n_event = 0;
    const tandem_trace_event *event = tandem_replayer_events(b->replayer, c, &n_event);
    for (int i = 0; i < n_event; i++)
        if (event[i].task == task) return &event[i];
    return NULL;
}

static void check_event(const bench *b, int c, int task, int64_t start_ns, int64_t end_ns)
{
    const tandem_trace_event *event = event_of(b, c, task);
    assert_non_null(event);
    assert_int_equal(event->start_ns, start_ns);
    assert_int_equal(event->end_ns, end_ns);
}

static const tandem_bucket *bucket_of(const bench *b, int bucket)
{
    return &tandem_replayer_step(b->replayer, 0)->bucket[bucket];
}

/* --- One rank ------------------------------------------------------------------------------------------- */

static void a_rank_alone_takes_the_sum_of_its_tasks(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 0);
    tandem_replay replay = open_and_run(&b, ONE_BUCKET);
    assert_int_equal(replay.step_ns, ONE_STEP);
    assert_int_equal(replay.n_class, 1);
    assert_int_equal(replay.slowest, 0);
    check_class_replayer(&replay, 0, ONE_STEP, 0, 0);
    assert_int_equal(replay.classes[0].peak_bytes, 0);
    int n_event = 0;
    (void)tandem_replayer_events(b.replayer, 0, &n_event);
    assert_int_equal(n_event, 17); /* 16 tasks and the all-reduce, which takes no time */
    check_event(&b, 0, bucket_of(&b, 0)->reduce_task, ONE_STEP - UPDATE, ONE_STEP - UPDATE);
    check_event(&b, 0, bucket_of(&b, 0)->update_task, ONE_STEP - UPDATE, ONE_STEP);
    (void)run_replayer(&b, 0);
    (void)tandem_replayer_events(b.replayer, 0, &n_event);
    assert_int_equal(n_event, 0);
    tandem_replayer_close(b.replayer);
    replay = open_and_run(&b, FOUR_BUCKETS);
    assert_int_equal(replay.step_ns, ONE_STEP + 3 * UPDATE);
    check_class_replayer(&replay, 0, ONE_STEP + 3 * UPDATE, 0, 0);
    check_event(&b, 0, bucket_of(&b, 3)->update_task, ONE_STEP + 2 * UPDATE, ONE_STEP + 3 * UPDATE);
    tear_down_replayer(&b);
}

/* Ranks 0 and 2 keep their pace and wait for rank 1, which takes 1.5 times as long; no wire: all-reduces take
 * no time. */
static void a_straggler_is_waited_for(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    assert_int_equal(
        tandem_cluster_parse(&b.cluster, "3*cpu:avx2@1 net=1000TB/s,0ns slow=1.5@rank1", &b.error),
        TANDEM_OK);
    tandem_replay replay = open_and_run(&b, ONE_BUCKET);
    assert_int_equal(replay.n_class, 2);
    assert_int_equal(replay.slowest, 1);
    check_class_replayer(&replay, 1, 3 * ONE_STEP / 2, 0, 0);
    check_class_replayer(&replay, 0, ONE_STEP, 0, ONE_STEP / 2);
    tandem_replayer_close(b.replayer);

    /* its neighbours stay on its node */
    put_costs(&b, "cpu:avx2", "cpu:avx2", (costing){.times = 3});
    assert_int_equal(
        tandem_cluster_parse(&b.cluster, "4*cpu:avx2@2 net=1000TB/s,0ns slow=1.5@rank1", &b.error),
        TANDEM_OK);
    replay = open_and_run(&b, ONE_BUCKET);
    check_class_replayer(&replay, 1, 9 * ONE_STEP / 2, 0, 0);
    check_class_replayer(&replay, 0, 3 * ONE_STEP, 0, 3 * ONE_STEP / 2);
    tear_down_replayer(&b);
}

static tandem_zero run_zero_replayer(bench *b, int stage)
{
    tandem_zero zero;
    if (tandem_replayer_zero(&zero, b->replayer, &(tandem_sharding){.stage = stage}, &b->error) != TANDEM_OK)
        fail_msg("%s", b->error.text);
    return zero;
}

/* One bucket of 80 elements on two ranks: shards of 48, an update of 48/80 of its time. A collective takes
 * 1000 ns and 160 bytes over 1 GB/s. The gathered weights are waited for after two operators without any,
 * image and label. */
static void zero_shares_out_a_bucket(void **state)
{
    enum { WIRE = 1160, BEFORE = 2 * FORWARD, SHARD = 48 * 4, FULL = 80 * 4 };
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 2, 1);
    b.cluster.link_bytes_per_s = 1e9;
    b.cluster.link_latency_ns = 1000;
    (void)open_and_run(&b, ONE_BUCKET);
    for (int stage = 1; stage <= 3; stage++) {
        const tandem_zero zero = run_zero_replayer(&b, stage);
        const tandem_memory *memory = &zero.memory[0];
        assert_int_equal(zero.replay.step_ns, ONE_STEP - UPDATE + WIRE + UPDATE * 48 / 80 + WIRE - BEFORE);
        check_class_replayer(&zero.replay, 0, ONE_STEP - UPDATE + UPDATE * 48 / 80, 2 * WIRE - BEFORE, 0);
        assert_int_equal(zero.scatter_ns, WIRE);
        assert_int_equal(zero.gather_ns, WIRE);
        assert_int_equal(zero.n_gather, 1); /* what the forward pass has used is still there */
        assert_int_equal(memory->optimizer, SHARD * tandem_optimizer_n_state(b.graph->optimizer.kind));
        assert_int_equal(memory->gradients, FULL); /* the one bucket is in full at some time */
        assert_int_equal(memory->weights, FULL);
        assert_int_equal(memory->peak,
                         memory->weights + memory->gradients + memory->optimizer + memory->arena);
    }
    tandem_zero untouched = {.n_gather = -7};
    assert_int_equal(tandem_replayer_zero(&untouched, b.replayer, &(tandem_sharding){.stage = 4}, &b.error),
                     TANDEM_USAGE);
    assert_int_equal(untouched.n_gather, -7);
    tear_down_replayer(&b);
}

/* Four buckets of 32 elements, one parameter each: fc1, fc1.bias, head, head.bias in the order of the forward
 * pass, so that an operator uses two; two are kept, so that the backward pass of head finds both, and that of
 * fc1 fetches none: it has no input's gradient to compute. A shard is 16 elements; three are in full at most,
 * two of gradients. */
static void zero_keeps_three_buckets_of_weights(void **state)
{
    enum { SHARD = 16 * 4, REST = 16 * 4 };
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 2, 1);
    b.cluster.link_bytes_per_s = 1e9;
    (void)open_and_run(&b, FOUR_BUCKETS);
    const tandem_zero zero = run_zero_replayer(&b, 3);
    assert_int_equal(zero.n_gather, 4);
    assert_int_equal(zero.memory[0].weights, 4 * SHARD + 3 * REST);
    assert_int_equal(zero.memory[0].gradients, 4 * SHARD + 2 * REST);
    tear_down_replayer(&b);
}

/* fc1 in int8 where the AMP dtype is f32: its weight and its input are cast, the input is restored for
 * wgrad. */
static void a_precision_changes_its_tasks_and_is_undone(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 0);
    (void)open_and_run(&b, ONE_BUCKET);
    const int fc1 = op_named_replayer(&b, "fc1");
    assert_int_equal(tandem_replayer_get(b.replayer, 0, fc1), TANDEM_PRECISION_FP32);
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_INT8);
    assert_int_equal(tandem_replayer_get(b.replayer, 0, fc1), TANDEM_PRECISION_INT8);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP - FORWARD + FC1_INT8 + 3 * CAST);
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_FP32);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP);

    tandem_plan *plan = NULL;
    b.cluster.classes[0].batch = 4;
    assert_int_equal(tandem_plan_open(&plan, b.graph, &b.cluster, "test", &b.error), TANDEM_OK);
    plan->assignment.precision[0][fc1] = TANDEM_PRECISION_INT8;
    tandem_replayer_load(b.replayer, &plan->assignment);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP - FORWARD + FC1_INT8 + 3 * CAST);
    tandem_assignment stored;
    assert_int_equal(tandem_assignment_open(&stored, 1, b.graph->n_op, &b.error), TANDEM_OK);
    assert_false(tandem_assignment_is_equal(&stored, &plan->assignment));
    tandem_replayer_store(b.replayer, &stored);
    assert_true(tandem_assignment_is_equal(&stored, &plan->assignment));
    tandem_assignment_close(&stored);
    tandem_plan_close(plan);
    tear_down_replayer(&b);
}

static void a_task_says_its_time(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx2", "cpu:avx2", (costing){.times = 3});
    add_class(&b, "cpu:avx2", 2, 0);
    b.cluster.link_bytes_per_s = 1e9;
    (void)open_and_run(&b, ONE_BUCKET);
    const int fc1 = op_named_replayer(&b, "fc1");
    const tandem_step *step = tandem_replayer_step(b.replayer, 0);
    int forward = 0;
    while (step->task[forward].op != fc1 || step->task[forward].kind != TANDEM_TASK_FORWARD) forward++;
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, forward, 0), FORWARD);
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, forward, 1), 3 * FORWARD);
    assert_int_equal(tandem_replayer_variant_ns(b.replayer, 0, forward, 3 * TANDEM_PRECISION_INT8, 0),
                     FC1_INT8);
    assert_int_equal(tandem_replayer_variant_ns(b.replayer, 0, forward, 3 * TANDEM_PRECISION_INT8 + 1, 0),
                     -1);
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, step->bucket[0].reduce_task, 0), 320);
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_INT8);
    (void)run_replayer(&b, 0);
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, forward, 1), 3 * FC1_INT8);
    tear_down_replayer(&b);
}

static int task_of_replayer(const bench *b, int op, tandem_task_kind kind)
{
    const tandem_step *step = tandem_replayer_step(b->replayer, 0);
    int t = 0;
    while (step->task[t].op != op || step->task[t].kind != kind) t++;
    return t;
}

static void a_task_may_take_another_time(void **state)
{
    enum { INT8_FORM = 3 * TANDEM_PRECISION_INT8 };
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 0);
    (void)open_and_run(&b, ONE_BUCKET);
    const int fc1 = op_named_replayer(&b, "fc1"), forward = task_of_replayer(&b, fc1, TANDEM_TASK_FORWARD);
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, 0, 0, FORWARD + 1000);
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, forward, 0), FORWARD + 1000);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 1000);
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, 0, 1, 77777); /* nobody is beside it */
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, INT8_FORM, 0, 0);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 1000);
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_INT8);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP - FORWARD + 3 * CAST);
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, INT8_FORM, 0, -1);
    tandem_replay replay;
    assert_int_equal(tandem_replayer_run(b.replayer, &replay, 0, &b.error), TANDEM_MISSING);
    assert_non_null(strstr(b.error.text, "forward of fc1"));
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, INT8_FORM, 0, FC1_INT8);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP - FORWARD + FC1_INT8 + 3 * CAST);
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_FP32);
    tandem_replayer_set_variant_ns(b.replayer, 0, forward, 0, 0, FORWARD);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP);
    const int update = bucket_of(&b, 0)->update_task;
    tandem_replayer_set_variant_ns(b.replayer, 0, update, 0, 0, 7 * UPDATE);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 6 * UPDATE);
    tear_down_replayer(&b);
}

static void an_all_reduce_may_take_another_time(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx512", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 1);
    add_class(&b, "cpu:avx512", 1, 1);
    b.cluster.link_bytes_per_s = 3e8; /* 320 bytes: 2 messages of 533.3 ns */
    assert_int_equal(open_and_run(&b, ONE_BUCKET).step_ns, ONE_STEP + 1067);
    const int reduce = bucket_of(&b, 0)->reduce_task;
    for (int contended = 0; contended < 2; contended++)
        assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, reduce, contended), 1067);
    /* while it is on the wire nobody computes: the other time does not count */
    tandem_replayer_set_variant_ns(b.replayer, 0, reduce, 0, 1, 9999);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 1067);
    tandem_replayer_set_variant_ns(b.replayer, 1, reduce, 0, 0, 5000);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 5000);
    assert_int_equal(tandem_replayer_task_ns(b.replayer, 0, reduce, 0), 5000);
    tandem_replayer_set_variant_ns(b.replayer, 0, reduce, 0, 0, 1067);
    tandem_replayer_set_variant_ns(b.replayer, 0, reduce, 0, 1, 1067);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP + 1067);
    assert_true(b.replayer->allreduce_ns[0][0] > 1066.6 && b.replayer->allreduce_ns[0][0] < 1066.7);
    assert_false(b.replayer->has_contention);
    tear_down_replayer(&b);
}

static void memory_is_what_the_memory_plan_says(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 0);
    (void)open_and_run(&b, ONE_BUCKET);
    tandem_memory memory;
    for (int narrow = 0; narrow < 2; narrow++) {
        const tandem_step *step = tandem_replayer_step(b.replayer, 0);
        const tandem_replay replay = run_replayer(&b, TANDEM_REPLAY_MEMORY);
        uint64_t workspace[128] = {0};
        assert_true(step->n_task <= 128);
        for (int t = 0; t < step->n_task && narrow; t++)
            if (step->task[t].kind == TANDEM_TASK_FORWARD && step->task[t].op == op_named_replayer(&b, "fc1"))
                workspace[t] = 1000;
        assert_int_equal(tandem_memory_plan(&memory, step, workspace, NULL, NULL, NULL), TANDEM_OK);
        assert_int_equal(memory.workspace > 0, narrow); /* the peak lies at fc1 where it needs workspace */
        assert_int_equal(replay.classes[0].peak_bytes, memory.peak);
        assert_memory_equal(tandem_replayer_memory(b.replayer, 0), &memory, sizeof memory);
        tandem_replayer_set(b.replayer, 0, op_named_replayer(&b, "fc1"), TANDEM_PRECISION_INT8);
        (void)run_replayer(&b, 0); /* a run without memory in between must not hide the change */
    }
    tear_down_replayer(&b);
}

/* --- Several ranks, each on a node of its own ----------------------------------------------------------- */

static void the_faster_class_waits_for_the_slower(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 2});
    put_costs(&b, "cpu:avx512", "", (costing){.times = 1});
    add_class(&b, "cpu:avx512", 1, 1);
    add_class(&b, "cpu:avx2", 1, 1);
    b.cluster.link_bytes_per_s = 1e9; /* 320 bytes: 2 messages of 160 ns and the latency */
    b.cluster.link_latency_ns = 100;
    const tandem_replay replay = open_and_run(&b, ONE_BUCKET);
    assert_int_equal(replay.step_ns, 2 * ONE_STEP + 520);
    check_class_replayer(&replay, 0, ONE_STEP, 520, ONE_STEP);
    check_class_replayer(&replay, 1, 2 * ONE_STEP, 520, 0);
    assert_int_equal(replay.slowest, 1);
    /* the faster one begins its forward pass 50 ns earlier, since its update is shorter: the timeline
     * begins there */
    const tandem_bucket *bucket = bucket_of(&b, 0);
    check_event(&b, 0, 0, 0, 100);
    check_event(&b, 1, 0, 50, 250);
    check_event(&b, 0, -1, 2600, 5770);
    check_event(&b, 1, -1, 5250, 5770);
    check_event(&b, 0, bucket->reduce_task, 5250, 5770);
    check_event(&b, 1, bucket->reduce_task, 5250, 5770);
    check_event(&b, 0, bucket->update_task, 5770, 5820);
    check_event(&b, 1, bucket->update_task, 5770, 5870);
    tear_down_replayer(&b);
}

static void buckets_overlap_with_backward(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 2, 1);
    b.cluster.link_bytes_per_s = 1e9; /* 128 bytes: 2 × (100 + 64) = 328 ns */
    b.cluster.link_latency_ns = 100;
    const tandem_replay replay = open_and_run(&b, FOUR_BUCKETS);
    /* From the end of the former step: update 3 to 50, forward to 850, loss to 1050, wgrad head.bias to
     * 1350: bucket 0 until 1678; wgrad head to 1650: bucket 1 until 2006; dgrads to 2050; wgrad fc1.bias
     * to 2350: bucket 2 until 2678; wgrad fc1 to 2650: bucket 3 from 2678 until 3006. Updates 0 to 2 until
     * 2800. */
    assert_int_equal(replay.step_ns, 3006);
    check_class_replayer(&replay, 0, 2800, 206, 0);
    static const int64_t times[4] = {1300, 1628, 2300, 2628}; /* from the begin of the forward pass */
    for (int k = 0; k < 4; k++) check_event(&b, 0, bucket_of(&b, k)->reduce_task, times[k], times[k] + 328);
    check_event(&b, 0, bucket_of(&b, 2)->update_task, 2700, 2750);
    check_event(&b, 0, -1, 2750, 2956);
    check_event(&b, 0, bucket_of(&b, 3)->update_task, 2956, 3006);
    tear_down_replayer(&b);
}

/* The last bucket is through before the first ones are updated: the step is as long as its tasks. */
static void a_fast_wire_leaves_the_updates(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 2, 1);
    b.cluster.link_bytes_per_s = 1e9; /* 128 ns a bucket */
    const tandem_replay replay = open_and_run(&b, FOUR_BUCKETS);
    assert_int_equal(replay.step_ns, 2800);
    check_class_replayer(&replay, 0, 2800, 0, 0);
    assert_null(event_of(&b, 0, -1));
    check_event(&b, 0, bucket_of(&b, 3)->reduce_task, 2600, 2728);
    check_event(&b, 0, bucket_of(&b, 0)->update_task, 2600, 2650);
    check_event(&b, 0, bucket_of(&b, 2)->update_task, 2700, 2750);
    check_event(&b, 0, bucket_of(&b, 3)->update_task, 2750, 2800);
    tear_down_replayer(&b);
}

/* After the first step both have updates left; the slightly faster class gains 2800 ns a step until it
 * waits. */
static void a_slight_gain_adds_up_to_a_wait(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx512", "", (costing){.times = 1000});
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1001});
    add_class(&b, "cpu:avx512", 1, 1);
    add_class(&b, "cpu:avx2", 1, 1);
    b.cluster.link_bytes_per_s = 1e9; /* 128 ns a bucket */
    const tandem_replay replay = open_and_run(&b, FOUR_BUCKETS);
    assert_int_equal(replay.step_ns, 2802800);
    check_class_replayer(&replay, 0, 2800000, 128, 2672);
    check_class_replayer(&replay, 1, 2802800, 0, 0);
    assert_int_equal(replay.slowest, 1);
    tear_down_replayer(&b);
}

static void compute_and_wire_slow_each_other(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 2, 1);
    replay_store_put_curve(&b.profile, "2*cpu:avx2", 0, 128, 328);
    replay_store_put_curve(&b.profile, "2*cpu:avx2", 1, 128, 656);
    /* the curve is measured, so this must be, too */
    assert_int_equal(try_open(&b, FOUR_BUCKETS), TANDEM_MISSING);
    assert_non_null(strstr(b.error.text, "compute_under_comm"));
    assert_null(b.replayer);
    assert_int_equal(tandem_store_put_interference(b.profile.store, "cpu:avx2", "2*cpu:avx2",
                                                   "compute_under_comm", 128, 2, 1, NULL),
                     TANDEM_OK);
    const tandem_replay replay = open_and_run(&b, FOUR_BUCKETS);
    /* As before until 1350: bucket 0 takes 656 until 2006, and compute is twice as slow meanwhile: wgrad
     * head to 1950; bucket 1 until 2662; dgrad head to 2350; dgrad relu: 156 of its 200 by 2662, the rest
     * by 2706; wgrad fc1.bias to 3006: bucket 2 until 3662; wgrad fc1 to 3606: bucket 3 from 3662; updates
     * 0 to 2 until 3906; bucket 3 has done 244/656 by then, and the rest takes 412/656 of 328 ns. */
    assert_int_equal(replay.step_ns, 4112);
    check_class_replayer(&replay, 0, 3906, 206, 0);
    check_event(&b, 0, bucket_of(&b, 3)->reduce_task, 3612, 4062);
    check_event(&b, 0, bucket_of(&b, 0)->update_task, 3556, 3656);
    tear_down_replayer(&b);
}

static void slow_compute(bench *b, uint64_t bytes, double factor)
{
    assert_int_equal(tandem_store_put_interference(b->profile.store, "cpu:avx2", "2*cpu:avx2",
                                                   "compute_under_comm", bytes, factor, 1, NULL),
                     TANDEM_OK);
}

/* Buckets of two sizes, each of which slows compute by a factor of its own: as one factor would that costs as
 * much time. */
/* A curve under load that lies below the other one counts as that. */
static void computation_makes_no_all_reduce_faster(void **state)
{
    bench b;
    costing p = {.times = 1};
    double idle_ns = 0, loaded_ns = 0;
    set_up_replayer(&b);
    replay_store_fill(&b.profile, b.graph, TANDEM_F32, ONE_BUCKET, "cpu:avx2", "", cost_replayer, &p);
    add_class(&b, "cpu:avx2", 2, 1);
    replay_store_put_curve(&b.profile, "2*cpu:avx2", 0, 1 << 20, 5000);
    replay_store_put_curve(&b.profile, "2*cpu:avx2", 1, 1 << 20, 4000);
    slow_compute(&b, 1 << 20, 1);
    (void)open_and_run(&b, ONE_BUCKET);
    tandem_replayer_bucket_ns(b.replayer, 0, &idle_ns, &loaded_ns);
    assert_true(idle_ns > 0 && loaded_ns == idle_ns);
    tear_down_replayer(&b);
}

static void each_size_slows_compute_by_its_own(void **state)
{
    enum { TWO_SIZES = 200, SMALL = 4, LARGE = 2 };
    bench b;
    costing p = {.times = 1};
    set_up_replayer(&b);
    replay_store_fill(&b.profile, b.graph, TANDEM_F32, TWO_SIZES, "cpu:avx2", "", cost_replayer, &p);
    add_class(&b, "cpu:avx2", 2, 1);
    for (int loaded = 0; loaded < 2; loaded++) {
        replay_store_put_curve(&b.profile, "2*cpu:avx2", loaded, 100, 50);
        replay_store_put_curve(&b.profile, "2*cpu:avx2", loaded, 300, 150);
    }
    slow_compute(&b, 128, SMALL);
    slow_compute(&b, 256, LARGE);
    const int64_t step_ns = open_and_run(&b, TWO_SIZES).step_ns;
    double all_ns = 0, computed_ns = 0;
    int n_small = 0;
    const tandem_step *step = tandem_replayer_step(b.replayer, 0);
    for (int k = 0; k < step->n_bucket; k++) {
        const double bytes = 4 * (double)step->bucket[k].elements, ns = bytes / 2;
        n_small += bytes < 192;
        all_ns += ns;
        computed_ns += ns / (bytes < 192 ? SMALL : LARGE);
    }
    assert_true(n_small > 0 && n_small < step->n_bucket);
    tandem_replayer_close(b.replayer);
    slow_compute(&b, 128, all_ns / computed_ns);
    slow_compute(&b, 256, all_ns / computed_ns);
    assert_int_equal(open_and_run(&b, TWO_SIZES).step_ns, step_ns);
    tandem_replayer_close(b.replayer);
    slow_compute(&b, 128, LARGE);
    slow_compute(&b, 256, LARGE);
    assert_true(open_and_run(&b, TWO_SIZES).step_ns < step_ns);
    tear_down_replayer(&b);
}

/* --- Ranks on one node ---------------------------------------------------------------------------------- */

static void co_runners_slow_each_other_while_both_compute(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx512", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx512", "cpu:avx2", (costing){.times = 2});
    put_costs(&b, "cpu:avx2", "", (costing){.times = 2});
    put_costs(&b, "cpu:avx2", "cpu:avx512", (costing){.times = 4});
    add_class(&b, "cpu:avx512", 1, 0);
    add_class(&b, "cpu:avx2", 1, 0);
    b.cluster.link_bytes_per_s = 1e9;
    b.cluster.link_latency_ns = 100;
    const tandem_replay replay = open_and_run(&b, ONE_BUCKET);
    /* class 0 beside class 1: 2 × 2650; class 1 has done half of its list by then; the other half alone:
     * 2650 */
    assert_int_equal(replay.step_ns, 3 * ONE_STEP + 520);
    check_class_replayer(&replay, 0, 2 * ONE_STEP, 520, ONE_STEP);
    check_class_replayer(&replay, 1, 3 * ONE_STEP, 520, 0);
    /* on nodes of their own they do not notice each other */
    tandem_replayer_close(b.replayer);
    b.cluster.classes[0].per_node = b.cluster.classes[1].per_node = 1;
    assert_int_equal(open_and_run(&b, ONE_BUCKET).step_ns, 2 * ONE_STEP + 520);
    tear_down_replayer(&b);
}

static void ranks_of_a_class_are_their_own_co_runners(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx2", "cpu:avx2", (costing){.times = 3});
    add_class(&b, "cpu:avx2", 2, 0);
    b.cluster.link_bytes_per_s = 1e9;
    b.cluster.link_latency_ns = 100;
    tandem_replay replay = open_and_run(&b, ONE_BUCKET);
    assert_int_equal(replay.step_ns, 3 * ONE_STEP + 520);
    check_class_replayer(&replay, 0, 3 * ONE_STEP, 520, 0);
    /* two classes of one rank each are the same thing */
    tandem_replayer_close(b.replayer);
    b.cluster.n_class = 0;
    add_class(&b, "cpu:avx2", 1, 0);
    add_class(&b, "cpu:avx2", 1, 0);
    replay = open_and_run(&b, ONE_BUCKET);
    assert_int_equal(replay.step_ns, 3 * ONE_STEP + 520);
    check_class_replayer(&replay, 0, 3 * ONE_STEP, 520, 0);
    check_class_replayer(&replay, 1, 3 * ONE_STEP, 520, 0);
    assert_int_equal(replay.slowest, 0);
    tear_down_replayer(&b);
}

/* --- What is missing ------------------------------------------------------------------------------------ */

static void check_says(const bench *b, const char *const *part)
{
    for (; *part; part++)
        if (!strstr(b->error.text, *part)) fail_msg("'%s' is not in: %s", *part, b->error.text);
}

static void a_missing_cost_is_named_where_a_plan_needs_it(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1, .without = fc1_int8});
    add_class(&b, "cpu:avx2", 1, 0);
    assert_int_equal(open_and_run(&b, ONE_BUCKET).step_ns, ONE_STEP);
    const int fc1 = op_named_replayer(&b, "fc1");
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_INT8);
    tandem_replay replay = {.step_ns = 77};
    for (int again = 0; again < 2; again++) {
        b.error = (tandem_error){0};
        assert_int_equal(tandem_replayer_run(b.replayer, &replay, TANDEM_REPLAY_MEMORY, &b.error),
                         TANDEM_MISSING);
        assert_int_equal(b.error.status, TANDEM_MISSING);
        assert_int_equal(replay.step_ns, 77);
        check_says(&b, (const char *const[]){"cpu:avx2", "linear m=4 k=4 n=4", "int8", "forward",
                                             "(forward of fc1)", NULL});
    }
    tandem_replayer_set(b.replayer, 0, fc1, TANDEM_PRECISION_FP32);
    assert_int_equal(run_replayer(&b, 0).step_ns, ONE_STEP);
    tear_down_replayer(&b);
}

static void a_missing_contended_time_is_missing(void **state)
{
    bench b;
    set_up_replayer(&b);
    put_costs(&b, "cpu:avx512", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx512", "cpu:avx2", (costing){.times = 1});
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    put_costs(&b, "cpu:avx2", "cpu:avx512",
              (costing){.times = 1,
                        .without = "relu n=16 | fp32 | dgrad | "
                                   "f32>f32"});
    add_class(&b, "cpu:avx512", 1, 0);
    add_class(&b, "cpu:avx2", 1, 0);
    b.cluster.link_bytes_per_s = 1e9;
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_OK);
    tandem_replay replay;
    assert_int_equal(tandem_replayer_run(b.replayer, &replay, 0, &b.error), TANDEM_MISSING);
    check_says(&b, (const char *const[]){
                       "relu n=16 | fp32 | dgrad | f32>f32", "on cpu:avx2 beside a busy cpu:avx512",
                       "`tandem profile --model mlp:", "--batch 4 --device cpu:avx2,cpu:avx512`", NULL});
    tear_down_replayer(&b);
}

static void what_nothing_was_measured_of_is_refused_at_once(void **state)
{
    bench b;
    set_up_replayer(&b);
    add_class(&b, "cpu:avx2", 1, 0);
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_MISSING);
    check_says(&b,
               (const char *const[]){"cpu:avx2", "tandem profile --model mlp:", "--device cpu:avx2", NULL});
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 1);
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_MISSING); /* two ranks, no curve, no link */
    check_says(&b, (const char *const[]){"2*cpu:avx2", "net=", NULL});
    assert_null(b.replayer);
    tear_down_replayer(&b);
}

/* Half of the bytes travel; what a device takes to cast them is added, of the slowest one. Curves of f32 are
 * not taken for bf16. */
static void narrow_buckets_travel_faster_and_are_cast(void **state)
{
    tandem_cluster cluster;
    tandem_error error = {0};
    tandem_graph *graph = NULL;
    tandem_replayer *replayer[2] = {NULL, NULL};
    double idle_ns[2], loaded_ns, cast_ns = 0;
    require_ok(tandem_cluster_parse(&cluster, "t4@1 batch=4 + v100@1 batch=4 net=1GB/s,0s", &error), &error);
    require_ok(tandem_graph_open(&graph, "mlp:width=2048", 4, &error), &error);
    const tandem_graph *const graphs[] = {graph, graph};
    const tandem_replayer_options options = {.predict = 1};
    for (int k = 0; k < 2; k++) {
        cluster.wire = k ? TANDEM_BF16 : TANDEM_F32;
        require_ok(tandem_replayer_open_with(&replayer[k], &cluster, graphs, NULL, &options, &error), &error);
        tandem_replayer_bucket_ns(replayer[k], 0, &idle_ns[k], &loaded_ns);
        assert_true(idle_ns[k] == loaded_ns);
    }
    const int64_t elements = tandem_replayer_step(replayer[0], 0)->bucket[0].elements;
    for (int c = 0; c < 2; c++) {
        tandem_latency *latency = NULL;
        tandem_cost_key key = {
            .kind = TANDEM_COST_CAST, .precision = "", .to = TANDEM_BF16, .elements = elements};
        require_ok(tandem_latency_open(&latency, &cluster.classes[c].device, "", NULL, &error), &error);
        double of_device_ns = (double)tandem_latency_ns(latency, &key, NULL);
        key.from = TANDEM_BF16;
        key.to = TANDEM_F32;
        of_device_ns += (double)tandem_latency_ns(latency, &key, NULL);
        cast_ns = fmax(cast_ns, of_device_ns);
        tandem_latency_close(latency);
    }
    assert_true(fabs(idle_ns[0] - 4.0 * (double)elements) < 1);
    assert_true(cast_ns > 1000 && fabs(idle_ns[1] - (2.0 * (double)elements + 2 + cast_ns)) < 1);
    for (int k = 0; k < 2; k++) tandem_replayer_close(replayer[k]);
    tandem_graph_close(graph);
}

static void classes_must_run_one_model_at_their_batch(void **state)
{
    bench b;
    set_up_replayer(&b);
    tandem_graph *other = NULL;
    put_costs(&b, "cpu:avx2", "", (costing){.times = 1});
    add_class(&b, "cpu:avx2", 1, 1);
    add_class(&b, "cpu:avx2", 1, 1);
    b.cluster.link_bytes_per_s = 1e9;
    assert_int_equal(tandem_graph_open(&other, "mlp", 4, NULL), TANDEM_OK);
    b.graphs[1] = other;
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_WRONG_MODEL);
    b.graphs[1] = b.graph;
    b.cluster.classes[1].batch = 5;
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_WRONG_MODEL);
    b.cluster.classes[1].batch = 4;
    assert_int_equal(try_open(&b, ONE_BUCKET), TANDEM_OK);
    tandem_graph_close(other);
    tear_down_replayer(&b);
}

/* --- Collectives ---------------------------------------------------------------------------------------- */

static void curves_are_straight_between_points(void **state)
{
    const tandem_collective_point point[] = {{1000, replay_cost(500, 0)},
                                             {2000, replay_cost(700, 0)},
                                             {4000, replay_cost(1700, 0)},
                                             {5000, replay_cost(1600, 0)}};
    tandem_collective_line line = {.latency_ns = 100, .ns_per_byte = 0.3};
    assert_true(tandem_collective_curve_ns(point, 3, &line, 1) == 500);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 1000) == 500);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 1500) == 600);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 2000) == 700);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 3000) == 1200);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 4000) == 1700);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 4001) == 1700);
    assert_true(tandem_collective_curve_ns(point, 3, &line, 6000) == 1900);
    assert_true(tandem_collective_curve_ns(point, 4, &line, 4500) == 1650);
    line.ns_per_byte = 0.1;
    /* never shorter the more there is to send */
    assert_true(tandem_collective_curve_ns(point, 4, &line, 9000) == 1600);
}

static void the_upper_part_of_a_curve_is_fitted(void **state)
{
    tandem_collective_point point[12];
    tandem_collective_line line;
    /* 1000 ns + 2 ns a byte from 16 KiB on, ten times faster below, where caches help */
    for (int i = 0; i < 12; i++) {
        const uint64_t bytes = UINT64_C(1) << (i + 8);
        point[i] = (tandem_collective_point){
            bytes, replay_cost((int64_t)(i < 6 ? 1000 + bytes / 5 : 1000 + 2 * bytes), 0)};
    }
    assert_int_equal(tandem_collective_fit(&line, point, 12, NULL), TANDEM_OK);
    assert_true(fabs(line.latency_ns - 1000) < 1 && fabs(line.ns_per_byte - 2) < 1e-6 && line.spread < 1e-6);
    point[11].cost = replay_cost(50 * 1000 * 1000, 0); /* the last point was interrupted: 48 times its time */
    assert_int_equal(tandem_collective_fit(&line, point, 12, NULL), TANDEM_OK);
    assert_true(line.latency_ns < 1100 && fabs(line.ns_per_byte - 2) < 0.05);
    /* 256 B, 512 B: a fifth of a ns a byte */
    assert_int_equal(tandem_collective_fit(&line, point, 2, NULL), TANDEM_OK);
    assert_true(fabs(line.latency_ns - 1000) < 2 && fabs(line.ns_per_byte - 0.2) < 0.01);
    assert_int_equal(tandem_collective_fit(&line, point, 1, NULL), TANDEM_OK);
    /* of no bytes: all of its time is latency */
    const tandem_collective_point nothing = {.cost = {.n = 1, .sum_ns = 500}};
    assert_int_equal(tandem_collective_fit(&line, &nothing, 1, NULL), TANDEM_OK);
    assert_true(fabs(line.latency_ns - 500) < 1 && fabs(line.ns_per_byte) < 1e-9);
    assert_int_equal(tandem_collective_fit(&line, point, 1, NULL), TANDEM_OK);
    assert_true(line.latency_ns <= 0 && fabs(line.ns_per_byte - 1051.0 / 256) < 1e-9);
    point[1].cost = replay_cost(500, 0); /* falling: flat */
    assert_int_equal(tandem_collective_fit(&line, point, 2, NULL), TANDEM_OK);
    assert_true(line.ns_per_byte >= 0 && line.latency_ns >= 500);
}

/* --- Plans with and without a loss scale --------------------------------------------------------------- */

static tandem_replayer *described_replayer(bench *b, int with_norm, int as_needed)
{
    tandem_replayer *made = NULL;
    const tandem_replayer_options options = {
        .predict = 1, .step.with_norm = with_norm, .norm_as_needed = as_needed};
    require_ok(tandem_replayer_open_with(&made, &b->cluster, b->graphs, NULL, &options, &b->error),
               &b->error);
    return made;
}

static int64_t described_step_ns(tandem_replayer *replayer, bench *b)
{
    tandem_replay replay;
    require_ok(tandem_replayer_run(replayer, &replay, TANDEM_REPLAY_MEMORY, &b->error), &b->error);
    return replay.step_ns;
}

/* Of all precisions of one operator on either card: the norm is in the step where a backward product reads
 * f16, and nowhere else. On a t4 that is fp16 and int8, on an l4 fp16 alone: its AMP dtype is bf16. */
static void each_plan_has_the_norm_that_it_needs(void **state)
{
    bench b;
    set_up_replayer(&b);
    require_ok(tandem_cluster_parse(&b.cluster, "t4@1 batch=4 + l4@1 batch=4 net=1GB/s,0s", &b.error),
               &b.error);
    tandem_replayer *const with = described_replayer(&b, 1, 0), *const without = described_replayer(&b, 0, 0),
                           *const needed = described_replayer(&b, 0, 1),
                           *const all[] = {with, without, needed};
    int op = -1, n_needed = 0;
    assert_int_equal(tandem_graph_find(&op, b.graph, "fc1", NULL), TANDEM_OK);
    for (int c = 0; c < 2; c++)
        for (int p = 0; p < TANDEM_N_PRECISION; p++) {
            if (!(b.cluster.classes[c].device.precisions >> p & 1)) continue;
            const int needs = p == TANDEM_PRECISION_FP16 || (c == 0 && p == TANDEM_PRECISION_INT8);
            for (int r = 0; r < 3; r++) tandem_replayer_set(all[r], c, op, (tandem_precision)p);
            const int64_t with_ns = described_step_ns(with, &b), without_ns = described_step_ns(without, &b);
            assert_true(with_ns > without_ns);
            assert_int_equal(tandem_replayer_needs_loss_scale(needed), needs);
            assert_int_equal(described_step_ns(needed, &b), needs ? with_ns : without_ns);
            assert_int_equal(tandem_replayer_step(needed, c)->options.with_norm, needs);
            assert_int_equal(tandem_replayer_get(needed, c, op), p);
            for (int r = 0; r < 3; r++) tandem_replayer_set(all[r], c, op, TANDEM_PRECISION_FP32);
            n_needed += needs;
        }
    assert_int_equal(n_needed, 3);
    /* a time that is set holds for plans of either kind, also for tasks that follow the norm */
    const tandem_step *step = tandem_replayer_step(needed, 0);
    const int update = step->bucket[0].update_task;
    const int64_t update_ns = tandem_replayer_task_ns(needed, 0, update, 0),
                  before_ns[] = {described_step_ns(without, &b), described_step_ns(with, &b)};
    tandem_replayer_set_variant_ns(needed, 0, update, 0, 0, update_ns + 1000000);
    tandem_replayer_set_variant_ns(needed, 1, update, 0, 0, update_ns + 1000000);
    assert_true(described_step_ns(needed, &b) > before_ns[0] + 900000);
    tandem_replayer_set(needed, 0, op, TANDEM_PRECISION_FP16);
    tandem_replayer_set(with, 0, op, TANDEM_PRECISION_FP16);
    assert_int_equal(tandem_replayer_task_ns(needed, 0, update + 1, 0), update_ns + 1000000);
    assert_true(described_step_ns(needed, &b) > described_step_ns(with, &b) + 900000);
    assert_null(tandem_replayer_of_norm(with, 1));
    for (int r = 0; r < 3; r++) tandem_replayer_close(all[r]);
    tear_down_replayer(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_plan_has_the_norm_that_it_needs),
        cmocka_unit_test(a_rank_alone_takes_the_sum_of_its_tasks),
        cmocka_unit_test(a_straggler_is_waited_for),
        cmocka_unit_test(zero_shares_out_a_bucket),
        cmocka_unit_test(zero_keeps_three_buckets_of_weights),
        cmocka_unit_test(a_precision_changes_its_tasks_and_is_undone),
        cmocka_unit_test(a_task_says_its_time),
        cmocka_unit_test(a_task_may_take_another_time),
        cmocka_unit_test(an_all_reduce_may_take_another_time),
        cmocka_unit_test(memory_is_what_the_memory_plan_says),
        cmocka_unit_test(the_faster_class_waits_for_the_slower),
        cmocka_unit_test(buckets_overlap_with_backward),
        cmocka_unit_test(a_fast_wire_leaves_the_updates),
        cmocka_unit_test(a_slight_gain_adds_up_to_a_wait),
        cmocka_unit_test(compute_and_wire_slow_each_other),
        cmocka_unit_test(computation_makes_no_all_reduce_faster),
        cmocka_unit_test(each_size_slows_compute_by_its_own),
        cmocka_unit_test(co_runners_slow_each_other_while_both_compute),
        cmocka_unit_test(ranks_of_a_class_are_their_own_co_runners),
        cmocka_unit_test(a_missing_cost_is_named_where_a_plan_needs_it),
        cmocka_unit_test(a_missing_contended_time_is_missing),
        cmocka_unit_test(what_nothing_was_measured_of_is_refused_at_once),
        cmocka_unit_test(classes_must_run_one_model_at_their_batch),
        cmocka_unit_test(narrow_buckets_travel_faster_and_are_cast),
        cmocka_unit_test(curves_are_straight_between_points),
        cmocka_unit_test(the_upper_part_of_a_curve_is_fitted),
    };
    return cmocka_run_group_tests_name("replayer", tests, NULL, NULL);
}
