/* submission.c: checks the options, devices and memory of a job before it queues. */
#include "plugins/slurm/submission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "tandem/planner.h"

enum {
    MAX_BATCH = 1 << 20,
    MAX_OPTION_TEXT = 1024,
    /* units of work (memory_fit.h) of looking a name up in tandem.conf */
    LOOK_UP_UNITS = 16
};

typedef struct job_check {
    const tandem_submission *submission;
    const tandem_site *site;
    int64_t batch;
    uint64_t memory_bytes; /* --tandem-memory; 0 = not given */
    tandem_graph *graph;
    tandem_work_budget *work;
    int n_device;
    tandem_device device[TANDEM_MAX_CLASS];
    tandem_error *error;
} job_check;

/* It goes into slurmctld's log, so it holds no text of the user. */
static tandem_status refuse_over_work(const job_check *c)
{
    return tandem_error_set(c->error, TANDEM_LIMIT_EXCEEDED,
                            "to look at it takes more work than slurmctld gives a job (%" PRIu64
                            " units, %d operators); srun looks again",
                            c->work->limit, TANDEM_MEMORY_FIT_MAX_OP);
}

/* --- What was asked for --------------------------------------------------------------------------------- */

tandem_status tandem_submission_batch(int64_t *batch, const char *text, tandem_error *error)
{
    char *end = NULL;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > MAX_BATCH)
        return tandem_error_set(error, TANDEM_USAGE,
                                "a batch, as in --tandem-batch, is a whole number from 1 to %d, got '%.60s'",
                                MAX_BATCH, text);
    *batch = n;
    return TANDEM_OK;
}

tandem_status tandem_submission_memory(uint64_t *max_bytes, const char *text, tandem_error *error)
{
    uint64_t max = 0;
    for (const char *at = text;; at++) {
        char size[64];
        uint64_t bytes = 0;
        const size_t n = strcspn(at, ",");
        (void)snprintf(size, sizeof size, "%.*s", (int)(n < sizeof size ? n : sizeof size - 1), at);
        const tandem_status status = tandem_quantity_parse_bytes(&bytes, size, error);
        if (status != TANDEM_OK) return status;
        if (bytes > max) max = bytes;
        at += n;
        if (!*at) break;
    }
    *max_bytes = max;
    return TANDEM_OK;
}

static void add_device(job_check *c, const tandem_device *device)
{
    for (int i = 0; i < c->n_device; i++)
        if (strcmp(c->device[i].name, device->name) == 0) return;
    if (c->n_device < TANDEM_MAX_CLASS) c->device[c->n_device++] = *device;
}

static tandem_status read_devices(job_check *c)
{
    tandem_device device;
    const char *features = c->submission->features;
    for (size_t k = 0; k < sizeof c->submission->resources / sizeof *c->submission->resources; k++) {
        const char *list = c->submission->resources[k];
        tandem_gres gres;
        while (list && tandem_gres_next(&gres, &list)) {
            if (!tandem_work_budget_spend(c->work, LOOK_UP_UNITS)) return refuse_over_work(c);
            const int found = tandem_site_gres(&device, c->site, &gres, c->error);
            if (found < 0) return TANDEM_UNKNOWN_NAME;
            if (found > 0) add_device(c, &device);
        }
    }
    if (c->n_device || !features || strchr(features, '|')) return TANDEM_OK;
    char name[TANDEM_SITE_NAME];
    while (tandem_feature_next(name, &features)) {
        if (!tandem_work_budget_spend(c->work, LOOK_UP_UNITS)) return refuse_over_work(c);
        if (tandem_site_feature(&device, c->site, name)) add_device(c, &device);
    }
    return TANDEM_OK;
}

/* --- Memory --------------------------------------------------------------------------------------------- */

static uint64_t device_memory_limit(const job_check *c, const tandem_device *device)
{
    uint64_t limit = c->memory_bytes ? c->memory_bytes : device->memory_bytes;
    const uint64_t host = c->submission->task_memory_bytes;
    if (strncmp(device->name, "cpu:", 4) == 0 && host && (!limit || host < limit)) limit = host;
    return limit;
}

static tandem_status refuse_too_little_memory(job_check *c, const tandem_device *device, uint64_t min_bytes,
                                              uint64_t limit_bytes)
{
    char advice[128];
    int64_t batch = 0;
    tandem_precision precision;
    const tandem_status status = tandem_memory_fit_batch(&batch, &precision, c->graph->model, device,
                                                         limit_bytes, c->batch - 1, c->work, c->error);
    if (status != TANDEM_OK && status != TANDEM_LIMIT_EXCEEDED) return status;
    if (status == TANDEM_LIMIT_EXCEEDED)
        (void)snprintf(advice, sizeof advice, "a smaller --tandem-batch may fit");
    else if (batch)
        (void)snprintf(advice, sizeof advice, "--tandem-batch=%" PRId64 " fits, in %s", batch,
                       tandem_precision_get(precision)->name);
    else
        (void)snprintf(advice, sizeof advice, "no batch fits");
    return tandem_error_set(c->error, TANDEM_INFEASIBLE,
                            "%s does not fit %s: at batch %" PRId64 " a rank takes %s (%" PRIu64
                            " B) or more under any plan, the limit is %s (%" PRIu64 " B); %s",
                            c->graph->model, device->name, c->batch, tandem_quantity_bytes(min_bytes).text,
                            min_bytes, tandem_quantity_bytes(limit_bytes).text, limit_bytes, advice);
}

/* Checks devices that need the same memory once. Refuses a model that is too large even where no work is
 * left for other devices. */
static tandem_status check_device_memory(job_check *c)
{
    uint64_t min_bytes[TANDEM_MAX_CLASS] = {0};
    int is_whole = 1;
    for (int i = 0; i < c->n_device; i++) {
        const uint64_t limit_bytes = device_memory_limit(c, &c->device[i]);
        int like = 0;
        if (!limit_bytes) continue;
        while (like < i && (!min_bytes[like] || !tandem_memory_fit_is_same(&c->device[like], &c->device[i])))
            like++;
        min_bytes[i] = min_bytes[like];
        if (like == i) {
            const tandem_status status =
                tandem_memory_fit_min_bytes(&min_bytes[i], c->graph, &c->device[i], c->work, c->error);
            if (status == TANDEM_LIMIT_EXCEEDED) {
                is_whole = 0;
                continue;
            }
            if (status != TANDEM_OK) return status;
        }
        if (min_bytes[i] > limit_bytes)
            return refuse_too_little_memory(c, &c->device[i], min_bytes[i], limit_bytes);
    }
    return is_whole ? TANDEM_OK : refuse_over_work(c);
}

/* --- All of it ------------------------------------------------------------------------------------------ */

/* Longer texts are refused. */
static tandem_status check_lengths(const tandem_submission *s, tandem_error *error)
{
    const char *const texts[] = {s->model,        s->batch,        s->memory,       s->features,
                                 s->resources[0], s->resources[1], s->resources[2], s->resources[3]};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (texts[k] && strnlen(texts[k], MAX_OPTION_TEXT) == MAX_OPTION_TEXT)
            return tandem_error_set(error, TANDEM_USAGE, "'%.40s…' is longer than the %d characters allowed",
                                    texts[k], MAX_OPTION_TEXT - 1);
    return TANDEM_OK;
}

static tandem_status check_whole_submission(job_check *c)
{
    const tandem_submission *s = c->submission;
    tandem_status status = TANDEM_OK;
    if (s->batch) status = tandem_submission_batch(&c->batch, s->batch, c->error);
    if (status == TANDEM_OK && s->memory)
        status = tandem_submission_memory(&c->memory_bytes, s->memory, c->error);
    if (status == TANDEM_OK) status = read_devices(c);
    if (status != TANDEM_OK) return status;
    status = tandem_memory_fit_open(&c->graph, s->model, c->batch, c->work, c->error);
    if (status == TANDEM_LIMIT_EXCEEDED) return refuse_over_work(c);
    return status == TANDEM_OK ? check_device_memory(c) : status;
}

tandem_status tandem_submission_check(tandem_work_budget *work, const tandem_submission *submission,
                                      const tandem_site *site, tandem_error *error)
{
    job_check c = {
        .submission = submission, .site = site, .batch = TANDEM_DEFAULT_BATCH, .work = work, .error = error};
    tandem_status status = TANDEM_OK;
    if (submission->model) status = check_lengths(submission, error);
    if (submission->model && status == TANDEM_OK) status = check_whole_submission(&c);
    tandem_graph_close(c.graph);
    return status;
}

int tandem_submission_is_refused(tandem_status status)
{
    return status == TANDEM_UNKNOWN_NAME || status == TANDEM_USAGE || status == TANDEM_INFEASIBLE ||
           status == TANDEM_WRONG_GRAPH;
}
