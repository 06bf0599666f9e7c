/* job_plan.h: the plan file in a job's working directory. The user's own process reads and writes it with
 * the user's rights, never through a symbolic link, and always whole. Private to plugins/slurm. */
#pragma once

#include <time.h>

#include "tandem/plan.h"

/* tandem_job_plan_read: the plan in file `name` of an open directory, and its graph. TANDEM_OK with
 * unchanged outputs where there is no such file, or it was written before `since` (by an earlier job of
 * the same number). TANDEM_IO: it is a link, not a regular file, or of another user. Otherwise the errors
 * of tandem_plan_read. */
tandem_status tandem_job_plan_read(tandem_plan **plan, tandem_graph **graph, int directory, const char *name,
                                   time_t since, tandem_error *error);

/* tandem_job_plan_write: writes the text as file `name`. *exists = 1: a file written at or after `since`
 * was there and stays (a step at the same time was first). TANDEM_IO. */
tandem_status tandem_job_plan_write(int *exists, int directory, const char *name, const char *text,
                                    time_t since, tandem_error *error);
