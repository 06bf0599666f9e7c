/* main.c: `tandem-study`. */
#include "research/study.h"

int main(int argc, char **argv)
{
    static const cli_command *const command[] = {&command_study, NULL};
    static const cli_program study = {.name = "tandem-study", .command = command, .own = study_own_option};
    return cli_program_run(&study, argc, argv);
}
