/* fit.h: the command of `tandem-fit`. */
#pragma once

#include "cli/program.h"

/* The options that no other program has. */
enum { OPTION_LEAVE_ONE_OUT = OPTION_AFTER_LAST, OPTION_WITHOUT, OPTION_JUDGE };
extern const cli_own_option fit_own_option[];
extern const cli_command command_fit;
