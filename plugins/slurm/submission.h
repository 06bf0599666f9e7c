/* submission.h: whether a job can run as it was asked for, from what is known when it is submitted. Private
 * to allocator/slurm; no header of Slurm's. */
#ifndef TANDEM_ALLOCATOR_SLURM_SUBMISSION_H
#define TANDEM_ALLOCATOR_SLURM_SUBMISSION_H

#include "plugins/slurm/memory_fit.h"
#include "plugins/slurm/site.h"

/* What the user wrote; NULL = nothing. Borrowed. */
typedef struct tandem_submission {
    const char *model, *batch, *memory; /* --tandem-…, as text */
    const char *resources[4];           /* --gres and its relatives: "gres:gpu:t4:2,…" */
    const char *features;               /* --constraint */
    uint64_t task_memory_bytes;         /* what --mem leaves to a task on a CPU; 0 = no limit */
} tandem_submission;

/* What --tandem-batch and --tandem-memory take: a whole number; a size, or several, of which this is the
 * largest. TANDEM_USAGE. */
tandem_status tandem_submission_batch(int64_t *batch, const char *text, tandem_error *error);
tandem_status tandem_submission_memory(uint64_t *max_bytes, const char *text, tandem_error *error);

/* tandem_submission_check: TANDEM_OK where nothing speaks against the job. It is refused with
 * TANDEM_UNKNOWN_NAME (model or its option, resource: with the nearest name), TANDEM_USAGE (a value), or
 * TANDEM_INFEASIBLE where the model takes more memory than a device that was asked for has, whatever the
 * plan: which device, how many bytes, the limit, a batch that fits. The limit of a rank is --tandem-memory
 * (the largest, where there are several), else the device's own; on a CPU --mem counts too. Devices are those
 * of typed resources, or else of features, unless these stand beside an "or" (|). Other results say nothing
 * about the job, and their texts hold no word of the user's: TANDEM_NO_MEMORY, and TANDEM_LIMIT_EXCEEDED
 * where it takes more work to look at than there may be. The answer depends on nothing but the arguments: it
 * is the same on a busy machine. No file is opened, whatever the names are. work: the units that may be
 * spent, and that were. Cost: that of the units (memory_fit.h); docs/slurm.md has the worst case. */
enum { TANDEM_SUBMISSION_MAX_WORK = 50000 }; /* what slurmctld gives a job */
tandem_status tandem_submission_check(tandem_work_budget *work, const tandem_submission *submission,
                                      const tandem_site *site, tandem_error *error);
int tandem_submission_is_refused(tandem_status status);

#endif
