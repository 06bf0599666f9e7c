/* run_folder.h: the folder in which the ranks of a step meet, .tandem-run-JOB.STEP in the job's working
 * directory, and its file `environment`, which srun leaves for the tasks. Private to plugins/slurm; uses libc
 * alone, because slurmstepd links it.
 *
 * Who opens what: srun creates and removes the folder as the user. A task reads it as the user, too, in its
 * own process after slurmstepd's fork, between the loss of root's rights and exec (slurm_spank_task_init). No
 * process that runs as root opens a path below a directory that a user named.
 *
 * Others may be able to write in that directory. So folder and file are never opened through a link, must
 * belong to the effective user, must not be writable by others, and only the names below are read from the
 * file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* The variables of a task. Where the step has no plan, there is only TANDEM_RUN_FAILED with the exit code. */
typedef enum tandem_run_variable {
    TANDEM_RUN_PLAN,
    TANDEM_RUN_STORE,
    TANDEM_RUN_DATABASE,
    TANDEM_RUN_RANKS,
    TANDEM_RUN_SIZE,
    TANDEM_RUN_INTERFACE,
    TANDEM_RUN_FAILED,
    TANDEM_N_RUN_VARIABLE
} tandem_run_variable;
const char *tandem_run_variable_name(tandem_run_variable variable); /* "TANDEM_PLAN", …, "WORLD_SIZE", … */

enum { TANDEM_RUN_NAME = 64, TANDEM_RUN_MAX_BYTES = 1 << 18 };
/* The name of the folder; returns it. component: the first one of a heterogeneous job that the step runs
 * on, else 0. */
char *tandem_run_folder_name(char name[TANDEM_RUN_NAME], uint32_t job, uint32_t component, uint32_t step);

/* Creates an empty folder `name`, mode 0700, in an open directory; replaces one that an earlier run of
 * this user left. TANDEM_IO. */
tandem_status tandem_run_folder_make(int directory, const char *name, tandem_error *error);
/* Removes the folder and its files; ignores errors. */
void tandem_run_folder_remove(int directory, const char *name);

/* Writes the values that are not NULL, in place of any written before. TANDEM_IO; TANDEM_WRONG_FORMAT as
 * below. */
tandem_status tandem_run_folder_write(int directory, const char *name,
                                      const char *const value[TANDEM_N_RUN_VARIABLE], tandem_error *error);

/* The variables that were read: value[v] is NULL or points into `text`. Zero-initialise;
 * free(environment.text). */
typedef struct tandem_run_environment {
    char *text;
    const char *value[TANDEM_N_RUN_VARIABLE];
    int failed; /* the exit code; 0 = none */
} tandem_run_environment;
/* directory may be AT_FDCWD. TANDEM_MISSING: there is no such folder. TANDEM_WRONG_FORMAT: folder or file
 * is a link or of the wrong kind, belongs to another user or is writable by others; or the file exceeds
 * TANDEM_RUN_MAX_BYTES or holds anything that srun does not write. TANDEM_IO, TANDEM_NO_MEMORY. Output
 * unchanged on error. */
tandem_status tandem_run_folder_read(tandem_run_environment *environment, int directory, const char *name,
                                     tandem_error *error);
/* The same for n bytes; `name` names the folder in errors. */
tandem_status tandem_run_environment_parse(tandem_run_environment *environment, const char *bytes, size_t n,
                                           const char *name, tandem_error *error);
