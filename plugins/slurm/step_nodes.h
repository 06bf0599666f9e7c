/* step_nodes.h: the nodes of a step with their tasks and devices, from two or three requests to slurmctld.
 * Private to plugins/slurm. */
#pragma once

#include <time.h>

#include "plugins/slurm/layout.h"
#include "plugins/slurm/site.h"
#include "base/arena.h"

/* Zero-initialise. Strings and nodes belong to the arena. */
typedef struct tandem_step_nodes {
    tandem_arena arena;
    tandem_node *node; /* [n_node] by component of a heterogeneous job, in Slurm's order */
    int n_node;
    uint32_t job;          /* the leader of a heterogeneous job */
    uint32_t component;    /* the first one that the step runs on; 0 for other jobs */
    time_t submitted;      /* when the job was submitted */
    const char *directory; /* its working directory */
} tandem_step_nodes;

/* What srun knows of its step. */
typedef struct tandem_step_name {
    uint32_t job, step;    /* job: any component that the step runs on */
    uint32_t n_task;       /* on that component */
    uint32_t n_task_total; /* on all components */
} tandem_step_name;

/* tandem_step_nodes_open: the nodes of a step. The device of a node follows from the resources that the
 * job has on it, else from its features. TANDEM_IO: slurmctld. TANDEM_UNKNOWN_NAME: a node is no device.
 * TANDEM_USAGE: a node has resources of two kinds, or fewer than tasks. TANDEM_NO_MEMORY. */
tandem_status tandem_step_nodes_open(tandem_step_nodes *nodes, const tandem_step_name *name,
                                     const tandem_site *site, tandem_error *error);
void tandem_step_nodes_close(tandem_step_nodes *nodes);

/* tandem_step_nodes_ranks: the ranks as text for the tasks, after tandem_layout_ranks: per run of nodes
 * its first rank, tasks per node, device and nodes: "0 1 cpu:avx2 n[0-3];4 2 t4 g[1,4]". NULL: no memory.
 * The caller frees it. */
char *tandem_step_nodes_ranks(const tandem_step_nodes *nodes);
