/* program_run.c: begins a program, finds the command in the arguments and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "runtime/process/process.h"
#include "cli/program.h"

static void print_help(const cli_program *program, FILE *out)
{
    fputs(program->begin, out);
    for (int k = 0; program->command[k]; k++)
        fprintf(out, "  %-12s %s\n", program->command[k]->name, program->command[k]->summary);
    fputs(program->end, out);
}

static const cli_command *find_command(const cli_program *program, const char *name, tandem_hint *hint)
{
    const char *names[32];
    size_t n = 0;
    for (; program->command[n]; n++) names[n] = program->command[n]->name;
    const int k = tandem_name_find(name, names, n, sizeof *names, hint);
    return k < 0 ? NULL : program->command[k];
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

static int print_version(const cli_program *program)
{
    printf("%s %s\n", program->name, TANDEM_VERSION);
    return 0;
}

static int asks_version(int argc, char **argv)
{
    return argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0);
}

/* argv[0] is replaced by what a user types for the command. */
static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_options options;
    tandem_rank_place self;
    if (command->joins_run && rank_place_from_environment(&self, NULL) == 1) rank_start_begin(&self);
    cli_options_parse(&options, command, argc, argv);
    cli_standard_output_protect();
    return command->run(&options);
}

static int run_one_of_many(const cli_program *program, int argc, char **argv)
{
    int index = find_command_index(argc, argv);
    if (index && strcmp(argv[index], "help") == 0) { /* `tandem help COMMAND` is `tandem COMMAND --help` */
        static char help[] = "--help";
        argv[index] = help;
        index = index + 1 < argc ? index + 1 : 0;
        if (!index) argv[1] = help;
    }
    if (!index) {
        const int asked = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        if (asks_version(argc, argv)) return print_version(program);
        print_help(program, asked ? stdout : stderr);
        return asked ? 0 : tandem_status_exit_code(TANDEM_USAGE);
    }
    tandem_hint hint;
    const cli_command *command = find_command(program, argv[index], &hint);
    if (!command)
        return cli_fail_with(TANDEM_UNKNOWN_NAME, "no command '%s'.%s `%s --help` lists them.", argv[index],
                             hint.text, program->name);
    /* Options may come before the command: move the command's word to the front. */
    char *name = argv[index];
    memmove(&argv[2], &argv[1], (size_t)(index - 1) * sizeof *argv);
    argv[1] = name;
    return run_command(command, argc - 1, argv + 1);
}

int cli_program_run(const cli_program *program, int argc, char **argv)
{
    cli_program_begin(program);
    const int failed = begin_process();
    if (failed) return failed;
    if (program->begin) return run_one_of_many(program, argc, argv);
    if (asks_version(argc, argv)) return print_version(program);
    return run_command(program->command[0], argc, argv);
}
