/* folder: replayer */
/* Where the replayer's times come from: measured, else from other batches; counted by origin. */
#include "tandem/advanced/replayer.h"
#include "tests/support/replay_store.h"
#include "tests/support/tandem_test.h"

static const char model[] = "mlp:width=4,depth=1,image=2x2x1,classes=2";
static const char device[] = "cpu:avx2";

/* Cost of everything at a batch; the optimizer, whose key knows no batch, is UPDATE. */
typedef struct batch_cost {
    int64_t ns;
    uint64_t workspace_bytes;
} batch_cost;
enum { UPDATE = 7 };

static int64_t cost_from_table(void *context, const tandem_cost_key *key, uint64_t *workspace_bytes)
{
    const batch_cost *p = context;
    *workspace_bytes =
        key->pass == TANDEM_PASS_FORWARD && key->kind == TANDEM_COST_OP ? p->workspace_bytes : 0;
    return key->pass == TANDEM_PASS_UPDATE ? UPDATE : p->ns;
}

static void measure_beside(replay_store *s, const char *name, int64_t batch, const char *co_runner,
                           batch_cost p)
{
    tandem_graph *graph = NULL;
    assert_int_equal(tandem_graph_open(&graph, name, batch, NULL), TANDEM_OK);
    replay_store_fill(s, graph, TANDEM_F32, 0, device, co_runner, cost_from_table, &p);
    tandem_graph_close(graph);
}

static void measure_costs(replay_store *s, int64_t batch, int64_t ns)
{
    measure_beside(s, model, batch, "", (batch_cost){ns, 0});
}

/* A replayer of one rank at `batch`, that has run. */
typedef struct opened {
    tandem_graph *graph;
    tandem_replayer *replayer;
    tandem_replay replay;
    tandem_provenance provenance;
    tandem_error error;
} opened;

static tandem_status open_at(opened *o, const replay_store *s, int64_t batch)
{
    *o = (opened){0};
    tandem_cluster cluster = {.n_class = 1, .classes = {replay_class(device, TANDEM_F32, 1, 0)}};
    assert_int_equal(tandem_graph_open(&o->graph, model, batch, NULL), TANDEM_OK);
    const tandem_graph *graph[] = {o->graph};
    tandem_status status = tandem_replayer_open(&o->replayer, &cluster, graph, s->store, 0, &o->error);
    if (status == TANDEM_OK)
        status = tandem_replayer_run(o->replayer, &o->replay, TANDEM_REPLAY_MEMORY, &o->error);
    if (status == TANDEM_OK) tandem_replayer_provenance(o->replayer, 0, &o->provenance);
    return status;
}

static void close_it(opened *o)
{
    tandem_replayer_close(o->replayer);
    tandem_graph_close(o->graph);
}

/* Every task but the update takes `ns` and has that origin. The step has 15 others. */
enum { N_OTHER = 15 };
static void check_costs(const replay_store *s, int64_t batch, int64_t ns, tandem_origin origin)
{
    opened o;
    if (open_at(&o, s, batch) != TANDEM_OK) fail_msg("%s", o.error.text);
    assert_int_equal(o.replay.step_ns, N_OTHER * ns + UPDATE);
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) {
        const int is_update = k == TANDEM_ORIGIN_MEASURED, is_other = k == (int)origin;
        assert_int_equal(o.provenance.n_task[k], (is_update ? 1 : 0) + (is_other ? N_OTHER : 0));
        assert_int_equal(o.provenance.ns[k], (is_update ? UPDATE : 0) + (is_other ? N_OTHER * ns : 0));
    }
    close_it(&o);
}

/* --- Lines ---------------------------------------------------------------------------------------------- */

static void between_two_batches_lies_a_line(void **state)
{
    replay_store s = {.path = ""};
    replay_store_open(&s);
    measure_costs(&s, 2, 120);
    measure_costs(&s, 8, 180);
    check_costs(&s, 2, 120, TANDEM_ORIGIN_MEASURED);
    check_costs(&s, 8, 180, TANDEM_ORIGIN_MEASURED);
    check_costs(&s, 4, 140, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 7, 170, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 16, 260, TANDEM_ORIGIN_EXTRAPOLATED); /* 100 + 10 a sample: never in proportion, 360 */
    check_costs(&s, 1, 110, TANDEM_ORIGIN_EXTRAPOLATED);
    replay_store_close(&s);
}

static void of_several_batches_the_nearest_count(void **state)
{
    replay_store s = {.path = ""};
    replay_store_open(&s);
    measure_costs(&s, 2, 4);
    measure_costs(&s, 4, 16);
    measure_costs(&s, 16, 256);
    measure_costs(&s, 20, 400);
    check_costs(&s, 3, 10, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 8, 96, TANDEM_ORIGIN_INTERPOLATED);   /* 16 + 4 · 240 / 12 */
    check_costs(&s, 30, 760, TANDEM_ORIGIN_EXTRAPOLATED); /* 400 + 10 · 36 */
    check_costs(&s, 1, 2, TANDEM_ORIGIN_EXTRAPOLATED);    /* a fixed part of −8 counts as none: half of 4 */
    replay_store_close(&s);
}

static void a_falling_line_is_not_followed_upwards(void **state)
{
    replay_store s = {.path = ""};
    replay_store_open(&s);
    measure_costs(&s, 2, 300);
    measure_costs(&s, 8, 240);
    check_costs(&s, 4, 280, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 100, 240, TANDEM_ORIGIN_EXTRAPOLATED);
    check_costs(&s, 1, 300, TANDEM_ORIGIN_EXTRAPOLATED);
    replay_store_close(&s);
}

/* More batches than are looked at: those around it are, wherever they are. */
static void the_nearest_of_many_are_found(void **state)
{
    replay_store s = {.path = ""};
    replay_store_open(&s);
    for (int64_t batch = 2; batch <= 60; batch += 2) measure_costs(&s, batch, batch * batch);
    check_costs(&s, 1, 2, TANDEM_ORIGIN_EXTRAPOLATED);
    check_costs(&s, 3, 10, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 31, (30 * 30 + 32 * 32) / 2, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 59, (58 * 58 + 60 * 60) / 2, TANDEM_ORIGIN_INTERPOLATED);
    check_costs(&s, 61, 3600 + 59 * 2, TANDEM_ORIGIN_EXTRAPOLATED);
    replay_store_close(&s);
}

static void workspace_is_the_larger_of_the_two(void **state)
{
    const struct {
        int64_t batch;
        uint64_t min_bytes, max_bytes;
    } rows[] = {{2, 1024, 1024},
                {4, 5120, 5120},
                {8, 5120, 5120},
                {1, 5120, 5120},
                {14, 9216, 9280}}; /* multiples of 64 */
    replay_store s = {.path = ""};
    replay_store_open(&s);
    measure_beside(&s, model, 2, "", (batch_cost){10, 1024});
    measure_beside(&s, model, 8, "", (batch_cost){10, 5120});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        opened o;
        assert_int_equal(open_at(&o, &s, rows[i].batch), TANDEM_OK);
        assert_in_range(tandem_replayer_memory(o.replayer, 0)->workspace, rows[i].min_bytes,
                        rows[i].max_bytes);
        close_it(&o);
    }
    replay_store_close(&s);
}

/* --- What stays missing --------------------------------------------------------------------------------- */

static void one_batch_says_nothing_about_another(void **state)
{
    replay_store s = {.path = ""};
    opened o;
    replay_store_open(&s);
    measure_costs(&s, 8, 180);
    assert_int_equal(open_at(&o, &s, 4), TANDEM_MISSING);
    assert_non_null(strstr(o.error.text, "has not been measured, nor have 14 more tasks of this plan"));
    close_it(&o);
    replay_store_close(&s);
}

/* Its samples and labels are measured at two batches; its operators are not. */
static void another_model_with_the_same_input_lends_only_what_is_equal(void **state)
{
    static const char amp_dtype[] = "mlp:width=8,depth=1,image=2x2x1,classes=2";
    replay_store s = {.path = ""};
    opened o;
    replay_store_open(&s);
    measure_beside(&s, amp_dtype, 2, "", (batch_cost){120, 0});
    measure_beside(&s, amp_dtype, 8, "", (batch_cost){180, 0});
    assert_int_equal(open_at(&o, &s, 4), TANDEM_MISSING);
    assert_non_null(strstr(o.error.text, "linear m=4 k=4 n=4 | fp32 | forward"));
    close_it(&o);
    measure_costs(&s, 1, 110);
    measure_costs(&s, 5, 150);
    check_costs(&s, 3, 130, TANDEM_ORIGIN_INTERPOLATED);
    replay_store_close(&s);
}

static void a_model_that_was_never_measured_is_refused(void **state)
{
    replay_store s = {.path = ""};
    opened o;
    replay_store_open(&s);
    assert_int_equal(open_at(&o, &s, 4), TANDEM_MISSING);
    assert_non_null(strstr(o.error.text, "nothing of model mlp:width=4"));
    assert_non_null(strstr(o.error.text, "tandem profile --model mlp:width=4"));
    close_it(&o);
    replay_store_close(&s);
}

/* --- Company -------------------------------------------------------------------------------------------- */

/* Alone measured, beside its own kind only at other batches: tasks count by the less certain of the two. */
static void the_less_certain_of_two_times_counts(void **state)
{
    replay_store s = {.path = ""};
    opened o = {0};
    replay_store_open(&s);
    measure_costs(&s, 4, 100);
    measure_beside(&s, model, 2, "cpu:avx512", (batch_cost){200, 0});
    measure_beside(&s, model, 6, "cpu:avx512", (batch_cost){400, 0});
    tandem_cluster cluster = {
        .n_class = 2,
        .classes = {replay_class(device, TANDEM_F32, 1, 0), replay_class("cpu:avx512", TANDEM_F32, 1, 0)},
        .link_bytes_per_s = 1e9};
    assert_int_equal(tandem_graph_open(&o.graph, model, 4, NULL), TANDEM_OK);
    for (int contended = 0; contended < 2; contended++) {
        batch_cost p = {50, 0};
        replay_store_fill(&s, o.graph, TANDEM_F32, 0, "cpu:avx512", contended ? device : "", cost_from_table,
                          &p);
    }
    const tandem_graph *graph[] = {o.graph, o.graph};
    assert_int_equal(tandem_replayer_open_with(&o.replayer, &cluster, graph, s.store, NULL, &o.error),
                     TANDEM_OK);
    assert_int_equal(tandem_replayer_run(o.replayer, &o.replay, 0, &o.error), TANDEM_OK);
    tandem_replayer_provenance(o.replayer, 0, &o.provenance);
    assert_int_equal(o.provenance.n_task[TANDEM_ORIGIN_INTERPOLATED], N_OTHER);
    assert_int_equal(o.provenance.ns[TANDEM_ORIGIN_INTERPOLATED], N_OTHER * 300);
    assert_int_equal(o.provenance.n_task[TANDEM_ORIGIN_MEASURED], 1);
    tandem_replayer_provenance(o.replayer, 1, &o.provenance);
    assert_int_equal(o.provenance.n_task[TANDEM_ORIGIN_MEASURED], N_OTHER + 1);
    close_it(&o);
    replay_store_close(&s);
}

static void origins_have_names(void **state)
{
    for (int k = 0; k < TANDEM_N_ORIGIN; k++) {
        assert_true(strlen(tandem_origin_name((tandem_origin)k)) > 0);
        for (int j = 0; j < k; j++)
            assert_string_not_equal(tandem_origin_name((tandem_origin)j),
                                    tandem_origin_name((tandem_origin)k));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two_batches_lies_a_line),
        cmocka_unit_test(of_several_batches_the_nearest_count),
        cmocka_unit_test(a_falling_line_is_not_followed_upwards),
        cmocka_unit_test(the_nearest_of_many_are_found),
        cmocka_unit_test(workspace_is_the_larger_of_the_two),
        cmocka_unit_test(one_batch_says_nothing_about_another),
        cmocka_unit_test(another_model_with_the_same_input_lends_only_what_is_equal),
        cmocka_unit_test(a_model_that_was_never_measured_is_refused),
        cmocka_unit_test(the_less_certain_of_two_times_counts),
        cmocka_unit_test(origins_have_names),
    };
    return cmocka_run_group_tests_name("costs", tests, NULL, NULL);
}
