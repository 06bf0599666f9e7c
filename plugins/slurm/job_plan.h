/* job_plan.h: the plan that a job finds in its working directory.
 * Made by the user's own process, with its rights; never through a symbolic link, never half. Private to
 * allocator/slurm. */
#ifndef TANDEM_ALLOCATOR_SLURM_JOB_PLAN_H
#define TANDEM_ALLOCATOR_SLURM_JOB_PLAN_H

#include <time.h>

#include "tandem/plan.h"

/* tandem_job_plan_read: the plan in file `name` of an open directory, and its graph. Where there is none, or
 * it was written before `since` (by an earlier job of the same number), TANDEM_OK and both outputs as they
 * were. TANDEM_IO where it is a link, no regular file, or somebody else's; what tandem_plan_read says. */
tandem_status tandem_job_plan_read(tandem_plan **plan, tandem_graph **graph, int directory, const char *name,
                                   time_t since, tandem_error *error);

/* tandem_job_plan_write: the text as file `name`. *exists = 1: there was one already, written at or after
 * `since`, which stays (a step that ran at the same time was first). TANDEM_IO. */
tandem_status tandem_job_plan_write(int *exists, int directory, const char *name, const char *text,
                                    time_t since, tandem_error *error);

#endif
