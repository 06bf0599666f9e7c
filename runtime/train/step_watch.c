#include "runtime/train/step_watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tandem/advanced/predictor.h"

static const int64_t speed_sample_every_ns = 20000000;
enum { SPEED_SAMPLE_SHARE = 200 };

tandem_status step_watch_open(step_watch *watch, const char *device, tandem_error *error)
{
    *watch = (step_watch){.probe.file = -1, .step_delay_ns = -1};
    if (strncmp(device, "cpu:", 4) != 0) return TANDEM_OK;
    const tandem_status status = tandem_speed_sample_open(&watch->walk, error);
    if (status != TANDEM_OK) return status;
    tandem_delay_open(&watch->probe);
    watch->is_open = 1;
    step_watch_take_speed_sample(watch); /* the first one touches code and pages */
    step_watch_take_speed_sample(watch);
    watch->all_speed_samples_ns = 0;
    return TANDEM_OK;
}

tandem_status step_watch_set_tasks(step_watch *watch, int n_task, tandem_error *error)
{
    watch->delay_ns = malloc(((size_t)n_task * 2 + 1) * sizeof *watch->delay_ns);
    if (!watch->delay_ns) return tandem_no_memory(error, "for the delays of %d tasks", n_task);
    watch->n_task = n_task;
    watch->last_delay_ns = watch->delay_ns + n_task;
    step_watch_begin(watch);
    return TANDEM_OK;
}

void step_watch_close(step_watch *watch)
{
    if (watch->is_open) {
        tandem_delay_close(&watch->probe);
        tandem_speed_sample_close(&watch->walk);
    }
    free(watch->delay_ns);
    *watch = (step_watch){.probe.file = -1};
}

static void add_known(int64_t *sum, int64_t more)
{
    if (more >= 0) *sum = (*sum < 0 ? 0 : *sum) + more;
}

/* What has come since the last reading; it counts in the step. */
static int64_t read_more_delay(step_watch *watch)
{
    const int64_t now = tandem_delay_read(&watch->probe), more = tandem_delay_since(watch->seen, now);
    watch->seen = now;
    add_known(&watch->step_delay_ns, more);
    return more;
}

static void see_task_end(void *context, const tandem_executor *executor, int task)
{
    step_watch *const watch = context;
    (void)executor;
    if (task >= watch->n_task) return;
    watch->last_delay_ns[task] = read_more_delay(watch);
    add_known(&watch->delay_ns[task], watch->last_delay_ns[task]);
}

void step_watch_tasks(step_watch *watch, const tandem_backend_api *backend, tandem_executor *executor, int on)
{
    if (watch->is_open && watch->probe.file >= 0)
        backend->executor_observe(executor, on ? see_task_end : NULL, watch);
}

void step_watch_begin(step_watch *watch)
{
    for (int t = 0; t < 2 * watch->n_task; t++) watch->delay_ns[t] = -1;
    watch->step_delay_ns = -1;
    if (watch->is_open) watch->seen = tandem_delay_read(&watch->probe);
}

void step_watch_end(step_watch *watch)
{
    if (watch->is_open) (void)read_more_delay(watch);
}

int64_t step_watch_speed_sample_every_ns(const step_watch *watch)
{
    const int64_t for_share_ns = SPEED_SAMPLE_SHARE * watch->speed_sample_cost_ns;
    return for_share_ns > speed_sample_every_ns ? for_share_ns : speed_sample_every_ns;
}

int step_watch_is_speed_sample_due(const step_watch *watch)
{
    return watch->is_open &&
           tandem_now_ns() - watch->speed_sample_end_ns >= step_watch_speed_sample_every_ns(watch);
}

void step_watch_take_speed_sample(step_watch *watch)
{
    if (!watch->is_open) return;
    const int64_t begin_ns = tandem_now_ns();
    for (int attempt = 0; attempt < 2; attempt++) {
        const int64_t before = tandem_delay_read(&watch->probe);
        watch->speed_sample = tandem_speed_sample_take(&watch->walk);
        if (tandem_delay_since(before, tandem_delay_read(&watch->probe)) <= 0) break;
    }
    watch->speed_sample_end_ns = tandem_now_ns();
    watch->speed_sample_cost_ns = watch->speed_sample_end_ns - begin_ns;
    watch->all_speed_samples_ns += watch->speed_sample_cost_ns;
}

double task_memory_share(const tandem_cost_key *key, int64_t ns, const tandem_speed_sample *steady)
{
    tandem_work work;
    if (ns <= 0 || !tandem_work_of(&work, key)) return 0;
    const double share = tandem_speed_sample_bytes_ns(steady, work.bytes) / (double)ns;
    return share < 1 ? share : 1;
}
