/* main.c: finds the command in the arguments and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/cli.h"
#include "runtime/process/process.h"

const cli_command *const cli_commands[] = {
    &command_demo,   &command_list,     &command_doctor,
    &command_graph,  &command_profile,  &command_sensitivity,
    &command_replay, &command_allocate, &command_advise,
    &command_train,  &command_compare,  &command_report,
    &command_whatif, &command_predict,  &command_fit,
    NULL,
};

static void print_help(FILE *out)
{
    fputs("Usage: tandem COMMAND [OPTION...]\nAssigns a numeric precision to every operator on "
          "every device of a mixed GPU/CPU cluster.\n\nCommands:\n",
          out);
    for (int k = 0; cli_commands[k]; k++)
        fprintf(out, "  %-12s %s\n", cli_commands[k]->name, cli_commands[k]->summary);
    fputs("\n`tandem COMMAND --help` lists a command's options, with examples. Start with:  "
          "tandem demo\nExit codes: 0 done, 1 negative answer, 2 usage error, 3 malformed "
          "input, 4 something is missing,\n5 out of memory or I/O error, 6 another rank "
          "failed, 70 internal error.\n",
          out);
}

static const cli_command *find_command(const char *name, tandem_hint *hint)
{
    const char *names[32];
    size_t n = 0;
    for (; cli_commands[n]; n++) names[n] = cli_commands[n]->name;
    const int k = tandem_name_find(name, names, n, sizeof *names, hint);
    return k < 0 ? NULL : cli_commands[k];
}

/* The index of the command in argv: the first word that is no option and not the value of --db; 0 = none. */
static int find_command_index(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--db") == 0 || strcmp(argv[i], "-d") == 0)
            i++;
        else if (argv[i][0] != '-')
            return i;
    }
    return 0;
}

/* The C library's stream, on which argp prints --help (standard_files.c). */
extern FILE
    *__real_stdout; /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's */

/* Runs at every exit, also after --help: output that cannot be written is an error. */
static void check_output_written(int code, void *nothing)
{
    (void)nothing;
    const int failed = fflush(__real_stdout) | ferror(__real_stdout) | fflush(stdout) | ferror(stdout);
    if (failed && code == 0) _exit(cli_fail_with(TANDEM_IO, "cannot write the result to standard output"));
}

/* What a parent may have left: closed descriptors, ignored signals, bound threads. */
static int begin_process(void)
{
    const int failed = cli_standard_files_open();
    if (failed) return cli_fail_with(TANDEM_IO, "cannot open standard output: %s", strerror(failed));
    signals_begin(cli_progress_clear);
    openmp_forget();
    return on_exit(check_output_written, NULL) == 0 ? 0
                                                    : cli_fail_with(TANDEM_NO_MEMORY, "no memory to begin");
}

int main(int argc, char **argv)
{
    const int failed = begin_process();
    if (failed) return failed;
    int index = find_command_index(argc, argv);
    if (index && strcmp(argv[index], "help") == 0) { /* `tandem help COMMAND` is `tandem COMMAND --help` */
        static char help[] = "--help";
        argv[index] = help;
        index = index + 1 < argc ? index + 1 : 0;
        if (!index) argv[1] = help;
    }
    if (!index) {
        const int asked = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
            puts("tandem " TANDEM_VERSION);
            return 0;
        }
        print_help(asked ? stdout : stderr);
        return asked ? 0 : tandem_status_exit_code(TANDEM_USAGE);
    }
    tandem_hint hint;
    const cli_command *command = find_command(argv[index], &hint);
    if (!command)
        return cli_fail_with(TANDEM_UNKNOWN_NAME, "no command '%s'.%s `tandem --help` lists them.",
                             argv[index], hint.text);
    /* Options may stand before the command: move the command's word to the front. */
    char *name = argv[index];
    memmove(&argv[2], &argv[1], (size_t)(index - 1) * sizeof *argv);
    argv[1] = name;
    cli_options options;
    tandem_rank_place self;
    if (command->joins_run && rank_place_from_environment(&self, NULL) == 1) rank_start_begin(&self);
    cli_options_parse(&options, command, argc - 1, argv + 1);
    cli_standard_output_protect();
    return command->run(&options);
}
