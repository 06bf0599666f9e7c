/* job_files.h: what a job finds in its working directory: its plan, and a directory in which the ranks of one step meet.
 * Made by the user's own process, with its rights; never through a symbolic link, never half. Private to allocator/slurm. */
#ifndef TANDEM_ALLOCATOR_SLURM_JOB_FILES_H
#define TANDEM_ALLOCATOR_SLURM_JOB_FILES_H

#include <time.h>

#include "tandem/plan.h"

/* tandem_job_plan_read: the plan in file `name` of an open directory, and its graph. Where there is none, or it was written
 * before `since` (by an earlier job of the same number), TANDEM_OK and both outputs as they were. TANDEM_IO where it is a
 * link, no regular file, or somebody else's; what tandem_plan_read says. */
tandem_status tandem_job_plan_read(tandem_plan **plan, tandem_graph **graph, int directory, const char *name,
                                   time_t since, tandem_error *error);

/* tandem_job_plan_write: the text as file `name`. *exists = 1: there was one already, written at or after `since`, which stays
 * (a step that ran at the same time was first). TANDEM_IO. */
tandem_status tandem_job_plan_write(int *exists, int directory, const char *name, const char *text,
                                    time_t since, tandem_error *error);

/* tandem_run_directory_make: an empty directory `name`, for this user alone, in the place of one that an earlier run has left.
 * TANDEM_IO. */
tandem_status tandem_run_directory_make(int directory, const char *name, tandem_error *error);
/* Removes it with the files in it; says nothing where that fails. */
void tandem_run_directory_remove(int directory, const char *name);

#endif
