/* rank_start.c: a rank that fails before it joins its run reports to the others, which would wait for it. */
#include <stdlib.h>

#include "base/run_report.h"
#include "runtime/process/rank_place.h"

static struct {
    tandem_rank_place self;
    int is_waited_for; /* from the start of the command until this rank has joined */
} start;

void rank_start_begin(const tandem_rank_place *self)
{
    if (self->n_rank < 2) return;
    start.self = *self;
    /* The descriptor stays open until the process ends. Another process of the same rank does not get the
     * lock: it has no right to end a run that goes on without it. */
    start.is_waited_for = tandem_run_start(self->folder, self->rank) >= 0;
}

void rank_start_joined(void) { start.is_waited_for = 0; }

void rank_start_failed(const char *why)
{
    if (start.is_waited_for) tandem_run_report_own(start.self.folder, start.self.rank, why);
    start.is_waited_for = 0;
}
