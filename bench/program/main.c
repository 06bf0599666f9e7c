/* main.c: `tandem-bench`. */
#include "bench/program/bench.h"

int main(int argc, char **argv)
{
    static const cli_command *const command[] = {&command_bench, NULL};
    static const cli_program bench = {.name = "tandem-bench", .command = command};
    return cli_program_run(&bench, argc, argv);
}
