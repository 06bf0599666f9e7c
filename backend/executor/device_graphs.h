/* device_graphs.h: micro-steps as device graphs: one call launches what the host would otherwise queue task
 * by task.
 *
 * An executor's first step runs task by task, so that libraries load what they need. The second step captures
 * each micro-step, and later steps launch the graphs. A graph leaves out the host's work: assembling the
 * batch before it, and, where the host reduces or clips gradients, the waits, copies and updates after it.
 * Kernels read arguments that change from device memory (tandem_step_args), so results have the same bits as
 * without graphs.
 *
 * Steps are timed in graphs too: the events after tasks are nodes, so that a profile measures tasks as they
 * cost in a graph. No graph is used with an observer, in evaluations, where the environment sets
 * TANDEM_GRAPHS=0, and after a capture has failed: steps then run task by task, and executor_note says why.
 * */
#pragma once

#include "tandem/advanced/backend.h"

typedef struct tandem_device_graphs {
    void **captured;  /* [n_micro] the device's graphs; NULL where none was captured yet */
    int is_enabled;   /* and no capture has failed */
    int is_capturing; /* streams capture work instead of running it */
    int was_launched; /* the last micro-step ran as a graph */
    int64_t n_step;   /* steps done */
    char note[TANDEM_ERROR_TEXT];
} tandem_device_graphs;

/* TANDEM_NO_MEMORY. */
tandem_status tandem_device_graphs_open(tandem_executor *executor, tandem_error *error);
void tandem_device_graphs_close(tandem_executor *executor); /* frees all that was opened */
/* Runs the part of a micro-step that its graph holds; *done: how many of the active tasks that is; 0 without
 * a graph. Errors of assembling the batch. */
tandem_status tandem_device_graphs_run(tandem_executor *executor, int *done, int64_t micro_index,
                                       int64_t origin, tandem_error *error);
