/* folder: cli */
/* test_run_agreement.c: every option of `tandem train` either changes what the ranks compare when they join,
 * or is in the list of those in which they may differ; and what a checkpoint records is compared both
 * ways. */
#include <stdbool.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/train/run_agreement.h"
#include "tests/support/tandem_test.h"

/* A value of each option that is not its default. An option without a row here fails the test. */
static const struct {
    int key;
    const char *text; /* with its value; NULL: the option is free */
    const char *beside;
    const char *value; /* of the line that must change; NULL: only that it does */
} sample[] = {
    {OPTION_MODEL, "--model=mlp:width=64", NULL, "model"},
    {OPTION_SET, "--set=width=64", "--model=mlp", "model"},
    {OPTION_CLUSTER, "--cluster=cpu:sse41 + cpu:sse41", NULL, "ranks"},
    {OPTION_DEVICE, "--device=cpu:sse41", NULL, "ranks"},
    {OPTION_THREADS, "--threads=2", "--device=cpu:sse41", "ranks"},
    {OPTION_BATCH, "--batch=8", NULL, "ranks"},
    {OPTION_UNIFORM, "--uniform=int8", NULL, "precisions"},
    {OPTION_WIRE, "--wire=bf16", NULL, "gradients travel in"},
    {OPTION_BUCKET, "--bucket=1MiB", NULL, "buckets"},
    {OPTION_ZERO, "--zero=1", NULL, "ZeRO"},
    {OPTION_SHARDS, "--shards=1,3", "--zero=1", "ZeRO"},
    {OPTION_ACCUMULATE, "--accumulate=2", NULL, "micro-steps"},
    {OPTION_RECOMPUTE, "--recompute=2", NULL, "recomputed segments"},
    {OPTION_AMAX, "--amax=delayed", NULL, "scaling"},
    {OPTION_SEED, "--seed=3", NULL, "seed"},
    {OPTION_DATA_SEED, "--data-seed=3", NULL, "seed of the data"},
    {OPTION_ROUNDING_SEED, "--rounding-seed=3", NULL, "seed of rounding"},
    {OPTION_EMULATE, "--emulate", NULL, "emulated"},
    {OPTION_ERROR_SCALE, "--error-scale=2", "--emulate", "emulated"},
    {OPTION_RATE, "--lr=0.2", NULL, "learning rate"},
    {OPTION_SCHEDULE, "--schedule=cosine", NULL, "learning rate"},
    {OPTION_WARMUP, "--warmup=2", NULL, "learning rate"},
    {OPTION_DECAY, "--weight-decay=0.5", NULL, "optimizer"},
    {OPTION_MOMENTUM, "--momentum=0.5", NULL, "optimizer"},
    {OPTION_BETAS, "--betas=0.8,0.9", "--model=vit_tiny", "optimizer"},
    {OPTION_NO_DECAY, "--no-decay=fc*", NULL, "without weight decay"},
    {OPTION_CLIP, "--clip=1", NULL, "gradients clipped to"},
    {OPTION_LABEL_SMOOTHING, "--label-smoothing=0.3", NULL, "label smoothing"},
    {OPTION_LOSS_SCALE, "--loss-scale=8", NULL, "loss scale"},
    {OPTION_STEPS, "--steps=20", NULL, "steps"},
    {OPTION_EVALUATE, "--eval=7", "--data=x", "evaluation"},
    {OPTION_EVALUATE_EVERY, "--eval-every=2", "--data=x", "evaluation"},
    {OPTION_CHECKPOINT, "--checkpoint=a.ckpt", NULL, "checkpoints"},
    {OPTION_CHECKPOINT_EVERY, "--checkpoint-every=5", "--checkpoint=a.ckpt", "checkpoints"},
    {OPTION_RESUME, "--resume=a.ckpt", NULL, "resumed checkpoint"},
    {OPTION_INIT, "--init=a.safetensors", NULL, "initial weights"},
    {OPTION_EXPORT, "--export=b.safetensors", NULL, "exported weights"},
    {OPTION_OPERATORS, "--operators", NULL, "times of tasks"},
    {OPTION_TRACE, "--trace=t.json", NULL, "times of tasks"},
    {OPTION_ALLOW_NAN, "--allow-nan", NULL, "losses that are not finite"},
    {OPTION_REESTIMATE, "--reestimate=100", NULL, "sensitivities"},
    {OPTION_MAX_SENSITIVITY, "--max-sensitivity=2%", "--reestimate", "sensitivities"},
    {OPTION_DATA, NULL, NULL, "samples"}, /* their hash: see below */
    {OPTION_PLAN, NULL, NULL, "precisions"},
    {OPTION_LOSS, NULL, NULL, "model"}, /* of ONNX files: part of the model's name, as --set */
};
enum { N_SAMPLE = sizeof sample / sizeof *sample };

/* The text of a command line; data_hash represents the samples that the line names. */
static char *agreement_of(const char *const *word, uint64_t data_hash, char *config, size_t size)
{
    cli_options options;
    tandem_workload workload = {0};
    tandem_error error;
    char *argument[8] = {NULL}, *text = NULL;
    int n = 0;
    training_rank rank = {.data = {.n_train = 10, .n_test = 2}, .data_hash = data_hash};
    for (; word[n]; n++) argument[n] = strdup(word[n]);
    char *owned[8];
    memcpy(owned, argument, sizeof owned);
    cli_options_parse(&options, &command_train, n, argument);
    if (!options.model) options.model = "mlp";
    if (!options.device && !options.cluster) options.cluster = "cpu:avx2";
    tandem_train_request request;
    require_ok(cli_train_request(&request, &options, &error), &error);
    require_ok(tandem_workload_open(&workload, &request.workload, &error), &error);
    require_ok(train_config_open(&rank.config, workload.graph[0], &request, &error), &error);
    require_ok(run_agreement_make(&text, &rank, &workload, &request, &error), &error);
    if (config) train_config_print(config, size, &rank.config, &workload, &request, NULL, 0);
    tandem_workload_close(&workload);
    for (int k = 0; k < n; k++) free(owned[k]);
    return text;
}

/* The line of this key, without its end; the texts differ there if and only if they should. */
static bool is_line_equal(const char *a, const char *b, const char *key)
{
    char start[64];
    (void)snprintf(start, sizeof start, "\n%s: ", key);
    a = strstr(a, start), b = strstr(b, start);
    if (!a || !b) fail_msg("there is no line of '%s'", key);
    const size_t n = strcspn(a + 1, "\n"), m = strcspn(b + 1, "\n");
    return n == m && memcmp(a + 1, b + 1, n) == 0;
}

/* Options in which ranks may differ, because … */
static const struct {
    int key;
    const char *reason;
} free_option[] = {
    {OPTION_TIMEOUT, "each rank has its own patience"},
    {OPTION_MEMORY, "each rank compares its own limit with its plan, which changes no number"},
    {OPTION_DB, "each host has its own store; with --reestimate, rank 0 decides by its own"},
    {OPTION_LOG, "rank 0 writes it"},
    {OPTION_REPORT, "rank 0 writes it"},
    {OPTION_QUIET, "it only says less"},
};

static void every_option_of_a_training_is_agreed_or_free(void **state)
{
    for (const int *key = command_train.option; *key != OPTION_END; key++) {
        int n = 0;
        for (int k = 0; k < N_SAMPLE; k++) n += sample[k].key == *key;
        for (size_t k = 0; k < sizeof free_option / sizeof *free_option; k++) n += free_option[k].key == *key;
        if (n != 1)
            fail_msg("--%s is new: give it a sample here, or a row among the free ones with the reason",
                     cli_option_name(*key));
    }
}

static void every_agreed_option_changes_its_line(void **state)
{
    for (int k = 0; k < N_SAMPLE; k++) {
        if (!sample[k].text) continue;
        const char *without[] = {"train", sample[k].beside, NULL},
                   *with[] = {"train", sample[k].text, sample[k].beside, NULL};
        char *a = agreement_of(without, 1, NULL, 0), *b = agreement_of(with, 1, NULL, 0);
        if (is_line_equal(a, b, sample[k].value)) fail_msg("%s changes no line", sample[k].text);
        free(a);
        free(b);
    }
}

static void files_are_compared_by_their_content(void **state)
{
    char name[] = "agreement-XXXXXX";
    const int file = mkstemp(name);
    assert_true(file >= 0);
    char option[40];
    (void)snprintf(option, sizeof option, "--init=%s", name);
    const char *words[] = {"train", option, NULL};
    assert_int_equal(write(file, "one", 3), 3);
    char *a = agreement_of(words, 1, NULL, 0);
    assert_int_equal(pwrite(file, "two", 3, 0), 3);
    char *b = agreement_of(words, 1, NULL, 0);
    assert_false(is_line_equal(a, b, "initial weights"));
    free(a);
    free(b);
    const char *with_data[] = {"train", "--data=here", NULL}, *elsewhere[] = {"train", "--data=there", NULL};
    a = agreement_of(with_data, 1, NULL, 0);
    b = agreement_of(with_data, 2, NULL, 0);
    assert_false(is_line_equal(a, b, "samples"));
    free(b);
    b = agreement_of(elsewhere, 1, NULL, 0); /* the same samples by another path */
    assert_string_equal(a, b);
    free(a);
    free(b);
    (void)close(file);
    (void)unlink(name);
}

static void free_options_change_nothing(void **state)
{
    const char *plain[] = {"train", NULL},
               *free_ones[] = {"train", "--timeout=3s", "--db=other.db", "-q", "--log=l", "--report=r.html",
                               NULL};
    char *a = agreement_of(plain, 1, NULL, 0), *b = agreement_of(free_ones, 1, NULL, 0);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

/* --- Checkpoints ---------------------------------------------------------------------------------------- */

/* Warnings on stderr of a run whose checkpoint was written with `before`. */
static int count_warnings(const char *before, const char *now, const char *words)
{
    char text[8192] = "";
    const cli_options options = {.quiet = 0};
    const tandem_listener listener = cli_listener(&options);
    FILE *const caught = tmpfile();
    assert_non_null(caught);
    (void)fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(caught), STDERR_FILENO) >= 0);
    train_config_note_changes(&listener, before, now);
    (void)fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
    rewind(caught);
    const size_t n_read = fread(text, 1, sizeof text - 1, caught);
    (void)fclose(caught);
    text[n_read] = '\0';
    int n = 0;
    for (const char *at = text; (at = strstr(at, "warning: differs from the checkpoint: ")); at++) n++;
    if (words && !strstr(text, words)) fail_msg("'%s' does not say '%s'", text, words);
    return n;
}

/* Options of a run that decide what it learns: those with a line in a checkpoint. */
static void a_dropped_option_is_said_as_an_added_one(void **state)
{
    int n_recorded = 0;
    for (int k = 0; k < N_SAMPLE; k++) {
        char with[4096] = "", without[4096] = "", start[64];
        if (!sample[k].text || !*sample[k].value) continue;
        const char *plain[] = {"train", sample[k].beside, NULL},
                   *given[] = {"train", sample[k].text, sample[k].beside, NULL};
        free(agreement_of(plain, 1, without, sizeof without));
        free(agreement_of(given, 1, with, sizeof with));
        (void)snprintf(start, sizeof start, "%s: ", sample[k].value);
        if (!strstr(with, start)) continue; /* it decides nothing that is learned */
        n_recorded++;
        if (count_warnings(with, without, sample[k].value) < 1 ||
            count_warnings(without, with, sample[k].value) < 1)
            fail_msg("%s is dropped or added without a word", sample[k].text);
        assert_int_equal(count_warnings(with, with, NULL), 0);
    }
    assert_true(n_recorded >= 20);
}

static void the_state_of_estimates_is_no_option(void **state)
{
    static const char reestimated[] =
        "seed: 0\nestimated again: every 100 steps\nlast estimated: 100, times: 1\nplan: !!\n"
        "ranges: !!\n";
    assert_int_equal(count_warnings(reestimated, "seed: 0\n",
                                    "estimated again: none; it was estimated again: every 100 steps"),
                     1);
    assert_int_equal(count_warnings("seed: 0\n", "seed: 0\nsamples: 3\n", NULL), 0); /* an older file */
    assert_int_equal(
        count_warnings("seed: 0\nsamples: 4\n", "seed: 0\nsamples: 3\n", "samples: 3; it was samples: 4"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_of_a_training_is_agreed_or_free),
        cmocka_unit_test(every_agreed_option_changes_its_line),
        cmocka_unit_test(files_are_compared_by_their_content),
        cmocka_unit_test(free_options_change_nothing),
        cmocka_unit_test(a_dropped_option_is_said_as_an_added_one),
        cmocka_unit_test(the_state_of_estimates_is_no_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
