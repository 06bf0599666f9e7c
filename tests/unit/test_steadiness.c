/* folder: runtime */
/* Which repetitions of a profile count, at which speed and how surely; which steps of a run are kept; what a
 * comparison concludes from two errors and how surely each is known. */
#include <math.h>
#include <string.h>

#include "runtime/compare/compare_verdict.h"
#include "runtime/profile/profile_machine.h"
#include "runtime/train/run_steadiness.h"
#include "tests/support/tandem_test.h"

/* --- A profile's repetitions ---------------------------------------------------------------------------- */

static const tandem_speed_sample steady = {10000, 20000};

static key_samples cast_samples(int64_t elements)
{
    return (key_samples){.key = {.kind = TANDEM_COST_CAST,
                                 .precision = "",
                                 .elements = elements,
                                 .from = TANDEM_F32,
                                 .to = TANDEM_S8}};
}

static void add_repetitions(key_samples *key, int n, int64_t ns, int64_t delay_ns, tandem_speed_sample speed,
                            int round)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(key_samples_add(key, ns, delay_ns, &speed, round, NULL), TANDEM_OK);
}

static void disturbed_repetitions_are_dropped_and_counted(void **state)
{
    (void)state;
    key_samples key = cast_samples(16);
    add_repetitions(&key, 4, 1000, 10, steady, 0);  /* 1 %: not disturbed, but taken off */
    add_repetitions(&key, 9, 2400, 300, steady, 0); /* disturbed, below three times the median */
    add_repetitions(&key, 1, -5, -1, steady, 0);    /* a clock that went back */
    assert_int_equal(key_samples_summarise(&key, &steady, NULL), TANDEM_OK);
    assert_int_equal(key.cost.n, 4);
    assert_int_equal(key.cost.n_disturbed, 10);
    assert_int_equal(key.cost.median_ns, 990);
    assert_int_equal(key.cost.compute_speed_sample_ns, 10000);
    key_samples_free(&key);
}

/* A task that is longer than a quota's period is disturbed in every repetition. */
static void without_undisturbed_ones_all_count_less_their_delays(void **state)
{
    (void)state;
    key_samples key = cast_samples(16);
    add_repetitions(&key, 2, 1000, 0, steady, 0);
    add_repetitions(&key, 9, 2400, 1400, steady, 1);
    assert_int_equal(key_samples_summarise(&key, &steady, NULL), TANDEM_OK);
    assert_int_equal(key.cost.n, 11);
    assert_int_equal(key.cost.n_disturbed, 9);
    assert_int_equal(key.cost.median_ns, 1000);
    key_samples_free(&key);
}

static void times_are_brought_to_the_steady_speed_sample(void **state)
{
    (void)state;
    const tandem_speed_sample slow_core = {12000, 20000}, slow_memory = {10000, 30000};
    key_samples arithmetic = cast_samples(16), moving = cast_samples(1 << 24);
    add_repetitions(&arithmetic, 5, 1200000, 0, slow_core, 0); /* 80 bytes in 1 ms: no time of the memory's */
    add_repetitions(&moving, 5, 1500000, 0, slow_memory, 0);   /* 80 MiB at the sampled rate take longer */
    assert_int_equal(key_samples_summarise(&arithmetic, &steady, NULL), TANDEM_OK);
    assert_int_equal(key_samples_summarise(&moving, &steady, NULL), TANDEM_OK);
    assert_in_range(arithmetic.cost.median_ns, 999990, 1000010);
    assert_in_range(moving.cost.median_ns, 999990, 1000010);
    key_samples_free(&arithmetic);
    key_samples_free(&moving);
}

/* Repetitions of one round are alike; the rounds show how far another profile would be off. */
static void rounds_that_differ_widen_the_interval(void **state)
{
    (void)state;
    key_samples key[2] = {cast_samples(16), cast_samples(32)};
    const int key_of[3] = {0, -1, 1};
    for (int round = 0; round < 4; round++) {
        add_repetitions(&key[0], 50, 1000 + 100 * (round & 1), 0, steady, round);
        add_repetitions(&key[1], 50, 1000 - 100 * (round & 1), 0, steady, round);
    }
    for (int k = 0; k < 2; k++) assert_int_equal(key_samples_summarise(&key[k], &steady, NULL), TANDEM_OK);
    /* of 1000, 1100, 1000, 1100: a deviation of 57.7, over the root of four, times 3.18 */
    assert_true(key[0].cost.high_ns - key[0].cost.low_ns >= 183);
    /* what one task takes more, the other takes less: the plan's step is the same in every round */
    assert_float_equal(profile_interval_share(key, key_of, 3), 0, 1e-6f);
    assert_float_equal(profile_interval_share(key, key_of, 1), 0.0874f, 1e-3f);
    for (int k = 0; k < 2; k++) key_samples_free(&key[k]);
    assert_true(isnan(profile_interval_share(key, key_of, 1)));
}

static void a_steady_speed_sample_is_kept_unless_the_machine_is_another(void **state)
{
    (void)state;
    step_watch watch = {.step_delay_ns = 5, .speed_sample = {10500, 20500}};
    profile_machine machine = {.stored = steady};
    for (int k = 0; k < 8; k++) assert_int_equal(profile_machine_add(&machine, &watch, 100, NULL), TANDEM_OK);
    profile_machine_settle(&machine);
    assert_int_equal(machine.steady.compute_ns, 10000);
    const tandem_steadiness found = profile_machine_summary(&machine, 0.01);
    assert_float_equal(found.delay_share, 0.05, 1e-6f);
    assert_float_equal(found.compute_spread, 0, 1e-6f);
    watch.speed_sample = (tandem_speed_sample){15000, 20500};
    for (int k = 0; k < 24; k++)
        assert_int_equal(profile_machine_add(&machine, &watch, 100, NULL), TANDEM_OK);
    profile_machine_settle(&machine);
    assert_int_equal(machine.steady.compute_ns, 15000);
    assert_int_equal(machine.steady.memory_ns, 20500);
    watch.speed_sample.memory_ns = 200000; /* as where a host takes pages away */
    for (int k = 0; k < 8; k++) assert_int_equal(profile_machine_add(&machine, &watch, 100, NULL), TANDEM_OK);
    profile_machine_settle(&machine);
    assert_int_equal(machine.steady.memory_ns, 0);
    profile_machine_free(&machine);
}

/* Not the fastest speed samples: predictions would be of a machine that is always at its best. */
static void the_steady_speed_sample_is_a_median(void **state)
{
    (void)state;
    static const int64_t ns[] = {9000, 9000, 10000, 11000, 12000};
    profile_machine machine = {.n = 0};
    for (size_t k = 0; k < N_OF(ns); k++) {
        const step_watch watch = {.speed_sample = {ns[k], 2 * ns[k]}};
        assert_int_equal(profile_machine_add(&machine, &watch, 100, NULL), TANDEM_OK);
    }
    profile_machine_settle(&machine);
    assert_int_equal(machine.steady.compute_ns, 10000);
    assert_int_equal(machine.steady.memory_ns, 20000);
    profile_machine_free(&machine);
}

/* --- A run's steps -------------------------------------------------------------------------------------- */

enum { RUN_STEPS = 1000, RUN_TASKS = 2 };

static void kept_steps_cover_the_whole_run(void **state)
{
    (void)state;
    static int64_t task_ns[KEPT_STEPS * RUN_TASKS], task_delay_ns[KEPT_STEPS * RUN_TASKS];
    static run_steadiness out;
    int64_t start_ns[RUN_TASKS] = {0, -1}, end_ns[RUN_TASKS] = {0, -1}, delay_ns[RUN_TASKS] = {0, -1};
    const tandem_step_times times = {.start_ns = start_ns, .end_ns = end_ns};
    step_watch watch = {.n_task = RUN_TASKS, .delay_ns = delay_ns, .speed_sample = steady};
    kept_steps kept = {.task_ns = task_ns, .task_delay_ns = task_delay_ns, .n_task = RUN_TASKS};
    for (int64_t step = 0; step < RUN_STEPS; step++) {
        delay_ns[0] = step % 16 == 8 ? 50000 : 0;
        end_ns[0] = 1000 + delay_ns[0];
        watch.step_delay_ns = delay_ns[0] + 7;
        kept_steps_add(&kept, &watch, &times, 1000000 + step);
    }
    kept_steps_read(&kept, &watch, 0, &out);
    assert_in_range(out.n_step, KEPT_STEPS / 2, KEPT_STEPS);
    for (int k = 1; k < out.n_step; k++)
        assert_int_equal(out.step_ns[k] - out.step_ns[k - 1], out.step_ns[1] - out.step_ns[0]);
    assert_int_equal(out.step_ns[0], 1000000);
    assert_true(out.step_ns[out.n_step - 1] > 1000000 + RUN_STEPS * 9 / 10);
    assert_int_equal(kept_steps_task_ns(&kept, 0), 1000); /* the undisturbed ones */
    assert_int_equal(kept_steps_task_ns(&kept, 1), 0);
    int64_t in_task_ns = 0, elsewhere_ns = 0;
    for (int k = 0; k < out.n_delay; k++)
        *(out.delay[k].task == 0 ? &in_task_ns : &elsewhere_ns) += out.delay[k].ns;
    assert_int_equal(in_task_ns % 50000, 0);
    assert_true(in_task_ns > 0);
    assert_int_equal(elsewhere_ns, 7 * out.n_step);
}

/* --- Verdicts ------------------------------------------------------------------------------------------- */

static tandem_compare_speed errors(double at_run_speed, double half, double noise)
{
    return (tandem_compare_speed){.error_at_run_speed = at_run_speed,
                                  .low = at_run_speed - half,
                                  .high = at_run_speed + half,
                                  .n_step = 100,
                                  .n_undisturbed = 100,
                                  .delay_share = 0,
                                  .profile_noise = noise};
}

static void a_verdict_follows_from_errors_and_how_sure_they_are(void **state)
{
    (void)state;
    static const struct {
        double plain, at_run_speed, half, noise;
        tandem_compare_verdict verdict;
    } cases[] = {
        {0.01, 0.01, 0.005, 0.01, TANDEM_VERDICT_HOLDS},  {-0.5, 0.01, 0.005, 0.01, TANDEM_VERDICT_MOVED},
        {0.2, 0.2, 0.005, 0.01, TANDEM_VERDICT_OFF},      {-0.5, -0.2, 0.005, 0.01, TANDEM_VERDICT_OFF},
        {0.01, 0.01, 0.08, 0.01, TANDEM_VERDICT_UNKNOWN}, {0.2, 0.06, 0.005, 0.2, TANDEM_VERDICT_UNKNOWN},
        {NAN, 0.01, 0.005, 0.01, TANDEM_VERDICT_UNKNOWN}, {0.01, NAN, 0.005, 0.01, TANDEM_VERDICT_UNKNOWN},
        {0.01, 0.01, 0.005, NAN, TANDEM_VERDICT_HOLDS},   {-0.5, 0.01, 0.005, 0.2, TANDEM_VERDICT_MOVED},
        {-0.1, 0.01, 0.005, 0.2, TANDEM_VERDICT_UNKNOWN},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        tandem_compare_speed s = errors(cases[i].at_run_speed, cases[i].half, cases[i].noise);
        compare_verdict_decide(&s, cases[i].plain, 0.05, NULL, 0);
        if (s.verdict != cases[i].verdict)
            fail_msg("case %zu: %s", i, tandem_compare_verdict_name(s.verdict));
    }
    tandem_compare_speed moved = errors(0, 0.005, 0.01);
    compare_verdict_decide(&moved, -0.5, 0.05, NULL, 0);
    assert_float_equal(moved.moved_by, 1, 1e-6f);
}

static void a_verdict_that_needs_steps_says_how_many(void **state)
{
    (void)state;
    tandem_compare_speed s = errors(0.01, 0.1, 0);
    compare_verdict_decide(&s, 0.01, 0.05, NULL, 0);
    assert_in_range(s.steps_needed, 400, 402); /* half the interval: four times the steps */
    s = errors(0.01, 0.1, 0.2);
    compare_verdict_decide(&s, 0.01, 0.05, NULL, 0);
    assert_int_equal(s.steps_needed, 0); /* no run narrows the profile's interval */
}

static void a_kind_that_is_off_is_found_in_a_step_that_is_not(void **state)
{
    (void)state;
    const compare_kind kinds[] = {{"cpu:avx2", "forward", 1200, 1000, -0.03},
                                  {"cpu:avx2", "wgrad", 4800, 5000, 0.03},
                                  {"cpu:sse41", "dgrad", 3000, 5000, 0}}; /* it waits anyway */
    char text[256];
    tandem_compare_speed s = errors(0.01, 0.005, 0.01);
    compare_verdict_decide(&s, 0.01, 0.05, kinds, 3);
    assert_int_equal(s.verdict, TANDEM_VERDICT_OFF);
    assert_string_equal(s.kind, "forward");
    assert_float_equal(s.kind_error, 0.2, 1e-6f);
    assert_non_null(strstr(tandem_compare_verdict_print(text, sizeof text, &s), "forward tasks on cpu:avx2"));
    s = errors(0.01, 0.005, 0.2); /* a profile as wide as that proves nothing */
    compare_verdict_decide(&s, 0.01, 0.05, kinds, 3);
    assert_int_equal(s.verdict, TANDEM_VERDICT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disturbed_repetitions_are_dropped_and_counted),
        cmocka_unit_test(without_undisturbed_ones_all_count_less_their_delays),
        cmocka_unit_test(times_are_brought_to_the_steady_speed_sample),
        cmocka_unit_test(rounds_that_differ_widen_the_interval),
        cmocka_unit_test(a_steady_speed_sample_is_kept_unless_the_machine_is_another),
        cmocka_unit_test(the_steady_speed_sample_is_a_median),
        cmocka_unit_test(kept_steps_cover_the_whole_run),
        cmocka_unit_test(a_verdict_follows_from_errors_and_how_sure_they_are),
        cmocka_unit_test(a_verdict_that_needs_steps_says_how_many),
        cmocka_unit_test(a_kind_that_is_off_is_found_in_a_step_that_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
