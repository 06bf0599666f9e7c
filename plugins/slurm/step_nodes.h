/* step_nodes.h: on which nodes a step runs, with how many tasks each, and which device each node is for it:
 * asked of slurmctld, in two or three requests. Private to allocator/slurm. */
#ifndef TANDEM_ALLOCATOR_SLURM_STEP_NODES_H
#define TANDEM_ALLOCATOR_SLURM_STEP_NODES_H

#include <time.h>

#include "plugins/slurm/layout.h"
#include "plugins/slurm/site.h"
#include "base/arena.h"

/* Zero-initialise. Strings and nodes belong to the arena. */
typedef struct tandem_step_nodes {
    tandem_arena arena;
    tandem_node *node; /* [n_node], component by component of a heterogeneous job, as Slurm orders them */
    int n_node;
    uint32_t job;          /* the leader's of a heterogeneous job */
    uint32_t component;    /* the first of it that the step runs on; 0 of any other job */
    time_t submitted;      /* the job */
    const char *directory; /* its working directory */
} tandem_step_nodes;

/* What srun knows of the step it starts. */
typedef struct tandem_step_name {
    uint32_t job, step;    /* job: of any component that the step runs on */
    uint32_t n_task;       /* there */
    uint32_t n_task_total; /* on all components */
} tandem_step_name;

/* tandem_step_nodes_open: what a step runs on. A node is the device of the resources that the job has on it,
 * or else of its features. TANDEM_IO (slurmctld), TANDEM_UNKNOWN_NAME
 * (a node that is no device), TANDEM_USAGE (resources of two kinds on a node, fewer than tasks),
 * TANDEM_NO_MEMORY. */
tandem_status tandem_step_nodes_open(tandem_step_nodes *nodes, const tandem_step_name *name,
                                     const tandem_site *site, tandem_error *error);
void tandem_step_nodes_close(tandem_step_nodes *nodes);

/* tandem_step_nodes_ranks: where the ranks are, for the tasks: for each run of nodes its first rank, tasks a
 * node, device, nodes: "0 1 cpu:avx2 n[0-3];4 2 t4 g[1,4]". NULL without memory; free it. Ranks must have
 * been laid out. */
char *tandem_step_nodes_ranks(const tandem_step_nodes *nodes);

#endif
