/* main.c: the commands of `tandem`. */
#include "cli/program.h"

static const cli_command *const commands[] = {
    &command_demo,        &command_list,   &command_doctor,   &command_graph,   &command_profile,
    &command_sensitivity, &command_replay, &command_allocate, &command_advise,  &command_train,
    &command_compare,     &command_report, &command_whatif,   &command_predict, NULL,
};

static const cli_program tandem = {
    .name = "tandem",
    .begin = "Usage: tandem COMMAND [OPTION...]\nAssigns a numeric precision to every operator on "
             "every device of a mixed GPU/CPU cluster.\n\nCommands:\n",
    .end = "\n`tandem COMMAND --help` lists a command's options, with examples. Start with:  "
           "tandem demo\nExit codes: 0 done, 1 negative answer, 2 usage error, 3 malformed "
           "input, 4 something is missing,\n5 out of memory or I/O error, 6 another rank "
           "failed, 70 internal error.\n",
    .command = commands,
};

int main(int argc, char **argv) { return cli_program_run(&tandem, argc, argv); }
