/* folder: allocator */
/* Whether a plan holds across the interval of a ratio: tandem_answer_check_ratios against planners whose
 * times are shifted by hand; and that it changes neither the answer nor its times. */
#include <math.h>

#include "tandem/planner.h"
#include "tests/support/scored_cluster.h"
#include "tests/support/tandem_test.h"

static const char model[] = "resnet20", cards[] = "v100 + t4 net=10Gbit/s,20us";
enum { BATCH = 64 };

static costed_cluster costed;

static int set_up_ratios(void **state)
{
    tandem_error error = {0};
    (void)state;
    require_ok(costed_cluster_open(&costed, model, "cpu:avx512_bf16", BATCH, 11, NULL, &error), &error);
    scored_cluster_file(&costed, "drawn", 1);
    return 0;
}

static int tear_down_ratios(void **state)
{
    (void)state;
    costed_cluster_close(&costed);
    return 0;
}

/* Within 2 % of the fastest step the plan is one; of the training time it may be any within 1/1024. */
static const tandem_allocation_request question = {
    .without_certificate = 1, .slowdown_is_given = 1, .slowdown = 0.02};

static tandem_planner *open_cards(const char *cluster)
{
    const tandem_request request = {
        .store = costed.path, .model = model, .cluster = cluster, .batch = BATCH, .predict = 1};
    tandem_planner *planner = NULL;
    tandem_error error = {0};
    require_ok(tandem_planner_open(&planner, &request, &error), &error);
    return planner;
}

static void ask_cards(tandem_answer *answer, tandem_planner *planner)
{
    tandem_error error = {0};
    require_ok(tandem_planner_ask(answer, planner, &question, &error), &error);
}

/* All times of a class's products that cost keys say are of a precision. Sums of gradients are none. */
static void shift_by_hand(tandem_planner *planner, int c, tandem_precision precision, double factor)
{
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    const tandem_step *step = tandem_replayer_step(replayer, c);
    const char *const name = tandem_precision_get(precision)->name;
    for (int t = 0; t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_MAX_VARIANT; variant++) {
            tandem_cost_key key;
            if (!tandem_step_cost_key(step, t, variant, &key) || key.kind != TANDEM_COST_OP ||
                step->task[t].op < 0 || !tandem_op_is_adjustable(&step->graph->op[step->task[t].op]) ||
                strncmp(key.signature, "accumulate", 10) == 0 || strcmp(key.precision, name) != 0)
                continue;
            for (int contended = 0; contended < 2; contended++) {
                const int64_t ns = tandem_replayer_variant_ns(replayer, c, t, variant, contended);
                if (ns > 0)
                    tandem_replayer_set_variant_ns(replayer, c, t, variant, contended,
                                                   (int64_t)((double)ns * factor));
            }
        }
}

static int count_changed(const tandem_graph *graph, const tandem_plan *a, const tandem_plan *b)
{
    int n = 0;
    for (int c = 0; c < a->cluster.n_class; c++)
        for (int i = 0; i < graph->n_op; i++)
            n += tandem_op_is_adjustable(&graph->op[i]) &&
                 a->assignment.precision[c][i] != b->assignment.precision[c][i];
    return n;
}

static void plans_at_both_ends_are_those_of_shifted_planners(void **state)
{
    tandem_planner *planner = open_cards(cards);
    tandem_answer answer = {.plan = NULL};
    tandem_ratio_check check = {.n = 0};
    tandem_error error = {0};
    int n_flip = 0;
    (void)state;
    ask_cards(&answer, planner);
    require_ok(tandem_answer_check_ratios(&check, planner, &answer, &question, &error), &error);
    assert_true(check.n >= 4); /* two cards, two precisions each */
    for (int k = 0; k < 2 * check.n; k++) {
        const tandem_ratio_shift *shift = &check.shift[k / 2];
        const double factor = k % 2 ? 1 / (1 + shift->half) : 1 + shift->half;
        tandem_planner *by_hand = open_cards(cards);
        tandem_answer there = {.plan = NULL};
        assert_true(shift->ratio > 0 && shift->half > 0 && shift->half < 5);
        shift_by_hand(by_hand, shift->c, shift->precision, factor);
        ask_cards(&there, by_hand);
        const int changed = count_changed(tandem_planner_graph(planner, 0), answer.plan, there.plan);
        if (changed != shift->n_changed[k % 2])
            fail_msg("%s in %s x %g: %d changed, by hand %d", shift->device,
                     tandem_precision_get(shift->precision)->name, factor, shift->n_changed[k % 2], changed);
        n_flip += changed > 0;
        tandem_answer_close(&there);
        tandem_planner_close(by_hand);
    }
    assert_true(n_flip > 0 && n_flip < 2 * check.n);
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
}

static void the_answer_stays(void **state)
{
    tandem_planner *planner = open_cards(cards);
    tandem_replayer *replayer = tandem_planner_problem(planner)->replayer;
    tandem_answer answer = {.plan = NULL}, again = {.plan = NULL};
    tandem_ratio_check check = {.n = 0};
    tandem_error error = {0};
    tandem_replay replay;
    (void)state;
    ask_cards(&answer, planner);
    require_ok(tandem_answer_check_ratios(&check, planner, &answer, &question, &error), &error);
    require_ok(tandem_replayer_run(replayer, &replay, 0, &error), &error);
    assert_int_equal(replay.step_ns, answer.allocation.step_ns);
    ask_cards(&again, planner);
    assert_int_equal(count_changed(tandem_planner_graph(planner, 0), answer.plan, again.plan), 0);
    tandem_answer_close(&again);
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
}

static void measured_times_are_not_checked(void **state)
{
    tandem_planner *planner = open_cards("cpu:avx512_bf16");
    tandem_answer answer = {.plan = NULL};
    tandem_ratio_check check = {.n = 7};
    tandem_error error = {0};
    (void)state;
    ask_cards(&answer, planner);
    require_ok(tandem_answer_check_ratios(&check, planner, &answer, &question, &error), &error);
    assert_int_equal(check.n, 0);
    tandem_answer_close(&answer);
    tandem_planner_close(planner);
}

/* Forward products that were measured in both, by their cost keys. */
static double ratio_of_products(tandem_replayer *replayer, const char *narrow)
{
    const tandem_step *step = tandem_replayer_step(replayer, 0);
    double narrow_ns = 0, wide_ns = 0;
    for (int t = 0; t < step->n_task; t++)
        for (int variant = 0; variant < TANDEM_ATTENTION_VARIANT; variant++) {
            tandem_cost_key key;
            if (step->task[t].kind != TANDEM_TASK_FORWARD ||
                !tandem_op_is_adjustable(&step->graph->op[step->task[t].op]) ||
                !tandem_step_cost_key(step, t, variant, &key))
                continue;
            const double ns = (double)tandem_replayer_variant_ns(replayer, 0, t, variant, 0);
            narrow_ns += strcmp(key.precision, narrow) == 0 ? ns : 0;
            wide_ns += strcmp(key.precision, "fp32") == 0 ? ns : 0;
        }
    return narrow_ns / wide_ns;
}

static void measured_16_bit_products_are_compared_with_fp32(void **state)
{
    static const char *const clusters[] = {"cpu:avx512_bf16", "t4"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        tandem_planner *planner = open_cards(clusters[k]);
        tandem_answer answer = {.plan = NULL};
        ask_cards(&answer, planner);
        const double found = answer.sources.of[0].amp_ratio,
                     wanted = ratio_of_products(tandem_planner_problem(planner)->replayer, "bf16");
        if (k == 0)
            assert_true(wanted > 0 && fabs(found / wanted - 1) < 1e-9);
        else
            assert_true(!(found > 0)); /* predicted */
        tandem_answer_close(&answer);
        tandem_planner_close(planner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_at_both_ends_are_those_of_shifted_planners),
                                       cmocka_unit_test(the_answer_stays),
                                       cmocka_unit_test(measured_times_are_not_checked),
                                       cmocka_unit_test(measured_16_bit_products_are_compared_with_fp32)};
    return cmocka_run_group_tests_name("ratios", tests, set_up_ratios, tear_down_ratios);
}
