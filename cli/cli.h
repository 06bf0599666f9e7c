/* cli.h: what the commands share: options, error output, starting ranks, the backend library. */
#pragma once

#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/advanced/allocator.h"
#include "tandem/advanced/backend.h"
#include "tandem/runtime.h"
#include "runtime/process/process.h"
#include "runtime/backend_library.h"
#include "runtime/process/rank_place.h"

/* The keys of all options (options.def). */
enum option_key {
    OPTION_END,
    OPTION_FIRST = 256, /* above every letter, as argp requires */
    OPTION_BEFORE_FIRST = OPTION_FIRST - 1,
#define OPTION(key, ...) OPTION_##key,
#include "cli/options.def"
#undef OPTION
    OPTION_AFTER_LAST
};
enum { CLI_N_OPTION = OPTION_AFTER_LAST - OPTION_FIRST };
/* A program's own options (program.h) have the keys from OPTION_AFTER_LAST on. */
enum { CLI_MAX_OWN_OPTION = 4 };

/* What `tandem sensitivity` estimates by. Each keeps statistics, too. */
typedef enum cli_estimated_by { CLI_BY_PROBE, CLI_BY_SAMPLES, CLI_BY_STATISTICS } cli_estimated_by;

/* The values of all options. Each command lists the keys that it reads. */
typedef struct cli_options {
    /* for every command */
    const char *db;
    int json, quiet, details;
    int recorded; /* study: runs nothing */
    /* workload */
    const char *model, *device, *cluster, *plan, *data;
    const char *set, *loss; /* joined to `model` when the command line is read */
    char model_text[TANDEM_MODEL_NAME];
    char device_cluster[512]; /* `device` as a cluster; "": not given */
    int threads;              /* of the one device; 0 = not given */
    int unsupported;
    int estimated_by; /* a cli_estimated_by */
    int64_t batch;
    uint64_t seed, data_seed, rounding_seed; /* the last two only where they are given */
    const char *emulate; /* number formats in the place of their dtypes; NULL: nothing is emulated */
    double error_scale;
    /* allocation */
    const char *uniform, *policy, *base_precision, *method, *memory;
    double slowdown;        /* < 0 = not given */
    int64_t max_step_ns;    /* 0 = none */
    double max_sensitivity; /* < 0 = none */
    int beyond_limits;
    uint64_t bucket_bytes;    /* 0 = the default */
    tandem_step_options step; /* 0 = as the plan has it */
    tandem_collective_algorithm collective;
    tandem_dtype wire;
    tandem_kernel_set kernels;
    tandem_objective minimize; /* 0 = none */
    int batch_auto;
    int64_t global_batch; /* 0 = not given */
    int64_t proof_work;   /* 0 = the default */
    int64_t pareto;       /* number of step times; 0 = no Pareto front */
    const char *verify, *explain, *add;
    /* training; < 0 or NULL = as the model's optimizer has it */
    double rate, decay, momentum;
    const char *betas, *schedule;
    const char *no_decay;
    double clip, label_smoothing; /* 0 = none */
    double loss_scale;            /* 0 = none, < 0 = dynamic */
    int64_t warmup;
    int allow_nan;
    /* runs */
    const char *at; /* sensitivity: training points; NULL = 50 % and 90 % of the steps */
    int64_t steps, evaluate, repetitions;
    int64_t evaluate_every, checkpoint_every; /* steps; 0 = only at the end */
    int64_t reestimate;                       /* steps; 0 = as few as keep it under 1 % of the run */
    int64_t timeout_ns;
    int64_t simulations; /* 0 = none */
    double time_spread;  /* < 0 = as measured */
    int zero;            /* stage; 0 = none */
    const char *shards;  /* with zero; NULL = even */
    int remeasure, allreduce_only, per_operator, per_task, predict, all_ranks, without_update,
        from_description, force, measure_loss;
    const char *precision, *over, *pass, *list, *calibrate; /* predict */
    const char *import;                                     /* profile: tables, instead of measuring */
    int64_t sweep_ns; /* profile: of networks instead of a model; 0 = none */
    double limit;     /* compare: largest allowed error; < 0 = none */
    double at_most;   /* with measure_loss: extra samples; < 0 = nothing is asked */
    /* output files */
    const char *output, *report, *trace, *log, *checkpoint, *resume, *init, *export;
    /* which options were given: for cli_option_given and cli_option_not_allowed */
    unsigned char given[CLI_N_OPTION + CLI_MAX_OWN_OPTION];
    const char
        *given_text[CLI_N_OPTION +
                    CLI_MAX_OWN_OPTION]; /* the value as it was typed; "" without one; NULL: not given */
    /* positional arguments */
    const char *word[1024];
    int n_word;
} cli_options;

typedef struct cli_command {
    const char *name, *words, *summary; /* words: usage of positional arguments, "" = none */
    /* keys of the options that it reads (tests/cli/test_options.sh), OPTION_END last; those of every command
     * are added */
    const int *option;
    int joins_run;                          /* 1: a launcher may start it as a rank (rank_start_begin) */
    const char *description;                /* help text after the options, with examples */
    int (*run)(const cli_options *options); /* returns the exit code */
} cli_command;

/* Each is defined in its own file. */
extern const cli_command command_demo, command_list, command_doctor, command_graph, command_profile,
    command_sensitivity, command_replay, command_allocate, command_advise, command_train, command_compare,
    command_whatif, command_predict, command_report;

/* Parses argv after the command's name. Prints help, version or a usage error and exits if there is one. */
void cli_options_parse(cli_options *options, const cli_command *command, int argc, char **argv);
/* Names the devices as --device does, "a,b", which is the cluster "a + b". NULL: none. */
void cli_set_device(cli_options *options, const char *device);
/* Whether the command line gave this option. */
int cli_option_given(const cli_options *options, int key);
/* The option's name, "seed". */
const char *cli_option_name(int key);
/* The name of a given option that is not in `allowed` (OPTION_END last), or NULL. */
const char *cli_option_not_allowed(const cli_options *options, const int *allowed);

/* --- Output --------------------------------------------------------------------------------------------- */
/* Prints "PROGRAM: text" on stderr. Returns the exit code of the error. */
int cli_fail(const tandem_error *error);
/* The same for a rank: an error that all ranks share is printed by one of them. */
int cli_fail_on_rank(int rank, const tandem_error *error);
/* The same for an error of the command line: status and printf text. */
int cli_fail_with(tandem_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new object with "schema": "tandem.<command>/1" and what made it (cli_made). NULL without memory;
 * jansson's setters accept that. */
json_t *cli_json_new(const char *command);
/* A number, or null if it is not finite. */
json_t *cli_json_number(double x);
/* A whole number, or null where it is below 0: not known. */
json_t *cli_json_known_integer(int64_t x);
json_t *
cli_json_shares(const tandem_sharding *sharding); /* units of a rank in each class; [] of equal shards */
/* From now on, cli_print_json puts its object there in the place of standard output; NULL: it prints again.
 * Returns what it was before. */
json_t **cli_capture(json_t **to);
/* Prints the object on stdout and releases it. Exit code 0, or 5 if it could not be written. */
int cli_print_json(json_t *object);
/* Prints progress on stderr where that is a terminal, not with -q. The next line overwrites this one.
 * left_ns: time left; <= 0 = unknown or none. */
void cli_progress(const cli_options *options, int64_t left_ns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Clears the progress line before text goes to stdout. */
void cli_progress_end(void);
/* cli_format: a text that the caller frees; NULL: no memory. Names in it cannot command the terminal
 * (base/printable.h). cli_print: writes it to stdout; what printf is in this folder. */
char *cli_format(const char *kept, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
int cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define printf(...) cli_print(__VA_ARGS__)
/* The same in a handler of signals. */
void cli_progress_clear(void);
void cli_note(const cli_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- What made a result, a plan, a trace or a log (made.c) ---------------------------------------------- */
/* What a user types for the command: "tandem train". */
void cli_made_begin(const char *call);
/* Adds a word of the command line: an option (without "--") with its value, or NULL for either. */
void cli_made_add(const char *option, const char *value);
/* After the last word. A command that this one runs adds nothing. */
void cli_made_finish(const cli_options *options, const cli_command *command);
const tandem_made *cli_made(void);
json_t *cli_made_json(void); /* NULL without memory */

/* --- Inputs that several commands read ------------------------------------------------------------------ */
/* The request of the options: --plan, or --model, --cluster (or --device), --batch, --memory and --uniform.
 * It borrows their texts. TANDEM_USAGE: options contradict each other. */
tandem_status cli_workload_request(tandem_workload_request *request, const cli_options *options,
                                   tandem_error *error);
/* Of a training; the same. */
tandem_status cli_train_request(tandem_train_request *request, const cli_options *options,
                                tandem_error *error);
/* The same of options that were checked: their workload is open. */
tandem_train_request cli_training(const cli_options *options);
tandem_training_options cli_training_options(const cli_options *options);
/* Shows progress and notes as the options say; it borrows them. */
tandem_listener cli_listener(const cli_options *options);
/* Opens the workload of the options. */
tandem_status cli_workload_open(tandem_workload *workload, const cli_options *options, tandem_error *error);
/* The largest number of operators of a class whose backward products read f16; `where` lists the devices of
 * such classes. */
int cli_count_f16_gradients(const tandem_plan *plan, const tandem_graph *graph, char *where, size_t size);
/* If the plan's file has a bound that was proven for another set of plans: a note that the bound does not
 * count. */
void cli_note_unproven_bound(const cli_options *options, const tandem_plan *plan);

/* --- Running another command (run_inner.c) -------------------------------------------------------------- */
/* Runs a command with the words argument… (NULL-terminated) and --json, and -q as in options. Returns what it
 * would print, which the caller releases; NULL: nothing. */
json_t *cli_run_inner(const cli_command *command, const cli_options *options, const char *const *argument,
                      int *exit_code);
