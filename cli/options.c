/* options.c: parses the command line of one command. options.def lists all options; argp does the rest. */
#include <argp.h>
#include <errno.h>
#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/device_cores.h"
#include "base/nearest.h"
#include "base/quantity.h"
#include "cli/program.h"
#include "tandem/advanced/allocator.h"
#include "tandem/record.h"

/* --- Values: each function reads one into `to`, a member of cli_options --------------------------------- */

typedef struct option_row option_row;
typedef tandem_status option_reader(const option_row *row, void *to, const char *text, tandem_error *error);
struct option_row {
    const char *name, *value, *help;
    int letter, group;
    size_t member; /* offset in cli_options */
    void *own;     /* of one program alone: where its value goes; NULL = to the member */
    option_reader *read;
    int64_t min, max;
    double below;
    const char *what;   /* the allowed range of a number, in words */
    const char *absent; /* the value if none is given; NULL: a value is required */
};

static tandem_status fail_value(const option_row *row, const char *what, const char *text,
                                tandem_error *error)
{
    return tandem_error_set(error, TANDEM_USAGE, "--%s takes %s, got '%s'", row->name, what, text);
}

static tandem_status read_text_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row, (void)error;
    *(const char **)to = text;
    return TANDEM_OK;
}

static tandem_status read_flag_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row, (void)text, (void)error;
    *(int *)to = 1;
    return TANDEM_OK;
}

static tandem_status read_count_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    char *end = NULL, range[80];
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && n >= row->min && n <= row->max) {
        *(int64_t *)to = n;
        return TANDEM_OK;
    }
    (void)snprintf(range, sizeof range, "a whole number from %lld to %lld", (long long)row->min,
                   (long long)row->max);
    return fail_value(row, range, text, error);
}

static tandem_status read_small_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    int64_t n = 0;
    const tandem_status status = read_count_value(row, &n, text, error);
    if (status == TANDEM_OK) *(int *)to = (int)n;
    return status;
}

static tandem_status read_number_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    char *end = NULL;
    errno = 0;
    const double x = strtod(text, &end);
    if (errno || end == text || *end || !(x >= 0 && x < row->below) || (x == 0 && row->min > 0))
        return fail_value(row, row->what, text, error);
    *(double *)to = x;
    return TANDEM_OK;
}

static tandem_status read_ratio(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_quantity_parse_ratio(to, text, error);
}

static tandem_status read_time(const option_row *row, void *to, const char *text, tandem_error *error)
{
    int64_t ns = 0;
    const tandem_status status = tandem_quantity_parse_ns(&ns, text, error);
    if (status == TANDEM_OK && ns <= 0) return fail_value(row, "a time above 0", text, error);
    if (status == TANDEM_OK) *(int64_t *)to = ns;
    return status;
}

static tandem_status read_bucket(const option_row *row, void *to, const char *text, tandem_error *error)
{
    uint64_t bytes = 0;
    const tandem_status status = tandem_quantity_parse_bytes(&bytes, text, error);
    if (status == TANDEM_OK && bytes == 0)
        return fail_value(row, "a size above 0 such as 25MiB", text, error);
    if (status == TANDEM_OK) *(uint64_t *)to = bytes;
    return status;
}

/* "auto" is for commands that have --global-batch. */
static tandem_status read_batch(const option_row *row, void *to, const char *text, tandem_error *error)
{
    cli_options *const options = (cli_options *)(void *)((char *)to - row->member);
    options->batch_auto = strcmp(text, "auto") == 0;
    const option_row range = {.name = row->name, .min = 1, .max = 1 << 20};
    return options->batch_auto ? TANDEM_OK : read_count_value(&range, to, text, error);
}

static tandem_status read_minimize(const option_row *row, void *to, const char *text, tandem_error *error)
{
    return tandem_objective_find(to, text, NULL) == TANDEM_OK
               ? TANDEM_OK
               : fail_value(row, "sensitivity, step, memory or training-time", text, error);
}

static tandem_status read_estimated_by(const option_row *row, void *to, const char *text, tandem_error *error)
{
    static const char *const name[] = {
        [CLI_BY_PROBE] = "probe", [CLI_BY_SAMPLES] = "samples", [CLI_BY_STATISTICS] = "statistics"};
    for (int k = 0; k < (int)(sizeof name / sizeof *name); k++)
        if (strcmp(text, name[k]) == 0) {
            *(int *)to = k;
            return TANDEM_OK;
        }
    return fail_value(row, "probe, samples or statistics", text, error);
}

static tandem_status read_collective(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_collective_algorithm_find(to, text, error);
}

static tandem_status read_wire(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_gradient_wire_find(to, text, error);
}

static tandem_status read_kernel_set(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_kernel_set_find(to, text, error);
}

static tandem_status read_recompute(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_recompute_parse(to, text, error);
}

static tandem_status read_loss_scale(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_loss_scale_parse(to, text, error);
}

static tandem_status read_amax(const option_row *row, void *to, const char *text, tandem_error *error)
{
    (void)row;
    return tandem_cast_scaling_parse(to, text, error);
}

static tandem_status read_signed_value(const option_row *row, void *to, const char *text, tandem_error *error)
{
    char *end = NULL;
    errno = 0;
    const double x = strtod(text, &end);
    if (errno || end == text || *end || !(x >= -row->below && x <= row->below))
        return fail_value(row, row->what, text, error);
    *(double *)to = x;
    return TANDEM_OK;
}

/* --- The table ------------------------------------------------------------------------------------------ */

/* NOLINTBEGIN(bugprone-macro-parentheses): types and initialisers are written without them. */
/* The offset of a member; a wrong type does not compile. */
#define OF(m, type) .member = offsetof(cli_options, m) + 0 * sizeof(&((cli_options *)0)->m - (type *)0)
#define READ(m, type, f) OF(m, type), .read = f
#define TEXT(m) READ(m, const char *, read_text_value)
#define FLAG(m) READ(m, int, read_flag_value)
#define SEED(m) READ(m, uint64_t, read_count_value), .max = INT64_MAX
#define COUNT(m, low, ...) READ(m, int64_t, read_count_value), .min = (low), .max = __VA_ARGS__
#define SMALL(m, low, high) READ(m, int, read_small_value), .min = (low), .max = (high)
#define NUMBER(m, end, words) READ(m, double, read_number_value), .below = (end), .what = (words)
#define POSITIVE(m, end, words) NUMBER(m, end, words), .min = 1
#define SIGNED(m, end, words) READ(m, double, read_signed_value), .below = (end), .what = (words)
#define OPTIONAL(m, if_absent) READ(m, const char *, read_text_value), .absent = (if_absent)
#define RATIO(m) READ(m, double, read_ratio)
#define TIME(m) READ(m, int64_t, read_time)
#define OPTIONAL_TIME(m, if_absent) TIME(m), .absent = (if_absent)

/* After those of options.def: the program's own, as far as they have a name. */
static option_row option_table[CLI_N_OPTION + CLI_MAX_OWN_OPTION] = {
#define OPTION(key, by_letter, by_name, kind, of, in_group, text)                                            \
    [OPTION_##key - OPTION_FIRST] = {                                                                        \
        .name = by_name, .value = of, .help = text, .letter = by_letter, .group = in_group, kind},
#include "cli/options.def"
#undef OPTION
};
/* NOLINTEND(bugprone-macro-parentheses) */

static const int of_every_command[] = {OPTION_JSON, OPTION_END};

static size_t n_option(void)
{
    size_t n = CLI_N_OPTION;
    while (n < sizeof option_table / sizeof *option_table && option_table[n].name) n++;
    return n;
}

static void add_own_options(const cli_own_option *own_option)
{
    for (int k = 0; own_option && k < CLI_MAX_OWN_OPTION && own_option[k].name; k++)
        option_table[CLI_N_OPTION + k] = (option_row){
            .name = own_option[k].name,
            .value = own_option[k].value,
            .help = own_option[k].help,
            .group = own_option[k].group,
            .own = own_option[k].flag ? (void *)own_option[k].flag : (void *)(uintptr_t)own_option[k].text,
            .read = own_option[k].flag ? read_flag_value : read_text_value};
}

/* argp knows an option by its letter or its key. */
static int argp_key_of(const option_row *row)
{
    return row->letter ? row->letter : OPTION_FIRST + (int)(row - option_table);
}

static const option_row *find_option_row(int argp_key)
{
    for (const option_row *row = option_table; row < option_table + n_option(); row++)
        if (argp_key_of(row) == argp_key) return row;
    return NULL;
}

static struct argp_option argp_option_of(int key)
{
    const option_row *const row = &option_table[key - OPTION_FIRST];
    return (struct argp_option){row->name,  argp_key_of(row),
                                row->value, row->absent ? OPTION_ARG_OPTIONAL : 0,
                                row->help,  row->group};
}

/* Options that change no result, but where and how it is written. */
static int is_of_output(int key)
{
    static const int of_output[] = {OPTION_OUTPUT, OPTION_REPORT,     OPTION_TRACE,
                                    OPTION_LOG,    OPTION_CHECKPOINT, OPTION_EXPORT,
                                    OPTION_JSON,   OPTION_DETAILS,    OPTION_QUIET};
    for (size_t k = 0; k < sizeof of_output / sizeof *of_output; k++)
        if (of_output[k] == key) return 1;
    return 0;
}

static error_t parse_option(int argp_key, char *text, struct argp_state *state)
{
    cli_options *const options = state->input;
    tandem_error error;
    if (argp_key == ARGP_KEY_ARG) {
        if (options->n_word == (int)(sizeof options->word / sizeof *options->word))
            argp_error(state, "too many words: '%s'", text);
        options->word[options->n_word++] = text;
        cli_made_add(NULL, text);
        return 0;
    }
    const option_row *const row = find_option_row(argp_key);
    if (!row) return ARGP_ERR_UNKNOWN;
    void *const to = row->own ? row->own : (char *)options + row->member;
    if (row->read(row, to, text ? text : row->absent, &error) != TANDEM_OK) exit(cli_fail(&error));
    options->given[row - option_table] = 1;
    options->given_text[row - option_table] = text ? text : "";
    if (!is_of_output(OPTION_FIRST + (int)(row - option_table))) cli_made_add(row->name, text);
    return 0;
}

/* --- What argp would not say enough about --------------------------------------------------------------- */

/* The commands that have an option, as ": replay, train"; "" = none. */
static const char *print_option_owners(char *text, size_t size, int key)
{
    text[0] = '\0';
    for (const cli_command *const *command = cli_program_running()->command; *command; command++)
        for (const int *own = (*command)->option; *own != OPTION_END; own++)
            if (*own == key) (void)tandem_append(text, size, "%s%s", *text ? ", " : ": ", (*command)->name);
    return text;
}

/* For an option of other commands, names them; else the nearest option of this one. */
static int fail_unknown_option(const cli_command *command, const struct argp_option *option, const char *name,
                               int length)
{
    const char *names[CLI_N_OPTION + CLI_MAX_OWN_OPTION + 1];
    char word[64], owners[256];
    const cli_call call = cli_call_of(command);
    size_t n = 0;
    (void)snprintf(word, sizeof word, "%.*s", length, name);
    for (; option[n].name; n++) names[n] = option[n].name;
    for (size_t k = 0; k < n_option(); k++)
        if (strcmp(option_table[k].name, word) == 0 &&
            *print_option_owners(owners, sizeof owners, OPTION_FIRST + (int)k))
            return cli_fail_with(TANDEM_USAGE,
                                 "`%s` has no option --%s; these commands have it%s. `%s --help` lists "
                                 "its options.",
                                 call.text, word, owners, call.text);
    const char *near = tandem_nearest(word, names, n);
    return cli_fail_with(TANDEM_USAGE, "`%s` has no option --%s.%s%s%s `%s --help` lists them.", call.text,
                         word, near ? " Did you mean --" : "", near ? near : "", near ? "?" : "", call.text);
}

/* The first letter of a group that belongs to another command's option, or NULL. */
static const option_row *find_foreign_letter(const struct argp_option *option, const char *letter)
{
    for (; *letter; letter++) {
        const struct argp_option *matched = option;
        while (matched->name && matched->key != *letter) matched++;
        if (matched->name && matched->arg) return NULL; /* the rest is its value */
        if (!matched->name && find_option_row(*letter)) return find_option_row(*letter);
    }
    return NULL;
}

/* The option whose name begins with `name`, as argp does it, or NULL. */
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

/* Whether the last letter of a group takes the next word as its value. */
static int letters_take_value(const struct argp_option *option, const char *letter)
{
    for (; *letter; letter++)
        for (const struct argp_option *o = option; o->name; o++)
            if (o->key == *letter && option_takes_value(o)) return letter[1] == '\0';
    return 0;
}

/* Rejects options that the command does not have, and makes "-h" ask for help. */
static void check_command_options(const cli_command *command, const struct argp_option *option, int argc,
                                  char **argv)
{
    static char help[] = "--help";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-h") == 0) argv[i] = help;
        const char *name = argv[i] + 2;
        const int length = (int)strcspn(argv[i], "=") - 2;
        if (strncmp(argv[i], "--", 2) != 0) {
            const option_row *other = argv[i][0] == '-' ? find_foreign_letter(option, argv[i] + 1) : NULL;
            if (other) exit(fail_unknown_option(command, option, other->name, (int)strlen(other->name)));
            i += argv[i][0] == '-' && letters_take_value(option, argv[i] + 1);
        } else if (strncmp("help", name, (size_t)length) != 0 &&
                   strncmp("usage", name, (size_t)length) != 0) {
            const struct argp_option *matched = find_long_option(option, name, (size_t)length);
            if (!matched) exit(fail_unknown_option(command, option, name, length));
            i += option_takes_value(matched) && !name[length];
        }
    }
}

/* An extra word is mostly a cluster without quotes, or an optional value without "=". */
static void check_no_words(const cli_options *options, const cli_command *command)
{
    if (command->words[0] || options->n_word == 0) return;
    exit(cli_fail_with(TANDEM_USAGE,
                       "`%s` takes only options, got '%s'. Quote values with blanks, e.g. --cluster "
                       "\"cpu:avx2 + cpu:sse41\", and use = for optional values, e.g. --pareto=8",
                       cli_call_of(command).text, options->word[0]));
}

int cli_option_given(const cli_options *options, int key) { return options->given[key - OPTION_FIRST]; }

const char *cli_option_name(int key) { return option_table[key - OPTION_FIRST].name; }

const char *cli_option_not_allowed(const cli_options *options, const int *allowed)
{
    for (size_t k = 0; k < n_option(); k++) {
        const int *key = allowed;
        while (*key != OPTION_END && *key != OPTION_FIRST + (int)k) key++;
        if (options->given[k] && *key == OPTION_END) return option_table[k].name;
    }
    return NULL;
}

/* --- The parser of one command -------------------------------------------------------------------------- */

/* --set batch=N is --batch N. Returns what else it sets, in `rest`. */
static void take_batch(cli_options *options, char *rest, size_t size)
{
    rest[0] = '\0';
    for (const char *at = options->set; at && *at; at += strspn(at, ",")) {
        const size_t n = strcspn(at, ",");
        char *end = NULL;
        if (strncmp(at, "batch=", 6) == 0) {
            const long long batch = strtoll(at + 6, &end, 10);
            if (end != at + n || batch < 1 || batch > 1 << 20 ||
                (options->given[OPTION_BATCH - OPTION_FIRST] && batch != options->batch))
                exit(cli_fail_with(TANDEM_USAGE,
                                   "--set %.*s: allowed are batches of 1 to 1048576, and the same as --batch",
                                   (int)n, at));
            options->batch = batch;
            options->given[OPTION_BATCH - OPTION_FIRST] = 1;
        } else {
            (void)tandem_append(rest, size, "%s%.*s", *rest ? "," : "", (int)n, at);
        }
        at += n;
    }
}

/* Where the options name a model: of `tandem graph` it is a word. */
static const char **find_model_option(cli_options *options, const cli_command *command)
{
    const int is_graph = strcmp(command->name, "graph") == 0;
    return is_graph && options->n_word > 1 ? &options->word[1] : &options->model;
}

/* A captured module has a batch of its own. */
static void take_captured_batch(cli_options *options, const cli_command *command)
{
    const char *const model = *find_model_option(options, command);
    const int64_t batch = model ? tandem_recorded_batch(model) : 0;
    if (batch && !options->given[OPTION_BATCH - OPTION_FIRST]) options->batch = batch;
}

/* Options of the model join its name: "a.onnx" and --set seq=128 are "a.onnx:seq=128". */
static void join_model(cli_options *options, const cli_command *command)
{
    const char **const model = find_model_option(options, command);
    char rest[TANDEM_MODEL_NAME];
    take_batch(options, rest, sizeof rest);
    if (!*rest && !options->loss) return;
    if (!*model)
        exit(cli_fail_with(TANDEM_USAGE,
                           "--set and --loss are of a model; give it with --model, without --plan"));
    const char *const name = strrchr(*model, '/') ? strrchr(*model, '/') : *model;
    const int n = snprintf(options->model_text, sizeof options->model_text, "%s%s%s%s%s%s", *model,
                           strchr(name, ':') ? "," : ":", rest, *rest && options->loss ? "," : "",
                           options->loss ? "loss=" : "", options->loss ? options->loss : "");
    if (n < 0 || (size_t)n >= sizeof options->model_text)
        exit(cli_fail_with(TANDEM_USAGE,
                           "the model's name and options have %d characters; allowed are at most %d", n,
                           TANDEM_MODEL_NAME - 1));
    *model = options->model_text;
}

void cli_set_device(cli_options *options, const char *device)
{
    options->device = device;
    options->device_cluster[0] = '\0';
    if (options->threads && device && strchr(device, ','))
        exit(cli_fail_with(TANDEM_USAGE,
                           "--threads is of one device, and --device names several: give each its cores, "
                           "as in cpu:avx2:8"));
    for (const char *c = options->device; c && *c; c++)
        (void)tandem_append(options->device_cluster, sizeof options->device_cluster, *c == ',' ? " + " : "%c",
                            *c);
    if (device && options->threads > 1)
        (void)tandem_append(options->device_cluster, sizeof options->device_cluster, ":%d", options->threads);
}

void cli_options_parse(cli_options *options, const cli_command *command, int argc, char **argv)
{
    struct argp_option option[CLI_N_OPTION + CLI_MAX_OWN_OPTION + 1];
    cli_call call = cli_call_of(command);
    size_t n = 0;
    add_own_options(cli_program_running()->own);
    for (const int *key = command->option; *key != OPTION_END; key++) option[n++] = argp_option_of(*key);
    for (const int *key = of_every_command; *key != OPTION_END; key++) option[n++] = argp_option_of(*key);
    option[n] = (struct argp_option){0};

    char documentation[4096];
    (void)snprintf(documentation, sizeof documentation, "%s\v%s", command->summary, command->description);
    const struct argp argp = {
        .options = option, .parser = parse_option, .args_doc = command->words, .doc = documentation};
    const char *db = getenv("TANDEM_DB");
    *options = (cli_options){.db = db && *db ? db : "tandem.db",
                             .batch = TANDEM_DEFAULT_BATCH,
                             .timeout_ns = INT64_C(120000000000),
                             .limit = -1,
                             .at_most = -1,
                             .slowdown = -1,
                             .max_sensitivity = -1,
                             .time_spread = -1,
                             .steps = -1,
                             .evaluate = -1,
                             .repetitions = -1,
                             .error_scale = 1,
                             .rate = -1,
                             .decay = -1,
                             .momentum = -1};
    (void)setenv("ARGP_HELP_FMT", "rmargin=120,no-dup-args-note", 0); /* examples stay on one line */
    argp_err_exit_status = tandem_status_exit_code(TANDEM_USAGE);
    argv[0] = call.text;
    cli_made_begin(call.text);
    check_command_options(command, option, argc, argv);
    (void)argp_parse(&argp, argc, argv, 0, NULL, options);
    check_no_words(options, command);
    join_model(options, command);
    cli_set_device(options, options->device);
    take_captured_batch(options, command);
    cli_made_finish(options, command);
    int may_be_auto = 0;
    for (const int *key = command->option; *key != OPTION_END; key++)
        may_be_auto |= *key == OPTION_GLOBAL_BATCH;
    if (options->batch_auto && !may_be_auto)
        exit(cli_fail_with(TANDEM_USAGE,
                           "--batch auto: `%s` needs a number. Only `tandem allocate` and `tandem "
                           "advise` choose batches, with --batch auto --global-batch N",
                           call.text));
}
