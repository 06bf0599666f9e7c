/* options.c: every option of the command line, once: its name, its text, how its value is read. */
#include <argp.h>
#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "tandem/planner.h"

static const struct argp_option option_table[] = {
    {"model", OPTION_MODEL, "MODEL", 0,
     "Model and its options, e.g. vit_tiny:width=192,depth=2 (tandem list models)", 1},
    {"batch", OPTION_BATCH, "N", 0, "Samples a step on each rank [16]", 1},
    {"device", OPTION_DEVICE, "DEVICE,...", 0,
     "Devices, e.g. cpu:avx2 (tandem list devices); strongest, weakest: of this machine's CPU", 1},
    {"cluster", OPTION_CLUSTER, "CLUSTER", 0,
     "Ranks: \"strongest + weakest\", \"2*cpu:avx2 + cpu:sse41 batch=8\", or a JSON file", 1},
    {"plan", OPTION_PLAN, "FILE", 0, "A plan made by tandem allocate", 1},
    {"data", OPTION_DATA, "DATA", 0, "fashion-mnist, a directory of IDX files, or a text file", 1},
    {"seed", OPTION_SEED, "N", 0,
     "Seed of initial weights, order of samples, stochastic rounding and drawn plans [0]", 1},
    {"uniform", OPTION_UNIFORM, "PRECISION", 0,
     "Every operator of every class in this precision, where it has it; drawn: each in one that chance gives "
     "it (--seed)",
     2},
    {"policy", OPTION_POLICY, "POLICY", 0, "How to choose: exact, greedy, qsync, uniform [exact]", 2},
    {"base-precision", OPTION_BASE_PRECISION, "PRECISION", 0,
     "What a class keeps that would only wait [fp32]", 2},
    {"sensitivity", OPTION_METHOD, "METHOD", 0, "How harm is predicted: fisher, qsync [fisher]", 2},
    {"slowdown", OPTION_SLOWDOWN, "P%", 0, "How much longer than the fastest step the plan's may be [0%]", 2},
    {"max-step", OPTION_MAX_STEP, "TIME", 0, "How long the step may be, e.g. 200ms, instead of a slowdown",
     2},
    {"max-sensitivity", OPTION_MAX_SENSITIVITY, "X", 0,
     "The fastest step whose sensitivity is at most X, "
     "e.g. 1e-8",
     2},
    {"minimize", OPTION_MINIMIZE, "memory", 0,
     "The least memory of the rank that takes most, within the other limits", 2},
    {"global-batch", OPTION_GLOBAL_BATCH, "N", 0,
     "With --batch auto: samples a step of all ranks, split among the classes along with the precisions", 2},
    {"add", OPTION_ADD, "CLUSTER", 0, "Ranks that might be added", 2},
    {"pareto", OPTION_PARETO, "N", OPTION_ARG_OPTIONAL,
     "Plans for N steps from the fastest to that of base "
     "[16]",
     3},
    {"svg", OPTION_SVG, "FILE", 0, "Draw the front, by gnuplot", 4},
    {"verify", OPTION_VERIFY, "PLAN", 0, "Hold a plan against its own figures and limits", 3},
    {"explain", OPTION_EXPLAIN, "OPERATOR", 0, "Why an operator has its precision", 3},
    {"memory", OPTION_MEMORY, "SIZE,...", 0,
     "Memory limit of a rank, for all classes or one for each, e.g. "
     "12GiB",
     2},
    {"bucket", OPTION_BUCKET, "SIZE", 0, "Gradients that are reduced together [25MiB]", 2},
    {"accumulate", OPTION_ACCUMULATE, "N", 0,
     "Micro-steps: batches of a rank whose gradients are summed before they are reduced [1]", 2},
    {"recompute", OPTION_RECOMPUTE, "N", 0,
     "Keep activations between N segments of the model only and compute the rest again: none, sqrt, N [none]",
     2},
    {"amax", OPTION_AMAX, "AMAX", 0,
     "Ranges of casts to int8: current, or from the casts before: delayed[:window=16,margin=0] [current]", 2},
    {"steps", OPTION_STEPS, "N", 0,
     "Training steps [train 100, compare 30, sensitivity 10, demo as time "
     "allows]",
     3},
    {"eval", OPTION_EVALUATE, "N", 0,
     "Test samples for the accuracy at the end, 0 = none [train 2000, compare 0]", 3},
    {"repetitions", OPTION_REPETITIONS, "N", 0, "Measured repetitions of each plan [12] or case", 3},
    {"timeout", OPTION_TIMEOUT, "TIME", 0, "A rank silent for longer counts as dead [120s]", 3},
    {"remeasure", OPTION_REMEASURE, NULL, 0, "Measure again what is in the store already", 3},
    {"collective", OPTION_COLLECTIVE, "NAME", 0,
     "All-reduces without a measured curve: ring, tree, halving-doubling, hierarchical, auto = the fastest "
     "[ring]",
     2},
    {"check", OPTION_CHECK, NULL, 0, "Also replay every rank by itself in the general engine, and compare",
     3},
    {"allreduce-only", OPTION_ALLREDUCE_ONLY, NULL, 0,
     "Measure the all-reduce alone: of the same ranks over "
     "another link",
     3},
    {"simulations", OPTION_SIMULATIONS, "N", 0,
     "Also replay N steps whose times are drawn from what was "
     "measured",
     3},
    {"time-spread", OPTION_TIME_SPREAD, "P%", 0,
     "With --simulations: how far times vary that were not measured [as "
     "what was]",
     3},
    {"zero", OPTION_ZERO, "STAGE", 0,
     "Optimizer state (1), gradients (2) and weights (3) in shards over all "
     "ranks",
     2},
    {"predict", OPTION_PREDICT, NULL, 0, "Predict times that were not measured; the result says how many", 3},
    {"operators", OPTION_OPERATORS, NULL, 0, "Also one row an operator", 3},
    {"memory-timeline", OPTION_MEMORY_TIMELINE, NULL, 0, "Also what memory holds while each task runs", 3},
    {"limit", OPTION_LIMIT, "P%", 0, "Exit with 1 where the prediction is off by more", 3},
    {"lr", OPTION_RATE, "X", 0, "Highest learning rate [the model's]", 3},
    {"schedule", OPTION_SCHEDULE, "NAME", 0,
     "How the learning rate goes on: constant, cosine, linear, step [constant]", 3},
    {"warmup", OPTION_WARMUP, "N", 0, "Steps in which the learning rate rises to its highest [0]", 3},
    {"weight-decay", OPTION_DECAY, "X", 0,
     "Weight decay of matrices; biases and norms have none [the "
     "model's]",
     3},
    {"no-decay", OPTION_NO_DECAY, "PATTERN,...", 0,
     "No weight decay for parameters of these names, e.g. 'embedding.*,*.fc1.weight'", 3},
    {"momentum", OPTION_MOMENTUM, "X", 0, "Momentum of models that SGD trains [the model's]", 3},
    {"betas", OPTION_BETAS, "X,X", 0, "Betas of models that AdamW trains, e.g. 0.9,0.999 [the model's]", 3},
    {"clip", OPTION_CLIP, "NORM", 0, "Scale gradients down to this norm of all of them together", 3},
    {"label-smoothing", OPTION_LABEL_SMOOTHING, "X", 0,
     "Share of a label that all classes have alike, e.g. "
     "0.1",
     3},
    {"loss-scale", OPTION_LOSS_SCALE, "X", 0,
     "Multiply the loss by X backward, or dynamic: 65536, halved at overflow, doubled behind 2000 good steps "
     "[the plan's]",
     3},
    {"allow-nan", OPTION_ALLOW_NAN, NULL, 0, "Go on where the loss or a gradient is not finite", 3},
    {"eval-every", OPTION_EVALUATE_EVERY, "N", 0, "Also find the accuracy every N steps", 3},
    {"checkpoint", OPTION_CHECKPOINT, "FILE", 0, "Put the training down in a file at the end", 4},
    {"checkpoint-every", OPTION_CHECKPOINT_EVERY, "N", 0, "Put it down every N steps, too", 4},
    {"resume", OPTION_RESUME, "FILE", 0, "Go on from a checkpoint, up to step --steps", 4},
    {"init", OPTION_INIT, "FILE", 0, "Begin with the weights in a file of safetensors", 4},
    {"export", OPTION_EXPORT, "FILE", 0, "Write the weights at the end as a file of safetensors", 4},
    {"log", OPTION_LOG, "FILE", 0, "Write a line of JSON for every step", 4},
    {"output", OPTION_OUTPUT, "FILE", 0, "Where the result goes; - is standard output", 4},
    {"trace", OPTION_TRACE, "FILE", 0,
     "Write the step's timeline as JSON for Perfetto; FILE.et: for Chakra, a file a rank", 4},
    {"all-ranks", OPTION_ALL_RANKS, NULL, 0, "With --trace: every rank, not one of each class", 4},
    {"db", OPTION_DB, "FILE", 0, "Profile store [$TANDEM_DB, or tandem.db]", 9},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object instead of text", 9},
    {"quiet", OPTION_QUIET, NULL, 0, "No progress", 9},
    {"verbose", OPTION_VERBOSE, NULL, 0, "More detail", 9},
};

_Static_assert(sizeof option_table / sizeof *option_table <= CLI_MAX_OPTION, "cli_options.given has a place "
                                                                             "for every option");

static const int of_every_command[] = {OPTION_JSON, OPTION_END};

static const struct argp_option *option_row(int key)
{
    for (size_t k = 0; k < sizeof option_table / sizeof *option_table; k++)
        if (option_table[k].key == key) return &option_table[k];
    return NULL;
}

/* --- Values --------------------------------------------------------------------------------------------- */

static void exit_with_error(const struct argp_state *state, const tandem_error *error)
{
    (void)state;
    exit(cli_fail(error));
}

static int64_t read_integer_option(struct argp_state *state, int key, const char *text, int64_t min,
                                   int64_t max)
{
    char *end = NULL;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < min || n > max) {
        tandem_error error;
        (void)tandem_error_set(&error, TANDEM_USAGE, "--%s takes a whole number from %lld to %lld, got '%s'",
                               option_row(key)->name, (long long)min, (long long)max, text);
        exit_with_error(state, &error);
    }
    return n;
}

static uint64_t read_bucket_option(struct argp_state *state, const char *text)
{
    uint64_t bytes = 0;
    tandem_error error;
    if (tandem_quantity_parse_bytes(&bytes, text, &error) != TANDEM_OK) exit_with_error(state, &error);
    if (bytes > 0) return bytes;
    (void)tandem_error_set(&error, TANDEM_USAGE, "--bucket takes a size above 0 such as 25MiB, got '%s'",
                           text);
    exit_with_error(state, &error);
    return bytes;
}

static double read_ratio_option(struct argp_state *state, const char *text)
{
    double ratio = 0;
    tandem_error error;
    if (tandem_quantity_parse_ratio(&ratio, text, &error) != TANDEM_OK) exit_with_error(state, &error);
    return ratio;
}

static int64_t read_time_option(struct argp_state *state, const char *text)
{
    int64_t ns = 0;
    tandem_error error;
    if (tandem_quantity_parse_ns(&ns, text, &error) != TANDEM_OK) exit_with_error(state, &error);
    return ns;
}

static tandem_collective_algorithm read_collective_option(struct argp_state *state, const char *text)
{
    tandem_collective_algorithm algorithm = TANDEM_RING;
    tandem_error error;
    if (tandem_collective_algorithm_find(&algorithm, text, &error) != TANDEM_OK)
        exit_with_error(state, &error);
    return algorithm;
}

static int64_t read_positive_time_option(struct argp_state *state, int key, const char *text)
{
    const int64_t ns = read_time_option(state, text);
    tandem_error error;
    if (ns > 0) return ns;
    (void)tandem_error_set(&error, TANDEM_USAGE, "--%s takes a time above 0, got '%s'", option_row(key)->name,
                           text);
    exit_with_error(state, &error);
    return ns;
}

/* A number without a unit, from 0 to below `below`; `what` says that in words. */
static double read_number_option(struct argp_state *state, int key, const char *text, double below,
                                 const char *what)
{
    char *end = NULL;
    errno = 0;
    const double x = strtod(text, &end);
    if (errno || end == text || *end || !(x >= 0 && x < below)) {
        tandem_error error;
        (void)tandem_error_set(&error, TANDEM_USAGE, "--%s takes %s, got '%s'", option_row(key)->name, what,
                               text);
        exit_with_error(state, &error);
    }
    return x;
}

static double read_positive_option(struct argp_state *state, int key, const char *text, double below,
                                   const char *what)
{
    const double x = read_number_option(state, key, text, below, what);
    tandem_error error;
    if (x > 0) return x;
    (void)tandem_error_set(&error, TANDEM_USAGE, "--%s takes %s, got '%s'", option_row(key)->name, what,
                           text);
    exit_with_error(state, &error);
    return x;
}

static double read_rate_option(struct argp_state *state, int key, const char *text)
{
    return read_number_option(state, key, text, FLT_MAX, "a number from 0 upwards such as 1e-3");
}

/* A sensitivity has no unit that all methods share. */
static double read_sensitivity_option(struct argp_state *state, int key, const char *text)
{
    return read_number_option(state, key, text, DBL_MAX,
                              "a sensitivity, a number from 0 upwards such as 1e-8");
}

static int read_minimize_option(const struct argp_state *state, const char *text)
{
    tandem_error error;
    if (strcmp(text, "memory") == 0) return 1;
    (void)tandem_error_set(&error, TANDEM_USAGE, "--minimize takes memory, got '%s'", text);
    exit_with_error(state, &error);
    return 0;
}

static int read_recompute_option(struct argp_state *state, const char *text)
{
    int n_recompute_segment = 0;
    tandem_error error;
    if (tandem_recompute_parse(&n_recompute_segment, text, &error) != TANDEM_OK)
        exit_with_error(state, &error);
    return n_recompute_segment;
}

static double read_loss_scale_option(struct argp_state *state, const char *text)
{
    double loss_scale = 0;
    tandem_error error;
    if (tandem_loss_scale_parse(&loss_scale, text, &error) != TANDEM_OK) exit_with_error(state, &error);
    return loss_scale;
}

static tandem_cast_scaling read_amax_option(struct argp_state *state, const char *text)
{
    tandem_cast_scaling scaling = {0};
    tandem_error error;
    if (tandem_cast_scaling_parse(&scaling, text, &error) != TANDEM_OK) exit_with_error(state, &error);
    return scaling;
}

/* "auto" is for commands that have --global-batch. */
static void set_batch_option(cli_options *options, struct argp_state *state, const char *text)
{
    options->batch_auto = strcmp(text, "auto") == 0;
    if (!options->batch_auto) options->batch = read_integer_option(state, OPTION_BATCH, text, 1, 1 << 20);
}

static void add_free_word(cli_options *options, struct argp_state *state, const char *word)
{
    const int max = (int)(sizeof options->word / sizeof *options->word);
    if (options->n_word == max) argp_error(state, "too many words: '%s'", word);
    options->word[options->n_word++] = word;
}

/* Where options that are a text of their own, a flag, or a count put it; NULL for all others. */
static const char **text_option(cli_options *options, int key)
{
    switch (key) {
    case OPTION_DB: return &options->db;
    case OPTION_MODEL: return &options->model;
    case OPTION_DEVICE: return &options->device;
    case OPTION_CLUSTER: return &options->cluster;
    case OPTION_PLAN: return &options->plan;
    case OPTION_DATA: return &options->data;
    case OPTION_UNIFORM: return &options->uniform;
    case OPTION_POLICY: return &options->policy;
    case OPTION_BASE_PRECISION: return &options->base_precision;
    case OPTION_METHOD: return &options->method;
    case OPTION_MEMORY: return &options->memory;
    case OPTION_SVG: return &options->svg;
    case OPTION_VERIFY: return &options->verify;
    case OPTION_EXPLAIN: return &options->explain;
    case OPTION_ADD: return &options->add;
    case OPTION_SCHEDULE: return &options->schedule;
    case OPTION_NO_DECAY: return &options->no_decay;
    case OPTION_INIT: return &options->init;
    case OPTION_EXPORT: return &options->export;
    case OPTION_BETAS: return &options->betas;
    case OPTION_CHECKPOINT: return &options->checkpoint;
    case OPTION_RESUME: return &options->resume;
    case OPTION_LOG: return &options->log;
    case OPTION_OUTPUT: return &options->output;
    case OPTION_TRACE: return &options->trace;
    default: return NULL;
    }
}

static int *flag_option(cli_options *options, int key)
{
    switch (key) {
    case OPTION_JSON: return &options->json;
    case OPTION_QUIET: return &options->quiet;
    case OPTION_VERBOSE: return &options->verbose;
    case OPTION_MEMORY_TIMELINE: return &options->per_task;
    case OPTION_REMEASURE: return &options->remeasure;
    case OPTION_ALLREDUCE_ONLY: return &options->allreduce_only;
    case OPTION_PREDICT: return &options->predict;
    case OPTION_CHECK: return &options->check;
    case OPTION_OPERATORS: return &options->per_operator;
    case OPTION_ALLOW_NAN: return &options->allow_nan;
    case OPTION_ALL_RANKS: return &options->all_ranks;
    default: return NULL;
    }
}

/* … from *least to *most. */
static int64_t *count_option(cli_options *options, int key, int64_t *min, int64_t *max)
{
    *min = 1;
    *max = 1 << 30;
    switch (key) {
    case OPTION_GLOBAL_BATCH: return &options->global_batch;
    case OPTION_STEPS: return &options->steps;
    case OPTION_EVALUATE_EVERY: return &options->evaluate_every;
    case OPTION_CHECKPOINT_EVERY: return &options->checkpoint_every;
    case OPTION_REPETITIONS: *max = 1 << 20; return &options->repetitions;
    case OPTION_SIMULATIONS: *max = TANDEM_MAX_SIMULATIONS; return &options->simulations;
    case OPTION_EVALUATE: *min = 0; return &options->evaluate;
    case OPTION_WARMUP: *min = 0; return &options->warmup;
    default: return NULL;
    }
}

static error_t set_option_value(cli_options *options, struct argp_state *state, int key, const char *text)
{
    switch (key) {
    case OPTION_BATCH: set_batch_option(options, state, text); break;
    case OPTION_SEED: options->seed = (uint64_t)read_integer_option(state, key, text, 0, INT64_MAX); break;
    case OPTION_SLOWDOWN: options->slowdown = read_ratio_option(state, text); break;
    case OPTION_MAX_STEP: options->max_step_ns = read_positive_time_option(state, key, text); break;
    case OPTION_MAX_SENSITIVITY: options->max_sensitivity = read_sensitivity_option(state, key, text); break;
    case OPTION_MINIMIZE: options->minimize_memory = read_minimize_option(state, text); break;
    case OPTION_PARETO: options->pareto = text ? read_integer_option(state, key, text, 2, 1000) : 16; break;
    case OPTION_BUCKET: options->bucket_bytes = read_bucket_option(state, text); break;
    case OPTION_ACCUMULATE:
        options->step.n_micro = (int)read_integer_option(state, key, text, 1, TANDEM_MAX_MICRO);
        break;
    case OPTION_RECOMPUTE: options->step.n_recompute_segment = read_recompute_option(state, text); break;
    case OPTION_AMAX: options->step.scaling = read_amax_option(state, text); break;
    case OPTION_TIMEOUT: options->timeout_ns = read_positive_time_option(state, key, text); break;
    case OPTION_COLLECTIVE: options->collective = read_collective_option(state, text); break;
    case OPTION_TIME_SPREAD: options->time_spread = read_ratio_option(state, text); break;
    case OPTION_ZERO: options->zero = (int)read_integer_option(state, key, text, 1, 3); break;
    case OPTION_LIMIT: options->limit = read_ratio_option(state, text); break;
    case OPTION_RATE: options->rate = read_rate_option(state, key, text); break;
    case OPTION_DECAY: options->decay = read_rate_option(state, key, text); break;
    case OPTION_CLIP:
        options->clip = read_positive_option(state, key, text, FLT_MAX,
                                             "a norm above 0 such "
                                             "as 1");
        break;
    case OPTION_LABEL_SMOOTHING:
        options->label_smoothing = read_number_option(state, key, text, 1,
                                                      "a share from 0 to below 1 such "
                                                      "as 0.1");
        break;
    case OPTION_LOSS_SCALE: options->loss_scale = read_loss_scale_option(state, text); break;
    case OPTION_MOMENTUM:
        options->momentum = read_number_option(state, key, text, 1, "a number from 0 to below 1 such as 0.9");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    cli_options *const options = state->input;
    int64_t min = 0, max = 0;
    const char **const word = text_option(options, key);
    int *const flag = flag_option(options, key);
    int64_t *const count = count_option(options, key, &min, &max);
    if (word) *word = text;
    if (flag) *flag = 1;
    if (count) *count = read_integer_option(state, key, text, min, max);
    if (key == ARGP_KEY_ARG) add_free_word(options, state, text);
    if (option_row(key)) options->given[option_row(key) - option_table] = 1;
    return word || flag || count || key == ARGP_KEY_ARG ? 0 : set_option_value(options, state, key, text);
}

/* --- What argp would not say enough about --------------------------------------------------------------- */

/* Which commands have an option, as ": replay, train"; "" = none. */
static const char *print_option_owners(char *text, size_t size, int key)
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; cli_commands[k]; k++)
        for (const int *own = cli_commands[k]->option; *own != OPTION_END; own++)
            if (*own == key && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : ": ",
                                         cli_commands[k]->name);
    return text;
}

/* Of this command: with its nearest option; of others: with those that have it. */
static int fail_unknown_option(const cli_command *command, const struct argp_option *option, const char *name,
                               int length)
{
    const char *names[sizeof option_table / sizeof *option_table + 1];
    char word[64], owners[256];
    size_t n = 0;
    (void)snprintf(word, sizeof word, "%.*s", length, name);
    for (; option[n].name; n++) names[n] = option[n].name;
    for (size_t k = 0; k < sizeof option_table / sizeof *option_table; k++)
        if (strcmp(option_table[k].name, word) == 0)
            return cli_fail_with(
                TANDEM_USAGE,
                "`tandem %s` has no option --%s; it is one of%s. `tandem %s --help` lists its "
                "own.",
                command->name, word, print_option_owners(owners, sizeof owners, option_table[k].key),
                command->name);
    const char *near = tandem_nearest(word, names, n);
    return cli_fail_with(TANDEM_USAGE, "`tandem %s` has no option --%s.%s%s%s `tandem %s --help` lists them.",
                         command->name, word, near ? " Did you mean --" : "", near ? near : "",
                         near ? "?" : "", command->name);
}

/* A letter of another command's, of some behind a dash: its row; NULL = there is none. */
static const struct argp_option *find_foreign_letter(const struct argp_option *option, const char *letter)
{
    for (; *letter; letter++) {
        const struct argp_option *own = option;
        while (own->name && own->key != *letter) own++;
        if (own->name && own->arg) return NULL; /* the rest is its value */
        if (!own->name && option_row(*letter)) return option_row(*letter);
    }
    return NULL;
}

/* NULL = there is none; a beginning will do, as for argp. */
static const struct argp_option *find_long_option(const struct argp_option *option, const char *name,
                                                  size_t length)
{
    for (; option->name; option++)
        if (strncmp(option->name, name, length) == 0) return option;
    return NULL;
}

static int option_takes_value(const struct argp_option *option)
{
    return option->arg && !(option->flags & OPTION_ARG_OPTIONAL);
}

/* Whether the last of some letters behind a dash takes the next word. */
static int letters_take_value(const struct argp_option *option, const char *letter)
{
    for (; *letter; letter++)
        for (const struct argp_option *o = option; o->name; o++)
            if (o->key == *letter && option_takes_value(o)) return letter[1] == '\0';
    return 0;
}

/* Refuses options that the command does not have; "-h" asks for help, as nearly everywhere. */
static void check_command_options(const cli_command *command, const struct argp_option *option, int argc,
                                  char **argv)
{
    static char help[] = "--help";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-h") == 0) argv[i] = help;
        const char *name = argv[i] + 2;
        const int length = (int)strcspn(argv[i], "=") - 2;
        if (strncmp(argv[i], "--", 2) != 0) {
            const struct argp_option *other =
                argv[i][0] == '-' ? find_foreign_letter(option, argv[i] + 1) : NULL;
            if (other) exit(fail_unknown_option(command, option, other->name, (int)strlen(other->name)));
            i += argv[i][0] == '-' && letters_take_value(option, argv[i] + 1);
        } else if (strncmp("help", name, (size_t)length) != 0 &&
                   strncmp("usage", name, (size_t)length) != 0) {
            const struct argp_option *own = find_long_option(option, name, (size_t)length);
            if (!own) exit(fail_unknown_option(command, option, name, length));
            i += option_takes_value(own) && !name[length];
        }
    }
}

/* A word too many is most often a cluster without its quotes, or an optional value without its "=". */
static void check_no_words(const cli_options *options, const cli_command *command)
{
    if (command->words[0] || options->n_word == 0) return;
    exit(cli_fail_with(TANDEM_USAGE,
                       "`tandem %s` takes options only, got '%s'; what holds blanks stands in quotes, as in "
                       "--cluster \"cpu:avx2 + cpu:sse41\", and a value that may be absent behind =, as in "
                       "--pareto=8",
                       command->name, options->word[0]));
}

int cli_option_given(const cli_options *options, int key)
{
    return options->given[option_row(key) - option_table];
}

const char *cli_option_not_allowed(const cli_options *options, const int *allowed)
{
    for (size_t k = 0; k < sizeof option_table / sizeof *option_table; k++) {
        const int *key = allowed;
        while (*key != OPTION_END && *key != option_table[k].key) key++;
        if (options->given[k] && *key == OPTION_END) return option_table[k].name;
    }
    return NULL;
}

/* --- The parser of one command -------------------------------------------------------------------------- */

void cli_options_parse(cli_options *options, const cli_command *command, int argc, char **argv)
{
    struct argp_option option[sizeof option_table / sizeof *option_table + 1];
    size_t n = 0;
    for (const int *key = command->option; *key != OPTION_END; key++) option[n++] = *option_row(*key);
    for (const int *key = of_every_command; *key != OPTION_END; key++) option[n++] = *option_row(*key);
    option[n] = (struct argp_option){0};

    char documentation[4096], name[64];
    (void)snprintf(documentation, sizeof documentation, "%s\v%s", command->summary, command->description);
    (void)snprintf(name, sizeof name, "tandem %s", command->name);
    const struct argp argp = {
        .options = option, .parser = parse_option, .args_doc = command->words, .doc = documentation};
    const char *db = getenv("TANDEM_DB");
    *options = (cli_options){.db = db && *db ? db : "tandem.db",
                             .batch = TANDEM_DEFAULT_BATCH,
                             .timeout_ns = INT64_C(120000000000),
                             .limit = -1,
                             .slowdown = -1,
                             .max_sensitivity = -1,
                             .time_spread = -1,
                             .steps = -1,
                             .evaluate = -1,
                             .repetitions = -1,
                             .rate = -1,
                             .decay = -1,
                             .momentum = -1};
    (void)setenv("ARGP_HELP_FMT", "rmargin=120,no-dup-args-note", 0); /* examples stay on one line */
    argp_err_exit_status = tandem_status_exit_code(TANDEM_USAGE);
    argv[0] = name;
    check_command_options(command, option, argc, argv);
    (void)argp_parse(&argp, argc, argv, 0, NULL, options);
    check_no_words(options, command);
    int may_be_auto = 0;
    for (const int *key = command->option; *key != OPTION_END; key++)
        may_be_auto |= *key == OPTION_GLOBAL_BATCH;
    if (options->batch_auto && !may_be_auto)
        exit(cli_fail_with(TANDEM_USAGE,
                           "--batch auto: `tandem %s` takes a whole number; "
                           "`tandem allocate` and `tandem advise` choose batches with --batch auto "
                           "--global-batch N",
                           command->name));
}
