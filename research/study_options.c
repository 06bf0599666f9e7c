/* study_options.c: the options that `tandem-study` alone has. */
#include "research/study.h"

study_options study_own;

const cli_own_option study_own_option[] = {
    [OPTION_QUICK - OPTION_AFTER_LAST] = {.name = "quick",
                                          .help = "Smaller cells: seconds instead of minutes",
                                          .group = 3,
                                          .flag = &study_own.quick},
    [OPTION_RECORDED - OPTION_AFTER_LAST] = {.name = "recorded",
                                             .help = "Run nothing: the tables of what --checkpoint has",
                                             .group = 3,
                                             .flag = &study_own.recorded},
    {.name = NULL},
};
