/* run_folder.h: the folder in which the ranks of one step meet, and what srun leaves in it for the tasks:
 * .tandem-run-JOB.STEP and its file `environment`, in the job's working directory. Private to
 * allocator/slurm; libc alone, for slurmstepd links it.
 *
 * Who opens what: srun makes and removes the folder, as the user. A task reads it as the user, too, in its
 * own process behind slurmstepd's fork, between giving up root's rights and exec (slurm_spank_task_init). No
 * process that runs as root opens a path below a directory that a user named.
 *
 * Others may write in that directory. So neither the folder nor the file is opened through a link; both must
 * belong to the effective user and be written by nobody else; and of what stands in the file only the names
 * below are taken. */
#ifndef TANDEM_ALLOCATOR_SLURM_RUN_FOLDER_H
#define TANDEM_ALLOCATOR_SLURM_RUN_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

/* What a task is told. Where the step has no plan, TANDEM_FAILED stands alone: tandem's exit code. */
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
/* The folder's name. component: the first of a heterogeneous job that the step runs on, 0 of any other.
 * Returns name. */
char *tandem_run_folder_name(char name[TANDEM_RUN_NAME], uint32_t job, uint32_t component, uint32_t step);

/* An empty folder `name` in an open directory, mode 0700, in the place of one that an earlier run of this
 * user's has left. TANDEM_IO. */
tandem_status tandem_run_folder_make(int directory, const char *name, tandem_error *error);
/* Removes it with the files in it; says nothing where that fails. */
void tandem_run_folder_remove(int directory, const char *name);

/* Leaves the values that are not NULL, in the place of any that were left before. TANDEM_IO;
 * TANDEM_WRONG_FORMAT as below. */
tandem_status tandem_run_folder_write(int directory, const char *name,
                                      const char *const value[TANDEM_N_RUN_VARIABLE], tandem_error *error);

/* What was left: value[v] is NULL or lies in `text`. Zero-initialise; free(left->text). */
typedef struct tandem_run_environment {
    char *text;
    const char *value[TANDEM_N_RUN_VARIABLE];
    int failed; /* the number behind TANDEM_FAILED; 0 = none */
} tandem_run_environment;
/* directory may be AT_FDCWD. TANDEM_MISSING where there is no such folder. TANDEM_WRONG_FORMAT where folder
 * or file is a link, is no folder or regular file, is somebody else's, or may be written by others; where the
 * file is larger than TANDEM_RUN_MAX_BYTES or holds anything that srun does not write. TANDEM_IO,
 * TANDEM_NO_MEMORY. *left unchanged on error. */
tandem_status tandem_run_folder_read(tandem_run_environment *environment, int directory, const char *name,
                                     tandem_error *error);
/* The same of n bytes; `name` is the folder's, for errors. */
tandem_status tandem_run_environment_parse(tandem_run_environment *environment, const char *bytes, size_t n,
                                           const char *name, tandem_error *error);

#endif
