/* job_submit_tandem.c: tandem in slurmctld. It refuses a job that cannot run as requested before the job
 * queues, and says why. It lets a job through where this cannot be decided at once: no options of tandem, no
 * device named, a damaged tandem.conf, no memory. srun checks again when the job starts.
 *
 * It runs as root while slurmctld holds its locks. So it opens tandem.conf, whose path the administrator
 * gives, and no other file. Code that opens no file (submission.h) checks what users write, within a budget
 * of work. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include "plugins/slurm/submission.h"
#include "base/clock.h"

/* Functions of Slurm that its headers do not declare. slurmctld's allocator frees error texts. */
extern char *slurm_xstrdup(const char *text);
extern void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void slurm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void slurm_verbose(const char *format, ...) __attribute__((format(printf, 1, 2)));

#pragma GCC visibility push(default) /* Slurm looks them up by name */
extern const char plugin_name[], plugin_type[];
extern const uint32_t plugin_version;
const char plugin_name[] = "tandem: refuses jobs that cannot run";
const char plugin_type[] = "job_submit/tandem";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;
int job_submit(job_desc_msg_t *job, uint32_t submitter, char **message);
int job_modify(job_desc_msg_t *job, void *record, uint32_t submitter);
#pragma GCC visibility pop

/* The value of an option of spank_tandem.so; NULL = not given. Slurm 22.05 passes it as an environment
 * variable of the job's prolog, with or without the prefix SPANK_. */
static const char *job_option(const job_desc_msg_t *job, const char *name)
{
    char variable[96];
    const int n = snprintf(variable, sizeof variable, "_SLURM_SPANK_OPTION_tandem_tandem_%s=", name);
    for (uint32_t i = 0; job->spank_job_env && i < job->spank_job_env_size && i < 4096; i++) {
        const char *entry = job->spank_job_env[i];
        if (!entry) continue;
        if (strncmp(entry, "SPANK_", 6) == 0) entry += 6;
        if (strncmp(entry, variable, (size_t)n) == 0) return entry + n;
    }
    return NULL;
}

/* Memory per task by --mem and --mem-per-cpu; 0 = no limit. */
static uint64_t task_memory_bytes(const job_desc_msg_t *job)
{
    const uint64_t asked = job->pn_min_memory, mebibytes = asked & ~(uint64_t)MEM_PER_CPU;
    if (asked == NO_VAL64 || mebibytes == 0 || mebibytes > UINT64_MAX >> 21) return 0;
    const int has_cpus = job->cpus_per_task != NO_VAL16 && job->cpus_per_task > 0;
    const int has_tasks = job->ntasks_per_node != NO_VAL16 && job->ntasks_per_node > 0;
    if (asked & MEM_PER_CPU) return (mebibytes << 20) * (has_cpus ? job->cpus_per_task : 1U);
    return (mebibytes << 20) / (has_tasks ? job->ntasks_per_node : 1U);
}

static tandem_status check_submitted_job(const tandem_submission *submission, tandem_error *error)
{
    char path[4096];
    tandem_site *site = NULL;
    tandem_work_budget work = {.limit = TANDEM_SUBMISSION_MAX_WORK};
    const int64_t begin_ns = tandem_now_ns();
    tandem_site_path(path, sizeof path);
    tandem_status status = tandem_site_open(&site, path, error);
    if (status == TANDEM_OK) status = tandem_submission_check(&work, submission, site, error);
    tandem_site_close(site);
    slurm_verbose("job_submit/tandem: %s in %.2f ms, %" PRIu64 " units of work", tandem_status_name(status),
                  (double)(tandem_now_ns() - begin_ns) * 1e-6, work.spent);
    return status;
}

int job_submit(job_desc_msg_t *job, uint32_t submitter, char **message)
{
    tandem_error error = {0};
    const tandem_submission submission = {
        .model = job_option(job, "model"),
        /* a global batch may be split down to one sample a rank */
        .batch = job_option(job, "global_batch") ? "1" : job_option(job, "batch"),
        .memory = job_option(job, "memory"),
        .resources = {job->tres_per_node, job->tres_per_job, job->tres_per_socket, job->tres_per_task},
        .features = job->features,
        .task_memory_bytes = task_memory_bytes(job)};
    if (!submission.model) return SLURM_SUCCESS;
    const tandem_status status = check_submitted_job(&submission, &error);
    if (status == TANDEM_OK) return SLURM_SUCCESS;
    if (!tandem_submission_is_refused(status)) {
        void (*const log_message)(const char *format, ...) =
            status == TANDEM_LIMIT_EXCEEDED ? slurm_info : slurm_error;
        log_message("job_submit/tandem: a job of user %u is let through unchecked: %s", submitter,
                    error.text);
        return SLURM_SUCCESS;
    }
    char text[TANDEM_ERROR_TEXT + 16];
    (void)snprintf(text, sizeof text, "tandem: %s", error.text);
    if (message && !*message) *message = slurm_xstrdup(text);
    return ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE;
}

/* The options of a queued job cannot change. */
int job_modify(job_desc_msg_t *job, void *record, uint32_t submitter)
{
    (void)job;
    (void)record;
    (void)submitter;
    return SLURM_SUCCESS;
}
