/* cli.h: what the commands share: options, ways to fail, ranks to start, the backend library. */
#ifndef TANDEM_CLI_CLI_H
#define TANDEM_CLI_CLI_H

#include <jansson.h>
#include <stdint.h>

#include "tandem/allocator.h"
#include "tandem/backend.h"

/* The keys of all options (options.def). */
enum option_key {
    OPTION_END,
    OPTION_FIRST = 256, /* above every letter, as argp wants it */
    OPTION_BEFORE_FIRST = OPTION_FIRST - 1,
#define OPTION(key, ...) OPTION_##key,
#include "cli/options.def"
#undef OPTION
    OPTION_AFTER_LAST
};
enum { CLI_N_OPTION = OPTION_AFTER_LAST - OPTION_FIRST };

/* Every option any command takes; a command names those it wants by their keys (options.c). */
typedef struct cli_options {
    /* of every command */
    const char *db;
    int json, quiet, verbose;
    /* what to look at */
    const char *model, *device, *cluster, *plan, *data;
    int64_t batch;
    uint64_t seed;
    /* how to allocate */
    const char *uniform, *policy, *base_precision, *method, *memory;
    double slowdown;          /* < 0 = not given */
    int64_t max_step_ns;      /* 0 = none */
    double max_sensitivity;   /* of sensitivity; < 0 = none */
    uint64_t bucket_bytes;    /* 0 = the default */
    tandem_step_options step; /* 0 = as the plan has it */
    tandem_collective_algorithm collective;
    int minimize_memory, batch_auto;
    int64_t global_batch; /* 0 = not given */
    int64_t pareto;       /* targets; 0 = not asked for */
    const char *svg, *verify, *explain, *add;
    /* how to train: all < 0 or NULL = as the model's optimizer has it */
    double rate, decay, momentum;
    const char *betas, *schedule;
    const char *no_decay;
    double clip, label_smoothing; /* 0 = none */
    double loss_scale;            /* 0 = none, < 0 = dynamic */
    int64_t warmup;
    int allow_nan;
    /* how to run */
    int64_t steps, evaluate, repetitions;
    int64_t evaluate_every, checkpoint_every; /* steps; 0 = only at the end */
    int64_t timeout_ns;
    int64_t simulations; /* 0 = none */
    double time_spread;  /* < 0 = as measured */
    int zero;            /* stage; 0 = none */
    int remeasure, allreduce_only, per_operator, per_task, predict, all_ranks;
    double limit; /* compare: largest error allowed; < 0 = none */
    /* where to write */
    const char *output, *trace, *log, *checkpoint, *resume, *init, *export;
    unsigned char given[CLI_N_OPTION]; /* for the two functions below cli_options_parse */
    /* words that stand by themselves */
    const char *word[1024];
    int n_word;
} cli_options;

typedef struct cli_command {
    const char *name, *words, *summary; /* words: usage of what stands by itself, "" = nothing */
    /* keys of what it reads (tests/cli/test_options.sh), OPTION_END last; those of every command are added */
    const int *option;
    const char *description;                /* help text behind the options, with examples */
    int (*run)(const cli_options *options); /* returns the exit code */
} cli_command;

/* One a file. */
extern const cli_command command_demo, command_list, command_doctor, command_graph, command_profile,
    command_sensitivity, command_replay, command_allocate, command_advise, command_train, command_compare,
    command_whatif, command_bench;
extern const cli_command *const cli_commands[]; /* NULL-terminated */

/* Parses argv behind the command's name. Prints help, version or usage and exits where these are asked for or
 * needed. */
void cli_options_parse(cli_options *options, const cli_command *command, int argc, char **argv);
/* Whether the command line gave an option. */
int cli_option_given(const cli_options *options, int key);
/* The name of an option that was given and whose key is not among those allowed, OPTION_END last; NULL =
 * there is none. For questions that read fewer options than their command. */
const char *cli_option_not_allowed(const cli_options *options, const int *allowed);

/* --- Output --------------------------------------------------------------------------------------------- */
/* Prints "tandem: text" on stderr; returns the exit code of the error. */
int cli_fail(const tandem_error *error);
/* The same by a rank: an error that all ranks have is printed once. */
int cli_fail_on_rank(int rank, const tandem_error *error);
/* The same for an error born in the command line: status and printf text. */
int cli_fail_with(tandem_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new object with "schema": "tandem.<command>/1". NULL without memory (jansson's setters pass that on). */
json_t *cli_json_new(const char *command);
/* A number, or null where it is not finite: JSON knows no NaN. */
json_t *cli_json_number(double x);
/* Prints the object on stdout and releases it; exit code 0, 5 where it could not be written. */
int cli_print_json(json_t *object);
/* For people, on stderr; nothing with -q. On a terminal a progress line is overwritten by the next; elsewhere
 * it is a plain line. left_ns: time left, <= 0 = not known, or none. */
void cli_progress(const cli_options *options, int64_t left_ns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends printf text to the string `text` of `size` bytes, cut to fit. Returns text. */
char *cli_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Takes the progress line off the terminal: before text goes to stdout. */
void cli_progress_end(void);
void cli_note(const cli_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- Inputs that several commands read ------------------------------------------------------------------ */
/* A command's subject: the model at the batch of every class of its cluster, and one plan. Members unused are
 * NULL. */
typedef struct cli_workload {
    tandem_cluster cluster; /* batches and memory limits filled in */
    tandem_graph *graph[TANDEM_MAX_CLASS];
    tandem_plan *plan;
    double loss_scale; /* of the options, else of the plan; 0 = none, < 0 = dynamic */
} cli_workload;
/* Whether the environment wants ranks of one machine to exchange gradients over the network
 * (TANDEM_ALLREDUCE). TANDEM_USAGE. */
tandem_status cli_choose_transport(int *over_network, tandem_error *error);
/* Opens a subject from --plan, or from --model, --cluster (or --device), --batch, --memory and --uniform. */
tandem_status cli_workload_open(cli_workload *workload, const cli_options *options, tandem_error *error);
void cli_workload_close(cli_workload *workload);
/* Gradients in f16 lose what is small, so that a training needs a loss scale. Of a plan: the most operators
 * of a class whose backward products read one, and into `where` the devices of such classes; 0 = there is
 * none. */
int cli_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, char *where, size_t size);
/* Whether some plan of a cluster has one. */
int cli_may_have_f16_gradients(const tandem_cluster *cluster);
/* A note where a plan has one and no loss scale: what to do, then "--loss-scale dynamic". */
void cli_note_loss_scale(const cli_options *options, const tandem_plan *plan, const tandem_graph *graph,
                         double loss_scale, const char *advice);

/* A file of the working directory that goes when SIGINT, SIGTERM or SIGHUP ends this process, if it was not
 * removed before; up to 16 at a time. Names of up to 39 characters; not for several threads. */
void cli_scratch_file_add(const char *path);
void cli_scratch_file_remove(const char *path);

/* An empty store in the working directory, whose name goes to `path`; its maker removes it. A scratch file.
 * TANDEM_IO. */
enum { CLI_SCRATCH_STORE = 32 };
tandem_status cli_scratch_store_make(char path[CLI_SCRATCH_STORE], tandem_error *error);
void cli_scratch_store_remove(const char *path);

/* --- The backend library -------------------------------------------------------------------------------- */
/* Opens libtandem_backend.so ($TANDEM_BACKEND, beside the program, ../lib, the system's path) once; NULL and
 * *error (TANDEM_MISSING) where there is none or its version is another. */
const tandem_backend_api *cli_backend(tandem_error *error);
/* tandem_device_require (cluster.h), and of cards whether they can be opened here. */
tandem_status cli_device_require(const char *device, tandem_error *error);

/* --- Ranks ---------------------------------------------------------------------------------------------- */
typedef struct cli_rank {
    int rank, n_rank;
    const char *store;
    int cpu;
} cli_rank;
/* Whether this process is a rank: RANK and WORLD_SIZE are set (TANDEM_STORE too where WORLD_SIZE > 1). 1 =
 * yes, filled in; 0 = no; −1 = they are set wrongly: *error. */
int cli_rank_from_environment(cli_rank *rank, tandem_error *error);
/* Starts this very command (same arguments) n_rank times, each a rank pinned to a core of its own, and waits.
 * Returns the exit code: 0, that of the rank that failed first, 6 where one was killed. Rank 0 owns stdout.
 * */
int cli_ranks_start(int n_rank, const cli_options *options);
/* Runs `tandem argument…` (NULL-terminated) with --json, and -q where options say so, and returns the object
 * it printed; its stderr is ours. NULL and *exit_code where it failed. */
json_t *cli_run_self(const cli_options *options, const char *const *argument, int *exit_code);
void cli_save_arguments(int argc, char **argv);

#endif
