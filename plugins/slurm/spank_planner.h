/* spank_planner.h: the interface of spank_tandem_planner.so, which holds the planner and all that it
 * links. spank_tandem.so opens it from its own folder, in the commands that users start, mainly srun;
 * slurmd and slurmstepd, which run as root, never do. Private to plugins/slurm. */
#pragma once

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "plugins/slurm/run_folder.h"
#include "plugins/slurm/step_plan.h"

/* A run folder for srun to remove. directory: open, −1 = there is none. */
typedef struct tandem_run_location {
    int directory;
    char name[TANDEM_RUN_NAME];
} tandem_run_location;

typedef struct tandem_spank_planner {
    /* TANDEM_SPANK_INTERFACE of its build; always the first member */
    char interface[64];
    /* Whether the option takes the value; reports an error where not. */
    int (*check_option)(tandem_spank_option option, const char *name, const char *text);
    /* In slurm_spank_local_user_init: makes or finds the step's plan and publishes the tasks' environment
     * in a run folder, *location, which may exist even where the rest fails. given: NULL where an option
     * was not given. argc, argv: from plugstack.conf. Reports its errors. */
    tandem_status (*prepare_step)(tandem_run_location *location, spank_t spank,
                                  const char *const given[TANDEM_N_SPANK_OPTION], int argc, char **argv);
} tandem_spank_planner;

#define TANDEM_SPANK_INTERFACE "tandem " TANDEM_VERSION ", planner 3"
#define TANDEM_SPANK_PLANNER "tandem_spank_planner_of" /* the symbol: a const tandem_spank_planner */
