/* main.c: `tandem-fit`. */
#include "tools/fit.h"

int main(int argc, char **argv)
{
    static const cli_command *const command[] = {&command_fit, NULL};
    static const cli_program fit = {.name = "tandem-fit", .command = command, .own = fit_own_option};
    return cli_program_run(&fit, argc, argv);
}
