/* device_graphs.h: micro-steps as graphs of the device, where it has any: what the host would put on streams
 * task by task, in one call.
 *
 * An executor's first step is run task by task, whereby libraries load what they need; in its second each
 * micro-step is recorded, and from then on replayed. What the host has a part in is no part of a graph:
 * putting the batch together, before; and where gradients are reduced or judged on the host, what comes
 * behind that: waiting for a bucket, bringing it back, its update. Arguments that change from step to step
 * are read where the device finds them (tandem_step_args), so that bits are those of launches.
 *
 * Steps are timed in graphs, too: the events behind tasks are nodes, so that a task costs in a profile what
 * it costs in a graph. There are none for observers, for evaluations, where TANDEM_GRAPHS is 0 in the
 * environment, and from where one cannot be made on: then the step goes on task by task, and the note says
 * why. */
#ifndef TANDEM_BACKEND_GRAPHS_H
#define TANDEM_BACKEND_GRAPHS_H

#include "tandem/backend.h"

typedef struct tandem_device_graphs {
    void **captured;  /* [n_micro] the device's; NULL where there is none yet */
    int is_enabled;   /* and can be had, as far as is known */
    int is_capturing; /* what streams are given now is put down, not done */
    int was_launched; /* the last micro-step was one of a graph */
    int64_t n_step;   /* that the executor has done */
    char note[TANDEM_ERROR_TEXT];
} tandem_device_graphs;

/* TANDEM_NO_MEMORY. */
tandem_status tandem_device_graphs_open(tandem_executor *executor, tandem_error *error);
void tandem_device_graphs_close(tandem_executor *executor); /* of whatever was opened */
/* Runs as much of a micro-step as its graph holds; *done: how many of the active tasks, from the first; 0
 * where it is run without. Errors are those of putting the batch together. */
tandem_status tandem_device_graphs_run(tandem_executor *executor, int *done, int64_t micro_index,
                                       int64_t origin, tandem_error *error);

#endif
