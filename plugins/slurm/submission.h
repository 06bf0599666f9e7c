/* submission.h: whether a job can run as requested, from what is known at its submission. Private to
 * plugins/slurm; needs no header of Slurm. */
#pragma once

#include "plugins/slurm/memory_fit.h"
#include "plugins/slurm/site.h"

/* The texts of the user, borrowed; NULL = not given. */
typedef struct tandem_submission {
    const char *model, *batch, *memory; /* --tandem-…, as text */
    const char *resources[4];           /* of --gres and similar options: "gres:gpu:t4:2,…" */
    const char *features;               /* --constraint */
    uint64_t task_memory_bytes;         /* memory per task on a CPU by --mem; 0 = no limit */
} tandem_submission;

/* The values of --tandem-batch and --tandem-global-batch (a whole number) and --tandem-memory (sizes; the
 * largest counts). TANDEM_USAGE. */
tandem_status tandem_submission_batch(int64_t *batch, const char *text, tandem_error *error);
tandem_status tandem_submission_memory(uint64_t *max_bytes, const char *text, tandem_error *error);

/* tandem_submission_check: TANDEM_OK: nothing speaks against the job. Refused are:
 *   TANDEM_UNKNOWN_NAME  a model, its option or a resource is unknown; gives the nearest name
 *   TANDEM_USAGE         a value is invalid
 *   TANDEM_INFEASIBLE    under every plan the model needs more memory than a requested device has; names the
 *                        device, the bytes, the limit and a batch that fits
 * The limit of a rank is --tandem-memory, else the device's memory; on a CPU --mem counts, too. Devices are
 * those of typed resources, else of features, unless these are beside an "or" (|).
 * Other results do not judge the job, and their texts hold no text of the user: TANDEM_NO_MEMORY, and
 * TANDEM_LIMIT_EXCEEDED where the check exceeds the budget. The answer depends on the arguments alone. Opens
 * no file, for all names. work: the budget; its spent units are updated. Cost: those units;
 * docs/slurm.md gives the worst case. */
enum { TANDEM_SUBMISSION_MAX_WORK = 50000 }; /* per job in slurmctld */
tandem_status tandem_submission_check(tandem_work_budget *work, const tandem_submission *submission,
                                      const tandem_site *site, tandem_error *error);
int tandem_submission_is_refused(tandem_status status);
